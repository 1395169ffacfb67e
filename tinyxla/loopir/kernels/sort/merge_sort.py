"""Merge sort: a stable sort of several arrays by any comparator.

Runs of a few elements are sorted in registers by odd-even transposition, which is stable. Then runs are merged in pairs
without branches: the comparator selects which of two elements is stored next, and never an address, so an inconsistent
comparator yields some permutation.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, section 5.2.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.compiler.costs import CACHED_ELEMENTS, INTERLEAVED, PARALLEL_CHUNK_ELEMENTS
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, operand_of
from tinyxla.loopir.kernels.sort.problem import REGISTER_ELEMENTS, Lines, SortProblem
from tinyxla.loopir.kernels.sort.sorting_network import compare_exchange, less, select
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Temporary


def kernels(sort: SortProblem) -> list[LoweredKernel]:
    """A kernel that sorts blocks of lines, and one for each further merge pass."""
    return _MergeSort(sort).kernels()


class _MergeSort:
    """The state between the passes: the width of sorted runs, and the arrays that hold these."""

    def __init__(self, sort: SortProblem) -> None:
        assert sort.comparator is not None, "it has one"
        self.sort, self.comparator = sort, sort.comparator
        self.length, self.lines = sort.length, sort.lines
        self._spare: list[Lines] = []
        self._width = REGISTER_ELEMENTS
        self._current = self.source = sort.source_lines

    def kernels(self) -> list[LoweredKernel]:
        """The kernels in order."""
        kernels = [self._sort_blocks()]
        while self._width < self.length:
            kernels.append(self._merge_pass())
        return kernels

    def _next_buffers(self) -> Lines:
        """The arrays that the next pass writes: two temporaries in turn, and the results in the last pass."""
        if self._width >= self.length:
            return self.sort.result_lines
        if len(self._spare) < 2:
            shapes = [x.array_shape.with_dimensions((self.lines, self.length)) for x in self.sort.sources]
            self._spare.append(Lines([Temporary(shape) for shape in shapes], self.lines, self.length))
        return self._spare[0] if self._current is not self._spare[0] else self._spare[1]

    def _sort_blocks(self) -> LoweredKernel:
        """The kernel that sorts runs and merges them up to the size of a block."""
        low = Lowering("sort", self.sort.plan)
        b = low.builder
        block = min(CACHED_ELEMENTS, self.length)
        count = -(-self.length // block)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.floordiv(index, count)
            begin, end = b.tile_range(b.remainder(index, count), block, self.length)
            to = self._next_buffers()
            runs = b.ceil_div(b.sub(end, begin), REGISTER_ELEMENTS)
            if self.length <= REGISTER_ELEMENTS:
                self._sort_run(low, to, line, 0, self.length)
            else:
                with low.loop(0, runs) as (number, _):
                    self._sort_run(low, to, line, b.add(begin, b.mul(number, REGISTER_ELEMENTS)), end)
            self._current = to
            levels = max(0, -(-block // REGISTER_ELEMENTS) - 1).bit_length()
            self._ping_pong_merges(low, (levels - (block == self.length)) // 2, line, begin, end)
            while self._width < block:
                self._width *= 2
                to = self._next_buffers()
                self._merge_block(low, to, self._width, line, begin, end)
                self._current = to
        steps = REGISTER_ELEMENTS + max(0, (block // REGISTER_ELEMENTS).bit_length())
        return make_kernel(low, self.lines * count, block * steps * len(self.sort.sources) * 4, [self.sort.x])

    def _sort_run(self, low: Lowering, to: Lines, line: Index, start: Index, end: Index) -> None:
        """Sort a run by odd-even transposition."""
        b = low.builder
        size = min(REGISTER_ELEMENTS, self.length)
        is_full = self.length % REGISTER_ELEMENTS == 0 or self.length < REGISTER_ELEMENTS  # all runs are full
        index = [b.add(start, k) for k in range(size)]
        last = b.sub(end, 1)
        values = [self.source.load(low, line, i if is_full else b.min(i, last)) for i in index]
        is_inside = [None if is_full else b.compare("LT", i, end) for i in index]
        for step in range(size):
            for k in range(step % 2, size - 1, 2):
                first, second = values[k : k + 2]
                values[k : k + 2] = compare_exchange(low, self.comparator, first, second, is_inside[k + 1])
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

    def _merge_block(self, low: Lowering, to: Lines, width: Index, line: Index, begin: Index, end: Index) -> None:
        """One merge pass over a block. Several merges are interleaved as long as all of them are full, since each step
        of a merge depends on the step before."""
        b = low.builder
        size = b.sub(end, begin)
        group_width = b.mul(width, INTERLEAVED)
        groups = b.floordiv(size, group_width)
        with low.loop(0, groups) as (group, _):
            first = b.add(begin, b.mul(group, group_width))
            starts = [b.add(first, b.mul(width, k)) for k in range(INTERLEAVED)]
            self._merge(low, to, width, line, starts, end)
        pairs = b.ceil_div(size, width)
        with low.loop(b.mul(groups, INTERLEAVED), pairs) as (pair, _):
            self._merge(low, to, width, line, [b.add(begin, b.mul(pair, width))], end)

    def _merge(
        self, low: Lowering, to: Lines, width: Index, line: Index, starts: Sequence[Index], limit: Index
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
                is_less = b.and_(b.compare("LT", j, right_end), less(low, self.comparator, right, left))
                from_right = b.or_(is_less, b.compute("not", "pred", b.compare("LT", i, left_end)))
                to.store(low, line, b.add(start, step), select(low, from_right, right, left))
                right_step = b.select(from_right, 1)
                at_left.next = operand_of(b.add(i, b.sub(1, right_step)))
                at_right.next = operand_of(b.add(j, right_step))

    def _merge_pass(self) -> LoweredKernel:
        """The kernel of one merge pass over all lines."""
        low = Lowering("merge", self.sort.plan)
        b = low.builder
        self._width *= 2
        pairs = -(-self.length // self._width)
        to = self._next_buffers()
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.floordiv(index, pairs)
            start = b.mul(b.remainder(index, pairs), self._width)
            self._merge(low, to, self._width, line, [start], self.length)
        self._current = to
        return make_kernel(low, self.lines * pairs, PARALLEL_CHUNK_ELEMENTS, [self.sort.x])
