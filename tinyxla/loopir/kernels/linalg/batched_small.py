"""Factors of many small matrices, and triangular systems with them: several matrices side by side.

A kernel copies so many matrices as are a vector, or two, to an array [element, lane], works there with a loop over the
lanes innermost, and copies what it has made back. So an element costs a vector operation for all of them, where a call
of LAPACK takes longer to begin than it computes. Rows are exchanged by choosing, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand
from tinyxla.loopir.kernels.gemm import packing as routines
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.ops.linear_algebra import TriangularSolve

_MANY = 8  # matrices
_WIDTH = 16  # of them side by side: of shorter loops LLVM makes no vectors
_LARGEST = 32  # rows or columns
_SCRATCH = 200 * 1024  # bytes
_LARGEST_ROW = 64  # bytes
_BYTES = {"f32": 4, "f64": 8, "s32": 4}


def supports(x: Instruction) -> bool:
    """Whether an op on matrices has enough of them, which are small."""
    shapes = [o.array_shape for o in x.operands]
    kind = shapes[0].element_type.name
    *batch, rows, columns = shapes[0].dimensions
    if kind not in ("f32", "f64") or math.prod(batch) < _MANY or max(rows, columns) > _LARGEST:
        return False
    held = sum(math.prod(shape.dimensions[-2:]) for shape in shapes) + 2 * rows + 2
    return held * _WIDTH * _BYTES[kind] <= _SCRATCH


def supports_lu(x: Instruction) -> bool:
    """Beyond some size, rows take longer to be chosen from all lanes than to be exchanged in one matrix."""
    shape = x.operands[0].array_shape
    return supports(x) and max(shape.dimensions[-2:]) * _BYTES[shape.element_type.name] <= _LARGEST_ROW


def supports_qr(x: Instruction) -> bool:
    """Both factors have as many rows as the matrix, or fewer."""
    shape = x.operands[0].array_shape
    rows, columns = shape.dimensions[-2:]
    return supports(x) and rows * (columns + rows) * _WIDTH * _BYTES[shape.element_type.name] <= _SCRATCH


class _Lanes:
    """Emits the kernel of one instruction."""

    def __init__(self, x: Instruction, plan: Plan, results: list[Instruction]) -> None:
        self.x = x
        self.low = Lowering(x.op.name.replace("-", "_"), plan, results)
        self.b = self.low.builder
        self.kind = x.operands[0].array_shape.element_type.name
        *batch, self.rows, self.columns = x.operands[0].array_shape.dimensions
        self.batch, self.width = math.prod(batch), _WIDTH
        self.lengths = self.b.scratch(INDEX, len(routines.COPY))
        self.first: Index = 0
        self.count: Index = 0

    def kernel(self, work: int, body: Callable[[], None]) -> list[LoweredKernel]:
        """`work` is that of a matrix."""
        with self.low.loop(self.b.kernel.first, self.b.kernel.last) as (index, _):
            self.first = self.b.mul(index, self.width)
            self.count = self.b.min(self.b.sub(self.batch, self.first), self.width)
            body()
        return [make_kernel(self.low, -(-self.batch // self.width), 2 * work, [self.x])]

    # --- memory

    def _turn(self, to: tuple[Buffer, Index], source: tuple[Buffer, Index], **numbers: Index) -> None:
        store_arguments(self.b, self.lengths, routines.COPY, **numbers)
        self.b.call(routines.turn(8 * _BYTES[to[0].type]), to, source, (self.lengths, 0))

    @contextmanager
    def _groups(self, size: Index) -> Generator[tuple[Index, Index]]:
        """Of as many as are turned at once: the first, and how many are left."""
        b, height = self.b, routines.tile_rows()
        with self.low.loop(0, b.ceil_div(size, height), sequential=True) as (group, _):
            start = b.mul(group, height)
            yield start, b.sub(size, start)

    def read(self, x: Storage, size: int, written: bool = False) -> Buffer:
        """So many elements of each matrix, as lanes; `written` says that they are in a result's memory."""
        b, source = self.b, self.low.buffer(x, written)
        lanes = b.scratch(source.type, size * self.width)
        with self._groups(self.count) as (lane, left):
            place = b.mul(b.add(self.first, lane), size)
            self._turn((lanes, lane), (source, place), steps=size, row=size, rows=left, pitch=self.width)
        return lanes

    def write(self, lanes: Buffer, x: Storage, size: int) -> None:
        b, target, height = self.b, self.low.buffer(x, True), routines.tile_rows()
        whole = size // height * height
        begin = b.mul(self.first, size)
        with self._groups(whole) as (element, left):
            source = lanes, b.mul(element, self.width)
            to = target, b.add(begin, element)
            self._turn(to, source, steps=self.count, row=self.width, rows=left, pitch=size)
        with self.low.loop(0, self.count) as (lane, _), self.low.loop(whole, size) as (element, _):
            value = b.load(lanes, b.add(b.mul(element, self.width), lane))
            b.store(target, b.add(begin, b.add(b.mul(lane, size), element)), value)

    # --- arithmetic

    @contextmanager
    def each(self, start: Index, stop: Index) -> Generator[Index]:
        with self.low.loop(start, stop, sequential=True) as (k, _):
            yield k

    @contextmanager
    def lanes(self) -> Generator[Callable[[Buffer, Index], Operand]]:
        """A loop over lanes; gives what loads one of an element."""
        with self.low.loop(0, self.width) as (lane, _):
            self._lane = lane
            yield self.load

    def place(self, element: Index) -> Index:
        return self.b.add(self.b.mul(element, self.width), self._lane)

    def load(self, lanes: Buffer, element: Index) -> Operand:
        return self.b.load(lanes, self.place(element))

    def store(self, lanes: Buffer, element: Index, value: Operand) -> None:
        self.b.store(lanes, self.place(element), value)

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
    """In place; the other triangle becomes zero, and all of a matrix that is not positive definite NaN; one that has
    NaN keeps the columns before it."""
    m, lower = _Lanes(x, plan, [x]), x.attributes.lower
    n = m.rows

    def at(row: Index, column: Index) -> Index:
        return m.at(row, n, column) if lower else m.at(column, n, row)

    def body() -> None:
        a = m.read(x, n * n, written=True)
        inverse, failure = m.b.scratch(m.kind, m.width), m.b.scratch(m.kind, m.width)
        with m.lanes():
            m.store(failure, 0, m.literal(0.0))
        with m.each(0, n) as j:
            after = m.b.add(j, 1)
            with m.lanes() as load:
                pivot = load(a, at(j, j))
                has_none = m.b.compare("LE", pivot, m.literal(0.0))
                root = m.b.select(has_none, m.literal(math.nan), m.compute("sqrt", pivot))
                m.store(failure, 0, m.b.select(has_none, m.literal(1.0), load(failure, 0)))
                m.store(a, at(j, j), root)
                m.store(inverse, 0, m.compute("divide", m.literal(1.0), root))
            with m.each(after, n) as i, m.lanes() as load:
                m.store(a, at(i, j), m.compute("multiply", load(a, at(i, j)), load(inverse, 0)))
            with m.each(after, n) as k, m.each(k, n) as i, m.lanes() as load:
                m.subtract_product(a, at(i, k), load(a, at(i, j)), load(a, at(k, j)))
        with m.each(0, n * n) as element, m.lanes() as load:
            failed = m.b.compare("GT", load(failure, 0), m.literal(0.0))
            m.store(a, element, m.b.select(failed, m.literal(math.nan), load(a, element)))
        with m.each(0, n) as i, m.each(0, i) as j, m.lanes():
            m.store(a, at(j, i), m.literal(0.0))
        m.write(a, x, n * n)

    return m.kernel(n**3, body)


