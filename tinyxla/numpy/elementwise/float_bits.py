"""Floats as they are represented: their bits, their neighbours, their mantissas and exponents."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import DTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.numpy.arguments import ArrayLike, broadcasted, cast, inexact_array, like, promoted, python_dtype
from tinyxla.numpy.creation import array
from tinyxla.numpy.operations import bits, movement, ops
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import state
from tinyxla.transforms import call
from tinyxla.transforms.computations import of_one
from tinyxla.util.tracebacks import boundary


@boundary
def view(x: ArrayLike, dtype: Any = None) -> Array:
    """The bits of an array as elements of another type; of another width, along the last axis.

    Args:
        x: an array.
        dtype: the element type of the result.

    Returns:
        An array.

    Raises:
        ShapeError: elements that do not make up whole ones of the other type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.view(jnp.array([1.0]), "int32")
        Array([1065353216], dtype=int32)
    """
    source: Any = array(x)
    target = element_type(source.dtype if dtype is None else python_dtype(dtype))
    kind = element_type(source.dtype)
    if kind is target:
        return source
    if "complex" in (kind.kind, target.kind):
        return _complex_view(source, kind, target)
    if source.ndim == 0 and kind.bits != target.bits:
        raise ShapeError(f"view: an array without dimensions has no axis along which {kind} becomes {target}.")
    if kind.bits > target.bits:
        parts = bits.bitcast_convert(source, new_element_type=target)
        return movement.reshape_to(parts, (*source.shape[:-1], source.shape[-1] * parts.shape[-1]))
    if kind.bits < target.bits:
        ratio = target.bits // kind.bits
        if source.shape[-1] % ratio:
            raise ShapeError(f"view: {source.shape[-1]} elements of {kind} are no multiple of {ratio}, one {target}.")
        source = movement.reshape_to(source, (*source.shape[:-1], source.shape[-1] // ratio, ratio))
    return bits.bitcast_convert(source, new_element_type=target)


def _complex_view(source: Any, kind: Any, target: Any) -> Array:
    """The bits of an array, or of the result, of complex numbers: those of the parts, one after the other."""
    rows = movement.reshape_to(source, (*source.shape, 1)) if not source.ndim else source
    if kind.kind == "complex":
        parts = [movement.reshape_to(part(rows), (*rows.shape, 1)) for part in (ops.real, ops.imag)]
        rows = movement.concatenate(*parts, dimension=rows.ndim)
        rows = movement.reshape_to(rows, (*rows.shape[:-2], 2 * rows.shape[-2]))
    if target.kind == "complex":
        rows = view(rows, f"float{target.bits // 2}")
        if rows.shape[-1] % 2:
            raise ShapeError(f"view: {source.shape[-1]} elements of {kind} do not make up whole ones of {target}.")
        pairs = movement.reshape_to(rows, (*rows.shape[:-1], rows.shape[-1] // 2, 2))
        rows = ops.complex_(pairs[..., 0], pairs[..., 1])
    else:
        rows = view(rows, target.dtype)
    if source.ndim:
        return rows
    if rows.size != 1:
        raise ShapeError(f"view: an array without dimensions has no axis along which {kind} becomes {target}.")
    return movement.reshape_to(rows, ())


def byteswapped(x: Array) -> Array:
    """The elements with their bytes in the opposite order; of complex numbers those of each part."""
    if x.dtype.kind == "c":
        return ops.complex_(*(byteswapped(part) for part in (ops.real(x), ops.imag(x))))
    kind = element_type(x.dtype)
    if kind.bits <= 8:
        return x
    octets = bits.bitcast_convert(x, new_element_type=element_type("u8"))
    return bits.bitcast_convert(movement.reverse(octets, dimensions=(x.ndim,)), new_element_type=kind)


def _check_real(what: str, x: Array) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(f"{what}: takes real numbers, but got an array of {x.dtype.name}; take its parts.")


def _signed(x: Any) -> Any:
    return bits.bitcast_convert(x, new_element_type=element_type(f"s{element_type(x.dtype).bits}"))


@replayed
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The float next to x in the direction of y.

    Read as integers, floats of one sign are in order of their magnitudes, so the neighbour is one away. Nothing is
    computed in floating point, where subnormal numbers may count as zeros.

    Args:
        x, y: floating-point numbers.

    Returns:
        An array of the common shape.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nextafter(1.0, 2.0) > 1.0
        Array(True, dtype=bool, weak_type=True)
    """
    (x, y), (_, weak) = promoted("nextafter", x, y, to_inexact=True)
    _check_real("nextafter", x)
    x, y = broadcasted("nextafter", [x, y])
    if state.staging is None:
        return _neighbour(x, y).with_weak_type(weak)
    return call(x, y, to_apply=_recorded_neighbour(Shape.of(x))).with_weak_type(weak)


@functools.lru_cache(256)
def _recorded_neighbour(shape: Shape) -> Computation:
    """What `nextafter` does with arrays of a shape, recorded once: programs call it many times over."""
    return of_one(_neighbour, [shape, shape], "nextafter")


