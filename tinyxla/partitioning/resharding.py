"""Resharding: the part that a device has of an array under one sharding from that under another.

A dimension that does not divide evenly among devices has parts of equal sizes all the same: it is continued at its end
by elements of any value. An axis that moves from one dimension to another is an all-to-all; one that goes is an
all-gather; one that comes is a slice, which needs no communication. Slices come first where they can, since they leave
less to send.

Source: "Memory-efficient array redistribution through portable collective communication" (Rink et al., 2021).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Literal
from tinyxla.ops import dynamic_slices, elementwise, movement
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.op import Value
from tinyxla.shapes import element_type
from tinyxla.tracing.shardings import Spec

Mesh = Mapping[Hashable, int]


def count(axes: Sequence[Any], mesh: Mesh) -> int:
    """How many parts a dimension has that is split along axes."""
    return math.prod(mesh[name] for name in axes)


def part_size(size: int, axes: Sequence[Any], mesh: Mesh) -> int:
    """The size of each part of a dimension that is split along axes."""
    return -(-size // count(axes, mesh))


def reshard(x: Value, sizes: Sequence[int], before: Spec, after: Spec, mesh: Mesh) -> Value:
    """The part under the sharding `after` of an array of these sizes whose part under `before` is x."""
    current = [list(axes) for axes in before]
    for d, size in enumerate(sizes):
        x = _continued(x, d, size, current, after, mesh)
    x = _sliced_early(x, current, after, mesh)
    x = _exchanged(x, current, after, mesh)
    for d, axes in enumerate(current):
        kept = next((k for k, axis in enumerate(axes) if list(after[d])[k : k + 1] != [axis]), len(axes))
        x = gathered(x, d, axes[kept:], mesh)
        del axes[kept:]
    for d, size in enumerate(sizes):
        if not after[d] and x.shape[d] > size:
            x = movement.slice_axis(x, d, 0, size)
    for d, axes in enumerate(current):
        for axis in after[d][len(axes) :]:
            x = own_part(x, d, axis, mesh)
    return x


def _continued(x: Value, d: int, size: int, current: list[list[Any]], after: Spec, mesh: Mesh) -> Value:
    """Make a dimension as long before and after. Where equal parts of it differ in their sizes, it is gathered."""
    total = part_size(size, after[d], mesh) * count(after[d], mesh)
    if after[d] and current[d] and x.shape[d] * count(current[d], mesh) != total:
        x = movement.slice_axis(gathered(x, d, current[d], mesh), d, 0, size)
        current[d] = []
    if after[d] and not current[d] and x.shape[d] < total:
        config = tuple((0, total - size if k == d else 0, 0) for k in range(x.ndim))
        return movement.pad(x, movement.full(0, x.dtype), padding_config=config)
    return x


def _sliced_early(x: Value, current: list[list[Any]], after: Spec, mesh: Mesh) -> Value:
    """Dimensions that become more parts, by axes that no dimension has."""
    for d, axes in enumerate(current):
        while len(axes) < len(after[d]) and axes == list(after[d])[: len(axes)]:
            axis = after[d][len(axes)]
            if any(axis in others for others in current):
                break
            x = own_part(x, d, axis, mesh)
            axes.append(axis)
    return x


def _exchanged(x: Value, current: list[list[Any]], after: Spec, mesh: Mesh) -> Value:
    """Axes that move from where they are the minor one to where they are the next one."""
    for d, axes in enumerate(current):
        while axes and axes != list(after[d])[: len(axes)]:
            axis = axes[-1]
            to = [k for k, a in enumerate(current) if list(after[k])[: len(a) + 1] == [*a, axis]]
            if not to or x.shape[to[0]] % mesh[axis]:
                break
            axes.pop()
            x = exchange(x, to[0], d, axis, mesh)
            current[to[0]].append(axis)
    return x


def gathered(x: Value, dimension: int, axes: Sequence[Any], mesh: Mesh) -> Value:
    """The parts of a dimension of all devices along axes."""
    for axis in reversed(axes):
        x = collectives.all_gather(x, all_gather_dimension=dimension, shard_count=mesh[axis], axis_name=axis)
    return x


def exchange(x: Value, split: int, concat: int, axis: Hashable, mesh: Mesh) -> Value:
    """All-to-all along an axis: dimension `split` is divided among the devices, whose parts of `concat` are joined."""
    parts = movement.move_axis(collectives.divided(x, split, mesh[axis]), split, 0)
    moved = exchanges.all_to_all(parts, dimensions=(0,), axis_name=axis)
    return collectives.merged(movement.move_axis(moved, 0, concat), concat)


def own_part(x: Value, dimension: int, axis: Hashable, mesh: Mesh) -> Value:
    """The device's own of equal parts of a dimension."""
    size = x.shape[dimension] // mesh[axis]
    return sliced(x, dimension, scaled_index(axis, size), size)


def sliced(x: Value, dimension: int, start: Value, size: int) -> Value:
    """Elements of one dimension from a computed place on, an s32[]."""
    starts = [movement.constant(literal=Literal(np.zeros((), np.int32)))] * x.ndim
    starts[dimension] = start
    sizes = (*x.shape[:dimension], size, *x.shape[dimension + 1 :])
    return dynamic_slices.dynamic_slice(x, *starts, dynamic_slice_sizes=sizes)


def scaled_index(axis: Hashable, size: int) -> Value:
    """The number of the device along an axis times a size, as s32[]."""
    number = elementwise.convert(exchanges.replica_id(axis_name=axis), new_element_type=element_type("s32"))
    return elementwise.mul(number, movement.full(size, np.int32))


def index(axes: Sequence[Any], mesh: Mesh) -> Value:
    """The number of the device among those along several axes, as s32[]."""
    found = movement.full(0, np.int32)
    for k, axis in enumerate(axes):
        own = scaled_index(axis, count(axes[k + 1 :], mesh))
        found = own if k == 0 else elementwise.add(found, own)
    return found
