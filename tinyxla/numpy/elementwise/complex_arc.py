"""The inverse trigonometric and hyperbolic functions of complex numbers, as formulas of real operations.

On branch cuts the sign of a zero says which side is meant, and infinities and NaN give what annex G of the C standard
(ISO/IEC 9899:2011) asks for. Both parts are accurate by themselves, also where one of them is tiny.

Sources: T. E. Hull, T. F. Fairgrieve and P. T. P. Tang, "Implementing the complex arcsine and arccosine functions using
exception handling" (1997); W. Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from tinyxla.numpy.arguments import like
from tinyxla.numpy.elementwise.definitions import with_slope
from tinyxla.numpy.operations import ops


def _one(x: Any) -> Any:
    return like(1, x)


def _half(x: Any) -> Any:
    return ops.mul(like(0.5, x), x)


def _direction(x: Any) -> Any:
    """1 with the sign of x, also of a zero."""
    negative = ops.compare(x, like(0, x), direction="LT", type="TOTALORDER")
    return ops.select(negative, like(-1, x), _one(x))


def _swapped(z: Any) -> Any:
    """y + ix of x + iy. A function that i turns into its hyperbolic partner becomes that partner of swapped numbers,
    swapped."""
    return ops.complex_(ops.imag(z), ops.real(z))


def _is_nan(x: Any) -> Any:
    return ops.ne(x, x)


def _either_infinite(x: Any, y: Any) -> Any:
    infinite = like(math.inf, x)
    return ops.or_(ops.eq(x, infinite), ops.eq(y, infinite))


def _distance(x: Any, y: Any) -> Any:
    """From 0, of numbers whose squares do not overflow; x is 0 or not tiny."""
    none = ops.eq(x, like(0, x))
    squares = ops.add(ops.mul(x, x), ops.mul(y, y))
    return ops.select(none, y, ops.sqrt(ops.select(none, _one(x), squares)))


def _ellipse(x: Any, y: Any) -> tuple[Any, Any]:
    """For x, y >= 0 and the half axis a of the ellipse with foci -1 and 1 through (x, y): sqrt(a*a - x*x), which is to
    x as the cosine to the sine of the result, and arccosh(a), its other part.

    a - 1 and a - x are sums of two terms without cancellation, y*y/(r + 1 + x) and, for the one that is small where
    the point is close to the real axis, y*y/(s + |1 - x|). There y is taken out of the root, lest its square vanishes.
    """
    bound = like(math.sqrt(float(ml_dtypes.finfo(x.dtype).max)) / 8, x)
    large = ops.or_(ops.gt(x, bound), ops.gt(y, bound))
    far, far_y = x, y
    x, y = ops.select(large, _one(x), x), ops.select(large, _one(y), y)
    inside = ops.lt(x, _one(x))
    right, off = ops.add(x, _one(x)), ops.abs_(ops.sub(x, _one(x)))
    r, s = _distance(right, y), _distance(off, y)
    a = _half(ops.add(r, s))
    first, second = ops.add(r, right), ops.add(s, off)
    focus = ops.eq(second, like(0, x))
    inverses = ops.add(ops.div(_one(x), first), ops.div(_one(x), ops.select(focus, _one(x), second)))
    whole = _half(ops.add(ops.mul(y, ops.div(y, first)), second))
    over_one, over_x = ops.add(a, _one(x)), ops.add(a, x)
    flat = ops.mul(y, ops.sqrt(ops.mul(_half(inverses), ops.select(inside, over_one, over_x))))
    round_ = ops.sqrt(ops.mul(whole, ops.select(inside, over_x, over_one)))
    side, root = ops.select(inside, round_, flat), ops.select(inside, flat, round_)
    excess = ops.select(inside, _half(ops.mul(y, ops.mul(y, inverses))), whole)
    size = ops.log1p(ops.add(excess, root))
    return ops.select(large, far_y, side), ops.select(large, _log_of_double(far, far_y, large), size)


def _log_of_double(x: Any, y: Any, wanted: Any) -> Any:
    """log(2 |x + iy|) where it is wanted."""
    x, y = ops.select(wanted, x, _one(x)), ops.select(wanted, y, _one(y))
    infinite = _either_infinite(x, y)
    larger, smaller = ops.max_(x, y), ops.min_(x, y)
    ratio = ops.div(smaller, larger)
    found = ops.add(ops.log(larger), _half(ops.log1p(ops.mul(ratio, ratio))))
    return ops.select(infinite, like(math.inf, x), ops.add(found, like(math.log(2), x)))


def _side_and_size(x: Any, y: Any) -> tuple[Any, Any]:
    """What is to x as the cosine to the sine of the real part of arcsin(x + iy), and the size of its imaginary part."""
    side, size = _ellipse(ops.mul(x, _direction(x)), ops.mul(y, _direction(y)))
    upright = ops.and_(ops.eq(x, like(0, x)), _is_nan(y))  # the real part is known without y
    return ops.select(upright, _one(x), side), size


def _slope(ans: Any, z: Any) -> Any:
    """1 / sqrt(1 - z*z), the derivative of arcsin. Derivatives of the operations that `_ellipse` is made of have kinks
    where Re z is 1, above a focus. The roots of 1 - z and 1 + z do not overflow, and the sign of a zero chooses the
    side of a branch cut."""
    x, y = ops.real(z), ops.imag(z)
    before, behind = ops.complex_(ops.sub(_one(x), x), ops.neg(y)), ops.complex_(ops.add(x, _one(x)), y)
    return ops.div(ops.div(_one(z), ops.sqrt(before)), ops.sqrt(behind))


def _hyperbolic_slope(ans: Any, z: Any) -> Any:
    """1 / sqrt(z*z - 1), the derivative of arccosh, by the roots of z - 1 and z + 1."""
    x, y = ops.real(z), ops.imag(z)
    before, behind = ops.complex_(ops.sub(x, _one(x)), y), ops.complex_(ops.add(x, _one(x)), y)
    return ops.div(ops.div(_one(z), ops.sqrt(before)), ops.sqrt(behind))


def _arcsin(z: Any) -> Any:
    x, y = ops.real(z), ops.imag(z)
    side, size = _side_and_size(x, y)
    return ops.complex_(ops.atan2(x, side), ops.mul(size, _direction(y)))


def _arccos(z: Any) -> Any:
    x, y = ops.real(z), ops.imag(z)
    side, size = _side_and_size(x, y)
    return ops.complex_(ops.atan2(side, x), ops.neg(ops.mul(size, _direction(y))))


def _arccosh(z: Any) -> Any:
    x, y = ops.real(z), ops.imag(z)
    side, size = _side_and_size(x, y)
    return ops.complex_(size, ops.mul(ops.atan2(side, x), _direction(y)))


arcsin = with_slope("arcsin", _arcsin, _slope)
arccos = with_slope("arccos", _arccos, lambda ans, z: ops.neg(_slope(ans, z)))
arccosh = with_slope("arccosh", _arccosh, _hyperbolic_slope)


def arcsinh(z: Any) -> Any:
    return _swapped(arcsin(_swapped(z)))


def _over_square(x: Any, y: Any, wanted: Any) -> tuple[Any, Any]:
    """x and y over x*x + y*y where that is wanted, else as they are; 0 of infinite numbers, but NaN of NaN."""
    zero, infinite = like(0, x), _either_infinite(x, ops.abs_(y))
    usual = ops.and_(wanted, ops.not_(infinite))
    safe_x, safe_y = ops.select(usual, x, _one(x)), ops.select(usual, y, _one(y))
    size = ops.max_(safe_x, ops.abs_(safe_y))
    across, along = ops.div(safe_x, size), ops.div(safe_y, size)
    scale = ops.mul(size, ops.add(ops.mul(across, across), ops.mul(along, along)))
    found = ops.div(across, scale), ops.div(along, scale)
    ends = ops.select(infinite, zero, x), ops.select(ops.and_(infinite, ops.eq(y, y)), zero, y)
    return ops.select(usual, found[0], ends[0]), ops.select(usual, found[1], ends[1])


def arctanh(z: Any) -> Any:
    """The real part is a quarter of log(|1 + z|^2 / |1 - z|^2) = log(1 + 4x / |1 - z|^2), the imaginary part half the
    angle between 1 + z and 1 - z. Far out 1/z takes the place of z, by a right angle less."""
    x, y = ops.real(z), ops.imag(z)
    right, up = _direction(x), _direction(y)
    x, height = ops.mul(x, right), ops.mul(y, up)
    pole = ops.and_(ops.eq(x, _one(x)), ops.lt(height, like(float(ml_dtypes.finfo(x.dtype).eps) / 8, x)))
    close = _half(ops.sub(like(math.log(2), x), ops.log(ops.select(pole, height, _one(x)))))
    known = ops.or_(_either_infinite(x, height), ops.and_(ops.eq(x, like(0, x)), _is_nan(y)))  # the real part, as 0
    far = ops.or_(ops.gt(x, like(2, x)), ops.gt(height, like(2, x)))

    x, y = _over_square(x, y, far)
    near, across = ops.sub(_one(x), x), ops.select(pole, _one(y), y)
    square = ops.add(ops.mul(near, near), ops.mul(across, across))
    usual = ops.mul(like(0.25, x), ops.log1p(ops.div(ops.mul(like(4, x), x), square)))
    size = ops.select(known, like(0, x), ops.select(pole, close, usual))
    angle = _half(ops.add(ops.atan2(y, ops.add(_one(x), x)), ops.atan2(y, near)))
    angle = ops.select(far, ops.sub(ops.mul(like(math.pi / 2, x), up), angle), angle)
    return ops.complex_(ops.mul(size, right), angle)


def arctan(z: Any) -> Any:
    return _swapped(arctanh(_swapped(z)))
