"""Canonical form of sorts: sorts by plain order become sorts by one real key along the last dimension with at most
one payload. All others (several keys, complex keys, several payloads, other dimensions) become sorts of the
permutation, least significant key first (LSD), and gathers by it. Many short segments stay in their dimension: they
are sorted together by vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_native_type
from tinyxla.compiler.costs import LINE_BYTES, SCRATCH_BYTES, VECTOR_ELEMENTS
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, indexing, movement, sorting
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace

MAX_SHORT_ELEMENTS = SCRATCH_BYTES // (2 * LINE_BYTES)  # of segments sorted in scratch, with a payload, by vectors


@for_opcodes("sort")
def canonicalize_sorts(computation: Computation) -> Computation:
    """The computation with sorts of this form and sorts by other comparators."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        order = sorting.order_of(x.attributes.to_apply) if x.op is sorting.sort else None
        if order is None or _is_canonical(x, order):
            return None
        (axis,) = x.attributes.dimensions
        body, *_ = trace(lambda *arrays: _sorted(arrays, axis, order), [o.shape for o in operands], "sort")
        root = rewriter.splice(body, operands, lambda *_: None)
        return root if len(operands) > 1 else root.operands[0]

    return rewrite(computation, visit)


def _is_canonical(x: Instruction, order: sorting.Order) -> bool:
    key = x.operands[0].array_shape
    has_one_key = order.keys == 1 and len(x.operands) <= 2 and key.element_type.kind != "complex"
    (axis,) = x.attributes.dimensions
    return key.size == 0 or (has_one_key and (axis == key.rank - 1 or are_batched_short_keys(x.operands, axis)))


def are_batched_short_keys(arrays: Sequence[Instruction], dimension: int) -> bool:
    """True if the keys, the first array, form many short segments and fit into 64-bit words, with a 32-bit position
    if there is a payload."""
    keys, max_bits = arrays[0].array_shape, 64 if len(arrays) == 1 else 32
    type, length = keys.element_type, keys.dimensions[dimension]
    is_batch = 2 <= length <= MAX_SHORT_ELEMENTS and keys.size // length >= VECTOR_ELEMENTS
    return is_batch and type.kind != "complex" and type.bits <= max_bits and is_native_type(keys)


def _sorted(arrays: tuple[Any, ...], axis: int, order: sorting.Order) -> tuple[Any, ...]:
    last = arrays[0].ndim - 1
    rows = [movement.move_axis(x, axis, last) for x in arrays]
    keys = [real_key for key in rows[: order.keys] for real_key in _real_keys(key)]
    if len(keys) == order.keys == 1 and len(rows) <= 2:
        results = _sort_by_one_key(rows, order.descending)
    else:
        permutation = movement.iota(shape=Shape(element_type(np.int32), rows[0].shape), iota_dimension=last)
        for k, key in enumerate(reversed(keys)):
            current = indexing.take_along(key, permutation, last) if k else key
            permutation = _sort_by_one_key([current, permutation], order.descending)[1]
        results = tuple(indexing.take_along(x, permutation, last) for x in rows)
    return tuple(movement.move_axis(x, last, axis) for x in results)


def _real_keys(key: Any) -> list[Any]:
    is_complex = element_type(key.dtype).kind == "complex"
    return [elementwise.real(key), elementwise.imag(key)] if is_complex else [key]


def _sort_by_one_key(rows: list[Any], descending: bool) -> tuple[Any, ...]:
    comparator = sorting.order_computation(tuple(x.dtype for x in rows), 1, descending)
    result: Any = sorting.sort(*rows, dimensions=(rows[0].ndim - 1,), to_apply=comparator, is_stable=True)
    return result if len(rows) > 1 else (result,)
