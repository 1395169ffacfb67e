"""Slices at computed places: dynamic-slice, dynamic-update-slice.

Sources: sections "DynamicSlice" and "DynamicUpdateSlice" of the XLA documents. Slices that would reach outside an array
are moved inside, as XLA does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.ops import elementwise, indexing, movement, reduction
from tinyxla.ops.op import Array, Axes, Factors, Ints, Linear, Op, Sample, Value
from tinyxla.shapes import AnyShape, Shape, element_type

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
        indexing.check_indices(name, scalar)
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
    return (dynamic_update_slice(elementwise.zeros_like(x), g, *starts),)


def _as_vectors(starts: Sequence[Value], axes: Axes, size: int) -> Value:
    """Mapped start indices as one array: the mapped axis, then one entry for each dimension."""
    wide = [elementwise.convert(s, new_element_type=element_type(np.int64)) for s in starts]
    columns = movement.in_front(wide, axes, size)
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
    window = indexing.Gather(
        offset_dims=tuple(range(rank)),
        collapsed_slice_dims=(),
        start_index_map=tuple(range(rank)),
        index_vector_dim=0,
        slice_sizes=dynamic_slice_sizes,
    )
    indices = _as_vectors(starts, tuple(start_axes), size)
    return indexing.gather.batch(size, (x, indices), (axis, 0), **window._asdict())


_PLACES: tuple[tuple[Ints, Ints, Ints], ...] = (  # sizes of an array, where a slice starts, and its sizes
    ((5,), (1,), (3,)),
    ((5,), (4,), (3,)),
    ((4, 3), (-2, 1), (2, 2)),
    ((3, 4), (1, 0), (0, 4)),
    ((), (), ()),
)


def _placed_samples() -> Iterator[tuple[Array, tuple[Array, ...], Ints]]:
    for shape, starts, sizes in _PLACES:
        yield movement.sample_values(shape), tuple(np.asarray(s, np.int32) for s in starts), sizes


def _dynamic_slice_factors(x: Shape, *starts: Shape, dynamic_slice_sizes: Ints) -> Factors:
    """Dimensions that are whole in a slice; of others, devices have what of the slice is in their part."""
    own = tuple(range(x.rank))
    cut = frozenset(d for d, n in enumerate(dynamic_slice_sizes) if n != x.dimensions[d])
    result = tuple(None if d in cut else d for d in own)
    return Factors(
        (own, *((),) * len(starts)),
        (result,),
        tuple((d, reduction.union(x.dtype)) for d in sorted(cut)),
        lambda attributes, operands, results: {"dynamic_slice_sizes": results[0]},
        communicating=cut,
    )


dynamic_slice = Op(
    "dynamic-slice",
    sharding=_dynamic_slice_factors,
    attributes=DynamicSlice,
    shape=_dynamic_slice_shape,
    evaluate=lambda x, *starts, dynamic_slice_sizes: x[_placed(x, starts, dynamic_slice_sizes)],
    derivative=Linear(_dynamic_slice_transpose, operands=(0,)),
    batch=_dynamic_slice_batch,
    samples=lambda random: (
        Sample((x, *starts), {"dynamic_slice_sizes": sizes}) for x, starts, sizes in _placed_samples()
    ),
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
    x, update = movement.in_front((x, update), axes[:2], size)
    if all(a is None for a in start_axes):
        zero = movement.full(0, starts[0].dtype if starts else np.int32)
        return dynamic_update_slice(x, update, zero, *starts), 0
    indices = _as_vectors(starts, start_axes, size)
    limits = [n - m for n, m in zip(x.shape[1:], update.shape[1:], strict=True)]
    rank = len(limits)
    places = indexing.Scatter(
        update_window_dims=tuple(range(rank)),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=tuple(range(rank)),
        index_vector_dim=0,
        unique_indices=True,
        to_apply=indexing.replacement(x.dtype),
    )
    inside = indexing.clamped(indices, 1, limits)
    return indexing.scatter.batch(size, (x, inside, update), (0, 0, 0), **places._asdict())


def _dynamic_update_slice_factors(x: Shape, update: Shape, *starts: Shape) -> Factors:
    own = tuple(range(x.rank))
    cut = frozenset(d for d, n in enumerate(update.dimensions) if n != x.dimensions[d])
    return Factors((own, own, *((),) * len(starts)), (own,), communicating=cut)


dynamic_update_slice = Op(
    "dynamic-update-slice",
    sharding=_dynamic_update_slice_factors,
    shape=_dynamic_update_slice_shape,
    evaluate=_dynamic_update_slice_evaluate,
    derivative=Linear(_dynamic_update_slice_transpose, operands=(0, 1)),
    batch=_dynamic_update_slice_batch,
    samples=lambda random: (
        Sample((x, movement.sample_values(sizes) + 50, *starts)) for x, starts, sizes in _placed_samples()
    ),
)
