"""`progress`: loops give what they give without a bar, and the bar is told of chunks of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import ArgumentError
from tinyxla.lax.loops import progress_bar


@pytest.fixture(autouse=True)
def _every_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "_INTERVAL", 0.0)


def states(capsys: pytest.CaptureFixture[str]) -> list[int]:
    """How many steps were done in each state of bars."""
    return [int(number) for number in re.findall(r"\| (\d+)/", capsys.readouterr().err)]


@pytest.mark.parametrize("count", [1, 7, 100, 101, 250])
@pytest.mark.parametrize("jit", [tx.jit, lambda f: f])
def test_fori_loop(count: int, jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    def body(i: Any, x: Any) -> Any:
        return x * 3 + i

    found = jit(lambda x: tx.progress(lax.fori_loop)(5, 5 + count, body, x))(jnp.int32(1))
    assert found == lax.fori_loop(5, 5 + count, body, jnp.int32(1))
    shown = states(capsys)
    assert shown[0] == 0
    assert shown[-1] == count
    assert sorted(shown) == shown
    assert len(shown) <= 102


def test_fori_loop_whose_length_is_known_when_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    f = tx.jit(lambda n, x: tx.progress(lax.fori_loop)(2, n, lambda i, x: x + i, x))
    assert f(252, 1) == 1 + sum(range(2, 252))
    assert states(capsys) == [*range(0, 250, 3), 250]
    assert f(2, 1) == 1
    assert states(capsys) == []


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 100, 250])
def test_scan(count: int, reverse: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def f(carry: Any, x: Any) -> Any:
        return carry * 3 + x["a"], (carry, x["b"])

    xs = {"a": jnp.arange(count), "b": np.ones((count, 2), np.float32)}
    with_bar = tx.jit(lambda init, xs: tx.progress(lax.scan)(f, init, xs, reverse=reverse))
    found, expected = with_bar(jnp.int32(1), xs), lax.scan(f, jnp.int32(1), xs, reverse=reverse)
    for x, y in zip(tx.tree.leaves(found), tx.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    shown = states(capsys)
    assert (shown[0], shown[-1]) == (0, count)
    assert sorted(shown) == shown


def test_scan_of_a_length_and_over_keys() -> None:
    keys = tx.random.split(tx.random.key(0), 150)
    f = lambda carry, key: (carry + 1, tx.random.normal(key))  # noqa: E731
    np.testing.assert_array_equal(tx.progress(lax.scan)(f, 0, keys)[1], lax.scan(f, 0, keys)[1])
    assert tx.progress(lax.scan)(lambda c, _: (c + 1, None), 0, length=150) == (150, None)


def test_scan_without_steps_or_with_wrong_arrays_is_as_without_a_bar() -> None:
    step = lambda c, x: (c + x, x)  # noqa: E731
    assert tx.progress(lax.scan)(step, 1.0, jnp.zeros(0))[1].shape == (0,)
    with pytest.raises(TypeError, match=r"lax\.scan"):
        tx.progress(lax.scan)(step, 1.0, (jnp.zeros(2), jnp.zeros(3)))


def test_there_is_one_bar_under_vmap_and_in_derivatives(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        return tx.progress(lax.scan)(lambda c, _: (c * x, None), 1.0, length=5)[0]

    np.testing.assert_allclose(tx.vmap(f)(jnp.array([1.0, 2.0])), [1, 32])
    assert states(capsys) == [*range(5), 5]
    assert tx.jit(tx.grad(f))(2.0) == 80
    assert states(capsys) == [*range(5), 5]
    np.testing.assert_allclose(tx.jit(tx.vmap(tx.grad(f)))(jnp.array([1.0, 2.0])), [5, 80])
    assert states(capsys) == [*range(5), 5]


def test_states_come_at_intervals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress_bar, "_INTERVAL", 3600.0)
    tx.progress(lax.fori_loop)(0, 50, lambda i, x: x + i, 0)
    assert states(capsys) == [0, 50]


@pytest.mark.parametrize(
    ("done", "seconds", "text"),
    [
        (0, 0.0, "fit:   0%|          | 0/100 [00:00<?, ?it/s]"),
        (45, 1.5, "fit:  45%|████▌     | 45/100 [00:01<00:01, 30.00it/s]"),
        (10, 4000.0, "fit:  10%|█         | 10/100 [1:06:40<10:00:00, 400.00s/it]"),
        (100, 60.0, "fit: 100%|██████████| 100/100 [01:00<00:00, 1.67it/s]"),
    ],
)
def test_bar_looks_as_that_of_tqdm(done: int, seconds: float, text: str) -> None:
    assert progress_bar.line("fit", done, 100, seconds) == text


def test_other_loops_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"takes lax\.fori_loop or lax\.scan"):
        tx.progress(lax.while_loop)
    assert repr(tx.progress(lax.scan)) == "<progress of scan>"
