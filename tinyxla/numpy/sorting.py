"""Sorting, searching, and what is made of order: medians, quantiles, histograms."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    array_of,
    canonical_axes,
    cast,
    check_memory,
    choice_of,
    count_of,
    eager,
    index_dtype,
    inexact_array,
    integer_of,
    is_several,
    like,
    listed,
    promoted,
    refuse_complex,
    refuse_out,
    several_of,
    value_of,
)
from tinyxla.numpy.calculus import diff
from tinyxla.numpy.creation import linspace
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.indexed import Update
from tinyxla.numpy.indexing.take_where import take, take_along_axis, where
from tinyxla.numpy.joining import concatenate, stack
from tinyxla.numpy.manipulation import expand_dims, flip, moveaxis, ravel, squeeze
from tinyxla.numpy.operations import movement, ops, reduction, sorting_ops
from tinyxla.numpy.reductions import any, argmax, cumsum, max, min, weights_along
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import exceeds_int32, is_symbolic, may_exceed
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.promotion import default_int, join_types
from tinyxla.util.tracebacks import boundary

# --- sorting ----------------------------------------------------------------------------------------------------------


def _sorted(arrays: Sequence[Any], axis: int, keys: int, descending: bool = False) -> Any:
    comparator = sorting_ops.order_computation(tuple(x.dtype for x in arrays), keys, bool(descending))
    return sorting_ops.sort(*arrays, dimensions=(axis,), to_apply=comparator, is_stable=True)


def _axis_of(what: str, x: Any, axis: int | None) -> tuple[Any, int]:
    if axis is None:
        x, axis = ravel(x), 0
    if x.ndim == 0:
        raise ShapeError(f"{what}: an array without dimensions has no order; reshape it to (1,).")
    return x, canonical_axis(axis, x.ndim, what)


@replayed
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The elements sorted along an axis (of the flattened array if None), in ascending order unless `descending`; NaN
    last.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        kind, order: accepted for compatibility.
        stable: whether equal elements stay in order, which they always do.
        descending: whether the largest element comes first.

    Returns:
        An array of the shape and type of a.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.sort(jnp.array([3, 1, 2]))
        Array([1, 2, 3], dtype=int32)
    """
    x, along = _axis_of("sort", array_of(a, "sort"), axis)
    return _sorted([x], along, 1, descending)


@replayed
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Array:
    """The indices that sort along an axis (of the flattened array if None); equal elements stay in order.
    `dtype` is the integer type of the indices, which must hold them.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        kind, order: accepted for compatibility.
        stable: whether equal elements stay in order, which they always do.
        descending: whether the largest element comes first.
        dtype: an integer type.

    Returns:
        Integers of the shape of a.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.argsort(jnp.array([30, 10, 20]))
        Array([1, 2, 0], dtype=int32)
    """
    x, along = _axis_of("argsort", array_of(a, "argsort"), axis)
    return _sorted([x, _places(x, along, index_dtype("argsort", dtype, x.shape[along]))], along, 1, descending)[1]


def _places(x: Any, axis: int, dtype: Any = None) -> Any:
    return movement.iota(shape=Shape(element_type(dtype or default_int()), x.shape), iota_dimension=axis)


@boundary
def lexsort(keys: Sequence[ArrayLike] | Array, axis: int = -1) -> Array:
    """The indices that sort by several keys, of which the last is the first in rank.

    Args:
        keys: arrays of one shape, or an array whose first axis they are along.
        axis: the axis; None for the flattened array.

    Returns:
        Integers of the shape of a key.

    Raises:
        ShapeError: keys of different shapes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.lexsort((jnp.array([2, 1, 3]), jnp.array([1, 1, 0])))
        Array([2, 1, 0], dtype=int32)
    """
    arrays = [array_of(k, "lexsort") for k in keys] if is_several(keys) else []
    if not arrays:
        raise ArgumentError("lexsort: takes at least one key, but got none.")
    if not arrays[0].ndim:
        return _places(movement.reshape_to(arrays[0], (1,)), 0)[0]
    along = canonical_axis(axis, arrays[0].ndim, "lexsort")
    operands = [*reversed(arrays), _places(arrays[0], along)]
    return _sorted(operands, along, len(arrays))[-1]


