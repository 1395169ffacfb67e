"""Kinds of memory of a device, as JAX names them: all are the memory of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.partitioning.array import ShardedArray


class Memory:
    """Memory of a device, which is the machine's whatever its kind.

    >>> [memory.kind for memory in memories(CPU)]
    ['device', 'pinned_host', 'unpinned_host']
    """

    platform = "cpu"

    def __init__(self, device: Any, kind: str) -> None:
        self.device = device
        self.kind = kind

    def addressable_by_devices(self) -> list[Any]:
        """The devices that reach it."""
        return [self.device]

    attached_devices = addressable_by_devices

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"Memory(kind={self.kind!r}, device={self.device!r})"


def memories(device: Any) -> list[Memory]:
    """The memories that a device reaches."""
    return [Memory(device, kind) for kind in ("device", "pinned_host", "unpinned_host")]


def default_memory(device: Any) -> Memory:
    """The memory where arrays of a device are."""
    return memories(device)[0]


def memory(device: Any, kind: str) -> Memory:
    """The memory of that kind.

    Raises:
        ArgumentError: a kind that there is not.
    """
    for found in memories(device):
        if found.kind == kind:
            return found
    raise ArgumentError(f"memory: the kinds are {[m.kind for m in memories(device)]}, but got {kind!r}.")


def address(array: Any) -> int:
    """Where the elements of an array on one device begin in memory.

    Raises:
        ArgumentError: the array has parts on several devices.
    """
    parts = len(array.addressable_shards)
    if parts != 1:
        raise ArgumentError(
            f"unsafe_buffer_pointer: the array has parts on {parts} devices of this process; take that of the data of "
            "one of its addressable_shards."
        )
    held = array.block if isinstance(array, ShardedArray) else array.buffer()
    return (held if isinstance(held, np.ndarray) else np.frombuffer(held, np.uint8)).ctypes.data
