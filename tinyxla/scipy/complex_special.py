"""Special functions of complex numbers: the logarithm of the gamma function, the Faddeeva function; and spherical
harmonics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api import ShapeDtypeStruct
from tinyxla.api.callbacks import pure_callback
from tinyxla.custom_derivatives import custom_jvp
from tinyxla.errors import ArgumentError
from tinyxla.lax import special as lax_special
from tinyxla.numpy.arguments import ArrayLike, broadcasted, cast, count_of, inexact_array, promoted, refuse_complex
from tinyxla.ops import elementwise
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array, ConcreteArray

_SHIFT = 8  # from where on Stirling's series is exact to 64 bits
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def loggamma(x: ArrayLike) -> Array:
    """The logarithm of the gamma function of real or complex numbers, continued from the positive numbers with a cut
    along the negative ones. It is NaN for negative real numbers, whose logarithms are complex.

    Source: "Digital Library of Mathematical Functions", 5.5.1, 5.5.3 and 5.11.1.

    Args:
        x: an array of real or complex numbers.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import loggamma
    >>> round(float(loggamma(5.0)), 4)
    3.1781
    >>> loggamma(np.array([-0.5 + 0.0j])).round(3)
    Array([1.266-3.142j], dtype=complex64)
    """
    value: Any = inexact_array(x, "scipy.special.loggamma")
    if value.dtype.kind != "c":
        found = lax_special.lgamma(value)
        return tnp.where(value < 0, tnp.nan, found)
    return complex_loggamma(value)


def complex_loggamma(z: Any) -> Any:
    """By Stirling's series, after a shift to the right; left of 1/2 by reflection. Both are written for the upper half
    plane and of the lower take conjugates."""
    lower = tnp.signbit(tnp.imag(z))
    above = tnp.where(lower, tnp.conj(z), z)
    left = tnp.real(z) < 0.5
    right = _right_half(tnp.where(left, tnp.conj(1 - above), above))
    whole = tnp.round(tnp.real(above))
    turns = elementwise.chain_mul(above - whole.astype(z.dtype), tnp.full_like(z, 2j * math.pi))
    sine = -1j * math.pi * (above - 0.5) + tnp.log(-tnp.expm1(turns)) - math.log(2)
    reflected = math.log(math.pi) - sine - tnp.conj(right)
    found = tnp.where(left, reflected, right)
    pole = (tnp.imag(z) == 0) & (tnp.real(z) <= 0) & (tnp.real(z) == tnp.floor(tnp.real(z)))
    return tnp.where(pole, tnp.nan, tnp.where(lower, tnp.conj(found), found))


def _right_half(z: Any) -> Any:
    """log gamma(z + 8) - log(z (z + 1) ... (z + 7)) for real parts from 1/2 on."""
    near = tnp.abs(z) < 4 * _SHIFT
    shifted = tnp.where(near, z + _SHIFT, z)
    reciprocal = 1 / shifted
    square = reciprocal * reciprocal
    series = tnp.zeros_like(z)
    for coefficient in reversed(_STIRLING):
        series = series * square + coefficient
    found = (shifted - 0.5) * tnp.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + series * reciprocal
    logarithms: Any = 0
    for k in range(_SHIFT):
        logarithms = logarithms + tnp.log(tnp.where(near, z + k, 1))
    return found - logarithms


def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function exp(-z^2) erfc(-i z) of real or complex numbers, from SciPy.

    Args:
        z: an array of real or complex numbers.

    Returns:
        Complex numbers, of the shape of z.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.scipy.special import wofz
    >>> wofz(0.0)
    Array(1.+0.j, dtype=complex64)
    """
    value: Any = inexact_array(z, "scipy.special.wofz")
    if value.dtype.kind != "c":
        value = value.astype(np.complex128 if value.dtype.itemsize == 8 else np.complex64)
    return _faddeeva(value)


def _on_host(z: Any) -> Any:
    with requiring("scipy.special", "SciPy", "scipy.special.wofz"):
        import scipy.special  # here, since importing it costs more than importing this package

    with np.errstate(all="ignore"):
        return np.asarray(scipy.special.wofz(np.asarray(z, np.complex128))).astype(z.dtype)


@custom_jvp
def _faddeeva(z: Any) -> Any:
    return pure_callback(_on_host, ShapeDtypeStruct(z.shape, z.dtype), z, vmap_method="broadcast_all")


