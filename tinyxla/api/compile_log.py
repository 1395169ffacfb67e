"""What is said of tracing and compiling: the options `log_compiles`, `explain_cache_misses` and `slow_compile_seconds`.

Messages of the first two are warnings of the logger "tinyxla", which Python prints where no handler is set; those of
`log_compiles` are there without the option, too, where the logger shows messages for debugging. Work that takes long is
told on stderr while it goes on, by a thread that sleeps until then and looks at what the working thread does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tinyxla.errors import user_line
from tinyxla.hlo import Computation, Instruction
from tinyxla.shapes import Shape
from tinyxla.tracing.config import config
from tinyxla.util.observers import Event
from tinyxla.util.tracebacks import PACKAGE, innermost_visible
from tinyxla.util.wording import counted, shortened

if TYPE_CHECKING:
    from tinyxla.backends import Executable


_MAX_SHAPES = 6  # that a message or representation shows
_MIN_UNROLLED_COPIES = 30  # copies of a line's operations, from which on a loop is better
_GROWTH = 4  # each report on the same work comes after so many times the seconds of the last


_WARNING, _DEBUG = 30, 10  # the levels of Python's `logging`


def _write(message: str, level: int = _WARNING) -> None:
    """A message of the library's logger."""
    import logging  # here, since most programs log nothing

    logging.getLogger("tinyxla").log(level, message)


log = _write
_logger = "tinyxla"
work_done: Event[[str, str, float]] = Event()
""""trace" or "compile", a function's name, and the seconds that this took."""
program_made: Event[[Computation]] = Event()
"""Each program that a function is compiled to, also where an equal one is there."""


def _level() -> int | None:
    """That of messages of tracing and compiling: warnings by the option, else what debugging shows; None: not any."""
    if config.log_compiles:
        return _WARNING
    logging = sys.modules.get("logging")
    return _DEBUG if logging is not None and logging.getLogger(_logger).isEnabledFor(_DEBUG) else None


def say_by(say: Callable[..., None], logger: str) -> None:
    """Have a function called with each message and its level, for the logger of that name, not for the library's."""
    global log, _logger
    log, _logger = say, logger


def signature_text(computation: Computation) -> str:
    """The shapes of a computation's parameters and results, of many the first ones: `(f32[3], s32[]) -> f32[3]`."""
    parameters = shortened(computation.parameter_shapes, _MAX_SHAPES)
    results: Sequence[Shape] = [x.array_shape for x in computation.outputs]
    listed = shortened(results, _MAX_SHAPES)
    return f"({parameters}) -> {listed if len(results) == 1 else f'({listed})'}"


@contextlib.contextmanager
def tracing(name: str) -> Generator[Callable[[Computation], None]]:
    """A block in which a function is traced, which is logged, and told of if it takes long. The computation is to be
    handed to the function that the block gets. (No function that calls what traces: compiled functions that are traced
    in each other are as deep as Python's calls.)"""
    start, made = time.perf_counter(), list[Computation]()
    with _watched(name, None):
        yield made.append
    work_done.notify("trace", name, time.perf_counter() - start)
    level = _level()
    if level is not None:
        (computation,) = made
        log(
            f"Finished tracing {name.strip('<>')}{signature_text(computation)} for jit in {_since(start)}: "
            f"{counted(count_operations(computation), 'operation')}{_at_user_line()}",
            level,
        )


def compiled(computation: Computation, compile: Callable[[], Executable]) -> Executable:
    """The result of compiling a computation, which is logged, and told of if it takes long."""
    level, name = _level(), computation.name.strip("<>")
    start = time.perf_counter()
    if level is not None:
        log(f"Compiling {name}{signature_text(computation)}{_at_user_line()}", level)
    with _watched(name, computation):
        made = compile()
    work_done.notify("compile", computation.name, time.perf_counter() - start)
    if level is not None:
        log(f"Finished compilation of {name} in {_since(start)}: {counted(len(made.kernels), 'kernel')}", level)
        _state.last = made
    return made


def noting_shared(computation: Computation, executable: Executable) -> Executable:
    """An executable for a function, which is logged if that of an equal computation was there already."""
    program_made.notify(computation)
    level = _level()
    if level is not None and _state.last is not executable:
        log(f"Finished compilation of {computation.name.strip('<>')} in 0 s: an equal program is there already", level)
    _state.last = None
    return executable


def _since(start: float) -> str:
    return f"{time.perf_counter() - start:.3g} s"


def _at_user_line() -> str:
    line = user_line()
    return f", called at {line}" if line else ""


def count_operations(computation: Computation) -> int:
    """The number of operations, those of loops, branches and calls included."""
    return sum(1 for _ in _instructions(computation))


def _instructions(computation: Computation) -> Iterator[Instruction]:
    seen: set[int] = set()
    waiting = [computation]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield from one.instructions
            waiting.extend(inner for x in one.instructions for inner in x.computations())


