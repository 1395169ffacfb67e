"""Reductions over axes: sums, extrema, means, questions, positions.

All take `axis` (an axis, several, or None for all), `keepdims` (leave axes of size 1), and `where` (a mask of what
counts). Narrow floats are summed in float32; sums of booleans and narrow integers are 32-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    along_axis,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    cast,
    constant,
    eager,
    inexact,
    is_several,
    like,
    listed,
    number_of,
    operand,
    promoted,
    python_dtype,
    refuse_out,
    value_of,
)
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import sqrt
from tinyxla.numpy.operations import bits, movement, ops, reduction, windows
from tinyxla.ops.movement import inverse_permutation
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import state
from tinyxla.tracing.meshes import context
from tinyxla.tracing.promotion import default_int, join_types
from tinyxla.util.tracebacks import boundary


def _masked(what: str, x: Array, where: ArrayLike | None, value: Any) -> Array:
    """x with `value` where the mask is false."""
    if where is None:
        return x
    return ops.select(mask_of(what, where, x.shape), x, like(value, x))


def mask_of(what: str, where: ArrayLike, shape: tuple[int, ...]) -> Array:
    """What counts, for each element of an array of that shape."""
    mask = array_of(where, what)
    if mask.dtype.kind != "b":
        raise DTypeError(f"{what}: `where` must be of booleans, but its element type is {mask.dtype.name}.")
    return broadcast_to_shape(what, mask, shape)


def _kept(result: Array, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if not keepdims:
        return result
    return movement.reshape_to(result, tuple(1 if d in axes else n for d, n in enumerate(x.shape)))


_REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": reduction.reduce_sum,
    "multiply": reduction.reduce_prod,
    "maximum": reduction.reduce_max,
    "minimum": reduction.reduce_min,
    "and": reduction.reduce_and,
    "or": reduction.reduce_or,
}


def _fold(
    what: str,
    op: str,
    x: Array,
    axis: Axis,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
    identity: Any,
) -> Array:
    """A reduction with one of the monoids, with what all have in common."""
    axes = canonical_axes(what, axis, x.ndim)
    masked = _masked(what, x, where, identity)
    if axes and eager(masked):
        result = ConcreteArray(reduction.folded(op, value_of(masked), axes))
    else:
        result = _REDUCERS[op](masked, axes)
    if initial is not None:
        start = cast(operand(initial, what), x.dtype)
        if start.ndim:
            raise ShapeError(f"{what}: `initial` must be a number, but has the shape {start.shape}.")
        combine = {"add": ops.add, "multiply": ops.mul, "maximum": ops.max_, "minimum": ops.min_}[op]
        result = combine(result, broadcast_to_shape(what, start, result.shape))
    return _kept(result, x, axes, keepdims)


def _accumulated(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of a sum: booleans and integers narrower than the default count in the default integer."""
    kind = element_type(dtype)
    if kind.is_inexact:
        return dtype
    if kind.kind == "pred":
        return default_int()
    if kind.is_integer and kind.bits < 8 * default_int().itemsize:
        return default_int() if kind.kind == "signed" else np.dtype(f"u{default_int().name}")
    return dtype


def _wide(x: Array) -> Array:
    """Narrow floats as float32, in which they are summed."""
    kind = element_type(x.dtype)
    return cast(x, np.dtype(np.float32)) if kind.kind == "float" and kind.bits < 32 else x


def _computed_in(x: Array, dtype: np.dtype[Any], widened: bool) -> Array:
    """The array of that element type, or of float32 for a narrow one that the user did not ask for."""
    kind = element_type(dtype)
    return cast(x, np.dtype(np.float32) if widened and kind.kind == "float" and kind.bits < 32 else dtype, False)


