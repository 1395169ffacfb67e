"""Special functions, under the names of `jax.scipy.special`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError
from tinyxla.lax import special as lax_special
from tinyxla.lax.elementwise import stop_gradient
from tinyxla.nn import normalization
from tinyxla.nn.activations import sigmoid
from tinyxla.nn.normalization import logsumexp as logsumexp
from tinyxla.numpy import i0 as i0
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    broadcasted,
    cast,
    inexact_array,
    of_rank,
    promoted,
    refuse_complex,
    with_flags,
)
from tinyxla.numpy.elementwise.definitions import with_slope
from tinyxla.ops import elementwise
from tinyxla.scipy.complex_special import (
    complex_erfcx,
    complex_loggamma,
    loggamma as loggamma,
    sph_harm_y as sph_harm_y,
    wofz as wofz,
)
from tinyxla.scipy.host_special import (
    bernoulli as bernoulli,
    bessel_jn as bessel_jn,
    dawsn as dawsn,
    erfcx as _real_erfcx,
    exp1 as exp1,
    expi as expi,
    expn as expn,
    fresnel as fresnel,
    hyp1f1 as hyp1f1,
    hyp2f1 as hyp2f1,
    owens_t as owens_t,
    sici as sici,
    spence as spence,
)
from tinyxla.scipy.normal_special import ndtr as ndtr, ndtri as ndtri
from tinyxla.tracing.array import Array
from tinyxla.util.did_you_mean import missing as _missing

expit = sigmoid


def softmax(x: ArrayLike, axis: Axis = None) -> Array:
    """The softmax function: exp(x) divided by its sum along axes, all of them unless given (`nn.softmax` takes the last
    one).

    Args:
        x: an array of real numbers.
        axis: an axis, or several; all if None.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import softmax
    >>> softmax(np.zeros((2, 2)))
    Array([[0.25, 0.25],
           [0.25, 0.25]], dtype=float32)
    """
    return normalization.softmax(x, axis)


def log_softmax(x: ArrayLike, axis: Axis = None) -> Array:
    """The logarithm of `softmax`.

    Args:
        x: an array of real numbers.
        axis: an axis, or several; all if None.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import log_softmax
    >>> log_softmax(np.zeros((2, 2)))
    Array([[-1.3862944, -1.3862944],
           [-1.3862944, -1.3862944]], dtype=float32)
    """
    return normalization.log_softmax(x, axis)


@replayed
def logit(x: ArrayLike) -> Array:
    """The logit function: log(x / (1 - x)), the inverse of `expit`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import logit
    >>> logit(0.5)
    Array(0., dtype=float32, weak_type=True)
    """
    return _log_odds(inexact_array(x, "scipy.special.logit"))


_log_odds = with_slope("logit", lambda x: tnp.log(x / (1.0 - x)), lambda ans, x: 1.0 / x + 1.0 / (1.0 - x))


def erf(x: ArrayLike) -> Array:
    """The error function.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import erf
    >>> erf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.erf(inexact_array(x, "scipy.special.erf"))


def erfinv(x: ArrayLike) -> Array:
    """The inverse of the error function.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number, or complex numbers.

    >>> from tinyxla.scipy.special import erfinv
    >>> erfinv(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.erf_inv(inexact_array(x, "scipy.special.erfinv"))


@replayed
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(y), which is 0 where x is 0, with the derivatives that follow.

    Args:
        x, y: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import xlogy
    >>> xlogy(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return lax_special.x_log_y(*_of_one_type("xlogy", x, y))


@replayed
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(1 + y), which is 0 where x is 0.

    Args:
        x, y: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import xlog1py
    >>> xlog1py(np.array([0.0]), np.array([-1.0]))
    Array([0.], dtype=float32)
    """
    return lax_special.x_log1p_y(*_of_one_type("xlog1py", x, y))


@replayed
def entr(x: ArrayLike) -> Array:
    """The entropy function: -x log(x) of positive x, 0 at 0, and -inf below.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import entr
    >>> entr(np.array([0.0, 1.0, -1.0]))
    Array([  0.,   0., -inf], dtype=float32)
    """
    value = inexact_array(x, "scipy.special.entr")
    refuse_complex("scipy.special.entr", value)
    return _entropy(value)


