"""`jax._src.xla_bridge`."""

from tinyxla.api.sharding.devices import (
    default_backend as default_backend,
    device_count as device_count,
    devices as devices,
    local_device_count as local_device_count,
    local_devices as local_devices,
    process_count as process_count,
    process_index as process_index,
    process_indices as process_indices,
)
from tinyxla.jax.devices.backend import (
    backends as backends,
    backends_are_initialized as backends_are_initialized,
    get_backend as get_backend,
    started as _started,
)
from tinyxla.jax.options import states as _states

_backends = _started
num_cpu_devices = _states["num_cpu_devices"]
