"""Derivatives of special functions at zeros, infinities and in tails; activations of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

import tinyxla as tx
from tinyxla import lax, nn, numpy as tnp, random
from tinyxla.scipy import special, stats

_VALUES = (0.0, -0.0, math.inf, -math.inf, 1.0, -1.0, 2.0, math.nan)


@pytest.mark.parametrize("function", [special.xlogy, special.xlog1py, special.rel_entr, special.kl_div])
def test_forward_mode_at_edges_equals_reverse_mode(function: Any) -> None:
    x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(_VALUES, _VALUES))
    for argnum in (0, 1):
        forward = tx.vmap(tx.jacfwd(function, argnums=argnum))(x, y)
        reverse = tx.vmap(tx.jacrev(function, argnums=argnum))(x, y)
        np.testing.assert_array_equal(forward, reverse)


def test_xlogy_derivatives_are_log_y_and_the_quotient() -> None:
    by_x, by_y = tx.grad(special.xlogy, argnums=(0, 1))(0.0, 3.0)
    assert (float(by_x), float(by_y)) == (pytest.approx(math.log(3), rel=1e-6), 0.0)
    assert math.isnan(tx.grad(special.xlogy, argnums=1)(math.inf, math.inf))


def test_spence_second_derivative_at_zero_is_infinite() -> None:
    second = tx.grad(tx.grad(special.spence))
    assert float(second(0.0)) == math.inf
    exact = mpmath.diff(lambda t: mpmath.log(t) / (1 - t), 0.3)
    assert float(second(0.3)) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("x", [0.0, 1e-4, 1e-2, 0.5, -0.5, 0.99, 3.0])
def test_i1_derivatives_are_accurate_near_zero(x: float) -> None:
    first, second = tx.grad(special.i1), tx.grad(tx.grad(special.i1))
    i0, i1, i2, i3 = (float(mpmath.besseli(n, x)) for n in range(4))
    assert float(first(x)) == pytest.approx((i0 + i2) / 2, rel=1e-5)
    assert float(second(x)) == pytest.approx((3 * i1 + i3) / 4, rel=1e-4, abs=1e-30)


def test_i1_slope_at_overflow_is_infinite() -> None:
    assert float(tx.grad(special.i1)(200.0)) == math.inf


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_frexp_of_subnormals_compiled_equals_numpy(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([tiny, -3 * tiny, 0.0, -0.0, 1.0, -7.5, np.inf, -np.inf], dtype)
    with tx.enable_x64(True):
        for function in (tnp.frexp, tx.jit(tnp.frexp)):
            mantissa, exponent = function(x)
            expected, power = np.frexp(x)
            np.testing.assert_array_equal(mantissa, expected)
            np.testing.assert_array_equal(exponent[:-2], power[:-2])


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_gennorm_tails_are_accurate(beta: float) -> None:
    z = np.array([-3.0, 0.0, 3.0, 8.0], np.float32)
    np.testing.assert_allclose(stats.gennorm.sf(z, beta), scipy.stats.gennorm.sf(z, beta), rtol=2e-4, atol=1e-37)
    np.testing.assert_allclose(stats.gennorm.cdf(-z, beta), scipy.stats.gennorm.cdf(-z, beta), rtol=2e-4, atol=1e-37)


@pytest.mark.parametrize("function", [nn.elu, nn.celu, nn.leaky_relu])
@pytest.mark.parametrize("alpha", [np.array(2, np.int32), np.array(True), np.array(2, np.int8)])
def test_activation_with_integer_array_as_parameter_keeps_the_type_of_floats(function: Any, alpha: Any) -> None:
    for dtype in (np.float16, np.float32, tnp.bfloat16):
        assert function(np.array([-1, 1], dtype), alpha).dtype == dtype


def test_leaky_relu_of_integers_with_integer_slope_is_an_integer() -> None:
    found = nn.leaky_relu(np.array([-2, 3], np.int8), np.array(2, np.int32))
    assert (found.dtype, found.tolist()) == (np.int32, [-4, 3])


def test_lax_conj_of_real_numbers_is_complex() -> None:
    assert lax.conj(np.float32(2)).dtype == np.complex64
    assert complex(lax.conj(np.complex64(2 + 1j))) == 2 - 1j


def test_relu6_of_complex_numbers_has_numpys_order() -> None:
    found = nn.relu6(np.array([1 + 2j, 7 - 3j, -4 + 1j, 2j], np.complex64))
    np.testing.assert_array_equal(found, np.array([1 + 2j, 6, 0, 2j], np.complex64))


@pytest.mark.parametrize("function", [nn.hard_sigmoid, nn.hard_silu, nn.silu, nn.mish, nn.gelu])
def test_activation_of_complex_number_on_the_real_line_is_that_of_the_real_number(function: Any) -> None:
    x = np.array([-0.5, 0.0, 2.0], np.float32)
    np.testing.assert_allclose(function(x.astype(np.complex64)).real, function(x), rtol=1e-5, atol=1e-6)


def test_softplus_of_complex_number_is_the_principal_logarithm() -> None:
    x = np.array([3.5j, 1 + 2j, -4 + 1j], np.complex64)
    np.testing.assert_allclose(nn.softplus(x), np.log(1 + np.exp(x)), rtol=1e-5)


def test_i0_of_python_number_is_weakly_typed() -> None:
    assert tnp.i0(2.0).weak_type


def test_choice_with_probabilities_has_the_default_type_of_integers() -> None:
    key, p = random.PRNGKey(0), np.full(4, 0.25, np.float32)
    with tx.enable_x64(True):
        for replace in (True, False):
            assert random.choice(key, 4, (3,), replace, p).dtype == np.int64


def test_student_probability_is_accurate_near_zero_and_in_the_tails() -> None:
    z = np.array([0.0, 1e-4, -1e-3, 0.05, 1.0, -1.5, 3.0, -20.0, -300.0, math.inf, -math.inf], np.float32)
    for df in (1.5, 4.0, 30.0):
        exact = scipy.stats.t.cdf(z.astype(float), df)
        np.testing.assert_allclose(stats.t.cdf(z, df), exact, rtol=3e-5, atol=1e-37)
        np.testing.assert_allclose(stats.t.sf(-z, df), exact, rtol=3e-5, atol=1e-37)


def test_student_probability_slopes_are_the_density_and_differences() -> None:
    for z in (0.0, 0.3, -2.0):
        by_z, by_df = tx.grad(stats.t.cdf, argnums=(0, 1))(z, 3.0)
        assert float(by_z) == pytest.approx(scipy.stats.t.pdf(z, 3.0), rel=1e-5)
        expected = (scipy.stats.t.cdf(z, 3.001) - scipy.stats.t.cdf(z, 2.999)) / 0.002
        assert float(by_df) == pytest.approx(expected, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("family", ["expon", "norm", "logistic", "laplace", "gumbel_r", "gamma"])
def test_logarithms_of_probabilities_near_one_keep_their_digits(family: str) -> None:
    shapes = (2.0,) if family == "gamma" else ()
    ours, exact = getattr(stats, family), getattr(scipy.stats, family)
    high = np.array([3.0, 10.0, 20.0, 30.0], np.float32)
    np.testing.assert_allclose(
        ours.logcdf(high, *shapes), exact.logcdf(high.astype(float), *shapes), rtol=2e-5, atol=1e-37
    )
    low = np.array([0.05, 1e-3], np.float32)
    np.testing.assert_allclose(ours.logsf(low, *shapes), exact.logsf(low.astype(float), *shapes), rtol=2e-5)


def test_expm_of_empty_matrices_is_empty() -> None:
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        for upper in (False, True):
            found = tx.scipy.linalg.expm(np.zeros(shape, np.float32), upper_triangular=upper)
            assert (found.shape, found.dtype) == (shape, np.float32)


@pytest.mark.parametrize("function", [special.owens_t, special.expn])
def test_function_of_two_arrays_broadcasts_ranks(function: Any) -> None:
    first, second = np.ones((2, 3, 4), np.float32), np.full((3, 1), 2.0, np.float32)
    found = function(first, second)
    assert found.shape == (2, 3, 4)
    np.testing.assert_array_equal(found, function(first, np.broadcast_to(second, first.shape)))


@pytest.mark.parametrize(("kind", "result"), [("bfloat16", "bfloat16"), ("float32", "float32"), ("int32", "float32")])
def test_unwrap_of_nothing_is_nothing(kind: str, result: str) -> None:
    found = tnp.unwrap(tnp.zeros((2, 0), kind))
    assert (found.shape, found.dtype) == ((2, 0), tnp.dtype(result))


def test_the_pochhammer_symbol_of_no_factors_has_a_slope() -> None:
    z = np.float32([0.5, 1, 3, -0.5])
    slopes = tx.grad(lambda m: special.poch(z, m).sum())(np.zeros(4, np.float32))
    np.testing.assert_allclose(np.asarray(slopes), scipy.special.digamma(z), 1e-5)


@pytest.mark.parametrize("m", [0.5, 1.0, 3.0])
def test_the_pochhammer_symbol_has_a_slope_at_zero(m: float) -> None:
    value, slope = tx.jvp(lambda z: special.poch(z, m), (0.0,), (1.0,))
    assert value == 0
    np.testing.assert_allclose([slope, tx.grad(special.poch)(0.0, m)], math.gamma(m), 1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_the_incomplete_gamma_function_has_a_slope_at_shape_zero(jit: bool) -> None:
    x = np.float32([0.2, 1, 2.5])
    slope = tx.grad(lambda a: special.gammainc(a, x).sum())
    found = (tx.jit(slope) if jit else slope)(np.zeros(3, np.float32))
    np.testing.assert_allclose(np.asarray(found), -scipy.special.exp1(x), 1e-4)
