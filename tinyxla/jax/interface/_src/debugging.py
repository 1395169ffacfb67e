"""`jax._src.debugging`."""

from tinyxla.debug import callback as debug_callback, print as debug_print

__all__ = ["debug_callback", "debug_print"]
