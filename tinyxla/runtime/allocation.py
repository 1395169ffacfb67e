"""Memory of the process: what is kept for later is given back before a program is told that there is no memory; and
Python's garbage collector runs less often while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

from tinyxla.errors import SizeError

_Made = TypeVar("_Made")
_releases: list[Callable[[], None]] = []
_YOUNG = 100_000  # objects


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


def rarely_collected(make: Callable[[], _Made]) -> _Made:
    """What `make()` gives, with a larger young generation of Python's garbage collector meanwhile.

    Graphs and plans are hundreds of thousands of objects that stay: a collection looks at all of them and finds little.
    The threshold is that of the whole process. One that is larger already stays, and so does one of 0, which turns
    collection off. Source: the documentation of `gc.set_threshold`.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _YOUNG:
        return make()
    try:
        gc.set_threshold(_YOUNG, *before[1:])
        return make()
    finally:  # one call of C, which runs before an exception that comes from outside is raised
        gc.set_threshold(*before)
