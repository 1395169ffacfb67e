"""Element types as LLVM's, in registers and in memory, and constants of them as text.

Source: the LLVM Language Reference Manual.
"""

from __future__ import annotations

import struct

REGISTER_TYPES = {
    "pred": "i1",
    **{f"{sign}{bits}": f"i{bits}" for sign in "su" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
}
# In memory; of a complex number, the type of each component.
MEMORY_TYPES = {
    **REGISTER_TYPES,
    "pred": "i8",
    "f16": "half",
    "bf16": "i16",
    "c64": "float",
    "c128": "double",
}
BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def constant(type: str, value: float) -> str:
    """A number as LLVM text: floats exactly, in hexadecimal; integers wrapped to the width."""
    if type == "f64":
        return f"0x{struct.pack('>d', value).hex()}"
    if type == "f32":  # LLVM writes a float as the double of the same value
        return f"0x{struct.pack('>d', _round_to_f32(value)).hex()}"
    if type == "pred":
        return "true" if value else "false"
    bits = int(type[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _round_to_f32(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
