"""Meshes of devices, and shardings: which part of an array is on which device."""

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
    """The axes of the current mesh, without devices."""
    return get_mesh().abstract_mesh


__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "set_mesh",
]


def __dir__() -> list[str]:
    return __all__
