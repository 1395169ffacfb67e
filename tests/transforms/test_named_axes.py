"""Named axes: what examples under `vmap` say to each other, against JAX, in all nestings of transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    AxisNameError,
    DTypeError,
    ShapeError,
)

RANDOM = np.random.default_rng(20)
X = RANDOM.normal(size=(4, 3)).astype(np.float32)
SQUARE = RANDOM.normal(size=(4, 4, 2)).astype(np.float32)
TILED = RANDOM.normal(size=(2, 4, 6)).astype(np.float32)
NESTED = RANDOM.normal(size=(2, 3, 6)).astype(np.float32)

Library = Any  # jax, or tinyxla
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def case(*operands: Any) -> Callable[..., Any]:
    """A program of a library and operands, which both libraries run; it is run under `jit`, too."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        assert name not in CASES
        CASES[name] = (function, operands)
        return function

    return add


def over_i(*operands: Any, **options: Any) -> Callable[..., Any]:
    """A case of a program for one example of an axis "i"; it is run with `jit` inside, too."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__

        def outside(j: Library, *x: Any) -> Any:
            return j.vmap(lambda *x: function(j, *x), axis_name="i", **options)(*x)

        def inside(j: Library, *x: Any) -> Any:
            return j.vmap(j.jit(lambda *x: function(j, *x)), axis_name="i", **options)(*x)

        CASES[name] = (outside, operands)
        CASES[f"{name}_jit_inside"] = (inside, operands)
        return function

    return add


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in jax.tree_util.tree_leaves(tree)]


def assert_same(actual: Any, expected: Any) -> None:
    found, wanted = leaves(tx.tree_util.tree_map(np.asarray, actual)), leaves(expected)
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, 2e-5, 2e-5)


# --- the functions ----------------------------------------------------------------------------------------------------


@over_i(X)
def psum(j: Library, x: Any) -> Any:
    return x / j.lax.psum(x, "i")


@over_i(X)
def psum_of_trees_and_predicates(j: Library, x: Any) -> Any:
    return j.lax.psum({"x": x, "positive": (x > 0, 3)}, "i")


@over_i(X)
def psum_of_what_is_not_mapped(j: Library, x: Any) -> Any:
    return j.lax.psum(j.numpy.arange(3.0), "i"), j.lax.pmean(j.numpy.arange(3.0), "i"), j.lax.pmax(1, "i")


@over_i(X)
def psum_over_dimensions_too(j: Library, x: Any) -> Any:
    return j.lax.psum(x, ("i", 0)), j.lax.pmax(x, (0, "i")), j.lax.pmin(x, ("i",))


@over_i(X)
def pmean_pmax_pmin(j: Library, x: Any) -> Any:
    return j.lax.pmean(x, "i"), j.lax.pmax(x, "i"), j.lax.pmin(x, "i"), x - j.lax.pmean(x, "i")


@over_i(X)
def numbers_of_lanes(j: Library, x: Any) -> Any:
    return x[j.lax.axis_index("i") % 3], j.lax.axis_size("i") * x, j.lax.psum(1, "i"), j.numpy.ones(j.lax.psum(1, "i"))


@over_i(X)
def all_gather(j: Library, x: Any) -> Any:
    y = j.lax.all_gather(x, "i"), j.lax.all_gather(x, "i", axis=1), j.lax.all_gather(x, "i", axis=-1)
    return y, j.lax.all_gather(x, "i", tiled=True), j.lax.all_gather(j.numpy.ones(2), "i", axis=1)


@over_i(SQUARE)
def all_gather_of_matrices(j: Library, x: Any) -> Any:
    return [j.lax.all_gather(x, "i", axis=a, tiled=t) for a in (0, 1) for t in (False, True)]


@over_i(SQUARE)
def psum_scatter(j: Library, x: Any) -> Any:
    return j.lax.psum_scatter(x, "i"), j.lax.psum_scatter(x.T, "i", scatter_dimension=1)


@over_i(TILED)
def psum_scatter_tiled(j: Library, x: Any) -> Any:
    return j.lax.psum_scatter(x, "i", tiled=True), j.lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True)


@over_i(SQUARE)
def all_to_all(j: Library, x: Any) -> Any:
    return j.lax.all_to_all(x, "i", 0, 1), j.lax.all_to_all(x, "i", 0, 0), j.lax.all_to_all(x.T, "i", 1, 0)


@over_i(TILED)
def all_to_all_tiled(j: Library, x: Any) -> Any:
    pairs = ((0, 0), (0, 1), (1, 0), (1, 1))
    return [j.lax.all_to_all(x, "i", split, concat, tiled=True) for split, concat in pairs]


@over_i(SQUARE)
def pswapaxes(j: Library, x: Any) -> Any:
    return j.lax.pswapaxes(x, "i", 0)


@over_i(X)
def ppermute_and_pshuffle(j: Library, x: Any) -> Any:
    ring = [(k, (k + 1) % 4) for k in range(4)]
    return j.lax.ppermute(x, "i", ring), j.lax.pshuffle({"x": x}, "i", [3, 1, 0, 2]), j.lax.ppermute(2.0, "i", ring)


@over_i(X, 2.0, in_axes=(1, None), out_axes=(-1, None))
def axes_of_arguments_and_results(j: Library, x: Any, y: Any) -> Any:
    return x * y + j.lax.psum(x, "i"), j.lax.psum(x * y, "i")


# --- control flow -----------------------------------------------------------------------------------------------------


@over_i(X)
def scan(j: Library, x: Any) -> Any:
    return j.lax.scan(lambda c, e: (c + j.lax.psum(c * e, "i"), j.lax.pmax(e, "i") + j.lax.axis_index("i")), x[0], x)


@over_i(X)
def scan_of_what_becomes_mapped(j: Library, x: Any) -> Any:
    return j.lax.scan(lambda c, _: (c + j.lax.axis_index("i"), c), 0, None, length=3)


@over_i(X)
def fori_loop(j: Library, x: Any) -> Any:
    ring = [(k, (k + 1) % 4) for k in range(4)]
    return j.lax.fori_loop(0, 3, lambda k, y: j.lax.ppermute(y, "i", ring) + 1, x)


@over_i(X)
def while_by_all(j: Library, x: Any) -> Any:
    return j.lax.while_loop(lambda y: j.lax.psum(y.sum(), "i") < 50, lambda y: y * y + 0.5 + j.lax.pmean(y, "i"), x)


@over_i(X)
def while_by_each(j: Library, x: Any) -> Any:
    step = lambda c: (c[0] + j.lax.axis_index("i") + 1, c[1] * 1.5)  # noqa: E731
    return j.lax.while_loop(lambda c: c[0] < 7, step, (0, x))


@over_i(X)
def cond_by_all(j: Library, x: Any) -> Any:
    return j.lax.cond(j.lax.psum(x[0], "i") > 0, lambda y: j.lax.psum(y, "i"), lambda y: y * j.lax.axis_index("i"), x)


@over_i(X)
def cond_by_each(j: Library, x: Any) -> Any:
    return j.lax.cond(x[0] > 0, lambda y: j.lax.psum(y, "i"), lambda y: y - j.lax.pmean(y, "i"), x)


@over_i(X)
def switch_by_each(j: Library, x: Any) -> Any:
    branches = [lambda y: j.lax.pmax(y, "i"), lambda y: y, lambda y: j.lax.pshuffle(y, "i", [1, 2, 3, 0])]
    return j.lax.switch(j.lax.axis_index("i"), branches, x)


@over_i(X)
def grad_of_scan(j: Library, x: Any) -> Any:
    def loss(y: Any) -> Any:
        c, ys = j.lax.scan(lambda c, e: (j.numpy.sin(c + j.lax.psum(c * e, "i")), j.lax.pmean(c * e, "i")), y[0], y)
        return c + (ys * y).sum()

    return j.grad(loss)(x)


@over_i(X)
def grad_of_cond(j: Library, x: Any) -> Any:
    def loss(y: Any) -> Any:
        every = j.lax.psum(y[0], "i") > 0
        return j.lax.cond(every, lambda y: j.lax.psum(y.sum() ** 2, "i"), lambda y: (y * j.lax.pmean(y, "i")).sum(), y)

    return j.grad(loss)(x), j.grad(lambda y: loss(-y))(x)


# --- derivatives ------------------------------------------------------------------------------------------------------


def smooth(j: Library, x: Any) -> Any:
    """A scalar that all of the axis takes part in."""
    ring = [(k, (k + 1) % 4) for k in range(4)]
    shared = j.lax.psum(j.numpy.sin(x), "i") * j.lax.pmean(x**2, "i")
    handed = j.lax.ppermute(x, "i", ring) * x
    gathered = j.lax.all_gather(x * x, "i")
    scattered = j.lax.psum_scatter(gathered * x, "i")
    exchanged = j.lax.all_to_all(gathered * x[0], "i", 0, 0)
    return (shared * handed + scattered).sum() + (exchanged * gathered).sum() * (1 + j.lax.axis_index("i"))


@over_i(X)
def value_and_grad_inside(j: Library, x: Any) -> Any:
    return j.value_and_grad(lambda y: smooth(j, y))(x)


@over_i(X)
def gradient_of_a_jitted_function(j: Library, x: Any) -> Any:
    return j.grad(j.jit(lambda y: smooth(j, y)))(x)


@over_i(X)
def jvp_inside(j: Library, x: Any) -> Any:
    return j.jvp(lambda y: smooth(j, y), (x,), (j.numpy.cos(x),))


@over_i(X)
def hessian_inside(j: Library, x: Any) -> Any:
    return j.hessian(lambda y: smooth(j, y))(x), j.jacfwd(j.grad(lambda y: j.lax.psum(y**3, "i").sum()))(x)


@over_i(X)
def jacobians_inside(j: Library, x: Any) -> Any:
    f = lambda y: j.lax.psum(y**2, "i") * j.lax.axis_index("i")  # noqa: E731
    return j.jacfwd(f)(x), j.jacrev(f)(x)


@over_i(X)
def vjp_and_linearize_inside(j: Library, x: Any) -> Any:
    y, pull = j.vjp(lambda y: j.lax.pmean(j.numpy.exp(y), "i"), x)
    return y, pull(x), j.linearize(lambda y: j.lax.psum(j.numpy.exp(y), "i"), x)[1](x)


@case(X)
def grad_outside(j: Library, x: Any) -> Any:
    return j.grad(lambda x: j.vmap(lambda y: smooth(j, y), axis_name="i")(x).sum())(x)


@case(X)
def grad_of_jit_of_vmap_of_jit(j: Library, x: Any) -> Any:
    each = j.vmap(j.jit(lambda y: smooth(j, y)), axis_name="i")
    return j.grad(lambda x: (j.jit(each)(x) ** 2).sum())(x)


@case(X)
def jvp_and_hessian_outside(j: Library, x: Any) -> Any:
    def f(x: Any) -> Any:
        return j.vmap(lambda y: smooth(j, y), axis_name="i")(x).sum()

    return j.jvp(f, (x,), (x,)), j.hessian(f)(x), j.jvp(j.grad(f), (x,), (x,))


@case(X)
def grad_inside_and_outside(j: Library, x: Any) -> Any:
    inner = j.vmap(j.grad(lambda y: smooth(j, y)), axis_name="i")
    return j.grad(lambda x: (inner(x) ** 2).sum())(x)


@case(X)
def checkpoint(j: Library, x: Any) -> Any:
    each = j.vmap(j.checkpoint(lambda y: smooth(j, y)), axis_name="i")
    return (
        each(x),
        j.grad(lambda x: each(x).sum())(x),
        j.vmap(j.grad(j.checkpoint(lambda y: smooth(j, y))), axis_name="i")(x),
    )


# --- nesting ----------------------------------------------------------------------------------------------------------


def nested(j: Library, f: Callable[..., Any], jit: bool = False) -> Callable[..., Any]:
    inner = lambda x: f(j, x)  # noqa: E731
    return j.vmap(j.vmap(j.jit(inner) if jit else inner, axis_name="j"), axis_name="i")


def two(*operands: Any) -> Callable[..., Any]:
    """A case of a program for one example of axes "i" and "j"."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = (lambda j, *x: nested(j, function)(*x), operands)
        CASES[f"{function.__name__}_jit_inside"] = (lambda j, *x: nested(j, function, True)(*x), operands)
        return function

    return add


