"""Sort as a loop nest: a stable merge sort by any comparator.

Short runs are sorted in registers by exchanges of neighbours, which keep equal elements in order. Then runs are merged,
two by two, without branches: the comparator decides which of two elements goes out, and never where memory is touched,
so one that contradicts itself gives some permutation and does no harm. `topk` is the same for the first elements alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinyxla.backends.numba.axes import CHUNK, finished
from tinyxla.backends.numba.loops import INDEX, Index, Literal, Operand, Value
from tinyxla.backends.numba.lowering import Coordinates, LoweredKernel, Lowering, Partial, Storage, Users
from tinyxla.compiler.fusion import Plan, is_of_scalars, results_of, supported
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import movement, sorting
from tinyxla.shapes import Shape, TupleShape, element_type

RUN = 8  # elements that are sorted in registers
TOGETHER = 4  # merges that keep the processor busy
BLOCK = 1 << 12  # elements of a line that are sorted by one thread, in the cache
LEAST_GROUPS = 8  # of a long line, of which the first elements are wanted
FEW_ROUNDS = 4  # elements of a group that make it worth while
MANY = 1 << 12  # elements that NumPy sorts quicker, if they are all and their order is plain


def supports(x: Instruction) -> bool:
    a: sorting.Sort = x.attributes
    first, *others = x.operands
    sizes = first.array_shape.dimensions
    plain = sorting.order_of(a.to_apply) is not None and not others
    return is_of_scalars(a.to_apply) and not (plain and sizes[a.dimensions[0]] > RUN and math.prod(sizes) >= MANY)


class _Lines(NamedTuple):
    """Arrays whose lines are sorted together: `dimension` is the one along a line."""

    arrays: Sequence[Storage | None]  # None is an array that nobody takes
    sizes: tuple[int, ...]
    dimension: int

    def place(self, low: Lowering, line: Index, index: Index) -> Coordinates:
        others = [n for d, n in enumerate(self.sizes) if d != self.dimension]
        outer = low.split_index(line, others)
        return (*outer[: self.dimension], index, *outer[self.dimension :])

    def load(self, low: Lowering, line: Index, index: Index) -> list[Operand]:
        place = self.place(low, line, index)
        return [
            low.value(x, place) if isinstance(x, Instruction) else low.load(x, place)
            for x in self.arrays
            if x is not None
        ]

    def store(self, low: Lowering, line: Index, index: Index, values: Sequence[Operand]) -> None:
        place = self.place(low, line, index)
        for x, value in zip(self.arrays, values, strict=True):
            if x is not None:
                low.store(x, place, value)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    (dimension,) = x.attributes.dimensions
    sizes = x.operands[0].array_shape.dimensions
    source = _Lines(x.operands, sizes, dimension)
    result = _Lines(_results(x, users), sizes, dimension)
    return _MergeSort(x, plan, source, result, x.attributes.to_apply).kernels()


def _results(x: Instruction, users: Users) -> list[Storage | None]:
    taken = {r.attributes.index if r is not x else 0: r for r in results_of(x, users)}
    count = len(x.shape.elements) if isinstance(x.shape, TupleShape) else 1
    return [taken.get(k) for k in range(count)]


# --- topk -------------------------------------------------------------------------------------------------------------


def supports_top(x: Instruction) -> bool:
    return supported(x.operands[0].array_shape)


def lower_top(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The elements and their numbers are sorted, but of what is merged only the first are kept."""
    (operand,) = x.operands
    k, largest = x.attributes
    sizes = operand.array_shape.dimensions
    comparator = sorting.total_order(operand.array_shape.dtype, largest)
    source = _Lines((operand, _numbers(sizes)), sizes, len(sizes) - 1)
    result = _Lines(_results(x, users), (*sizes[:-1], k), len(sizes) - 1)
    groups = max(LEAST_GROUPS, 2 * k)
    if k and sizes[-1] >= FEW_ROUNDS * groups:
        return _of_candidates(x, plan, source, result, comparator, groups)
    return _MergeSort(x, plan, source, result, comparator).kernels()


