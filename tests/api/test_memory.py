"""The memory of compiled functions: results stay what they were, whoever holds them and whatever is called meanwhile,
and calls at the same time do not share temporaries."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.backends.numba.runtime.buffer_pool import pool
from tinyxla.errors import ArgumentError

tnp = tx.numpy

SMALL, LARGE = 16, 300 * 300  # elements: memory from NumPy, and from the pool


def values(k: int, size: int) -> np.ndarray[Any, Any]:
    return np.full(size, k, np.float32) + np.arange(size, dtype=np.float32) / size


def several(x: Any) -> Any:
    """Results of three kinds, with temporaries in between."""
    half = x.reshape(2, -1) / 2
    product = half @ half.T
    return x + 1, half, product / (tnp.abs(product).max() + 1)


def expected(x: np.ndarray[Any, Any]) -> Any:
    half = x.reshape(2, -1) / 2
    product = half @ half.T
    return x + 1, half, product / (np.abs(product).max() + 1)


def assert_results(found: Any, x: np.ndarray[Any, Any]) -> None:
    for one, wanted in zip(found, expected(x), strict=True):
        np.testing.assert_allclose(np.asarray(one), wanted, 1e-4)


# --- results outlive later calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_results_of_many_calls_stay(size: int) -> None:
    function = tx.jit(several)
    held = [function(values(k, size)) for k in range(50)]
    for k, results in enumerate(held):
        assert_results(results, values(k, size))


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_results_stay_where_others_are_dropped(size: int) -> None:
    """Every other one is dropped, and its memory used again."""
    function = tx.jit(several)
    held: dict[int, Any] = {}
    for k in range(60):
        held[k] = function(values(k, size))
        if k % 2:
            del held[k]
    for k, results in held.items():
        assert_results(results, values(k, size))


def test_results_of_different_functions_stay() -> None:
    functions: list[Callable[[Any], Any]] = [
        tx.jit(function) for function in (tnp.sin, tnp.exp, lambda x: x * 2, lambda x: x.reshape(300, 300).T)
    ]
    held = [[function(values(k, LARGE)) for function in functions] for k in range(10)]
    for k, results in enumerate(held):
        x = values(k, LARGE)
        for found, wanted in zip(results, (np.sin(x), np.exp(x), x * 2, x.reshape(300, 300).T), strict=True):
            np.testing.assert_allclose(np.asarray(found), wanted, 1e-4, 1e-5)


def test_a_result_as_the_next_argument() -> None:
    """Where input and result take turns in the same places."""
    function = tx.jit(lambda x: tnp.flip(x) + 1)
    x = tnp.asarray(values(0, LARGE))
    history = [x]
    for _ in range(20):
        x = function(x)
        history.append(x)
    for k, one in enumerate(history):
        wanted = values(0, LARGE)
        np.testing.assert_allclose(np.asarray(one), (wanted[::-1] if k % 2 else wanted) + k, 1e-4)


def test_an_argument_returned_and_changed_is_two_arrays() -> None:
    x = tnp.asarray(values(1, LARGE))
    same, more = tx.jit(lambda x: (x, x + 1))(x)
    for k in range(5):
        tx.jit(lambda x, y: x * y)(x, float(k))
    np.testing.assert_array_equal(np.asarray(same), values(1, LARGE))
    np.testing.assert_array_equal(np.asarray(more), values(1, LARGE) + 1)


# --- whoever refers to memory keeps it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        np.asarray,
        lambda x: np.asarray(x)[100:],
        lambda x: np.asarray(x)[::-3],
        lambda x: np.asarray(x).reshape(300, 300).T[5],
        lambda x: np.asarray(x).data,
        lambda x: np.asarray(x).view(np.int32),
    ],
    ids=["array", "slice", "reversed", "row of transpose", "memoryview", "other type"],
)
def test_views_of_results_keep_their_memory(look: Callable[[Any], Any]) -> None:
    function = tx.jit(lambda x: x + 1)
    view = look(function(values(3, LARGE)))
    gc.collect()
    wanted = np.array(look(values(3, LARGE) + 1))
    others = [function(values(k, LARGE)) for k in range(30)]
    np.testing.assert_array_equal(np.asarray(view), wanted)
    assert len(others) == 30


def test_views_of_eager_results_keep_their_memory() -> None:
    function = tx.jit(lambda x: x + 1)
    part = function(values(3, LARGE))[7:50]
    reshaped = function(values(4, LARGE)).reshape(300, 300)
    others = [function(values(k, LARGE)) for k in range(30)]
    np.testing.assert_array_equal(np.asarray(part), (values(3, LARGE) + 1)[7:50])
    np.testing.assert_array_equal(np.asarray(reshaped), (values(4, LARGE) + 1).reshape(300, 300))
    assert len(others) == 30


def test_a_result_that_is_a_constant_stays() -> None:
    function = tx.jit(lambda x: (x + 1, tnp.arange(5000.0)))
    held = [function(values(k, LARGE))[1] for k in range(5)]
    for x in held:
        np.testing.assert_array_equal(np.asarray(x), np.arange(5000, dtype=np.float32))


def test_results_cannot_be_written_to() -> None:
    """An array is a value: NumPy's view of it is read-only."""
    for size in (SMALL, LARGE):
        view = np.asarray(tx.jit(lambda x: x + 1)(values(0, size)))
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 5


