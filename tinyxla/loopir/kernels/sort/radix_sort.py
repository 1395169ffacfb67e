"""Radix sort driver: single-key sorts with an optional payload, partial sorts, and sorts of long lines through buckets.

Elements are mapped to unsigned integers in the same order, the keys, which an LSD radix sort orders (`radix_kernel`). A
long line is first partitioned into buckets of about equal size by a sample of its keys (sample sort); buckets of which
no element is read stay unsorted. Elements that the order holds for equal, zeros and NaNs, share a key; their own bits
are restored at the end.

All types of one width share their kernels: the constants of the key mapping are parameters.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, sections 5.2.1 and 5.2.5; W. D. Frazer and A. C.
McKellar, Samplesort, JACM 17 (1970).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_native_type
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Instruction, is_constant
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand, Value, operand_of
from tinyxla.loopir.kernels.sort import radix_kernel
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage, Temporary, Users
from tinyxla.loopir.target import current_target
from tinyxla.ops import indexing, movement, sorting
from tinyxla.shapes import ElementType, Shape, TupleShape, element_type

BUCKETS = 1 << 8  # of a long line; a bucket's number is a byte
MIN_CHUNK_ELEMENTS = 1 << 14  # elements of a chunk of a line
LINE_SCRATCH_BYTES = 3 << 16  # of a line that is sorted in scratch memory
MIN_PARALLEL_LINES = 8  # with fewer lines, threads share each line
BUCKET_ELEMENTS = 1 << 12  # expected elements of a bucket
SAMPLES_PER_BUCKET, CELLS_PER_BUCKET = 16, 64  # for each bucket: sampled keys, and histogram cells
OUTLIER_FRACTION = 128  # one sampled key of so many, at either end, is an outlier
BLOCK = 256  # elements whose keys are computed in one vector loop
ALL_SEGMENTS = (1 << 64) - 1  # a mask of segments


def supports(x: Instruction) -> bool:
    """Whether the comparator is a plain order of one native key, payload the minor dimension, with at most one
    payload."""
    order = sorting.order_of(x.attributes.to_apply)
    first = x.operands[0].array_shape
    return (
        order is not None
        and order.keys == 1
        and len(x.operands) <= 2
        and x.attributes.dimensions == (first.rank - 1,)
        and first.element_type.kind != "complex"
        and is_native_type(first)
    )


def sort_problem(x: Instruction, plan: Plan, users: Users) -> SortProblem:
    """The sort of an instruction with a plain order."""
    order = sorting.order_of(x.attributes.to_apply)
    assert order is not None, "it is a plain one"
    keys = OrderedKeys(x.operands[0].array_shape.element_type.name, order.descending, False)
    results, dimension = results_by_index(x, users), x.attributes.dimensions[0]
    return SortProblem(x, plan, keys, x.operands, results, dimension, needed_segments(results, dimension, users))


def results_by_index(x: Instruction, users: Users) -> list[Storage | None]:
    """The results of a sort; None for one that is not read."""
    read = {r.attributes.index if r is not x else 0: r for r in results_of(x, users)}
    count = len(x.shape.elements) if isinstance(x.shape, TupleShape) else 1
    return [read.get(k) for k in range(count)]


def needed_segments(results: Sequence[Storage | None], dimension: int, users: Users) -> int:
    """A mask of the segments of a line of which some element is read."""
    segments = 0
    for x in results:
        if isinstance(x, Instruction):
            for reader in users.get(x) or [x]:
                segments |= _segments_read_by(reader, x, dimension)
    return segments


def _segments_read_by(reader: Instruction, x: Instruction, dimension: int) -> int:
    """The segments of `x` that an instruction reads: bounds of a slice, constant indices of a gather, otherwise all."""
    size, attributes = x.array_shape.dimensions[dimension], reader.attributes
    if reader.op is movement.slice_:
        return segments_between(attributes.start_indices[dimension], attributes.limit_indices[dimension], size)
    if reader.op is indexing.gather and attributes.start_index_map == (dimension,) and reader.operands[0] is x:
        indices = reader.operands[1]
        while indices.op in (movement.broadcast, movement.reshape):
            (indices,) = indices.operands
        if is_constant(indices) and attributes.slice_sizes[dimension] == 1:
            positions = np.clip(indices.attributes.literal.value, 0, size - 1)
            return sum(1 << int(k) for k in np.unique(positions >> segment_shift(size)))
    return ALL_SEGMENTS


def segment_shift(length: int) -> int:
    """log2 of a segment's length: a line has at most 64 segments, the bits of a mask."""
    return max(0, (length - 1).bit_length() - 6)


