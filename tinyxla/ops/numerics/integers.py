"""Integer and bit semantics of XLA on NumPy arrays, where NumPy has others or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.ops.op import Array
from tinyxla.shapes import element_type


def _unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def in_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes integers narrower than a byte, too: computed in bytes, and wrapped."""

    def of_any_width(*arrays: Array) -> Any:
        kind = element_type(arrays[0].dtype)
        if kind.bits >= 8 or not kind.is_integer:
            return function(*arrays)
        return np.asarray(function(*(x.astype(np.int8 if kind.kind == "signed" else np.uint8) for x in arrays))).astype(
            kind.dtype
        )

    return of_any_width


def _pattern(x: Array) -> Array:
    """The bits of integers as an unsigned number."""
    bits = x.astype(_unsigned(x.dtype))
    return bits & np.uint8(2 ** element_type(x.dtype).bits - 1) if element_type(x.dtype).bits < 8 else bits


def divide(x: Array, y: Array) -> Array:
    """Truncated quotient; x / 0 has all bits set, and the smallest integer by -1 is itself."""
    none = y == 0
    divisor = np.where(none, y.dtype.type(1), y)
    multiple = x if x.dtype.kind == "u" else x - np.fmod(x, divisor)  # whose quotient is not rounded down
    with np.errstate(over="ignore"):
        return np.where(none, ~x.dtype.type(0), np.floor_divide(multiple, divisor))


def remainder(x: Array, y: Array) -> Array:
    """With the sign of the dividend; x rem 0 = x, and the smallest integer rem -1 = 0."""
    none = y == 0
    return np.where(none, x, np.fmod(x, np.where(none, y.dtype.type(1), y)))


def power(x: Array, y: Array) -> Array:
    """x to the y-th, wrapping. A negative exponent gives what the exact power truncates to: +-1 for x = +-1, and else 0
    (for x = 0, too)."""
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
    inverse = np.where((x == 1) | (x == -1), unit, x.dtype.type(0))
    return np.where(negative, inverse, result).astype(x.dtype)


def multiply_high(x: Array, y: Array) -> Array:
    """The upper half of the bits of the exact product."""
    kind = element_type(x.dtype)
    if kind.bits < 64:
        wide = np.int64 if kind.kind == "signed" else np.uint64
        return (x.astype(wide) * y.astype(wide) >> wide(kind.bits)).astype(x.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    middle = (a >> half) * (b & low) + ((a & low) * (b & low) >> half)
    carried = (middle & low) + (a & low) * (b >> half) >> half
    upper = ((a >> half) * (b >> half) + (middle >> half) + carried).astype(x.dtype)
    return upper if kind.kind == "unsigned" else upper - np.where(x < 0, y, 0) - np.where(y < 0, x, 0)


def _in_width(x: Array, count: Array) -> tuple[Array, Array]:
    """The shift counts as unsigned numbers, made harmless, and which were inside the width."""
    unsigned = _pattern(count)
    inside = unsigned < element_type(x.dtype).bits
    return np.where(inside, unsigned, 0).astype(unsigned.dtype), inside


def shift_left(x: Array, count: Array) -> Array:
    safe, inside = _in_width(x, count)
    return np.where(inside, _pattern(x) << safe, 0).astype(safe.dtype).astype(x.dtype)


def shift_right_arithmetic(x: Array, count: Array) -> Array:
    safe, inside = _in_width(x, count)
    above = 8 * x.dtype.itemsize - element_type(x.dtype).bits
    signed = (_pattern(x) << safe.dtype.type(above)).view(f"i{x.dtype.itemsize}") >> above
    shifted = np.where(inside, signed >> safe.astype(signed.dtype), np.where(signed < 0, -1, 0))
    return shifted.astype(signed.dtype).astype(x.dtype)


def shift_right_logical(x: Array, count: Array) -> Array:
    safe, inside = _in_width(x, count)
    return np.where(inside, _pattern(x) >> safe, 0).astype(safe.dtype).astype(x.dtype)


def count_leading_zeros(x: Array) -> Array:
    width = element_type(x.dtype).bits
    value = _pattern(x)
    count = np.full(x.shape, width, np.int64)
    for bit in range(width):
        count = np.where((value >> value.dtype.type(bit)) & 1, width - 1 - bit, count)
    return count.astype(np.int8).astype(x.dtype)


def population_count(x: Array) -> Array:
    return np.bitwise_count(_pattern(x)).astype(np.int8).astype(x.dtype)


def total_order(x: Array) -> Array:
    """Signed integers in the order -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN of the floats x. The NaN of a type
    without -0, which has its bits, is -NaN."""
    kind = element_type(x.dtype)
    if kind.name == "f8e8m0fnu":  # which has no sign
        return x.view(np.uint8).astype(np.int16)
    if kind.bits < 8 or kind.name.endswith("fnuz"):  # the sign is not the highest bit of the byte, or says NaN
        wide = x.astype(np.float32)
        x = np.where(np.isnan(wide), np.copysign(wide, np.float32(-1)), wide)
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """By value. Float to integer truncates, saturates at the ends and takes NaN to 0, as XLA on CPU; complex to real
    drops the imaginary part; anything to bool asks whether it differs from zero."""
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = np.real(x)
    if dtype.kind == "b":
        return np.asarray(x != 0)
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
    widest = np.uint64 if low == 0 else np.int64
    if inside.all():  # as in most calls: there is nothing to choose
        return np.asarray(wide).astype(widest).astype(dtype)
    integer = np.where(inside, wide, 0.0).astype(widest)
    ends = np.where(wide < low, low, high if low else np.uint64(high))
    return np.where(inside | np.isnan(wide), integer, ends.astype(integer.dtype)).astype(dtype)
