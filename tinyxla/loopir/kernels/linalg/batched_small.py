"""Batched small factorizations and triangular solves in an interleaved ("compact") layout: one matrix per vector lane.

A kernel transposes a group of matrices to arrays [element, lane], works there with the loop over lanes innermost, and
transposes the results back. An operation on an element is one vector operation for the group, where a call of LAPACK
takes longer to begin than to compute. Rows are swapped by a select in each lane.

Source: the compact layout of Intel MKL's batched BLAS and LAPACK; G. Golub and C. Van Loan, Matrix Computations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tinyxla.compiler.costs import LINE_BYTES, VECTOR_ELEMENTS
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand
from tinyxla.loopir.kernels.gemm import packing as packing
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.ops.linalg.linear_algebra import TriangularSolve

_MAX_SCRATCH_BYTES = 200 * 1024  # of interleaved copies
_BYTES = {"f32": 4, "f64": 8, "s32": 4}


def supports(x: Instruction) -> bool:
    """Whether the batch is large enough and its matrices are small enough."""
    shapes = [o.array_shape for o in x.operands]
    type = shapes[0].element_type.name
    *batch, rows, columns = shapes[0].dimensions
    if (
        type not in ("f32", "f64")
        or math.prod(batch) < VECTOR_ELEMENTS // 2
        or max(rows, columns) > 2 * VECTOR_ELEMENTS
    ):
        return False
    panel_elements = sum(math.prod(shape.dimensions[-2:]) for shape in shapes) + 2 * rows + 2
    return panel_elements * VECTOR_ELEMENTS * _BYTES[type] <= _MAX_SCRATCH_BYTES


def supports_lu(x: Instruction) -> bool:
    """The same for LU, with shorter rows: from some size on, selecting rows in all lanes takes longer than swapping
    them in each matrix."""
    shape = x.operands[0].array_shape
    return supports(x) and max(shape.dimensions[-2:]) * _BYTES[shape.element_type.name] <= LINE_BYTES


def supports_qr(x: Instruction) -> bool:
    """The same for QR, whose factors have as many rows as the matrix, or fewer."""
    shape = x.operands[0].array_shape
    rows, columns = shape.dimensions[-2:]
    return (
        supports(x)
        and rows * (columns + rows) * VECTOR_ELEMENTS * _BYTES[shape.element_type.name] <= _MAX_SCRATCH_BYTES
    )


class _InterleavedBatch:
    """Emits the kernel of one operation on groups of interleaved matrices."""

    def __init__(self, x: Instruction, plan: Plan, results: list[Instruction]) -> None:
        self.x = x
        self.low = Lowering(x.op.name.replace("-", "_"), plan, results)
        self.b = self.low.builder
        self.type = x.operands[0].array_shape.element_type.name
        *batch, self.rows, self.columns = x.operands[0].array_shape.dimensions
        self.batch, self.width = math.prod(batch), VECTOR_ELEMENTS
        self.copy_arguments = self.b.scratch(INDEX, len(packing.COPY_ARGUMENTS))
        self.first: Index = 0
        self.count: Index = 0

    def kernel(self, work: int, body: Callable[[], None]) -> list[LoweredKernel]:
        """The kernel over all groups; `work` is the number of operations for a matrix."""
        with self.low.loop(self.b.kernel.first, self.b.kernel.last) as (index, _):
            self.first = self.b.mul(index, self.width)
            self.count = self.b.min(self.b.sub(self.batch, self.first), self.width)
            body()
        return [make_kernel(self.low, -(-self.batch // self.width), 2 * work, [self.x])]

    # --- memory

    def _transpose(self, to: tuple[Buffer, Index], source: tuple[Buffer, Index], **arguments: Index) -> None:
        store_arguments(self.b, self.copy_arguments, packing.COPY_ARGUMENTS, **arguments)
        self.b.call(packing.transpose(8 * _BYTES[to[0].type]), to, source, (self.copy_arguments, 0))

    @contextmanager
    def _groups(self, size: Index) -> Generator[tuple[Index, Index]]:
        """A loop over tiles that are transposed at once: the first index of the tile, and how many indices remain."""
        b, height = self.b, packing.transpose_size()
        with self.low.loop(0, b.ceil_div(size, height), sequential=True) as (group, _):
            start = b.mul(group, height)
            yield start, b.sub(size, start)

    def read(self, x: Storage, size: int, written: bool = False) -> Buffer:
        """Copy `size` elements of each matrix to an interleaved array. `written` says that they are in a result's
        memory."""
        b, source = self.b, self.low.buffer(x, written)
        lanes = b.scratch(source.type, size * self.width)
        with self._groups(self.count) as (lane, remaining):
            lane_offset = b.mul(b.add(self.first, lane), size)
            self._transpose(
                (lanes, lane),
                (source, lane_offset),
                columns=size,
                source_pitch=size,
                rows=remaining,
                target_pitch=self.width,
            )
        return lanes

    def write(self, lanes: Buffer, x: Storage, size: int) -> None:
        """Copy an interleaved array to an array of matrices."""
        b, target, height = self.b, self.low.buffer(x, True), packing.transpose_size()
        full_tiles = size // height * height
        begin = b.mul(self.first, size)
        with self._groups(full_tiles) as (element, remaining):
            source = lanes, b.mul(element, self.width)
            to = target, b.add(begin, element)
            self._transpose(to, source, columns=self.count, source_pitch=self.width, rows=remaining, target_pitch=size)
        with self.low.loop(0, self.count) as (lane, _), self.low.loop(full_tiles, size) as (element, _):
            value = b.load(lanes, b.add(b.mul(element, self.width), lane))
            b.store(target, b.add(begin, b.add(b.mul(lane, size), element)), value)

    # --- arithmetic

    @contextmanager
    def sequential_loop(self, start: Index, stop: Index) -> Generator[Index]:
        with self.low.loop(start, stop, sequential=True) as (k, _):
            yield k

    @contextmanager
    def lane_loop(self) -> Generator[Callable[[Buffer, Index], Operand]]:
        """The loop over lanes; gives the function that loads an element's lane."""
        with self.low.loop(0, self.width) as (lane, _):
            self._lane = lane
            yield self.load

    def lane_offset(self, element: Index) -> Index:
        return self.b.add(self.b.mul(element, self.width), self._lane)

    def load(self, lanes: Buffer, element: Index) -> Operand:
        return self.b.load(lanes, self.lane_offset(element))

    def store(self, lanes: Buffer, element: Index, value: Operand) -> None:
        self.b.store(lanes, self.lane_offset(element), value)

    def compute(self, op: str, *operands: Operand) -> Operand:
        return self.b.compute(op, self.type, *operands)

    def literal(self, value: float) -> Literal:
        return Literal(self.type, value)

    def at(self, row: Index, pitch: int, column: Index) -> Index:
        return self.b.add(self.b.mul(row, pitch), column)

    def subtract_product(self, lanes: Buffer, element: Index, x: Operand, y: Operand) -> None:
        product = self.compute("multiply", x, y)
        self.store(lanes, element, self.compute("subtract", self.load(lanes, element), product))


