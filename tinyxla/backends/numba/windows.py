"""Loop nests of reduce-window and select-and-scatter.

Small windows are gone through: a row of accumulators runs along the innermost dimension, and for each place of the
window one vectorised loop takes in a row of elements (`_Direct`). Large ones are folded along one dimension after the
other (`_separable`), each in one of three ways. Where they are short along it, they are gone through. Else, if what
folds is commutative and has a neutral element, windows of 1, 2, 4, ... elements are put together from halves, and each
from some of these (`_doubled`): that is vectorised in a part of the array that stays in the cache. Otherwise beginnings
and ends of blocks as long as the window are folded, and every window is the end of one block and the beginning of the
next. Sums are only ever added up, never subtracted.
Source: M. van Herk, "A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels",
1992. Where windows are all beginnings of a line, as in a cumulative sum, its fold is the result.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from tinyxla.backends.numba.axes import CHUNK, finished
from tinyxla.backends.numba.loops import INDEX, Index, Literal, Operand
from tinyxla.backends.numba.lowering import Coordinates, LoweredKernel, Lowering, Partial, Storage, Users, zero
from tinyxla.compiler.fusion import Plan, buffer_of, is_costly, is_of_scalars, results_of, supported
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import reduction
from tinyxla.ops.windows import cumulative_direction, transposed
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.window import Window, WindowDimension

WRITTEN_OUT = 32  # places of a window
MOST_PLACES = 16  # of a window that is gone through, for each step that it takes
AREA = 1 << 11  # elements that are doubled at once: three times so many stay in the first cache
LARGEST_AREA = 1 << 13  # for windows so long that too much would be doubled twice
COLUMNS = 32  # of them
ROW = 1 << 10  # accumulators
LINES = 4  # folded together, since one waits for its last element
LANES = 16  # of blocks or lines that are vectorised
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


def _dimensions(sizes: Sequence[int], window: Window) -> list[_Dimension]:
    found: list[_Dimension] = []
    for n, w in zip(sizes, window, strict=True):
        if w == _STILL and found and found[-1].window == _STILL:
            n *= found.pop().size
        if w != _STILL or n != 1:
            found.append(_Dimension(n, w.positions(n), w))
    return found or [_Dimension(1, 1, _STILL)]


def _in_rows(sizes: Sequence[int], window: Window) -> list[_Dimension]:
    """Dilated windows as ones that are not, over rows as long as the dilation, where everything is whole rows."""
    found: list[tuple[int, WindowDimension]] = []
    for n, w in zip(sizes, window, strict=True):
        row = w.window_dilation
        whole = not any(k % row for k in (n, w.padding_low, w.padding_high))
        if row > 1 and whole and (w.stride, w.base_dilation) == (1, 1):
            undilated = WindowDimension(w.size, 1, w.padding_low // row, w.padding_high // row)
            found += [(n // row, undilated), (row, _STILL)]
        else:
            found.append((n, w))
    return _dimensions([n for n, _ in found], tuple(w for _, w in found))


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


def _after(low: Lowering, value: Index, step: int) -> Index:
    """The first integer above value / step that is at least 0."""
    b = low.builder
    return b.index("divide", b.index("maximum", b.index("add", value, step), 0), step)


def _compare(low: Lowering, x: Index, y: Index, direction: str) -> Operand:
    left, right = (Literal(INDEX, v) if isinstance(v, int) else v for v in (x, y))
    return low.builder.compute("compare", "pred", left, right, direction=direction, compare_type="SIGNED")


def _select(low: Lowering, condition: Operand, x: Operand, y: Operand) -> Operand:
    return low.builder.compute("select", x.type, condition, x, y)


# --- windows that are gone through ------------------------------------------------------------------------------------

Update = Callable[[Lowering, list[Operand], Coordinates, Coordinates], Sequence[Operand]]


class _Direct:
    """A kernel that updates accumulators, one for each place of the window: `update(low, values, source, result)` has
    the coordinates of an element and of a result. `dimensions` has one after the other, the innermost last."""

    def __init__(self, low: Lowering, dimensions: Sequence[_Dimension]) -> None:
        self.low = low
        self.outer = dimensions[:-1]
        self.last = dimensions[-1]

    def kernel(
        self,
        initial: Callable[[], list[Operand]],
        update: Update,
        deliver: Callable[[list[Operand], Coordinates], None],
        roots: Sequence[Instruction],
    ) -> LoweredKernel:
        low, b, dimensions = self.low, self.low.builder, (*self.outer, self.last)
        width = min(self.last.positions, ROW)
        blocks = -(-self.last.positions // ROW)
        extent = math.prod(_counts(self.outer)) * blocks
        work = width * math.prod(d.places for d in dimensions)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            begin = b.index("multiply", b.index("remainder", index, blocks), ROW)
            result = low.split_index(b.index("divide", index, blocks), _counts(self.outer))
            end = (
                b.index("minimum", b.index("add", begin, ROW), self.last.positions)
                if blocks > 1
                else self.last.positions
            )
            starts = initial()
            if math.prod(d.places for d in dimensions) <= WRITTEN_OUT and (
                self.last.is_inside or self.last.window == _STILL
            ):
                self._written_out(begin, end, result, starts, update, deliver)
                return finished(low, extent, work, roots)
            rows = [b.scratch(x.type, width) for x in starts]

            def values_at(o: Index) -> list[Operand]:
                return [b.load(row, b.index("subtract", o, begin)) for row in rows]

            def put(o: Index, values: Sequence[Operand]) -> None:
                for row, value in zip(rows, values, strict=True):
                    b.store(row, b.index("subtract", o, begin), value)

            with low.loop(begin, end) as (o, _):
                put(o, starts)

            def row_at(source: Coordinates) -> None:
                def element(i: Index, o: Index) -> None:
                    put(o, update(low, values_at(o), (*source, i), (*result, o)))

                self._row(begin, end, element)

            self._places(0, (), result, row_at)
            with low.loop(begin, end) as (o, _):
                deliver(values_at(o), (*result, o))
        return finished(low, extent, work, roots)

    def _written_out(
        self,
        begin: Index,
        end: Index,
        result: Coordinates,
        starts: list[Operand],
        update: Update,
        deliver: Callable[[list[Operand], Coordinates], None],
    ) -> None:
        """The few places of a window one after the other, in the loop over the results."""
        low = self.low
        outer = [self._elements(d, o) for d, o in zip(self.outer, result, strict=True)]
        with low.loop(begin, end) as (o, _):
            values = starts
            for places in itertools.product(*outer, self._elements(self.last, o)):
                found = update(low, values, tuple(i for i, _ in places), (*result, o))
                there = [condition for _, condition in places if condition is not None]
                if there:
                    whole = functools.reduce(lambda p, q: low.builder.compute("and", "pred", p, q), there)
                    found = [_select(low, whole, x, y) for x, y in zip(found, values, strict=True)]
                values = list(found)
            deliver(values, (*result, o))

    def _elements(self, d: _Dimension, o: Index) -> list[tuple[Index, Operand | None]]:
        """The elements of the o-th window, each with whether it is there; None if it always is."""
        low, b, w, apart = self.low, self.low.builder, d.window, d.window.base_dilation
        if w == _STILL:
            return [(o, None)]
        first = b.index("subtract", b.index("multiply", o, w.stride), w.padding_low)
        if d.is_inside:
            return [(b.index("add", first, k * w.window_dilation), None) for k in range(w.size)]
        before = -(-max(w.padding_low, 0) // apart)  # elements by which indices are moved, so that none is negative
        found: list[tuple[Index, Operand | None]] = []
        moved = b.index("add", first, before * apart)
        for k in range(d.places if w.window_dilation == 1 else w.size):
            if w.window_dilation == 1:
                index = b.index("add", b.index("divide", b.index("add", moved, apart - 1), apart), k)
                there = _compare(low, b.index("multiply", index, apart), b.index("add", moved, w.size), "LT")
            else:
                place = b.index("add", moved, k * w.window_dilation)
                index, there = (
                    b.index("divide", place, apart),
                    _compare(low, b.index("remainder", place, apart), 0, "EQ"),
                )
            for limit, direction in ((before, "GE"), (before + d.size, "LT")):
                there = b.compute("and", "pred", there, _compare(low, index, limit, direction))
            index = b.index("minimum", b.index("subtract", b.index("maximum", index, before), before), d.size - 1)
            found.append((index, there))
        return found

    def _places(self, d: int, source: Coordinates, result: Coordinates, body: Callable[[Coordinates], None]) -> None:
        """The loops over a window's elements in the outer dimensions."""
        low, b = self.low, self.low.builder
        if d == len(self.outer):
            body(source)
            return
        n, _, w = self.outer[d]
        if w == _STILL:
            self._places(d + 1, (*source, result[d]), result, body)
            return
        first = b.index("subtract", b.index("multiply", result[d], w.stride), w.padding_low)
        before = b.index("subtract", w.padding_low, b.index("multiply", result[d], w.stride))
        if w.window_dilation == 1:  # from element to element
            start = _ceiling(low, first, w.base_dilation)
            stop = b.index("minimum", _after(low, b.index("add", first, w.size - 1), w.base_dilation), n)
            if self.outer[d].is_inside:
                start, stop = first, b.index("add", first, w.size)
            with low.loop(start, stop, sequential=True) as (i, _):
                self._places(d + 1, (*source, i), result, body)
            return
        start = _ceiling(low, before, w.window_dilation)
        reach = (n - 1) * w.base_dilation
        stop = b.index("minimum", _after(low, b.index("add", before, reach), w.window_dilation), w.size)
        with low.loop(start, stop, sequential=True) as (k, _):
            place = b.index("add", first, b.index("multiply", k, w.window_dilation))
            i = b.index("divide", place, w.base_dilation)
            with self._guarded(place, w.base_dilation):
                self._places(d + 1, (*source, i), result, body)

    def _guarded(self, place: Index, dilation: int) -> AbstractContextManager[Any]:
        """A loop of one iteration, or of none if the place is a hole."""
        low = self.low
        stop: Index = 1
        if dilation > 1:
            hit = _compare(low, low.builder.index("remainder", place, dilation), 0, "EQ")
            stop = low.builder.compute("select", INDEX, hit, Literal(INDEX, 1), Literal(INDEX, 0))
        return low.loop(0, stop, sequential=True)

    def _row(self, begin: Index, end: Index, element: Callable[[Index, Index], None]) -> None:
        """The loops over the innermost dimension: for each place of the window, over all results whose window has an
        element there."""
        low, b = self.low, self.low.builder
        n, _, w = self.last
        if w == _STILL:
            with low.loop(begin, end) as (o, _):
                element(o, o)
            return
        with low.loop(0, w.size, sequential=True) as (k, _):
            before = b.index("subtract", w.padding_low, b.index("multiply", k, w.window_dilation))
            if w.stride == 1 and w.base_dilation > 1:  # from element to element
                start = _ceiling(low, b.index("subtract", begin, before), w.base_dilation)
                stop = _after(low, b.index("subtract", b.index("subtract", end, 1), before), w.base_dilation)
                with low.loop(start, b.index("minimum", stop, n)) as (i, _):
                    element(i, b.index("add", b.index("multiply", i, w.base_dilation), before))
                return
            start, stop = begin, end
            if not self.last.is_inside:
                reach = (n - 1) * w.base_dilation
                start = b.index("maximum", _ceiling(low, before, w.stride), begin)
                stop = b.index("minimum", _after(low, b.index("add", before, reach), w.stride), end)
            with low.loop(start, stop) as (o, _):
                place = b.index("subtract", b.index("multiply", o, w.stride), before)
                if w.base_dilation == 1:
                    element(place, o)
                    return
                with self._guarded(place, w.base_dilation):
                    element(b.index("divide", place, w.base_dilation), o)


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

    def lowering(self, name: str) -> Lowering:
        return Lowering(name, self.plan, results_of(self.x, self.users))

    def partials(self, sizes: Sequence[int]) -> list[Storage]:
        types = [o.array_shape.element_type for o in self.x.operands[: len(self.x.operands) // 2]]
        return [Partial(Shape(t, tuple(sizes))) for t in types]

    def results(self, sizes: Sequence[int]) -> list[Storage]:
        """Where the results go; one that nobody takes needs memory all the same."""
        taken = {r.attributes.index if r is not self.x else 0: r for r in results_of(self.x, self.users)}
        return [taken.get(k, partial) for k, partial in enumerate(self.partials(sizes))]

    def apply(self, low: Lowering, left: Sequence[Operand], right: Sequence[Operand]) -> list[Operand]:
        return low.apply(self.computation, [*left, *right])


def _separable(fold: _Fold, dimensions: list[_Dimension]) -> list[LoweredKernel]:
    kernels: list[LoweredKernel] = []
    sources = fold.arrays
    moving = [d for d, found in enumerate(dimensions) if found.window != _STILL]
    lines = {
        d: _Line(math.prod(_sizes(dimensions[:d])), dimensions[d], math.prod(_counts(dimensions[d + 1 :])))
        for d in reversed(moving)
    }
    is_easy = reduction.monoid(fold.computation) is not None and all(
        not cumulative_direction(line.along.window, line.along.size) and (_is_short(line) or _fits(line))
        for line in lines.values()
    )
    for d, line in lines.items():
        whole = dimensions if d == moving[0] else None
        targets = fold.results(_counts(dimensions)) if whole else fold.partials(line.counts)
        if is_easy:
            lower = _gone_through if _is_short(line) else _doubled
            kernels.append(lower(fold, line, sources, targets, whole is not None))
        else:
            kernels += _along_line(fold, line, sources, targets, whole)
        sources = targets
    return kernels


def _is_short(line: _Line) -> bool:
    return line.along.places <= MOST_PLACES * line.along.window.stride


def _fits(line: _Line) -> bool:
    w = line.along.window
    return w.base_dilation == 1 and 2 * w.size * min(line.inner, COLUMNS) <= LARGEST_AREA


def _along_line(
    fold: _Fold, line: _Line, sources: list[Storage], targets: list[Storage], whole: list[_Dimension] | None
) -> list[LoweredKernel]:
    """Fold windows along one dimension; the last time, where `whole` has all of them, with the initial values."""
    n, m, w = line.along
    block = line.along.places
    direction = None if whole and _some_are_empty(whole) else cumulative_direction(w, n)
    commutative = reduction.monoid(fold.computation) is not None
    if direction and (direction == "forward" or commutative or whole is None):
        backward = direction == "backward"
        lines = line.outer * -(-line.inner // ROW)
        if n * min(line.inner, ROW) < FEW_LINES * CHUNK or lines >= FEW_LINES or whole is None:
            return [_scan(fold, line, sources, targets, n, backward, whole is not None)]
        return _cut_scan(fold, line, sources, targets, backward)
    kernels: list[LoweredKernel] = []
    beginnings: list[Storage] = []
    ends: list[Storage] = []
    if not direction and (n > block or w.padding_low >= 0):
        beginnings = fold.partials(line.sizes)
        kernels.append(_scan(fold, line, sources, beginnings, block, False, False))
    if n > block or (m - 1) * w.stride > w.padding_low or not beginnings:
        ends = fold.partials(line.sizes)
        kernels.append(_scan(fold, line, sources, ends, block, True, False))
    return [*kernels, _join(fold, line, beginnings, ends, targets, whole)]


def _gone_through(
    fold: _Fold, line: _Line, sources: list[Storage], targets: list[Storage], is_last: bool
) -> LoweredKernel:
    """Windows along one dimension, element by element."""
    low = fold.lowering("windows")

    outer, inner = (_Dimension(n, n, _STILL) for n in (line.outer, line.inner))
    dimensions = [outer, line.along, inner] if line.inner > 1 else [outer, line.along]
    sizes, counts = _sizes(dimensions), _counts(dimensions)

    def update(low: Lowering, values: list[Operand], source: Coordinates, result: Coordinates) -> list[Operand]:
        return fold.apply(low, values, [_load(low, a, sizes, source) for a in sources])

    def deliver(values: list[Operand], result: Coordinates) -> None:
        for target, value in zip(targets, values, strict=True):
            _store(low, target, counts, result, value)

    start = low.initial if is_last else low.neutral
    return _Direct(low, dimensions).kernel(lambda: start(fold.x), update, deliver, [fold.x])


def _doubled(fold: _Fold, line: _Line, sources: list[Storage], targets: list[Storage], is_last: bool) -> LoweredKernel:
    """Windows along one dimension from windows whose sizes are powers of two."""
    low = fold.lowering("windows")
    b = low.builder
    n, count, w = line.along
    width = min(line.inner, COLUMNS)
    most = min(max(AREA, 4 * w.size * width), LARGEST_AREA) // width
    most = min(count, (most - w.size) // w.stride + 1)  # windows at once
    parts, columns = -(-count // most), -(-line.inner // width)
    area = ((most - 1) * w.stride + w.size) * width
    kind = fold.x.array_shape.element_type.name
    elements, doubles, results = (b.scratch(kind, size) for size in (area, area, most * width))
    (neutral,) = low.neutral(fold.x)

    def both(x: Operand, y: Operand) -> Operand:
        return fold.apply(low, [x], [y])[0]

    @contextmanager
    def elements_of(start: Index, stop: Index) -> Generator[tuple[Index, Index, Index]]:
        """The row, the column, and the place in scratch."""
        with low.loop(start, stop) as (i, _):
            if width == 1:
                yield i, 0, i
                return
            with low.loop(0, wide) as (j, _):
                yield i, j, b.index("add", b.index("multiply", i, width), j)

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        rest, column = b.index("divide", index, columns), b.index("remainder", index, columns)
        outer, part = b.index("divide", rest, parts), b.index("remainder", rest, parts)
        left, first = b.index("multiply", column, width), b.index("multiply", part, most)
        wide = b.index("minimum", b.index("subtract", line.inner, left), width)
        high = b.index("minimum", b.index("subtract", count, first), most)
        before = b.index("subtract", b.index("multiply", first, w.stride), w.padding_low)
        span = b.index("add", b.index("multiply", b.index("subtract", high, 1), w.stride), w.size)
        begin = b.index("minimum", b.index("maximum", b.index("subtract", 0, before), 0), span)
        end = b.index("maximum", b.index("minimum", b.index("subtract", n, before), span), begin)
        for start, stop, is_inside in ((0, begin, False), (begin, end, True), (end, span, False)):
            with elements_of(start, stop) as (i, j, at):
                value: Operand = neutral
                if is_inside:
                    place = (outer, b.index("add", before, i), b.index("add", left, j))
                    value = _load(low, sources[0], line.sizes, place)
                b.store(elements, at, value)
        size, done = 1, 0
        while True:
            if w.size & size:
                is_first, is_end = done == 0, done + size == w.size
                with elements_of(0, high) as (i, j, at):
                    row = b.index("add", b.index("multiply", i, w.stride), done)
                    value = b.load(elements, b.index("add", b.index("multiply", row, width), j))
                    if not is_first:
                        value = both(b.load(results, at), value)
                    if not is_end:
                        b.store(results, at, value)
                    else:
                        value = both(low.initial(fold.x)[0], value) if is_last else value
                        place = (outer, b.index("add", first, i), b.index("add", left, j))
                        _store(low, targets[0], line.counts, place, value)
                done += size
            if done == w.size:
                break
            with low.loop(0, area - (size << 1) * width + width) as (k, _):
                b.store(doubles, k, both(b.load(elements, k), b.load(elements, b.index("add", k, size * width))))
            elements, doubles, size = doubles, elements, size << 1
    work = most * width * (w.size.bit_length() + w.size.bit_count())
    return finished(low, line.outer * parts * columns, work, [fold.x])


def _some_are_empty(dimensions: Sequence[_Dimension]) -> bool:
    """Whether windows may have no element in the array: those that move only as in a cumulative sum have one."""
    return any(
        d.window != _STILL and not d.is_inside and not cumulative_direction(d.window, d.size) for d in dimensions
    )


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


def _join(
    fold: _Fold,
    line: _Line,
    beginnings: list[Storage],
    ends: list[Storage],
    targets: list[Storage],
    whole: list[_Dimension] | None,
) -> LoweredKernel:
    """Each window from the end of the block in which it starts and the beginning of that in which it ends: it is as
    long as a block, unless the array ends before."""
    low = fold.lowering("windows")
    b = low.builder
    n, block = line.along.size, line.along.places
    counts = list(_counts(whole)) if whole else list(line.counts)
    d = next(k for k, found in enumerate(whole) if found is line.along) if whole else 1
    blocks = -(-counts[-1] // ROW)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin = b.index("multiply", b.index("remainder", index, blocks), ROW)
        outer = low.split_index(b.index("divide", index, blocks), counts[:-1])
        end = b.index("minimum", b.index("add", begin, ROW), counts[-1]) if blocks > 1 else counts[-1]
        with low.loop(begin, end) as (j, _):
            result = (*outer, j)
            before, after = low.linear(counts[:d], result[:d]), low.linear(counts[d + 1 :], result[d + 1 :])
            start, stop = _reach(low, line.along, result[d])
            first = b.index("minimum", start, n - 1)
            last = b.index("maximum", b.index("subtract", stop, 1), 0)

            def load(storages: Sequence[Storage], i: Index) -> list[Operand]:
                return [_load(low, s, line.sizes, (before, i, after)) for s in storages]

            values = load(beginnings, last) if beginnings else load(ends, first)
            if beginnings and ends:
                at_start = _compare(low, b.index("remainder", first, block), 0, "EQ")
                ending = load(ends, first)
                alone = [_select(low, at_start, p, s) for p, s in zip(values, ending, strict=True)]
                if n > block:
                    near = _compare(low, b.index("divide", first, block), b.index("divide", last, block), "EQ")
                    both = fold.apply(low, ending, values)
                    alone = [_select(low, near, one, two) for one, two in zip(alone, both, strict=True)]
                values = alone
            if whole:
                initial = [low.value(o, ()) for o in fold.x.operands[len(fold.x.operands) // 2 :]]
                values = fold.apply(low, initial, values)
                for k, other in enumerate(whole):
                    if other.window != _STILL and not other.is_inside:
                        some = _compare(low, *_reach(low, other, result[k]), "LT")
                        values = [_select(low, some, v, i) for v, i in zip(values, initial, strict=True)]
            for target, value in zip(targets, values, strict=True):
                _store(low, target, counts, result, value)
    return finished(low, math.prod(counts[:-1]) * blocks, 4 * min(counts[-1], ROW), [fold.x])


def _reach(low: Lowering, d: _Dimension, o: Index) -> tuple[Index, Index]:
    """The elements of a window that is not dilated: from the first, at least 0, to before the second, at most all."""
    b, w = low.builder, d.window
    first = b.index("subtract", b.index("multiply", o, w.stride), w.padding_low)
    stop = _after(low, b.index("add", first, w.size - 1), w.base_dilation)
    return _ceiling(low, first, w.base_dilation), b.index("minimum", stop, d.size)


# --- reduce-window ----------------------------------------------------------------------------------------------------


def supports_reduce(x: Instruction) -> bool:
    return is_of_scalars(x.attributes.to_apply) and all(supported(o.array_shape) for o in x.operands)


def lower_reduce(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    fold = _Fold(x, plan, users)
    first = x.operands[0].array_shape
    dimensions = _dimensions(first.dimensions, x.attributes.window)
    moving = [d for d in dimensions if d.window != _STILL]
    if 0 in _counts(dimensions):
        return []
    large = math.prod(d.places for d in moving) > MOST_PLACES * math.prod(d.window.stride for d in moving)
    large = large or any(cumulative_direction(d.window, d.size) for d in moving)
    rows = _in_rows(first.dimensions, x.attributes.window)
    if large and first.size and all(d.window.window_dilation == 1 for d in rows):
        return _separable(fold, rows)
    sizes, counts = _sizes(dimensions), _counts(dimensions)
    arrays, targets = fold.arrays, fold.results(counts)
    low = fold.lowering("windows")

    def initial() -> list[Operand]:
        return [low.value(o, ()) for o in x.operands[len(arrays) :]]

    def update(low: Lowering, values: list[Operand], source: Coordinates, result: Coordinates) -> list[Operand]:
        return fold.apply(low, values, [_load(low, a, sizes, source) for a in arrays])

    def deliver(values: list[Operand], result: Coordinates) -> None:
        for target, value in zip(targets, values, strict=True):
            _store(low, target, counts, result, value)

    return [_Direct(low, dimensions).kernel(initial, update, deliver, [x])]


# --- select-and-scatter -----------------------------------------------------------------------------------------------


def supports_select(x: Instruction) -> bool:
    computations = x.attributes.select, x.attributes.scatter
    return all(map(is_of_scalars, computations)) and all(supported(o.array_shape) for o in x.operands)


def lower_select(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """First which element each window selects; then for each element what the windows over it bring, if it is the
    selected one: so no two pieces of work write the same element."""
    operand, source = (buffer_of(o) for o in x.operands[:2])
    shape = x.array_shape
    dimensions = _dimensions(shape.dimensions, x.attributes.window)
    sizes, counts = _sizes(dimensions), _counts(dimensions)
    back = [_Dimension(d.positions, d.size, transposed(d.window, d.size, d.positions)) for d in dimensions]
    index = element_type("s32" if shape.size < 1 << 31 else "s64")
    chosen = Partial(Shape(index, tuple(counts)))
    none = Literal(index.name, -1)
    kernels: list[LoweredKernel] = []

    def number(low: Lowering, place: Coordinates) -> Operand:
        found = low.linear(sizes, place)
        wide = Literal(INDEX, found) if isinstance(found, int) else found
        return low.builder.compute("convert", index.name, wide)

    if shape.size and math.prod(counts):
        choosing = Lowering("select", plan)

        def choose(low: Lowering, values: list[Operand], place: Coordinates, result: Coordinates) -> list[Operand]:
            best, at = values
            element = _load(low, operand, sizes, place)
            (better,) = low.apply(x.attributes.select, [best, element])
            some = low.builder.compute("compare", "pred", at, none, direction="NE", compare_type="SIGNED")
            keep = low.builder.compute("and", "pred", some, better)
            return [_select(low, keep, best, element), _select(low, keep, at, number(low, place))]

        def note(values: list[Operand], result: Coordinates) -> None:
            _store(choosing, chosen, counts, result, values[1])

        start = [zero(shape.with_dimensions(())), none]
        kernels.append(_Direct(choosing, dimensions).kernel(lambda: list(start), choose, note, [x]))
    low = Lowering("scatter", plan, [x])

    def add(low: Lowering, values: list[Operand], place: Coordinates, result: Coordinates) -> list[Operand]:
        at = _load(low, chosen, counts, place)
        hit = low.builder.compute("compare", "pred", at, number(low, result), direction="EQ", compare_type="SIGNED")
        (new,) = low.apply(x.attributes.scatter, [*values, _load(low, source, counts, place)])
        return [_select(low, hit, new, values[0])]

    def deliver(values: list[Operand], result: Coordinates) -> None:
        _store(low, x, sizes, result, values[0])

    if shape.size:
        kernels.append(_Direct(low, back).kernel(lambda: [low.value(x.operands[2], ())], add, deliver, [x]))
    return kernels
