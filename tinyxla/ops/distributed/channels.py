"""Channels and host queues: Send, Recv, Infeed, Outfeed. They run for what they do, in the order in which they stand.

A transfer has two halves, as in HLO: `recv` says that its replica will take something, `send` waits for that and hands
over, `recv-done` waits for what was handed over. So a Recv comes before its Send, and that before its RecvDone; other
orders deadlock, which is found and reported (`tinyxla.runtime.rendezvous`). With `is_host_transfer` the other end is
the host (`tinyxla.runtime.host_queues`), as for `infeed` and `outfeed`.

Sources: sections "Infeed", "Outfeed", "Send", "SendDone", "Recv", "RecvDone" and "Scheduling of channel instructions"
of the XLA documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, ChannelError, ShapeError
from tinyxla.ops import movement
from tinyxla.ops.distributed.replica_groups import REPLICAS, Pairs, check_pairs
from tinyxla.ops.hlo_only import regrouping
from tinyxla.ops.op import OWN, Array, Axes, NotDifferentiable, Op, Sample, Value
from tinyxla.runtime import host_queues, rendezvous
from tinyxla.runtime.rendezvous import Line, Wait
from tinyxla.shapes import TOKEN, AnyShape, Shape, TupleShape, element_type

_TOKEN = Shape(TOKEN)
_CONTEXT = Shape(element_type("u32"))
_UNORDERED = "examples that are computed together have no order; loop over them with lax.map or lax.scan"


def _token() -> Array:
    return np.zeros((), TOKEN.dtype)


def _check_token(name: str, token: AnyShape) -> None:
    if token != _TOKEN:
        raise ShapeError(f"{name}: the last operand must be a token, but is {token}; make one with after_all.")


def _no_derivative(name: str) -> NotDifferentiable:
    return NotDifferentiable(f"{name} transfers values of which nothing is known here; use lax.stop_gradient")


# --- Infeed and Outfeed -----------------------------------------------------------------------------------------------


class Infeed(NamedTuple):
    """The next item of the replica's infeed, and a token."""

    shape: AnyShape  # of the data: an array, or a tuple of arrays
    infeed_config: str = ""
    replica_count: int = 0  # lanes are so many replicas, each with an infeed of its own; 0: this replica's
    axis_name: Hashable = REPLICAS  # None if lanes are replicas

    @property
    def custom_call_has_side_effect(self) -> bool:
        return True


def _lanes(replica_count: int) -> Sequence[int]:
    """The replicas whose queues are meant."""
    return range(replica_count) if replica_count else (rendezvous.current()[1],)


def _infeed_shape(token: AnyShape, *, shape: AnyShape, replica_count: int, **others: Any) -> TupleShape:
    _check_token("infeed", token)
    leading = (replica_count,) if replica_count else ()
    data = [s.with_dimensions((*leading, *s.dimensions)) for s in host_queues.array_shapes("infeed", shape)]
    return TupleShape((*data, _TOKEN))


def _infeed_evaluate(token: Array, *, shape: AnyShape, replica_count: int, **others: Any) -> tuple[Array, ...]:
    shapes = host_queues.array_shapes("infeed", shape)
    if not shapes:
        return (_token(),)
    items = [
        host_queues.check_item("infeed", host_queues.client.queue("infeed", device).get(), shapes)
        for device in _lanes(replica_count)
    ]
    return (*(items[0] if not replica_count else map(np.stack, zip(*items, strict=True))), _token())


def _infeed_batch(size: int, operands: Any, axes: Axes, *, axis_name: Hashable, shape: AnyShape, **others: Any) -> Any:
    if axis_name is not OWN:
        raise ArgumentError(f"vmap: infeed: {_UNORDERED}.")
    others |= {"replica_count": size, "axis_name": None}
    return infeed(operands[0], shape=shape, **others), (*(0 for _ in host_queues.array_shapes("infeed", shape)), None)


infeed = Op(
    "infeed",
    attributes=Infeed,
    fill_defaults=True,
    shape=_infeed_shape,
    evaluate=_infeed_evaluate,
    derivative=_no_derivative("infeed"),
    batch=_infeed_batch,
    samples=lambda random: iter([Sample((_token(),), {"shape": TupleShape(())})]),  # others wait for the host
)


