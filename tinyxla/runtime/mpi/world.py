"""The processes of the program: how many there are, which one this is, and communicators of them.

All processes run the same program, and reach in the same order what they do together. They compare the parts that they
run (`World.together`), so that processes which went different ways are told so.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from tinyxla.errors import ProcessError, user_line
from tinyxla.runtime.mpi.comparison import ByMessage, ByTable, Communicator, Comparison, Part, Step, shared_words
from tinyxla.runtime.mpi.library import Library
from tinyxla.runtime.mpi.watchdog import Wait, Watchdog

Ints = tuple[int, ...]
_Result = TypeVar("_Result")


class Process:
    """The one process of a program that is run by itself; or the first of several, of which no other runs."""

    rank = 0
    local_rank = 0
    local_size = 1
    timeout = 300.0  # seconds that this process waits for others

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """What all processes give, in the order of their ranks."""
        return [data]

    def barrier(self) -> None:
        """Wait until all processes are here."""

    def stop(self) -> None:
        """Leave the other processes."""


class World(Process):
    """The processes of an MPI program. `local_rank` is the number of this one among the `local_size` of this
    machine; `all` is the communicator of all."""

    def __init__(self) -> None:
        self.library = Library()
        MPI = self.library.MPI
        everyone = MPI.COMM_WORLD
        self.rank, self.size = everyone.Get_rank(), everyone.Get_size()
        machine = everyone.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        self.local_rank, self.local_size = machine.Get_rank(), machine.Get_size()
        self._machine = frozenset(machine.allgather(self.rank))
        machine.Free()
        self.communicator = cache(self._communicator)
        self._comparisons: dict[Ints, Comparison] = {}  # by members
        self._communicators: list[Communicator] = []
        self.all = self.communicator(tuple(range(self.size)))
        self._lock = threading.RLock()
        self._waits = (ctypes.c_int64 * 2)()
        self.waits = ctypes.addressof(self._waits)  # two words: the step that waits for others, from 1; how many did
        self._part: Part | None = None  # that runs, or is compared
        self._waits_for = ""  # while parts are compared
        self.refusal = ""  # why this process takes no part any more, if that is so
        self._watchdog = Watchdog(self.library, self._wait, self._difference, lambda: self.timeout)
        atexit.register(self._watchdog.end)

    def _communicator(self, members: Ints) -> Communicator:
        made = Communicator(members, self.library)
        self._communicators.append(made)
        return made

    def together(self, part: Part, run: Callable[[], _Result]) -> _Result:
        """Run a part of the program together with its other participants.

        Raises:
            ProcessError: another participant runs another part; or this process was forked from one of the program, or
                has run a part that was not the same in all.
        """
        if self.refusal:
            raise ProcessError(f"{part.name}: {self.refusal}")
        with self._lock:  # one thread at a time: others' collective operations would come in between
            before, self._part = self._part, part
            try:
                if self.rank not in part.participants:
                    return run()
                comparison = part.comparison
                if comparison is None:
                    comparison = self._comparison(part)
                comparison.begin(part)
                if part.comparison is None:
                    self._connect(part, comparison)
                result = run()
                self._end_part(comparison)
                return result
            except BaseException:
                for x in self._comparisons.values():  # others may have seen no exception
                    x.is_careful = True
                raise
            finally:
                self._part = before

    def _comparison(self, part: Part) -> Comparison:
        """What compares parts of these participants. The first time they make it together."""
        members = part.participants
        if members not in self._comparisons:
            communicator = self.communicator(members)
            with self._waiting(part.to_begin):
                communicator.connect()
                words = shared_words(communicator) if self._machine.issuperset(members) else None
            among = communicator, self._waiting
            self._comparisons[members] = ByMessage(*among) if words is None else ByTable(*among, words)
        return self._comparisons[members]

    def _connect(self, part: Part, comparison: Comparison) -> None:
        """Make the communicators of a part that is the same in all participants."""
        with self._waiting(part.to_begin):
            for x in part.communicators:
                x.connect()
        part.comparison = comparison

    def _end_part(self, comparison: Comparison) -> None:
        try:
            comparison.end()
        except ProcessError as error:
            self.refusal = f"processes have run different programs before ({error}); start all of them again."
            raise

    @contextmanager
    def _waiting(self, text: str) -> Generator[None]:
        """What happens in this context is a wait for others, as far as the watchdog knows."""
        self._waits_for = text
        self._waits[0] = _COMPARISON
        try:
            yield
        except KeyboardInterrupt:
            self._watchdog.abort(f"process {self.rank} was interrupted while it waits {text}")
        finally:
            self._waits[0] = 0
            self._waits[1] += 1

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
            comparison = self._comparisons.get(part.participants)
            missing = part.participants if comparison is None else comparison.missing()
            return Wait(count, ("begin", part.participants), missing, self._waits_for)
        step = part.steps[number - 1]
        members = next((x for x in step.groups if self.rank in x), part.participants)
        return Wait(count, (part.fingerprint, number, members), members, f"in {step}, in {part.name!r}")

    def _difference(self) -> str:
        """What says that others run another part than that in a step of which this process waits, if that is known. In
        a comparison, processes find out by themselves."""
        if self._part is None or self._waits[0] in (0, _COMPARISON):
            return ""
        comparison = self._comparisons.get(self._part.participants)
        return "" if comparison is None else comparison.difference()

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
        atexit.unregister(self._watchdog.end)

    def leave(self) -> None:
        """In a process that was forked from this one: take no part."""
        atexit.unregister(self._watchdog.end)
        self.refusal = (
            f"process {os.getpid()} was forked from process {self.rank} of the program, and takes no part in "
            "collective operations; start processes by mpirun, or let the forked one compute by itself."
        )


_COMPARISON = -1  # what `waits` has for a step while parts are compared


_world: Process | None = None
_is_started = False
_simulated: ContextVar[Process | None] = ContextVar("simulated", default=None)


@contextmanager
def simulated(size: int) -> Generator[None]:
    """Plan programs as the first of so many processes would, for what is known of them without running them."""
    token = _simulated.set(Process(size))
    try:
        yield
    finally:
        _simulated.reset(token)


def world() -> Process:
    """The processes of the program; one, unless `start` found more or they are `simulated`."""
    global _world
    found = _simulated.get()
    if found is not None:
        return found
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


def _leave_if_forked() -> None:
    if isinstance(_world, World):
        _world.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_if_forked)
