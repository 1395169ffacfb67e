"""Slices at computed places: dynamic slices, gather and scatter.

Source of the semantics: sections "DynamicSlice", "DynamicUpdateSlice", "Gather" and "Scatter" of the XLA documents. As
in `jax.lax`, negative start indices of dynamic slices count from the end, and index vectors are the last dimension.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.lax.elementwise import clamp
from tinyxla.lax.movement import reshape, squeeze
from tinyxla.lax.operands import ArrayLike, described, of_one_type
from tinyxla.lax.reductions import scalar_function
from tinyxla.numpy.arguments import (
    array_of,
    cast,
    constant,
    function_of,
    integer_of,
    integers_of,
    named,
    several_of,
    shape_of,
    shown,
    with_flags,
)
from tinyxla.numpy.elementwise import arithmetic
from tinyxla.ops import dynamic_slices, elementwise, indexing as ops, movement, reduction
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import config

Sizes = Sequence[int]

# --- dynamic slices ---------------------------------------------------------------------------------------------------


def _starts(what: str, x: Array, start_indices: Any, allow_negative: bool | Sequence[bool]) -> list[Any]:
    """One scalar for each dimension; negative ones counted from the end."""
    if isinstance(start_indices, Array | np.ndarray):
        vector = array_of(start_indices, what)
        if vector.ndim != 1:
            raise ShapeError(f"{what}: start indices are scalars or one vector, but got {described([vector])}.")
        given: list[Any] = list(vector)
    else:
        given = several_of(what, "start_indices", start_indices)
    if len(given) != x.ndim:
        raise ShapeError(f"{what}: {described([x])} takes {x.ndim} start indices, but got {len(given)}.")
    negative: list[Any] = [allow_negative] * x.ndim
    if not isinstance(allow_negative, bool):
        negative = several_of(what, "allow_negative_indices", allow_negative, x.ndim)
    scalars = [_start(what, s, n, wraps) for s, n, wraps in zip(given, x.shape, negative, strict=True)]
    if len({s.dtype for s in scalars}) > 1:  # XLA takes start indices of one type
        scalars = [cast(s, np.dtype(np.int64)) for s in scalars]
    return scalars


def _start(what: str, start: Any, size: int, wraps: bool) -> Any:
    if isinstance(start, int):
        place = start + size if wraps and start < 0 else start
        return constant(min(max(place, 0), size), np.int32)
    index = array_of(start, what)
    if not element_type(index.dtype).is_integer or index.ndim:
        raise DTypeError(f"{what}: a start index is an integer scalar, but got {described([index])}.")
    if element_type(index.dtype).bits < 32:  # which may not hold the size
        index = cast(index, np.dtype(np.int32))
    if not wraps or element_type(index.dtype).kind == "unsigned":
        return index
    before = elementwise.lt(index, elementwise.zeros_like(index))
    return elementwise.select(before, elementwise.add(index, constant(size, index.dtype)), index)


def dynamic_slice(
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    slice_sizes: Sizes,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A slice of given sizes that starts at computed indices. One that would reach outside is moved inside.

    Args:
        operand: an array.
        start_indices: an integer for each dimension, or a vector of them; they may be traced.
        slice_sizes: the sizes of the result, which are not traced.
        allow_negative_indices: whether negative indices count from the end, in all dimensions or in each; else they
            are 0.

    Returns:
        An array of the shape `slice_sizes` and of the operand's type.

    Raises:
        ShapeError: sizes larger than the array, or another number of sizes or indices than dimensions.
        DTypeError: indices that are no integers.

    >>> import numpy as np
    >>> from tinyxla.lax import dynamic_slice
    >>> dynamic_slice(np.arange(5), (3,), (3,))
    Array([2, 3, 4], dtype=int32)
    """
    what = "lax.dynamic_slice"
    x = array_of(operand, what)
    starts = _starts(what, x, start_indices, allow_negative_indices)
    taken = dynamic_slices.dynamic_slice(x, *starts, dynamic_slice_sizes=shape_of(what, slice_sizes))
    return taken.with_weak_type(x.weak_type)


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The array with the slice that starts at computed indices replaced. One that would reach outside is moved inside.

    Args:
        operand: an array.
        update: the new elements, of the operand's type and rank.
        start_indices: an integer for each dimension, or a vector of them; they may be traced.
        allow_negative_indices: as for `dynamic_slice`.

    Returns:
        An array of the operand's shape and type.

    Raises:
        ShapeError: an update that is larger than the array, or of another rank.
        DTypeError: different element types, or indices that are no integers.

    >>> import numpy as np
    >>> from tinyxla.lax import dynamic_update_slice
    >>> dynamic_update_slice(np.zeros(4), np.ones(2), (1,))
    Array([0., 1., 1., 0.], dtype=float32)
    """
    what = "lax.dynamic_update_slice"
    x, new = of_one_type(what, operand, update)
    return dynamic_slices.dynamic_update_slice(x, new, *_starts(what, x, start_indices, allow_negative_indices))


def _in_dim(what: str, x: Array, start: ArrayLike, axis: int) -> tuple[int, list[Any]]:
    d = canonical_axis(axis, x.ndim, what)
    return d, [start if k == d else 0 for k in range(x.ndim)]


def dynamic_slice_in_dim(
    operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Array:
    """A slice of one dimension that starts at a computed index. One that would reach outside is moved inside.

    Args:
        operand: an array.
        start_index: an integer, which may be traced.
        slice_size: the size of the result along the dimension, which is not traced.
        axis: the dimension.
        allow_negative_indices: whether negative indices count from the end; else they are 0.

    Returns:
        An array of the operand's type and rank.

    Raises:
        ShapeError: a size larger than the dimension.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import dynamic_slice_in_dim
    >>> dynamic_slice_in_dim(np.arange(5), -2, 2)
    Array([3, 4], dtype=int32)
    """
    what = "lax.dynamic_slice_in_dim"
    x = array_of(operand, what)
    d, starts = _in_dim(what, x, start_index, axis)
    sizes = (*x.shape[:d], integer_of(what, "slice_size", slice_size), *x.shape[d + 1 :])
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allow_negative_indices)


@with_flags
def dynamic_index_in_dim(
    operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Array:
    """The elements at a computed index of a dimension, which stays with size 1 if `keepdims`.

    Args:
        operand: an array.
        index: an integer, which may be traced.
        axis: the dimension.
        keepdims: whether the dimension stays, with size 1.
        allow_negative_indices: whether negative indices count from the end; else they are 0.

    Returns:
        An array of the operand's type.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import dynamic_index_in_dim
    >>> dynamic_index_in_dim(np.arange(5), 3, keepdims=False)
    Array(3, dtype=int32)
    """
    taken = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return taken if keepdims else squeeze(taken, (axis,))


def dynamic_update_slice_in_dim(
    operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """The array with a slice of one dimension, which starts at a computed index, replaced.

    Args:
        operand: an array.
        update: the new elements, of the operand's type.
        start_index: an integer, which may be traced.
        axis: the dimension.
        allow_negative_indices: whether negative indices count from the end; else they are 0.

    Returns:
        An array of the operand's shape and type.

    Raises:
        ShapeError: an update that is larger than the array, or of another rank.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import dynamic_update_slice_in_dim
    >>> dynamic_update_slice_in_dim(np.zeros(4), np.ones(2), 1, 0)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    what = "lax.dynamic_update_slice_in_dim"
    x = array_of(operand, what)
    _, starts = _in_dim(what, x, start_index, axis)
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """The array, its elements at a computed index of a dimension replaced; the update has size 1 there, or lacks it.

    Args:
        operand: an array.
        update: the new elements, of the operand's type.
        index: an integer, which may be traced.
        axis: the dimension.
        allow_negative_indices: whether negative indices count from the end; else they are 0.

    Returns:
        An array of the operand's shape and type.

    Raises:
        ShapeError: an update of another shape.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import dynamic_update_index_in_dim
    >>> dynamic_update_index_in_dim(np.zeros(3), 1.0, 2, 0)
    Array([0., 0., 1.], dtype=float32)
    """
    what = "lax.dynamic_update_index_in_dim"
    x, new = of_one_type(what, operand, update)
    d = canonical_axis(axis, x.ndim, what)
    if new.ndim < x.ndim:
        new = reshape(new, (*new.shape[:d], 1, *new.shape[d:]))
    return dynamic_update_slice_in_dim(x, new, index, d, allow_negative_indices=allow_negative_indices)


