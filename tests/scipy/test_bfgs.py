"""BFGS: where it converges, and what it reports where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import numpy as tnp
from tinyxla.scipy.optimize import minimize

Function = Callable[..., Any]

PLACES = np.linspace(0, 5, 20).astype(np.float32)


def negative_log_likelihood(xp: Any, library: Any, observed: Any) -> Function:
    """Of a Gaussian process with a squared exponential kernel, by its log length scale, log amplitude and log noise."""

    def function(parameters: Any) -> Any:
        scale, amplitude, noise = (xp.exp(parameters[k]) for k in range(3))
        distances = (PLACES[:, None] - PLACES[None]) / scale
        covariance = amplitude * xp.exp(-0.5 * distances**2) + noise * xp.eye(PLACES.size)
        factor = xp.linalg.cholesky(covariance)
        whitened = library.scipy.linalg.solve_triangular(factor, observed, lower=True)
        constant = 0.5 * PLACES.size * np.log(2 * np.pi)
        return 0.5 * whitened @ whitened + xp.log(xp.diagonal(factor)).sum() + constant

    return function


def observations(amplitude: float) -> Any:
    random = np.random.RandomState(0)
    return (amplitude * (np.sin(PLACES * 1.7) + 0.1 * random.randn(PLACES.size))).astype(np.float32)


@pytest.mark.parametrize(
    ("amplitude", "expected"), [(1.0, -4.2461), (10.0, 41.8056)], ids=["unit amplitude", "large amplitude"]
)
def test_gaussian_process_likelihood_from_zeros_reaches_the_minimum_and_not_a_plateau(
    amplitude: float, expected: float
) -> None:
    function = negative_log_likelihood(tnp, tx, observations(amplitude))
    found = minimize(function, np.zeros(3, np.float32), method="BFGS")
    assert float(found.fun) == pytest.approx(expected, abs=2e-3)
    assert bool(found.success) == (float(tnp.abs(found.jac).max()) <= 1e-5)
    assert int(found.status) in ((0,) if found.success else (3,))


@pytest.mark.thorough
def test_gaussian_process_likelihood_is_at_least_as_low_as_that_of_jax() -> None:
    jax = pytest.importorskip("jax")
    from jax.scipy.optimize import minimize as jax_minimize

    for amplitude in (1.0, 10.0):
        given = observations(amplitude)
        start = np.zeros(3, np.float32)
        found = minimize(negative_log_likelihood(tnp, tx, given), start, method="BFGS")
        expected = jax_minimize(negative_log_likelihood(jax.numpy, jax, given), jax.numpy.asarray(start), method="BFGS")
        assert float(found.fun) <= float(expected.fun) + 1e-3


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def himmelblau(p: Any) -> Any:
    return (p[0] ** 2 + p[1] - 11) ** 2 + (p[0] + p[1] ** 2 - 7) ** 2


def matyas(p: Any) -> Any:
    return 0.26 * (p[0] ** 2 + p[1] ** 2) - 0.48 * p[0] * p[1]


def beale(p: Any) -> Any:
    x, y = p[0], p[1]
    return (1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2 + (2.625 - x + x * y**3) ** 2


def zakharov(x: Any) -> Any:
    total = (0.5 * tnp.arange(1, x.size + 1) * x).sum()
    return (x**2).sum() + total**2 + total**4


def scaled(x: Any) -> Any:
    return ((x - 3) ** 2 * tnp.asarray([1.0, 100.0, 1e4])).sum()


CONVERGENT: dict[str, tuple[Function, list[float], list[float]]] = {
    "Rosenbrock of two": (rosenbrock, [0.0, 0.0], [1.0, 1.0]),
    "Rosenbrock from the other side": (rosenbrock, [-1.2, 1.0], [1.0, 1.0]),
    "Rosenbrock of five": (rosenbrock, [0.0] * 5, [1.0] * 5),
    "Himmelblau": (himmelblau, [1.0, 1.0], [3.0, 2.0]),
    "Himmelblau from zeros": (himmelblau, [0.0, 0.0], [3.0, 2.0]),
    "Matyas": (matyas, [6.0, 6.0], [0.0, 0.0]),
    "Beale": (beale, [1.0, 1.0], [3.0, 0.5]),
    "Zakharov": (zakharov, [1.0] * 4, [0.0] * 4),
    "badly scaled": (scaled, [0.0] * 3, [3.0] * 3),
    "large values": (lambda x: 1e6 * ((x - 1) ** 2).sum(), [0.0, 0.0], [1.0, 1.0]),
    "logarithm": (lambda x: tnp.log1p((x**2).sum()), [3.0, 4.0], [0.0, 0.0]),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", CONVERGENT)
def test_minimum_is_found(name: str) -> None:
    function, start, expected = CONVERGENT[name]
    found = tx.jit(lambda x: minimize(function, x, method="BFGS"))(np.asarray(start, np.float32))
    assert found.success
    assert int(found.status) == 0
    np.testing.assert_allclose(found.x, expected, atol=2e-4)
    assert int(found.nfev) <= 2 * int(found.nit) + 12


UNSUCCESSFUL: dict[str, tuple[Function, list[float]]] = {
    "unbounded": (lambda x: x.sum(), [0.0, 0.0]),
    "concave": (lambda x: -(x**2).sum(), [0.1, 0.2]),
    "NaN at the start": (lambda x: tnp.log(x).sum(), [-1.0, -1.0]),
    "NaN along the step": (lambda x: tnp.log(x).sum() + (x**2).sum(), [0.1, 2.0]),
    "kink": (lambda x: tnp.abs(x).sum(), [1.0, 2.0]),
}


@pytest.mark.parametrize("name", UNSUCCESSFUL)
def test_line_search_without_an_acceptable_length_is_no_success(name: str) -> None:
    function, start = UNSUCCESSFUL[name]
    found = minimize(function, np.asarray(start, np.float32), method="BFGS")
    assert not found.success
    assert int(found.status) == 3
    np.testing.assert_array_equal(found.fun, function(found.x))


def test_first_trial_is_no_longer_than_the_gradient_is_steep() -> None:
    """A step of the gradient's own length leaves the valley for the plateau of tanh."""
    tried: list[float] = []

    def function(x: Any) -> Any:
        tx.debug.callback(lambda v: tried.append(float(v[0])), x)
        return tnp.tanh(100 * x[0]) ** 2

    found = minimize(function, np.full(1, 0.01, np.float32), method="BFGS")
    assert found.success
    assert float(found.fun) < 1e-8
    assert max(map(abs, tried)) < 2.0