def _total(
    what: str,
    op: str,
    a: ArrayLike,
    axis: Axis,
    dtype: Any,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
    promote_integers: bool,
) -> Array:
    x = array_of(a, what)
    counts = promote_integers or x.dtype.kind == "b"
    wanted = python_dtype(dtype) if dtype is not None else _accumulated(x.dtype) if counts else x.dtype
    wide = _computed_in(x, wanted, dtype is None)
    identity = 0 if op == "add" else 1
    return cast(_fold(what, op, wide, axis, keepdims, initial, where, identity), wanted, False)


@boundary
def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """The sum of the elements over axes.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type of the sum; by default that of the elements, but of booleans the default integer, and of
            narrower integers an integer type as wide as that.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a number to which the elements are added.
        where: a mask of the elements to sum.
        promote_integers: whether narrow integers are summed in the wider type.

    Returns:
        An array without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.sum(jnp.ones((2, 3)), axis=1)
        Array([3., 3.], dtype=float32)
    """
    refuse_out("sum", out)
    return _total("sum", "add", a, axis, dtype, keepdims, initial, where, promote_integers)


@boundary
def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """The product of the elements over axes; arguments and element types as for `sum`.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.
        promote_integers: whether narrow integers are summed in the default integer type.

    Returns:
        An array without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.prod(jnp.array([2, 3, 4]))
        Array(24, dtype=int32)
    """
    refuse_out("prod", out)
    return _total("prod", "multiply", a, axis, dtype, keepdims, initial, where, promote_integers)


def _extremum(
    what: str, op: str, a: ArrayLike, axis: Axis, keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None
) -> Array:
    x = array_of(a, what)
    if where is not None and initial is None:
        raise ArgumentError(
            f"{what}: with `where`, everything may be masked out; give `initial`, the result for nothing."
        )
    axes = canonical_axes(what, axis, x.ndim)
    empty = [d for d in axes if x.shape[d] == 0]
    if empty and initial is None:
        raise ShapeError(f"{what}: axis {empty[0]} of shape {x.shape} is empty and has no {what}; give `initial`.")
    identity = reduction.identity_element(op, x.dtype)
    return _fold(what, op, x.with_weak_type(False), axis, keepdims, initial, where, identity)


