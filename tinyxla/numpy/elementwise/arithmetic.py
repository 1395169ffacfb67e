"""Element-wise arithmetic, comparison, logic and bits.

Semantics are NumPy's, types are JAX's: `/` of integers gives floats, `//` and `%` follow Python's signs, integers wrap.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import DTypeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcasted,
    cast,
    default_inexact_array,
    integer_of,
    like,
    operand,
    promoted,
    refuse_out,
    type_of,
)
from tinyxla.numpy.elementwise.definitions import Binary, OfMask, Unary, as_binary, as_unary, binary, unary, with_slope
from tinyxla.numpy.operations import ops
from tinyxla.shapes import KeyType, Shape, element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import promote_types
from tinyxla.util.tracebacks import boundary

add = binary("add", ops.add, "x + y; of booleans, whether either is true.")
subtract = binary("subtract", ops.sub, "x - y.")
multiply = binary(
    "multiply",
    ops.mul,
    "x * y; of booleans, whether both are true.",
    of_mask=OfMask(lambda mask, x: ops.select(mask, x, like(0, x)), lambda mask, x: np.where(mask, x, x.dtype.type(0))),
)
true_divide = binary("true_divide", ops.div, "x / y, in floating point also for integers.", to_inexact=True)
divide = true_divide
maximum = binary("maximum", ops.max_, "The larger of x and y; NaN if either is.")
minimum = binary("minimum", ops.min_, "The smaller of x and y; NaN if either is.")
negative = unary("negative", ops.neg, "-x.", is_ufunc=True)


def _magnitude_of_real(x: Any) -> Any:
    if x.dtype.kind == "c":
        raise DTypeError(f"fabs: takes real arrays, but got {Shape.of(x)}; use abs.")
    return ops.abs_(x)


fabs = unary("fabs", _magnitude_of_real, "The magnitude of real x, in floating point.", to_inexact=True)


def _kind(x: Array) -> str:
    return element_type(x.dtype).kind


def _is_inexact(x: Array) -> bool:
    return element_type(x.dtype).is_inexact


def _zero(x: Array) -> Array:
    return like(0, x)


@as_unary
def absolute(x: Any) -> Any:
    """The magnitude of x."""
    return x if _kind(x) in ("pred", "unsigned") else ops.abs_(x)


abs = absolute


def positive(x: ArrayLike, /) -> Array:
    """x.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of the shape and type of x.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.positive(jnp.array([-1, 2]))
        Array([-1,  2], dtype=int32)
    """
    return array_of(x, "positive").copy()


# --- division ---------------------------------------------------------------------------------------------------------


def _signs_differ(x: Any, y: Any) -> Any:
    return ops.ne(ops.lt(x, _zero(x)), ops.lt(y, _zero(y)))


@as_binary(to_integer=True, of_signed=np.remainder)
def remainder(x: Any, y: Any) -> Any:
    """The remainder of x / y with the sign of y, also of zeros; for integers y = 0, it is 0."""
    rest = _remainder(x, y)
    if _kind(x) == "unsigned":
        return rest
    shift = ops.and_(ops.ne(rest, _zero(rest)), _signs_differ(rest, y))
    found = ops.select(shift, ops.add(rest, y), rest)
    if _kind(x) != "float":
        return found
    zero = _zero(found)  # a sum with it is no negative zero, and has the derivative of the other summand
    return ops.select(ops.lt(y, zero), ops.neg(ops.add(ops.neg(found), zero)), ops.add(found, zero))


mod = remainder


def _floor_of_signed(x: Any, y: Any) -> Any:
    quotient = np.floor_divide(x, y)
    return quotient if np.all(y) else np.where(y == 0, -1, quotient).astype(quotient.dtype)


@as_binary(to_integer=True, of_signed=_floor_of_signed)
def floor_divide(x: Any, y: Any) -> Any:
    """The largest integer not above x / y, -1 for an integer over 0; a zero has the sign of the quotient."""
    kind = _kind(x)
    if kind == "complex":
        raise DTypeError("floor_divide: complex numbers have no order, so there is no floor of their quotient.")
    if kind == "unsigned":
        return ops.div(x, y)
    rest = ops.rem(x, y)
    shift = ops.and_(ops.ne(rest, _zero(rest)), _signs_differ(rest, y))
    if kind == "signed":
        quotient = ops.div(x, y)
        shift = ops.and_(shift, ops.ne(y, _zero(y)))  # an integer over 0 is -1, which has no remainder
        return ops.select(shift, ops.sub(quotient, like(1, x)), quotient)
    # The remainder is exact, so (x - remainder) / y is an integer up to one rounding.
    whole = ops.round_nearest_even(ops.div(ops.sub(x, rest), y))
    whole = ops.select(shift, ops.sub(whole, like(1, x)), whole)
    quotient = ops.div(x, y)
    whole = ops.select(ops.eq(whole, _zero(whole)), ops.mul(quotient, _zero(whole)), whole)
    return ops.select(ops.eq(y, _zero(y)), ops.floor(quotient), whole)


def _remainder(x: Any, y: Any) -> Any:
    """That of x / y with the sign of x, and 0 where an integer is divided by 0."""
    if _kind(x) in ("signed", "unsigned"):
        y = ops.select(ops.eq(y, _zero(y)), like(1, y), y)
    return ops.rem(x, y)


fmod = binary(
    "fmod", _remainder, "The remainder of x / y with the sign of x; for integers y = 0, it is 0.", to_integer=True
)


@replayed
def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Array, Array]:
    """`(floor_divide(x, y), remainder(x, y))`.

    Args:
        x, y: an array of any shape, or a number.

    Returns:
        The quotient and the remainder, of the common shape.

    Raises:
        ShapeError: shapes that do not broadcast.
        DTypeError: complex numbers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.divmod(jnp.array([7, -7]), 3)
        (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
    return floor_divide(x, y), remainder(x, y)


# --- powers -----------------------------------------------------------------------------------------------------------


def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x to the power of y. An exponent that is a Python integer is worked off by multiplications.

    Args:
        x, y: an array of any shape, or a number.

    Returns:
        An array of the common shape.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.pow(jnp.array([1.0, 2.0, 3.0]), 2)
        Array([1., 4., 9.], dtype=float32)
    """
    exponent = y.item() if isinstance(y, np.integer) else y
    if type(exponent) is int:
        return _integer_power(exponent)(x)
    base, exponent = operand(x, "power"), operand(y, "power")
    (kind, base_weak), (exponent_kind, exponent_weak) = type_of(base), type_of(exponent)
    dtype, weak = promote_types((kind, base_weak), (exponent_kind, exponent_weak))
    if element_type(exponent_kind).is_integer and not exponent_weak:
        weak = False
    if element_type(dtype).is_integer and not (base_weak and exponent_weak):
        weak = False  # a boolean is a number here
    return _power(base, exponent).with_weak_type(weak)


pow = power
_power = binary("power", ops.pow_, "x to the power of y.", to_integer=True)
float_power = binary("float_power", ops.pow_, "x to the power of y, in floating point.", to_inexact=True)


@lru_cache(256)
def _integer_power(exponent: int) -> Unary:
    def of_array(x: Any) -> Any:
        if _kind(x) == "pred":
            x = cast(x, type_of(0)[0], False)
        if exponent < 0 and not _is_inexact(x):
            raise DTypeError(
                f"power: an integer array to the negative power {exponent} is not an integer; "
                "convert it with astype(float)."
            )
        return multiplied(x, exponent)

    return unary("power", of_array, "")


def multiplied(x: Any, exponent: int) -> Any:
    """x to an integer power by repeated squaring, which differentiates into powers again."""
    if exponent == 0:
        return like(1, x)
    if exponent < -1 and _is_inexact(x):
        return _reciprocal_power(exponent)(x)
    return raised(x, exponent, ops.mul) if exponent > 0 else ops.div(like(1, x), raised(x, -exponent, ops.mul))


@lru_cache(256)
def _reciprocal_power(exponent: int) -> Callable[[Any], Any]:
    """x to a negative power, whose derivative has no factor that is zero at the pole."""
    return with_slope(
        f"power_{exponent}",
        lambda x: ops.div(like(1, x), raised(x, -exponent, ops.mul)),
        lambda ans, x: ops.mul(like(exponent, x), multiplied(x, exponent - 1)),
    )


def raised(x: Any, exponent: int, multiply: Callable[[Any, Any], Any]) -> Any:
    """x to a positive power by repeated squaring."""
    result = None
    while True:
        if exponent & 1:
            result = x if result is None else multiply(result, x)
        exponent >>= 1
        if not exponent:
            return result
        x = multiply(x, x)


def square(x: ArrayLike, /) -> Array:
    """x * x; of booleans, as int32.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.square(jnp.array([2, -3]))
        Array([4, 9], dtype=int32)
    """
    x = array_of(x, "square")
    return _integer_power(2)(cast(x, np.dtype(np.int32), False) if x.dtype.kind == "b" else x)


# --- comparison -------------------------------------------------------------------------------------------------------


def _comparison(name: str, compare: Any, strict: Any, text: str) -> Binary:
    def apply(x: Any, y: Any) -> Any:
        if x.dtype.kind != "c" or strict is None:
            return compare(x, y)
        # Complex numbers are ordered by their real parts, and where these are equal by the imaginary ones.
        same = ops.eq(ops.real(x), ops.real(y))
        return ops.or_(strict(ops.real(x), ops.real(y)), ops.and_(same, compare(ops.imag(x), ops.imag(y))))

    return binary(name, apply, text)


equal = _comparison("equal", ops.eq, None, "Whether x equals y, element by element.")
not_equal = _comparison("not_equal", ops.ne, None, "Whether x differs from y, element by element.")
greater = _comparison("greater", ops.gt, ops.gt, "Whether x is greater than y, element by element.")
greater_equal = _comparison("greater_equal", ops.ge, ops.gt, "Whether x is y or greater, element by element.")
less = _comparison("less", ops.lt, ops.lt, "Whether x is less than y, element by element.")
less_equal = _comparison("less_equal", ops.le, ops.lt, "Whether x is y or less, element by element.")

# --- logic and bits ---------------------------------------------------------------------------------------------------

bitwise_and = binary("bitwise_and", ops.and_, "The bits that x and y both have.")
bitwise_or = binary("bitwise_or", ops.or_, "The bits that x or y has.")
bitwise_xor = binary("bitwise_xor", ops.xor, "The bits that one of x and y has.")
invert = unary("invert", ops.not_, "The bits that x has not; of booleans, not.")
bitwise_not = bitwise_invert = invert
left_shift = binary(
    "left_shift", ops.shift_left, "x shifted to the left by y bits.", to_integer=True, of_signed=np.left_shift
)
bitwise_left_shift = left_shift
_population_count = unary("bitwise_count", ops.population_count, "")


def bitwise_count(x: ArrayLike, /) -> Array:
    """How many bits of x, or of its magnitude, are set, as uint8.

    Args:
        x: integers.

    Returns:
        An array of uint8.

    Raises:
        DTypeError: what are no integers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.bitwise_count(jnp.array([0, 7, 8]))
        Array([0, 3, 1], dtype=uint8)
    """
    x = absolute(x)
    return cast(_population_count(cast(x, np.dtype(np.uint8)) if x.dtype.kind == "b" else x), np.dtype(np.uint8), False)


@as_binary(to_integer=True, of_signed=np.right_shift)
def right_shift(x: Any, y: Any) -> Any:
    """x shifted to the right by y bits; the sign is kept."""
    return (ops.shift_right_logical if _kind(x) == "unsigned" else ops.shift_right_arithmetic)(x, y)


bitwise_right_shift = right_shift


def truth(x: ArrayLike, what: str) -> Array:
    """Whether elements differ from zero."""
    return cast(array_of(x, what), np.dtype(np.bool_))


def logical_not(x: ArrayLike, /) -> Array:
    """Whether x is zero, element by element.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of booleans.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.logical_not(jnp.array([True, False]))
        Array([False,  True], dtype=bool)
    """
    return invert(truth(x, "logical_not"))


def logical_and(x: ArrayLike, y: ArrayLike, /, out: None = None, where: None = None) -> Array:
    """Whether neither x nor y is zero, element by element.

    Args:
        x, y: an array of any shape, or a number.
        out: must be None.
        where: must be None.

    Returns:
        An array of booleans.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.logical_and(jnp.array([True, False]), jnp.array([True, True]))
        Array([ True, False], dtype=bool)
    """
    return bitwise_and(truth(x, "logical_and"), truth(y, "logical_and"), out, where)


def logical_or(x: ArrayLike, y: ArrayLike, /, out: None = None, where: None = None) -> Array:
    """Whether x or y is not zero, element by element.

    Args:
        x, y: an array of any shape, or a number.
        out: must be None.
        where: must be None.

    Returns:
        An array of booleans.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.logical_or(jnp.array([True, False]), jnp.array([False, False]))
        Array([ True, False], dtype=bool)
    """
    return bitwise_or(truth(x, "logical_or"), truth(y, "logical_or"), out, where)


def logical_xor(x: ArrayLike, y: ArrayLike, /, out: None = None, where: None = None) -> Array:
    """Whether one of x and y is not zero, element by element.

    Args:
        x, y: an array of any shape, or a number.
        out: must be None.
        where: must be None.

    Returns:
        An array of booleans.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.logical_xor(jnp.array([True, False]), jnp.array([True, True]))
        Array([False,  True], dtype=bool)
    """
    return bitwise_xor(truth(x, "logical_xor"), truth(y, "logical_xor"), out, where)


# --- parts and signs --------------------------------------------------------------------------------------------------


@as_unary
def real(x: Any) -> Any:
    """The real part."""
    return ops.real(x) if x.dtype.kind == "c" else x.copy()


@as_unary
def imag(x: Any) -> Any:
    """The imaginary part: zero for real numbers."""
    return ops.imag(x) if x.dtype.kind == "c" else _zero(x)


@as_unary
def conjugate(x: Any) -> Any:
    """The complex conjugate."""
    return ops.conj(x) if x.dtype.kind == "c" else x.copy()


conj = conjugate


@as_unary
def sign(x: Any) -> Any:
    """-1, 0 or 1 as the sign of x; for complex x, x divided by its magnitude."""
    return x if _kind(x) == "pred" else ops.sign(x)


@as_unary
def signbit(x: Any) -> Any:
    """Whether the sign is negative, also that of -0.0."""
    if _kind(x) == "complex":
        raise DTypeError("signbit: complex numbers have no sign; take that of their real or imaginary part.")
    if not _is_inexact(x):
        return ops.lt(x, _zero(x))
    # Of zeros and NaNs the sign shows in the total order of floats only.
    return ops.compare(x, _zero(x), direction="LT", type="TOTALORDER")


@as_binary(to_inexact=True)
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    size = ops.abs_(x)
    negative_sign = ops.compare(y, _zero(y), direction="LT", type="TOTALORDER")
    return ops.select(negative_sign, ops.neg(size), size)


@as_binary(to_inexact=True)
def heaviside(x: Any, y: Any) -> Any:
    """0 where x is negative, 1 where it is positive, y where it is 0."""
    step = ops.select(ops.lt(x, _zero(x)), _zero(x), like(1, x))
    known = ops.select(ops.ne(x, x), x, step)
    return ops.select(ops.eq(x, _zero(x)), y, known)


# --- rounding ---------------------------------------------------------------------------------------------------------


def _rounding(name: str, op: Any, text: str) -> Unary:
    """Integers round to themselves."""
    return unary(name, lambda x: op(x) if _is_inexact(x) else x, text)


floor = _rounding("floor", ops.floor, "The largest integer not above x.")
ceil = _rounding("ceil", ops.ceil, "The smallest integer not below x.")
_trunc = _rounding("trunc", lambda x: ops.select(ops.lt(x, _zero(x)), ops.ceil(x), ops.floor(x)), "")


def trunc(x: ArrayLike) -> Array:
    """x without fraction.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of the shape and element type of x.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.trunc(jnp.array([1.7, -1.7]))
        Array([ 1., -1.], dtype=float32)
    """
    return _trunc(x)


fix = trunc


def _to_even(x: Any) -> Any:
    if x.dtype.kind == "c":
        return ops.complex_(ops.round_nearest_even(ops.real(x)), ops.round_nearest_even(ops.imag(x)))
    return ops.round_nearest_even(x)


_rint = unary("rint", _to_even, "", to_inexact=True)


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, in floating point; halves go to the even one.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.rint(jnp.array([0.5, 1.5, 1.7]))
        Array([0., 2., 2.], dtype=float32)
    """
    return _rint(default_inexact_array(x, "rint"))


@boundary
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """a rounded to that many decimals (before the point if negative); halves go to the even neighbour.

    Args:
        a: an array of any shape, or a number.
        decimals: the number of decimals.
        out: must be None.

    Returns:
        An array of the shape and type of a.

    Raises:
        ArgumentError: decimals that are no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.around(jnp.array([0.5, 1.5, 2.25]), 1)
        Array([0.5, 1.5, 2.2], dtype=float32)
        >>> jnp.around(jnp.array([0.5, 1.5, 2.25]))
        Array([0., 2., 2.], dtype=float32)
    """
    refuse_out("round", out)
    return _rounded_to(integer_of("round", "decimals", decimals))(a)


around = round


@lru_cache(64)
def _rounded_to(decimals: int) -> Unary:
    exponent = builtins.abs(decimals)
    up, down = (ops.mul, ops.div) if decimals > 0 else (ops.div, ops.mul)

    def of_array(x: Any) -> Any:
        kind = element_type(x.dtype)
        if kind.kind == "complex":
            return ops.complex_(of_array(ops.real(x)), of_array(ops.imag(x)))
        if not kind.is_inexact and decimals >= 0:
            return x
        if decimals == 0:
            return ops.round_nearest_even(x)
        wide = cast(x, np.dtype(np.float64 if kind.bits == 64 else np.float32))
        if exponent > (308 if wide.dtype == np.float64 else 38):  # a power that the type does not have
            return (
                x
                if decimals > 0
                else like(0, x)
                if not kind.is_inexact
                else ops.select(ops.is_finite(x), like(0, x), x)
            )
        scale = like(10.0**exponent, wide)
        scaled = up(wide, scale)
        found = cast(down(ops.round_nearest_even(scaled), scale), x.dtype)
        # What overflows has no digits behind the place.
        return found if decimals < 0 else ops.select(ops.is_finite(scaled), found, x)

    return unary("round", of_array, "")


@replayed
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """The fraction of x, and its integer part, both with the sign of x.

    Args:
        x: an array of any shape, or a number.
        out: must be None.

    Returns:
        Two arrays of the shape of x.

    Raises:
        DTypeError: complex numbers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.modf(jnp.array([1.5, -2.25]))
        (Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))
    """
    refuse_out("modf", out)
    (x,), (_, weak) = promoted("modf", x, to_inexact=True)
    whole = trunc(x)
    infinite = ops.eq(ops.abs_(x), like(np.inf, x))
    negative = ops.compare(x, _zero(x), direction="LT", type="TOTALORDER")
    fraction = ops.select(negative, ops.neg(ops.sub(whole, x)), ops.sub(x, whole))  # -0.0 of a negative whole number
    fraction = ops.select(infinite, copysign(_zero(x), x), fraction)
    return fraction.with_weak_type(weak), whole.with_weak_type(weak)


# --- bounds -----------------------------------------------------------------------------------------------------------


@replayed
def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """x, but `min` where it is below that, and `max` where it is above.

    Args:
        x: an array of any shape, or a number.
        min, max: the limits, which broadcast with x; None for no limit.

    Returns:
        An array of the common shape.

    Raises:
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.clip(jnp.array([-2, 0, 5]), -1, 1)
        Array([-1,  0,  1], dtype=int32)
    """
    x = array_of(x, "clip")
    for bound in (x, min, max):
        if bound is not None and type_of(operand(bound, "clip"))[0].kind == "c":
            raise DTypeError(
                "Clip received a complex value either through the input or the min/max keywords, but complex numbers "
                "have no order; clip their parts or magnitudes."
            )
    if min is not None:
        x = maximum(min, x)
    return x if max is None else minimum(max, x)


def _ignoring_nan(name: str, op: Any, text: str) -> Binary:
    """The extremum of two, or the one that is not NaN; of equal ones the second has the derivative, as in JAX."""

    def choose(x: Any, y: Any) -> Any:
        if not _is_inexact(x):
            return op(x, y)
        wins = ops.and_(ops.eq(op(x, y), x), ops.ne(x, y))
        return ops.select(ops.or_(wins, ops.ne(y, y)), x, y)

    return binary(name, choose, text)


_fmax = _ignoring_nan("fmax", ops.max_, "")
_fmin = _ignoring_nan("fmin", ops.min_, "")


def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The larger of both; the other one where either is NaN.

    Args:
        x1, x2: arrays that broadcast against each other, or numbers.

    Returns:
        An array of the common shape and element type.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fmax(jnp.array([1.0, jnp.nan]), 0.0)
        Array([1., 0.], dtype=float32)
    """
    return _fmax(x1, x2)


def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The smaller of both; the other one where either is NaN.

    Args:
        x1, x2: arrays that broadcast against each other, or numbers.

    Returns:
        An array of the common shape and element type.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fmin(jnp.array([1.0, jnp.nan]), 0.0)
        Array([0., 0.], dtype=float32)
    """
    return _fmin(x1, x2)


# --- special values ---------------------------------------------------------------------------------------------------


def _question(name: str, test: Any, combine: Any, of_integers: bool, text: str, strong: bool = True) -> Unary:
    """A question about floats: asked of both parts of complex numbers, with one answer for all integers and for all
    random keys."""

    def apply(x: Any) -> Any:
        if isinstance(x.dtype, KeyType):
            return ops.eq(x, x) if of_integers else ops.ne(x, x)
        if x.dtype.kind == "c":
            return combine(test(ops.real(x)), test(ops.imag(x)))
        return test(x) if _is_inexact(x) else like(of_integers, cast(x, np.dtype(np.bool_)))

    return unary(name, apply, text, strong=strong)


def _equals(value: float, x: Any) -> Any:
    return ops.eq(x, like(value, x))


isnan = _question("isnan", lambda x: ops.ne(x, x), ops.or_, False, "Whether x is not a number.", strong=False)
isinf = _question(
    "isinf", lambda x: _equals(np.inf, ops.abs_(x)), ops.or_, False, "Whether x is positive or negative infinity."
)
isfinite = _question("isfinite", ops.is_finite, ops.and_, True, "Whether x is neither infinite nor NaN.")
_isposinf = _question("isposinf", partial(_equals, np.inf), ops.or_, False, "")
_isneginf = _question("isneginf", partial(_equals, -np.inf), ops.or_, False, "")


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether x is positive infinity.

    Args:
        x: an array of any shape, or a number.
        out: must be None.

    Returns:
        An array of booleans.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isposinf(jnp.array([-jnp.inf, jnp.inf]))
        Array([False,  True], dtype=bool)
    """
    refuse_out("isposinf", out)
    return _isposinf(x)


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether x is negative infinity.

    Args:
        x: an array of any shape, or a number.
        out: must be None.

    Returns:
        An array of booleans.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isneginf(jnp.array([-jnp.inf, jnp.inf]))
        Array([ True, False], dtype=bool)
    """
    refuse_out("isneginf", out)
    return _isneginf(x)


@replayed
def isreal(x: ArrayLike) -> Array:
    """Whether the imaginary part is zero.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of booleans.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isreal(jnp.array([1j, 2.0]))
        Array([False,  True], dtype=bool)
    """
    part = imag(x)
    return equal(part, like(0, part))


@replayed
def iscomplex(x: ArrayLike) -> Array:
    """Whether the imaginary part is not zero.

    Args:
        x: an array of any shape, or a number.

    Returns:
        An array of booleans.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.iscomplex(jnp.array([1j, 2.0]))
        Array([ True, False], dtype=bool)
    """
    part = imag(x)
    return not_equal(part, like(0, part))


@replayed
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-5, atol: ArrayLike = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether |a - b| <= atol + rtol |b|, or both are the same infinity (or NaN, if `equal_nan`). Random keys are close
    if they are equal.

    Args:
        a, b: an array of any shape, or a number.
        rtol, atol: the relative and the absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    Returns:
        An array of booleans.

    Raises:
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isclose(jnp.array([1.0, 2.0]), jnp.array([1.000001, 2.1]))
        Array([ True, False], dtype=bool)
    """
    if any(isinstance(getattr(x, "dtype", None), KeyType) for x in (a, b)):
        return equal(a, b)
    (x, y), _ = promoted("isclose", a, b, to_inexact=True)
    distance, size = absolute(subtract(x, y)), absolute(y)
    absolute_bound, relative_bound = (cast(operand(t, "isclose"), size.dtype) for t in (atol, rtol))
    near = less_equal(distance, add(absolute_bound, multiply(relative_bound, size)))
    close = bitwise_or(bitwise_and(near, bitwise_and(isfinite(x), isfinite(y))), equal(x, y))
    return bitwise_or(close, bitwise_and(isnan(x), isnan(y))) if equal_nan else close


@replayed
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """x with NaN replaced by `nan`, infinities by `posinf` and `neginf` (if not given, the largest finite numbers).

    Args:
        x: an array of any shape, or a number.
        copy: accepted for compatibility; the result is always another array.
        nan, posinf, neginf: the replacements.

    Returns:
        An array of the shape and type of x.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nan_to_num(jnp.array([jnp.nan, 1.0]))
        Array([0., 1.], dtype=float32)
    """
    x = array_of(x, "nan_to_num")
    if x.dtype.kind == "c":
        return ops.complex_(*(nan_to_num(part, copy, nan, posinf, neginf) for part in (real(x), imag(x))))
    if not _is_inexact(x):
        return x
    info = ml_dtypes.finfo(x.dtype)
    replaced = (
        (isnan, nan),
        (isposinf, info.max if posinf is None else posinf),
        (isneginf, info.min if neginf is None else neginf),
    )
    found = x
    for test, value in replaced:
        chosen, found = broadcasted("nan_to_num", [cast(operand(value, "nan_to_num"), x.dtype), found])
        found = ops.select(test(x), chosen, found)
    return found
