"""Superword-level parallelism: equal statements about consecutive elements become one statement about a vector (Larsen
and Amarasinghe, PLDI 2000).

Kernels that compute small arrays element by element, as small loops and conditionals do, are long straight-line code.
LLVM's SLP vectorizer finds the vectors in it, but takes more time than all of its other passes together. Here a *pack*
is a tuple of scalars that become the lanes of a vector. Packs grow from stores to consecutive elements: the values that
are stored, their operands, and so on, through values that loops carry, up to loads of consecutive elements and scalars
that are the same in all lanes. A vector stands where the last of its lanes was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import (
    Buffer,
    Call,
    Compute,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    LoopCarried,
    Operand,
    Shuffle,
    Statement,
    Store,
    Value,
    View,
    lanes_of,
)
from tinyxla.loopir.ir.operations import has_vector_form, is_index_arithmetic, vector_op
from tinyxla.loopir.ir.types import COMPONENT_BYTES, PAIRS

MIN_LANES = 4

_User = int | tuple[int, int]  # a statement by its identity, or a loop's and the number of a value that it carries


@dataclass(frozen=True, eq=False, slots=True)
class _Place:
    """A position in a block, and that of the loop around the block."""

    block: int
    position: float
    around: _Place | None = None

    def within(self, block: int) -> float:
        """The position in a block of this place, or of the loop in it that this place is in."""
        place: _Place | None = self
        while place is not None and place.block != block:
            place = place.around
        return math.inf if place is None else place.position


class _Definition(NamedTuple):
    """Where a value comes from: a statement, or a loop that carries it under a number, as argument or as result."""

    source: Compute | Load | Loop
    place: _Place
    number: int = 0
    is_result: bool = False


class _Access(NamedTuple):
    """The elements of a buffer from `first` on and before `stop` are loaded, or stored."""

    buffer: Buffer
    first: float
    stop: float
    is_store: bool

    def conflicts(self, other: _Access) -> bool:
        """Whether the order of two accesses matters."""
        overlap = self.first < other.stop and other.first < self.stop
        return overlap and (self.is_store or other.is_store) and bool(self.buffer.memories & other.buffer.memories)


@dataclass(eq=False, slots=True)
class _Pack:
    """Statements, or values that a loop carries, that become one, where the last of them is. `source` is the statement
    of the first lane; an operand is a vector, or a scalar that is the same in all lanes."""

    source: Statement
    place: _Place
    width: int
    lanes: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()  # after a loop
    operands: Sequence[Operand] = ()


class _Unpackable(Exception):
    """Scalars that cannot be lanes of a vector, or a kernel with statements that routines have alone."""


def slp_vectorized(kernel: Kernel, vector_bytes: int) -> Kernel:
    """The kernel with vectors of up to so many bytes in place of equal statements about consecutive elements."""
    try:
        packing = _Packing(kernel.body)
    except _Unpackable:
        return kernel
    for stores in packing.seeds(vector_bytes):
        packing.grow(stores)
    return replace(kernel, body=packing.emitted(kernel.body)) if packing.packs else kernel


class _Packing:
    """The packs of a kernel, by their users: the statements and loop-carried values that are their lanes."""

    def __init__(self, body: Sequence[Statement]) -> None:
        self.packs: dict[_User, _Pack] = {}
        self._vectors: dict[tuple[Value, ...], Value] = {}
        self._definitions: dict[Value, _Definition] = {}
        self._uses: dict[Value, list[tuple[_User | None, _Place]]] = {}  # None if it takes scalars alone
        self._accesses: dict[int, list[Sequence[_Access]]] = {}  # of the statements of a block
        self._stores: dict[tuple[int, Buffer], dict[int, tuple[Store, _Place]]] = {}
        self._grown: list[_Pack] = []  # from the last seed
        self._broadcast: list[Value] = []  # scalars that are the same in all lanes of these
        self._waiting: list[tuple[_Pack, Sequence[tuple[Sequence[Operand], _Place]]]] = []  # for their operands
        self._count = 0  # of new names
        self._read_block(body, None)

    # What the kernel computes.

    def _read_block(self, statements: Sequence[Statement], around: _Place | None) -> None:
        accesses = self._accesses[id(statements)] = list[Sequence[_Access]]()
        for k, x in enumerate(statements):
            accesses.append(self._read(x, _Place(id(statements), k, around)))

    def _read(self, x: Statement, place: _Place) -> Sequence[_Access]:
        match x:
            case Compute():
                self._definitions[x.result] = _Definition(x, place)
                self._use(x.operands, id(x), place)
                return ()
            case Load():
                self._definitions[x.result] = _Definition(x, place)
                self._use([x.index], None, place)
                return [_access(x)]
            case Store():
                self._use([x.value], id(x), place)
                self._use([x.index], None, place)
                if isinstance(x.index, int):
                    self._stores.setdefault((place.block, x.buffer), {})[x.index] = x, place
                return [_access(x)]
            case Loop():
                return self._read_loop(x, place)
            case Call():
                self._use([index for _, index in x.arguments], None, place)
                return [_Access(buffer, 0, math.inf, True) for buffer, _ in x.arguments]
            case View():
                self._use([x.index], None, place)
                return ()
            case _:
                raise _Unpackable

    def _read_loop(self, x: Loop, place: _Place) -> Sequence[_Access]:
        first, last = _Place(id(x.body), -1, place), _end(x, place)
        self._use([x.start, x.stop], None, place)
        for k, c in enumerate(x.carried):
            self._definitions[c.arg] = _Definition(x, first, k)
            self._definitions[c.result] = _Definition(x, place, k, is_result=True)
            self._use([c.init], (id(x), k), place)
            self._use([c.updated], (id(x), k), last)
        if x.continue_while is not None:
            self._use([x.continue_while], None, last)
        self._read_block(x.body, place)
        return [access for accesses in self._accesses[id(x.body)] for access in accesses]

    def _use(self, operands: Iterable[Operand | Index], user: _User | None, place: _Place) -> None:
        for x in operands:
            if isinstance(x, Value):
                self._uses.setdefault(x, []).append((user, place))

    # How packs grow.

    def seeds(self, vector_bytes: int) -> Iterator[Sequence[tuple[Store, _Place]]]:
        """Stores to consecutive elements, as many as a vector has lanes."""
        for (_, buffer), stores in self._stores.items():
            most = vector_bytes // max(COMPONENT_BYTES[buffer.type], 4)
            run: list[tuple[Store, _Place]] = []
            for index in sorted(stores) if buffer.type not in PAIRS else ():
                run.append(stores[index])
                if index + 1 in stores:
                    continue
                while min(most, len(run)) >= MIN_LANES:
                    lanes = min(most, 1 << len(run).bit_length() - 1)
                    yield run[:lanes]
                    run = run[lanes:]
                run = []

    def grow(self, stores: Sequence[tuple[Store, _Place]]) -> None:
        """Pack stores and what they need, if that saves statements."""
        self._grown, self._broadcast, self._waiting = [], [], []
        packs, vectors = len(self.packs), len(self._vectors)
        try:
            self._pack_stores([x for x, _ in stores], [place for _, place in stores])
            while self._waiting:
                pack, operands = self._waiting.pop()
                pack.operands = [self._vector(scalars, place) for scalars, place in operands]
            if self._saved_statements() > 0:
                return
        except _Unpackable:
            pass
        for table, size in ((self.packs, packs), (self._vectors, vectors)):
            while len(table) > size:
                table.popitem()  # the last one that was added
        for x in self._broadcast:
            self._uses[x].pop()

    def _pack_stores(self, stores: Sequence[Store], places: Sequence[_Place]) -> None:
        self._check_order(stores, places)
        pack = _Pack(stores[0], _last(places), len(stores))
        self._add(pack, list(map(id, stores)), [([x.value for x in stores], pack.place)])

    def _vector(self, scalars: Sequence[Operand], place: _Place) -> Operand:
        """Scalars that are needed at a place, as a vector; or the one that all of them are."""
        first = scalars[0]
        if all(x is first for x in scalars) or all(isinstance(x, Literal) and repr(x) == repr(first) for x in scalars):
            if isinstance(first, Value):
                self._check_extraction(first, [place])
                self._use([first], None, place)
                self._broadcast.append(first)
            return first
        lanes = tuple(x for x in scalars if isinstance(x, Value) and x in self._definitions)
        if lanes not in self._vectors:
            _require(len(lanes) == len(scalars))
            self._pack_values(lanes, [self._definitions[x] for x in lanes])
        return self._vectors[lanes]

    def _pack_values(self, lanes: tuple[Value, ...], definitions: Sequence[_Definition]) -> None:
        places, count, first = [x.place for x in definitions], len(lanes), definitions[0]
        _require(all(x.block == first.place.block for x in places))
        loads = [x.source for x in definitions if isinstance(x.source, Load)]
        computes = [x.source for x in definitions if isinstance(x.source, Compute)]
        if len(loads) == count:
            _require(_are_consecutive(loads))
            self._check_order(loads, places)
            self._add(_Pack(loads[0], _last(places), count, lanes), list(map(id, loads)))
        elif len(computes) == count:
            _require(_are_isomorphic(computes))
            pack = _Pack(computes[0], _last(places), count, lanes)
            operands = zip(*(x.operands for x in computes), strict=True)
            self._add(pack, list(map(id, computes)), [(scalars, pack.place) for scalars in operands])
        else:
            loop = first.source
            _require(all(x.source is loop and x.is_result is first.is_result for x in definitions))
            assert isinstance(loop, Loop), "neither loads nor operations"
            self._pack_carried(loop, first.place if first.is_result else first.place.around, definitions)

    def _pack_carried(self, loop: Loop, place: _Place | None, definitions: Sequence[_Definition]) -> None:
        numbers = [x.number for x in definitions]
        carried = [loop.carried[k] for k in numbers]
        type = carried[0].arg.type
        _require(type not in PAIRS and all(c.arg.type == type for c in carried))
        assert place is not None, "a loop is in a block"
        arguments, results = tuple(c.arg for c in carried), tuple(c.result for c in carried)
        initials, nexts = [c.init for c in carried], [c.updated for c in carried]
        pack = _Pack(loop, place, len(carried), arguments, results)
        self._add(pack, [(id(loop), k) for k in numbers], [(initials, place), (nexts, _end(loop, place))])

    def _add(
        self, pack: _Pack, users: Sequence[_User], operands: Sequence[tuple[Sequence[Operand], _Place]] = ()
    ) -> None:
        """Add a pack, whose operands - scalars, and where they are needed - are packed later: what a loop carries may
        depend on itself, and chains of operations are long."""
        _require(len(set(users)) == len(users) and self.packs.keys().isdisjoint(users))
        self._grown.append(pack)
        self._waiting.append((pack, operands))
        self.packs.update(dict.fromkeys(users, pack))
        for lanes in filter(None, (pack.lanes, pack.results)):
            self._vectors[lanes] = Value(lanes[0].type, f"{lanes[0].name}_lanes", len(lanes))

    def _check_order(self, accesses: Sequence[Load | Store], places: Sequence[_Place]) -> None:
        """Check that accesses may move to where the last of them is."""
        positions, found = {int(x.position) for x in places}, self._accesses[places[0].block]
        between = [k for k in range(min(positions), max(positions)) if k not in positions]
        others = [access for k in between for access in found[k]]
        _require(not any(_access(x).conflicts(other) for x in accesses for other in others))

    def _saved_statements(self) -> int:
        """How many statements the packs of a seed save. A lane that something needs as a scalar is extracted."""
        saved = 0
        for pack in self._grown:
            saved += pack.width - 1
            for x in (*pack.lanes, *pack.results):
                places = self._scalar_uses(x)
                saved -= bool(places)
                self._check_extraction(x, places)
        return saved

    def _check_extraction(self, x: Value, places: Sequence[_Place]) -> None:
        """Check that where a value is needed as a scalar, the vector is there whose lane it is."""
        source = self._definitions[x].source if x in self._definitions else None
        pack = self.packs.get(id(source))  # none of a loop, at whose ends all lanes are there
        _require(pack is None or all(p.within(pack.place.block) > pack.place.position for p in places))

    def _scalar_uses(self, x: Value) -> list[_Place]:
        return [place for user, place in self._uses.get(x, ()) if user is None or user not in self.packs]

    # Vector code.

    def emitted(self, statements: Sequence[Statement]) -> list[Statement]:
        """A block with its packs as vectors."""
        result: list[Statement] = []
        for k, x in enumerate(statements):
            pack = self.packs.get(id(x))
            if isinstance(x, Loop):
                result += self._loop(x)
            elif pack is None:
                result.append(x)
            elif pack.place.position == k:
                result += self._vector_statement(pack)
        return result

    def _vector_statement(self, pack: _Pack) -> list[Statement]:
        result: list[Statement] = []
        operands = list(pack.operands)
        if operands and all(lanes_of(x) == 1 for x in operands):
            operands[0] = self._in_all_lanes(operands[0], pack, result)
        match pack.source:
            case Store() as x:
                return [*result, replace(x, value=operands[0])]
            case Compute() as x:
                vector = self._vectors[pack.lanes]
                result.append(replace(x, result=vector, op=vector_op(x), operands=tuple(operands)))
            case x:
                assert isinstance(x, Load), "loops are emitted apart"
                result.append(replace(x, result=self._vectors[pack.lanes]))
        return result + self._extracted(pack.lanes)

    def _loop(self, x: Loop) -> list[Statement]:
        before, first, last, after = (list[Statement]() for _ in range(4))
        carried: list[LoopCarried] = []
        packs = [self.packs.get((id(x), k)) for k in range(len(x.carried))]
        for c, pack in zip(x.carried, packs, strict=True):
            if pack is None:
                carried.append(c)
            elif c.arg is pack.lanes[0]:
                initial, following = pack.operands
                initial = self._in_all_lanes(initial, pack, before)
                following = self._in_all_lanes(following, pack, last)
                carried.append(LoopCarried(self._vectors[pack.lanes], initial, self._vectors[pack.results], following))
                first += self._extracted(pack.lanes)
                after += self._extracted(pack.results)
        body = [*first, *self.emitted(x.body), *last]
        return [*before, replace(x, body=body, carried=carried), *after]

    def _in_all_lanes(self, x: Operand, pack: _Pack, into: list[Statement]) -> Operand:
        if lanes_of(x) > 1:
            return x
        self._count += 1
        result = Value(x.type, f"lanes_{self._count}", pack.width)
        into.append(Shuffle(result, (x,), (0,) * pack.width))
        return result

    def _extracted(self, lanes: Sequence[Value]) -> list[Statement]:
        """The lanes that something needs as scalars."""
        vector = self._vectors[tuple(lanes)]
        return [Shuffle(x, (vector,), (k,)) for k, x in enumerate(lanes) if self._scalar_uses(x)]


def _require(is_true: bool) -> None:
    if not is_true:
        raise _Unpackable


def _access(x: Load | Store) -> _Access:
    is_store = isinstance(x, Store)
    lanes = lanes_of(x.value) if isinstance(x, Store) else x.result.lanes
    return (
        _Access(x.buffer, x.index, x.index + lanes, is_store)
        if isinstance(x.index, int)
        else _Access(x.buffer, 0, math.inf, is_store)
    )


def _last(places: Sequence[_Place]) -> _Place:
    return max(places, key=lambda x: x.position)


def _end(loop: Loop, place: _Place) -> _Place:
    """The end of the body of a loop that is at a place."""
    return _Place(id(loop.body), math.inf, place)


def _are_consecutive(loads: Sequence[Load]) -> bool:
    """Whether loads are of one element after the other."""
    first = loads[0]
    if first.buffer.type in PAIRS or not isinstance(first.index, int):
        return False
    return all(x.buffer is first.buffer and x.index == first.index + k for k, x in enumerate(loads))


def _are_isomorphic(statements: Sequence[Compute]) -> bool:
    """Whether statements are the same operation, which there is for vectors."""
    first = statements[0]
    types = [first.result.type, *(x.type for x in first.operands)]
    if is_index_arithmetic(first) or not has_vector_form(first):
        return False
    return all(
        x.op == first.op
        and x.attributes == first.attributes
        and types == [x.result.type, *(operand.type for operand in x.operands)]
        for x in statements
    )
