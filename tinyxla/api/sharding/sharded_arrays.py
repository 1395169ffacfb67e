"""Sharded arrays from their parts, and under another sharding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, LeakedTracerError, ShapeError
from tinyxla.partitioning.array import ShardedArray, from_callback, is_spread
from tinyxla.partitioning.placement import placed
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer
from tinyxla.tracing.device import Device, PlacementOf, check_placement
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import NamedSharding, Sharding, axes_of
from tinyxla.util.tracebacks import boundary


@boundary
def reshard(xs: Any, out_shardings: Any) -> Any:
    """The arrays of a pytree under other shardings; what a device lacks it gets from others.

    Args:
        xs: a pytree of arrays.
        out_shardings: a pytree of shardings, or of `PartitionSpec`s for the current mesh, that may stop earlier.

    Returns:
        A pytree of arrays.

    Raises:
        ArgumentError: a device that there is not.
        ShapeError: a sharding that does not fit an array.

    Example:
        >>> import tinyxla as tx
        >>> mesh = tx.make_mesh((1,), ("x",))
        >>> tx.reshard(tx.numpy.arange(2), tx.NamedSharding(mesh, tx.P("x"))).sharding.spec
        PartitionSpec('x')
    """
    return placed("reshard", xs, out_shardings, is_type=True)


def _sharding(what: str, sharding: Any) -> Sharding:
    check_placement(f"{what}: sharding", sharding)
    if isinstance(sharding, PlacementOf):
        sharding.check_placed(what)
        sharding = sharding.sharding
    if not isinstance(sharding, Sharding):
        raise ArgumentError(f"{what}: there must be a sharding, but got {sharding!r}.")
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        raise ArgumentError(
            f"{what}: {sharding.spec} is of summands, of which an array cannot be made; make one of the sum and "
            "reshard it, or use shard_map with such out_specs."
        )
    return sharding


def _made(
    what: str, shape: Sequence[int], sharding: Sharding, part: Callable[[tuple[slice, ...]], Any], dtype: Any
) -> Any:
    """The array whose parts a function gives; its element type is that of the first one, unless it is given."""
    sizes = tuple(map(operator.index, shape))
    if not isinstance(sharding, NamedSharding) or not is_spread(sharding):
        whole = as_array(part((slice(None),) * len(sizes)))
        if whole.shape != sizes:
            raise ShapeError(f"{what}: the part of the one device must be all, of shape {sizes}, not {whole.shape}.")
        array = whole if dtype is None else whole.astype(dtype)
        return placed(what, array, sharding)

    def concrete(index: tuple[slice, ...]) -> Any:
        found = part(index)
        if isinstance(found, Tracer):
            raise LeakedTracerError(
                f"{what}: cannot be called for traced parts, but one is {found!r}; call it outside."
            )
        return as_array(found)

    if dtype is not None:
        return from_callback(sizes, np.dtype(dtype), sharding, concrete, what=what)
    first, *_ = sharding.addressable_devices_indices_map(sizes).values()
    known = {repr(first): concrete(first)}
    wanted = known[repr(first)].dtype

    def once(index: tuple[slice, ...]) -> Any:
        found = known.pop(repr(index)) if repr(index) in known else concrete(index)
        if found.dtype != wanted:
            raise ArgumentError(
                f"{what}: all parts must have one dtype, but the first has {wanted.name} and one has "
                f"{found.dtype.name}; convert it with astype, or pass dtype."
            )
        return found

    return from_callback(sizes, wanted, sharding, once, what=what)


@boundary
def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any] | None = None, dtype: Any = None
) -> Array:
    """An array whose parts a function gives; each process asks for those of its devices.

    Args:
        shape: of the whole array.
        sharding: which part is on which device.
        data_callback: from a tuple of slices, the places of its elements, to a part.
        dtype: the element type; by default that of the first part.

    Returns:
        An array.

    Raises:
        ShapeError: a part has another shape, or the sharding does not fit.
        ArgumentError: a device that there is not, or parts of different element types without `dtype`.

    Example:
        >>> import numpy as np
        >>> import tinyxla as tx
        >>> mesh = tx.make_mesh((1,), ("x",))
        >>> whole = np.arange(4.0)
        >>> tx.make_array_from_callback((4,), tx.NamedSharding(mesh, tx.P("x")), lambda index: whole[index])
        Array([0., 1., 2., 3.], dtype=float32)
    """
    what = "make_array_from_callback"
    if data_callback is None:
        raise ArgumentError(f"{what}: data_callback must be a function of a tuple of slices.")
    return _made(what, shape, _sharding(what, sharding), data_callback, dtype)


@boundary
def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Array:
    """An array of the parts of this process's devices.

    Args:
        shape: of the whole array.
        sharding: which part is on which device.
        arrays: the parts, each on its device; of parts that were not placed each is that of the device of this process
            that is at its position in the sharding.
        dtype: the element type; by default that of the first part.

    Returns:
        An array.

    Raises:
        ShapeError: a part has another shape.
        ArgumentError: there is not one part for each device, they are on other devices, or have different element
            types.

    Example:
        >>> import tinyxla as tx
        >>> mesh = tx.make_mesh((1,), ("x",))
        >>> sharding = tx.NamedSharding(mesh, tx.P("x"))
        >>> tx.make_array_from_single_device_arrays((2,), sharding, [tx.numpy.arange(2)])
        Array([0, 1], dtype=int32)
    """
    what = "make_array_from_single_device_arrays"
    given = _sharding(what, sharding)
    if not isinstance(arrays, list | tuple):
        raise ArgumentError(f"{what}: arrays must be a list or tuple of arrays, but is {type(arrays).__name__}.")
    parts = list(arrays)
    for x in parts:
        if isinstance(x, Tracer):
            raise ArgumentError(f"{what}: the parts must be concrete, but one is traced: {x!r}.")
        if isinstance(x, Array) and len(x.addressable_shards) != 1:
            raise ArgumentError(
                f"{what}: each part must be on one device, but one has {len(x.addressable_shards)} parts on several."
            )
    places = given.addressable_devices_indices_map(tuple(shape))
    if len(parts) != len(places) or not all(isinstance(x, Array) for x in parts):
        raise ArgumentError(
            f"{what}: there must be an array for each of the {len(places)} devices of this process, but got "
            f"{len(parts)}: {parts!r:.60}."
        )
    if dtype is not None and any(x.dtype != np.dtype(dtype) for x in parts):
        raise ArgumentError(
            f"{what}: the parts must have the dtype {np.dtype(dtype).name} that is asked for, but one has "
            f"{next(x.dtype.name for x in parts if x.dtype != np.dtype(dtype))}; convert it with astype."
        )
    parts = _by_device(what, parts, list(places))
    by_place = {repr(index): x for index, x in zip(places.values(), parts, strict=True)}
    whole = repr((slice(None),) * len(shape))
    return _made(what, shape, given, lambda index: by_place.get(repr(index), by_place.get(whole)), dtype)


def _by_device(what: str, parts: list[Any], devices: list[Device]) -> list[Any]:
    """The parts in the order of devices; parts that were not placed are in it already."""
    if not any(isinstance(x, ShardedArray) for x in parts):
        return parts
    owners = [x.addressable_shards[0].device.id for x in parts]
    wanted = [device.id for device in devices]
    missing, others = sorted({*wanted} - {*owners}), sorted({*owners} - {*wanted})
    if missing or len(owners) > len(wanted):
        why = f"none is on {missing}, and some are on {others}" if others else f"are on {owners}"
        raise ArgumentError(
            f"{what}: the parts must be on the devices {wanted} of the sharding, one on each, but {why}; put each on "
            "its device by device_put."
        )
    return [parts[owners.index(k)] for k in wanted]


@boundary
def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Arrays from what each process has of them: the rows that belong to its devices, one after the other.

    Args:
        sharding: which part is on which device.
        local_data: a pytree of arrays. Along dimensions whose parts are on several processes it has those of this one;
            a dimension that has its global size already is taken to be whole.
        global_shape: of the whole arrays, a shape for all or a pytree of them; by default as many times that of
            `local_data` as there are processes along each dimension.

    Returns:
        A pytree of arrays.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: a device that there is not.

    Example:
        >>> import numpy as np
        >>> import tinyxla as tx
        >>> mesh = tx.make_mesh((1,), ("x",))
        >>> tx.make_array_from_process_local_data(tx.NamedSharding(mesh, tx.P("x")), np.arange(2))
        Array([0, 1], dtype=int32)
    """
    what = "make_array_from_process_local_data"
    given = _sharding(what, sharding)
    if global_shape is None or (isinstance(global_shape, tuple) and all(hasattr(n, "__index__") for n in global_shape)):
        return pytrees.map_tree(lambda x: _from_local(what, given, x, global_shape), local_data)
    return pytrees.map_tree(lambda x, shape: _from_local(what, given, x, shape), local_data, global_shape)


def _from_local(what: str, sharding: Sharding, local: Any, shape: Any) -> Any:
    local = np.asarray(local)
    if not is_spread(sharding) or not isinstance(sharding, NamedSharding):
        return _made(what, local.shape if shape is None else shape, sharding, lambda index: local[index], None)
    mesh: Any = sharding.mesh
    spec = [*sharding.spec, *[None] * (local.ndim - len(sharding.spec))]
    counts = [mesh.count_processes(axes_of(part)) for part in spec]
    sizes = tuple(n * count for n, count in zip(local.shape, counts, strict=True)) if shape is None else tuple(shape)
    places = list(sharding.addressable_devices_indices_map(sizes).values())
    starts = [min((s.start or 0) for s in along) for along in zip(*places, strict=True)]

    def part(index: tuple[slice, ...]) -> Any:
        def own(s: slice, start: int, n: int, size: int) -> slice:
            if s.start is None or n == size:
                return s
            return slice(s.start - start, s.stop - start)

        return local[tuple(map(own, index, starts, local.shape, sizes))]

    return _made(what, sizes, sharding, part, None)
