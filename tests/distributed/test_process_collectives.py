"""Collective operations among processes, each program of many cases in one run of mpirun."""

from __future__ import annotations

import pytest

from tests.support.processes import needs_mpi, run

PROGRAMS = "tests.distributed.programs"


@needs_mpi
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("program", ["every_collective", "transformed", "long_messages", "interface"])
def test_all_cases_of_a_program_are_right_in_all_processes(program: str, size: int) -> None:
    ended = run(size, "-m", f"{PROGRAMS}.{program}", within=150)
    assert ended.code == 0, ended.errors
    lines = ended.output.split("\n")[:-1]
    assert len(lines) == size, ended.output
    assert len(set(lines)) == 1, ended.output
    assert lines[0].endswith(" cases"), ended.output
