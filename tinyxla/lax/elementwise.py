"""Element-wise functions: one of XLA's operations each, or a few."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from tinyxla.lax.examples import documented
from tinyxla.lax.operands import ArrayLike, DTypeLike, described, matched, of_one_shape, of_one_type
from tinyxla.numpy.arguments import array_of, cast, integer_of, named, python_dtype
from tinyxla.numpy.elementwise import transcendental
from tinyxla.numpy.elementwise.arithmetic import multiplied
from tinyxla.ops import bits, elementwise, movement
from tinyxla.ops.numerics.accuracy import ResultAccuracy
from tinyxla.ops.op import Op, Value
from tinyxla.shapes import element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.float_zeros import is_float0
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.signatures import Tree

__all__ = [
    "AccuracyMode",
    "RoundingMethod",
    "Tolerance",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitcast_convert_type",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clamp",
    "clz",
    "conj",
    "convert_element_type",
    "cos",
    "cosh",
    "cospi",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "imag",
    "integer_pow",
    "is_finite",
    "le",
    "log",
    "log1p",
    "logistic",
    "lt",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "population_count",
    "real",
    "reciprocal",
    "reduce_precision",
    "rem",
    "rsqrt",
    "select",
    "select_n",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sinpi",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tan",
    "tanh",
]

Unary = Callable[[ArrayLike], Array]
Binary = Callable[[ArrayLike, ArrayLike], Array]

# The functions here that are one op, by its name: with one operand, and with two.
UNARY: dict[str, str] = {}
BINARY: dict[str, str] = {"mulhi": "mulhi", "power": "pow"}  # these two have more to check


def _unary(name: str, op: Callable[..., Any], text: str) -> Unary:
    def function(x: ArrayLike) -> Array:
        return op(array_of(x, f"lax.{name}"))

    if isinstance(op, Op):
        UNARY[op.name] = name
    return named(function, name, documented(name, text, ("x",)))


@dataclass(frozen=True)
class Tolerance:
    """How far results may be from exact ones: `atol`, `rtol` times the exact result, or `ulps` units in its last place.

    One of them has to be met; `ulps` goes with `atol` or alone.

    >>> from tinyxla.lax import Tolerance, exp
    >>> exp(1.0, accuracy=Tolerance(ulps=1))
    Array(2.7182817, dtype=float32, weak_type=True)
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if min(self.atol, self.rtol, self.ulps) < 0:
            raise AttributeValueError(f"lax.Tolerance: tolerances must not be negative, but got {self}.")
        if not (self.atol or self.rtol or self.ulps):
            raise AttributeValueError("lax.Tolerance: at least one of atol, rtol and ulps must be set.")


class AccuracyMode(enum.Enum):
    """The most accurate implementation of a function, or the usual one.

    >>> from tinyxla import lax
    >>> lax.exp(1.0, accuracy=lax.AccuracyMode.HIGHEST)
    Array(2.7182817, dtype=float32, weak_type=True)
    """

    HIGHEST = 1
    DEFAULT = 2


def _result_accuracy(what: str, accuracy: Tolerance | AccuracyMode | None) -> ResultAccuracy:
    if isinstance(accuracy, AccuracyMode):
        return ResultAccuracy(accuracy.name.lower())
    if isinstance(accuracy, Tolerance):
        return ResultAccuracy("tolerance", float(accuracy.atol), float(accuracy.rtol), int(accuracy.ulps))
    raise AttributeValueError(f"{what}: accuracy must be a Tolerance or an AccuracyMode, but got {accuracy!r}.")


