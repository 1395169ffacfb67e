"""Sorting networks: many short lines are sorted as XLA sorts them, NaN last and equal elements in their order."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.hlo import Computation
from tinyxla.loopir.kernels.sort.choose_algorithm import SHORT_ELEMENTS
from tinyxla.loopir.kernels.sort.problem import BLOCK
from tinyxla.ops import elementwise, sorting
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace

TYPES = ("float32", "float16", "int32", "uint8", "bool")


def values(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    found = (3 * generator.standard_normal(shape)).astype(dtype)
    if dtype.startswith("float"):
        for special in (np.nan, 0.0, -0.0, np.inf):
            found[generator.random(shape) < 0.1] = special
    return found


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [2, 3, 9, 16, SHORT_ELEMENTS])
def test_lines_are_sorted_as_jax_sorts_them(length: int, dtype: str, generator: np.random.Generator) -> None:
    x = values(generator, (BLOCK + 3, length), dtype)
    wanted, order = map(np.asarray, jax.jit(lambda x: (jnp.sort(x), jnp.argsort(x)))(x))
    found = np.asarray(tx.jit(tx.numpy.sort)(x))
    np.testing.assert_array_equal(found, wanted, strict=True)
    if dtype.startswith("float"):
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(wanted[wanted == 0]))
    np.testing.assert_array_equal(tx.jit(tx.numpy.argsort)(x), order)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((70, 33), 1),
        ((70, 100), 1),
        ((3, 40, 256), 2),
        ((17, 1100), 1),
        ((16, 2048), 1),
        ((33, 70), 0),
        ((2, 64, 50), 1),
        ((2, 600, 67), 1),
        ((9, 130, 3), 1),
    ],
)
@pytest.mark.parametrize("descending", [False, True])
def test_lines_by_networks(shape: tuple[int, ...], axis: int, descending: bool, generator: np.random.Generator) -> None:
    arrays = [values(generator, shape, dtype) for dtype in TYPES]
    sort, argsort = (functools.partial(f, axis=axis, descending=descending) for f in (jnp.sort, jnp.argsort))
    by_jax = jax.jit(lambda arrays: [(sort(x), argsort(x)) for x in arrays])(arrays)
    for dtype, x, (wanted, wanted_order) in zip(TYPES, arrays, by_jax, strict=True):
        found = np.asarray(tx.jit(lambda x: tx.numpy.sort(x, axis, descending=descending))(x))
        np.testing.assert_array_equal(found, wanted, dtype, strict=True)
        if dtype.startswith("float") and not descending:  # JAX reverses what is equal, too
            zeros = np.asarray(wanted)[wanted == 0]
            np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(zeros), dtype)
        order = tx.jit(lambda x: tx.numpy.argsort(x, axis, descending=descending))(x)
        np.testing.assert_array_equal(order, wanted_order, dtype)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize(("length", "k"), [(1, 1), (7, 7), (100, 5), (300, 32), (4096, 4), (20_000, 3)])
def test_first_elements_one_by_one(length: int, k: int, dtype: str, generator: np.random.Generator) -> None:
    x = values(generator, (5, length), dtype)
    found, wanted = tx.jit(lambda x: tx.lax.top_k(x, k))(x), jax.lax.top_k(x, k)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_another_array_is_put_in_the_order_of_the_first(generator: np.random.Generator) -> None:
    keys, others = values(generator, (5, 2 * BLOCK), "int32"), values(generator, (5, 2 * BLOCK), "float32")
    found = tx.jit(lambda x, y: tx.lax.sort((x, y), dimension=0, num_keys=1))(keys, others)
    wanted = jax.lax.sort((keys, others), dimension=0, num_keys=1)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_any_comparator(generator: np.random.Generator) -> None:
    x = np.nan_to_num(values(generator, (2 * BLOCK, 6), "float32"), posinf=9)
    scalars = [Shape.of(np.zeros((), np.float32))] * 2
    larger = trace(lambda a, b: [elementwise.gt(elementwise.abs_(a), elementwise.abs_(b))], scalars, "larger")[0]
    body = Computation("larger", larger.parameters, larger.instructions[:-1], larger.outputs[0])
    found = tx.jit(lambda x: sorting.sort(x, dimensions=(1,), to_apply=body))(x)
    np.testing.assert_array_equal(found, np.take_along_axis(x, np.argsort(-np.abs(x), 1, kind="stable"), 1))


def test_results_do_not_depend_on_threads(generator: np.random.Generator) -> None:
    x = values(generator, (100 * BLOCK, 7), "float32")
    found = []
    for count in (1, 3):
        with tx.num_threads(count):
            found.append(tx.jit(tx.numpy.sort)(x).numpy().tobytes())
    assert found[0] == found[1]


def test_the_gradient_of_a_median(generator: np.random.Generator) -> None:
    x = generator.standard_normal((BLOCK, 9), np.float32)
    found = tx.jit(tx.grad(lambda x: tx.numpy.sum(tx.numpy.median(x, 1) ** 2)))(x)
    wanted = jax.jit(jax.grad(lambda x: jnp.sum(jnp.median(x, 1) ** 2)))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
