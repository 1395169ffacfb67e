"""Transformations of `shard_map`: derivatives and `vmap` are functions of a device again, and give what those of the
same function mapped over the parts give."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.ops.op import Decomposition
from tinyxla.transforms import sharded
from tinyxla.transforms.batch import batch
from tinyxla.transforms.computations import clear_transformed

P = tx.P
SWAP = [(0, 1), (1, 0)]


pytestmark = pytest.mark.usefixtures("four_devices")


def _halo(a: Any, w: Any) -> Any:
    below = jnp.concatenate([lax.ppermute(a[-1:], "x", SWAP), a])
    products = jnp.sin(below[1:] * below[:-1] @ w)
    total = lax.psum(products.sum(), "x")
    return products * total, lax.pmean(total, "y")


def _gathered(a: Any, w: Any) -> Any:
    rows = lax.all_gather(a, "y", tiled=True, axis=1)
    scattered = lax.psum_scatter(jnp.tanh(rows[:, :3] @ w)[:, :2], "y", scatter_dimension=1, tiled=True)
    exchanged = lax.all_to_all(a * 2, "x", 0, 0, tiled=True)
    return scattered.sum() * a * exchanged, lax.psum(jnp.cos(w).sum() * lax.axis_index("x") * a.sum(), ("x", "y"))


def _shares(a: Any, w: Any) -> Any:
    powers = jnp.exp(a - lax.pmax(lax.stop_gradient(a).max(), ("x", "y")))
    return powers / lax.psum(powers.sum(), ("x", "y")), lax.psum((w**2).sum() * a.sum(), ("x", "y"))


def _largest(a: Any, w: Any) -> Any:
    largest = lax.pmax(a.max(), ("x", "y"))
    return a * largest, largest * w.sum()


def _invariant(a: Any, w: Any) -> Any:
    return jnp.zeros_like(a) + w[0, 0], (w * w).sum()


def _invariant_gathered(a: Any, w: Any) -> Any:
    return a * lax.all_gather(w, "x").sum(), lax.psum(jnp.sin(w).sum(), "y")


def _pipeline(a: Any, w: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        c = lax.ppermute(c, "x", SWAP) * jnp.cos(w[0, 0]) + a
        return c, c.sum()

    carried, sums = lax.scan(step, a, None, length=3)
    return carried, lax.psum(sums.sum(), ("x", "y"))


PROGRAMS = (_halo, _gathered, _shares, _largest, _invariant, _invariant_gathered, _pipeline)


def _arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    a, w = (jnp.asarray(random.normal(size=n).astype(np.float32)) for n in ((4, 6), (3, 3)))
    return a, w


def _mapped(f: Any, check_vma: bool) -> Callable[..., Any]:
    mesh = tx.make_mesh((2, 2), ("x", "y"))
    specs = (P("x", "y"), P())
    return tx.shard_map(f, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=check_vma)


def _transformed(g: Callable[..., Any], a: Any, w: Any) -> dict[str, Any]:
    """Derivatives of first and second order, and examples side by side."""

    def loss(a: Any, w: Any) -> Any:
        u, v = g(a, w)
        return (u * jnp.arange(24.0).reshape(4, 6)).sum() / 10 + v * 3

    gradient = tx.grad(loss, (0, 1))
    return {
        "grad": gradient(a, w),
        "jvp": tx.jvp(loss, (a, w), (a + 1, w - 1)),
        "grad of grad": tx.jit(tx.grad(lambda a, w: sum((x * x).sum() for x in gradient(a, w)), (0, 1)))(a, w),
        "vmap of grad": tx.vmap(gradient, (2, 1))(jnp.stack([a, 2 * a], 2), jnp.stack([w, 2 * w], 1)),
        "grad of vmap": tx.grad(lambda w: tx.vmap(g, (None, 0))(a, w)[0].sum())(jnp.stack([w, -w])),
    }


@pytest.fixture
def over_lanes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls a function while rules of `shard_map` are those of what it is made of."""

    def batched(size: int, operands: Any, axes: Any, **attributes: Any) -> Any:
        pairs = batch(lambda *x: sharded._mapped(*x, **attributes), size, operands, axes)  # pyright: ignore[reportPrivateUsage]
        return tuple(x for x, _ in pairs), tuple(axis for _, axis in pairs)

    def call(function: Callable[[], Any]) -> Any:
        clear_transformed()
        with monkeypatch.context() as patched:
            patched.setattr(sharded.shard_map, "derivative", Decomposition(sharded._mapped))  # pyright: ignore[reportPrivateUsage]
            patched.setattr(sharded.shard_map, "batch", batched)
            found = function()
        clear_transformed()
        return found

    return call


