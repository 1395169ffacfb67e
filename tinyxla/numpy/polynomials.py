"""Polynomials and their roots; coefficients stand with the highest power first."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ShapeError
from tinyxla.numpy import linalg
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    check_memory,
    count_of,
    inexact_array,
    like,
    listed,
    of_rank,
    operand,
    promoted,
    value_of,
    vector_of,
)
from tinyxla.numpy.calculus import convolve
from tinyxla.numpy.creation import ones, zeros
from tinyxla.numpy.diagonals import diag
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import sqrt
from tinyxla.numpy.indexing.take_where import where
from tinyxla.numpy.joining import concatenate, stack
from tinyxla.numpy.manipulation import atleast_1d
from tinyxla.numpy.operations import movement
from tinyxla.numpy.reductions import sum
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary


def _coefficients(given: ArrayLike, what: str) -> Any:
    return inexact_array(listed(given, what), what)


@boundary
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with these roots, or with those of the characteristic polynomial of a matrix.

    Args:
        seq_of_zeros: a vector of roots, one root, or a square matrix.

    Returns:
        A vector of coefficients, the first of which is 1.

    Raises:
        ShapeError: an array of more axes that is no square matrix.

    >>> import numpy as np
    >>> from tinyxla.numpy import poly
    >>> poly(np.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    roots_ = atleast_1d(_coefficients(seq_of_zeros, "poly"))
    if roots_.ndim == 2 and roots_.shape[0] == roots_.shape[1]:
        roots_ = linalg.eigvals(roots_)
    if not roots_.size:
        return ones((), roots_.dtype)  # a number of no roots, as NumPy
    if roots_.ndim != 1:
        raise ShapeError(f"poly: takes a vector of roots or a square matrix, but got the shape {roots_.shape}.")
    found = ones(1, roots_.dtype)
    for k in range(roots_.shape[0]):
        found = convolve(found, concatenate([ones(1, roots_.dtype), arith.negative(roots_[k : k + 1])]))
        found = found.at[0].set(1)  # also beside a root that is infinite, which a convolution multiplies by zeros
    return found


@boundary
def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial: the eigenvalues of its companion matrix.

    Args:
        p: the coefficients.
        strip_zeros: leave out leading and trailing zeros, which takes known values; with False (inside `jit`) the first
            coefficient must not be zero.

    Returns:
        A vector of complex numbers.

    Raises:
        ShapeError: what is no vector.
        ConcretizationError: a traced array, with `strip_zeros`.

    >>> import numpy as np
    >>> from tinyxla.numpy import roots
    >>> roots(np.array([1.0, -3.0, 2.0])).shape
    (2,)
    """
    x = _coefficients(p, "roots")
    if x.ndim != 1:
        raise ShapeError(f"roots: the coefficients must be a vector, but have the shape {x.shape}.")
    at_zero = 0
    if strip_zeros:
        places = np.flatnonzero(value_of(x.primal("roots with strip_zeros=True")))
        if not places.size:
            return zeros(0, np.result_type(x.dtype, np.complex64))
        at_zero = x.shape[0] - 1 - int(places[-1])
        x = x[int(places[0]) : int(places[-1]) + 1]
    if x.shape[0] < 2:
        return zeros(at_zero, np.result_type(x.dtype, np.complex64))
    companion = diag(ones(x.shape[0] - 2, x.dtype), -1).at[0].set(arith.true_divide(arith.negative(x[1:]), x[0]))
    found = linalg.eigvals(companion)
    return concatenate([found, zeros(at_zero, found.dtype)]) if at_zero else found