@boundary
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The elements with the kth in its sorted place, smaller ones before and larger ones after: sorted, here.

    Args:
        a: an array.
        kth: a position along the axis.
        axis: the axis; None for the flattened array.

    Returns:
        An array of the shape and type of a.

    Raises:
        AxisError: an axis, or a place `kth` on it, that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.partition(jnp.array([30, 10, 20]), 1)
        Array([10, 20, 30], dtype=int32)
    """
    x, along = _axis_of("partition", array_of(a, "partition"), axis)
    canonical_axis(kth, x.shape[along], "partition: kth")
    return _sorted([x], along, 1)


@boundary
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The indices of `partition`.

    Args:
        a: an array.
        kth: a position along the axis.
        axis: the axis; None for the flattened array.

    Returns:
        Integers of the shape of a.

    Raises:
        AxisError: an axis, or a place `kth` on it, that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.argpartition(jnp.array([30, 10, 20]), 1)
        Array([1, 2, 0], dtype=int32)
    """
    x, along = _axis_of("argpartition", array_of(a, "argpartition"), axis)
    canonical_axis(kth, x.shape[along], "argpartition: kth")
    return argsort(x, along)


# --- searching --------------------------------------------------------------------------------------------------------


@replayed
def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *, method: str | None = None
) -> Array:
    """The places at which values would be inserted into a sorted array: before equal elements, or behind them if
    `side="right"`.

    Args:
        a: a sorted vector.
        v: values.
        side: "left" or "right".
        sorter: the indices that sort a, if it is not sorted.
        method: accepted for compatibility: "scan", "scan_unrolled", "sort" or "compare_all".

    Returns:
        Integers of the shape of `v`, of the type of indices: 64 bits wide with `enable_x64`.

    Raises:
        ShapeError: an `a` that is no vector.
        ArgumentError: another `side`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([2, 5]))
        Array([1, 2], dtype=int32)
    """
    known: Any = choice_of("searchsorted", "side", side, ("left", "right"))
    (ordered, values), _ = promoted("searchsorted", array_of(a, "searchsorted"), array_of(v, "searchsorted"))
    if ordered.ndim != 1:
        raise ShapeError(f"searchsorted: searches an array of one dimension, but got shape {ordered.shape}.")
    if sorter is not None:
        ordered = take(ordered, sorter)
    if eager(ordered, values) and ordered.dtype.isbuiltin == 1:  # of other types NumPy orders no NaN
        found = np.searchsorted(value_of(ordered), value_of(values), known)
        return ConcreteArray(np.asarray(found).astype(_place_type(ordered)))
    return _bisected(ordered, values, side)


def _place_type(ordered: Any) -> np.dtype[Any]:
    """The element type of indices into a sorted array."""
    is_narrow = config.searchsorted_dtype == "int32" and not exceeds_int32(ordered.shape[0])
    return np.dtype(np.int32) if is_narrow else default_int()


def _bisected(ordered: Any, values: Any, side: str) -> Any:
    """Bisection of all values together: the place grows by falling powers of two, while what is before is smaller."""
    index = _place_type(ordered)
    length = ordered.shape[0]
    place = movement.full(0, index, values.shape)
    step = 1 << (30 if is_symbolic(length) else length.bit_length())
    while step:
        further = ops.add(place, movement.full(step, index, values.shape))
        inside = ops.le(further, movement.full(length, index, values.shape))
        before = (
            take(ordered, ops.sub(further, movement.full(1, index, values.shape)), mode="clip")
            if may_exceed(length, 0)
            else values
        )
        comes = _before(before, values) if side == "left" else ops.not_(_before(values, before))
        place = ops.select(ops.and_(inside, comes), further, place)
        step //= 2
    return place


