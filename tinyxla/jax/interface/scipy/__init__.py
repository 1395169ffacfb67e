"""`jax.scipy`."""
