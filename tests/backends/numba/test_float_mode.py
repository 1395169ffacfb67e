"""Compiled code takes subnormal numbers for zeros; all other code does not."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.backends.numba.runtime import denormals

pytestmark = pytest.mark.platform

FLUSHES = pytest.mark.skipif("i64 0" in denormals.source(), reason="This processor is not asked to.")
HALF = np.float32(0.5)
TINY = np.finfo(np.float32).smallest_normal
SUBNORMAL = HALF * TINY


@FLUSHES
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_and_operands_are_zeros(dtype: str, threads: int) -> None:
    with tx.enable_x64(True), tx.num_threads(threads):
        tiny = np.finfo(dtype).smallest_normal
        x = jnp.full(200_000, tiny)
        assert not np.any(tx.jit(lambda x: x * 0.75)(x))
        assert not np.any(tx.jit(lambda x: x + x)(jnp.full(200_000, tiny / 2)))
        assert np.all(np.asarray(tx.jit(lambda x: x * 1.5)(x)) == 1.5 * tiny)


@FLUSHES
def test_signs_of_zeros_stay() -> None:
    assert np.signbit(tx.jit(lambda x: x * HALF)(jnp.float32(-TINY)))


def test_what_follows_a_call_runs_as_usual() -> None:
    tx.jit(lambda x: x * HALF)(jnp.float32(TINY))
    assert HALF * TINY == SUBNORMAL != 0


def test_so_does_what_is_called_back() -> None:
    shape = tx.ShapeDtypeStruct((), np.float32)

    @tx.jit
    def program(x: tx.Array) -> tx.Array:
        y = tx.pure_callback(lambda x: np.float32(np.asarray(x) * HALF * 2**20), shape, x)
        return y * HALF

    assert program(jnp.float32(TINY)) == np.float32(SUBNORMAL * HALF * 2**20)


@FLUSHES
def test_after_a_callback_it_is_as_before() -> None:
    shape = tx.ShapeDtypeStruct((), np.float32)
    program = tx.jit(lambda x: tx.pure_callback(np.asarray, shape, x) * HALF)
    assert program(jnp.float32(TINY)) == 0


def test_a_failing_callback_leaves_the_mode_as_it_was() -> None:
    shape = tx.ShapeDtypeStruct((), np.float32)

    def fail(x: object) -> np.float32:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        tx.jit(lambda x: tx.pure_callback(fail, shape, x))(jnp.float32(TINY))
    assert HALF * TINY == SUBNORMAL != 0


def test_threads_of_the_user_keep_theirs() -> None:
    found: list[np.float32] = []

    def work() -> None:
        tx.jit(lambda x: x * HALF)(jnp.float32(TINY))
        found.append(HALF * TINY)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [SUBNORMAL]
