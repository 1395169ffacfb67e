"""Functions made of users' functions: they have the name and signature of these, and print as what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar, cast

from tinyxla.util.tracebacks import boundary

_Function = TypeVar("_Function", bound=Callable[..., Any])


def wraps(function: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """`functools.wraps` for any callable: where its `__name__` or `__doc__` is no text, the wrapper keeps its own."""

    def decorate(wrapper: _Function) -> _Function:
        names = [name for name in functools.WRAPPER_ASSIGNMENTS if _is_copied(function, name)]
        return cast(_Function, functools.update_wrapper(wrapper, function, names))

    return decorate


def _is_copied(function: Callable[..., Any], name: str) -> bool:
    """Whether an attribute is of the type that functions take."""
    value = getattr(function, name, None)
    return isinstance(value, dict if name == "__annotations__" else (str, type(None)) if name == "__doc__" else str)


class Described:
    """A mix-in for functions that are made of functions: they print as `<jit of grad of loss>`.

    Attributes:
        transformation: what was done.
        original: to which function.
    """

    transformation: str
    original: Any

    def describe(self, transformation: str, original: Any) -> None:
        """Set the attributes: after `wraps`, which copies those of the original."""
        self.transformation, self.original = transformation, original

    def __repr__(self) -> str:
        return f"<{self.transformation} of {described(self.original)}>"


class Transformed(Described, functools.partial[Any]):
    """A transformed function. It is a `partial` without arguments, whose call costs no Python call."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A global name, as pickles have functions."""
        return getattr(self, "__qualname__", self.transformation)


def named(what: str, function: Callable[..., Any], wrapper: Callable[..., Any]) -> Transformed:
    """A function that prints as a transformation of another one."""
    made = Transformed(wrapper)
    made.describe(what, function)
    return made


def transformed(what: str, function: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """A decorator for what a transformation gives: it has the name and signature of the function that was transformed,
    errors come from it with filtered tracebacks, and it prints as what it is."""

    def decorate(wrapper: _Function) -> _Function:
        made = wraps(function)(Transformed(boundary(wraps(function)(wrapper))))
        made.describe(what, function)
        return cast(_Function, made)

    return decorate


def described(function: Any) -> str:
    """How a representation speaks of a function: by its name, or by what was done to which function."""
    if isinstance(function, Described):
        return repr(function)[1:-1]
    if isinstance(function, functools.partial):
        return f"partial of {described(function.func)}"
    return getattr(function, "__name__", type(function).__name__).strip("<>")
