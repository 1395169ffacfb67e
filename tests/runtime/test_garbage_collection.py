"""Python's garbage collector: it runs rarely while functions are traced and compiled, and has nothing to do then."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.runtime import allocation
from tinyxla.runtime.allocation import rarely_collected

_THRESHOLD = (700, 10, 10)


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLD)
    yield
    gc.set_threshold(*before)


def _recurrent(x: Any) -> Any:
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = tx.lax.cond(row.sum() > 0, lambda: jnp.tanh(carry + row), lambda: carry)
        return carry, carry

    return tx.lax.scan(tx.checkpoint(step), jnp.zeros(3), x)[0].sum()


_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "compiled": tx.jit(lambda x: jnp.sort(jnp.sin(x) @ x.T)),
    "gradient of a loop": tx.jit(tx.grad(_recurrent)),
    "vmapped loop": tx.vmap(lambda x: tx.lax.while_loop(lambda c: c.sum() < 9, lambda c: 2 * c + 1, x)),
    "outside of compiled functions": tx.value_and_grad(lambda x: jnp.where(x > 0, x, jnp.exp(x)).mean()),
    "linearized": lambda x: tx.linearize(lambda x: jnp.cumsum(x * x), x)[1](x),
}


@pytest.mark.parametrize("name", _PROGRAMS)
def test_tracing_and_compiling_leave_no_reference_cycles(name: str) -> None:
    """Reference counting alone frees the graphs and plans of a function, and the arrays that they hold."""
    _PROGRAMS[name](jnp.ones((5, 3)))  # modules are imported
    tx.clear_caches()
    gc.collect()
    gc.disable()
    try:
        _PROGRAMS[name](jnp.ones((4, 3)))
        tx.clear_caches()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = {type(x).__name__ for x in gc.garbage if type(x).__module__.startswith("tinyxla")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == set()


def test_what_is_made_is_not_collected_meanwhile_and_counts_as_old() -> None:
    collections = []
    note = lambda phase, info: collections.append(phase)  # noqa: E731
    gc.unfreeze()
    gc.callbacks.append(note)
    try:
        made = rarely_collected(lambda: [[k] for k in range(100_000)])
        assert gc.get_count()[0] < 100
    finally:
        gc.callbacks.remove(note)
    assert collections == []
    assert len(made) == 100_000
    assert gc.get_threshold() == _THRESHOLD
    assert gc.get_freeze_count() == 0


def test_objects_that_were_frozen_stay_so() -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    made = rarely_collected(lambda: [[k] for k in range(1000)])
    assert gc.get_freeze_count() >= count - len(made)  # some may have ended


@pytest.mark.parametrize("threshold", [0, 2_000_000])
def test_thresholds_of_programs_that_collect_rarely_stay(threshold: int) -> None:
    gc.set_threshold(threshold, 10, 10)
    assert rarely_collected(lambda: gc.get_threshold()[0]) == threshold


def test_garbage_that_counts_as_old_is_collected_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_MAX_AGED", 3000)
    monkeypatch.setattr(allocation, "_aged", 0)
    gc.unfreeze()
    gc.collect()
    kept = [rarely_collected(lambda: [[k] for k in range(2000)]) for _ in range(2)]
    assert gc.get_stats()[2]["collections"] > 0
    assert vars(allocation)["_aged"] == 0
    assert len(kept) == 2


def test_garbage_is_rarely_collected_while_a_program_is_traced() -> None:
    seen: list[int] = []
    tx.jit(lambda x: seen.append(gc.get_threshold()[0]))(1.0)
    assert seen == [vars(allocation)["_MAX_YOUNG"]]


def test_collection_thresholds_are_restored_after_errors() -> None:
    with pytest.raises(KeyError):
        tx.jit(lambda x: {}[0])(1.0)
    assert gc.get_threshold() == _THRESHOLD


def test_importing_the_package_collects_no_old_objects() -> None:
    code = "import gc, tinyxla; print(gc.get_stats()[2]['collections'], gc.get_threshold())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == f"0 {gc.get_threshold()}\n"
