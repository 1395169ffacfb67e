"""Modules as portable artifacts: MLIR bytecode of VHLO, in the first version of the format that has versions of
dialects, which all readers know.

Source: MLIR Bytecode Format, https://mlir.llvm.org/docs/BytecodeFormat/; `stablehlo/dialect/VhloBytecode.cpp` in
https://github.com/openxla/stablehlo.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.stablehlo.bytecode.builtin import DYNAMIC
from tinyxla.stablehlo.bytecode.portable import Attributes, portable, symbol_text
from tinyxla.stablehlo.bytecode.tables import MAGIC
from tinyxla.stablehlo.bytecode.vhlo import ENUMERATIONS, TYPE_NAMES
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DenseAttr,
    DialectAttr,
    DictAttr,
    FloatAttr,
    Function,
    FunctionType,
    IntegerAttr,
    Location,
    ModuleOp,
    OpaqueAttr,
    Operation,
    OtherType,
    Region,
    StringAttr,
    SymbolAttr,
    TensorType,
    TupleType,
    Type,
    TypeAttr,
    UnitAttr,
    Value,
)
from tinyxla.text.mlir.text_parser import type_text

PRODUCER = b"StableHLO_v1.1.0"  # the version of VHLO that has all that is written, but for some recent types
_VERSION = 1  # of the bytecode
_DIALECTS = ("builtin", "vhlo")
_CODES = {name: code for code, name in TYPE_NAMES.items()}


def write(module: ModuleOp) -> bytes:
    """A portable artifact of a module, which JAX, XLA and StableHLO's own tools read.

    Args:
        module: functions of operations of StableHLO, such as `read` gives or text is parsed to.

    Returns:
        The bytes.

    Raises:
        ArgumentError: an operation, attribute or type has no portable form: one of CHLO or a sharding, say.
    """
    return _Writer().module(module)


def varint(value: int) -> bytes:
    """An unsigned integer of at most 64 bits."""
    for count in range(1, 9):
        if value < 1 << 7 * count:
            return (value << count | 1 << (count - 1)).to_bytes(count, "little")
    return b"\0" + value.to_bytes(8, "little")


def signed(value: int) -> bytes:
    """A signed integer in zigzag encoding."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _flagged(value: int, flag: bool) -> bytes:
    return varint(value << 1 | flag)


def _list(parts: list[bytes]) -> bytes:
    return varint(len(parts)) + b"".join(parts)


def _bits(value: int, width: int) -> bytes:
    """An integer of a known width."""
    unsigned = value & ~(-1 << width)
    if width <= 8:
        return bytes([unsigned])
    return signed(unsigned - (1 << 64) if unsigned >> 63 else unsigned)


