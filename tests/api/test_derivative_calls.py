"""`linear_call`, `fwd_and_bwd`, `custom_vmap` in forward mode, float0 at the edges of `jit`, and `compiler_ir`."""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla
from tinyxla import lax, numpy as tnp
from tinyxla.custom_batching import custom_vmap
from tinyxla.custom_derivatives import linear_call
from tinyxla.dtypes import float0
from tinyxla.errors import ArgumentError, AttributeValueError, DifferentiationError, ShapeError

X = np.array([6.0, 3.0], np.float32)


def _close(found: Any, wanted: Any) -> None:
    for x, y in zip(tinyxla.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, 1e-6)


# --- linear_call ------------------------------------------------------------------------------------------------------


def _shared(lib: Any, linear: Any) -> Any:
    """x + x / 3, whose transpose is wrong by a factor of 2, which shows where it is used."""

    def g(x: Any) -> Any:
        return x + linear(lambda r, x: x / r, lambda r, t: 2 * t / r, 3 * lib.numpy.ones_like(x), x)

    return g


USES = {
    "value": lambda lib, g: g(X),
    "jit": lambda lib, g: lib.jit(g)(X),
    "linear_transpose": lambda lib, g: lib.linear_transpose(g, X)(X),
    "grad": lambda lib, g: lib.grad(lambda x: g(x).sum())(X),
    "jit of grad": lambda lib, g: lib.jit(lib.grad(lambda x: g(x).sum()))(X),
    "jvp": lambda lib, g: lib.jvp(g, (X,), (X,)),
    "transpose twice": lambda lib, g: lib.linear_transpose(lambda y: lib.linear_transpose(g, X)(y)[0], X)(X),
}


@pytest.mark.parametrize("use", USES)
def test_linear_call_agrees_with_jax(use: str) -> None:
    theirs = _shared(jax, jax.custom_derivatives.linear_call)
    _close(USES[use](tinyxla, _shared(tinyxla, linear_call)), USES[use](jax, theirs))


@pytest.mark.parametrize("wrap", [lambda f: f, tinyxla.jit])
def test_linear_call_under_vmap_keeps_its_transpose(wrap: Any) -> None:
    g = _shared(tinyxla, linear_call)
    _close(wrap(tinyxla.vmap(g))(X), X * 4 / 3)
    _close(wrap(tinyxla.vmap(tinyxla.grad(g)))(X), np.full(2, 5 / 3, np.float32))
    _close(wrap(tinyxla.grad(lambda x: tinyxla.vmap(g)(x).sum()))(X), np.full(2, 5 / 3, np.float32))


def test_linear_call_with_shared_linear_argument_under_vmap_sums_cotangents() -> None:
    def product(x: Any) -> Any:
        def one(r: Any) -> Any:
            return linear_call(lambda r, x: x * r, lambda r, t: 2 * t * r, r, x)

        return tinyxla.vmap(one)(tnp.arange(3.0)).sum()

    _close(tinyxla.grad(product)(2.0), 6.0)


def test_linear_call_takes_pytrees() -> None:
    def f(x: Any, y: Any) -> Any:
        return linear_call(
            lambda r, t: {"a": t["x"] * r, "b": t["x"] + t["y"]},
            lambda r, c: {"x": c["a"] * r + c["b"], "y": c["b"]},
            2.0,
            {"x": x, "y": y},
        )

    _close(f(1.0, 2.0), {"a": 2.0, "b": 3.0})
    _close(tinyxla.vjp(f, 1.0, 2.0)[1]({"a": 1.0, "b": 1.0}), (3.0, 1.0))


def test_linear_call_refuses_derivatives_by_residuals() -> None:
    f = lambda r: linear_call(lambda r, x: x / r, lambda r, t: t / r, r, 1.0)  # noqa: E731
    for use in (lambda: tinyxla.grad(f)(2.0), lambda: tinyxla.jvp(f, (2.0,), (1.0,))):
        with pytest.raises(DifferentiationError, match="no derivative by the residual arguments"):
            use()


def test_linear_call_refuses_wrong_transposes() -> None:
    two = lambda x: linear_call(lambda r, x: x, lambda r, t: (t, t), (), x)  # noqa: E731
    with pytest.raises(DifferentiationError, match="fun_transpose must give the structure of linear_args"):
        tinyxla.grad(two)(1.0)
    long = lambda x: linear_call(lambda r, x: x, lambda r, t: t * tnp.ones(3), (), x)  # noqa: E731
    with pytest.raises(ShapeError, match=r"fun_transpose must give f32\[\] for a linear argument"):
        tinyxla.grad(long)(1.0)
    with pytest.raises(ArgumentError, match="linear_call takes a function"):
        linear_call(3, None, (), 1.0)  # pyright: ignore[reportArgumentType]


