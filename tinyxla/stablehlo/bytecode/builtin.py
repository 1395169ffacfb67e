"""The builtin dialect's attributes, locations and types in bytecode. Locations become `Location`s, or None if unknown.

Source: the declarations of the encodings, `mlir/include/mlir/IR/BuiltinDialectBytecode.td` in
https://github.com/llvm/llvm-project.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyxla.stablehlo.bytecode.elements import dense, integer, number
from tinyxla.stablehlo.bytecode.tables import Decoders, EntryCursor
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DenseAttr,
    DictAttr,
    FunctionType,
    Location,
    OpaqueAttr,
    OtherType,
    StringAttr,
    SymbolAttr,
    TensorType,
    TupleType,
    Type,
    TypeAttr,
    UnitAttr,
)

DYNAMIC = -(1 << 63)  # a size that is not known
_SIGNS = ("i", "si", "ui")
_BLOB = 0

# --- attributes -------------------------------------------------------------------------------------------------------


def _dictionary(cursor: EntryCursor) -> DictAttr:
    pairs = cursor.list_of(lambda: (cursor.name(), cursor.attribute()), "entries")
    return DictAttr(dict(pairs))


def _typed_string(cursor: EntryCursor) -> StringAttr:
    found = StringAttr(cursor.string())
    cursor.type()
    return found


def _symbol(cursor: EntryCursor) -> SymbolAttr:
    root = cursor.name()
    nested = [x.path[0] for x in cursor.attributes() if isinstance(x, SymbolAttr)]
    return SymbolAttr((root, *nested))


def _dense_array(cursor: EntryCursor) -> DenseAttr:
    element = element_name(cursor, cursor.type())
    count = cursor.varint()
    return dense(cursor, TensorType((count,), element), cursor.blob(), is_array=True)


def _dense_resource(cursor: EntryCursor) -> DenseAttr:
    type = cursor.type()
    number = cursor.varint()
    resources = cursor.tables.resources
    if number >= len(resources) or resources[number].kind != _BLOB:
        cursor.fail(f"there is no resource {number} of bytes")
    resource = EntryCursor(cursor.tables, resources[number].at, resources[number].end)
    if not resource.remaining:
        cursor.fail(f"the bytes of the resource {resources[number].key!r} are not in the artifact")
    alignment, size = resource.varint(), resource.varint()
    resource.align(alignment)
    cursor.tables.spend(size, cursor.at)
    return dense(cursor, type, resource.bytes(size))


def _strings(cursor: EntryCursor) -> OpaqueAttr:
    cursor.type()
    cursor.varint()
    while cursor.remaining:
        cursor.string()
    return OpaqueAttr("dense<strings>")


def _sparse(cursor: EntryCursor) -> OpaqueAttr:
    cursor.type()
    cursor.attribute()
    cursor.attribute()
    return OpaqueAttr("sparse<>")


# --- locations --------------------------------------------------------------------------------------------------------


def _inner_location(cursor: EntryCursor) -> Location | None:
    start = cursor.at
    found = cursor.any_attribute()
    if found is not None and not isinstance(found, Location):
        cursor.fail("a location refers to an attribute that is none", start)
    return found


def _call_site(cursor: EntryCursor) -> Location | None:
    callee = _inner_location(cursor)
    cursor.varint()  # the caller, which may have callers of its own
    return callee


def _file_location(cursor: EntryCursor) -> Location:
    return Location(cursor.name(), cursor.varint(), cursor.varint())


def _file_range(cursor: EntryCursor) -> Location:
    name = cursor.name()
    numbers = cursor.list_of(cursor.varint, "numbers")
    line, column = (*numbers, 0, 0)[:2]
    return Location(name, line, column)


def _fused(cursor: EntryCursor) -> Location | None:
    parts = cursor.list_of(lambda: _inner_location(cursor), "locations")
    return next((part for part in parts if part is not None), None)


def _fused_with_metadata(cursor: EntryCursor) -> Location | None:
    found = _fused(cursor)
    cursor.attribute()
    return found


def _named(cursor: EntryCursor) -> Location:
    name, inner = cursor.name(), _inner_location(cursor)
    return Location(inner.file, inner.line, inner.column, name) if inner is not None else Location(name=name)


# --- types ------------------------------------------------------------------------------------------------------------


def element_name(cursor: EntryCursor, type: Type) -> str:
    """The name of an element type."""
    if not isinstance(type, OtherType):
        cursor.fail(f"elements are not of the type {type}")
    return type.text


def sizes(cursor: EntryCursor) -> tuple[int | None, ...]:
    """The sizes of a tensor."""
    found = cursor.integers()
    if any(size < 0 and size != DYNAMIC for size in found):
        cursor.fail(f"the sizes of a tensor are not negative, but are {found}")
    return tuple(None if size == DYNAMIC else size for size in found)


def ranked(cursor: EntryCursor) -> TensorType:
    """A tensor's type."""
    return TensorType(sizes(cursor), element_name(cursor, cursor.type()))


