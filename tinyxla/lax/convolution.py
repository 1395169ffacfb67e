"""Convolutions. Precision is accepted and kept in the graph; products are always computed in the operands' precision.

Source of what they compute: sections "Conv" to "ConvGeneralDilated" of the XLA documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.lax.contraction import PrecisionLike, dot_general, operand_precision
from tinyxla.lax.operands import ArrayLike, DTypeLike, of_one_type
from tinyxla.lax.padding import pads_of
from tinyxla.numpy.arguments import (
    array_of,
    constant,
    integer_of,
    integers_of,
    preferred_type,
    shape_of,
    summable,
    with_flags,
)
from tinyxla.numpy.operations import movement
from tinyxla.ops.products import convolution
from tinyxla.ops.products.convolution import ConvDimensionNumbers
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import WindowDimension
from tinyxla.shapes.window import dilated
from tinyxla.tracing.array import Array

ConvGeneralDilatedDimensionNumbers = ConvDimensionNumbers | tuple[str, str, str] | None
Padding = str | Sequence[tuple[int, int]]


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Which dimension of the operands and of the result is which.

    Args:
        lhs_shape, rhs_shape: sizes of the operands; only their number counts.
        dimension_numbers: None for batch, features (kernel: output, input features) and then the spatial dimensions; or
            three strings for input, kernel and result, such as `("NHWC", "HWIO", "NHWC")`: N batch, C features, O
            and I output and input features, and any other letters for spatial dimensions, whose order is that of the
            kernel's; or what this function gives.

    Returns:
        The positions of batch, features and spatial dimensions in the input, the kernel and the result.

    Raises:
        ShapeError: for operands of different ranks or of fewer than two dimensions.
        ArgumentError: for anything else as dimension_numbers.

    >>> from tinyxla.lax import conv_dimension_numbers
    >>> conv_dimension_numbers((8, 32, 32, 3), (5, 5, 3, 16), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    lhs_shape, rhs_shape = (shape_of("convolution", s) for s in (lhs_shape, rhs_shape))
    rank = len(lhs_shape)
    if rank != len(rhs_shape) or rank < 2:
        raise ShapeError(
            "convolution: the operands must have equal ranks of at least 2, but their shapes are "
            f"{tuple(lhs_shape)} and {tuple(rhs_shape)}."
        )
    if dimension_numbers is None:
        plain = tuple(range(rank))
        return ConvDimensionNumbers(plain, plain, plain)
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    try:
        lhs, rhs, out = (str(x) if isinstance(x, str) else tuple(map(int, x)) for x in dimension_numbers)
    except (TypeError, ValueError):
        raise ArgumentError(
            "convolution: dimension_numbers must be None, three strings or ConvDimensionNumbers, but got "
            f"{dimension_numbers!r}."
        ) from None
    if not (isinstance(lhs, str) and isinstance(rhs, str) and isinstance(out, str)):
        return ConvDimensionNumbers(*dimension_numbers)
    spatial = [c for c in rhs if c not in "OI"]
    found: list[tuple[int, ...]] = []
    for text, letters in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if len(text) != rank or sorted(text) != sorted([*letters, *spatial]):
            raise ArgumentError(
                f"convolution: dimension_numbers must be strings of {rank} letters, with {letters[0]} and {letters[1]} "
                f"and the same letters for spatial dimensions in each, but got {text!r} of {dimension_numbers}."
            )
        found.append(tuple(text.index(c) for c in [*letters, *spatial]))
    return ConvDimensionNumbers(*found)


def _counts(what: str, name: str, values: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """An integer for each spatial dimension; None means 1."""
    found = (1,) * count if values is None else integers_of(what, name, values)
    if len(found) != count:
        raise ArgumentError(f"{what}: {name} must have {count} entries, one a spatial dimension, but got {values!r}.")
    if any(v < 1 for v in found):
        raise AttributeValueError(f"{what}: {name} must be positive, but got {found}.")
    return found


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """A convolution over any number of spatial dimensions.

    Args:
        lhs, rhs: the input and the kernel, of one type and of rank n + 2.
        window_strides: how far the kernel moves, for each spatial dimension.
        padding: zeros around the input: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, or (low, high) for each dimension;
            negative numbers take elements away.
        lhs_dilation, rhs_dilation: distances between elements of the input and of the kernel.
        dimension_numbers: which dimension is which; see `conv_dimension_numbers`.
        feature_group_count: features come in so many groups, with a kernel for each.
        batch_group_count: the batch comes in so many groups, with output features for each.
        precision: kept in the graph.
        preferred_element_type: the type to sum in, and of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the batch, output features and spatial positions, in the order of `dimension_numbers`.

    Raises:
        ShapeError, DTypeError, AttributeValueError, ArgumentError: for operands and arguments that do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import conv_general_dilated
    >>> x, kernel = np.ones((1, 5, 5, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)
    >>> conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 3, 3, 4)
    """
    what = "lax.conv_general_dilated"
    if out_sharding is not None:
        return placed_result(
            f"{what}: out_sharding",
            lambda: conv_general_dilated(
                lhs,
                rhs,
                window_strides,
                padding,
                lhs_dilation,
                rhs_dilation,
                dimension_numbers,
                feature_group_count,
                batch_group_count,
                precision,
                preferred_element_type,
            ),
            out_sharding,
        )
    x, y = of_one_type(what, lhs, rhs)
    labels = conv_dimension_numbers(x.shape, y.shape, dimension_numbers)
    count = x.ndim - 2
    strides = _counts(what, "window_strides", window_strides, count)
    holes = _counts(what, "lhs_dilation", lhs_dilation, count)
    apart = _counts(what, "rhs_dilation", rhs_dilation, count)
    if isinstance(padding, str) and any(d != 1 for d in holes) and padding.upper() != "VALID":
        raise AttributeValueError(f"{what}: with lhs_dilation the padding must be numbers, or see conv_transpose.")
    sizes = [y.shape[d] for d in labels.rhs_spec[2:]]
    reach = [dilated(k, d) for k, d in zip(sizes, apart, strict=True)]
    pads = pads_of(what, padding, [x.shape[d] for d in labels.lhs_spec[2:]], reach, strides)
    window = tuple(
        WindowDimension(size, stride, low, high, between, hole)
        for size, stride, (low, high), between, hole in zip(sizes, strides, pads, apart, holes, strict=True)
    )
    preferred = preferred_type(preferred_element_type)
    return convolution.convolution(
        *summable(preferred, x, y),
        window=window,
        dim_labels=labels,
        feature_group_count=integer_of(what, "feature_group_count", feature_group_count),
        batch_group_count=integer_of(what, "batch_group_count", batch_group_count),
        preferred_element_type=preferred,
        operand_precision=operand_precision(what, precision),
    )


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """A convolution of [batch, features, spatial...] with a kernel [output features, input features, spatial...].

    Args:
        lhs, rhs: input and kernel, of one element type.
        window_strides: the steps of the kernel in each spatial dimension.
        padding: "VALID", "SAME" or "SAME_LOWER".
        precision, preferred_element_type: as for `conv_general_dilated`.

    Returns:
        An array [batch, output features, spatial...].

    Raises:
        ShapeError: ranks or features that do not fit.
        DTypeError: different element types.

    >>> import numpy as np
    >>> from tinyxla.lax import conv
    >>> conv(np.ones((1, 3, 8), np.float32), np.ones((4, 3, 2), np.float32), (1,), "VALID").shape
    (1, 4, 7)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """As `conv`, with any padding and with holes in either operand.

    Args:
        lhs: the input, of shape [batch, features, spatial...].
        rhs: the kernel, of shape [output features, input features, spatial...].
        window_strides: the steps of the window, for each spatial dimension.
        padding: as for `conv_general_dilated`.
        lhs_dilation, rhs_dilation: distances between elements of the input and of the kernel, for each spatial
            dimension.
        precision: kept in the graph.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An array [batch, output features, spatial...].

    Raises:
        ArgumentError: strides or dilations that are not one a spatial dimension.
        ShapeError: operands whose sizes do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import conv_with_general_padding
    >>> x, kernel = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)
    >>> conv_with_general_padding(x, kernel, (1,), [(1, 1)], (2,), None)
    Array([[[1., 1., 1., 1., 1., 1., 1., 1.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def _transposed_padding(kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """The padding of a transposed convolution whose result is as large as the input, for SAME, of the forward one."""
    if padding == "SAME":
        total = kernel + stride - 2
        low = kernel - 1 if stride > kernel - 1 else -(-total // 2)
    else:
        total = kernel + stride - 2 + max(kernel - stride, 0)
        low = kernel - 1
    return low, total - low


@with_flags
def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A convolution that makes its input larger by `strides`: the transpose of a convolution with these strides.

    Args:
        lhs, rhs: the input and the kernel.
        strides: how much larger the result is, for each spatial dimension.
        padding: `"SAME"` or `"VALID"` of the convolution whose transpose this is, or (low, high) of this one.
        rhs_dilation: distances between elements of the kernel.
        dimension_numbers: which dimension is which; None has features last: `("NHWC", "HWIO", "NHWC")`.
        transpose_kernel: reverse the kernel's spatial dimensions and exchange its features, as in the gradient of a
            convolution.
        precision: kept in the graph.
        preferred_element_type: the type to sum in, and of the result.
        use_consistent_padding: numbers, too, are the padding of the convolution whose transpose this is.

    Returns:
        An array whose spatial dimensions are `strides` times as long as the input's, for "SAME" padding.

    Raises:
        ShapeError, DTypeError, AttributeValueError, ArgumentError: for operands and arguments that do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import conv_transpose
    >>> x, kernel = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 2, 5), np.float32)
    >>> conv_transpose(x, kernel, (2, 2), "SAME").shape
    (1, 8, 8, 5)
    """
    what = "lax.conv_transpose"
    x, y = of_one_type(what, lhs, rhs)
    count = y.ndim - 2
    if dimension_numbers is None:
        inner = tuple(range(1, 1 + count))
        features_last = (0, count + 1, *inner)
        dimension_numbers = ConvDimensionNumbers(
            features_last, (count + 1, count, *(d - 1 for d in inner)), features_last
        )
    labels = conv_dimension_numbers(x.shape, y.shape, dimension_numbers)
    sizes = [y.shape[d] for d in labels.rhs_spec[2:]]
    steps = _counts(what, "strides", strides, count)
    apart = _counts(what, "rhs_dilation", rhs_dilation, count)
    reach = [dilated(k, d) for k, d in zip(sizes, apart, strict=True)]
    if isinstance(padding, str) and padding.upper() in ("SAME", "VALID"):
        pads = tuple(_transposed_padding(k, s, padding.upper()) for k, s in zip(reach, steps, strict=True))
    else:
        pads = pads_of(what, padding, [x.shape[d] for d in labels.lhs_spec[2:]], reach, steps)
        if use_consistent_padding:
            pads = tuple((k - 1 - low, k - 1 - high) for k, (low, high) in zip(reach, pads, strict=True))
    if transpose_kernel:
        y = movement.reverse(y, dimensions=labels.rhs_spec[2:])
        out, into, *inner = labels.rhs_spec
        labels = labels._replace(rhs_spec=(into, out, *inner))
    return conv_general_dilated(
        x,
        y,
        (1,) * count,
        pads,
        steps,
        apart,
        labels,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """What a kernel of shape `filter_shape` would see at each place, as features: for each input feature all elements
    of the window. Other arguments are as of `conv_general_dilated`.

    Args:
        lhs: the input, of shape [batch, features, spatial...] unless `dimension_numbers` says otherwise.
        filter_shape: the sizes of the window, for each spatial dimension.
        window_strides: the steps of the window, for each spatial dimension.
        padding: as for `conv_general_dilated`.
        lhs_dilation, rhs_dilation: distances between elements of the input and of the kernel, for each spatial
            dimension.
        dimension_numbers: which dimension is which; see `conv_dimension_numbers`.
        precision: kept in the graph.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An array whose features are as many times more as the window has elements.

    Raises:
        ShapeError: operands whose ranks or sizes do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import conv_general_dilated_patches
    >>> conv_general_dilated_patches(np.arange(4.0).reshape(1, 1, 4), (2,), (1,), "VALID")
    Array([[[0., 1., 2.],
            [1., 2., 3.]]], dtype=float32)
    """
    what = "lax.conv_general_dilated_patches"
    x = array_of(lhs, what)
    shape = integers_of(what, "filter_shape", filter_shape)
    labels = conv_dimension_numbers(x.shape, (1, 1, *shape), dimension_numbers)
    features, size = x.shape[labels.lhs_spec[1]], math.prod(shape)
    one_of = constant(np.eye(size).reshape(1, size, 1, *shape), x.dtype)
    kernel = movement.broadcast_in_dim(one_of, (features, *one_of.shape[1:]), tuple(range(one_of.ndim)))
    return conv_general_dilated(
        x,
        movement.reshape_to(kernel, (features * size, 1, *shape)),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        labels._replace(rhs_spec=tuple(range(x.ndim))),
        feature_group_count=features,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """As `conv_general_dilated`, but with a kernel of its own at each place (a locally connected layer).

    Args:
        rhs: the kernels: spatial dimensions are those of the result, and input features are those of
            `conv_general_dilated_patches`.
        filter_shape: the sizes of the window.
        lhs: the input, of shape [batch, features, spatial...] unless `dimension_numbers` says otherwise.
        window_strides: the steps of the window, for each spatial dimension.
        padding: as for `conv_general_dilated`.
        lhs_dilation, rhs_dilation: distances between elements of the input and of the kernel, for each spatial
            dimension.
        dimension_numbers: which dimension is which; see `conv_dimension_numbers`.
        precision: kept in the graph.

    Returns:
        An array of the shape of `conv_general_dilated`'s.

    Raises:
        ShapeError: operands whose ranks or sizes do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import conv_general_dilated_local
    >>> x, kernels = np.ones((2, 3, 6), np.float32), np.ones((4, 6, 5), np.float32)
    >>> conv_general_dilated_local(x, kernels, (1,), "VALID", (2,)).shape
    (2, 4, 5)
    """
    what = "lax.conv_general_dilated_local"
    x, y = of_one_type(what, lhs, rhs)
    labels = conv_dimension_numbers(x.shape, y.shape, dimension_numbers)
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, labels, precision
    )
    out, rhs_spec = labels.out_spec, labels.rhs_spec
    found = dot_general(patches, y, (((out[1],), (rhs_spec[1],)), (out[2:], rhs_spec[2:])), precision)
    stands = (*out[2:], out[0], out[1])  # where the dimensions of the product belong: spatial, batch, features
    return movement.transpose_to(found, movement.inverse_permutation(stands))
