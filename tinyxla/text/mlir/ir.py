"""MLIR in memory: operations, regions, blocks, types and attributes, as the text and the bytecode have them.

This is what the parsers give and the printers take. It knows no dialect: an operation is its name, operands, results,
attributes and regions; `tinyxla.stablehlo.importing` gives these a meaning.

Source: MLIR Language Reference, https://mlir.llvm.org/docs/LangRef/; the builtin dialect's types and attributes,
https://mlir.llvm.org/docs/Dialects/Builtin/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

# --- types ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """`tensor<2x?xf32, encoding>`: sizes (None: dynamic), the element type as MLIR writes it (`f32`, `i1`, `ui8`,
    `complex<f32>`, `f8E4M3FN`), and the text of an encoding. `is_ranked` is false of `tensor<*xf32>`."""

    sizes: tuple[int | None, ...]
    element: str
    encoding: Attribute | None = None
    is_ranked: bool = True


@dataclass(frozen=True, slots=True)
class TupleType:
    """`tuple<tensor<f32>, tensor<i32>>`."""

    elements: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class FunctionType:
    """`(tensor<f32>) -> tensor<f32>`."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type without structure here: `!stablehlo.token`, `index`, `i32`, `none`."""

    text: str


Type = TensorType | TupleType | FunctionType | OtherType

# --- attributes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IntegerAttr:
    """`3 : i64`; truth values are of type `i1`."""

    value: int
    type: str = "i64"


@dataclass(frozen=True, slots=True)
class FloatAttr:
    """`1.0 : f32`, or bits in hexadecimal, which are kept where they stand for a NaN."""

    value: float
    type: str = "f64"
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class StringAttr:
    """`"text"`: the bytes, escapes undone."""

    value: bytes

    @property
    def text(self) -> str:
        return self.value.decode()


@dataclass(frozen=True, slots=True)
class SymbolAttr:
    """`@main` or `@module::@function`: the names."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayAttr:
    """`[1, "a"]`."""

    elements: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class DictAttr:
    """`{a = 1, b}`."""

    entries: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class TypeAttr:
    """A type as an attribute."""

    type: Type


@dataclass(frozen=True, slots=True)
class UnitAttr:
    """An attribute that is there or not."""


@dataclass(frozen=True, slots=True, eq=False)
class DenseAttr:
    """`dense<[1, 2]> : tensor<2xi32>` and `array<i64: 1, 2>`, of which `is_array` is true: the elements as an array of
    the element type's NumPy type (unpacked where MLIR packs). A splat is a broadcast array: its strides are 0."""

    value: np.ndarray
    type: TensorType
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class DialectAttr:
    """`#stablehlo.dot<lhs_batching_dimensions = [0], ...>`: the name, and the parameters by name, or in order under
    "0", "1", ... An enumeration such as `#stablehlo<precision DEFAULT>` has the one parameter "value"."""

    name: str
    parameters: Mapping[str, Attribute]


def enumeration(kind: str, word: str) -> DialectAttr:
    """`#stablehlo<kind WORD>`."""
    return DialectAttr("stablehlo", {"kind": StringAttr(kind.encode()), "value": StringAttr(word.encode())})


@dataclass(frozen=True, slots=True)
class OpaqueAttr:
    """An attribute that is passed on as text."""

    text: str


Attribute = (
    IntegerAttr
    | FloatAttr
    | StringAttr
    | SymbolAttr
    | ArrayAttr
    | DictAttr
    | TypeAttr
    | UnitAttr
    | DenseAttr
    | DialectAttr
    | OpaqueAttr
)

# --- operations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Location:
    """Where something was written: a file's line, a name, or both, as `loc("f"("file.py":3:4))` says."""

    file: str | None = None
    line: int = 0
    column: int = 0
    name: str | None = None


@dataclass(slots=True, eq=False)
class Value:
    """The result of an operation, or the argument of a block."""

    type: Type
    name: str = ""


@dataclass(slots=True, eq=False)
class Block:
    """Operations in order; the last is the terminator."""

    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Region:
    """Blocks; those of StableHLO have one."""

    blocks: list[Block] = field(default_factory=list)

    @property
    def block(self) -> Block:
        """The only block."""
        (block,) = self.blocks
        return block


@dataclass(slots=True, eq=False)
class Operation:
    """`%r = "dialect.name"(%x) <{properties}> ({regions}) {attributes} : (types) -> types`. Properties and attributes
    are one dictionary, which several operations may share. `offset` is the place in the text or the bytes, for
    errors."""

    name: str
    operands: Sequence[Value] = ()
    results: Sequence[Value] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: Sequence[Region] = ()
    location: Location | None = None
    offset: int = 0

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result


@dataclass(slots=True, eq=False)
class Function:
    """`func.func public @main(%x: tensor<f32> {attributes}) -> (tensor<f32> {attributes})`."""

    name: str
    type: FunctionType
    body: Region
    argument_attributes: list[dict[str, Attribute]] = field(default_factory=list)
    result_attributes: list[dict[str, Attribute]] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    is_public: bool = True
    location: Location | None = None
    offset: int = 0


@dataclass(slots=True, eq=False)
class ModuleOp:
    """`module @name attributes {...} { functions }`."""

    name: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)


def walk(region: Region) -> Iterator[Operation]:
    """All operations in a region, those in nested regions included, in order."""
    for block in region.blocks:
        for operation in block.operations:
            yield operation
            for inner in operation.regions:
                yield from walk(inner)
