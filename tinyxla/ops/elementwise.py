"""Element-wise operations: a table, one entry each, with its partial derivatives.

Operands have equal shapes (broadcasting is made explicit before it gets here). Semantics are those of the XLA
documents' sections "Element-wise unary functions", "Element-wise binary arithmetic operations", "Element-wise
comparison operations", "Clamp", "Select" and "ConvertElementType"; where NumPy differs (integer division by zero,
shifts past the width, conversion out of range), `tinyxla.ops.numerics` has XLA's values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import movement
from tinyxla.ops.numerics import floats, integers
from tinyxla.ops.numerics.accuracy import ResultAccuracy, working_type
from tinyxla.ops.op import (
    DIVISION,
    SQUARE_ROOT,
    Array,
    Axes,
    Cost,
    Derivative,
    Linear,
    NoAttributes,
    Op,
    Partials,
    Rules,
    Sample,
    ScalarFunction,
    Value,
    Zero,
    same_dimensions,
)
from tinyxla.scalar_math.accuracy import EXACT, Accuracy
from tinyxla.shapes import AnyShape, ElementType, Shape, element_type
from tinyxla.shapes.key_types import numbers_only

PRED = frozenset({"pred"})
SIGNED = frozenset({"signed"})
INTEGER = frozenset({"signed", "unsigned"})
FLOAT = frozenset({"float"})
COMPLEX = frozenset({"complex"})
INEXACT = FLOAT | COMPLEX
NUMBER = INTEGER | INEXACT
ANY = PRED | NUMBER

Partial = Callable[..., Value]

NAMES: set[str] = set()  # of all element-wise ops


def check_operands(name: str, kinds: frozenset[str], *shapes: AnyShape) -> Shape:
    """The one shape that all operands have; an error if they differ or the op is not defined for their type."""
    first = shapes[0]
    for shape in shapes:
        if not isinstance(shape, Shape) or not isinstance(first, Shape):
            raise ShapeError(f"{name}: operands must be arrays, but one is the tuple {shape}; take its elements.")
        if shape.element_type is not first.element_type:
            raise DTypeError(
                f"{name}: operands must have one element type, but got {first} and {shape}; convert one of them."
            )
        if shape.dimensions != first.dimensions:
            raise ShapeError(f"{name}: operands must have one shape, but got {first} and {shape}; broadcast one.")
    assert isinstance(first, Shape)
    if first.element_type.kind not in kinds:
        numbers_only(first.dtype)
        wanted = ", ".join(sorted(kinds))
        raise DTypeError(f"{name}: not defined for {first}; the element type must be of kind {wanted}.")
    return first


def batch_elementwise(op: Op, size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Any, int]:
    """The rule of all element-wise ops: bring the mapped axes to one place, spread operands without one along it."""
    axis = next(a for a in axes if a is not None)
    aligned = [movement.align_axis(x, a, axis, size) for x, a in zip(operands, axes, strict=True)]
    return op(*aligned, **attributes), axis


def _elementwise(
    name: str,
    evaluate: Callable[..., Any],
    shape: Callable[..., AnyShape],
    derivative: Derivative,
    samples: Callable[[np.random.Generator], Iterator[Sample]],
    attributes: type[Any] = NoAttributes,
    expand: Callable[..., Any] | None = None,
    **facts: Any,
) -> Op:
    """An op with the batching rule of all element-wise ops, and with StableHLO's name unless it is composite."""
    if expand is None:
        facts.setdefault("stablehlo", f"stablehlo.{name.replace('-', '_')}")
    op = Op(
        name,
        shape=shape,
        evaluate=evaluate,
        derivative=derivative,
        batch=lambda *mapped, **attributes: batch_elementwise(op, *mapped, **attributes),
        samples=samples,
        attributes=attributes,
        expand=expand,
        sharding=same_dimensions,
        **facts,
    )
    NAMES.add(name)
    return op


def sample_array(random: np.random.Generator, dtype: Any, shape: tuple[int, ...], low: float, high: float) -> Array:
    """Values between low and high, distinct and away from integers as far as the type allows."""
    kind = element_type(dtype).kind
    if kind == "pred":
        return random.random(shape) < 0.5
    if kind in ("signed", "unsigned"):
        return random.integers(max(int(low), 0) if kind == "unsigned" else int(low), int(high) + 1, shape).astype(dtype)
    values = random.uniform(low, high, shape)
    if kind == "complex":
        values = values + 1j * random.uniform(low, high, shape)
    return np.asarray(values).astype(dtype)


