"""Integer and bit semantics of XLA on NumPy arrays, where NumPy has others or none."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.shapes import element_type

Array = np.ndarray[Any, Any]


def _unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def divide(x: Array, y: Array) -> Array:
    """Truncated quotient; x / 0 has all bits set, and the smallest integer by -1 is itself."""
    quotient, _ = _divide(x, y)
    return np.where(y == 0, np.array(-1).astype(x.dtype), quotient)


def remainder(x: Array, y: Array) -> Array:
    """With the sign of the dividend; x rem 0 = x, and the smallest integer rem -1 = 0."""
    _, rest = _divide(x, y)
    return np.where(y == 0, x, rest)


def _divide(x: Array, y: Array) -> tuple[Array, Array]:
    if x.dtype.kind == "u":
        return np.divmod(x, np.where(y == 0, x.dtype.type(1), y))
    bits = _unsigned(x.dtype)
    size_x, size_y = (np.abs(v).astype(bits) for v in (x, y))  # the smallest integer wraps to its own magnitude
    quotient, rest = np.divmod(size_x, np.where(size_y == 0, bits.type(1), size_y))
    quotient, rest = quotient.astype(x.dtype), rest.astype(x.dtype)
    return np.where((x < 0) != (y < 0), -quotient, quotient), np.where(x < 0, -rest, rest)


def power(x: Array, y: Array) -> Array:
    """x to the y-th, wrapping. A negative exponent gives what the exact power truncates to: 0, or +-1 for x = +-1 (and
    all bits set for x = 0, as 1 / 0 has)."""
    negative = y < 0
    exponent = np.where(negative, y.dtype.type(0), y).astype(_unsigned(y.dtype))
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    base = x
    for _ in range(8 * y.dtype.itemsize):
        result = np.where(exponent & 1, result * base, result)
        base = base * base
        exponent = exponent >> 1
    odd = (y & 1) == 1
    unit = np.where(odd, x, x * x)
    inverse = np.where(x == 0, np.array(-1).astype(x.dtype), np.where(x * x == 1, unit, x.dtype.type(0)))
    return np.where(negative, inverse, result).astype(x.dtype)


def _in_width(x: Array, count: Array) -> tuple[Array, Array]:
    """The shift counts as unsigned numbers, made harmless, and which were inside the width."""
    width = 8 * x.dtype.itemsize
    unsigned = count.astype(_unsigned(count.dtype))
    inside = unsigned < width
    return np.where(inside, unsigned, 0).astype(x.dtype), inside


def shift_left(x: Array, count: Array) -> Array:
    safe, inside = _in_width(x, count)
    return np.where(inside, x << safe, x.dtype.type(0))


def shift_right_arithmetic(x: Array, count: Array) -> Array:
    safe, inside = _in_width(x, count)
    signed = x.view(f"i{x.dtype.itemsize}")
    shifted = np.where(inside, signed >> safe.astype(signed.dtype), np.where(signed < 0, signed.dtype.type(-1), 0))
    return shifted.astype(signed.dtype).view(x.dtype)


def shift_right_logical(x: Array, count: Array) -> Array:
    safe, inside = _in_width(x, count)
    unsigned = x.view(_unsigned(x.dtype))
    return np.where(inside, unsigned >> safe.astype(unsigned.dtype), unsigned.dtype.type(0)).view(x.dtype)


def count_leading_zeros(x: Array) -> Array:
    width = 8 * x.dtype.itemsize
    value = x.astype(_unsigned(x.dtype))
    count = np.full(x.shape, width, np.int64)
    for bit in range(width):
        count = np.where((value >> value.dtype.type(bit)) & 1, width - 1 - bit, count)
    return count.astype(x.dtype)


def population_count(x: Array) -> Array:
    return np.bitwise_count(x.astype(_unsigned(x.dtype))).astype(x.dtype)


def total_order(x: Array) -> Array:
    """Signed integers in the order -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN of the floats x."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """By value. Float to integer truncates, saturates at the ends and takes NaN to 0, as XLA on CPU; complex to real
    drops the imaginary part; anything to bool asks whether it differs from zero."""
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = np.real(x)
    kind = element_type(x.dtype)
    if element_type(dtype).is_integer and kind.kind == "float":
        return _saturate(x, dtype)
    if kind.kind == "float" and kind.bits <= 8:  # narrow types are not all convertible to one another
        x = x.astype(np.float32)
    elif kind.bits < 8:
        x = x.astype(np.int8)
    return x.astype(dtype)


def _saturate(x: Array, dtype: np.dtype[Any]) -> Array:
    kind = element_type(dtype)
    low = -(2 ** (kind.bits - 1)) if kind.kind == "signed" else 0
    high = 2 ** (kind.bits - (kind.kind == "signed")) - 1
    wide = np.trunc(x.astype(np.float64))
    inside = (wide >= low) & (wide < high + 1.0)  # high + 1 is a power of two: exact
    whole = np.where(inside, wide, 0.0)
    integer = whole.astype(np.uint64 if low == 0 else np.int64)
    ends = np.where(wide < low, low, high if low else np.uint64(high))
    return np.where(inside | np.isnan(wide), integer, ends.astype(integer.dtype)).astype(dtype)
