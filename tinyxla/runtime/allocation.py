"""Memory of the process: what is kept for later is given back before a program is told that there is no memory; and
Python's garbage collector runs less often while many objects are made that stay."""

from __future__ import annotations

import functools
import gc
import operator
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tinyxla.errors import SizeError

_Made = TypeVar("_Made")
_releases: list[Callable[[], None]] = []
_MAX_YOUNG = 1_000_000  # objects of the young generation while many are made that stay
_MAX_AGED = 4_000_000  # objects that were not looked at before they counted as old: then all are
_aged = 0


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

    Graphs and plans are hundreds of thousands of objects that stay: a collection looks at all of them and finds
    nothing. So the objects that are there in the end count as old, and no collection of young ones follows at once;
    unless the program froze objects, which would be frozen no longer. The threshold is that of the whole process. One
    that is larger already stays, and so does one of 0, which turns collection off. Source: the documentation of
    `gc.set_threshold` and `gc.freeze`.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _MAX_YOUNG:
        return make()
    restore = functools.partial(gc.set_threshold, *before)
    try:
        gc.set_threshold(_MAX_YOUNG, *before[1:])
        return make()
    finally:  # one call of C, which runs before an exception that comes from outside is raised
        deque(map(operator.call, (*_ageing(), restore)), 0)


def count_as_old() -> None:
    """Have all objects count as old for the garbage collector, such as those of the modules that were imported last:
    no collection of young ones looks at them."""
    for change in _ageing():
        change()


def _ageing() -> tuple[Callable[[], Any], ...]:
    """What makes all objects count as old; now and then, what collects those that nobody keeps."""
    global _aged
    if gc.get_freeze_count():
        return ()
    _aged += gc.get_count()[0]
    if _aged < _MAX_AGED:
        return gc.freeze, gc.unfreeze
    _aged = 0
    return (gc.collect,)
