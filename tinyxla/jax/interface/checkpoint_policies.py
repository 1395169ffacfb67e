"""`jax.checkpoint_policies`: those of tinyxla, which policies of users may call with primitives."""

from tinyxla.jax.tracing.checkpoint_policies import policies as _policies

globals().update(vars(_policies))
