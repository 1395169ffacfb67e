"""What there is to run on: devices, which are shares of the CPUs of processes. Threads are another matter."""

from __future__ import annotations

import gc
import platform as _machine
import sys
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tinyxla.api.functions import arrays_of
from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.partitioning.placement import placed
from tinyxla.tracing import device as _process, pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import Block, config
from tinyxla.tracing.core import Tracer, on_current_mesh
from tinyxla.tracing.device import (
    CPU,
    Device,
    all_devices,
    check_device,
    check_placement,
    check_platform,
    devices_of,
)
from tinyxla.tracing.meshes import Mesh, UncommittedDevice, context
from tinyxla.tracing.transfers import check_host_values
from tinyxla.util.version import VERSION


def devices(backend: str | None = None) -> list[Device]:
    """The devices of all processes: one for each, or as many as the option `num_cpu_devices` says.

    Args:
        backend: None or "cpu".

    Returns:
        A list.

    Raises:
        PlatformError: a platform that is not "cpu".

    Example:
        >>> import tinyxla as tx
        >>> tx.devices()
        [CpuDevice(id=0)]
    """
    check_platform("devices", backend)
    return all_devices()


def local_devices(process_index: int | None = None, backend: str | None = None, host_id: int | None = None) -> Any:
    """The devices of a process, by default of this one.

    Args:
        process_index: the number of a process.
        backend: None or "cpu".
        host_id: the same, by its old name.

    Returns:
        A list.

    Raises:
        PlatformError: a platform that is not "cpu".
        ArgumentError: there is no such process.

    Example:
        >>> import tinyxla as tx
        >>> len(tx.local_devices())
        1
    """
    check_platform("local_devices", backend)
    number = _process.process_index() if process_index is None else process_index
    if not 0 <= number < _process.process_count():
        raise ArgumentError(f"local_devices: there are {_process.process_count()} processes, but got number {number}.")
    return devices_of(number)


def device_count(backend: str | None = None) -> int:
    """The number of devices of all processes.

    Args:
        backend: None or "cpu".

    Returns:
        A positive integer.

    Raises:
        PlatformError: a backend that is not "cpu".

    Example:
        >>> import tinyxla as tx
        >>> tx.device_count()
        1
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """The number of devices of this process.

    Args:
        backend: None or "cpu".

    Returns:
        A positive integer.

    Raises:
        PlatformError: a backend that is not "cpu".

    Example:
        >>> import tinyxla as tx
        >>> tx.local_device_count()
        1
    """
    return len(local_devices(backend=backend))


def default_backend() -> str:
    """The platform that computes: "cpu".

    Returns:
        "cpu".

    Example:
        >>> import tinyxla as tx
        >>> tx.default_backend()
        'cpu'
    """
    return CPU.platform


def default_device(new_val: Any = None) -> AbstractContextManager[None]:
    """A context in which what is computed of arrays that were not placed goes to a device.

    Args:
        new_val: a device of this process, or None for the first one.

    Returns:
        A context manager.

    Raises:
        ArgumentError: another device.

    Example:
        >>> import tinyxla as tx
        >>> with tx.default_device(tx.devices()[0]):
        ...     tx.numpy.ones(2).device
        CpuDevice(id=0)
    """
    check_device("default_device", new_val)
    return _OnDevice(_uncommitted(new_val))


def _uncommitted(device: Any) -> Mesh | None:
    """A device as the mesh of arrays that are on it unless others are elsewhere; None for the first one."""
    return UncommittedDevice(device) if isinstance(device, Device) else None


config.watch(lambda: context.use_device(_uncommitted(config.default_device)))


class _OnDevice(Block):
    """A block in which a device is the default one."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._outer: list[Any] = []

    def __enter__(self) -> None:
        self._outer.append(context.device)
        context.use_device(self._device)

    def __exit__(self, *ignored: object) -> None:
        context.use_device(self._outer.pop())


def process_index(backend: str | None = None) -> int:
    """The number of this process among those that compute together.

    Args:
        backend: None or "cpu".

    Returns:
        An integer from 0 on.

    Raises:
        PlatformError: another platform.

    Example:
        >>> import tinyxla as tx
        >>> tx.process_index()
        0
    """
    check_platform("process_index", backend)
    return _process.process_index()


