"""`jax.sharding`."""

from tinyxla.jax.jaxprs.avals import ManualAxisType as ManualAxisType
from tinyxla.jax.partitioning.abstract_mesh import AbstractMesh as AbstractMesh
from tinyxla.sharding import SingleDeviceSharding as make_single_device_sharding, set_mesh as use_abstract_mesh

use_mesh = use_abstract_mesh
