"""Replica groups: which replicas take part in a collective operation together.

A replica is one lane of a named axis. Programs that XLA's builder makes, and HLO text, speak of the replicas of the
whole program, whose axis has the name `REPLICAS`; a function under `vmap(..., axis_name="i")` speaks of the examples
along "i". Processes of an MPI program are the axis `PROCESSES`. In each case `replica_groups` has tuples of lanes, in
the order in which they count; no group at all stands for one group of all lanes, but of processes groups are always
given.

With several partitions of each replica, groups may also be of partitions or of devices. Which it is, follows from
`channel_id` and `use_global_device_ids` (`GroupMode`), and `device_groups` numbers all by devices: device
`replica * partition_count + partition`. Programs run on devices as lanes.

Sources: sections "AllGather", "AllReduce", "AllToAll", "CollectiveBroadcast" and "ReduceScatter" of the XLA documents;
the modes are those of XLA's `CollectiveOpGroupMode`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, AxisNameError
from tinyxla.hlo import Literal
from tinyxla.ops import indexing, movement
from tinyxla.ops.op import Ints, Value

Groups = tuple[Ints, ...]
Pairs = tuple[tuple[int, int], ...]  # (source, target)


class _Axis:
    """See `REPLICAS` and `PROCESSES`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


REPLICAS = _Axis("<the replicas of the program>")  # the name of the axis of a program's replicas
PROCESSES = _Axis("<the processes of the program>")  # that of the processes of an MPI program, by their ranks

# What collective operations are among `PROCESSES`, by their names; `process_collectives` has them.
among_processes: dict[str, Callable[..., Any]] = {}


def by_axis(name: str, alone: Callable[..., Any]) -> Callable[..., Any]:
    """The value or expansion of a collective operation: `alone` for a program of one replica, or that among processes,
    whose groups are always given."""

    def rule(*operands: Any, axis_name: Hashable, **attributes: Any) -> Any:
        if axis_name is not PROCESSES:
            return alone(*operands, axis_name=axis_name, **attributes)
        if not attributes.get("replica_groups", True):
            raise AttributeValueError(f"{name}: among processes replica_groups must be given, but is ().")
        return among_processes[name](*operands, **attributes)

    return rule


def check_alone(name: str, axis_name: Hashable, groups: Sequence[Sequence[int]] = ()) -> None:
    """An operation outside of any map or replicated execution is that of replica 0 of one."""
    if axis_name is not REPLICAS:
        raise AxisNameError(
            f"{name}: it is about the axis {axis_name!r}, so a program of one of its lanes cannot be run by itself; "
            f"call it within the function that is mapped over {axis_name!r}."
        )
    if any(replica for group in groups for replica in group):
        shown = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
        raise AttributeValueError(
            f"{name}: {{{shown}}} names replicas of which there is only number 0 when a computation is called; run "
            "several with execute_replicated."
        )


def check_groups(name: str, groups: Groups, *, equal_sizes: bool) -> None:
    """No replica twice, no negative one, no empty group; groups of one size where the operation asks for that."""
    members = [replica for group in groups for replica in group]
    if len(set(members)) < len(members) or any(replica < 0 for replica in members) or not all(groups):
        raise AttributeValueError(
            f"{name}: replica_groups must be non-empty groups which have a replica at most once, but is {groups}."
        )
    if equal_sizes and len({len(group) for group in groups}) > 1:
        raise AttributeValueError(f"{name}: replica_groups must all be of the same size, but is {groups}.")


def check_pairs(name: str, pairs: Pairs) -> None:
    """No replica is the source or the target of two pairs."""
    for what, replicas in zip(("sources", "targets"), zip(*pairs, strict=True), strict=False):
        if len(set(replicas)) < len(replicas) or any(replica < 0 for replica in replicas):
            raise AttributeValueError(
                f"{name}: the {what} of source_target_pairs must be distinct replicas, but are {replicas}."
            )


def all_lanes(name: str, groups: Groups, size: int) -> Groups:
    """The groups of an axis of this size, which must have each of its lanes."""
    if not groups:
        return (tuple(range(size)),)
    if sorted(lane for group in groups for lane in group) != list(range(size)):
        raise AttributeValueError(
            f"{name}: replica_groups must have each of the {size} replicas once, from 0 to {size - 1}, but is {groups}."
        )
    return groups


def check_lanes(name: str, what: str, lanes: Iterable[int], size: int) -> None:
    """Lanes of an axis of this size."""
    outside = [lane for lane in lanes if not 0 <= lane < size]
    if outside:
        raise AttributeValueError(
            f"{name}: {what} must name replicas from 0 to {size - 1}, but {outside[0]} is not one of these {size}."
        )


# --- rows: one for each lane ------------------------------------------------------------------------------------------


