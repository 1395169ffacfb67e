# pyright: strict
"""Mistakes that type checkers must report: each line with `# wrong`, and no other."""

from __future__ import annotations

from typing import assert_type

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import Array, lax


def product(x: Array, y: Array) -> Array:
    return x * y


def loss(weights: dict[str, Array], x: Array) -> Array:
    return x @ weights["w"]


x = jnp.ones(3)
weights = {"w": x}

assert_type(tx.jit(product)(x, x), str)  # wrong
tx.jit(product)("abc", x)  # wrong
tx.jit(product)(x)  # wrong
tx.jit(product)(x, z=x)  # wrong
tx.jit(product, static_argument=0)  # wrong
tx.jit(static_argnums=0)(product)("abc", x)  # wrong
tx.vmap(product)(x, "abc")  # wrong
tx.vmap(product, axis=0)  # wrong
tx.grad(loss)(x, x)  # wrong
tx.grad(loss)(weights, x, x)  # wrong
tx.value_and_grad(loss)(weights, "abc")  # wrong
tx.checkpoint(product)(x, "abc")  # wrong
tx.custom_jvp(product)(x, "abc")  # wrong
tx.custom_vjp(product)(x)  # wrong
tx.vjp(product, x, "abc")[1](x, x)  # wrong
lax.fori_loop(0, "abc", product, x)  # wrong
jnp.sin("abc")  # wrong
jnp.add(x, "abc")  # wrong
jnp.sin(x, dtype="float32")  # wrong
jnp.sum(x, axes=0)  # wrong
x.at[0].set(1.0, order="drop")  # wrong
x.at[0].append(1.0)  # wrong
jnp.abs(x + "abc")  # wrong
x.grad()  # wrong
