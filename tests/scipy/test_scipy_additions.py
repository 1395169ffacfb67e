"""Functions of `scipy.special`, `scipy.stats` and `scipy.optimize` that are new, against SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import scipy.special
import scipy.stats

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.scipy import optimize, signal, special, stats

RANDOM = np.random.default_rng(0)
PLANE = np.concatenate(
    [RANDOM.normal(size=50) * a + 1j * RANDOM.normal(size=50) * b for a in (0.5, 3, 30) for b in (1e-8, 0.5, 3, 30)]
)
EDGES = np.array([1, 2, 0.5, -0.5, complex(-0.5, -0.0), -1.5, 0, -1, -2, 1e10, -1e-10, 1e5 + 1e5j, -3 + 1e-12j])
LIMITED = "l-bfgs-experimental-do-not-rely-on-this"


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 1e-5), (np.complex128, 1e-13)])
@pytest.mark.parametrize("name", ["loggamma", "wofz", "erfcx"])
def test_functions_of_complex_numbers_equal_scipy(name: str, dtype: Any, tolerance: float) -> None:
    with tx.enable_x64(dtype is np.complex128), np.errstate(all="ignore"):
        x = np.concatenate([PLANE, EDGES]).astype(dtype)
        found, wanted = np.asarray(getattr(special, name)(x)), getattr(scipy.special, name)(x.astype(complex))
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        some = np.isfinite(wanted) & (np.abs(wanted) < 1e30)
        size = np.maximum(np.abs(wanted), 1 if name == "loggamma" else 0)[some]
        assert (np.abs(found - wanted)[some] <= tolerance * size).all()


def test_gamma_and_derivatives_of_complex_numbers_equal_scipy() -> None:
    with tx.enable_x64(True):
        z = np.array([0.3 + 0.4j, -1.2 + 0.5j, 2 - 3j, -2.3 - 0.1j, 1.5 + 0j])
        np.testing.assert_allclose(special.gamma(z), scipy.special.gamma(z), rtol=1e-13)
        slope = tx.jvp(special.loggamma, (z,), (np.ones_like(z),))[1]
        np.testing.assert_allclose(slope, scipy.special.digamma(z), rtol=1e-12)
        step = 1e-5
        for name in ("wofz", "erfcx"):
            function = getattr(special, name)
            difference = (np.asarray(function(z + step)) - np.asarray(function(z - step))) / (2 * step)
            np.testing.assert_allclose(tx.jvp(function, (z,), (np.ones_like(z),))[1], difference, rtol=1e-7)


@pytest.mark.parametrize("x", [-1.5, -1.0, 0.0, 0.5, np.inf, -np.inf, np.nan])
def test_loggamma_of_real_numbers_equals_scipy(x: float) -> None:
    np.testing.assert_allclose(special.loggamma(x), scipy.special.loggamma(x), rtol=2e-6)


def test_spherical_harmonics_equal_scipy() -> None:
    n, m = np.array([0, 1, 2, 5, 10, 10, 3, 7, 30]), np.array([0, -1, 2, -3, 10, -4, 0, 7, -15])
    polar, azimuth = RANDOM.uniform(0, np.pi, 9), RANDOM.uniform(0, 6, 9)
    with tx.enable_x64(True):
        wanted = scipy.special.sph_harm_y(n, m, polar, azimuth)
        np.testing.assert_allclose(special.sph_harm_y(n, m, polar, azimuth), wanted, atol=1e-13)
        compiled = tx.jit(lambda n, t: special.sph_harm_y(n, m, t, azimuth, n_max=30))
        np.testing.assert_allclose(compiled(n, polar), wanted, atol=1e-13)
        slope = tx.jvp(lambda t: special.sph_harm_y(n, m, t, azimuth), (polar,), (np.ones(9),))[1]
        after = scipy.special.sph_harm_y(n, m, polar + 1e-6, azimuth)
        before = scipy.special.sph_harm_y(n, m, polar - 1e-6, azimuth)
        np.testing.assert_allclose(slope, (after - before) / 2e-6, atol=1e-7)
    with pytest.raises(ArgumentError, match="n_max"):
        tx.jit(lambda n: special.sph_harm_y(n, m, polar, azimuth))(n)


def test_second_derivatives_of_gammainc_are_those_of_compiled_functions() -> None:
    with tx.enable_x64(True):
        for outer, inner in ((0, 0), (0, 1), (1, 0)):
            function = tx.grad(tx.grad(special.gammainc, inner), outer)
            np.testing.assert_allclose(function(2.5, 1.5), tx.jit(function)(2.5, 1.5), rtol=1e-9)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("options", [{}, {"weights": True}, {"bw_method": 0.3}, {"bw_method": lambda _: 0.4}])
def test_gaussian_kde_equals_scipy(d: int, options: dict[str, Any]) -> None:
    samples, others, points = (RANDOM.normal(size=(d, n)).astype(np.float32) for n in (30, 20, 7))
    if "weights" in options:
        options = {"weights": RANDOM.uniform(size=30).astype(np.float32)}
    ours, theirs = stats.gaussian_kde(samples, **options), scipy.stats.gaussian_kde(samples, **options)
    mean, spread = np.zeros(d, np.float32), np.eye(d, dtype=np.float32)
    pairs = [
        (ours(points), theirs(points)),
        (tx.jit(lambda density, x: density.logpdf(x))(ours, points), theirs.logpdf(points)),
        (ours.inv_cov, theirs.inv_cov),
        (ours.integrate_gaussian(mean, spread), theirs.integrate_gaussian(mean, spread)),
        (ours.integrate_kde(stats.gaussian_kde(others)), theirs.integrate_kde(scipy.stats.gaussian_kde(others))),
    ]
    if d == 1:
        pairs.append((ours.integrate_box_1d(-0.5, 0.7), theirs.integrate_box_1d(-0.5, 0.7)))
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=3e-4, atol=1e-5)
    assert ours.resample(tx.random.key(0), (4, 5)).shape == (d, 4, 5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: stats.gaussian_kde(np.ones(1)), "multiple elements"),
        (lambda: stats.gaussian_kde(np.arange(3.0), weights=np.ones(2)), "each of 3 samples"),
        (lambda: stats.gaussian_kde(np.arange(3.0)).integrate_box_1d(np.ones(2), 1), "must be scalars"),
        (lambda: stats.gaussian_kde(np.eye(2) + 1).integrate_box_1d(0, 1), "only handles 1D"),
        (lambda: stats.gaussian_kde(np.arange(3.0)).integrate_gaussian(np.ones(2), 1.0), "dimension 1"),
        (lambda: stats.gaussian_kde(np.arange(3.0)).set_bandwidth(0.1), "make another"),
        (lambda: stats.gaussian_kde(np.arange(3.0), "wide"), "bw_method"),
    ],
)
def test_wrong_densities_raise_typed_errors(call: Callable[[], Any], text: str) -> None:
    with pytest.raises((ShapeError, ArgumentError), match=text):
        call()


def test_sem_omits_nan() -> None:
    x = np.array([[1, 2, np.nan, 4], [3, 5, 1, np.nan]], np.float32)
    wanted = scipy.stats.sem(x, axis=1, nan_policy="omit")
    np.testing.assert_allclose(stats.sem(x, 1, nan_policy="omit"), wanted, rtol=1e-6)
    for function in (stats.sem, stats.mode, stats.rankdata):
        with pytest.raises(ArgumentError, match="nan_policy"):
            function(x, nan_policy="raise")


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def test_limited_memory_finds_the_minimum() -> None:
    found = optimize.minimize(rosenbrock, np.zeros(4, np.float32), method=LIMITED)
    assert found.success
    np.testing.assert_allclose(found.x, np.ones(4), atol=1e-3)
    short = tx.jit(lambda x: optimize.minimize(rosenbrock, x, method=LIMITED, options={"maxiter": 2}))(np.zeros(4))
    assert not short.success
    assert int(short.nit) == 2
    with pytest.raises(ArgumentError, match="maxcor"):
        optimize.minimize(rosenbrock, np.zeros(4), method=LIMITED, options={"memory": 3})


def test_limited_memory_takes_complex_unknowns() -> None:
    def function(z: Any) -> Any:
        return tnp.abs(z[0] - (1 + 2j)) ** 2 + 3 * tnp.abs(z[1] - 1j * z[0]) ** 2

    found = optimize.minimize(function, np.zeros(2, np.complex64), method=LIMITED)
    assert found.success
    np.testing.assert_allclose(found.x, np.array([1 + 2j, -2 + 1j]), atol=1e-3)


def test_spherical_harmonics_of_negative_polar_angles_equal_scipy() -> None:
    m = np.arange(-3, 4)
    with tx.enable_x64():
        for polar in (-1.2, 4.0):
            found = special.sph_harm_y(abs(m), m, np.full(7, polar), np.full(7, 0.3))
            np.testing.assert_allclose(found, scipy.special.sph_harm_y(abs(m), m, polar, 0.3), atol=1e-13)


def test_discrete_families_name_their_number_k() -> None:
    assert float(stats.binom.pmf(k=1, n=2, p=0.5)) == pytest.approx(0.5)
    assert float(stats.poisson.cdf(k=0, mu=1.0)) == pytest.approx(np.exp(-1))


def test_poisson_entropy_broadcasts_mu_with_loc() -> None:
    found = stats.poisson.entropy(np.array([1.0, 2.0]), np.zeros((3, 1)))
    np.testing.assert_allclose(found, scipy.stats.poisson.entropy(np.array([1.0, 2.0]), np.zeros((3, 1))), rtol=1e-5)


def test_multinomial_takes_counts_under_strict_promotion() -> None:
    with tx.numpy_dtype_promotion("strict"):
        found = stats.multinomial.pmf(np.array([1, 1], np.int32), np.int32(2), np.array([0.5, 0.5], np.float32))
    assert float(found) == pytest.approx(0.5)


@pytest.mark.parametrize("size", [1, 8, 9])
def test_stft_with_triangles_and_odd_boundary_equals_scipy(size: int) -> None:
    x = RANDOM.normal(size=40)
    options: dict[str, Any] = {"window": "triang", "nperseg": size, "noverlap": 0, "boundary": "odd"}
    with tx.enable_x64():
        for found, wanted in zip(signal.stft(x, **options), scipy.signal.stft(x, **options), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve", "convolve2d", "correlate2d"])
def test_valid_mode_takes_the_larger_array_first_or_second(name: str) -> None:
    mine, theirs = getattr(signal, name), getattr(scipy.signal, name)
    a, b = RANDOM.normal(size=(2, 2)), RANDOM.normal(size=(5, 2))
    for x, y in ((a, b), (b, a), (a[:1], b)):
        np.testing.assert_allclose(mine(x, y, mode="valid"), theirs(x, y, mode="valid"), atol=1e-5)
    with pytest.raises(ShapeError, match="as large as the other along all axes"):
        mine(b, np.ones((1, 3)), mode="valid")


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (stats.norm.logpdf, (0.5,)),
        (stats.poisson.cdf, (2, 1.5, 1)),
        (stats.gamma.sf, (0.5, 1.5)),
        (special.factorial, (3,)),
        (special.comb, (5, 2)),
        (special.polygamma, (1, 2)),
        (special.xlogy, (0.5, 2)),
        (special.xlog1py, (0.5, 2)),
        (special.rel_entr, (0.5, 2)),
        (lambda x: tx.numpy.modf(x)[0], (1.5,)),
    ],
)
def test_results_for_python_numbers_are_weakly_typed(function: Callable[..., Any], args: tuple[float, ...]) -> None:
    assert function(*args).weak_type
    assert not function(*map(np.float32, args)).weak_type


@pytest.mark.parametrize("name", ["dctn", "idctn"])
def test_transforms_with_lengths_alone_are_along_the_last_axes(name: str) -> None:
    x = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
    for s in ((5,), (2, 6)):
        wanted = getattr(scipy.fft, name)(x, s=s)
        np.testing.assert_allclose(getattr(tx.scipy.fft, name)(x, s=s), wanted, rtol=1e-4, atol=1e-5)
