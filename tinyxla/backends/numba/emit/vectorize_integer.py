"""Loop vectorization of integer loops: prints an innermost loop over integers as a loop of vectors and a scalar tail.

LLVM's loop vectorizer does the same, and is its most expensive pass. Kernels whose other loops gain nothing from it are
compiled without it. Applies to loops of elementwise integer operations with unit-stride accesses, and reductions by
`min`, `max`, `and` and `or`; not to floats, gathers, or loops that end early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal as Choice

from tinyxla.backends.numba.emit.llvm_types import BYTES, REGISTER_TYPES, constant
from tinyxla.backends.numba.emit.operations import emit, iota, memory_type
from tinyxla.backends.numba.emit.scalar import Emitter, LlvmScalar, LlvmVector, broadcast
from tinyxla.compiler.costs import INTERLEAVED
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
_REDUCTIONS = {
    "minimum": "min",
    "maximum": "max",
    "and": "and",
    "or": "or",
}  # idempotent, so that a value may be combined twice
MAX_INTERLEAVED = INTERLEAVED  # vectors of a loop, which hide the latency of a reduction

# Loop-invariant, the loop's index plus a loop-invariant number, or different for each iteration.
Kind = Choice["uniform", "induction", "varying"]


def kinds_of(loop: Loop) -> dict[str, Kind] | None:
    """The kinds of the values that a loop computes; None if it cannot be vectorized."""
    if loop.sequential or loop.continue_while is not None or is_vector_code(loop.body):
        return None
    if not all(_is_reduction(x, loop.body) for x in loop.carried):
        return None
    kinds: dict[str, Kind] = {loop.index.name: "induction", **{x.arg.name: "varying" for x in loop.carried}}

    def of(x: Operand | Index) -> Kind:
        return kinds.get(x.name, "uniform") if isinstance(x, Value) else "uniform"

    for x in loop.body:
        if isinstance(x, Compute):
            found = _computed(x, [of(operand) for operand in x.operands])
            if found is None:
                return None
            kinds[x.result.name] = found
        elif isinstance(x, Load):
            if of(x.index) == "varying" or not _is_integer(x.buffer.type):
                return None
            kinds[x.result.name] = "varying" if of(x.index) == "induction" else "uniform"
        elif not (isinstance(x, Store) and of(x.index) == "induction" and _is_integer(x.buffer.type)):
            return None
    return kinds


def _is_integer(type: str) -> bool:
    return type[0] in "su" and type in REGISTER_TYPES


def _computed(x: Compute, kinds: Sequence[Kind]) -> Kind | None:
    if all(kind == "uniform" for kind in kinds):
        return "uniform"
    if x.attributes and x.attributes[0][0] == "index":
        is_induction = x.op == "add" and "varying" not in kinds and kinds.count("induction") == 1
        return "induction" if is_induction or (x.op == "subtract" and list(kinds) == ["induction", "uniform"]) else None
    types = [x.result.type, *(operand.type for operand in x.operands)]
    return "varying" if x.op in _OPERATIONS and all(_is_integer(t) or t == "pred" for t in types) else None


def _is_reduction(carried: LoopCarried, body: Sequence[Statement]) -> bool:
    """Whether a loop-carried value is a reduction: combined with one operand per iteration, and not read otherwise."""
    uses = [x for x in body if isinstance(x, Compute) and carried.arg in x.operands]
    stored = any(isinstance(x, Store) and carried.arg is x.value for x in body)
    is_only = len(uses) == 1 and not stored and uses[0].result is carried.next
    return is_only and uses[0].op in _REDUCTIONS and _is_integer(carried.arg.type)


class VectorLoop:
    """Prints the iterations of a loop that fill its interleaved vectors. `values` are those around it, `scalar` prints
    a statement of uniform or induction kind, and `address` gives the address of an element."""

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
        has_latency = loop.carried and not loop.force_vectorize
        self.interleave = max(1, min(MAX_INTERLEAVED, count // self.lanes)) if known is not None or has_latency else 1
        self.vectors: dict[str, LlvmVector] = {}  # of varying values, and of uniform ones that are broadcast
        self.name = f"{loop.index.name}.vectors"

    @property
    def step(self) -> int:
        """Iterations of the original loop per iteration."""
        return self.lanes * self.interleave

    def print(self, first: str, stop: str) -> None:
        """The iterations from `first` up to `stop`, a multiple of the step; sets the results of loop-carried values."""
        emitter, name, carried = self.emitter, self.name, self.loop.carried
        self._broadcast_invariants()
        initials = [self._vector(x.init).text for x in carried]
        if first.isdecimal() and stop.isdecimal() and int(stop) - int(first) == self.step:
            self._reduce_lanes(self._step(first, [initials] * self.interleave))
            return
        entry, body, end = emitter.block, f"{name}.body", f"{name}.end"
        is_nonempty = emitter.value(f"icmp slt i64 {first}, {stop}")
        emitter.line(f"br i1 {is_nonempty}, label %{body}, label %{end}")
        emitter.start_block(body)
        emitter.line(f"%{name} = phi i64 [ {first}, %{entry} ], [ %{name}.next, %{body} ]")
        place = len(emitter.lines)
        insides = [[f"%{x.arg.name}.{k}" for x in carried] for k in range(self.interleave)]
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
        self._reduce_lanes([[f"{text}.end" for text in inside] for inside in insides])

    def _step(self, index: str, insides: Sequence[Sequence[str]]) -> list[list[str]]:
        """One iteration: the interleaved vectors from an index on, and the loop-carried values after each."""
        emitter, carried, updates = self.emitter, self.loop.carried, list[list[str]]()
        for k, texts in enumerate(insides):
            for x, text in zip(carried, texts, strict=True):
                self.vectors[x.arg.name] = LlvmVector(emitter, x.arg.type, text, self.lanes)
            place = emitter.value(f"add nsw i64 {index}, {k * self.lanes}")
            self.values[self.loop.index.name] = LlvmScalar(emitter, INDEX, place)
            for statement in self.loop.body:
                self._statement(statement)
            updates.append([self._vector(x.next or x.arg).text for x in carried])
        return updates

    def _type(self, type: str) -> str:
        return f"<{self.lanes} x {REGISTER_TYPES[type]}>"

    def _broadcast_invariants(self) -> None:
        """Broadcast values from outside of the loop before it."""
        for x in self.loop.body:
            operands = x.operands if isinstance(x, Compute) else [x.value] if isinstance(x, Store) else []
            of_each = isinstance(x, Store) or (isinstance(x, Compute) and self.kinds[x.result.name] == "varying")
            for operand in operands if of_each else ():
                if isinstance(operand, Value) and operand.name not in self.kinds and operand.name not in self.vectors:
                    self.vectors[operand.name] = self._vector(operand)

    def _vector(self, x: Operand) -> LlvmVector:
        lanes = self.lanes
        if isinstance(x, Literal):
            return broadcast(LlvmScalar(self.emitter, x.type, constant(x.type, x.value)), lanes)
        if x.name in self.vectors:
            return self.vectors[x.name]
        return (iota if self.kinds.get(x.name) == "induction" else broadcast)(self.values[x.name], lanes)

    def _statement(self, x: Statement) -> None:
        emitter = self.emitter
        if isinstance(x, Store):
            value = self._vector(x.value)
            emitter.line(f"store {value.register} {value.text}, ptr {self.address(x.buffer, x.index)}, {_aligned(x)}")
        elif isinstance(x, (Compute, Load)) and self.kinds[x.result.name] != "varying":
            self.scalar(x)
        elif isinstance(x, Load):
            address = self.address(x.buffer, x.index)
            text = emitter.value(f"load {self._type(x.buffer.type)}, ptr {address}, {_aligned(x)}")
            self.vectors[x.result.name] = LlvmVector(emitter, x.buffer.type, text, self.lanes)
        elif isinstance(x, Compute):
            operands, types = [self._vector(o) for o in x.operands], tuple(o.type for o in x.operands)
            self.vectors[x.result.name] = self._computed(x.op, operands, types, x.result.type, dict(x.attributes))

    def _computed(
        self, op: str, operands: Sequence[LlvmVector], types: Sequence[str], result: str, attributes: Mapping[str, Any]
    ) -> LlvmVector:
        found = emit(op, operands, types, result, attributes)
        assert isinstance(found, LlvmVector), "it comes from vectors"
        return found

    def _reduce_lanes(self, vectors: Sequence[Sequence[str]]) -> None:
        """Reduce the lanes of each loop-carried value to one."""
        emitter = self.emitter
        ops = {x.result.name: x.op for x in self.loop.body if isinstance(x, Compute)}
        for carried, texts in zip(self.loop.carried, zip(*vectors, strict=True), strict=True):
            assert isinstance(carried.next, Value), "a reduction has a next value"
            type, op = carried.arg.type, ops[carried.next.name]
            found, *others = (LlvmVector(emitter, type, text, self.lanes) for text in texts)
            for other in others:
                found = self._computed(op, [found, other], (type, type), type, {})
            sign = "" if op in ("and", "or") else type[0]
            name = f"vector.reduce.{sign}{_REDUCTIONS[op]}.v{self.lanes}{REGISTER_TYPES[type]}"
            text = emitter.intrinsic(name, REGISTER_TYPES[type], f"{found.register} {found.text}", found.register)
            self.values[carried.result.name] = LlvmScalar(emitter, type, text)


def _aligned(x: Load | Store) -> str:
    return f"align {BYTES[memory_type(x.buffer.type)]}"
