"""Train a multilayer perceptron on scikit-learn's handwritten digits and draw what it learned.

The data are 1797 real 8 x 8 images that scikit-learn carries, so nothing is downloaded; 360 of them are held out. One
jitted function holds the whole training step - forward pass, gradient and Adam - so that it compiles into one native
call.

    python examples/digits.py --output digits.png

On several processes, or machines, each of which has a part of every batch (`pip install 'tinyxla[mpi]'`):

    mpirun -n 2 python examples/digits.py --parallel
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")  # the figure goes to a file; no screen is needed

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import tinyxla as tx
import tinyxla.numpy as jnp

LAYER_SIZES = (64, 256, 128, 10)
BATCH_SIZE = 64
LEARNING_RATE = 2e-3
CLASSES = LAYER_SIZES[-1]
HELD_OUT = 360


class Layer(NamedTuple):
    """One dense layer: weights `[inputs, outputs]` and a bias `[outputs]`."""

    weights: Any
    bias: Any


class Adam(NamedTuple):
    """Adam's state: the number of steps taken and running means of the gradient and of its square."""

    count: Any
    mean: Any
    square: Any


class Split(NamedTuple):
    """Images `f32[n, 64]` with values from 0 to 1 and their labels `i32[n]`."""

    images: np.ndarray
    labels: np.ndarray


def load() -> tuple[Split, Split]:
    """Return the training images and the held-out ones."""
    pixels, digits = load_digits(return_X_y=True)
    images = np.asarray(pixels / 16, np.float32)
    labels = np.asarray(digits, np.int32)
    held_out, training = np.split(np.random.default_rng(0).permutation(len(labels)), [HELD_OUT])
    return Split(images[training], labels[training]), Split(images[held_out], labels[held_out])


def initial_parameters(key: Any) -> list[Layer]:
    """Draw weights with variance 2 / inputs, which keeps the scale of values through ReLU layers (He et al., 2015)."""
    parameters = []
    keys = tx.random.split(key, len(LAYER_SIZES) - 1)
    for layer_key, inputs, outputs in zip(keys, LAYER_SIZES[:-1], LAYER_SIZES[1:], strict=True):
        weights = tx.random.normal(layer_key, (inputs, outputs)) * np.sqrt(2.0 / inputs).astype(np.float32)
        parameters.append(Layer(weights, jnp.zeros((outputs,))))
    return parameters


def predict(parameters: list[Layer], images: Any) -> Any:
    """Return the logits `f32[n, 10]` of the images `f32[n, 64]`."""
    *hidden, last = parameters
    activations = images
    for layer in hidden:
        activations = tx.nn.relu(activations @ layer.weights + layer.bias)
    return activations @ last.weights + last.bias


def cross_entropy(parameters: list[Layer], images: Any, labels: Any) -> Any:
    """Return the mean negative log-likelihood of the labels."""
    log_probabilities = tx.nn.log_softmax(predict(parameters, images))
    return -jnp.mean(jnp.sum(tx.nn.one_hot(labels, CLASSES) * log_probabilities, axis=-1))


def initial_adam(parameters: list[Layer]) -> Adam:
    """Return the state before the first step."""
    zeros = tx.tree_util.tree_map(jnp.zeros_like, parameters)
    return Adam(jnp.zeros((), dtype="int32"), zeros, zeros)


def adam(parameters: list[Layer], gradient: Any, state: Adam) -> tuple[list[Layer], Adam]:
    """Take one step of Adam (Kingma and Ba, 2015, algorithm 1) with its usual decay rates 0.9 and 0.999."""
    tree_map = tx.tree_util.tree_map
    count = state.count + 1
    mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, gradient)
    square = tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, state.square, gradient)
    mean_scale = 1 / (1 - 0.9**count)
    square_scale = 1 / (1 - 0.999**count)

    def updated(parameter: Any, m: Any, s: Any) -> Any:
        return parameter - LEARNING_RATE * (m * mean_scale) / (jnp.sqrt(s * square_scale) + 1e-8)

    return tree_map(updated, parameters, mean, square), Adam(count, mean, square)


