"""The forms that operations of StableHLO, CHLO, `func` and Shardy have beside the generic one.

Most are operands, settings, attributes and types, `stablehlo.transpose %x, dims = [1, 0] {a = 1} : (T) -> U`, and
differ in the names of their settings: `_SETTINGS` says which attribute each is. The others have a function each.

Source: the assembly formats in StableHLO's operation definitions, https://openxla.org/stablehlo/spec.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    Block,
    DenseAttr,
    DialectAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    OpaqueAttr,
    Operation,
    Region,
    StringAttr,
    SymbolAttr,
    TensorType,
    Type,
    Value,
)
from tinyxla.text.mlir.text_parser import Format, Parser, unescaped

# --- operands, settings, attributes, types ----------------------------------------------------------------------------


def plain(parser: Parser, operation: Operation) -> None:
    """`name %x, %y, setting = 1 {attribute = 2} : T`, or `: (T, U) -> V`, or `: T, U -> V`."""
    names = _SETTINGS.get(operation.name, {})
    is_grouped = parser.accept("(")
    operation.operands = parser.operands(")")
    while parser.peek()[:1].isalpha() and parser.tokens[parser.place + 1] == "=":
        word = parser.take()
        parser.take()
        operation.attributes[names.get(word, word)] = setting(parser, operation.name, word)
        if not parser.accept(","):
            break
    if is_grouped:
        parser.expect(")")
    attributes_and_types(parser, operation)


def attributes_and_types(parser: Parser, operation: Operation) -> None:
    """The end of most operations."""
    if parser.peek() == "{":
        operation.attributes |= parser.dictionary()
    if not parser.accept(":"):
        parser.finish(operation, FunctionType((), ()))
        return
    if parser.peek() == "(":
        inputs = parser.types()
        if parser.peek() != "->":  # of no operands: the types of the results
            parser.finish(operation, FunctionType((), inputs))
            return
        parser.expect("->")
        parser.finish(operation, FunctionType(inputs, parser.types()))
        return
    found = [parser.type()]
    while parser.accept(","):
        found.append(parser.type())
    operand_types = tuple(x.type for x in operation.operands)
    if parser.accept("->"):
        parser.finish(operation, FunctionType(tuple(found), parser.types()))
    elif operation.name in _RETURNS:
        parser.finish(operation, FunctionType(tuple(found), ()))
    elif operation.name == "stablehlo.optimization_barrier":
        parser.finish(operation, FunctionType(tuple(found), tuple(found)))
    elif operation.name in ("stablehlo.real", "stablehlo.imag", "stablehlo.complex") or not operand_types:
        parser.finish(operation, FunctionType(operand_types, (found[-1],)))
    elif operation.name == "stablehlo.select":
        parser.finish(operation, FunctionType((found[0], found[-1], found[-1]), (found[-1],)))
    elif operation.name == "stablehlo.tuple":
        parser.finish(operation, FunctionType(operand_types, tuple(found)))
    else:
        inputs = (found[0],) * len(operand_types) if len(found) == 1 else tuple(found)
        parser.finish(operation, FunctionType(inputs, (found[-1],)))


def setting(parser: Parser, operation: str, word: str) -> Attribute:
    """The value of a setting: integers, a word of an enumeration, or an attribute."""
    token = parser.peek()
    if token == "[":
        following = parser.tokens[parser.place + 1]
        if following == "]" or following.lstrip("-")[:1].isdigit():
            return i64_array(parser.integers())
        if following[:1].isalpha():
            return ArrayAttr(parser.list_of(lambda: _enumeration(parser.take())))
        return parser.attribute()
    if token.lstrip("-")[:1].isdigit():
        return IntegerAttr(parser.integer())
    if token in ("true", "false"):
        return IntegerAttr(int(parser.take() == "true"), "i1")
    if token == "<":
        return DialectAttr("", parser.parameters(""))
    if token[:1].isalpha():
        return _enumeration(parser.take())
    return parser.attribute()


def i64_array(values: Any) -> DenseAttr:
    """`array<i64: ...>`."""
    found = np.array(values, np.int64)
    return DenseAttr(found, TensorType((found.size,), "i64"), is_array=True)


def _enumeration(word: str) -> DialectAttr:
    return DialectAttr("stablehlo", {"value": StringAttr(word.encode())})


_RETURNS = ("stablehlo.return", "func.return", "return", "sdy.return", "mhlo.return")

# The attribute that a setting is, where they have different names.
_SETTINGS: dict[str, dict[str, str]] = {
    "stablehlo.broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.transpose": {"dims": "permutation"},
    "stablehlo.reverse": {"dims": "dimensions"},
    "stablehlo.concatenate": {"dim": "dimension"},
    "stablehlo.iota": {"dim": "iota_dimension"},
    "stablehlo.dynamic_iota": {"dim": "iota_dimension"},
    "stablehlo.get_dimension_size": {"dim": "dimension"},
    "stablehlo.set_dimension_size": {"dim": "dimension"},
    "stablehlo.dynamic_slice": {"sizes": "slice_sizes"},
    "stablehlo.pad": {"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"},
    "stablehlo.fft": {"type": "fft_type", "length": "fft_length"},
    "stablehlo.rng_bit_generator": {"algorithm": "rng_algorithm"},
    "stablehlo.rng": {"distribution": "rng_distribution"},
    "stablehlo.broadcast": {"sizes": "broadcast_sizes"},
}

# --- forms of single operations ---------------------------------------------------------------------------------------


def _constant(parser: Parser, operation: Operation) -> None:
    """`stablehlo.constant {a = 1} dense<1.0> : T`."""
    if parser.peek() == "{":
        operation.attributes |= parser.dictionary()
    value = parser.dense()
    operation.attributes["value"] = value
    operation.results = [Value(value.type)]


def _compare(parser: Parser, operation: Operation) -> None:
    """`stablehlo.compare LT, %x, %y, FLOAT : (T, T) -> U`."""
    operation.attributes["comparison_direction"] = _enumeration(parser.take())
    parser.expect(",")
    first = parser.value()
    parser.expect(",")
    operation.operands = [first, parser.value()]
    if parser.accept(","):
        operation.attributes["compare_type"] = _enumeration(parser.take())
    attributes_and_types(parser, operation)


def _slice(parser: Parser, operation: Operation) -> None:
    """`stablehlo.slice %x [0:3, 1:9:2] : (T) -> U`."""
    operation.operands = [parser.value()]
    bounds: list[tuple[int, int, int]] = []

    def bound() -> None:
        start = parser.integer()
        parser.expect(":")
        limit = parser.integer()
        bounds.append((start, limit, parser.integer() if parser.accept(":") else 1))

    parser.list_of(bound)
    starts, limits, strides = zip(*bounds, strict=True) if bounds else ((), (), ())
    operation.attributes["start_indices"] = i64_array(starts)
    operation.attributes["limit_indices"] = i64_array(limits)
    operation.attributes["strides"] = i64_array(strides)
    attributes_and_types(parser, operation)


def _dot(parser: Parser, operation: Operation) -> None:
    """`stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT,
    DEFAULT], algorithm = <...> : (T, U) -> V`; `stablehlo.dot` has the precision alone."""
    first = parser.value()
    parser.expect(",")
    operation.operands = [first, parser.value()]
    numbers: dict[str, Attribute] = {}
    while parser.accept(","):
        word = parser.take()
        parser.expect("=")
        if word in ("batching_dims", "contracting_dims"):
            names = [f"{side}_{word.removesuffix('_dims')}_dimensions" for side in ("lhs", "rhs")]
            numbers[names[0]] = i64_array(parser.integers())
            parser.expect("x")
            numbers[names[1]] = i64_array(parser.integers())
        else:
            name = "precision_config" if word == "precision" else word
            operation.attributes[name] = setting(parser, operation.name, word)
    if operation.name == "stablehlo.dot_general":
        operation.attributes["dot_dimension_numbers"] = DialectAttr("stablehlo.dot", numbers)
    attributes_and_types(parser, operation)


def _reduce(parser: Parser, operation: Operation) -> None:
    """`stablehlo.reduce(%x init: %i), (%y init: %j) across dimensions = [0] : (T, ...) -> (U, ...) reducer(%a: V, %c:
    V) (%b: W, %d: W) { ... }`, or `stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [0] : ...`.
    """
    values: list[Value] = []
    inits: list[Value] = []
    while True:
        parser.expect("(")
        values.append(parser.value())
        parser.expect("init")
        parser.expect(":")
        inits.append(parser.value())
        parser.expect(")")
        if not parser.accept(","):
            break
    applied = parser.take() if parser.accept("applies") else ""
    parser.expect("across")
    parser.expect("dimensions")
    parser.expect("=")
    operation.operands = values + inits
    operation.attributes["dimensions"] = i64_array(parser.integers())
    attributes_and_types(parser, operation)
    if applied:
        scalar = TensorType((), _element(inits[0].type))
        operation.regions = [combining(applied, scalar)]
        return
    parser.expect("reducer")
    firsts: list[tuple[str, Type]] = []
    seconds: list[tuple[str, Type]] = []
    while parser.accept("("):
        for side in (firsts, seconds):
            label = parser.take()
            parser.expect(":")
            side.append((label, parser.type()))
            parser.trailing_location()
            if side is firsts:
                parser.expect(",")
        parser.expect(")")
        parser.accept(",")
    operation.regions = [_region_of(parser, firsts + seconds)]


def _element(type: Type) -> str:
    return type.element if isinstance(type, TensorType) else ""


def combining(name: str, type: TensorType) -> Region:
    """The region of two scalars that applies one operation to them."""
    x, y = Value(type), Value(type)
    body = Operation(name, [x, y], [Value(type)])
    end = Operation("stablehlo.return", [body.result])
    return Region([Block([x, y], [body, end])])


def _region_of(parser: Parser, arguments: list[tuple[str, Type]]) -> Region:
    """A region whose arguments were named before it."""
    with parser.scope():
        return parser.region([parser.define(label, Value(type)) for label, type in arguments])


def _while(parser: Parser, operation: Operation) -> None:
    """`stablehlo.while(%a = %x, %b = %y) : T, U attributes {...} cond { ... } do { ... }`."""
    labels: list[str] = []
    operands: list[Value] = []
    parser.expect("(")
    while not parser.accept(")"):
        labels.append(parser.take())
        parser.expect("=")
        operands.append(parser.value())
        parser.comma_before(")")
    operation.operands = operands
    types: list[Type] = []
    if parser.accept(":"):
        types.append(parser.type())
        while parser.accept(","):
            types.append(parser.type())
    if parser.accept("attributes"):
        operation.attributes |= parser.dictionary()
    parser.finish(operation, FunctionType(tuple(types), tuple(types)))
    arguments = list(zip(labels, types, strict=True))
    parser.expect("cond")
    condition = _region_of(parser, arguments)
    parser.expect("do")
    operation.regions = [condition, _region_of(parser, arguments)]


def _convolution(parser: Parser, operation: Operation) -> None:
    """`stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1],
    pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {...} : (T, U) -> V`."""
    parser.expect("(")
    operation.operands = parser.operands(")")
    parser.expect(")")
    parser.expect("dim_numbers")
    parser.expect("=")
    start = parser.place
    for sign in ("x", "->", ""):
        parser.list_of(parser.take)
        if sign:
            parser.expect(sign)
    text = " ".join(parser.tokens[start : parser.place])
    operation.attributes["dimension_numbers"] = DialectAttr("stablehlo.conv", {"text": StringAttr(text.encode())})
    parser.expect(",")
    parser.expect("window")
    parser.expect("=")
    parser.expect("{")
    names = {
        "stride": "window_strides",
        "pad": "padding",
        "lhs_dilate": "lhs_dilation",
        "rhs_dilate": "rhs_dilation",
        "reverse": "window_reversal",
    }
    while not parser.accept("}"):
        word = parser.take()
        parser.expect("=")
        if word == "pad":
            rows = np.array(parser.list_of(parser.integers), np.int64).reshape(-1, 2)
            operation.attributes["padding"] = DenseAttr(rows, TensorType(rows.shape, "i64"))
        elif word == "reverse":
            flags = np.array(parser.list_of(lambda: parser.take() in ("true", "1")), np.bool_)
            operation.attributes["window_reversal"] = DenseAttr(flags, TensorType(flags.shape, "i1"), is_array=True)
        elif word in names:
            operation.attributes[names[word]] = i64_array(parser.integers())
        else:
            parser.fail(f"a window has {', '.join(names)}, but found {word!r}", parser.place - 2)
        parser.comma_before("}")
    attributes_and_types(parser, operation)


def _custom_call(parser: Parser, operation: Operation) -> None:
    """`stablehlo.custom_call @target(%x) {...} : (T) -> U`."""
    operation.attributes["call_target_name"] = StringAttr(parser.symbol_name().encode())
    parser.expect("(")
    operation.operands = parser.operands(")")
    parser.expect(")")
    attributes_and_types(parser, operation)


def _call(parser: Parser, operation: Operation) -> None:
    """`call @f(%x) : (T) -> U`."""
    operation.name = "func.call"
    operation.attributes["callee"] = SymbolAttr((parser.symbol_name(),))
    parser.expect("(")
    operation.operands = parser.operands(")")
    parser.expect(")")
    attributes_and_types(parser, operation)


def _return(parser: Parser, operation: Operation) -> None:
    """`return %x : T`."""
    if operation.name == "return":
        operation.name = "func.return"
    plain(parser, operation)


def _composite(parser: Parser, operation: Operation) -> None:
    """`stablehlo.composite "name" %x {composite_attributes = {...}, decomposition = @f, version = 1 : i32} : ...`."""
    operation.attributes["name"] = StringAttr(unescaped(parser.take()))
    plain(parser, operation)


def _get_tuple_element(parser: Parser, operation: Operation) -> None:
    """`stablehlo.get_tuple_element %x[1] : (T) -> U`."""
    operation.operands = [parser.value()]
    (index,) = parser.integers()
    operation.attributes["index"] = IntegerAttr(index, "i32")
    attributes_and_types(parser, operation)


def _reduce_precision(parser: Parser, operation: Operation) -> None:
    """`stablehlo.reduce_precision %x, format = e5m10 : T`."""
    operation.operands = [parser.value()]
    parser.expect(",")
    parser.expect("format")
    parser.expect("=")
    word = parser.take()
    exponent, _, mantissa = word.removeprefix("e").partition("m")
    if not (word.startswith("e") and exponent.isdigit() and mantissa.isdigit()):
        parser.fail(f"a format is written like e5m10, but found {word!r}", parser.place - 1)
    operation.attributes["exponent_bits"] = IntegerAttr(int(exponent), "i32")
    operation.attributes["mantissa_bits"] = IntegerAttr(int(mantissa), "i32")
    attributes_and_types(parser, operation)


def _sharding_constraint(parser: Parser, operation: Operation) -> None:
    """`sdy.sharding_constraint %x <@mesh, [{"x"}, {}]> : T`."""
    operation.operands = [parser.value()]
    operation.attributes["sharding"] = OpaqueAttr(f"#sdy.sharding{parser.balanced()}")
    attributes_and_types(parser, operation)


def _manual_computation(parser: Parser, operation: Operation) -> None:
    """`sdy.manual_computation(%x) in_shardings=[...] out_shardings=[...] manual_axes={"x"} (%a: T) { ... } : (U) ->
    V`."""
    parser.expect("(")
    operation.operands = parser.operands(")")
    parser.expect(")")
    for name in ("in_shardings", "out_shardings", "manual_axes"):
        parser.expect(name)
        parser.expect("=")
        text = parser.balanced()
        form = f"#sdy<manual_axes{text}>" if name == "manual_axes" else f"#sdy.sharding_per_value<{text}>"
        operation.attributes[name] = OpaqueAttr(form)
    arguments: list[tuple[str, Type]] = []
    parser.expect("(")
    while not parser.accept(")"):
        label = parser.take()
        parser.expect(":")
        arguments.append((label, parser.type()))
        parser.trailing_location()
        parser.comma_before(")")
    operation.regions = [_region_of(parser, arguments)]
    attributes_and_types(parser, operation)


FORMATS: dict[str, Format] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "stablehlo.compare": _compare,
    "stablehlo.slice": _slice,
    "stablehlo.dot_general": _dot,
    "stablehlo.dot": _dot,
    "stablehlo.reduce": _reduce,
    "stablehlo.while": _while,
    "stablehlo.convolution": _convolution,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.composite": _composite,
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.reduce_precision": _reduce_precision,
    "call": _call,
    "func.call": _call,
    "return": _return,
    "func.return": _return,
    "sdy.return": _return,
    "sdy.sharding_constraint": _sharding_constraint,
    "sdy.manual_computation": _manual_computation,
}


def parse_module(text: str) -> ModuleOp:
    """The module that a text of StableHLO is.

    Raises:
        MlirSyntaxError: with the line and column of what cannot be read.
    """
    return Parser(text, FORMATS, plain).module()
