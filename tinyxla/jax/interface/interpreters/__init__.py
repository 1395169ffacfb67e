"""`jax.interpreters`: the registries of primitives' rules."""
