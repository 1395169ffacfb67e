"""Functions that are transformed step by step: `WrappedFun`, as JAX's `linear_util` has it, and `api_util`.

A transformation is a generator that yields arguments for the inner function, is sent its result and yields its own; the
newer kind is a function of the inner function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.avals import ShapedArray, get_aval
from tinyxla.jax.jaxprs.jaxpr import DebugInfo
from tinyxla.tracing import pytrees

Function = Callable[..., Any]


class StoreException(Exception):
    """A value beside the result was asked for before the function ran, or set twice."""


class Store:
    """Holds a value that a transformation gives beside the result."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def store(self, value: Any) -> None:
        self._values = [value]

    def __call__(self) -> Any:
        if not self._values:
            raise StoreException("The function has not run, so that there is no value beside its result.")
        return self._values[0]


class WrappedFun:
    """A function with transformations around it.

    Example:
        >>> wrap_init(max).call_wrapped(1, 2)
        2
    """

    def __init__(self, f: Function, params: Any = None, debug_info: Any = None) -> None:
        self.f = f
        self.params = params or {}
        self.debug_info = debug_info
        self.transforms: tuple[Any, ...] = ()
        self.stores: tuple[Any, ...] = ()

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", type(self.f).__name__)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the transformed function."""
        return self.f(*args, **self.params, **kwargs)

    __call__ = call_wrapped


def wrap_init(f: Function, params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """A function without transformations yet."""
    return WrappedFun(f, params, debug_info)


def _generated(generator: Function, fun: WrappedFun, outer: tuple[Any, ...], args: Any, kwargs: Any) -> Any:
    running = generator(*outer, *args, **kwargs)
    inner_args, inner_kwargs = next(running)
    result = running.send(fun.call_wrapped(*inner_args, **inner_kwargs))
    running.close()
    return result


def transformation(generator: Function) -> Function:
    """A transformation that is a generator: `wrap(fun, *outer)` gives the transformed function."""

    @functools.wraps(generator)
    def wrap(fun: WrappedFun, *outer: Any) -> WrappedFun:
        return WrappedFun(lambda *args, **kwargs: _generated(generator, fun, outer, args, kwargs), None, fun.debug_info)

    return wrap


def transformation_with_aux(generator: Function) -> Function:
    """The same with a value beside the result: `wrap` also gives a function that returns it."""

    @functools.wraps(generator)
    def wrap(fun: WrappedFun, *outer: Any) -> tuple[WrappedFun, Store]:
        store = Store()

        def run(*args: Any, **kwargs: Any) -> Any:
            result, aux = _generated(generator, fun, outer, args, kwargs)
            store.store(aux)
            return result

        return WrappedFun(run, None, fun.debug_info), store

    return wrap


def transformation2(transform: Function) -> Function:
    """A transformation that is a function of the inner function."""

    @functools.wraps(transform)
    def wrap(fun: WrappedFun, *outer: Any) -> WrappedFun:
        return WrappedFun(functools.partial(transform, fun.call_wrapped, *outer), None, fun.debug_info)

    return wrap


def transformation_with_aux2(transform: Function) -> Function:
    """The same with a store for a value beside the result."""

    @functools.wraps(transform)
    def wrap(fun: WrappedFun, *outer: Any, **options: Any) -> tuple[WrappedFun, Store]:
        store = Store()
        inner = functools.partial(transform, fun.call_wrapped, store, *outer)
        return WrappedFun(inner, None, fun.debug_info), store

    return wrap


def merge_linear_aux(first: Store, second: Store) -> tuple[bool, Any]:
    """Which of two functions ran, and the value beside its result."""
    try:
        return True, first()
    except StoreException:
        return False, second()


def cache(call: Function) -> Function:
    """A function of a `WrappedFun` and further arguments, whose results are kept."""
    known: dict[Any, Any] = {}

    @functools.wraps(call)
    def cached(fun: WrappedFun, *args: Any) -> Any:
        key = (fun.f, args)
        if key not in known:
            known[key] = call(fun, *args)
        return known[key]

    return cached


# --- api_util ---------------------------------------------------------------------------------------------------------


def safe_map(f: Function, *sequences: Any) -> list[Any]:
    """`map` over sequences of one length, as a list."""
    return [f(*x) for x in safe_zip(*sequences)]


def safe_zip(*sequences: Any) -> list[tuple[Any, ...]]:
    """`zip` of sequences of one length, as a list."""
    lists = [list(x) for x in sequences]
    if len({len(x) for x in lists}) > 1:
        raise ArgumentError(f"safe_map: the sequences must have one length, but have {[len(x) for x in lists]}.")
    return list(zip(*lists, strict=True))


def flatten_fun(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Store]:
    """A function of `(args, kwargs)` as one of their leaves, and the structure of its result."""
    store = Store()

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = pytrees.unflatten(in_tree, leaves)
        found, tree = pytrees.flatten(fun.call_wrapped(*args, **kwargs))
        store.store(tree)
        return found

    return WrappedFun(flat, None, fun.debug_info), store


def flatten_fun_nokwargs(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Store]:
    """A function of `args` as one of their leaves, and the structure of its result."""
    store = Store()

    def flat(*leaves: Any) -> list[Any]:
        found, tree = pytrees.flatten(fun.call_wrapped(*pytrees.unflatten(in_tree, leaves)))
        store.store(tree)
        return found

    return WrappedFun(flat, None, fun.debug_info), store


def argnums_partial(
    fun: WrappedFun, dynamic: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, list[Any]]:
    """A function of the arguments at some positions, and these; the others are bound."""
    numbers = (dynamic,) if isinstance(dynamic, int) else tuple(dynamic)
    places = [n % len(args) for n in numbers]

    def of_dynamic(*given: Any, **kwargs: Any) -> Any:
        whole = list(args)
        for n, x in zip(places, given, strict=True):
            whole[n] = x
        return fun.call_wrapped(*whole, **kwargs)

    return WrappedFun(of_dynamic, None, fun.debug_info), [args[n] for n in places]


def flatten_axes(name: str, treedef: Any, axes: Any, **ignored: Any) -> list[Any]:
    """Axes for each leaf, of a prefix of the structure."""
    return pytrees.broadcast_prefix(axes, pytrees.with_placeholders(treedef), name)


def debug_info(traced_for: str, fun: Function, args: Any = (), kwargs: Any = None, **ignored: Any) -> DebugInfo:
    """Of which function a jaxpr is."""
    return DebugInfo(traced_for, getattr(fun, "__name__", str(fun)))


def shaped_abstractify(x: Any) -> ShapedArray:
    """The abstract value of an array or number."""
    return get_aval(x)  # type: ignore[return-value]