@replayed
def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Quotient and remainder of two polynomials; `trim_leading_zeros` of the remainder takes known values.

    Args:
        u, v: vectors of coefficients.
        trim_leading_zeros: whether leading zeros of the remainder are removed.

    Returns:
        The coefficients of the quotient and of the remainder.

    Raises:
        ShapeError: what is no vector.

    >>> import numpy as np
    >>> from tinyxla.numpy import polydiv
    >>> polydiv(np.array([1.0, -3.0, 2.0]), np.array([1.0, -1.0]))[0]
    Array([ 1., -2.], dtype=float32)
    """
    (rest, divisor), _ = promoted("polydiv", u, v, to_inexact=True)
    m, n = vector_of("polydiv", "u", rest).shape[0] - 1, vector_of("polydiv", "v", divisor).shape[0] - 1
    if n < 0:
        raise ShapeError("polydiv: v must have a coefficient, but is empty.")
    scale = arith.true_divide(1.0, divisor[0])
    quotient: Any = zeros(max(m - n + 1, 1), rest.dtype)
    left: Any = rest
    for k in range(m - n + 1):
        factor = arith.multiply(scale, left[k])
        quotient = quotient.at[k].set(factor)
        left = left.at[k : k + n + 1].add(arith.multiply(arith.negative(factor), divisor))
    if trim_leading_zeros:
        values = np.abs(value_of(left.primal("polydiv with trim_leading_zeros=True")))
        limit = 1e-5 * values[np.isfinite(values)].max(initial=0.0)
        large = np.flatnonzero(~(values <= limit))  # NaN is not small
        left = left[int(large[0]) if large.size else values.size - 1 :]
    return quotient, left


@boundary
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """The polynomial of that degree that is nearest to points in the sense of least squares.

    Args:
        x: the places, a vector.
        y: the values: a vector, or a matrix with a column for each polynomial.
        deg: the degree.
        rcond: singular values that are smaller, relative to the largest, count as zero.
        full: also give residuals, rank, singular values and rcond.
        w: weights, by which the distances are multiplied.
        cov: also give the covariance of the coefficients, scaled by the residuals unless it is "unscaled".

    Returns:
        The coefficients; with `full` or `cov` a tuple that begins with them.

    Raises:
        ShapeError: arrays of different lengths, or a negative degree.

    >>> import numpy as np
    >>> from tinyxla.numpy import polyfit
    >>> [f"{x:.3f}" for x in polyfit(np.arange(3.0), np.arange(3.0) * 2 + 1, 1)]
    ['2.000', '1.000']
    """
    (places, values), _ = promoted("polyfit", x, y, to_inexact=True)
    if places.ndim != 1 or values.ndim not in (1, 2) or values.shape[0] != places.shape[0]:
        raise ShapeError(
            f"polyfit: x must be a vector and y have as many rows, but they have the shapes {places.shape} and "
            f"{values.shape}."
        )
    limit = places.shape[0] * float(ml_dtypes.finfo(places.dtype).eps) if rcond is None else rcond
    deg = count_of("polyfit", "deg", deg)
    left: Any = vander(places, deg + 1)
    right: Any = values
    if w is not None:
        weights = inexact_array(w, "polyfit")
        left = arith.multiply(left, weights[:, None])
        right = arith.multiply(right, weights[:, None] if right.ndim == 2 else weights)
    scale = sqrt(sum(arith.multiply(left, left), 0))
    scale = where(arith.equal(scale, 0), 1.0, scale)
    scaled = arith.true_divide(left, scale[None, :])
    found, residuals, rank, singular = linalg.lstsq(scaled, right, limit)
    by_column = scale[:, None] if found.ndim == 2 else scale
    found = arith.true_divide(found, by_column)
    if full:
        return found, residuals, rank, singular, limit
    if not cov:
        return found
    base = linalg.inv(linalg.matmul(scaled.T, scaled))
    base = arith.true_divide(base, arith.multiply(scale[:, None], scale[None, :]))
    if values.ndim == 2:
        base = base[..., None]
    if cov == "unscaled":
        return found, base
    return found, arith.multiply(base, of_rank(arith.true_divide(residuals, places.shape[0] - deg - 1), base.ndim))


__all__ = ["poly", "polydiv", "polyfit", "roots"]


@replayed
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The value at x of the polynomial with these coefficients, highest power first, by Horner's rule. Further
    dimensions of p, which broadcast with those of x, are those of several polynomials.

    Args:
        p: coefficients along the first axis.
        x: an array.
        unroll: the number of steps of the loop that are unrolled.

    Returns:
        An array of the shape of x, broadcast with the further dimensions of p.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.polyval(jnp.array([1, 2, 3]), 2)
        Array(11, dtype=int32)
    """
    (coefficients, at), _ = promoted("polyval", array_of(p, "polyval"), x)
    if not coefficients.ndim:
        raise ShapeError("polyval: p is a vector of coefficients, or several in columns, but got a number.")
    shape = broadcast_shapes("polyval", coefficients.shape[1:], at.shape)
    at = broadcast_to_shape("polyval", at, shape)
    if coefficients.ndim > 1:
        columns = (*coefficients.shape[:1], *(1,) * (len(shape) + 1 - coefficients.ndim), *coefficients.shape[1:])
        coefficients = broadcast_to_shape("polyval", movement.reshape_to(coefficients, columns), (columns[0], *shape))
    result: Any = like(0, at)
    for k in range(coefficients.shape[0]):
        result = arith.add(arith.multiply(result, at), coefficients[k])
    return result


@replayed
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """The powers of a vector as columns, highest first unless `increasing`.

    Args:
        x: a vector.
        N: the number of columns; that of elements by default.
        increasing: whether powers increase.

    Returns:
        A matrix of a row for each element.

    Raises:
        ShapeError: what is no vector.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.vander(jnp.array([2, 3]), 3)
        Array([[4, 2, 1],
               [9, 3, 1]], dtype=int32)
    """
    values = array_of(x, "vander")
    if values.ndim != 1:
        raise ShapeError(f"vander: takes a vector, but got shape {values.shape}.")
    count = values.shape[0] if N is None else count_of("vander", "N", N)
    check_memory("vander", (values.shape[0], count))
    columns = [arith.power(values, k) for k in range(count)]
    if not columns:
        return zeros((values.shape[0], 0), values.dtype)
    return stack(columns if increasing else columns[::-1], 1)


