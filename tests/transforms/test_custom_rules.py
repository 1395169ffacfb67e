"""Functions with rules of their own - derivatives, batching, checkpoints, implicit ones - compared with JAX.

Each program takes the package, `jax` or `tinyxla`, and runs in both.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from concurrent import futures
from typing import Any

import jax
import numpy as np
import pytest
from jax import ad_checkpoint, custom_batching, custom_derivatives  # noqa: F401 - attributes of jax once imported

import tinyxla as tx
from tinyxla.api import executables

V = np.float32([0.5, -1.25, 2.0])
A = np.float32([[4, 1, 0], [1, 3, 0.5], [0, 0.5, 2]])

# --- functions of a vector, with rules that are wrong on purpose, so that it shows whether they are used --------------


def by_jvp(jx: Any) -> Callable[..., Any]:
    jnp = jx.numpy

    @jx.custom_jvp
    def f(x: Any, y: Any = 2.0) -> Any:
        return jnp.sin(x) * y

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), 3 * jnp.cos(x) * y * dx + 5 * jnp.sin(x) * dy

    return f


def by_jvps(jx: Any) -> Callable[..., Any]:
    jnp = jx.numpy

    @jx.custom_jvp
    def f(x: Any, y: Any = 2.0) -> Any:
        return jnp.sin(x) * y

    f.defjvps(lambda dx, ans, x, y: 3 * ans * dx, None)
    return f


def by_vjp(jx: Any) -> Callable[..., Any]:
    jnp = jx.numpy

    @jx.custom_vjp
    def f(x: Any, y: Any = 2.0) -> Any:
        return {"a": jnp.sin(x) * y}["a"]

    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), {"cos": jnp.cos(x), "rest": (y, x)}

    def bwd(residuals: Any, g: Any) -> Any:
        y, x = residuals["rest"]
        return 3 * residuals["cos"] * y * g, (5 * jnp.sin(x) * g).sum().reshape(jnp.shape(y))

    f.defvjp(fwd, bwd)
    return f


def by_gradient(jx: Any) -> Callable[..., Any]:
    @jx.custom_gradient
    def f(x: Any) -> Any:
        return jx.numpy.sin(x), lambda g: 7 * g * x

    return f


def by_vmap(jx: Any) -> Callable[..., Any]:
    @jx.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return jx.numpy.sin(x)

    @f.def_vmap
    def _(axis_size: int, in_batched: Any, x: Any) -> Any:
        return jx.numpy.sin(x) + axis_size * 10, True

    return f


def by_checkpoint(jx: Any, policy: str | None = None) -> Callable[..., Any]:
    named = jx.ad_checkpoint.checkpoint_name
    keep = {
        None: None,
        "dots": jx.checkpoint_policies.dots_saveable,
        "all": jx.checkpoint_policies.everything_saveable,
        "named": jx.checkpoint_policies.save_only_these_names("product"),
        "unnamed": jx.checkpoint_policies.save_anything_except_these_names("product"),
    }[policy]

    @functools.partial(jx.checkpoint, policy=keep)
    def f(x: Any) -> Any:
        return jx.numpy.sin(named(A @ jx.numpy.sin(x), "product")) * x

    return f


def by_root(jx: Any) -> Callable[..., Any]:
    def newton(f: Any, x: Any) -> Any:
        return jx.lax.fori_loop(0, 12, lambda _, x: x - f(x) / jx.jvp(f, (x,), (jx.numpy.ones_like(x),))[1], x)

    def f(x: Any) -> Any:
        return jx.lax.custom_root(
            lambda z: z**3 + z - x, jx.numpy.zeros_like(x), newton, lambda g, y: y / g(jx.numpy.ones_like(y))
        )

    return f


def by_linear_solve(jx: Any) -> Callable[..., Any]:
    def dense(matvec: Any, b: Any) -> Any:
        return jx.numpy.linalg.solve(jx.jacfwd(matvec)(b), b)

    def f(x: Any) -> Any:
        matrix = A + x[:, None] * x * 0.1
        return jx.lax.custom_linear_solve(lambda v: matrix @ v, jx.numpy.sin(x), dense, dense)

    return f


FUNCTIONS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "custom_jvp": by_jvp,
    "defjvps": by_jvps,
    "custom_vjp": by_vjp,
    "custom_gradient": by_gradient,
    "custom_vmap": by_vmap,
    "checkpoint": by_checkpoint,
    **{f"checkpoint, {p}": functools.partial(by_checkpoint, policy=p) for p in ("dots", "all", "named", "unnamed")},
    "custom_root": by_root,
    "custom_linear_solve": by_linear_solve,
}


def total(jx: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: (f(x) * jx.numpy.arange(1.0, 4.0)).sum()


def looped(jx: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jx.lax.scan(lambda c, _: (f(c), c.sum()), x, None, length=3)


def branched(jx: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jx.lax.cond(x[0] > 0, f, lambda x: x, x)


USES: dict[str, Callable[..., Any]] = {
    "value": lambda jx, f, v, a: f(v),
    "jit": lambda jx, f, v, a: jx.jit(f)(v),
    "vmap": lambda jx, f, v, a: jx.vmap(f)(a),
    "jit of vmap of jit": lambda jx, f, v, a: jx.jit(jx.vmap(jx.jit(f), 1, 1))(a),
    "grad": lambda jx, f, v, a: jx.grad(total(jx, f))(v),
    "jit of grad": lambda jx, f, v, a: jx.jit(jx.grad(total(jx, f)))(v),
    "grad of jit": lambda jx, f, v, a: jx.grad(total(jx, jx.jit(f)))(v),
    "grad of grad": lambda jx, f, v, a: jx.grad(lambda x: jx.grad(total(jx, f))(x).sum())(v),
    "grad of jit of grad of jit": lambda jx, f, v, a: jx.grad(lambda x: jx.jit(jx.grad(total(jx, jx.jit(f))))(x).sum())(
        v
    ),
    "jacrev": lambda jx, f, v, a: jx.jacrev(f)(v),
    "vmap of grad": lambda jx, f, v, a: jx.vmap(jx.grad(total(jx, f)))(a),
    "grad of vmap": lambda jx, f, v, a: jx.grad(lambda x: jx.vmap(total(jx, f))(x).sum())(a),
    "grad of vmap of jit": lambda jx, f, v, a: jx.grad(lambda x: jx.vmap(total(jx, jx.jit(f)))(x).sum())(a),
    "jit of grad of vmap": lambda jx, f, v, a: jx.jit(jx.grad(lambda x: jx.vmap(total(jx, f))(x).sum()))(a),
    "scan": lambda jx, f, v, a: looped(jx, f)(v),
    "grad of scan": lambda jx, f, v, a: jx.grad(lambda x: total(jx, lambda x: looped(jx, f)(x)[0])(x))(v),
    "vmap of grad of scan": lambda jx, f, v, a: jx.vmap(jx.grad(lambda x: looped(jx, f)(x)[1].sum()))(a),
    "grad of vmap of scan": lambda jx, f, v, a: jx.grad(lambda x: jx.vmap(looped(jx, f))(x)[1].sum())(a),
    "grad of cond": lambda jx, f, v, a: jx.grad(total(jx, branched(jx, f)))(v),
    "vmap of grad of cond": lambda jx, f, v, a: jx.vmap(jx.grad(total(jx, branched(jx, f))))(a - 1),
}
FORWARD_USES: dict[str, Callable[..., Any]] = {
    "jvp": lambda jx, f, v, a: jx.jvp(f, (v,), (v * v,)),
    "jvp of jit": lambda jx, f, v, a: jx.jvp(jx.jit(f), (v,), (v * v,)),
    "jacfwd": lambda jx, f, v, a: jx.jacfwd(f)(v),
    "hessian": lambda jx, f, v, a: jx.hessian(total(jx, f))(v),
    "jit of hessian of jit": lambda jx, f, v, a: jx.jit(jx.hessian(total(jx, jx.jit(f))))(v),
    "grad of jvp": lambda jx, f, v, a: jx.grad(lambda x: jx.jvp(f, (x,), (v,))[1].sum())(v),
    "jvp of vmap": lambda jx, f, v, a: jx.jvp(jx.vmap(f), (a,), (a,)),
    "linearize": lambda jx, f, v, a: jx.linearize(f, v)[1](v),
    "jvp of scan": lambda jx, f, v, a: jx.jvp(looped(jx, f), (v,), (v,)),
    "third derivative": lambda jx, f, v, a: jx.jacfwd(jx.jacfwd(jx.jacfwd(total(jx, f))))(v),
}
NO_FORWARD = ("custom_vjp", "custom_gradient")  # JAX has no forward mode of these
FEW = ("value", "jit of grad", "grad of grad", "vmap of grad of scan", "grad of cond", "hessian")


def uses(name: str) -> list[str]:
    """Those that JAX does not refuse; few for variants."""
    if name == "custom_vmap":
        return ["value", "jit", "vmap", "jit of vmap of jit", "scan"]
    if name in NO_FORWARD:
        return list(USES)
    return list(FEW) if "," in name else [*USES, *FORWARD_USES]


def uncompiled(use: str) -> str:
    return use.replace("jit of ", "").replace(" of jit", "") if use != "jit of vmap of jit" else use


# Every other use of each function, so that each use is one of some functions.
CHECKED = [(name, use) for n, name in enumerate(FUNCTIONS) for k, use in enumerate(uses(name)) if (n + k) % 2 == 0]


PARTS = 4  # of what is checked: as JAX compiles a part at once, the sample of the default run needs one of them


@functools.cache
def expected(name: str, part: int) -> dict[str, list[Any]]:
    """JAX compiles all uses in a part of what is checked as one program, which is cheaper than a kernel for each
    operation, and than a program for each use."""
    f = FUNCTIONS[name](jax)
    wanted = sorted({uncompiled(use) for checked, use in CHECKED[part::PARTS] if checked == name})

    def program(v: Any, a: Any) -> dict[str, Any]:
        return {use: jax.tree.leaves({**USES, **FORWARD_USES}[use](jax, f, v, a)) for use in wanted}

    return jax.jit(program)(V, A)


@pytest.mark.parametrize(
    ("name", "use"), [pytest.param(*x, marks=pytest.mark.thorough if k % PARTS else ()) for k, x in enumerate(CHECKED)]
)
def test_as_in_jax(name: str, use: str) -> None:
    ours = jax.tree.leaves({**USES, **FORWARD_USES}[use](tx, FUNCTIONS[name](tx), V, A))
    wanted = expected(name, CHECKED.index((name, use)) % PARTS)[uncompiled(use)]
    for x, y in zip(ours, wanted, strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NO_FORWARD)
def test_forward_mode_is_the_transpose_of_the_way_back(name: str) -> None:
    f = FUNCTIONS[name](tx)
    rows = np.asarray(tx.jacrev(f)(V))
    for g in (f, tx.jit(f)):
        np.testing.assert_allclose(tx.jacfwd(g)(V), rows, rtol=1e-5)
        np.testing.assert_allclose(tx.jvp(g, (V,), (V,))[1], rows @ V, rtol=1e-5)
    np.testing.assert_allclose(tx.hessian(total(tx, f))(V), tx.jacrev(tx.jacrev(total(tx, f)))(V), rtol=1e-5)


# --- how rules are called ---------------------------------------------------------------------------------------------


def both_equal(program: Callable[[Any], Any]) -> None:
    for x, y in zip(jax.tree.leaves(program(tx)), jax.tree.leaves(program(jax)), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5)


def test_nondiff_arguments_come_first() -> None:
    def program(jx: Any) -> Any:
        @functools.partial(jx.custom_jvp, nondiff_argnums=(0, 2))
        def f(apply: Any, x: Any, power: int, y: Any = 1.0) -> Any:
            return apply(x) ** power * y

        @f.defjvp
        def _(apply: Any, power: int, primals: Any, tangents: Any) -> Any:
            (x, y), (dx, dy) = primals, tangents
            return f(apply, x, power, y), power * dx + 2 * dy

        @functools.partial(jx.custom_vjp, nondiff_argnums=(0,))
        def g(limits: Any, x: Any) -> Any:
            return x * 1

        def fwd(limits: Any, x: Any) -> Any:
            return g(limits, x), None

        def bwd(limits: Any, residuals: Any, ct: Any) -> Any:
            return (jx.numpy.clip(ct, *limits),)

        g.defvjp(fwd, bwd)
        return (
            jx.grad(lambda x: f(jx.numpy.sin, x, 3, x))(2.0),
            jx.jit(jx.grad(lambda x: f(jx.numpy.sin, x, 3, y=x)))(2.0),
            jx.grad(lambda x: 5 * g((-1, 1), x))(2.0),
            jx.vmap(jx.grad(lambda x: 5 * g((-1, 1), x)))(V),
        )

    both_equal(program)


def test_arguments_and_results_are_pytrees() -> None:
    def program(jx: Any) -> Any:
        @jx.custom_vjp
        def f(params: Any, x: Any) -> Any:
            return {"y": params["w"] * x, "n": params["n"]}

        def fwd(params: Any, x: Any) -> Any:
            return f(params, x), (params["w"], x, "a string")

        def bwd(residuals: Any, g: Any) -> Any:
            _w, x, text = residuals
            assert text == "a string"
            return {"w": g["y"] * x * 2, "n": None}, None

        if jx is jax:  # which takes no strings along
            fwd = lambda params, x: (f(params, x), (params["w"], x))  # noqa: E731
            bwd = lambda residuals, g: ({"w": g["y"] * residuals[1] * 2, "n": None}, None)  # noqa: E731
        f.defvjp(fwd, bwd)

        def loss(params: Any, x: Any) -> Any:
            found = f(params, x)
            return found["y"] * found["n"]

        params = {"w": 3.0, "n": 4.0}
        return jx.grad(loss, (0, 1))(params, 2.0), jx.jit(jx.grad(loss, (0, 1)))(params, 2.0)

    both_equal(program)


def test_rules_see_values_outside_jit() -> None:
    seen: list[float] = []

    @tx.custom_jvp
    def f(x: Any) -> Any:
        return x**2 if x > 0 else x

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        seen.append(float(primals[0]))
        return f(*primals), (10 if primals[0] > 0 else 20) * tangents[0]

    assert (float(tx.grad(f)(2.0)), float(tx.grad(f)(-2.0))) == (10, 20)
    assert seen == [2, -2]


def test_integers_and_symbolic_zeros() -> None:
    def program(jx: Any) -> Any:
        zeros = jx.custom_derivatives.SymbolicZero

        @jx.custom_jvp
        def f(x: Any, n: Any) -> Any:
            return x * n

        def rule(primals: Any, tangents: Any) -> Any:
            (x, n), (dx, dn) = primals, tangents
            assert type(dn) is zeros
            assert dn.shape == ()
            return f(x, n), 7 * dx

        f.defjvp(rule, symbolic_zeros=True)

        @jx.custom_vjp
        def g(x: Any, y: Any) -> Any:
            return x * y

        def fwd(x: Any, y: Any) -> Any:
            assert x.perturbed
            assert not y.perturbed
            return g(x.value, y.value), None

        def bwd(_: Any, cotangents: Any) -> Any:
            return 5 * cotangents, None

        g.defvjp(fwd, bwd, symbolic_zeros=True)
        return jx.grad(lambda x: f(x, 3))(2.0), jx.grad(lambda x: g(x, 2.0))(3.0)

    both_equal(program)


def _with_update(x: Any, state: Any) -> Any:
    """x, by a function whose rule gives the new state for the cotangent of the state, as those of 8-bit layers do."""
    scaled = tx.custom_vjp(lambda x, state: x * 1.0)
    scaled.defvjp(lambda x, state: (x * 1.0, state), lambda state, g: (g, state + 10.0))
    return scaled(x, state)


def _without_cotangent(x: Any) -> Any:
    """x, by a function whose rule gives no cotangent."""
    stopped = tx.custom_vjp(lambda x: x * 2.0)
    stopped.defvjp(lambda x: (x * 2.0, None), lambda _, g: (None,))
    return stopped(x)


@pytest.mark.parametrize("wrap", [lambda f: f, tx.jit, tx.checkpoint], ids=["plain", "jit", "checkpoint"])
@pytest.mark.parametrize("outer", [lambda f: f, tx.jit], ids=["eager", "compiled"])
def test_rules_that_return_updates_are_called_where_a_later_rule_gives_no_cotangent(wrap: Any, outer: Any) -> None:
    """The numbers are JAX's."""

    def derivative(function: Any) -> float:
        return float(outer(tx.grad(lambda s: wrap(function)(s)[0]))(3.0))

    assert derivative(lambda s: (_without_cotangent(_with_update(1.0, s)), s * 2)) == 13.0
    assert derivative(lambda s: (_without_cotangent(_with_update(1.0, s) * 5), s * 2)) == 13.0  # ops between
    assert derivative(lambda s: (_with_update(1.0, s), s * 2)) == 13.0
    assert derivative(lambda s: (s * 3, _with_update(1.0, s))) == 3.0  # no cotangent gets there
    assert derivative(lambda s: (tx.lax.stop_gradient(_with_update(1.0, s)), s)) == 0.0
    assert derivative(lambda s: (_without_cotangent(s), s)) == 0.0


