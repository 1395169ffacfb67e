"""Sorts made simple, as a pass from graph to graph: plain orders become sorts by one key along the last dimension that
take at most one other array along. All others - several keys, complex ones, several arrays, other dimensions - become
sorts of the elements' places, by the last key first, and gathers of what they are the places of. Many short lines stay
where they are: they are sorted side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_native_type
from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, indexing, movement, sorting
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace

SHORT, MANY = 2048, 16  # elements of lines that are sorted side by side, and how many of these there must be


@of_opcodes("sort")
def canonicalize_sorts(computation: Computation) -> Computation:
    """Leave only sorts by one key along the last dimension, of at most two arrays, and those by other comparators."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        order = sorting.order_of(x.attributes.to_apply) if x.op is sorting.sort else None
        if order is None or _is_simple(x, order):
            return None
        (axis,) = x.attributes.dimensions
        body, *_ = trace(lambda *arrays: _sorted(arrays, axis, order), [o.shape for o in operands], "sort")
        root = rewriter.splice(body, operands, lambda *_: None)
        return root if len(operands) > 1 else root.operands[0]

    return rewrite(computation, visit)


def _is_simple(x: Instruction, order: sorting.Order) -> bool:
    key = x.operands[0].array_shape
    plain = order.keys == 1 and len(x.operands) <= 2 and key.element_type.kind != "complex"
    (axis,) = x.attributes.dimensions
    stays = axis == key.rank - 1 or is_side_by_side(x)
    return key.size == 0 or (plain and stays)


def is_side_by_side(x: Instruction) -> bool:
    """Whether a sort is one of many short lines by one key, so small that it goes into a word, with a place if
    another array is taken along."""
    order, keys = sorting.order_of(x.attributes.to_apply), x.operands[0].array_shape
    simple = order is not None and order.keys == 1 and len(x.operands) <= 2
    return simple and are_side_by_side(keys, x.attributes.dimensions[0], 64 if len(x.operands) == 1 else 32)


def are_side_by_side(keys: Shape, dimension: int, most_bits: int) -> bool:
    """Whether these keys are so small, and in so many and so short lines."""
    kind, length = keys.element_type, keys.dimensions[dimension]
    many = 2 <= length <= SHORT and keys.size // length >= MANY
    return many and kind.kind != "complex" and kind.bits <= most_bits and is_native_type(keys)


def _sorted(arrays: tuple[Any, ...], axis: int, order: sorting.Order) -> tuple[Any, ...]:
    last = arrays[0].ndim - 1
    rows = [movement.move_axis(x, axis, last) for x in arrays]
    keys = [part for key in rows[: order.keys] for part in _parts(key)]
    if len(keys) == order.keys == 1 and len(rows) <= 2:
        found = _simple(rows, order.descending)
    else:
        places = movement.iota(shape=Shape(element_type(np.int32), rows[0].shape), iota_dimension=last)
        for number, key in enumerate(reversed(keys)):
            current = indexing.take_along(key, places, last) if number else key
            places = _simple([current, places], order.descending)[1]
        found = tuple(indexing.take_along(x, places, last) for x in rows)
    return tuple(movement.move_axis(x, last, axis) for x in found)


def _parts(key: Any) -> list[Any]:
    is_complex = element_type(key.dtype).kind == "complex"
    return [elementwise.real(key), elementwise.imag(key)] if is_complex else [key]


def _simple(rows: list[Any], descending: bool) -> tuple[Any, ...]:
    comparator = sorting.order_computation(tuple(x.dtype for x in rows), 1, descending)
    found: Any = sorting.sort(*rows, dimensions=(rows[0].ndim - 1,), to_apply=comparator, is_stable=True)
    return found if len(rows) > 1 else (found,)
