"""Arrays of devices for meshes: all have the same distance here, so their order is that of the processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.tracing.device import Device, all_devices

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """The devices as an array of that shape, for `sharding.Mesh`.

    Args:
        mesh_shape: the number of devices along each axis.
        devices: by default those of all processes.
        contiguous_submeshes, allow_split_physical_axes: accepted for JAX's sake; there is no network of chips.

    Returns:
        An array of devices.

    Raises:
        ArgumentError: there are more or fewer devices.

    Example:
        >>> from tinyxla.experimental.mesh_utils import create_device_mesh
        >>> create_device_mesh((1, 1)).shape
        (1, 1)
    """
    given = list(all_devices() if devices is None else devices)
    if len(given) != math.prod(mesh_shape):
        raise ArgumentError(
            f"create_device_mesh: mesh_shape {tuple(mesh_shape)} takes {math.prod(mesh_shape)} devices, but there are "
            f"{len(given)}; pass devices=, or use make_mesh."
        )
    grid = np.empty(len(given), dtype=object)
    grid[:] = given
    return grid.reshape(tuple(mesh_shape))


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = True,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """The devices as an array in which those of one process are a block of `mesh_shape`, and the blocks are arranged in
    `dcn_mesh_shape`: the size of an axis is the product of both.

    Args:
        mesh_shape: the devices of a process along each axis.
        dcn_mesh_shape: the processes along each axis.
        devices: by default those of all processes.
        process_is_granule, should_sort_granules_by_key, allow_split_physical_axes: accepted for JAX's sake.

    Returns:
        An array of devices.

    Raises:
        ArgumentError: the shapes have different lengths, or there are more or fewer devices or processes.

    Example:
        >>> from tinyxla.experimental.mesh_utils import create_hybrid_device_mesh
        >>> create_hybrid_device_mesh((1, 1), (1, 1)).shape
        (1, 1)
    """
    rank = len(mesh_shape)
    if len(dcn_mesh_shape) != rank:
        raise ArgumentError(
            f"create_hybrid_device_mesh: mesh_shape {tuple(mesh_shape)} and dcn_mesh_shape {tuple(dcn_mesh_shape)} "
            "must have one size for each axis."
        )
    blocks = create_device_mesh((*dcn_mesh_shape, *mesh_shape), devices)
    owners, wanted = {device.process_index for device in blocks.flat}, math.prod(dcn_mesh_shape)
    if len(owners) != wanted:
        raise ArgumentError(
            f"create_hybrid_device_mesh: dcn_mesh_shape {tuple(dcn_mesh_shape)} is for {wanted} processes, but the "
            f"devices are of {len(owners)}; use create_device_mesh for devices of one process."
        )
    order = [k for axis in range(rank) for k in (axis, rank + axis)]
    return blocks.transpose(order).reshape([m * n for m, n in zip(dcn_mesh_shape, mesh_shape, strict=True)])