# --- gather and scatter -----------------------------------------------------------------------------------------------


class GatherScatterMode(enum.Enum):
    """What becomes of slices that would reach outside: moved inside, or filled (gather) and dropped (scatter).

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> x, start = np.arange(4), np.array([[3]])
    >>> numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,))
    >>> lax.gather(x, start, numbers, slice_sizes=(2,), mode=lax.GatherScatterMode.CLIP)
    Array([[2, 3]], dtype=int32)
    >>> lax.gather(x, start, numbers, slice_sizes=(2,), mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=-1)
    Array([[-1, -1]], dtype=int32)
    """

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(mode: Any) -> GatherScatterMode:
        """The mode of a name: "clip", "fill", "drop" or "promise_in_bounds".

        Args:
            mode: a name, or a member, which is returned.

        Returns:
            A member.

        Raises:
            AttributeValueError: another name.

        >>> from tinyxla import lax
        >>> lax.GatherScatterMode.from_any("drop")
        <GatherScatterMode.FILL_OR_DROP: 'fill'>
        """
        if isinstance(mode, GatherScatterMode):
            return mode
        try:
            return GatherScatterMode("fill" if mode == "drop" else mode)
        except ValueError:
            raise AttributeValueError(
                f"a mode is 'clip', 'fill', 'drop' or 'promise_in_bounds', but got {mode!r}."
            ) from None


