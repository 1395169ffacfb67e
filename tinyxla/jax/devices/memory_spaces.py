"""Memory spaces of abstract values: that of a device, and that of its host."""

from __future__ import annotations

import enum

from tinyxla.tracing.device import Placement


class Space(Placement, enum.Enum):
    """Where an array is; all are the memory of the machine here.

    >>> Space.Host.memory_kind
    'pinned_host'
    """

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    @property
    def memory_kind(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kind of memory that it names."""
        return {"Device": "device", "Host": "pinned_host"}.get(self.name)

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


def space_of(memory_kind: str) -> Space:
    """The space of a kind of memory."""
    return Space.Device if memory_kind == "device" else Space.Host
