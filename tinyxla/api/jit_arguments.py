"""Arguments of `jit`, by position and by name: which are static and which are donated."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tinyxla.api.functions import Function, as_integers, check_callable, name_of
from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.partitioning.placement import is_placement
from tinyxla.tracing import pytrees
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec

ChosenArguments = tuple[frozenset[int], frozenset[str]]  # arguments by position and by name


def chosen_arguments(
    function: Function, static_argnums: Any, static_argnames: Any, donate_argnums: Any, donate_argnames: Any
) -> tuple[ChosenArguments, ChosenArguments]:
    """The static arguments of a function that is to be compiled, and the donated ones.

    Raises:
        ArgumentError: it cannot be compiled.
        AttributeValueError: an argument that is both.
    """
    check_callable("jit", function)
    if isinstance(function, staticmethod):
        raise ArgumentError(
            f"jit of {name_of(function.__func__)}: it takes a function, but got a static method; put @staticmethod "
            "above @jit."
        )
    if inspect.isgeneratorfunction(function):
        raise ArgumentError(
            f"jit of {name_of(function)}: it is a generator, whose results are made after it returns; return a list of "
            "them."
        )
    static = _chosen(function, "static", static_argnums, static_argnames)
    donated = _chosen(function, "donate", donate_argnums, donate_argnames)
    both = [*(static[0] & donated[0]), *(static[1] & donated[1])]
    if both:
        raise AttributeValueError(
            f"jit of {name_of(function)}: the argument {both[0]!r} must not be both static and donated; only arrays "
            "can be donated."
        )
    return static, donated


@functools.lru_cache(1024)
def split_positions(numbers: frozenset[int], count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which of `count` positions are among `numbers`, of which negative ones count from the end, and which are not."""
    chosen = {n % count for n in numbers if -count <= n < count}
    return tuple(sorted(chosen)), tuple(n for n in range(count) if n not in chosen)


def check_static(where: int | str, value: Any, name: str) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise ArgumentError(
            f"jit of {name}: the static argument {where!r} is {reprlib.repr(value)} of type {type(value).__name__}, "
            f"which cannot be hashed ({error}); pass a tuple instead of a list, or an array as an argument that is not "
            "static."
        ) from None


def not_comparable(name: str, static: tuple[Any, ...], error: Exception) -> ArgumentError:
    types = ", ".join(kind.__name__ for _, kind, _ in static)
    return ArgumentError(
        f"jit of {name}: the static arguments ({types}) cannot be compared with those of earlier calls: __eq__ raised "
        f"{type(error).__name__}; let it give True or False."
    )


def check_conflicting_devices(device: Any, backend: Any, in_shardings: Any, out_shardings: Any) -> None:
    """An error for two ways to say where a function runs."""
    if device is not None and backend is not None:
        raise ArgumentError(f"jit: there must not be both a device, {device!r}, and a backend, {backend!r}.")
    for name, shardings in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        if shardings is not None and not (device is backend is None):
            where = f"the device {device!r}" if backend is None else f"the backend {backend!r}"
            raise ArgumentError(f"jit: {name} must not be given together with {where}; leave one out.")


def check_constrained(**shardings: Any) -> None:
    """An error for a dimension that is left open where it is said how arguments or results are split."""
    for name, given in shardings.items():
        for x in pytrees.flatten_shown(given, is_placement)[0]:
            spec = x.spec if isinstance(x, NamedSharding) else x if isinstance(x, PartitionSpec) else ()
            if PartitionSpec.UNCONSTRAINED in spec:
                raise ArgumentError(
                    f"jit: {name} must say of each dimension how it is split, but {spec} leaves one open; use None for "
                    "the whole sharding, or lax.with_sharding_constraint."
                )


def check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ArgumentError(f"jit: {name} must be True or False, but is {value!r}.")


def _chosen(function: Function, what: str, argnums: Any, argnames: Any) -> ChosenArguments:
    """The numbers and the names of arguments that `static_argnums` and `static_argnames`, or those of `donate`, say."""
    numbers = set(as_integers(() if argnums is None else argnums, f"jit: {what}_argnums"))
    names = set(_names(() if argnames is None else argnames, f"{what}_argnames"))
    chosen = frozenset(numbers), frozenset(names)
    if numbers or names:
        _complete(function, what, numbers, names)
    # Who gives both means them as they are: a wrapper's parameters need not be those of the function that it names.
    return chosen if argnums is not None and argnames is not None else (frozenset(numbers), frozenset(names))


def _names(given: Any, option: str) -> tuple[str, ...]:
    """One name, or several, as a tuple."""
    names: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"jit: {option} must be a name or a tuple of names, but is {given!r}.")
    return names


def _complete(function: Function, what: str, numbers: set[int], names: set[str]) -> None:
    """Let an argument that is static (or donated) by position be so by name too, and the other way round."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return
    by_position = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    positional = [p.name for p in parameters if p.kind in by_position]
    variadic = any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters)
    has_others = any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters)
    kinds = {p.name: p.kind for p in parameters}
    for name in names:
        if kinds.get(name) in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise ArgumentError(
                f"jit of {name_of(function)}: {what}_argnames has {name!r}, but this parameter is not passed by name; "
                f"give its position in {what}_argnums."
            )
        if name not in kinds and not has_others:
            raise ArgumentError(
                f"jit of {name_of(function)}: {what}_argnames has {name!r}, but there is no such parameter."
            )
    for n in numbers:
        if not variadic and not -len(positional) <= n < len(positional):
            raise ArgumentError(
                f"jit of {name_of(function)}: {what}_argnums has {n}, but it takes {len(positional)} positional "
                "arguments."
            )
    named = {positional[n] for n in numbers if -len(positional) <= n < len(positional)}
    numbers.update(k for k, name in enumerate(positional) if name in names)
    names.update(named)
