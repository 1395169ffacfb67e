"""Sine, cosine, tangent and the two-argument arctangent, without branches and right for every argument.

Arguments of ordinary size are reduced in three fused steps after Cody and Waite; huge ones by multiplying with the bits
of 1 / (2 pi) that matter for them, after Payne and Hanek (for both see Muller, Elementary Functions, third edition,
chapter 11). In vectors both reductions are computed, and one is chosen. The second costs more than all the rest;
`huge=False` leaves it out, for loops whose arguments are known to stay within `REDUCTION_LIMIT`.

What is left of the argument is at most pi / 4, where sine, cosine and tangent have short polynomials, which are fitted
as those in `exponentials`. The sine and the cosine of one argument share all work but the last choice, and
`sin_and_cos` says so.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from tinyxla.scalar_math.float_formats import F32, F64, FloatFormat, constant, format_of, polynomial
from tinyxla.scalar_math.scalar import Scalar

__all__ = ["atan2", "cos", "cospi", "sin", "sin_and_cos", "sinpi", "tan"]

REDUCTION_LIMIT = {"f32": 2.0**17, "f64": 2.0**20}

# pi as three numbers of the format, each the nearest to what the ones before it miss.
PI = {
    "f32": (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
    "f64": (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
}
SIN = {
    # (sin(r) - r) / r^3 as a polynomial in r^2 for |r| <= pi / 4, 2^-27.9 of sin(r)
    "f32": (-0.16666655, 0.008332189, -0.00019518276),
    # 2^-57.9
    "f64": (
        -0.1666666666666663,
        0.00833333333332184,
        -0.00019841269829358541,
        2.7557313538523594e-06,
        -2.5050734391368607e-08,
        1.5895433444260332e-10,
    ),
}
COS = {
    # (cos(r) - 1 + r^2 / 2) / r^4 as a polynomial in r^2 for |r| <= pi / 4, 2^-33.0 of cos(r)
    "f32": (0.041666646, -0.001388731, 2.4432327e-05),
    # 2^-63.9
    "f64": (
        0.041666666666666595,
        -0.0013888888888873333,
        2.4801587288992884e-05,
        -2.7557314213559435e-07,
        2.087570483398233e-09,
        -1.1358716314514666e-11,
    ),
}
TAN = {
    # (tan(r) - r) / r^3 as a polynomial in r^2 for |r| <= pi / 4, 2^-29.3 of tan(r)
    "f32": (0.33333352, 0.13332577, 0.054069865, 0.021230115, 0.010972176, -8.4607746e-05, 0.0044626114),
    # 2^-59.7
    "f64": (
        0.33333333333333387,
        0.13333333333324476,
        0.053968253973374805,
        0.021869488386381544,
        0.008863238131997362,
        0.0035920986891901704,
        0.0014560611458987961,
        0.000588786549919766,
        0.0002440302744966577,
        8.284149717414841e-05,
        6.853457010338923e-05,
        -2.7302213188918583e-05,
        5.0035527762194574e-05,
        -2.4970486224243248e-05,
        9.954774833400471e-06,
    ),
}
ATAN = {
    # (atan(q) - q) / q^3 as a polynomial in q^2 for |q| <= 1, 2^-28.5 of atan(q)
    "f32": (
        -0.333333,
        0.1999853,
        -0.14264016,
        0.1095088,
        -0.08399298,
        0.057881046,
        -0.031096324,
        0.010868093,
        -0.0017826211,
    ),
    # 2^-57.6
    "f64": (
        -0.3333333333333307,
        0.1999999999995175,
        -0.14285714282588197,
        0.11111111007345364,
        -0.09090907007854207,
        0.07692279889496886,
        -0.06666404427630374,
        0.05880529831809846,
        -0.052535268841634314,
        0.04722348719813753,
        -0.04219244571556825,
        0.03664318183387942,
        -0.029905784881842555,
        0.02198712693436297,
        -0.013902625716171159,
        0.007197918896448876,
        -0.0028856259946405177,
        0.0008315650619200996,
        -0.0001522122547326094,
        1.3230105308821954e-05,
    ),
}

# The first 1216 bits of 1 / (2 pi), after the point.
TURN_BITS = 1216
TURN = int(
    "28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107F9458EAF7AEF1586DC91B8E9093"
    "74B801924BBA827464873F877AC72C4A69CFBA208D7D4BAED1213A671C09AD17DF904E64758E"
    "60D4CE7D272117E2EF7E4A0EC7FE25FFF7816603FBCBC462D6829B47DB4D9FB3C9F2C26DD3D1"
    "8FD9A797FA8B5D49EEB1FAF97C5ECF41CE7DE294A4BA9AFED7EC47E357421580CC11BF1EDAEA",
    16,
)


class _Reduced(NamedTuple):
    """The argument less n pi / 2, as a sum of two numbers; n is an unsigned integer, of which the last two bits
    count."""

    high: Scalar
    low: Scalar
    n: Scalar


def _quarter_turn(form: FloatFormat) -> tuple[float, ...]:
    return tuple(part / 2 for part in PI[form.type])


def _reduce(x: Scalar, huge: bool) -> _Reduced:
    """Reduce x >= 0. Infinity and NaN become NaN. Small arguments skip the reduction where branches exist."""
    if x.branches:
        nothing = x.bits() ^ x.bits()
        unchanged = (x, nothing.bitcast(x.type), nothing)
        return _Reduced(*(x > math.pi / 4).slow_path(lambda: _reduce_any(x, huge), unchanged))
    return _reduce_any(x, huge)


def _reduce_any(x: Scalar, huge: bool) -> _Reduced:
    form = format_of(x)
    usual = _reduce_usual(x, form)
    if not huge:
        return usual
    chosen = (x > REDUCTION_LIMIT[form.type]) & (x <= form.largest)
    reduce_huge = _reduce_huge_f32 if form.type == "f32" else _reduce_huge_f64
    return _Reduced(*chosen.slow_path(lambda: reduce_huge(x), usual))


def _reduce_usual(x: Scalar, form: FloatFormat) -> _Reduced:
    """Cody and Waite's way. The first step is exact."""
    first, second, third = _quarter_turn(form)
    shifted = x.fma(1 / first, form.round_to_integer)
    n = shifted - form.round_to_integer
    r = n.fma(-first, x)
    step = n * second
    high = r - step
    low = ((r - high) - step) - n.fma(third, n.fma(second, -step))
    return _Reduced(high, low, shifted.bits())


