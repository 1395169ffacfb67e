"""Many numbers at once outside of compiled functions: drawn by a compiled program, which is ten times as fast.

A few numbers are drawn by NumPy, operation by operation, without a wait for a compiler. How many decides, and nothing
else: the same call gives the same numbers whenever it is made.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import numpy as np

from tinyxla.compilation import Jitted, jit
from tinyxla.replays import replayed
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import state
from tinyxla.tracing.options import config
from tinyxla.transforms.batch import BatchTracer

MANY = 1 << 12  # numbers
MANY_BY_LOOPS = 1 << 6  # where each is drawn by a loop of its own

_Function = TypeVar("_Function", bound=Callable[..., Any])
_VALUES = frozenset("shape dtype axis replace independent".split())  # arguments that stay Python values


def drawn(function: _Function, many: int = MANY, elements: str = "") -> _Function:
    """The function, which takes a key first, compiled for each combination of its arguments' shapes where it gives
    `many` numbers or more. The argument `elements` is an array or says how many there are."""
    signature = inspect.signature(function)
    programs: dict[Any, Jitted] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.staging is not None or config.disable_jit:
            return function(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        key = next(iter(given.values()), None)
        held = {name: value for name, value in given.items() if _is_value(name, value, elements)}
        if _keys(key) * _size(given, held, elements) < many:
            return function(*args, **kwargs)
        try:
            which = tuple(held.items())
            program = programs.get(which)
        except TypeError:  # a list, say
            return function(*args, **kwargs)
        if program is None:
            program = programs[which] = jit(_with(function, held))
        return program({name: value for name, value in given.items() if name not in held})

    return replayed(call, many)  # type: ignore[return-value]


def _with(function: Callable[..., Any], held: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def program(arrays: dict[str, Any]) -> Any:
        return function(**arrays, **held)

    return program


def _is_value(name: str, value: Any, elements: str) -> bool:
    return name in _VALUES or value is None or isinstance(value, str) or (name == elements and _is_integer(value))


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, (int, np.integer))


def _keys(key: Any) -> int:
    """How many keys a function draws by at once, under `vmap`; 0 if that is not known."""
    mapped = isinstance(key, BatchTracer)
    while isinstance(key, BatchTracer):
        key = key.value
    return 0 if not isinstance(key, ConcreteArray) else key.size // 2 if mapped else 1


def _size(given: dict[str, Any], held: dict[str, Any], elements: str) -> int:
    """How many numbers are asked for: at least as many as are given."""
    shape, count = given.get("shape"), held.get(elements, 1)
    sizes = [int(count), *(getattr(value, "size", 1) for name, value in given.items() if name not in held)]
    return max(*sizes, math.prod(shape) if isinstance(shape, tuple) else shape if _is_integer(shape) else 1)
