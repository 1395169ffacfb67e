"""Sorting, the largest elements, and cumulative functions along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.lax.elementwise import max_, min_
from tinyxla.lax.operands import ArrayLike, described
from tinyxla.numpy.arguments import array_of, integer_of
from tinyxla.ops import movement
from tinyxla.ops.sorting import order_computation
from tinyxla.ops.sorting import sort as sort_op
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array

# --- sorting ----------------------------------------------------------------------------------------------------------


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """An array, or a sequence of arrays of one shape, in ascending order along a dimension; NaN comes last.

    Args:
        operand: an array, or a sequence of arrays: all are put in the order of the first ones.
        dimension: along which.
        is_stable: equal elements stay in order (they always do here).
        num_keys: by how many of the arrays to sort; a later one decides where the earlier ones are equal.

    >>> sort(np.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    what = "lax.sort"
    several = isinstance(operand, Sequence)
    arrays = [array_of(x, what) for x in operand] if isinstance(operand, Sequence) else [array_of(operand, what)]
    if not arrays:
        raise ArgumentError(f"{what} takes at least one array, but got none.")
    keys = integer_of(what, "num_keys", num_keys)
    if not 1 <= keys <= len(arrays):
        raise ArgumentError(f"{what}: num_keys is from 1 to the number of arrays, {len(arrays)}, but got {keys}.")
    d = canonical_axis(dimension, arrays[0].ndim, what)
    comparator = order_computation(tuple(x.dtype for x in arrays), keys)
    result = sort_op(*arrays, dimensions=(d,), to_apply=comparator, is_stable=bool(is_stable))
    return (result if isinstance(result, tuple) else (result,)) if several else result


def sort_key_val(keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True) -> Any:
    """Keys in ascending order along a dimension, and values in the order of their keys.

    >>> sort_key_val(np.array([3, 1, 2]), np.array([30, 10, 20]))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    return sort((keys, values), dimension, is_stable)


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis in descending order, and their indices; of equal ones the first comes first.

    >>> top_k(np.array([3, 1, 2]), 2)
    (Array([3, 2], dtype=int32), Array([0, 2], dtype=int32))
    """
    what = "lax.top_k"
    x = array_of(operand, what)
    d = canonical_axis(axis, x.ndim, what)
    count = integer_of(what, "k", k)
    if not 0 <= count <= x.shape[d]:
        raise ShapeError(f"{what}: k is from 0 to the size of axis {d} of {described([x])}, but got {count}.")
    index = movement.iota(shape=Shape(element_type(np.int32), x.shape), iota_dimension=d)
    comparator = order_computation((x.dtype, index.dtype), 1, True)
    ordered = sort_op(x, index, dimensions=(d,), to_apply=comparator, is_stable=True)
    values, places = (movement.slice_axis(part, d, 0, count) for part in ordered)
    return values, places  # type: ignore[return-value]


# --- scans ------------------------------------------------------------------------------------------------------------


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The folds of all beginnings of a sequence by an associative function, in a logarithmic number of steps.

    Source: G. E. Blelloch, "Prefix sums and their applications", 1990: neighbours are combined, their scan gives every
    second result, and one more step the others.

    Args:
        fn: from two trees of arrays to one; it is applied to many elements at once, along `axis`.
        elems: a tree of arrays that have the same size along the axis.
        reverse: fold ends of the sequence instead, from the back.
        axis: along which the sequence runs.

    >>> associative_scan(lambda x, y: x * y, np.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    what = "lax.associative_scan"
    leaves, treedef = pytrees.flatten(elems)
    if not leaves:
        raise ArgumentError(f"{what} takes at least one array, but {elems!r} has none.")
    arrays: list[Any] = [array_of(x, what) for x in leaves]
    axes = [canonical_axis(axis, x.ndim, what) for x in arrays]
    sizes = {x.shape[d] for x, d in zip(arrays, axes, strict=True)}
    if len(sizes) > 1:
        raise ShapeError(f"{what}: the arrays have different sizes along axis {axis}: {described(arrays)}.")
    d = axes[0] if axis >= 0 else axis

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        found, structure = pytrees.flatten(fn(pytrees.unflatten(treedef, left), pytrees.unflatten(treedef, right)))
        if structure != treedef:
            raise ArgumentError(f"{what}: the function gives the structure {structure}, but takes {treedef}.")
        return [array_of(x, what) for x in found]

    if reverse:
        arrays = [_reversed(x, d) for x in arrays]
    results = _scan(combine, arrays, d)
    if reverse:
        results = [_reversed(x, d) for x in results]
    return pytrees.unflatten(treedef, results)


def _reversed(x: Any, axis: int) -> Any:
    return movement.reverse(x, dimensions=(axis % x.ndim,))


def _part(x: Any, axis: int, start: int, limit: int, stride: int = 1) -> Any:
    return movement.slice_axis(x, axis % x.ndim, start, limit, stride)


def _scan(combine: Callable[[list[Any], list[Any]], list[Any]], arrays: list[Any], axis: int) -> list[Any]:
    count = arrays[0].shape[axis]
    if count < 2:
        return arrays
    paired = count // 2
    even = [_part(x, axis, 0, 2 * paired, 2) for x in arrays]
    odd = [_part(x, axis, 1, 2 * paired, 2) for x in arrays]
    at_odd = _scan(combine, combine(even, odd), axis)
    before = [_part(x, axis, 0, (count - 1) // 2) for x in at_odd]
    rest = [_part(x, axis, 2, count, 2) for x in arrays]
    at_even = combine(before, rest) if count > 2 else rest
    first = [_part(x, axis, 0, 1) for x in arrays]
    whole = [movement.concatenate(f, e, dimension=axis % f.ndim) for f, e in zip(first, at_even, strict=True)]
    return [_interleaved(e, o, axis % e.ndim) for e, o in zip(whole, at_odd, strict=True)]


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """Elements of both in turn, beginning with `even`, which may have one more."""
    pairs = odd.shape[axis]
    columns = [
        movement.reshape(x, sizes=(*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        for x in (_part(even, axis, 0, pairs), odd)
    ]
    joined = movement.concatenate(*columns, dimension=axis + 1)
    mixed = movement.reshape(joined, sizes=(*odd.shape[:axis], 2 * pairs, *odd.shape[axis + 1 :]))
    if even.shape[axis] == pairs:
        return mixed
    return movement.concatenate(mixed, _part(even, axis, pairs, pairs + 1), dimension=axis)


def _cumulative(name: str, apply: Callable[[Any, int], Any], text: str) -> Any:
    what = f"lax.{name}"

    def function(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        x = array_of(operand, what)
        d = canonical_axis(axis, x.ndim, what)
        if not reverse:
            return apply(x, d)
        return _reversed(apply(_reversed(x, d), d), d)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text} of all elements up to each, along an axis; from the back if `reverse`."
    return function


def _scanned(combine: Callable[[Any, Any], Any]) -> Callable[[Any, int], Any]:
    return lambda x, axis: associative_scan(combine, x, axis=axis)


cumsum = _cumulative("cumsum", lambda x, axis: tnp.cumsum(x, axis=axis, dtype=x.dtype), "The sum")
cumprod = _cumulative("cumprod", lambda x, axis: tnp.cumprod(x, axis=axis, dtype=x.dtype), "The product")
cummax = _cumulative("cummax", _scanned(max_), "The largest")
cummin = _cumulative("cummin", _scanned(min_), "The smallest")
cumlogsumexp = _cumulative("cumlogsumexp", _scanned(tnp.logaddexp), "The logarithm of the sum of the exponentials")
