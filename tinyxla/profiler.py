"""Where the time goes: a profile of a compiled function by step and by source line, and traces of whole programs.

A *profile* (`jit(f).lower(x).compile().profile(x)`) runs one compiled function with a clock around each of its steps,
and sets what they take beside what memory and arithmetic of the machine would need (`machine()`).

A *trace* records every compiled function that is called meanwhile, with its steps, and what `TraceAnnotation` names. It
is a file in the Trace Event Format, which https://ui.perfetto.dev and `chrome://tracing` show as a time line. The names
are those of `jax.profiler`.

Neither costs anything where it is not used: instrumented programs have a schedule of their own.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinyxla.api.jit import observe
from tinyxla.backends import Executable
from tinyxla.backends.clock import now
from tinyxla.compiler.report import Bound, Machine, Report, StepInfo, table
from tinyxla.compiler.step_costs import Cost
from tinyxla.errors import ArgumentError, ProfilerError
from tinyxla.runtime.threads import get_num_threads
from tinyxla.util.wording import counted, duration

__all__ = [
    "LineTime",
    "Machine",
    "Profile",
    "StepTime",
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "machine",
    "start_trace",
    "stop_trace",
    "trace",
]

_machines: dict[int, Machine] = {}


def machine() -> Machine:
    """How fast this machine moves memory and computes, with the threads that compiled functions use at present.

    It is measured by the first call, which takes about half a second, and for each number of threads once. The figures
    are what loops of the compiler's own kind reach: a sum of two arrays into one of them, independent fused
    multiply-adds in registers, exponentials of what is in the first cache.

    Returns:
        Bandwidths in bytes per second by size, and operations per second.

    Example:
        >>> import tinyxla as tx
        >>> tx.profiler.machine().operations > 1e8
        True
    """
    from tinyxla.backends.numba.program.roofline import measure  # here, since it loads LLVM

    threads = get_num_threads()
    if threads not in _machines:
        _machines[threads] = measure()
    return _machines[threads]


# --- profiles ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepTime:
    """A step, how often it ran in one call, and the seconds it took in one call in the mean; what it could have taken
    (`bound`) is by its roofline.

    >>> import tinyxla
    >>> machine = tinyxla.profiler.Machine(1, ((0, 1e10),), operations=1e10, transcendentals=1e9)
    >>> compiled = tinyxla.jit(lambda x: 2 * x).lower(tinyxla.numpy.ones(1000)).compile()
    >>> step = compiled.profile(tinyxla.numpy.ones(1000), seconds=0.0, machine=machine).steps[0]
    >>> step.runs, step.bound.by
    (1.0, 'memory')
    """

    info: StepInfo
    runs: float
    seconds: float
    bound: Bound

    @property
    def cost(self) -> Cost:
        return self.info.cost

    def row(self, whole: float, equal: int = 1) -> tuple[str, ...]:
        """What the page says of it, or of so many equal ones together.

        Args:
            whole: the time in seconds of which the share is told.
            equal: how many equal steps the row stands for.

        Returns:
            Texts: share, time, runs, GB/s, GFLOP/s, limit and step.

        >>> import tinyxla
        >>> machine = tinyxla.profiler.Machine(1, ((0, 1e10),), operations=1e10, transcendentals=1e9)
        >>> compiled = tinyxla.jit(lambda x: 2 * x).lower(tinyxla.numpy.ones(1000)).compile()
        >>> profile = compiled.profile(tinyxla.numpy.ones(1000), seconds=0.0, machine=machine)
        >>> len(profile.steps[0].row(profile.seconds))  # share, time, runs, GB/s, GFLOP/s, limit, step
        7
        """
        moved, done = self.cost.bytes * self.runs, (self.cost.operations + self.cost.transcendentals) * self.runs
        seconds = self.seconds or float("inf")
        least = self.bound.seconds * self.runs
        return (
            f"{self.seconds / (whole or 1):.1%}",
            duration(self.seconds),
            f"{self.runs:.6g}",
            f"{moved / seconds / 1e9:.3g}" if moved else "",
            f"{done / seconds / 1e9:.3g}" if done else "",
            f"{least / seconds:.0%} of {self.bound.by}" if least else "",
            f"{f'{equal} times' if equal > 1 else self.info.number} {self.info.title}",
        )


@dataclass(frozen=True)
class LineTime:
    """A line of the user's program, and the seconds of one call that its operations took. The time of a step that
    serves several lines is divided among them by the work that each asks for.

    >>> from tinyxla.profiler import LineTime
    >>> LineTime("train.py:3 (loss): y = 2 * x", seconds=1e-6, steps=(0,)).seconds
    1e-06
    """

    line: str
    seconds: float
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Profile:
    """What one call of a compiled function takes: the mean of the quicker half of many calls, since other programs make
    some slower. It prints as a page.

    Attributes:
        name: of the function.
        calls: how many calls there were.
        seconds: of one call, as the caller sees it.
        python: how many of these pass in Python, before and after the native program.
        schedule: how many pass between steps.
        steps: the steps, the slowest first.
        machine: what they are compared with.

    >>> import tinyxla
    >>> machine = tinyxla.profiler.Machine(1, ((0, 1e10),), operations=1e10, transcendentals=1e9)
    >>> compiled = tinyxla.jit(lambda x: 2 * x).lower(tinyxla.numpy.ones(1000)).compile()
    >>> profile = compiled.profile(tinyxla.numpy.ones(1000), seconds=0.0, machine=machine)
    >>> len(profile.steps), profile.calls
    (1, 1)
    """

    name: str
    calls: int
    seconds: float
    python: float
    schedule: float
    steps: tuple[StepTime, ...]
    machine: Machine

    def __repr__(self) -> str:
        return f"<profile of {self.name}, {counted(self.calls, 'call')} of {duration(self.seconds)}>"

    def _repr_html_(self) -> str:
        """For notebooks: the steps and the lines of the program, with bars of their shares of the time."""
        from tinyxla.text import html  # here, since few programs need it

        whole = self.seconds or 1.0
        heads = ("share", "time", "runs", "GB/s", "GFLOP/s", "limit", "step")

        def row(steps: tuple[StepTime, ...]) -> list[str | html.Bar]:
            share, *others = (one := _together(steps)).row(self.seconds, len(steps))
            return [html.Bar(one.seconds / whole, share), *others]

        lines = [
            (html.Bar(x.seconds / whole, f"{x.seconds / whole:.1%}"), duration(x.seconds), x.line)
            for x in self.by_line()
        ]
        return html.page(
            f"{self.name}: {duration(self.seconds)} a call",
            html.paragraph(
                f"the quicker half of {counted(self.calls, 'call')}; {duration(self.python)} in Python, "
                f"{duration(self.schedule)} between steps; {self.machine}"
            ),
            html.table(heads, map(row, self.by_kernel()), right=range(1, 5)),
            html.table(("share", "time", "line"), lines, right=[1]),
        )

    def by_kernel(self) -> list[tuple[StepTime, ...]]:
        """The steps, those together that run the same kernel and cost the same, such as the layers of a network: the
        slowest first.

        Returns:
            A list of tuples of equal steps.

        >>> import tinyxla
        >>> machine = tinyxla.profiler.Machine(1, ((0, 1e10),), operations=1e10, transcendentals=1e9)
        >>> compiled = tinyxla.jit(lambda x: 2 * x).lower(tinyxla.numpy.ones(1000)).compile()
        >>> profile = compiled.profile(tinyxla.numpy.ones(1000), seconds=0.0, machine=machine)
        >>> [len(steps) for steps in profile.by_kernel()]
        [1]
        """
        found: dict[tuple[str, Cost], list[StepTime]] = {}
        for step in self.steps:
            found.setdefault((step.info.title, step.cost), []).append(step)
        return sorted(map(tuple, found.values()), key=lambda steps: -sum(step.seconds for step in steps))

    def by_line(self) -> list[LineTime]:
        """The lines of the user's program, the slowest first.

        Returns:
            A list of `LineTime`s.

        >>> import tinyxla
        >>> machine = tinyxla.profiler.Machine(1, ((0, 1e10),), operations=1e10, transcendentals=1e9)
        >>> compiled = tinyxla.jit(lambda x: 2 * x).lower(tinyxla.numpy.ones(1000)).compile()
        >>> profile = compiled.profile(tinyxla.numpy.ones(1000), seconds=0.0, machine=machine)
        >>> profile.by_line()[0].steps
        (0,)
        """
        seconds: dict[str, float] = {}
        steps: dict[str, list[int]] = {}
        for step in self.steps:
            lines = step.info.lines or ("(no line of the program: copies and the like)",)
            for line, share in zip(lines, step.info.shares or (1.0,), strict=True):
                seconds[line] = seconds.get(line, 0.0) + share * step.seconds
                steps.setdefault(line, []).append(step.info.number)
        found = [LineTime(line, each, tuple(sorted(steps[line]))) for line, each in seconds.items()]
        return sorted(found, key=lambda x: -x.seconds)

    def __str__(self) -> str:
        heads = ("share", "time", "runs", "GB/s", "GFLOP/s", "limit", "step")
        lines = [
            f"{self.name}: {duration(self.seconds)} a call (the quicker half of {self.calls}), of which "
            f"{duration(self.python)} in Python and {duration(self.schedule)} between steps",
            str(self.machine),
            "",
            *table(
                heads, [_together(steps).row(self.seconds, len(steps)) for steps in self.by_kernel()], right=range(5)
            ),
            "",
        ]
        rows = [
            (f"{x.seconds / (self.seconds or 1):.1%}", duration(x.seconds), " ".join(map(str, x.steps)), x.line)
            for x in self.by_line()
        ]
        return "\n".join([*lines, *table(("share", "time", "steps", "line"), rows, right=range(2))])


def _together(steps: Sequence[StepTime]) -> StepTime:
    first = steps[0]
    return StepTime(first.info, sum(x.runs for x in steps), sum(x.seconds for x in steps), first.bound)


def profile(
    report: Report, executable: Executable, call: Callable[[Any], Any], seconds: float, against: Machine | None
) -> Profile:
    """Run `call` with the instrumented executable until the time is over; for `Compiled.profile`."""
    instrumented = executable.instrumented(0)
    if instrumented is None:
        raise ArgumentError(
            "profile: the interpreter has no native steps to measure; Python's own profiler shows its calls."
        )
    call(instrumented)  # a warm-up, which is not measured
    instrumented.record()
    found: list[tuple[int, list[tuple[int, int]]]] = []
    end = now() + int(seconds * 1e9)
    while not found or now() < end:
        start = now()
        call(instrumented)
        spent = now() - start
        record = instrumented.record()
        found.append((spent - record.overhead, record.counted()))
    found.sort(key=lambda one: one[0])
    quick = found[: (len(found) + 1) // 2]
    counted = np.mean([each for _, each in quick], axis=0)
    _, schedule, *times = (counted[:, 1] / 1e9).tolist()
    runs = _runs(report.steps, counted[2:, 0].tolist())
    whole = sum(each for each, _ in quick) / 1e9 / len(quick)
    limits = against or machine()
    steps = [
        StepTime(info, often, each, limits.bound(info.cost))
        for info, often, each in zip(report.steps, runs, times, strict=True)
    ]
    steps.sort(key=lambda step: -step.seconds)
    python = max(0.0, whole - schedule - sum(times))
    return Profile(report.name, len(found), whole, python, schedule, tuple(steps), limits)


def _runs(steps: Sequence[StepInfo], marks: Sequence[float]) -> list[float]:
    """How often each step ran: of its marks, those are not its own that the steps right inside it leave."""
    runs = list(marks)
    for k in reversed(range(len(steps))):
        for j in range(k + 1, len(steps)):
            if steps[j].depth <= steps[k].depth:
                break
            if steps[j].depth == steps[k].depth + 1:
                runs[k] -= runs[j]
    return runs


# --- traces -----------------------------------------------------------------------------------------------------------

_MAX_MARKS = 10_000  # of one call


class _Trace:
    """The events of a trace that is running."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.events: list[dict[str, Any]] = []
        self._lock = threading.RLock()  # a signal's handler may come back in

    def add(self, name: str, start: int, end: int, kind: str, details: dict[str, Any]) -> None:
        """An event between two times in nanoseconds."""
        event = {"name": name, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, "cat": kind}
        event |= {"pid": os.getpid(), "tid": threading.get_native_id(), "args": details}
        with self._lock:
            self.events.append(event)

    def write(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{time.strftime('%Y_%m_%d_%H_%M_%S')}_{os.getpid()}.trace.json"
        path.write_text(json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"}), encoding="utf-8")
        return path


_running: _Trace | None = None


class _Traced:
    """An executable whose calls are part of the trace."""

    def __init__(self, inside: Executable, into: _Trace) -> None:
        self._inside = inside
        self._instrumented = inside.instrumented(_MAX_MARKS)
        self._report = inside.report()
        self._into = into

    @property
    def kernels(self) -> Sequence[Any]:
        return self._inside.kernels

    def report(self) -> Report:
        return self._report

    def parallel_efficiency(self, threads: Sequence[int]) -> dict[int, float]:
        return self._inside.parallel_efficiency(threads)

    def instrumented(self, events: int) -> Any:
        return self._inside.instrumented(events)

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        start = now()
        results = (self._instrumented or self._inside)(arguments)
        steps = self._report.steps
        self._into.add(self._report.name, start, now(), "call", {"steps": len(steps)})
        marks = self._instrumented.record().marks() if self._instrumented is not None else []
        for (_, before), (number, after) in itertools.pairwise(marks):
            if number >= 2 and not _has_inside(steps, number - 2):
                step = steps[number - 2]
                self._into.add(step.title, before, after, "step", {"cost": str(step.cost), "lines": step.lines})
        return results


def _has_inside(steps: Sequence[StepInfo], k: int) -> bool:
    return k + 1 < len(steps) and steps[k + 1].depth > steps[k].depth


def start_trace(log_dir: str | os.PathLike[str], **options: Any) -> None:
    """Begin to record calls of compiled functions.

    Args:
        log_dir: the directory in which `stop_trace` writes the file; it is made if need be.
        options: those of `jax.profiler.start_trace`, which change nothing.

    Raises:
        ProfilerError: a trace is running.

    >>> import pathlib, tempfile
    >>> import tinyxla
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     tinyxla.profiler.start_trace(directory)
    ...     result = tinyxla.jit(lambda x: x * 2)(3.0)
    ...     tinyxla.profiler.stop_trace()
    ...     [path.name.endswith(".trace.json") for path in pathlib.Path(directory).iterdir()]
    [True]
    """
    global _running
    if _running is not None:
        raise ProfilerError(f"start_trace: a trace into {_running.directory} is running; call stop_trace first.")
    into = _Trace(log_dir)
    try:
        observe(functools.cache(lambda executable: _Traced(executable, into)))
        _running = into
    except BaseException:  # Ctrl-C's, say
        observe(None)
        raise


def stop_trace() -> None:
    """End the trace and write its file, `<date>.trace.json`, for https://ui.perfetto.dev.

    Raises:
        ProfilerError: no trace is running.

    >>> import tinyxla
    >>> tinyxla.profiler.stop_trace()
    Traceback (most recent call last):
        ...
    tinyxla.errors.ProfilerError: stop_trace: no trace is running; call start_trace first.
      at ...
    """
    global _running
    if _running is None:
        raise ProfilerError("stop_trace: no trace is running; call start_trace first.")
    observe(None)
    done, _running = _running, None
    done.write()


class trace:
    """Record what compiled functions do within a `with` block; see `start_trace`.

    Example:
        >>> import tempfile, tinyxla as tx
        >>> with tempfile.TemporaryDirectory() as directory, tx.profiler.trace(directory):
        ...     with tx.profiler.TraceAnnotation("twice"):
        ...         tx.jit(lambda x: x * 2)(3.0)
        Array(6., dtype=float32, weak_type=True)
    """

    def __init__(self, log_dir: str | os.PathLike[str], **options: Any) -> None:
        self._log_dir = log_dir
        self._options = options

    def __enter__(self) -> None:
        start_trace(self._log_dir, **self._options)

    def __exit__(self, *error: object) -> None:
        stop_trace()


class TraceAnnotation(ContextDecorator):
    """Names a stretch of the program in a trace: `with TraceAnnotation("epoch", number=3): ...`.

    >>> import json, pathlib, tempfile
    >>> from tinyxla import profiler
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with profiler.trace(directory), profiler.TraceAnnotation("epoch", number=3):
    ...         pass
    ...     [path] = pathlib.Path(directory).iterdir()
    ...     [(event["name"], event["args"]) for event in json.loads(path.read_text())["traceEvents"]]
    [('epoch', {'number': 3})]
    """

    def __init__(self, name: str, **details: Any) -> None:
        self._name = name
        self._details = details
        self._starts: list[int] = []

    def __enter__(self) -> TraceAnnotation:
        self._starts.append(now())
        return self

    def __exit__(self, *error: object) -> None:
        start = self._starts.pop()
        if _running is not None:
            _running.add(self._name, start, now(), "annotation", self._details)


class StepTraceAnnotation(TraceAnnotation):
    """Names one step of a training loop: `with StepTraceAnnotation("train", step_num=k): ...`.

    >>> from tinyxla.profiler import StepTraceAnnotation
    >>> for k in range(2):
    ...     with StepTraceAnnotation("train", step_num=k):
    ...         print(k)
    0
    1
    """


def annotate_function(function: Callable[..., Any], name: str | None = None, **details: Any) -> Callable[..., Any]:
    """A function whose calls are named in traces.

    Args:
        function: any function.
        name: the name in traces; by default that of the function.
        **details: values that are shown with the name.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: what is no function, or a name that is no text.

    Example:
        >>> import tinyxla as tx
        >>> tx.profiler.annotate_function(abs, name="magnitude")(-2)
        2
    """
    if not callable(function):
        raise ArgumentError(f"profiler.annotate_function: takes a function, but got {function!r}.")
    if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"profiler.annotate_function: the name must be a text, but got {name!r}.")

    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(name or getattr(function, "__name__", "function"), **details):
            return function(*args, **kwargs)

    return annotated


def __dir__() -> list[str]:
    return __all__