# --- work that takes long ---------------------------------------------------------------------------------------------


class _Watched(threading.local):
    """Whether work of this thread is watched already, and what it compiled last, if that was not noted."""

    is_busy = False
    last: Executable | None = None


_state = _Watched()


@contextlib.contextmanager
def _watched(name: str, computation: Computation | None) -> Generator[None]:
    """Tell of the work in the block, if it takes longer than the option says; of work within other work, nothing."""
    seconds = config.slow_compile_seconds
    if seconds is None or _state.is_busy:
        yield
        return
    watch = _Watch(name.strip("<>"), computation, threading.get_ident(), seconds)
    _state.is_busy = True
    try:
        _watcher.add(watch)
        yield
    finally:
        _state.is_busy = False
        _watcher.remove(watch)
        watch.end()


class _Watch:
    """Work of a thread, and when it is told of: `due`, at growing intervals."""

    def __init__(self, name: str, computation: Computation | None, thread: int, seconds: float) -> None:
        self._start = time.perf_counter()
        self.due = self._start + seconds
        self._seconds = seconds
        self._name = name
        self._computation = computation
        self._thread = thread
        self._is_reported = False

    def text(self) -> str:
        """What the thread does now."""
        frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
        return report(self._name, self._computation, time.perf_counter() - self._start, frame)

    def tell(self, text: str) -> None:
        """Say it, of reports after the first one the first line."""
        _say(text.partition("\n")[0] if self._is_reported else text)
        self._is_reported = True
        self._seconds = max(self._seconds, 1.0) * _GROWTH
        self.due = time.perf_counter() + self._seconds

    def end(self) -> None:
        """The work is over."""
        if self._is_reported:
            verb = "tracing" if self._computation is None else "compiling"
            _say(f"{verb} {self._name} took {time.perf_counter() - self._start:.3g} s")


class _Watcher:
    """One thread for all work that is watched. It sleeps until something is due, so that work which ends before costs
    an entry in a set; where nothing is watched for a while it ends, and the next work starts another one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watches: set[_Watch] = set()
        self._thread: threading.Thread | None = None
        self._wakes = 0.0

    def add(self, watch: _Watch) -> None:
        with self._condition:
            self._watches.add(watch)
            if self._thread is None:
                self._wakes = watch.due
                thread = threading.Thread(target=self._run, name="tinyxla-slow-work", daemon=True)
                with contextlib.suppress(RuntimeError):  # where there are no threads, or too many
                    thread.start()
                    self._thread = thread
            elif watch.due < self._wakes:
                self._condition.notify()

    def remove(self, watch: _Watch) -> None:
        with self._condition:
            self._watches.discard(watch)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is watched."""
        return not self._watches

    def _run(self) -> None:
        was_idle = False
        while True:
            with self._condition:
                now = time.perf_counter()
                late = [watch for watch in self._watches if watch.due <= now]
                if not late:
                    if was_idle and self.is_idle:
                        self._thread = None
                        return
                    was_idle = self.is_idle
                    self._wakes = min([now + _IDLE_SECONDS, *(watch.due for watch in self._watches)])
                    self._condition.wait(self._wakes - now)
            for watch in late:
                text = watch.text()
                with self._condition:
                    if watch in self._watches:
                        watch.tell(text)


_IDLE_SECONDS = 5.0
_watcher = _Watcher()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watcher.__init__)  # whose thread there is not, and whose lock may be held


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # there may be no stderr, or a closed one
        print(f"tinyxla: {text}", file=sys.stderr, flush=True)


def report(name: str, computation: Computation | None, seconds: float, frame: FrameType | None) -> str:
    """What is done to a function for so long, what a thread whose innermost frame is given does of it, and what would
    be better."""
    if computation is None:
        return f"tracing {name} for {seconds:.3g} s{_line_of_user(frame)}"
    size = counted(count_operations(computation), "operation")
    lines = [f"compiling {name} for {seconds:.3g} s ({size}): {stage(frame)}"]
    found = copies(computation)
    if found is not None:
        number, line = found
        lines.append(
            f"  {number:,} copies of {line} are in its graph, as of a Python loop. lax.scan, lax.fori_loop and lax.map "
            "record and compile their body once."
        )
    lines.append("  (config.update('slow_compile_seconds', None) or TINYXLA_SLOW_COMPILE_SECONDS=off says nothing.)")
    return "\n".join(lines)


# Stages by the modules that are at work, the first that is found from the innermost frame on.
_STAGES = (
    ("compiler/passes", "simplifying the graph"),
    ("compiler/fusion", "fusing operations into loops"),
    ("compiler/schedule", "arranging kernels and memory"),
    ("loopir", "writing loops"),
    ("backends/numba/emit", "writing LLVM's text"),
    ("backends/numba/jit", "waiting for LLVM, which makes machine code"),
    ("backends/numba", "arranging kernels and memory"),
    ("compiler", "optimizing"),
)


