"""Looking at values while a program runs: `print`, `log`, `callback` and `breakpoint`, which leave what is computed as
it is.

They work in compiled functions, loops and branches, and under `vmap` once for each example. Derivatives pass them by:
in reverse mode they see values on the way there, once.
"""

from __future__ import annotations

import bdb
import builtins
import functools
import logging
import pdb  # noqa: T100 - it is what a breakpoint opens
import string
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from tinyxla.api.callbacks import look
from tinyxla.api.sharding.pictures import (
    inspect_array_sharding as inspect_array_sharding,
    visualize_array_sharding as visualize_array_sharding,
    visualize_sharding as visualize_sharding,
)
from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.tracing import pytrees, wrap
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer

__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]


class _Formatter(string.Formatter):
    """As `str.format`, but a format of numbers applies to all elements of an array."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Array) and value.ndim and format_spec:
            return np.array2string(np.asarray(value), formatter={"all": lambda x: format(x, format_spec)})
        return format(value, format_spec)


class _Checker(string.Formatter):
    """Formats nothing, but sees whether what is named is there and what is there is named."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [k for k in [*range(len(args)), *kwargs] if k not in used_args]
        if unused:
            raise ValueError(f"it has no place for {', '.join(map(repr, unused))}")


@dataclass(frozen=True)
class _Print:
    text: str
    options: tuple[tuple[str, Any], ...]  # NumPy's, of the time of the call
    write: Callable[[str], None]

    def __str__(self) -> str:
        return repr(self.text)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with np.printoptions(**dict(self.options)):
            self.write(_Formatter().vformat(self.text, args, kwargs))


def _printed(line: str) -> None:
    builtins.print(line)


def _logged(line: str) -> None:
    _logger.info("%s", line)


_logger = logging.getLogger("tinyxla")


def print(fmt: str | None = None, *args: Any, ordered: bool = False, **kwargs: Any) -> Any:
    """Print values when they are there: each time that the program comes by, also in compiled functions.

    Args:
        fmt: a text with places for the arguments, as for `str.format`: `"{}"`, `"{x}"`, `"{x:.2f}"`. A format for
            numbers applies to each element of an array. (Not an f-string: that is made while the function is traced.)
        args, kwargs: pytrees; what is no array is printed as it is.
        ordered: accepted for JAX's sake; lines come in the order of the program in any case.

    Returns:
        None; without `fmt`, a function of the other arguments: `debug.print(ordered=True)("{x}", x=x)`.

    Raises:
        AttributeValueError: the text has places for other arguments than there are.

    >>> import numpy as np
    >>> from tinyxla.debug import print
    >>> print("x is {x:.1f}", x=np.array([1.0, 2.0]))
    x is [1.0 2.0]
    """
    if fmt is None:
        return functools.partial(print, ordered=ordered)
    _show("debug.print", fmt, args, kwargs, ordered, _printed)


def log(fmt: str | None = None, *args: Any, ordered: bool = False, **kwargs: Any) -> Any:
    """Log values when they are there: as `print`, but to the logger "tinyxla" of Python's `logging`, at the level INFO.

    Args:
        fmt, args, kwargs, ordered: as for `print`.

    Returns:
        None; without `fmt`, a function of the other arguments.

    Raises:
        AttributeValueError: the text has places for other arguments than there are.

    >>> import logging, sys
    >>> from tinyxla.debug import log
    >>> logger = logging.getLogger("tinyxla")
    >>> logger.setLevel(logging.INFO)
    >>> logger.addHandler(handler := logging.StreamHandler(sys.stdout))
    >>> log("x is {}", 1.5)
    x is 1.5
    >>> logger.removeHandler(handler)
    """
    if fmt is None:
        return functools.partial(log, ordered=ordered)
    _show("debug.log", fmt, args, kwargs, ordered, _logged)