def _before(x: Any, y: Any) -> Any:
    """Whether x comes before y in a sort: NaN last, complex numbers by their NaN parts, then lexicographic."""
    if element_type(x.dtype).kind == "complex":
        keys = [(_nan_parts(z), ops.real(z), ops.imag(z)) for z in (x, y)]
        found: Any = None
        for a, b in reversed(list(zip(*keys, strict=True))):
            comes = _before(a, b)
            found = comes if found is None else ops.or_(comes, ops.and_(ops.not_(_before(b, a)), found))
        return found
    if element_type(x.dtype).kind != "float":
        return ops.lt(x, y)
    return ops.or_(ops.lt(x, y), ops.and_(ops.eq(x, x), ops.ne(y, y)))


def _nan_parts(z: Any) -> Any:
    """How far behind the parts that are NaN put a complex number: 1 for the imaginary one, 2 for the real one."""
    real, imaginary = (cast(ops.ne(part, part), np.dtype(np.int32)) for part in (ops.real(z), ops.imag(z)))
    return ops.add(ops.add(real, real), imaginary)


@replayed
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None) -> Array:
    """The number of the bin of each value, between edges that ascend or descend.

    Args:
        x: values.
        bins: a vector of edges.
        right: whether a bin includes its right edge, instead of the left one.
        method: that of `searchsorted`.

    Returns:
        Integers of the shape of x.

    Raises:
        ShapeError: edges of more than one dimension.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.digitize(jnp.array([0.5, 2.5]), jnp.array([0.0, 1.0, 2.0]))
        Array([1, 3], dtype=int32)
    """
    edges = array_of(bins, "digitize")
    if edges.ndim != 1:
        raise ShapeError(f"digitize: edges have one dimension, but got shape {edges.shape}.")
    if edges.shape[0] == 0:
        return movement.full(0, _place_type(edges), array_of(x, "digitize").shape)
    side = "right" if not right else "left"
    ascending = arith.greater_equal(take(edges, -1), take(edges, 0))
    count = edges.shape[0]
    down = arith.subtract(count, searchsorted(flip(edges), x, side))
    return where(ascending, searchsorted(edges, x, side), down)


