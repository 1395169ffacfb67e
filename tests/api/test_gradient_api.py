"""Details of the functions that differentiate: integers, complex numbers, argument numbers, auxiliary results, nesting,
errors; and `test_util`, which checks derivatives by differences."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tests.support import ROOT
from tinyxla.dtypes import float0
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError
from tinyxla.test_util import check_grads, check_jvp, check_vjp

BOTH = ((tx, tnp), (jax, jnp))


def assert_same(program: Callable[[Any, Any], Any]) -> None:
    """The program gives arrays of the same types and values in both libraries."""
    mine, theirs = (lib.tree_util.tree_flatten(program(lib, np_)) for lib, np_ in BOTH)
    assert len(mine[0]) == len(theirs[0])
    for x, y in zip(mine[0], theirs[0], strict=True):
        assert (np.shape(x), np.asarray(x).dtype) == (np.shape(y), np.asarray(y).dtype)
        if np.asarray(x).dtype != float0:
            np.testing.assert_allclose(np.asarray(x, np.complex128), np.asarray(y, np.complex128), 1e-5, 1e-6)


NAMES = "grad value_and_grad vjp jvp jacfwd jacrev jacobian hessian linearize linear_transpose".split()


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_those_of_jax(name: str) -> None:
    mine, theirs = (inspect.signature(getattr(lib, name)).parameters for lib in (tx, jax))
    assert [(p.name, p.kind, p.default) for p in mine.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


def test_axes_to_reduce_over_are_refused() -> None:
    for call in (lambda: tx.grad(tnp.sin, reduce_axes=("i",)), lambda: tx.vjp(tnp.sin, 1.0, reduce_axes=("i",))):
        with pytest.raises(ArgumentError, match=r"reduce_axes must be empty.*psum"):
            call()


# --- integers ---------------------------------------------------------------------------------------------------------

N = np.arange(3)
zero = np.zeros((), float0)
INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda lib, np_: lib.grad(lambda n: 2.0 * n, allow_int=True)(3),
    "grad of a bool": lambda lib, np_: lib.grad(lambda n: np_.where(n, 2.0, 1.0), allow_int=True)(True),
    "of two": lambda lib, np_: lib.grad(lambda n, x: (n * x).sum(), (0, 1), allow_int=True)(N, np.ones(3)),
    "of a tree": lambda lib, np_: lib.grad(lambda p: (p["n"] * p["x"]).sum(), allow_int=True)(
        {"n": N, "x": np.ones(3)}
    ),
    "value_and_grad": lambda lib, np_: lib.value_and_grad(lambda n, x: (n * x).sum(), (0, 1), allow_int=True)(N, 2.0),
    "vjp": lambda lib, np_: lib.vjp(lambda n, x: (n * x, n), N, 2.0)[1]((np_.ones(3), np.zeros(3, float0))),
    "vjp by integers": lambda lib, np_: lib.vjp(lambda n, x: (n * x, n), N, 2.0)[1]((np_.ones(3), N)),
    "jvp": lambda lib, np_: lib.jvp(lambda n, x: (n * x, n > 1), (N, 2.0), (np.zeros(3, float0), 1.0))[1][0],
    "jacfwd of an integer": lambda lib, np_: lib.jacfwd(lambda x: x.astype(int))(2.0),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("what", INTEGERS)
def test_integers(what: str) -> None:
    assert_same(INTEGERS[what])


def test_an_integer_has_no_jacobian() -> None:
    found = tx.jacrev(lambda n, x: n * x, (0, 1), allow_int=True)(N, tnp.float32(2))
    assert (found[0].dtype, found[0].shape) == (float0, (3, 3))
    np.testing.assert_array_equal(found[1], N)


# --- complex numbers --------------------------------------------------------------------------------------------------

Z = np.array([0.5 + 1j, -1.0 + 0.25j], np.complex64)
COMPLEX: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda lib, np_: lib.grad(lambda z: np_.sin(z).sum(), holomorphic=True)(Z),
    "real": lambda lib, np_: lib.grad(lambda z: np_.abs(z).sum())(Z),
    "jacfwd": lambda lib, np_: lib.jacfwd(lambda z: z**3, holomorphic=True)(Z),
    "jacrev": lambda lib, np_: lib.jacrev(lambda z: z**3, holomorphic=True)(Z),
    "hessian": lambda lib, np_: lib.hessian(lambda z: (z**3).sum(), holomorphic=True)(Z),
    "of a real number": lambda lib, np_: lib.jacfwd(lambda x: x * 2j)(1.5),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("what", COMPLEX)
def test_complex(what: str) -> None:
    assert_same(COMPLEX[what])


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "grad of a real number": lambda lib, np_: lib.grad(lambda x: x, holomorphic=True)(1.0),
    "grad to a real number": lambda lib, np_: lib.grad(lambda z: z.real, holomorphic=True)(1j),
    "jacfwd of a real number": lambda lib, np_: lib.jacfwd(lambda x: x, holomorphic=True)(1.0),
    "jacfwd to a real number": lambda lib, np_: lib.jacfwd(lambda z: z.real, holomorphic=True)(1j),
    "jacrev of a real number": lambda lib, np_: lib.jacrev(lambda x: x, holomorphic=True)(1.0),
    "jacrev to a real number": lambda lib, np_: lib.jacrev(lambda z: z.real, holomorphic=True)(1j),
    "hessian of a real number": lambda lib, np_: lib.hessian(lambda x: x, holomorphic=True)(1.0),
    "jacfwd of a complex number": lambda lib, np_: lib.jacfwd(lambda z: z.real)(1j),
    "jacrev to a complex number": lambda lib, np_: lib.jacrev(lambda z: z)(1j),
    "grad to a complex number": lambda lib, np_: lib.grad(lambda z: z)(1j),
    "grad of an integer": lambda lib, np_: lib.grad(lambda n: 2.0 * n)(1),
    "jvp along an integer": lambda lib, np_: lib.jvp(lambda x: 2 * x, (np_.ones(()),), (np_.array(5),)),
    "vjp of an integer": lambda lib, np_: lib.vjp(lambda x: 2 * x, np_.ones(()))[1](np_.array(5)),
    "grad to an integer": lambda lib, np_: lib.grad(lambda x: 1)(1.0),
    "grad to an array": lambda lib, np_: lib.grad(lambda x: x)(np.ones(2)),
    "grad to a tuple": lambda lib, np_: lib.grad(lambda x: (x, x))(1.0),
    "jacfwd of an integer": lambda lib, np_: lib.jacfwd(lambda n: 2.0 * n)(1),
    "jacrev to an integer": lambda lib, np_: lib.jacrev(lambda x: x.astype(int))(1.0),
    "a tangent of an integer": lambda lib, np_: lib.jvp(lambda n: 2.0 * n, (1,), (1,)),
    "a narrow tangent": lambda lib, np_: lib.jvp(lambda x: x, (np.float32(1),), (np.float16(1),)),
    "an integer tangent": lambda lib, np_: lib.jvp(lambda x: x, (np.float32(1),), (np.int32(1),)),
    "a float0 tangent": lambda lib, np_: lib.jvp(lambda x: x, (1.0,), (zero,)),
    "a longer tangent": lambda lib, np_: lib.jvp(lambda x: x, (np.ones(2),), (np.ones(3),)),
    "a complex tangent": lambda lib, np_: lib.jvp(lambda x: x, (1.0,), (1j,)),
    "a narrow cotangent": lambda lib, np_: lib.vjp(lambda x: x, 1.0)[1](np.float16(1)),
    "a longer cotangent": lambda lib, np_: lib.vjp(lambda x: x, np.ones(2))[1](np_.ones(3)),
    "a cotangent for a pair": lambda lib, np_: lib.vjp(lambda x: (x, x), 1.0)[1](1.0),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_jax_refuses_is_refused(what: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        REFUSED[what](jax, jnp)
    with pytest.raises((DifferentiationError, DTypeError, ShapeError, ArgumentError)) as error:
        REFUSED[what](tx, tnp)
    assert __file__ in str(error.value)


def test_errors_name_the_leaf_and_the_fix() -> None:
    _, pullback = tx.vjp(lambda x: {"a": x, "b": [x]}, tnp.ones(2))
    with pytest.raises(ShapeError, match=r"The cotangent at \['b'\]\[0\] must have the shape .*f32\[2\].*f32\[3\]"):
        pullback({"a": tnp.ones(2), "b": [tnp.ones(3)]})
    with pytest.raises(DTypeError, match=r"The cotangent at \['a'\] must have the type .* astype\('float32'\)"):
        pullback({"a": tnp.ones(2, "float16"), "b": [tnp.ones(2)]})
    with pytest.raises(ArgumentError, match=r"structure.*\{'a': \*, 'b': \[\*\]\}"):
        pullback({"a": tnp.ones(2)})
    with pytest.raises(DTypeError, match=r"tangent at \[0\] must have the type dtypes.float0.*zeros\(\(3,\), dtypes"):
        tx.jvp(lambda n: n, (N,), (N,))
    for numbers in (1, -2, (0, 3)):
        with pytest.raises(ArgumentError, match="argnums names argument"):
            tx.grad(tnp.sin, numbers)(1.0)
    with pytest.raises(DifferentiationError, match=r"argument 0.*s32.*argnums"):
        tx.grad(lambda n: n * 1.0)(1)


def test_an_op_without_derivative_names_the_line_where_it_was_called() -> None:
    def inner(x: Any) -> Any:
        return tnp.linalg.svd(2 * x)[0]  # the line

    for function in (inner, tx.jit(inner)):
        for derivative in (tx.grad, tx.jacfwd):
            with pytest.raises(
                DifferentiationError, match=r"Svd has no derivative: .* full_matrices=False(.|\n)*# the line"
            ):
                derivative(lambda x, function=function: function(x).sum())(tnp.ones((3, 2)))


# --- arguments and results --------------------------------------------------------------------------------------------

F32 = np.float32(0.5)
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "the last": lambda lib, np_: lib.grad(lambda x, y: x * y * y, -1)(2.0, 3.0),
    "several": lambda lib, np_: lib.grad(lambda x, y, z: x * y * z, (-1, 0))(2.0, 3.0, 4.0),
    "twice the same": lambda lib, np_: lib.jacrev(lambda x, y: x * y, [1])(2.0, 3.0),
    "trees": lambda lib, np_: lib.grad(lambda p, q: (p["a"] * q[0]).sum(), (0, 1))({"a": np.ones(2), "b": 1.0}, [F32]),
    "by name": lambda lib, np_: lib.grad(lambda x, *, scale: scale * x)(2.0, scale=3.0),
    "ignored": lambda lib, np_: lib.grad(lambda x, y: y * y, (0, 1))(np.ones(2), 3.0),
    "itself": lambda lib, np_: lib.grad(lambda x: x)(2.0),
    "a constant": lambda lib, np_: (lib.grad(lambda x: 3.0)(2.0), lib.grad(lambda x: np.float32(3))(2.0)),
    "a constant Jacobian": lambda lib, np_: (lib.jacrev(lambda x: F32)(F32), lib.jacfwd(lambda x: F32)(F32)),
    "bf16": lambda lib, np_: lib.grad(lambda x: (x * x).sum())(np_.ones(3, "bfloat16")),
    "f16": lambda lib, np_: lib.grad(lambda x: np_.asarray(x, "float16"))(0.5),
    "f32 of f16": lambda lib, np_: lib.grad(lambda x: (x.astype("float32") ** 2).sum())(np_.ones(3, "float16")),
    "auxiliary": lambda lib, np_: lib.grad(lambda x: (x * x, {"x": x / 2, "n": [None, 2 * x]}), has_aux=True)(3.0),
    "auxiliary value": lambda lib, np_: lib.value_and_grad(lambda x: (x * x, [x + 1]), has_aux=True)(3.0)[1],
    "auxiliary of jacobians": lambda lib, np_: (
        lib.jacfwd(lambda x: (x * x, x + 1), has_aux=True)(3.0),
        lib.jacrev(lambda x: (x * x, x + 1), has_aux=True)(3.0),
        lib.hessian(lambda x: (x**3, x + 1), has_aux=True)(3.0),
    ),
    "auxiliary, compiled": lambda lib, np_: lib.jit(lib.grad(lambda x: (x * x, (x, 2 * x)), has_aux=True))(3.0),
    "auxiliary, nested": lambda lib, np_: lib.grad(
        lambda x: lib.grad(lambda y: (y**3 * x, y * x), has_aux=True)(x)[1] * x
    )(3.0),
    "jacobian": lambda lib, np_: lib.jacobian(lambda x: np_.sin(x))(np.ones(2)),
    "third": lambda lib, np_: lib.grad(lib.grad(lib.grad(lambda x: np_.sin(x) * x)))(0.5),
    "third by other modes": lambda lib, np_: lib.jacfwd(lib.jacrev(lib.jacfwd(lambda x: (np_.sin(x) * x).sum())))(
        np.array([0.5, 1], np.float32)
    ),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("what", CALLS)
def test_calls(what: str) -> None:
    assert_same(CALLS[what])


# --- nesting: derivatives by different variables are kept apart -------------------------------------------------------

NESTED: dict[str, Callable[[Any, Any], Any]] = {
    "closure": lambda lib, np_: lib.grad(lambda x: x * lib.grad(lambda y: x + y)(2.0))(1.0),
    "constant in between": lambda lib, np_: lib.grad(lambda x: x * lib.grad(lambda y: x * y * y)(x))(3.0),
    "forward in forward": lambda lib, np_: lib.jacfwd(lambda x: x * lib.jacfwd(lambda y: x * y)(2.0))(3.0),
    "forward in reverse": lambda lib, np_: lib.grad(lambda x: x * lib.jacfwd(lambda y: x * y * y)(x))(3.0),
    "reverse in forward": lambda lib, np_: lib.jacfwd(lambda x: x * lib.grad(lambda y: x * y * y)(x))(3.0),
    "three": lambda lib, np_: lib.grad(lambda x: lib.grad(lambda y: lib.grad(lambda z: x * y * y * z * z * z)(y))(x))(
        2.0
    ),
    "compiled in between": lambda lib, np_: lib.grad(lambda x: lib.jit(lambda y: lib.grad(lambda z: x * z * y)(y))(x))(
        3.0
    ),
    "mapped in between": lambda lib, np_: lib.grad(
        lambda x: lib.vmap(lambda y: lib.grad(lambda z: x * z * z)(y))(np.arange(3.0)).sum() * x
    )(3.0),
    "pullback outside": lambda lib, np_: lib.grad(lambda x: lib.vjp(lambda y: x * y * y, x)[1](x)[0])(3.0),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("what", NESTED)
def test_nested(what: str) -> None:
    assert_same(NESTED[what])


# --- checks by differences --------------------------------------------------------------------------------------------


def test_checks_pass() -> None:
    check_grads(lambda x, y: tnp.sin(x) * y, (0.5, 2.0), 3)
    check_grads(lambda p, n: {"a": p["x"] ** n, "b": [p["y"] @ p["y"]]}, ({"x": 1.5, "y": np.eye(2, dtype="f")}, 3), 2)
    check_grads(lambda z: tnp.exp(z) * tnp.conj(z), (Z,), 2)
    check_grads(lambda x: tnp.where(x > 0, x * x, 0), (tnp.array([1.0, -1.0]),), 2, modes="rev")
    check_grads(lambda n: n * 2, (N,), 1)
    check_grads(lambda x: tnp.stack([x, x * 0 - tnp.inf]), (0.5,), 2)


def wrong(jvp: Any = None, vjp: Any = None) -> Any:
    """A sine (of a real part times a number) whose derivative is what is given."""
    if jvp is not None:
        f = tx.custom_jvp(tnp.sin)
        f.defjvp(jvp)
    else:
        f = tx.custom_vjp(tnp.sin)
        f.defvjp(lambda x: (tnp.sin(x), x), vjp)
    return f


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_a_wrong_partial_is_objected_to(mode: str) -> None:
    f = wrong(jvp=lambda x, t: (tnp.sin(x[0]), t[0] * tnp.cos(x[0]) * 1.1))
    with pytest.raises(AssertionError, match="JVP tangent: leaf 0" if mode == "fwd" else "VJP cotangent projection"):
        check_grads(f, (0.5,), 1, modes=[mode])


def test_a_wrong_transpose_is_objected_to() -> None:
    f = wrong(vjp=lambda x, g: (g[::-1] * tnp.cos(x),))
    with pytest.raises(AssertionError, match="VJP cotangent projection"):
        check_grads(f, (tnp.array([0.5, 1.0]),), 1, modes="rev")


def test_a_missing_conjugate_is_objected_to() -> None:
    f = wrong(vjp=lambda z, g: (g * tnp.conj(tnp.cos(z)),))
    with pytest.raises(AssertionError, match="VJP cotangent projection"):
        check_grads(f, (Z,), 1, modes="rev")


def test_a_wrong_second_derivative_is_objected_to() -> None:
    f = wrong(jvp=lambda x, t: (tnp.sin(x[0]), t[0] * tx.lax.stop_gradient(tnp.cos(x[0]))))
    check_grads(f, (0.5,), 1)
    for mode, name in (("fwd", "JVP"), ("lin", "LIN"), ("rev", "VJP")):
        with pytest.raises(AssertionError, match=f"{name} of {name}"):
            check_grads(f, (0.5,), 2, modes=mode)


def test_single_checks() -> None:
    check_jvp(tnp.sin, lambda x, t: tx.jvp(tnp.sin, x, t), (0.5,))
    check_vjp(tnp.sin, lambda x: tx.vjp(tnp.sin, x), (0.5,))
    with pytest.raises(AssertionError, match="JVP primal"):
        check_jvp(tnp.sin, lambda x, t: tx.jvp(tnp.cos, x, t), (0.5,))
    with pytest.raises(AssertionError, match="VJP primal"):
        check_vjp(tnp.sin, lambda x: tx.vjp(tnp.cos, x), (0.5,))
    with pytest.raises(ArgumentError, match="modes must be"):
        check_grads(tnp.sin, (0.5,), 1, modes=["forward"])


def test_the_examples_of_the_documentation_run() -> None:
    page = ROOT / "docs" / "automatic-differentiation.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 10
    assert found.failed == 0


def test_the_way_back_is_a_pytree() -> None:
    def model(w: Any, x: Any) -> Any:
        return {"y": tnp.sin(w["a"] * x) + w["b"], "n": x.astype(np.int32)}

    w, x = {"a": np.float32(2.0), "b": np.ones(3, np.float32)}, np.arange(3, dtype=np.float32)
    given = {"y": np.array([1.0, -2.0, 3.0], np.float32), "n": np.zeros(3, tx.dtypes.float0)}
    wanted = tx.vjp(model, w, x)[1](given)
    pullback = tx.jit(lambda w, x: tx.vjp(model, w, x)[1])(w, x)  # given by a compiled function
    leaves, structure = tx.tree_util.tree_flatten(pullback)
    assert leaves
    assert structure == tx.tree_util.tree_structure(pullback)
    for found in (pullback, tx.vjp(model, w, x)[1]):
        once = tx.jit(lambda back: back({"y": given["y"], "n": np.zeros(3, tx.dtypes.float0)}))(found)  # taken by one
        tx.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), once, wanted)
    lanes = tx.vmap(lambda x: tx.vjp(tnp.sin, x)[1])(x)
    np.testing.assert_allclose(tx.vmap(lambda back, c: back(c)[0])(lanes, x), np.cos(x) * x, rtol=1e-6)
    assert tx.grad(lambda s: tx.vjp(lambda x: s * x * x, 3.0)[1](1.0)[0])(2.0) == 6.0


def test_linear_map_takes_tangents_of_the_types_of_its_arguments() -> None:
    _, derivative = tx.linearize(lambda x, n: x * n, 1.0, 2)
    zero = np.zeros((), tx.dtypes.float0)
    assert float(derivative(3.0, zero)) == 6
    for tangents in ((3, zero), (3.0, 1)):
        with pytest.raises(DTypeError, match="a tangent must have the type"):
            derivative(*tangents)


def test_linear_maps_of_real_numbers_refuse_complex_ones() -> None:
    for linear in (tx.linearize(lambda x: 2 * x, 1.0)[1], tx.linear_transpose(lambda x: 2 * x, 1.0)):
        with pytest.raises(DTypeError, match=r"must have the type float32, but is c64\[\]"):
            linear(1j)


def test_linear_maps_of_complex_numbers_refuse_real_ones() -> None:
    for linear in (tx.linearize(lambda x: 2 * x, 1j)[1], tx.linear_transpose(lambda x: 2j * x, 1.0)):
        with pytest.raises(DTypeError, match=r"must have the type complex64, but is f32\[\]"):
            linear(1.0)


def test_primals_and_tangents_are_both_tuples_or_both_lists() -> None:
    tx.jvp(tx.numpy.sin, [1.0], [1.0])
    with pytest.raises(ArgumentError, match=r"both tuples or both lists, but have .* \(\*,\) and \[\*\] where"):
        tx.jvp(tx.numpy.sin, (1.0,), [1.0])


X = np.array([0.7, 1.4, -0.3], np.float32)
LINEAR: dict[str, Any] = {
    "map": lambda y: tx.lax.map(lambda a: a * y[0], y),
    "scan": lambda y: tx.lax.scan(lambda c, a: (c * X[1] + a, c), y[0], y)[1],
    "fori_loop": lambda y: tx.lax.fori_loop(0, 3, lambda i, c: c.at[i].set(tnp.sin(y[i]) * 2), y),
    "carry": lambda y: tx.lax.fori_loop(0, 2, lambda i, c: tnp.sin(c), y),
    "switch": lambda y: tx.lax.switch(1, [tnp.sin, tnp.cos], y),
    "cond in scan": lambda y: tx.lax.scan(
        lambda c, _: (tx.lax.cond(c[0] > 0, tnp.sin, lambda a: a * a, c), None), y, None, length=2
    )[0],
    "scan in map": lambda y: tx.lax.map(lambda a: tx.lax.fori_loop(0, 2, lambda i, c: tnp.sin(c) * y[0], a), y),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_transpose_goes_through_loops_and_branches(name: str) -> None:
    function, y = lambda x: LINEAR[name](x), tnp.array(X)
    value, pullback = tx.vjp(function, y)
    of_jvp = tx.linear_transpose(lambda t: tx.jvp(function, (y,), (t,))[1], y)
    for transpose in (tx.linear_transpose(tx.linearize(function, y)[1], y), tx.jit(of_jvp)):
        np.testing.assert_allclose(transpose(value)[0], pullback(value)[0], 1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tx.lax.map(lambda a: a * a, x),
        lambda x: tx.lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[1],
        lambda x: tx.lax.cond(x[0] > 0, lambda a: a, lambda a: 2 * a, x),
        lambda x: tx.lax.while_loop(lambda c: c.sum() < 30, lambda c: c * 2, x),
    ],
    ids=["square", "product with what is carried", "predicate", "number of steps"],
)
def test_linear_transpose_refuses_loops_and_branches_that_are_not_linear(function: Any) -> None:
    with pytest.raises(DifferentiationError, match="must be linear"):
        tx.linear_transpose(function, X)


@pytest.mark.parametrize("inner", [lambda c, x: tnp.exp(c) * x, lambda c, x: (tnp.sin(x), x / c)[1]])
def test_linear_transpose_goes_through_calls_that_compute_factors_or_what_is_not_used(inner: Any) -> None:
    c, y = tnp.arange(1.0, 4.0), tnp.ones(3)
    (found,) = tx.linear_transpose(lambda x: tx.jit(lambda c, x: tx.jit(inner)(c, x))(c, x), y)(y)
    np.testing.assert_allclose(found, inner(c, y), rtol=1e-6)
    with pytest.raises(DifferentiationError, match="must be linear"):
        tx.linear_transpose(tx.jit(lambda x: inner(c, x) * x), y)


def test_transposed_functions_are_pytrees() -> None:
    transposed = tx.jit(lambda x: tx.linear_transpose(lambda y: x * y, 1.0))(3.0)
    assert float(tx.jit(lambda f, x: f(x))(transposed, 2.0)[0]) == 6


@pytest.mark.parametrize(
    ("wrapped", "products"), [(tx.jit, 4), (lambda f: tx.jit(lambda x: tx.jit(f)(x)), 4), (tx.checkpoint, 2 + 4)]
)
def test_linearized_calls_compute_no_results_that_nothing_uses(wrapped: Any, products: int) -> None:
    def f(x: Any) -> Any:
        return tnp.sin(tnp.sin(x @ x) @ x)

    x, t = np.eye(3, dtype=np.float32) * 0.5, np.ones((3, 3), np.float32)
    _, derivative = tx.linearize(wrapped(f), x)
    np.testing.assert_allclose(derivative(t), tx.jvp(f, (x,), (t,))[1], rtol=1e-6)
    assert tx.jit(derivative).lower(t).as_text().count(" dot(") == products


@pytest.mark.parametrize(
    ("function", "x", "cotangent", "expected"),
    [
        (lambda x: 2 * x, 1, 3, 6),
        (lambda x: tnp.stack([x[0] * 3, x.sum()]), np.arange(3), np.array([1, 2]), [5, 2, 2]),
        (lambda x: x[::2] - x[1], np.arange(4, dtype=np.uint8), np.array([1, 2], np.uint8), [1, 253, 2, 0]),
        (lambda x: tnp.arange(6).reshape(2, 3) @ x, np.arange(3), np.array([1, 2]), [6, 9, 12]),
        (tnp.cumsum, np.arange(3), np.arange(3), [3, 3, 2]),
        (lambda x: tnp.zeros(3, int).at[np.array([0, 0, 2])].add(x), np.arange(3), np.arange(3), [0, 0, 2]),
        (tx.jit(lambda x: tnp.roll(3 * x, 1)), np.arange(3), np.arange(3), [3, 6, 0]),
    ],
)
def test_linear_transpose_of_integers(function: Any, x: Any, cotangent: Any, expected: Any) -> None:
    transpose = tx.linear_transpose(function, x)
    for call in (transpose, tx.jit(transpose)):
        (found,) = call(cotangent)
        assert found.dtype == tnp.asarray(x).dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("function", [lambda x: x * x, lambda x: x % 2, lambda x: x * 1.0, lambda x: 2 * x])
def test_linear_transpose_refuses_what_is_not_linear_in_integers(function: Any) -> None:
    with pytest.raises((DifferentiationError, DTypeError)):
        tx.linear_transpose(function, 1)(2.5)
