"""Shapes read from HLO text: `f32[2,3]{1,0}`, `(f32[], s32[4])`, `token[]`."""

from __future__ import annotations

import re

from tinyxla.errors import ShapeError
from tinyxla.shapes import COMBINED, OPAQUE, TOKEN, AnyShape, Layout, Shape, TupleShape, element_types
from tinyxla.text.lexer import Lexer, inside

_TYPES = {**element_types, TOKEN.name: TOKEN, OPAQUE.name: OPAQUE}
_OTHER_PROPERTY = re.compile(
    r"[A-Z#*][A-Za-z]*\([^(){}]*\)"
)  # of memory there is none of here: S(1), E(4), D(D,C), ...
_DEEPEST = 50  # tuples inside tuples
_LARGEST = (1 << 63) - 1


def read_shape(lexer: Lexer, depth: int = 0) -> AnyShape:
    """The shape that comes next."""
    if not lexer.accept("("):
        return _array(lexer)
    if depth == _DEEPEST:
        lexer.error(f"more than {_DEEPEST} tuples inside one another")
    elements: list[AnyShape] = []
    while not lexer.accept(")"):
        if elements:
            lexer.expect(",")
        elements.append(read_shape(lexer, depth + 1))
    return TupleShape(tuple(elements))


def read_program_shape(text: str) -> tuple[TupleShape, AnyShape]:
    """The shapes of parameters and result: `{(f32[2]{0}, s32[])->f32[2]{0}}`."""
    lexer = Lexer(inside(text))
    if not lexer.at("("):
        lexer.expected("the shapes of parameters in brackets")
    parameters = read_shape(lexer)
    assert isinstance(parameters, TupleShape), "it begins with a bracket"
    lexer.expect("->")
    result = read_shape(lexer)
    if not lexer.at_end():
        lexer.expected("the end of the shape of the result")
    return parameters, result


def _array(lexer: Lexer) -> Shape:
    place = lexer.place
    name = lexer.name("a shape")
    if name not in _TYPES:
        lexer.error(f"{name!r} is no element type; the types are {', '.join(_TYPES)}", place)
    sizes, dynamic = _sizes(lexer)
    if any(not 0 <= n <= _LARGEST for n in sizes):
        lexer.error(f"sizes {sizes} must be from 0 to 2^63 - 1", place)
    layout = None
    if lexer.follows("]") and lexer.accept("{"):  # with a space between it is the body of a computation
        layout = _layout(lexer, len(sizes))
    kept = None if layout == Layout.default(len(sizes)) else layout
    return Shape(_TYPES[name], sizes, kept).with_dynamic(dynamic)


def _sizes(lexer: Lexer) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Sizes, and which of them are but bounds."""
    sizes: list[int] = []
    dynamic: list[bool] = []
    lexer.expect("[")
    while not lexer.accept("]"):
        if sizes:
            lexer.expect(",")
        dynamic.append(lexer.accept("<="))
        sizes.append(lexer.integer("a size"))
    return tuple(sizes), tuple(dynamic)


def _layout(lexer: Lexer, rank: int) -> Layout:
    place = lexer.place
    order: list[int] = []
    while lexer.at_digit():
        order.append(lexer.integer("a dimension"))
        lexer.accept(",")
    if sorted(order) != list(range(rank)):
        lexer.error(f"a layout must be an order of all {rank} dimensions, but is {order}", place)
    tiles: list[tuple[int, ...]] = []
    if lexer.accept(":"):
        while not lexer.at("}"):
            if lexer.accept("T"):
                while lexer.at("("):
                    tiles.append(_tile(lexer))
            elif not lexer.accept_match(_OTHER_PROPERTY):
                lexer.expected("tiles or another property of a layout")
    lexer.expect("}")
    try:
        return Layout(tuple(order), tuple(tiles))
    except ShapeError as error:
        lexer.error(str(error).partition("\n  at ")[0], place)


def _tile(lexer: Lexer) -> tuple[int, ...]:
    sizes: list[int] = []
    lexer.expect("(")
    while not lexer.accept(")"):
        if sizes:
            lexer.expect(",")
        sizes.append(COMBINED if lexer.accept("*") else lexer.integer("the size of a tile"))
    return tuple(sizes)
