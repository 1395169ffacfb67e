"""NumPy's and SciPy's own functions on arrays of this library: `np.sin(x)`, `np.sum(x)` and `a + x` go to the functions
here, so that programs written with plain NumPy can be differentiated, batched and compiled.

A function is found by its name and gets its arguments by theirs; options of NumPy's that say nothing about values (the
order in memory, the safety of casts) are dropped, and so is what has its default.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, ShapeError, TracerError
from tinyxla.numpy.elementwise.ufuncs import Fold, outer_of, ufunc, updated_at
from tinyxla.tracing.array import Array, ConcreteArray, no_numpy_out
from tinyxla.tracing.promotion import with_lists_as_arrays

_NOT_GIVEN: Any = np._NoValue  # pyright: ignore[reportPrivateUsage]
_functions: dict[str, Callable[..., Any]] = {}
_WITHOUT_MEANING = ("order", "subok", "casting", "device", "like")  # about memory, not about values
_RENAMED = {"a_min": "min", "a_max": "max", "rcond": "rtol", "tol": "rtol"}
_SHOWN = ("array2string", "shares_memory", "may_share_memory")  # with no derivative
_OF_VALUES = (*_SHOWN, "savetxt", "savez_compressed")
_TO_NUMPY = ("atleast_1d", "atleast_2d", "atleast_3d", "copy")  # SciPy's way to get arrays that it can write to
_WRITERS = {  # what to use in place of functions that write into their first argument
    "copyto": "numpy.where(mask, new, old), or tinyxla.numpy.full_like",
    "fill_diagonal": "tinyxla.numpy.fill_diagonal(x, value, inplace=False)",
    "place": "numpy.where(mask, new, old)",
    "put": "tinyxla.numpy.put(x, places, values, inplace=False)",
    "put_along_axis": "tinyxla.numpy.put_along_axis(x, places, values, axis, inplace=False)",
    "putmask": "numpy.where(mask, new, old)",
}
_ADVICE = {
    "common_type": "use numpy.result_type",
    "min_scalar_type": "use numpy.result_type",
    "real_if_close": "its element type depends on values; use numpy.real",
}
for _name in ("arccos", "arcsin", "arctanh", "log", "log10", "log2", "logn", "power", "sqrt"):
    _ADVICE[f"lib.scimath.{_name}"] = (
        "its element type depends on values; convert to complex first, and use numpy's own"
    )


def set_functions(functions: dict[str, Any]) -> None:
    """Say which functions there are, by name (with the module for those of submodules: `linalg.norm`)."""
    _functions.update((name, f) for name, f in functions.items() if callable(f))


def _function(name: str, said: str) -> Callable[..., Any]:
    if name.startswith("special."):
        _load_special()
    found = _functions.get(name)
    if found is None:
        advice = _ADVICE.get(name, "write it with the functions there")
        module = "tinyxla.scipy.special" if said.startswith("scipy") else "tinyxla.numpy"
        raise ArgumentError(
            f"{said} has no counterpart in {module}: {advice}; or convert a concrete array with numpy.asarray."
        )
    return found


def _load_special() -> None:
    """Let the functions of `tinyxla.scipy` say that they are there: it is loaded by the first use."""
    if "special.erf" not in _functions:
        importlib.import_module("tinyxla.scipy")


def _arrays(value: Any) -> Iterator[Array]:
    """The arrays of this library among arguments, also in lists and tuples."""
    if isinstance(value, Array):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _arrays(element)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))


def _converted(value: Any, wanted: str, shown: bool = False) -> Any:
    """The same arguments with NumPy's arrays in place of this library's; where they are only shown, also of those by
    which a derivative is taken."""
    if isinstance(value, Array):
        return np.asarray((value.primal if shown else value.concrete)(wanted))
    if type(value) in (list, tuple):
        return type(value)(_converted(v, wanted, shown) for v in value)
    if isinstance(value, dict):
        return {name: _converted(v, wanted, shown) for name, v in value.items()}
    return value


def _left_to_numpy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether NumPy can do it: with no traced arrays, and nothing to write into but its own arrays."""
    return all(isinstance(x, ConcreteArray) for x in _arrays((args, kwargs))) and not list(_arrays(kwargs.get("out")))


def _array(value: Any) -> Any:
    """A list as an array: NumPy takes lists where a function here takes arrays only."""
    return _functions["asarray"](value) if isinstance(value, (list, tuple)) else value


# --- ufuncs -----------------------------------------------------------------------------------------------------------


def _named(function: np.ufunc) -> tuple[str, str]:
    """What a ufunc is called here, and what the user calls it."""
    name = function.__name__
    if getattr(np, name, None) is function:
        return name, f"numpy.{name}"
    if getattr(sys.modules.get("scipy.special"), name, None) is function:
        _load_special()
        known = {"psi": "digamma"}.get(name, name)
        return f"special.{known}" if f"special.{known}" in _functions else known, f"scipy.special.{name}"
    return "", name


