"""Reductions over segments against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import errors

NAMES = ("segment_sum", "segment_prod", "segment_max", "segment_min")


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("name", NAMES)
def test_segments(name: str, dtype: Any) -> None:
    if dtype is np.bool_ and name in NAMES[:2]:
        pytest.skip("sums of booleans are not those of numbers")
    random = np.random.default_rng(0)
    data = (random.normal(size=(7, 2)) * 5).astype(np.int32).astype(dtype)
    for ids in (random.integers(-1, 5, 7).astype(np.int8), np.sort(random.integers(0, 4, 7)), np.arange(7)):
        for count in (4, 9):
            for mode in (None, "drop", "clip"):
                found = getattr(tx.ops, name)(data, ids, count, mode=mode)
                expected = getattr(jax.ops, name)(data, ids, count, mode=mode)
                assert found.dtype == expected.dtype
                np.testing.assert_allclose(np.asarray(found), expected)
    np.testing.assert_array_equal(getattr(tx.ops, name)(data, np.arange(7)[::-1]), data[::-1])
    assert getattr(tx.ops, name)(data[:0], np.arange(0), 2).shape == (2, 2)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "segment_prod"])  # JAX has no derivative of products
def test_segments_transformed(name: str) -> None:
    data, ids = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32), np.array([0, 2, 2, 0])

    def f(m: Any, x: Any) -> Any:
        return (getattr(m.ops, name)(x, ids, 3)[np.array([0, 2])] ** 2).sum()

    ours = tx.jit(tx.vmap(tx.grad(lambda x: f(tx, x))))(data)
    theirs = jax.vmap(jax.grad(lambda x: f(jax, x)))(data)
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5)


def test_derivatives_of_products() -> None:
    found = tx.grad(lambda x: (tx.ops.segment_prod(x, np.array([0, 0, 1]), 2) ** 2).sum())(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(np.asarray(found), [8, 4, 6])


def test_segments_refuse() -> None:
    with pytest.raises(errors.ShapeError, match="segment_ids must have one number"):
        tx.ops.segment_sum(np.ones(3), np.arange(2), 2)
    with pytest.raises(errors.ArgumentError, match="must be integers"):
        tx.ops.segment_max(np.ones(3), np.ones(3), 2)
    with pytest.raises(errors.ArgumentError, match="must not be negative"):
        tx.ops.segment_max(np.ones(3), np.arange(3), -2)
    with pytest.raises(errors.ConcretizationError, match="without num_segments"):
        tx.jit(tx.ops.segment_sum)(np.ones(3), np.arange(3))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint32])
@pytest.mark.parametrize("width", [(), (3,)])
def test_many_updates_of_few_places(width: tuple[int, ...], dtype: Any) -> None:
    random = np.random.default_rng(1)
    data = random.integers(0, 100, (100_000, *width)).astype(dtype)
    ids = random.integers(-2, 52, 100_000).astype(np.int32)
    known = ids[(ids >= 0) & (ids < 50)]
    for name, ufunc, start in (("add", np.add, 0), ("max", np.maximum, 0), ("min", np.minimum, 100)):
        expected = np.full((50, *width), start, dtype)
        ufunc.at(expected, known, data[(ids >= 0) & (ids < 50)])

        @tx.jit
        def update(x: Any, i: Any, y: Any, name: str = name) -> Any:
            return getattr(x.at[i], name)(y, mode="drop", wrap_negative_indices=False)

        found = update(np.full((50, *width), start, dtype), ids, data)
        np.testing.assert_array_equal(np.asarray(found), expected)
    with tx.num_threads(1):
        alone = np.asarray(tx.ops.segment_sum(data / 7, ids, 50))
    np.testing.assert_array_equal(np.asarray(tx.ops.segment_sum(data / 7, ids, 50)), alone)


def test_nothing_is_added_to_a_negative_zero() -> None:
    ids = np.zeros(100_000, np.int32)
    found = tx.jit(lambda x, i: x.at[i].add(-0.0))(np.full(3, -0.0, np.float32), ids)
    assert np.signbit(np.asarray(found)).all()
