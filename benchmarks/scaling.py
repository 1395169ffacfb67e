"""Weak and strong scaling of programs to 1,024 processes, predicted, and compared with what is measured here.

    python -m benchmarks.scaling                    # measured for 1, 2 and 4 processes, predicted for 1 to 1,024
    python -m benchmarks.scaling --processes 1 2    # as many as there are cores: more of them wait for each other
    python -m benchmarks.scaling --write            # and put the tables into docs/benchmarks.md

The network is fitted to collective operations in compiled loops among processes of this machine, the processor to runs
of each program in one process, in three sizes. Weak scaling: each process has a part of the same size. Strong scaling:
all have together what `STRONG` processes have in the other case. Processes have one thread each; where there are more
of them than cores, computation takes as many times longer.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tinyxla as tx
from benchmarks import ROOT
from benchmarks.machine import processor as processor_name
from benchmarks.processes.measure import Request
from benchmarks.processes.report import screen_table, write_section
from benchmarks.processes.run import Times, measure
from benchmarks.processes.workloads import ShardedWorkload
from benchmarks.report import SECTION_OF_SCALING, duration, markdown_table, ratio_text
from tinyxla.distributed.scaling import Network, Prediction, Processor, collective, predict

PREDICTED = (1, 4, 16, 64, 256, 1024)
STRONG = 16
FITTED = (1, 4, STRONG)  # scales of the runs in one process
_LOOPED = re.compile(r"^(\S+) (\d+) in a loop$")
_ONE_THREAD = {"TINYXLA_NUM_THREADS": "1"}


def lowered(workload: ShardedWorkload, processes: int, scale: int) -> tx.stages.Lowered:
    """A program on a mesh of so many processes, which there need not be."""
    mesh = tx.sharding.AbstractMesh((processes,), ("d",))
    return tx.jit(workload.make(tx, mesh)).lower(*workload.described(tx, mesh, scale))


def fitted_network(times: Times, processes: int) -> Network:
    """The network by the times of collective operations in loops."""
    found = [(match, seconds) for row, seconds in times.items() if (match := _LOOPED.match(row))]
    return Network.fit([(collective(m[1], int(m[2]), processes), seconds) for m, seconds in found])


def fitted_processor(workload: ShardedWorkload, times: Times) -> Processor:
    """The processor by the times of a program in one process."""
    costs = {scale: lowered(workload, 1, scale).process_cost() for scale in FITTED}
    return Processor.fit([(cost, times[f"{workload.name} x {scale}"]) for scale, cost in costs.items()])


def slowed(processor: Processor, processes: int) -> Processor:
    """The processor of one of so many processes, of which several may share a core of this machine."""
    share = max(1.0, processes / len(os.sched_getaffinity(0)))
    return Processor(*(share * seconds for seconds in processor))


class Measured(NamedTuple):
    """The fitted model, and by the number of processes the times of programs.

    Attributes:
        networks: by the number of processes that they were fitted to.
    """

    networks: dict[int, Network]
    processors: dict[str, Processor]
    times: dict[int, Times]


def measured(processes: Sequence[int], quick: bool) -> Measured:
    """All measurements of this machine."""
    alone = Request(("program",), quick, FITTED)
    (one,) = measure(["tinyxla"], 1, alone, _ONE_THREAD).values()
    networks: dict[int, Network] = {}
    times = {1: one}
    for count in processes:
        if count > 1:
            (loops,) = measure(["tinyxla"], count, Request(("looped",), quick), _ONE_THREAD).values()
            networks[count] = fitted_network(loops, count)
            scaled = Request(("program",), quick, (count, STRONG))
            (times[count],) = measure(["tinyxla"], count, scaled, _ONE_THREAD).values()
    return Measured(networks, {x.name: fitted_processor(x, one) for x in alone.workloads()}, times)


def check_table(found: Measured, workloads: Sequence[ShardedWorkload]) -> tuple[list[str], list[list[str]]]:
    """Predicted beside measured times, for the numbers of processes that were measured."""
    rows: list[list[str]] = []
    for workload in workloads:
        for count, network in found.networks.items():
            for kind, scale in (("weak", count), ("strong", STRONG)):
                own = slowed(found.processors[workload.name], count)
                prediction = predict(lowered(workload, count, scale), own, network)
                seconds = found.times[count][f"{workload.name} x {scale}"]
                ratio = ratio_text(prediction.seconds / seconds)
                rows.append([workload.name, kind, str(count), duration(seconds), duration(prediction.seconds), ratio])
    return ["program", "scaling", "processes", "measured", "predicted", "predicted / measured"], rows


def predictions(workload: ShardedWorkload, processor: Processor, network: Network, kind: str) -> Iterator[Prediction]:
    """The predictions for `PREDICTED` processes."""
    for count in PREDICTED:
        scale = count if kind == "weak" else STRONG
        yield predict(lowered(workload, count, scale), processor, network)


def scaling_table(
    found: Measured, network: Network, workloads: Sequence[ShardedWorkload]
) -> tuple[list[str], list[list[str]]]:
    """The times of a call, each with its parallel efficiency."""
    rows: list[list[str]] = []
    for workload in workloads:
        for kind in ("weak", "strong"):
            row = list(predictions(workload, found.processors[workload.name], network, kind))
            ideal = [row[0].seconds / (1 if kind == "weak" else x.processes) for x in row]
            cells = [f"{duration(x.seconds)} ({t / x.seconds:.2f})" for x, t in zip(row, ideal, strict=True)]
            rows.append([workload.name, kind, *cells])
    return ["program", "scaling", *(f"{count:,}" for count in PREDICTED)], rows


def section(check: str, scaling: str, networks: dict[int, Network], command: str) -> str:
    """The section of the document."""
    fits = "\n".join(f"- {count} processes: {network_text(network)}" for count, network in networks.items())
    return f"""{SECTION_OF_SCALING}

