"""`jax.experimental.serialize_executable`."""

from tinyxla.jax.stages.serialized_programs import (
    deserialize_and_load as deserialize_and_load,
    serialize as serialize,
)
