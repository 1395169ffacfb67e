"""`functools.wraps` for any callable: an object whose `__name__` or `__doc__` is no text keeps the wrapper's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


def wraps(function: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """A decorator that gives a wrapper the name, module, documentation and signature of a function."""

    def decorate(wrapper: _Function) -> _Function:
        names = [name for name in functools.WRAPPER_ASSIGNMENTS if _is_copied(function, name)]
        return cast(_Function, functools.update_wrapper(wrapper, function, names))

    return decorate


def _is_copied(function: Callable[..., Any], name: str) -> bool:
    """Whether an attribute is of the type that functions take."""
    value = getattr(function, name, None)
    return isinstance(value, dict if name == "__annotations__" else (str, type(None)) if name == "__doc__" else str)
