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
    """An argument of the computation, numbered from 0 on: an array, or a nested tuple."""
    return builder.add_parameter(number, shape, name)


_PYTHON_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int32, float: np.float32, complex: np.complex64}


def _constant(literal: Any, layout: Layout | None = None) -> Tree:
    if isinstance(literal, tuple):
        if layout is not None:
            raise ShapeError(
                f"ConstantLiteral: layout must be that of an array, but is {layout} for a tuple; leave it out."
            )
        return tuple(map(_constant, literal))  # pyright: ignore[reportUnknownArgumentType]
    value = np.array(literal, _PYTHON_DTYPES.get(type(literal)))
    value.setflags(write=False)
    made: Any = movement.constant(literal=Literal(value))
    if layout is not None:
        made.instruction.shape = LayoutUtil.WithLayout(made.instruction.shape, layout)
    return made


@builder_function(value="literal")
def ConstantLiteral(builder: XlaBuilder, literal: Any, layout: Layout | None = None) -> Tree:
    """A constant: a NumPy array in its own type, a Python number as pred, s32, f32 or c64, or a tuple of these. An
    array may have a layout."""
    return _constant(literal, layout)


Constant = alias("Constant", ConstantLiteral)


@builder_function()
def Iota(builder: XlaBuilder, shape: Shape, iota_dimension: int) -> Value:
    """An array whose elements count up from 0 along a dimension."""
    return movement.iota(shape=shape, iota_dimension=iota_dimension)


@builder_function(operands="elements")
def Tuple(builder: XlaBuilder, elements: list[Tree]) -> Tree:
    """A tuple of arrays and tuples."""
    return tuple(elements)


@builder_function()
def GetTupleElement(builder: XlaBuilder, tuple_data: Tree, index: int) -> Tree:
    """An element of a tuple."""
    if not isinstance(tuple_data, tuple):
        raise ShapeError(f"GetTupleElement: tuple_data must be a tuple, but is the array {shape_of(tuple_data)}.")
    if not 0 <= index < len(tuple_data):  # pyright: ignore[reportUnknownArgumentType]
        raise OutOfBoundsError(
            f"GetTupleElement: index must be from 0 to {len(tuple_data) - 1}, but is {index}."  # pyright: ignore[reportUnknownArgumentType]
        )
    return tuple_data[index]  # pyright: ignore[reportUnknownVariableType]


# --- broadcasting and reshaping ---------------------------------------------------------------------------------------


@builder_function(sizes="broadcast_sizes")
def Broadcast(builder: XlaBuilder, operand: Value, broadcast_sizes: Sequence[int]) -> Value:
    """Copies of an array along new dimensions on the left."""
    sizes = (*broadcast_sizes, *operand.shape)
    return movement.broadcast(operand, sizes=sizes, dimensions=tuple(range(len(broadcast_sizes), len(sizes))))


@builder_function(shape="out_dim_size", out_dim_sizes="out_dim_size")
def BroadcastInDim(
    builder: XlaBuilder, operand: Value, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Value:
    """Copies of an array along new dimensions anywhere, and along its dimensions of size 1.

    Dimension k of the operand becomes dimension `broadcast_dimensions[k]` of the result, whose sizes are
    `out_dim_size`.
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
    """Consecutive dimensions, which are given in order, as one."""
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
    """The dimensions in another order: dimension k of the result is dimension `permutation[k]` of the operand."""
    return movement.transpose(operand, permutation=permutation)


@builder_function()
def Rev(builder: XlaBuilder, operand: Value, dimensions: Sequence[int]) -> Value:
    """The elements in reverse order along some dimensions."""
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
    """
    return movement.pad(operand, padding_value, padding_config=_edges(padding_config))


@builder_function()
def PadInDim(builder: XlaBuilder, operand: Value, padding_value: Value, dimno: int, pad_lo: int, pad_hi: int) -> Value:
    """Padding at the edges of one dimension."""
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
    """The elements from `start_indices` up to, but without, `limit_indices`, by `strides` (1 unless given)."""
    steps = (1,) * operand.ndim if strides is None else strides
    return movement.slice_(operand, start_indices=start_indices, limit_indices=limit_indices, strides=steps)


@builder_function()
def SliceInDim(
    builder: XlaBuilder, operand: Value, start_index: int, limit_index: int, stride: int, dimno: int
) -> Value:
    """A slice of one dimension."""
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
    """
    starts = _starts(start_indices)
    return dynamic_slices.dynamic_slice(operand, *starts, dynamic_slice_sizes=slice_sizes)


@builder_function()
def DynamicUpdateSlice(builder: XlaBuilder, operand: Value, update: Value, start_indices: Values) -> Value:
    """The operand with `update` written at `start_indices`, moved inside the array where it is not."""
    return dynamic_slices.dynamic_update_slice(operand, update, *_starts(start_indices))


@builder_function()
def ConcatInDim(builder: XlaBuilder, operands: Values, dimension: int) -> Value:
    """Arrays one after the other along a dimension."""
    return movement.concatenate(*operands, dimension=dimension)


Concatenate = alias("Concatenate", ConcatInDim)
Concat = alias("Concat", ConcatInDim)

# --- dynamic sizes ----------------------------------------------------------------------------------------------------


@builder_function()
def GetDimensionSize(builder: XlaBuilder, operand: Value, dimension: int) -> Value:
    """The size of a dimension, as an s32; of a dynamic one, that which it has when the program runs."""
    return dynamic_sizes.get_dimension_size(operand, dimensions=(dimension,))


@builder_function()
def SetDimensionSize(builder: XlaBuilder, operand: Value, val: Value, dimension: int) -> Value:
    """The operand with a dimension whose size is known only when the program runs. The size so far is its bound, and
    elements beyond the new one do not count."""
    return dynamic_sizes.set_dimension_size(operand, val, dimensions=(dimension,))


@builder_function()
def DynamicReshape(
    builder: XlaBuilder,
    operand: Value,
    dim_sizes: Values,
    new_size_bounds: Sequence[int],
    dims_are_dynamic: Sequence[bool],
) -> Value:
    """`Reshape` to sizes that are known only when the program runs, and are no more than their bounds."""
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
    """Slices of an array that start at the index vectors in another."""
    return _gather(operand, start_indices, dimension_numbers, slice_sizes, indices_are_sorted)


@builder_function(start_indices="gather_indices")
def gather(builder: XlaBuilder, operand: Value, gather_indices: Value, *args: Any, **named: Any) -> Value:
    """`Gather`; or, as an older page has it, with `output_window_dims`, `elided_window_dims`, `window_bounds`,
    `gather_dims_to_operand_dims` and `index_vector_dim` (the last dimension of the indices unless given)."""
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
    """Arrays with updates combined into the slices that start at the index vectors in another."""
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
