"""Scalars that are whole NumPy arrays: what the scalar math runs on when its accuracy is tested.

`NumpyScalar` follows the `Scalar` protocol to the letter, fused multiply-add included, so that a result here is the
result that compiled code gives bit for bit. It is written for exactness, not for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tinyxla.scalar_math.scalar import Operand, Scalar

AnyArray = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    "s8": np.dtype(np.int8),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
    "s64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
TYPES = {dtype: name for name, dtype in DTYPES.items()}


class NumpyScalar:
    """An array that stands for one element of a kernel, at every position at once. See `Scalar` for the operations."""

    __slots__ = ("array", "type")

    def __init__(self, array: AnyArray) -> None:
        if array.dtype not in TYPES:
            raise TypeError(f"A scalar cannot hold {array.dtype}: convert the array to one of {', '.join(DTYPES)}.")
        self.array = array
        self.type = TYPES[array.dtype]

    def __repr__(self) -> str:
        return f"NumpyScalar({self.array!r})"

    def _of(self, other: Operand) -> AnyArray:
        """The operand as an array of this scalar's type; Python integers wrap into it."""
        if isinstance(other, NumpyScalar):
            if other.type != self.type:
                raise TypeError(f"Scalars of types {self.type} and {other.type} do not mix: convert one with .to().")
            return other.array
        if not isinstance(other, (bool, int, float)):
            raise TypeError(f"A NumpyScalar takes NumpyScalars and Python numbers, not {type(other).__name__}.")
        dtype = self.array.dtype
        if dtype.kind not in "iu":
            return np.full((), other, dtype)
        width = 8 * dtype.itemsize
        return np.full((), int(other) % 2**width, f"u{dtype.itemsize}").view(dtype)

    def _require(self, kinds: str, operation: str) -> None:
        if self.array.dtype.kind not in kinds:
            raise TypeError(f"{operation} is not defined for {self.type}: convert the scalar with .to() first.")

    def __add__(self, other: Operand) -> NumpyScalar:
        self._require("iuf", "Addition")
        with np.errstate(all="ignore"):
            return NumpyScalar(self.array + self._of(other))

    def __radd__(self, other: Operand) -> NumpyScalar:
        return self + other

    def __sub__(self, other: Operand) -> NumpyScalar:
        self._require("iuf", "Subtraction")
        with np.errstate(all="ignore"):
            return NumpyScalar(self.array - self._of(other))

    def __rsub__(self, other: Operand) -> NumpyScalar:
        return NumpyScalar(np.broadcast_to(self._of(other), self.array.shape)) - self

    def __mul__(self, other: Operand) -> NumpyScalar:
        self._require("iuf", "Multiplication")
        with np.errstate(all="ignore"):
            return NumpyScalar(self.array * self._of(other))

    def __rmul__(self, other: Operand) -> NumpyScalar:
        return self * other

    def __truediv__(self, other: Operand) -> NumpyScalar:
        self._require("f", "True division")
        with np.errstate(all="ignore"):
            return NumpyScalar(self.array / self._of(other))

    def __rtruediv__(self, other: Operand) -> NumpyScalar:
        return NumpyScalar(np.broadcast_to(self._of(other), self.array.shape)) / self

    def __floordiv__(self, other: Operand) -> NumpyScalar:
        self._require("iu", "Truncating division")
        divisor = self._of(other)
        with np.errstate(all="ignore"):
            quotient = np.floor_divide(self.array, divisor)
            inexact = quotient * divisor != self.array
            below_zero = (self.array < 0) != (divisor < 0)
            return NumpyScalar(quotient + (inexact & below_zero).astype(quotient.dtype))

    def __mod__(self, other: Operand) -> NumpyScalar:
        self._require("iuf", "The remainder")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.fmod(self.array, self._of(other)))

    def __neg__(self) -> NumpyScalar:
        self._require("iuf", "Negation")
        with np.errstate(all="ignore"):
            return NumpyScalar(-self.array)

    def __and__(self, other: Operand) -> NumpyScalar:
        self._require("biu", "And")
        return NumpyScalar(self.array & self._of(other))

    def __or__(self, other: Operand) -> NumpyScalar:
        self._require("biu", "Or")
        return NumpyScalar(self.array | self._of(other))

    def __xor__(self, other: Operand) -> NumpyScalar:
        self._require("biu", "Xor")
        return NumpyScalar(self.array ^ self._of(other))

    def __invert__(self) -> NumpyScalar:
        self._require("biu", "Not")
        return NumpyScalar(~self.array)

    def __lshift__(self, other: Operand) -> NumpyScalar:
        self._require("iu", "A shift")
        return NumpyScalar(self.array << self._of(other))

    def __rshift__(self, other: Operand) -> NumpyScalar:
        self._require("iu", "A shift")
        return NumpyScalar(self.array >> self._of(other))

    def _compared(self, relation: np.ufunc, other: Operand) -> NumpyScalar:
        with np.errstate(all="ignore"):  # signalling NaNs
            return NumpyScalar(np.asarray(relation(self.array, self._of(other))))

    def __lt__(self, other: Operand) -> NumpyScalar:
        return self._compared(np.less, other)

    def __le__(self, other: Operand) -> NumpyScalar:
        return self._compared(np.less_equal, other)

    def __gt__(self, other: Operand) -> NumpyScalar:
        return self._compared(np.greater, other)

    def __ge__(self, other: Operand) -> NumpyScalar:
        return self._compared(np.greater_equal, other)

    def equal(self, other: Operand) -> NumpyScalar:
        return self._compared(np.equal, other)

    def not_equal(self, other: Operand) -> NumpyScalar:
        return self._compared(np.not_equal, other)

    def fma(self, factor: Operand, addend: Operand) -> NumpyScalar:
        self._require("f", "A fused multiply-add")
        fused = _fused_f32 if self.type == "f32" else _fused_f64
        with np.errstate(all="ignore"):
            return NumpyScalar(fused(self.array, self._of(factor), self._of(addend)))

    def abs(self) -> NumpyScalar:
        self._require("iuf", "The absolute value")
        return NumpyScalar(np.absolute(self.array))

    def sqrt(self) -> NumpyScalar:
        self._require("f", "The square root")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.sqrt(self.array))

    def rint(self) -> NumpyScalar:
        self._require("f", "Rounding")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.rint(self.array))

    def floor(self) -> NumpyScalar:
        self._require("f", "Rounding")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.floor(self.array))

    def ceil(self) -> NumpyScalar:
        self._require("f", "Rounding")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.ceil(self.array))

    def trunc(self) -> NumpyScalar:
        self._require("f", "Rounding")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.trunc(self.array))

    def copysign(self, sign: Operand) -> NumpyScalar:
        self._require("f", "Copying a sign")
        return NumpyScalar(np.copysign(self.array, self._of(sign)))

    def minimum(self, other: Operand) -> NumpyScalar:
        return self._extremum(np.minimum, self._of(other), zero_keeps_sign=np.logical_or)

    def maximum(self, other: Operand) -> NumpyScalar:
        return self._extremum(np.maximum, self._of(other), zero_keeps_sign=np.logical_and)

    def _extremum(self, function: np.ufunc, other: AnyArray, zero_keeps_sign: np.ufunc) -> NumpyScalar:
        """NumPy leaves open which of -0 and +0 is the smaller; here -0 is."""
        with np.errstate(all="ignore"):
            result = cast(AnyArray, function(self.array, other))
        if self.array.dtype.kind != "f":
            return NumpyScalar(np.asarray(result))
        negative = zero_keeps_sign(np.signbit(self.array), np.signbit(other))
        zero = np.where(negative, -0.0, 0.0).astype(self.array.dtype)
        return NumpyScalar(np.where((self.array == 0) & (other == 0), zero, result))

    def clip(self, low: float, high: float) -> NumpyScalar:
        self._require("f", "Clipping")
        raised = (self > low).where(self, low)
        return (raised < high).where(raised, high)

    def where(self, on_true: Operand, on_false: Operand) -> NumpyScalar:
        self._require("b", "A choice")
        scalar = on_true if isinstance(on_true, NumpyScalar) else on_false
        if not isinstance(scalar, NumpyScalar):
            raise TypeError("A choice between two Python numbers has no type: make one of them a scalar.")
        return NumpyScalar(np.where(self.array, scalar._of(on_true), scalar._of(on_false)))

    @property
    def branches(self) -> bool:
        return False

    def slow_path(self, on_true: Callable[[], Sequence[Scalar]], on_false: Sequence[Scalar]) -> Sequence[Scalar]:
        return [self.where(x, y) for x, y in zip(on_true(), on_false, strict=True)]

    def to(self, type: str) -> NumpyScalar:
        with np.errstate(all="ignore"):
            return NumpyScalar(self.array.astype(DTYPES[type]))

    def bits(self) -> NumpyScalar:
        self._require("iuf", "A bit pattern")
        return NumpyScalar(self.array.view(f"u{self.array.dtype.itemsize}"))

    def bitcast(self, type: str) -> NumpyScalar:
        if DTYPES[type].itemsize != self.array.dtype.itemsize:
            raise TypeError(f"{self.type} and {type} differ in width: a bitcast keeps the width.")
        return NumpyScalar(self.array.view(DTYPES[type]))

    def ldexp(self, exponent: Scalar) -> NumpyScalar:
        integers = cast("NumpyScalar", exponent).array.astype(f"i{self.array.dtype.itemsize}")
        with np.errstate(all="ignore"):
            return NumpyScalar(np.ldexp(self.array, integers))

    def count_leading_zeros(self) -> NumpyScalar:
        self._require("iu", "Counting zeros")
        filled = self.bits().array.copy()
        width = 8 * filled.dtype.itemsize
        step = 1
        while step < width:
            filled |= filled >> filled.dtype.type(step)
            step *= 2
        return NumpyScalar((width - np.bitwise_count(filled)).astype(self.array.dtype))

    def population_count(self) -> NumpyScalar:
        self._require("iu", "Counting ones")
        return NumpyScalar(np.bitwise_count(self.bits().array).astype(self.array.dtype))