def _turn_bits(offset: Scalar, zeros: int, choices: int, count: int) -> list[Scalar]:
    """`count` words of 1 / (2 pi) from bit `offset` (a u64 below 64 * 2^choices) on, after `zeros` zero bits.

    The upper bits of the offset choose words: each bit moves the whole list or leaves it. The lower six shift within.
    """
    nothing = offset ^ offset
    words = [
        nothing + (TURN >> (TURN_BITS + zeros - 64 * (index + 1)) & (2**64 - 1)) for index in range(count + 2**choices)
    ]
    for level in reversed(range(choices)):
        step = 2**level
        moved = ((offset >> (6 + level)) & 1).not_equal(0)
        words = [moved.where(words[index + step], words[index]) for index in range(count + step)]
    shift = offset & 63
    return [(word << shift) | ((following >> 1) >> (shift ^ 63)) for word, following in pairwise(words)]


def _significand_and_offset(x: Scalar, form: FloatFormat, zeros: int) -> tuple[Scalar, Scalar]:
    """x = significand * 2^(offset - zeros), both as u64: the fraction of a turn is the significand times the bits of
    1 / (2 pi) from the offset on."""
    bits = x.bits().to("u64")
    significand = (bits & form.mantissa_mask) | (1 << form.mantissa_bits)
    return significand, (bits >> form.mantissa_bits) - (form.bias + form.mantissa_bits - zeros)


