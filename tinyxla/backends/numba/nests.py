"""Loop nests of the kinds from fusions: `loop`, `parts` and `row` here, `column` and `split` in `reductions`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, pairwise, product
from typing import Any, Literal

from tinyxla.backends.numba import pads, reductions, shuffles, strips, tiles
from tinyxla.backends.numba.axes import CHUNK, COSTLY_WORK, Axis, cost, cuts, finished, grain, merged, piece_of, spread
from tinyxla.backends.numba.columns import column
from tinyxla.backends.numba.loops import Buffer, Index, Operand
from tinyxla.backends.numba.lowering import LANES, Coordinates, LoweredKernel, Lowering, Users
from tinyxla.backends.numba.tiles import ACROSS
from tinyxla.compiler.access import normal, renumbered
from tinyxla.compiler.fusion import Fusion, Plan, base, domain, is_costly, results_of, walk
from tinyxla.hlo import Instruction
from tinyxla.ops import reduction

LARGEST_ROW = 1 << 14  # elements of an intermediate that is kept for a row
ROWS_LIMIT = 1 << 17  # bytes of all of them
STRIP_LIMIT = 1 << 9  # elements of all arrays of a row, where rows make strips
QUOTIENTS = frozenset(("divide", "chain-divide"))  # for a vector they take as long as some ten loads
SHORT_LOOP = 128  # fewer take less time than to compute the place of a row
SHORT_ROW = 16  # elements of a row that is written out
INTERLEAVED = 8  # elements of a row that LLVM turns by itself
KNOWN_END = 64  # elements: of more, few are left of whole vectors, and one loop serves all numbers of them
LONG_CHAIN = 100  # simple operations for an element of a short row: LLVM writes these out, too long for vectors
LONG_FUNCTIONS = frozenset({"cosine", "power", "sine", "tan"})  # each is too long where a row is less than a vector
SHORT_ROWS = 16  # fewer of them do not fill a vector
SHORT_ROW_WORK = 600  # simple operations of all of them
MOST_PIECES = 32  # of rows that are summed up
ROWS_OF_PIECE = 16  # at least
MOST_TOGETHER = 32  # arrays that one loop puts together: of single elements, or of short rows
LEAST_TOGETHER = 8  # arrays of short rows, which are else too few to keep the lines of the result in the cache for
SHORT_PIECE = 256  # elements of such rows
MOST_PARTS = 8  # of a loop that is cut where what is read changes
LONGEST_IN_PARTS = 200  # operations that are written out for each part
MOST_OF_LOOP = 0.75  # the share of a part that is worth being written out by itself


_Way = Literal["rows", "inside", "written", "flat"]  # to run the last loop


def lower(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a fusion: one, or two where pieces are reduced first."""
    return _KINDS[fusion.kind](fusion, plan, users)


