"""Loop nests of the kinds from fusions: `loop` and `parts` here, the others in `rows`, `columns` and `reductions`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise, product
from typing import Literal

from tinyxla.compiler.analysis.fusibility import is_costly
from tinyxla.compiler.fusion.plan import Fusion, Plan, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index
from tinyxla.loopir.lower import pad, permute_blocks, reductions, transposed_tiles
from tinyxla.loopir.lower.axes import (
    COSTLY_WORK,
    MAX_UNROLLED_OPS,
    MAX_UNROLLED_ROW,
    MAX_UNROLLED_ROWS,
    PARALLEL_CHUNK_ELEMENTS,
    Axis,
    collapse_axes,
    expand_indices,
    index_set_boundaries,
    make_kernel,
    ops_per_element,
    parallel_grain,
    split_index_set,
    tile_of,
)
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.loopir.lower.outer_reduction import column
from tinyxla.loopir.lower.row_reduction import row
from tinyxla.loopir.lower.transposed_tiles import ACROSS

SHORT_LOOP = 128  # fewer take less time than to compute the place of a row
KNOWN_END = 64  # elements: of more, few are left of whole vectors, and one loop serves all numbers of them
LONG_CHAIN = 100  # simple operations for an element of a short row: LLVM writes these out, too long for vectors
LONG_FUNCTIONS = frozenset({"cosine", "power", "sine", "tan"})  # each is too long where a row is less than a vector
MOST_TOGETHER = 32  # arrays that one loop puts together: of single elements, or of short rows
LEAST_TOGETHER = 8  # arrays of short rows, which are else too few to keep the lines of the result in the cache for
SHORT_PIECE = 256  # elements of such rows
MOST_OF_LOOP = 0.75  # the share of a part that is worth being written out by itself


_Way = Literal["rows", "inside", "written", "flat"]  # to run the last loop


def lower(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a fusion: one, or two where pieces are reduced first."""
    return _KINDS[fusion.kind](fusion, plan, users)


