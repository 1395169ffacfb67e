"""Workloads: training steps, each a gradient of a loss and what an optimiser makes of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.workload import Function, Inputs, Workload, normal

LAYER_SIZES = (64, 256, 128, 10)
BATCH_SIZE = 64


# The training step of the digits example: a multilayer perceptron and Adam.


def _adam(tx: Any, parameters: Any, gradient: Any, state: Any, rate: float = 2e-3) -> tuple[Any, Any]:
    """Parameters and state after a step of Adam."""
    tree_map, xp = tx.tree_util.tree_map, tx.numpy
    count, mean, square = state
    count = count + 1
    mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
    mean_scale, square_scale = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)

    def updated(parameter: Any, m: Any, s: Any) -> Any:
        return parameter - rate * (m * mean_scale) / (xp.sqrt(s * square_scale) + 1e-8)

    return tree_map(updated, parameters, mean, square), (count, mean, square)


def _cross_entropy(tx: Any, logits: Any, labels: Any) -> Any:
    log_probabilities = tx.nn.log_softmax(logits)
    return -tx.numpy.mean(tx.numpy.sum(tx.nn.one_hot(labels, logits.shape[-1]) * log_probabilities, axis=-1))


def _dense_layers(tx: Any, activate: Function, parameters: Any, x: Any) -> Any:
    for weights, bias in parameters[:-1]:
        x = activate(x @ weights + bias)
    weights, bias = parameters[-1]
    return x @ weights + bias


def digits_step(tx: Any) -> Function:
    """Loss, gradient and Adam for a multilayer perceptron."""

    def loss(parameters: Any, images: Any, labels: Any) -> Any:
        return _cross_entropy(tx, _dense_layers(tx, tx.nn.relu, parameters, images), labels)

    def step(parameters: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradient = tx.value_and_grad(loss)(parameters, images, labels)
        return *_adam(tx, parameters, gradient, state), value

    return step


def layers(generator: np.random.Generator, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """Weights and biases of dense layers of these sizes."""
    return [
        ((i**-0.5) * generator.standard_normal((i, o), dtype=np.float32), np.zeros(o, np.float32))
        for i, o in pairwise(sizes)
    ]


def _zeros(parameters: Any) -> Any:
    return [tuple(np.zeros_like(x) for x in layer) for layer in parameters]


def digits_inputs(generator: np.random.Generator, batch: int = BATCH_SIZE) -> tuple[Any, ...]:
    """The arguments of `digits_step`."""
    parameters = layers(generator, LAYER_SIZES)
    state = (np.int32(0), _zeros(parameters), _zeros(parameters))
    labels = generator.integers(0, LAYER_SIZES[-1], batch, dtype=np.int32)
    return parameters, state, generator.standard_normal((batch, LAYER_SIZES[0]), dtype=np.float32), labels


# A wide perceptron with plain gradient descent, as PyTorch's users write it too.

_WIDE = (784, 512, 512, 10)


def _wide_step(tx: Any) -> Function:
    def loss(parameters: Any, images: Any, targets: Any) -> Any:
        layered = list(zip(parameters[::2], parameters[1::2], strict=True))
        return tx.numpy.mean((_dense_layers(tx, tx.numpy.tanh, layered, images) - targets) ** 2)

    def step(images: Any, targets: Any, *parameters: Any) -> Any:
        gradient = tx.grad(loss)(parameters, images, targets)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    return step


def _wide_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    images = generator.standard_normal((128, _WIDE[0]), dtype=np.float32)
    targets = generator.standard_normal((128, _WIDE[-1]), dtype=np.float32)
    return images, targets, *(x for layer in layers(generator, _WIDE) for x in layer)


def _descent_in_torch(torch: Any, loss: Function) -> Function:
    """A step of gradient descent on all but the first two arguments."""

    def step(images: Any, targets: Any, *parameters: Any) -> Any:
        leaves = [p.detach().requires_grad_() for p in parameters]
        gradient = torch.autograd.grad(loss(leaves, images, targets), leaves)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    return step


def _wide_in_torch(torch: Any) -> Function:
    def loss(parameters: Any, x: Any, targets: Any) -> Any:
        *hidden, (weights, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        for w, b in hidden:
            x = torch.tanh(torch.addmm(b, x, w))
        return torch.mean((torch.addmm(bias, x, weights) - targets) ** 2)

    return _descent_in_torch(torch, loss)


# A small convolutional network: two convolutions with pooling, then a dense layer.


def _network_step(tx: Any) -> Function:
    lax, numbers = tx.lax, ("NHWC", "HWIO", "NHWC")

    def block(x: Any, kernel: Any, bias: Any) -> Any:
        x = tx.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers) + bias)
        return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(parameters: Any, images: Any, targets: Any) -> Any:
        first, first_bias, second, second_bias, weights, bias = parameters
        x = block(block(images, first, first_bias), second, second_bias)
        return tx.numpy.mean((x.reshape(len(images), -1) @ weights + bias - targets) ** 2)

    def step(images: Any, targets: Any, *parameters: Any) -> Any:
        gradient = tx.grad(loss)(parameters, images, targets)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    return step


_network_inputs = normal((32, 28, 28, 1), (32, 10), (3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (3136, 10), (10,))


def _network_in_torch(torch: Any) -> Function:
    functional = torch.nn.functional

    def loss(parameters: Any, images: Any, targets: Any) -> Any:
        first, first_bias, second, second_bias, weights, bias = parameters
        x = images.permute(0, 3, 1, 2)
        for kernel, shift in ((first, first_bias), (second, second_bias)):
            x = functional.conv2d(x, kernel.permute(3, 2, 0, 1), shift, padding=1)
            x = functional.max_pool2d(torch.relu(x), 2)
        return torch.mean((x.permute(0, 2, 3, 1).flatten(1) @ weights + bias - targets) ** 2)

    return _descent_in_torch(torch, loss)


# A block of a transformer: attention and a perceptron, each after a layer norm and beside a residual connection.

_WIDTH, _HEADS = 128, 4


def _normalized(tx: Any, x: Any) -> Any:
    centred = x - tx.numpy.mean(x, -1, keepdims=True)
    return centred * tx.lax.rsqrt(tx.numpy.mean(centred * centred, -1, keepdims=True) + 1e-5)


def transformer_block(tx: Any, x: Any, parameters: Any) -> Any:
    """One block; `x` is (batch, length, width)."""
    xp = tx.numpy
    queries_keys_values, out, up, down = parameters
    batch, length, width = x.shape
    heads = _normalized(tx, x) @ queries_keys_values
    q, k, v = xp.moveaxis(heads.reshape(batch, length, 3, _HEADS, width // _HEADS), (2, 3), (0, 2))
    scores = tx.nn.softmax(q @ xp.swapaxes(k, -1, -2) / np.float32((width // _HEADS) ** 0.5))
    x = x + xp.swapaxes(scores @ v, 1, 2).reshape(batch, length, width) @ out
    return x + tx.nn.gelu(_normalized(tx, x) @ up) @ down


def block_parameters(generator: np.random.Generator, width: int = _WIDTH) -> tuple[Any, ...]:
    """Weights of one block."""
    shapes = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
    return tuple(shape[0] ** -0.5 * generator.standard_normal(shape, dtype=np.float32) for shape in shapes)


def block_step(tx: Any) -> Function:
    def loss(parameters: Any, x: Any) -> Any:
        return tx.numpy.mean(transformer_block(tx, x, parameters) ** 2)

    def step(x: Any, *parameters: Any) -> Any:
        gradient = tx.grad(loss)(parameters, x)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    return step


def _block_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    return generator.standard_normal((8, 64, _WIDTH), dtype=np.float32), *block_parameters(generator)


def _block_in_torch(torch: Any) -> Function:
    functional = torch.nn.functional

    def loss(parameters: Any, x: Any) -> Any:
        queries_keys_values, out, up, down = parameters
        batch, length, width = x.shape
        heads = functional.layer_norm(x, (width,)) @ queries_keys_values
        q, k, v = heads.view(batch, length, 3, _HEADS, width // _HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v)
        x = x + attended.transpose(1, 2).reshape(batch, length, width) @ out
        x = x + functional.gelu(functional.layer_norm(x, (width,)) @ up, approximate="tanh") @ down
        return torch.mean(x**2)

    def step(x: Any, *parameters: Any) -> Any:
        leaves = [p.detach().requires_grad_() for p in parameters]
        gradient = torch.autograd.grad(loss(leaves, x), leaves)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    return step


# A variational autoencoder.


def _autoencoder_step(tx: Any) -> Function:
    xp = tx.numpy

    def loss(parameters: Any, images: Any, noise: Any) -> Any:
        encoder, decoder = parameters
        mean, spread = xp.split(_dense_layers(tx, tx.nn.relu, encoder, images), 2, axis=1)
        logits = _dense_layers(tx, tx.nn.relu, decoder, mean + xp.exp(0.5 * spread) * noise)
        likelihood = xp.sum(tx.nn.log_sigmoid(logits) * images + tx.nn.log_sigmoid(-logits) * (1 - images), 1)
        divergence = 0.5 * xp.sum(xp.exp(spread) + mean**2 - 1 - spread, 1)
        return xp.mean(divergence - likelihood)

    def step(parameters: Any, state: Any, images: Any, noise: Any) -> Any:
        return _adam(tx, parameters, tx.grad(loss)(parameters, images, noise), state)

    return step


def _autoencoder_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    parameters = (layers(generator, (784, 400, 40)), layers(generator, (20, 400, 784)))
    state = (np.int32(0), tuple(map(_zeros, parameters)), tuple(map(_zeros, parameters)))
    images = (generator.random((128, 784)) > 0.5).astype(np.float32)
    return parameters, state, images, generator.standard_normal((128, 20), dtype=np.float32)


# Smaller models, and optimisers alone.


def _newton_step(tx: Any) -> Function:
    """Newton's method for logistic regression with a penalty."""
    xp = tx.numpy

    def loss(weights: Any, points: Any, classes: Any) -> Any:
        return -xp.mean(tx.nn.log_sigmoid(classes * (points @ weights))) + 1e-3 * weights @ weights

    def step(weights: Any, points: Any, classes: Any) -> Any:
        gradient = tx.grad(loss)(weights, points, classes)
        return weights - xp.linalg.solve(tx.hessian(loss)(weights, points, classes), gradient)

    return step