def _neighbour(x: Any, y: Any) -> Any:
    """The float next to x in the direction of y, of arrays of one shape and type."""
    start, goal = _signed(x), _signed(y)
    none, one = like(0, start), like(1, start)
    sign = like(np.iinfo(start.dtype).min, start)

    def mirrored(k: Any) -> Any:  # between sign and magnitude, and integers in the order of the floats
        return ops.select(ops.lt(k, none), ops.sub(sign, k), k)

    here, there = mirrored(start), mirrored(goal)
    moved = ops.add(here, ops.select(ops.lt(here, there), one, ops.neg(one)))
    moved = ops.select(ops.eq(moved, none), ops.and_(start, sign), mirrored(moved))  # a zero has the sign of x
    found = bits.bitcast_convert(moved, new_element_type=element_type(x.dtype))
    found = ops.select(ops.eq(here, there), y, found)
    either_nan = ops.or_(ops.ne(x, x), ops.ne(y, y))
    return ops.select(either_nan, like(np.nan, x), found)


@replayed
def spacing(x: ArrayLike, /) -> Array:
    """The distance from x to the next float away from zero; NaN of infinities. As NumPy's, it has the sign of x, and is
    infinite beside the largest number; in float16 it is positive, the distance to the next larger number.

    It is a power of two, whose bits follow from those of the exponent of x, also where it is subnormal.

    Args:
        x: floating-point numbers.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: complex numbers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.spacing(jnp.array([1.0])) < 1e-6
        Array([ True], dtype=bool)
    """
    x = inexact_array(x, "spacing")
    _check_real("spacing", x)
    kind, info = element_type(x.dtype), ml_dtypes.finfo(x.dtype)
    pattern, mantissa_bits = _signed(x), int(info.nmant)
    sign = ops.and_(pattern, like(np.iinfo(pattern.dtype).min, pattern))
    shift = like(mantissa_bits, pattern)
    magnitude = ops.xor(pattern, sign)
    if x.dtype == np.float16:
        toward_zero = ops.and_(ops.ne(sign, like(0, pattern)), ops.ne(magnitude, like(0, pattern)))
        magnitude = ops.select(toward_zero, ops.sub(magnitude, like(1, pattern)), magnitude)
    exponent = ops.shift_right_logical(magnitude, shift)
    lowest = ops.max_(ops.sub(exponent, like(1, pattern)), like(0, pattern))  # the place of the last bit
    inside = ops.min_(lowest, shift)
    small = ops.shift_left(like(1, pattern), inside)
    normal = ops.shift_left(ops.sub(exponent, shift), shift)
    size = ops.select(ops.gt(exponent, shift), normal, small)
    most, beyond = (like(np.asarray(v, x.dtype).view(pattern.dtype)[()], pattern) for v in (info.max, np.inf))
    size = ops.select(ops.eq(magnitude, most), beyond, size)
    if x.dtype != np.float16:
        none = like(0, pattern)
        size = ops.or_(size, ops.select(ops.eq(magnitude, none), none, sign))
    found = bits.bitcast_convert(size, new_element_type=kind)
    return ops.select(ops.is_finite(x), found, like(np.nan, x))


@replayed
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """A mantissa from 0.5 to 1, with the sign of x, and an exponent of 2 whose product is x.

    Args:
        x: floating-point numbers.

    Returns:
        The mantissas, and the exponents as int32.

    Raises:
        DTypeError: complex numbers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.frexp(jnp.array([8.0, 0.75]))
        (Array([0.5 , 0.75], dtype=float32), Array([4, 0], dtype=int32))
    """
    x = inexact_array(x, "frexp")
    _check_real("frexp", x)
    kind = element_type(x.dtype)
    info = ml_dtypes.finfo(x.dtype)
    mantissa_bits = int(info.nmant)
    exponent_mask = (1 << (kind.bits - 1 - mantissa_bits)) - 1
    bias = exponent_mask >> 1
    given = _signed(x)
    magnitude = ops.and_(given, like((1 << (kind.bits - 1)) - 1, given))
    # Subnormal numbers, which compiled code takes for zeros, are whole numbers of the smallest one.
    tiny = ops.lt(magnitude, like(1 << mantissa_bits, given))
    whole = cast(ops.select(ops.lt(given, like(0, given)), ops.neg(magnitude), magnitude), x.dtype)
    large = ops.ge(ops.abs_(x), like(4, x))  # so that no power of two below is subnormal
    wide = ops.select(tiny, whole, ops.select(large, ops.mul(x, like(0.25, x)), x))
    pattern = _signed(wide)
    raised = ops.and_(ops.shift_right_logical(pattern, like(mantissa_bits, pattern)), like(exponent_mask, pattern))
    power = ops.shift_left(ops.sub(like(2 * bias - 1, pattern), raised), like(mantissa_bits, pattern))
    mantissa = ops.mul(wide, bits.bitcast_convert(power, new_element_type=kind))  # whose derivative is the power of two
    exponent = ops.sub(cast(raised, np.dtype(np.int32)), like(bias - 1, cast(raised, np.dtype(np.int32))))
    shift = ops.select(
        tiny, like(1 - bias - mantissa_bits, exponent), ops.select(large, like(2, exponent), like(0, exponent))
    )
    exponent = ops.add(exponent, shift)
    special = ops.or_(ops.eq(magnitude, like(0, given)), ops.not_(ops.is_finite(x)))
    return ops.select(special, x, mantissa), ops.select(special, like(0, exponent), exponent)