def _reduce_huge_f32(x: Scalar) -> _Reduced:
    """Payne and Hanek's way: 64 bits of the fraction of a turn, of which cancellation takes 32 at most."""
    zeros = 6  # what arguments just above the reduction limit need
    significand, offset = _significand_and_offset(x, F32, zeros)
    upper, lower = _turn_bits(offset, zeros, choices=1, count=2)
    turns = significand * upper + ((significand * (lower >> 32)) >> 32)
    n = (turns + (1 << 61)) >> 62
    remainder = (turns << 2).bitcast("s64").to("f64") * (sum(_quarter_turn(F32)) * 2.0**-64)
    high = remainder.to("f32")
    return _Reduced(high, (remainder - high.to("f64")).to("f32"), n.to("u32"))


def _reduce_huge_f64(x: Scalar) -> _Reduced:
    """Payne and Hanek's way: 128 bits of the fraction of a turn, of which cancellation takes 64 at most."""
    zeros = 32
    significand, offset = _significand_and_offset(x, F64, zeros)
    upper, middle, lower = _turn_bits(offset, zeros, choices=4, count=3)
    product = significand * middle
    turns_low = product + _high_product(significand, lower)
    carry = (turns_low < product).to("u64")
    turns = significand * upper + _high_product(significand, middle) + carry
    n = (turns + (1 << 61)) >> 62
    remainder = (turns << 2) | (turns_low >> 62)
    # The remainder is signed. Its magnitude (up to 2^-128) goes into two floats, the first without rounding.
    negative = remainder.bitcast("s64") < 0
    magnitude = negative.where(~remainder, remainder)
    magnitude_low = negative.where(~(turns_low << 2), turns_low << 2)
    top = (magnitude & ~0x7FF).bitcast("s64").to("f64")
    rest = (magnitude_low >> 1).bitcast("s64").to("f64").fma(2.0**-63, (magnitude & 0x7FF).bitcast("s64").to("f64"))
    first, second, _ = (part * 2.0**-64 for part in _quarter_turn(F64))
    product_high = top * first
    product_low = top.fma(first, -product_high) + top.fma(second, rest * first)
    high = negative.where(-product_high, product_high)
    low = negative.where(-product_low, product_low)
    return _Reduced(high, low, n)


def _high_product(a: Scalar, b: Scalar) -> Scalar:
    """The upper half of the product of two u64."""
    word = 2**32 - 1
    a_high, a_low, b_high, b_low = a >> 32, a & word, b >> 32, b & word
    middle = a_low * b_high + ((a_low * b_low) >> 32)
    other = a_high * b_low + (middle & word)
    return a_high * b_high + (middle >> 32) + (other >> 32)


class _Waves(NamedTuple):
    """The sine and cosine of what is left of an argument after n quarter turns."""

    sine: Scalar
    cosine: Scalar
    n: Scalar
    form: FloatFormat

    def sine_of(self, x: Scalar) -> Scalar:
        return (self.after(self.n) ^ (x.bits() & self.form.sign_bit)).bitcast(self.form.type)

    def cosine_of(self) -> Scalar:
        """As the sine of the argument and a quarter turn."""
        return self.after(self.n + 1).bitcast(self.form.type)

    def after(self, quarters: Scalar) -> Scalar:
        """The bits of the sine after so many quarter turns."""
        value = (quarters & 1).equal(0).where(self.sine, self.cosine)
        return value.bits() ^ ((quarters >> 1) << (self.form.width - 1))


def _waves(x: Scalar, huge: bool) -> _Waves:
    return _waves_of(_reduce(x.abs(), huge), format_of(x))


