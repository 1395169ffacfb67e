"""Collective operations among processes, each program of many cases in one run of mpirun."""

from __future__ import annotations

import pytest

from tests.support.processes import needs_mpi, run

PROGRAMS = "tests.distributed.programs"


@needs_mpi
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("program", ["every_collective", "transformed"])
def test_all_processes_give_what_numpy_or_lanes_give(program: str, size: int) -> None:
    ended = run(size, "-m", f"{PROGRAMS}.{program}", within=150)
    assert ended.code == 0, ended.errors
    lines = ended.output.split("\n")[:-1]
    assert len(lines) == size, ended.output
    assert len(set(lines)) == 1, ended.output
    assert lines[0].endswith(" cases"), ended.output
