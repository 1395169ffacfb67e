"""Sort by digits: plain orders of one key, which may take another array along, and the first elements of an order.

Elements become unsigned integers in the same order, the keys, which a routine sorts (`radix_kernel.py`). A long line
first falls into parts, about equally many of every sample, and parts in which nothing is wanted stay unsorted. What the
order holds for equal, zeros and NaNs, has one key; where the elements themselves are wanted they are put back last.

All types of as many bits have the same kernels: what differs are the numbers by which keys are made.
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
from tinyxla.ops import indexing, movement, sorting
from tinyxla.shapes import ElementType, Shape, TupleShape, element_type

PARTS = 1 << 8  # of a long line, whose numbers are bytes
PIECE = 1 << 14  # elements of a line that are worth the work of a thread
MOST_PIECES = 16
SCRATCH = 3 << 16  # bytes for a line
FEW_LINES = 8  # with fewer, threads share a line
SHARE = 1 << 12  # elements of a part
SAMPLE, CELLS = 16, 64  # for each part: elements that tell what belongs there, and cells of equal width
OUTSIDE = 128  # one in so many at either end has no cell of its own
BLOCK = 256  # elements whose keys are made together
ALL = (1 << 64) - 1  # the pieces of a line


def supports(x: Instruction) -> bool:
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


def sort_of(x: Instruction, plan: Plan, users: Users) -> Sort:
    order = sorting.order_of(x.attributes.to_apply)
    assert order is not None, "it is a plain one"
    keys = Keys(x.operands[0].array_shape.element_type.name, order.descending, False)
    results, dimension = results_by_number(x, users), x.attributes.dimensions[0]
    return Sort(x, plan, keys, x.operands, results, dimension, wanted_of(results, dimension, users))


def results_by_number(x: Instruction, users: Users) -> list[Storage | None]:
    """The arrays that a sort gives; None is one that nobody takes."""
    taken = {r.attributes.index if r is not x else 0: r for r in results_of(x, users)}
    count = len(x.shape.elements) if isinstance(x.shape, TupleShape) else 1
    return [taken.get(k) for k in range(count)]


def wanted_of(results: Sequence[Storage | None], dimension: int, users: Users) -> int:
    """A bit for each piece of lines: whether something of it is read."""
    found = 0
    for x in results:
        if isinstance(x, Instruction):
            for reader in users.get(x) or [x]:
                found |= _wanted_by(reader, x, dimension)
    return found


def _wanted_by(reader: Instruction, x: Instruction, dimension: int) -> int:
    size, given = x.array_shape.dimensions[dimension], reader.attributes
    if reader.op is movement.slice_:
        return pieces_between(given.start_indices[dimension], given.limit_indices[dimension], size)
    if reader.op is indexing.gather and given.start_index_map == (dimension,) and reader.operands[0] is x:
        indices = reader.operands[1]
        while indices.op in (movement.broadcast, movement.reshape):
            (indices,) = indices.operands
        if is_constant(indices) and given.slice_sizes[dimension] == 1:
            places = np.clip(indices.attributes.literal.value, 0, size - 1)
            return sum(1 << int(k) for k in np.unique(places >> piece_bits(size)))
    return ALL


def piece_bits(length: int) -> int:
    """Of places in a piece of a line: there are 64 pieces at most, as many as a word has bits."""
    return max(0, (length - 1).bit_length() - 6)


def pieces_between(start: int, stop: int, length: int) -> int:
    bits = piece_bits(length)
    return (2 << (stop - 1 >> bits)) - (1 << (start >> bits)) if start < stop else 0


class Keys(NamedTuple):
    """An order of the elements of a type. In a `total` one each element has a place of its own; else -0 is as 0, and
    all NaNs are one, the last."""

    element: str
    descending: bool
    total: bool

    @property
    def bits(self) -> int:
        return max(8, element_type(self.element).bits)

    @property
    def type(self) -> str:
        """Of keys, which are unsigned integers in this order, and of the bits of elements."""
        return f"u{self.bits}"

    @property
    def restores(self) -> bool:
        """Whether elements are equal that differ."""
        return element_type(self.element).kind == "float" and not self.total

    @property
    def numbers(self) -> list[int]:
        """What keys are made by: the bits that are turned over in what is negative, and in all; those of infinity and
        of the usual NaN."""
        kind, half = element_type(self.element), 1 << (self.bits - 1)
        turned = (half if kind.kind in ("float", "signed") else 0) ^ (2 * half - 1 if self.descending else 0)
        if kind.kind != "float":
            return [0, turned, 0, 0]
        infinity, nan = (int(np.full((), x, kind.dtype).view(f"u{self.bits // 8}")) for x in (np.inf, np.nan))
        return [half - 1, turned, infinity, nan]


def bits_of(kind: ElementType) -> str:
    """The type of an element's bits, if there is one."""
    return kind.name if kind.bits > 64 else f"u{max(8, kind.bits)}"


