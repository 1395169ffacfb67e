"""Operations on the bits of elements: reinterpreting them as another type, and dropping precision.

Sources: sections "BitcastConvertType" and "ReducePrecision" of the XLA documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, Factors, Op, Partials, Rules, Sample, Value, same_dimensions
from tinyxla.shapes import AnyShape, ElementType, Shape, element_type

# --- bitcast-convert --------------------------------------------------------------------------------------------------


class BitcastConvert(NamedTuple):
    new_element_type: ElementType


def _bitcast_shape(x: AnyShape, *, new_element_type: ElementType) -> Shape:
    shape = movement.array_operand("bitcast-convert", x)
    old, new = shape.element_type, new_element_type
    if old is new:
        return shape
    if (old.kind == "complex") != (new.kind == "complex"):
        raise DTypeError(f"bitcast-convert: both types must be complex or neither, but got {shape} to {new}.")
    narrow, wide = sorted((old.bits, new.bits))
    if narrow == wide:
        return shape.with_type(new)
    ratio, remainder = divmod(wide, narrow)
    if remainder:
        raise DTypeError(f"bitcast-convert: {wide} bits are no whole number of {narrow} bits, from {shape} to {new}.")
    if old.bits == wide:
        return Shape(new, (*shape.dimensions, ratio))
    if not shape.rank or shape.dimensions[-1] != ratio:
        raise ShapeError(
            f"bitcast-convert: the last dimension must be {ratio}, the {old} that make one {new}, but got {shape}."
        )
    return Shape(new, shape.dimensions[:-1])


def _bitcast_evaluate(x: Array, *, new_element_type: ElementType) -> Array:
    old, new = element_type(x.dtype), new_element_type
    if old is new:
        return x
    if new.kind == "pred":
        return _bitcast_evaluate(x, new_element_type=element_type("u8")) != 0
    narrow, wide = sorted((old.bits, new.bits))
    if narrow < 8 and narrow < wide:
        return _gathered_bits(x, new) if old.bits == narrow else _scattered_bits(x, new)
    if new.bits < 8:
        return _within_byte(np.asarray(x), new)
    if narrow == wide:
        return x.view(new.dtype)
    if old.bits == narrow:
        return np.ascontiguousarray(x).view(new.dtype).reshape(x.shape[:-1])
    parts = np.ascontiguousarray(x).reshape((*x.shape, 1)).view(new.dtype)
    return parts.reshape((*x.shape, wide // narrow))


def _gathered_bits(x: Array, new: ElementType) -> Array:
    """Elements narrower than a byte joined along the last dimension; the first one is in the lowest bits."""
    width = element_type(x.dtype).bits
    whole = np.dtype(f"u{new.dtype.itemsize}")
    patterns = x.view(np.uint8).astype(whole) & whole.type((1 << width) - 1)
    shifts = np.arange(x.shape[-1], dtype=whole) * whole.type(width)
    joined = np.bitwise_or.reduce(patterns << shifts, axis=-1, initial=whole.type(0))
    return _within_byte(joined, new) if new.bits < 8 else np.asarray(joined).view(new.dtype)


def _scattered_bits(x: Array, new: ElementType) -> Array:
    """Elements cut into ones narrower than a byte along a new last dimension; the lowest bits come first."""
    old = element_type(x.dtype)
    whole = np.dtype(f"u{old.dtype.itemsize}")
    shifts = np.arange(old.bits // new.bits, dtype=whole) * whole.type(new.bits)
    parts = np.ascontiguousarray(x).view(whole).reshape((*x.shape, 1)) >> shifts & whole.type((1 << new.bits) - 1)
    return _within_byte(parts.astype(np.uint8), new)


def _within_byte(x: Array, new: ElementType) -> Array:
    """The low bits of a byte hold the value; the rest repeats the sign, or is zero."""
    free = 8 - new.bits
    raised = x.view(np.uint8) << np.uint8(free)
    lowered = raised.view(np.int8) >> np.int8(free) if new.kind == "signed" else raised >> np.uint8(free)
    return lowered.view(new.dtype)


def _bitcast_samples(random: np.random.Generator) -> Iterator[Sample]:
    for source, shape, target in (
        (np.float32, (2, 3), "s32"),
        (np.float32, (2, 3), "u32"),
        (np.int32, (), "f32"),
        (np.float64, (3,), "u64"),
        (element_type("bf16").dtype, (2, 2), "u16"),
        (np.int8, (4,), "u8"),
        (np.float32, (2, 3), "u8"),
        (np.float64, (), "u32"),
        (np.uint16, (3, 2), "f32"),
        (np.uint8, (0, 8), "f64"),
        (element_type("s4").dtype, (5,), "u4"),
        (element_type("s4").dtype, (3, 2), "u8"),
        (element_type("u2").dtype, (8,), "f16"),
        (element_type("u2").dtype, (3, 2), "s4"),
        (np.int16, (2,), "s4"),
        (np.float32, (2,), "f32"),
    ):
        x = random.integers(-8, 8, shape).astype(source)
        yield Sample((np.asarray(x),), {"new_element_type": element_type(target)})


def _unchanged(g: Value, ans: Value, x: Value) -> Value | None:
    """What flows through bits that mean the same as before; nothing does through others."""
    return g if ans.dtype == x.dtype else None


def _bitcast_factors(x: Shape, *, new_element_type: ElementType) -> Factors:
    """What elements of another size become, or come from, is one dimension more, or less."""
    result = _bitcast_shape(x, new_element_type=new_element_type).rank
    shared = tuple(range(min(x.rank, result)))
    return Factors(((*shared, *(None,) * (x.rank - len(shared))),), ((*shared, *(None,) * (result - len(shared))),))


bitcast_convert = Op(
    "bitcast-convert",
    attributes=BitcastConvert,
    shape=_bitcast_shape,
    evaluate=_bitcast_evaluate,
    derivative=Rules(
        lambda tangents, ans, x, *, new_element_type: _unchanged(tangents[0], ans, x),
        lambda g, ans, x, *, new_element_type: (_unchanged(g, ans, x),),
    ),
    batch=movement.one_more_in_front(lambda: bitcast_convert),
    sharding=_bitcast_factors,
    samples=_bitcast_samples,
)

# --- reduce-precision -------------------------------------------------------------------------------------------------


class ReducePrecision(NamedTuple):
    exponent_bits: int
    mantissa_bits: int


def _reduce_precision_shape(x: AnyShape, *, exponent_bits: int, mantissa_bits: int) -> Shape:
    shape = elementwise.check_operands("reduce-precision", elementwise.FLOAT, x)
    if exponent_bits < 1:
        raise AttributeValueError(f"reduce-precision: exponent_bits must be at least 1, but got {exponent_bits}.")
    if mantissa_bits < 0:
        raise AttributeValueError(f"reduce-precision: mantissa_bits must not be negative, but got {mantissa_bits}.")
    return shape


_MANTISSA_BITS = {2: 10, 4: 23, 8: 52}  # of IEEE formats, by their size in bytes


def _reduce_precision_evaluate(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    dtype = x.dtype
    if dtype not in (np.float16, np.float32, np.float64):  # all others are f32 with fewer bits
        return _rounded(x.astype(np.float32), exponent_bits, mantissa_bits).astype(dtype)
    return _rounded(np.asarray(x), exponent_bits, mantissa_bits)


def _rounded(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round the integer that the magnitude's bits make to a multiple of what is dropped, ties to even; a carry out of
    the mantissa raises the exponent, as it should. Then compare with the ends of the narrower exponent's range."""
    own_mantissa = _MANTISSA_BITS[x.dtype.itemsize]
    own_exponent = 8 * x.dtype.itemsize - 1 - own_mantissa
    bits = np.abs(x).view(f"u{x.dtype.itemsize}")
    unsigned = bits.dtype.type
    dropped = own_mantissa - mantissa_bits
    if dropped > 0:
        odd = (bits >> unsigned(dropped)) & unsigned(1)
        half = unsigned((1 << (dropped - 1)) - 1)
        bits = (bits + half + odd) & unsigned(~((1 << dropped) - 1) & int(np.iinfo(unsigned).max))
    size = bits.view(x.dtype)
    if exponent_bits < own_exponent:
        highest = (1 << (exponent_bits - 1)) - 1
        size = np.where(size >= np.ldexp(1.0, highest + 1), x.dtype.type(np.inf), size)
        size = np.where(size < np.ldexp(1.0, 1 - highest), x.dtype.type(0), size)
    return np.where(np.isfinite(x), np.copysign(size, x), x).astype(x.dtype)


