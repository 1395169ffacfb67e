"""Random numbers by distribution. Each function gives the numbers that `jax.random` gives for the same key: bits and
what is made of them by exact arithmetic are equal, transcendental functions may differ in the last place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import drawn
from tinyxla.errors import AttributeValueError, DTypeError, NumberRangeError
from tinyxla.lax.elementwise import nextafter
from tinyxla.numpy.arguments import (
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    constant,
    python_dtype,
    shape_of,
)
from tinyxla.ops import bits as bit_ops, elementwise, movement
from tinyxla.random.keys import ShapeLike, checked_key, random_bits, split
from tinyxla.shapes import ElementType, Shape, element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_float, default_int

DTypeLike = Any
_FLOATS = (np.dtype(np.float16), element_type("bf16").dtype, np.dtype(np.float32), np.dtype(np.float64))


def _float_type(what: str, dtype: DTypeLike) -> np.dtype[Any]:
    found = default_float() if dtype is None else python_dtype(dtype)
    if found not in _FLOATS:
        raise DTypeError(f"{what}: the numbers are float16, bfloat16, float32 or float64, but got dtype {found}.")
    return found


def _real(what: str, value: Any) -> Any:
    """A parameter of a distribution, a real number or an array of them."""
    given = array_of(value, what)
    if element_type(given.dtype).kind == "complex":
        raise DTypeError(f"{what}: the parameters are real numbers, but got {Shape.of(given)}; take its real part.")
    return given


def _parameter(what: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A parameter of a distribution in the type of the result."""
    return cast(_real(what, value), dtype, weak=False)


def _probability(what: str, value: Any) -> Any:
    """A probability in its own floating-point type; a number of another kind in the default one."""
    given = array_of(value, what)
    return given if element_type(given.dtype).kind == "float" else _parameter(what, given, default_float())