def lu(x: Instruction, plan: Plan, results: dict[int, Instruction]) -> list[LoweredKernel]:
    """Factors, pivots and the permutation of rows, as far as they are taken."""
    m = _Lanes(x, plan, [*results.values()])
    rows, columns = m.rows, m.columns
    steps = min(rows, columns)

    def exchange(lanes: Buffer, hit: Operand, i: Index, k: Index) -> None:
        one, other = m.load(lanes, i), m.load(lanes, k)
        m.store(lanes, i, m.b.select(hit, other, one))
        m.store(lanes, k, m.b.select(hit, one, other))

    def body() -> None:
        a = m.read(x.operands[0], rows * columns)
        largest, where = m.b.scratch(m.kind, m.width), m.b.scratch("s32", m.width)
        pivots, order = m.b.scratch("s32", steps * m.width), m.b.scratch("s32", rows * m.width)
        with m.each(0, rows) as i, m.lanes():
            m.store(order, i, m.b.convert("s32", i))
        with m.each(0, steps) as k:
            number = m.b.convert("s32", k)
            after = m.b.add(k, 1)
            with m.lanes() as load:
                m.store(largest, 0, m.compute("abs", load(a, m.at(k, columns, k))))
                m.store(where, 0, number)
            with m.each(after, rows) as i:
                row = m.b.convert("s32", i)
                with m.lanes() as load:
                    size = m.compute("abs", load(a, m.at(i, columns, k)))
                    better = m.b.compare("GT", size, load(largest, 0))
                    m.store(where, 0, m.b.select(better, row, load(where, 0)))
                    m.store(largest, 0, m.b.select(better, size, load(largest, 0)))
            with m.lanes() as load:
                m.store(pivots, k, load(where, 0))
            with m.each(after, rows) as i:
                row = m.b.convert("s32", i)
                with m.lanes() as load:
                    exchange(order, m.b.compare("EQ", load(where, 0), row), i, k)
                with m.each(0, columns) as j, m.lanes() as load:
                    exchange(a, m.b.compare("EQ", load(where, 0), row), m.at(i, columns, j), m.at(k, columns, j))
            with m.each(after, rows) as i:
                with m.lanes() as load:
                    pivot, value = load(a, m.at(k, columns, k)), load(a, m.at(i, columns, k))
                    is_zero = m.b.compare("EQ", pivot, m.literal(0.0))
                    m.store(a, m.at(i, columns, k), m.b.select(is_zero, value, m.compute("divide", value, pivot)))
                with m.each(after, columns) as j, m.lanes() as load:
                    factors = load(a, m.at(i, columns, k)), load(a, m.at(k, columns, j))
                    m.subtract_product(a, m.at(i, columns, j), *factors)
        for result, lanes, size in ((0, a, rows * columns), (1, pivots, steps), (2, order, rows)):
            if result in results:
                m.write(lanes, results[result], size)

    return m.kernel(rows * columns * steps, body)


