"""Element-wise arithmetic, comparison, logic and bits.

Semantics are NumPy's, types are JAX's: `/` of integers gives floats, `//` and `%` follow Python's signs, integers wrap.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import DTypeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcasted,
    cast,
    inexact_array,
    like,
    operand,
    promoted,
    type_of,
)
from tinyxla.numpy.elementwise import Binary, binary, composed, unary
from tinyxla.numpy.operations import ops
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import promote_types

add = binary("add", ops.add, "x + y; of booleans, whether either is true.")
subtract = binary("subtract", ops.sub, "x - y.")
multiply = binary("multiply", ops.mul, "x * y; of booleans, whether both are true.")
true_divide = binary("true_divide", ops.div, "x / y, in floating point also for integers.", to_inexact=True)
divide = true_divide
maximum = binary("maximum", ops.max_, "The larger of x and y; NaN if either is.")
minimum = binary("minimum", ops.min_, "The smaller of x and y; NaN if either is.")
negative = unary("negative", ops.neg, "-x.")
_absolute = unary("absolute", ops.abs_, "")


def absolute(x: ArrayLike, /) -> Array:
    """The magnitude of x."""
    x = array_of(x, "absolute")
    return x if element_type(x.dtype).kind in ("pred", "unsigned") else _absolute(x)


abs = absolute


def fabs(x: ArrayLike, /) -> Array:
    """The magnitude of real x, in floating point."""
    return absolute(inexact_array(x, "fabs"))


def positive(x: ArrayLike, /) -> Array:
    """x."""
    return array_of(x, "positive")


def square(x: ArrayLike, /) -> Array:
    """x * x."""
    x = array_of(x, "square")
    return power(x, 2)


# --- division ---------------------------------------------------------------------------------------------------------


def _zero(x: Array) -> Array:
    return like(0, x)


def _signs_differ(x: Any, y: Any) -> Any:
    return ops.ne(ops.lt(x, _zero(x)), ops.lt(y, _zero(y)))


def _remainder(x: Any, y: Any) -> Any:
    rest = ops.rem(x, y)
    if element_type(x.dtype).kind == "unsigned":
        return rest
    shift = ops.and_(ops.ne(rest, _zero(rest)), _signs_differ(rest, y))
    return ops.select(shift, ops.add(rest, y), rest)


def _floor_divide(x: Any, y: Any) -> Any:
    kind = element_type(x.dtype).kind
    if kind == "unsigned":
        return ops.div(x, y)
    if kind == "signed":
        rest = ops.rem(x, y)
        quotient = ops.div(x, y)
        shift = ops.and_(ops.ne(rest, _zero(rest)), _signs_differ(x, y))
        return ops.select(shift, ops.sub(quotient, like(1, x)), quotient)
    if kind == "complex":
        raise DTypeError("floor_divide: complex numbers have no order, so there is no floor of their quotient.")
    # The remainder is exact, so (x - remainder) / y is an integer up to one rounding.
    quotient = ops.div(ops.sub(x, _remainder(x, y)), y)
    whole = ops.round_nearest_even(quotient)
    return ops.select(ops.eq(y, _zero(y)), ops.div(x, y), whole)


remainder = composed(
    "remainder", _remainder, "The remainder of x / y with the sign of y.", to_inexact=False, to_integer=True
)
mod = remainder
floor_divide = composed(
    "floor_divide", _floor_divide, "The largest integer not above x / y.", to_inexact=False, to_integer=True
)
fmod = binary("fmod", ops.rem, "The remainder of x / y with the sign of x.", to_integer=True)


def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Array, Array]:
    """`(floor_divide(x, y), remainder(x, y))`."""
    return floor_divide(x, y), remainder(x, y)


def modf(x: ArrayLike, /) -> tuple[Array, Array]:
    """The fraction of x, and its integer part, both with the sign of x."""
    (x,), _ = promoted("modf", x, to_inexact=True)
    whole = trunc(x)
    infinite = ops.eq(ops.abs_(x), like(np.inf, x))
    return copysign(ops.select(infinite, _zero(x), ops.sub(x, whole)), x), whole


# --- powers -----------------------------------------------------------------------------------------------------------


def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x to the power of y. An exponent that is a Python integer is worked off by multiplications."""
    base, exponent = operand(x, "power"), operand(y.item() if isinstance(y, np.integer) else y, "power")
    dtype, weak = promote_types(type_of(base), type_of(exponent))
    if type(exponent) is int:
        weak = type_of(base)[1]
        if exponent >= 0 or element_type(dtype).is_inexact:
            return integer_power(cast(base, dtype), exponent).with_weak_type(weak)
        raise DTypeError(
            f"power: an integer array to the negative power {y} is not an integer; convert it with astype(float)."
        )
    strong_integer = element_type(type_of(exponent)[0]).is_integer and not type_of(exponent)[1]
    of_booleans = element_type(dtype).is_integer and not (type_of(base)[1] and type_of(exponent)[1])
    return _power(base, exponent).with_weak_type(weak and not strong_integer and not of_booleans)