@two(NESTED)
def one_of_two_axes(j: Library, x: Any) -> Any:
    rows = j.lax.psum(x, "j"), j.lax.pmax(x, "i"), j.lax.axis_index("i"), j.lax.axis_index("j")
    return rows, j.lax.all_gather(x, "i"), j.lax.ppermute(x, "j", [(0, 1), (1, 2), (2, 0)])


@two(NESTED)
def scatter_and_exchange_over_one_of_two_axes(j: Library, x: Any) -> Any:
    tiled = j.lax.all_to_all(x, "i", 0, 0, tiled=True), j.lax.psum_scatter(x, "j", tiled=True)
    return tiled, j.lax.psum_scatter(x[:3], "j"), j.lax.all_to_all(x[:2], "i", 0, 0)


@two(NESTED)
def reductions_over_both_axes(j: Library, x: Any) -> Any:
    return j.lax.psum(x, ("i", "j")), j.lax.pmean(x, ("j", "i")), j.lax.psum(1, ("i", "j"))


@two(NESTED)
def grad_over_both_axes(j: Library, x: Any) -> Any:
    return j.grad(lambda y: (j.lax.psum(y**2, "i") * j.lax.pmean(y, ("i", "j"))).sum())(x)


@case(NESTED)
def same_name_twice(j: Library, x: Any) -> Any:
    return j.vmap(
        lambda y: j.vmap(lambda z: z + j.lax.psum(z, "i"), axis_name="i")(y) + j.lax.psum(y, "i"), axis_name="i"
    )(x)