_TYPES = {
    "pred": (np.bool_,),
    "signed": (np.int32, np.int8),
    "unsigned": (np.uint32, np.uint8),
    "float": (np.float32, np.float64, element_type("bf16").dtype),
    "complex": (np.complex64, np.complex128),
}


def _samples(
    kinds: frozenset[str], arity: int, low: float, high: float, types: Sequence[Any] | None = None
) -> Callable[[np.random.Generator], Iterator[Sample]]:
    """Samples of those types, or of the usual ones of these kinds."""

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        for dtype in types or [dtype for kind in sorted(kinds) for dtype in _TYPES[kind]]:
            for shape in ((), (3, 4), (0, 2)):
                yield Sample(tuple(sample_array(random, dtype, shape, low, high) for _ in range(arity)))

    return samples


def unary(
    name: str,
    evaluate: Callable[[Array], Any],
    kinds: frozenset[str],
    *,
    partial: Partial | None = None,
    result: Callable[[ElementType], ElementType] | None = None,
    derivative: Derivative | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    **facts: Any,
) -> Op:
    """One operand. The derivative is `partial`, or `derivative`, or zero; `domain` bounds the samples. `facts` are
    `scalar`, `cost`, `stablehlo` and `expand` of an `Op`."""

    def shape(x: AnyShape) -> Shape:
        checked = check_operands(name, kinds, x)
        return Shape(result(checked.element_type), checked.dimensions) if result else checked

    found = derivative or (Partials((partial,)) if partial else Zero())
    return _elementwise(name, evaluate, shape, found, _samples(kinds, 1, *domain), **facts)


class Accurate(NamedTuple):
    """Of a function that has more than one implementation; None is the mode default."""

    result_accuracy: ResultAccuracy | None = None


def accurate_unary(
    name: str,
    evaluate: Callable[[Array], Any],
    kinds: frozenset[str],
    partial: Partial,
    domain: tuple[float, float] = (-2.0, 2.0),
    *,
    scalar: ScalarFunction,
    **facts: Any,
) -> Op:
    """One operand, and how accurate the result has to be. What asks for more than usual is computed in a wider type."""

    def shape(x: AnyShape, result_accuracy: ResultAccuracy | None = None) -> Shape:
        checked = check_operands(name, kinds, x)
        working_type(name, checked.element_type, result_accuracy)
        return checked

    def evaluate_as_wanted(x: Array, result_accuracy: ResultAccuracy | None = None) -> Any:
        if result_accuracy is None or result_accuracy.mode == "default":
            return evaluate(x)
        # NumPy's functions are not those that the bounds are of, so a tolerance is worth the wider type, too
        wide = working_type(name, element_type(x.dtype), ResultAccuracy("highest"))
        return np.asarray(evaluate(x.astype(wide.dtype))).astype(x.dtype)

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        yield from _samples(kinds, 1, *domain)(random)
        for wanted in (ResultAccuracy("highest"), ResultAccuracy("tolerance", atol=1e-9, ulps=6)):
            for sample in _samples(kinds, 1, *domain)(random):
                yield Sample(sample.operands, {"result_accuracy": wanted})

    found = Partials((lambda g, ans, x, result_accuracy=None: partial(g, ans, x),))
    return _elementwise(name, evaluate_as_wanted, shape, found, samples, Accurate, scalar=scalar, **facts)


def binary(
    name: str,
    evaluate: Callable[[Array, Array], Any],
    kinds: frozenset[str],
    *partials: Partial | None,
    result: Callable[[ElementType], ElementType] | None = None,
    derivative: Derivative | None = None,
    domain: tuple[float, float] = (-3.0, 3.0),
    types: Sequence[Any] | None = None,
    **facts: Any,
) -> Op:
    """Two operands, with a partial derivative for each, or `derivative`, or zero; `types` limits the samples, `facts`
    are those of `unary`."""

    def shape(x: AnyShape, y: AnyShape) -> Shape:
        checked = check_operands(name, kinds, x, y)
        return Shape(result(checked.element_type), checked.dimensions) if result else checked

    found = derivative or (Partials(partials) if partials else Zero())
    return _elementwise(name, evaluate, shape, found, _samples(kinds, 2, *domain, types), **facts)


