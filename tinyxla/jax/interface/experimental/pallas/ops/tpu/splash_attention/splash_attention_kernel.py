"""`jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel`: attention of heads with masks.

A TPU skips tiles of the mask that are false; here the products are dense, and the values the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask

import tinyxla.numpy as jnp
from tinyxla.errors import ShapeError

DEFAULT_MASK_VALUE = -0.7 * 3.4028235e38  # the logit of a key that is masked: finite, so that no row is NaN


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
