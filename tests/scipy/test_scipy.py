"""`tinyxla.scipy.stats` and `signal`, `tinyxla.image`, against SciPy and JAX."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import jax
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats

import tinyxla as tx
from tinyxla import image
from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.scipy import cluster, linalg, signal, special, stats

REAL = np.linspace(-3, 4, 29).astype(np.float32)
WHOLE = np.arange(-2, 8)
CHANCES = np.array([1e-20, 1e-5, 0.1, 0.5, 0.9], np.float32)
CONTINUOUS: dict[str, tuple[float, ...]] = {
    "norm": (),
    "uniform": (),
    "expon": (),
    "cauchy": (),
    "laplace": (),
    "logistic": (),
    "gumbel_r": (),
    "gumbel_l": (),
    "pareto": (2.0,),
    "gamma": (2.5,),
    "chi2": (3.0,),
    "beta": (2.0, 0.7),
    "t": (3.0,),
    "gennorm": (1.5,),
    "truncnorm": (-1.0, 2.0),
    "vonmises": (1.2,),
    "wrapcauchy": (0.4,),
}
DISCRETE: dict[str, tuple[float, ...]] = {
    "bernoulli": (0.3,),
    "binom": (5, 0.3),
    "betabinom": (5, 1.5, 2.0),
    "nbinom": (3, 0.4),
    "geom": (0.3,),
    "poisson": (1.7,),
}


def _close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    found, expected, shapes = getattr(stats, name), getattr(scipy.stats, name), CONTINUOUS[name]
    place = () if name == "vonmises" else (0.3, 1.7)  # SciPy takes its angles modulo a turn
    for method in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"):
        if hasattr(found, method):
            with np.errstate(all="ignore"):
                wanted = getattr(expected, method)(REAL.astype(float), *shapes, *place)
            _close(getattr(found, method)(REAL, *shapes, *place), wanted)
    for method in ("ppf", "isf"):
        if hasattr(found, method):
            _close(
                getattr(found, method)(CHANCES, *shapes, *place), getattr(expected, method)(CHANCES, *shapes, *place)
            )
            assert np.isnan(getattr(found, method)(np.float32(1.5), *shapes, *place))


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_functions_of_distributions_have_jax_s_parameters(name: str) -> None:
    ours, theirs = getattr(stats, name), getattr(jax.scipy.stats, name)
    for method in ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "pmf", "logpmf"):
        if not hasattr(theirs, method):
            continue
        wanted = list(inspect.signature(getattr(theirs, method)).parameters.values())
        found = list(inspect.signature(getattr(ours, method)).parameters.values())[: len(wanted)]
        assert [(p.name, p.kind, p.default) for p in found] == [(p.name, p.kind, p.default) for p in wanted], method


def test_quantiles_take_their_argument_by_name() -> None:
    assert stats.norm.ppf(q=0.5, loc=1) == 1
    assert stats.gumbel_l.ppf(p=0.5) == stats.gumbel_l.ppf(0.5)
    with pytest.raises(ArgumentError, match="the arguments are \\(q, loc=0, scale=1\\)"):
        stats.norm.ppf(x=0.5)
    with pytest.raises(ArgumentError, match="allow_singular must be None, but got True"):
        stats.multivariate_normal.logpdf(np.zeros(2), np.zeros(2), np.eye(2), allow_singular=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    found, expected, shapes = getattr(stats, name), getattr(scipy.stats, name), DISCRETE[name]
    for method in ("logpmf", "pmf", "cdf"):
        if hasattr(found, method):
            _close(getattr(found, method)(WHOLE, *shapes, loc=1), getattr(expected, method)(WHOLE, *shapes, loc=1))
    assert found.pmf(0.5, *shapes) == 0


def test_bernoulli_quantiles() -> None:
    q, p = np.float32([0.0, 0.2, 0.6, 1.0, 0.5, 1.5, -0.1, np.nan]), np.float32([0.5] * 4 + [1.5] + [0.5] * 3)
    expected = jax.scipy.stats.bernoulli.ppf(q, p)
    np.testing.assert_array_equal(stats.bernoulli.ppf(q, p), expected)
    np.testing.assert_array_equal(tx.jit(stats.bernoulli.ppf)(q, p), expected)


def test_entropy_of_poisson_numbers() -> None:
    """SciPy's own sums end too early for large means."""
    means = np.array([0.0, 1e-3, 0.5, 3.0, 40.0, 99.0, 101.0, 1e3])
    numbers = np.arange(2000)
    masses = scipy.stats.poisson.pmf(numbers, means[:, None])
    expected = scipy.special.entr(masses).sum(-1)
    _close(stats.poisson.entropy(means.astype(np.float32), loc=3), expected)
    with tx.enable_x64():
        _close(tx.jit(stats.poisson.entropy)(means), expected, 1e-8)
        slope = tx.vmap(tx.grad(stats.poisson.entropy))(means[2:])
        step = 1e-4 * means[2:]
        masses = [scipy.stats.poisson.pmf(numbers, (means[2:] + h)[:, None]) for h in (-step, step)]
        before, after = (scipy.special.entr(m).sum(-1) for m in masses)
        _close(slope, (after - before) / (2 * step), 1e-5)
    assert np.isnan(float(stats.poisson.entropy(-1.0)))


