# pyright: strict
"""Programs as users type them, with the types that checkers must see; `tests/test_types.py` has them checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, assert_type

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import Array, lax
from tinyxla.typing import ArrayLike

Weights = dict[str, Array]


class State(NamedTuple):
    position: Array
    momentum: Array


def product(x: Array, y: Array) -> Array:
    return x * y


def softplus(x: ArrayLike) -> Array:
    return jnp.log(1 + jnp.exp(x))


def loss(weights: Weights, x: Array) -> Array:
    return jnp.sum(x @ weights["w"]) + weights["b"]


def loss_with_hits(weights: Weights, x: Array) -> tuple[Array, int]:
    return loss(weights, x), 3


def advance(state: State, x: Array) -> tuple[State, Array]:
    return State(state.position + x, state.momentum), state.position


def is_small(x: Array) -> Array:
    return x < 100


def doubled(x: Array) -> Array:
    return 2 * x


def counted(i: Array, state: State) -> State:
    return State(state.position + i, state.momentum)


class Model:
    weights: Array

    @tx.jit
    def apply(self, x: Array) -> Array:
        return self.weights @ x

    @tx.checkpoint(prevent_cse=False)
    def deep(self, x: Array) -> Array:
        return jnp.tanh(x)


x = jnp.ones((3, 3))
weights: Weights = {"w": x, "b": jnp.zeros(())}
state = State(x, x)


def operators() -> None:
    assert_type(x, Array)
    assert_type(x + 1, Array)
    assert_type(2.0 * x, Array)
    assert_type(x @ x, Array)
    assert_type(x**2, Array)
    assert_type(-x, Array)
    assert_type(x > 0, Array)
    assert_type(x == x, Array)
    assert_type(divmod(x, 2), tuple[Array, Array])
    assert_type(x[0, 1:], Array)
    assert_type([row for row in x], list[Array])  # noqa: C416 - it is the iteration that is looked at


def properties_and_methods() -> None:
    assert_type(x.T, Array)
    assert_type(x.mT, Array)
    assert_type(x.real, Array)
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.sum(axis=0), Array)
    assert_type(x.argmax(), Array)
    assert_type(x.reshape(9).astype("float32"), Array)
    assert_type(x.at[0].set(1.0), Array)
    assert_type(x.at[0, :].add(x[0], mode="drop"), Array)
    assert_type(x.at[0].get(), Array)


def functions_of_arrays() -> None:
    assert_type(jnp.sin(x), Array)
    assert_type(jnp.add(x, 1), Array)
    assert_type(jnp.maximum(x, 0.0), Array)
    assert_type(jnp.add.reduce(x), Array)
    assert_type(jnp.where(x > 0, x, 0), Array)
    assert_type(jnp.einsum("ij,jk->ik", x, x), Array)
    assert_type(jnp.linalg.svd(x).S, Array)
    assert_type(jnp.linalg.svd(x, compute_uv=False), Array)
    assert_type(jnp.linalg.eigh(x).eigenvalues, Array)
    assert_type(lax.exp(x), Array)
    assert_type(lax.linalg.qr(x), tuple[Array, Array])
    assert_type(tx.nn.relu(x), Array)
    assert_type(tx.random.normal(tx.random.key(0), (3,)), Array)


def compilation() -> None:
    assert_type(tx.jit(product)(x, x), Array)
    assert_type(tx.jit(loss)(weights, x=x), Array)
    assert_type(tx.jit(static_argnames="x")(loss_with_hits)(weights, x), tuple[Array, int])
    assert_type(tx.jit(advance)(state, x), tuple[State, Array])
    assert_type(tx.jit(product).lower(x, x).compile().as_text(), str)
    assert_type(Model().apply(x), Array)
    assert_type(Model().deep(x), Array)


def transformations() -> None:
    assert_type(tx.grad(loss)(weights, x), Weights)
    assert_type(tx.grad(loss, has_aux=False)(weights, x), Weights)
    assert_type(tx.grad(loss_with_hits, has_aux=True)(weights, x), tuple[Weights, int])
    assert_type(tx.grad(jnp.sin)(1.0), Array)
    assert_type(tx.grad(tx.grad(jnp.sin))(1.0), Array)
    assert_type(tx.value_and_grad(loss)(weights, x), tuple[Array, Weights])
    assert_type(tx.value_and_grad(loss_with_hits, has_aux=True)(weights, x), tuple[tuple[Array, int], Weights])
    assert_type(tx.jit(tx.value_and_grad(loss))(weights, x), tuple[Array, Weights])
    assert_type(tx.vmap(product, in_axes=(0, None))(x, x), Array)
    assert_type(tx.vmap(tx.grad(loss), (None, 0))(weights, x), Weights)
    assert_type(tx.jacfwd(product)(x, x), Array)
    assert_type(tx.jacrev(loss)(weights, x), Weights)
    assert_type(tx.hessian(product)(x, x), Array)
    assert_type(tx.jvp(product, (x, x), (x, x)), tuple[Array, Array])
    assert_type(tx.vjp(loss, weights, x), tuple[Array, Callable[[Array], tuple[Weights, Array]]])
    assert_type(tx.linearize(doubled, x), tuple[Array, Callable[[Array], Array]])
    assert_type(tx.checkpoint(product)(x, x), Array)
    assert_type(tx.custom_jvp(product)(x, x), Array)
    assert_type(tx.custom_vjp(loss)(weights, x), Array)
    assert_type(tx.custom_batching.custom_vmap(product)(x, x), Array)
    assert_type(tx.jit(softplus)(1.0), Array)


def control_flow(flag: bool) -> None:
    assert_type(lax.scan(advance, state, x), tuple[State, Array])
    assert_type(lax.while_loop(is_small, doubled, x), Array)
    assert_type(lax.while_loop(is_small, doubled, 1.0), Array)
    assert_type(lax.fori_loop(0, 3, counted, state), State)
    assert_type(lax.fori_loop(0, x.shape[0], product, 1.0), Array)
    assert_type(lax.cond(flag, product, jnp.add, x, x), Array)
    assert_type(lax.switch(x[0, 0], [doubled, softplus], x), Array)
    assert_type(lax.map(doubled, x), Array)
    assert_type(lax.associative_scan(product, x), Array)
    assert_type(tx.progress(lax.scan, "steps")(advance, state, x), tuple[State, Array])
    assert_type(tx.progress(lax.fori_loop)(0, 3, counted, state), State)


def trees() -> None:
    assert_type(tx.tree.map(doubled, weights), Weights)
    assert_type(tx.tree.map(product, weights, weights), Weights)
    assert_type(tx.tree.map(doubled, [x, x]), list[Array])
    assert_type(tx.tree.map(doubled, state), State)
    assert_type(tx.tree.map(str, weights), dict[str, str])
    assert_type(tx.load("state.safetensors", like=state), State)
