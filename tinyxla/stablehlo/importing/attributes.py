"""Attributes of operations as Python values, in each of the forms in which texts and artifacts have them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tinyxla.errors import AttributeValueError
from tinyxla.ops.products.convolution import ConvDimensionNumbers
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DenseAttr,
    DialectAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    Operation,
    StringAttr,
    SymbolAttr,
    TypeAttr,
    UnitAttr,
)

Ints = tuple[int, ...]


class Attributes:
    """The attributes of one operation."""

    def __init__(self, operation: Operation, entries: Any = None) -> None:
        self.operation = operation
        self.entries: dict[str, Attribute] = operation.attributes if entries is None else dict(entries)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def refuse(self, name: str, wanted: str) -> AttributeValueError:
        given = self.entries.get(name)
        return AttributeValueError(f"{self.operation.name}: the attribute {name!r} must be {wanted}, but is {given}.")

    def ints(self, name: str, default: Ints | None = None) -> Ints:
        """Integers: `array<i64: ...>`, `dense<...>` or `[...]`."""
        given = self.entries.get(name)
        if given is None and default is not None:
            return default
        if isinstance(given, DenseAttr):
            return tuple(int(x) for x in given.value.reshape(-1))
        if isinstance(given, ArrayAttr) and all(isinstance(x, IntegerAttr) for x in given.elements):
            return tuple(x.value for x in given.elements if isinstance(x, IntegerAttr))
        raise self.refuse(name, "a list of integers")

    def matrix(self, name: str) -> tuple[Ints, ...]:
        """Integers in rows: `dense<[[...]]>`."""
        given = self.entries.get(name)
        if isinstance(given, DenseAttr) and given.value.ndim == 2:
            return tuple(tuple(int(x) for x in row) for row in given.value)
        if isinstance(given, ArrayAttr):
            return tuple(Attributes(self.operation, {"": row}).ints("") for row in given.elements)
        raise self.refuse(name, "a matrix of integers")

    def integer(self, name: str, default: int | None = None) -> int:
        """One integer."""
        given = self.entries.get(name)
        if isinstance(given, IntegerAttr):
            return given.value
        if isinstance(given, DenseAttr) and given.value.size == 1:
            return int(given.value.reshape(()))
        if given is None and default is not None:
            return default
        raise self.refuse(name, "an integer")

    def number(self, name: str) -> float:
        """One number."""
        given = self.entries.get(name)
        if isinstance(given, FloatAttr | IntegerAttr):
            return float(given.value)
        raise self.refuse(name, "a number")

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value; an attribute without value is true."""
        given = self.entries.get(name)
        if given is None:
            return default
        if isinstance(given, UnitAttr):
            return True
        if isinstance(given, IntegerAttr):
            return bool(given.value)
        raise self.refuse(name, "a truth value")

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        """Truth values."""
        return tuple(map(bool, self.ints(name, (0,) * count)))

    def word(self, name: str, default: str | None = None) -> str:
        """A word of an enumeration: `#stablehlo<precision DEFAULT>`, or a string."""
        given = self.entries.get(name)
        if given is None and default is not None:
            return default
        if isinstance(given, DialectAttr):
            given = given.parameters.get("value", given.parameters.get("0"))
        if isinstance(given, StringAttr):
            return given.text
        raise self.refuse(name, "a word")

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        return self.word(name, default)

    def symbol(self, name: str) -> str:
        """The name of a function."""
        given = self.entries.get(name)
        if isinstance(given, SymbolAttr):
            return given.path[-1]
        if isinstance(given, StringAttr):
            return given.text
        raise self.refuse(name, "the name of a function")

    def inner(self, name: str) -> Attributes:
        """The entries of an attribute that is a dictionary or a dialect's, such as `#stablehlo.gather<...>`."""
        given = self.entries.get(name)
        if isinstance(given, DictAttr):
            return Attributes(self.operation, given.entries)
        if isinstance(given, DialectAttr):
            return Attributes(self.operation, given.parameters)
        if given is None:
            return Attributes(self.operation, {})
        raise self.refuse(name, "a group of attributes")

    def precisions(self) -> tuple[str, ...]:
        """The precision of each operand, where one is not the default."""
        given = self.entries.get("precision_config")
        elements = given.elements if isinstance(given, ArrayAttr) else ()
        words = tuple(Attributes(self.operation, {"": x}).word("").lower() for x in elements)
        return () if all(word == "default" for word in words) else words

    def value(self, name: str) -> Any:
        """An attribute as a Python value: what handlers of custom calls are given."""
        return python_value(self.entries[name])


def python_value(given: Attribute) -> Any:
    """An attribute as a Python value."""
    if isinstance(given, IntegerAttr):
        return bool(given.value) if given.type == "i1" else given.value
    if isinstance(given, FloatAttr):
        return given.value
    if isinstance(given, StringAttr):
        return given.value.decode(errors="surrogateescape")
    if isinstance(given, ArrayAttr):
        return [python_value(x) for x in given.elements]
    if isinstance(given, DictAttr):
        return {name: python_value(x) for name, x in given.entries.items()}
    if isinstance(given, DenseAttr):
        return np.array(given.value)
    if isinstance(given, SymbolAttr):
        return given.path[-1]
    if isinstance(given, UnitAttr):
        return True
    return given.type if isinstance(given, TypeAttr) else given


_SPEC = re.compile(r"\[([^\]]*)\]")


def convolution_dimensions(attributes: Attributes) -> ConvDimensionNumbers:
    """`#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>`, or the same as numbers by name."""
    a = attributes.inner("dimension_numbers")
    if "text" not in a:
        sides = (("input", "batch", "feature"), ("kernel", "output_feature", "input_feature"))
        specs = [
            (
                a.integer(f"{side}_{first}_dimension", 0),
                a.integer(f"{side}_{second}_dimension", 0),
                *a.ints(f"{side}_spatial_dimensions", ()),
            )
            for side, first, second in (*sides, ("output", "batch", "feature"))
        ]
        return ConvDimensionNumbers(*specs)
    labels = [[word.strip() for word in found.split(",")] for found in _SPEC.findall(a.text("text"))]
    if len(labels) != 3:
        raise attributes.refuse("dimension_numbers", "of the form [b, f, 0]x[o, i, 0]->[b, f, 0]")
    spatial = [str(k) for k in range(len(labels[0]) - 2)]
    try:
        return ConvDimensionNumbers(
            *(
                tuple(spec.index(label) for label in (*first, *spatial))
                for spec, first in zip(labels, ("bf", "oi", "bf"), strict=True)
            )
        )
    except ValueError:
        raise attributes.refuse("dimension_numbers", "of the form [b, f, 0]x[o, i, 0]->[b, f, 0]") from None
