"""Collective operations whose groups are numbers of devices: `replica_groups`, `channel_id` and `use_global_device_ids`
resolved for a number of replicas and partitions. Source: `tinyxla.ops.distributed.replica_groups`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops.distributed.replica_groups import REPLICAS, GroupMode, Mesh, device_groups, device_pairs, group_mode

COLLECTIVES = frozenset(
    """all-gather all-reduce all-to-all collective-broadcast collective-permute partition-id ragged-all-to-all
    reduce-scatter replica-id""".split()
)
CHANNELS = frozenset("send recv recv-done".split())
# What a replica does that others or the host take part in.
PARTICIPATING = COLLECTIVES | CHANNELS | {"infeed", "outfeed"}


class Same:
    """A computation, compared by identity: equal ones may stand at other lines."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.computation is other.computation

    def __hash__(self) -> int:
        return id(self.computation)


@lru_cache(256)
def resolved(computation: Computation, mesh: Mesh) -> Computation:
    """The computation with all its collective operations between devices."""
    if not computation.all_opcodes & PARTICIPATING:
        return computation
    made, _ = computation.copy()
    for x in made.instructions:
        given: dict[str, Any] = x.attributes._asdict()
        changed = map_computations(given, lambda inner: resolved(inner, mesh))
        if given.get("axis_name") is REPLICAS:
            changed |= between_devices(x, given, mesh)
        x.attributes = x.attributes._replace(**changed)
    return made


def between_devices(x: Instruction, given: dict[str, Any], mesh: Mesh) -> dict[str, Any]:
    """Of the attributes of a collective operation, or of an end of a channel, those that number replicas or partitions,
    with numbers of devices instead. The pairs of a channel are of partitions if replicas have several."""
    name = x.op.name
    if "partition_count" in given:
        return {"partition_count": mesh.partition_count}
    if name in CHANNELS:
        crosses = GroupMode.CROSS_PARTITION if mesh.partition_count > 1 else GroupMode.CROSS_REPLICA
        return {"source_target_pairs": device_pairs(name, given["source_target_pairs"], crosses, mesh)}
    if name not in COLLECTIVES:
        return {}
    mode = group_mode(name, given["channel_id"], given.get("use_global_device_ids"))
    if "source_target_pairs" in given:
        changed: dict[str, Any] = {"source_target_pairs": device_pairs(name, given["source_target_pairs"], mode, mesh)}
    else:
        covering = name != "collective-broadcast"
        changed = {"replica_groups": device_groups(name, given["replica_groups"], mode, mesh, covering=covering)}
    if "use_global_device_ids" in given:
        changed["use_global_device_ids"] = False
    return {**changed, "channel_id": None}
