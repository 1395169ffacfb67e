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

from tinyxla.compiler.analysis.fusibility import is_native_type, is_scalar_computation
from tinyxla.compiler.fusion.plan import Plan, buffer_of
from tinyxla.compiler.passes.canonicalize.reduce_window import MIN_VECTOR_COLUMNS, is_large, undilate
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Literal, Operand
from tinyxla.loopir.kernels.windows.scan import lower_scan
from tinyxla.loopir.kernels.windows.window_reduction import STILL, Dimension, Fold, Line, load, store
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Storage, Users, zero
from tinyxla.ops import reduction
from tinyxla.ops.window_doubling import cumulative_direction
from tinyxla.shapes.window import Window

AREA = 1 << 12  # elements that are put together at once: twice as many stay in the cache
ROW = 1 << 10  # results


def _dimensions(sizes: Sequence[int], window: Window) -> list[Dimension]:
    """With neighbours over which windows do not move as one."""
    found: list[Dimension] = []
    for n, w in zip(sizes, window, strict=True):
        if w == STILL and found and found[-1].window == STILL:
            n *= found.pop().size
        if w != STILL or n != 1:
            found.append(Dimension(n, w.positions(n), w))
    return found or [Dimension(1, 1, STILL)]


def _looped(x: Instruction) -> list[int]:
    """The dimensions that do not only have one element."""
    along = zip(x.operands[0].array_shape.dimensions, x.attributes.window, strict=True)
    return [d for d, (n, w) in enumerate(along) if n != 1 or w != STILL]


def _sizes(dimensions: Sequence[Dimension]) -> list[int]:
    return [d.size for d in dimensions]


def _counts(dimensions: Sequence[Dimension]) -> list[int]:
    return [d.positions for d in dimensions]


def _ceiling(low: Lowering, value: Index, step: int) -> Index:
    """value / step, rounded up, and at least 0."""
    b = low.builder
    return b.floordiv(b.max(b.add(value, step - 1), 0), step)


# --- windows that are gone through ------------------------------------------------------------------------------------

_Elements = list[tuple[Index, Operand | None]]  # of a window, each with whether it is there; None if it always is


