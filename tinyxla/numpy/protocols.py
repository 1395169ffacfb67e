"""NumPy's own functions on arrays of this library: `np.sin(x)`, `np.sum(x)` and `a + x` go to the functions here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.tracing.array import Array, ConcreteArray, no_numpy_out

_functions: dict[str, Callable[..., Any]] = {}
_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


def set_functions(functions: dict[str, Any]) -> None:
    """Say which functions there are, by name (with the module for those of submodules: `linalg.norm`)."""
    _functions.update((name, f) for name, f in functions.items() if callable(f))


def _function(name: str, said: str) -> Callable[..., Any]:
    found = _functions.get(name)
    if found is None:
        raise ArgumentError(
            f"{said} has no counterpart in tinyxla.numpy; convert a concrete array with numpy.asarray to use NumPy's."
        )
    return found


def _arrays(value: Any) -> Iterator[Array]:
    """The arrays of this library among arguments, also in lists and tuples."""
    if isinstance(value, Array):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _arrays(element)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))


def _converted(value: Any) -> Any:
    """The same arguments with NumPy's arrays in place of this library's."""
    if isinstance(value, Array):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return type(value)(map(_converted, value))
    if isinstance(value, dict):
        return {name: _converted(v) for name, v in value.items()}
    return value


def _left_to_numpy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether NumPy can do it: with no traced arrays, and nothing to write into but its own arrays."""
    return all(isinstance(x, ConcreteArray) for x in _arrays((args, kwargs))) and not list(_arrays(kwargs.get("out")))


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a NumPy ufunc does that is given an array of this library."""
    said = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    out = kwargs.pop("out", None)
    if any(target is not None for target in out or ()):
        if _left_to_numpy(inputs, {"out": out}):  # `a += x` on an array of NumPy's
            return getattr(ufunc, method)(*_converted(inputs), out=out, **_converted(kwargs))
        raise no_numpy_out(f"{said}(out=...)")
    if method == "__call__":
        # NumPy takes lists where a function here takes arrays only
        asarray = _functions["asarray"]
        inputs = tuple(asarray(v) if isinstance(v, (list, tuple)) else v for v in inputs)
        return _function(ufunc.__name__, said)(*inputs, **kwargs)
    if method == "reduce" and ufunc.__name__ in _REDUCTIONS:
        options = {"axis": 0, **kwargs}
        if not np.isscalar(options.get("initial", 0)):  # NumPy's mark for "not given"
            options.pop("initial")
        return _function(_REDUCTIONS[ufunc.__name__], said)(*inputs, **options)
    if method == "outer":
        x, y = (np.asarray(v) if not hasattr(v, "ndim") else v for v in inputs)
        return _function(ufunc.__name__, said)(x[(..., *(None,) * y.ndim)], y, **kwargs)
    if method == "at":
        if isinstance(inputs[0], np.ndarray) and _left_to_numpy(inputs, {}):
            return ufunc.at(*_converted(inputs), **kwargs)
        raise no_numpy_out(said)
    raise ArgumentError(f"{said} has no counterpart in tinyxla.numpy; write it with the functions there.")


def apply_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a NumPy function does that is given an array of this library."""
    module = function.__module__.removeprefix("numpy").lstrip(".")
    name = f"{module}.{function.__name__}" if module else function.__name__
    said = f"numpy.{name}"
    if _left_to_numpy(args, kwargs):
        if name not in _functions or kwargs.get("out") is not None:
            return function(*_converted(args), **_converted(kwargs))
        try:
            return _functions[name](*args, **kwargs)
        except (DTypeError, TypeError):  # lists for arrays, and options that only NumPy has
            return function(*_converted(args), **_converted(kwargs))
    if kwargs.pop("out", None) is not None:
        raise no_numpy_out(f"{said}(out=...)")
    return _function(name, said)(*args, **kwargs)
