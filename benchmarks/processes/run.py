"""Measurements of all libraries, each in processes of its own that mpirun starts, one library after the other."""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import ROOT
from benchmarks.processes.measure import Request, write_values

Times = dict[str, float]  # seconds of an operation, by row


def measure(
    libraries: Sequence[str], processes: int, request: Request, variables: Mapping[str, str] | None = None
) -> dict[str, Times]:
    """The times of each library: of the process that takes longest, the median over rounds; with these variables in the
    environment.

    Raises:
        CalledProcessError: a library fails, or its values are not those of the program in one process.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        request.write(directory)
        write_values(request, processes, directory)
        environment = {**os.environ, **(variables or {})}
        return {library: _measured(library, processes, directory, environment) for library in libraries}


def _measured(library: str, processes: int, directory: Path, environment: dict[str, str]) -> Times:
    mpirun = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpirun is None:
        raise SystemExit("there is no mpirun; python -m pip install 'tinyxla[mpi]' brings one")
    program = [sys.executable, "-m", "benchmarks.processes.measure", library, str(directory)]
    environment["COORDINATOR_PORT"] = str(_free_port())
    subprocess.run([mpirun, "--oversubscribe", "-n", str(processes), *program], cwd=ROOT, env=environment, check=True)
    of_processes = [json.loads(path.read_text()) for path in sorted(directory.glob(f"{library}-*.json"))]
    rows = of_processes[0]
    return {row: statistics.median(map(max, zip(*(x[row] for x in of_processes), strict=True))) for row in rows}


def _free_port() -> int:
    """A port at which JAX's coordinator can listen."""
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return int(listening.getsockname()[1])
