"""Functions that move elements: shapes, axes, repeating, reversing, rolling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    along_axis,
    array_of,
    broadcast_shapes as common_shape,
    broadcast_to_shape,
    canonical_axes,
    cast,
    check_memory,
    choice_of,
    constant,
    explicitly_broadcasted,
    integer_of,
    is_several,
    listed,
    named,
    operand,
    several_of,
    shape_of,
)
from tinyxla.numpy.creation import zeros
from tinyxla.numpy.indexing.indexed import Update, read
from tinyxla.numpy.operations import movement, slices
from tinyxla.numpy.reductions import cumsum
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import config
from tinyxla.util.tracebacks import boundary

# --- shape ------------------------------------------------------------------------------------------------------------


def reshape(a: ArrayLike, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Array:
    """The elements in another shape; one size may be -1, which means what remains.

    `order="F"` takes and puts the elements with the first index varying fastest.

    Args:
        a: an array.
        shape: the sizes of the result.
        order: "C" or "F".
        copy: accepted for compatibility.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the same elements; one of NumPy's for one of NumPy's, if the option `reshape_operands` is "defer".

    Raises:
        ShapeError: a shape for another number of elements, or with several -1.
        ArgumentError: an unknown order.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.reshape(jnp.arange(4), (2, -1))
        Array([[0, 1],
               [2, 3]], dtype=int32)
    """
    if isinstance(a, np.ndarray | np.generic) and config.reshape_operands == "defer" and out_sharding is None:
        return a.reshape(shape, order=order)  # type: ignore[return-value,call-overload]
    x = array_of(a, "reshape")
    if out_sharding is not None:
        return placed_result("reshape: out_sharding", lambda: reshape(a, shape, order, copy=copy), out_sharding)
    if not is_several(shape):
        shape = (shape,)
    sizes = [integer_of("reshape", "a size", n) for n in shape]
    if sizes.count(-1) > 1 or any(n < -1 for n in sizes):
        raise ShapeError(f"reshape: at most one size is -1 and none is below, but got {tuple(sizes)}.")
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        if known == 0 or x.size % known:
            raise ShapeError(f"reshape: {x.size} elements of an array of shape {x.shape} do not fit {tuple(sizes)}.")
        sizes[sizes.index(-1)] = x.size // known
    if math.prod(sizes) != x.size:
        raise ShapeError(
            f"reshape: an array of shape {x.shape} has {x.size} elements, but {tuple(sizes)} takes {math.prod(sizes)}."
        )
    if type(order) is str and order == "C":  # as nearly always
        return movement.reshape_to(x, tuple(sizes))
    choice_of("reshape", "order", order, ("C", "F", "A", "K"))
    if order == "F":
        return transpose(movement.reshape_to(transpose(x), tuple(reversed(sizes))))
    return movement.reshape_to(x, tuple(sizes))


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Any = None) -> Array:
    """The elements in one dimension: row-major, or with the first index varying fastest if `order="F"`.

    Args:
        a: an array.
        order: "C" or "F".
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A vector.

    Raises:
        ArgumentError: an unknown order.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]))
        Array([1, 2, 3, 4], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result("ravel: out_sharding", lambda: ravel(a, order), out_sharding)
    x = array_of(a, "ravel")
    made = reshape(x, (x.size,), order)
    return made.copy() if made is x else made


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The sizes of the dimensions: none of a number, and of None, as in NumPy.

    Args:
        a: an array.

    Returns:
        A tuple of integers.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.shape(jnp.ones((2, 3)))
        (2, 3)
    """
    return () if a is None else _sizes("shape", a)


def ndim(a: ArrayLike) -> int:
    """The number of dimensions.

    Args:
        a: an array.

    Returns:
        An integer.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ndim(jnp.ones((2, 3)))
        2
    """
    return len(_sizes("ndim", a))


def size(a: ArrayLike, axis: int | Sequence[int] | None = None) -> int:
    """The number of elements, or the product of the sizes of axes.

    Args:
        a: an array.
        axis: an axis, or several; all if None.

    Returns:
        An integer.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.size(jnp.ones((2, 3)))
        6
    """
    sizes = _sizes("size", a)
    return math.prod(sizes[d] for d in canonical_axes("size", axis, len(sizes)))


def _sizes(what: str, a: Any) -> tuple[int, ...]:
    """The shape of an array, a number or a list, or of a description such as a `ShapeDtypeStruct`."""
    return a.shape if hasattr(a, "shape") and hasattr(a, "dtype") else listed(a, what).shape


@boundary
def transpose(a: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The axes in another order: that of `axes`, or reversed.

    Args:
        a: an array.
        axes: a permutation of the axes; reversed if None.

    Returns:
        An array of the same elements.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.permute_dims(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    x = array_of(a, "transpose")
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = tuple(canonical_axis(d, x.ndim, "transpose") for d in (axes if is_several(axes) else (axes,)))
        if sorted(order) != list(range(x.ndim)):
            raise ShapeError(f"transpose: axes {order} is no order of the {x.ndim} axes of an array {x.shape}.")
    return movement.transpose_to(x, order)


permute_dims = transpose


def matrix_transpose(x: ArrayLike, /) -> Array:
    """The last two axes exchanged.

    Args:
        x: an array.

    Returns:
        An array of the same elements.

    Raises:
        ShapeError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.matrix_transpose(jnp.array([[1, 2], [3, 4]]))
        Array([[1, 3],
               [2, 4]], dtype=int32)
    """
    x = array_of(x, "matrix_transpose")
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: takes matrices, but got an array of shape {x.shape}.")
    return swapaxes(x, -1, -2)


@boundary
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes exchanged.

    Args:
        a: an array.
        axis1, axis2: two axes.

    Returns:
        An array of the same elements.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.swapaxes(jnp.ones((2, 3, 4)), 0, 2).shape
        (4, 3, 2)
    """
    x = array_of(a, "swapaxes")
    order = list(range(x.ndim))
    i, j = (canonical_axis(d, x.ndim, "swapaxes") for d in (axis1, axis2))
    order[i], order[j] = j, i
    return movement.transpose_to(x, tuple(order))


@boundary
def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Axes moved to other places; the others keep their order.

    Args:
        a: an array.
        source: an axis, or several.
        destination: their positions in the result.

    Returns:
        An array of the same elements.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: axes that are there twice, or not as many sources as destinations.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = array_of(a, "moveaxis")
    given, wanted = (
        [canonical_axis(d, x.ndim, "moveaxis") for d in (axes if is_several(axes) else (axes,))]
        for axes in (source, destination)
    )
    if len(given) != len(wanted) or len(set(given)) != len(given) or len(set(wanted)) != len(wanted):
        raise ShapeError(f"moveaxis: source {source} and destination {destination} pair distinct axes.")
    order = [d for d in range(x.ndim) if d not in given]
    for to, d in sorted(zip(wanted, given, strict=True)):
        order.insert(to, d)
    return movement.transpose_to(x, tuple(order))


@boundary
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """An axis moved before another; `moveaxis` says it more clearly.

    Args:
        a: an array.
        axis: the axis; negative ones count from the end.
        start: the position before which the axis is moved.

    Returns:
        An array of the same elements.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
        (4, 2, 3)
    """
    x = array_of(a, "rollaxis")
    axis = canonical_axis(axis, x.ndim, "rollaxis")
    start = integer_of("rollaxis", "start", start)
    if not -x.ndim <= start <= x.ndim:
        raise ShapeError(f"rollaxis: start must be from {-x.ndim} to {x.ndim}, but got {start}.")
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - (start > axis))


