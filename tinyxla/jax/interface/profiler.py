"""`jax.profiler`."""

from tinyxla.jax.stages.memory_profile import (
    device_memory_profile as device_memory_profile,
    save_device_memory_profile as save_device_memory_profile,
)
from tinyxla.jax.stages.profiler_server import (
    ProfileOptions as ProfileOptions,
    start_server as start_server,
    stop_server as stop_server,
)