def stage(frame: FrameType | None) -> str:
    """What a thread is doing, by the innermost of its frames that belongs to a part of the compiler."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            inside = Path(path[len(PACKAGE) :]).as_posix()
            for folder, what in _STAGES:
                if inside.startswith((f"{folder}/", f"{folder}.")):
                    return what
        frame = frame.f_back
    return "starting"


def _line_of_user(frame: FrameType | None) -> str:
    frame = innermost_visible(frame)
    return "" if frame is None else f", now at {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"


def copies(computation: Computation) -> tuple[int, str] | None:
    """The number of copies of one user's line that most of a graph consists of, and that line; None if there is none.

    Instructions of one line, opcode and shape are counted: in a loop that was unrolled n times there are n of each, or
    a multiple for those that stand in the line several times.
    """
    lines: dict[Any, Counter[Any]] = {}
    total = 0
    for x in _instructions(computation):
        total += 1
        if x.source is not None:
            lines.setdefault(x.source, Counter())[x.op.name, x.shape] += 1
    repeated = {line: [n for n in of.values() if n >= _MIN_UNROLLED_COPIES] for line, of in lines.items()}
    if not total or 2 * sum(map(sum, repeated.values())) < total:
        return None
    line = max(repeated, key=lambda line: sum(repeated[line]))
    often = Counter(repeated[line])
    most = max(often.values())
    return min(n for n, times in often.items() if times == most), str(line)


# --- cache misses -----------------------------------------------------------------------------------------------------


Facts = dict[str, Any]  # of a call that decide which program it runs, by what they are of
STRUCTURE = "the structure of the arguments"  # a fact whose value is text


def explain(name: str, facts: Facts, others: Sequence[Facts], is_remade: bool) -> None:
    """Log why a call ran none of the programs there are of a function: what is different from the nearest of them.

    Args:
        name: of the function.
        facts: of the call.
        others: those of the programs, the newest last.
        is_remade: whether another function that was made at the same line has been traced.
    """
    head = f"Cache miss of {name.strip('<>')}{_at_user_line()}"
    if not others:
        text = "it is its first call"
        if is_remade:
            text += (
                ". A function made at the same line was traced before: what is made anew by each call (a lambda, a "
                "partial, a function in a function) is traced anew. Make it, and apply jit to it, once"
            )
        log(f"{head}\n  {text}.")
        return
    nearest = min(reversed(others), key=lambda other: len(_differences(facts, other)))
    number = f"the nearest of {len(others)} programs" if len(others) > 1 else "the program there is"
    log("\n".join([head, *(f"  {x}" for x in _differences(facts, nearest)), f"  compared with {number}."]))


def _differences(facts: Facts, others: Facts) -> list[str]:
    found: list[str] = []
    names = dict.fromkeys([*facts, *others])
    if facts[STRUCTURE] != others[STRUCTURE]:  # then the arrays are not each other's
        names = [name for name in names if not isinstance({**others, **facts}[name], ArrayFact)]
    for what in names:
        if what not in others:
            found.append(f"{what} is {facts[what]!r}, but was not there")
        elif what not in facts:
            found.append(f"{what} is not there, but was {others[what]!r}")
        elif facts[what] != others[what]:
            found += _difference(what, facts[what], others[what])
    return found


def _difference(what: str, now: Any, before: Any) -> list[str]:
    if isinstance(now, ArrayFact) and isinstance(before, ArrayFact):
        return [f"{what} {text}" for text in now.differences(before)]
    if what == STRUCTURE:
        return [f"{what} is {now}, but was {before}"]
    hint = ""
    if type(now) is type(before) and type(now).__eq__ is object.__eq__:
        hint = f"; {type(now).__name__} has no __eq__, so that only one and the same object is equal"
    return [f"{what} is {now!r}, but was {before!r}{hint}"]


class ArrayFact(tuple[Any, tuple[int, ...], bool]):
    """Element type, shape and weakness of an array."""

    __slots__ = ()

    def differences(self, before: ArrayFact) -> list[str]:
        """What is different from another one, as text."""
        (dtype, shape, weak), (old_dtype, old_shape, old_weak) = self, before
        found: list[str] = []
        if shape != old_shape:
            found.append(f"has the shape {shape}, but had {old_shape}")
        if dtype != old_dtype:
            found.append(f"has the type {dtype.name}, but had {old_dtype.name}")
        if weak != old_weak:
            kinds = "is weakly typed, as a Python number", "is not weakly typed"
            found.append(f"{kinds[not weak]}, but {kinds[not old_weak].replace('is', 'was', 1)}")
        return found
