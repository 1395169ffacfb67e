"""Operations in bytecode: regions, blocks and operations, with values numbered in the order of their definitions.

The numbers of a region begin behind all of the region around it, unless that region is isolated, as a function's is:
then they begin at 0.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from tinyxla.errors import BytecodeError
from tinyxla.stablehlo.bytecode.encoding import Cursor, long_varint
from tinyxla.stablehlo.bytecode.legalize import Attributes, legalized
from tinyxla.stablehlo.bytecode.properties import PROPERTIES
from tinyxla.stablehlo.bytecode.sdy import SDY_PROPERTIES
from tinyxla.stablehlo.bytecode.tables import IR, LAZY_REGIONS, SHORT_ARGUMENTS, UNREAD, USE_LISTS, Tables
from tinyxla.text.mlir.ir import Block, DictAttr, Location, Operation, Region, Type, Value

MAX_REGIONS = 100  # that are nested
MAX_ATTRIBUTES = 64  # of an operation inside of the module
_ONE = 3  # the integer 1 as a byte
_CAST = "builtin.unrealized_conversion_cast"
_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USES, _HAS_PROPERTIES = (1 << k for k in range(7))
_MORE = _SUCCESSORS | _USES | _REGIONS


class _Head(NamedTuple):
    """What operations of equal numbers have in common: they share the attributes."""

    name: str
    attributes: Attributes
    is_cast: bool


class Operations:
    """Reads the operations of an artifact."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._heads: dict[tuple[int, int, int], _Head] = {}
        self._locations: list[Any] = [UNREAD] * len(tables.attributes)  # by the number of the attribute

    def top_level(self) -> list[Operation]:
        """The operations that are in no other one."""
        section = self.tables.operations
        count, has_arguments = section.flagged()
        if has_arguments or count != 1:
            section.fail("an artifact consists of one module")
        return self._operations(section, count, [], 0, 0)

    def _fail(self, message: str, at: int) -> NoReturn:
        raise BytecodeError(message, at)

    # --- regions ------------------------------------------------------------------------------------------------------

    def _regions(self, cursor: Cursor, values: list[Value | None], depth: int) -> list[Region]:
        start = cursor.at
        count, is_isolated = cursor.flagged()
        if count > cursor.remaining:
            cursor.fail(f"there cannot be {count} regions in {cursor.remaining} bytes", start)
        if depth > MAX_REGIONS:
            cursor.fail(f"more than {MAX_REGIONS} regions are nested", start)
        if is_isolated:
            values = []
            if self.tables.version >= LAZY_REGIONS:
                number, cursor = cursor.section()
                if number != IR:
                    cursor.fail("the section of a function's operations is missing", start)
        return [self._region(cursor, values, depth) for _ in range(count)]

    def _region(self, cursor: Cursor, values: list[Value | None], depth: int) -> Region:
        start = cursor.at
        blocks = cursor.varint()
        if not blocks:
            return Region()
        if blocks > 1:
            cursor.fail("a region of several blocks is not supported: StableHLO's have one", start)
        defined = cursor.count("values")
        count, has_arguments = cursor.flagged()
        arguments = self._arguments(cursor) if has_arguments else []
        if len(arguments) > defined:
            cursor.fail(f"a region of {defined} values has {len(arguments)} arguments", start)
        first = len(values)
        values += arguments
        values += [None] * (defined - len(arguments))
        operations = self._operations(cursor, count, values, first + len(arguments), depth)
        del values[first:]
        return Region([Block(arguments, operations)])

    def _arguments(self, cursor: Cursor) -> list[Value]:
        version = self.tables.version
        found: list[Value] = []
        for _ in range(cursor.count("arguments")):
            start = cursor.at
            number, has_location = cursor.flagged() if version >= SHORT_ARGUMENTS else (cursor.varint(), True)
            found.append(Value(self._type(number, start)))
            if has_location:
                cursor.varint()
        if version >= USE_LISTS and cursor.byte():
            _skip_use_lists(cursor, len(found))
        return found

    # --- operations ---------------------------------------------------------------------------------------------------

    def _operations(
        self, cursor: Cursor, count: int, values: list[Value | None], slot: int, depth: int
    ) -> list[Operation]:
        """The operations of a block. Values are defined from `slot` on.

        One long loop: nearly all of an artifact is read here, so there are no calls in the usual case. Integers of one
        and two bytes, as nearly all are, are decoded in place, and objects are made without their constructors. What
        lies outside of a table or the bytes is an IndexError."""
        if count > cursor.remaining:
            cursor.fail(f"there cannot be {count} operations in {cursor.remaining} bytes")
        data, end, at = cursor.data, cursor.end, cursor.at
        heads, types, locations = self._heads, self.tables.types, self._locations
        new, found = object.__new__, list[Operation]()
        start = at
        try:
            for _ in range(count):
                start = at
                name = data[at]
                at += 1
                if name & 1:
                    name >>= 1
                else:
                    name, at = long_varint(data, at, name)
                mask = data[at]
                location = data[at + 1]
                at += 2
                if location & 1:
                    location >>= 1
                elif location & 2:
                    location = data[at] << 6 | location >> 2
                    at += 1
                else:
                    location, at = long_varint(data, at, location)
                place = locations[location]
                if place is UNREAD:
                    place = self._location(location, start)
                attributes = properties = -1
                if mask & _ATTRIBUTES:
                    attributes, at = _varint(data, at)
                if mask & _HAS_PROPERTIES:
                    properties = data[at]
                    at += 1
                    if properties & 1:
                        properties >>= 1
                    else:
                        properties, at = long_varint(data, at, properties)
                key = name, attributes, properties
                head = heads.get(key) or self._new_head(key, start)

                results: Sequence[Value] = ()
                if mask & _RESULTS:
                    type = data[at + 1]
                    if data[at] == _ONE and type & 1 and (type := types[type >> 1]) is not UNREAD:
                        value = new(Value)
                        value.type, value.name = type, ""
                        results = (value,)
                        at += 2
                    else:
                        results, at = self._results(data, at, end)

                operands: list[Value] = []
                if mask & _OPERANDS:
                    many = data[at]
                    at += 1
                    if many & 1:
                        many >>= 1
                    else:
                        many, at = long_varint(data, at, many)
                    for _ in range(many):
                        number = data[at]
                        at += 1
                        if number & 1:
                            number >>= 1
                        elif number & 2:
                            number = data[at] << 6 | number >> 2
                            at += 1
                        elif number & 4:
                            number = data[at + 1] << 13 | data[at] << 5 | number >> 3
                            at += 2
                        else:
                            number, at = long_varint(data, at, number)
                        value = values[number]
                        if value is None:
                            self._fail(f"the operation takes value {number}, which is not defined before", start)
                        operands.append(value)

                if at > end:
                    raise IndexError
                regions: Sequence[Region] = ()
                if mask & _MORE:
                    cursor.at = at
                    regions = self._more(cursor, mask, len(results), values, depth)
                    at = cursor.at
                if head.is_cast:
                    results = self._cast(operands, results, start)
                else:
                    operation = new(Operation)
                    operation.name, operation.attributes = head.name, head.attributes
                    operation.operands, operation.results, operation.regions = operands, results, regions
                    operation.location, operation.offset = place, start
                    found.append(operation)
                if values:
                    for value in results:
                        values[slot] = value
                        slot += 1
        except IndexError:
            self._fail("the operation that begins here is cut off, or refers to what is not there", start)
        cursor.at = at
        return found

    def _cast(self, operands: list[Value], results: Sequence[Value], start: int) -> list[Value]:
        """The results of a cast between the types of two dialects, which are the same here."""
        if len(operands) != len(results):
            self._fail(f"{_CAST} has {len(operands)} operands, but {len(results)} results", start)
        return operands

    def _more(self, cursor: Cursor, mask: int, results: int, values: list[Value | None], depth: int) -> list[Region]:
        """What few operations have: successors, orders of uses, and regions, which are given."""
        if mask & _SUCCESSORS and cursor.varint():
            cursor.fail("branches between blocks are not supported: StableHLO's regions have one block")
        if mask & _USES:
            _skip_use_lists(cursor, results)
        return self._regions(cursor, values, depth + 1) if mask & _REGIONS else []

    def _results(self, data: bytes, at: int, end: int) -> tuple[list[Value], int]:
        start = at
        count, at = _varint(data, at)
        if count > end - at:
            self._fail(f"there cannot be {count} results in {end - at} bytes", start)
        found: list[Value] = []
        for _ in range(count):
            number, at = _varint(data, at)
            found.append(Value(self._type(number, start)))
        return found, at

    def _type(self, number: int, at: int) -> Type:
        type = self.tables.types[number]
        return self.tables.type(number, at) if type is UNREAD else type

    def _new_head(self, key: tuple[int, int, int], at: int) -> _Head:
        name, found = self._head(*key, at)
        if len(found) > MAX_ATTRIBUTES and self._heads:  # of the module there is one, of others there may be many
            self._fail(f"{name} has {len(found)} attributes, which are more than {MAX_ATTRIBUTES}", at)
        head = self._heads[key] = _Head(name, found, name == _CAST)
        return head

    def _head(self, name: int, attributes: int, properties: int, at: int) -> tuple[str, Attributes]:
        """The name and the attributes of an operation, as StableHLO has them."""
        if name >= len(self.tables.names):
            self._fail(f"there is no name of an operation with the number {name}", at)
        dialect, word = self.tables.names[name]
        given: Attributes = {}
        if attributes >= 0:
            found = self.tables.plain_attribute(attributes, at)
            if not isinstance(found, DictAttr):
                self._fail("the attributes of an operation are a dictionary", at)
            given = dict(found.entries)
        if properties >= 0:
            given |= self._properties(f"{dialect}.{word}", properties, at)
        if dialect == "vhlo":
            try:
                return legalized(word, given)
            except KeyError as error:
                self._fail(f"{dialect}.{word}: the attribute {error.args[0]} is missing", at)
            except ValueError as error:
                self._fail(f"{dialect}.{word}: {error}", at)
        return f"{dialect}.{word}", given

    def _properties(self, name: str, number: int, at: int) -> Attributes:
        """The properties of an operation: attributes without their names."""
        cursor = self.tables.properties(number, at)
        if name == "builtin.module":
            found = {key: cursor.optional_attribute() for key in ("sym_name", "sym_visibility")}
        elif name.startswith("vhlo."):
            keys = PROPERTIES.get(name.removeprefix("vhlo."), ())
            found = {key: cursor.attribute() for key in keys}
        elif name in SDY_PROPERTIES:
            found = {key: cursor.attribute() for key in SDY_PROPERTIES[name]}
        else:
            self._fail(f"{name} is not portable: its attributes have no names here, which are known of VHLO alone", at)
        if cursor.remaining:
            cursor.fail(f"{cursor.remaining} bytes are left of the properties of {name}")
        return {key: x for key, x in found.items() if x is not None}

    def _location(self, number: int, at: int) -> Location | None:
        found = self.tables.attribute(number, at)
        if not (found is None or isinstance(found, Location)):
            self._fail(f"attribute {number} is no location", at)
        self._locations[number] = found
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned integer, and the offset behind it."""
    first = data[at]
    return (first >> 1, at + 1) if first & 1 else long_varint(data, at + 1, first)


def _skip_use_lists(cursor: Cursor, count: int) -> None:
    """The orders of the uses of values, which say nothing about a program."""
    for _ in range(cursor.count("orders") if count > 1 else 1):
        if count > 1:
            cursor.varint()
        for _ in range(cursor.flagged()[0]):
            cursor.varint()
