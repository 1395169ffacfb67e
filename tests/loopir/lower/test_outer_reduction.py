"""Reductions that keep the last dimension, or that before short runs, against NumPy: whole numbers, so that the order
does not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal

import tinyxla as tx
import tinyxla.numpy as jnp

# Few columns are taken several rows at a time, with rows left over or not; in pieces, or within outer dimensions.
COLUMNS = [
    ((40003, 10), (0,)),
    ((20000, 3), (0,)),
    ((3, 97, 20), (0, 1)),
    ((5, 67, 6), (1,)),
    ((3, 4, 50, 24), (0, 2)),
    ((130, 1, 12), (0,)),
    ((90, 600), (0,)),
    ((7,), ()),
    *(RUNS := [((20, 30, 40, 5), (0, 1, 3)), ((6, 35, 3, 7), (1, 3)), ((900, 4, 2), (0, 2)), ((12, 300, 15), (0, 2))]),
    ((41, 1, 17, 1, 3, 2), (0, 4, 5)),
]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, bool, np.complex64])
@pytest.mark.parametrize(("shape", "axes"), COLUMNS)
def test_columns_are_reduced(shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0 if dtype is bool else -1, 2, shape).astype(dtype)
    for name in ("sum", "any") if dtype is np.complex64 else ("sum", "max", "all"):
        found = tx.jit(lambda x, name=name: getattr(jnp, name)(x, axis=axes))(x)
        assert_equal(np.asarray(found), getattr(np, name)(x, axis=axes).astype(found.dtype))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize(
    ("shape", "axis"), [((20, 200, 8), 1), ((9, 131, 5), 1), ((40003, 12), 0), ((3, 50, 16), 1), ((2, 90, 40), 1)]
)
def test_the_place_of_the_largest_of_few_columns(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-5, 6, shape).astype(dtype)
    if dtype is not np.int8:
        x.flat[:: x.size // 7] = np.nan
    found = tx.jit(lambda x: (x.argmax(axis), x[::-1].argmin(axis)))(x)
    for one, other in zip(found, (x.argmax(axis), x[::-1].argmin(axis)), strict=True):
        assert_equal(np.asarray(one), other)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("shape", "axes"), COLUMNS)
def test_columns_are_reduced_with_what_is_the_same_in_all_rows(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, s = (random.integers(-3, 4, sizes).astype(np.float32) for sizes in (shape, shape[-1:]))
    wide = random.integers(-3, 4, (*shape[:-1], shape[-1] + 2)).astype(np.float32)
    rows = random.integers(-3, 4, (*shape[:-1], 1)).astype(np.float32)

    def function(x: Any, s: Any, wide: Any, rows: Any) -> Any:
        kept = (x - s) * s
        return kept, kept.sum(axes) + 3, (wide[..., 2:] * s).sum(axes), (rows * x).sum(axes), (x * s[::-1]).max(axes)

    for found, expected in zip(tx.jit(function)(x, s, wide, rows), function(x, s, wide, rows), strict=True):
        assert_equal(np.asarray(found), expected)


@pytest.mark.parametrize(("shape", "axes"), RUNS)
def test_columns_end_in_short_runs(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """So that vectors go along memory; what belongs to a run is spread out once."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x.flat[5] = np.nan
    compiled = tx.jit(lambda x: (x.max(axes), jnp.nanvar(x, axes))).lower(x).compile()
    assert {step.kind for step in compiled.report().steps} <= {"column", "combine"}
    largest, variance = compiled(x)
    assert_equal(np.asarray(largest), x.max(axes))
    np.testing.assert_allclose(variance, np.nanvar(x, axes), 1e-5)


def test_products_of_vectors_are_summed_as_they_are_in_memory() -> None:
    x, y = (np.random.default_rng(k).integers(-3, 4, (30, 40, 50)).astype(np.float32) for k in range(2))
    for subscripts in ("xyz,xyz->xz", "xyz,xyz->yz", "xyz,xyz->zx", "xyz,xyz->z", "xyz,xyz->"):
        assert_equal(
            np.asarray(tx.jit(lambda x, y, s=subscripts: jnp.einsum(s, x, y))(x, y)), np.einsum(subscripts, x, y)
        )
    report = tx.jit(lambda x, y: jnp.einsum("xyz,xyz->z", x, y)).lower(x, y).compile().report()
    assert report.steps[0].kind == "column"


LONG_ROWS = [((8, 5003), 0), ((16, 4096), 0), ((3, 2, 4500), 1), ((2, 4, 2, 4100), 1), ((5, 70, 61), 0)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.complex64])
@pytest.mark.parametrize(("shape", "axis"), LONG_ROWS)
def test_few_long_rows_are_added_in_registers(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    y = np.flip(x, -1).copy()
    function = tx.jit(lambda x, y: ((x * y).sum(axis), (x - 1).sum(axis)))
    for found, expected in zip(function(x, y), ((x * y).sum(axis), (x - 1).sum(axis)), strict=True):
        assert_equal(np.asarray(found), expected.astype(found.dtype))


def test_sum_of_few_long_rows_has_no_accumulators_in_memory() -> None:
    def arrays_in_kernel(rows: int) -> int:
        (kernel,) = tx.jit(lambda x: x.sum(0)).lower(np.ones((rows, 5000), np.float32)).compile().kernels
        return kernel.source.count("np.empty")

    assert arrays_in_kernel(16) == 0
    assert arrays_in_kernel(17) == 1
