"""Reverse mode through loops whose length is not known beforehand: against the same steps written out or counted, at
the edges of chunks, in loops, branches and lanes, and to second order."""

from __future__ import annotations

import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as jnp
from tinyxla.errors import AttributeValueError

X = np.array([0.5, -0.75, 1.25], np.float32)
Function = Callable[..., Any]


@contextmanager
def residual_bytes(count: int) -> Generator[None]:
    before = tx.config.while_residual_bytes
    tx.config.update("while_residual_bytes", count)
    try:
        yield
    finally:
        tx.config.update("while_residual_bytes", before)


def step(x: Any, c: Any) -> Any:
    return jnp.sin(c * x) + 0.1


def unknown(x: Any, n: Any, step: Function = step) -> Any:
    """n steps, of which nothing is known while tracing."""
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(x, c[1])), (0, x * 2))[1].sum()


def known(x: Any, n: int, step: Function = step) -> Any:
    return lax.scan(lambda c, _: (step(x, c), None), x * 2, None, length=n)[0].sum()


def written_out(x: Any, n: int, step: Function = step) -> Any:
    c = x * 2
    for _ in range(n):
        c = step(x, c)
    return c.sum()


# --- numbers of steps -------------------------------------------------------------------------------------------------
# With so little memory a chunk has the fewest rows there may be.

FEWEST = 64


@pytest.mark.parametrize("small", [False, True])
def test_numbers_of_steps(small: bool) -> None:
    counts = [0, 1, 2, 63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 8192, 8193, 13_000]
    with residual_bytes(1 if small else 256 << 20):
        gradient = tx.jit(tx.grad(unknown))
        for n in counts if small else counts[:10]:
            expected = tx.grad(known)(X, n) if n else np.full(3, 2)
            np.testing.assert_allclose(gradient(X, n), expected, 1e-5, 1e-6, err_msg=str(n))


def test_outside_of_compiled_functions() -> None:
    for n in (0, 1, 7):
        np.testing.assert_allclose(tx.grad(unknown)(X, n), tx.grad(written_out)(X, n), 1e-5)


