"""Collective operations over mesh axes, resolved to what processes and the devices of a process do.

An axis is blocks of devices, each of one process (`tinyxla.tracing.meshes.Blocks`). What talks over it becomes an
operation among the devices of a process, over the axis of the same name, and one among processes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal, axis_names, map_computations
from tinyxla.ops import dynamic_slices, elementwise, movement
from tinyxla.ops.barrier import opt_barrier
from tinyxla.ops.distributed import collectives, exchanges, varying
from tinyxla.ops.distributed.replica_groups import PROCESSES, Groups
from tinyxla.ops.op import OWN, Value
from tinyxla.partitioning.resharding import own_part, sliced
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace, with_axes
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.transforms.batch import with_own_axis
from tinyxla.transforms.computations import interpret, results, unpacked


class Axis(NamedTuple):
    """A mesh axis.

    Attributes:
        processes, lanes: how many blocks it has, and devices in each.
        groups: the processes that have blocks along it, in order.
        places: for each process its place in its group.
    """

    name: Hashable
    processes: int
    lanes: int
    groups: Groups
    places: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.processes * self.lanes


def axes_of_mesh(mesh: AbstractMesh) -> list[Axis]:
    """The axes of a mesh, in order."""
    blocks = mesh.blocks
    found: list[Axis] = []
    for k, name in enumerate(mesh.axis_names):
        count = blocks.processes[k]
        groups = np.moveaxis(blocks.ranks, k, -1).reshape(-1, count)
        places = np.zeros(int(blocks.ranks.max(initial=0)) + 1, np.int64)
        places[groups] = np.arange(count)
        found.append(Axis(name, count, blocks.lanes[k], _groups(groups), tuple(places.tolist())))
    return found


def _groups(members: Any) -> Groups:
    return tuple(tuple(int(rank) for rank in group) for group in members)


def among_processes(computation: Computation, axes: Sequence[Axis]) -> Computation:
    """The program of a device with what it does over axes of several processes done by processes, and what it does over
    axes along which it has one device done by that alone; the devices of a process are left to talk."""
    resolved = {axis.name: axis for axis in axes if axis.processes > 1 or axis.lanes == 1}
    lanes = {axis.name: axis.lanes for axis in axes if axis.lanes > 1}
    return with_axes(lanes, lambda: _Resolution(resolved).computation(computation))


class _Resolution:
    def __init__(self, axes: Mapping[Hashable, Axis]) -> None:
        self.axes = axes

    def computation(self, given: Computation) -> Computation:
        def device(*parameters: Any) -> list[Any]:
            return list(results(interpret(given, parameters, self._instruction)))

        made, _, _ = trace(device, given.parameter_shapes, given.name)
        return unpacked(made) if isinstance(given.root.shape, Shape) else made

    def _instruction(self, x: Instruction, operands: Sequence[Any]) -> Any:
        attributes: dict[str, Any] = x.attributes._asdict()
        if self.axes.keys().isdisjoint(axis_names(attributes)):
            return x.op(*operands, **attributes)
        axis = self.axes.get(attributes.get("axis_name"))
        if axis is None:
            return x.op(*operands, **map_computations(attributes, self.computation))
        if x.op in (varying.pvary, varying.recast):
            return operands[0]
        if x.op is varying.psum_invariant:
            total = collectives.sum_of(operands[0].dtype)
            return _all_reduce(axis, operands, {**collectives.all_reduce.defaults, "to_apply": total})
        if axis.size == 1:
            return alone(x.op, operands, attributes)
        rule = _RULES.get(x.op.name)
        if rule is None or (axis.lanes > 1 and (x.op.name not in _IN_TWO_STEPS or attributes.get("replica_groups"))):
            return _by_gathering(axis, x.op, operands, attributes)
        return rule(axis, operands, attributes)


def alone(op: Any, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """A collective operation of one device with itself."""
    rule = with_own_axis(attributes, attributes["axis_name"])
    pairs = op.batch(1, tuple(operands), (None,) * len(operands), **rule)
    values, axes = pairs if isinstance(pairs[0], tuple) else ((pairs[0],), (pairs[1],))
    found = [
        x if a is None else movement.reshape_to(x, (*x.shape[:a], *x.shape[a + 1 :]))
        for x, a in zip(values, axes, strict=True)
    ]
    return tuple(found) if isinstance(pairs[0], tuple) else found[0]


def _subgroups(axis: Axis, groups: Groups) -> Groups:
    """Groups of places along an axis as groups of processes."""
    if not groups:
        return axis.groups
    return tuple(tuple(members[k] for k in group) for members in axis.groups for group in groups)


def _over_processes(axis: Axis, attributes: dict[str, Any]) -> dict[str, Any]:
    groups = _subgroups(axis, attributes.get("replica_groups", ()))
    return {**attributes, "axis_name": PROCESSES, "replica_groups": groups}


def _all_reduce(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    if axis.lanes > 1:
        own = collectives.all_reduce(*operands, **{**attributes, "axis_name": axis.name})
        operands = own if isinstance(own, tuple) else (own,)
    if axis.processes == 1:
        return operands[0] if len(operands) == 1 else tuple(operands)
    return collectives.all_reduce(*operands, **_over_processes(axis, attributes))


def _all_gather(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    each = attributes["shard_count"] // axis.lanes
    if axis.lanes > 1:
        own = collectives.all_gather(*operands, **{**attributes, "shard_count": axis.lanes})
        operands = own if isinstance(own, tuple) else (own,)
    return collectives.all_gather(*operands, **{**_over_processes(axis, attributes), "shard_count": each})


def _reduce_scatter(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    given = {**_over_processes(axis, attributes), "shard_count": attributes["shard_count"] // axis.lanes}
    if axis.lanes == 1:
        return collectives.reduce_scatter(*operands, **given)
    total = {"to_apply": attributes["to_apply"], "axis_name": axis.name}
    summed = [collectives.all_reduce(x, **total) for x in operands]
    parts = [collectives.reduce_scatter(x, **given) for x in summed]
    dimension = attributes["scatter_dimension"]
    own = [own_part(x, dimension, axis.name, {axis.name: axis.lanes}) for x in parts]
    return own[0] if len(own) == 1 else tuple(own)


def _all_to_all(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    return exchanges.all_to_all(*operands, **_over_processes(axis, attributes))


def _collective_permute(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    pairs = tuple((group[s], group[t]) for group in axis.groups for s, t in attributes["source_target_pairs"])
    return exchanges.collective_permute(
        *operands, **{**attributes, "axis_name": PROCESSES, "source_target_pairs": pairs}
    )


def _collective_broadcast(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    return exchanges.collective_broadcast(*operands, **_over_processes(axis, attributes))


def _replica_id(axis: Axis, operands: Sequence[Any], attributes: dict[str, Any]) -> Value:
    """The place of the process, which it looks up in a table, and which nothing is folded with: so the programs of all
    processes are alike, and talk in one order."""
    table = movement.constant(literal=Literal(np.array(axis.places, np.uint32)))
    (number,) = opt_barrier(exchanges.replica_id(axis_name=PROCESSES))
    rank = elementwise.convert(number, new_element_type=element_type("s32"))
    place = movement.reshape_to(dynamic_slices.dynamic_slice(table, rank, dynamic_slice_sizes=(1,)), ())
    if axis.lanes == 1:
        return place
    own = exchanges.replica_id(axis_name=axis.name)
    return elementwise.add(elementwise.mul(place, movement.full(axis.lanes, np.uint32)), own)


def _by_gathering(axis: Axis, op: Any, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Any operation: each process has what all devices have, and computes what all have after it."""
    gathered = [
        _all_gather(
            axis,
            [movement.reshape_to(x, (1, *x.shape))],
            {
                **collectives.all_gather.defaults,
                "all_gather_dimension": 0,
                "shard_count": axis.size,
                "axis_name": axis.name,
            },
        )
        for x in operands
    ]
    given = {**attributes, "axis_name": OWN}
    found, mapped = op.batch(axis.size, tuple(gathered), (0,) * len(gathered), **given)
    number = elementwise.convert(_replica_id(axis, (), {}), new_element_type=element_type("s32"))
    own = [x if a is None else _row(x, a, number) for x, a in zip(results(found), results(mapped), strict=True)]
    return tuple(own) if isinstance(found, tuple) else own[0]


def _row(x: Value, axis: int, number: Value) -> Value:
    """The element of that number, s32[], along an axis."""
    return movement.reshape_to(sliced(x, axis, number, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


_IN_TWO_STEPS = frozenset(("all-gather", "all-reduce", "reduce-scatter", "replica-id"))  # lanes and processes apart
_RULES: dict[str, Callable[..., Any]] = {
    "all-gather": _all_gather,
    "all-reduce": _all_reduce,
    "all-to-all": _all_to_all,
    "collective-broadcast": _collective_broadcast,
    "collective-permute": _collective_permute,
    "reduce-scatter": _reduce_scatter,
    "replica-id": _replica_id,
}
