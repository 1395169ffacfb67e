"""Utilities of meshes: visualization of shardings, device meshes, multihost utilities in one process."""

from __future__ import annotations

import contextlib
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import mesh_utils, multihost_utils, topologies
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.pjit import pjit
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding


def _mesh(*sizes):
    return jax.make_mesh(sizes, tuple("xyz"[: len(sizes)]), axis_types=(AxisType.Auto,) * len(sizes))


def _grid(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _printed(f):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        f()
    return text.getvalue()


def pictures():
    mesh = _mesh(4, 2)
    for shape, spec in (
        ((8, 4), P("x", "y")),
        ((8, 4), P("x")),
        ((8, 4), P(None, "y")),
        ((8, 4), P()),
        ((8,), P("x")),
        ((16,), P(("x", "y"))),
        ((16, 2), P(("y", "x"))),
        ((32, 8), P("y", "x")),
    ):
        x = jax.device_put(jnp.zeros(shape), NamedSharding(mesh, spec))
        yield _printed(lambda x=x: jax.debug.visualize_array_sharding(x))
    yield _printed(lambda: jax.debug.visualize_sharding((8, 4), NamedSharding(mesh, P("x", "y"))))
    yield _printed(lambda: jax.debug.visualize_array_sharding(jnp.zeros(4)))
    held = jax.tree_util.Partial(len, jnp.zeros(4))
    held.shape = (4,)
    yield _printed(lambda: jax.debug.visualize_array_sharding(held))
    seen = []
    jax.debug.inspect_array_sharding(jax.device_put(jnp.zeros(8), NamedSharding(mesh, P("x"))), callback=seen.append)
    yield seen
    try:
        jax.debug.visualize_array_sharding(jnp.zeros((2, 2, 2)))
    except ValueError as error:
        yield error


def arrays_of_devices():
    yield [d.id for d in mesh_utils.create_device_mesh((2, 4)).flat]
    yield mesh_utils.create_device_mesh((2, 2), devices=jax.devices()[4:]).shape
    try:
        mesh_utils.create_device_mesh((4,))
    except ValueError as error:
        yield error
    try:
        mesh_utils.create_hybrid_device_mesh((2, 2), (2, 1), process_is_granule=True)
    except ValueError:
        yield "refused"
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("a", "b"))
    yield jax.device_put(_grid(8, 4), NamedSharding(mesh, P("a", "b")))
    with mesh:
        yield pjit(lambda x: x + 1, in_shardings=P("a"), out_shardings=P("a", "b"))(_grid(8, 4))
        yield pjit(lambda x: x * 2, out_shardings=P("b"))(_grid(8))
    yield jax.make_mesh((2, 2), ("a", "b"), devices=jax.devices()[:4]).devices.shape


def one_of_several_processes():
    mesh = _mesh(8)
    yield multihost_utils.process_allgather({"a": jnp.ones(2)}), multihost_utils.process_allgather(_grid(2), tiled=True)
    yield multihost_utils.broadcast_one_to_all({"a": 3, "b": jnp.ones(2)})
    whole = multihost_utils.host_local_array_to_global_array(_grid(8), mesh, P("x"))
    yield whole, multihost_utils.global_array_to_host_local_array(whole, mesh, P("x"))
    yield multihost_utils.sync_global_devices("here"), multihost_utils.assert_equal(jnp.ones(2))


def names():
    yield jax.P("x") == P("x"), jax.NamedSharding is NamedSharding, len(P("x", None)), P("x", ("y", "z"))[1]
    yield isinstance(jnp.ones(2).sharding, SingleDeviceSharding), hasattr(jax.sharding, "PositionalSharding")
    yield P("x") == P("x", None), hash(P("x")) == hash(P("x")), P() == P(None), tuple(P("x", None)), repr(P("x", None))
    yield repr(_mesh(4, 2)), str(_mesh(4, 2)), repr(NamedSharding(_mesh(8), P("x"))), str(AxisType.Auto)
    yield repr(jax.sharding.AbstractMesh((2,), ("a",)).axis_types), jax.typeof(jnp.ones(2)).shape
    yield len(jax.local_devices()), jax.devices()[2] == jax.local_devices()[2], {jax.devices()[1]: 1}[jax.devices()[1]]