def _differences(found: Any, wanted: Any) -> list[str]:
    return [
        name
        for name in wanted
        for x, y in zip(tx.tree.leaves(found[name]), tx.tree.leaves(wanted[name]), strict=True)
        if not np.allclose(x, y, 2e-3, 1e-3)
    ]


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("f", PROGRAMS)
def test_transformations_are_those_of_the_function_mapped_over_parts(f: Any, check_vma: bool, over_lanes: Any) -> None:
    g = _mapped(f, check_vma)
    wanted = over_lanes(lambda: _transformed(g, *_arguments()))
    assert _differences(_transformed(g, *_arguments()), wanted) == []


@pytest.mark.parametrize("check_vma", [True, False])
def test_axis_of_a_vmap_around(check_vma: bool) -> None:
    """The function of a device talks over the examples, too."""

    def of_device(x: Any) -> Any:
        others = lax.all_gather(x, "i").sum(0) + lax.psum(jnp.sin(x), "i") + lax.axis_index("i")
        return x * others + lax.ppermute(x, "x", SWAP)

    def alone(x: Any) -> Any:
        others = lax.all_gather(x, "i").sum(0) + lax.psum(jnp.sin(x), "i") + lax.axis_index("i")
        return x * others + jnp.roll(x, 2, 0)

    mesh = tx.make_mesh((2,), ("x",))
    mapped = tx.shard_map(of_device, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check_vma)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32))
    for transformed in (
        lambda f: tx.vmap(f, axis_name="i")(x),
        lambda f: tx.vmap(tx.grad(lambda x: (f(x) ** 2).sum()), axis_name="i")(x),
        lambda f: tx.grad(lambda x: (tx.vmap(f, axis_name="i")(x) ** 2).sum())(x),
        lambda f: tx.jit(tx.vmap(tx.grad(lambda x: (f(x) ** 2).sum()), axis_name="i"))(x),
    ):
        np.testing.assert_allclose(transformed(mapped), transformed(alone), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", ["_summed", "_shared"])
def test_wrong_rule_is_found(rule: str, over_lanes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    g = _mapped(_halo, False)
    wanted = over_lanes(lambda: _transformed(g, *_arguments()))
    monkeypatch.setattr(sharded, rule, lambda attributes, g, spec: g)
    sharded._passes.cache_clear()  # pyright: ignore[reportPrivateUsage]
    found = _transformed(g, *_arguments())
    sharded._passes.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert _differences(found, wanted)


def _collectives(function: Any, *arguments: Any) -> list[str]:
    text = tx.jit(function).lower(*arguments).as_text()
    return sorted(re.findall(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(", text))


def test_gradient_of_a_halo_exchange_is_one_in_the_other_direction() -> None:
    mesh = tx.make_mesh((4,), ("x",))
    shifted = [(0, 1), (1, 2), (2, 3)]

    @tx.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def smoothed(x: Any) -> Any:
        return jnp.tanh(jnp.concatenate([lax.ppermute(x[-1:], "x", shifted), x]))[:-1] * x

    x = tx.device_put(jnp.arange(8.0), tx.NamedSharding(mesh, P("x")))
    gradient = tx.grad(lambda x: smoothed(x).sum())
    assert _collectives(gradient, x) == ["collective-permute"] * 2
    text = tx.jit(gradient).lower(x).as_text()
    assert "source_target_pairs={{0,1},{1,2},{2,3}}" in text
    assert "source_target_pairs={{1,0},{2,1},{3,2}}" in text
    assert _collectives(tx.vmap(smoothed), jnp.stack([x, x])) == ["collective-permute"]


def test_gradient_of_replicated_weights_is_one_sum() -> None:
    mesh = tx.make_mesh((4,), ("x",))

    @tx.shard_map(mesh=mesh, in_specs=(P(), P("x")), out_specs=P("x"))
    def predicted(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w)

    x = tx.device_put(jnp.ones((8, 3)), tx.NamedSharding(mesh, P("x")))
    text = tx.jit(tx.grad(lambda w: predicted(w, x).sum())).lower(jnp.ones((3, 2))).as_text()
    assert len(re.findall(r"psum-invariant\.\d+ = ", text)) == 1
    assert "all-gather" not in text