@case(NESTED)
def a_map_without_a_name_between(j: Library, x: Any) -> Any:
    return j.vmap(j.vmap(lambda y: j.lax.psum(y, "i") * j.lax.axis_index("i")), axis_name="i")(x)


@case(NESTED)
def a_map_without_a_name_around(j: Library, x: Any) -> Any:
    each = j.vmap(lambda y: j.lax.all_gather(y, "i", axis=1).T - j.lax.pmean(y, "i"), axis_name="i")
    return j.vmap(each)(x), j.vmap(each, in_axes=2, out_axes=1)(x)


@case(X)
def the_same_jitted_function_inside_two_axes(j: Library, x: Any) -> Any:
    f = j.jit(lambda y: y * j.lax.psum(1, "i") + j.lax.axis_index("i"))
    return j.vmap(f, axis_name="i")(x), j.vmap(f, axis_name="i", in_axes=1)(x), j.vmap(f, axis_name="i")(x)


@case(X)
def jitted_function_with_concrete_arguments(j: Library, x: Any) -> Any:
    f = j.jit(lambda y: y * j.lax.psum(1, "i") + j.lax.axis_index("i"))
    return j.vmap(lambda y: (f(2.0), y, j.lax.psum(y, "i")), axis_name="i")(x)


# --- rules of one's own -----------------------------------------------------------------------------------------------


