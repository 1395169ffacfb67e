"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import DTypeError
from tinyxla.numpy.arguments import ArrayLike, array_of, cast, default_inexact_array, inexact_array, like
from tinyxla.numpy.elementwise import complex_arc
from tinyxla.numpy.elementwise.arithmetic import clip, floor_divide, multiply, subtract
from tinyxla.numpy.elementwise.definitions import Binary, Unary, as_binary, binary, unary, with_slope
from tinyxla.numpy.operations import ops
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array

exp = unary("exp", ops.exp, "e to the power of x.", to_inexact=True)
expm1 = unary("expm1", ops.expm1, "exp(x) - 1, exact for small x.", to_inexact=True)
log = unary("log", ops.log, "The natural logarithm.", to_inexact=True)
log1p = unary("log1p", ops.log1p, "log(1 + x), exact for small x.", to_inexact=True)
sqrt = unary("sqrt", ops.sqrt, "The square root; NaN for negative numbers.", to_inexact=True)
cbrt = unary("cbrt", ops.cbrt, "The cube root.", to_inexact=True)
sin = unary("sin", ops.sin, "The sine of x radians.", to_inexact=True)
cos = unary("cos", ops.cos, "The cosine of x radians.", to_inexact=True)
tan = unary("tan", ops.tan, "The tangent of x radians.", to_inexact=True)
sinh = unary("sinh", ops.sinh, "The hyperbolic sine.", to_inexact=True)
cosh = unary("cosh", ops.cosh, "The hyperbolic cosine.", to_inexact=True)
tanh = unary("tanh", ops.tanh, "The hyperbolic tangent.", to_inexact=True)
arctan2 = binary("arctan2", ops.atan2, "The angle of the point (y, x), given as arctan2(y, x).", to_inexact=True)
atan2 = arctan2


def _one(x: Any) -> Any:
    return like(1, x)


def _scaled(name: str, function: Any, text: str) -> Unary:
    """A function whose constant factor makes results strongly typed, as JAX's are."""
    return unary(name, function, text, to_inexact=True, strong=True)


reciprocal = unary("reciprocal", lambda x: ops.div(_one(x), x), "1 / x.", to_inexact=True)


def _complex_exp2(x: Any) -> Any:
    """exp(x log 2), where the power of two with the whole part of the exponent is exact. What is beyond the range of
    exponents, such as an infinity, is left to exp."""
    real, imag = ops.real(x), ops.imag(x)
    info = ml_dtypes.finfo(real.dtype)
    inside = ops.max_(like(info.minexp, real), ops.min_(ops.floor(real), like(info.maxexp - 1, real)))
    whole = ops.select(ops.eq(real, real), inside, like(0, real))
    unit = like(math.log(2), real)
    found = ops.exp(ops.complex_(ops.mul(ops.sub(real, whole), unit), ops.mul(imag, unit)))
    scale = ops.pow_(like(2, real), whole)
    return ops.complex_(ops.mul(ops.real(found), scale), ops.mul(ops.imag(found), scale))


exp2 = unary(
    "exp2",
    lambda x: _complex_exp2(x) if x.dtype.kind == "c" else ops.pow_(like(2, x), x),
    "2 to the power of x.",
    to_inexact=True,
)


def _log(x: Any, base: int) -> Any:
    """Each part of a complex logarithm is divided for itself: one of them may be infinite."""
    found = ops.log(x)
    if x.dtype.kind != "c":
        return ops.div(found, like(math.log(base), x))
    real, imag = ops.real(found), ops.imag(found)
    return ops.complex_(ops.div(real, like(math.log(base), real)), ops.div(imag, like(math.log(base), imag)))


log2 = _scaled("log2", lambda x: _log(x, 2), "The logarithm to base 2.")
log10 = _scaled("log10", lambda x: _log(x, 10), "The logarithm to base 10.")
deg2rad = unary("deg2rad", lambda x: ops.mul(x, like(math.pi / 180, x)), "Degrees in radians.", to_inexact=True)
rad2deg = unary("rad2deg", lambda x: ops.mul(x, like(180 / math.pi, x)), "Radians in degrees.", to_inexact=True)
radians, degrees = deg2rad, rad2deg

