"""Functions that give places: of elements that are not zero, of diagonals and triangles; flat, and along each axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import DTypeError, NumberRangeError, ShapeError, SizeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    cast,
    check_memory,
    choice_of,
    count_of,
    counted,
    flat_array,
    function_of,
    index_dtype,
    integer_of,
    is_several,
    listed,
    operand,
    several_of,
    shape_of,
    type_of,
)
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.indexed import Update
from tinyxla.numpy.operations import movement, ops, reduction
from tinyxla.numpy.reductions import cumsum
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import Tracer, checked_size
from tinyxla.tracing.promotion import checked_scalar, default_int
from tinyxla.util.tracebacks import boundary


@boundary
def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, one array for each axis.

    How many there are decides the shape, so the values must be known, unless `size` gives it: then surplus indices
    are `fill_value` (0 if not given), and what is too many is left out.

    Args:
        a: an array.
        size: the number of elements of the result, where it would depend on values.
        fill_value: what takes the place of missing indices, 0 by default.

    Returns:
        A vector of integers for each axis.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.
        ShapeError: a negative `size`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.nonzero(jnp.array([0, 5, 0, 7]))
        (Array([1, 3], dtype=int32),)
    """
    mask = arith.truth(a, "nonzero")
    if mask.ndim == 0:
        raise ShapeError("nonzero: an array without dimensions has no indices; reshape it to (1,).")
    if size is None:
        known = np.asarray(mask.concrete("nonzero, whose result's shape depends on values (or give `size`),").buffer())
        return tuple(ConcreteArray(found.astype(_index_type())) for found in np.nonzero(known))
    return _nonzero_of_size(mask, count_of("nonzero", "size", size), fill_value)


def _index_type() -> np.dtype[Any]:
    return type_of(0)[0]


def _nonzero_of_size(mask: Any, size: int, fill_value: Any) -> tuple[Array, ...]:
    """Each element that is not zero writes its place to the slot of its number."""
    dtype = _index_type()
    flat = movement.reshape_to(mask, (mask.size,))
    number = ops.sub(cumsum(cast(flat, dtype)), movement.full(1, dtype, flat.shape))
    slot = ops.select(flat, number, movement.full(size, dtype, flat.shape))
    count = reduction.reduce_sum(cast(flat, dtype), (0,))
    results: list[Any] = []
    several = isinstance(fill_value, Sequence) and not isinstance(fill_value, str)
    fills = several_of("nonzero", "fill_value", fill_value if several else (fill_value,) * mask.ndim, mask.ndim)
    filled = ops.lt(
        movement.iota(shape=Shape(element_type(dtype), (size,)), iota_dimension=0),
        movement.broadcast(count, sizes=(size,), dimensions=()),
    )
    for d, fill in zip(range(mask.ndim), fills, strict=True):
        places = movement.iota(shape=Shape(element_type(dtype), mask.shape), iota_dimension=d)
        zeros: Any = movement.full(0, dtype, (size,))
        found = Update(zeros, slot).set(
            movement.reshape_to(places, (mask.size,)), mode="drop", wrap_negative_indices=False
        )
        results.append(ops.select(filled, found, movement.full(_fill(fill), dtype, (size,))))
    return tuple(results)


def _fill(value: Any) -> int:
    """What stands for a missing index."""
    if is_symbolic(value):
        return value
    return int(checked_scalar(0 if value is None else integer_of("nonzero", "fill_value", value), _index_type()))


@boundary
def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of the elements of the flattened array that are not zero.

    Args:
        a: an array.
        size: the number of elements of the result, where it would depend on values.
        fill_value: what takes the place of missing indices, 0 by default.

    Returns:
        A vector of integers.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.
        ShapeError: a negative `size`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.flatnonzero(jnp.array([[0, 1], [2, 0]]))
        Array([1, 2], dtype=int32)
    """
    return nonzero(flat_array(a, "flatnonzero"), size=size, fill_value=fill_value)[0]


@boundary
def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of the elements that are not zero, one row for each.

    Args:
        a: an array.
        size: the number of elements of the result, where it would depend on values.
        fill_value: what takes the place of missing indices, 0 by default.

    Returns:
        A matrix of integers with a row for each element that is not zero.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.
        ShapeError: a negative `size`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.argwhere(jnp.array([[0, 1], [2, 0]]))
        Array([[0, 1],
               [1, 0]], dtype=int32)
    """
    x = array_of(a, "argwhere")
    if x.ndim == 0:
        count = int(bool(x)) if size is None else size
        return ConcreteArray(np.zeros((count, 0), _index_type()))
    columns = nonzero(x, size=size, fill_value=fill_value)
    rows = [movement.reshape_to(c, (c.size, 1)) for c in columns]
    return movement.concatenate(*rows, dimension=1)


