"""Events of tracing, compiling and copies, and the functions that are called for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Generic, ParamSpec

_P = ParamSpec("_P")


class Event(Generic[_P]):
    """A kind of event, and its observers: functions that are called with each, in the order in which they came."""

    __slots__ = ("observers",)

    def __init__(self) -> None:
        self.observers: list[Callable[_P, object]] = []

    def notify(self, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call the observers."""
        for observer in list(self.observers):  # a copy, since one may end its observation
            observer(*args, **kwargs)

    def observe(self, observer: Callable[_P, object]) -> None:
        """Have a function called from now on."""
        self.observers.append(observer)

    def unobserve(self, observer: Callable[_P, object]) -> None:
        """Have it called no more."""
        self.observers.remove(observer)

    @contextlib.contextmanager
    def observed_by(self, observer: Callable[_P, object]) -> Generator[None]:
        """Have a function called in the block."""
        self.observe(observer)
        try:
            yield
        finally:
            self.unobserve(observer)
