"""Sine, cosine, tangent and the two-argument arctangent, without branches and right for every argument.

Arguments of ordinary size are reduced in three fused steps after Cody and Waite; huge ones by multiplying with the bits
of 1 / (2 pi) that matter for them, after Payne and Hanek (both: Muller, Elementary Functions, third edition, chapter 11).
Both reductions are always computed, and one is chosen. The second costs about twice (f32) or three times (f64) as much as
all the rest; `huge=False` leaves it out, for loops whose arguments are known to stay within `REDUCTION_LIMIT`.

Sine and cosine reduce by pi, not by pi / 2: one polynomial on twice the interval is less work than two polynomials and a
choice. The polynomials are fitted as those in `exponentials`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from tinyxla_kernels.float_formats import FloatFormat, format_of, polynomial
from tinyxla_kernels.scalar import Scalar

REDUCTION_LIMIT = {"f32": 2.0**17, "f64": 2.0**20}

# pi as three numbers of the format, each the nearest to what the ones before it miss.
PI = {
    "f32": (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
    "f64": (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
}
SIN = {
    # (sin(r) - r) / r^3 as a polynomial in r^2 for |r| <= pi / 2, 2^-27.1 of sin(r)
    "f32": (-0.1666666, 0.0083330665, -0.00019809442, 2.6051473e-06),
    # 2^-61.4
    "f64": (
        -0.16666666666666666,
        0.008333333333333205,
        -0.00019841269841211384,
        2.7557319211321246e-06,
        -2.505210687734075e-08,
        1.6058939463264604e-10,
        -7.642975457582454e-13,
        2.7209224266438568e-15,
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


@dataclass(frozen=True, slots=True)
class _Reduction:
    """x becomes x - n period, or x - (n - 1/2) period if `centred`; the period is pi or half of it."""

    per_turn: int  # periods in a full turn: 2 or 4
    centred: bool = False

    def period(self, form: FloatFormat) -> tuple[float, ...]:
        return tuple(part * 2 / self.per_turn for part in PI[form.type])

    @property
    def bits(self) -> int:
        return self.per_turn.bit_length() - 1


@dataclass(frozen=True, slots=True)
class _Reduced:
    """What is left of the argument, as a sum of two numbers, and the last bit of n in an unsigned integer."""

    high: Scalar
    low: Scalar
    n: Scalar


HALF_TURNS = _Reduction(per_turn=2)
CENTRED_HALF_TURNS = _Reduction(per_turn=2, centred=True)
QUARTER_TURNS = _Reduction(per_turn=4)


def _reduce(x: Scalar, reduction: _Reduction, huge: bool) -> _Reduced:
    """Reduce x >= 0. Infinity and NaN become NaN."""
    form = format_of(x)
    usual = _reduce_usual(x, form, reduction)
    if not huge:
        return usual
    chosen = (x > REDUCTION_LIMIT[form.type]) & (x <= form.largest)
    other = _reduce_huge_f32(x, reduction) if form.type == "f32" else _reduce_huge_f64(x, reduction)
    return _Reduced(
        chosen.where(other.high, usual.high), chosen.where(other.low, usual.low), chosen.where(other.n, usual.n)
    )


def _reduce_usual(x: Scalar, form: FloatFormat, reduction: _Reduction) -> _Reduced:
    """Cody and Waite's way. The first step is exact; the others leave an error far below the remainder's last place."""
    first, second, third = reduction.period(form)
    if reduction.centred:
        shifted = x.fma(1 / first, 0.5) + form.round_to_integer
        n = (shifted - form.round_to_integer) - 0.5
    else:
        shifted = x.fma(1 / first, form.round_to_integer)
        n = shifted - form.round_to_integer
    r = n.fma(-first, x)
    high = n.fma(-second, r)
    low = n.fma(-third, n.fma(-second, r - high))
    return _Reduced(high, low, shifted.bits())


def _window(offset: Scalar, zeros: int, count: int) -> list[Scalar]:
    """Words of 64 bits of 1 / (2 pi): `count` of them from bit `offset` (u64), where `zeros` zero bits precede the point.

    The offset's upper bits choose among words, one bit at a time, each choice moving the whole rest of the list; its
    lower six shift by bits.
    """
    choices = 4 if zeros == F64_ZEROS else 1
    padded, available = TURN >> zeros, TURN_BITS // 64
    constants = [padded >> 64 * (available - 1 - index) & (2**64 - 1) for index in range(available)]
    words: list[Scalar | int] = list(constants)
    for level in reversed(range(choices)):
        taken = ((offset >> (6 + level)) & 1).not_equal(0)
        kept = count + 1 + (1 << level) - 1
        words = [taken.where(words[index + (1 << level)], words[index]) for index in range(kept)]
    shift = offset & 63
    return [
        (high << shift) | ((low >> 1) >> (shift ^ 63)) for high, low in zip(words[:count], words[1:], strict=False)
    ]
