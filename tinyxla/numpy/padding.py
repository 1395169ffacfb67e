"""More elements around an array: `pad`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.numpy.arguments import ArrayLike, array_of, cast, choice_of, integer_of, operand
from tinyxla.numpy.manipulation import concatenate, concrete_value, expand_dims, flip, rows_at
from tinyxla.numpy.operations import movement, ops, reduction
from tinyxla.numpy.reductions import sum as total
from tinyxla.replays import replayed
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array


def _pairs(what: str, value: Any, rank: int) -> list[tuple[Any, Any]]:
    """One (before, after) for each axis, of a number, a pair, or a pair for each."""
    if isinstance(value, Array):
        value = concrete_value(what, value).tolist()
    if not isinstance(value, Iterable):
        return [(value, value)] * rank
    rows = [tuple(v) if isinstance(v, Iterable) else v for v in value]
    if not any(isinstance(v, tuple) for v in rows):
        if len(rows) == 1:
            return [(rows[0], rows[0])] * rank
        if len(rows) == 2:
            return [(rows[0], rows[1])] * rank
    pairs = [r * 2 if isinstance(r, tuple) and len(r) == 1 else r for r in rows]
    if len(pairs) == 1:
        pairs = pairs * rank
    if len(pairs) != rank or not all(isinstance(r, tuple) and len(r) == 2 for r in pairs):
        raise ShapeError(f"{what}: {value!r} is no (before, after) for each of {rank} axes.")
    return pairs


@replayed
def pad(array: ArrayLike, pad_width: Any, mode: str | Callable[..., Any] = "constant", **options: Any) -> Array:
    """More elements before and after each axis.

    Args:
        array: what is padded.
        pad_width: how many: a number, a pair (before, after), or a pair for each axis (or a dict of axes).
        mode: `constant` (of `constant_values`), `edge`, `reflect`, `symmetric`, `wrap`, `empty`, `linear_ramp` (to
            `end_values`), or `maximum`, `mean`, `minimum` of the axis.
        options: `constant_values`, `end_values`; `reflect_type` is even.
    """
    x = array_of(array, "pad")
    if isinstance(pad_width, Mapping):
        table: dict[int, Any] = {canonical_axis(k, x.ndim, "pad"): v for k, v in pad_width.items()}
        pad_width = [_pairs("pad", table.get(d, 0), 1)[0] for d in range(x.ndim)]
    widths = [
        (integer_of("pad", "a width", a), integer_of("pad", "a width", b)) for a, b in _pairs("pad", pad_width, x.ndim)
    ]
    if any(a < 0 or b < 0 for a, b in widths):
        raise ShapeError(f"pad: widths are not negative, but got {widths}.")
    names = ("constant", "empty", "linear_ramp", *_PAD_INDEX, *_PAD_VALUE)
    choice_of("pad", "mode", mode, names)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, options.get("constant_values", 0))
    if mode in _PAD_INDEX:
        for d, (before, after) in enumerate(widths):
            if before or after:
                if x.shape[d] == 0:
                    raise ShapeError(
                        f"pad: axis {d} of shape {x.shape} is empty, so mode {mode!r} has nothing to repeat."
                    )
                x = rows_at(x, d, _PAD_INDEX[mode](np.arange(-before, x.shape[d] + after), x.shape[d]))
        return x
    if mode in _PAD_VALUE:
        for d, (before, after) in enumerate(widths):
            end = _PAD_VALUE[mode](x, d)
            x = concatenate([_spread(end, d, before), x, _spread(end, d, after)], d)
        return x
    return _pad_ramp(x, widths, _pairs("pad", options.get("end_values", 0), x.ndim))


def _spread(x: Any, axis: int, count: int) -> Any:
    sizes = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    flat = movement.reshape_to(x, (*x.shape[:axis], *x.shape[axis + 1 :]))
    return movement.broadcast(flat, sizes=sizes, dimensions=tuple(d for d in range(len(sizes)) if d != axis))


def _pad_constant(x: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    weak = x.weak_type
    if not isinstance(values, (list, tuple, np.ndarray)):
        fill = cast(operand(values, "pad"), x.dtype, weak)
        if fill.ndim == 0:
            return movement.pad(x, fill, padding_config=tuple((a, b, 0) for a, b in widths)).with_weak_type(weak)
    for d, (ends, width) in enumerate(zip(_pairs("pad", values, x.ndim), widths, strict=True)):
        for k in (0, 1):
            config = [(0, 0, 0)] * x.ndim
            config[d] = (width[0], 0, 0) if k == 0 else (0, width[1], 0)
            x = movement.pad(x, cast(operand(ends[k], "pad"), x.dtype), padding_config=tuple(config))
    return x


def _mirror(k: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    if n == 1:
        return np.zeros_like(k)
    folded = k % (2 * n - 2)
    return np.where(folded < n, folded, 2 * n - 2 - folded)


def _mirror_with_edge(k: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    folded = k % (2 * n)
    return np.where(folded < n, folded, 2 * n - 1 - folded)


_PAD_INDEX: dict[Any, Callable[[np.ndarray[Any, Any], int], np.ndarray[Any, Any]]] = {
    "edge": lambda k, n: np.clip(k, 0, n - 1),
    "reflect": _mirror,
    "symmetric": _mirror_with_edge,
    "wrap": lambda k, n: k % n,
}


def _axis_mean(x: Any, d: int) -> Any:
    found = total(x, d, keepdims=True)
    wide = cast(found, np.dtype(np.float64 if x.dtype.itemsize == 8 else np.float32)) if x.dtype.kind != "c" else found
    middle = ops.div(wide, movement.full(x.shape[d], wide.dtype, wide.shape))
    return cast(ops.round_nearest_even(middle) if element_type(x.dtype).is_integer else middle, x.dtype)


def _axis_extremum(op: str) -> Callable[[Any, int], Any]:
    def apply(x: Any, d: int) -> Any:
        reduce = reduction.reduce_max if op == "maximum" else reduction.reduce_min
        return expand_dims(reduce(x, (d,)), d)

    return apply


_PAD_VALUE: dict[Any, Callable[[Any, int], Any]] = {
    "maximum": _axis_extremum("maximum"),
    "minimum": _axis_extremum("minimum"),
    "mean": _axis_mean,
}


def _pad_ramp(x: Any, widths: list[tuple[int, int]], ends: list[tuple[Any, Any]]) -> Any:
    for d, ((before, after), (first, last)) in enumerate(zip(widths, ends, strict=True)):
        low = movement.slice_axis(x, d, 0, 1)
        high = movement.slice_axis(x, d, x.shape[d] - 1, x.shape[d])
        parts = [_ramp(first, low, before, d), x, flip(_ramp(last, high, after, d), d)]
        x = concatenate(parts, d)
    return x


def _ramp(start: Any, end: Any, count: int, axis: int) -> Any:
    """`count` steps from `start` towards the values at the edge, without reaching them."""
    shape = (*end.shape[:axis], count, *end.shape[axis + 1 :])
    wide = np.dtype(np.float64 if end.dtype.itemsize == 8 else np.float32) if end.dtype.kind != "c" else end.dtype
    number = movement.iota(shape=Shape(element_type(wide), shape), iota_dimension=axis)
    share = ops.div(number, movement.full(max(count, 1), wide, shape))
    first = movement.broadcast(cast(operand(start, "pad"), wide), sizes=shape, dimensions=())
    rise = ops.sub(_spread(cast(end, wide), axis, count), first)
    return cast(ops.add(first, ops.mul(rise, share)), end.dtype)
