"""Loops that carry hundreds of scalars: long straight-line code."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as jnp

CARRIED = 120

# Comparisons whose results other arithmetic and several selections share: the flags of the processor must survive.
OPERATIONS: list[tuple[str, Callable[..., Any]]] = [
    ("b", lambda f, i, b: f() > f()),
    ("b", lambda f, i, b: i() <= i()),
    ("b", lambda f, i, b: b() & b()),
    ("b", lambda f, i, b: (f() == f()) | ~jnp.isfinite(f())),
    ("f", lambda f, i, b: jnp.where(b(), f(), f())),
    ("f", lambda f, i, b: jnp.clip(f() * 0.5 + f(), -5, 5)),
    ("f", lambda f, i, b: jnp.where(b() & (f() != f()), f(), i().astype(jnp.float32))),
    ("i", lambda f, i, b: jnp.where(b(), i(), i())),
    ("i", lambda f, i, b: (i() + i()) & 63),
]


def random_loop(seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A loop of seven steps over float, integer and boolean scalars, and where it starts."""
    drawn = random.Random(seed)
    kinds = [drawn.choice("fffib") for _ in range(CARRIED)]
    first = {"f": lambda: np.float32(drawn.uniform(-3, 3)), "i": lambda: np.int32(drawn.randrange(-9, 9))}
    start = tuple(first[k]() if k in first else np.bool_(drawn.random() < 0.5) for k in kinds)

    def step(carried: Any) -> Any:
        chosen = random.Random(seed)
        count, state = carried
        values: dict[str, list[Any]] = {"f": [], "i": [count], "b": []}
        for kind, value in zip(kinds, state, strict=True):
            values[kind].append(value)
        pick = [lambda k=k: chosen.choice(values[k]) for k in "fib"]
        for _ in range(CARRIED):
            kind, operation = chosen.choice(OPERATIONS)
            values[kind].append(operation(*pick))
        return count + 1, tuple(chosen.choice(values[k]) for k in kinds)

    return lambda state: lax.while_loop(lambda s: s[0] < 7, step, (jnp.int32(0), state))[1], start


@pytest.mark.parametrize("seed", range(4))
def test_while_loop_with_many_scalars_and_comparisons_gives_what_its_operations_give(seed: int) -> None:
    loop, start = random_loop(seed)
    found = tx.jit(loop)(start)
    with tx.disable_jit():
        expected = loop(start)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(x, float), np.asarray(y, float), rtol=1e-5)