def _elements(low: Lowering, d: Dimension, o: Index, is_inside: bool = False, again: bool = False) -> _Elements:
    """The elements of the o-th window, which may be known to be inside; in the place of one that is not there, another
    may come `again`."""
    b, w, apart = low.builder, d.window, d.window.base_dilation
    if w == STILL:
        return [(o, None)]
    first = b.sub(b.mul(o, w.stride), w.padding_low)
    if is_inside or d.is_inside:
        return [(b.add(first, k * w.window_dilation), None) for k in range(w.size)]
    if again and d.is_touched:
        places = (b.max(b.add(first, k), 0) for k in range(w.size))
        return [(b.min(place, d.size - 1), None) for place in places]
    before = -(-max(w.padding_low, 0) // apart)  # elements by which indices are moved, so that none is negative
    moved = b.add(first, before * apart)
    found: _Elements = []
    for k in range(d.places if w.window_dilation == 1 else w.size):
        if w.window_dilation == 1:
            index = b.add(b.ceil_div(moved, apart), k)
            there = b.compare("LT", b.mul(index, apart), b.add(moved, w.size))
        else:
            place = b.add(moved, k * w.window_dilation)
            index, there = b.floordiv(place, apart), b.compare("EQ", b.remainder(place, apart), 0)
        for limit, direction in ((before, "GE"), (before + d.size, "LT")):
            there = b.and_(there, b.compare(direction, index, limit))
        index = b.min(b.sub(b.max(index, before), before), d.size - 1)
        found.append((index, there))
    return found


def _together(low: Lowering, places: Sequence[tuple[Index, Operand | None]], *further: Operand) -> Operand | None:
    """Whether all of these hold, if there are any."""
    conditions = [*further, *(there for _, there in places if there is not None)]
    return functools.reduce(low.builder.and_, conditions) if conditions else None


def _direct(fold: Fold, dimensions: list[Dimension], sources: list[Storage]) -> LoweredKernel:
    """The elements of a window one after the other, in the loop over a row of results: where windows are inside, and
    for those at the edges of the innermost dimension."""
    after, counts, (*outer, last) = fold.plan.epilogues.get(fold.x), _counts(dimensions), dimensions
    roots = [fold.x, *(after.roots if after is not None else [])]
    low, targets = fold.lowering("windows", roots[1:]), fold.results(counts)
    b, sizes, w = low.builder, _sizes(dimensions), last.window
    again = reduction.monoid(fold.computation) in ("maximum", "minimum", "and", "or")
    width, blocks = min(last.positions, ROW), -(-last.positions // ROW)
    low_edge, high_edge = 0, last.positions
    if w.base_dilation > 1:
        high_edge = 0
    elif w != STILL and not last.is_inside:
        reach = last.size - 1 - (w.size - 1) * w.window_dilation + w.padding_low
        low_edge = min(max(0, -(-w.padding_low // w.stride)), high_edge)
        high_edge = max(low_edge, min(reach // w.stride + 1, high_edge))
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, end = b.tile_range(b.remainder(index, blocks), ROW, last.positions)
        result = low.split_index(b.floordiv(index, blocks), _counts(outer))
        around = [_elements(low, d, o, again=again) for d, o in zip(outer, result, strict=True)]
        initial = low.initial(fold.x)

        def results(start: Index, stop: Index, is_inside: bool) -> None:
            with low.loop(start, stop) as (o, _):
                values = initial
                for places in itertools.product(*around, _elements(low, last, o, is_inside, again)):
                    elements = [load(low, a, sizes, [i for i, _ in places]) for a in sources]
                    found, there = fold.apply(low, values, elements), _together(low, places)
                    if there is not None:
                        found = [b.select(there, x, y) for x, y in zip(found, values, strict=True)]
                    values = found
                if after is not None:
                    place = dict(zip(_looped(fold.x), (*result, o), strict=True))
                    whole = tuple(place.get(d, 0) for d in range(fold.x.array_shape.rank))
                    low.bind_value(fold.x, whole, values[0])
                    for root in after.roots:
                        low.emit_root(root, whole)
                    return
                for target, value in zip(targets, values, strict=True):
                    store(low, target, counts, (*result, o), value)

        if low_edge < high_edge:
            results(b.max(begin, low_edge), b.min(end, high_edge), True)
        if low_edge > 0 or high_edge < last.positions:
            with low.loop(0, 2, sequential=True) as (side, _):
                first, second = b.min(end, low_edge), b.max(begin, high_edge)
                start = b.add(begin, b.mul(side, b.sub(second, begin)))
                stop = b.add(first, b.mul(side, b.sub(end, first)))
                results(start, stop, False)
    work = width * math.prod(d.places for d in dimensions)
    return make_kernel(low, math.prod(_counts(outer)) * blocks, work, roots)


# --- large windows, one dimension after the other ---------------------------------------------------------------------


def _large(fold: Fold, dimensions: list[Dimension]) -> list[LoweredKernel]:
    """Windows that move along one dimension only."""
    (d,) = (d for d, found in enumerate(dimensions) if found.window != STILL)
    line = Line(math.prod(_sizes(dimensions[:d])), dimensions[d], math.prod(_sizes(dimensions[d + 1 :])))
    targets = fold.results(line.counts)
    direction = cumulative_direction(line.along.window, line.along.size)
    if not direction:
        return [_blocked(fold, line, targets)]
    return lower_scan(fold, line, targets, direction == "backward")


def _blocked(fold: Fold, line: Line, targets: list[Storage]) -> LoweredKernel:
    """Windows of many columns, each from the end of the block in which it starts and the beginning of the next one."""
    low = fold.lowering("windows")
    b, (n, count, w) = low.builder, line.along
    width = min(line.inner, max(1, AREA // w.size // MIN_VECTOR_COLUMNS) * MIN_VECTOR_COLUMNS)
    blocks, columns = (count - 1) * w.stride // w.size + 1, -(-line.inner // width)
    ends, beginnings = (b.scratch(fold.x.array_shape.element_type.name, (w.size + 1) * width) for _ in range(2))
    (neutral,) = low.identity(fold.x)

    def scratch_at(row: Index, j: Index) -> Index:
        return b.add(b.mul(row, width), j)

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        outer, block, column = low.split_index(index, (line.outer, blocks, columns))
        left, first = b.mul(column, width), b.mul(block, w.size)
        wide = b.min(b.sub(line.inner, left), width)

        def element(row: Index, j: Index) -> Operand:
            """Of the elements from the block's first on."""
            place = b.sub(b.add(first, row), w.padding_low)
            inside = b.and_(b.compare("GE", place, 0), b.compare("LT", place, n))
            place = b.min(b.max(place, 0), n - 1)
            value = load(low, fold.arrays[0], line.sizes, (outer, place, b.add(left, j)))
            return b.select(inside, value, neutral)

        with low.loop(0, wide) as (j, _):
            b.store(ends, scratch_at(w.size, j), neutral)
            b.store(beginnings, j, neutral)
        with low.loop(0, w.size, sequential=True) as (k, _), low.loop(0, wide) as (j, _):
            row = b.sub(w.size - 1, k)
            before = b.load(ends, scratch_at(b.add(row, 1), j))
            b.store(ends, scratch_at(row, j), *fold.apply(low, [element(row, j)], [before]))
            before, value = b.load(beginnings, scratch_at(k, j)), element(b.add(k, w.size), j)
            b.store(beginnings, scratch_at(b.add(k, 1), j), *fold.apply(low, [before], [value]))
        start = _ceiling(low, first, w.stride)
        stop = b.min(_ceiling(low, b.add(first, w.size), w.stride), count)
        with low.loop(start, stop, sequential=True) as (o, _), low.loop(0, wide) as (j, _):
            at = scratch_at(b.sub(b.mul(o, w.stride), first), j)
            found = fold.apply(low, [b.load(ends, at)], [b.load(beginnings, at)])
            found = fold.apply(low, low.initial(fold.x), found)
            store(low, targets[0], line.counts, (outer, o, b.add(left, j)), found[0])
    return make_kernel(low, line.outer * blocks * columns, 3 * w.size * width, [fold.x])


# --- reduce-window ----------------------------------------------------------------------------------------------------


def supports_reduce(x: Instruction) -> bool:
    return is_scalar_computation(x.attributes.to_apply) and all(is_native_type(o.array_shape) for o in x.operands)


def lower_reduce(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    fold, sizes, window = Fold(x, plan, users), x.operands[0].array_shape.dimensions, x.attributes.window
    dimensions = _dimensions(sizes, window)
    if 0 in _counts(dimensions):
        return []
    if is_large(window, sizes) and 0 not in sizes:
        return _large(fold, _dimensions(*undilate(sizes, window)))
    if x in plan.epilogues:
        dimensions = [Dimension(sizes[d], window[d].positions(sizes[d]), window[d]) for d in _looped(x)]
    return [_direct(fold, dimensions, fold.arrays)]


# --- select-and-scatter -----------------------------------------------------------------------------------------------


def supports_select(x: Instruction) -> bool:
    computations = x.attributes.select, x.attributes.scatter
    return all(map(is_scalar_computation, computations)) and all(is_native_type(o.array_shape) for o in x.operands)


def lower_select(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Window by window: which of its elements is selected, and to that one what the window brings. Windows that meet
    are gone through by one thread, after it has filled what they are in with the initial value."""
    if not x.array_shape.size:
        return []
    low, dimensions = Lowering("select", plan, [x]), _dimensions(x.array_shape.dimensions, x.attributes.window)
    return [_Selection(low, x, dimensions).kernel()]


class _Selection:
    """The kernel of a select-and-scatter."""

    def __init__(self, low: Lowering, x: Instruction, dimensions: list[Dimension]) -> None:
        self.low, self.x = low, x
        self.operand, self.source, _ = map(buffer_of, x.operands)
        *self.outer, self.last = self.dimensions = dimensions
        self.sizes, self.counts = _sizes(dimensions), _counts(dimensions)
        is_tiled = all(d.is_inside and d.window.size == d.window.stride for d in dimensions)
        self.is_tiled = is_tiled and all(d.positions * d.window.stride == d.size for d in dimensions)
        w = self.last.window
        self.in_passes = w != STILL and not (self.last.is_inside and w.size <= w.stride)
        self.width = max(1, min(self.last.positions, ROW))
        self.row = low.builder.scratch("s32", self.width if self.in_passes else 1)  # what is chosen in these windows
        low.buffer(x, True)

    def kernel(self) -> LoweredKernel:
        low, b, x, outer, counts = self.low, self.low.builder, self.x, self.outer, self.counts
        is_apart = self.dimensions[0].window == STILL and len(outer) > 0 and 0 not in counts
        apart = len(outer) if self.is_tiled else int(is_apart)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            initial = low.value(x.operands[2], ())
            head, inside = low.split_index(index, counts[:apart]), math.prod(self.sizes[apart:])
            if not self.is_tiled:
                first = b.mul(low.linearize(counts[:apart], head), inside)
                with low.loop(0, inside) as (i, _):
                    store(low, x, [x.array_shape.size], [b.add(first, i)], initial)
            line = self.passes if self.in_passes else self.line
            bounds: list[tuple[Index, Index]] = [(0, n) for n in counts[apart:-1]]
            low.nest(bounds, (), lambda more, _: line((*head, *more), initial) or (), sequential=True)
        work = math.prod(counts[apart:]) * math.prod(d.places for d in self.dimensions) * 4
        return make_kernel(low, math.prod(counts[:apart]), work, [x])

    def line(self, result: Coordinates, initial: Operand) -> None:
        """A line of windows, each at once."""
        around = self.around(result)
        with self.low.loop(0, self.last.positions) as (o, _):
            elements = [*around, _elements(self.low, self.last, o)]
            chosen = self.chosen(elements)
            for k, places in enumerate(itertools.product(*elements)):
                self.put(k, chosen, tuple(i for i, _ in places), (*result, o), initial)

    def passes(self, result: Coordinates, initial: Operand) -> None:
        """A line of windows, for each of their elements: so those that meet do so one after the other."""
        low, b, last, w = self.low, self.low.builder, self.last, self.last.window
        around = self.around(result)
        with low.loop(0, -(-last.positions // self.width), sequential=True) as (block, _):
            begin, end = b.tile_range(block, self.width, last.positions)
            with low.loop(begin, end) as (o, _):
                b.store(self.row, b.sub(o, begin), self.chosen([*around, _elements(low, last, o)]))
            for k, (places, inner) in enumerate(itertools.product(itertools.product(*around), range(w.size))):
                before = w.padding_low - inner
                start, stop = max(0, -(-before // w.stride)), max(0, (last.size - 1 + before) // w.stride + 1)
                with low.loop(b.max(begin, start), b.min(end, stop)) as (o, _):
                    at = b.sub(b.mul(o, w.stride), before)
                    chosen = b.load(self.row, b.sub(o, begin))
                    self.put(k, chosen, (*(i for i, _ in places), at), (*result, o), initial)

    def around(self, result: Coordinates) -> list[_Elements]:
        return [_elements(self.low, d, o) for d, o in zip(self.outer, result, strict=True)]

    def chosen(self, elements: Sequence[_Elements]) -> Operand:
        """The number of the element that is selected."""
        low, b = self.low, self.low.builder
        best: Operand = zero(self.x.array_shape.with_dimensions(()))
        found: Operand = Literal("s32", -1)
        for k, places in enumerate(itertools.product(*elements)):
            element = load(low, self.operand, self.sizes, [i for i, _ in places])
            better = b.compute("not", "pred", low.apply(self.x.attributes.select, [best, element])[0])
            is_first = b.compare("EQ", found, Literal("s32", -1))
            take = _together(low, places, *([b.or_(is_first, better)] if k else []))
            best = element if take is None else b.select(take, element, best)
            found = Literal("s32", k) if take is None else b.select(take, Literal("s32", k), found)
        return found

    def put(self, k: int, chosen: Operand, place: Coordinates, result: Coordinates, initial: Operand) -> None:
        """What comes to the k-th element of a window."""
        low, b, x = self.low, self.low.builder, self.x
        old = initial if self.is_tiled else load(low, x, self.sizes, place)
        (new,) = low.apply(x.attributes.scatter, [old, load(low, self.source, self.counts, result)])
        hit = b.compare("EQ", chosen, Literal("s32", k))
        store(low, x, self.sizes, place, b.select(hit, new, old))
