"""What the fuzzer found: each a call whose result was not that of JAX, NumPy or mathematics."""

from __future__ import annotations

import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.signal as scipy_signal
import scipy.stats as scipy_stats

import tinyxla as tx
from tinyxla import lax, nn, numpy as tnp, random, scipy


@pytest.mark.parametrize("dtype", ["int8", "int4", "uint16"])
def test_array_of_python_float_as_integer_is_constant_under_jit(dtype: str) -> None:
    assert int(tx.jit(lambda: tnp.array(2.5, dtype))()) == 2
    assert np.asarray(tx.jit(lambda: tnp.full((2,), 2.5, dtype))()).tolist() == [2, 2]


def test_array_of_nested_numpy_arrays_under_jit_equals_eager() -> None:
    for make in (
        lambda: tnp.array([np.ones(2), np.zeros(2)]),
        lambda: tnp.array([np.float64(1.5), np.int32(2)], "int32"),
        lambda: tnp.asarray([[np.ones(2)], [np.full(2, 2.0)]]),
    ):
        eager, compiled = make(), tx.jit(make)()
        assert eager.dtype == compiled.dtype
        np.testing.assert_array_equal(eager, compiled)


def test_array_of_number_beyond_the_type_is_infinite_without_warning() -> None:
    assert np.asarray(tnp.array([1e40, 2.0])).tolist() == [np.inf, 2.0]


def test_index_take_wraps_indices_outside_of_the_array() -> None:
    x = np.arange(20).reshape(4, 5)
    found = lax.index_take(x, (np.array([-1, 5, 1]), np.array([-2, 3, 7])), (0, 1))
    assert np.asarray(found).tolist() == [18, 8, 7]


def test_put_clip_takes_negative_indices_for_the_first_element() -> None:
    found = tnp.put(np.arange(5), np.array([-3, 9]), np.array([7, 8]), mode="clip", inplace=False)
    assert np.asarray(found).tolist() == [7, 1, 2, 3, 8]


def test_leslie_keeps_special_values_in_their_elements() -> None:
    found = np.asarray(scipy.linalg.leslie(np.zeros(3, np.float32), np.array([np.inf, np.nan], np.float32)))
    np.testing.assert_array_equal(found, np.array([[0, 0, 0], [np.inf, 0, 0], [0, np.nan, 0]], np.float32))


def test_kaiser_traced_beta_equals_eager() -> None:
    for count in (0, 1, 2, 5):
        compiled = tx.jit(lambda beta, n=count: tnp.kaiser(n, beta))(3.0)
        np.testing.assert_allclose(compiled, np.kaiser(count, 3.0), rtol=1e-6)
    assert np.isfinite(float(tx.grad(lambda beta: tnp.kaiser(5, beta)[1])(3.0)))


_WEAK = "elu celu selu leaky_relu hard_sigmoid hard_silu relu6 sparse_plus sparse_sigmoid".split()


@pytest.mark.parametrize("name", _WEAK)
def test_activation_of_integers_has_the_default_type_of_floats(name: str) -> None:
    for x64, expected in ((False, np.float32), (True, np.float64)):
        with tx.enable_x64(x64):
            found = getattr(nn, name)(np.array([3, -1], np.int16))
            assert (found.dtype, found.weak_type) == (expected, True)


@pytest.mark.parametrize("function", [tnp.angle, tnp.unwrap, tnp.linalg.vector_norm, scipy.stats.rankdata])
def test_function_of_small_integers_is_64_bit_with_x64(function: Any) -> None:
    with tx.enable_x64(True):
        assert function(np.array([3, 1], np.int16)).dtype == np.float64


def test_mode_counts_are_64_bit_with_x64() -> None:
    with tx.enable_x64(True):
        assert scipy.stats.mode(np.array([3, 1, 1], np.int32)).count.dtype == np.int64


