"""What JAX has for arrays that several processes or devices hold parts of, for the one process and device there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import tree
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy import asarray
from tinyxla.tracing.array import Array
from tinyxla.tracing.device import check_placement


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


def host_count(backend: Any = None) -> int:
    """The number of processes: 1."""
    return 1


def host_id(backend: Any = None) -> int:
    """The number of this process: 0."""
    return 0


def host_ids(backend: Any = None) -> list[int]:
    """The numbers of all processes: [0]."""
    return [0]
