"""Short rows that meet all others: these are turned once, so that the loop over them goes along memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.compiler.passes import layout_assignment

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_assignment, "L2_ELEMENTS", 0)


def points(count: int, size: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(count).integers(-2, 3, (count, size)).astype(jnp.dtype(dtype))


def squares(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def kernels(function: Function, *args: Any) -> list[str]:
    return [step.kind for step in tx.jit(function).lower(*args).compile().report().steps]


@pytest.mark.parametrize("size", [2, 3, 8, 13])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "bfloat16"])
def test_distances(size: int, dtype: str) -> None:
    x, y = points(33, size, dtype), points(50, size, dtype)
    wanted = ((x[:, None].astype(float) - y[None].astype(float)) ** 2).sum(-1)
    np.testing.assert_array_equal(np.asarray(tx.jit(squares)(x, y)).astype(float), wanted)
    assert kernels(squares, x, y) == ["loop", "row"]


def test_other_reductions_and_what_follows_them() -> None:
    x, y = points(40, 5), points(21, 5)

    def function(x: Any, y: Any) -> Any:
        apart = x[:, None] - y
        return abs(apart).max(-1), jnp.sqrt((apart * apart).sum(-1)).argmin(1), (apart > 0).any(-1)

    apart = x[:, None] - y
    wanted = abs(apart).max(-1), (apart**2).sum(-1).argmin(1), (apart > 0).any(-1)
    for found, expected in zip(tx.jit(function)(x, y), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_batches_of_sets_and_derivatives() -> None:
    x, y = points(3 * 20, 4).reshape(3, 20, 4), points(3 * 17, 4).reshape(3, 17, 4)
    found = tx.jit(tx.vmap(squares))(x, y)
    np.testing.assert_array_equal(np.asarray(found), ((x[:, :, None] - y[:, None]) ** 2).sum(-1))
    by = tx.jit(tx.grad(lambda x, y: squares(x, y).sum(), (0, 1)))(x[0], y[0])
    apart = x[0][:, None] - y[0]
    np.testing.assert_array_equal(np.asarray(by[0]), 2 * apart.sum(1))
    np.testing.assert_array_equal(np.asarray(by[1]), -2 * apart.sum(0))


@pytest.mark.parametrize(
    ("function", "rows", "size"),
    [
        (squares, 8, 5),  # rows, which are too few to turn the others for
        (squares, 33, 16),  # elements, of which vectors are made
        (lambda x, y: ((x[:, None] - y[None]) ** 2).sum(1), 33, 5),  # the sum is over other dimensions
        (lambda x, y: x[:, None] - y[None], 33, 5),  # there is no sum
    ],
)
def test_what_stays_as_it_is(function: Function, rows: int, size: int) -> None:
    assert "loop" not in kernels(function, points(rows, size), points(50, size))[:-1]


OUTER = {"il,jl->lij": 2, "li,jl->lij": 2, "li,lj->lij": 1, "il,lj->lij": 1}  # and how many kernels there are


@pytest.mark.parametrize("indices", OUTER)
def test_outer_products_whose_last_operand_is_strided_transpose_it_once(
    indices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_assignment, "PARALLEL_CHUNK_ELEMENTS", 0)
    sizes = {"i": 17, "j": 21, "l": 30}
    first, second = (points(*(sizes[k] for k in part)) for part in indices.partition("->")[0].split(","))
    base = np.arange(30 * 17 * 21, dtype=np.float32).reshape(30, 17, 21)

    def function(x: Any, y: Any) -> Any:
        return base + jnp.einsum(indices, x, y)

    np.testing.assert_array_equal(np.asarray(tx.jit(function)(first, second)), base + np.einsum(indices, first, second))
    assert kernels(function, first, second) == ["loop"] * OUTER[indices]


def test_strided_broadcast_whose_result_is_transposed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_assignment, "PARALLEL_CHUNK_ELEMENTS", 0)
    x, y = points(21, 30), points(30, 17)

    def function(x: Any, y: Any) -> Any:
        return jnp.transpose(x.T[:, None] * y[:, :, None], (1, 2, 0))

    wanted = np.transpose(x.T[:, None] * y[:, :, None], (1, 2, 0))
    np.testing.assert_array_equal(np.asarray(tx.jit(function)(x, y)), wanted)
    assert kernels(function, x, y) == ["loop"]