def test_random_bits_are_64_bit_with_x64() -> None:
    with tx.enable_x64(True):
        assert random.bits(random.PRNGKey(0)).dtype == np.uint64
    assert random.bits(random.PRNGKey(0)).dtype == np.uint32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_spectra_have_frequencies_and_times_of_the_signals_precision(dtype: str) -> None:
    with tx.enable_x64(True):
        signal = np.ones(20, dtype)
        frequencies, times, spectrum = scipy.signal.stft(signal, nperseg=8)
        again, back = scipy.signal.istft(spectrum, nperseg=8)
        found = [frequencies, times, again, back, *scipy.signal.welch(signal, nperseg=8)]
    assert {(x.dtype.name, x.weak_type) for x in found} == {(dtype, False)}


def _log_beta(a: float, b: float) -> float:
    with mpmath.workdps(40):
        a, b = mpmath.mpf(a), mpmath.mpf(b)
        return float(mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-6), ("float64", 1e-13), ("float16", 2e-3)])
def test_betaln_of_large_operands_is_accurate(dtype: str, tolerance: float, generator: np.random.Generator) -> None:
    largest = 8 if dtype == "float16" else 12
    a, b = np.exp(generator.uniform(-6, largest, (2, 300))).astype(dtype)
    expected = np.array([_log_beta(float(x), float(y)) for x, y in zip(a, b, strict=True)])
    with tx.enable_x64(dtype == "float64"):
        for function in (scipy.special.betaln, tx.jit(scipy.special.betaln)):
            np.testing.assert_allclose(function(a, b).astype(dtype), expected, rtol=tolerance, atol=tolerance)


def test_betaln_of_huge_operand_does_not_cancel() -> None:
    np.testing.assert_allclose(scipy.special.betaln(np.float32(0.001), np.float32(9.2e18)), 6.863513, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_beta_of_negative_beside_huge_operand_does_not_cancel(dtype: str) -> None:
    a, b = np.array([-1.728, -0.25, -3.5, -3.5], dtype), np.array([9.2e18, 1e6, 12.25, 11.75], dtype)
    expected = [float(mpmath.beta(float(x), float(y))) for x, y in zip(a, b, strict=True)]
    with tx.enable_x64(dtype == "float64"):
        for function in (scipy.special.beta, tx.jit(scipy.special.beta)):
            np.testing.assert_allclose(function(a, b), expected, rtol=2e-4 if dtype == "float32" else 1e-11)


def test_betaln_derivatives_are_differences_of_digamma() -> None:
    with tx.enable_x64(True):
        first, second = tx.grad(scipy.special.betaln, (0, 1))(2.0, 9.0)
        curvature = tx.grad(tx.grad(scipy.special.betaln))(2.0, 9.0)
    np.testing.assert_allclose(first, float(mpmath.digamma(2) - mpmath.digamma(11)), rtol=1e-12)
    np.testing.assert_allclose(second, float(mpmath.digamma(9) - mpmath.digamma(11)), rtol=1e-12)
    np.testing.assert_allclose(curvature, float(mpmath.polygamma(1, 2) - mpmath.polygamma(1, 11)), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "int4"])
def test_array_of_narrow_type_converts_to_numpy(dtype: str) -> None:
    found = np.asarray(tnp.asarray([1.0, -2.0], dtype))
    assert (found.dtype.name, found.astype(np.float32).tolist()) == (dtype, [1.0, -2.0])
    assert not found.flags.writeable
    with pytest.raises(tx.errors.ExportError, match="has no DLPack type"):
        tnp.asarray([1.0, -2.0], dtype).__dlpack__()


@pytest.mark.parametrize("function", [scipy.special.polygamma, scipy.special.zeta, scipy.special.betaln])
def test_special_function_of_integers_and_narrow_floats_has_the_type_of_the_floats(function: Any) -> None:
    for dtype in ("bfloat16", "float16", "float32"):
        found = function(np.array([2, 3], np.int32), tnp.asarray([1.5, 2.0], dtype))
        assert (found.dtype.name, found.weak_type) == (dtype, False)
    both = function(np.array([2, 3], np.int32), np.array([2, 3], np.int8))
    assert (both.dtype.name, both.weak_type) == ("float32", False)


