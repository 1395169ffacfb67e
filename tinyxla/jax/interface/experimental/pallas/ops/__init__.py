"""`jax.experimental.pallas.ops`."""
