"""Sharded arrays, and computation that follows data."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.experimental.pjit import pjit
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding


def _mesh(*sizes, names="xyz"):
    return jax.make_mesh(sizes, tuple(names[: len(sizes)]), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def _grid(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def devices():
    yield jax.device_count(), jax.local_device_count(), len(jax.devices()), len(jax.local_devices())
    yield jax.process_count(), jax.process_index(), jax.default_backend()
    yield [device.id for device in jax.devices("cpu")], {device.platform for device in jax.devices()}
    yield repr(jax.devices()[3]), str(jax.devices()[3]), jax.devices()[3].device_kind, jax.devices()[3].process_index


def an_array_on_one_device():
    x = jnp.arange(8.0)
    yield x, len(x.devices()), x.sharding, x.is_fully_addressable, x.is_fully_replicated
    y = jax.device_put(x, jax.devices()[3])
    yield y, y.sharding, [d.id for d in y.devices()], y.committed
    yield jnp.sin(y), [d.id for d in jnp.sin(y).devices()]
    z = jax.device_put(x, SingleDeviceSharding(jax.devices()[2]))
    yield z, z.sharding, z.sharding.device_set == {jax.devices()[2]}
    yield jax.jit(lambda a: a * 2)(y).sharding
    yield (y + 1).sharding, (y + np.ones(8, np.float32)).sharding


def arrays_on_different_devices_do_not_mix():
    x, y = (jax.device_put(jnp.ones(4), jax.devices()[k]) for k in (1, 2))
    for call in (lambda: x + y, lambda: jax.jit(jnp.add)(x, y)):
        try:
            call()
            yield "no error"
        except ValueError as error:
            yield error
    yield x + jnp.ones(4)


def placed_by_rows_and_columns():
    mesh = _mesh(4, 2)
    x = _grid(8, 4)
    for spec in (
        P("x", "y"),
        P("x"),
        P(None, "y"),
        P(("x", "y")),
        P(("y", "x")),
        P(),
        P("y", "x"),
        P(None, ("x", "y")),
    ):
        size = x if spec != P(None, ("x", "y")) else _grid(4, 8)
        y = jax.device_put(size, NamedSharding(mesh, spec))
        yield y, y.sharding, y.sharding.shard_shape(y.shape), y.is_fully_replicated
        yield [s.data for s in y.addressable_shards]
        yield [sorted(d.id for d in s.data.devices()) for s in y.addressable_shards]


def computation_follows_sharding():
    mesh = _mesh(4, 2)
    x = jax.device_put(_grid(8, 4), NamedSharding(mesh, P("x", "y")))
    yield jnp.sin(x), x + 1, x * x, -x, x > 3
    yield np.asarray(x.sum()), np.asarray(x.sum(0)), np.asarray(jnp.max(x, axis=1))
    yield np.asarray(x @ x.T), np.asarray(jnp.dot(x, x.T))
    yield np.asarray(jax.jit(lambda a: (a - a.mean(0)) / a.std(0))(x))
    yield float(x[3, 2]), np.asarray(x[2:4]), np.asarray(x.T), np.asarray(x.reshape(4, 8))


def products():
    mesh = _mesh(4, 2)
    x = jax.device_put(_grid(8, 16), NamedSharding(mesh, P("x", "y")))
    y = jax.device_put(_grid(16, 8), NamedSharding(mesh, P("y", None)))
    z = jax.jit(jnp.dot)(x, y)
    yield np.asarray(z)
    both = jax.jit(jnp.dot, out_shardings=NamedSharding(mesh, P("x", "y")))(x, y)
    yield both, both.sharding


def shardings_and_their_methods():
    mesh = _mesh(4, 2)
    sharding = NamedSharding(mesh, P("x", None))
    yield sharding, sharding.mesh == mesh, sharding.num_devices, sharding.is_fully_replicated
    yield sharding.is_fully_addressable, sharding.memory_kind, len(sharding.device_set)
    yield {d.id: i for d, i in sharding.devices_indices_map((8, 2)).items()}
    yield {d.id: i for d, i in sharding.addressable_devices_indices_map((8, 2)).items()}
    yield sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
    yield sharding.is_equivalent_to(NamedSharding(mesh, P("y")), 2)
    yield sharding == NamedSharding(mesh, P("x", None)), sharding == NamedSharding(mesh, P("y"))
    yield hash(sharding) == hash(NamedSharding(mesh, P("x", None)))
    yield sorted(d.id for d in sharding.addressable_devices)


def meshes():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    yield dict(mesh.shape), mesh.axis_names, mesh.size, mesh.empty, mesh.devices.shape, mesh.axis_sizes
    yield [d.id for d in mesh.devices.flat], mesh.device_ids.tolist(), mesh.is_multi_process
    yield mesh == Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b")), dict(mesh.local_mesh.shape)
    yield dict(mesh.abstract_mesh.shape), mesh.abstract_mesh.axis_names
    part = Mesh(np.array(jax.devices()[:4]), "i")
    yield dict(part.shape), jax.device_put(_grid(4), NamedSharding(part, P("i")))
    turned = Mesh(np.array(jax.devices()[::-1]).reshape(2, 4), ("a", "b"))
    yield jax.device_put(_grid(4, 4), NamedSharding(turned, P("a", "b")))
    with mesh:
        yield jax.jit(lambda x: jax.lax.with_sharding_constraint(x, P("a", "b")))(_grid(4, 2))


def created_where_they_belong():
    mesh = _mesh(8)
    rows = NamedSharding(mesh, P("x"))
    for make in (
        lambda: jnp.zeros((8, 2), device=rows),
        lambda: jnp.ones(16, device=rows),
        lambda: jnp.full((8,), 3.0, device=rows),
        lambda: jnp.arange(16, device=rows),
        lambda: jnp.zeros_like(jnp.ones(8), device=rows),
        lambda: jnp.asarray(_grid(8), device=rows),
        lambda: jnp.array([1.0] * 8, device=rows),
        lambda: jnp.linspace(0.0, 1.0, 16, device=rows),
        lambda: jnp.eye(8, device=rows),
        lambda: jnp.empty((8,), device=rows) * 0,
        lambda: jnp.zeros(3, device=jax.devices()[4]),
    ):
        yield make()
    yield jax.jit(lambda: jnp.ones((8, 4)), out_shardings=rows)()


def constraints():
    mesh = _mesh(4, 2)

    @jax.jit
    def f(x):
        x = x + 1
        y = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("x", "y")))
        return y, y * 2

    yield f(_grid(8, 4))[0]
    x = jax.device_put(_grid(8, 4), NamedSharding(mesh, P("y")))
    yield f(x)[0]
    yield jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, "x")))
    free = P(P.UNCONSTRAINED, "y")
    yield np.asarray(jax.jit(lambda a: jax.lax.with_sharding_constraint(a, NamedSharding(mesh, free)))(x))
    tree = {"a": _grid(8, 2), "b": (_grid(4),)}
    shardings = {"a": NamedSharding(mesh, P("x")), "b": NamedSharding(mesh, P("y"))}
    yield jax.jit(lambda t: jax.lax.with_sharding_constraint(t, shardings))(tree)


def shardings_of_arguments_and_results():
    mesh = _mesh(4, 2)
    rows, columns, whole = (NamedSharding(mesh, spec) for spec in (P("x"), P(None, "y"), P()))
    x = _grid(8, 4)
    f = jax.jit(lambda a, b: (a + b, a.sum()), in_shardings=(rows, columns), out_shardings=(columns, whole))
    yield f(x, x)
    yield jax.jit(lambda t: jax.tree.map(jnp.sin, t), in_shardings=(rows,), out_shardings=rows)({"a": x, "b": x[:, 0]})
    yield jax.jit(lambda a, b: a * b, in_shardings=(rows, None), out_shardings=rows)(x, 2.0)
    yield jax.jit(lambda t: t, out_shardings={"a": rows, "b": whole})({"a": x, "b": x})
    yield jax.jit(lambda a: a, in_shardings=rows, out_shardings=rows)(x)
    with jax.set_mesh(mesh):
        yield jax.jit(lambda a: a + 1, in_shardings=P("x"), out_shardings=P("y"))(x)


def shardings_that_do_not_fit():
    mesh = _mesh(4, 2)
    x = _grid(6, 4)

    def of(f):
        try:
            return f()
        except Exception as error:
            return error

    yield of(lambda: jax.device_put(x, NamedSharding(mesh, P("x"))))
    yield of(lambda: NamedSharding(mesh, P("q")))
    yield of(lambda: NamedSharding(mesh, P("x", "x")))
    yield of(lambda: jax.device_put(_grid(8), NamedSharding(mesh, P("x", "y"))))
    yield of(lambda: jax.jit(lambda a: a, in_shardings=NamedSharding(mesh, P("x")))(x))
    yield of(lambda: jax.jit(lambda a: a, out_shardings=NamedSharding(mesh, P("x")))(x))
    yield of(lambda: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("x"))))
    yield of(lambda: jax.jit(lambda a, b: a, in_shardings=(NamedSharding(mesh, P("x")),))(x, x))
    yield of(lambda: jax.make_mesh((16,), ("x",)))
    yield of(lambda: Mesh(np.array(jax.devices()).reshape(4, 2), ("x",)))
    y = jax.device_put(_grid(8, 4), NamedSharding(mesh, P("x")))
    yield of(lambda: jax.jit(lambda a: a, in_shardings=NamedSharding(mesh, P("y")))(y))
    yield of(lambda: NamedSharding(mesh, P("x")).shard_shape((6,)))
    yield of(lambda: jax.lax.with_sharding_constraint(x, P("x")))


def moved():
    mesh = _mesh(4, 2)
    x = jax.device_put(_grid(8, 4), NamedSharding(mesh, P("x", "y")))
    for spec in (P("y", "x"), P(), P("x"), P(None, "y"), P(("x", "y"))):
        yield jax.device_put(x, NamedSharding(mesh, spec))
    yield jax.device_put(x, NamedSharding(_mesh(8), P("x")))
    yield jax.device_put(x, jax.devices()[1])
    yield jax.device_put({"a": x, "b": [x]}, {"a": NamedSharding(mesh, P("y")), "b": [NamedSharding(mesh, P())]})
    yield jax.device_put([x, x], NamedSharding(mesh, P(None, "x")))
    yield jax.device_get(x), np.asarray(x), x.tolist()


def assembled_from_parts():
    mesh = _mesh(4, 2)
    sharding = NamedSharding(mesh, P("x", "y"))
    whole = _grid(8, 4)
    asked = []

    def part(index):
        asked.append(index)
        return whole[index]

    yield jax.make_array_from_callback((8, 4), sharding, part)
    yield sorted(repr(index) for index in asked)
    places = sharding.addressable_devices_indices_map((8, 4))
    pieces = [jax.device_put(whole[index], device) for device, index in places.items()]
    yield jax.make_array_from_single_device_arrays((8, 4), sharding, pieces)
    yield jax.make_array_from_single_device_arrays((8, 4), sharding, pieces[::-1])
    try:
        jax.make_array_from_single_device_arrays((8, 4), sharding, [*pieces[1:], pieces[1]])
    except ValueError as error:
        yield error
    try:
        jax.make_array_from_single_device_arrays((8, 4), sharding, [*pieces[:-1], pieces[-1].astype(np.int32)])
    except ValueError as error:
        yield error, "must have matching dtypes. Got int32, expected float32" in str(error)
    yield jax.make_array_from_process_local_data(sharding, whole)
    yield jax.make_array_from_process_local_data(sharding, whole, whole.shape)
    rows = NamedSharding(mesh, P("x"))
    yield jax.make_array_from_callback((4,), rows, lambda index: np.arange(4)[index])


def random_numbers():
    mesh = _mesh(8)
    rows = NamedSharding(mesh, P("x"))
    key = jax.random.key(3)
    one = jax.random.normal(key, (16, 3))
    many = jax.jit(lambda k: jax.random.normal(k, (16, 3)), out_shardings=rows)(key)
    yield one, many, bool((np.asarray(one) == np.asarray(many)).all())
    keys = jax.device_put(jax.random.split(key, 8), rows)
    yield jax.random.key_data(keys), jax.random.key_data(keys).sharding.spec == P("x", None)
    yield np.asarray(jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys))
    yield np.asarray(jax.jit(lambda k: jax.random.permutation(k, 16), out_shardings=rows)(key))


def donation():
    mesh = _mesh(8)
    rows = NamedSharding(mesh, P("x"))
    x = jax.device_put(_grid(16), rows)
    y = jax.jit(lambda a: a + 1, donate_argnums=0)(x)
    yield y, x.is_deleted()
    try:
        print(x + 1)
    except RuntimeError as error:
        yield error
    z = jax.device_put(_grid(16), rows)
    z.delete()
    yield z.is_deleted()


def gradients_of_moves_between_meshes():
    first, second = (NamedSharding(Mesh(jax.devices()[k : k + 4], "x"), P("x")) for k in (0, 4))
    x = jax.device_put(_grid(4), first)

    def f(a):
        b = jax.device_put(jax.jit(lambda a: a**2)(a), second)
        return jnp.sum(jax.jit(lambda a: a * 3)(b))

    yield f(x), jax.grad(f)(x), jax.grad(lambda a: jax.grad(f)(a).sum())(x), jax.jvp(f, (x,), (x,))[1]


def ahead_of_time():
    mesh = _mesh(4, 2)
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    f = jax.jit(
        lambda a, b: jnp.dot(a, b), in_shardings=(rows, columns), out_shardings=NamedSharding(mesh, P("x", "y"))
    )
    shape = jax.ShapeDtypeStruct((8, 4), np.float32)
    other = jax.ShapeDtypeStruct((4, 8), np.float32)
    compiled = f.lower(shape, other).compile()
    yield compiled.input_shardings[0], compiled.output_shardings
    x, y = jax.device_put(_grid(8, 4), rows), jax.device_put(_grid(4, 8), columns)
    yield compiled(x, y)
    sized = jax.ShapeDtypeStruct((8, 4), np.float32, sharding=rows)
    yield sized.sharding
    made = jax.jit(lambda a: a * 2).lower(sized).compile()
    yield made.input_shardings[0], made(x), made.out_info.sharding, jnp.zeros_like(sized)
    aval = jax.core.ShapedArray((8, 4), np.float32)
    yield jax.jit(lambda a: a * 2, in_shardings=rows).lower(aval).compile()(x)
    try:
        made(jax.device_put(_grid(8, 4), columns))
    except ValueError as error:
        yield error
    yield jax.eval_shape(lambda a: a * 2, sized).shape


def gradients_and_loops():
    mesh = _mesh(4, 2)
    x = jax.device_put(_grid(8, 4) / 10, NamedSharding(mesh, P("x", "y")))
    w = jax.device_put(_grid(4, 2) / 10, NamedSharding(mesh, P("y")))

    def loss(w, x):
        return jnp.tanh(x @ w).sum()

    yield np.asarray(jax.grad(loss)(w, x)), np.asarray(jax.jit(jax.grad(loss, argnums=1))(w, x))
    yield np.asarray(jax.vmap(lambda row: row.sum() * row)(x))
    yield np.asarray(jax.lax.scan(lambda c, row: (c + row.sum(), c), 0.0, x)[1])
    yield np.asarray(jax.jit(lambda a: jax.lax.fori_loop(0, 3, lambda _, b: b * 0.5 + 1, a))(x))
    yield np.asarray(jax.jit(lambda a: jax.lax.cond(a.sum() > 0, jnp.sin, jnp.cos, a))(x))


def copies_prints_and_iteration():
    mesh = _mesh(4, 2)
    x = jax.device_put(_grid(4, 2), NamedSharding(mesh, P("x", "y")))
    yield repr(x), str(x), [row.tolist() for row in x], len(x), x.nbytes, x.size, x.ndim
    yield jax.numpy.copy(x), x.copy() if hasattr(x, "copy") else None
    yield x.block_until_ready() is x, x.addressable_data(0), bool((x == x).all())
    yield len(x.global_shards), [s.replica_id for s in x.global_shards], x.at[0].set(5.0).tolist()
    yield repr(x.sharding), repr(mesh), repr(P("x", None)), repr(x.sharding.spec)
    yield x.device == x.sharding, np.array(x).flags.writeable


def functions_in_a_block_of_a_mesh():
    mesh = _mesh(4, 2)
    x = jnp.asarray(_grid(8, 2))
    with mesh:
        yield pjit(jnp.sin)(x), pjit(lambda: 1)(), jax.jit(jnp.cos)(x)
        for ins in (None, P("x"), P("x", "y")):
            yield pjit(lambda a: a * 2, in_shardings=ins, out_shardings=None)(x)
            yield pjit(lambda a: a * 2, in_shardings=ins)(x)
        trees = pjit(lambda t: {"b": t["a"] + 2}, in_shardings=({"a": P("x")},), out_shardings={"b": P(None, "y")})
        yield trees({"a": x}), trees.lower({"a": x}).compile()({"a": x})
        yield jax.vmap(pjit(lambda a, b: (a + b, a), in_shardings=P("x"), out_shardings=P("x")), (None, 0))(
            x[:, 0], x.T
        )
    yield pjit(jnp.sin)(x), pjit(lambda a: a * 2, in_shardings=None, out_shardings=None)(x)


def programs_over_the_current_mesh():
    mesh = _mesh(4, 2)
    x = jnp.asarray(_grid(8, 2))
    with jax.set_mesh(mesh):
        yield jax.jit(jnp.sin)(x), jax.jit(lambda: 1)(), jax.jit(lambda a: a, out_shardings=P("x"))(x)
        yield jnp.sin(x), jnp.arange(3), jnp.zeros((2, 2)), jax.grad(lambda a: (a**2).sum())(x)
        yield jax.random.normal(jax.random.key(0), (8,)), jax.device_put(_grid(2))
    yield jnp.sin(x), jax.jit(jnp.sin)(x)


def devices_of_functions():
    mesh = _mesh(4, 2)
    x, y = jnp.asarray(_grid(8, 2)), jax.device_put(_grid(8, 2), NamedSharding(mesh, P("x", "y")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = jax.jit(lambda a: a * 2, device=jax.devices()[3])
        yield f(x), f(y), f(f(x)), f.lower(x).compile()(x), jax.jit(lambda a: a * 2, device=jax.devices()[0])(y)
        yield f.lower(x).compile()(y)
        for options in ({"backend": "cpu"}, {"in_shardings": P()}, {"out_shardings": P()}):
            try:
                jax.jit(jnp.sin, device=jax.devices()[0], **options)
            except ValueError as error:
                yield error
    try:
        jax.jit(jnp.sin, in_shardings=NamedSharding(mesh, P()))(x=x)
    except ValueError as error:
        yield error
    with jax.default_device(jax.devices()[2]):
        yield jnp.arange(3), jnp.sin(x), jax.jit(jnp.sin)(x), jax.jit(lambda: 1)()
        yield jnp.sin(jax.device_put(x, jax.devices()[1]))
        with jax.default_device(None):
            yield jnp.arange(3)
    yield jnp.arange(3)


def shardings_of_keys():
    mesh = _mesh(4, 2)
    keys = jax.device_put(jax.random.split(jax.random.key(0), (8, 4)), NamedSharding(mesh, P("x", "y")))
    yield (
        keys.sharding,
        keys.committed,
        keys.is_fully_replicated,
        [(s.device.id, s.data) for s in keys.addressable_shards],
    )
    yield jax.jit(lambda k: k.T)(keys).sharding, jax.random.split(jax.random.key(0)).sharding
    yield jax.device_put(keys, jax.devices()[1]).sharding


def constraints_without_equal_parts():
    rows = NamedSharding(_mesh(4, 2), P("x"))
    yield jax.jit(lambda: jax.lax.with_sharding_constraint(jnp.arange(9), rows))()
    yield jax.jit(lambda a: jax.lax.with_sharding_constraint(a[:3], rows).sum())(jax.device_put(_grid(8), rows))
    for call in (
        lambda: jax.lax.with_sharding_constraint(jnp.arange(9), rows),
        lambda: jax.device_put(jnp.ones(9), rows),
    ):
        try:
            call()
        except ValueError as error:
            yield error


def wrong_shardings():
    open_rows = NamedSharding(_mesh(4, 2), P(P.UNCONSTRAINED, "x"))
    for call in (
        lambda: jax.lax.with_sharding_constraint(jnp.ones(2), None),
        lambda: jax.jit(jnp.sin, in_shardings=open_rows),
        lambda: jax.jit(jnp.sin, out_shardings=open_rows),
        lambda: pjit(jnp.sin, in_shardings=P(P.UNCONSTRAINED)),
    ):
        try:
            call()
            yield "no error"
        except ValueError as error:
            yield error


def forms_of_specs():
    yield P(("x",)), P(["x"]), P(()), P((), None), P(["x", "y"]), P(("x",)) == P("x"), P("x") + P("y")


def _placed(x):
    return x, x.committed, sorted(d.id for d in x.devices()), x.sharding.memory_kind


def arrays_stay_where_they_were_put():
    first, second = jax.devices()[:2]
    x = jax.device_put(_grid(4), first)
    yield [_placed(y) for y in (x, x + jnp.ones(4), jax.jit(jnp.sin)(x), x.addressable_shards[0].data, jnp.ones(2))]
    yield [_placed(y) for y in (jax.lax.full_like(x, 2), jnp.zeros(2, device=first), jax.grad(jnp.sum)(x))]
    yield _placed(jax.jit(lambda a: jax.device_put(a, second))(jnp.ones(2)))
    with jax.default_device(second):
        y = jnp.sin(jnp.ones(2))
    yield _placed(y), _placed(y + jax.device_put(1.0, first))
    rows, whole = NamedSharding(_mesh(2), P("x")), NamedSharding(_mesh(4), P())
    for put in (first, second, rows):
        x = jax.device_put(_grid(4), put)
        for call in (
            lambda x=x: x + jax.device_put(_grid(4), whole),
            lambda x=x: jax.jit(lambda a: jax.lax.with_sharding_constraint(a, whole))(x),
            lambda x=x: jax.lax.with_sharding_constraint(x, whole),
            lambda x=x: jax.jit(jnp.sin, in_shardings=whole)(x),
            lambda x=x: jax.jit(jnp.sin).lower(jax.device_put(x, jax.devices()[3])).compile()(x),
        ):
            try:
                yield call()
            except ValueError as error:
                yield error


def kinds_of_memory():
    rows = NamedSharding(_mesh(2), P("x"))
    host = rows.with_memory_kind("pinned_host")
    x = jax.device_put(_grid(4), host)
    yield _placed(x), host, host == rows, host.is_equivalent_to(rows, 1), jax.typeof(x).memory_space.name
    yield [_placed(s.data) for s in x.addressable_shards]
    yield _placed(jax.device_put(x, jax.memory.Space.Device)), _placed(jax.device_put(1.0, jax.memory.Space.Host))
    yield [_placed(y) for y in jax.jit(lambda a: (a, jax.device_put(a, rows) + 1, jnp.sin(a)), donate_argnums=())(x)]
    yield [_placed(y) for y in jax.jit(lambda a: (2 * a, a), out_shardings=(host, rows))(jax.device_put(x, rows))]
    stacked = jax.jit(lambda a: jax.lax.scan(lambda c, y: (c, jax.device_put(y + c, jax.memory.Space.Host)), 1.0, a)[1])
    yield _placed(stacked(jax.device_put(_grid(3, 4), NamedSharding(_mesh(2), P(None, "x")))))
    for call in (
        lambda: x + jax.device_put(x, rows),
        lambda: jax.jit(jnp.sin, in_shardings=host)(jnp.ones(4)),
        lambda: rows.with_memory_kind("tape"),
    ):
        try:
            yield call()
        except ValueError as error:
            yield error


def layouts():
    rows = NamedSharding(_mesh(2), P("x"))
    auto, given = Format(Layout.AUTO), Format(Layout((0, 1)), rows)
    x = jax.device_put(_grid(4, 2), rows)
    compiled = jax.jit(lambda a: 2 * a, in_shardings=auto, out_shardings=auto).lower(_described(x)).compile()
    yield compiled.input_formats[0][0] == x.format, compiled.output_formats.layout.major_to_minor, compiled(x)
    for put in (given, Format(None, rows), x.format):
        y = jax.device_put(_grid(4, 2), put)
        yield y, y.sharding, y.format == x.format, jax.jit(lambda a: a + 1, in_shardings=put)(y)
    for call in (
        lambda: jax.device_put(_grid(4, 2), auto),
        lambda: jax.device_put(_grid(4), given),
        lambda: jax.jit(jnp.sin, in_shardings=auto)(x),
        lambda: jax.ShapeDtypeStruct((4, 2), np.float32, sharding=auto),
        lambda: jax.jit(jnp.sin, in_shardings=Format(Layout((1, 0)), rows))(x),
    ):
        try:
            yield call()
        except (ValueError, TypeError) as error:
            yield isinstance(error, Exception)


def _described(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def arrays_of_wrong_parts():
    rows = NamedSharding(_mesh(2), P("x"))
    parts = [jax.device_put(_grid(4), device) for device in jax.devices()[:3]]
    for call in (
        lambda: jax.make_array_from_single_device_arrays((8,), rows, parts[:1]),
        lambda: jax.make_array_from_single_device_arrays((8,), rows, parts[1:]),
        lambda: jax.make_array_from_single_device_arrays((8,), rows, parts[:1] * 2),
        lambda: jax.jit(lambda x: jax.make_array_from_callback((8,), rows, lambda i: x[i]))(_grid(8)),
    ):
        try:
            call()
        except Exception as error:
            words = ("Expected 2 per-device arrays", "do not match", "from distinct devices", "within a traced context")
            yield [word in str(error) for word in words]
    yield jax.make_array_from_callback((np.int64(8),), rows, lambda i: _grid(8)[i])