def _real_type(t: ElementType) -> ElementType:
    return {"c64": element_type("f32"), "c128": element_type("f64")}.get(t.name, t)


def _complex_type(t: ElementType) -> ElementType:
    if t.name not in ("f32", "f64"):
        raise DTypeError(f"complex: the parts must be f32 or f64, but got {t}; convert them.")
    return element_type("c64" if t.name == "f32" else "c128")


def _pred_type(t: ElementType) -> ElementType:
    return element_type("pred")


def is_complex(x: Value) -> bool:
    return x.dtype.kind == "c"


def zeros_like(x: Value) -> Value:
    return movement.full(0, x.dtype, x.shape)


# --- arithmetic -------------------------------------------------------------------------------------------------------

neg = unary("negate", integers.in_bytes(np.negative), NUMBER, derivative=Linear(lambda g, x: (neg(g),)))
add = binary("add", np.add, ANY, lambda g, ans, x, y: g, lambda g, ans, x, y: g)
sub = binary("subtract", np.subtract, NUMBER, lambda g, ans, x, y: g, lambda g, ans, x, y: neg(g))
mul = binary("multiply", np.multiply, ANY, lambda g, ans, x, y: _times(g, y), lambda g, ans, x, y: _times(g, x))


def _times(g: Value, factor: Value) -> Value:
    """A cotangent times a factor; one of integers belongs to a linear function, and is finite."""
    return chain_mul(g, factor) if element_type(g.dtype).is_inexact else mul(g, factor)


div = binary(
    "divide",
    integers.in_bytes(floats.divide),
    NUMBER,
    lambda g, ans, x, y: chain_div(g, y),
    lambda g, ans, x, y: neg(chain_mul(chain_div(g, y), ans)),  # the quotient is that of the other operand
    cost=DIVISION,
)


rem = binary(
    "remainder",
    integers.in_bytes(lambda x, y: integers.remainder(x, y) if x.dtype.kind in "iu" else np.fmod(x, y)),
    INTEGER | FLOAT,
    lambda g, ans, x, y: g,
    lambda g, ans, x, y: neg(chain_mul(g, _truncated(div(x, y)))),
    scalar=ScalarFunction("rem", EXACT, python="np.fmod({0}, {1})", slow_path=FLOAT, cost=Cost(8)),
)


def _truncated(x: Value) -> Value:
    return select(lt(x, zeros_like(x)), ceil(x), floor(x))


def _chosen(g: Value, ans: Value, x: Value, y: Value) -> Value:
    """All of g where x was chosen, half of it at ties."""
    half = select(eq(x, y), movement.full(0.5, g.dtype, g.shape), movement.full(1, g.dtype, g.shape))
    return select(eq(ans, x), mul(g, half), zeros_like(g))


max_ = binary("maximum", integers.in_bytes(np.maximum), ANY, _chosen, lambda g, ans, x, y: _chosen(g, ans, y, x))
min_ = binary("minimum", integers.in_bytes(np.minimum), ANY, _chosen, lambda g, ans, x, y: _chosen(g, ans, y, x))


def _power_by_base(g: Value, ans: Value, x: Value, y: Value) -> Value:
    """y x^(y - 1) times g: zero for y = 0, even if g is not finite, but not its derivative by y."""
    return chain_mul(y, chain_mul(g, pow_(x, sub(y, one_like(y)))), either=True)


def _power_by_exponent(g: Value, ans: Value, x: Value, y: Value) -> Value:
    """x^y log(x): zero at x = 0, unless there is a pole."""
    zero = eq(x, zeros_like(x))
    if not is_complex(x):
        zero = and_(zero, ge(y, zeros_like(y)))
    safe = select(zero, one_like(x), x)
    return chain_mul(g, select(zero, zeros_like(ans), mul(ans, log(safe))))


pow_ = binary(
    "power",
    integers.in_bytes(floats.power),
    NUMBER,
    _power_by_base,
    _power_by_exponent,
    domain=(0.3, 3.0),
    scalar=ScalarFunction("pow", Accuracy(1.2, 1.2), python="np.power({0}, {1})", slow_path=COMPLEX | INTEGER),
)


atan2 = binary(
    "atan2",
    floats.atan2,
    INEXACT,
    lambda g, ans, x, y: chain_mul(g, div(y, add(mul(x, x), mul(y, y)))),
    lambda g, ans, x, y: neg(chain_mul(g, div(x, add(mul(x, x), mul(y, y))))),
    scalar=ScalarFunction("atan2", Accuracy(1.6, 1.6), math.pi, "np.arctan2({0}, {1})"),
)

