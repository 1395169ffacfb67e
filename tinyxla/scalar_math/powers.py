"""Roots and powers, without branches. Polynomials are fitted as those in `exponentials`."""

from __future__ import annotations

import math

from tinyxla.scalar_math.exponentials import (
    EXP_OVERFLOW,
    LN_2,
    exp_of_remainder,
    exponent_and_fraction,
    split_by_ln_2,
)
from tinyxla.scalar_math.float_formats import F32, F64, format_of, polynomial
from tinyxla.scalar_math.scalar import Scalar

__all__ = ["cbrt", "pow", "rsqrt", "sqrt"]

# m^(-1/3) for 1 <= m <= 8, 2^-7.0: coefficients of 12 bits serve every format.
INVERSE_CBRT = (1.337890625, -0.4410400390625, 0.10858154296875, -0.012996673583984375, 0.0005855560302734375)

ATANH = {
    # (atanh(s) / s - 1 - z / 3) / z^2 as a polynomial in z = s^2 for |s| <= 1/5, 2^-41.3 of atanh(s)
    "f32": (0.19999997, 0.14286233, 0.110777654, 0.099604234),
    # 2^-69.0
    "f64": (
        0.1999999999999986,
        0.14285714285789966,
        0.11111111095390931,
        0.09090910784029377,
        0.0769220226842385,
        0.06670602240818889,
        0.05795729274727017,
        0.06288484931639071,
    ),
}
# log2(1 + f) / f for |f| <= 1/3, 2^-33.2
LOG2 = (
    1.442695040747532,
    -0.7213475196235027,
    0.4808984377709891,
    -0.36067396879449887,
    0.2885295925587822,
    -0.24043415787355552,
    0.2064541677455359,
    -0.180795783920754,
    0.15432695914334546,
    -0.13755400807634088,
    0.1760767143782332,
    -0.16580011012390447,
)
# (2^r - 1) / r for |r| <= 1/2, 2^-28.5 of 2^r
EXP2 = (
    0.6931472149672477,
    0.24022652782819873,
    0.05550310551613111,
    0.009617692991540056,
    0.0013406643955897312,
    0.0001559467483114662,
)
# A third as the number nearest to it and what is missing.
THIRD = {"f32": (0.3333333432674408, -9.934107758624577e-09), "f64": (0.3333333333333333, 1.850371707708594e-17)}


def sqrt(x: Scalar) -> Scalar:
    """The square root, correctly rounded."""
    return x.sqrt()


def rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x)."""
    return 1.0 / x.sqrt()


def cbrt(x: Scalar) -> Scalar:
    """The real cube root, of negative numbers too.

    |x| = 8^n m with 1 <= m < 8. A polynomial for m^(-1/3) is refined by steps that take its relative error h / 3 to the
    order of h^4, where h = 1 - m z^3; the root m z^2 then gets a Newton step with an exact residual.
    """
    form = format_of(x)
    raised = 3 * ((form.mantissa_bits + 3) // 3)
    magnitude = x.abs()
    tiny = magnitude < form.smallest_normal
    bits = tiny.where(magnitude * 2.0**raised, magnitude).bits()
    # The exponent field plus `even` is three times something where the exponent is; 43691 / 2^17 divides it by three.
    even = -form.bias % 3
    field = (bits >> form.mantissa_bits) + even
    thirds = (field * 43691) >> 17
    m = ((bits & form.mantissa_mask) | ((field - thirds * 3 + form.bias) << form.mantissa_bits)).bitcast(form.type)
    z = polynomial(m, INVERSE_CBRT)
    for _ in range(1 if form.type == "f32" else 2):
        h = (z * z * z).fma(-m, 1.0)
        z = z.fma(h * h.fma(h.fma(14 / 81, 2 / 9), 1 / 3), z)
    root = m * (z * z)
    square = root * root
    residual = root.fma(-root.fma(root, -square), square.fma(-root, m))
    root = residual.fma(z * z * (1 / 3), root)
    lowered = tiny.where(thirds - raised // 3, thirds)
    y = (root.bits() + ((lowered - (form.bias + even) // 3) << form.mantissa_bits)).bitcast(form.type)
    # Where arithmetic takes subnormal numbers for zeros, the scaled magnitude was one, and x + x is another.
    # A comparison of x with zero may become a test of its bits, which are not zero.
    return ((bits > 0) & (magnitude < math.inf)).where(y.copysign(x), x + x)


def log_in_two_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """log(x) for finite x > 0 as a sum of two numbers, with about 1.5 times the precision of one.

    x = 2^n (1 + f), and log(1 + f) = 2 atanh(s) for s = f / (2 + f). Division, square and the first two terms of the
    series carry their rounding errors along (Dekker, A floating-point technique for extending the available precision,
    1971); the polynomial for the others need not.
    """
    form = format_of(x)
    raised = form.mantissa_bits
    tiny = x < form.smallest_normal
    exponent, f = exponent_and_fraction(tiny.where(x * 2.0**raised, x).bits(), form)
    n = tiny.where(exponent - raised, exponent).to(form.type)
    divisor = f + 2.0
    divisor_low = f - (divisor - 2.0)
    inverse = 1.0 / divisor
    s = f * inverse
    s_low = s.fma(-divisor_low, s.fma(-divisor, f)) * inverse
    z = s * s
    z_low = (s + s).fma(s_low, s.fma(s, -z))
    third, third_low = THIRD[form.type]
    rest = z * polynomial(z, ATANH[form.type])
    series = rest + third
    series_low = (rest - (series - third)) + third_low
    bend = z * series
    bend_low = z.fma(series, -bend) + z.fma(series_low, z_low * series)
    cubic = s * bend
    cubic_low = s.fma(bend, -cubic) + s.fma(bend_low, s_low * bend)
    half = s + cubic
    half_low = (cubic - (half - s)) + (s_low + cubic_low)
    ln_2, ln_2_low = LN_2[form.type]
    product = n * ln_2
    product_low = n.fma(ln_2, -product) + n * ln_2_low
    log = half.fma(2.0, product)
    log_low = half.fma(2.0, product - log) + half_low.fma(2.0, product_low)
    high = log + log_low
    return high, log_low - (high - log)


def _power_in_f64(base: Scalar, y: Scalar) -> Scalar:
    """base^y for f32 numbers with base >= 0: 2^(y log2(base)) in f64, whose range and precision make all careful steps
    needless. Only what is zero or infinite anyway is beyond 2^160."""
    tiny = base < F32.smallest_normal
    exponent, fraction = exponent_and_fraction(tiny.where(base * 2.0**24, base).bits(), F32)
    f = fraction.to("f64")
    log = f.fma(polynomial(f, LOG2), tiny.where(exponent - 24, exponent).to("f64"))
    product = y.to("f64") * base.equal(0.0).where(-math.inf, (base < math.inf).where(log, base.to("f64")))
    bounded = (product > 160.0).where(160.0, (product < -160.0).where(-160.0, product))
    shifted = bounded + F64.round_to_integer
    r = (bounded - (shifted - F64.round_to_integer)).to("f32")
    return r.fma(polynomial(r, EXP2), 1.0).ldexp(shifted.bits().to("u32"))


def _power(base: Scalar, y: Scalar) -> Scalar:
    """base^y for base >= 0."""
    form = format_of(base)
    if form.type == "f32":
        return _power_in_f64(base, y)
    log, log_low = log_in_two_parts(base)
    log = base.equal(0.0).where(-math.inf, (base < math.inf).where(log, base))
    # Far out of the range of exp the result is 0 or infinity whatever the lower part is, which may be NaN there.
    reach = 1.5 * EXP_OVERFLOW[form.type]
    product = y * log
    bounded = (product > reach).where(reach, (product < -reach).where(-reach, product))
    product_low = y.fma(log, -product) + y * log_low
    n, r = split_by_ln_2(bounded, form)
    return exp_of_remainder(r + bounded.equal(product).where(product_low, 0.0), form).ldexp(n)


def pow(x: Scalar, y: Scalar) -> Scalar:
    """x to the y, with the special values of IEEE 754, section 9.2.1."""
    form = format_of(x)
    base = x.abs()
    magnitude = _power(base, y)
    half_y = y * 0.5
    whole = y.rint().equal(y)
    odd = whole & half_y.rint().not_equal(half_y)
    result = (magnitude.bits() | odd.where(x.bits() & form.sign_bit, 0)).bitcast(form.type)
    undefined = (x < 0.0) & (base < math.inf) & ~whole
    result = undefined.where(math.nan, result)
    # 1 to anything, anything to 0, and -1 to an infinity are 1, even of NaN.
    one = x.equal(1.0) | y.equal(0.0) | (x.equal(-1.0) & y.abs().equal(math.inf))
    return one.where(1.0, result)
