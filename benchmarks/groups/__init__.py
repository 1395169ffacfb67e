"""The workloads, group by group."""

from benchmarks.groups import (
    collectives,
    contractions,
    control_flow,
    elementwise,
    indexing,
    large_arrays,
    large_control_flow,
    large_programs,
    latency,
    random_numbers,
    reductions,
    training,
    windows,
)
from benchmarks.workload import Calls, Once, Workload

GROUPS: dict[str, tuple[Workload | Calls | Once, ...]] = {
    "Element-wise": elementwise.WORKLOADS,
    "Reductions": reductions.WORKLOADS,
    "Large arrays": large_arrays.WORKLOADS,
    "Contractions": contractions.WORKLOADS,
    "Windows": windows.WORKLOADS,
    "Indexing and order": indexing.WORKLOADS,
    "Control flow": control_flow.WORKLOADS,
    "Training steps": training.WORKLOADS,
    "Random numbers": random_numbers.WORKLOADS,
    "Latency": latency.WORKLOADS,
    "Large control flow": large_control_flow.WORKLOADS,
    "Large programs": large_programs.WORKLOADS,
    "Collectives": collectives.WORKLOADS,
}
