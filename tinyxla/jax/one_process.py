"""What JAX has for arrays that several processes or devices hold parts of, for the one process and device there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import tree
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy import asarray
from tinyxla.tracing.array import Array
from tinyxla.tracing.device import CPU, check_placement


def _whole(what: str, part: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """The one part of an array, which must be all of it."""
    found = asarray(part, dtype)
    if found.shape != tuple(shape):
        raise ShapeError(
            f"{what}: the one device must hold the whole array of shape {tuple(shape)}, not {found.shape}."
        )
    return found


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any], dtype: Any = None
) -> Any:
    """The array that `data_callback` gives for the indices of all elements, a tuple of slices.

    Raises:
        ShapeError: it gives an array of another shape.
        ArgumentError: the sharding is over other devices.
    """
    what = "make_array_from_callback"
    check_placement(f"{what}: sharding", sharding)
    return _whole(what, data_callback((slice(None),) * len(shape)), shape, dtype)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Any:
    """The array whose parts are on the devices: the one there is.

    Raises:
        ShapeError: it has another shape.
        ArgumentError: there is not one array, or the sharding is over other devices.
    """
    what = "make_array_from_single_device_arrays"
    check_placement(f"{what}: sharding", sharding)
    parts = list(arrays)
    if len(parts) != 1 or not isinstance(parts[0], Array):
        raise ArgumentError(f"{what}: there must be one array for the one device, but got {len(parts)}: {parts!r:.60}.")
    return _whole(what, parts[0], shape, dtype)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """The arrays of a pytree, of which this process has all elements.

    Raises:
        ShapeError: `global_shape` is another shape.
        ArgumentError: the sharding is over other devices.
    """
    what = "make_array_from_process_local_data"
    check_placement(f"{what}: sharding", sharding)

    def made(x: Any, shape: Any = None) -> Any:
        return _whole(what, x, np.shape(x) if shape is None else shape)

    if global_shape is None or (isinstance(global_shape, tuple) and all(hasattr(n, "__index__") for n in global_shape)):  # pyright: ignore[reportUnknownVariableType]
        return tree.map(lambda x: made(x, global_shape), local_data)
    return tree.map(made, local_data, global_shape)


class Shard:
    """The part of an array on a device: all of it on the one there is.

    Attributes:
        data: the array.
        device: the device.
        index: the places of the elements in the array, a slice for each dimension.
        replica_id: the number of this copy: 0.
    """

    replica_id = 0

    def __init__(self, data: Any) -> None:
        self.data = data
        self.device = CPU
        self.index = (slice(None),) * data.ndim

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id=0, data={self.data})"


def addressable_data(array: Any, index: int) -> Any:
    """The part of an array on the device of that number.

    Raises:
        ArgumentError: a number other than 0.
    """
    if index != 0:
        raise ArgumentError(f"addressable_data: there is one device, number 0, but got {index}.")
    return array


def shards(array: Any) -> list[Shard]:
    """The parts of an array on the devices."""
    return [Shard(array)]


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


def host_count(backend: Any = None) -> int:
    """The number of processes: 1."""
    return 1


def host_id(backend: Any = None) -> int:
    """The number of this process: 0."""
    return 0


def host_ids(backend: Any = None) -> list[int]:
    """The numbers of all processes: [0]."""
    return [0]
