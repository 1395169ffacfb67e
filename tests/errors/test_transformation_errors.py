"""Mistakes in the use of transformations and of control flow: each gives a typed error that says what is wrong and
names the user's line, wherever the call stands; and loops that never end can be interrupted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    AxisNameError,
    ConcretizationError,
    DifferentiationError,
    DTypeError,
    LeakedTracerError,
    NonConcreteBooleanIndexError,
    ResultTypeError,
    ShapeError,
    TinyxlaError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)

tnp = tx.numpy
total = tnp.sum

Case = tuple[type[TinyxlaError], tuple[str, ...], Callable[[Any], Any]]


def with_jvp(rule: Callable[..., Any]) -> Callable[..., Any]:
    function = tx.custom_jvp(lambda a: tnp.sin(a))
    function.defjvp(rule)
    return lambda x: tx.grad(lambda a: total(function(a)))(x)


def with_vjp(forth: Callable[..., Any], back: Callable[..., Any]) -> Callable[..., Any]:
    function = tx.custom_vjp(lambda a: tnp.sin(a))
    function.defvjp(forth, back)
    return lambda x: tx.grad(lambda a: total(function(a)))(x)


def keeps(a: Any) -> Any:
    return tnp.sin(a), a


def with_vmap(rule: Callable[..., Any]) -> Callable[..., Any]:
    function = tx.custom_batching.custom_vmap(lambda a: tnp.sin(a))
    function.def_vmap(rule)
    return tx.vmap(function)


def with_parts(x: Any) -> Any:
    product = tx.custom_jvp(lambda a, b: a * b)
    product.defjvps(lambda t, ans, a, b: t * b)
    return tx.grad(lambda a: total(product(a, a)))(x)


def leaked(transform: Callable[..., Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        found: list[Any] = []
        transform(lambda a: (found.append(a * 2), a)[1], x)
        return found[0] + 1

    return run


DIFFERENTIATION: dict[str, Case] = {
    "array": (DifferentiationError, ("grad of", "f32[3]", "jacrev"), lambda x: tx.grad(lambda y: y * 2)(x)),
    "value too": (DifferentiationError, ("value_and_grad of", "f32[3]"), lambda x: tx.value_and_grad(lambda y: y)(x)),
    "by an integer": (DifferentiationError, ("argument 0 is s32[]", "floating"), lambda x: tx.grad(lambda y: y)(3)),
    "of an integer": (DifferentiationError, ("s32[]", "int32"), lambda x: tx.grad(tnp.argmax)(x)),
    "of nothing": (DifferentiationError, ("NoneType", "has_aux"), lambda x: tx.grad(lambda y: None)(x)),
    "of complex numbers": (DifferentiationError, ("c64[]",), lambda x: tx.grad(lambda y: total(y) * 1j)(x)),
    "argnums": (ArgumentError, ("argument 1", "1 positional"), lambda x: tx.grad(total, 1)(x)),
    "argnums twice": (ArgumentError, ("each argument once", "(0, 0)"), lambda x: tx.grad(total, (0, 0))(x)),
    "argnums of text": (ArgumentError, ("argnums must be an integer", "'y'"), lambda x: tx.grad(total, "y")(x)),
    "keywords": (ArgumentError, ("by position",), lambda x: tx.grad(lambda y: total(y))(y=x)),
    "of a value": (ArgumentError, ("grad takes a function",), lambda x: tx.grad(total(x))),
    "no pair": (ArgumentError, ("has_aux=True", "a pair"), lambda x: tx.grad(total, has_aux=True)(x)),
    "text in a tree": (
        ArgumentError,
        ("0['act']", "'relu'"),
        lambda x: tx.grad(lambda p: 1.0)({"w": x, "act": "relu"}),
    ),
    "integer in a tree": (
        DifferentiationError,
        ("0['n']", "s32[]"),
        lambda x: tx.grad(lambda p: 1.0)({"w": x, "n": 3}),
    ),
    "cotangent of a shape": (ShapeError, ("f32[3]", "f32[4]"), lambda x: tx.vjp(tnp.sin, x)[1](tnp.ones(4))),
    "scalar cotangent": (ShapeError, ("f32[3]", "f32[]"), lambda x: tx.vjp(tnp.sin, x)[1](1.0)),
    "cotangent of a structure": (ArgumentError, ("(*,)",), lambda x: tx.vjp(tnp.sin, x)[1]((x,))),
    "cotangent of integers": (DTypeError, ("s32[3]", "astype('float32')"), lambda x: tx.vjp(tnp.sin, x)[1](ints())),
    "two cotangents": (ArgumentError, ("pullback takes one", "2"), lambda x: tx.vjp(lambda y: (y, y), x)[1](x, x)),
    "bare primals": (ArgumentError, ("primals must be a tuple",), lambda x: tx.jvp(tnp.sin, x, x)),
    "tangent of a shape": (ShapeError, ("tangent", "f32[2]"), lambda x: tx.jvp(tnp.sin, (x,), (tnp.ones(2),))),
    "tangent of integers": (DTypeError, ("s32[3]", "astype"), lambda x: tx.jvp(tnp.sin, (x,), (ints(),))),
    "tangents too many": (ArgumentError, ("(*,)", "(*, *)"), lambda x: tx.jvp(tnp.sin, (x,), (x, x))),
    "tangent for integers": (DTypeError, ("float0",), lambda x: tx.jvp(lambda y: y * 2.0, (ints(),), (x,))),
    "linearize no function": (ArgumentError, ("linearize takes a function",), lambda x: tx.linearize(3, x)),
    "linear map of a shape": (ShapeError, ("(3,)", "f32[4]"), lambda x: tx.linearize(tnp.sin, x)[1](tnp.ones(4))),
    "linear map of integers": (DTypeError, ("float32", "s32[3]"), lambda x: tx.linearize(tnp.sin, x)[1](ints())),
    "linearize no pair": (ArgumentError, ("a pair",), lambda x: tx.linearize(tnp.sin, x, has_aux=True)),
    "not linear": (DifferentiationError, ("must be linear",), lambda x: tx.linear_transpose(tnp.sin, x)),
    "Jacobian by integers": (DifferentiationError, ("jacrev of", "s32[3]"), lambda x: tx.jacrev(tnp.sin)(ints())),
    "Jacobian of integers": (DifferentiationError, ("the result",), lambda x: tx.jacrev(tnp.argmax)(x)),
    "complex Jacobian": (DifferentiationError, ("holomorphic",), lambda x: tx.jacfwd(lambda y: y)(x * 1j)),
    "no rule": (DifferentiationError, ("defjvp",), lambda x: tx.grad(lambda a: total(tx.custom_jvp(tnp.sin)(a)))(x)),
    "jvp rule without pair": (DifferentiationError, ("a pair (result, tangent)",), with_jvp(lambda p, t: p[0])),
    "jvp rule of a shape": (ShapeError, ("f32[3]", "f32[2]"), with_jvp(lambda p, t: (p[0], t[0][:2]))),
    "defjvp of no function": (ArgumentError, ("defjvp takes a function",), lambda x: tx.custom_jvp(tnp.sin).defjvp(3)),
    "defjvps of too few": (DifferentiationError, ("each of the 2 arguments", "1"), with_parts),
    "no rules": (DifferentiationError, ("defvjp",), lambda x: tx.grad(lambda a: total(tx.custom_vjp(tnp.sin)(a)))(x)),
    "fwd without pair": (DifferentiationError, ("(result, residuals)",), with_vjp(tnp.sin, lambda r, g: (g,))),
    "bwd without tuple": (DifferentiationError, ("a tuple with a cotangent",), with_vjp(keeps, lambda r, g: g)),
    "bwd of too many": (DifferentiationError, ("the 1 arguments",), with_vjp(keeps, lambda r, g: (g, g))),
    "bwd of a shape": (ShapeError, ("f32[3]", "f32[2]"), with_vjp(keeps, lambda r, g: (g[:2],))),
    "bwd of integers": (DTypeError, ("s32[3]", "astype"), with_vjp(keeps, lambda r, g: (g.astype("int32"),))),
    "bwd of text": (ArgumentError, ("cotangent[0] is 'a'",), with_vjp(keeps, lambda r, g: ("a",))),
    "no pullback": (
        DifferentiationError,
        ("custom_gradient of", "(result, pullback)"),
        lambda x: tx.grad(lambda a: total(tx.custom_gradient(lambda b: b)(a)))(x),
    ),
    "root of no function": (ArgumentError, ("custom_root takes",), lambda x: root(x, 3)),
    "root of a shape": (ShapeError, ("(3,)", "f32[2]"), lambda x: root(x, lambda y: y**2 - x, lambda f, i: i[:2])),
    "equation of a shape": (ShapeError, ("[f32[]]",), lambda x: root(x, lambda y: total(y))),
    "solution of a shape": (
        ShapeError,
        ("custom_linear_solve", "f32[2]"),
        lambda x: lax.custom_linear_solve(lambda v: 2 * v, x, lambda _, b: b[:2]),
    ),
    "policy": (ArgumentError, ("'all'",), lambda x: tx.checkpoint(tnp.sin, policy="all")),
}


def ints() -> Any:
    return tnp.arange(3)


def root(x: Any, function: Any, solve: Callable[..., Any] = lambda f, i: i) -> Any:
    return lax.custom_root(function, x, solve, lambda g, y: y)


MAPPING: dict[str, Case] = {
    "sizes": (ShapeError, ("[3, 4]", "argument 1 is f32[4]"), lambda x: tx.vmap(tnp.add)(x, tnp.ones(4))),
    "scalar": (ShapeError, ("argument 0", "no axes"), lambda x: tx.vmap(tnp.sin)(total(x))),
    "axis": (ShapeError, ("axis 1", "-1 to 0"), lambda x: tx.vmap(tnp.sin, 1)(x)),
    "axis of text": (ShapeError, ("an axis is an integer", "'0'"), lambda x: tx.vmap(tnp.sin, "0")(x)),
    "nothing": (AttributeValueError, ("axis_size",), lambda x: tx.vmap(tnp.sin, None)(x)),
    "out_axes": (ShapeError, ("out_axes", "axis 2"), lambda x: tx.vmap(tnp.sin, 0, 2)(x)),
    "out_axes of None": (AttributeValueError, ("differs between",), lambda x: tx.vmap(tnp.sin, 0, None)(x)),
    "condition": (TracerBoolConversionError, ("vmap", "lax.cond"), lambda x: tx.vmap(lambda a: a if a else -a)(x)),
    "mask": (NonConcreteBooleanIndexError, ("mask",), lambda x: tx.vmap(lambda a: a[a > 0])(tnp.stack([x, x]))),
    "name": (AxisNameError, ("'i'", "axis_name='i'"), lambda x: lax.psum(x, "i")),
    "other name": (AxisNameError, ("'i' (size 3)",), lambda x: tx.vmap(lambda a: lax.psum(a, "j"), axis_name="i")(x)),
    "permutation": (
        AttributeValueError,
        ("each target once", "(0, 7)"),
        lambda x: tx.vmap(lambda a: lax.ppermute(a, "i", [(0, 7)]), axis_name="i")(x),
    ),
    "pmap of no function": (ArgumentError, ("pmap takes a function",), lambda x: tx.pmap(3)),
    "rule without pair": (ArgumentError, ("(results, batched)",), with_vmap(lambda n, b, a: a)),
    "rule of a size": (ShapeError, ("3 examples", "f32[2]"), with_vmap(lambda n, b, a: (a[:2], True))),
}

COMPILING: dict[str, Case] = {
    "if": (TracerBoolConversionError, ("lax.cond",), lambda x: tx.jit(lambda a: a if a > 0 else -a)(total(x))),
    "range": (TracerIntegerConversionError, ("static_argnums",), lambda x: tx.jit(lambda n: list(range(n)))(3)),
    "size": (TracerIntegerConversionError, ("static_argnums",), lambda x: tx.jit(tnp.zeros)(3)),
    "axis": (TracerIntegerConversionError, ("static_argnums",), lambda x: tx.jit(lambda n: tnp.eye(2).sum(axis=n))(0)),
    "copies": (TracerIntegerConversionError, ("static_argnums",), lambda x: tx.jit(lambda n: tnp.tile(x, n))(3)),
    "slice": (ConcretizationError, ("lax.dynamic_slice",), lambda x: tx.jit(lambda n: tnp.ones(6)[:n])(3)),
    "unknown size": (ConcretizationError, ("size",), lambda x: tx.jit(lambda a: tnp.nonzero(a))(x)),
    "NumPy": (TracerArrayConversionError, ("A NumPy array",), lambda x: tx.jit(lambda a: np.array(a))(x)),
    "float": (ConcretizationError, ("float()",), lambda x: tx.jit(lambda a: float(a))(total(x))),
    "in place": (ArgumentError, ("x.at[0].set(y)",), lambda x: tx.jit(lambda a: a.__setitem__(0, 1.0))(x)),
    "text": (ArgumentError, ("argument 1 is 'mean'", "static"), lambda x: tx.jit(lambda a, m: a)(x, "mean")),
    "type": (ArgumentError, ("float16", "static"), lambda x: tx.jit(lambda a, d: a)(x, tnp.float16)),
    "static list": (ArgumentError, ("hashed", "tuple"), lambda x: tx.jit(lambda a, n: a, static_argnums=1)(x, [1])),
    "other shape": (ArgumentError, ("f32[3]", "f32[4]"), lambda x: lowered().compile()(tnp.ones(4))),
    "structure": (ArgumentError, ("eval_shape",), lambda x: tx.jit(tnp.sin)(tx.ShapeDtypeStruct((3,), "float32"))),
    "leaked by jit": (LeakedTracerError, ("has ended", "Return the value"), leaked(lambda f, x: tx.jit(f)(x))),
    "leaked by vmap": (LeakedTracerError, ("vmap",), leaked(lambda f, x: tx.vmap(f)(x))),
    "leaked by a loop": (
        LeakedTracerError,
        ("made at",),
        leaked(lambda f, x: lax.fori_loop(0, 2, lambda i, c: f(c), x)),
    ),
    "leaked by a branch": (LeakedTracerError, ("made at",), leaked(lambda f, x: lax.cond(x.sum() > 0, f, f, x))),
    "pullback of another trace": (
        LeakedTracerError,
        ("has ended",),
        lambda x: leaked(lambda f, y: tx.jit(lambda a: tx.vjp(f, a)[0])(y))(x),
    ),
    "print": (AttributeValueError, ("more places",), lambda x: tx.debug.print("{} {}", x)),
    "print of an array": (ArgumentError, ("a text first",), lambda x: tx.debug.print(x)),
    "segments": (ArgumentError, ("num_segments", "'a'"), lambda x: tx.ops.segment_sum(x, ints(), "a")),
    "traced segments": (
        TracerIntegerConversionError,
        ("static_argnums",),
        lambda x: tx.jit(lambda n: tx.ops.segment_sum(x, ints(), n))(3),
    ),
}


def lowered() -> Any:
    return tx.jit(tnp.sin).lower(tx.ShapeDtypeStruct((3,), "float32"))


def scan(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(function, x, x)


CONTROL_FLOW: dict[str, Case] = {
    "carry of a shape": (ResultTypeError, ("f32[3]", "f32[6]"), scan(lambda c, a: (tnp.concatenate([c, c]), a))),
    "carry of a type": (ResultTypeError, ("f16[3]", "astype"), scan(lambda c, a: (c.astype("float16"), a))),
    "carry of integers": (ResultTypeError, ("s32[]",), lambda x: lax.scan(lambda c, a: (c + a, a), np.int32(0), x)),
    "leaf of a carry": (
        ResultTypeError,
        ("the leaf ['h']", "f32[2]"),
        lambda x: lax.scan(lambda c, a: ({"h": c["h"][:2], "c": c["c"]}, a), {"h": x, "c": x}, x),
    ),
    "carry of a structure": (ArgumentError, ("it gives (*, *)",), scan(lambda c, a: ((c, c), a))),
    "carry of nothing": (ArgumentError, ("it gives None",), scan(lambda c, a: (None, a))),
    "no pair": (ArgumentError, ("a pair (carry, y)",), scan(lambda c, a: c)),
    "no result": (ArgumentError, ("a pair (carry, y)", "None"), scan(lambda c, a: None)),
    "text stacked": (ArgumentError, ("'y' of type str",), scan(lambda c, a: (c, "y"))),
    "if in a loop": (TracerBoolConversionError, ("lax.cond",), scan(lambda c, a: (c if a > 0 else -c, a))),
    "no length": (ArgumentError, ("length",), lambda x: lax.scan(lambda c, a: (c, a), x)),
    "other length": (ShapeError, ("5", "f32[3]"), lambda x: lax.scan(lambda c, a: (c, a), x, x, 5)),
    "length of a fraction": (ArgumentError, ("3.5",), lambda x: lax.scan(lambda c, a: (c, a), x, None, 3.5)),
    "traced length": (
        TracerIntegerConversionError,
        ("static_argnums",),
        lambda x: tx.jit(lambda n: lax.scan(lambda c, a: (c, a), x, None, n))(3),
    ),
    "too long": (ShapeError, ("at most", "nest"), lambda x: lax.scan(lambda c, _: (c, None), x, None, 1 << 40)),
    "sizes": (ShapeError, ("xs[1] is f32[4]",), lambda x: lax.scan(lambda c, a: (c, a), x, (x, tnp.ones(4)))),
    "scalar along": (ShapeError, ("a first axis",), lambda x: lax.scan(lambda c, a: (c, a), x, total(x))),
    "unroll": (ArgumentError, ("unroll", "2.5"), lambda x: lax.scan(lambda c, a: (c, a), x, x, unroll=2.5)),
    "condition of arrays": (ArgumentError, ("pred[3]", "any()"), lambda x: lax.while_loop(lambda c: c > 0, tnp.sin, x)),
    "condition of a tuple": (ArgumentError, ("gives (*,)",), lambda x: lax.while_loop(lambda c: (True,), tnp.sin, x)),
    "condition of floats": (ArgumentError, ("f32[]",), lambda x: lax.while_loop(total, tnp.sin, x)),
    "body of a shape": (
        ResultTypeError,
        ("the leaf [1]", "f32[2]"),
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1][:2]), (0, x)),
    ),
    "body of nothing": (ArgumentError, ("None",), lambda x: lax.while_loop(lambda c: True, lambda c: None, x)),
    "bounds": (ArgumentError, ("must be integers",), lambda x: lax.fori_loop(0, 3.0, lambda i, c: c, x)),
    "pair for a carry": (ArgumentError, ("(*, *)",), lambda x: lax.fori_loop(0, 3, lambda i, c: (i, c), x)),
    "list at a counter": (
        TracerIntegerConversionError,
        ("index",),
        lambda x: lax.fori_loop(0, 3, lambda i, c: [c][i], x),
    ),
    "pred": (ArgumentError, ("pred[3]",), lambda x: lax.cond(x > 0, tnp.sin, tnp.cos, x)),
    "branches of shapes": (ResultTypeError, ("f32[2]",), lambda x: lax.cond(True, tnp.sin, lambda a: a[:2], x)),
    "branches of types": (ResultTypeError, ("s32[3]",), lambda x: lax.cond(True, tnp.sin, lambda a: a.astype(int), x)),
    "branches of structures": (ArgumentError, ("(*, *)",), lambda x: lax.cond(True, lambda a: (a, a), tnp.sin, x)),
    "branches that are values": (ArgumentError, ("takes functions",), lambda x: lax.cond(True, x, x)),
    "operand of text": (ArgumentError, ("operand 0 is 'a'",), lambda x: lax.cond(True, tnp.sin, tnp.sin, "a")),
    "index": (ArgumentError, ("must be an integer",), lambda x: lax.switch(1.0, [tnp.sin], x)),
    "bare branch": (ArgumentError, ("a list of functions", "brackets"), lambda x: lax.switch(1, tnp.sin, x)),
    "no branch": (AttributeValueError, ("at least one",), lambda x: lax.switch(1, [], x)),
    "batches": (ArgumentError, ("batch_size", "2.5"), lambda x: lax.map(tnp.sin, x, batch_size=2.5)),
    "fold of a shape": (ResultTypeError, ("axis 0",), lambda x: lax.associative_scan(lambda a, b: total(a + b), x)),
    "fold of a structure": (ArgumentError, ("(*, *)",), lambda x: lax.associative_scan(lambda a, b: (a, b), x)),
    "fold by no function": (ArgumentError, ("takes a function",), lambda x: lax.associative_scan(x, x)),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "derivative": DIFFERENTIATION,
        "map": MAPPING,
        "jit": COMPILING,
        "control flow": CONTROL_FLOW,
    }.items()
    for name, case in cases.items()
}


def aside(function: Callable[[Any], Any], x: Any) -> Any:
    function(x)
    return x


MODES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "at once": lambda f: f(tnp.ones(3)),
    "nested": lambda f: tx.vmap(tx.jit(tx.grad(lambda x: total(aside(f, x)))))(tnp.ones((2, 3))),
    "loop": lambda f: lax.scan(lambda c, _: (aside(f, c), None), tnp.ones(3), None, 2),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_mistakes(name: str, mode: str) -> None:
    kind, parts, function = CASES[name]
    with pytest.raises(TinyxlaError) as caught:
        MODES[mode](function)
    text = str(caught.value)
    assert isinstance(caught.value, kind), text
    for part in parts:
        assert part in text, text
    sentence, _, where = text.rpartition("\n  at ")
    assert where.startswith(f"{__file__}:"), text
    assert sentence.endswith("."), text
    assert float(tnp.ones(2).sum()) == 2.0  # no trace is left open


@pytest.mark.parametrize("transform", [tx.jit, tx.vmap, tx.grad, tx.checkpoint, tx.jacfwd])
def test_errors_of_the_users_own_stay_what_they_are(transform: Callable[..., Any]) -> None:
    """Also a call with other arguments than the function has."""

    def fails(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        transform(fails)(tnp.ones(3))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        transform(lambda x, y: x)(tnp.ones(3))


def test_branches_and_loops_on_traced_values_without_compilation() -> None:
    """`disable_jit` leaves what `vmap` needs traced."""
    x = np.array([1.0, -1.0], np.float32)

    def function(x: Any) -> Any:
        chosen = lax.cond(x > 0, lambda a: a, lambda a: -2 * a, x)
        chosen = lax.switch((x > 0).astype(int), [lambda a: a, lambda a: 5 * a], chosen)
        return lax.while_loop(lambda a: a < 10, lambda a: 3 * a, chosen)

    with tx.disable_jit():
        np.testing.assert_allclose(tx.vmap(function)(x), [15.0, 18.0])


class Interrupted(Exception):
    pass


ENDLESS: dict[str, Callable[[], Any]] = {
    "scalars": lambda: tx.jit(lambda x: lax.while_loop(lambda v: v == v, lambda v: v + 1, x))(0),
    "matrices": lambda: tx.jit(lambda x: lax.while_loop(lambda v: True, lambda v: tnp.sin(v @ v), x))(
        tnp.ones((70, 70))
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_loops_can_be_interrupted(name: str) -> None:
    """As by Ctrl-C: what a signal's handler raises ends a compiled loop, and the next call works."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(Interrupted):
            ENDLESS[name]()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert tx.jit(lambda x: lax.while_loop(lambda v: v < 5, lambda v: v + 1, x))(0) == 5