def _loop(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots, sizes = fusion.roots, fusion.outer
    padded = pad.lower(roots[0], plan) if len(roots) == 1 else None
    if padded is not None:
        return [padded]
    axes = collapse_axes(roots, plan.materialized, sizes)
    shuffled = permute_blocks.lower(roots, plan, axes)
    if shuffled is not None:
        return [shuffled]
    low = Lowering("loop", plan, roots)
    work = ops_per_element(roots, plan.materialized)

    def define(coordinates: Coordinates) -> None:
        for root in roots:
            low.emit_root(root, coordinates)

    crossing = transposed_tiles.crossing(roots, plan.materialized, axes) if math.prod(sizes) > ACROSS else None
    way = _last_loop(axes, crossing, work, roots, plan.materialized)
    if crossing is None and way == "rows":
        axes, way = _with_stack_inside(axes, work, roots, plan.materialized)
    if crossing is not None and crossing is not axes[-2 if way in ("written", "inside") else -1]:
        return [transposed_tiles.tiled(low, axes, crossing, work, roots)]
    return [make_kernel(low, *_nest(low, roots, axes, way, work, len(sizes), plan.materialized, define), roots)]


def _nest(
    low: Lowering,
    roots: Sequence[Instruction],
    axes: Sequence[Axis],
    way: str,
    work: int,
    rank: int,
    stored: set[Instruction],
    define: Callable[[Coordinates], None],
) -> tuple[int, int]:
    """The loops over the axes, around `define` for each element. Given are how often the outermost one runs, and the
    work of once."""

    def along(axis: Axis, start: Index, stop: Index, outer: Sequence[Index]) -> None:
        """The innermost loop, cut where what is read changes: no part has to ask where it is. Where parts are many, or
        long to write out, only the longest is one; what is before and after it asks, in a loop for both."""
        b, parts = low.builder, split_index_set(axis, roots, stored, work)
        if len(parts) > 1:
            for begin, end in parts:
                within(b.max(start, begin), b.min(stop, end), begin, end, outer)
            return
        first, last = _middle(axis, roots, stored)
        if (first, last) == (0, axis.size):
            within(start, stop, first, last, outer)
            return
        within(b.max(start, first), b.min(stop, last), first, last, outer)
        with low.loop(0, 2) as (side, _):
            begin, end = b.mul(side, last), b.add(first, b.mul(side, axis.size - first))
            within(b.max(start, begin), b.min(stop, end), 0, axis.size, outer)

    def within(start: Index, stop: Index, begin: int, end: int, outer: Sequence[Index]) -> None:
        b = low.builder
        with low.loop(start, stop) as (j, loop), ExitStack() as loops:
            b.assume_range(j, begin, end - 1)
            ranges: list[Sequence[Index]] = [range(a.size) for a in short]
            if way == "inside":
                opened = [loops.enter_context(low.loop(0, a.size)) for a in short]
                ranges = [[i] for i, _ in opened]
                loop = opened[-1][1]
            at_once = not outer and way == "rows" and isinstance(start, int)
            loop.force_vectorize = at_once or (way != "written" and _has_short_vectors(roots, stored, axes[-1]))
            for indices in product(*ranges):
                define(expand_indices(axes, [*outer, j, *indices], rank))

    if not axes:
        with low.loop(low.builder.kernel.first, low.builder.kernel.last):
            define((0,) * rank)
        return 1, work
    count = 1 if way in ("written", "inside") else 0
    while way == "inside" and len(axes) > count + 2 and axes[-count - 1].size < MAX_UNROLLED_ROW // 2:
        count += 1  # what has too few indices for vectors across it
    short = axes[len(axes) - count :]
    *outer, inner = axes[: len(axes) - len(short)]
    inside = math.prod(a.size for a in short)
    if not outer:
        along(inner, *_range(low, inner.size, work * inside), ())
        return inner.size, work * inside
    rows = math.prod(a.size for a in outer)
    if way == "flat":
        with low.loop(*_range(low, rows * inner.size, work)) as (j, loop):
            loop.force_vectorize = isinstance(loop.start, int)
            define(expand_indices(axes, low.split_index(j, [a.size for a in axes]), rank))
        return rows * inner.size, work
    pieces = -(-inner.size * inside // PARALLEL_CHUNK_ELEMENTS) if rows < 16 else 1
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        low.builder.assume_range(index, 0, rows * pieces - 1)
        row, start, stop = tile_of(low, index, pieces, inner.size)
        along(inner, start, stop, low.split_index(row, [a.size for a in outer]))
    return rows * pieces, work * inside * -(-inner.size // pieces)


def _range(low: Lowering, extent: int, work: int) -> tuple[Index, Index]:
    """From where to where the outermost loop runs: over all at once, if that is known to be one short piece. Of what
    takes long it then leaves no elements that are computed one by one."""
    at_once = extent <= KNOWN_END and work >= COSTLY_WORK and parallel_grain(extent, work) >= extent
    return (0, extent) if at_once else (low.builder.kernel.first, low.builder.kernel.last)


def _middle(axis: Axis, roots: Sequence[Instruction], stored: set[Instruction]) -> tuple[int, int]:
    """The longest part in which the same is read, if it is most of the loop; else the whole."""
    parts = pairwise([0, *index_set_boundaries(roots, stored, axis), axis.size])
    begin, end = max(parts, key=lambda part: part[1] - part[0])
    return (begin, end) if end - begin >= axis.size * MOST_OF_LOOP else (0, axis.size)


def _parts(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """A kernel for each array of a concatenation: equal ones are compiled once."""
    (root,) = fusion.roots
    d, whole = root.attributes.dimension, root.array_shape.dimensions
    found: list[LoweredKernel] = []
    if all(math.prod(x.array_shape.dimensions[d:]) == 1 for x in root.operands):
        return [
            _computed_parts(
                Lowering("part", plan, [root]), root, range(k, min(k + MOST_TOGETHER, whole[d])), plan.materialized
            )
            for k in range(0, whole[d], MOST_TOGETHER)
        ]
    count, are_equal = len(root.operands), len({x.array_shape.dimensions for x in root.operands}) == 1
    if d and are_equal and LEAST_TOGETHER <= count <= MOST_TOGETHER and math.prod(whole[d:]) <= count * SHORT_PIECE:
        return [_computed_parts(Lowering("part", plan, [root]), root, range(count), plan.materialized)]
    starts = accumulate((x.array_shape.dimensions[d] for x in root.operands), initial=0)
    for k, (x, start) in enumerate(zip(root.operands, starts, strict=False)):
        outer, inner = x.array_shape.dimensions[:d], x.array_shape.dimensions[d:]
        low = Lowering("part", plan, [root])
        b = low.builder
        if not low.in_memory(x):
            found.append(_computed_parts(low, root, [k], plan.materialized))
            continue
        row, wide = math.prod(inner), [k for k, size in enumerate(inner) if size != 1]
        pieces = -(-row // PARALLEL_CHUNK_ELEMENTS)
        around = outer[-1:] if len(outer) > 1 and row < SHORT_LOOP else ()
        first = outer[: len(outer) - len(around)]
        with low.loop(b.kernel.first, b.kernel.last) as (index, _), ExitStack() as loops:
            number, begin, end = tile_of(low, index, pieces, row)
            at = (*low.split_index(number, first), *(loops.enter_context(low.loop(0, n))[0] for n in around))
            to = low.linearize(whole, (*at, start, *[0] * (len(inner) - 1)))
            with low.loop(begin, end) as (j, _):
                place = tuple(j if [k] == wide[-1:] else 0 for k in range(len(inner)))  # which may run on
                b.store(low.buffer(root, True), b.add(to, j), low.value(x, (*at, *place)))
        work = ops_per_element([root], plan.materialized) // len(root.operands) + 3
        work *= row // max(1, pieces) * math.prod(around)
        found.append(make_kernel(low, math.prod(first) * pieces, work, [root]))
    return found


def _computed_parts(
    low: Lowering, root: Instruction, numbers: Sequence[int], stored: set[Instruction]
) -> LoweredKernel:
    """What one nest computes of a concatenation: operands of one shape."""
    parts, d, b = [root.operands[k] for k in numbers], root.attributes.dimension, low.builder
    sizes = parts[0].array_shape.dimensions
    first = sum(x.array_shape.dimensions[d] for x in root.operands[: numbers[0]])

    def define(coordinates: Coordinates) -> None:
        for k, x in enumerate(parts):
            start = b.add(coordinates[d], first + k * sizes[d])
            place = (*coordinates[:d], start, *coordinates[d + 1 :])
            b.store(
                low.buffer(root, True), low.linearize(root.array_shape.dimensions, place), low.value(x, coordinates)
            )

    axes, work = collapse_axes(parts, stored, sizes, (d,)), ops_per_element(parts, stored) + len(parts)
    way = _last_loop(axes, None, work, parts, stored)
    return make_kernel(low, *_nest(low, parts, axes, way, work, len(sizes), stored, define), [root])


def _last_loop(
    axes: Sequence[Axis], crossing: Axis | None, work: int, roots: Sequence[Instruction], stored: set[Instruction]
) -> _Way:
    """How the last loop is run. By rows: the others are one loop, which computes the place of each row. If it is short,
    that takes longer than the row, so it may be inside of the one before it, within a piece of work; written out, where
    vectors had better be across it, since memory goes on there, or since what is read changes along it; or flat: one
    with all others, where LLVM would write it out, and that is too long to become vectors."""
    if len(axes) < 2:
        return "rows"
    size, is_cut = axes[-1].size, bool(index_set_boundaries(roots, stored, axes[-1]))
    is_long = work >= LONG_CHAIN
    if (
        size <= MAX_UNROLLED_ROW
        and size * work <= MAX_UNROLLED_OPS
        and (is_cut or crossing is axes[-2])
        and not is_long
    ):
        return "written"
    is_short = size < (MAX_UNROLLED_ROW if is_long else MAX_UNROLLED_ROW // 2)
    if is_short and not is_cut and math.prod(a.size for a in axes[:-1]) >= MAX_UNROLLED_ROWS:
        functions = {x.op.name for x, _, from_memory in walk_producers(roots, stored) if not from_memory}
        if is_long or not LONG_FUNCTIONS.isdisjoint(functions | {x.op.name for x in roots}):
            return "flat"
    return "inside" if len(axes) > 2 and size < SHORT_LOOP and not is_cut and crossing is None else "rows"


def _with_stack_inside(
    axes: list[Axis], work: int, roots: Sequence[Instruction], stored: set[Instruction]
) -> tuple[list[Axis], _Way]:
    """Where what is read changes along a short axis around the last loop, as where few rows were put together, these
    are written out inside of it: each computes what is its own, and what they share is computed once."""
    for k, axis in enumerate(axes[:-1]):
        if (
            1 < axis.size <= MAX_UNROLLED_ROW
            and axis.size * work <= MAX_UNROLLED_OPS
            and index_set_boundaries(roots, stored, axis)
        ):
            return [*axes[:k], *axes[k + 1 :], axis], "written"
    return axes, "rows"


def _has_short_vectors(roots: Sequence[Instruction], stored: set[Instruction], inner: Axis) -> bool:
    """Whether a short loop, which LLVM would write out to have vectors across it, had better be of vectors itself:
    where it goes along memory from places that are read from memory."""
    found = list(walk_producers(roots, stored, views=True))
    is_along = any(m and place[-1:] == (inner.last,) and frozenset() in place for _, place, m in found)
    is_cheap = inner.size >= MAX_UNROLLED_ROW // 2 or not any(
        is_costly(x) for x in (*roots, *(x for x, _, m in found if not m))
    )
    return is_along and is_cheap and inner.size > 2


_KINDS: dict[str, Callable[[Fusion, Plan, Users], list[LoweredKernel]]] = {
    "loop": _loop,
    "parts": _parts,
    "row": row,
    "column": column,
    "split": reductions.split_reduction,
}