# --- complex parts ----------------------------------------------------------------------------------------------------
# The pairing of tangents and cotangents is bilinear, without conjugation: the gradient of a real function of x + iy is
# its derivative by x minus i times that by y, and the transpose of an R-linear map follows from that.

complex_ = binary(
    "complex",
    floats.join,
    FLOAT,
    result=_complex_type,
    derivative=Linear(lambda g, x, y: (real(g), neg(imag(g)))),
    types=(np.float32, np.float64),
)


real = unary(
    "real", np.real, INEXACT, result=_real_type, derivative=Linear(lambda g, x: (_as_complex(g, x, zeros_like(g)),))
)
imag = unary(
    "imag",
    np.imag,
    INEXACT,
    result=_real_type,
    derivative=Linear(lambda g, x: (complex_(zeros_like(g), neg(g)) if is_complex(x) else None,)),
)


def _as_complex(g: Value, x: Value, imaginary: Value) -> Value:
    return complex_(g, imaginary) if is_complex(x) else g


def conj(x: Value) -> Value:
    return complex_(real(x), neg(imag(x))) if is_complex(x) else x


def _along(g: Value, x: Value) -> Value:
    """g times the conjugate of x / |x|; 0 counts as positive among real numbers, as in JAX."""
    return chain_mul(g, conj(sign(x))) if is_complex(x) else select(ge(x, zeros_like(x)), g, neg(g))


def _abs_jvp(tangents: tuple[Value, ...], ans: Value, x: Value) -> Value:
    return real(_along(tangents[0], x))


def _abs_vjp(g: Value, ans: Value, x: Value) -> tuple[Value]:
    return (_along(_as_complex(g, x, zeros_like(g)), x),)


abs_ = unary("abs", integers.in_bytes(np.abs), NUMBER, result=_real_type, derivative=Rules(_abs_jvp, _abs_vjp))


def _sign_jvp(tangents: tuple[Value, ...], ans: Value, x: Value) -> Value | None:
    """Of z / |z|: what of the tangent is across the direction, over the size. Constant on real numbers."""
    if not is_complex(x):
        return None
    along = real(chain_mul(tangents[0], conj(ans)))
    return chain_mul(sub(tangents[0], chain_mul(_as_complex(along, x, zeros_like(along)), ans)), _over_size(x))


def _sign_vjp(g: Value, ans: Value, x: Value) -> tuple[Value | None]:
    if not is_complex(x):
        return (None,)
    along = real(chain_mul(g, ans))
    return (chain_mul(sub(g, chain_mul(_as_complex(along, x, zeros_like(along)), conj(ans))), _over_size(x)),)


def _over_size(x: Value) -> Value:
    """1 / |x| as a complex number; 0 for 0."""
    size = abs_(x)
    zero = eq(size, zeros_like(size))
    inverse = select(zero, zeros_like(size), div(one_like(size), select(zero, one_like(size), size)))
    return _as_complex(inverse, x, zeros_like(size))


sign = unary("sign", floats.sign, NUMBER, derivative=Rules(_sign_jvp, _sign_vjp))


# --- exponentials, roots, trigonometry --------------------------------------------------------------------------------

