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

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand
from tinyxla.loopir.kernels.gemm import packing as packing
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.ops.linear_algebra import TriangularSolve

_MIN_BATCH = 8  # matrices in a batch
_GROUP_MATRICES = 16  # matrices per group: LLVM does not vectorize shorter loops
_MAX_SIZE = 32  # rows or columns
_MAX_SCRATCH_BYTES = 200 * 1024  # of interleaved copies
_MAX_LU_ROW_BYTES = 64  # of a row, for LU
_BYTES = {"f32": 4, "f64": 8, "s32": 4}


def supports(x: Instruction) -> bool:
    """Whether the batch is large enough and its matrices are small enough."""
    shapes = [o.array_shape for o in x.operands]
    kind = shapes[0].element_type.name
    *batch, rows, columns = shapes[0].dimensions
    if kind not in ("f32", "f64") or math.prod(batch) < _MIN_BATCH or max(rows, columns) > _MAX_SIZE:
        return False
    panel_elements = sum(math.prod(shape.dimensions[-2:]) for shape in shapes) + 2 * rows + 2
    return panel_elements * _GROUP_MATRICES * _BYTES[kind] <= _MAX_SCRATCH_BYTES


def supports_lu(x: Instruction) -> bool:
    """The same for LU, with shorter rows: from some size on, selecting rows in all lanes takes longer than swapping
    them in each matrix."""
    shape = x.operands[0].array_shape
    return supports(x) and max(shape.dimensions[-2:]) * _BYTES[shape.element_type.name] <= _MAX_LU_ROW_BYTES


def supports_qr(x: Instruction) -> bool:
    """The same for QR, whose factors have as many rows as the matrix, or fewer."""
    shape = x.operands[0].array_shape
    rows, columns = shape.dimensions[-2:]
    return (
        supports(x)
        and rows * (columns + rows) * _GROUP_MATRICES * _BYTES[shape.element_type.name] <= _MAX_SCRATCH_BYTES
    )


