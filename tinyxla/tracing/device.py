"""Devices: what arrays are on and programs run on. Each process has one or several, all of them its CPU.

`num_cpu_devices` divides a process into several devices, so that programs for many can be tried on one machine;
several processes each have as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from tinyxla.errors import ArgumentError, PlatformError
from tinyxla.tracing import pytrees


class Device:
    """A CPU, or a share of one.

    Attributes:
        id: its number among those of all processes.
        process_index: the process that it belongs to.
        local_hardware_id: its number among those of this process.

    >>> import tinyxla
    >>> device = tinyxla.devices()[0]
    >>> device, device.platform, device.process_index
    (CpuDevice(id=0), 'cpu', 0)
    """

    platform = "cpu"
    device_kind = "cpu"

    def __init__(self, id: int, process_index: int, local_hardware_id: int) -> None:
        self.id = id
        self.process_index = process_index
        self.local_hardware_id = local_hardware_id

    host_id = property(lambda self: self.process_index)

    def memory_stats(self) -> None:
        """None: memory is not counted for each device.

        >>> import tinyxla
        >>> tinyxla.devices()[0].memory_stats() is None
        True
        """
        return None

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Device) else other == self.platform

    def __hash__(self) -> int:
        return hash("cpu")

    def __lt__(self, other: Device) -> bool:
        return self.id < other.id

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"cpu:{self.id}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Device:
        return self

    def __reduce__(self) -> Any:
        return Device, (self.id, self.process_index, self.local_hardware_id)


class _Processes:
    """How many processes there are, which of them this one is, and how many devices each has."""

    count = 1
    index = 0
    devices_each = 1
    before_first_use: ClassVar[list[Callable[[], None]]] = []


def set_processes(index: int, count: int) -> None:
    """Say which process of how many this one is."""
    _Processes.index, _Processes.count = index, count


def set_devices_each(count: int) -> None:
    """Say how many devices each process has."""
    _Processes.devices_each = count


def call_before_first_use(function: Callable[[], None]) -> None:
    """Call a function, once, before the devices are first asked for: it may say how many there are."""
    _Processes.before_first_use[:] = [function]


def process_index() -> int:
    """The number of this process.

    Returns:
        An integer from 0 on.

    >>> from tinyxla import distributed
    >>> distributed.process_index()
    0
    """
    return _Processes.index


def process_count() -> int:
    """The number of processes.

    Returns:
        A positive integer.

    >>> from tinyxla import distributed
    >>> distributed.process_count()
    1
    """
    return _Processes.count


def all_devices() -> list[Device]:
    """The devices of all processes, those of process 0 first."""
    while _Processes.before_first_use:
        _Processes.before_first_use.pop()()
    each = _Processes.devices_each
    return [Device(k, k // each, k % each) for k in range(_Processes.count * each)]


def devices_of(process: int) -> list[Device]:
    """The devices of a process."""
    return [device for device in all_devices() if device.process_index == process]


CPU = Device(0, 0, 0)  # the first one, which any process has


def default_device() -> Device:
    """The device that arrays are on which were not placed: the first one of this process."""
    return devices_of(_Processes.index)[0]


class Placement:
    """Where arrays are to be: the base class of shardings.

    Attributes:
        memory_kind: in which kind of memory, if that is said.
    """

    memory_kind: str | None = None


class PlacementOf(Placement):
    """A placement that says more than a sharding, such as how arrays lie in memory.

    Attributes:
        sharding: where arrays are to be; None leaves it open.
    """

    sharding: Placement | None = None

    def check_placed(self, what: str) -> None:
        """Refuse what does not say where an array is to be, where that is needed; `what` names the function."""

    def check_array(self, what: str, x: Any) -> None:
        """Refuse an array that it does not fit."""


def check_device(what: str, device: Any) -> None:
    """An error for a device that there is not; None stands for any."""
    if device is None or isinstance(device, Placement) or (isinstance(device, str) and device == CPU.platform):
        return
    there = all_devices()
    if not isinstance(device, Device) or device not in there:
        known = "only device is 'cpu'" if len(there) == 1 else f"devices are {', '.join(map(repr, there))}"
        raise ArgumentError(f"{what}: the {known}, but got {device!r}.")


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
    for device in devices:
        check_device(what, device)


def check_placement(what: str, placement: Any) -> None:
    """The same for the leaves of a pytree: where arrays are to be, all of them or one by one."""
    leaves, _ = pytrees.flatten_shown(placement, lambda x: isinstance(x, Placement))
    for leaf in leaves:
        check_device(what, leaf)
