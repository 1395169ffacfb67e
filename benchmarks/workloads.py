"""What is measured. Each workload is written once, against the interface that the libraries share."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.libraries import Library
from benchmarks.operations import OPERATIONS, Operation

ROOT = Path(__file__).parents[1]
LAYER_SIZES = (64, 256, 128, 10)
BATCH_SIZE = 64


@dataclass(frozen=True)
class Calls:
    """A call that is repeated warm. `build` makes it, with its inputs, for a library.

    With `wait_each` every result is waited for before the next call; without, the rate at which calls can be issued is
    measured. `transforms` says that the workload needs `jit` or `grad`, so that NumPy stays away.
    """

    name: str
    build: Callable[[Library], Callable[[], object]]
    transforms: bool = False
    wait_each: bool = True


@dataclass(frozen=True)
class Once:
    """Something that can happen only once per sample; `sample` does it and returns the seconds it took."""

    name: str
    sample: Callable[[Library], float]
    transforms: bool = True


# Training step of the digits example: a multilayer perceptron, its gradient and Adam.


def digits_step(library: Library) -> Callable[..., Any]:
    """Return a new, not yet compiled, training step."""
    tx, jnp = library.tx, library.jnp
    tree_map = tx.tree_util.tree_map

    def loss(parameters: Any, images: Any, labels: Any) -> Any:
        activations = images
        for weights, bias in parameters[:-1]:
            activations = tx.nn.relu(activations @ weights + bias)
        weights, bias = parameters[-1]
        log_probabilities = tx.nn.log_softmax(activations @ weights + bias)
        return -jnp.mean(jnp.sum(tx.nn.one_hot(labels, LAYER_SIZES[-1]) * log_probabilities, axis=-1))

    def step(parameters: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradient = tx.value_and_grad(loss)(parameters, images, labels)
        count, mean, square = state
        count = count + 1
        mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
        mean_scale, square_scale = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)

        def updated(parameter: Any, m: Any, s: Any) -> Any:
            return parameter - 2e-3 * (m * mean_scale) / (jnp.sqrt(s * square_scale) + 1e-8)

        return tree_map(updated, parameters, mean, square), (count, mean, square), value

    return tx.jit(step)


def digits_arguments(library: Library) -> tuple[Any, ...]:
    """Return the step's arguments, the same numbers for every library."""
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return library.jnp.array(0.1 * generator.standard_normal(shape, dtype=np.float32))

    parameters = [(normal(i, o), normal(o)) for i, o in pairwise(LAYER_SIZES)]
    zeros = library.tx.tree_util.tree_map(library.jnp.zeros_like, parameters)
    state = (library.jnp.array(np.int32(0)), zeros, zeros)
    labels = generator.integers(0, LAYER_SIZES[-1], BATCH_SIZE, dtype=np.int32)
    return parameters, state, normal(BATCH_SIZE, LAYER_SIZES[0]), library.jnp.array(labels)


def _digits_steady(library: Library) -> Callable[[], object]:
    # Always from the same parameters: training on would end in gradients so small that they are denormal.
    return partial(digits_step(library), *digits_arguments(library))


def _digits_compile(library: Library) -> float:
    """Time the first call of a new function, with nothing in tinyxla's caches that could serve it.

    JAX's cache on disk is off, as is its default, and its caches in memory cannot know a new function. They are not
    cleared, so that JAX keeps what it knows of its own helpers.
    """
    arguments = digits_arguments(library)
    if library.name == "tinyxla":
        library.tx.clear_caches()
        shutil.rmtree(os.environ["TINYXLA_CACHE_DIR"], ignore_errors=True)
    gc.collect()
    start = time.perf_counter()
    library.tx.block_until_ready(digits_step(library)(*arguments))
    return time.perf_counter() - start


# Array functions.


def chain(xp: Any, x: Any) -> Any:
    """Ten element-wise operations."""
    y = x * 0.5
    y = y + 1.0
    y = y * y
    y = xp.exp(-y)
    y = y + x
    y = xp.tanh(y)
    y = xp.maximum(y, 0.1)
    y = xp.sqrt(y)
    return y - x


def softmax(xp: Any, x: Any) -> Any:
    """Softmax over the last axis."""
    exponentials = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return exponentials / xp.sum(exponentials, axis=-1, keepdims=True)


