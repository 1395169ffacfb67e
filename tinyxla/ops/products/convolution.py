"""Convolution: products of an array under a moving window with a kernel, summed over the window and the input features.

Source: sections "Conv" to "ConvGeneralDilated" of the XLA documents. In each spatial dimension

    result[j] = sum over t of input[j * stride + t * window_dilation - padding_low] * kernel[t]

where the input has holes by its own dilation and is zero outside. A cotangent of either operand is again such a sum,
with the roles of j, t and the input's index exchanged, so both are convolutions: that by the input slides the kernel,
turned around, over the result's cotangent; that by the kernel slides the result's cotangent over the input, with batch
and features changing places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, Bilinear, Factors, Ints, Op, Sample, Value
from tinyxla.ops.products.contraction import Precision, accumulator, result_type
from tinyxla.shapes import AnyShape, ElementType, Shape, Window, WindowDimension, element_type
from tinyxla.shapes.window import dilated


class ConvDimensionNumbers(NamedTuple):
    """Which dimension is which, the spatial ones in the order of the window's.

    `lhs_spec` and `out_spec` are (batch, feature, spatial...), `rhs_spec` is (output feature, input feature,
    spatial...).

    >>> from tinyxla import lax
    >>> lax.conv_dimension_numbers((8, 28, 28, 3), (5, 5, 3, 16), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """

    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints

    def __str__(self) -> str:
        """As HLO text has it: `b01f_01io->b01f`."""
        texts = [
            "".join(letter for _, letter in sorted(zip(spec, [*letters, *map(str, range(len(spec)))], strict=False)))
            for spec, letters in ((self.lhs_spec, "bf"), (self.rhs_spec, "oi"), (self.out_spec, "bf"))
        ]
        return f"{texts[0]}_{texts[1]}->{texts[2]}"


class Convolution(NamedTuple):
    window: Window
    dim_labels: ConvDimensionNumbers
    feature_group_count: int = 1
    batch_group_count: int = 1
    preferred_element_type: ElementType | None = None
    operand_precision: Precision = ()

    @property
    def groups(self) -> int:
        """Output features come in so many groups; only one of the two counts is more than 1."""
        return self.feature_group_count * self.batch_group_count


def _checked_labels(lhs: Shape, rhs: Shape, labels: ConvDimensionNumbers, spatial: int) -> None:
    if lhs.rank != spatial + 2 or rhs.rank != spatial + 2:
        raise ShapeError(
            f"convolution: with a window of {spatial} dimensions the operands must have {spatial + 2}, but got {lhs} "
            f"and {rhs}; give the window an entry for each spatial dimension."
        )
    for name, spec in zip(labels._fields, labels, strict=True):
        if sorted(spec) != list(range(spatial + 2)):
            raise AttributeValueError(
                f"convolution: {name} must name each of the {spatial + 2} dimensions once, but got {spec}."
            )


def _check_window(window: Window) -> None:
    for d, w in enumerate(window):
        for name in ("size", "stride", "window_dilation", "base_dilation"):
            value = getattr(w, name)
            if value < 1:
                raise AttributeValueError(
                    f"convolution: {name} must be positive, but got {value} in spatial dimension {d}."
                )


def _check_groups(lhs: Shape, rhs: Shape, dims: Convolution) -> None:
    features, batch = dims.feature_group_count, dims.batch_group_count
    labels = dims.dim_labels
    lhs_batch, lhs_feature = (lhs.dimensions[d] for d in labels.lhs_spec[:2])
    rhs_out, rhs_in = (rhs.dimensions[d] for d in labels.rhs_spec[:2])
    if features < 1 or batch < 1 or (features > 1 and batch > 1):
        raise AttributeValueError(
            "convolution: feature_group_count and batch_group_count must be positive and one of them 1, but got "
            f"{features} and {batch}."
        )
    if lhs_feature != rhs_in * features:
        raise ShapeError(
            f"convolution: the feature dimension of {lhs} must have feature_group_count = {features} times the "
            f"{rhs_in} input features of {rhs}, but it has {lhs_feature}."
        )
    for name, count, what, size in (
        ("feature_group_count", features, "output features", rhs_out),
        ("batch_group_count", batch, "output features", rhs_out),
        ("batch_group_count", batch, "elements of the batch", lhs_batch),
    ):
        if size % count:
            raise ShapeError(f"convolution: {name} must divide the {what}, but got {count} and {size}.")


def _convolution_shape(lhs: AnyShape, rhs: AnyShape, **attributes: Any) -> Shape:
    x, y = movement.array_operand("convolution", lhs), movement.array_operand("convolution", rhs)
    dims = Convolution(**attributes)
    if x.element_type is not y.element_type:
        raise DTypeError(f"convolution: the operands must have one element type, but got {x} and {y}; convert one.")
    labels, window = dims.dim_labels, dims.window
    _checked_labels(x, y, labels, len(window))
    _check_window(window)
    _check_groups(x, y, dims)
    kernel = tuple(y.dimensions[d] for d in labels.rhs_spec[2:])
    if kernel != tuple(w.size for w in window):
        sizes = tuple(w.size for w in window)
        raise ShapeError(f"convolution: the window must have the kernel's sizes {kernel}, but it has {sizes}.")
    sizes = [0] * x.rank
    for d, size in zip(labels.out_spec, _result_sizes(x.dimensions, y.dimensions, dims), strict=True):
        sizes[d] = size
    return Shape(
        result_type("convolution", x.element_type, dims.preferred_element_type, dims.operand_precision), tuple(sizes)
    )


def _result_sizes(lhs: Ints, rhs: Ints, dims: Convolution) -> Ints:
    """Batch, features, and spatial sizes."""
    spatial = [w.positions(lhs[d]) for w, d in zip(dims.window, dims.dim_labels.lhs_spec[2:], strict=True)]
    batch = lhs[dims.dim_labels.lhs_spec[0]] // dims.batch_group_count
    return (batch, rhs[dims.dim_labels.rhs_spec[0]], *spatial)


def padded_config(window: Window, sizes: Ints) -> tuple[tuple[int, int, int], ...]:
    """What `pad` takes to make holes and padding explicit in spatial dimensions of these sizes. Where negative padding
    takes away more than there is, nothing is left."""
    config: list[tuple[int, int, int]] = []
    for w, size in zip(window, sizes, strict=True):
        extent = dilated(size, w.base_dilation)
        config.append((w.padding_low, w.padded(size) - extent - w.padding_low, w.base_dilation - 1))
    return tuple(config)


def _convolution_evaluate(x: Array, y: Array, **attributes: Any) -> Array:
    """All windows as a view of the padded input, times the kernel: one matrix product for each group."""
    dims = Convolution(**attributes)
    result = _convolution_shape(Shape.of(x), Shape.of(y), **attributes)
    labels, window = dims.dim_labels, dims.window
    if not result.size:
        return np.zeros(result.dimensions, result.dtype)
    wide = accumulator(result.dtype)
    x = x.transpose(labels.lhs_spec).astype(wide)
    turned = tuple(d + 2 for d, w in enumerate(window) if w.window_reversal)
    y = np.flip(y.transpose(labels.rhs_spec), turned).astype(wide)
    config = ((0, 0, 0), (0, 0, 0), *padded_config(window, x.shape[2:]))
    x = movement.pad.evaluate(x, np.zeros((), wide), padding_config=config)
    batch, features, *places = (result.dimensions[d] for d in labels.out_spec)
    x = x.reshape(dims.batch_group_count, batch, dims.feature_group_count, y.shape[1], *x.shape[2:])
    steps = list(x.strides[4:])
    strides = [w.stride if count > 1 else 1 for w, count in zip(window, places, strict=True)]  # unused, it may be huge
    dilations = [w.window_dilation if w.size > 1 else 1 for w in window]
    windows = np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:4], *places, *(w.size for w in window)),
        (
            *x.strides[:4],
            *(step * stride for step, stride in zip(steps, strides, strict=True)),
            *(step * dilation for step, dilation in zip(steps, dilations, strict=True)),
        ),
        writeable=False,
    )
    spatial = tuple(range(4, 4 + len(window)))
    inner = tuple(d + len(window) for d in spatial)
    rows, depth = batch * math.prod(places), math.prod(y.shape[1:])
    left = windows.transpose(0, 2, 1, *spatial, 3, *inner).reshape(dims.groups, rows, depth)
    right = y.reshape(dims.groups, features // dims.groups, depth)
    product = np.matmul(left, right.transpose(0, 2, 1))
    whole = product.reshape(dims.groups, batch, *places, features // dims.groups)
    whole = np.moveaxis(whole, (1, 0, -1), (0, 1, 2)).reshape(batch, features, *places)
    return whole.transpose(movement.inverse_permutation(labels.out_spec)).astype(result.dtype)


# --- groups and mapped axes as parts of dimensions ------------------------------------------------------------------


def _joined(x: Value, axis: int, dim: int, groups: int = 1) -> Value:
    """x with its mapped axis as part of dimension `dim` (counted without it), inside of so many groups there."""
    x = movement.move_axis(x, axis, dim)
    before, (size, whole), after = x.shape[:dim], x.shape[dim : dim + 2], x.shape[dim + 2 :]
    if groups > 1:
        x = movement.reshape_to(x, (*before, size, groups, whole // groups, *after))
        x = movement.move_axis(x, dim + 1, dim)
    return movement.reshape_to(x, (*before, size * whole, *after))


def _parted(x: Value, size: int, dim: int, groups: int = 1) -> Value:
    """The inverse: the mapped axis is in front."""
    before, whole, after = x.shape[:dim], x.shape[dim], x.shape[dim + 1 :]
    x = movement.reshape_to(x, (*before, groups, size, whole // (groups * size), *after))
    x = movement.move_axis(x, dim + 1, 0)
    return movement.reshape_to(x, (size, *before, whole // size, *after))


# --- derivatives ------------------------------------------------------------------------------------------------------


def _grouped_first(x: Value, dim: int, into: int, groups: int) -> Value:
    """Dimension `dim` is groups of something: the groups become the outer part of dimension `into` instead."""
    if groups == 1:
        return x
    sizes = (*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :])
    return _joined(movement.reshape_to(x, sizes), dim, into)


def _as(x: Value, y: Value) -> Value:
    """x with the elements' type of y."""
    return x if x.dtype == y.dtype else elementwise.convert(x, new_element_type=element_type(y.dtype))


def _convolution_left(g: Value, x: Value, y: Value, **attributes: Any) -> Value:
    """The kernel, turned around, slides over g, which has holes where the window took strides."""
    dims = Convolution(**attributes)
    lhs, rhs, out = dims.dim_labels
    window = tuple(
        _sliding_over_result(w, x.shape[d], g.shape[e]) for w, d, e in zip(dims.window, lhs[2:], out[2:], strict=True)
    )
    turned = _grouped_first(y, rhs[0], rhs[1], dims.groups)
    labels = ConvDimensionNumbers(out, (rhs[1], rhs[0], *rhs[2:]), lhs)
    found = convolution(
        _as(g, y),
        turned,
        **dims._replace(
            window=window,
            dim_labels=labels,
            feature_group_count=dims.groups,
            batch_group_count=1,
            preferred_element_type=None,
        )._asdict(),
    )
    return _grouped_first(found, lhs[1], lhs[0], dims.batch_group_count)


def _sliding_over_result(w: WindowDimension, size: int, places: int) -> WindowDimension:
    """For an input of `size` elements, over which the window w has so many places."""
    reach = (w.size - 1) * w.window_dilation
    low = reach - w.padding_low
    return WindowDimension(
        size=w.size,
        stride=w.base_dilation,
        padding_low=low,
        padding_high=dilated(size, w.base_dilation) + reach - low - dilated(places, w.stride),
        window_dilation=w.window_dilation,
        base_dilation=w.stride,
        window_reversal=not w.window_reversal,
    )


def _convolution_right(g: Value, x: Value, y: Value, **attributes: Any) -> Value:
    """g slides over x: its elements are as far apart as the window's strides were, and its strides are what lay between
    elements of the kernel."""
    dims = Convolution(**attributes)
    lhs, rhs, out = dims.dim_labels
    if 0 in g.shape:
        return elementwise.zeros_like(y)
    window: list[WindowDimension] = []
    for w, d, e in zip(dims.window, lhs[2:], out[2:], strict=True):
        reach = dilated(g.shape[e], w.stride) + (w.size - 1) * w.window_dilation
        window.append(
            WindowDimension(
                size=g.shape[e],
                stride=w.window_dilation,
                padding_low=w.padding_low,
                padding_high=reach - w.padding_low - dilated(x.shape[d], w.base_dilation),
                window_dilation=w.stride,
                base_dilation=w.base_dilation,
            )
        )
    labels = ConvDimensionNumbers((lhs[1], lhs[0], *lhs[2:]), (out[1], out[0], *out[2:]), (rhs[1], rhs[0], *rhs[2:]))
    found = convolution(
        x,
        _as(g, x),
        **dims._replace(
            window=tuple(window),
            dim_labels=labels,
            feature_group_count=dims.batch_group_count,
            batch_group_count=dims.feature_group_count,
            preferred_element_type=None,
            operand_precision=dims.operand_precision,
        )._asdict(),
    )
    reversed_ = tuple(rhs[2 + d] for d, w in enumerate(dims.window) if w.window_reversal)
    return movement.reverse(found, dimensions=reversed_) if reversed_ else found


# --- batching ---------------------------------------------------------------------------------------------------------


def _convolution_batch(
    size: int, operands: tuple[Value, Value], axes: tuple[int | None, int | None], **attributes: Any
) -> tuple[Value, int]:
    """A mapped axis of the input is part of the batch, and one of the kernel part of its output features; where both
    have one, each is a group of its own."""
    (x, y), (left, right), dims = operands, axes, Convolution(**attributes)
    lhs, rhs, out = dims.dim_labels
    if size == 0:
        kept = [
            x.shape[:a] + x.shape[a + 1 :] if a is not None else x.shape for x, a in zip(operands, axes, strict=True)
        ]
        shape = convolution.shape(
            *(Shape(element_type(x.dtype), k) for x, k in zip(operands, kept, strict=True)), **attributes
        )
        assert isinstance(shape, Shape)
        return movement.full(0, shape.dtype, (0, *shape.dimensions)), 0
    if left is not None and right is not None:
        by_batch = dims.batch_group_count > 1
        x = _joined(x, left, lhs[0] if by_batch else lhs[1])
        y = _joined(y, right, rhs[0])
        count = "batch_group_count" if by_batch else "feature_group_count"
        found = convolution(x, y, **dims._replace(**{count: size * dims.groups})._asdict())
        return _parted(found, size, out[1]), 0
    if left is not None:
        found = convolution(_joined(x, left, lhs[0], dims.batch_group_count), y, **attributes)
        return _parted(found, size, out[0]), 0
    assert right is not None
    found = convolution(x, _joined(y, right, rhs[0], dims.groups), **attributes)
    return _parted(found, size, out[1], dims.groups), 0


# --- samples ----------------------------------------------------------------------------------------------------------


def labels_of(text: str) -> ConvDimensionNumbers:
    """The inverse of `str`: dimension numbers from `b01f_01io->b01f`."""
    lhs, rest = text.split("_")
    rhs, out = rest.split("->")
    spatial = "".join(map(str, range(len(lhs) - 2)))
    specs = (tuple(map(x.index, order + spatial)) for x, order in ((lhs, "bf"), (rhs, "oi"), (out, "bf")))
    return ConvDimensionNumbers(*specs)


def _convolution_samples(random: np.random.Generator) -> Iterator[Sample]:
    one, two = WindowDimension(1), WindowDimension(2)
    for lhs, rhs, labels, window, more in (
        ((2, 3), (4, 3), "bf_oi->bf", (), {}),
        ((2, 2, 4), (3, 2, 2), "bf0_oi0->bf0", (two,), {}),
        ((1, 4, 2), (2, 2, 3), "b0f_0io->b0f", (WindowDimension(2, 2, 1, 0),), {}),
        ((3, 1, 2), (2, 2, 2), "0bf_0io->f0b", (WindowDimension(2, 1, -1, 2, 2, 2, True),), {}),
        ((2, 4, 3), (2, 2, 2), "bf0_oi0->bf0", (WindowDimension(2, 1, 1, 0),), {"feature_group_count": 2}),
        ((4, 2, 3), (2, 2, 2), "bf0_oi0->bf0", (WindowDimension(2, 2, 0, 1),), {"batch_group_count": 2}),
        ((3, 2, 2, 1), (1, 2, 1, 2), "01bf_01io->01bf", (one, two), {}),
        ((1, 1, 2), (2, 1, 4), "bf0_oi0->bf0", (WindowDimension(4),), {}),
        ((0, 1, 2), (2, 1, 1), "bf0_oi0->bf0", (one,), {}),
        ((1, 0, 2), (2, 0, 1), "bf0_oi0->bf0", (one,), {}),
        ((1, 1, 2), (1, 1, 1), "bf0_oi0->bf0", (WindowDimension(1, 1, -2, -1),), {}),
    ):
        attributes = Convolution(window, labels_of(labels))._asdict() | more
        for dtype in (np.float32, np.complex64, np.int32, element_type("bf16").dtype):
            x, y = (elementwise.sample_array(random, dtype, shape, -3, 3) for shape in (lhs, rhs))
            yield Sample((x, y), attributes)
    x, y = (elementwise.sample_array(random, np.int8, shape, -100, 100) for shape in ((1, 3, 2), (2, 2, 2)))
    wide = Convolution((two,), labels_of("b0f_0io->b0f"), preferred_element_type=element_type("s32"))
    yield Sample((x, y), wide._replace(operand_precision=("highest", "default"))._asdict())


def slides_kernel(w: WindowDimension, size: int) -> bool:
    """Whether along a spatial dimension of that size the kernel is no longer than the result. If it is longer, as in
    the cotangent of a kernel, its parts give partial sums."""
    return w.size <= w.positions(size)


def _convolution_factors(x: Shape, y: Shape, **attributes: Any) -> Factors:
    """Elements of the batch and output features stand in the result; input features are summed over. Groups are split
    as the major part of the dimensions of features. Along spatial dimensions windows reach into other parts."""
    dims = Convolution(**attributes)
    lhs: list[int | None] = [None] * x.rank
    rhs, out = list(lhs), list(lhs)
    lhs_spec, rhs_spec, out_spec = dims.dim_labels
    reductions: list[tuple[int, str]] = []
    if dims.groups == 1:
        lhs[lhs_spec[1]] = rhs[rhs_spec[1]] = 1
        reductions.append((1, "add"))
    if dims.batch_group_count == 1:
        lhs[lhs_spec[0]] = out[out_spec[0]] = 0
    rhs[rhs_spec[0]] = out[out_spec[1]] = 2
    if dims.groups > 1:
        lhs[lhs_spec[dims.feature_group_count > 1]] = 2
    spatial = range(3, 3 + len(dims.window))
    for factor, w, i, k, j in zip(spatial, dims.window, lhs_spec[2:], rhs_spec[2:], out_spec[2:], strict=True):
        lhs[i] = factor
        if slides_kernel(w, x.dimensions[i]):
            out[j] = factor
        else:
            rhs[k] = factor
            reductions.append((factor, "add"))
    return Factors(
        (tuple(lhs), tuple(rhs)),
        (tuple(out),),
        tuple(reductions),
        localize=_convolution_of_parts,
        communicating=frozenset(spatial),
        sizes=((2, dims.groups),) if dims.groups > 1 else (),
    )


def _convolution_of_parts(
    attributes: dict[str, Any], operands: Sequence[Ints], results: Sequence[Ints]
) -> dict[str, Any]:
    """Parts have fewer groups."""
    (lhs, rhs), labels = operands, attributes["dim_labels"]
    counts = {"feature_group_count": (lhs[labels.lhs_spec[1]], rhs[labels.rhs_spec[1]])}
    if attributes["batch_group_count"] > 1:
        counts = {"batch_group_count": (lhs[labels.lhs_spec[0]], results[0][labels.out_spec[0]])}
    return attributes | {name: whole // part if part else attributes[name] for name, (whole, part) in counts.items()}


convolution = Op(
    "convolution",
    sharding=_convolution_factors,
    attributes=Convolution,
    shape=_convolution_shape,
    evaluate=_convolution_evaluate,
    derivative=Bilinear(_convolution_left, _convolution_right),
    batch=_convolution_batch,
    samples=_convolution_samples,
)
