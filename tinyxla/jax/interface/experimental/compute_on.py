"""`jax.experimental.compute_on`."""

from tinyxla.jax.tracing.frontend_attributes import compute_on as compute_on
