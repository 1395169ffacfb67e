"""Evaluation rules of StableHLO's transfers: channels between programs, and queues with the host.

A transfer is one operation there and two in the graph. Several arrays of one operation are transferred one after the
other on its channel.

Source: StableHLO specification, sections "send", "recv", "infeed" and "outfeed".
"""

from __future__ import annotations

from typing import Any

from tinyxla.errors import AttributeValueError
from tinyxla.ops.op import ops
from tinyxla.shapes import Shape, TupleShape
from tinyxla.stablehlo.importing.evaluation import Context, Rule, shape_of

_BETWEEN_DEVICES, _TO_HOST, _FROM_HOST = 1, 2, 3  # types of channels


def _channel(context: Context, host: int) -> dict[str, Any]:
    """The attributes of an end of a channel, of which `host` is the type where the other end is the host."""
    handle = context.inner("channel_handle")
    is_host_transfer = context.flag("is_host_transfer")
    kind = handle.integer("type", host if is_host_transfer else _BETWEEN_DEVICES)
    if kind not in (0, host if is_host_transfer else _BETWEEN_DEVICES):
        raise AttributeValueError(
            f"{context.operation.name}: a channel of the type {kind} is none "
            f"{'with the host' if is_host_transfer else 'between devices'} in this direction."
        )
    return {
        "channel_id": handle.integer("handle", 0),
        "is_host_transfer": is_host_transfer,
        "source_target_pairs": context.matrix("source_target_pairs") if "source_target_pairs" in context else (),
    }


def _data_shapes(context: Context) -> list[Shape]:
    """The shapes of the results before the token."""
    return [shape_of(x.type) for x in context.operation.results[:-1]]


def _send(context: Context, *operands: Any) -> Any:
    *arrays, token = operands
    channel = _channel(context, _TO_HOST)
    for x in arrays:
        token = ops["send"](x, token, **channel)[2]
    return token


def _recv(context: Context, token: Any) -> Any:
    channel = _channel(context, _FROM_HOST)
    found: list[Any] = []
    for shape in _data_shapes(context):
        begun = ops["recv"](token, shape=shape, **channel)
        x, token = ops["recv-done"](*begun, **channel)
        found.append(x)
    return (*found, token)


def _infeed(context: Context, token: Any) -> Any:
    shape = TupleShape(tuple(_data_shapes(context)))
    return tuple(ops["infeed"](token, shape=shape, infeed_config=context.text("infeed_config", "")))


def _outfeed(context: Context, *operands: Any) -> Any:
    return ops["outfeed"](*operands, outfeed_config=context.text("outfeed_config", ""))


TRANSFER_RULES: dict[str, Rule] = {
    "stablehlo.send": _send,
    "stablehlo.recv": _recv,
    "stablehlo.infeed": _infeed,
    "stablehlo.outfeed": _outfeed,
}
