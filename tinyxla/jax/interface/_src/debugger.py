"""`jax._src.debugger`."""

from tinyxla.jax.host_calls.debugger import breakpoint as breakpoint
