"""Loops over data that is moved: reshapes of memory, rows within rows, and short windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp

TYPES: list[Any] = [np.uint8, ml_dtypes.bfloat16, np.int16, np.float32]


def split(size: int, generator: np.random.Generator) -> tuple[int, ...]:
    """Some factors of a size, in some order."""
    found: list[int] = []
    while size > 1:
        divisors = [d for d in range(2, size + 1) if size % d == 0]
        found.append(int(generator.choice(divisors)))
        size //= found[-1]
    return tuple(generator.permutation(found)) or (1,)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(24))
def test_reshapes_around_a_transpose(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size = int(generator.choice([24, 360, 2 * 3 * 4096]))
    first, second = split(size, generator), split(size, generator)
    order = tuple(int(d) for d in generator.permutation(len(second)))
    x = generator.integers(0, 200, first).astype(TYPES[seed % 4])

    def moved(np: Any, x: Any) -> Any:
        turned = x.reshape(second).transpose(order)
        return turned.reshape(first), turned + turned, np.flip(turned, 0).reshape(-1)

    for found, expected in zip(tx.jit(lambda x: moved(jnp, x))(x), moved(np, x), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 9, 16])
@pytest.mark.parametrize("length", [1, 3, 16, 70])
def test_rows_within_a_row(rows: int, length: int, generator: np.random.Generator) -> None:
    x = generator.standard_normal((5, rows, length), np.float32)

    def joined(np: Any, x: Any) -> Any:
        flat = np.stack([x[:, k] * (k + 1) for k in range(rows)], 1).reshape(5, -1)
        shifted = np.concatenate([flat[:, 3:], x[:, 0], flat * 2], 1)
        split = (flat.reshape(5, rows, length) * 3).transpose(2, 0, 1)
        return flat - 1, shifted, split, np.negative(x.transpose(1, 0, 2)).reshape(rows, -1)

    for found, expected in zip(tx.jit(lambda x: joined(jnp, x))(x), joined(np, x), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("size", [8, 64, 512])
def test_butterflies(size: int, generator: np.random.Generator) -> None:
    x = generator.integers(-9, 9, (7, size)).astype(np.float32)

    def transformed(x: Any) -> Any:
        half = 1
        while half < size:
            y = x.reshape(7, -1, 2, half)
            x = jnp.stack([y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]], 2).reshape(x.shape)
            half *= 2
        return x

    hadamard = np.ones((1, 1), np.float32)
    while len(hadamard) < size:
        hadamard = np.kron(hadamard, np.array([[1, 1], [1, -1]], np.float32))
    np.testing.assert_array_equal(tx.jit(transformed)(x), x @ hadamard, strict=True)


@pytest.mark.parametrize("size", [1, 5, 40, 300])
@pytest.mark.parametrize("count", [1, 33])
def test_rows_are_put_together_with_what_is_known_of_them(
    size: int, count: int, generator: np.random.Generator
) -> None:
    x = generator.integers(-9, 9, (count, size)).astype(np.float32)

    def extended(np: Any, x: Any) -> Any:
        total = x.sum(1, keepdims=True)
        padded = np.pad(x - x.max(1, keepdims=True), ((0, 0), (2, 3)), constant_values=7)
        return np.concatenate([x, total, x * 2], 1), padded, np.roll(x, 1, 1) - total

    for found, expected in zip(tx.jit(lambda x: extended(jnp, x))(x), extended(np, x), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("channels", [1, 3, 4, 16])
@pytest.mark.parametrize("times", [2, 3, 7])
def test_short_loops_in_short_loops(channels: int, times: int, generator: np.random.Generator) -> None:
    x = generator.integers(0, 200, (2, 5, 4, channels)).astype(np.float32)
    y = generator.integers(0, 200, (3000, 3, times)).astype(np.float32)

    def repeated(np: Any, x: Any, y: Any) -> Any:
        spread = np.broadcast_to(x[:, :, None, :, None], (2, 5, times, 4, times, channels))
        products = y[:, :, None, :, None] * y[:, None, :, None, :]
        return np.repeat(np.repeat(x, times, 1), times, 2), spread.reshape(2, 5 * times, -1), products

    for found, expected in zip(tx.jit(lambda x, y: repeated(jnp, x, y))(x, y), repeated(np, x, y), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("width", range(1, 10))
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_short_windows_from_anywhere(width: int, kind: Any, generator: np.random.Generator) -> None:
    x = generator.integers(0, 50, (6, 7, width)).astype(kind)
    i, j = generator.integers(0, 6, 40), generator.integers(0, 7, 40)
    programs: list[Callable[[Any, Any, Any], Any]] = [
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[i, j] * 2 + x[i, 0],
        lambda x, i, j: x[i][:, j],
        lambda x, i, j: x[i][:, j] + x[5 - i][:, j],
    ]
    for program in programs:
        np.testing.assert_array_equal(tx.jit(program)(x, i, j), program(x, i, j), strict=True)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("width", range(1, 10))
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_updates_of_short_windows_that_are_neighbours(width: int, kind: Any, generator: np.random.Generator) -> None:
    x = generator.integers(0, 50, (6, width)).astype(kind)
    places = np.array([0, 1, 1, 2, 9, 3, 2, 1, 5, 4, 4, 4])  # one of them is outside
    updates = generator.integers(1, 4, (12, width)).astype(kind)
    inside = places < 6
    for method, function in {"add": np.add, "multiply": np.multiply, "max": np.maximum}.items():
        expected = x.copy()
        function.at(expected, places[inside], updates[inside])
        found = tx.jit(lambda x, i, u, method=method: getattr(x.at[i], method)(u))(x, places, updates)
        np.testing.assert_array_equal(found, expected, strict=True)
