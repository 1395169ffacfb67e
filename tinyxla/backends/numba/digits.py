"""Sort by digits: plain orders of one key, which may take another array along, and the first elements of an order.

Elements become unsigned integers in the same order, the keys. From the last digit to the first these are moved to where
they belong by that digit alone, in their order, after it was counted how often each digit occurs. A line is the work of
one thread, or of several, which count and move a piece each. What the order holds for equal, zeros and NaNs, has one
key; where the elements themselves are wanted these are put back in the end.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, section 5.2.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tinyxla.backends.numba import panel_routines
from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import INDEX, Buffer, Index, Literal, Operand, Value, operand_of
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Storage, Users, compare, if_
from tinyxla.compiler.fusion import Plan, results_of, supported
from tinyxla.hlo import Instruction
from tinyxla.ops import movement, sorting
from tinyxla.shapes import Shape, TupleShape, element_type

DIGIT = 8  # bits
BUCKETS = 1 << DIGIT  # so many different digits
PIECE = 1 << 14  # elements of a line that are worth the work of a thread
MOST_PIECES = 16
SCRATCH = 3 << 16  # bytes for a line
LONGEST = 40  # bits of the length of a line
FEW_LINES = 8  # with fewer, threads share a line


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
    return Sort(x, plan, keys, x.operands, results_by_number(x, users), x.attributes.dimensions[0])


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
    length: Value,
    ordered: Callable[[Index], Operand],
    element: Callable[[Index], Operand],
    store: Callable[[Index, Operand], None],
) -> None:
    """Write the elements of a line that have a key in common as they are, in their order."""
    b, type = low.builder, keys.type
    zeros, nans = keys.restores
    with low.loop(0, 2, sequential=True) as (kind, _):
        last = b.index("subtract", length, 1)
        wanted = b.compute("select", type, compare(low, "EQ", kind, Literal(INDEX, 0), "SIGNED"), zeros, nans)
        with low.loop(0, LONGEST, [Literal(INDEX, 0), Literal(INDEX, 1 << LONGEST - 1)], sequential=True) as (_, loop):
            before, step = (c.inside for c in loop.carried)
            further = b.index("add", before, step)
            at = b.index("minimum", b.index("subtract", further, 1), last)
            sooner = compare(low, "LT", ordered(at), wanted, "UNSIGNED")
            inside = compare(low, "LE", operand_of(further), length, "SIGNED")
            loop.carried[0].updated = if_(low, b.compute("and", "pred", sooner, inside), further, before)
            loop.carried[1].updated = operand_of(b.index("divide", step, 2))
        first = b.index("minimum", loop.carried[0].result, last)  # type: ignore[arg-type]
        there = compare(low, "EQ", ordered(first), wanted, "UNSIGNED")
        with low.loop(0, if_(low, there, length), [operand_of(first)], sequential=True) as (i, loop):
            value, at = element(i), loop.carried[0].inside
            mine = compare(low, "EQ", keys.key(low, value), wanted, "UNSIGNED")
            with low.loop(0, if_(low, mine, 1), sequential=True):
                store(at, value)
            loop.carried[0].updated = operand_of(b.index("add", at, if_(low, mine, 1)))


# --- sort -------------------------------------------------------------------------------------------------------------


def _bytes(type: str) -> int:
    return max(8, element_type(type).bits) // 8


@functools.cache
def _copy() -> str:
    """(to, from, numbers): so many bytes as they are."""
    lines = (
        "define void @routine(ptr %to, ptr %from, ptr %numbers) nounwind {",
        "  %count = load i64, ptr %numbers",
        "  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %count, i1 false)",
        "  ret void",
        "}",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    )
    return panel_routines.provided("copy_bytes", "\n".join(lines))


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
    """The sort of lines of a key, and of what goes along with it. A result that is None is not taken; of the others as
    many elements are wanted as they have."""

    def __init__(
        self,
        x: Instruction,
        plan: Plan,
        keys: Keys,
        sources: Sequence[Instruction],
        results: Sequence[Storage | None],
        dimension: int,
    ) -> None:
        self.x, self.plan, self.keys, self.sources, self.dimension = x, plan, keys, sources, dimension
        self.results = [r if r in plan.escaping else None for r in results]
        sizes = sources[0].array_shape.dimensions
        self.length, self.inner = sizes[dimension], math.prod(sizes[dimension + 1 :])
        self.keep = next((r.array_shape.dimensions[dimension] for r in results if isinstance(r, Instruction)), 0)
        self.lines = math.prod(sizes) // max(1, self.length)
        self.passes = self.keys.bits // DIGIT
        sizes = (self.lines, self.length)
        kinds = [element_type(keys.type), *(s.array_shape.element_type for s in sources[1:])]
        self.arrays = [[Partial(Shape(kind, sizes)) for kind in kinds] for _ in (0, 1)]  # moved to and fro

    def kernels(self) -> list[LoweredKernel]:
        if not self.lines * self.keep:
            return []
        if self.length <= self._room:
            return [self._order_in_scratch()]
        whole = self.lines >= FEW_LINES or self.length < 2 * PIECE
        pieces = 1 if whole else min(MOST_PIECES, self.length // PIECE)
        found = [self._make_keys(pieces)]
        if whole:
            found.append(self._order())
        else:
            counts = Partial(Shape(element_type(INDEX), (self.lines, pieces, BUCKETS)))
            for turn in range(self.passes):
                found += [self._count(turn, counts, pieces), self._move_pieces(turn, counts, pieces)]
        found.append(self._elements(pieces))
        if self.keys.restores and self.results[0] is not None:
            found.append(self._restore())
        return found

    @property
    def _room(self) -> int:
        """How many elements of a line find room in scratch."""
        return SCRATCH // sum(_bytes(x.shape.element_type.name) for some in self.arrays for x in some)

    def _order_in_scratch(self) -> LoweredKernel:
        routine = Routine(self, "line")
        low, b = routine.low, routine.builder
        length, keep = routine.number(self.length), routine.number(self.keep)
        arrays = [[b.scratch(x.shape.element_type.name, self._room) for x in some] for some in self.arrays]
        counters, ordered = b.scratch(INDEX, self.counters), arrays[self.passes % 2]
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base, to = (b.index("multiply", line, n) for n in (length, keep))
            with low.loop(0, length, sequential=True) as (i, _):
                self._put(low, i, b.index("add", base, i), arrays[0], i)
            self.move_all(low, arrays, 0, length, counters)
            with low.loop(0, keep, sequential=True) as (i, _):
                self._take(low, ordered, i, b.index("add", to, i))
            if self.keys.restores and self.results[0] is not None:
                self._put_back(low, length, base, ordered[0], 0)
        return routine.finished(self.lines, 4 * (self.passes + 1) * (self.length + BUCKETS))

    def _put(self, low: Lowering, i: Index, place: Index, arrays: Sequence[Buffer], at: Index) -> None:
        """An element of a line as a key, and what goes along with it."""
        for k, (x, to) in enumerate(zip(self.sources, arrays, strict=True)):
            if self.counts_places(x):
                value: Operand = low.builder.compute("convert", x.array_shape.element_type.name, operand_of(i))
            else:
                value = low.builder.load(low.buffer(x), place)
            low.builder.store(to, at, value if k else self.keys.key(low, value))

    def _take(self, low: Lowering, arrays: Sequence[Buffer | Partial], at: Index, place: Index) -> None:
        for k, (x, result) in enumerate(zip(arrays, self.results, strict=True)):
            if result is not None:
                value = low.builder.load(low.buffer(x) if isinstance(x, Partial) else x, at)
                low.builder.store(low.buffer(result, True), place, value if k else self.keys.of(low, value))

    def _put_back(self, low: Lowering, length: Value, base: Index, ordered: Buffer, start: Index) -> None:
        b, (result, *_) = low.builder, self.results
        assert result is not None, "it is taken"
        put_back(
            low,
            self.keys,
            length,
            lambda i: b.load(ordered, b.index("add", start, i)),
            lambda i: b.load(low.buffer(self.sources[0]), b.index("add", base, i)),
            lambda i, value: b.store(low.buffer(result, True), b.index("add", base, i), value),
        )

    def _make_keys(self, pieces: int) -> LoweredKernel:
        routine = Routine(self, "keys")
        low, b = routine.low, routine.builder
        with routine.pieces(pieces, self.length) as (_, line, start, stop):
            base = b.index("multiply", line, b.kernel.numbers[-1])
            with low.loop(start, stop) as (i, _):
                place = b.index("add", base, i)
                self._put(low, i, place, [low.buffer(x, True) for x in self.arrays[0]], place)
        return routine.finished(self.lines * pieces, 4 * self.length // pieces)

    def _elements(self, pieces: int) -> LoweredKernel:
        routine = Routine(self, "elements")
        low, b, length = routine.low, routine.builder, routine.number(self.length)
        with routine.pieces(pieces, self.keep) as (_, line, start, stop):
            base, to = (b.index("multiply", line, n) for n in (length, b.kernel.numbers[-1]))
            with low.loop(start, stop) as (i, _):
                self._take(low, self.arrays[self.passes % 2], b.index("add", base, i), b.index("add", to, i))
        return routine.finished(self.lines * pieces, 4 * self.keep // pieces)

    def _order(self) -> LoweredKernel:
        """Move the elements of each line digit by digit."""
        routine = Routine(self, "order")
        low, b, length = routine.low, routine.builder, routine.number(self.length)
        arrays = [[low.buffer(x, True) for x in some] for some in self.arrays]
        counters = b.scratch(INDEX, self.counters)
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            self.move_all(low, arrays, b.index("multiply", line, length), length, counters)
        return routine.finished(self.lines, 4 * (self.passes + 1) * (self.length + BUCKETS))

    @property
    def counters(self) -> int:
        """How many `move_all` needs."""
        return self.passes * BUCKETS

    def move_all(
        self, low: Lowering, arrays: Sequence[Sequence[Buffer]], base: Index, stop: Index, counters: Buffer
    ) -> None:
        """The first elements of a line to and fro, digit by digit."""
        b, last = low.builder, operand_of(stop)
        with low.loop(0, self.counters, sequential=True) as (k, _):
            b.store(counters, k, Literal(INDEX, 0))
        end = b.index("add", base, stop)
        with low.loop(base, end, sequential=True) as (i, _):
            key = b.load(arrays[0][0], i)
            for turn in range(self.passes):
                shift = Literal(self.keys.type, turn * DIGIT)
                place = b.index("add", self._digit(low, key, shift), turn * BUCKETS)
                b.store(counters, place, operand_of(b.index("add", b.load(counters, place), 1)))
        both = (0, 1)[: self.passes]
        with low.loop(0, self.passes // len(both), sequential=True) as (pair, _):
            for half in both:
                turn = b.index("add", b.index("multiply", pair, 2), half)
                offset = b.index("multiply", turn, BUCKETS)
                shift = self._shift(low, b.index("multiply", turn, DIGIT))
                digit = self._digit(low, b.load(arrays[half][0], base), shift)
                same = compare(low, "EQ", b.load(counters, b.index("add", digit, offset)), last, "SIGNED")
                with low.loop(0, BUCKETS, [operand_of(base)], sequential=True) as (k, loop):
                    place = b.index("add", k, offset)
                    count = b.load(counters, place)
                    b.store(counters, place, loop.carried[0].inside)
                    loop.carried[0].updated = b.compute("add", INDEX, loop.carried[0].inside, count)
                self._move(low, (arrays[half], arrays[1 - half]), (base, end), shift, (counters, offset), same)

    def _count(self, turn: int, counts: Partial, pieces: int) -> LoweredKernel:
        routine = Routine(self, "count")
        low, b = routine.low, routine.builder
        memory, keys = low.buffer(counts, True), low.buffer(self.arrays[turn % 2][0])
        with routine.pieces(pieces, self.length) as (index, line, start, stop):
            base, first = b.index("multiply", line, b.kernel.numbers[2]), b.index("multiply", index, BUCKETS)
            shift = self._shift(low, routine.number(turn * DIGIT))
            with low.loop(0, BUCKETS, sequential=True) as (k, _):
                b.store(memory, b.index("add", first, k), Literal(INDEX, 0))
            bounds = b.index("add", base, start), b.index("add", base, stop)
            with low.loop(*bounds, sequential=True) as (i, _):
                place = b.index("add", first, self._digit(low, b.load(keys, i), shift))
                b.store(memory, place, operand_of(b.index("add", b.load(memory, place), 1)))
        return routine.finished(self.lines * pieces, 8 * self.length // pieces)

    def _move_pieces(self, turn: int, counts: Partial, pieces: int) -> LoweredKernel:
        """A piece's elements of a digit come after all of lower digits, and after those of the pieces before."""
        routine = Routine(self, "move")
        low, b = routine.low, routine.builder
        here, there = ([low.buffer(x, k == 1) for x in self.arrays[(turn + k) % 2]] for k in (0, 1))
        number = routine.number(turn * DIGIT)
        memory, counters, zero = low.buffer(counts), b.scratch(INDEX, BUCKETS), Literal(INDEX, 0)
        with routine.pieces(pieces, self.length) as (index, line, start, stop):
            _, many, _, length = b.kernel.numbers
            begin = b.index("multiply", line, many)  # of its line's pieces
            base = b.index("multiply", line, length)
            with low.loop(0, BUCKETS, [operand_of(base), zero], sequential=True) as (k, digits):
                total, most = digits.carried
                with low.loop(0, many, [zero, zero], sequential=True) as (p, loop):
                    every, before = loop.carried
                    piece = b.index("add", begin, p)
                    count = b.load(memory, b.index("add", b.index("multiply", piece, BUCKETS), k))
                    earlier = compare(low, "LT", operand_of(piece), index, "SIGNED")
                    every.updated = b.compute("add", INDEX, every.inside, count)
                    before.updated = b.compute("add", INDEX, before.inside, if_(low, earlier, count))
                b.store(counters, k, b.compute("add", INDEX, total.inside, before.result))
                total.updated = b.compute("add", INDEX, total.inside, every.result)
                most.updated = b.compute("maximum", INDEX, most.inside, every.result)
            same = compare(low, "EQ", most.result, length, "SIGNED")
            bounds = b.index("add", base, start), b.index("add", base, stop)
            self._move(low, (here, there), bounds, self._shift(low, number), (counters, 0), same)
        return routine.finished(self.lines * pieces, 8 * self.length // pieces)

    def _restore(self) -> LoweredKernel:
        routine = Routine(self, "restore")
        low, b, length = routine.low, routine.builder, routine.number(self.length)
        ordered = low.buffer(self.arrays[self.passes % 2][0])
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            base = b.index("multiply", line, length)
            self._put_back(low, length, base, ordered, base)
        return routine.finished(self.lines, self.length)

    def counts_places(self, x: Instruction) -> bool:
        """Whether elements are their places in their lines."""
        return x.op is movement.iota and x.attributes.iota_dimension == self.dimension

    def _shift(self, low: Lowering, bits: Index) -> Operand:
        """A number of bits that is known to be fewer than a key has."""
        compute, type = low.builder.compute, self.keys.type
        return compute("and", type, compute("convert", type, operand_of(bits)), Literal(type, self.keys.bits - 1))

    def _digit(self, low: Lowering, key: Operand, shift: Operand) -> Value:
        compute, type = low.builder.compute, self.keys.type
        digit = compute("and", type, compute("shift-right-logical", type, key, shift), Literal(type, BUCKETS - 1))
        return compute("convert", INDEX, digit)

    def _move(
        self,
        low: Lowering,
        arrays: tuple[Sequence[Buffer], Sequence[Buffer]],
        bounds: tuple[Index, Index],
        shift: Operand,
        counters: tuple[Buffer, Index],
        same: Operand,
    ) -> None:
        """Elements to where the counter of their digit says; as they are if all have the same."""
        b = low.builder
        (start, stop), (buffer, offset) = bounds, counters
        pairs = list(zip(*arrays, strict=True))
        with low.loop(0, if_(low, same, 1), sequential=True):
            words, copy = b.scratch(INDEX, 1), _copy()
            for x, to in pairs:
                b.store(words, 0, operand_of(b.index("multiply", b.index("subtract", stop, start), _bytes(x.type))))
                b.call(copy, (to, start), (x, start), (words, 0))
        with low.loop(start, if_(low, same, start, stop), sequential=True) as (i, _):
            values = [b.load(x, i) for x, _ in pairs]
            counter = b.index("add", self._digit(low, values[0], shift), offset)
            place = b.load(buffer, counter)
            b.store(buffer, counter, operand_of(b.index("add", place, 1)))
            for (_, to), value in zip(pairs, values, strict=True):
                b.store(to, place, value)