def test_combinations() -> None:
    things, chosen = (part.ravel() for part in np.meshgrid([-3.0, 0, 1, 5, 5.5, 30], [-1.0, 0, 1, 2.5, 5, 6, 15]))
    for repetition in (False, True):
        expected = np.nan_to_num(scipy.special.comb(things, chosen, repetition=repetition))  # of none, too
        with tx.enable_x64():
            _close(special.comb(things, chosen, repetition=repetition), expected, 1e-10)
        found = tx.jit(lambda n, k, r=repetition: special.comb(n, k, repetition=r))(things, chosen)
        _close(found, expected, 1e-4)
    for arguments in ((5.5, 2.0), (5.0, 0.0), (3.0, 3.0)):
        slopes = tx.grad(special.comb, (0, 1))(*arguments)
        _close(slopes, jax.grad(jax.scipy.special.comb, (0, 1))(*arguments), 1e-3)
    assert float(special.comb(7.0, 0.0)) == 1


@pytest.mark.parametrize("order", [1, 2])
def test_polygamma_and_its_slope_are_zero_at_infinity(order: int) -> None:
    for transform in (tx.jit, lambda f: f):
        assert float(transform(lambda x: special.polygamma(order, x))(np.inf)) == 0
        assert float(transform(tx.grad(lambda x: special.polygamma(order, x)))(np.inf)) == 0
    assert float(tx.jit(special.zeta)(2.0, np.inf)) == 0


def test_tails_and_derivatives() -> None:
    far = np.array([-30.0, -11.0, -9.9, 0.0, 9.0], np.float32)
    _close(special.log_ndtr(far), scipy.special.log_ndtr(far.astype(float)))
    _close(special.ndtri(np.float32([1e-30, 1e-3, 0.9])), scipy.special.ndtri([1e-30, 1e-3, 0.9]))
    slopes = jax.jit(jax.vmap(jax.grad(jax.scipy.special.log_ndtr)))(far)
    _close(tx.vmap(tx.grad(special.log_ndtr))(far), slopes, 1e-4)
    mine = tx.grad(lambda *p: stats.gamma.logpdf(REAL[20:], p[0], p[1], p[2]).sum(), (0, 1, 2))
    theirs = jax.jit(jax.grad(lambda *p: jax.scipy.stats.gamma.logpdf(REAL[20:], *p).sum(), (0, 1, 2)))
    _close(mine(2.5, 0.1, 1.5), theirs(2.5, 0.1, 1.5), 1e-4)
    outside = tx.grad(lambda scale: tx.numpy.exp(stats.expon.logpdf(REAL, 0.0, scale)).sum())(1.0)
    assert np.isfinite(outside)  # what is outside of the support has no part in the derivative


