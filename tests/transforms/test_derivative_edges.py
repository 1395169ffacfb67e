"""Derivatives at edges: zeros, poles, ties, NaNs and infinities, in both modes and to higher orders.

Expected values are those of mathematics: the limit from inside the domain. Where a function has no derivative they are
the conventions of JAX, as far as it has one that is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as tnp
from tinyxla.scipy import special, stats

Function = Callable[..., Any]
INF, NAN = math.inf, math.nan
MODES = ["reverse", "forward"]


def derivative(function: Function, mode: str, number: int = 0) -> Function:
    """By one of several vectors, of a function that works element by element."""
    if mode == "reverse":
        return tx.grad(lambda *x: function(*x).sum(), number)

    def pushed(*x: Any) -> Any:
        moved = lambda y: function(*x[:number], y, *x[number + 1 :])  # noqa: E731
        return tx.jvp(moved, (x[number],), (tnp.ones_like(x[number]),))[1]

    return pushed


def at(function: Function, mode: str, order: int, x: Any) -> Any:
    for _ in range(order):
        function = derivative(function, mode)
    return np.asarray(function(tnp.asarray(x, np.float32)))


# --- functions of one number ------------------------------------------------------------------------------------------

HALF = 0.5
# For each function the points, and for each order from 1 on the derivatives there.
OF_ONE: dict[str, tuple[Function, list[float], list[list[float]]]] = {
    "i0": (
        tnp.i0,
        [0.0, -0.0, 1e-8, HALF, 100.0, -100.0],
        [
            [0, 0, 5e-9, 0.25789431, INF, -INF],
            [0.5, 0.5, 0.5, 0.54769480, INF, INF],
            [0, 0, 3.75e-9, 0.19408202, INF, -INF],
        ],
    ),
    "i0, fourth order": (tnp.i0, [0.0], [[0], [0.5], [0], [0.375]]),
    "sinc": (
        tnp.sinc,
        [0.0, -0.0, 1e-8, 1.0],
        [
            [0, 0, -(math.pi**2) / 3 * 1e-8, -1],
            [-(math.pi**2) / 3] * 3 + [2],
            [0, 0, math.pi**4 / 5 * 1e-8, math.pi**2 - 6],
            [math.pi**4 / 5] * 3 + [24 - 4 * math.pi**2],
        ],
    ),
    "frexp": (
        lambda x: tnp.frexp(x)[0],
        [3.0, 1.0, -6.0, HALF, 0.0, 2e38],
        [[0.25, 0.5, 0.125, 1, 1, 2.0**-128], [0] * 6],
    ),
    "entr": (
        special.entr,
        [0.0, 1.0, 2.0, -1.0, INF, NAN],
        [[INF, -1, -1 - math.log(2), 0, -INF, NAN], [-INF, -1, -0.5, 0, 0, NAN]],
    ),
    "xlogy by x": (lambda x: special.xlogy(x, tnp.full_like(x, 3)), [0.0, 1.0], [[math.log(3)] * 2, [0, 0]]),
    "xlog1py by x": (lambda x: special.xlog1py(x, tnp.full_like(x, 3)), [0.0, 1.0], [[math.log(4)] * 2, [0, 0]]),
    "xlogy by y": (lambda y: special.xlogy(tnp.zeros_like(y), y), [0.0, 2.0, INF], [[0, 0, 0], [0, 0, 0]]),
    "xlogy of NaN": (lambda y: special.xlogy(tnp.ones_like(y), y), [NAN], [[NAN]]),
    "arcsin": (tnp.arcsin, [0.0, 1.0, -1.0, 3.0], [[1, INF, INF, NAN], [0, INF, -INF, NAN], [1, INF, INF, NAN]]),
    "arccos": (tnp.arccos, [0.0, 1.0, -1.0, 3.0], [[-1, -INF, -INF, NAN], [0, -INF, INF, NAN], [-1, -INF, -INF, NAN]]),
    "arccosh": (tnp.arccosh, [1.0, 1e30, 0.0], [[INF, 1e-30, NAN], [-INF, 0, NAN], [INF, 0, NAN]]),
    "arcsinh": (
        tnp.arcsinh,
        [0.0, -0.0, 3.0, -3.0, 1e30],
        [
            [1, 1, 10**-0.5, 10**-0.5, 1e-30],
            [0, 0, -3 * 10**-1.5, 3 * 10**-1.5, 0],
            [-1, -1, 17 * 10**-2.5, 17 * 10**-2.5, 0],
        ],
    ),
    "cbrt": (
        tnp.cbrt,
        [0.0, -0.0, 1.0, -8.0],
        [[INF, INF, 1 / 3, 1 / 12], [-INF, INF, -2 / 9, 1 / 144], [INF, INF, 10 / 27, 5 / 3456]],
    ),
    "floor_divide by x": (lambda x: x // tnp.asarray([0.0, 0.0, 2.0], x.dtype), [1.0, 0.0, 5.0], [[0, 0, 0]]),
    "floor_divide by y": (lambda y: tnp.asarray([1.0, 0.0, 5.0], y.dtype) // y, [0.0, 0.0, 2.0], [[0, 0, 0]]),
    "hypot": (
        lambda x: tnp.hypot(x, tnp.asarray([1.0, -2.0, 0.0], x.dtype)),
        [1.0, 2.0, 0.0],
        [[HALF**0.5, HALF**0.5, 0.5], [2**-1.5, 2**-2.5, 0]],
    ),
    "hypot of infinities": (
        lambda x: tnp.hypot(x, tnp.asarray([1.0, NAN, INF, INF, -INF], x.dtype)),
        [INF, -INF, 1.0, NAN, -INF],
        [[1, -1, 0, 0, -0.5], [0] * 5],
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OF_ONE)
def test_derivatives_of_functions_of_one_number_at_edges(name: str, mode: str) -> None:
    function, points, expected = OF_ONE[name]
    for order, values in enumerate(expected, 1):
        found = at(function, mode, order, points)
        np.testing.assert_allclose(found, values, 2e-4, 1e-6, err_msg=f"order {order}")


def test_mixed_modes_agree_at_edges() -> None:
    for name in ("i0", "sinc", "entr", "arcsin", "arcsinh", "cbrt"):
        function, points, expected = OF_ONE[name]
        for first, second in (MODES, MODES[::-1]):
            found = derivative(derivative(function, first), second)(tnp.asarray(points, np.float32))
            np.testing.assert_allclose(found, expected[1], 2e-4, 1e-6)
            found = tx.jit(derivative(derivative(function, first), second))(np.asarray(points, np.float32))
            np.testing.assert_allclose(found, expected[1], 2e-4, 1e-6)


def test_values_are_those_of_numpy() -> None:
    points = np.asarray([0.0, -0.0, 1e-30, 0.3, -0.499, 0.5, -0.7, 1.0, -1.0, INF, NAN], np.float32)
    with np.errstate(all="ignore"):
        for name in ("sinc", "i0", "arcsin", "arccos", "arcsinh", "arccosh"):
            for function in (getattr(tnp, name), tx.jit(getattr(tnp, name))):
                with np.errstate(all="ignore"):
                    found, expected = np.asarray(function(points)), getattr(np, name)(points)
                np.testing.assert_allclose(found, expected, 1e-6, err_msg=name)
        large = np.asarray([3.0, -7.9, 3e38, 1.2e-38, 1e-40, -1e-45, 1.0, 4.0, 3.99, 0.0, INF, NAN], np.float32)
        for found, expected in zip(tnp.frexp(large), np.frexp(large), strict=True):
            np.testing.assert_array_equal(found, expected)
        wide = np.asarray([5e-324, 1e308, 2.0, 2.2e-308], np.float64)
        tx.config.update("enable_x64", True)
        try:
            for found, expected in zip(tnp.frexp(wide), np.frexp(wide), strict=True):
                np.testing.assert_array_equal(found, expected)
        finally:
            tx.config.update("enable_x64", False)
        for x, y in ((0.0, 0.0), (0.0, NAN), (0.0, INF), (2.0, 0.0), (2.0, 3.0), (NAN, 1.0)):
            np.testing.assert_allclose(special.xlogy(x, y), reference("xlogy", x, y), 1e-6)
            np.testing.assert_allclose(special.xlog1py(x, y), reference("xlog1py", x, y), 1e-6)


def reference(name: str, *args: float) -> Any:
    import scipy.special

    return getattr(scipy.special, name)(*args)


# --- powers -----------------------------------------------------------------------------------------------------------

BASES = [0.0, 1.0, 2.0]
EXPONENTS = [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, INF]
LOG = math.log(2)
# For each of the partial derivatives a row for each base, with a column for each exponent. A product with an exponent
# of zero is zero, so x^0 is constant in x; x^y is constant in y at x = 0, except for its poles.
POWERS: dict[tuple[int, ...], list[list[float]]] = {
    (0,): [
        [0, 1, 0, 0, INF, -INF, 0],
        [0, 1, 2, 3, 0.5, -1, INF],
        [0, 1, 4, 12, 0.5 * HALF**0.5, -0.25, INF],
    ],
    (1,): [
        [0, 0, 0, 0, 0, -INF, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [LOG, 2 * LOG, 4 * LOG, 8 * LOG, 2**0.5 * LOG, LOG / 2, INF],
    ],
    (0, 0): [
        [0, 0, 2, 0, -INF, INF, NAN],
        [0, 0, 2, 6, -0.25, 2, INF],
        [0, 0, 2, 12, -0.25 * 2**-1.5, 0.25, INF],
    ],
    (1, 1): [
        [0, 0, 0, 0, 0, INF, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [LOG**2, 2 * LOG**2, 4 * LOG**2, 8 * LOG**2, 2**0.5 * LOG**2, LOG**2 / 2, INF],
    ],
}
MIXED = [
    [1, 1, 1, 1, 1, 1],
    [0.5, 1 + LOG, 2 + 4 * LOG, 4 + 12 * LOG, HALF**0.5 * (1 + LOG / 2), 0.25 * (1 - LOG)],
]  # of the positive bases, by finite exponents


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", POWERS)
def test_derivatives_of_powers_at_edges(path: tuple[int, ...], mode: str) -> None:
    x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(BASES, EXPONENTS, indexing="ij"))
    function: Function = tnp.power
    for number in path:
        function = derivative(function, mode, number)
    defined = (x > 0) | np.isfinite(y) | (len(path) == 1)  # 0^inf has no second derivative
    found = np.asarray(function(tnp.asarray(x), tnp.asarray(y)))
    np.testing.assert_allclose(found[defined], np.ravel(POWERS[path])[defined], 1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", [(0, 1), (1, 0)])
def test_mixed_derivatives_of_powers_at_exponent_zero_are_the_reciprocal(path: tuple[int, int], mode: str) -> None:
    x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(BASES[1:], EXPONENTS[:-1], indexing="ij"))
    function = derivative(derivative(tnp.power, mode, path[0]), mode, path[1])
    np.testing.assert_allclose(function(tnp.asarray(x), tnp.asarray(y)), np.ravel(MIXED), 1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of", [lambda n: lambda x: x**n, lambda n: lambda x: lax.integer_pow(x, n)], ids=["**", "lax"])
def test_integer_powers_have_the_derivatives_of_monomials(of: Function, mode: str) -> None:
    points = np.asarray([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, INF, NAN], np.float32)
    for exponent in (-3, -2, -1, 0, 1, 2, 3, 4, 5, 8):
        factor = 1.0
        for order in range(1, 5):
            factor *= exponent - order + 1
            with np.errstate(all="ignore"):
                power = points ** (exponent - order)
                expected = factor * power if factor else 0 * np.ones_like(points)
            found = at(of(exponent), mode, order, points)
            usual = ~np.isnan(points) | (exponent < 0) | (exponent - order > 0)  # a constant has no NaN to pass on
            np.testing.assert_allclose(found[usual], expected[usual], 1e-5, err_msg=f"power {exponent}, order {order}")


# --- reductions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [tnp.max, tnp.min, lambda x: tnp.ptp(x)], ids=["max", "min", "ptp"])
def test_extremum_that_is_nan_has_the_derivative_nan(function: Function) -> None:
    for values in ([1.0, NAN, NAN], [NAN, 2.0, 3.0]):
        x = tnp.asarray(values)
        assert np.isnan(tx.grad(function)(x)).all()
        assert np.isnan(tx.jacfwd(function)(x)).all()
        assert np.isnan(tx.jvp(function, (x,), (tnp.ones(3),))[1])


def test_extremum_that_is_nan_in_one_row_leaves_the_others_and_zero_cotangents() -> None:
    x = tnp.asarray([[1.0, 2.0, 2.0], [NAN, 1.0, 0.0]])
    by_row = tx.grad(lambda x: x.max(1).sum())(x)
    np.testing.assert_array_equal(by_row, [[0, 0.5, 0.5], [NAN, NAN, NAN]])
    np.testing.assert_array_equal(tx.grad(lambda x: x.max(1)[0])(x), [[0, 0.5, 0.5], [0, 0, 0]])
    np.testing.assert_array_equal(tx.grad(lambda x: tnp.max(x, initial=5.0))(x[0]), [0, 0, 0])
    np.testing.assert_array_equal(tx.grad(tnp.nanmax)(x[1]), [0, 1, 0])


def test_hessian_of_hypot_where_the_sides_are_equal() -> None:
    for x, y in ((1.0, 1.0), (-1.0, -1.0), (2.0, -2.0), (3.0, 4.0)):
        found = tx.hessian(lambda v: tnp.hypot(v[0], v[1]))(tnp.asarray([x, y]))
        expected = np.asarray([[y * y, -x * y], [-x * y, x * x]]) / math.hypot(x, y) ** 3
        np.testing.assert_allclose(found, expected, 1e-5)


def test_derivative_of_reduce_precision_is_reduced() -> None:
    function = lambda x: lax.reduce_precision(x, exponent_bits=5, mantissa_bits=2)  # noqa: E731
    assert float(tx.grad(lambda x: 1.3 * function(x))(1.0)) == 1.25
    assert float(tx.jvp(lambda x: function(1.3 * x), (1.0,), (1.0,))[1]) == 1.25
    assert float(tx.jit(tx.grad(lambda x: 1.3 * function(x)))(1.0)) == 1.25


def test_functions_with_slopes_of_their_own_are_mapped_and_compiled() -> None:
    x = tnp.asarray([0.1, 0.2, 1.0])
    expected = 1 / np.sqrt(1 - np.asarray([0.01, 0.04]))
    np.testing.assert_allclose(tx.vmap(tx.grad(tnp.arcsin))(x)[:2], expected, 1e-6)
    np.testing.assert_allclose(tx.jit(tx.vmap(tx.grad(tnp.arcsin)))(x)[:2], expected, 1e-6)
    np.testing.assert_allclose(tx.grad(tx.jit(lambda x: tnp.arcsin(x).sum()))(x)[:2], expected, 1e-6)
    assert np.isinf(tx.linearize(tnp.arcsin, 1.0)[1](1.0))
    hessian = tx.hessian(lambda x: (tnp.arccos(x) + x**-2).sum())(x[:2])
    np.testing.assert_allclose(np.diag(hessian), -x[:2] * expected**3 + 6 * x[:2] ** -4.0, 1e-4)


# --- least squares ----------------------------------------------------------------------------------------------------


def _tall(values: list[float]) -> Any:
    """A 5 by 3 matrix of these singular values."""
    generator = np.random.default_rng(0)
    u, _ = np.linalg.qr(generator.normal(size=(5, 3)))
    v, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    return u * values @ v.T


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize(
    "values", [[3.0, 2.0, 1.0], [1.0, 1.0, 1.0], [2.0, 2.0, 1.0]], ids=["apart", "equal", "two equal"]
)
def test_derivatives_of_least_squares_exist_for_equal_singular_values(values: list[float], shape: str) -> None:
    """They do not compare the singular values with each other."""
    with tx.enable_x64():
        a = _tall(values) if shape == "tall" else _tall(values).T
        b, along = np.linspace(-1, 2, len(a)), np.random.default_rng(1).normal(size=a.shape)

        def sum_of_squares(a: Any, b: Any) -> Any:
            x, rest, _, _ = tnp.linalg.lstsq(a, b)
            return (x**2).sum() + rest.sum()

        step = 1e-6
        wanted = (sum_of_squares(a + step * along, b) - sum_of_squares(a - step * along, b)) / (2 * step)
        found = [
            (tx.grad(sum_of_squares)(a, b) * along).sum(),
            (tx.jit(tx.grad(sum_of_squares))(a, b) * along).sum(),
            tx.jvp(lambda a: sum_of_squares(a, b), (a,), (along,))[1],
        ]
        np.testing.assert_allclose(found, float(wanted), rtol=1e-6)
        s, moved = tx.jvp(lambda a: tnp.linalg.lstsq(a, b)[3].sum(), (a,), (along,))
        ahead = tnp.linalg.svd(a + step * along, compute_uv=False).sum()
        np.testing.assert_allclose(moved, (ahead - s) / step, rtol=1e-4)
        curvature = tx.jvp(lambda a: (tx.grad(sum_of_squares)(a, b) * along).sum(), (a,), (along,))[1]
        difference = (
            tx.grad(sum_of_squares)(a + step * along, b) - tx.grad(sum_of_squares)(a - step * along, b)
        ) * along
        np.testing.assert_allclose(curvature, difference.sum() / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [tnp.fmax, tnp.fmin])
def test_of_equal_operands_of_fmax_the_second_has_the_derivative(function: Function, mode: str) -> None:
    x = tnp.array([1.0, 0.0, NAN, 2.0, -INF])
    y = tnp.array([1.0, -0.0, 2.0, NAN, -INF])
    for number, expected in enumerate(([0, 0, 0, 1, 0], [1, 1, 1, 0, 1])):
        np.testing.assert_array_equal(derivative(function, mode, number)(x, y), expected)


@pytest.mark.parametrize("transform", [lambda f: f, tx.jit])
@pytest.mark.parametrize(
    ("x", "power", "by_x", "by_power"),
    [
        (0.0, 1.0, 1, 1),
        (0.0, 2.0, 0, 0.25),
        (0.0, 0.5, INF, 4),
        (2.0, 0.0, 0.5, math.log(2) ** 2 / 2),
        (2.0, 1e-4, 0.50003466, 0.24023761),
        (2.0, 2.0, 2, 2 * math.log(2) - 0.75),
        (1.0, 0.0, 1, 0),
    ],
)
def test_box_cox_transformation_at_zeros(
    transform: Function, x: float, power: float, by_x: float, by_power: float
) -> None:
    for function, moved in ((special.boxcox, x), (special.boxcox1p, x - 1)):
        slopes = transform(tx.grad(function, (0, 1)))(moved, power)
        np.testing.assert_allclose(slopes, (by_x, by_power), rtol=1e-5)


def test_second_derivative_of_box_cox_by_a_power_of_zero() -> None:
    log = math.log(2)
    np.testing.assert_allclose(tx.hessian(lambda p: special.boxcox(2.0, p))(0.0), log**3 / 3, rtol=1e-5)
    np.testing.assert_allclose(tx.jacfwd(tx.grad(special.boxcox), 1)(2.0, 0.0), log / 2, rtol=1e-5)


def test_slope_of_exp1_of_negative_numbers_is_nan() -> None:
    assert np.isnan(float(tx.grad(special.exp1)(-0.5)))


@pytest.mark.parametrize("function", [tnp.quantile, tnp.nanquantile])
@pytest.mark.parametrize("transform", [lambda f: f, tx.jit])
def test_slope_of_a_quantile_by_its_probability_is_zero_at_elements(function: Function, transform: Function) -> None:
    x = tnp.array([1.0, 2.0, 4.0, 8.0, 16.0])
    slope = transform(tx.vmap(tx.grad(lambda q: function(x, q))))
    np.testing.assert_allclose(slope(tnp.array([0.0, 0.25, 0.3, 0.5, 0.9, 1.0])), [0, 0, 8, 0, 32, 0], rtol=1e-5)
    assert float(function(tnp.array([-INF, 1.0, INF]), 0.5)) == 1


@pytest.mark.parametrize("mode", MODES)
def test_slope_of_a_probability_at_an_end_of_the_support_is_the_density_inside(mode: str) -> None:
    for function, points, expected in (
        (stats.expon.cdf, [0.0], [1]),
        (stats.expon.sf, [0.0], [-1]),
        (stats.expon.logsf, [0.0], [-1]),
        (stats.expon.logcdf, [0.0, -0.0], [INF, INF]),
        (stats.uniform.cdf, [0.0, 1.0, 2.0], [1, 1, 0]),
    ):
        np.testing.assert_allclose(at(function, mode, 1, points), expected)


def test_quantiles_of_negative_zero_are_those_of_zero() -> None:
    zeros = tnp.array([0.0, -0.0])
    np.testing.assert_array_equal(stats.cauchy.ppf(zeros), [-INF, -INF])
    np.testing.assert_array_equal(tx.jit(stats.cauchy.isf)(zeros), [INF, INF])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("rule", "sign"), [("expon.cdf", 1), ("gumbel_l.cdf", 1), ("gumbel_r.sf", -1)])
def test_slope_of_a_probability_near_one_is_the_density(rule: str, sign: int, mode: str) -> None:
    name, method = rule.split(".")
    family = getattr(stats, name)
    points = {"expon": [25.0, 60.0], "gumbel_l": [3.0, 4.0], "gumbel_r": [-3.0, -4.0]}[name]
    density = family.pdf(tnp.array(points))
    np.testing.assert_allclose(at(getattr(family, method), mode, 1, points), sign * density, 1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_slopes_of_probabilities_outside_of_the_support_and_at_infinity_are_zero(mode: str) -> None:
    shape = tnp.array([0.5, 2.0])
    for rule in (stats.pareto.logcdf, stats.pareto.logsf, stats.pareto.cdf):
        np.testing.assert_array_equal(derivative(lambda b, f=rule: f(0.5, b), mode)(shape), [0, 0])
    for rule in (stats.gamma.cdf, stats.gamma.sf, stats.chi2.cdf):
        np.testing.assert_array_equal(derivative(lambda x, f=rule: f(x, 30.0), mode)(tnp.array([INF, -1.0])), [0, 0])
