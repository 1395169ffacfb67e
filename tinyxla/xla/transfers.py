"""Transfers between the replicas of a program, and between them and the host.

Transfers happen in the order in which they are made. A `handle` is a `ChannelHandle` or the number of a channel; where
one program runs on all replicas, `source_target_pairs` say which of them sends to which.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

from typing import Any

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.ops import Value
from tinyxla.ops.distributed import channels
from tinyxla.ops.hlo_only import after_all
from tinyxla.ops.op import Op
from tinyxla.ops.tuples import leaf_shapes, leaves
from tinyxla.shapes import AnyShape, Shape
from tinyxla.xla.builder import Tree, XlaBuilder, shape_of
from tinyxla.xla.collectives import set_shape
from tinyxla.xla.dimension_numbers import ChannelHandle, ChannelType
from tinyxla.xla.functions import Pairs, alias, builder_function, channel_number


def _device_channel(name: str, handle: Any) -> int:
    return channel_number(f"{name}: handle", handle, ChannelType.DEVICE_TO_DEVICE)


# --- between replicas -------------------------------------------------------------------------------------------------


@builder_function(channel_id="handle", channel_handle="handle")
def Send(builder: XlaBuilder, operand: Value, handle: Any, source_target_pairs: Pairs = ()) -> Tree:
    """Hand an array to the Recv of the same channel, and wait until that has it; the result is a token.

    For a number instead of a `ChannelHandle` the transfer is only begun: the result is a context for `SendDone`.

    Args:
        operand: an array.
        handle: a `ChannelHandle`, or a number.
        source_target_pairs: pairs of numbers of replicas.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, CreateChannelHandle, Recv, Send, ShapeUtil, XlaBuilder, execute_parallel
    >>> channel, shape = CreateChannelHandle(), ShapeUtil.MakeShape(F32, [2])
    >>> sender, receiver = XlaBuilder("sender"), XlaBuilder("receiver")
    >>> token, x = Send(sender.Parameter(0, shape), channel), Recv(receiver, shape, channel)
    >>> execute_parallel([(sender.Build(sender.Constant(True)), [np.float32([1, 2])]), (receiver.Build(x), [])])
    [Array(True, dtype=bool), Array([1., 2.], dtype=float32)]
    """
    number = _device_channel("Send", handle)
    context = channels.send(operand, after_all(), channel_id=number, source_target_pairs=source_target_pairs)
    return context[2] if isinstance(handle, ChannelHandle) else context


@builder_function(channel_id="handle", channel_handle="handle")
def Recv(builder: XlaBuilder, shape: AnyShape, handle: Any, source_target_pairs: Pairs = ()) -> Tree:
    """The array of the Send of the same channel, which must have this shape.

    For a number instead of a `ChannelHandle` the transfer is only begun: the result is a context for `RecvDone`.

    Args:
        shape: the shape of the array.
        handle: a `ChannelHandle`, or a number.
        source_target_pairs: pairs of numbers of replicas.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import F32, Recv, ShapeUtil, XlaBuilder
    >>> Recv(XlaBuilder(), ShapeUtil.MakeShape(F32, [2]), 1)  # begun: the context for RecvDone
    <XlaOp (f32[2], u32[], token[]) of computation>
    """
    number = _device_channel("Recv", handle)
    context = channels.recv(after_all(), shape=shape, channel_id=number, source_target_pairs=source_target_pairs)
    return _received("Recv", context)[0] if isinstance(handle, ChannelHandle) else context


@builder_function()
def SendDone(builder: XlaBuilder, context: Tree) -> Value:
    """Wait until what `Send` began is done; the result is a token.

    Args:
        context: the result of the operation that began the transfer.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: what is no context of `Send`.

    >>> from tinyxla.xla import Send, SendDone, XlaBuilder
    >>> b = XlaBuilder()
    >>> SendDone(Send(b.Constant(1.0), 1))
    <XlaOp token[] of computation>
    """
    _check_context("SendDone", context, channels.send)
    return context[2]


@builder_function()
def RecvDone(builder: XlaBuilder, context: Tree) -> Value:
    """Wait for what `Recv` began; the result is the array that arrives.

    Args:
        context: the result of the operation that began the transfer.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: what is no context of `Recv`.

    >>> from tinyxla.xla import F32, Recv, RecvDone, ShapeUtil, XlaBuilder
    >>> RecvDone(Recv(XlaBuilder(), ShapeUtil.MakeShape(F32, [2]), 1))
    <XlaOp f32[2] of computation>
    """
    return _received("RecvDone", context)[0]


def _check_context(name: str, context: Tree, begun: Op) -> Any:
    """The instruction that gave a context."""
    parts = context if isinstance(context, tuple) else ()
    given = parts[0].instruction.operands if parts and not isinstance(parts[0], tuple) else ()
    if not given or given[0].op is not begun:
        raise ArgumentError(
            f"{name}: context must be what {begun.name} gave for the number of a channel, but is {shape_of(context)}."
        )
    return given[0]


def _received(name: str, context: Tree) -> Tree:
    """The array that arrives and a token."""
    begun = _check_context(name, context, channels.recv).attributes
    return channels.recv_done(
        *context,
        channel_id=begun.channel_id,
        is_host_transfer=begun.is_host_transfer,
        source_target_pairs=begun.source_target_pairs,
    )


@builder_function()
def SendWithToken(
    builder: XlaBuilder, operand: Value, token: Value, handle: Any, source_target_pairs: Pairs = ()
) -> Value:
    """`Send` after all that a token comes after; the result is a token.

    Args:
        operand: an array.
        token: a token.
        handle: a `ChannelHandle`, or a number.
        source_target_pairs: pairs of numbers of replicas.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import CreateChannelHandle, SendWithToken, XlaBuilder
    >>> b, channel = XlaBuilder(), CreateChannelHandle()
    >>> token = SendWithToken(b.Constant(1.0), b.CreateToken(), channel)
    >>> SendWithToken(b.Constant(2.0), token, channel)  # after the first one
    <XlaOp token[] of computation>
    """
    number = _device_channel("SendWithToken", handle)
    return channels.send(operand, token, channel_id=number, source_target_pairs=source_target_pairs)[2]


@builder_function()
def RecvWithToken(
    builder: XlaBuilder, token: Value, shape: AnyShape, handle: Any, source_target_pairs: Pairs = ()
) -> Tree:
    """`Recv` after all that a token comes after: the array and a token.

    Args:
        token: a token.
        shape: the shape of the array.
        handle: a `ChannelHandle`, or a number.
        source_target_pairs: pairs of numbers of replicas.

    Returns:
        An `XlaOp`, a tuple.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import F32, CreateChannelHandle, RecvWithToken, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> RecvWithToken(b.CreateToken(), ShapeUtil.MakeShape(F32, [2]), CreateChannelHandle())
    <XlaOp (f32[2], token[]) of computation>
    """
    number = _device_channel("RecvWithToken", handle)
    context = channels.recv(token, shape=shape, channel_id=number, source_target_pairs=source_target_pairs)
    return _received("RecvWithToken", context)


SendWithTokens = alias("SendWithTokens", SendWithToken)
RecvWithTokens = alias("RecvWithTokens", RecvWithToken)

# --- with the host ----------------------------------------------------------------------------------------------------


@builder_function()
def SendToHost(
    builder: XlaBuilder, operand: Value, token: Value, shape_with_layout: Shape | None, handle: Any
) -> Value:
    """Hand an array to the host, which takes it with `transfer_from_channel`; the result is a token.

    Args:
        operand: an array.
        token: a token.
        shape_with_layout: the operand's shape with a layout.
        handle: a `ChannelHandle`, or a number.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import CreateDeviceToHostChannelHandle, SendToHost, XlaBuilder, transfer_from_channel
    >>> b, channel = XlaBuilder(), CreateDeviceToHostChannelHandle()
    >>> token = SendToHost(b.Constant(2.5), b.CreateToken(), None, channel)
    >>> result = b.Build(b.Constant(True))()
    >>> transfer_from_channel(channel)
    array(2.5, dtype=float32)
    """
    number = channel_number("SendToHost: handle", handle, ChannelType.DEVICE_TO_HOST)
    _check_layout("SendToHost", operand, shape_with_layout)
    return channels.send(operand, token, channel_id=number, is_host_transfer=True)[2]


@builder_function()
def RecvFromHost(builder: XlaBuilder, token: Value, shape: AnyShape, handle: Any) -> Tree:
    """An array that the host gives with `transfer_to_channel`, and a token.

    Args:
        token: a token.
        shape: the shape of the array.
        handle: a `ChannelHandle`, or a number.

    Returns:
        An `XlaOp`, a tuple.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla import xla
    >>> b, channel = xla.XlaBuilder(), xla.CreateHostToDeviceChannelHandle()
    >>> received = xla.RecvFromHost(b.CreateToken(), xla.ShapeUtil.MakeShape(xla.F32, [2]), channel)
    >>> xla.transfer_to_channel(channel, np.float32([1, 2]))
    >>> b.Build(b.GetTupleElement(received, 0))()
    Array([1., 2.], dtype=float32)
    """
    number = channel_number("RecvFromHost: handle", handle, ChannelType.HOST_TO_DEVICE)
    return _received("RecvFromHost", channels.recv(token, shape=shape, channel_id=number, is_host_transfer=True))


RecvToHost = alias("RecvToHost", RecvFromHost)  # as section "Recv" of the newest page has it


def _check_layout(name: str, operand: Tree, shape_with_layout: AnyShape | None) -> None:
    if shape_with_layout is not None and shape_with_layout != shape_of(operand):
        raise ShapeError(
            f"{name}: shape_with_layout must be the operand's shape {shape_of(operand)} in some layout, but is "
            f"{shape_with_layout}."
        )


@builder_function()
def Infeed(builder: XlaBuilder, shape: AnyShape, config: str = "") -> Tree:
    """The next item of the replica's infeed, an array or a tuple of arrays; of an empty tuple nothing is read.

    Args:
        shape: the shape of the item.
        config: a text that is kept in the graph.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: an item of another shape (when the program runs).
        TransferError: no item within the timeout (when the program runs).

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Infeed, ShapeUtil, XlaBuilder, transfer_to_infeed
    >>> b = XlaBuilder()
    >>> first, second = (Infeed(b, ShapeUtil.MakeShape(F32, [2])) for _ in range(2))
    >>> transfer_to_infeed(np.float32([5, 6]))
    >>> transfer_to_infeed(np.float32([1, 2]))
    >>> b.Build(first - second)()
    Array([4., 4.], dtype=float32)
    """
    return _infeed(after_all(), shape, config)[0]


@builder_function()
def InfeedWithToken(builder: XlaBuilder, token: Value, shape: AnyShape, config: str = "") -> Tree:
    """`Infeed` after all that a token comes after: the item and a token.

    Args:
        token: a token.
        shape: the shape of the item.
        config: a text that is kept in the graph.

    Returns:
        An `XlaOp`, a tuple.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import F32, InfeedWithToken, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> InfeedWithToken(b.CreateToken(), ShapeUtil.MakeShape(F32, [2]))
    <XlaOp (f32[2], token[]) of computation>
    """
    return _infeed(token, shape, config)


def _infeed(token: Value, shape: AnyShape, config: str) -> Tree:
    *data, after = channels.infeed(token, shape=shape, infeed_config=config)
    for x, laid_out in zip(data, leaf_shapes(shape), strict=True):
        set_shape(x, laid_out)
    return (data[0] if isinstance(shape, Shape) else tuple(data)), after


@builder_function()
def Outfeed(
    builder: XlaBuilder, operand: Tree, shape_with_layout: AnyShape | None = None, outfeed_config: str = ""
) -> Value:
    """Add an array, or a tuple of arrays, to the replica's outfeed; the result is a token.

    Args:
        operand: an array, or a tuple of them.
        shape_with_layout: the operand's shape with a layout.
        outfeed_config: a text that is kept in the graph.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import Outfeed, XlaBuilder, transfer_from_outfeed
    >>> b = XlaBuilder()
    >>> token = Outfeed(b.Constant((1.0, np.int32([2, 3]))))
    >>> result = b.Build(b.Constant(True))()
    >>> transfer_from_outfeed()
    (array(1., dtype=float32), array([2, 3], dtype=int32))
    """
    return _outfeed("Outfeed", operand, after_all(), shape_with_layout, outfeed_config)


@builder_function()
def OutfeedWithToken(
    builder: XlaBuilder,
    operand: Tree,
    token: Value,
    shape_with_layout: AnyShape | None = None,
    outfeed_config: str = "",
) -> Value:
    """`Outfeed` after all that a token comes after; the result is a token.

    Args:
        operand: an array, or a tuple of them.
        token: a token.
        shape_with_layout: the operand's shape with a layout.
        outfeed_config: a text that is kept in the graph.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import OutfeedWithToken, XlaBuilder
    >>> b = XlaBuilder()
    >>> OutfeedWithToken(b.Constant(1.0), b.CreateToken())
    <XlaOp token[] of computation>
    """
    return _outfeed("OutfeedWithToken", operand, token, shape_with_layout, outfeed_config)


def _outfeed(name: str, operand: Tree, token: Value, shape_with_layout: AnyShape | None, config: str) -> Value:
    if isinstance(operand, tuple) and any(isinstance(x, tuple) for x in operand):
        raise ShapeError(f"{name}: nested tuples are not supported, but the operand is {shape_of(operand)}.")
    _check_layout(name, operand, shape_with_layout)
    return channels.outfeed(*leaves(operand), token, outfeed_config=config)
