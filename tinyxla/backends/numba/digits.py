"""Sort by digits: plain orders of one key, which may take another array along, and the first elements of an order.

Elements become unsigned integers in the same order, the keys. From the last digit to the first these are moved to where
they belong by that digit alone, in their order, after it was counted how often each digit occurs. This begins with the
upper digits of what the keys of a line differ in: most elements have their place then, and the others one nearby; only
where it is far away all digits are sorted by. A long line first falls into parts, about equally many of every sample,
and parts in which nothing is wanted stay unsorted. What the order holds for equal, zeros and NaNs, has one key; where
the elements themselves are wanted these are put back in the end.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, sections 5.2.1 and 5.2.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import INDEX, Buffer, Index, Literal, Operand, Value, held, operand_of
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Storage, Users, compare, if_
from tinyxla.compiler.fusion import Plan, results_of, supported
from tinyxla.hlo import Instruction, is_constant
from tinyxla.ops import indexing, movement, sorting
from tinyxla.shapes import ElementType, Shape, TupleShape, element_type

DIGIT = 9  # bits
PARTS = 1 << 8  # of a long line, whose numbers are bytes
PIECE = 1 << 14  # elements of a line that are worth the work of a thread
MOST_PIECES = 16
SCRATCH = 3 << 16  # bytes for a line
FEW_LINES = 8  # with fewer, threads share a line
SHARE = 1 << 12  # elements of a part
SAMPLE, CELLS = 16, 64  # for each part: elements that tell what belongs there, and cells of equal width
BLOCK = 256  # elements whose keys are made together
NEAR = 16  # places that an element goes to the front by exchanges


def supports(x: Instruction) -> bool:
    order = sorting.order_of(x.attributes.to_apply)
    first = x.operands[0].array_shape
    return (
        order is not None
        and order.keys == 1
        and len(x.operands) <= 2
        and x.attributes.dimensions == (first.rank - 1,)
        and first.element_type.kind != "complex"
        and supported(first)
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


def wanted_of(results: Sequence[Storage | None], dimension: int, users: Users) -> tuple[int, int]:
    """From where to where the lines of results are read."""
    taken = [r for r in results if isinstance(r, Instruction)]
    bounds = [_bounds(u, r, dimension) for r in taken for u in users.get(r) or [r]]
    return min((start for start, _ in bounds), default=0), max((stop for _, stop in bounds), default=0)


def _bounds(reader: Instruction, x: Instruction, dimension: int) -> tuple[int, int]:
    """Between which places of a dimension an array is read."""
    size, given = x.array_shape.dimensions[dimension], reader.attributes
    if reader.op is movement.slice_:
        return given.start_indices[dimension], given.limit_indices[dimension]
    if reader.op is indexing.gather and given.start_index_map == (dimension,) and reader.operands[0] is x:
        indices, extent = reader.operands[1], given.slice_sizes[dimension]
        while indices.op in (movement.broadcast, movement.reshape):
            (indices,) = indices.operands
        if is_constant(indices) and indices.array_shape.size:
            places = np.clip(indices.attributes.literal.value, 0, size - extent)
            return int(places.min()), int(places.max()) + extent
    return 0, size


# --- keys -------------------------------------------------------------------------------------------------------------


class Keys(NamedTuple):
    """Unsigned integers in the order of the elements of a type. In a `total` order each element has its own; else -0 is
    as 0, and all NaNs are one, the last."""

    element: str
    descending: bool
    total: bool

    @property
    def bits(self) -> int:
        return max(8, element_type(self.element).bits)

    @property
    def type(self) -> str:
        return f"u{self.bits}"

    @property
    def is_float(self) -> bool:
        return element_type(self.element).kind == "float"

    @property
    def restores(self) -> list[Literal]:
        """The keys of elements that are equal, and yet differ."""
        if not self.is_float or self.total:
            return []
        every, half = (1 << self.bits) - 1, 1 << (self.bits - 1)
        return [Literal(self.type, every - key if self.descending else key) for key in (half, half | self._nan)]

    @property
    def _nan(self) -> int:
        """The bits of the usual one."""
        return int(np.full((), np.nan, element_type(self.element).dtype).view(f"u{self.bits // 8}"))

    def key(self, low: Lowering, x: Operand) -> Operand:
        compute, type = low.builder.compute, self.type
        every, half = Literal(type, (1 << self.bits) - 1), Literal(type, 1 << (self.bits - 1))
        kind = element_type(self.element).kind
        if kind == "pred":
            found = compute("convert", type, x)
        elif kind == "unsigned":
            found = x
        else:
            found = compute("bitcast-convert", type, x)
            if kind == "signed":
                found = compute("xor", type, found, half)
            else:
                if not self.total:
                    zero = compare(low, "EQ", x, Literal(self.element, 0.0), "FLOAT")
                    found = compute("select", type, zero, Literal(type, 0), found)
                negative = compare(low, "GE", found, half, "UNSIGNED")
                found = compute("xor", type, found, compute("select", type, negative, every, half))
                if not self.total:
                    nan = Literal(type, self._nan | half.value)
                    found = compute("select", type, compare(low, "NE", x, x, "FLOAT"), nan, found)
        return compute("xor", type, found, every) if self.descending else found

    def of(self, low: Lowering, key: Operand) -> Operand:
        """The element whose key this is."""
        compute, type = low.builder.compute, self.type
        every, half = Literal(type, (1 << self.bits) - 1), Literal(type, 1 << (self.bits - 1))
        found = compute("xor", type, key, every) if self.descending else key
        kind = element_type(self.element).kind
        if kind == "pred":
            return compare(low, "NE", found, Literal(type, 0), "UNSIGNED")
        if kind == "unsigned":
            return found
        if kind == "signed":
            return compute("bitcast-convert", self.element, compute("xor", type, found, half))
        positive = compare(low, "GE", found, half, "UNSIGNED")
        found = compute("xor", type, found, compute("select", type, positive, half, every))
        return compute("bitcast-convert", self.element, found)


def put_back(
    low: Lowering,
    keys: Keys,
    bounds: tuple[Index, Index],
    length: Value,
    ordered: Callable[[Index], Operand],
    element: Callable[[Index], Operand],
    store: Callable[[Index, Operand], None],
) -> None:
    """Write the elements of a line that have a key in common as they are, in their order, if this key is within these
    bounds of what is ordered."""
    b, type = low.builder, keys.type
    zeros, nans = keys.restores
    (start, stop), zero = bounds, Literal(INDEX, 0)
    with low.loop(0, if_(low, compare(low, "LT", start, stop), 2), sequential=True) as (kind, _):
        last = b.index("subtract", stop, 1)
        wanted = b.compute("select", type, compare(low, "EQ", kind, zero, "SIGNED"), zeros, nans)
        inside = b.compute(
            "and",
            "pred",
            compare(low, "LE", ordered(start), wanted, "UNSIGNED"),
            compare(low, "GE", ordered(last), wanted, "UNSIGNED"),
        )
        ends = [operand_of(start), operand_of(last)]
        with low.loop(0, if_(low, inside, length), ends, sequential=True) as (_, loop):
            first, end = loop.carried
            middle = b.index("divide", b.index("add", first.inside, end.inside), 2)
            sooner = compare(low, "LT", ordered(middle), wanted, "UNSIGNED")
            first.updated = if_(low, sooner, b.index("add", middle, 1), first.inside)
            end.updated = if_(low, sooner, end.inside, middle)
            loop.again = compare(low, "LT", first.updated, end.updated)
        first = loop.carried[0].result
        there = b.compute("and", "pred", inside, compare(low, "EQ", ordered(first), wanted, "UNSIGNED"))
        with low.loop(0, if_(low, there, length), [first], sequential=True) as (i, loop):
            value, at = element(i), loop.carried[0].inside
            mine = compare(low, "EQ", keys.key(low, value), wanted, "UNSIGNED")
            with low.loop(0, if_(low, mine, 1), sequential=True):
                store(at, value)
            loop.carried[0].updated = operand_of(b.index("add", at, if_(low, mine, 1)))


# --- sort -------------------------------------------------------------------------------------------------------------


class Routine:
    """A kernel that serves all sizes: what depends on them are numbers."""

    def __init__(self, sort: Sort, name: str) -> None:
        self.low = Lowering(name, sort.plan)
        self.builder = self.low.builder
        self._root, self._words = sort.x, list[int]()

    def number(self, value: int) -> Value:
        self._words.append(value)
        self.builder.kernel.numbers.append(Value(INDEX, f"n{len(self._words)}"))
        return self.builder.kernel.numbers[-1]

    @contextmanager
    def pieces(self, count: int, length: int) -> Generator[tuple[Value, Index, Index, Index]]:
        """A loop over pieces of lines: the number of each, that of its line, and where it begins and ends there."""
        b = self.builder
        pieces, size, end = (self.number(n) for n in (count, -(-length // count), length))
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            if count == 1:
                yield index, index, 0, end
                return
            line = b.index("divide", index, pieces)
            piece = b.index("subtract", index, b.index("multiply", line, pieces))
            start = b.index("minimum", b.index("multiply", piece, size), end)
            yield index, line, start, b.index("minimum", b.index("add", start, size), end)

    def finished(self, extent: int, work: int) -> LoweredKernel:
        found = finished(self.low, extent, work, [self._root])
        found.numbers, found.lasts = tuple(self._words), True
        return found


class Sort:
    """The sort of lines of a key, and of what goes along with it. A result that is None is not taken; of the others the
    elements from `wanted[0]` to `wanted[1]` of each line are."""

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        keys: Keys,
        sources: Sequence[Instruction],
        results: Sequence[Storage | None],
        dimension: int,
        wanted: tuple[int, int],
    ) -> None:
        self.x, self.plan, self.keys, self.sources, self.dimension = x, plan, keys, sources, dimension
        self.results = [r if r in plan.escaping else None for r in results]
        sizes = sources[0].array_shape.dimensions
        self.length, self.inner = sizes[dimension], math.prod(sizes[dimension + 1 :])
        self.keep = next((r.array_shape.dimensions[dimension] for r in results if isinstance(r, Instruction)), 0)
        self.wanted = wanted
        self.lines = math.prod(sizes) // max(1, self.length)
        kinds = [element_type(keys.type), *(s.array_shape.element_type for s in sources[1:])]
        joined = len(kinds) == 2 and all(k.kind != "complex" and k.bits <= 32 for k in kinds)
        self.offset = 32 if joined else 0  # a key and what goes along are one number
        self.kinds: list[ElementType] = [element_type("u64")] if joined else kinds
        self.type = self.kinds[0].name

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
        return SCRATCH // sum(2 * max(8, kind.bits) // 8 for kind in self.kinds)

    def scratch(self, low: Lowering, size: int) -> list[list[Buffer]]:
        """To move elements to and fro."""
        return [[low.builder.scratch(kind.name, size) for kind in self.kinds] for _ in (0, 1)]

    def _order_in_scratch(self) -> LoweredKernel:
        routine = Routine(self, "line")
        low, b = routine.low, routine.builder
        length, arrays = routine.number(self.length), self.scratch(routine.low, self._room)
        give = Giving(self, routine, length)
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base = b.index("multiply", line, length)
            with low.loop(0, length, sequential=True) as (i, _):
                key, *others = (self.element(low, x, i, b.index("add", base, i)) for x in self.sources)
                self.put(low, arrays[0], i, [self.keys.key(low, key), *others])
            self.order(low, arrays, 0, length, 2)
            give(line, arrays[0], 0, (0, length))
        return routine.finished(self.lines, 4 * (self.keys.bits // DIGIT + 1) * (self.length + (1 << DIGIT)))

    # --- elements

    def counts_places(self, x: Instruction) -> bool:
        """Whether elements are their places in their lines."""
        return x.op is movement.iota and x.attributes.iota_dimension == self.dimension

    def element(self, low: Lowering, x: Instruction, i: Index, place: Index) -> Operand:
        if self.counts_places(x):
            return low.builder.compute("convert", x.array_shape.element_type.name, operand_of(i))
        return low.builder.load(low.buffer(x), place)

    def put(self, low: Lowering, arrays: Sequence[Buffer], at: Index, values: Sequence[Operand]) -> None:
        compute = low.builder.compute
        if self.offset:
            key, value = values
            if value.type != "pred":
                value = compute("bitcast-convert", f"u{element_type(value.type).bits}", value)
            above = compute("shift-left", "u64", compute("convert", "u64", key), Literal("u64", self.offset))
            values = [compute("or", "u64", above, compute("convert", "u64", value))]
        for to, value in zip(arrays, values, strict=True):
            low.builder.store(to, at, value)

    def key(self, low: Lowering, arrays: Sequence[Buffer], at: Index) -> Operand:
        return self._key(low, low.builder.load(arrays[0], at))

    def _key(self, low: Lowering, number: Operand) -> Operand:
        if not self.offset:
            return number
        above = low.builder.compute("shift-right-logical", self.type, number, Literal(self.type, self.offset))
        return low.builder.compute("convert", self.keys.type, above)

    def along(self, low: Lowering, arrays: Sequence[Buffer], at: Index) -> Operand:
        """What goes along with a key."""
        value = low.builder.load(arrays[-1], at)
        if not self.offset:
            return value
        type = held(self.sources[1].array_shape.element_type.name)
        if type == "pred":
            return compare(low, "NE", low.builder.compute("convert", "u8", value), Literal("u8", 0), "UNSIGNED")
        value = low.builder.compute("convert", f"u{element_type(type).bits}", value)
        return low.builder.compute("bitcast-convert", type, value)

    # --- order

    def order(
        self, low: Lowering, arrays: Sequence[Sequence[Buffer]], start: Index, stop: Index, pairs: int, spare: Index = 0
    ) -> None:
        """Sort a piece of the first arrays, by so many pairs of upper digits if these are enough. The others have room
        for it from `spare` on."""
        b, index = low.builder, low.builder.index
        every = -(-self.keys.bits // (2 * DIGIT))
        least, last = limits(low, self.type, start, stop, lambda i: b.load(arrays[0][0], i))
        least, last = (self._key(low, x) for x in (least, last))
        bits = width_of(low, least, last)
        if self.offset:
            least = b.compute("convert", self.type, least)
            least = b.compute("shift-left", self.type, least, Literal(self.type, self.offset))
        with low.loop(0, 2 if pairs < every else 1, sequential=True) as (attempt, attempts):
            most = if_(low, compare(low, "EQ", attempt, 0), min(pairs, every), every)
            turns = index("minimum", most, index("divide", index("add", bits, 2 * DIGIT - 1), 2 * DIGIT))
            digits = index("multiply", turns, 2)
            width = index("divide", index("add", bits, index("subtract", digits, 1)), index("maximum", digits, 1))
            is_short = compare(low, "LE", bits, DIGIT)
            width = if_(low, is_short, bits, index("minimum", width, DIGIT))
            lower = index("maximum", index("subtract", bits, index("multiply", turns, 2 * DIGIT)), 0)
            with low.loop(0, turns, sequential=True) as (pair, _):
                both: list[_Digit] = []
                for half in (0, 1):
                    turn = index("add", index("multiply", pair, 2), half)
                    shift = index("add", index("add", lower, index("multiply", turn, width)), self.offset)
                    both.append(_Digit(low, self.type, least, shift, width))
                self._move_twice(low, both, arrays, (start, stop), spare, is_short)
            if pairs < every:
                some = if_(low, compare(low, "GT", lower, 0), stop, start)
                attempts.again = self._exchange(low, arrays[0], start, some)

    def _move_twice(
        self,
        low: Lowering,
        digits: Sequence[_Digit],
        arrays: Sequence[Sequence[Buffer]],
        bounds: tuple[Index, Index],
        spare: Index,
        is_short: Operand,
    ) -> None:
        """By one digit to the second arrays, and back by the other one, or as they are if one is all of a key."""
        b, index = low.builder, low.builder.index
        counters = [b.scratch(INDEX, 1 << DIGIT) for _ in digits]
        with low.loop(0, digits[0].count) as (k, _):
            for counter in counters:
                b.store(counter, k, Literal(INDEX, 0))
        with low.loop(*bounds, sequential=True) as (i, _):
            number = b.load(arrays[0][0], i)
            for digit, counter in zip(digits, counters, strict=True):
                place = digit.of(number)
                b.store(counter, place, operand_of(index("add", b.load(counter, place), 1)))
        starts = [spare, bounds[0]]
        with low.loop(0, digits[0].count, [operand_of(at) for at in starts], sequential=True) as (k, loop):
            for counter, slot in zip(counters, loop.carried, strict=True):
                count = b.load(counter, k)
                b.store(counter, k, slot.inside)
                slot.updated = operand_of(index("add", slot.inside, count))
        count = index("subtract", bounds[1], bounds[0])
        self._move(low, digits[0], counters[0], arrays, bounds)
        with low.loop(0, if_(low, is_short, count)) as (i, _):
            for to, x in zip(*arrays, strict=True):
                b.store(to, index("add", bounds[0], i), b.load(x, index("add", spare, i)))
        end = index("add", spare, if_(low, is_short, 0, count))
        self._move(low, digits[1], counters[1], arrays[::-1], (spare, end))

    def _move(
        self,
        low: Lowering,
        digit: _Digit,
        counters: Buffer,
        arrays: Sequence[Sequence[Buffer]],
        bounds: tuple[Index, Index],
    ) -> None:
        b, (here, there) = low.builder, arrays
        with low.loop(*bounds, sequential=True) as (i, _):
            values = [b.load(x, i) for x in here]
            counter = digit.of(values[0])
            place = b.load(counters, counter)
            b.store(counters, counter, operand_of(b.index("add", place, 1)))
            for to, value in zip(there, values, strict=True):
                b.store(to, place, value)

    def _exchange(self, low: Lowering, arrays: Sequence[Buffer], start: Index, stop: Index) -> Operand:
        """Let elements that come too late go to the front, some places at most; gives whether one had further to go."""
        b, index = low.builder, low.builder.index
        with low.loop(index("add", start, 1), stop, [Literal(INDEX, 0)], sequential=True) as (i, loop):

            def is_late(at: Index) -> Operand:
                before = index("maximum", index("subtract", at, 1), start)
                return compare(low, "LT", self.key(low, arrays, at), self.key(low, arrays, before), "UNSIGNED")

            steps = if_(low, is_late(i), NEAR)
            with low.loop(0, steps, [Literal(INDEX, 0)], sequential=True) as (step, inner):
                at = index("subtract", i, step)
                before = index("subtract", at, 1)
                for x in arrays:
                    first, second = b.load(x, before), b.load(x, at)
                    b.store(x, before, second)
                    b.store(x, at, first)
                inner.again = is_late(before)
                inner.carried[0].updated = if_(low, inner.again, 1)
            loop.carried[0].updated = operand_of(index("maximum", loop.carried[0].inside, inner.carried[0].result))
        return compare(low, "NE", loop.carried[0].result, 0)


class Giving:
    """Writes what is wanted of a piece of a line that is in order."""

    def __init__(self, sort: Sort, routine: Routine, length: Value) -> None:
        self.sort, self.low, self.length = sort, routine.low, length
        self.keep, *self.wanted = (routine.number(n) for n in (sort.keep, *sort.wanted))

    def wants(self, start: Index, stop: Index) -> Operand:
        """Whether something of a piece is wanted."""
        before, after = compare(self.low, "LT", start, self.wanted[1]), compare(self.low, "GT", stop, self.wanted[0])
        return self.low.builder.compute("and", "pred", before, after)

    def __call__(self, line: Index, arrays: Sequence[Buffer], base: Index, bounds: tuple[Index, Index]) -> None:
        """The arrays hold the line from `base` on."""
        sort, low, b, index = self.sort, self.low, self.low.builder, self.low.builder.index
        start, stop = index("maximum", bounds[0], self.wanted[0]), index("minimum", bounds[1], self.wanted[1])
        to, source = index("multiply", line, self.keep), index("multiply", line, self.length)
        with low.loop(start, stop) as (i, _):
            at = index("add", base, i)
            for k, result in enumerate(sort.results):
                if result is not None:
                    key = None if k else sort.keys.of(low, sort.key(low, arrays, at))
                    value = sort.along(low, arrays, at) if key is None else key
                    b.store(low.buffer(result, True), index("add", to, i), value)
        result = sort.results[0]
        if sort.keys.restores and result is not None:
            put_back(
                low,
                sort.keys,
                bounds,
                self.length,
                lambda i: sort.key(low, arrays, index("add", base, i)),
                lambda i: b.load(low.buffer(sort.sources[0]), index("add", source, i)),
                lambda i, value: b.store(low.buffer(result, True), index("add", to, i), value),
            )


class _Digit:
    """So many bits of how far a key is from the least one, from so many bits on."""

    def __init__(self, low: Lowering, type: str, least: Operand, shift: Index, width: Index) -> None:
        self._compute, self._type, self._least = low.builder.compute, type, least
        self._shift = shift_of(low, type, shift)
        self.count = self._compute("shift-left", INDEX, Literal(INDEX, 1), operand_of(width))
        self._mask = self._compute("convert", type, operand_of(low.builder.index("subtract", self.count, 1)))

    def of(self, number: Operand) -> Value:
        apart = self._compute("subtract", self._type, number, self._least)
        apart = self._compute("shift-right-logical", self._type, apart, self._shift)
        return self._compute("convert", INDEX, self._compute("and", self._type, apart, self._mask))


def shift_of(low: Lowering, type: str, bits: Index) -> Operand:
    """A number of bits that is known to be fewer than a number has."""
    compute = low.builder.compute
    return compute("and", type, compute("convert", type, operand_of(bits)), Literal(type, element_type(type).bits - 1))


def limits(
    low: Lowering, type: str, start: Index, stop: Index, number: Callable[[Index], Operand]
) -> tuple[Operand, Operand]:
    """The least and the last one of some numbers."""
    ends = [Literal(type, (1 << element_type(type).bits) - 1), Literal(type, 0)]
    with low.loop(start, stop, ends) as (i, loop):
        x = number(i)
        for slot, op in zip(loop.carried, ("minimum", "maximum"), strict=True):
            slot.updated = low.builder.compute(op, type, slot.inside, x)
    least, last = (slot.result for slot in loop.carried)
    return least, last


def width_of(low: Lowering, least: Operand, last: Operand) -> Value:
    """How many bits tell how far apart two keys are."""
    compute, type = low.builder.compute, least.type
    zeros = compute("count-leading-zeros", type, compute("subtract", type, last, least))
    return compute("subtract", INDEX, Literal(INDEX, element_type(type).bits), compute("convert", INDEX, zeros))


# --- long lines -------------------------------------------------------------------------------------------------------


class _InParts:
    """Kernels that let lines fall into parts, one after the other, and sort these."""

    def __init__(self, sort: Sort, pieces: int) -> None:
        self.sort, self.pieces, lines = sort, pieces, sort.lines
        self.shares = min(PARTS - 1, sort.length // SHARE)
        self.sample, self.cells = (n << self.shares.bit_length() for n in (SAMPLE, CELLS))
        shapes = [Shape(kind, (lines, sort.length)) for kind in sort.kinds]
        self.arrays = [[Partial(shape) for shape in shapes] for _ in (0, 1)]
        self.ends = Partial(Shape(element_type(sort.keys.type), (lines, 2)))  # of the sample
        self.table = Partial(Shape(element_type("u8"), (lines, self.cells)))  # in which part a cell is
        self.parts = Partial(Shape(element_type("u8"), (lines, sort.length)))  # of the elements
        self.counts, self.stops = (Partial(Shape(element_type(INDEX), (lines, pieces, PARTS))) for _ in (0, 1))

    def kernels(self) -> list[LoweredKernel]:
        return [self._sample(), self._count(), self._part(), self._order()]

    def _sample(self) -> LoweredKernel:
        """Make cells of equal width, and put as many neighbours into a part as hold their share of the sample; a few
        keys have a part each."""
        sort, routine = self.sort, Routine(self.sort, "sample")
        low, b, index = routine.low, routine.builder, routine.builder.index
        keys = b.scratch(sort.keys.type, SAMPLE * PARTS)
        counters = b.scratch("s32", CELLS * PARTS)
        cells, width = (routine.number(n) for n in (self.cells, self.cells.bit_length() - 1))
        step, length = routine.number(sort.length // self.sample), routine.number(sort.length)
        shares, sample = (routine.number(n) for n in (self.shares, self.sample))
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base = index("multiply", line, length)
            with low.loop(0, sample) as (i, _):
                at = index("add", base, index("multiply", i, step))
                b.store(keys, i, sort.keys.key(low, b.load(low.buffer(sort.sources[0]), at)))
            ends = limits(low, sort.keys.type, 0, sample, lambda i: b.load(keys, i))
            for k, value in enumerate(ends):
                b.store(low.buffer(self.ends, True), index("add", index("multiply", line, 2), k), value)
            with low.loop(0, cells) as (i, _):
                b.store(counters, i, Literal("s32", 0))
            cell = self._cell(routine, ends, width)
            alone = compare(low, "LE", width_of(low, *ends), index("minimum", width, PARTS.bit_length() - 1))
            with low.loop(0, sample, sequential=True) as (i, _):
                at = b.compute("convert", INDEX, cell(b.load(keys, i)))
                b.store(counters, at, b.compute("add", "s32", b.load(counters, at), Literal("s32", 1)))
            with low.loop(0, cells, [Literal(INDEX, 0)], sequential=True) as (i, loop):
                before, count = loop.carried[0].inside, b.compute("convert", INDEX, b.load(counters, i))
                part = if_(low, alone, i, index("divide", index("multiply", before, shares), sample))
                at = index("add", index("multiply", line, cells), i)
                b.store(low.buffer(self.table, True), at, b.compute("convert", "u8", operand_of(part)))
                loop.carried[0].updated = operand_of(index("add", before, count))
        return routine.finished(sort.lines, 8 * (self.sample + self.cells))

    def _cell(self, routine: Routine, ends: Sequence[Operand], width: Value) -> Callable[[Operand], Value]:
        """Of a key; what is beyond an end is in the first or the last one."""
        low, compute, type, (least, last) = routine.low, routine.builder.compute, self.sort.keys.type, ends
        lower = low.builder.index("subtract", width_of(low, least, last), width)
        shift = shift_of(low, type, low.builder.index("maximum", lower, 0))

        def cell(key: Operand) -> Value:
            inside = compute("minimum", type, compute("maximum", type, key, least), last)
            apart = compute("subtract", type, inside, least)
            return compute("convert", "s32", compute("shift-right-logical", type, apart, shift))

        return cell

    @contextmanager
    def _elements(
        self, low: Lowering, base: Index, bounds: Sequence[Index], kind: str, of: Callable[[Operand], Operand]
    ) -> Generator[tuple[Operand, Index, Index]]:
        """A loop over elements of a line: what is `of` a key, made for many at once, the element's number and place."""
        b, index, (start, stop) = low.builder, low.builder.index, bounds
        made, length = b.scratch(kind, BLOCK), index("subtract", stop, start)
        with low.loop(0, index("divide", index("add", length, BLOCK - 1), BLOCK), sequential=True) as (block, _):
            before = index("multiply", block, BLOCK)
            count, here = index("minimum", index("subtract", length, before), BLOCK), index("add", start, before)
            with low.loop(0, count) as (i, _):
                place = index("add", base, index("add", here, i))
                b.store(made, i, of(self.sort.keys.key(low, b.load(low.buffer(self.sort.sources[0]), place))))
            with low.loop(0, count, sequential=True) as (i, _):
                number = index("add", here, i)
                yield b.load(made, i), number, index("add", base, number)

    def _count(self) -> LoweredKernel:
        """Find the parts of all elements, and how many of a piece there are in each."""
        sort, routine = self.sort, Routine(self.sort, "count")
        low, b, index = routine.low, routine.builder, routine.builder.index
        cells, width, length = (routine.number(n) for n in (self.cells, self.cells.bit_length() - 1, sort.length))
        table, limits = low.buffer(self.table), low.buffer(self.ends)
        counters, parts = low.buffer(self.counts, True), low.buffer(self.parts, True)
        with routine.pieces(self.pieces, sort.length) as (number, line, *bounds):
            ends = [b.load(limits, index("add", index("multiply", line, 2), k)) for k in (0, 1)]
            cell, begin = self._cell(routine, ends, width), index("multiply", line, cells)
            base, first = index("multiply", line, length), index("multiply", number, PARTS)
            with low.loop(0, PARTS) as (k, _):
                b.store(counters, index("add", first, k), Literal(INDEX, 0))
            with self._elements(low, base, bounds, "s32", cell) as (at, _, place):
                part = b.load(table, index("add", begin, b.compute("convert", INDEX, at)))
                b.store(parts, place, part)
                counter = index("add", first, b.compute("convert", INDEX, part))
                b.store(counters, counter, operand_of(index("add", b.load(counters, counter), 1)))
        return routine.finished(sort.lines * self.pieces, 8 * sort.length // self.pieces)

    def _part(self) -> LoweredKernel:
        """A piece's elements of a part come after all of the parts before, and after those of the pieces before. Those
        of which nothing is wanted are left out."""
        sort, routine = self.sort, Routine(self.sort, "part")
        low, b, index = routine.low, routine.builder, routine.builder.index
        length, many = routine.number(sort.length), routine.number(self.pieces)
        give = Giving(sort, routine, length)
        arrays, stops = [low.buffer(x, True) for x in self.arrays[0]], low.buffer(self.stops, True)
        counts, zero = low.buffer(self.counts), Literal(INDEX, 0)
        counters, steps = b.scratch(INDEX, PARTS), b.scratch(INDEX, PARTS)
        is_whole = sort.wanted == (0, sort.length)
        parts = low.buffer(self.parts)
        with routine.pieces(self.pieces, sort.length) as (number, line, *bounds):
            begin, base = (index("multiply", line, n) for n in (many, length))
            with low.loop(0, PARTS, [zero], sequential=True) as (k, totals):
                start = totals.carried[0].inside
                with low.loop(0, many, [start, start], sequential=True) as (p, loop):
                    every, before = loop.carried
                    piece = index("add", begin, p)
                    count = b.load(counts, index("add", index("multiply", piece, PARTS), k))
                    earlier = compare(low, "LT", piece, number)
                    every.updated = operand_of(index("add", every.inside, count))
                    before.updated = operand_of(index("add", before.inside, if_(low, earlier, count)))
                b.store(counters, k, operand_of(index("add", base, before.result)))
                b.store(steps, k, if_(low, give.wants(start, every.result), 1))
                b.store(stops, index("add", index("multiply", number, PARTS), k), every.result)
                totals.carried[0].updated = every.result
            with self._elements(low, base, bounds, sort.keys.type, lambda key: key) as (key, inside, at):
                others = [sort.element(low, x, inside, at) for x in sort.sources[1:]]
                counter = b.compute("convert", INDEX, b.load(parts, at))
                place, step = b.load(counters, counter), 1 if is_whole else b.load(steps, counter)
                b.store(counters, counter, operand_of(index("add", place, step)))
                sort.put(low, arrays, place, [key, *others])
        return routine.finished(sort.lines * self.pieces, 8 * sort.length // self.pieces)

    def _order(self) -> LoweredKernel:
        sort, routine = self.sort, Routine(self.sort, "order")
        low, b, index = routine.low, routine.builder, routine.builder.index
        length, many = routine.number(sort.length), routine.number(self.pieces * PARTS)
        give = Giving(sort, routine, length)
        arrays, stops = [[low.buffer(x, True) for x in some] for some in self.arrays], low.buffer(self.stops)

        def bounds(number: Index) -> tuple[Index, Index, Index, Index]:
            line, part = index("divide", number, PARTS), index("remainder", number, PARTS)
            at = index("add", index("multiply", line, many), part)
            before = b.load(stops, index("maximum", index("subtract", at, 1), 0))
            start = if_(low, compare(low, "GT", part, 0), before)
            return line, index("multiply", line, length), start, b.load(stops, at)

        _, base, start, _ = bounds(b.kernel.first)
        spare = index("add", base, start)  # there is room for all parts of the loop, and so for each
        with low.loop(b.kernel.first, b.kernel.last) as (number, _):
            line, base, start, stop = bounds(number)
            stop = if_(low, give.wants(start, stop), stop, start)
            self.sort.order(low, arrays, index("add", base, start), index("add", base, stop), 1, spare)
            give(line, arrays[0], base, (start, stop))
        return routine.finished(sort.lines * PARTS, 32 * sort.length // PARTS)
