"""The processes of the program: how many there are, which one this is, and communicators of them.

All processes run the same program, and reach in the same order what they do together. Before they begin such a part
they compare fingerprints of it (`World.together`), so that processes which went different ways are told so.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from tinyxla.errors import ProcessError, user_line
from tinyxla.runtime.mpi.library import ALL_REDUCE, Library
from tinyxla.runtime.mpi.watchdog import Wait, Watchdog
from tinyxla.shapes import element_type

Ints = tuple[int, ...]
_Result = TypeVar("_Result")


class Communicator:
    """A communicator of processes, which rank in it in this order.

    Attributes:
        cell: the address of the word with its handle, which is 0 until `connect`.
        opened: it as an object of mpi4py, after `connect`.
    """

    opened: Any = None

    def __init__(self, members: Ints, library: Library) -> None:
        self.members = members
        self._library = library
        self._handle = ctypes.c_int64(0)
        self.cell = ctypes.addressof(self._handle)

    @property
    def handle(self) -> int:
        return self._handle.value

    def connect(self, everyone: Any) -> None:
        """Make it of one of all processes, unless it is made: all members do so together. Nobody else talks on it, and
        its errors end the program."""
        if self.opened is not None:
            return
        if len(self.members) == everyone.Get_size() and list(self.members) == sorted(self.members):
            made = everyone.Dup()
        else:
            whole = everyone.Get_group()
            group = whole.Incl(self.members)
            made = everyone.Create_group(group, hash(self.members) % _TAGS)
            group.Free()
            whole.Free()
        made.Set_errhandler(self._library.MPI.ERRORS_ARE_FATAL)
        self.opened = made
        self._handle.value = self._library.handle(made)


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
        fingerprint: a hash of what must be the same in all participants, of 63 bits.
        comparison: what compares it with those of the others, once its communicators are made.
    """

    def __init__(
        self, name: str, steps: tuple[Step, ...], participants: Ints, communicators: tuple[Communicator, ...]
    ) -> None:
        self.name = name
        self.steps = steps
        self.participants = participants
        self.communicators = communicators
        text = "\n".join((name, *(step.text for step in steps)))
        self.fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
        self.comparison: Comparison | None = None


class Process:
    """The one process of a program that is run by itself."""

    rank = 0
    size = 1
    local_rank = 0
    timeout = 300.0  # seconds that this process waits for others

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """What all processes give, in the order of their ranks."""
        return [data]

    def barrier(self) -> None:
        """Wait until all processes are here."""

    def stop(self) -> None:
        """Leave the other processes."""


class World(Process):
    """The processes of an MPI program. `local_rank` is the number of this one among those of this machine; `all` is
    the communicator of all."""

    def __init__(self) -> None:
        self.library = Library()
        MPI = self.library.MPI
        everyone = MPI.COMM_WORLD
        self.rank, self.size = everyone.Get_rank(), everyone.Get_size()
        machine = everyone.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        self.local_rank = machine.Get_rank()
        machine.Free()
        self.communicator = cache(self._communicator)
        self._comparison = cache(lambda members: Comparison(self._communicator(members), self.library))
        self._communicators: list[Communicator] = []
        self.all = self.communicator(tuple(range(self.size)))
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._waits = (ctypes.c_int64 * 2)()
        self.waits = ctypes.addressof(self._waits)  # two words: the step that waits for others, from 1; how many did
        self._part: Part | None = None  # that runs, or is compared
        self._watchdog = Watchdog(self.library, self._wait, lambda: self.timeout)
        atexit.register(self._end)

    def _communicator(self, members: Ints) -> Communicator:
        made = Communicator(members, self.library)
        self._communicators.append(made)
        return made

    def together(self, part: Part, run: Callable[[], _Result]) -> _Result:
        """Run a part of the program together with its other participants.

        Raises:
            ProcessError: another participant runs another part; or this process was forked from one of the program.
        """
        if os.getpid() != self._process:
            raise ProcessError(
                f"{part.name}: process {os.getpid()} was forked from process {self.rank} of the program, and takes no "
                "part in collective operations; start processes by mpirun, or let the forked one compute by itself."
            )
        with self._lock:  # one thread at a time: others' collective operations would come in between
            before, self._part = self._part, part
            try:
                if self.rank in part.participants:
                    self._waits[0] = _COMPARISON
                    comparison = part.comparison or self._meet(part)
                    if not comparison.is_equal(part.fingerprint):
                        raise ProcessError(comparison.difference(part))
                    if part.comparison is None:
                        self._connect(part, comparison)
                    self._waits[0] = 0
                    self._waits[1] += 1
                return run()
            finally:
                self._waits[0] = 0
                self._part = before

    def _meet(self, part: Part) -> Comparison:
        """What compares a part for the first time."""
        comparison = self._comparison(part.participants)
        comparison.communicator.connect(self.library.MPI.COMM_WORLD)
        return comparison

    def _connect(self, part: Part, comparison: Comparison) -> None:
        """Make the communicators of a part that is the same in all participants."""
        for x in part.communicators:
            x.connect(self.library.MPI.COMM_WORLD)
        part.comparison = comparison

    def step(self, number: int, run: Callable[[], _Result]) -> _Result:
        """Run the step of that number, from 1, of the part that runs; the watchdog looks at it."""
        self._waits[0] = number
        try:
            return run()
        finally:
            self._waits[0] = 0
            self._waits[1] += 1

    def _wait(self) -> Wait | None:
        """What the thread that has the lock waits in."""
        part, number, count = self._part, self._waits[0], self._waits[1]
        if part is None or not number:
            return None
        if number == _COMPARISON:
            text = f"to begin {part.name!r}, first with {part.steps[0]}"
            return Wait(count, ("begin", part.participants), part.participants, text)
        step = part.steps[number - 1]
        members = next((x for x in step.groups if self.rank in x), part.participants)
        return Wait(count, (part.fingerprint, number, members), members, f"in {step}, in {part.name!r}")

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        return self._by_all("all_gather_bytes", lambda: self.all.opened.allgather(data))

    def barrier(self) -> None:
        self._by_all("barrier", lambda: self.all.opened.Barrier())

    def _by_all(self, name: str, run: Callable[[], _Result]) -> _Result:
        """Run something that all processes take part in."""
        part = Part(name, (Step(name, str(user_line() or "")),), self.all.members, (self.all,))
        return self.together(part, lambda: self.step(1, run))

    def stop(self) -> None:
        self.barrier()
        for x in self._communicators:
            if x.opened is not None:
                x.opened.Free()
        self._watchdog.end()
        atexit.unregister(self._end)

    def _end(self) -> None:
        """At the end of the process."""
        if os.getpid() == self._process:
            self._watchdog.end()


