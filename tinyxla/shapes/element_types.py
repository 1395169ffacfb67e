"""XLA's element types and the NumPy dtypes that hold them (`ml_dtypes` for those NumPy lacks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from tinyxla.errors import DTypeError
from tinyxla.shapes.key_types import KEY_TYPES, KeyType


@dataclass(frozen=True, slots=True, eq=False)
class ElementType:
    """One of XLA's primitive types. There is one object for each, so identity is equality.

    `kind` is `pred`, `signed`, `unsigned`, `float` or `complex` (or `token`, `opaque` or `key`); `bits` is the width in
    the documents (a NumPy array spends a whole byte on narrower ones).

    >>> from tinyxla.shapes import element_type
    >>> bf16 = element_type("bf16")
    >>> bf16.dtype, bf16.kind, bf16.bits, element_type("int4").bits
    (dtype(bfloat16), 'float', 16, 4)
    """

    name: str
    dtype: np.dtype[Any]
    kind: str
    bits: int

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def is_inexact(self) -> bool:
        return self.kind in ("float", "complex")

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def _types() -> list[ElementType]:
    rows = [("pred", np.bool_, "pred", 8)]
    rows += [(f"s{n}", np.dtype(f"int{n}"), "signed", n) for n in (8, 16, 32, 64)]
    rows += [(f"u{n}", np.dtype(f"uint{n}"), "unsigned", n) for n in (8, 16, 32, 64)]
    widths = [n for n in (1, 2, 4) if hasattr(ml_dtypes, f"int{n}")]  # older versions than 0.6 lack int1 and uint1
    rows += [(f"s{n}", getattr(ml_dtypes, f"int{n}"), "signed", n) for n in widths]
    rows += [(f"u{n}", getattr(ml_dtypes, f"uint{n}"), "unsigned", n) for n in widths]
    rows += [("f16", np.float16, "float", 16), ("bf16", ml_dtypes.bfloat16, "float", 16)]
    rows += [("f32", np.float32, "float", 32), ("f64", np.float64, "float", 64)]
    small = ["f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"]
    rows += [(name, getattr(ml_dtypes, name.replace("f8", "float8_")), "float", 8) for name in small]
    rows += [(name, getattr(ml_dtypes, name.replace("f6", "float6_")), "float", 6) for name in ("f6e2m3fn", "f6e3m2fn")]
    rows += [("f4e2m1fn", ml_dtypes.float4_e2m1fn, "float", 4)]
    rows += [("c64", np.complex64, "complex", 64), ("c128", np.complex128, "complex", 128)]
    return [ElementType(name, np.dtype(dtype), kind, bits) for name, dtype, kind, bits in rows]


def _without_value(name: str) -> ElementType:
    """A type of values that say nothing. They have a dtype of their own, so no array of numbers is taken for one."""
    return ElementType(name, np.dtype([(name, np.bool_)]), name, 8)


element_types: dict[str, ElementType] = {t.name: t for t in _types()}  # those of arrays
TOKEN, OPAQUE = _without_value("token"), _without_value("opaque")
_BY_DTYPE: dict[Any, ElementType] = {t.dtype: t for t in (*element_types.values(), TOKEN, OPAQUE)}


def add_key_type(t: KeyType) -> None:
    """Let keys of a generator be elements of arrays."""
    _BY_DTYPE[t] = ElementType(t.name, cast(Any, t), "key", 8 * t.itemsize)


for _key_type in KEY_TYPES.values():
    add_key_type(_key_type)


def element_type(dtype: Any) -> ElementType:
    """The element type of a dtype, of anything `np.dtype` accepts, or of an XLA name such as `"bf16"`.

    Raises:
        DTypeError: what is no element type of XLA.

    >>> import numpy as np
    >>> from tinyxla.shapes import element_type
    >>> element_type("int8"), element_type(np.float32), element_type("bf16")
    (s8, f32, bf16)
    """
    if isinstance(dtype, ElementType):
        return dtype
    try:
        return _BY_DTYPE[dtype]
    except (KeyError, TypeError):
        pass
    if isinstance(dtype, str) and dtype in element_types:
        return element_types[dtype]
    try:
        return _BY_DTYPE[np.dtype(dtype).newbyteorder("=")]
    except (KeyError, TypeError):
        names = ", ".join(t.dtype.name for t in element_types.values())
        raise DTypeError(f"{dtype!r} is not an element type of an array; the types are {names}.") from None