def test_methods() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @functools.partial(tx.custom_jvp, nondiff_argnums=(0,))
        def __call__(self, x: Any) -> Any:
            return self.factor * x

        @__call__.defjvp
        def _rule(self, primals: Any, tangents: Any) -> Any:
            return self(*primals), -self.factor * tangents[0]

    assert float(tx.grad(Scale(3.0))(1.0)) == -3
    assert float(tx.jit(tx.grad(Scale(3.0)))(1.0)) == -3


def test_equal_programs_are_compiled_once(monkeypatch: Any) -> None:
    compiled: list[str] = []
    compile_module = executables.compile_module
    monkeypatch.setattr(executables, "compile_module", lambda m, **o: compiled.append(m.name) or compile_module(m, **o))
    f = by_vjp(tx)

    def run() -> None:
        tx.lax.scan(lambda c, _: (f(c), None), V, None, length=2)
        tx.grad(lambda x: tx.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0].sum())(V)

    run()
    before = len(compiled)
    run()
    assert before
    assert len(compiled) == before


# --- checkpoints ------------------------------------------------------------------------------------------------------


def saved(f: Callable[..., Any], capsys: Any) -> list[str]:
    tx.ad_checkpoint.print_saved_residuals(f, V)
    return [line.split(" at ")[0] for line in capsys.readouterr().out.splitlines()]


