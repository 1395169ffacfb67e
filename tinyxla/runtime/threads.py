"""How many threads share the work.

Compiled functions cut their work at places that do not depend on the number of threads, sums at places that follow from
their shapes alone, and add up parts in a fixed order: so their results are the same, bit for bit, for any number.
Without a word from the user there are as many as processors that the process may use - its affinity and the limits of
its control groups (a container's) count - but not more than TINYXLA_NUM_THREADS or else OMP_NUM_THREADS say. The
threads start with the first work that is split.

Eager operations are calls of NumPy, whose BLAS has threads of its own. It is kept to the number that is set here, but
its products may differ in the last bit from one number to another; and so may what compiled functions leave to NumPy,
as decompositions of large matrices.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import math
import operator
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tinyxla.errors import AttributeValueError, TinyxlaError

__all__ = ["get_num_threads", "num_threads", "set_num_threads"]

MAX_THREADS = 1024

_chosen: int | None = None
_watchers: list[Callable[[int], None]] = []


def get_num_threads() -> int:
    """How many threads, the caller's included, share the work of a compiled function.

    Returns:
        The number of threads.

    Raises:
        AttributeValueError: TINYXLA_NUM_THREADS is not a number of threads.

    Example:
        >>> import tinyxla as tx
        >>> tx.get_num_threads() >= 1
        True
    """
    global _chosen
    if _chosen is None:
        _chosen = default_threads()
    return _chosen


def set_num_threads(threads: int) -> None:
    """Let compiled functions use so many threads, the caller's included, from their next call on.

    Args:
        threads: from 1 to 1024; more than there are processors serves no purpose but tests.

    Raises:
        AttributeValueError: it is no such number.

    Example:
        >>> import tinyxla as tx
        >>> before = tx.get_num_threads()
        >>> tx.set_num_threads(1)
        >>> tx.get_num_threads()
        1
        >>> tx.set_num_threads(before)
    """
    global _chosen
    try:
        count = 0 if isinstance(threads, bool) else operator.index(threads)
    except TypeError:
        count = 0
    if not 1 <= count <= MAX_THREADS:
        raise AttributeValueError(
            f"set_num_threads: the number of threads must be a whole number from 1, the calling thread alone, to "
            f"{MAX_THREADS}, but got {threads!r}."
        )
    _chosen = count
    for watcher in _watchers:
        watcher(count)
    blas = _blas_of_numpy()
    if blas is not None:
        put, most = blas
        put(min(most, count))


class num_threads(ContextDecorator):
    """Use so many threads within a `with` block; the number is one for the whole process.

    Example:
        >>> import tinyxla as tx
        >>> with tx.num_threads(1):
        ...     tx.get_num_threads()
        1
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        self._before = get_num_threads()
        try:
            set_num_threads(self._threads)
        except BaseException:  # Ctrl-C's, say, half way
            set_num_threads(self._before)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        set_num_threads(self._before)

    def _recreate_cm(self) -> Self:  # for each call of what it decorates
        return copy.copy(self)


def watch(watcher: Callable[[int], None]) -> None:
    """Have a function called with every number that is set."""
    _watchers.append(watcher)


@functools.cache
def _blas_of_numpy() -> tuple[Callable[[int], Any], int] | None:
    """The function that sets the number of threads of NumPy's OpenBLAS, and how many it has; None for another BLAS."""
    library = ctypes.CDLL(str(np._core._multiarray_umath.__file__))  # pyright: ignore[reportAttributeAccessIssue]
    for prefix in ("scipy_openblas_", "openblas_"):
        for suffix in ("64_", ""):
            get = getattr(library, f"{prefix}get_num_threads{suffix}", None)
            put = getattr(library, f"{prefix}set_num_threads{suffix}", None)
            if get is not None and put is not None:
                return put, get()
    return None


