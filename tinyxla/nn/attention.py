"""Attention: A. Vaswani and others, "Attention Is All You Need" (2017); with groups of heads that share keys,
J. Ainslie and others, "GQA" (2023)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import DTypeError, ShapeError
from tinyxla.nn.normalization import logsumexp, softmax
from tinyxla.numpy.arguments import array_of, integers_of, operand, with_flags


@with_flags
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """The values, averaged for each query and head with the weights softmax(scale query . key + bias).

    Args:
        query: of shape (batch, queries, heads, size), or without the batch.
        key, value: of shape (batch, keys, heads or a divisor of their number, size): heads in a row share keys.
        bias: added to the products; broadcasts to (batch, heads, queries, keys).
        mask: where False, a key does not count for a query; broadcasts to the same.
        scale: 1 / sqrt(size) unless given.
        is_causal: a query sees no later keys.
        query_seq_lengths, key_value_seq_lengths: for each of the batch how many queries, and keys, count. What is after
            the last query is 0.
        local_window_size: how many keys before and after its own place a query sees.
        implementation: accepted as in JAX; there is one.
        return_residual: also give the logarithms of the sums of exponentials, of shape (batch, queries, heads).

    Returns:
        An array of the query's shape and type.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla as tx
        >>> q = tx.numpy.ones((1, 2, 1, 4))
        >>> tx.nn.dot_product_attention(q, q, q, is_causal=True).shape
        (1, 2, 1, 4)
    """
    what = "nn.dot_product_attention"
    given: Any = array_of(query, what)
    q, k, v = (x if x.ndim == 4 else x[None] for x in (given, array_of(key, what), array_of(value, what)))
    heads, shared = q.shape[2] if q.ndim == 4 else 0, k.shape[2] if k.ndim == 4 else 0
    fits = q.ndim == k.ndim == 4 and k.shape == v.shape and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3])
    if not fits or shared == 0 or heads % shared:
        raise ShapeError(
            f"{what}: query must be (batch, queries, heads, size), key and value (batch, keys, groups, size), where "
            f"heads must be a multiple of groups, but they have the shapes {q.shape}, {k.shape} and {v.shape}."
        )
    if not q.dtype == k.dtype == v.dtype:
        raise DTypeError(
            f"{what}: query, key and value must have one element type, but have {q.dtype}, {k.dtype} and {v.dtype}; "
            "cast them."
        )
    k, v = (tnp.repeat(x, heads // shared, axis=2) if heads != shared else x for x in (k, v))
    logits: Any = tnp.einsum("btnh,bsnh->bnts", q, k, preferred_element_type=np.float32)
    logits = logits * (1 / math.sqrt(q.shape[-1]) if scale is None else operand(scale, what))
    if bias is not None:
        logits = logits + array_of(bias, what)
    seen = _seen(mask, logits.shape, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size)
    if seen is not None:
        logits = tnp.where(seen, logits, -0.7 * float(tnp.finfo(logits.dtype).max))
    found: Any = tnp.einsum("bnts,bsnh->btnh", softmax(logits, -1).astype(v.dtype), v)
    if query_seq_lengths is not None:
        counts = tnp.arange(q.shape[1]) < array_of(query_seq_lengths, what)[:, None]
        found = tnp.where(counts[:, :, None, None], found, 0)
    found = found.astype(given.dtype).reshape(given.shape)
    if not return_residual:
        return found
    total = tnp.swapaxes(logsumexp(logits, -1), 1, 2).reshape(given.shape[:-1])
    return found, total.astype(given.dtype)


def _seen(mask: Any, shape: Any, causal: bool, queries: Any, keys: Any, window: Any) -> Any:
    """Which keys count for which queries, or None if all do."""
    row, column = tnp.arange(shape[2])[:, None], tnp.arange(shape[3])[None, :]
    parts: list[Any] = [] if mask is None else [array_of(mask, "nn.dot_product_attention")]
    if causal:
        parts.append(column <= row)
    if window is not None:
        given = (window, window) if isinstance(window, int) else window
        before, after = integers_of("nn.dot_product_attention", "local_window_size", given, 2)
        parts.append((column >= row - before) & (column <= row + after))
    if queries is not None:
        parts.append(row < array_of(queries, "nn.dot_product_attention")[:, None, None, None])
    if keys is not None:
        parts.append(column < array_of(keys, "nn.dot_product_attention")[:, None, None, None])
    seen = None
    for part in parts:
        seen = part if seen is None else seen & part
    return seen
