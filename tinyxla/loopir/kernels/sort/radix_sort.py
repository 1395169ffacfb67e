"""Radix sort of lines by plain keys: in scratch memory, or through buckets if lines are long.

Elements are mapped to unsigned integers in the same order, the keys, which an LSD radix sort orders (`radix_kernel`). A
long line is first partitioned into buckets of about equal size by a sample of its keys (sample sort); buckets of which
no element is read stay unsorted.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, sections 5.2.1 and 5.2.5; W. D. Frazer and A. C.
McKellar, Samplesort, JACM 17 (1970).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tinyxla.compiler.costs import CACHED_ELEMENTS, SCRATCH_BYTES
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand, Value, operand_of
from tinyxla.loopir.kernels.sort import radix_kernel
from tinyxla.loopir.kernels.sort.problem import ALL_SEGMENTS, BLOCK, SortProblem, segment_shift
from tinyxla.loopir.kernels.sort.sort_builder import SortBuilder, key_storage
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.shapes import Shape, element_type

BUCKETS = 1 << 8  # of a long line; a bucket's number is a byte
SAMPLES_PER_BUCKET = 16  # sampled keys for each bucket; there are four cells of a histogram for each of them


def kernels(sort: SortProblem) -> list[LoweredKernel]:
    """One kernel for lines that fit into scratch memory, otherwise those of the bucket sort."""
    room = _scratch_elements(sort)
    return [_sort_in_scratch(sort, room)] if sort.length <= room else _BucketSort(sort).kernels()


def _scratch_elements(sort: SortProblem) -> int:
    """Elements of a line that fit into scratch memory twice."""
    line_bytes = 3 * SCRATCH_BYTES // 4  # beside counters
    return line_bytes // sum(2 * element_type(type).bits // 8 for type in key_storage(sort).types)


def _sort_in_scratch(sort: SortProblem, room: int) -> LoweredKernel:
    """The kernel that sorts short lines in scratch memory."""
    routine = SortBuilder(sort, "line")
    low, b = routine.low, routine.builder
    length, result_length = routine.parameter(sort.length), routine.parameter(sort.result_length)
    arrays = [routine.scratch(room) for _ in (0, 1)]
    with low.loop(b.kernel.first, b.kernel.last) as (line, _):
        base = b.mul(line, length)
        with low.loop(0, length, sequential=True) as (i, _):
            key, *others = (routine.element(k, i, b.add(base, i)) for k in range(len(sort.sources)))
            routine.put(arrays[0], i, [routine.key(key), *others])
        routine.order(arrays, 0, length, 0)
        routine.write_results(arrays[0], 0, line, (0, length), (length, result_length))
    return routine.make_kernel(sort.lines, 4 * (routine.keys.bits // 9 + 1) * (sort.length + (1 << 9)))


class _BucketSort:
    """Sample sort of long lines: kernels that choose buckets, count, partition, and sort each bucket."""

    def __init__(self, sort: SortProblem) -> None:
        self.sort, lines = sort, sort.lines
        self.chunks = chunks = sort.chunks(4 * CACHED_ELEMENTS)
        self.shares = max(1, min(BUCKETS - 1, sort.length // CACHED_ELEMENTS))
        self.sample = SAMPLES_PER_BUCKET << self.shares.bit_length()
        self.cells = 4 * self.sample
        shapes = [Shape(element_type(type), (lines, sort.length)) for type in key_storage(sort).types]
        complete = [r for r in sort.results if r is not None and sort.result_length == sort.length]
        self.first = [Temporary(shape) for shape in shapes]
        self.has_room = bool(complete) and len(sort.sources) == 1  # in the result's memory
        self.second: Sequence[Storage] = complete if self.has_room else [Temporary(shape) for shape in shapes]
        # The bucket of each element, in the result's memory until that is written.
        self.buckets = complete[0] if complete else Temporary(Shape(element_type("u8"), (lines, sort.length)))
        self.key_range = Temporary(Shape(element_type(key_storage(sort).key), (lines, 2)))  # of the cells
        self.table = Temporary(Shape(element_type("u8"), (lines, self.cells)))  # the bucket of each cell
        bucket_shape = Shape(element_type(INDEX), (lines, chunks, BUCKETS))
        self.counts, self.starts, self.stops = (Temporary(bucket_shape) for _ in range(3))

    def kernels(self) -> list[LoweredKernel]:
        return [self._choose_buckets(), self._histogram(), self._partition(), self._sort_buckets()]

    def _choose_buckets(self) -> LoweredKernel:
        """Assign histogram cells of equal width to buckets of equal shares of the sample; few distinct keys have a
        bucket each.

        Cells are chosen twice, the second time without outliers, so that one extreme key does not make all cells
        wide: one sampled key of 128 at either end.
        """
        sort, r = self.sort, SortBuilder(self.sort, "sample")
        low, b, type = r.low, r.builder, r.type
        max_sample = SAMPLES_PER_BUCKET * BUCKETS
        keys, counters = b.scratch(type, max_sample), b.scratch("s32", 4 * max_sample)
        cells, digits = (r.parameter(n) for n in (self.cells, self.cells.bit_length() - 1))
        step, length = r.parameter(sort.length // self.sample), r.parameter(sort.length)
        shares, sample, outliers = (
            r.parameter(n) for n in (self.shares, self.sample, self.sample // (8 * SAMPLES_PER_BUCKET))
        )
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base, table = b.mul(line, length), b.mul(line, cells)
            with low.loop(0, sample, sequential=True) as (i, _):
                at = b.add(base, b.mul(i, step))
                b.store(keys, i, r.key(b.load(r.buffer(sort.sources[0]), at)))
            sampled = radix_kernel.min_max(b, type, 0, sample, lambda i: b.load(keys, i), sequential=True)
            with low.loop(0, 2, sampled, sequential=True) as (_, passes):
                key_range = [slot.arg for slot in passes.carried]
                for k, value in enumerate(key_range):
                    b.store(r.buffer(self.key_range, True), b.add(b.mul(line, 2), k), value)
                with low.loop(0, cells, sequential=True) as (i, _):
                    b.store(counters, i, Literal("s32", 0))
                shift, cell = self._cell(r, key_range, digits)
                with low.loop(0, sample, sequential=True) as (i, _):
                    at = b.convert(INDEX, cell(b.load(keys, i)))
                    b.store(counters, at, b.compute("add", "s32", b.load(counters, at), Literal("s32", 1)))
                is_narrow = b.compare(
                    "LE", radix_kernel.bit_width(b, *key_range), b.min(digits, BUCKETS.bit_length() - 1)
                )
                with low.loop(0, cells, [Literal(INDEX, 0)] * 3, sequential=True) as (i, loop):
                    before, first, last = (slot.arg for slot in loop.carried)
                    through = b.add(before, b.convert(INDEX, b.load(counters, i)))
                    bucket = b.select(is_narrow, i, b.floordiv(b.mul(before, shares), sample))
                    b.store(r.buffer(self.table, True), b.add(table, i), b.convert("u8", bucket))
                    is_low_outlier = b.compare("LE", through, outliers)
                    is_high_outlier = b.compare("GE", before, b.sub(sample, outliers))
                    updated = through, b.select(is_low_outlier, b.add(i, 1), first), b.select(is_high_outlier, last, i)
                    for slot, value in zip(loop.carried, updated, strict=True):
                        slot.next = operand_of(value)
                limit = b.compute("subtract", type, key_range[1], key_range[0])
                for slot, cell_end, excess in zip(passes.carried, loop.carried[1:], (0, 1), strict=True):
                    number = b.convert(type, b.compute("add", INDEX, cell_end.result, Literal(INDEX, excess)))
                    distance = b.compute("subtract", type, b.shift_left(number, shift), Literal(type, excess))
                    slot.next = b.compute("add", type, key_range[0], b.compute("minimum", type, distance, limit))
                narrower = [slot.next for slot in passes.carried if slot.next is not None]
                passes.continue_while = b.compare(
                    "LT", radix_kernel.bit_width(b, *narrower), radix_kernel.bit_width(b, *key_range)
                )
        return r.make_kernel(sort.lines, 16 * (self.sample + self.cells))

    def _cell(
        self, r: SortBuilder, key_range: Sequence[Operand], digits: Value
    ) -> tuple[Operand, Callable[[Operand], Value]]:
        """The width of cells as a shift, and the function from a key to its cell, clamped."""
        b, type, (smallest, largest) = r.builder, r.type, key_range
        shift = radix_kernel.shift_operand(
            b, type, b.max(b.sub(radix_kernel.bit_width(b, smallest, largest), digits), 0)
        )

        def cell(key: Operand) -> Value:
            position = b.compute("minimum", type, b.compute("maximum", type, key, smallest), largest)
            return b.convert("s32", b.shift_right(b.compute("subtract", type, position, smallest), shift))

        return shift, cell

    @contextmanager
    def _elements(
        self,
        r: SortBuilder,
        line: Index,
        length: Index,
        bounds: Sequence[Index],
        type: str,
        of: Callable[[Operand], Operand],
    ) -> Generator[tuple[Operand, Index, Index]]:
        """A loop over a chunk of a line: `of` a key, computed a block at a time, with the element's index and
        offset."""
        low, b, (start, stop) = r.low, r.builder, bounds
        computed, base, size = b.scratch(type, BLOCK), b.mul(line, length), b.sub(stop, start)
        with low.loop(0, b.ceil_div(size, BLOCK), sequential=True) as (block, _):
            before, count = b.tile_start_and_size(block, BLOCK, size)
            first = b.add(start, before)
            with low.loop(0, count) as (i, _):
                offset = b.add(base, b.add(first, i))
                b.store(computed, i, of(r.key(b.load(r.buffer(self.sort.sources[0]), offset))))
            with low.loop(0, count, sequential=True) as (i, _):
                number = b.add(first, i)
                yield b.load(computed, i), number, b.add(base, number)

    def _histogram(self) -> LoweredKernel:
        """Store each element's bucket and count the elements of each bucket in each chunk."""
        sort, r = self.sort, SortBuilder(self.sort, "count")
        low, b = r.low, r.builder
        cells, digits, length = (r.parameter(n) for n in (self.cells, self.cells.bit_length() - 1, sort.length))
        counters, buckets = low.buffer(self.counts, True), low.buffer(self.buckets, True, "u8")
        with r.chunks(self.chunks, sort.length) as (number, line, *bounds):
            first, table = b.mul(number, BUCKETS), b.mul(line, cells)
            key_range = [b.load(r.buffer(self.key_range), b.add(b.mul(line, 2), k)) for k in (0, 1)]
            with low.loop(0, BUCKETS) as (k, _):
                b.store(counters, b.add(first, k), Literal(INDEX, 0))
            _, cell = self._cell(r, key_range, digits)
            with self._elements(r, line, length, bounds, "s32", cell) as (at, _, offset):
                bucket = b.load(r.buffer(self.table), b.add(table, b.convert(INDEX, at)))
                b.store(buckets, offset, bucket)
                at = b.add(first, b.convert(INDEX, bucket))
                b.store(counters, at, operand_of(b.add(b.load(counters, at), 1)))
        return r.make_kernel(sort.lines * self.chunks, 8 * sort.length // self.chunks)

    def _partition(self) -> LoweredKernel:
        """Move elements to their buckets: behind the buckets before, and behind the same bucket's elements of earlier
        chunks. Buckets that are not needed are left out."""
        sort, r = self.sort, SortBuilder(self.sort, "partition")
        low, b = r.low, r.builder
        chunk_count, length, needed, bits = (
            r.parameter(n) for n in (self.chunks, sort.length, sort.keep.segments, segment_shift(sort.length))
        )
        arrays, buckets = [r.buffer(x, True) for x in self.first], low.buffer(self.buckets, type="u8")
        counts, counters, increments = low.buffer(self.counts), b.scratch(INDEX, BUCKETS), b.scratch(INDEX, BUCKETS)

        def segments_until(offset: Index, excess: int) -> Operand:
            """A bit for each segment before the offset's segment, and `excess` others, plus one."""
            segment = b.shift_right(offset, radix_kernel.shift_operand(b, INDEX, bits))
            return b.shift_left(1 << excess, radix_kernel.shift_operand(b, INDEX, segment))

        with r.chunks(self.chunks, sort.length) as (number, line, *bounds):
            begin, base = (b.mul(line, n) for n in (chunk_count, length))
            with low.loop(0, BUCKETS, [Literal(INDEX, 0)], sequential=True) as (k, totals):
                start = totals.carried[0].arg
                with low.loop(0, chunk_count, [start, start], sequential=True) as (p, loop):
                    total, before = loop.carried
                    chunk = b.add(begin, p)
                    count = b.load(counts, b.add(b.mul(chunk, BUCKETS), k))
                    is_earlier = b.compare("LT", chunk, number)
                    total.next = operand_of(b.add(total.arg, count))
                    before.next = operand_of(b.add(before.arg, b.select(is_earlier, count)))
                stop = total.result
                segments_touched = b.compute(
                    "subtract", INDEX, segments_until(b.sub(stop, 1), 1), segments_until(start, 0)
                )
                is_needed = b.compare("NE", b.and_(segments_touched, needed), 0)
                b.store(counters, k, operand_of(b.add(base, before.result)))
                b.store(increments, k, b.select(is_needed, 1))
                at = b.add(b.mul(number, BUCKETS), k)
                for buffer, end in ((self.starts, b.select(is_needed, start, stop)), (self.stops, stop)):
                    b.store(low.buffer(buffer, True), at, end)
                totals.carried[0].next = stop
            with self._elements(r, line, length, bounds, r.type, lambda key: key) as (key, position, at):
                bucket = b.convert(INDEX, b.load(buckets, at))
                others = [r.element(k, position, at) for k in range(1, len(sort.sources))]
                offset = b.load(counters, bucket)
                step = 1 if sort.keep.segments == ALL_SEGMENTS else b.load(increments, bucket)
                b.store(counters, bucket, operand_of(b.add(offset, step)))
                r.put(arrays, offset, [key, *others])
        return r.make_kernel(sort.lines * self.chunks, 8 * sort.length // self.chunks)

    def _sort_buckets(self) -> LoweredKernel:
        """Sort each bucket and write the results."""
        sort, r = self.sort, SortBuilder(self.sort, "order")
        low, b = r.low, r.builder
        length, result_length, chunk_count = (
            r.parameter(n) for n in (sort.length, sort.result_length, self.chunks * BUCKETS)
        )
        arrays = [[r.buffer(x, True) for x in buffers] for buffers in (self.first, self.second)]

        def bucket_bounds(number: Index) -> tuple[Index, Index, list[Value]]:
            line = b.floordiv(number, BUCKETS)
            at = b.add(b.mul(line, chunk_count), b.remainder(number, BUCKETS))
            ends = [b.load(low.buffer(x), at) for x in (self.starts, self.stops)]
            return line, b.add(b.mul(line, length), ends[0]), ends

        _, spare, _ = bucket_bounds(b.kernel.first)  # room for all buckets of the loop suffices for each
        with low.loop(b.kernel.first, b.kernel.last) as (number, _):
            line, offset, (start, stop) = bucket_bounds(number)
            r.order(arrays, offset, b.sub(stop, start), offset if self.has_room else spare)
            r.write_results(arrays[0], offset, line, (start, stop), (length, result_length))
        return r.make_kernel(sort.lines * BUCKETS, 32 * sort.length // BUCKETS)
