"""Compilation takes work in proportion to the program: of four times as many operations every stage makes about four
times as many calls, whatever the program's form."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import cache
from tinyxla.backends.numba.program import executable
from tinyxla.compiler import pipeline
from tinyxla.compiler.fusion import cluster
from tinyxla.loopir.lower import equal_nests

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

MOST = 5.0  # times the calls for four times the operations: 16 if the work were quadratic
FEW = 10_000  # calls more, where four times the operations are more than four times the kernels
SIDE = 16
X, W = np.ones((SIDE, SIDE), np.float32), np.full((SIDE, SIDE), 0.01, np.float32)


# --- counting ---------------------------------------------------------------------------------------------------------


class Calls:
    """Counts calls, of Python functions and of built-in ones, by the stage that makes them."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self._stages = ["trace"]

    def stage(self, name: str, function: Function) -> Function:
        """The function, whose calls count by themselves."""

        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._stages.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                self._stages.pop()

        return counted

    @contextmanager
    def counting(self) -> Generator[None]:
        def note(frame: Any, event: str, argument: Any) -> None:
            if event in ("call", "c_call"):
                self.counts[self._stages[-1]] += 1

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)


STAGES: list[tuple[Any, str]] = [
    (equal_nests, "lower"),
    (equal_nests, "fingerprint"),
    (cluster, "initially_materialized"),
    (cluster, "materialize_recomputed"),
    (cluster, "live_out"),
    (executable, "compile_program"),
    (executable, "assign_parallelism"),
    (executable, "arena_offsets"),
    (executable.CompiledModule, "liveness"),
    (executable.CompiledModule, "_build_schedule"),
]


def calls_of(function: Function, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The calls that it takes to trace and compile a function, by stage."""
    calls = Calls()
    with monkeypatch.context() as patch:
        for where, name in STAGES:
            patch.setattr(where, name, calls.stage(name, getattr(where, name)))
        for name in ("GRAPH", "PLAN", "SCHEDULE", "LOOP_IR"):
            passes = getattr(pipeline, name)
            patch.setattr(pipeline, name, [x._replace(apply=calls.stage(x.name, x.apply)) for x in passes])
        patch.setattr(cache, "write", lambda key, code: None)  # one of many writes looks at all entries
        tx.clear_caches()
        with calls.counting():
            tx.jit(function).lower(*arguments).compile()
    return calls.counts


def excess(program: Callable[[int], tuple[Function, tuple[Any, ...]]], n: int, patch: pytest.MonkeyPatch) -> list[str]:
    """The stages that make too many calls for four times as many operations."""
    calls_of(*program(n // 4), patch)  # what is computed once and kept
    few, many = (calls_of(*program(size), patch) for size in (n, 4 * n))
    total = {"all": (few.total(), many.total())}
    counts = {**{name: (few[name], many[name]) for name in many}, **total}
    return [f"{name}: {a}, then {b}" for name, (a, b) in counts.items() if b > MOST * a + FEW]


# --- programs ---------------------------------------------------------------------------------------------------------


def _layers(x: Any, w: Any, count: int) -> Any:
    for _ in range(count):
        x = jnp.tanh(x @ w)
        x = x - x.mean(-1, keepdims=True)
        x = x[::-1]
    return x


def layers(n: int) -> tuple[Function, tuple[Any, ...]]:
    return lambda x, w: _layers(x, w, n // 5), (X, W)


def gradient_of_layers(n: int) -> tuple[Function, tuple[Any, ...]]:
    return tx.grad(lambda x, w: _layers(x, w, n // 10).sum()), (X, W)


def pointwise(n: int) -> tuple[Function, tuple[Any, ...]]:
    """So many operations that the kernels of both sizes are compiled as straight-line code."""

    def function(x: Any, w: Any) -> Any:
        for k in range(n // 2):
            x = jnp.maximum(x * 1.01 + w, 0.5 * k) - w
        return x

    return function, (X, W)


def independent(n: int) -> tuple[Function, tuple[Any, ...]]:
    """Values that are added up in pairs."""

    def function(x: Any, w: Any) -> Any:
        values = [x * float(k + 1) + w for k in range(n // 3)]
        while len(values) > 1:
            values = [sum(values[k : k + 2]) for k in range(0, len(values), 2)]
        return values[0]

    return function, (X, W)


def fan_out(n: int) -> tuple[Function, tuple[Any, ...]]:
    def function(x: Any, w: Any) -> Any:
        y = jnp.tanh(x @ w)
        return [jnp.sin(y * float(k + 1)).sum(-1) for k in range(n // 3)]

    return function, (X, W)


def constants(n: int) -> tuple[Function, tuple[Any, ...]]:
    values = [np.random.default_rng(k).normal(size=SIDE).astype(np.float32) for k in range(n)]

    def function(x: Any) -> Any:
        for value in values:
            x = x + value
        return x

    return function, (X,)


def reductions(n: int) -> tuple[Function, tuple[Any, ...]]:
    def function(x: Any) -> Any:
        for _ in range(n // 5):
            x = x / (1 + x.max(-1, keepdims=True))
            x = x - x.sum(0, keepdims=True)
        return x

    return function, (X,)


def concatenations(n: int) -> tuple[Function, tuple[Any, ...]]:
    def function(x: Any) -> Any:
        for k in range(n // 3):
            x = jnp.concatenate([x[k % 7 + 1 :], x[: k % 7 + 1]])
        return x

    return function, (X,)


def updates(n: int) -> tuple[Function, tuple[Any, ...]]:
    def function(x: Any, w: Any) -> Any:
        for k in range(n // 2):
            x = x.at[k % SIDE].set(w[k * 7 % SIDE] * 2)
        return x

    return function, (X, W)


def products(n: int) -> tuple[Function, tuple[Any, ...]]:
    sizes = [SIDE, *np.random.default_rng(0).integers(8, 33, n)]
    factors = [np.full(pair, 0.1, np.float32) for pair in pairwise(sizes)]

    def function(x: Any, *factors: Any) -> Any:
        for factor in factors:
            x = x @ factor
        return x

    return function, (X, *factors)


def training_step(n: int) -> tuple[Function, tuple[Any, ...]]:
    """Of many parameters, each of which is updated at the end."""
    weights = [W] * (n // 6)

    def loss(weights: list[Any], x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x**2).sum()

    def step(weights: list[Any], x: Any) -> list[Any]:
        return [w - 0.1 * g for w, g in zip(weights, tx.grad(loss)(weights, x), strict=True)]

    return step, (weights, X)


def two_towers(n: int) -> tuple[Function, tuple[Any, ...]]:
    """Which share their parameters: equal rows of both may join."""

    def tower(x: Any, w: Any, count: int) -> Any:
        for k in range(count):
            x = jnp.tanh(x @ w)
            x = x - x.mean(-1, keepdims=True) * w[k % SIDE]
        return x

    return lambda x, w: tower(x, w, n // 10) - tower(x + 1, w, n // 10), (X, W)


PROGRAMS = {
    f.__name__: f
    for f in [
        layers,
        gradient_of_layers,
        pointwise,
        independent,
        fan_out,
        constants,
        reductions,
        concatenations,
        updates,
        products,
        training_step,
        two_towers,
    ]
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_compilation_of_four_times_the_operations_makes_four_times_the_calls(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not excess(PROGRAMS[name], 120, monkeypatch)