_power = binary("power", ops.pow_, "x to the power of y.", to_integer=True)
pow = power


def integer_power(x: Any, exponent: int) -> Any:
    """x to an integer power by repeated squaring, which differentiates into powers again."""
    if exponent < 0:
        return ops.div(like(1, x), integer_power(x, -exponent))
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else ops.mul(result, x)
        exponent >>= 1
        if exponent:
            x = ops.mul(x, x)
    return like(1, x) if result is None else result


float_power = binary("float_power", ops.pow_, "x to the power of y, in floating point.", to_inexact=True)

# --- comparison -------------------------------------------------------------------------------------------------------


def _comparison(name: str, direction: str, text: str) -> Binary:
    def attributes(dtype: np.dtype[Any]) -> dict[str, Any]:
        return {"direction": direction, "type": ops.comparison_type(dtype)}

    def by_parts(x: Any, y: Any) -> Any:
        """Complex numbers are ordered by their real parts, and where these are equal by the imaginary ones."""
        strict = getattr(ops, direction[0].lower() + "t")
        last = getattr(ops, direction.lower())
        same = ops.eq(ops.real(x), ops.real(y))
        return ops.or_(strict(ops.real(x), ops.real(y)), ops.and_(same, last(ops.imag(x), ops.imag(y))))

    ordered = direction not in ("EQ", "NE")
    return binary(name, ops.compare, text, attributes=attributes, of_complex=by_parts if ordered else None)


equal = _comparison("equal", "EQ", "Whether x equals y, element by element.")
not_equal = _comparison("not_equal", "NE", "Whether x differs from y, element by element.")
greater = _comparison("greater", "GT", "Whether x is greater than y, element by element.")
greater_equal = _comparison("greater_equal", "GE", "Whether x is y or greater, element by element.")
less = _comparison("less", "LT", "Whether x is less than y, element by element.")
less_equal = _comparison("less_equal", "LE", "Whether x is y or less, element by element.")

# --- logic and bits ---------------------------------------------------------------------------------------------------

bitwise_and = binary("bitwise_and", ops.and_, "The bits that x and y both have.")
bitwise_or = binary("bitwise_or", ops.or_, "The bits that x or y has.")
bitwise_xor = binary("bitwise_xor", ops.xor, "The bits that one of x and y has.")
invert = unary("invert", ops.not_, "The bits that x has not; of booleans, not.")
bitwise_not = bitwise_invert = invert
left_shift = binary("left_shift", ops.shift_left, "x shifted to the left by y bits.", to_integer=True)
bitwise_left_shift = left_shift
bitwise_count = unary("bitwise_count", ops.population_count, "How many bits of x are set.")


def right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x shifted to the right by y bits; the sign is kept."""
    signed = element_type(promote_types(type_of(operand(x, "right_shift")), type_of(operand(y, "right_shift")))[0])
    return _shift_right_logical(x, y) if signed.kind == "unsigned" else _shift_right_arithmetic(x, y)


_shift_right_arithmetic = binary("right_shift", ops.shift_right_arithmetic, "", to_integer=True)
_shift_right_logical = binary("right_shift", ops.shift_right_logical, "", to_integer=True)
bitwise_right_shift = right_shift


def truth(x: ArrayLike, what: str) -> Array:
    """Whether elements differ from zero."""
    return cast(array_of(x, what), np.dtype(np.bool_))


def logical_not(x: ArrayLike, /) -> Array:
    """Whether x is zero, element by element."""
    return invert(truth(x, "logical_not"))


def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether neither x nor y is zero, element by element."""
    return bitwise_and(truth(x, "logical_and"), truth(y, "logical_and"))


