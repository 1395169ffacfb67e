"""Loops over integers that are printed as loops of vectors.

LLVM finds such loops too, by passes that take it longer than all else. Kernels that have no others to make vectors of,
and are written with care, do without these passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal as Choice

from tinyxla.backends.numba.emit.operations import emit, iota, memory_type
from tinyxla.backends.numba.emit.scalar import Emitter, LlvmScalar, LlvmVector, broadcast
from tinyxla.loopir.ir.llvm_templates import BYTES, REGISTER_TYPES, constant
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    LONG_LOOP_ITERATIONS,
    Buffer,
    Compute,
    Index,
    Literal,
    Load,
    Loop,
    LoopCarried,
    Operand,
    Statement,
    Store,
    Value,
)
from tinyxla.loopir.ir.operations import is_vector_code, max_element_bytes

_OPERATIONS = frozenset(
    "add and bitcast-convert compare convert maximum minimum or select shift-left shift-right-arithmetic"
    " shift-right-logical subtract xor".split()
)
_FOLDS = {"minimum": "min", "maximum": "max", "and": "and", "or": "or"}  # of which a value may be taken in twice
_AT_ONCE = 4  # vectors of a fold, each of which waits for the one before

# What is the same in all iterations, moves on by one from each to the next, or is a number of each.
Kind = Choice["same", "place", "each"]


def kinds_of(loop: Loop) -> dict[str, Kind] | None:
    """What the values are that a loop computes, if vectors can compute them."""
    if loop.sequential or loop.continue_while is not None or is_vector_code(loop.body):
        return None
    if not all(_is_fold(x, loop.body) for x in loop.carried):
        return None
    kinds: dict[str, Kind] = {loop.index.name: "place", **{x.arg.name: "each" for x in loop.carried}}

    def of(x: Operand | Index) -> Kind:
        return kinds.get(x.name, "same") if isinstance(x, Value) else "same"

    for x in loop.body:
        if isinstance(x, Compute):
            found = _computed(x, [of(operand) for operand in x.operands])
            if found is None:
                return None
            kinds[x.result.name] = found
        elif isinstance(x, Load):
            if of(x.index) == "each" or not _is_integer(x.buffer.type):
                return None
            kinds[x.result.name] = "each" if of(x.index) == "place" else "same"
        elif not (isinstance(x, Store) and of(x.index) == "place" and _is_integer(x.buffer.type)):
            return None
    return kinds


def _is_integer(type: str) -> bool:
    return type[0] in "su" and type in REGISTER_TYPES


def _computed(x: Compute, kinds: Sequence[Kind]) -> Kind | None:
    if all(kind == "same" for kind in kinds):
        return "same"
    if x.attributes and x.attributes[0][0] == "index":
        moves_on = x.op == "add" and "each" not in kinds and kinds.count("place") == 1
        return "place" if moves_on or (x.op == "subtract" and list(kinds) == ["place", "same"]) else None
    types = [x.result.type, *(operand.type for operand in x.operands)]
    return "each" if x.op in _OPERATIONS and all(_is_integer(t) or t == "pred" for t in types) else None


def _is_fold(carried: LoopCarried, body: Sequence[Statement]) -> bool:
    """Whether what a loop carries is what it was combined with something, and nothing else depends on it."""
    uses = [x for x in body if isinstance(x, Compute) and carried.arg in x.operands]
    stored = any(isinstance(x, Store) and carried.arg is x.value for x in body)
    is_only = len(uses) == 1 and not stored and uses[0].result is carried.next
    return is_only and uses[0].op in _FOLDS and _is_integer(carried.arg.type)


class VectorLoop:
    """Prints a loop as one of vectors: the iterations up to the last that fill as many vectors as it takes at once.
    `values` are those around it, `scalar` prints what is the same for all elements of a vector, or a place, and
    `address` gives that of an element."""

    def __init__(
        self,
        loop: Loop,
        kinds: Mapping[str, Kind],
        emitter: Emitter,
        values: dict[str, Any],
        scalar: Callable[[Statement], None],
        address: Callable[[Buffer, Index], str],
        vector_bytes: int,
    ) -> None:
        self.loop, self.kinds, self.emitter, self.values = loop, kinds, emitter, values
        self.scalar, self.address = scalar, address
        known = loop.stop - loop.start if isinstance(loop.start, int) and isinstance(loop.stop, int) else None
        count = LONG_LOOP_ITERATIONS if known is None else max(1, known)
        self.lanes = min(vector_bytes // max_element_bytes(loop), 1 << count.bit_length() - 1)
        waits = loop.carried and not loop.force_vectorize
        self.many = max(1, min(_AT_ONCE, count // self.lanes)) if known is not None or waits else 1
        self.known: dict[str, LlvmVector] = {}  # numbers of each iteration, and what is the same in all
        self.name = f"{loop.index.name}.vectors"

    @property
    def step(self) -> int:
        """Iterations that it takes at once."""
        return self.lanes * self.many

    def print(self, first: str, stop: str) -> None:
        """The iterations from the first index to the last, between which there are none, or some steps; sets the
        results of what the loop carries."""
        emitter, name, carried = self.emitter, self.name, self.loop.carried
        self._spread()
        initials = [self._vector(x.init).text for x in carried]
        if first.isdecimal() and stop.isdecimal() and int(stop) - int(first) == self.step:
            self._fold(self._step(first, [initials] * self.many))
            return
        entry, body, end = emitter.block, f"{name}.body", f"{name}.end"
        some = emitter.value(f"icmp slt i64 {first}, {stop}")
        emitter.line(f"br i1 {some}, label %{body}, label %{end}")
        emitter.start_block(body)
        emitter.line(f"%{name} = phi i64 [ {first}, %{entry} ], [ %{name}.next, %{body} ]")
        place = len(emitter.lines)
        insides = [[f"%{x.arg.name}.{k}" for x in carried] for k in range(self.many)]
        updates = self._step(f"%{name}", insides)
        emitter.line(f"%{name}.next = add nsw i64 %{name}, {self.step}")
        more = emitter.value(f"icmp slt i64 %{name}.next, {stop}")
        emitter.line(f"br i1 {more}, label %{body}, label %{end}")
        emitter.start_block(end)
        merged: list[str] = []
        for inside, updated in zip(insides, updates, strict=True):
            for x, initial, text, after in zip(carried, initials, inside, updated, strict=True):
                phi = f"phi {self._type(x.arg.type)} [ {initial}, %{entry} ], [ {after}, %{body} ]"
                merged.append(f"  {text} = {phi}")
                emitter.line(f"{text}.end = {phi}")
        emitter.lines[place:place] = merged
        self._fold([[f"{text}.end" for text in inside] for inside in insides])

    def _step(self, index: str, insides: Sequence[Sequence[str]]) -> list[list[str]]:
        """So many vectors from an index on: gives what each hands on of what it carries."""
        emitter, carried, updates = self.emitter, self.loop.carried, list[list[str]]()
        for k, texts in enumerate(insides):
            for x, text in zip(carried, texts, strict=True):
                self.known[x.arg.name] = LlvmVector(emitter, x.arg.type, text, self.lanes)
            place = emitter.value(f"add nsw i64 {index}, {k * self.lanes}")
            self.values[self.loop.index.name] = LlvmScalar(emitter, INDEX, place)
            for statement in self.loop.body:
                self._statement(statement)
            updates.append([self._vector(x.next or x.arg).text for x in carried])
        return updates

    def _type(self, type: str) -> str:
        return f"<{self.lanes} x {REGISTER_TYPES[type]}>"

    def _spread(self) -> None:
        """Make vectors of what comes from around the loop."""
        for x in self.loop.body:
            operands = x.operands if isinstance(x, Compute) else [x.value] if isinstance(x, Store) else []
            of_each = isinstance(x, Store) or (isinstance(x, Compute) and self.kinds[x.result.name] == "each")
            for operand in operands if of_each else ():
                if isinstance(operand, Value) and operand.name not in self.kinds and operand.name not in self.known:
                    self.known[operand.name] = self._vector(operand)

    def _vector(self, x: Operand) -> LlvmVector:
        lanes = self.lanes
        if isinstance(x, Literal):
            return broadcast(LlvmScalar(self.emitter, x.type, constant(x.type, x.value)), lanes)
        if x.name in self.known:
            return self.known[x.name]
        return (iota if self.kinds.get(x.name) == "place" else broadcast)(self.values[x.name], lanes)

    def _statement(self, x: Statement) -> None:
        emitter = self.emitter
        if isinstance(x, Store):
            value = self._vector(x.value)
            emitter.line(f"store {value.register} {value.text}, ptr {self.address(x.buffer, x.index)}, {_aligned(x)}")
        elif isinstance(x, (Compute, Load)) and self.kinds[x.result.name] != "each":
            self.scalar(x)
        elif isinstance(x, Load):
            address = self.address(x.buffer, x.index)
            text = emitter.value(f"load {self._type(x.buffer.type)}, ptr {address}, {_aligned(x)}")
            self.known[x.result.name] = LlvmVector(emitter, x.buffer.type, text, self.lanes)
        elif isinstance(x, Compute):
            operands, types = [self._vector(o) for o in x.operands], tuple(o.type for o in x.operands)
            self.known[x.result.name] = self._computed(x.op, operands, types, x.result.type, dict(x.attributes))

    def _computed(
        self, op: str, operands: Sequence[LlvmVector], types: Sequence[str], result: str, attributes: Mapping[str, Any]
    ) -> LlvmVector:
        found = emit(op, operands, types, result, attributes)
        assert isinstance(found, LlvmVector), "it comes from vectors"
        return found

    def _fold(self, vectors: Sequence[Sequence[str]]) -> None:
        """One value of all that lanes have, for each that the loop carries."""
        emitter = self.emitter
        ops = {x.result.name: x.op for x in self.loop.body if isinstance(x, Compute)}
        for carried, texts in zip(self.loop.carried, zip(*vectors, strict=True), strict=True):
            assert isinstance(carried.next, Value), "it is what was combined"
            type, op = carried.arg.type, ops[carried.next.name]
            found, *others = (LlvmVector(emitter, type, text, self.lanes) for text in texts)
            for other in others:
                found = self._computed(op, [found, other], (type, type), type, {})
            sign = "" if op in ("and", "or") else type[0]
            name = f"vector.reduce.{sign}{_FOLDS[op]}.v{self.lanes}{REGISTER_TYPES[type]}"
            text = emitter.intrinsic(name, REGISTER_TYPES[type], f"{found.register} {found.text}", found.register)
            self.values[carried.result.name] = LlvmScalar(emitter, type, text)


def _aligned(x: Load | Store) -> str:
    return f"align {BYTES[memory_type(x.buffer.type)]}"
