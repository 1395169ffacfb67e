"""Element-wise functions. Operands of different shapes are broadcast here, so that the graph has equal ones.

Sources: the sections of the XLA documents named after each function, and "Broadcasting".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import ShapeError
from tinyxla.ops import Value, bits, elementwise, movement
from tinyxla.ops.numerics.accuracy import ResultAccuracy
from tinyxla.ops.tuples import leaves, regrouped
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.xla.builder import BuilderFunction, Tree, XlaBuilder, shape_of
from tinyxla.xla.examples import documented
from tinyxla.xla.functions import alias, builder_function

# --- broadcasting -----------------------------------------------------------------------------------------------------


def broadcast_pair(what: str, lhs: Value, rhs: Value, given: Sequence[int] | None) -> tuple[Value, Value]:
    """Two operands with the shape they have together.

    Ranks agree, or one is a scalar, or `broadcast_dimensions` says which dimensions of the operand of higher rank those
    of the other are. Dimensions of size 1 are then expanded to the other's size.
    """
    low, high = (lhs, rhs) if lhs.ndim <= rhs.ndim else (rhs, lhs)
    dimensions = tuple(given or ())
    if low.ndim == high.ndim:
        if dimensions not in ((), tuple(range(low.ndim))):
            raise ShapeError(
                f"{what}: broadcast_dimensions must be left out for operands of equal rank, {Shape.of(lhs)} and "
                f"{Shape.of(rhs)}, but is {list(dimensions)}."
            )
        dimensions = tuple(range(low.ndim))
    elif len(dimensions) != low.ndim:
        raise ShapeError(
            f"{what}: broadcast_dimensions must name, for each dimension of {Shape.of(low)}, the one of "
            f"{Shape.of(high)} that it is, but is {list(dimensions)}; operands without it must be of equal rank or "
            "scalars."
        )
    if sorted(set(dimensions)) != list(dimensions) or any(not 0 <= d < high.ndim for d in dimensions):
        raise ShapeError(
            f"{what}: broadcast_dimensions must be dimensions of {Shape.of(high)} in increasing order, but is "
            f"{list(dimensions)}."
        )
    sizes = list(high.shape)
    for k, d in enumerate(dimensions):
        if low.shape[k] != sizes[d] and 1 not in (low.shape[k], sizes[d]):
            raise ShapeError(
                f"{what}: sizes must agree or be 1, but dimension {k} of {Shape.of(low)} has size {low.shape[k]} and "
                f"dimension {d} of {Shape.of(high)} has {sizes[d]}."
            )
        if sizes[d] == 1:
            sizes[d] = low.shape[k]

    def spread(x: Value) -> Value:
        return movement.broadcast_in_dim(x, sizes, dimensions if x.ndim == low.ndim else range(high.ndim))

    return spread(lhs), spread(rhs)


def _with_scalars_spread(*operands: Value) -> list[Value]:
    """Scalars among operands get the shape of the first that is none."""
    sizes = next((x.shape for x in operands if x.ndim), ())
    return [x if x.ndim else movement.broadcast_in_dim(x, sizes, ()) for x in operands]


# --- families ---------------------------------------------------------------------------------------------------------


def _named(function: Callable[..., Tree], name: str, doc: str) -> BuilderFunction:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return builder_function()(function)


def _unary(name: str, op: Callable[[Value], Value], doc: str) -> BuilderFunction:
    def function(builder: XlaBuilder, operand: Value) -> Value:
        return op(operand)

    return _named(function, name, documented(name, f"{doc}, element by element."))


def _binary(name: str, op: Callable[[Value, Value], Value], doc: str) -> BuilderFunction:
    def function(
        builder: XlaBuilder, lhs: Value, rhs: Value, broadcast_dimensions: Sequence[int] | None = None
    ) -> Value:
        return op(*broadcast_pair(name, lhs, rhs, broadcast_dimensions))

    text = f"{doc}, element by element, after broadcasting."
    return _named(function, name, documented(name, text, is_binary=True))


def _comparison(name: str, direction: str, doc: str, total: bool = False) -> BuilderFunction:
    def op(x: Value, y: Value) -> Value:
        floating = element_type(x.dtype).kind == "float"
        kind = "TOTALORDER" if total and floating else elementwise.comparison_type(x.dtype)
        return elementwise.compare(x, y, direction=direction, type=kind)

    order = " in the total order -NaN < -Inf < ... < -0 < +0 < ... < +Inf < +NaN" if total else ""
    return _binary(name, op, doc + order)


# --- unary ------------------------------------------------------------------------------------------------------------

Abs = _unary("Abs", elementwise.abs_, "The absolute value, of complex numbers the magnitude")
Ceil = _unary("Ceil", elementwise.ceil, "The ceiling: the least integer that is not less")
Floor = _unary("Floor", elementwise.floor, "The floor: the greatest integer that is not greater")
Round = _unary("Round", elementwise.round_nearest_afz, "The nearest integer, ties away from zero")
RoundNearestAfz = alias("RoundNearestAfz", Round)
RoundNearestEven = _unary("RoundNearestEven", elementwise.round_nearest_even, "The nearest integer, ties to even")
Sign = _unary("Sign", elementwise.sign, "The sign: -1, 0 or 1; x / |x| of complex numbers")
Neg = _unary("Neg", elementwise.neg, "-x, modulo 2 to the number of bits for unsigned integers")
Real = _unary("Real", elementwise.real, "The real part, of real numbers themselves")
Imag = _unary("Imag", elementwise.imag, "The imaginary part, 0 of real numbers")
Conj = _unary("Conj", elementwise.conj, "The complex conjugate")
Not = _unary("Not", elementwise.not_, "Not: logical for pred, of bits for integers")
LogicalNot = alias("LogicalNot", Not)
Clz = _unary("Clz", elementwise.clz, "The number of leading zero bits")
PopulationCount = _unary("PopulationCount", elementwise.population_count, "The number of bits that are set")
IsFinite = _unary("IsFinite", elementwise.is_finite, "Whether elements are neither infinite nor NaN")


def _accurate(name: str, op: Any, doc: str) -> BuilderFunction:
    def function(builder: XlaBuilder, operand: Value, result_accuracy: ResultAccuracy | None = None) -> Value:
        return op(operand, result_accuracy=result_accuracy) if result_accuracy else op(operand)

    text = f"{doc}, element by element, as accurate as `result_accuracy` asks."
    return _named(function, name, documented(name, text, is_accurate=True))


Cbrt = _accurate("Cbrt", elementwise.cbrt, "The cube root")
Cos = _accurate("Cos", elementwise.cos, "The cosine")
Cosh = _accurate("Cosh", elementwise.cosh, "The hyperbolic cosine")
Erf = _accurate("Erf", elementwise.erf, "The error function")
Exp = _accurate("Exp", elementwise.exp, "The exponential function")
Expm1 = _accurate("Expm1", elementwise.expm1, "e to the x minus 1, accurate where x is near 0")
Log = _accurate("Log", elementwise.log, "The natural logarithm")
Log1p = _accurate("Log1p", elementwise.log1p, "The natural logarithm of 1 + x, accurate where x is near 0")
Logistic = _accurate("Logistic", elementwise.logistic, "The logistic function, 1 / (1 + exp(-x))")
Rsqrt = _accurate("Rsqrt", elementwise.rsqrt, "The reciprocal of the square root")
Sin = _accurate("Sin", elementwise.sin, "The sine")
Sinh = _accurate("Sinh", elementwise.sinh, "The hyperbolic sine")
Sqrt = _accurate("Sqrt", elementwise.sqrt, "The square root")
Tan = _accurate("Tan", elementwise.tan, "The tangent")
Tanh = _accurate("Tanh", elementwise.tanh, "The hyperbolic tangent")

# --- binary -----------------------------------------------------------------------------------------------------------

Add = _binary("Add", elementwise.add, "The sum")
Sub = _binary("Sub", elementwise.sub, "The difference")
Mul = _binary("Mul", elementwise.mul, "The product")
Div = _binary("Div", elementwise.div, "The quotient, of integers rounded towards 0")
Rem = _binary("Rem", elementwise.rem, "The remainder, with the sign of the dividend")
Max = _binary("Max", elementwise.max_, "The greater one, NaN if either is")
Min = _binary("Min", elementwise.min_, "The lesser one, NaN if either is")
Pow = _binary("Pow", elementwise.pow_, "lhs to the power rhs")
Atan2 = _binary("Atan2", elementwise.atan2, "The angle of the point with abscissa rhs and ordinate lhs, from -pi to pi")
Complex = _binary(
    "Complex", elementwise.complex_, "The complex number with the real part lhs and the imaginary part rhs"
)
And = _binary("And", elementwise.and_, "And: logical for pred, of bits for integers")
Or = _binary("Or", elementwise.or_, "Or: logical for pred, of bits for integers")
Xor = _binary("Xor", elementwise.xor, "Exclusive or: logical for pred, of bits for integers")
LogicalAnd = alias("LogicalAnd", And)
LogicalOr = alias("LogicalOr", Or)
ShiftLeft = _binary("ShiftLeft", elementwise.shift_left, "lhs shifted left by rhs bits")
ShiftRightArithmetic = _binary(
    "ShiftRightArithmetic", elementwise.shift_right_arithmetic, "lhs shifted right by rhs bits, keeping its sign"
)
ShiftRightLogical = _binary(
    "ShiftRightLogical", elementwise.shift_right_logical, "lhs shifted right by rhs bits, filled with zeros"
)
Eq = _comparison("Eq", "EQ", "Whether lhs = rhs")
Ne = _comparison("Ne", "NE", "Whether lhs != rhs")
Ge = _comparison("Ge", "GE", "Whether lhs >= rhs")
Gt = _comparison("Gt", "GT", "Whether lhs > rhs")
Le = _comparison("Le", "LE", "Whether lhs <= rhs")
Lt = _comparison("Lt", "LT", "Whether lhs < rhs")
EqTotalOrder = _comparison("EqTotalOrder", "EQ", "Whether lhs = rhs", total=True)
NeTotalOrder = _comparison("NeTotalOrder", "NE", "Whether lhs != rhs", total=True)
GeTotalOrder = _comparison("GeTotalOrder", "GE", "Whether lhs >= rhs", total=True)
GtTotalOrder = _comparison("GtTotalOrder", "GT", "Whether lhs > rhs", total=True)
LeTotalOrder = _comparison("LeTotalOrder", "LE", "Whether lhs <= rhs", total=True)
LtTotalOrder = _comparison("LtTotalOrder", "LT", "Whether lhs < rhs", total=True)


@builder_function()
def Compare(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    direction: str,
    type: str | None = None,
    broadcast_dimensions: Sequence[int] | None = None,
) -> Value:
    """A comparison, element by element, after broadcasting.

    `direction` is a `ComparisonDirection` or its name (`"LT"`); `type` is `FLOAT`, `TOTALORDER`, `SIGNED` or
    `UNSIGNED`, by default what fits the element type.

    Args:
        lhs, rhs: arrays of one element type.
        direction: a `ComparisonDirection`, or its name.
        type: the order by which elements are compared.
        broadcast_dimensions: for each dimension of the operand of lower rank, the dimension of the other that it is.

    Returns:
        An `XlaOp` of pred.

    Raises:
        ShapeError, DTypeError: shapes that do not broadcast, different element types.
        AttributeValueError: another direction, or a type that does not fit the elements.

    >>> from tinyxla.xla import Compare, ComparisonDirection, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Compare(b.Constant(-0.0), b.Constant(0.0), ComparisonDirection.kLt, "TOTALORDER"))()
    Array(True, dtype=bool)
    """
    x, y = broadcast_pair("Compare", lhs, rhs, broadcast_dimensions)
    return elementwise.compare(x, y, direction=str(direction), type=type or elementwise.comparison_type(x.dtype))


# --- ternary, conversions ---------------------------------------------------------------------------------------------


@builder_function()
def Clamp(builder: XlaBuilder, min: Value, operand: Value, max: Value) -> Value:
    """`operand`, but no less than `min` and no more than `max`, which may be scalars.

    Older pages have the order (operand, min, max). It is understood where only it makes sense: where the first is an
    array and the second a scalar.

    Args:
        min, max: the limits.
        operand: an array.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import Clamp, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Clamp(b.Constant(0.0), b.Constant(np.float32([-1, 0.5, 2])), b.Constant(1.0)))()
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    if min.ndim and not operand.ndim:
        min, operand = operand, min
    return elementwise.clamp(*_with_scalars_spread(min, operand, max))


