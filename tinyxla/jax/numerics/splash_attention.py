"""Attention of heads with masks, as JAX has it in Pallas: `jax.experimental.pallas.ops.tpu.splash_attention`.

A TPU skips tiles of the mask that are false; here the products are dense, and the values the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tinyxla.numpy as jnp
from tinyxla.errors import ShapeError

DEFAULT_MASK_VALUE = -0.7 * 3.4028235e38  # the logit of a key that is masked: finite, so that no row is NaN


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


class SegmentIds(NamedTuple):
    """The numbers of the segments of queries and keys; a query attends to keys of its segment."""

    q: Any
    kv: Any


def make_splash_mha(
    mask: Any,
    *,
    head_shards: int = 1,
    q_seq_shards: int = 1,
    block_sizes: Any = None,
    mask_value: float = DEFAULT_MASK_VALUE,
    attn_logits_soft_cap: float | None = None,
    save_residuals: bool = False,
) -> Callable[..., Any]:
    """Attention of heads, under masks of shape (heads, queries, keys).

    Args:
        mask: a `MultiHeadMask`, or booleans.
        head_shards: of a TPU; the values do not depend on it, nor on `q_seq_shards` and `block_sizes`.
        mask_value: the logit of masked keys.
        attn_logits_soft_cap: logits are capped to this absolute value by `cap * tanh(logits / cap)`.
        save_residuals: give the logarithms of the sums of exponentials, too.

    Returns:
        A function of queries (heads, queries, size), which it does not scale, keys and values (heads or a divisor of
        it, keys, size), and `segment_ids`.
    """
    booleans = mask.array if isinstance(mask, Mask) else mask
    if len(booleans.shape) != 3:
        raise ShapeError(
            f"make_splash_mha: the mask must have shape (heads, queries, keys), but has {tuple(booleans.shape)}."
        )
    return partial(_attention, booleans, mask_value, attn_logits_soft_cap, save_residuals)


def make_splash_mqa(mask: Any, **options: Any) -> Callable[..., Any]:
    """As `make_splash_mha`, where all heads share keys and values of shape (keys, size)."""
    heads = make_splash_mha(mask, **options)

    def attention(q: Any, k: Any, v: Any, segment_ids: SegmentIds | None = None) -> Any:
        return heads(q, k[None], v[None], segment_ids)

    return attention


make_splash_mha_single_device = make_splash_mha
make_splash_mqa_single_device = make_splash_mqa


def _attention(
    mask: Any,
    mask_value: float,
    cap: float | None,
    save_residuals: bool,
    q: Any,
    k: Any,
    v: Any,
    segment_ids: SegmentIds | None = None,
) -> Any:
    if q.shape[0] % k.shape[0] or q.shape[0] != mask.shape[0]:
        raise ShapeError(
            f"splash_attention: {q.shape[0]} heads of queries need as many masks, and keys for a divisor of them; got "
            f"{mask.shape[0]} masks and {k.shape[0]} heads of keys."
        )
    group = q.shape[0] // k.shape[0]
    keys, values = (jnp.repeat(x.astype(jnp.float32), group, axis=0) for x in (k, v))
    logits = jnp.einsum("hqd,hkd->hqk", q.astype(jnp.float32), keys)
    if cap is not None:
        logits = cap * jnp.tanh(logits / cap)
    attended = jnp.asarray(mask)
    if segment_ids is not None:
        attended = attended & (segment_ids.q[:, None] == segment_ids.kv[None, :])
    logits = jnp.where(attended, logits, mask_value)
    largest = logits.max(axis=-1, keepdims=True)
    weights = jnp.exp(logits - largest)
    total = weights.sum(axis=-1, keepdims=True)
    out = jnp.einsum("hqk,hkd->hqd", weights / total, values).astype(q.dtype)
    if save_residuals:
        return out, ((largest + jnp.log(total))[..., 0],)
    return out
