"""MLIR in memory as text, in the generic form, which every version of MLIR reads; functions, modules and operations of
Shardy are written in their own form.

Source: MLIR Language Reference, https://mlir.llvm.org/docs/LangRef/.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    Block,
    DenseAttr,
    DialectAttr,
    DictAttr,
    FloatAttr,
    Function,
    IntegerAttr,
    Location,
    ModuleOp,
    OpaqueAttr,
    Operation,
    Region,
    StringAttr,
    SymbolAttr,
    TypeAttr,
    UnitAttr,
    Value,
)
from tinyxla.text.mlir.text_parser import type_text

_MESH = "sdy.mesh."  # and a name: Shardy's meshes, which are attributes of the module here
_MAX_LISTED = 64  # elements of a constant that are written one by one; more are bytes in hexadecimal


def print_module_op(module: ModuleOp, has_locations: bool = False) -> str:
    """The text of a module; each operation with the place in the program that it comes from, if that is wanted."""
    meshes = {name: x for name, x in module.attributes.items() if name.startswith(_MESH)}
    others = {name: x for name, x in module.attributes.items() if name not in meshes}
    attributes = f" attributes {_dictionary(others)}" if others else ""
    name = f" @{_symbol(module.name)}" if module.name else ""
    lines = [f"module{name}{attributes} {{"]
    lines += [f"  sdy.mesh @{_symbol(key.removeprefix(_MESH))} = {attribute_text(x)}" for key, x in meshes.items()]
    for function in module.functions.values():
        lines += _function(function, has_locations)
    return "\n".join([*lines, "}", ""])


class _Names:
    """Values are called %arg0, %arg1, ... and %0, %1, ... in the order in which they are defined."""

    def __init__(self, has_locations: bool) -> None:
        self.has_locations = has_locations
        self._names: dict[int, str] = {}
        self._arguments = itertools.count()
        self._results = itertools.count()

    def argument(self, value: Value) -> str:
        self._names[id(value)] = name = f"%arg{next(self._arguments)}"
        return name

    def results(self, values: Sequence[Value]) -> str:
        number = next(self._results)
        if len(values) == 1:
            self._names[id(values[0])] = f"%{number}"
            return f"%{number} = "
        for k, value in enumerate(values):
            self._names[id(value)] = f"%{number}#{k}"
        return f"%{number}:{len(values)} = " if values else ""

    def __getitem__(self, value: Value) -> str:
        return self._names[id(value)]


def _function(function: Function, has_locations: bool) -> list[str]:
    names = _Names(has_locations)
    block = function.body.block
    arguments = ", ".join(
        f"{names.argument(x)}: {type_text(x.type)}{_suffix(attributes)}"
        for x, attributes in itertools.zip_longest(block.arguments, function.argument_attributes, fillvalue=None)
        if x is not None
    )
    results = ", ".join(
        f"{type_text(t)}{_suffix(attributes)}"
        for t, attributes in itertools.zip_longest(function.type.results, function.result_attributes, fillvalue=None)
        if t is not None
    )
    kind = "public" if function.is_public else "private"
    lines = [f"  func.func {kind} @{_symbol(function.name)}({arguments}) -> ({results}) {{"]
    for operation in block.operations:
        lines += _operation(operation, names, "    ")
    return [*lines, "  }"]


def _suffix(attributes: Mapping[str, Attribute] | None) -> str:
    return f" {_dictionary(attributes)}" if attributes else ""


def _operation(operation: Operation, names: _Names, indent: str) -> list[str]:
    operands = ", ".join(names[x] for x in operation.operands)
    own, others = _properties(operation)
    properties = f" <{_dictionary(own)}>" if own else ""
    types = ", ".join(type_text(x.type) for x in operation.operands)
    results = ", ".join(type_text(x.type) for x in operation.results)
    signature = f"{_suffix(others)} : ({types}) -> ({results})"
    if names.has_locations and operation.location is not None:
        signature += f" loc({_location(operation.location)})"
    if operation.name in _FORMS_OF_SHARDY:
        return _operation_of_shardy(operation, names, indent)
    head = f'{indent}{names.results(operation.results)}"{operation.name}"({operands}){properties}'
    if not operation.regions:
        return [head + signature]
    lines = [head + " ({"]
    for k, region in enumerate(operation.regions):
        if k:
            lines.append(f"{indent}}}, {{")
        lines += _region(region, names, indent)
    return [*lines, f"{indent}}}){signature}"]


_FORMS_OF_SHARDY = ("sdy.sharding_constraint", "sdy.manual_computation", "sdy.return")


def _operation_of_shardy(operation: Operation, names: _Names, indent: str) -> list[str]:
    """`sdy.sharding_constraint %x <@mesh, [{"x"}]> : T`, `sdy.return %x : T`, and `sdy.manual_computation(%x)
    in_shardings=[...] out_shardings=[...] manual_axes={"x"} (%arg1: T) { ... } : (U) -> V`."""
    given, found = ([type_text(x.type) for x in values] for values in (operation.operands, operation.results))
    operands = ", ".join(names[x] for x in operation.operands)
    place = ""
    if names.has_locations and operation.location is not None:
        place = f" loc({_location(operation.location)})"
    texts = {name: _of_shardy(x) for name, x in operation.attributes.items() if isinstance(x, OpaqueAttr)}
    if not operation.regions:
        shown = " ".join(filter(None, (operation.name, operands, texts.get("sharding"))))
        types = f" : {', '.join(given)}" if given else ""
        return [f"{indent}{names.results(operation.results)}{shown}{types}{place}"]
    head = f"{indent}{names.results(operation.results)}{operation.name}({operands})"
    (region,) = operation.regions
    shown = " ".join(f"{name}={texts[name]}" for name in ("in_shardings", "out_shardings", "manual_axes"))
    arguments = ", ".join(f"{names.argument(x)}: {type_text(x.type)}" for x in region.block.arguments)
    lines = [f"{head} {shown} ({arguments}) {{"]
    for inner in region.block.operations:
        lines += _operation(inner, names, indent + "  ")
    results = found[0] if len(found) == 1 else f"({', '.join(found)})"
    return [*lines, f"{indent}}} : ({', '.join(given)}) -> {results}{place}"]


def _of_shardy(x: OpaqueAttr) -> str:
    """An attribute as it stands in an operation of Shardy: without the name of its kind."""
    text = x.text
    if text.startswith(("#sdy.sharding_per_value<", "#sdy<manual_axes")):
        return text[text.index("<") + 1 : -1].removeprefix("manual_axes")
    return text.removeprefix("#sdy.sharding")


def _location(x: Location) -> str:
    place = "" if x.file is None else f"{_quoted(x.file.encode())}:{x.line}:{x.column}"
    if x.name is None:
        return place or "unknown"
    return f"{_quoted(x.name.encode())}({place})" if place else _quoted(x.name.encode())


_OF_CUSTOM_CALL = """api_version backend_config call_target_name called_computations has_side_effect operand_layouts
    output_operand_aliases result_layouts""".split()


def _properties(operation: Operation) -> tuple[Mapping[str, Attribute], Mapping[str, Attribute]]:
    """The attributes that the operation declares, and others: those of dialects, as `mhlo.sharding`, and what callers
    add to a custom call."""
    is_call = operation.name == "stablehlo.custom_call"
    own = {name: x for name, x in operation.attributes.items() if "." not in name}
    own = {name: x for name, x in own.items() if not is_call or name in _OF_CUSTOM_CALL}
    return own, {name: x for name, x in operation.attributes.items() if name not in own}


def _region(region: Region, names: _Names, indent: str) -> list[str]:
    block: Block = region.block
    arguments = ", ".join(f"{names.argument(x)}: {type_text(x.type)}" for x in block.arguments)
    lines = [f"{indent}^bb0({arguments}):"] if arguments else []
    for operation in block.operations:
        lines += _operation(operation, names, indent + "  ")
    return lines


# --- attributes -------------------------------------------------------------------------------------------------------


def _dictionary(attributes: Mapping[str, Attribute]) -> str:
    entries = (name if isinstance(x, UnitAttr) else f"{name} = {attribute_text(x)}" for name, x in attributes.items())
    return f"{{{', '.join(entries)}}}"


def attribute_text(x: Attribute) -> str:
    """An attribute as MLIR writes it."""
    match x:
        case IntegerAttr(value, "i1"):
            return "true" if value else "false"
        case IntegerAttr(value, type):
            return f"{value} : {type}"
        case FloatAttr(value, type, bits):
            return f"{bits:#x} : {type}" if bits is not None else f"{value:.17e} : {type}"
        case StringAttr(value):
            return _quoted(value)
        case SymbolAttr(path):
            return "::".join(f"@{_symbol(name)}" for name in path)
        case ArrayAttr(elements):
            return f"[{', '.join(map(attribute_text, elements))}]"
        case DictAttr(entries):
            return _dictionary(entries)
        case TypeAttr(type):
            return type_text(type)
        case UnitAttr():
            return "unit"
        case DenseAttr():
            return _dense(x)
        case DialectAttr(name, parameters):
            return _dialect(name, parameters)
        case OpaqueAttr(text):
            return text


def _dialect(name: str, parameters: Mapping[str, Attribute]) -> str:
    if "value" in parameters and "kind" in parameters:
        return f"#{name}<{_word(parameters['kind'])} {_word(parameters['value'])}>"
    if "text" in parameters:
        return f"#{name}{_word(parameters['text'])}"
    shown = (_word(x) if key.isdigit() else f"{key} = {_parameter(x)}" for key, x in parameters.items())
    return f"#{name}<{', '.join(shown)}>"


def _word(x: Attribute) -> str:
    return x.text if isinstance(x, StringAttr | OpaqueAttr) else attribute_text(x)


def _parameter(x: Attribute) -> str:
    """A parameter of a dialect's attribute: numbers have no type there."""
    if isinstance(x, IntegerAttr):
        return attribute_text(x) if x.type == "i1" else str(x.value)
    if isinstance(x, FloatAttr) and x.bits is None:
        return f"{x.value:.17e}"
    if isinstance(x, ArrayAttr):
        return f"[{', '.join(map(_parameter, x.elements))}]"
    return attribute_text(x)


