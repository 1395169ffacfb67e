"""Loops and branches outside of compiled functions: traced once, as long as their functions stay what they are.

A function is traced again in every call unless it is the same object, and all that it refers to is the same and cannot
change: numbers, arrays of this library, modules, other such functions. A list, an array of NumPy or an object may have
changed since.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tinyxla.api.jit import Jitted, jit
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer, state

_FIXED = (
    *(bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, np.ufunc),
    *(ConcreteArray, ModuleType, BuiltinFunctionType, FunctionType, type),
)
_MAX_REFERENCES = 64  # objects that a function refers to

_called: weakref.WeakKeyDictionary[FunctionType, set[Any]] = weakref.WeakKeyDictionary()


def is_recorded() -> bool:
    """Whether what is called now is recorded, or must not be compiled: then `repeated` calls `general`. To ask first
    spares a call of Python's for each level of loops in each other."""
    return state.staging is not None or bool(state.depth) or config.disable_jit or bool(config.special)


def repeated(
    functions: tuple[Any, ...], options: tuple[Any, ...], general: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """`general(*args)`, which applies the functions and depends on the options; compiled as a whole if that was called
    before with the same."""
    if is_recorded():
        return general(*args)
    if not all(type(f) is FunctionType for f in functions):
        return general(*args)
    if any(isinstance(x, Tracer) for x in pytrees.leaves(args)):
        return general(*args)
    try:
        before = _called.setdefault(functions[0], set())
        if options not in before:
            before.add(options)
            return general(*args)
    except TypeError:  # what cannot be hashed
        return general(*args)
    references = list(islice(_references(functions), _MAX_REFERENCES + 1))
    if len(references) > _MAX_REFERENCES or not all(map(_is_fixed, references)):
        return general(*args)
    kept = _kept(functions, options)
    if not kept or not _same(kept[0], references):
        kept[:] = [references, jit(general)]
    return kept[1](*args)


@lru_cache(128)
def _kept(functions: tuple[Any, ...], options: tuple[Any, ...]) -> list[Any]:
    """What the functions referred to, and the compiled function; to be filled."""
    return []


def _is_fixed(x: Any) -> bool:
    return isinstance(x, _FIXED)


def _same(before: list[Any], now: list[Any]) -> bool:
    if len(before) != len(now):
        return False
    plain = (bool, int, float, complex, str)
    return all(
        x is y or (type(x) is type(y) and type(x) in plain and repr(x) == repr(y))
        for x, y in zip(before, now, strict=True)
    )


def _references(functions: tuple[Any, ...]) -> Iterator[Any]:
    """What functions refer to, and those that they refer to, as far as they are the user's."""
    seen: set[int] = set()
    waiting = list(functions)
    while waiting:
        x = waiting.pop()
        if isinstance(x, tuple):
            waiting.extend(x)
            continue
        if isinstance(x, Jitted):
            waiting.append(vars(x).get("__wrapped__"))
            continue
        yield x
        if not isinstance(x, FunctionType) or id(x) in seen or (x.__module__ or "").split(".")[0] == "tinyxla":
            continue
        seen.add(id(x))
        waiting.append(x.__defaults__)
        waiting.extend((x.__kwdefaults__ or {}).values())
        for cell in x.__closure__ or ():
            try:
                waiting.append(cell.cell_contents)
            except ValueError:  # nothing has been assigned yet
                waiting.append(cell)
        waiting.extend(x.__globals__[name] for name in _names(x.__code__) if name in x.__globals__)


@lru_cache(1024)
def _names(code: CodeType) -> tuple[str, ...]:
    """Names that code, and code inside it, looks up outside of itself."""
    inner = [x for x in code.co_consts if isinstance(x, CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(name for x in inner for name in _names(x))]))
