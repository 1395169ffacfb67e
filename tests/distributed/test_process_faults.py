"""Processes that die, end, part or wait in vain: all are ended in bounded time, with a message that says why."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.support.processes import needs_mpi, run

PROGRAM = ("-m", "tests.distributed.programs.faults")
WITHIN = 90  # seconds; on an idle machine it is a few

# Of each fault, what the message says.
ENDED = {
    "killed": ("Killed",),  # says mpirun: "signal 9 (Killed)", or "Killed (signal 9)"
    "raised": ("ValueError: this process is wrong", "process 1 raised ValueError"),
    "raised_in_thread": ("ZeroDivisionError", "a thread of process 1 raised ZeroDivisionError"),
    "exited": ("process 1 has ended, and process 0 waits to begin 'step'", "all-reduce add of f32[3]", "faults.py:"),
    "ended": ("process 1 has ended, and process 0 waits to begin 'step'", "all-reduce add of f32[3]", "faults.py:"),
    "other_program": ("process 0 runs 'step', and process 1 at the same time 'other_step'",),
    "other_shape": ("operation 0 is all-reduce add of f32[3]", "in process 0, but all-reduce add of f32[4]"),
    "other_order": ("process 0 runs 'step', and process 1 at the same time 'other_step'",),
    "other_program_later": ("process 0 runs 'step', and process 1 at the same time 'other_step'",),
    "other_shape_later": ("operation 0 is all-reduce add of f32[3]", "in process 0, but all-reduce add of f32[4000]"),
    "new_program_later": ("process 1 at the same time ",),
    "caught_later": ("process 0 runs 'step', and process 1 at the same time 'other_step'",),
    "killed_under_way": ("signal 9 (Killed)",),
    "missing_under_way": (
        "process 0 has waited for 2 s (config.collective_timeout_seconds) in all-reduce-start add of f32[256,256]",
    ),
    "other_number_of_iterations": (
        "processes wait for one another in different operations",
        "process 0 waits to begin 'step'",
        "process 1 waits in all-reduce add of f32[3] among ((0, 1),) at",
    ),
    "waits_too_long": ("process 0 has waited for 2 s (config.collective_timeout_seconds) to begin 'step'",),
    "interrupted": ("process 0 was interrupted while it waits to begin 'step'",),
}
GOES_ON = {
    "caught": ("caught process 0 runs 'step', and process 1 at the same time 'other_step'", "[3. 3. 3.]"),
    "caught_by_message": ("caught process 0 runs 'step', and process 1 at the same time 'other_step'", "[3. 3. 3.]"),
    "slow_but_right": ("[3. 3. 3.]",),
    "one_way": ("True",),
    "overlapping_sets": ("[3. 3. 3.]",),
    "excepted": ("[3. 3. 3.]",),
    "forked": ("was forked from process 1 of the program", "[3. 3. 3.]"),
    "threads": ("4",),
}


@needs_mpi
@pytest.mark.parametrize("fault", ENDED)
def test_all_processes_end_with_a_message(fault: str) -> None:
    ended = run(2, *PROGRAM, fault, within=WITHIN)
    assert ended.code != 0
    assert "took a wrong result" not in ended.output
    for text in ENDED[fault]:
        assert text in ended.errors or (fault == "killed" and text in ended.output)


@needs_mpi
@pytest.mark.parametrize("what", GOES_ON)
def test_programs_without_a_fault_end_normally(what: str) -> None:
    ended = run(2, *PROGRAM, what, within=WITHIN)
    assert ended.code == 0, ended.errors
    for text in GOES_ON[what]:
        assert ended.output.count(text) == (1 if "process 1" in text and what == "forked" else 2)


@needs_mpi
def test_interrupting_mpirun_ends_all_processes() -> None:
    def interrupt(process: subprocess.Popen[str]) -> None:
        time.sleep(5)
        process.send_signal(signal.SIGINT)

    ended = run(2, *PROGRAM, "waits_for_long", within=WITHIN, act=interrupt)
    assert ended.code != 0
