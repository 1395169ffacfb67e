"""Values at the edges of functions' domains: empty axes, extreme integers, infinities, duplicates, invalid parameters.

Each is compared on all routes: eager, compiled, and the interpreter on the same graph. Where JAX, NumPy and SciPy
differ, the test says which one is followed, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import scipy.linalg.blas
import scipy.special
import scipy.stats

import tinyxla as tx
import tinyxla.numpy as jnp
import tinyxla.scipy.stats as stats
from tinyxla import lax, nn, random
from tinyxla.errors import NumberRangeError, ShapeError
from tinyxla.scipy import ndimage, special

F = np.float32
NAN, INF = np.nan, np.inf


def routes(function: Callable[..., Any], *arrays: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The results of the eager call, of the compiled function, and of the interpreter."""
    arrays = tuple(np.asarray(x) for x in arrays)
    graph = tx.make_graph(function)(*arrays)
    return {
        "eager": np.asarray(function(*map(jnp.asarray, arrays))),
        "compiled": np.asarray(tx.jit(function)(*arrays)),
        "interpreter": np.asarray(graph(*arrays, backend="interpreter")[0]),
    }


def check(function: Callable[..., Any], *arrays: Any, gives: Any, tolerance: float = 0.0) -> None:
    expected = np.asarray(gives)
    for route, found in routes(function, *arrays).items():
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), route
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=route)


# --- softmax and its relatives ----------------------------------------------------------------------------------------


def test_scipy_softmax_and_log_softmax_default_to_all_axes() -> None:
    x = np.arange(6, dtype=F).reshape(2, 3)
    check(special.softmax, x, gives=scipy.special.softmax(x).astype(F), tolerance=1e-6)
    check(special.log_softmax, x, gives=scipy.special.log_softmax(x).astype(F), tolerance=1e-6)
    check(lambda v: special.softmax(v, axis=1), x, gives=scipy.special.softmax(x, 1).astype(F), tolerance=1e-6)


def test_softmax_with_nothing_selected_is_zero() -> None:
    x, none = np.array([1, 2, 3], F), np.zeros(3, bool)
    check(lambda v, m: nn.softmax(v, where=m), x, none, gives=np.zeros(3, F))
    check(lambda v, m: nn.log_softmax(v, where=m), x, none, gives=np.full(3, -INF, F))
    gradient = tx.grad(lambda v: nn.softmax(v, where=none).sum())(x)
    np.testing.assert_array_equal(gradient, np.zeros(3))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2)])
def test_softmax_and_logsumexp_of_empty_axes_equal_jax(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, F)
    for axis in (-1, None):
        for name in ("softmax", "log_softmax", "logsumexp"):
            expected = np.asarray(getattr(jax.nn, name)(x, axis=axis))
            check(lambda v, name=name, axis=axis: getattr(nn, name)(v, axis=axis), x, gives=expected)


# --- integers ---------------------------------------------------------------------------------------------------------


def test_extrema_of_integers_take_infinite_initial_values() -> None:
    for dtype in (np.int8, np.int32, np.uint8):
        x, ends = np.array([1, 2], dtype), np.iinfo(dtype)
        check(lambda v: jnp.max(v, initial=-INF), x, gives=dtype(2))
        check(lambda v: jnp.min(v, initial=INF), x, gives=dtype(1))
        check(lambda v: jnp.max(v, initial=INF), x, gives=dtype(ends.max))
        check(lambda v: jnp.max(v, initial=NAN), x, gives=dtype(2))  # NaN counts as 0, as in conversions of arrays
    with pytest.raises(NumberRangeError):  # NumPy's OverflowError; JAX wraps it around
        jnp.max(np.array([1], np.int8), initial=300)


def test_hard_tanh_of_unsigned_integers_clamps_above() -> None:
    """JAX 0.10 takes the lower bound for 255."""
    check(nn.hard_tanh, np.array([0, 1, 5], np.uint8), gives=np.array([0, 1, 1], np.uint8))
    check(nn.hard_tanh, np.array([-5, 0, 5], np.int8), gives=np.array([-1, 0, 1], np.int8))


