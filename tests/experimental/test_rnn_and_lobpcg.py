"""`experimental.rnn` and `experimental.sparse.linalg.lobpcg_standard`, against JAX and exact eigenvalues."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import rnn as jax_rnn

import tinyxla
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.experimental import rnn
from tinyxla.experimental.sparse.linalg import lobpcg_standard

INPUT, HIDDEN = 3, 4


def _sizes(layers: int, bidirectional: bool) -> dict[str, Any]:
    return {"input_size": INPUT, "hidden_size": HIDDEN, "num_layers": layers, "bidirectional": bidirectional}


def _example(layers: int, bidirectional: bool) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    states = layers * (2 if bidirectional else 1)
    shapes = (3, 5, INPUT), (states, 3, HIDDEN), (states, 3, HIDDEN)
    count = rnn.get_num_params_in_lstm(**_sizes(layers, bidirectional))
    return (*(random.normal(size=s).astype(np.float32) for s in shapes), random.normal(size=count).astype(np.float32))


LENGTHS = np.array([5, 3, 1], np.int32)


@pytest.mark.thorough
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_lstm_agrees_with_jax(layers: int, bidirectional: bool) -> None:
    x, h, c, weights = _example(layers, bidirectional)
    sizes = _sizes(layers, bidirectional)

    def theirs(weights: Any) -> Any:
        parts = jax_rnn.unpack_lstm_weights(weights, **sizes)
        return jax_rnn.lstm_ref(x, h, c, *parts, LENGTHS, INPUT, HIDDEN, layers, 0.0, bidirectional)

    def ours(weights: Any) -> Any:
        return rnn.lstm(x, h, c, weights, LENGTHS, INPUT, HIDDEN, layers, 0.0, bidirectional)

    assert rnn.get_num_params_in_lstm(**sizes) == jax_rnn.get_num_params_in_lstm(**sizes)
    wanted = theirs(weights)
    for found in (ours(weights), tinyxla.jit(ours)(weights)):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    total = lambda f: lambda w: sum((y**2).sum() for y in f(w))  # noqa: E731
    np.testing.assert_allclose(tinyxla.grad(total(ours))(weights), jax.grad(total(theirs))(weights), 1e-4, 1e-4)


def test_lstm_weights_agree_with_jax() -> None:
    sizes = _sizes(2, True)
    weights = np.asarray(rnn.init_lstm_weight(tinyxla.random.key(1), **sizes))
    np.testing.assert_allclose(weights, jax_rnn.init_lstm_weight(jax.random.key(1), **sizes), 1e-6)
    swapped = rnn.swap_lstm_gates(weights, **sizes)
    np.testing.assert_array_equal(swapped, jax_rnn.swap_lstm_gates(weights, **sizes))
    np.testing.assert_array_equal(rnn.swap_lstm_gates(swapped, **sizes), weights)


def test_lstm_of_empty_sequence_keeps_its_state() -> None:
    x, h, c, weights = _example(1, False)
    y, last, cell = rnn.lstm(x, h, c, weights, np.array([5, 0, 1], np.int32), INPUT, HIDDEN, 1, 0.0, False)
    np.testing.assert_array_equal(last[0, 1], h[0, 1])
    np.testing.assert_array_equal(cell[0, 1], c[0, 1])
    assert not np.any(y[1])


def test_lstm_refuses_wrong_arguments() -> None:
    x, h, c, weights = _example(1, False)
    with pytest.raises(DTypeError, match="seq_lengths must be int32, but is float32"):
        rnn.lstm(x, h, c, weights, LENGTHS.astype(np.float32), INPUT, HIDDEN, 1, 0.0, False)
    with pytest.raises(ArgumentError, match=r"dropout must be 0, but is 0\.5"):
        rnn.lstm(x, h, c, weights, LENGTHS, INPUT, HIDDEN, 1, 0.5, False)
    with pytest.raises(ShapeError, match=r"weights must be an array of shape \(144,\), but are f32\[143\]"):
        rnn.lstm(x, h, c, weights[1:], LENGTHS, INPUT, HIDDEN, 1, 0.0, False)
    with pytest.raises(ShapeError, match="x must have the shape"):
        rnn.lstm(x[0], h, c, weights, LENGTHS, INPUT, HIDDEN, 1, 0.0, False)
    with pytest.raises(ShapeError, match="h_0 must have the shape"):  # whose second layer would be left out
        rnn.lstm(x, np.concatenate([h, h]), c, weights, LENGTHS, INPUT, HIDDEN, 1, 0.0, False)
    with pytest.raises(ShapeError, match="c_0 must have the shape"):  # which would broadcast
        rnn.lstm(x, h, c[:, :1], weights, LENGTHS, INPUT, HIDDEN, 1, 0.0, False)
    no_weights: dict[int, Any] = {}
    parts = rnn.unpack_lstm_weights(weights, INPUT, HIDDEN, 1, False)[1:]
    with pytest.raises(ArgumentError, match="W_ih must have an array for each of 0 to 0"):
        rnn.lstm_ref(x, h, c, no_weights, *parts, LENGTHS, INPUT, HIDDEN, 1, 0.0, False)
    with pytest.raises(ShapeError, match="input_size must not be negative, but got -2"):
        rnn.get_num_params_in_lstm(-2, HIDDEN, 1, False)


SPECTRA = {
    "rising": np.arange(1, 41.0),
    "negative": -np.arange(1, 41.0),
    "one value": np.ones(40),
    "two values": np.repeat([5.0, -1.0], 20),
    "wide": np.geomspace(1e-3, 1e3, 40),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("count", [1, 4])
def test_lobpcg_finds_the_largest_eigenvalues(name: str, count: int) -> None:
    random = np.random.default_rng(1)
    basis = np.linalg.qr(random.normal(size=(40, 40)))[0]
    wanted = np.sort(SPECTRA[name])[::-1][:count]
    with tinyxla.enable_x64(True):
        matrix = (basis * SPECTRA[name]) @ basis.T
        theta, vectors, steps = lobpcg_standard(matrix, random.normal(size=(40, count)))
        by_function, *_ = lobpcg_standard(lambda x: tinyxla.numpy.matmul(matrix, x), random.normal(size=(40, count)))
    np.testing.assert_allclose(theta, wanted, 1e-10)
    np.testing.assert_allclose(by_function, wanted, 1e-10)
    np.testing.assert_allclose(np.asarray(vectors).T @ np.asarray(vectors), np.eye(count), atol=1e-10)
    np.testing.assert_allclose(matrix @ np.asarray(vectors), np.asarray(vectors) * wanted, atol=1e-6)
    assert 0 < int(steps) < 100


@pytest.mark.parametrize("compiled", [False, True])
def test_networks_and_eigenvalues_under_options_of_promotion(compiled: bool) -> None:
    x, h, c, weights = _example(2, True)
    lengths = np.array([5, 2, 3], np.int32)
    matrix = np.diag(np.arange(1.0, 13.0)).astype(np.float32)

    def network() -> Any:
        return rnn.lstm(x, h, c, weights, lengths, **_sizes(2, True), dropout=0.0)

    def eigenvalues() -> Any:
        return lobpcg_standard(matrix, np.ones((12, 2), np.float32) + np.eye(12, 2, dtype=np.float32))[0]

    for function in (network, eigenvalues):
        expected = function()
        with tinyxla.numpy_rank_promotion("raise"), tinyxla.numpy_dtype_promotion("strict"):
            found = tinyxla.jit(function)() if compiled else function()
        for mine, plain in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-3, atol=1e-5)


def test_lobpcg_makes_at_most_m_steps() -> None:
    matrix = np.diag(np.arange(1.0, 13.0)).astype(np.float32)
    assert int(lobpcg_standard(matrix, np.ones((12, 1), np.float32), m=3)[2]) == 3


def test_lobpcg_refuses_wrong_arguments() -> None:
    matrix, start = np.eye(12, dtype=np.float32), np.ones((12, 1), np.float32)
    with pytest.raises(ShapeError, match="0 < 5 k < n"):
        lobpcg_standard(matrix, np.ones((12, 3), np.float32))
    with pytest.raises(ShapeError, match=r"A must be a matrix of shape \(12, 12\)"):
        lobpcg_standard(matrix[:5], start)
    with pytest.raises(DTypeError, match="X must be of a real floating type, but is int32"):
        lobpcg_standard(matrix, np.ones((12, 1), np.int32))
    with pytest.raises(DTypeError, match="A and X must have one element type"):
        lobpcg_standard(matrix.astype(np.complex64), start)
    with pytest.raises(ShapeError, match="must give one of that shape"):
        lobpcg_standard(lambda x: x[:3], start)
