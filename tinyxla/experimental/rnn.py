"""Long short-term memory networks over batches of sequences of different lengths.

The weights are one flat array in cuDNN's order: for each layer, and in a bidirectional network for each direction of
it, `W_ih` and `W_hh`; then likewise `b_ih` and `b_hh`. The rows of each are those of the input gate, the forget gate,
the cell and the output gate.

Sources: Hochreiter and Schmidhuber, "Long short-term memory" (1997); PyTorch's documentation of `torch.nn.LSTM`, whose
names of the weights are used; cuDNN's documentation of the order of weights.

Example:
    >>> import numpy as np
    >>> import tinyxla as tx
    >>> from tinyxla.experimental import rnn
    >>> sizes = dict(input_size=3, hidden_size=4, num_layers=2, bidirectional=False)
    >>> weights = rnn.init_lstm_weight(tx.random.key(0), **sizes)
    >>> x, state = np.ones((2, 5, 3), np.float32), np.zeros((2, 2, 4), np.float32)
    >>> y, h, c = rnn.lstm(x, state, state, weights, np.array([5, 3], np.int32), **sizes, dropout=0.0)
    >>> y.shape, h.shape
    ((2, 5, 4), (2, 2, 4))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp, random
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.nn import sigmoid
from tinyxla.numpy.arguments import count_of
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import as_array

__all__ = [
    "get_num_params_in_lstm",
    "init_lstm_weight",
    "lstm",
    "lstm_ref",
    "swap_lstm_gates",
    "unpack_lstm_weights",
]

Weights = Mapping[int, Any]


def _shapes(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> list[tuple[int, ...]]:
    """The shapes of the weights in their order: of all layers and directions W_ih and W_hh, then b_ih and b_hh."""
    sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
    inputs, hidden, layers = (count_of("rnn", name, value) for name, value in sizes.items())
    directions = 2 if bidirectional else 1
    found: list[tuple[int, ...]] = []
    for number in range(layers * directions):
        width = inputs if number < directions else hidden * directions
        found += [(4 * hidden, width), (4 * hidden, hidden)]
    return found + [(4 * hidden,)] * (2 * layers * directions)


def _parts(weights: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    flat = as_array(weights)
    sizes = [math.prod(shape) for shape in shapes]
    if flat.shape != (sum(sizes),):
        raise ShapeError(f"rnn: the weights must be an array of shape {(sum(sizes),)}, but are {Shape.of(flat)}.")
    ends = np.cumsum(sizes).tolist()
    return [flat[e - n : e].reshape(shape) for e, n, shape in zip(ends, sizes, shapes, strict=True)]


def get_num_params_in_lstm(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> int:
    """The number of weights.

    Args:
        input_size, hidden_size: the sizes of elements and of the state.
        num_layers: the number of layers.
        bidirectional: whether each layer also goes from the last element to the first one.

    Returns:
        An integer.

    Raises:
        ArgumentError: a size or a number of layers that is no integer.
        ShapeError: a negative one.

    >>> from tinyxla.experimental.rnn import get_num_params_in_lstm
    >>> get_num_params_in_lstm(3, 4, 1, False)
    144
    """
    return sum(map(math.prod, _shapes(input_size, hidden_size, num_layers, bidirectional)))


def init_lstm_weight(rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Array:
    """Random weights, uniform from -k to k for k = 1 / sqrt(hidden_size).

    Args:
        rng: a random key.
        input_size, hidden_size: the sizes of elements and of the state.
        num_layers: the number of layers.
        bidirectional: whether each layer also goes from the last element to the first one.

    Returns:
        A vector.

    Raises:
        ArgumentError: what is no key, or a size or a number of layers that is no integer.
        ShapeError: a negative size or number of layers.

    >>> from tinyxla.experimental.rnn import init_lstm_weight
    >>> import tinyxla as tx
    >>> init_lstm_weight(tx.random.key(0), 3, 4, 1, False).shape
    (144,)
    """
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    bound = max(hidden_size, 1) ** -0.5
    return random.uniform(rng, (count,), np.float32, -bound, bound)


def swap_lstm_gates(weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Array:
    """The weights with the rows of the cell and of the output gate exchanged, as some libraries have them.

    Args:
        weights: a vector, as `init_lstm_weight` gives it.
        input_size, hidden_size: the sizes of elements and of the state.
        num_layers: the number of layers.
        bidirectional: whether each layer also goes from the last element to the first one.

    Returns:
        A vector.

    Raises:
        ArgumentError: a size or a number of layers that is no integer.
        DTypeError: weights that are no numbers.
        ShapeError: weights of another shape than that of a vector for these sizes.

    >>> import numpy as np
    >>> from tinyxla.experimental.rnn import swap_lstm_gates
    >>> weights = np.arange(16.0)  # of one input and one hidden unit: W_ih, W_hh, b_ih and b_hh
    >>> swap_lstm_gates(weights, 1, 1, 1, False)[:4]
    Array([0., 1., 3., 2.], dtype=float32)
    """
    parts = _parts(weights, _shapes(input_size, hidden_size, num_layers, bidirectional))
    order = np.array([0, 1, 3, 2])
    return tnp.concatenate([x.reshape(4, -1)[order].ravel() for x in parts])


def unpack_lstm_weights(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[dict[int, Array], dict[int, Array], dict[int, Array], dict[int, Array]]:
    """`(W_ih, W_hh, b_ih, b_hh)`, each by the number of the layer, or in bidirectional networks of layer and direction.

    Args:
        weights: a vector, as `init_lstm_weight` gives it.
        input_size, hidden_size: the sizes of elements and of the state.
        num_layers: the number of layers.
        bidirectional: whether each layer also goes from the last element to the first one.

    Returns:
        Four dicts of arrays.

    Raises:
        ArgumentError: a size or a number of layers that is no integer.
        DTypeError: weights that are no numbers.
        ShapeError: weights of another shape than that of a vector for these sizes.

    >>> import numpy as np
    >>> from tinyxla.experimental.rnn import unpack_lstm_weights
    >>> W_ih, W_hh, b_ih, b_hh = unpack_lstm_weights(np.zeros(144), 3, 4, 1, False)
    >>> W_ih[0].shape, W_hh[0].shape, b_ih[0].shape, b_hh[0].shape
    ((16, 3), (16, 4), (16,), (16,))
    """
    parts = _parts(weights, _shapes(input_size, hidden_size, num_layers, bidirectional))
    matrices, biases = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    return tuple(dict(enumerate(x)) for x in (matrices[::2], matrices[1::2], biases[::2], biases[1::2]))  # type: ignore[return-value]


def lstm(
    x: Any,
    h_0: Any,
    c_0: Any,
    weights: Any,
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Array, Array, Array]:
    """A long short-term memory network (LSTM) of several layers.

    Args:
        x: the sequences, of shape (batch, longest, input_size).
        h_0, c_0: output and cell at the start, of shape (layers, batch, hidden_size), with two layers for each one of a
            bidirectional network.
        weights: as `init_lstm_weight` gives them.
        seq_lengths: the lengths of the sequences, as int32; what comes after is padding.
        dropout: must be 0.
        bidirectional: each layer also goes from the last element to the first one.
        precision: accepted for JAX's sake; products are of full precision.
        input_size, hidden_size: the sizes of elements and of the state.
        num_layers: the number of layers.

    Returns:
        `(y, h_n, c_n)`: the outputs of the last layer, of shape (batch, longest, directions * hidden_size) with zeros
        for padding, and output and cell of each layer at the end of each sequence.

    Raises:
        ArgumentError: there is dropout.
        DTypeError: lengths are not int32.
        ShapeError: an array of another shape, or no layers.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla import random
    >>> from tinyxla.experimental import rnn
    >>> weights = rnn.init_lstm_weight(random.key(0), input_size=3, hidden_size=4, num_layers=1, bidirectional=True)
    >>> x, state = jnp.ones((2, 5, 3)), jnp.zeros((2, 2, 4))
    >>> y, h, c = rnn.lstm(x, state, state, weights, jnp.array([5, 2]), 3, 4, 1, dropout=0.0, bidirectional=True)
    >>> y.shape, h.shape
    ((2, 5, 8), (2, 2, 4))
    """
    unpacked = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    sizes = input_size, hidden_size, num_layers, dropout, bidirectional
    return lstm_ref(x, h_0, c_0, *unpacked, seq_lengths, *sizes)


def lstm_ref(
    x: Any,
    h_0: Any,
    c_0: Any,
    W_ih: Weights,
    W_hh: Weights,
    b_ih: Weights,
    b_hh: Weights,
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[Array, Array, Array]:
    """`lstm` with the weights apart, as `unpack_lstm_weights` gives them.

    Args:
        x, h_0, c_0, seq_lengths, dropout: as for `lstm`.
        W_ih, W_hh, b_ih, b_hh: matrices and biases by layer, as `unpack_lstm_weights` gives them.
        input_size, hidden_size: the sizes of elements and of the state.
        num_layers: the number of layers.
        bidirectional: whether each layer also goes from the last element to the first one.

    Returns:
        `(y, h_n, c_n)`, as `lstm` gives them.

    Raises:
        ArgumentError: there is dropout, or weights are not there for each layer.
        DTypeError: lengths are not int32.
        ShapeError: an array of another shape, or no layers.

    >>> import numpy as np
    >>> from tinyxla.experimental.rnn import lstm_ref, unpack_lstm_weights
    >>> parts = unpack_lstm_weights(np.ones(16), 1, 1, 1, False)
    >>> x, state = np.ones((1, 2, 1)), np.zeros((1, 1, 1))
    >>> lstm_ref(x, state, state, *parts, np.array([2], np.int32), 1, 1, 1, 0.0, False)[0].shape
    (1, 2, 1)
    """
    lengths = as_array(seq_lengths)
    if lengths.dtype != np.int32:
        raise DTypeError(f"rnn.lstm: seq_lengths must be int32, but is {lengths.dtype.name}; convert it with astype.")
    if dropout != 0.0:
        raise ArgumentError(f"rnn.lstm: dropout must be 0, but is {dropout}; apply it to x and between networks.")
    directions = 2 if bidirectional else 1
    _check_shapes(x, h_0, c_0, (W_ih, W_hh, b_ih, b_hh), lengths, input_size, hidden_size, num_layers, bidirectional)
    rows = tnp.swapaxes(as_array(x), 0, 1)
    outputs: list[Any] = []
    cells: list[Any] = []
    for layer in range(num_layers):
        found: list[Any] = []
        for number in range(layer * directions, (layer + 1) * directions):
            given = _reversed(rows, lengths) if number % directions else rows
            start = as_array(h_0)[number], as_array(c_0)[number]
            y, h, c = _layer(given, start, (W_ih[number], W_hh[number], b_ih[number] + b_hh[number]), lengths)
            found.append(_reversed(y, lengths) if number % directions else y)
            outputs.append(h)
            cells.append(c)
        rows = tnp.concatenate(found, -1)
    return tnp.swapaxes(rows, 0, 1), tnp.stack(outputs), tnp.stack(cells)


def _check_shapes(
    x: Any,
    h_0: Any,
    c_0: Any,
    weights: tuple[Weights, ...],
    lengths: Array,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
) -> None:
    """An error for an array that would broadcast, or whose further rows would be left out."""
    shapes = _shapes(input_size, hidden_size, num_layers, bidirectional)
    count = len(shapes) // 4
    shape = tnp.shape(x)
    if not count or len(shape) != 3 or shape[2] != input_size:
        raise ShapeError(
            f"rnn.lstm: x must have the shape (batch, longest, {input_size}), and there must be a layer, but x has the "
            f"shape {shape}, and num_layers is {num_layers}."
        )
    state = (count, shape[0], hidden_size)
    wanted = [("h_0", h_0, state), ("c_0", c_0, state), ("seq_lengths", lengths, (shape[0],))]
    of_kind = (shapes[0 : 2 * count : 2], shapes[1 : 2 * count : 2], shapes[2 * count :: 2], shapes[2 * count :: 2])
    for name, given, each in zip(("W_ih", "W_hh", "b_ih", "b_hh"), weights, of_kind, strict=True):
        if not isinstance(given, Mapping) or set(given) != set(range(count)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"rnn.lstm_ref: {name} must have an array for each of 0 to {count - 1}, as unpack_lstm_weights gives."
            )
        wanted += [(f"{name}[{k}]", given[k], each[k]) for k in range(count)]
    for name, given, one in wanted:
        if tnp.shape(given) != one:
            raise ShapeError(f"rnn.lstm: {name} must have the shape {one}, but has {tnp.shape(given)}.")


def _layer(rows: Any, start: tuple[Any, Any], weights: tuple[Any, Any, Any], lengths: Any) -> tuple[Any, Any, Any]:
    """One direction of one layer: outputs, zero in the padding, and output and cell at the end of each sequence."""
    inner, recurrent, bias = weights
    driven = tnp.matmul(rows, inner.T) + bias[None, None]  # of all elements at once

    def step(state: tuple[Any, Any], element: tuple[Any, Any]) -> Any:
        (h, c), (x, number) = state, element
        i, f, g, o = tnp.split(x + tnp.matmul(h, recurrent.T), 4, -1)
        cell = sigmoid(f) * c + sigmoid(i) * tnp.tanh(g)
        output = sigmoid(o) * tnp.tanh(cell)
        there = (number < lengths)[:, None]
        state = tnp.where(there, output, h), tnp.where(there, cell, c)
        return state, tnp.where(there, output, tnp.zeros_like(output))

    numbers = tnp.arange(rows.shape[0], dtype=np.int32)
    (h, c), y = lax.scan(step, start, (driven, numbers))
    return y, h, c


def _reversed(rows: Any, lengths: Any) -> Any:
    """Sequences from their last element to the first; padding stays where it is."""
    numbers = tnp.arange(rows.shape[0], dtype=np.int32)[:, None]
    mirrored = lengths[None] - 1 - numbers
    order = tnp.where(mirrored >= 0, mirrored, numbers)
    return tnp.take_along_axis(rows, order[..., None], 0)