def test_log_sigmoid_of_the_least_integer_is_that_integer() -> None:
    """JAX 0.10 negates the integer, which wraps around, and gives -0."""
    check(nn.log_sigmoid, np.array([-(2**31), 5], np.int32), gives=np.array([-(2**31), -0.00671535], F), tolerance=1e-6)


def test_bitwise_count_of_booleans_equals_jax() -> None:
    check(jnp.bitwise_count, np.array([False, True]), gives=np.array([0, 1], np.uint8))


def test_map_coordinates_of_integers_rounds_halves_away_from_zero() -> None:
    x = np.array([0, 1, 2, 3, -8, -9])
    for order, places in ((1, [0.5, 1.5, 2.5, 4.5]), (0, [0.5, 1.5, 2.5, 0.25])):
        c = np.array(places, F)
        expected = np.asarray(jax.scipy.ndimage.map_coordinates(x, [c], order))
        check(lambda v, k, order=order: ndimage.map_coordinates(v, [k], order), x, c, gives=expected)


# --- updates ----------------------------------------------------------------------------------------------------------

X = np.array([1, 2, 3], F)


def test_apply_at_repeated_indices_applies_repeatedly() -> None:
    expected = np.asarray(jax.numpy.asarray(X).at[np.array([0, 0, 1])].apply(lambda v: 2 * v + 1))
    for index in (np.array([0, 0, 1]), np.array([0, 1, -3])):
        check(lambda v, i: jnp.asarray(v).at[i].apply(lambda e: 2 * e + 1), X, index, gives=expected)
    dropped = jnp.asarray(X).at[np.array([1, 1, 9])].apply(lambda e: 2 * e, mode="drop")
    np.testing.assert_array_equal(dropped, [1, 8, 3])


def test_apply_at_repeated_indices_has_derivatives() -> None:
    def squared(x: Any, scale: Any, index: Any) -> Any:
        return jnp.asarray(x).at[index].apply(lambda e: scale * e * e).sum()

    index = np.array([0, 0, 1])
    for function in (squared, tx.jit(squared)):  # s (s x0^2)^2 + s x1^2 + x2, at s = 1
        by_x, by_scale = tx.grad(function, argnums=(0, 1))(X, F(1), index)
        np.testing.assert_allclose(by_x, [4, 4, 1])
        np.testing.assert_allclose(by_scale, 3 + 4)


def test_apply_under_vmap_counts_for_each_row() -> None:
    indices = np.array([[0, 0], [1, 2], [1, 1]])
    found = tx.vmap(lambda i: jnp.asarray(X).at[i].apply(lambda e: 2 * e))(indices)
    np.testing.assert_array_equal(found, [[4, 2, 3], [1, 4, 6], [1, 8, 3]])


@pytest.mark.parametrize("transform", [lambda f: f, tx.jit])
def test_power_of_one_half_is_not_the_square_root_of_negative_zero_and_infinity(transform: Any) -> None:
    for exponent in (0.5, np.float32([0.5]), np.float32([0.5, 0.5])):
        found = np.asarray(transform(lambda x, y=exponent: jnp.power(x, y))(np.float32([-np.inf, -0.0])))
        np.testing.assert_array_equal(found, [np.inf, 0])
        assert not np.signbit(found).any()


def test_power_at_repeated_indices_multiplies_exponents() -> None:
    index, exponents = np.array([1, 1, 2]), np.array([2, 3, 2], F)
    expected = np.asarray(jax.numpy.asarray(X).at[index].power(exponents))
    check(lambda v, e: jnp.asarray(v).at[index].power(e), X, exponents, gives=expected, tolerance=1e-6)


# --- sets and linear algebra ------------------------------------------------------------------------------------------


