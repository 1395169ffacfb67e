"""Arrays put where a sharding says. Over a mesh of one device nothing moves, but an array tells the sharding with which
it was placed."""

from __future__ import annotations

from typing import Any

from tinyxla.errors import PytreeError
from tinyxla.partitioning.array import ShardedArray, is_spread
from tinyxla.partitioning.execution import constrained, resharded
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import Tracer
from tinyxla.tracing.device import Placement
from tinyxla.tracing.meshes import Mesh, current_mesh
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec


def _is_placement(x: Any) -> bool:
    return x is None or isinstance(x, Placement)


def names_mesh(placements: Any) -> bool:
    """Whether a leaf of a pytree of placements says how an array is laid out over a mesh."""
    leaves, _ = pytrees.flatten_shown(placements, _is_placement)
    return any(isinstance(x, NamedSharding | PartitionSpec) for x in leaves)


def placed(what: str, tree: Any, placements: Any) -> Any:
    """The arrays of a pytree with shardings. What is placed without a mesh stays as it is; traced arrays are
    constrained to the shardings.

    Args:
        what: names the function in errors.
        tree: a pytree of arrays.
        placements: a pytree of devices, shardings, specs for the current mesh, and None, that may stop earlier.

    Raises:
        PytreeError: the structures differ.
    """
    if not names_mesh(placements):
        return tree
    leaves, structure = pytrees.flatten_shown(placements, _is_placement)
    try:
        subtrees = structure.flatten_up_to(tree)
    except ValueError as error:
        raise PytreeError(f"{what}: the shardings have another structure than the arrays: {error}") from None
    return pytrees.unflatten(structure, [_with_one(what, x, leaf) for x, leaf in zip(subtrees, leaves, strict=True)])


def _with_one(what: str, tree: Any, placement: Any) -> Any:
    if isinstance(placement, PartitionSpec) and not current_mesh().empty:
        placement = NamedSharding(current_mesh(), placement)
    if not isinstance(placement, NamedSharding):
        return tree
    return pytrees.map_tree(lambda x: _put(what, x, placement), tree)


def _put(what: str, x: Any, sharding: NamedSharding) -> Any:
    if isinstance(x, Array):
        sharding.dimension_axes(x.shape, what)  # refuses one that does not fit
    if is_spread(sharding) and isinstance(x, Tracer):
        return constrained(x, sharding)
    if is_spread(sharding) and isinstance(x, ConcreteArray | ShardedArray):
        return resharded(x, sharding)
    return x.with_sharding(sharding) if type(x) is ConcreteArray and isinstance(sharding.mesh, Mesh) else x
