"""`jax._src.lax`: the modules that packages import."""
