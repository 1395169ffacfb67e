"""`jax.sharding`."""

from tinyxla.sharding import set_mesh as use_abstract_mesh

use_mesh = use_abstract_mesh
