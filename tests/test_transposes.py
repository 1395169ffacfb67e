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
from tinyxla.compiler import optimize
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
