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
from tinyxla.errors import ArgumentError, ShapeError
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
from tinyxla.numpy.arguments import (
    canonical_axes,
    choice_of,
    count_of,
    function_of,
    integer_of,
    integers_of,
    is_several,
    named,
    several_of,
    shown,
)
from tinyxla.shapes.shape import canonical_axis

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


def _shape_of(what: str, input_shape: Any, rank: int | None = None) -> Shape:
    """The shape of an input, of that rank, or at least of one dimension."""
    shape = integers_of(what, "input_shape", input_shape)
    if len(shape) != rank if rank is not None else not shape:
        wanted = "at least one dimension" if rank is None else f"{rank} dimensions"
        raise ShapeError(f"{what}: the input must have {wanted}, but has the shape {shape}.")
    return shape


def _positive(what: str, name: str, value: Any, count: int | None = None) -> Shape:
    """Sizes or strides, of which there are `count`."""
    found = integers_of(what, name, value, count)
    if any(n < 1 for n in found):
        raise ArgumentError(f"{what}: {name} must be positive, but got {found}.")
    return found


def _letters(what: str, name: str, value: Any, roles: str, spatial: int) -> str:
    """A letter for each dimension: those of `roles`, and one for each spatial dimension."""
    if not isinstance(value, str) or len(value) != spatial + 2 or any(value.count(role) != 1 for role in roles):
        raise ArgumentError(
            f"{what}: {name} must have the letters {' and '.join(roles)} and one for each of {spatial} spatial "
            f"dimensions, but got {shown(value)}."
        )
    return value