class Outfeed(NamedTuple):
    """The arrays, which come before a token, become an item of the replica's outfeed; gives a token."""

    outfeed_config: str = ""
    replica_count: int = 0
    axis_name: Hashable = REPLICAS

    @property
    def custom_call_has_side_effect(self) -> bool:
        return True


def _outfeed_shape(*operands: AnyShape, **attributes: Any) -> Shape:
    if not operands:
        raise ShapeError("outfeed: the operands must be arrays and a token, but there is none.")
    _check_token("outfeed", operands[-1])
    for x in operands[:-1]:
        movement.array_operand("outfeed", x)
    return _TOKEN


def _outfeed_evaluate(*operands: Array, replica_count: int, **others: Any) -> Array:
    *arrays, token = operands
    for lane, device in enumerate(_lanes(replica_count)):
        item = tuple(np.array(x[lane] if replica_count else x) for x in arrays)
        host_queues.client.queue("outfeed", device).put(item)
    return token


def _outfeed_batch(size: int, operands: tuple[Value, ...], axes: Axes, *, axis_name: Hashable, **others: Any) -> Any:
    if axis_name is not OWN:
        raise ArgumentError(f"vmap: outfeed: {_UNORDERED}.")
    *arrays, token = operands
    others |= {"replica_count": size, "axis_name": None}
    return outfeed(*movement.in_front(arrays, axes[:-1], size), token, **others), None


outfeed = Op(
    "outfeed",
    attributes=Outfeed,
    fill_defaults=True,
    shape=_outfeed_shape,
    evaluate=_outfeed_evaluate,
    derivative=_no_derivative("outfeed"),
    batch=_outfeed_batch,
    samples=lambda random: iter([]),  # what is put must be taken: tests of host queues do both
)


# --- Send and Recv ----------------------------------------------------------------------------------------------------


class Channel(NamedTuple):
    """One end of a channel."""

    channel_id: int
    is_host_transfer: bool = False
    source_target_pairs: Pairs = ()  # of replicas that all run this; without any, one sends and one receives
    axis_name: Hashable = REPLICAS

    @property
    def custom_call_has_side_effect(self) -> bool:
        return True


class Receiver(NamedTuple):
    """The end of a channel at which a value of this shape arrives."""

    shape: Shape
    channel_id: int
    is_host_transfer: bool = False
    source_target_pairs: Pairs = ()
    axis_name: Hashable = REPLICAS

    @property
    def custom_call_has_side_effect(self) -> bool:
        return True


def _check_channel(name: str, channel_id: int, pairs: Pairs) -> None:
    if channel_id < 0:
        raise AttributeValueError(f"{name}: channel_id must not be negative, but is {channel_id}.")
    check_pairs(name, pairs)


def _send_shape(
    x: AnyShape, token: AnyShape, *, channel_id: int, source_target_pairs: Pairs, **others: Any
) -> TupleShape:
    _check_token("send", token)
    _check_channel("send", channel_id, source_target_pairs)
    return TupleShape((movement.array_operand("send", x), _CONTEXT, _TOKEN))


def _recv_shape(
    token: AnyShape, *, shape: Shape, channel_id: int, source_target_pairs: Pairs, **others: Any
) -> TupleShape:
    _check_token("recv", token)
    _check_channel("recv", channel_id, source_target_pairs)
    return TupleShape((movement.array_operand("recv", shape), _CONTEXT, _TOKEN))


def _recv_done_shape(x: AnyShape, context: AnyShape, token: AnyShape, **attributes: Any) -> TupleShape:
    _check_token("recv-done", token)
    if context != _CONTEXT:
        raise ShapeError(f"recv-done: the operand must be what recv gives, (data, u32[], token[]), but has {context}.")
    return TupleShape((movement.array_operand("recv-done", x), _TOKEN))


class _End(NamedTuple):
    """An end of a channel, for the thread of a replica."""

    meeting: rendezvous.Rendezvous
    device: int
    key: Hashable  # of the channel between two replicas
    peer: str
    others: tuple[int, ...] | None  # the device at the other end, if it is known

    def wait(self, what: str, does: str, line: Line, other: tuple[str, int]) -> Wait:
        """For what the other end, an operation on a channel, does."""
        return Wait(f"{what} on channel {other[1]}", f"{self.peer} to {does}", line, other, self.others)


