"""The exponential and its relatives, hyperbolic functions among them, and the logarithm, without branches.

Each reduces its argument to a short interval and evaluates a minimax polynomial there. The polynomials were fitted for
this file with the Remez exchange in 200-bit arithmetic, minimising the relative error of the result (not of the
polynomial) and rounding the coefficients one by one, lowest first, with the rest fitted anew after each. The comment at
a table gives what it approximates, where, and the relative error that the rounded coefficients leave. How accurate the
functions are is in `accuracy`.
"""

from __future__ import annotations

import math

from tinyxla.scalar_math.float_formats import FloatFormat, constant, format_of, polynomial, power_of_two
from tinyxla.scalar_math.scalar import Scalar

__all__ = ["cosh", "exp", "expm1", "log", "log1p", "logistic", "sinh", "tanh"]

LOG2_E = 1.4426950408889634
# ln 2 as the number nearest to it in the format, and what is missing. With fused multiply-adds, x - n ln 2 is then
# exact up to the last rounding (after Cody and Waite; see Muller, Elementary Functions, third edition, section 11.2).
LN_2 = {
    "f32": (0.6931471824645996, -1.9046542121259336e-09),
    "f64": (0.6931471805599453, 2.3190468138462996e-17),
}
# The arguments beyond which exp rounds to infinity and to zero.
EXP_OVERFLOW = {"f32": 88.72283172607422, "f64": 709.782712893384}
EXP_UNDERFLOW = {"f32": -103.97207641601562, "f64": -745.1332191019411}

EXP = {
    # (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, 2^-28.2 of exp(r)
    "f32": (0.49999994, 0.16666515, 0.04166808, 0.008369374, 0.0013841628),
    # 2^-57.9
    "f64": (
        0.5000000000000011,
        0.16666666666666421,
        0.04166666666652555,
        0.00833333333348564,
        0.0013888888944973568,
        0.00019841269532316696,
        2.4801491589731733e-05,
        2.7557557509260426e-06,
        2.763082363558716e-07,
        2.5011035390933465e-08,
    ),
}
SINH = {
    # (sinh(x) - x) / x^3 as a polynomial in x^2 for |x| <= 1.5, 2^-28.2 of sinh(x)
    "f32": (0.16666663, 0.008333518, 0.000198155, 2.894351e-06),
    # 2^-62.0
    "f64": (
        0.16666666666666666,
        0.008333333333333458,
        0.00019841269841212828,
        2.7557319236504108e-06,
        2.5052106872601867e-08,
        1.6059149881104424e-10,
        7.642872779075413e-13,
        2.904219261178293e-15,
    ),
}
HYPERBOLIC_OVERFLOW = {"f32": 89.41598510742188, "f64": 710.4758600739439}
EXPM1 = {
    # (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, 2^-28.2 of exp(r) - 1
    "f32": (0.5, 0.16666636, 0.04166651, 0.00834151, 0.0013930545, 0.00015016834),
    # 2^-61.6
    "f64": (
        0.5,
        0.16666666666666677,
        0.04166666666666667,
        0.008333333333321721,
        0.0013888888888900501,
        0.00019841269885645805,
        2.480158726703853e-05,
        2.7557244764316768e-06,
        2.75573384434322e-07,
        2.510884484277835e-08,
        2.0891516533696427e-09,
    ),
}
LOG = {
    # (log(1 + f) - f) / f^2 for |f| <= 1/3, 2^-27.6 of log(1 + f)
    "f32": (
        -0.5,
        0.33333197,
        -0.2499992,
        0.20011434,
        -0.1667445,
        0.13989717,
        -0.12273256,
        0.1406003,
        -0.1249079,
    ),
    # 2^-59.0
    "f64": (
        -0.5,
        0.33333333333333137,
        -0.24999999999999892,
        0.20000000000084178,
        -0.1666666666671776,
        0.14285714273217678,
        -0.1249999999175524,
        0.11111112028526232,
        -0.1000000065130342,
        0.09090870463907147,
        -0.08333304096753627,
        0.07693310631152783,
        -0.0714365958207892,
        0.06650104427347035,
        -0.06236102152626054,
        0.06055887543505363,
        -0.057072017404988,
        0.04158458187818408,
        -0.04000867755852207,
        0.08529188102966179,
        -0.08054481400819342,
    ),
}


def split_by_ln_2(x: Scalar, form: FloatFormat) -> tuple[Scalar, Scalar]:
    """x = n ln 2 + r with |r| <= ln(2) / 2: returns n as an unsigned integer, and r."""
    shifted = x.fma(LOG2_E, form.round_to_integer)
    n = shifted - form.round_to_integer
    ln2_high, ln2_low = LN_2[form.type]
    return shifted.bits() - form.round_to_integer_bits, n.fma(-ln2_low, n.fma(-ln2_high, x))


def exp_of_remainder(r: Scalar, form: FloatFormat) -> Scalar:
    """exp(r) for |r| <= ln(2) / 2."""
    return polynomial(r, (1.0, 1.0, *EXP[form.type]))


def exp(x: Scalar) -> Scalar:
    """e to the x. Beyond where that is zero or infinite, x does not matter; NaN is neither below nor above."""
    form = format_of(x)
    lowest, highest = EXP_UNDERFLOW[form.type] - 1.0, EXP_OVERFLOW[form.type] + 1.0
    raised = (x < lowest).where(lowest, x)
    n, r = split_by_ln_2((raised > highest).where(highest, raised), form)
    return exp_of_remainder(r, form).ldexp(n)