def _loop(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots, sizes = fusion.roots, fusion.outer
    padded = pads.lower(roots[0], plan) if len(roots) == 1 else None
    if padded is not None:
        return [padded]
    axes = merged(roots, plan.stored, sizes)
    shuffled = shuffles.lower(roots, plan, axes)
    if shuffled is not None:
        return [shuffled]
    low = Lowering("loop", plan, roots)
    work = cost(roots, plan.stored)

    def define(coordinates: Coordinates) -> None:
        for root in roots:
            low.define(root, coordinates)

    crossing = tiles.crossing(roots, plan.stored, axes) if math.prod(sizes) > ACROSS else None
    way = _last_loop(axes, crossing, work, roots, plan.stored)
    if crossing is None and way == "rows":
        axes, way = _with_stack_inside(axes, work, roots, plan.stored)
    if crossing is not None and crossing is not axes[-2 if way in ("written", "inside") else -1]:
        return [tiles.tiled(low, axes, crossing, work, roots)]
    return [finished(low, *_nest(low, roots, axes, way, work, len(sizes), plan.stored, define), roots)]


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
        b, parts = low.builder, _uniform(axis, roots, stored, work)
        if len(parts) > 1:
            for begin, end in parts:
                within(b.most(start, begin), b.least(stop, end), begin, end, outer)
            return
        first, last = _middle(axis, roots, stored)
        if (first, last) == (0, axis.size):
            within(start, stop, first, last, outer)
            return
        within(b.most(start, first), b.least(stop, last), first, last, outer)
        with low.loop(0, 2) as (side, _):
            begin, end = b.times(side, last), b.sum(first, b.times(side, axis.size - first))
            within(b.most(start, begin), b.least(stop, end), 0, axis.size, outer)

    def within(start: Index, stop: Index, begin: int, end: int, outer: Sequence[Index]) -> None:
        b = low.builder
        with low.loop(start, stop) as (j, loop), ExitStack() as loops:
            b.bound(j, begin, end - 1)
            ranges: list[Sequence[Index]] = [range(a.size) for a in short]
            if way == "inside":
                opened = [loops.enter_context(low.loop(0, a.size)) for a in short]
                ranges = [[i] for i, _ in opened]
                loop = opened[-1][1]
            at_once = not outer and way == "rows" and isinstance(start, int)
            loop.in_vectors = at_once or (way != "written" and _has_short_vectors(roots, stored, axes[-1]))
            for indices in product(*ranges):
                define(spread(axes, [*outer, j, *indices], rank))

    if not axes:
        with low.loop(low.builder.kernel.first, low.builder.kernel.last):
            define((0,) * rank)
        return 1, work
    count = 1 if way in ("written", "inside") else 0
    while way == "inside" and len(axes) > count + 2 and axes[-count - 1].size < SHORT_ROW // 2:
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
            loop.in_vectors = isinstance(loop.start, int)
            define(spread(axes, low.split_index(j, [a.size for a in axes]), rank))
        return rows * inner.size, work
    pieces = -(-inner.size * inside // CHUNK) if rows < 16 else 1
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        low.builder.bound(index, 0, rows * pieces - 1)
        row, start, stop = piece_of(low, index, pieces, inner.size)
        along(inner, start, stop, low.split_index(row, [a.size for a in outer]))
    return rows * pieces, work * inside * -(-inner.size // pieces)


def _range(low: Lowering, extent: int, work: int) -> tuple[Index, Index]:
    """From where to where the outermost loop runs: over all at once, if that is known to be one short piece. Of what
    takes long it then leaves no elements that are computed one by one."""
    at_once = extent <= KNOWN_END and work >= COSTLY_WORK and grain(extent, work) >= extent
    return (0, extent) if at_once else (low.builder.kernel.first, low.builder.kernel.last)


def _uniform(axis: Axis, roots: Sequence[Instruction], stored: set[Instruction], work: int) -> list[tuple[int, int]]:
    """The parts of a loop in which the same is read, if they are few; else the whole."""
    ends = cuts(roots, stored, axis) if work <= LONGEST_IN_PARTS else []
    return list(pairwise([0, *(ends if len(ends) < MOST_PARTS else ()), axis.size]))


def _middle(axis: Axis, roots: Sequence[Instruction], stored: set[Instruction]) -> tuple[int, int]:
    """The longest part in which the same is read, if it is most of the loop; else the whole."""
    parts = pairwise([0, *cuts(roots, stored, axis), axis.size])
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
                Lowering("part", plan, [root]), root, range(k, min(k + MOST_TOGETHER, whole[d])), plan.stored
            )
            for k in range(0, whole[d], MOST_TOGETHER)
        ]
    count, are_equal = len(root.operands), len({x.array_shape.dimensions for x in root.operands}) == 1
    if d and are_equal and LEAST_TOGETHER <= count <= MOST_TOGETHER and math.prod(whole[d:]) <= count * SHORT_PIECE:
        return [_computed_parts(Lowering("part", plan, [root]), root, range(count), plan.stored)]
    starts = accumulate((x.array_shape.dimensions[d] for x in root.operands), initial=0)
    for k, (x, start) in enumerate(zip(root.operands, starts, strict=False)):
        outer, inner = x.array_shape.dimensions[:d], x.array_shape.dimensions[d:]
        low = Lowering("part", plan, [root])
        b = low.builder
        if not low.in_memory(x):
            found.append(_computed_parts(low, root, [k], plan.stored))
            continue
        row, wide = math.prod(inner), [k for k, size in enumerate(inner) if size != 1]
        pieces = -(-row // CHUNK)
        around = outer[-1:] if len(outer) > 1 and row < SHORT_LOOP else ()
        first = outer[: len(outer) - len(around)]
        with low.loop(b.kernel.first, b.kernel.last) as (index, _), ExitStack() as loops:
            number, begin, end = piece_of(low, index, pieces, row)
            at = (*low.split_index(number, first), *(loops.enter_context(low.loop(0, n))[0] for n in around))
            to = low.linear(whole, (*at, start, *[0] * (len(inner) - 1)))
            with low.loop(begin, end) as (j, _):
                place = tuple(j if [k] == wide[-1:] else 0 for k in range(len(inner)))  # which may run on
                b.store(low.buffer(root, True), b.sum(to, j), low.value(x, (*at, *place)))
        work = cost([root], plan.stored) // len(root.operands) + 3
        work *= row // max(1, pieces) * math.prod(around)
        found.append(finished(low, math.prod(first) * pieces, work, [root]))
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
            start = b.sum(coordinates[d], first + k * sizes[d])
            place = (*coordinates[:d], start, *coordinates[d + 1 :])
            b.store(low.buffer(root, True), low.linear(root.array_shape.dimensions, place), low.value(x, coordinates))

    axes, work = merged(parts, stored, sizes, (d,)), cost(parts, stored) + len(parts)
    way = _last_loop(axes, None, work, parts, stored)
    return finished(low, *_nest(low, parts, axes, way, work, len(sizes), stored, define), [root])


def _last_loop(
    axes: Sequence[Axis], crossing: Axis | None, work: int, roots: Sequence[Instruction], stored: set[Instruction]
) -> _Way:
    """How the last loop is run. By rows: the others are one loop, which computes the place of each row. If it is short,
    that takes longer than the row, so it may be inside of the one before it, within a piece of work; written out, where
    vectors had better be across it, since memory goes on there, or since what is read changes along it; or flat: one
    with all others, where LLVM would write it out, and that is too long to become vectors."""
    if len(axes) < 2:
        return "rows"
    size, is_cut = axes[-1].size, bool(cuts(roots, stored, axes[-1]))
    is_long = work >= LONG_CHAIN
    if size <= SHORT_ROW and size * work <= SHORT_ROW_WORK and (is_cut or crossing is axes[-2]) and not is_long:
        return "written"
    is_short = size < (SHORT_ROW if is_long else SHORT_ROW // 2)
    if is_short and not is_cut and math.prod(a.size for a in axes[:-1]) >= SHORT_ROWS:
        functions = {x.op.name for x, _, from_memory in walk(roots, stored) if not from_memory}
        if is_long or not LONG_FUNCTIONS.isdisjoint(functions | {x.op.name for x in roots}):
            return "flat"
    return "inside" if len(axes) > 2 and size < SHORT_LOOP and not is_cut and crossing is None else "rows"


def _with_stack_inside(
    axes: list[Axis], work: int, roots: Sequence[Instruction], stored: set[Instruction]
) -> tuple[list[Axis], _Way]:
    """Where what is read changes along a short axis around the last loop, as where few rows were put together, these
    are written out inside of it: each computes what is its own, and what they share is computed once."""
    for k, axis in enumerate(axes[:-1]):
        if 1 < axis.size <= SHORT_ROW and axis.size * work <= SHORT_ROW_WORK and cuts(roots, stored, axis):
            return [*axes[:k], *axes[k + 1 :], axis], "written"
    return axes, "rows"


def _has_short_vectors(roots: Sequence[Instruction], stored: set[Instruction], inner: Axis) -> bool:
    """Whether a short loop, which LLVM would write out to have vectors across it, had better be of vectors itself:
    where it goes along memory from places that are read from memory."""
    found = list(walk(roots, stored, views=True))
    is_along = any(m and place[-1:] == (inner.last,) and frozenset() in place for _, place, m in found)
    is_cheap = inner.size >= SHORT_ROW // 2 or not any(
        is_costly(x) for x in (*roots, *(x for x, _, m in found if not m))
    )
    return is_along and is_cheap and inner.size > 2


def _row(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots = fusion.roots
    low, rows = Lowering("row", plan, [r for root in roots for r in results_of(root, users)]), math.prod(fusion.outer)
    phases = _phases(fusion, plan.stored, users)
    kept = _kept_rows(phases, fusion, plan.stored)
    if fusion.across is None and fusion.kept is None:
        axes = _axes_of_rows(fusion, plan.stored)
        longest = max(math.prod(domain(root)[len(fusion.outer) :]) for root in roots)
        is_many = axes and axes[-1].size >= LANES and rows * longest >= ACROSS
        is_held = (len(fusion.reads) + len(roots) + len(kept)) * longest <= STRIP_LIMIT
        is_much = longest * cost(roots, plan.stored) > SHORT_ROW_WORK
        is_turned = (1 if is_much else INTERLEAVED) < longest < LANES
        if is_many and is_turned and is_held and strips.suits(fusion, axes, plan.stored):
            return [strips.Strips(low, fusion.outer, axes, kept, users).lowered(phases, longest)]
        if longest <= SHORT_ROW and not is_much and rows >= SHORT_ROWS:
            return [_short_rows(low, phases, fusion, users, axes, longest)]
    if fusion.across is not None:
        return _row_and_columns(low, phases, fusion, fusion.across, kept, plan, users)
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (row, _):
        outer = low.split_index(row, fusion.outer)
        for phase in phases:
            _phase(low, phase, outer, fusion, kept, users)
    inner = sum(math.prod(domain(p[0])) // max(1, rows) for p in phases)
    return [finished(low, rows, cost(roots, plan.stored) * max(1, inner), roots)]


def _row_and_columns(
    low: Lowering,
    phases: list[list[Instruction]],
    fusion: Fusion,
    across: Fusion,
    kept: set[Instruction],
    plan: Plan,
    users: Users,
) -> list[LoweredKernel]:
    """Pieces of some rows each, with a row of accumulators for each reduction over the rows; and these together."""
    b, columns = low.builder, reductions.Reductions(across, plan)
    rows, sizes = math.prod(fusion.outer), domain(columns.roots[0])[len(fusion.outer) :]
    width = math.prod(sizes)
    pieces = max(1, min(MOST_PIECES, rows // ROWS_OF_PIECE))
    sums = [b.scratch(x.array_shape.element_type.name, width) for x in columns.arrays]
    with low.loop(b.kernel.first, b.kernel.last) as (piece, _):
        with low.loop(0, width) as (j, _):
            for row, value in zip(sums, columns.start(low, pieces), strict=True):
                b.store(row, j, value)
        _, start, stop = piece_of(low, piece, pieces, rows)
        with low.loop(start, stop, sequential=True) as (row, _):
            outer = low.split_index(row, fusion.outer)
            for phase in phases:
                _phase(low, phase, outer, fusion, kept, users, sums)
        with low.loop(0, width) as (j, _):
            values: list[Operand] = [b.load(row, j) for row in sums]
            columns.deliver(low, values, low.split_index(j, sizes), piece, pieces, users)
    work = cost(fusion.roots, plan.stored) * len(phases) * width * -(-rows // pieces)
    first = finished(low, pieces, work, fusion.roots)
    return [first] if pieces == 1 else [first, reductions.combine(columns, plan, users, pieces)]


def _axes_of_rows(fusion: Fusion, stored: set[Instruction]) -> list[Axis]:
    """The loops over the rows, whose place in all that is read and written has numbers for the outer dimensions only;
    those of inner ones follow no other."""
    rank = len(fusion.outer)
    written = [
        (root, tuple(range(rank if base(root).op is reduction.reduce else len(domain(root))))) for root in fusion.roots
    ]
    places = [*((x, place) for x, place, _ in walk(fusion.roots, stored)), *written]
    numbers = [*range(rank), *range(-rank - 2, -rank - 2 - max(len(domain(root)) for root in fusion.roots), -1)]
    return merged((), stored, fusion.outer, also=[(x, renumbered(place, numbers)) for x, place in places])


def _short_rows(
    low: Lowering,
    phases: Sequence[Sequence[Instruction]],
    fusion: Fusion,
    users: Users,
    axes: Sequence[Axis],
    longest: int,
) -> LoweredKernel:
    """A loop over the rows, each written out; cut as others are where what is read changes."""
    *others, inner = axes
    b = low.builder
    read = [x for root in fusion.roots if base(root).op is reduction.reduce for x in base(root).operands]
    read = [x for x in [*read, *fusion.roots] if not low.in_memory(x)]
    rows = math.prod(a.size for a in others)
    pieces = -(-inner.size * longest // CHUNK) if rows < 16 else 1
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        row, start, stop = piece_of(low, index, pieces, inner.size)
        indices = low.split_index(row, [a.size for a in others])
        parts = _uniform(inner, read, low.stored, longest * cost(fusion.roots, low.stored))
        for begin, end in parts:
            bounds = (b.most(start, begin), b.least(stop, end)) if len(parts) > 1 else (start, stop)
            with low.loop(*bounds) as (j, _):
                b.bound(j, begin, end - 1)
                outer = spread(axes, [*indices, j], len(fusion.outer))
                for root in (root for phase in phases for root in phase):
                    _write_out(low, root, outer, users)
    work = cost(fusion.roots, low.stored) * longest * -(-inner.size // pieces)
    return finished(low, rows * pieces, work, fusion.roots)


def _write_out(low: Lowering, root: Instruction, outer: Coordinates, users: Users) -> None:
    """All that a root has in a row."""
    x = base(root)
    is_reduction = x.op is reduction.reduce
    values = low.initial(x) if is_reduction else []
    for indices in product(*map(range, domain(root)[len(outer) :])):
        if is_reduction:
            values = low.accumulate(x, values, (*outer, *indices))
        else:
            low.define(root, (*outer, *indices))
    for part in results_of(root, users) if is_reduction else ():
        low.finish(part, outer, values[part.attributes.index if part is not x else 0])


def _order(root: Instruction, fusion: Fusion) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root of a row: of a reduction across, the outer ones are reduced."""
    rank = len(fusion.outer)
    if fusion.across is not None and root in fusion.across.roots:
        dims = list(range(len(domain(root))))
        return dims[:rank], dims[rank:]
    if fusion.kept is not None and len(domain(root)) != rank:
        return list(fusion.kept), [d for d in range(len(domain(root))) if d not in fusion.kept]
    return _inner_order(root, rank)


def _inner_order(root: Instruction, rank: int) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root's domain."""
    x = base(root)
    dims = range(len(domain(root)))
    if x.op is reduction.reduce:
        return [d for d in dims if d not in x.attributes.dimensions], list(x.attributes.dimensions)
    return list(dims[:rank]), list(dims[rank:])


def _phases(fusion: Fusion, stored: set[Instruction], users: Any) -> list[list[Instruction]]:
    """Loops over a row, one after the other, with the roots that share each.

    A root comes after the reductions it needs, and after what it reads at other places of the row. What finds where the
    largest element is goes over the row by itself, and last, so that it reads what the others kept.
    """
    members = {r: root for root in fusion.roots for r in results_of(root, users)}
    level: dict[Instruction, int] = {}
    groups: dict[tuple[int, int, tuple[int, ...]], list[Instruction]] = {}
    columns = fusion.across
    after = [] if columns is None else [r for r in columns.roots if r not in [*columns.reductions, *columns.along()]]
    for root in fusion.roots:
        if root in after:
            continue
        at = 0
        here = tuple(range(len(domain(root))))
        for x, place, _ in walk([root], stored):
            if x in members:
                needed = members[x]
                same = (
                    base(needed).op is not reduction.reduce
                    and len(place) == len(here)
                    and all(c in (-1, d) for d, c in enumerate(place))
                )
                at = max(at, level[needed] + (not same))
        level[root] = at
        inner = tuple(domain(root)[d] for d in _order(root, fusion)[1])
        alone = len(groups) + 1 if reductions.finds_place(base(root)) else 0
        groups.setdefault((at, alone, inner), []).append(root)
    return [groups[key] for key in sorted(groups, key=lambda key: key[:2])]


def _kept_rows(phases: list[list[Instruction]], fusion: Fusion, stored: set[Instruction]) -> set[Instruction]:
    """Costly intermediates of a row that several phases need, as far as they fit into the first cache. One that is read
    in other rows too is computed there."""
    rank = len(fusion.outer)
    if fusion.kept is not None:
        return set()
    local = normal(range(rank), fusion.outer)
    elsewhere = {x for phase in phases for x, place, _ in walk(phase, stored) if place[:rank] != local}
    first: dict[Instruction, int] = {}
    found: set[Instruction] = set()
    room = ROWS_LIMIT
    for k, phase in enumerate(phases):
        for x, place, from_memory in walk(phase, stored):
            whole = all(c in (-1, d) for d, c in enumerate(place))
            kept = is_costly(x) or x.op.name in QUOTIENTS
            if from_memory or not kept or not whole or x in found or x in elsewhere:
                continue
            sizes = x.array_shape.dimensions
            if sizes != domain(phase[0]) or sizes[:rank] != fusion.outer or len(place) == rank:
                continue
            size = math.prod(x.array_shape.dimensions[rank:])
            bytes_needed = size * x.array_shape.dtype.itemsize
            if first.setdefault(x, k) != k and size <= LARGEST_ROW and bytes_needed <= room:
                found.add(x)
                room -= bytes_needed
    return found


def _phase(
    low: Lowering,
    phase: list[Instruction],
    outer: Coordinates,
    fusion: Fusion,
    kept: set[Instruction],
    users: Any,
    sums: Sequence[Buffer] = (),
) -> None:
    """One loop over a row. In `sums` are the accumulators of the reductions across."""
    rank = len(fusion.outer)
    sizes = domain(phase[0])
    outer_dims, inner_dims = _order(phase[0], fusion)
    columns = fusion.across.reductions if fusion.across is not None else []
    borders = [d for d in range(1, len(sizes)) if (d in inner_dims) != (d - 1 in inner_dims)]
    axes = merged(phase, low.stored, sizes, apart=borders)
    axes = [a for a in axes if a.first in inner_dims]
    reduced = [root for root in phase if base(root).op is reduction.reduce and root not in columns]
    plain = [root for root in phase if base(root).op is not reduction.reduce]
    carried = [value for root in reduced for value in low.initial(base(root))]
    here = [x for x in kept if not low.is_kept(x) and strips.computed_in(x, phase, low.stored)]
    scratch = {
        x: low.builder.scratch(x.array_shape.element_type.name, math.prod(x.array_shape.dimensions[rank:]))
        for x in here
    }

    def place(indices: Coordinates) -> Coordinates:
        found = list(spread(axes, indices, len(sizes)))
        for d, c in zip(outer_dims, outer, strict=True):
            found[d] = c
        return tuple(found)

    def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
        coordinates = place(indices)
        for x, row in scratch.items():
            low.builder.store(
                row, low.linear(x.array_shape.dimensions[rank:], coordinates[rank:]), low.value(x, coordinates)
            )
        updated = reductions.each(low.accumulate, [base(root) for root in reduced], values, coordinates)
        for root in plain:
            low.define(root, coordinates)
        rest = list(sums)
        for root in columns:
            mine, rest = rest[: len(base(root).operands) // 2], rest[len(base(root).operands) // 2 :]
            if root in phase:
                j = low.linear(sizes[rank:], coordinates[rank:])
                values = low.accumulate(base(root), [low.builder.load(row, j) for row in mine], coordinates)
                for row, value in zip(mine, values, strict=True):
                    low.builder.store(row, j, value)
        return updated

    bounds: list[tuple[Index, Index]] = [(0, a.size) for a in axes]
    parts = [bounds[-1:]]
    if axes and not reduced:
        parts = [[part] for part in _uniform(axes[-1], phase, low.stored, cost(phase, low.stored))]
    results = carried
    with low.scope():
        found = None
        if len(phase) == len(reduced) == 1 and not scratch:
            found = reductions.argument(low, base(reduced[0]), bounds, carried, place)
        for part in parts:
            results = found or reductions.run(
                low, [base(root) for root in reduced], [*bounds[:-1], *part], results, body
            )
    for root in reduced:
        x = base(root)
        count = len(x.operands) // 2
        mine, results = results[:count], results[count:]
        for part in results_of(x, users):
            low.finish(part, outer, mine[part.attributes.index if part is not x else 0])
    low.complete(plain)
    for x, row in scratch.items():
        low.keep(x, partial(_in_row, low, row, x.array_shape.dimensions[rank:]))


def _in_row(low: Lowering, row: Buffer, sizes: Sequence[int], coordinates: Coordinates) -> tuple[Buffer, Index]:
    return row, low.linear(sizes, coordinates[len(coordinates) - len(sizes) :])


_KINDS: dict[str, Callable[[Fusion, Plan, Users], list[LoweredKernel]]] = {
    "loop": _loop,
    "parts": _parts,
    "row": _row,
    "column": column,
    "split": reductions.split,
}
