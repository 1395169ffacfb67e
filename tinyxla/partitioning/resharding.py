"""Resharding: the part that a device has of an array under one sharding from that under another.

An axis that moves from one dimension to another is an all-to-all; one that goes is an all-gather; one that comes is a
slice, which needs no communication. Slices come first where they can, since they leave less to send.

Source: "Memory-efficient array redistribution through portable collective communication" (Rink et al., 2021).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from tinyxla.hlo import Literal
from tinyxla.ops import collectives, dynamic_slices, elementwise, exchanges, movement
from tinyxla.ops.op import Value
from tinyxla.shapes import element_type
from tinyxla.tracing.shardings import Spec

Mesh = Mapping[Hashable, int]


def reshard(x: Value, before: Spec, after: Spec, mesh: Mesh) -> Value:
    """The part under the sharding `after` of an array whose part under `before` is x."""
    current = [list(axes) for axes in before]
    x = _sliced_early(x, current, after, mesh)
    x = _exchanged(x, current, after, mesh)
    for d, axes in enumerate(current):
        while axes != list(after[d])[: len(axes)]:
            axis = axes.pop()
            x = collectives.all_gather(x, all_gather_dimension=d, shard_count=mesh[axis], axis_name=axis)
    for d, axes in enumerate(current):
        for axis in after[d][len(axes) :]:
            x = own_part(x, d, axis, mesh)
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


def exchange(x: Value, split: int, concat: int, axis: Hashable, mesh: Mesh) -> Value:
    """All-to-all along an axis: dimension `split` is divided among the devices, whose parts of `concat` are joined."""
    count = mesh[axis]
    parts = movement.move_axis(collectives.divided(x, split, count), split, 0)
    moved = exchanges.all_to_all(parts, dimensions=(0,), axis_name=axis)
    return collectives.merged(movement.move_axis(moved, 0, concat), concat)


def own_part(x: Value, dimension: int, axis: Hashable, mesh: Mesh) -> Value:
    """The device's own of equal parts of a dimension."""
    size = x.shape[dimension] // mesh[axis]
    zero = movement.constant(literal=Literal(np.zeros((), np.int32)))
    starts = [zero] * x.ndim
    starts[dimension] = scaled_index(axis, size)
    sizes = (*x.shape[:dimension], size, *x.shape[dimension + 1 :])
    return dynamic_slices.dynamic_slice(x, *starts, dynamic_slice_sizes=sizes)


def scaled_index(axis: Hashable, size: int) -> Value:
    """The number of the device along an axis times a size, as s32[]."""
    number = elementwise.convert(exchanges.replica_id(axis_name=axis), new_element_type=element_type("s32"))
    return elementwise.mul(number, movement.full(size, np.int32))
