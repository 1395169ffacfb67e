"""Meshes: their axes, their current one, how they lie in processes, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, get_abstract_mesh, get_mesh
from tinyxla.tracing.device import Device

P = tx.P
pytestmark = pytest.mark.usefixtures("eight_devices")


def test_axes_of_a_mesh() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    assert (mesh.shape, mesh.size, mesh.empty) == ({"x": 4, "y": 2}, 8, False)
    assert (mesh.axis_types, mesh.are_all_axes_auto) == ((AxisType.Auto,) * 2, True)
    np.testing.assert_array_equal(mesh.device_ids, np.arange(8).reshape(4, 2))
    assert (mesh.local_devices, mesh.is_multi_process) == (tx.devices(), False)
    assert mesh.abstract_mesh == AbstractMesh((4, 2), ("x", "y"))


def test_meshes_are_equal_by_devices_names_and_kinds() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    same = tx.make_mesh((4, 2), ("x", "y"), axis_types=AxisType.Auto)
    assert mesh == same
    assert hash(mesh) == hash(same)
    others = [
        tx.make_mesh((2, 4), ("x", "y")),
        tx.make_mesh((4, 2), ("y", "x")),
        tx.make_mesh((4, 2), ("x", "y"), axis_types=AxisType.Explicit),
        tx.make_mesh((4, 2), ("x", "y"), devices=tx.devices()[::-1]),
        mesh.abstract_mesh,
    ]
    assert mesh not in others


def test_a_mesh_with_other_fields() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    renamed = mesh.update(axis_names=("a", "b"))
    assert isinstance(renamed, Mesh)
    assert (renamed.axis_names, renamed.device_ids.tolist()) == (("a", "b"), mesh.device_ids.tolist())
    explicit = mesh.update_axis_types({"x": AxisType.Explicit})
    assert isinstance(explicit, Mesh)
    assert (explicit.explicit_axes, explicit.auto_axes) == (("x",), ("y",))
    assert mesh.abstract_mesh.update(axis_sizes=(2, 2)).shape == {"x": 2, "y": 2}


def test_the_current_mesh_is_that_of_the_innermost_context() -> None:
    outer, inner = tx.make_mesh((8,), ("x",)), tx.make_mesh((4, 2), ("x", "y"))
    assert get_mesh().empty
    with tx.set_mesh(outer):
        with inner:
            assert get_mesh() == inner
            assert get_abstract_mesh() == inner.abstract_mesh
        assert get_mesh() == outer
        with pytest.raises(ZeroDivisionError), tx.set_mesh(inner):
            _ = 1 / 0
        assert get_mesh() == outer
    assert get_mesh().empty


def test_axes_are_manual_inside_of_shard_map() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(get_abstract_mesh().axis_types)
        return x

    with tx.set_mesh(mesh):
        tx.shard_map(function, in_specs=tx.P("x"), out_specs=tx.P("x"), axis_names={"x"})(np.ones(4, np.float32))
    assert seen[0] == (AxisType.Manual, AxisType.Auto)


def _grid(*owners: Any) -> Any:
    """Devices whose processes are these numbers."""
    grid = np.empty(np.shape(owners), dtype=object)
    for number, place in enumerate(np.ndindex(grid.shape)):
        grid[place] = Device(number, int(np.asarray(owners)[place]), 0)
    return grid


def test_blocks_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyxla.tracing.meshes.check_device", lambda what, device: None)
    blocks = Mesh(_grid([0, 0, 1, 1], [2, 2, 3, 3]), ("x", "y")).blocks
    assert (blocks.processes, blocks.lanes, blocks.ranks.tolist()) == ((2, 2), (1, 2), [[0, 1], [2, 3]])
    assert blocks.own == (0, 0)
    assert Mesh(_grid([1, 1], [2, 2]), ("x", "y")).blocks.own is None
    with pytest.raises(ArgumentError, match="the devices of each process must be one block of the mesh"):
        _ = Mesh(_grid([0, 1], [1, 0]), ("x", "y")).blocks


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tx.make_mesh((9,), ("x",)), "axis_shapes (9,) take 9 devices, but there are 8"),
        (lambda: tx.make_mesh((2, 4), ("x",)), "must have a name for each of its axes (2, 4)"),
        (lambda: tx.make_mesh((2, 4), ("x", "x")), "each another one, but got ('x', 'x')"),
        (lambda: tx.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,)), "or one for each of the axes"),
        (lambda: tx.make_mesh((2,), ("x",), axis_types="auto"), "axis_types must be an AxisType"),
        (lambda: Mesh([tx.devices()[0]] * 2, ("x",)), "devices must be different ones, but are numbers (0, 0)"),
        (lambda: Mesh(["cpu"], ("x",)), "devices must be an array of devices, but has 'cpu'"),
    ],
)
def test_meshes_that_cannot_be(make: Any, said: str) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert said in str(error.value)


THREE: Any = 3
SPLIT = tx.NamedSharding(AbstractMesh((2, 4), ("x", "y")), tx.P("x", "y"))


def test_dimension_from_the_back_is_left_out() -> None:
    assert SPLIT.without_dimension(-1, 2).spec == tx.P("x")


@pytest.mark.parametrize(
    ("said", "function"),
    [
        ("axis 9 is out of range", lambda: SPLIT.without_dimension(9, 2)),
        ("update_axis_types: takes types by the names", lambda: SPLIT.mesh.update_axis_types({"z": AxisType.Auto})),
        ("count_processes: axes must be some of", lambda: tx.make_mesh((8,), ("x",)).count_processes(["y"])),
        ("partitions must be a sequence", lambda: tx.P("x").update(partitions=THREE)),
        ("spec must be a PartitionSpec", lambda: SPLIT.update(spec=THREE)),
        ("a shape is a sequence of integers", lambda: SPLIT.shard_shape(THREE)),
        ("a shape is a sequence of integers", lambda: tx.sharding.SingleDeviceSharding().shard_shape(THREE)),
    ],
)
def test_arguments_that_shardings_do_not_take(said: str, function: Any) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=said):
        function()


def test_specs_with_axes_of_partial_sums() -> None:
    kinds = AxisType.Explicit, AxisType.Explicit, AxisType.Auto
    mesh = AbstractMesh((2, 2, 2), ("x", "y", "z"), axis_types=kinds)
    spec = P("x", None, unreduced={"y"})
    assert repr(spec) == "PartitionSpec('x', None, unreduced={'y'})"
    assert spec == P("x", None, unreduced=frozenset({"y"})) != P("x", None) != spec != P("x", None, reduced={"y"})
    assert len({spec, P("x", None), P("x", None, reduced={"y"})}) == 3
    assert pickle.loads(pickle.dumps(spec)) == spec == spec.update() == NamedSharding(mesh, spec).spec
    for make, said in (
        (lambda: P("x", unreduced={"x"}), r"the entries \('x',\) and unreduced {'x'} must not name the same axis"),
        (lambda: P(unreduced={"x"}, reduced={"x"}), "unreduced {'x'} and reduced {'x'} must not name the same axis"),
        (lambda: P(unreduced={None}), "unreduced is a set of mesh axes, but has None"),
        (lambda: P(reduced="x"), "reduced is a set of mesh axes, but got 'x'"),
        (lambda: NamedSharding(mesh, P(unreduced={"q"})), "names 'q', but the mesh has the axes"),
        (lambda: NamedSharding(mesh, P(unreduced={"z"})), "names 'z', but only explicit axes may be there"),
    ):
        with pytest.raises((ArgumentError, DTypeError, ShapeError), match=said):
            make()
