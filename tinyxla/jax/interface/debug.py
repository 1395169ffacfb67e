"""`jax.debug`."""

from tinyxla.debug import __all__ as _names
from tinyxla.jax.host_calls.callbacks import debug_callback as callback

__all__ = [*_names]
