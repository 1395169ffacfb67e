"""Functions of lists that programs import from `jax._src.util`: to write interpreters of jaxprs with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import index
from typing import Any

from numpy.lib.array_utils import normalize_axis_index

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


def tuple_update(elements: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    """A tuple with another element at an index.

    >>> tuple_update("abc", -1, "x")
    ('a', 'b', 'x')
    """
    found = list(elements)
    found[index] = value
    return tuple(found)


def tuple_insert(elements: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    """A tuple with another element before an index, which is not negative.

    >>> tuple_insert("abc", 1, "x")
    ('a', 'x', 'b', 'c')
    """
    return (*elements[:index], value, *elements[index:])


def tuple_delete(elements: Sequence[Any], index: int) -> tuple[Any, ...]:
    """A tuple without the element at an index.

    >>> tuple_delete("abc", 1)
    ('a', 'c')
    """
    found = list(elements)
    del found[index]
    return tuple(found)


def canonicalize_axis(axis: Any, num_dims: int) -> int:
    """The number of an axis counted from the start.

    Raises:
        AxisError: there is no such axis.

    >>> canonicalize_axis(-1, 3)
    2
    """
    return normalize_axis_index(index(axis), num_dims)


def ceil_of_ratio(x: int, y: int) -> int:
    """The quotient of two integers, rounded up.

    >>> ceil_of_ratio(5, 2)
    3
    """
    return -(-x // y)


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
