"""FlatBuffers, as far as `jax.export` needs them: tables, vectors, strings and numbers, with all offsets checked.

Source: FlatBuffer Internals, https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from tinyxla.errors import BytecodeError

MAX_DEPTH = 64  # of tables in tables
MAX_TIMES = 8  # that all bytes are read
_T = TypeVar("_T")


class Buffer:
    """The bytes of a FlatBuffer. Tables may be shared, so what is read is counted: there are not more tables than
    bytes, or the same ones are read over and over."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tables = 0
        self.taken = 0  # bytes of strings and vectors, which may be shared too

    def number(self, form: str, at: int) -> int:
        """A little-endian number in the form of `struct`."""
        if not 0 <= at <= len(self.data) - struct.calcsize(form):
            raise BytecodeError("an offset of the FlatBuffer leads outside of it", min(max(at, 0), len(self.data)))
        return struct.unpack_from(form, self.data, at)[0]

    def target(self, at: int) -> int:
        """Where an offset leads, which is counted from where it stands."""
        return at + self.number("<I", at)

    def root(self) -> Table:
        return Table(self, self.target(0), 0)


class Table:
    """A table: fields by number, each of which may be missing."""

    def __init__(self, buffer: Buffer, at: int, depth: int) -> None:
        self._buffer = buffer
        self._at = at
        self._depth = depth
        buffer.tables += 1
        if depth > MAX_DEPTH or buffer.tables > len(buffer.data):
            raise BytecodeError(f"the tables of the FlatBuffer are nested deeper than {MAX_DEPTH}, or too many", at)
        self._fields = at - buffer.number("<i", at)
        self._size = buffer.number("<H", self._fields)

    def place(self, field: int) -> int | None:
        """Where a field stands, or None if it is missing."""
        slot = 4 + 2 * field
        offset = self._buffer.number("<H", self._fields + slot) if slot + 2 <= self._size else 0
        return self._at + offset if offset else None

    def number(self, field: int, form: str, default: int = 0) -> int:
        at = self.place(field)
        return default if at is None else self._buffer.number("<" + form, at)

    def table(self, field: int) -> Table | None:
        at = self.place(field)
        return None if at is None else Table(self._buffer, self._buffer.target(at), self._depth + 1)

    def bytes(self, field: int) -> bytes:
        """A vector of bytes, or a string."""
        at = self.place(field)
        return b"" if at is None else self._vector_at(self._buffer.target(at))

    def string(self, field: int) -> str:
        return self.bytes(field).decode(errors="replace")

    def numbers(self, field: int, form: str) -> tuple[int, ...]:
        """A vector of numbers."""
        at = self.place(field)
        if at is None:
            return ()
        data = self._vector_at(self._buffer.target(at), np.dtype(form).itemsize)
        return tuple(np.frombuffer(data, np.dtype(form).newbyteorder("<")).tolist())

    def tables(self, field: int, read: Callable[[Table], _T]) -> tuple[_T, ...]:
        """A vector of tables."""
        return tuple(
            read(Table(self._buffer, self._buffer.target(at), self._depth + 1)) for at in self._elements(field)
        )

    def strings(self, field: int) -> tuple[str, ...]:
        """A vector of strings."""
        return tuple(self._vector_at(self._buffer.target(at)).decode(errors="replace") for at in self._elements(field))

    def _elements(self, field: int) -> range:
        at = self.place(field)
        if at is None:
            return range(0)
        start = self._buffer.target(at)
        count = self._buffer.number("<I", start)
        self._check(start, 4 * count)
        return range(start + 4, start + 4 + 4 * count, 4)

    def _vector_at(self, start: int, size: int = 1) -> bytes:
        length = size * self._buffer.number("<I", start)
        self._check(start, length)
        return self._buffer.data[start + 4 : start + 4 + length]

    def _check(self, start: int, length: int) -> None:
        if length > len(self._buffer.data) - start - 4:
            raise BytecodeError(f"a vector of {length} bytes ends behind the FlatBuffer", start)
        self._buffer.taken += length
        if self._buffer.taken > MAX_TIMES * len(self._buffer.data):
            raise BytecodeError("the FlatBuffer refers to the same bytes over and over", start)
