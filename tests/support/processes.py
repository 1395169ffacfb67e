"""Programs of several processes: run by mpirun, and what they print."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
needs_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed")


class Ended(NamedTuple):
    """How a program ended: its exit code, what it printed, and after how many seconds."""

    code: int
    output: str
    errors: str
    seconds: float


@cache
def is_open_mpi(mpirun: str) -> bool:
    """Whether this is Open MPI's; another one is MPICH's."""
    return "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout


def start(size: int, *program: str) -> subprocess.Popen[str]:
    """Start `python *program` in so many processes."""
    scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    mpirun = shutil.which("mpirun", path=scripts)
    assert mpirun is not None, "mpi4py is installed, but there is no mpirun"
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # as in a container
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",  # what ends a line is written with it, by end="": processes write between each other
        "TINYXLA_NUM_THREADS": "1",
    }
    more = ["--oversubscribe"] if is_open_mpi(mpirun) else []  # MPICH's starts any number
    return subprocess.Popen(
        [mpirun, *more, "-n", str(size), sys.executable, *program],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(size: int, *program: str, within: float, act: Callable[[subprocess.Popen[str]], None] | None = None) -> Ended:
    """Run a program of so many processes, which must end within so many seconds; `act` does something to it first."""
    begin = time.monotonic()
    process = start(size, *program)
    try:
        if act is not None:
            act(process)
        output, errors = process.communicate(timeout=within)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        print(output, errors, sep="\n")
        raise
    return Ended(process.returncode, output, errors, time.monotonic() - begin)