class Task:
    """A function that runs once in a thread of its own, which no signal interrupts: Python runs the handlers of signals
    in the main thread.

    `start` and `wait` may be interrupted at any time and called again. Those of `threading.Thread` may not: an
    exception in `start` can leave the new thread waiting for a lock, and one in `join` can mark it as ended while it
    runs.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._function = function
        self._process = os.getpid()
        self._decision: dict[str, bool] = {}  # whether it runs: by the thread, or who waits for one that has not begun
        self._has_started = False
        self._running = allocate_lock()
        self._running.acquire()
        self._is_done = False

    def start(self) -> bool:
        """Run it, if there is a thread to be had; else False."""
        try:
            start_new_thread(self._run, ())
            self._has_started = True
        except RuntimeError:  # or Python is about to end
            self._decision.setdefault("runs", False)
        return self._has_started

    def _run(self) -> None:
        if not self._decision.setdefault("runs", True):
            return
        try:
            self._function()
        except BaseException as error:
            self.error = error
        self._is_done = True
        self._running.release()

    def wait(self) -> bool:
        """Wait until it has run. Whether it has: not without a thread, nor in the child of a fork meanwhile."""
        if not self._has_started and not self._decision.setdefault("runs", False):
            return False
        while not self.is_over:
            if self._running.acquire(timeout=1.0):
                self._running.release()
        return self._is_done

    def raise_error(self) -> None:
        """Raise the error that ended it, if one did."""
        if isinstance(self.error, TinyxlaError):
            self.error.add_user_line()
        if self.error is not None:
            raise self.error

    @property
    def is_over(self) -> bool:
        """Whether it runs no more, so far as it has begun."""
        return self._is_done or self._process != os.getpid()


def shielded(function: Callable[[], object]) -> None:
    """Run a function that must not be interrupted half way, as one that sets up a part of the process: where there is a
    thread to be had, an exception of a signal's handler ends the waiting alone."""
    task = Task(function)
    if not task.start() or not task.wait():
        function()
    task.raise_error()


# How many there are to use.


def default_threads(environment: Mapping[str, str] = os.environ) -> int:
    """The processors this process may use, further limited by TINYXLA_NUM_THREADS or else OMP_NUM_THREADS."""
    limits = [available_processors(), control_group_limit(), MAX_THREADS]
    own = environment.get("TINYXLA_NUM_THREADS")
    if own is not None:
        if not own.strip().isdecimal() or int(own) == 0:
            raise AttributeValueError(f"TINYXLA_NUM_THREADS must be a whole number of at least 1, but is {own!r}.")
        limits.append(int(own))
    else:
        first = environment.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # one number per level of nesting
        if first.isdecimal() and int(first) > 0:
            limits.append(int(first))
    return max(1, min(limits))


def available_processors() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_processors(processes: int) -> None:
    """Let compiled functions use this process's share of the machine, which so many processes have, unless
    TINYXLA_NUM_THREADS says how many threads there are."""
    if "TINYXLA_NUM_THREADS" not in os.environ:
        machine = min(os.cpu_count() or 1, control_group_limit())
        set_num_threads(max(1, min(get_num_threads(), machine // processes)))


CONTROL_GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def control_group_limit(root: Path = CONTROL_GROUPS, membership: Path = MEMBERSHIP) -> int:
    """How many processors Linux control groups grant, rounded up (a container's CPU limit); huge without a limit.

    `cpu.max` is the unified hierarchy's file (kernel documentation, cgroup-v2), the two `cpu.cfs_*` files the older
    one's.
    """
    return min(map(_group_limit, control_groups("cpu", root, membership)), default=sys.maxsize)


def control_groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The folders of the control groups of this process that a controller's limits are in, with their ancestors, as a
    group's limit binds its descendants too."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        folder = root / controllers / path.strip("/")
        for group in (folder, *folder.parents):
            yield group
            if group == root:
                break


def _group_limit(group: Path) -> int:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        allowed = int(quota) / int(period)  # "max" is no number, -1 is no limit
    except (OSError, ValueError, ZeroDivisionError):
        return sys.maxsize
    return math.ceil(allowed) if allowed > 0 else sys.maxsize