def test_dropped_results_are_used_again() -> None:
    """Calls whose results are dropped do not take more and more."""
    function = tx.jit(lambda x: x + 1)
    x = tnp.asarray(values(0, LARGE))
    for _ in range(3):
        function(x)
    places = {np.asarray(function(x)).ctypes.data for _ in range(50)}
    assert len(places) <= 3


def test_temporaries_are_given_back() -> None:
    pool.release()
    function = tx.jit(lambda x: tx.nn.softmax(x @ x.T) @ x)
    x = tnp.asarray(values(0, LARGE).reshape(300, 300))
    result = function(x)
    free = pool.free_bytes()
    assert free >= 4 * LARGE
    for _ in range(10):
        result = function(x)
    assert pool.free_bytes() <= free + 2 * 4 * LARGE
    assert np.isfinite(np.asarray(result)).all()


# --- calls at the same time -------------------------------------------------------------------------------------------


def test_forgetting_gives_memory_back() -> None:
    tx.jit(lambda x: x + 1)(values(1, LARGE))
    tx.clear_caches()
    assert not pool.free_bytes()


# --- how much there is ------------------------------------------------------------------------------------------------


def temporaries(function: Callable[..., Any], *arguments: Any, donated: tuple[int, ...] = ()) -> int:
    """The bytes of temporaries of a program whose values are right."""
    expected = tx.tree_util.tree_leaves(function(*arguments))
    compiled = tx.jit(function, donate_argnums=donated).lower(*arguments).compile()
    found = tx.tree_util.tree_leaves(compiled(*tx.tree_util.tree_map(lambda x: tnp.array(np.array(x)), arguments)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * np.max(np.abs(other)))
    return compiled.memory_analysis().temp_size_in_bytes


def test_rows_are_written_over_rows() -> None:
    """A softmax reads its rows three times, and still needs no other memory."""
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    scores = x.nbytes
    assert temporaries(lambda q, k, v: tx.nn.softmax(q @ k.T) @ v, x[:, :64], x[:, 64:128], x[:, :8]) < 1.5 * scores


def test_rows_of_other_rows_are_not() -> None:
    """What each row reads of the others is needed until the end."""
    x = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    temporaries(lambda x: (y := x @ x) / tnp.sum(y[::-1], 1, keepdims=True) @ x, x)
    temporaries(lambda x: ((y := x @ x) - tnp.max(y.T, 1, keepdims=True)) @ x, x)
    temporaries(lambda x: tnp.cumsum((y := x @ x) - y[:, ::-1], 1) @ x, x)
    temporaries(lambda x: ((y := x @ x)[:, :150] * tnp.sum(y[:, 150:], 1, keepdims=True)) @ x[:150], x)


def test_temporaries_are_in_results_that_are_made_later() -> None:
    """Of three products only the second is elsewhere, and a packed operand."""
    x = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    assert temporaries(lambda x: x @ x @ x @ x, x) < 2.5 * x.nbytes


def test_parameters_are_updated_while_gradients_are_computed() -> None:
    random = np.random.default_rng(0)
    weights = [random.standard_normal((256, 256)).astype(np.float32) / 16 for _ in range(8)]
    x = random.standard_normal((16, 256)).astype(np.float32)

    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = x
            for w in weights:
                y = tnp.tanh(y @ w)
            return tnp.sum(y * y)

        return [w - 0.1 * g for w, g in zip(weights, tx.grad(loss)(weights), strict=True)]

    assert temporaries(step, weights, x, donated=(0,)) < 3 * weights[0].nbytes  # a gradient, a packed operand, the rest


def test_calls_from_four_threads_have_temporaries_of_their_own() -> None:
    @tx.jit
    def function(x: Any) -> Any:
        """Each product and each row of weights is a temporary."""
        y = x
        for _ in range(4):
            y = tx.nn.softmax(y @ x.T / 300) @ x
        return y

    def reference(x: Any) -> Any:
        y = x
        for _ in range(4):
            scores = y @ x.T / 300
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            y = weights / weights.sum(-1, keepdims=True) @ x
        return y

    operands = [np.random.default_rng(k).normal(size=(100, 90)).astype(np.float32) for k in range(4)]
    wanted = [reference(x) for x in operands]
    function(operands[0])
    together = threading.Barrier(4)

    def work(k: int) -> list[Any]:
        together.wait()
        return [function(operands[k]) for _ in range(40)]

    with ThreadPoolExecutor(4) as threads:
        for k, results in enumerate(threads.map(work, range(4))):
            for found in results:
                np.testing.assert_allclose(np.asarray(found), wanted[k], 1e-3, 1e-4)


def test_different_functions_at_the_same_time() -> None:
    functions = [tx.jit(several), tx.jit(lambda x: (tnp.sort(x), x.sum(), tnp.cumsum(x)[-1]))]
    x = values(2, LARGE)
    assert_results(functions[0](x), x)
    functions[1](x)
    together = threading.Barrier(4)

    def work(k: int) -> list[Any]:
        together.wait()
        return [functions[k % 2](values(k, LARGE)) for _ in range(10)]

    with ThreadPoolExecutor(4) as threads:
        for k, results in enumerate(threads.map(work, range(4))):
            for found in results:
                if k % 2:
                    np.testing.assert_array_equal(np.asarray(found[0]), values(k, LARGE))
                    np.testing.assert_allclose(np.asarray(found[1]), values(k, LARGE).sum(), 1e-4)
                else:
                    assert_results(found, values(k, LARGE))


# --- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.reshape(300, 300).T,
        lambda x: np.repeat(x, 2)[::2].reshape(300, 300),
        lambda x: x.reshape(300, 300)[::-1],
        lambda x: np.broadcast_to(x[:300], (300, 300)),
        lambda x: np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(300, 300),
        lambda x: x.astype(">f4").reshape(300, 300),
    ],
    ids=["transposed", "strided", "reversed", "broadcast", "unaligned", "other byte order"],
)
def test_operands_of_any_layout(lay: Callable[[Any], Any]) -> None:
    x = lay(values(1, LARGE))
    np.testing.assert_allclose(np.asarray(tx.jit(lambda x: x * 2 + 1)(x)), x * 2 + 1, 1e-6)


def test_a_compiled_program_refuses_other_shapes() -> None:
    """It would read outside of them."""
    program = tx.jit(lambda x: x + 1).lower(values(0, LARGE)).compile()
    with pytest.raises(ArgumentError, match=r"f32\[90000\].*f32\[16\]"):
        program(values(0, SMALL))


def test_a_traced_function_does_not_keep_its_arguments() -> None:
    x = tnp.ones(1000)
    memory = weakref.ref(x)
    traced = tx.jit(lambda x, n: x * n).trace(x, 2)
    del x
    gc.collect()
    assert memory() is None
    assert traced.lower().compile()(tnp.ones(1000), 2).sum() == 2000
