"""Eager functions that are recorded and replayed: the same results to the bit, call after call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import replays
from tinyxla.errors import TinyxlaError

_TYPES = ("float32", "int32", "bfloat16", "complex64", "bool")
_CALLS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: jnp.mean(x, axis=0),
    "mean of all": lambda x: x.mean(),
    "var": lambda x: jnp.var(x, 1, ddof=1),
    "std": lambda x: x.std(keepdims=True),
    "average": lambda x: jnp.average(x, axis=1),
    "allclose": lambda x: jnp.allclose(x, x),
    "isclose": lambda x: jnp.isclose(x, 0.5),
    "clip": lambda x: jnp.clip(x, 0, 2),
    "linspace": lambda x: jnp.linspace(x[0], 3.0, 4),
    "linspace of numbers": lambda x: jnp.linspace(-0.0, 1.0, 5, retstep=True),
    "tril": lambda x: jnp.tril(x, 1),
    "median": lambda x: jnp.median(x, axis=0),
    "quantile": lambda x: jnp.quantile(x, 0.3),
    "sort": lambda x: jnp.sort(x, 0),
    "argsort": jnp.argsort,
    "norm": lambda x: jnp.linalg.norm(x, axis=1),
    "inv": lambda x: jnp.linalg.inv(x[:3, :3] + 4 * jnp.eye(3)),
    "solve": lambda x: jnp.linalg.solve(x[:3, :3] + 4 * jnp.eye(3), x[:3, 0]),
    "trace": jnp.trace,
    "diff": lambda x: jnp.diff(x, axis=0),
    "roll": lambda x: jnp.roll(x, (1, 2), (0, 1)),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "stack": lambda x: jnp.stack([x, x + 1], axis=1),
    "split": lambda x: jnp.split(x, 2),
    "cov": jnp.cov,
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "dot": lambda x: jnp.dot(x[0], x[1]),
    "kron": lambda x: jnp.kron(x, x[:2]),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumprod": jnp.cumprod,
    "softmax": lambda x: tx.nn.softmax(x, axis=0),
    "logsumexp": lambda x: tx.nn.logsumexp(x, axis=-1),
    "one_hot": lambda x: tx.nn.one_hot(x[0], 4),
    "gelu": tx.nn.gelu,
}


def _bits(result: Any) -> list[Any]:
    return [(x.dtype, x.shape, x.weak_type, np.asarray(x).tobytes()) for x in tx.tree_util.tree_leaves(result)]


@pytest.mark.parametrize("name", _CALLS)
@pytest.mark.parametrize("dtype", _TYPES)
def test_replays_equal_the_first_call(name: str, dtype: str, generator: np.random.Generator) -> None:
    replays.forget_recordings()
    call = _CALLS[name]
    for _ in range(2):  # other elements, the same recordings
        x = jnp.asarray(generator.integers(-3, 4, (4, 5))).astype(dtype)
        calls = [call] * 4
        try:
            expected = _bits(call(x))
        except TinyxlaError as error:
            for again in calls:
                with pytest.raises(type(error)):
                    again(x)
            continue
        for again in calls:
            assert _bits(again(x)) == expected


def _draws(key: Any) -> list[Any]:
    random = tx.random
    return [
        random.normal(key, (100,)),
        random.normal(key, (3,), "complex64"),
        random.uniform(key, (7,), minval=-1.0, maxval=2.5),
        random.randint(key, (50,), 0, 17),
        random.bernoulli(key, 0.3, (9,)),
        random.permutation(key, 33),
        random.choice(key, 20, (5,), replace=False),
        random.gamma(key, 2.0, (5,)),
        random.split(key, 3),
        random.bits(key, (3,)),
    ]


def test_random_numbers_are_the_same_every_time() -> None:
    key = tx.random.PRNGKey(5)
    first = _draws(key)
    for _ in range(40):  # beyond the number of calls that are replayed before they are compiled
        assert _bits(_draws(key)) == _bits(first)
    with tx.disable_jit():
        for found, expected in zip(_draws(key), first, strict=True):
            np.testing.assert_allclose(found, expected, 1e-5)


def test_named_arguments_come_in_any_order() -> None:
    x, y = jnp.arange(2.0), jnp.arange(2.0) + 5
    for _ in range(3):
        np.testing.assert_array_equal(jnp.outer(b=y, a=x), np.outer(x, y))


def test_plain_arguments_are_told_apart() -> None:
    for _ in range(3):
        assert jnp.linspace(0, 1, 3).dtype == jnp.linspace(0.0, 1, 3).dtype
        assert jnp.clip(jnp.arange(3), 0, 1).dtype == np.int32
        assert jnp.clip(jnp.arange(3), 0.0, 1.0).dtype == np.float32
        assert np.signbit(np.asarray(jnp.linspace(-0.0, -0.0, 1)))[0]
        assert not np.signbit(np.asarray(jnp.linspace(0.0, 0.0, 1)))[0]


def test_options_that_decide_types_are_obeyed() -> None:
    assert [jnp.linspace(0.0, 1.0, 3).dtype for _ in range(3)] == [np.float32] * 3
    with tx.enable_x64():
        assert [jnp.linspace(0.0, 1.0, 3).dtype for _ in range(3)] == [np.float64] * 3
    assert jnp.linspace(0.0, 1.0, 3).dtype == np.float32


def test_transformations_see_through_replays() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    for _ in range(3):
        jnp.var(x, 1)
        gradient = tx.grad(lambda y: jnp.var(y, 1).sum())(x)
        np.testing.assert_allclose(gradient, 2 / 3 * (x - x.mean(1, keepdims=True)), rtol=1e-6)
        np.testing.assert_allclose(tx.vmap(jnp.var)(x), np.var(np.asarray(x), 1), rtol=1e-6)
        np.testing.assert_allclose(tx.jit(jnp.var)(x), np.var(np.asarray(x)), rtol=1e-6)


def test_results_may_be_donated() -> None:
    add = tx.jit(lambda x: x + 1, donate_argnums=0)
    expected = np.linspace(0, 1, 5, dtype=np.float32)
    for _ in range(4):
        found = jnp.linspace(0.0, 1.0, 5)
        np.testing.assert_array_equal(found, expected)
        add(found)
