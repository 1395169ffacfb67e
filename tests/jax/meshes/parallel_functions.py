"""`shard_map`: functions of what each device has, products of matrices and layers of models by hand."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec as P


def _mesh(*sizes, names="xyz"):
    return jax.make_mesh(sizes, tuple(names[: len(sizes)]), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def _grid(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _ring(size, step=1):
    return [(k, (k + step) % size) for k in range(size)]


def parts_and_specs():
    mesh = _mesh(4, 2)
    seen = []

    def f(a, b):
        seen.append((a.shape, b.shape))
        return a * 2, b.sum(keepdims=True)

    mapped = jax.shard_map(f, mesh=mesh, in_specs=(P("x", "y"), P(("x", "y"))), out_specs=(P("x", "y"), P(("x", "y"))))
    yield mapped(_grid(8, 4), _grid(16)), seen[0]
    yield jax.jit(mapped)(_grid(8, 4), _grid(16))
    yield jax.shard_map(lambda a: a, mesh=mesh, in_specs=P("y", "x"), out_specs=P("y", "x"))(_grid(2, 4))
    yield jax.shard_map(lambda a: a[None], mesh=mesh, in_specs=P(), out_specs=P("x"))(_grid(2))
    tree = {"a": _grid(8), "b": (_grid(4, 2), _grid(8))}
    yield jax.shard_map(lambda t: jax.tree.map(jnp.sin, t), mesh=mesh, in_specs=P("x"), out_specs=P("x"))(tree)
    specs = {"a": P("x"), "b": P(None, "y")}
    double = jax.shard_map(lambda t: t, mesh=mesh, in_specs=(specs,), out_specs=specs)
    yield double({"a": _grid(8), "b": _grid(4, 2)})
    with jax.set_mesh(mesh):
        yield jax.shard_map(lambda a: a + 1, in_specs=P("x"), out_specs=P("x"))(_grid(8))

        @jax.shard_map(in_specs=P("y"), out_specs=P("y"))
        def g(a):
            return a * 3

        yield g(_grid(8))


def jaxprs_of_functions_of_parts():
    mesh = _mesh(4)
    f = jax.shard_map(lambda a, b: jax.lax.psum(a * b, "x"), mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    x, y = _grid(8), _grid(2)
    jaxpr = jax.make_jaxpr(f)(x, y)
    (eqn,) = jaxpr.eqns
    yield eqn.primitive.name, eqn.params["in_specs"], eqn.params["out_specs"], sorted(eqn.params["newly_manual_axes"])
    yield [(e.primitive.name, e.params.get("axes")) for e in eqn.params["jaxpr"].eqns], eqn.params["check_vma"]
    yield jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, y)
    split = jax.shard_map(
        lambda a, b: (jnp.sin(a), jnp.cos(b)), mesh=mesh, in_specs=(P(), P("x")), out_specs=(P(), P("x"))
    )
    live, used = jax.interpreters.partial_eval.dce_jaxpr(jax.make_jaxpr(split)(x, x[:4]).jaxpr, [False, True])
    (eqn,) = live.eqns
    yield used, eqn.params["in_specs"], eqn.params["out_specs"], [e.primitive.name for e in eqn.params["jaxpr"].eqns]
    yield jax.core.eval_jaxpr(live, [], x[:4])
    rows = NamedSharding(mesh, P("x"))
    (eqn,) = jax.make_jaxpr(jax.vmap(lambda a: jax.lax.with_sharding_constraint(a, rows)))(_grid(2, 8)).eqns
    yield eqn.primitive.name, eqn.params["sharding"].spec[1], sorted(eqn.params["unconstrained_dims"])


def jaxprs_of_loops_compute_what_the_functions_do():
    mesh = _mesh(4)

    def loop(a, w):
        return jax.lax.scan(lambda c, r: (jnp.sin(c * w) + r, c * r), a[0], a)

    def descent(a, w):
        return jax.lax.scan(lambda w, r: (w - 0.1 * jax.grad(lambda w: jnp.mean((r * w) ** 2))(w), None), w, a)[0]

    functions = (
        (descent, P()),
        (lambda a, w: jax.grad(lambda w: loop(a, w)[0])(w)[None], P("x")),
        (lambda a, w: jax.lax.psum(loop(a, w)[1].sum(), "x"), P()),
        (lambda a, w: jax.lax.fori_loop(0, 3, lambda i, c: c * w + jax.lax.psum(a[0], "x"), w * 2), P()),
        (lambda a, w: jax.hessian(lambda w: jax.lax.psum(loop(a, w)[0], "x"))(w), P()),
        (lambda a, w: jax.vmap(lambda b: loop(a, b * w)[0])(jnp.arange(3.0))[None], P("x")),
    )
    x, w = _grid(8) / 3, np.float32(1.3)
    for f, outs in functions:
        mapped = jax.shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=outs)
        for g in (mapped, jax.grad(lambda *args, mapped=mapped: mapped(*args).sum(), argnums=(0, 1))):
            jaxpr = jax.make_jaxpr(g)(x, w)
            yield [np.asarray(y) for y in jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, w)]


def kinds_of_axes():
    seen = []

    def f(a):
        mesh = jax.typeof(a).sharding.mesh
        seen.append((str(mesh.axis_types), dict(mesh.shape), sorted(jax.typeof(a).mat.invarying(mesh))))
        return a * 2

    for names in ({"x"}, {"x", "y"}):
        yield jax.jit(jax.shard_map(f, mesh=_mesh(4, 2), in_specs=P("x"), out_specs=P("x"), axis_names=names))(_grid(8))
    yield seen, dict(jax.typeof(jnp.ones(2)).sharding.mesh.shape)


def values_of_parts():
    mesh = _mesh(2, 2)
    seen = []

    def f(a):
        seen.append((str(a), f"{a}"))
        total = jax.lax.psum(a.sum(), ("x", "y"))
        for look in (bool, int, lambda x: bool((x > 3).all())):
            seen.append(look(total))
        try:
            seen.append(bool((a > 0).all()))
        except TypeError as error:
            seen.append(error)
        return -a if total > 0 else a

    on = partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    yield on(f)(_grid(4, 4)), on(f)(-_grid(4, 4)), seen
    chosen = on(lambda a: a * a if jax.lax.psum(a.sum(), ("x", "y")) > 0 else a)
    yield jax.grad(lambda a: chosen(a).sum())(_grid(4, 4))
    some = partial(jax.shard_map, mesh=mesh, in_specs=(), out_specs=P())
    yield some(lambda: 1.0 if jax.lax.psum(jax.lax.axis_index("x"), "x") > 0 else -1.0)()


def collectives():
    mesh = _mesh(8)
    on = partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    x = _grid(16, 8)
    yield on(lambda a: a + jax.lax.psum(a, "x"))(x)
    yield on(lambda a: a - jax.lax.pmean(a, "x") + jax.lax.pmax(a, "x") * jax.lax.pmin(a, "x"))(x)
    yield on(lambda a: jax.lax.all_gather(a, "x").sum(0) + 0 * a)(x)
    yield on(lambda a: jax.lax.all_gather(a, "x", axis=1, tiled=True))(x)
    yield on(lambda a: jax.lax.psum_scatter(a, "x", scatter_dimension=1, tiled=True))(x)
    yield on(lambda a: jax.lax.psum_scatter(a.T, "x", scatter_dimension=0).sum(keepdims=True))(x)
    yield on(lambda a: jax.lax.all_to_all(a, "x", split_axis=1, concat_axis=0, tiled=True))(x)
    yield on(lambda a: jax.lax.all_to_all(a.T, "x", 0, 1))(x)
    yield on(lambda a: jax.lax.ppermute(a, "x", _ring(8)))(x)
    yield on(lambda a: jax.lax.ppermute(a, "x", [(0, 3), (3, 5)]))(x)
    yield on(lambda a: a + jax.lax.axis_index("x"))(x)
    yield on(lambda a: a * jax.lax.axis_size("x") + jax.lax.psum(1, "x"))(x)
    whole = partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P())
    yield whole(lambda a: jax.lax.psum(a.sum(), "x"))(x), whole(lambda a: jax.lax.pmax(a.max(0), "x"))(x)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    loose = partial(on, check_vma=False)
    yield loose(lambda a: jax.lax.psum(a, "x", axis_index_groups=groups))(x)
    yield loose(lambda a: jax.lax.all_gather(a, "x", axis_index_groups=groups, tiled=True))(x)


def collectives_over_several_axes():
    mesh = _mesh(2, 2, 2)
    on = partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y", "z"), out_specs=P("x", "y", "z"))
    x = _grid(4, 4, 8)
    yield on(lambda a: a + jax.lax.psum(a, ("x", "z")))(x)
    yield on(lambda a: jax.lax.all_gather(a, ("y", "z"), axis=0).sum(0) + 0 * a)(x)
    yield on(lambda a: jax.lax.psum_scatter(a, "z", scatter_dimension=1, tiled=True))(x)
    yield on(lambda a: a + jax.lax.axis_index(("x", "y")) * 10 + jax.lax.axis_index("z"))(x)
    yield on(lambda a: jax.lax.all_to_all(a, "z", 2, 1, tiled=True))(x)
    yield on(lambda a: jax.lax.ppermute(jax.lax.ppermute(a, "x", _ring(2)), "y", _ring(2)))(x)


def products_by_gathering_and_scattering():
    mesh = _mesh(8)
    a, b = _grid(16, 32) / 100, _grid(32, 16) / 100
    shard = partial(jax.shard_map, mesh=mesh)

    @partial(shard, in_specs=(P("x", None), P("x", None)), out_specs=P("x", None))
    def gathered(lhs, rhs):
        return lhs @ jax.lax.all_gather(rhs, "x", axis=0, tiled=True)

    @partial(shard, in_specs=(P("x", None), P("x", None)), out_specs=P("x", None))
    def overlapped(lhs, rhs):
        size, index = jax.lax.axis_size("x"), jax.lax.axis_index("x")
        block = lhs.shape[1] // size

        def chunk(k):
            return jax.lax.dynamic_slice_in_dim(lhs, (index + k) % size * block, block, 1)

        total = chunk(0) @ rhs
        for k in range(1, size):
            rhs = jax.lax.ppermute(rhs, "x", _ring(size, -1))
            total += chunk(k) @ rhs
        return total

    @partial(shard, in_specs=(P(None, "x"), P("x", None)), out_specs=P("x", None))
    def scattered(lhs, rhs):
        return jax.lax.psum_scatter(lhs @ rhs, "x", scatter_dimension=0, tiled=True)

    @partial(shard, in_specs=(P(None, "x"), P("x", None)), out_specs=P("x", None))
    def scattered_in_steps(lhs, rhs):
        size, index = jax.lax.axis_size("x"), jax.lax.axis_index("x")
        rows = lhs.shape[0] // size

        def chunk(k):
            return jax.lax.dynamic_slice_in_dim(lhs, (index + k) % size * rows, rows, 0) @ rhs

        total = chunk(size - 1)
        for k in range(size - 2, -1, -1):
            total = jax.lax.ppermute(total, "x", _ring(size)) + chunk(k)
        return total

    @partial(shard, in_specs=(P(None, "x"), P("x", None)), out_specs=P())
    def summed(lhs, rhs):
        return jax.lax.psum(lhs @ rhs, "x")

    for f in (gathered, overlapped, scattered, scattered_in_steps, summed):
        yield f(a, b), jax.jit(f)(a, b)
    yield a @ b


def cannon():
    mesh = _mesh(2, 2)
    a, b = _grid(4, 4), _grid(4, 4) + 1

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("x", "y")), out_specs=P("x", "y"))
    def product(lhs, rhs):
        row, column = jax.lax.axis_index("x"), jax.lax.axis_index("y")
        lhs = jnp.where(row == 1, jax.lax.ppermute(lhs, "y", _ring(2)), lhs)
        rhs = jnp.where(column == 1, jax.lax.ppermute(rhs, "x", _ring(2)), rhs)

        def step(_, carry):
            total, lhs, rhs = carry
            total = total + lhs @ rhs
            return total, jax.lax.ppermute(lhs, "y", _ring(2)), jax.lax.ppermute(rhs, "x", _ring(2))

        zeros = jax.lax.pcast(jnp.zeros((2, 2)), ("x", "y"), to="varying")
        return jax.lax.fori_loop(0, 2, step, (zeros, lhs, rhs))[0]

    yield product(a, b), a @ b


def _network(key, sizes):
    keys = jax.random.split(jax.random.key(key), len(sizes) - 1)
    made = [jax.random.normal(k, (m, n)) / np.sqrt(m) for k, m, n in zip(keys, sizes, sizes[1:], strict=False)]
    return [(w, jnp.zeros(w.shape[1])) for w in made]


def _predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def _loss(params, batch):
    x, y = batch
    return jnp.mean(jnp.sum((_predict(params, x) - y) ** 2, axis=-1))


def _batch(count=16, features=8, outputs=4):
    keys = jax.random.split(jax.random.key(7))
    return jax.random.normal(keys[0], (count, features)), jax.random.normal(keys[1], (count, outputs))


def data_parallel():
    mesh = _mesh(8)
    params, batch = _network(0, [8, 16, 4]), _batch()

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    def loss(params, batch):
        return jax.lax.pmean(_loss(params, batch), "x")

    yield loss(params, batch), _loss(params, batch)
    yield jax.jit(jax.grad(loss))(params, batch), jax.grad(_loss)(params, batch)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("x")), out_specs=P(), check_vma=False)
    def gradient(params, batch):
        return jax.lax.pmean(jax.grad(_loss)(params, batch), "x")

    yield gradient(params, batch)

    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    def gradient_inside(params, batch):
        found = jax.grad(lambda p: _loss(p, batch))(params)
        return jax.tree.map(lambda g: g / jax.lax.axis_size("x"), found)

    yield jax.jit(gradient_inside)(params, batch)
    for _ in range(3):
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient(params, batch))
    yield params, loss(params, batch)


def fully_sharded():
    mesh = _mesh(4)
    params, batch = _network(1, [8, 16, 4]), _batch()
    sharded = jax.tree.map(lambda p: jax.device_put(p, NamedSharding(mesh, P("x"))), params)

    def gathered(params):
        return jax.tree.map(lambda p: jax.lax.all_gather(p, "x", axis=0, tiled=True), params)

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P())
    def loss(params, batch):
        x, y = batch
        for k, layer in enumerate(params):
            w, b = gathered(layer)
            x = x @ w + b
            x = jax.nn.relu(x) if k < len(params) - 1 else x
        return jax.lax.pmean(jnp.mean(jnp.sum((x - y) ** 2, axis=-1)), "x")

    yield loss(sharded, batch), _loss(params, batch)
    yield jax.jit(jax.grad(loss))(sharded, batch), jax.grad(_loss)(params, batch)
    remat = jax.shard_map(
        lambda p, b: jax.lax.pmean(jax.checkpoint(lambda q: _loss(gathered(q), b))(p), "x"),
        mesh=mesh,
        in_specs=(P("x"), P("x")),
        out_specs=P(),
    )
    yield jax.jit(jax.grad(remat))(sharded, batch)


def tensor_parallel():
    mesh = _mesh(2, 4, names=("batch", "feats"))
    params, (x, y) = _network(2, [8, 16, 4]), _batch()

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P("feats", None), P("feats"), P("batch", "feats")),
        out_specs=P("batch", "feats"),
    )
    def layer(w, b, x):
        return jax.lax.psum_scatter(x @ w, "feats", scatter_dimension=1, tiled=True) + b

    def predict(params, x):
        (w, b), (v, c) = params
        return layer(v, c, jax.nn.relu(layer(w, b, x)))

    def loss(params):
        return jnp.mean(jnp.sum((predict(params, x) - y) ** 2, axis=-1))

    yield predict(params, x), _predict(params, x)
    yield loss(params), jax.jit(jax.grad(loss))(params), jax.grad(_loss)(params, (x, y))


def pipeline():
    mesh = _mesh(4, names=("stages",))
    weights = jax.random.normal(jax.random.key(0), (4, 6, 6)) / 2
    inputs = jax.random.normal(jax.random.key(1), (8, 3, 6))

    def stage(w, x):
        return jnp.tanh(x @ w)

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("stages"), P()), out_specs=P("stages"))
    def run(w, inputs):
        w = w[0]
        count, index = inputs.shape[0], jax.lax.axis_index("stages")
        size = jax.lax.axis_size("stages")
        inputs = jax.lax.pcast(inputs, "stages", to="varying")
        state, outputs = jnp.zeros_like(inputs[0]), jnp.zeros_like(inputs)

        def step(k, carry):
            state, outputs = carry
            state = jnp.where(index == 0, inputs[jnp.minimum(k, count - 1)], state)
            state = stage(w, state)
            outputs = outputs.at[jnp.maximum(k - size + 1, 0)].set(state)
            return jax.lax.ppermute(state, "stages", _ring(size)), outputs

        state, outputs = jax.lax.fori_loop(0, count + size - 1, step, (state, outputs))
        return outputs[None]

    def reference(w, inputs):
        return jax.lax.scan(lambda x, v: (stage(v, x), None), inputs, w)[0]

    yield run(weights, inputs)[-1], reference(weights, inputs)
    split = jax.device_put(weights, NamedSharding(mesh, P("stages")))
    yield jax.grad(lambda w: (jax.jit(run)(w, inputs)[-1] ** 2).sum())(split)
    yield jax.grad(lambda w: (reference(w, inputs) ** 2).sum())(weights)


def expert_parallel():
    mesh = _mesh(4, names=("experts",))
    weights = jax.random.normal(jax.random.key(0), (4, 5, 5))
    tokens = jax.random.normal(jax.random.key(1), (4, 4, 2, 5))  # of each device, for each expert

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("experts"), P("experts")), out_specs=P("experts"))
    def layer(w, tokens):
        sent = jax.lax.all_to_all(tokens[0], "experts", 0, 0, tiled=False)
        return jax.lax.all_to_all(jnp.tanh(sent @ w[0]), "experts", 0, 0, tiled=False)[None]

    yield layer(weights, tokens), jnp.tanh(jnp.einsum("dent,etu->denu", tokens, weights))
    yield jax.jit(jax.grad(lambda w: layer(w, tokens).sum()))(weights)


def halo_exchange():
    mesh = _mesh(8)
    x = np.sin(_grid(32))

    @partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def step(u):
        left = jax.lax.ppermute(u[-1:], "x", _ring(8))
        right = jax.lax.ppermute(u[:1], "x", _ring(8, -1))
        padded = jnp.concatenate([left, u, right])
        return u + 0.1 * (padded[:-2] - 2 * u + padded[2:])

    @jax.jit
    def run(u):
        return jax.lax.fori_loop(0, 10, lambda _, v: step(v), u)

    yield run(x), jax.jit(lambda u: jax.lax.scan(lambda v, _: (step(v), v.sum()), u, None, 5))(x)


def checks_of_what_varies():
    mesh = _mesh(4, 2)

    def of(f, *args):
        try:
            return f(*args)
        except Exception as error:
            return error

    shard = partial(jax.shard_map, mesh=mesh)
    x = _grid(8, 4)
    yield of(shard(lambda a: a, in_specs=P("x"), out_specs=P()), x)
    yield of(shard(lambda a: jax.lax.psum(a, "x"), in_specs=P("x"), out_specs=P()), x)
    yield of(shard(lambda a: jax.lax.psum(a, "x"), in_specs=P("x", "y"), out_specs=P()), x)
    yield of(shard(lambda a: jax.lax.all_gather(a, "x", tiled=True), in_specs=P("x"), out_specs=P()), x)
    yield of(
        shard(lambda a: jax.lax.all_gather(a, "x", tiled=True), in_specs=P("x"), out_specs=P(), check_vma=False), x
    )
    yield of(shard(lambda a: a, in_specs=P("z"), out_specs=P()), x)
    uneven = of(shard(lambda a: a, in_specs=P("x"), out_specs=P("x")), _grid(6, 4))
    yield uneven, "not evenly divisible by the corresponding mesh axis sizes" in str(uneven)
    yield of(shard(lambda a: a, in_specs=(P("x"), P("x")), out_specs=P("x")), x)
    yield of(shard(lambda a: a.sum(), in_specs=P("x"), out_specs=P("x")), x)
    yield of(lambda: jax.shard_map(lambda a: a, in_specs=P("x"), out_specs=P("x"))(x))


def loops_and_branches_keep_the_axes_along_which_values_vary():
    mesh = _mesh(4, 2)
    x = _grid(8)

    def said(f, *words):
        mapped = jax.shard_map(f, mesh=mesh, in_specs=(P("x"), P("y")), out_specs=P(("x", "y")))
        try:
            return jax.tree.map(np.asarray, mapped(x, x))
        except (TypeError, ValueError) as error:
            return error, [word in str(error) for word in words]

    zero, two = jnp.zeros(()), jnp.zeros(2)
    to_x, to_y = (f"applying `jax.lax.pcast(..., ('{name}',), to='varying')`" for name in "xy")
    both = partial(jax.lax.pcast, axis_name="y", to="varying")
    yield said(lambda a, b: jax.lax.cond(True, lambda: a, lambda: b[:2]), to_x, to_y, "to the output of true_fun")
    yield said(lambda a, b: jax.lax.cond(True, lambda: both(a), lambda: both(jnp.ones_like(a))))
    yield said(lambda a, b: jax.lax.switch(0, [lambda: a, lambda: a * 2, lambda: two]), "the manual axis types")
    yield said(lambda a, b: jax.lax.scan(lambda c, r: (c + r, None), zero, a)[0][None], to_x, "input carry c has type")
    yield said(lambda a, b: jax.lax.fori_loop(0, 3, lambda i, c: c + a, two), to_x, "loop_carry[1]")
    yield said(lambda a, b: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: c + a + 1, two), to_x, "input carry c")
    yield said(
        lambda a, b: jax.lax.scan(lambda c, _: ((c[1], c[0]), None), (a, two), None, 2)[0], "carry component c[1]"
    )
    yield said(lambda a, b: both(jax.lax.scan(lambda c, r: (c + r, None), jnp.zeros_like(a[0]), a)[0][None]))
    yield said(lambda a, b: jax.linearize(jnp.sin, two)[1](a), to_x, "to the primal value passed to `jax.linearize`")
    yield said(lambda a, b: jax.vjp(jnp.sin, two)[1](a)[0], "for argument to VJP function")


def arrays_like_others_vary_as_these():
    seen = []

    def f(a):
        struct = jax.eval_shape(lambda b: b * 2, a)
        made = [jnp.ones_like(a), jnp.zeros_like(a, dtype=int), jnp.full_like(a, 2, shape=3), jax.lax.full_like(a, 2.0)]
        made += [jnp.ones_like(struct), jax.grad(lambda b: 3.0)(a[0]), jnp.ones(a.shape), jnp.ones_like(jnp.ones(2))]
        seen.extend(sorted(jax.typeof(x).mat.varying) for x in (struct, *made))
        keys = jnp.full_like(jax.random.split(jax.random.key(0), 2), jax.random.key(1))
        return a, jax.random.key_data(keys)

    f = jax.shard_map(f, mesh=_mesh(4), in_specs=P("x"), out_specs=(P("x"), P()))
    yield f(_grid(8)), seen


def some_axes_by_hand():
    mesh = _mesh(4, 2)
    x = _grid(8, 4)
    seen = []

    def f(a):
        seen.append(a.shape)
        return a + jax.lax.psum(a.sum(), "x")

    part = jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    yield np.asarray(jax.jit(part)(x)), seen[0]
    y = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
    yield np.asarray(jax.jit(part)(y)), seen[-1]
    yield np.asarray(jax.jit(jax.grad(lambda a: (part(a) ** 2).sum()))(y))


def transformations_inside_and_outside():
    mesh = _mesh(4, 2)
    x = jax.device_put(_grid(8, 4) / 10, NamedSharding(mesh, P("x")))
    f = jax.shard_map(lambda a: jnp.sin(a) * jax.lax.psum(a.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    yield jax.grad(lambda a: f(a).sum())(x), jax.jit(jax.grad(lambda a: f(a).sum()))(x)
    yield jax.jvp(f, (x,), (x,)), jax.vmap(f)(jnp.stack([x, x + 1]))
    yield jax.vmap(jax.grad(lambda a: f(a).sum()))(jnp.stack([x, x + 1]))
    yield jax.linearize(f, x)[1](x), jax.vjp(f, x)[1](x)
    yield np.asarray(jax.jacrev(lambda a: f(a)[0])(x[:4])), np.asarray(jax.hessian(lambda a: f(a).sum())(x[:4, :1]))

    def inside(a):
        b = jax.vmap(lambda row: row / jnp.linalg.norm(row + 1))(a)
        c = jax.jit(jnp.cos)(b)
        d, _ = jax.lax.scan(lambda s, row: (s + row, s), jnp.zeros_like(c[0]), c)
        e = jax.lax.cond(d.sum() > 0, jnp.sin, jnp.cos, d)
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, e))[1][None]

    yield jax.shard_map(inside, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)

    @jax.custom_vjp
    def clipped(a):
        return a * 2

    clipped.defvjp(lambda a: (clipped(a), a), lambda a, g: (jnp.clip(g, -1, 1) * a,))
    g = jax.shard_map(lambda a: clipped(a) * 3, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    yield g(x), jax.grad(lambda a: g(a).sum())(x)
    yield jax.jit(lambda a: f(f(a)) @ a.T)(x).sum()
    nested = jax.shard_map(
        lambda a: jax.grad(lambda b: jnp.sum(b**3))(a), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")
    )
    yield nested(x), jax.eval_shape(nested, x).shape


def ordered_callbacks():
    seen = []

    def f(x):
        io_callback(lambda v: seen.append(np.asarray(v).tolist()), None, x, ordered=True)
        return 2 * x

    mapped = jax.shard_map(f, mesh=_mesh(4), in_specs=P("x"), out_specs=P("x"))
    yield jax.jit(mapped)(_grid(8))
    jax.effects_barrier()
    yield sorted(seen)


def devices_named_inside():
    mapped = jax.shard_map(
        lambda x: x + jax.device_put(1.0, jax.devices()[0]), mesh=_mesh(4), in_specs=P("x"), out_specs=P("x")
    )
    yield jax.jit(mapped)(_grid(8))


def types_of_parts():
    seen = []

    def f(x, y):
        values = x, x + y, jax.lax.psum(x, "x"), jnp.ones(2), jax.lax.pcast(jnp.ones(2), "x", to="varying")
        seen.extend((str(jax.typeof(v)), v.aval.mat.varying) for v in values)
        return x + y

    mapped = jax.shard_map(f, mesh=_mesh(2, 2), in_specs=(P("x"), P("y")), out_specs=P(("x", "y")))
    yield jax.jit(mapped)(_grid(4), _grid(4))
    yield list(seen)
    text = str(jax.make_jaxpr(mapped)(_grid(4), _grid(4)))
    yield "mesh=Mesh('x': 2, 'y': 2, axis_types=(Auto, Auto))" in text
