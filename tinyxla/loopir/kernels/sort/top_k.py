"""Top-k by threshold selection: the first k elements of an order along the minor dimension.

A line is cut into groups. The k-th smallest of the groups' minima is a threshold: at least k elements do not exceed the
threshold, so the result is among these candidates. Mostly there are few others, and blocks without candidates are
skipped. If candidates are too many they are reduced to k, which gives a new threshold. One thread processes a line; a
long line is cut into chunks, whose first k elements are merged by the same algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_native_type
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.compiler.passes.canonicalize.sort import are_batched_short_keys
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand, operand_of
from tinyxla.loopir.kernels.sort import sorting_network
from tinyxla.loopir.kernels.sort.radix_sort import (
    MIN_CHUNK_ELEMENTS,
    MIN_PARALLEL_LINES,
    OrderedKeys,
    SortBuilder,
    SortProblem,
    results_by_index,
    segments_between,
)
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.target import current_target
from tinyxla.ops import movement
from tinyxla.shapes import Shape, element_type

BLOCK = 64  # elements that are skipped together if none passes the threshold
MAX_CANDIDATES = 1 << 12  # candidates at once
MAX_SELECTED = 64  # k up to which candidates are selected one by one
MAX_COMPARISONS = 1 << 14  # k times the length of a line up to which all its elements are candidates
MIN_CHUNK_PER_K = 1 << 10  # elements of a chunk for each of the k
MIN_NETWORK_K = 16  # least k, and reciprocal of the least fraction k / length, for which a network sorts all elements


def supports(x: Instruction) -> bool:
    """Whether the element type is a native one."""
    return is_native_type(x.operands[0].array_shape)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of threshold selection, or of a sort if k is large."""
    (operand,) = x.operands
    k, largest = x.attributes
    shape = operand.array_shape
    index_shape = Shape(element_type(np.int32), shape.dimensions)
    indices = Instruction(movement.iota, (), movement.Iota(index_shape, shape.rank - 1), index_shape)
    keys = OrderedKeys(shape.element_type.name, largest, True)
    needed = segments_between(0, k, shape.dimensions[-1])
    sort = SortProblem(x, plan, keys, (operand, indices), results_by_index(x, users), shape.rank - 1, needed)
    if not k * sort.lines:
        return []
    if k > max(MIN_NETWORK_K, sort.length // MIN_NETWORK_K) and are_batched_short_keys(shape, sort.dimension, 32):
        return sorting_network.kernels(sort)
    if 2 * k > MAX_CANDIDATES:
        return sort.kernels()
    min_chunk = max(MIN_CHUNK_ELEMENTS, MIN_CHUNK_PER_K * k)
    chunks = min(current_target().balanced_tasks, sort.length // min_chunk) if sort.lines < MIN_PARALLEL_LINES else 1
    if chunks < 2:
        return [_TopK(sort, operand, (1, sort.length)).kernel(sort.results)]
    types = shape.element_type, index_shape.element_type
    partial = [Temporary(Shape(type, (sort.lines, chunks, k))) for type in types]
    return [
        _TopK(sort, operand, (chunks, sort.length)).kernel(partial),
        _TopK(sort, partial[0], (1, chunks * k)).kernel(sort.results, partial[1]),
    ]


class _TopK:
    """Emits the kernel that selects the first k elements of each chunk of each line; `sizes` are the chunks per line
    and the length of a line."""

    def __init__(self, sort: SortProblem, source: Storage, sizes: tuple[int, int]) -> None:
        self.sort, self.keys, self.sizes = sort, sort.keys, sizes
        self.routine = SortBuilder(sort, "first")
        self.low, self.b = self.routine.low, self.routine.builder
        selects = sort.keep <= MAX_SELECTED and self.keys.bits <= 32
        self.candidates = (_BySelection if selects else _ByRadixSort)(sort, self.routine)
        self.keep, self.elements = self.candidates.keep, self.routine.buffer(source)

    def kernel(self, results: Sequence[Storage | None], candidate_indices: Temporary | None = None) -> LoweredKernel:
        """The kernel. With `candidate_indices`, an element's index is looked up there."""
        low, b, keep, (chunks, size) = self.low, self.b, self.keep, self.sizes
        index_buffer = candidate_indices and self.routine.buffer(candidate_indices)
        groups = min(MAX_CANDIDATES, max(BLOCK, 1 << (4 * self.sort.keep - 1).bit_length()))
        is_short = size <= MAX_CANDIDATES and (self.sort.keep * size <= MAX_COMPARISONS or size < 2 * BLOCK)
        group_count, rows = (0, 0) if is_short else map(self.routine.parameter, (groups, size // chunks // groups))
        with self.routine.chunks(chunks, size) as (index, line, start, stop):
            self.base = b.mul(line, b.kernel.parameters[-1])
            if is_short:
                with low.loop(0, stop) as (i, _):
                    self._put(i, i)
                self.candidates.keep_smallest(stop)
            else:
                self._group_minima(start, group_count, rows)
                self._filter(start, stop, group_count)
            to = b.mul(index, keep)
            with low.loop(0, keep, sequential=True) as (i, _):
                key, position = self.candidates.get(i)
                if index_buffer:
                    position = b.load(index_buffer, b.add(self.base, b.convert(INDEX, position)))
                for result, value in zip(results, (self.routine.of(key), position), strict=True):
                    if result is not None:
                        b.store(self.routine.buffer(result, True), b.add(to, i), value)
        return self.routine.make_kernel(self.sort.lines * chunks, size // chunks)

    def _key(self, index: Index) -> Operand:
        return self.routine.key(self.b.load(self.elements, self.b.add(self.base, index)))

    def _put(self, to: Index, index: Index) -> Operand:
        key = self._key(index)
        self.candidates.put(to, key, index)
        return key

    def _group_minima(self, start: Index, group_count: Index, rows: Index) -> None:
        """Make the minima of groups, whose elements are strided by the number of groups, the candidates."""
        low, b, type = self.low, self.b, self.keys.type
        minima = b.scratch(type, MAX_CANDIDATES)
        with low.loop(0, group_count, sequential=True) as (j, _):
            b.store(minima, j, self.last)
        with low.loop(0, rows, sequential=True) as (row, _):
            offset = b.add(start, b.mul(row, group_count))
            with low.loop(0, b.floordiv(group_count, BLOCK)) as (block, _), low.loop(0, BLOCK) as (i, _):
                j = b.add(b.mul(block, BLOCK), i)
                minimum = b.compute("minimum", type, b.load(minima, j), self._key(b.add(offset, j)))
                b.store(minima, j, minimum)
        with low.loop(0, group_count, sequential=True) as (j, _):
            self.candidates.put(j, b.load(minima, j), j)

    def _filter(self, start: Index, stop: Index, group_count: Index) -> None:
        """Pass over a chunk with the threshold of the groups' minima, and again with a new threshold whenever
        candidates are too many; elements equal to the first threshold are candidates."""
        low, b, keep, zero = self.low, self.b, self.keep, Literal(INDEX, 0)
        length = b.sub(stop, start)
        blocks, remainder = b.floordiv(length, BLOCK), b.remainder(length, BLOCK)
        begin = b.add(start, remainder)  # of full blocks
        with low.loop(0, b.add(blocks, 2), [zero, operand_of(group_count)], sequential=True) as (pass_index, outer):
            is_first = b.compare("EQ", pass_index, zero)
            threshold, one = self.candidates.keep_smallest(outer.carried[1].arg), Literal(self.keys.type, 1)
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
                loop.continue_while = b.compare("LE", appended.carried[0].result, Literal(INDEX, MAX_CANDIDATES))
            for before, after in zip(outer.carried, loop.carried, strict=True):
                before.next = after.result
            has_more = b.compare("GT", loop.carried[1].result, keep)
            outer.continue_while = b.or_(is_first, has_more)

    @property
    def last(self) -> Literal:
        """The largest key."""
        return Literal(self.keys.type, (1 << self.keys.bits) - 1)


class _BySelection:
    """Candidates as distinct words of a key and an index: k times the smallest word above the one before is
    selected."""

    def __init__(self, sort: SortProblem, routine: SortBuilder) -> None:
        self.low, self.b, self.keep = routine.low, routine.builder, routine.parameter(sort.keep)
        self.key = sort.keys.type
        self.candidates = self.b.scratch("u64", MAX_CANDIDATES + 2 * BLOCK)
        self.selected = self.b.scratch("u64", MAX_SELECTED)

    def put(self, to: Index, key: Operand, index: Index) -> None:
        b = self.b
        b.store(self.candidates, to, b.or_(b.shift_left(b.convert("u64", key), 32), b.convert("u64", index)))

    def get(self, i: Index) -> tuple[Operand, Operand]:
        return self._split(self.b.load(self.selected, i))

    def _split(self, word: Operand) -> tuple[Operand, Operand]:
        return self.b.convert(self.key, self.b.shift_right(word, 32)), self.b.convert("u32", word)

    def keep_smallest(self, count: Index) -> Operand:
        """Reduce `count` candidates to the k smallest; the largest key of these."""
        low, b, last = self.low, self.b, Literal("u64", (1 << 64) - 1)
        with low.loop(0, self.keep, [Literal("u64", 0), last], sequential=True) as (pass_index, rounds):
            lower_bound = rounds.carried[0].arg
            with low.loop(0, count, [last]) as (i, minimum):
                value = b.load(self.candidates, i)
                eligible = b.select(b.compare("GE", value, lower_bound), value, last)
                minimum.carried[0].next = b.compute("minimum", "u64", minimum.carried[0].arg, eligible)
            smallest = minimum.carried[0].result
            b.store(self.selected, pass_index, smallest)
            rounds.carried[0].next = b.compute("add", "u64", smallest, Literal("u64", 1))
            rounds.carried[1].next = smallest
        with low.loop(0, self.keep, sequential=True) as (i, _):
            b.store(self.candidates, i, b.load(self.selected, i))
        return self._split(rounds.carried[1].result)[0]


class _ByRadixSort:
    """Candidates as keys and indices, which are sorted."""

    def __init__(self, sort: SortProblem, routine: SortBuilder) -> None:
        self.routine, self.b, self.keep = routine, routine.builder, routine.parameter(sort.keep)
        self.arrays = routine.scratch(MAX_CANDIDATES + 2 * BLOCK)

    def put(self, to: Index, key: Operand, index: Index) -> None:
        self.routine.put(self.arrays[0], to, [key, self.b.convert("u32", index)])

    def get(self, i: Index) -> tuple[Operand, Operand]:
        return self.routine.key_at(self.arrays[0], i), self.routine.payload(self.arrays[0], i)

    def keep_smallest(self, count: Index) -> Operand:
        self.routine.order(self.arrays, 0, count, 0)
        return self.get(self.b.sub(self.keep, 1))[0]
