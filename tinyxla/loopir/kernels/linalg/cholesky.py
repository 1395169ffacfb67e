"""Cholesky factors by routines of this library, in place: of a matrix, or one after the other.

A block of columns is copied to a panel, which so has the rows of the transposed factor. Its square is factored, the
others are solved for, and all is put back. Then the product of the panel's transpose with the panel is subtracted from
the columns on its right, in strips that begin at the diagonal; for that, minus the panel is kept beside it. Of an upper
factor it is blocks of rows, which are copied as they are, and strips of rows.

Threads share the strips of a large matrix, or take whole matrices; see `eliminations`.
"""

from __future__ import annotations

import functools
import math

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Kernel, Literal
from tinyxla.loopir.kernels.gemm.packed import step_of
from tinyxla.loopir.kernels.linalg import panel_kernels as own
from tinyxla.loopir.kernels.linalg.lu import BLOCK, PIECES, SHARED, Blocks, panel_of, strip_width
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Temporary, zero
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.shapes import Shape, element_type


def supports(x: Instruction) -> bool:
    return x.array_shape.element_type.name in ("f32", "f64")


class _Roots(Blocks):
    """A builder of a kernel for some steps, of lower factors or upper ones."""

    def __init__(self, name: str, names: str, kind: str, lower: bool) -> None:
        self.lower = lower
        super().__init__(name, f"{names} held wide", kind, "pitch")
        self.matrix, self.panels = self.argument(kind, True), self.argument(kind, True)

    def factor(self, start: Index, matrix: Index, panel: Index) -> None:
        """The block of columns that begins at a place, of a matrix that is at another, into a panel and minus that."""
        begin = self.matrix, self.add(matrix, self.mul(start, self.columns), start)
        height = self.sub(self.rows, start)
        width, held, pitch = self.min(BLOCK, height), (self.panels, panel), self.pitch
        if self.lower:
            self.turn(held, begin, False, rows=height, steps=width, row=self.columns, pitch=pitch)
        else:
            with self.loop(0, width, sequential=True) as (k, _), self.loop(0, height) as (i, _):
                value = self.load(self.matrix, self.add(begin[1], self.mul(k, self.columns), i))
                self.store(self.panels, self.add(panel, self.mul(k, pitch), i), value)
        together = BLOCK // own.lanes(self.kind)
        store_arguments(
            self, self.sizes, own.SUBSTITUTE, steps=width, columns=width, row=pitch, down=1, along=pitch, unit=0
        )
        self.call(own.root(self.kind, together), held, held, (self.sizes, 0))
        with self.only(self.sub(height, width)):
            store_arguments(self, self.sizes, own.SUBSTITUTE, columns=self.sub(height, width))
            self.call(own.substitute(self.kind), (self.panels, self.add(panel, width)), held, (self.sizes, 0))
        if self.lower:
            self.turn(begin, held, True, rows=width, steps=height, row=pitch, pitch=self.columns)
        with self.loop(0, width, sequential=True) as (k, _), self.loop(0, height) as (i, _):
            place = self.add(panel, self.mul(k, pitch), i)
            value = self.load(self.panels, place)
            if not self.lower:
                self.store(self.matrix, self.add(begin[1], self.mul(k, self.columns), i), value)
            minus = self.compute("negate", self.kind, value)
            self.store(self.panels, self.add(place, self.parameter["held"]), minus)
        with self.loop(0, width, sequential=True) as (k, _):  # a first root of -1 says that there is one too few
            root, first = self.load(self.panels, self.add(panel, self.mul(k, pitch), k)), (self.matrix, matrix)
            failed = self.compare("LE", root, Literal(self.kind, 0.0))
            self.store(*first, self.select(failed, Literal(self.kind, -1.0), self.load(*first)))

    def update(self, start: Index, matrix: Index, panel: Index, first: Index, width: Index) -> None:
        """What a factored block means for some columns on its right, or rows below where the factor is upper."""
        target = self.matrix, self.add(matrix, self.mul(first, self.columns), first)
        right = self.panels, self.add(panel, self.sub(first, start))
        left = self.panels, self.add(right[1], self.parameter["held"])
        rest = self.sub(self.rows, first)
        height, width = (rest, width) if self.lower else (width, rest)
        self.add_product(target, left, right, (height, width, BLOCK))

    def strips(self, first: Index) -> Index:
        """How many there are from a column on."""
        return self.ceil_div(self.max(0, self.sub(self.columns, first)), self.parameter["wide"])

    def strip(self, number: Index, first: Index) -> tuple[Index, Index]:
        """Where it begins, and how wide it is."""
        start, width = self.tile_start_and_size(number, self.parameter["wide"], self.sub(self.columns, first))
        return self.add(first, start), width


