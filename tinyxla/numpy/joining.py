"""Arrays joined, and split into parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, ShapeError, SizeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    cast,
    integer_of,
    is_several,
    operand,
    promoted,
    python_dtype,
    refuse_out,
)
from tinyxla.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, expand_dims, ravel, squeeze
from tinyxla.numpy.operations import movement
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary


def _check_one_list(what: str, second: Any) -> None:
    """An error for arrays that are given one by one: the second stands where another argument is."""
    if isinstance(second, (Array, np.ndarray, list)) and getattr(second, "ndim", 1):
        raise ArgumentError(f"{what}: pass a list (or a tuple) of arrays, as {what}([a, b]), and not one by one.")


def concatenate(arrays: Sequence[ArrayLike] | Array, axis: int | None = 0, dtype: Any = None) -> Array:
    """Arrays one after another along an axis (flattened if None).

    Args:
        arrays: arrays.
        axis: the axis; None for flattened arrays.
        dtype: the element type of the result; the common type of the arrays by default.

    Returns:
        An array.

    Raises:
        ArgumentError: no arrays.
        ShapeError: arrays of different ranks, or of different sizes outside of the axis.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.concatenate([jnp.zeros(2), jnp.ones(1)])
        Array([0., 0., 1.], dtype=float32)
    """
    if type(axis) is not int:
        _check_one_list("concatenate", axis)
    parts = _parts("concatenate", arrays, dtype)
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    rank = parts[0].ndim
    for x in parts:
        if x.ndim != rank:
            raise ShapeError(f"concatenate: arrays have {rank} and {x.ndim} dimensions; reshape them to equally many.")
    if rank == 0:
        raise ShapeError(
            "concatenate: arrays without dimensions have no axis to join along; use stack, or put the arrays into a "
            "list."
        )
    along = canonical_axis(axis, rank, "concatenate")
    for x in parts:
        if x.shape[:along] + x.shape[along + 1 :] != parts[0].shape[:along] + parts[0].shape[along + 1 :]:
            raise ShapeError(f"concatenate: shapes {parts[0].shape} and {x.shape} differ outside axis {along}.")
    return parts[0] if len(parts) == 1 else movement.concatenate(*parts, dimension=along)


concat = concatenate


def _parts(what: str, arrays: Any, dtype: Any) -> list[Array]:
    """The arrays of a sequence, of one type."""
    sequence = list(arrays) if is_several(arrays) and not isinstance(arrays, (str, bytes)) else None
    if not sequence:
        raise ArgumentError(f"{what}: takes a sequence of at least one array, but got {arrays!r}.")
    if dtype is not None:
        return [cast(operand(x, what), python_dtype(dtype), False) for x in sequence]
    if all(isinstance(x, (Array, np.ndarray)) for x in sequence):
        found, (_, weak) = promoted(what, *sequence)
        return [x.with_weak_type(weak) for x in found]
    found, _ = promoted(what, *(array_of(x, what) for x in sequence))
    return found


@replayed
def stack(arrays: Sequence[ArrayLike] | Array, axis: int = 0, out: None = None, dtype: Any = None) -> Array:
    """Arrays of one shape along a new axis.

    Args:
        arrays: arrays.
        axis: the position of the new axis.
        out: must be None.
        dtype: the element type of the result; the common type of the arrays by default.

    Returns:
        An array with one dimension more, of the type to which theirs are promoted, or `dtype`.

    Raises:
        ShapeError: different shapes.
        ArgumentError: no arrays.
        AxisError: an axis that the result does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])])
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    refuse_out("stack", out)
    _check_one_list("stack", axis)
    parts = _parts("stack", arrays, dtype)
    for x in parts:
        if x.shape != parts[0].shape:
            raise ShapeError(f"stack: the arrays have one shape, but got {parts[0].shape} and {x.shape}.")
    along = canonical_axis(axis, parts[0].ndim + 1, "stack")
    return concatenate([expand_dims(x, along) for x in parts], along)


