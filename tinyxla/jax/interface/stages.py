"""`jax.stages`."""

from tinyxla.jax.stages.stage_attributes import ArgInfo as ArgInfo

CompilerOptions = dict[str, str | bool]
