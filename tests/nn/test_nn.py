"""`tinyxla.nn` and `tinyxla.scipy.special` against JAX: values and derivatives, also at corners and infinities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import pytest

import tinyxla
from tinyxla import nn, random
from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.nn import initializers
from tinyxla.scipy import special

POINTS = np.array([-40.0, -6.0, -3.0, -1.5, -1.0, -0.3, -1e-4, 0.0, 1e-4, 0.3, 1.0, 2.0, 3.0, 6.0, 40.0], np.float32)
SMOOTH = "sigmoid softplus log_sigmoid silu swish mish squareplus gelu tanh identity".split()
CORNERED = "soft_sign relu relu6 leaky_relu hard_tanh hard_sigmoid hard_silu hard_swish elu celu selu".split()
ACTIVATIONS = [*SMOOTH, *CORNERED]


def close(ours: Any, theirs: Any, tolerance: float = 2e-6) -> None:
    found, wanted = np.asarray(ours), np.asarray(theirs)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=10 * tolerance, atol=tolerance)


# --- activations ------------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    close(ours(POINTS), theirs(POINTS))
    close(tinyxla.jit(ours)(POINTS), theirs(POINTS))
    slopes = jax.vmap(jax.grad(theirs))(POINTS)
    close(tinyxla.vmap(tinyxla.grad(ours))(POINTS), slopes)
    close(tinyxla.jit(tinyxla.grad(lambda x: ours(x).sum()))(POINTS), slopes)
    close(tinyxla.jvp(ours, (POINTS,), (np.ones_like(POINTS),))[1], slopes)
    assert np.isnan(float(ours(np.float32(np.nan))))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", [*ACTIVATIONS, "sparse_plus", "sparse_sigmoid", "log1mexp"])
def test_slopes_at_nan_and_zeros(name: str) -> None:
    ours, theirs, x = getattr(nn, name), getattr(jax.nn, name), np.array([np.nan, 0.0, -0.0], np.float32)
    slopes = np.asarray(jax.vmap(jax.grad(theirs))(x))
    for found in (
        tinyxla.grad(lambda x: ours(x).sum())(x),
        tinyxla.jit(tinyxla.vmap(tinyxla.grad(ours)))(x),
        tinyxla.jvp(ours, (x,), (np.ones_like(x),))[1],
    ):
        np.testing.assert_allclose(found, slopes, 1e-6)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives(name: str) -> None:
    inner = POINTS[1:-1]
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    curvatures = jax.vmap(jax.grad(jax.grad(theirs)))(inner)
    close(tinyxla.vmap(tinyxla.grad(tinyxla.grad(ours)))(inner), curvatures, 1e-5)


@pytest.mark.parametrize("name", ["relu", "hard_tanh", "elu", "relu6", "leaky_relu"])
def test_activations_of_integers(name: str) -> None:
    x = np.array([-2, 0, 3, 9], np.int32)
    close(getattr(nn, name)(x), getattr(jax.nn, name)(x))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_narrow_types(name: str, dtype: str) -> None:
    x = np.asarray(jnp.asarray([-2.0, -0.5, 0.0, 0.5, 2.0], dtype))
    close(getattr(nn, name)(x), getattr(jax.nn, name)(x), 4e-3)


def test_parameters() -> None:
    for ours, theirs in (
        (nn.leaky_relu(POINTS, 0.2), jax.nn.leaky_relu(POINTS, 0.2)),
        (nn.elu(POINTS, 0.5), jax.nn.elu(POINTS, 0.5)),
        (nn.celu(POINTS, 2.0), jax.nn.celu(POINTS, 2.0)),
        (nn.squareplus(POINTS, 2.0), jax.nn.squareplus(POINTS, 2.0)),
        (nn.gelu(POINTS, approximate=False), jax.nn.gelu(POINTS, approximate=False)),
        (nn.log1mexp(np.abs(POINTS) + 0.1), jax.nn.log1mexp(np.abs(POINTS) + 0.1)),
    ):
        close(ours, theirs)
    x = np.arange(12, dtype=np.float32).reshape(2, 6) / 10
    close(nn.glu(x), jax.nn.glu(x))
    close(nn.glu(x, axis=0), jax.nn.glu(x, axis=0))


# --- one_hot ----------------------------------------------------------------------------------------------------------


def test_one_hot() -> None:
    x = np.array([[0, 2], [5, -1]], np.int32)
    for axis in (-1, 0, 1):
        close(nn.one_hot(x, 3, axis=axis), jax.nn.one_hot(x, 3, axis=axis))
    close(nn.one_hot(x, 3, dtype=np.int8), jax.nn.one_hot(x, 3, dtype=np.int8))
    close(nn.one_hot(np.uint8([1, 200]), 300), jax.nn.one_hot(np.uint8([1, 200]), 300))
    close(tinyxla.jit(lambda k: nn.one_hot(k, 4))(2), jax.nn.one_hot(2, 4))


# --- vectors ----------------------------------------------------------------------------------------------------------

VECTORS = np.array([[1.0, 2.0, -np.inf, 0.5], [1000.0, -1000.0, 999.0, 0.0]], np.float32)
MASK = np.array([[True, False, True, True], [True, True, False, True]])


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str) -> None:
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    finite = np.where(np.isinf(VECTORS), -3.0, VECTORS).astype(np.float32)
    for axis in (-1, 0, (0, 1), None):
        close(ours(finite, axis=axis), theirs(finite, axis=axis))
    close(ours(VECTORS), theirs(VECTORS))
    close(tinyxla.jit(ours)(VECTORS), theirs(VECTORS))
    close(ours(finite, where=MASK), theirs(finite, where=MASK))
    weights = np.where(np.isinf(theirs(VECTORS)), 0.0, np.arange(8, dtype=np.float32).reshape(2, 4))

    def total(function: Callable[[Any], Any], np_like: Any) -> Callable[[Any], Any]:
        return lambda x: np_like.where(weights == 0, 0.0, function(x) * weights).sum()

    gradient = tinyxla.grad(total(ours, tinyxla.numpy))(VECTORS)
    assert np.isfinite(np.asarray(gradient)).all()
    close(gradient, jax.grad(total(theirs, jnp))(VECTORS), 1e-5)
    close(tinyxla.jit(tinyxla.grad(total(ours, tinyxla.numpy)))(VECTORS), gradient, 1e-5)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("logsumexp", [nn.logsumexp, special.logsumexp])
def test_logsumexp(logsumexp: Callable[..., Any]) -> None:
    theirs = jax.nn.logsumexp
    for arguments in ({}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}, {"axis": 1, "where": MASK}):
        close(logsumexp(VECTORS, **arguments), theirs(VECTORS, **arguments))
    for special_case in ([np.inf, 1.0], [-np.inf, -np.inf], [np.inf, -np.inf], [np.nan, 1.0]):
        x = np.array(special_case, np.float32)
        close(logsumexp(x), theirs(x))
    b = np.array([1.0, -2.0, 3.0, 0.0], np.float32)
    ours_and_sign = logsumexp(VECTORS[0], b=b, return_sign=True)
    for found, wanted in zip(ours_and_sign, theirs(VECTORS[0], b=b, return_sign=True), strict=True):
        close(found, wanted)
    close(tinyxla.grad(logsumexp)(VECTORS[0]), jax.grad(theirs)(VECTORS[0]))
    close(logsumexp(VECTORS[0], b=b), np.float32(np.nan))
    b = np.abs(b)
    close(tinyxla.grad(lambda x: logsumexp(x, b=b))(VECTORS[0]), jax.grad(lambda x: theirs(x, b=b))(VECTORS[0]))


@pytest.mark.parametrize("a", [[0.5, 1.0, -0.3], [1e3, 1.0, 2.0], [np.inf, 0.0, 1.0], [-np.inf, 0.0, 1.0]])
def test_slope_of_logsumexp_by_a_factor_of_zero_is_the_softmax(a: list[float]) -> None:
    x, b = np.float32(a), np.float32([0.0, 1.0, 2.0])
    value, slope = tinyxla.value_and_grad(lambda b: special.logsumexp(x, b=b))(b)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(slope, np.exp(x - np.asarray(value)), 1e-5)
    np.testing.assert_allclose(tinyxla.jit(tinyxla.grad(lambda b: special.logsumexp(x, b=b)))(b), slope, 1e-6)
    assert float(tinyxla.grad(lambda x: special.logsumexp(x, b=b))(x)[0]) == 0


def test_logsumexp_of_factors_that_are_zero_has_no_slope_by_exponents() -> None:
    x = np.float32([0.5, 1.0])
    np.testing.assert_array_equal(tinyxla.grad(lambda x: special.logsumexp(x, b=np.zeros(2)))(x), [0, 0])


def test_logmeanexp_and_standardize() -> None:
    x = np.array([[1.0, 2.0, 4.0, 8.0], [0.0, 1.0, 0.0, 1.0]], np.float32)
    close(nn.logmeanexp(x, axis=1), jax.nn.logmeanexp(x, axis=1))
    close(nn.logmeanexp(x, where=MASK), jax.nn.logmeanexp(x, where=MASK))
    close(nn.standardize(x), jax.nn.standardize(x), 1e-5)
    close(nn.standardize(x, axis=0, epsilon=0.1), jax.nn.standardize(x, axis=0, epsilon=0.1), 1e-5)
    close(nn.standardize(x, mean=1.0, variance=2.0), jax.nn.standardize(x, mean=1.0, variance=2.0), 1e-5)
    close(nn.standardize(x, where=MASK), jax.nn.standardize(x, where=MASK), 1e-5)


# --- special functions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["expit", "erf", "entr"])
def test_special_functions(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(jax.scipy.special, name)
    x = POINTS[POINTS > 0] if name == "entr" else POINTS
    close(ours(x), theirs(x))
    close(tinyxla.vmap(tinyxla.grad(ours))(x), jax.vmap(jax.grad(theirs))(x), 1e-5)


def test_special_functions_on_intervals() -> None:
    inside = np.array([-0.9, -0.1, 0.0, 0.5, 0.99], np.float32)
    close(special.erfinv(inside), jax.scipy.special.erfinv(inside))
    between = np.array([0.01, 0.5, 0.9], np.float32)
    close(special.logit(between), jax.scipy.special.logit(between))
    close(special.entr(np.float32([-1, 0, 1])), jax.scipy.special.entr(np.float32([-1, 0, 1])))


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_products_with_logarithms(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(jax.scipy.special, name)
    x = np.array([0.0, 0.0, 1.0, 2.0, 0.0], np.float32)
    y = np.array([0.0, 2.0, 3.0, 0.5, np.nan], np.float32)
    close(ours(x, y), theirs(x, y))
    pair, expected = tinyxla.grad(lambda a, b: ours(a, b).sum(), (0, 1))(x[2:4], y[2:4]), jax.grad(theirs, (0, 1))
    for k, part in enumerate(pair):
        close(part, jax.vmap(expected)(x[2:4], y[2:4])[k])
    assert float(tinyxla.grad(ours, 1)(np.float32(0), np.float32(0.5))) == 0.0


# --- initializers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5, 7)], ids=str)
def test_initializers(shape: tuple[int, ...]) -> None:
    key, other = random.key(3), jax.random.PRNGKey(3)
    for name in initializers_by_fan():
        close(getattr(initializers, name)()(key, shape), getattr(jax.nn.initializers, name)()(other, shape), 1e-5)
    for name, arguments in (
        ("uniform", (0.5,)),
        ("normal", (0.5,)),
        ("truncated_normal", (0.5,)),
        ("truncated_normal", (0.5, np.float32, -1.0, 3.0)),
        ("constant", (2.5,)),
        ("variance_scaling", (0.7, "fan_out", "normal")),
        ("variance_scaling", (0.7, "fan_geo_avg", "uniform")),
        ("variance_scaling", (0.7, "fan_in", "truncated_normal", 0, 1)),
        ("variance_scaling", (0.7, "fan_avg", "uniform", -1, -2, 0)) if len(shape) > 2 else ("normal", ()),
    ):
        ours, theirs = getattr(initializers, name)(*arguments), getattr(jax.nn.initializers, name)(*arguments)
        close(ours(key, shape), theirs(other, shape), 1e-5)
        close(tinyxla.jit(lambda k, make=ours: make(k, shape))(key), theirs(other, shape), 1e-5)
    for name in ("zeros", "ones"):
        close(
            getattr(initializers, name)(key, shape, np.float16),
            getattr(jax.nn.initializers, name)(other, shape, np.float16),
        )


def initializers_by_fan() -> list[str]:
    return [f"{who}_{how}" for who in ("glorot", "xavier", "lecun", "he", "kaiming") for how in ("uniform", "normal")]


def test_dtypes_of_initializers() -> None:
    key = random.key(0)
    assert initializers.normal(dtype="float16")(key, (2,)).dtype == np.float16
    assert initializers.normal(dtype="float16")(key, (2,), "float64").dtype == np.float64
    assert initializers.lecun_normal()(key, (2, 2)).dtype == np.float32


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.glu(np.zeros(3)), ShapeError, r"axis -1 of shape \(3,\).*no halves|\(3,\) has an odd size"),
        (lambda: nn.softmax(np.zeros(3), axis=1), ShapeError, "axis 1 is out of range"),
        (lambda: nn.one_hot(np.zeros(3, np.int32), 4, axis=5), ShapeError, "nn.one_hot: axis 5"),
        (lambda: nn.relu("x"), DTypeError, "nn.relu takes arrays and numbers"),
        (lambda: initializers.variance_scaling(1.0, "fan", "normal"), AttributeValueError, "mode is fan_in.*'fan'"),
        (lambda: initializers.variance_scaling(1.0, "fan_in", "cauchy"), AttributeValueError, "but got 'cauchy'"),
        (lambda: initializers.he_normal()(random.key(0), (3,)), ShapeError, r"the shape is \(3,\)"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_attention_of_mixed_element_types_is_refused() -> None:
    query, key = (
        tinyxla.numpy.ones((1, 2, 1, 4), tinyxla.numpy.bfloat16),
        tinyxla.numpy.ones((1, 2, 1, 4), tinyxla.numpy.float16),
    )
    with pytest.raises(DTypeError, match="query, key and value must have one element type, but have bfloat16, float16"):
        tinyxla.nn.dot_product_attention(query, key, key)


def test_initializers_do_not_promote_types() -> None:
    key, scale = tinyxla.random.key(0), tinyxla.numpy.float32(2)
    with tinyxla.numpy_dtype_promotion("strict"):
        for make in (nn.initializers.uniform, nn.initializers.normal, nn.initializers.truncated_normal):
            assert make(scale, "bfloat16")(key, (3,)).dtype == "bfloat16"
        for make in (nn.initializers.he_uniform, nn.initializers.he_normal):
            assert make()(key, (3, 2), "complex64").dtype == "complex64"


def test_gelu_is_accurate_where_it_nearly_vanishes() -> None:
    x = np.linspace(-12, -1, 50, dtype=np.float32)
    exact = np.array([float(v) * math.erfc(-float(v) / math.sqrt(2)) / 2 for v in x])
    np.testing.assert_allclose(nn.gelu(x, approximate=False), exact, rtol=1e-5)
