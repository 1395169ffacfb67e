"""`jax.experimental.pallas`: its modules can be imported, as packages do that have kernels for GPUs and TPUs beside
other code. Kernels themselves are missing; `ops.tpu.splash_attention` is there."""