class GatherDimensionNumbers(NamedTuple):
    """The dimension numbers of `gather`, in the terms of the XLA documents.

    Attributes:
        offset_dims: dimensions of the result that are those of a slice.
        collapsed_slice_dims: dimensions of the operand in which slices have size 1, and which the result does not have.
        start_index_map: the dimension of the operand that each element of an index vector is for.
        operand_batching_dims: dimensions of the operand that are also those of the indices.
        start_indices_batching_dims: these dimensions of the indices.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(np.arange(6).reshape(3, 2), np.array([[2], [0]]), rows, slice_sizes=(1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The dimension numbers of `scatter`, in the terms of the XLA documents.

    Attributes:
        update_window_dims: dimensions of the updates that are those of a window.
        inserted_window_dims: dimensions of the operand in which windows have size 1, and which the updates do not have.
        scatter_dims_to_operand_dims: the dimension of the operand that each element of an index vector is for.
        operand_batching_dims: dimensions of the operand that are also those of the indices.
        scatter_indices_batching_dims: these dimensions of the indices.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> rows = lax.ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> lax.scatter_add(np.zeros((3, 2)), np.array([[2], [2]]), np.ones((2, 2)), rows)
    Array([[0., 0.],
           [0., 0.],
           [2., 2.]], dtype=float32)
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


def _index_vectors(what: str, indices: ArrayLike) -> Any:
    found = array_of(indices, what)
    if not found.ndim or not element_type(found.dtype).is_integer:
        raise DTypeError(f"{what}: index vectors are the last dimension of integers, but got {described([found])}.")
    return found


def _limits(x: Array, sizes: dict[int, int], index_map: Sizes) -> list[int]:
    """The largest start for each entry of an index vector."""
    return [x.shape[d] - sizes.get(d, 1) for d in index_map]


def _bounds(indices: Any, limits: list[int]) -> tuple[Any, Any]:
    """0 and the limits, in the type and shape of the indices."""
    most = np.iinfo(indices.dtype).max
    high = constant([min(n, int(most)) for n in limits], indices.dtype)
    spread = movement.broadcast(high, sizes=indices.shape, dimensions=(indices.ndim - 1,))
    return elementwise.zeros_like(indices), spread


def _inside(indices: Any, limits: list[int]) -> Any:
    """For each index vector whether its slice lies in the array."""
    low, high = _bounds(indices, limits)
    each = elementwise.and_(elementwise.ge(indices, low), elementwise.le(indices, high))
    return reduction.reduce_and(each, (indices.ndim - 1,))


def _clipped(indices: Any, limits: list[int]) -> Any:
    low, high = _bounds(indices, limits)
    return clamp(low, indices, high)


def _fill(dtype: np.dtype[Any]) -> Any:
    """What slices outside are filled with: NaN, or the smallest or largest integer."""
    kind = element_type(dtype)
    if kind.is_inexact:
        return np.nan
    if kind.kind == "pred":
        return True
    return np.iinfo(dtype).min if kind.kind == "signed" else np.iinfo(dtype).max


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sizes,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Array:
    """Slices of an array from computed places, put side by side.

    Args:
        operand: the array.
        start_indices: integers; the last dimension runs along the index vectors.
        dimension_numbers: which dimensions are which.
        slice_sizes: of each slice, for each dimension of the operand.
        unique_indices, indices_are_sorted: promises.
        mode: what becomes of slices that reach outside: "clip", the default, moves them inside, "fill" fills them.
        fill_value: with what; NaN, or the smallest (unsigned: largest) integer unless given.

    Returns:
        An array of the operand's type. Its dimensions are those of the slices at `offset_dims`, and the others those of
        the indices.

    Raises:
        ShapeError: dimension numbers or sizes that do not fit the operand or the indices.
        DTypeError: indices that are no integers.
        AttributeValueError: another mode.

    >>> import numpy as np
    >>> from tinyxla.lax import GatherDimensionNumbers, gather
    >>> numbers = GatherDimensionNumbers((), (0,), (0,))
    >>> gather(np.array([1, 2, 3]), np.array([[2], [0]]), numbers, (1,))
    Array([3, 1], dtype=int32)
    """
    what = "lax.gather"
    x: Any = array_of(operand, what)
    indices = _index_vectors(what, start_indices)
    sizes = shape_of(what, slice_sizes)
    if len(sizes) != x.ndim:
        raise ShapeError(f"{what}: slice_sizes {sizes} has {len(sizes)} entries, but the operand is {described([x])}.")
    numbers = _numbers(what, GatherDimensionNumbers, dimension_numbers)
    kind = GatherScatterMode.from_any("clip" if mode is None else mode)
    result = ops.gather(
        x,
        indices,
        **numbers._asdict(),
        index_vector_dim=indices.ndim - 1,
        slice_sizes=sizes,
        indices_are_sorted=bool(indices_are_sorted),
        drops_gradients=kind is GatherScatterMode.PROMISE_IN_BOUNDS
        or (mode is None and config.out_of_bounds_indices == "clamp"),
    )
    if kind is not GatherScatterMode.FILL_OR_DROP:
        return result
    inside = _inside(indices, _limits(x, dict(enumerate(sizes)), numbers.start_index_map))
    batch = tuple(d for d in range(result.ndim) if d not in numbers.offset_dims)
    spread = movement.broadcast(inside, sizes=result.shape, dimensions=batch)
    filling = movement.full(_fill(x.dtype) if fill_value is None else fill_value, x.dtype, result.shape)
    return elementwise.select(spread, result, filling)


def _numbers(what: str, kind: Any, given: Any) -> Any:
    """Which dimensions are which: each entry a sequence of integers."""
    name = "dimension_numbers"
    entries = several_of(what, name, given)
    if not 3 <= len(entries) <= 5:
        raise ArgumentError(f"{what}: {name} must be {kind.__name__}(...), but got {shown(given)}.")
    return kind(*(integers_of(what, f"each of {name}", value) for value in entries))


def _scatter(
    what: str,
    to_apply: Callable[[Any], Any],
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: Any,
) -> Array:
    x, new = of_one_type(what, operand, updates)
    indices = _index_vectors(what, scatter_indices)
    numbers = _numbers(what, ScatterDimensionNumbers, dimension_numbers)
    kind = GatherScatterMode.from_any("drop" if mode is None else mode)
    if kind is GatherScatterMode.CLIP:
        left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        window = [d for d in range(x.ndim) if d not in left_out]
        if len(window) != len(numbers.update_window_dims) or any(u >= new.ndim for u in numbers.update_window_dims):
            raise ShapeError(
                f"{what}: update_window_dims {numbers.update_window_dims} must name dimensions of the updates, "
                f"{described([new])}, one for each of the {len(window)} dimensions of the operand, {described([x])}, "
                "that are not inserted."
            )
        sizes = {d: new.shape[u] for d, u in zip(window, sorted(numbers.update_window_dims), strict=True)}
        indices = _clipped(indices, _limits(x, sizes, numbers.scatter_dims_to_operand_dims))
    return ops.scatter(
        x,
        indices,
        new,
        update_window_dims=numbers.update_window_dims,
        inserted_window_dims=numbers.inserted_window_dims,
        scatter_dims_to_operand_dims=numbers.scatter_dims_to_operand_dims,
        index_vector_dim=indices.ndim - 1,
        to_apply=to_apply(x.dtype),
        input_batching_dims=numbers.operand_batching_dims,
        scatter_indices_batching_dims=numbers.scatter_indices_batching_dims,
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        moves_gradients=kind is GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _scatterer(name: str, to_apply: Callable[[Any], Any], text: str, example: str, is_negated: bool = False) -> Any:
    what = f"lax.{name}"

    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array:
        new = elementwise.neg(of_one_type(what, operand, updates)[1]) if is_negated else updates
        options = (indices_are_sorted, unique_indices, mode)
        return _scatter(what, to_apply, operand, scatter_indices, new, dimension_numbers, *options)

    whole = f"""The array with slices at computed places {text}.

    Args:
        operand: the array.
        scatter_indices: integers; the last dimension runs along the index vectors.
        updates: the slices, of the operand's type.
        dimension_numbers: which dimensions are which.
        indices_are_sorted, unique_indices: promises.
        mode: what becomes of slices that would reach outside: "clip" moves them inside, else they are left out.

    Returns:
        An array of the operand's shape and type.

    Raises:
        ShapeError: dimension numbers or updates that do not fit the operand or the indices.
        DTypeError: different element types, or indices that are no integers.
        AttributeValueError: another mode.

    >>> import numpy as np
    >>> from tinyxla.lax import ScatterDimensionNumbers, {name}
    >>> elements = ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> {name}(np.array([5, 5, 5]), np.array([[0], [2]]), np.array([2, 7]), elements)
    Array({example}, dtype=int32)
    """
    return named(function, name, whole)


def _combining(op: str) -> Callable[[Any], Any]:
    return lambda dtype: reduction.scalar_computation(op, dtype)


scatter = _scatterer("scatter", ops.replacement, "replaced by updates", "[2, 5, 7]")
scatter_add = _scatterer("scatter_add", _combining("add"), "and updates added", "[ 7,  5, 12]")
scatter_sub = _scatterer(
    "scatter_sub", _combining("add"), "from which updates are subtracted", "[ 3,  5, -2]", is_negated=True
)
scatter_mul = _scatterer("scatter_mul", _combining("multiply"), "multiplied by updates", "[10,  5, 35]")
scatter_min = _scatterer(
    "scatter_min", _combining("minimum"), "that are the smaller of themselves and updates", "[2, 5, 5]"
)
scatter_max = _scatterer(
    "scatter_max", _combining("maximum"), "that are the larger of themselves and updates", "[5, 5, 7]"
)


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[Array], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sizes = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """The array with a function applied to the elements of slices at computed places, as often as they are named.

    Args:
        operand: the array.
        scatter_indices: integers; the last dimension runs along the index vectors.
        func: from a scalar to another of its type. It may not use traced values from outside.
        dimension_numbers: which dimensions are which.
        update_shape: the shape that updates would have: of the indices without their last dimension, and the slices.
        indices_are_sorted: a promise.
        unique_indices: a promise that no element is named twice; then there are derivatives.
        mode: what becomes of slices that reach outside: "clip" moves them inside, else they are left out.

    Returns:
        An array of the operand's shape and type.

    Raises:
        ShapeError: dimension numbers or an `update_shape` that do not fit the operand or the indices.
        DTypeError: indices that are no integers.

    >>> import numpy as np
    >>> from tinyxla.lax import ScatterDimensionNumbers, scatter_apply
    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> scatter_apply(np.array([1.0, 2.0]), np.array([[1]]), lambda x: -x, numbers, update_shape=(1,))
    Array([ 1., -2.], dtype=float32)
    """
    what = "lax.scatter_apply"
    x = array_of(operand, what)
    function_of(what, "func", func)

    def ignoring_updates(element: Any, update: Any) -> Any:
        return func(element)

    def computation(dtype: Any) -> Computation:
        return scalar_function(what, ignoring_updates, [Shape(element_type(dtype))], pytrees.flatten(0)[1])

    unused = movement.full(0, x.dtype, shape_of(what, update_shape))
    return _scatter(
        what, computation, x, scatter_indices, unused, dimension_numbers, indices_are_sorted, unique_indices, mode
    )


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sizes) -> Array:
    """The slices of size 1 along `axes` at the indices of the index arrays, one for each axis. Indices outside of the
    array wrap around.

    Args:
        src: an array.
        idxs: vectors of integers, one for each of `axes`, of one length n.
        axes: the dimensions that the indices are for.

    Returns:
        An array of n slices: a dimension of size n in front, and the dimensions of `src` with `axes` of size 1.

    Raises:
        ArgumentError: another number of index vectors than axes, or vectors of different lengths.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import index_take
    >>> index_take(np.array([[1, 2], [3, 4]]), [np.array([1, 0])], (0,))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    what = "lax.index_take"
    x = array_of(src, what)
    columns = [array_of(i, what) for i in several_of(what, "idxs", idxs)]
    order = tuple(canonical_axis(a, x.ndim, what) for a in several_of(what, "axes", axes))
    if len(columns) != len(order) or any(c.shape != columns[0].shape or c.ndim != 1 for c in columns):
        raise ArgumentError(f"{what}: takes one vector of indices for each of the axes {order}, all of one length.")
    columns = [arithmetic.remainder(c, x.shape[d]) for c, d in zip(columns, order, strict=True)]
    vectors = movement.concatenate(*(reshape(c, (c.shape[0], 1)) for c in columns), dimension=1)
    rest = x.ndim - len(order)
    numbers = GatherDimensionNumbers(tuple(range(1, 1 + rest)), tuple(sorted(order)), order)
    sizes = [1 if d in order else n for d, n in enumerate(x.shape)]
    return gather(x, vectors, numbers, sizes, mode="clip")
