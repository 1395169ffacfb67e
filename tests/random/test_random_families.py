"""Distributions made of others, number by number against `jax.random`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import errors, random

KEY = np.array([0, 7], np.uint32)
MEAN, COVARIANCE = np.array([1.0, 2], np.float32), np.array([[2.0, 0.5], [0.5, 1]], np.float32)
CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("gamma", (2.5, (20,))),
    ("gamma", (0.3, (20,))),
    ("loggamma", (np.array([0.1, 3.0], np.float32),)),
    ("beta", (2.0, 0.5, (20,))),
    ("dirichlet", (np.array([0.5, 1, 2], np.float32), (6,))),
    ("chisquare", (3.0, (9,))),
    ("f", (3.0, 4.0, (9,))),
    ("t", (3.0, (9,))),
    ("generalized_normal", (3.0, (9,))),
    ("ball", (3, 1, (5,))),
    ("multivariate_normal", (MEAN, COVARIANCE, (4,))),
    ("orthogonal", (3, (2,))),
    ("orthogonal", (2, (), None, 4)),
    ("maxwell", ((4,),)),
    ("double_sided_maxwell", (1.0, 2.0, (4,))),
    ("wald", (2.0, (9,))),
    ("pareto", (2.0, (9,))),
    ("rayleigh", (2.0, (9,))),
    ("weibull_min", (1.0, 2.0, (5,))),
    ("triangular", (0.0, 1.0, 3.0, (9,))),
    ("geometric", (0.3, (9,))),
    ("geometric", (np.array([0.1, 0.9], np.float32),)),
    ("binomial", (10, 0.3, (40,))),
    ("binomial", (20, 0.5, (40,))),
    ("binomial", (20.5, 0.5, (40,))),
    ("binomial", (100.0, 0.5, (40,))),
    ("binomial", (np.array([0, 5, 50, 1000, -1, 5, 5], np.float32), np.array([0.5, 0, 1, 0.7, 0.5, 1.5, np.nan]))),
    ("poisson", (3.0, (30,))),
    ("poisson", (40.0, (30,))),
    ("poisson", (np.array([0.0, 5, 100], np.float32),)),
]


@pytest.mark.sample(every=8)
@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_numbers_are_those_of_jax(name: str, arguments: tuple[Any, ...]) -> None:
    found = np.asarray(getattr(random, name)(KEY, *arguments))
    expected = np.asarray(getattr(jax.random, name)(jax.random.PRNGKey(7), *arguments))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


@pytest.mark.thorough
def test_multinomial_numbers_are_those_of_jax() -> None:
    chances = np.array([[0.2, 0.3, 0.5, 0], [1, 0, 0, 0]], np.float32)
    for n, p in ((np.array([100, 7]), chances), (30.0, chances[0]), (30, chances[0])):
        found = np.asarray(random.multinomial(KEY, n, p))
        expected = np.asarray(jax.random.multinomial(jax.random.PRNGKey(7), n, p))
        np.testing.assert_array_equal(found, expected, strict=True)
        assert (found.sum(-1) == n).all()
    for p, shape in ((chances, (5, 2, 4)), (chances[0], (3, 4))):
        found = np.asarray(random.multinomial(KEY, 7, p, shape=shape))
        assert found.shape == shape
        assert (found.sum(-1) == 7).all()


def gamma(m: Any, key: Any) -> Any:
    return m.grad(lambda a: m.random.gamma(key, a, (5,)).sum())


def beta(m: Any, key: Any) -> Any:
    return m.grad(lambda a: m.random.beta(key, a, 1.0, (5,)).sum())


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(("gradient", "ours", "at"), [(gamma, tx.jit(gamma(tx, KEY)), 2.5), (beta, beta(tx, KEY), 0.5)])
def test_gamma_and_beta_are_differentiable(gradient: Any, ours: Any, at: float) -> None:
    theirs = jax.jit(gradient(jax, jax.random.PRNGKey(7)))(at)
    np.testing.assert_allclose(float(ours(at)), float(theirs), 1e-4)


@pytest.mark.parametrize("method", ["eigh", "svd"])
def test_multivariate_normal_by_other_roots(method: str) -> None:
    x = np.asarray(random.multivariate_normal(KEY, MEAN, COVARIANCE, (4000,), method=method))
    np.testing.assert_allclose(x.mean(0), MEAN, atol=0.1)
    np.testing.assert_allclose(np.cov(x.T), COVARIANCE, atol=0.15)


COMPLEX = 0.5 + 1j
COMPLEX_PARAMETERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        "bernoulli chisquare gamma geometric loggamma lognormal pareto poisson rayleigh t wald".split(), (COMPLEX,)
    ),
    "beta": (1.0, COMPLEX),
    "binomial": (3.0, COMPLEX),
    "dirichlet": (np.array([1, COMPLEX]),),
    "f": (1.0, COMPLEX),
    "multinomial": (3, np.array([0.5, COMPLEX])),
    "multivariate_normal": (np.array([1, COMPLEX]), np.eye(2)),
    "triangular": (0.0, COMPLEX, 1.0),
    "truncated_normal": (COMPLEX, 3.0),
}


@pytest.mark.parametrize("name", COMPLEX_PARAMETERS)
def test_parameters_are_real(name: str) -> None:
    with pytest.raises(errors.DTypeError, match="the parameters are real numbers, but got c64"):
        getattr(random, name)(KEY, *COMPLEX_PARAMETERS[name])


def test_refusals() -> None:
    with pytest.raises(errors.AttributeValueError, match="method must be"):
        random.multivariate_normal(KEY, MEAN, COVARIANCE, method="lu")
    with pytest.raises(errors.ShapeError, match=r"\(\.\.\., n, n\)"):
        random.multivariate_normal(KEY, MEAN, np.eye(3))
    with pytest.raises(errors.ShapeError, match="at least one dimension"):
        random.dirichlet(KEY, 1.0)
    with pytest.raises(errors.ShapeError, match="the outcomes"):
        random.multinomial(KEY, 3, 1.0)
    with pytest.raises(errors.DTypeError, match="integers"):
        random.poisson(KEY, 1.0, dtype="float32")
    with pytest.raises(errors.AttributeValueError, match="p must be positive, but got 0"):
        random.ball(KEY, 3, 0)
    with pytest.raises(errors.AttributeValueError, match="threefry2x32"):
        random.key(0, impl="mersenne")
    assert random.gamma(KEY, np.ones(0, np.float32)).shape == (0,)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("parameter", [-1.0, np.nan, -np.inf])
def test_parameters_of_no_distribution_end_in_nan(parameter: float) -> None:
    """And not in candidates that are rejected for ever."""
    for draw in (random.gamma, random.loggamma, lambda *args: random.beta(*args[:2], 2.0, *args[2:])):
        assert np.isnan(draw(KEY, parameter, (3,))).all()
    assert np.isnan(random.dirichlet(KEY, np.array([parameter, 1.0], np.float32))).all()
    assert np.isnan(random.binomial(KEY, parameter, 0.3, (3,))).all()
    assert np.isnan(random.binomial(KEY, 10.0, parameter, (3,))).all()


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_functions_of_random_numbers_do_not_promote_ranks(method: str) -> None:
    with tx.numpy_rank_promotion("raise"):
        found = random.multivariate_normal(random.key(0), np.zeros(2), np.eye(2), (5,), method=method)
        keys = random.split(random.key(0, impl="rbg"), 3)
        bits = tx.vmap(lambda key: random.bits(key, (4,)))(keys)
    assert (found.shape, bits.shape) == ((5, 2), (3, 4))


def test_limits_beyond_the_type_that_numbers_are_drawn_in_are_errors() -> None:
    for limits in ((-(2**31) - 1, 0), (0, 2**31 + 1)):
        with pytest.raises(errors.NumberRangeError, match="the limits of s32"):
            random.randint(random.key(0), (2,), *limits)
    assert random.randint(random.key(0), (2,), -(2**31), 2**31).shape == (2,)


def test_permutation_of_a_number_that_numpy_holds() -> None:
    key = random.key(0)
    np.testing.assert_array_equal(random.permutation(key, np.array(5)), random.permutation(key, 5))
    np.testing.assert_array_equal(random.permutation(key, tx.numpy.array(5)), random.permutation(key, 5))
    with pytest.raises(errors.AxisError):
        random.permutation(key, 5, axis=1)
    with pytest.raises(errors.ConcretizationError):
        tx.jit(random.permutation)(key, 5)
