"""Both modes give one derivative where infinities, poles or degenerate matrices would make 0 times infinity of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import nn, numpy as tnp
from tinyxla.errors import DifferentiationError
from tinyxla.scipy import special

Function = Callable[..., Any]
INF, NAN = math.inf, math.nan


def derivative(function: Function, mode: str) -> Function:
    if mode == "reverse":
        return tx.grad(lambda x: function(x).sum())
    return lambda x: tx.jvp(function, (x,), (tnp.ones_like(x),))[1]


ROOT = math.sqrt(2 * math.pi)
# For each function the points, and the first and second derivatives there.
EDGES: dict[str, tuple[Function, list[float], list[float], list[float]]] = {
    "erf": (special.erf, [INF, -INF, NAN], [0, 0, NAN], [0, 0, NAN]),
    "erfc": (special.erfc, [INF, -INF, NAN], [0, 0, NAN], [0, 0, NAN]),
    "ndtr": (special.ndtr, [INF, -INF, NAN], [0, 0, NAN], [0, 0, NAN]),
    "silu": (nn.silu, [INF, -INF, 1e30, NAN], [1, 0, 1, NAN], [0, 0, 0, NAN]),
    "mish": (nn.mish, [INF, -INF, 1e30, NAN], [1, 0, 1, NAN], [0, 0, 0, NAN]),
    "gelu": (nn.gelu, [INF, -INF, 1e30, -1e20, NAN], [1, 0, 1, 0, NAN], [0, 0, 0, 0, NAN]),
    "gelu by erf": (lambda x: nn.gelu(x, False), [INF, -INF, 1e30, NAN], [1, 0, 1, NAN], [0, 0, 0, NAN]),
    "squareplus": (nn.squareplus, [INF, -INF, 1e30, -1e30, 0.0], [1, 0, 1, 0, 0.5], [0, 0, 0, 0, 0.25]),
    "log1mexp": (nn.log1mexp, [0.0, 1e10, INF, NAN], [INF, 0, 0, NAN], [-INF, 0, 0, NAN]),
    "arctan": (tnp.arctan, [INF, -INF, 1.0, NAN], [0, 0, 0.5, NAN], [0, 0, -0.5, NAN]),
    "logit": (special.logit, [0.0, 1.0, 0.5, 0.25], [INF, INF, 4, 16 / 3], [-INF, INF, 0, -128 / 9]),
    "ndtri": (special.ndtri, [0.0, 1.0, 0.5, -1.0, -1e-30], [INF, INF, ROOT, NAN, NAN], [-INF, INF, 0, NAN, NAN]),
    "log_ndtr": (special.log_ndtr, [INF, -INF, -1e10], [0, INF, 1e10], [0, -1, -1]),
    "gamma": (special.gamma, [1.0, INF], [-0.5772157, INF], [1.9781119, INF]),
    "factorial": (special.factorial, [0.0, -2.0, INF], [-0.5772157, 0, INF], [1.9781119, 0, INF]),
    "cosine integral": (lambda x: special.sici(x)[1], [0.0, 1.0], [INF, 0.5403023], [-INF, -1.3817733]),
}  # fmt: skip


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("name", EDGES)
def test_derivatives_at_infinities_and_ends_of_the_domain(name: str, mode: str) -> None:
    function, points, first, second = EDGES[name]
    x = tnp.asarray(points, np.float32)
    slope = derivative(function, mode)
    np.testing.assert_allclose(slope(x), first, 1e-4, 1e-6)
    np.testing.assert_allclose(tx.jit(slope)(x), first, 1e-4, 1e-6)
    np.testing.assert_allclose(derivative(slope, mode)(x), second, 1e-4, 1e-6)


def test_values_of_saturating_functions_stay() -> None:
    x = np.asarray([-1e4, -50, -20, -3, 0, 0.5, 20, 50, 1e4, INF], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(nn.silu(x), x / (1 + np.exp(-x.astype(np.float64))), 1e-5, 1e-30)
    np.testing.assert_allclose(nn.gelu(x)[-4:], x[-4:], 1e-6)
    np.testing.assert_allclose(nn.squareplus(np.asarray([1e20, -1e20, 3.0], np.float32)), [1e20, 0, 3.3027756], 1e-6)
    np.testing.assert_array_equal(special.ndtri(np.asarray([0, 1, -1e-30], np.float32)), [-INF, INF, NAN])


@pytest.mark.parametrize("exponent", [0.0, 2.0])
def test_mixed_derivative_of_power_of_negative_base(exponent: float) -> None:
    by_base = tx.grad(lambda x, y: x**y)
    expected = -1 / 3 if exponent == 0 else NAN
    for outer in (tx.jacfwd, tx.jacrev):
        np.testing.assert_allclose(outer(by_base, 1)(-3.0, exponent), expected, 1e-6)
        np.testing.assert_allclose(outer(tx.grad(lambda x, y: x**y, 1))(-3.0, exponent), expected, 1e-6)


NORMS: dict[str, Function] = {
    "2": tnp.linalg.norm,
    "3": lambda x: tnp.linalg.norm(x, 3),
    "0.5": lambda x: tnp.linalg.norm(x, 0.5),
    "-1": lambda x: tnp.linalg.norm(x, -1),
}


@pytest.mark.parametrize("order", NORMS)
def test_norm_has_gradient_zero_at_zero_and_at_infinity(order: str) -> None:
    points = [[0.0, 0.0, 0.0]] if order in ("-1", "0.5") else [[0.0, 0.0, 0.0], [1.0, INF, 2.0]]
    for point in points:
        x = tnp.asarray(point)
        for jacobian in (tx.jacrev, tx.jacfwd):
            np.testing.assert_array_equal(jacobian(NORMS[order])(x), [0, 0, 0])
        np.testing.assert_array_equal(NORMS[order](x), max(point))
    np.testing.assert_allclose(tx.jacfwd(NORMS[order])(np.ones(3)), tx.grad(NORMS[order])(np.ones(3)), 1e-6)


def test_standard_deviation_of_equal_numbers_has_gradient_zero() -> None:
    x = tnp.full(3, 2.0)
    for jacobian in (tx.jacrev, tx.jacfwd):
        np.testing.assert_array_equal(jacobian(tnp.std)(x), [0, 0, 0])


MATRICES = {
    "equal singular values": np.eye(3),
    "permutation": np.eye(3)[[1, 2, 0]],
    "rank 2": np.asarray([[1.0, 2, 3], [2, 4, 6], [0, 1, 1]]),
    "wide": np.asarray([[1.0, 2, 3], [4, 5, 7]]),
    "tall": np.asarray([[1.0, 2], [3, 4], [5, 7]]),
}


@pytest.mark.parametrize("name", MATRICES)
def test_pinv_has_the_derivative_of_constant_rank(name: str) -> None:
    x = MATRICES[name]
    random = np.random.default_rng(0)
    left, right = random.normal(size=(x.shape[0],) * 2), random.normal(size=(x.shape[1],) * 2)
    step = 1e-5
    direction = left @ x + x @ right  # along matrices of the same rank, which are (1 + t left) x (1 + t right)

    def at(t: float) -> Any:
        return np.linalg.pinv((np.eye(len(left)) + t * left) @ x @ (np.eye(len(right)) + t * right), rcond=1e-8)

    expected = (at(step) - at(-step)) / (2 * step)
    given, moved = x.astype(np.float32), direction.astype(np.float32)
    for jacobian in (tx.jacrev, tx.jacfwd):
        found = np.einsum("ijkl,kl->ij", jacobian(tnp.linalg.pinv)(given), moved)
        np.testing.assert_allclose(found, expected, 1e-3, 1e-3)


@pytest.mark.parametrize("value", [1e-30, 1e-5, 0.0])
def test_derivatives_by_parameters_near_zero(value: float) -> None:
    by_b = tx.grad(lambda a: special.hyp1f1(a, 2.0, 1.0))(value)
    np.testing.assert_allclose(by_b, 0.599620, 1e-4)
    if value:
        np.testing.assert_allclose(tx.grad(lambda a: special.gammainc(a, 1.0))(value), -0.219384, 1e-4)
        np.testing.assert_allclose(tx.grad(lambda a: special.betainc(a, 2.0, 0.3))(value), math.log(0.3) + 0.7, 1e-4)


RULES: dict[str, Function] = {
    "square": lambda t: t * t,
    "exp": lambda t: tnp.exp(t),
    "absolute": lambda t: tnp.abs(t),
    "reciprocal": lambda t: 1 / t,
    "maximum": lambda t: tnp.maximum(t, 0),
    "comparison": lambda t: tnp.where(t > 0, t, 0),
    "dot": lambda t: tnp.dot(tnp.stack([t, t]), tnp.stack([t, t])),
}


@pytest.mark.parametrize("name", RULES)
def test_custom_jvp_rule_that_is_not_linear_has_no_gradient(name: str) -> None:
    function = tx.custom_jvp(lambda x: 2 * x)
    function.defjvp(lambda primals, tangents: (function(*primals), RULES[name](tangents[0])))
    for gradient in (tx.grad(function), tx.jit(tx.grad(function)), tx.grad(tx.jit(function))):
        with pytest.raises(DifferentiationError, match="not linear"):
            gradient(3.0)
    assert math.isfinite(tx.jvp(function, (3.0,), (1.0,))[1])
