"""Workloads: latency. What a call costs that computes next to nothing, and what the first one costs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.first_calls import first_call_of
from benchmarks.groups.elementwise import ten_operations
from benchmarks.groups.training import digits_inputs, digits_step
from benchmarks.libraries import Library
from benchmarks.workload import Calls, Once, Workload, normal

_ALL = ("tinyxla", "jax", "numpy", "torch")


# Dispatch: the work of calling a compiled function that computes next to nothing.


def _add_one(library: Library) -> Callable[[], object]:
    return partial(library.tx.jit(lambda x: x + 1), library.jnp.array(np.float32(1)))


def _ten_arrays(library: Library) -> Callable[[], object]:
    arrays = [library.jnp.array(np.full(8, number, np.float32)) for number in range(10)]
    return partial(library.tx.jit(lambda *x: sum(x)), *arrays)


def _hundred_leaves(library: Library) -> Callable[[], object]:
    tree = {f"leaf{number}": library.jnp.array(np.float32(number)) for number in range(100)}
    return partial(library.tx.jit(lambda tree: library.tx.tree_util.tree_map(lambda leaf: leaf + 1, tree)), tree)


def _fifty_layers(library: Library) -> Callable[[], object]:
    """Parameters of layers, of which a number is made."""
    layer = {"weights": library.jnp.array(np.float32(1)), "bias": library.jnp.array(np.float32(2))}
    layers = [dict(layer) for _ in range(50)]
    return partial(library.tx.jit(lambda layers: layers[0]["weights"] + layers[-1]["bias"]), layers)


# Eager operations.


def _eager(function: Callable[[Any, Any], Any], *shape: int) -> Callable[[Library], Callable[[], object]]:
    def build(library: Library) -> Callable[[], object]:
        (array,) = library.arrays(normal(shape)(np.random.default_rng(0)))
        return partial(function, library.jnp, array)

    return build


# First calls in a process that has compiled other functions before.


def transformer_loss(tx: Any, heads: int = 4) -> Callable[..., Any]:
    """The mean square of what a transformer, a list of equal layers, makes of one sequence of vectors."""
    xp = tx.numpy

    def normalised(x: Any, scale: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return scale * centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    def attention(layer: Any, x: Any) -> Any:
        length, width = x.shape
        split = xp.reshape(x @ layer["qkv"], (length, 3, heads, width // heads))
        query, key, value = (split[:, k].swapaxes(0, 1) for k in range(3))
        scores = query @ key.swapaxes(1, 2) / (width // heads) ** 0.5
        seen = xp.tril(xp.ones((length, length), bool))
        weights = tx.nn.softmax(xp.where(seen, scores, -1e9))
        return xp.reshape((weights @ value).swapaxes(0, 1), (length, width)) @ layer["out"]

    def loss(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = x + attention(layer, normalised(x, layer["first"]))
            x = x + tx.nn.gelu(normalised(x, layer["second"]) @ layer["up"]) @ layer["down"]
        return xp.mean(x * x)

    return loss


def transformer_inputs(
    generator: np.random.Generator, layers: int, width: int = 128, length: int = 64
) -> tuple[Any, ...]:
    """The layers, with hidden layers four times as wide, and one sequence."""

    def normal(*shape: int) -> Any:
        return generator.standard_normal(shape, dtype=np.float32) / np.float32(shape[0] ** 0.5)

    sizes = {"qkv": 3 * width, "out": width, "up": 4 * width}
    made = [
        {name: normal(width, size) for name, size in sizes.items()}
        | {"down": normal(4 * width, width), "first": np.ones(width, np.float32), "second": np.ones(width, np.float32)}
        for _ in range(layers)
    ]
    return made, normal(length, width)


_CHAIN = Workload("chain", lambda tx: partial(ten_operations, tx.numpy), normal((1000,)))
_DIGITS = Workload("digits", digits_step, digits_inputs)
_TRANSFORMER = Workload(
    "transformer", lambda tx: tx.value_and_grad(transformer_loss(tx)), partial(transformer_inputs, layers=12)
)


@cache
def _digits_of_any_size(library: str) -> tuple[Callable[..., Any], Iterator[int]]:
    """The compiled step of a library, which has run once, and batch sizes that it has not seen."""
    loaded = Library.load(library)
    step = _DIGITS.function(loaded)
    loaded.tx.block_until_ready(step(*_digits_arguments(loaded, 64)))
    return step, itertools.count(65)


def _new_batch_size(library: Library) -> float:
    step, sizes = _digits_of_any_size(library.name)
    arguments = _digits_arguments(library, next(sizes))
    start = time.perf_counter()
    library.tx.block_until_ready(step(*arguments))
    return time.perf_counter() - start


def _digits_arguments(library: Library, size: int) -> tuple[Any, ...]:
    return library.arrays(digits_inputs(np.random.default_rng(0), size))


# Whole processes.

_IMPORT = """
import sys, time
start = time.perf_counter()
__import__(sys.argv[1])
print(time.perf_counter() - start)
"""

_FIRST_STEP = """
import sys, time
import numpy as np
from benchmarks.groups.training import digits_inputs, digits_step
from benchmarks.libraries import Library
start = time.perf_counter()
library = Library.load(sys.argv[1])
arguments = library.arrays(digits_inputs(np.random.default_rng(0)))
library.tx.block_until_ready(library.tx.jit(digits_step(library.tx))(*arguments))
print(time.perf_counter() - start)
"""


def _in_process(program: str, library: Library, cache: Path | None = None) -> float:
    """Run a program that prints seconds; with a cache directory, both libraries keep compiled code there. Python has
    compiled their modules before, as it does for installed packages."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if cache is not None:
        environment |= {
            "TINYXLA_CACHE_DIR": str(cache),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    command = [sys.executable, "-c", program, library.name]
    run = partial(subprocess.run, command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    if (program, library.name) not in _ran:
        run()
        _ran.add((program, library.name))
    return float(run().stdout)


_ran: set[tuple[str, str]] = set()


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


WORKLOADS: tuple[Workload | Calls | Once, ...] = (
    Calls("dispatch: x + 1", _add_one, wait_each=False),
    Calls("dispatch: 10 arrays", _ten_arrays, wait_each=False),
    Calls("dispatch: 100 leaves", _hundred_leaves, wait_each=False),
    Calls("dispatch: 50 layers, one result", _fifty_layers, wait_each=False),
    Calls("eager: a + a, 1e3", _eager(lambda xp, a: a + a, 1000), _ALL, wait_each=False),
    Calls("eager: a[1:], 1e3", _eager(lambda xp, a: a[1:], 1000), _ALL, wait_each=False),
    Calls("eager: sin(a), 1e3", _eager(lambda xp, a: xp.sin(a), 1000), _ALL, wait_each=False),
    Calls("eager: sum(a, 1), 30 x 30", _eager(lambda xp, a: xp.sum(a, 1), 30, 30), _ALL, wait_each=False),
    Calls("eager: a @ a, 32 x 32", _eager(lambda xp, a: a @ a, 32, 32), _ALL, wait_each=False),
    Calls("eager: zeros, 3 x 3", _eager(lambda xp, a: xp.zeros((3, 3)), 1), _ALL, wait_each=False),
    Once("first call: chain of 10 operations", first_call_of(_CHAIN)),
    Once("digits step: compile", first_call_of(_DIGITS)),
    Once("digits step: new batch size", _new_batch_size),
    Once("gradient of a transformer of 12 layers: compile", first_call_of(_TRANSFORMER)),
    Once("import", _import, ("tinyxla", "jax", "numpy")),
    Once("import and first digits step, no cache", _first_step_cold),
    Once("import and first digits step, cache on disk", _first_step_warm),
)
