"""Threshold selection: the first k elements of contiguous lines in a plain order, in order.

A line is cut into groups. The k-th smallest of the groups' minima is a threshold: at least k elements do not exceed the
threshold, so the result is among these candidates. Mostly there are few others, and blocks without candidates are
skipped. If candidates are too many they are reduced to k, which gives a new threshold. One thread processes a line; a
long line is cut into chunks, whose first k elements are merged by the same algorithm.

Candidates are keys with their indices, so equal keys keep their order; elements and payloads are gathered at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinyxla.compiler.costs import CACHED_ELEMENTS
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand, operand_of
from tinyxla.loopir.kernels.sort.problem import BLOCK, SortProblem
from tinyxla.loopir.kernels.sort.sort_builder import SortBuilder
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.shapes import Shape, element_type

MAX_SELECTED = BLOCK  # k up to which candidates are selected one by one


def group_count(k: int) -> int:
    """Groups of a line, whose minima are the first candidates."""
    return min(CACHED_ELEMENTS, max(BLOCK, 1 << (4 * k - 1).bit_length()))


def kernels(sort: SortProblem) -> list[LoweredKernel]:
    """One kernel, or two if threads share lines: the first k of each chunk, then of these."""
    k = sort.keep.stop
    chunks = sort.chunks(CACHED_ELEMENTS * max(16, k) // 4)
    if chunks == 1:
        return [_Selection(sort, sort.sources[0], (1, sort.length)).kernel()]
    types = sort.sources[0].array_shape.element_type, element_type("u32")
    keys, indices = (Temporary(Shape(type, (sort.lines, chunks, k))) for type in types)
    return [
        _Selection(sort, sort.sources[0], (chunks, sort.length)).kernel(partial=(keys, indices)),
        _Selection(sort, keys, (1, chunks * k)).kernel(candidate_indices=indices),
    ]


class _Selection:
    """Emits the kernel that selects the first k elements of each chunk of each line; `sizes` are the chunks per line
    and the length of a line."""

    def __init__(self, sort: SortProblem, source: Storage, sizes: tuple[int, int]) -> None:
        self.sort, self.sizes = sort, sizes
        self.routine = SortBuilder(sort, "threshold_selection", payload="u32")
        self.low, self.b, self.keys = self.routine.low, self.routine.builder, self.routine.keys
        self.is_selected = sort.keep.stop <= MAX_SELECTED and bool(self.routine.storage.offset)
        self.keep, self.elements = self.routine.parameter(sort.keep.stop), self.routine.buffer(source)
        self.candidates = self.routine.scratch(CACHED_ELEMENTS + 2 * BLOCK)
        if self.is_selected:
            self.selected = self.b.scratch(self.routine.storage.types[0], MAX_SELECTED)
        else:
            self.spare = self.routine.scratch(CACHED_ELEMENTS + 2 * BLOCK)

    def kernel(self, partial: Sequence[Temporary] = (), candidate_indices: Temporary | None = None) -> LoweredKernel:
        """The kernel. It stores keys and indices to `partial` if there are chunks; with `candidate_indices`, an
        element's index is looked up there."""
        low, b, routine, keep, (chunks, size) = self.low, self.b, self.routine, self.keep, self.sizes
        k = self.sort.keep.stop
        is_short = size <= CACHED_ELEMENTS and (k * size <= 4 * CACHED_ELEMENTS or size < 2 * BLOCK)
        groups = group_count(k)
        smallest_chunk = size - (chunks - 1) * -(-size // chunks)  # the last one
        counts = [] if is_short else [routine.parameter(n) for n in (groups, smallest_chunk // groups)]
        lengths = [] if partial else [routine.parameter(n) for n in (self.sort.length, self.sort.result_length)]
        with routine.chunks(chunks, size) as (number, line, start, stop):
            self.base = b.mul(line, b.kernel.parameters[-1])
            if is_short:
                with low.loop(0, stop) as (i, _):
                    self._put(i, i)
                self._keep_smallest(stop)
            else:
                self._group_minima(start, *counts)
                self._filter(start, stop, counts[0])
            with low.loop(0, keep, sequential=True) as (i, _):
                key, index = routine.key_at(self.candidates, i), routine.payload(self.candidates, i)
                if candidate_indices is not None:
                    at = b.add(self.base, b.convert(INDEX, index))
                    index = b.load(routine.buffer(candidate_indices), at)
                if partial:
                    outputs = list(zip(partial, (routine.of(key), index), strict=True))
                    to = b.add(b.mul(number, keep), i)
                else:
                    outputs = list(self._results(key, b.convert(INDEX, index), b.mul(line, lengths[0])))
                    to = b.add(b.mul(line, lengths[1]), i)
                for output, value in outputs:
                    b.store(routine.buffer(output, True), to, value)
        return routine.make_kernel(self.sort.lines * chunks, size // chunks)

    def _results(self, key: Operand, index: Index, base: Index) -> Iterator[tuple[Storage, Operand]]:
        """Each result, with its element at an index of the line that begins at an offset."""
        for k, result in enumerate(self.sort.results):
            if result is not None:
                is_determined = k == 0 and not self.keys.restores
                offset = self.b.add(base, index)
                yield result, self.routine.of(key) if is_determined else self.routine.element(k, index, offset)

    def _key(self, index: Index) -> Operand:
        return self.routine.key(self.b.load(self.elements, self.b.add(self.base, index)))

    def _put(self, to: Index, index: Index) -> Operand:
        key = self._key(index)
        self.routine.put(self.candidates, to, [key, self.b.convert("u32", index)])
        return key

    def _group_minima(self, start: Index, group_count: Index, rows: Index) -> None:
        """Make the minima of groups, whose elements are strided by the number of groups, the candidates."""
        low, b, type = self.low, self.b, self.keys.type
        minima = b.scratch(type, CACHED_ELEMENTS)
        with low.loop(0, group_count, sequential=True) as (j, _):
            b.store(minima, j, self.last)
        with low.loop(0, rows, sequential=True) as (row, _):
            offset = b.add(start, b.mul(row, group_count))
            with low.loop(0, b.floordiv(group_count, BLOCK)) as (block, _), low.loop(0, BLOCK) as (i, _):
                j = b.add(b.mul(block, BLOCK), i)
                minimum = b.compute("minimum", type, b.load(minima, j), self._key(b.add(offset, j)))
                b.store(minima, j, minimum)
        with low.loop(0, group_count, sequential=True) as (j, _):
            self.routine.put(self.candidates, j, [b.load(minima, j), b.convert("u32", j)])

    def _filter(self, start: Index, stop: Index, group_count: Index) -> None:
        """Pass over a chunk with the threshold of the groups' minima, and again with a new threshold whenever
        candidates are too many; elements equal to the first threshold are candidates."""
        low, b, keep, zero = self.low, self.b, self.keep, Literal(INDEX, 0)
        length = b.sub(stop, start)
        blocks, remainder = b.floordiv(length, BLOCK), b.remainder(length, BLOCK)
        begin = b.add(start, remainder)  # of full blocks
        with low.loop(0, b.add(blocks, 2), [zero, operand_of(group_count)], sequential=True) as (pass_index, outer):
            is_first = b.compare("EQ", pass_index, zero)
            threshold, one = self._keep_smallest(outer.carried[1].arg), Literal(self.keys.type, 1)
            last = b.select(is_first, threshold, b.compute("subtract", self.keys.type, threshold, one))
            end = b.select(b.or_(is_first, b.compare("GE", threshold, one)), blocks)  # no key is below the smallest

            def passes(key: Operand) -> Operand:
                return b.compare("LE", key, last)

            with low.loop(0, b.select(is_first, remainder), sequential=True) as (i, _):
                self._put(i, b.add(start, i))
            initial = [outer.carried[0].arg, b.select(is_first, remainder, keep)]
            with low.loop(initial[0], end, initial, sequential=True) as (block, loop):
                offset = b.add(begin, b.mul(block, BLOCK))
                with low.loop(0, BLOCK, [self.last]) as (i, minimum):
                    slot = minimum.carried[0]
                    slot.next = b.compute("minimum", self.keys.type, slot.arg, self._key(b.add(offset, i)))
                block_size = b.select(passes(slot.result), BLOCK)
                with low.loop(0, block_size, [loop.carried[1].arg], sequential=True) as (i, appended):
                    to = appended.carried[0].arg
                    key = self._put(to, b.add(offset, i))
                    appended.carried[0].next = operand_of(b.add(to, b.select(passes(key), 1)))
                loop.carried[0].next = operand_of(b.add(block, 1))
                loop.carried[1].next = appended.carried[0].result
                loop.continue_while = b.compare("LE", appended.carried[0].result, Literal(INDEX, CACHED_ELEMENTS))
            for before, after in zip(outer.carried, loop.carried, strict=True):
                before.next = after.result
            has_more = b.compare("GT", loop.carried[1].result, keep)
            outer.continue_while = b.or_(is_first, has_more)

    @property
    def last(self) -> Literal:
        """The largest key."""
        return Literal(self.keys.type, (1 << self.keys.bits) - 1)

    def _keep_smallest(self, count: Index) -> Operand:
        """Reduce `count` candidates to the k smallest, in order; the largest key of these."""
        if self.is_selected:
            self._select_smallest(count)
        else:
            self.routine.order([self.candidates, self.spare], 0, count, 0)
        return self.routine.key_at(self.candidates, self.b.sub(self.keep, 1))

    def _select_smallest(self, count: Index) -> None:
        """Select k times the smallest word of a key and an index above the one before."""
        low, b, (candidates,) = self.low, self.b, self.candidates
        type = self.routine.storage.types[0]
        last = Literal(type, (1 << element_type(type).bits) - 1)
        with low.loop(0, self.keep, [Literal(type, 0)], sequential=True) as (selected, rounds):
            lower_bound = rounds.carried[0].arg
            with low.loop(0, count, [last]) as (i, minimum):
                value = b.load(candidates, i)
                eligible = b.select(b.compare("GE", value, lower_bound), value, last)
                minimum.carried[0].next = b.compute("minimum", type, minimum.carried[0].arg, eligible)
            smallest = minimum.carried[0].result
            b.store(self.selected, selected, smallest)
            rounds.carried[0].next = b.compute("add", type, smallest, Literal(type, 1))
        with low.loop(0, self.keep, sequential=True) as (i, _):
            b.store(candidates, i, b.load(self.selected, i))