def cholesky(x: Instruction, plan: Plan) -> list[LoweredKernel]:
    """Cholesky in place. The other triangle becomes zero; a matrix that is not positive definite becomes NaN; one with
    NaN keeps the columns before."""
    m, lower = _InterleavedBatch(x, plan, [x]), x.attributes.lower
    n = m.rows

    def at(row: Index, column: Index) -> Index:
        return m.at(row, n, column) if lower else m.at(column, n, row)

    def body() -> None:
        a = m.read(x, n * n, written=True)
        inverse, failure = m.b.scratch(m.type, m.width), m.b.scratch(m.type, m.width)
        with m.lane_loop():
            m.store(failure, 0, m.literal(0.0))
        with m.sequential_loop(0, n) as j:
            after = m.b.add(j, 1)
            with m.lane_loop() as load:
                pivot = load(a, at(j, j))
                has_none = m.b.compare("LE", pivot, m.literal(0.0))
                root = m.b.select(has_none, m.literal(math.nan), m.compute("sqrt", pivot))
                m.store(failure, 0, m.b.select(has_none, m.literal(1.0), load(failure, 0)))
                m.store(a, at(j, j), root)
                m.store(inverse, 0, m.compute("divide", m.literal(1.0), root))
            with m.sequential_loop(after, n) as i, m.lane_loop() as load:
                m.store(a, at(i, j), m.compute("multiply", load(a, at(i, j)), load(inverse, 0)))
            with m.sequential_loop(after, n) as k, m.sequential_loop(k, n) as i, m.lane_loop() as load:
                m.subtract_product(a, at(i, k), load(a, at(i, j)), load(a, at(k, j)))
        with m.sequential_loop(0, n * n) as element, m.lane_loop() as load:
            failed = m.b.compare("GT", load(failure, 0), m.literal(0.0))
            m.store(a, element, m.b.select(failed, m.literal(math.nan), load(a, element)))
        with m.sequential_loop(0, n) as i, m.sequential_loop(0, i) as j, m.lane_loop():
            m.store(a, at(j, i), m.literal(0.0))
        m.write(a, x, n * n)

    return m.kernel(n**3, body)