def test_what_is_kept(capsys: Any) -> None:
    assert saved(by_checkpoint(tx), capsys) == ["f32[3] from the argument x"]
    assert len(saved(by_checkpoint(tx, "all"), capsys)) > 2
    assert sorted(saved(by_checkpoint(tx, "dots"), capsys)) == [
        "f32[3] from get-tuple-element",
        "f32[3] from the argument x",
    ]
    assert saved(by_checkpoint(tx, "named"), capsys) == saved(by_checkpoint(tx, "dots"), capsys)
    twice = lambda x: by_checkpoint(tx)(by_checkpoint(tx)(x))  # noqa: E731
    assert len(saved(twice, capsys)) == 2


def sines(f: Callable[..., Any], **options: Any) -> int:
    """How many sines a compiled gradient computes."""
    kept = tx.checkpoint(f, **options)
    program = tx.jit(tx.value_and_grad(lambda x: kept(x).sum())).lower(V).compile()
    return sum(kernel.source.count("sin(") for kernel in program.kernels)


def test_what_is_computed_again_is_not_merged() -> None:
    f = lambda x: tx.numpy.sin(tx.numpy.sin(tx.numpy.sin(x)))  # noqa: E731
    assert sines(f) > sines(f, policy=tx.checkpoint_policies.everything_saveable)


