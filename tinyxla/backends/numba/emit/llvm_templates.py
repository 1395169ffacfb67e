"""Templates of LLVM text: a macro language for the functions of the run-time.

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
from collections.abc import Iterator, Sequence

_OPCODES = "load icmp select getelementptr zext sext trunc add sub mul udiv urem and or shl lshr"
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
