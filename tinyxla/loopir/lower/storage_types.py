"""Storage-only types (8-bit floats, 4-bit and narrower types): kernels hold elements as bytes and convert them by
tables.

Decoding is a table of the 256 values. Encoding rounds an f32 to 16 bits by rounding to odd (the last bit is set if any
discarded bit is), and looks the byte up in a table of the 65,536 results; since storage-only types are much narrower,
the double rounding is exact (Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using
rounding to odd, 2008). Both tables hold NumPy's conversions, so that results equal those of `evaluate`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import tinyxla.hlo as hlo
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Literal, Operand, storage_type
from tinyxla.ops import movement
from tinyxla.shapes import ElementType, Shape, element_type

if TYPE_CHECKING:
    from tinyxla.loopir.lower.emit import Lowering


def is_narrow(type: ElementType) -> bool:
    """True for storage-only types."""
    return storage_type(type.name) != type.name


def convert(low: Lowering, value: Operand, source: ElementType, target: ElementType) -> Operand:
    """A conversion from or to a storage-only type."""
    b = low.builder
    if is_narrow(source):
        needs_f64 = target.name in ("f64", "pred")  # the smallest f8e8m0fnu is subnormal in f32
        value = low.load(_decode_table(source, np.float64 if needs_f64 else np.float32), (b.convert(INDEX, value),))
        source = element_type(value.type)
    if not is_narrow(target):
        return b.convert(target.name, value) if source is not target else value
    if target.is_integer:
        return _to_integer(low, value, source, target)
    bits = b.compute("bitcast-convert", "u32", b.convert("f32", value))
    upper, discarded = b.shift_right(bits, 16), b.and_(bits, 0xFFFF)
    rounded = b.or_(upper, b.convert("u32", b.compare("NE", discarded, Literal("u32", 0))))
    return low.load(_encode_table(target), (b.convert(INDEX, rounded),))


def _to_integer(low: Lowering, value: Operand, source: ElementType, target: ElementType) -> Operand:
    """Conversion to a storage-only integer type: integers wrap around, floats saturate."""
    b = low.builder
    if source.kind == "float":
        wide = "s8" if target.kind == "signed" else "u8"
        minimum = -(1 << (target.bits - 1)) if target.kind == "signed" else 0
        limits = Literal(wide, minimum), Literal(wide, minimum + (1 << target.bits) - 1)
        value = b.compute("clamp", wide, limits[0], b.convert(wide, value), limits[1])
    return b.and_(b.convert("u8", value), (1 << target.bits) - 1)


@cache
def _decode_table(type: ElementType, value_type: type[np.floating[Any]]) -> Instruction:
    """The value of each byte of a storage-only type."""
    narrow = np.arange(256, dtype=np.uint8).view(type.dtype)
    return _table(narrow.astype(value_type if type.kind == "float" else np.int8))


@cache
def _encode_table(type: ElementType) -> Instruction:
    """The byte of each f32 whose lower 16 bits are zero, by its upper 16 bits."""
    with np.errstate(all="ignore"):
        narrow = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).astype(type.dtype)
    return _table(narrow.view(np.uint8))


def _table(array: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Instruction:
    literal = hlo.Literal(array)
    return Instruction(movement.constant, (), movement.constant.attributes(literal=literal), Shape.of(array))