def lu(x: Instruction, plan: Plan, results: dict[int, Instruction]) -> list[LoweredKernel]:
    """LU with partial pivoting: factors, pivots and the permutation, as far as they are read (`results`)."""
    m = _InterleavedBatch(x, plan, [*results.values()])
    rows, columns = m.rows, m.columns
    steps = min(rows, columns)

    def swap(lanes: Buffer, is_pivot: Operand, i: Index, k: Index) -> None:
        row_i, row_k = m.load(lanes, i), m.load(lanes, k)
        m.store(lanes, i, m.b.select(is_pivot, row_k, row_i))
        m.store(lanes, k, m.b.select(is_pivot, row_i, row_k))

    def body() -> None:
        a = m.read(x.operands[0], rows * columns)
        max_magnitude, max_row = m.b.scratch(m.type, m.width), m.b.scratch("s32", m.width)
        pivots, order = m.b.scratch("s32", steps * m.width), m.b.scratch("s32", rows * m.width)
        with m.sequential_loop(0, rows) as i, m.lane_loop():
            m.store(order, i, m.b.convert("s32", i))
        with m.sequential_loop(0, steps) as k:
            unknown_index = m.b.convert("s32", k)
            after = m.b.add(k, 1)
            with m.lane_loop() as load:
                m.store(max_magnitude, 0, m.compute("abs", load(a, m.at(k, columns, k))))
                m.store(max_row, 0, unknown_index)
            with m.sequential_loop(after, rows) as i:
                row = m.b.convert("s32", i)
                with m.lane_loop() as load:
                    size = m.compute("abs", load(a, m.at(i, columns, k)))
                    is_greater = m.b.compare("GT", size, load(max_magnitude, 0))
                    m.store(max_row, 0, m.b.select(is_greater, row, load(max_row, 0)))
                    m.store(max_magnitude, 0, m.b.select(is_greater, size, load(max_magnitude, 0)))
            with m.lane_loop() as load:
                m.store(pivots, k, load(max_row, 0))
            with m.sequential_loop(after, rows) as i:
                row = m.b.convert("s32", i)
                with m.lane_loop() as load:
                    swap(order, m.b.compare("EQ", load(max_row, 0), row), i, k)
                with m.sequential_loop(0, columns) as j, m.lane_loop() as load:
                    swap(a, m.b.compare("EQ", load(max_row, 0), row), m.at(i, columns, j), m.at(k, columns, j))
            with m.sequential_loop(after, rows) as i:
                with m.lane_loop() as load:
                    pivot, value = load(a, m.at(k, columns, k)), load(a, m.at(i, columns, k))
                    is_zero = m.b.compare("EQ", pivot, m.literal(0.0))
                    m.store(a, m.at(i, columns, k), m.b.select(is_zero, value, m.compute("divide", value, pivot)))
                with m.sequential_loop(after, columns) as j, m.lane_loop() as load:
                    factors = load(a, m.at(i, columns, k)), load(a, m.at(k, columns, j))
                    m.subtract_product(a, m.at(i, columns, j), *factors)
        for result, lanes, size in ((0, a, rows * columns), (1, pivots, steps), (2, order, rows)):
            if result in results:
                m.write(lanes, results[result], size)

    return m.kernel(rows * columns * steps, body)


