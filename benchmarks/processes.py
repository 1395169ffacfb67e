"""Collective operations among processes beside mpi4py's own calls, and JAX's over its CPU collectives (gloo).

    python -m benchmarks.processes --processes 2 [--quick]

starts the processes of each library by mpirun, one library after the other, and prints the microseconds of a call: of
the process that takes longest, the median of several rounds. A row is an operation on so many bytes in each process.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = ("tinyxla", "mpi4py", "jax")
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
SIZES = [4 << k for k in range(2, 25, 4)]  # bytes: 16 B to 64 MB; an element for each process is the least
ROUNDS = 5
PORT = 29471  # of JAX's coordinator

Call = Callable[[], object]
Calls = Callable[[str, np.ndarray[Any, Any]], Call]  # of an operation and the array of a process


def tinyxla_calls() -> Calls:
    import tinyxla as tx
    from tinyxla import distributed
    from tinyxla.ops import collectives, exchanges
    from tinyxla.ops.replica_groups import PROCESSES

    distributed.initialize()
    count = distributed.process_count()
    among: dict[str, Any] = {"replica_groups": (tuple(range(count)),), "axis_name": PROCESSES}
    total = collectives.sum_of(np.float32)
    ring = tuple((k, (k + 1) % count) for k in range(count))
    functions: dict[str, Callable[[Any], Any]] = {
        "all-reduce": lambda x: collectives.all_reduce(x, to_apply=total, **among),
        "all-gather": lambda x: collectives.all_gather(x, all_gather_dimension=0, shard_count=count, **among),
        "reduce-scatter": lambda x: collectives.reduce_scatter(
            x, to_apply=total, scatter_dimension=0, shard_count=count, **among
        ),
        "all-to-all": lambda x: exchanges.all_to_all(x, dimensions=(0,), **among),
        "collective-permute": lambda x: exchanges.collective_permute(x, source_target_pairs=ring, axis_name=PROCESSES),
    }

    def call(operation: str, x: np.ndarray[Any, Any]) -> Call:
        function, operand = tx.jit(functions[operation]), tx.numpy.asarray(x)
        return lambda: function(operand)

    return call


def mpi4py_calls() -> Calls:
    MPI: Any = importlib.import_module("mpi4py.MPI")  # which initializes MPI
    everyone = MPI.COMM_WORLD
    rank, count = everyone.rank, everyone.size

    def call(operation: str, x: np.ndarray[Any, Any]) -> Call:
        y = np.empty(x.size * count if operation == "all-gather" else x.size, x.dtype)
        calls: dict[str, Call] = {
            "all-reduce": lambda: everyone.Allreduce(x, y),
            "all-gather": lambda: everyone.Allgather(x, y),
            "reduce-scatter": lambda: everyone.Reduce_scatter_block(x, y[: x.size // count]),
            "all-to-all": lambda: everyone.Alltoall(x, y),
            "collective-permute": lambda: everyone.Sendrecv(x, (rank + 1) % count, 0, y, (rank - 1) % count),
        }
        return calls[operation]

    return call


def jax_calls() -> Calls:
    import jax

    rank, count = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{PORT}", count, rank)
    mesh = jax.make_mesh((count,), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    ring = [(k, (k + 1) % count) for k in range(count)]
    functions: dict[str, Callable[[Any], Any]] = {
        "all-reduce": lambda x: jax.lax.psum(x, "i"),
        "all-gather": lambda x: jax.lax.all_gather(x, "i", tiled=True),
        "reduce-scatter": lambda x: jax.lax.psum_scatter(x, "i", tiled=True),
        "all-to-all": lambda x: jax.lax.all_to_all(x, "i", 0, 0, tiled=True),
        "collective-permute": lambda x: jax.lax.ppermute(x, "i", ring),
    }

    def call(operation: str, x: np.ndarray[Any, Any]) -> Call:
        sharded = jax.make_array_from_process_local_data(jax.sharding.NamedSharding(mesh, spec), x)
        out = jax.sharding.PartitionSpec() if operation == "all-reduce" else spec
        function = jax.jit(jax.shard_map(functions[operation], mesh=mesh, in_specs=spec, out_specs=out))
        return lambda: jax.block_until_ready(function(sharded))

    return call


def measure(calls: Calls, quick: bool) -> dict[str, list[float]]:
    """For each operation and size the median over rounds of the microseconds of a call."""
    found: dict[str, list[float]] = {}
    for operation in OPERATIONS:
        for size in SIZES:
            call = calls(operation, np.ones(size // 4, np.float32))
            call()
            repeats = 2 if quick else max(3, min(1000, (1 << 26) // size))
            times: list[float] = []
            for _ in range(1 if quick else ROUNDS):
                start = time.perf_counter()
                for _ in range(repeats):
                    call()
                times.append((time.perf_counter() - start) / repeats * 1e6)
            found[f"{operation} {size}"] = times
    return found


def run(library: str, processes: int, quick: bool) -> dict[str, float]:
    """Measure a library in processes of its own: for each row the slowest process, the median over rounds."""
    mpirun = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpirun is None:
        raise SystemExit("there is no mpirun; python -m pip install 'tinyxla[mpi]' brings one")
    command = [mpirun, "--oversubscribe", "-n", str(processes), sys.executable, "-m", "benchmarks.processes"]
    done = subprocess.run(
        [*command, "--measure", library, *["--quick"] * quick], check=True, stdout=subprocess.PIPE, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {name: statistics.median(map(max, zip(*(row[name] for row in rows), strict=True))) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="to see that all of it runs")
    parser.add_argument("--measure", choices=LIBRARIES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        calls = {"tinyxla": tinyxla_calls, "mpi4py": mpi4py_calls, "jax": jax_calls}[arguments.measure]()
        print(json.dumps(measure(calls, arguments.quick)), flush=True)
        return
    libraries = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    found = {name: run(name, arguments.processes, arguments.quick) for name in libraries}
    print(f"{'us a call':28}" + "".join(f"{name:>12}" for name in found))
    for row in found["tinyxla"]:
        print(f"{row:28}" + "".join(f"{times[row]:12,.1f}" for times in found.values()))


if __name__ == "__main__":
    main()
