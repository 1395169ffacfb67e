"""Meshes of the devices of this process for tests, which are skipped if there are too few."""

from __future__ import annotations

import contextlib
import functools
import math
import unittest
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from tinyxla.api.sharding.devices import devices, local_devices
from tinyxla.sharding import set_mesh
from tinyxla.tracing.meshes import AxisType, Mesh, make_mesh

MeshSpec = list[tuple[str, int]]


@contextlib.contextmanager
def with_mesh(named_shape: MeshSpec) -> Generator[None]:
    """A context with the mesh of these names and sizes of axes."""
    names, sizes = [name for name, _ in named_shape], [size for _, size in named_shape]
    found, size = list(local_devices()), math.prod(sizes)
    if len(found) < size:
        raise unittest.SkipTest(f"Test requires {size} local devices")
    with Mesh(np.array(found[:size]).reshape(sizes), names):
        yield


def with_mesh_from_kwargs(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called in the mesh which its argument `mesh` describes."""
    return lambda *args, **kwargs: with_mesh(kwargs["mesh"])(f)(*args, **kwargs)


def create_mesh(
    mesh_shape: Sequence[int],
    axis_names: Any,
    iota_order: bool = False,
    axis_types: Sequence[AxisType] | None = None,
) -> Mesh:
    """A mesh of the first devices, whose axes are left to the compiler if no types are given.

    Args:
        mesh_shape, axis_names: sizes and names of axes.
        iota_order: whether devices are in the order of their numbers; else `make_mesh` chooses.
        axis_types: their types.
    """
    size, found = math.prod(mesh_shape), devices()
    if len(found) < size:
        raise unittest.SkipTest(f"Test requires {size} global devices and found {len(found)}.")
    if iota_order:
        chosen = sorted(found, key=lambda device: device.id)[:size]
        types = None if axis_types is None else tuple(axis_types)
        return Mesh(np.array(chosen).reshape(mesh_shape), axis_names, axis_types=types)
    return make_mesh(mesh_shape, axis_names, tuple(axis_types or (AxisType.Auto,) * len(mesh_shape)))


def with_explicit_mesh(
    sizes: Sequence[int],
    names: Sequence[str],
    axis_types: Sequence[AxisType] | None = None,
    iota_order: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of tests that are called with a mesh, which is the current one; its axes are explicit if no types are
    given."""

    def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def over_mesh(*args: Any, **kwargs: Any) -> Any:
            mesh = create_mesh(sizes, names, iota_order, axis_types or (AxisType.Explicit,) * len(names))
            with set_mesh(mesh):
                return fn(*args, **kwargs, mesh=mesh)

        del over_mesh.__wrapped__  # whose argument `mesh` would be a fixture of pytest's
        return over_mesh

    return decorated
