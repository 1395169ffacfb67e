"""What stays the same in a loop is computed once, before it and on the way back; counters and rows that are there are
not kept again; loops outside of compiled functions are traced once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as jnp
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.compiler.passes.licm import hoist_loop_invariants
from tinyxla.errors import ConcretizationError, LeakedTracerError
from tinyxla.hlo import Computation

pytestmark = pytest.mark.llvm  # plans and steps of compiled programs

W = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 4
X = np.linspace(-1, 1, 8).astype(np.float32)
ROWS = np.linspace(-1, 1, 40).astype(np.float32).reshape(5, 8)
Function = Callable[..., Any]


def _hoisted(f: Function, *args: Any) -> Computation:
    return hoist_loop_invariants(inline_calls(tx.make_graph(f)(*args).entry))


def _inside(computation: Computation) -> list[str]:
    """The names of the ops in the bodies and conditions of loops."""
    found: list[str] = []
    for x in computation.instructions:
        for inner in x.computations():
            if x.op.name in ("while", "conditional"):
                found += [y.op.name for y in inner.instructions] + _inside(inner)
    return found


def _top(computation: Computation) -> list[str]:
    return [x.op.name for x in computation.instructions]


# --- the pass ---------------------------------------------------------------------------------------------------------


def test_costly_values_leave_the_loop() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, c: jnp.tanh((jnp.exp(w) @ jnp.exp(w)) @ c), x)

    made = _hoisted(f, X, W)
    assert {"exponential", "dot"} <= set(_top(made))
    assert "exponential" not in _inside(made)
    assert _inside(made).count("dot") == 1
    np.testing.assert_allclose(tx.jit(f)(X, W), f(X, W), 1e-5, 1e-6)


def test_what_a_product_reads_is_in_memory_before_the_loop() -> None:
    """However cheap, and larger than what it is made of; what the loop computes where it reads it stays."""

    def f(x: Any, w: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            return 0.1 * jnp.einsum("nij,n->ij", (w[:, :, None] > x).astype(np.float32), c)[0] + c

        return lax.fori_loop(0, 5, body, x)

    made = _hoisted(f, X, W)
    assert {"compare", "convert"} <= set(_top(made))
    assert "convert" not in _inside(made)
    np.testing.assert_allclose(tx.jit(f)(X, W), f(X, W), 1e-5, 1e-6)
    made = _hoisted(lambda x, w: lax.fori_loop(0, 5, lambda i, c: (c[:, None] * (x[:, None] > x)).sum(0), x), X, W)
    assert "compare" not in _top(made)


def test_of_inner_loops_too() -> None:
    def f(x: Any, w: Any) -> Any:
        inner = lambda i, c: lax.fori_loop(0, 3, lambda j, d: jnp.cos(d) * jnp.exp(w[0]) + jnp.sin(c), c)  # noqa: E731
        return lax.fori_loop(0, 4, inner, x)

    made = _hoisted(f, X, W)
    assert "exponential" in _top(made)
    assert "exponential" not in _inside(made)
    (outer,) = (x for x in made.instructions if x.op.name == "while")
    body = outer.attributes.body
    assert "sine" in _top(body)
    assert "sine" not in _inside(body)
    np.testing.assert_allclose(tx.jit(f)(X, W), f(X, W), 1e-5, 1e-6)


def test_conditions_too() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.while_loop(lambda c: c.sum() < jnp.exp(w).sum(), lambda c: c * 1.5, x)

    made = _hoisted(f, X + 2, W)
    assert "exponential" in _top(made)
    assert "exponential" not in _inside(made)
    np.testing.assert_allclose(tx.jit(f)(X + 2, W), f(X + 2, W), 1e-6)


def test_what_costs_nothing_stays() -> None:
    """Movement is free inside, and a table of all pairs is larger than what it is made of."""

    def f(x: Any, w: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            return (
                (w.T @ c)
                + jnp.where(jnp.arange(8)[:, None] < jnp.arange(8), 1.0, 0.0).sum(1) * 0
                + (c[:, None] + x).sum(1)
            )

        return lax.fori_loop(0, 5, body, x)

    made = _hoisted(lambda x, w: lax.fori_loop(0, 5, lambda i, c: w.T @ c + jnp.arange(8) * 2, x), X, W)
    assert "transpose" in _inside(made) or "transpose" not in _top(made)
    assert "iota" not in _top(made)
    np.testing.assert_allclose(tx.jit(f)(X, W), f(X, W), 1e-4, 1e-5)


def test_effects_stay_in_place() -> None:
    seen: list[int] = []
    f = tx.jit(
        lambda x, n: lax.fori_loop(0, n, lambda i, c: (tx.debug.callback(lambda v: seen.append(1), x), c + 1)[1], x)
    )
    f(np.float32(1), 3)
    assert len(seen) == 3
    f(np.float32(1), 0)
    assert len(seen) == 3


def test_loops_that_never_run() -> None:
    f = tx.jit(lambda x, n: lax.fori_loop(0, n, lambda i, c: c + jnp.log(x) / 0, x))
    np.testing.assert_array_equal(f(X, 0), X)
    np.testing.assert_array_equal(tx.jit(tx.grad(lambda x, n: f(x, n).sum()))(X, 0), np.ones(8))


# --- derivatives ------------------------------------------------------------------------------------------------------


def _stacked(f: Function, *args: Any) -> set[tuple[int, ...]]:
    """The sizes of the arrays with a row for each of seven steps."""
    text = tx.jit(f).lower(*args).compile().as_text()
    return {tuple(map(int, s.split(","))) for s in re.findall(r"\[(7[\d,]*)\]", text)}


def softplus_steps(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, 7, lambda i, c: jnp.tanh(tx.nn.softplus(w) @ c) * (i + 1), x).sum()


def test_residuals_are_not_what_stays_the_same() -> None:
    gradient = tx.grad(softplus_steps, (0, 1))
    assert not any(s[1:] == (8, 8) for s in _stacked(gradient, X, W))
    assert (7,) not in _stacked(gradient, X, W)  # nor the counter
    made = _hoisted(gradient, X, W)
    assert not {"exponential", "log-plus-one"} & set(_inside(made))

    def plain(x: Any, w: Any) -> Any:
        c = x
        for i in range(7):
            c = jnp.tanh(tx.nn.softplus(w) @ c) * (i + 1)
        return c.sum()

    for found, expected in zip(tx.jit(gradient)(X, W), tx.grad(plain, (0, 1))(X, W), strict=True):
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    second = tx.jit(tx.grad(lambda x: (gradient(x, W)[0] ** 2).sum()))(X)
    np.testing.assert_allclose(second, tx.grad(lambda x: (tx.grad(plain)(x, W) ** 2).sum())(X), 1e-3, 1e-4)


def test_rows_are_read_again() -> None:
    """Of x[i] nothing is kept: it is there."""
    rows = np.linspace(0, 1, 21).astype(np.float32).reshape(7, 3)

    def f(c: Any, rows: Any) -> Any:
        return lax.fori_loop(0, 7, lambda i, c: c * 2 + rows[i] * rows[6 - i], c).sum()

    buffers = tx.jit(tx.grad(f, 1)).lower(np.ones(3, np.float32), rows).compile().report().buffers
    assert sum(buffer.shape == "f32[7,3]" for buffer in buffers) <= 3  # the rows, and their cotangents
    differences = tx.grad(lambda r: sum(2.0 ** (6 - i) * (r[i] * r[6 - i]).sum() for i in range(7)))(rows)
    np.testing.assert_allclose(tx.grad(f, 1)(np.ones(3, np.float32), rows), differences, 1e-5)


def test_counters_of_other_steps() -> None:
    def f(x: Any) -> Any:
        start = (jnp.int32(20), x)
        return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 3, jnp.sin(c[1]) * (c[0] * 0.1)), start)[1].sum()

    def plain(x: Any) -> Any:
        for i in (20, 17, 14, 11, 8, 5, 2):
            x = jnp.sin(x) * (i * 0.1)
        return x.sum()

    np.testing.assert_allclose(tx.jit(tx.grad(f))(X), tx.grad(plain)(X), 1e-3, 1e-3)
    assert (7,) not in _stacked(tx.grad(f), X)


# --- traced once ------------------------------------------------------------------------------------------------------


def test_calls_outside_of_compiled_functions_are_traced_once() -> None:
    scale = 2.0

    def step(c: Any, x: Any) -> Any:
        return c + x * scale, c

    for _ in range(4):
        assert lax.scan(step, 0.0, ROWS[0])[1].shape == (8,)
    before = lax.scan(step, 0.0, np.ones(3, np.float32))[0]
    scale = 3.0  # a closure that has changed
    after = lax.scan(step, 0.0, np.ones(3, np.float32))[0]
    assert (float(before), float(after)) == (6, 9)


def test_what_may_have_changed_is_traced_again() -> None:
    table, factors = np.ones(3, np.float32), [1.0]
    by_array = lambda c: c + table  # noqa: E731
    by_list = lambda c: c * factors[0]  # noqa: E731
    for k in range(4):
        table[:], factors[0] = k, k
        np.testing.assert_array_equal(lax.while_loop(lambda c: c[0] < 0.5, by_array, jnp.zeros(3)) if k else 0, k)
        assert lax.cond(True, by_list, by_list, 2.0) == 2 * k


def test_results_are_the_same_in_every_call() -> None:
    branches = (lambda x: x + 1, lambda x: x * 0.5)
    for _ in range(4):
        assert lax.cond(True, *branches, 2.0) == 3
        assert lax.cond(False, *branches, 2.0) == 1
        assert lax.switch(5, branches, 2.0) == 1
        np.testing.assert_array_equal(lax.map(branches[0], ROWS), ROWS + 1)
    body = lambda i, c: c + i  # noqa: E731
    assert [int(lax.fori_loop(0, n, body, 0)) for n in (3, 3, 3, 4)] == [3, 3, 3, 6]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_tracers_that_leak() -> None:
    kept: list[Any] = []
    lax.scan(lambda c, x: (kept.append(x), (c, x))[1], 0.0, X)
    with pytest.raises(LeakedTracerError, match=r"has ended.*Return the value from the function"):
        kept[0] + 1


def test_choices_by_value() -> None:
    with pytest.raises(ConcretizationError, match=r"lax.cond or tinyxla.numpy.where"):
        lax.scan(lambda c, x: (c if x > 0 else -c, x), 0.0, X)
    with pytest.raises(ConcretizationError, match=r"lax.cond"):
        lax.fori_loop(0, 3, lambda i, c: c if i > 1 else -c, 0.0)