@pytest.mark.parametrize(("kept", "loops"), [("cosine", 2), ("sine", 3)])
def test_policies_of_checkpoints_are_asked_of_the_steps_of_loops(kept: str, loops: int) -> None:
    def f(x: Any) -> Any:
        return tx.lax.fori_loop(0, 3, lambda k, c: tx.numpy.sin(c), x).sum()

    gradient = tx.jit(tx.grad(tx.checkpoint(f, policy=lambda op, *shapes, **attributes: op.name == kept)))
    assert gradient.lower(V).as_text().count(" while(") == loops
    np.testing.assert_allclose(gradient(V), tx.grad(f)(V), rtol=1e-5)


def test_static_arguments_of_checkpoints() -> None:
    @functools.partial(tx.checkpoint, static_argnums=(1,), static_argnames="twice")
    def f(x: Any, flag: bool, *, twice: bool = False) -> Any:
        return tx.numpy.sin(x) * (2 if flag else 1) * (2 if twice else 1)

    assert float(tx.grad(f)(0.0, True, twice=True)) == 4
    assert float(tx.grad(f)(0.0, False)) == 1


@pytest.mark.parametrize("lib", [tx, jax], ids=["tinyxla", "jax"])
def test_checkpoints_are_traced_once_for_types_and_static_values(lib: Any) -> None:
    traced: list[Any] = []

    def f(x: Any, n: int) -> Any:
        traced.append((x.shape, n))
        looped = lib.lax.fori_loop(0, n, lambda _, x: lib.numpy.sin(x), x)
        return looped, lib.jit(lib.numpy.cos)(x), lib.checkpoint(lambda y: y * x)(x), 3

    for kept in (lib.checkpoint(f, static_argnums=1), lib.remat(f, static_argnums=(1,))):
        found = [kept(x, n) for x, n in ((2.0, 2), (3.0, 2), (V, 2), (V, 3))]
        np.testing.assert_allclose(found[1][0], np.sin(np.sin(3)), 1e-6)
        np.testing.assert_allclose(found[3][2], V * V)
        assert found[0][3].dtype == np.int32
        lib.grad(lambda x, kept=kept: kept(x, 2)[0])(2.0)
    assert traced == [((), 2), ((3,), 2), ((3,), 3)]


def test_checkpoints_of_functions_that_use_traced_arrays_or_references_are_traced_each_time() -> None:
    outer: list[Any] = []
    kept = tx.checkpoint(lambda x: outer[0] * x)

    def f(a: Any) -> Any:
        outer[:] = [a]
        return kept(3.0)

    assert [float(tx.grad(f)(2.0)), float(tx.jit(f)(4.0)), float(tx.jit(tx.grad(f))(2.0))] == [3, 12, 3]
    unhashable = tx.checkpoint(lambda x, factors: factors[0] * x, static_argnums=1)
    factors = [2.0]
    assert float(unhashable(3.0, factors)) == 6
    factors[0] = 4.0
    assert float(unhashable(3.0, factors)) == 12


def test_checkpoints_cannot_look_at_values() -> None:
    f = tx.checkpoint(lambda d, n: d["x"] if d["x"] > n else -d["x"], static_argnums=1)
    with pytest.raises(
        tx.errors.TracerBoolConversionError, match=r"depends on the argument d\['x'\]\. .*static_argnums"
    ):
        f({"x": 1.0}, 2)


# --- linear maps ------------------------------------------------------------------------------------------------------


