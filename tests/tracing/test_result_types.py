"""Element types of results where integers and booleans meet Python numbers: those of JAX, in both widths."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError

FUNCTIONS = (
    *("nn.relu", "nn.relu6", "nn.softplus", "nn.celu", "nn.elu", "nn.leaky_relu", "nn.selu", "nn.soft_sign", "nn.mish"),
    *("nn.hard_sigmoid", "nn.hard_silu", "nn.hard_tanh", "nn.sparse_plus", "nn.sparse_sigmoid", "nn.squareplus"),
    *("numpy.unwrap", "numpy.square", "numpy.rint", "numpy.angle", "numpy.cumulative_sum", "numpy.bitwise_count"),
)
TYPES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "float32")


def _called(package: Any, name: str) -> Any:
    part, function = name.split(".")
    return getattr(getattr(package, part), function)


def _type(x: Any) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    return np.dtype(x.dtype), tuple(x.shape), bool(x.weak_type)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_result_type_of_integers_and_booleans_equals_jax(name: str, x64: bool) -> None:
    with jax.enable_x64(x64), tx.enable_x64(x64):
        for dtype in TYPES:
            x = np.ones(3, dtype)
            if name == "numpy.bitwise_count" and x.dtype.kind == "f":
                continue
            expected = _type(jax.eval_shape(_called(jax, name), x))
            function = _called(tx, name)
            assert _type(function(x)) == expected, dtype
            assert _type(tx.jit(lambda v, function=function: function(v))(x)) == expected, dtype


def test_cumulative_prod_of_small_integers_widens() -> None:
    """The array API standard demands the default integer for products as for sums; JAX 0.10 widens sums alone."""
    for function, expected in ((jnp.cumulative_sum, [255, 257]), (jnp.cumulative_prod, [255, 510])):
        found = function(np.array([255, 2], np.uint8))
        assert found.dtype == np.uint32
        np.testing.assert_array_equal(found, expected)
    assert jnp.cumulative_prod(np.array([2, 2], np.uint8), dtype=np.uint8).dtype == np.uint8


def test_setdiff1d_keeps_the_type_of_the_first_array() -> None:
    x, y = np.array([3, 1, 2, 3], np.int8), np.array([2.0], np.float32)
    for size in (None, 4):
        found = jnp.setdiff1d(x, y, size=size)
        expected = jax.numpy.setdiff1d(x, y, size=size)
        assert found.dtype == expected.dtype == np.int8
        np.testing.assert_array_equal(found, expected)
    large = np.array([2**24 + 1, 2**24 + 3], np.int32)  # which float32 does not hold
    np.testing.assert_array_equal(jnp.setdiff1d(large, np.float32([1.5]), size=2), large)


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"])
def test_nan_reductions_take_positional_arguments_and_masks_as_numpy(name: str) -> None:
    x = np.array([[1, np.nan, 3], [4, 5, 6]], np.float32)
    mask = np.array([[True, True, False], [True, True, True]])
    initial = {"initial": 0.5} if name in ("nansum", "nanprod", "nanmax", "nanmin") else {}
    function, expected = getattr(jnp, name), getattr(np, name)
    before = (None,) if name in ("nanmax", "nanmin") else (None, None)  # dtype and out
    later = (True,) if initial or not before[1:] or name == "nanmean" else (1, True)  # ddof and keepdims
    np.testing.assert_allclose(function(x, 1, *before, *later), expected(x, 1, *before, *later), rtol=1e-6)
    found = tx.jit(lambda v: function(v, axis=1, where=mask, **initial))(x)
    np.testing.assert_allclose(found, expected(x, axis=1, where=mask, **initial), rtol=1e-6)


def test_variance_about_a_given_mean_equals_numpy() -> None:
    x = np.array([[1, 2, 4], [4, 5, 6]], np.float32)
    mean = np.array([[2.0], [1.0]], np.float32)
    for name in ("var", "std", "nanvar", "nanstd"):
        expected = getattr(np, name)(x, axis=1, mean=mean)
        np.testing.assert_allclose(getattr(jnp, name)(x, axis=1, mean=mean), expected, rtol=1e-6)


def test_scipy_linalg_functions_take_positional_arguments_as_scipy() -> None:
    a = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
    values = tx.scipy.linalg.eigh(a, None, True, True)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a), rtol=1e-6)
    with pytest.raises(ArgumentError, match="b must be None"):
        tx.scipy.linalg.eigh(a, a)
    (upper,) = tx.scipy.linalg.qr(a, False, None, "r")
    np.testing.assert_allclose(upper, jax.scipy.linalg.qr(a, mode="r")[0], rtol=1e-5)
    found = tx.scipy.linalg.solve(a, a[0], False, False, False, False, True, "pos")
    np.testing.assert_allclose(found, np.linalg.solve(a, a[0]), atol=1e-6)


def test_weakness_of_python_numbers_and_types_of_polynomials_equal_jax() -> None:
    for name in ("deg2rad", "rad2deg", "sinc", "log2", "bitwise_count"):
        number = 2 if name == "bitwise_count" else 2.5
        expected = jax.eval_shape(getattr(jax.numpy, name), number)
        assert _type(getattr(jnp, name)(number)) == _type(expected), name
    for name, x in (("polyder", np.array([3, 2, 1])), ("poly", np.zeros(0))):
        expected = jax.eval_shape(getattr(jax.numpy, name), x)
        assert _type(getattr(jnp, name)(x))[:2] == _type(expected)[:2], name
    assert jnp.size(np.ones((2, 3, 4)), axis=(0, 2)) == 8


MIXED = {  # functions of two arrays that are promoted together
    "cov": lambda m, x, y: m.numpy.cov(x, y),
    "cov with weights": lambda m, x, y: m.numpy.cov(x, aweights=y),
    "corrcoef": lambda m, x, y: m.numpy.corrcoef(x, y),
    "trapezoid": lambda m, x, y: m.numpy.trapezoid(x, y),
    "logsumexp": lambda m, x, y: m.nn.logsumexp(x, b=y),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_arrays_of_two_types_are_promoted_together(name: str, x64: bool) -> None:
    call = MIXED[name]
    types = ("bool", "int8", "int32", "float16", "bfloat16", "float32", "complex64")
    with jax.enable_x64(x64), tx.enable_x64(x64):
        for first in types:
            for second in types:
                shapes = [jax.ShapeDtypeStruct((4,), jax.numpy.dtype(kind)) for kind in (first, second)]
                expected = jax.eval_shape(lambda x, y: call(jax, x, y), *shapes)
                found = tx.eval_shape(
                    lambda x, y: call(tx, x, y), *(tx.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes)
                )
                assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (first, second)


def test_cov_keeps_the_imaginary_part_of_the_second_argument() -> None:
    x, y = np.float32([1, 2, 4]), np.complex64([1j, 3, 2 - 1j])
    for name in ("cov", "corrcoef"):
        np.testing.assert_allclose(getattr(jnp, name)(x, y), getattr(np, name)(x, y), rtol=1e-5)


@pytest.mark.parametrize("name", ["silu", "mish", "gelu"])
def test_smooth_activations_take_complex_numbers_as_jax(name: str) -> None:
    x = np.complex64([0.5 + 0.25j, -1.5 - 0.5j, 0.0])
    np.testing.assert_allclose(getattr(tx.nn, name)(x), getattr(jax.nn, name)(x), rtol=1e-5)


def test_half_precision_density_and_cosine_transform_have_the_types_of_jax() -> None:
    x = np.float16([[0.0, 0.5], [1.0, 1.0], [0.25, 0.0]])
    assert jnp.histogramdd(x, 2, density=True)[0].dtype == np.float16
    for name in ("dct", "idct"):
        assert getattr(tx.scipy.fft, name)(x).dtype == getattr(jax.scipy.fft, name)(x).dtype == np.float32
    assert jnp.nanmean(np.float32([1, np.nan, 4]), dtype=np.int8).dtype == np.int8


@pytest.mark.parametrize("x64", [False, True])
def test_results_of_python_numbers_are_weak_where_those_of_jax_are(x64: bool) -> None:
    calls: tuple[Any, ...] = (
        *(lambda m, name=name: getattr(m.numpy, name)(2) for name in ("isfinite", "isinf", "isnan", "isposinf")),
        lambda m: m.numpy.diagflat(2.5),
        lambda m: m.numpy.hypot(0.5, m.numpy.ones(3, "int32")),
        lambda m: m.numpy.gradient(m.numpy.ones(3, "float16"), m.numpy.arange(3) > 1),
        lambda m: m.numpy.gradient(m.numpy.ones(3, "int8"), 0.5),
        lambda m: m.random.choice(m.random.PRNGKey(0), 4, (3,), p=m.numpy.ones(4) / 4),
    )
    with jax.enable_x64(x64), tx.enable_x64(x64):
        for call in calls:
            expected = jax.eval_shape(lambda call=call: call(jax))
            found = call(tx)
            assert _type(found) == (expected.dtype, expected.shape, expected.weak_type)


def test_interp_of_complex_values_equals_numpy() -> None:
    x, places = np.linspace(-1, 4, 7, dtype=np.float32), np.float32([0, 1, 3])
    values = np.complex64([1j, 2, 3 - 1j])
    for options in ({}, {"left": 5j, "right": 1.0}, {"period": 4.0}):
        found = jnp.interp(x, places, values, **options)
        np.testing.assert_allclose(found, np.interp(x, places, values, **options), atol=1e-5)
