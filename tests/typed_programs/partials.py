# pyright: strict
"""Decorators made by `functools.partial`, as programs for JAX have them. (mypy loses the types of overloaded functions
in `partial`; `jit(static_argnames="power")` gives it all.)"""

from __future__ import annotations

from functools import partial
from typing import assert_type

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import Array


@partial(tx.jit, static_argnames="power")
def raised(x: Array, power: int) -> Array:
    return x**power


@partial(tx.checkpoint, policy=None)
def deep(x: Array) -> Array:
    return jnp.tanh(x)


@partial(tx.vmap, in_axes=(0, None))
def product(x: Array, y: Array) -> Array:
    return x @ y


x = jnp.ones(3)
assert_type(raised(x, power=2), Array)
assert_type(deep(x), Array)
assert_type(product(x, x), Array)