def qr(x: Instruction, plan: Plan, results: dict[int, Instruction]) -> list[LoweredKernel]:
    """By reflections, as LAPACK has them: I - t v v', where v has a 1 in its first place, and the other elements stand
    below the diagonal. A column with nothing below stays as it is."""
    m = _Lanes(x, plan, [*results.values()])
    rows, columns = m.rows, m.columns
    steps = min(rows, columns)
    inner = rows if x.attributes.full_matrices else steps
    one, none = m.literal(1.0), m.literal(0.0)

    def reflect(a: Buffer, k: Index, times: Buffer, of: Buffer, pitch: int, j: Index, dot: Buffer) -> None:
        """Column j of a matrix by reflection k."""
        after = m.b.add(k, 1)
        here = m.at(k, pitch, j)
        with m.lanes() as load:
            m.store(dot, 0, load(of, here))
        with m.each(after, rows) as i, m.lanes() as load:
            product = m.compute("multiply", load(a, m.at(i, columns, k)), load(of, m.at(i, pitch, j)))
            m.store(dot, 0, m.compute("add", load(dot, 0), product))
        with m.lanes() as load:
            scaled = m.compute("multiply", load(dot, 0), load(times, k))
            m.store(dot, 0, scaled)
            m.store(of, here, m.compute("subtract", load(of, here), scaled))
        with m.each(after, rows) as i, m.lanes() as load:
            m.subtract_product(of, m.at(i, pitch, j), load(dot, 0), load(a, m.at(i, columns, k)))

    def make(a: Buffer, k: Index, times: Buffer, largest: Buffer, total: Buffer) -> None:
        """Reflection k, in place of column k."""
        after, top = m.b.add(k, 1), m.at(k, columns, k)
        with m.lanes():
            m.store(largest, 0, none)
            m.store(total, 0, none)
        with m.each(after, rows) as i, m.lanes() as load:
            size = m.compute("abs", load(a, m.at(i, columns, k)))
            m.store(largest, 0, m.compute("maximum", load(largest, 0), size))
        with m.lanes() as load:
            size = m.compute("maximum", load(largest, 0), m.compute("abs", load(a, top)))
            is_done = m.b.compare("EQ", load(largest, 0), none)
            m.store(largest, 0, m.b.select(is_done, none, size))
        with m.each(k, rows) as i, m.lanes() as load:  # so that no square is too large, or too small
            part = m.compute("divide", load(a, m.at(i, columns, k)), load(largest, 0))
            m.store(total, 0, m.compute("add", load(total, 0), m.compute("multiply", part, part)))
        with m.lanes() as load:
            first = load(a, top)
            norm = m.compute("multiply", m.compute("sqrt", load(total, 0)), load(largest, 0))
            to = m.b.select(m.b.compare("LT", first, none), norm, m.compute("negate", norm))
            is_done = m.b.compare("EQ", load(largest, 0), none)
            m.store(times, k, m.b.select(is_done, none, m.compute("divide", m.compute("subtract", to, first), to)))
            m.store(total, 0, m.b.select(is_done, one, m.compute("subtract", first, to)))
            m.store(a, top, m.b.select(is_done, first, to))
        with m.each(after, rows) as i, m.lanes() as load:
            element = m.at(i, columns, k)
            m.store(a, element, m.compute("divide", load(a, element), load(total, 0)))

    def body() -> None:
        a, times = m.read(x.operands[0], rows * columns), m.b.scratch(m.kind, steps * m.width)
        one_value, other = m.b.scratch(m.kind, m.width), m.b.scratch(m.kind, m.width)
        with m.each(0, steps) as k:
            make(a, k, times, one_value, other)
            with m.each(m.b.add(k, 1), columns) as j:
                reflect(a, k, times, a, columns, j, other)
        if 0 in results:
            q = m.b.scratch(m.kind, rows * inner * m.width)
            with m.each(0, rows) as i, m.each(0, inner) as j:
                value = m.b.select(m.b.compare("EQ", i, j), one, none)
                with m.lanes():
                    m.store(q, m.at(i, inner, j), value)
            with m.each(0, steps) as step:
                k = m.b.sub(steps - 1, step)
                with m.each(k, inner) as j:
                    reflect(a, k, times, q, inner, j, other)
            m.write(q, results[0], rows * inner)
        if 1 in results:
            with m.each(0, inner) as i, m.each(0, m.b.min(i, columns)) as j, m.lanes():
                m.store(a, m.at(i, columns, j), none)
            m.write(a, results[1], inner * columns)

    return m.kernel(2 * rows * columns * steps, body)