_entropy = with_slope(
    "entr",
    lambda x: tnp.where(x < 0, -tnp.inf, 0.0 - xlogy(x, x)),
    lambda ans, x: tnp.where(x < 0, 0.0, -1.0 - tnp.log(x)),
)


# --- the gamma function and what is made of it ------------------------------------------------------------------------


def _of_one_type(what: str, *args: ArrayLike) -> Any:
    """Floating arrays of one type and shape: integers take the type of floats beside them. None is weakly typed beside
    one that is not, so that a number added to one leaves it as it is."""
    arrays, common = promoted(f"scipy.special.{what}", *args, to_inexact=True)
    return broadcasted(f"scipy.special.{what}", [cast(x, *common) for x in arrays])


def gammaln(x: ArrayLike) -> Array:
    """The logarithm of the absolute value of the gamma function.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import gammaln
    >>> abs(round(float(gammaln(1.0)), 4))
    0.0
    """
    return lax_special.lgamma(*_of_one_type("gammaln", x))


def digamma(x: ArrayLike) -> Array:
    """The digamma function: the derivative of `gammaln`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import digamma
    >>> round(float(digamma(1.0)), 4)
    -0.5772
    """
    return lax_special.digamma(*_of_one_type("digamma", x))


@replayed
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """The logarithm of the absolute value of the beta function, gamma(a) gamma(b) / gamma(a + b).

    Args:
        a, b: arrays of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import betaln
    >>> round(float(betaln(2.0, 3.0)), 4)
    -2.4849
    """
    return _ruled_log_beta(*_of_one_type("betaln", a, b))


# The first coefficients of Stirling's series, which from 8 on is exact to 64 bits: B(2k) / (2k (2k - 1)).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_LARGE = 8.0


def _log_beta(a: Array, b: Array) -> Array:
    """log B(a, b). With an operand from 8 on, the large terms of the logarithms of the gamma functions, which cancel,
    are taken together; with a negative operand beside it, if the sum is from 8 on too.

    Source: A. R. DiDonato and A. H. Morris, "Algorithm 708: significant digit computation of the incomplete beta
    function ratios", ACM TOMS 18 (1992), section 3.
    """
    lgamma = lax_special.lgamma
    low, high = tnp.minimum(a, b), tnp.maximum(a, b)
    stable = ((low > 0) | (low + high >= _LARGE)) & (high >= _LARGE) & tnp.isfinite(high)
    p, q = tnp.where(stable, low, 1.0), tnp.where(stable, high, _LARGE)
    total, ratio = p + q, tnp.log1p(p / q)
    one_large = lgamma(p) - p * tnp.log(q) + (p - (total - 0.5) * ratio) + _stirling(q) - _stirling(total)
    wide = tnp.maximum(p, _LARGE)
    both_large = (p - 0.5) * tnp.log(p / total) - q * ratio - 0.5 * tnp.log(q) + 0.5 * math.log(2 * math.pi)
    both_large = both_large + _stirling(wide) + _stirling(q) - _stirling(total)
    direct = lgamma(a) + lgamma(b) - lgamma(a + b)
    return tnp.where(stable, tnp.where(p < _LARGE, one_large, both_large), direct)


def _stirling(x: Array) -> Array:
    """log gamma(x) less (x - 1/2) log(x) - x + log(2 pi) / 2."""
    reciprocal = 1 / x
    return tnp.polyval(tnp.asarray(_STIRLING[::-1], x.dtype), reciprocal * reciprocal) * reciprocal


