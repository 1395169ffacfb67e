"""Meshes whose axes are explicit: the sharding of an array is part of its type."""

from __future__ import annotations

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
