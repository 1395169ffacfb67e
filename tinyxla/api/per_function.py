"""Caches by functions, for compiled programs and traces: entries end with their function."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

_MAX_FUNCTIONS = 1024  # what is kept may hold its function in turn, and would stay with it


class PerFunction(Generic[Key, Value]):
    """A cache of values by functions, to which its references are weak, and keys. The function that came first makes
    room for another one."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Callable[..., Any], dict[Key, Value]] = weakref.WeakKeyDictionary()

    def of(self, function: Callable[..., Any]) -> dict[Key, Value]:
        """The values of a function by their keys, which may be added to."""
        while len(self._kept) >= _MAX_FUNCTIONS and function not in self._kept:
            with suppress(RuntimeError):  # where another thread adds a function meanwhile
                self._kept.pop(next(iter(self._kept)), None)
        return self._kept.setdefault(function, {})

    def get(self, function: Callable[..., Any], key: Key) -> Value | None:
        """The value of a function for a key; None if there is none."""
        values = self._kept.get(function)
        return None if values is None else values.get(key)

    def values(self) -> list[Value]:
        """The values of all functions."""
        while True:
            try:
                return [value for values in self._kept.values() for value in values.values()]
            except RuntimeError:  # as in `of`
                continue

    def clear(self) -> None:
        """Forget all values."""
        self._kept.clear()
