"""Which processes wait in vain."""

from __future__ import annotations

from tinyxla.runtime.mpi.watchdog import Wait, deadlocked


def wait(operation: str, *members: int) -> Wait:
    return Wait(0, (operation,), members, operation)


def test_two_processes_in_different_operations_wait_in_vain() -> None:
    assert deadlocked(0, {0: wait("a", 0, 1), 1: wait("b", 0, 1)}) == [0, 1]


def test_an_operation_with_all_its_members_is_no_deadlock() -> None:
    assert deadlocked(0, {0: wait("a", 0, 1), 1: wait("a", 0, 1)}) == []


def test_who_computes_may_come() -> None:
    assert deadlocked(0, {0: wait("a", 0, 1), 1: None}) == []
    assert deadlocked(0, {0: wait("a", 0, 1)}) == []


def test_a_chain_ends_where_somebody_computes() -> None:
    waits = {0: wait("a", 0, 1), 1: wait("b", 1, 2), 2: None}
    assert deadlocked(0, waits) == []
    assert deadlocked(0, {**waits, 2: wait("c", 2, 0)}) == [0, 1, 2]


def test_members_of_the_same_operation_do_not_hold_each_other_up() -> None:
    waits = {0: wait("a", 0, 1, 2), 1: wait("a", 0, 1, 2), 2: wait("b", 2, 3), 3: None}
    assert deadlocked(0, waits) == []
    assert deadlocked(0, {**waits, 3: wait("c", 3, 0)}) == [0, 2, 3]


def test_a_process_that_does_not_wait_is_not_deadlocked() -> None:
    assert deadlocked(0, {0: None, 1: wait("b", 0, 1)}) == []