@replayed
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Linear interpolation: values at x of the piecewise linear function through the points (xp, fp), xp ascending.

    Outside they are `left` and `right`: by default constant, with "extrapolate" on the first and the last line. Values
    may be complex.

    Args:
        x: values.
        xp, fp: the coordinates of the points, vectors.
        left, right: the results below the first and above the last point.
        period: the period of x, for periodic functions.

    Returns:
        An array of the shape of x.

    Raises:
        ShapeError: xp and fp that are no vectors of one length.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.interp(1.5, jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0]))
        Array(15., dtype=float32)
    """
    values = array_of(fp, "interp")
    if values.dtype.kind == "c":
        parts = [
            [v if v is None or isinstance(v, str) else part(v) for v in (fp, left, right)]
            for part in (arith.real, arith.imag)
        ]
        real, imaginary = (interp(x, xp, f, first, last, period) for f, first, last in parts)
        return ops.complex_(*promoted("interp", real, imaginary)[0])
    (at, points, values), _ = promoted("interp", x, array_of(xp, "interp"), values, to_inexact=True)
    if points.ndim != 1 or points.shape != values.shape or points.shape[0] == 0:
        raise ShapeError(f"interp: xp and fp are vectors of one length, but got {points.shape} and {values.shape}.")
    if period is not None:
        at, points = arith.remainder(at, period), arith.remainder(points, period)
        order = argsort(points)
        points, values = take(points, order, mode="clip"), take(values, order, mode="clip")
        points = concatenate([arith.subtract(points[-1:], period), points, arith.add(points[:1], period)])
        values = concatenate([values[-1:], values, values[:1]])
    place = arith.clip(searchsorted(points, at, "right"), 1, builtins.max(points.shape[0] - 1, 1))
    last = points.shape[0] - 1
    low, high = (arith.clip(p, 0, last) for p in (arith.subtract(place, 1), place))
    x0, x1, f0, f1 = (take(v, p, mode="clip") for v in (points, values) for p in (low, high))
    width = arith.subtract(x1, x0)
    flat = arith.equal(width, 0)
    slope = where(flat, 0, arith.true_divide(arith.subtract(f1, f0), where(flat, 1, width)))
    found = arith.add(f0, arith.multiply(slope, arith.subtract(at, x0)))
    if not _extrapolates("left", left):
        found = where(arith.less(at, points[0]), values[0] if left is None or period is not None else left, found)
    if not _extrapolates("right", right):
        last_value = values[-1] if right is None or period is not None else right
        found = where(arith.greater(at, points[-1]), last_value, found)
    return found


def _extrapolates(side: str, value: Any) -> bool:
    if isinstance(value, str) and value != "extrapolate":
        raise ArgumentError(f"interp: {side} is a number, None or 'extrapolate', but got {value!r}.")
    return isinstance(value, str)


# --- quantiles --------------------------------------------------------------------------------------------------------


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantiles(
    what: str, doc: str, example: str, percent: bool = False, ignore_nan: bool = False
) -> Callable[..., Array]:
    def function(
        a: ArrayLike,
        q: ArrayLike,
        axis: Axis = None,
        out: None = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: ArrayLike | None = None,
        out_sharding: Any = None,
    ) -> Array:
        refuse_out(what, out)
        if out_sharding is not None:
            return placed_result(
                f"{what}: out_sharding",
                lambda: function(a, q, axis, out, overwrite_input, method, keepdims, weights=weights),
                out_sharding,
            )
        share = inexact_array(q, what) if percent else q
        if percent and isinstance(share, ConcreteArray):
            share = value_of(share) / np.asarray(100, share.dtype)
        elif percent:
            share = arith.true_divide(share, 100)
        if weights is not None:
            return _weighted_quantile(what, a, share, axis, method, keepdims, ignore_nan, weights)
        return _quantile(what, a, share, axis, method, keepdims, ignore_nan)

    function.__name__ = function.__qualname__ = what
    function.__doc__ = f"{doc}\n\n{_QUANTILES}\n\nExample:\n    >>> import tinyxla.numpy as jnp\n    {example}"
    return function if ignore_nan else replayed(function)


_QUANTILES = """Args:
    a: an array of real numbers.
    q: a number or an array; what is beyond the ends is taken for the nearer one.
    axis: an axis, or several; all, if None.
    out, overwrite_input: None, and without effect: arrays are immutable.
    method: what is taken where q is between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
    keepdims: whether the result keeps these axes, with size 1.
    weights: not negative, of the array's shape or that of its axes. They need the method "inverted_cdf": the
        smallest element up to which elements have that share of the total weight.
    out_sharding: the sharding of the result, with explicit mesh axes.

Returns:
    An array in floating point: the axes of q, and then those of the array that stay.

Raises:
    AxisError: an axis that the array does not have.
    ShapeError: no elements.
    DTypeError: complex numbers.
    ArgumentError: another method."""
quantile = _quantiles(
    "quantile",
    "The quantile of the elements over axes: the value that a share q, from 0 to 1, of the sorted elements is below.",
    ">>> jnp.quantile(jnp.arange(5.0), 0.25)\n    Array(1., dtype=float32)",
)
nanquantile = _quantiles(
    "nanquantile",
    "The quantile, as of `quantile`, of what is not NaN.",
    ">>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5)\n    Array(2., dtype=float32)",
    ignore_nan=True,
)
percentile = _quantiles(
    "percentile",
    "The percentile of the elements over axes: the value that q percent of the sorted elements are below.",
    ">>> jnp.percentile(jnp.arange(5.0), 75)\n    Array(3., dtype=float32)",
    percent=True,
)
nanpercentile = _quantiles(
    "nanpercentile",
    "The percentile, as of `percentile`, of what is not NaN.",
    ">>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50)\n    Array(2., dtype=float32)",
    percent=True,
    ignore_nan=True,
)


@replayed
def median(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The median over axes (all, if None): the middle one of the sorted elements, or the mean of the two in the middle.

    Args:
        a: an array.
        axis: an axis, or several; all if None.
        out: must be None.
        overwrite_input: accepted for compatibility.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        An array in floating point without the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.median(jnp.array([3.0, 1.0, 10.0]))
        Array(3., dtype=float32)
    """
    refuse_out("median", out)
    canonical_axes("median", axis, array_of(a, "median").ndim)
    return quantile(a, 0.5, axis, keepdims=keepdims)