def _two_sum(a: AnyArray, b: AnyArray) -> tuple[AnyArray, AnyArray]:
    """a + b as the rounded sum and its exact error (Knuth, The Art of Computer Programming, 4.2.2)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _rounded_to_odd(total: AnyArray, error: AnyArray, last_bit_odd: AnyArray) -> AnyArray:
    """`total` + `error`, rounded to the neighbour whose last bit is odd unless exact.

    A value that was rounded to odd with two bits to spare rounds again without a double-rounding error (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008).
    """
    moves = np.isfinite(total) & (error != 0) & ~last_bit_odd
    return np.where(moves, np.nextafter(total, np.where(error > 0, np.inf, -np.inf).astype(total.dtype)), total)


def _fused_f32(a: AnyArray, b: AnyArray, c: AnyArray) -> AnyArray:
    """Products of two f32 are exact in f64; the sum is rounded to odd there, then to f32."""
    total, error = _two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    return _rounded_to_odd(total, error, (total.view(np.uint64) & np.uint64(1)) != 0).astype(np.float32)


def _fused_f64(a: AnyArray, b: AnyArray, c: AnyArray) -> AnyArray:
    """The exact product as a pair of longdoubles (which have exponents to spare), plus c, rounded to odd, then to f64.

    Needs a longdouble of at least 64 bits; where NumPy has only 53 (Windows), extreme exponents lose exactness.
    """
    wide_a, wide_b, wide_c = (np.asarray(v).astype(np.longdouble) for v in (a, b, c))
    a_high, b_high = (_upper_half(v).astype(np.longdouble) for v in (a, b))
    a_low, b_low = wide_a - a_high, wide_b - b_high
    product = wide_a * wide_b
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    error = np.where(np.isfinite(product), error, 0)
    high, low = _two_sum(wide_c, product)
    middle, lowest = _two_sum(low, error)
    total, rest = _two_sum(high, middle)
    exact_rest = np.where(rest != 0, rest, lowest)
    half = total / np.where(total == 0, 1, np.spacing(np.abs(total))) / 2
    fused = _rounded_to_odd(total, exact_rest, half != np.rint(half))
    plain = product + wide_c
    regular = np.isfinite(plain) & (total != 0)  # an exact zero has the sign that plain addition gives it
    return np.where(regular, fused, plain).astype(np.float64)


def _upper_half(value: AnyArray) -> AnyArray:
    """The upper 26 bits of the significand: what remains fits in 27, so that products of halves are exact."""
    return (np.asarray(value).view(np.uint64) & np.uint64(0xFFFFFFFFF8000000)).view(np.float64)
