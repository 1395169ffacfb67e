"""`jax.experimental.xla_metadata`."""

from tinyxla.jax.tracing.frontend_attributes import set_xla_metadata as set_xla_metadata
