"""`jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask`: masks over queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ShapeError


class Mask:
    """Which keys a query attends to: booleans of shape (queries, keys), with `&` and `|`."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array, bool)

    @property
    def shape(self) -> tuple[int, ...]:
        """(queries, keys), or (heads, queries, keys)."""
        return self.array.shape

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.array & _same_shape(self, other).array)

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.array | _same_shape(self, other).array)

    def __bool__(self) -> bool:
        raise ShapeError("splash_attention: a mask has no truth value; combine masks by & and |.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.shape, self.array.tobytes()))


class NumpyMask(Mask):
    """A mask of an array of booleans."""


class FullMask(Mask):
    """Each query attends to all keys."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__(np.ones(shape, bool))


class CausalMask(Mask):
    """Query i attends to keys up to i + offset."""

    def __init__(self, shape: tuple[int, int], offset: int = 0, shard_count: int = 1) -> None:
        super().__init__(make_causal_mask(shape, offset))


class LocalMask(Mask):
    """Query i attends to keys from i + offset - left to i + offset + right; None is no limit."""

    def __init__(
        self, shape: tuple[int, int], window_size: tuple[int | None, int | None], offset: int, shard_count: int = 1
    ) -> None:
        super().__init__(make_local_attention_mask(shape, window_size, offset=offset))


class MultiHeadMask(Mask):
    """A mask for each head."""

    def __init__(self, masks: Sequence[Mask]) -> None:
        if not masks or any(mask.shape != masks[0].shape for mask in masks):
            raise ShapeError(
                f"MultiHeadMask: needs masks of one shape, but got {', '.join(str(mask.shape) for mask in masks)}."
            )
        self.masks = masks
        super().__init__(np.stack([mask.array for mask in masks]))


def make_causal_mask(shape: tuple[int, int], offset: int = 0) -> np.ndarray[Any, Any]:
    """The booleans of `CausalMask`."""
    return make_local_attention_mask(shape, (None, 0), offset=offset)


def make_local_attention_mask(
    shape: tuple[int, int], window_size: tuple[int | None, int | None], *, offset: int = 0
) -> np.ndarray[Any, Any]:
    """The booleans of `LocalMask`."""
    distance = np.arange(shape[1]) - np.arange(shape[0])[:, None] - offset
    left, right = window_size
    mask = np.ones(shape, bool)
    if left is not None:
        mask &= distance >= -left
    if right is not None:
        mask &= distance <= right
    return mask


def _same_shape(mask: Mask, other: Mask) -> Mask:
    if mask.shape != other.shape:
        raise ShapeError(f"splash_attention: masks must have one shape, but have {mask.shape} and {other.shape}.")
    return other
