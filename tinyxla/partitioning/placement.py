"""Arrays put where a placement says: on a device, or over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, MeshError, PytreeError, ShapeError, ShardingTypeError
from tinyxla.partitioning.array import ShardedArray, is_spread, shown
from tinyxla.partitioning.common_meshes import has_same_devices
from tinyxla.partitioning.execution import constrained, in_memory, resharded
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.axis_types import EVERY, axis_types, explicit_axes, manual_axes, with_auto_axes
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer, state
from tinyxla.tracing.device import Device, Placement, PlacementOf, check_placement
from tinyxla.tracing.float_zeros import is_float0
from tinyxla.tracing.meshes import AbstractMesh, AxisType, Mesh, current_mesh
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import (
    UNCONSTRAINED,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
    axes_of,
    layout_on,
    sums_of,
)
from tinyxla.tracing.transfers import check_host_values, check_move
from tinyxla.transforms.sharding_types import type_of


def is_placement(x: Any) -> bool:
    """Whether it is a leaf of a pytree of placements."""
    return x is None or isinstance(x, Placement)


def says_where(placements: Any) -> bool:
    """Whether a leaf of a pytree of placements says where an array is to be."""
    leaves, _ = pytrees.flatten_shown(placements, is_placement)
    return any(isinstance(x, Placement | Device) for x in leaves)


def placed(what: str, tree: Any, placements: Any, only_even: bool = True, is_type: bool = False) -> Any:
    """The arrays of a pytree where placements say; traced arrays are constrained to them.

    Args:
        what: names the function in errors.
        tree: a pytree of arrays, and of descriptions of such, which then say it.
        placements: a pytree of devices, shardings, specs for the current mesh, and None, that may stop earlier.
        only_even: whether each dimension must have equal parts; else traced arrays stay whole along one that has not.
        is_type: whether the placements say the types of the arrays, if the axes of a mesh are explicit; then their
            shardings speak of all dimensions.

    Raises:
        ArgumentError: a device that there is not.
        PytreeError: the structures differ.
        MeshError: a spec, but no mesh.
        ShapeError: a sharding that does not fit an array.
    """
    check_placement(what, placements)
    if not says_where(placements):
        return tree
    structure, pairs = _pairs(what, tree, placements)
    moved = [x if layout is None else _moved(what, x, layout, only_even, is_type) for x, layout in pairs]
    return pytrees.unflatten(structure, moved)


def placed_result(what: str, function: Callable[[], Any], placements: Any, is_type: bool = True) -> Any:
    """The result of a function where placements say; what it computes on the way is split as the compiler chooses.

    Raises:
        ShardingTypeError: a placement along an axis that is in types elsewhere, but not here.
    """
    for placement in pytrees.flatten_shown(placements, is_placement)[0]:
        _check_kinds(what, placement, is_type)
    return placed(what, with_auto_axes(EVERY, function), placements, is_type=is_type)


def _check_kinds(what: str, placement: Any, is_type: bool) -> None:
    """Refuse axes that are left to the compiler or manual here, where the placement is a type or its mesh has them in
    types, and a mesh of which other axes are in types than of the current one."""
    spec, mesh = _spec_and_mesh(placement)
    if mesh.empty:
        return
    around = current_mesh()
    pairs = zip(axis_types(around), mesh.axis_types, strict=False)
    is_other = any(x is AxisType.Explicit and y is AxisType.Auto for x, y in pairs)
    if is_other and around.shape_tuple == mesh.shape_tuple and isinstance(placement, NamedSharding):
        raise ShardingTypeError(
            f"{what}: a sharding is over {mesh}, but the current mesh is {around}; use a sharding of that mesh, or a "
            "PartitionSpec."
        )
    here = dict(zip(mesh.axis_names, axis_types(mesh), strict=True))
    for name in (name for part in spec for name in axes_of(part)):
        if (is_type or name in mesh.explicit_axes) and here[name] is not AxisType.Explicit:
            raise ShardingTypeError(
                f"{what}: {spec} names the axis {name!r}, which is {here[name].name} here; leave it out where it is "
                "no part of types, and use lax.with_sharding_constraint."
            )


def _spec_and_mesh(placement: Any) -> tuple[PartitionSpec, AbstractMesh]:
    """The spec of a placement, and the mesh that it is over; the empty ones for a placement that has none."""
    if isinstance(placement, NamedSharding):
        return placement.spec, placement.mesh
    if isinstance(placement, PartitionSpec):
        return placement, current_mesh()
    return PartitionSpec(), AbstractMesh()


def check_not_manual(what: str, placements: Any) -> None:
    """Refuse placements along axes that a function of parts around is about: inside of it each device has a part.

    Raises:
        ShardingTypeError: such a placement.
    """
    for placement in pytrees.flatten_shown(placements, is_placement)[0] if state.axes else ():
        spec, mesh = _spec_and_mesh(placement)
        manual = [name for part in spec for name in axes_of(part) if name in manual_axes(mesh)]
        if manual:
            raise ShardingTypeError(
                f"{what}: {spec} names the axis {manual[0]!r}, which the function of parts around is about: arrays in "
                "it are parts along that axis; leave it out."
            )


def check_agrees(what: str, tree: Any, placements: Any, moves_whole: bool = False) -> None:
    """Refuse arrays that are on devices already, but not as placements say. With `moves_whole` arrays of which each
    device has all may go to other devices that do.

    Raises:
        ArgumentError: such an array.
    """
    for x, layout in _arrays(what, tree, placements):
        is_sharded = isinstance(x, ShardedArray)
        kind = x.layout.memory_kind if is_sharded else "device"
        if kind != layout.memory_kind:
            raise ArgumentError(
                f"{what}: an argument of the type {Shape.of(x)} must be in the kind of memory "
                f"{layout.memory_kind}, but is in {kind}; use device_put."
            )
        if not is_sharded or x.layout.is_equivalent_to(layout, x.ndim):
            continue
        if not (moves_whole and x.is_fully_replicated and layout.is_fully_replicated):
            raise ArgumentError(
                f"{what}: an argument of shape {x.shape} must have the sharding {shown(layout)}, but has "
                f"{x.sharding}; use device_put, or leave the sharding out."
            )


def check_stays(what: str, tree: Any, placements: Any) -> None:
    """Refuse arrays that would go to other devices than those on which they are.

    Raises:
        ArgumentError: such an array.
    """
    for x, layout in _arrays(what, tree, placements):
        mesh = layout.mesh
        if (
            isinstance(x, ShardedArray)
            and x.committed
            and isinstance(mesh, Mesh)
            and not has_same_devices(x.mesh, mesh)
        ):
            raise ArgumentError(
                f"{what}: the arrays of one program must be sharded over one mesh, but the argument 0 of type "
                f"{Shape.of(x)} is on the devices {x.mesh.device_ids.ravel().tolist()} and the sharding on the "
                f"devices {mesh.device_ids.ravel().tolist()}; use device_put."
            )


def _arrays(what: str, tree: Any, placements: Any) -> Iterator[tuple[Any, NamedSharding]]:
    """The concrete arrays of a pytree of which placements say where they are to be, with that."""
    for subtree, layout in _pairs(what, tree, placements)[1] if says_where(placements) else ():
        if layout is not None:
            yield from ((x, layout) for x in pytrees.leaves(subtree) if isinstance(x, ShardedArray | ConcreteArray))


def with_subtrees(placements: Any, tree: Any, mismatch: str) -> tuple[pytrees.TreeDef, list[tuple[Any, Any]]]:
    """The structure of placements, and for each leaf of it the subtree that it is about, and the leaf.

    Raises:
        PytreeError: the tree has another structure; it begins with `mismatch`.
    """
    leaves, structure = pytrees.flatten_shown(placements, is_placement)
    try:
        subtrees = structure.flatten_up_to(tree)
    except ValueError as error:
        several = pytrees.differences(structure, pytrees.flatten_shown(tree)[1])
        place = next((x for x in several if not x[1].is_leaf()), None)
        raise PytreeError(f"{mismatch}: {_difference(*place) if place else error}.") from None
    return structure, list(zip(subtrees, leaves, strict=True))


def _difference(path: str, one: pytrees.TreeDef, other: pytrees.TreeDef) -> str:
    """The place where a tree of placements has another container than the tree of arrays."""
    first, second = (
        f"{x.type.__name__} of length {x.num_children}" if x.type in (list, tuple) else pytrees.structure_text(x)
        for x in (one, other)
    )
    return f"at {path or 'its root'} it is a {first}, and theirs is a {second}"


def _pairs(what: str, tree: Any, placements: Any) -> tuple[Any, list[tuple[Any, NamedSharding | None]]]:
    """The structure of placements, and for each leaf of it a subtree and where its arrays are to be."""
    structure, pairs = with_subtrees(placements, tree, f"{what}: the shardings have another structure than the arrays")
    for subtree, leaf in pairs:
        if isinstance(leaf, PlacementOf):
            for x in pytrees.leaves(subtree):
                leaf.check_array(what, x)
    return structure, [(x, _layout(what, leaf)) for x, leaf in pairs]


def _layout(what: str, placement: Any) -> NamedSharding | None:
    """A placement as a sharding over a mesh; None if it says nothing."""
    if isinstance(placement, PartitionSpec):
        if current_mesh().empty:
            raise MeshError(f"{what}: {placement} needs a mesh; use set_mesh, or pass a NamedSharding.")
        try:
            return NamedSharding(current_mesh(), placement)
        except ShapeError as error:
            if "_shardings" not in what:
                raise
            raise ShapeError(f"{what}: {str(error.args[0]).removeprefix('NamedSharding: ')}") from None
    if isinstance(placement, SingleDeviceSharding):
        return placement.layout
    if isinstance(placement, PlacementOf):
        placement.check_placed(what)
        return _layout(what, placement.sharding)
    if isinstance(placement, Device):
        return layout_on(placement)
    if isinstance(placement, NamedSharding):
        is_of_no_mesh = placement.mesh.empty and not isinstance(placement.mesh, Mesh)
        return None if is_of_no_mesh and placement.memory_kind == "device" else placement
    kind = placement.memory_kind if isinstance(placement, Placement) else None
    return None if kind is None else NamedSharding(AbstractMesh(), PartitionSpec(), memory_kind=kind)


def _moved(what: str, tree: Any, layout: NamedSharding, only_even: bool, is_type: bool) -> Any:
    is_type = is_type and bool(explicit_axes(layout.mesh))

    def moved(x: Any) -> Any:
        return x if is_float0(x) else _put(what, x, layout.with_rank(np.ndim(x)) if is_type else layout, only_even)

    return pytrees.map_tree(moved, tree)


def _beside_type(x: Any, layout: NamedSharding) -> NamedSharding:
    """A constraint that is about the axes left to the compiler: along explicit ones an array stays as its type says."""
    explicit = frozenset(explicit_axes(layout.mesh))
    if not explicit or explicit == frozenset(layout.mesh.axis_names) or not explicit.isdisjoint(layout.named_axes):
        return layout
    parts = (*layout.spec, *[None] * (x.ndim - len(layout.spec)))
    pairs = zip(type_of(x), parts, strict=True)
    joined = [part if part is UNCONSTRAINED or not own else (*own, *axes_of(part)) for own, part in pairs]
    sums = sums_of(type_of(x))
    return layout.update(spec=PartitionSpec(*joined, unreduced=sums.unreduced, reduced=sums.reduced))


def _put(what: str, x: Any, layout: NamedSharding, only_even: bool) -> Any:
    if hasattr(x, "update") and not isinstance(x, Array):  # a description of an array
        layout.dimension_axes(x.shape, what)
        return x.update(sharding=shown(layout))
    array = x if isinstance(x, Array) else as_array(x)
    if config.special:
        is_explicit = what in ("device_put", "reshard")
        check_host_values(what, (x,), is_explicit=is_explicit)
        if isinstance(layout.mesh, Mesh):
            check_move(what, array, shown(layout), is_explicit)
    if layout.mesh.empty and not isinstance(layout.mesh, Mesh):
        return _in_memory(array, layout)
    if isinstance(array, Tracer) and not only_even and array.ndim >= len(layout.spec):
        layout = _beside_type(array, layout)
    if isinstance(array, Tracer) and not only_even:
        layout = layout.with_even_parts(array.shape)
    layout.dimension_axes(array.shape, what)  # refuses one that does not fit
    is_one_device = layout.mesh.empty and isinstance(layout.mesh, Mesh) and layout.memory_kind == "device"
    if what == "device_put" and state.staging is not None and is_one_device and not isinstance(array, ShardedArray):
        return array  # a compiled function is on one set of devices, which its arguments say
    if isinstance(array, Tracer):
        is_abstract = not isinstance(layout.mesh, Mesh)
        return constrained(array, layout, in_memory=only_even) if is_abstract or is_spread(layout) else array
    if not isinstance(layout.mesh, Mesh) and not layout.mesh.empty:
        layout = layout.update(mesh=_with_devices(what, array, layout.mesh))
    return resharded(array, layout) if is_spread(layout) else array.concrete(what)


def _in_memory(array: Any, layout: NamedSharding) -> Any:
    """An array in a kind of memory, of which nothing else is said."""
    if isinstance(array, Tracer):
        return constrained(array, layout.update(spec=[UNCONSTRAINED] * array.ndim), in_memory=True)
    return in_memory(array, layout.memory_kind)


def _with_devices(what: str, array: Any, mesh: AbstractMesh) -> Mesh:
    """The mesh of devices that an abstract one stands for: that of the array, or the current one."""
    own = array.mesh if isinstance(array, ShardedArray) else None
    for found in (own, current_mesh()):
        if isinstance(found, Mesh) and found.shape_tuple == mesh.shape_tuple:
            return found
    where = "is on one device" if own is None else f"is over a mesh of the axes {own.shape_tuple}"
    raise ArgumentError(
        f"{what}: an abstract mesh of the axes {mesh.shape_tuple} has no devices, and the array {where}; pass one over "
        "such a mesh, or set it by set_mesh."
    )