class Sort:
    """The sort of lines of a key, and of what goes along with it. A result that is None is not taken; of the others the
    pieces `wanted` are, as far as there are lines of results: of the first elements of a long order."""

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        keys: Keys,
        sources: Sequence[Instruction],
        results: Sequence[Storage | None],
        dimension: int,
        wanted: int,
    ) -> None:
        self.x, self.plan, self.keys, self.sources, self.dimension = x, plan, keys, sources, dimension
        self.results = [r if r in plan.live_out else None for r in results]
        sizes = sources[0].array_shape.dimensions
        self.length, self.inner = sizes[dimension], math.prod(sizes[dimension + 1 :])
        self.keep = next((r.array_shape.dimensions[dimension] for r in results if isinstance(r, Instruction)), 0)
        self.wanted = wanted
        self.lines = math.prod(sizes) // max(1, self.length)
        kinds = [bits_of(s.array_shape.element_type) for s in sources]
        joined = len(kinds) == 2 and all(k in ("u8", "u16", "u32") for k in kinds)
        # A key and what goes along may be one number.
        self.numbers = radix_kernel.Numbers(keys.type, ("u64",) if joined else tuple(kinds), 32 if joined else 0)

    def kernels(self) -> list[LoweredKernel]:
        if not self.lines * self.keep:
            return []
        if self.length <= self._room:
            return [self._order_in_scratch()]
        whole = self.lines >= FEW_LINES or self.length < 2 * PIECE
        pieces = 1 if whole else min(MOST_PIECES, self.length // PIECE)
        return _InParts(self, pieces).kernels()

    @property
    def _room(self) -> int:
        """How many elements of a line find room in scratch."""
        return SCRATCH // sum(2 * element_type(type).bits // 8 for type in self.numbers.types)

    def counts_places(self, k: int) -> bool:
        """Whether the elements of a source are their places in their lines."""
        return self.sources[k].op is movement.iota and self.sources[k].attributes.iota_dimension == self.dimension

    def _order_in_scratch(self) -> LoweredKernel:
        routine = Routine(self, "line")
        low, b = routine.low, routine.builder
        length, keep = routine.number(self.length), routine.number(self.keep)
        arrays = routine.scratch(self._room)
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base = b.mul(line, length)
            with low.loop(0, length, sequential=True) as (i, _):
                key, *others = (routine.element(k, i, b.add(base, i)) for k in range(len(self.sources)))
                routine.put(arrays[0], i, [routine.key(key), *others])
            routine.order(arrays, 0, length, 0)
            routine.give(arrays[0], 0, line, (0, length), (length, keep))
        return routine.finished(self.lines, 4 * (self.keys.bits // 9 + 1) * (self.length + (1 << 9)))


# --- what kernels are made of -----------------------------------------------------------------------------------------


class Routine:
    """A kernel that serves all sizes, and all types of as many bits: what depends on them are numbers."""

    def __init__(self, sort: Sort, name: str) -> None:
        self.sort, self.low = sort, Lowering(name, sort.plan)
        self.builder, self.type = self.low.builder, sort.keys.type
        self._words = list[int]()
        self._turned = [self.builder.convert(self.type, self.number(n)) for n in sort.keys.numbers]

    def number(self, value: int) -> Value:
        self._words.append(value - (value >> 63 << 64))  # as a word with a sign
        self.builder.kernel.parameters.append(Value(INDEX, f"n{len(self._words)}"))
        return self.builder.kernel.parameters[-1]

    def buffer(self, x: Storage, written: bool = False) -> Buffer:
        """The bits of an array's elements."""
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.low.buffer(x, written, bits_of(shape.element_type))

    @contextmanager
    def pieces(self, count: int, length: int) -> Generator[tuple[Value, Index, Index, Index]]:
        """A loop over pieces of lines: the number of each, that of its line, and where it begins and ends there."""
        b = self.builder
        pieces, size, end = (self.number(n) for n in (count, -(-length // count), length))
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            if count == 1:
                yield index, index, 0, end
                return
            line = b.floordiv(index, pieces)
            piece = b.sub(index, b.mul(line, pieces))
            start = b.min(b.mul(piece, size), end)
            yield index, line, start, b.min(b.add(start, size), end)

    def finished(self, extent: int, work: int) -> LoweredKernel:
        found = make_kernel(self.low, extent, work, [self.sort.x])
        found.parameters, found.is_builtin = tuple(self._words), True
        return found

    # --- keys

    def key(self, x: Operand) -> Operand:
        """Of the element with these bits."""
        b, type = self.builder, self.type
        negative, every, infinity, nan = self._turned
        if self.sort.keys.restores:
            apart = b.and_(x, negative)
            is_zero, is_nan = b.compare("EQ", apart, Literal(type, 0)), b.compare("GT", apart, infinity)
            x = b.select(is_nan, nan, b.select(is_zero, Literal(type, 0), x))
        return b.compute("xor", type, self._turn(x), every)

    def of(self, key: Operand) -> Operand:
        """The bits of the element whose key this is."""
        return self._turn(self.builder.compute("xor", self.type, key, self._turned[1]))

    def _turn(self, x: Operand) -> Operand:
        b, type = self.builder, self.type
        sign = b.compute("shift-right-arithmetic", type, x, Literal(type, self.sort.keys.bits - 1))
        return b.compute("xor", type, x, b.and_(sign, self._turned[0]))

    def put_back(
        self,
        bounds: tuple[Index, Index],
        length: Value,
        ordered: Callable[[Index], Operand],
        element: Callable[[Index], Operand],
        store: Callable[[Index, Operand], None],
    ) -> None:
        """Write the elements of a line that have a key in common as they are, in their order, if this key is within
        these bounds of what is ordered."""
        low, b, (start, stop) = self.low, self.builder, bounds
        zero, nan = (self.key(x) for x in (Literal(self.type, 0), self._turned[3]))
        with low.loop(0, b.select(b.compare("LT", start, stop), 2), sequential=True) as (kind, _):
            last = b.sub(stop, 1)
            wanted = b.select(b.compare("EQ", kind, 0), zero, nan)
            with low.loop(0, length, [operand_of(start), operand_of(last)], sequential=True) as (_, loop):
                first, end = loop.carried
                middle = b.floordiv(b.add(first.arg, end.arg), 2)
                sooner = b.compare("LT", ordered(middle), wanted)
                first.next = b.select(sooner, b.min(b.add(middle, 1), last), first.arg)
                end.next = b.select(sooner, end.arg, middle)
                loop.continue_while = b.compare("LT", first.next, end.next)
            at = loop.carried[0].result
            there = b.compare("EQ", ordered(at), wanted)
            with low.loop(0, b.select(there, length), [at], sequential=True) as (i, loop):
                value, at = element(i), loop.carried[0].arg
                mine = b.compare("EQ", self.key(value), wanted)
                with low.loop(0, b.select(mine, 1), sequential=True):
                    store(at, value)
                loop.carried[0].next = operand_of(b.add(at, b.select(mine, 1)))

    # --- elements

    def scratch(self, size: int) -> list[list[Buffer]]:
        """To move so many elements to and fro."""
        return [[self.builder.scratch(type, size) for type in self.sort.numbers.types] for _ in (0, 1)]

    def element(self, k: int, i: Index, place: Index) -> Operand:
        """The bits of the element of a source at a place, which is that of its line."""
        if self.sort.counts_places(k):
            return self.counted(k, i)
        return self.builder.load(self.buffer(self.sort.sources[k]), place)

    def counted(self, k: int, place: Index | Operand) -> Operand:
        kind, b = self.sort.sources[k].array_shape.element_type, self.builder
        return b.compute("bitcast-convert", bits_of(kind), b.convert(kind.name, place))

    def put(self, arrays: Sequence[Buffer], at: Index, values: Sequence[Operand]) -> None:
        b, offset = self.builder, self.sort.numbers.offset
        if offset:
            key, value = (b.convert("u64", x) for x in values)
            values = [b.or_(b.shift_left(key, offset), value)]
        for to, value in zip(arrays, values, strict=True):
            b.store(to, at, value)

    def key_at(self, arrays: Sequence[Buffer], at: Index) -> Operand:
        return self.sort.numbers.key_of(self.builder, self.builder.load(arrays[0], at))

    def along(self, arrays: Sequence[Buffer], at: Index) -> Operand:
        """What goes along with a key."""
        value = self.builder.load(arrays[-1], at)
        if not self.sort.numbers.offset:
            return value
        return self.builder.convert(bits_of(self.sort.sources[1].array_shape.element_type), value)

    # --- order

    def order(self, arrays: Sequence[Sequence[Buffer]], start: Index, count: Index, spare: Index) -> None:
        """Sort so many elements of the first arrays from `start` on. The others have room for them from `spare` on."""
        b = self.builder
        places = b.scratch(INDEX, 3)
        for k, place in enumerate((start, count, spare)):
            b.store(places, k, operand_of(place))
        b.call(radix_kernel.provide(self.sort.numbers), *((x, 0) for some in arrays for x in some), (places, 0))

    def give(
        self,
        arrays: Sequence[Buffer],
        at: Index,
        line: Index,
        bounds: tuple[Index, Index],
        sizes: tuple[Value, Value],
    ) -> None:
        """Write what is in order, and at which place in the arrays, to between these bounds of a line of the results,
        as far as there is one. The sizes are those of lines of sources and results."""
        sort, low, b, (length, keep) = self.sort, self.low, self.builder, sizes
        start, stop = bounds[0], b.min(bounds[1], keep)
        to, source, base = b.mul(line, keep), b.mul(line, length), b.sub(at, start)
        with low.loop(start, stop) as (i, _):
            place = b.add(base, i)
            for k, result in enumerate(sort.results):
                if result is not None:
                    value = self.along(arrays, place) if k else self.of(self.key_at(arrays, place))
                    b.store(self.buffer(result, True), b.add(to, i), value)
        result = sort.results[0]
        if sort.keys.restores and result is not None:
            self.put_back(
                (start, stop),
                length,
                lambda i: self.key_at(arrays, b.add(base, i)),
                lambda i: b.load(self.buffer(sort.sources[0]), b.add(source, i)),
                lambda i, value: b.store(self.buffer(result, True), b.add(to, i), value),
            )


# --- long lines -------------------------------------------------------------------------------------------------------


class _InParts:
    """Kernels that let lines fall into parts, one after the other, and sort these."""

    def __init__(self, sort: Sort, pieces: int) -> None:
        self.sort, self.pieces, lines = sort, pieces, sort.lines
        self.shares = min(PARTS - 1, sort.length // SHARE)
        self.sample, self.cells = (n << self.shares.bit_length() for n in (SAMPLE, CELLS))
        shapes = [Shape(element_type(type), (lines, sort.length)) for type in sort.numbers.types]
        whole = [r for r in sort.results if r is not None and sort.keep == sort.length]
        self.first = [Temporary(shape) for shape in shapes]
        self.has_room = bool(whole) and len(sort.sources) == 1  # in the result
        self.second: Sequence[Storage] = whole if self.has_room else [Temporary(shape) for shape in shapes]
        # The parts of the elements, where results are in the end.
        self.parts = whole[0] if whole else Temporary(Shape(element_type("u8"), (lines, sort.length)))
        self.ends = Temporary(Shape(element_type(sort.keys.type), (lines, 2)))  # of the cells
        self.table = Temporary(Shape(element_type("u8"), (lines, self.cells)))  # in which part a cell is
        of_parts = Shape(element_type(INDEX), (lines, pieces, PARTS))
        self.counts, self.starts, self.stops = (Temporary(of_parts) for _ in range(3))

    def kernels(self) -> list[LoweredKernel]:
        return [self._sample(), self._count(), self._part(), self._order()]

    def _sample(self) -> LoweredKernel:
        """Make cells of equal width, and put as many neighbours into a part as hold their share of the sample; a few
        keys have a part each. Cells are made twice, the second time without the ends of the sample: a key far from all
        others shall not make them wide."""
        sort, r = self.sort, Routine(self.sort, "sample")
        low, b, type = r.low, r.builder, r.type
        keys, counters = b.scratch(type, SAMPLE * PARTS), b.scratch("s32", CELLS * PARTS)
        cells, digits = (r.number(n) for n in (self.cells, self.cells.bit_length() - 1))
        step, length = r.number(sort.length // self.sample), r.number(sort.length)
        shares, sample, outside = (r.number(n) for n in (self.shares, self.sample, self.sample // OUTSIDE))
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base, table = b.mul(line, length), b.mul(line, cells)
            with low.loop(0, sample, sequential=True) as (i, _):
                at = b.add(base, b.mul(i, step))
                b.store(keys, i, r.key(b.load(r.buffer(sort.sources[0]), at)))
            found = radix_kernel.limits(b, type, 0, sample, lambda i: b.load(keys, i), sequential=True)
            with low.loop(0, 2, found, sequential=True) as (_, turns):
                ends = [slot.arg for slot in turns.carried]
                for k, value in enumerate(ends):
                    b.store(r.buffer(self.ends, True), b.add(b.mul(line, 2), k), value)
                with low.loop(0, cells, sequential=True) as (i, _):
                    b.store(counters, i, Literal("s32", 0))
                shift, cell = self._cell(r, ends, digits)
                with low.loop(0, sample, sequential=True) as (i, _):
                    at = b.convert(INDEX, cell(b.load(keys, i)))
                    b.store(counters, at, b.compute("add", "s32", b.load(counters, at), Literal("s32", 1)))
                few = b.compare("LE", radix_kernel.width_of(b, *ends), b.min(digits, PARTS.bit_length() - 1))
                with low.loop(0, cells, [Literal(INDEX, 0)] * 3, sequential=True) as (i, loop):
                    before, first, last = (slot.arg for slot in loop.carried)
                    upto = b.add(before, b.convert(INDEX, b.load(counters, i)))
                    part = b.select(few, i, b.floordiv(b.mul(before, shares), sample))
                    b.store(r.buffer(self.table, True), b.add(table, i), b.convert("u8", part))
                    early = b.compare("LE", upto, outside)
                    late = b.compare("GE", before, b.sub(sample, outside))
                    updated = upto, b.select(early, b.add(i, 1), first), b.select(late, last, i)
                    for slot, value in zip(loop.carried, updated, strict=True):
                        slot.next = operand_of(value)
                limit = b.compute("subtract", type, ends[1], ends[0])
                for slot, found, more in zip(turns.carried, loop.carried[1:], (0, 1), strict=True):
                    number = b.convert(type, b.compute("add", INDEX, found.result, Literal(INDEX, more)))
                    apart = b.compute("subtract", type, b.shift_left(number, shift), Literal(type, more))
                    slot.next = b.compute("add", type, ends[0], b.compute("minimum", type, apart, limit))
                narrower = [slot.next for slot in turns.carried if slot.next is not None]
                turns.continue_while = b.compare(
                    "LT", radix_kernel.width_of(b, *narrower), radix_kernel.width_of(b, *ends)
                )
        return r.finished(sort.lines, 16 * (self.sample + self.cells))

    def _cell(self, r: Routine, ends: Sequence[Operand], digits: Value) -> tuple[Operand, Callable[[Operand], Value]]:
        """By how many bits cells are wide, and in which one a key is; one beyond an end is in the first or last."""
        b, type, (least, last) = r.builder, r.type, ends
        shift = radix_kernel.shift_of(b, type, b.max(b.sub(radix_kernel.width_of(b, least, last), digits), 0))

        def cell(key: Operand) -> Value:
            inside = b.compute("minimum", type, b.compute("maximum", type, key, least), last)
            return b.convert("s32", b.shift_right(b.compute("subtract", type, inside, least), shift))

        return shift, cell

    @contextmanager
    def _elements(
        self,
        r: Routine,
        line: Index,
        length: Index,
        bounds: Sequence[Index],
        type: str,
        of: Callable[[Operand], Operand],
    ) -> Generator[tuple[Operand, Index, Index]]:
        """A loop over elements of a piece of a line: what is `of` a key, made for many at once, the element's number
        and place."""
        low, b, (start, stop) = r.low, r.builder, bounds
        made, base, size = b.scratch(type, BLOCK), b.mul(line, length), b.sub(stop, start)
        with low.loop(0, b.ceil_div(size, BLOCK), sequential=True) as (block, _):
            before, count = b.tile_start_and_size(block, BLOCK, size)
            here = b.add(start, before)
            with low.loop(0, count) as (i, _):
                place = b.add(base, b.add(here, i))
                b.store(made, i, of(r.key(b.load(r.buffer(self.sort.sources[0]), place))))
            with low.loop(0, count, sequential=True) as (i, _):
                number = b.add(here, i)
                yield b.load(made, i), number, b.add(base, number)

    def _count(self) -> LoweredKernel:
        """Find the parts of all elements, and how many of a piece there are in each."""
        sort, r = self.sort, Routine(self.sort, "count")
        low, b = r.low, r.builder
        cells, digits, length = (r.number(n) for n in (self.cells, self.cells.bit_length() - 1, sort.length))
        counters, parts = low.buffer(self.counts, True), low.buffer(self.parts, True, "u8")
        with r.pieces(self.pieces, sort.length) as (number, line, *bounds):
            first, table = b.mul(number, PARTS), b.mul(line, cells)
            ends = [b.load(r.buffer(self.ends), b.add(b.mul(line, 2), k)) for k in (0, 1)]
            with low.loop(0, PARTS) as (k, _):
                b.store(counters, b.add(first, k), Literal(INDEX, 0))
            _, cell = self._cell(r, ends, digits)
            with self._elements(r, line, length, bounds, "s32", cell) as (at, _, place):
                part = b.load(r.buffer(self.table), b.add(table, b.convert(INDEX, at)))
                b.store(parts, place, part)
                at = b.add(first, b.convert(INDEX, part))
                b.store(counters, at, operand_of(b.add(b.load(counters, at), 1)))
        return r.finished(sort.lines * self.pieces, 8 * sort.length // self.pieces)

    def _part(self) -> LoweredKernel:
        """A piece's elements of a part come after all of the parts before, and after those of the pieces before. Those
        of which nothing is wanted are left out."""
        sort, r = self.sort, Routine(self.sort, "part")
        low, b = r.low, r.builder
        many, length, wanted, bits = (
            r.number(n) for n in (self.pieces, sort.length, sort.wanted, piece_bits(sort.length))
        )
        arrays, parts = [r.buffer(x, True) for x in self.first], low.buffer(self.parts, type="u8")
        counts, counters, steps = low.buffer(self.counts), b.scratch(INDEX, PARTS), b.scratch(INDEX, PARTS)

        def pieces_until(place: Index, more: int) -> Operand:
            """A bit for each piece before that of a place, and so many more."""
            piece = b.shift_right(place, radix_kernel.shift_of(b, INDEX, bits))
            return b.shift_left(1 << more, radix_kernel.shift_of(b, INDEX, piece))

        with r.pieces(self.pieces, sort.length) as (number, line, *bounds):
            begin, base = (b.mul(line, n) for n in (many, length))
            with low.loop(0, PARTS, [Literal(INDEX, 0)], sequential=True) as (k, totals):
                start = totals.carried[0].arg
                with low.loop(0, many, [start, start], sequential=True) as (p, loop):
                    every, before = loop.carried
                    piece = b.add(begin, p)
                    count = b.load(counts, b.add(b.mul(piece, PARTS), k))
                    earlier = b.compare("LT", piece, number)
                    every.next = operand_of(b.add(every.arg, count))
                    before.next = operand_of(b.add(before.arg, b.select(earlier, count)))
                stop = every.result
                touched = b.compute("subtract", INDEX, pieces_until(b.sub(stop, 1), 1), pieces_until(start, 0))
                is_wanted = b.compare("NE", b.and_(touched, wanted), 0)
                b.store(counters, k, operand_of(b.add(base, before.result)))
                b.store(steps, k, b.select(is_wanted, 1))
                at = b.add(b.mul(number, PARTS), k)
                for ends, end in ((self.starts, b.select(is_wanted, start, stop)), (self.stops, stop)):
                    b.store(low.buffer(ends, True), at, end)
                totals.carried[0].next = stop
            with self._elements(r, line, length, bounds, r.type, lambda key: key) as (key, inside, at):
                part = b.convert(INDEX, b.load(parts, at))
                others = [r.element(k, inside, at) for k in range(1, len(sort.sources))]
                place = b.load(counters, part)
                step = 1 if sort.wanted == ALL else b.load(steps, part)
                b.store(counters, part, operand_of(b.add(place, step)))
                r.put(arrays, place, [key, *others])
        return r.finished(sort.lines * self.pieces, 8 * sort.length // self.pieces)

    def _order(self) -> LoweredKernel:
        sort, r = self.sort, Routine(self.sort, "order")
        low, b = r.low, r.builder
        length, keep, many = (r.number(n) for n in (sort.length, sort.keep, self.pieces * PARTS))
        arrays = [[r.buffer(x, True) for x in some] for some in (self.first, self.second)]

        def bounds(number: Index) -> tuple[Index, Index, list[Value]]:
            line = b.floordiv(number, PARTS)
            at = b.add(b.mul(line, many), b.remainder(number, PARTS))
            ends = [b.load(low.buffer(x), at) for x in (self.starts, self.stops)]
            return line, b.add(b.mul(line, length), ends[0]), ends

        _, spare, _ = bounds(b.kernel.first)  # there is room for all parts of the loop, and so for each
        with low.loop(b.kernel.first, b.kernel.last) as (number, _):
            line, place, (start, stop) = bounds(number)
            r.order(arrays, place, b.sub(stop, start), place if self.has_room else spare)
            r.give(arrays[0], place, line, (start, stop), (length, keep))
        return r.finished(sort.lines * PARTS, 32 * sort.length // PARTS)
