"""The option `interpret_first`: calls are answered by the interpreter until the compiled program is there."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.api import executables
from tinyxla.backends.tiered import TieredExecutable

tnp = tx.numpy
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def interpreted_first() -> Iterator[None]:
    tx.config.update("interpret_first", True)
    yield
    tx.config.update("interpret_first", False)
    tx.clear_caches()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The compiler waits for this event."""
    may_begin = threading.Event()
    compile_module = executables.compile_module

    def later(module: Any, donated: Any) -> Any:
        assert may_begin.wait(60)
        return compile_module(module, donated=donated)

    monkeypatch.setattr(executables, "compile_module", later)
    yield may_begin
    may_begin.set()


def executable_of(function: Any, *arguments: Any) -> Any:
    return function.lower(*arguments)._program.executable


def test_it_is_an_option() -> None:
    tx.config.update("interpret_first", False)
    assert not isinstance(executable_of(tx.jit(tnp.sin), X), TieredExecutable)
    tx.config.update("interpret_first", True)
    assert isinstance(executable_of(tx.jit(tnp.sin), X), TieredExecutable)


def test_calls_do_not_wait_for_the_compiler(compiler: threading.Event) -> None:
    @tx.jit
    def function(x: Any) -> Any:
        return {"product": tx.jit(tnp.tanh)(x) @ x.T, "same": x, "sum": tnp.sum(x)}

    for _ in range(2):
        found = function(X)
        np.testing.assert_allclose(np.asarray(found["product"]), np.tanh(X) @ X.T, 1e-5)
        np.testing.assert_array_equal(np.asarray(found["same"]), X)
    executable = executable_of(function, X)
    assert executable._compiled is None
    compiler.set()
    assert len(executable.kernels) > 0
    np.testing.assert_allclose(np.asarray(function(X)["product"]), np.tanh(X) @ X.T, 1e-5)
    assert executable._compiled is not None


def test_a_call_that_the_compiler_overtakes_starts_again(compiler: threading.Event) -> None:
    """The callback, a pure one, is in both runs."""
    calls: list[int] = []

    def host(x: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            compiler.set()
            executable._task.wait()
        return x + 1

    function = tx.jit(lambda x: tnp.sin(tx.pure_callback(host, tx.ShapeDtypeStruct(X.shape, X.dtype), x)))
    executable = executable_of(function, X)
    np.testing.assert_allclose(np.asarray(function(X)), np.sin(X + 1), 1e-5)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tx.lax.fori_loop(0, 3, lambda i, x: x + i, x),
        lambda x: tx.lax.cond(x[0, 0] > 0, lambda x: x, lambda x: tx.lax.fori_loop(0, 3, lambda i, x: x + i, x), x),
        tx.vmap(lambda x: tx.lax.while_loop(lambda x: x[0] < 5, lambda x: x + 1, x)),
    ],
    ids=["loop", "loop in a branch", "lanes"],
)
def test_loops_wait_for_the_compiler(function: Callable[[Any], Any], compiler: threading.Event) -> None:
    threading.Timer(0.1, compiler.set).start()
    compiled = tx.jit(function)
    with tx.disable_jit():
        expected = np.asarray(function(X))
    np.testing.assert_allclose(np.asarray(compiled(X)), expected, 1e-6)
    executable = executable_of(compiled, X)
    assert executable._interpreted is None
    assert executable._compiled is not None


def test_side_effects_happen_once(compiler: threading.Event) -> None:
    seen: list[float] = []

    @tx.jit
    def function(x: Any) -> Any:
        tx.debug.callback(lambda x: seen.append(float(x)), x[0, 0])
        return x * 2

    threading.Timer(0.1, compiler.set).start()
    function(X)
    tx.effects_barrier()
    assert seen == [-1.0]


def test_errors_of_the_compiler_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: Any, donated: Any) -> Any:
        raise MemoryError("no room for the code")

    monkeypatch.setattr(executables, "compile_module", fail)
    function = tx.jit(lambda x: x + 1)
    executable_of(function, X)._task.wait()
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room for the code"):
            function(X)


def test_transformations_and_staged_programs() -> None:
    def loss(x: Any) -> Any:
        return tnp.sum(tx.vmap(lambda row: tnp.exp(row) * 2)(x))

    gradient = tx.jit(tx.grad(loss))
    expected = 2 * np.exp(X)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(gradient(X)), expected, 1e-5)
    staged = gradient.lower(X).compile()
    np.testing.assert_allclose(np.asarray(staged(X)), expected, 1e-5)
    assert "exponential" in staged.as_text()
    assert staged.memory_analysis().argument_size_in_bytes == X.nbytes


def test_options_of_a_block_hold_for_its_compiler() -> None:
    x = np.linspace(0, 1, 5)
    with tx.enable_x64(True):
        function = tx.jit(lambda x: x * 2)
        assert function(x).dtype == np.float64
        executable_of(function, x).compiled()
        np.testing.assert_array_equal(np.asarray(function(x)), x * 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, if another test has loaded it
def test_the_child_of_a_fork_compiles_itself(compiler: threading.Event) -> None:
    function = tx.jit(lambda x: tnp.cos(x) + 1)
    executable = executable_of(function, X)
    child = os.fork()
    if child == 0:
        compiler.set()
        good = np.allclose(np.asarray(function(X)), np.cos(X) + 1, 1e-5) and executable.compiled() is not None
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_many_threads_share_one_compilation(compiler: threading.Event) -> None:
    function = tx.jit(lambda x: tnp.sin(x) * 3)
    results: list[Any] = []
    workers = [threading.Thread(target=lambda: results.extend(function(X) for _ in range(20))) for _ in range(4)]
    for worker in workers:
        worker.start()
    time.sleep(0.01)
    compiler.set()
    for worker in workers:
        worker.join()
    assert len(results) == 80
    for found in results:
        np.testing.assert_allclose(np.asarray(found), np.sin(X) * 3, 1e-5)


def test_donated_arguments(compiler: threading.Event) -> None:
    function = tx.jit(lambda x: x * 2, donate_argnums=0)
    for _ in range(2):
        x = tnp.asarray(X)
        np.testing.assert_array_equal(np.asarray(function(x)), X * 2)
        assert x.is_deleted()
        compiler.set()
        executable_of(function, X).compiled()
