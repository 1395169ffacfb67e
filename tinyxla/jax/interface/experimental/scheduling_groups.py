"""`jax.experimental.scheduling_groups`."""

from tinyxla.jax.tracing.frontend_attributes import (
    scheduling_group as scheduling_group,
    xla_metadata_call as xla_metadata_call,
)