def test_linearize() -> None:
    def program(jx: Any) -> Any:
        def f(x: Any, n: Any, p: Any) -> Any:
            return {"y": jx.numpy.sin(x) * p["w"], "n": n}, {"aux": x}

        value, derivative, aux = jx.linearize(f, V, 3, {"w": A}, has_aux=True)
        zero = np.zeros((), jax.dtypes.float0)
        return value, aux, derivative(V, zero, {"w": A})["y"], derivative(V, zero, {"w": 0 * A})["y"]

    both_equal(program)
    _value, derivative = tx.linearize(lambda x: x if x[0] > 0 else -x, V)  # values are there
    np.testing.assert_allclose(tx.vmap(derivative)(A), A)
    np.testing.assert_allclose(tx.jit(derivative)(V), V)
    with pytest.raises(tx.errors.ShapeError, match=r"must have the shape \(3,\), but is f32\[2\]"):
        derivative(V[:2])
    with pytest.raises(tx.errors.ArgumentError, match="must have the structure"):
        derivative((V,))


def test_linear_transpose() -> None:
    def program(jx: Any) -> Any:
        struct = jx.ShapeDtypeStruct((3,), np.float32)
        f = jx.linear_transpose(lambda x, y: (A @ x + y[0] * 2, {"s": jx.numpy.cumsum(y)}), struct, struct)
        return f((V, {"s": V})), jx.jit(lambda c: jx.linear_transpose(lambda x: c * x[::-1], struct)(V))(2.0)

    both_equal(program)
    with pytest.raises(tx.errors.DifferentiationError, match="must be linear"):
        tx.linear_transpose(tx.numpy.sin, V)
    with pytest.raises(tx.errors.DifferentiationError, match="must be linear"):
        tx.linear_transpose(lambda x, y: x * y, 1.0, 1.0)
    with pytest.raises(tx.errors.DifferentiationError, match="must be floating or complex, but one is s32"):
        tx.linear_transpose(lambda x: 2.0 * x, 1)


def test_closure_convert() -> None:
    def f(y: Any) -> Any:
        converted, captured = tx.closure_convert(lambda x: {"r": tx.numpy.sin(x["x"]) * y}, {"x": 1.0})
        assert len(captured) == 1
        with pytest.raises(tx.errors.ArgumentError, match="takes arguments of the structure"):
            converted(1.0, *captured)
        return converted({"x": 2.0}, *captured)["r"]

    np.testing.assert_allclose(tx.grad(f)(3.0), np.sin(2), rtol=1e-6)
    np.testing.assert_allclose(tx.jit(tx.grad(f))(3.0), np.sin(2), rtol=1e-6)


# --- errors -----------------------------------------------------------------------------------------------------------


def wrong_jvp(rule: Callable[..., Any], wrap: Any = lambda f: f) -> Callable[[], Any]:
    f = tx.custom_jvp(lambda x: x * 2)
    f.defjvp(rule)
    return lambda: tx.grad(wrap(lambda x: f(x).sum()))(V)


def wrong_vjp(fwd: Callable[..., Any], bwd: Callable[..., Any], wrap: Any = lambda f: f) -> Callable[[], Any]:
    f = tx.custom_vjp(lambda x: x * 2)
    f.defvjp(fwd, bwd)
    return lambda: tx.grad(wrap(lambda x: f(x).sum()))(V)


def wrong_vmap(rule: Any) -> Callable[[], Any]:
    f = tx.custom_batching.custom_vmap(lambda x: x)
    f.def_vmap(rule)
    return lambda: tx.vmap(f)(V)


def zero_of_another_shape() -> Any:
    f = tx.custom_vjp(lambda x, y: (x, y))
    f.defvjp(lambda x, y: ((x.value, y.value), None), lambda _, g: (g[1], g[0]), symbolic_zeros=True)
    return tx.grad(lambda x, y: f(x, y)[1].sum(), (0, 1))(V[:2], V)


def closing_over() -> Any:
    def outer(w: Any) -> Any:
        f = tx.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (f(*p), t[0]))
        return f(1.0)

    return tx.grad(tx.jit(outer))(2.0)


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: tx.custom_jvp(lambda x: x)(1.0), "custom_jvp of <lambda> has no rule; define one with"),
    (lambda: tx.custom_vjp(lambda x: x)(1.0), "custom_vjp of <lambda> has no rule; define one with"),
    (lambda: tx.custom_batching.custom_vmap(lambda x: x)(V), "custom_vmap of <lambda> has no rule"),
    (
        wrong_vmap(lambda size, over, x: ([x, x], over)),
        r"the rule <lambda> says is batched is \[True\], which does not",
    ),
    (
        wrong_vmap(lambda size, over, x: ([x], over)),
        r"the rule <lambda> must give .* structure .*, \*, but gives \[\*\]",
    ),
    (zero_of_another_shape, r"the cotangent\[1\] must have the shape .* f32\[3\], but is a SymbolicZero\(f32\[2\]\)"),
    (wrong_jvp(lambda p, t: t[0]), r"the rule <lambda> must give a pair \(result, tangent\), but gives"),
    (
        wrong_jvp(lambda p, t: (p[0], (t[0], t[0]))),
        r"the tangent of the rule <lambda> must have the structure \*, .*\(\*, \*\)",
    ),
    (
        wrong_jvp(lambda p, t: (p[0], t[0][:2])),
        r"the rule <lambda> must have the shape of .* f32\[3\], but is f32\[2\]",
    ),
    (
        wrong_jvp(lambda p, t: ((p[0], p[0]), (t[0], t[0])), tx.jit),
        r"the rule <lambda> must give the function's result first, of the structure f32\[3\], but gives \(f32",
    ),
    (
        wrong_vjp(lambda x: (x[:2], None), lambda r, g: (g,), tx.jit),
        r"the forward rule <lambda> must give the function's result first, .* f32\[3\], but gives f32\[2\]",
    ),
    (wrong_vjp(lambda x: x, lambda r, g: (g,)), r"the forward rule <lambda> must give a pair"),
    (
        wrong_vjp(lambda x: (x, None), lambda r, g: g),
        "the backward rule <lambda> must give a tuple with a cotangent for each",
    ),
    (wrong_vjp(lambda x: (x, None), lambda r, g: (g, g)), "for each of the 1 arguments"),
    (wrong_vjp(lambda x: (x, None), lambda r, g: (g[:1],)), r"the cotangent\[0\] must have the shape .* is f32\[1\]"),
    (wrong_vjp(lambda x: (x, None), lambda r, g: ((g, g),)), "the cotangent must have the structure"),
    (lambda: tx.custom_jvp(3), "custom_jvp takes a function, but got 3"),
    (lambda: tx.custom_vjp(lambda x: x, nondiff_argnums=(4,))(1.0), "nondiff_argnums has 4, but the call has 1"),
    (lambda: tx.custom_vjp(lambda x: x, nondiff_argnames="y"), "nondiff_argnames has 'y', but there is no such"),
    (lambda: tx.custom_jvp(lambda x: x)("text"), "custom_jvp of <lambda>: argument .* which is not an array"),
    (lambda: tx.custom_jvp(lambda x: x)(1, 2), "custom_jvp of <lambda>: too many positional arguments"),
    (closing_over, "uses an outer value that a derivative is wanted for, but its rule gives"),
    (lambda: tx.checkpoint(3), "checkpoint takes a function"),
    (lambda: tx.lax.custom_root(lambda x: (x, x), 1.0, None, None), "must give what has the structure and shapes"),
    (
        lambda: tx.grad(lambda b: tx.lax.custom_linear_solve(lambda x: 2 * x, b, lambda mv, b: b / mv(1.0)))(1.0),
        "needs a solver of the transposed equation; give transpose_solve",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), ERRORS, ids=[message[:40] for _, message in ERRORS])
