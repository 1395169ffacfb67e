"""Numbers and names of arguments: those of the same arguments, and which leaves are donated."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from typing import Any

from tinyxla.errors import ArgumentError


def donation_vector(
    donate_argnums: Collection[int], donate_argnames: Collection[str], in_tree: Any, kws: bool = True
) -> tuple[bool, ...]:
    """Whether each leaf is donated.

    Args:
        donate_argnums, donate_argnames: the arguments that are donated, by position and by name.
        in_tree: the structure of `(args, kwargs)`, or without `kws` of the positional arguments.
    """
    args, *named = in_tree.children() if kws else [in_tree]
    found = [k in donate_argnums for k, arg in enumerate(args.children()) for _ in range(arg.num_leaves)]
    for kwargs in named:
        for name, value in zip(kwargs.entries(), kwargs.children(), strict=True):
            found += [name in donate_argnames] * value.num_leaves
    return tuple(found)


def rebase_donate_argnums(donate_argnums: Collection[int], static_argnums: Collection[int]) -> tuple[int, ...]:
    """The numbers of donated arguments among those that are not static.

    Raises:
        ArgumentError: an argument is both.

    >>> rebase_donate_argnums((3, 4), (0, 1))
    (1, 2)
    """
    static, donated = sorted(set(static_argnums)), sorted(set(donate_argnums))
    if set(static) & set(donated):
        raise ArgumentError(f"`static_argnums` {static} and `donate_argnums` {donated} cannot intersect.")
    return tuple(n - sum(m < n for m in static) for n in donated)


def infer_argnums_and_argnames(
    sig: inspect.Signature, argnums: int | Iterable[int] | None, argnames: str | Iterable[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The numbers and the names of the arguments of which one of the two is given.

    >>> infer_argnums_and_argnames(inspect.signature(lambda x, y, *, z: x), None, ("y", "z"))
    ((1,), ('y', 'z'))
    """
    numbers = None if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = None if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
    both_ways = [
        (k, name)
        for k, (name, x) in enumerate(sig.parameters.items())
        if x.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    if numbers is None:
        numbers = tuple(k for k, name in both_ways if name in (names or ()))
    if names is None:
        names = tuple(name for k, name in both_ways if k in numbers)
    return numbers, names
