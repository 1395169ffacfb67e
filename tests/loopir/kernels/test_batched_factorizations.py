"""Factors of many small matrices, compiled: against the interpreter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tinyxla
import tinyxla.numpy as jnp
from tinyxla import lax

Array = np.ndarray[Any, Any]
TOLERANCES = {"float32": 5e-5, "float64": 1e-12}
SIZES = ((8, 1), (20, 3), (17, 4), (40, 16), (9, 32))  # matrices, and their rows


def _check(function: Any, *operands: Array, dtype: str) -> None:
    with tinyxla.enable_x64(dtype == "float64"):
        found, expected = tinyxla.jit(function)(*operands), function(*map(jnp.asarray, operands))
    for x, y in zip(tinyxla.tree_util.tree_leaves(found), tinyxla.tree_util.tree_leaves(expected), strict=True):
        assert x.dtype == y.dtype
        if x.dtype.kind == "i":
            np.testing.assert_array_equal(x, y)
        else:
            largest = np.abs(np.nan_to_num(np.asarray(y))).max(initial=1)
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), 0, TOLERANCES[dtype] * largest)


def _definite(random: np.random.Generator, count: int, n: int, dtype: str) -> Array:
    x = random.standard_normal((count, n, n))
    return (x @ x.swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(generator: np.random.Generator, dtype: str, upper: bool) -> None:
    for count, n in SIZES:
        x = _definite(generator, count, n, dtype)
        x[3, n - 1, n - 1], x[5] = -5, np.nan  # not positive definite
        _check(lambda x: jnp.linalg.cholesky(x, upper=upper), x, dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_lu(generator: np.random.Generator, dtype: str) -> None:
    for count, n in SIZES:
        for columns in {n, max(1, n - 2), min(32, n + 3)}:
            x = generator.standard_normal((count, n, columns)).astype(dtype)
            x[2] = 0
            _check(lax.linalg.lu, x, dtype=dtype)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_qr(generator: np.random.Generator, dtype: str) -> None:
    """Of what is large, small, zero, triangular already, and not a number; a zero's sign counts, as in LAPACK."""
    for count, n in SIZES:
        for columns, full in {(n, False), (max(1, n - 2), True), (max(1, n - 2), False), (n + 3, False)}:
            x = generator.standard_normal((count, n, columns)).astype(dtype)
            x[1], x[2], x[3], x[4] = x[1] * x.dtype.type(1e30), x[2] * x.dtype.type(1e-30), 0, -2 * np.eye(n, columns)
            x[6, 0, 0] = -0.0
            with tinyxla.enable_x64(dtype == "float64"):
                function = tinyxla.jit(lambda x, full=full: lax.linalg.qr(x, full_matrices=full))
                found, expected = function(x), np.linalg.qr(x, mode="complete" if full else "reduced")
                x[5, 0, 0] = np.nan
                assert np.isnan(np.asarray(function(x)[1])[5]).any()
            np.testing.assert_allclose(np.asarray(found[0]), expected[0], 0, TOLERANCES[dtype])
            scale = np.abs(expected[1]).max((-2, -1), keepdims=True) + (expected[1] == 0).all((-2, -1), keepdims=True)
            np.testing.assert_allclose(np.asarray(found[1]) / scale, expected[1] / scale, 0, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_triangular_solve(generator: np.random.Generator, dtype: str) -> None:
    for (count, n), left, lower, transpose, unit in itertools.product(SIZES[1:4], *4 * [(False, True)]):
        a = _definite(generator, count, n, dtype) / np.asarray(10 * n if unit else 1, dtype)
        b = generator.standard_normal((count, n, 5) if left else (count, 2, n)).astype(dtype)
        options = {"left_side": left, "lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
        _check(lambda a, b, options=options: lax.linalg.triangular_solve(a, b, **options), a, b, dtype=dtype)


def test_systems_and_their_bits(generator: np.random.Generator) -> None:
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((1000, 4, 4), (1000, 4, 2)))
    solve = tinyxla.jit(jnp.linalg.solve)
    found: list[Array] = []
    for count in (1, 2):
        with tinyxla.num_threads(count):
            found.append(np.asarray(solve(a, b)))
    assert found[0].tobytes() == found[1].tobytes()
    expected = np.linalg.solve(a.astype(np.float64), b)
    conditions = np.linalg.cond(a)[:, None, None]
    assert (np.abs(found[0] - expected) <= 1e-5 * conditions * np.abs(expected).max((1, 2), keepdims=True)).all()
