"""8-bit floats and narrower types: kernels hold them as the bytes that arrays store, and convert them by tables.

A byte is the place of its value in one table. The other way, an f32 is cut to 16 bits, whose last is set if anything
was cut off: a narrow type lies so much coarser that this rounds as the f32 does (rounding to odd: Boldo and Melquiond,
Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008). These 16 bits are the place
in the other table. Both tables are what NumPy's conversion gives, so the values are those of `evaluate`.
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


def is_narrow(kind: ElementType) -> bool:
    return storage_type(kind.name) != kind.name


def convert(low: Lowering, value: Operand, source: ElementType, target: ElementType) -> Operand:
    """A conversion from or to a narrow type."""
    b = low.builder
    if is_narrow(source):
        is_wide = target.name in ("f64", "pred")  # of which the least f8e8m0fnu, subnormal in an f32, is no zero
        value = low.load(_values(source, np.float64 if is_wide else np.float32), (b.convert(INDEX, value),))
        source = element_type(value.type)
    if not is_narrow(target):
        return b.convert(target.name, value) if source is not target else value
    if target.is_integer:
        return _to_integer(low, value, source, target)
    bits = b.compute("bitcast-convert", "u32", b.convert("f32", value))
    upper, rest = b.shift_right(bits, 16), b.and_(bits, 0xFFFF)
    place = b.or_(upper, b.convert("u32", b.compare("NE", rest, Literal("u32", 0))))
    return low.load(_bytes(target), (b.convert(INDEX, place),))


def _to_integer(low: Lowering, value: Operand, source: ElementType, target: ElementType) -> Operand:
    """Integers wrap around, floats saturate."""
    b = low.builder
    if source.kind == "float":
        wide = "s8" if target.kind == "signed" else "u8"
        low_end = -(1 << (target.bits - 1)) if target.kind == "signed" else 0
        ends = Literal(wide, low_end), Literal(wide, low_end + (1 << target.bits) - 1)
        value = b.compute("clamp", wide, ends[0], b.convert(wide, value), ends[1])
    return b.and_(b.convert("u8", value), (1 << target.bits) - 1)


@cache
def _values(kind: ElementType, wide: type[np.floating[Any]]) -> Instruction:
    """The value of each byte, of floats in such a type."""
    narrow = np.arange(256, dtype=np.uint8).view(kind.dtype)
    return _table(narrow.astype(wide if kind.kind == "float" else np.int8))


@cache
def _bytes(kind: ElementType) -> Instruction:
    """The byte of each value that the upper half of an f32 has."""
    with np.errstate(all="ignore"):
        narrow = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).astype(kind.dtype)
    return _table(narrow.view(np.uint8))


def _table(array: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Instruction:
    literal = hlo.Literal(array)
    return Instruction(movement.constant, (), movement.constant.attributes(literal=literal), Shape.of(array))