def triangular_solve(x: Instruction, plan: Plan) -> list[LoweredKernel]:
    """In place of the right-hand sides: each unknown by those before it."""
    options = TriangularSolve(*x.attributes)
    m = _Lanes(x, plan, [x])
    n = m.rows
    *_, rows, columns = x.array_shape.dimensions
    turned = (options.transpose_a != "NO_TRANSPOSE") == options.left_side
    forward = options.lower != turned
    sides = columns if options.left_side else rows

    def coefficient(i: Index, k: Index) -> Index:
        return m.at(k, n, i) if turned else m.at(i, n, k)

    def unknown(i: Index, side: Index) -> Index:
        return m.at(i, columns, side) if options.left_side else m.at(side, columns, i)

    def number(step: Index) -> Index:
        return step if forward else m.b.sub(n - 1, step)

    def body() -> None:
        a, b = m.read(x.operands[0], n * n), m.read(x, rows * columns, written=True)
        with m.each(0, n) as step:
            i = number(step)
            with m.each(0, step) as before:
                k = number(before)
                with m.each(0, sides) as side, m.lanes() as load:
                    m.subtract_product(b, unknown(i, side), load(a, coefficient(i, k)), load(b, unknown(k, side)))
            if not options.unit_diagonal:
                with m.each(0, sides) as side, m.lanes() as load:
                    value = m.compute("divide", load(b, unknown(i, side)), load(a, coefficient(i, i)))
                    m.store(b, unknown(i, side), value)
        m.write(b, x, rows * columns)

    return m.kernel(n * n * sides, body)