class _Table:
    """Entries by number, each once."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, bytes], int] = {}

    def number(self, dialect: str, data: bytes) -> int:
        return self.entries.setdefault((dialect, data), len(self.entries))

    def sections(self) -> tuple[bytes, bytes]:
        """The entries, and their sizes with their dialects."""
        sizes = [
            varint(_DIALECTS.index(dialect)) + varint(1) + _flagged(len(data), True) for dialect, data in self.entries
        ]
        return b"".join(data for _, data in self.entries), b"".join(sizes)


class _Writer:
    """What operations refer to, while they are written."""

    def __init__(self) -> None:
        self._strings: dict[bytes, int] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._attributes = _Table()
        self._types = _Table()
        self._known: dict[Type, int] = {}

    def module(self, module: ModuleOp) -> bytes:
        """The whole artifact."""
        functions = [self._function(x) for x in module.functions.values()]
        attributes: Attributes = {k: x for k, x in module.attributes.items() if not isinstance(x, OpaqueAttr)}
        if module.name:
            attributes["sym_name"] = StringAttr(module.name.encode())
        body = varint(1) + varint(0) + _flagged(len(functions), False) + b"".join(functions)
        head = self._head("builtin", "module", attributes, [], [], None, 1, is_isolated=True)
        operations = _flagged(1, False) + head + body
        names = self._dialect_section()
        attribute_data, attribute_sizes = self._attributes.sections()
        type_data, type_sizes = self._types.sections()
        counts = varint(len(self._attributes.entries)) + varint(len(self._types.entries))
        sections = [
            self._string_section(),
            names,
            attribute_data + type_data,
            counts + attribute_sizes + type_sizes,
            operations,
        ]
        data = b"".join(bytes([k]) + varint(len(x)) + x for k, x in enumerate(sections))
        return MAGIC + varint(_VERSION) + PRODUCER + b"\0" + data

    # --- sections -----------------------------------------------------------------------------------------------------

    def _string(self, value: bytes) -> bytes:
        return varint(self._strings.setdefault(value, len(self._strings)))

    def _string_section(self) -> bytes:
        strings = [x + b"\0" for x in self._strings]
        return _list([varint(len(x)) for x in reversed(strings)]) + b"".join(strings)

    def _dialect_section(self) -> bytes:
        """The dialects, without versions, and the names of operations, of which those of one dialect may follow one
        another in several groups."""
        found = _list([_flagged(self._strings.setdefault(x.encode(), len(self._strings)), False) for x in _DIALECTS])
        for dialect, name in self._names:
            found += varint(_DIALECTS.index(dialect)) + varint(1) + self._string(name.encode())
        return found

    # --- operations ---------------------------------------------------------------------------------------------------

    def _function(self, function: Function) -> bytes:
        attributes: Attributes = {k: x for k, x in function.attributes.items() if "." in k}
        attributes |= {
            "sym_name": StringAttr(function.name.encode()),
            "function_type": TypeAttr(function.type),
            "sym_visibility": StringAttr(b"public" if function.is_public else b"private"),
            "arg_attrs": ArrayAttr(tuple(DictAttr(x) for x in function.argument_attributes)),
            "res_attrs": ArrayAttr(tuple(DictAttr(x) for x in function.result_attributes)),
        }
        head = self._head("vhlo", "func_v1", attributes, [], [], function.location, 1, is_isolated=True)
        return head + self._region(function.body, {}, 0)

    def _region(self, region: Region, numbers: dict[Value, int], first: int) -> bytes:
        """A region, whose values have numbers from the first on, and those of regions inside the ones behind."""
        block = region.block
        defined = [*block.arguments, *(x for operation in block.operations for x in operation.results)]
        numbers |= {x: first + k for k, x in enumerate(defined)}
        unknown = varint(self._location(None))
        arguments = _list([varint(self._type(x.type)) + unknown for x in block.arguments]) if block.arguments else b""
        head = varint(1) + varint(len(defined)) + _flagged(len(block.operations), bool(block.arguments)) + arguments
        inner = first + len(defined)
        return head + b"".join(self._operation(x, numbers, inner) for x in block.operations)

    def _operation(self, operation: Operation, numbers: dict[Value, int], inner: int) -> bytes:
        name, attributes = portable(operation)
        results = [self._type(x.type) for x in operation.results]
        operands = [numbers[x] for x in operation.operands]
        regions = operation.regions
        try:
            head = self._head("vhlo", name, attributes, results, operands, operation.location, len(regions))
        except ValueError as error:
            raise ArgumentError(f"{operation.name}: {error}") from None
        return head + b"".join(self._region(x, numbers, inner) for x in regions)

    def _head(
        self,
        dialect: str,
        name: str,
        attributes: Attributes,
        results: list[int],
        operands: list[int],
        location: Location | None,
        regions: int,
        is_isolated: bool = False,
    ) -> bytes:
        """An operation up to its regions."""
        mask = bool(attributes) | bool(results) << 1 | bool(operands) << 2 | bool(regions) << 4
        found = varint(self._names.setdefault((dialect, name), len(self._names))) + bytes([mask])
        found += varint(self._location(location))
        if attributes:
            found += varint(self._dictionary(dialect, attributes))
        if results:
            found += _list([varint(k) for k in results])
        if operands:
            found += _list([varint(k) for k in operands])
        return found + (_flagged(regions, is_isolated) if regions else b"")

    # --- attributes and locations -------------------------------------------------------------------------------------

    def _builtin(self, data: bytes) -> int:
        return self._attributes.number("builtin", data)

    def _builtin_string(self, value: str) -> bytes:
        return varint(self._builtin(varint(2) + self._string(value.encode())))

    def _location(self, location: Location | None) -> int:
        found = self._builtin(varint(15))
        if location is not None and location.file is not None:
            place = varint(location.line) + varint(location.column)
            found = self._builtin(varint(11) + self._builtin_string(location.file) + place)
        if location is not None and location.name is not None:
            found = self._builtin(varint(14) + self._builtin_string(location.name) + varint(found))
        return found

    def _dictionary(self, dialect: str, attributes: Attributes) -> int:
        """The attributes of an operation, in the order of their names. Those of Shardy are left out."""
        write = self._attribute if dialect == "vhlo" else self._builtin_attribute
        pairs = [
            self._builtin_string(key) + varint(write(x))
            for key, x in sorted(attributes.items())
            if not isinstance(x, OpaqueAttr)
        ]
        return self._builtin(varint(1) + _list(pairs))

    def _builtin_attribute(self, x: Attribute) -> int:
        """The number of an attribute of the module, which is of the builtin dialect."""
        match x:
            case StringAttr(value):
                return self._builtin(varint(2) + self._string(value))
            case ArrayAttr(elements):
                return self._builtin(varint(0) + _list([varint(self._builtin_attribute(e)) for e in elements]))
            case DictAttr(entries):
                return self._dictionary("builtin", dict(entries))
            case UnitAttr():
                return self._builtin(varint(7))
            case SymbolAttr((name,)):
                return self._builtin(varint(4) + self._builtin_string(name))
            case IntegerAttr(value, type) if type != "index":
                width = int(type.lstrip("sui"))
                sign = ("i", "si", "ui").index(type.rstrip("0123456789"))
                number = self._types.number("builtin", varint(0) + varint(width << 2 | sign))
                return self._builtin(varint(8) + varint(number) + _bits(value, width))
            case _:
                raise ArgumentError(f"The attribute {x} of the module has no portable form.")

    def _attribute(self, x: Attribute) -> int:
        """The number of an attribute in VHLO."""
        return self._attributes.number("vhlo", self._encoded(x))

    def _encoded(self, x: Attribute) -> bytes:
        match x:
            case ArrayAttr(elements):
                return varint(1) + _list([varint(self._attribute(e)) for e in elements])
            case IntegerAttr(value, "i1"):
                return varint(2) + varint(int(bool(value)))
            case IntegerAttr(value, type):
                width = 64 if type == "index" else int(type.lstrip("sui"))
                return varint(9) + varint(self._type(OtherType(type))) + _bits(value, width)
            case FloatAttr(value, type, bits):
                kind = of_mlir(type)
                pattern = np.array(value, np.float64).astype(kind.dtype).tobytes()
                number = int.from_bytes(pattern, "little") if bits is None else bits
                return varint(8) + varint(self._type(OtherType(type))) + _bits(number, kind.bits)
            case StringAttr(value):
                return varint(14) + self._string(value)
            case SymbolAttr():
                return self._encoded(symbol_text(x))
            case DictAttr(entries):
                pairs = [
                    varint(self._attribute(StringAttr(key.encode()))) + varint(self._attribute(value))
                    for key, value in sorted(entries.items())
                    if not isinstance(value, OpaqueAttr)
                ]
                return varint(6) + _list(pairs)
            case TypeAttr(type):
                return varint(17) + varint(self._type(type))
            case DenseAttr():
                data = _elements(x)
                return varint(15) + varint(self._type(x.type)) + varint(len(data)) + data
            case DialectAttr():
                return self._dialect_attribute(x)
            case _:
                raise ValueError(f"the attribute {x} has no portable form")

    def _dialect_attribute(self, x: DialectAttr) -> bytes:
        p = x.parameters
        value = p.get("value", p.get("0"))
        kind = p.get("kind")
        if x.name == "vhlo.api_version" and isinstance(value, IntegerAttr):
            return varint(5) + varint(value.value)
        if isinstance(kind, StringAttr) and isinstance(value, StringAttr) and kind.text in ENUMERATIONS:
            code, words = ENUMERATIONS[kind.text]
            if value.text in words:
                return varint(code) + varint(words[value.text])
        if x.name == "stablehlo.result_accuracy_mode" and isinstance(value, StringAttr):
            return varint(19) + varint(("DEFAULT", "HIGHEST", "TOLERANCE").index(value.text))
        if x.name == "stablehlo.result_accuracy":
            atol, rtol = (_bits(int(np.float64(_number(p.get(k))).view(np.int64)), 64) for k in ("atol", "rtol"))
            mode = p.get("mode", DialectAttr("stablehlo.result_accuracy_mode", {"0": StringAttr(b"DEFAULT")}))
            return varint(20) + atol + rtol + signed(int(_number(p.get("ulps")))) + varint(self._attribute(mode))
        if x.name == "stablehlo.output_operand_alias":
            index = signed(int(_number(p.get("operand_index"))))
            lists = [_list([signed(k) for k in _integers(p.get(f"{s}_tuple_indices"))]) for s in ("output", "operand")]
            return varint(10) + lists[0] + index + lists[1]
        if x.name == "stablehlo.bounds":
            words = [w.text for w in p.values() if isinstance(w, StringAttr)]
            return varint(18) + _list([signed(DYNAMIC if w == "?" else int(w)) for w in words])
        raise ValueError(f"the attribute {x} has no portable form")

    # --- types --------------------------------------------------------------------------------------------------------

    def _type(self, type: Type) -> int:
        """The number of a type."""
        found = self._known.get(type) if not (isinstance(type, TensorType) and type.encoding) else None
        if found is None:
            found = self._types.number("vhlo", self._encoded_type(type))
            if not (isinstance(type, TensorType) and type.encoding):
                self._known[type] = found
        return found

    def _encoded_type(self, type: Type) -> bytes:
        match type:
            case TensorType(sizes, element, encoding, True):
                shape = _list([signed(DYNAMIC if n is None else n) for n in sizes])
                head = varint(20) if encoding is None else varint(21) + varint(self._attribute(encoding))
                return head + shape + varint(self._type(OtherType(element)))
            case TensorType(_, element):
                return varint(25) + varint(self._type(OtherType(element)))
            case TupleType(elements):
                return varint(23) + _list([varint(self._type(x)) for x in elements])
            case FunctionType(inputs, results):
                inside = [_list([varint(self._type(x)) for x in types]) for types in (inputs, results)]
                return varint(8) + inside[0] + inside[1]
            case OtherType(text) if text in _CODES:
                return varint(_CODES[text])
            case OtherType(text) if text.startswith("complex<"):
                return varint(1) + varint(self._type(OtherType(text[8:-1].strip())))
            case _:
                raise ArgumentError(f"The type {type_text(type)} has no portable form.")


def _number(x: Attribute | None) -> float:
    return x.value if isinstance(x, IntegerAttr | FloatAttr) else 0


def _integers(x: Attribute | None) -> list[int]:
    if isinstance(x, DenseAttr):
        return [int(v) for v in x.value.reshape(-1)]
    return [v.value for v in x.elements if isinstance(v, IntegerAttr)] if isinstance(x, ArrayAttr) else []


def _elements(x: DenseAttr) -> bytes:
    """The elements of a constant, or the one that stands for all; truth values as bits."""
    value: np.ndarray[Any, Any] = x.value
    kind = of_mlir(x.type.element)
    is_splat = value.size > 1 and not any(value.strides)
    if kind.kind == "pred":
        if is_splat:
            return b"\xff" if value.reshape(-1)[0] else b"\0"
        return np.packbits(value.reshape(-1).astype(np.uint8), bitorder="little").tobytes()
    data = np.ascontiguousarray(value.reshape(-1)[:1] if is_splat else value)
    if kind.bits < 8:
        return (data.view(np.uint8) & ((1 << kind.bits) - 1)).tobytes()
    return data.tobytes()
