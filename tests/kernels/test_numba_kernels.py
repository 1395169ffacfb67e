"""Numba functions as operations (`tinyxla.kernel`), and kernels of compiled programs as Numba functions."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, KernelError, MissingPackageError, ShapeError

numba = pytest.importorskip("numba")

X = np.sin(np.arange(12, dtype=np.float32))


def heat_step(x: Any, out: Any, alpha: float = 0.25) -> None:
    out[0], out[-1] = x[0], x[-1]
    for i in range(1, x.shape[0] - 1):
        out[i] = x[i] + alpha * (x[i - 1] - 2 * x[i] + x[i + 1])


@pytest.fixture
def heat() -> Any:
    """A new kernel, without rules."""
    return tx.kernel(numba.njit(heat_step))


def stepped(x: np.ndarray[Any, Any], alpha: float = 0.25) -> np.ndarray[Any, Any]:
    inner = x[1:-1] + alpha * (x[:-2] - 2 * x[1:-1] + x[2:])
    return np.concatenate([x[:1], inner, x[-1:]]).astype(x.dtype)


def spectrum_shapes(x: Any) -> Any:
    return {"sum": tx.ShapeDtypeStruct((), x.dtype), "where": tx.ShapeDtypeStruct((2,), "int32")}


def spectrum(x: Any, total: Any, where: Any) -> None:
    total[()] = x.sum()
    where[0], where[1] = x.argmin(), x.argmax()


@pytest.mark.parametrize("compiled", [False, True])
def test_stencil_gives_what_numpy_gives(heat: Any, compiled: bool) -> None:
    call = tx.jit(lambda x: heat(x)) if compiled else heat
    np.testing.assert_allclose(call(X), stepped(X), rtol=1e-6)
    np.testing.assert_allclose(call(X[:5].astype(np.float64)), stepped(X[:5]), rtol=1e-6)  # other shapes, other code


def test_static_values_are_keywords(heat: Any) -> None:
    np.testing.assert_allclose(
        tx.jit(lambda x: heat(x, alpha=0.5) + heat(x))(X), stepped(X, 0.5) + stepped(X), rtol=1e-5
    )
    with pytest.raises(ArgumentError, match="are static, and must be hashable"):
        heat(X, alpha=[1])


@pytest.mark.parametrize("compiled", [False, True])
def test_static_values_are_told_apart_by_type_and_sign_of_zero(compiled: bool) -> None:
    @tx.kernel
    def first(x: Any, out: Any, values: Any = (0.0,)) -> None:
        out[0] = np.copysign(1.0, values[0])
        out[1] = 7 / values[0] if values[0] else 7 // 2

    for value, expected in ((0.0, (1, 3)), (-0.0, (-1, 3)), (2, (1, 3.5)), (2.0, (1, 3.5))):
        call = partial(first, values=(value,))
        found = (tx.jit(call) if compiled else call)(np.zeros(2))
        np.testing.assert_allclose(found, expected)


def test_rules_are_kept_in_any_order_and_take_static_values() -> None:
    """A batching rule that is set before a derivative holds, and both are given the call's static values."""
    for order in (("vmap", "jvp"), ("jvp", "vmap"), ("vmap", "vjp")):

        @tx.kernel
        def power(x: Any, out: Any, n: int = 2) -> None:
            out[...] = x**n

        batches: list[int] = []

        def batched(size: int, in_batched: Any, x: Any, n: int = 2, power: Any = power, batches: Any = batches) -> Any:
            batches.append(n)
            return power(x, n=n), True

        for kind in order:
            if kind == "vmap":
                power.def_vmap(batched)
            elif kind == "jvp":
                power.defjvp(lambda p, t, n=2, power=power: (power(*p, n=n), n * power(*p, n=n - 1) * t[0]))
            else:
                power.defvjp(
                    lambda x, n=2, power=power: (power(x, n=n), x),
                    lambda x, g, n=2, power=power: (n * power(x, n=n - 1) * g,),
                )
        np.testing.assert_allclose(tx.vmap(lambda x: power(x, n=3))(X), X**3, rtol=1e-5)
        assert batches == [3]
        np.testing.assert_allclose(tx.grad(lambda x: power(x, n=3).sum())(X), 3 * X**2, rtol=1e-5)
        np.testing.assert_allclose(tx.jit(lambda x: power(x))(X), X**2, rtol=1e-5)


