"""Initial values of weights: each function makes an initializer, a function of a key, a shape and a dtype.

>>> from tinyxla.nn.initializers import glorot_uniform, random
>>> glorot_uniform()(random.key(0), (3, 4)).shape
(3, 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tinyxla import lax, numpy as tnp, random
from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.numpy.arguments import named, python_dtype, shape_of
from tinyxla.partitioning.placement import placed
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array

Axes = int | Sequence[int]


class Initializer(Protocol):
    """A function of a key, a shape, a dtype, and how the result is sharded."""

    def __call__(self, key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array: ...


def zeros(key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """All zeros; the key is not used.

    Args:
        key: a random key.
        shape: the sizes of the result.
        dtype: the element type of the weights.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of zeros.

    Raises:
        ArgumentError: a size that is no integer.

    Example:
        >>> from tinyxla import nn, random
        >>> nn.initializers.zeros(random.key(0), (3,))
        Array([0., 0., 0.], dtype=float32)
    """
    return tnp.zeros(shape, dtype, out_sharding=out_sharding)  # pyright: ignore[reportCallIssue]


def ones(key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """All ones; the key is not used.

    Args:
        key: a random key.
        shape: the sizes of the result.
        dtype: the element type of the weights.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of ones.

    Raises:
        ArgumentError: a size that is no integer.

    Example:
        >>> from tinyxla import nn, random
        >>> nn.initializers.ones(random.key(0), (3,))
        Array([1., 1., 1.], dtype=float32)
    """
    return tnp.ones(shape, dtype, out_sharding=out_sharding)  # pyright: ignore[reportCallIssue]


def constant(value: Any, dtype: Any = None) -> Initializer:
    """One value, or an array that broadcasts to the shape.

    Args:
        value: a number, or an array.
        dtype: the element type of the weights.

    Returns:
        A function of a key, a shape and an element type that gives an array.

    Raises:
        ShapeError: in the initializer, a shape to which the value does not broadcast.

    >>> from tinyxla.nn.initializers import constant, random
    >>> constant(2.0)(random.key(0), (2,))
    Array([2., 2.], dtype=float32)
    """
    return _drawing(dtype, lambda key, shape, kind: tnp.full(shape, value, kind))


def _drawing(default: Any, draw: Callable[[Array, Sequence[int], Any], Array]) -> Initializer:
    """The dtype is what is asked for at last, or when the initializer was made, or the usual one."""

    def init(key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
        drawn = draw(key, shape, next(kind for kind in (dtype, default, float) if kind is not None))
        return placed("nn.initializers: out_sharding", drawn, out_sharding, is_type=True)

    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform from 0 to `scale`.

    Args:
        scale: the upper limit.
        dtype: the element type of the weights.

    Returns:
        A function of a key, a shape and an element type that gives an array.

    Raises:
        DTypeError: in the initializer, a type that is not floating-point.

    Example:
        >>> from tinyxla import nn, random
        >>> weights = nn.initializers.uniform(0.1)(random.key(0), (64, 10))
        >>> bool((weights >= 0).all() and (weights < 0.1).all())
        True
    """
    return _drawing(dtype, lambda key, shape, kind: random.uniform(key, shape, kind) * tnp.asarray(scale, kind))


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with mean 0 and that standard deviation.

    Args:
        stddev: the standard deviation.
        dtype: the element type of the weights.

    Returns:
        A function of a key, a shape and an element type that gives an array.

    Raises:
        ShapeError: in the initializer, a negative size.

    Example:
        >>> from tinyxla import nn, random
        >>> nn.initializers.normal(0.1)(random.key(0), (64, 10)).shape
        (64, 10)
    """
    return _drawing(dtype, lambda key, shape, kind: random.normal(key, shape, kind) * tnp.asarray(stddev, kind))


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Normal with that standard deviation, cut off at `lower` and `upper` times it, which makes the actual one less.

    Args:
        stddev: the standard deviation.
        dtype: the element type of the weights.
        lower, upper: the limits, in standard deviations.

    Returns:
        A function of a key, a shape and an element type that gives an array.

    Raises:
        ArgumentError: in the initializer, what is no random key.
        DTypeError: in the initializer, a type that is not floating-point, or a limit or standard deviation that is no
            number.
        ShapeError: in the initializer, a negative size.

    Example:
        >>> from tinyxla import nn, random
        >>> weights = nn.initializers.truncated_normal(0.1)(random.key(0), (64, 10))
        >>> bool(abs(weights).max() <= 0.2)
        True
    """

    def draw(key: Array, shape: Sequence[int], kind: Any) -> Array:
        return random.truncated_normal(key, lower, upper, shape, kind) * tnp.asarray(stddev, kind)

    return _drawing(dtype, draw)


