"""Callbacks whose exceptions are runtime errors of the program, as JAX reports them.

tinyxla hands an exception of a callback to the caller as it is. Programs for JAX catch `JaxRuntimeError`, and look in
its text for the type and the text of the exception. `debug.callback` of JAX calls the function itself outside of
compiled functions, and so its exceptions are those of the function there.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from tinyxla import debug
from tinyxla.api.callbacks import io_callback as _io_callback, pure_callback as _pure_callback
from tinyxla.errors import TinyxlaError
from tinyxla.tracing.core import state


class CallbackError(TinyxlaError, RuntimeError):
    """A callback raised an exception, which is the cause of this one."""


class _Reporting:
    """A callback that raises `CallbackError`; equal to others of the same function, so that it compiles once."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        functools.update_wrapper(self, callback)
        self.__code__ = getattr(callback, "__code__", None)  # which errors name
        self._callback = callback

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reporting) and self._callback == other._callback

    def __hash__(self) -> int:
        return hash(self._callback)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._callback(*args, **kwargs)
        except Exception as error:
            name = getattr(self._callback, "__qualname__", None) or repr(self._callback)
            said = "".join(traceback.format_exception_only(error)).strip()
            raise CallbackError(f"INTERNAL: callback {name} raised {said}") from error


def _reporting(function: Callable[..., Any], when_eager: bool = True) -> Callable[..., Any]:
    """The function with its callback, the first argument, made to report; outside of compiled functions only
    `when_eager`."""

    @functools.wraps(function)
    def with_report(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        reports = callable(callback) and (when_eager or state.staging is not None)
        return function(_Reporting(callback) if reports else callback, *args, **kwargs)

    return with_report


pure_callback = _reporting(_pure_callback)
io_callback = _reporting(_io_callback)
debug_callback = _reporting(debug.callback, when_eager=False)
