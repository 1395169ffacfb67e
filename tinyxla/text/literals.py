"""Constants as HLO text has them: numbers, and nested braces; written and read side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.hlo import Literal
from tinyxla.shapes import ElementType, Shape, element_type
from tinyxla.text.lexer import without_comments

Array = np.ndarray[Any, Any]

# --- writing ----------------------------------------------------------------------------------------------------------


def literal_text(literal: Literal) -> str:
    """A constant's value: a number, or nested braces; `{...}` if it is not known."""
    return "{...}" if literal.elided else _nested(literal.value, _element_text(element_type(literal.value.dtype)))


def _nested(value: Array, text: Callable[[Any], str]) -> str:
    if value.ndim == 0:
        return text(value[()])
    if value.ndim == 1:
        return "{" + ", ".join(map(text, value)) + "}"
    return "{ " + ", ".join(_nested(row, text) for row in value) + " }"


def _element_text(kind: ElementType) -> Callable[[Any], str]:
    if kind.kind == "pred":
        return lambda x: "true" if x else "false"
    if kind.is_integer:
        return lambda x: str(int(x))
    if kind.kind == "complex":
        return lambda x: f"({number_text(x.real)}, {number_text(x.imag)})"
    return number_text


def number_text(x: Any) -> str:
    """The shortest decimal that reads back as the same number; `-0.0`, since `-0` reads back as the integer. A NaN that
    is not the usual one shows the bits of its mantissa."""
    if x != x:
        return _nan_text(np.asarray(x))
    text = str(x if isinstance(x, float) or x.dtype.itemsize >= 4 else float(x))
    return text if text == "-0.0" else text.removesuffix(".0")


def _nan_text(x: Array) -> str:
    sign = "-" if np.signbit(x) else ""
    layout = _mantissa(x.dtype)
    if layout is None:
        return f"{sign}nan"
    payload = int(x.view(layout[0])) & (1 << layout[1]) - 1
    return f"{sign}nan" if payload == 1 << layout[1] - 1 else f"{sign}nan(0x{payload:x})"


_WITH_PAYLOADS = ("f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3", "f8e3m4")  # NaNs in the manner of IEEE 754


def _mantissa(dtype: np.dtype[Any]) -> tuple[str, int] | None:
    """The unsigned integer that holds the bits of a float, and how many of them are the mantissa; None for types whose
    NaN has no bits to choose."""
    kind = element_type(dtype)
    if kind.name not in _WITH_PAYLOADS:
        return None
    return f"u{dtype.itemsize}", int(ml_dtypes.finfo(dtype).nmant)


# --- reading ----------------------------------------------------------------------------------------------------------

_PIECE = re.compile(r"\s*(?:(\((?:[^()]|\([^()]*\))*\)|[^\s{},()]+(?:\([^\s()]*\))?)|(.))", re.DOTALL)
_NAN = re.compile(r"(-?)nan\((0x[0-9a-fA-F]{1,16})\)")


def read_literal(text: str, shape: Shape) -> Literal:
    """The constant of that shape; ValueError if the text is not one."""
    text = without_comments(text).strip()
    if text == "{...}":
        return Literal(np.broadcast_to(np.zeros((), shape.dtype), shape.dimensions), elided=True)
    elements = _elements(text, shape.dimensions)
    return Literal(_array(elements, shape.element_type).reshape(shape.dimensions))


def _elements(text: str, sizes: Sequence[int]) -> list[str]:
    """The elements in order; their braces are those of an array of these sizes."""
    found: list[str] = []
    counts: list[int] = []  # at each depth, how many there have been since its brace
    after = False  # an element or a closing brace, so that a comma or a closing brace comes next
    for piece in _PIECE.finditer(text):
        element, sign = piece[1], piece[2]
        if sign is not None and sign.isspace():
            continue
        if sign == "}" and counts and (after or counts[-1] == 0):
            if counts[-1] != sizes[len(counts) - 1]:
                raise ValueError(
                    f"{counts[-1]} elements between braces, where there should be {sizes[len(counts) - 1]}"
                )
            counts.pop()
            after = True
        elif sign == "," and after and counts:
            after = False
        elif sign not in ("{", None) or after or (sign == "{") != (len(counts) < len(sizes)):
            raise ValueError(f"{(element or sign)!r} does not belong there in a constant of sizes {list(sizes)}")
        else:
            if counts:
                counts[-1] += 1
            if sign == "{":
                counts.append(0)
            else:
                found.append(element)
                after = True
    if counts or not after:
        raise ValueError(f"the constant ends before it has its sizes {list(sizes)}")
    return found


def _array(elements: Sequence[str], kind: ElementType) -> Array:
    if kind.kind == "complex":
        pairs = [x[1:-1].split(",") if x.startswith("(") else [x, "0"] for x in elements]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("a complex number is (real, imaginary)")
        parts = [part.strip() for pair in pairs for part in pair]
        return _floats(parts, np.dtype("f4" if kind.bits == 64 else "f8")).view(kind.dtype)
    if kind.kind == "float":
        return _floats(elements, kind.dtype)
    if kind.kind == "pred":
        return np.array([_truth(x) for x in elements], np.bool_)
    low = -(1 << kind.bits - 1) if kind.kind == "signed" else 0
    high = (1 << kind.bits - (kind.kind == "signed")) - 1
    numbers = [_integer(x, kind) for x in elements]
    for x in numbers:
        if not low <= x <= high:
            raise ValueError(f"{x} is outside the range of {kind}")
    return np.array(numbers, np.int64 if low else np.uint64).astype(kind.dtype)


def _truth(text: str) -> bool:
    if text in ("true", "false", "0", "1"):
        return text in ("true", "1")
    raise ValueError(f"expected true or false, but found {text!r}")


def _integer(text: str, kind: ElementType) -> int:
    if re.fullmatch(r"-?[0-9]{1,20}", text) is None:
        raise ValueError(f"{text[:40]!r} is not a number of type {kind}")
    return int(text)


def _floats(elements: Sequence[str], dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        found = np.array([_float(x) for x in elements], np.float64).astype(dtype)
    for k, text in enumerate(elements):
        if text.endswith(")"):
            found[k] = _nan(text, dtype)
    return found


def _float(text: str) -> float:
    if "_" in text:
        raise ValueError(f"{text[:40]!r} is not a number")
    if text.endswith(")"):
        return math.nan
    try:
        return float.fromhex(text) if "0x" in text else float(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _nan(text: str, dtype: np.dtype[Any]) -> Any:
    """A NaN with these bits in its mantissa."""
    found, layout = _NAN.fullmatch(text), _mantissa(dtype)
    if found is None or layout is None:
        raise ValueError(f"{text[:40]!r} is not a number of type {element_type(dtype)}")
    unsigned, mantissa = np.dtype(layout[0]), layout[1]
    payload = int(found[2], 16)
    if not 0 < payload < 1 << mantissa:
        raise ValueError(f"{text!r} has bits that the mantissa of {element_type(dtype)} has not")
    exponent = (1 << 8 * dtype.itemsize - 1) - (1 << mantissa)
    sign = 1 << 8 * dtype.itemsize - 1 if found[1] else 0
    return np.array(sign | exponent | payload, unsigned).view(dtype)[()]
