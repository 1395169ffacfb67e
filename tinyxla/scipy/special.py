"""Special functions, under the names of `jax.scipy.special`."""

from __future__ import annotations

import math
from typing import Any

from tinyxla import numpy as tnp
from tinyxla.lax import special as lax_special
from tinyxla.nn.activations import sigmoid as expit
from tinyxla.nn.normalization import log_softmax, logsumexp, softmax
from tinyxla.numpy.arguments import broadcasted, inexact_array, promoted
from tinyxla.ops import elementwise
from tinyxla.tracing.array import Array

ArrayLike = Any


def logit(x: ArrayLike) -> Array:
    """log(x / (1 - x)), the inverse of `expit`.

    >>> logit(0.5)
    Array(0., dtype=float32, weak_type=True)
    """
    value = inexact_array(x, "scipy.special.logit")
    return tnp.log(value / (1.0 - value))


def erf(x: ArrayLike) -> Array:
    """The error function.

    >>> erf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.erf(inexact_array(x, "scipy.special.erf"))


def erfinv(y: ArrayLike) -> Array:
    """The inverse of the error function.

    >>> erfinv(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.erf_inv(inexact_array(y, "scipy.special.erfinv"))


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(y), which is 0 where x is 0, with the derivatives that follow.

    >>> xlogy(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return _times_log("scipy.special.xlogy", tnp.log, x, y)


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(1 + y), which is 0 where x is 0.

    >>> xlog1py(np.array([0.0]), np.array([-1.0]))
    Array([0.], dtype=float32)
    """
    return _times_log("scipy.special.xlog1py", tnp.log1p, x, y)


def _times_log(what: str, log: Any, x: ArrayLike, y: ArrayLike) -> Array:
    (factor, value), _ = promoted(what, x, y, to_inexact=True)
    vanishes = (factor == 0) & ~tnp.isnan(value)
    return tnp.where(vanishes, 0.0, factor * log(tnp.where(vanishes, 1.0, value)))


def entr(x: ArrayLike) -> Array:
    """-x log(x) of positive x, 0 at 0, and -inf below.

    >>> entr(np.array([0.0, 1.0, -1.0]))
    Array([  0.,   0., -inf], dtype=float32)
    """
    value = inexact_array(x, "scipy.special.entr")
    return tnp.where(value < 0, -tnp.inf, 0.0 - xlogy(value, value))


# --- the gamma function and what is made of it ------------------------------------------------------------------------


def _of_one_type(what: str, *args: ArrayLike) -> Any:
    """Floating arrays of one type and shape."""
    values = [inexact_array(x, f"scipy.special.{what}") for x in args]
    return broadcasted(f"scipy.special.{what}", promoted(f"scipy.special.{what}", *values)[0])


def gammaln(x: ArrayLike) -> Array:
    """The logarithm of the absolute value of the gamma function.

    >>> abs(round(float(gammaln(1.0)), 4))
    0.0
    """
    return lax_special.lgamma(*_of_one_type("gammaln", x))


def digamma(x: ArrayLike) -> Array:
    """The derivative of `gammaln`.

    >>> round(float(digamma(1.0)), 4)
    -0.5772
    """
    return lax_special.digamma(*_of_one_type("digamma", x))


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """The logarithm of the absolute value of the beta function, gamma(a) gamma(b) / gamma(a + b).

    >>> round(float(betaln(2.0, 3.0)), 4)
    -2.4849
    """
    first, second = _of_one_type("betaln", a, b)
    return lax_special.lgamma(first) + lax_special.lgamma(second) - lax_special.lgamma(first + second)


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function of a and x.

    >>> round(float(gammainc(1.0, 1.0)), 4)
    0.6321
    """
    return lax_special.igamma(*_of_one_type("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function of a and x: 1 - `gammainc`.

    >>> round(float(gammaincc(1.0, 1.0)), 4)
    0.3679
    """
    return lax_special.igammac(*_of_one_type("gammaincc", a, x))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function of a, b and x.

    >>> round(float(betainc(1.0, 1.0, 0.25)), 4)
    0.25
    """
    return lax_special.betainc(*_of_one_type("betainc", a, b, x))


def erfc(x: ArrayLike) -> Array:
    """The complementary error function, 1 - `erf`, accurate where that is small.

    >>> round(float(erfc(1.0)), 4)
    0.1573
    """
    return lax_special.erfc(*_of_one_type("erfc", x))


def i0e(x: ArrayLike) -> Array:
    """The modified Bessel function of order 0, times exp(-|x|).

    >>> abs(round(float(i0e(0.0)), 4))
    1.0
    """
    return lax_special.bessel_i0e(*_of_one_type("i0e", x))


def i1e(x: ArrayLike) -> Array:
    """The modified Bessel function of order 1, times exp(-|x|).

    >>> abs(round(float(i1e(0.0)), 4))
    0.0
    """
    return lax_special.bessel_i1e(*_of_one_type("i1e", x))


def ndtr(x: ArrayLike) -> Array:
    """The probability that a normal number is below x.

    >>> abs(round(float(ndtr(0.0)), 4))
    0.5
    """
    value = inexact_array(x, "scipy.special.ndtr")
    return 0.5 * erfc(-value / math.sqrt(2))


def ndtri(p: ArrayLike) -> Array:
    """The inverse of `ndtr`.

    >>> ndtri(0.5)
    Array(0., dtype=float32, weak_type=True)
    """
    value = inexact_array(p, "scipy.special.ndtri")
    return math.sqrt(2) * erfinv(2 * value - 1)


__all__ = [
    "betainc",
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0e",
    "i1e",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "softmax",
    "xlog1py",
    "xlogy",
]
