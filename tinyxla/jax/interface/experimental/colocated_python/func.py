"""`jax.experimental.colocated_python.func`: only to be imported, by packages that change its private functions."""