@tx.jit
def train_step(parameters: list[Layer], state: Adam, images: Any, labels: Any) -> tuple[list[Layer], Adam, Any]:
    """Return the parameters and Adam's state after one batch, and the loss before it."""
    loss, gradient = tx.value_and_grad(cross_entropy)(parameters, images, labels)
    parameters, state = adam(parameters, gradient, state)
    return parameters, state, loss


def batches(key: Any, split: Split) -> Iterator[Split]:
    """Yield the images in a random order, in batches of one size so that the step compiles once."""
    order = np.asarray(tx.random.permutation(key, len(split.labels)))
    for start in range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE):
        chosen = order[start : start + BATCH_SIZE]
        yield Split(split.images[chosen], split.labels[chosen])


def data_parallel() -> Callable[[Split], Split]:
    """Make this process one of those that mpirun started. Return the function that divides a batch among all devices:
    the training step then runs on all of them, and they add up their gradients."""
    tx.distributed.initialize()
    mesh = tx.make_mesh((tx.device_count(),), ("data",))
    return lambda batch: tx.device_put(batch, tx.NamedSharding(mesh, tx.P("data")))


def train(split: Split, epochs: int, place: Callable[[Split], Split]) -> tuple[list[Layer], np.ndarray]:
    """Return the trained parameters and the loss of every step, of batches that `place` puts where they are wanted."""
    parameters_key, order_key = tx.random.split(tx.random.key(0))
    parameters = initial_parameters(parameters_key)
    state = initial_adam(parameters)
    losses: list[Any] = []
    is_first = tx.process_index() == 0
    with tqdm(tx.random.split(order_key, epochs), desc="training", unit="epoch", disable=not is_first) as epoch_keys:
        for epoch_key in epoch_keys:
            for batch in batches(epoch_key, split):
                parameters, state, loss = train_step(parameters, state, *place(batch))
                losses.append(loss)
            epoch_keys.set_postfix(loss=f"{float(losses[-1]):.4f}")
    return parameters, np.asarray([float(loss) for loss in losses])


def draw(losses: np.ndarray, split: Split, predictions: np.ndarray, accuracy: float, output: Path) -> None:
    """Save the loss curve above the first held-out image of each digit with its prediction; a wrong one is red."""
    figure = plt.figure(figsize=(10, 5), layout="constrained")
    grid = figure.add_gridspec(2, CLASSES, height_ratios=(3, 1))

    curve = figure.add_subplot(grid[0, :])
    curve.semilogy(np.arange(1, len(losses) + 1), losses, linewidth=0.8)
    curve.set(title=f"Held-out accuracy {accuracy:.1%}", xlabel="step", ylabel="cross-entropy of the batch (nats)")

    for label in range(CLASSES):
        index = int(np.argmax(split.labels == label))
        digit = figure.add_subplot(grid[1, label])
        digit.imshow(split.images[index].reshape(8, 8), cmap="gray_r")
        digit.set_title(f"{predictions[index]}", color="black" if predictions[index] == label else "red")
        digit.set_axis_off()
    figure.supxlabel("held-out images under their predictions", fontsize="medium")

    figure.savefig(output, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a multilayer perceptron on handwritten digits.")
    parser.add_argument("--output", type=Path, default=Path("digits.png"), help="the figure (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training images (default: %(default)s)")
    parser.add_argument("--parallel", action="store_true", help="divide batches among the processes of mpirun")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1, not {arguments.epochs}")

    place = data_parallel() if arguments.parallel else lambda batch: batch
    training, held_out = load()
    parameters, losses = train(training, arguments.epochs, place)
    if tx.process_index():
        return
    predictions = np.argmax(np.asarray(tx.jit(predict)(parameters, held_out.images)), axis=-1)
    correct = int(np.sum(predictions == held_out.labels))
    accuracy = correct / len(held_out.labels)
    draw(losses, held_out, predictions, accuracy, arguments.output)
    print(f"held-out accuracy: {accuracy:.2%} ({correct} of {len(held_out.labels)}); figure: {arguments.output}")


if __name__ == "__main__":
    main()