def test_errors(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(tx.errors.TinyxlaError) as caught:
        wrong()
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)
    assert "test_custom_rules.py" in str(caught.value)


def scaled_by_jvp(jx: Any) -> Any:
    @functools.partial(jx.custom_jvp, nondiff_argnums=(0,))
    def f(x: Any, y: Any) -> Any:
        return x * y

    @f.defjvp
    def _(x: Any, primals: Any, tangents: Any) -> Any:
        return f(x, primals[0]), 5 * x * tangents[0]

    return f


@pytest.mark.parametrize("mapped", ["first", "both"])
def test_arguments_that_are_handed_on_may_be_mapped(mapped: str) -> None:
    def program(jx: Any) -> Any:
        f = jx.vmap(scaled_by_jvp(jx), (0, None if mapped == "first" else 0))
        y = jx.numpy.float32(3) if mapped == "first" else jx.numpy.asarray(V)
        of_y = lambda y: f(jx.numpy.asarray(V), y)  # noqa: E731
        return f(V, y), jx.jvp(of_y, (y,), (y,)), jx.jit(jx.jacrev(of_y))(y)

    for found, wanted in zip(
        jax.tree.leaves(tx.tree.map(np.asarray, program(tx))), jax.tree.leaves(program(jax)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, 1e-6)


def test_derivatives_by_arguments_that_are_handed_on_are_an_error() -> None:
    with pytest.raises(TypeError, match="a derivative is wanted by an argument of nondiff_argnums"):
        tx.jvp(lambda x: tx.vmap(scaled_by_jvp(tx), (0, None))(x, 3.0), (V,), (V,))


def test_checkpoint_takes_a_pytree_of_flags_against_common_subexpressions() -> None:
    function = tx.checkpoint(lambda x: tx.numpy.sin(x["a"]) * x["b"], prevent_cse=({"a": False, "b": True},))
    assert float(tx.grad(function)({"a": 0.0, "b": 2.0})["a"]) == 2
    text = tx.jit(tx.grad(function)).lower({"a": 0.0, "b": 2.0}).as_text("stablehlo")
    assert "optimization_barrier" in text


@pytest.mark.parametrize("axes", [(None, 0), (0, None)])
def test_results_of_custom_vmap_that_are_the_same_for_all_examples_stay_one(
    axes: tuple[int | None, int | None],
) -> None:
    def program(jx: Any) -> Any:
        f = jx.custom_batching.custom_vmap(lambda x: 7 * x)
        f.def_vmap(lambda size, over, x: (11 * x, over[0]))
        v, s = jx.numpy.asarray(V), jx.numpy.float32(4)
        x, t = (s if axis is None else v for axis in axes)
        return jx.vmap(lambda x, t: jx.jvp(f, (x,), (t,)), axes, axes)(x, t)

    for ours, theirs in zip(program(tx), program(jax), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("place", ["body", "condition", "branch"])
def test_custom_vmap_is_used_where_lanes_end_one_by_one(place: str) -> None:
    def program(jx: Any) -> Any:
        f = jx.custom_batching.custom_vmap(lambda x, y: x + y)
        f.def_vmap(lambda size, over, x, y: (10 * x + y, True))
        loop, identity = jx.lax.while_loop, lambda x, y: x

        def one(x: Any) -> Any:
            test, step = (identity, f) if place != "condition" else (f, lambda x, y: x + 1)
            looped = lambda z: loop(lambda c: test(c, x) < 40, lambda c: step(c, x), z)  # noqa: E731
            return jx.lax.cond(x > 1, looped, lambda z: z, x) if place == "branch" else looped(x)

        return jx.vmap(one)(jx.numpy.float32([0.5, 1.25, 2]))

    np.testing.assert_array_equal(program(tx), program(jax))


def closed_over_by_jvp(jx: Any, x: Any) -> Any:
    f = jx.custom_jvp(lambda y: x * y)
    f.defjvp(lambda p, t: (x * p[0], 5 * x * t[0]))
    return f


def closed_over_by_vjp(jx: Any, x: Any) -> Any:
    f = jx.custom_vjp(lambda y: x * y)
    f.defvjp(lambda y: (x * y, x), lambda x, g: (5 * x * g,))
    return f


@pytest.mark.parametrize("make", [closed_over_by_jvp, closed_over_by_vjp])
@pytest.mark.parametrize("transform", ["grad", "jit of grad", "vmap of grad", "nested"])
def test_rules_may_close_over_mapped_arrays(make: Any, transform: str) -> None:
    def total(z: Any) -> Any:
        def one(x: Any) -> Any:
            f = make(tx, x)
            if transform == "nested":
                return tx.vmap(lambda w: w * f(z))(tx.numpy.ones(1)).sum()
            return f(z)

        return tx.vmap(one)(V).sum()

    gradient = tx.grad(total)
    if transform == "jit of grad":
        gradient = tx.jit(gradient)
    if transform == "vmap of grad":
        np.testing.assert_allclose(tx.vmap(gradient)(tx.numpy.ones(2)), np.full(2, 5 * V.sum()), rtol=1e-5)
    else:
        np.testing.assert_allclose(gradient(2.0), 5 * V.sum(), rtol=1e-5)


def test_rule_that_refuses_a_derivative_is_not_asked_for_it() -> None:
    """It is recorded with what its function closes over; only a derivative by that is an error."""

    def scaled(x: Any, y: Any) -> Any:
        def forth(y: Any, n: Any) -> Any:
            if n.perturbed:
                raise AssertionError
            return x * y.value * n.value, None

        f = tx.custom_vjp(lambda y, n: x * y * n)
        f.defvjp(forth, lambda _, g: (5 * g, None), symbolic_zeros=True)
        return tx.jit(f)(y, 3.0)

    assert tx.jit(scaled)(2.0, 1.0) == 6
    with pytest.raises(tx.errors.ClosedOverTracerError, match="pass the value as an argument"):
        tx.jit(tx.grad(scaled))(2.0, 1.0)


@pytest.mark.parametrize("make", [closed_over_by_jvp, closed_over_by_vjp])
def test_unmapped_call_stays_unmapped(make: Any) -> None:
    value, gradient = tx.value_and_grad(lambda z: tx.vmap(lambda x: make(tx, 2.0)(z), out_axes=None)(V))(3.0)
    assert (value, gradient) == (6, 10)


def in_scan(f: Any) -> Any:
    return lambda z: tx.lax.scan(lambda c, _: (f(c), None), z, None, length=2)[0]


def in_while(f: Any) -> Any:
    return lambda z: tx.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])), (0, z))[1]