def _reduce_precision_batch(
    size: int, operands: tuple[Value], axes: tuple[int], **attributes: int
) -> tuple[Value, int]:
    return reduce_precision(operands[0], **attributes), axes[0]


def _reduce_precision_samples(random: np.random.Generator) -> Iterator[Sample]:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 6.1e-5, 65519.0, 65520.0, 1 / 3]
    for dtype in (np.float32, np.float16, element_type("bf16").dtype, np.float64):
        with np.errstate(over="ignore", under="ignore"):
            x = np.array(special).astype(dtype)
        for exponent_bits, mantissa_bits in ((5, 10), (8, 7), (4, 3), (8, 0), (11, 52)):
            yield Sample((x,), {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits})
    yield Sample((np.zeros((0, 2), np.float32),), {"exponent_bits": 5, "mantissa_bits": 2})


# Rounding is a step function; as with all rounding to representable numbers, the derivative is that of the exact
# function, the identity - of derivatives that are as precise as the result.
reduce_precision = Op(
    "reduce-precision",
    attributes=ReducePrecision,
    shape=_reduce_precision_shape,
    evaluate=_reduce_precision_evaluate,
    derivative=Partials((lambda g, ans, x, **attributes: reduce_precision(g, **attributes),)),
    batch=_reduce_precision_batch,
    samples=_reduce_precision_samples,
    sharding=same_dimensions,
)
