"""Complex numbers as pairs of scalars, and the elementary functions of them.

Infinities, zeros and NaN give what annex G of the C standard (ISO/IEC 9899:2011) asks for. Overflow is avoided where
the result itself does not overflow. The error, relative to the magnitude of the result, is at most four times the
distance of 1 to the next number; with `pow` it grows by the angle it turns through in radians. `log`, `log1p` and
`absolute` are as accurate in each part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinyxla.scalar_math import elementary
from tinyxla.scalar_math.exponentials import EXP_OVERFLOW, LN_2, exp_of_remainder, split_by_ln_2
from tinyxla.scalar_math.float_formats import constant, format_of, power_of_two
from tinyxla.scalar_math.powers import log_in_two_parts
from tinyxla.scalar_math.scalar import Scalar


@dataclass(frozen=True, slots=True)
class Complex:
    """real + imag i."""

    real: Scalar
    imag: Scalar

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Complex) -> Complex:
        # Not fused: the product with the conjugate shall be real, and the same as in an interpreter.
        return Complex(
            self.real * other.real - self.imag * other.imag,
            self.real * other.imag + self.imag * other.real,
        )

    def __truediv__(self, other: Complex) -> Complex:
        return divide(self, other)

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def __abs__(self) -> Scalar:
        return absolute(self)

    def equal(self, other: Complex) -> Scalar:
        return self.real.equal(other.real) & self.imag.equal(other.imag)

    def not_equal(self, other: Complex) -> Scalar:
        return self.real.not_equal(other.real) | self.imag.not_equal(other.imag)

    def conjugate(self) -> Complex:
        return Complex(self.real, -self.imag)

    def scaled(self, factor: Scalar | float) -> Complex:
        return Complex(self.real * factor, self.imag * factor)


def choose(condition: Scalar, on_true: Complex, on_false: Complex) -> Complex:
    return Complex(condition.where(on_true.real, on_false.real), condition.where(on_true.imag, on_false.imag))


def _infinite(x: Scalar) -> Scalar:
    return x.abs().equal(math.inf)


def _larger_part(z: Complex) -> Scalar:
    real, imag = z.real.abs(), z.imag.abs()
    return (real < imag).where(imag, real)


def _exponent(z: Complex) -> Scalar:
    """The exponent (signed) of the larger part, bounded so that 2 to it and to its negative are normal numbers."""
    form = format_of(z.real)
    field = _larger_part(z).bits() >> form.mantissa_bits
    return field.maximum(1).minimum(2 * form.bias - 1).bitcast(form.signed) - form.bias


def _power_of_two(exponent: Scalar, like: Scalar) -> Scalar:
    form = format_of(like)
    return ((exponent + form.bias) << form.mantissa_bits).bitcast(form.type)


def _times_power_of_two(z: Complex, exponent: Scalar) -> Complex:
    """z * 2^exponent, in two steps: the exponent may reach twice that of the largest number."""
    half = exponent >> 1
    first, second = _power_of_two(half, z.real), _power_of_two(exponent - half, z.real)
    return z.scaled(first).scaled(second)


def _normalized(z: Complex) -> tuple[Complex, Scalar]:
    """z as 2^exponent times a number whose larger part is between 1 and 2 (but for zeros, subnormals, infinities)."""
    exponent = _exponent(z)
    return z.scaled(_power_of_two(-exponent, z.real)), exponent


def absolute(z: Complex) -> Scalar:
    """The distance from 0: infinite if either part is, even if the other is NaN."""
    scaled, exponent = _normalized(z)
    distance = scaled.real.fma(scaled.real, scaled.imag * scaled.imag).sqrt() * _power_of_two(exponent, z.real)
    return (_infinite(z.real) | _infinite(z.imag)).where(math.inf, distance)


def sign(z: Complex) -> Complex:
    """z / |z|, and 0 for 0."""
    scaled, _ = _normalized(z)
    distance = scaled.real.fma(scaled.real, scaled.imag * scaled.imag).sqrt()
    zero = z.real.equal(0.0) & z.imag.equal(0.0)
    return choose(zero, z, Complex(scaled.real / distance, scaled.imag / distance))


def divide(z: Complex, w: Complex) -> Complex:
    """The quotient. Both operands are scaled by powers of two, so nothing but the quotient itself overflows."""
    numerator, numerator_exponent = _normalized(z)
    divisor, divisor_exponent = _normalized(w)
    # A quarter turn of both makes the divisor's real part the larger, whose products are not rounded before they are
    # added. The imaginary part of z / z is 0: what rounding took from the one product there is given back.
    steep = divisor.imag.abs() > divisor.real.abs()
    numerator = choose(steep, Complex(numerator.imag, -numerator.real), numerator)
    divisor = choose(steep, Complex(divisor.imag, -divisor.real), divisor)
    square = divisor.real.fma(divisor.real, divisor.imag * divisor.imag)
    real = numerator.real.fma(divisor.real, numerator.imag * divisor.imag)
    product = numerator.real * divisor.imag
    imag = numerator.imag.fma(divisor.real, -product) - numerator.real.fma(divisor.imag, -product)
    plain = _times_power_of_two(Complex(real / square, imag / square), numerator_exponent - divisor_exponent)

    # Where that gives NaN: a number over zero, an infinity over a finite number, and the reverse.
    lost = plain.not_equal(plain)
    infinite_z = _infinite(z.real) | _infinite(z.imag)
    infinite_w = _infinite(w.real) | _infinite(w.imag)
    zero_w = w.real.equal(0.0) & w.imag.equal(0.0)
    directions = _direction(z, infinite_z) * _direction(w, infinite_w).conjugate()
    by_zero = z.scaled(constant(z.real, math.inf).copysign(w.real))
    result = choose(lost & zero_w, by_zero, plain)
    result = choose(lost & infinite_z & _finite(w) & ~zero_w, directions.scaled(math.inf), result)
    return choose(lost & infinite_w & _finite(z), directions.scaled(0.0), result)


def _finite(z: Complex) -> Scalar:
    return (z.real.abs() < math.inf) & (z.imag.abs() < math.inf)


def _direction(z: Complex, infinite: Scalar) -> Complex:
    """z; if it is infinite, 1 with the sign for an infinite part and 0 for a finite one."""
    real = _infinite(z.real).where(1.0, constant(z.real, 0.0)).copysign(z.real)
    imag = _infinite(z.imag).where(1.0, constant(z.imag, 0.0)).copysign(z.imag)
    return choose(infinite, Complex(real, imag), z)


def _exp_in_steps(x: Scalar, x_low: Scalar | float = 0.0) -> tuple[Scalar, Scalar, Scalar]:
    """exp(x + x_low) as the product of a number near 1 and two powers of two, since it may be out of range before it is
    multiplied by what brings it back."""
    form = format_of(x)
    end = EXP_OVERFLOW[form.type]  # at twice that both powers are infinite, as the product with any normal number is
    n, r = split_by_ln_2(x.clip(-1.5 * end, 2.0 * end), form)
    half_n = (n.bitcast(form.signed) >> 1).bits()
    near_one = x.equal(x).where(exp_of_remainder(r + x_low, form), x)
    return near_one, power_of_two(half_n, form), power_of_two(n - half_n, form)


def exp(z: Complex) -> Complex:
    """e to the z."""
    size, first, second = _exp_in_steps(z.real)
    sine, cosine = elementary.sin_and_cos(z.imag)
    turned = Complex(cosine, sine).scaled(size).scaled(first).scaled(second)
    result = Complex(turned.real, z.imag.equal(0.0).where(z.imag, turned.imag))
    undirected = ~(z.imag.abs() < math.inf)
    nothing = constant(z.real, 0.0)
    result = choose(undirected & z.real.equal(-math.inf), Complex(nothing, nothing), result)
    return choose(undirected & z.real.equal(math.inf), Complex(z.real, nothing + math.nan), result)


def expm1(z: Complex) -> Complex:
    """exp(z) - 1 without cancellation for small z."""
    whole = exp(z)
    half_sine = elementary.sin(z.imag * 0.5)
    real = elementary.expm1(z.real).fma(elementary.cos(z.imag), half_sine * half_sine * -2.0)
    large = z.real.abs() > 32.0
    return Complex(large.where(whole.real - 1.0, real), whole.imag)


def _two_sum(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """a + b and its rounding error (Knuth, The Art of Computer Programming, 4.2.2)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _sum_with_squares(a: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """a + x^2 + y^2 with the errors of squares and sums made good, so that cancellation harms little."""
    x_square, y_square = x * x, y * y
    first, error = _two_sum(a, x_square)
    total, next_error = _two_sum(first, y_square)
    errors, lost = _two_sum(error, next_error)
    square_errors, also_lost = _two_sum(x.fma(x, -x_square), y.fma(y, -y_square))
    correction, rest = _two_sum(errors, square_errors)
    total, last = _two_sum(total, correction)
    return total + (last + (rest + (lost + also_lost)))


def _log_of_distance(z: Complex) -> Scalar:
    """log |z|, accurate where |z| is near 1, too."""
    scaled, exponent = _normalized(z)
    square = scaled.real.fma(scaled.real, scaled.imag * scaled.imag)
    ln_2, ln_2_low = LN_2[z.real.type]
    n = exponent.to(z.real.type)
    far = n.fma(ln_2, n.fma(ln_2_low, elementary.log(square) * 0.5))
    far = (_infinite(z.real) | _infinite(z.imag)).where(math.inf, far)
    near = elementary.log1p(_sum_with_squares(constant(z.real, -1.0), z.real, z.imag)) * 0.5
    larger = _larger_part(z)
    return ((larger > 0.5) & (larger < 2.0)).where(near, far)


def log(z: Complex) -> Complex:
    """The principal logarithm."""
    return Complex(_log_of_distance(z), elementary.atan2(z.imag, z.real))


def atan2(z: Complex, w: Complex) -> Complex:
    """-i log((w + iz) / sqrt(w^2 + z^2)), where w^2 + z^2 = (w + iz)(w - iz): no number for w = z = 0."""
    exponent = _exponent(Complex(_larger_part(z), _larger_part(w)))
    z, w = (part.scaled(_power_of_two(-exponent, z.real)) for part in (z, w))
    ahead = Complex(w.real - z.imag, w.imag + z.real)
    behind = Complex(w.real + z.imag, w.imag - z.real)
    found = log(divide(ahead, sqrt(ahead * behind)))
    return Complex(found.imag, -found.real)


def log1p(z: Complex) -> Complex:
    """log(1 + z) without cancellation for small z."""
    moved = Complex(z.real + 1.0, z.imag)
    excess = _sum_with_squares(z.real + z.real, z.real, z.imag)  # |1 + z|^2 - 1
    near = elementary.log1p(excess) * 0.5
    real = ((excess > -0.5) & (_larger_part(z) < 64.0)).where(near, _log_of_distance(moved))
    return Complex(real, elementary.atan2(z.imag, moved.real))


def sqrt(z: Complex) -> Complex:
    """The principal square root."""
    exponent = (_exponent(z) >> 1) << 1
    scaled = z.scaled(_power_of_two(-exponent, z.real))
    back = _power_of_two(exponent >> 1, z.real)
    larger = ((absolute(scaled) + scaled.real.abs()) * 0.5).sqrt() * back
    smaller = z.imag.abs() / (larger + larger)  # of z itself: scaled it may vanish
    smaller = larger.equal(0.0).where(larger, smaller)
    left = z.real < 0.0
    result = Complex(left.where(smaller, larger), left.where(larger, smaller).copysign(z.imag))
    return choose(_infinite(z.imag), Complex(z.imag.abs(), z.imag), result)


def rsqrt(z: Complex) -> Complex:
    """1 / sqrt(z)."""
    return divide(Complex(constant(z.real, 1.0), constant(z.real, 0.0)), sqrt(z))


def _growth(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """c, s and f such that cosh(x) = c f and sinh(x) = s f: f is 1 unless x is large."""
    half = elementary.exp(x.abs() * 0.5)
    large = x.abs() > 32.0
    cosh = large.where(half * 0.5, elementary.cosh(x))
    sinh = large.where((half * 0.5).copysign(x), elementary.sinh(x))
    return cosh, sinh, large.where(half, 1.0)


def sinh(z: Complex) -> Complex:
    """The hyperbolic sine."""
    c, s, factor = _growth(z.real)
    sine, cosine = elementary.sin_and_cos(z.imag)
    real, imag = s * cosine * factor, c * sine * factor
    # Zero times an infinity or NaN is zero on the axes; other zeros have the sign of their product.
    result = Complex(
        (z.real.equal(0.0) & real.not_equal(real)).where(z.real, real), z.imag.equal(0.0).where(z.imag, imag)
    )
    return choose(_infinite(z.real) & ~(z.imag.abs() < math.inf), Complex(z.real, z.imag - z.imag), result)


def cosh(z: Complex) -> Complex:
    """The hyperbolic cosine."""
    c, s, factor = _growth(z.real)
    sine, cosine = elementary.sin_and_cos(z.imag)
    real, imag = c * cosine * factor, s * sine * factor
    lost = (z.real.equal(0.0) | z.imag.equal(0.0)) & imag.not_equal(imag)
    one = constant(z.real, 1.0)
    imag = lost.where(constant(z.real, 0.0).copysign(z.real) * one.copysign(z.imag), imag)
    return choose(
        _infinite(z.real) & ~(z.imag.abs() < math.inf),
        Complex(z.real.abs(), z.imag - z.imag),
        Complex(real, imag),
    )


def sin(z: Complex) -> Complex:
    """The sine: -i sinh(i z)."""
    turned = sinh(Complex(-z.imag, z.real))
    return Complex(turned.imag, -turned.real)


def cos(z: Complex) -> Complex:
    """The cosine: cosh(i z)."""
    return cosh(Complex(-z.imag, z.real))


def tanh(z: Complex) -> Complex:
    """The hyperbolic tangent (Kahan, Branch cuts for complex elementary functions, 1987)."""
    tangent = elementary.tan(z.imag)
    slope = tangent.fma(tangent, 1.0)
    magnitude = z.real.abs()
    large = magnitude > 16.0 * (format_of(z.real).mantissa_bits / 23.0)
    c, s, _ = _growth(z.real)
    divisor = (slope * s).fma(s, 1.0)
    real, imag = slope * c * s / divisor, tangent / divisor
    usual = Complex(z.real.equal(0.0).where(z.real, real), z.imag.equal(0.0).where(z.imag, imag))
    fading = tangent / slope * (4.0 * elementary.exp(magnitude * -2.0))
    fading = _infinite(z.real).where(constant(z.real, 0.0).copysign(tangent), fading)
    end = constant(z.real, 1.0).copysign(z.real)
    end = _infinite(z.real).where(end, end + tangent * 0.0)  # NaN if the imaginary part has no tangent
    return choose(large, Complex(end, fading), usual)


def tan(z: Complex) -> Complex:
    """The tangent: -i tanh(i z)."""
    mirrored = tanh(Complex(z.imag, z.real))
    return Complex(mirrored.imag, mirrored.real)


def logistic(z: Complex) -> Complex:
    """1 / (1 + exp(-z)), through the exponential that does not overflow; through tanh where the divisor may cancel."""
    left = z.real < 0.0
    power = exp(choose(left, z, -z))
    one = Complex(constant(z.real, 1.0), constant(z.real, 0.0))
    far = divide(choose(left, power, one), one + power)
    near = tanh(z.scaled(0.5)).scaled(0.5)
    return choose(z.real.abs() > 1.0, far, Complex(near.real + 0.5, near.imag))


def _products_in_two_parts(a: Scalar, b: Scalar, c: Scalar, d: Scalar) -> tuple[Scalar, Scalar]:
    """a b + c d, and what rounding took from it; nothing where that is not a number."""
    left, right = a * b, c * d
    total, lost = _two_sum(left, right)
    lost = lost + (a.fma(b, -left) + c.fma(d, -right))
    return total, (total.abs() < math.inf).where(lost, 0.0)


def _as_correction(low: Scalar) -> Scalar:
    """What rounding took, if it is little; else the number it was taken from has no accurate exponential anyway."""
    return (low.abs() < 0.125).where(low, 0.0)


def pow(z: Complex, w: Complex) -> Complex:
    """z to the w: the principal value; 1 for w = 0. No other power of 0 is a number unless its real part is above 0."""
    distance, angle = absolute(z), elementary.atan2(z.imag, z.real)
    # The distance is rounded, and a power of it with a large exponent needs it better: by this factor, less 1.
    scaled, exponent = _normalized(z)
    rounded = distance * _power_of_two(-exponent, z.real)
    square = rounded * rounded
    missing = _sum_with_squares(-square, scaled.real, scaled.imag) - rounded.fma(rounded, -square)
    missing = missing / (square + square)
    # Size and direction are as accurate as the angle, the only one of both parts of log z that is a single number.
    zero, ordinary = distance.equal(0.0), (distance > 0.0) & (distance < math.inf)
    log, log_low = log_in_two_parts(distance)
    log, log_low = ordinary.where(log, distance), ordinary.where(log_low + missing, 0.0)
    log_of_size = w.real.equal(0.0).where(0.0, zero.where(-math.inf, log))
    power, power_low = _products_in_two_parts(w.real, log_of_size, -w.imag, angle)
    size, first, second = _exp_in_steps(power, _as_correction(w.real.fma(log_low, power_low)))
    turn, turn_low = _products_in_two_parts(w.real, angle, w.imag, log)
    turn_low = _as_correction(w.imag.fma(log_low, turn_low))
    sine, cosine = elementary.sin_and_cos(turn)
    direction = Complex(sine.fma(-turn_low, cosine), cosine.fma(turn_low, sine))
    direction = choose(turn.equal(0.0), Complex(constant(turn, 1.0), turn), direction)
    result = direction.scaled(size).scaled(first).scaled(second)
    result = Complex(result.real, turn.equal(0.0).where(turn, result.imag))
    nothing = constant(z.real, math.nan)
    result = choose(zero & (w.real <= 0.0), Complex(nothing, nothing), result)
    one = Complex(constant(z.real, 1.0), constant(z.real, 0.0))
    return choose(w.real.equal(0.0) & w.imag.equal(0.0), one, result)