def _dense(x: DenseAttr) -> str:
    kind = of_mlir(x.type.element)
    if x.is_array:
        elements = ", ".join(_element(v, kind.kind) for v in x.value.reshape(-1))
        return f"array<{x.type.element}{': ' if elements else ''}{elements}>"
    return f"dense<{_elements(x.value, kind.kind)}> : {type_text(x.type)}"


def _elements(value: np.ndarray[Any, Any], kind: str) -> str:
    if not value.size:
        return ""
    if value.size > 1 and not any(value.strides):
        return _element(value.reshape(-1)[0], kind)
    if value.size > _MAX_LISTED and kind != "pred":
        return f'"0x{np.ascontiguousarray(value).tobytes().hex().upper()}"'
    return _nested(value, kind)


def _nested(value: np.ndarray[Any, Any], kind: str) -> str:
    if not value.ndim:
        return _element(value[()], kind)
    return f"[{', '.join(_nested(row, kind) for row in value)}]"


def _element(x: Any, kind: str) -> str:
    if kind == "pred":
        return "true" if x else "false"
    if kind in ("signed", "unsigned"):
        return str(int(x))
    if kind == "complex":
        return f"({_number(x.real)}, {_number(x.imag)})"
    return _number(x)


def _number(x: Any) -> str:
    """A float: decimals that read back as the same, or its bits where it is infinite or NaN."""
    found = np.asarray(x)
    if not np.isfinite(found.astype(np.float64)):
        bits = int(found.view(f"u{found.dtype.itemsize}"))
        return f"0x{bits:0{2 * found.dtype.itemsize}X}"
    return f"{float(x):.17e}" if found.dtype.itemsize > 4 else f"{float(x):.9e}"


def _quoted(value: bytes) -> str:
    text = "".join(chr(c) if 32 <= c < 127 and chr(c) not in '"\\' else f"\\{c:02X}" for c in value)
    return f'"{text}"'


def _symbol(name: str) -> str:
    plain = name.replace("_", "a").replace(".", "a").replace("$", "a").replace("-", "a")
    return name if plain.isascii() and plain.isalnum() and not name[0].isdigit() else _quoted(name.encode())