def qr(x: Instruction, plan: Plan, results: dict[int, Instruction]) -> list[LoweredKernel]:
    """QR by Householder reflectors; `results` holds those of Q and R that are read."""
    return _HouseholderQr(x, plan, results).kernels()


class _HouseholderQr(_InterleavedBatch):
    """Householder reflectors I - tau v v' (LAPACK's convention: v begins with 1, and its other elements are stored
    below the diagonal). A column that is zero below the diagonal has tau = 0."""

    def __init__(self, x: Instruction, plan: Plan, results: dict[int, Instruction]) -> None:
        super().__init__(x, plan, [*results.values()])
        self.results, self.steps = results, min(self.rows, self.columns)
        self.inner = self.rows if x.attributes.full_matrices else self.steps
        self.one, self.zero = self.literal(1.0), self.literal(0.0)

    def kernels(self) -> list[LoweredKernel]:
        return self.kernel(2 * self.rows * self.columns * self.steps, self._factorize)

    def _factorize(self) -> None:
        """Factorize a group of matrices and write the results."""
        rows, columns = self.rows, self.columns
        self.a = self.read(self.x.operands[0], rows * columns)
        self.tau = self.b.scratch(self.type, self.steps * self.width)
        self.magnitude, self.dot = (self.b.scratch(self.type, self.width) for _ in range(2))
        with self.sequential_loop(0, self.steps) as k:
            self._make_reflector(k)
            with self.sequential_loop(self.b.add(k, 1), columns) as j:
                self._apply_reflector(k, self.a, columns, j)
        if 0 in self.results:
            self._form_q(self.results[0])
        if 1 in self.results:
            with (
                self.sequential_loop(0, self.inner) as i,
                self.sequential_loop(0, self.b.min(i, columns)) as j,
                self.lane_loop(),
            ):
                self.store(self.a, self.at(i, columns, j), self.zero)
            self.write(self.a, self.results[1], self.inner * columns)

    def _form_q(self, result: Instruction) -> None:
        """Apply the reflectors to the identity, the last one first."""
        rows, inner = self.rows, self.inner
        q = self.b.scratch(self.type, rows * inner * self.width)
        with self.sequential_loop(0, rows) as i, self.sequential_loop(0, inner) as j:
            value = self.b.select(self.b.compare("EQ", i, j), self.one, self.zero)
            with self.lane_loop():
                self.store(q, self.at(i, inner, j), value)
        with self.sequential_loop(0, self.steps) as step:
            k = self.b.sub(self.steps - 1, step)
            with self.sequential_loop(k, inner) as j:
                self._apply_reflector(k, q, inner, j)
        self.write(q, result, rows * inner)

    def _apply_reflector(self, k: Index, target: Buffer, pitch: int, j: Index) -> None:
        """Apply reflector k to column j of `target`."""
        a, dot = self.a, self.dot
        after = self.b.add(k, 1)
        top = self.at(k, pitch, j)
        with self.lane_loop() as load:
            self.store(dot, 0, load(target, top))
        with self.sequential_loop(after, self.rows) as i, self.lane_loop() as load:
            factors = load(a, self.at(i, self.columns, k)), load(target, self.at(i, pitch, j))
            product = self.compute("multiply", *factors)
            self.store(dot, 0, self.compute("add", load(dot, 0), product))
        with self.lane_loop() as load:
            scaled = self.compute("multiply", load(dot, 0), load(self.tau, k))
            self.store(dot, 0, scaled)
            self.store(target, top, self.compute("subtract", load(target, top), scaled))
        with self.sequential_loop(after, self.rows) as i, self.lane_loop() as load:
            element = self.at(i, pitch, j)
            self.subtract_product(target, element, load(dot, 0), load(a, self.at(i, self.columns, k)))

    def _make_reflector(self, k: Index) -> None:
        """Compute reflector k in place of column k. Elements are scaled, so that no square overflows or underflows."""
        a, magnitude, total, zero = self.a, self.magnitude, self.dot, self.zero
        after, top = self.b.add(k, 1), self.at(k, self.columns, k)
        with self.lane_loop():
            self.store(magnitude, 0, zero)
            self.store(total, 0, zero)
        with self.sequential_loop(after, self.rows) as i, self.lane_loop() as load:
            size = self.compute("abs", load(a, self.at(i, self.columns, k)))
            self.store(magnitude, 0, self.compute("maximum", load(magnitude, 0), size))
        with self.lane_loop() as load:
            size = self.compute("maximum", load(magnitude, 0), self.compute("abs", load(a, top)))
            is_null = self.b.compare("EQ", load(magnitude, 0), zero)
            self.store(magnitude, 0, self.b.select(is_null, zero, size))
        with self.sequential_loop(k, self.rows) as i, self.lane_loop() as load:
            scaled = self.compute("divide", load(a, self.at(i, self.columns, k)), load(magnitude, 0))
            previous, square = load(total, 0), self.compute("multiply", scaled, scaled)
            self.store(total, 0, self.compute("add", previous, square))
        with self.lane_loop() as load:
            first = load(a, top)
            norm = self.compute("multiply", self.compute("sqrt", load(total, 0)), load(magnitude, 0))
            infinite = self.compute("divide", self.one, first)  # of a zero: an infinity of its sign
            signed = self.b.select(self.b.compare("EQ", first, zero), infinite, first)
            beta = self.b.select(self.b.compare("LT", signed, zero), norm, self.compute("negate", norm))
            is_null = self.b.compare("EQ", load(magnitude, 0), zero)
            tau = self.compute("divide", self.compute("subtract", beta, first), beta)
            self.store(self.tau, k, self.b.select(is_null, zero, tau))
            self.store(total, 0, self.b.select(is_null, self.one, self.compute("subtract", first, beta)))
            self.store(a, top, self.b.select(is_null, first, beta))
        with self.sequential_loop(after, self.rows) as i, self.lane_loop() as load:
            element = self.at(i, self.columns, k)
            self.store(a, element, self.compute("divide", load(a, element), load(total, 0)))


