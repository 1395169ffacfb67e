"""Sort by digits: plain orders of one key, which may take another array along, and the first elements of an order.

Elements become unsigned integers in the same order, the keys. From the last digit to the first these are moved to where
they belong by that digit alone, in their order, after it was counted how often each digit occurs. A line is the work of
one thread, or of several, which count and move a piece each. What the order holds for equal, zeros and NaNs, has one
key; where the elements themselves are wanted these are put back in the end.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, section 5.2.5.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import INDEX, Buffer, Index, Literal, Operand, Value
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Storage, Users
from tinyxla.compiler.fusion import Plan, results_of, supported
from tinyxla.hlo import Instruction
from tinyxla.ops import movement, sorting
from tinyxla.shapes import Shape, TupleShape, element_type

DIGIT = 8  # bits
BUCKETS = 1 << DIGIT  # so many different digits
PIECE = 1 << 14  # elements of a line that are worth the work of a thread
MOST_PIECES = 16
FEW_LINES = 8  # with fewer, threads share a line
GROUPS = 64  # of a line, whose first elements bound those that are wanted
MOST_ROUNDS, SHORT, IN_ROUNDS = 32, 1 << 12, 1 << 14  # elements found one by one; of a line; looked at in all rounds
_LAST = Literal("u64", (1 << 64) - 1)
BLOCK = 64  # elements that are passed over together where none is wanted


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


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    order = sorting.order_of(x.attributes.to_apply)
    assert order is not None, "it is supported"
    keys = Keys(x.operands[0].array_shape.element_type.name, order.descending, False)
    return _Sort(x, plan, keys, x.operands, results_by_number(x, users)).kernels()


def results_by_number(x: Instruction, users: Users) -> list[Storage | None]:
    """The arrays that a sort gives; None is one that nobody takes."""
    taken = {r.attributes.index if r is not x else 0: r for r in results_of(x, users)}
    count = len(x.shape.elements) if isinstance(x.shape, TupleShape) else 1
    return [taken.get(k) for k in range(count)]


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
        return [Literal(self.type, every - key if self.descending else key) for key in (half, every)]

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
                    zero = _compare(low, "EQ", x, Literal(self.element, 0.0), "FLOAT")
                    found = compute("select", type, zero, Literal(type, 0), found)
                negative = _compare(low, "GE", found, half, "UNSIGNED")
                found = compute("xor", type, found, compute("select", type, negative, every, half))
                if not self.total:
                    found = compute("select", type, _compare(low, "NE", x, x, "FLOAT"), every, found)
        return compute("xor", type, found, every) if self.descending else found

    def of(self, low: Lowering, key: Operand) -> Operand:
        """The element whose key this is."""
        compute, type = low.builder.compute, self.type
        every, half = Literal(type, (1 << self.bits) - 1), Literal(type, 1 << (self.bits - 1))
        found = compute("xor", type, key, every) if self.descending else key
        kind = element_type(self.element).kind
        if kind == "pred":
            return _compare(low, "NE", found, Literal(type, 0), "UNSIGNED")
        if kind == "unsigned":
            return found
        if kind == "signed":
            return compute("bitcast-convert", self.element, compute("xor", type, found, half))
        positive = _compare(low, "GE", found, half, "UNSIGNED")
        found = compute("xor", type, found, compute("select", type, positive, half, every))
        return compute("bitcast-convert", self.element, found)


def _compare(low: Lowering, direction: str, x: Operand, y: Operand, kind: str) -> Operand:
    return low.builder.compute("compare", "pred", x, y, direction=direction, compare_type=kind)


def _if(low: Lowering, condition: Operand, yes: Index | Operand, no: Index | Operand = 0) -> Value:
    return low.builder.compute("select", INDEX, condition, _operand(yes), _operand(no))


def _operand(index: Index | Operand) -> Operand:
    return Literal(INDEX, index) if isinstance(index, int) else index


# --- sort -------------------------------------------------------------------------------------------------------------


class _Routine:
    """A kernel that serves all sizes: what depends on them are numbers."""

    def __init__(self, sort: _Sort, name: str) -> None:
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
        pieces, size, end = self.number(count), self.number(-(-length // count)), self.number(length)
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            line = b.index("divide", index, pieces)
            piece = b.index("subtract", index, b.index("multiply", line, pieces))
            start = b.index("minimum", b.index("multiply", piece, size), end)
            yield index, line, start, b.index("minimum", b.index("add", start, size), end)

    def finished(self, extent: int, work: int) -> LoweredKernel:
        found = finished(self.low, extent, work, [self._root])
        found.numbers, found.lasts = tuple(self._words), True
        return found


class _Sort:
    """The sort of lines of a key, and of what goes along with it. A result that is None is not taken; of the others as
    many elements are wanted as they have."""

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        keys: Keys,
        sources: Sequence[Instruction],
        results: Sequence[Storage | None],
    ) -> None:
        self.x, self.plan, self.keys, self.sources = x, plan, keys, sources
        self.results = [r if r in plan.escaping else None for r in results]
        *others, self.length = sources[0].array_shape.dimensions
        self.keep = next((r.array_shape.dimensions[-1] for r in results if isinstance(r, Instruction)), 0)
        self.lines = math.prod(others)
        self.passes = self.keys.bits // DIGIT
        sizes = (self.lines, self.length)
        kinds = [element_type(keys.type), *(s.array_shape.element_type for s in sources[1:])]
        self.arrays = [[Partial(Shape(kind, sizes)) for kind in kinds] for _ in (0, 1)]  # moved to and fro

    def kernels(self) -> list[LoweredKernel]:
        if not self.lines * self.keep:
            return []
        whole = self.lines >= FEW_LINES or self.length < 2 * PIECE
        pieces = 1 if whole else min(MOST_PIECES, self.length // PIECE)
        found = [self._make_keys(pieces)]
        if whole:
            found.append(self.order(self.length))
        else:
            counts = Partial(Shape(element_type(INDEX), (self.lines, pieces, BUCKETS)))
            for turn in range(self.passes):
                found += [self._count(turn, counts, pieces), self._move_pieces(turn, counts, pieces)]
        found.append(self.elements(pieces))
        if self.keys.restores and self.results[0] is not None:
            found.append(self._restore())
        return found

    def _make_keys(self, pieces: int) -> LoweredKernel:
        routine = _Routine(self, "keys")
        low, b = routine.low, routine.builder
        with routine.pieces(pieces, self.length) as (_, line, start, stop):
            base = b.index("multiply", line, b.kernel.numbers[-1])
            with low.loop(start, stop) as (i, _):
                place = b.index("add", base, i)
                for k, (x, to) in enumerate(zip(self.sources, self.arrays[0], strict=True)):
                    if _counts_places(x):
                        value: Operand = b.compute("convert", x.array_shape.element_type.name, i)
                    else:
                        value = b.load(low.buffer(x), place)
                    b.store(low.buffer(to, True), place, value if k else self.keys.key(low, value))
        return routine.finished(self.lines * pieces, 4 * self.length // pieces)

    def elements(self, pieces: int) -> LoweredKernel:
        routine = _Routine(self, "elements")
        low, b = routine.low, routine.builder
        with routine.pieces(pieces, self.keep) as (_, line, start, stop):
            base, to = (
                b.index("multiply", line, routine.number(self.length)),
                b.index("multiply", line, b.kernel.numbers[2]),
            )
            with low.loop(start, stop) as (i, _):
                for k, (x, result) in enumerate(zip(self.arrays[self.passes % 2], self.results, strict=True)):
                    if result is not None:
                        value = b.load(low.buffer(x), b.index("add", base, i))
                        b.store(
                            low.buffer(result, True), b.index("add", to, i), value if k else self.keys.of(low, value)
                        )
        return routine.finished(self.lines * pieces, 4 * self.keep // pieces)

    def order(self, length: int | Partial, only_keys: bool = False) -> LoweredKernel:
        """Move the first elements of each line digit by digit."""
        routine = _Routine(self, "order")
        low, b = routine.low, routine.builder
        size = routine.number(self.length)
        arrays = [[low.buffer(x, True) for x in (some[:1] if only_keys else some)] for some in self.arrays]
        counters = b.scratch(INDEX, self.passes * BUCKETS)
        first = routine.number(length) if isinstance(length, int) else low.buffer(length)
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base = b.index("multiply", line, size)
            stop = first if isinstance(first, Value) else b.load(first, line)
            with low.loop(0, self.passes * BUCKETS) as (k, _):
                b.store(counters, k, Literal(INDEX, 0))
            with low.loop(0, stop, sequential=True) as (i, _):
                key = b.load(arrays[0][0], b.index("add", base, i))
                for turn in range(self.passes):
                    shift = Literal(self.keys.type, turn * DIGIT)
                    place = b.index("add", self._digit(low, key, shift), turn * BUCKETS)
                    b.store(counters, place, _operand(b.index("add", b.load(counters, place), 1)))
            both = (0, 1)[: self.passes]
            with low.loop(0, self.passes // len(both), sequential=True) as (pair, _):
                for half in both:
                    turn = b.index("add", b.index("multiply", pair, 2), half)
                    offset = b.index("multiply", turn, BUCKETS)
                    shift = b.compute("convert", self.keys.type, _operand(b.index("multiply", turn, DIGIT)))
                    digit = self._digit(low, b.load(arrays[half][0], base), shift)
                    same = _compare(low, "EQ", b.load(counters, b.index("add", digit, offset)), stop, "SIGNED")
                    with low.loop(0, BUCKETS, [Literal(INDEX, 0)], sequential=True) as (k, loop):
                        place = b.index("add", k, offset)
                        count = b.load(counters, place)
                        b.store(counters, place, loop.carried[0].inside)
                        loop.carried[0].updated = b.compute("add", INDEX, loop.carried[0].inside, count)
                    self._move(low, (arrays[half], arrays[1 - half]), base, (0, stop), shift, (counters, offset), same)
        known = length if isinstance(length, int) else self.length
        return routine.finished(self.lines, 4 * (self.passes + 1) * (known + BUCKETS))

    def _count(self, turn: int, counts: Partial, pieces: int) -> LoweredKernel:
        routine = _Routine(self, "count")
        low, b = routine.low, routine.builder
        memory, keys = low.buffer(counts, True), low.buffer(self.arrays[turn % 2][0])
        with routine.pieces(pieces, self.length) as (index, line, start, stop):
            base, first = b.index("multiply", line, b.kernel.numbers[2]), b.index("multiply", index, BUCKETS)
            shift = b.compute("convert", self.keys.type, routine.number(turn * DIGIT))
            with low.loop(0, BUCKETS) as (k, _):
                b.store(memory, b.index("add", first, k), Literal(INDEX, 0))
            with low.loop(start, stop, sequential=True) as (i, _):
                place = b.index("add", first, self._digit(low, b.load(keys, b.index("add", base, i)), shift))
                b.store(memory, place, _operand(b.index("add", b.load(memory, place), 1)))
        return routine.finished(self.lines * pieces, 8 * self.length // pieces)

    def _move_pieces(self, turn: int, counts: Partial, pieces: int) -> LoweredKernel:
        """A piece's elements of a digit come after all of lower digits, and after those of the pieces before."""
        routine = _Routine(self, "move")
        low, b = routine.low, routine.builder
        here, there = ([low.buffer(x, k == 1) for x in self.arrays[(turn + k) % 2]] for k in (0, 1))
        memory, counters, zero = low.buffer(counts), b.scratch(INDEX, BUCKETS), Literal(INDEX, 0)
        with routine.pieces(pieces, self.length) as (index, line, start, stop):
            many, _, length = b.kernel.numbers
            begin = b.index("multiply", line, many)  # of its line's pieces
            with low.loop(0, BUCKETS, [zero, zero], sequential=True) as (k, digits):
                total, most = digits.carried
                with low.loop(0, many, [zero, zero], sequential=True) as (p, loop):
                    every, before = loop.carried
                    number = b.index("add", begin, p)
                    count = b.load(memory, b.index("add", b.index("multiply", number, BUCKETS), k))
                    earlier = _compare(low, "LT", _operand(number), index, "SIGNED")
                    every.updated = b.compute("add", INDEX, every.inside, count)
                    before.updated = b.compute("add", INDEX, before.inside, _if(low, earlier, count))
                b.store(counters, k, b.compute("add", INDEX, total.inside, before.result))
                total.updated = b.compute("add", INDEX, total.inside, every.result)
                most.updated = b.compute("maximum", INDEX, most.inside, every.result)
            same = _compare(low, "EQ", most.result, length, "SIGNED")
            shift = b.compute("convert", self.keys.type, routine.number(turn * DIGIT))
            base = b.index("multiply", line, length)
            self._move(low, (here, there), base, (start, stop), shift, (counters, 0), same)
        return routine.finished(self.lines * pieces, 8 * self.length // pieces)

    def _restore(self) -> LoweredKernel:
        """Write the elements that have a key in common as they are, in their order."""
        routine = _Routine(self, "restore")
        low, b, type = routine.low, routine.builder, self.keys.type
        assert self.results[0] is not None, "it is taken"
        source, result = low.buffer(self.sources[0]), low.buffer(self.results[0], True)
        ordered = low.buffer(self.arrays[self.passes % 2][0])
        length, bits = routine.number(self.length), routine.number(self.length.bit_length())
        half = routine.number(1 << (self.length.bit_length() - 1))
        zeros, nans = self.keys.restores
        with low.loop(b.kernel.first, b.kernel.last) as (line, _), low.loop(0, 2, sequential=True) as (kind, _):
            base, last = b.index("multiply", line, length), b.index("subtract", length, 1)
            wanted = b.compute("select", type, _compare(low, "EQ", kind, Literal(INDEX, 0), "SIGNED"), zeros, nans)
            with low.loop(0, bits, [Literal(INDEX, 0), half], sequential=True) as (_, loop):
                before, step = (c.inside for c in loop.carried)
                further = b.index("add", before, step)
                at = b.index("minimum", b.index("subtract", further, 1), last)
                sooner = _compare(low, "LT", b.load(ordered, b.index("add", base, at)), wanted, "UNSIGNED")
                inside = _compare(low, "LE", _operand(further), length, "SIGNED")
                loop.carried[0].updated = _if(low, b.compute("and", "pred", sooner, inside), further, before)
                loop.carried[1].updated = _operand(b.index("divide", step, 2))
            first = b.index("minimum", loop.carried[0].result, last)  # type: ignore[arg-type]
            there = _compare(low, "EQ", b.load(ordered, b.index("add", base, first)), wanted, "UNSIGNED")
            with low.loop(0, _if(low, there, length), [_operand(first)], sequential=True) as (i, loop):
                value, at = b.load(source, b.index("add", base, i)), loop.carried[0].inside
                mine = _compare(low, "EQ", self.keys.key(low, value), wanted, "UNSIGNED")
                with low.loop(0, _if(low, mine, 1), sequential=True):
                    b.store(result, b.index("add", base, at), value)
                loop.carried[0].updated = _operand(b.index("add", at, _if(low, mine, 1)))
        return routine.finished(self.lines, self.length)

    def _digit(self, low: Lowering, key: Operand, shift: Operand) -> Value:
        compute, type = low.builder.compute, self.keys.type
        digit = compute("and", type, compute("shift-right-logical", type, key, shift), Literal(type, BUCKETS - 1))
        return compute("convert", INDEX, digit)

    def _move(
        self,
        low: Lowering,
        arrays: tuple[Sequence[Buffer], Sequence[Buffer]],
        base: Index,
        bounds: tuple[Index, Index],
        shift: Operand,
        counters: tuple[Buffer, Index],
        same: Operand,
    ) -> None:
        """Elements of a line to where the counter of their digit says; as they are if all have the same."""
        b = low.builder
        (start, stop), (buffer, offset) = bounds, counters
        pairs = list(zip(*arrays, strict=True))
        with low.loop(start, _if(low, same, stop, start)) as (i, _):
            place = b.index("add", base, i)
            for x, to in pairs:
                b.store(to, place, b.load(x, place))
        with low.loop(start, _if(low, same, start, stop), sequential=True) as (i, _):
            values = [b.load(x, b.index("add", base, i)) for x, _ in pairs]
            counter = b.index("add", self._digit(low, values[0], shift), offset)
            place = b.load(buffer, counter)
            b.store(buffer, counter, _operand(b.index("add", place, 1)))
            for (_, to), value in zip(pairs, values, strict=True):
                b.store(to, b.index("add", base, place), value)


def _counts_places(x: Instruction) -> bool:
    """Whether elements are their places in their lines."""
    return x.op is movement.iota and x.attributes.iota_dimension == x.array_shape.rank - 1


# --- topk -------------------------------------------------------------------------------------------------------------


def supports_top(x: Instruction) -> bool:
    return supported(x.operands[0].array_shape)


def lower_top(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Elements and their places are sorted, of long lines only those that may be among the first.

    Of a line cut into groups, the k-th of the groups' first elements is a bound: as many elements come no later, so the
    wanted ones are among these. Mostly there are few others.
    """
    (operand,) = x.operands
    k, largest = x.attributes
    shape = operand.array_shape
    number = Shape(element_type(np.int32), shape.dimensions)
    places = Instruction(movement.iota, (), movement.Iota(number, shape.rank - 1), number)
    keys = Keys(shape.element_type.name, largest, True)
    sort = _Sort(x, plan, keys, (operand, places), results_by_number(x, users))
    groups = max(GROUPS, 1 << (4 * k - 1).bit_length())
    if not k * sort.lines:
        return []
    if k <= MOST_ROUNDS and sort.length <= SHORT and k * sort.length <= IN_ROUNDS and keys.bits <= 32:
        return [_rounds(sort)]
    if sort.length < 8 * groups:
        return sort.kernels()
    counts = Partial(Shape(element_type(INDEX), (sort.lines,)))
    return [
        _firsts(sort, groups),
        sort.order(groups, True),
        _choice(sort, counts),
        sort.order(counts),
        sort.elements(1),
    ]


def _rounds(sort: _Sort) -> LoweredKernel:
    """The elements one after the other: each is the least of those after the one before it, keys and places together
    being numbers of which no two are equal."""
    routine = _Routine(sort, "rounds")
    low, b, wide = routine.low, routine.builder, "u64"
    length, keep = routine.number(sort.length), routine.number(sort.keep)
    source, results = low.buffer(sort.sources[0]), [r and low.buffer(r, True) for r in sort.results]
    some, half = b.scratch(wide, SHORT), Literal(wide, 32)
    with low.loop(b.kernel.first, b.kernel.last) as (line, _):
        base, to = b.index("multiply", line, length), b.index("multiply", line, keep)
        with low.loop(0, length) as (i, _):
            key = b.compute("convert", wide, sort.keys.key(low, b.load(source, b.index("add", base, i))))
            above = b.compute("shift-left", wide, key, half)
            b.store(some, i, b.compute("or", wide, above, b.compute("convert", wide, _operand(i))))
        with low.loop(0, keep, [Literal(wide, 0)], sequential=True) as (turn, rounds):
            from_here = rounds.carried[0].inside
            with low.loop(0, length, [_LAST]) as (i, least):
                value = b.load(some, i)
                left = b.compute("select", wide, _compare(low, "GE", value, from_here, "UNSIGNED"), value, _LAST)
                least.carried[0].updated = b.compute("minimum", wide, least.carried[0].inside, left)
            found: Any = least.carried[0].result
            key = b.compute("convert", sort.keys.type, b.compute("shift-right-logical", wide, found, half))
            values = [sort.keys.of(low, key), b.compute("convert", "s32", found)]
            for result, value in zip(results, values, strict=True):
                if result is not None:
                    b.store(result, b.index("add", to, turn), value)
            rounds.carried[0].updated = b.compute("add", wide, found, Literal(wide, 1))
    return routine.finished(sort.lines, sort.keep * sort.length)


def _firsts(sort: _Sort, groups: int) -> LoweredKernel:
    """The least key of each group of a line, whose elements are as far apart as there are groups."""
    routine = _Routine(sort, "firsts")
    low, b, keys = routine.low, routine.builder, sort.keys
    length, count, turns = (routine.number(n) for n in (sort.length, groups, sort.length // groups))
    source, firsts = low.buffer(sort.sources[0]), low.buffer(sort.arrays[0][0], True)
    with low.loop(b.kernel.first, b.kernel.last) as (line, _):
        base = b.index("multiply", line, length)
        with low.loop(0, count) as (j, _):
            place = b.index("add", base, j)
            b.store(firsts, place, keys.key(low, b.load(source, place)))
        with low.loop(1, turns, sequential=True) as (turn, _):
            here = b.index("add", base, b.index("multiply", turn, count))
            with low.loop(0, count) as (j, _):
                place, key = b.index("add", base, j), keys.key(low, b.load(source, b.index("add", here, j)))
                b.store(firsts, place, b.compute("minimum", keys.type, b.load(firsts, place), key))
    return routine.finished(sort.lines, 2 * sort.length)


def _choice(sort: _Sort, counts: Partial) -> LoweredKernel:
    """The keys of a line that do not come after the bound, with their places; and how many there are."""
    routine = _Routine(sort, "choice")
    low, b, keys = routine.low, routine.builder, sort.keys
    length, keep = routine.number(sort.length), routine.number(sort.keep)
    blocks, rest = routine.number(sort.length // BLOCK), routine.number(sort.length // BLOCK * BLOCK)
    source = low.buffer(sort.sources[0])
    some, places = (low.buffer(x, True) for x in sort.arrays[0])
    firsts = low.buffer(sort.arrays[sort.passes % 2][0], True)
    with low.loop(b.kernel.first, b.kernel.last) as (line, _):
        base = b.index("multiply", line, length)
        bound = b.load(firsts, b.index("add", base, b.index("subtract", keep, 1)))

        def choose(start: Index, stop: Index, count: Operand) -> Operand:
            with low.loop(start, stop, [count], sequential=True) as (i, loop):
                key, at = keys.key(low, b.load(source, b.index("add", base, i))), loop.carried[0].inside
                b.store(some, b.index("add", base, at), key)
                b.store(places, b.index("add", base, at), b.compute("convert", "s32", i))
                wanted = _compare(low, "LE", key, bound, "UNSIGNED")
                loop.carried[0].updated = _operand(b.index("add", at, _if(low, wanted, 1)))
            return loop.carried[0].result

        with low.loop(0, blocks, [Literal(INDEX, 0)], sequential=True) as (block, loop):
            start = b.index("multiply", block, BLOCK)
            here = b.index("add", base, start)
            with low.loop(0, BLOCK, [Literal(keys.type, (1 << keys.bits) - 1)]) as (i, least):
                key = keys.key(low, b.load(source, b.index("add", here, i)))
                least.carried[0].updated = b.compute("minimum", keys.type, least.carried[0].inside, key)
            some_wanted = _compare(low, "LE", least.carried[0].result, bound, "UNSIGNED")
            stop = b.index("add", start, _if(low, some_wanted, BLOCK))
            loop.carried[0].updated = choose(start, stop, loop.carried[0].inside)
        b.store(low.buffer(counts, True), line, choose(rest, length, loop.carried[0].result))
    return routine.finished(sort.lines, 2 * sort.length)
