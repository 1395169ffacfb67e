"""`jax._src.sharding_impls`."""

from tinyxla.errors import MeshError
from tinyxla.sharding import (
    NamedSharding as NamedSharding,
    PartitionSpec as P,
    PartitionSpec as PartitionSpec,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    get_abstract_mesh as get_abstract_mesh,
)


def canonicalize_sharding(sharding, api_name, check_mesh_consistency=True):
    """The sharding that a spec stands for, over the current mesh; None where there are no devices to split over."""
    if sharding is None or (isinstance(sharding, NamedSharding) and sharding.mesh.empty):
        return None
    if not isinstance(sharding, PartitionSpec):
        return sharding
    mesh = get_abstract_mesh()
    if mesh.empty:
        raise MeshError(f"{api_name}: {sharding} needs a mesh; set one by jax.set_mesh, or give a NamedSharding.")
    return NamedSharding(mesh, sharding)
