"""The first elements of an order: those that do not come after a bound, cut down to the first ones when there are many.

Of a line cut into groups, the last wanted one of the groups' first elements is a bound: as many elements come no later,
so the wanted ones are among these. Mostly there are few others, and blocks without any are passed over. A line is the
work of one thread; a long one is cut into pieces, and the first elements of these are sorted.
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
    FEW_LINES,
    MOST_PIECES,
    PIECE,
    Keys,
    Routine,
    Sort,
    pieces_between,
    results_by_number,
)
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.ops import movement
from tinyxla.shapes import Shape, element_type

BLOCK = 64  # elements that are passed over together where none is wanted
CAPACITY = 1 << 12  # candidates
FEW, AT_ONCE = 64, 1 << 14  # elements found one by one; looked at for that in a line without a bound
SPARSE = 1 << 10  # elements of a piece for each that is wanted
MANY = 16  # for so many, of a line in which one of so many is wanted, all are sorted


def supports(x: Instruction) -> bool:
    return is_native_type(x.operands[0].array_shape)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    (operand,) = x.operands
    k, largest = x.attributes
    shape = operand.array_shape
    number = Shape(element_type(np.int32), shape.dimensions)
    places = Instruction(movement.iota, (), movement.Iota(number, shape.rank - 1), number)
    keys = Keys(shape.element_type.name, largest, True)
    wanted = pieces_between(0, k, shape.dimensions[-1])
    sort = Sort(x, plan, keys, (operand, places), results_by_number(x, users), shape.rank - 1, wanted)
    if not k * sort.lines:
        return []
    if k > max(MANY, sort.length // MANY) and are_batched_short_keys(shape, sort.dimension, 32):
        return sorting_network.kernels(sort)
    if 2 * k > CAPACITY:
        return sort.kernels()
    pieces = min(MOST_PIECES, sort.length // max(PIECE, SPARSE * k)) if sort.lines < FEW_LINES else 1
    if pieces < 2:
        return [_Firsts(sort, operand, (1, sort.length)).kernel(sort.results)]
    found = [Temporary(Shape(kind, (sort.lines, pieces, k))) for kind in (shape.element_type, number.element_type)]
    return [
        _Firsts(sort, operand, (pieces, sort.length)).kernel(found),
        _Firsts(sort, found[0], (1, pieces * k)).kernel(sort.results, found[1]),
    ]


class _Firsts:
    """Those of each of so many pieces of lines of such a length."""

    def __init__(self, sort: Sort, source: Storage, sizes: tuple[int, int]) -> None:
        self.sort, self.keys, self.sizes = sort, sort.keys, sizes
        self.routine = Routine(sort, "first")
        self.low, self.b = self.routine.low, self.routine.builder
        self.candidates = (_OneByOne if sort.keep <= FEW and self.keys.bits <= 32 else _ByDigits)(sort, self.routine)
        self.keep, self.elements = self.candidates.keep, self.routine.buffer(source)

    def kernel(self, results: Sequence[Storage | None], names: Temporary | None = None) -> LoweredKernel:
        """A place is what `names` has there."""
        low, b, keep, (pieces, size) = self.low, self.b, self.keep, self.sizes
        table = names and self.routine.buffer(names)
        groups = min(CAPACITY, max(BLOCK, 1 << (4 * self.sort.keep - 1).bit_length()))
        few = size <= CAPACITY and (self.sort.keep * size <= AT_ONCE or size < 2 * BLOCK)
        many, rows = (0, 0) if few else (self.routine.number(groups), self.routine.number(size // pieces // groups))
        with self.routine.pieces(pieces, size) as (index, line, start, stop):
            self.base = b.mul(line, b.kernel.parameters[-1])
            if few:
                with low.loop(0, stop) as (i, _):
                    self._put(i, i)
                self.candidates.cut(stop)
            else:
                self._group(start, many, rows)
                self._choose(start, stop, many)
            to = b.mul(index, keep)
            with low.loop(0, keep, sequential=True) as (i, _):
                key, place = self.candidates.get(i)
                if table:
                    place = b.load(table, b.convert(INDEX, place))
                for result, value in zip(results, (self.routine.of(key), place), strict=True):
                    if result is not None:
                        b.store(self.routine.buffer(result, True), b.add(to, i), value)
        return self.routine.finished(self.sort.lines * pieces, size // pieces)

    def _key(self, place: Index) -> Operand:
        return self.routine.key(self.b.load(self.elements, self.b.add(self.base, place)))

    def _put(self, to: Index, place: Index) -> Operand:
        key = self._key(place)
        self.candidates.put(to, key, place)
        return key

    def _group(self, start: Index, many: Index, rows: Index) -> None:
        """Let the first elements of groups, which are as far apart as there are groups, be the candidates."""
        low, b, type = self.low, self.b, self.keys.type
        firsts = b.scratch(type, CAPACITY)
        with low.loop(0, many, sequential=True) as (j, _):
            b.store(firsts, j, self.last)
        with low.loop(0, rows, sequential=True) as (row, _):
            here = b.add(start, b.mul(row, many))
            with low.loop(0, b.floordiv(many, BLOCK)) as (block, _), low.loop(0, BLOCK) as (i, _):
                j = b.add(b.mul(block, BLOCK), i)
                least = b.compute("minimum", type, b.load(firsts, j), self._key(b.add(here, j)))
                b.store(firsts, j, least)
        with low.loop(0, many, sequential=True) as (j, _):
            self.candidates.put(j, b.load(firsts, j), j)

    def _choose(self, start: Index, stop: Index, many: Index) -> None:
        """Pass over a piece with a bound that so many candidates give, and with another one as often as there are many
        others; what is equal to the first one may be wanted."""
        low, b, keep, zero = self.low, self.b, self.keep, Literal(INDEX, 0)
        length = b.sub(stop, start)
        blocks, rest = b.floordiv(length, BLOCK), b.remainder(length, BLOCK)
        begin = b.add(start, rest)  # of whole blocks
        with low.loop(0, b.add(blocks, 2), [zero, operand_of(many)], sequential=True) as (turn, outer):
            is_first = b.compare("EQ", turn, zero)
            bound, one = self.candidates.cut(outer.carried[1].arg), Literal(self.keys.type, 1)
            last = b.select(is_first, bound, b.compute("subtract", self.keys.type, bound, one))
            end = b.select(b.or_(is_first, b.compare("GE", bound, one)), blocks)  # nothing comes before the least

            def is_wanted(key: Operand) -> Operand:
                return b.compare("LE", key, last)

            with low.loop(0, b.select(is_first, rest), sequential=True) as (i, _):
                self._put(i, b.add(start, i))
            passed = [outer.carried[0].arg, b.select(is_first, rest, keep)]
            with low.loop(passed[0], end, passed, sequential=True) as (block, loop):
                here = b.add(begin, b.mul(block, BLOCK))
                with low.loop(0, BLOCK, [self.last]) as (i, least):
                    slot = least.carried[0]
                    slot.next = b.compute("minimum", self.keys.type, slot.arg, self._key(b.add(here, i)))
                some = b.select(is_wanted(slot.result), BLOCK)
                with low.loop(0, some, [loop.carried[1].arg], sequential=True) as (i, chosen):
                    to = chosen.carried[0].arg
                    key = self._put(to, b.add(here, i))
                    chosen.carried[0].next = operand_of(b.add(to, b.select(is_wanted(key), 1)))
                loop.carried[0].next = operand_of(b.add(block, 1))
                loop.carried[1].next = chosen.carried[0].result
                loop.continue_while = b.compare("LE", chosen.carried[0].result, Literal(INDEX, CAPACITY))
            for before, after in zip(outer.carried, loop.carried, strict=True):
                before.next = after.result
            more = b.compare("GT", loop.carried[1].result, keep)
            outer.continue_while = b.or_(is_first, more)

    @property
    def last(self) -> Literal:
        return Literal(self.keys.type, (1 << self.keys.bits) - 1)


class _OneByOne:
    """Candidates as numbers of which no two are equal, a key and a place: each time the least is found of those after
    the one before it."""

    def __init__(self, sort: Sort, routine: Routine) -> None:
        self.low, self.b, self.keep = routine.low, routine.builder, routine.number(sort.keep)
        self.key = sort.keys.type
        self.some, self.found = self.b.scratch("u64", CAPACITY + 2 * BLOCK), self.b.scratch("u64", FEW)

    def put(self, to: Index, key: Operand, place: Index) -> None:
        b = self.b
        b.store(self.some, to, b.or_(b.shift_left(b.convert("u64", key), 32), b.convert("u64", place)))

    def get(self, i: Index) -> tuple[Operand, Operand]:
        return self._parts(self.b.load(self.found, i))

    def _parts(self, number: Operand) -> tuple[Operand, Operand]:
        return self.b.convert(self.key, self.b.shift_right(number, 32)), self.b.convert("u32", number)

    def cut(self, count: Index) -> Operand:
        low, b, last = self.low, self.b, Literal("u64", (1 << 64) - 1)
        with low.loop(0, self.keep, [Literal("u64", 0), last], sequential=True) as (turn, rounds):
            from_here = rounds.carried[0].arg
            with low.loop(0, count, [last]) as (i, least):
                value = b.load(self.some, i)
                left = b.select(b.compare("GE", value, from_here), value, last)
                least.carried[0].next = b.compute("minimum", "u64", least.carried[0].arg, left)
            found = least.carried[0].result
            b.store(self.found, turn, found)
            rounds.carried[0].next = b.compute("add", "u64", found, Literal("u64", 1))
            rounds.carried[1].next = found
        with low.loop(0, self.keep, sequential=True) as (i, _):
            b.store(self.some, i, b.load(self.found, i))
        return self._parts(rounds.carried[1].result)[0]


class _ByDigits:
    """Candidates as keys and places, which are sorted."""

    def __init__(self, sort: Sort, routine: Routine) -> None:
        self.routine, self.b, self.keep = routine, routine.builder, routine.number(sort.keep)
        self.arrays = routine.scratch(CAPACITY + 2 * BLOCK)

    def put(self, to: Index, key: Operand, place: Index) -> None:
        self.routine.put(self.arrays[0], to, [key, self.b.convert("u32", place)])

    def get(self, i: Index) -> tuple[Operand, Operand]:
        return self.routine.key_at(self.arrays[0], i), self.routine.along(self.arrays[0], i)

    def cut(self, count: Index) -> Operand:
        self.routine.order(self.arrays, 0, count, 0)
        return self.get(self.b.sub(self.keep, 1))[0]
