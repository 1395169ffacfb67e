"""Infeed and outfeed: what a compiled program reads from the host and gives to it while it runs.

`tinyxla.xla` has the host's side: `transfer_to_infeed`, `transfer_from_outfeed`, and `infeed_source`, which lets a
Python iterable fill the infeed ahead of the program.

Source: sections "Infeed" and "Outfeed" of the XLA documents.
"""

from __future__ import annotations

from typing import Any

from tinyxla.api.functions import arrays_of
from tinyxla.errors import ArgumentError
from tinyxla.ops import hlo_only
from tinyxla.ops.distributed import channels
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array


def create_token(_: object = None) -> Array:
    """A token: what orders effects.

    Args:
        _: ignored.

    Returns:
        A token.

    >>> from tinyxla import lax
    >>> lax.create_token().shape
    ()
    """
    return hlo_only.after_all()


def after_all(*tokens: Array) -> Array:
    """A token that comes after all these.

    Args:
        *tokens: tokens, which operations on the host return.

    Returns:
        A token.

    Raises:
        ArgumentError: what is no array.
        ShapeError: an array that is no token.

    >>> from tinyxla import lax
    >>> lax.after_all(lax.create_token(), lax.create_token()).shape
    ()
    """
    for token in tokens:
        if not isinstance(token, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"lax.after_all: takes tokens, as lax.create_token gives, but got {token!r}.")
    return hlo_only.after_all(*tokens)


def infeed(token: Array, shape: Any = None, partitions: Any = None) -> tuple[Any, Array]:
    """The next item of the infeed, which the program waits for. Under `vmap` it is one item for all examples.

    Args:
        token: after which it is read; `create_token()`, or what an effect before gave. Effects run in the order in
            which they are traced in any case.
        shape: what it is: a pytree of `ShapeDtypeStruct`s or arrays.
        partitions: None; there is one device.

    Returns:
        The pytree of arrays, and a token.

    Raises:
        ArgumentError: a shape that is none.
        ShapeError: what was transferred has another shape.
        TransferError: nothing was transferred in time, or the source has ended.
        DifferentiationError: a derivative is wanted.

    >>> import numpy as np
    >>> import tinyxla as tx
    >>> from tinyxla import lax, xla
    >>> xla.transfer_to_infeed(np.float32([1.0, 2.0]))
    >>> double = tx.jit(lambda: 2 * lax.infeed(lax.create_token(), tx.ShapeDtypeStruct((2,), np.float32))[0])
    >>> double()
    Array([2., 4.], dtype=float32)
    """
    _check_partitions("lax.infeed", partitions)
    leaves, tree = pytrees.flatten(shape)
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ArgumentError(
                f"lax.infeed: shape must be a pytree of ShapeDtypeStructs or arrays, but has {leaf!r} of type "
                f"{type(leaf).__name__}."
            )
    shapes = tuple(Shape(element_type(x.dtype), tuple(x.shape)) for x in leaves)
    *data, after = channels.infeed(token, shape=TupleShape(shapes))
    return pytrees.unflatten(tree, data), after


def outfeed(token: Array, xs: Any, partitions: Any = None) -> Array:
    """Put a pytree of arrays into the outfeed, as one item: its leaves in order.

    Args:
        token: after which it is put there.
        xs: the arrays.
        partitions: None; there is one device.

    Returns:
        A token.

    Raises:
        ArgumentError: `vmap`, since examples have no order.
        TransferError: the outfeed stayed full.

    >>> import tinyxla as tx
    >>> from tinyxla import lax, xla
    >>> token = tx.jit(lambda x: lax.outfeed(lax.create_token(), x + 1))(1.5)
    >>> xla.transfer_from_outfeed()
    array(2.5, dtype=float32)
    """
    _check_partitions("lax.outfeed", partitions)
    leaves, _ = arrays_of(xs, "lax.outfeed: xs")
    return channels.outfeed(*leaves, token)


def _check_partitions(what: str, partitions: Any) -> None:
    if partitions is not None:
        raise ArgumentError(f"{what}: partitions must be None, since there is one device, but is {partitions!r}.")