def test_exceptions_belong_to_the_program_that_raised() -> None:
    """Programs on other threads, with kernels that succeed, do not raise another one's error."""

    @tx.kernel
    def check(x: Any, out: Any) -> None:
        if x[0] < 0:
            raise ValueError
        out[:] = x

    program = tx.jit(check)
    program(X)
    wrong: list[Any] = []

    def run(sign: int) -> None:
        for _ in range(200):
            try:
                program(sign * np.ones(3, np.float32))
                raised = False
            except KernelError:
                raised = True
            if raised != (sign < 0):
                wrong.append(sign)

    threads = [threading.Thread(target=run, args=(sign,)) for sign in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("compiled", [False, True])
def test_results_of_several_shapes_and_types_are_a_tree(compiled: bool) -> None:
    kernel = tx.kernel(spectrum, out=spectrum_shapes)
    found = (tx.jit(lambda x: kernel(x)) if compiled else kernel)(X)
    np.testing.assert_allclose(found["sum"], X.sum(), rtol=1e-6)
    np.testing.assert_array_equal(found["where"], [X.argmin(), X.argmax()])
    only = tx.jit(lambda x: kernel(x)["where"])(X)  # the other result has no reader
    np.testing.assert_array_equal(only, [X.argmin(), X.argmax()])


def test_operands_may_be_scalars_views_and_computed_values() -> None:
    @tx.kernel
    def scale(x: Any, factor: Any, out: Any) -> None:
        out[:] = x * factor[()]

    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    program = tx.jit(lambda m: (scale(m.T[1], 2.0), scale(m[::2, 1] + 1, m.sum()), scale(m.reshape(-1)[2:5], m[0, 1])))
    for found, expected in zip(
        program(matrix), (matrix.T[1] * 2, (matrix[::2, 1] + 1) * 66, matrix.reshape(-1)[2:5]), strict=True
    ):
        np.testing.assert_allclose(found, expected)


def test_loops_and_branches_call_the_native_code(heat: Any) -> None:
    expected = X
    for _ in range(20):
        expected = stepped(expected)
    np.testing.assert_allclose(tx.jit(lambda x: lax.fori_loop(0, 20, lambda i, y: heat(y), x))(X), expected, rtol=1e-5)
    np.testing.assert_allclose(
        tx.jit(lambda x: lax.scan(lambda c, _: (heat(c), None), x, length=20)[0])(X), expected, rtol=1e-5
    )
    for flag in (True, False):
        chosen = tx.jit(lambda p, x: lax.cond(p, heat, lambda y: y, x))(flag, X)
        np.testing.assert_allclose(chosen, stepped(X) if flag else X, rtol=1e-6)


def test_compiled_loop_runs_without_python() -> None:
    """No Python function is called by the iterations."""

    @tx.kernel
    def count(x: Any, out: Any) -> None:
        out[()] = x[()] + 1

    program = tx.jit(lambda x: lax.fori_loop(0, 5000, lambda i, y: count(y), x))
    steps = program.lower(0).compile().report().steps
    assert [step.kind for step in steps] == ["while", "native_call"]
    calls = 0

    def profile(*ignored: Any) -> None:
        nonlocal calls
        calls += 1

    assert program(0) == 5000
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        found = program(1)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert found == 5001
    assert calls < 100  # of the call of the program; not one for each iteration


@pytest.mark.parametrize("vmap", ["sequential", "broadcast"])
@pytest.mark.parametrize("compiled", [False, True])
def test_batching(vmap: str, compiled: bool) -> None:
    @tx.kernel(vmap=vmap)
    def double(x: Any, y: Any, out: Any) -> None:
        out[...] = 2 * x + y

    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axes, y in (((0, None), rows[0]), ((0, 0), rows), ((0, 1), rows.T)):
        call = tx.vmap(double, axes)
        found = (tx.jit(call) if compiled else call)(rows, y)
        np.testing.assert_allclose(found, 2 * rows + (rows[0] if axes[1] is None else rows))


def test_batching_rule_of_the_user(heat: Any) -> None:
    @heat.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any) -> Any:
        return 10 * x, True

    np.testing.assert_allclose(tx.vmap(heat)(X[None]), 10 * X[None])


def test_derivatives_in_both_modes_agree_with_differences(heat: Any) -> None:
    with pytest.raises(DifferentiationError, match=r"no derivative; give it one with heat_step.defjvp"):
        tx.grad(lambda x: heat(x).sum())(X)
    adjoint = tx.kernel(_adjoint)
    heat.defvjp(lambda x: (heat(x), None), lambda _, g: (adjoint(g),))
    loss = lambda x: (lax.fori_loop(0, 3, lambda i, y: heat(y), x) ** 2).sum()  # noqa: E731
    gradient = np.asarray(tx.jit(tx.grad(loss))(X))
    for k in (0, 3, 11):
        step = np.zeros_like(X)
        step[k] = 1e-2
        difference = (float(loss(X + step)) - float(loss(X - step))) / 2e-2
        np.testing.assert_allclose(gradient[k], difference, rtol=2e-3, atol=1e-3)

    forward = tx.kernel(numba.njit(heat_step))
    forward.defjvp(lambda primals, tangents: (forward(*primals), forward(*tangents)))
    np.testing.assert_allclose(tx.jvp(forward, (X,), (X[::-1].copy(),))[1], stepped(X[::-1]), rtol=1e-6)