@replayed
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of polynomials given by their coefficients, highest power first.

    Args:
        a1, a2: vectors of coefficients, or arrays with coefficients along the first axis.

    Returns:
        A vector of coefficients, or an array with coefficients along the first axis.

    Raises:
        ShapeError: numbers, or further axes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([1, 0, 0]))
        Array([1, 1, 2], dtype=int32)
    """
    return _polynomial_sum("polyadd", a1, a2)


@replayed
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of polynomials given by their coefficients, highest power first.

    Args:
        a1, a2: vectors of coefficients, or arrays with coefficients along the first axis.

    Returns:
        A vector of coefficients, or an array with coefficients along the first axis.

    Raises:
        ShapeError: numbers, or further axes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.polysub(jnp.array([1, 2]), jnp.array([1, 0]))
        Array([0, 2], dtype=int32)
    """
    return _polynomial_sum("polysub", a1, arith.negative(array_of(a2, "polysub")))


@replayed
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of polynomials given by their coefficients, highest power first.

    With `trim_leading_zeros`, leading coefficients that are zero are left out before, so that their values must be
    known: then the result has NumPy's shape.

    Args:
        a1, a2: vectors of coefficients.
        trim_leading_zeros: whether leading zeros are removed.

    Returns:
        A vector of coefficients.

    Raises:
        ShapeError: what is no vector.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.polymul(jnp.array([1, 1]), jnp.array([1, -1]))
        Array([ 1.,  0., -1.], dtype=float32)
    """
    if trim_leading_zeros:
        a1, a2 = (_without_leading_zeros(a) for a in (a1, a2))
    return convolve(a1, a2)


def _without_leading_zeros(a: ArrayLike) -> Array:
    x = vector_of("polymul", "a coefficient vector", atleast_1d(array_of(a, "polymul")))
    places = np.flatnonzero(x.primal("polymul with trim_leading_zeros").buffer())
    return x[int(places[0]) :] if places.size else x[-1:]


def _polynomial_sum(what: str, a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of coefficients along the first axis, aligned at the end; further axes broadcast, as in JAX."""
    (x, y), _ = promoted(what, array_of(a1, what), array_of(a2, what))
    if min(x.ndim, y.ndim) >= 1 and max(x.ndim, y.ndim) > 1:
        if x.shape[0] == y.shape[0]:
            return arith.add(x, y)
        longer, shorter = (x, y) if x.shape[0] > y.shape[0] else (y, x)
        return longer.at[longer.shape[0] - shorter.shape[0] :].add(shorter)
    length = max(vector_of(what, "a1", x).shape[0], vector_of(what, "a2", y).shape[0])
    return arith.add(*(_with_leading_zeros(v, length) for v in (x, y)))


def _with_leading_zeros(x: Any, length: int) -> Any:
    return movement.pad(x, movement.full(0, x.dtype), padding_config=((length - x.shape[0], 0, 0),))


def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The m-th derivative of a polynomial given by its coefficients, highest power first.

    Args:
        p: a vector of coefficients.
        m: the order of the derivative.

    Returns:
        A vector of m coefficients fewer.

    Raises:
        ShapeError: a negative order.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0]))
        Array([2., 2.], dtype=float32)
    """
    x = vector_of("polyder", "p", inexact_array(p, "polyder"))
    for _ in range(min(count_of("polyder", "m", m), x.shape[0])):
        powers = np.arange(x.shape[0] - 1, 0, -1)
        x = arith.multiply(movement.slice_axis(x, 0, 0, x.shape[0] - 1), cast(operand(powers, "polyder"), x.dtype))
    return x


@replayed
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """The m-th antiderivative of a polynomial, with the constants k (zero if not given).

    Args:
        p: a vector of coefficients.
        m: the order of the antiderivative.
        k: the constants of integration, a number or m of them.

    Returns:
        A vector of m coefficients more.

    Raises:
        ShapeError: a negative order.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.polyint(jnp.array([2.0, 2.0]))
        Array([1., 2., 0.], dtype=float32)
    """
    x = vector_of("polyint", "p", inexact_array(array_of(p, "polyint"), "polyint").with_weak_type(False))
    order = count_of("polyint", "m", m)
    check_memory("polyint", (x.shape[0] + order,))
    constants = broadcast_to_shape("polyint", listed(0 if k is None else k, "polyint"), (order,))
    for d in range(order):
        powers = cast(operand(np.arange(x.shape[0], 0, -1), "polyint"), x.dtype)
        x = concatenate([arith.true_divide(x, powers), cast(movement.slice_axis(constants, 0, d, d + 1), x.dtype)])
    return x
