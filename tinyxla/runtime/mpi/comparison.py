"""Parts of a program that processes run together, and the comparison of their fingerprints: that all run the same.

Among processes of one machine the comparison is a table in shared memory, and costs no message (`ByTable`). Among those
of several machines it is a message before a part runs (`ByMessage`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import zip_longest
from typing import Any, NamedTuple

from tinyxla.errors import ProcessError
from tinyxla.runtime.mpi.library import ALL_REDUCE, Library
from tinyxla.shapes import element_type

Ints = tuple[int, ...]
Waiting = Callable[[str], AbstractContextManager[None]]


class Communicator:
    """A communicator of processes, which rank in it in this order.

    Attributes:
        cell: the address of the word with its handle, which is 0 until `connect`.
        opened: it as an object of mpi4py, after `connect`.
    """

    opened: Any = None

    def __init__(self, members: Ints, library: Library) -> None:
        self.members = members
        self.library = library
        self._handle = ctypes.c_int64(0)
        self.cell = ctypes.addressof(self._handle)

    @property
    def handle(self) -> int:
        return self._handle.value

    def connect(self) -> None:
        """Make it of one of all processes, unless it is made: all members do so together. Nobody else talks on it, and
        its errors end the program."""
        if self.opened is not None:
            return
        everyone = self.library.MPI.COMM_WORLD
        if len(self.members) == everyone.Get_size() and list(self.members) == sorted(self.members):
            made = everyone.Dup()
        else:
            whole = everyone.Get_group()
            group = whole.Incl(self.members)
            made = everyone.Create_group(group, hash(self.members) % _TAGS)
            group.Free()
            whole.Free()
        made.Set_errhandler(self.library.MPI.ERRORS_ARE_FATAL)
        self.opened = made
        self._handle.value = self.library.handle(made)


_TAGS = 1 << 15


class Step(NamedTuple):
    """A collective operation as text, the user's line, and the groups of processes in it."""

    text: str
    line: str = ""
    groups: tuple[Ints, ...] = ()

    def __str__(self) -> str:
        return f"{self.text} at {self.line}" if self.line else self.text


class Part:
    """A part of the program that processes run together.

    Attributes:
        name: that of a function, say.
        steps: its collective operations in order.
        participants: all processes that take part in one of these.
        communicators: those that this process needs.
        fingerprint: a hash of what must be the same in all participants, of 62 bits.
        comparison: what compares it with those of the others, once its communicators are made.
    """

    def __init__(
        self, name: str, steps: tuple[Step, ...], participants: Ints, communicators: tuple[Communicator, ...]
    ) -> None:
        self.name = name
        self.steps = steps
        self.participants = participants
        self.communicators = communicators
        import hashlib  # here and below, since few programs are of several processes

        text = "\n".join((name, *(step.text for step in steps)))
        self.fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 2
        self.comparison: Comparison | None = None

    @property
    def to_begin(self) -> str:
        """What a process waits for before it runs the part."""
        return f"to begin {self.name!r}, first with {self.steps[0]}"

    @property
    def to_end(self) -> str:
        """What a process waits for after it ran the part."""
        return f"after {self.name!r} until all have begun it"


class Comparison(ABC):
    """Comparison of the parts that the members of a communicator run.

    Args:
        communicator: of the members, connected.
        waiting: makes the context in which this process waits for others, of a text for the watchdog.

    Attributes:
        is_careful: the next part is compared with those of all members before it runs.
    """

    is_careful = False

    def __init__(self, communicator: Communicator, waiting: Waiting) -> None:
        self.members = communicator.members
        self._communicator = communicator
        self._waiting = waiting

    @abstractmethod
    def begin(self, part: Part) -> None:
        """Compare a part before it runs.

        Raises:
            ProcessError: another member runs another part.
        """

    @abstractmethod
    def end(self) -> None:
        """Compare the part after it ran, with members that had not begun theirs before.

        Raises:
            ProcessError: another member ran another part, so that results may be wrong.
        """

    def missing(self) -> Ints:
        """The members that have not begun the part, as far as that is known."""
        return self.members

    def difference(self) -> str:
        """What says that another member runs another part, if that is known; otherwise empty."""
        return ""

    def _difference_of_all(self, part: Part) -> str:
        """What says where the parts of the members begin to differ; all of them ask for it together."""
        parts: list[tuple[str, tuple[Step, ...]]] = self._communicator.opened.allgather((part.name, part.steps))
        runs = [_Run(process, *x) for process, x in zip(self.members, parts, strict=True)]
        found = (_difference(runs[0], run) for run in runs)
        same = f"{part.name}: processes run different programs, though their collective operations are equal."
        return next(filter(None, found), same)


