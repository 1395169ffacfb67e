"""`jax.stages`."""

from tinyxla.jax.stage_attributes import ArgInfo as ArgInfo

CompilerOptions = dict[str, str | bool]