_COMPARISON = -1  # what `waits` has for a step while parts are compared


class Comparison:
    """Comparison of fingerprints among the members of a communicator."""

    def __init__(self, communicator: Communicator, library: Library) -> None:
        self.communicator = communicator
        words = ctypes.c_int64 * 2
        self._sent, self._received = words(), words()
        self._addresses = ctypes.addressof(self._sent), ctypes.addressof(self._received)
        self._handles = library.datatype(element_type("s64")), library.operation("maximum")
        self._all_reduce = library.function(ALL_REDUCE)

    def is_equal(self, fingerprint: int) -> bool:
        """Whether all have this fingerprint: the maxima of the fingerprints and of their complements are its own."""
        self._sent[:] = fingerprint, ~fingerprint
        self._all_reduce(*self._addresses, 2, *self._handles, self.communicator.handle)
        return self._received[0] == fingerprint and self._received[1] == ~fingerprint

    def difference(self, part: Part) -> str:
        """What says where the parts of the members begin to differ."""
        parts: list[tuple[str, tuple[Step, ...]]] = self.communicator.opened.allgather((part.name, part.steps))
        members = self.communicator.members
        first_name, first_steps = parts[0]
        for process, (name, steps) in zip(members, parts, strict=True):
            if name != first_name:
                return (
                    f"process {members[0]} runs {first_name!r}, and process {process} at the same time {name!r}; all "
                    "must run the same programs in the same order."
                )
            for number, (one, other) in enumerate(zip_longest(first_steps, steps)):
                if one is None or other is None or one.text != other.text:
                    return (
                        f"{name}: collective operation {number} is {_described(one)} in process {members[0]}, but "
                        f"{_described(other)} in process {process}; all must run the same ones in the same order."
                    )
        return f"{part.name}: processes run different programs, though their collective operations are equal."


def _described(step: Step | None) -> str:
    return "none" if step is None else str(step)


_world: Process | None = None
_is_started = False


def world() -> Process:
    """The processes of the program; one, unless `start` found more."""
    global _world
    if _world is None:
        _world = Process()
    return _world


def is_started() -> bool:
    """Whether `start` was called, and `stop` was not."""
    return _is_started


def together(part: Part, run: Callable[[], _Result]) -> _Result:
    """`World.together` of the processes that there are."""
    among = world()
    if not isinstance(among, World):
        raise ProcessError(f"{part.name}: its processes have been shut down; run it before distributed.shutdown.")
    return among.together(part, run)


def start(is_launched: bool) -> None:
    """Become one of the processes of an MPI program, or the only one if no launcher started several."""
    global _world, _is_started
    if _is_started or _world is not None:
        raise ProcessError(
            "distributed.initialize: it must be called once, before anything asks for the processes of the program; "
            "call it first."
        )
    _world = World() if is_launched else Process()
    _is_started = True


def stop() -> None:
    """Leave the other processes, when all of them do."""
    global _world, _is_started
    if _is_started and _world is not None:
        _world.stop()
        _world, _is_started = None, False
