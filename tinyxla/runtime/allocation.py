"""Allocation under shortage: what is kept for later is given back before a program is told that there is no memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

from tinyxla.errors import SizeError

_Made = TypeVar("_Made")
_releases: list[Callable[[], None]] = []


def release_on_shortage(release: Callable[[], None]) -> None:
    """Have a function called, which gives memory back to the system, when there is none."""
    _releases.append(release)


def after_shortage(what: str, allocate: Callable[[], _Made]) -> _Made:
    """What `allocate()` gives at a second try, after a `MemoryError`: first all memory that nobody uses is given back.

    Raises:
        SizeError: there is no memory all the same.
    """
    gc.collect()  # a traceback of the call that failed may hold its arrays in a cycle
    for release in _releases:
        release()
    try:
        return allocate()
    except SizeError:
        raise
    except MemoryError as error:
        reason = str(error) or "there is no memory"
        raise SizeError(f"{what}: {reason}; give it smaller sizes.") from None


def allocated(what: str, allocate: Callable[[], _Made]) -> _Made:
    """What `allocate()` gives, at a second try if need be; see `after_shortage`."""
    try:
        return allocate()
    except SizeError:
        raise
    except MemoryError:
        pass  # and its traceback is gone
    return after_shortage(what, allocate)
