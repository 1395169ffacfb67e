"""What operations in bytecode refer to by number: strings, names of operations, attributes, types, resources and
properties.

Attributes and types are decoded when they are first asked for, each once. What is nested deeper than `MAX_DEPTH`,
contains itself, or is larger than `MAX_PARTS` when its parts are written out, is refused, so that a small artifact
never stands for a large or endless value.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tinyxla.errors import BytecodeError
from tinyxla.stablehlo.bytecode.encoding import Cursor
from tinyxla.text.mlir.ir import Attribute, Location, OpaqueAttr, OtherType, StringAttr, Type

MAGIC = b"ML\xefR"
MAX_VERSION = 6
MAX_DEPTH = 100  # of attributes in attributes
MAX_PARTS = 1 << 22  # of an attribute or type, those of its parts included

MAX_TIMES = 8  # that all bytes are taken as resources

# Versions of the format, by what is new in them.
DIALECT_VERSIONS, LAZY_REGIONS, USE_LISTS, SHORT_ARGUMENTS, PROPERTIES = 1, 2, 3, 4, 5

_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, IR, _RESOURCES, _RESOURCE_OFFSETS, _VERSIONS, _PROPERTIES = range(9)
_NAMES = ("strings", "dialects", "attributes and types", "offsets of attributes", "operations")


class Resource(NamedTuple):
    """A named value beside the operations. `kind` is 0 for bytes, 1 for a truth value, 2 for a string."""

    key: str
    kind: int
    at: int
    end: int


class _Entry(NamedTuple):
    """Where an attribute or type stands; `dialect` is empty if it is text."""

    at: int
    end: int
    dialect: str


class _Unread:
    """The mark of what is not decoded yet."""


UNREAD = _Unread()
_READING = _Unread()


class Decoders(NamedTuple):
    """How a dialect's attributes and types are read, by the number that they begin with."""

    attributes: dict[int, Callable[[EntryCursor], Attribute | Location | None]]
    types: dict[int, Callable[[EntryCursor], Type]]


class EntryCursor(Cursor):
    """The bytes of one attribute or type, which refer to others."""

    __slots__ = ("tables",)

    def __init__(self, tables: Tables, at: int, end: int) -> None:
        super().__init__(tables.data, at, end)
        self.tables = tables

    def any_attribute(self) -> Attribute | Location | None:
        """An attribute or a location; None is an unknown location."""
        start = self.at
        return self.tables.attribute(self.varint(), start)

    def attribute(self) -> Attribute:
        start = self.at
        return self.tables.plain_attribute(self.varint(), start)

    def optional_attribute(self) -> Attribute | None:
        start = self.at
        number, is_there = self.flagged()
        return self.tables.plain_attribute(number, start) if is_there else None

    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(self.list_of(self.attribute, "attributes"))

    def type(self) -> Type:
        start = self.at
        return self.tables.type(self.varint(), start)

    def types(self) -> tuple[Type, ...]:
        return tuple(self.list_of(self.type, "types"))

    def name(self) -> str:
        """The text of an attribute that is a string."""
        start = self.at
        found = self.attribute()
        if not isinstance(found, StringAttr):
            self.fail("a name is a string", start)
        return found.value.decode(errors="replace")

    def string(self) -> bytes:
        start = self.at
        number = self.varint()
        if number >= len(self.tables.strings):
            self.fail(f"there is no string {number}", start)
        return self.tables.strings[number]

    def integers(self) -> list[int]:
        return self.list_of(self.signed, "integers")

    def blob(self) -> bytes:
        return self.bytes(self.varint())


