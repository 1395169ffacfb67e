"""`jax.experimental.pallas.tpu`: only to be imported, by packages that have kernels for TPUs."""
