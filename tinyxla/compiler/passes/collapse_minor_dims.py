"""Movements of rows of a few elements made movements of long rows, as a pass from graph to graph: where a last
dimension is short, as that of colours, and stays whole, it is joined with the dimension before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace

SHORT = 16  # a row of fewer elements does not fill a vector

_Joined = Callable[..., Any]


@of_opcodes("reshape", "pad", "dynamic-slice", "gather")
def join_short_rows(computation: Computation) -> Computation:
    """Pads, dynamic slices and gathers of windows move rows of more elements, and what follows computes these."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name in elementwise.NAMES:
            return _sunk(rewriter, x, operands)
        rule = _RULES.get(x.op.name)
        if rule is None or x.array_shape.size == 0 or operands[0].array_shape.size == 0:
            return None
        sizes = operands[0].array_shape.dimensions
        joined = rule(x, sizes) if len(sizes) > 1 and 1 < sizes[-1] < SHORT else None
        if joined is None:
            return None
        body, *_ = trace(lambda *arrays: (joined(*arrays),), [o.shape for o in operands], "rows")
        return rewriter.splice(body, operands, lambda *_: None).operands[0]

    return rewrite(computation, visit)


def _sunk(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    # f(reshape(x), scalars) = reshape(f(x, scalars)), which joins what makes x: dimensions of size 1 go, too
    sizes = x.array_shape.dimensions
    *outer, rows, row = sizes if len(sizes) > 1 else (1, 1)
    shorter = [tuple(n for n in sizes if n != 1), *([(*outer, rows * row)] if 1 < row < SHORT else [])]
    long = next((o.operands[0].array_shape.dimensions for o in operands if o.op is movement.reshape), sizes)
    if long == sizes or long not in shorter:
        return None
    joined = [o.op is movement.reshape and o.operands[0].array_shape.dimensions == long for o in operands]
    simple = [o.op is movement.broadcast and not o.attributes.dimensions for o in operands]
    same = all(o.array_shape.dimensions == sizes for o in operands)
    free = [o.op is movement.parameter or o.op is calls.get_tuple_element for o in operands]
    if not (any(joined) and same and all(map(any, zip(joined, simple, free, strict=True)))):
        return None
    inputs = [
        o.operands[0]
        if is_joined
        else rewriter.emit(movement.broadcast, o.operands[0], sizes=long, dimensions=())
        if is_simple
        else rewriter.emit(movement.reshape, o, sizes=long)
        for o, is_joined, is_simple in zip(operands, joined, simple, strict=True)
    ]
    found = rewriter.emit(x.op, *inputs, **x.attributes._asdict())
    return rewriter.emit(movement.reshape, found, sizes=sizes)


def _pad(x: Instruction, sizes: tuple[int, ...]) -> _Joined | None:
    *outer, (low, high, gap), last = x.attributes.padding_config
    if gap or last != (0, 0, 0):
        return None
    config = (*outer, (low * sizes[-1], high * sizes[-1], 0))
    return lambda array, fill: _as(x, movement.pad(_long(array), fill, padding_config=config))


def _dynamic_slice(x: Instruction, sizes: tuple[int, ...]) -> _Joined | None:
    parts: tuple[int, ...] = x.attributes.dynamic_slice_sizes
    is_long = parts[-1] == sizes[-1] and parts[-2] * parts[-1] >= SHORT
    if not is_long or not _is_wide(x.operands[1].array_shape):
        return None
    lengths = (*parts[:-2], parts[-2] * parts[-1])

    def joined(array: Any, *starts: Any) -> Any:
        start = _scaled(starts[-2], sizes[-2] - parts[-2], sizes[-1])
        found = dynamic_slices.dynamic_slice(_long(array), *starts[:-2], start, dynamic_slice_sizes=lengths)
        return _as(x, found)

    return joined


def _gather(x: Instruction, sizes: tuple[int, ...]) -> _Joined | None:
    a: indexing.Gather = x.attributes
    rank, axes, shape = len(sizes), list(a.start_index_map), x.operands[1].array_shape
    window = a.window(rank)
    one, other = a.offset_dims[-2:] if len(a.offset_dims) > 1 else (0, 0)
    whole = window[-2:] == (rank - 2, rank - 1) and a.slice_sizes[-1] == sizes[-1] and other == one + 1
    in_vectors = a.index_vector_dim == shape.rank - 1 and sorted(axes) == axes and len(axes) > (rank - 1 in axes)
    is_long = whole and a.slice_sizes[-2] * a.slice_sizes[-1] >= SHORT
    if not is_long or not in_vectors or not _is_wide(shape):
        return None
    kept = [d for d in axes if d != rank - 1]
    limits = [sizes[d] - a.slice_sizes[d] for d in kept]
    attributes = a._replace(
        offset_dims=tuple(d for d in a.offset_dims if d < other),
        start_index_map=tuple(kept),
        slice_sizes=(*a.slice_sizes[:-2], a.slice_sizes[-2] * a.slice_sizes[-1]),
    )

    def joined(array: Any, indices: Any) -> Any:
        bounds = [(0, n) for n in shape.dimensions[:-1]]
        columns = movement.slice_(
            indices,
            start_indices=(0,) * shape.rank,
            limit_indices=(*(n for _, n in bounds), len(kept)),
            strides=(1,) * shape.rank,
        )
        factors = [sizes[-1] if d == rank - 2 else 1 for d in kept]
        return _as(x, indexing.gather(_long(array), _scaled(columns, limits, factors), **attributes._asdict()))

    return joined if other == max(a.offset_dims) and other == x.array_shape.rank - 1 else None


def _is_wide(indices: Shape) -> bool:
    return indices.element_type.is_integer and indices.element_type.bits >= 32


def _scaled(start: Any, limit: Any, factor: Any) -> Any:
    """Indices brought inside, so that what they are multiplied by does not carry them elsewhere."""
    low, high, times = (_constant(v, start) for v in (0, limit, factor))
    return elementwise.mul(elementwise.clamp(low, start, high), times)


def _constant(value: Any, like: Any) -> Any:
    array = np.asarray(value, like.dtype)
    if not array.ndim:
        return movement.full(array.item(), like.dtype, like.shape)
    vector = movement.constant(literal=Literal(array))
    return movement.broadcast(vector, sizes=like.shape, dimensions=(len(like.shape) - 1,))


def _long(x: Any) -> Any:
    return movement.reshape_to(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _as(x: Instruction, found: Any) -> Any:
    return movement.reshape_to(found, x.array_shape.dimensions)


_RULES: dict[str, Callable[[Instruction, tuple[int, ...]], _Joined | None]] = {
    "pad": _pad,
    "dynamic-slice": _dynamic_slice,
    "gather": _gather,
}
