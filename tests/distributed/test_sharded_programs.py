"""Sharded arrays among processes, and the examples."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import needs_mpi, run


@needs_mpi
@pytest.mark.parametrize(("size", "devices"), [(2, 1), (4, 1), (2, 2)])
def test_programs_of_several_processes_give_what_one_gives(size: int, devices: int) -> None:
    ended = run(size, "-m", "tests.distributed.programs.sharded", str(devices), within=240)
    assert ended.code == 0, ended.errors
    lines = ended.output.split("\n")[:-1]
    assert len(lines) == size, ended.output
    assert len(set(lines)) == 1, ended.output
    assert lines[0].endswith(" cases"), ended.output


@needs_mpi
@pytest.mark.parametrize(("size", "devices"), [(2, 1), (4, 1), (2, 2)])
def test_programs_that_pass_messages_give_what_one_process_gives(size: int, devices: int) -> None:
    ended = run(size, "-m", "tests.distributed.programs.message_passing", str(devices), within=240)
    assert ended.code == 0, ended.errors
    assert ended.output.split("\n")[:-1] == ["5 programs"] * size


@needs_mpi
@pytest.mark.parametrize("example", ["heat", "matmul", "ensemble"])
def test_examples(example: str) -> None:
    ended = run(2, f"examples/{example}.py", within=120)
    assert ended.code == 0, ended.errors
    assert "2 devices" in ended.output, ended.output


@needs_mpi
@pytest.mark.skipif(
    not all(map(find_spec, ("matplotlib", "sklearn", "tqdm"))), reason="needs the packages of the example"
)
def test_training_on_two_processes_learns_the_digits(tmp_path: Path) -> None:
    figure = str(tmp_path / "digits.png")
    ended = run(2, "examples/digits.py", "--parallel", "--epochs", "5", "--output", figure, within=120)
    assert ended.code == 0, ended.errors
    assert "held-out accuracy: 9" in ended.output, ended.output