class _InterleavedBatch:
    """Emits the kernel of one operation on groups of interleaved matrices."""

    def __init__(self, x: Instruction, plan: Plan, results: list[Instruction]) -> None:
        self.x = x
        self.low = Lowering(x.op.name.replace("-", "_"), plan, results)
        self.b = self.low.builder
        self.kind = x.operands[0].array_shape.element_type.name
        *batch, self.rows, self.columns = x.operands[0].array_shape.dimensions
        self.batch, self.width = math.prod(batch), _GROUP_MATRICES
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
        return self.b.compute(op, self.kind, *operands)

    def literal(self, value: float) -> Literal:
        return Literal(self.kind, value)

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
        inverse, failure = m.b.scratch(m.kind, m.width), m.b.scratch(m.kind, m.width)
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
        max_magnitude, max_row = m.b.scratch(m.kind, m.width), m.b.scratch("s32", m.width)
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
    """QR by Householder reflectors I - tau v v' (LAPACK's convention: v begins with 1, and its other elements are
    stored below the diagonal). A column that is zero below the diagonal has tau = 0."""
    m = _InterleavedBatch(x, plan, [*results.values()])
    rows, columns = m.rows, m.columns
    steps = min(rows, columns)
    inner = rows if x.attributes.full_matrices else steps
    one, zero = m.literal(1.0), m.literal(0.0)

    def apply_reflector(a: Buffer, k: Index, tau: Buffer, target: Buffer, pitch: int, j: Index, dot: Buffer) -> None:
        """Apply reflector k to column j of `target`."""
        after = m.b.add(k, 1)
        here = m.at(k, pitch, j)
        with m.lane_loop() as load:
            m.store(dot, 0, load(target, here))
        with m.sequential_loop(after, rows) as i, m.lane_loop() as load:
            product = m.compute("multiply", load(a, m.at(i, columns, k)), load(target, m.at(i, pitch, j)))
            m.store(dot, 0, m.compute("add", load(dot, 0), product))
        with m.lane_loop() as load:
            scaled = m.compute("multiply", load(dot, 0), load(tau, k))
            m.store(dot, 0, scaled)
            m.store(target, here, m.compute("subtract", load(target, here), scaled))
        with m.sequential_loop(after, rows) as i, m.lane_loop() as load:
            m.subtract_product(target, m.at(i, pitch, j), load(dot, 0), load(a, m.at(i, columns, k)))

    def make_reflector(a: Buffer, k: Index, tau: Buffer, max_magnitude: Buffer, sum_of_squares: Buffer) -> None:
        """Compute reflector k in place of column k."""
        after, top = m.b.add(k, 1), m.at(k, columns, k)
        with m.lane_loop():
            m.store(max_magnitude, 0, zero)
            m.store(sum_of_squares, 0, zero)
        with m.sequential_loop(after, rows) as i, m.lane_loop() as load:
            size = m.compute("abs", load(a, m.at(i, columns, k)))
            m.store(max_magnitude, 0, m.compute("maximum", load(max_magnitude, 0), size))
        with m.lane_loop() as load:
            size = m.compute("maximum", load(max_magnitude, 0), m.compute("abs", load(a, top)))
            is_null = m.b.compare("EQ", load(max_magnitude, 0), zero)
            m.store(max_magnitude, 0, m.b.select(is_null, zero, size))
        with (
            m.sequential_loop(k, rows) as i,
            m.lane_loop() as load,
        ):  # scaled, so that no square overflows or underflows
            scaled_element = m.compute("divide", load(a, m.at(i, columns, k)), load(max_magnitude, 0))
            m.store(
                sum_of_squares,
                0,
                m.compute("add", load(sum_of_squares, 0), m.compute("multiply", scaled_element, scaled_element)),
            )
        with m.lane_loop() as load:
            first = load(a, top)
            norm = m.compute("multiply", m.compute("sqrt", load(sum_of_squares, 0)), load(max_magnitude, 0))
            beta = m.b.select(m.b.compare("LT", first, zero), norm, m.compute("negate", norm))
            is_null = m.b.compare("EQ", load(max_magnitude, 0), zero)
            m.store(tau, k, m.b.select(is_null, zero, m.compute("divide", m.compute("subtract", beta, first), beta)))
            m.store(sum_of_squares, 0, m.b.select(is_null, one, m.compute("subtract", first, beta)))
            m.store(a, top, m.b.select(is_null, first, beta))
        with m.sequential_loop(after, rows) as i, m.lane_loop() as load:
            element = m.at(i, columns, k)
            m.store(a, element, m.compute("divide", load(a, element), load(sum_of_squares, 0)))

    def body() -> None:
        a, tau = m.read(x.operands[0], rows * columns), m.b.scratch(m.kind, steps * m.width)
        scratch, dot = m.b.scratch(m.kind, m.width), m.b.scratch(m.kind, m.width)
        with m.sequential_loop(0, steps) as k:
            make_reflector(a, k, tau, scratch, dot)
            with m.sequential_loop(m.b.add(k, 1), columns) as j:
                apply_reflector(a, k, tau, a, columns, j, dot)
        if 0 in results:
            q = m.b.scratch(m.kind, rows * inner * m.width)
            with m.sequential_loop(0, rows) as i, m.sequential_loop(0, inner) as j:
                value = m.b.select(m.b.compare("EQ", i, j), one, zero)
                with m.lane_loop():
                    m.store(q, m.at(i, inner, j), value)
            with m.sequential_loop(0, steps) as step:
                k = m.b.sub(steps - 1, step)
                with m.sequential_loop(k, inner) as j:
                    apply_reflector(a, k, tau, q, inner, j, dot)
            m.write(q, results[0], rows * inner)
        if 1 in results:
            with m.sequential_loop(0, inner) as i, m.sequential_loop(0, m.b.min(i, columns)) as j, m.lane_loop():
                m.store(a, m.at(i, columns, j), zero)
            m.write(a, results[1], inner * columns)

    return m.kernel(2 * rows * columns * steps, body)


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
