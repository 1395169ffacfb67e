"""Numbers in bytecode: integers and floats of known widths, and the elements of constants.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/; the encodings of APInt and APFloat in
`mlir/lib/Bytecode`.
"""

from __future__ import annotations

import math

import numpy as np

from tinyxla.errors import DTypeError
from tinyxla.stablehlo.bytecode.encoding import Cursor
from tinyxla.text.mlir.dense import MAX_ELEMENTS, from_bytes
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import DenseAttr, FloatAttr, IntegerAttr, OtherType, TensorType, Type


def bits(cursor: Cursor, width: int) -> int:
    """An integer of a known width as bits: a byte, a signed integer, or the number of 64-bit words and the words."""
    if width <= 8:
        found = cursor.byte()
    elif width <= 64:
        found = cursor.signed()
    else:
        words = cursor.list_of(cursor.signed, "words")
        found = sum((word & ~(-1 << 64)) << 64 * k for k, word in enumerate(words))
    return found & ~(-1 << width)


def integer(cursor: Cursor, type: Type) -> IntegerAttr:
    """An integer of an integer type or `index`; it is signed unless the type says otherwise."""
    text = type.text if isinstance(type, OtherType) else ""
    width = "64" if text == "index" else text.lstrip("sui")
    if text[:1] not in ("i", "s", "u") or not width.isdigit() or not 0 < int(width) <= 1 << 16:
        cursor.fail(f"an integer is of an integer type, not {text or type}")
    size = int(width)
    found = bits(cursor, size)
    is_negative = size > 1 and text[0] != "u" and found >> (size - 1)
    return IntegerAttr(found - (1 << size) if is_negative else found, text)


def number(cursor: Cursor, type: Type) -> FloatAttr:
    """A float of a float type; the bits of a NaN are kept."""
    text = type.text if isinstance(type, OtherType) else ""
    try:
        kind = of_mlir(text)
    except DTypeError:
        cursor.fail(f"numbers of the type {text or type} are not read")
    if kind.kind != "float":
        cursor.fail(f"a number is of a floating-point type, not {text}")
    pattern = bits(cursor, kind.bits)
    size = kind.dtype.itemsize
    found = float(np.frombuffer(pattern.to_bytes(size, "little"), kind.dtype)[0])
    return FloatAttr(found, text, pattern if math.isnan(found) else None)


def double(cursor: Cursor) -> float:
    """A float of 64 bits."""
    return float(np.frombuffer(bits(cursor, 64).to_bytes(8, "little"), np.float64)[0])


def dense(cursor: Cursor, type: Type, data: bytes, is_array: bool = False) -> DenseAttr:
    """A constant: its elements one after another, or one that stands for all. Truth values take a bit each."""
    if not isinstance(type, TensorType) or not type.is_ranked or None in type.sizes:
        cursor.fail("a constant is a tensor of known sizes")
    shape = tuple(size or 0 for size in type.sizes)
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        cursor.fail(f"a constant of {count} elements is larger than {MAX_ELEMENTS}")
    try:
        kind = of_mlir(type.element)
        if kind.kind == "pred" and len(data) == -(-count // 8) != count:
            packed = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
            return DenseAttr(packed.astype(np.bool_).reshape(shape), type, is_array)
        value = from_bytes(data, kind, shape)
    except (DTypeError, ValueError) as error:
        cursor.fail(f"a constant cannot be read: {error}")
    return DenseAttr(value, type, is_array)
