"""Products of arrays and convolutions.

Sources: sections "Dot", "DotGeneral", "ScaledDot", "RaggedDot" and "Conv" of the XLA documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ShapeError
from tinyxla.ops import Value
from tinyxla.ops.products import contraction, convolution, ragged, scaled
from tinyxla.shapes import Shape, element_type
from tinyxla.xla.builder import XlaBuilder
from tinyxla.xla.dimension_numbers import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    PrecisionConfig,
    RaggedDotDimensionNumbers,
)
from tinyxla.xla.functions import alias, builder_function
from tinyxla.xla.windows import window_of

Ints = tuple[int, ...]

# --- products ---------------------------------------------------------------------------------------------------------


def _element_type(given: Any) -> Any:
    return None if given is None else element_type(given)


def _precision(config: PrecisionConfig | None) -> tuple[str, ...]:
    return tuple(map(str, config.operand_precision)) if config else ()


@builder_function()
def Dot(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
) -> Value:
    """The product of vectors and matrices: over the last dimension of `lhs` and the first of `rhs`.

    Args:
        lhs, rhs: the operands.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: operands of more than two dimensions, or sizes that differ.

    >>> import numpy as np
    >>> from tinyxla.xla import Dot, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, y = b.Constant(np.float32([[1, 2], [3, 4]])), b.Constant(np.float32([10, 1]))
    >>> b.Build(Dot(x, y))()
    Array([12., 34.], dtype=float32)
    """
    if lhs.ndim not in (1, 2) or rhs.ndim not in (1, 2):
        raise ShapeError(
            f"Dot: operands must be vectors or matrices, but are {Shape.of(lhs)} and {Shape.of(rhs)}; use DotGeneral."
        )
    numbers = DotDimensionNumbers([lhs.ndim - 1], [0])
    return _dot(lhs, rhs, numbers, precision_config, preferred_element_type)


@builder_function()
def DotGeneral(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    dimension_numbers: DotDimensionNumbers,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
) -> Value:
    """Products summed over contracting dimensions.

    The result has the batch dimensions, then the other dimensions of `lhs`, then those of `rhs`. They are summed in
    `preferred_element_type` if given, which is the result's type.

    Args:
        lhs, rhs: the operands.
        dimension_numbers: `DotDimensionNumbers`.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: contracting or batch dimensions that are not there or differ in size.

    >>> import numpy as np
    >>> from tinyxla.xla import DotDimensionNumbers, DotGeneral, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, y = b.Constant(np.ones((7, 2, 3), np.float32)), b.Constant(np.ones((7, 3, 4), np.float32))
    >>> DotGeneral(x, y, DotDimensionNumbers([2], [1], [0], [0]))  # a product of matrices for each of 7
    <XlaOp f32[7,2,4] of computation>
    """
    return _dot(lhs, rhs, dimension_numbers, precision_config, preferred_element_type)


def _dot(lhs: Value, rhs: Value, d: DotDimensionNumbers, config: PrecisionConfig | None, preferred: Any) -> Value:
    return contraction.dot(
        lhs,
        rhs,
        **_dot_dims(d),
        preferred_element_type=_element_type(preferred),
        operand_precision=_precision(config),
    )


def _dot_dims(d: DotDimensionNumbers) -> dict[str, Ints]:
    return {
        "lhs_contracting_dims": tuple(d.lhs_contracting_dimensions),
        "rhs_contracting_dims": tuple(d.rhs_contracting_dimensions),
        "lhs_batch_dims": tuple(d.lhs_batch_dimensions),
        "rhs_batch_dims": tuple(d.rhs_batch_dimensions),
    }


@builder_function(dimension_numbers="dimension_number")
def ScaledDot(
    builder: XlaBuilder,
    lhs: Value,
    lhs_scale: Value,
    rhs: Value,
    rhs_scale: Value,
    dimension_number: DotDimensionNumbers,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
) -> Value:
    """`DotGeneral` of operands that are multiplied by scales first. A scale has the sizes of its operand, in the
    contracting dimensions divided by those of the blocks that share an element of it.

    Args:
        lhs, rhs: the operands.
        lhs_scale, rhs_scale: the scales.
        dimension_number: `DotDimensionNumbers`.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: dimensions that do not fit, or scales whose sizes do not divide those of their operands.

    >>> import numpy as np
    >>> from tinyxla.xla import DotDimensionNumbers, ScaledDot, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, y = b.Constant(np.ones((2, 4), np.float32)), b.Constant(np.ones((4, 1), np.float32))
    >>> by_block, by_1 = b.Constant(np.float32([[1, 10], [2, 2]])), b.Constant(np.float32([[1]]))
    >>> b.Build(ScaledDot(x, by_block, y, by_1, DotDimensionNumbers([1], [0])))()
    Array([[22.],
           [ 8.]], dtype=float32)
    """
    return scaled.scaled_dot(
        lhs,
        lhs_scale,
        rhs,
        rhs_scale,
        **_dot_dims(dimension_number),
        preferred_element_type=_element_type(preferred_element_type),
        operand_precision=_precision(precision_config),
    )


@builder_function()
def RaggedDot(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    group_sizes: Value,
    dimension_numbers: RaggedDotDimensionNumbers,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
) -> Value:
    """`DotGeneral` where a dimension of `lhs` is cut into groups of given sizes.

    Args:
        lhs, rhs: the operands.
        group_sizes: integers, the sizes of the groups.
        dimension_numbers: `RaggedDotDimensionNumbers`.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: dimensions that do not fit.

    >>> import numpy as np
    >>> from tinyxla.xla import DotDimensionNumbers, RaggedDot, RaggedDotDimensionNumbers, XlaBuilder
    >>> b = XlaBuilder()
    >>> rows, weights = b.Constant(np.ones((5, 3), np.float32)), b.Constant(np.ones((2, 3, 4), np.float32))
    >>> numbers = RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], rhs_group_dimensions=[0])
    >>> RaggedDot(rows, weights, b.Constant(np.int32([2, 3])), numbers)
    <XlaOp f32[5,4] of computation>
    """
    return ragged.ragged_dot(
        lhs,
        rhs,
        group_sizes,
        **_dot_dims(dimension_numbers.dot_dimension_numbers),
        lhs_ragged_dims=tuple(dimension_numbers.lhs_ragged_dimensions),
        rhs_group_dims=tuple(dimension_numbers.rhs_group_dimensions),
        preferred_element_type=_element_type(preferred_element_type),
        operand_precision=_precision(precision_config),
    )


# --- convolutions -----------------------------------------------------------------------------------------------------


def _default_numbers(rank: int) -> ConvolutionDimensionNumbers:
    """Batch, features, spatial dimensions; the kernel's output features, input features, spatial dimensions."""
    spatial = list(range(2, rank))
    return ConvolutionDimensionNumbers(0, 1, spatial, 0, 1, list(spatial), 0, 1, list(spatial))


