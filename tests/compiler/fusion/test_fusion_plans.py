"""What the plans of programs that matter move through memory: how many kernels there are, and how many bytes they read
and write, to the byte. With each stands the least that is possible. A number that goes up is speed that is lost.

Products and convolutions, and the copies that these make of their operands, are counted, but not their bytes: how they
go about their operands is a matter of the processor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.compiler.report import Report

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

OF_PRODUCTS = ("panels", "pieces", "product", "convolution")
F32 = 4  # bytes


def floats(*sizes: int) -> Array:
    return np.random.default_rng(0).normal(size=sizes).astype(np.float32)


def report_of(function: Function, *args: Any) -> Report:
    return tx.jit(function).lower(*args).compile().report()


def plan_of(function: Function, *args: Any) -> tuple[list[str], int, int]:
    """The kinds of the kernels, the bytes they move, and how many products and convolutions there are."""
    steps = report_of(function, *args).steps
    fused = [step for step in steps if step.kind not in OF_PRODUCTS]
    products = sum(step.kind in ("product", "convolution") for step in steps)
    return [step.kind for step in fused], sum(step.cost.bytes for step in fused), products


# --- programs ---------------------------------------------------------------------------------------------------------


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias


def batch_norm(axes: tuple[int, ...]) -> Function:
    """Training: with the moments of the batch."""

    def function(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean(axes, keepdims=True)
        variance = ((x - mean) ** 2).mean(axes, keepdims=True)
        along = (1, -1, 1, 1) if axes[-1] == 3 else (-1,)
        return (x - mean) / jnp.sqrt(variance + 1e-5) * scale.reshape(along) + bias.reshape(along)

    return function


def gradient(function: Function) -> Function:
    """By all arguments, for a cotangent of the result, which comes last."""

    def back(*args: Any) -> Any:
        return tx.vjp(function, *args[:-1])[1](args[-1])

    return back


def adam(parameters: Any, gradients: Any, means: Any, squares: Any, count: Any) -> Any:
    """Kingma and Ba (2015), algorithm 1."""

    def update(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        corrected = m / (1 - 0.9**count), v / (1 - 0.999**count)
        return p - 1e-3 * corrected[0] / (jnp.sqrt(corrected[1]) + 1e-8), m, v

    return tx.tree_util.tree_map(update, parameters, gradients, means, squares)


def attention(q: Any, k: Any, v: Any) -> Any:
    return tx.nn.softmax(q @ k.swapaxes(-1, -2) / 8.0) @ v


def convolution(x: Any, kernel: Any, bias: Any) -> Any:
    labels = ("NHWC", "HWIO", "NHWC")
    return tx.nn.relu(tx.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=labels) + bias)


def step_of_a_perceptron(parameters: Any, x: Any, labels: Any) -> Any:
    def loss(parameters: Any) -> Any:
        (w, b), (w_last, b_last) = parameters
        logits = tx.nn.relu(x @ w + b) @ w_last + b_last
        return -(tx.nn.log_softmax(logits) * tx.nn.one_hot(labels, 10)).sum(-1).mean()

    value, gradients = tx.value_and_grad(loss)(parameters)
    return value, tx.tree_util.tree_map(lambda p, g: p - 0.1 * g, parameters, gradients)


ROWS, WIDTH = 512, 1024
MATRIX, VECTOR, ONE_EACH = ROWS * WIDTH * F32, WIDTH * F32, ROWS * F32
X, S = floats(ROWS, WIDTH), floats(WIDTH)
IMAGES, CHANNELS = floats(32, 16, 16, 64), floats(64)
LEAVES = [floats(64, 128)] * 10 + [floats(128)] * 10
PIECES = 32  # of rows that are summed up

PLANS: dict[str, tuple[Function, tuple[Any, ...], list[str], int]] = {
    # Least: the argument and the result, once.
    "softmax": (tx.nn.softmax, (X,), ["row"], 2 * MATRIX),
    "gradient of softmax": (gradient(tx.nn.softmax), (X, X), ["row"], 3 * MATRIX),
    "layer norm": (layer_norm, (X, S, S), ["row"], 2 * MATRIX + 2 * VECTOR),
    # Least: x and the cotangent, the gradient by x, and four vectors (the bias is not read). What is more is the sums
    # over pieces of the rows for scale and bias, written and read once.
    "gradient of layer norm": (
        gradient(layer_norm),
        (X, S, S, X),
        ["row", "combine"],
        3 * MATRIX + 3 * VECTOR + 2 * 2 * PIECES * VECTOR,
    ),
    "log-sum-exp": (lambda x: tx.nn.logsumexp(x, -1), (X,), ["row"], MATRIX + ONE_EACH),
    # Least with the largest element found first, so that nothing overflows: twice the argument.
    "log-sum-exp over all": (
        tx.nn.logsumexp,
        (X,),
        ["split", "combine"] * 2,
        2 * MATRIX + 4 * 32 * F32 + 4 * F32,
    ),
    # Least with the largest element found first: the argument twice, the result once, if each exponential is computed
    # twice; here it is written in the pass that sums it, and read in the last.
    "softmax over all": (
        lambda x: tx.nn.softmax(x, (0, 1)),
        (X,),
        ["split", "combine", "split", "combine", "loop"],
        5 * MATRIX + 4 * 32 * F32 + 4 * F32,
    ),
    # Least: four arrays read and three written, for each leaf; the two powers are computed once, for all leaves.
    "adam over 20 leaves": (
        adam,
        (LEAVES, LEAVES, LEAVES, LEAVES, np.float32(3)),
        ["loop"] * 21,
        7 * sum(leaf.nbytes for leaf in LEAVES) + 3 * F32 + 20 * 2 * F32,
    ),
    "rows of attention": (
        lambda scores: tx.nn.softmax(scores / 8.0),
        (floats(4, 128, 128),),
        ["row"],
        2 * 4 * 128 * 128 * F32,
    ),
    # Least: what a channel has stays in the cache meanwhile.
    "batch norm, channels second": (
        batch_norm((0, 2, 3)),
        (IMAGES.reshape(32, 64, 16, 16), CHANNELS, CHANNELS),
        ["row"],
        2 * IMAGES.nbytes + 2 * CHANNELS.nbytes,
    ),
    # Least: one pass, in which x and the cotangent are read once.
    "gradient of batch norm, channels second": (
        gradient(batch_norm((0, 2, 3))),
        (IMAGES.reshape(32, 64, 16, 16), CHANNELS, CHANNELS, IMAGES.reshape(32, 64, 16, 16)),
        ["row"],
        3 * IMAGES.nbytes + 3 * CHANNELS.nbytes,
    ),
    # Least for sums over all but the last dimension: three passes over x, since the variance needs the mean, and the
    # result both. What is more is the sums over pieces.
    "batch norm, channels last": (
        batch_norm((0, 1, 2)),
        (IMAGES, CHANNELS, CHANNELS),
        ["column", "combine", "column", "combine", "loop"],
        4 * IMAGES.nbytes + (7 + 2 * (12 + 16)) * CHANNELS.nbytes,
    ),
    # Least: the two passes for the moments, one for all sums of the cotangent, one for the result. The derivative of
    # the variance by the mean, which is zero but for rounding, takes another over x.
    "gradient of batch norm, channels last": (
        gradient(batch_norm((0, 1, 2))),
        (IMAGES, CHANNELS, CHANNELS, IMAGES),
        ["column", "combine"] * 4 + ["loop"],
        8 * IMAGES.nbytes + (22 + 2 * (12 + 16 + 4 * 16 + 16)) * CHANNELS.nbytes,
    ),
    # Least in time: what is costly, and read by each row, is computed once, and the rows read that.
    "gate for each column": (lambda x, s: x / (1 + jnp.exp(-s)), (X, S), ["loop"] * 2, 2 * MATRIX + 3 * VECTOR),
    "bias of a softmax": (lambda x, s: tx.nn.softmax(x + jnp.log(s)), (X, S), ["loop", "row"], 2 * MATRIX + 3 * VECTOR),
    # Least: what belongs to a row is computed outside of the loop over it; what is simple is computed again.
    "gate for each row": (lambda x, s: x / (1 + jnp.exp(-s))[:, None], (X, X[:, 0]), ["loop"], 2 * MATRIX + ONE_EACH),
    "mask": (lambda x: jnp.where(jnp.arange(512)[:, None] >= jnp.arange(1024), x, 0), (X,), ["loop"], 2 * MATRIX),
    "gelu": (tx.nn.gelu, (X,), ["loop"], 2 * MATRIX),
    "gradient of gelu": (gradient(tx.nn.gelu), (X, X), ["loop"], 3 * MATRIX),
    # Least: the mask's operands and the cotangent once, the result, and the sums over the rows.
    "gradient of bias and activation": (
        gradient(lambda x, b: tx.nn.relu(x + b)),
        (X, S, X),
        ["column", "combine"],
        3 * MATRIX + 2 * VECTOR + 2 * 16 * VECTOR,
    ),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", PLANS)
def test_kernels_and_bytes(name: str) -> None:
    function, args, kernels, moved = PLANS[name]
    found, bytes_found, products = plan_of(function, *args)
    assert found == kernels
    assert bytes_found == moved
    assert products == 0


def test_attention_is_two_products_and_one_pass_over_the_scores() -> None:
    heads = floats(4, 8, 128, 64)
    scores = 4 * 8 * 128 * 128 * F32
    assert plan_of(attention, heads, heads, heads) == (["row"], 2 * scores, 2)


def test_a_convolution_with_bias_and_activation() -> None:
    """Least: the convolution itself, which adds the bias and cuts at zero before it writes a result."""
    x, kernel, bias = floats(8, 32, 32, 16), floats(3, 3, 16, 32), floats(32)
    assert plan_of(convolution, x, kernel, bias) == ([], 0, 1)
    (step,) = report_of(convolution, x, kernel, bias).steps
    result = 8 * 30 * 30 * 32 * F32
    assert (step.cost.bytes_read, step.cost.bytes_written) == (x.nbytes + kernel.nbytes + bias.nbytes, result)


def test_layers_with_features_first() -> None:
    """The padded inputs of both, the second with bias and activation in the order that the first left, and the turned
    kernel that they share; the mean over places is one over columns."""

    def layers(x: Any, kernel: Any, bias: Any) -> Any:
        for _ in range(2):
            labels = ("NCHW", "OIHW", "NCHW")
            x = tx.nn.relu(tx.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=labels) + bias)
        return x.mean((2, 3))

    kinds, _, convolutions = plan_of(layers, floats(8, 16, 12, 12), floats(16, 16, 3, 3), floats(16, 1, 1))
    assert convolutions == 2
    assert Counter(kinds) == {"loop": 3, "column": 1}


def test_the_random_bits_of_a_picture_are_made_once() -> None:
    """Not for each of its elements, though they are all that the loops over these compute."""

    def cropped(keys: Any, pictures: Any) -> Any:
        def one(key: Any, picture: Any) -> Any:
            place, turn = tx.random.split(key)
            part = tx.lax.dynamic_slice(picture, (place[0] % 4, place[1] % 4, 0), (28, 28, 3))
            return jnp.where(tx.random.bernoulli(turn), part[:, ::-1], part)

        return tx.vmap(one)(keys, pictures)

    report = report_of(cropped, np.zeros((64, 2), np.uint32), floats(64, 32, 32, 3))
    assert sum(step.cost.operations for step in report.steps) < 10 * 64 * 28 * 28 * 3


def test_a_step_of_a_perceptron() -> None:
    """Five products: two forwards, three backwards. Around them the hidden activation; the loss with its gradient, the
    last bias's along the way, and its mean; the gradient of the activation, the first bias's along the way; and an
    update for each matrix, which is the only pass that a product could take in."""
    parameters = [(floats(784, 256), floats(256)), (floats(256, 10), floats(10))]
    kinds, moved, products = plan_of(step_of_a_perceptron, parameters, floats(128, 784), np.zeros(128, np.int32))
    assert products == 5
    assert Counter(kinds) == {"loop": 3, "row": 2, "column": 1, "combine": 2}
    hidden, logits, weights, last = 128 * 256 * F32, 128 * 10 * F32, 784 * 256 * F32, 256 * 10 * F32
    assert (
        moved == 2 * hidden + 2 * logits + 3 * hidden + 3 * weights + 3 * last + 10_492
    )  # vectors, and sums of pieces


def test_the_report_counts_what_is_read_again_beyond_the_cache() -> None:
    """A row of 4 MB does not stay in the cache of a core, so each of the three loops over it reads it."""
    x = np.zeros((64, 1 << 20), np.float32)
    (step,) = report_of(tx.nn.softmax, tx.ShapeDtypeStruct(x.shape, x.dtype)).steps
    assert step.cost.bytes_read == 3 * x.nbytes
    assert step.cost.bytes_written == x.nbytes


def test_only_what_is_touched_counts() -> None:
    steps = report_of(lambda x: x[::2, :10] * 2, X).steps
    assert [step.cost.bytes_read for step in steps] == [ROWS // 2 * 10 * F32]
    (step,) = report_of(lambda x, i: x[i], X, np.arange(3, dtype=np.int32)).steps
    assert (step.cost.bytes_read, step.cost.bytes_written) == (3 * WIDTH * F32 + 3 * F32, 3 * WIDTH * F32)


# --- values: what joins gives what it gives apart ---------------------------------------------------------------------


def _numbers(kind: str, *sizes: int) -> Array:
    random = np.random.default_rng(sum(sizes))
    if kind == "int32":
        return random.integers(-9, 9, sizes).astype(np.int32)
    return random.normal(size=sizes).astype(kind)


def _stored_and_summed(x: Any, axis: Any) -> Any:
    """Element-wise results, reductions of them, and what is made of these."""
    y = jnp.where(x > 0, x * x, -x)
    return y, y.sum(axis) * 2, (y + 1).max(axis), x.min(axis)


def _over_rows_and_columns(x: Any) -> Any:
    """A row's statistics and results, and reductions over the rows of what they give."""
    y = x - x.max(-1, keepdims=True)
    z = y * y
    return y.sum(-1), z, z.sum(0), (x + z).max(0), z.sum(0) + 1


