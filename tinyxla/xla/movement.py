"""Functions that make arrays and tuples, or move elements.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError
from tinyxla.hlo import Literal
from tinyxla.ops import Value, dynamic_sizes, dynamic_slices, indexing, movement
from tinyxla.shapes import AnyShape, Layout, Shape
from tinyxla.util.binding import bind
from tinyxla.xla.builder import Tree, XlaBuilder, shape_of
from tinyxla.xla.computation import XlaComputation
from tinyxla.xla.dimension_numbers import GatherDimensionNumbers, PaddingConfig, ScatterDimensionNumbers
from tinyxla.xla.functions import Values, alias, builder_function, checked_array, integers
from tinyxla.xla.layouts import LayoutUtil

# --- parameters, constants, tuples ------------------------------------------------------------------------------------


@builder_function(parameter_number="number", parameter_num="number")
def Parameter(builder: XlaBuilder, number: int, shape: AnyShape, name: str = "") -> Tree:
    """An argument of the computation, numbered from 0 on: an array, or a nested tuple.

    Args:
        number: the number of the argument.
        shape: its shape.
        name: its name.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: a number that is negative, or that another parameter of the builder has.

    >>> from tinyxla.xla import F32, Mul, Parameter, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder("square")
    >>> x = Parameter(b, 0, ShapeUtil.MakeShape(F32, []), "x")
    >>> b.Build(Mul(x, x))
    <XlaComputation square(x: f32[]) -> f32[]>
    """
    return builder.add_parameter(number, shape, name)


_PYTHON_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int32, float: np.float32, complex: np.complex64}


def _constant(literal: Any, layout: Layout | None = None) -> Tree:
    if isinstance(literal, tuple):
        if layout is not None:
            raise ShapeError(
                f"ConstantLiteral: layout must be that of an array, but is {layout} for a tuple; leave it out."
            )
        return tuple(map(_constant, literal))
    value = np.array(literal, _PYTHON_DTYPES.get(type(literal)))
    value.setflags(write=False)
    made: Any = movement.constant(literal=Literal(value))
    if layout is not None:
        made.instruction.shape = LayoutUtil.WithLayout(made.instruction.shape, layout)
    return made


@builder_function(value="literal")
def ConstantLiteral(builder: XlaBuilder, literal: Any, layout: Layout | None = None) -> Tree:
    """A constant: a NumPy array in its own type, a Python number as pred, s32, f32 or c64, or a tuple of these. An
    array may have a layout.

    Args:
        literal: a NumPy array, a number, or a tuple of them.
        layout: the layout of the array.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import ConstantLiteral, XlaBuilder
    >>> b = XlaBuilder()
    >>> [ConstantLiteral(b, x).shape for x in (3, 3.0, np.float64([3, 4]), (True, 1j))]
    [s32[], f32[], f64[2], (pred[], c64[])]
    """
    return _constant(literal, layout)


Constant = alias("Constant", ConstantLiteral)


@builder_function()
def Iota(builder: XlaBuilder, shape: Shape, iota_dimension: int) -> Value:
    """An array whose elements count up from 0 along a dimension.

    Args:
        shape: the shape of the result.
        iota_dimension: the dimension along which elements count.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import S32, Iota, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Iota(b, ShapeUtil.MakeShape(S32, [2, 3]), iota_dimension=1))()
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    return movement.iota(shape=shape, iota_dimension=iota_dimension)


@builder_function(operands="elements")
def Tuple(builder: XlaBuilder, elements: list[Tree]) -> Tree:
    """A tuple of arrays and tuples.

    Args:
        elements: arrays and tuples.

    Returns:
        An `XlaOp`, a tuple.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import Tuple, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Tuple(b, [b.Constant(1.0), Tuple(b, [b.Constant(2), b.Constant(True)])]))()
    (Array(1., dtype=float32), (Array(2, dtype=int32), Array(True, dtype=bool)))
    """
    return tuple(elements)