@pytest.mark.parametrize("x64", [False, True])
def test_ranks_of_matrices_are_of_the_default_type_of_integers(x64: bool) -> None:
    with tx.enable_x64(x64):
        matrix = np.eye(3, dtype=np.float32)
        found = (tnp.linalg.matrix_rank(matrix), tnp.linalg.lstsq(matrix, matrix[0])[2])
    assert [(x.dtype, int(x)) for x in found] == [(np.int64 if x64 else np.int32, 3)] * 2


def test_lu_of_complex_matrix_has_a_real_permutation() -> None:
    a = np.array([[1, 2j], [3, 4]], np.complex64)
    permutation, lower, upper = scipy.linalg.lu(a)
    assert permutation.dtype == np.float32
    np.testing.assert_allclose(permutation @ lower @ upper, a, rtol=1e-6)
    np.testing.assert_allclose(np.matmul(*scipy.linalg.lu(a, permute_l=True)), a, rtol=1e-6)


def test_unique_of_traced_empty_array_needs_no_values() -> None:
    empty = np.zeros(0, np.int32)
    filled = tx.jit(lambda x: tnp.unique(x, size=3, fill_value=1))(empty)
    assert np.asarray(filled).tolist() == [1, 1, 1]
    assert [x.shape for x in tx.jit(tnp.unique_all)(empty)] == [(0,)] * 4


def test_hypergeometric_function_promotes_operands_of_several_types() -> None:
    half, integers = np.array([1.5, 0.5], np.float16), np.array([1, 2], np.int32)
    found = scipy.special.hyp2f1(half, integers, np.float32([3, 2]), x=np.array([0.25, 0.5], np.float16))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [1.1487483, 1.4142135], rtol=1e-5)
    assert scipy.special.expn(integers, tnp.asarray(half)).dtype == np.float16


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_floor_divide_of_integers_by_zero_is_minus_one_in_all_ways(dtype: str) -> None:
    x, y = np.array([2, -2, 0, 7, -7], dtype), np.array([0, 0, 0, 2, 2], dtype)
    for divide in (tnp.floor_divide, lambda a, b: tnp.divmod(a, b)[0]):
        for call in (divide, tx.jit(divide), tx.vmap(divide), tx.jit(tx.vmap(divide))):
            assert np.asarray(call(x, y)).tolist() == [-1, -1, -1, 3, -4]