def _newton_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    points = generator.standard_normal((2000, 30), dtype=np.float32)
    classes = np.sign(points[:, 0] + generator.standard_normal(2000)).astype(np.float32)
    return np.zeros(30, np.float32), points, classes


def _example_gradients(tx: Any) -> Function:
    """The gradients of a network's loss, for each example on its own."""

    def loss(weights: Any, example: Any) -> Any:
        hidden, out = weights
        return tx.numpy.sum(tx.numpy.tanh(tx.numpy.tanh(example @ hidden) @ out) ** 2)

    gradients = tx.vmap(tx.grad(loss), (None, 0))
    return lambda hidden, out, examples: gradients((hidden, out), examples)


def _clipped_step(tx: Any) -> Function:
    """Private training: each example's gradient is clipped before all are added."""
    xp = tx.numpy

    def loss(parameters: Any, example: Any, target: Any) -> Any:
        return xp.sum((_dense_layers(tx, xp.tanh, parameters, example) - target) ** 2)

    def step(parameters: Any, examples: Any, targets: Any) -> Any:
        gradients = tx.vmap(tx.grad(loss), (None, 0, 0))(parameters, examples, targets)
        leaves = tx.tree_util.tree_leaves(gradients)
        norms = xp.sqrt(sum(xp.sum(g.reshape(len(g), -1) ** 2, 1) for g in leaves))
        scale = xp.minimum(1, 1 / norms)
        return tx.tree_util.tree_map(lambda p, g: p - 0.1 * xp.tensordot(scale, g, 1), parameters, gradients)

    return step


