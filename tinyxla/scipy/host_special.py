"""Integral, hypergeometric and Bessel functions of `jax.scipy.special`, which SciPy computes on the host.

They have derivatives of any order by their last argument; by parameters of the first order, and none by whole numbers,
which give NaN. Source of the derivatives: "Digital Library of Mathematical Functions", chapters 6, 7, 8, 10, 13, 15
and 25.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.lax.special import (
    Function,
    Partial,
    gauss,
    on_host,
    polynomial,
    scaled_erfc,
    slope_on_host,
    special_function,
)
from tinyxla.numpy.arguments import ArrayLike, broadcasted, cast, check_memory, count_of, inexact_array, promoted
from tinyxla.numpy.elementwise.definitions import with_slope
from tinyxla.ops import elementwise
from tinyxla.runtime.imports import requiring
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_float


def _with_derivatives(*partials: Partial, compute: Function | None = None) -> Callable[[Any], Callable[..., Array]]:
    """The function that SciPy has under the name of the one that is decorated, which has its arguments and its text."""

    def made(described: Any) -> Callable[..., Array]:
        what = f"scipy.special.{described.__name__}"
        names = " ".join(inspect.signature(described).parameters)
        found = special_function(what, names, compute or on_host(described.__name__), partials, "")

        @functools.wraps(described)
        def apply(*args: ArrayLike, **kwargs: ArrayLike) -> Array:
            arrays, common = promoted(what, *args, *kwargs.values(), to_inexact=True)
            values = broadcasted(what, [cast(x, *common) for x in arrays])
            return found(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

        return apply

    return made


def _parts(name: str, *partials: Partial) -> list[Function]:
    """Functions of x for each of the results of SciPy's function of that name."""
    what = f"scipy.special.{name}"
    return [special_function(what, "x", on_host(name, k), [p], "") for k, p in enumerate(partials)]


def _none(ans: Any, *_: Any) -> Any:
    """The derivative by a whole number."""
    return tnp.full_like(ans, math.nan)


# --- integrals --------------------------------------------------------------------------------------------------------


@_with_derivatives(lambda ans, x: tnp.where(x < 0, math.nan, -tnp.exp(-x) / x))
def exp1(x: ArrayLike) -> Any:
    """The exponential integral E1: the integral of exp(-t) / t from x on, for x > 0.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import exp1
    >>> round(float(exp1(1.0)), 4)
    0.2194
    """


@_with_derivatives(lambda ans, x: tnp.exp(x) / x)
def expi(x: ArrayLike) -> Any:
    """The exponential integral Ei: the integral of exp(t) / t up to x, as a principal value.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import expi
    >>> round(float(expi(1.0)), 4)
    1.8951
    """


def _expn_slope(ans: Any, n: Any, x: Any) -> Any:
    return tnp.where(n == 0, -tnp.exp(-x) * (1 + 1 / x) / x, -expn(tnp.maximum(n - 1, 0), x))


@_with_derivatives(_none, _expn_slope, compute=on_host("expn", whole=1))
def expn(n: ArrayLike, x: ArrayLike) -> Any:
    """The generalized exponential integral: that of exp(-x t) / t^n over t from 1 on, for whole numbers n that are not
    negative.

    Args:
        n: whole numbers.
        x: an array of real numbers.

    Returns:
        An array in floating point, of the shape to which the arguments broadcast.

    Raises:
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import expn
    >>> round(float(expn(2, 1.0)), 4)
    0.1485
    """


_cosine_over_x = with_slope("cosine_over_x", lambda x: tnp.cos(x) / x, lambda ans, x: -(tnp.sin(x) + ans) / x)
_sine_integral, _cosine_integral = _parts(
    "sici", lambda ans, x: tnp.sinc(x / math.pi), lambda ans, x: _cosine_over_x(x)
)


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """The sine and cosine integrals: that of sin(t) / t from 0 to x, and that of cos(t) / t up to x.

    Args:
        x: an array of real numbers.

    Returns:
        Two arrays of the shape of x, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import sici
    >>> [round(float(y), 4) for y in sici(1.0)]
    [0.9461, 0.3374]
    """
    value = inexact_array(x, "scipy.special.sici")
    return _sine_integral(value), _cosine_integral(value)


_fresnel_sine, _fresnel_cosine = _parts(
    "fresnel", lambda ans, x: lax.sinpi(x * x / 2), lambda ans, x: lax.cospi(x * x / 2)
)


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """The Fresnel integrals: those of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x.

    Args:
        x: an array of real numbers.

    Returns:
        Two arrays of the shape of x, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import fresnel
    >>> [round(float(y), 4) for y in fresnel(1.0)]
    [0.4383, 0.7799]
    """
    value = inexact_array(x, "scipy.special.fresnel")
    return _fresnel_sine(value), _fresnel_cosine(value)


def _dawsn_slope(ans: Any, x: Any) -> Any:
    """0 where the function is next to it, far from zero."""
    return tnp.where((ans == 0) & (tnp.abs(x) > 1), 0.0, 1 - 2 * (x * ans))


@_with_derivatives(_dawsn_slope)
def dawsn(x: ArrayLike) -> Any:
    """Dawson's integral: exp(-x^2) times that of exp(t^2) from 0 to x.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import dawsn
    >>> round(float(dawsn(1.0)), 4)
    0.5381
    """


def _erfcx(x: Any) -> Any:
    found = scaled_erfc(tnp.abs(x))
    return tnp.where(x < 0, 2 / gauss(x) - found, found)


def _erfcx_slope(ans: Any, x: Any) -> Any:
    """0 where the function is next to it."""
    return tnp.where(ans == 0, 0.0, 2 * (x * ans) - 2 / math.sqrt(math.pi))


