"""NumPy's own functions on arrays of this library: `np.sin(x)`, `np.sum(x)` and `a + x` go to the functions here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.tracing.array import no_numpy_out

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


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a NumPy ufunc does that is given an array of this library."""
    said = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if any(target is not None for target in kwargs.pop("out", None) or ()):
        raise no_numpy_out(f"{said}(out=...)")
    if method == "__call__":
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
        raise no_numpy_out(said)
    raise ArgumentError(f"{said} has no counterpart in tinyxla.numpy; write it with the functions there.")


def apply_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a NumPy function does that is given an array of this library."""
    module = function.__module__.removeprefix("numpy").lstrip(".")
    name = f"{module}.{function.__name__}" if module else function.__name__
    said = f"numpy.{name}"
    if kwargs.pop("out", None) is not None:
        raise no_numpy_out(f"{said}(out=...)")
    return _function(name, said)(*args, **kwargs)
