"""The two floating-point formats that the scalar math computes in, and the polynomials evaluated over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyxla.scalar_math.scalar import Scalar


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """What IEEE 754 says of a binary format, as Python numbers.

    Adding `round_to_integer` to a small number leaves its nearest integer in the low bits of the sum, in two's
    complement; subtracting it again gives that integer as a float.
    """

    type: str
    signed: str  # the integer types of the same width
    unsigned: str
    width: int
    mantissa_bits: int
    bias: int
    smallest_normal: float
    largest: float

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity_bits(self) -> int:
        return (2 * self.bias + 1) << self.mantissa_bits

    @property
    def mantissa_mask(self) -> int:
        return (1 << self.mantissa_bits) - 1

    @property
    def round_to_integer(self) -> float:
        return 1.5 * 2.0**self.mantissa_bits

    @property
    def round_to_integer_bits(self) -> int:
        return (self.bias + self.mantissa_bits << self.mantissa_bits) + (1 << self.mantissa_bits - 1)


F32 = FloatFormat("f32", "s32", "u32", 32, 23, 127, 2.0**-126, (2 - 2.0**-23) * 2.0**127)
F64 = FloatFormat("f64", "s64", "u64", 64, 52, 1023, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023)
FORMATS = {"f32": F32, "f64": F64}


def format_of(x: Scalar) -> FloatFormat:
    if x.type not in FORMATS:
        raise TypeError(f"The scalar math computes in f32 and f64, not in {x.type}: convert the operand first.")
    return FORMATS[x.type]


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """The sum of coefficients[k] x^k. There must be two at least.

    The upper part of a long one is evaluated as an even and an odd polynomial, which nearly halves the chain of
    operations that wait for each other. The first coefficients are left out of that: there the two parts may cancel.
    """
    if len(coefficients) <= 10:
        *lower, before_last, last = coefficients
        result = x.fma(last, before_last)
    else:
        lower, upper = coefficients[:3], coefficients[3:]
        square = x * x
        result = x.fma(polynomial(square, upper[1::2]), polynomial(square, upper[0::2]))
    for coefficient in reversed(lower):
        result = result.fma(x, coefficient)
    return result


def constant(like: Scalar, value: float) -> Scalar:
    """A number as a scalar of the floating type that `like` has."""
    bits = like.bits()
    return (bits ^ bits).bitcast(like.type) + value


def power_of_two(exponent: Scalar, form: FloatFormat) -> Scalar:
    """2 to an integer (of the format's unsigned type, in two's complement; only its low bits count) in normal range."""
    return ((exponent + form.bias) << form.mantissa_bits).bitcast(form.type)