def _adjoint(g: Any, out: Any, alpha: float = 0.25) -> None:
    out[:] = 0
    out[0] += g[0]
    out[-1] += g[-1]
    for i in range(1, g.shape[0] - 1):
        out[i - 1] += alpha * g[i]
        out[i] += (1 - 2 * alpha) * g[i]
        out[i + 1] += alpha * g[i]


def test_exceptions_of_kernels_are_errors() -> None:
    @tx.kernel
    def positive(x: Any, out: Any) -> None:
        if x[0] <= 0:
            raise ValueError("not positive")
        out[:] = x

    program = tx.jit(lambda x: positive(x) + 1)
    with pytest.raises(KernelError, match="kernel positive raised an exception"):
        program(-X - 1)
    np.testing.assert_allclose(program(X + 1), X + 2)
    with tx.disable_jit(), pytest.raises(ValueError, match="not positive"):
        program(-X - 1)


def test_misuse_is_refused(heat: Any) -> None:
    with pytest.raises(DTypeError, match="does not compile bf16"):
        heat(tnp.ones(3, "bfloat16"))
    with pytest.raises(ArgumentError, match="'sequential' or 'broadcast'"):
        tx.kernel(heat_step, vmap="both")
    with pytest.raises(ArgumentError, match="takes a function"):
        tx.kernel(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="out must give"):
        tx.kernel(heat_step, out=lambda x: 3)(X)
    with pytest.raises(ArgumentError, match="each argument is one array"):
        heat([X, X])
    with pytest.raises(ShapeError, match="results have the mapped axis"):
        tx.vmap(tx.kernel(heat_step, out=lambda x: tx.ShapeDtypeStruct((3,), x.dtype), vmap="broadcast"))(X[:, None])

    @tx.kernel
    def overwrites(x: Any, out: Any) -> None:
        x[0] = 1
        out[:] = x

    for call in (overwrites, tx.jit(lambda x: overwrites(x))):
        with pytest.raises(numba.core.errors.TypingError, match="setitem"):
            call(X)


def test_without_numba_the_error_says_what_to_install(heat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingPackageError, match="kernel heat_step needs Numba"):
        heat(X)


def test_numba_is_not_imported_by_the_library() -> None:
    code = "import sys, tinyxla as tx; tx.jit(lambda x: x.sum())(tx.numpy.ones(9)); print('numba' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


# --- kernels of compiled programs -------------------------------------------------------------------------------------


def test_kernels_are_numba_functions_that_numba_code_calls() -> None:
    compiled = tx.jit(lambda x: tnp.sin(x) * 2 + 1).lower(X).compile()
    (kernel,) = compiled.kernels
    function = kernel.numba()
    out = np.empty_like(X)
    function(X, out)
    np.testing.assert_array_equal(out, compiled(X))

    @numba.njit(parallel=True)
    def rows(matrix: Any) -> Any:
        result = np.empty_like(matrix)
        for i in numba.prange(matrix.shape[0]):
            function(matrix[i], result[i])
        return result

    matrix = np.stack([X, 2 * X, X - 1])
    np.testing.assert_allclose(rows(matrix), np.sin(matrix) * 2 + 1, rtol=1e-6)


def test_kernels_with_several_buffers_run_as_in_the_program() -> None:
    def softmax(x: Any) -> Any:
        shifted = tnp.exp(x - x.max(1, keepdims=True))
        return shifted / shifted.sum(1, keepdims=True)

    matrix = np.random.default_rng(0).normal(size=(7, 33)).astype(np.float32)
    compiled = tx.jit(softmax).lower(matrix).compile()
    (kernel,) = compiled.kernels
    out = np.empty_like(matrix)
    kernel.numba()(matrix, out)
    np.testing.assert_array_equal(out, compiled(matrix))


def test_arrays_that_do_not_fit_a_kernel_are_refused() -> None:
    function = tx.jit(lambda x: x + x).lower(X).compile().kernels[0].numba()
    with pytest.raises(ValueError, match=r"in0 must have the shape \(12,\)"):
        function(X[:3].copy(), np.empty_like(X))
    with pytest.raises(TypeError, match="No matching definition"):
        function(X.astype(np.float64), np.empty_like(X))
    with pytest.raises(TypeError, match="No matching definition"):
        function(X[::2], np.empty_like(X))
    half = tx.jit(lambda x: x + x).lower(X.astype("float16").astype(tnp.bfloat16)).compile().kernels[0]
    with pytest.raises(DTypeError, match="does not compile bf16"):
        half.numba()