def _inner_kept(x: Any) -> Any:
    """Reductions that keep the second dimension, with what depends on them."""
    most = x.max((0, 2), keepdims=True)
    y = (x - most) * 2
    return y, y.sum((0, 2)), most[0, :, 0] + 1


SHAPES = [(1, 1), (3, 5), (70, 3), (16, 40), (33, 130), (300, 17), (700, 64), (64, 2000), (2500, 5), (40000, 2)]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_values_of_joined_nests(sizes: tuple[int, int], kind: str) -> None:
    x = _numbers(kind, *sizes)
    programs: list[tuple[Function, Array]] = [
        (lambda x: _stored_and_summed(x, 0), x),
        (lambda x: _stored_and_summed(x, (0, 1)), x),
        (_over_rows_and_columns, x),
        (_inner_kept, _numbers(kind, 4, *sizes)),
        (_inner_kept, _numbers(kind, *sizes, 3)),
    ]
    for function, argument in programs:
        wanted = function(jnp.asarray(argument, dtype=kind))
        compiled = tx.jit(function)
        given = jnp.asarray(argument, dtype=kind)
        results = []
        for threads in (1, 2, 3):
            with tx.num_threads(threads):
                results.append([np.asarray(x) for x in compiled(given)])
        for x, y in zip(results[0], wanted, strict=True):
            np.testing.assert_allclose(x, y, 1e-5 if kind == "float32" else 1e-12, 1e-4 if kind == "float32" else 1e-9)
        for others in results[1:]:
            for x, y in zip(results[0], others, strict=True):
                assert x.tobytes() == y.tobytes()


def test_rows_take_in_reductions_over_them_only_where_these_come_after() -> None:
    """A result that the rows need is not known before all of them have been seen."""

    def function(x: Any) -> Any:
        totals = x.sum(0)
        return (x * totals).sum(-1), totals

    x = floats(200, 300)
    assert [step.kind for step in report_of(function, x).steps] == ["column", "row"]
    np.testing.assert_allclose(tx.jit(function)(x)[0], (x * x.sum(0)).sum(-1), 1e-3, 1e-2)