exp = accurate_unary(
    "exponential",
    np.exp,
    INEXACT,
    lambda g, ans, x: chain_mul(g, ans),
    scalar=ScalarFunction("exp", Accuracy(1.1, 1.1, 2.0, 2.0), slow_path=COMPLEX),
)
expm1 = accurate_unary(
    "exponential-minus-one",
    floats.expm1,
    INEXACT,
    lambda g, ans, x: chain_mul(g, add(ans, one_like(ans))),
    scalar=ScalarFunction("expm1", Accuracy(1.5, 1.9, 3.3, 3.3), slow_path=COMPLEX),
)
log = accurate_unary(
    "log",
    floats.in_double(np.log),
    INEXACT,
    lambda g, ans, x: chain_div(g, x),
    (0.2, 4.0),
    scalar=ScalarFunction("log", Accuracy(0.9, 1.0, 2.8, 2.8), 745),
)
log1p = accurate_unary(
    "log-plus-one",
    floats.log1p,
    INEXACT,
    lambda g, ans, x: chain_div(g, add(x, one_like(x))),
    (-0.8, 4.0),
    scalar=ScalarFunction("log1p", Accuracy(1.2, 1.2, 2.9, 2.9), 710),
)
sqrt = accurate_unary(
    "sqrt",
    np.sqrt,
    INEXACT,
    lambda g, ans, x: chain_div(g, add(ans, ans)),
    (0.2, 4.0),
    scalar=ScalarFunction("sqrt", Accuracy(0.5, 0.5, 2.0, 2.0), cost=SQUARE_ROOT),
)
rsqrt = accurate_unary(
    "rsqrt",
    floats.rsqrt,
    INEXACT,
    lambda g, ans, x: chain_mul(g, mul(movement.full(-0.5, x.dtype, x.shape), div(ans, x))),
    (0.2, 4.0),
    scalar=ScalarFunction("rsqrt", Accuracy(1.5, 1.5, 2.7, 2.7), python="1 / np.sqrt({0})", cost=SQUARE_ROOT),
)
cbrt = accurate_unary(
    "cbrt",
    floats.in_double(np.cbrt),
    FLOAT,
    lambda g, ans, x: chain_div(chain_div(mul(g, movement.full(1 / 3, x.dtype, x.shape)), ans), ans),
    (0.2, 4.0),
    scalar=ScalarFunction("cbrt", Accuracy(0.51, 0.6)),
)
logistic = accurate_unary(
    "logistic",
    floats.logistic,
    INEXACT,
    lambda g, ans, x: chain_mul(g, mul(ans, sub(one_like(ans), ans))),
    scalar=ScalarFunction("logistic", Accuracy(1.6, 2.3, 3.4, 3.4), 1, "logistic({0})", COMPLEX),
)
sin = accurate_unary(
    "sine",
    np.sin,
    INEXACT,
    lambda g, ans, x: chain_mul(g, cos(x)),
    scalar=ScalarFunction("sin", Accuracy(1.0, 1.0, 2.6, 2.6), 1, slow_path=INEXACT),
)
cos = accurate_unary(
    "cosine",
    np.cos,
    INEXACT,
    lambda g, ans, x: neg(chain_mul(g, sin(x))),
    scalar=ScalarFunction("cos", Accuracy(1.0, 1.0, 2.6, 2.6), 1, slow_path=INEXACT),
)
tan = accurate_unary(
    "tan",
    floats.in_double(np.tan),
    INEXACT,
    lambda g, ans, x: chain_mul(g, add(one_like(ans), mul(ans, ans))),
    (-1.2, 1.2),
    scalar=ScalarFunction("tan", Accuracy(1.2, 1.4, 6.0, 6.0), slow_path=INEXACT),
)
tanh = accurate_unary(
    "tanh",
    np.tanh,
    INEXACT,
    lambda g, ans, x: chain_mul(g, sub(one_like(ans), mul(ans, ans))),
    scalar=ScalarFunction("tanh", Accuracy(2.6, 2.7, 6.0, 6.0), 1, slow_path=COMPLEX),
)
cosh = accurate_unary(
    "cosh",
    np.cosh,
    INEXACT,
    lambda g, ans, x: chain_mul(g, sinh(x)),
    scalar=ScalarFunction("cosh", Accuracy(1.5, 1.5, 3.3, 3.3), slow_path=COMPLEX),
    stablehlo="chlo.cosh",
)
sinh = accurate_unary(
    "sinh",
    np.sinh,
    INEXACT,
    lambda g, ans, x: chain_mul(g, cosh(x)),
    scalar=ScalarFunction("sinh", Accuracy(1.6, 1.6, 2.8, 2.8), slow_path=COMPLEX),
    stablehlo="chlo.sinh",
)


def _times_pi(x: Value) -> Value:
    return mul(movement.full(math.pi, x.dtype, x.shape), x)


def _nearest_even(x: Value) -> Value:
    two = movement.full(2, x.dtype, x.shape)
    return mul(two, round_nearest_even(div(x, two)))


def _sinpi_evaluate(x: Array) -> Any:
    whole = np.rint(x)
    found = np.sin(np.pi * (x - whole).astype(np.float64)) * (1 - 2 * np.mod(whole, 2))
    return np.copysign(found, np.where(found == 0, x, found)).astype(x.dtype)


