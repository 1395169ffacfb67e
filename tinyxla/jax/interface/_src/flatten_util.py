"""`jax._src.flatten_util`."""

from tinyxla.flatten_util import ravel_pytree as ravel_pytree
