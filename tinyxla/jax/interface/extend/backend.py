"""`jax.extend.backend`: there is one, the CPU."""

from tinyxla import clear_caches as clear_backends
from tinyxla.api.sharding.devices import devices
from tinyxla.jax.devices.backend import backends, get_backend
from tinyxla.jax.finder import JAX_VERSION as backend_xla_version


def get_default_device():
    """The device."""
    return devices()[0]


clear_in_memory_compilation_cache = clear_backends

__all__ = """backend_xla_version backends clear_backends clear_in_memory_compilation_cache get_backend
    get_default_device""".split()