def in_cond(f: Any) -> Any:
    return lambda z: tx.lax.cond(z > 0, lambda z: f(f(z)), lambda z: z, z)


def in_jit(f: Any) -> Any:
    return tx.jit(lambda z: f(f(z)))


def in_checkpoint(f: Any) -> Any:
    return tx.checkpoint(lambda z: f(f(z)))


@pytest.mark.parametrize("make", [closed_over_by_jvp, closed_over_by_vjp])
@pytest.mark.parametrize("wrap", [in_scan, in_while, in_cond, in_jit, in_checkpoint])
def test_rules_inside_of_loops_branches_and_calls_may_close_over_traced_arrays(make: Any, wrap: Any) -> None:
    """The rule multiplies by 5 x, twice."""
    f = lambda x, z: wrap(make(tx, x))(z)  # noqa: E731
    grad, total = tx.grad(f, 1), lambda z: tx.vmap(f, (0, None))(V, z).sum()
    expected = 25 * V**2
    np.testing.assert_allclose(tx.vmap(grad, (0, None))(V, 2.0), expected, 1e-5)
    np.testing.assert_allclose(tx.vmap(grad)(V, V + 2), expected, 1e-5)
    np.testing.assert_allclose(tx.vmap(tx.jacfwd(f, 1), (0, None))(V, 2.0), expected, 1e-5)
    np.testing.assert_allclose([tx.grad(total)(2.0), tx.jit(tx.grad(total))(2.0)], expected.sum(), 1e-5)
    np.testing.assert_allclose(tx.jit(lambda x: grad(x, 2.0))(3.0), 225, 1e-5)
    np.testing.assert_allclose(tx.grad(lambda z: tx.jit(f)(3.0, z))(2.0), 225, 1e-5)


@pytest.mark.parametrize("wrap", [in_cond, in_jit, in_checkpoint])
def test_rules_that_close_over_traced_arrays_have_results_without_cotangents(wrap: Any) -> None:
    """Integers, and results that are not used."""

    def make(x: Any, n: Any) -> Any:
        f = tx.custom_vjp(lambda d: {"a": d["a"] * x, "n": d["n"] + 1, "unused": d["a"]})
        f.defvjp(
            lambda d: (f(d), (d["n"], {"s": x})),
            lambda kept, g: ({"a": 5 * g["a"] * kept[1]["s"] + g["unused"], "n": None},),
        )
        return wrap(lambda z: f({"a": z, "n": n})["a"])

    gradient = tx.vmap(lambda x, n: tx.grad(make(x, n))(1.5))(V, np.arange(3))
    np.testing.assert_allclose(gradient, 25 * V**2, 1e-5)


@pytest.mark.parametrize("wrap", [tx.jit, tx.vmap, lambda f: tx.jit(tx.vmap(f)), lambda f: tx.vmap(tx.jit(f))])
def test_backward_rule_that_is_differentiated_by_what_it_closes_over(wrap: Any) -> None:
    def f(y: Any) -> Any:
        g = tx.custom_vjp(lambda x: 2 * tx.numpy.sin(x))
        g.defvjp(lambda x: (g(x), ()), lambda _, t: (2 * tx.numpy.cos(y) * t,))
        return tx.grad(g)(1.0)

    x = np.float32(4) if wrap is tx.jit else V
    np.testing.assert_allclose(wrap(f)(x), 2 * np.cos(x), 1e-5)
    for gradient in (wrap(tx.grad(f)), tx.grad(lambda x: wrap(f)(x).sum())):
        np.testing.assert_allclose(gradient(x), -2 * np.sin(x), 1e-5)


@pytest.mark.parametrize("make", [closed_over_by_jvp, closed_over_by_vjp])
def test_derivative_by_what_a_rule_closes_over_is_an_error(make: Any) -> None:
    for wrap in (lambda f: f, tx.jit):
        with pytest.raises(tx.errors.ClosedOverTracerError, match="pass the value as an argument"):
            tx.grad(lambda x, wrap=wrap: wrap(make(tx, x))(1.0))(2.0)


