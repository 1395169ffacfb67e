"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ShapeError, SizeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_to_shape,
    cast,
    constant,
    integer_of,
    python_dtype,
    refuse_out,
    shape_of,
    with_device,
)
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.manipulation import moveaxis, ravel
from tinyxla.numpy.operations import movement, ops
from tinyxla.numpy.reductions import sum as total
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import has_symbolic
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import Tracer, checked_size, on_current_mesh, state
from tinyxla.tracing.promotion import default_float
from tinyxla.util.tracebacks import boundary


@boundary
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements whose index along axis2 is that along axis1 plus an offset, along a new last axis.

    Args:
        a: an array.
        offset: the diagonal: 0 is the main one, positive ones are above it.
        axis1, axis2: two axes.

    Returns:
        An array with the diagonal as its last axis, in place of two.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: two equal axes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
        Array([1, 4], dtype=int32)
    """
    x = array_of(a, "diagonal")
    i, j = (canonical_axis(d, x.ndim, "diagonal") for d in (axis1, axis2))
    if i == j:
        raise ShapeError(f"diagonal: takes two different axes, but got {axis1} and {axis2}.")
    offset = integer_of("diagonal", "offset", offset)
    x = moveaxis(x, (i, j), (-2, -1))
    *outer, rows, columns = x.shape
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    if length == 0:
        return movement.reshape_to(movement.slice_axis(ravel(x), 0, 0, 0), (*outer, 0))
    # In row-major order the elements of a diagonal are columns + 1 apart.
    flat = movement.reshape_to(x, (*outer, rows * columns))
    start = max(offset, 0) + columns * max(-offset, 0)
    return movement.slice_axis(flat, len(outer), start, start + (length - 1) * (columns + 1) + 1, columns + 1)


@replayed
def diag(v: ArrayLike, k: int = 0) -> Array:
    """The k-th diagonal of a matrix, or the matrix that has a vector there.

    Args:
        v: a vector or a matrix.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        A vector or a matrix.

    Raises:
        ShapeError: an array of no or of more than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.diag(jnp.array([1, 2]))
        Array([[1, 0],
               [0, 2]], dtype=int32)
    """
    x = array_of(v, "diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag: takes a vector or a matrix, but got an array of shape {x.shape}.")
    k = integer_of("diag", "k", k)
    n = x.shape[0] + abs(k)
    checked_size("diag", Shape(element_type(x.dtype), (n, n)))
    column = movement.pad(x, constant(0, x.dtype), padding_config=((max(k, 0), max(-k, 0), 0),))
    grid = Shape(element_type(np.int32), (n, n))
    row = ops.add(movement.iota(shape=grid, iota_dimension=0), movement.full(k, np.int32, (n, n)))
    hit = ops.eq(row, movement.iota(shape=grid, iota_dimension=1))
    spread = movement.broadcast(column, sizes=(n, n), dimensions=(1,))
    return ops.select(hit, spread, movement.full(0, x.dtype, (n, n))).with_weak_type(x.weak_type)


@replayed
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """The matrix that has the flattened elements on its k-th diagonal.

    Args:
        v: an array.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.diagflat(jnp.array([[1, 2]]))
        Array([[1, 0],
               [0, 2]], dtype=int32)
    """
    return diag(ravel(v), k).with_weak_type(False)


@replayed
def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Array:
    """The sum of the elements on a diagonal; integers narrower than the default one are summed in that width.

    Args:
        a: an array.
        offset: the diagonal: 0 is the main one, positive ones are above it.
        axis1, axis2: two axes.
        dtype: the type to sum in, and of the result.
        out: must be None.

    Returns:
        An array without the two axes.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
        Array(5, dtype=int32)
    """
    refuse_out("trace", out)
    return total(diagonal(a, offset, axis1, axis2), -1, dtype)


@with_device
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """A matrix with ones on the k-th diagonal and zeros elsewhere, of N rows and M columns (N unless given).

    Args:
        N, M: the numbers of rows and columns.
        k: the diagonal: 0 is the main one, positive ones are above it.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A matrix.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.eye(2, 3, k=1)
        Array([[0., 1., 0.],
               [0., 0., 1.]], dtype=float32)
    """
    rows = integer_of("eye", "N", N)
    columns = rows if M is None else integer_of("eye", "M", M)
    found = default_float() if dtype is None else python_dtype(dtype)
    sizes = shape_of("eye", (rows, columns))
    offset = _diagonal("eye", k)
    if state.staging is not None or isinstance(offset, Array):
        return cast(_diagonal_mask(sizes, offset, "EQ"), found)
    checked_size("eye", Shape(element_type(found), sizes))
    try:
        return on_current_mesh(ConcreteArray(np.eye(rows, columns, max(-rows, min(offset, columns)), found)))
    except MemoryError:
        raise SizeError(f"eye: no memory can hold {rows} by {columns} elements; give it smaller sizes.") from None


@with_device
def identity(n: int, dtype: Any = None) -> Array:
    """The identity matrix.

    Args:
        n: the number of rows.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A matrix.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.identity(2)
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def _diagonal(what: str, k: Any) -> int | Array:
    """Which diagonal: an integer, which may be traced."""
    if isinstance(k, Tracer) and not k.ndim and element_type(k.dtype).is_integer:
        return k
    return integer_of(what, "k", k)