# --- fwd_and_bwd ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argnums", [0, (0, 1), (1,), -1])
@pytest.mark.parametrize("jitted", [True, False])
def test_fwd_and_bwd_agree_with_jax(argnums: Any, jitted: bool) -> None:
    def both(lib: Any) -> Any:
        fwd, bwd = lib.fwd_and_bwd(lambda x, y: lib.numpy.sin(x) * y, argnums, jitted=jitted)
        found = []
        for x in (2.0, 3.0):
            y, residuals = fwd(x, 4.0)
            found.append((y, bwd(residuals, 1.0)))
        return found

    ours, theirs = both(tinyxla), both(jax)
    assert [type(x) for _, x in ours] == [
        tuple if isinstance(x, tuple) else type(y) for (_, y), (_, x) in zip(ours, theirs, strict=True)
    ]
    _close(ours, theirs)


def test_fwd_and_bwd_are_traced_once() -> None:
    traces: list[int] = []

    def f(x: Any) -> Any:
        traces.append(1)
        return x * x

    fwd, bwd = tinyxla.fwd_and_bwd(f, 0)
    for x in (1.0, 2.0, 3.0):
        _close(bwd(fwd(x)[1], 1.0), 2 * x)
    assert len(traces) == 1


def test_fwd_and_bwd_pass_auxiliary_values() -> None:
    fwd, bwd = tinyxla.fwd_and_bwd(lambda x: (x * x, {"a": 1.0}), 0, has_aux=True)
    y, residuals, aux = fwd(3.0)
    _close((y, bwd(residuals, 1.0), aux), (9.0, 6.0, {"a": 1.0}))


def test_fwd_and_bwd_refuse_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="fwd_and_bwd takes a function"):
        tinyxla.fwd_and_bwd(3, 0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="argnums names argument 5"):
        tinyxla.fwd_and_bwd(lambda x: x, 5)[0](1.0)


# --- custom_vmap in forward mode --------------------------------------------------------------------------------------


def _with_rule(lib: Any, wrap: Any) -> Any:
    """sin, which under vmap is cos."""
    f = wrap(lib.numpy.sin)
    f.def_vmap(lambda size, batched, x: (lib.numpy.cos(x), batched[0]))
    return f


PUSHED = {
    "vmap of jvp": lambda lib, f: lib.vmap(lambda x, t: lib.jvp(f, (x,), (t,)))(X, 2 * X),
    "vmap of jvp, one tangent": lambda lib, f: lib.vmap(lambda x: lib.jvp(f, (x,), (2.0,)))(X),
    "vmap of jvp, one value": lambda lib, f: lib.vmap(lambda t: lib.jvp(f, (1.0,), (t,)))(X),
    "jvp of vmap": lambda lib, f: lib.jvp(lib.vmap(f), (X,), (2 * X,)),
    "vmap of jit of jvp": lambda lib, f: lib.vmap(lib.jit(lambda x: lib.jvp(f, (x,), (x,))))(X),
    "jit of vmap of jvp": lambda lib, f: lib.jit(lib.vmap(lambda x: lib.jvp(f, (x,), (x,))))(X),
    "vmap of jvp of jit": lambda lib, f: lib.vmap(lambda x: lib.jvp(lib.jit(f), (x,), (x,)))(X),
    "vmap of vmap of jvp": lambda lib, f: lib.vmap(lib.vmap(lambda x: lib.jvp(f, (x,), (x,))))(X[None]),
    "vmap of jacfwd": lambda lib, f: lib.vmap(lib.jacfwd(f))(X),
    "jvp": lambda lib, f: lib.jvp(f, (X,), (X,)),
}


@pytest.mark.parametrize("use", PUSHED)
def test_custom_vmap_rule_counts_under_vmap_of_jvp(use: str) -> None:
    theirs = PUSHED[use](jax, _with_rule(jax, jax.custom_batching.custom_vmap))
    _close(PUSHED[use](tinyxla, _with_rule(tinyxla, custom_vmap)), theirs)


def test_custom_vmap_of_two_arguments_with_one_mapped_tangent() -> None:
    def both(lib: Any, wrap: Any) -> Any:
        f = wrap(lambda x, y: x * lib.numpy.sin(y))
        f.def_vmap(lambda size, b, x, y: (3 * x * lib.numpy.sin(y) + size * b[0], b[0] or b[1]))
        one = lambda x, t: lib.jvp(f, (x, 2.0), (t, 1.0))  # noqa: E731
        return lib.vmap(one)(X, X), lib.vmap(one, in_axes=(0, None))(X, 1.0), lib.vmap(one, in_axes=(None, 0))(1.0, X)

    _close(both(tinyxla, custom_vmap), both(jax, jax.custom_batching.custom_vmap))


# --- float0 -----------------------------------------------------------------------------------------------------------


def test_float0_goes_through_jit() -> None:
    f = tinyxla.jit(lambda z, x: (z, {"a": z, "b": x + 1}))
    for shape in ((2, 3), (), (2, 3)):
        z, found = f(np.zeros(shape, float0), 1.0)
        assert (z.dtype, z.shape, found["a"].shape) == (float0, shape, shape)
        _close(found["b"], 2.0)