@pytest.mark.parametrize(
    "wrap", [lambda f: f, tx.jit, tx.vmap, tx.checkpoint], ids=["eager", "jit", "vmap", "checkpoint"]
)
def test_forward_mode_of_custom_vjp_is_refused_where_that_is_asked_for(wrap: Any) -> None:
    tx.config.update("custom_vjp_forward_mode", "refuse")
    try:
        f = wrap(closed_over_by_vjp(tx, 1.0))
        np.testing.assert_allclose(tx.grad(lambda x: f(x).sum())(V[:1]), [5])
        np.testing.assert_allclose(tx.jacrev(tx.grad(lambda x: f(x).sum()))(V[:1]), [[0]])
        with pytest.raises(tx.errors.DifferentiationError, match="no derivative in forward mode"):
            tx.jvp(f, (V,), (V,))
        h = tx.custom_jvp(lambda x: f(x))
        h.defjvp(lambda primals, tangents: tx.jvp(f, primals, tangents))  # transposed for a gradient, and not run
        np.testing.assert_allclose(tx.grad(lambda x: h(x).sum())(V[:1]), [5])
    finally:
        tx.config.update("custom_vjp_forward_mode", "transpose")


def test_custom_rules_leave_python_scalars_outside_of_transformations_to_the_function() -> None:
    f = tx.custom_jvp(lambda x, y: (x + 1, [y * 2.0]))
    f.defjvp(lambda primals, tangents: (f(*primals), (tangents[0], [tangents[1]])))
    assert repr(f(1, 2.0)) == "(2, [4.0])"
    found, (tangents, _) = tx.jit(lambda x: (f(x, 2.0), tx.jvp(f, (x, 2.0), (x, 1.0))[1]))(1.0)
    assert isinstance(found[0], tx.Array)
    assert float(tangents) == 1


def test_custom_rule_called_outside_of_transformations_gets_python_integers() -> None:
    f = tx.custom_vjp(lambda x, n, flag, scale: scale * x[: n if flag else 0])
    f.defvjp(lambda *args: (f(*args), None), lambda kept, g: (g, None, None, None))
    np.testing.assert_array_equal(f(np.ones(4, np.float32), 3, True, 2.0), np.full(3, 2.0))
    with pytest.raises(TypeError, match="argument"):
        f(np.ones(4, np.float32), 3, "yes", 2.0)


def test_checkpoint_that_keeps_nothing_runs_the_function_of_custom_vjp() -> None:
    f = tx.custom_vjp(tx.numpy.tan)
    f.defvjp(lambda x: (tx.numpy.sin(x), x), lambda x, g: (tx.numpy.cos(x) * g,), optimize_remat=True)
    value, gradient = tx.value_and_grad(lambda x: tx.checkpoint(f)(x) ** 2)(3.2)
    np.testing.assert_allclose((value, gradient), (np.tan(3.2) ** 2, 2 * np.tan(3.2) * np.cos(3.2)), rtol=1e-4)


@pytest.mark.parametrize("make", [closed_over_by_jvp, closed_over_by_vjp])
def test_pullbacks_of_rules_that_close_over_mapped_arrays_run_in_threads(make: Any) -> None:
    _, pullback = tx.vjp(lambda z: tx.vmap(lambda x: make(tx, x)(z))(V), 2.0)
    with futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda k: pullback(np.full(3, k, np.float32))[0], range(16)))
    np.testing.assert_allclose(found, [5 * k * V.sum() for k in range(16)], rtol=1e-5)


def test_custom_vmap_makes_arrays_of_numbers_outside_of_transformations() -> None:
    for library in (tx, jax):
        function = library.custom_batching.custom_vmap(lambda x, y: x * y)
        function.def_vmap(lambda size, batched, x, y: (x * y, True))
        for arguments, dtype in (((2.0, 3.0), "float32"), ((2, 3), "int32"), ((True, 2), "int32")):
            found = function(*arguments)
            assert (found.dtype, found.weak_type, float(found)) == (dtype, True, arguments[0] * arguments[1])


def sized_by_vjp(jx: Any) -> Callable[..., Any]:
    @jx.custom_vjp
    def powers(x: Any, n: int) -> Any:
        return sum(x**k for k in range(n))

    def back(residuals: Any, g: Any) -> Any:
        x, n = residuals
        return sum(k * x ** (k - 1) for k in range(1, n)) * g, None

    powers.defvjp(lambda x, n: (powers(x, n), (x, n)), back)
    return powers


def sized_by_jvp(jx: Any) -> Callable[..., Any]:
    @jx.custom_jvp
    def powers(x: Any, n: int) -> Any:
        return sum(x**k for k in range(n))

    @powers.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, n = primals
        return powers(x, n), sum(k * x ** (k - 1) for k in range(1, n)) * tangents[0]

    return powers


@pytest.mark.parametrize("make", [sized_by_vjp, sized_by_jvp])
@pytest.mark.parametrize("transformation", ["grad", "vmap", "vmap grad", "grad vmap", "jit grad", "grad grad"])
def test_python_integers_stay_sizes_in_rules_of_custom_derivatives(make: Any, transformation: str) -> None:
    def program(jx: Any) -> Any:
        f = functools.partial(make(jx), n=4)
        return {
            "grad": lambda: jx.grad(f)(2.0),
            "vmap": lambda: jx.vmap(f)(V),
            "vmap grad": lambda: jx.vmap(jx.grad(f))(V),
            "grad vmap": lambda: jx.grad(lambda x: jx.vmap(f)(x).sum())(V),
            "jit grad": lambda: jx.jit(jx.grad(f))(2.0),
            "grad grad": lambda: jx.grad(jx.grad(f))(2.0),
        }[transformation]()

    np.testing.assert_allclose(program(tx), program(jax), rtol=1e-5)
