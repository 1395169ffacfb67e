"""What processes of one program tell each other outside of compiled functions: arrays of all, of one, and barriers.

Every process must call these functions, in the same order.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from tinyxla.api.sharding.sharded_arrays import make_array_from_process_local_data, reshard
from tinyxla.errors import ArgumentError
from tinyxla.partitioning.placement import with_subtrees
from tinyxla.runtime import mpi
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.device import process_count, process_index
from tinyxla.tracing.meshes import Mesh
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "process_allgather",
    "sync_global_devices",
]


def _of_all(value: Any) -> list[Any]:
    """What each process gives, in their order."""
    if process_count() == 1:
        return [value]
    return [pickle.loads(data) for data in mpi.world().all_gather_bytes(pickle.dumps(value))]


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes, on each.

    Args:
        in_tree: a pytree of arrays. One that is sharded over processes is given whole.
        tiled: put arrays of one process each one after the other along their first axis; else along a new one.

    Returns:
        A pytree of NumPy arrays.

    Raises:
        TracerArrayConversionError: an array that is traced.

    Example:
        >>> import numpy as np
        >>> from tinyxla.experimental.multihost_utils import process_allgather
        >>> process_allgather(np.array([1, 2]))
        array([[1, 2]])
    """

    def gathered(x: Any) -> np.ndarray[Any, Any]:
        if isinstance(x, Array) and not x.is_fully_addressable:
            sharding: Any = x.sharding
            return np.asarray(reshard(x, NamedSharding(sharding.mesh, PartitionSpec())))
        parts = _of_all(np.asarray(x))
        if not tiled:
            return np.stack(parts)
        return parts[0] if len(parts) == 1 else np.concatenate([np.atleast_1d(part) for part in parts])

    return pytrees.map_tree(gathered, in_tree)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of one process, on all.

    Args:
        in_tree: a pytree of arrays, of the same structure on all processes.
        is_source: whether this process is the one; by default process 0 is.

    Returns:
        A pytree of NumPy arrays.

    Raises:
        ArgumentError: no process is the source, or several are.

    Example:
        >>> from tinyxla.experimental.multihost_utils import broadcast_one_to_all
        >>> broadcast_one_to_all({"step": 3})
        {'step': array(3)}
    """
    source = process_index() == 0 if is_source is None else bool(is_source)
    leaves, structure = pytrees.flatten_shown(in_tree)
    given = _of_all([np.asarray(x) for x in leaves] if source else None)
    sources = [values for values in given if values is not None]
    if len(sources) != 1 and process_count() > 1:
        raise ArgumentError(f"broadcast_one_to_all: is_source must be True on one process, but is on {len(sources)}.")
    return pytrees.unflatten(structure, sources[0] if sources else [np.asarray(x) for x in leaves])


def sync_global_devices(name: str) -> None:
    """Wait until all processes come by.

    Args:
        name: says where; an error if others are elsewhere.

    Raises:
        AssertionError: another process waits with another name.

    Example:
        >>> from tinyxla.experimental.multihost_utils import sync_global_devices
        >>> sync_global_devices("loaded")
    """
    names = _of_all(name)
    if any(other != name for other in names):
        raise AssertionError(f"sync_global_devices: the processes wait at {names}, each with its own name.")


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Check that all processes have the same arrays.

    Args:
        in_tree: a pytree of arrays.
        fail_message: what the error says first.

    Raises:
        AssertionError: a process has others.

    Example:
        >>> from tinyxla.experimental.multihost_utils import assert_equal
        >>> assert_equal({"seed": 0}, "seeds differ")
    """
    own = [np.asarray(x) for x in pytrees.leaves(in_tree)]
    for number, other in enumerate(_of_all(own)):
        if len(other) != len(own) or not all(map(np.array_equal, own, other)):
            raise AssertionError(f"{fail_message} Process {number} has {other}, but process {process_index()} {own}.")


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays of all processes from those that each has for its devices.

    Args:
        local_inputs: a pytree of arrays.
        global_mesh: the devices of all processes.
        pspecs: a pytree of `PartitionSpec`s that may stop earlier than the arrays.

    Returns:
        A pytree of arrays.

    Raises:
        PytreeError: the structures differ.
        ShapeError: a spec that does not fit an array.

    Example:
        >>> import numpy as np
        >>> import tinyxla as tx
        >>> from tinyxla.experimental.multihost_utils import host_local_array_to_global_array
        >>> host_local_array_to_global_array(np.arange(2), tx.make_mesh((1,), ("x",)), tx.P("x"))
        Array([0, 1], dtype=int32)
    """

    def of_all(x: Any, spec: Any) -> Any:
        if isinstance(x, Array) and not x.is_fully_addressable:
            return x
        return make_array_from_process_local_data(NamedSharding(global_mesh, spec), np.asarray(x))

    return _by_specs("host_local_array_to_global_array", of_all, local_inputs, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Of arrays of all processes what the devices of this one have, as one array over these.

    Args:
        global_inputs: a pytree of arrays.
        global_mesh: the devices of all processes.
        pspecs: a pytree of `PartitionSpec`s that may stop earlier than the arrays.

    Returns:
        A pytree of arrays.

    Raises:
        PytreeError: the structures differ.
        ShapeError: a spec that does not fit an array.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.experimental.multihost_utils import global_array_to_host_local_array
        >>> global_array_to_host_local_array(tx.numpy.arange(2), tx.make_mesh((1,), ("x",)), tx.P("x"))
        Array([0, 1], dtype=int32)
    """

    def of_this(x: Any, spec: Any) -> Any:
        whole = reshard(x, NamedSharding(global_mesh, spec))
        if whole.is_fully_addressable:
            return whole
        shards = whole.addressable_shards
        starts = [min(s.start or 0 for s in along) for along in zip(*(s.index for s in shards), strict=True)]
        stops = [
            max(n if s.stop is None else s.stop for s in along)
            for n, along in zip(whole.shape, zip(*(s.index for s in shards), strict=True), strict=True)
        ]
        local = np.empty([b - a for a, b in zip(starts, stops, strict=True)], whole.dtype)
        for shard in shards:
            offsets = zip(shard.index, starts, shard.data.shape, strict=True)
            place = tuple(slice((s.start or 0) - a, (s.start or 0) - a + n) for s, a, n in offsets)
            local[place] = np.asarray(shard.data)
        return reshard(local, NamedSharding(global_mesh.local_mesh, spec))

    return _by_specs("global_array_to_host_local_array", of_this, global_inputs, pspecs)


def _by_specs(what: str, function: Any, tree: Any, pspecs: Any) -> Any:
    """A function of each array and its spec."""
    structure, pairs = with_subtrees(pspecs, tree, f"{what}: the specs have another structure than the arrays")
    made = [
        pytrees.map_tree(lambda x, spec=spec: function(x, PartitionSpec() if spec is None else spec), subtree)
        for subtree, spec in pairs
    ]
    return pytrees.unflatten(structure, made)
