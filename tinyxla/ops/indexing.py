"""Slices at computed places: dynamic-slice, dynamic-update-slice, gather, scatter.

Sources: sections "DynamicSlice", "DynamicUpdateSlice", "Gather" and "Scatter" of the XLA documents. Slices that would
reach outside an array are moved inside, as XLA does; updates by scatter that would are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.ops.op import (
    ByAttributes,
    Cotangent,
    Decomposition,
    Derivative,
    Linear,
    NotDifferentiable,
    Op,
    Rules,
    Sample,
    Value,
    Zero,
)
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Axes = tuple[int | None, ...]
T = TypeVar("T")


def _check_indices(name: str, shape: Shape) -> None:
    if not shape.element_type.is_integer:
        raise DTypeError(f"{name}: indices must be integers, but got {shape}; convert them.")


def _zero_like(x: Value) -> Value:
    return movement.full(0, x.dtype, x.shape)


# --- dynamic-slice ----------------------------------------------------------------------------------------------------


class DynamicSlice(NamedTuple):
    dynamic_slice_sizes: Ints


def _check_starts(name: str, x: Shape, starts: Sequence[AnyShape]) -> None:
    if len(starts) != x.rank:
        raise ShapeError(
            f"{name}: there must be {x.rank} start indices for {x}, but got {len(starts)}; give one for each dimension."
        )
    for start in starts:
        scalar = movement.array_operand(name, start)
        _check_indices(name, scalar)
        if scalar.rank:
            raise ShapeError(f"{name}: a start index must be a scalar, but got {scalar}; reshape it.")
    if len(set(map(str, starts))) > 1:
        raise DTypeError(f"{name}: start indices must have one type, but got {list(starts)}; convert them.")


def _dynamic_slice_shape(x: AnyShape, *starts: AnyShape, dynamic_slice_sizes: Ints) -> Shape:
    shape = movement.array_operand("dynamic-slice", x)
    _check_starts("dynamic-slice", shape, starts)
    if len(dynamic_slice_sizes) != shape.rank or any(
        not 0 <= n <= size for n, size in zip(dynamic_slice_sizes, shape.dimensions, strict=True)
    ):
        raise ShapeError(f"dynamic-slice: dynamic_slice_sizes must fit inside {shape}, but got {dynamic_slice_sizes}.")
    return shape.with_dimensions(dynamic_slice_sizes)


def _placed(x: Array, starts: Sequence[Array], sizes: Ints) -> tuple[slice, ...]:
    """The slice, moved inside the array."""
    first = [min(max(int(start), 0), n - size) for start, n, size in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))


def _dynamic_slice_transpose(g: Value, x: Value, *starts: Value, dynamic_slice_sizes: Ints) -> tuple[Value]:
    return (dynamic_update_slice(_zero_like(x), g, *starts),)


def _as_vectors(starts: Sequence[Value], axes: Axes, size: int) -> Value:
    """Mapped start indices as one array: the mapped axis, then one entry for each dimension."""
    wide = [elementwise.convert(s, new_element_type=element_type(np.int64)) for s in starts]
    columns = [movement.align_axis(s, a, 0, size) for s, a in zip(wide, axes, strict=True)]
    parts = [movement.reshape_to(column, (size, 1)) for column in columns]
    if not parts:
        return movement.full(0, np.int64, (size, 0))
    return parts[0] if len(parts) == 1 else movement.concatenate(*parts, dimension=1)


def _dynamic_slice_batch(
    size: int, operands: tuple[Value, ...], axes: Axes, *, dynamic_slice_sizes: Ints
) -> tuple[Value, int]:
    x, *starts = operands
    axis, *start_axes = axes
    if all(a is None for a in start_axes):
        assert axis is not None
        zero = movement.full(0, starts[0].dtype if starts else np.int32)
        sizes = (*dynamic_slice_sizes[:axis], size, *dynamic_slice_sizes[axis:])
        return dynamic_slice(x, *starts[:axis], zero, *starts[axis:], dynamic_slice_sizes=sizes), axis
    rank = len(starts)
    window = Gather(
        offset_dims=tuple(range(rank)),
        collapsed_slice_dims=(),
        start_index_map=tuple(range(rank)),
        index_vector_dim=0,
        slice_sizes=dynamic_slice_sizes,
    )
    return _gather_batch(size, (x, _as_vectors(starts, tuple(start_axes), size)), (axis, 0), **window._asdict())


def _dynamic_slice_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, starts, sizes in (
        ((5,), (1,), (3,)),
        ((5,), (4,), (3,)),
        ((4, 3), (-2, 1), (2, 2)),
        ((3, 4), (1, 0), (0, 4)),
        ((), (), ()),
    ):
        indices = tuple(np.asarray(s, np.int32) for s in starts)
        yield Sample((movement.sample_values(shape), *indices), {"dynamic_slice_sizes": sizes})


dynamic_slice = Op(
    "dynamic-slice",
    attributes=DynamicSlice,
    shape=_dynamic_slice_shape,
    evaluate=lambda x, *starts, dynamic_slice_sizes: x[_placed(x, starts, dynamic_slice_sizes)],
    derivative=Linear(_dynamic_slice_transpose, operands=(0,)),
    batch=_dynamic_slice_batch,
    samples=_dynamic_slice_samples,
)

# --- dynamic-update-slice ---------------------------------------------------------------------------------------------


def _dynamic_update_slice_shape(x: AnyShape, update: AnyShape, *starts: AnyShape) -> Shape:
    shape, part = (movement.array_operand("dynamic-update-slice", v) for v in (x, update))
    if part.element_type is not shape.element_type:
        raise DTypeError(
            f"dynamic-update-slice: operand and update must have one type, but got {shape} and {part}; convert one."
        )
    if part.rank != shape.rank or any(n > size for n, size in zip(part.dimensions, shape.dimensions, strict=True)):
        raise ShapeError(f"dynamic-update-slice: the update must fit inside {shape}, but got {part}.")
    _check_starts("dynamic-update-slice", shape, starts)
    return shape


def _dynamic_update_slice_evaluate(x: Array, update: Array, *starts: Array) -> Array:
    out = np.array(x)
    out[_placed(x, starts, update.shape)] = update
    return out


def _dynamic_update_slice_transpose(g: Value, x: Value, update: Value, *starts: Value) -> tuple[Value, Value]:
    kept = dynamic_update_slice(g, movement.full(0, g.dtype, update.shape), *starts)
    return kept, dynamic_slice(g, *starts, dynamic_slice_sizes=update.shape)


def _dynamic_update_slice_batch(size: int, operands: tuple[Value, ...], axes: Axes) -> tuple[Value, int]:
    x, update, *starts = operands
    start_axes = axes[2:]
    x, update = (movement.align_axis(v, a, 0, size) for v, a in zip((x, update), axes[:2], strict=True))
    if all(a is None for a in start_axes):
        zero = movement.full(0, starts[0].dtype if starts else np.int32)
        return dynamic_update_slice(x, update, zero, *starts), 0
    indices = _as_vectors(starts, start_axes, size)
    limits = [n - m for n, m in zip(x.shape[1:], update.shape[1:], strict=True)]
    rank = len(limits)
    places = Scatter(
        update_window_dims=tuple(range(rank)),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=tuple(range(rank)),
        index_vector_dim=0,
        unique_indices=True,
        to_apply=replacement(x.dtype),
    )
    inside = _clamped(indices, 1, limits)
    return _scatter_batch(size, (x, inside, update), (0, 0, 0), **places._asdict())


def _clamped(indices: Value, vector_dim: int, limits: Sequence[int]) -> Value:
    """Index vectors, moved between 0 and the limit of each of their entries."""
    bounds = np.asarray(limits).astype(indices.dtype)
    low = movement.full(0, indices.dtype, indices.shape)
    high = movement.broadcast(_constant(bounds), sizes=indices.shape, dimensions=(vector_dim,))
    return elementwise.clamp(low, indices, high)


def _constant(value: Array) -> Value:
    return movement.constant(literal=Literal(value))


def _dynamic_update_slice_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, sizes, starts in (
        ((5,), (3,), (1,)),
        ((5,), (3,), (4,)),
        ((4, 3), (2, 2), (-2, 1)),
        ((3, 4), (0, 4), (1, 0)),
        ((), (), ()),
    ):
        indices = tuple(np.asarray(s, np.int32) for s in starts)
        yield Sample((movement.sample_values(shape), movement.sample_values(sizes) + 50, *indices))


dynamic_update_slice = Op(
    "dynamic-update-slice",
    shape=_dynamic_update_slice_shape,
    evaluate=_dynamic_update_slice_evaluate,
    derivative=Linear(_dynamic_update_slice_transpose, operands=(0, 1)),
    batch=_dynamic_update_slice_batch,
    samples=_dynamic_update_slice_samples,
)

# --- gather -----------------------------------------------------------------------------------------------------------


class Gather(NamedTuple):
    offset_dims: Ints  # of the result: those that run inside a slice
    collapsed_slice_dims: Ints  # of the operand: of size 1 in a slice, and left out
    start_index_map: Ints  # of the operand: the dimension that each entry of an index vector is for
    index_vector_dim: int  # of the indices: the one that runs along an index vector
    slice_sizes: Ints
    operand_batching_dims: Ints = ()  # of the operand, and ...
    start_indices_batching_dims: Ints = ()  # ... of the indices: those that run together
    indices_are_sorted: bool = False


def window_dims(rank: int, *others: Ints) -> Ints:
    """The dimensions of an operand that run inside a slice."""
    return tuple(d for d in range(rank) if not any(d in other for other in others))


def batch_and_window(parts: Sequence[T], offset_dims: Ints) -> tuple[list[T], list[T]]:
    """Of something that each dimension of slices side by side has: that of the batch, and that of the window."""
    return [c for d, c in enumerate(parts) if d not in offset_dims], [parts[d] for d in offset_dims]


def batching_pairs(operand_dims: Ints, index_dims: Ints, vector_dim: int) -> list[tuple[int, int]]:
    """Dimensions of the operand and of the batch that run together."""
    return list(zip(operand_dims, _index_batch_dims(index_dims, vector_dim), strict=True))


def _index_sizes(indices: Any, vector_dim: int) -> Ints:
    """The sizes of the indices without the dimension of the index vectors, which may be implicit."""
    sizes = tuple(indices)
    return sizes[:vector_dim] + sizes[vector_dim + 1 :]


def _check_index_vectors(name: str, indices: Shape, vector_dim: int, index_map: Ints) -> None:
    _check_indices(name, indices)
    if not 0 <= vector_dim <= indices.rank:
        raise ShapeError(
            f"{name}: index_vector_dim must be from 0 to the rank of the indices {indices}, but got {vector_dim}."
        )
    length = indices.dimensions[vector_dim] if vector_dim < indices.rank else 1
    if len(index_map) != length:
        raise ShapeError(
            f"{name}: there must be a dimension of the operand for each of the {length} entries of an index vector of "
            f"{indices}, along dimension {vector_dim}, but got {index_map}."
        )


def _check_sorted(name: str, attribute: str, dimensions: Ints) -> None:
    if list(dimensions) != sorted(dimensions):
        raise ShapeError(f"{name}: {attribute} must ascend, but got {dimensions}; sort them.")


def _check_batching(name: str, operand: Shape, dims: Ints, indices: Shape, index_dims: Ints, vector_dim: int) -> None:
    if len(dims) != len(index_dims):
        raise ShapeError(
            f"{name}: the operand and the indices must have as many batching dimensions, "
            f"but got {dims} and {index_dims}."
        )
    movement.check_dimensions(name, "the indices' batching dimensions", index_dims, indices.rank)
    for d, i in zip(dims, index_dims, strict=True):
        if i == vector_dim:
            raise ShapeError(
                f"{name}: dimension {i} of the indices runs along index vectors and must not be a batching dimension."
            )
        if operand.dimensions[d] != indices.dimensions[i]:
            raise ShapeError(
                f"{name}: batching dimension {d} of {operand} and {i} of the indices {indices} must have one size."
            )


def _gather_shape(x: AnyShape, start_indices: AnyShape, **attributes: Any) -> Shape:
    operand, indices = (movement.array_operand("gather", v) for v in (x, start_indices))
    a = Gather(**attributes)
    _check_index_vectors("gather", indices, a.index_vector_dim, a.start_index_map)
    out = (*a.collapsed_slice_dims, *a.operand_batching_dims)
    movement.check_dimensions("gather", "collapsed and batching dimensions", out, operand.rank)
    movement.check_dimensions(
        "gather", "start_index_map and batching", (*a.start_index_map, *a.operand_batching_dims), operand.rank
    )
    for name in ("offset_dims", "collapsed_slice_dims", "operand_batching_dims"):
        _check_sorted("gather", name, getattr(a, name))
    _check_batching(
        "gather", operand, a.operand_batching_dims, indices, a.start_indices_batching_dims, a.index_vector_dim
    )
    if len(a.slice_sizes) != operand.rank or any(
        not 0 <= n <= size for n, size in zip(a.slice_sizes, operand.dimensions, strict=True)
    ):
        raise ShapeError(f"gather: slice_sizes must fit inside {operand}, but got {a.slice_sizes}.")
    batch = _index_sizes(indices.dimensions, a.index_vector_dim)
    for d in out:
        if a.slice_sizes[d] != 1 and (a.slice_sizes[d] or math.prod(batch)):
            raise ShapeError(
                f"gather: slice_sizes must be 1 in dimension {d}, which is collapsed or of a batch, but got "
                f"{a.slice_sizes}."
            )
    window = window_dims(operand.rank, *(a.collapsed_slice_dims, a.operand_batching_dims))
    if len(window) != len(a.offset_dims):
        raise ShapeError(
            f"gather: offset_dims must be {len(window)}, one for each of {window} in slices, but got {a.offset_dims}."
        )
    rank = len(batch) + len(window)
    movement.check_dimensions("gather", "offset_dims", a.offset_dims, rank)
    return operand.with_dimensions(_interleaved(batch, [a.slice_sizes[d] for d in window], a.offset_dims))


def _interleaved(batch: Sequence[int], window: Sequence[int], offset_dims: Ints) -> Ints:
    """Sizes of which those of the window stand at `offset_dims`."""
    outer, inner = iter(batch), iter(window)
    rank = len(batch) + len(window)
    return tuple(next(inner) if d in offset_dims else next(outer) for d in range(rank))


def _vectors(indices: Array, vector_dim: int) -> Array:
    """The index vectors along the last axis, as numbers that do not overflow."""
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    wide = np.minimum(indices, 1 << 62) if indices.dtype == np.uint64 else indices
    return np.moveaxis(wide, vector_dim, -1).astype(np.int64)


class _Places(NamedTuple):
    """Where elements of slices are in an operand, in NumPy's terms.

    The operand is to be transposed to `order`: first the dimensions that are indexed, then those that slices have
    whole.
    """

    order: Ints
    indices: tuple[Array, ...]  # of the former dimensions; they broadcast to the batch and the window's sizes
    window: Ints  # the window dimensions (of the operand) of the indices, and ...
    whole: Ints  # ... those that are not indexed


def _places(
    operand: Ints, starts: Array, index_map: Ints, window: Ints, sizes: Ints, batching: Ints, index_batching: Ints
) -> _Places:
    """`starts` has the batch dimensions, then index vectors; `sizes` are those of slices along all dimensions."""
    batch = starts.ndim - 1
    whole = tuple(d for d in window if d not in index_map and sizes[d] == operand[d])
    inner = tuple(d for d in window if d not in whole)
    rank = batch + len(inner)
    order: list[int] = []
    indices: list[Array] = []
    for d in range(len(operand)):
        if d in whole:
            continue
        place: Array = np.zeros((1,) * rank, np.int64)
        if d in index_map:
            entry = starts[..., index_map.index(d)]
            place = place + entry.reshape(entry.shape + (1,) * len(inner))
        if d in batching:
            along = index_batching[batching.index(d)]
            place = place + np.arange(operand[d]).reshape([-1 if k == along else 1 for k in range(rank)])
        if d in inner:
            along = batch + inner.index(d)
            place = place + np.arange(sizes[d]).reshape([-1 if k == along else 1 for k in range(rank)])
        order.append(d)
        indices.append(place)
    return _Places((*order, *whole), tuple(indices), inner, whole)


def _index_batch_dims(dims: Ints, vector_dim: int) -> Ints:
    """Dimensions of the indices, counted without that of the index vectors."""
    return tuple(d - (d > vector_dim) for d in dims)


def _gather_evaluate(x: Array, start_indices: Array, **attributes: Any) -> Array:
    a = Gather(**attributes)
    window = window_dims(x.ndim, a.collapsed_slice_dims, a.operand_batching_dims)
    starts = _vectors(start_indices, a.index_vector_dim)
    last = [x.shape[d] - a.slice_sizes[d] for d in a.start_index_map]
    starts = np.clip(starts, 0, np.asarray(last, np.int64))
    batching = _index_batch_dims(a.start_indices_batching_dims, a.index_vector_dim)
    places = _places(x.shape, starts, a.start_index_map, window, a.slice_sizes, a.operand_batching_dims, batching)
    batch = starts.shape[:-1]
    sizes = (*batch, *(a.slice_sizes[d] for d in places.window))
    ordered = x.transpose(places.order)
    if 0 in batch or 0 in a.slice_sizes:
        taken = np.zeros((*sizes, *(x.shape[d] for d in places.whole)), x.dtype)
    else:
        taken = np.broadcast_to(ordered[places.indices], (*sizes, *(x.shape[d] for d in places.whole)))
    made = (*places.window, *places.whole)  # the operand's dimensions behind the batch, as they stand now
    axes = [len(batch) + made.index(d) for d in window]
    return taken.transpose(_interleaved(range(len(batch)), axes, a.offset_dims))


def _gather_transpose(g: Value, x: Value, start_indices: Value, **attributes: Any) -> tuple[Value]:
    a = Gather(**attributes)
    limits = [x.shape[d] - a.slice_sizes[d] for d in a.start_index_map]
    if a.index_vector_dim == start_indices.ndim:
        start_indices = movement.reshape_to(start_indices, (*start_indices.shape, 1))
    inside = _clamped(start_indices, a.index_vector_dim, limits)
    return (
        scatter(_zero_like(x), inside, g, **_scatter_like(a, reduction.scalar_computation("add", g.dtype))._asdict()),
    )


def _scatter_like(a: Gather, to_apply: Computation) -> Scatter:
    """The scatter that writes where a gather reads."""
    return Scatter(
        update_window_dims=a.offset_dims,
        inserted_window_dims=a.collapsed_slice_dims,
        scatter_dims_to_operand_dims=a.start_index_map,
        index_vector_dim=a.index_vector_dim,
        input_batching_dims=a.operand_batching_dims,
        scatter_indices_batching_dims=a.start_indices_batching_dims,
        indices_are_sorted=a.indices_are_sorted,
        to_apply=to_apply,
    )


def _later(dimensions: Ints) -> Ints:
    """Dimension numbers of an array that has got one more in front."""
    return tuple(d + 1 for d in dimensions)


def _gather_batch(size: int, operands: tuple[Value, Value], axes: Axes, **attributes: Any) -> tuple[Value, int]:
    (x, indices), (axis, index_axis) = operands, axes
    a = Gather(**attributes)
    if axis is not None:
        x = movement.move_axis(x, axis, 0)
        a = a._replace(
            collapsed_slice_dims=_later(a.collapsed_slice_dims),
            start_index_map=_later(a.start_index_map),
            operand_batching_dims=_later(a.operand_batching_dims),
        )
    if index_axis is None:  # every slice has the mapped dimension whole
        both = a._replace(offset_dims=(0, *_later(a.offset_dims)), slice_sizes=(size, *a.slice_sizes))
        return gather(x, indices, **both._asdict()), 0
    indices = movement.move_axis(indices, index_axis, 0)
    a = a._replace(
        offset_dims=_later(a.offset_dims),
        index_vector_dim=a.index_vector_dim + 1,
        start_indices_batching_dims=_later(a.start_indices_batching_dims),
        indices_are_sorted=False,
    )
    if axis is not None:  # the mapped dimensions run together
        a = a._replace(
            slice_sizes=(min(1, size), *a.slice_sizes),
            operand_batching_dims=(0, *a.operand_batching_dims),
            start_indices_batching_dims=(0, *a.start_indices_batching_dims),
        )
    return gather(x, indices, **a._asdict()), 0


_GATHERS: tuple[tuple[Ints, Any, Gather], ...] = (
    ((5,), [[3], [0], [9], [-1]], Gather((), (0,), (0,), 1, (1,))),
    ((5,), [3, 0, 3], Gather((), (0,), (0,), 1, (1,))),
    ((4, 3), [[2], [0]], Gather((1,), (0,), (0,), 1, (1, 3))),
    ((4, 3), [[2], [0]], Gather((0,), (1,), (1,), 1, (4, 1))),
    ((4, 3), [[2, 1], [0, 7], [3, -4]], Gather((), (0, 1), (0, 1), 1, (1, 1))),
    ((4, 5), [[0, 3, 1], [2, 4, -1]], Gather((1, 2), (), (1, 0), 0, (2, 3))),
    ((2, 4, 3), [[[2], [0]], [[1], [1]]], Gather((2,), (1,), (1,), 2, (1, 1, 3), (0,), (0,))),
    ((3, 2, 4), [[[2, 0, 1], [1, 3, 3]]], Gather((1,), (2,), (2,), 0, (1, 2, 1), (0,), (2,))),
    ((4, 3), [[0], [2]], Gather((0, 2), (), (0,), 1, (2, 3))),
    ((4, 0), [[0], [2]], Gather((1,), (0,), (0,), 1, (1, 0))),
)


def _gather_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, indices, attributes in _GATHERS:
        yield Sample((movement.sample_values(shape), np.asarray(indices, np.int32)), attributes._asdict())


gather = Op(
    "gather",
    attributes=Gather,
    shape=_gather_shape,
    evaluate=_gather_evaluate,
    derivative=Linear(_gather_transpose, operands=(0,)),
    batch=_gather_batch,
    samples=_gather_samples,
)

# --- scatter ----------------------------------------------------------------------------------------------------------


class Scatter(NamedTuple):
    update_window_dims: Ints  # of the updates: those that run inside a slice
    inserted_window_dims: Ints  # of the operand: of size 1 in a slice, and left out
    scatter_dims_to_operand_dims: Ints  # of the operand: the dimension that each entry of an index vector is for
    index_vector_dim: int  # of the indices
    to_apply: Computation  # of an element so far and its update: the new element
    input_batching_dims: Ints = ()  # of the operand, and ...
    scatter_indices_batching_dims: Ints = ()  # ... of the indices: those that run together
    indices_are_sorted: bool = False
    unique_indices: bool = False


@cache
def replacement(dtype: Any) -> Computation:
    """The computation that takes the update: what scatter replaces elements with."""
    shape = Shape(element_type(dtype))
    x, y = (Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k in (0, 1))
    return Computation("replacement", [x, y], [x, y], y)


def _thirds(operands: Sequence[Any]) -> tuple[list[Any], Any, list[Any]]:
    """Operands, indices, updates."""
    count = len(operands) // 2
    return list(operands[:count]), operands[count], list(operands[count + 1 :])


def _scatter_shape(*shapes: AnyShape, **attributes: Any) -> AnyShape:
    a = Scatter(**attributes)
    if len(shapes) < 3 or len(shapes) % 2 == 0:
        raise ShapeError(f"scatter: operands must be arrays, indices, and as many updates, but got {len(shapes)}.")
    arrays, indices, updates = _thirds([movement.array_operand("scatter", s) for s in shapes])
    first = arrays[0]
    _check_index_vectors("scatter", indices, a.index_vector_dim, a.scatter_dims_to_operand_dims)
    out = (*a.inserted_window_dims, *a.input_batching_dims)
    mapped = (*a.scatter_dims_to_operand_dims, *a.input_batching_dims)
    movement.check_dimensions("scatter", "inserted and batching dimensions", out, first.rank)
    movement.check_dimensions("scatter", "scattered and batching dimensions", mapped, first.rank)
    for name in ("update_window_dims", "inserted_window_dims", "input_batching_dims"):
        _check_sorted("scatter", name, getattr(a, name))
    _check_batching(
        "scatter", first, a.input_batching_dims, indices, a.scatter_indices_batching_dims, a.index_vector_dim
    )
    window = window_dims(first.rank, a.inserted_window_dims, a.input_batching_dims)
    batch = _index_sizes(indices.dimensions, a.index_vector_dim)
    if len(window) != len(a.update_window_dims):
        raise ShapeError(
            f"scatter: update_window_dims must be {len(window)}, one for each of {window} in slices, but got "
            f"{a.update_window_dims}."
        )
    movement.check_dimensions("scatter", "update_window_dims", a.update_window_dims, len(batch) + len(window))
    for x, update in zip(arrays, updates, strict=True):
        if x.dimensions != first.dimensions or update.dimensions != updates[0].dimensions:
            raise ShapeError(f"scatter: operands must have one shape, and updates too, but got {arrays} and {updates}.")
        if x.element_type is not update.element_type:
            raise DTypeError(f"scatter: updates of {x} must have its element type, but got {update}; convert them.")
    sizes = (
        [updates[0].dimensions[d] for d in a.update_window_dims] if updates[0].rank == len(batch) + len(window) else []
    )
    if len(sizes) != len(window) or any(n > first.dimensions[d] for n, d in zip(sizes, window, strict=True)):
        raise ShapeError(
            f"scatter: updates must have the dimensions of the indices {indices} and of slices inside {first}, but got "
            f"{updates[0]}."
        )
    if updates[0].dimensions != _interleaved(batch, sizes, a.update_window_dims):
        raise ShapeError(
            f"scatter: updates must have the sizes {batch} of the indices {indices}, but got {updates[0]}."
        )
    scalars = [Shape(x.element_type) for x in arrays]
    if a.to_apply.parameter_shapes != scalars * 2 or [x.shape for x in a.to_apply.outputs] != scalars:
        got = f"{a.to_apply.parameter_shapes} -> {[x.shape for x in a.to_apply.outputs]}"
        raise ShapeError(f"scatter: the computation must map {scalars * 2} to {scalars}, but got {got}.")
    return TupleShape(tuple(arrays)) if isinstance(a.to_apply.root.shape, TupleShape) else first


def _is_replacement(computation: Computation) -> bool:
    return len(computation.parameters) == 2 and computation.root is computation.parameters[1]


def _scatter_evaluate(*operands: Array, **attributes: Any) -> Any:
    a = Scatter(**attributes)
    arrays, indices, updates = _thirds(operands)
    shape = arrays[0].shape
    window = window_dims(len(shape), a.inserted_window_dims, a.input_batching_dims)
    starts = _vectors(indices, a.index_vector_dim)
    batch = starts.ndim - 1
    outer = [d for d in range(updates[0].ndim) if d not in a.update_window_dims]
    sizes = [1] * len(shape)
    for d, k in zip(window, a.update_window_dims, strict=True):
        sizes[d] = updates[0].shape[k]
    batching = _index_batch_dims(a.scatter_indices_batching_dims, a.index_vector_dim)
    last = np.asarray([shape[d] - sizes[d] for d in a.scatter_dims_to_operand_dims], np.int64)
    inside = np.all((starts >= 0) & (starts <= last), axis=-1)
    places = _places(
        shape, starts, a.scatter_dims_to_operand_dims, window, tuple(sizes), a.input_batching_dims, batching
    )
    behind = [a.update_window_dims[window.index(d)] for d in (*places.window, *places.whole)]
    rows = [u.transpose(*outer, *behind) for u in updates]
    grid = rows[0].shape[: batch + len(places.window)]
    where = [np.broadcast_to(i, grid)[inside] for i in places.indices]  # the batch becomes one axis
    rows = [u[inside] for u in rows]
    results = [np.array(x) for x in arrays]
    views = [x.transpose(places.order) for x in results]
    _apply_updates(views, tuple(where), rows, a.to_apply)
    return tuple(results) if isinstance(a.to_apply.root.shape, TupleShape) else results[0]


def _apply_updates(views: list[Array], where: tuple[Array, ...], rows: list[Array], to_apply: Computation) -> None:
    """Update views of the results in place; of updates of one element, later ones come later."""
    if not rows[0].size:
        return
    ufunc = reduction.ufunc_of(to_apply, views[0].dtype)
    if not where:  # slices are whole arrays
        for k in range(rows[0].shape[0]):
            _combine_at(views, (), [u[k] for u in rows], to_apply)
    elif _is_replacement(to_apply):
        views[0][where] = rows[0]
    elif ufunc:
        ufunc.at(views[0], where, rows[0])
    else:
        for chosen in _rounds(where, views[0].shape):
            at = tuple(i.reshape(-1)[chosen] for i in where)
            flat = [u.reshape(where[0].size, *u.shape[where[0].ndim :])[chosen] for u in rows]
            _combine_at(views, at, flat, to_apply)


def _combine_at(views: list[Array], at: tuple[Array, ...], updates: list[Array], to_apply: Computation) -> None:
    old = [np.asarray(v[at]) for v in views]
    for view, new in zip(views, calls.evaluate_elements(to_apply, [*old, *updates]), strict=True):
        view[at] = new


def _rounds(where: tuple[Array, ...], shape: Ints) -> Iterator[Array]:
    """Groups of updates in which no element occurs twice; the first has the first update of each element, and so on."""
    flat = np.ravel_multi_index([i.reshape(-1) for i in where], shape[: len(where)])  # type: ignore[call-overload]
    order = np.argsort(flat, kind="stable")
    sorted_places = flat[order]
    first = np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]])
    starts = np.flatnonzero(first)
    number = np.arange(flat.size) - np.repeat(starts, np.diff(np.append(starts, flat.size)))
    for k in range(int(number.max()) + 1):
        yield order[number == k]


def _gather_like(a: Scatter, x: Value, updates: Value) -> Gather:
    """The gather that reads where a scatter writes."""
    window = window_dims(x.ndim, a.inserted_window_dims, a.input_batching_dims)
    sizes = [min(1, n) for n in x.shape]
    for d, k in zip(window, a.update_window_dims, strict=True):
        sizes[d] = updates.shape[k]
    return Gather(
        offset_dims=a.update_window_dims,
        collapsed_slice_dims=a.inserted_window_dims,
        start_index_map=a.scatter_dims_to_operand_dims,
        index_vector_dim=a.index_vector_dim,
        slice_sizes=tuple(sizes),
        operand_batching_dims=a.input_batching_dims,
        start_indices_batching_dims=a.scatter_indices_batching_dims,
        indices_are_sorted=a.indices_are_sorted,
    )


def _read(source: Value, indices: Value, updates: Value, a: Scatter) -> Value:
    """What `source` has where the updates go; zero for those that are left out."""
    like = _gather_like(a, source, updates)
    taken = gather(source, indices, **like._asdict())
    return elementwise.select(_inside(source, indices, updates, a), taken, _zero_like(taken))


def _inside(x: Value, indices: Value, updates: Value, a: Scatter) -> Value:
    """Which updates are not left out."""
    like = _gather_like(a, x, updates)
    limits = [x.shape[d] - like.slice_sizes[d] for d in like.start_index_map]
    if a.index_vector_dim == indices.ndim:
        indices = movement.reshape_to(indices, (*indices.shape, 1))
    kept = elementwise.eq(indices, _clamped(indices, a.index_vector_dim, limits))
    every = reduction.reduce_and(kept, (a.index_vector_dim,))
    outer = tuple(d for d in range(updates.ndim) if d not in a.update_window_dims)
    return movement.broadcast(every, sizes=updates.shape, dimensions=outer)


def _with(a: Scatter, op: str, dtype: Any) -> dict[str, Any]:
    return a._replace(to_apply=reduction.scalar_computation(op, dtype))._asdict()


def _add_transpose(g: Value, x: Value, indices: Value, updates: Value, **attributes: Any) -> tuple[Value, Value]:
    return g, _read(g, indices, updates, Scatter(**attributes))


def _replace_transpose(g: Value, x: Value, indices: Value, updates: Value, **attributes: Any) -> tuple[Value, Value]:
    """An element that is replaced has no part any more, and of several updates of one only the last has."""
    a = Scatter(**attributes)
    kept = scatter(g, indices, movement.full(0, g.dtype, updates.shape), **attributes)
    taken = _read(g, indices, updates, a)
    if a.unique_indices:
        return kept, taken
    number = movement.iota(shape=Shape(element_type(np.int32), (updates.size,)), iota_dimension=0)
    number = movement.reshape_to(number, updates.shape)
    none = movement.full(-1, np.int32, x.shape)
    winners = scatter(none, indices, number, **a._replace(to_apply=replacement(np.int32))._asdict())
    last = elementwise.eq(_read(winners, indices, updates, a), number)
    return kept, elementwise.select(last, taken, _zero_like(taken))


class _Products(NamedTuple):
    """A scatter that multiplies: factors by which the tangent of the operand, and those of the updates, count."""

    of_operand: Value
    of_updates: Value


def _products(x: Value, indices: Value, updates: Value, a: Scatter) -> _Products:
    """Each update's factor is the product of all others at its element, also if some are zero: it is the product of
    those that are not zero, divided by it, if no other is zero."""
    one, zero = movement.full(1, x.dtype, x.shape), _zero_like(x)
    is_zero = elementwise.eq(updates, _zero_like(updates))
    safe = elementwise.select(is_zero, movement.full(1, x.dtype, updates.shape), updates)
    counted = elementwise.convert(is_zero, new_element_type=element_type(np.int32))
    zeros = scatter(movement.full(0, np.int32, x.shape), indices, counted, **_with(a, "add", np.int32))
    product = scatter(one, indices, safe, **_with(a, "multiply", x.dtype))
    none = elementwise.eq(zeros, movement.full(0, np.int32, x.shape))
    of_operand = elementwise.select(none, product, zero)
    whole = _read(elementwise.mul(x, product), indices, updates, a)
    others = elementwise.sub(_read(zeros, indices, updates, a), counted)
    alone = elementwise.eq(others, movement.full(0, np.int32, updates.shape))
    of_updates = elementwise.select(alone, elementwise.div(whole, safe), _zero_like(updates))
    return _Products(of_operand, of_updates)


def _shares(ans: Value, x: Value, indices: Value, updates: Value, a: Scatter) -> tuple[Value, Value]:
    """A scatter that takes extrema: those that are the extremum share the derivative equally."""
    kind = element_type(x.dtype)
    hits = elementwise.convert(elementwise.eq(x, ans), new_element_type=kind)
    equal = elementwise.eq(updates, _read(ans, indices, updates, a))
    inside = _inside(x, indices, updates, a)
    update_hits = elementwise.convert(elementwise.and_(equal, inside), new_element_type=kind)
    count = scatter(hits, indices, update_hits, **_with(a, "add", x.dtype))
    count = elementwise.max_(count, movement.full(1, x.dtype, x.shape))
    per_update = elementwise.select(inside, _read(count, indices, updates, a), movement.full(1, x.dtype, updates.shape))
    return elementwise.div(hits, count), elementwise.div(update_hits, per_update)


def _factors(ans: Value, x: Value, indices: Value, updates: Value, a: Scatter) -> tuple[Value, Value]:
    if reduction.monoid(a.to_apply) == "multiply":
        return _products(x, indices, updates, a)
    return _shares(ans, x, indices, updates, a)


def _factor_jvp(
    tangents: tuple[Cotangent, ...], ans: Value, x: Value, indices: Value, updates: Value, **attributes: Any
) -> Value:
    a = Scatter(**attributes)
    by_operand, by_updates = _factors(ans, x, indices, updates, a)
    moved = elementwise.chain_mul(tangents[0], by_operand) if tangents[0] is not None else _zero_like(ans)
    if tangents[2] is None:
        return moved
    return scatter(moved, indices, elementwise.chain_mul(tangents[2], by_updates), **_with(a, "add", x.dtype))


def _factor_vjp(
    g: Value, ans: Value, x: Value, indices: Value, updates: Value, **attributes: Any
) -> tuple[Cotangent, ...]:
    a = Scatter(**attributes)
    by_operand, by_updates = _factors(ans, x, indices, updates, a)
    to_updates = elementwise.chain_mul(_read(g, indices, updates, a), by_updates)
    return elementwise.chain_mul(g, by_operand), None, to_updates


def _scatter_derivative(**attributes: Any) -> Derivative:
    a = Scatter(**attributes)
    if not any(element_type(x.array_shape.dtype).is_inexact for x in a.to_apply.outputs):
        return Zero()
    op = reduction.monoid(a.to_apply)
    if _is_replacement(a.to_apply):
        return Linear(_replace_transpose, operands=(0, 2))
    if op == "add":
        return Linear(_add_transpose, operands=(0, 2))
    if op in ("multiply", "maximum", "minimum"):
        return Rules(_factor_jvp, _factor_vjp)
    if a.unique_indices:
        return Decomposition(_apart)
    return NotDifferentiable(
        "scatter has derivatives if it replaces, adds, multiplies or takes extrema, or if unique_indices is set, but "
        f"{a.to_apply.name} may meet an element several times"
    )


def _apart(*operands: Value, **attributes: Any) -> Any:
    """A scatter that meets no element twice: what is there is read, all of it is updated, and put back."""
    a = Scatter(**attributes)
    arrays, indices, updates = _thirds(operands)
    inside = _inside(arrays[0], indices, updates[0], a)
    old = [_read(x, indices, u, a) for x, u in zip(arrays, updates, strict=True)]
    new = [elementwise.select(inside, u, _zero_like(u)) for u in updates]
    sizes = updates[0].shape
    count = updates[0].size
    flat = [movement.reshape_to(x, (count,)) for x in (*old, *new)]
    found, axes = calls.inline_batched(a.to_apply, count, flat, (0,) * len(flat))
    several = isinstance(found, tuple)
    pairs = zip(found, axes, strict=True) if several else ((found, axes),)
    aligned = [movement.reshape_to(movement.align_axis(y, d, 0, count), sizes) for y, d in pairs]
    results = tuple(
        scatter(x, indices, y, **a._replace(to_apply=replacement(x.dtype))._asdict())
        for x, y in zip(arrays, aligned, strict=True)
    )
    return results if several else results[0]


def _scatter_batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Any, Any]:
    a = Scatter(**attributes)
    arrays, indices, updates = _thirds(operands)
    array_axes, index_axis, update_axes = _thirds(axes)
    arrays = [movement.align_axis(x, d, 0, size) for x, d in zip(arrays, array_axes, strict=True)]
    updates = [movement.align_axis(x, d, 0, size) for x, d in zip(updates, update_axes, strict=True)]
    a = a._replace(
        inserted_window_dims=_later(a.inserted_window_dims),
        scatter_dims_to_operand_dims=_later(a.scatter_dims_to_operand_dims),
        input_batching_dims=_later(a.input_batching_dims),
        update_window_dims=_later(a.update_window_dims),
    )
    if index_axis is None:  # every update has the mapped dimension whole
        a = a._replace(update_window_dims=(0, *a.update_window_dims))
    else:  # the mapped dimensions run together
        indices = movement.move_axis(indices, index_axis, 0)
        a = a._replace(
            index_vector_dim=a.index_vector_dim + 1,
            input_batching_dims=(0, *a.input_batching_dims),
            scatter_indices_batching_dims=(0, *_later(a.scatter_indices_batching_dims)),
            indices_are_sorted=False,
        )
    result = scatter(*arrays, indices, *updates, **a._asdict())
    return result, (0,) * len(arrays) if isinstance(result, tuple) else 0


def _scatter_samples(random: np.random.Generator) -> Iterator[Sample]:
    for op in ("add", "multiply", "maximum", "minimum", "replacement"):
        for shape, given, like in _GATHERS:
            x, indices = movement.sample_values(shape), np.asarray(given, np.int32)
            sizes = _gather_shape(Shape.of(x), Shape.of(indices), **like._asdict()).dimensions
            updates = movement.sample_values(sizes) / 2 + 0.25
            computation = replacement(x.dtype) if op == "replacement" else reduction.scalar_computation(op, x.dtype)
            yield Sample((x, indices, updates.astype(x.dtype)), _scatter_like(like, computation)._asdict())
    like = Gather((), (0,), (0,), 1, (1,))
    x, indices, updates = np.arange(5, dtype=np.int32), np.asarray([[1], [1], [4]], np.int32), np.full(3, 6, np.int32)
    for op in ("and", "or", "xor", "subtract"):
        yield Sample((x, indices, updates), _scatter_like(like, reduction.scalar_computation(op, np.int32))._asdict())
    apart = _scatter_like(like, reduction.scalar_computation("subtract", np.float32))._replace(unique_indices=True)
    x = movement.sample_values((5,))
    yield Sample((x, np.asarray([[3], [9], [0]], np.int32), movement.sample_values((3,)) / 2), apart._asdict())


scatter = Op(
    "scatter",
    attributes=Scatter,
    shape=_scatter_shape,
    evaluate=_scatter_evaluate,
    derivative=ByAttributes(_scatter_derivative),
    batch=_scatter_batch,
    samples=_scatter_samples,
)


def take_along(x: Value, indices: Value, axis: int) -> Value:
    """The elements of x whose places along an axis `indices` has, which has the sizes of x along all other axes."""
    return gather(x, indices, **_along(x, indices, axis)._asdict())


def add_along(updates: Value, like: Value, indices: Value, axis: int) -> Value:
    """The transpose: an array like another one, with zeros but for updates added at places along an axis."""
    return _gather_transpose(updates, like, indices, **_along(like, indices, axis)._asdict())[0]


def _along(x: Value, indices: Value, axis: int) -> Gather:
    others = tuple(d for d in range(x.ndim) if d != axis)
    return Gather(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        index_vector_dim=indices.ndim,
        slice_sizes=tuple(min(1, n) for n in x.shape),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
