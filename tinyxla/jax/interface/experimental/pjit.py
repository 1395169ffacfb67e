"""`jax.experimental.pjit`."""

from tinyxla.jax.partitioning.pjit import pjit as pjit
from tinyxla.lax import with_sharding_constraint as with_sharding_constraint

__all__ = ["pjit", "with_sharding_constraint"]