def _sinpi_expand(x: Value) -> Value:
    whole = round_nearest_even(x)
    found = sin(_times_pi(sub(x, whole)))
    return select(eq(whole, _nearest_even(whole)), found, neg(found))


def _cospi_evaluate(x: Array) -> Any:
    wide = x.astype(np.float64)
    return np.sin(np.pi * (0.5 - np.abs(wide - 2 * np.rint(wide / 2)))).astype(x.dtype)


def _cospi_expand(x: Value) -> Value:
    return sin(_times_pi(sub(movement.full(0.5, x.dtype, x.shape), abs_(sub(x, _nearest_even(x))))))


# XLA has no opcode for these, as IEEE 754-2019 and C23 name them: HLO and StableHLO get the expansion.
sinpi = unary(
    "sinpi",
    _sinpi_evaluate,
    FLOAT,
    partial=lambda g, ans, x: chain_mul(g, _times_pi(cospi(x))),
    expand=_sinpi_expand,
    scalar=ScalarFunction(
        "sinpi", Accuracy(1.0, 1.0), 1, "np.sin(np.pi * ({0} - np.rint({0}))) * (1 - 2 * (np.rint({0}) % 2))"
    ),
)
cospi = unary(
    "cospi",
    _cospi_evaluate,
    FLOAT,
    partial=lambda g, ans, x: neg(chain_mul(g, _times_pi(sinpi(x)))),
    expand=_cospi_expand,
    scalar=ScalarFunction("cospi", Accuracy(1.0, 1.0), 1, "np.sin(np.pi * (0.5 - abs({0} - 2 * np.rint({0} / 2))))"),
)


def _density(x: Value) -> Value:
    """exp(-x^2). At infinities x counts as constant: there, all derivatives are 0, not 0 times infinity."""
    infinity = movement.full(math.inf, x.dtype, x.shape)
    finite = select(eq(abs_(x), infinity), infinity, x)
    return exp(neg(mul(finite, finite)))


erf = accurate_unary(
    "erf",
    floats.erf,
    FLOAT,
    lambda g, ans, x: chain_mul(g, mul(movement.full(2 / math.sqrt(math.pi), x.dtype, x.shape), _density(x))),
    scalar=ScalarFunction("erf", Accuracy(3.0, 1.2), 1, "erf({0})"),
    stablehlo="chlo.erf",
)
erf_inv = unary(
    "erf-inv",
    floats.erf_inv,
    FLOAT,
    partial=lambda g, ans, x: chain_mul(
        g, mul(movement.full(math.sqrt(math.pi) / 2, x.dtype, x.shape), exp(mul(ans, ans)))
    ),
    domain=(-0.9, 0.9),
    scalar=ScalarFunction("erf_inv", Accuracy(2.1, 2.1), python="erf_inv({0})"),
    stablehlo="chlo.erf_inv",
)


def one_like(x: Value) -> Value:
    return movement.full(1, x.dtype, x.shape)


# --- products of the chain rule ---------------------------------------------------------------------------------------
# A cotangent or tangent that is zero has no effect, whatever the derivative it is multiplied by: an infinity or NaN at
# a place that does not matter - in the branch that `select` did not take, say - stays there. The derivatives by the
# factors of such a product are such products again; with `either`, a zero on either side wins. That is what a second
# derivative asks for: the cotangent of d, of g times d, is zero where g is.


class Chain(NamedTuple):
    either: bool = False


def _chain(
    name: str,
    of_numbers: Callable[[Array, Array], Any],
    usual: Op,
    partials: tuple[Partial, Partial],
    attributes: type[Any] = NoAttributes,
) -> Op:
    def evaluate(g: Array, d: Array, either: bool = False) -> Any:
        zero = (g == 0) | (d == 0) if either else g == 0
        found = of_numbers(g, d)
        return np.where(zero, g.dtype.type(0), found) if zero.any() else found

    def shape(g: AnyShape, d: AnyShape, either: bool = False) -> Shape:
        return check_operands(name, INEXACT, g, d)

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        g, d = np.array([0, 0, 0, 1, 1, -0.0]), np.array([np.inf, np.nan, 0, np.inf, 2, -np.inf])
        rare = Sample((g.astype(np.float16), d.astype(np.float16)))
        for x, y in (sample.operands for sample in _samples(INEXACT, 2, 0.3, 3)(random)):
            for given in ({}, {"either": True}) if attributes is Chain else ({},):
                yield Sample((np.where(x.real > 1, x, 0).astype(x.dtype), y), given)
                yield rare._replace(attributes=given)

    def expand(g: Value, d: Value, either: bool = False) -> Value:
        zero = eq(g, zeros_like(g))
        return select(or_(zero, eq(d, zeros_like(d))) if either else zero, zeros_like(g), usual(g, d))

    return _elementwise(name, evaluate, shape, Partials(partials), samples, attributes, expand)


