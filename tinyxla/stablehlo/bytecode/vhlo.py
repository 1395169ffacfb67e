"""VHLO's attributes and types in bytecode. VHLO is the dialect of portable artifacts: the operations of StableHLO, with
versions. What is read here is at once in the form that StableHLO has it.

Source: `stablehlo/dialect/VhloBytecode.cpp` and `VhloEnums.td` in https://github.com/openxla/stablehlo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinyxla.stablehlo.bytecode.builtin import (
    DYNAMIC,
    complex_type,
    element_name,
    function_type,
    named_type,
    ranked,
    ranked_with_encoding,
    sizes,
    tuple_type,
    unranked,
)
from tinyxla.stablehlo.bytecode.elements import dense, double, integer, number
from tinyxla.stablehlo.bytecode.tables import Decoders, EntryCursor
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DialectAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    Location,
    OtherType,
    StringAttr,
    Type,
    TypeAttr,
    enumeration,
)

# --- attributes -------------------------------------------------------------------------------------------------------


def _boolean(cursor: EntryCursor) -> IntegerAttr:
    found = cursor.varint()
    if found > 1:
        cursor.fail(f"a truth value is 0 or 1, not {found}")
    return IntegerAttr(found, "i1")


def _dictionary(cursor: EntryCursor) -> DictAttr:
    return DictAttr(dict(cursor.list_of(lambda: (cursor.name(), cursor.attribute()), "entries")))


def _numbered(words: str, first: int = 0) -> dict[str, int]:
    return {word: number for number, word in enumerate(words.split(), first)}


# Enumerations: the number of the attribute, and those of its words.
ENUMERATIONS: dict[str, tuple[int, dict[str, int]]] = {
    "comparison_direction": (3, _numbered("EQ NE GE GT LE LT")),
    "comparison_type": (4, _numbered("NOTYPE FLOAT TOTALORDER SIGNED UNSIGNED")),
    "fft_type": (7, _numbered("FFT IFFT RFFT IRFFT")),
    "precision": (11, _numbered("DEFAULT HIGH HIGHEST")),
    "rng_algorithm": (12, _numbered("DEFAULT THREE_FRY PHILOX")),
    "rng_distribution": (13, _numbered("UNIFORM NORMAL", first=1)),
    "transpose": (16, _numbered("TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT")),
}


def _enumeration(kind: str) -> Callable[[EntryCursor], DialectAttr]:
    """`#stablehlo<kind WORD>`."""
    names = {number: word for word, number in ENUMERATIONS[kind][1].items()}

    def read(cursor: EntryCursor) -> DialectAttr:
        found = cursor.varint()
        if found not in names:
            cursor.fail(f"{kind} is one of {', '.join(names.values())}, but has the number {found}")
        return enumeration(kind, names[found])

    return read


def _api_version(cursor: EntryCursor) -> IntegerAttr:
    return IntegerAttr(cursor.varint(), "i32")


def integers(values: list[int]) -> ArrayAttr:
    """`[1, 2]`."""
    return ArrayAttr(tuple(IntegerAttr(x) for x in values))


def _output_operand_alias(cursor: EntryCursor) -> DialectAttr:
    parameters: Mapping[str, Attribute] = {
        "output_tuple_indices": integers(cursor.integers()),
        "operand_index": IntegerAttr(cursor.signed()),
        "operand_tuple_indices": integers(cursor.integers()),
    }
    return DialectAttr("stablehlo.output_operand_alias", parameters)


def _bounds(cursor: EntryCursor) -> DialectAttr:
    words = ("?" if x == DYNAMIC else str(x) for x in cursor.integers())
    return DialectAttr("stablehlo.bounds", {str(k): StringAttr(word.encode()) for k, word in enumerate(words)})


def _result_accuracy_mode(cursor: EntryCursor) -> DialectAttr:
    found = cursor.varint()
    if found >= len(_ACCURACY_MODES):
        cursor.fail(f"the mode of an accuracy is one of {', '.join(_ACCURACY_MODES)}, but has the number {found}")
    return DialectAttr("stablehlo.result_accuracy_mode", {"0": StringAttr(_ACCURACY_MODES[found].encode())})


_ACCURACY_MODES = ("DEFAULT", "HIGHEST", "TOLERANCE")


def _result_accuracy(cursor: EntryCursor) -> DialectAttr:
    parameters: Mapping[str, Attribute] = {
        "atol": FloatAttr(double(cursor)),
        "rtol": FloatAttr(double(cursor)),
        "ulps": IntegerAttr(cursor.signed()),
        "mode": cursor.attribute(),
    }
    return DialectAttr("stablehlo.result_accuracy", parameters)


_ATTRIBUTES: dict[int, Callable[[EntryCursor], Attribute | Location | None]] = {
    **{code: _enumeration(kind) for kind, (code, _) in ENUMERATIONS.items()},
    1: lambda cursor: ArrayAttr(cursor.attributes()),
    2: _boolean,
    5: _api_version,
    6: _dictionary,
    8: lambda cursor: number(cursor, cursor.type()),
    9: lambda cursor: integer(cursor, cursor.type()),
    10: _output_operand_alias,
    14: lambda cursor: StringAttr(cursor.string()),
    15: lambda cursor: dense(cursor, cursor.type(), cursor.blob()),
    17: lambda cursor: TypeAttr(cursor.type()),
    18: _bounds,
    19: _result_accuracy_mode,
    20: _result_accuracy,
}

# --- types ------------------------------------------------------------------------------------------------------------


def _quantized(cursor: EntryCursor) -> OtherType:
    """`!quant.uniform<...>`: operations on these are refused where a program is run."""
    cursor.varint()
    storage, expressed = (element_name(cursor, cursor.type()) for _ in range(2))
    scale, zero = double(cursor), cursor.signed()
    low, high = cursor.signed(), cursor.signed()
    return OtherType(f"!quant.uniform<{storage}<{low}:{high}>:{expressed},{scale!r}:{zero}>")


def _quantized_per_axis(cursor: EntryCursor) -> OtherType:
    cursor.varint()
    storage, expressed = (element_name(cursor, cursor.type()) for _ in range(2))
    axis, low, high = cursor.varint(), cursor.signed(), cursor.signed()
    scales = cursor.list_of(lambda: double(cursor), "scales")
    zeros = cursor.integers()
    pairs = ",".join(f"{scale!r}:{zero}" for scale, zero in zip(scales, zeros, strict=False))
    return OtherType(f"!quant.uniform<{storage}<{low}:{high}>:{expressed}:{axis},{{{pairs}}}>")


def _buffer(cursor: EntryCursor) -> OtherType:
    shape = "".join(f"{'?' if size is None else size}x" for size in sizes(cursor))
    return OtherType(f"memref<{shape}{element_name(cursor, cursor.type())}>")


TYPE_NAMES = {
    0: "i1",
    2: "bf16",
    3: "f16",
    4: "f32",
    5: "f64",
    6: "f8E4M3FN",
    7: "f8E5M2",
    9: "index",
    **{k: f"i{bits}" for k, bits in enumerate((4, 8, 16, 32, 64), 10)},
    **{k: f"ui{bits}" for k, bits in enumerate((4, 8, 16, 32, 64), 15)},
    22: "!stablehlo.token",
    26: "!shape.witness",
    27: "f8E4M3FNUZ",
    28: "f8E5M2FNUZ",
    29: "f8E4M3B11FNUZ",
    31: "i2",
    32: "ui2",
    33: "none",
    34: "tf32",
    35: "f8E4M3",
    36: "f8E3M4",
    37: "f4E2M1FN",
    38: "f6E2M3FN",
    39: "f6E3M2FN",
    40: "f8E8M0FNU",
}
_TYPES: dict[int, Callable[[EntryCursor], Type]] = {
    **{k: named_type(name) for k, name in TYPE_NAMES.items()},
    1: complex_type,
    8: function_type,
    20: ranked,
    21: ranked_with_encoding,
    23: tuple_type,
    24: _quantized,
    25: unranked,
    30: _quantized_per_axis,
    41: _buffer,
}

VHLO = Decoders(_ATTRIBUTES, _TYPES)