@_faddeeva.defjvp
def _faddeeva_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """w' = -2 z w + 2 i / sqrt(pi) (Digital Library of Mathematical Functions, 7.10.2)."""
    (z,), (tangent,) = primals, tangents
    found = _faddeeva(z)
    return found, elementwise.chain_mul(tangent, 2j / math.sqrt(math.pi) - 2 * z * found)


def complex_erfcx(z: Any) -> Any:
    """exp(z^2) erfc(z) = w(i z)."""
    return _faddeeva(lax.complex(-tnp.imag(z), tnp.real(z)))


def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None, n_max: int | None = None
) -> Array:
    """Spherical harmonics, with the phase of Condon and Shortley, by the recurrence in the degree of normalized
    associated Legendre functions.

    Args:
        n: the degrees, integers from 0 on.
        m: the orders, integers from -n to n; beyond them there is 0.
        theta: the polar angle, from 0 to pi.
        phi: the azimuth.
        diff_n: must be None.
        n_max: the largest degree that there is, which larger ones are cut off to; needed where n is not concrete.

    Source: S. A. Holmes and W. E. Featherstone, "A unified approach to the Clenshaw summation and the recursive
    computation of very high degree and order normalised associated Legendre functions", Journal of Geodesy 76 (2002).

    Returns:
        Complex numbers, of the common shape of the arguments.

    Raises:
        ArgumentError: degrees or orders that are no integers.

    >>> import numpy as np
    >>> from tinyxla.scipy.special import sph_harm_y
    >>> sph_harm_y(np.array([1]), np.array([0]), np.array([0.0]), np.array([0.0])).round(4)
    Array([0.4886+0.j], dtype=complex64)
    """
    what = "scipy.special.sph_harm_y"
    if diff_n is not None:
        raise ArgumentError(f"{what}: diff_n must be None, but got {diff_n!r}; take derivatives by grad or jvp.")
    degree, order = tnp.asarray(n), tnp.asarray(m)
    if not all(element_type(x.dtype).is_integer for x in (degree, order)):
        raise ArgumentError(f"{what}: n and m must be integers, but are {degree.dtype.name} and {order.dtype.name}.")
    if n_max is None:
        if not isinstance(degree, ConcreteArray):
            raise ArgumentError(f"{what}: n_max must be given where n is not concrete.")
        n_max = int(np.max(np.asarray(degree), initial=0))
    most = count_of(what, "n_max", n_max)
    (polar, azimuth), common = promoted(what, theta, phi, to_inexact=True)
    refuse_complex(what, polar, azimuth)
    degree, order = (cast(x, np.dtype(np.int32)) for x in (degree, order))
    degree, order, polar, azimuth = broadcasted(what, [degree, order, cast(polar, *common), cast(azimuth, *common)])
    legendre = _normalized_legendre(most, tnp.minimum(degree, most), tnp.abs(order), polar)
    # Of angles beyond 0 and pi the recurrence has the sine's sign; as in SciPy, its absolute value counts.
    is_reflected = (order < 0) != (tnp.sin(polar) < 0)
    legendre = tnp.where((order % 2 != 0) & is_reflected, -legendre, legendre)
    angle = order.astype(azimuth.dtype) * azimuth
    return lax.complex(legendre * tnp.cos(angle), legendre * tnp.sin(angle))


def _normalized_legendre(most: int, degree: Any, order: Any, polar: Any) -> Any:
    """Up to the order the functions of equal degree and order, from there on the recurrence in the degree."""
    sine, cosine, m = tnp.sin(polar), tnp.cos(polar), order.astype(polar.dtype)

    def advance(k: Any, state: Any) -> Any:
        known, before = state
        l = tnp.asarray(k).astype(polar.dtype)  # noqa: E741 (the degree)
        is_start, inside = k <= order, (k > order) & (k <= degree)
        diagonal = -sine * tnp.sqrt((2 * l + 1) / (2 * l)) * known
        difference = tnp.where(inside, l * l - m * m, 1)
        last = tnp.where(inside, (l - 1) * (l - 1) - m * m, 0)
        step = cosine * known - tnp.sqrt(last / (4 * (l - 1) * (l - 1) - 1)) * before
        following = tnp.sqrt((4 * l * l - 1) / difference) * step
        new = tnp.where(is_start, diagonal, tnp.where(inside, following, known))
        return new, tnp.where(is_start, 0, tnp.where(inside, known, before))

    start = tnp.full_like(polar, 1 / math.sqrt(4 * math.pi)), tnp.zeros_like(polar)
    found, _ = lax.fori_loop(1, most + 1, advance, start)
    return tnp.where(order > degree, 0, found)
