"""Integer arithmetic that never traps, bit counting, rounding, and conversions between element types.

Where processors disagree (division by zero, shifts by more than the width, conversions out of range) these give what
XLA on CPU gives.
"""

from __future__ import annotations

from tinyxla.scalar_math.float_formats import FORMATS, constant, format_of
from tinyxla.scalar_math.scalar import Scalar

__all__ = [
    "absolute",
    "convert",
    "count_leading_zeros",
    "divide",
    "divide_in_vectors",
    "multiply_high",
    "population_count",
    "power",
    "reduce_precision",
    "rem",
    "remainder",
    "remainder_in_vectors",
    "round_afz",
    "round_even",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "total_order",
]


def is_integer(type: str) -> bool:
    return type[0] in "su"


def is_signed(type: str) -> bool:
    return type[0] == "s"


def width_of(type: str) -> int:
    """The width of an integer or floating type in bits."""
    return int(type[1:])


def limits(type: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    width = width_of(type)
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if is_signed(type) else (0, (1 << width) - 1)


def _safe_divisor(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Whether y is zero; and y, or 1 where dividing by y would trap. x // 1 and x % 1 are right for the overflow."""
    zero = y.equal(0)
    unsafe = zero
    if is_signed(x.type):
        unsafe = zero | (x.equal(limits(x.type)[0]) & y.equal(-1))
    return zero, unsafe.where(1, y)


def divide(x: Scalar, y: Scalar) -> Scalar:
    """The integer quotient, truncated: all ones for y = 0; the smallest integer divided by -1 is itself."""
    zero, divisor = _safe_divisor(x, y)
    return zero.where(-1, x // divisor)


def remainder(x: Scalar, y: Scalar) -> Scalar:
    """The remainder of the truncated quotient, with the sign of x: x for y = 0."""
    zero, divisor = _safe_divisor(x, y)
    return zero.where(x, x % divisor)


def divide_in_vectors(x: Scalar, y: Scalar) -> Scalar:
    """`divide` of up to 32 bits without the processors' division of integers, which does not come in vectors."""
    return y.equal(0).where(-1, _quotient_by_floats(x, y))


def remainder_in_vectors(x: Scalar, y: Scalar) -> Scalar:
    """`remainder` of up to 32 bits likewise."""
    return y.equal(0).where(x, x - _quotient_by_floats(x, y) * y)


def _quotient_by_floats(x: Scalar, y: Scalar) -> Scalar:
    """x / y truncated; anything for y = 0. The reciprocal of a y that does not change is taken once for a loop."""
    # (|x| + 1/2) / |y| is at least 1 / (2 |y|) away from every integer, and two roundings carry it less far as long as
    # |x| + 1/2 is below a quarter of what the mantissa counts to.
    wide = "f32" if width_of(x.type) <= 16 else "f64"
    dividend = x.to(wide)
    half = constant(dividend, 0.5)
    quotient = (dividend + (half.copysign(dividend) if is_signed(x.type) else half)) * (1.0 / y.to(wide))
    if not is_signed(x.type):
        return quotient.to(x.type)
    return y.equal(-1).where(-x, quotient.to(x.type))  # the smallest integer's would not fit


def power(x: Scalar, y: Scalar) -> Scalar:
    """x to the y, wrapping. For y < 0 the quotient 1 / x^-y truncated: 0 but for x = 1 and x = -1; and 0 for x = 0.

    Where y is not below the width, the power of an even number is 0 and that of 1 or -1 follows from whether y is odd;
    the rest have wrapped around.
    """
    few = 6 if width_of(x.type) > 32 else 5
    result, base = _by_squares((y & 1).not_equal(0).where(x, 1), x, y, range(1, few))
    is_large, is_even, unit = y >= 1 << few, (x & 1).equal(0), x.equal(1)
    if is_signed(x.type):
        unit = unit | x.equal(-1)
    usual = (is_large & is_even).where(0, result)
    has_wrapped = is_large & ~(is_even | unit)
    (found,) = has_wrapped.slow_path(lambda: [_by_squares(result, base, y, range(few, width_of(y.type)))[0]], [usual])
    return ((y < 0) & ~unit).where(0, found) if is_signed(y.type) else found


def _by_squares(result: Scalar, base: Scalar, y: Scalar, bits: range) -> tuple[Scalar, Scalar]:
    """The result with what these bits of an exponent multiply it by, and the base to the highest of them."""
    for bit in bits:
        base = base * base
        result = ((y >> bit) & 1).not_equal(0).where(result * base, result)
    return result, base


def multiply_high(x: Scalar, y: Scalar) -> Scalar:
    """The upper half of the bits of the exact product."""
    width = width_of(x.type)
    if width < 64:
        wide = "s64" if is_signed(x.type) else "u64"
        return (x.to(wide) * y.to(wide) >> width).to(x.type)
    low = 0xFFFFFFFF
    a, b = x.bits(), y.bits()
    middle = (a >> 32) * (b & low) + ((a & low) * (b & low) >> 32)
    carried = (middle & low) + (a & low) * (b >> 32) >> 32
    upper = (a >> 32) * (b >> 32) + (middle >> 32) + carried
    if not is_signed(x.type):
        return upper
    return upper.bitcast(x.type) - (x < 0).where(y, 0) - (y < 0).where(x, 0)


def shift_left(x: Scalar, count: Scalar) -> Scalar:
    """x << count; 0 if the count is negative or not below the width."""
    inside = count.bits() < width_of(x.type)
    return inside.where(x << inside.where(count, 0), 0)


def shift_right_logical(x: Scalar, count: Scalar) -> Scalar:
    """x >> count with zeros shifted in; 0 if the count is negative or not below the width."""
    inside = count.bits() < width_of(x.type)
    return inside.where(x.bits() >> inside.where(count, 0).bits(), 0).bitcast(x.type)


def shift_right_arithmetic(x: Scalar, count: Scalar) -> Scalar:
    """x >> count with the sign bit shifted in; only signs are left if the count is negative or not below the width."""
    width = width_of(x.type)
    signed = f"s{width}"
    inside = count.bits() < width
    return (x.bitcast(signed) >> inside.where(count, width - 1).bitcast(signed)).bitcast(x.type)


def count_leading_zeros(x: Scalar) -> Scalar:
    return x.count_leading_zeros()


def population_count(x: Scalar) -> Scalar:
    return x.population_count()


def absolute(x: Scalar) -> Scalar:
    """The absolute value; that of the smallest integer wraps to itself."""
    return x.abs()


def sign(x: Scalar) -> Scalar:
    """-1, 0 or 1; zeros of either sign and NaN are kept."""
    if not is_integer(x.type):
        return (x.abs() > 0.0).where(constant(x, 1.0).copysign(x), x)
    nothing = x ^ x
    below = (x < 0).where(-1, nothing) if is_signed(x.type) else nothing
    return (x > 0).where(1, below)


def rem(x: Scalar, y: Scalar) -> Scalar:
    """The remainder of the truncated quotient, exact, with the sign of x: C's fmod; `remainder` for integers."""
    if is_integer(x.type):
        return remainder(x, y)
    if x.type not in FORMATS:
        return x % y
    # A quotient of few bits is right but for having been rounded up, and then what is left is exact. It must not be
    # subnormal, which may count as zero.
    form, size, divisor = format_of(x), x.abs(), y.abs()
    quotient = (size / divisor).trunc()
    left = (-quotient).fma(divisor, size)
    left = (left < 0.0).where(left + divisor, left)
    left = quotient.equal(0.0).where(size, left)
    usual = (left.bits() ^ (x.bits() & form.sign_bit)).bitcast(x.type)
    is_tiny = divisor < form.smallest_normal * 2.0 ** (form.mantissa_bits + 2)
    is_far = size >= divisor * 2.0 ** (form.mantissa_bits - 1)
    is_rare = (is_far | is_tiny) & divisor.bits().not_equal(0)  # where what is left of x / 0 is NaN already
    return is_rare.slow_path(lambda: [x % y], [usual])[0]


def round_afz(x: Scalar) -> Scalar:
    """To the nearest integer, ties away from zero."""
    # The largest number below a half: adding a half itself would carry numbers just below a tie over it.
    below_half = 0.5 - 2.0 ** -(format_of(x).mantissa_bits + 2)
    return (x + constant(x, below_half).copysign(x)).trunc()


def round_even(x: Scalar) -> Scalar:
    """To the nearest integer, ties to even."""
    return x.rint()


def convert(x: Scalar, type: str) -> Scalar:
    """By value. Floats become integers by truncation, saturating; NaN becomes 0. Integers wrap."""
    if type == "pred":
        return x if x.type == "pred" else x.not_equal(0)
    if x.type not in FORMATS or type in FORMATS:
        return x.to(type)
    low, high = limits(type)
    more = max(0, high.bit_length() - format_of(x).mantissa_bits - 1)  # bits than the float has
    last = high >> more << more
    converted = x.equal(x).where(x, 0.0).clip(float(low), float(last)).to(type)
    return (x > float(last)).where(high, converted) if more else converted


def total_order(x: Scalar) -> Scalar:
    """A signed integer of the float's width whose order is IEEE 754's total order, section 5.10: -NaN to NaN."""
    form = format_of(x)
    bits = x.bitcast(form.signed)
    magnitude_bits = (bits >> (form.width - 1)) & (form.sign_bit - 1)
    return bits ^ magnitude_bits


def reduce_precision(x: Scalar, exponent_bits: int, mantissa_bits: int) -> Scalar:
    """x as a format with fewer bits would hold it: ties to even, overflow to infinity, subnormals to zero, NaN kept."""
    form = format_of(x)
    sign_bits, bits = x.bits() & form.sign_bit, x.bits() & (form.sign_bit - 1)
    dropped = form.mantissa_bits - mantissa_bits
    if dropped > 0:
        last = (bits >> dropped) & 1
        bits = (bits + ((1 << (dropped - 1)) - 1) + last) & ~((1 << dropped) - 1)
    bias = (1 << (min(exponent_bits, form.width) - 1)) - 1
    if bias < form.bias:
        exponent = bits >> form.mantissa_bits
        bits = (exponent > form.bias + bias).where(form.infinity_bits, bits)
        bits = (exponent <= form.bias - bias).where(0, bits)
    return x.not_equal(x).where(x, (bits | sign_bits).bitcast(form.type))
