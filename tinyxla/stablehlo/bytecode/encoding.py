"""The primitives of MLIR's bytecode: variable-width integers, strings, alignment and sections.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from tinyxla.errors import BytecodeError

MAX_ALIGNMENT = 1 << 20
_PADDING = 0xCB

_T = TypeVar("_T")


def long_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """A PrefixVarInt of several bytes, of which the first is read: its value, and the offset behind it. The zeros at
    the low end of the first byte count the bytes that follow."""
    if first & 2:
        return data[at] << 6 | first >> 2, at + 1
    count = (first & -first).bit_length() - 1 if first else 8
    end = at + count
    if end > len(data):
        raise BytecodeError("the bytes end within an integer", at)
    rest = int.from_bytes(data[at:end], "little")
    return (rest << (7 - count) | first >> (count + 1)) if first else rest, end


class Cursor:
    """A part of the bytes, from `at` to `end`, that is read from the front."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Refuse the bytes."""
        raise BytecodeError(message, self.at if at is None else at)

    @property
    def remaining(self) -> int:
        return self.end - self.at

    def byte(self) -> int:
        if self.at >= self.end:
            self.fail("the bytes end too early")
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, count: int) -> bytes:
        """A copy of the bytes that follow."""
        self.skip(count)
        return self.data[self.at - count : self.at]

    def skip(self, count: int) -> None:
        if count > self.remaining:
            self.fail(f"{count} bytes should follow, but there are {self.remaining}")
        self.at += count

    def varint(self) -> int:
        """An unsigned integer of at most 64 bits."""
        at = self.at
        if at >= self.end:
            self.fail("the bytes end too early")
        first = self.data[at]
        if first & 1:
            self.at = at + 1
            return first >> 1
        if at + 1 == self.end:
            self.fail("the bytes end within an integer")
        found, self.at = long_varint(self.data, at + 1, first)
        if self.at > self.end:
            self.fail("the bytes end within an integer")
        return found

    def signed(self) -> int:
        """A signed integer in zigzag encoding: 0, -1, 1, -2, ..."""
        found = self.varint()
        return found >> 1 ^ -(found & 1)

    def flagged(self) -> tuple[int, bool]:
        """An integer with a flag in its low bit."""
        found = self.varint()
        return found >> 1, bool(found & 1)

    def count(self, what: str) -> int:
        """The length of a list, each element of which takes a byte at least."""
        start = self.at
        found = self.varint()
        if found > self.remaining:
            self.fail(f"there cannot be {found} {what} in {self.remaining} bytes", start)
        return found

    def list_of(self, read: Callable[[], _T], what: str = "elements") -> list[_T]:
        """A list: its length, and the elements."""
        return [read() for _ in range(self.count(what))]

    def null_terminated(self) -> bytes:
        """Bytes up to a zero."""
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            self.fail("a string has no end")
        found = self.data[self.at : end]
        self.at = end + 1
        return found

    def align(self, alignment: int) -> None:
        """Skip the padding up to a multiple of a power of two."""
        if not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            self.fail(f"an alignment is a power of two up to {MAX_ALIGNMENT}, but is {alignment}")
        while self.at % alignment:
            if self.byte() != _PADDING:
                self.fail(f"padding consists of bytes {_PADDING:#x}", self.at - 1)

    def section(self) -> tuple[int, Cursor]:
        """A section: its number, and the bytes."""
        head = self.byte()
        length = self.varint()
        if head & 0x80:
            self.align(self.varint())
        start = self.at
        self.skip(length)
        return head & 0x7F, Cursor(self.data, start, self.at)
