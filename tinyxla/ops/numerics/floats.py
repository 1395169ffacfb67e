"""Values of element-wise operations on floating-point and complex numbers, where NumPy's are not XLA's or are less
accurate; `tinyxla.ops.numerics.integers` has those on integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.ops.numerics import integers
from tinyxla.ops.op import Array
from tinyxla.runtime.imports import requiring


def in_double(function: np.ufunc) -> Callable[..., Any]:
    """A function of NumPy that computes float32 in float64: its own is less accurate than XLA's by more than a unit in
    the last place."""

    def evaluate(*arrays: Array) -> Any:
        if arrays[0].dtype != np.float32:
            return function(*arrays)
        if arrays[0].size <= 4096:  # beyond, converting piece by piece in NumPy's buffers is quicker
            return function(*(x.astype(np.float64) for x in arrays)).astype(np.float32)
        return function(*arrays, out=np.empty_like(arrays[0]), dtype=np.float64, casting="same_kind")

    return evaluate


def atan2(y: Array, x: Array) -> Any:
    """The angle of (x, y); of complex numbers -i log((x + iy) / sqrt(x^2 + y^2))."""
    if y.dtype.kind != "c":
        return in_double(np.arctan2)(y, x)
    size = np.maximum.reduce([np.abs(part) for z in (x, y) for part in (z.real, z.imag)])
    _, exponent = np.frexp(size)
    x, y = (join(np.ldexp(z.real, -exponent), np.ldexp(z.imag, -exponent)) for z in (x, y))
    ahead, behind = join(x.real - y.imag, x.imag + y.real), join(x.real + y.imag, x.imag - y.real)
    found = np.log(divide(ahead, np.sqrt(ahead * behind)))
    return join(found.imag, -found.real)


def join(x: Array, y: Array) -> Array:
    """A complex array of its parts."""
    out = np.empty(x.shape, np.result_type(x.dtype, np.complex64))
    out.real, out.imag = x, y
    return out


def divide(x: Array, y: Array) -> Any:
    """The quotient; of complex numbers as annex G of the C standard has it."""
    if x.dtype.kind in "iu":
        return integers.divide(x, y)
    return _divide_complex(x, y) if x.dtype.kind == "c" else np.divide(x, y)


def _divide_complex(x: Array, y: Array) -> Array:
    """NumPy's quotient, except as annex G of the C standard asks for: of a number over zero, whose real part's sign
    counts, and where NumPy gives NaN, of an infinity over a finite number, and the reverse."""
    found = np.asarray(np.divide(x, y))
    by_zero = y == 0
    if by_zero.any():
        found = np.where(by_zero, _scaled(x, np.copysign(np.inf, y.real)), found)
    lost = np.isnan(found) & ~by_zero
    if lost.any():
        direction = _direction(x) * np.conj(_direction(y))
        found = np.where(lost & np.isinf(x) & np.isfinite(y), _scaled(direction, np.inf), found)
        found = np.where(lost & np.isinf(y) & np.isfinite(x), _scaled(direction, 0.0), found)
    return found.astype(x.dtype)


def _direction(x: Array) -> Array:
    """Of infinite numbers, the infinite parts as 1 and the finite ones as 0; others as they are."""
    parts = (np.copysign(np.isinf(part), part) for part in (x.real, x.imag))
    return np.where(np.isinf(x), join(*parts), x)


def _scaled(x: Array, factor: Any) -> Array:
    return join(x.real * factor, x.imag * factor)


def power(x: Array, y: Array) -> Any:
    """Of complex numbers in a wider type: what is lost grows with the angle of the result, before it is reduced."""
    if x.dtype.kind in "iu":
        return integers.power(x, y)
    if x.dtype.kind == "c":
        wide = np.complex128 if x.dtype.itemsize == 8 else np.clongdouble
        return np.power(x.astype(wide), y.astype(wide)).astype(x.dtype)
    if y.size and y.flat[0] == 0.5:  # of one exponent NumPy takes the square root, which differs at -0 and -infinity
        x = np.where(((x == 0) | (x == -np.inf)) & (y == 0.5), np.abs(x), x)
    return np.power(x, y)


def sign(x: Array) -> Any:
    """-1, 0 or 1; of a complex number that of size 1 in its direction."""
    if x.dtype.kind != "c":
        return np.sign(x) if x.dtype.kind in "iu" else np.where(x == 0, x, np.sign(x)).astype(x.dtype)
    size = np.abs(x)
    safe = np.where(size == 0, size.dtype.type(1), size)
    return np.where(size == 0, x, join(x.real / safe, x.imag / safe)).astype(x.dtype)


def rsqrt(x: Array) -> Any:
    """The inverse of the square root."""
    if x.dtype.itemsize < 4:
        return rsqrt(x.astype(np.float32)).astype(x.dtype)
    return divide(np.ones_like(x), np.sqrt(x))


def expm1(x: Array) -> Any:
    """Of complex numbers on the real axis, where NumPy multiplies an infinity by 0, real; of infinite real parts by the
    exponential, where NumPy has NaN."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    found: Array = np.where(np.isinf(x.real), np.exp(x) - 1, np.expm1(x))
    return join(found.real, np.where(x.imag == 0, x.imag, found.imag))


def logistic(x: Array) -> Any:
    """Through the exponential that does not overflow; of complex numbers, whose divisor may cancel, through tanh."""
    if x.dtype.itemsize < 4:
        return logistic(x.astype(np.float32)).astype(x.dtype)
    one, left = x.dtype.type(1), x.real < 0
    small = in_double(np.exp)(np.where(left, x, -x))
    far = np.where(left, small, one) / (one + small)
    half = x.dtype.type(0.5)
    return np.where(np.abs(x.real) < 1, np.tanh(x * half) * half + half, far) if x.dtype.kind == "c" else far


def log1p(x: Array) -> Any:
    """Of complex numbers near 0 by their distance from -1; NumPy's own loses them there."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    one = x.real.dtype.type(1)
    excess = x.real * (x.real + one + one) + x.imag * x.imag  # of the square of that distance over 1
    near = join(np.log1p(excess) / (one + one), np.arctan2(x.imag, x.real + one))
    return np.where(np.abs(x) < 0.5, near, np.log(join(x.real + one, x.imag)))


def erf(x: Array) -> Any:
    """Of float64 the C library's, which is slow: SciPy's is too far off."""
    if x.dtype.itemsize == 8:
        return np.vectorize(math.erf, otypes=[x.dtype])(x)
    return _scipy_special("erf", x)


def erf_inv(x: Array) -> Any:
    return np.where(x == 0, x, _scipy_special("erfinv", x))  # which loses the sign of zero


def _scipy_special(name: str, x: Array) -> Any:
    with requiring("scipy.special", "SciPy", name):
        import scipy.special  # here, since importing it costs more than importing this package

    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    return getattr(scipy.special, name)(wide).astype(x.dtype)


def round_away(x: Array) -> Any:
    """To the nearest integer; of two, to the one further from zero."""
    return np.copysign(_half_away(np.abs(x)), x)


def _half_away(size: Array) -> Any:
    if size.dtype.itemsize == 1:  # not all of these types have a zero
        return _half_away(size.astype(np.float32)).astype(size.dtype)
    whole = np.floor(size)
    return np.where(size - whole >= 0.5, whole + whole.dtype.type(1), whole).astype(size.dtype)
