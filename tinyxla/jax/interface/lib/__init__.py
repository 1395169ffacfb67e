"""`jax.lib`, in which there is nothing."""