def partitioned_by_rules():
    seen = []

    def twice(rule, **rules):
        def partition(mesh, arguments, result):
            seen.append([tuple(x.sharding.spec) for x in (*arguments, result)])
            return mesh, lambda x: 3 * x, result.sharding, (arguments[0].sharding,)

        f = custom_partitioning(lambda x: 2 * x)
        f.def_partition(partition, sharding_rule=rule, **rules)
        return f

    f, x = twice("... -> ..."), jax.device_put(_grid(8, 4), NamedSharding(_mesh(4, 2), P("x", "y")))
    yield f(_grid(8)), np.asarray(jax.jit(f)(_grid(8))), jax.jit(f)(x), jax.jit(lambda x: f(x + 1) + 1)(x)
    yield jax.jit(lambda x: jax.lax.scan(lambda c, k: (f(c), c.sum()), x, jnp.arange(2)))(x)
    yield jax.jit(twice("i j -> i j", need_replication_factors=("j",)))(x), jax.make_jaxpr(f)(x).eqns[0].primitive.name
    yield seen
    for f in (twice("i j k -> i j"), twice("i j, i -> i j"), twice(None, infer_sharding_from_operands=lambda *_: None)):
        try:
            jax.jit(f)(x)
        except (ValueError, NotImplementedError) as error:
            yield isinstance(error, NotImplementedError)


def exported_functions():
    mesh = _mesh(4, 2)
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P("x", "y"))
    x = jax.device_put(_grid(8, 2), whole)
    for f, given in (
        (jax.jit(lambda a: a * 2, in_shardings=whole), x),
        (jax.jit(lambda a: a * 2, out_shardings=rows), _grid(8, 2)),
        (jax.jit(lambda a: a * 2), jax.ShapeDtypeStruct((8, 2), np.float32, sharding=whole)),
        (jax.jit(jax.shard_map(lambda a: a - a.sum(), mesh=mesh, in_specs=P("x"), out_specs=P("x"))), _grid(8, 2)),
    ):
        exported = export.export(f)(given)
        yield exported.nr_devices, exported.in_shardings_jax(mesh), exported.out_shardings_jax(mesh)
        again = export.deserialize(exported.serialize(vjp_order=1))
        names = NamedSharding(Mesh(np.reshape(jax.devices(), (4, 2)), ("a", "b")), P("b"))
        yield np.asarray(jax.jit(again.vjp().call, in_shardings=(names, names))(_grid(8, 2), _grid(8, 2))[0])
        for e in (exported, again):
            yield e.nr_devices, e.call(x), jax.jit(e.call)(x), jax.grad(lambda a, e=e: (e.call(a) ** 2).sum())(x)
        yield again.vjp().nr_devices, np.asarray(again.vjp().call(x, x)[0])
        other = jax.device_put(_grid(8, 2), NamedSharding(Mesh(np.reshape(jax.devices(), (4, 2)), ("a", "b")), P("b")))
        yield np.asarray(again.call(other))
        try:
            again.call(_grid(8, 2))
        except ValueError as error:
            yield error


def keys_on_meshes():
    mesh = _mesh(8)
    rows = NamedSharding(mesh, P("x"))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), rows)
    yield keys.shape
    yield np.asarray(jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys))
    drawn = jax.shard_map(lambda k: jax.random.uniform(k[0], (1, 3)), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    yield drawn(keys)
    one = jax.shard_map(
        lambda k: jax.random.normal(jax.random.fold_in(k, jax.lax.axis_index("x")), (2,)),
        mesh=mesh,
        in_specs=P(),
        out_specs=P("x"),
    )
    yield one(jax.random.key(1))


def jaxprs_of_loops_over_parts():
    def step(x, _):
        return jax.lax.pcast(jax.lax.psum(x, "x"), "x", to="varying"), None

    f = jax.shard_map(
        lambda x: jax.lax.scan(step, x, None, length=2)[0], mesh=_mesh(4), in_specs=P("x"), out_specs=P("x")
    )
    jaxpr = jax.make_jaxpr(f)(jnp.arange(4.0))
    yield [e.primitive.name for e in jaxpr.eqns], jaxpr.eqns[0].params["jaxpr"].eqns[-1].primitive.name
    yield np.asarray(jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, jnp.arange(4.0))[0])