def _numbers(sizes: tuple[int, ...]) -> Instruction:
    """Each element's place in its line."""
    shape = Shape(element_type(np.int32), sizes)
    return Instruction(movement.iota, (), movement.Iota(shape, len(sizes) - 1), shape)


def _of_candidates(
    x: Instruction, plan: Plan, source: _Lines, result: _Lines, comparator: Computation, groups: int
) -> list[LoweredKernel]:
    """Of long lines only the elements are sorted that do not come after the k-th of the groups' first elements: as many
    groups have one that comes no later, so the wanted ones are among them. Mostly there are few others."""
    *others, length = source.sizes
    lines, k = math.prod(others), result.sizes[-1]
    kind, index = (element_type(x.operands[0].array_shape.dtype), element_type(INDEX))
    firsts, bounds = Partial(Shape(kind, (lines, groups))), Partial(Shape(kind, (lines, k)))
    counts = Partial(Shape(index, (lines,)))
    sizes = (lines, length)
    candidates = _Lines([Partial(Shape(t, sizes)) for t in (kind, element_type(np.int32))], sizes, 1)
    unseen = Literal("s32", 0)

    low = Lowering("groups", plan)
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (line, _):
        with low.loop(0, groups) as (j, _):
            low.store(firsts, (line, j), source.load(low, line, j)[0])
        with low.loop(1, length // groups, sequential=True) as (turn, _), low.loop(0, groups) as (j, _):
            new = source.load(low, line, b.index("add", b.index("multiply", turn, groups), j))[0]
            old = low.load(firsts, (line, j))
            sooner = low.apply(comparator, [new, old, unseen, unseen])[0]
            low.store(firsts, (line, j), b.compute("select", new.type, sooner, new, old))
    of_groups = finished(low, lines, length, [x])

    low = Lowering("choose", plan)
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (line, _):
        bound = low.load(bounds, (line, k - 1))
        with low.loop(0, length, [Literal(INDEX, 0)], sequential=True) as (i, loop):
            values = source.load(low, line, i)
            count = loop.carried[0].inside
            candidates.store(low, line, count, values)
            later = low.apply(comparator, [bound, values[0], unseen, unseen])[0]
            step = b.compute("select", INDEX, later, Literal(INDEX, 0), Literal(INDEX, 1))
            loop.carried[0].updated = _operand(b.index("add", count, step))
        low.store(counts, (line,), loop.carried[0].result)
    chosen = finished(low, lines, 4 * length, [x])

    of_firsts = _Lines((firsts, _numbers((lines, groups))), (lines, groups), 1)
    first_sort = _MergeSort(x, plan, of_firsts, _Lines((bounds, None), (lines, k), 1), comparator)
    second_sort = _MergeSort(x, plan, candidates, result, comparator, counts)
    return [of_groups, *first_sort.kernels(), chosen, *second_sort.kernels()]


# --- merge sort -------------------------------------------------------------------------------------------------------


class _MergeSort:
    """Kernels that sort blocks of the lines, and then one for each doubling of what is sorted. Of each line as many
    elements are wanted as the result has. The lines may be shorter than they have room for, by `counts`."""

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        source: _Lines,
        result: _Lines,
        comparator: Computation,
        counts: Partial | None = None,
    ) -> None:
        self.x, self.plan, self.source, self.result = x, plan, source, result
        self.comparator, self.counts = comparator, counts
        self.length, self.keep = source.sizes[source.dimension], result.sizes[result.dimension]
        self.lines = math.prod(source.sizes) // max(1, self.length)
        self._spare: list[_Lines] = []
        self._width = RUN
        self._here = source

    def _limit(self, low: Lowering, line: Index) -> Index:
        """Where a line ends."""
        if self.counts is None:
            return self.length
        count = low.load(self.counts, (line,))
        assert isinstance(count, Value), "it is loaded"
        return count

    def kernels(self) -> list[LoweredKernel]:
        if not self.keep * self.lines:
            return []
        found = [self._blocks()]
        while self._width < self.length:
            found.append(self._doubling())
        return found

    def _next(self) -> _Lines:
        """Where the next step puts its results: the last one puts them where they belong."""
        if self._width >= self.length:
            return self.result
        if len(self._spare) < 2:
            sizes = (self.lines, self.length)
            shapes = [a.shape if isinstance(a, Partial) else a.array_shape for a in self.source.arrays if a is not None]
            self._spare.append(_Lines([Partial(s.with_dimensions(sizes)) for s in shapes], sizes, 1))
        return self._spare[0] if self._here is not self._spare[0] else self._spare[1]

    def _before(self, low: Lowering, first: Sequence[Operand], second: Sequence[Operand]) -> Operand:
        pairs = [value for pair in zip(first, second, strict=True) for value in pair]
        return low.apply(self.comparator, pairs)[0]

    def _blocks(self) -> LoweredKernel:
        """Runs, and the doublings that stay inside of a block of a line."""
        low = Lowering("sort", self.plan)
        b = low.builder
        block = min(BLOCK, self.length)
        count = -(-self.length // block)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.index("divide", index, count)
            begin = b.index("multiply", b.index("remainder", index, count), block)
            end = b.index("minimum", b.index("add", begin, block), self._limit(low, line))
            if self.counts is not None:
                end = b.index("maximum", begin, end)
            to = self._next()
            runs = b.index("divide", b.index("add", b.index("subtract", end, begin), RUN - 1), RUN)
            if self.length <= RUN and self.counts is None:
                self._run(low, to, line, 0, self.length)
            else:
                with low.loop(0, runs) as (number, _):
                    self._run(low, to, line, b.index("add", begin, b.index("multiply", number, RUN)), end)
            self._here = to
            levels = max(0, -(-block // RUN) - 1).bit_length()
            self._back_and_forth(low, (levels - (block == self.length)) // 2, line, begin, end)
            while self._width < block:
                self._width *= 2
                to = self._next()
                self._merges(low, to, self._width, line, begin, end)
                self._here = to
        steps = RUN + max(0, (block // RUN).bit_length())
        return finished(low, self.lines * count, block * steps * len(self.source.arrays) * 4, [self.x])

    def _run(self, low: Lowering, to: _Lines, line: Index, start: Index, end: Index) -> None:
        """Sort up to `RUN` elements: in each round every other pair of neighbours is put in order."""
        b = low.builder
        size = min(RUN, self.length)
        whole = self.counts is None and (self.length % RUN == 0 or self.length < RUN)  # then no run is cut short
        index = [b.index("add", start, k) for k in range(size)]
        last = b.index("subtract", end, 1)
        values = [self.source.load(low, line, i if whole else b.index("minimum", i, last)) for i in index]
        inside = [None if whole else _less(low, i, end) for i in index]
        for turn in range(size):
            for k in range(turn % 2, size - 1, 2):
                swap = self._before(low, values[k + 1], values[k])
                beyond = inside[k + 1]
                if beyond is not None:
                    swap = b.compute("and", "pred", swap, beyond)
                values[k], values[k + 1] = (
                    _choose(low, swap, values[k + 1], values[k]),
                    _choose(low, swap, values[k], values[k + 1]),
                )
        for k, i in enumerate(index[: self.keep]):
            present = inside[k]
            if present is None:
                to.store(low, line, i, values[k])
                continue
            with low.loop(0, b.compute("select", INDEX, present, Literal(INDEX, 1), Literal(INDEX, 0))):
                to.store(low, line, i, values[k])

    def _back_and_forth(self, low: Lowering, times: int, line: Index, begin: Index, end: Index) -> None:
        """Two doublings, to other memory and back, so many times."""
        if times < 1:
            return
        b = low.builder
        here = self._here
        with low.loop(0, times, [Literal(INDEX, 2 * self._width)], sequential=True) as (_, loop):
            width: Index = loop.carried[0].inside
            for _ in (0, 1):
                self._width *= 2
                to = self._next()
                self._merges(low, to, width, line, begin, end)
                self._here = to
                width = b.index("multiply", width, 2)
            loop.carried[0].updated = _operand(width)
        assert self._here is here
        self._width <<= 2 * (times - 1)

    def _merges(self, low: Lowering, to: _Lines, width: Index, line: Index, begin: Index, end: Index) -> None:
        """The merges of a block: several at a time as long as there are as many whole ones, since each step of one
        waits for the step before."""
        b = low.builder
        size = b.index("subtract", end, begin)
        group_width = b.index("multiply", width, TOGETHER)
        groups = b.index("divide", size, group_width)
        with low.loop(0, groups) as (group, _):
            first = b.index("add", begin, b.index("multiply", group, group_width))
            starts = [b.index("add", first, b.index("multiply", width, k)) for k in range(TOGETHER)]
            self._merge(low, to, width, line, starts, end)
        pairs = b.index("divide", b.index("add", size, b.index("subtract", width, 1)), width)
        with low.loop(b.index("multiply", groups, TOGETHER), pairs) as (pair, _):
            self._merge(low, to, width, line, [b.index("add", begin, b.index("multiply", pair, width))], end)

    def _merge(
        self, low: Lowering, to: _Lines, width: Index, line: Index, starts: Sequence[Index], limit: Index
    ) -> None:
        """For each start the two runs which begin there and together have a width; all of them are whole if there are
        several."""
        b = low.builder
        half = b.index("divide", width, 2)
        kept = b.index("minimum", half, self.keep)
        middles = [b.index("minimum", b.index("add", s, half), limit) for s in starts]
        left_ends = [b.index("minimum", b.index("add", s, kept), m) for s, m in zip(starts, middles, strict=True)]
        right_ends = [b.index("minimum", b.index("add", m, kept), limit) for m in middles]
        both = b.index(
            "add", b.index("subtract", left_ends[0], starts[0]), b.index("subtract", right_ends[0], middles[0])
        )
        carried = [_operand(index) for pair in zip(starts, middles, strict=True) for index in pair]
        with low.loop(0, b.index("minimum", both, self.keep), carried, sequential=True) as (step, loop):
            for k, (start, left_end, right_end) in enumerate(zip(starts, left_ends, right_ends, strict=True)):
                at_left, at_right = loop.carried[2 * k : 2 * k + 2]
                i, j = at_left.inside, at_right.inside
                left = self._here.load(low, line, b.index("minimum", i, b.index("subtract", left_end, 1)))
                right = self._here.load(low, line, b.index("minimum", j, b.index("subtract", right_end, 1)))
                sooner = b.compute("and", "pred", _less(low, j, right_end), self._before(low, right, left))
                from_right = b.compute("or", "pred", sooner, b.compute("not", "pred", _less(low, i, left_end)))
                to.store(low, line, b.index("add", start, step), _choose(low, from_right, right, left))
                moved = b.compute("select", INDEX, from_right, Literal(INDEX, 1), Literal(INDEX, 0))
                at_left.updated = _operand(b.index("add", i, b.index("subtract", 1, moved)))
                at_right.updated = _operand(b.index("add", j, moved))

    def _doubling(self) -> LoweredKernel:
        """All merges of one width, over all lines."""
        low = Lowering("merge", self.plan)
        b = low.builder
        self._width *= 2
        pairs = -(-self.length // self._width)
        to = self._next()
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.index("divide", index, pairs)
            start = b.index("multiply", b.index("remainder", index, pairs), self._width)
            self._merge(low, to, self._width, line, [start], self._limit(low, line))
        self._here = to
        return finished(low, self.lines * pairs, CHUNK, [self.x])


def _operand(index: Index) -> Operand:
    return Literal(INDEX, index) if isinstance(index, int) else index


def _less(low: Lowering, left: Index, right: Index) -> Operand:
    operands = _operand(left), _operand(right)
    return low.builder.compute("compare", "pred", *operands, direction="LT", compare_type="SIGNED")


def _choose(low: Lowering, chosen: Operand, first: Sequence[Operand], second: Sequence[Operand]) -> list[Operand]:
    return [low.builder.compute("select", x.type, chosen, x, y) for x, y in zip(first, second, strict=True)]
