"""Operations in bytecode: regions, blocks and operations, with values numbered in the order of their definitions.

The numbers of a region begin behind all of the region around it, unless that region is isolated, as a function's is:
then they begin at 0.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

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
_REST = _SUCCESSORS | _USES | _REGIONS


class _Head(NamedTuple):
    """What operations of equal numbers have in common."""

    name: str
    attributes: Attributes
    is_cast: bool


class Operations:
    """Reads the operations of an artifact."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._heads: dict[tuple[int, int, int], _Head] = {}

    def top_level(self) -> list[Operation]:
        """The operations that are in no other one."""
        section = self.tables.operations
        count, has_arguments = section.flagged()
        if has_arguments or count != 1:
            section.fail("an artifact consists of one module")
        block = Block()
        self._operations(section, count, block, [], 0, 0)
        return block.operations

    def _fail(self, message: str, at: int) -> NoReturn:
        raise BytecodeError(message, at)

    # --- regions ------------------------------------------------------------------------------------------------------

    def _regions(self, cursor: Cursor, operation: Operation, values: list[Value | None], depth: int) -> None:
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
        for _ in range(count):
            operation.regions.append(self._region(cursor, values, depth))

    def _region(self, cursor: Cursor, values: list[Value | None], depth: int) -> Region:
        start = cursor.at
        blocks = cursor.varint()
        if not blocks:
            return Region()
        if blocks > 1:
            cursor.fail("a region of several blocks is not supported: StableHLO's have one", start)
        defined = cursor.count("values")
        first = len(values)
        values.extend([None] * defined)
        block = Block()
        count, has_arguments = cursor.flagged()
        if has_arguments:
            self._arguments(cursor, block)
            if len(block.arguments) > defined:
                cursor.fail(f"a region of {defined} values has {len(block.arguments)} arguments", start)
            values[first : first + len(block.arguments)] = block.arguments
        self._operations(cursor, count, block, values, first + len(block.arguments), depth)
        del values[first:]
        return Region([block])

    def _arguments(self, cursor: Cursor, block: Block) -> None:
        for _ in range(cursor.count("arguments")):
            start = cursor.at
            number, has_location = (
                cursor.flagged() if self.tables.version >= SHORT_ARGUMENTS else (cursor.varint(), True)
            )
            block.arguments.append(Value(self.tables.type(number, start)))
            if has_location:
                cursor.varint()
        if self.tables.version >= USE_LISTS and cursor.byte():
            _skip_use_lists(cursor, len(block.arguments))

    # --- operations ---------------------------------------------------------------------------------------------------

    def _operations(
        self, cursor: Cursor, count: int, block: Block, values: list[Value | None], slot: int, depth: int
    ) -> None:
        """The operations of a block. Values are defined from `slot` on."""
        if count > cursor.remaining:
            cursor.fail(f"there cannot be {count} operations in {cursor.remaining} bytes")
        try:
            self._read_operations(cursor, count, block, values, slot, depth)
        except IndexError:
            self._fail("the operation that begins here is cut off, or refers to what is not there", cursor.at)

    def _read_operations(
        self, cursor: Cursor, count: int, block: Block, values: list[Value | None], slot: int, depth: int
    ) -> None:
        """One long loop: nearly all of an artifact is read here, and integers of one and two bytes, as nearly all are,
        are decoded in place, since calls would take most of the time. What lies outside of a table or the bytes is an
        IndexError; the cursor then stands where the operation begins."""
        data, end, at = cursor.data, cursor.end, cursor.at
        heads, types, places, append = self._heads, self.tables.types, self.tables.attributes, block.operations.append
        for _ in range(count):
            cursor.at = start = at
            name = data[at]
            if name & 1:
                name >>= 1
                at += 2
            else:
                name, at = long_varint(data, at + 1, name)
                at += 1
            mask = data[at - 1]
            location = data[at]
            at += 1
            if location & 1:
                location >>= 1
            elif location & 2:
                location = data[at] << 6 | location >> 2
                at += 1
            else:
                location, at = long_varint(data, at, location)
            attributes = properties = -1
            if mask & _ATTRIBUTES:
                attributes, at = _varint(data, at)
            if mask & _HAS_PROPERTIES:
                properties, at = _varint(data, at)
            head = heads.get((name, attributes, properties)) or self._new_head(name, attributes, properties, start)
            results: list[Value] = []
            if mask & _RESULTS:
                if data[at] == _ONE and data[at + 1] & 1 and types[data[at + 1] >> 1] is not UNREAD:
                    results.append(Value(types[data[at + 1] >> 1]))
                    at += 2
                else:
                    found, at = self._types(data, at, end)
                    results = [Value(type) for type in found]
            operands: list[Value] = []
            if mask & _OPERANDS:
                many = data[at] >> 1
                if data[at] & 1:
                    at += 1
                else:
                    many, at = long_varint(data, at + 1, data[at])
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
            place = places[location]
            if place is not None and place.__class__ is not Location:
                place = self._location(location, start)
            operation = Operation(head.name, operands, results, head.attributes.copy(), [], place, start)
            if head.is_cast:  # between the types of two dialects, which are the same here
                if len(operands) != len(results):
                    self._fail(f"{_CAST} has {len(operands)} operands, but {len(results)} results", start)
                results = operands
            else:
                append(operation)
            if results and values:
                if slot + len(results) > len(values):
                    self._fail("a region has more values than it says", start)
                values[slot : slot + len(results)] = results
                slot += len(results)
            if at > end:
                raise IndexError
            if mask & _REST:
                cursor.at = at
                self._rest(cursor, mask, operation, values, depth)
                at = cursor.at
        cursor.at = at

    def _rest(self, cursor: Cursor, mask: int, operation: Operation, values: list[Value | None], depth: int) -> None:
        """What few operations have: successors, orders of uses, regions."""
        if mask & _SUCCESSORS and cursor.varint():
            cursor.fail("branches between blocks are not supported: StableHLO's regions have one block")
        if mask & _USES:
            _skip_use_lists(cursor, len(operation.results))
        if mask & _REGIONS:
            self._regions(cursor, operation, values, depth + 1)

    def _types(self, data: bytes, at: int, end: int) -> tuple[list[Type], int]:
        cursor = Cursor(data, at, end)
        found: list[Type] = []
        for _ in range(cursor.count("results")):
            start = cursor.at
            found.append(self.tables.type(cursor.varint(), start))
        return found, cursor.at

    def _new_head(self, name: int, attributes: int, properties: int, at: int) -> _Head:
        full, found = self._head(name, attributes, properties, at)
        if len(found) > MAX_ATTRIBUTES and self._heads:  # of the module there is one, of others there may be many
            self._fail(f"{full} has {len(found)} attributes, which are more than {MAX_ATTRIBUTES}", at)
        head = self._heads[name, attributes, properties] = _Head(full, found, full == _CAST)
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