@_with_derivatives(_erfcx_slope, compute=_erfcx)
def erfcx(x: ArrayLike) -> Any:
    """exp(x^2) `erfc`(x), which is compiled.

    >>> from tinyxla.scipy.host_special import erfcx
    >>> round(float(erfcx(1.0)), 4)
    0.4276
    """


def _spence_slope(ans: Any, x: Any) -> Any:
    """log(x) / (1 - x); near to 1 by its series, since that has derivatives there."""
    more = x - 1
    near = tnp.abs(more) < 1e-3
    series = polynomial([(-1) ** (k + 1) / (k + 1) for k in range(6)], more)
    return tnp.where(near, series, _log_by_difference(tnp.where(near, 2.0, x)))


# Its derivative is a quotient that does not cancel at 0: (1 - x + x log(x)) / (x (1 - x)^2).
_log_by_difference = with_slope(
    "log(x) / (1 - x)",
    lambda x: tnp.log(x) / (1 - x),
    lambda ans, x: (1 - x + elementwise.chain_mul(x, tnp.log(x))) / (x * (1 - x) * (1 - x)),
)


@_with_derivatives(_spence_slope)
def spence(x: ArrayLike) -> Any:
    """Spence's function (the dilogarithm): the integral of log(t) / (1 - t) from 1 to x.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of the argument, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import spence
    >>> round(float(spence(2.0)), 4)
    -0.8225
    """


def _owens_t_slope(ans: Any, h: Any, a: Any) -> Any:
    return tnp.exp(-h * h / 2) * lax.erf(a * h / math.sqrt(2)) / -math.sqrt(8 * math.pi)


@_with_derivatives(_owens_t_slope, lambda ans, h, a: tnp.exp(-h * h * (1 + a * a) / 2) / (2 * math.pi * (1 + a * a)))
def owens_t(h: ArrayLike, a: ArrayLike) -> Any:
    """Owen's function: the probability that of two normal numbers the first is above h, and the second between 0 and a
    times the first.

    Args:
        h: an array of real numbers.
        a: arrays of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import owens_t
    >>> round(float(owens_t(1.0, 1.0)), 4)
    0.0667
    """


# --- hypergeometric and Bessel functions ------------------------------------------------------------------------------


def _hyp1f1_slope(ans: Any, a: Any, b: Any, x: Any) -> Any:
    return a / b * hyp1f1(a + 1, b + 1, x)


@_with_derivatives(slope_on_host("hyp1f1", 0), slope_on_host("hyp1f1", 1), _hyp1f1_slope)
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Any:
    """Kummer's confluent hypergeometric function, whose series has the terms (a)_k / (b)_k x^k / k!.

    Args:
        a, b: arrays of real numbers.
        x: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        DTypeError: complex numbers.

    >>> from tinyxla.scipy.special import hyp1f1
    >>> round(float(hyp1f1(1.0, 2.0, 1.0)), 4)
    1.7183
    """


def _hyp2f1_slope(ans: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    return a * b / c * hyp2f1(a + 1, b + 1, c + 1, x)


@_with_derivatives(*(slope_on_host("hyp2f1", k) for k in range(3)), _hyp2f1_slope)
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Any:
    """Gauss' hypergeometric function, whose series has the terms (a)_k (b)_k / (c)_k x^k / k!.

    Args:
        a, b, c: arrays of real numbers.
        x: an array of real numbers.

    Returns:
        An array of the common shape, in floating point.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.scipy.special import hyp2f1
    >>> round(float(hyp2f1(1.0, 1.0, 2.0, 0.5)), 4)
    1.3863
    """


def _bessel_slope(ans: Any, v: Any, z: Any) -> Any:
    return (_bessel_j(v - 1, z) - _bessel_j(v + 1, z)) / 2


_bessel_j = special_function("scipy.special.bessel_jn", "v z", on_host("jv"), [_none, _bessel_slope], "")


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to v, one behind the other in a new first dimension; `n_iter`
    is taken, and not used.

    Args:
        z: an array of real numbers.
        v: the largest order.
        n_iter: accepted for compatibility.

    Returns:
        An array of v + 1 times the shape of z.

    Raises:
        ShapeError: a negative order.

    >>> from tinyxla.scipy.special import bessel_jn
    >>> bessel_jn(1.0, v=1).round(4)
    Array([0.7652, 0.4401], dtype=float32)
    """
    what = "scipy.special.bessel_jn"
    x = inexact_array(z, what)
    orders = tnp.arange(count_of(what, "v", v) + 1, dtype=x.dtype)
    return _bessel_j(*tnp.broadcast_arrays(orders.reshape(-1, *[1] * x.ndim), x[None]))


def bernoulli(n: int) -> Array:
    """Bernoulli's numbers, from that of 0 to that of n; the one of 1 is -1/2.

    Args:
        n: an integer.

    Returns:
        A vector of n + 1 numbers.

    Raises:
        ShapeError: a negative n.

    >>> from tinyxla.scipy.special import bernoulli
    >>> bernoulli(4).round(4)
    Array([ 1.    , -0.5   ,  0.1667,  0.    , -0.0333], dtype=float32)
    """
    with requiring("scipy.special", "SciPy", "scipy.special.bernoulli"):
        import scipy.special  # here, since importing it costs more than importing this package

    count = count_of("scipy.special.bernoulli", "n", n)
    check_memory("scipy.special.bernoulli", (count + 1,))
    return tnp.asarray(np.asarray(scipy.special.bernoulli(max(count, 1)))[: count + 1], default_float())