def test_number_of_trials_is_that_of_the_calls() -> None:
    tried: list[float] = []

    def function(x: Any) -> Any:
        tx.debug.callback(lambda v: tried.append(float(v[0])), x)
        return rosenbrock(x)

    found = minimize(function, np.zeros(2, np.float32), method="BFGS", options={"maxiter": 5})
    assert (int(found.nit), int(found.status), bool(found.success)) == (5, 1, False)
    assert int(found.nfev) == len(tried)
    few = minimize(lambda x: x.sum(), np.zeros(2), method="BFGS", options={"line_search_maxiter": 4})
    assert int(few.nfev) == 5


def test_steps_in_double_precision_are_those_of_scipy_for_a_quadratic_function() -> None:
    import scipy.optimize as reference

    tx.config.update("enable_x64", True)
    try:
        found = minimize(lambda x: (x * x * tnp.arange(1.0, 5.0)).sum(), np.ones(4), method="BFGS")
    finally:
        tx.config.update("enable_x64", False)
    expected = reference.minimize(lambda x: (x * x * np.arange(1.0, 5.0)).sum(), np.ones(4), method="BFGS")
    np.testing.assert_allclose(found.x, expected.x, atol=1e-5)
    assert abs(int(found.nit) - expected.nit) <= 3


@pytest.mark.parametrize("curvature", [1e-5, 1e8])
def test_first_estimate_is_scaled_to_an_extreme_curvature(curvature):
    found = minimize(lambda x: curvature * (x**2).mean(), tnp.ones(2), method="BFGS", tol=1e-9)
    assert bool(found.success)
    np.testing.assert_allclose(found.x, [0, 0], atol=1e-3)
    np.testing.assert_allclose(np.diag(found.hess_inv), 1 / curvature, rtol=1e-3)
