"""More elements around an array: `pad`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_to_shape,
    cast,
    check_memory,
    choice_of,
    counted,
    integer_of,
    is_several,
    operand,
)
from tinyxla.numpy.joining import concatenate
from tinyxla.numpy.manipulation import expand_dims, flip, rows_at
from tinyxla.numpy.operations import movement, ops, reduction
from tinyxla.numpy.reductions import mean
from tinyxla.numpy.sorting import median
from tinyxla.numpy.vectorization import apply_along_axis
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array, ConcreteArray


def _pairs(what: str, value: Any, rank: int) -> list[tuple[Any, Any]]:
    """One (before, after) for each axis, of a number, a pair, or a pair for each."""
    if isinstance(value, Array):
        value = _nested(value)
    if not is_several(value):
        return [(value, value)] * rank
    rows = [tuple(v) if is_several(v) else v for v in value]
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


def _nested(x: Array) -> Any:
    """The elements of an array in nested tuples, with their derivatives where it is traced."""
    if isinstance(x, ConcreteArray):
        return x.tolist()
    return tuple(_nested(x[k]) for k in range(x.shape[0])) if x.ndim else x


@replayed
def pad(array: ArrayLike, pad_width: Any, mode: str | Callable[..., Any] = "constant", **options: Any) -> Array:
    """More elements before and after each axis.

    Args:
        array: what is padded.
        pad_width: how many: a number, a pair (before, after), or a pair for each axis (or a dict of axes).
        mode: `constant` (of `constant_values`), `edge`, `reflect`, `symmetric`, `wrap`, `empty`, `linear_ramp` (to
            `end_values`), or `maximum`, `mean`, `median`, `minimum` of the axis; or a function as NumPy's takes: it is
            given each vector along an axis with zeros at both ends, the pair of widths, the axis and the options, and
            returns the padded vector.
        options: `constant_values`; `end_values`; `stat_length`, how many elements at the edge a statistic is of (all
            unless given); `reflect_type`, which is "even" or, for 2 edge - reflection, "odd".

    Returns:
        An array of the type of `array`.

    Raises:
        ShapeError: a negative width, or widths that do not fit the axes.
        ArgumentError: a mode that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.pad(jnp.array([1, 2]), (1, 2))
        Array([0, 1, 2, 0, 0], dtype=int32)
    """
    x = array_of(array, "pad")
    if isinstance(pad_width, Mapping):
        table: dict[int, Any] = {canonical_axis(k, x.ndim, "pad"): v for k, v in pad_width.items()}
        pad_width = [_pairs("pad", table.get(d, 0), 1)[0] for d in range(x.ndim)]
    widths = _counts("a width", pad_width, x.ndim)
    if callable(mode) and not isinstance(mode, type):
        return _pad_function(x, widths, mode, options)
    chosen: str = choice_of("pad", "mode", mode, _OPTIONS)
    if unknown := options.keys() - {_OPTIONS[chosen]}:
        takes = f"takes only {_OPTIONS[chosen]}" if _OPTIONS[chosen] else "takes no options"
        raise ArgumentError(f"pad: mode {chosen!r} {takes}, but got {', '.join(sorted(unknown))}.")
    if chosen in ("constant", "empty"):
        return _pad_constant(x, widths, options.get("constant_values", 0))
    for d, (before, after) in enumerate(widths):
        if (before or after) and x.shape[d] == 0:
            raise ShapeError(f"pad: axis {d} of shape {x.shape} is empty, so mode {chosen!r} has nothing to repeat.")
    if chosen in _PAD_INDEX:
        reflect_type = choice_of("pad", "reflect_type", options.get("reflect_type", "even"), ("even", "odd"))
        return _pad_index(x, widths, chosen, reflect_type)
    if chosen in _PAD_VALUE:
        return _pad_statistic(x, widths, _PAD_VALUE[chosen], options.get("stat_length"))
    return _pad_ramp(x, widths, _values(options.get("end_values", 0), x.ndim))


# The modes, with the option that each takes.
_OPTIONS: dict[str, str | None] = {
    "constant": "constant_values",
    "empty": None,
    "linear_ramp": "end_values",
    "edge": None,
    "reflect": "reflect_type",
    "symmetric": "reflect_type",
    "wrap": None,
    "maximum": "stat_length",
    "mean": "stat_length",
    "median": "stat_length",
    "minimum": "stat_length",
}


def _values(value: Any, rank: int) -> list[tuple[Any, Any]]:
    """Numbers or scalar arrays, a pair for each axis; parts of an array, which may be traced, if it is one."""
    if not isinstance(value, Array) or not value.ndim:
        return [(value, value)] * rank if isinstance(value, Array) else _pairs("pad", value, rank)
    table = broadcast_to_shape("pad", value, (rank, 2))
    rows = [movement.slice_axis(table, 0, d, d + 1) for d in range(rank)]
    ends = [[movement.slice_axis(row, 1, k, k + 1) for k in (0, 1)] for row in rows]
    return [(movement.reshape_to(first, ()), movement.reshape_to(last, ())) for first, last in ends]


def _counts(name: str, value: Any, rank: int) -> list[tuple[int, int]]:
    """A pair of integers that are not negative for each axis."""
    counts = [(integer_of("pad", name, a), integer_of("pad", name, b)) for a, b in _pairs("pad", value, rank)]
    if any(a < 0 or b < 0 for a, b in counts):
        noun = "widths" if name == "a width" else name
        raise ShapeError(f"pad: {noun} are not negative, but got {counts}.")
    return counts


def _pad_function(x: Any, widths: list[tuple[int, int]], function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Zeros around the array; along one axis after the other the function replaces each vector."""
    x = _pad_constant(x, widths, 0)
    for d, width in enumerate(widths):
        x = cast(apply_along_axis(function, d, x, width, d, options), x.dtype)
    return x


