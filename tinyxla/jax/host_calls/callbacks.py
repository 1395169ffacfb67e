"""Callbacks that are given arrays of the library, and whose exceptions are runtime errors of the program, as JAX does.

tinyxla gives them NumPy's arrays, and hands an exception of a callback to the caller as it is. Programs for JAX catch
`JaxRuntimeError`, and look in its text for the type and the text of the exception. `debug.callback` of JAX calls the
function itself outside of compiled functions, and so its exceptions are those of the function there.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import debug
from tinyxla.api.callbacks import io_callback as _io_callback, pure_callback as _pure_callback
from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import TinyxlaError
from tinyxla.tracing import pytrees, wrap
from tinyxla.tracing.core import state


class CallbackError(TinyxlaError, RuntimeError):
    """A callback raised an exception, which is the cause of this one."""


class _Callback:
    """A callback that takes arrays of the library, and raises `CallbackError` if it `reports`; equal to others of the
    same function, so that it compiles once."""

    def __init__(self, callback: Callable[..., Any], reports: bool) -> None:
        functools.update_wrapper(self, callback)
        self.__code__ = getattr(callback, "__code__", None)  # which errors name
        self._callback = callback
        self._reports = reports

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Callback) and (self._callback, self._reports) == (other._callback, other._reports)

    def __hash__(self) -> int:
        return hash(self._callback)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytrees.map_tree(_as_array, (args, kwargs))
        if not self._reports:
            return self._callback(*args, **kwargs)
        try:
            return self._callback(*args, **kwargs)
        except Exception as error:
            name = getattr(self._callback, "__qualname__", None) or repr(self._callback)
            said = "".join(traceback.format_exception_only(error)).strip()
            raise CallbackError(f"INTERNAL: callback {name} raised {said}") from error


def _as_array(x: Any) -> Any:
    return wrap(x) if isinstance(x, np.ndarray) else x


def _reporting(function: Callable[..., Any], when_eager: bool = True) -> Callable[..., Any]:
    """The function with its callback, the first argument, as JAX calls it; it reports, but outside of compiled
    functions only `when_eager`."""

    @functools.wraps(function)
    def with_report(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        reports = when_eager or state.staging is not None
        return function(_Callback(callback, reports) if callable(callback) else callback, *args, **kwargs)

    return with_report


pure_callback = _reporting(_pure_callback)
io_callback = _reporting(_io_callback)
debug_callback = _reporting(debug.callback, when_eager=False)


def emit_python_callback(
    context: Any,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    **ignored: Any,
) -> tuple[list[Any], Any, None]:
    """In a lowering rule: a call of a function of Python for NumPy's arrays, which gives a sequence of the results.

    Returns:
        The results, the token, and None: the program refers to the function itself.
    """
    structs = [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in result_avals]
    call: Any = io_callback if has_side_effect else pure_callback
    return list(call(lambda *values: list(callback(*values)), structs, *operands)), token, None