_ruled_log_beta = lax_special.special_function(
    "scipy.special.betaln",
    "a b",
    _log_beta,
    [
        lambda ans, a, b: lax_special.digamma(a) - lax_special.digamma(a + b),
        lambda ans, a, b: lax_special.digamma(b) - lax_special.digamma(a + b),
    ],
    "",
)


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function of a and x.

    Args:
        a: arrays of real numbers.
        x: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: what is no array or number, or complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import gammainc
    >>> round(float(gammainc(1.0, 1.0)), 4)
    0.6321
    """
    return lax_special.igamma(*_of_one_type("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function of a and x: 1 - `gammainc`.

    Args:
        a: arrays of real numbers.
        x: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: what is no array or number, or complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import gammaincc
    >>> round(float(gammaincc(1.0, 1.0)), 4)
    0.3679
    """
    return lax_special.igammac(*_of_one_type("gammaincc", a, x))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function of a, b and x.

    Args:
        a, b: arrays of real numbers.
        x: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import betainc
    >>> round(float(betainc(1.0, 1.0, 0.25)), 4)
    0.25
    """
    return lax_special.betainc(*_of_one_type("betainc", a, b, x))


@replayed
def erfc(x: ArrayLike) -> Array:
    """The complementary error function, 1 - `erf`, accurate where that is small.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number, or complex numbers.

    >>> from tinyxla.scipy.special import erfc
    >>> round(float(erfc(1.0)), 4)
    0.1573
    """
    return lax_special.erfc(*_of_one_type("erfc", x))


def i0e(x: ArrayLike) -> Array:
    """The modified Bessel function of order 0, times exp(-|x|).

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import i0e
    >>> abs(round(float(i0e(0.0)), 4))
    1.0
    """
    return lax_special.bessel_i0e(*_of_one_type("i0e", x))


def i1e(x: ArrayLike) -> Array:
    """The modified Bessel function of order 1, times exp(-|x|).

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number, or complex numbers.

    >>> from tinyxla.scipy.special import i1e
    >>> abs(round(float(i1e(0.0)), 4))
    0.0
    """
    return lax_special.bessel_i1e(*_of_one_type("i1e", x))


def erfcx(x: ArrayLike) -> Array:
    """The scaled complementary error function: exp(x^2) erfc(x) of real or complex numbers.

    Args:
        x: an array of real or complex numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import erfcx
    >>> round(float(erfcx(0.0)), 4)
    1.0
    """
    value = inexact_array(x, "scipy.special.erfcx")
    return complex_erfcx(value) if value.dtype.kind == "c" else _real_erfcx(x)


@replayed
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """The logarithm of `ndtr`; it is accurate everywhere, whatever `series_order` is.

    Args:
        x: an array of real numbers.
        series_order: accepted for compatibility.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import log_ndtr
    >>> log_ndtr(-100.0).round(2)
    Array(-5005.52, dtype=float32)
    """
    return lax_special.log_ndtr(*_of_one_type("log_ndtr", x)).with_weak_type(False)


@replayed
def gammasgn(x: ArrayLike) -> Array:
    """The sign of the gamma function: 1 or -1, NaN at its negative poles and at NaN; that of zero is of the side meant.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import gammasgn
    >>> gammasgn(-0.5)
    Array(-1., dtype=float32)
    """
    value = inexact_array(x, "scipy.special.gammasgn")
    below = tnp.floor(value)
    sign = tnp.where(tnp.where(value == 0, tnp.signbit(value), (value < 0) & (below % 2 != 0)), -1.0, 1.0)
    nowhere = ((value < 0) & (below == value)) | tnp.isnan(value)
    return tnp.where(nowhere, math.nan, sign).astype(value.dtype)


def gamma(x: ArrayLike) -> Array:
    """The gamma function of real or complex numbers.

    Args:
        x: an array of real or complex numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import gamma
    >>> gamma(5.0).round(3)
    Array(24., dtype=float32)
    """
    value = inexact_array(x, "scipy.special.gamma")
    return tnp.exp(complex_loggamma(value)) if value.dtype.kind == "c" else _real_gamma(value)


@replayed
def _real_gamma(x: Array) -> Array:
    return _gamma(x)


_gamma = with_slope(
    "gamma",
    lambda x: gammasgn(x) * tnp.exp(gammaln(x)),
    lambda ans, x: ans * digamma(tnp.where(tnp.isposinf(x), tnp.inf, x)),  # constant there, or 0 times infinity follows
)


@replayed
@with_flags
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """The factorial n!, or 0 of what is negative.

    Args:
        n: an array of numbers.
        exact: must be False.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import factorial
    >>> factorial(np.array([3, 4])).round(3)
    Array([ 6., 24.], dtype=float32)
    """
    if exact:
        raise ArgumentError("scipy.special.factorial: exact must be False; exact integers would overflow.")
    value = inexact_array(n, "scipy.special.factorial")
    return tnp.where(value < 0, 0.0, _gamma(value + 1)).with_weak_type(value.weak_type)


@replayed
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function, gamma(a) gamma(b) / gamma(a + b).

    Args:
        a, b: arrays of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import beta
    >>> round(float(beta(2.0, 3.0)), 4)
    0.0833
    """
    first, second = _of_one_type("beta", a, b)
    return gammasgn(first) * gammasgn(second) * gammasgn(first + second) * tnp.exp(betaln(first, second))


