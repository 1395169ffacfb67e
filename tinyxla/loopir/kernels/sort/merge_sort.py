"""Merge sort: a stable sort of several arrays by any comparator.

Runs of a few elements are sorted in registers by odd-even transposition, which is stable. Then runs are merged in pairs
without branches: the comparator selects which of two elements is stored next, and never an address, so an inconsistent
comparator yields some permutation. Plain orders of one key use a radix sort instead (`radix_sort`), and batches of
short lines sorting networks or transposition sort.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, section 5.2.4.
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

RUN_ELEMENTS = 8  # elements of a run, which is sorted in registers
MAX_EXCHANGE_ELEMENTS = 4  # elements of a line for which a network does not pay for computing keys
# Elements up to which the radix sort, compiled once, is as fast as code for short lines.
MIN_RADIX_ELEMENTS = 4 * RUN_ELEMENTS
INTERLEAVED_MERGES = 4  # independent merges that are interleaved to hide latency
BLOCK_ELEMENTS = 1 << 12  # elements of a line that one thread sorts in the cache


def supports(x: Instruction) -> bool:
    """Whether the comparator can be part of a loop."""
    return is_scalar_computation(x.attributes.to_apply)


class _Lines(NamedTuple):
    """Arrays whose lines are sorted together; `dimension` is the sorted one."""

    arrays: Sequence[Storage | None]  # None is an array that is not read
    sizes: tuple[int, ...]
    dimension: int

    def index_of(self, low: Lowering, line: Index, index: Index) -> Coordinates:
        """The index of an element of a line."""
        others = [n for d, n in enumerate(self.sizes) if d != self.dimension]
        outer = low.split_index(line, others)
        return (*outer[: self.dimension], index, *outer[self.dimension :])

    def load(self, low: Lowering, line: Index, index: Index) -> list[Operand]:
        """An element of each array."""
        index_of = self.index_of(low, line, index)
        return [
            low.value(x, index_of) if isinstance(x, Instruction) else low.load(x, index_of)
            for x in self.arrays
            if x is not None
        ]

    def store(self, low: Lowering, line: Index, index: Index, values: Sequence[Operand]) -> None:
        index_of = self.index_of(low, line, index)
        for x, value in zip(self.arrays, values, strict=True):
            if x is not None:
                low.store(x, index_of, value)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of the sort algorithm that fits the comparator and the lengths."""
    (dimension,) = x.attributes.dimensions
    sizes = x.operands[0].array_shape.dimensions
    if is_batched_short_sort(x) and not (sizes[dimension] <= MAX_EXCHANGE_ELEMENTS and transposition_sort.supports(x)):
        return sorting_network.kernels(radix_sort.sort_problem(x, plan, users))
    if transposition_sort.supports(x):
        return transposition_sort.lower(x, plan, users)
    if (sizes[dimension] > RUN_ELEMENTS or math.prod(sizes) <= MIN_RADIX_ELEMENTS) and radix_sort.supports(x):
        return radix_sort.sort_problem(x, plan, users).kernels()
    source = _Lines(x.operands, sizes, dimension)
    result = _Lines(radix_sort.results_by_index(x, users), sizes, dimension)
    return _MergeSort(x, plan, source, result, x.attributes.to_apply).kernels()


# --- merge sort -------------------------------------------------------------------------------------------------------