@builder_function()
def Select(builder: XlaBuilder, pred: Value, on_true: Tree, on_false: Tree) -> Tree:
    """Elements of `on_true` where `pred` is true and of `on_false` elsewhere; a scalar `pred` selects whole arrays, and
    whole tuples.

    Args:
        pred: booleans, or a scalar.
        on_true, on_false: arrays or tuples of one shape.

    Returns:
        An `XlaOp` of the shape of `on_true`.

    Raises:
        ShapeError: shapes of `on_true` and `on_false` that differ, or a `pred` of another one that is no scalar.

    >>> import numpy as np
    >>> from tinyxla.xla import Select, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Select(b.Constant(np.array([True, False])), b.Constant(1.0), b.Constant(np.float32([3, 4]))))()
    Array([1., 4.], dtype=float32)
    """
    shape = shape_of(on_true)
    if not isinstance(shape, TupleShape) and not isinstance(on_false, tuple):
        return elementwise.select(*_with_scalars_spread(pred, on_true, on_false))
    if shape_of(on_false) != shape:
        raise ShapeError(
            f"Select: on_true and on_false must have one shape, but have {shape} and {shape_of(on_false)}."
        )
    if pred.ndim:
        raise ShapeError(f"Select: pred must be a scalar to select between tuples, but is {Shape.of(pred)}.")
    pairs = zip(leaves(on_true), leaves(on_false), strict=True)
    return regrouped(shape, (elementwise.select(*_with_scalars_spread(pred, x, y)) for x, y in pairs))


