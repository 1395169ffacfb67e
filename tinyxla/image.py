"""Resizing of pictures and other arrays, under the names of `jax.image`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    cast,
    counted,
    inexact_array,
    operand,
    several_of,
    shape_of,
    shown,
)
from tinyxla.ops.products.precision import PrecisionLike
from tinyxla.shapes import Shape
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import has_symbolic
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import join_types
from tinyxla.util.did_you_mean import missing as _missing


class ResizeMethod(enum.Enum):
    """How elements between those of an array are found.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla import image
    >>> x = jnp.array([0.0, 1.0])
    >>> [image.resize(x, (4,), method).tolist() for method in (image.ResizeMethod.NEAREST, image.ResizeMethod.LINEAR)]
    [[0.0, 0.0, 1.0, 1.0], [0.0, 0.25, 0.75, 1.0]]
    """

    NEAREST = "nearest"
    LINEAR = "linear"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    CUBIC = "cubic"
    CUBIC_PYTORCH = "cubic-pytorch"
    AREA = "area"

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of that name; of linear and cubic also the names bilinear, trilinear, triangle, bicubic, tricubic
        and bicubic-pytorch.

        Args:
            s: the name.

        Returns:
            The method.

        Raises:
            AttributeValueError: another name.

        >>> from tinyxla.image import ResizeMethod
        >>> ResizeMethod.from_string("bilinear")
        <ResizeMethod.LINEAR: 'linear'>
        """
        try:
            return ResizeMethod(_OTHER_NAMES.get(s, s))
        except (TypeError, ValueError):
            known = ", ".join(repr(m.value) for m in ResizeMethod)
            raise AttributeValueError(f"image.resize: method must be one of {known}, but got {shown(s)}.") from None


_OTHER_NAMES = {
    **dict.fromkeys(("bilinear", "trilinear", "triangle"), "linear"),
    **dict.fromkeys(("bicubic", "tricubic"), "cubic"),
    "bicubic-pytorch": "cubic-pytorch",
}


def _triangle(x: Any) -> Any:
    return tnp.maximum(0, 1 - x)