def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether x or y is not zero, element by element."""
    return bitwise_or(truth(x, "logical_or"), truth(y, "logical_or"))


def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether one of x and y is not zero, element by element."""
    return bitwise_xor(truth(x, "logical_xor"), truth(y, "logical_xor"))


# --- parts, signs, rounding -------------------------------------------------------------------------------------------


def real(x: ArrayLike, /) -> Array:
    """The real part."""
    x = array_of(x, "real")
    return ops.real(x) if x.dtype.kind == "c" else x


def imag(x: ArrayLike, /) -> Array:
    """The imaginary part: zero for real numbers."""
    x = array_of(x, "imag")
    return ops.imag(x) if x.dtype.kind == "c" else _zero(x).with_weak_type(x.weak_type)


def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate."""
    x = array_of(x, "conjugate")
    return ops.conj(x)


conj = conjugate


def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1 as the sign of x; for complex x, x divided by its magnitude."""
    x = array_of(x, "sign")
    return x if x.dtype.kind == "b" else ops.sign(x)


def signbit(x: ArrayLike, /) -> Array:
    """Whether the sign is negative, also that of -0.0."""
    x = array_of(x, "signbit")
    kind = element_type(x.dtype)
    if not kind.is_inexact:
        return less(x, 0)
    # Of zeros and NaNs the sign shows in the total order of floats only.
    return ops.compare(x, _zero(x), direction="LT", type="TOTALORDER")


