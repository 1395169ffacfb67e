"""`jax.experimental.pallas.triton`: only to be imported, by packages that have kernels for GPUs."""
