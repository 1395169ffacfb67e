"""Meshes whose axes are explicit: the sharding of an array is part of its type."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def _mesh():
    return jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Explicit))


def _grid(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def types_of_axes():
    mesh = _mesh()
    yield str(mesh.axis_types), mesh.explicit_axes, mesh.auto_axes, mesh.manual_axes
    yield mesh.are_all_axes_explicit, mesh.are_all_axes_auto
    mixed = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    yield mixed.explicit_axes, mixed.auto_axes, repr(mixed)
    default = jax.make_mesh((2, 4), ("X", "Y"))
    yield str(default.axis_types), str(jax.make_mesh((2, 4), ("X", "Y"), (AxisType.Auto,) * 2).axis_types)
    x = jax.device_put(_grid(8, 4), NamedSharding(default, P("X")))
    yield str(jax.typeof(jnp.sin(x))), jnp.sin(x) + x


def types_of_arrays():
    mesh = _mesh()
    x = jax.device_put(_grid(8, 4), NamedSharding(mesh, P("X", "Y")))
    yield jax.typeof(x).sharding.spec, str(jax.typeof(x)), dict(jax.typeof(x).sharding.mesh.shape)
    y = jax.device_put(_grid(8, 4), NamedSharding(mesh, P(None, "Y")))
    yield str(jax.typeof(y)), str(jax.typeof(jnp.ones(3)))
    with jax.set_mesh(mesh):
        z = jax.device_put(_grid(8, 4), P("X"))
        yield z, str(jax.typeof(z))


def products_with_out_sharding():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        x = jax.device_put(_grid(8, 4), P("X", "Y"))
        y = jax.device_put(_grid(4, 8), P("Y", None))
        yield jnp.dot(x, y, out_sharding=P("X", None)), jnp.matmul(x, y, out_sharding=P("X", None))
        yield jnp.einsum("ij,jk->ik", x, y, out_sharding=P("X", None))
        yield jax.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=P(None, None)))(x, y)


def resharded():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        x = jax.device_put(_grid(8, 4), P("X", None))
        yield jax.sharding.reshard(x, P(None, "Y")), jax.sharding.reshard(x, P(None, None))
        yield jax.jit(lambda a: jax.sharding.reshard(a, P(("X", "Y"), None)) + 1)(x)
        yield jax.reshard(x, NamedSharding(mesh, P("Y", None)))
        yield jax.reshard({"matrix": x, "vector": jnp.arange(8.0)}, P("X", None))["vector"]


def created_with_a_sharding():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        yield jnp.zeros((8, 4), out_sharding=P("X", "Y")), jnp.ones((8,), out_sharding=P("Y"))
        yield jnp.full((4, 4), 2.0, out_sharding=P("X")), jnp.arange(8, out_sharding=P("X"))
        yield jax.jit(lambda: jnp.zeros((8, 4), out_sharding=P("X", "Y")))()
        yield jax.random.normal(jax.random.key(0), (8, 4), out_sharding=P("X", None))
        yield jax.random.uniform(jax.random.key(0), (8,), out_sharding=P("Y"))
        yield jax.random.bits(jax.random.key(0), (8, 4), out_sharding=P("X", "Y"))
        yield jax.lax.broadcast_in_dim(jnp.ones(4), (8, 4), (1,), out_sharding=P("X", None))
        yield jax.lax.broadcasted_iota(jnp.int32, (8, 4), 0, out_sharding=P("X", None))
        yield jnp.broadcast_to(jnp.ones(4), (8, 4), out_sharding=P("X", None))
        yield jax.lax.full((8, 4), 1.5, sharding=NamedSharding(mesh, P("X", None)))


def _typed(x):
    return str(jax.typeof(x)), x


def _in_types(f, *arguments):
    """The types of the results while the function is traced, and the results."""
    seen = []

    def traced(*arguments):
        results = f(*arguments)
        seen.extend(str(jax.typeof(x)) for x in jax.tree.leaves(results))
        return results

    return jax.jit(traced)(*arguments), seen


def types_while_tracing():
    with jax.set_mesh(_mesh()):
        x = jax.device_put(_grid(8, 4), P("X", "Y"))
        w = jax.device_put(_grid(4, 8), P(None, "Y"))
        whole = jax.device_put(_grid(8, 4), P(None, None))
        yield _in_types(lambda x: (x + 1, x.T, x.sum(), x.sum(0), x.max(1), jnp.argmax(x, 1), x.astype(int)), x)
        yield _in_types(lambda x, w: (x @ w, jnp.einsum("ij,jk->ki", whole, w)), x, w)
        yield _in_types(lambda x, y: (x + y, jnp.where(x > 0, x, -x), x * y[0]), x, whole)
        yield _in_types(lambda x: (x[None], x.reshape(8, 4, 1), x.reshape(2, 4, 4), x[:4], x[0:8:2]), x)
        yield _in_types(lambda x: (jnp.concatenate([x, x]), jnp.stack([x, x]), jnp.split(x, 2), jnp.flip(x)), x)
        yield _in_types(lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, 1), jax.nn.standardize(x)), x)
        yield _in_types(lambda x: (jnp.broadcast_to(x, (3, 8, 4)), jnp.swapaxes(x, 0, 1), jax.nn.relu(x)), x)
        yield _in_types(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), c.sum(0)), x, None, length=3), x)
        yield _in_types(lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), x)
        yield _in_types(lambda x: jax.lax.while_loop(lambda c: c.sum() < 1e4, lambda c: c * 2, x), x)
        yield _in_types(jax.vmap(lambda a: a * jnp.sin(a).sum()), x)
        yield _in_types(jax.shard_map(lambda x: x * 2, in_specs=P("X", "Y"), out_specs=P("X", "Y")), x)
        yield _in_types(lambda x: x.reshape(32, out_sharding=P("X")), x)
        yield _in_types(lambda x: x.at[0].set(1.0, out_sharding=P("X", "Y")), x)
        yield _typed(x + 1), _typed(x.T), _typed(x.sum(0)), _typed(x @ w)


def dimensions_joined_and_divided():
    with jax.set_mesh(_mesh()):
        for shape, sizes, spec in (
            ((4, 4), (16,), P("X", "Y")),
            ((4, 4), (16,), P("Y", "X")),
            ((2, 4), (8,), P("X", "Y")),
            ((4, 4, 3), (16, 3), P("X", "Y", None)),
            ((4, 4, 4), (64,), P("X", "Y", None)),
            ((4, 2, 4), (4, 8), P(None, "X", "Y")),
            ((16, 4), (2, 8, 4), P(("X", "Y"), None)),
            ((4, 8), (4, 2, 4), P(None, ("X", "Y"))),
        ):
            x = jax.device_put(_grid(*shape), spec)
            joined = partial(jnp.reshape, shape=sizes)
            for f in (joined, jax.jit(joined), jax.grad(lambda x, joined=joined: (joined(x) ** 2).sum())):
                yield f(x), f(x).sharding.spec
        for shape, sizes, spec in (((4, 4), (16,), P(None, "Y")), ((4, 4, 4), (64,), P("X", None, "Y"))):
            try:
                yield jax.device_put(_grid(*shape), spec).reshape(sizes)
            except Exception as error:
                yield "This reshape is not supported" in str(error)


def jaxprs_show_types():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        x = jax.device_put(_grid(8, 4), P("X", "Y"))
        w = jax.device_put(_grid(4, 6), P())
        step = lambda c, r: (jnp.tanh(c), r.sum())  # noqa: E731
        for f in (
            lambda x: jnp.sin(x).sum(),
            lambda x: x * 2 + x.T.T,
            lambda x: jax.lax.scan(step, x, x.T[None, :, :] * jnp.ones((2, 1, 1)))[0],
            lambda x: jax.lax.cond(x.sum() > 0, lambda x: x, jnp.cos, x),
            lambda x: jax.reshard(x, P("X", None)) @ w,
        ):
            closed = jax.make_jaxpr(f)(x)
            yield [str(a) for a in (*closed.in_avals, *closed.out_avals)]
            last = closed.eqns[-1]
            yield [str(v.aval) for v in last.outvars], [a.sharding.spec for a in closed.out_avals]
            inner = [last.params[name] for name in ("jaxpr", "branches") if name in last.params]
            yield [str(jaxpr) for jaxpr in jax.tree.leaves(inner, is_leaf=lambda j: hasattr(j, "eqns"))]
        yield str(jax.make_jaxpr(lambda x: jnp.sin(x * 2).sum(0))(x)), str(jax.jit(jnp.cos).trace(x).jaxpr)
        for names in ({"X"}, {"X", "Y"}):
            outs = P() if len(names) == 1 else P(None, "Y")
            f = jax.shard_map(lambda a: jax.lax.psum(jnp.sin(a), "X"), out_specs=outs, axis_names=names)
            (eqn,) = jax.make_jaxpr(f)(x).eqns
            inner = eqn.params["jaxpr"]
            yield [str(v.aval) for v in (*eqn.invars, *eqn.outvars, *inner.invars)]
            yield [str(v.aval) for e in inner.eqns for v in e.outvars], [v.aval.mat.varying for v in inner.invars]


def types_of_derivatives():
    with jax.set_mesh(_mesh()):
        x = jax.device_put(_grid(8, 4) / 32, P("X", "Y"))
        w = jax.device_put(_grid(4, 8) / 32, P("Y", None))

        def loss(x, w):
            return jnp.sum(jnp.dot(jnp.tanh(x), w, out_sharding=P("X", None)) ** 2)

        def repeated(x, w):
            def step(c, _):
                hidden = jnp.dot(c, w, out_sharding=P("X", None))
                return jnp.tanh(jnp.dot(hidden, w.T, out_sharding=P("X", "Y"))), None

            return jax.lax.scan(step, x, None, length=3)[0].sum()

        for f in (loss, jax.checkpoint(loss), jax.jit(loss), repeated):
            yield _in_types(jax.grad(f, (0, 1)), x, w)
            yield [_typed(g) for g in jax.grad(f, (0, 1))(x, w)]
        yield _in_types(lambda x, w: jax.jvp(loss, (x, w), (x, w)), x, w)
        yield _in_types(lambda x, w: jax.jvp(jax.grad(loss), (x, w), (x, w)), x, w)


def axes_left_to_the_compiler():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        x = jax.device_put(_grid(8, 4), P("X", "Y"))
        product = jax.sharding.auto_axes(lambda a: jnp.sort(a @ a.T), out_sharding=P("X", None))
        rows = jax.sharding.auto_axes(lambda a: jnp.sort(a, 1), axes="Y", out_sharding=P("X", "Y"))
        for f in (product, rows):
            yield _in_types(f, x), _typed(f(x))
        kinds = jax.sharding.auto_axes(lambda a: a * len(jax.sharding.get_abstract_mesh().auto_axes))
        yield kinds(x, out_sharding=P("X", "Y"))
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)):
        f = jax.sharding.explicit_axes(lambda a: a.T * 2, in_sharding=P("X", "Y"))
        yield f(_grid(8, 4)), jax.jit(f)(_grid(8, 4))


def ambiguous_types():
    with jax.set_mesh(_mesh()):
        x = jax.device_put(_grid(8, 4), P("X", "Y"))
        turned = jax.device_put(_grid(8, 4), P("Y", "X"))
        table = jax.device_put(_grid(8, 4), P("X", None))
        for f in (
            lambda: x + turned,
            lambda: x @ jax.device_put(_grid(4, 8), P("Y", None)),
            lambda: x[:, :2],
            lambda: x[0],
            lambda: x.reshape(8, 2, 2),
            lambda: jnp.sort(x, 1),
            lambda: table[np.array([0, 1])],
            lambda: jax.lax.top_k(x, 2),
            lambda: jnp.pad(x, 1),
        ):
            for call in (f, jax.jit(f)):
                try:
                    yield call()
                except Exception as error:
                    yield type(error).__name__


def gathered_by_index():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        table = jax.device_put(_grid(8, 4), P("X", None))
        ids = jax.device_put(np.array([1, 5, 7, 0], np.int32), P(None))
        yield table.at[ids].get(out_sharding=P(None, None))


def current_meshes():
    yield jax.sharding.get_abstract_mesh().empty
    mesh = _mesh()
    with jax.set_mesh(mesh):
        yield dict(jax.sharding.get_abstract_mesh().shape), jax.sharding.get_mesh() == mesh
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            yield dict(jax.sharding.get_abstract_mesh().shape)
    yield jax.sharding.get_abstract_mesh().empty
    yield dict(jax.sharding.AbstractMesh((2, 4), ("a", "b")).shape), jax.sharding.AbstractMesh((2, 4), ("a", "b")).size


def types_of_rows_and_gradients():
    with jax.set_mesh(_mesh()):
        x = jax.device_put(_grid(8, 4), P(None, "Y"))
        seen = []

        def step(carry, row):
            seen.append((jax.typeof(carry).sharding.spec, jax.typeof(row).sharding.spec))
            return carry, row * 2

        for f in (jax.lax.scan, jax.jit(lambda *a: jax.lax.scan(*a), static_argnums=0)):
            yield f(step, jnp.zeros(3), x)[1], seen[-1]
        yield jax.grad(lambda a: jax.lax.scan(step, jnp.zeros(3), a)[1].sum())(x), seen[-1]
        for f in (jnp.sum, jnp.max, lambda a: (a**2).sum()):
            yield jax.grad(f)(x), jax.jit(jax.grad(f))(x), jax.vjp(f, x)[1](jnp.float32(1))


def mapped_functions_of_parts():
    mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(_grid(4, 8), P("X", "Y"))
        f = jax.shard_map(lambda a: jnp.sin(a) * jax.lax.psum(a, "Y"), in_specs=P("Y"), out_specs=P("Y"))
        yield jax.vmap(f)(x), jax.jit(jax.vmap(f))(x), jax.vmap(jax.grad(lambda a: f(a).sum()))(x)
        whole = jax.shard_map(lambda a: jax.lax.psum(a, "Y"), in_specs=P("Y"), out_specs=P())
        yield jax.vmap(whole)(x), jax.vmap(whole, in_axes=1, out_axes=1)(jax.device_put(_grid(8, 4), P("Y", "X")))


def training():
    mesh = _mesh()
    with jax.set_mesh(mesh):
        keys = jax.random.split(jax.random.key(1), 3)
        w = jax.device_put(jax.random.normal(keys[0], (6, 8)), P(None, "Y"))
        v = jax.device_put(jax.random.normal(keys[1], (8, 2)), P("Y", None))
        x = jax.device_put(jax.random.normal(keys[2], (4, 6)), P("X", None))

        def loss(w, v):
            hidden = jnp.tanh(jnp.dot(x, w, out_sharding=P("X", "Y")))
            return jnp.mean(jnp.dot(hidden, v, out_sharding=P("X", None)) ** 2)

        value, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(w, v)
        yield np.asarray(value), gradients


def types_of_parts():
    with jax.set_mesh(_mesh()):
        x = jax.device_put(_grid(8, 8), P("X", "Y"))
        yield _in_types(lambda x, k: jax.lax.dynamic_slice(x, (k, k), (4, 4)), x, np.int32(1))
        yield _in_types(lambda x, k: jax.lax.dynamic_slice_in_dim(x, k, 3, axis=0), jax.device_put(x, P(None, "Y")), 2)
        yield _in_types(jax.grad(lambda x: (jax.lax.dynamic_slice(x, (1, 2), (4, 4)) ** 2).sum()), x)
        rows = jax.device_put(_grid(8, 8), P(None, "Y"))
        yield _in_types(lambda x: jax.lax.scan(lambda c, row: (c + row, row), x[0], x), rows)
        yield [_typed(a) for a in (jnp.eye(3), jnp.identity(2), jax.random.PRNGKey(0), jnp.zeros(2))]
        yield _in_types(
            lambda k: jax.lax.rng_bit_generator(k, (4, 8), out_sharding=P("X")), np.arange(4, dtype=np.uint32)
        )
        for call in (
            lambda: jax.lax.dynamic_slice(x, (0, 0), (3, 4)),
            lambda: jax.lax.scan(lambda c, row: (c, row), 0.0, x),
            lambda: jax.jit(jax.lax.conv_general_dilated, static_argnums=(2, 3))(
                jax.device_put(_grid(2, 4, 8), P(None, "Y", None)), np.ones((3, 4, 3), np.float32), (1,), "SAME"
            ),
        ):
            try:
                yield call()
            except Exception as error:
                yield isinstance(error, Exception)


def partial_sums():
    mesh = jax.make_mesh((2, 2), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
    reshard = jax.sharding.reshard
    with jax.set_mesh(mesh):
        u, r = (reshard(jnp.arange(8.0), P(**{kind: {"X"}})) for kind in ("unreduced", "reduced"))
        yield str(jax.typeof(u)), str(jax.typeof(r)), repr(u).partition(" axis_types")[0], u.sharding.shard_shape((8,))
        yield [np.asarray(shard.data).tolist() for shard in u.addressable_shards], u.is_fully_replicated
        yield '[{}], unreduced={"X"}>' in jax.jit(lambda u: u + u).lower(u).as_text()
        for f in (
            lambda: u + u,
            lambda: u * r,
            lambda: jnp.sin(r) * 2.0,
            lambda: u.reshape(2, 4).T,
            lambda: r @ r,
            lambda: u.sum(),
            lambda: jnp.concatenate([u, u]),
            lambda: jnp.sin(u),
            lambda: u * u,
            lambda: u + jnp.arange(8.0),
            lambda: r + jnp.arange(8.0),
        ):
            try:
                found = f()
                yield str(jax.typeof(found)), np.asarray(reshard(found, P(*[None] * found.ndim)))
            except Exception as error:
                yield isinstance(error, NotImplementedError)
        gradients = jax.jit(jax.grad(lambda u, r: reshard((u * r).sum(), P()), (0, 1)))(u, r)
        yield [str(jax.typeof(g)) for g in gradients], [np.asarray(reshard(g, P(None))) for g in gradients]

        def parts(u, r, x):
            kinds = [str(jax.typeof(v)) for v in (u, r, x, u * r, jax.lax.pcast(x, "X", to="unreduced"), r * x)]
            seen.append((kinds, sorted(jax.typeof(u).mat.unreduced)))
            gradient = jax.grad(lambda r: (r * x).sum())(r)
            return u, r, jax.lax.psum_scatter(gradient, "X", tiled=True), jax.lax.psum(gradient, "X")

        seen = []
        outs = P(unreduced={"X"}), P(reduced={"X"}), P("X"), P()
        found = jax.jit(jax.shard_map(parts, out_specs=outs))(u, r, reshard(jnp.arange(16.0), P("X")))
        yield seen, [str(jax.typeof(x)) for x in found], [np.asarray(reshard(x, P(None))) for x in found]