@boundary
def nanmedian(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The median, as of `median`, of what is not NaN.

    Args:
        a: an array.
        axis: an axis, or several; all if None.
        out: must be None.
        overwrite_input: accepted for compatibility.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        An array in floating point without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanmedian(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(2., dtype=float32)
    """
    refuse_out("nanmedian", out)
    canonical_axes("nanmedian", axis, array_of(a, "nanmedian").ndim)
    return nanquantile(a, 0.5, axis, keepdims=keepdims)


def _quantile(
    what: str, a: ArrayLike, q: ArrayLike, axis: Axis, method: str, keepdims: bool, ignore_nan: bool
) -> Array:
    choice_of(what, "method", method, _METHODS)
    x, share = inexact_array(a, what), array_of(q, what)
    dtype = x.dtype
    if x.dtype.kind == "c":
        raise DTypeError(f"{what}: complex numbers have no order.")
    if share.dtype.kind == "c":
        raise DTypeError(f"{what}: q must be real, but is of {share.dtype.name}; take its real part.")
    if share.ndim > 1:
        raise ShapeError(f"{what}: q is a number or a vector, but got shape {share.shape}.")
    axes = canonical_axes(what, axis, x.ndim)
    kept = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    rows = moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    count = math.prod(x.shape[d] for d in axes)
    if count == 0:
        raise ShapeError(f"{what}: the axes {axes} of shape {x.shape} are empty and have no quantile.")
    wide = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    rows = cast(movement.reshape_to(rows, (*kept, count)), wide, False)
    ordered = _sorted([rows], len(kept), 1)
    bad = arith.isnan(rows)
    number = movement.full(count - 1, wide, kept)
    if ignore_nan:
        valid = cast(arith.invert(bad), wide)
        total = _row_sum(valid)
        number = arith.maximum(arith.subtract(total, 1), 0)
    spread, of_one = (*share.shape, *kept), (*(1,) * share.ndim, *kept)
    shares = movement.reshape_to(cast(share, wide, False), (*share.shape, *(1,) * len(kept)))
    last = movement.reshape_to(number, of_one)
    position = arith.multiply(shares, last)
    position = where(arith.less(position, 0), 0, where(arith.greater(position, last), last, position))
    position = movement.broadcast_in_dim(position, spread, tuple(range(len(spread))))
    low, high = ops.floor(position), ops.ceil(position)
    if (
        not ignore_nan and isinstance(share, ConcreteArray) and not is_symbolic(count)
    ):  # the sort sees what of it is read
        known = np.nan_to_num(np.asarray(value_of(share), wide).reshape(-1) * wide.type(count - 1))
        places = (np.clip(p, 0, count - 1).astype(np.int32) for p in (np.floor(known), np.ceil(known)))
        at_low, at_high = (movement.reshape_to(moveaxis(take(ordered, p, -1), -1, 0), spread) for p in places)
    else:
        at_low, at_high = (_pick(ordered, p, share.ndim) for p in (low, high))
    result = _between(method, position, low, high, at_low, at_high)
    missing = arith.equal(_row_sum(cast(arith.invert(bad), wide)), 0) if ignore_nan else any(bad, -1)
    result = where(movement.reshape_to(missing, of_one), np.nan, result)
    result = cast(result, dtype, False)
    if keepdims:
        shape = (*share.shape, *(1 if d in axes else n for d, n in enumerate(x.shape)))
        result = movement.reshape_to(result, shape)
    return result


def _weighted_quantile(
    what: str,
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis,
    method: str,
    keepdims: bool,
    ignore_nan: bool,
    weights: ArrayLike,
) -> Array:
    """Inverse of the empirical distribution function of weighted elements."""
    choice_of(f"{what} with weights", "method", method, ("inverted_cdf",))
    x, share = inexact_array(a, what), array_of(q, what)
    refuse_complex(what, x, share)
    if share.ndim > 1:
        raise ShapeError(f"{what}: q is a number or a vector, but got shape {share.shape}.")
    axes = canonical_axes(what, axis, x.ndim)
    given = weights_along(what, x, inexact_array(weights, what), axis, axes)
    refuse_complex(what, given)
    dtype = x.dtype
    wide = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    kept = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    count = math.prod(x.shape[d] for d in axes)
    if count == 0:
        raise ShapeError(f"{what}: the axes {axes} of shape {x.shape} are empty and have no quantile.")
    last = tuple(range(x.ndim - len(axes), x.ndim))
    rows, shares = (cast(movement.reshape_to(moveaxis(v, axes, last), (*kept, count)), wide, False) for v in (x, given))
    bad = arith.isnan(rows)
    if ignore_nan:
        shares = where(bad, 0, shares)
    ordered, heavy = _sorted([rows, shares], len(kept), 1)
    total = cumsum(heavy, -1)
    total = arith.true_divide(total, total[..., -1:])
    wanted = cast(share, wide, False).reshape(-1)
    found = [_first_reaching(ordered, heavy, total, wanted[k]) for k in range(wanted.shape[0])]
    result = stack(found) if share.ndim else found[0]
    missing = arith.equal(_row_sum(cast(arith.invert(bad), wide)), 0) if ignore_nan else any(bad, -1)
    missing = movement.broadcast_in_dim(missing, result.shape, tuple(range(result.ndim - len(kept), result.ndim)))
    result = cast(where(missing, np.nan, result), dtype, False)
    if not keepdims:
        return result
    return movement.reshape_to(result, (*share.shape, *(1 if d in axes else n for d, n in enumerate(x.shape))))


def _first_reaching(ordered: Any, weights: Any, total: Any, share: Any) -> Any:
    """Of each sorted row the first element with a weight up to which the rows' share of the total weight is reached."""
    share = movement.broadcast_in_dim(share, total.shape, ())
    reached = ops.and_(ops.ge(total, share), ops.gt(weights, like(0, weights)))
    place = argmax(reached, -1, keepdims=True)
    return squeeze(take_along_axis(ordered, place, -1, mode="clip"), -1)


def _row_sum(x: Any) -> Any:
    return reduction.reduce_sum(x, (x.ndim - 1,))


def _pick(ordered: Any, position: Any, leading: int) -> Any:
    """Elements of sorted rows; positions may have one more axis in front."""
    place = cast(position, np.dtype(np.int32))
    if leading == 0:
        return movement.reshape_to(take_along_axis(ordered, expand_dims(place, -1), -1, mode="clip"), position.shape)
    behind = moveaxis(place, 0, -1)
    return moveaxis(take_along_axis(ordered, behind, -1, mode="clip"), -1, 0)


def _between(method: str, position: Any, low: Any, high: Any, at_low: Any, at_high: Any) -> Any:
    if method == "lower":
        return at_low
    if method == "higher":
        return at_high
    if method == "midpoint":
        return arith.multiply(arith.add(at_low, at_high), 0.5)
    if method == "nearest":  # halves go to the lower neighbour, as in JAX
        return where(arith.less_equal(ops.sub(position, low), 0.5), at_low, at_high)
    share = ops.sub(position, low)
    # A convex combination: infinities at an end with no weight do not matter, but weights of 0 have derivatives.
    left = ops.chain_mul(ops.sub(ops.one_like(share), share), at_low)
    return ops.add(left, ops.chain_mul(share, at_high))


# --- counting ---------------------------------------------------------------------------------------------------------


@replayed
def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: Any = None,
) -> Array:
    """How often each integer from 0 on occurs, or the sum of its weights.

    The largest integer decides the shape, so values must be known, unless `length` gives it: then larger ones do not
    count.

    Args:
        x: a vector of integers, not negative.
        weights: the weight of each value.
        minlength: the least number of elements of the result.
        length: the number of elements of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A vector.

    Raises:
        DTypeError: what is no vector of integers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.bincount(jnp.array([0, 2, 2]))
        Array([1, 0, 2], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result(
            "bincount: out_sharding", lambda: bincount(x, weights, minlength, length=length), out_sharding
        )
    values = array_of(x, "bincount")
    if values.ndim != 1 or not (element_type(values.dtype).is_integer or values.dtype.kind == "b"):
        raise DTypeError(f"bincount: takes a vector of integers, but got {values.dtype.name} of shape {values.shape}.")
    if length is None:
        known = np.asarray(
            values.concrete("bincount, whose result's shape depends on values (or give `length`),").buffer()
        )
        length = builtins.max(int(known.max()) + 1 if known.size else 0, integer_of("bincount", "minlength", minlength))
    else:
        length = count_of("bincount", "length", length)
    counted = array_of(1 if weights is None else weights, "bincount").with_weak_type(False)
    zeros: Any = movement.full(0, counted.dtype, (length,))
    if length == 0:
        return zeros
    places = arith.maximum(values, 0) if values.dtype.kind != "b" else cast(values, default_int())
    return Update(zeros, places).add(counted, mode="drop", wrap_negative_indices=False)


@boundary
def histogram_bin_edges(
    a: ArrayLike, bins: ArrayLike = 10, range: Any = None, weights: ArrayLike | None = None
) -> Array:
    """The edges of so many equal bins over the values or a range, or those that are given, of the type of the values.

    Args:
        a: an array.
        bins: the number of bins, or their edges.
        range: the lower and the upper end; those of the values by default.
        weights: accepted for compatibility.

    Returns:
        A vector of one more edge than bins.

    Raises:
        ArgumentError: a number of bins that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), bins=2)
        Array([0., 2., 4.], dtype=float32)
    """
    if isinstance(bins, str):
        raise ArgumentError(f"histogram: bins is a number or edges, but got {bins!r}.")
    if isinstance(bins, int) and bins >= 1 << 31:
        check_memory("histogram", (bins,))
    x = inexact_array(ravel(array_of(a, "histogram")), "histogram")
    edges = listed(bins, "histogram")
    if edges.ndim == 1:
        return cast(edges, x.dtype, False)
    count = integer_of("histogram", "bins", bins)
    if range is not None:
        low, high = (inexact_array(v, "histogram") for v in several_of("histogram", "range", range, 2))
    elif x.size:
        low, high = min(x), max(x)
    else:
        low, high = like(0, x[:1].sum()), like(1, x[:1].sum())
    equal = arith.equal(low, high)
    low = arith.subtract(low, where(equal, 0.5, 0.0))
    high = arith.add(high, where(equal, 0.5, 0.0))
    return linspace(low, high, count + 1, dtype=x.dtype)


@replayed
def histogram(
    a: ArrayLike,
    bins: ArrayLike = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:
    """How many values (or how much weight) each bin has, and the edges; the last bin has its upper edge too.

    Args:
        a: values.
        bins: the number of bins, or their edges.
        range: the lower and the upper end; those of the values by default.
        weights: the weight of each value.
        density: whether the result is divided by the sum and by the sizes of bins.

    Returns:
        The counts or weights, and one more edge than bins.

    Raises:
        ShapeError: weights of another shape.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.histogram(jnp.array([1.0, 2.0, 2.5]), bins=2)
        (Array([1., 2.], dtype=float32), Array([1.  , 1.75, 2.5 ], dtype=float32))
    """
    given = ravel(array_of(a, "histogram"))
    x = inexact_array(given, "histogram")
    edges = histogram_bin_edges(x, bins, range, weights)
    count = edges.shape[0] - 1
    place = arith.subtract(searchsorted(edges, x, "right"), 1)
    place = where(arith.equal(x, edges[-1]), count - 1, place)
    counted = like(1, x)
    if weights is not None:
        counted = promoted("histogram", given, ravel(array_of(weights, "histogram")), to_inexact=True)[0][1]
    zeros: Any = movement.full(0, counted.dtype, (count,))
    found = Update(zeros, place).add(counted, mode="drop", wrap_negative_indices=False)
    edges = cast(edges, counted.dtype)
    if density:
        total = arith.multiply(found.sum(), diff(edges))
        found = arith.true_divide(found, total)
    return found, edges


@boundary
def histogramdd(
    sample: ArrayLike,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """How many points (or how much weight) each box of a grid has, and the edges along each axis.

    Args:
        sample: the points: an array of shape (number, axes).
        bins: the number of bins, or for each axis that or the edges.
        range: for each axis None or the ends.
        weights: of the points.
        density: divide by the sum and the boxes' sizes.

    Returns:
        An array of counts or weights, and a list of vectors of edges.

    Raises:
        ArgumentError: bins that are not one entry for each dimension.

    >>> import numpy as np
    >>> from tinyxla.numpy import histogramdd
    >>> histogramdd(np.array([[0.0, 0.0], [1.0, 1.0]]), 2)[0]
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    points: Any = inexact_array(array_of(sample, "histogramdd"), "histogramdd")
    if isinstance(sample, (list, tuple)):  # NumPy's other form: the coordinates along each axis
        points = points.T
    if points.ndim != 2:
        raise ShapeError(f"histogramdd: sample must be of shape (number, axes), but has the shape {points.shape}.")
    axes = points.shape[1]
    by_axis = [bins] * axes if getattr(bins, "ndim", 0) == 0 and not is_several(bins) else list(bins)
    ends = [None] * axes if range is None else several_of("histogramdd", "range", range, axes)
    if len(by_axis) != axes:
        raise ArgumentError(f"histogramdd: bins must have an entry for each of {axes} axes, but got {len(by_axis)}.")
    edges: list[Any] = []
    cell: Any = like(0, points[:, :1].sum(-1)).astype(int)
    inside: Any = arith.equal(cell, 0)
    sizes: list[int] = []
    for d, given in enumerate(by_axis):
        x = points[:, d]
        found: Any = histogram_bin_edges(x, given, ends[d]).astype(points.dtype)
        count = found.shape[0] - 1
        place = arith.subtract(searchsorted(found, x, "right"), 1)
        place = where(arith.equal(x, found[-1]), count - 1, place)
        inside = arith.logical_and(inside, arith.logical_and(arith.greater_equal(place, 0), arith.less(place, count)))
        cell = arith.add(arith.multiply(cell, count), place)
        edges.append(found)
        sizes.append(count)
    counted = like(1, cell) if weights is None else cast(array_of(weights, "histogramdd"), points.dtype)
    total = math.prod(sizes)
    zeros: Any = movement.full(0, counted.dtype, (total,))
    flat = Update(zeros, where(inside, cell, total)).add(counted, mode="drop")
    boxes: Any = flat.reshape(sizes)
    if density:
        boxes = arith.true_divide(boxes, boxes.sum())
        for d, found in enumerate(edges):
            width = diff(found).reshape([-1 if k == d else 1 for k in builtins.range(axes)])
            boxes = arith.true_divide(boxes, cast(width, join_types((boxes.dtype, False), (width.dtype, False))[0]))
        if weights is None:  # which have no type of their own
            boxes = cast(boxes, points.dtype)
    return boxes, edges