@builder_function()
def GetTupleElement(builder: XlaBuilder, tuple_data: Tree, index: int) -> Tree:
    """An element of a tuple.

    Args:
        tuple_data: a tuple.
        index: the number of the element.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: an operand that is an array.
        OutOfBoundsError: an index that is none of the tuple's.

    >>> from tinyxla.xla import GetTupleElement, XlaBuilder
    >>> b = XlaBuilder()
    >>> GetTupleElement(b.Constant((1.0, 2, True)), 1)
    <XlaOp s32[] of computation>
    """
    if not isinstance(tuple_data, tuple):
        raise ShapeError(f"GetTupleElement: tuple_data must be a tuple, but is the array {shape_of(tuple_data)}.")
    if not 0 <= index < len(tuple_data):
        raise OutOfBoundsError(f"GetTupleElement: index must be from 0 to {len(tuple_data) - 1}, but is {index}.")
    return tuple_data[index]


# --- broadcasting and reshaping ---------------------------------------------------------------------------------------


@builder_function(sizes="broadcast_sizes")
def Broadcast(builder: XlaBuilder, operand: Value, broadcast_sizes: Sequence[int]) -> Value:
    """Copies of an array along new dimensions on the left.

    Args:
        operand: an array.
        broadcast_sizes: the sizes of the new dimensions.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import Broadcast, XlaBuilder
    >>> b = XlaBuilder()
    >>> Broadcast(b.Constant(np.zeros((2, 3), np.float32)), [4, 5])
    <XlaOp f32[4,5,2,3] of computation>
    """
    sizes = (*broadcast_sizes, *operand.shape)
    return movement.broadcast(operand, sizes=sizes, dimensions=tuple(range(len(broadcast_sizes), len(sizes))))


@builder_function(shape="out_dim_size", out_dim_sizes="out_dim_size")
def BroadcastInDim(
    builder: XlaBuilder, operand: Value, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Value:
    """Copies of an array along new dimensions anywhere, and along its dimensions of size 1.

    Dimension k of the operand becomes dimension `broadcast_dimensions[k]` of the result, whose sizes are
    `out_dim_size`.

    Args:
        operand: an array.
        out_dim_size: the sizes of the result.
        broadcast_dimensions: the dimension of the result that each one of the operand becomes.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: sizes that differ from those of the operand and are not expanded from 1.

    >>> import numpy as np
    >>> from tinyxla.xla import BroadcastInDim, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(BroadcastInDim(b.Constant(np.int32([1, 2])), [2, 3], broadcast_dimensions=[0]))()
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    return movement.broadcast_in_dim(operand, out_dim_size, broadcast_dimensions)


@builder_function()
def Reshape(
    builder: XlaBuilder,
    operand: Any,
    dimensions: Any = None,
    new_sizes: Sequence[int] | None = None,
    shape: Shape | None = None,
) -> Value:
    """The elements of an array in other dimensions.

    `Reshape(operand, dimensions)`, or `Reshape(shape, operand)` with an explicit target. On older pages also
    `Reshape(operand, dimensions, new_sizes)`, where the dimensions are first brought in this order, from major to
    minor, and `Reshape(operand, new_sizes=...)`.

    Args:
        operand: an array.
        dimensions, new_sizes: the sizes of the result, and the order of dimensions.
        shape: the shape of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: dimensions for another number of elements.
        DTypeError: a target `shape` with another element type.

    >>> import numpy as np
    >>> from tinyxla.xla import Reshape, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = b.Constant(np.arange(6, dtype=np.int32).reshape(2, 3))
    >>> b.Build(Reshape(x, [3, 2]))()
    Array([[0, 1],
           [2, 3],
           [4, 5]], dtype=int32)
    >>> b.Build(Reshape(x, [1, 0], [6]))()
    Array([0, 3, 1, 4, 2, 5], dtype=int32)
    """
    if isinstance(operand, Shape):
        shape, operand = operand, dimensions
        dimensions = None
    x = checked_array(builder, "Reshape: operand", operand)
    if shape is not None:
        if shape.dtype != x.dtype:
            raise DTypeError(f"Reshape: shape must have the element type of the operand {Shape.of(x)}, but is {shape}.")
        return movement.reshape_to(x, shape.dimensions)
    if new_sizes is None:
        return movement.reshape(x, sizes=integers("Reshape: dimensions", dimensions))
    if dimensions is not None:
        x = movement.transpose(x, permutation=integers("Reshape: dimensions", dimensions))
    return movement.reshape(x, sizes=integers("Reshape: new_sizes", new_sizes))


@builder_function()
def Collapse(builder: XlaBuilder, operand: Value, dimensions: Sequence[int]) -> Value:
    """Consecutive dimensions, which are given in order, as one.

    Args:
        operand: an array.
        dimensions: consecutive dimensions.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: dimensions that are not consecutive.

    >>> import numpy as np
    >>> from tinyxla.xla import Collapse, XlaBuilder
    >>> b = XlaBuilder()
    >>> Collapse(b.Constant(np.zeros((2, 3, 4, 5), np.float32)), [1, 2])
    <XlaOp f32[2,12,5] of computation>
    """
    if not dimensions:
        return operand
    first, end = dimensions[0], dimensions[0] + len(dimensions)
    if tuple(dimensions) != tuple(range(first, end)) or not 0 <= first < end <= operand.ndim:
        raise ShapeError(
            f"Collapse: dimensions must be consecutive ones of {Shape.of(operand)} in order, but are {dimensions}."
        )
    sizes = operand.shape
    return movement.reshape_to(operand, (*sizes[:first], math.prod(sizes[first:end]), *sizes[end:]))


@builder_function()
def Transpose(builder: XlaBuilder, operand: Value, permutation: Sequence[int]) -> Value:
    """The dimensions in another order: dimension k of the result is dimension `permutation[k]` of the operand.

    Args:
        operand: an array.
        permutation: a permutation of the dimensions.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import Transpose, XlaBuilder
    >>> b = XlaBuilder()
    >>> Transpose(b.Constant(np.zeros((2, 3, 4), np.float32)), [2, 0, 1])
    <XlaOp f32[4,2,3] of computation>
    """
    return movement.transpose(operand, permutation=permutation)


@builder_function()
def Rev(builder: XlaBuilder, operand: Value, dimensions: Sequence[int]) -> Value:
    """The elements in reverse order along some dimensions.

    Args:
        operand: an array.
        dimensions: the dimensions that are reversed.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import Rev, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Rev(b.Constant(np.int32([[1, 2], [3, 4]])), [1]))()
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return movement.reverse(operand, dimensions=dimensions)