def test_the_time_is_linear() -> None:
    """Steps are run three times at most: counted here by the calls of a function of the host."""
    calls: list[int] = []

    def seen(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        calls.append(1)
        return x

    def function(x: Any, n: Any) -> Any:
        def body(carry: Any) -> Any:
            i, y = carry
            offset = tx.pure_callback(seen, tx.ShapeDtypeStruct((), "int32"), i)
            return i + 1, jnp.sin(y) + 0.0 * offset

        return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    with residual_bytes(1):
        for n in (50, 500):
            calls.clear()
            tx.jit(tx.grad(function))(0.5, n)
            assert len(calls) <= 3 * n


def test_memory_that_is_not_used_is_not_touched() -> None:
    """There is room for a million steps of 64 numbers, of which three are taken."""
    w = np.eye(64, dtype=np.float32)
    f = tx.jit(tx.grad(lambda x, n: unknown(x, n, lambda x, c: jnp.tanh(w @ c))))
    x = np.ones(64, np.float32)
    f(x, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        f(x, 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_arbitrary_memory_is_never_read() -> None:
    """With NaN in all of it, nothing changes."""
    from tinyxla.ops.host.xla_targets import known_targets

    def filled(attributes: Any) -> Any:
        fill = np.nan if attributes.shape.dtype.kind == "f" else 77
        return np.full(attributes.shape.dimensions, fill, attributes.shape.dtype)

    shapes = [tx.ShapeDtypeStruct((3,), "float32"), tx.ShapeDtypeStruct((), "int32")]
    module = tx.make_graph(tx.grad(lambda x, n: unknown(x, n) + known(x, 5)))(*shapes)
    original = known_targets["AllocateBuffer"]
    known_targets["AllocateBuffer"] = original._replace(compute=filled)
    try:
        found = module(X, np.int32(9), backend="interpreter")
    finally:
        known_targets["AllocateBuffer"] = original
    found = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(found, tx.grad(lambda x: written_out(x, 9) + written_out(x, 5))(X), 1e-5)


# --- a bound ----------------------------------------------------------------------------------------------------------


def test_a_bound_ends_the_loop() -> None:
    def f(x: Any, most: Any) -> Any:
        return lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + x * x, x, max_steps=most).sum()

    x = np.abs(X)
    for most, steps in ((0, 0), (2, 2), (3, 3), (100, 5)):
        expected = written = lambda x, steps=steps: _doubled(x, steps)
        np.testing.assert_allclose(f(x, most), written(x), 1e-6)
        np.testing.assert_allclose(tx.jit(tx.grad(lambda x, m=most: f(x, m)))(x), tx.grad(expected)(x), 1e-5)
    for wrong in (-1, 2.5, True):
        with pytest.raises(tx.errors.ArgumentError, match="max_steps must be"):
            f(x, wrong)


def _doubled(x: Any, steps: int) -> Any:
    c = x
    for _ in range(steps):
        c = c * 2 + x * x
    return c.sum()


def test_a_bound_in_the_condition_is_seen() -> None:
    """A loop that ends after 100 steps at the latest needs no more rows, and is run back at once."""

    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: (c[0] < 100) & (c[1].sum() < 50), lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[
            1
        ].sum()

    plan = tx.jit(tx.grad(f)).lower(X).compile().as_text()
    assert "[64" not in plan
    assert "[1048576" not in plan
    np.testing.assert_allclose(tx.grad(f)(X), np.full(3, 1.5**10), 1e-5)


# --- nested -----------------------------------------------------------------------------------------------------------


def two_deep(x: Any, n: Any, loop: Any) -> Any:
    def outer(i: Any, c: Any) -> Any:
        return loop(i + 1, lambda j, d: jnp.sin(d * x) + 0.1 * c, c) * x + c

    return loop(n, outer, x).sum()


def three_deep(x: Any, n: Any, loop: Any) -> Any:
    return loop(n, lambda i, c: loop(2, lambda j, d: loop(i, lambda k, e: jnp.cos(e * d) + x, d) * c, c), x).sum()


def in_scan(x: Any, n: Any, loop: Any) -> Any:
    return lax.scan(lambda c, v: (loop(n, lambda i, d: jnp.sin(d) * v + c, c), c * v), x, x[:, None] * x)[1].sum()


def in_branches(x: Any, n: Any, loop: Any) -> Any:
    return lax.cond(x[0] > 0, lambda c: loop(n, lambda i, d: d * jnp.cos(c), c), lambda c: c, x).sum()


def around_branches(x: Any, n: Any, loop: Any) -> Any:
    def body(i: Any, c: Any) -> Any:
        return lax.cond(i % 2 == 0, lambda c: jnp.sin(c) * x, lambda c: c + jnp.exp(-c * c), c)

    return loop(n, body, x).sum()


def python_loop(n: Any, body: Function, c: Any) -> Any:
    for i in range(int(n)):
        c = body(i, c)
    return c


def while_loop(n: Any, body: Function, c: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, body(s[0], s[1])), (jnp.int32(0), c))[1]


CASES = [two_deep, three_deep, in_scan, in_branches, around_branches]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_nested(case: Function) -> None:
    def loops(x: Any, n: Any) -> Any:
        return case(x, n, while_loop)

    def plain(x: Any) -> Any:
        return case(x, 3, python_loop)

    expected = tx.grad(plain)(X)
    np.testing.assert_allclose(tx.jit(tx.grad(loops))(X, 3), expected, 2e-5, 1e-5)
    np.testing.assert_allclose(tx.grad(loops)(X, 3), expected, 2e-5, 1e-5)
    tangent = tx.jvp(plain, (X,), (X * X,))[1]
    np.testing.assert_allclose(tx.jvp(lambda x: loops(x, 3), (X,), (X * X,))[1], tangent, 2e-5, 1e-5)
    second = tx.jvp(tx.grad(plain), (X,), (X * X,))[1]
    np.testing.assert_allclose(tx.jvp(lambda x: tx.grad(loops)(x, 3), (X,), (X * X,))[1], second, 1e-4, 1e-4)


@pytest.mark.parametrize("case", [in_scan, around_branches], ids=lambda case: case.__name__)
def test_second_derivatives(case: Function) -> None:
    """Reverse mode over reverse mode, also where updates in place must stay in order."""

    def loops(x: Any) -> Any:
        return case(x, tx.numpy.int32(2) + (x[0] > 9).astype("int32"), while_loop)

    def twice(f: Function) -> Any:
        return tx.jit(tx.grad(lambda x: (tx.grad(f)(x) * x).sum()))(X[:2])

    np.testing.assert_allclose(twice(loops), twice(lambda x: case(x, 2, python_loop)), 1e-4, 1e-4)


def test_second_derivatives_over_chunks() -> None:
    with residual_bytes(1):
        for n in (3, 70):
            twice = tx.jit(tx.grad(lambda x, n: (tx.grad(unknown)(x, n) * x).sum()))
            expected = tx.jit(tx.grad(lambda x, n=n: (tx.grad(known)(x, n) * x).sum()))(X)
            np.testing.assert_allclose(twice(X, n), expected, 1e-4, 1e-4)


def test_against_differences() -> None:
    def f(x: Any) -> Any:
        """Newton's method for the cube root: as many steps as it takes."""

        def body(c: Any) -> Any:
            better = c[0] - (c[0] ** 3 - x) / (3 * c[0] ** 2)
            return better, jnp.abs(better - c[0])

        return lax.while_loop(lambda c: c[1] > 1e-6, body, (x, x))[0]

    np.testing.assert_allclose(tx.grad(f)(np.float32(27.0)), 1 / 27, 1e-4)


# --- lanes ------------------------------------------------------------------------------------------------------------

ROWS = X * np.array([[1.0], [0.5], [2.0], [-1.0]], np.float32)
COUNTS = np.array([3, 0, 70, 1], np.int32)


@pytest.mark.parametrize("small", [False, True])
def test_lanes_of_different_lengths(small: bool) -> None:
    expected = np.stack(
        [tx.grad(known)(x, int(n)) if n else np.full(3, 2.0) for x, n in zip(ROWS, COUNTS, strict=True)]
    )
    with residual_bytes(1 if small else 256 << 20):
        for f in (tx.vmap(tx.grad(unknown)), tx.jit(tx.vmap(tx.grad(unknown)))):
            np.testing.assert_allclose(f(ROWS, COUNTS), expected, 1e-4, 1e-5)
        summed = tx.jit(tx.grad(lambda x: tx.vmap(unknown)(x, COUNTS).sum()))
        np.testing.assert_allclose(summed(ROWS), expected, 1e-4, 1e-5)
        same = tx.jit(tx.vmap(tx.grad(unknown), (0, None)))(ROWS, 5)
        np.testing.assert_allclose(same, np.stack([tx.grad(written_out)(x, 5) for x in ROWS]), 1e-4, 1e-5)


def test_many_lanes_share_the_memory() -> None:
    """A row is as large as all lanes together, so a chunk has fewer."""
    inputs = [tx.ShapeDtypeStruct((4000, 3), "float32"), tx.ShapeDtypeStruct((4000,), "int32")]
    text = tx.jit(tx.vmap(tx.grad(unknown))).lower(*inputs).compile().as_text()
    assert int(text.split(" bytes")[0].split()[-1]) < 2 * (256 << 20)


def test_second_derivatives_of_lanes() -> None:
    expected = np.stack(
        [tx.hessian(lambda x, n=n: written_out(x, n))(x) for x, n in zip(ROWS, (3, 0, 5, 1), strict=True)]
    )
    found = tx.jit(tx.vmap(tx.hessian(unknown)))(ROWS, np.array([3, 0, 5, 1], np.int32))
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


# --- options ----------------------------------------------------------------------------------------------------------


def test_the_option() -> None:
    for wrong in (0, -1, 1.5, True, "1"):
        with pytest.raises(AttributeValueError, match="must be a positive integer"):
            tx.config.update("while_residual_bytes", wrong)
