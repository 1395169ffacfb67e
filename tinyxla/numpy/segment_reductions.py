"""Reductions over segments of an array. Users reach them as `tinyxla.ops.segment_sum` and so on, too, as in JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import array_of, integer_of
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _reduction(what: str, method: str, doc: str) -> Callable[..., Array]:
    def reduced(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
        out_sharding: Any = None,
    ) -> Array:
        if out_sharding is not None:
            return placed_result(
                f"{what}: out_sharding",
                lambda: reduced(data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode),
                out_sharding,
            )
        return _reduced(what, method, data, segment_ids, num_segments, indices_are_sorted, unique_indices, mode)

    reduced.__name__ = reduced.__qualname__ = what
    text, _, example = inspect.cleandoc(doc).partition("\n\n")
    reduced.__doc__ = f"{text}\n\n{_SECTIONS}\n{example}"
    return replayed(reduced)


_SECTIONS = """Args:
    data: an array; elements along its first axis are reduced. A scalar, or an axis of size 1, is broadcast.
    segment_ids: integers: the segment of each element. Negative ones, and those from `num_segments` on, are none.
    num_segments: the number of segments; by default one more than the largest id, which must be known then.
    indices_are_sorted: a promise that the ids do not decrease.
    unique_indices: a promise that no id occurs twice.
    bucket_size: accepted for compatibility; elements are reduced in their order.
    mode: what becomes of ids that are too large: None or "drop", or as for `x.at`.
    out_sharding: the sharding of the result, with explicit mesh axes.

Returns:
    An array of the shape `(num_segments, *data.shape[1:])` and of the type of `data`.

Raises:
    ShapeError: shapes that do not broadcast.
    ConcretizationError: ids that are traced, without `num_segments`.
"""

segment_sum = _reduction(
    "segment_sum",
    "add",
    """The sums of the elements that belong to each segment.

    Example:
        >>> import tinyxla as tx
        >>> tx.ops.segment_sum(tx.numpy.arange(5.0), tx.numpy.array([0, 0, 1, 1, 3]))
        Array([1., 5., 0., 4.], dtype=float32)
    """,
)
segment_prod = _reduction(
    "segment_prod",
    "multiply",
    """The products of the elements that belong to each segment; 1 where there are none.

    Example:
        >>> import tinyxla as tx
        >>> tx.ops.segment_prod(tx.numpy.arange(5.0), tx.numpy.array([0, 0, 1, 1, 3]))
        Array([0., 6., 1., 4.], dtype=float32)
    """,
)
segment_max = _reduction(
    "segment_max",
    "max",
    """The largest elements of each segment; the type's least value where there are none.

    Example:
        >>> import tinyxla as tx
        >>> tx.ops.segment_max(tx.numpy.arange(5.0), tx.numpy.array([0, 0, 1, 1, 3]))
        Array([  1.,   3., -inf,   4.], dtype=float32)
    """,
)
segment_min = _reduction(
    "segment_min",
    "min",
    """The least elements of each segment; the type's largest value where there are none.

    Example:
        >>> import tinyxla as tx
        >>> tx.ops.segment_min(tx.numpy.arange(5.0), tx.numpy.array([0, 0, 1, 1, 3]))
        Array([ 0.,  2., inf,  4.], dtype=float32)
    """,
)


def _reduced(
    what: str,
    method: str,
    data: Any,
    segment_ids: Any,
    count: int | None,
    indices_are_sorted: bool,
    unique: bool,
    mode: Any,
) -> Array:
    values, ids = array_of(data, what), array_of(segment_ids, what)
    updates_shape = (*ids.shape, *values.shape[1:])
    if not _broadcasts_to(values.shape, updates_shape):
        raise ShapeError(
            f"{what}: segment_ids must have one number for each place of the first axis of the data, which is of shape "
            f"{values.shape}, but has the shape {ids.shape}."
        )
    if not element_type(ids.dtype).is_integer:
        raise ArgumentError(f"{what}: segment_ids must be integers, but are {ids.dtype.name}.")
    if count is None:
        known = ids.concrete(f"{what} without num_segments").buffer()
        count = int(known.max()) + 1 if known.size else 0
    count = integer_of(what, "num_segments", count)
    if count < 0:
        raise ArgumentError(f"{what}: num_segments must not be negative, but is {count}.")
    empty = tnp.full((count, *values.shape[1:]), _without_elements(method, values), values.dtype)
    wide = ids.astype(int) if element_type(ids.dtype).bits < 32 else ids
    clips = str(mode) == "clip" or getattr(mode, "name", "") == "CLIP"
    places = tnp.clip(wide, 0, count - 1) if clips else wide
    update = getattr(empty.at[places], method)
    options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique, "wrap_negative_indices": False}
    return update(tnp.broadcast_to(values, updates_shape), mode=mode or "drop", **options)


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    trailing = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(n in (1, size) for n, size in zip(shape, trailing, strict=True))


def _without_elements(method: str, x: Array) -> Any:
    if method in ("add", "multiply"):
        return int(method == "multiply")
    kind = element_type(x.dtype)
    if kind.kind == "pred":
        return method == "min"
    if kind.is_integer:
        limits = tnp.iinfo(x.dtype)
        return limits.max if method == "min" else limits.min
    return tnp.inf if method == "min" else -tnp.inf