def test_float0_inside_nested_jit_and_by_name() -> None:
    z = np.zeros((2, 3), float0)
    inner = tinyxla.jit(lambda z, x: (z, x))
    assert tinyxla.jit(lambda x: inner(z, x)[0])(1.0).shape == (2, 3)
    assert tinyxla.jit(lambda *, z: z)(z=z).dtype == float0
    _close(tinyxla.jit(lambda z, k: 2.0 * k, static_argnums=1)(z, 3), 6.0)


def test_float0_derivatives_are_results_of_jit() -> None:
    gradients = tinyxla.jit(tinyxla.grad(lambda n, x: n * x, argnums=(0, 1), allow_int=True))(3, 1.0)
    assert (gradients[0].dtype, gradients[0].shape) == (float0, ())
    _close(gradients[1], 3.0)
    pulled = tinyxla.jit(lambda n, x: tinyxla.vjp(lambda n, x: n * x, n, x)[1](1.0))(np.arange(3)[0], 1.0)
    assert pulled[0].dtype == float0


def test_float0_tangents_are_results_of_functions_with_tangents() -> None:
    def tangent(x: Any) -> Any:
        return tinyxla.jvp(lambda y: (y * y, tnp.argmax(y)), (x,), (x,))[1]

    x = np.arange(3, dtype=np.float32)
    derivative = tinyxla.linearize(tangent, x)[1]
    for moved, zeros in (tinyxla.jvp(tangent, (x,), (x,))[1], derivative(x)):
        _close(moved, 4 * x * x)
        assert (zeros.dtype, zeros.shape) == (float0, ())


@pytest.mark.parametrize("batch_size", [None, 2])
def test_float0_tangents_are_stacked_by_loops(batch_size: int | None) -> None:
    def tangent(x: Any) -> Any:
        return tinyxla.jvp(lambda y: (2 * y, tnp.argmax(y)), (x,), (x,))[1]

    moved, zeros = lax.map(tangent, np.ones((5, 3), np.float32), batch_size=batch_size)
    assert (moved.shape, zeros.shape, zeros.dtype) == ((5, 3), (5,), float0)


# --- compiler_ir ------------------------------------------------------------------------------------------------------


def test_compiler_ir_gives_hlo() -> None:
    lowered = tinyxla.jit(lambda x: (tnp.sin(x), x)).lower(X)
    program = lowered.compiler_ir("hlo")
    assert "sine" in program.as_hlo_text()
    _close(program(X), (np.sin(X), X))
    assert str(lowered.compiler_ir()) == str(lowered.compiler_ir("stablehlo")) == lowered.as_text("stablehlo")
    with pytest.raises(AttributeValueError, match="dialect is 'hlo' or 'stablehlo', but got 'mhlo'"):
        lowered.compiler_ir("mhlo")


# --- residuals --------------------------------------------------------------------------------------------------------

W, ROWS, ONES = np.ones((4, 5), np.float32), np.ones((2, 4), np.float32), np.ones((2, 5), np.float32)


def _pullback(wrap: Any = lambda f: f) -> Any:
    layer = lambda w, x: tnp.tanh(x @ w["a"] * w["n"])  # noqa: E731
    return wrap(lambda *args: tinyxla.vjp(layer, *args)[1])({"a": tnp.array(W), "n": 3}, tnp.array(ROWS))


@pytest.mark.parametrize("wrap", [lambda f: f, tinyxla.jit], ids=["eager", "jit"])
def test_residuals_of_arguments_can_be_replaced(wrap: Any) -> None:
    pullback = _pullback(wrap)
    (w, x), others = pullback.args_res, pullback.opaque_residuals
    assert (w["a"].shape, repr(w["n"]), x.shape) == (W.shape, "NotNeeded()", ROWS.shape)
    assert others
    before = tinyxla.tree.map(np.asarray, pullback(ONES))
    pullback.args_res[0]["a"] = 2 * W
    for again in (pullback, tinyxla.tree.map(lambda x: x, pullback), lambda c: tinyxla.jit(lambda p: p(c))(pullback)):
        _close(again(ONES)[0]["a"], before[0]["a"])
        _close(again(ONES)[1], 2 * before[1])


def test_residual_that_is_dropped_is_freed() -> None:
    pullback = _pullback()
    kept = weakref.ref(pullback.args_res[0]["a"])
    pullback.args_res[0]["a"] = None
    assert kept() is None


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"a": None, "n": 3}, ShapeError, r"a residual must be f32\[4,5\], .* but is None"),
        ({"a": np.ones(3), "n": 3}, ShapeError, r"a residual must be f32\[4,5\], .* but is f32\[3\]"),
        (None, ArgumentError, "args_res must have the structure of the arguments"),
    ],
)
def test_residuals_must_fit(given: Any, error: type[Exception], text: str) -> None:
    pullback = _pullback()
    pullback.args_res[0] = given
    with pytest.raises(error, match=text):
        pullback(ONES)


def test_linearized_functions_give_the_weak_types_of_results() -> None:
    for y in tinyxla.linearize(lambda x, y: (x * y, y), 2.0, 3.0)[1](1.0, 1.0):
        assert y.weak_type
