"""How much becomes one loop nest: the number of kernels, and what each computes, for the shapes of code that matter.

Functions are written as users write them. A change in these numbers is a change in speed; where it is for the better,
the numbers here go down.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.backends.numba import CompiledModule
from tinyxla.compiler.fusion.plan import Fusion, HostCall, Product

tnp = tx.numpy

Array = np.ndarray[Any, Any]
GOLDEN = Path(__file__).parent / "golden"


def floats(*sizes: int) -> Array:
    return np.random.default_rng(0).normal(size=sizes).astype(np.float32)


def compiled(function: Callable[..., Any], *args: Any) -> CompiledModule:
    return CompiledModule(tx.jit(function).lower(*args).module)


def steps(function: Callable[..., Any], *args: Any) -> list[str]:
    """The steps of the plan: the kind of a nest and how many results and reductions it makes, products and calls."""
    found: list[str] = []
    for step in compiled(function, *args).plan.steps:
        if isinstance(step, Fusion):
            found.append(f"{step.kind} {len(step.roots)}")
        else:
            assert isinstance(step, Product | HostCall)
            found.append(f"{'product' if isinstance(step, Product) else 'call'} {step.root.op.name}")
    return found


# --- one nest ---------------------------------------------------------------------------------------------------------


def chain(x: Any, y: Any) -> Any:
    return tnp.where(x > 0, tnp.tanh(2 * x + y) * tnp.exp(-x), y**2 - 1)


def log_sum_exp(x: Any) -> Any:
    return tx.nn.logsumexp(x, axis=-1)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / tnp.sqrt(variance + 1e-5) * scale + bias


def adam(parameter: Any, gradient: Any, mean: Any, square: Any, count: Any) -> Any:
    """Kingma and Ba (2015), algorithm 1."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient * gradient
    corrected = mean / (1 - 0.9**count), square / (1 - 0.999**count)
    return parameter - 1e-3 * corrected[0] / (tnp.sqrt(corrected[1]) + 1e-8), mean, square


def standardized(x: Any) -> Any:
    """By row, of the logarithm: two reductions of something costly."""
    logarithm = tnp.log(tnp.abs(x) + 1)
    return (logarithm - logarithm.mean(-1, keepdims=True)) / logarithm.std(-1, keepdims=True)


X = floats(300, 200)


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (chain, (X, X), ["loop 1"]),
        (lambda x: (tnp.sin(x), tnp.cos(x), x + 1), (X,), ["loop 3"]),
        (lambda x: tnp.exp(x.T.reshape(100, 600)[::-1]), (X,), ["loop 1"]),
        (tx.nn.softmax, (X,), ["row 3"]),
        (tx.nn.log_softmax, (X,), ["row 3"]),
        (log_sum_exp, (X,), ["row 3"]),
        (standardized, (X,), ["row 3"]),
        (layer_norm, (X, X[0], X[0]), ["row 3"]),
        (adam, (X, X, X, X, np.float32(3)), ["loop 3"]),
        (lambda x: x.mean(0), (X,), ["column 2"]),
        (lambda x: (x.mean(0), (x * x).mean(0)), (X,), ["column 4"]),
        (lambda x: (x.sum(), x.mean()), (X,), ["split 2"]),
        (lambda x: (x.sum(), x.max(), (x * x).sum()), (X,), ["split 3"]),
        (lambda x: tnp.argmax(x, -1), (X,), ["row 1"]),
    ],
    ids=[
        *("chain", "several results", "data movement", "softmax", "log softmax", "log-sum-exp", "standardised"),
        *("layer norm", "adam", "mean of columns", "moments of columns", "sum and mean", "sums", "argmax"),
    ],
)
def test_one_nest(function: Callable[..., Any], args: tuple[Any, ...], expected: list[str]) -> None:
    assert steps(function, *args) == expected


def test_a_sum_over_everything_is_two_kernels() -> None:
    """Pieces, and then these together: in an order that does not depend on the number of threads."""
    made = compiled(lambda x: (x.sum(), x.mean()), X)
    assert [kernel.name for kernel in made.kernels] == ["split", "combine"]