def segments_between(start: int, stop: int, length: int) -> int:
    """A mask of the segments that the range of elements overlaps."""
    bits = segment_shift(length)
    return (2 << (stop - 1 >> bits)) - (1 << (start >> bits)) if start < stop else 0


class OrderedKeys(NamedTuple):
    """An order-preserving bijection from elements of a type to unsigned integers. In a `total` order all elements
    differ; otherwise -0 equals 0, and all NaNs are equal and last."""

    element: str
    descending: bool
    total: bool

    @property
    def bits(self) -> int:
        return max(8, element_type(self.element).bits)

    @property
    def type(self) -> str:
        """The type of keys, and of the bits of elements."""
        return f"u{self.bits}"

    @property
    def restores(self) -> bool:
        """Whether different elements share a key."""
        return element_type(self.element).kind == "float" and not self.total

    @property
    def constants(self) -> list[int]:
        """Constants of the mapping: the bits that are flipped if the element is negative, the bits that are always
        flipped, and the bit patterns of infinity and of the usual NaN."""
        type, sign_bit = element_type(self.element), 1 << (self.bits - 1)
        all_bits = 2 * sign_bit - 1 if self.descending else 0
        flipped_bits = (sign_bit if type.kind in ("float", "signed") else 0) ^ all_bits
        if type.kind != "float":
            return [0, flipped_bits, 0, 0]
        infinity, nan = (int(np.full((), x, type.dtype).view(f"u{self.bits // 8}")) for x in (np.inf, np.nan))
        return [sign_bit - 1, flipped_bits, infinity, nan]


def bits_of(type: ElementType) -> str:
    """The unsigned type of an element's bits; the type itself if it is wider than 64 bits."""
    return type.name if type.bits > 64 else f"u{max(8, type.bits)}"


