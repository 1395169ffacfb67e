"""Values and derivatives at NaN, at zeros of either sign and at the edges of domains."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import image, numpy as tnp, scipy
from tinyxla.errors import ArgumentError, DTypeError, ShapeError

NARROW = ["bfloat16", "float8_e5m2", "float8_e4m3fn"]


def narrow(values: list[float], dtype: str) -> Any:
    return np.array(values).astype(getattr(ml_dtypes, dtype))


@pytest.mark.parametrize("dtype", NARROW)
def test_unique_narrow_floats_with_nan_are_in_order(dtype: str) -> None:
    x = narrow([1.5, np.nan, -2.0, 1.5, 0.5, np.nan], dtype)
    values, index, inverse, counts = tnp.unique(x, True, True, True)
    assert values.dtype == dtype
    np.testing.assert_array_equal(np.asarray(values).astype(float), [-2.0, 0.5, 1.5, np.nan])
    assert np.asarray(index).tolist() == [2, 4, 0, 1]
    assert np.asarray(inverse).tolist() == [2, 3, 0, 2, 1, 3]
    assert np.asarray(counts).tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("dtype", NARROW)
def test_set_operations_narrow_floats_with_nan_are_in_order(dtype: str) -> None:
    x, y = narrow([1.5, -0.5, np.nan], dtype), narrow([0.25, -2.0, 1.5], dtype)
    union, difference, both = tnp.union1d(x, y), tnp.setdiff1d(x, y), tnp.setxor1d(x, y)
    assert union.dtype == difference.dtype == both.dtype == dtype
    np.testing.assert_array_equal(np.asarray(union).astype(float), [-2.0, -0.5, 0.25, 1.5, np.nan])
    np.testing.assert_array_equal(np.asarray(difference).astype(float), [-0.5, np.nan])
    np.testing.assert_array_equal(np.asarray(both).astype(float), [-2.0, -0.5, 0.25, np.nan])


@pytest.mark.parametrize("dtype", NARROW)
def test_searchsorted_narrow_floats_with_nan_finds_the_end(dtype: str) -> None:
    ordered, values = narrow([-2.0, 0.5, 1.5, np.nan], dtype), narrow([np.nan, 1.0, -3.0], dtype)
    assert np.asarray(tnp.searchsorted(ordered, values)).tolist() == [3, 2, 0]
    assert np.asarray(tnp.searchsorted(ordered, values, side="right")).tolist() == [4, 2, 0]


def test_set_operation_bfloat16_has_derivatives() -> None:
    x = narrow([1.5, -0.5, 1.5], "bfloat16")
    gradient = tx.grad(lambda x: (tnp.unique(x) * np.array([2, 3], x.dtype)).sum())(x)
    assert np.asarray(gradient).astype(float).tolist() == [3.0, 2.0, 0.0]


@pytest.mark.parametrize("equal_nan", [True, False])
def test_unique_complex_with_nan_under_jit_is_that_of_numpy(equal_nan: bool) -> None:
    parts = [(-0.5, np.inf), (1.0, 2.0), (-0.25, np.nan), (np.nan, 1.0), (3.0, 0.0), (1.0, 2.0), (np.nan, np.nan)]
    x = np.array(parts, np.float32).view(np.complex64).reshape(-1)
    expected = np.unique(x, equal_nan=equal_nan)
    found = tx.jit(lambda x: tnp.unique(x, size=expected.size, equal_nan=equal_nan))(x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("divisor", [complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0)])
def test_complex_quotient_over_zero_has_the_sign_of_the_real_part(divisor: complex) -> None:
    x = np.array([0.5 - 2j, 1 + 1j, -3 + 0.25j], np.complex64)
    y = np.full(3, divisor, np.complex64)
    sign = np.copysign(np.inf, y.real)
    for quotient in (tnp.divide(x, y), tx.jit(tnp.divide)(x, y)):
        np.testing.assert_array_equal(np.real(quotient), sign * x.real)
        np.testing.assert_array_equal(np.imag(quotient), sign * x.imag)


@pytest.mark.parametrize("beta", [np.nan, np.inf])
def test_kaiser_of_one_element_is_one_for_any_traced_beta(beta: float) -> None:
    assert np.asarray(tx.jit(lambda b: tnp.kaiser(1, b))(beta)).tolist() == [1.0]


@pytest.mark.parametrize("method", ["linear", "cubic", "lanczos3", "lanczos5"])
def test_resize_of_float64_has_weights_of_64_bits(method: str) -> None:
    """Constants stay what they are, and so does a line, to the precision of the type."""
    with tx.enable_x64(True):
        x = np.ones(7) * np.pi
        np.testing.assert_allclose(image.resize(x, (5,), method), np.full(5, np.pi), rtol=1e-15)
        line = image.resize(np.arange(30.0), (21,), "linear", antialias=False)
        np.testing.assert_allclose(line, (np.arange(21) + 0.5) * (30 / 21) - 0.5, rtol=1e-14)


def gamma_share(a: float) -> Any:
    return lambda x: scipy.special.gammainc(a, x)


@pytest.mark.parametrize(("a", "slope"), [(0.5, np.inf), (1.0, 1.0), (2.0, 0.0)])
def test_gammainc_slope_at_zero_is_the_density(a: float, slope: float) -> None:
    for share, sign in ((scipy.special.gammainc, 1), (scipy.special.gammaincc, -1)):
        for derivative in (tx.grad(lambda x, f=share: f(a, x)), tx.jit(tx.grad(lambda x, f=share: f(a, x)))):
            assert float(derivative(0.0)) == sign * slope


@pytest.mark.parametrize("a", [0.0, -0.0])
def test_gammainc_slope_by_a_shape_of_zero_is_the_exponential_integral(a: float) -> None:
    for share, sign in ((scipy.special.gammainc, -1), (scipy.special.gammaincc, 1)):
        for derivative in (tx.grad(share), tx.jit(tx.grad(share))):
            np.testing.assert_allclose(float(derivative(a, 0.5)), sign * 0.5597736, rtol=1e-5)


@pytest.mark.parametrize(("a", "b", "x", "slope"), [(1.0, 2.0, 0.0, 2.0), (2.0, 1.0, 1.0, 2.0), (3.0, 2.0, 0.0, 0.0)])
def test_betainc_slope_at_the_edges_is_the_density(a: float, b: float, x: float, slope: float) -> None:
    derivative = tx.grad(lambda x: scipy.special.betainc(a, b, x))
    np.testing.assert_allclose(float(derivative(x)), slope, rtol=1e-6)


def test_gammainc_second_derivative_at_zero() -> None:
    np.testing.assert_allclose(float(tx.grad(tx.grad(gamma_share(1.0)))(0.0)), -1.0, rtol=1e-6)


def test_slopes_of_incomplete_functions_outside_of_their_domain_are_nan() -> None:
    assert np.isnan(float(tx.grad(gamma_share(1.0))(-1.0)))
    for share in (scipy.special.gammainc, scipy.special.gammaincc):
        for slopes in (tx.grad(share, (0, 1))(-0.25, 2.0), tx.jit(tx.grad(share, (0, 1)))(-0.25, 2.0)):
            assert np.isnan(np.asarray(slopes)).all()
    for x in (-1.0, 2.0):
        assert np.isnan(float(tx.grad(lambda x: scipy.special.betainc(1.0, 1.0, x))(x)))


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_xlogy_mixed_derivative_where_the_factor_is_zero(name: str) -> None:
    """d2/dx dy of x log(y) is 1 / y, also at x = 0, in either order."""
    function = getattr(scipy.special, name)
    expected = 1 / (2.0 + (name == "xlog1py"))
    for first, second in ((0, 1), (1, 0)):
        mixed = tx.grad(tx.grad(function, first), second)(0.0, 2.0)
        np.testing.assert_allclose(float(mixed), expected, rtol=1e-6)
    at_pole = 0.0 if name == "xlogy" else -1.0
    assert float(tx.grad(function, 1)(0.0, at_pole)) == 0.0


@pytest.mark.parametrize(("name", "z"), [("logsf", 2.5), ("logcdf", -4.0), ("sf", 2.5), ("cdf", -4.0)])
def test_truncnorm_outside_of_its_support_has_no_slope(name: str, z: float) -> None:
    slopes = tx.grad(getattr(scipy.stats.truncnorm, name), (0, 1, 2))(z, -3.0, 1.0)
    assert [float(slope) for slope in slopes] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_divisors_of_the_lowest_integer_have_numpys_sign(name: str) -> None:
    x, y = np.meshgrid(np.array([-128, -127, -6, 0, 3, 96, 127], np.int8), np.array([-128, -127, -6, 0, 3], np.int8))
    np.testing.assert_array_equal(np.asarray(getattr(tnp, name)(x, y)), getattr(np, name)(x, y))


@pytest.mark.parametrize("name", ["std", "nanstd"])
@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_deviations_have_the_type_that_is_asked_for(name: str, dtype: str) -> None:
    x = np.array([1, 2, 4, 9], np.int32)
    found = getattr(tnp, name)(x, dtype=dtype)
    assert (found.dtype, found) == (dtype, getattr(np, name)(x, dtype=dtype))


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_variance_of_4_bit_integers_is_that_of_floats(name: str, dtype: str) -> None:
    x = np.array([1, 2, 5, 7]).astype(getattr(ml_dtypes, dtype))
    found = getattr(tnp, name)(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, getattr(np, name)(x.astype(np.float32)), rtol=1e-6)
    assert getattr(tnp, name)(x, dtype="bfloat16").dtype == "bfloat16"


def test_variance_without_degrees_of_freedom_is_nan() -> None:
    x = tnp.array([[1.0, 2.0], [3.0, 5.0]])
    for taken in (2, 3):
        assert np.isnan(tnp.var(x, 0, ddof=taken)).all()
        assert np.isnan(tnp.std(x, correction=taken + 2)).all()
        assert np.isnan(tx.jit(lambda v, w, n=taken: tnp.var(v, ddof=n, where=w))(x, x > 2))  # which two are


def test_variance_is_of_the_type_that_is_asked_for() -> None:
    assert tnp.var(tnp.arange(3.0), dtype=np.complex64).dtype == np.complex64
    for function, expected in (("var", np.var), ("std", np.std), ("nanvar", np.var), ("nanstd", np.std)):
        found = getattr(tnp, function)(tnp.array([1.0, 2.0, 5.0]), dtype=int)
        assert (found.dtype, int(found)) == (np.int32, expected([1.0, 2.0, 5.0], dtype=int))
    with pytest.raises(DTypeError, match="complex numbers cannot be computed in float32"):
        tnp.var(tnp.array([1j]), dtype=np.float32)
    with pytest.raises(ArgumentError, match="give one, not 1 and 2"):
        tnp.std(tnp.arange(3.0), ddof=2, correction=1)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "any", "mean", "var", "nanmean", "nanstd"])
def test_reduction_takes_only_booleans_for_where(name: str) -> None:
    start = {"initial": 0} if name == "max" else {}
    with pytest.raises(DTypeError, match="`where` must be of booleans"):
        getattr(tnp, name)(tnp.ones(2), where=tnp.array([1, 0]), **start)
    with tx.numpy_rank_promotion("raise"):  # a mask of lower rank stretches, always
        assert getattr(tnp, name)(tnp.ones((2, 2)), where=tnp.array([True, False]), **start).shape == ()


def test_reduction_takes_only_a_number_for_initial() -> None:
    for name in ("sum", "prod", "min", "nanmax"):
        with pytest.raises(ShapeError, match=r"`initial` must be a number, but has the shape \(3,\)"):
            getattr(tnp, name)(tnp.ones((2, 3)), 0, initial=tnp.ones(3))


def test_sum_of_booleans_counts_without_promotion_of_integers() -> None:
    found = tnp.sum(tnp.array([True, True]), promote_integers=False)
    assert (found.dtype, int(found)) == (np.int32, 2)


def test_symmetric_difference_of_equal_sets_of_a_size_is_zeros() -> None:
    x = tnp.array([-3, 2])
    assert tnp.setxor1d(x, x, size=2).tolist() == [0, 0]
    assert tnp.setxor1d(x, tnp.array([2]), size=2).tolist() == [-3, -3]
    assert tnp.setdiff1d(x[:0], x, size=2, fill_value=7).tolist() == [7, 7]
    assert tnp.setxor1d(x[:0], x[:0], size=2).tolist() == [0, 0]
    assert tnp.setxor1d(x, tnp.array([2, 5]), assume_unique=True, size=2).tolist() == [-3, 5]


def test_transform_of_nothing_is_nothing() -> None:
    assert tnp.fft.fft(np.zeros((2, 0))).shape == (2, 0)
    for call in (lambda: tnp.fft.fft(np.zeros(2), 0), lambda: tnp.fft.irfft(np.zeros(0))):
        with pytest.raises(ShapeError, match="must be positive"):
            call()


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("size", [2, 7])
def test_unique_of_a_size_is_the_same_of_traced_arrays(axis: int | None, size: int) -> None:
    x = np.array([[2, 1, 2, 1], [np.nan, 0, np.nan, 0], [1, 3, 1, 4]], np.float32).repeat([2, 1, 1], 0)
    x[1] = [5, 1, 5, 1]
    fills = [None, 9.0] if axis is None else [None, 9.0, np.arange(len(np.take(x, 0, axis)), dtype=np.float32)]
    for fill in fills:

        def unique(v: Any, fill: Any = fill) -> Any:
            return tnp.unique(v, True, True, True, axis, size=size, fill_value=fill)

        for found, wanted in zip(tx.jit(unique)(x), unique(x), strict=True):
            np.testing.assert_array_equal(found, wanted)
    whole = np.unique(np.nan_to_num(x, nan=99), axis=axis)  # of which none comes after NaN
    first = range(min(size, whole.shape[axis or 0]))
    found = np.nan_to_num(tnp.unique(x, axis=axis, size=size), nan=99)
    np.testing.assert_array_equal(np.take(found, first, axis or 0), np.take(whole, first, axis or 0))


def test_variance_takes_a_mean_of_a_narrow_type_under_strict_promotion() -> None:
    x = tnp.array([1, 3], "bfloat16")
    with tx.numpy_dtype_promotion("strict"):
        assert float(tnp.var(x, mean=tnp.mean(x, keepdims=True))) == 1
