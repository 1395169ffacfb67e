"""Element types of the loop IR, by name."""

from __future__ import annotations

INTEGERS = tuple(f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64))
COMPONENT_BYTES = {  # of an element in memory; of a complex number, of each component
    "pred": 1,
    **{type: int(type[1:]) // 8 for type in INTEGERS},
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "c64": 4,
    "c128": 8,
}
PAIRS = ("c64", "c128")  # two numbers in memory


def storage_type(type: str) -> str:
    """The scalar type in which kernels hold elements of a type: `u8` for types that are only stored (8-bit floats
    and narrower types)."""
    return type if type in COMPONENT_BYTES else "u8"
