"""The exponential and its relatives, the logarithm and the error function, without branches.

Each reduces its argument to a short interval and evaluates a minimax polynomial there. The polynomials were fitted for
this file with the Remez exchange in 200-bit arithmetic, minimising the relative error of the result (not of the
polynomial) and rounding the coefficients one by one, lowest first, with the rest fitted anew after each. The comment at
a table gives what it approximates, where, and the relative error that the rounded coefficients leave.

Accuracies are the largest errors found by `tests/test_scalar_math.py` and larger samples, rounded up, in units in the
last place of the exact result.
"""

from __future__ import annotations

import math

from tinyxla_kernels.float_formats import FloatFormat, format_of, polynomial, power_of_two
from tinyxla_kernels.scalar import Scalar

LOG2_E = 1.4426950408889634
# ln 2 = the number nearest to it in the format, and what is missing. With fused multiply-adds, x - n ln 2 is then exact
# up to the last rounding (Muller et al., Handbook of Floating-Point Arithmetic, section 11.2, on Cody and Waite's scheme).
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
ERF_NEAR = {
    # erf(x) / x - 1 as a polynomial in x^2 for |x| <= 0.93, 2^-30.0
    "f32": (0.12837917, -0.3761263, 0.11283626, -0.026855731, 0.005192405, -0.00080497697, 7.996649e-05),
    # for |x| <= 1.01, 2^-56.3
    "f64": (
        0.1283791670955126,
        -0.3761263890318409,
        0.11283791670970589,
        -0.026866170647893553,
        0.005223977650981127,
        -0.0008548328417779503,
        0.00012055381230763387,
        -1.4926747684466863e-05,
        1.6478698657361512e-06,
        -1.6530020382519448e-07,
        1.5817981324371813e-08,
        -1.5664200900986804e-09,
        1.2918137476813226e-10,
    ),
}
ERF_FAR = {
    # log(1 - erf(x)) for 0.92 <= x <= 4, 2^-29.3 of erf(x)
    "f32": (-0.0002070344, -1.1276273, -0.6372661, -0.10385595, 0.022189504, -0.0030336035, 0.00019493543),
    # for 1 <= x <= 6, 2^-59.5
    "f64": (
        -1.8440608144420506e-07,
        -1.1283772821793823,
        -0.6366287047930151,
        -0.10274663938762059,
        0.019076948631563,
        0.00028223884871498634,
        -0.0017709371024235247,
        0.000642844037537056,
        -4.5963139072691656e-05,
        -6.974646742762875e-05,
        4.476815829225331e-05,
        -1.64208564462537e-05,
        4.301601922247352e-06,
        -8.451528947172401e-07,
        1.248239350257376e-07,
        -1.352134319949638e-08,
        1.0169684162736004e-09,
        -4.751271809995053e-11,
        1.038937681625416e-12,
    ),
}
ERF_SPLIT = {"f32": 0.925, "f64": 1.005}
ERF_ONE = {"f32": 3.92, "f64": 5.93}  # erf rounds to 1 from here on


def _split(x: Scalar, form: FloatFormat) -> tuple[Scalar, Scalar]:
    """x = n ln 2 + r with |r| <= ln(2) / 2: returns n as an unsigned integer, and r."""
    shifted = x.fma(LOG2_E, form.round_to_integer)
    n = shifted - form.round_to_integer
    ln2_high, ln2_low = LN_2[form.type]
    return shifted.bits(), n.fma(-ln2_low, n.fma(-ln2_high, x))


def _exp_of(r: Scalar, form: FloatFormat) -> Scalar:
    """exp(r) for |r| <= ln(2) / 2."""
    return 1.0 + (r * r).fma(polynomial(r, EXP[form.type]), r)


