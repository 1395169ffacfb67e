"""`vmap` and `vectorize`: axes of arguments and results in every form, against JAX; and what they say when these do not
fit. Which op does what under `vmap` is tested with the ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ArgumentError, AttributeValueError, ConcretizationError, ShapeError, TinyxlaError

RANDOM = np.random.default_rng(21)
X = RANDOM.normal(size=(3, 2)).astype(np.float32)
Y = RANDOM.normal(size=(2, 3)).astype(np.float32)
Z = RANDOM.normal(size=(3, 4, 2)).astype(np.float32)

Library = Any  # jax, or tinyxla


def arrays(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in jax.tree_util.tree_leaves(tree)]


def assert_same(function: Callable[[Library], Any]) -> None:
    expected, found = function(jax), function(tx)
    found = tx.tree_util.tree_map(np.asarray, found)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for x, y in zip(arrays(found), arrays(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, 1e-5, 1e-6)


def test_signatures_are_those_of_jax() -> None:
    pairs = [(tx.vmap, jax.vmap), (tx.pmap, jax.pmap), (tx.numpy.vectorize, jax.numpy.vectorize)]
    names = "psum pmean pmax pmin axis_index axis_size all_gather all_to_all ppermute pshuffle pswapaxes psum_scatter"
    pairs += [(getattr(tx.lax, name), getattr(jax.lax, name)) for name in [*names.split(), "pbroadcast"]]
    for ours, theirs in pairs:
        mine, other = (inspect.signature(f).parameters.values() for f in (ours, theirs))
        assert [(p.name, p.kind) for p in mine] == [(p.name, p.kind) for p in other], theirs
        for p, q in zip(mine, other, strict=True):
            assert p.default == q.default or (not p.default and not q.default), (theirs, p)


CASES: list[Callable[[Library], Any]] = [
    lambda j: j.vmap(lambda x: x.sum())(X),
    lambda j: j.vmap(lambda x: x.sum(), in_axes=1)(X),
    lambda j: j.vmap(lambda x: x * 2, in_axes=-1)(Z),
    lambda j: j.vmap(lambda x: x * 2, in_axes=[-2], out_axes=-1)(Z),
    lambda j: j.vmap(lambda x: x * 2, out_axes=1)(Z),
    lambda j: j.vmap(lambda x, y: x @ y, in_axes=(0, None))(X, Y),
    lambda j: j.vmap(lambda x, y: x + y, in_axes=(0, 1), out_axes=1)(X, Y),
    lambda j: j.vmap(lambda x, y: x, in_axes=None, axis_size=2)(X, Y),
    lambda j: j.vmap(lambda: 1.0, axis_size=2)(),
    lambda j: j.vmap(lambda x: j.numpy.arange(3), axis_size=3)(X),
    lambda j: j.vmap(lambda x, y: x, in_axes=(None, 0), out_axes=None)(X, Y),
    lambda j: j.vmap(lambda d: d["a"] + d["b"], in_axes=({"a": 0, "b": None},))({"a": X, "b": Y[:, 0]}),
    lambda j: j.vmap(lambda d: d["a"], in_axes=({"a": 0, "b": None},))({"a": X, "b": {"c": Y, "d": 3}}),
    lambda j: j.vmap(lambda d: d[0] + d[1][0], in_axes=((0, [1]),))((X, [Y])),
    lambda j: j.vmap(lambda d: d[0] + d[1][0], in_axes=([0, 1],))([X, (Y,)]),
    lambda j: j.vmap(lambda x, y: {"s": x.sum(), "p": (x * y, y)}, out_axes={"s": 0, "p": (1, 0)})(X, X),
    lambda j: j.vmap(lambda x: {"s": x, "p": (x * 2, x)}, out_axes={"s": 0, "p": 1})(X),
    lambda j: j.vmap(lambda x: [x, x], out_axes=[0, 1])(X),
    lambda j: j.vmap(lambda x: (x, None, []), out_axes=(0, None, 0))(X),
    lambda j: j.vmap(lambda x, *, k, m: x + k * m["n"])(X, k=X, m={"n": Z[:, 0]}),
    lambda j: j.vmap(lambda x, k=None: x + k, in_axes=None)(X, k=X),
    lambda j: j.vmap(lambda x: x + 1)(np.zeros((0, 2), np.float32)),
    lambda j: j.vmap(lambda x, y: j.numpy.dot(x, y), in_axes=(0, None))(np.zeros((0, 2), np.float32), Y),
    lambda j: j.vmap(lambda x: x + 1, in_axes=1)(np.zeros((2, 0), np.float32)),
    lambda j: j.vmap(lambda x: x + 1, axis_size=0, in_axes=None)(X),
    lambda j: j.vmap(lambda x: x, out_axes=None, sum_match=True)(X),
    lambda j: j.vmap(lambda x: x, spmd_axis_name="device")(X),
    lambda j: j.vmap(j.vmap(lambda x: x.sum(), in_axes=1), in_axes=1)(Z),
    lambda j: j.vmap(j.vmap(j.numpy.multiply, in_axes=(None, 0)), in_axes=(0, None))(X[:, 0], X[:, 1]),
    lambda j: j.vmap(lambda f, x: f[0](x), in_axes=((None,), 0))((j.tree_util.Partial(j.numpy.sin),), X),
    lambda j: j.jit(j.vmap(lambda x: j.numpy.linalg.norm(x)))(X),
    lambda j: j.vmap(j.grad(lambda w, x: j.numpy.tanh(w @ x)), in_axes=(None, 0))(X[0], X),
    lambda j: j.vmap(j.value_and_grad(lambda x: (x**3).sum()))(X),
    lambda j: j.grad(lambda x: j.vmap(lambda y: y.sum() ** 2)(x).sum())(X),
    lambda j: j.vmap(lambda k: j.random.normal(k, (3,)))(j.random.split(j.random.PRNGKey(0), 4)),
    lambda j: j.vmap(lambda s: j.random.uniform(j.random.PRNGKey(s)))(np.arange(4)),
    lambda j: j.vmap(lambda k, p: j.random.bernoulli(k, p), in_axes=(None, 0))(j.random.PRNGKey(0), X[0]),
    lambda j: j.tree_util.tree_map(lambda x: x.shape, j.vmap(lambda p: p["w"] @ p["b"])({"w": Z, "b": X})),
    lambda j: j.eval_shape(j.vmap(lambda x: x.sum()), X).shape,
    lambda j: j.vmap(lambda x, i: j.lax.dynamic_slice(x, (i,), (2,)))(Z[:, :, 0], np.arange(3)),
    lambda j: j.vmap(lambda x: j.lax.scan(lambda c, y: (c + y, c * y), 0.0, x))(Z[..., 0]),
]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_against_jax(number: int) -> None:
    assert_same(CASES[number])


@pytest.mark.parametrize("library", [jax, tx])
def test_numbers_that_get_no_axis_stay_numbers(library: Library) -> None:
    def scaled(x: Any, k: Any) -> Any:
        return x * k, k + 1, X

    def sliced(x: Any) -> Any:
        y, k, same = library.vmap(scaled, (0, None), (0, None, None))(x, 1)
        assert same is X
        return y[:k]  # k is an integer in traced functions, too

    assert library.jit(sliced)(X).shape == (2, 2)


V = np.ones((5, 4), np.float32)
VECTORIZED: list[Callable[[Library], Any]] = [
    lambda j: j.numpy.vectorize(lambda a, b: a + b)(X, X[:, :1]),
    lambda j: j.numpy.vectorize(lambda a, b: a @ b, signature="(n,m),(m)->(n)")(np.ones((2, 1, 3, 4), np.float32), V),
    lambda j: j.numpy.vectorize(lambda a: (a, a.sum()), signature="(n)->(n),()")(X),
    lambda j: j.numpy.vectorize(lambda a: (a,), signature="(n)->(n)")(X),
    lambda j: j.numpy.vectorize(lambda a: a[:1], signature="(n)->(k)")(X),
    lambda j: j.numpy.vectorize(lambda a, b, c: a * len(c) + b, excluded={2}, signature="(n),()->(n)")(
        X, X[:, 0], "ab"
    ),
    lambda j: j.numpy.vectorize(lambda a, k: a * k, excluded={"k"})(X, k=3),
    lambda j: j.numpy.vectorize(lambda n, b: b * n, excluded=[0])(3, X),
    lambda j: j.vmap(j.numpy.vectorize(j.numpy.dot, signature="(n),(n)->()"), in_axes=(0, None))(Z, X[0]),
    lambda j: j.grad(lambda x: j.numpy.vectorize(lambda a: a**2)(x).sum())(X),
    lambda j: j.jit(j.numpy.vectorize(j.numpy.linalg.norm, signature="(n)->()"))(Z),
]


@pytest.mark.parametrize("number", range(len(VECTORIZED)))
def test_vectorize_against_jax(number: int) -> None:
    assert_same(VECTORIZED[number])


def f(*args: Any, **kwargs: Any) -> Any:
    return args


REFUSED: dict[str, tuple[type[TinyxlaError], Callable[[], Any], str]] = {
    "name": (
        ArgumentError,
        lambda: tx.vmap(f, axis_name=["i"]),
        "axis_name must be hashable, as a string is, but is",
    ),
    "no function": (ArgumentError, lambda: tx.vmap(3), "vmap takes a function, but got 3 of type int."),
    "no such axis": (
        ShapeError,
        lambda: tx.vmap(f, in_axes=({"a": 2},))({"a": X}),
        "vmap of f: in_axes for argument 0['a']: axis 2 is out of range for an array with 2 dimensions; use one from "
        "-2 to 1.",
    ),
    "a number": (ShapeError, lambda: tx.vmap(f)(X, 3.0), "in_axes for argument 1: axis 0 is out of range for an array"),
    "no integer": (ShapeError, lambda: tx.vmap(f, in_axes="a")(X), "in_axes for argument 0: an axis is an integer"),
    "count": (
        ArgumentError,
        lambda: tx.vmap(f, in_axes=(0, 0))(X),
        "in_axes must have one entry for each positional argument, but (0, 0) has 2 and the call has 1.",
    ),
    "structure": (
        ArgumentError,
        lambda: tx.vmap(f, in_axes=({"b": 0},))({"a": X}),
        "vmap of f: in_axes is ({'b': 0},), which does not fit ({'a': *},), where * stands for an array",
    ),
    "sizes": (
        ShapeError,
        lambda: tx.vmap(f)(X, k={"w": Y}),
        "the mapped axes must have one size, but have [2, 3]: argument 0 is f32[3,2] and mapped over its axis 0, "
        "argument k['w'] is f32[2,3] and mapped over its axis 0.",
    ),
    "axis_size": (ShapeError, lambda: tx.vmap(f, axis_size=4)(X), "mapped over its axis 0, axis_size is 4."),
    "negative size": (ShapeError, lambda: tx.vmap(f, axis_size=-1)(), "axis_size must not be negative, but is -1."),
    "no size": (ArgumentError, lambda: tx.vmap(f, axis_size="x")(X), "axis_size must be an integer, but is 'x'."),
    "nothing mapped": (
        AttributeValueError,
        lambda: tx.vmap(f, in_axes=None)(X),
        "no argument is mapped over; name an axis in in_axes, or pass axis_size.",
    ),
    "no arguments": (AttributeValueError, lambda: tx.vmap(f)(), "no argument is mapped over"),
    "no array": (ArgumentError, lambda: tx.vmap(f)("abc"), "vmap of f: argument 0 is 'abc' of type str, which is not"),
    "result": (
        ArgumentError,
        lambda: tx.vmap(lambda x: {"a": "text"})(X),
        "The result of <lambda> at ['a'] is 'text' of type str, which is not an array or a number.",
    ),
    "differs": (
        AttributeValueError,
        lambda: tx.vmap(f, out_axes=(None,))(X),
        "vmap of f: the result[0] differs between examples, along axis 0, but out_axes is None for it",
    ),
    "axis of a result": (
        ShapeError,
        lambda: tx.vmap(f, out_axes=(0, 3))(X, X),
        "the result[1], with the axis of examples: out_axes: axis 3 is out of range for an array with 2 dimensions",
    ),
    "structure of results": (
        ArgumentError,
        lambda: tx.vmap(f, out_axes=[0])(X),
        "vmap of f: out_axes is [0], which does not fit (*,)",
    ),
    "values": (ConcretizationError, lambda: tx.vmap(lambda x: float(x[0]))(X), "inside a batched function (vmap) only"),
    "signature": (ArgumentError, lambda: tx.numpy.vectorize(f, signature="(n->(n)"), "'(n->(n)' is no signature"),
    "arguments": (
        ArgumentError,
        lambda: tx.numpy.vectorize(f, signature="(n),()->(n)")(X),
        "vectorize: the signature '(n),()->(n)' is for 2 arguments, but 1 are mapped.",
    ),
    "dimensions": (
        ShapeError,
        lambda: tx.numpy.vectorize(f, signature="(n,m,k)->(n)")(X),
        "vectorize: by '(n,m,k)->(n)' argument 0 has 3 dimensions, but got shape (3, 2).",
    ),
    "core sizes": (
        ShapeError,
        lambda: tx.numpy.vectorize(f, signature="(n),(n)->(n)")(X, Y),
        "by '(n),(n)->(n)' argument 1 has size 2 in dimension n, but got size 3.",
    ),
    "results": (
        ArgumentError,
        lambda: tx.numpy.vectorize(f, signature="(n)->(n),()")(X),
        "by '(n)->(n),()' there are 2 results, but there is 1 in a tuple.",
    ),
    "size of a result": (
        ShapeError,
        lambda: tx.numpy.vectorize(lambda a: a[:1], signature="(n)->(n)")(X),
        "by '(n)->(n)' result 0 has size 2 in dimension n, but got size 1.",
    ),
    "keywords": (
        ArgumentError,
        lambda: tx.numpy.vectorize(f)(X, k=3),
        "the keyword arguments ['k'] are not among those excluded",
    ),
    "excluded": (
        ArgumentError,
        lambda: tx.numpy.vectorize(f, excluded={-1}),
        "excluded must have numbers of arguments",
    ),
    "broadcast": (ShapeError, lambda: tx.numpy.vectorize(f)(X, Y), "Incompatible shapes for broadcasting"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors(name: str) -> None:
    error, call, said = REFUSED[name]
    with pytest.raises(error) as found:
        call()
    assert said in str(found.value)
    assert "test_vmap.py" in str(found.value)  # the user's line


def test_float0_arguments_and_results_are_mapped() -> None:
    float0 = tx.dtypes.float0
    numbers = tx.numpy.arange(3)
    by_integers = tx.vmap(tx.grad(lambda x, i: x * i, argnums=(0, 1), allow_int=True), in_axes=(None, 0))
    slope, none = by_integers(2.0, numbers)
    assert slope.tolist() == [0, 1, 2]
    assert (none.dtype, none.shape) == (float0, (3,))
    pushed, moved = tx.vmap(lambda i, t: tx.jvp(lambda i: i * 2, (i,), (t,)))(numbers, np.zeros(3, float0))
    assert (pushed.tolist(), moved.dtype, moved.shape) == ([0, 2, 4], float0, (3,))
    placed = tx.vmap(lambda zeros: zeros, in_axes=1, out_axes=1)(np.zeros((2, 3), float0))
    assert (placed.dtype, placed.shape) == (float0, (2, 3))
    counted = tx.vmap(lambda zeros, x: x + len(zeros), in_axes=(None, 0))(np.zeros(4, float0), numbers)
    assert counted.tolist() == [4, 5, 6]


@pytest.mark.parametrize("axes", [False, (np.arange(2),), {"a": 0}, 1.0])
def test_axes_are_integers(axes: Any) -> None:
    with pytest.raises((ArgumentError, AttributeValueError), match=r"vmap of .*: in_axes must"):
        tx.vmap(lambda x: x, in_axes=axes)


def test_axes_of_results_are_integers() -> None:
    with pytest.raises(AttributeValueError, match="out_axes must consist of integers and None, but has True"):
        tx.vmap(lambda x: x, out_axes=True)