# --- inverse trigonometric and hyperbolic functions -------------------------------------------------------------------
# Of real numbers they are angles of points (atan2) and logarithms; the forms below cancel nowhere.


_one_minus_square = with_slope(
    "one_minus_square",
    lambda x: ops.mul(ops.sub(_one(x), x), ops.add(_one(x), x)),
    lambda ans, x: ops.mul(like(-2, x), x),
)


def _side(x: Any) -> Any:
    """sqrt(1 - x*x): the other side of the right triangle."""
    return ops.sqrt(_one_minus_square(x))


# Products of the chain rule would have factors that are infinite and zero at the ends, where slopes are infinite.
_real_arcsin = with_slope("arcsin", lambda x: ops.atan2(x, _side(x)), lambda ans, x: ops.rsqrt(_one_minus_square(x)))
_real_arccos = with_slope(
    "arccos", lambda x: ops.atan2(_side(x), x), lambda ans, x: ops.neg(ops.rsqrt(_one_minus_square(x)))
)


def _largest(x: Array) -> float:
    return float(ml_dtypes.finfo(x.dtype).max)


def _log_of_sine(x: Any) -> Any:
    """sign(x) log(|x| + sqrt(x*x + 1)); for large |x|, where the square overflows, log(2|x|)."""
    size = ops.abs_(x)
    large = ops.gt(size, like(math.sqrt(_largest(x)) / 2, x))
    safe = ops.select(large, _one(x), size)
    squared = ops.mul(safe, safe)
    root = ops.sqrt(ops.add(squared, _one(x)))
    small = ops.log1p(ops.add(safe, ops.div(squared, ops.add(root, _one(x)))))
    big = ops.add(ops.log(ops.select(large, size, _one(x))), like(math.log(2), x))
    sign = ops.select(ops.lt(x, like(0, x)), like(-1, x), _one(x))
    found = ops.mul(sign, ops.select(large, big, small))
    return ops.select(ops.eq(x, like(0, x)), x, found)


def _arcsinh_slope(ans: Any, x: Any) -> Any:
    """1 / sqrt(x*x + 1); where the square overflows, 1 / |x|."""
    size = ops.abs_(x)
    large = ops.gt(size, like(math.sqrt(_largest(x)) / 2, x))
    safe = ops.select(large, _one(x), x)
    root = ops.rsqrt(ops.add(ops.mul(safe, safe), _one(x)))
    return ops.select(large, ops.div(_one(x), ops.select(large, size, _one(x))), root)


_real_arcsinh = with_slope("arcsinh", _log_of_sine, _arcsinh_slope)


def _log_of_cosine(x: Any) -> Any:
    large = ops.gt(x, like(_largest(x) / 4, x))
    safe = ops.select(large, _one(x), x)
    above = ops.sub(safe, _one(x))
    root = ops.mul(ops.sqrt(above), ops.sqrt(ops.add(safe, _one(x))))
    big = ops.add(ops.log(ops.select(large, x, _one(x))), like(math.log(2), x))
    return ops.select(large, big, ops.log1p(ops.add(above, root)))


_real_arccosh = with_slope(
    "arccosh",
    _log_of_cosine,
    lambda ans, x: ops.mul(ops.rsqrt(ops.sub(x, _one(x))), ops.rsqrt(ops.add(x, _one(x)))),
)


def _real_arctanh(x: Any) -> Any:
    return ops.mul(like(0.5, x), ops.sub(ops.log1p(x), ops.log1p(ops.neg(x))))


def _arctan_slope(ans: Any, x: Any) -> Any:
    """1 / (1 + x*x). At infinities x counts as constant: there, all derivatives are 0, not 0 times infinity."""
    infinity = like(math.inf, x)
    finite = ops.select(ops.eq(ops.abs_(x), infinity), infinity, x)
    return ops.div(_one(x), ops.add(_one(x), ops.mul(finite, finite)))


_real_arctan = with_slope("arctan", lambda x: ops.atan2(x, _one(x)), _arctan_slope)


def _inverse(name: str, of_real: Any, of_complex: Any, text: str) -> Unary:
    def function(x: Any) -> Any:
        return (of_complex if x.dtype.kind == "c" else of_real)(x)

    return unary(name, function, text, to_inexact=True, of_complex=getattr(np, name))


