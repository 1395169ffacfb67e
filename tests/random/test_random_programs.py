"""Numbers drawn outside of compiled functions: the same bits by every way, and those of JAX where there are many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import random
from tinyxla.api.eager_replay import MAX_REPLAYED_DRAWS, MIN_COMPILED_DRAWS
from tinyxla.errors import ShapeError

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


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", DRAWN)
def test_the_numbers_are_those_of_jax(name: str) -> None:
    draw = DRAWN[name]
    ours, theirs = np.asarray(draw(random, random.PRNGKey(7))), np.asarray(draw(jax.random, jax.random.PRNGKey(7)))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _with(*parameters: float) -> Callable[..., Any]:
    return lambda draw, key: draw(key, *(np.float32(p) for p in parameters), (3, 7))


EVERY: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        "bits uniform normal rademacher exponential gumbel laplace logistic cauchy maxwell".split(), _with()
    ),
    **dict.fromkeys("gamma loggamma poisson".split(), _with(3.0)),
    **dict.fromkeys("beta f binomial".split(), _with(3.0, 0.5)),
    **dict.fromkeys("lognormal rayleigh pareto geometric bernoulli wald".split(), _with(0.3)),
    **dict.fromkeys("weibull_min double_sided_maxwell truncated_normal".split(), _with(0.5, 2.0)),
    "triangular": _with(0.0, 1.0, 3.0),
    "generalized_normal": _with(3.0),
    "randint": lambda draw, key: draw(key, (30,), 0, 17),
    "categorical": lambda draw, key: draw(key, np.linspace(0, 1, 7, dtype=np.float32), shape=(9,)),
    "permutation": lambda draw, key: draw(key, 33),
    "choice": lambda draw, key: draw(key, 50, (9,), False),
    "split": lambda draw, key: draw(key, 5),
    "fold_in": lambda draw, key: draw(key, 3),
    "multinomial": lambda draw, key: draw(key, 20, np.array([0.25, 0.5, 0.25], np.float32)),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", EVERY)
def test_the_bits_are_the_same_by_every_way(name: str) -> None:
    def draw(key: Any) -> Any:
        return EVERY[name](getattr(random, name), key)

    keys = random.split(random.PRNGKey(3), 2)
    first = [draw(key).numpy() for key in keys]
    for _ in range(MAX_REPLAYED_DRAWS):
        draw(keys[0])
    compiled = tx.jit(draw)
    for way in (draw(keys[1]), compiled(keys[1]), tx.vmap(draw)(keys)[1]):
        assert way.numpy().tobytes() == first[1].tobytes()


def test_what_draws_with_sums_gives_the_same_every_time() -> None:
    """Sums are made in another order by compiled code."""
    p = np.random.default_rng(0).dirichlet(np.ones(1000)).astype(np.float32)
    first = random.choice(random.PRNGKey(1), 1000, (50,), p=p).tolist()
    for _ in range(MAX_REPLAYED_DRAWS + 1):
        assert random.choice(random.PRNGKey(1), 1000, (50,), p=p).tolist() == first


def test_few_and_many_numbers_begin_alike() -> None:
    many, few = (
        random.normal(random.PRNGKey(1), (count,)).numpy() for count in (MIN_COMPILED_DRAWS, MIN_COMPILED_DRAWS - 1)
    )
    assert many[:-1].tobytes() == few.tobytes()


def test_numbers_are_no_part_of_a_recording() -> None:
    """So another parameter needs no other program."""
    key = random.PRNGKey(0)
    for rate in (2.0, 3.0, 4.5):
        assert random.gamma(key, rate, (100,)).tolist() == random.gamma(key, np.float32(rate), (100,)).tolist()
    assert (np.asarray(random.randint(key, (50,), 2**30, 2**31)) >= 2**30).all()  # beyond the integers of 32 bits


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
