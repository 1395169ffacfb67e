"""Sorting networks for many short lines: one line per vector lane. All lines take the same compare-exchange steps, each
of which orders pairs of rows of vectors.

Keys are sorted by bitonic merges. If more than keys is read, words of a key and an index are sorted, of which no two
are equal, and the elements at the indices are gathered at the end. Keys alone do not distinguish zeros from each other,
nor NaNs: lines with unusual ones have them restored in their original order.

Any comparator takes odd-even transposition: it exchanges neighbours only, and only if the second one comes first, so it
is stable.

Source: K. E. Batcher, Sorting networks and their applications (1968); D. E. Knuth, "The Art of Computer Programming",
volume 3, section 5.2.2, algorithm M (for a few rows) and section 5.3.4 (bitonic merges); A. N. Habermann, Parallel
neighbor-sort (1972).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tinyxla.compiler.costs import LINE_BYTES
from tinyxla.compiler.passes.canonicalize.sort import MAX_SHORT_ELEMENTS, are_batched_short_keys
from tinyxla.hlo import Computation
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand, operand_of
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.gemm import packing
from tinyxla.loopir.kernels.sort.problem import BLOCK, REGISTER_ELEMENTS, SortProblem, element_offset
from tinyxla.loopir.kernels.sort.sort_builder import SortBuilder
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.shapes import element_type


def supports(sort: SortProblem) -> bool:
    """Whether lines are short and many, in a plain order of keys that fit into words."""
    return sort.keys is not None and are_batched_short_keys(sort.sources, sort.dimension)


def kernels(sort: SortProblem) -> list[LoweredKernel]:
    """The kernel of a sort by keys."""
    return [_BatchedNetwork(sort).kernel()]


def transposition_kernels(sort: SortProblem) -> list[LoweredKernel]:
    """The kernel of a sort by a comparator."""
    assert sort.comparator is not None, "it has one"
    low = Lowering("transposition", sort.plan)
    b, length, source = low.builder, sort.length, sort.source_lines
    rows = [b.scratch(x.array_shape.element_type.name, length * BLOCK) for x in sort.sources]
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, count = b.tile_start_and_size(index, BLOCK, sort.lines)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for row, value in zip(rows, source.load(low, b.add(begin, lane), i), strict=True):
                b.store(row, b.add(b.mul(i, BLOCK), lane), value)
        with low.loop(0, length, sequential=True) as (step, _):
            parity = b.remainder(step, 2)
            with low.loop(0, b.floordiv(b.sub(length, parity), 2), sequential=True) as (pair, _):
                upper = b.mul(b.add(b.mul(pair, 2), parity), BLOCK)
                with low.loop(0, count) as (lane, _):
                    positions = [b.add(upper, lane), b.add(upper, BLOCK, lane)]
                    first, second = ([b.load(row, at) for row in rows] for at in positions)
                    ordered = compare_exchange(low, sort.comparator, first, second)
                    for at, values in zip(positions, ordered, strict=True):
                        for row, value in zip(rows, values, strict=True):
                            b.store(row, at, value)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            values = [b.load(row, b.add(b.mul(i, BLOCK), lane)) for row in rows]
            sort.result_lines.store(low, b.add(begin, lane), i, values)
    return [make_kernel(low, -(-sort.lines // BLOCK), BLOCK * length * length * 4, [sort.x])]


def compare_exchange(
    low: Lowering,
    comparator: Computation,
    first: Sequence[Operand],
    second: Sequence[Operand],
    is_in_range: Operand | None = None,
) -> tuple[list[Operand], list[Operand]]:
    """Two elements in order: exchanged if the comparator puts the second one first, and that is in range."""
    b = low.builder
    is_less = less(low, comparator, second, first)
    swap = is_less if is_in_range is None else b.and_(is_less, is_in_range)
    return select(low, swap, second, first), select(low, swap, first, second)


def less(low: Lowering, comparator: Computation, first: Sequence[Operand], second: Sequence[Operand]) -> Operand:
    """Whether the comparator puts the first element before the second one."""
    pairs = [value for pair in zip(first, second, strict=True) for value in pair]
    return low.apply(comparator, pairs)[0]


def select(low: Lowering, condition: Operand, first: Sequence[Operand], second: Sequence[Operand]) -> list[Operand]:
    """The first element if the condition holds, else the second one."""
    return [low.builder.select(condition, x, y) for x, y in zip(first, second, strict=True)]


# --- networks of keys -------------------------------------------------------------------------------------------------


class _BatchedNetwork:
    """Emits the kernel: as many lines at once as a vector has words."""

    def __init__(self, sort: SortProblem) -> None:
        self.sort, self.routine = sort, SortBuilder(sort, "network")
        self.keys = self.routine.keys
        self.low, self.b = self.routine.low, self.routine.builder
        self.keys_only = len(sort.sources) == 1
        self.initial_bits = [Literal(self.keys.type, 0)] if self.keys_only and self.keys.restores else []
        wide = ("u32", 16) if self.keys.bits <= 16 else ("u64", 32)
        self.word_type, self.shift = (self.keys.type, 0) if self.keys_only else wide
        self.lanes = 8 * LINE_BYTES // element_type(self.word_type).bits
        self.has_contiguous_lines = sort.inner >= self.lanes  # neighbouring lines are contiguous in memory
        self.rows = self.b.scratch(self.word_type, MAX_SHORT_ELEMENTS * self.lanes)
        self.length, self.keep = self.routine.parameter(sort.length), self.routine.parameter(sort.keep.stop)
        is_complete = sort.keep.stop == sort.result_length
        self.result_length = self.keep if is_complete else self.routine.parameter(sort.result_length)
        self.inner: Index = 1 if sort.inner == 1 else self.routine.parameter(sort.inner)
        self.is_transposed = sort.inner == 1 and not self.has_contiguous_lines
        # The elements in rows; the rows of keys themselves if nothing else is sorted.
        self.elements = self.rows if self.keys_only else self.b.scratch(self.keys.type, MAX_SHORT_ELEMENTS * self.lanes)
        self.sizes = self.b.scratch(INDEX, len(packing.COPY_ARGUMENTS))

    def kernel(self) -> LoweredKernel:
        """The kernel: keys, the network, results."""
        low, b, sort, parameter = self.low, self.b, self.sort, self.routine.parameter
        network, arguments = _network(self.word_type), b.scratch(INDEX, len(_NETWORK_ARGUMENTS))
        group_extent = sort.inner if self.has_contiguous_lines else sort.lines
        block_count, width = parameter(-(-group_extent // self.lanes)), parameter(group_extent)
        levels = (max(0, sort.length - 1) // REGISTER_ELEMENTS).bit_length()
        sizes = {"padded_length": parameter(REGISTER_ELEMENTS << levels), "levels": parameter(levels)}
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            self.outer = b.floordiv(index, block_count) if self.has_contiguous_lines else 0
            block = b.sub(index, b.mul(self.outer, block_count))
            self.begin, self.count = b.tile_start_and_size(block, self.lanes, width)
            if self.is_transposed:
                self._transpose_in()
            elif not self.has_contiguous_lines:
                self._nest(self.length, self._copy)
            differing_bits = self._row_loop(self.length, self._store_key, self.initial_bits)
            store_arguments(b, arguments, _NETWORK_ARGUMENTS, length=self.length, **sizes)
            b.call(network, (self.rows, 0), (arguments, 0))
            if self.keys_only and not self.has_contiguous_lines:
                self._row_loop(self.keep, self._keys_to_elements)
            if self.is_transposed and self.keys_only:
                self._transpose_out()
            else:
                self._nest(self.keep, self._store_results)
            for word in differing_bits:
                is_needed = b.compare("NE", word, Literal(word.type, 0))
                with low.loop(0, b.select(is_needed, self.count), sequential=True) as (lane, _):
                    self._restore_equal(lane)
        steps = sort.length * (sort.length - 1).bit_length() ** 2
        return self.routine.make_kernel(
            sort.lines // group_extent * (-(-group_extent // self.lanes)), self.lanes * steps // 8
        )

    # --- elements

    def _nest(self, stop: Index, body: Callable[[Index, Index], None]) -> None:
        """A loop over the elements of the lines, in the order of memory."""
        direction, bounds = 1 if self.has_contiguous_lines else -1, [(0, stop), (0, self.count)]

        def element(at: tuple[Index, ...], carried: Sequence[Operand]) -> list[Operand]:
            body(*at[::direction])
            return []

        sequential = not (self.has_contiguous_lines and self.keys_only)
        self.low.nest(bounds[::direction], [], element, sequential, not sequential)

    def _row_loop(
        self, stop: Index, body: Callable[[Index, Index], Sequence[Operand]], initial: Sequence[Operand] = ()
    ) -> list[Operand]:
        """A vectorized loop over the elements in row order; the result is the bitwise or of what the body returns."""

        def element(at: tuple[Index, ...], carried: Sequence[Operand]) -> list[Operand]:
            return [self.b.or_(x, bits) for x, bits in zip(carried, body(*at), strict=True)]

        return self.low.nest([(0, stop), (0, self.count)], initial, element, force_vectorize=True)

    def _row(self, i: Index, lane: Index) -> Index:
        return self.b.add(self.b.mul(i, self.lanes), lane)

    def _offset(self, size: Index, i: Index, lane: Index) -> Index:
        """Offset of an element in an array whose lines have `size` elements."""
        b, line = self.b, self.b.add(self.begin, lane)
        if self.has_contiguous_lines or self.inner == 1:
            indices = (self.outer, line) if self.has_contiguous_lines else (line, 0)
        else:
            indices = b.floordiv(line, self.inner), b.remainder(line, self.inner)
        return element_offset(b, indices, i, size, self.inner)

    def _element(self, k: int, i: Index, lane: Index) -> Operand:
        return self.b.load(self.routine.buffer(self.sort.sources[k]), self._offset(self.length, i, lane))

    def _copy(self, i: Index, lane: Index) -> None:
        self.b.store(self.elements, self._row(i, lane), self._element(0, i, lane))

    def _transpose_in(self) -> None:
        """Copy contiguous lines to columns of the rows."""
        b, tile_rows = self.b, packing.transpose_size()
        source = self.routine.buffer(self.sort.sources[0])
        with self.low.loop(0, b.ceil_div(self.count, tile_rows)) as (block, _):
            lane, rows = b.tile_start_and_size(block, tile_rows, self.count)
            start = b.mul(b.add(self.begin, lane), self.length)
            self._transpose((self.elements, lane), (source, start), (self.length, self.length, rows, self.lanes))

    def _transpose_out(self) -> None:
        """Copy columns of the rows to contiguous lines."""
        b, tile_rows, (result,) = self.b, packing.transpose_size(), self.sort.results
        assert result is not None, "nothing else is read"
        to, start = self.routine.buffer(result, True), b.mul(self.begin, self.result_length)
        with self.low.loop(0, b.ceil_div(self.keep, tile_rows)) as (block, _):
            row, rows = b.tile_start_and_size(block, tile_rows, self.keep)
            source = (self.elements, b.mul(row, self.lanes))
            self._transpose((to, b.add(start, row)), source, (self.count, self.lanes, rows, self.result_length))

    def _transpose(self, to: tuple[Buffer, Index], source: tuple[Buffer, Index], sizes: Sequence[Index]) -> None:
        for k, size in enumerate((*sizes, sizes[0])):
            self.b.store(self.sizes, k, operand_of(size))
        self.b.call(packing.transpose(self.keys.bits, is_exact=True), to, source, (self.sizes, 0))

    def _store_key(self, i: Index, lane: Index) -> list[Operand]:
        """Replace an element by its key, or by its key and index; the result is the bits in which the element differs
        from the usual one with this key."""
        b, at = self.b, self._row(i, lane)
        x = self._element(0, i, lane) if self.has_contiguous_lines else b.load(self.elements, at)
        key = word = self.routine.key(x)
        if self.shift:
            high_bits = b.shift_left(b.convert(self.word_type, key), self.shift)
            word = b.or_(high_bits, b.convert(self.word_type, i))
        b.store(self.rows, at, word)
        return [b.compute("xor", key.type, x, self.routine.of(key))] if self.initial_bits else []

    def _keys_to_elements(self, i: Index, lane: Index) -> list[Operand]:
        """Replace a key by its element."""
        at = self._row(i, lane)
        self.b.store(self.rows, at, self.routine.of(self.b.load(self.rows, at)))
        return []

    def _store_results(self, i: Index, lane: Index) -> None:
        """Store an element of each result that is read."""
        b, word = self.b, self.b.load(self.rows, self._row(i, lane))
        for k, result in enumerate(self.sort.results):
            if result is None:
                continue
            if self.keys_only:
                value = self.routine.of(word) if self.has_contiguous_lines else word
            else:
                index = b.convert(INDEX, b.and_(word, (1 << self.shift) - 1))
                value = self.routine.index_value(k, index) if self.sort.is_iota(k) else self._element(k, index, lane)
            self.b.store(self.routine.buffer(result, True), self._offset(self.result_length, i, lane), value)

    def _restore_equal(self, lane: Index) -> None:
        """Restore zeros and NaNs of one line."""
        result = self.sort.results[0]
        assert result is not None, "nothing else is read"
        self.routine.restore_equal(
            (0, self.keep),
            self.length,
            lambda i: self._ordered(i, lane),
            lambda i: self._element(0, i, lane),
            lambda i, value: self.b.store(self.routine.buffer(result, True), self._offset(self.length, i, lane), value),
        )

    def _ordered(self, i: Index, lane: Index) -> Operand:
        """The key of an element in order."""
        word = self.b.load(self.rows, self._row(i, lane))
        return word if self.has_contiguous_lines else self.routine.key(word)


# --- exchanges --------------------------------------------------------------------------------------------------------

_NETWORK_ARGUMENTS = ("length", "padded_length", "levels")


@functools.cache
def _network(word_type: str) -> str:
    """Declare `network(rows, (length, padded_length, levels))` and return its symbol: it sorts rows of vectors along
    columns, and pads them to a power of two.

    Blocks are sorted in registers, and merged by one level for each doubling (bitonic merge): the first row of one half
    is compared with the last row of the other half, and so on; then each half is bitonic, and is sorted by pairs at
    half the distance each time, two such steps in one pass over memory and the last ones in registers. Padding is the
    largest key.
    """
    b = _NetworkBuilder(word_type)
    b.sort()
    return declare_kernel(f"network_{word_type}", b.kernel)


class _NetworkBuilder(ParametricBuilder):
    """Builds the network. All positions and sizes are in rows."""

    def __init__(self, word_type: str) -> None:
        super().__init__("network", " ".join(_NETWORK_ARGUMENTS))
        self.word_type, self.lanes = word_type, 8 * LINE_BYTES // element_type(word_type).bits
        self.rows, self.length = self.argument(word_type, True), self.parameter["length"]

    def sort(self) -> None:
        largest = Literal(self.word_type, (1 << element_type(self.word_type).bits) - 1)
        with self.loop(self.length, self.parameter["padded_length"], sequential=True) as (row, _):
            self.store(self.rows, self.mul(row, self.lanes), self.broadcast(largest, self.lanes))
        self._register_merge(0, self.length, _merge_exchange(REGISTER_ELEMENTS))
        with self.loop(0, self.parameter["levels"], [operand_of(REGISTER_ELEMENTS)], sequential=True) as (
            level,
            levels,
        ):
            half = levels.carried[0].arg
            size = self.mul(half, 2)
            levels.carried[0].next = operand_of(size)
            with self.loop(0, self.ceil_div(self.length, size), sequential=True) as (block, _):
                start = self.mul(block, size)
                self._merge_halves(start, half)
                self._merge_bitonic(start, self.min(self.sub(self.length, start), size), half, level)

    def _merge_halves(self, start: Index, half: Index) -> None:
        """Compare the rows of one half with those of the other, in reverse order. Padding stays where it is."""
        end = self.add(start, self.mul(half, 2))
        padding_rows = self.max(self.sub(end, self.length), 0)
        with self.loop(padding_rows, half, sequential=True) as (j, _):
            self._compare_exchange([self.add(start, j), self.sub(self.sub(end, 1), j)], _bitonic_merge(2))

    def _merge_bitonic(self, start: Index, count: Index, half: Index, level: Index) -> None:
        """Sort bitonic halves, of which the first `count` rows are not padding."""
        is_odd = self.remainder(level, 2)
        with self.loop(0, is_odd, sequential=True):
            self._strided_merge(start, count, self.floordiv(half, 2), 2)
        first_stride = self.select(self.compare("EQ", is_odd, 0), self.floordiv(half, 4), self.floordiv(half, 8))
        with self.loop(0, self.floordiv(level, 2), [first_stride], sequential=True) as (_, pairs):
            stride = pairs.carried[0]
            self._strided_merge(start, count, stride.arg, 4)
            stride.next = operand_of(self.floordiv(stride.arg, 4))
        self._register_merge(start, count, _bitonic_merge(REGISTER_ELEMENTS))

    def _strided_merge(self, start: Index, count: Index, stride: Index, block_rows: int) -> None:
        """Sort bitonic sequences of so many rows that are a stride apart."""
        size = self.mul(stride, block_rows)
        with self.loop(0, self.ceil_div(count, size), sequential=True) as (block, _):
            begin = self.add(start, self.mul(block, size))
            with self.loop(0, stride, sequential=True) as (j, _):
                rows = [self.add(begin, j, self.mul(stride, k)) for k in range(block_rows)]
                self._compare_exchange(rows, _bitonic_merge(block_rows))

    def _register_merge(self, start: Index, count: Index, pairs: Sequence[tuple[int, int]]) -> None:
        """Order pairs of rows in blocks that registers hold."""
        with self.loop(0, self.ceil_div(count, REGISTER_ELEMENTS), sequential=True) as (block, _):
            first = self.add(start, self.mul(block, REGISTER_ELEMENTS))
            self._compare_exchange([self.add(first, k) for k in range(REGISTER_ELEMENTS)], pairs)

    def _compare_exchange(self, rows: Sequence[Index], pairs: Sequence[tuple[int, int]]) -> None:
        """Order pairs of rows, in registers."""
        positions = [self.mul(row, self.lanes) for row in rows]
        x = [self.load(self.rows, position, self.lanes) for position in positions]
        for i, j in pairs:
            x[i], x[j] = (self.compute(op, self.word_type, x[i], x[j]) for op in ("minimum", "maximum"))
        for position, vector in zip(positions, x, strict=True):
            self.store(self.rows, position, vector)


def _bitonic_merge(count: int) -> list[tuple[int, int]]:
    """Pairs that sort a bitonic sequence."""
    distances = [count >> k for k in range(1, count.bit_length())]
    return [(i, i + d) for d in distances for i in range(count) if not i & d]


def _merge_exchange(count: int) -> list[tuple[int, int]]:
    """Pairs that sort any sequence (Batcher's merge exchange): for each p = 1, 2, 4, ... pairs at distances p, p / 2,
    ..., 1 within 2 p."""
    word: list[tuple[int, int]] = []
    for p in (1 << n for n in range(count.bit_length() - 1)):
        for k in (p >> n for n in range(p.bit_length())):
            starts = range(k % p, count - k, 2 * k)
            candidates = [(i + j, i + j + k) for i in starts for j in range(k)]
            word += [(i, j) for i, j in candidates if j < count and i // (2 * p) == j // (2 * p)]
    return word
