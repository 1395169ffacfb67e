"""What tells that frames are left out of an error's traceback: a note, or a cause, as `traceback_filtering` says."""

from __future__ import annotations

import traceback
from types import TracebackType

from tinyxla.util.tracebacks import set_mark

_NOTE = (
    "For simplicity, JAX has removed its internal frames (those of tinyxla) from the traceback; the option "
    "traceback_filtering shows them."
)


class UnfilteredStackTrace(Exception):
    """The cause of an error whose traceback is filtered: it has the traceback with all frames."""


class SimplifiedTraceback(Exception):
    """The cause of an error from whose traceback frames were left out without showing them."""

    def __str__(self) -> str:
        return _NOTE


UnfilteredStackTrace.__module__ = SimplifiedTraceback.__module__ = "jax.errors"


def _with_note(error: BaseException, trace: TracebackType | None) -> None:
    if _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


def _with_cause(error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error.__cause__, UnfilteredStackTrace):
        return
    said = "".join(traceback.format_exception_only(error))
    whole = UnfilteredStackTrace(f"{said}\nThis error has all frames; the traceback below has none of the library.")
    whole.__traceback__ = trace
    whole.__cause__, whole.__context__ = error.__cause__, error.__context__
    error.__cause__ = whole


def mark_filtered_tracebacks() -> None:
    """Let errors tell so in JAX's way."""
    set_mark("quiet_remove_frames", _with_note)
    set_mark("remove_frames", _with_cause)