def ranked_with_encoding(cursor: EntryCursor) -> TensorType:
    """A tensor's type with an encoding, such as bounds of its sizes."""
    encoding = cursor.attribute()
    return TensorType(sizes(cursor), element_name(cursor, cursor.type()), encoding)


def unranked(cursor: EntryCursor) -> TensorType:
    """A tensor's type that says the element type alone."""
    return TensorType((), element_name(cursor, cursor.type()), is_ranked=False)


def complex_type(cursor: EntryCursor) -> OtherType:
    """The type of complex numbers."""
    return OtherType(f"complex<{element_name(cursor, cursor.type())}>")


def function_type(cursor: EntryCursor) -> FunctionType:
    """The type of a function."""
    return FunctionType(cursor.types(), cursor.types())


def tuple_type(cursor: EntryCursor) -> TupleType:
    """The type of a tuple."""
    return TupleType(cursor.types())


def named_type(text: str) -> Callable[[EntryCursor], Type]:
    """A type that has no parameters."""
    return lambda cursor: OtherType(text)


def _integer_type(cursor: EntryCursor) -> OtherType:
    found = cursor.varint()
    sign = found & 3
    if sign >= len(_SIGNS):
        cursor.fail(f"an integer type is signed, unsigned or neither, not {sign}")
    return OtherType(f"{_SIGNS[sign]}{found >> 2}")


def _shaped(name: str) -> Callable[[EntryCursor], Type]:
    """The type of a vector: no operation of StableHLO takes one."""

    def read(cursor: EntryCursor) -> OtherType:
        shape = "".join(f"{'?' if size is None else size}x" for size in sizes(cursor))
        return OtherType(f"{name}<{shape}{element_name(cursor, cursor.type())}>")

    return read


_ATTRIBUTES: tuple[Callable[[EntryCursor], Attribute | Location | None], ...] = (
    lambda cursor: ArrayAttr(cursor.attributes()),
    _dictionary,
    lambda cursor: StringAttr(cursor.string()),
    _typed_string,
    lambda cursor: SymbolAttr((cursor.name(),)),
    _symbol,
    lambda cursor: TypeAttr(cursor.type()),
    lambda cursor: UnitAttr(),
    lambda cursor: integer(cursor, cursor.type()),
    lambda cursor: number(cursor, cursor.type()),
    _call_site,
    _file_location,
    _fused,
    _fused_with_metadata,
    _named,
    lambda cursor: None,
    _dense_resource,
    _dense_array,
    lambda cursor: dense(cursor, cursor.type(), cursor.blob()),
    _strings,
    _sparse,
    lambda cursor: cursor.attribute(),
    _file_range,
)
_TYPES: dict[int, Callable[[EntryCursor], Type]] = {
    0: _integer_type,
    1: named_type("index"),
    2: function_type,
    **{k: named_type(name) for k, name in enumerate(("bf16", "f16", "f32", "f64", "f80", "f128"), 3)},
    9: complex_type,
    12: named_type("none"),
    13: ranked,
    14: ranked_with_encoding,
    15: tuple_type,
    18: unranked,
    19: _shaped("vector"),
}

BUILTIN = Decoders(dict(enumerate(_ATTRIBUTES)), _TYPES)