def test_unique_along_an_axis_collapses_nan_as_documented() -> None:
    """NumPy documents that `equal_nan` collapses NaN, but with an axis compares structures, for which they differ."""
    x = np.array([[NAN, 1], [0, 1], [NAN, 1], [-0.0, 1], [-1, 1]], F)
    for equal_nan in (True, False):
        options = {"axis": 0, "equal_nan": equal_nan, "return_inverse": True, "return_counts": True}
        found, expected = jnp.unique(x, **options), jax.numpy.unique(x, **options)
        if not equal_nan:
            found, expected = found[:1], expected[:1]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_pinv_and_matrix_rank_take_one_tolerance_for_each_matrix() -> None:
    tolerances = np.array([1e-3, 1e-1, 1e-5], F)
    for count in (2, 3):  # 3 is also the number of singular values
        x = np.stack([np.diag([1, 1e-2, 1e-4])] * count).astype(F)
        expected = np.stack([np.linalg.pinv(m, rcond=r) for m, r in zip(x, tolerances, strict=False)])
        check(lambda m, r: jnp.linalg.pinv(m, rtol=r), x, tolerances[:count], gives=expected, tolerance=1e-3)
        ranks = np.array([2, 1, 3][:count], np.int32)
        check(lambda m, r: jnp.linalg.matrix_rank(m, rtol=r), x, tolerances[:count], gives=ranks)


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_cov_of_nothing_is_nan(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, F)
    check(jnp.cov, x, gives=np.full((2, 2) if len(shape) == 2 else (), NAN, F))


def test_cov_with_more_taken_than_there_is_divides_by_zero() -> None:
    x = np.array([[1, 2, 3], [4, 3, 2]], F)
    check(lambda v: jnp.cov(v, ddof=7), x, gives=np.array([[INF, -INF], [-INF, INF]], F))  # as NumPy and JAX


@pytest.mark.parametrize("size", [3, 9, 33, 64])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_triangular_solve_is_as_backward_stable_as_strsm(
    size: int, spread: float, generator: np.random.Generator
) -> None:
    """Componentwise, the residual is a few units of rounding, however ill-conditioned the triangle is; the error of the
    solution itself may be as much larger as the condition number says, and is for other routines, too."""
    a = (generator.normal(size=(size, size)) * np.exp(spread * generator.normal(size=(size, 1)))).astype(F)

    def backward_error(x: Any, b: Any) -> float:
        lower, solution = np.tril(a).astype(float), np.asarray(x, float)
        scale = np.abs(lower) @ np.abs(solution) + np.abs(b)
        return float((np.abs(lower @ solution - b) / scale).max() / np.finfo(F).eps)

    for sides in (1, 4, 20):
        b = generator.normal(size=(size, sides)).astype(F)
        reference = backward_error(scipy.linalg.blas.strsm(1.0, a, b, lower=True), b)
        for found in routes(lambda m, r: lax.linalg.triangular_solve(m, r, left_side=True, lower=True), a, b).values():
            assert backward_error(found, b) <= 2 * reference + 1


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_binomial_of_infinitely_many_trials_is_infinite() -> None:
    n, p = np.array([INF, INF, INF, 4, NAN, -1, INF], F), np.array([0.5, 1, 0, 1, 0.5, 0.5, 2], F)
    found = random.binomial(random.key(0), n, p)
    np.testing.assert_array_equal(found, [INF, INF, 0, 4, NAN, NAN, NAN])


def test_multinomial_shape_includes_the_outcomes_as_in_jax() -> None:
    """JAX's documentation has `shape` without the last axis, its function and so programs written for it with."""
    p = np.array([0.2, 0.3, 0.5], F)
    for n, shape in ((10, (4, 3)), (np.array([3, 4], F), (2, 3))):
        found = np.asarray(random.multinomial(random.key(0), n, p, shape=shape))
        expected = np.asarray(jax.random.multinomial(jax.random.PRNGKey(0), n, p, shape=shape))
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ShapeError, match=r"must end with the 3 outcomes of p, but is \(4,\)"):
        random.multinomial(random.key(0), 10, p, shape=(4,))


# --- complex numbers --------------------------------------------------------------------------------------------------

PARTS = (-INF, -1.5, 0.0, 2.0, INF, NAN)
PLANE = np.array([complex(a, b) for a in PARTS for b in PARTS])