def apply_ufunc(theirs: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a ufunc of NumPy does that is given an array of this library."""
    name, said = _named(theirs)
    said += "" if method == "__call__" else f".{method}"
    out = kwargs.pop("out", None)
    if any(target is not None for target in out or ()):
        if _left_to_numpy(inputs, {"out": out}):  # `a += x` on an array of NumPy's
            return getattr(theirs, method)(*_converted(inputs, said), out=out, **_converted(kwargs, said))
        raise no_numpy_out(f"{said}(out=...)")
    if method == "at":
        if isinstance(inputs[0], np.ndarray) and _left_to_numpy(inputs, {}):
            return theirs.at(*_converted(inputs, said), **kwargs)
        raise no_numpy_out(said)
    function = _function(name, said)
    options = {
        k: v
        for k, v in kwargs.items()
        if k not in _WITHOUT_MEANING and (k == "axis" or v is not None) and v is not _NOT_GIVEN
    }
    if method in ("__call__", "outer"):
        mask = options.pop("where", True)
        if mask is not True:
            raise ArgumentError(
                f"{said}(where=...) leaves elements without a value; use numpy.where(mask, {said}(...), other)."
            )
        arrays = [_array(v) for v in inputs]
        if "dtype" in options:
            dtype = options.pop("dtype")
            arrays = [_functions["asarray"](v, dtype) for v in arrays]
        if method == "outer":
            return outer_of(function, said, *arrays)
        return function(*arrays, **options)
    if theirs.nin != 2 or theirs.nout != 1:
        raise ArgumentError(f"{said}: a function of two arrays with one result is needed.")
    fold = Fold(said, theirs.__name__, function, getattr(function, "identity", None))
    return _METHODS[method](fold, *inputs, **options)


def _reduce(
    fold: Fold,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    return fold.reduce(x, axis, dtype, keepdims, initial, where)


def _accumulate(fold: Fold, x: Any, axis: Any = 0, dtype: Any = None) -> Any:
    return fold.accumulate(x, axis, dtype)


def _reduce_at(fold: Fold, x: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    return fold.reduceat(x, indices, axis, dtype)


_METHODS: dict[str, Callable[..., Any]] = {"reduce": _reduce, "accumulate": _accumulate, "reduceat": _reduce_at}


def give_methods(functions: dict[str, Any]) -> None:
    """Give functions of two arrays that are no ufuncs, but whose namesakes in NumPy are, the methods of those:
    `reduce`, `accumulate`, `reduceat`, `outer`, and `at`, which makes an updated copy."""
    for name, function in functions.items():
        theirs = getattr(np, name, None)
        if isinstance(function, ufunc) or not isinstance(theirs, np.ufunc):
            continue
        if (theirs.nin, theirs.nout) == (2, 1):
            for method in ("reduce", "accumulate", "reduceat", "outer"):
                setattr(function, method, _method(theirs, method))
            function.at = partial(_at, function, f"{name}.at")


def _method(ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    def call(*inputs: Any, **options: Any) -> Any:
        asarray = _functions["asarray"]
        count = 2 if method == "outer" else 1
        arrays = [x if isinstance(x, Array) else asarray(x) for x in inputs[:count]]
        return apply_ufunc(ufunc, method, (*arrays, *inputs[count:]), options)

    call.__name__ = call.__qualname__ = f"{ufunc.__name__}.{method}"
    return call


def _at(function: Callable[..., Any], said: str, a: Any, indices: Any, b: Any, *, inplace: bool = False) -> Any:
    if inplace:
        raise ArgumentError(f"{said}: arrays are immutable; pass inplace=False and use the result.")
    return updated_at(function, said, a, indices, b)


# --- functions --------------------------------------------------------------------------------------------------------


@cache
def _parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(function).parameters)
    except ValueError:  # one written in C that does not say
        return None


def _arguments(function: Any, target: Any, said: str, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a NumPy function as its counterpart takes them: required ones by place, options by name."""
    given, taken = _parameters(function), _parameters(target)
    if given is None or taken is None:
        return list(args), kwargs
    bound = inspect.signature(function).bind(*args, **kwargs).arguments
    takes_any = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in bound.items():
        parameter = given[name]
        known = name if name in taken else _RENAMED.get(name, name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named.update(value)
        elif value is _NOT_GIVEN or (value is parameter.default and parameter.kind is not parameter.POSITIONAL_ONLY):
            continue
        elif parameter.default is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        elif known in taken or takes_any:
            named[known] = value
        elif name not in _WITHOUT_MEANING:
            raise ArgumentError(f"{said}: the function of tinyxla.numpy has no option {name!r}; leave it out.")
    return positional, named


def _called_as(function: Any, target: Any, said: str, args: Any, kwargs: Any) -> Any:
    """The result of a NumPy function's counterpart."""
    positional, named = _arguments(function, target, said, args, kwargs)
    return target(*positional, **named)


def apply_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a NumPy function does that is given an array of this library."""
    module = function.__module__.removeprefix("numpy").lstrip(".")
    name = f"{module}.{function.__name__}" if module else function.__name__
    said = f"numpy.{name}"
    concrete = _left_to_numpy(args, kwargs)
    if name in _WRITERS and not (concrete and isinstance(args[0], np.ndarray)):
        raise TracerError(
            f"{said} writes into an array, but arrays of tinyxla do not change, and traced values cannot be part "
            f"of one of NumPy's; use {_WRITERS[name]}."
        )
    theirs = name in (*_TO_NUMPY, *_WRITERS) or name not in _functions or kwargs.get("out") is not None
    if name in _OF_VALUES or (concrete and theirs):
        shown = name in _SHOWN
        return function(*_converted(args, said, shown), **_converted(kwargs, said, shown))
    if kwargs.pop("out", None) is not None:
        raise no_numpy_out(f"{said}(out=...)")
    target = _function(name, said)
    try:
        return with_lists_as_arrays(lambda: _called_as(function, target, said, args, kwargs))
    except TypeError as error:
        if not concrete or isinstance(error, ShapeError):
            raise
    return function(*_converted(args, said), **_converted(kwargs, said))  # options that only NumPy has