class Accurate(Protocol):
    """An element-wise function that takes how accurate its result has to be; an error says if it cannot be."""

    def __call__(self, x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array: ...


def _accurate(name: str, op: Op, text: str) -> Accurate:
    def function(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
        value = array_of(x, f"lax.{name}")
        if accuracy is None or accuracy is AccuracyMode.DEFAULT:
            return op(value)
        return op(value, result_accuracy=_result_accuracy(f"lax.{name}", accuracy))

    UNARY[op.name] = name
    return named(function, name, documented(name, text, ("x",), has_accuracy=True))


def _binary(name: str, op: Callable[..., Any], text: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return op(*matched(f"lax.{name}", x, y))

    if isinstance(op, Op):
        BINARY[op.name] = name
    return named(function, name, documented(name, text, ("x", "y")))


def _conjugate(x: Any) -> Any:
    if x.dtype.name in ("float32", "float64"):
        return elementwise.complex_(x, elementwise.zeros_like(x)).with_weak_type(x.weak_type)
    return elementwise.conj(x)


# --- one operation each -----------------------------------------------------------------------------------------------

abs_ = _unary("abs", elementwise.abs_, "The absolute value: a real number also for complex elements.")
cbrt = _accurate("cbrt", elementwise.cbrt, "The cube root, also of negative numbers.")
ceil = _unary("ceil", elementwise.ceil, "The ceiling: the least whole number that is not less than x.")
clz = _unary("clz", elementwise.clz, "The number of leading zero bits of an integer; of 0, all its bits.")
conj = _unary("conj", _conjugate, "The complex conjugate; of a real number, that number as a complex one.")
cos = _accurate("cos", elementwise.cos, "The cosine.")
cospi = _unary("cospi", elementwise.cospi, "The cosine of pi x: exact where it is 0, 1 or -1, however large x is.")
cosh = _accurate("cosh", elementwise.cosh, "The hyperbolic cosine.")
erf = _accurate("erf", elementwise.erf, "The error function.")
erf_inv = _unary("erf_inv", elementwise.erf_inv, "The inverse of the error function.")
exp = _accurate("exp", elementwise.exp, "The exponential function.")
expm1 = _accurate("expm1", elementwise.expm1, "exp(x) - 1, accurate where x is near 0.")
floor = _unary("floor", elementwise.floor, "The floor: the greatest whole number that is not greater than x.")
imag = _unary("imag", elementwise.imag, "The imaginary part.")
is_finite = _unary("is_finite", elementwise.is_finite, "Whether an element is neither infinite nor NaN.")
log = _accurate("log", elementwise.log, "The natural logarithm.")
log1p = _accurate("log1p", elementwise.log1p, "log(1 + x), accurate where x is near 0.")
logistic = _accurate("logistic", elementwise.logistic, "The logistic function (sigmoid), 1 / (1 + exp(-x)).")
neg = _unary("neg", elementwise.neg, "-x; of an unsigned integer 2 to the number of its bits, minus x.")
population_count = _unary(
    "population_count", elementwise.population_count, "The number of bits of an integer that are set."
)
real = _unary("real", elementwise.real, "The real part.")
rsqrt = _accurate("rsqrt", elementwise.rsqrt, "The reciprocal of the square root.")
sign = _unary("sign", elementwise.sign, "The sign: -1, 0 or 1; of complex elements x / abs(x).")
sin = _accurate("sin", elementwise.sin, "The sine.")
sinh = _accurate("sinh", elementwise.sinh, "The hyperbolic sine.")
sinpi = _unary("sinpi", elementwise.sinpi, "The sine of pi x: exact where it is 0, 1 or -1, however large x is.")
sqrt = _accurate("sqrt", elementwise.sqrt, "The square root.")
tan = _accurate("tan", elementwise.tan, "The tangent.")
tanh = _accurate("tanh", elementwise.tanh, "The hyperbolic tangent.")
bitwise_not = _unary(
    "bitwise_not", elementwise.not_, "The complement: all bits inverted, or the logical not of booleans."
)


def _of_inexact(name: str, function: Callable[..., Any], text: str) -> Unary:
    """One that is made of several operations, for floating-point and complex elements only."""

    def checked(x: ArrayLike) -> Array:
        value = array_of(x, f"lax.{name}")
        if not element_type(value.dtype).is_inexact:
            raise DTypeError(f"lax.{name} takes floating-point or complex numbers, but got {described([value])}.")
        return function(value)

    return named(checked, name, documented(name, text, ("x",)))


acos = _of_inexact("acos", transcendental.arccos, "The inverse of the cosine.")
acosh = _of_inexact("acosh", transcendental.arccosh, "The inverse of the hyperbolic cosine.")
asin = _of_inexact("asin", transcendental.arcsin, "The inverse of the sine.")
asinh = _of_inexact("asinh", transcendental.arcsinh, "The inverse of the hyperbolic sine.")
atan = _of_inexact("atan", transcendental.arctan, "The inverse of the tangent.")
atanh = _of_inexact("atanh", transcendental.arctanh, "The inverse of the hyperbolic tangent.")
_exp2 = _of_inexact("exp2", transcendental.exp2, "2 to the power x.")


def exp2(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """2 to the power x. `accuracy` has no effect: the result is within two units in the last place.

    Args:
        x: an array, or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the shape of x and of the same element type.

    Raises:
        DTypeError: what are no floating-point or complex numbers.

    >>> from tinyxla.lax import exp2
    >>> exp2(3.0)
    Array(8., dtype=float32, weak_type=True)
    """
    return _exp2(x)


add = _binary("add", elementwise.add, "The sum x + y; integers wrap around, of booleans it is the logical or.")
atan2 = _binary("atan2", elementwise.atan2, "The angle of the point with ordinate x and abscissa y, from -pi to pi.")
bitwise_and = _binary("bitwise_and", elementwise.and_, "The bitwise and of integers, or the logical and of booleans.")
bitwise_or = _binary("bitwise_or", elementwise.or_, "The bitwise or of integers, or the logical or of booleans.")
bitwise_xor = _binary(
    "bitwise_xor", elementwise.xor, "The bitwise exclusive or of integers, or the logical one of booleans."
)
complex_ = _binary("complex", elementwise.complex_, "The complex number x + iy of real x and y, float32 or float64.")
div = _binary("div", elementwise.div, "The quotient x / y; of integers it is rounded towards 0.")
eq = _binary("eq", elementwise.eq, "Whether x = y.")
ge = _binary("ge", elementwise.ge, "Whether x >= y.")
gt = _binary("gt", elementwise.gt, "Whether x > y.")
le = _binary("le", elementwise.le, "Whether x <= y.")
lt = _binary("lt", elementwise.lt, "Whether x < y.")
max_ = _binary("max", elementwise.max_, "The larger of both; NaN if one is.")
min_ = _binary("min", elementwise.min_, "The smaller of both; NaN if one is.")
_mul = _binary("mul", elementwise.mul, "The product x y; integers wrap around.")


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """x times y. With `out_dtype`, which is at least as wide, or inexact for integers, the product is rounded to that
    type alone.

    Args:
        x, y: arrays of one shape and type, or a number for one of them.
        out_dtype: the element type of the result; that of x if None.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: operands of different element types.
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.lax import mul
    >>> import ml_dtypes
    >>> mul(ml_dtypes.bfloat16(1.0078125), ml_dtypes.bfloat16(1.0078125), out_dtype=np.float32)
    Array(1.015686, dtype=float32)
    """
    if out_dtype is None:
        return _mul(x, y)
    first, second = matched("lax.mul", x, y)
    kind, wanted = element_type(first.dtype), element_type(python_dtype(out_dtype))
    is_wide = kind.kind == wanted.kind and kind.bits <= wanted.bits
    if not is_wide and not (kind.is_integer and wanted.is_inexact):
        raise DTypeError(
            "lax.mul: out_dtype must be of the operands' kind and not narrower, or inexact for integers, but is "
            f"{wanted.dtype.name} of {kind.dtype.name} operands."
        )
    return _mul(*(cast(v, wanted.dtype, False) for v in (first, second)))


ne = _binary("ne", elementwise.ne, "Whether x differs from y.")
rem = _binary("rem", elementwise.rem, "The remainder of a division that rounds towards 0: it has the sign of x.")
shift_left = _binary(
    "shift_left", elementwise.shift_left, "x shifted left by y bits; 0 where y is the number of bits or more."
)
shift_right_arithmetic = _binary(
    "shift_right_arithmetic", elementwise.shift_right_arithmetic, "x shifted right by y bits, filled with its sign bit."
)
shift_right_logical = _binary(
    "shift_right_logical", elementwise.shift_right_logical, "x shifted right by y bits, filled with zeros."
)
sub = _binary("sub", elementwise.sub, "The difference x - y; integers wrap around.")


# --- powers -----------------------------------------------------------------------------------------------------------


def pow_(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y; y may be an integer where x is not.

    Args:
        x, y: arrays of one shape; y has the type of x, or integers.

    Returns:
        An array of the shape and type of x.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.lax import pow
    >>> pow(2.0, 3)
    Array(8., dtype=float32, weak_type=True)
    """
    base, exponent = array_of(x, "lax.pow"), array_of(y, "lax.pow")
    if element_type(base.dtype).is_inexact and element_type(exponent.dtype).is_integer:
        exponent = cast(exponent, base.dtype, base.weak_type)
    return elementwise.pow_(*matched("lax.pow", base, exponent))


def integer_pow(x: ArrayLike, y: int) -> Array:
    """x to a power that is a Python integer, by repeated squaring.

    Args:
        x: an array, or a number.
        y: the exponent.

    Returns:
        An array of the shape of x and of the same element type.

    Raises:
        ArgumentError: an exponent that is no integer.

    >>> from tinyxla.lax import integer_pow
    >>> integer_pow(3.0, 4)
    Array(81., dtype=float32, weak_type=True)
    """
    base: Any = array_of(x, "lax.integer_pow")
    exponent = integer_of("lax.integer_pow", "y", y)
    if exponent < 0 and not element_type(base.dtype).is_inexact:
        raise DTypeError(f"lax.integer_pow: integers have no power {y} among the integers; convert x to float.")
    return multiplied(base, exponent).with_weak_type(base.weak_type)


def square(x: ArrayLike) -> Array:
    """The square x x, also of integers and complex numbers; integers wrap around.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape and type of x.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.square(np.complex64([3, 2j]))
    Array([ 9.+0.j, -4.+0.j], dtype=complex64)
    """
    return integer_pow(x, 2)


def reciprocal(x: ArrayLike) -> Array:
    """The reciprocal 1 / x, for floating-point and complex elements.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape and type of x.

    Raises:
        DTypeError: integers, whose reciprocals are none.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.reciprocal(np.float32([4, 0]))
    Array([0.25,  inf], dtype=float32)
    """
    return integer_pow(x, -1)


# --- rounding and bits ------------------------------------------------------------------------------------------------


class RoundingMethod(enum.IntEnum):
    """What becomes of numbers half-way between two whole ones.

    >>> from tinyxla import lax
    >>> [lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN).item() for x in (0.5, 1.5, 2.5)]
    [0.0, 2.0, 2.0]
    >>> [lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO).item() for x in (0.5, 1.5, 2.5)]
    [1.0, 2.0, 3.0]
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round_(x: ArrayLike, rounding_method: Any = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest whole number.

    Args:
        x: an array, or a number.
        rounding_method: a member of `RoundingMethod`: halves go away from zero, or to the nearest even number.

    Returns:
        An array of the shape and type of x.

    Raises:
        DTypeError: what are no floating-point numbers.
        AttributeValueError: a method that is not a `RoundingMethod`.

    >>> from tinyxla.lax import RoundingMethod, round
    >>> round(2.5), round(2.5, RoundingMethod.TO_NEAREST_EVEN)
    (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    if not isinstance(rounding_method, RoundingMethod | int) or rounding_method not in tuple(RoundingMethod):
        raise AttributeValueError(f"lax.round: rounding_method is one of RoundingMethod, but got {rounding_method!r}.")
    away = rounding_method == RoundingMethod.AWAY_FROM_ZERO
    op = elementwise.round_nearest_afz if away else elementwise.round_nearest_even
    return op(array_of(x, "lax.round"))


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The elements converted by value: to integers by dropping the fraction, out of range to the nearest end.

    Args:
        operand: an array, or a number.
        new_dtype: the element type of the result.

    Returns:
        An array of the operand's shape.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.lax import convert_element_type
    >>> convert_element_type(2.7, int)
    Array(2, dtype=int32)
    """
    dtype = python_dtype(new_dtype)
    if type(operand) is int and element_type(dtype).is_integer and config.weak_integer_overflow == "wrap":
        return as_array(np.asarray(operand, np.int64).astype(dtype))
    x = array_of(operand, "lax.convert_element_type")
    return cast(x, dtype, weak=False)


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The elements' bits read as another type. A wider type takes up the last dimension, a narrower one adds one.

    Args:
        operand: an array, or a number.
        new_dtype: the element type of the result.

    Returns:
        An array of the operand's shape, without its last dimension or with one more if the types differ in size.

    Raises:
        DTypeError: booleans, or a conversion between complex and other types.

    >>> import numpy as np
    >>> from tinyxla.lax import bitcast_convert_type
    >>> bitcast_convert_type(np.float32(1), "int32")
    Array(1065353216, dtype=int32)
    """
    x = array_of(operand, "lax.bitcast_convert_type")
    old, new = element_type(x.dtype), element_type(python_dtype(new_dtype))
    if old is not new and {old.kind, new.kind} & {"pred", "complex"}:
        raise DTypeError(
            f"lax.bitcast_convert_type: types must not be bool or complex, but got {x.dtype.name} to {new}; use astype."
        )
    return bits.bitcast_convert(x, new_element_type=new).with_weak_type(False)


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """The elements rounded to what a narrower floating-point format could hold, in their own type.

    Args:
        operand: an array, or a number.
        exponent_bits, mantissa_bits: the bits of the narrower format.

    Returns:
        An array of the operand's shape and type.

    Raises:
        AttributeValueError: no bits for the exponent.
        DTypeError: what are no floating-point numbers.

    >>> from tinyxla.lax import reduce_precision
    >>> reduce_precision(1.2345, exponent_bits=5, mantissa_bits=2)
    Array(1.25, dtype=float32, weak_type=True)
    """
    x = array_of(operand, "lax.reduce_precision")
    exponent, mantissa = (
        integer_of("lax.reduce_precision", name, value)
        for name, value in (("exponent_bits", exponent_bits), ("mantissa_bits", mantissa_bits))
    )
    return bits.reduce_precision(x, exponent_bits=exponent, mantissa_bits=mantissa)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The number next to x1 in the direction of x2.

    Args:
        x1, x2: floating-point arrays of one shape and type.

    Returns:
        An array of the shape and type of x1.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.lax import nextafter
    >>> nextafter(np.float32(1), np.float32(2))
    Array(1.0000001, dtype=float32)
    """
    x, y = of_one_shape("lax.nextafter", of_one_type("lax.nextafter", x1, x2))
    if element_type(x.dtype).kind != "float":
        raise DTypeError(f"lax.nextafter takes floating-point numbers, but got {described([x])}.")
    signed = element_type(f"s{element_type(x.dtype).bits}")
    here, there = (bits.bitcast_convert(v, new_element_type=signed) for v in (x, y))
    zero, one = movement.full(0, signed.dtype, x.shape), movement.full(1, signed.dtype, x.shape)
    magnitude_grows = elementwise.eq(elementwise.gt(y, x), elementwise.ge(here, zero))
    stepped = elementwise.add(here, elementwise.select(magnitude_grows, one, elementwise.neg(one)))
    is_zero = elementwise.eq(x, elementwise.zeros_like(x))
    sign = elementwise.and_(there, movement.full(np.iinfo(signed.dtype).min, signed.dtype, x.shape))
    moved = elementwise.select(is_zero, elementwise.or_(sign, one), stepped)
    result = bits.bitcast_convert(moved, new_element_type=element_type(x.dtype))
    unordered = elementwise.or_(elementwise.ne(x, x), elementwise.ne(y, y))
    result = elementwise.select(unordered, elementwise.add(x, y), result)
    return elementwise.select(elementwise.eq(x, y), y, result)


# --- choice -----------------------------------------------------------------------------------------------------------


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Elements of `on_true` where `pred` is true, else of `on_false`, which has the same shape; `pred` may be a scalar.

    Args:
        pred: booleans.
        on_true, on_false: arrays of one shape and type.

    Returns:
        An array of the shape and type of `on_true`.

    Raises:
        DTypeError: cases of different element types, or a choice that is no boolean or integer.
        ShapeError: cases of different shapes.

    >>> import numpy as np
    >>> from tinyxla.lax import select
    >>> select(np.array([True, False]), np.array([1, 2]), np.array([3, 4]))
    Array([1, 4], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Element by element the case whose number `which` holds; with two cases `which` may be boolean.

    Args:
        which: integers from 0 on, or booleans; of the shape of the cases, or a scalar.
        *cases: arrays of one shape and type.

    Returns:
        An array of the shape and type of the cases.

    Raises:
        DTypeError: cases of different element types, or a choice that is no boolean or integer.
        ShapeError: cases of different shapes.

    >>> import numpy as np
    >>> from tinyxla.lax import select_n
    >>> select_n(np.array([2, 0]), np.array([1, 2]), np.array([3, 4]), np.array([5, 6]))
    Array([5, 2], dtype=int32)
    """
    if not cases:
        raise ArgumentError("lax.select_n takes at least one case, but got none.")
    what = "lax.select" if len(cases) == 2 else "lax.select_n"
    number = array_of(which, what)
    values: list[Any] = list(of_one_type(what, *cases))
    if any(x.shape != values[0].shape for x in values):
        raise ShapeError(f"{what}: the cases have different shapes, {described(values)}; broadcast them.")
    if number.shape not in ((), values[0].shape):
        raise ShapeError(
            f"{what}: {described([number])} chooses among {described(values[:1])}; the shapes must be equal."
        )
    number = _spread(number, values[0].shape)
    if element_type(number.dtype).kind == "pred" and len(cases) <= 2:
        return elementwise.select(number, values[-1], values[0]).with_weak_type(values[0].weak_type)
    if not element_type(number.dtype).is_integer:
        raise DTypeError(f"{what}: the choice among {len(cases)} cases is an integer, but got {described([number])}.")
    result = values[-1]
    for k in range(len(cases) - 2, -1, -1):
        chosen = elementwise.le(number, movement.full(k, number.dtype, number.shape))
        result = elementwise.select(chosen, values[k], result)
    return result.with_weak_type(values[0].weak_type)


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else movement.broadcast(x, sizes=shape, dimensions=())


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """x where it is between both limits, else the nearer one; the limits are scalars or have the shape of x.

    Args:
        min, max: the limits, of the type of x.
        x: an array, or a number.

    Returns:
        An array of the shape and type of x.

    Raises:
        ShapeError: a limit that is neither a scalar nor of the shape of x.

    >>> import numpy as np
    >>> from tinyxla.lax import clamp
    >>> clamp(0.0, np.array([-1.0, 0.5, 2.0]), 1.0)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    low, value, high = of_one_type("lax.clamp", min, x, max)
    for limit in (low, high):
        if limit.shape not in ((), value.shape):
            raise ShapeError(
                f"lax.clamp: a limit is a scalar or has the shape of x, but got {described([limit])} for "
                f"{described([value])}."
            )
    return elementwise.clamp(*of_one_shape("lax.clamp", [low, value, high]))


# --- derivatives ------------------------------------------------------------------------------------------------------


def stop_gradient(x: Tree) -> Tree:
    """The same values (of a pytree), of which no derivative is taken.

    Args:
        x: an array, or a pytree of arrays.

    Returns:
        Arrays of the shapes and types of x.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.lax import stop_gradient
    >>> import tinyxla
    >>> tinyxla.grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return pytrees.map_tree(_constant_to_derivatives, x)


def _constant_to_derivatives(x: Any) -> Any:
    """There and back through integers of the same bits: those have no derivative, and the detour costs nothing."""
    if is_float0(x):
        return x
    value = array_of(x, "lax.stop_gradient")
    kind = element_type(value.dtype)
    if kind.kind == "complex":
        parts: list[Value] = [_constant_to_derivatives(part(value)) for part in (elementwise.real, elementwise.imag)]
        return elementwise.complex_(*parts)
    if kind.kind != "float" or isinstance(value, ConcreteArray):
        return value
    whole = bits.bitcast_convert(value, new_element_type=element_type(f"u{kind.bits}"))
    return bits.bitcast_convert(whole, new_element_type=kind)
