"""Replicas as threads: each collective operation of a program becomes a call of the host, in which the threads of a
group meet, and the last one to come computes the result of all.

Replicas meet at the same instruction, or, if that has a `channel_id`, at instructions of any modules with this channel.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from tinyxla.errors import ChannelError
from tinyxla.hlo import Computation, Instruction, Operation, map_computations
from tinyxla.ops import calls, movement
from tinyxla.ops.distributed.replica_groups import REPLICAS, Mesh
from tinyxla.ops.host.callback import Callback, Exchange, callback
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.replicas.resolution import CHANNELS, COLLECTIVES, PARTICIPATING, Same, between_devices
from tinyxla.runtime.rendezvous import Line, Wait, current
from tinyxla.shapes import Shape, TupleShape
from tinyxla.tracing.array import wrap
from tinyxla.transforms.batch import batch

Array = np.ndarray[Any, Any]
_NUMBERS = ("partition-id", "replica-id")
_IN_PAIRS = ("collective-permute",)


@dataclass(frozen=True)
class Meeting(Exchange):
    """What a callback does in the place of an operation: `function(operands, shapes)`.

    Equal ones are the same instruction, for another replica: a program may be built once for each.
    """

    op: Operation
    attributes: Any  # numbered by devices
    line: Line
    number: int  # of the instruction in its computation
    channel: int | None

    def __repr__(self) -> str:
        return self.op.name

    @property
    def end(self) -> Hashable:
        """What replicas meet at: this instruction, or any with its channel."""
        return (self.op.name, self if self.channel is None else self.channel)

    def __call__(self, operands: Sequence[Array], shapes: tuple[Shape, ...]) -> tuple[Array, ...]:
        meeting, device = current()
        assert meeting is not None, "a program of threads runs in a rendezvous"
        name, given = self.op.name, self.attributes
        if name in CHANNELS:
            return self.op.evaluate(*operands, line=self.line, **given._asdict())
        if name in _NUMBERS:
            count = given.partition_count
            return (np.array(device // count if name == "replica-id" else device % count, np.uint32),)
        members = self._members(device, meeting.count)
        if device not in members:  # of a broadcast
            return tuple(np.zeros(s.dimensions, s.dtype) for s in shapes)
        over = "" if self.channel is None else f" over channel {self.channel}"
        return meeting.meet(
            (self.end, members),
            members,
            device,
            (self, operands),
            lambda several: self._combined(several, members),
            lambda absent, whom: Wait(name + over, whom, self.line, self.end, absent),
        )

    def _members(self, device: int, count: int) -> tuple[int, ...]:
        if self.op.name in _IN_PAIRS:
            return tuple(range(count))
        return next((group for group in self.attributes.replica_groups if device in group), ())

    def _combined(
        self, several: list[tuple[Meeting, Sequence[Array]]], members: tuple[int, ...]
    ) -> list[tuple[Array, ...]]:
        """The members' results: those of lanes of one axis."""
        for (first, x), (other, y) in pairwise(several):
            _check_agreement(first, x, other, y)
        attributes: dict[str, Any] = self.attributes._asdict()
        if "replica_groups" in attributes:
            attributes["replica_groups"] = ()
        stacked = [wrap(np.stack(parts)) for parts in zip(*(operands for _, operands in several), strict=True)]
        count = len(members)

        def together(*values: Any) -> Sequence[Any]:
            found = self.op(*values, **attributes)
            return found if isinstance(found, tuple) else (found,)

        pairs = batch(together, count, stacked, [0] * len(stacked), REPLICAS)
        whole = [np.asarray(movement.align_axis(x, axis, 0, count)) for x, axis in pairs]
        return [tuple(np.array(x[k]) for x in whole) for k in range(count)]


def _check_agreement(first: Meeting, x: Sequence[Array], other: Meeting, y: Sequence[Array]) -> None:
    """Instructions of several modules that meet over a channel must be alike."""
    shapes = [", ".join(str(Shape.of(operand)) for operand in operands) for operands in (x, y)]
    mine, theirs = (m.attributes._asdict() | {"replica_groups": ()} for m in (first, other))
    differing = [key for key, value in mine.items() if theirs[key] != value]
    if differing or shapes[0] != shapes[1]:
        said = " and ".join(differing) if differing else f"operands {shapes[0]} and {shapes[1]}"
        raise ChannelError(
            f"{first.op.name}: what meets over channel {first.channel} must be the same operation, but that at "
            f"{first.line} and that at {other.line} differ in {said}; give each its own channel_id."
        )


def in_thread(computation: Computation, mesh: Mesh) -> Computation:
    """The program of one device of several, each of which runs in a thread."""
    return _in_thread(Same(computation), mesh)


@lru_cache(256)
def _in_thread(same: Same, mesh: Mesh) -> Computation:
    computation = same.computation
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
            new[x] = _called(x, operands, number, mesh, emit)
        else:
            attributes = map_computations(x.attributes._asdict(), lambda inner: in_thread(inner, mesh))
            new[x] = emit(Instruction(x.op, operands, x.attributes._replace(**attributes), x.shape, x.source, x.name))
    return Computation(computation.name, [new[p] for p in computation.parameters], made, new[computation.root])


def _called(x: Instruction, operands: Sequence[Instruction], number: int, mesh: Mesh, emit: Any) -> Instruction:
    shapes = tuple(leaf_shapes(x.shape))
    effect = x.op.name not in _NUMBERS
    given = x.attributes._replace(**between_devices(x, x.attributes._asdict(), mesh))
    channel = None if x.op.name in CHANNELS else getattr(x.attributes, "channel_id", None)
    line = x.source or (f"the instruction {x.name}" if x.name else None)
    meeting = Meeting(x.op, given, line, number, channel or None)
    attributes = Callback(meeting, shapes, custom_call_has_side_effect=effect, ordered=effect)
    call = emit(Instruction(callback, operands, attributes, TupleShape(shapes), x.source, x.name))
    if isinstance(x.shape, TupleShape):
        return call
    return emit(Instruction(calls.get_tuple_element, (call,), calls.GetTupleElement(0), x.shape, x.source))


def ends_in(computation: Computation) -> dict[Hashable, Line]:
    """Of a program that `in_thread` has made, what other devices may wait for, and where that stands."""
    found: dict[Hashable, Line] = {}
    for x in computation.instructions:
        if isinstance(x.attributes, Callback) and isinstance(meeting := x.attributes.function, Meeting):
            is_channel = meeting.op.name in CHANNELS
            end = (meeting.op.name, meeting.attributes.channel_id) if is_channel else meeting.end
            found.setdefault(end, meeting.line)
        for inner in x.computations():
            found = ends_in(inner) | found
    return found
