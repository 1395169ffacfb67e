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
    count_of,
    inexact_array,
    listed,
    of_rank,
    promoted,
    value_of,
    vector_of,
)
from tinyxla.numpy.calculus import convolve, vander
from tinyxla.numpy.creation import ones, zeros
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import sqrt
from tinyxla.numpy.indexing.take_where import where
from tinyxla.numpy.manipulation import concatenate, diag
from tinyxla.numpy.reductions import sum
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary


def _coefficients(given: ArrayLike, what: str) -> Any:
    return inexact_array(listed(given, what), what)


@boundary
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with these roots, or with those of the characteristic polynomial of a matrix.

    Args:
        seq_of_zeros: a vector of roots, or a square matrix.

    Returns:
        A vector of coefficients, the first of which is 1.

    Raises:
        ShapeError: what is neither a vector nor a square matrix.

    >>> import numpy as np
    >>> from tinyxla.numpy import poly
    >>> poly(np.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    roots_ = _coefficients(seq_of_zeros, "poly")
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