_LARGEST_SIZE = 1 << 30  # of a matrix whose sizes are not known


def _diagonal_mask(shape: tuple[int, ...], k: int | Array, direction: str) -> Any:
    """How the column compares with row + k, as booleans."""
    grid = Shape(element_type(np.int32), shape)
    if isinstance(k, Array):
        offset = movement.broadcast_in_dim(cast(arith.clip(k, -shape[0], shape[1]), np.dtype(np.int32)), shape, ())
    else:  # what is beyond is the same, and may not fit the integers
        low, high = (-_LARGEST_SIZE, _LARGEST_SIZE) if has_symbolic(shape) else (-shape[0], shape[1])
        offset = movement.full(max(low, min(k, high)), np.int32, shape)
    row = ops.add(movement.iota(shape=grid, iota_dimension=0), offset)
    column = movement.iota(shape=grid, iota_dimension=1)
    return ops.compare(column, row, direction=direction, type="SIGNED")


@replayed
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """A matrix with ones on and below the k-th diagonal and zeros above, of N rows and M columns (N unless given).

    Args:
        N, M: the numbers of rows and columns.
        k: the diagonal: 0 is the main one, positive ones are above it.
        dtype: the element type of the result; by default it follows from the other arguments.

    Returns:
        A matrix.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.tri(2, 3)
        Array([[1., 0., 0.],
               [1., 1., 0.]], dtype=float32)
    """
    rows = integer_of("tri", "N", N)
    columns = rows if M is None else integer_of("tri", "M", M)
    found = default_float() if dtype is None else python_dtype(dtype)
    return cast(_diagonal_mask(shape_of("tri", (rows, columns)), _diagonal("tri", k), "LE"), found)


def _triangle(name: str, m: ArrayLike, k: int, direction: str) -> Array:
    x = array_of(m, name)
    if x.ndim < 2:
        raise ShapeError(f"{name}: takes matrices, but got an array of shape {x.shape}.")
    mask = _diagonal_mask((x.shape[-2], x.shape[-1]), _diagonal(name, k), direction)
    spread = broadcast_to_shape(name, mask, x.shape)
    return ops.select(spread, x, movement.full(0, x.dtype, x.shape)).with_weak_type(x.weak_type)


@replayed
def tril(m: ArrayLike, k: int = 0) -> Array:
    """The lower triangles of matrices: the elements on and below the k-th diagonal, zeros above.

    Args:
        m: an array of at least two dimensions.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        An array of the same shape and type.

    Raises:
        ShapeError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.tril(jnp.ones((2, 2)))
        Array([[1., 0.],
               [1., 1.]], dtype=float32)
    """
    return _triangle("tril", m, k, "LE")


@replayed
def triu(m: ArrayLike, k: int = 0) -> Array:
    """The upper triangles of matrices: the elements on and above the k-th diagonal, zeros below.

    Args:
        m: an array of at least two dimensions.
        k: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        An array of the same shape and type.

    Raises:
        ShapeError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.triu(jnp.ones((2, 2)))
        Array([[1., 1.],
               [0., 1.]], dtype=float32)
    """
    return _triangle("triu", m, k, "GE")
