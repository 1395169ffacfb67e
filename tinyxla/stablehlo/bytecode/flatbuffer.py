"""FlatBuffers, as far as `jax.export` needs them: tables, vectors, strings and numbers, with all offsets checked.

Source: FlatBuffer Internals, https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinyxla.errors import BytecodeError

MAX_DEPTH = 128  # of tables in tables
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


# --- writing ----------------------------------------------------------------------------------------------------------


class Number(NamedTuple):
    """A number in a table, in the form of `struct`."""

    form: str
    value: int


def write(root: Mapping[int, Any], identifier: bytes) -> bytes:
    """A FlatBuffer.

    Args:
        root: a table: fields by number. A field is a `Number`, a string, bytes, an array of numbers, a table, or a
            sequence of strings or tables; None is left out.
        identifier: four bytes that say what the buffer is.

    Returns:
        The bytes.
    """
    writer = _Writer(identifier)
    writer.refer(0, root)
    return bytes(writer.data)


class _Writer:
    """Objects stand behind those that refer to them."""

    def __init__(self, identifier: bytes) -> None:
        self.data = bytearray(4) + identifier

    def refer(self, at: int, value: Any) -> None:
        """Write an object, and at a place the offset that leads to it."""
        self.data += bytes(-len(self.data) % 4)
        struct.pack_into("<I", self.data, at, len(self.data) + self._vtable_size(value) - at)
        if isinstance(value, Mapping):
            self._table(value)
        elif isinstance(value, str | bytes):
            data = value.encode() if isinstance(value, str) else value
            self.data += struct.pack("<I", len(data)) + data + b"\0"
        elif isinstance(value, np.ndarray):
            self.data += struct.pack("<I", value.size) + value.astype(value.dtype.newbyteorder("<")).tobytes()
        else:
            self._sequence(value)

    def _table(self, fields: Mapping[int, Any]) -> None:
        given = {number: x for number, x in fields.items() if x is not None}
        size = self._vtable_size(fields)
        forms = {number: x.form if isinstance(x, Number) else "I" for number, x in given.items()}
        offsets, end = {}, 4
        for number in sorted(given, key=lambda k: -struct.calcsize(forms[k])):  # so that each is aligned
            offsets[number] = end
            end += struct.calcsize(forms[number])
        start = len(self.data)
        slots = [offsets.get(k, 0) for k in range(max(given, default=-1) + 1)]
        vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), end, *slots)
        self.data += vtable + bytes(size - len(vtable))
        at = len(self.data)
        self.data += struct.pack("<i", at - start) + bytes(end - 4)
        for number, x in given.items():
            if isinstance(x, Number):
                struct.pack_into("<" + x.form, self.data, at + offsets[number], x.value)
        for number, x in given.items():
            if not isinstance(x, Number):
                self.refer(at + offsets[number], x)

    def _sequence(self, values: Sequence[Any]) -> None:
        self.data += struct.pack("<I", len(values))
        at = len(self.data)
        self.data += bytes(4 * len(values))
        for k, x in enumerate(values):
            self.refer(at + 4 * k, x)

    @staticmethod
    def _vtable_size(value: Any) -> int:
        """The bytes before a table in which the places of its fields stand; 0 for other objects."""
        if not isinstance(value, Mapping):
            return 0
        count = max((number for number, x in value.items() if x is not None), default=-1) + 1
        return (4 + 2 * count + 3) // 4 * 4
