"""The device that arrays are on: there is one, the CPU of this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyxla.errors import ArgumentError, PlatformError
from tinyxla.tracing import pytrees


class Device:
    """A CPU. Equal to its name, `"cpu"`."""

    id = 0
    process_index = 0
    local_hardware_id = 0
    platform = "cpu"
    device_kind = "cpu"
    host_id = 0

    def memory_stats(self) -> None:
        """Nothing is counted."""
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) or other == "cpu"

    def __hash__(self) -> int:
        return hash("cpu")

    def __repr__(self) -> str:
        return "CpuDevice(id=0)"

    def __str__(self) -> str:
        return "cpu:0"

    def __deepcopy__(self, memo: dict[int, Any]) -> Device:
        return self


CPU = Device()


class Placement:
    """Where arrays are to be, on the one device: the base class of shardings."""


def check_device(what: str, device: Any) -> None:
    """An error for another device than the one there is; None stands for any."""
    if not (device is None or isinstance(device, (Device, Placement)) or (isinstance(device, str) and device == CPU)):
        raise ArgumentError(f"{what}: the only device is 'cpu', but got {device!r}.")


def check_platform(what: str, name: Any) -> None:
    """An error for another platform than the one there is; None stands for any."""
    if name is not None and name != CPU.platform:
        raise PlatformError(f"{what}: Unknown backend {name!r}; the only one is {CPU.platform!r}.")


def check_devices(what: str, devices: Any) -> None:
    """The same for a sequence of devices, or None."""
    if devices is None:
        return
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        raise ArgumentError(f"{what} must be a sequence of devices or None, but is {devices!r}; leave it out.")
    for device in devices:  # pyright: ignore[reportUnknownVariableType]
        check_device(what, device)


def check_placement(what: str, placement: Any) -> None:
    """The same for the leaves of a pytree: where arrays are to be, all of them or one by one."""
    leaves, _ = pytrees.flatten_shown(placement, lambda x: isinstance(x, Placement))
    for leaf in leaves:
        check_device(what, leaf)
