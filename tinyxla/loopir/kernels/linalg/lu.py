"""L U factors by routines of this library, which work on a matrix as it lies in memory, row after row.

A block of columns is copied to a panel, factored there, and put back. The columns on its right follow: their rows are
exchanged, those beside the block's upper triangle solved for, and what both make is subtracted from the rows below. The
panel holds minus its factors by then, so a product that adds does that.

Where there are several matrices, or a small one, a thread does all of that for one after the other. Of one large matrix
threads share the columns, in strips; the next block comes first, and is factored at once, while others are still at
work. Either way places depend on sizes alone, so results do not depend on the number of threads. Kernels take sizes as
numbers, so that one serves all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator
from contextlib import contextmanager

from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Kernel
from tinyxla.loopir.kernels.gemm import packing as routines
from tinyxla.loopir.kernels.gemm.microkernel import NUMBERS, provide_product
from tinyxla.loopir.kernels.gemm.packed import Place, step_of
from tinyxla.loopir.kernels.linalg import panel_kernels as own
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.shapes import Shape, element_type

BLOCK = 32  # columns: registers have a row of their square
_FEWEST = 8  # rows or columns for which this is worth it
_GROUP = 96  # rows that are changed at once
PIECES = 16  # of a batch
SHARED = 128  # rows and columns from which on threads share a matrix
_WIDEST = 128  # columns of a strip
_COPIED = 1 << 13  # elements that are copied at once


def supports(x: Instruction) -> bool:
    shape = x.operands[0].array_shape
    return shape.element_type.name in ("f32", "f64") and shape.size > 0 and min(shape.dimensions[-2:]) >= _FEWEST


def panel_of(kind: str, rows: int) -> tuple[int, int]:
    """How far apart the columns of a panel are - vectors are whole, and columns do not meet in the cache - and how many
    elements it has room for."""
    whole = max(own.lanes(kind), routines.tile_rows())
    pitch = whole * (-(-rows // whole) | 1)
    return pitch, pitch * (BLOCK + own.TOGETHER)


def strip_width(columns: int) -> int:
    """How many columns of a matrix are changed by one thread at once."""
    return min(_WIDEST, max(BLOCK, columns // PIECES // BLOCK * 2 * BLOCK))


class Blocks(ParametricBuilder):
    """A builder of a kernel that works on blocks of columns, each of which is copied to a panel."""

    def __init__(self, name: str, names: str, kind: str, right: str) -> None:
        """`right` is the number that says how far apart the rows of the right factor of products are."""
        super().__init__(name, f"rows columns pitch {names}")
        self.kind = kind
        n = self.parameter
        self.rows, self.columns, self.pitch = n["rows"], n["columns"], n["pitch"]
        self.arithmetic = routines.Arithmetic(kind).fitting(_GROUP, BLOCK, BLOCK)
        self.sizes = self.scratch(INDEX, max(len(NUMBERS), len(routines.COPY)))
        self.lists = [self.scratch(INDEX, count) for count in (_GROUP, _GROUP, BLOCK, BLOCK)]
        for places, distance in zip(self.lists, (1, self.columns, self.pitch, n[right]), strict=True):
            self.list(places, places.size or 0, distance)

    @contextmanager
    def only(self, count: Index) -> Generator[None]:
        """Where a number is above 0."""
        with self.loop(0, self.min(1, self.max(0, count)), sequential=True):
            yield

    def turn(self, to: Place, source: Place, is_exact: bool, **numbers: Index) -> None:
        """Lines of a place as columns of another."""
        lines, routine = routines.tile_rows(), routines.turn(routines.bits_of(self.kind), is_exact)
        rows, row = numbers.pop("rows"), numbers["row"]
        store_arguments(self, self.sizes, routines.COPY, **numbers)
        with self.loop(0, self.ceil_div(rows, lines), sequential=True) as (group, _):
            line = self.mul(group, lines)
            store_arguments(self, self.sizes, routines.COPY, rows=self.sub(rows, line))
            into = to[0], self.add(to[1], line)
            self.call(routine, into, (source[0], self.add(source[1], self.mul(line, row))), (self.sizes, 0))

    def add_product(self, target: Place, left: Place, right: Place, sizes: tuple[Index, Index, Index]) -> None:
        """To some rows and columns of a matrix that of so many columns of a panel and as many rows."""
        height, width, steps = sizes
        store_arguments(self, self.sizes, NUMBERS, n=width, k=steps, more=1)
        with self.loop(0, self.ceil_div(height, _GROUP), sequential=True) as (group, _):
            row, some = self.tile_start_and_size(group, _GROUP, height)
            store_arguments(self, self.sizes, NUMBERS, m=some)
            to = target[0], self.add(target[1], self.mul(row, self.columns))
            places = to, (left[0], self.add(left[1], row)), right
            self.call(provide_product(self.arithmetic), *places, *((x, 0) for x in (*self.lists, self.sizes)))


class _Elimination(Blocks):
    """A builder of a kernel for some steps of it."""

    def __init__(self, name: str, names: str, kind: str) -> None:
        super().__init__(name, names, kind, "columns")

    def arguments(self) -> None:
        self.matrix, self.panel, self.pivots = (self.argument(t, True) for t in (self.kind, self.kind, "s32"))

    def factor(self, start: Index, matrix: Index, pivots: Index, panel: Index) -> None:
        """The block of columns that begins at a place, of a matrix that is at another, into a panel."""
        begin = self.matrix, self.add(matrix, self.mul(start, self.columns), start)
        height = self.sub(self.rows, start)
        width = self.min(BLOCK, self.sub(self.columns, start))
        held = self.panel, panel
        self.turn(held, begin, False, rows=height, steps=width, row=self.columns, pitch=self.pitch)
        store_arguments(self, self.sizes, own.FACTOR, rows=height, columns=width, pitch=self.pitch, first=start)
        self.call(own.factor(self.kind), held, (self.pivots, self.add(pivots, start)), (self.sizes, 0))
        self.turn(begin, held, True, rows=width, steps=height, row=self.pitch, pitch=self.columns)
        with self.loop(0, self.mul(width, self.pitch)) as (k, _):
            place = self.add(panel, k)
            self.store(self.panel, place, self.compute("negate", self.kind, self.load(self.panel, place)))

    def exchange(self, start: Index, steps: Index, matrix: Index, pivots: Index, column: Index, width: Index) -> None:
        store_arguments(self, self.sizes, own.EXCHANGE, steps=steps, columns=width, row=self.columns, first=start)
        places = (self.matrix, self.add(matrix, column)), (self.pivots, self.add(pivots, start)), (self.sizes, 0)
        self.call(own.exchange(self.kind), *places)

    def eliminate(self, start: Index, steps: Index, matrix: Index, panel: Index, column: Index, width: Index) -> None:
        """What a factored block means for some columns on its right, whose rows have been exchanged."""
        right = self.add(matrix, self.mul(start, self.columns), column)
        store_arguments(self, self.sizes, own.SUBSTITUTE, steps=steps, columns=width, row=self.columns)
        store_arguments(self, self.sizes, own.SUBSTITUTE, down=self.columns, along=1, unit=1)
        diagonal = self.matrix, self.add(matrix, self.mul(start, self.columns), start)
        self.call(own.substitute(self.kind), (self.matrix, right), diagonal, (self.sizes, 0))
        sizes = self.sub(self.sub(self.rows, start), steps), width, steps
        target = self.matrix, self.add(right, self.mul(steps, self.columns))
        self.add_product(target, (self.panel, self.add(panel, steps)), (self.matrix, right), sizes)


@functools.cache
def _whole(kind: str) -> Kernel:
    """All steps for matrices, of which each piece has some, and one panel."""
    b = _Elimination("LuDecomposition", "count length held", kind)
    source = b.argument(kind)
    b.arguments()
    least = b.min(b.rows, b.columns)
    size = b.mul(b.rows, b.columns)
    with b.loop(b.kernel.first, b.kernel.last) as (piece, _):
        panel = b.mul(piece, b.parameter["held"])
        with b.loop(*b.tile_range(piece, b.parameter["length"], b.parameter["count"]), sequential=True) as (index, _):
            matrix, pivots = b.mul(index, size), b.mul(index, least)
            with b.loop(0, size) as (k, _):
                b.store(b.matrix, b.add(matrix, k), b.load(source, b.add(matrix, k)))
            with b.loop(0, b.ceil_div(least, BLOCK), sequential=True) as (block, _):
                start, steps = b.tile_start_and_size(block, BLOCK, least)
                b.factor(start, matrix, pivots, panel)
                after = b.min(b.add(start, BLOCK), b.columns)
                width = b.sub(b.columns, after)
                with b.only(start):
                    b.exchange(start, steps, matrix, pivots, 0, start)
                with b.only(width):
                    b.exchange(start, steps, matrix, pivots, after, width)
                    b.eliminate(start, steps, matrix, panel, after, width)
    return b.kernel


@functools.cache
def _copy(kind: str) -> Kernel:
    b = ParametricBuilder("copy", "size")
    source, target = b.argument(kind), b.argument(kind, True)
    start, stop = b.mul(b.kernel.first, _COPIED), b.mul(b.kernel.last, _COPIED)
    with b.loop(start, b.min(stop, b.parameter["size"])) as (k, _):
        b.store(target, k, b.load(source, k))
    return b.kernel


@functools.cache
def _step(kind: str) -> Kernel:
    """What a factored block means for other columns: first those of the block after it, which then are factored."""
    b = _Elimination("lu_step", "start steps next wide right here there", kind)
    b.arguments()
    n = b.parameter
    start, steps, next, wide, right = (n[name] for name in ("start", "steps", "next", "wide", "right"))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        with b.only(b.sub(1, index)):
            width = b.min(BLOCK, b.sub(b.columns, next))
            with b.only(b.min(steps, width)):
                b.exchange(start, steps, 0, 0, next, width)
                b.eliminate(start, steps, 0, n["here"], next, width)
            with b.only(b.sub(b.min(b.rows, b.columns), next)):
                b.factor(next, 0, 0, n["there"])
        is_right = b.min(1, b.max(0, b.sub(b.add(right, 1), index)))
        with b.only(b.min(index, is_right)):
            first, width = b.tile_start_and_size(b.sub(index, 1), wide, b.sub(b.sub(b.columns, next), BLOCK))
            column = b.add(next, BLOCK, first)
            b.exchange(start, steps, 0, 0, column, width)
            b.eliminate(start, steps, 0, n["here"], column, width)
        with b.only(b.sub(index, right)):
            column, width = b.tile_start_and_size(b.sub(b.sub(index, right), 1), wide, start)
            b.exchange(start, steps, 0, 0, column, width)
    return b.kernel


def lu(x: Instruction, results: dict[int, Storage]) -> tuple[list[LoweredKernel], Storage]:
    """The factors, as far as they are taken, and pivots."""
    source = x.operands[0]
    *batch, rows, columns = source.array_shape.dimensions
    kind, count, least = source.array_shape.element_type.name, math.prod(batch), min(rows, columns)
    pitch, held = panel_of(kind, rows)

    def memory(kind: str, size: int) -> Temporary:
        return Temporary(Shape(element_type(kind), (size,)))

    matrix = results.get(0) or memory(kind, count * rows * columns)
    pivots = results.get(1) or memory("s32", count * least)
    if count > 1 or least < SHARED:
        pieces = min(count, PIECES)
        length = -(-count // pieces)
        panels = memory(kind, pieces * held)
        work = length * rows * columns * (least // 4 + 8)
        numbers = (rows, columns, pitch, count, length, held)
        return [step_of(_whole(kind), [source, matrix, panels, pivots], numbers, pieces, work, x)], pivots
    arguments = [matrix, memory(kind, 2 * held), pivots]
    size = rows * columns
    kernels = [step_of(_copy(kind), [source, matrix], (size,), -(-size // _COPIED), _COPIED, x)]
    wide = strip_width(columns)
    for block in range(-1, -(-least // BLOCK)):
        start, next = max(0, block * BLOCK), (block + 1) * BLOCK
        steps = min(BLOCK, least - start) if block >= 0 else 0
        right = max(0, -(-(columns - next - BLOCK) // wide)) if steps else 0
        numbers = (rows, columns, pitch, start, steps, next, wide, right, block % 2 * held, (block + 1) % 2 * held)
        kernels.append(step_of(_step(kind), arguments, numbers, 1 + right + -(-start // wide), wide * BLOCK * rows, x))
    return kernels, pivots
