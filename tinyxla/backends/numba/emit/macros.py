"""A shorthand for LLVM text that is written by hand: instructions in one another, elements of memory, counted loops.

An instruction may stand in parentheses where its value is wanted. In one, `%words[3]` is the address of a 64-bit word,
and `%lanes[float %k]` that of an element of another type:

    %sum = add i64 (mul i64 %x, %y), (load i64, ptr %words[3])

What stands between these two lines runs at least once, with %k = 0, 4, 8, ...; the blocks around it are `k.begin` and
`k.end`, as those that carry values from one iteration to the next want to know:

    for %k from 0 below %count by 4
    end %k
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

_OPCODES = "load icmp select getelementptr zext sext trunc add sub mul udiv urem and or xor shl lshr fmul insertelement"
_INSIDE = re.compile(
    rf"\((?P<inside>(?:{_OPCODES.replace(' ', '|')}) [^()]*)\)"
    r"|(?P<array>%[\w.]+)\[(?:(?P<kind>[^][]+) )?(?P<index>[^][\s()]+)\]"
)
_LOOP = re.compile(r" *for %([\w.]+) from (\S+) below (\S+) by (\S+) *")
_END = re.compile(r" *end %([\w.]+)")


def written_out(text: str) -> str:
    """The same as LLVM reads it."""
    lines: list[str] = []
    ends: dict[str, str] = {}  # of the loops that are open, by their index
    numbers = itertools.count()

    def instructions(text: str) -> Iterator[str]:
        """An instruction, after those that it needs."""
        while found := _INSIDE.search(text):
            value = f"%inside.{next(numbers)}"
            address = f"getelementptr {found['kind'] or 'i64'}, ptr {found['array']}, i64 {found['index']}"
            yield from instructions(f"  {value} = {found['inside'] or address}")
            text = text.replace(found[0], value)
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


def loaded_words(address: str, names: Sequence[str], pointers: str = "", prefix: str = "") -> str:
    """Instructions that load words of a table at an address as values of these names: 64-bit integers, or pointers (as
    which names separated by spaces are)."""
    kinds = ["ptr" if name in pointers.split() else "i64" for name in names]
    loads = [f"load {kind}, ptr %{address}[{k}]" for k, kind in enumerate(kinds)]
    return "\n".join(f"  %{prefix}{name} = {load}" for name, load in zip(names, loads, strict=True))