def layer_norm(xp: Any, x: Any) -> Any:
    """Zero mean and unit variance over the last axis."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5)


def total(xp: Any, x: Any) -> Any:
    return xp.sum(x)


def row_means(xp: Any, x: Any) -> Any:
    return xp.mean(x, axis=-1)


def column_means(xp: Any, x: Any) -> Any:
    return xp.mean(x, axis=0)


def square_matmul(xp: Any, x: Any) -> Any:
    return x @ x


def twice(xp: Any, x: Any) -> Any:
    return x + x


def tail(xp: Any, x: Any) -> Any:
    return x[1:]


def sine(xp: Any, x: Any) -> Any:
    return xp.sin(x)


def _on_normals(
    function: Callable[[Any, Any], Any], *shape: int, compiled: bool = True
) -> Callable[[Library], Callable[[], object]]:
    """Build the function, compiled or eager, on standard normal numbers of the shape."""

    def build(library: Library) -> Callable[[], object]:
        values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        bound = partial(function, library.jnp)
        return partial(library.compiled(bound) if compiled else bound, library.jnp.array(values))

    return build


# Dispatch: the work of calling a compiled function that computes next to nothing.


def _add_one(library: Library) -> Callable[[], object]:
    return partial(library.tx.jit(lambda x: x + 1), library.jnp.array(np.float32(1)))


def _hundred_leaves(library: Library) -> Callable[[], object]:
    tree = {f"leaf{number}": library.jnp.array(np.float32(number)) for number in range(100)}
    return partial(library.tx.jit(lambda tree: library.tx.tree_util.tree_map(lambda leaf: leaf + 1, tree)), tree)


def _operation(operation: Operation) -> Calls:
    def build(library: Library) -> Callable[[], object]:
        inputs = [library.jnp.array(x) for x in operation.inputs(np.random.default_rng(0))]
        return partial(library.tx.jit(operation.make(library.tx)), *inputs)

    return Calls(operation.name, build, transforms=True)


# Whole processes.

_IMPORT = """
import sys, time
start = time.perf_counter()
__import__(sys.argv[1])
print(time.perf_counter() - start)
"""

_FIRST_STEP = """
import sys, time
start = time.perf_counter()
from benchmarks.libraries import Library
from benchmarks.workloads import digits_arguments, digits_step
library = Library.load(sys.argv[1])
library.tx.block_until_ready(digits_step(library)(*digits_arguments(library)))
print(time.perf_counter() - start)
"""


def _in_process(program: str, library: Library, cache: Path | None = None) -> float:
    """Run a program that prints seconds; with a cache directory, both libraries keep compiled code there."""
    environment = dict(os.environ)
    if cache is not None:
        environment |= {
            "TINYXLA_CACHE_DIR": str(cache),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    command = [sys.executable, "-c", program, library.name]
    finished = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(finished.stdout)


def _import(library: Library) -> float:
    return _in_process(_IMPORT, library)


def _first_step_cold(library: Library) -> float:
    with tempfile.TemporaryDirectory() as cache:
        return _in_process(_FIRST_STEP, library, Path(cache))


def _first_step_warm(library: Library) -> float:
    cache = Path(os.environ["TINYXLA_CACHE_DIR"]).with_name(f"first-step-{library.name}")
    if not cache.exists():
        _in_process(_FIRST_STEP, library, cache)
    return _in_process(_FIRST_STEP, library, cache)


WORKLOADS: tuple[Calls | Once, ...] = (
    Once("digits step: compile", _digits_compile),
    Calls("digits step: steady", _digits_steady, transforms=True),
    Calls("chain of 10 operations, 1e3", _on_normals(chain, 10**3)),
    Calls("chain of 10 operations, 1e6", _on_normals(chain, 10**6)),
    Calls("chain of 10 operations, 1e7", _on_normals(chain, 10**7)),
    Calls("softmax, 4096 x 1024", _on_normals(softmax, 4096, 1024)),
    Calls("layer norm, 4096 x 1024", _on_normals(layer_norm, 4096, 1024)),
    Calls("sum, 4096 x 1024", _on_normals(total, 4096, 1024)),
    Calls("mean of rows, 4096 x 1024", _on_normals(row_means, 4096, 1024)),
    Calls("mean of columns, 4096 x 1024", _on_normals(column_means, 4096, 1024)),
    Calls("matmul, 1024 x 1024", _on_normals(square_matmul, 1024, 1024)),
    *map(_operation, OPERATIONS),
    Calls("dispatch: x + 1", _add_one, transforms=True, wait_each=False),
    Calls("dispatch: 100 leaves", _hundred_leaves, transforms=True, wait_each=False),
    Calls("eager: a + a, 1e3", _on_normals(twice, 10**3, compiled=False), wait_each=False),
    Calls("eager: a[1:], 1e3", _on_normals(tail, 10**3, compiled=False), wait_each=False),
    Calls("eager: sin(a), 1e3", _on_normals(sine, 10**3, compiled=False), wait_each=False),
    Once("import", _import, transforms=False),
    Once("import and first digits step, no cache", _first_step_cold),
    Once("import and first digits step, cache on disk", _first_step_warm),
)
