"""`jax.ffi`."""

from tinyxla.jax.host_calls.foreign import (
    ffi_call as ffi_call,
    ffi_lowering as ffi_lowering,
    include_dir as include_dir,
    register_ffi_target_as_batch_partitionable as register_ffi_target_as_batch_partitionable,
    register_ffi_type_id as register_ffi_type_id,
)
