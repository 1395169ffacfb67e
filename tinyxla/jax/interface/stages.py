"""`jax.stages`."""

CompilerOptions = dict[str, str | bool]
