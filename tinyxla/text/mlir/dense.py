"""The elements of `dense` and `array` attributes as arrays.

Source: MLIR's builtin dialect, DenseIntOrFPElementsAttr: https://mlir.llvm.org/docs/Dialects/Builtin/.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from tinyxla.shapes import ElementType
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import DenseAttr, TensorType

Array = np.ndarray[Any, Any]
_COMPLEX = re.compile(r"\(([^(),]*),([^(),]*)\)")
MAX_ELEMENTS = 1 << 31  # of one constant


def dense(text: str, type: TensorType) -> DenseAttr:
    """`dense<...>` of this type; ValueError if it is not one."""
    sizes = type.sizes
    if any(size is None for size in sizes):
        raise ValueError("the type of a constant must have known sizes")
    shape = tuple(size or 0 for size in sizes)
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise ValueError(f"a constant of {count} elements is larger than {MAX_ELEMENTS}")
    kind = of_mlir(type.element)
    body = text[6:-1].strip()
    if body.startswith('"'):
        return DenseAttr(from_bytes(_hexadecimal(body), kind, shape), type)
    if not body.startswith("["):
        if not body and count:
            raise ValueError(f"there are no elements, but the type has {count}")
        values = _elements(_split(body, kind), kind) if body else np.zeros(0, kind.dtype)
        return DenseAttr(np.broadcast_to(values.reshape(()), shape) if body else values.reshape(shape), type)
    _check_brackets(body, shape)
    values = _elements(_split(body.replace("[", "").replace("]", ""), kind), kind)
    if values.size != count:
        raise ValueError(f"there are {values.size} elements, but the type has {count}")
    return DenseAttr(values.reshape(shape), type)


def array(text: str) -> DenseAttr:
    """`array<i64: 1, 2>`."""
    element, _, body = text[6:-1].partition(":")
    kind = of_mlir(element.strip())
    values = _elements(_split(body, kind), kind) if body.strip() else np.zeros(0, kind.dtype)
    return DenseAttr(values, TensorType((values.size,), element.strip()), is_array=True)


def from_bytes(data: bytes, kind: ElementType, shape: tuple[int, ...]) -> Array:
    """An array from bytes as MLIR stores them: little-endian; one element stands for all; truth values take a byte or
    a bit each."""
    count, size = math.prod(shape), kind.dtype.itemsize
    if kind.kind == "pred":
        packed = np.frombuffer(data, np.uint8)
        if len(data) == 1 and count != 1:
            return np.broadcast_to(np.array(data != b"\0"), shape)
        if len(data) == count:
            return (packed != 0).reshape(shape)
        if len(data) == -(-count // 8):
            return np.unpackbits(packed, count=count, bitorder="little").astype(bool).reshape(shape)
    elif len(data) == size and count != 1:
        return np.broadcast_to(_typed(data, kind).reshape(()), shape)
    elif len(data) == size * count:
        return _typed(data, kind).reshape(shape)
    raise ValueError(f"{len(data)} bytes are not {count} elements of {kind}")


def _typed(data: bytes, kind: ElementType) -> Array:
    found = np.frombuffer(data, np.dtype(f"u{kind.dtype.itemsize}")) if kind.bits < 8 else None
    if found is None:
        return np.frombuffer(data, kind.dtype)
    if kind.is_integer:  # narrow integers take a byte, of which only the low bits count
        low = found & ((1 << kind.bits) - 1)
        wide = low.astype(np.int16)
        if kind.kind == "signed":
            wide = np.where(wide >> (kind.bits - 1), wide - (1 << kind.bits), wide)
        return wide.astype(kind.dtype)
    return found.view(kind.dtype)


def _hexadecimal(body: str) -> bytes:
    if not body.startswith('"0x') or not body.endswith('"'):
        raise ValueError("the bytes of elements are written as a string of hexadecimal digits behind 0x")
    return bytes.fromhex(body[3:-1])


def _check_brackets(body: str, shape: tuple[int, ...]) -> None:
    depth = most = 0
    for sign in re.findall(r"[\[\]]", body):
        depth += 1 if sign == "[" else -1
        most = max(most, depth)
        if depth < 0:
            break
    if depth or most != len(shape) or body.count("[") != sum(math.prod(shape[:k]) for k in range(len(shape))):
        raise ValueError(f"the brackets are not those of an array of sizes {list(shape)}")


def _split(body: str, kind: ElementType) -> list[str]:
    if kind.kind == "complex":
        found = _COMPLEX.findall(body)
        return [part.strip() for pair in found for part in pair]
    return [x.strip() for x in body.split(",")]


def _elements(texts: list[str], kind: ElementType) -> Array:
    if kind.kind == "pred":
        if not all(x in ("true", "false", "0", "1") for x in texts):
            raise ValueError("truth values are true or false")
        return np.array([x in ("true", "1") for x in texts], np.bool_)
    if kind.is_integer:
        return _integers(texts, kind)
    if kind.kind == "complex":
        part = np.dtype(f"f{kind.dtype.itemsize // 2}")
        return _floats(texts, part, kind.bits // 2).view(kind.dtype)
    return _floats(texts, kind.dtype, kind.bits)


def _integers(texts: list[str], kind: ElementType) -> Array:
    numbers = [int(x, 0) for x in texts]
    low, high = -(1 << kind.bits - 1), (1 << kind.bits) - 1
    for x in numbers:
        if not low <= x <= high:
            raise ValueError(f"{x} is outside the range of {kind}")
    wrapped = np.array([x & high for x in numbers], np.uint64)
    if kind.bits < 8:
        return _typed(wrapped.astype(np.uint8).tobytes(), kind)
    return wrapped.astype(f"u{kind.dtype.itemsize}").view(kind.dtype)


def _floats(texts: list[str], dtype: np.dtype[Any], bits: int) -> Array:
    with np.errstate(over="ignore"):
        found = np.array([0.0 if x.startswith("0x") else float(x) for x in texts], np.float64).astype(dtype)
    for k, x in enumerate(texts):
        if x.startswith("0x"):
            found[k] = np.array(int(x, 16) & ((1 << bits) - 1), f"u{dtype.itemsize}").view(dtype)
    return found
