"""Loops over what is shifted, padded and put together: cut where what is read changes, and buffers that take turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as jnp
from tinyxla.compiler.analysis.access_maps import boundaries, shifted_operands
from tinyxla.loopir.lower import axes

Function = Callable[..., Any]


def _same(f: Function, *args: Any) -> None:
    with tx.disable_jit():
        expected = tx.tree_util.tree_leaves(f(*args))
    for x, y in zip(tx.tree_util.tree_leaves(tx.jit(f)(*args)), expected, strict=True):
        np.testing.assert_allclose(x, y, 1e-5, 1e-5)


def _random_movement(random: np.random.Generator, x: Any) -> Any:
    """A roll, an array with edges of another, a padding and a slice, a reversal, a transpose."""
    d = int(random.integers(x.ndim))
    size = x.shape[d]
    k = int(random.integers(size + 1))
    whole = [slice(None)] * x.ndim
    first, last = [*whole], [*whole]
    first[d], last[d] = slice(None, k), slice(k, None)
    match random.integers(7):
        case 0:
            return jnp.roll(x, k, d)
        case 1:
            return jnp.concatenate([x[tuple(first)], jnp.sin(x)[tuple(last)]], d)
        case 2:
            return jnp.concatenate([x[tuple(last)], 2 * x[tuple(first)]], d)
        case 3:
            padding = [(0, 0, 0)] * x.ndim
            padding[d] = (k, -k, 0) if random.integers(2) else (-k, k, 0)
            return lax.pad(x, 0.5, padding)
        case 4:
            return jnp.flip(x, d)
        case 5:
            return x.at[tuple(slice(1, max(n - 1, 1)) for n in x.shape)].multiply(3)
        case _:
            return jnp.swapaxes(jnp.swapaxes(x, 0, -1) + 1, 0, -1)


SHAPES = [(7,), (300,), (1, 5), (6, 1), (20, 33), (3, 4, 18), (2, 1, 19)]


def _stencil(seed: int) -> tuple[Function, Any]:
    random = np.random.default_rng(seed)
    x = jnp.asarray(random.standard_normal(SHAPES[seed % len(SHAPES)]).astype(np.float32))

    def f(x: Any) -> Any:
        random = np.random.default_rng(seed)
        total = x
        for _ in range(3):
            y = _random_movement(random, x)
            total = total + _random_movement(random, y) * y
        return total

    return f, x


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(42))
def test_random_stencils(seed: int) -> None:
    f, x = _stencil(seed)
    _same(f, x)


@pytest.mark.parametrize("seed", range(7))
def test_random_stencils_in_loops(seed: int) -> None:
    f, x = _stencil(seed + 100)
    _same(lambda x: lax.fori_loop(0, 3, lambda _, y: jnp.tanh(f(y)), x), x)


def test_missing_index_set_boundaries_change_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """They make a loop ask where it is: it is slower, not wrong."""
    tx.clear_caches()
    calls: list[int] = []

    def cuts(*args: Any) -> list[int]:
        found = _true_cuts(*args)
        calls.append(len(found))
        return found[1:]

    _true_cuts = axes.index_set_boundaries
    monkeypatch.setattr(axes, "index_set_boundaries", cuts)
    for seed in range(12):
        f, x = _stencil(seed)
        _same(f, x)
    assert any(calls)


@pytest.mark.parametrize("shape", [(3, 400), (5, 3, 70)])
def test_rows_of_a_stack_are_written_out(shape: tuple[int, ...]) -> None:
    """Each computes what is its own: none has to ask which it is."""

    def rates(state: Any) -> Any:
        x, y, z = (state[..., k, :] for k in range(3))
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -2)

    def f(state: Any) -> Any:
        return state + 0.01 * rates(state + 0.005 * rates(state))

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    _same(f, x)
    assert not any(" if " in kernel.source for kernel in tx.jit(f).lower(x).compile().kernels)


@pytest.mark.parametrize(("width", "is_stored"), [(3, False), (7, True)])
@pytest.mark.parametrize("mode", ["edge", "constant", "wrap"])
def test_what_has_edges_is_stored_if_it_is_read_at_many_places(mode: str, width: int, is_stored: bool) -> None:
    def f(x: Any) -> Any:
        padded = jnp.pad(x, width // 2, mode=mode)
        m, n = x.shape
        return sum((i - j) * padded[i : i + m, j : j + n] for i in range(width) for j in range(width))

    x = np.random.default_rng(0).standard_normal((20, 33)).astype(np.float32)
    _same(f, x)
    assert (len(tx.jit(f).lower(x).compile().kernels) > 1) == is_stored


@pytest.mark.parametrize(("dimensions", "is_stored"), [(1, False), (3, True)])
def test_what_would_be_computed_at_many_places_is_stored(dimensions: int, is_stored: bool) -> None:
    """A step of a heat equation after another one: seven points of it, of fifteen operations each, or three of five."""

    def step(x: Any) -> Any:
        return x + sum(0.125 * (jnp.roll(x, 1, d) - 2.0 * x + jnp.roll(x, -1, d)) for d in range(dimensions))

    x = np.random.default_rng(0).standard_normal((6, 7, 33)[-dimensions:]).astype(np.float32)
    _same(lambda x: step(step(x)), x)
    assert (len(tx.jit(lambda x: step(step(x))).lower(x).compile().kernels) > 1) == is_stored


@pytest.mark.parametrize("seed", range(14))
def test_long_loops_are_their_middle_and_their_sides(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyxla.loopir.lower.axes.LONG_BODY_OPS", 0)
    tx.clear_caches()
    f, x = _stencil(seed)
    _same(f, x)


@pytest.mark.parametrize("shape", [(9, 40), (3, 5, 60)])
def test_the_middle_of_a_long_loop_does_not_ask_where_it_is(shape: tuple[int, ...]) -> None:
    """Each element of a row and some twenty around it: so much work that few copies of the loop are written out."""
    taps = 21

    def f(x: Any) -> Any:
        wide = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(3, 3)], mode="edge")
        total = jnp.zeros_like(x)
        for k in range(taps):
            y = wide[..., k % 7 : k % 7 + x.shape[-1]]
            total = total + y * jnp.exp(-((y - x) ** 2) * (k + 1)) / (1 + k + y * y)
        return total

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    _same(f, x)
    (kernel,) = tx.jit(f).lower(x).compile().kernels
    middle, sides = kernel.source.split("in range(2):")
    assert sides.count("max(") > 0
    assert not any(word in middle for word in ("min(", "max(", " if "))


def test_edges_and_offsets() -> None:
    entry = tx.make_graph(lambda x: jnp.concatenate([x[2:], x[:2]]) + lax.pad(x, 0.0, [(3, -3, 0)]))(np.ones(10)).entry
    by_name = {x.op.name: x for x in entry.instructions}
    assert list(boundaries(by_name["concatenate"], (0,))) == [8]
    assert list(boundaries(by_name["concatenate"], (-1,))) == [9]
    assert list(boundaries(by_name["concatenate"], (None,))) == []
    assert list(boundaries(by_name["pad"], (0,))) == [3, 13]
    assert [o for _, o in shifted_operands(by_name["concatenate"], (5,))] == [(5,), (-3,)]
    assert [o for _, o in shifted_operands(by_name["pad"], (5,))] == [(2,), (5,)][:1]


# --- what a loop hands on ---------------------------------------------------------------------------------------------


def _copies(f: Function, *args: Any) -> int:
    """How often a loop copies arrays that it carries, in one step."""
    text = str(tx.jit(f).lower(*args).compile().as_text())
    return sum("copy" in line.split("(")[0] for line in text.splitlines() if line.startswith("  "))


X, Y, Z = (np.random.default_rng(k).standard_normal((40, 50)).astype(np.float32) for k in range(3))

HANDED_ON: list[Function] = [
    lambda x, y, z: (jnp.sin(x) + y, x, z),
    lambda x, y, z: (jnp.sin(x) + z, x, y),
    lambda x, y, z: (z, jnp.sin(y) + x, y),
    lambda x, y, z: (y, x, jnp.sin(z) + x),
    lambda x, y, z: (y, z, x),
    lambda x, y, z: (x, x, jnp.sin(y)),
    lambda x, y, z: (jnp.sin(x) + y, x, x),
    lambda x, y, z: (jnp.sin(x) + y + z, x, jnp.cos(y)),
    lambda x, y, z: (x.at[1].set(y[2]), x, jnp.sin(z)),
    lambda x, y, z: (jnp.sin(y), jnp.sin(y), y),
]


@pytest.mark.parametrize("number", range(len(HANDED_ON)))
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_values_that_are_handed_on(number: int, steps: int) -> None:
    step = HANDED_ON[number]
    _same(lambda *x: lax.fori_loop(0, steps, lambda _, c: step(*c), x), X, Y, Z)

    def until(limit: Any, *x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, *step(*c[1:])), (0, *x))

    _same(until, steps, X, Y, Z)


def test_arguments_stay_as_they_are() -> None:
    before = [a.copy() for a in (X, Y, Z)]
    arrays = [jnp.asarray(a) for a in (X, Y, Z)]
    for step in HANDED_ON:
        tx.jit(lambda *x, step=step: lax.fori_loop(0, 4, lambda _, c: step(*c), x))(*arrays)
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


# --- lanes of loops of known length -----------------------------------------------------------------------------------


def test_lanes_of_known_length() -> None:
    """Also with counters, shared arrays, and derivatives."""
    starts = np.linspace(-1, 1, 300).reshape(100, 3).astype(np.float32)
    matrix = np.array([[0.1, 0.9, 0], [-0.9, 0.1, 0.1], [0, 0, 0.5]], np.float32)

    def orbit(x: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            return jnp.sin(matrix @ x) + 0.01 * k

        return lax.fori_loop(3, 13, step, x)

    def with_count(x: Any) -> Any:
        return lax.fori_loop(0, 7, lambda k, c: (c[0] * 0.5 + k, c[1] + 2), (x, 1))

    for f in (orbit, with_count):
        _same(tx.vmap(f), starts)
    _same(tx.vmap(tx.grad(lambda x: jnp.sum(orbit(x)))), starts)
    _same(tx.grad(lambda x: jnp.sum(tx.vmap(orbit)(x) ** 2)), starts)
    _same(tx.vmap(tx.vmap(lambda x: orbit(jnp.stack([x, x, x])))), starts)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (jnp.exp(x[:-1]), x[1:] - x[:-1]),
        lambda x: (2 * x[1:-1], x[2:] - 2 * x[1:-1] + x[:-2], x[1:-1] - x[:-2]),
        lambda x: lax.fori_loop(0, 3, lambda _, s: (s[0] + s[1], s[1] - jnp.roll(s[0], 1) + s[0]), (x, 2 * x)),
    ],
)
def test_neighbours_are_read_before_anything_is_stored(function: Function) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal(1000), "float32")
    _same(function, x)
    kernel = tx.jit(function).lower(x).compile().kernels[0]
    for loop in kernel.source.split("for ")[1:]:
        assert "= in" not in loop.partition(" out")[2]