def test_vectors_and_samples() -> None:
    random = np.random.default_rng(0)
    data = random.normal(size=(2, 30))
    mean, covariance = np.array([0.0, 1.0]), np.cov(data)
    _close(
        stats.multivariate_normal.logpdf(data.T, mean, covariance),
        scipy.stats.multivariate_normal.logpdf(data.T, mean, covariance),
    )
    normals = scipy.stats.multivariate_normal.logpdf(data[0], 1, 2.0)  # of numbers
    _close(stats.multivariate_normal.logpdf(data[0], 1, 2.0), normals)
    x, alpha = np.array([0.2, 0.3, 0.5]), np.array([1.0, 2.0, 3.0])
    _close(stats.dirichlet.logpdf(x, alpha), scipy.stats.dirichlet.logpdf(x, alpha))
    _close(stats.dirichlet.logpdf(x[:2], alpha), scipy.stats.dirichlet.logpdf(x, alpha))
    _close(stats.multinomial.logpmf(np.array([1, 2, 3]), 6, x), scipy.stats.multinomial.logpmf([1, 2, 3], 6, x))
    weights = np.arange(1.0, 31.0)
    for how in ("scott", "silverman", 0.4):
        mine, theirs = stats.gaussian_kde(data, how, weights), scipy.stats.gaussian_kde(data, how, weights)
        _close(mine(data[:, :5]), theirs(data[:, :5]), 1e-4)
    numbers = random.integers(0, 5, (6, 4))
    for axis in (0, 1, None):
        mine, theirs = stats.mode(numbers, axis), scipy.stats.mode(numbers, axis)
        np.testing.assert_array_equal(mine.mode, theirs.mode)
        np.testing.assert_array_equal(mine.count, theirs.count)
        _close(stats.sem(numbers, axis), scipy.stats.sem(numbers, axis))
        for method in ("average", "min", "max", "dense", "ordinal"):
            ranks = scipy.stats.rankdata(numbers, method, axis=axis)
            np.testing.assert_array_equal(np.ravel(stats.rankdata(numbers, method, axis=axis)), np.ravel(ranks))