def expm1(x: Scalar) -> Scalar:
    """exp(x) - 1 without cancellation."""
    form = format_of(x)
    n, r = split_by_ln_2(x, form)
    near = (r * r).fma(polynomial(r, EXPM1[form.type]), r)
    huge = x > (form.bias + 0.25) / LOG2_E  # n may pass the largest exponent: twice half the result
    scale = power_of_two(huge.where(n - 1, n), form)
    y = scale.fma(near, scale - 1.0)
    y = huge.where(y + y, y)
    y = (x > EXP_OVERFLOW[form.type]).where(math.inf, y)
    return (x < -(form.mantissa_bits + 3.0) / LOG2_E).where(-1.0, y).copysign(x)


def log_of_parts(n: Scalar, f: Scalar, form: FloatFormat, correction: Scalar | float = 0.0) -> Scalar:
    """n ln 2 + log(1 + f) + a small correction, for |f| <= 1/3."""
    ln2_high, ln2_low = LN_2[form.type]
    bend = (f * f).fma(polynomial(f, LOG[form.type]), n.fma(ln2_low, correction))
    return n.fma(ln2_high, f + bend)


def exponent_and_fraction(bits: Scalar, form: FloatFormat) -> tuple[Scalar, Scalar]:
    """The n (signed) and f (float) of a positive number 2^n (1 + f) with -1/3 <= f < 1/3, from its bits."""
    two_thirds = round(2 / 3 * 2 ** (form.mantissa_bits + 1)) - 2**form.mantissa_bits
    below = ((form.bias - 1) << form.mantissa_bits) + two_thirds
    n = (bits - below).bitcast(form.signed) >> form.mantissa_bits
    significand = (bits - (n.bits() << form.mantissa_bits)).bitcast(form.type)
    return n, significand - 1.0


def log(x: Scalar) -> Scalar:
    """The natural logarithm."""
    form = format_of(x)
    raised = form.mantissa_bits
    tiny = x < form.smallest_normal
    n, f = exponent_and_fraction(tiny.where(x * 2.0**raised, x).bits(), form)
    y = log_of_parts(tiny.where(n - raised, n).to(form.type), f, form)
    y = (x > 0.0).where(y, x.equal(0.0).where(constant(x, -math.inf), math.nan))
    return (x < math.inf).where(y, x)


def log1p(x: Scalar) -> Scalar:
    """log(1 + x) without cancellation."""
    form = format_of(x)
    n, rounded_f = exponent_and_fraction((x + 1.0).bits(), form)
    # 1 + x = 2^n (1 + f), and f = 2^-n x + (2^-n - 1) needs no rounded 1 + x. For large x that 1 does not matter, and
    # 2^-n may be too small.
    scale = power_of_two(-n.bits(), form)
    f = x.fma(scale, scale - 1.0)
    f_low = x.fma(scale, (scale - 1.0) - f)
    large = x > 2.0**form.mantissa_bits * 4.0
    y = log_of_parts(n.to(form.type), large.where(rounded_f, f), form, large.where(0.0, f_low)).copysign(x)
    y = (x > -1.0).where(y, x.equal(-1.0).where(x * math.inf, math.nan))
    return (x < math.inf).where(y, x)


def logistic(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), down to subnormal results."""
    e = exp(-x.abs())
    divisor = e + 1.0
    lost = e - (divisor - 1.0)  # what rounding took from the divisor, exactly
    quotient = e / divisor
    rest = quotient.fma(-lost, quotient.fma(-divisor, e))
    quotient = rest.fma(1.0 - quotient, quotient)  # 1 / divisor is 1 - quotient
    return (x < 0.0).where(quotient, 1.0 - quotient)


def tanh(x: Scalar) -> Scalar:
    """The hyperbolic tangent, as -e / (2 + e) with e = exp(-2 |x|) - 1."""
    form = format_of(x)
    magnitude = x.abs()
    one = (form.mantissa_bits + 3) * 0.5 / LOG2_E  # tanh rounds to 1 from here on
    e = expm1_of_negative((magnitude > one).where(one, magnitude) * -2.0, form)
    return (e / (e + 2.0)).copysign(x)


def expm1_of_negative(x: Scalar, form: FloatFormat) -> Scalar:
    """exp(x) - 1 for x from 0 down to where that rounds to -1. What ln 2 is more than a number of
    the format does not matter here."""
    shifted = x.fma(LOG2_E, form.round_to_integer)
    r = (shifted - form.round_to_integer).fma(-LN_2[form.type][0], x)
    near = (r * r).fma(polynomial(r, EXPM1[form.type]), r)
    scale = power_of_two(shifted.bits(), form)
    return scale.fma(near, scale - 1.0)


def _half_exp(x: Scalar, form: FloatFormat) -> Scalar:
    """exp(x) / 2 for x from 0 to where that overflows."""
    n, r = split_by_ln_2(x, form)
    return (exp_of_remainder(r, form).bits() + ((n - 1) << form.mantissa_bits)).bitcast(form.type)


def sinh(x: Scalar) -> Scalar:
    """The hyperbolic sine: a polynomial up to 1.5, the difference of exponentials beyond."""
    form = format_of(x)
    magnitude = x.abs()
    square = x * x
    near = (magnitude * square).fma(polynomial(square, SINH[form.type]), magnitude)
    half = _half_exp(magnitude, form)
    far = half - 0.25 / half
    far = (magnitude <= HYPERBOLIC_OVERFLOW[form.type]).where(far, magnitude * form.largest)
    return (magnitude < 1.5).where(near, far).copysign(x)


def cosh(x: Scalar) -> Scalar:
    """The hyperbolic cosine."""
    form = format_of(x)
    magnitude = x.abs()
    half = _half_exp(magnitude, form)
    return (magnitude <= HYPERBOLIC_OVERFLOW[form.type]).where(half + 0.25 / half, magnitude * form.largest)
