"""The one backend, the CPU, as an object of JAX's interface."""

from __future__ import annotations

from types import SimpleNamespace

from tinyxla.api.sharding.devices import devices
from tinyxla.util.version import VERSION

started: dict[str, SimpleNamespace] = {}
"""The backends by name, once devices were used: then their number is fixed."""


def get_backend(platform: str | None = None) -> SimpleNamespace:
    """The backend of a platform: its name, version and devices.

    Raises:
        PlatformError: a platform that is not "cpu".
    """
    devices(platform)
    return SimpleNamespace(
        platform="cpu",
        platform_version=f"tinyxla {VERSION}",
        runtime_type="tinyxla",
        devices=devices,
        local_devices=devices,
        device_count=lambda: len(devices()),
        process_index=lambda: 0,
    )


def backends() -> dict[str, SimpleNamespace]:
    """The backends by name."""
    return {"cpu": get_backend()}


def backends_are_initialized() -> bool:
    """Whether devices were used."""
    return bool(started)
