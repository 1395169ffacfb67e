"""`jax.extend.backend`: there is one, the CPU."""

from types import SimpleNamespace

from tinyxla import clear_caches as clear_backends, devices
from tinyxla.jax.finder import JAX_VERSION as backend_xla_version


def get_backend(platform=None):
    """The backend: its platform and devices."""
    return SimpleNamespace(platform="cpu", devices=devices, local_devices=devices, device_count=lambda: len(devices()))


def backends():
    """The backends by name."""
    return {"cpu": get_backend()}


def get_default_device():
    """The device."""
    return devices()[0]


clear_in_memory_compilation_cache = clear_backends

__all__ = """backend_xla_version backends clear_backends clear_in_memory_compilation_cache get_backend
    get_default_device""".split()