def shared_rule(j: Library) -> Callable[..., Any]:
    """A function with a derivative that talks to the other examples."""
    f = j.custom_jvp(lambda x: j.numpy.sin(x) * j.lax.psum(x, "i"))
    f.defjvp(lambda p, t: (f(p[0]), t[0] * j.lax.psum(j.numpy.cos(p[0]), "i")))
    return f


def shared_gradient(j: Library) -> Callable[..., Any]:
    """The identity, whose cotangents are summed: the function itself does not name the axis."""
    g = j.custom_vjp(lambda x: x * 1.0)
    g.defvjp(lambda x: (g(x), x), lambda r, c: (j.lax.psum(c * r, "i"),))
    return g


def custom_rules(j: Library, x: Any, made: Callable[[Library], Any]) -> Any:
    h = made(j)
    loss = lambda x: (h(x) ** 2).sum()  # noqa: E731
    steps = lambda x: j.lax.scan(lambda c, _: (h(c), c.sum()), x, None, length=2)[0].sum()  # noqa: E731
    mapped = functools.partial(j.vmap, axis_name="i")
    return (
        mapped(h)(x),
        mapped(j.jit(h))(x),
        mapped(j.grad(loss))(x),
        mapped(j.grad(j.jit(loss)))(x),
        mapped(j.jit(j.grad(loss)))(x),
        j.grad(lambda x: mapped(j.jit(loss))(x).sum())(x),
        j.grad(lambda x: mapped(steps)(x).sum())(x),
        mapped(j.grad(steps))(x),
    )


@case(X)
def custom_jvp(j: Library, x: Any) -> Any:
    return custom_rules(j, x, shared_rule)


@case(X)
def custom_vjp(j: Library, x: Any) -> Any:
    return custom_rules(j, x, shared_gradient)


# --- programs ---------------------------------------------------------------------------------------------------------


@case(X, RANDOM.normal(size=(3, 5)).astype(np.float32))
def batch_normalization(j: Library, x: Any, w: Any) -> Any:
    def layer(w: Any, x: Any) -> Any:
        y = x @ w
        mean = j.lax.pmean(y, "batch")
        variance = j.lax.pmean((y - mean) ** 2, "batch")
        return j.nn.relu((y - mean) / j.numpy.sqrt(variance + 1e-5))

    def loss(w: Any) -> Any:
        return (j.vmap(layer, in_axes=(None, 0), axis_name="batch")(w, x) * j.numpy.arange(5.0)).sum() ** 2

    return loss(w), j.grad(loss)(w), j.jit(j.grad(loss))(w)


