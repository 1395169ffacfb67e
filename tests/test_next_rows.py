"""Rows that take long to work on: the next one is asked for meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.backends.numba import next_rows, streams

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "log-sum-exp": (lambda x: tx.scipy.special.logsumexp(x, 1), ((9, 1024),)),
    "a rest": (lambda x: tx.nn.softmax(x), ((7, 777),)),
    "three dimensions": (lambda x: tx.nn.log_softmax(x, (1, 2)), ((5, 3, 300),)),
    "every second row": (lambda x: tx.nn.softmax(x[1::2]), ((12, 600),)),
    "a gradient": (lambda x, y: tx.vjp(tx.nn.softmax, x)[1](y)[0], ((8, 513), (8, 513))),
    "a maximum": (lambda x: x.max(1), ((9, 768),)),
    "a variance": (lambda x: x.var(1), ((9, 1024),)),
    "past the caches": (lambda x: tx.nn.gelu(x - x.max(1, keepdims=True), approximate=False), ((9, 1030),)),
    "two rows": (lambda x, y: jnp.exp(x - (x * y).max(1, keepdims=True)).sum(1), ((6, 800), (6, 800))),
}


def _compiled(function: Callable[..., Any], arguments: list[Any]) -> tuple[Any, bool]:
    program = tx.jit(function).lower(*arguments).compile()
    return np.asarray(program(*arguments)), any("call('request'" in kernel.source for kernel in program.kernels)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes = PROGRAMS[name]
    random = np.random.default_rng(0)
    arguments = [jnp.asarray(random.standard_normal(shape, np.float32)) for shape in shapes]
    expected, asks = _compiled(function, arguments)
    assert not asks
    tx.clear_caches()
    monkeypatch.setattr(next_rows, "_LEAST", 0)
    monkeypatch.setattr(streams, "last_cache", lambda: 1 << 9)
    monkeypatch.setattr(next_rows, "last_cache", lambda: 1 << 9)
    found, asks = _compiled(function, arguments)
    assert asks
    with tx.num_threads(1):
        alone, _ = _compiled(function, arguments)
    tx.clear_caches()
    np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-6)
    assert found.tobytes() == alone.tobytes()


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        pytest.param(
            lambda x: (x * tx.lax.optimization_barrier(2 * x)).sum(1), (9, 1024), id="little work on several rows"
        ),
        pytest.param(lambda x: x.max(1), (9, 600), id="little work on uneven rows"),
        pytest.param(lambda x: tx.nn.softmax(x), (9, 400), id="short rows"),
        pytest.param(lambda x: tx.nn.softmax(x), (2, 40_000), id="rows that fill a cache"),
        pytest.param(lambda x: tx.nn.softmax(x[0] + jnp.zeros((9, 1))), (2, 1024), id="one row for all"),
    ],
)
def test_what_gains_nothing(
    function: Callable[..., Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_rows, "_LEAST", 0)
    monkeypatch.setattr(next_rows, "last_cache", lambda: 1 << 9)
    assert not _compiled(function, [jnp.ones(shape, np.float32)])[1]
    tx.clear_caches()
