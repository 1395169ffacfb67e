"""Loop nests of reduce-window and select-and-scatter.

The elements of small windows are written out in the loop over a row of results (`_direct`). What a window selects is
found in the same way, and what comes to it is put there at once, window by window (`lower_select`). Large windows move
along one dimension (see the pass `canonicalize_windows`), around that over which vectors are. They are put together
from ends and beginnings of blocks as long as the window, in a part of the array that stays in the cache (`_blocked`).
Sums are only ever added up, never subtracted.
Source: M. van Herk, "A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels",
1992. Where windows are all beginnings of a line, as in a cumulative sum, its fold is the result.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tinyxla.backends.numba.axes import CHUNK, finished
from tinyxla.backends.numba.loops import INDEX, Index, Literal, Operand
from tinyxla.backends.numba.lowering import Coordinates, LoweredKernel, Lowering, Partial, Storage, Users, zero
from tinyxla.compiler.fusion import Plan, buffer_of, is_costly, is_of_scalars, results_of, supported
from tinyxla.compiler.windows import LANES, in_rows, is_large
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import reduction
from tinyxla.ops.windows import cumulative_direction
from tinyxla.shapes import Shape
from tinyxla.shapes.window import Window, WindowDimension

AREA = 1 << 12  # elements that are put together at once: twice as many stay in the cache
ROW = 1 << 10  # results
LINES = 4  # folded together, since one waits for its last element
FEW_LINES = 8  # fewer than this, and lines are cut

_STILL = WindowDimension(1)


class _Dimension(NamedTuple):
    """A dimension over which windows move, or several together over which they do not."""

    size: int  # of the operand
    positions: int  # of the window: the size of the result
    window: WindowDimension

    @property
    def places(self) -> int:
        """How many elements a window has in the array, at most."""
        return -(-self.window.size // self.window.base_dilation)

    @property
    def is_inside(self) -> bool:
        """Whether all windows are inside an array without holes."""
        w = self.window
        last = (self.positions - 1) * w.stride + (w.size - 1) * w.window_dilation - w.padding_low
        return w.base_dilation == 1 and w.padding_low <= 0 and last < self.size

    @property
    def is_touched(self) -> bool:
        """Whether the elements that are there and nearest to those of a window are its own."""
        w = self.window
        edges = w.padding_low < w.size and (self.positions - 1) * w.stride - w.padding_low < self.size
        return edges and (w.window_dilation, w.base_dilation) == (1, 1)


def _dimensions(sizes: Sequence[int], window: Window) -> list[_Dimension]:
    """With neighbours over which windows do not move as one."""
    found: list[_Dimension] = []
    for n, w in zip(sizes, window, strict=True):
        if w == _STILL and found and found[-1].window == _STILL:
            n *= found.pop().size
        if w != _STILL or n != 1:
            found.append(_Dimension(n, w.positions(n), w))
    return found or [_Dimension(1, 1, _STILL)]


def _looped(x: Instruction) -> list[int]:
    """The dimensions that do not only have one element."""
    along = zip(x.operands[0].array_shape.dimensions, x.attributes.window, strict=True)
    return [d for d, (n, w) in enumerate(along) if n != 1 or w != _STILL]


def _sizes(dimensions: Sequence[_Dimension]) -> list[int]:
    return [d.size for d in dimensions]


def _counts(dimensions: Sequence[_Dimension]) -> list[int]:
    return [d.positions for d in dimensions]


def _load(low: Lowering, x: Storage, sizes: Sequence[int], place: Sequence[Index]) -> Operand:
    """An element of memory, seen as an array of these sizes."""
    return low.builder.load(low.buffer(x), low.linear(sizes, place))


def _store(low: Lowering, x: Storage, sizes: Sequence[int], place: Sequence[Index], value: Operand) -> None:
    low.builder.store(low.buffer(x, True), low.linear(sizes, place), value)


def _ceiling(low: Lowering, value: Index, step: int) -> Index:
    """value / step, rounded up, and at least 0."""
    b = low.builder
    return b.index("divide", b.index("maximum", b.index("add", value, step - 1), 0), step)


def _compare(low: Lowering, x: Index, y: Index, direction: str) -> Operand:
    left, right = (Literal(INDEX, v) if isinstance(v, int) else v for v in (x, y))
    return low.builder.compute("compare", "pred", left, right, direction=direction, compare_type="SIGNED")


def _select(low: Lowering, condition: Operand, x: Operand, y: Operand) -> Operand:
    return low.builder.compute("select", x.type, condition, x, y)


class _Fold(NamedTuple):
    """What all kernels of one instruction need."""

    x: Instruction
    plan: Plan
    users: Users

    @property
    def computation(self) -> Computation:
        return self.x.attributes.to_apply

    @property
    def arrays(self) -> list[Storage]:
        return [buffer_of(o) for o in self.x.operands[: len(self.x.operands) // 2]]

    def lowering(self, name: str, more: Sequence[Instruction] = ()) -> Lowering:
        return Lowering(name, self.plan, [*results_of(self.x, self.users), *more])

    def partials(self, sizes: Sequence[int]) -> list[Storage]:
        types = [o.array_shape.element_type for o in self.x.operands[: len(self.x.operands) // 2]]
        return [Partial(Shape(t, tuple(sizes))) for t in types]

    def results(self, sizes: Sequence[int]) -> list[Storage]:
        """Where the results go; one that nobody takes needs memory all the same."""
        taken = {r.attributes.index if r is not self.x else 0: r for r in results_of(self.x, self.users)}
        return [taken.get(k, partial) for k, partial in enumerate(self.partials(sizes))]

    def apply(self, low: Lowering, left: Sequence[Operand], right: Sequence[Operand]) -> list[Operand]:
        return low.apply(self.computation, [*left, *right])


# --- windows that are gone through ------------------------------------------------------------------------------------

_Elements = list[tuple[Index, Operand | None]]  # of a window, each with whether it is there; None if it always is


def _elements(low: Lowering, d: _Dimension, o: Index, is_inside: bool = False, again: bool = False) -> _Elements:
    """The elements of the o-th window, which may be known to be inside; in the place of one that is not there, another
    may come `again`."""
    b, w, apart = low.builder, d.window, d.window.base_dilation
    if w == _STILL:
        return [(o, None)]
    first = b.index("subtract", b.index("multiply", o, w.stride), w.padding_low)
    if is_inside or d.is_inside:
        return [(b.index("add", first, k * w.window_dilation), None) for k in range(w.size)]
    if again and d.is_touched:
        places = (b.index("maximum", b.index("add", first, k), 0) for k in range(w.size))
        return [(b.index("minimum", place, d.size - 1), None) for place in places]
    before = -(-max(w.padding_low, 0) // apart)  # elements by which indices are moved, so that none is negative
    moved = b.index("add", first, before * apart)
    found: _Elements = []
    for k in range(d.places if w.window_dilation == 1 else w.size):
        if w.window_dilation == 1:
            index = b.index("add", b.index("divide", b.index("add", moved, apart - 1), apart), k)
            there = _compare(low, b.index("multiply", index, apart), b.index("add", moved, w.size), "LT")
        else:
            place = b.index("add", moved, k * w.window_dilation)
            index, there = b.index("divide", place, apart), _compare(low, b.index("remainder", place, apart), 0, "EQ")
        for limit, direction in ((before, "GE"), (before + d.size, "LT")):
            there = b.compute("and", "pred", there, _compare(low, index, limit, direction))
        index = b.index("minimum", b.index("subtract", b.index("maximum", index, before), before), d.size - 1)
        found.append((index, there))
    return found


def _together(low: Lowering, places: Sequence[tuple[Index, Operand | None]], *further: Operand) -> Operand | None:
    """Whether all of these hold, if there are any."""
    conditions = [*further, *(there for _, there in places if there is not None)]
    return functools.reduce(lambda p, q: low.builder.compute("and", "pred", p, q), conditions) if conditions else None


def _direct(fold: _Fold, dimensions: list[_Dimension], sources: list[Storage]) -> LoweredKernel:
    """The elements of a window one after the other, in the loop over a row of results: where windows are inside, and
    for those at the edges of the innermost dimension."""
    after, counts, (*outer, last) = fold.plan.after.get(fold.x), _counts(dimensions), dimensions
    roots = [fold.x, *(after.roots if after is not None else [])]
    low, targets = fold.lowering("windows", roots[1:]), fold.results(counts)
    b, sizes, w = low.builder, _sizes(dimensions), last.window
    again = reduction.monoid(fold.computation) in ("maximum", "minimum", "and", "or")
    width, blocks = min(last.positions, ROW), -(-last.positions // ROW)
    low_edge, high_edge = 0, last.positions
    if w.base_dilation > 1:
        high_edge = 0
    elif w != _STILL and not last.is_inside:
        reach = last.size - 1 - (w.size - 1) * w.window_dilation + w.padding_low
        low_edge = min(max(0, -(-w.padding_low // w.stride)), high_edge)
        high_edge = max(low_edge, min(reach // w.stride + 1, high_edge))
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin = b.index("multiply", b.index("remainder", index, blocks), ROW)
        end = b.index("minimum", b.index("add", begin, ROW), last.positions) if blocks > 1 else last.positions
        result = low.split_index(b.index("divide", index, blocks), _counts(outer))
        around = [_elements(low, d, o, again=again) for d, o in zip(outer, result, strict=True)]
        initial = low.initial(fold.x)

        def results(start: Index, stop: Index, is_inside: bool) -> None:
            with low.loop(start, stop) as (o, _):
                values = initial
                for places in itertools.product(*around, _elements(low, last, o, is_inside, again)):
                    elements = [_load(low, a, sizes, [i for i, _ in places]) for a in sources]
                    found, there = fold.apply(low, values, elements), _together(low, places)
                    if there is not None:
                        found = [_select(low, there, x, y) for x, y in zip(found, values, strict=True)]
                    values = found
                if after is not None:
                    place = dict(zip(_looped(fold.x), (*result, o), strict=True))
                    whole = tuple(place.get(d, 0) for d in range(fold.x.array_shape.rank))
                    low.know(fold.x, whole, values[0])
                    for root in after.roots:
                        low.define(root, whole)
                    return
                for target, value in zip(targets, values, strict=True):
                    _store(low, target, counts, (*result, o), value)

        if low_edge < high_edge:
            results(b.index("maximum", begin, low_edge), b.index("minimum", end, high_edge), True)
        if low_edge > 0 or high_edge < last.positions:
            with low.loop(0, 2, sequential=True) as (side, _):
                first, second = b.index("minimum", end, low_edge), b.index("maximum", begin, high_edge)
                start = b.index("add", begin, b.index("multiply", side, b.index("subtract", second, begin)))
                stop = b.index("add", first, b.index("multiply", side, b.index("subtract", end, first)))
                results(start, stop, False)
    work = width * math.prod(d.places for d in dimensions)
    return finished(low, math.prod(_counts(outer)) * blocks, work, roots)


# --- large windows, one dimension after the other ---------------------------------------------------------------------


class _Line(NamedTuple):
    """Arrays seen as lines along one dimension: `outer` and `inner` are the sizes around it."""

    outer: int
    along: _Dimension
    inner: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.outer, self.along.size, self.inner

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.outer, self.along.positions, self.inner


def _large(fold: _Fold, dimensions: list[_Dimension]) -> list[LoweredKernel]:
    """Windows that move along one dimension only."""
    (d,) = (d for d, found in enumerate(dimensions) if found.window != _STILL)
    line = _Line(math.prod(_sizes(dimensions[:d])), dimensions[d], math.prod(_sizes(dimensions[d + 1 :])))
    targets, n = fold.results(line.counts), line.along.size
    direction = cumulative_direction(line.along.window, n)
    if not direction:
        return [_blocked(fold, line, targets)]
    if direction == "backward" and reduction.monoid(fold.computation) is None:  # the initial value comes first
        ends, still = fold.partials(line.sizes), [_Dimension(math.prod(line.sizes), math.prod(line.sizes), _STILL)]
        return [_scan(fold, line, fold.arrays, ends, n, True, False), _direct(fold, still, ends)]
    lines = line.outer * -(-line.inner // ROW)
    if n * min(line.inner, ROW) < FEW_LINES * CHUNK or lines >= FEW_LINES:
        return [_scan(fold, line, fold.arrays, targets, n, direction == "backward", True)]
    return _cut_scan(fold, line, fold.arrays, targets, direction == "backward")


def _blocked(fold: _Fold, line: _Line, targets: list[Storage]) -> LoweredKernel:
    """Windows of many columns, each from the end of the block in which it starts and the beginning of the next one."""
    low = fold.lowering("windows")
    b, (n, count, w) = low.builder, line.along
    width = min(line.inner, max(1, AREA // w.size // LANES) * LANES)
    blocks, columns = (count - 1) * w.stride // w.size + 1, -(-line.inner // width)
    ends, beginnings = (b.scratch(fold.x.array_shape.element_type.name, (w.size + 1) * width) for _ in range(2))
    (neutral,) = low.neutral(fold.x)

    def scratch_at(row: Index, j: Index) -> Index:
        return b.index("add", b.index("multiply", row, width), j)

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        outer, block, column = low.split_index(index, (line.outer, blocks, columns))
        left, first = b.index("multiply", column, width), b.index("multiply", block, w.size)
        wide = b.index("minimum", b.index("subtract", line.inner, left), width)

        def element(row: Index, j: Index) -> Operand:
            """Of the elements from the block's first on."""
            place = b.index("subtract", b.index("add", first, row), w.padding_low)
            inside = b.compute("and", "pred", _compare(low, place, 0, "GE"), _compare(low, place, n, "LT"))
            place = b.index("minimum", b.index("maximum", place, 0), n - 1)
            value = _load(low, fold.arrays[0], line.sizes, (outer, place, b.index("add", left, j)))
            return _select(low, inside, value, neutral)

        with low.loop(0, wide) as (j, _):
            b.store(ends, scratch_at(w.size, j), neutral)
            b.store(beginnings, j, neutral)
        with low.loop(0, w.size, sequential=True) as (k, _), low.loop(0, wide) as (j, _):
            row = b.index("subtract", w.size - 1, k)
            before = b.load(ends, scratch_at(b.index("add", row, 1), j))
            b.store(ends, scratch_at(row, j), *fold.apply(low, [element(row, j)], [before]))
            before, value = b.load(beginnings, scratch_at(k, j)), element(b.index("add", k, w.size), j)
            b.store(beginnings, scratch_at(b.index("add", k, 1), j), *fold.apply(low, [before], [value]))
        start = _ceiling(low, first, w.stride)
        stop = b.index("minimum", _ceiling(low, b.index("add", first, w.size), w.stride), count)
        with low.loop(start, stop, sequential=True) as (o, _), low.loop(0, wide) as (j, _):
            at = scratch_at(b.index("subtract", b.index("multiply", o, w.stride), first), j)
            found = fold.apply(low, [b.load(ends, at)], [b.load(beginnings, at)])
            found = fold.apply(low, low.initial(fold.x), found)
            _store(low, targets[0], line.counts, (outer, o, b.index("add", left, j)), found[0])
    return finished(low, line.outer * blocks * columns, 3 * w.size * width, [fold.x])