@case(X, RANDOM.normal(size=(4, 3)).astype(np.float32))
def contrastive_loss(j: Library, images: Any, texts: Any) -> Any:
    """Each example compares itself with the texts of all."""

    def loss(image: Any, text: Any) -> Any:
        logits = j.lax.all_gather(text, "batch") @ image
        return -j.nn.log_softmax(logits)[j.lax.axis_index("batch")]

    mean = lambda a, b: j.vmap(loss, axis_name="batch")(a, b).mean()  # noqa: E731
    return mean(images, texts), j.grad(mean, argnums=(0, 1))(images, texts)


@case(RANDOM.normal(size=(4, 6)).astype(np.float32))
def heat_on_a_ring(j: Library, u: Any) -> Any:
    """Parts of a ring hand their ends to their neighbours."""
    right, left = [(k, (k + 1) % 4) for k in range(4)], [((k + 1) % 4, k) for k in range(4)]

    def step(u: Any, _: Any) -> Any:
        before, after = j.lax.ppermute(u[-1], "part", right), j.lax.ppermute(u[0], "part", left)
        whole = j.numpy.concatenate([before[None], u, after[None]])
        u = u + 0.1 * (whole[:-2] - 2 * u + whole[2:])
        return u, j.lax.psum(u.sum(), "part")

    run = j.vmap(lambda u: j.lax.scan(step, u, None, length=5), axis_name="part", out_axes=(0, None))
    return run(u), j.grad(lambda u: (run(u)[0] ** 3).sum())(u)


@case(RANDOM.normal(size=(4, 5, 3)).astype(np.float32))
def data_parallel_descent(j: Library, x: Any) -> Any:
    def update(w: Any, x: Any) -> Any:
        grads = j.grad(lambda w: ((x @ w - 1.0) ** 2).mean())(w)
        return w - 0.1 * j.lax.pmean(grads, "data")

    step = j.jit(j.vmap(update, in_axes=(None, 0), out_axes=None, axis_name="data"))
    w = j.numpy.zeros(3)
    for _ in range(3):
        w = step(w, x)
    return w


@case(X)
def norms_of_gradients_and_ensembles(j: Library, x: Any) -> Any:
    loss = lambda w, x: j.numpy.tanh(x @ w).sum()  # noqa: E731
    norms = j.vmap(lambda x: j.numpy.linalg.norm(j.grad(loss)(x, x)), axis_name="i")(x)
    votes = j.vmap(lambda w: j.lax.pmean(j.nn.softmax(w * 2), "model"), axis_name="model", out_axes=None)(x)
    return norms, votes


@case(np.uint32(3))
def keys(j: Library, seed: Any) -> Any:
    key = j.random.PRNGKey(3)
    draw = lambda i: j.random.normal(j.random.fold_in(key, j.lax.axis_index("i")), (2,)) + i  # noqa: E731
    return j.vmap(draw, axis_name="i")(np.arange(3.0, dtype=np.float32)), j.vmap(
        lambda k: j.random.uniform(k, (2,)) - j.lax.pmean(j.random.uniform(k, (2,)), "i"), axis_name="i"
    )(j.random.split(key, 3))


@functools.cache
def expected(name: str) -> Any:
    function, operands = CASES[name]
    return jax.jit(functools.partial(function, jax))(*operands)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(
    ("name", "jitted"), [(name, jitted) for name in CASES for jitted in {False, not name.endswith("_jit_inside")}]
)
def test_against_jax(name: str, jitted: bool) -> None:
    function, operands = CASES[name]
    run = functools.partial(function, tx)
    assert_same((tx.jit(run) if jitted else run)(*operands), expected(name.removesuffix("_jit_inside")))


# --- where JAX has no answer ------------------------------------------------------------------------------------------


def under(function: Callable[..., Any], *operands: Any, jit: bool = False) -> np.ndarray[Any, Any]:
    return np.asarray(tx.vmap(tx.jit(function) if jit else function, axis_name="i")(*operands))


