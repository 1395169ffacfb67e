"""Kinds of memory in which the results of programs are: a constraint says it, and what is computed of an array stays in
its memory. All kinds are the same memory here, so that programs do not depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, elementwise
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.tracing.core import GraphTracer
from tinyxla.transforms.computations import interpret

Kind = str | None  # None: what was not put anywhere goes with other operands


def says_memory_kinds(computation: Computation) -> bool:
    """Whether a constraint in a computation, or in one that it calls, names a kind of memory."""
    return "sharding-constraint" in computation.all_opcodes and any(map(_says, computation.instructions))


def _says(x: Instruction) -> bool:
    if x.op.name == "sharding-constraint":
        return x.attributes.memory_kind is not None
    return any(map(says_memory_kinds, x.computations()))


def kinds_of_results(computation: Computation, inputs: Sequence[Kind]) -> list[Kind]:
    """The kinds of memory of the results, of a program of which mostly nothing is said; `inputs` is empty if the
    arguments are in the usual one."""
    if not inputs and not says_memory_kinds(computation):
        return [None] * len(computation.outputs)
    return result_kinds(computation, inputs or [None] * len(computation.parameters))


def result_kinds(computation: Computation, inputs: Sequence[Kind]) -> list[Kind]:
    """The kinds of memory of the results of a computation.

    Raises:
        ArgumentError: an operation on arrays in different ones.
    """
    given: list[list[Kind]] = [[kind] for kind in inputs]
    return interpret(computation, given, _kinds)


def memory_kind_of(x: Any) -> str:
    """The kind of memory in which a traced array will be, as far as operations before it say it."""
    if not isinstance(x, GraphTracer):
        return str(getattr(getattr(x, "sharding", None), "memory_kind", "device"))
    if x.owner.memory_kinds is None:
        x.owner.memory_kinds = _Found()
    found: _Found = x.owner.memory_kinds
    found.read(x.owner.instructions)
    return found.kinds[x.instruction][0] or "device" if found.kinds else "device"


class _Found:
    """The kinds of memory of the results of instructions that a trace has recorded; of none until one says a kind."""

    def __init__(self) -> None:
        self.kinds: dict[Instruction, list[Kind]] = {}
        self.count = 0  # of instructions that were looked at

    def read(self, instructions: Sequence[Instruction]) -> None:
        if not self.kinds and not any(map(_says, instructions[self.count :])):
            self.count = len(instructions)
            return
        for x in instructions[len(self.kinds) :]:
            self.kinds[x] = _kinds(x, [self.kinds[o] for o in x.operands])


def _kinds(x: Instruction, operands: list[list[Kind]]) -> list[Kind]:
    flat = [kind for several in operands for kind in several]
    if not any(flat) and not _says(x):
        return [None] * len(leaf_shapes(x.shape))
    if x.op is calls.tuple_:
        return flat
    if x.op is calls.get_tuple_element:
        return [flat[x.attributes.index]]
    if x.op.name == "sharding-constraint":
        return [x.attributes.memory_kind or flat[0]]
    if x.op.name == "call":
        return result_kinds(x.attributes.to_apply, flat)
    if x.op.name == "while":
        return result_kinds(x.attributes.body, result_kinds(x.attributes.body, flat))
    if x.op.name == "conditional":
        branches = [result_kinds(branch, flat[1:]) for branch in x.attributes.branch_computations]
        return [next(filter(None, several), None) for several in zip(*branches, strict=True)]
    found = dict.fromkeys(filter(None, flat))
    if len(found) > 1 and x.op.name in elementwise.NAMES:
        raise ArgumentError(
            f"{x.op.name}: the operands must be in one kind of memory, but are in {' and '.join(found)}; use "
            "device_put."
        )
    first = next((kind for kind in found if kind != "device"), next(iter(found), None))
    return [first] * len(leaf_shapes(x.shape))