@builder_function()
def ConvertElementType(builder: XlaBuilder, operand: Value, new_element_type: Any) -> Value:
    """The elements converted to another type by value: to integers by dropping the fraction, with values out of range
    brought to the nearest end.

    Args:
        operand: an array.
        new_element_type: the element type of the result.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import S8, ConvertElementType, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(ConvertElementType(b.Constant(np.float32([2.7, -2.7, 300])), S8))()
    Array([  2,  -2, 127], dtype=int8)
    """
    return elementwise.convert(operand, new_element_type=element_type(new_element_type))


@builder_function()
def BitcastConvertType(builder: XlaBuilder, operand: Value, new_element_type: Any) -> Value:
    """The bits of the elements read as another type. A wider one takes the last dimension, a narrower one adds one.

    Args:
        operand: an array.
        new_element_type: the element type of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import U8, U32, BitcastConvertType, XlaBuilder
    >>> b = XlaBuilder()
    >>> BitcastConvertType(b.Constant(1.0), U32), BitcastConvertType(b.Constant(1.0), U8)
    (<XlaOp u32[] of computation>, <XlaOp u8[4] of computation>)
    """
    return bits.bitcast_convert(operand, new_element_type=element_type(new_element_type))


@builder_function()
def ReducePrecision(builder: XlaBuilder, operand: Value, exponent_bits: int, mantissa_bits: int) -> Value:
    """The elements rounded to a format of fewer bits, and back. (One older page has the two numbers the other way
    round; name them to be clear.)

    Args:
        operand: an array.
        exponent_bits, mantissa_bits: the bits of the narrower format.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import ReducePrecision, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(ReducePrecision(b.Constant(1.2345), exponent_bits=5, mantissa_bits=2))()
    Array(1.25, dtype=float32)
    """
    return bits.reduce_precision(operand, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
