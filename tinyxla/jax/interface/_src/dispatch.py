"""`jax._src.dispatch`."""

from tinyxla.api.callbacks import effects_barrier as wait_for_tokens

__all__ = ["wait_for_tokens"]