def _pad_index(x: Any, widths: list[tuple[int, int]], mode: str, reflect_type: str) -> Any:
    check_memory("pad", tuple(before + n + after for (before, after), n in zip(widths, x.shape, strict=True)))
    for d, (before, after) in enumerate(widths):
        if reflect_type == "odd" and x.shape[d] > 1:
            x = _pad_odd(x, d, before, after, int(mode == "reflect"))
        elif before or after:
            x = rows_at(x, d, _PAD_INDEX[mode](counted("pad", before + x.shape[d] + after, -before), x.shape[d]))
    return x


def _pad_odd(x: Any, axis: int, before: int, after: int, skipped: int) -> Any:
    """Point reflections at both edges: 2 edge - (reflected elements). Each round adds at most one period, after which
    the new edge is a centre of reflection too. `skipped` is 1 where the edge itself is not repeated."""
    period = x.shape[axis] - skipped
    while before or after:
        left, right = min(before, period), min(after, period)
        size = x.shape[axis]
        low, high = movement.slice_axis(x, axis, 0, 1), movement.slice_axis(x, axis, size - 1, size)
        front = flip(movement.slice_axis(x, axis, skipped, skipped + left), axis)
        back = flip(movement.slice_axis(x, axis, size - skipped - right, size - skipped), axis)
        x = concatenate([_point_reflection(low, front, axis), x, _point_reflection(high, back, axis)], axis)
        before, after = before - left, after - right
    return x


def _point_reflection(edge: Any, x: Any, axis: int) -> Any:
    edge = _spread(edge, axis, x.shape[axis])
    return ops.sub(ops.add(edge, edge), x)


