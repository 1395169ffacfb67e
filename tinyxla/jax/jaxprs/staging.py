"""Functions as jaxprs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import Function, ShapeDtypeStruct, as_integers, name_of, trace_tree
from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.array_types import types_of_values
from tinyxla.jax.jaxprs.jaxpr import REF_EFFECT, ClosedJaxpr
from tinyxla.jax.jaxprs.traces import recording
from tinyxla.jax.jaxprs.translation import of_computation
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import state
from tinyxla.tracing.references import (
    Reference,
    discovered,
    filled,
    has_references,
    slotted,
    threaded,
    values_of,
)
from tinyxla.util.wrapping import wraps


def make_jaxpr(
    fun: Function,
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """The jaxpr of a function for arguments of given shapes.

    Args:
        fun: of pytrees of arrays.
        static_argnums: positions of arguments that stay Python values.
        axis_env: names and sizes of mapped axes that the function uses.
        return_shape: also give the result's shapes, as `eval_shape` does.
        abstracted_axes: must be None.

    Returns:
        A function of the same arguments that gives a `ClosedJaxpr`, or that and a pytree of `ShapeDtypeStruct`s.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> jax.make_jaxpr(lambda x: jax.numpy.sin(x) * 2)(1.0)
        { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }
    """
    if abstracted_axes is not None:
        raise ArgumentError(f"make_jaxpr of {name_of(fun)}: abstracted_axes must be None.")
    numbers = as_integers(static_argnums, f"make_jaxpr of {name_of(fun)}: static_argnums")

    @wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        held = {n % len(args): args[n % len(args)] for n in numbers if -len(args) <= n < len(args)}
        others = tuple(x for n, x in enumerate(args) if n not in held)

        @wraps(fun)
        def of_others(*given: Any, **kwargs: Any) -> Any:
            values = iter(given)
            return fun(*[held[n] if n in held else next(values) for n in range(len(args))], **kwargs)

        closed, weak, tree = recording.with_axes(axis_env or (), lambda: _with_references(of_others, others, kwargs))
        if not return_shape:
            return closed
        shapes = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=w) for a, w in zip(closed.out_avals, weak, strict=True)]
        return closed, pytrees.unflatten(tree, shapes)

    traced.__name__, traced.__module__ = f"make_jaxpr({traced.__name__})", "jax"
    traced.__qualname__ = f"make_jaxpr({traced.__qualname__})"
    return traced


def _with_references(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The jaxpr of a function that may use mutable arrays, as arguments or from around: of their values, which come
    before the other arguments."""
    (given, named), passed = slotted((args, kwargs)) if has_references((args, kwargs)) else ((args, kwargs), [])

    def run(outer: list[Reference]) -> Any:
        references = [*passed, *outer]
        if not references:
            return closed_jaxpr(function, args, kwargs)

        @wraps(function)
        def of_values(values: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            own = list(references)
            called = threaded(lambda: function(*filled(args, own), **filled(kwargs, own)), own)
            return called(values)[0]

        closed, weak, tree = closed_jaxpr(of_values, (values_of(references), *given), named)
        closed.jaxpr.effects = closed.jaxpr.effects | {REF_EFFECT}
        return closed, weak, tree

    return discovered(run)


def closed_jaxpr(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> tuple[ClosedJaxpr, list[bool], Any]:
    """The jaxpr of a function of pytrees, which of its results are weakly typed, and their structure."""
    named = kwargs or {}
    return _translated(function, args, named, _traced(function, args, named), is_typed=True)


def _traced(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return recording.record(lambda: trace_tree(function, args, kwargs, recording.is_from_around))


def _translated(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], traced: Any, is_typed: bool
) -> tuple[ClosedJaxpr, list[bool], Any]:
    made, captured, weak, tree = traced
    count = len(made.parameters) - len(captured)
    leaves = pytrees.leaves((args, kwargs))
    types = types_of_values([*leaves, *captured]) if is_typed and len(leaves) == count else None
    jaxpr, constants = of_computation(made, count, name_of(function), weak, _weak_types((args, kwargs), count), types)
    return ClosedJaxpr(jaxpr, [*captured, *constants]), weak, tree


def restaged_jaxpr(function: Function, args: tuple[Any, ...], is_typed: bool = False) -> ClosedJaxpr:
    """The jaxpr of a function that evaluates jaxprs, or what was made of them: these say by `pvary` what varies among
    devices, so that nothing needs to be known of the arguments. If it `is_typed`, they are described with their types.
    """

    def record() -> Any:
        outer, state.manual = state.manual, None
        try:
            return _traced(function, args, {})
        finally:
            state.manual = outer

    return _translated(function, args, {}, record(), is_typed)[0]


def _weak_types(arguments: Any, count: int) -> list[bool]:
    """Which leaves of arguments are weakly typed: Python's numbers are. Those of a function that has other leaves than
    its arguments are taken for strong ones."""
    leaves = pytrees.flatten(arguments)[0]
    if len(leaves) != count:
        return []
    return [bool(getattr(x, "weak_type", type(x) in (int, float, complex))) for x in leaves]
