"""Workloads: large programs. How long it takes from a new function of so many operations to its first result: it has to
grow with the number of operations, not faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.first_calls import first_call_of
from benchmarks.groups.latency import transformer_inputs, transformer_loss
from benchmarks.workload import Once, Workload

SIDE = 64
OWN = ("tinyxla",)  # where JAX takes minutes


def _layers(tx: Any, count: int) -> Callable[..., Any]:
    """Layers of five operations: a product, a non-linearity, rows without their means, in reverse order."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(count // 5):
            x = tx.numpy.tanh(x @ w)
            x = x - x.mean(-1, keepdims=True)
            x = x[::-1]
        return x

    return function


def _gradient(tx: Any, count: int) -> Callable[..., Any]:
    function = _layers(tx, count)
    return tx.grad(lambda x, w: function(x, w).sum())


def _matrices(generator: np.random.Generator) -> tuple[Any, ...]:
    x, w = generator.standard_normal((2, SIDE, SIDE), dtype=np.float32)
    return x, w / np.float32(SIDE**0.5)


def _constants(tx: Any, count: int) -> Callable[..., Any]:
    values = np.random.default_rng(0).standard_normal((count, SIDE), dtype=np.float32)

    def function(x: Any, w: Any) -> Any:
        for value in values:
            x = x + value
        return x + w

    return function


def _pairs(tx: Any, count: int) -> Callable[..., Any]:
    """Independent values that are added up in pairs."""

    def function(x: Any, w: Any) -> Any:
        values = [x * float(k + 1) + w for k in range(count // 3)]
        while len(values) > 1:
            values = [sum(values[k : k + 2]) for k in range(0, len(values), 2)]
        return values[0]

    return function


def _first_result(
    name: str,
    make: Callable[[Any, int], Callable[..., Any]],
    count: int,
    libraries: tuple[str, ...] = ("tinyxla", "jax"),
) -> Once:
    workload = Workload(name, lambda tx: make(tx, count), _matrices)
    return Once(f"first result: {name}, {count:,} operations", first_call_of(workload), libraries)


def _transformer(name: str, of: Callable[[Any, Callable[..., Any]], Callable[..., Any]], layers: int) -> Once:
    workload = Workload(
        name, lambda tx: of(tx, transformer_loss(tx)), partial(transformer_inputs, layers=layers, width=32, length=16)
    )
    return Once(f"first result: {name}, {layers} layers", first_call_of(workload))


WORKLOADS = (
    *(_first_result("layers", _layers, count) for count in (250, 1000, 2500)),
    *(_first_result("layers", _layers, count, OWN) for count in (10_000, 20_000)),
    *(_first_result("gradient of layers", _gradient, count) for count in (250, 1000, 2500)),
    *(_first_result("gradient of layers", _gradient, count, OWN) for count in (10_000, 20_000)),
    *(_first_result("constants", _constants, count) for count in (300, 3000)),
    *(_first_result("pairs", _pairs, count) for count in (1000, 3000)),
    _first_result("pairs", _pairs, 10_000, OWN),
    *(_transformer("transformer", lambda tx, loss: loss, layers) for layers in (12, 48)),
    *(_transformer("gradient of a transformer", lambda tx, loss: tx.grad(loss), layers) for layers in (12, 48)),
)