def _spread(what: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """A parameter in the type and shape of the result."""
    return broadcast_to_shape(what, _parameter(what, value, dtype), shape)


def _shape(what: str, shape: ShapeLike | None, *parameters: Any) -> tuple[int, ...]:
    """The shape asked for, or that which the parameters have together."""
    if shape is None:
        return broadcast_shapes(what, *(array_of(p, what).shape for p in parameters))
    return shape_of(what, shape)


# --- uniform ----------------------------------------------------------------------------------------------------------


@drawn("shape", "dtype")
def uniform(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None, minval: Any = 0.0, maxval: Any = 1.0) -> Array:
    """Numbers from `minval` up to, but without, `maxval`, all equally likely.

    Args:
        key: a key.
        shape: of the result.
        dtype: a floating-point type, `float32` unless another is asked for.
        minval, maxval: the limits, which may be arrays that broadcast to the shape. Beside the shape `()` they may be
            arrays of one element; the result then has the shape of `minval`.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of this shape and type.

    Raises:
        ArgumentError: what is no key.
        ShapeError: a negative size, or limits that do not broadcast to the shape.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, uniform
    >>> uniform(PRNGKey(42), (2,))
    Array([0.48870957, 0.6797972 ], dtype=float32)
    """
    what = "tinyxla.random.uniform"
    source, sizes, wanted = checked_key(what, key), shape_of(what, shape), _float_type(what, dtype)
    unit = _unit(source, sizes, wanted)
    if isinstance(minval, float | int) and isinstance(maxval, float | int) and (minval, maxval) == (0, 1):
        return unit
    low, high = (_parameter(what, limit, wanted) for limit in (minval, maxval))
    if not sizes and low.shape + high.shape and math.prod(low.shape + high.shape) == 1:
        sizes = low.shape
        unit, high = (x.reshape(sizes) for x in (unit, high))
    low, high = (broadcast_to_shape(what, limit, sizes) for limit in (low, high))
    return elementwise.max_(low, unit * (high - low) + low)


def _unit(key: Any, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Random mantissas with the exponent of 1 are numbers from 1 to 2; then 1 is taken away."""
    kind = element_type(dtype)
    mantissa = int(tnp.finfo(dtype).nmant)
    width = 8 if mantissa < 8 else kind.bits  # as few random bits as hold a mantissa
    drawn = random_bits(key, sizes, np.dtype(f"uint{width}"))
    whole = np.dtype(f"uint{kind.bits}")
    one = np.ones((), dtype).view(whole)
    shifted = cast(elementwise.shift_right_logical(drawn, movement.full(width - mantissa, drawn.dtype, sizes)), whole)
    numbers = bit_ops.bitcast_convert(elementwise.or_(shifted, movement.full(one, whole, sizes)), new_element_type=kind)
    return elementwise.sub(numbers, movement.full(1, dtype, sizes))


@drawn("shape", "dtype")
def randint(key: Array, shape: ShapeLike, minval: Any, maxval: Any, dtype: DTypeLike = None) -> Array:
    """Integers from `minval` up to, but without, `maxval`; where that leaves none, `minval`.

    Twice as many random bits as the type has are reduced modulo the number of values, so that all are nearly equally
    likely.

    Args:
        key: a random key.
        shape: the shape of the result.
        minval, maxval: the limits: integers, or arrays that broadcast to the shape.
        dtype: an integer type, `int32` unless another is asked for.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of this shape and type.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` of no integers of 8 bits or more.
        ShapeError: a shape to which the limits do not broadcast.

    >>> from tinyxla.random import PRNGKey, randint
    >>> randint(PRNGKey(42), (6,), 0, 10)
    Array([4, 4, 1, 9, 9, 9], dtype=int32)
    """
    what = "tinyxla.random.randint"
    source, sizes = checked_key(what, key), shape_of(what, shape)
    wanted = default_int() if dtype is None else python_dtype(dtype)
    kind = element_type(wanted)
    if not kind.is_integer or kind.bits < 8:
        raise DTypeError(f"{what}: the numbers are integers of 8 bits at least, but got dtype {wanted}.")
    drawn = element_type("s32") if kind.bits < 32 else kind
    least, most = int(np.iinfo(wanted).min), int(np.iinfo(wanted).max)
    low, _ = _integer_limit(what, minval, drawn, sizes, (least, most))
    high, beyond = _integer_limit(what, maxval, drawn, sizes, (least, most if drawn is kind else most + 1))
    some = elementwise.lt(low, high)
    unsigned = element_type(np.dtype(f"uint{drawn.bits}"))
    one = movement.full(1, unsigned.dtype, sizes)
    distance = elementwise.convert(elementwise.sub(high, low), new_element_type=unsigned)
    span = elementwise.select(some, distance, one)
    if drawn is kind:  # the end of the range of the type itself cannot be represented
        span = elementwise.select(elementwise.and_(beyond, some), elementwise.add(span, one), span)
    offset = elementwise.convert(_below(source, sizes, span), new_element_type=drawn)
    return cast(elementwise.add(low, offset), wanted)


def _below(key: Array, sizes: tuple[int, ...], span: Any) -> Any:
    """Unsigned integers below a span, from twice as many bits: upper * 2**bits + lower, modulo the span."""
    dtype = span.dtype
    keys: Any = split(key)
    upper, lower = (random_bits(k, sizes, dtype) for k in keys)
    half = elementwise.rem(movement.full(1 << (4 * dtype.itemsize), dtype, sizes), span)
    factor = elementwise.rem(elementwise.mul(half, half), span)
    mixed = elementwise.add(elementwise.mul(elementwise.rem(upper, span), factor), elementwise.rem(lower, span))
    return elementwise.rem(mixed, span)


def _integer_limit(
    what: str, value: Any, kind: ElementType, shape: tuple[int, ...], ends: tuple[int, int]
) -> tuple[Any, Any]:
    """A limit in an integer type, brought between two ends, and where it was beyond the upper one."""
    least, most = ends
    if isinstance(value, int) and not int(np.iinfo(kind.dtype).min) <= value <= int(np.iinfo(kind.dtype).max) + 1:
        raise NumberRangeError(f"{what}: the limits of {kind.name} are {ends}, but one is {value}.")
    if isinstance(value, int | np.integer):
        number = min(max(int(value), least), most)
        return movement.full(number, kind.dtype, shape), movement.full(int(value) > most, np.bool_, shape)
    limit: Any = array_of(value, what)
    low, high = (_nearest(limit.dtype, end) for end in ends)
    beyond = _spread(what, tnp.greater(limit, high), np.dtype(np.bool_), shape)
    return _spread(what, tnp.clip(limit, low, high), kind.dtype, shape), beyond


def _nearest(dtype: np.dtype[Any], value: int) -> Any:
    """An integer in another type, or the end of that type's range if it lies beyond."""
    if element_type(dtype).is_integer:
        info = np.iinfo(dtype)
        value = min(max(value, int(info.min)), int(info.max))
    return constant(value, dtype)


@drawn("shape", "mode")
def bernoulli(key: Array, p: Any = 0.5, shape: ShapeLike | None = None, mode: str = "low") -> Array:
    """True with probability p; the shape is that of p unless one is given.

    Args:
        key: a key.
        p: the probability.
        shape: of the result; p broadcasts to it.
        mode: "high" draws twice as many bits, so that also probabilities that the distance of random numbers exceeds
            are met.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of booleans.

    Raises:
        ArgumentError: what is no key.
        DTypeError: complex numbers.
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.random import PRNGKey, bernoulli
    >>> bernoulli(PRNGKey(42), 0.5, (3,))
    Array([ True, False, False], dtype=bool)
    """
    what = "tinyxla.random.bernoulli"
    if mode not in ("low", "high"):
        raise AttributeValueError(f"{what}: mode must be 'low' or 'high', but got {mode!r}.")
    chance = _probability(what, p)
    sizes = _shape(what, shape, chance)
    dtype = _float_type(what, chance.dtype)
    limit = _spread(what, chance, dtype, sizes)
    if mode == "low":
        return tnp.less(uniform(checked_key(what, key), sizes, dtype), limit)
    coarse, fine = uniform(checked_key(what, key), (2, *sizes), dtype)
    step = 2.0 ** -int(tnp.finfo(dtype).nmant)
    return tnp.less(elementwise.mul(fine, movement.full(step, dtype, sizes)), elementwise.sub(limit, coarse))


@drawn("shape", "dtype")
def rademacher(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The Rademacher distribution: 1 or -1, equally likely.

    Args:
        key: a random key.
        shape: of the result.
        out_sharding: where the result is to be.
        dtype: the element type of the result.

    Returns:
        An array of the shape `shape`, of integers unless a type is asked for.

    Raises:
        ArgumentError: what is no key.

    >>> from tinyxla.random import PRNGKey, rademacher
    >>> rademacher(PRNGKey(42), (3,))
    Array([ 1, -1, -1], dtype=int32)
    """
    what = "tinyxla.random.rademacher"
    wanted = default_int() if dtype is None else python_dtype(dtype)
    sign: Any = cast(bernoulli(checked_key(what, key), 0.5, shape_of(what, shape)), wanted)
    return 2 * sign - 1


# --- normal -----------------------------------------------------------------------------------------------------------


def _next(x: float, towards: float, dtype: np.dtype[Any]) -> Any:
    """The neighbour of a number, as a constant."""
    start, end = (np.array(v).astype(dtype) for v in (x, towards))
    return np.nextafter(start, end) if dtype.kind == "f" else _next_narrow(start, end)


def _next_narrow(x: Any, towards: Any) -> Any:
    """The same for types that NumPy's nextafter does not know; x is not 0."""
    away = (towards > x) == (x > 0)
    bits = int(x.view(np.uint16)) + (1 if away else -1)
    return np.array(bits, np.uint16).view(x.dtype)


def _from_error_function(what: str, key: Array, sizes: tuple[int, ...], dtype: Any, low: Any, high: Any) -> Any:
    """Normal numbers whose error function's values are uniform between two limits."""
    drawn = uniform(checked_key(what, key), sizes, dtype, low, high)
    if element_type(dtype).bits > 32:
        return elementwise.mul(movement.full(math.sqrt(2), dtype, sizes), elementwise.erf_inv(drawn))
    wide = elementwise.convert(drawn, new_element_type=element_type("f32"))
    found = elementwise.convert(_single_erf_inv(wide), new_element_type=element_type(dtype))
    return elementwise.mul(movement.full(math.sqrt(2), dtype, sizes), found)


_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _single_erf_inv(x: Any) -> Any:
    """The inverse error function in f32 by the approximation that XLA uses, so that the same key gives the same
    numbers.

    Source: M. Giles, Approximating the erfinv function, GPU Computing Gems, 2010: a polynomial in -log(1 - x^2) for the
    centre and one in its root for the tails. Its relative error is up to 1e-5; `lax.erf_inv` is more accurate.
    """

    def constant(value: float) -> Any:
        return movement.full(value, x.dtype, x.shape)

    w = elementwise.neg(elementwise.log1p(elementwise.neg(elementwise.mul(x, x))))
    central = elementwise.lt(w, constant(5.0))
    centred, rooted = elementwise.sub(w, constant(2.5)), elementwise.sub(elementwise.sqrt(w), constant(3.0))
    shifted = elementwise.select(central, centred, rooted)
    found = elementwise.select(central, constant(_CENTRAL[0]), constant(_TAIL[0]))
    for here, there in zip(_CENTRAL[1:], _TAIL[1:], strict=True):
        coefficient = elementwise.select(central, constant(here), constant(there))
        found = elementwise.add(coefficient, elementwise.mul(found, shifted))
    infinite = elementwise.eq(elementwise.abs_(x), constant(1.0))
    return elementwise.select(infinite, elementwise.mul(x, constant(math.inf)), elementwise.mul(found, x))


@drawn("shape", "dtype")
def normal(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The normal distribution of mean 0 and variance 1; complex numbers have half of the variance in each part.

    Args:
        key: a random key.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point or complex.

    >>> from tinyxla.random import PRNGKey, normal
    >>> normal(PRNGKey(42), (2,)).shape
    (2,)
    """
    what = "tinyxla.random.normal"
    sizes = shape_of(what, shape)
    if dtype is not None and python_dtype(dtype).kind == "c":
        kind = np.dtype(np.float32 if python_dtype(dtype) == np.complex64 else np.float64)
        parts = [normal(k, sizes, kind) for k in split(checked_key(what, key))]
        root = movement.full(math.sqrt(2), kind, sizes)
        return elementwise.complex_(*(elementwise.div(x, root) for x in parts))
    wanted = _float_type(what, dtype)
    return _from_error_function(what, key, sizes, wanted, _next(-1.0, 0.0, wanted), 1.0)


@drawn("shape", "dtype")
def truncated_normal(
    key: Array, lower: Any, upper: Any, shape: ShapeLike | None = None, dtype: DTypeLike = None
) -> Array:
    """The normal distribution of mean 0 and variance 1, truncated to what is between two limits.

    Args:
        key: a random key.
        lower, upper: numbers, or arrays.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`, by default what the limits broadcast to.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, truncated_normal
    >>> x = truncated_normal(PRNGKey(42), -1.0, 1.0, (100,))
    >>> bool((x > -1).all() & (x < 1).all())
    True
    """
    what = "tinyxla.random.truncated_normal"
    sizes, wanted = _shape(what, shape, lower, upper), _float_type(what, dtype)
    limits = [_spread(what, x, wanted, sizes) for x in (lower, upper)]
    root = movement.full(math.sqrt(2), wanted, sizes)
    low, high = (elementwise.erf(elementwise.div(x, root)) for x in limits)
    found = _from_error_function(what, key, sizes, wanted, low, high)
    return _between(found, *limits)


def _between(x: Any, low: Any, high: Any) -> Any:
    """x, kept inside limits that it does not reach."""
    infinity = movement.full(np.inf, x.dtype, x.shape)
    return elementwise.clamp(nextafter(low, infinity), x, nextafter(high, elementwise.neg(infinity)))


@drawn("shape", "dtype")
def lognormal(key: Array, sigma: Any = 1.0, shape: ShapeLike | None = None, dtype: DTypeLike = None) -> Array:
    """The log-normal distribution: numbers whose logarithms are normal with mean 0 and standard deviation sigma.

    Args:
        key: a random key.
        sigma: a number, or an array.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`, by default that of `sigma`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, lognormal
    >>> lognormal(PRNGKey(42), 0.5, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.lognormal"
    sizes, wanted = _shape(what, shape, sigma), _float_type(what, dtype)
    drawn = normal(checked_key(what, key), sizes, wanted)
    return elementwise.exp(elementwise.mul(drawn, _spread(what, sigma, wanted, sizes)))


# --- others, by the inverses of their distribution functions ----------------------------------------------------------


def _tiny(dtype: np.dtype[Any]) -> float:
    return float(tnp.finfo(dtype).tiny)


def _eps(dtype: np.dtype[Any]) -> float:
    return float(tnp.finfo(dtype).eps)


@drawn("shape", "dtype")
def exponential(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The exponential distribution: numbers x >= 0 with the density exp(-x).

    Args:
        key: a random key.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, exponential
    >>> exponential(PRNGKey(42), (2,)).shape
    (2,)
    """
    what = "tinyxla.random.exponential"
    drawn = uniform(checked_key(what, key), shape_of(what, shape), _float_type(what, dtype))
    return elementwise.neg(elementwise.log1p(elementwise.neg(drawn)))


@drawn("shape", "dtype", "mode")
def gumbel(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None, mode: str | None = None) -> Array:
    """Numbers with the distribution function exp(-exp(-x)).

    Args:
        key: a key.
        shape: of the result.
        dtype: a floating-point type, `float32` unless another is asked for.
        mode: "low" (as None is), "high" or "highest": the latter two draw twice as many bits, for the tails; "highest"
            differs for `float32`.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of this shape and type.

    Raises:
        ArgumentError: what is no key.
        ShapeError: a negative size.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, gumbel
    >>> gumbel(PRNGKey(42), (2,)).shape
    (2,)
    """
    what = "tinyxla.random.gumbel"
    source, sizes, wanted = checked_key(what, key), shape_of(what, shape), _float_type(what, dtype)
    if mode not in (None, "low", "high", "highest"):
        raise AttributeValueError(f"{what}: mode must be 'low', 'high' or 'highest', but got {mode!r}.")
    if mode == "highest" and wanted == np.float32:
        return _gumbel_of_64_bits(source, sizes)
    if mode in ("high", "highest"):
        coarse, fine = uniform(source, (2, *sizes), wanted)
        step = movement.full(2.0 ** -int(tnp.finfo(wanted).nmant), wanted, sizes)
        tiny, half = (movement.full(value, wanted, sizes) for value in (_tiny(wanted), 0.5))
        both = elementwise.add(elementwise.add(coarse, elementwise.mul(step, fine)), tiny)
        return _gumbel_of_complement(elementwise.select(elementwise.ge(coarse, half), coarse, both))
    return _gumbel_of(uniform(source, sizes, wanted, _tiny(wanted), 1.0))


def _gumbel_of(u: Any) -> Any:
    """The inverse of the distribution function."""
    return elementwise.neg(elementwise.log(elementwise.neg(elementwise.log(u))))


def _gumbel_of_complement(u: Any) -> Any:
    """The same of 1 - u, exact for small u."""
    return elementwise.neg(elementwise.log(elementwise.neg(elementwise.log1p(elementwise.neg(u)))))


def _gumbel_of_64_bits(key: Any, sizes: tuple[int, ...]) -> Any:
    """Of uniform numbers of 64 binary places; those above one half are taken from 1, where they are exact."""
    high, low = random_bits(key, (2, *sizes), np.dtype(np.uint32))
    is_small = tnp.less(high, np.uint32(1 << 31))
    other_low = tnp.add(tnp.invert(low), np.uint32(1))
    other_high = tnp.add(tnp.invert(high), tnp.equal(low, np.uint32(0)).astype(np.uint32))
    u = _fraction(tnp.where(is_small, high, other_high), tnp.where(is_small, low, other_low))
    return tnp.where(is_small, _gumbel_of_complement(u), _gumbel_of(u))


def _fraction(high: Any, low: Any) -> Any:
    """A number below 1 of 64 binary places in f32, rounded towards 0."""

    def word(value: int) -> Any:
        return movement.full(value, np.uint32, high.shape)

    zeros_high, zeros_low = elementwise.clz(high), elementwise.clz(low)
    is_tiny = elementwise.eq(zeros_high, word(32))
    moved = elementwise.shift_left(low, zeros_low)
    following = elementwise.shift_right_logical(low, elementwise.sub(word(32), zeros_high))
    bits = elementwise.or_(
        elementwise.shift_left(high, zeros_high), elementwise.select(is_tiny, moved, following)
    )  # the first of which is 1
    mantissa = elementwise.and_(elementwise.shift_right_logical(bits, word(8)), word((1 << 23) - 1))
    zeros = elementwise.select(is_tiny, elementwise.add(word(32), zeros_low), zeros_high)
    exponent = elementwise.shift_left(elementwise.sub(word(126), zeros), word(23))
    return bit_ops.bitcast_convert(elementwise.or_(exponent, mantissa), new_element_type=element_type("f32"))


@drawn("shape", "dtype")
def laplace(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The Laplace distribution: numbers with the density exp(-|x|) / 2.

    Args:
        key: a random key.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, laplace
    >>> laplace(PRNGKey(42), (2,)).shape
    (2,)
    """
    what = "tinyxla.random.laplace"
    source, sizes, wanted = checked_key(what, key), shape_of(what, shape), _float_type(what, dtype)
    drawn = uniform(source, sizes, wanted, -1.0 + float(tnp.finfo(wanted).epsneg), 1.0)
    size = elementwise.log1p(elementwise.neg(elementwise.abs_(drawn)))
    return elementwise.mul(elementwise.sign(drawn), size)


@drawn("shape", "dtype")
def logistic(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The logistic distribution: numbers with the distribution function 1 / (1 + exp(-x)).

    Args:
        key: a random key.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, logistic
    >>> logistic(PRNGKey(42), (2,)).shape
    (2,)
    """
    what = "tinyxla.random.logistic"
    source, sizes, wanted = checked_key(what, key), shape_of(what, shape), _float_type(what, dtype)
    drawn: Any = uniform(source, sizes, wanted, _tiny(wanted), 1.0)
    return elementwise.log(elementwise.div(drawn, elementwise.sub(movement.full(1, wanted, drawn.shape), drawn)))


@drawn("shape", "dtype")
def cauchy(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The Cauchy distribution: numbers with the density 1 / (pi (1 + x**2)).

    Args:
        key: a random key.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, cauchy
    >>> cauchy(PRNGKey(42), (2,)).shape
    (2,)
    """
    what = "tinyxla.random.cauchy"
    source, sizes, wanted = checked_key(what, key), shape_of(what, shape), _float_type(what, dtype)
    drawn: Any = uniform(source, sizes, wanted, _eps(wanted), 1.0)
    half, pi = (movement.full(value, wanted, drawn.shape) for value in (0.5, math.pi))
    return elementwise.tan(elementwise.mul(pi, elementwise.sub(drawn, half)))
