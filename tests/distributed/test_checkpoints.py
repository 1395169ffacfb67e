"""Sharded checkpoints: one number of processes saves, another loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import needs_mpi, run

PROGRAM = ("-m", "tests.distributed.programs.checkpoints")


@needs_mpi
@pytest.mark.parametrize(("saving", "loading"), [(2, 4), (4, 2), (2, 1)])
def test_checkpoint_of_some_processes_is_loaded_by_others(tmp_path: Path, saving: int, loading: int) -> None:
    for what, size in (("save", saving), ("load", loading)):
        ended = run(size, *PROGRAM, what, str(tmp_path / "state"), within=150)
        assert ended.code == 0, ended.errors
        lines = ended.output.split("\n")[:-1]
        assert len(lines) == size, ended.output
        assert all(line.endswith(" cases") for line in lines), ended.output
