"""`jax.sharding`."""

from tinyxla.sharding import SingleDeviceSharding as make_single_device_sharding, set_mesh as use_abstract_mesh

use_mesh = use_abstract_mesh
