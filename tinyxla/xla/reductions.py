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
    tuple of n. The order in which elements are combined is not specified.

    Args:
        operands: an array, or several of one shape.
        init_values: a scalar for each of them.
        computation: a computation of scalars.
        dimensions_to_reduce: the dimensions that are reduced.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: a computation that does not take such scalars, dimensions that the arrays do not have.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Reduce, ShapeUtil, XlaBuilder
    >>> inner = XlaBuilder("plus")
    >>> x, y = (inner.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> b = XlaBuilder()
    >>> b.Build(Reduce(b.Constant(np.float32([[1, 2], [3, 4]])), b.Constant(0.0), inner.Build(x + y), [1]))()
    Array([3., 7.], dtype=float32)
    """
    return reduction.reduce(*operands, *init_values, dimensions=dimensions_to_reduce, to_apply=computation.computation)


@builder_function(operand="operands", init_value="init_values")
def ReduceAll(builder: XlaBuilder, operands: Values, init_values: Values, computation: XlaComputation) -> Tree:
    """Arrays reduced along all dimensions.

    Args:
        operands: an array, or several of one shape.
        init_values: a scalar for each of them.
        computation: a computation of scalars.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operands.
        ShapeError: a computation of other scalars.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Max, ReduceAll, ShapeUtil, XlaBuilder
    >>> inner = XlaBuilder("larger")
    >>> x, y = (inner.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> b = XlaBuilder()
    >>> b.Build(ReduceAll(b.Constant(np.float32([[1, 5], [3, 4]])), b.Constant(-np.inf), inner.Build(Max(x, y))))()
    Array(5., dtype=float32)
    """
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

    Args:
        operands: an array, or several of one shape.
        init_values: a scalar for each of them.
        computation: a computation of scalars.
        window_dimensions, window_strides: the sizes and the steps of the window.
        base_dilations, window_dilations: distances between elements of the operand and of the window.
        padding: a `Padding`, or (low, high) for each dimension.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: lists that are not as long as the rank, or a computation of other scalars.
        AttributeValueError: a stride that is not positive.
        ArgumentError: another `padding`.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Padding, ReduceWindow, ShapeUtil, XlaBuilder
    >>> inner = XlaBuilder("plus")
    >>> x, y = (inner.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> b = XlaBuilder()
    >>> x, zero, plus = b.Constant(np.float32([1, 2, 3, 4, 5])), b.Constant(0.0), inner.Build(x + y)
    >>> b.Build(ReduceWindow(x, zero, plus, window_dimensions=[3], window_strides=[2], padding=Padding.kValid))()
    Array([ 6., 12.], dtype=float32)
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
    element that `select` prefers; the first one at ties. `padding` is as for `ReduceWindow`.

    Args:
        operand: an array.
        select: a computation of two scalars that gives a pred: whether the first is preferred.
        window_dimensions, window_strides: the sizes and the steps of the window.
        padding: a `Padding`, or (low, high) for each dimension.
        source: an array with an element for each window.
        init_value: a scalar.
        scatter: a computation of two scalars that combines an element with another one.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Ge, Padding, SelectAndScatter, ShapeUtil, XlaBuilder
    >>> plus, larger, b = XlaBuilder("plus"), XlaBuilder("is_larger"), XlaBuilder()
    >>> x, y = (plus.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> v, w = (larger.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> operand, source = b.Constant(np.float32([1, 5, 2, 4])), b.Constant(np.float32([10, 20]))
    >>> select, scatter = larger.Build(Ge(v, w)), plus.Build(x + y)
    >>> b.Build(SelectAndScatter(operand, select, [2], [2], Padding.kValid, source, b.Constant(0.0), scatter))()
    Array([ 0., 10.,  0., 20.], dtype=float32)
    """
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

    Args:
        operands: an array, or several of one shape.
        comparator: a computation of scalars that gives a pred.
        dimension: the dimension along which elements are sorted.
        is_stable: whether equal elements stay in order, which they always do.

    Returns:
        An `XlaOp` of the shapes of the operands.

    Raises:
        ShapeError: arrays of different shapes, a dimension that they do not have, or a comparator that gives no pred.

    >>> import numpy as np
    >>> from tinyxla.xla import Sort, XlaBuilder
    >>> b = XlaBuilder()
    >>> keys, values = b.Constant(np.float32([3, np.nan, 1])), b.Constant(np.int32([30, 20, 10]))
    >>> b.Build(Sort([keys, values]))()
    (Array([ 1.,  3., nan], dtype=float32), Array([10, 30, 20], dtype=int32))
    """
    rank = at_least_one("Sort", operands).ndim
    dimensions = (dimension + rank if -rank <= dimension < 0 else dimension,)
    dtypes = tuple(x.dtype for x in operands)
    order = sorting.order_computation(dtypes) if comparator is None else comparator.computation
    return sorting.sort(*operands, dimensions=dimensions, to_apply=order, is_stable=is_stable)


@builder_function()
def TopK(builder: XlaBuilder, operand: Value, k: int, largest: bool = True) -> Tree:
    """The k largest or smallest elements along the last dimension in order, and their places; equal ones by place.

    Args:
        operand: an array.
        k: the number of elements.
        largest: whether to return the largest elements.

    Returns:
        An `XlaOp`, a tuple of the elements and their s32 indices.

    Raises:
        ShapeError: a k that is larger than the last dimension, or an operand without dimensions.

    >>> import numpy as np
    >>> from tinyxla.xla import TopK, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(TopK(b.Constant(np.float32([3, 1, 3, 2])), 2))()
    (Array([3., 3.], dtype=float32), Array([0, 2], dtype=int32))
    """
    return ops["topk"](operand, k=k, largest=largest)


# --- normalization ----------------------------------------------------------------------------------------------------


@builder_function()
def BatchNormTraining(
    builder: XlaBuilder, operand: Value, scale: Value, offset: Value, epsilon: float, feature_index: int
) -> Tree:
    """An array normalized by its mean and variance over all dimensions but `feature_index`, scaled and shifted; and
    these means and variances.

    Args:
        operand: an array.
        scale, offset: vectors of the size of the feature dimension.
        epsilon: a small number added to the variance.
        feature_index: the feature dimension.

    Returns:
        An `XlaOp`, a tuple of three arrays.

    Raises:
        ShapeError: a scale or offset that does not have the size of the feature dimension, or no such dimension.

    >>> import numpy as np
    >>> from tinyxla.xla import BatchNormTraining, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, scale, offset = (b.Constant(np.float32(x)) for x in ([[0, 5], [2, 5]], [1, 1], [0, 0]))
    >>> _, mean, variance = b.Build(BatchNormTraining(x, scale, offset, epsilon=0.0, feature_index=1))()
    >>> mean, variance
    (Array([1., 5.], dtype=float32), Array([1., 0.], dtype=float32))
    """
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
    """An array normalized by means and variances that are given, scaled and shifted.

    Args:
        operand: an array.
        scale, offset: vectors of the size of the feature dimension.
        mean, variance: vectors of the size of the feature dimension.
        epsilon: a small number added to the variance.
        feature_index: the feature dimension.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import BatchNormInference, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, scale, offset, mean, variance = (b.Constant(np.float32(x)) for x in ([[0], [4]], [1], [0], [2], [4]))
    >>> b.Build(BatchNormInference(x, scale, offset, mean, variance, epsilon=0.0, feature_index=1))()
    Array([[-1.],
           [ 1.]], dtype=float32)
    """
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
    """The gradients of `BatchNormTraining` by operand, scale and offset.

    Args:
        operand: an array.
        scale: vectors of the size of the feature dimension.
        batch_mean, batch_var: means and variances, as `BatchNormTraining` gives them.
        grad_output: the gradient of the result.
        epsilon: a small number added to the variance.
        feature_index: the feature dimension.

    Returns:
        A tuple of three arrays, of the shapes of `operand`, `scale` and `scale`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import BatchNormGrad, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, feature = b.Constant(np.ones((4, 3), np.float32)), b.Constant(np.ones(3, np.float32))
    >>> BatchNormGrad(x, feature, feature, feature, x, epsilon=1e-5, feature_index=1)
    <XlaOp (f32[4,3], f32[3], f32[3]) of computation>
    """
    return batch_norm.batch_norm_grad(
        operand, scale, batch_mean, batch_var, grad_output, epsilon=epsilon, feature_index=feature_index
    )
