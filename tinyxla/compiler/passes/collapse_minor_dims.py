"""Minor-dimension collapsing: data movement of rows of few elements (such as RGB channels) becomes movement of long
rows, by collapsing a short minor dimension with the one before it. Applies to pads, dynamic slices, gathers of
windows and elementwise operations that keep the minor dimension whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.compiler.costs import VECTOR_ELEMENTS
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace

_CollapsedOp = Callable[..., Any]


@for_opcodes("reshape", "pad", "dynamic-slice", "gather")
def collapse_minor_dims(computation: Computation) -> Computation:
    """The computation with short minor dimensions collapsed in data movement and in elementwise consumers."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name in elementwise.NAMES:
            return _collapse_elementwise(rewriter, x, operands)
        rule = _RULES.get(x.op.name)
        if rule is None or x.array_shape.size == 0 or operands[0].array_shape.size == 0:
            return None
        sizes = operands[0].array_shape.dimensions
        collapsed = rule(x, sizes) if len(sizes) > 1 and 1 < sizes[-1] < VECTOR_ELEMENTS else None
        if collapsed is None:
            return None
        body, *_ = trace(lambda *arrays: (collapsed(*arrays),), [o.shape for o in operands], "rows")
        return rewriter.splice(body, operands, lambda *_: None).operands[0]

    return rewrite(computation, visit)


def _collapse_elementwise(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    # f(reshape(x), scalars) = reshape(f(x, scalars)), which can be fused with x; dimensions of size 1 vanish, too
    sizes = x.array_shape.dimensions
    *outer, minor_but_one, minor = sizes if len(sizes) > 1 else (1, 1)
    candidates = [
        tuple(n for n in sizes if n != 1),
        *([(*outer, minor_but_one * minor)] if 1 < minor < VECTOR_ELEMENTS else []),
    ]
    collapsed_sizes = next((o.operands[0].array_shape.dimensions for o in operands if o.op is movement.reshape), sizes)
    if collapsed_sizes == sizes or collapsed_sizes not in candidates:
        return None
    is_collapsed = [
        o.op is movement.reshape and o.operands[0].array_shape.dimensions == collapsed_sizes for o in operands
    ]
    is_splat = [o.op is movement.broadcast and not o.attributes.dimensions for o in operands]
    have_same_sizes = all(o.array_shape.dimensions == sizes for o in operands)
    is_leaf = [o.op is movement.parameter or o.op is calls.get_tuple_element for o in operands]
    if not (any(is_collapsed) and have_same_sizes and all(map(any, zip(is_collapsed, is_splat, is_leaf, strict=True)))):
        return None
    inputs = [
        o.operands[0]
        if collapsed
        else rewriter.emit(movement.broadcast, o.operands[0], sizes=collapsed_sizes, dimensions=())
        if splat
        else rewriter.emit(movement.reshape, o, sizes=collapsed_sizes)
        for o, collapsed, splat in zip(operands, is_collapsed, is_splat, strict=True)
    ]
    result = rewriter.emit(x.op, *inputs, **x.attributes._asdict())
    return rewriter.emit(movement.reshape, result, sizes=sizes)


def _pad(x: Instruction, sizes: tuple[int, ...]) -> _CollapsedOp | None:
    *outer, (low, high, interior), minor = x.attributes.padding_config
    if interior or minor != (0, 0, 0):
        return None
    padding = (*outer, (low * sizes[-1], high * sizes[-1], 0))
    return lambda array, fill: _restore(x, movement.pad(_collapse(array), fill, padding_config=padding))


def _dynamic_slice(x: Instruction, sizes: tuple[int, ...]) -> _CollapsedOp | None:
    slice_sizes: tuple[int, ...] = x.attributes.dynamic_slice_sizes
    is_long = slice_sizes[-1] == sizes[-1] and slice_sizes[-2] * slice_sizes[-1] >= VECTOR_ELEMENTS
    if not is_long or not _is_wide(x.operands[1].array_shape):
        return None
    collapsed_sizes = (*slice_sizes[:-2], slice_sizes[-2] * slice_sizes[-1])

    def collapsed(array: Any, *starts: Any) -> Any:
        start = _clamp_and_scale(starts[-2], sizes[-2] - slice_sizes[-2], sizes[-1])
        result = dynamic_slices.dynamic_slice(
            _collapse(array), *starts[:-2], start, dynamic_slice_sizes=collapsed_sizes
        )
        return _restore(x, result)

    return collapsed


def _gather(x: Instruction, sizes: tuple[int, ...]) -> _CollapsedOp | None:
    a: indexing.Gather = x.attributes
    rank, axes, shape = len(sizes), list(a.start_index_map), x.operands[1].array_shape
    window = a.window(rank)
    inner_offset, minor_offset = a.offset_dims[-2:] if len(a.offset_dims) > 1 else (0, 0)
    spans_minor_dims = (
        window[-2:] == (rank - 2, rank - 1) and a.slice_sizes[-1] == sizes[-1] and minor_offset == inner_offset + 1
    )
    has_vectors = a.index_vector_dim == shape.rank - 1 and sorted(axes) == axes and len(axes) > (rank - 1 in axes)
    is_long = spans_minor_dims and a.slice_sizes[-2] * a.slice_sizes[-1] >= VECTOR_ELEMENTS
    if not is_long or not has_vectors or not _is_wide(shape):
        return None
    kept_dims = [d for d in axes if d != rank - 1]
    limits = [sizes[d] - a.slice_sizes[d] for d in kept_dims]
    attributes = a._replace(
        offset_dims=tuple(d for d in a.offset_dims if d < minor_offset),
        start_index_map=tuple(kept_dims),
        slice_sizes=(*a.slice_sizes[:-2], a.slice_sizes[-2] * a.slice_sizes[-1]),
    )

    def collapsed(array: Any, indices: Any) -> Any:
        bounds = [(0, n) for n in shape.dimensions[:-1]]
        columns = movement.slice_(
            indices,
            start_indices=(0,) * shape.rank,
            limit_indices=(*(n for _, n in bounds), len(kept_dims)),
            strides=(1,) * shape.rank,
        )
        factors = [sizes[-1] if d == rank - 2 else 1 for d in kept_dims]
        return _restore(
            x, indexing.gather(_collapse(array), _clamp_and_scale(columns, limits, factors), **attributes._asdict())
        )

    return collapsed if minor_offset == max(a.offset_dims) and minor_offset == x.array_shape.rank - 1 else None


def _is_wide(indices: Shape) -> bool:
    return indices.element_type.is_integer and indices.element_type.bits >= 32


def _clamp_and_scale(start: Any, limit: Any, factor: Any) -> Any:
    """Indices brought inside, so that what they are multiplied by does not carry them elsewhere."""
    low, high, times = (_constant(v, start) for v in (0, limit, factor))
    return elementwise.mul(elementwise.clamp(low, start, high), times)


def _constant(value: Any, like: Any) -> Any:
    array = np.asarray(value, like.dtype)
    if not array.ndim:
        return movement.full(array.item(), like.dtype, like.shape)
    vector = movement.constant(literal=Literal(array))
    return movement.broadcast(vector, sizes=like.shape, dimensions=(len(like.shape) - 1,))


def _collapse(x: Any) -> Any:
    return movement.reshape_to(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _restore(x: Instruction, result: Any) -> Any:
    return movement.reshape_to(result, x.array_shape.dimensions)


_RULES: dict[str, Callable[[Instruction, tuple[int, ...]], _CollapsedOp | None]] = {
    "pad": _pad,
    "dynamic-slice": _dynamic_slice,
    "gather": _gather,
}