# --- layers with parameters -------------------------------------------------------------------------------------------


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:  # noqa: B008 (made once)
    """The layer x W + b (fully connected), with `out_dim` columns in W.

    Args:
        out_dim: the size of the last dimension of the output.
        W_init, b_init: initializers of W, of shape (in, out), and of b, of shape (out,).

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: an `out_dim` that is no integer, or initializers that are no functions.
        ShapeError: a negative `out_dim`, or the layer's functions are given an input without dimensions, or one whose
            last dimension does not fit W.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> init_fun, apply_fun = stax.Dense(3)
    >>> output_shape, (W, b) = init_fun(random.key(0), (-1, 8))
    >>> output_shape, W.shape, b.shape
    ((-1, 3), (8, 3), (3,))
    """
    what = "stax.Dense"
    columns = count_of(what, "out_dim", out_dim)
    function_of(what, "W_init", W_init)
    function_of(what, "b_init", b_init)

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        shape = _shape_of(what, input_shape)
        first, second = random.split(rng)
        params = W_init(first, (shape[-1], columns)), b_init(second, (columns,))
        return (*shape[:-1], columns), params

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
        what = f"stax.{name}"
        window = _positive(what, "filter_shape", filter_shape)
        roles = ("NC", "IO", "NC")
        given, filtered, found = (
            _letters(what, "each of dimension_numbers", x, letters, len(window))
            for x, letters in zip(several_of(what, "dimension_numbers", dimension_numbers, 3), roles, strict=True)
        )
        channels_out = count_of(what, "out_chan", out_chan)
        steps = (1,) * len(window) if strides is None else _positive(what, "strides", strides, len(window))
        draw = function_of(what, "W_init", W_init or glorot_normal(filtered.index("I"), filtered.index("O")))
        function_of(what, "b_init", b_init)

        def init_fun(rng: Any, input_shape: Shape) -> Any:
            whole = _shape_of(what, input_shape, len(given))
            spatial = iter(window)
            channels = {"O": channels_out, "I": whole[given.index("C")]}
            sizes = tuple(channels[d] if d in channels else next(spatial) for d in filtered)
            first, second = random.split(rng)
            params = draw(first, sizes), b_init(second, tuple(channels_out if d == "C" else 1 for d in found))
            shape = _whatever_batch(
                lambda x: shape_of(x, sizes, steps, padding, dimension_numbers), whole, given, found
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
        dimension_numbers: what the dimensions of inputs, filters and outputs are, such as ("NHWC", "HWIO", "NHWC"): "N"
            is the batch, "C" are channels, "I" and "O" those of the input and the output.
        out_chan: the channels of the output.
        filter_shape: the other sizes of filters.
        strides: of the filter; 1, if None.
        padding: "VALID", "SAME", or pairs, as for `lax.conv_general_dilated`.
        W_init, b_init: initializers of filters (Glorot's, if None) and biases.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: `dimension_numbers` that are no three texts with these letters, or `filter_shape` and
            `strides` that are no positive integers, one for each spatial dimension.
        AttributeValueError: the layer's functions meet a `padding` of another name.
        ShapeError: a negative `out_chan`, or the layer's functions are given an input of another rank or number of
            channels.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> init_fun, _ = stax.GeneralConv(("NHWC", "HWIO", "NHWC"), 16, (3, 3), strides=(2, 2), padding="SAME")
    >>> output_shape, (filters, bias) = init_fun(random.key(0), (-1, 8, 8, 3))
    >>> output_shape, filters.shape
    ((-1, 4, 4, 16), (3, 3, 3, 16))
    """,
    lax.conv_general_shape_tuple,
    lax.conv_general_dilated,
)
GeneralConvTranspose = _convolution(
    "GeneralConvTranspose",
    """A transposed convolution, which takes steps of 1 / `strides`.

    Args:
        dimension_numbers, out_chan, filter_shape, padding, W_init, b_init: as for `GeneralConv`.
        strides: the inverse of the steps; 1, if None.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: `dimension_numbers` that are no three texts with the letters of `GeneralConv`, or `filter_shape`
            and `strides` that are no positive integers, one for each spatial dimension.
        AttributeValueError: the layer's functions meet a `padding` of another name.
        ShapeError: a negative `out_chan`, or the layer's functions are given an input of another rank or number of
            channels.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> layer = stax.GeneralConvTranspose(("NHWC", "HWIO", "NHWC"), 3, (2, 2), strides=(2, 2))
    >>> layer[0](random.key(0), (-1, 4, 4, 16))[0]
    (-1, 8, 8, 3)
    """,
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
    """Batch normalization: the input standardized along some axes (`nn.standardize`), times a scale and plus a center
    that are parameters.

    Args:
        axis: the axes over which means and variances are taken.
        epsilon: what is added to variances.
        center, scale: whether there are these parameters.
        beta_init, gamma_init: initializers of the center and of the scale.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: an axis that is no integer, or initializers that are no functions.
        AxisError: the layer's functions are given an input without one of the axes.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> import tinyxla.numpy as jnp
    >>> init_fun, apply_fun = stax.BatchNorm(axis=0)
    >>> output_shape, params = init_fun(random.key(0), (-1, 1))
    >>> apply_fun(params, jnp.array([[1.0], [3.0]])).round(3)
    Array([[-1.],
           [ 1.]], dtype=float32)
    """
    what = "stax.BatchNorm"
    reduced = integers_of(what, "axis", axis) if is_several(axis) else (integer_of(what, "axis", axis),)
    function_of(what, "beta_init", beta_init)
    function_of(what, "gamma_init", gamma_init)

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        along = canonical_axes(what, reduced, len(_shape_of(what, input_shape)))
        shape = tuple(n for d, n in enumerate(input_shape) if d not in along)
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
    """A layer of an element-wise function, without parameters; `fun_kwargs` are passed to the function.

    Args:
        fun: a function of an array.
        **fun_kwargs: its keyword arguments.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: what is no function.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> import tinyxla.numpy as jnp
    >>> init_fun, apply_fun = stax.elementwise(jnp.clip, max=1.0)
    >>> apply_fun((), jnp.array([0.5, 2.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    function = function_of("stax.elementwise", "fun", fun)
    return _without_parameters(lambda shape: shape, lambda x: function(x, **fun_kwargs))


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
    """Dropout: elements are kept with the probability `rate` and divided by it, others are 0. All are kept as they are
    with the mode "test".

    Args:
        rate: the probability of an element to be kept.
        mode: "train" or "test".

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: the layer's function is called without `rng` (when training), or another mode.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> import tinyxla.numpy as jnp
    >>> _, apply_fun = stax.Dropout(0.5)
    >>> sorted(set(apply_fun((), jnp.ones(100), rng=random.key(0)).tolist()))
    [0.0, 2.0]
    """
    drops = choice_of("stax.Dropout", "mode", mode, ("train", "test")) == "train"

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **_: Any) -> Any:
        if rng is None:
            raise ArgumentError("stax.Dropout: the layer's function needs a key: apply_fun(params, inputs, rng=key).")
        return tnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0) if drops else inputs

    return lambda rng, input_shape: (input_shape, ()), apply_fun


# --- pooling ----------------------------------------------------------------------------------------------------------


def _pooling(
    name: str, reducer: Any, initial: float, text: str, example: str, averages: bool = False
) -> Callable[..., Layer]:
    def layer(
        window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID", spec: Any = None
    ) -> Layer:
        what = f"stax.{name}"
        sizes = _positive(what, "window_shape", window_shape)
        steps = (1,) * len(sizes) if strides is None else _positive(what, "strides", strides, len(sizes))
        order = f"N{'x' * len(sizes)}C" if spec is None else _letters(what, "spec", spec, "NC", len(sizes))
        window, moves = (tuple(1 if d in "NC" else next(x) for d in order) for x in (iter(sizes), iter(steps)))

        def shape_of(x: Shape) -> Shape:
            return lax.reduce_window_shape_tuple(x, window, moves, lax.padtype_to_pads(x, window, moves, padding))

        def shape(x: Shape) -> Shape:
            return _whatever_batch(shape_of, _shape_of(what, x, len(order)), order, order)

        def pooled(x: Any) -> Any:
            return lax.reduce_window(x, initial, reducer, window, moves, padding)

        return _without_parameters(shape, lambda x: pooled(x) / pooled(tnp.ones_like(x)) if averages else pooled(x))

    return named(layer, name, _POOLING.format(text, example))


_POOLING = """{0} of each window of the dimensions that are neither the batch nor channels.

Args:
    window_shape: the sizes of windows.
    strides: the steps from window to window; 1, if None.
    padding: "VALID" or "SAME".
    spec: a letter for each dimension, "N" for the batch and "C" for channels: by default the first and the last one.

Returns:
    A pair `(init, apply)`.

Raises:
    ArgumentError: `window_shape` and `strides` that are no positive integers, one for each letter of `spec` but "N" and
        "C", or the layer is applied to an array of another rank.
    AttributeValueError: the layer's functions meet a `padding` of another name.
    ShapeError: the layer's `init` is given a shape of another rank.

>>> import tinyxla.numpy as jnp
>>> from tinyxla.example_libraries import stax
>>> {1}
"""
MaxPool = _pooling(
    "MaxPool",
    lax.max,
    -math.inf,
    "The maximum",
    """_, apply_fun = stax.MaxPool((2,), strides=(2,))
>>> apply_fun((), jnp.array([1.0, 5.0, 2.0, 3.0]).reshape(1, 4, 1)).ravel()
Array([5., 3.], dtype=float32)""",
)
SumPool = _pooling(
    "SumPool",
    lax.add,
    0.0,
    "The sum",
    """_, apply_fun = stax.SumPool((2,))
>>> apply_fun((), jnp.array([1.0, 5.0, 2.0, 3.0]).reshape(1, 4, 1)).ravel()
Array([6., 7., 5.], dtype=float32)""",
)
AvgPool = _pooling(
    "AvgPool",
    lax.add,
    0.0,
    "The mean, of the elements that are no padding,",
    """_, apply_fun = stax.AvgPool((2,), padding="SAME")
>>> apply_fun((), jnp.array([1.0, 5.0, 2.0]).reshape(1, 3, 1)).ravel()
Array([3. , 3.5, 2. ], dtype=float32)""",
    averages=True,
)


# --- several inputs or outputs ----------------------------------------------------------------------------------------


def FanOut(num: int) -> Layer:
    """A layer that gives its input `num` times, as a list: for `parallel`.

    Args:
        num: the number of outputs.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: what is no integer.
        ShapeError: a negative number.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> init_fun, _ = stax.FanOut(2)
    >>> init_fun(random.key(0), (-1, 8))[0]
    [(-1, 8), (-1, 8)]
    """
    count = count_of("stax.FanOut", "num", num)
    return _without_parameters(lambda shape: [shape] * count, lambda x: [x] * count)


FanInSum = _without_parameters(lambda shapes: shapes[0], sum)


def FanInConcat(axis: int = -1) -> Layer:
    """A layer that concatenates a list of inputs along an axis.

    Args:
        axis: the axis.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: an axis that is no integer, or the layer's functions are given no inputs.
        AxisError: the inputs do not have the axis.
        ShapeError: the inputs differ in another axis, or in rank.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> init_fun, _ = stax.FanInConcat()
    >>> init_fun(random.key(0), [(-1, 8), (-1, 3)])[0]
    (-1, 11)
    """
    what = "stax.FanInConcat"
    along = integer_of(what, "axis", axis)

    def shape(shapes: Sequence[Shape]) -> Shape:
        inputs = [_shape_of(what, x) for x in several_of(what, "input_shape", shapes)]
        if not inputs:
            raise ArgumentError(f"{what}: takes a list of at least one shape, but got none.")
        place = canonical_axis(along, len(inputs[0]), what)
        if len({(len(x), x[:place], x[place + 1 :]) for x in inputs}) != 1:
            raise ShapeError(f"{what}: the inputs must have equal shapes but for axis {along}, but got {inputs}.")
        sizes = [x[place] for x in inputs]
        return (*inputs[0][:place], -1 if -1 in sizes else sum(sizes), *inputs[0][place + 1 :])

    return _without_parameters(shape, lambda xs: tnp.concatenate(xs, along))


# --- layers of layers -------------------------------------------------------------------------------------------------


def _layer_of(what: str, layer: Any) -> Layer:
    if not isinstance(layer, (tuple, list)) or len(layer) != 2 or not all(map(callable, layer)):
        raise ArgumentError(f"{what}: a layer is a pair (init, apply), such as stax.Dense(3), but got {shown(layer)}.")
    return layer[0], layer[1]


def _keys(rng: Any, count: int) -> Any:
    return [None] * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """The composition of layers, one after the other; the parameters are a list of theirs. `rng` is split among them.

    Args:
        *layers: pairs `(init, apply)`.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: a layer that is no pair of functions, or `apply` is given parameters of another number of layers.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> init_fun, _ = stax.serial(stax.Dense(16), stax.Relu, stax.Dense(3))
    >>> output_shape, params = init_fun(random.key(0), (-1, 8))
    >>> output_shape, [len(p) for p in params]
    ((-1, 3), [2, 0, 2])
    """
    what = "stax.serial"
    own_layers = [_layer_of(what, layer) for layer in layers]

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params: list[Any] = []
        for init, _ in own_layers:
            rng, key = random.split(rng)
            input_shape, found = init(key, input_shape)
            params.append(found)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **options: Any) -> Any:
        parts = several_of(what, "params", params, len(layers))
        for (_, apply), own, key in zip(own_layers, parts, _keys(rng, len(layers)), strict=True):
            inputs = apply(own, inputs, rng=key, **options)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Layers side by side, each with an input of its own, as `FanOut` makes them; the outputs are a list.

    Args:
        *layers: pairs `(init, apply)`.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: a layer that is no pair of functions, or the layer's functions are given shapes, inputs or
            parameters of another number of layers.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> layer = stax.parallel(stax.Dense(4), stax.Identity)
    >>> init_fun, _ = stax.serial(stax.FanOut(2), layer, stax.FanInConcat())
    >>> init_fun(random.key(0), (-1, 8))[0]
    (-1, 12)
    """
    what = "stax.parallel"
    own_layers = [_layer_of(what, layer) for layer in layers]

    def init_fun(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        shapes = several_of(what, "input_shape", input_shape, len(layers))
        found = [init(key, shape) for (init, _), key, shape in zip(own_layers, keys, shapes, strict=True)]
        return [shape for shape, _ in found], [params for _, params in found]

    def apply_fun(params: Any, inputs: Any, *, rng: Any = None, **options: Any) -> Any:
        keys = _keys(rng, len(layers))
        given = (several_of(what, name, x, len(layers)) for name, x in (("params", params), ("inputs", inputs)))
        parts = zip(own_layers, *given, keys, strict=True)
        return [apply(own, x, rng=key, **options) for (_, apply), own, x, key in parts]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that a function of the input's shape makes.

    Args:
        make_layer: a function from a shape to a pair `(init, apply)`.

    Returns:
        A pair `(init, apply)`.

    Raises:
        ArgumentError: what is no function, or a function that does not give a layer.

    >>> from tinyxla import random
    >>> from tinyxla.example_libraries import stax
    >>> init_fun, _ = stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1]))
    >>> init_fun(random.key(0), (-1, 8))[0]
    (-1, 16)
    """
    what = "stax.shape_dependent"
    function_of(what, "make_layer", make_layer)

    def init_fun(rng: Any, input_shape: Any) -> Any:
        return _layer_of(what, make_layer(input_shape))[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **options: Any) -> Any:
        return _layer_of(what, make_layer(tnp.shape(inputs)))[1](params, inputs, **options)

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
