"""`jax.ffi`."""

from tinyxla.jax.foreign import ffi_lowering as ffi_lowering
