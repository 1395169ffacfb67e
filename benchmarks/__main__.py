"""Measure tinyxla next to JAX and NumPy in one process and write the table to `docs/benchmarks.md`.

python -m benchmarks                        # everything; a few minutes
python -m benchmarks --only dispatch eager  # the workloads with these words in their names
python -m benchmarks --quick                # few samples: to see that it runs, not to compare
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.libraries import Library
from benchmarks.measure import QUICK, THOROUGH, Effort, Timing, compare_calls, compare_once
from benchmarks.report import Row, document, row_line, summary
from benchmarks.workloads import ROOT, WORKLOADS, Calls, Once


def measure(workload: Calls | Once, libraries: Sequence[Library], effort: Effort) -> Row:
    """Measure one workload in all libraries that can run it."""
    able = [library for library in libraries if library.transforms or not workload.transforms]
    if isinstance(workload, Once):
        timings = compare_once([partial(workload.sample, library) for library in able], effort)
    else:
        timings = _compare_workload(workload, able, effort)
    by_library: dict[str, Timing] = dict(zip((library.name for library in able), timings, strict=True))
    return Row(workload.name, by_library)


def _compare_workload(workload: Calls, libraries: Sequence[Library], effort: Effort) -> list[Timing]:
    calls = [workload.build(library) for library in libraries]
    waiters = [library.waiter(call()) for library, call in zip(libraries, calls, strict=True)]
    return compare_calls(list(zip(calls, waiters, strict=True)), effort, workload.wait_each)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure tinyxla next to JAX and NumPy.")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="workloads with one of these words in their names")
    parser.add_argument("--quick", action="store_true", help="few samples: to see that it runs, not to compare")
    parser.add_argument("--output", type=Path, help="the table (default: docs/benchmarks.md for a full run, else none)")
    parser.add_argument(
        "--libraries",
        nargs="+",
        default=["tinyxla", "jax", "numpy"],
        metavar="NAME",
        help="the contestants; the others are compared with the first (default: tinyxla jax numpy)",
    )
    arguments = parser.parse_args()

    chosen = [w for w in WORKLOADS if not arguments.only or any(word in w.name for word in arguments.only)]
    if not chosen:
        names = "\n  ".join(workload.name for workload in WORKLOADS)
        parser.error(f"no workload has {' or '.join(arguments.only)} in its name; there are\n  {names}")
    output = arguments.output
    if output is None and not arguments.only and not arguments.quick:
        output = ROOT / "docs" / "benchmarks.md"

    with tempfile.TemporaryDirectory() as scratch:
        # Read at import by the libraries: same machine, same precision, and no code compiled by an earlier run.
        os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0", "TINYXLA_CACHE_DIR": f"{scratch}/kernels"}
        libraries = [Library.load(name) for name in arguments.libraries]
        rows: list[Row] = []
        for workload in chosen:
            rows.append(measure(workload, libraries, QUICK if arguments.quick else THOROUGH))
            print(row_line(rows[-1], arguments.libraries), flush=True)

    print("\n".join(summary(rows, arguments.libraries)))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
        output.write_text(document(rows, libraries, command), encoding="utf-8")
        print(f"table: {output}")


if __name__ == "__main__":
    main()