def _scan(
    fold: _Fold,
    line: _Line,
    sources: Sequence[Storage],
    targets: Sequence[Storage],
    block: int,
    backward: bool,
    from_initial: bool,
) -> LoweredKernel:
    """The folds of all beginnings of blocks of each line, or of all ends: for many columns in turn, a row of which is
    vectorised. Where there are no columns and the computation is costly, blocks or lines are gone through as if they
    were columns."""
    low = fold.lowering("scan")
    b = low.builder
    n, inner = line.along.size, line.inner
    blocks = -(-n // block)
    side_by_side = inner == 1 and any(map(is_costly, fold.computation.instructions))
    count, width = (inner, ROW) if not side_by_side else (blocks if blocks > 1 else line.outer, LANES)
    columns = -(-count // width)
    apart = 1 if inner > 1 or side_by_side else min(LINES, line.outer)  # lines of which each element waits for the last
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin = b.index("multiply", b.index("remainder", index, columns), width)
        index = b.index("divide", index, columns)
        end = b.index("minimum", b.index("add", begin, width), count) if columns > 1 else count
        own = 0 if side_by_side else b.index("remainder", index, blocks)
        group = b.index("multiply", index if side_by_side else b.index("divide", index, blocks), apart)
        lines = [b.index("minimum", b.index("add", group, k), line.outer - 1) for k in range(apart)]
        start = [low.value(o, ()) for o in fold.x.operands[len(fold.x.operands) // 2 :]] if from_initial else []

        def at(block_number: Index, t: Index) -> Index:
            """The element that comes after t others of its block."""
            first = b.index("multiply", block_number, block)
            if not backward:
                return b.index("add", first, t)
            return b.index("subtract", b.index("subtract", b.index("minimum", b.index("add", first, block), n), 1), t)

        def place(j: Index, t: Index) -> Coordinates:
            if not side_by_side:
                return lines[0], at(own, t), j
            return (lines[0], at(j, t), 0) if blocks > 1 else (j, at(0, t), 0)

        def load(storages: Sequence[Storage], place: Coordinates) -> list[Operand]:
            return [_load(low, s, line.sizes, place) for s in storages]

        def store(place: Coordinates, values: Sequence[Operand]) -> None:
            for target, value in zip(targets, values, strict=True):
                _store(low, target, line.sizes, place, value)

        def step(values: Sequence[Operand], elements: Sequence[Operand]) -> list[Operand]:
            return fold.apply(low, elements, values) if backward else fold.apply(low, values, elements)

        def begun(place: Coordinates) -> list[Operand]:
            elements = load(sources, place)
            return fold.apply(low, start, elements) if start else elements

        for target in targets:
            low.buffer(target, True)  # which is read, too
        rest = b.index("subtract", n, b.index("multiply", own, block))
        length = min(block, n) if side_by_side else b.index("minimum", block, rest)
        if inner > 1 or side_by_side:
            with low.loop(begin, end) as (j, _):
                store(place(j, 0), begun(place(j, 0)))
            with low.loop(1, length, sequential=True) as (t, _):
                long = _ceiling(low, b.index("subtract", n, t), block)  # so many blocks have more than t elements
                stop = b.index("minimum", end, long) if side_by_side and blocks > 1 else end
                with low.loop(begin, stop) as (j, _):
                    before = b.index("subtract", t, 1)
                    store(place(j, t), step(load(targets, place(j, before)), load(sources, place(j, t))))
        else:
            operands = len(sources)
            values = [v for p in lines for v in begun((p, at(own, 0), 0))]
            for k, p in enumerate(lines):
                store((p, at(own, 0), 0), values[k * operands : (k + 1) * operands])

            def element(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
                i = at(own, indices[0])
                updated: list[Operand] = []
                for k, p in enumerate(lines):
                    new = step(carried[k * operands : (k + 1) * operands], load(sources, (p, i, 0)))
                    store((p, i, 0), new)
                    updated += new
                return updated

            low.nest([(1, length)], values, element, sequential=True)
    if side_by_side:
        extent, work = (line.outer if blocks > 1 else 1) * columns, min(count, width)
    else:
        extent, work = -(-line.outer // apart) * blocks * columns, min(inner, ROW) * apart
    return finished(low, extent, min(block, n) * work, [fold.x])


def _cut_scan(
    fold: _Fold, line: _Line, sources: list[Storage], targets: list[Storage], backward: bool
) -> list[LoweredKernel]:
    """A scan of few long lines: that of pieces, then what comes before each piece, and both together."""
    n = line.along.size
    piece = max(1, CHUNK // min(line.inner, ROW))
    pieces = -(-n // piece)
    local, before = fold.partials(line.sizes), fold.partials((line.outer, pieces, line.inner))
    low = fold.lowering("before")
    b = low.builder
    for storage in before:
        low.buffer(storage, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        outer, j = b.index("divide", index, line.inner), b.index("remainder", index, line.inner)
        start = [low.value(o, ()) for o in fold.x.operands[len(fold.x.operands) // 2 :]]

        def visit(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            p = b.index("subtract", pieces - 1, indices[0]) if backward else indices[0]
            for storage, value in zip(before, values, strict=True):
                _store(low, storage, (line.outer, pieces, line.inner), (outer, p, j), value)
            at = b.index("multiply", p, piece)
            if not backward:
                at = b.index("subtract", b.index("minimum", b.index("add", at, piece), n), 1)
            total = [_load(low, s, line.sizes, (outer, at, j)) for s in local]
            return fold.apply(low, total, values) if backward else fold.apply(low, values, total)

        low.nest([(0, pieces)], start, visit, sequential=True)
    collected = finished(low, line.outer * line.inner, pieces, [fold.x])
    low = fold.lowering("after")
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        outer, p = b.index("divide", index, pieces), b.index("remainder", index, pieces)
        first = b.index("multiply", p, piece)
        with (
            low.loop(first, b.index("minimum", b.index("add", first, piece), n)) as (i, _),
            low.loop(0, line.inner) as (j, _),
        ):
            begun = [_load(low, s, (line.outer, pieces, line.inner), (outer, p, j)) for s in before]
            here = [_load(low, s, line.sizes, (outer, i, j)) for s in local]
            both = fold.apply(low, here, begun) if backward else fold.apply(low, begun, here)
            for target, value in zip(targets, both, strict=True):
                _store(low, target, line.sizes, (outer, i, j), value)
    joined = finished(low, line.outer * pieces, piece * line.inner, [fold.x])
    return [_scan(fold, line, sources, local, piece, backward, False), collected, joined]


# --- reduce-window ----------------------------------------------------------------------------------------------------


def supports_reduce(x: Instruction) -> bool:
    return is_of_scalars(x.attributes.to_apply) and all(supported(o.array_shape) for o in x.operands)


def lower_reduce(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    fold, sizes, window = _Fold(x, plan, users), x.operands[0].array_shape.dimensions, x.attributes.window
    dimensions = _dimensions(sizes, window)
    if 0 in _counts(dimensions):
        return []
    if is_large(window, sizes) and 0 not in sizes:
        return _large(fold, _dimensions(*in_rows(sizes, window)))
    if x in plan.after:
        dimensions = [_Dimension(sizes[d], window[d].positions(sizes[d]), window[d]) for d in _looped(x)]
    return [_direct(fold, dimensions, fold.arrays)]


# --- select-and-scatter -----------------------------------------------------------------------------------------------


def supports_select(x: Instruction) -> bool:
    computations = x.attributes.select, x.attributes.scatter
    return all(map(is_of_scalars, computations)) and all(supported(o.array_shape) for o in x.operands)


def lower_select(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Window by window: which of its elements is selected, and to that one what the window brings. Windows that meet
    are gone through by one thread, after it has filled what they are in with the initial value."""
    shape, low = x.array_shape, Lowering("select", plan, [x])
    if not shape.size:
        return []
    b, (operand, source, _) = low.builder, map(buffer_of, x.operands)
    dimensions = _dimensions(shape.dimensions, x.attributes.window)
    *outer, last = dimensions
    sizes, counts = _sizes(dimensions), _counts(dimensions)
    is_tiled = all(d.is_inside and d.window.size == d.window.stride for d in dimensions)
    is_tiled = is_tiled and all(d.positions * d.window.stride == d.size for d in dimensions)
    apart = len(outer) if is_tiled else int(dimensions[0].window == _STILL and len(dimensions) > 1 and 0 not in counts)
    none = Literal("s32", -1)
    in_passes = last.window != _STILL and not (last.is_inside and last.window.size <= last.window.stride)
    width = max(1, min(last.positions, ROW))
    row = b.scratch("s32", width if in_passes else 1)
    low.buffer(x, True)

    def chosen_at(elements: Sequence[_Elements]) -> Operand:
        """The number of the element that is selected."""
        best: Operand = zero(shape.with_dimensions(()))
        found: Operand = none
        for k, places in enumerate(itertools.product(*elements)):
            element = _load(low, operand, sizes, [i for i, _ in places])
            better = b.compute("not", "pred", low.apply(x.attributes.select, [best, element])[0])
            is_first = b.compute("compare", "pred", found, none, direction="EQ", compare_type="SIGNED")
            take = _together(low, places, *([b.compute("or", "pred", is_first, better)] if k else []))
            best = element if take is None else _select(low, take, element, best)
            found = Literal("s32", k) if take is None else _select(low, take, Literal("s32", k), found)
        return found

    def put(k: int, chosen: Operand, place: Coordinates, result: Coordinates) -> None:
        """What comes to the k-th element of a window."""
        old = initial if is_tiled else _load(low, x, sizes, place)
        (new,) = low.apply(x.attributes.scatter, [old, _load(low, source, counts, result)])
        hit = b.compute("compare", "pred", chosen, Literal("s32", k), direction="EQ", compare_type="SIGNED")
        _store(low, x, sizes, place, _select(low, hit, new, old))

    def line(result: Coordinates) -> None:
        """A line of windows, at once or for each of their elements."""
        around = [_elements(low, d, o) for d, o in zip(outer, result, strict=True)]
        if not in_passes:
            with low.loop(0, last.positions) as (o, _):
                elements = [*around, _elements(low, last, o)]
                chosen = chosen_at(elements)
                for k, places in enumerate(itertools.product(*elements)):
                    put(k, chosen, tuple(i for i, _ in places), (*result, o))
            return
        with low.loop(0, -(-last.positions // width), sequential=True) as (block, _):
            begin = b.index("multiply", block, width)
            end = b.index("minimum", b.index("add", begin, width), last.positions)
            with low.loop(begin, end) as (o, _):
                b.store(row, b.index("subtract", o, begin), chosen_at([*around, _elements(low, last, o)]))
            w = last.window
            for k, (places, inner) in enumerate(itertools.product(itertools.product(*around), range(w.size))):
                before = w.padding_low - inner
                start, stop = max(0, -(-before // w.stride)), max(0, (last.size - 1 + before) // w.stride + 1)
                with low.loop(b.index("maximum", begin, start), b.index("minimum", end, stop)) as (o, _):
                    at = b.index("subtract", b.index("multiply", o, w.stride), before)
                    chosen = b.load(row, b.index("subtract", o, begin))
                    put(k, chosen, (*(i for i, _ in places), at), (*result, o))

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        initial = low.value(x.operands[2], ())
        head, inside = low.split_index(index, counts[:apart]), math.prod(sizes[apart:])
        if not is_tiled:
            first = b.index("multiply", low.linear(counts[:apart], head), inside)
            with low.loop(0, inside) as (i, _):
                _store(low, x, [shape.size], [b.index("add", first, i)], initial)
        bounds: list[tuple[Index, Index]] = [(0, n) for n in counts[apart:-1]]
        low.nest(bounds, (), lambda more, _: line((*head, *more)) or (), sequential=True)
    work = math.prod(counts[apart:]) * math.prod(d.places for d in dimensions) * 4
    return [finished(low, math.prod(counts[:apart]), work, [x])]