def _pad_statistic(
    x: Any, widths: list[tuple[int, int]], statistic: Callable[[Any, int], Any], stat_length: Any
) -> Any:
    lengths: list[tuple[int, int] | None] = [None] * x.ndim
    if stat_length is not None:
        lengths = [*_counts("stat_length", stat_length, x.ndim)]
    for d, ((before, after), length) in enumerate(zip(widths, lengths, strict=True)):
        if not (before or after):
            continue
        size = x.shape[d]
        first, last = (size, size) if length is None else (min(length[0], size), min(length[1], size))
        if first == 0 or last == 0:
            raise ShapeError(f"pad: stat_length must be positive on axis {d}, but got {stat_length!r}.")
        low = statistic(movement.slice_axis(x, d, 0, first), d)
        high = low if first == last == size else statistic(movement.slice_axis(x, d, size - last, size), d)
        x = concatenate([_spread(low, d, before), x, _spread(high, d, after)], d)
    return x


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
    for d, (ends, width) in enumerate(zip(_values(values, x.ndim), widths, strict=True)):
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


def _rounded(middle: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """A mean in the type of x: that of integers is computed in float64 and rounded, halves to the even one."""

    def apply(x: Any, d: int) -> Any:
        if not element_type(x.dtype).is_integer:
            return cast(middle(x, d, keepdims=True), x.dtype)
        return cast(ops.round_nearest_even(middle(cast(x, np.dtype(np.float64)), d, keepdims=True)), x.dtype)

    return apply


def _axis_extremum(op: str) -> Callable[[Any, int], Any]:
    def apply(x: Any, d: int) -> Any:
        reduce = reduction.reduce_max if op == "maximum" else reduction.reduce_min
        return expand_dims(reduce(x, (d,)), d)

    return apply


_PAD_VALUE: dict[Any, Callable[[Any, int], Any]] = {
    "maximum": _axis_extremum("maximum"),
    "minimum": _axis_extremum("minimum"),
    "mean": _rounded(mean),
    "median": _rounded(median),
}


def _pad_ramp(x: Any, widths: list[tuple[int, int]], ends: list[tuple[Any, Any]]) -> Any:
    for d, ((before, after), (first, last)) in enumerate(zip(widths, ends, strict=True)):
        size = x.shape[d]
        if before:
            x = concatenate([_ramp(first, movement.slice_axis(x, d, 0, 1), before, d), x], d)
        if after:
            high = movement.slice_axis(x, d, size - 1 + before, size + before)
            x = concatenate([x, flip(_ramp(last, high, after, d), d)], d)
    return x


def _ramp(start: Any, end: Any, count: int, axis: int) -> Any:
    """`count` steps from `start` towards the values at the edge, without reaching them. The first one is `start`; the
    others are weighted means, which are infinite or NaN only where an end is. Integers are rounded down, as NumPy's
    `linspace` does; the quotients of their exact weighted sums are."""
    dtype = end.dtype
    whole = element_type(dtype).is_integer
    wide = np.dtype(np.float64) if whole or (dtype.itemsize == 8 and dtype.kind == "f") else np.dtype(np.float32)
    wide = dtype if dtype.kind == "c" else wide
    shape = (*end.shape[:axis], count - 1, *end.shape[axis + 1 :])
    begin = cast(operand(start, "pad"), wide)
    first = movement.broadcast(begin, sizes=shape, dimensions=())
    edge = _spread(cast(end, wide), axis, count - 1)
    one = movement.full(1, wide, shape)
    number = ops.add(movement.iota(shape=Shape(element_type(wide), shape), iota_dimension=axis), one)
    total = movement.full(count, wide, shape)
    left = ops.sub(total, number)
    if whole:
        steps = ops.floor(ops.div(ops.add(ops.mul(first, left), ops.mul(edge, number)), total))
        begin = ops.floor(begin)
    else:
        steps = ops.add(ops.mul(first, ops.div(left, total)), ops.mul(edge, ops.div(number, total)))
    begin = movement.broadcast(begin, sizes=(*shape[:axis], 1, *shape[axis + 1 :]), dimensions=())
    return cast(concatenate([begin, steps], axis), dtype)
