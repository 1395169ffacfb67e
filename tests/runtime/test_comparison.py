"""The table by which processes of one machine compare what they run, here of members in one process."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tinyxla.errors import ProcessError
from tinyxla.runtime.mpi.comparison import ByTable, Part, Step


class Opened:
    """What a communicator of mpi4py is for a member: its rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def Get_rank(self) -> int:
        return self.rank


class Members:
    """A communicator as one member sees it."""

    def __init__(self, count: int, rank: int) -> None:
        self.members = tuple(range(count))
        self.opened = Opened(rank)


@contextmanager
def waiting(text: str) -> Generator[None]:
    waits.append(text)
    yield


waits: list[str] = []


def tables(count: int) -> list[ByTable]:
    words = memoryview(bytearray(2 * 64 * count)).cast("q")
    made: list[Any] = [Members(count, rank) for rank in range(count)]
    return [ByTable(x, waiting, words) for x in made]


def known(*names: str, among: list[ByTable]) -> list[Part]:
    """Parts that all members have run once."""
    parts = [Part(name, (Step(f"all-reduce of {name}"),), (), ()) for name in names]

    def run(table: ByTable) -> None:
        for part in parts:
            table.begin(part)
            table.end()

    threads = [threading.Thread(target=run, args=(table,)) for table in among]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in parts:
        part.comparison = among[0]
    waits.clear()
    return parts


def test_equal_parts_run_without_waiting() -> None:
    members = tables(3)
    step, other = known("step", "other", among=members)
    for part in (step, other, step, step):
        for table in members:
            table.begin(part)
        for table in members:
            table.end()
    assert not waits


def test_who_comes_later_is_told_before_it_runs() -> None:
    first, second = members = tables(2)
    step, other = known("step", "other", among=members)
    first.begin(step)
    with pytest.raises(ProcessError, match="process 0 runs 'step', and process 1 at the same time 'other'"):
        second.begin(other)


def test_who_came_first_is_told_after_it_ran() -> None:
    first, second = members = tables(2)
    step, other = known("step", "other", among=members)
    first.begin(step)
    assert first.missing() == (1,)
    assert not first.difference()
    with pytest.raises(ProcessError):
        second.begin(other)
    assert "process 0 runs 'step', and process 1 at the same time 'other'" in first.difference()
    with pytest.raises(ProcessError, match="process 0 runs 'step', and process 1 at the same time 'other'"):
        first.end()


def test_the_same_parts_in_another_order_differ() -> None:
    first, second = members = tables(2)
    step, other = known("step", "other", among=members)
    first.begin(other)
    second.begin(other)
    first.end()
    first.begin(step)
    second.end()
    with pytest.raises(ProcessError, match="process 0 runs 'step', and process 1 at the same time 'other'"):
        second.begin(other)


def test_a_part_that_only_one_has_run_is_told() -> None:
    first, second = members = tables(2)
    (step,) = known("step", among=members)
    new = Part("new", (Step("all-reduce"),), (), ())
    first.begin(step)
    with pytest.raises(ProcessError, match="process 0 runs 'step', and process 1 at the same time 'new'"):
        second.begin(new)
    with pytest.raises(ProcessError, match="process 1 at the same time a program that process 0 has not run before"):
        first.end()


def test_no_member_runs_ahead_of_another() -> None:
    first, second = members = tables(2)
    (step,) = known("step", among=members)
    first.begin(step)
    ended = threading.Event()

    def end() -> None:
        first.end()
        ended.set()

    thread = threading.Thread(target=end)
    thread.start()
    assert not ended.wait(0.1)
    second.begin(step)
    thread.join(10)
    assert ended.is_set()
    assert waits == ["after 'step' until all have begun it"]


def test_after_an_exception_all_wait_for_all() -> None:
    first, second = members = tables(2)
    (step,) = known("step", among=members)
    first.is_careful = True
    thread = threading.Thread(target=first.begin, args=(step,))
    thread.start()
    second.begin(step)
    thread.join(10)
    assert not thread.is_alive()
    assert not first.is_careful
    for table in members:
        table.end()


def test_parts_inside_another_are_counted() -> None:
    first, second = members = tables(2)
    outer, inner = known("outer", "inner", among=members)
    for part in (outer, inner):
        for table in (first, second):
            table.begin(part)
    for _ in range(2):
        for table in members:
            table.end()
    assert not waits
