"""Functions without types, which a type checker must let through, in any transformation."""

from __future__ import annotations

from typing import Any, NamedTuple

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import Array, lax

Weights = dict[str, Array]


class State(NamedTuple):
    position: Array
    momentum: Array


def product(x: Array, y: Array) -> Array:
    return x * y


def loss(weights: Weights, x: Array) -> Array:
    return jnp.sum(x @ weights["w"]) + weights["b"]


x = jnp.ones((3, 3))
weights: Weights = {"w": x, "b": jnp.zeros(())}
state = State(x, x)
anything: Any = loss

tx.grad(lambda w: loss(w, x))(weights)
tx.value_and_grad(lambda w: (w["w"].sum(), 1), has_aux=True)(weights)
tx.vjp(lambda w: w["b"], weights)
tx.jit(tx.vmap(lambda row: row / jnp.linalg.norm(row)))(x)
tx.jacfwd(lambda w: loss(w, x))(weights)
tx.tree.map(lambda p, g: p - 0.1 * g, weights, tx.grad(loss)(weights, x))
tx.tree.map(lambda leaf: leaf.shape, state)
lax.scan(lambda carry, row: (carry + row, None), 0.0, x)
lax.scan(lambda carry, _: (carry, carry.position), state, None, 3)
lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1]), (0, x))
lax.fori_loop(0, 3, lambda i, s: (s[0] + i, s[1]), (0, x))
lax.cond(x.sum() > 0, lambda: x, lambda: -x)
tx.grad(anything)(weights, x)
tx.grad(product, argnums=(0, 1))(x, x)
tx.jit(product).lower(tx.ShapeDtypeStruct((3,), "float32"), x)
