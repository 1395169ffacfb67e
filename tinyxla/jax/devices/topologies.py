"""Topologies as JAX describes them: a CPU has that of its devices, and those of other machines are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import PlatformError
from tinyxla.experimental.mesh_utils import create_device_mesh
from tinyxla.tracing.device import Device, all_devices, check_platform
from tinyxla.tracing.meshes import Mesh


class TopologyDescription:
    """Devices for which programs are compiled.

    Attributes:
        devices: the devices.

    >>> len(get_attached_topology().devices)
    1
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = list(devices)


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices that there are.

    Raises:
        PlatformError: another platform than "cpu".
    """
    check_platform("get_attached_topology", platform)
    return TopologyDescription(all_devices())


def get_topology_desc(topology_name: str = "", platform: str | None = None, **ignored: Any) -> TopologyDescription:
    """Refuses: CPUs have no topologies with names.

    Raises:
        PlatformError: always.
    """
    raise PlatformError(
        f"get_topology_desc: topology not implemented for {platform or 'cpu'}, but {topology_name!r} is asked for; use "
        "get_attached_topology."
    )


def make_mesh(topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: Sequence[str], **options: Any) -> Mesh:
    """A mesh of the devices of a topology."""
    return Mesh(create_device_mesh(mesh_shape, topo.devices, **options), tuple(axis_names))