@pytest.mark.parametrize("name", ["cos", "sin", "cosh", "sinh", "exp", "exp2", "log", "log2", "sqrt", "tan", "tanh"])
def test_complex_functions_at_infinities_equal_numpy(name: str) -> None:
    """Annex G of the C standard, which NumPy follows and XLA does not. The sign is open of an infinity beside NaN."""
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(PLANE)
    open_sign = np.isnan(expected.real) | np.isnan(expected.imag)

    def parts(z: Any) -> np.ndarray[Any, Any]:
        both = np.stack([z.real, z.imag])
        return np.where(open_sign & np.isinf(both), INF, both)

    with tx.enable_x64(True):
        for route, found in routes(getattr(jnp, name), PLANE).items():
            np.testing.assert_allclose(parts(found), parts(expected), rtol=1e-12, err_msg=route)


def test_complex_logaddexp_equals_jax_and_is_finite_where_exp_overflows() -> None:
    x, y = np.array([1 + 2j, 3, 1000 + 3j, -INF], np.complex64), np.array([1 + 2j, 1j, 999 + 3j, 2j], np.complex64)
    for name in ("logaddexp", "logaddexp2"):
        expected = np.asarray(getattr(jax.numpy, name)(x[:2], y[:2]))
        check(getattr(jnp, name), x[:2], y[:2], gives=expected, tolerance=1e-6)
    exact = 1000 + np.log1p(np.exp(-1.0)) + 3j
    check(jnp.logaddexp, x[2:], y[2:], gives=np.array([exact, 2j], np.complex64), tolerance=1e-6)


# --- floats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_spacing_and_nextafter_of_subnormal_numbers_equal_numpy(dtype: Any) -> None:
    info = ml_dtypes.finfo(dtype)
    tiny, least = float(info.tiny), float(info.smallest_subnormal)
    x = np.array([0, least, -3 * least, tiny / 2, tiny, -tiny, 1, -1, float(info.max), INF, NAN], dtype)
    with np.errstate(all="ignore"), tx.enable_x64(dtype is np.float64):
        assert np.spacing(x)[2] == -least
        for found in routes(jnp.spacing, x).values():
            np.testing.assert_array_equal(found.astype(float), np.spacing(x).astype(float))
        y = np.roll(x, 3)
        for found in routes(jnp.nextafter, x, y).values():
            np.testing.assert_array_equal(found.astype(float), np.nextafter(x, y).astype(float))