class Tables:
    """The sections of an artifact beside the operations."""

    def __init__(self, data: bytes, dialects: dict[str, Decoders]) -> None:
        self.data = data
        self._decoders = dialects
        self._depth = self._parts = self._taken = 0
        cursor = Cursor(data, 0, len(data))
        if data[:4] != MAGIC:
            cursor.fail("MLIR's bytecode begins with the bytes ML\\xefR")
        cursor.skip(4)
        self.version = cursor.varint()
        if self.version > MAX_VERSION:
            cursor.fail(
                f"version {self.version} of MLIR's bytecode is not known; the last that is read is {MAX_VERSION}", 4
            )
        self.producer = cursor.null_terminated().decode(errors="replace")
        sections: dict[int, Cursor] = {}
        while cursor.remaining:
            start = cursor.at
            number, found = cursor.section()
            if number in sections or number > _PROPERTIES:
                cursor.fail(f"section {number} is there twice, or unknown", start)
            sections[number] = found
        for number, name in enumerate(_NAMES):
            if number not in sections:
                cursor.fail(f"the section of {name} is missing")
        self.strings = _strings(sections[_STRINGS])
        self.names: list[tuple[str, str]] = []
        self._dialects = self._read_dialects(sections[_DIALECTS])
        attributes, types = self._read_entries(sections[_OFFSETS], sections[_ENTRIES])
        self._entries = {"attribute": attributes, "type": types}
        self.attributes: list[Any] = [UNREAD] * len(attributes)  # as far as they are decoded
        self.types: list[Any] = [UNREAD] * len(types)
        self._sizes = {"attribute": [0] * len(attributes), "type": [0] * len(types)}
        self.resources = self._read_resources(sections.get(_RESOURCE_OFFSETS), sections.get(_RESOURCES))
        self._properties = _property_offsets(sections[_PROPERTIES]) if _PROPERTIES in sections else []
        self.operations = sections[IR]

    def spend(self, count: int, at: int) -> None:
        """Count bytes that may be taken several times: those of a resource to which many constants refer."""
        self._taken += count
        if self._taken > MAX_TIMES * len(self.data):
            raise BytecodeError(f"resources are taken more than {MAX_TIMES} times", at)

    # --- attributes and types -----------------------------------------------------------------------------------------

    def attribute(self, number: int, at: int) -> Attribute | Location | None:
        """An attribute or location, to which the bytes at an offset refer."""
        return self._decoded("attribute", self.attributes, number, at)

    def plain_attribute(self, number: int, at: int) -> Attribute:
        """An attribute that is no location."""
        found = self.attribute(number, at)
        if found is None or isinstance(found, Location):
            raise BytecodeError(f"attribute {number} is a location, which does not belong there", at)
        return found

    def type(self, number: int, at: int) -> Type:
        """A type, to which the bytes at an offset refer."""
        return self._decoded("type", self.types, number, at)

    def properties(self, number: int, at: int) -> EntryCursor:
        """The bytes of an operation's properties."""
        if number >= len(self._properties):
            raise BytecodeError(f"there are no properties {number}", at)
        return EntryCursor(self, *self._properties[number])

    def _decoded(self, kind: str, known: list[Any], number: int, at: int) -> Any:
        if number >= len(known):
            raise BytecodeError(f"there is no {kind} {number}; there are {len(known)}", at)
        found = known[number]
        if found is _READING:
            raise BytecodeError(f"{kind} {number} contains itself", at)
        sizes = self._sizes[kind]
        if found is UNREAD:
            outer, self._parts = self._parts, 1
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise BytecodeError(f"more than {MAX_DEPTH} attributes are nested", at)
            known[number] = _READING
            found = known[number] = self._decode(kind, self._entries[kind][number])
            sizes[number] = self._parts
            self._depth -= 1
            self._parts = outer
        self._parts += sizes[number]
        if self._parts > MAX_PARTS:
            raise BytecodeError(f"an attribute has more than {MAX_PARTS} parts", at)
        return found

    def _decode(self, kind: str, entry: _Entry) -> Any:
        cursor = EntryCursor(self, entry.at, entry.end)
        if not entry.dialect:
            text = cursor.null_terminated().decode(errors="replace")
            return OpaqueAttr(text) if kind == "attribute" else OtherType(text)
        decoders = self._decoders.get(entry.dialect)
        if decoders is None:  # such as a sharding, which does not change values
            text = f"{entry.dialect}<{self.data[entry.at : entry.end].hex()}>"
            return OpaqueAttr(f"#{text}") if kind == "attribute" else OtherType(f"!{text}")
        number = cursor.varint()
        read: Any = (decoders.attributes if kind == "attribute" else decoders.types).get(number)
        if read is None:
            cursor.fail(f"{entry.dialect} has no {kind} with the number {number}", entry.at)
        found = read(cursor)
        if cursor.remaining:
            cursor.fail(f"{cursor.remaining} bytes are left of the {kind} that begins at byte {entry.at}")
        return found

    # --- sections -----------------------------------------------------------------------------------------------------

    def _name(self, cursor: Cursor, number: int) -> str:
        if number >= len(self.strings):
            cursor.fail(f"there is no string {number}")
        return self.strings[number].decode(errors="replace")

    def _dialect(self, cursor: Cursor) -> str:
        number = cursor.varint()
        if number >= len(self._dialects):
            cursor.fail(f"there is no dialect {number}")
        return self._dialects[number]

    def _read_dialects(self, cursor: Cursor) -> list[str]:
        self._dialects = found = []
        for _ in range(cursor.count("dialects")):
            number, has_version = cursor.flagged() if self.version >= DIALECT_VERSIONS else (cursor.varint(), False)
            found.append(self._name(cursor, number))
            if has_version:
                cursor.section()
        if self.version >= SHORT_ARGUMENTS:
            cursor.varint()  # how many names there are
        while cursor.remaining:
            dialect = self._dialect(cursor)
            for _ in range(cursor.count("names of operations")):
                number = cursor.flagged()[0] if self.version >= PROPERTIES else cursor.varint()
                self.names.append((dialect, self._name(cursor, number)))
        return found

    def _read_entries(self, offsets: Cursor, entries: Cursor) -> tuple[list[_Entry], list[_Entry]]:
        counts = offsets.varint(), offsets.varint()
        if sum(counts) > offsets.remaining:
            offsets.fail(f"there cannot be {sum(counts)} attributes and types in {offsets.remaining} bytes")
        at = entries.at
        found: tuple[list[_Entry], list[_Entry]] = [], []
        for wanted, group in zip(counts, found, strict=True):
            while len(group) < wanted:
                dialect = self._dialect(offsets)
                for _ in range(offsets.count("offsets")):
                    size, is_encoded = offsets.flagged()
                    if at + size > entries.end:
                        offsets.fail(f"an attribute of {size} bytes ends behind its section")
                    group.append(_Entry(at, at + size, dialect if is_encoded else ""))
                    at += size
            if len(group) != wanted:
                offsets.fail(f"there are {len(group)} attributes or types instead of {wanted}")
        if offsets.remaining:
            offsets.fail(f"{offsets.remaining} bytes are left of the offsets of attributes")
        return found

    def _read_resources(self, offsets: Cursor | None, values: Cursor | None) -> list[Resource]:
        found: list[Resource] = []
        if offsets is None or values is None:
            return found
        for _ in range(offsets.count("resources")):
            self._name(offsets, offsets.varint())
            self._read_resource_group(offsets, values)
        while offsets.remaining:
            self._dialect(offsets)
            found += self._read_resource_group(offsets, values)
        return found

    def _read_resource_group(self, offsets: Cursor, values: Cursor) -> list[Resource]:
        def one() -> Resource:
            key = self._name(offsets, offsets.varint())
            size, kind = offsets.varint(), offsets.byte()
            values.skip(size)
            return Resource(key, kind, values.at - size, values.at)

        return offsets.list_of(one, "resources")


def _strings(cursor: Cursor) -> list[bytes]:
    """The strings, whose sizes stand before them in reverse order; each ends with a zero."""
    sizes = cursor.list_of(cursor.varint, "strings")
    found: list[bytes] = []
    if sum(sizes) != cursor.remaining or 0 in sizes:
        cursor.fail(f"strings of {sum(sizes)} bytes are in a section of {cursor.remaining}")
    for size in reversed(sizes):
        found.append(cursor.bytes(size)[:-1])
    return found


def _property_offsets(cursor: Cursor) -> list[tuple[int, int]]:
    def one() -> tuple[int, int]:
        size = cursor.varint()
        cursor.skip(size)
        return cursor.at - size, cursor.at

    return cursor.list_of(one, "properties")
