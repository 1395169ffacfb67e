"""`jax.experimental.buffer_callback`."""

from tinyxla.jax.host_calls.buffer_callbacks import (
    Buffer as Buffer,
    ExecutionContext as ExecutionContext,
    ExecutionStage as ExecutionStage,
    buffer_callback as buffer_callback,
)