def rows(x: Value, numbers: Sequence[int | None]) -> Value:
    """These rows of an array, zeros for None."""
    count = x.shape[0]
    if list(numbers) == list(range(count)):
        return x
    if None in numbers:
        x = movement.concatenate(x, movement.full(0, x.dtype, (1, *x.shape[1:])), dimension=0)
    indices = np.array([count if number is None else number for number in numbers], np.int32)
    return indexing.gather(
        x,
        movement.constant(literal=Literal(indices)),
        offset_dims=tuple(range(1, x.ndim)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *x.shape[1:]),
    )


def by_group(x: Value, groups: Groups) -> Value:
    """Rows of lanes as an array (group, member, ...) of groups of one size."""
    ordered = rows(x, [lane for group in groups for lane in group])
    return movement.reshape_to(ordered, (len(groups), len(groups[0]), *x.shape[1:]))


def by_lane(x: Value, groups: Groups) -> Value:
    """The inverse of `by_group`."""
    flat = movement.reshape_to(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    ordered = [lane for group in groups for lane in group]
    return rows(flat, [ordered.index(lane) for lane in range(len(ordered))])


def group_of(groups: Groups, size: int) -> list[int | None]:
    """For each lane the number of its group; None outside of all groups."""
    found: list[int | None] = [None] * size
    for number, group in enumerate(groups):
        for lane in group:
            found[lane] = number
    return found


# --- devices ----------------------------------------------------------------------------------------------------------


class GroupMode(enum.Enum):
    """What the numbers in `replica_groups` are, and who meets whom."""

    CROSS_REPLICA = "replicas; each partition by itself"
    CROSS_PARTITION = "partitions; each replica by itself"
    CROSS_REPLICA_AND_PARTITION = "replicas; all their partitions together"
    FLATTENED_ID = "devices"


class Mesh(NamedTuple):
    """How many replicas of a program run, each in how many partitions."""

    replica_count: int
    partition_count: int

    @property
    def device_count(self) -> int:
        return self.replica_count * self.partition_count

    def device(self, replica: int, partition: int) -> int:
        return replica * self.partition_count + partition


def group_mode(name: str, channel_id: int | None, use_global_device_ids: bool | None) -> GroupMode:
    """The mode of a collective. Those without `use_global_device_ids` (None) are across partitions if they have a
    channel."""
    has_channel = channel_id is not None and channel_id > 0
    if not has_channel:
        if use_global_device_ids:
            raise AttributeValueError(
                f"{name}: use_global_device_ids=True needs a channel_id above 0, but it is {channel_id}; give one."
            )
        return GroupMode.CROSS_REPLICA
    if use_global_device_ids is None:
        return GroupMode.CROSS_PARTITION
    return GroupMode.FLATTENED_ID if use_global_device_ids else GroupMode.CROSS_REPLICA_AND_PARTITION


def device_groups(name: str, groups: Groups, mode: GroupMode, mesh: Mesh, *, covering: bool = True) -> Groups:
    """The groups as groups of devices. `covering`: each replica (partition, device) must be in one."""
    counts = {GroupMode.CROSS_PARTITION: mesh.partition_count, GroupMode.FLATTENED_ID: mesh.device_count}
    count = counts.get(mode, mesh.replica_count)
    if covering:
        groups = all_lanes(name, groups, count)
    else:
        check_lanes(name, "replica_groups", (lane for group in groups for lane in group), count)
        groups = groups or (tuple(range(count)),)
    if mode is GroupMode.FLATTENED_ID:
        return groups
    partitions = range(mesh.partition_count)
    if mode is GroupMode.CROSS_PARTITION:
        return tuple(tuple(mesh.device(r, p) for p in group) for r in range(mesh.replica_count) for group in groups)
    if mode is GroupMode.CROSS_REPLICA_AND_PARTITION:
        return tuple(tuple(mesh.device(r, p) for r in group for p in partitions) for group in groups)
    return tuple(tuple(mesh.device(r, p) for r in group) for p in partitions for group in groups)


def device_pairs(name: str, pairs: Pairs, mode: GroupMode, mesh: Mesh) -> Pairs:
    """Pairs of replicas (partitions) as pairs of devices."""
    crosses_partitions = mode is GroupMode.CROSS_PARTITION
    count = mesh.partition_count if crosses_partitions else mesh.replica_count
    check_lanes(name, "source_target_pairs", (lane for pair in pairs for lane in pair), count)
    if crosses_partitions:
        found = [(mesh.device(r, s), mesh.device(r, t)) for r in range(mesh.replica_count) for s, t in pairs]
    else:
        found = [(mesh.device(s, p), mesh.device(t, p)) for p in range(mesh.partition_count) for s, t in pairs]
    return tuple(found)
