"""`jax.dlpack`."""

from tinyxla.numpy import from_dlpack as from_dlpack
