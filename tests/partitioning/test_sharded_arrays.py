"""Meshes, sharded arrays and `shard_map` in one process with several devices, with NumPy as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, AttributeValueError, DeletedError, MeshError, ShapeError, ShardingTypeError
from tinyxla.partitioning.memory_kinds import memory_kind_of
from tinyxla.sharding import AbstractMesh

P = tx.P


pytestmark = pytest.mark.usefixtures("eight_devices")


def _grid(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _on(mesh: Any, *spec: Any) -> Any:
    return tx.NamedSharding(mesh, P(*spec))


@pytest.mark.parametrize("spec", [("x", "y"), ("y", "x"), (("x", "y"),), (None, "y"), (), (("y", "x"), None)])
def test_parts_are_slices_of_the_array(spec: Any) -> None:
    x = _grid(8, 4)
    y = tx.device_put(x, _on(tx.make_mesh((4, 2), ("x", "y")), *spec))
    assert len(y.addressable_shards) == 8
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(shard.data, x[shard.index])
        assert shard.data.devices() == {shard.device}
    np.testing.assert_array_equal(y, x)


def test_computation_follows_a_device_and_devices_do_not_mix() -> None:
    x, y = (tx.device_put(_grid(4), tx.devices()[k]) for k in (1, 2))
    assert (jnp.sin(x) + 1).devices() == {tx.devices()[1]}
    assert tx.jit(lambda a: a * 2)(y).sharding == tx.sharding.SingleDeviceSharding(tx.devices()[2])
    for call in (lambda: x + y, lambda: tx.jit(jnp.add)(x, y)):
        with pytest.raises(ArgumentError, match="over one mesh"):
            call()
    np.testing.assert_array_equal(tx.device_put(x, tx.devices()[0]) + tx.device_put(y, tx.devices()[0]), 2 * _grid(4))


def test_arrays_stay_on_devices_that_they_were_put_on_and_others_follow() -> None:
    first, second, third = tx.devices()[:3]
    x = tx.device_put(_grid(4), first)
    for found in (x, x + jnp.ones(4), tx.jit(lambda a, b: a * b)(x, jnp.ones(4)), x.addressable_shards[0].data, x[1]):
        assert (found.committed, found.devices()) == (True, {first})
    assert not jnp.ones(4).committed
    assert not tx.jit(lambda: tx.device_put(jnp.ones(4), second))().committed
    with tx.default_device(second):
        y = jnp.sin(jnp.ones(4))
    assert (y.committed, (y + jnp.ones(4)).committed, y.devices()) == (False, False, {second})
    assert (y + tx.device_put(1.0, third)).devices() == {third}
    mesh = tx.make_mesh((2,), ("x",))
    for put in (first, _on(tx.make_mesh((4,), ("x",)), "x")):
        x = tx.device_put(_grid(4), put)
        for call in (
            lambda x=x: x + tx.device_put(_grid(4), _on(mesh, "x")),
            lambda x=x: tx.jit(lambda a: tx.lax.with_sharding_constraint(a, _on(mesh, "x")))(x),
            lambda x=x: tx.lax.with_sharding_constraint(x, _on(mesh, "x")),
            lambda x=x: tx.jit(jnp.sin).lower(tx.device_put(x, second)).compile()(x),
        ):
            with pytest.raises(ArgumentError):
                call()
        with tx.set_mesh(mesh), pytest.raises(ArgumentError, match=r"the argument x of .* the mesh of set_mesh is on"):
            tx.jit(lambda x: 2 * x)(x)


def test_arrays_that_a_compiled_function_closes_over_go_where_its_arguments_are() -> None:
    first, second = tx.devices()[:2]
    kept = tx.device_put(_grid(4), first)
    function = tx.jit(lambda x: x + kept)
    for where in (second, _on(tx.make_mesh((2,), ("x",)), "x")):
        found = function(tx.device_put(_grid(4), where))
        np.testing.assert_array_equal(found, 2 * _grid(4))
        assert found.devices() == tx.device_put(_grid(4), where).devices()


def test_default_device_is_also_an_option() -> None:
    tx.config.update("jax_default_device", tx.devices()[2])
    for found in (jnp.ones(2), tx.device_put(np.ones(2)), tx.device_put({"a": 1.0})["a"]):
        assert (found.devices(), found.committed) == ({tx.devices()[2]}, False)
    tx.config.update("jax_default_device", None)
    assert jnp.ones(2).devices() == {tx.devices()[0]}


@pytest.mark.parametrize(
    ("shape", "spec", "other", "wanted"),
    [
        ((8,), ("x",), (4, 2), ("x", "y")),
        ((4, 2), (("x", "y"),), (8,), ("x",)),
        ((2, 4), (("x", "y"),), (4, 2), ("x", "y")),
        ((4, 2), ("x",), (8,), ()),
        ((2, 2, 2), (("y", "z"),), (2, 4), ("y",)),
    ],
)
def test_programs_take_arrays_over_meshes_of_the_same_devices(shape: Any, spec: Any, other: Any, wanted: Any) -> None:
    """Where the axes of one mesh can say how an array over the other is split, it is split like that."""
    mesh = tx.make_mesh(other, ("x", "y")[: len(other)])
    x = tx.device_put(_grid(8), _on(tx.make_mesh(shape, ("x", "y", "z")[: len(shape)]), *spec))

    def function(a: Any) -> Any:
        return tx.shard_map(lambda b: b, mesh=mesh, in_specs=P(), out_specs=P())(a), a

    compiled = tx.jit(function).lower(x).compile()
    assert compiled.input_shardings[0][0].spec == P(*[wanted if len(wanted) > 1 else wanted[0]] if wanted else ())
    for found in (*compiled(x), *tx.jit(function)(x), x + tx.device_put(_grid(8), _on(mesh)) - _grid(8)):
        np.testing.assert_array_equal(found, _grid(8))


def test_a_program_over_several_meshes_of_the_same_devices() -> None:
    """Constraints over meshes of other axes, also explicit ones, and arguments that are handed on."""
    kinds = tx.sharding.AxisType
    whole, parts = tx.make_mesh((4,), ("x",)), tx.make_mesh((2, 2), ("a", "b"))
    x, y = tx.device_put(_grid(8), _on(parts, "b")), tx.device_put(_grid(8), _on(whole, "x"))

    def function(x: Any) -> Any:
        return tx.lax.with_sharding_constraint(2 * x, _on(parts, "a")) + 1

    found = tx.jit(function, out_shardings=_on(whole, "x"))(x)
    np.testing.assert_array_equal(found, 2 * _grid(8) + 1)
    assert found.sharding == _on(whole, "x")
    of_parts = tx.shard_map(lambda a: tx.lax.psum(a, "a"), mesh=parts, in_specs=P("a"), out_specs=P())
    found = tx.jit(lambda x: of_parts(tx.lax.with_sharding_constraint(x, _on(whole, "x"))))(_grid(8))
    np.testing.assert_array_equal(found, _grid(8).reshape(2, 4).sum(0))

    whole, parts = (mesh.update(axis_types=(kinds.Explicit,) * mesh.devices.ndim) for mesh in (whole, parts))
    x, y = tx.device_put(_grid(8), _on(parts, "a")), tx.device_put(_grid(8), _on(whole, "x"))

    def there_and_back(y: Any) -> Any:
        there = tx.sharding.reshard(y * 2, _on(parts, "b")) ** 2
        assert tx.typeof(there).sharding.spec == P("b")
        return tx.sharding.reshard(there, _on(whole, "x")), there, y

    for result, wanted in zip(tx.jit(there_and_back)(y), [(whole, "x"), (parts, "b"), (whole, "x")], strict=True):
        assert result.sharding == _on(*wanted)
    gradient = tx.jit(tx.grad(lambda y: there_and_back(y)[0].sum()))(y)
    np.testing.assert_array_equal(gradient, 8 * _grid(8))
    assert gradient.sharding == _on(whole, "x")
    assert [z.sharding for z in tx.jit(lambda x, y: (x, 2 * y))(x, y)] == [x.sharding, y.sharding]
    for call in (lambda: x + y, lambda: tx.jit(jnp.add)(x, y)):
        with pytest.raises(ShardingTypeError):
            call()
    other = tx.make_mesh((4, 1), ("a", "b"), axis_types=(kinds.Explicit,) * 2)
    with pytest.raises(
        ShardingTypeError, match="The axis 'a' has 2 devices in one mesh of a program, and 4 in another"
    ):
        tx.jit(lambda x: tx.sharding.reshard(x, _on(other, "a")))(x)


@pytest.mark.parametrize(
    ("sizes", "others", "said"),
    [
        ((8,), (4,), "A program is over 8 devices, as .*, but a sharding in it is over 4"),
        ((2, 3), (3, 2), "A program is over meshes whose axes are no parts of each other"),
    ],
)
def test_meshes_of_other_devices_or_unfitting_axes_are_errors(sizes: Any, others: Any, said: str) -> None:
    mesh, other = tx.make_mesh(sizes, ("x", "y")[: len(sizes)]), AbstractMesh(others, ("a", "b")[: len(others)])
    x = tx.device_put(np.ones(24), _on(mesh, "x"))
    with pytest.raises(ArgumentError, match=said):
        tx.jit(lambda x: tx.lax.with_sharding_constraint(x, _on(other, "a")))(x)


@pytest.mark.parametrize("kind", [tx.sharding.AxisType.Auto, tx.sharding.AxisType.Explicit])
def test_arrays_over_a_mesh_of_one_device_keep_their_sharding(kind: Any) -> None:
    mesh = tx.make_mesh((1,), ("x",), axis_types=(kind,))
    x = tx.device_put(_grid(4), _on(mesh, "x"))
    assert x.device == tx.devices()[0]
    for found in (x + 1, tx.jit(lambda a: 2 * a)(x), tx.grad(lambda a: (a * a).sum())(x)):
        assert found.sharding == _on(mesh, "x")
    with tx.set_mesh(mesh):
        assert jnp.ones(3).sharding.is_equivalent_to(_on(mesh), 1)


def _constrained(x: Any) -> Any:
    return tx.lax.with_sharding_constraint(x, _on(tx.make_mesh((2, 4), ("x", "y")), "y"))


def _of_parts(x: Any) -> Any:
    mesh = tx.make_mesh((2, 4), ("x", "y"))
    return tx.shard_map(lambda a: a + tx.lax.psum(a, "y"), mesh=mesh, in_specs=P("y"), out_specs=P("y"))(x)


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("function", [_constrained, _of_parts, tx.jit(_constrained)])
def test_examples_are_split_along_a_named_mesh_axis_where_shardings_are_stated(function: Any, wrap: Any) -> None:
    x = _grid(4, 8)
    found = wrap(tx.vmap(function, spmd_axis_name="x"))(x)
    assert found.sharding.spec == P("x", "y")
    np.testing.assert_allclose(found, np.stack([function(row) for row in x]), rtol=1e-6)
    if function is not _of_parts:
        with pytest.raises(ShapeError, match="along the mesh axis 'y', by spmd_axis_name or their type, but each"):
            tx.vmap(function, spmd_axis_name="y")(x)
        with pytest.raises(ShapeError, match="the mesh has the axes"):
            tx.vmap(function, spmd_axis_name="z")(x)


def test_functions_with_shardings_are_inlined() -> None:
    rows = _on(tx.make_mesh((8,), ("x",)), "x")
    for inline in (False, True):
        function = tx.jit(lambda x: 2 * x, out_shardings=rows, inline=inline)
        opcodes = [x.op.name for x in tx.jit(lambda x, f=function: f(x)).trace(_grid(8)).jaxpr.entry.instructions]
        assert ("call" in opcodes) is not inline


def test_functions_compiled_anew_with_equal_shardings_are_traced_once() -> None:
    traces: list[Any] = []

    def double(x: Any) -> Any:
        traces.append(x)
        return 2 * x

    for axis in ("x", "x", "y"):
        rows = _on(tx.make_mesh((4, 2), ("x", "y")), axis)
        found = tx.jit(double, in_shardings=rows, out_shardings=rows)(_grid(8))
        assert found.sharding == rows
        np.testing.assert_array_equal(found, 2 * _grid(8))
    assert len(traces) == 2


def test_deleted_array_is_not_read() -> None:
    x = tx.device_put(_grid(8), _on(tx.make_mesh((8,), ("x",)), "x"))
    y = tx.jit(lambda a: a + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert not y.is_deleted()
    for use in (lambda: x + 1, x.block_until_ready):
        with pytest.raises(DeletedError, match="deleted"):
            use()


def test_arguments_with_another_sharding_are_refused() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    x = tx.device_put(_grid(8, 4), _on(mesh, "x"))
    with pytest.raises(ArgumentError, match="must have the sharding"):
        tx.jit(lambda a: a, in_shardings=_on(mesh, "y"))(x)
    compiled = tx.jit(jnp.sin).lower(tx.ShapeDtypeStruct((8, 4), np.float32, sharding=_on(mesh, "x"))).compile()
    assert compiled.input_shardings[0][0] == _on(mesh, "x")
    with pytest.raises(ArgumentError, match="must have the sharding"):
        compiled(tx.device_put(x, _on(mesh, "y")))


def test_shardings_that_do_not_fit() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    with pytest.raises(ShapeError, match="must be a multiple of 4"):
        tx.lax.with_sharding_constraint(_grid(6), _on(mesh, "x"))
    with pytest.raises(MeshError, match="needs a mesh"):
        tx.lax.with_sharding_constraint(_grid(8), P("x"))
    with pytest.raises(ArgumentError, match="take 16 devices"):
        tx.make_mesh((16,), ("x",))
    with pytest.raises(ArgumentError, match="must be a sequence of integers"):
        tx.make_mesh(("4", 2), ("x", "y"))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="has manual axes"):
        tx.set_mesh(tx.make_mesh((4,), ("x",), axis_types=tx.sharding.AxisType.Manual))
    with pytest.raises(ArgumentError, match=r"takes a mesh and a PartitionSpec, but got .* and None"):
        tx.NamedSharding(mesh, None)


def test_results_are_placed_by_keywords() -> None:
    rows = _on(tx.make_mesh((8,), ("x",)), "x")
    assert jnp.zeros((8, 2), device=rows).sharding == rows
    assert tx.jit(lambda: jnp.ones(8, device=rows))().sharding.is_equivalent_to(rows, 1)
    with pytest.raises(ShardingTypeError, match=r"dot: out_sharding: .* names the axis 'x', which is Auto here"):
        jnp.dot(_grid(8, 2), _grid(2, 2), out_sharding=rows)


def test_derivative_of_shard_map_is_split_as_its_argument() -> None:
    mesh = tx.make_mesh((8,), ("x",))
    f = tx.shard_map(lambda a: a * tx.lax.psum(a.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    x = _grid(16)
    found = tx.jit(tx.grad(lambda a: f(a).sum()))(x)
    assert found.sharding.is_equivalent_to(_on(mesh, "x"), 1)
    np.testing.assert_allclose(found, np.full(16, 2 * x.sum()))
    with pytest.raises(ShapeError, match="must be the same on all devices"):
        tx.shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=P())(x)


def test_smap_splits_the_dimensions_of_its_axes() -> None:
    x = _grid(8, 4)
    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"))):
        f = tx.smap(lambda a: (2 * a, tx.lax.psum(a, "x")), in_axes=0, out_axes=(0, None), axis_name="x")
        for call in (f, tx.jit(f)):
            doubled, total = call(x)
            np.testing.assert_array_equal(doubled, 2 * x)
            np.testing.assert_array_equal(total, x.reshape(4, 2, 4).sum(0))
            assert doubled.sharding.spec == P("x")

        @tx.smap(in_axes=(1, {"b": 0}, None), out_axes={"c": 1}, axis_name="y")
        def g(a: Any, b: Any, factor: Any) -> Any:
            return {"c": a + factor * b["b"].T}

        np.testing.assert_array_equal(g(x, {"b": x.T.copy()}, 3.0)["c"], 4 * x)
        with pytest.raises(ShapeError, match="must be the same on all devices"):
            tx.smap(lambda a: a, in_axes=0, out_axes=None, axis_name="x")(x)
    with pytest.raises(ArgumentError, match="there is no mesh"):
        tx.smap(lambda a: a, in_axes=0, out_axes=0, axis_name="x")(x)
    with pytest.raises(ArgumentError, match="name of one axis"):
        tx.smap(lambda a: a, in_axes=0, out_axes=0, axis_name=("x", "y"))
    for axis in (-1, True, "x"):
        with pytest.raises(AttributeValueError, match="integers from 0"):
            tx.smap(lambda a: a, in_axes=axis, out_axes=0, axis_name="x")


def test_pmap_puts_copies_on_devices() -> None:
    found = tx.pmap(lambda a: a / tx.lax.psum(a, "i"), axis_name="i")(_grid(8) + 1)
    assert [shard.data.shape for shard in found.addressable_shards] == [(1,)] * 8
    np.testing.assert_allclose(found, (_grid(8) + 1) / 36)


def test_kinds_of_memory_are_found_along_a_long_program() -> None:
    host = tx.sharding.SingleDeviceSharding(tx.devices()[0], memory_kind="pinned_host")
    found: list[str] = []

    def function(x: Any) -> Any:
        for _ in range(1500):
            x = x + 1
        y = tx.device_put(x, host)
        found.extend(map(memory_kind_of, (x, y, y * 2, x)))
        return y

    tx.eval_shape(function, np.float32(0))
    assert found == ["device", "pinned_host", "pinned_host", "device"]