def _show(
    what: str, fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any], ordered: bool, write: Callable[[str], None]
) -> None:
    """Write the text with its arguments each time that the program comes by."""
    if not isinstance(fmt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"{what} takes a text first, as in {what}('x is {{}}', x), but got {fmt!r}.")
    try:
        _Checker().vformat(fmt, args, kwargs)
    except (ValueError, LookupError, AttributeError) as error:
        reason = "it has more places than there are arguments" if isinstance(error, IndexError) else str(error)
        reason = f"there is no argument {error}" if isinstance(error, KeyError) else reason
        raise AttributeValueError(
            f"{what}: the text {fmt!r} does not fit its arguments: {reason}. Write {{}} for each positional one "
            "and {name} for each that is passed by name, in a plain string; braces that are meant as such are doubled."
        ) from None
    show = _Print(fmt, tuple(np.get_printoptions().items()), write)
    look(what, show, args, kwargs, ordered, wrap)


def callback(function: Callable[..., Any] | None = None, *args: Any, ordered: bool = False, **kwargs: Any) -> Any:
    """Call a Python function with values when they are there: each time that the program comes by.

    Args:
        function: of pytrees of NumPy arrays; what it gives does not matter.
        args, kwargs: pytrees for it; what is no array is handed in as it is.
        ordered: accepted for JAX's sake; calls come in the order of the program in any case.

    Returns:
        None; without `function`, a function of the other arguments.

    Raises:
        ArgumentError: what is no function.
        Exception: what the function raises.

    >>> from tinyxla.debug import callback
    >>> seen = []
    >>> callback(lambda x: seen.append(float(x)), 2.0)
    >>> seen
    [2.0]
    """
    if function is None:
        return functools.partial(callback, ordered=ordered)
    look("debug.callback", function, args, kwargs, ordered)


_LAST = "_continued = True"  # what stands, for the debugger, where the breakpoint is


@dataclass(frozen=True)
class _Stop:
    code: CodeType
    names: dict[str, Any]  # the globals
    stdin: Any
    stdout: Any

    def __call__(self, known: dict[str, Any]) -> None:
        debugger = pdb.Pdb(stdin=self.stdin, stdout=self.stdout, nosigint=True)
        debugger.runcall(exec, self.code, self.names, known)
        if "_continued" not in known:
            raise bdb.BdbQuit


def breakpoint(*, ordered: bool = False, stdin: Any = None, stdout: Any = None) -> None:
    r"""Stop in Python's debugger, at this line, with the values that the local variables have when the program comes
    by: also in compiled functions, once for each step of a loop or each example.

    Args:
        ordered: accepted for JAX's sake; stops come in the order of the program in any case.
        stdin, stdout: where commands are read and shown; by default the terminal.

    Raises:
        ArgumentError: what is no file that can be read or written.
        bdb.BdbQuit: the debugger is left with `q`.

    >>> import io, sys
    >>> import tinyxla
    >>> def f(x):
    ...     y = 2 * x
    ...     tinyxla.debug.breakpoint(stdin=io.StringIO("p y\nc\n"), stdout=sys.stdout)
    ...     return y + 1
    >>> result = tinyxla.jit(f)(3.0)
    > ...(3)f()
    -> tinyxla.debug.breakpoint(stdin=io.StringIO("p y\nc\n"), stdout=sys.stdout)
    (Pdb) array(6., dtype=float32)
    (Pdb) ...
    """
    for name, file, method in (("stdin", stdin, "readline"), ("stdout", stdout, "write")):
        if file is not None and not hasattr(file, method):
            raise ArgumentError(f"debug.breakpoint: {name} must be a file or None, but got {file!r}.")
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    plain = compile("\n" * (frame.f_lineno - 1) + _LAST, frame.f_code.co_filename, "exec")
    code = plain.replace(co_name=frame.f_code.co_name)

    def alive(x: Any) -> Any:
        return repr(x) if isinstance(x, Tracer) and not x.owner.active else x

    known = pytrees.map_tree(alive, dict(frame.f_locals))
    look("debug.breakpoint", _Stop(code, frame.f_globals, stdin, stdout), (known,), {}, ordered)


def __dir__() -> list[str]:
    return __all__