arcsin = _inverse("arcsin", _real_arcsin, complex_arc.arcsin, "The angle between -pi/2 and pi/2 whose sine is x.")
arccos = _inverse("arccos", _real_arccos, complex_arc.arccos, "The angle between 0 and pi whose cosine is x.")
arctan = _inverse(
    "arctan",
    _real_arctan,
    complex_arc.arctan,
    "The angle between -pi/2 and pi/2 whose tangent is x.",
)
arcsinh = _inverse("arcsinh", _real_arcsinh, complex_arc.arcsinh, "The inverse of the hyperbolic sine.")
arccosh = _inverse("arccosh", _real_arccosh, complex_arc.arccosh, "The inverse of the hyperbolic cosine.")
arctanh = _inverse("arctanh", _real_arctanh, complex_arc.arctanh, "The inverse of the hyperbolic tangent.")
asin, acos, atan, asinh, acosh, atanh = arcsin, arccos, arctan, arcsinh, arccosh, arctanh

# --- of two arrays ----------------------------------------------------------------------------------------------------


@as_binary(to_inexact=True, strong=True)
def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow."""
    if x.dtype.kind == "c":
        raise DTypeError(f"hypot: takes real numbers, but got an array of {x.dtype.name}; use the magnitudes.")
    x, y = ops.abs_(x), ops.abs_(y)
    none = ops.and_(ops.eq(x, like(0, x)), ops.eq(y, like(0, x)))
    # The larger is selected: the maximum has no second derivative where they are equal. At zero nor has the length.
    first = ops.or_(ops.ge(x, y), ops.ne(x, x))
    large, small = ops.select(none, ops.max_(x, y), ops.select(first, x, y)), ops.select(first, y, x)
    ratio = ops.div(small, ops.select(none, _one(x), large))
    found = ops.mul(large, ops.sqrt(ops.add(_one(x), ops.mul(ratio, ratio))))
    # Beside an infinity all else counts as 0, also in the derivative.
    far_x, far_y = (ops.select(ops.eq(z, like(np.inf, z)), z, like(0, z)) for z in (x, y))
    far = ops.max_(far_x, far_y)
    return ops.select(ops.gt(far, like(0, far)), far, found)


def _log_add(name: str, base: float, text: str) -> Binary:
    """The larger + log(1 + base^-difference); the difference of equal infinities counts as zero.

    The larger is selected, not computed by max and abs, so that second derivatives are right where x = y.
    """
    scale = math.log(base)

    def add(x: Any, y: Any) -> Any:
        if x.dtype.kind == "c":
            return _complex_log_add(x, y, scale)
        equal, first = ops.eq(x, y), ops.gt(x, y)
        infinite = ops.and_(equal, ops.eq(ops.abs_(x), like(math.inf, x)))
        difference = ops.sub(*(ops.select(infinite, like(0, x), z) for z in (x, y)))
        away = ops.select(first, ops.neg(difference), difference)
        if scale != 1:
            away = ops.mul(away, like(scale, x))
        more = ops.log1p(ops.exp(away))
        larger = ops.select(ops.or_(first, ops.ne(x, x)), x, y)
        return ops.add(larger, ops.div(more, like(scale, x)) if scale != 1 else more)

    return binary(name, add, text, to_inexact=True)


def _principal_angle(x: Any, scale: float) -> Any:
    """The angle from -pi to pi with the same sine and cosine, which reduce the largest angles exactly; in units of
    `scale`."""
    unit = like(scale, x)
    angle = ops.mul(x, unit)
    near = ops.le(ops.abs_(angle), like(math.pi, x))
    reduced = ops.div(ops.atan2(ops.sin(angle), ops.cos(angle)), unit)
    return ops.select(near, x, reduced)


def _complex_log_add(x: Any, y: Any, scale: float) -> Any:
    """The one with the larger real part + log(1 + exp(other - larger)), in units of `scale`; imaginary parts are
    brought to the principal values, from -pi to pi, before they are subtracted, and so is that of the result."""
    a, c = ops.real(x), ops.real(y)
    b, d = (_principal_angle(ops.imag(z), scale) for z in (x, y))
    first = ops.gt(a, c)
    infinite = ops.and_(ops.eq(a, c), ops.eq(ops.abs_(a), like(math.inf, a)))
    real = ops.select(infinite, like(0, a), ops.select(first, ops.sub(c, a), ops.sub(a, c)))
    imag = ops.select(first, ops.sub(d, b), ops.sub(b, d))
    unit = like(scale, a)
    more = ops.log1p(ops.exp(ops.complex_(ops.mul(real, unit), ops.mul(imag, unit))))
    larger, angle = ops.select(first, a, c), ops.select(first, b, d)
    angle = ops.add(angle, ops.div(ops.imag(more), unit))
    period = like(2 * math.pi / scale, a)
    periods = ops.ceil(ops.sub(ops.div(angle, period), like(0.5, a)))
    return ops.complex_(ops.add(larger, ops.div(ops.real(more), unit)), ops.sub(angle, ops.mul(periods, period)))


logaddexp = _log_add("logaddexp", math.e, "log(exp(x) + exp(y)) without overflow.")
logaddexp2 = _log_add("logaddexp2", 2.0, "log2(2**x + 2**y) without overflow.")


def ldexp(x: ArrayLike, exponent: ArrayLike, /) -> Array:
    """x times 2 to the power of an integer exponent, in three steps: the power itself may be out of range.

    Args:
        x: floating-point numbers.
        exponent: integers.

    Returns:
        An array of the common shape.

    Raises:
        DTypeError: exponents that are no integers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ldexp(jnp.array([1.0, 3.0]), jnp.array([3, -1]))
        Array([8. , 1.5], dtype=float32)
    """
    x, whole = inexact_array(x, "ldexp"), array_of(exponent, "ldexp")
    if element_type(whole.dtype).is_inexact:
        raise DTypeError(f"ldexp: the exponent must be an array of integers, but got {whole.dtype}; convert it.")
    limits = ml_dtypes.finfo(x.dtype)
    span = 2 * limits.maxexp + limits.nmant
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)  # which has all of the exponents that matter
    exponent = clip(cast(whole, wide, weak=False), -span, span)
    first = floor_divide(exponent, 3)
    second = floor_divide(subtract(exponent, first), 2)
    for part in (first, second, subtract(subtract(exponent, first), second)):
        x = multiply(x, cast(exp2(part), x.dtype, weak=False))
    return x


def _sine_over_angle(x: Any) -> Any:
    zero = ops.eq(x, like(0, x))
    angle = ops.mul(like(math.pi, x), ops.select(zero, _one(x), x))
    return ops.select(zero, _one(x), ops.div(ops.sin(angle), angle))


def _sinc_slope(ans: Any, x: Any) -> Any:
    """(cos(pi x) - sinc(x)) / x; near zero, where that cancels, the derivative of the series 1 - (pi x)^2 / 3! + ..."""
    angle = ops.mul(like(math.pi, x), x)
    size = ops.abs_(angle)
    near = ops.lt(size, like(1, size))
    square = ops.select(near, ops.mul(angle, angle), like(0, x))
    series = like(0, x)
    for k in range(8 if size.dtype.itemsize < 8 else 12, 0, -1):
        series = ops.add(like((-1) ** k * 2 * k / math.factorial(2 * k + 1), x), ops.mul(square, series))
    away = ops.div(ops.sub(ops.cos(angle), ans), ops.select(near, _one(x), x))
    return ops.select(near, ops.mul(ops.mul(like(math.pi, x), angle), series), away)


sinc = unary(
    "sinc",
    with_slope("sinc", _sine_over_angle, _sinc_slope),
    "sin(pi x) / (pi x), and 1 at 0.",
    to_inexact=True,
)


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The argument of complex numbers; of real ones, 0 or pi.

    Args:
        z: an array of real or complex numbers.
        deg: whether the result is in degrees, instead of radians.

    Returns:
        An array of the shape of z.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.angle(jnp.array([1j, -1.0]), deg=True)
        Array([ 90., 180.], dtype=float32)
    """
    z = default_inexact_array(z, "angle")
    imaginary = ops.imag(z) if z.dtype.kind == "c" else like(0, z)
    found = ops.atan2(imaginary, ops.real(z) if z.dtype.kind == "c" else z)
    return rad2deg(found) if deg else found
