"""Replicas as threads: each collective operation of a program becomes a call of the host, in which the threads of a
group meet, and the last one to come computes the result of all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinyxla.errors import SourceLine
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement
from tinyxla.ops.callback import Callback, callback
from tinyxla.ops.replica_groups import REPLICAS
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.replicas.resolution import CHANNELS, COLLECTIVES, PARTICIPATING
from tinyxla.runtime.rendezvous import Wait, current
from tinyxla.shapes import Shape, TupleShape
from tinyxla.tracing.array import wrap
from tinyxla.transforms.batch import batch, map_computations

Array = np.ndarray[Any, Any]
_NUMBERS = ("partition-id", "replica-id")
_IN_PAIRS = ("collective-permute",)


class Meeting:
    """What a callback does in the place of an operation: `function(operands, shapes)`."""

    def __init__(self, x: Instruction, number: int) -> None:
        self.op = x.op
        self.attributes: dict[str, Any] = x.attributes._asdict()
        self.line: SourceLine | None = x.source
        self.key = (x.op.name, number)

    def __repr__(self) -> str:
        return self.op.name

    def __call__(self, operands: Sequence[Array], shapes: tuple[Shape, ...]) -> tuple[Array, ...]:
        meeting, device = current()
        assert meeting is not None, "a program of threads runs in a rendezvous"
        name = self.op.name
        if name in CHANNELS:
            return self.op.evaluate(*operands, line=self.line, **self.attributes)
        if name in _NUMBERS:
            count = self.attributes["partition_count"]
            return (np.array(device // count if name == "replica-id" else device % count, np.uint32),)
        members = self._members(device, meeting.count)
        if device not in members:  # of a broadcast
            return tuple(np.zeros(s.dimensions, s.dtype) for s in shapes)
        return meeting.meet(
            (self.key, members),
            members,
            device,
            operands,
            lambda several: self._combined(several, members),
            lambda absent: Wait(name, absent, self.line),
        )

    def _members(self, device: int, count: int) -> tuple[int, ...]:
        if self.op.name in _IN_PAIRS:
            return tuple(range(count))
        groups = self.attributes["replica_groups"]
        return next((group for group in groups if device in group), ())

    def _combined(self, several: list[Sequence[Array]], members: tuple[int, ...]) -> list[tuple[Array, ...]]:
        """The members' results: those of lanes of one axis."""
        attributes = dict(self.attributes)
        if "replica_groups" in attributes:
            attributes["replica_groups"] = ()
        stacked = [wrap(np.stack(parts)) for parts in zip(*several, strict=True)]
        count = len(members)

        def together(*values: Any) -> Sequence[Any]:
            found = self.op(*values, **attributes)
            return found if isinstance(found, tuple) else (found,)

        pairs = batch(together, count, stacked, [0] * len(stacked), REPLICAS)
        whole = [np.asarray(movement.align_axis(x, axis, 0, count)) for x, axis in pairs]
        return [tuple(np.array(x[k]) for x in whole) for k in range(count)]


@lru_cache(256)
def in_thread(computation: Computation) -> Computation:
    """The program of one replica of several, each of which runs in a thread."""
    if not computation.all_opcodes & PARTICIPATING:
        return computation
    new: dict[Instruction, Instruction] = {}
    made: list[Instruction] = []

    def emit(x: Instruction) -> Instruction:
        made.append(x)
        return x

    for number, x in enumerate(computation.instructions):
        operands = [new[o] for o in x.operands]
        if x.op.name in COLLECTIVES or (x.op.name in CHANNELS and not x.attributes.is_host_transfer):
            new[x] = _called(x, operands, number, emit)
        else:
            attributes = map_computations(x.attributes._asdict(), in_thread)
            new[x] = emit(Instruction(x.op, operands, x.attributes._replace(**attributes), x.shape, x.source, x.name))
    return Computation(computation.name, [new[p] for p in computation.parameters], made, new[computation.root])


def _called(x: Instruction, operands: Sequence[Instruction], number: int, emit: Any) -> Instruction:
    shapes = tuple(leaf_shapes(x.shape))
    effect = x.op.name not in _NUMBERS
    attributes = Callback(Meeting(x, number), shapes, custom_call_has_side_effect=effect, ordered=effect)
    call = emit(Instruction(callback, operands, attributes, TupleShape(shapes), x.source, x.name))
    if isinstance(x.shape, TupleShape):
        return call
    return emit(Instruction(calls.get_tuple_element, (call,), calls.GetTupleElement(0), x.shape, x.source))
