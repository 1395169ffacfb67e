"""One process of a library's that checks and measures workloads, of as many as mpirun started.

    mpirun -n 2 python -m benchmarks.processes.measure jax DIRECTORY

In the directory are the `request.json` and, of the results of the same programs over devices of one process, the
`values.npz`. Each process compares its parts with these before it measures, and writes the times of its rounds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes.calls import LOOP_SIZES, OPERATIONS, SIZES, everyone_of_mpi, looped, single
from benchmarks.processes.workloads import ShardedWorkload, mesh_of, programs

LIBRARIES = ("tinyxla", "mpi4py", "jax")
ROUNDS = 5
LARGEST_COMPARED = 16 << 20  # bytes of arguments; longer arrays are of the same programs
SELDOM = 1e-3  # the part of elements that may differ: where a step of Adam has the sign of a gradient that is nearly 0

Part = tuple[Any, Any]  # its place in the whole array, and its value
Run = tuple[Callable[[], object], Callable[[object], Iterator[list[Part]]]]


@dataclass(frozen=True)
class Request:
    """A selection of workloads to measure: those of some kinds, small ones if it is quick, each at some scales; without
    scales at the number of processes."""

    kinds: tuple[str, ...] = ("single", "looped", "program")
    quick: bool = False
    scales: tuple[int, ...] = ()

    def workloads(self) -> list[ShardedWorkload]:
        """In the order of the tables."""
        sizes, loop_sizes = (SIZES[:3], LOOP_SIZES[:2]) if self.quick else (SIZES, LOOP_SIZES)
        found = {
            "single": [single(operation, size) for operation in OPERATIONS for size in sizes],
            "looped": [looped(operation, size) for operation in OPERATIONS for size in loop_sizes],
            "program": [*(programs(width=64) if self.quick else programs()).values()],
        }
        return [x for kind in self.kinds for x in found[kind]]

    def rows(self, processes: int) -> dict[str, tuple[ShardedWorkload, int]]:
        """The rows by name: a workload and a scale."""
        scales = self.scales or (processes,)
        if not self.scales:
            return {x.name: (x, processes) for x in self.workloads()}
        return {f"{x.name} x {scale}": (x, scale) for x in self.workloads() for scale in scales}

    def write(self, directory: Path) -> None:
        (directory / "request.json").write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(directory: Path) -> Request:
        given = json.loads((directory / "request.json").read_text())
        return Request(tuple(given["kinds"]), given["quick"], tuple(given["scales"]))


def is_compared(workload: ShardedWorkload, scale: int) -> bool:
    """Whether its values are compared: of long arrays they are not."""
    arrays = _leaves(workload.arguments(scale))
    return sum(4 * int(np.prod(x.shape)) for x in arrays) <= LARGEST_COMPARED


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, tuple | list) and not hasattr(tree, "shape"):
        return [leaf for x in tree for leaf in _leaves(x)]  # pyright: ignore[reportUnknownVariableType]
    return [tree]


def write_values(request: Request, processes: int, directory: Path) -> None:
    """The results of all programs, over devices of this process."""
    import tinyxla as tx

    tx.config.update("num_cpu_devices", processes)
    mesh, values = mesh_of(tx), {}
    for name, (workload, scale) in request.rows(processes).items():
        if is_compared(workload, scale):
            found = tx.jit(workload.make(tx, mesh))(*workload.placed(tx, mesh, scale))
            leaves = tx.tree_util.tree_leaves(found)
            values |= {f"{name}: result {k}": np.asarray(x) for k, x in enumerate(leaves)}
    np.savez(directory / "values.npz", **values)


# --- the libraries ----------------------------------------------------------------------------------------------------


def _by_compiler(tx: Any, rank: int) -> tuple[int, Callable[[ShardedWorkload, int], Run]]:
    mesh = mesh_of(tx)

    def parts(result: object) -> Iterator[list[Part]]:
        for leaf in tx.tree_util.tree_leaves(result):
            yield [(shard.index, shard.data) for shard in leaf.addressable_shards]

    def prepare(workload: ShardedWorkload, scale: int) -> Run:
        function, arguments = tx.jit(workload.make(tx, mesh)), workload.placed(tx, mesh, scale)
        return lambda: tx.block_until_ready(function(*arguments)), parts

    return rank, prepare


def _tinyxla() -> tuple[int, Callable[[ShardedWorkload, int], Run]]:
    import tinyxla as tx

    tx.distributed.initialize()
    return _by_compiler(tx, tx.distributed.process_index())


def _jax() -> tuple[int, Callable[[ShardedWorkload, int], Run]]:
    import jax

    rank, count = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{os.environ['COORDINATOR_PORT']}", count, rank)
    return _by_compiler(jax, rank)


def _mpi4py() -> tuple[int, Callable[[ShardedWorkload, int], Run]]:
    everyone = everyone_of_mpi()
    rank, count = everyone.rank, everyone.size

    def parts(result: Any) -> Iterator[list[Part]]:
        yield [(..., result)] if result.size == 1 else [(slice(rank * result.size, (rank + 1) * result.size), result)]

    def prepare(workload: ShardedWorkload, scale: int) -> Run:
        assert workload.in_mpi is not None
        (argument,) = workload.arguments(scale)
        own = argument.value(np.random.default_rng(0)).reshape(count, -1)[rank].copy()
        return workload.in_mpi(everyone, own), parts

    return rank, prepare


# --- one process ------------------------------------------------------------------------------------------------------


def check(name: str, parts: Iterator[Sequence[Part]], values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Compare the parts of each result with its value.

    Raises:
        AssertionError: more than `SELDOM` of the elements differ.
    """
    for k, of_result in enumerate(parts):
        whole = values[f"{name}: result {k}"]
        bound = 2e-4 * np.abs(whole).max(initial=1e-30)
        for place, value in of_result:
            expected = whole if np.size(value) == whole.size else whole[place]
            wrong = np.mean(~(np.abs(np.asarray(value) - expected) <= bound + 2e-3 * np.abs(expected)))
            assert wrong <= SELDOM, f"{name}: result {k}: of the part {place} {wrong:.1%} is wrong"


def time_rounds(call: Callable[[], object], workload: ShardedWorkload, quick: bool) -> list[float]:
    """The seconds of an operation, in each of several rounds."""
    repeats = 2 if quick else workload.repeats
    times: list[float] = []
    for _ in range(1 if quick else ROUNDS):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter() - start) / repeats / workload.operations)
    return times


def main() -> None:
    library, directory = sys.argv[1], Path(sys.argv[2])
    request = Request.read(directory)
    values = np.load(directory / "values.npz")
    processes = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    rank, prepare = {"tinyxla": _tinyxla, "mpi4py": _mpi4py, "jax": _jax}[library]()
    found: dict[str, list[float]] = {}
    for name, (workload, scale) in request.rows(processes).items():
        if library == "mpi4py" and workload.in_mpi is None:
            continue
        call, parts = prepare(workload, scale)
        result = call()
        if is_compared(workload, scale):
            check(name, parts(result), values)
        found[name] = time_rounds(call, workload, request.quick)
    (directory / f"{library}-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
