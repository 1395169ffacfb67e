"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import DTypeError
from tinyxla.numpy.arguments import ArrayLike, inexact_array, like
from tinyxla.numpy.arithmetic import multiply
from tinyxla.numpy.elementwise import binary, composed, unary
from tinyxla.numpy.operations import ops
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


def reciprocal(x: ArrayLike, /) -> Array:
    """1 / x."""
    x = inexact_array(x, "reciprocal")
    return ops.div(like(1, x), x).with_weak_type(x.weak_type)


def _scaled(name: str, op: Any, factor: float, text: str) -> Any:
    def apply(x: ArrayLike, /) -> Array:
        x = inexact_array(x, name)
        return op(x, like(factor, x))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = text
    return apply


deg2rad = radians = _scaled("deg2rad", ops.mul, math.pi / 180, "Degrees in radians.")
rad2deg = degrees = _scaled("rad2deg", ops.mul, 180 / math.pi, "Radians in degrees.")


def log2(x: ArrayLike, /) -> Array:
    """The logarithm to base 2."""
    x = inexact_array(x, "log2")
    return ops.div(ops.log(x), like(math.log(2), x))


def log10(x: ArrayLike, /) -> Array:
    """The logarithm to base 10."""
    x = inexact_array(x, "log10")
    return ops.div(ops.log(x), like(math.log(10), x))


def exp2(x: ArrayLike, /) -> Array:
    """2 to the power of x."""
    x = inexact_array(x, "exp2")
    return ops.pow_(like(2, x), x).with_weak_type(x.weak_type)


# --- inverse trigonometric and hyperbolic functions -------------------------------------------------------------------
# Of real numbers they are angles of points (atan2) and logarithms; the forms below cancel nowhere. Those of complex
# numbers follow W. Kahan, "Branch cuts for complex elementary functions" (1987).


def _real_or_complex(name: str, of_real: Any, of_complex: Any, text: str) -> Any:
    def apply(x: ArrayLike, /) -> Array:
        x = inexact_array(x, name)
        found = of_complex(x) if x.dtype.kind == "c" else of_real(x)
        return found.with_weak_type(x.weak_type)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = text
    return apply


def _one(x: Any) -> Any:
    return like(1, x)


def _side(x: Any) -> Any:
    """sqrt(1 - x*x): the other side of the right triangle."""
    return ops.sqrt(ops.mul(ops.sub(_one(x), x), ops.add(_one(x), x)))


def _times_i(x: Any) -> Any:
    return ops.complex_(ops.neg(ops.imag(x)), ops.real(x))


def _over_i(x: Any) -> Any:
    return ops.complex_(ops.imag(x), ops.neg(ops.real(x)))


def _complex_arcsin(z: Any) -> Any:
    one = _one(z)
    left, right = ops.sqrt(ops.sub(one, z)), ops.sqrt(ops.add(one, z))
    angle = ops.atan2(ops.real(z), ops.real(ops.mul(left, right)))
    return ops.complex_(angle, _real_arcsinh(ops.imag(ops.mul(ops.conj(left), right))))


def _complex_arccos(z: Any) -> Any:
    one = _one(z)
    left, right = ops.sqrt(ops.sub(one, z)), ops.sqrt(ops.add(one, z))
    angle = ops.atan2(ops.real(left), ops.real(right))
    angle = ops.add(angle, angle)
    return ops.complex_(angle, _real_arcsinh(ops.imag(ops.mul(ops.conj(right), left))))


def _complex_arccosh(z: Any) -> Any:
    one = _one(z)
    left, right = ops.sqrt(ops.sub(z, one)), ops.sqrt(ops.add(z, one))
    angle = ops.atan2(ops.imag(left), ops.real(right))
    return ops.complex_(_real_arcsinh(ops.real(ops.mul(ops.conj(left), right))), ops.add(angle, angle))


def _complex_arctanh(z: Any) -> Any:
    """Of 1 + z and 1 - z, half the difference of the logarithms."""
    x, y = ops.real(z), ops.imag(z)
    one, half, quarter = _one(x), like(0.5, x), like(0.25, x)
    near = ops.sub(one, x)
    size = ops.add(ops.mul(near, near), ops.mul(y, y))
    four = like(4, x)
    real = ops.mul(quarter, ops.log1p(ops.div(ops.mul(four, x), size)))
    left = ops.atan2(y, ops.add(one, x))
    right = ops.atan2(ops.neg(y), near)
    return ops.complex_(real, ops.mul(half, ops.sub(left, right)))


def _real_arcsinh(x: Any) -> Any:
    """sign(x) log(|x| + sqrt(x*x + 1)); for large |x|, where the square overflows, log(2|x|)."""
    size = ops.abs_(x)
    limit = like(math.sqrt(float(_largest(x))) / 2, x)
    large = ops.gt(size, limit)
    safe = ops.select(large, _one(x), size)
    square = ops.mul(safe, safe)
    root = ops.sqrt(ops.add(square, _one(x)))
    small = ops.log1p(ops.add(safe, ops.div(square, ops.add(root, _one(x)))))
    big = ops.add(ops.log(ops.select(large, size, _one(x))), like(math.log(2), x))
    found = ops.select(large, big, small)
    sign = ops.select(ops.lt(x, like(0, x)), like(-1, x), _one(x))
    found = ops.mul(sign, found)
    return ops.select(ops.eq(x, like(0, x)), x, found)