# --- scaled by the size of the layer ----------------------------------------------------------------------------------


def _product(shape: tuple[int, ...], axes: Axes) -> int:
    chosen = (axes,) if isinstance(axes, int) else tuple(axes)
    return math.prod(shape[canonical_axis(a, len(shape), "nn.initializers")] for a in chosen)


def _fans(shape: tuple[int, ...], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many inputs an output has, and outputs an input: the channels times the size of the receptive field."""
    if len(shape) < 2 and isinstance(in_axis, int):
        raise ShapeError(
            f"nn.initializers: fan-in and fan-out need axes of inputs and of outputs, but the shape is {shape}; "
            "use initializers.normal or uniform for vectors."
        )
    inputs, outputs = _product(shape, in_axis), _product(shape, out_axis)
    field = math.prod(shape) / max(inputs * outputs * _product(shape, batch_axis), 1)
    return inputs * field, outputs * field


# The standard deviation of the standard normal distribution cut off at -2 and 2.
_TRUNCATED_STDDEV = math.sqrt(1 - 4 * math.exp(-2) / (math.sqrt(2 * math.pi) * math.erf(math.sqrt(2))))


# That of the complex one whose modulus is cut off at 2; its square has the density exp(-x), 0 <= x < 4.
_COMPLEX_TRUNCATED_STDDEV = math.sqrt(1 - 4 / (math.exp(4) - 1))


def _in_disk(key: Any, shape: Sequence[int], kind: Any, square: Callable[[Any], Any]) -> Any:
    """Complex numbers of any argument, of which the squares of the moduli are a function of uniform numbers."""
    for_modulus, for_argument = random.split(key)
    real = np.dtype(np.float32 if python_dtype(kind) == np.complex64 else np.float64)
    modulus = tnp.sqrt(square(random.uniform(for_modulus, shape, real)))
    angle = 2 * math.pi * random.uniform(for_argument, shape, real)
    return lax.complex(modulus * tnp.cos(angle), modulus * tnp.sin(angle))


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """Weights of mean 0 and of the variance `scale` divided by a size of the layer.

    Args:
        scale: a positive factor.
        mode: the size: "fan_in", "fan_out", or their arithmetic or geometric mean "fan_avg", "fan_geo_avg".
        distribution: "normal", "truncated_normal" (at two standard deviations) or "uniform".
        in_axis, out_axis: the axes of the shape that are the layer's inputs and outputs.
        batch_axis: axes that count for neither.
        dtype: of the weights.

    Returns:
        A function of a key, a shape and an element type that gives an array.

    Raises:
        AttributeValueError: a mode or distribution that there is not.
        ShapeError: in the initializer, a shape of fewer than two dimensions.

    >>> from tinyxla.nn.initializers import random, variance_scaling
    >>> variance_scaling(1.0, "fan_in", "uniform")(random.key(0), (3, 4)).shape
    (3, 4)
    """
    what = "nn.initializers.variance_scaling"
    if mode not in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"):
        raise AttributeValueError(f"{what}: mode is fan_in, fan_out, fan_avg or fan_geo_avg, but got {mode!r}.")
    if distribution not in ("normal", "truncated_normal", "uniform"):
        raise AttributeValueError(
            f"{what}: distribution is normal, truncated_normal or uniform, but got {distribution!r}."
        )

    def draw(key: Array, shape: Sequence[int], kind: Any) -> Array:
        fan_in, fan_out = _fans(shape_of(what, shape), in_axis, out_axis, batch_axis)
        sizes = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }
        variance = scale / max(sizes[mode], 1e-30)
        is_complex = python_dtype(kind).kind == "c"
        if distribution == "normal":
            return random.normal(key, shape, kind) * math.sqrt(variance)
        if distribution == "uniform" and is_complex:
            return _in_disk(key, shape, kind, lambda u: 2 * u) * math.sqrt(variance)
        if distribution == "uniform":
            return random.uniform(key, shape, kind, -1.0) * math.sqrt(3 * variance)
        if is_complex:
            drawn = _in_disk(key, shape, kind, lambda u: -tnp.log(1 - (1 - math.exp(-4)) * u))
            return drawn * (math.sqrt(variance) / _COMPLEX_TRUNCATED_STDDEV)
        return random.truncated_normal(key, -2.0, 2.0, shape, kind) * (math.sqrt(variance) / _TRUNCATED_STDDEV)

    return _drawing(dtype, draw)


def _scaled(name: str, scale: float, mode: str, distribution: str, source: str) -> Any:
    def make(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    text = f"""`variance_scaling({scale}, {mode!r}, {distribution!r})`. Source: {source}.

    Args:
        in_axis, out_axis: the axes of the shape that are the layer's inputs and outputs.
        batch_axis: axes that count for neither.
        dtype: the element type of the weights.

    Returns:
        A function of a key, a shape and an element type that gives an array.

    Raises:
        ShapeError: in the initializer, a shape of fewer than two dimensions.

    Example:
        >>> from tinyxla import nn, random
        >>> nn.initializers.{name}()(random.key(0), (64, 10)).shape
        (64, 10)
    """
    return named(make, name, text)


_GLOROT = 'X. Glorot and Y. Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010'
_LECUN = 'Y. LeCun et al., "Efficient backprop", 1998, section 4.6'
_HE = 'K. He et al., "Delving deep into rectifiers", ICCV 2015, section 2.2'

glorot_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
glorot_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal", _LECUN)
he_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", _HE)
he_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal", _HE)
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """A matrix with orthogonal rows or columns, all equally likely, times `scale`; `column_axis` of the shape is its
    columns, and all others together its rows. Source: A. Saxe et al., "Exact solutions to the nonlinear dynamics of
    learning in deep linear neural networks", ICLR 2014.

    Args:
        scale: a positive factor.
        column_axis: the axis of the outputs.
        dtype: the element type of the weights.

    Returns:
        A function of a key, a shape of at least two sizes and an element type that gives an array.

    Raises:
        ShapeError: in the initializer, a shape of fewer than two dimensions.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.nn.initializers import orthogonal, random
    >>> weights = orthogonal()(random.key(0), (4, 3))
    >>> bool(tnp.allclose(weights.T @ weights, tnp.eye(3), atol=1e-5))
    True
    """
    what = "nn.initializers.orthogonal"

    def draw(key: Array, shape: Sequence[int], kind: Any) -> Array:
        sizes = list(shape_of(what, shape))
        if len(sizes) < 2:
            raise ShapeError(f"{what}: the shape must have at least 2 dimensions, but got {tuple(sizes)}.")
        axis = canonical_axis(column_axis, len(sizes), what)
        columns = sizes.pop(axis)
        drawn = random.orthogonal(key, math.prod(sizes), (), kind, columns)
        return scale * tnp.moveaxis(drawn.reshape((*sizes, columns)), -1, axis)

    return _drawing(dtype, draw)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Kernels of convolutions, [..., inputs, outputs], that are `orthogonal` in the middle and zero elsewhere. Source:
    L. Xiao et al., "Dynamical isometry and a mean field theory of CNNs", ICML 2018.

    Args:
        scale: a positive factor.
        column_axis: the axis of the outputs.
        dtype: the element type of the weights.

    Returns:
        A function of a key, a shape of three to five sizes and an element type that gives an array.

    Raises:
        ShapeError: in the initializer, a shape of no kernel, or of more inputs than outputs.

    >>> from tinyxla.nn.initializers import delta_orthogonal, random
    >>> delta_orthogonal()(random.key(0), (3, 3, 2, 4)).shape
    (3, 3, 2, 4)
    """
    make = orthogonal(scale, column_axis, dtype)
    what = "nn.initializers.delta_orthogonal"

    def init(key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
        sizes = shape_of(what, shape)
        if not 3 <= len(sizes) <= 5 or sizes[-1] < sizes[-2]:
            raise ShapeError(
                f"{what}: the shape must be that of a kernel of 1 to 3 spatial dimensions, with no more inputs than "
                f"outputs at its end, but got {sizes}."
            )
        matrix = make(key, sizes[-2:], dtype)
        middle = tuple((n - 1) // 2 for n in sizes[:-2])
        kernel = tnp.zeros(sizes, matrix.dtype).at[middle].set(matrix)
        return placed(f"{what}: out_sharding", kernel, out_sharding, is_type=True)

    return init


__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]


def __dir__() -> list[str]:
    return __all__