@pytest.mark.parametrize("jit", [False, True])
def test_pbroadcast(jit: bool) -> None:
    """JAX's refuses to run under vmap."""
    np.testing.assert_array_equal(under(lambda x: tx.lax.pbroadcast(x, "i", 2), X, jit=jit), np.tile(X[2], (4, 1)))
    gradient = tx.grad(lambda x: (tx.vmap(lambda y: tx.lax.pbroadcast(y, "i", 2), axis_name="i")(x) * X).sum())(X)
    expected = np.zeros_like(X)
    expected[2] = X.sum(0)
    np.testing.assert_allclose(np.asarray(gradient), expected, 1e-6)
    inside = under(tx.grad(lambda y: (tx.lax.pbroadcast(y, "i", 2) ** 2).sum()), X, jit=jit)
    np.testing.assert_allclose(inside, np.where(np.arange(4)[:, None] == 2, 4 * 2 * X, 0), 1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_lanes_that_get_nothing_get_zeros(jit: bool) -> None:
    shift = [(k, k + 1) for k in range(3)]
    found = under(lambda x: tx.lax.ppermute(x, "i", shift), X, jit=jit)
    np.testing.assert_array_equal(found, np.concatenate([np.zeros((1, 3), np.float32), X[:-1]]))
    back = under(tx.grad(lambda x: (tx.lax.ppermute(x, "i", shift) * tx.lax.axis_index("i")).sum()), X, jit=jit)
    np.testing.assert_array_equal(back, np.broadcast_to([[1.0], [2.0], [3.0], [0.0]], (4, 3)))
    np.testing.assert_array_equal(under(lambda x: tx.lax.ppermute(x, "i", []), X), 0 * X)
    constant = under(lambda x: tx.lax.ppermute(np.float32(5), "i", shift), X)
    np.testing.assert_array_equal(constant, [0, 5, 5, 5])


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_extrema_have_derivatives(jit: bool, inside: bool) -> None:
    """JAX has none. They are those of a maximum over the examples."""
    x, first = np.float32([1, 3, 3, 2]), np.float32([1, 1, 1, 1])
    share = np.float32([0, 0.5, 0.5, 0])
    if inside:
        np.testing.assert_allclose(under(tx.grad(lambda y: tx.lax.pmax(y, "i") * 2), x, jit=jit), 8 * share)
        found = under(lambda y: tx.jvp(lambda z: tx.lax.pmin(-z, "i"), (y,), (np.float32(1),))[1], x, jit=jit)
        np.testing.assert_allclose(found, -first)
    else:
        run = tx.vmap(lambda y: tx.lax.pmax(y, "i"), axis_name="i")
        found = tx.grad(lambda x: (tx.jit(run) if jit else run)(x).sum())(x)
        np.testing.assert_allclose(np.asarray(found), 4 * share)


def test_exchange_between_different_dimensions_has_derivatives() -> None:
    """JAX's transpose of it fails."""
    f = lambda x: (tx.lax.all_to_all(x, "i", 0, 1) ** 3).sum() * tx.lax.axis_index("i")  # noqa: E731
    outside = tx.grad(lambda x: tx.vmap(f, axis_name="i")(x).sum())(SQUARE)
    np.testing.assert_allclose(np.asarray(outside), 3 * SQUARE**2 * np.arange(4)[None, :, None], 1e-5)
    np.testing.assert_allclose(under(tx.grad(f), SQUARE), np.asarray(outside), 1e-5)


def test_derivatives_of_branches_that_examples_choose() -> None:
    """An example takes part in the sum whichever branch it has chosen itself. JAX's derivative leaves out those that
    have chosen another one, so it is compared with differences."""

    def f(x: Any) -> Any:
        return tx.lax.cond(x[0] > 0, lambda y: tx.numpy.sin(y) * tx.lax.psum(y, "i"), lambda y: y * 2, x)

    def reference(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(x[:, :1] > 0, np.sin(x) * x.sum(0), x * 2)

    x, d = X.astype(np.float64), np.cos(X.astype(np.float64))
    assert 0 < (X[:, 0] > 0).sum() < 4
    slope = (reference(x + 1e-6 * d) - reference(x - 1e-6 * d)) / 2e-6
    each = tx.vmap(f, axis_name="i")
    np.testing.assert_allclose(np.asarray(tx.jvp(each, (X,), (d.astype(np.float32),))[1]), slope, 1e-4, 1e-5)
    gradient = np.asarray(tx.grad(lambda x: (each(x) * X).sum())(X))
    np.testing.assert_allclose((gradient * d).sum(), (slope * X).sum(), 1e-4)


GROUPS = [[0, 2], [3, 1]]


def grouped(function: Callable[[Any, Any], Any], x: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A function with groups, and the same run on the examples of each group alone."""
    each = np.asarray(tx.vmap(lambda y: function(y, GROUPS), axis_name="i")(x))
    expected = np.zeros_like(each)
    for group in GROUPS:
        expected[group] = np.asarray(tx.vmap(lambda y: function(y, None), axis_name="i")(x[np.array(group)]))
    return each, expected


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: tx.lax.psum(x, "i", axis_index_groups=g),
        lambda x, g: tx.lax.pmean(x, "i", axis_index_groups=g) * tx.lax.psum(1, "i", axis_index_groups=g),
        lambda x, g: tx.lax.pmax(x, "i", axis_index_groups=g) - tx.lax.pmin(x, "i", axis_index_groups=g),
        lambda x, g: tx.lax.all_gather(x, "i", axis=1, axis_index_groups=g),
        lambda x, g: tx.lax.all_gather(x, "i", axis=1, axis_index_groups=g, tiled=True),
        lambda x, g: tx.lax.psum_scatter(x, "i", axis_index_groups=g, tiled=True),
        lambda x, g: tx.lax.psum_scatter(x[:2], "i", axis_index_groups=g),
        lambda x, g: tx.lax.all_to_all(x, "i", 0, 1, axis_index_groups=g, tiled=True),
        lambda x, g: tx.lax.pswapaxes(x[:2], "i", 0, axis_index_groups=g),
        lambda x, g: tx.grad(lambda y: (tx.lax.psum(y**2, "i", axis_index_groups=g) * x).sum())(x),
    ],
)
def test_groups_talk_among_themselves(function: Callable[..., Any]) -> None:
    """JAX has no groups under vmap."""
    each, expected = grouped(function, SQUARE)
    np.testing.assert_allclose(each, expected, 1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: tx.lax.all_gather(x, n),
        lambda x, n: tx.lax.all_gather(x, n, axis=1, tiled=True),
        lambda x, n: tx.lax.psum_scatter(x, n),
        lambda x, n: tx.lax.all_to_all(x, n, 0, 1),
        lambda x, n: tx.lax.pswapaxes(x, n, 0),
        lambda x, n: tx.lax.ppermute(x, n, [(k, (k + 1) % 6) for k in range(5)]),
        lambda x, n: tx.lax.pbroadcast(x, n, 4),
        lambda x, n: x * tx.lax.axis_index(n) + tx.lax.axis_size(n),
        lambda x, n: tx.grad(lambda y: (tx.lax.all_gather(y, n) * x).sum())(x),
    ],
)
def test_several_names_are_one_axis(function: Callable[..., Any]) -> None:
    """JAX has most of these for a single name only."""
    x = RANDOM.normal(size=(6, 6, 2)).astype(np.float32)
    expected = tx.vmap(lambda y: function(y, "i"), axis_name="i")(x)
    each = tx.vmap(tx.vmap(lambda y: function(y, ("i", "j")), axis_name="j"), axis_name="i")(x.reshape(2, 3, 6, 2))
    np.testing.assert_allclose(np.asarray(each).reshape(expected.shape), np.asarray(expected), 1e-5)


# --- what runs --------------------------------------------------------------------------------------------------------


def test_the_same_for_all_stays_unmapped() -> None:
    """What all examples share is computed once, and a branch that it chooses is a branch."""

    def f(x: Any) -> Any:
        return tx.lax.cond(tx.lax.psum(x, "i").sum() > 0, lambda y: y + 1, lambda y: y - 1, x)

    text = tx.jit(tx.vmap(f, axis_name="i")).lower(X).as_text()
    assert " conditional(" in text
    assert " select(" not in text


def test_functions_traced_inside_are_not_used_outside() -> None:
    traces: list[int] = []

    @tx.jit
    def f(x: Any) -> Any:
        traces.append(1)
        try:
            return x * tx.lax.axis_size("i")
        except AxisNameError:
            return x

    x = tx.numpy.ones(2)
    for _ in range(2):
        assert f(x).tolist() == [1, 1]
        assert under(lambda y: f(x) + y, np.zeros(3)).tolist() == [[3, 3]] * 3
        assert under(lambda y: f(x) + y, np.zeros(5)).tolist() == [[5, 5]] * 5
        assert tx.vmap(lambda y: f(x) + y, axis_name="j")(np.zeros(2)).tolist() == [[1, 1]] * 2
    assert len(traces) == 4


def test_axes_of_no_examples() -> None:
    assert under(lambda x: tx.lax.psum(x, "i"), np.zeros((0, 2))).shape == (0, 2)
    assert under(lambda x: tx.lax.ppermute(x, "i", []), np.zeros((0, 2))).shape == (0, 2)
    assert under(lambda x: tx.lax.all_gather(x, "i"), np.zeros((0, 2))).shape == (0, 0, 2)


def test_names_of_any_kind() -> None:
    name = object()
    assert tx.vmap(lambda x: tx.lax.psum(x, name), axis_name=name)(np.ones(3)).tolist() == [3, 3, 3]


# --- errors -----------------------------------------------------------------------------------------------------------


def refused(error: type[Exception], said: str, function: Callable[..., Any], x: Any = X) -> None:
    with pytest.raises(error) as found:
        tx.vmap(function, axis_name="i")(x)
    assert said in str(found.value)
    assert "test_named_axes.py" in str(found.value)


def test_errors() -> None:
    lax = tx.lax
    refused(
        AxisNameError,
        "lax.psum: there is no axis named 'j'; the axes here are 'i' (size 4). Call it inside a function that is "
        "mapped with vmap(..., axis_name='j').",
        lambda x: lax.psum(x, "j"),
    )
    refused(NameError, "lax.axis_index: there is no axis named 'k'", lambda x: lax.axis_index(("i", "k")))
    with pytest.raises(AxisNameError, match="there is no axis named 'i'; no axis has a name here"):
        tx.jit(lambda x: tx.lax.psum(x, "i"))(1.0)
    refused(ArgumentError, "lax.psum: the operand at ['a'] is 'x' of type str", lambda x: lax.psum({"a": "x"}, "i"))
    refused(DTypeError, "maximum does not take c64[3]", lambda x: lax.pmax(x * 1j, "i"))
    refused(ShapeError, "lax.all_gather: axis: axis 2 is out of range", lambda x: lax.all_gather(x, "i", axis=2))
    refused(
        ShapeError,
        "lax.psum_scatter: dimension 0 of f32[3] must have an element for each of the 4 lanes; with tiled=True",
        lambda x: lax.psum_scatter(x, "i"),
    )
    refused(
        ShapeError,
        "lax.all_to_all: the size of dimension 0 of f32[3] must be a multiple of the 4 lanes.",
        lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True),
    )
    refused(
        AttributeValueError,
        "lax.ppermute: perm must have each source and each target once, from 0 to 3, but is [(0, 1), (2, 1)].",
        lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]),
    )
    refused(ArgumentError, "must have pairs (source, target) of integers", lambda x: lax.ppermute(x, "i", [1]))
    refused(AttributeValueError, "each number from 0 to 3 once", lambda x: lax.pshuffle(x, "i", [0, 1, 2]))
    refused(AttributeValueError, "source must be from 0 to 3, but is 4.", lambda x: lax.pbroadcast(x, "i", 4))
    refused(
        AttributeValueError,
        "axis_index_groups must have each of the 4 lanes of 'i' once, in groups of one length, but is [[0], [1, 2, 3]]",
        lambda x: lax.psum(x, "i", axis_index_groups=[[0], [1, 2, 3]]),
    )
    refused(AttributeValueError, "to must be", lambda x: lax.all_gather(x, "i", to="there"))


def test_a_lane_does_not_run_alone() -> None:
    def f(x: Any) -> Any:
        lowered = tx.jit(lambda y: tx.lax.psum(y, "i")).lower(tx.ShapeDtypeStruct((2,), "float32"))
        return lowered.compile()(np.ones(2, np.float32)) + x

    refused(AxisNameError, "it is about the axis 'i', so a program of one of its lanes cannot be run by itself", f)


# --- pmap -------------------------------------------------------------------------------------------------------------


def test_pmap_against_jax() -> None:
    one = X[:1]
    for f in (
        lambda j: j.pmap(lambda x: x / j.lax.psum(x, "i"), "i")(one),
        lambda j: j.pmap(lambda x, n: x * n, static_broadcasted_argnums=1)(one, 3),
        lambda j: j.pmap(lambda n, x: x * len(n), static_broadcasted_argnums=(0,), in_axes=(None, 0))("abc", one),
        lambda j: j.pmap(lambda x, y: (x * y, y), in_axes=(0, None), out_axes=(0, None))(one, np.float32(2)),
        lambda j: j.pmap(lambda x, k: x + k)(one, k=one),
    ):
        assert_same(f(tx), f(jax))


def test_pmap_of_several_copies() -> None:
    def update(w: Any, x: Any) -> Any:
        return w - tx.lax.pmean(tx.grad(lambda w: ((x @ w) ** 2).sum())(w), "d")

    step = tx.pmap(update, "d", in_axes=(None, 0))
    w, data = np.float32([1, 2, 3]), RANDOM.normal(size=(4, 5, 3)).astype(np.float32)
    expected = w - np.mean([2 * x.T @ (x @ w) for x in data], axis=0)
    np.testing.assert_allclose(np.asarray(step(w, data)), np.tile(expected, (4, 1)), 1e-4)
    assert tx.pmap(lambda: tx.lax.axis_index("i"), "i", axis_size=3)().tolist() == [0, 1, 2]