def _clipped_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    shapes = (64, 32), (64, 10)
    return layers(generator, (32, 64, 10)), *(generator.standard_normal(s, dtype=np.float32) for s in shapes)


def _adam_alone(tx: Any) -> Function:
    return lambda parameters, gradient, state: _adam(tx, parameters, gradient, state)


def _many_leaves(shapes: list[tuple[int, ...]]) -> Inputs:
    def inputs(generator: np.random.Generator) -> tuple[Any, ...]:
        parameters, gradient, mean, square = (
            [generator.random(shape, dtype=np.float32) for shape in shapes] for _ in range(4)
        )
        return parameters, gradient, (np.int32(3), mean, square)

    return inputs


def _penalty_step(tx: Any) -> Function:
    """The gradient of a loss that contains the norm of a gradient, as critics of generative models have."""
    xp = tx.numpy

    def critic(parameters: Any, x: Any) -> Any:
        return xp.sum(_dense_layers(tx, tx.nn.swish, parameters, x))

    def loss(parameters: Any, points: Any) -> Any:
        slopes = tx.vmap(tx.grad(critic, 1), (None, 0))(parameters, points)
        return critic(parameters, points) + xp.mean((xp.sqrt(xp.sum(slopes**2, -1)) - 1) ** 2)

    return tx.grad(loss)