@replayed
@with_flags
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """The binomial coefficient: the number of ways to choose k of N things, each as often as one likes with
    `repetition`; 0 where there are none.

    Args:
        N, k: arrays of numbers.
        repetition: whether things may be chosen again.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import comb
    >>> comb(5.0, 2.0).round(3), comb(5.0, 2.0, repetition=True).round(3)
    (Array(10., dtype=float32, weak_type=True), Array(15., dtype=float32, weak_type=True))
    """
    things, chosen = _of_one_type("comb", N, k)
    whole = things + chosen - 1 if repetition else things
    some = (things >= 0) & (chosen >= 0) & (chosen <= whole)
    n, m = tnp.where(some, whole, 1.0), tnp.where(some, chosen, 1.0)
    found = tnp.exp(-tnp.log1p(n) - betaln(n - m + 1, m + 1))
    found = tnp.where(m == 0, found + stop_gradient(1 - found), found)  # exactly 1, with a slope
    none = tnp.where((things >= 0) & (chosen == 0), 1.0, 0.0)
    return tnp.where(some, found, none).astype(things.dtype).with_weak_type(things.weak_type)


@replayed
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """The Pochhammer symbol (rising factorial): gamma(z + m) / gamma(z).

    Args:
        z, m: arrays of real numbers.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import poch
    >>> round(float(poch(2.0, 3.0)), 3)
    24.0
    """
    first, second = _of_one_type("poch", z, m)
    at_zero = first == 0  # gamma(z) is gamma(1 + z) / z
    finite = tnp.where(at_zero, 1.0, first)
    growth = gammasgn(finite) * gammasgn(first + second) * tnp.exp(gammaln(first + second) - gammaln(finite))
    growth = tnp.where(at_zero, first, 1.0) * growth
    at_pole = (first <= 0) & (first == tnp.floor(first))
    return tnp.where((second == 0) & (at_pole | tnp.isnan(first) | tnp.isinf(first)), 1.0, growth)