def exp(x: Scalar) -> Scalar:
    """e to the x: 1.0 ulp in f32 and f64, subnormal results included."""
    form = format_of(x)
    n, r = _split(x, form)
    # The exponent is added to the bits of the polynomial's value. A result that may be subnormal is made too large by
    # 2^raised first, and rounded once, by the multiplication that takes 2^raised out again.
    raised = 2 * form.mantissa_bits
    tiny = x < -(form.bias - 1.5) / LOG2_E
    exponent = tiny.where(n + raised, n)
    y = (_exp_of(r, form).bits() + (exponent << form.mantissa_bits)).bitcast(form.type)
    y = tiny.where(y * 2.0**-raised, y)
    y = (x < EXP_UNDERFLOW[form.type]).where(0.0, y)
    return (x <= EXP_OVERFLOW[form.type]).where(y, x * form.largest)


def expm1(x: Scalar) -> Scalar:
    """exp(x) - 1 without cancellation."""
    form = format_of(x)
    n, r = _split(x, form)
    near = (r * r).fma(polynomial(r, EXPM1[form.type]), r)
    huge = x > (form.bias + 0.25) / LOG2_E  # n may be one more than the largest exponent: half the result, then twice it
    scale = power_of_two(huge.where(n - 1, n), form)
    y = scale.fma(near, scale - 1.0)
    y = huge.where(y + y, y)
    y = (x > EXP_OVERFLOW[form.type]).where(math.inf, y)
    return (x < -(form.mantissa_bits + 3.0) / LOG2_E).where(-1.0, y).copysign(x)


def _log_of(n: Scalar, f: Scalar, form: FloatFormat) -> Scalar:
    """n ln 2 + log(1 + f) for |f| <= 1/3."""
    ln2_high, ln2_low = LN_2[form.type]
    bend = (f * f).fma(polynomial(f, LOG[form.type]), n * ln2_low)
    return n.fma(ln2_high, f + bend)


def _exponent_and_fraction(bits: Scalar, form: FloatFormat) -> tuple[Scalar, Scalar]:
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
    n, f = _exponent_and_fraction(tiny.where(x * 2.0**raised, x).bits(), form)
    y = _log_of(tiny.where(n - raised, n).to(form.type), f, form)
    y = (x > 0.0).where(y, x.equal(0.0).where(x * 0.0 - math.inf, math.nan))
    return (x < math.inf).where(y, x)


def log1p(x: Scalar) -> Scalar:
    """log(1 + x) without cancellation."""
    form = format_of(x)
    n, rounded_f = _exponent_and_fraction((x + 1.0).bits(), form)
    # 1 + x = 2^n (1 + f), and f = 2^-n x + (2^-n - 1) needs no rounded 1 + x; for large x, where 1 is lost, 2^-n may be.
    scale = power_of_two(-n.bits(), form)
    f = (x > 2.0**form.mantissa_bits * 4.0).where(rounded_f, x.fma(scale, scale - 1.0))
    y = _log_of(n.to(form.type), f, form).copysign(x)
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
    n, r = _split(magnitude * -2.0, form)
    near = (r * r).fma(polynomial(r, EXPM1[form.type]), r)
    scale = power_of_two(n, form)
    e = scale.fma(near, scale - 1.0)
    e_lost = scale.fma(near, (scale - 1.0) - e)  # what rounding took from e, and from the divisor, exactly
    divisor = e + 2.0
    divisor_lost = e - (divisor - 2.0)
    quotient = e / divisor
    rest = quotient.fma(-divisor_lost, quotient.fma(-divisor, e) + e_lost)
    y = rest.fma(quotient.fma(0.5, -0.5), -quotient)  # 1 / divisor is (1 + tanh) / 2
    one = (form.mantissa_bits + 3) * 0.5 / LOG2_E  # tanh rounds to 1 from here on
    return (magnitude > one).where(1.0, y).copysign(x)


def erf(x: Scalar) -> Scalar:
    """The error function: a polynomial near zero, 1 - exp(polynomial) further out."""
    form = format_of(x)
    magnitude = x.abs()
    near = magnitude.fma(polynomial(x * x, ERF_NEAR[form.type]), magnitude)
    n, r = _split(polynomial(magnitude, ERF_FAR[form.type]), form)
    far = _exp_of(r, form).fma(-power_of_two(n, form), 1.0)
    y = (magnitude > ERF_SPLIT[form.type]).where(far, near)
    return (magnitude > ERF_ONE[form.type]).where(1.0, y).copysign(x)
