"""Collective operations among processes, each program of many cases in one run of mpirun."""

from __future__ import annotations

import pytest

from tests.support.processes import needs_mpi, run

PROGRAMS = "tests.distributed.programs"


@needs_mpi
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "program",
    [
        "every_collective",
        "transformed",
        "long_messages",
        "interface",
        "split_messages transformed",
        "split_messages every_collective",
    ],
)
def test_all_cases_of_a_program_are_right_in_all_processes(program: str, size: int) -> None:
    name, *arguments = program.split()
    ended = run(size, "-m", f"{PROGRAMS}.{name}", *arguments, within=150)
    assert ended.code == 0, ended.errors
    lines = ended.output.split("\n")[:-1]
    assert len(lines) == size, ended.output
    assert len(set(lines)) == 1, ended.output
    assert lines[0].endswith(" cases"), ended.output


@needs_mpi
@pytest.mark.parametrize("size", [2, 4])
def test_gradients_are_reduced_during_the_backward_pass(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    split = run(size, "-m", f"{PROGRAMS}.training", within=120)
    monkeypatch.setenv("TINYXLA_DISABLED_PASSES", "latency-hiding")
    whole = run(size, "-m", f"{PROGRAMS}.training", within=120)
    assert (split.code, whole.code) == (0, 0), split.errors + whole.errors
    order, *weights = sorted(set(split.output.split("\n")[:-1]), key=lambda line: "product" not in line)
    steps, layers = order.split(), 4
    assert steps.count("all-reduce-start") == steps.count("all-reduce-done") >= layers - 1
    first_done = steps.index("all-reduce-done")
    assert "product" in steps[steps.index("all-reduce-start") : first_done]
    assert len(weights) == 1
    assert sorted(set(whole.output.split("\n")[:-1]), key=lambda line: "product" not in line)[1:] == weights
    assert "all-reduce-start" not in whole.output