def texts_of_programs():
    mesh = _mesh(2, 2)
    rows = NamedSharding(mesh, P("x"))

    def function(x, w):
        y = jax.lax.with_sharding_constraint(jnp.sin(x) @ w, NamedSharding(mesh, P("x", P.UNCONSTRAINED)))
        return y.sum()

    lowered = jax.jit(function, in_shardings=(rows, None)).lower(_grid(8, 4), _grid(4, 4))
    for text in (lowered.as_text(), str(lowered.compiler_ir())):
        yield [
            part in text
            for part in (
                'sdy.mesh @mesh = <["x"=2, "y"=2]>',
                '%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}',
                '<@mesh, [{"x"}, {?}]> : tensor<8x4xf32>',
                "mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32",
            )
        ]
    for text in (lowered.as_text("hlo"), lowered.compiler_ir("hlo").as_hlo_text()):
        tiles = "sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
        yield f"parameter(0), {tiles}" in text, f'custom_call_target="Sharding", {tiles}' in text
    text = lowered.compile().as_text()
    yield text.startswith("HloModule"), "all-reduce(" in text, "f32[4,4]" in text, "f32[8,4]" in text
    for spec in (P("x", "y"), P("y", "x"), P("y"), P(("x", "y")), P(None, ("y", "x")), P()):
        described = NamedSharding(mesh, spec)._to_xla_hlo_sharding(2)
        yield repr(described), described.is_replicated(), described.tile_assignment_dimensions()
        yield described.tile_assignment_devices() if described.is_tiled() else None
    yield repr(SingleDeviceSharding(jax.devices()[1])._to_xla_hlo_sharding(1))
    yield repr(NamedSharding(_mesh(2, 2, 2), P(("x", "z"), "y"))._to_xla_hlo_sharding(2))


def texts_of_functions_of_parts():
    mesh = _mesh(4, 2)
    ring = [(k, (k + 1) % 4) for k in range(4)]

    def every(x):
        sent = jax.lax.ppermute(x, "x", ring)
        gathered = jax.lax.all_gather(x, "y", axis=1, tiled=True)
        return jax.lax.psum(x, "x"), sent, gathered, jax.lax.axis_index("x")[None]

    def nested(x):
        return jax.shard_map(lambda y: jax.lax.psum(y * 2, "y"), in_specs=P("y"), out_specs=P())(x)

    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda k, y: y + jax.lax.pmax(x, "y"), x)

    def doubled(x):
        return jax.lax.while_loop(lambda y: y < 3, lambda y: 2 * y + 1, x)

    def mapped(f, ins, outs, **others):
        return jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, **others)

    outs = (P(None, "y"), P("x", "y"), P("x"), P("x"))
    placed = jax.device_put(_grid(8, 8), NamedSharding(mesh, P("x", "y")))
    for function, x in (
        (mapped(every, P("x", "y"), outs, check_vma=False), _grid(8, 8)),
        (mapped(lambda x: jax.lax.psum(x * x, "x"), P("x", None), P(), axis_names={"x"}), placed),
        (mapped(lambda: jax.lax.axis_index("y")[None], (), P("y")), None),
        (mapped(nested, P("x"), P("x"), axis_names={"x"}), placed),
        (mapped(looped, P("x", "y"), P("x", "y"), check_vma=False), _grid(8, 8)),
        (lambda x: jax.vmap(doubled)(x[0]) + mapped(jax.vmap(doubled), P("x"), P("x"))(x[0]), placed),
    ):
        with jax.set_mesh(mesh):
            lowered = jax.jit(function).lower(*() if x is None else (x,))
        for text in (lowered.as_text(), lowered.as_text(debug_info=True)):
            yield re.findall(r"in_shardings=.* out_shardings=.* manual_axes=\{.*?\}", text)
            yield (
                re.findall(r"dense<(\[\[.*?\]\])>", text),
                text.count("stablehlo.partition_id"),
                text.count("sdy.return"),
            )


def serialized_executables():
    mesh = topologies.make_mesh(topologies.get_attached_topology(), (4, 2), ("x", "y"))
    rows, columns = (NamedSharding(mesh, spec) for spec in (P("x"), P(None, "y")))
    compiled = jax.jit(lambda x: {"a": x * 2, "b": (x.sum(),)}, in_shardings=rows, out_shardings=_columns_of(columns))
    compiled = compiled.lower(_grid(8, 4)).compile()
    loaded = deserialize_and_load(*serialize(compiled))
    found = loaded(jax.device_put(_grid(8, 4), rows))
    yield found["a"], found["b"][0], compiled(_grid(8, 4))["a"]
    try:
        topologies.get_topology_desc(platform="cpu")
    except NotImplementedError as error:
        yield isinstance(error, NotImplementedError)


def _columns_of(columns):
    return {"a": columns, "b": (NamedSharding(columns.mesh, P()),)}
