"""Transposes sink through what works on elements: nothing changes but the order in which memory is read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.backends import compile_module
from tinyxla.compiler.pipeline import optimize
from tinyxla.hlo import Module

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "centred": lambda x: x.transpose(2, 0, 1) - x.transpose(2, 0, 1).mean(2, keepdims=True),
    "mean": lambda x: x.transpose(1, 2, 0).mean(1),
    "kept in another order": lambda x: jnp.sum(x.transpose(2, 1, 0), 1),
    "largest": lambda x: jnp.max(x.transpose(2, 0, 1), (0, 2)),
    "there and back": lambda x: jnp.sin(x.transpose(1, 2, 0)).transpose(2, 0, 1),
    "spread": lambda x: jnp.exp(x[0].T)[None] + x[0].T[:, None],
    "chosen": lambda x: jnp.where(x.transpose(0, 2, 1) > 0, x.transpose(0, 2, 1), 0.5),
    "two orders": lambda x: x.transpose(0, 2, 1) + jnp.ones((2, 5, 3)) * jnp.swapaxes(x, 1, 2),
    "converted": lambda x: x.transpose(1, 0, 2).astype(jnp.float16).transpose(1, 0, 2),
    "mapped": lambda x: tx.vmap(lambda y: y.T - y.T.mean(1, keepdims=True), in_axes=2, out_axes=1)(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_transposes(name: str, generator: np.random.Generator) -> None:
    x = generator.standard_normal((2, 3, 5), np.float32)
    lowered = tx.jit(PROGRAMS[name]).lower(x)
    expected = compile_module(lowered.module, "interpreter")([x])[0]
    found = lowered.compile()(x).numpy()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def operations(function: Callable[[Any], Any], shape: tuple[int, ...]) -> list[str]:
    module: Module = tx.jit(function).lower(jnp.ones(shape)).module
    return [x.op.name for x in optimize(module.entry).instructions]


def test_a_mean_of_transposed_rows_is_one_of_columns() -> None:
    def centred(x: Any) -> Any:
        rows = x.T
        return (rows - rows.mean(1, keepdims=True)) @ (rows - rows.mean(1, keepdims=True)).T

    assert "transpose" not in operations(centred, (7, 4))


def test_transposes_that_meet_vanish() -> None:
    assert "transpose" not in operations(lambda x: jnp.tanh(x.T * 2 + 1).T, (7, 4))


def test_one_transpose_is_left_where_the_result_is_transposed() -> None:
    assert operations(lambda x: jnp.tanh(x.T) * 2, (7, 4)).count("transpose") == 1


SHORT = [(20, 60, 3, 5), (2, 16, 2, 22), (40, 3, 90), (30, 20, 16), (3, 2, 7, 22)]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("sizes", SHORT, ids=str)
def test_short_loops_in_all_orders(sizes: tuple[int, ...]) -> None:
    """The last loop is one around few elements, or written out, or part of a square."""
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    for order in permutations(range(len(sizes))):
        turned = x.transpose(order)
        edges = [(1, 2)] * len(sizes)
        found = tx.jit(
            lambda x, order=order, edges=edges: (
                x.transpose(order) * 2,
                jnp.pad(x.transpose(order) + 1, edges),
                jnp.concatenate([x.transpose(order), x.transpose(order) * 3], -1),
                jnp.stack([x.transpose(order)[..., 0] * k for k in range(10)], -1),
            )
        )(x)
        expected = (
            turned * 2,
            np.pad(turned + 1, edges),
            np.concatenate([turned, turned * 3], -1),
            np.stack([turned[..., 0] * k for k in range(10)], -1),
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)


def smoothed(x: Any) -> Any:
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = 0.5 * carry + row
        return carry, carry * 2

    return tx.lax.scan(step, x[0] * 0, x)[1]


LOOPS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda x: tx.vmap(smoothed, 1, 1)(x[0]),
    "columns to rows": lambda x: tx.vmap(smoothed, 1, 0)(x[0]),
    "rows to columns": lambda x: tx.vmap(smoothed, 0, 1)(x[0]),
    "matrices": lambda x: tx.vmap(smoothed, 2, 1)(x),
    "matrices within": lambda x: tx.vmap(tx.vmap(smoothed, 1, 1), 2, 2)(x),
    "there and back": lambda x: smoothed(x.transpose(1, 2, 0)).transpose(2, 0, 1),
    "read both ways": lambda x: smoothed(x[0].T).T + smoothed(x[0]),
    "result read both ways": lambda x: (lambda y: y.T @ y)(tx.vmap(smoothed, 1)(x[0])),
    "slope": lambda x: tx.grad(lambda y: (tx.vmap(smoothed, 1, 1)(y) ** 2).sum())(x[0]),
    "tangent": lambda x: tx.jvp(lambda y: tx.vmap(smoothed, 1, 1)(y), (x[0],), (x[1],))[1],
    "backwards": lambda x: tx.vmap(lambda y: tx.lax.scan(lambda c, t: (c + t, c), 0.0, y, reverse=True)[1], 1, 1)(x[0]),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("sizes", [(2, 3, 5), (2, 1, 4), (2, 4, 1), (3, 40, 30)])
def test_loops_over_transposed_arrays(name: str, sizes: tuple[int, ...], generator: np.random.Generator) -> None:
    x = generator.standard_normal(sizes, np.float32)
    lowered = tx.jit(LOOPS[name]).lower(x)
    (expected,) = compile_module(lowered.module, "interpreter")([x])
    np.testing.assert_allclose(lowered.compile()(x), expected, rtol=1e-5, atol=1e-5, strict=True)


def test_a_loop_over_rows_that_are_together_needs_no_transpose() -> None:
    assert "transpose" not in operations(lambda x: tx.vmap(smoothed, 1, 1)(x), (7, 4))
    assert "transpose" in operations(lambda x: tx.lax.map(jnp.cumsum, x.T), (7, 4))


def test_what_a_loop_writes_between_others_stays() -> None:
    def some(x: Any) -> Any:
        return tx.lax.fori_loop(0, 2, lambda k, y: y.at[:, 2 * k].set(x[:, k]), jnp.full((4, 5), 7.0)).T

    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    expected = np.full((5, 4), 7, np.float32)
    expected[::2][:2] = x.T
    np.testing.assert_array_equal(tx.jit(some)(x), expected, strict=True)