def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> Array:
    """New axes of size 1, at these places of the result.

    Args:
        a: an array.
        axis: a position, or several.

    Returns:
        An array of the same elements.

    Raises:
        AxisError: a place that the result does not have.
        ShapeError: one that is there twice.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.expand_dims(jnp.array([1, 2]), 1)
        Array([[1],
               [2]], dtype=int32)
    """
    x = array_of(a, "expand_dims")
    wanted: Any = tuple(axis) if is_several(axis) else (axis,)
    axes = canonical_axes("expand_dims", wanted, x.ndim + len(wanted))
    rest = iter(x.shape)
    sizes = tuple(1 if d in axes else next(rest) for d in range(x.ndim + len(axes)))
    return movement.reshape_to(x, sizes)


def squeeze(a: ArrayLike, axis: Axis = None) -> Array:
    """Without axes of size 1: all of them, or those named.

    Args:
        a: an array.
        axis: an axis, or several; all of size 1 if None.

    Returns:
        An array of the same elements.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: an axis whose size is not 1.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.squeeze(jnp.array([[1], [2]]), axis=1)
        Array([1, 2], dtype=int32)
    """
    x = array_of(a, "squeeze")
    axes = (
        tuple(d for d, n in enumerate(x.shape) if n == 1) if axis is None else canonical_axes("squeeze", axis, x.ndim)
    )
    for d in axes:
        if x.shape[d] != 1:
            raise ShapeError(f"squeeze: axis {d} of an array of shape {x.shape} has size {x.shape[d]}, not 1.")
    return movement.reshape_to(x, tuple(n for d, n in enumerate(x.shape) if d not in axes))