def triangular_solve(x: Instruction, plan: Plan) -> list[LoweredKernel]:
    """Forward or back substitution in place of the right-hand sides."""
    options = TriangularSolve(*x.attributes)
    m = _InterleavedBatch(x, plan, [x])
    n = m.rows
    *_, rows, columns = x.array_shape.dimensions
    is_transposed = (options.transpose_a != "NO_TRANSPOSE") == options.left_side
    forward = options.lower != is_transposed
    rhs_count = columns if options.left_side else rows

    def coefficient(i: Index, k: Index) -> Index:
        return m.at(k, n, i) if is_transposed else m.at(i, n, k)

    def unknown(i: Index, rhs: Index) -> Index:
        return m.at(i, columns, rhs) if options.left_side else m.at(rhs, columns, i)

    def unknown_index(step: Index) -> Index:
        return step if forward else m.b.sub(n - 1, step)

    def body() -> None:
        a, b = m.read(x.operands[0], n * n), m.read(x, rows * columns, written=True)
        with m.sequential_loop(0, n) as step:
            i = unknown_index(step)
            with m.sequential_loop(0, step) as before:
                k = unknown_index(before)
                with m.sequential_loop(0, rhs_count) as rhs, m.lane_loop() as load:
                    m.subtract_product(b, unknown(i, rhs), load(a, coefficient(i, k)), load(b, unknown(k, rhs)))
            if not options.unit_diagonal:
                with m.sequential_loop(0, rhs_count) as rhs, m.lane_loop() as load:
                    value = m.compute("divide", load(b, unknown(i, rhs)), load(a, coefficient(i, i)))
                    m.store(b, unknown(i, rhs), value)
        m.write(b, x, rows * columns)

    return m.kernel(n * n * rhs_count, body)
