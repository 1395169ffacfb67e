"""`jax.ffi`."""

from tinyxla.jax.host_calls.foreign import ffi_lowering as ffi_lowering
