"""`pmap`: one copy of a function on each device."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def _grid(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _places(x):
    return np.asarray(x), [(s.device.id, s.data.shape) for s in x.addressable_shards]


def a_copy_on_each_device():
    yield _places(jax.pmap(lambda x: x**2)(_grid(8)))
    yield _places(jax.pmap(jnp.dot)(_grid(8, 2, 3), _grid(8, 3, 2)))
    yield _places(jax.pmap(jnp.sin)(_grid(4, 3)))
    keys = jax.random.split(jax.random.key(0), 8)
    made = jax.pmap(lambda key: jax.random.normal(key, (5, 6)))(keys)
    yield _places(made), made.shape
    yield _places(jax.pmap(lambda a, b: a @ b)(made, jnp.swapaxes(made, 1, 2)))
    yield _places(jax.pmap(jnp.mean)(made))


def axes_of_arguments_and_results():
    x = _grid(8, 3)
    yield _places(jax.pmap(lambda a, b: a + b, in_axes=(0, None))(x, 1.0))
    yield np.asarray(jax.pmap(lambda a: a, in_axes=1)(x.T))
    yield np.asarray(jax.pmap(lambda a, b: a[0] * b["k"], in_axes=((0,), {"k": None}))((x,), {"k": 2.0}))
    yield np.asarray(jax.pmap(lambda a: jax.lax.psum(a, "i"), axis_name="i", out_axes=None)(x))
    yield np.asarray(jax.pmap(lambda a, n: a * n, static_broadcasted_argnums=1)(x, 3))
    yield jax.tree.map(np.asarray, jax.pmap(lambda a: {"s": a.sum(), "d": a * 2})(x))


def collectives_over_the_copies():
    x = _grid(8, 3)
    over = partial(jax.pmap, axis_name="i")
    yield _places(over(lambda a: a / jax.lax.psum(a, "i"))(x))
    yield _places(over(lambda a: jax.lax.pmean(a, axis_name="i"))(x))
    yield _places(over(lambda a: jax.lax.ppermute(a, "i", [(k, (k + 1) % 8) for k in range(8)]))(x))
    yield np.asarray(over(lambda a: jax.lax.all_gather(a, "i"))(x))
    yield np.asarray(over(lambda a: a + jax.lax.axis_index("i"))(x))
    yield np.asarray(over(lambda a: jax.lax.pmax(a, "i") - jax.lax.pmin(a, "i"))(x))
    yield np.asarray(over(lambda a: jax.lax.psum_scatter(a, "i"))(_grid(8, 8)))
    yield np.asarray(over(lambda a: jax.lax.all_to_all(a, "i", 0, 0))(_grid(8, 8)))


def game_of_rule_30():
    def step(row):
        left = jax.lax.ppermute(row[-1:], "i", [(k, (k + 1) % 8) for k in range(8)])
        right = jax.lax.ppermute(row[:1], "i", [((k + 1) % 8, k) for k in range(8)])
        whole = jnp.concatenate([left, row, right])
        return whole[:-2] ^ (whole[1:-1] | whole[2:])

    row = np.zeros(32, bool)
    row[16] = True
    state = row.reshape(8, 4)
    run = jax.pmap(step, axis_name="i")
    for _ in range(5):
        state = run(state)
        yield np.asarray(state).astype(int)


def training():
    def loss(params, x, y):
        return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)

    @partial(jax.pmap, axis_name="devices")
    def update(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        grads = jax.lax.pmean(grads, "devices")
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), jax.lax.pmean(value, "devices")

    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (8, 4, 3))
    y = x @ jnp.array([1.0, -2.0, 0.5]) + 3
    params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    params = jax.tree.map(lambda p: jnp.stack([p] * 8), params)
    for _ in range(4):
        params, value = update(params, x, y)
        yield jax.tree.map(np.asarray, params), np.asarray(value)


def transformations():
    x = _grid(8, 3) / 10

    def f(a):
        return jnp.sin(a) * jax.lax.psum(a, "i")

    mapped = jax.pmap(f, axis_name="i")
    yield np.asarray(jax.grad(lambda a: mapped(a).sum())(x))
    yield np.asarray(jax.jit(mapped)(x)), np.asarray(jax.jvp(mapped, (x,), (x,))[1])
    yield np.asarray(jax.pmap(jax.vmap(jnp.cumsum))(x[:, None]))
    yield np.asarray(jax.pmap(lambda a: jax.lax.scan(lambda c, v: (c + v, c), 0.0, a)[1])(x))


def wrong_calls():
    for call in (
        lambda: jax.pmap(lambda a, b: a)(_grid(8), _grid(4)),
        lambda: jax.pmap(lambda a: a, in_axes=None)(_grid(8)),
    ):
        try:
            call()
            yield "no error"
        except Exception as error:
            yield error


def one_after_the_other():
    x = jax.pmap(lambda a: 2 * a, axis_name="i")(_grid(8, 3))
    y = jax.pmap(lambda a: a - jax.lax.psum(a, "j"), axis_name="j")(x)
    yield y, x + y, jax.pmap(lambda a, b: a * b)(x, y), jax.pmap(lambda a: jax.lax.psum(a, "i"), "i", out_axes=None)(y)
