"""Rows that take long to work on: the next one is asked for meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.tracing.config import setting

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "log-sum-exp": (lambda x: tx.scipy.special.logsumexp(x, 1), ((9, 1024),)),
    "a rest": (lambda x: tx.nn.softmax(x), ((7, 777),)),
    "three dimensions": (lambda x: tx.nn.log_softmax(x, (1, 2)), ((5, 3, 300),)),
    "every second row": (lambda x: tx.nn.softmax(x[1::2]), ((12, 600),)),
    "a gradient": (lambda x, y: tx.vjp(tx.nn.softmax, x)[1](y)[0], ((8, 513), (8, 513))),
    "a maximum": (lambda x: x.max(1), ((9, 768),)),
    "a maximum and a rest": (lambda x: x.max(1), ((9, 777),)),
    "a sum and a rest": (lambda x: x.sum(1), ((9, 1001),)),
    "a sum of everything": (lambda x: x.sum(), ((1 << 16,),)),
    "a place": (lambda x: x.argmax(1), ((9, 2048),)),
    "a place in groups and a rest": (lambda x: x[:, 1:].argmin(1), ((9, 2500),)),
    "a variance": (lambda x: x.var(1), ((9, 1024),)),
    "past the caches": (lambda x: tx.nn.gelu(x - x.max(1, keepdims=True), approximate=False), ((9, 1030),)),
    "two rows": (lambda x, y: jnp.exp(x - (x * y).max(1, keepdims=True)).sum(1), ((6, 800), (6, 800))),
}


def _compiled(function: Callable[..., Any], arguments: list[Any]) -> tuple[Any, bool]:
    program = tx.jit(function).lower(*arguments).compile()
    return np.asarray(program(*arguments)), any("prefetch_read(" in kernel.source for kernel in program.kernels)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_the_same(name: str, use_target: Callable[[str], None]) -> None:
    function, shapes = PROGRAMS[name]
    random = np.random.default_rng(0)
    arguments = [jnp.asarray(random.standard_normal(shape, np.float32)) for shape in shapes]
    expected, asks = _compiled(function, arguments)
    assert not asks
    tx.clear_caches()
    use_target("last_level_bytes=512")
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
        pytest.param(lambda x: x.max(1), (9, 500), id="little work on short rows"),
        pytest.param(lambda x: tx.nn.softmax(x), (9, 400), id="short rows"),
        pytest.param(lambda x: x.argmax(1), (9, 1000), id="a place in one group"),
        pytest.param(lambda x: tx.nn.softmax(x), (2, 40_001), id="rows that fill a cache"),
        pytest.param(lambda x: tx.nn.softmax(x[0] + jnp.zeros((9, 1))), (2, 1024), id="one row for all"),
    ],
)
def test_what_gains_nothing(
    function: Callable[..., Any], shape: tuple[int, ...], use_target: Callable[[str], None]
) -> None:
    use_target("last_level_bytes=512")
    with setting("disabled_passes", ("nontemporal-stores",)):  # which prefetches, too
        assert not _compiled(function, [jnp.ones(shape, np.float32)])[1]
    tx.clear_caches()


EARLY: dict[str, Callable[..., Any]] = {
    "log-sum-exp": lambda x: tx.nn.logsumexp(x, 1),
    "softmax": lambda x: tx.nn.softmax(x, 1),
    "masked": lambda x: tx.nn.softmax(x, 1, where=x > -1),
    "both ends": lambda x: jnp.exp((x - x.min(1, keepdims=True)) / (x.max(1, keepdims=True) + 9)),
    "of what is computed": lambda x: jnp.exp(x - jnp.abs(2 * x + 1).max(1, keepdims=True)).sum(1),
    "with a number of the row": lambda x: jnp.exp((x - x[:, :1]).max(1, keepdims=True) - x).sum(1),
    "integers": lambda x: jnp.exp(-(jnp.floor(jnp.clip(x, -9, 9)).astype("int32").max(1, keepdims=True) + x)),
    "truth": lambda x: jnp.where((x > 2.5).any(1, keepdims=True), jnp.sin(x), jnp.exp(x)),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("last_cache", [1 << 9, 1 << 30])
@pytest.mark.parametrize("name", EARLY)
def test_extrema_of_the_next_row(name: str, last_cache: int, use_target: Callable[[str], None]) -> None:
    """They are found while a row is worked on: what is special in a row stays there."""
    x = np.random.default_rng(1).standard_normal((200, 520), np.float32)
    x[1, 7], x[3, 519], x[5, 0], x[199, 3] = np.nan, np.inf, -np.inf, np.nan
    x[8], x[9], x[10] = -np.inf, np.inf, 0
    expected, _ = _compiled(EARLY[name], [jnp.asarray(x)])
    tx.clear_caches()
    use_target(f"l2_bytes={1 << 17},last_level_bytes={last_cache}")
    program = tx.jit(EARLY[name]).lower(x).compile()
    assert any("_next_row" in kernel.source for kernel in program.kernels)
    found = np.asarray(program(x))
    with tx.num_threads(1):
        alone = np.asarray(program(x))
    tx.clear_caches()
    np.testing.assert_allclose(found, expected, rtol=3e-6)
    assert found.tobytes() == alone.tobytes()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: jnp.exp(x - x.mean(1, keepdims=True)), id="a sum, whose order counts"),
        pytest.param(
            lambda x: jnp.exp(jnp.abs(x - x.mean(1, keepdims=True)).max(1, keepdims=True) - x), id="after one"
        ),
    ],
)
def test_what_waits_for_its_row(function: Callable[..., Any], use_target: Callable[[str], None]) -> None:
    use_target(f"l2_bytes={1 << 18}")
    program = tx.jit(function).lower(np.ones((200, 1024), np.float32)).compile()
    assert not any("_next_row" in kernel.source for kernel in program.kernels)
    tx.clear_caches()


def test_places_that_are_drawn_at_random() -> None:
    def resampled(key: Any, x: Any) -> Any:
        return x[tx.random.randint(key, (201, 999), 0, 999)].mean(1)

    key, x = tx.random.PRNGKey(3), jnp.arange(999, dtype=np.float32)
    found = tx.jit(resampled)(key, x)  # a generator's words are made of each other: there are 2^20 ways through them
    np.testing.assert_allclose(found, np.asarray(resampled(key, x)), rtol=1e-6)
