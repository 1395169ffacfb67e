"""L U and Cholesky factors and triangular systems by routines of this library: against NumPy, on several threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla
import tinyxla.numpy as jnp
from tinyxla import lax

Array = np.ndarray[Any, Any]
TYPES = ("float32", "float64")
SHAPES = (
    *(
        (1, 1),
        (3, 5),
        (5, 3),
        (8, 8),
        (10, 9),
        (11, 32),
        (17, 17),
        (31, 33),
        (40, 100),
        (100, 40),
        (65, 65),
    ),  # by one thread
    *((128, 128), (150, 200), (200, 150), (257, 256), (520, 300)),  # shared
    *((2, 70, 70), (9, 40, 33), (17, 33, 40), (0, 40, 40), (40, 0)),
)


def on_threads(function: Callable[..., Any], *operands: Array) -> list[Array]:
    """What it gives, which are the same bits on one thread and on two."""
    compiled, found = tinyxla.jit(function), list[list[Array]]()
    for count in (1, 2):
        with tinyxla.num_threads(count):
            results = compiled(*(jnp.asarray(x, dtype=x.dtype) for x in operands))
            found.append([np.asarray(x) for x in tinyxla.tree_util.tree_leaves(results)])
    assert [x.tobytes() for x in found[0]] == [x.tobytes() for x in found[1]]
    return found[0]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lu(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
    x = generator.standard_normal(shape).astype(dtype)
    factors, pivots, order = on_threads(lax.linalg.lu, x)
    assert factors.dtype == dtype
    rows, steps = shape[-2], min(shape[-2:])
    lower = np.tril(factors[..., :steps], -1) + np.eye(rows, steps)
    assert np.abs(lower).max(initial=0) <= 1  # a pivot is the largest
    product = lower @ np.triu(factors[..., :steps, :])
    bound = 200 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(product, np.take_along_axis(x, order[..., None], -2), rtol=0, atol=bound)
    np.testing.assert_array_equal(order, lax.linalg.lu_pivots_to_permutation(pivots, rows))


def test_pivots_are_the_first_of_equals() -> None:
    for size in (20, 150):
        x = np.ones((size, size), np.float32)
        x[5:, 0], x[9, 0] = 2, -2
        factors, pivots, _ = on_threads(lax.linalg.lu, x)
        assert pivots[0] == 5
        assert (pivots[2:] == np.arange(2, size)).all()  # of columns of zeros
        assert (factors[2:, 2:] == 0).all()


@pytest.mark.parametrize("size", [40, 150])
def test_what_is_not_a_number_stays(generator: np.random.Generator, size: int) -> None:
    x = generator.standard_normal((size, size)).astype(np.float32)
    x[size // 2, size // 3] = np.nan
    (found,) = on_threads(jnp.linalg.det, x)
    assert np.isnan(found)


def test_the_factors_alone_or_the_pivots(generator: np.random.Generator) -> None:
    for shape in ((50, 50), (3, 50, 50), (150, 150)):
        x = generator.standard_normal(shape).astype(np.float32)
        every = on_threads(lax.linalg.lu, x)
        for number, expected in enumerate(every):
            (found,) = on_threads(lambda x, number=number: lax.linalg.lu(x)[number], x)
            np.testing.assert_array_equal(found, expected)


def _definite(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    x = random.standard_normal(shape)
    return (x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 7, 31, 32, 33, 64, 100, 127, 128, 161, 300])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_cholesky(generator: np.random.Generator, batch: tuple[int, ...], size: int, dtype: str) -> None:
    x = _definite(generator, (*batch, size, size), dtype)
    for upper, read in ((False, np.tril), (True, np.triu)):
        given = np.where(read(np.ones((size, size), bool)), x, np.nan).astype(dtype)
        function = functools.partial(jnp.linalg.cholesky, upper=upper, symmetrize_input=False)
        (found,) = on_threads(function, given)
        assert found.dtype == dtype
        assert (found == read(found)).all()
        product = found.swapaxes(-1, -2) @ found if upper else found @ found.swapaxes(-1, -2)
        assert np.abs(product - x).max() <= (size + 8) * np.finfo(dtype).eps * np.abs(x).max()


@pytest.mark.parametrize("shape", [(1, 1), (40, 40), (200, 200), (3, 50, 50), (70, 5, 5)], ids=str)
def test_cholesky_of_what_is_not_definite(generator: np.random.Generator, shape: tuple[int, ...]) -> None:
    size, first = shape[-1], (0,) * (len(shape) - 2)
    for value, upper in itertools.product((0.0, -0.0, -1.0, -np.inf), (False, True)):
        x = _definite(generator, shape, "float32")
        whole = np.linalg.cholesky(x, upper=upper)
        x[(*first, size // 2, size // 2)] = value
        (found,) = on_threads(functools.partial(jnp.linalg.cholesky, upper=upper), x)
        triangle = (np.triu if upper else np.tril)(np.ones((size, size), bool))
        np.testing.assert_array_equal(found[first], np.where(triangle, np.nan, 0))
        if first:  # others are what they were
            np.testing.assert_allclose(found[1:], whole[1:], rtol=0, atol=1e-4)
    x = _definite(generator, shape, "float32")
    for value in (np.inf, np.nan):  # which is no failure, and stays where it comes to
        x[..., size - 1, size - 1] = value
        (found,) = on_threads(jnp.linalg.cholesky, x)
        np.testing.assert_array_equal(found[..., size - 1, size - 1], np.full(shape[:-2], value, np.float32))
        assert np.isfinite(found[..., : size - 1, :]).all()


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("size", "sides"), [(1, 5), (9, 1), (15, 7), (16, 16), (17, 9), (33, 65), (130, 200), (300, 70)]
)
def test_triangular_solve(generator: np.random.Generator, dtype: str, size: int, sides: int) -> None:
    a = (generator.standard_normal((2, size, size)) / size).astype(dtype)
    b = generator.standard_normal((2, size, sides)).astype(dtype)
    for lower, transposed, unit in itertools.product((False, True), repeat=3):
        given, triangle = a.copy(), (np.tril if lower else np.triu)(a)
        for matrix, part in zip(given, triangle, strict=True):
            np.fill_diagonal(matrix, np.nan if unit else 2)  # which then is not read
            np.fill_diagonal(part, 1 if unit else 2)
        options = {"lower": lower, "transpose_a": transposed, "unit_diagonal": unit}
        (found,) = on_threads(lambda a, b, o=options: lax.linalg.triangular_solve(a, b, left_side=True, **o), given, b)
        product = (triangle.swapaxes(-1, -2) if transposed else triangle) @ found
        np.testing.assert_allclose(product, b, rtol=0, atol=100 * float(np.finfo(dtype).eps))


def test_they_need_no_other_library() -> None:
    """Programs whose steps are this library's have kernels; none of them calls a routine of LAPACK."""
    x = jnp.ones((150, 150))
    for function, routine in ((lambda a: jnp.linalg.solve(a, a), "trsm_"), (jnp.linalg.cholesky, "potf2_")):
        compiled = tinyxla.jit(function).lower(x).compile()
        text = "\n".join(kernel.llvm for kernel in compiled.kernels)
        assert routine in text
        assert not any(name in text for name in ("sgetrf", "strsm", "spotrf"))
