"""Transfers in StableHLO: there a `recv` waits, so it is written where the graph waits, at `recv-done`.

Source: StableHLO specification, sections "send", "recv", "infeed" and "outfeed".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyxla.hlo import Instruction
from tinyxla.text.mlir.ir import Attribute, DenseAttr, IntegerAttr, StringAttr, TensorType, Value

if TYPE_CHECKING:
    from tinyxla.text.stablehlo import Body

Rule = Callable[["Body", Instruction, list[Value]], list[Value]]
_BETWEEN_DEVICES, _TO_HOST, _FROM_HOST = 1, 2, 3  # types of channels


def _channel(body: Body, a: Any, host: int) -> dict[str, Attribute]:
    kind = host if a.is_host_transfer else _BETWEEN_DEVICES
    found: dict[str, Attribute] = {
        "channel_handle": body.group("channel_handle", handle=a.channel_id, type=kind),
        "is_host_transfer": IntegerAttr(int(a.is_host_transfer), "i1"),
    }
    if a.source_target_pairs:
        pairs = np.array(a.source_target_pairs, np.int64)
        found["source_target_pairs"] = DenseAttr(pairs, TensorType(pairs.shape, "i64"))
    return found


def _send(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    data, token = operands
    (after,) = body.emit("stablehlo.send", operands, [token.type], _channel(body, x.attributes, _TO_HOST))
    return [data, after, after]


def _recv(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    return operands * 3  # the token, which the recv that waits takes


def _recv_done(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    *_, token = operands
    return body.of(x, "stablehlo.recv", [token], _channel(body, x.attributes, _FROM_HOST))


def _infeed(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    config: dict[str, Attribute] = {"infeed_config": StringAttr(x.attributes.infeed_config.encode())}
    return body.of(x, "stablehlo.infeed", operands, config)


def _outfeed(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    config: dict[str, Attribute] = {"outfeed_config": StringAttr(x.attributes.outfeed_config.encode())}
    return body.of(x, "stablehlo.outfeed", operands, config)


TRANSFER_RULES: dict[str, Rule] = {
    "send": _send,
    "send-done": lambda body, x, operands: operands[2:],
    "recv": _recv,
    "recv-done": _recv_done,
    "infeed": _infeed,
    "outfeed": _outfeed,
}