chain_mul = _chain(
    "chain-multiply",
    np.multiply,
    mul,
    (
        lambda g, ans, x, y, either=False: chain_mul(g, y, either=either),
        lambda g, ans, x, y, either=False: chain_mul(g, x, either=True),
    ),
    Chain,
)
chain_div = _chain(
    "chain-divide",
    floats.divide,
    div,
    (lambda g, ans, x, y: chain_div(g, y), lambda g, ans, x, y: neg(chain_mul(g, chain_div(ans, y), either=True))),
)

# --- rounding and bits ------------------------------------------------------------------------------------------------

floor = unary("floor", np.floor, FLOAT)
ceil = unary("ceil", np.ceil, FLOAT)
round_nearest_afz = unary("round-nearest-afz", floats.round_away, FLOAT)
round_nearest_even = unary("round-nearest-even", np.rint, FLOAT)
is_finite = unary("is-finite", np.isfinite, FLOAT, result=_pred_type)
not_ = unary("not", integers.in_bytes(np.invert), PRED | INTEGER)
clz = unary("count-leading-zeros", integers.count_leading_zeros, INTEGER)
population_count = unary("popcnt", integers.population_count, INTEGER)
and_ = binary("and", integers.in_bytes(np.bitwise_and), PRED | INTEGER)
or_ = binary("or", integers.in_bytes(np.bitwise_or), PRED | INTEGER)
xor = binary("xor", integers.in_bytes(np.bitwise_xor), PRED | INTEGER)
multiply_high = binary("mulhi", integers.multiply_high, INTEGER, stablehlo="chlo.mulhi")
shift_left = binary("shift-left", integers.shift_left, INTEGER)
shift_right_arithmetic = binary("shift-right-arithmetic", integers.shift_right_arithmetic, INTEGER)
shift_right_logical = binary("shift-right-logical", integers.shift_right_logical, INTEGER)


# --- comparison -------------------------------------------------------------------------------------------------------


class Compare(NamedTuple):
    direction: str
    type: str  # FLOAT, TOTALORDER, SIGNED or UNSIGNED


_DIRECTIONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


def _compare_shape(x: AnyShape, y: AnyShape, *, direction: str, type: str) -> Shape:
    shape = check_operands("compare", ANY, x, y)
    if direction not in _DIRECTIONS:
        raise AttributeValueError(f"compare: direction must be one of {', '.join(_DIRECTIONS)}, but got {direction!r}.")
    kinds = {"FLOAT": INEXACT, "TOTALORDER": FLOAT, "SIGNED": SIGNED, "UNSIGNED": PRED | frozenset({"unsigned"})}
    if shape.element_type.kind not in kinds.get(type, ()):
        usual = comparison_type(shape.dtype)
        raise AttributeValueError(f"compare: type must fit operands {shape}, but got {type!r}; use {usual}.")
    if shape.element_type.kind == "complex" and direction not in ("EQ", "NE"):
        raise DTypeError(f"compare: direction must be EQ or NE for {shape}, which has no order, but got {direction}.")
    return shape.with_type("pred")


def _compare_evaluate(x: Array, y: Array, *, direction: str, type: str) -> Any:
    if type == "TOTALORDER":
        x, y = integers.total_order(x), integers.total_order(y)
    return _DIRECTIONS[direction](x, y)


def _compare_samples(random: np.random.Generator) -> Iterator[Sample]:
    for direction in _DIRECTIONS:
        for sample in _samples(ANY if direction in ("EQ", "NE") else ANY - COMPLEX, 2, -2, 2)(random):
            yield Sample(sample.operands, {"direction": direction, "type": comparison_type(sample.operands[0].dtype)})
        x = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], np.float32)
        for operands in ((np.repeat(x, 8), np.tile(x, 8)), (x[3].reshape(()), x[4].reshape(()))):
            yield Sample(operands, {"direction": direction, "type": "TOTALORDER"})


