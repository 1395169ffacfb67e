"""Padding by name: what SAME and VALID mean for a window. Shared by windows and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.numpy.arguments import integer_of, integers_of, shape_of, shown

Pads = tuple[tuple[int, int], ...]


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """The (low, high) padding of each dimension that a name stands for.

    Args:
        in_shape, window_shape, window_strides: sizes and strides of the dimensions that the window moves over; those of
            the window are with its dilation, the others, as in JAX, without.
        padding: `"VALID"` adds nothing; with `"SAME"` there are ceil(size / stride) places for the window, and an odd
            element goes to the end, with `"SAME_LOWER"` to the start. Upper or lower case.

    Returns:
        A pair (low, high) for each dimension.

    Raises:
        AttributeValueError: for another name.

    Source: sections "Conv" and "ReduceWindow" of the XLA documents.

    >>> from tinyxla.lax import padtype_to_pads
    >>> padtype_to_pads((5, 5), (2, 3), (1, 2), "SAME")
    [(0, 1), (1, 1)]
    """
    name = str(padding).upper()
    if name not in ("VALID", "SAME", "SAME_LOWER"):
        raise AttributeValueError(
            f"padding must be VALID, SAME, SAME_LOWER or pairs of integers, but got {shown(padding)}."
        )
    found: list[tuple[int, int]] = []
    what = "lax.padtype_to_pads"
    in_shape, window_shape = shape_of(what, in_shape), shape_of(what, window_shape)
    window_strides = integers_of(what, "window_strides", window_strides)
    if not len(in_shape) == len(window_shape) == len(window_strides) or min(window_strides, default=1) < 1:
        raise ArgumentError(
            f"{what}: in_shape, window_shape and window_strides must be of one length, and strides positive, but got "
            f"{in_shape}, {window_shape} and {window_strides}."
        )
    for size, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = 0 if name == "VALID" else max(0, (-(-size // stride) - 1) * stride + window - size)
        half = total // 2
        found.append((total - half, half) if name == "SAME_LOWER" else (half, total - half))
    return found


def pads_of(
    what: str, padding: Any, in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int]
) -> Pads:
    """The argument `padding` of a function: a name, or a pair of integers for each dimension."""
    if isinstance(padding, str):
        return tuple(padtype_to_pads(in_shape, window_shape, window_strides, padding))
    try:
        pairs = [(low, high) for low, high in padding]
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{what}: padding must be VALID, SAME, SAME_LOWER or a (low, high) pair for each dimension, but got "
            f"{shown(padding)}."
        ) from None
    if len(pairs) != len(in_shape):
        raise ArgumentError(f"{what}: padding must have {len(in_shape)} pairs, one a dimension, but got {padding!r}.")
    return tuple((integer_of(what, "padding", low), integer_of(what, "padding", high)) for low, high in pairs)