def _convolution(
    what: str,
    lhs: Value,
    rhs: Value,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    dimension_numbers: ConvolutionDimensionNumbers | None,
    feature_group_count: int,
    batch_group_count: int,
    precision_config: PrecisionConfig | None,
    preferred_element_type: Any,
    window_reversal: Sequence[bool] | None,
) -> Value:
    d = _default_numbers(lhs.ndim) if dimension_numbers is None else dimension_numbers
    labels = convolution.ConvDimensionNumbers(
        (d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions),
        (d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, *d.kernel_spatial_dimensions),
        (d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions),
    )
    for name, x, spec in zip(("lhs", "rhs"), (lhs, rhs), labels, strict=False):
        if any(not 0 <= k < x.ndim for k in spec):
            raise ShapeError(f"{what}: dimension_numbers must name dimensions of {name} {Shape.of(x)}, but are {spec}.")
    window = window_of(
        what,
        [lhs.shape[k] for k in d.input_spatial_dimensions],
        [rhs.shape[k] for k in d.kernel_spatial_dimensions],
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        window_reversal,
    )
    return convolution.convolution(
        lhs,
        rhs,
        window=window,
        dim_labels=labels,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        preferred_element_type=_element_type(preferred_element_type),
        operand_precision=_precision(precision_config),
    )