@boundary
def unravel_index(indices: ArrayLike, shape: Any) -> tuple[Array, ...]:
    """Row-major places in an array of that shape as one index for each axis; those outside are moved inside. The sizes
    may be traced.

    Args:
        indices: integers: positions in the flattened array.
        shape: the sizes of the axes.

    Returns:
        An array of integers for each axis.

    Raises:
        DTypeError: indices that are no integers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unravel_index(jnp.array([2, 4]), (2, 3))
        (Array([0, 1], dtype=int32), Array([2, 1], dtype=int32))
    """
    places = listed(indices, "unravel_index")
    wide = default_int()
    if places.dtype.kind == "b":
        places = cast(places, wide)
    if not element_type(places.dtype).is_integer:
        raise DTypeError(f"unravel_index: indices are integers, but got {Shape.of(places)}.")
    dtype = places.dtype
    traced = [n for n in shape if isinstance(n, Tracer)] if is_several(shape) else []
    sizes = [cast(operand(n, "unravel_index"), wide) for n in shape] if traced else shape_of("unravel_index", shape)
    total: Any = functools.reduce(lambda x, y: x * y, sizes, 1)
    last, divisor = (arith.maximum(total + k, k + 1) if traced else max(total + k, k + 1) for k in (-1, 0))
    if dtype.kind == "u":
        limit = cast(last, dtype) if traced else min(last, int(np.iinfo(dtype).max))
        places = arith.minimum(places, limit)
    places = arith.clip(cast(places, wide), -total, last)
    places = arith.remainder(places, divisor)  # negative ones count from the end
    found: list[Array] = []
    for n in reversed(sizes):
        found.append(cast(arith.remainder(places, n), dtype))
        places = arith.floor_divide(places, n)
    return tuple(reversed(found))