def _waves_of(reduced: _Reduced, form: FloatFormat) -> _Waves:
    r, low, n = reduced
    square = r * r
    parabola = square.fma(-0.5, 1.0)
    parabola_low = square.fma(-0.5, 1.0 - parabola)
    sine = r + (r * square).fma(polynomial(square, SIN[form.type]), low * parabola)
    cosine = parabola + (square * square).fma(polynomial(square, COS[form.type]), r.fma(-low, parabola_low))
    return _Waves(sine, cosine, n, form)


def sin(x: Scalar, *, huge: bool = True) -> Scalar:
    """The sine."""
    return _waves(x, huge).sine_of(x)


def cos(x: Scalar, *, huge: bool = True) -> Scalar:
    """The cosine."""
    return _waves(x, huge).cosine_of()


def sin_and_cos(x: Scalar) -> tuple[Scalar, Scalar]:
    """Both, for a little more than one of them."""
    waves = _waves(x, huge=True)
    return waves.sine_of(x), waves.cosine_of()


def _half_turns(x: Scalar) -> _Waves:
    """The sine and cosine of pi |x|. The reduction is exact: modulo 2, then to the nearest quarter turn."""
    form = format_of(x)
    size = x.abs()
    within_a_turn = size - (size * 0.5).floor() * 2.0
    shifted = within_a_turn * 2.0 + form.round_to_integer
    r = within_a_turn - (shifted - form.round_to_integer) * 0.5
    pi, pi_low, _ = PI[form.type]
    high = r * pi
    low = r.fma(pi, -high) + r * pi_low
    return _waves_of(_Reduced(high, low, shifted.bits()), form)


def sinpi(x: Scalar) -> Scalar:
    """The sine of pi x. Zeros have the sign of x, as IEEE 754-2019, section 9.2.1, has it."""
    waves = _half_turns(x)
    unsigned_zero = waves.after(waves.n).bitcast(x.type) + 0.0
    return (unsigned_zero.bits() ^ (x.bits() & waves.form.sign_bit)).bitcast(x.type)


def cospi(x: Scalar) -> Scalar:
    """The cosine of pi x. Zeros are positive (ibidem)."""
    return _half_turns(x).cosine_of() + 0.0


def tan(x: Scalar, *, huge: bool = True) -> Scalar:
    """The tangent: of the remainder modulo pi / 2, or its negated reciprocal."""
    form = format_of(x)
    reduced = _reduce(x.abs(), huge)
    r = reduced.high
    square = r * r
    bend = (r * square) * polynomial(square, TAN[form.type])
    rough = r + bend
    slope = rough.fma(rough, 1.0)
    bend = slope.fma(reduced.low, bend)
    value = r + bend
    value_low = (r - value) + bend
    inverse = -1.0 / value
    inverse = inverse.fma(inverse.fma(value_low, inverse.fma(value, 1.0)), inverse)
    value = (reduced.n & 1).equal(0).where(value, inverse)
    return (value.bits() ^ (x.bits() & form.sign_bit)).bitcast(form.type)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y), with C's values for zeros and infinities of either sign."""
    form = format_of(y)
    height, width = y.abs(), x.abs()
    steep = height > width
    smaller, larger = steep.where(width, height), steep.where(height, width)
    q = smaller / larger
    q = smaller.equal(larger).where(1.0, q)  # infinities too
    q = larger.equal(0.0).where(smaller, q)
    # The angle counts from the nearest axis: from pi / 2 backwards if steep, from pi backwards on the left.
    left = x.bits() >= form.sign_bit
    pi, pi_low, _ = PI[form.type]
    axis = steep.where(pi / 2, left.where(pi, constant(x, 0.0)))
    q = (steep ^ left).where(-q, q)
    square = q * q
    chord = axis + q
    chord_low = q - (chord - axis)
    bend = (q * square).fma(polynomial(square, ATAN[form.type]), axis.fma(pi_low / pi, chord_low))
    return (chord + bend).copysign(y)