@builder_function()
def Conv(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    window_strides: Sequence[int],
    padding: Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
) -> Value:
    """A convolution of (batch, features, spatial...) with a kernel of (output features, input features, spatial...).

    `padding` is a `Padding`, or (low, high) for each spatial dimension.

    Args:
        lhs, rhs: the operands.
        window_strides: the steps of the window, for each spatial dimension.
        padding: a `Padding`, or (low, high) for each spatial dimension.
        feature_group_count, batch_group_count: the numbers of groups of features and of the batch.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: features that do not fit, or lists that are not as long as there are spatial dimensions.

    >>> import numpy as np
    >>> from tinyxla.xla import Conv, Padding, XlaBuilder
    >>> b = XlaBuilder()
    >>> images, kernel = b.Constant(np.ones((1, 3, 8, 8), np.float32)), b.Constant(np.ones((16, 3, 3, 3), np.float32))
    >>> Conv(images, kernel, [2, 2], Padding.kSame), Conv(images, kernel, [1, 1], Padding.kValid)
    (<XlaOp f32[1,16,4,4] of computation>, <XlaOp f32[1,16,6,6] of computation>)
    """
    rest = (feature_group_count, batch_group_count, precision_config, preferred_element_type)
    return _convolution("Conv", lhs, rhs, window_strides, padding, None, None, None, *rest, None)


ConvWithGeneralPadding = alias("ConvWithGeneralPadding", Conv)


@builder_function()
def ConvWithGeneralDimensions(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: ConvolutionDimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
) -> Value:
    """`Conv` with explicit dimension numbers.

    Args:
        lhs, rhs: the operands.
        window_strides: the steps of the window, for each spatial dimension.
        padding: a `Padding`, or (low, high) for each spatial dimension.
        dimension_numbers: `ConvolutionDimensionNumbers`.
        feature_group_count, batch_group_count: the numbers of groups of features and of the batch.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: dimension numbers, features or lists that do not fit the operands.

    >>> import numpy as np
    >>> from tinyxla.xla import ConvolutionDimensionNumbers, ConvWithGeneralDimensions, Padding, XlaBuilder
    >>> b = XlaBuilder()
    >>> signals, kernel = b.Constant(np.ones((1, 8, 3), np.float32)), b.Constant(np.ones((5, 3, 16), np.float32))
    >>> numbers = ConvolutionDimensionNumbers(0, 2, [1], 2, 1, [0], 0, 2, [1])  # channels last
    >>> ConvWithGeneralDimensions(signals, kernel, [1], Padding.kValid, numbers)
    <XlaOp f32[1,4,16] of computation>
    """
    rest = (feature_group_count, batch_group_count, precision_config, preferred_element_type)
    name = "ConvWithGeneralDimensions"
    return _convolution(name, lhs, rhs, window_strides, padding, None, None, dimension_numbers, *rest, None)


ConvGeneral = alias("ConvGeneral", ConvWithGeneralDimensions)


@builder_function()
def ConvGeneralDilated(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    dimension_numbers: ConvolutionDimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig | None = None,
    preferred_element_type: Any = None,
    window_reversal: Sequence[bool] | None = None,
) -> Value:
    """`Conv` with explicit padding, holes between the elements of the input and of the kernel, and dimension
    numbers.

    Args:
        lhs, rhs: the operands.
        window_strides: the steps of the window, for each spatial dimension.
        padding: a `Padding`, or (low, high) for each spatial dimension.
        lhs_dilation, rhs_dilation: distances between elements of the input and of the kernel.
        dimension_numbers: `ConvolutionDimensionNumbers`.
        feature_group_count, batch_group_count: the numbers of groups of features and of the batch.
        precision_config: kept in the graph: products are computed in full precision.
        preferred_element_type: the type to sum in, and of the result.
        window_reversal: for each spatial dimension whether the kernel is reversed.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: dimension numbers, features or lists that do not fit the operands.

    >>> import numpy as np
    >>> from tinyxla.xla import ConvGeneralDilated, ConvolutionDimensionNumbers, XlaBuilder
    >>> b = XlaBuilder()
    >>> signal, kernel = b.Constant(np.float32([[[1, 2, 3, 4]]])), b.Constant(np.float32([[[1, 1]]]))
    >>> numbers = ConvolutionDimensionNumbers(0, 1, [2], 0, 1, [2], 0, 1, [2])
    >>> b.Build(ConvGeneralDilated(signal, kernel, [1], [(0, 0)], [1], [2], numbers))()  # x[i] + x[i + 2]
    Array([[[4., 6.]]], dtype=float32)
    """
    rest = (feature_group_count, batch_group_count, precision_config, preferred_element_type, window_reversal)
    name = "ConvGeneralDilated"
    return _convolution(name, lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, *rest)
