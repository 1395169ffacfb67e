"""Loops over arrays of which some lie across: memory goes on along another dimension than the innermost loop.

The result is made in *strips*: pieces of as many of its lines as elements of what lies across are on a line of the
cache, or on a pair of these. What lies across is first copied, as it is read, to a strip that stays in the first cache;
so every line of memory is read once, and loops go along memory on both sides.

Neither side is long enough for a processor to foresee what comes next. So what the strip that follows will read is
asked for meanwhile, and so is what it will write, if caches do not have that: a store waits until its line is there,
and later ones wait for it. Strips follow each other along the result, where one may end in the middle of a line.

A matrix that no cache holds and that is read both ways, as in x + x.T, is read once, too: a square of strips is
followed by the one that is its mirror image, which reads the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tinyxla.compiler.analysis.access_maps import AccessMap
from tinyxla.compiler.fusion.plan import buffer_of, iteration_space, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Builder, Index
from tinyxla.loopir.ir.prefetch import declare_prefetch_read, declare_prefetch_write
from tinyxla.loopir.lower import register_transpose
from tinyxla.loopir.lower.axes import Axis, evaluate_access_map, expand_indices, make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering
from tinyxla.loopir.target import last_cache

ACROSS = 1 << 13  # elements that had better not be read across
_LINE = 64  # bytes of the cache
_ENOUGH = 32  # lines of a strip for which what lies across is read in pairs of the cache's lines
_MANY = 128  # lines of a strip
_FAR = 1 << 22  # bytes that a processor's own caches hardly hold
_STRIPS = 1 << 16  # bytes of all that is turned for a piece
_SQUARE = 1 << 18  # bytes, of which the second cache holds two and more
_MORE = 16  # elements between the lines of a strip, so that these do not meet the same cache set again and again

Reads = Sequence[tuple[Instruction, AccessMap]]


def crossing(roots: Sequence[Instruction], stored: set[Instruction], axes: Sequence[Axis]) -> Axis | None:
    """An outer loop along which something is contiguous in memory that the inner loop would read with long strides."""
    for axis in axes[:-1]:
        if _read_along(axis, axes[-1], roots, stored):
            return axis
    return None


def _read_along(axis: Axis, inner: Axis, roots: Sequence[Instruction], stored: set[Instruction]) -> Reads:
    """What is read from memory such that this loop runs through it without gaps, and the inner one with them."""
    found: list[tuple[Instruction, AccessMap]] = []
    for x, place, from_memory in walk_producers(roots, stored, views=True):
        wide = [c for c in place if c != -1]
        plain = not any(isinstance(c, frozenset) for c in wide)
        along = plain and wide and wide[-1] == axis.last and any(d in wide for d in range(inner.first, inner.last + 1))
        if from_memory and along and x.array_shape.size >= ACROSS:
            found.append((x, place))
    return found


def tiled(low: Lowering, axes: Sequence[Axis], outer: Axis, work: int, roots: Sequence[Instruction]) -> LoweredKernel:
    """A kernel of strips; memory of something goes on along the outer axis."""
    b, inner = low.builder, axes[-1]
    across = _read_along(outer, inner, roots, low.materialized)
    straight = [item for item in _read_along(inner, outer, roots, low.materialized) if buffer_of(item[0]) not in roots]
    sizes = [x.array_shape.dtype.itemsize for x, _ in across]
    moved = _bytes(across, straight, roots)
    is_far = moved >= _FAR
    lines = min(_lines(sizes, inner.size, moved), outer.size)
    width = _width(inner.size, max(sizes), _STRIPS // (lines * sum(sizes)), max(_MORE, lines))
    pitch = -(-width // (4 * _MORE)) * 4 * _MORE + 2 * _MORE  # of which there are few, since each has its routine
    others = [a for a in axes if a not in (outer, inner)]
    columns, strips = -(-inner.size // width), -(-outer.size // lines)
    pairs = _pairs(across, straight, inner.size, outer.size, width, lines)
    counts = [*(a.size for a in others), *(pairs.counts if pairs else (strips, columns))]
    rank, extent = len(iteration_space(roots[0])), math.prod(counts)
    has_gaps = columns > 1  # else whole lines of the result follow each other
    claimed = [root for root in roots if is_far and has_gaps and root in low.live_out]
    copies = [b.scratch(x.array_shape.element_type.name, lines * pitch) for x, _ in across]

    def copied(copy: Buffer, i: Index, j: Index) -> tuple[Buffer, Index]:
        return copy, b.add(b.mul(i, pitch), _MORE, j)

    def corner(number: Index) -> tuple[list[Index], Index]:
        """Where a strip begins, and how many of its lines another one has, too."""
        coordinates = low.split_index(number, counts)
        indices, place = coordinates[: len(others)], coordinates[len(others) :]
        strip, column = pairs.place(b, place, strips) if pairs else place
        begin = b.mul(strip, lines)
        top = b.min(begin, outer.size - lines)
        return [*indices, top, b.mul(column, width)], b.sub(begin, top)

    def coordinates_at(start: Sequence[Index], i: Index, j: Index) -> Coordinates:
        here = (*start[:-2], b.add(start[-2], i), b.add(start[-1], j))
        by_axis = dict(zip([*others, outer, inner], here, strict=True))
        return expand_indices(axes, [by_axis[a] for a in axes], rank)

    def address(x: Instruction, place: AccessMap, start: Sequence[Index], i: Index, j: Index) -> tuple[Buffer, Index]:
        return low.buffer(buffer_of(x)), low.linearize(
            x.array_shape.dimensions, evaluate_access_map(place, coordinates_at(start, i, j))
        )

    def result(root: Instruction, start: Sequence[Index], i: Index, j: Index) -> tuple[Buffer, Index]:
        return low.buffer(root, True), low.linearize(root.array_shape.dimensions, coordinates_at(start, i, j))

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.assume_range(index, 0, extent - 1)
        here, first = corner(index)
        ahead, _ = corner(b.min(b.add(index, 1), extent - 1))
        length = b.max(b.min(b.sub(inner.size, here[-1]), width), 0)
        for (x, place), copy in zip(across, copies, strict=True):
            at, soon = partial(address, x, place, here), partial(address, x, place, ahead)
            register_transpose.turn(
                low, at, partial(copied, copy), (lines, length), min(lines, inner.size), soon, first
            )
        with low.loop(first, lines) as (i, _):
            for x, place in straight:
                b.call(declare_prefetch_read(), *(address(x, place, ahead, i, j) for j in (0, length)))
            for root in claimed:
                b.call(declare_prefetch_write(), *(result(root, ahead, i, j) for j in (0, length)))
            with low.loop(0, length) as (j, _):
                coordinates = coordinates_at(here, i, j)
                for (x, place), copy in zip(across, copies, strict=True):
                    low.bind_value(x, evaluate_access_map(place, coordinates), b.load(*copied(copy, i, j)))
                for root in roots:
                    low.emit_root(root, coordinates)
    return make_kernel(low, extent, work * lines * width, roots)


def _lines(sizes: Sequence[int], length: int, moved: int) -> int:
    """Lines of a strip, where what lies across has elements of so many bytes: as many as are on a line of the cache.
    From far away, processors fetch pairs of these; from memory they read ahead what is longer, as it can be if lines
    are short."""
    one, two = _LINE // min(sizes), 2 * _LINE // max(sizes)
    many = min(_MANY, _STRIPS // (length * sum(sizes))) // one * one if moved >= 2 * last_cache() else 0
    return max(one, min(_ENOUGH, two), many) if moved >= _FAR else one


def _bytes(across: Reads, straight: Reads, roots: Sequence[Instruction]) -> int:
    """How much a kernel moves."""
    arrays = {buffer_of(x): x.array_shape for x in (*(x for x, _ in (*across, *straight)), *roots)}
    return sum(x.size * x.dtype.itemsize for x in arrays.values())


def _width(size: int, bytes_each: int, most: int, unit: int) -> int:
    """Elements of pieces of lines of this size: as equal as can be, and longer where the cache's lines are cut."""
    near = (512 if size * bytes_each % _LINE == 0 else 1024) // max(2, bytes_each)
    pieces = max(1, round(size / min(near, most)))
    return size if pieces == 1 else -(-size // (pieces * unit)) * unit


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Squares of strips, in pairs that mirror each other: so many on a side of the matrix, and in each so many columns
    of so many strips."""

    squares: int
    columns: int
    strips: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Rows and columns of pairs, the two, and the strips and columns of one. A pair is a place on or above the
        diagonal, and these make a rectangle: those from a diagonal on, and beside them the rest turned round."""
        width = self.squares | 1
        return self.squares * (self.squares + 1) // 2 // width, width, 2, self.strips, self.columns

    def place(self, b: Builder, at: Sequence[Index], end: int) -> tuple[Index, Index]:
        """Number and column of a strip; the number is at the end where the second of a pair is the first again."""
        row, column, second, *inside = at
        shift = 1 - self.squares % 2
        is_first = b.compare("GE", column, b.add(row, shift))
        i = b.select(is_first, row, b.sub(self.squares - shift, row))
        j = b.select(is_first, b.sub(column, shift), b.sub(self.squares - 1, column))
        is_mirror = b.compare("EQ", second, 1)
        down, along = b.select(is_mirror, j, i), b.select(is_mirror, i, j)
        strip = b.add(b.mul(down, self.strips), inside[0])
        is_again = b.compare("GT", b.add(i, second), j)
        return b.select(is_again, end, strip), b.add(b.mul(along, self.columns), inside[1])


def _pairs(across: Reads, straight: Reads, size: int, other: int, width: int, lines: int) -> _Pairs | None:
    """Where something that no cache holds is read both ways."""
    both = [x.array_shape.dtype.itemsize for x, _ in across if any(x is y for y, _ in straight)]
    side = max(1, math.isqrt(_SQUARE // max(both, default=1)) // width) * width
    if size != other or size * size * sum(both) < last_cache() or side % lines:
        return None
    return _Pairs(-(-size // side), side // width, side // lines)