def test_a_nest_reads_its_operand_once_and_writes_its_result() -> None:
    (kernel,) = compiled(tx.nn.softmax, X).kernels
    assert kernel.arguments == ("f32[300,200]", "f32[300,200]")
    assert kernel.extent == 300


# --- several nests ----------------------------------------------------------------------------------------------------


def test_gradient_of_layer_norm() -> None:
    """One pass over the rows: the statistics, the gradient by x, and along the way those of scale and bias."""

    def gradient(x: Any, scale: Any, bias: Any, g: Any) -> Any:
        return tx.vjp(layer_norm, x, scale, bias)[1](g)

    assert steps(gradient, X, X[0], X[0], X) == ["row 8"]


def test_bias_and_activation_after_a_product_are_one_nest() -> None:
    assert steps(lambda x, w, b: tx.nn.relu(x @ w + b), X, floats(200, 100), floats(100)) == ["product dot", "loop 1"]


def test_rows_of_attention() -> None:
    """The transpose of the keys is left to the BLAS, also in a batch of heads."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        return tx.nn.softmax(q @ k.swapaxes(-1, -2) / 8.0) @ v

    for sizes in ((300, 64), (8, 100, 64), (2, 4, 100, 64)):
        operands = [floats(*sizes)] * 3
        assert steps(attention, *operands) == ["product dot", "row 3", "product dot"]


def test_a_training_step_of_a_perceptron() -> None:
    """Products: one for each layer forwards, two backwards, one less for the first. Around them: an activation for each
    hidden layer forwards and backwards, the loss with its gradient and its mean, two constants of Adam's, and an update
    for each of the parameters, which takes the sum over the batch along where it is a bias."""
    layers = [(floats(64, 256), floats(256)), (floats(256, 128), floats(128)), (floats(128, 10), floats(10))]

    def loss(parameters: Any, images: Any, labels: Any) -> Any:
        for weights, bias in parameters[:-1]:
            images = tx.nn.relu(images @ weights + bias)
        logits = images @ parameters[-1][0] + parameters[-1][1]
        return -tnp.mean(tnp.sum(tx.nn.one_hot(labels, 10) * tx.nn.log_softmax(logits), axis=-1))

    def step(parameters: Any, mean: Any, square: Any, count: Any, images: Any, labels: Any) -> Any:
        value, gradient = tx.value_and_grad(loss)(parameters, images, labels)

        def update(p: Any, g: Any, m: Any, s: Any) -> Any:
            return adam(p, g, m, s, count)

        return value, tx.tree_util.tree_map(update, parameters, gradient, mean, square)

    zeros = tx.tree_util.tree_map(np.zeros_like, layers)
    found = steps(step, layers, zeros, zeros, np.float32(3), floats(64, 64), np.zeros(64, np.int32))
    assert found.count("product dot") == 3 + 3 + 2
    assert not [name for name in found if name.startswith("call")]
    assert len(found) <= 8 + 4 + 2 + 2 + 6


def test_what_shares_nothing_is_apart() -> None:
    assert steps(lambda x, y: (tnp.exp(x), tnp.exp(y)), X, floats(301, 200)) == ["loop 1", "loop 1"]


def test_something_costly_is_not_computed_twice() -> None:
    """A transposed second use does not fit into one nest; exp is stored instead of computed in both."""

    def function(x: Any) -> Any:
        y = tnp.exp(x)
        return y.sum(0), y.sum(1)

    names = [root.op.name for step in compiled(function, X).plan.steps for root in getattr(step, "roots", [])]
    assert names.count("exponential") <= 1


def test_what_is_moved_again_and_again_is_stored_in_between() -> None:
    """Each step reads the one before at several places: inlined, the last would compute the first at thousands."""

    def smoothed(x: Any) -> Any:
        for _ in range(8):
            x = tnp.pad((x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]) / 4, 1)
        return x

    made = compiled(smoothed, X)
    assert 4 <= len(made.kernels) <= 8
    assert sum(len(kernel.source) for kernel in made.kernels) < 40_000  # each loop along a row is in three parts
    made = compiled(tnp.cumsum, X.ravel())
    assert sum(len(kernel.source) for kernel in made.kernels) < 20_000
    np.testing.assert_allclose(made([X.ravel()])[0], np.cumsum(X.ravel(), dtype=np.float64), 1e-4, 1e-2)


def test_rows_of_which_all_pairs_are_compared_are_gathered_once() -> None:
    """And what is made of pairs is not stored for being read in parts."""

    def shared(boxes: Any, order: Any) -> Any:
        x = boxes[order]
        low = tnp.maximum(x[:, None, :2], x[None, :, :2])
        sides = tnp.clip(tnp.minimum(x[:, None, 2:], x[None, :, 2:]) - low, 0)
        return sides[..., 0] * sides[..., 1]

    boxes, order = np.abs(floats(200, 4)), np.random.default_rng(0).permutation(200)
    made = compiled(shared, boxes, order)
    assert [(step.kind, [root.array_shape.size for root in step.roots]) for step in made.plan.steps] == [
        ("loop", [400, 400]),
        ("loop", [40_000]),
    ]
    x = boxes[order]
    sides = np.minimum(x[:, None, 2:], x[None, :, 2:]) - np.maximum(x[:, None, :2], x[None, :, :2])
    np.testing.assert_allclose(made([boxes, order.astype(np.int32)])[0], np.prod(sides.clip(0), -1), 1e-6)


def test_a_layer_does_not_add_up_again_what_all_before_it_added() -> None:
    """The sum that residual connections carry is stored, so that deeper networks have the kernels of shallow ones."""

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            centred = x - x.mean(-1, keepdims=True)
            x = x + (centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)) @ w
        return (x * x).mean()

    def sources(layers: int) -> set[str]:
        weights = [floats(64, 64)] * layers
        return {kernel.source for kernel in compiled(tx.value_and_grad(loss), weights, floats(64, 64)).kernels}

    assert sources(12) == sources(6)


def test_layers_of_one_shape_share_their_kernels() -> None:
    """Equal nests over equal shapes are compiled once."""

    def network(x: Any, weights: Any) -> Any:
        for w in weights:
            x = tx.nn.softmax(x @ w)
        return x

    made = compiled(network, floats(64, 64), [floats(64, 64)] * 4)
    rows = [kernel for kernel in made.kernels if kernel.name == "row"]
    assert len(rows) == 4
    assert len({kernel.source for kernel in rows}) == 1


# --- golden text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function", "args"),
    [("softmax", tx.nn.softmax, (floats(300, 200),)), ("layer_norm", layer_norm, (X, X[0], X[0]))],
)
def test_kernels_read_as_before(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """To accept another text, delete the file and run the test once: it writes the new one, and fails."""
    (kernel,) = compiled(function, *args).kernels
    path = GOLDEN / f"{name}.py"
    if not path.exists():
        path.write_text(kernel.source)
        pytest.fail(f"{path} was written; read it")
    assert kernel.source == path.read_text()


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("rounds", [150, 400])
def test_long_chains_of_operations(rounds: int) -> None:
    """Python calls functions in each other up to a limit, which is less than what a reduction may compute."""

    def hashed(x: Any) -> Any:
        for k in range(rounds):
            x = (x * 5 + k) ^ (x >> 3)
        return x

    def centred(x: Any) -> Any:
        for k in range(rounds):
            x = x - x.max() * 0.1 if k % 40 == 0 else x * 0.99 + 0.01
        return x

    x = np.arange(1000, dtype=np.int32)
    assert int(tx.jit(lambda x: hashed(x).sum())(x)) == hashed(x).sum(dtype=np.int32)
    found = tx.jit(lambda x, table: table[hashed(x) % 1000].sum())(x, x * 2)
    assert int(found) == (2 * (hashed(x) % 1000)).sum()
    y = x.astype(np.float32) / 1000
    np.testing.assert_allclose(tx.jit(lambda y: centred(y).sum())(y), centred(y).sum(), rtol=1e-4)
