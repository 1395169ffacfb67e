"""Traceback filtering: tracebacks end at the user's line, without frames of the library.

Transformations and loops, which call functions of the user's, catch what these raise, take the library's frames out of
its traceback and raise it again (`boundary`). In Python from 3.11 on a `try` costs nothing unless something is raised.
Errors of eager functions, which have no such wrapper, are filtered where they are displayed: the first `TinyxlaError`
installs hooks in front of `sys.excepthook`, `threading.excepthook` and IPython's display, and marks the library's
modules for pytest. So a call that succeeds costs nothing either.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
MODES = ("auto", "remove_frames", "tracebackhide", "quiet_remove_frames", "off")
_NOTE = "Frames of tinyxla are left out of the traceback; config.update('traceback_filtering', 'off') shows them."

# Packages whose frames are left out where the library called them.
_HELPERS = frozenset("contextlib functools importlib llvmlite ml_dtypes numba numpy optree scipy".split())

_Function = TypeVar("_Function", bound=Callable[..., Any])
_mode: Callable[[], str] = lambda: "auto"  # noqa: E731


def set_mode_source(function: Callable[[], str]) -> None:
    """Say what tells the mode, which is an option."""
    global _mode
    _mode = function


def set_explainer(function: Callable[[BaseException], None]) -> None:
    """Say what adds advice to an error before it is shown."""
    global _explain
    _explain = function


def _say_nothing(error: BaseException) -> None:
    """The explainer before there is one."""


_explain: Callable[[BaseException], None] = _say_nothing


hidden_files: list[str] = []
"""The files whose frames `hide_file` leaves out of tracebacks."""


def hide_file(path: str) -> None:
    """Leave the frames of a file out of tracebacks, too: for packages that stand between users and the library."""
    if path not in hidden_files:
        hidden_files.append(path)


def is_own(frame: FrameType) -> bool:
    """Whether a frame is of the library. Generated methods have no file, but their modules have names."""
    names = frame.f_globals
    if hidden_files and frame.f_code.co_filename in hidden_files:
        return True
    return str(names.get("__file__", "")).startswith(PACKAGE) or str(names.get("__name__", "")).startswith("tinyxla.")


def _is_hidden(frame: FrameType, is_caller_hidden: bool) -> bool:
    """Whether a frame is the library's, or that of a package which the library called."""
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return is_own(frame) or (is_caller_hidden and module in _HELPERS)


def _visible(trace: TracebackType | None) -> list[TracebackType]:
    """The entries that are neither the library's nor those of a package that it called."""
    found: list[TracebackType] = []
    hidden = False
    while trace is not None:
        hidden = _is_hidden(trace.tb_frame, hidden)
        if not hidden:
            found.append(trace)
        trace = trace.tb_next
    return found


def innermost_visible(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of a stack that is neither the library's nor that of a package which it called."""
    stack: list[FrameType] = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    found, hidden = None, False
    for frame in reversed(stack):
        hidden = _is_hidden(frame, hidden)
        found = found if hidden else frame
    return found


def _filtered(trace: TracebackType | None) -> TracebackType | None:
    """A traceback of the visible entries."""
    found: TracebackType | None = None
    for entry in reversed(_visible(trace)):
        line = cast(int | None, entry.tb_lineno)  # None of an instruction without a line, where an interrupt may come
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, -1 if line is None else line)
    return found


def _hide(trace: TracebackType | None) -> None:
    """Mark the library's frames for displays that know `__tracebackhide__`."""
    kept = {id(entry) for entry in _visible(trace)}
    while trace is not None:
        if id(trace) not in kept:
            trace.tb_frame.f_locals["__tracebackhide__"] = True
        trace = trace.tb_next


def _add_note(error: BaseException, trace: TracebackType | None) -> None:
    if _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


Mark = Callable[[BaseException, TracebackType | None], None]
_marks: dict[str, Mark] = {"remove_frames": _add_note}


def set_mark(mode: str, mark: Mark) -> None:
    """Say what errors get whose tracebacks were filtered in a mode: a note that tells so, or a cause. The mark is given
    the error and the traceback that it had."""
    _marks[mode] = mark


def filter_error(error: BaseException) -> None:
    """Add advice to an error, and filter its traceback and those of what it was raised from, as the option says."""
    _explain(error)
    mode = _mode()
    if mode == "off":
        return
    removed, whole = False, raw_traceback(error)
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop()
        seen.add(id(current))
        trace = raw_traceback(current)
        if mode == "tracebackhide":
            _hide(trace)
        elif trace is not None:
            found = _filtered(trace)
            removed = True
            current.__traceback__ = found
        context = current.__context__
        if context is not None and current.__cause__ is None and not _visible(raw_traceback(context)):
            current.__suppress_context__ = True  # it arose and was handled inside the library
        waiting += [x for x in (current.__cause__, context) if x is not None and id(x) not in seen]
    if removed and mode in _marks:
        _marks[mode](error, whole)


_stored: Any = BaseException.__dict__["__traceback__"]


def raw_traceback(error: BaseException) -> TracebackType | None:
    """The traceback as it is stored."""
    return _stored.__get__(error)


class FilteredTraceback:
    """A mix-in for errors: `__traceback__` is the traceback without the library's frames, so that the functions of the
    module `traceback` which are given the error alone print it so. What is stored has all frames."""

    @property
    def __traceback__(self) -> TracebackType | None:
        trace = raw_traceback(cast(BaseException, self))
        return trace if _mode() in ("off", "tracebackhide") else _filtered(trace)

    @__traceback__.setter
    def __traceback__(self, trace: TracebackType | None) -> None:
        _stored.__set__(self, trace)


def boundary(function: _Function) -> _Function:
    """The function, from which errors come with filtered tracebacks. For functions that call those of users."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            filter_error(error)
            raise  # which adds no entry for this frame

    return cast(_Function, call)


# --- displays ---------------------------------------------------------------------------------------------------------

_marked = 0  # how many modules there were when the library's were marked


def install(kind: type[BaseException]) -> None:
    """Have errors of a class filtered where they are displayed, and advice added to displayed TypeErrors of Python's.
    Called at import and for each error; does something for the first, and when modules were added."""
    global _marked
    if len(sys.modules) != _marked:
        if not _marked:
            _install_hooks(kind)
        _marked = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "tinyxla":
                vars(module)["__tracebackhide__"] = _hides


def _hides(info: Any = None) -> bool:
    """Whether pytest leaves out the frames of a module with this."""
    return _mode() != "off"


def _install_hooks(kind: type[BaseException]) -> None:
    display, display_in_thread = sys.excepthook, threading.excepthook

    def show(of: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, kind):
            filter_error(error)
            trace = raw_traceback(error)
        elif of is TypeError:
            _explain(error)
        display(of, error, trace)

    def show_in_thread(args: Any) -> None:
        if args.exc_type is TypeError:
            _explain(args.exc_value)
        if isinstance(args.exc_value, kind):
            filter_error(args.exc_value)
            trace = raw_traceback(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread))
        display_in_thread(args)

    sys.excepthook, threading.excepthook = show, show_in_thread
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        _install_in_shell(shell, kind)


def _install_in_shell(shell: Any, kind: type[BaseException]) -> None:
    """Filter what IPython displays, unless a handler of the user's is there."""
    if shell.custom_exceptions:
        return

    def show(
        shell: Any, of: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None
    ) -> None:
        if isinstance(error, kind):
            filter_error(error)
        else:
            _explain(error)
        shell.showtraceback((of, error, raw_traceback(error)), tb_offset=tb_offset)

    shell.set_custom_exc((kind, TypeError), show)