Reverse = alias("Reverse", Rev)

# --- slices, padding, concatenation -----------------------------------------------------------------------------------


def _edges(config: Any) -> tuple[tuple[int, ...], ...]:
    if isinstance(config, PaddingConfig):
        return tuple((d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in config.dimensions)
    try:
        rows = tuple(integers("Pad: padding_config", row) for row in config)
    except TypeError:
        rows = ((),)
    if any(len(row) != 3 for row in rows):
        raise ArgumentError(
            "Pad: padding_config must be a PaddingConfig, or (low, high, interior) for each dimension, but is "
            f"{config!r}."
        )
    return rows


@builder_function()
def Pad(builder: XlaBuilder, operand: Value, padding_value: Value, padding_config: Any) -> Value:
    """An array with padding between its elements and then at its edges, where a negative number removes elements.

    `padding_config` is a `PaddingConfig`, or (low, high, interior) for each dimension.

    Args:
        operand: an array.
        padding_value: a scalar.
        padding_config: a `PaddingConfig`, or triples.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: another number of triples than dimensions, a negative interior padding, or a padding value that is
            no scalar of the element type.

    >>> import numpy as np
    >>> from tinyxla.xla import Pad, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, zero = b.Constant(np.int32([1, 2, 3])), b.Constant(0)
    >>> b.Build(Pad(x, zero, [(1, 2, 1)]))()
    Array([0, 1, 0, 2, 0, 3, 0, 0], dtype=int32)
    >>> b.Build(Pad(x, zero, [(0, -1, 0)]))()
    Array([1, 2], dtype=int32)
    """
    return movement.pad(operand, padding_value, padding_config=_edges(padding_config))


@builder_function()
def PadInDim(builder: XlaBuilder, operand: Value, padding_value: Value, dimno: int, pad_lo: int, pad_hi: int) -> Value:
    """Padding at the edges of one dimension.

    Args:
        operand: an array.
        padding_value: a scalar.
        dimno: a dimension of the array.
        pad_lo, pad_hi: the elements before and after.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import PadInDim, XlaBuilder
    >>> b = XlaBuilder()
    >>> PadInDim(b.Constant(np.zeros((2, 3), np.float32)), b.Constant(0.0), dimno=1, pad_lo=2, pad_hi=0)
    <XlaOp f32[2,5] of computation>
    """
    movement.check_dimensions("PadInDim", "dimno", (dimno,), operand.ndim)
    config = tuple((pad_lo, pad_hi, 0) if d == dimno else (0, 0, 0) for d in range(operand.ndim))
    return movement.pad(operand, padding_value, padding_config=config)


@builder_function()
def Slice(
    builder: XlaBuilder,
    operand: Value,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Value:
    """The elements from `start_indices` up to, but without, `limit_indices`, by `strides` (1 unless given).

    Args:
        operand: an array.
        start_indices, limit_indices: for each dimension the first index, and the one after the last.
        strides: for each dimension the step.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: indices outside the array, or a list that is not as long as the rank.

    >>> import numpy as np
    >>> from tinyxla.xla import Slice, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Slice(b.Constant(np.arange(10, dtype=np.int32)), [1], [8], [3]))()
    Array([1, 4, 7], dtype=int32)
    """
    steps = (1,) * operand.ndim if strides is None else strides
    return movement.slice_(operand, start_indices=start_indices, limit_indices=limit_indices, strides=steps)


@builder_function()
def SliceInDim(
    builder: XlaBuilder, operand: Value, start_index: int, limit_index: int, stride: int, dimno: int
) -> Value:
    """A slice of one dimension.

    Args:
        operand: an array.
        start_index, limit_index: the first index, and the one after the last.
        stride: the step.
        dimno: a dimension of the array.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import SliceInDim, XlaBuilder
    >>> b = XlaBuilder()
    >>> SliceInDim(b.Constant(np.zeros((4, 10), np.float32)), start_index=1, limit_index=8, stride=3, dimno=1)
    <XlaOp f32[4,3] of computation>
    """
    movement.check_dimensions("SliceInDim", "dimno", (dimno,), operand.ndim)
    return movement.slice_axis(operand, dimno, start_index, limit_index, stride)


def _starts(given: Values) -> list[Value]:
    """Start indices as scalars: they are given as such, or as one array of one dimension."""
    if len(given) == 1 and given[0].ndim == 1:
        vector = given[0]
        return [movement.reshape(movement.slice_axis(vector, 0, k, k + 1), sizes=()) for k in range(vector.size)]
    return list(given)


@builder_function(size_indices="slice_sizes")
def DynamicSlice(builder: XlaBuilder, operand: Value, start_indices: Values, slice_sizes: Sequence[int]) -> Value:
    """A slice of given sizes that starts at indices known when it runs, moved inside the array where it is not.

    `start_indices` is a list of one scalar for each dimension, or one array of one dimension.

    Args:
        operand: an array.
        start_indices: scalars, or an array of them.
        slice_sizes: the sizes of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import DynamicSlice, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(DynamicSlice(b.Constant(np.arange(5, dtype=np.int32)), [b.Constant(4)], [3]))()  # moved inside
    Array([2, 3, 4], dtype=int32)
    """
    starts = _starts(start_indices)
    return dynamic_slices.dynamic_slice(operand, *starts, dynamic_slice_sizes=slice_sizes)


@builder_function()
def DynamicUpdateSlice(builder: XlaBuilder, operand: Value, update: Value, start_indices: Values) -> Value:
    """The operand with `update` written at `start_indices`, moved inside the array where it is not.

    Args:
        operand: an array.
        update: an array of the operand's rank.
        start_indices: scalars, or an array of them.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import DynamicUpdateSlice, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, update = b.Constant(np.zeros(5, np.int32)), b.Constant(np.int32([1, 2]))
    >>> b.Build(DynamicUpdateSlice(x, update, [b.Constant(1)]))()
    Array([0, 1, 2, 0, 0], dtype=int32)
    """
    return dynamic_slices.dynamic_update_slice(operand, update, *_starts(start_indices))


@builder_function()
def ConcatInDim(builder: XlaBuilder, operands: Values, dimension: int) -> Value:
    """Arrays one after the other along a dimension.

    Args:
        operands: arrays of one element type.
        dimension: a dimension of the arrays.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: sizes of other dimensions that differ.
        DTypeError: different element types.

    >>> import numpy as np
    >>> from tinyxla.xla import ConcatInDim, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, y = (b.Constant(np.zeros((n, 3), np.float32)) for n in (2, 5))
    >>> ConcatInDim(b, [x, y], 0)
    <XlaOp f32[7,3] of computation>
    """
    return movement.concatenate(*operands, dimension=dimension)


Concatenate = alias("Concatenate", ConcatInDim)
Concat = alias("Concat", ConcatInDim)

# --- dynamic sizes ----------------------------------------------------------------------------------------------------


@builder_function()
def GetDimensionSize(builder: XlaBuilder, operand: Value, dimension: int) -> Value:
    """The size of a dimension, as an s32; of a dynamic one, that which it has when the program runs.

    Args:
        operand: an array.
        dimension: a dimension of the array.

    Returns:
        An `XlaOp`, a scalar.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import GetDimensionSize, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = b.SetDimensionSize(b.Constant(np.zeros((2, 5), np.float32)), b.Constant(3), 1)
    >>> b.Build(GetDimensionSize(x, 1))()
    Array(3, dtype=int32)
    """
    return dynamic_sizes.get_dimension_size(operand, dimensions=(dimension,))


@builder_function()
def SetDimensionSize(builder: XlaBuilder, operand: Value, val: Value, dimension: int) -> Value:
    """The operand with a dimension whose size is known only when the program runs. The size so far is its bound, and
    elements beyond the new one do not count.

    Args:
        operand: an array.
        val: a scalar s32, the size.
        dimension: a dimension of the array.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import SetDimensionSize, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = SetDimensionSize(b.Constant(np.float32([1, 2, 3])), b.Constant(2), 0)
    >>> x
    <XlaOp f32[<=3] of computation>
    >>> b.Build(x)()
    Array([1., 2.], dtype=float32)
    """
    return dynamic_sizes.set_dimension_size(operand, val, dimensions=(dimension,))


@builder_function()
def DynamicReshape(
    builder: XlaBuilder,
    operand: Value,
    dim_sizes: Values,
    new_size_bounds: Sequence[int],
    dims_are_dynamic: Sequence[bool],
) -> Value:
    """`Reshape` to sizes that are known only when the program runs, and are no more than their bounds.

    Args:
        operand: an array.
        dim_sizes: scalars, the sizes.
        new_size_bounds: the bounds of the sizes.
        dims_are_dynamic: for each dimension whether its size may be less than the bound.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import DynamicReshape, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = b.SetDimensionSize(b.Constant(np.arange(6, dtype=np.int32)), b.Constant(4), 0)
    >>> y = DynamicReshape(x, [b.Constant(2), b.Constant(2)], new_size_bounds=[3, 2], dims_are_dynamic=[True, False])
    >>> y
    <XlaOp s32[<=3,2] of computation>
    >>> b.Build(y)()
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    return dynamic_sizes.dynamic_reshape(
        operand,
        *dim_sizes,
        sizes=new_size_bounds,
        dims_are_dynamic=tuple(map(bool, dims_are_dynamic)),
    )


# --- gather and scatter -----------------------------------------------------------------------------------------------


def _gather(
    operand: Value,
    start_indices: Value,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    indices_are_sorted: bool = False,
) -> Value:
    d = dimension_numbers
    return indexing.gather(
        operand,
        start_indices,
        offset_dims=tuple(d.offset_dims),
        collapsed_slice_dims=tuple(d.collapsed_slice_dims),
        start_index_map=tuple(d.start_index_map),
        index_vector_dim=d.index_vector_dim,
        slice_sizes=integers("Gather: slice_sizes", slice_sizes),
        operand_batching_dims=tuple(d.operand_batching_dims),
        start_indices_batching_dims=tuple(d.start_indices_batching_dims),
        indices_are_sorted=indices_are_sorted,
    )


@builder_function()
def Gather(
    builder: XlaBuilder,
    operand: Value,
    start_indices: Value,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    indices_are_sorted: bool = False,
) -> Value:
    """Slices of an array that start at the index vectors in another.

    Args:
        operand: the array that is read.
        start_indices: integers, the index vectors along `dimension_numbers.index_vector_dim`.
        dimension_numbers: `GatherDimensionNumbers`.
        slice_sizes: the size of slices in each dimension of the operand; what would reach outside is moved inside.
        indices_are_sorted: whether the caller promises that; results do not depend on it.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import Gather, GatherDimensionNumbers, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, rows = b.Constant(np.arange(6, dtype=np.int32).reshape(3, 2)), b.Constant(np.int32([2, 0, 2]))
    >>> numbers = GatherDimensionNumbers([1], [0], [0], index_vector_dim=1)
    >>> b.Build(Gather(x, rows, numbers, slice_sizes=[1, 2]))()
    Array([[4, 5],
           [0, 1],
           [4, 5]], dtype=int32)
    """
    return _gather(operand, start_indices, dimension_numbers, slice_sizes, indices_are_sorted)


@builder_function(start_indices="gather_indices")
def gather(builder: XlaBuilder, operand: Value, gather_indices: Value, *args: Any, **named: Any) -> Value:
    """`Gather`; or, as an older page has it, with `output_window_dims`, `elided_window_dims`, `window_bounds`,
    `gather_dims_to_operand_dims` and `index_vector_dim` (the last dimension of the indices unless given).

    Args:
        operand: an array.
        gather_indices: integers, the index vectors.
        *args, **named: as for `Gather`, or the names above.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import XlaBuilder, gather
    >>> b = XlaBuilder()
    >>> x, rows = b.Constant(np.zeros((3, 2), np.float32)), b.Constant(np.zeros((4, 1), np.int32))
    >>> gather(x, rows, [1], [0], [1, 2], [0])
    <XlaOp f32[4,2] of computation>
    """
    newest = any(isinstance(x, GatherDimensionNumbers) for x in (*args, *named.values()))
    function = _gather if newest else _gather_window
    signature = inspect.signature(function)
    bound = bind(f"gather{signature}", signature, (operand, gather_indices, *args), named)
    return function(*bound.args, **bound.kwargs)


def _gather_window(
    operand: Value,
    gather_indices: Value,
    output_window_dims: Sequence[int],
    elided_window_dims: Sequence[int],
    window_bounds: Sequence[int],
    gather_dims_to_operand_dims: Sequence[int],
    index_vector_dim: int | None = None,
) -> Value:
    numbers = GatherDimensionNumbers(
        list(output_window_dims),
        list(elided_window_dims),
        list(gather_dims_to_operand_dims),
        gather_indices.ndim - 1 if index_vector_dim is None else index_vector_dim,
    )
    return _gather(operand, gather_indices, numbers, window_bounds)


@builder_function()
def Scatter(
    builder: XlaBuilder,
    operands: Values,
    scatter_indices: Value,
    updates: Values,
    update_computation: XlaComputation,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tree:
    """Arrays with updates combined into the slices that start at the index vectors in another. Updates that would
    reach outside are dropped.

    Args:
        operands, updates: lists of arrays, one of updates for each operand; or one array each.
        scatter_indices: integers, the index vectors along `dimension_numbers.index_vector_dim`.
        update_computation: what combines an element with an update, both scalars.
        dimension_numbers: `ScatterDimensionNumbers`.
        indices_are_sorted, unique_indices: whether the caller promises that.

    Returns:
        An `XlaOp` of the shapes of the operands.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Scatter, ScatterDimensionNumbers, ShapeUtil, XlaBuilder
    >>> plus = XlaBuilder("plus")
    >>> x, y = (plus.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> total = plus.Build(x + y)
    >>> b = XlaBuilder()
    >>> x, rows, ones = (b.Constant(v) for v in (np.float32([0, 0, 0]), np.int32([2, 0, 2]), np.float32([1, 1, 1])))
    >>> b.Build(Scatter([x], rows, [ones], total, ScatterDimensionNumbers([], [0], [0], index_vector_dim=1)))()
    Array([1., 0., 2.], dtype=float32)
    """
    d = dimension_numbers
    return indexing.scatter(
        *operands,
        scatter_indices,
        *updates,
        update_window_dims=tuple(d.update_window_dims),
        inserted_window_dims=tuple(d.inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(d.scatter_dims_to_operand_dims),
        index_vector_dim=d.index_vector_dim,
        to_apply=update_computation.computation,
        input_batching_dims=tuple(d.input_batching_dims),
        scatter_indices_batching_dims=tuple(d.scatter_indices_batching_dims),
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
    )
