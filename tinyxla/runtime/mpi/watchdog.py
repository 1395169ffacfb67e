"""A watchdog over the processes of an MPI program: waits that can never end, ends of single processes, and Ctrl-C.

A call of MPI returns when the others come, or never. So a thread of each process looks at what the process waits for.
A wait of more than a second it tells the watchdogs of the others, and so it does that the process has ended. From what
all know follows a deadlock: a set of processes that all wait, each for one of them, and of which no operation has all
its members. Then, when a process waits for one that has ended, or longer than the time limit, the watchdog says who
waits where, and aborts all processes. An uncaught exception aborts them, too.

Source: "Deadlock Detection in Distributed Systems" (Knapp, ACM Computing Surveys 19, 1987), the AND model.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from tinyxla.runtime.mpi.library import Library

PERIOD = 0.25  # seconds between looks
_LONG = 1.0  # seconds from which on a wait is told the others
_CERTAIN = 8  # looks in a row that see the same deadlock: what others have told may be late


class Wait(NamedTuple):
    """What a process waits in.

    Attributes:
        number: how many waits of this process were before: two waits are the same if it is.
        operation: what all members of an operation have in common.
        members: the processes that must come.
        text: for messages.
    """

    number: int
    operation: tuple[Any, ...]
    members: tuple[int, ...]
    text: str


class Watchdog:
    """The watchdog of one process.

    Args:
        library: MPI.
        wait: gives what the process waits in now, if it does.
        difference: gives what says that another process runs another program, if that is known; otherwise empty.
        limit: gives the most seconds that a wait may last.
    """

    def __init__(
        self,
        library: Library,
        wait: Callable[[], Wait | None],
        difference: Callable[[], str],
        limit: Callable[[], float],
    ) -> None:
        MPI = library.MPI
        self._everyone = MPI.COMM_WORLD.Dup()
        self._everyone.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        self._status = MPI.Status()
        self._rank, self._size = self._everyone.Get_rank(), self._everyone.Get_size()
        self._wait, self._difference, self._limit = wait, difference, limit
        self._told: dict[int, Wait | None] = {}  # of the other processes, what they wait in
        self._ended: set[int] = set()
        self._sends: list[Any] = []
        self._looks = 0  # in a row that saw the same deadlock
        self._interrupts, self._wakeup = -1, -1  # the ends of a pipe
        self._stopped = threading.Event()
        self._may_talk = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._hook_exceptions()
        self._watch_interrupts()
        self._thread = threading.Thread(target=self._watch, name="tinyxla-mpi-watchdog", daemon=True)
        self._thread.start()

    # --- what this process does

    def _watch(self) -> None:
        current, since, interrupted = None, 0.0, False
        while not self._stopped.wait(PERIOD):
            now, wait = time.monotonic(), self._wait()
            is_new = wait is None or current is None or wait.number != current.number
            if is_new:
                current, since, self._looks = wait, now, 0
            interrupted = self._is_interrupted() or (interrupted and not is_new)
            is_long = current is not None and now - since > _LONG
            if self._may_talk:
                self._receive()
                told = current if is_long else None
                if told != self._told.get(self._rank):
                    self._send(told)
            if current is None or not is_long:
                continue
            if interrupted:
                self.abort(f"process {self._rank} was interrupted while it waits {current.text}")
            self._check(current)
            if now - since > self._limit():
                limit = f"{self._limit():g} s (config.collective_timeout_seconds)"
                self.abort(f"process {self._rank} has waited for {limit} {current.text}{self._others()}")

    def _check(self, current: Wait) -> None:
        difference, wait = self._difference(), self._wait()
        still_waits = wait is not None and wait.number == current.number  # so the difference is of the same part
        if difference and still_waits:
            self.abort(difference.rstrip("."))
        ended = sorted(self._ended.intersection(current.members))
        if ended:
            self.abort(f"process {ended[0]} has ended, and process {self._rank} waits {current.text}")
        locked = deadlocked(self._rank, self._told)
        self._looks = self._looks + 1 if locked else 0
        if self._looks >= _CERTAIN and locked[0] == self._rank:
            waits = "; ".join(f"process {k} waits {w.text}" for k in locked if (w := self._told.get(k)) is not None)
            self.abort(f"processes wait for one another in different operations: {waits}")

    def _others(self) -> str:
        others = [(k, wait) for k, wait in sorted(self._told.items()) if wait is not None and k != self._rank]
        return "".join(f"; process {k} waits {wait.text}" for k, wait in others)

    def _send(self, wait: Wait | str | None) -> None:
        """Tell all others what this process waits in, or that it has ended."""
        self._told[self._rank] = wait if isinstance(wait, Wait) else None
        self._sends = [x for x in self._sends if not x.Test()]
        others = (k for k in range(self._size) if k != self._rank)
        self._sends += [self._everyone.isend(wait, dest=k) for k in others]

    def _receive(self) -> None:
        while self._everyone.iprobe():
            found = self._everyone.recv(status=self._status)
            process = self._status.Get_source()
            if found == _ENDED:
                self._ended.add(process)
            self._told[process] = found if isinstance(found, Wait) else None

    def abort(self, message: str) -> None:
        """End all processes, with a message."""
        sys.stdout.flush()
        print(f"tinyxla: {message}; all processes are ended.", file=sys.stderr, flush=True)
        self._everyone.Abort(1)

    def end(self) -> None:
        """Tell the others that this process ends, and wait until they do as well."""
        self.stop()
        try:
            if self._may_talk:
                self._send(_ENDED)
            barrier, pause = self._everyone.Ibarrier(), 1e-4
            while not barrier.Test():
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
        except BaseException:  # from outside, such as Ctrl-C
            self.abort(f"process {self._rank} was interrupted while it waits for the others to end")

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()
        sys.excepthook, threading.excepthook = self._hooks
        if self._wakeup >= 0:
            signal.set_wakeup_fd(-1)

    # --- exceptions and interrupts

    def _hook_exceptions(self) -> None:
        """Have an exception that nothing catches end all processes, after it is shown. Those that are typed in one by
        one are none of these."""
        self._hooks = of_main, of_threads = sys.excepthook, threading.excepthook

        def in_main(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
            of_main(kind, error, traceback)
            if not hasattr(sys, "ps1"):
                self.abort(f"process {self._rank} raised {kind.__name__}")

        def in_thread(found: threading.ExceptHookArgs) -> None:
            of_threads(found)
            if found.exc_type is not SystemExit:
                self.abort(f"a thread of process {self._rank} raised {found.exc_type.__name__}")

        sys.excepthook, threading.excepthook = in_main, in_thread

    def _watch_interrupts(self) -> None:
        """Have Python write the numbers of signals to a pipe, unless something else does: the handler of one runs when
        the call of MPI returns."""
        if threading.current_thread() is not threading.main_thread():
            return
        interrupts, wakeup = os.pipe()
        os.set_blocking(interrupts, False)
        os.set_blocking(wakeup, False)
        before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        if before == -1:
            self._interrupts, self._wakeup = interrupts, wakeup
            return
        signal.set_wakeup_fd(before)
        os.close(interrupts)
        os.close(wakeup)

    def _is_interrupted(self) -> bool:
        """Whether Ctrl-C came since the last look."""
        if self._interrupts < 0:
            return False
        try:
            return signal.SIGINT in os.read(self._interrupts, 4096)
        except BlockingIOError:
            return False


_ENDED = "ended"


def deadlocked(process: int, waits: Mapping[int, Wait | None]) -> list[int]:
    """The processes that wait in vain because one of them does, if this one does: each waits for another of them. There
    is no such set if somebody on whom it depends does not wait, or waits in an operation that has all its members."""
    found: set[int] = set()
    pending = [process]
    while pending:
        wait = waits.get(k := pending.pop())
        if wait is None:
            return []
        missing = [m for m in wait.members if (x := waits.get(m)) is None or x.operation != wait.operation]
        if not missing:
            return []
        found.add(k)
        pending += (m for m in missing if m not in found)
    return sorted(found)
