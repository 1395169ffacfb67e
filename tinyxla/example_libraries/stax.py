"""Layers of neural networks as pairs of functions, under the names of `jax.example_libraries.stax`.

A layer is a pair of `init_fun(rng, input_shape)`, which gives the shape of the output and the parameters, and
`apply_fun(params, inputs, rng=None)`, which gives the output. In shapes, -1 stands for a batch of any size. Where there
are several inputs or outputs, they are lists.

>>> import tinyxla.numpy as tnp
>>> from tinyxla import random
>>> from tinyxla.example_libraries.stax import Dense, LogSoftmax, Relu, serial
>>> init_fun, apply_fun = serial(Dense(16), Relu, Dense(3), LogSoftmax)
>>> output_shape, params = init_fun(random.key(0), (-1, 8))
>>> output_shape, apply_fun(params, tnp.ones((5, 8))).shape
((-1, 3), (5, 3))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla import lax, nn, numpy as tnp, random
from tinyxla.errors import ArgumentError
from tinyxla.nn import (
    elu as elu,
    gelu as gelu,
    leaky_relu as leaky_relu,
    log_softmax as log_softmax,
    relu as relu,
    selu as selu,
    sigmoid as sigmoid,
    softmax as softmax,
    softplus as softplus,
    standardize as standardize,
)
from tinyxla.nn.initializers import glorot_normal, normal, ones, zeros
from tinyxla.numpy.arguments import choice_of, integers_of, named

Layer = tuple[Callable[..., Any], Callable[..., Any]]
Shape = tuple[int, ...]
glorot, randn, logsoftmax = glorot_normal, normal, log_softmax  # their older names


def _without_parameters(shape: Callable[[Any], Any], function: Callable[..., Any]) -> Layer:
    return lambda rng, input_shape: (shape(input_shape), ()), lambda params, inputs, **_: function(inputs)


def _whatever_batch(shape_of: Callable[[Shape], Shape], input_shape: Sequence[int], given: str, found: str) -> Shape:
    """The shape that a function gives for a batch of one, with the batch of the input."""
    place = given.index("N")
    shape = list(shape_of((*input_shape[:place], 1, *input_shape[place + 1 :])))
    shape[found.index("N")] = input_shape[place]
    return tuple(shape)


# --- layers with parameters -------------------------------------------------------------------------------------------


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:  # noqa: B008 (made once)
    """x W + b, with `out_dim` columns in W."""

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        first, second = random.split(rng)
        params = W_init(first, (input_shape[-1], out_dim)), b_init(second, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    def apply_fun(params: Any, inputs: Any, **_: Any) -> Any:
        weights, bias = params
        return tnp.dot(inputs, weights) + bias

    return init_fun, apply_fun


def _convolution(
    name: str, text: str, shape_of: Callable[..., Shape], function: Callable[..., Any]
) -> Callable[..., Layer]:
    """Layers with filters and biases: `shape_of` gives the output's shape by those of the input and the filter."""

    def layer(
        dimension_numbers: tuple[str, str, str],
        out_chan: int,
        filter_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Any = "VALID",
        W_init: Any = None,
        b_init: Any = normal(1e-6),  # noqa: B008 (made once)
    ) -> Layer:
        given, filtered, found = dimension_numbers
        draw = W_init or glorot_normal(filtered.index("I"), filtered.index("O"))
        steps = (1,) * len(filter_shape) if strides is None else tuple(strides)

        def init_fun(rng: Any, input_shape: Shape) -> Any:
            spatial = iter(filter_shape)
            channels = {"O": out_chan, "I": input_shape[given.index("C")]}
            sizes = tuple(channels[d] if d in channels else next(spatial) for d in filtered)
            first, second = random.split(rng)
            params = draw(first, sizes), b_init(second, tuple(out_chan if d == "C" else 1 for d in found))
            shape = _whatever_batch(
                lambda x: shape_of(x, sizes, steps, padding, dimension_numbers), input_shape, given, found
            )
            return shape, params

        def apply_fun(params: Any, inputs: Any, **_: Any) -> Any:
            weights, bias = params
            return function(inputs, weights, steps, padding, dimension_numbers=dimension_numbers) + bias

        return init_fun, apply_fun

    return named(layer, name, text)


GeneralConv = _convolution(
    "GeneralConv",
    """A convolution with a bias for each of `out_chan` channels.

    Args:
        dimension_numbers: what the dimensions of inputs, filters and outputs are, such as ("NHWC", "HWIO", "NHWC").
        out_chan: the channels of the output.
        filter_shape: the other sizes of filters.
        strides: of the filter; 1, if None.
        padding: "VALID", "SAME", or pairs, as for `lax.conv_general_dilated`.
        W_init, b_init: initializers of filters (Glorot's, if None) and biases.
    """,
    lax.conv_general_shape_tuple,
    lax.conv_general_dilated,
)
GeneralConvTranspose = _convolution(
    "GeneralConvTranspose",
    "A transposed convolution, which takes steps of 1 / `strides`; arguments as for `GeneralConv`.",
    lax.conv_transpose_shape_tuple,
    lax.conv_transpose,
)
Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """What `nn.standardize` makes of the axes, times a scale and plus a center that are parameters."""
    reduced = (axis,) if isinstance(axis, int) else integers_of("stax.BatchNorm", "axis", axis)

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        shape = tuple(n for d, n in enumerate(input_shape) if d not in reduced)
        first, second = random.split(rng)
        return input_shape, (beta_init(first, shape) if center else (), gamma_init(second, shape) if scale else ())

    def apply_fun(params: Any, x: Any, **_: Any) -> Any:
        beta, gamma = params
        found = nn.standardize(x, reduced, epsilon=epsilon)
        if scale:
            found = tnp.expand_dims(gamma, reduced) * found
        return found + tnp.expand_dims(beta, reduced) if center else found

    return init_fun, apply_fun