class SortProblem:
    """A single-key sort along one dimension with an optional payload.

    `results[k]` is None if it is not read. `needed` masks the segments of each line that are read (partial sort); for
    the first elements of an order, lines of results are shorter than those of the sources.
    """

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        keys: OrderedKeys,
        sources: Sequence[Instruction],
        results: Sequence[Storage | None],
        dimension: int,
        needed: int,
    ) -> None:
        self.x, self.plan, self.keys, self.sources, self.dimension = x, plan, keys, sources, dimension
        self.results = [r if r in plan.live_out else None for r in results]
        sizes = sources[0].array_shape.dimensions
        self.length, self.inner = sizes[dimension], math.prod(sizes[dimension + 1 :])
        self.keep = next((r.array_shape.dimensions[dimension] for r in results if isinstance(r, Instruction)), 0)
        self.needed = needed
        self.lines = math.prod(sizes) // max(1, self.length)
        types = [bits_of(s.array_shape.element_type) for s in sources]
        is_packed = len(types) == 2 and all(k in ("u8", "u16", "u32") for k in types)
        # A key and its payload may share one 64-bit word.
        self.storage = radix_kernel.KeyStorage(
            keys.type, ("u64",) if is_packed else tuple(types), 32 if is_packed else 0
        )

    def kernels(self) -> list[LoweredKernel]:
        """The kernels: one for short lines, or those of the bucket sort."""
        if not self.lines * self.keep:
            return []
        if self.length <= self._room:
            return [self._order_in_scratch()]
        whole_lines = self.lines >= MIN_PARALLEL_LINES or self.length < 2 * MIN_CHUNK_ELEMENTS
        chunks = 1 if whole_lines else min(current_target().balanced_tasks, self.length // MIN_CHUNK_ELEMENTS)
        return _BucketSort(self, chunks).kernels()

    @property
    def _room(self) -> int:
        """Elements of a line that fit into scratch memory."""
        return LINE_SCRATCH_BYTES // sum(2 * element_type(type).bits // 8 for type in self.storage.types)

    def is_iota(self, k: int) -> bool:
        """Whether a source holds the indices payload the sorted dimension, which need not be loaded."""
        return self.sources[k].op is movement.iota and self.sources[k].attributes.iota_dimension == self.dimension

    def _order_in_scratch(self) -> LoweredKernel:
        """The kernel that sorts short lines in scratch memory."""
        routine = SortBuilder(self, "line")
        low, b = routine.low, routine.builder
        length, keep = routine.parameter(self.length), routine.parameter(self.keep)
        arrays = routine.scratch(self._room)
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base = b.mul(line, length)
            with low.loop(0, length, sequential=True) as (i, _):
                key, *others = (routine.element(k, i, b.add(base, i)) for k in range(len(self.sources)))
                routine.put(arrays[0], i, [routine.key(key), *others])
            routine.order(arrays, 0, length, 0)
            routine.write_results(arrays[0], 0, line, (0, length), (length, keep))
        return routine.make_kernel(self.lines, 4 * (self.keys.bits // 9 + 1) * (self.length + (1 << 9)))


# --- building blocks of kernels ---------------------------------------------------------------------------------------


class SortBuilder:
    """A builder of kernels that serve all sizes and all types of one width: whatever depends on them is a parameter."""

    def __init__(self, sort: SortProblem, name: str) -> None:
        self.sort, self.low = sort, Lowering(name, sort.plan)
        self.builder, self.type = self.low.builder, sort.keys.type
        self._parameters = list[int]()
        self._key_constants = [self.builder.convert(self.type, self.parameter(n)) for n in sort.keys.constants]

    def parameter(self, value: int) -> Value:
        """A scalar parameter of the kernel with this value."""
        self._parameters.append(value - (value >> 63 << 64))  # as a signed word
        self.builder.kernel.parameters.append(Value(INDEX, f"n{len(self._parameters)}"))
        return self.builder.kernel.parameters[-1]

    def buffer(self, x: Storage, written: bool = False) -> Buffer:
        """An array, as the bits of its elements."""
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.low.buffer(x, written, bits_of(shape.element_type))

    @contextmanager
    def chunks(self, count: int, length: int) -> Generator[tuple[Value, Index, Index, Index]]:
        """A loop over chunks of lines: the chunk's number, its line, and the range of its elements in the line."""
        b = self.builder
        chunks, size, end = (self.parameter(n) for n in (count, -(-length // count), length))
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            if count == 1:
                yield index, index, 0, end
                return
            line = b.floordiv(index, chunks)
            chunk = b.sub(index, b.mul(line, chunks))
            start = b.min(b.mul(chunk, size), end)
            yield index, line, start, b.min(b.add(start, size), end)

    def make_kernel(self, extent: int, work: int) -> LoweredKernel:
        """The lowered kernel with the values of its parameters."""
        kernel = make_kernel(self.low, extent, work, [self.sort.x])
        kernel.parameters, kernel.is_builtin = tuple(self._parameters), True
        return kernel

    # --- keys

    def key(self, x: Operand) -> Operand:
        """The key of the element with these bits."""
        b, type = self.builder, self.type
        negative, flipped, infinity, nan = self._key_constants
        if self.sort.keys.restores:
            magnitude = b.and_(x, negative)
            is_zero, is_nan = b.compare("EQ", magnitude, Literal(type, 0)), b.compare("GT", magnitude, infinity)
            x = b.select(is_nan, nan, b.select(is_zero, Literal(type, 0), x))
        return b.compute("xor", type, self._flip_negative(x), flipped)

    def of(self, key: Operand) -> Operand:
        """The bits of the element with this key."""
        return self._flip_negative(self.builder.compute("xor", self.type, key, self._key_constants[1]))

    def _flip_negative(self, x: Operand) -> Operand:
        """Flip the bits of a negative element that the mapping flips."""
        b, type = self.builder, self.type
        sign = b.compute("shift-right-arithmetic", type, x, Literal(type, self.sort.keys.bits - 1))
        return b.compute("xor", type, x, b.and_(sign, self._key_constants[0]))

    def restore_equal(
        self,
        bounds: tuple[Index, Index],
        length: Value,
        ordered: Callable[[Index], Operand],
        element: Callable[[Index], Operand],
        store: Callable[[Index, Operand], None],
    ) -> None:
        """Restore the bits of elements that share a key, zeros and NaNs, in their original order.

        A binary search finds the first position of the key within `bounds` of the ordered elements.
        """
        low, b, (start, stop) = self.low, self.builder, bounds
        zero, nan = (self.key(x) for x in (Literal(self.type, 0), self._key_constants[3]))
        with low.loop(0, b.select(b.compare("LT", start, stop), 2), sequential=True) as (which, _):
            last = b.sub(stop, 1)
            wanted = b.select(b.compare("EQ", which, 0), zero, nan)
            with low.loop(0, length, [operand_of(start), operand_of(last)], sequential=True) as (_, loop):
                first, end = loop.carried
                middle = b.floordiv(b.add(first.arg, end.arg), 2)
                is_less = b.compare("LT", ordered(middle), wanted)
                first.next = b.select(is_less, b.min(b.add(middle, 1), last), first.arg)
                end.next = b.select(is_less, end.arg, middle)
                loop.continue_while = b.compare("LT", first.next, end.next)
            at = loop.carried[0].result
            has_key = b.compare("EQ", ordered(at), wanted)
            with low.loop(0, b.select(has_key, length), [at], sequential=True) as (i, loop):
                value, at = element(i), loop.carried[0].arg
                is_equal = b.compare("EQ", self.key(value), wanted)
                with low.loop(0, b.select(is_equal, 1), sequential=True):
                    store(at, value)
                loop.carried[0].next = operand_of(b.add(at, b.select(is_equal, 1)))

    # --- elements

    def scratch(self, size: int) -> list[list[Buffer]]:
        """Two sets of scratch arrays for `size` elements, between which a sort moves them."""
        return [[self.builder.scratch(type, size) for type in self.sort.storage.types] for _ in (0, 1)]

    def element(self, k: int, i: Index, offset: Index) -> Operand:
        """The bits of a source's element at an index of its line and an offset in memory."""
        if self.sort.is_iota(k):
            return self.index_value(k, i)
        return self.builder.load(self.buffer(self.sort.sources[k]), offset)

    def index_value(self, k: int, offset: Index | Operand) -> Operand:
        """An index along the line, as the bits of a source's element."""
        type, b = self.sort.sources[k].array_shape.element_type, self.builder
        return b.compute("bitcast-convert", bits_of(type), b.convert(type.name, offset))

    def put(self, arrays: Sequence[Buffer], at: Index, values: Sequence[Operand]) -> None:
        """Store a key and its payload."""
        b, offset = self.builder, self.sort.storage.offset
        if offset:
            key, value = (b.convert("u64", x) for x in values)
            values = [b.or_(b.shift_left(key, offset), value)]
        for to, value in zip(arrays, values, strict=True):
            b.store(to, at, value)

    def key_at(self, arrays: Sequence[Buffer], at: Index) -> Operand:
        return self.sort.storage.key_of(self.builder, self.builder.load(arrays[0], at))

    def payload(self, arrays: Sequence[Buffer], at: Index) -> Operand:
        """The payload of a key."""
        value = self.builder.load(arrays[-1], at)
        if not self.sort.storage.offset:
            return value
        return self.builder.convert(bits_of(self.sort.sources[1].array_shape.element_type), value)

    # --- order

    def order(self, arrays: Sequence[Sequence[Buffer]], start: Index, count: Index, spare: Index) -> None:
        """Sort `count` elements of the first arrays from `start` on; the second arrays have room for them from `spare`
        on."""
        b = self.builder
        indices = b.scratch(INDEX, 3)
        for k, offset in enumerate((start, count, spare)):
            b.store(indices, k, operand_of(offset))
        b.call(
            radix_kernel.declare_radix_sort(self.sort.storage),
            *((x, 0) for buffers in arrays for x in buffers),
            (indices, 0),
        )

    def write_results(
        self, arrays: Sequence[Buffer], at: Index, line: Index, bounds: tuple[Index, Index], sizes: tuple[Value, Value]
    ) -> None:
        """Write ordered elements, which begin at an offset of the arrays, to a range of a line of the results; `sizes`
        are the lengths of lines of sources and results."""
        sort, low, b, (length, keep) = self.sort, self.low, self.builder, sizes
        start, stop = bounds[0], b.min(bounds[1], keep)
        to, source, base = b.mul(line, keep), b.mul(line, length), b.sub(at, start)
        with low.loop(start, stop) as (i, _):
            offset = b.add(base, i)
            for k, result in enumerate(sort.results):
                if result is not None:
                    value = self.payload(arrays, offset) if k else self.of(self.key_at(arrays, offset))
                    b.store(self.buffer(result, True), b.add(to, i), value)
        result = sort.results[0]
        if sort.keys.restores and result is not None:
            self.restore_equal(
                (start, stop),
                length,
                lambda i: self.key_at(arrays, b.add(base, i)),
                lambda i: b.load(self.buffer(sort.sources[0]), b.add(source, i)),
                lambda i, value: b.store(self.buffer(result, True), b.add(to, i), value),
            )


# --- long lines -------------------------------------------------------------------------------------------------------


class _BucketSort:
    """Sample sort of long lines: kernels that choose buckets, count, partition, and sort each bucket."""

    def __init__(self, sort: SortProblem, chunks: int) -> None:
        self.sort, self.chunks, lines = sort, chunks, sort.lines
        self.shares = min(BUCKETS - 1, sort.length // BUCKET_ELEMENTS)
        self.sample, self.cells = (n << self.shares.bit_length() for n in (SAMPLES_PER_BUCKET, CELLS_PER_BUCKET))
        shapes = [Shape(element_type(type), (lines, sort.length)) for type in sort.storage.types]
        complete = [r for r in sort.results if r is not None and sort.keep == sort.length]
        self.first = [Temporary(shape) for shape in shapes]
        self.has_room = bool(complete) and len(sort.sources) == 1  # in the result's memory
        self.second: Sequence[Storage] = complete if self.has_room else [Temporary(shape) for shape in shapes]
        # The bucket of each element, in the result's memory until that is written.
        self.buckets = complete[0] if complete else Temporary(Shape(element_type("u8"), (lines, sort.length)))
        self.key_range = Temporary(Shape(element_type(sort.keys.type), (lines, 2)))  # of the cells
        self.table = Temporary(Shape(element_type("u8"), (lines, self.cells)))  # the bucket of each cell
        bucket_shape = Shape(element_type(INDEX), (lines, chunks, BUCKETS))
        self.counts, self.starts, self.stops = (Temporary(bucket_shape) for _ in range(3))

    def kernels(self) -> list[LoweredKernel]:
        return [self._choose_buckets(), self._histogram(), self._partition(), self._sort_buckets()]

    def _choose_buckets(self) -> LoweredKernel:
        """Assign histogram cells of equal width to buckets of equal shares of the sample; few distinct keys have a
        bucket each.

        Cells are chosen twice, the second time without outliers, so that one extreme key does not make all cells
        wide.
        """
        sort, r = self.sort, SortBuilder(self.sort, "sample")
        low, b, type = r.low, r.builder, r.type
        keys, counters = b.scratch(type, SAMPLES_PER_BUCKET * BUCKETS), b.scratch("s32", CELLS_PER_BUCKET * BUCKETS)
        cells, digits = (r.parameter(n) for n in (self.cells, self.cells.bit_length() - 1))
        step, length = r.parameter(sort.length // self.sample), r.parameter(sort.length)
        shares, sample, outliers = (r.parameter(n) for n in (self.shares, self.sample, self.sample // OUTLIER_FRACTION))
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
            r.parameter(n) for n in (self.chunks, sort.length, sort.needed, segment_shift(sort.length))
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
                step = 1 if sort.needed == ALL_SEGMENTS else b.load(increments, bucket)
                b.store(counters, bucket, operand_of(b.add(offset, step)))
                r.put(arrays, offset, [key, *others])
        return r.make_kernel(sort.lines * self.chunks, 8 * sort.length // self.chunks)

    def _sort_buckets(self) -> LoweredKernel:
        """Sort each bucket and write the results."""
        sort, r = self.sort, SortBuilder(self.sort, "order")
        low, b = r.low, r.builder
        length, keep, chunk_count = (r.parameter(n) for n in (sort.length, sort.keep, self.chunks * BUCKETS))
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
            r.write_results(arrays[0], offset, line, (start, stop), (length, keep))
        return r.make_kernel(sort.lines * BUCKETS, 32 * sort.length // BUCKETS)
