"""`custom_jvp` rules that apply their own function to tangents, and derivatives that are symbolic zeros in rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as tnp
from tinyxla.custom_derivatives import SymbolicZero
from tinyxla.errors import ConcretizationError

Function = Callable[..., Any]

WITHIN: dict[str, Function] = {
    "as it is": lambda f: f,
    "jit": tx.jit,
    "jit of jit": lambda f: tx.jit(tx.jit(f)),
    "vmap": lambda f: lambda x: tx.vmap(f)(x[None])[0],
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0] / 3,
    "fori_loop": lambda f: lambda x: lax.fori_loop(0, 1, lambda i, c: f(c), x),
    "cond": lambda f: lambda x: lax.cond(x.size == 1, f, lambda y: y, x),
    "checkpoint": tx.checkpoint,
    "custom_vmap": lambda f: mapped_by_rule(f),
}
DERIVATIVES: dict[str, tuple[Function, float]] = {
    "grad": (lambda f: tx.grad(f)(2.0), 12.0),
    "vjp": (lambda f: tx.vjp(f, 2.0)[1](1.0)[0], 12.0),
    "jvp": (lambda f: tx.jvp(f, (2.0,), (1.0,))[1], 12.0),
    "linearize": (lambda f: tx.linearize(f, 2.0)[1](1.0), 12.0),
    "grad of grad": (lambda f: tx.grad(tx.grad(f))(2.0), 6.0),
    "hessian": (lambda f: tx.hessian(f)(2.0), 6.0),
    "jvp of jvp": (lambda f: tx.jvp(lambda x: tx.jvp(f, (x,), (1.0,))[1], (2.0,), (1.0,))[1], 6.0),
    "jit of grad": (lambda f: tx.jit(tx.grad(f))(2.0), 12.0),
    "grad of jit": (lambda f: tx.grad(tx.jit(f))(2.0), 12.0),
    "vmap of grad": (lambda f: tx.vmap(tx.grad(f))(tnp.full(2, 2.0))[1], 12.0),
    "grad of vmap": (lambda f: tx.grad(lambda x: tx.vmap(f)(x).sum())(tnp.full(2, 2.0))[1], 12.0),
}


def mapped_by_rule(f: Function) -> Function:
    function = tx.custom_batching.custom_vmap(f)
    function.def_vmap(lambda size, mapped, x: (3.0 * x, mapped[0]))
    return function


def tripled(within: Function) -> Function:
    @tx.custom_jvp
    def triple(x: Any) -> Any:
        return 3.0 * x

    triple.defjvp(lambda p, t: (within(triple)(p[0]), within(triple)(t[0])))
    return triple


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("within", WITHIN.values(), ids=WITHIN.keys())
@pytest.mark.parametrize("name", DERIVATIVES)
def test_rule_that_applies_its_function_to_the_tangent_is_transposed(within: Function, name: str) -> None:
    derivative, expected = DERIVATIVES[name]
    triple = tripled(within)
    assert float(derivative(lambda x: triple(x) * x)) == pytest.approx(expected)


def test_rules_that_apply_each_other_to_tangents() -> None:
    even, odd = tx.custom_jvp(lambda x: 2.0 * x), tx.custom_jvp(lambda x: 2.0 * x)
    even.defjvp(lambda p, t: (even(p[0]), odd(t[0])))
    odd.defjvp(lambda p, t: (odd(p[0]), even(t[0])))
    assert float(tx.grad(even)(1.0)) == 2.0
    assert float(tx.grad(tx.jit(odd))(1.0)) == 2.0


def test_linear_part_of_a_rule_differentiates_the_function_itself() -> None:
    """The rule is wrong on purpose: in the linear part the function without it is transposed."""
    square = tx.custom_jvp(lambda x, y: x * y)
    square.defjvp(lambda p, t: (square(*p), 10.0 * square(t[0], p[1])))
    assert float(tx.grad(square)(2.0, 3.0)) == 30.0
    assert float(tx.grad(tx.grad(square, 1))(2.0, 3.0)) == 0.0
    assert float(tx.grad(tx.grad(square), 1)(2.0, 3.0)) == 10.0


@tx.custom_jvp
def solve(a: Any, b: Any) -> Any:
    return tnp.linalg.solve(a, b)


@solve.defjvp
def solve_jvp(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    x = solve(a, b)
    return x, solve(a, db - da @ x)


@pytest.mark.parametrize("compile", [lambda f: f, tx.jit], ids=["eager", "jit"])
def test_linear_solver_whose_rule_is_itself(compile: Function) -> None:
    random = np.random.default_rng(0)
    a = random.normal(size=(3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
    b = random.normal(size=3).astype(np.float32)
    for order in (0, 1):
        found = compile(tx.grad(lambda *x: (solve(*x) ** 2).sum(), order))(a, b)
        expected = tx.grad(lambda *x: (tnp.linalg.solve(*x) ** 2).sum(), order)(a, b)
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    found = compile(tx.hessian(lambda x: (solve(a * x, b) ** 2).sum()))(1.5)
    expected = tx.hessian(lambda x: (tnp.linalg.solve(a * x, b) ** 2).sum())(1.5)
    np.testing.assert_allclose(found, expected, 1e-4)


def test_implicit_root_whose_rule_solves_by_itself() -> None:
    @tx.custom_jvp
    def cube_root(a: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, x: x - (x**3 - a) / (3 * x**2), tnp.ones_like(a))

    @cube_root.defjvp
    def cube_root_jvp(primals: Any, tangents: Any) -> Any:
        (a,), (t,) = primals, tangents
        x = cube_root(a)
        return x, solve((3 * x**2)[None, None], t[None])[0]

    assert float(tx.grad(cube_root)(8.0)) == pytest.approx(1 / 12, rel=1e-5)
    assert float(tx.grad(tx.grad(cube_root))(8.0)) == pytest.approx(-2 / 9 * 8 ** (-5 / 3), rel=1e-4)


def test_value_of_a_tangent_in_a_rule_is_unknown_in_reverse_mode() -> None:
    @tx.custom_jvp
    def f(x: Any) -> Any:
        return x

    f.defjvp(lambda p, t: (f(*p), t[0] if t[0] else -t[0]))
    with pytest.raises(ConcretizationError, match="the linear part of a custom rule"):
        tx.grad(f)(1.0)


# --- symbolic zeros ---------------------------------------------------------------------------------------------------


def kinds(given: Any) -> list[bool]:
    return [isinstance(t, SymbolicZero) for t in given]


def array_of(t: Any) -> Any:
    return t.instantiate() if isinstance(t, SymbolicZero) else t


def product() -> tuple[Function, list[list[bool]]]:
    """x y and x + y by a `custom_jvp` rule, and which tangents it was given as symbolic zeros, call by call."""
    seen: list[list[bool]] = []
    function = tx.custom_jvp(lambda x, y: (x * y, x + y))

    def rule(primals: Any, tangents: Any) -> Any:
        seen.append(kinds(tangents))
        (x, y), (s, t) = primals, map(array_of, tangents)
        return function(x, y), (s * y + x * t, s + t)

    function.defjvp(rule, symbolic_zeros=True)
    return function, seen


@pytest.mark.parametrize("within", [lambda f: f, tx.jit, tx.checkpoint], ids=["eager", "jit", "checkpoint"])
def test_linearize_runs_rules_with_symbolic_zeros_at_once_and_once(within: Function) -> None:
    f, seen = product()
    value, derivative = tx.linearize(within(lambda x: f(x, 3.0)[0]), 2.0)
    assert seen == [[False, True]]
    assert (float(value), float(derivative(1.0)), float(derivative(2.0))) == (6.0, 3.0, 6.0)
    assert seen == [[False, True]]


@pytest.mark.parametrize("result", [0, 1])
@pytest.mark.parametrize("within", [lambda f: f, tx.jit], ids=["eager", "jit"])
def test_cotangents_of_other_results_are_symbolic_zeros(result: int, within: Function) -> None:
    seen: list[list[bool]] = []
    f = tx.custom_vjp(lambda x, y: (x * y, x + y))

    def back(residuals: Any, cotangents: Any) -> Any:
        seen.append(kinds(cotangents))
        (x, y), (s, t) = residuals, map(array_of, cotangents)
        return s * y + t, s * x + t

    f.defvjp(lambda x, y: (f(x.value, y.value), (x.value, y.value)), back, symbolic_zeros=True)
    found = within(tx.grad(lambda x, y: f(x, y)[result], (0, 1)))(2.0, 3.0)
    assert tuple(map(float, found)) == ((3.0, 2.0), (1.0, 1.0))[result]
    assert seen == [[result == 1, result == 0]]


def test_infinite_derivative_of_another_result_does_not_matter() -> None:
    f = tx.custom_jvp(lambda x: (x, tnp.sqrt(x)))
    f.defjvp(lambda p, t: (f(*p), (t[0], tnp.array(np.inf) * t[0])))
    for derivative in (tx.grad, tx.jacfwd, lambda f: tx.jit(tx.grad(f))):
        assert float(derivative(lambda x: f(x)[0])(0.0)) == 1.0
