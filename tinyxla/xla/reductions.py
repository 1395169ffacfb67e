"""Reductions, windows, sorting and normalization.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.ops import Value, batch_norm, reduction, sorting, windows
from tinyxla.ops.op import ops
from tinyxla.xla.builder import Tree, XlaBuilder
from tinyxla.xla.computation import XlaComputation
from tinyxla.xla.dimension_numbers import Padding
from tinyxla.xla.functions import Values, alias, at_least_one, builder_function
from tinyxla.xla.windows import window_of


@builder_function(operand="operands", init_value="init_values", dimensions="dimensions_to_reduce")
def Reduce(
    builder: XlaBuilder,
    operands: Values,
    init_values: Values,
    computation: XlaComputation,
    dimensions_to_reduce: Sequence[int],
) -> Tree:
    """Arrays reduced along dimensions: by a computation of two scalars, or, for n arrays together, of 2n scalars to a
    tuple of n."""
    return reduction.reduce(*operands, *init_values, dimensions=dimensions_to_reduce, to_apply=computation.computation)


@builder_function(operand="operands", init_value="init_values")
def ReduceAll(builder: XlaBuilder, operands: Values, init_values: Values, computation: XlaComputation) -> Tree:
    """Arrays reduced along all dimensions."""
    dimensions = tuple(range(at_least_one("ReduceAll", operands).ndim))
    return reduction.reduce(*operands, *init_values, dimensions=dimensions, to_apply=computation.computation)


@builder_function(operand="operands", init_value="init_values", window_stride_dimensions="window_strides")
def ReduceWindow(
    builder: XlaBuilder,
    operands: Values,
    init_values: Values,
    computation: XlaComputation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    base_dilations: Any = None,
    window_dilations: Sequence[int] | None = None,
    padding: Any = None,
) -> Tree:
    """Each window of arrays reduced.

    `padding` is a `Padding`, or (low, high) for each dimension. It may also come right after `window_strides`, as
    in the documents' examples.
    """
    if isinstance(base_dilations, Padding):
        base_dilations, padding = None, base_dilations
    base = at_least_one("ReduceWindow", operands).shape
    window = window_of(
        "ReduceWindow", base, window_dimensions, window_strides, padding, base_dilations, window_dilations
    )
    return windows.reduce_window(*operands, *init_values, window=window, to_apply=computation.computation)


ReduceWindowWithGeneralPadding = alias("ReduceWindowWithGeneralPadding", ReduceWindow)


@builder_function()
def SelectAndScatter(
    builder: XlaBuilder,
    operand: Value,
    select: XlaComputation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    source: Value,
    init_value: Value,
    scatter: XlaComputation,
) -> Value:
    """An array of `init_value`, into which each element of `source` is scattered where its window of `operand` has the
    element that `select` prefers; the first one at ties. `padding` is as for `ReduceWindow`."""
    window = window_of("SelectAndScatter", operand.shape, window_dimensions, window_strides, padding)
    return windows.select_and_scatter(
        operand, source, init_value, window=window, select=select.computation, scatter=scatter.computation
    )


SelectAndScatterWithGeneralPadding = alias("SelectAndScatterWithGeneralPadding", SelectAndScatter)

# --- order ------------------------------------------------------------------------------------------------------------


@builder_function(operand="operands")
def Sort(
    builder: XlaBuilder,
    operands: Values,
    comparator: XlaComputation | None = None,
    dimension: int = -1,
    is_stable: bool = False,
) -> Tree:
    """Arrays put in order together along a dimension, the last one unless given.

    `comparator` says of two elements of each array, x0, y0, x1, y1, ..., whether the x come before the y. Without it
    they are put in ascending order of the first array's, NaN last.
    """
    rank = at_least_one("Sort", operands).ndim
    dimensions = (dimension + rank if -rank <= dimension < 0 else dimension,)
    dtypes = tuple(x.dtype for x in operands)
    order = sorting.order_computation(dtypes) if comparator is None else comparator.computation
    return sorting.sort(*operands, dimensions=dimensions, to_apply=order, is_stable=is_stable)


@builder_function()
def TopK(builder: XlaBuilder, operand: Value, k: int, largest: bool = True) -> Tree:
    """The k largest or smallest elements along the last dimension in order, and their places; equal ones by place."""
    return ops["topk"](operand, k=k, largest=largest)


# --- normalization ----------------------------------------------------------------------------------------------------


@builder_function()
def BatchNormTraining(
    builder: XlaBuilder, operand: Value, scale: Value, offset: Value, epsilon: float, feature_index: int
) -> Tree:
    """An array normalized by its mean and variance over all dimensions but `feature_index`, scaled and shifted; and
    these means and variances."""
    return batch_norm.batch_norm_training(operand, scale, offset, epsilon=epsilon, feature_index=feature_index)


@builder_function()
def BatchNormInference(
    builder: XlaBuilder,
    operand: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    epsilon: float,
    feature_index: int,
) -> Value:
    """An array normalized by means and variances that are given, scaled and shifted."""
    return batch_norm.batch_norm_inference(
        operand, scale, offset, mean, variance, epsilon=epsilon, feature_index=feature_index
    )


@builder_function(mean="batch_mean", variance="batch_var")
def BatchNormGrad(
    builder: XlaBuilder,
    operand: Value,
    scale: Value,
    batch_mean: Value,
    batch_var: Value,
    grad_output: Value,
    epsilon: float,
    feature_index: int,
) -> Tree:
    """The gradients of `BatchNormTraining` by operand, scale and offset."""
    return batch_norm.batch_norm_grad(
        operand, scale, batch_mean, batch_var, grad_output, epsilon=epsilon, feature_index=feature_index
    )