def test_reduce_precision_without_mantissa_keeps_nan() -> None:
    """XLA's documents: NaN values are retained; JAX 0.10 agrees."""
    x = np.array([NAN, -NAN, 1, 3.5, INF], F)
    for exponent_bits, expected in ((8, [NAN, NAN, 1, 4, INF]), (2, [NAN, NAN, 1, INF, INF])):
        check(lambda v, n=exponent_bits: lax.reduce_precision(v, n, 0), x, gives=np.array(expected, F))
        np.testing.assert_array_equal(jax.lax.reduce_precision(x, exponent_bits, 0), np.array(expected, F))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_folds_of_16_bit_floats_round_once_on_all_routes(dtype: Any, generator: np.random.Generator) -> None:
    x = generator.normal(size=600).astype(dtype)
    zero, one = np.zeros((), dtype), np.ones((), dtype)
    wide = x.astype(np.float64)
    close = (1 + 0.01 * generator.normal(size=600)).astype(dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    windows = np.convolve(wide, np.ones(9), "same")
    for function, operand, exact in (
        (lambda v: lax.cumsum(v), x, np.cumsum(wide)),
        (lambda v: lax.reduce_window(v, zero, lax.add, (600,), (1,), ((599, 0),)), x, np.cumsum(wide)),
        (lambda v: lax.reduce_window(v, zero, lax.add, (9,), (1,), "SAME"), x, windows),
        (lambda v: lax.reduce(v, zero, lax.add, (0,)), x, wide.sum()),
        (lambda v: lax.reduce(v, one, lax.mul, (0,)), close, close.astype(float).prod()),
    ):
        for route, found in routes(function, operand).items():
            error = np.abs(found.astype(float) - exact)
            assert (error <= 0.51 * eps * np.abs(exact) + 1e-4).all(), route


# --- distributions ----------------------------------------------------------------------------------------------------

POINTS = np.array([-3, -1, -0.5, 0, 0.3, 1, 1.5, 2, 3, NAN, INF, -INF])
FAMILIES = {
    "beta": [(2.0, 3.0), (1.0, 1.0), (0.5, 0.5), (0.0, 1.0)],
    "truncnorm": [(-1.0, 2.0), (2.0, -1.0), (1.0, INF), (-INF, INF), (-40.0, -38.0)],
    "gamma": [(2.0,), (0.0,)],
    "uniform": [()],
    "norm": [()],
    "t": [(2.0,), (INF,)],
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("family", FAMILIES)
def test_densities_outside_of_support_and_of_invalid_parameters_equal_scipy(family: str) -> None:
    mine, theirs = getattr(stats, family), getattr(scipy.stats, family)
    with tx.enable_x64(True), np.errstate(all="ignore"):
        for shapes in FAMILIES[family]:
            for name in ("logpdf", "pdf", "cdf", "logcdf", "sf"):
                found = getattr(mine, name)(POINTS, *shapes)
                np.testing.assert_allclose(found, getattr(theirs, name)(POINTS, *shapes), 1e-9, 1e-12, err_msg=name)
            found = mine.logpdf(POINTS, *shapes, loc=0.5, scale=-1.0)
            np.testing.assert_array_equal(found, np.full(POINTS.shape, NAN))


def test_probabilities_of_nan_and_invalid_parameters_are_nan() -> None:
    k = np.array([0, 1, 2.5, -1, NAN])
    with tx.enable_x64(True):
        for name, shapes in (("bernoulli", (0.3,)), ("binom", (5, 0.3)), ("geom", (0.3,)), ("poisson", (2.0,))):
            expected = getattr(scipy.stats, name)
            for method in ("pmf", "logpmf"):
                with np.errstate(all="ignore"):
                    wanted = getattr(expected, method)(k, *shapes)
                np.testing.assert_allclose(getattr(getattr(stats, name), method)(k, *shapes), wanted, 1e-9)
        assert np.isnan(np.asarray(stats.binom.pmf(k, 5, 1.5))).all()
        assert np.isnan(np.asarray(stats.poisson.cdf(k, -1.0))).all()


def test_cauchy_quantile_of_one_is_infinite() -> None:
    check(stats.cauchy.ppf, np.array([0, 0.5, 1], F), gives=np.array([-INF, 0, INF], F))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("option", ["multiply", "select"])
def test_product_with_a_mask_selects_where_that_is_asked_for(option: str, compiled: bool) -> None:
    x = jnp.array([[np.inf, -1.0, np.nan], [np.nan, 3.0, -np.inf]])
    mask = jnp.array([[False, False, True], [False, True, False]])
    pairs = [(x, mask), (mask, x), (x[0], mask), (x, mask[0]), (-np.inf, mask), (mask, x.astype("float16"))]
    pairs += [(mask, x.astype(complex)), (mask, True), (mask, mask), (x[0, 0], mask[0, 0]), (x, False), (mask, 2)]
    tx.config.update("boolean_products", option)
    try:
        for a, b in pairs:
            expected = np.multiply(a, b)
            is_mask = [isinstance(o, tx.Array) and o.dtype.kind == "b" and o.shape == expected.shape for o in (a, b)]
            if option == "select" and sum(is_mask) == 1:
                expected = np.where((a, b)[is_mask.index(True)], expected, 0)
            call = tx.jit(jnp.multiply) if compiled else jnp.multiply
            for _ in range(2):  # the second eager call takes a short cut
                with np.errstate(invalid="ignore"):
                    np.testing.assert_array_equal(call(a, b), expected)
    finally:
        tx.config.update("boolean_products", "multiply")


@pytest.mark.parametrize("function", [jnp.quantile, jnp.nanquantile])
@pytest.mark.parametrize("transform", [lambda f: f, tx.jit])
def test_quantiles_of_probabilities_outside_of_the_unit_interval_are_the_ends(function: Any, transform: Any) -> None:
    x = np.float32([0.0, 1.7, -0.6, 2.2, -1.4])
    q = np.float32([-1.0, -0.1, 1.1, 2.0, np.nan])
    found = transform(function)(x, q)
    np.testing.assert_allclose(found, [-1.4, -1.4, 2.2, 2.2, np.nan])
    if function is jnp.nanquantile:
        np.testing.assert_allclose(function(np.append(x, np.float32(np.nan)), q), found)
