"""Measure tinyxla next to JAX, NumPy and PyTorch, and write charts and tables to `docs/benchmarks.md`.

python -m benchmarks                           # everything; about a quarter of an hour
python -m benchmarks --group Latency Windows   # these groups (or the first words of their names)
python -m benchmarks --only dispatch eager     # the workloads with these words in their names
python -m benchmarks --quick                   # few samples: to see that it runs, not to compare
python -m benchmarks --against COMMIT          # this checkout beside another commit, or a checkout in a directory
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks import ROOT
from benchmarks.against import Comparison, compare, contestants, summary
from benchmarks.behind import WHY
from benchmarks.chart import write_charts
from benchmarks.groups import GROUPS
from benchmarks.libraries import NUMPY, TORCH, Library
from benchmarks.machine import measure_machine
from benchmarks.memory import measure_memory
from benchmarks.report import OF_OTHERS, Row, document, row_line, section_of, summary_table
from benchmarks.rows import OF_DEVICES, Chosen, measure, measure_on_devices
from benchmarks.workload import Workload


def _with_memory(rows: Sequence[Row], chosen: Chosen, libraries: Sequence[Library]) -> list[Row]:
    """The rows with the memory that they take; printed, since it takes minutes."""
    names = [library.name for library in libraries if library.name not in (NUMPY, TORCH)]
    compiled = [workload.name for _, workload in chosen if isinstance(workload, Workload)]
    print(f"memory of {len(compiled)} workloads, each in processes of its own", flush=True)
    pairs = [(name, workload) for workload in compiled for name in names]
    found = dict(zip(pairs, measure_memory(pairs), strict=True))
    return [
        replace(row, memory={name: m for name in names if (m := found.get((name, row.name))) is not None})
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure tinyxla next to JAX, NumPy and PyTorch."
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="workloads with one of these words in their names")
    parser.add_argument("--group", nargs="+", metavar="NAME", help=f"groups: {', '.join(GROUPS)}, or how they begin")
    parser.add_argument("--quick", action="store_true", help="few samples: to see that it runs, not to compare")
    parser.add_argument(
        "--output", type=Path, help="the document (default: docs/benchmarks.md for a full run, else none)"
    )
    parser.add_argument(
        "--memory",
        action=argparse.BooleanOptionalAction,
        help="measure memory too (default: where a document is written)",
    )
    parser.add_argument(
        "--libraries",
        nargs="+",
        default=["tinyxla", "jax", "numpy", "torch"],
        metavar="NAME",
        help="the contestants, tinyxla first (default: tinyxla jax numpy torch)",
    )
    parser.add_argument("--against", metavar="COMMIT", help="compare with a commit, or a checkout in a directory")
    arguments = parser.parse_args()

    chosen = _chosen(arguments.group, arguments.only)
    if not chosen:
        names = "\n  ".join(workload.name for group in GROUPS.values() for workload in group)
        parser.error(f"no workload has such a name; there are\n  {names}")
    if arguments.against:
        _compare(arguments.against, chosen, arguments.quick)
        return
    output = arguments.output
    if output is None and not (arguments.only or arguments.group or arguments.quick):
        output = ROOT / "docs" / "benchmarks.md"

    with tempfile.TemporaryDirectory() as scratch:
        # Read at import by the libraries: same machine, same precision, and no code compiled by an earlier run.
        os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0", "TINYXLA_CACHE_DIR": f"{scratch}/kernels"}
        libraries = Library.load_all(arguments.libraries)
        machine = measure_machine(0.05 if arguments.quick else 1.0)
        rows: list[Row] = []
        with suppress(KeyboardInterrupt):  # what was measured is written all the same
            for group, workload in chosen:
                if group in OF_DEVICES or not any(workload.runs_in(library) for library in libraries):
                    continue
                rows.append(measure(group, workload, libraries, machine, arguments.quick))
                print(row_line(rows[-1], arguments.libraries), flush=True)
            rows += measure_on_devices(chosen, arguments.libraries, machine, arguments.quick)
        if output is not None if arguments.memory is None else arguments.memory:
            rows = _with_memory(rows, chosen, libraries)

    print(summary_table(rows))
    if output is not None:
        command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
        pictures = write_charts(rows, output.with_suffix(""))
        before = output.read_text(encoding="utf-8") if output.exists() else ""
        kept = [found for heading in OF_OTHERS if (found := section_of(before, heading))]
        text = document(rows, libraries, machine, command, pictures, WHY)
        output.write_text("\n".join([text, *(f"{x.rstrip()}\n" for x in kept)]), encoding="utf-8")
        print(f"document: {output}")


def _compare(against: str, chosen: Chosen, quick: bool) -> None:
    """Print the ratios of all rows of this library, old to new, and of the groups."""
    rows: list[Comparison] = []
    with contestants(against) as versions, suppress(KeyboardInterrupt):
        for group, workload in chosen:
            if getattr(workload, "libraries", ("tinyxla",))[0] == "tinyxla":
                rows.append(compare(group, workload, versions, quick))
                print(rows[-1], flush=True)
    print(summary(rows))


def _chosen(groups: Sequence[str] | None, words: Sequence[str] | None) -> Chosen:
    """The workloads of groups whose names begin so, and with one of the words in their own; with their groups."""
    return [
        (group, workload)
        for group, workloads in GROUPS.items()
        if not groups or any(group.lower().startswith(name.lower()) for name in groups)
        for workload in workloads
        if not words or any(word in workload.name for word in words)
    ]


if __name__ == "__main__":
    main()
