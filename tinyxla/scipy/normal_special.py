"""The distribution function of the normal distribution, and its inverse."""

from __future__ import annotations

import math

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import replayed
from tinyxla.lax import special as lax_special
from tinyxla.numpy.arguments import ArrayLike, inexact_array
from tinyxla.numpy.elementwise.definitions import constant_beyond, with_slope
from tinyxla.ops import elementwise
from tinyxla.tracing.array import Array


@replayed
def ndtr(x: ArrayLike) -> Array:
    """The normal distribution function: the probability that a normal number is below x.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import ndtr
    >>> abs(round(float(ndtr(0.0)), 4))
    0.5
    """
    return _probability_below(inexact_array(x, "scipy.special.ndtr")).with_weak_type(False)


def _normal_distribution(x: Array) -> Array:
    scaled = x / math.sqrt(2)
    near = tnp.clip(scaled, -0.5, 0.5)  # erfc, of which e^(-x^2) is a factor, is less accurate there than erf
    return tnp.where(scaled == near, 0.5 + 0.5 * elementwise.erf(near), 0.5 * lax_special.erfc(-scaled))


def _normal_density(x: Array) -> Array:
    scaled = constant_beyond(x / math.sqrt(2), 40.0)
    return tnp.exp(-scaled * scaled) / math.sqrt(2 * math.pi)


_probability_below = with_slope("ndtr", _normal_distribution, lambda ans, x: _normal_density(x))


# M. J. Wichura, Algorithm AS 241: the percentage points of the normal distribution, Applied Statistics 37, 1988: the
# numerator and the denominator, lowest first, of p from 0.075 to 0.925; where sqrt(-log(p)) is up to 5; and beyond.
_NDTRI_MIDDLE = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)


_NDTRI_NEAR = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0),
        *(1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
)


_NDTRI_FAR = (
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1),
        *(2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
    ),
)


@replayed
def ndtri(p: ArrayLike) -> Array:
    """The normal quantile function: the inverse of `ndtr`, by rational approximations (Wichura, Algorithm AS 241,
    1988).

    Args:
        p: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import ndtri
    >>> ndtri(0.5)
    Array(0., dtype=float32)
    """
    return _quantile(inexact_array(p, "scipy.special.ndtri"))


def _normal_quantile(value: Array) -> Array:
    distance = value - 0.5
    middle = distance * _ratio(_NDTRI_MIDDLE, tnp.maximum(0.180625 - distance * distance, 0.0))
    least = tnp.clip(tnp.minimum(value, 1.0 - value), tnp.finfo(value.dtype).tiny, 0.075)
    root = tnp.sqrt(-tnp.log(least))
    near = _ratio(_NDTRI_NEAR, tnp.minimum(root, 5.0) - 1.6)
    far = _ratio(_NDTRI_FAR, tnp.maximum(root, 5.0) - 5.0)
    tail = tnp.copysign(tnp.where(root <= 5.0, near, far), distance)
    inside = tnp.where(tnp.abs(distance) <= 0.425, middle, tail)
    end = tnp.where((value == 0) | (value == 1), tnp.copysign(math.inf, distance), math.nan)
    return tnp.where((value > 0) & (value < 1), inside, end)


def _normal_quantile_slope(ans: Array, x: Array) -> Array:
    return math.sqrt(2 * math.pi) * tnp.exp(0.5 * ans * ans).astype(x.dtype)


_quantile = lax_special.narrowed(with_slope("ndtri", _normal_quantile, _normal_quantile_slope))


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    """A quotient of two polynomials, whose coefficients are given from the lowest on."""
    numerator, denominator = polynomials
    return lax_special.polynomial(numerator, x) / lax_special.polynomial(denominator, x)
