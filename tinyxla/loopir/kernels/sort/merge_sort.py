"""Sort as a loop nest: a stable merge sort by any comparator.

Short runs are sorted in registers by exchanges of neighbours, which keep equal elements in order. Then runs are merged,
two by two, without branches: the comparator decides which of two elements goes out, and never where memory is touched,
so one that contradicts itself gives some permutation and does no harm. What is sorted by a plain order is sorted by
digits, but for short lines, of which many are sorted side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tinyxla.compiler.analysis.fusibility import is_scalar_computation
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.compiler.passes.canonicalize.sort import is_batched_short_sort
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand, operand_of
from tinyxla.loopir.kernels.sort import radix_sort, sorting_network, transposition_sort
from tinyxla.loopir.lower.axes import PARALLEL_CHUNK_ELEMENTS, make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Storage, Temporary, Users

RUN = 8  # elements that are sorted in registers
FEW = 4  # of a line, for which no network is worth its keys
MANY = 4 * RUN  # up to which a routine that is there for long lines is as quick as code for short ones
TOGETHER = 4  # merges that keep the processor busy
BLOCK = 1 << 12  # elements of a line that are sorted by one thread, in the cache


def supports(x: Instruction) -> bool:
    return is_scalar_computation(x.attributes.to_apply)


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
    if is_batched_short_sort(x) and not (sizes[dimension] <= FEW and transposition_sort.supports(x)):
        return sorting_network.kernels(radix_sort.sort_of(x, plan, users))
    if transposition_sort.supports(x):
        return transposition_sort.lower(x, plan, users)
    if (sizes[dimension] > RUN or math.prod(sizes) <= MANY) and radix_sort.supports(x):
        return radix_sort.sort_of(x, plan, users).kernels()
    source = _Lines(x.operands, sizes, dimension)
    result = _Lines(radix_sort.results_by_number(x, users), sizes, dimension)
    return _MergeSort(x, plan, source, result, x.attributes.to_apply).kernels()


# --- merge sort -------------------------------------------------------------------------------------------------------


class _MergeSort:
    """Kernels that sort blocks of the lines, and then one for each doubling of what is sorted."""

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        source: _Lines,
        result: _Lines,
        comparator: Computation,
    ) -> None:
        self.x, self.plan, self.source, self.result = x, plan, source, result
        self.comparator = comparator
        self.length = source.sizes[source.dimension]
        self.lines = math.prod(source.sizes) // max(1, self.length)
        self._spare: list[_Lines] = []
        self._width = RUN
        self._here = source

    def kernels(self) -> list[LoweredKernel]:
        if not self.length * self.lines:
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
            shapes = [
                a.shape if isinstance(a, Temporary) else a.array_shape for a in self.source.arrays if a is not None
            ]
            self._spare.append(_Lines([Temporary(s.with_dimensions(sizes)) for s in shapes], sizes, 1))
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
            line = b.floordiv(index, count)
            begin, end = b.tile_range(b.remainder(index, count), block, self.length)
            to = self._next()
            runs = b.ceil_div(b.sub(end, begin), RUN)
            if self.length <= RUN:
                self._run(low, to, line, 0, self.length)
            else:
                with low.loop(0, runs) as (number, _):
                    self._run(low, to, line, b.add(begin, b.mul(number, RUN)), end)
            self._here = to
            levels = max(0, -(-block // RUN) - 1).bit_length()
            self._back_and_forth(low, (levels - (block == self.length)) // 2, line, begin, end)
            while self._width < block:
                self._width *= 2
                to = self._next()
                self._merges(low, to, self._width, line, begin, end)
                self._here = to
        steps = RUN + max(0, (block // RUN).bit_length())
        return make_kernel(low, self.lines * count, block * steps * len(self.source.arrays) * 4, [self.x])

    def _run(self, low: Lowering, to: _Lines, line: Index, start: Index, end: Index) -> None:
        """Sort up to `RUN` elements: in each round every other pair of neighbours is put in order."""
        b = low.builder
        size = min(RUN, self.length)
        whole = self.length % RUN == 0 or self.length < RUN  # then no run is cut short
        index = [b.add(start, k) for k in range(size)]
        last = b.sub(end, 1)
        values = [self.source.load(low, line, i if whole else b.min(i, last)) for i in index]
        inside = [None if whole else b.compare("LT", i, end) for i in index]
        for turn in range(size):
            for k in range(turn % 2, size - 1, 2):
                swap = self._before(low, values[k + 1], values[k])
                beyond = inside[k + 1]
                if beyond is not None:
                    swap = b.and_(swap, beyond)
                values[k], values[k + 1] = (
                    _choose(low, swap, values[k + 1], values[k]),
                    _choose(low, swap, values[k], values[k + 1]),
                )
        for k, i in enumerate(index):
            present = inside[k]
            if present is None:
                to.store(low, line, i, values[k])
                continue
            with low.loop(0, b.select(present, 1)):
                to.store(low, line, i, values[k])

    def _back_and_forth(self, low: Lowering, times: int, line: Index, begin: Index, end: Index) -> None:
        """Two doublings, to other memory and back, so many times."""
        if times < 1:
            return
        b = low.builder
        here = self._here
        with low.loop(0, times, [Literal(INDEX, 2 * self._width)], sequential=True) as (_, loop):
            width: Index = loop.carried[0].arg
            for _ in (0, 1):
                self._width *= 2
                to = self._next()
                self._merges(low, to, width, line, begin, end)
                self._here = to
                width = b.mul(width, 2)
            loop.carried[0].next = operand_of(width)
        assert self._here is here
        self._width <<= 2 * (times - 1)

    def _merges(self, low: Lowering, to: _Lines, width: Index, line: Index, begin: Index, end: Index) -> None:
        """The merges of a block: several at a time as long as there are as many whole ones, since each step of one
        waits for the step before."""
        b = low.builder
        size = b.sub(end, begin)
        group_width = b.mul(width, TOGETHER)
        groups = b.floordiv(size, group_width)
        with low.loop(0, groups) as (group, _):
            first = b.add(begin, b.mul(group, group_width))
            starts = [b.add(first, b.mul(width, k)) for k in range(TOGETHER)]
            self._merge(low, to, width, line, starts, end)
        pairs = b.ceil_div(size, width)
        with low.loop(b.mul(groups, TOGETHER), pairs) as (pair, _):
            self._merge(low, to, width, line, [b.add(begin, b.mul(pair, width))], end)

    def _merge(
        self, low: Lowering, to: _Lines, width: Index, line: Index, starts: Sequence[Index], limit: Index
    ) -> None:
        """For each start the two runs which begin there and together have a width; all of them are whole if there are
        several."""
        b = low.builder
        half = b.floordiv(width, 2)
        middles = [b.min(b.add(s, half), limit) for s in starts]
        right_ends = [b.min(b.add(m, half), limit) for m in middles]
        carried = [operand_of(index) for pair in zip(starts, middles, strict=True) for index in pair]
        with low.loop(0, b.sub(right_ends[0], starts[0]), carried, sequential=True) as (step, loop):
            for k, (start, left_end, right_end) in enumerate(zip(starts, middles, right_ends, strict=True)):
                at_left, at_right = loop.carried[2 * k : 2 * k + 2]
                i, j = at_left.arg, at_right.arg
                left = self._here.load(low, line, b.min(i, b.sub(left_end, 1)))
                right = self._here.load(low, line, b.min(j, b.sub(right_end, 1)))
                sooner = b.and_(b.compare("LT", j, right_end), self._before(low, right, left))
                from_right = b.or_(sooner, b.compute("not", "pred", b.compare("LT", i, left_end)))
                to.store(low, line, b.add(start, step), _choose(low, from_right, right, left))
                moved = b.select(from_right, 1)
                at_left.next = operand_of(b.add(i, b.sub(1, moved)))
                at_right.next = operand_of(b.add(j, moved))

    def _doubling(self) -> LoweredKernel:
        """All merges of one width, over all lines."""
        low = Lowering("merge", self.plan)
        b = low.builder
        self._width *= 2
        pairs = -(-self.length // self._width)
        to = self._next()
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.floordiv(index, pairs)
            start = b.mul(b.remainder(index, pairs), self._width)
            self._merge(low, to, self._width, line, [start], self.length)
        self._here = to
        return make_kernel(low, self.lines * pairs, PARALLEL_CHUNK_ELEMENTS, [self.x])


def _choose(low: Lowering, chosen: Operand, first: Sequence[Operand], second: Sequence[Operand]) -> list[Operand]:
    return [low.builder.select(chosen, x, y) for x, y in zip(first, second, strict=True)]