def _end(name: str, channel_id: int, pairs: Pairs, sends: bool) -> _End | None:
    """The end of the channel that this thread's replica is; None if no pair has it."""
    meeting, device = rendezvous.current()
    if meeting is None:
        raise ChannelError(
            f"{name}: there is no program at the other end of channel {channel_id}; run the computations together, "
            "with execute_replicated or execute_parallel."
        )
    if not pairs:
        return _End(meeting, device, channel_id, "the other end", None)
    peers = dict(pairs) if sends else {target: source for source, target in pairs}
    if device not in peers:
        return None
    peer = peers[device]
    pair = (device, peer) if sends else (peer, device)
    return _End(meeting, device, (channel_id, *pair), meeting.described(peer), (peer,))


def send_value(x: Array, line: Line = None, **attributes: Any) -> None:
    """What `send` does."""
    given = Channel(**attributes)
    if given.is_host_transfer:
        queue = host_queues.client.queue("send to host", rendezvous.current()[1], given.channel_id)
        queue.put((np.array(x),))
    elif end := _end("send", given.channel_id, given.source_target_pairs, sends=True):
        wait = end.wait("send", "post its recv", line, ("recv", given.channel_id))
        end.meeting.send(end.key, end.device, np.array(x), wait)


def post_receiver(line: Line = None, **attributes: Any) -> None:
    """What `recv` does."""
    given = Receiver(**attributes)
    if given.is_host_transfer:
        return
    if end := _end("recv", given.channel_id, given.source_target_pairs, sends=False):
        end.meeting.post(end.key, end.device, line)


def received_value(like: Array, line: Line = None, **attributes: Any) -> Array:
    """What `recv-done` does."""
    given = Channel(**attributes)
    shape = Shape.of(like)
    if given.is_host_transfer:
        queue = host_queues.client.queue("recv from host", rendezvous.current()[1], given.channel_id)
        return host_queues.check_item("recv-done", queue.get(), [shape])[0]
    end = _end("recv-done", given.channel_id, given.source_target_pairs, sends=False)
    if end is None:
        return np.zeros_like(like)
    wait = end.wait("recv-done", "send", line, ("send", given.channel_id))
    found = end.meeting.receive(end.key, end.device, wait)
    if Shape.of(found) != shape:
        raise ShapeError(
            f"recv: channel {given.channel_id} is received as {shape}, but {Shape.of(found)} was sent; let both ends "
            "have one shape."
        )
    return found


def _send_evaluate(x: Array, token: Array, line: Line = None, **attributes: Any) -> tuple[Array, ...]:
    send_value(x, line, **attributes)
    return x, np.zeros((), np.uint32), token


def _recv_evaluate(token: Array, line: Line = None, *, shape: Shape, **attributes: Any) -> tuple[Array, ...]:
    post_receiver(line, shape=shape, **attributes)
    return np.zeros(shape.dimensions, shape.dtype), np.zeros((), np.uint32), token


def _recv_done_evaluate(
    x: Array, context: Array, token: Array, line: Line = None, **attributes: Any
) -> tuple[Array, ...]:
    return received_value(x, line, **attributes), token


def _never_mapped(name: str) -> Any:
    def batch(size: int, operands: Any, axes: Axes, *, axis_name: Hashable, **attributes: Any) -> Any:
        raise ArgumentError(f"vmap: {name}: {_UNORDERED}.")

    return batch


def _channel_op(name: str, attributes: type[Any], shape: Any, evaluate: Any) -> Op:
    return Op(
        name,
        attributes=attributes,
        fill_defaults=True,
        shape=shape,
        evaluate=evaluate,
        derivative=_no_derivative(name),
        batch=_never_mapped(name),
        samples=lambda random: iter([]),  # there is no other end: tests of channels run several replicas
    )


send = _channel_op("send", Channel, _send_shape, _send_evaluate)
recv = _channel_op("recv", Receiver, _recv_shape, _recv_evaluate)
recv_done = _channel_op("recv-done", Channel, _recv_done_shape, _recv_done_evaluate)


def _sent_samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample(((movement.sample_values((2, 3)), np.zeros((), np.uint32), _token()),))


send_done = regrouping("send-done", 2, _sent_samples)