@replayed
def hstack(tup: Sequence[ArrayLike] | Array, dtype: Any = None) -> Array:
    """Arrays side by side: along axis 1, or 0 for arrays of one dimension.

    Args:
        tup: arrays.
        dtype: the element type of the result; the common type of the arrays by default.

    Returns:
        An array.

    Raises:
        ShapeError: shapes that differ outside of the axis.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.hstack([jnp.array([1, 2]), jnp.array([3])])
        Array([1, 2, 3], dtype=int32)
    """
    _check_one_list("hstack", dtype)
    parts = [atleast_1d(x) for x in _parts("hstack", tup, dtype)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1)


@replayed
def vstack(tup: Sequence[ArrayLike] | Array, dtype: Any = None) -> Array:
    """Arrays as rows below each other.

    Args:
        tup: arrays.
        dtype: the element type of the result; the common type of the arrays by default.

    Returns:
        An array of at least two dimensions.

    Raises:
        ShapeError: shapes that differ outside of the axis.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.vstack([jnp.array([1, 2]), jnp.array([3, 4])])
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    _check_one_list("vstack", dtype)
    return concatenate([atleast_2d(x) for x in _parts("vstack", tup, dtype)], 0)


@replayed
def dstack(tup: Sequence[ArrayLike] | Array, dtype: Any = None) -> Array:
    """Arrays behind each other, along axis 2.

    Args:
        tup: arrays.
        dtype: the element type of the result; the common type of the arrays by default.

    Returns:
        An array of at least three dimensions.

    Raises:
        ShapeError: shapes that differ outside of the axis.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.dstack([jnp.array([1, 2]), jnp.array([3, 4])])
        Array([[[1, 3],
                [2, 4]]], dtype=int32)
    """
    _check_one_list("dstack", dtype)
    return concatenate([atleast_3d(x) for x in _parts("dstack", tup, dtype)], 2)


@replayed
def column_stack(tup: Sequence[ArrayLike] | Array) -> Array:
    """Arrays of one dimension as columns, others side by side.

    Args:
        tup: arrays.

    Returns:
        A matrix.

    Raises:
        ShapeError: different numbers of rows.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([3, 4])])
        Array([[1, 3],
               [2, 4]], dtype=int32)
    """
    parts = _parts("column_stack", tup, None)
    return concatenate([x if x.ndim >= 2 else movement.reshape_to(x, (x.size, 1)) for x in parts], 1)


@replayed
def block(arrays: Any) -> Array:
    """An array of blocks, given as nested lists: the innermost are joined along the last axis.

    Args:
        arrays: nested lists of arrays.

    Returns:
        An array.

    Raises:
        ShapeError: blocks that do not fit side by side.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))]])
        Array([[1., 0., 0.]], dtype=float32)
    """

    def depth(value: Any) -> int:
        return 1 + max(map(depth, value)) if isinstance(value, list) else 0

    def join(value: Any, level: int, rank: int) -> Array:
        if not isinstance(value, list):
            x = array_of(value, "block")
            return movement.reshape_to(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([join(v, level - 1, rank) for v in value], -level)

    def rank_of(value: Any) -> int:
        return max(map(rank_of, value)) if isinstance(value, list) else array_of(value, "block").ndim

    levels = depth(arrays)
    return join(arrays, levels, max(levels, rank_of(arrays)))


_MAX_SECTIONS = 1 << 24  # each is an array of its own


def _whole(what: str, number: Any) -> Any:
    """The value of an argument that is a traced number, or of a float without a fraction."""
    if not isinstance(number, Array) or number.ndim:
        return number
    value = number.primal(f"{what}, whose result's shape depends on this argument,").buffer().item()
    return int(value) if value == value // 1 else value


def _divided(what: str, ary: ArrayLike, sections: Any, axis: int, equal: bool) -> list[Array]:
    x = array_of(ary, what)
    along = canonical_axis(axis, x.ndim, what)
    length = x.shape[along]
    if is_several(sections):
        given = [integer_of(what, "an index", _whole(what, k)) for k in sections]
        bounds = [0, *(min(max(k + length if k < 0 else k, 0), length) for k in given), length]
    else:
        count = integer_of(what, "the number of sections", _whole(what, sections))
        if count < 1 or (equal and length % count):
            raise ShapeError(f"{what}: axis {along} of size {length} does not divide into {count} equal sections.")
        if count > _MAX_SECTIONS:
            raise SizeError(f"{what}: the number of sections must be at most {_MAX_SECTIONS}, but got {count}.")
        small, rest = divmod(length, count)
        bounds = [k * small + min(k, rest) for k in range(count + 1)]
    return [movement.slice_axis(x, along, start, max(start, limit)) for start, limit in pairwise(bounds)]


@replayed
def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Parts of an array along an axis: so many equal ones, or cut before these indices.

    Args:
        ary: an array.
        indices_or_sections: the number of equal parts, or the indices before which to cut.
        axis: the axis; negative ones count from the end.

    Returns:
        A list of arrays.

    Raises:
        ShapeError: a number of parts that does not divide the axis; `array_split` takes it.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.split(jnp.arange(4), 2)
        [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    return _divided("split", ary, indices_or_sections, axis, True)


@replayed
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """As `split`, but the first parts may be one longer.

    Args:
        ary: an array.
        indices_or_sections: the number of equal parts, or the indices before which to cut.
        axis: the axis; negative ones count from the end.

    Returns:
        A list of arrays.

    Raises:
        ShapeError: no parts.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.array_split(jnp.arange(5), 2)
        [Array([0, 1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _divided("array_split", ary, indices_or_sections, axis, False)


@replayed
def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Parts along axis 1, or 0 for an array of one dimension.

    Args:
        ary: an array.
        indices_or_sections: the number of equal parts, or the indices before which to cut.

    Returns:
        A list of arrays.

    Raises:
        ShapeError: a number of parts that does not divide the axis.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.hsplit(jnp.array([1, 2, 3, 4]), 2)
        [Array([1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    x = array_of(ary, "hsplit")
    return _divided("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1, True)


@replayed
def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Parts along axis 0.

    Args:
        ary: an array.
        indices_or_sections: the number of equal parts, or the indices before which to cut.

    Returns:
        A list of arrays.

    Raises:
        ShapeError: a number of parts that does not divide the axis.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> [part.shape for part in jnp.vsplit(jnp.ones((4, 2)), 2)]
        [(2, 2), (2, 2)]
    """
    return _divided("vsplit", ary, indices_or_sections, 0, True)


@replayed
def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Parts along axis 2.

    Args:
        ary: an array.
        indices_or_sections: the number of equal parts, or the indices before which to cut.

    Returns:
        A list of arrays.

    Raises:
        ShapeError: a number of parts that does not divide the axis.
        AxisError: an array of fewer than three dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> [part.shape for part in jnp.dsplit(jnp.ones((1, 2, 4)), 2)]
        [(1, 2, 2), (1, 2, 2)]
    """
    return _divided("dsplit", ary, indices_or_sections, 2, True)


@boundary
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis, without it.

    Args:
        x: an array.
        axis: the axis; negative ones count from the end.

    Returns:
        As many arrays as the size of the axis.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]))
        (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = array_of(x, "unstack")
    along = canonical_axis(axis, x.ndim, "unstack")
    return tuple(squeeze(movement.slice_axis(x, along, k, k + 1), along) for k in range(x.shape[along]))


@replayed
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Two arrays one after the other; flattened if no axis is given.

    Args:
        arr: an array.
        values: an array.
        axis: the axis; None for flattened arrays.

    Returns:
        An array.

    Raises:
        ShapeError: shapes that differ outside of the axis.
        AxisError: an axis that the arrays do not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.append(jnp.array([1, 2]), jnp.array([3]))
        Array([1, 2, 3], dtype=int32)
    """
    return concatenate([arr, values], axis)