class ByMessage(Comparison):
    """Comparison by an all-reduce before a part runs."""

    def __init__(self, communicator: Communicator, waiting: Waiting) -> None:
        super().__init__(communicator, waiting)
        library, words = communicator.library, ctypes.c_int64 * 2
        self._sent, self._received = words(), words()
        self._addresses = ctypes.addressof(self._sent), ctypes.addressof(self._received)
        self._handles = library.datatype(element_type("s64")), library.operation("maximum")
        self._all_reduce = library.function(ALL_REDUCE)

    def begin(self, part: Part) -> None:
        with self._waiting(part.to_begin):
            is_equal = self._is_equal(part.fingerprint)
        if not is_equal:
            raise ProcessError(self._difference_of_all(part))

    def end(self) -> None:
        """All members were compared before."""

    def _is_equal(self, fingerprint: int) -> bool:
        """Whether all have this fingerprint: the maxima of the fingerprints and of their complements are its own."""
        self._sent[:] = fingerprint, ~fingerprint
        self._all_reduce(*self._addresses, 2, *self._handles, self._communicator.handle)
        return self._received[0] == fingerprint and self._received[1] == ~fingerprint


class ByTable(Comparison):
    """Comparison by a table in shared memory, which has an entry of each member for each of the latest two parts.

    An entry is one word: the fingerprint, the number of the part among those of these members (so the same parts in
    another order differ), and a bit that says whether the process waits for all others before it runs the part. The
    processor writes and reads a word as a whole, and it says all by itself: the order of memory accesses is no matter.

    A member writes its entry and compares it with those that the others have written by then, without waiting. After
    the run it compares the others. Then it waits for those that have not begun the part yet, which is rare: few
    collective operations end before all members have begun them. So no member is more than a part ahead of another,
    and two entries of each suffice. An entry that is not written yet is that of the part before the last.

    A part that is new to a process, and one after an exception, waits for all entries before it runs. If all members
    do so, nothing has run where parts differ: they tell each other where, and may go on.
    """

    def __init__(self, communicator: Communicator, waiting: Waiting, words: memoryview) -> None:
        super().__init__(communicator, waiting)
        count = len(self.members)
        self._rank: int = communicator.opened.Get_rank()
        self._rows = words[:count], words[len(words) // 2 :][:count]  # of the parts with even and with odd numbers
        self._before = [{0}, {0}]  # what is in a row as long as the entry is not written
        self._parts: dict[int, Part] = {}  # by fingerprint, those that this process has begun
        self._part = Part("", (), self.members, ())
        self._number = 0  # of the part, from 1
        self._row = self._rows[0]
        self._equal = self._before[0]  # entries that say the same as that of this process
        self._is_complete = True  # all members have begun the part

    def begin(self, part: Part) -> None:
        if not self._is_complete:  # an exception ended the part before, or this part runs inside it
            self._complete(has_run=True)
        is_waiting = self.is_careful or part.comparison is None
        self._number = number = self._number + 1
        self._row = row = self._rows[number & 1]
        self._part = part
        entry = (part.fingerprint ^ number) << 1
        self._equal = {entry, entry + 1}
        self._is_complete = False
        row[self._rank] = entry + is_waiting
        if is_waiting:
            self._parts[part.fingerprint] = part
            if not self._complete(has_run=False):
                is_agreed = all(word & 1 for word in row)
                raise ProcessError(self._difference_of_all(part) if is_agreed else self.difference())
            self.is_careful = False
        elif not {entry, entry + 1, *self._before[number & 1]}.issuperset(row):
            raise ProcessError(self.difference())

    def end(self) -> None:
        if not self._complete(has_run=True):
            raise ProcessError(self.difference())

    def _complete(self, *, has_run: bool) -> bool:
        """Wait until all members have begun the part; returns whether they have begun the same one."""
        is_equal = self._equal.issuperset(self._row)
        if self._is_complete:
            return is_equal
        if not is_equal:
            with self._waiting(self._part.to_end if has_run else self._part.to_begin):
                _poll(lambda: self._before[self._number & 1].isdisjoint(self._row))
            is_equal = self._equal.issuperset(self._row)
        self._is_complete = True
        self._before[self._number & 1] = self._equal if is_equal else set(self._row)
        return is_equal

    def missing(self) -> Ints:
        before = () if self._is_complete else self._before[self._number & 1]
        return tuple(k for k, word in zip(self.members, self._row, strict=True) if word in before)

    def difference(self) -> str:
        part, missing = self._part, self.missing()
        own = self.members[self._rank]
        for process, word in zip(self.members, self._row, strict=True):
            if process in missing or word in self._equal:
                continue
            other = self._parts.get((word >> 1) ^ self._number)
            if other is None:
                return (
                    f"process {own} runs {part.name!r}, and process {process} at the same time a program that process "
                    f"{own} has not run before; {_SAME}"
                )
            return _difference(*sorted((_Run(own, part.name, part.steps), _Run(process, other.name, other.steps))))
        return ""


_SAME = "all must run the same programs in the same order."


class _Run(NamedTuple):
    """What a process runs: the name of a part and its steps."""

    process: int
    name: str
    steps: tuple[Step, ...]


def _difference(one: _Run, other: _Run) -> str:
    """What says where the parts of two processes begin to differ; empty if they do not."""
    if one.name != other.name:
        return (
            f"process {one.process} runs {one.name!r}, and process {other.process} at the same time {other.name!r}; "
            f"{_SAME}"
        )
    for number, (step, another) in enumerate(zip_longest(one.steps, other.steps)):
        if step is None or another is None or step.text != another.text:
            return (
                f"{one.name}: collective operation {number} is {_described(step)} in process {one.process}, but "
                f"{_described(another)} in process {other.process}; all must run the same ones in the same order."
            )
    return ""


def _described(step: Step | None) -> str:
    return "none" if step is None else str(step)


def _poll(is_true: Callable[[], bool]) -> None:
    """Wait until something is true that another process does: at first without sleep, since it is mostly soon."""
    for _ in range(_POLLS):
        if is_true():
            return
        _give_way()
    pause = _FIRST_PAUSE
    while not is_true():
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE)


