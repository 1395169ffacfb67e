"""Traces of functions that are kept: a function is traced once for each structure, shapes and element types of its
arguments, and values of static ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any, NamedTuple

from tinyxla.api.functions import parameter_names, trace_tree
from tinyxla.api.per_function import PerFunction
from tinyxla.hlo import Computation
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Interpreted, state
from tinyxla.tracing.surroundings import surroundings


class Traced(NamedTuple):
    """A function as a computation of its arguments' leaves and of what it captured."""

    computation: Computation
    captured: list[Any]
    weak: list[bool]
    tree: pytrees.TreeDef


_kept = PerFunction[Hashable, Traced]()
forget_traces = _kept.clear
config.watch(forget_traces)  # options decide what a trace records


def traced(
    fun: Callable[..., Any],
    static: Sequence[tuple[Hashable, Any]],
    of_arrays: Callable[..., Any],
    leaves: Sequence[Any],
    tree: pytrees.TreeDef,
) -> Traced:
    """A function traced for these arguments: `of_arrays` of those that are not static. It is kept, unless it belongs to
    what surrounds the call."""
    captures = None if state.staging is None else state.staging.captures  # as the function around
    is_known = captures is None and state.manual is None and type(fun) is FunctionType
    types = [(x.dtype, x.shape, x.weak_type, getattr(x, "sharding", None)) for x in leaves]
    key = surroundings(), tree, *types, *((where, type(x), x) for where, x in static)
    if is_known:
        with suppress(TypeError):  # of a static argument without a hash, which may have changed since
            found = _kept.get(fun, key)
            if found is not None:
                return found
    inner, named = pytrees.unflatten(tree, leaves)
    names = lambda: parameter_names(of_arrays, inner, named)  # noqa: E731
    made = Traced(*trace_tree(of_arrays, inner, named, captures, names))
    if is_known and not any(isinstance(x, Interpreted) for x in made.captured):
        with suppress(TypeError):
            _kept.of(fun)[key] = made
    return made