@functools.cache
def _whole(kind: str, lower: bool) -> Kernel:
    """All steps for matrices, of which each piece has some, and one panel."""
    b = _Roots("cholesky", "count length", kind, lower)
    size = b.mul(b.rows, b.columns)
    with b.loop(b.kernel.first, b.kernel.last) as (piece, _):
        panel = b.mul(piece, b.parameter["held"], 2)
        with b.loop(*b.tile_range(piece, b.parameter["length"], b.parameter["count"]), sequential=True) as (index, _):
            matrix = b.mul(index, size)
            with b.loop(0, b.ceil_div(b.rows, BLOCK), sequential=True) as (block, _):
                start = b.mul(block, BLOCK)
                b.factor(start, matrix, panel)
                after = b.add(start, BLOCK)
                with b.loop(0, b.strips(after), sequential=True) as (number, _):
                    b.update(start, matrix, panel, *b.strip(number, after))
    return b.kernel


@functools.cache
def _step(kind: str, lower: bool) -> Kernel:
    """What a factored block means for other columns: first those of the block after it, which then are factored."""
    b = _Roots("cholesky_step", "start next here there", kind, lower)
    start, next, here = (b.parameter[name] for name in ("start", "next", "here"))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        with b.only(b.sub(1, index)):
            with b.only(next):
                b.update(start, 0, here, next, b.min(BLOCK, b.sub(b.columns, next)))
            b.factor(next, 0, b.parameter["there"])
        with b.only(index):
            b.update(start, 0, here, *b.strip(b.sub(index, 1), b.add(next, BLOCK)))
    return b.kernel


def cholesky(x: Instruction, plan: Plan) -> list[LoweredKernel]:
    *batch, n, _ = x.array_shape.dimensions
    kind, lower, count = x.array_shape.element_type.name, x.attributes.lower, math.prod(batch)
    pitch, held = panel_of(kind, n)

    def panels(number: int) -> Temporary:
        return Temporary(Shape(element_type(kind), (2 * number * held,)))

    wide = strip_width(n)
    if count > 1 or n < SHARED:
        pieces = min(count, PIECES)
        length = -(-count // pieces)
        numbers, work = (n, n, pitch, count, length, held, wide), length * n * n * (n // 8 + 8)
        kernels = [step_of(_whole(kind, lower), [x, panels(pieces)], numbers, pieces, work, x)]
    else:
        kernels, both = list[LoweredKernel](), panels(2)
        for next in range(0, n, BLOCK):
            start, is_odd = max(0, next - BLOCK), next // BLOCK % 2
            extent = 1 + (-(-max(0, n - next - BLOCK) // wide) if next else 0)
            numbers = n, n, pitch, start, next, 2 * held * (1 - is_odd), 2 * held * is_odd, held, wide
            kernels.append(step_of(_step(kind, lower), [x, both], numbers, extent, wide * BLOCK * (n - start), x))
    return [*kernels, _triangle(x, plan)]


def _triangle(x: Instruction, plan: Plan) -> LoweredKernel:
    """Zeros in the other triangle, and NaN in all of this one where its first root is none, or is NaN already."""
    n, lower = x.array_shape.dimensions[-1], x.attributes.lower
    low = Lowering("triangle", plan, [x])
    b, matrix = low.builder, low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        number, row = low.split_index(index, (x.array_shape.size // (n * n), n))
        start = b.mul(number, n * n)
        begin, after = b.add(start, b.mul(row, n)), b.add(row, 1)
        stop = b.select(b.compare("GT", b.load(matrix, start), Literal(matrix.type, 0.0)), 0, n)
        with low.loop(*((0, b.min(stop, after)) if lower else (row, stop))) as (column, _):
            b.store(matrix, b.add(begin, column), Literal(matrix.type, math.nan))
        with low.loop(*((after, n) if lower else (0, row))) as (column, _):
            b.store(matrix, b.add(begin, column), zero(x.array_shape))
    return make_kernel(low, x.array_shape.size // n, n, [x])