_POLLS = 1000
_FIRST_PAUSE, _LAST_PAUSE = 1e-5, 1e-3  # seconds


def _give_way() -> None:
    """Let another process have the processor, if there are more than processors."""
    if sys.platform == "win32":
        time.sleep(0)
    else:
        os.sched_yield()


def shared_words(communicator: Communicator) -> memoryview | None:
    """Memory that the members of a communicator share, as words that are 0: of a file that has a name only until all
    have opened it. None if they cannot share a file; all members get the same answer."""
    import mmap
    import tempfile

    members = communicator.opened
    size = 2 * -(-8 * len(communicator.members) // _LINE) * _LINE
    name, words = "", None
    if members.Get_rank() == 0:
        with contextlib.suppress(OSError):
            directory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            file, name = tempfile.mkstemp(prefix="tinyxla-", dir=directory)
            os.truncate(name, size)
            os.close(file)
    name = members.bcast(name)
    with contextlib.suppress(OSError), open(name, "r+b") as opened:
        words = memoryview(mmap.mmap(opened.fileno(), size)).cast("q")
    have_all = all(members.allgather(words is not None))
    if members.Get_rank() == 0:
        with contextlib.suppress(OSError):
            os.unlink(name)
    return words if have_all else None


_LINE = 64  # bytes of the cache that processors share
