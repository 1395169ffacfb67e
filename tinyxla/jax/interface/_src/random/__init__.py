"""`jax._src.random`: the generators that packages import."""