def _largest(x: Array) -> Any:
    return ml_dtypes.finfo(x.dtype).max


def _real_arccosh(x: Any) -> Any:
    limit = like(float(_largest(x)) / 4, x)
    large = ops.gt(x, limit)
    safe = ops.select(large, _one(x), x)
    above = ops.sub(safe, _one(x))
    root = ops.mul(ops.sqrt(above), ops.sqrt(ops.add(safe, _one(x))))
    big = ops.add(ops.log(ops.select(large, x, _one(x))), like(math.log(2), x))
    return ops.select(large, big, ops.log1p(ops.add(above, root)))


def _real_arctanh(x: Any) -> Any:
    return ops.mul(like(0.5, x), ops.sub(ops.log1p(x), ops.log1p(ops.neg(x))))


arcsin = asin = _real_or_complex(
    "arcsin", lambda x: ops.atan2(x, _side(x)), _complex_arcsin, "The angle between -pi/2 and pi/2 whose sine is x."
)
arccos = acos = _real_or_complex(
    "arccos", lambda x: ops.atan2(_side(x), x), _complex_arccos, "The angle between 0 and pi whose cosine is x."
)
arctan = atan = _real_or_complex(
    "arctan",
    lambda x: ops.atan2(x, _one(x)),
    lambda z: _over_i(_complex_arctanh(_times_i(z))),
    "The angle between -pi/2 and pi/2 whose tangent is x.",
)
arcsinh = asinh = _real_or_complex(
    "arcsinh", _real_arcsinh, lambda z: _over_i(_complex_arcsin(_times_i(z))), "The inverse of sinh."
)
arccosh = acosh = _real_or_complex("arccosh", _real_arccosh, _complex_arccosh, "The inverse of cosh.")
arctanh = atanh = _real_or_complex("arctanh", _real_arctanh, _complex_arctanh, "The inverse of tanh.")

# --- of two arrays ----------------------------------------------------------------------------------------------------


def _only_real(name: str, x: Array) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(f"{name}: takes real numbers, but got an array of {x.dtype.name}; use the magnitudes.")


def _hypot(x: Any, y: Any) -> Any:
    """Scaled by the larger side, so that squares do not overflow; derivatives are zero where both sides are."""
    _only_real("hypot", x)
    x, y = ops.abs_(x), ops.abs_(y)
    large, small = ops.max_(x, y), ops.min_(x, y)
    none = ops.eq(large, like(0, x))
    ratio = ops.div(small, ops.select(none, _one(x), large))
    found = ops.mul(large, ops.sqrt(ops.add(_one(x), ops.mul(ratio, ratio))))
    infinite = ops.or_(ops.eq(x, like(np.inf, x)), ops.eq(y, like(np.inf, x)))
    return ops.select(infinite, like(np.inf, x), found)


def _log_add(name: str, base: float) -> Any:
    """log(exp(x) + exp(y)) = max + log1p(exp(-|x - y|)); the difference of equal infinities counts as zero."""

    def add(x: Any, y: Any) -> Any:
        _only_real(name, x)
        large = ops.max_(x, y)
        difference = ops.sub(x, y)
        equal = ops.eq(x, y)
        safe = ops.select(equal, like(0, x), ops.neg(ops.abs_(difference)))
        scale = like(math.log(base), x)
        if base == math.e:
            return ops.add(large, ops.log1p(ops.exp(safe)))
        return ops.add(large, ops.div(ops.log1p(ops.exp(ops.mul(safe, scale))), scale))

    return add


hypot = composed("hypot", _hypot, "sqrt(x*x + y*y) without overflow.")
logaddexp = composed("logaddexp", _log_add("logaddexp", math.e), "log(exp(x) + exp(y)) without overflow.")
logaddexp2 = composed("logaddexp2", _log_add("logaddexp2", 2.0), "log2(2**x + 2**y) without overflow.")


def ldexp(x: ArrayLike, exponent: ArrayLike, /) -> Array:
    """x times 2 to the power of an integer exponent."""
    return multiply(x, exp2(exponent))


def sinc(x: ArrayLike, /) -> Array:
    """sin(pi x) / (pi x), and 1 at 0."""
    x = inexact_array(x, "sinc")
    zero = ops.eq(x, like(0, x))
    angle = ops.mul(like(math.pi, x), ops.select(zero, _one(x), x))
    # Around zero the series, so that derivatives exist there: sinc(x) = 1 - (pi x)^2 / 6 + ...
    square = ops.mul(x, x)
    series = ops.sub(_one(x), ops.mul(like(math.pi**2 / 6, x), square))
    return ops.select(zero, series, ops.div(ops.sin(angle), angle))


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The argument of complex numbers; of real ones, 0 or pi."""
    z = inexact_array(z, "angle")
    re = ops.real(z)
    im = ops.imag(z) if z.dtype.kind == "c" else like(0, z)
    found = ops.atan2(im, re)
    return rad2deg(found) if deg else found