@pytest.mark.parametrize("name", ["stft", "welch", "csd"])
def test_spectra_of_64_bit_signals_have_windows_of_64_bits(name: str, generator: np.random.Generator) -> None:
    signals = [generator.normal(size=20)] * (2 if name == "csd" else 1)
    with tx.enable_x64(True):
        found = getattr(scipy.signal, name)(*signals, nperseg=8)[-1]
    expected = getattr(scipy_signal, name)(*signals, nperseg=8)[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_istft_inverts_stft_in_64_bits(generator: np.random.Generator) -> None:
    signal = generator.normal(size=20)
    with tx.enable_x64(True):
        back = scipy.signal.istft(scipy.signal.stft(signal, nperseg=8)[2], nperseg=8)[1]
    np.testing.assert_allclose(back[:20], signal, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("root", [np.inf, -np.inf])
def test_poly_of_an_infinite_root_is_monic(root: float) -> None:
    given = np.array([0.0, 2.0, root, 1.0], np.float32)
    for call in (tnp.poly, tx.jit(tnp.poly)):
        np.testing.assert_array_equal(call(given)[:2], [1.0, -root])


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks_beside_a_nan_are_nan_and_of_floats(method: str) -> None:
    x = np.array([[1.0, np.nan, 2.0], [3.0, 1.0, 2.0]])
    for axis in (None, 0, 1):
        for call in (scipy.stats.rankdata, tx.jit(scipy.stats.rankdata, static_argnums=1, static_argnames="axis")):
            found = call(x, method, axis=axis)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, scipy_stats.rankdata(x, method, axis=axis))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mode_of_scalars_and_of_nothing_is_that_of_scipy(
    shape: tuple[int, ...], axis: int | None, keepdims: bool
) -> None:
    x = np.ones(shape, np.float32)
    found = scipy.stats.mode(x, axis=axis, keepdims=keepdims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of few samples
        expected = scipy_stats.mode(x, axis=axis, keepdims=keepdims)
    for y, z in zip(found, expected, strict=True):
        np.testing.assert_array_equal(y, z)
        assert (y.shape, y.weak_type) == (np.shape(z), False)


def test_derivative_of_the_mode_is_that_of_its_first_element() -> None:
    gradient = tx.grad(lambda x: scipy.stats.mode(x).mode)(np.array([2.0, 1.0, 2.0, 1.0, 1.0]))
    assert np.asarray(gradient).tolist() == [0, 1, 0, 0, 0]


def test_truncnorm_logarithms_of_nearly_one_keep_their_digits() -> None:
    z = np.array([-5.0, -4.0, -3.9, -3.0, 0.0, 3.0, 3.9, 4.0, 5.0], np.float32)
    family, oracle = scipy.stats.truncnorm, scipy_stats.truncnorm
    np.testing.assert_allclose(family.logsf(z, -4.0, 4.0), oracle.logsf(z, -4, 4), rtol=2e-5)
    np.testing.assert_allclose(family.logcdf(z, -4.0, 4.0), oracle.logcdf(z, -4, 4), rtol=2e-5)
    slopes = tx.vmap(tx.grad(lambda t: family.logsf(t, -4.0, 4.0)))(z)
    expected = np.where(
        (z > -4) & (z < 4), -np.exp(oracle.logpdf(z, -4, 4) - np.maximum(oracle.logsf(z, -4, 4), -99)), 0
    )
    inside = np.abs(z) != 4  # at the edges of the support there is a kink
    np.testing.assert_allclose(slopes[inside], expected[inside], rtol=1e-4)


def test_spacing_of_all_numbers_of_float16_is_that_of_numpy() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        expected = np.spacing(x)
    for call in (tnp.spacing, tx.jit(tnp.spacing)):
        np.testing.assert_array_equal(call(x), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cbrt_of_subnormal_numbers_is_the_root_or_zero(dtype: Any) -> None:
    tiny = float(np.finfo(dtype).tiny)
    x = np.array([-tiny / 3, tiny / 4, 0.0, -0.0, np.inf, -np.inf, np.nan, 8.0, -27.0, tiny, 1e-3], dtype)
    with tx.enable_x64(True):
        for call in (tnp.cbrt, tx.jit(tnp.cbrt)):
            found, exact = np.asarray(call(x)), np.cbrt(x)
            flushed = (np.abs(x) < tiny) & (found == 0) & (np.signbit(found) == np.signbit(x))
            np.testing.assert_allclose(np.where(flushed, exact, found), exact, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivative_of_modf_is_that_of_the_fraction_at_negative_whole_numbers(dtype: str) -> None:
    x = np.array([-2.5, -2.0, -0.0, 0.0, 2.0, 2.5, -np.inf], dtype)
    with tx.enable_x64(True):
        for call in (tnp.modf, tx.jit(tnp.modf)):
            (fraction, whole), (slope, _) = tx.jvp(call, (x,), (np.ones_like(x),))
            np.testing.assert_array_equal(np.signbit(fraction), np.signbit(x))
            np.testing.assert_array_equal((fraction, whole), np.modf(x))
            assert np.asarray(slope)[:-1].tolist() == [1.0] * 6


def _inverse_derivatives(name: str, z: complex) -> tuple[complex, complex]:
    """The first two derivatives of an inverse function of complex numbers, off its branch cuts."""
    w, i = mpmath.mpc(z), mpmath.mpc(0, 1)
    minus, plus = {"arcsinh": (1 + i * w, 1 - i * w), "arccosh": (w - 1, w + 1)}.get(name, (1 - w, 1 + w))
    root = mpmath.sqrt(minus) * mpmath.sqrt(plus)
    first, second = {"arcsin": (1, 1), "arccos": (-1, -1), "arcsinh": (1, -1), "arccosh": (1, -1)}[name]
    return complex(first / root), complex(second * w / root**3)


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arcsinh", "arccosh"])
def test_derivatives_of_complex_inverse_functions_have_no_kinks_above_foci(name: str) -> None:
    z = np.array([complex(x, y) for x in (-1.0, 1.0, 0.5, 2.0) for y in (-1.0, 1.0, 0.5, 1e-9, 2.0)])
    with tx.enable_x64(True), mpmath.workdps(40):
        one = np.ones_like(z)
        for call in (getattr(tnp, name), tx.jit(getattr(tnp, name))):
            first, second = tx.jvp(lambda x, f=call: tx.jvp(f, (x,), (one,))[1], (z,), (one,))
            expected = np.array([_inverse_derivatives(name, complex(x)) for x in z]).T
            np.testing.assert_allclose(first, expected[0], rtol=1e-13)
            np.testing.assert_allclose(second, expected[1], rtol=1e-12)


def test_derivative_of_arcsin_of_huge_and_nearly_singular_complex_numbers_keeps_both_parts() -> None:
    with tx.enable_x64(True):
        for z, expected in ((1e200 + 1e200j, 5e-201 + 5e-201j), (1 + 1e-170j, 5e84 + 5e84j)):
            slope = tx.jvp(tnp.arcsin, (np.complex128(z),), (np.complex128(1),))[1]
            np.testing.assert_allclose(complex(slope), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rel_entr_of_narrow_types_does_not_cancel(dtype: str) -> None:
    p, q = (np.asarray(tnp.asarray(x, dtype)) for x in ([3.265625, 2.0, 0.75], [3.40625, 2.25, 0.5]))
    for call in (scipy.special.rel_entr, tx.jit(scipy.special.rel_entr)):
        exact = p.astype(float) * np.log(p.astype(float) / q.astype(float))
        np.testing.assert_allclose(np.asarray(call(p, q)).astype(float), exact, rtol=2 * float(tnp.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_laplace_has_the_bits_of_jax(dtype: str) -> None:
    jax = pytest.importorskip("jax")
    key = np.array([3, 22], np.uint32)
    found, expected = (lib.random.laplace(key, (500,), dtype) for lib in (tx, jax))
    unit = float(tnp.finfo(dtype).eps)
    np.testing.assert_allclose(*(np.asarray(x).astype(float) for x in (found, expected)), rtol=2 * unit, atol=unit / 8)


@pytest.mark.parametrize(
    ("x", "y"), [(1 + 1e10j, 1 - 2j), (5 + 1e17j, 1 + 2j), (2.0**31 * (1 - 1j), 2.0**31 + 2.0**63 * 1j)]
)
def test_logaddexp_of_complex_numbers_reduces_huge_angles_exactly(x: complex, y: complex) -> None:
    with mpmath.workdps(60), tx.enable_x64(True):
        first, second = mpmath.mpc(x), mpmath.mpc(y)
        expected = complex(x.real + mpmath.log(mpmath.exp(first - x.real) + mpmath.exp(second - x.real)))
        for call in (tnp.logaddexp, tx.jit(tnp.logaddexp)):
            found = complex(call(np.complex128(x), np.complex128(y)))
            np.testing.assert_allclose([found.real, found.imag], [expected.real, expected.imag], rtol=1e-13)