# --- layers of elements -----------------------------------------------------------------------------------------------


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer of a function that keeps shapes."""
    return _without_parameters(lambda shape: shape, lambda x: fun(x, **fun_kwargs))


Tanh = elementwise(tnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(tnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)
Identity = elementwise(lambda x: x)
Flatten = _without_parameters(
    lambda shape: (shape[0], math.prod(shape[1:])), lambda x: tnp.reshape(x, (x.shape[0], -1))
)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Elements kept with the probability `rate`, and divided by it; all, as they are, with the mode "test".

    The layer's function needs `rng` for training.
    """
    drops = choice_of("stax.Dropout", "mode", mode, ("train", "test")) == "train"

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **_: Any) -> Any:
        if rng is None:
            raise ArgumentError("stax.Dropout: the layer's function needs a key: apply_fun(params, inputs, rng=key).")
        return tnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0) if drops else inputs

    return lambda rng, input_shape: (input_shape, ()), apply_fun


# --- pooling ----------------------------------------------------------------------------------------------------------


def _pooling(reducer: Any, initial: float, averages: bool = False) -> Callable[..., Layer]:
    def layer(
        window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID", spec: Any = None
    ) -> Layer:
        """Windows of the dimensions that are neither the batch ("N") nor channels ("C") by `spec`: by default the first
        one and the last one."""
        order = spec or f"N{'x' * len(window_shape)}C"
        sizes, steps = iter(window_shape), iter(strides or (1,) * len(window_shape))
        window, moves = (tuple(1 if d in "NC" else next(x) for d in order) for x in (sizes, steps))

        def shape_of(x: Shape) -> Shape:
            return lax.reduce_window_shape_tuple(x, window, moves, lax.padtype_to_pads(x, window, moves, padding))

        def shape(x: Shape) -> Shape:
            return _whatever_batch(shape_of, x, order, order)

        def pooled(x: Any) -> Any:
            return lax.reduce_window(x, initial, reducer, window, moves, padding)

        return _without_parameters(shape, lambda x: pooled(x) / pooled(tnp.ones_like(x)) if averages else pooled(x))

    return layer


MaxPool = _pooling(lax.max, -math.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, averages=True)


# --- several inputs or outputs ----------------------------------------------------------------------------------------


def FanOut(num: int) -> Layer:
    """Its input, so many times."""
    return _without_parameters(lambda shape: [shape] * num, lambda x: [x] * num)


FanInSum = _without_parameters(lambda shapes: shapes[0], sum)


def FanInConcat(axis: int = -1) -> Layer:
    """Its inputs, one behind the other along an axis."""

    def shape(shapes: Sequence[Shape]) -> Shape:
        place = axis % len(shapes[0])
        return (*shapes[0][:place], sum(s[place] for s in shapes), *shapes[0][place + 1 :])

    return _without_parameters(shape, lambda xs: tnp.concatenate(xs, axis))


# --- layers of layers -------------------------------------------------------------------------------------------------


def _keys(rng: Any, count: int) -> Any:
    return [None] * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Layers one after the other; the parameters are a list of theirs.

    The function's `rng` is split among them.
    """

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params: list[Any] = []
        for init, _ in layers:
            rng, key = random.split(rng)
            input_shape, found = init(key, input_shape)
            params.append(found)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **options: Any) -> Any:
        for (_, apply), own, key in zip(layers, params, _keys(rng, len(layers)), strict=True):
            inputs = apply(own, inputs, rng=key, **options)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Layers side by side, each with an input of its own, as `FanOut` makes them; the outputs are a list."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        found = [init(key, shape) for (init, _), key, shape in zip(layers, keys, input_shape, strict=True)]
        return [shape for shape, _ in found], [params for _, params in found]

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **options: Any) -> Any:
        keys = _keys(rng, len(layers))
        parts = zip(layers, params, inputs, keys, strict=True)
        return [apply(own, x, rng=key, **options) for (_, apply), own, x, key in parts]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """The layer that a function makes for the shape of its input."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **options: Any) -> Any:
        return make_layer(tnp.shape(inputs))[1](params, inputs, **options)

    return init_fun, apply_fun


__all__ = [
    "AvgPool",
    "BatchNorm",
    "Conv",
    "Conv1DTranspose",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Elu",
    "Exp",
    "FanInConcat",
    "FanInSum",
    "FanOut",
    "Flatten",
    "Gelu",
    "GeneralConv",
    "GeneralConvTranspose",
    "Identity",
    "LeakyRelu",
    "LogSoftmax",
    "MaxPool",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "SumPool",
    "Tanh",
    "elementwise",
    "elu",
    "gelu",
    "glorot",
    "glorot_normal",
    "leaky_relu",
    "log_softmax",
    "logsoftmax",
    "normal",
    "ones",
    "parallel",
    "randn",
    "relu",
    "selu",
    "serial",
    "shape_dependent",
    "sigmoid",
    "softmax",
    "softplus",
    "standardize",
    "zeros",
]


def __dir__() -> list[str]:
    return __all__