@boundary
def max(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The largest element over axes; NaN if there is one.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.

    Returns:
        An array of the element type of `a`, without the axes (all, if None).

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements, and no `initial`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.amax(jnp.array([[1.0, 4.0], [3.0, 2.0]]), axis=1)
        Array([4., 3.], dtype=float32)
    """
    refuse_out("max", out)
    return _extremum("max", "maximum", a, axis, keepdims, initial, where)


@boundary
def min(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The smallest element over axes; NaN if there is one.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        initial: a further element.
        where: elements where it is false are left out.

    Returns:
        An array of the element type of `a`, without the axes (all, if None).

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements, and no `initial`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.amin(jnp.array([[1.0, 4.0], [3.0, 2.0]]), axis=1)
        Array([1., 2.], dtype=float32)
    """
    refuse_out("min", out)
    return _extremum("min", "minimum", a, axis, keepdims, initial, where)


amax, amin = max, min


@replayed
def ptp(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """The largest element minus the smallest, over axes (all, if None).

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        An array of the type of a without the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements.
        DTypeError: booleans.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ptp(jnp.array([3, 10, 5]))
        Array(7, dtype=int32)
    """
    refuse_out("ptp", out)
    canonical_axes("ptp", axis, array_of(a, "ptp").ndim)
    return arith.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


@boundary
def all(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Whether all elements over axes (all, if None) are true: not zero. So it is of no elements.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.

    Returns:
        An array of booleans without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.all(jnp.array([[True, False], [True, True]]), axis=1)
        Array([False,  True], dtype=bool)
    """
    refuse_out("all", out)
    return _fold("all", "and", arith.truth(a, "all").with_weak_type(False), axis, keepdims, None, where, True)


@boundary
def any(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Whether any element over axes (all, if None) is true: not zero. Of no elements it is false.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.

    Returns:
        An array of booleans without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.any(jnp.array([[True, False], [False, False]]), axis=1)
        Array([ True, False], dtype=bool)
    """
    refuse_out("any", out)
    return _fold("any", "or", arith.truth(a, "any").with_weak_type(False), axis, keepdims, None, where, False)


@boundary
def count_nonzero(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of elements over axes (all, if None) that are not zero, as the default integer.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        Integers without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.count_nonzero(jnp.array([0, 1, 2]))
        Array(2, dtype=int32)
    """
    nonzero = arith.truth(a, "count_nonzero")
    canonical_axes("count_nonzero", axis, nonzero.ndim)
    return sum(nonzero, axis, keepdims=keepdims)


@boundary
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether two arrays have the same shape and elements, as a boolean scalar; NaN equals NaN only with `equal_nan`.

    Args:
        a1, a2: arrays.
        equal_nan: whether NaN equals NaN.

    Returns:
        A boolean scalar.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.array_equal(jnp.array([1, 2]), jnp.array([1, 2]))
        Array(True, dtype=bool)
    """
    x, y = listed(a1, "array_equal"), listed(a2, "array_equal")
    if x.shape != y.shape:
        return constant(False, np.bool_)
    same = arith.equal(x, y)
    if equal_nan:
        same = arith.bitwise_or(same, arith.bitwise_and(arith.isnan(x), arith.isnan(y)))
    return all(same)


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether two arrays have the same elements once they are broadcast to one shape.

    Args:
        a1, a2: arrays.

    Returns:
        A boolean scalar.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.array_equiv(jnp.array([1, 2]), jnp.array([[1, 2], [1, 2]]))
        Array(True, dtype=bool)
    """
    x, y = listed(a1, "array_equiv"), listed(a2, "array_equiv")
    try:
        broadcast_shapes("array_equiv", x.shape, y.shape)
    except ShapeError:
        return constant(False, np.bool_)
    return all(arith.equal(x, y))


@replayed
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-5, atol: ArrayLike = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether all elements of two arrays are close, as a boolean scalar; see `isclose`.

    Args:
        a, b: arrays.
        rtol, atol: the relative and the absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    Returns:
        A boolean scalar.

    Raises:
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.000001]))
        Array(True, dtype=bool)
    """
    return all(arith.isclose(a, b, rtol, atol, equal_nan))


# --- means ------------------------------------------------------------------------------------------------------------


def _count(
    what: str, x: Array, axes: tuple[int, ...], keepdims: bool, where: ArrayLike | None, dtype: np.dtype[Any]
) -> int | Array:
    """How many elements go into each result; of that element type, if it depends on `where`."""
    if where is None:
        return math.prod(x.shape[d] for d in axes)
    return sum(mask_of(what, where, x.shape), axes, keepdims=keepdims, dtype=dtype)


def _mean_type(x: Array, dtype: Any) -> np.dtype[Any]:
    if dtype is not None:
        return python_dtype(dtype)
    return inexact((x.dtype, False))[0]


@replayed
def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """The arithmetic mean over axes (all, if None), of integers in floating point; NaN of no elements.

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
        >>> jnp.mean(jnp.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        Array([2., 3.], dtype=float32)
    """
    refuse_out("mean", out)
    x = array_of(a, "mean")
    axes = canonical_axes("mean", axis, x.ndim)
    wanted = _mean_type(x, dtype)
    wide = _computed_in(x, wanted, dtype is None)
    total = sum(wide, axes, dtype=wide.dtype, keepdims=keepdims, where=where)
    return cast(arith.true_divide(total, _count("mean", x, axes, keepdims, where, total.dtype)), wanted, False)


def _mean_over(x: Array, axes: tuple[int, ...], where: ArrayLike | None) -> Array:
    return mean(x, axes, keepdims=True, where=where)


@replayed
def var(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The mean of |x - mean(x)|^2 over axes, with `ddof` (or `correction`) taken from the number of elements.

    A `mean` that is known already, of a shape that broadcasts with the array's, is not computed again.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        ddof: what is subtracted from the number of elements in the divisor.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.
        mean: the mean, if it is known, with the axes kept.
        correction: another name of `ddof`.

    Returns:
        Real numbers without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.var(jnp.array([1.0, 3.0]))
        Array(1., dtype=float32)
    """
    refuse_out("var", out)
    x = array_of(a, "var")
    axes = canonical_axes("var", axis, x.ndim)
    wanted = _mean_type(x, dtype)
    if dtype is not None and x.dtype.kind == "c" and wanted.kind != "c":
        raise DTypeError(
            f"var: the variance of complex numbers cannot be computed in {wanted.name}; leave `dtype` out, the result "
            "is real."
        )
    if correction is not None and ddof != 0:
        raise ArgumentError(f"var: `correction` is another name of `ddof`; give one, not {correction} and {ddof}.")
    kind = wanted
    if element_type(x.dtype).is_inexact or not element_type(wanted).is_inexact:
        kind = join_types((wanted, False), (x.dtype, False))[0]
    wide = _wide(cast(x, kind, False))
    centre = _mean_over(wide, axes, where) if mean is None else _wide(array_of(mean, "var"))
    if not element_type(wanted).is_inexact:
        centre = cast(centre, wanted, False)
    centered = arith.subtract(wide, centre)
    squares = arith.square(centered)
    if centered.dtype.kind == "c":
        squares = arith.add(arith.square(arith.real(centered)), arith.square(arith.imag(centered)))
    taken = number_of("var", "ddof", ddof) if correction is None else number_of("var", "correction", correction)
    total = sum(squares, axes, keepdims=keepdims, where=where)
    count = _count("var", x, axes, keepdims, where, total.dtype)
    left = like(count, total) if isinstance(count, int) else count
    left = arith.subtract(left, taken)
    left = ops.select(arith.greater(left, 0), left, like(math.nan, left))  # no variance without degrees of freedom
    result = arith.true_divide(total, left)
    return cast(result, np.dtype(element_type(wanted).dtype.type(0).real.dtype) if dtype is None else wanted, False)


@replayed
def std(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The standard deviation, the square root of the variance; arguments as for `var`.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        dtype: the type to compute in, and of the result.
        out: must be None.
        ddof: what is subtracted from the number of elements in the divisor.
        keepdims: whether the result keeps these axes, with size 1.
        where: elements where it is false are left out.
        mean: the mean, if it is known, with the axes kept.
        correction: another name of `ddof`.

    Returns:
        Real numbers without the axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.std(jnp.array([1.0, 3.0]))
        Array(1., dtype=float32)
    """
    refuse_out("std", out)
    canonical_axes("std", axis, array_of(a, "std").ndim)
    total = var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    return cast(root_at_edges(total, 2), total.dtype, total.weak_type)


@boundary
def root_at_edges(total: Array, order: float) -> Array:
    """total ** (1 / order) of numbers that are not negative, constant at 0 and at infinity: a norm made of a sum of
    powers has there the gradient 0, one of the subgradients, in place of 0 times infinity."""
    zero, infinite = (arith.equal(total, edge) for edge in (0, math.inf))
    edge = arith.logical_or(zero, infinite)
    safe = ops.select(edge, like(1, total), total)
    root = sqrt(safe) if order == 2 else arith.power(safe, 1.0 / order)
    low, high = (0.0, math.inf) if order > 0 else (math.inf, 0.0)
    return ops.select(zero, like(low, root), ops.select(infinite, like(high, root), root))


@overload
def average(
    a: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: bool = False,
) -> tuple[Array, Array]: ...
@replayed
def average(
    a: ArrayLike, axis: Axis = None, weights: ArrayLike | None = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """The mean over axes, weighted if there are weights; with `returned` also the sum of the weights.

    Args:
        a: an array.
        axis: an axis, or several; all, if None.
        weights: an array of the shape of a, or a vector along the axis.
        returned: whether to return the sum of the weights, too.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        An array in floating point without the axes; with `returned` a pair.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: weights that fit neither the array nor the axes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.average(jnp.array([1.0, 5.0]), weights=jnp.array([3.0, 1.0]))
        Array(2., dtype=float32)
    """
    x = array_of(a, "average")
    axes = canonical_axes("average", axis, x.ndim)
    if weights is None:
        result = mean(x, axes, keepdims=keepdims)
        total: Any = like(math.prod(x.shape[d] for d in axes), result)
        return (result, total) if returned else result
    (x, w), _ = promoted("average", x, weights, to_inexact=True)
    w = weights_along("average", x, w, axis, axes)
    total = sum(w, axes, keepdims=keepdims)
    result = arith.true_divide(sum(arith.multiply(x, w), axes, keepdims=keepdims), total)
    return (result, total) if returned else result


def weights_along(what: str, x: Array, w: Array, axis: Axis, axes: tuple[int, ...]) -> Array:
    """Weights stretched to an array's shape; they have that shape, or those of its `axes` in the order of `axis`."""
    if w.shape == x.shape:
        return w
    order = [canonical_axis(d, x.ndim, what) for d in (axis if is_several(axis) else axes)]
    if axis is None or w.shape != tuple(x.shape[d] for d in order):
        raise ShapeError(
            f"{what}: weights of shape {w.shape} fit neither the array's shape {x.shape} nor the sizes of its axes "
            f"{axis}."
        )
    w = movement.transpose_to(w, inverse_permutation(tuple(order)))
    return movement.broadcast_in_dim(w, x.shape, axes)


# --- positions --------------------------------------------------------------------------------------------------------


def index_of_extremum(what: str, direction: str, a: ArrayLike, axis: int | None, keepdims: bool) -> Array:
    x = array_of(a, what)
    rank = x.ndim
    x, along = along_axis(what, x, axis)
    if x.shape[along] == 0:
        raise ShapeError(f"{what}: axis {along} of shape {x.shape} is empty, so no element is the largest or smallest.")
    if x.dtype.kind == "c":  # ordered by real parts, then by imaginary ones: the first that is the extremum, or NaN
        extreme = (max if direction == "GT" else min)(x, along, keepdims=True)
        x = arith.logical_or(arith.equal(x, extreme), arith.isnan(x))
        direction = "GT"
    index = default_int()
    if isinstance(x, ConcreteArray) and state.staging is None is context.programs:
        function = np.argmax if direction == "GT" else np.argmin
        result: Any = ConcreteArray(np.asarray(function(np.asarray(value_of(x)), along)).astype(index))
    else:
        if x.dtype.kind == "b":
            x = cast(x, np.dtype(np.int8))
        if is_symbolic(x.shape[along]):  # the place has no derivative, and that of the element would count
            x = _of_bits(x)
        positions = movement.iota(shape=Shape(element_type(index), x.shape), iota_dimension=along)
        kind = "maximum" if direction == "GT" else "minimum"
        start = constant(reduction.identity_element(kind, x.dtype), x.dtype)
        none = movement.full(x.shape[along], index)
        computation = reduction.argument_computation(direction, x.dtype, index)
        _, result = reduction.reduce(x, positions, start, none, dimensions=(along,), to_apply=computation)
    if not keepdims:
        return result
    if axis is None:
        return movement.reshape_to(result, (1,) * rank)
    return movement.reshape_to(result, (*x.shape[:along], 1, *x.shape[along + 1 :]))


def _of_bits(x: Any) -> Any:
    """The same values through integers of the same bits, which have no derivative."""
    kind = element_type(x.dtype)
    if kind.kind != "float":
        return x
    return bits.bitcast_convert(
        bits.bitcast_convert(x, new_element_type=element_type(f"u{kind.bits}")), new_element_type=kind
    )


@boundary
def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the largest element along an axis (of the flattened array if None).

    Of equal ones it is the first; NaN counts as the largest.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        Integers of the default type, without the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.argmax(jnp.array([3, 7, 5]))
        Array(1, dtype=int32)
    """
    refuse_out("argmax", out)
    return index_of_extremum("argmax", "GT", a, axis, keepdims)


@boundary
def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the smallest element along an axis (of the flattened array if None).

    Of equal ones it is the first; NaN counts as the smallest.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        out: must be None.
        keepdims: whether the result keeps these axes, with size 1.

    Returns:
        Integers of the default type, without the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: no elements.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.argmin(jnp.array([3, 7, 5]))
        Array(0, dtype=int32)
    """
    refuse_out("argmin", out)
    return index_of_extremum("argmin", "LT", a, axis, keepdims)


# --- cumulative -------------------------------------------------------------------------------------------------------


def _cumulative(what: str, op: str, a: ArrayLike, axis: int | None, dtype: Any) -> Array:
    x, along = along_axis(what, array_of(a, what), axis)
    wanted = python_dtype(dtype) if dtype is not None else default_int() if x.dtype.kind == "b" else x.dtype
    return cast(windows.cumulative_monoid(_wide(cast(x, wanted, False)), along, op), wanted)


@replayed
def cumsum(a: ArrayLike, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The cumulative sum along an axis (of the flattened array if None).

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        dtype: the type to compute in, and of the result.
        out: must be None.

    Returns:
        An array of the shape of `a` (flat, without an axis) and of its element type, or of `dtype`; of booleans, of the
        default integer type.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.cumsum(jnp.array([1, 2, 3, 4]))
        Array([ 1,  3,  6, 10], dtype=int32)
    """
    refuse_out("cumsum", out)
    return _cumulative("cumsum", "add", a, axis, dtype)


@replayed
def cumprod(a: ArrayLike, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The cumulative product along an axis (of the flattened array if None); element types as for `cumsum`.

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
        >>> jnp.cumprod(jnp.array([1, 2, 3, 4]))
        Array([ 1,  2,  6, 24], dtype=int32)
    """
    refuse_out("cumprod", out)
    return _cumulative("cumprod", "multiply", a, axis, dtype)


@replayed
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """The sums of the elements so far, as the array API standard has it: small integers are summed in the default
    integer type. `include_initial` puts a zero in front.

    Args:
        x: an array.
        axis: the axis.
        dtype: the type to compute in, and of the result.
        include_initial: whether the result begins with the neutral element.

    Returns:
        An array of the shape of x, or with one more element along the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ArgumentError: no axis, of an array with several.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.cumulative_sum(jnp.array([2, 3, 4]), include_initial=True)
        Array([0, 2, 5, 9], dtype=int32)
    """
    return _standard_cumulative("cumulative_sum", "add", x, axis, dtype, include_initial)


@replayed
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """The products so far, as the array API standard has it: those of small integers are of the default integer type.
    `include_initial` puts a one in front.

    Args:
        x: an array.
        axis: the axis.
        dtype: the type to compute in, and of the result.
        include_initial: whether the result begins with the neutral element.

    Returns:
        An array of the shape of x, or with one more element along the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ArgumentError: no axis, of an array with several.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.cumulative_prod(jnp.array([2, 3, 4]), include_initial=True)
        Array([ 1,  2,  6, 24], dtype=int32)
    """
    return _standard_cumulative("cumulative_prod", "multiply", x, axis, dtype, include_initial)


def _standard_cumulative(
    what: str, op: str, a: ArrayLike, axis: int | None, dtype: Any, include_initial: bool
) -> Array:
    x = array_of(a, what)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"{what}: an array of {x.ndim} dimensions needs `axis`.")
    along = 0 if axis is None else canonical_axis(axis, x.ndim, what)
    found = _cumulative(what, op, x, along, _accumulated(x.dtype) if dtype is None else dtype)
    if not include_initial:
        return found
    config = tuple((1 if d == along else 0, 0, 0) for d in range(x.ndim))
    return movement.pad(found, constant(0 if op == "add" else 1, found.dtype), padding_config=config)
