"""`jax.debug`."""

from tinyxla.debug import __all__ as _names
from tinyxla.jax.host_calls.callbacks import debug_callback as callback
from tinyxla.jax.host_calls.debugger import breakpoint

__all__ = [*_names]