def _physics_step(tx: Any) -> Function:
    """A network that solves the heat equation: a loss with second derivatives by its inputs."""
    xp = tx.numpy

    def solution(parameters: Any, t: Any, x: Any) -> Any:
        return _dense_layers(tx, xp.tanh, parameters, xp.stack([t, x]))[0]

    def residual(parameters: Any, t: Any, x: Any) -> Any:
        in_time = tx.grad(solution, 1)(parameters, t, x)
        return in_time - tx.grad(tx.grad(solution, 2), 2)(parameters, t, x)

    def loss(parameters: Any, t: Any, x: Any) -> Any:
        return xp.mean(tx.vmap(residual, (None, 0, 0))(parameters, t, x) ** 2)

    return tx.value_and_grad(loss)


def _layers_and(sizes: tuple[int, ...], *shapes: tuple[int, ...]) -> Inputs:
    def inputs(generator: np.random.Generator) -> tuple[Any, ...]:
        return layers(generator, sizes), *(generator.standard_normal(s, dtype=np.float32) for s in shapes)

    return inputs


def _mixture_step(tx: Any) -> Function:
    """One step of expectation maximisation for a mixture of Gaussians with diagonal covariance."""
    xp = tx.numpy

    def step(points: Any, centres: Any, spreads: Any, weights: Any) -> Any:
        away = points[:, None] - centres
        log = xp.log(weights) - 0.5 * xp.sum(away**2 / spreads + xp.log(spreads), -1)
        shares = tx.nn.softmax(log, axis=1)
        totals = xp.sum(shares, 0)
        centres = (shares.T @ points) / totals[:, None]
        spreads = (shares.T @ points**2) / totals[:, None] - centres**2 + 1e-3
        return centres, spreads, totals / len(points)

    return step


def _mixture_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    points = generator.standard_normal((5000, 8), dtype=np.float32)
    return points, points[:16], np.ones((16, 8), np.float32), np.full(16, 1 / 16, np.float32)


def _contrast_step(tx: Any) -> Function:
    """The gradient of a contrastive loss between two sets of embeddings."""
    xp = tx.numpy

    def loss(weights: Any, images: Any, texts: Any) -> Any:
        left, right = images @ weights[0], texts @ weights[1]
        left, right = (x / xp.sqrt(xp.sum(x * x, -1, keepdims=True)) for x in (left, right))
        scores = 10 * left @ right.T
        each = xp.diag(tx.nn.log_softmax(scores, 0)) + xp.diag(tx.nn.log_softmax(scores, 1))
        return -xp.mean(each)

    return lambda first, second, images, texts: tx.grad(loss)((first, second), images, texts)


def _rosenbrock_hessian(tx: Any) -> Function:
    return tx.hessian(lambda x: tx.numpy.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


_SMALL_LEAVES = [(64,), (64, 64)] * 10
_LARGE_LEAVES = [(512, 512), (512,), (512, 1024), (1024,)] * 2

WORKLOADS: tuple[Workload, ...] = (
    Workload("digits step", digits_step, digits_inputs),
    Workload("wide perceptron, batch of 128", _wide_step, _wide_inputs, torch=_wide_in_torch),
    Workload("convolutional network, batch of 32", _network_step, _network_inputs, torch=_network_in_torch),
    Workload("transformer block, 8 x 64 x 128", block_step, _block_inputs, torch=_block_in_torch),
    Workload("variational autoencoder, batch of 128", _autoencoder_step, _autoencoder_inputs),
    Workload("Newton step of a logistic regression", _newton_step, _newton_inputs),
    Workload("gradients of 64 examples", _example_gradients, normal((64, 128), (128, 8), (64, 64))),
    Workload("clipped gradients of 64 examples", _clipped_step, _clipped_inputs),
    Workload("Adam over 20 small leaves", _adam_alone, _many_leaves(_SMALL_LEAVES)),
    Workload("Adam over 8 large leaves", _adam_alone, _many_leaves(_LARGE_LEAVES)),
    Workload("gradient penalty", _penalty_step, _layers_and((2, 64, 64, 1), (256, 2))),
    Workload("heat equation by a network", _physics_step, _layers_and((2, 32, 32, 1), (256,), (256,))),
    Workload("mixture of Gaussians, one step", _mixture_step, _mixture_inputs),
    Workload("Hessian of Rosenbrock, 64", _rosenbrock_hessian, normal((64,))),
    Workload("contrastive loss, 128 pairs", _contrast_step, normal((256, 64), (256, 64), (128, 256), (128, 256))),
)