def broadcast_to(array: ArrayLike, shape: Any, *, out_sharding: Any = None) -> Array:
    """The array broadcast to a shape: axes of size 1 repeat, and new ones come in front.

    Args:
        array: an array.
        shape: the sizes of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of this shape.

    Raises:
        ShapeError: a shape to which the array does not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.broadcast_to(jnp.array([1, 2]), (2, 2))
        Array([[1, 2],
               [1, 2]], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result("broadcast_to: out_sharding", lambda: broadcast_to(array, shape), out_sharding)
    return broadcast_to_shape("broadcast_to", array_of(array, "broadcast_to"), shape_of("broadcast_to", shape))


def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arrays broadcast to their common shape.

    Args:
        *args: arrays.

    Returns:
        As many arrays of one shape.

    Raises:
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.broadcast_arrays(jnp.array([1, 2]), jnp.array([[5], [6]]))[1]
        Array([[5, 5],
               [6, 6]], dtype=int32)
    """
    arrays = [array_of(x, "broadcast_arrays") for x in args]
    return explicitly_broadcasted("broadcast_arrays", arrays) if args else []


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The common shape of arrays of these shapes.

    Args:
        *shapes: tuples of sizes.

    Returns:
        A shape.

    Raises:
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.broadcast_shapes((3, 1), (4,))
        (3, 4)
    """
    return common_shape("broadcast_shapes", *(shape_of("broadcast_shapes", s) for s in shapes))


def _at_least(what: str, extend: Callable[[Array], tuple[int, ...]]) -> Any:
    def apply(*arys: ArrayLike) -> Any:
        arrays = [array_of(x, what) for x in arys]
        found = [movement.reshape_to(x, extend(x)) for x in arrays]
        return found[0] if len(found) == 1 else found

    text = f"""The arrays with at least {what[-2]} dimensions.

    Args:
        *arys: arrays.

    Returns:
        An array, or a list of them for several.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.{what}(3.0).ndim
        {what[-2]}
    """
    return named(apply, what, text)


atleast_1d = _at_least("atleast_1d", lambda x: x.shape or (1,))
atleast_2d = _at_least("atleast_2d", lambda x: (1,) * (2 - x.ndim) + x.shape)
atleast_3d = _at_least("atleast_3d", lambda x: (*(1,) * (2 - x.ndim), *x.shape, *(1,) * (x.ndim < 3)))


# --- repeating, reversing, rolling ------------------------------------------------------------------------------------


@replayed
def tile(A: ArrayLike, reps: int | Sequence[int]) -> Array:
    """The array repeated as a whole, so many times along each axis.

    Args:
        A: an array.
        reps: the counts, for the last axes; further ones make new axes in front.

    Returns:
        An array.

    Raises:
        ShapeError: a negative count.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.tile(jnp.array([1, 2]), 2)
        Array([1, 2, 1, 2], dtype=int32)
    """
    x = array_of(A, "tile")
    counts = [integer_of("tile", "a count", n) for n in (reps if is_several(reps) else (reps,))]
    if any(n < 0 for n in counts):
        raise ShapeError(f"tile: counts are not negative, but got {tuple(counts)}.")
    rank = max(x.ndim, len(counts))
    sizes = (1,) * (rank - x.ndim) + x.shape
    counts = [1] * (rank - len(counts)) + counts
    spread = [n for pair in zip(counts, sizes, strict=True) for n in pair]
    wide = movement.broadcast(
        movement.reshape_to(x, sizes), sizes=tuple(spread), dimensions=tuple(range(1, 2 * rank, 2))
    )
    return movement.reshape_to(wide, tuple(c * n for c, n in zip(counts, sizes, strict=True)))


@replayed
def repeat(
    a: ArrayLike,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: None = None,
) -> Array:
    """Each element (or each slice along an axis) several times.

    Args:
        a: an array.
        repeats: one count, or one for each element.
        axis: along which; None flattens the array.
        total_repeat_length: the size of the result along the axis, which compiled functions need if counts are traced.
            What is beyond is cut off, and the last element repeats where some lack.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the type of a.

    Raises:
        ShapeError: another number of counts, or a negative one.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.repeat(jnp.array([1, 2]), 2)
        Array([1, 1, 2, 2], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result(
            "repeat: out_sharding",
            lambda: repeat(a, repeats, axis, total_repeat_length=total_repeat_length),
            out_sharding,
        )
    x = array_of(a, "repeat")
    if not x.ndim:
        x = movement.reshape_to(x, (1,))
    x, along = along_axis("repeat", x, axis)
    if isinstance(repeats, int) and repeats >= 1 << 31:
        check_memory("repeat", (repeats, *x.shape))
    given = listed(repeats, "repeat")
    if given.size and element_type(given.dtype).is_inexact:
        raise DTypeError(f"repeat: counts must be integers, but are of {given.dtype.name}; convert them.")
    if given.ndim > 1 or given.size not in (1, x.shape[along]):
        raise ShapeError(f"repeat: {given.size} counts do not fit axis {along} of size {x.shape[along]}.")
    if total_repeat_length is not None:
        return _repeated_to(x, along, given, integer_of("repeat", "total_repeat_length", total_repeat_length))
    counts = np.asarray(given.concrete("repeat, whose result's shape depends on this argument,").buffer())
    if (counts < 0).any():
        raise ShapeError("repeat: counts are not negative.")
    if counts.size == 1:
        count = int(counts.reshape(()))
        spread = (*x.shape[: along + 1], count, *x.shape[along + 1 :])
        wide = movement.broadcast(x, sizes=spread, dimensions=tuple(d for d in range(x.ndim + 1) if d != along + 1))
        sizes = (*x.shape[:along], x.shape[along] * count, *x.shape[along + 1 :])
        return movement.reshape_to(wide, sizes)
    return rows_at(x, along, np.repeat(np.arange(x.shape[along]), counts))


def _repeated_to(x: Any, along: int, counts: Any, length: int) -> Any:
    """As many slices as asked for, whatever the counts, which need not be known: the last one fills what is missing."""
    dtype = np.dtype(np.int32)
    each = broadcast_to_shape("repeat", cast(counts, dtype), (x.shape[along],))
    starts = cumsum(each) - each
    begins = Update(movement.full(0, dtype, (length,)), starts).add(1, mode="drop")
    return read(x, (slice(None),) * along + (cumsum(begins) - 1,), "clip", None)


def rows_at(x: Any, along: int, chosen: np.ndarray[Any, Any]) -> Any:
    """Slices along an axis at static places: runs of neighbours are taken together, up or down, and so is what is
    repeated."""
    if chosen.size == 0:
        return movement.slice_axis(x, along, 0, 0)
    parts = [_run_of_rows(x, along, *run) for run in _runs(chosen)]
    return parts[0] if len(parts) == 1 else movement.concatenate(*parts, dimension=along)


def _runs(chosen: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    """The first place of each run, how many there are, and how far apart: runs that go up are as long as can be, what
    is left between them goes down or stays."""
    runs: list[tuple[int, int, int]] = []
    for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
        place, count = int(run[0]), len(run)
        if count == 1 and runs:
            first, many, step = runs[-1]
            apart = place - (first + (many - 1) * step)
            if apart in (0, -1) and (many == 1 or apart == step):
                runs[-1] = (first, many + 1, apart)
                continue
        runs.append((place, count, 1))
    return runs


def _run_of_rows(x: Any, along: int, first: int, count: int, step: int) -> Any:
    if step > 0:
        return movement.slice_axis(x, along, first, first + count)
    if step < 0:
        return movement.reverse(movement.slice_axis(x, along, first - count + 1, first + 1), dimensions=(along,))
    others = (*x.shape[:along], *x.shape[along + 1 :])
    row = movement.reshape_to(movement.slice_axis(x, along, first, first + 1), others)
    sizes = (*x.shape[:along], count, *x.shape[along + 1 :])
    return movement.broadcast(row, sizes=sizes, dimensions=tuple(d for d in range(len(sizes)) if d != along))


@boundary
def flip(m: ArrayLike, axis: Axis = None) -> Array:
    """The elements in reverse order along axes (all if None).

    Args:
        m: an array.
        axis: an axis, or several; all if None.

    Returns:
        An array of the shape and type of m.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=0)
        Array([[3, 4],
               [1, 2]], dtype=int32)
    """
    x = array_of(m, "flip")
    axes = canonical_axes("flip", axis, x.ndim)
    return movement.reverse(x, dimensions=axes) if axes else x


@replayed
def flipud(m: ArrayLike) -> Array:
    """The rows in reverse order.

    Args:
        m: an array.

    Returns:
        An array of the shape and type of m.

    Raises:
        AxisError: an array without dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.flipud(jnp.array([[1, 2], [3, 4]]))
        Array([[3, 4],
               [1, 2]], dtype=int32)
    """
    return flip(m, 0)


@replayed
def fliplr(m: ArrayLike) -> Array:
    """The columns in reverse order.

    Args:
        m: an array.

    Returns:
        An array of the shape and type of m.

    Raises:
        AxisError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fliplr(jnp.array([[1, 2], [3, 4]]))
        Array([[2, 1],
               [4, 3]], dtype=int32)
    """
    return flip(m, 1)


@replayed
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Turned k times by 90 degrees, from the first axis towards the second.

    Args:
        m: an array.
        k: the number of quarter turns.
        axes: the two axes of the plane.

    Returns:
        An array of the same elements.

    Raises:
        ShapeError: two equal axes.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
        Array([[2, 4],
               [1, 3]], dtype=int32)
    """
    x = array_of(m, "rot90")
    first, second = (canonical_axis(d, x.ndim, "rot90") for d in several_of("rot90", "axes", axes, 2))
    if first == second:
        raise ShapeError(f"rot90: takes two different axes, but got {axes}.")
    turns = integer_of("rot90", "k", k) % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (first, second))
    return swapaxes(flip(x, second), first, second) if turns == 1 else flip(swapaxes(x, first, second), second)


@replayed
def roll(a: ArrayLike, shift: Any, axis: Axis = None) -> Array:
    """The elements moved by `shift` along axes; what leaves at the end comes in at the start.

    Shifts are integers, one or as many as the axes; they may be traced.

    Args:
        a: an array.
        shift: an integer, or one for each axis.
        axis: an axis, or several; None for the flattened array.

    Returns:
        An array of the shape and type of a.

    Raises:
        AxisError: an axis that the array does not have.
        ArgumentError: a shift that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.roll(jnp.array([1, 2, 3]), 1)
        Array([3, 1, 2], dtype=int32)
    """
    x = array_of(a, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = [canonical_axis(d, x.ndim, "roll") for d in (axis if is_several(axis) else (axis,))]
    shift = operand(shift, "roll") if hasattr(shift, "__jax_array__") else shift
    shifts = list(shift) if is_several(shift) else [shift]
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ShapeError(f"roll: {len(shifts)} shifts do not fit {len(axes)} axes.")
    if not axes or not shifts or not x.size:
        return x
    count = max(len(axes), len(shifts))
    for along, by in zip(axes * (count // len(axes)), shifts * (count // len(shifts)), strict=True):
        if isinstance(by, Array):
            x = _rolled_by_array(x, along, by)
        else:
            x = _rolled(x, along, integer_of("roll", "a shift", by))
    return x


def _rolled(x: Any, along: int, by: int) -> Any:
    length = x.shape[along]
    if by % length == 0:
        return x
    cut = length - by % length
    parts = movement.slice_axis(x, along, cut, length), movement.slice_axis(x, along, 0, cut)
    return movement.concatenate(*parts, dimension=along)


def _rolled_by_array(x: Any, along: int, by: Array) -> Any:
    """The part that starts at the new first element, of two copies one after the other."""
    if by.ndim or not element_type(by.dtype).is_integer:
        raise ArgumentError(f"roll: a shift must be an integer, but got {Shape.of(by)}.")
    first = -cast(by, np.dtype(np.int32)) % x.shape[along]
    twice = movement.concatenate(x, x, dimension=along)
    starts = [first if d == along else constant(0, first.dtype) for d in range(x.ndim)]
    return slices.dynamic_slice(twice, *starts, dynamic_slice_sizes=x.shape)


@boundary
def resize(a: ArrayLike, new_shape: Any) -> Array:
    """The elements in another shape, repeated from the start as often as needed.

    Args:
        a: an array.
        new_shape: the sizes of the result.

    Returns:
        An array of this shape.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.resize(jnp.array([1, 2, 3]), (2, 2))
        Array([[1, 2],
               [3, 1]], dtype=int32)
    """
    flat = ravel(a)
    shape = shape_of("resize", new_shape)
    count = math.prod(shape)
    if flat.size == 0 or count == 0:
        return zeros(shape, flat.dtype)
    times = -(-count // flat.size)
    wide = ravel(broadcast_to(flat, (times, flat.size)))
    return movement.reshape_to(movement.slice_axis(wide, 0, 0, count), shape)