@boundary
def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Sequence[int],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: Any = None,
) -> Array:
    """Indices for each axis as row-major places (column-major for `order="F"`), of the integer type `dtype`.

    What is outside of an axis is an error; `mode="clip"` moves it to the end, `"wrap"` to the other side, and
    `"ignore"` computes with it.

    Args:
        multi_index: an array of integers for each axis.
        dims: the sizes of the axes.
        mode: "raise", "clip", "wrap" or "ignore".
        order: "C" or "F".
        dtype: the element type of the result.

    Returns:
        Integers of the common shape.

    Raises:
        NumberRangeError: an index out of bounds, with the mode "raise".
        ShapeError: indices that do not fit the dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 1])), (2, 3))
        Array([2, 4], dtype=int32)
    """
    choice_of("ravel_multi_index", "mode", mode, ("raise", "wrap", "clip", "ignore"))
    choice_of("ravel_multi_index", "order", order, ("C", "F"))
    arrays = [listed(i, "ravel_multi_index") for i in several_of("ravel_multi_index", "multi_index", multi_index)]
    for i in arrays:
        if i.size and element_type(i.dtype).is_inexact:
            raise DTypeError(f"ravel_multi_index: indices must be integers, but are of {i.dtype.name}; convert them.")
    dims = shape_of("ravel_multi_index", dims)
    if len(arrays) != len(dims):
        raise ShapeError(f"ravel_multi_index: {len(arrays)} indices do not fit the shape {dims}.")
    kind = index_dtype("ravel_multi_index", dtype, math.prod(dims))
    pairs = list(zip(arrays, dims, strict=True))
    total: Any = 0
    for d, (i, n) in enumerate(pairs if order == "C" else reversed(pairs)):
        if mode == "raise":
            known = np.asarray(i.concrete("ravel_multi_index with mode='raise'").buffer())
            if ((known < 0) | (known >= n)).any():
                raise NumberRangeError(
                    f"ravel_multi_index: invalid entry in coordinates array: indices of axis {d} are not all from 0 to "
                    f"{n - 1}."
                )
        i = arith.remainder(i, n) if mode == "wrap" else arith.clip(i, 0, n - 1) if mode == "clip" else i
        if dtype is not None:
            i = cast(array_of(i, "ravel_multi_index"), kind, False)
        total = arith.add(arith.multiply(total, n), i)
    return total


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors of indices, each along its own axis, so that they pick the whole grid.

    Args:
        *args: vectors of integers or booleans.

    Returns:
        As many arrays, of as many dimensions.

    Raises:
        ShapeError: an array of more than one dimension.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.arange(9).reshape(3, 3)[jnp.ix_(jnp.array([0, 2]), jnp.array([1, 2]))]
        Array([[1, 2],
               [7, 8]], dtype=int32)
    """
    found: list[Any] = []
    for k, a in enumerate(args):
        x = listed(a, "ix_")
        if x.ndim != 1:
            raise ShapeError(f"ix_: takes arrays of one dimension, but got shape {x.shape}.")
        if x.dtype.kind == "b":
            x = nonzero(x)[0]
        found.append(movement.reshape_to(x, tuple(x.size if d == k else 1 for d in range(len(args)))))
    return tuple(found)


def _known(arrays: Iterable[np.ndarray[Any, Any]]) -> tuple[Array, ...]:
    return tuple(ConcreteArray(a.astype(_index_type())) for a in arrays)


@boundary
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array whose axes have size n.

    Args:
        n: the size of the axes.
        ndim: the number of axes.

    Returns:
        A vector of integers for each axis.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.diag_indices(2)
        (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    size, axes = count_of("diag_indices", "n", n), count_of("diag_indices", "ndim", ndim)
    checked_size("diag_indices", Shape(element_type(np.int64), (1,) * min(axes, 65)))
    return _known([counted("diag_indices", size)] * axes)


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array whose axes have one size.

    Args:
        arr: an array.

    Returns:
        A vector of integers for each axis.

    Raises:
        ShapeError: an array with axes of different sizes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.diag_indices_from(jnp.ones((2, 2)))
        (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    x = array_of(arr, "diag_indices_from")
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(f"diag_indices_from: axes have one size, but the shape is {x.shape}.")
    return diag_indices(x.shape[0], x.ndim)


def _of_triangle(what: str, find: Callable[..., Any], n: Any, k: Any, m: Any) -> tuple[Array, ...]:
    """The indices that NumPy finds in a triangle of an n by m matrix."""
    rows = count_of(what, "n", n)
    columns = rows if m is None else count_of(what, "m", m)
    checked_size(what, Shape(element_type(np.int64), (rows, columns)))
    try:
        return _known(find(rows, max(-rows, min(integer_of(what, "k", k), columns)), columns))
    except MemoryError:
        raise SizeError(f"{what}: no memory can hold the indices of {rows} by {columns} elements.") from None


@replayed
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """The indices on and below the k-th diagonal of an n by m matrix.

    Args:
        n, m: the numbers of rows and columns.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        A vector of integers for rows and one for columns.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.tril_indices(2)
        (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _of_triangle("tril_indices", np.tril_indices, n, k, m)


@replayed
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """The indices on and above the k-th diagonal of an n by m matrix.

    Args:
        n, m: the numbers of rows and columns.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        A vector of integers for rows and one for columns.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.triu_indices(2)
        (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _of_triangle("triu_indices", np.triu_indices, n, k, m)


def _matrix(what: str, arr: ArrayLike) -> Array:
    x = array_of(arr, what)
    if x.ndim != 2:
        raise ShapeError(f"{what}: takes a matrix, but got an array of shape {x.shape}.")
    return x


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, ...]:
    """The indices on and below the k-th diagonal of a matrix.

    Args:
        arr: an array.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        A vector of integers for rows and one for columns.

    Raises:
        ShapeError: what is no matrix.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.tril_indices_from(jnp.ones((2, 2)))
        (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    x = _matrix("tril_indices_from", arr)
    return tril_indices(x.shape[-2], k, x.shape[-1])


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, ...]:
    """The indices on and above the k-th diagonal of a matrix.

    Args:
        arr: an array.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        A vector of integers for rows and one for columns.

    Raises:
        ShapeError: what is no matrix.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.triu_indices_from(jnp.ones((2, 2)))
        (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    x = _matrix("triu_indices_from", arr)
    return triu_indices(x.shape[-2], k, x.shape[-1])


@boundary
def mask_indices(n: int, mask_func: Callable[[Any, int], Any], k: int = 0, *, size: int | None = None) -> Any:
    """The indices of what a function, such as `triu`, keeps of an n by n matrix.

    Args:
        n: the numbers of rows and columns.
        mask_func: a function of a matrix and of k.
        k: the second argument of the function.
        size: the number of elements of the result, where it would depend on values.

    Returns:
        A vector of integers for rows and one for columns.

    Raises:
        ShapeError: a negative size.

    >>> import numpy as np
    >>> from tinyxla.numpy import mask_indices
    >>> mask_indices(2, np.triu, 1)
    (Array([0], dtype=int32), Array([1], dtype=int32))
    """
    keep = function_of("mask_indices", "mask_func", mask_func)
    side = count_of("mask_indices", "n", n)
    check_memory("mask_indices", (side, side))
    return nonzero(keep(np.ones((side, side), np.int32), k), size=size)
