"""Templates of LLVM text: a macro language for the run-time, and for routines that the loop IR cannot express, such as
those with instructions of one processor.

The text consists of LLVM instructions and macros for nested expressions, array elements and counted loops. An operand
may be an instruction in parentheses. As an operand, `%words[3]` is the address of a 64-bit word, `%lanes[float %k]`
that of an element of another type:

    %sum = add i64 (mul i64 %x, %y), (load i64, ptr %words[3])

The body between these two lines runs at least once, for %k = 0, 4, 8, ...; phi nodes name the blocks before and after
it `k.begin` and `k.end`:

    for %k from 0 below %count by 4
    end %k

Source: the LLVM Language Reference Manual.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator, Sequence

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

_OPCODES = "load icmp select getelementptr zext sext trunc add sub mul udiv urem and or xor shl lshr fmul insertelement"
_NESTED = re.compile(
    rf"\((?P<nested>(?:{_OPCODES.replace(' ', '|')}) [^()]*)\)"
    r"|(?P<array>%[\w.]+)\[(?:(?P<type>[^][]+) )?(?P<index>[^][\s()]+)\]"
)
_LOOP = re.compile(r" *for %([\w.]+) from (\S+) below (\S+) by (\S+) *")
_END = re.compile(r" *end %([\w.]+)")


def expand_macros(text: str) -> str:
    """LLVM text with all macros expanded."""
    lines: list[str] = []
    ends: dict[str, str] = {}  # text that closes each open loop, by index name
    counter = itertools.count()

    def instructions(text: str) -> Iterator[str]:
        """An instruction, after those that it needs."""
        while match := _NESTED.search(text):
            name = f"%nested.{next(counter)}"
            address = f"getelementptr {match['type'] or 'i64'}, ptr {match['array']}, i64 {match['index']}"
            yield from instructions(f"  {name} = {match['nested'] or address}")
            text = text.replace(match[0], name)
        yield text

    for line in text.split("\n"):
        code = line.partition(";")[0]
        if loop := _LOOP.fullmatch(code):
            k, start, stop, step = loop.groups()
            lines.append(f"  br label %{k}.begin\n{k}.begin:\n  br label %{k}.loop\n{k}.loop:")
            lines.append(f"  %{k} = phi i64 [ {start}, %{k}.begin ], [ %{k}.next, %{k}.end ]")
            ends[k] = f"  %{k}.next = add i64 %{k}, {step}\n  %{k}.more = icmp slt i64 %{k}.next, {stop}"
        elif end := _END.fullmatch(code):
            k = end[1]
            lines.append(f"  br label %{k}.end\n{k}.end:\n{ends.pop(k)}")
            lines.append(f"  br i1 %{k}.more, label %{k}.loop, label %{k}.done\n{k}.done:")
        else:
            lines += instructions(code)
    return "\n".join(lines)


def load_words(address: str, names: Sequence[str], pointers: str = "", prefix: str = "") -> str:
    """Instructions that load consecutive 64-bit words from an address as values `names`: integers, or pointers for
    the names in `pointers` (separated by spaces)."""
    types = ["ptr" if name in pointers.split() else "i64" for name in names]
    loads = [f"load {type}, ptr %{address}[{k}]" for k, type in enumerate(types)]
    return "\n".join(f"  %{prefix}{name} = {load}" for name, load in zip(names, loads, strict=True))


def constant(type: str, value: float) -> str:
    """A number as LLVM text: floats exactly, in hexadecimal; integers wrapped to the width."""
    if type == "f64":
        return f"0x{struct.pack('>d', value).hex()}"
    if type == "f32":  # LLVM writes a float as the double of the same value
        return f"0x{struct.pack('>d', round_to_f32(value)).hex()}"
    if type == "pred":
        return "true" if value else "false"
    bits = int(type[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def round_to_f32(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
