"""Numerical calculus: differences, integrals, gradients, convolutions; covariances."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, DTypeError, NumberRangeError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    array_of,
    broadcast_to_shape,
    canonical_axes,
    cast,
    choice_of,
    constant,
    count_of,
    default_inexact_array,
    like,
    named_dtype,
    of_rank,
    operand,
    preferred_type,
    promoted,
    python_dtype,
    shown,
)
from tinyxla.numpy.contractions import dot
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import sqrt
from tinyxla.numpy.indexing.take_where import where
from tinyxla.numpy.joining import concatenate
from tinyxla.numpy.manipulation import atleast_2d, expand_dims, flip, ravel
from tinyxla.numpy.operations import convolution, movement, ops
from tinyxla.numpy.reductions import cumsum, mean, sum
from tinyxla.ops.products.precision import PrecisionLike, operand_precision
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import max_dim
from tinyxla.shapes.window import WindowDimension
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import join_types


@replayed
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """The differences of neighbours along an axis, taken n times.

    Args:
        a: an array.
        n: how often differences are taken.
        axis: the axis; negative ones count from the end.
        prepend, append: values before and after the array along the axis.

    Returns:
        An array with n elements fewer along the axis.

    Raises:
        ShapeError: a negative n.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.diff(jnp.array([1, 4, 9]))
        Array([3, 5], dtype=int32)
    """
    x = array_of(a, "diff")
    times = count_of("diff", "n", n)
    along = canonical_axis(axis, x.ndim, "diff")
    if not times:
        return x
    edge = (*x.shape[:along], 1, *x.shape[along + 1 :])
    ends = [None if end is None else array_of(end, "diff") for end in (prepend, append)]
    ends = [broadcast_to_shape("diff", e, edge) if e is not None and e.ndim == 0 else e for e in ends]
    parts = [p for p in (ends[0], x, ends[1]) if p is not None]
    x = concatenate(parts, along)
    for _ in range(min(times, x.shape[along])):
        length = x.shape[along]
        later = movement.slice_axis(x, along, min(1, length), length)
        earlier = movement.slice_axis(x, along, 0, max(length - 1, 0))
        x = ops.ne(later, earlier) if x.dtype.kind == "b" else ops.sub(later, earlier)
    return x


@replayed
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """The differences of neighbours of the flattened array, with elements before and after.

    Args:
        ary: an array.
        to_end, to_begin: values after and before the differences.

    Returns:
        A vector.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_end=0)
        Array([3, 5, 0], dtype=int32)
    """
    found = diff(ravel(ary))
    parts = [
        part if part is found else ravel(cast(operand(part, "ediff1d"), found.dtype))
        for part in (to_begin, found, to_end)
        if part is not None
    ]
    return concatenate(parts)


@replayed
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """The integral along an axis by the trapezoidal rule, of values at places x or dx apart.

    Args:
        y: values.
        x: their places; `dx` apart if None.
        dx: the distance of places.
        axis: the axis; negative ones count from the end.

    Returns:
        An array without the axis.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.trapezoid(jnp.array([0.0, 1.0, 4.0]))
        Array(3., dtype=float32)
    """
    given = (y,) if x is None else (y, x)
    values, *places = promoted("trapezoid", *(array_of(v, "trapezoid") for v in given), to_inexact=True)[0]
    along = canonical_axis(axis, values.ndim, "trapezoid")
    length = values.shape[along]
    middle = arith.add(_part(values, along, 1, length), _part(values, along, 0, length - 1))
    widths: Any = operand(dx, "trapezoid") if x is None else None
    for at in places:
        if not at.ndim:
            raise ShapeError(f"trapezoid: x must be the places of y's elements, but got the number {shown(x)}; see dx.")
        if at.ndim == 1:
            at, axis = movement.reshape_to(at, (at.shape[0], *(1,) * (values.ndim - along - 1))), 0
        axis = canonical_axis(axis, at.ndim, "trapezoid: x")
        n = at.shape[axis]
        widths = arith.subtract(_part(at, axis, 1, n), _part(at, axis, 0, n - 1))
    if getattr(widths, "ndim", 0):
        widths = of_rank(widths, values.ndim)
    return arith.multiply(sum(arith.multiply(middle, widths), along), 0.5)


def _part(x: Any, axis: int, start: int, limit: int) -> Any:
    return movement.slice_axis(x, axis, start, max(start, limit))


@replayed
def gradient(f: ArrayLike, *varargs: ArrayLike, axis: Axis = None, edge_order: int | None = None) -> Any:
    """Central differences inside and one-sided ones at the ends, along each axis; `varargs` are the steps.

    Args:
        f: an array of values on a grid.
        *varargs: the distance of points, or their coordinates, for each axis or one for all; 1 by default.
        axis: an axis, or several; all by default.
        edge_order: 1; differences at the ends are of the first order.

    Returns:
        An array of the shape of f, or a list of one for each axis.

    Raises:
        ShapeError: fewer than two elements along an axis.
        AxisError: an axis that the array does not have.
        ArgumentError: distances that do not fit the axes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0, 16.0]))
        Array([3., 4., 6., 7.], dtype=float32)
    """
    (x, *steps), (_, weak) = promoted("gradient", array_of(f, "gradient"), *varargs, to_inexact=True)
    axes = canonical_axes("gradient", axis, x.ndim)
    if edge_order not in (None, 1):
        raise ArgumentError(f"gradient: edge_order is 1, but got {edge_order}.")
    if len(varargs) not in (0, 1, len(axes)):
        raise ArgumentError(f"gradient: {len(varargs)} steps do not fit {len(axes)} axes.")
    each = steps * len(axes) if len(steps) == 1 else steps or [constant(1, x.dtype)] * len(axes)
    found = [_along(x, d, step).with_weak_type(weak) for d, step in zip(axes, each, strict=True)]
    return found[0] if len(found) == 1 and (x.ndim == 1 or axis is not None) else found


def _along(x: Any, d: int, step: Any) -> Any:
    n = x.shape[d]
    if n < 2:
        raise ShapeError(f"gradient: axis {d} of shape {x.shape} has {n} elements; at least 2 are needed.")
    if step.ndim == 1:
        return _unequal(x, d, step)
    ahead = arith.subtract(_part(x, d, 1, 2), _part(x, d, 0, 1))
    behind = arith.subtract(_part(x, d, n - 1, n), _part(x, d, n - 2, n - 1))
    inside = arith.multiply(arith.subtract(_part(x, d, 2, n), _part(x, d, 0, n - 2)), 0.5)
    return arith.true_divide(concatenate([ahead, inside, behind], d), step)


def _unequal(x: Any, d: int, places: Any) -> Any:
    """For unequal steps: the difference quotient of each side, weighted by the step of the other, of second order."""
    n = x.shape[d]
    if places.shape != (n,):
        raise ShapeError(f"gradient: places of shape {places.shape} do not fit axis {d} of shape {x.shape}.")
    steps = arith.subtract(_part(places, 0, 1, n), _part(places, 0, 0, n - 1))
    steps = movement.reshape_to(steps, tuple(n - 1 if k == d else 1 for k in range(x.ndim)))
    slopes = arith.true_divide(arith.subtract(_part(x, d, 1, n), _part(x, d, 0, n - 1)), steps)
    before, after = _part(steps, d, 0, n - 2), _part(steps, d, 1, n - 1)
    mixed = arith.add(
        arith.multiply(_part(slopes, d, 0, n - 2), after), arith.multiply(_part(slopes, d, 1, n - 1), before)
    )
    inside = arith.true_divide(mixed, arith.add(before, after))
    return concatenate([_part(slopes, d, 0, 1), inside, _part(slopes, d, n - 2, n - 1)], d)


@replayed
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: Any = None,
) -> Array:
    """The covariance matrix of variables in rows (columns if not `rowvar`), weighted if there are weights; computed in
    `dtype` if that is given.

    Args:
        m: a vector, or a matrix of variables and their observations.
        y: further variables, of the same form.
        rowvar: whether variables are in rows.
        bias: whether to divide by the number of observations n, instead of n - 1.
        ddof: what is subtracted from n in the divisor; it overrides `bias`.
        fweights: integers, how often each observation counts.
        aweights: weights of observations.
        dtype: the element type of the result.

    Returns:
        A matrix with a row and a column for each variable; a scalar for one.

    Raises:
        ShapeError: an array of more than two dimensions.
        DTypeError: `fweights` that are no integers.
        ArgumentError: a `ddof` that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.cov(jnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    given_arrays = [array_of(v, "cov") for v in (m, y) if v is not None]
    if dtype is not None:
        given_arrays = [cast(v, _inexact_type("cov", dtype), False) for v in given_arrays]
    counts = None if fweights is None else Shape.of(array_of(fweights, "cov"))
    if counts is not None and not counts.element_type.is_integer:
        raise DTypeError(f"cov: fweights are integers, but got {counts}; other weights are aweights.")
    weighting = [arith.real(array_of(w, "cov")) for w in (fweights, aweights) if w is not None]
    floats = promoted("cov", *given_arrays, to_inexact=True)[0]
    x, *others = promoted("cov", *floats, *weighting)[0][: len(floats)]
    if x.ndim > 2:
        raise ShapeError(f"cov: takes a matrix of observations, but got shape {x.shape}.")
    rows = atleast_2d(x)
    if not rowvar and x.ndim == 2:
        rows = rows.T
    for other in map(atleast_2d, others):
        rows = concatenate([rows, other if rowvar or other.shape[0] == 1 else other.T], 0)
    taken: Any = (0 if bias else 1) if ddof is None else ddof
    if isinstance(taken, float | np.floating) and taken != int(taken):
        raise ArgumentError(f"cov: ddof is an integer, but got {taken}.")
    weights: Any = None
    for given in (fweights, aweights):
        if given is not None:
            w = cast(operand(given, "cov"), np.dtype(rows.real.dtype))
            w = of_rank(w, 2)
            weights = w if weights is None else arith.multiply(weights, w)
    if weights is None:
        centered = arith.subtract(rows, mean(rows, 1, keepdims=True))
        total: Any = rows.shape[1]
        scaled = centered
        divisor: Any = max_dim(total - taken, 0)
    else:
        total = sum(weights)
        center = arith.true_divide(sum(arith.multiply(rows, weights), 1, keepdims=True), total)
        centered = arith.subtract(rows, center)
        scaled = arith.multiply(centered, weights)
        extra = (
            1.0
            if aweights is None
            else arith.true_divide(
                sum(arith.multiply(weights, of_rank(cast(operand(aweights, "cov"), weights.dtype), 2))), total
            )
        )
        divisor = arith.maximum(arith.subtract(total, arith.multiply(taken, extra)), 0)
    product = dot(centered, arith.conjugate(scaled).T)
    found = arith.true_divide(product, divisor)
    return movement.reshape_to(found, ()) if found.shape == (1, 1) else found


def _inexact_type(what: str, dtype: Any) -> np.dtype[Any]:
    kind = element_type(python_dtype(dtype))
    if not kind.is_inexact:
        raise NumberRangeError(f"{what}: dtype must be floating-point or complex, but got {kind}.")
    return kind.dtype


@replayed
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: Any = None) -> Array:
    """The matrix of correlation coefficients of variables in rows (columns if not `rowvar`); computed in `dtype` if
    that is given.

    Args:
        x, y: variables and their observations, as for `cov`.
        rowvar: whether variables are in rows.
        dtype: the element type of the result.

    Returns:
        A matrix with a row and a column for each variable.

    Raises:
        ShapeError: an array of more than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.corrcoef(jnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    c = cov(x, y, rowvar, dtype=None if dtype is None else _inexact_type("corrcoef", dtype))
    if c.ndim == 0:
        return arith.true_divide(c, c)
    deviation = cast(sqrt(arith.real(c.diagonal())), c.dtype)
    return arith.true_divide(arith.true_divide(c, expand_dims(deviation, 1)), expand_dims(deviation, 0))


@replayed
def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * np.pi) -> Array:
    """Angles along an axis without jumps of more than half a period. Integers with an integer period stay integers.

    Args:
        p: angles.
        discont: the smallest jump that is removed; half a period by default.
        axis: the axis; negative ones count from the end.
        period: the period, 2 pi by default.

    Returns:
        An array of the shape of p.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unwrap(jnp.array([0.0, 350.0]), period=360)
        Array([  0., -10.], dtype=float32)
    """
    x, along_period = array_of(p, "unwrap"), array_of(period, "unwrap")
    if x.dtype.kind in "iu" and along_period.dtype.kind in "iu":
        (x, along_period), _ = promoted("unwrap", x, along_period)
        return _unwrap(x, discont, axis, along_period, arith.floor_divide(along_period, 2))
    return _unwrap(default_inexact_array(p, "unwrap"), discont, axis, period, arith.true_divide(period, 2))


def _unwrap(x: Array, discont: ArrayLike | None, axis: int, period: ArrayLike, half: Array) -> Array:
    """`unwrap` in the type of x; `half` is half the period, rounded down among integers."""
    along = canonical_axis(axis, x.ndim, "unwrap")
    if not x.shape[along]:
        return cast(x, named_dtype(x.dtype))
    steps = diff(x, axis=along)
    limit = arith.true_divide(period, 2) if discont is None else discont
    shifted = arith.subtract(arith.remainder(arith.add(steps, half), period), half)
    is_ambiguous = arith.equal(arith.multiply(half, 2), period)  # both ends of the interval are as near
    at_edge = arith.logical_and(arith.equal(shifted, arith.negative(half)), arith.greater(steps, 0))
    at_edge = arith.logical_and(at_edge, is_ambiguous)
    shifted = where(at_edge, half, shifted)
    correction = where(arith.less(arith.absolute(steps), limit), like(0, steps), arith.subtract(shifted, steps))
    later = arith.add(_part(x, along, 1, x.shape[along]), cumsum(correction, along))
    return cast(concatenate([_part(x, along, 0, 1), later], along), named_dtype(x.dtype))


# --- products of sequences --------------------------------------------------------------------------------------------


@replayed
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """The discrete convolution of two vectors.

    `mode` is `full`, `same` (as long as the longer one) or `valid` (where they overlap completely). Products are summed
    in the `preferred_element_type`, which the result has.

    Args:
        a, v: vectors.
        mode: "full", "same" or "valid".
        precision: as for `lax.conv_general_dilated`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        A vector: of n + m - 1, max(n, m) or max(n, m) - min(n, m) + 1 elements, by the mode.

    Raises:
        ShapeError: what are no vectors, or an empty one.
        ArgumentError: a mode that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 1]))
        Array([1., 3., 5., 3.], dtype=float32)
    """
    (x, y), (_, weak) = promoted("convolve", array_of(a, "convolve"), array_of(v, "convolve"), to_inexact=True)
    return _of_preferred(
        _correlated("convolve", x, flip(y), mode, precision, preferred_element_type), weak, preferred_element_type
    )


def _of_preferred(found: Any, weak: bool, preferred: Any) -> Any:
    return found.with_weak_type(weak and preferred is None)


@replayed
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """The cross-correlation of two vectors, the second conjugated; options as for `convolve`.

    Args:
        a, v: vectors.
        mode: "full", "same" or "valid".
        precision: as for `lax.conv_general_dilated`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        A vector, of the lengths of `convolve`.

    Raises:
        ShapeError: what are no vectors, or an empty one.
        ArgumentError: a mode that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.correlate(jnp.array([1, 2, 3]), jnp.array([1, 1]))
        Array([3., 5.], dtype=float32)
    """
    (x, y), (_, weak) = promoted("correlate", array_of(a, "correlate"), array_of(v, "correlate"), to_inexact=True)
    y = arith.conjugate(y)
    if x.ndim == y.ndim == 1 and x.shape[0] < y.shape[0]:  # the longer one is slid over, and the result reversed
        found = flip(_correlated("correlate", y, x, mode, precision, preferred_element_type))
    else:
        found = _correlated("correlate", x, y, mode, precision, preferred_element_type)
    return _of_preferred(found, weak, preferred_element_type)


def _correlated(what: str, x: Any, y: Any, mode: str, precision: PrecisionLike, preferred: Any) -> Any:
    if x.ndim != 1 or y.ndim != 1 or not x.shape[0] or not y.shape[0]:
        raise ShapeError(f"{what}: takes vectors that are not empty, but got shapes {x.shape} and {y.shape}.")
    if x.shape[0] < y.shape[0]:
        x, y = flip(y), flip(x)
    wanted = preferred_type(preferred)
    if wanted is None:
        return slid(what, x, y, mode, precision)
    wide = join_types((wanted.dtype, False), (x.dtype, False))[0]
    return cast(slid(what, cast(x, wide), cast(y, wide), mode, precision), wanted.dtype, False)


def slid(what: str, x: Any, y: Any, mode: str, precision: PrecisionLike = None) -> Any:
    """Sums of the products of x and a y that slides over it along every dimension; of the shifts, those of a `mode` of
    `scipy.signal`: all ("full"), as many as x has elements ("same"), or those where y is inside x ("valid")."""
    choice_of(what, "mode", mode, ("full", "same", "valid"))
    window: list[WindowDimension] = []
    for k in y.shape:
        before, after = {"full": (k - 1, k - 1), "same": (k // 2, (k - 1) // 2), "valid": (0, 0)}[mode]
        window.append(WindowDimension(k, 1, before, after))
    places = tuple(range(x.ndim + 2))
    labels = convolution.ConvDimensionNumbers(places, places, places)
    found = convolution.convolution(
        movement.reshape_to(x, (1, 1, *x.shape)),
        movement.reshape_to(y, (1, 1, *y.shape)),
        window=tuple(window),
        dim_labels=labels,
        operand_precision=operand_precision(what, precision),
    )
    return movement.reshape_to(found, found.shape[2:])
