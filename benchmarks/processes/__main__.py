"""Measure programs of several processes beside JAX's, and collective operations beside mpi4py's own calls.

    python -m benchmarks.processes --processes 2
    python -m benchmarks.processes --quick            # small arrays, few calls: to see that it runs
    python -m benchmarks.processes --write            # and put the table into docs/benchmarks.md

starts the processes of each library by mpirun, one library after the other. It takes some four minutes on an otherwise
idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys

from benchmarks import ROOT
from benchmarks.processes.measure import LIBRARIES, Request
from benchmarks.processes.report import rows_of, screen_table, section, write_section
from benchmarks.processes.run import measure

KINDS = Request().kinds


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.processes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which rows (default: all)")
    parser.add_argument("--quick", action="store_true", help="small arrays, few calls: to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    arguments = parser.parse_args()
    libraries = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    measured = measure(libraries, arguments.processes, Request(tuple(arguments.kinds), arguments.quick))
    print(screen_table(*rows_of(measured)))
    if arguments.write:
        command = shlex.join(["python", "-m", "benchmarks.processes", *sys.argv[1:]])
        write_section(ROOT / "docs" / "benchmarks.md", section(measured, arguments.processes, command))


if __name__ == "__main__":
    main()
