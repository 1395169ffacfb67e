"""Reductions and positions that leave out NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.numpy.arguments import ArrayLike, Axis, array_of, canonical_axes, cast, like, refuse_out
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import sqrt
from tinyxla.numpy.operations import ops, reduction
from tinyxla.numpy.reductions import all, cumprod, cumsum, index_of_extremum, mask_of, max, mean, min, prod, sum, var
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary


def _without_nan(a: ArrayLike, what: str, value: Any) -> tuple[Array, Array]:
    """x with `value` for NaN, and where it was."""
    x = array_of(a, what)
    bad = arith.isnan(x)
    return ops.select(bad, like(value, x), x), bad


@replayed
def nansum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The sum of what is not NaN; arguments and element types as for `sum`.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.

    Returns:
        An array without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nansum(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(4., dtype=float32)
    """
    canonical_axes("nansum", axis, array_of(a, "nansum").ndim)
    return sum(_without_nan(a, "nansum", 0)[0], axis, dtype, out, keepdims, initial, where)


@replayed
def nanprod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The product of what is not NaN; arguments and element types as for `sum`.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.

    Returns:
        An array without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanprod(jnp.array([jnp.nan, 2.0, 3.0]))
        Array(6., dtype=float32)
    """
    canonical_axes("nanprod", axis, array_of(a, "nanprod").ndim)
    return prod(_without_nan(a, "nanprod", 1)[0], axis, dtype, out, keepdims, initial, where)


def _nan_extremum(
    what: str, op: str, a: ArrayLike, axis: Axis, keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None
) -> Array:
    x = array_of(a, what)
    options = {"initial": initial, "where": where}
    canonical_axes(what, axis, x.ndim)
    reduce = max if op == "maximum" else min
    if not element_type(x.dtype).is_inexact:
        return reduce(x, axis, keepdims=keepdims, **options)
    filled, bad = _without_nan(x, what, reduction.identity_element(op, x.dtype))
    result = reduce(filled, axis, keepdims=keepdims, **options)
    nothing = all(bad, axis, keepdims=keepdims)
    return result if initial is not None else ops.select(nothing, like(np.nan, result), result)


@replayed
def nanmax(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The largest element over axes that is not NaN; NaN where all are.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.

    Returns:
        An array of the type of a without the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements, and no `initial`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanmax(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(3., dtype=float32)
    """
    refuse_out("nanmax", out)
    return _nan_extremum("nanmax", "maximum", a, axis, keepdims, initial, where)


@replayed
def nanmin(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The smallest element over axes that is not NaN; NaN where all are.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.

    Returns:
        An array of the type of a without the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements, and no `initial`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanmin(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(1., dtype=float32)
    """
    refuse_out("nanmin", out)
    return _nan_extremum("nanmin", "minimum", a, axis, keepdims, initial, where)


@replayed
def nanmean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """The mean of what is not NaN, over axes (all, if None); NaN where all are.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.

    Returns:
        An array in floating point without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanmean(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(2., dtype=float32)
    """
    refuse_out("nanmean", out)
    x = array_of(a, "nanmean")
    canonical_axes("nanmean", axis, x.ndim)
    return mean(x, axis, dtype, keepdims=keepdims, where=_known_where("nanmean", x, where))


@replayed
def nanvar(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """The variance of what is not NaN; arguments as for `var`.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        ddof: what is subtracted from the number of elements in the divisor.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.
        mean: the mean, if it is known, with the axes kept.

    Returns:
        Real numbers without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanvar(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(1., dtype=float32)
    """
    refuse_out("nanvar", out)
    x, _ = _without_nan(a, "nanvar", 0)
    canonical_axes("nanvar", axis, x.ndim)
    counted = _known_where("nanvar", array_of(a, "nanvar"), where)
    return var(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=counted, mean=mean)


@replayed
def nanstd(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """The standard deviation of what is not NaN; arguments as for `var`.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        ddof: what is subtracted from the number of elements in the divisor.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.
        mean: the mean, if it is known, with the axes kept.

    Returns:
        Real numbers without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanstd(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(1., dtype=float32)
    """
    refuse_out("nanstd", out)
    canonical_axes("nanstd", axis, array_of(a, "nanstd").ndim)
    total = nanvar(a, axis, dtype, None, ddof, keepdims, where, mean)
    return cast(sqrt(total), total.dtype, total.weak_type)


def _known_where(what: str, x: Array, where: ArrayLike | None) -> Array:
    """Where elements are not NaN, and wanted."""
    known = arith.invert(arith.isnan(x))
    return known if where is None else arith.logical_and(known, mask_of(what, where, x.shape))


@boundary
def nanargmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the largest element that is not NaN; -1 where all are.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        Integers without the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanargmax(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(2, dtype=int32)
    """
    refuse_out("nanargmax", out)
    return _nan_argument("nanargmax", "maximum", a, axis, keepdims)


@boundary
def nanargmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the smallest element that is not NaN; -1 where all are.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        Integers without the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nanargmin(jnp.array([jnp.nan, 1.0, 3.0]))
        Array(1, dtype=int32)
    """
    refuse_out("nanargmin", out)
    return _nan_argument("nanargmin", "minimum", a, axis, keepdims)


def _nan_argument(what: str, op: str, a: ArrayLike, axis: int | None, keepdims: bool) -> Array:
    x = array_of(a, what)
    direction = "GT" if op == "maximum" else "LT"
    if not element_type(x.dtype).is_inexact:
        return index_of_extremum(what, direction, x, axis, keepdims)
    filled, bad = _without_nan(x, what, reduction.identity_element(op, x.dtype))
    found = index_of_extremum(what, direction, filled, axis, keepdims)
    return ops.select(all(bad, axis, keepdims=keepdims), like(-1, found), found)


@replayed
def nancumsum(a: ArrayLike, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The cumulative sum of what is not NaN; arguments as for `cumsum`.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        dtype: the type to compute in, and of the result.
        out: must be None.

    Returns:
        An array of the shape of a.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nancumsum(jnp.array([2.0, jnp.nan, 3.0]))
        Array([2., 2., 5.], dtype=float32)
    """
    refuse_out("nancumsum", out)
    return cumsum(_without_nan(a, "nancumsum", 0)[0], axis, dtype)


@replayed
def nancumprod(a: ArrayLike, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The cumulative product of what is not NaN; arguments as for `cumprod`.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        dtype: the type to compute in, and of the result.
        out: must be None.

    Returns:
        An array of the shape of a.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0]))
        Array([2., 2., 6.], dtype=float32)
    """
    refuse_out("nancumprod", out)
    return cumprod(_without_nan(a, "nancumprod", 1)[0], axis, dtype)