def comparison_type(dtype: Any) -> str:
    """How values of a type are compared unless asked otherwise."""
    kind = element_type(dtype).kind
    return {"signed": "SIGNED", "unsigned": "UNSIGNED", "pred": "UNSIGNED"}.get(kind, "FLOAT")


compare = _elementwise("compare", _compare_evaluate, _compare_shape, Zero(), _compare_samples, Compare)


def _comparison(direction: str) -> Callable[[Value, Value], Value]:
    def apply(x: Value, y: Value) -> Value:
        return compare(x, y, direction=direction, type=comparison_type(x.dtype))

    apply.__name__ = direction.lower()
    apply.__doc__ = f"x {direction} y, element by element, for operands of one shape and type."
    return apply


eq, ne, ge, gt, le, lt = (_comparison(direction) for direction in _DIRECTIONS)

# --- select, clamp, convert -------------------------------------------------------------------------------------------


def _select_shape(pred: AnyShape, on_true: AnyShape, on_false: AnyShape) -> Shape:
    shape = check_operands("select", ANY, on_true, on_false)
    if not isinstance(pred, Shape) or pred.element_type.name != "pred":
        raise DTypeError(f"select: the predicate must have element type pred, but got {pred}; compare it with zero.")
    if pred.dimensions != shape.dimensions:
        raise ShapeError(f"select: the predicate must have the dimensions of the branches {shape}, but got {pred}.")
    return shape


def _select_transpose(g: Value, pred: Value, on_true: Value, on_false: Value) -> tuple[Value, Value]:
    zero = zeros_like(g)
    return select(pred, g, zero), select(pred, zero, g)


def _select_samples(random: np.random.Generator) -> Iterator[Sample]:
    for sample in _samples(ANY, 2, -2, 2)(random):
        yield Sample((np.asarray(random.random(sample.operands[0].shape) < 0.5), *sample.operands))


select = _elementwise("select", np.where, _select_shape, Linear(_select_transpose, operands=(1, 2)), _select_samples)


def _clamp_shape(low: AnyShape, x: AnyShape, high: AnyShape) -> Shape:
    return check_operands("clamp", ANY - COMPLEX, low, x, high)


def _clamp_samples(random: np.random.Generator) -> Iterator[Sample]:
    for sample in _samples(ANY - COMPLEX, 1, -3, 3)(random):
        x = sample.operands[0]
        low, high = (np.full(x.shape, bound).astype(x.dtype) for bound in (0, 2))
        yield Sample((low, x, high))


clamp = _elementwise(
    "clamp",
    integers.in_bytes(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    _clamp_shape,
    Partials(
        (
            lambda g, ans, low, x, high: select(and_(gt(low, x), lt(low, high)), g, zeros_like(g)),
            lambda g, ans, low, x, high: select(and_(gt(x, low), lt(x, high)), g, zeros_like(g)),
            lambda g, ans, low, x, high: select(gt(x, high), g, zeros_like(g)),
        )
    ),
    _clamp_samples,
)


class Convert(NamedTuple):
    new_element_type: ElementType


def _convert_shape(x: AnyShape, *, new_element_type: ElementType) -> Shape:
    if not isinstance(x, Shape):
        raise ShapeError(f"convert: the operand must be an array, but got the tuple {x}; convert its elements.")
    return Shape(new_element_type, x.dimensions)


def _convert_transpose(g: Value, x: Value, *, new_element_type: ElementType) -> tuple[Value]:
    if is_complex(g) and not is_complex(x):
        g = real(g)
    return (convert(g, new_element_type=element_type(x.dtype)),)


def _convert_samples(random: np.random.Generator) -> Iterator[Sample]:
    targets = [element_type(t) for t in (np.float32, np.float64, np.int32, np.uint8, np.bool_, "bf16", np.complex64)]
    for target in targets:
        for sample in _samples(ANY, 1, -3, 3)(random):
            yield Sample(sample.operands, {"new_element_type": target})
    special = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e30, 2.5, -2.5, -0.0], np.float32)
    for target in ("s32", "u32", "s8", "u8", "s64", "u64", "f16", "bf16"):
        yield Sample((special,), {"new_element_type": element_type(target)})


convert = _elementwise(
    "convert",
    lambda x, new_element_type: integers.convert(x, new_element_type.dtype),
    _convert_shape,
    Linear(_convert_transpose),
    _convert_samples,
    Convert,
)