@boundary
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """As `histogramdd` for points in the plane: the counts, and the edges along x and y.

    Args:
        x, y: the coordinates of points, vectors.
        bins: the number of bins, or their edges.
        range: the lower and the upper end; those of the values by default.
        weights: the weight of each value.
        density: whether the result is divided by the sum and by the sizes of bins.

    Returns:
        A matrix of counts or weights, and two vectors of edges.

    Raises:
        ShapeError: coordinates of different lengths.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.histogram2d(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]), bins=2)[0]
        Array([[1, 0],
               [0, 1]], dtype=int32)
    """
    points = moveaxis(concatenate([expand_dims(array_of(v, "histogram2d"), 0) for v in (x, y)]), 0, 1)
    both = isinstance(bins, (int, np.integer)) or (is_several(bins) and len(list(bins)) == 2)
    found, (first, second) = histogramdd(points, bins if both else [bins, bins], range, weights, density)
    return found, first, second


def sort_complex(a: ArrayLike) -> Array:
    """The elements as complex numbers, sorted by the real and then the imaginary part along the last axis.

    Args:
        a: an array.

    Returns:
        Complex numbers of the shape of a.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.numpy import sort_complex
    >>> sort_complex(np.array([2.0, 1.0]))
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    x = array_of(a, "sort_complex")
    wide = np.complex128 if x.dtype.name in ("float64", "int64", "uint64", "complex128") else np.complex64
    return sort(x.astype(wide))