SPECIAL: dict[str, tuple[Any, ...]] = {
    "gamma": (REAL + 0.25,),
    "gammasgn": (REAL + 0.25,),
    "factorial": (np.arange(6),),
    "beta": (np.abs(REAL) + 0.25, 1.5),
    "poch": (np.abs(REAL) + 0.1, 1.5),
    "polygamma": (2, np.abs(REAL) + 0.1),
    "zeta": (np.abs(REAL) + 1.1, 1.3),
    "i0": (REAL,),
    "i1": (REAL,),
    "rel_entr": (REAL, 1.0),
    "kl_div": (REAL, 0.5),
    "boxcox": (np.abs(REAL) + 0.1, 0.3),
    "boxcox1p": (np.abs(REAL), 0.0),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special(name: str) -> None:
    args = SPECIAL[name]
    wide = [a.astype(float) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in args]
    _close(getattr(special, name)(*args), getattr(scipy.special, name)(*wide), 5e-5)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_filters(mode: str) -> None:
    random = np.random.default_rng(1)
    for name in ("convolve", "correlate", "fftconvolve", "convolve2d", "correlate2d"):
        for m, n in (((9,), (4,)), ((6, 5), (2, 3)), ((7, 8), (4, 4)), ((3, 4, 5), (2, 2, 2))):
            if name.endswith("2d") and len(m) != 2:
                continue
            x, y = random.normal(size=m), random.normal(size=n)
            for turned in (0.0, 1j):
                expected = getattr(scipy.signal, name)(x + turned, y - turned, mode)
                found = getattr(signal, name)(x + turned, y - turned, mode)
                assert found.shape == expected.shape
                np.testing.assert_allclose(found, expected, atol=1e-4)
    long = random.normal(size=5000), random.normal(size=2000)
    np.testing.assert_allclose(signal.convolve(*long, mode), scipy.signal.convolve(*long, mode), atol=1e-2)


def test_detrend_and_matrices() -> None:
    x = np.random.default_rng(2).normal(size=(6, 7))
    for how in ("linear", "constant"):
        np.testing.assert_allclose(signal.detrend(x, 0, how), scipy.signal.detrend(x, 0, how), atol=1e-5)
    np.testing.assert_allclose(signal.detrend(x, 1, bp=[3]), scipy.signal.detrend(x, 1, bp=[3]), atol=1e-5)
    for side in ("right", "left"):
        for mine, theirs in zip(linalg.polar(x, side), scipy.linalg.polar(x, side), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-4)


SEGMENTS: list[dict[str, Any]] = [
    {"nperseg": 64},
    {"nperseg": 50, "noverlap": 10, "window": "hamming", "fs": 10.0},
    {"nperseg": 64, "nfft": 100, "window": "blackman"},
    {"nperseg": 32, "return_onesided": False, "window": ("kaiser", 3.0)},
    {"nperseg": 31, "window": np.hanning(31)},
]


@pytest.mark.parametrize("given", SEGMENTS, ids=str)
def test_spectra(given: dict[str, Any]) -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 3, 300))

    def agree(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=1e-4)

    for more in ({}, {"boundary": None, "padded": False}, {"boundary": "even", "detrend": "linear"}):
        agree(signal.stft(x, **given, **more), scipy.signal.stft(x, **given, **more))
    agree(
        signal.stft(x.T, axis=0, boundary="constant", **given),
        scipy.signal.stft(x.T, axis=0, boundary="constant", **given),
    )
    back = {n: v for n, v in given.items() if n != "return_onesided"} | {
        "input_onesided": given.get("return_onesided", True)
    }
    transforms = np.asarray(signal.stft(x, **given)[2])
    agree(signal.istft(transforms[0], **back), scipy.signal.istft(transforms[0], **back))
    found = signal.istft(np.swapaxes(transforms, -1, -2), time_axis=1, freq_axis=2, **back)
    agree(found[1:], scipy.signal.istft(transforms, **back)[1:])
    for more in ({}, {"scaling": "spectrum", "average": "median"}, {"detrend": False}, {"detrend": "linear"}):
        agree(signal.welch(x, **given, **more), scipy.signal.welch(x, **given, **more))
        agree(signal.csd(x, y, **given, **more), scipy.signal.csd(x, y, **given, **more))
    agree(signal.csd(x.T, y.T[:280], axis=0, **given), scipy.signal.csd(x.T, y.T[:280], axis=0, **given))