def process_count(backend: str | None = None) -> int:
    """The number of processes that compute together.

    Args:
        backend: None or "cpu".

    Returns:
        A positive integer.

    Raises:
        PlatformError: another platform.

    Example:
        >>> import tinyxla as tx
        >>> tx.process_count()
        1
    """
    check_platform("process_count", backend)
    return _process.process_count()


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that compute together.

    Args:
        backend: None or "cpu".

    Returns:
        A list of integers.

    Raises:
        PlatformError: another platform.

    Example:
        >>> import tinyxla as tx
        >>> tx.process_indices()
        [0]
    """
    check_platform("process_indices", backend)
    return list(range(_process.process_count()))


def print_environment_info(return_string: bool = False) -> str | None:
    """Print what one should know to understand a report of an error: versions, and the machine.

    Args:
        return_string: return the text instead of printing it.

    Returns:
        The text, or None.

    Example:
        >>> import tinyxla as tx
        >>> "numpy" in tx.print_environment_info(return_string=True)
        True
    """
    lines = [
        f"tinyxla: {VERSION}",
        f"numpy: {np.__version__}",
        f"python: {sys.version}",
        f"devices: {devices()}",
        f"platform: {_machine.platform()}",
    ]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None


def block_until_ready(x: Any) -> Any:
    """The argument: results are ready when a call returns.

    Args:
        x: a pytree of arrays.

    Returns:
        The pytree.

    Example:
        >>> import tinyxla as tx
        >>> tx.block_until_ready(tx.numpy.arange(3))
        Array([0, 1, 2], dtype=int32)
    """
    return x


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """The leaves of a pytree as arrays where they are wanted.

    Args:
        x: a pytree of arrays, NumPy arrays and numbers.
        device: a device or a sharding, or a pytree of these that may stop earlier than x. Inside of transformed
            functions it is what `lax.with_sharding_constraint` does.
        may_alias: False makes another array of each; it shares memory, but deleting one leaves the other. With None or
            True an array that is there already stays itself.
        src, donate: as in JAX; nothing depends on them. (An array is not both donated and an alias.)

    Returns:
        A pytree of arrays of the same structure.

    Raises:
        ArgumentError: a leaf that is no array, or a device that there is not.
        AttributeValueError: both `may_alias` and `donate`.
        DeletedError: an array that was donated or deleted before.
        ShapeError: a sharding that does not fit an array.

    Example:
        >>> import tinyxla as tx
        >>> import numpy as np
        >>> tx.device_put({"weights": np.ones(2, np.float32), "step": 3})
        {'weights': Array([1., 1.], dtype=float32), 'step': Array(3, dtype=int32, weak_type=True)}
    """
    check_placement("device_put", device)
    check_placement("device_put: src", src)
    if may_alias is True and donate is True:
        raise AttributeValueError("device_put: may_alias and donate must not be both True; leave one out.")
    if config.special:
        check_host_values("device_put", pytrees.leaves(x), is_explicit=True)
    arrays, treedef = arrays_of(x, "device_put: the value")
    for array in arrays:
        if isinstance(array, ConcreteArray):
            array.buffer()  # an error if there is none any more
    if context.device is not None and context.programs is context.device:
        pairs = zip(pytrees.leaves(x), arrays, strict=True)
        arrays = [array if isinstance(leaf, Array) else on_current_mesh(array) for leaf, array in pairs]
    if may_alias is False:
        arrays = [array.copy() for array in arrays]
    return placed("device_put", pytrees.unflatten(treedef, arrays), device)


def copy_to_host_async(x: Any) -> Any:
    """The same arrays: they are in the memory that Python has.

    Args:
        x: a pytree of arrays.

    Returns:
        The pytree.

    >>> import numpy as np
    >>> from tinyxla import copy_to_host_async
    >>> copy_to_host_async([np.float32(1)])
    [np.float32(1.0)]
    """
    for leaf in pytrees.leaves(x):
        if hasattr(leaf, "copy_to_host_async"):  # an array of another library, too
            leaf.copy_to_host_async()
    return x


def live_arrays(platform: str | None = None) -> list[Array]:
    """The concrete arrays that something still refers to, without those that were deleted or donated.

    Args:
        platform: None or "cpu".

    Returns:
        A list.

    Raises:
        PlatformError: another platform.

    >>> from tinyxla import live_arrays
    >>> import tinyxla.numpy as jnp
    >>> x = jnp.ones(3)
    >>> any(y is x for y in live_arrays())
    True
    """
    check_platform("live_arrays", platform)
    return [x for x in gc.get_objects() if type(x) is ConcreteArray and not x.is_deleted()]


def device_get(x: Any) -> Any:
    """The leaves of a pytree as NumPy arrays; tracers, and what is no array, as they are.

    Args:
        x: a pytree.

    Returns:
        A pytree of the same structure.

    Raises:
        DeletedError: an array that was deleted or donated.

    Example:
        >>> from tinyxla import device_get
        >>> import tinyxla as tx
        >>> device_get({"a": tx.numpy.ones(2), "b": "text"})
        {'a': array([1., 1.], dtype=float32), 'b': 'text'}
    """

    def copied(leaf: Any) -> Any:
        is_array = hasattr(leaf, "__array__") and not isinstance(leaf, Tracer)
        return np.asarray(leaf) if is_array else leaf

    return pytrees.map_tree(copied, x)
