"""`jax.experimental.pallas.ops.tpu`."""
