"""Representations of transformed, lowered and compiled functions: `<jit of grad of loss>`."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.experimental import checkify

x = jnp.ones(3)


def loss(x: Any, scale: float = 1.0) -> Any:
    """A sum of squares."""
    return scale * (x**2).sum()


@tx.vmap
def squared(x: Any) -> Any:
    return x * x


MADE: dict[str, Any] = {
    "<jit of loss>": tx.jit(loss),
    "<grad of loss>": tx.grad(loss),
    "<jit of vmap of grad of loss>": tx.jit(tx.vmap(tx.grad(loss))),
    "<grad of jit of loss>": tx.grad(tx.jit(loss)),
    "<value_and_grad of checkpoint of loss>": tx.value_and_grad(tx.checkpoint(loss)),
    "<jacfwd of jacrev of loss>": tx.hessian(loss),
    "<elementwise_grad of loss>": tx.elementwise_grad(loss),
    "<vectorize of loss>": jnp.vectorize(loss),
    "<make_graph of loss>": tx.make_graph(loss),
    "<jit of pmap of loss>": tx.pmap(loss),
    "<vmap of custom_jvp of loss>": tx.vmap(tx.custom_jvp(loss)),
    "<custom_vjp of jit of loss>": tx.custom_vjp(tx.jit(loss)),
    "<custom_vmap of loss>": tx.custom_batching.custom_vmap(loss),
    "<named_call of loss>": tx.named_call(loss),
    "<checkify of loss>": checkify.checkify(loss),
    "<jit of partial of loss>": tx.jit(functools.partial(loss, scale=2)),
    "<jit of lambda>": tx.jit(lambda x: x),
    "<vjp of loss>": tx.vjp(loss, x)[1],
    "Partial(<linear_transpose of lambda>, [])": tx.linear_transpose(lambda x: 2 * x, x),
    "<jit of fwd of loss>": tx.fwd_and_bwd(loss, 0)[0],
    "<traced loss(f32[3]) -> f32[], 7 operations>": tx.jit(loss).trace(x),
    "<lowered loss(f32[3]) -> f32[], 7 operations>": tx.jit(loss).lower(x),
    "<compiled loss(f32[3]) -> f32[], 1 step>": tx.jit(loss).lower(x).compile(),
    "<report of loss, 1 step>": tx.jit(loss).lower(x).compile().report(),
    "<setting disable_jit=True>": tx.disable_jit(),
    "<named_scope 'layer'>": tx.named_scope("layer"),
}


@pytest.mark.parametrize("text", MADE)
def test_representation(text: str) -> None:
    assert repr(MADE[text]) == text


def test_of_many_arguments_the_first_are_shown() -> None:
    lowered = tx.jit(lambda *xs: xs).lower(*[x] * 8)
    shapes = ", ".join(["f32[3]"] * 6)
    assert f"({shapes}, 2 more) -> ({shapes}, 2 more)" in repr(lowered)


def test_profile_says_how_many_calls_of_what_time() -> None:
    made = tx.jit(loss).lower(x).compile().profile(x, seconds=0.001)
    assert repr(made).startswith(f"<profile of loss, {made.calls:,} call")


def test_config_shows_what_is_not_as_at_first() -> None:
    with tx.debug_nans(), tx.numpy_rank_promotion("raise"):
        assert "debug_nans=True" in repr(tx.config)
        assert "numpy_rank_promotion='raise'" in repr(tx.config)
        assert "debug_infs" not in repr(tx.config)


def test_transformed_functions_are_like_functions() -> None:
    made = tx.grad(loss)
    assert (made.__name__, made.__doc__, made.__module__) == ("loss", loss.__doc__, __name__)
    assert inspect.signature(made) == inspect.signature(loss)
    assert copy.deepcopy(made) is made
    assert pickle.loads(pickle.dumps(squared)) is squared
    bound = functools.partial(made, scale=2.0)
    np.testing.assert_array_equal(bound(x), 4 * np.ones(3))
    np.testing.assert_array_equal(functools.partial(made, x)(scale=3.0), 6 * np.ones(3))


def test_transformed_functions_are_methods_in_a_class() -> None:
    class Model:
        scale = 3.0

        @functools.partial(tx.grad, argnums=1)
        def slope(self, x: Any) -> Any:
            return self.scale * x

    assert Model().slope(2.0) == 3.0
    assert repr(Model.slope) == "<grad of slope>"