def test_spectra_of_whole_signals_and_their_derivatives() -> None:
    x = np.random.default_rng(5).normal(size=300).astype(np.float32)
    for mine, theirs in zip(signal.welch(x), jax.jit(jax.scipy.signal.welch)(x), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    found = tx.jit(tx.grad(lambda x: signal.istft(signal.stft(x, nperseg=64)[2], nperseg=64)[1][40]))(x)
    np.testing.assert_allclose(found, np.eye(300)[40], atol=1e-5)  # back and forth is the identity


def test_special_matrices() -> None:
    x = np.random.default_rng(6).normal(size=5)
    for name, args in (
        ("circulant", (x,)),
        ("hankel", (x,)),
        ("hankel", (x, x[1:4])),
        ("companion", (x,)),
        ("leslie", (x, x[1:])),
        ("hilbert", (4,)),
        ("hadamard", (8,)),
        ("dft", (6,)),
        ("dft", (6, "n")),
        ("dft", (6, "sqrtn")),
        *(("pascal", (5, kind)) for kind in ("symmetric", "lower", "upper")),
    ):
        np.testing.assert_allclose(getattr(linalg, name)(*args), getattr(scipy.linalg, name)(*args), atol=1e-5)
    many = np.stack([x, x + 1])
    for name, args in (("circulant", (many,)), ("companion", (many,)), ("leslie", (many, many[:, 1:]))):
        found = getattr(linalg, name)(*args)
        np.testing.assert_allclose(found[1], getattr(linalg, name)(*(a[1] for a in args)), atol=1e-5)
    with pytest.raises(ArgumentError, match="power of 2"):
        linalg.hadamard(6)
    with pytest.raises(ShapeError, match="two coefficients"):
        linalg.companion(np.ones(1))
    with pytest.raises(ShapeError, match="one longer"):
        linalg.leslie(np.ones(3), np.ones(3))


def test_nearest_codes() -> None:
    x = np.random.default_rng(7).normal(size=(20, 3))
    for rows, codes in ((x, x[:4] + 0.1), (x[:, 0], x[:3, 1])):
        for mine, theirs in zip(cluster.vq.vq(rows, codes), scipy.cluster.vq.vq(rows, codes), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
    with pytest.raises(ShapeError, match="one length"):
        cluster.vq.vq(x, x[:, :2])


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area"])
def test_resize(method: str) -> None:
    x = np.random.default_rng(3).normal(size=(7, 9, 3)).astype(np.float32)
    ways = list(itertools.product(((14, 18, 3), (3, 5, 3), (10, 4, 3), (7, 9, 5)), (True, False)))
    wanted = jax.jit(lambda x: [jax.image.resize(x, sizes, method, antialias) for sizes, antialias in ways])(x)
    for (sizes, antialias), expected in zip(ways, wanted, strict=True):
        found = image.resize(x, sizes, method, antialias)
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=f"{sizes} {antialias}")
    if method != "nearest":
        place = (np.array([1.3, 0.7], np.float32), np.array([0.5, -1.0], np.float32))
        found = tx.jit(lambda s, t: image.scale_and_translate(x, (8, 8, 3), (0, 1), s, t, method))(*place)
        expected = jax.image.scale_and_translate(x, (8, 8, 3), (0, 1), *place, method)
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_mistakes() -> None:
    with pytest.raises(ArgumentError, match="window must be"):
        signal.stft(np.ones(9), window="gauss", nperseg=4)
    with pytest.raises(ArgumentError, match="noverlap < nperseg"):
        signal.welch(np.ones(9), nperseg=4, noverlap=4)
    with pytest.raises(ArgumentError, match="scaling must be"):
        signal.csd(np.ones(9), np.ones(9), scaling="power")
    with pytest.raises(ArgumentError, match="missing a required argument: 'a'"):
        stats.gamma.logpdf(1.0)
    with pytest.raises(ShapeError, match=r"cov must be of shape \(\.\.\., 2, 2\)"):
        stats.multivariate_normal.logpdf(np.zeros(2), np.zeros(2), np.eye(3))
    with pytest.raises(ShapeError, match="as many numbers"):
        stats.dirichlet.pdf(np.ones(4), np.ones(2))
    with pytest.raises(ArgumentError, match="method must be"):
        stats.rankdata(np.ones(3), "first")
    with pytest.raises(ArgumentError, match="mode must be"):
        signal.convolve(np.ones(3), np.ones(2), "all")
    with pytest.raises(ShapeError, match="two matrices"):
        signal.convolve2d(np.ones(3), np.ones(2))
    with pytest.raises(ArgumentError, match="boundary must be"):
        signal.correlate2d(np.ones((3, 3)), np.ones((2, 2)), boundary="wrap")
    with pytest.raises(AttributeValueError, match="method must be one of"):
        image.resize(np.ones((3, 3)), (2, 2), "bicubicc")
    with pytest.raises(ShapeError, match="must have 2 sizes"):
        image.resize(np.ones((3, 3)), (2,), "linear")


def test_ndtr_is_accurate_to_two_ulp_near_zero() -> None:
    x = np.linspace(-0.6, 3.0, 3001, dtype=np.float32)
    exact = scipy.special.ndtr(x.astype(float))
    bound = 1.6 * np.spacing(exact.astype(np.float32))
    for found in (special.ndtr(x), tx.jit(special.ndtr)(x)):
        np.testing.assert_array_less(np.abs(np.asarray(found, float) - exact), bound)
