"""Element types under MLIR's names: `i32` is `s32` here, `i1` is `pred`, `complex<f32>` is `c64`."""

from __future__ import annotations

from tinyxla.errors import DTypeError
from tinyxla.shapes import ElementType, element_type

_NAMES = {
    "i1": "pred",
    **{f"i{bits}": f"s{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{name: name for name in ("f16", "bf16", "f32", "f64")},
    "complex<f32>": "c64",
    "complex<f64>": "c128",
    "f4E2M1FN": "f4e2m1fn",
    "f6E2M3FN": "f6e2m3fn",
    "f6E3M2FN": "f6e3m2fn",
    "f8E3M4": "f8e3m4",
    "f8E4M3": "f8e4m3",
    "f8E4M3B11FNUZ": "f8e4m3b11fnuz",
    "f8E4M3FN": "f8e4m3fn",
    "f8E4M3FNUZ": "f8e4m3fnuz",
    "f8E5M2": "f8e5m2",
    "f8E5M2FNUZ": "f8e5m2fnuz",
    "f8E8M0FNU": "f8e8m0fnu",
}
_MLIR_NAMES = {name: mlir for mlir, name in _NAMES.items()}
_AS_BITS = {f"si{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)} | {"index": "i64"}


def of_mlir(name: str) -> ElementType:
    """The element type of MLIR's name; `index` is `s64`."""
    found = _NAMES.get(_AS_BITS.get(name, name))
    if found is None:
        raise DTypeError(f"MLIR's type {name} is no element type of an array here; these are {', '.join(_NAMES)}.")
    return element_type(found)


def to_mlir(dtype: ElementType) -> str:
    """MLIR's name of an element type."""
    if dtype.name not in _MLIR_NAMES:  # i1 is the type of booleans
        raise DTypeError(f"MLIR has no name for the element type {dtype}; convert the array to a wider integer type.")
    return _MLIR_NAMES[dtype.name]