Written by `{command}` on {datetime.date.today().isoformat()}, on {processor_name()},
{len(os.sched_getaffinity(0))} cores. Predictions by `tinyxla.distributed.scaling`: a processor that is fitted to runs
of each program in one process of one thread, and a network that is fitted to collective operations among processes of
this machine, without overlap of the two:

{fits}

Beside what is measured:

{check}

For a network like that between {next(iter(networks))} processes here; in parentheses the parallel efficiency. Weak
scaling: each process has a part of the same size. Strong scaling: all have together what {STRONG} processes have in the
other case.

{scaling}
"""


def network_text(network: Network) -> str:
    """The fit in words."""
    latency, per_byte, per_reduced_byte = network
    for_each = duration(latency), duration(per_byte * 1e6), duration(per_reduced_byte * 1e6)
    return "{} for a message, {} for a MB, and {} for a MB that is combined.".format(*for_each)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="what is measured")
    parser.add_argument("--quick", action="store_true", help="small arrays, few calls: to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    arguments = parser.parse_args()
    if max(arguments.processes) < 2:
        parser.error("--processes must name a number above 1, to which the network is fitted")
    found = measured(sorted(arguments.processes), arguments.quick)
    workloads = Request(("program",), arguments.quick).workloads()
    network = found.networks[min(found.networks)]
    tables = check_table(found, workloads), scaling_table(found, network, workloads)
    for count, fitted in found.networks.items():
        print(f"{count} processes: {network_text(fitted)}")
    print(*(screen_table(*x) for x in tables), sep="\n\n")
    if arguments.write:
        command = shlex.join(["python", "-m", "benchmarks.scaling", *sys.argv[1:]])
        check, scaling = (markdown_table(*x) for x in tables)
        write_section(ROOT / "docs" / "benchmarks.md", section(check, scaling, found.networks, command))


if __name__ == "__main__":
    main()
