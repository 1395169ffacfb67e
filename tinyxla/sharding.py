"""Meshes of devices, and shardings: which part of an array is on which device."""

from tinyxla.api.sharding.axis_types import auto_axes as auto_axes, explicit_axes as explicit_axes
from tinyxla.api.sharding.sharded_arrays import reshard as reshard
from tinyxla.tracing.axis_types import axis_types
from tinyxla.tracing.meshes import (
    AbstractMesh as AbstractMesh,
    AxisType as AxisType,
    Mesh as Mesh,
    current_mesh as get_mesh,
    make_mesh as make_mesh,
    set_mesh as set_mesh,
)
from tinyxla.tracing.shardings import (
    NamedSharding as NamedSharding,
    PartitionSpec as PartitionSpec,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
)


def get_abstract_mesh() -> AbstractMesh:
    """The axes of the current mesh, without devices, and of the kinds that they have here: inside of `shard_map`,
    `auto_axes` and `explicit_axes` they may have others than the mesh says.

    Returns:
        An abstract mesh.

    >>> import tinyxla
    >>> from tinyxla.sharding import get_abstract_mesh
    >>> with tinyxla.make_mesh((1,), ("x",)):
    ...     get_abstract_mesh()
    AbstractMesh(axis_sizes=(1,), axis_names=('x',), axis_types=(Auto,))
    """
    mesh = get_mesh()
    kinds = axis_types(mesh)
    if type(mesh) is AbstractMesh and kinds == mesh.axis_types:
        return mesh
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names, kinds)


__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "reshard",
    "set_mesh",
]


def __dir__() -> list[str]:
    return __all__