@replayed
def multigammaln(a: ArrayLike, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension d.

    Args:
        a: arrays of real numbers.
        d: the dimension, an integer.

    Returns:
        An array of the shape of a, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import multigammaln
    >>> round(float(multigammaln(3.0, 2)), 3)
    1.55
    """
    value = inexact_array(a, "scipy.special.multigammaln")

    def total(value: Array) -> Array:
        steps = tnp.arange(d, dtype=value.dtype) / 2
        terms = gammaln(value[..., None] - of_rank(steps, value.ndim + 1))
        return tnp.sum(terms, -1) + d * (d - 1) / 4 * math.log(math.pi)

    return lax_special.narrowed(total)(value)


@replayed
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The polygamma function: the derivative of order n of `digamma`.

    Args:
        n: whole numbers.
        x: an array of real numbers.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import polygamma
    >>> round(float(polygamma(1, 1.0)), 4)
    1.6449
    """
    if isinstance(n, (int, float)):
        return lax_special.polygamma(n, _of_one_type("polygamma", n, x)[1])
    return lax_special.polygamma(*_of_one_type("polygamma", n, x))


def zeta(x: ArrayLike, q: ArrayLike = 1.0) -> Array:
    """The Hurwitz zeta function of x and q; Riemann's if q is 1.

    Args:
        x: an array of real numbers.
        q: an array of real numbers, 1 by default.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import zeta
    >>> round(float(zeta(2.0)), 4)
    1.6449
    """
    return lax_special.zeta(*_of_one_type("zeta", x, q))


def i1(x: ArrayLike) -> Array:
    """The modified Bessel function of order 1.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number, or complex numbers.

    >>> from tinyxla.scipy.special import i1
    >>> round(float(i1(1.0)), 4)
    0.5652
    """
    return lax_special.bessel_i1(inexact_array(x, "scipy.special.i1"))


@replayed
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """The relative entropy: p log(p / q) of positive numbers, 0 where p is 0 and q is not negative, and infinite
    elsewhere.

    Args:
        p, q: an array of real numbers.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import rel_entr
    >>> rel_entr(np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    Array([ 0.,  0., inf], dtype=float32)
    """
    first, second = _of_one_type("rel_entr", p, q)
    refuse_complex("scipy.special.rel_entr", first)
    return _relative_entropy(first, second)


def _log_quotient(p: Array, q: Array) -> Array:
    """log(p / q) of positive numbers, 0 of others."""
    if p.dtype.itemsize < 4:  # the difference of logarithms would cancel most of their digits
        return lax_special.narrowed(_log_quotient)(p, q)
    both = (p > 0) & (q > 0)
    return tnp.log(tnp.where(both, p, 1.0)) - tnp.log(tnp.where(both, q, 1.0))


def _relative_entropy_of_positive(p: Array, q: Array) -> Array:
    value = p * _log_quotient(p, q)
    return tnp.where((p > 0) & (q > 0), value, tnp.where((p == 0) & (q >= 0), 0.0, tnp.inf))


_relative_entropy = with_slope(
    "rel_entr",
    _relative_entropy_of_positive,
    lambda ans, p, q: tnp.where((p > 0) & (q > 0), 1.0 + _log_quotient(p, q), 0.0),
    lambda ans, p, q: tnp.where((p > 0) & (q > 0), -p / tnp.where(q > 0, q, 1.0), 0.0),
)


@replayed
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """The terms of the Kullback-Leibler divergence: `rel_entr`(p, q) - p + q.

    Args:
        p, q: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import kl_div
    >>> kl_div(1.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    first, second = _of_one_type("kl_div", p, q)
    refuse_complex("scipy.special.kl_div", first)
    return rel_entr(first, second) - first + second


@replayed
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """The Box-Cox transformation: (x^lmbda - 1) / lmbda, or log(x) where lmbda is 0.

    Args:
        x: an array of real numbers.
        lmbda: the exponent.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import boxcox
    >>> round(float(boxcox(2.0, 0.5)), 4)
    0.8284
    """
    value, power = _of_one_type("boxcox", x, lmbda)
    return _box_cox_of(*tnp.broadcast_arrays(value, power))


@replayed
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """The Box-Cox transformation of 1 + x.

    Args:
        x: an array of real numbers.
        lmbda: the exponent.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import boxcox1p
    >>> round(float(boxcox1p(1.0, 0.5)), 4)
    0.8284
    """
    value, power = _of_one_type("boxcox1p", x, lmbda)
    return _box_cox_of_1p(*tnp.broadcast_arrays(value, power))


def _box_cox(name: str, logarithm: Callable[..., Any], by_base: Callable[..., Any]) -> Callable[..., Any]:
    """(base^power - 1) / power by the logarithm of the base, with slopes that are right where either is 0; that by the
    base is base^(power - 1)."""

    def function(x: Any, power: Any) -> Any:
        log, flat = logarithm(x), power == 0
        return tnp.where(flat, log, tnp.expm1(power * log) / tnp.where(flat, 1.0, power))

    def by_power(ans: Any, x: Any, power: Any) -> Any:
        log = logarithm(x)
        exponent = power * log
        near = tnp.abs(exponent) < 0.5  # where the difference cancels
        series = lax_special.polynomial(_BY_EXPONENT, tnp.where(near, exponent, 0.0))
        divisor = tnp.where(near, 1.0, power)
        direct = (elementwise.chain_mul(tnp.exp(exponent), exponent - 1) + 1) / divisor / divisor
        return tnp.where(near, log * log * series, direct)

    return with_slope(name, function, lambda ans, x, power: by_base(x, power - 1), by_power)


# The derivative of (exp(u) - 1) / u in powers of u.
_BY_EXPONENT = tuple(1 / (math.factorial(k) * (k + 2)) for k in range(15))
_box_cox_of = _box_cox("boxcox", tnp.log, lambda x, power: x**power)
_box_cox_of_1p = _box_cox("boxcox1p", tnp.log1p, lambda x, power: tnp.exp(lax_special.x_log1p_y(power, x)))


__getattr__ = _missing(__name__)


__all__ = [
    "bernoulli",
    "bessel_jn",
    "beta",
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "rel_entr",
    "sici",
    "softmax",
    "spence",
    "sph_harm_y",
    "wofz",
    "xlog1py",
    "xlogy",
    "zeta",
]


def __dir__() -> list[str]:
    return __all__