def _keys_cubic(a: float) -> Callable[[Any], Any]:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), section IV."""

    def kernel(x: Any) -> Any:
        near = (((a + 2) * x - (a + 3)) * x) * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return tnp.where(x >= 2, 0, tnp.where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        return tnp.where(x > radius, 0, tnp.sinc(x) * tnp.sinc(x / radius))

    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.CUBIC: _keys_cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _keys_cubic(-0.5),  # with antialias; without it see `_edge_weights`
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
}


def _method(method: Any) -> ResizeMethod:
    return method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method)


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = None,
) -> Array:
    """The array with other sizes: each new element is a weighted mean of those around its place.

    Args:
        image: any array; integers and booleans are taken as floats, except by the method "nearest".
        shape: the new sizes, of the same rank. Dimensions of equal size do not change.
        method: "nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5" or "area", or a `ResizeMethod`.
            "area" is the mean over the place of the new element, whose parts count by their size. "cubic-pytorch" is
            "cubic", but without `antialias` it has the kernel of PyTorch and repeats the elements at the edges.
        antialias: where the array shrinks, widen the kernel by as much, so that all elements take part.
        precision: of the products with the weights, as for `lax.dot_general`.

    Returns:
        An array of these sizes; floating point unless the method is "nearest".

    Raises:
        ShapeError: the rank is another.
        AttributeValueError: there is no such method.

    >>> import numpy as np
    >>> from tinyxla.image import resize
    >>> resize(np.arange(4.0), (2,), "linear", antialias=False)
    Array([0.5, 2.5], dtype=float32)
    """
    x = array_of(image, "image.resize")
    sizes = shape_of("image.resize", shape)
    if len(sizes) != x.ndim:
        raise ShapeError(f"image.resize: shape must have {x.ndim} sizes, as {Shape.of(x)} has, but got {sizes}.")
    how = _method(method)
    changed = [d for d in range(x.ndim) if x.shape[d] != sizes[d]]
    if any(x.shape[d] == 0 for d in changed):
        raise ShapeError(f"image.resize: {Shape.of(x)} has no elements, so it cannot get the shape {sizes}.")
    if how is ResizeMethod.NEAREST:
        for d in changed:
            x = tnp.take(x, _nearest_indices(x.shape[d], sizes[d]), d)
        return x
    x = inexact_array(x, "image.resize")
    for d in changed:
        x = _weighted(
            x, d, _weights(x.shape[d], sizes[d], sizes[d] / x.shape[d], 0.0, how, antialias, x.dtype), precision
        )
    return x


def _nearest_indices(old: int, new: int) -> Any:
    """The indices of the elements whose middles are nearest to those of the new ones."""
    if has_symbolic((old, new)):
        return (2 * tnp.arange(new) + 1) * old // (2 * new)
    return np.floor((counted("image.resize", new) + 0.5) * old / new).astype(np.int32)


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = None,
) -> Array:
    """The array scaled, then moved, along some dimensions, in a frame of the given sizes; zero outside.

    Args:
        image: an array of floats.
        shape: the sizes of the result.
        spatial_dims: the dimensions that change.
        scale, translation: a factor, and a distance in new elements, for each of these; may be traced.
        method: as for `resize`, except "nearest".
        antialias, precision: as for `resize`.

    Returns:
        An array of the sizes `shape`, and of the type of the image.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.image import scale_and_translate
    >>> scale_and_translate(np.arange(3.0), (3,), (0,), np.ones(1), np.ones(1), "linear")
    Array([0., 0., 1.], dtype=float32)
    """
    what = "image.scale_and_translate"
    x = inexact_array(image, what)
    sizes = shape_of(what, shape)
    if len(sizes) != x.ndim:
        raise ShapeError(f"{what}: shape must have {x.ndim} sizes, as {Shape.of(x)} has, but got {sizes}.")
    how = _method(method)
    if how is ResizeMethod.NEAREST:
        raise AttributeValueError(f"{what}: method must not be 'nearest'; 'linear' is closest to it.")
    factors, distances = inexact_array(scale, what), inexact_array(translation, what)
    for k, dimension in enumerate(several_of(what, "spatial_dims", spatial_dims)):
        d = canonical_axis(dimension, x.ndim, what)
        x = _weighted(
            x, d, _weights(x.shape[d], sizes[d], factors[k], distances[k], how, antialias, x.dtype), precision
        )
    return x


def _weights(
    size: int, new: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool, dtype: Any
) -> Array:
    """The matrix [size, new] of what each element adds to each of the new ones."""
    real = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    kind = join_types((real, False), (np.dtype(np.float32), False))[0]
    scale, translation = cast(operand(scale, "image"), kind), cast(operand(translation, "image"), kind)
    places = (tnp.arange(new, dtype=kind)[None] + 0.5 - translation) / scale - 0.5
    if method is ResizeMethod.AREA:
        weights = _overlaps(size, places, 1 / scale)
    elif method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        weights = _edge_weights(size, places)
    else:
        width = tnp.maximum(1 / scale, 1) if antialias else 1
        weights = _KERNELS[method](tnp.abs(places - tnp.arange(size, dtype=kind)[:, None]) / width)
    totals = tnp.sum(weights, 0, keepdims=True)
    weights = tnp.where(tnp.abs(totals) > 1e-3, weights / tnp.where(totals == 0, 1, totals), 0)
    return tnp.where((places >= -0.5) & (places <= size - 0.5), weights, 0).astype(dtype)


def _overlaps(size: int, places: Array, width: Array) -> Array:
    """How much of the interval of that width around each place lies in each element, which has the width 1."""
    middle = tnp.arange(size, dtype=places.dtype)[:, None]
    low, high = tnp.maximum(places - width / 2, middle - 0.5), tnp.minimum(places + width / 2, middle + 0.5)
    return tnp.maximum(high - low, 0)


def _edge_weights(size: int, places: Array) -> Array:
    """Weights of the four elements around each place by the cubic kernel with a = -3/4; beyond an edge the element at
    the edge counts again."""
    kernel, first = _keys_cubic(-0.75), tnp.floor(places) - 1
    taps = [first + k for k in range(4)]
    chosen = [tnp.clip(tap, 0, size - 1) == tnp.arange(size, dtype=places.dtype)[:, None] for tap in taps]
    return sum((tnp.where(c, kernel(tnp.abs(places - t)), 0) for c, t in zip(chosen, taps, strict=True)), 0 * places)


def _weighted(x: Array, d: int, weights: Array, precision: PrecisionLike) -> Array:
    return tnp.moveaxis(tnp.tensordot(x, weights, ((d,), (0,)), precision=precision), -1, d)


__all__ = ["ResizeMethod", "resize", "scale_and_translate"]

__getattr__ = _missing(__name__)


def __dir__() -> list[str]:
    return __all__
