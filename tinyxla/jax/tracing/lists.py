"""Functions of lists that programs import from `jax._src.util`: to write interpreters of jaxprs with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from tinyxla.jax.tracing.linear_util import safe_zip


def foreach(f: Callable[..., Any], *sequences: Any) -> None:
    """Call a function with the elements of sequences of one length."""
    for elements in safe_zip(*sequences):
        f(*elements)


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second elements of pairs.

    >>> unzip2([(1, "a"), (2, "b")])
    ((1, 2), ('a', 'b'))
    """
    first, second = zip(*found, strict=True) if (found := list(pairs)) else ((), ())
    return first, second


def unzip3(triples: Iterable[tuple[Any, Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """The first, second and third elements of triples."""
    first, second, third = zip(*found, strict=True) if (found := list(triples)) else ((), (), ())
    return first, second, third


def split_list(elements: Iterable[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Lists of these sizes, and one of what is left.

    >>> split_list("abcde", [1, 2])
    [['a'], ['b', 'c'], ['d', 'e']]
    """
    left = iter(elements)
    return [*(list(islice(left, size)) for size in sizes), list(left)]


def partition_list(flags: Sequence[bool], elements: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The elements whose flag is false, and the others.

    >>> partition_list([True, False, True], "abc")
    (['b'], ['a', 'c'])
    """
    pairs = safe_zip(flags, elements)
    return [x for flag, x in pairs if not flag], [x for flag, x in pairs if flag]


def merge_lists(flags: Sequence[bool], first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """The inverse of `partition_list`: elements of the second list where the flag is true, in order.

    >>> merge_lists([True, False, True], "b", "ac")
    ['a', 'b', 'c']
    """
    others, chosen = iter(first), iter(second)
    return [next(chosen) if flag else next(others) for flag in flags]