def copysign(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The magnitude of x with the sign of y."""
    (x, y), (_, weak) = promoted("copysign", x, y, to_inexact=True)
    x, y = broadcasted("copysign", [x, y])
    size = ops.abs_(x)
    return ops.select(signbit(y), ops.neg(size), size).with_weak_type(weak)


def _rounding(name: str, op: Any, text: str) -> Any:
    """Integers round to themselves."""
    of_floats = unary(name, op, text)

    def apply(x: ArrayLike, /) -> Array:
        x = array_of(x, name)
        return of_floats(x) if element_type(x.dtype).is_inexact else x

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = text
    return apply


floor = _rounding("floor", ops.floor, "The largest integer not above x.")
ceil = _rounding("ceil", ops.ceil, "The smallest integer not below x.")


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, in floating point; halves go to the even one."""
    weak = element_type(array_of(x, "rint").dtype).is_inexact
    x = inexact_array(x, "rint")
    x = x if weak else x.with_weak_type(False)
    if x.dtype.kind == "c":
        return ops.complex_(rint(real(x)), rint(imag(x))).with_weak_type(x.weak_type)
    return ops.round_nearest_even(x)


def trunc(x: ArrayLike, /) -> Array:
    """x without its fraction."""
    x = array_of(x, "trunc")
    if not element_type(x.dtype).is_inexact:
        return x
    return ops.select(ops.lt(x, _zero(x)), ops.ceil(x), ops.floor(x)).with_weak_type(x.weak_type)


fix = trunc


def round(x: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """x rounded to that many decimals (before the point if negative); halves go to the even neighbour."""
    x = array_of(x, "round")
    kind = element_type(x.dtype)
    if kind.kind == "complex":
        return ops.complex_(round(real(x), decimals), round(imag(x), decimals))
    if not kind.is_inexact:
        if decimals >= 0:
            return x
        factor = 10.0**-decimals
        wide = divide(x, factor)
        return cast(multiply(ops.round_nearest_even(wide), factor), x.dtype)
    if decimals == 0:
        return ops.round_nearest_even(x).with_weak_type(x.weak_type)
    wide = cast(x, np.dtype(np.float32)) if kind.bits < 32 else x
    factor = like(10.0 ** builtin_abs(decimals), wide)
    up, down = (ops.mul, ops.div) if decimals > 0 else (ops.div, ops.mul)
    return cast(down(ops.round_nearest_even(up(wide, factor)), factor), x.dtype).with_weak_type(x.weak_type)


def builtin_abs(value: int) -> int:
    return value if value >= 0 else -value


around = round


def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """x, but `min` where it is below that, and `max` where it is above."""
    x = array_of(x, "clip")
    if x.dtype.kind == "c" or any(b is not None and type_of(operand(b, "clip"))[0].kind == "c" for b in (min, max)):
        raise DTypeError("clip: complex numbers have no order; clip their parts or magnitudes.")
    if min is not None:
        x = maximum(min, x)
    return x if max is None else minimum(max, x)


def heaviside(x: ArrayLike, y: ArrayLike, /) -> Array:
    """0 where x is negative, 1 where it is positive, y where it is 0."""
    (x, y), (_, weak) = promoted("heaviside", x, y, to_inexact=True)
    x, y = broadcasted("heaviside", [x, y])
    step = ops.select(ops.lt(x, _zero(x)), _zero(x), like(1, x))
    known = ops.select(ops.ne(x, x), x, step)
    return ops.select(ops.eq(x, _zero(x)), y, known).with_weak_type(weak)


def _ignoring_nan(name: str, op: Any, text: str) -> Binary:
    def choose(x: Any, y: Any) -> Any:
        if not element_type(x.dtype).is_inexact:
            return op(x, y)
        return ops.select(ops.ne(x, x), y, ops.select(ops.ne(y, y), x, op(x, y)))

    return composed(name, choose, text, to_inexact=False)


fmax = _ignoring_nan("fmax", ops.max_, "The larger of x and y; the other one where either is NaN.")
fmin = _ignoring_nan("fmin", ops.min_, "The smaller of x and y; the other one where either is NaN.")

# --- special values ---------------------------------------------------------------------------------------------------


def _each_part(name: str, test: Any, combine: Any, of_integers: bool, text: str) -> Any:
    """A question about floats, asked of both parts of complex numbers."""

    def apply(x: ArrayLike, /) -> Array:
        x = array_of(x, name)
        kind = element_type(x.dtype)
        if not kind.is_inexact:
            return like(of_integers, x.astype(np.bool_))
        if kind.kind == "complex":
            return combine(test(ops.real(x)), test(ops.imag(x)))
        return test(x)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = text
    return apply


def _is_infinite(x: Any) -> Any:
    return ops.eq(ops.abs_(x), like(np.inf, x))


isnan = _each_part("isnan", lambda x: ops.ne(x, x), ops.or_, False, "Whether x is not a number.")
isinf = _each_part("isinf", _is_infinite, ops.or_, False, "Whether x is positive or negative infinity.")
isfinite = _each_part("isfinite", ops.is_finite, ops.and_, True, "Whether x is neither infinite nor NaN.")


def isposinf(x: ArrayLike, /) -> Array:
    """Whether x is positive infinity."""
    return equal(array_of(x, "isposinf"), np.inf)


def isneginf(x: ArrayLike, /) -> Array:
    """Whether x is negative infinity."""
    return equal(array_of(x, "isneginf"), -np.inf)


def isreal(x: ArrayLike, /) -> Array:
    """Whether the imaginary part is zero."""
    return equal(imag(x), 0)


def iscomplex(x: ArrayLike, /) -> Array:
    """Whether the imaginary part is not zero."""
    return not_equal(imag(x), 0)


def isclose(
    x: ArrayLike, y: ArrayLike, rtol: ArrayLike = 1e-5, atol: ArrayLike = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether |x - y| <= atol + rtol |y|, or both are the same infinity (or NaN, if `equal_nan`)."""
    (x, y), _ = promoted("isclose", x, y, to_inexact=True)
    x, y = broadcasted("isclose", [x, y])
    near = less_equal(absolute(subtract(x, y)), add(atol, multiply(rtol, absolute(y))))
    close = bitwise_or(bitwise_and(near, bitwise_and(isfinite(x), isfinite(y))), ops.eq(x, y))
    return bitwise_or(close, bitwise_and(isnan(x), isnan(y))) if equal_nan else close


def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """x with NaN replaced by `nan`, infinities by `posinf` and `neginf` (if not given, the largest finite numbers)."""
    x = array_of(x, "nan_to_num")
    kind = element_type(x.dtype)
    if kind.kind == "complex":
        return ops.complex_(*(nan_to_num(part, copy, nan, posinf, neginf) for part in (real(x), imag(x))))
    if not kind.is_inexact:
        return x
    info = ml_dtypes.finfo(x.dtype)
    positive_value = info.max if posinf is None else posinf
    negative_value = info.min if neginf is None else neginf
    for found, value in ((isnan(x), nan), (isposinf(x), positive_value), (isneginf(x), negative_value)):
        chosen, kept = broadcasted("nan_to_num", [cast(operand(value, "nan_to_num"), x.dtype), x])
        x = ops.select(found, chosen, kept)
    return x
