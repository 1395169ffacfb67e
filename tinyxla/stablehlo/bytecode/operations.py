"""Operations in bytecode: regions, blocks and operations, with values numbered in the order of their definitions.

The numbers of a region begin behind all of the region around it, unless that region is isolated, as a function's is:
then they begin at 0.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tinyxla.errors import BytecodeError
from tinyxla.stablehlo.bytecode.encoding import Cursor, long_varint
from tinyxla.stablehlo.bytecode.legalize import Attributes, legalized
from tinyxla.stablehlo.bytecode.properties import PROPERTIES
from tinyxla.stablehlo.bytecode.tables import IR, LAZY_REGIONS, SHORT_ARGUMENTS, UNREAD, USE_LISTS, Tables
from tinyxla.text.mlir.ir import Block, DictAttr, Location, Operation, Region, Type, Value

MAX_REGIONS = 100  # that are nested
_CAST = "builtin.unrealized_conversion_cast"
_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USES, _HAS_PROPERTIES = (1 << k for k in range(7))


class Operations:
    """Reads the operations of an artifact."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._heads: dict[tuple[int, int, int], tuple[str, Attributes]] = {}

    def top_level(self) -> list[Operation]:
        """The operations that are in no other one."""
        section = self.tables.operations
        count, has_arguments = section.flagged()
        if has_arguments:
            section.fail("the outermost block has no arguments")
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
        for _ in range(count):
            start = cursor.at
            try:
                slot = self._operation(cursor, block, values, slot, depth)
            except IndexError:
                self._fail("the bytes end within the operation that begins here", start)
            if cursor.at > cursor.end:
                self._fail("the bytes end within the operation that begins here", start)

    def _operation(self, cursor: Cursor, block: Block, values: list[Value | None], slot: int, depth: int) -> int:
        """One operation; the slot of the next value. Integers are decoded in place: most take a byte, and a call for
        each would take most of the time."""
        data, at = cursor.data, cursor.at
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
        else:
            location, at = long_varint(data, at, location)
        attributes = properties = -1
        if mask & _ATTRIBUTES:
            attributes = data[at]
            at += 1
            if attributes & 1:
                attributes >>= 1
            else:
                attributes, at = long_varint(data, at, attributes)
        if mask & _HAS_PROPERTIES:
            properties, at = long_varint(data, at + 1, data[at])
        head = self._heads.get((name, attributes, properties))
        if head is None:
            head = self._heads[name, attributes, properties] = self._head(name, attributes, properties, start)
        results: list[Value] = []
        if mask & _RESULTS:
            types, at = self._types(data, at, cursor.end)
            results = [Value(type) for type in types]
        operands: list[Value] = []
        if mask & _OPERANDS:
            operands, at = self._operands(data, at, values, start)
        cursor.at = at
        if mask & (_SUCCESSORS | _USES):
            self._skip_rest(cursor, mask, len(results))
        found = Operation(head[0], operands, results, dict(head[1]), [], self._location(location, start), start)
        if head[0] == _CAST:  # between the types of two dialects, which are the same here
            if len(operands) != len(results):
                self._fail(f"{_CAST} has {len(operands)} operands, but {len(results)} results", start)
            results = operands
        else:
            block.operations.append(found)
        if results:
            if slot + len(results) > len(values):
                if values or depth:
                    self._fail("a region has more values than it says", start)
            else:
                values[slot : slot + len(results)] = results
                slot += len(results)
        if mask & _REGIONS:
            self._regions(cursor, found, values, depth + 1)
        return slot

    def _types(self, data: bytes, at: int, end: int) -> tuple[list[Type], int]:
        count = data[at]
        at += 1
        if count & 1:
            count >>= 1
        else:
            count, at = long_varint(data, at, count)
        if count > end - at:
            self._fail(f"there cannot be {count} results in {end - at} bytes", at)
        known = self.tables.types
        size = len(known)
        found: list[Type] = []
        for _ in range(count):
            start = at
            number = data[at]
            at += 1
            if number & 1:
                number >>= 1
            else:
                number, at = long_varint(data, at, number)
            type: Any = known[number] if number < size else UNREAD
            found.append(self.tables.type(number, start) if type is UNREAD else type)
        return found, at

    def _operands(self, data: bytes, at: int, values: list[Value | None], start: int) -> tuple[list[Value], int]:
        count = data[at]
        at += 1
        if count & 1:
            count >>= 1
        else:
            count, at = long_varint(data, at, count)
        if count > len(data) - at:
            self._fail(f"there cannot be {count} operands in {len(data) - at} bytes", at)
        size = len(values)
        found: list[Value] = []
        for _ in range(count):
            number = data[at]
            at += 1
            if number & 1:
                number >>= 1
            else:
                number, at = long_varint(data, at, number)
            value = values[number] if number < size else None
            if value is None:
                self._fail(f"the operation takes value {number}, which is not defined before", start)
            found.append(value)
        return found, at

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
        """The properties of an operation: attributes without their names. Those of other dialects are left out."""
        cursor = self.tables.properties(number, at)
        if name == "builtin.module":
            found = {key: cursor.optional_attribute() for key in ("sym_name", "sym_visibility")}
        elif name.startswith("vhlo."):
            keys = PROPERTIES.get(name.removeprefix("vhlo."), ())
            found = {key: cursor.attribute() for key in keys}
        else:
            return {}
        if cursor.remaining:
            cursor.fail(f"{cursor.remaining} bytes are left of the properties of {name}")
        return {key: x for key, x in found.items() if x is not None}

    def _location(self, number: int, at: int) -> Location | None:
        known = self.tables.attributes
        found: Any = known[number] if number < len(known) else UNREAD
        if not (found is None or isinstance(found, Location)):
            found = self.tables.attribute(number, at)
            if not (found is None or isinstance(found, Location)):
                self._fail(f"attribute {number} is no location", at)
        return found

    def _skip_rest(self, cursor: Cursor, mask: int, results: int) -> None:
        if mask & _SUCCESSORS and cursor.varint():
            cursor.fail("branches between blocks are not supported: StableHLO's regions have one block")
        if mask & _USES:
            _skip_use_lists(cursor, results)


def _skip_use_lists(cursor: Cursor, count: int) -> None:
    """The orders of the uses of values, which say nothing about a program."""
    for _ in range(cursor.count("orders") if count > 1 else 1):
        if count > 1:
            cursor.varint()
        for _ in range(cursor.flagged()[0]):
            cursor.varint()