class _MergeSort:
    """Kernels that sort blocks of lines, and one further kernel for each merge pass."""

    def __init__(self, x: Instruction, plan: Plan, source: _Lines, result: _Lines, comparator: Computation) -> None:
        self.x, self.plan, self.source, self.result = x, plan, source, result
        self.comparator = comparator
        self.length = source.sizes[source.dimension]
        self.lines = math.prod(source.sizes) // max(1, self.length)
        self._spare: list[_Lines] = []
        self._width = RUN_ELEMENTS
        self._current = source

    def kernels(self) -> list[LoweredKernel]:
        """A kernel of sorted blocks, and one of each further merge pass."""
        if not self.length * self.lines:
            return []
        kernels = [self._sort_blocks()]
        while self._width < self.length:
            kernels.append(self._merge_pass())
        return kernels

    def _next_buffers(self) -> _Lines:
        """The arrays that the next pass writes: two temporaries in turn, and the results in the last pass."""
        if self._width >= self.length:
            return self.result
        if len(self._spare) < 2:
            sizes = (self.lines, self.length)
            shapes = [
                a.shape if isinstance(a, Temporary) else a.array_shape for a in self.source.arrays if a is not None
            ]
            self._spare.append(_Lines([Temporary(s.with_dimensions(sizes)) for s in shapes], sizes, 1))
        return self._spare[0] if self._current is not self._spare[0] else self._spare[1]

    def _less(self, low: Lowering, first: Sequence[Operand], second: Sequence[Operand]) -> Operand:
        """Whether the comparator puts the first elements before the second ones."""
        pairs = [value for pair in zip(first, second, strict=True) for value in pair]
        return low.apply(self.comparator, pairs)[0]

    def _sort_blocks(self) -> LoweredKernel:
        """The kernel that sorts runs and merges them up to the size of a block."""
        low = Lowering("sort", self.plan)
        b = low.builder
        block = min(BLOCK_ELEMENTS, self.length)
        count = -(-self.length // block)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.floordiv(index, count)
            begin, end = b.tile_range(b.remainder(index, count), block, self.length)
            to = self._next_buffers()
            runs = b.ceil_div(b.sub(end, begin), RUN_ELEMENTS)
            if self.length <= RUN_ELEMENTS:
                self._sort_run(low, to, line, 0, self.length)
            else:
                with low.loop(0, runs) as (number, _):
                    self._sort_run(low, to, line, b.add(begin, b.mul(number, RUN_ELEMENTS)), end)
            self._current = to
            levels = max(0, -(-block // RUN_ELEMENTS) - 1).bit_length()
            self._ping_pong_merges(low, (levels - (block == self.length)) // 2, line, begin, end)
            while self._width < block:
                self._width *= 2
                to = self._next_buffers()
                self._merge_block(low, to, self._width, line, begin, end)
                self._current = to
        steps = RUN_ELEMENTS + max(0, (block // RUN_ELEMENTS).bit_length())
        return make_kernel(low, self.lines * count, block * steps * len(self.source.arrays) * 4, [self.x])

    def _sort_run(self, low: Lowering, to: _Lines, line: Index, start: Index, end: Index) -> None:
        """Sort a run by odd-even transposition."""
        b = low.builder
        size = min(RUN_ELEMENTS, self.length)
        is_full = self.length % RUN_ELEMENTS == 0 or self.length < RUN_ELEMENTS  # all runs are full
        index = [b.add(start, k) for k in range(size)]
        last = b.sub(end, 1)
        values = [self.source.load(low, line, i if is_full else b.min(i, last)) for i in index]
        is_inside = [None if is_full else b.compare("LT", i, end) for i in index]
        for step in range(size):
            for k in range(step % 2, size - 1, 2):
                swap = self._less(low, values[k + 1], values[k])
                is_in_range = is_inside[k + 1]
                if is_in_range is not None:
                    swap = b.and_(swap, is_in_range)
                lower, upper = values[k], values[k + 1]
                values[k] = _select(low, swap, upper, lower)
                values[k + 1] = _select(low, swap, lower, upper)
        for k, i in enumerate(index):
            is_present = is_inside[k]
            if is_present is None:
                to.store(low, line, i, values[k])
                continue
            with low.loop(0, b.select(is_present, 1)):
                to.store(low, line, i, values[k])

    def _ping_pong_merges(self, low: Lowering, times: int, line: Index, begin: Index, end: Index) -> None:
        """`times` pairs of merge passes, each to other memory and back."""
        if times < 1:
            return
        b = low.builder
        before = self._current
        with low.loop(0, times, [Literal(INDEX, 2 * self._width)], sequential=True) as (_, loop):
            width: Index = loop.carried[0].arg
            for _ in (0, 1):
                self._width *= 2
                to = self._next_buffers()
                self._merge_block(low, to, width, line, begin, end)
                self._current = to
                width = b.mul(width, 2)
            loop.carried[0].next = operand_of(width)
        assert self._current is before
        self._width <<= 2 * (times - 1)

    def _merge_block(self, low: Lowering, to: _Lines, width: Index, line: Index, begin: Index, end: Index) -> None:
        """One merge pass over a block. Several merges are interleaved as long as all of them are full, since each step
        of a merge depends on the step before."""
        b = low.builder
        size = b.sub(end, begin)
        group_width = b.mul(width, INTERLEAVED_MERGES)
        groups = b.floordiv(size, group_width)
        with low.loop(0, groups) as (group, _):
            first = b.add(begin, b.mul(group, group_width))
            starts = [b.add(first, b.mul(width, k)) for k in range(INTERLEAVED_MERGES)]
            self._merge(low, to, width, line, starts, end)
        pairs = b.ceil_div(size, width)
        with low.loop(b.mul(groups, INTERLEAVED_MERGES), pairs) as (pair, _):
            self._merge(low, to, width, line, [b.add(begin, b.mul(pair, width))], end)

    def _merge(
        self, low: Lowering, to: _Lines, width: Index, line: Index, starts: Sequence[Index], limit: Index
    ) -> None:
        """Merge the two runs that begin at each start and have `width` elements together. If there are several starts,
        all runs are full."""
        b = low.builder
        half = b.floordiv(width, 2)
        middles = [b.min(b.add(s, half), limit) for s in starts]
        right_ends = [b.min(b.add(m, half), limit) for m in middles]
        carried = [operand_of(index) for pair in zip(starts, middles, strict=True) for index in pair]
        with low.loop(0, b.sub(right_ends[0], starts[0]), carried, sequential=True) as (step, loop):
            for k, (start, left_end, right_end) in enumerate(zip(starts, middles, right_ends, strict=True)):
                at_left, at_right = loop.carried[2 * k : 2 * k + 2]
                i, j = at_left.arg, at_right.arg
                left = self._current.load(low, line, b.min(i, b.sub(left_end, 1)))
                right = self._current.load(low, line, b.min(j, b.sub(right_end, 1)))
                is_less = b.and_(b.compare("LT", j, right_end), self._less(low, right, left))
                from_right = b.or_(is_less, b.compute("not", "pred", b.compare("LT", i, left_end)))
                to.store(low, line, b.add(start, step), _select(low, from_right, right, left))
                right_step = b.select(from_right, 1)
                at_left.next = operand_of(b.add(i, b.sub(1, right_step)))
                at_right.next = operand_of(b.add(j, right_step))

    def _merge_pass(self) -> LoweredKernel:
        """The kernel of one merge pass over all lines."""
        low = Lowering("merge", self.plan)
        b = low.builder
        self._width *= 2
        pairs = -(-self.length // self._width)
        to = self._next_buffers()
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.floordiv(index, pairs)
            start = b.mul(b.remainder(index, pairs), self._width)
            self._merge(low, to, self._width, line, [start], self.length)
        self._current = to
        return make_kernel(low, self.lines * pairs, PARALLEL_CHUNK_ELEMENTS, [self.x])


def _select(low: Lowering, condition: Operand, first: Sequence[Operand], second: Sequence[Operand]) -> list[Operand]:
    """The first values if the condition holds, else the second ones."""
    return [low.builder.select(condition, x, y) for x, y in zip(first, second, strict=True)]
