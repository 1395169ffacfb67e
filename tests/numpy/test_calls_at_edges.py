"""Wrong calls that peers refuse, result types, and values at edges of functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
import scipy.special

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError

M = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("transform", [lambda f: f, tx.jit, tx.grad], ids=["eager", "jit", "grad"])
def test_array_is_not_an_instance_of_hashable(transform: Callable[[Any], Any]) -> None:
    def check(x: Any) -> Any:
        assert not isinstance(x, Hashable)
        with pytest.raises(TypeError, match=r"unhashable type: '(Array|Tracer)'"):
            hash(x)
        return x

    transform(check)(jnp.float32(1.0))


REFUSED: dict[str, Callable[[], Any]] = {
    "outer of a matrix": lambda: jnp.linalg.outer(M, M[0]),
    "cross of two elements": lambda: jnp.linalg.cross(M[0, :2], M[0, :2]),
    "outer of a scalar": lambda: jnp.linalg.outer(M[0], 1.5),
    "hankel of a scalar": lambda: tx.scipy.linalg.hankel(2.5),
    "cho_solve of one array": lambda: tx.scipy.linalg.cho_solve(M[0], M[0]),
    "lu_solve of a scalar": lambda: tx.scipy.linalg.lu_solve(M[0, 0], M[0]),
    "compress by a matrix": lambda: jnp.compress(M > 1, M),
    "compress by a scalar": lambda: jnp.compress(True, M),
    "copy in an unknown order": lambda: jnp.copy(M, "wrong"),
    "einsum_path of arrays": lambda: jnp.einsum_path(M, 7),
    "more elements than memory holds": lambda: jnp.arange(10**30),
    "cond of an empty matrix": lambda: jnp.linalg.cond(M[:0]),
    "hermitian pinv of a wide matrix": lambda: jnp.linalg.pinv(M, hermitian=True),
}


MESSAGES = {"hermitian pinv of a wide matrix": "pinv", "more elements than memory holds": "memory"}


@pytest.mark.parametrize("name", REFUSED)
def test_call_that_numpy_and_jax_refuse_raises_value_error(name: str) -> None:
    with pytest.raises(ValueError, match=MESSAGES.get(name, name.split()[0])):
        REFUSED[name]()


@pytest.mark.parametrize(
    "function",
    [
        lambda: jnp.fabs(M + 1j),
        lambda: jnp.zeros(2, M),
        lambda: jnp.cumsum(M, dtype=jnp.asarray(M)),
        lambda: jnp.cov(M, fweights=jnp.ones(M.shape[1])),
        lambda: jnp.cov(M, ddof=1.5),
        lambda: jnp.unravel_index(1.5, (2, 3)),
    ],
    ids=[
        "fabs of complex numbers",
        "NumPy array as dtype",
        "array as dtype",
        "fweights of cov that are no integers",
        "ddof of cov that is no integer",
        "unravel_index of floats",
    ],
)
def test_call_that_numpy_and_jax_refuse_raises_type_error(function: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"fabs|dtype|fweights|ddof|indices"):
        function()


def test_unravel_index_of_a_bool_gives_integers() -> None:
    found = jnp.unravel_index(jnp.array([True, False]), (2, 3))
    assert [x.dtype.name for x in found] == ["int32"] * 2
    assert [x.tolist() for x in found] == [[0, 0], [1, 0]]


def test_lstsq_rank_is_of_the_default_integer_type() -> None:
    for x64, expected in ((False, np.int32), (True, np.int64)):
        with tx.enable_x64(x64):
            assert jnp.linalg.lstsq(M, M[:, 0])[2].dtype == expected


@pytest.mark.parametrize("period", [3, 4, 5])
@pytest.mark.parametrize("options", [{}, {"discont": 1}, {"discont": 3}])
def test_unwrap_of_integers_with_an_integer_period_equals_numpy(period: int, options: dict[str, int]) -> None:
    p = np.array([0, 1, 2, -1, 0, 7, 12, -20, -18, -20, 2**30 + 1], np.int32)
    expected = np.unwrap(p, period=period, **options)
    for function in (jnp.unwrap, tx.jit(lambda x, **kwargs: jnp.unwrap(x, **kwargs), static_argnames=("period",))):
        found = function(p, period=period, **options)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gammaln_near_its_roots_is_accurate_to_its_type(dtype: Any) -> None:
    with tx.enable_x64(dtype == np.float64):
        x = np.array([0.8, 0.99, 0.9999, 1, 1.00001, 1.001, 1.2, 1.8, 1.99, 2, 2.00001, 2.2], dtype)
        e = x.astype(np.float64) - np.round(x)  # by the Taylor series at the nearer root, DLMF 5.7.3
        order = np.arange(2, 60)[:, None]
        series = ((scipy.special.zetac(order) + (x < 1.5)) * (-e) ** order / order).sum(0)
        expected = series + np.where(x < 1.5, -np.euler_gamma, 1 - np.euler_gamma) * e
        for function in (tx.scipy.special.gammaln, tx.jit(tx.scipy.special.gammaln)):
            np.testing.assert_allclose(function(x), expected, rtol=4 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("name", ["setdiff1d", "union1d", "intersect1d", "setxor1d"])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32])
def test_sets_of_a_size_have_the_type_of_their_arguments(name: str, dtype: Any) -> None:
    x = np.array([0, 1, 0], dtype)
    for function in (getattr(jnp, name), tx.jit(getattr(jnp, name), static_argnames="size")):
        assert function(x, x, size=2).dtype == dtype


def test_setdiff1d_of_distinct_values_keeps_their_order() -> None:
    x = np.array([5, 1, 4, 2])
    difference = np.setdiff1d(x, [1], assume_unique=True).tolist()
    for size in (None, 3, 2):
        found = jnp.setdiff1d(x, jnp.array([1]), assume_unique=True, size=size)
        assert found.tolist() == difference[:size]


def test_unique_values_of_an_empty_array() -> None:
    assert jnp.unique(np.zeros(0, bool), size=0).shape == (0,)
    with pytest.raises(ArgumentError, match="no value to fill 3 places with; give `fill_value`"):
        jnp.unique(np.zeros(0), size=3)


@pytest.mark.parametrize("value", [3, 0])
def test_argwhere_of_a_scalar_has_the_size_that_is_wanted(value: int) -> None:
    assert jnp.argwhere(value).shape == (value > 0, 0)
    assert jnp.argwhere(value, size=2).shape == tx.jit(lambda x: jnp.argwhere(x, size=2))(value).shape == (2, 0)


def test_arguments_have_jax_s_names() -> None:
    x = np.array([1.5, -2.5], np.float32)
    assert jnp.fmax(x1=x, x2=0.0).tolist() == [1.5, 0.0]
    assert jnp.fmin(x1=x, x2=0.0).tolist() == [0.0, -2.5]
    assert jnp.trunc(x=x).tolist() == [1.0, -2.0]
    assert jnp.isreal(x=x).all()
    assert not jnp.iscomplex(x=x).any()
    assert not jnp.isneginf(x, out=None).any()
    assert tx.eval_shape(fun=lambda: jnp.ones(2)).shape == (2,)
