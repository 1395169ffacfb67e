"""Many numbers drawn outside of compiled functions come from a compiled program: the same ones as from JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from tinyxla import random
from tinyxla.errors import ShapeError
from tinyxla.random.programs import MANY

N = 5000

DRAWN: dict[str, Callable[[Any, Any], Any]] = {
    "bits": lambda r, k: r.bits(k, (N,)),
    "uniform": lambda r, k: r.uniform(k, (2, N), minval=-1.0, maxval=3.0),
    "normal": lambda r, k: r.normal(k, (N,)),
    "randint": lambda r, k: r.randint(k, (N,), 0, 17),
    "bernoulli": lambda r, k: r.bernoulli(k, 0.3, (N,)),
    "exponential": lambda r, k: r.exponential(k, shape=(N,)),
    "permutation": lambda r, k: r.permutation(k, N),
    "permuted": lambda r, k: r.permutation(k, np.arange(N, dtype=np.float32)),
    "choice": lambda r, k: r.choice(k, N, (100,)),
    "categorical": lambda r, k: r.categorical(k, np.linspace(0, 1, N, dtype=np.float32), shape=(3,)),
    "gamma": lambda r, k: r.gamma(k, 2.5, (200,)),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_numbers_are_those_of_jax(name: str) -> None:
    draw = DRAWN[name]
    ours, theirs = np.asarray(draw(random, random.PRNGKey(7))), np.asarray(draw(jax.random, jax.random.PRNGKey(7)))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_call_gives_the_same_numbers_whenever_it_is_made() -> None:
    for count in (10, MANY - 1, MANY):
        first, second = (random.normal(random.PRNGKey(1), (count,)).numpy() for _ in range(2))
        assert first.tobytes() == second.tobytes()


def test_sizes_may_be_lists_or_a_number() -> None:
    key = random.PRNGKey(0)
    assert random.uniform(key, [2, N]).shape == (2, N)
    np.testing.assert_array_equal(random.uniform(key, [2, N]), random.uniform(key, (2, N)))
    assert random.uniform(key, N).shape == (N,)


def test_errors_are_those_of_a_few_numbers() -> None:
    key = random.PRNGKey(0)
    with pytest.raises(ShapeError):
        random.uniform(key, (N, -1))
    with pytest.raises(ShapeError, match="without replacement"):
        random.choice(key, N, (2 * N,), replace=False)
    with pytest.raises(TypeError):
        random.normal(key, (N,), nothing=1)
