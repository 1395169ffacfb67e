"""`jax.debug`."""

from tinyxla.jax.callbacks import debug_callback as callback

__all__ = ["callback"]
