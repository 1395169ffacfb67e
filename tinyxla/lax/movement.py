"""Functions that make arrays or move their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, OutOfBoundsError, ShapeError
from tinyxla.lax.operands import ArrayLike, DTypeLike, described, of_one_type
from tinyxla.numpy import arguments
from tinyxla.numpy.arguments import (
    array_of,
    cast,
    integer_of,
    integers_of,
    python_dtype,
    several_of,
    shape_of,
    with_flags,
)
from tinyxla.ops import movement
from tinyxla.partitioning.array import layout_of
from tinyxla.partitioning.placement import placed, placed_result
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import varying_like

Sizes = Sequence[int]


def _axes(what: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    found = tuple(canonical_axis(a, rank, what) for a in several_of(what, "dimensions", axes))
    if len(set(found)) != len(found):
        raise ShapeError(f"{what}: the dimensions {tuple(axes)} name one twice.")
    return found


# --- making arrays ----------------------------------------------------------------------------------------------------


def full(shape: int | Sizes, fill_value: ArrayLike, dtype: DTypeLike = None, *, sharding: Any = None) -> Array:
    """An array with one value everywhere.

    Args:
        shape: its sizes, or the size of a vector.
        fill_value: a scalar.
        dtype: the element type; that of the value, if None.
        sharding: where the array is to be.

    Returns:
        An array of this shape and type; weakly typed, if the value is and no type is asked for.

    Raises:
        ShapeError: a value that is no scalar, or a negative size.

    >>> from tinyxla.lax import full
    >>> full((2,), 1.5)
    Array([1.5, 1.5], dtype=float32, weak_type=True)
    """
    if sharding is not None:
        return placed("lax.full: sharding", full(shape, fill_value, dtype), sharding)
    value = array_of(fill_value, "lax.full")
    if value.ndim:
        raise ShapeError(f"lax.full: the value is a scalar, but got {described([value])}; use broadcast_in_dim.")
    if dtype is not None:
        value = cast(value, python_dtype(dtype), weak=False)
    return movement.broadcast(value, sizes=shape_of("lax.full", shape), dimensions=())


def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike = None,
    shape: Sizes | None = None,
    sharding: Any = None,
) -> Array:
    """An array with one value everywhere, of the shape and element type of x unless others are asked for.

    Args:
        x: an array, or anything with a shape and an element type.
        fill_value: a scalar.
        dtype, shape: those of the result, if they differ from those of x.
        sharding: the sharding of the result.

    Returns:
        An array.

    Raises:
        ShapeError: a value that is no scalar.

    >>> import numpy as np
    >>> from tinyxla.lax import full_like
    >>> full_like(np.zeros((2,), "int8"), 7)
    Array([7, 7], dtype=int8)
    """
    is_description = hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, np.ndarray | np.generic)
    like: Any = x if is_description else array_of(x, "lax.full_like")
    kind = like.dtype if dtype is None else dtype
    if sharding is None and shape is None and layout_of(like) is not None:
        sharding = like.sharding
    made = full(like.shape if shape is None else shape, fill_value, kind, sharding=sharding)
    return varying_like(made, like)


def zeros_like_array(x: ArrayLike) -> Array:
    """Zeros of the shape and type of x.

    Args:
        x: an array.

    Returns:
        An array of zeros.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.zeros_like_array(np.array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return full_like(x, 0)


def iota(dtype: DTypeLike, size: int) -> Array:
    """The vector 0, 1, 2, ..., size - 1 of an element type.

    Args:
        dtype: a numeric element type.
        size: the number of elements.

    Returns:
        A vector.

    Raises:
        ShapeError: a negative size.
        DTypeError: an element type that does not count, such as bool.

    >>> from tinyxla.lax import iota
    >>> iota("int32", 3)
    Array([0, 1, 2], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: DTypeLike, shape: Sizes, dimension: int, *, out_sharding: Any = None) -> Array:
    """The index along one dimension, for every element of a shape.

    Args:
        dtype: a numeric element type.
        shape: the sizes of the result.
        dimension: the dimension along which elements count.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of this element type and shape.

    Raises:
        AxisError: a dimension that the shape does not have.

    >>> from tinyxla.lax import broadcasted_iota
    >>> broadcasted_iota("int32", (2, 2), 0)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    what = "lax.broadcasted_iota"
    if out_sharding is not None:
        return placed_result(f"{what}: out_sharding", lambda: broadcasted_iota(dtype, shape, dimension), out_sharding)
    sizes = shape_of(what, shape)
    axis = canonical_axis(dimension, len(sizes), what)
    return movement.iota(shape=Shape(element_type(python_dtype(dtype)), sizes), iota_dimension=axis)


# --- broadcasting -----------------------------------------------------------------------------------------------------


def broadcast(operand: ArrayLike, sizes: Sizes, *, out_sharding: Any = None) -> Array:
    """The array repeated along new dimensions in front.

    Args:
        operand: an array.
        sizes: the sizes of the new dimensions.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the shape `(*sizes, *operand.shape)` and of the operand's type.

    Raises:
        ShapeError: a negative size.

    >>> import numpy as np
    >>> from tinyxla.lax import broadcast
    >>> broadcast(np.array([1, 2]), (2,))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result("lax.broadcast: out_sharding", lambda: broadcast(operand, sizes), out_sharding)
    x = array_of(operand, "lax.broadcast")
    new = shape_of("lax.broadcast", sizes)
    return movement.broadcast_in_dim(x, (*new, *x.shape), range(len(new), len(new) + x.ndim))  # type: ignore[return-value]


def broadcast_in_dim(
    operand: ArrayLike, shape: Sizes, broadcast_dimensions: Sizes, *, out_sharding: Any = None
) -> Array:
    """The array repeated to a shape.

    Args:
        operand: an array.
        shape: the sizes of the result.
        broadcast_dimensions: the dimension of the result that each one of the operand becomes, in ascending order.
        out_sharding: where the result is to be.

    Returns:
        An array of this shape and of the operand's type.

    Raises:
        ShapeError: sizes that differ from those of the operand, unless these are 1.

    >>> import numpy as np
    >>> from tinyxla.lax import broadcast_in_dim
    >>> broadcast_in_dim(np.array([1, 2]), (2, 2), (0,))
    Array([[1, 1],
           [2, 2]], dtype=int32)
    """
    what = "lax.broadcast_in_dim"
    if out_sharding is not None:
        return placed_result(
            f"{what}: out_sharding", lambda: broadcast_in_dim(operand, shape, broadcast_dimensions), out_sharding
        )
    x = array_of(operand, what)
    dimensions = integers_of(what, "a dimension", broadcast_dimensions)
    return movement.broadcast_in_dim(x, shape_of(what, shape), dimensions)  # type: ignore[return-value]


def broadcast_shapes(*shapes: Sizes) -> tuple[int, ...]:
    """The shape that NumPy's rules give to arrays of these shapes together.

    Args:
        *shapes: tuples of sizes.

    Returns:
        A shape.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> from tinyxla.lax import broadcast_shapes
    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    what = "lax.broadcast_shapes"
    return arguments.broadcast_shapes(what, *(shape_of(what, s) for s in shapes))


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """The array with dimensions of size 1 in front, as many as it takes.

    Args:
        x: an array.
        rank: the rank of the result.

    Returns:
        An array of the type of x.

    Raises:
        ShapeError: the array has more dimensions.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.broadcast_to_rank(np.arange(3), 3).shape
    (1, 1, 3)
    """
    value = array_of(x, "lax.broadcast_to_rank")
    rank = integer_of("lax.broadcast_to_rank", "rank", rank)
    if rank < value.ndim:
        raise ShapeError(f"lax.broadcast_to_rank: {described([value])} has more dimensions than {rank}.")
    return reshape(value, (1,) * (min(rank, 65) - value.ndim) + value.shape)  # no array has so many


# --- reshaping --------------------------------------------------------------------------------------------------------


def reshape(
    operand: ArrayLike, new_sizes: Sizes, dimensions: Sizes | None = None, *, out_sharding: Any = None
) -> Array:
    """The elements in another shape.

    Args:
        operand: an array.
        new_sizes: the sizes of the result, whose product is that of the operand's.
        dimensions: the order of the operand's dimensions in which elements are read; as they stand, if None.
        out_sharding: where the result is to be.

    Returns:
        An array of the sizes `new_sizes` and of the operand's type.

    Raises:
        ShapeError: sizes for another number of elements.

    >>> import numpy as np
    >>> from tinyxla.lax import reshape
    >>> reshape(np.arange(4), (2, 2))
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result("lax.reshape: out_sharding", lambda: reshape(operand, new_sizes, dimensions), out_sharding)
    x: Any = array_of(operand, "lax.reshape")
    if dimensions is not None:
        x = transpose(x, dimensions)
    return movement.reshape_to(x, shape_of("lax.reshape", new_sizes))  # type: ignore[return-value]


def expand_dims(array: ArrayLike, dimensions: Sizes) -> Array:
    """The array with dimensions of size 1 put in; `dimensions` says where they are in the result.

    Args:
        array: an array.
        dimensions: the positions of the new dimensions in the result.

    Returns:
        An array of the same type and elements.

    Raises:
        AxisError: a dimension that the result does not have.
        ShapeError: one that is there twice.

    >>> import numpy as np
    >>> from tinyxla.lax import expand_dims
    >>> expand_dims(np.zeros((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    x = array_of(array, "lax.expand_dims")
    wanted = several_of("lax.expand_dims", "dimensions", dimensions)
    axes = _axes("lax.expand_dims", wanted, x.ndim + len(wanted))
    sizes = list(x.shape)
    for axis in sorted(axes):
        sizes.insert(axis, 1)
    return reshape(x, sizes)


def squeeze(array: ArrayLike, dimensions: Sizes) -> Array:
    """The array without those dimensions, which have size 1.

    Args:
        array: an array.
        dimensions: the dimensions that are removed; all of size 1 if None.

    Returns:
        An array of the same type and elements.

    Raises:
        ShapeError: a dimension whose size is not 1.
        AxisError: one that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import squeeze
    >>> squeeze(np.zeros((1, 2, 1)), (0,)).shape
    (2, 1)
    """
    x = array_of(array, "lax.squeeze")
    axes = _axes("lax.squeeze", dimensions, x.ndim)
    for axis in axes:
        if x.shape[axis] != 1:
            raise ShapeError(f"lax.squeeze: dimension {axis} of {described([x])} has size {x.shape[axis]}, not 1.")
    return reshape(x, [n for d, n in enumerate(x.shape) if d not in axes])


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Consecutive dimensions, from start up to but without stop (the last one, if None), made one.

    Args:
        operand: an array.
        start_dimension: the first of the dimensions that are collapsed.
        stop_dimension: the dimension after the last one; None for all from the start on.

    Returns:
        An array of the operand's type.

    Raises:
        ShapeError: there is no dimension between them.

    >>> import numpy as np
    >>> from tinyxla.lax import collapse
    >>> collapse(np.zeros((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    x = array_of(operand, "lax.collapse")
    start, stop = (
        bound if bound is None else integer_of("lax.collapse", "a dimension", bound)
        for bound in (start_dimension, stop_dimension)
    )
    start, stop, _ = slice(start, stop).indices(x.ndim)
    if not start < stop:
        raise ShapeError(
            f"lax.collapse: of {described([x])} no dimensions lie from {start_dimension} up to {stop_dimension}."
        )
    return reshape(x, (*x.shape[:start], math.prod(x.shape[start:stop]), *x.shape[stop:]))


def transpose(operand: ArrayLike, permutation: Sizes) -> Array:
    """The array with its dimensions in another order: dimension k of the result is `permutation[k]` of the operand.

    Args:
        operand: an array.
        permutation: a permutation of the dimensions.

    Returns:
        An array of the operand's type.

    Raises:
        ShapeError: no permutation of the dimensions.

    >>> import numpy as np
    >>> from tinyxla.lax import transpose
    >>> transpose(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = array_of(operand, "lax.transpose")
    order = integers_of("lax.transpose", "a dimension", permutation)
    return movement.transpose(x, permutation=order)


def rev(operand: ArrayLike, dimensions: Sizes) -> Array:
    """The elements in reverse order along those dimensions.

    Args:
        operand: an array.
        dimensions: the dimensions that are reversed.

    Returns:
        An array of the operand's shape and type.

    Raises:
        ShapeError: a dimension that is there twice, or that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import rev
    >>> rev(np.arange(3), (0,))
    Array([2, 1, 0], dtype=int32)
    """
    x = array_of(operand, "lax.rev")
    return movement.reverse(x, dimensions=integers_of("lax.rev", "a dimension", dimensions))


# --- slices, padding, concatenation -----------------------------------------------------------------------------------


def slice_(operand: ArrayLike, start_indices: Sizes, limit_indices: Sizes, strides: Sizes | None = None) -> Array:
    """In each dimension the elements from start up to but without limit, in steps of the stride (1 unless given).

    Args:
        operand: an array.
        start_indices, limit_indices: for each dimension the first index, and the one after the last.
        strides: for each dimension the step; None for 1.

    Returns:
        An array of the operand's type and rank.

    Raises:
        ShapeError: indices outside the array (NumPy cuts such slices), a start after its limit, or lists that are not
            as long as the rank.

    >>> import numpy as np
    >>> from tinyxla.lax import slice
    >>> slice(np.arange(10), (1,), (8,), (3,))
    Array([1, 4, 7], dtype=int32)
    """
    what = "lax.slice"
    x = array_of(operand, what)
    return movement.slice_(
        x,
        start_indices=integers_of(what, "a start index", start_indices),
        limit_indices=integers_of(what, "a limit index", limit_indices),
        strides=(1,) * x.ndim if strides is None else integers_of(what, "a stride", strides),
    )


def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """A slice of one dimension. Negative indices count from the end.

    Args:
        operand: an array.
        start_index, limit_index: the first index and the one after the last; None for the start and the end of the
            dimension.
        stride: the step.
        axis: the dimension; negative ones count from the end.

    Returns:
        An array of the operand's type and rank.

    Raises:
        ShapeError: indices outside the array.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import slice_in_dim
    >>> slice_in_dim(np.arange(5), 1, -1)
    Array([1, 2, 3], dtype=int32)
    """
    what = "lax.slice_in_dim"
    x = array_of(operand, what)
    d = canonical_axis(axis, x.ndim, what)
    size = x.shape[d]
    start = 0 if start_index is None else integer_of(what, "start_index", start_index)
    limit = size if limit_index is None else integer_of(what, "limit_index", limit_index)
    start, limit = (k + size if k < 0 else k for k in (start, limit))
    return movement.slice_axis(x, d, start, limit, integer_of(what, "stride", stride))  # type: ignore[return-value]


@with_flags
def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The elements at one index of a dimension, which stays with size 1, or goes.

    Args:
        operand: an array.
        index: a Python integer; negative ones count from the end.
        axis: the dimension; negative ones count from the end.
        keepdims: whether the dimension stays, with size 1.

    Returns:
        An array of the operand's type.

    Raises:
        OutOfBoundsError: an index outside the dimension.

    >>> import numpy as np
    >>> from tinyxla.lax import index_in_dim
    >>> index_in_dim(np.arange(5), -1, keepdims=False)
    Array(4, dtype=int32)
    """
    what = "lax.index_in_dim"
    x = array_of(operand, what)
    d = canonical_axis(axis, x.ndim, what)
    k, size = integer_of(what, "index", index), x.shape[d]
    if not -size <= k < size:
        raise OutOfBoundsError(f"{what}: index {k} is out of bounds for dimension {d} of {described([x])}.")
    taken = slice_in_dim(x, k % size, k % size + 1, axis=d)
    return taken if keepdims else squeeze(taken, (d,))


def split(operand: ArrayLike, sizes: Sizes, axis: int = 0) -> list[Array]:
    """The array cut along a dimension into parts of those sizes.

    Args:
        operand: an array.
        sizes: the sizes of the parts along the axis.
        axis: the dimension; negative ones count from the end.

    Returns:
        As many arrays as sizes.

    Raises:
        ShapeError: sizes whose sum is not that of the dimension.

    >>> import numpy as np
    >>> from tinyxla.lax import split
    >>> split(np.arange(5), (2, 3))
    [Array([0, 1], dtype=int32), Array([2, 3, 4], dtype=int32)]
    """
    x = array_of(operand, "lax.split")
    d = canonical_axis(axis, x.ndim, "lax.split")
    parts = shape_of("lax.split", sizes)
    if sum(parts) != x.shape[d]:
        raise ShapeError(
            f"lax.split: the sizes {parts} make {sum(parts)}, but dimension {d} of {described([x])} differs."
        )
    ends = np.cumsum(parts).tolist()
    return [slice_in_dim(x, end - size, end, axis=d) for end, size in zip(ends, parts, strict=True)]


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """A value put around the elements and between them: for each dimension how often (before, after, between).

    Negative numbers before and after take elements away.

    Args:
        operand: an array.
        padding_value: a scalar of the operand's type.
        padding_config: for each dimension a triple (low, high, interior).

    Returns:
        An array of the operand's type and rank.

    Raises:
        ShapeError: another number of triples than dimensions, or a negative number between.
        DTypeError: a value of another element type.

    >>> import numpy as np
    >>> from tinyxla.lax import pad
    >>> pad(np.array([1, 2]), 0, [(1, 0, 2)])
    Array([0, 1, 0, 0, 2], dtype=int32)
    """
    what = "lax.pad"
    x, value = of_one_type(what, operand, padding_value)
    low_high_interior = tuple(
        integers_of(what, "(low, high, interior) of padding_config", entry, 3)
        for entry in several_of(what, "padding_config", padding_config)
    )
    return movement.pad(x, value, padding_config=low_high_interior)


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Arrays put one after the other along a dimension.

    Args:
        operands: arrays of one type and rank.
        dimension: the dimension along which they are concatenated.

    Returns:
        An array whose size along the dimension is the sum of theirs.

    Raises:
        ShapeError: sizes of other dimensions that differ.
        DTypeError: different element types; `numpy.concatenate` promotes.
        ArgumentError: no arrays.

    >>> import numpy as np
    >>> from tinyxla.lax import concatenate
    >>> concatenate([np.array([1, 2]), np.array([3])], 0)
    Array([1, 2, 3], dtype=int32)
    """
    operands = several_of("lax.concatenate", "operands", operands)
    if not operands:
        raise ArgumentError("lax.concatenate takes at least one array, but got none.")
    arrays = of_one_type("lax.concatenate", *operands)
    d = canonical_axis(dimension, arrays[0].ndim, "lax.concatenate")
    return movement.concatenate(*arrays, dimension=d)
