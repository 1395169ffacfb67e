"""Functions that pick elements: by their places, or by conditions."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, DTypeError, NumberRangeError, OutOfBoundsError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    along_axis,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    choice_of,
    eager,
    flat_array,
    is_several,
    like,
    listed,
    nested,
    of_rank,
    operand,
    promoted,
    refuse_out,
    several_of,
    shown,
    value_of,
)
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.indexed import Update, check_mode, read, read_along
from tinyxla.numpy.indexing.tricks import nonzero
from tinyxla.numpy.operations import movement, ops
from tinyxla.numpy.reductions import any, cumsum
from tinyxla.runtime.allocation import allocated
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer
from tinyxla.util.tracebacks import boundary

# --- by places --------------------------------------------------------------------------------------------------------


@boundary
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """The elements (or slices) at indices of an axis, or of the flattened array if None.

    `mode` is `"fill"` (`fill_value`, or NaN, where an index is outside; the default where `fill_value` is given, and
    for indices that are not known yet), `"clip"` or `"wrap"`.

    Args:
        a: an array.
        indices: integers, of any shape.
        axis: the axis; None for the flattened array.
        out: must be None.
        mode: "fill", "clip" or "wrap".
        unique_indices, indices_are_sorted: promises about the indices.
        fill_value: what takes the place of missing elements.

    Returns:
        An array: the axis is replaced by those of the indices.

    Raises:
        DTypeError: indices that are no integers.
        AxisError: an axis that the array does not have.
        OutOfBoundsError: an axis of size 0, without a fill value.
        AttributeValueError: a mode that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.take(jnp.array([10, 20, 30]), jnp.array([2, 0]))
        Array([30, 10], dtype=int32)
    """
    refuse_out("take", out)
    x, along = along_axis("take", array_of(a, "take"), axis)
    chosen = listed(indices, "take")
    if not element_type(chosen.dtype).is_integer:
        raise DTypeError(f"take: indices are integers, but got an array of {chosen.dtype.name}; convert them.")
    found = check_mode("take", mode)
    if found != "fill" and fill_value is None and x.shape[along] == 0 and 0 not in chosen.shape:
        raise OutOfBoundsError(
            f"take: axis {along} of the array of shape {x.shape} is empty: no index is inside; pass a fill_value, or "
            "no indices."
        )
    if found is None and (
        fill_value is not None or type(chosen) is not ConcreteArray or _has_outside(chosen, x.shape[along])
    ):
        found = "fill"
    if found == "clip":
        chosen = arith.maximum(chosen, 0)  # here, as in NumPy, negative places do not count from the end
    index = (slice(None),) * along + (chosen,)
    return x[index] if found is None else read(x, index, found, fill_value)


def _has_outside(places: ConcreteArray, size: int) -> bool:
    """Whether known places are outside of an axis where that is no error."""
    if config.out_of_bounds_indices != "clamp" or not places.size:
        return False
    values = places.buffer()
    return not (-size <= int(values.min()) and int(values.max()) < size)


@replayed
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """The elements whose indices along an axis `indices` has, one by one: what `argsort` and `argmax` give.

    `mode` says what is read outside of the axis, as for `x.at[...].get`; with `"one_hot"` it is zero. Negative indices
    count from the end, unless `wrap_negative_indices` is False.

    Args:
        arr: an array.
        indices: integers that broadcast against the array.
        axis: the axis; None for the flattened array.
        mode: what is read outside of the axis.
        fill_value: what takes the place of missing elements.
        wrap_negative_indices: whether negative indices count from the end.

    Returns:
        An array of the shape of the indices.

    Raises:
        IndexTypeError: indices that are no integers.
        ShapeError: indices of another rank.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.take_along_axis(jnp.array([[10, 20], [30, 40]]), jnp.array([[1], [0]]), axis=1)
        Array([[20],
               [30]], dtype=int32)
    """
    wraps = wrap_negative_indices is not False
    if mode == "one_hot":
        mode, fill_value = "fill", 0 if fill_value is None else fill_value
    x, chosen = array_of(arr, "take_along_axis"), array_of(indices, "take_along_axis")
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    if chosen.ndim != x.ndim:
        raise ShapeError(f"take_along_axis: the array {x.shape} and the indices {chosen.shape} differ in dimensions.")
    along = canonical_axis(axis, x.ndim, "take_along_axis")
    found = check_mode("take_along_axis", mode) or "fill"
    lines = [(m, n) for d, (m, n) in enumerate(zip(x.shape, chosen.shape, strict=True)) if d != along]
    is_along = x.size and all(m == n for m, n in lines) and element_type(chosen.dtype).is_integer
    if is_along and wraps:
        return read_along(x, chosen, along, found, fill_value)
    return read(x, along_index(x, chosen, along), found, fill_value, wraps)


def along_index(x: Any, chosen: Any, along: int) -> tuple[Any, ...]:
    """An index that goes through all other axes in step."""
    entries: list[Any] = []
    for d, n in enumerate(x.shape):
        size = chosen.shape[d] if n == 1 else n
        places = np.zeros(1, np.int32) if n == 1 else np.arange(size, dtype=np.int32)
        entries.append(chosen if d == along else places.reshape([-1 if k == d else 1 for k in range(x.ndim)]))
    return tuple(entries)


@boundary
def put_along_axis(
    arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None, inplace: bool = False, *, mode: Any = None
) -> Array:
    """A copy with the elements at places along an axis replaced; `inplace=False` says that it is one.

    Args:
        arr: an array.
        indices: integers that broadcast against the array.
        values: values that broadcast against the indices.
        axis: the axis; None for the flattened array.
        inplace: must be False: arrays are immutable.
        mode: what becomes of indices outside, as for `x.at[...].set`.

    Returns:
        An array of the shape and type of arr.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.put_along_axis(jnp.zeros((2, 2)), jnp.array([[1], [0]]), 5, 1, inplace=False)
        Array([[0., 5.],
               [5., 0.]], dtype=float32)
    """
    x, chosen = array_of(arr, "put_along_axis"), array_of(indices, "put_along_axis")
    if inplace:
        raise ArgumentError("put_along_axis: arrays are immutable; pass inplace=False and use the result.")
    shape = x.shape
    x, along = along_axis("put_along_axis", x, axis)
    index = along_index(x, chosen, along)
    return movement.reshape_to(Update(x, index).set(values, mode=mode), shape)


@boundary
def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = False) -> Array:
    """A copy with elements of the flattened array replaced; `inplace=False` says that it is one. With the mode "clip"
    negative indices stand for the first element, as in NumPy.

    Args:
        a: an array.
        ind: integers: positions in the flattened array.
        v: values, repeated as often as needed.
        mode: "clip" or "wrap": what becomes of positions outside.
        inplace: must be False: arrays are immutable.

    Returns:
        An array of the shape and type of a.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.put(jnp.array([1, 2, 3]), jnp.array([0, 2]), jnp.array([7, 8]), inplace=False)
        Array([7, 2, 8], dtype=int32)
    """
    x = array_of(a, "put")
    if inplace:
        raise ArgumentError("put: arrays are immutable; pass inplace=False and use the result.")
    flat = movement.reshape_to(x, (x.size,))
    places = listed(ind, "put")
    values = listed(v, "put")
    if isinstance(v, list | tuple):  # numbers of Python's
        values = cast(values, x.dtype, False)
    count = places.size
    values = movement.reshape_to(values, (values.size,))
    if values.size and count:
        repeated = read(values, np.arange(count) % values.size, None, None)
        if mode == "clip":
            places = arith.maximum(places, 0)
        if mode is None and config.out_of_bounds_indices == "clamp":  # negative indices count from the end
            mode, places = "clip", arith.maximum(places.astype(int), -x.size)
        flat = Update(flat, movement.reshape_to(places, (count,))).set(repeated, mode=mode)
    return movement.reshape_to(flat, x.shape)


@boundary
def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = False) -> Array:
    """A copy in which the values, over and over, replace the elements where the mask is true; `inplace=False` says
    that it is one.

    Args:
        arr: an array.
        mask: booleans, of the shape of the array.
        vals: a vector.
        inplace: must be False: arrays are immutable.

    Returns:
        An array of the shape and type of arr.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.place(jnp.array([1, 2, 3]), jnp.array([True, False, True]), jnp.array([7, 8]), inplace=False)
        Array([7, 2, 8], dtype=int32)
    """
    x = array_of(arr, "place")
    if inplace:
        raise ArgumentError("place: arrays are immutable; pass inplace=False and use the result.")
    chosen = cast(listed(mask, "place"), np.dtype(bool))
    values = listed(vals, "place")
    if chosen.size != x.size or not values.size:
        raise ShapeError(f"place: mask must have {x.size} elements, vals some, but got {chosen.size}, {values.size}.")
    chosen = movement.reshape_to(chosen, x.shape)
    counted = movement.reshape_to(cumsum(chosen), x.shape)
    found = read(movement.reshape_to(values, (values.size,)), counted - 1, "wrap", None)
    return where(chosen, cast(found, x.dtype), x)


@boundary
def delete(arr: ArrayLike, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Array:
    """Without the slices at these places of an axis: an integer, a slice, or an array of them.

    How many different places there are decides the shape, so arrays of them must be known; unless
    `assume_unique_indices`, which promises that all of them differ. A single integer may be traced.

    Args:
        arr: an array.
        obj: integers, or a slice: the positions.
        axis: the axis; None for the flattened array.
        assume_unique_indices: whether all positions differ.

    Returns:
        An array.

    Raises:
        OutOfBoundsError: an index that the axis does not have.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.delete(jnp.array([1, 2, 3]), 1)
        Array([1, 3], dtype=int32)
    """
    x, along = along_axis("delete", array_of(arr, "delete"), axis)
    obj = operand(obj, "delete") if hasattr(obj, "__jax_array__") else obj
    counted = isinstance(obj, Array) and element_type(obj.dtype).is_integer and (obj.ndim == 0 or assume_unique_indices)
    if isinstance(obj, Tracer) and counted:
        return _without(x, movement.reshape_to(obj, (obj.size,)), along)
    if isinstance(obj, Array):
        obj = obj.concrete("delete, whose result's shape depends on the places,").buffer()
    places = nested("delete", obj) if isinstance(obj, (list, tuple)) else obj
    try:
        kept = np.delete(np.arange(x.shape[along]), places)
    except IndexError as error:
        raise OutOfBoundsError(f"delete: {error}.") from None
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"delete: obj must be integers, a slice or a mask, but got {shown(obj)}.") from None
    return read(x, (slice(None),) * along + (kept,), None, None)


def _without(x: Array, places: Any, along: int) -> Array:
    """An array without slices at different places that are traced: those behind i of them move down by i."""
    length, count = x.shape[along], places.shape[0]
    places = movement.reshape_to(cast(places, np.dtype(np.int32)), (count, 1))
    places = ops.select(ops.lt(places, like(0, places)), ops.add(places, like(length, places)), places)
    gone = any(arith.equal(places, np.arange(length, dtype=np.int32).reshape(1, length)), 0)
    kept = nonzero(arith.logical_not(gone), size=builtins.max(length - count, 0))
    return read(x, (slice(None),) * along + kept, "clip", None)


@boundary
def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """With values before these places of an axis: an integer, which may be traced, or several that are known.

    Args:
        arr: an array.
        obj: integers, or a slice: the positions.
        values: an array that broadcasts.
        axis: the axis; None for the flattened array.

    Returns:
        An array.

    Raises:
        OutOfBoundsError: an index that the axis does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.insert(jnp.array([1, 3]), 1, 2)
        Array([1, 2, 3], dtype=int32)
    """
    x, along = along_axis("insert", array_of(arr, "insert"), axis)
    obj = operand(obj, "insert") if hasattr(obj, "__jax_array__") else obj
    if isinstance(obj, Tracer) and obj.size == 1 and obj.ndim < 2 and element_type(obj.dtype).is_integer:
        return _inserted(x, obj, values, along)
    if isinstance(obj, Array):
        obj = obj.concrete("insert, whose result's shape depends on the places,").buffer()
    length = x.shape[along]
    places = np.arange(length)[obj] if isinstance(obj, slice) else nested("insert", obj)
    single, moved = places.size == 1, places.ndim == 0
    places = np.atleast_1d(places)
    if places.dtype.kind not in "iub" and places.size:
        raise ArgumentError(f"insert: obj must be integers or a slice, but is of {places.dtype.name}.")
    if places.ndim != 1:
        raise ShapeError(f"insert: obj must be an integer or a vector, but has the shape {places.shape}.")
    if places.size and not (-length <= places.min() and places.max() <= length):
        raise OutOfBoundsError(f"insert: places must be from {-length} to {length}, but obj is {shown(obj)}.")
    places = np.where(places < 0, places + length, places)
    y = cast(operand(listed(values, "insert"), "insert"), x.dtype)
    count = places.size
    if single:
        y = _at_single_place(x, y, along, moved)
        count = y.shape[along]
        places = np.repeat(places, count)
    y = broadcast_to_shape("insert", y, (*x.shape[:along], count, *x.shape[along + 1 :]))
    both = movement.concatenate(x, y, dimension=along)
    order = np.argsort(np.concatenate([np.arange(length) + 0.5, places]), kind="stable")
    return read(both, (slice(None),) * along + (order,), None, None)


def _at_single_place(x: Array, y: Array, along: int, moved: bool) -> Array:
    """Values to insert at one place, with as many dimensions as the array. Where the place is a number, and no vector
    of one, they are given along their first axis."""
    if y.ndim > x.ndim:
        raise ShapeError(f"insert: values of shape {y.shape} have more dimensions than the array of shape {x.shape}.")
    y = of_rank(y, x.ndim)
    return movement.move_axis(y, 0, along) if moved and x.ndim else y


def _inserted(x: Array, obj: Any, values: ArrayLike, along: int) -> Array:
    """An array with values before a place that is traced; one outside of the axis is moved to its ends."""
    length = x.shape[along]
    place = movement.reshape_to(cast(obj, np.dtype(np.int32)), ())
    place = ops.select(ops.lt(place, like(0, place)), ops.add(place, like(length, place)), place)
    place = ops.clamp(like(0, place), place, like(length, place))
    y = cast(operand(listed(values, "insert"), "insert"), x.dtype)
    y = _at_single_place(x, y, along, obj.ndim == 0)
    count = y.shape[along]
    y = broadcast_to_shape("insert", y, (*x.shape[:along], count, *x.shape[along + 1 :]))
    both = movement.concatenate(x, y, dimension=along)
    k = np.arange(length + count, dtype=np.int32)
    behind = where(arith.less(k, arith.add(place, count)), arith.add(arith.subtract(k, place), length), k - count)
    return read(both, (slice(None),) * along + (where(arith.less(k, place), k, behind),), "clip", None)


@boundary
def choose(a: ArrayLike, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """Element by element, the choice of that number. One that is outside is an error, for which the numbers must be
    known; `mode="clip"` takes the nearest choice, `"wrap"` counts on from the first.

    Args:
        a: integers: the number of a choice for each element.
        choices: arrays that broadcast with a.
        out: must be None.
        mode: "raise", "clip" or "wrap".

    Returns:
        An array of the common shape.

    Raises:
        IndexTypeError: choices that are no integers.
        NumberRangeError: a choice that there is not, with the mode "raise".
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([10, 20])])
        Array([10,  2], dtype=int32)
    """
    refuse_out("choose", out)
    chosen = array_of(a, "choose")
    if not is_several(choices) or isinstance(choices, (str, bytes)) or not len(list(choices)):
        raise ArgumentError(f"choose: takes a list of choices, but got {shown(choices)}.")
    choice_of("choose", "mode", mode, ("raise", "wrap", "clip"))
    if mode == "raise":
        known, last = chosen.concrete("choose with mode='raise'").buffer(), len(list(choices)) - 1
        if ((known < 0) | (known > last)).any():
            raise NumberRangeError(f"choose: invalid entry in choice array: not all are from 0 to {last}.")
    return _choose(chosen, list(choices), mode == "wrap")


@replayed
def _choose(chosen: Any, choices: list[Any], wraps: bool) -> Array:
    """Element by element, the choice of that number; where there is none, counted on from the first, or the nearest."""
    arrays, _ = promoted("choose", *(array_of(c, "choose") for c in choices))
    shape = broadcast_shapes("choose", chosen.shape, *(c.shape for c in arrays))
    rows = [movement.reshape_to(broadcast_to_shape("choose", c, shape), (1, *shape)) for c in arrays]
    stacked = movement.concatenate(*rows, dimension=0)
    if not wraps:
        chosen = arith.maximum(chosen, 0)  # here, as in NumPy, negative numbers do not count from the end
    number = movement.reshape_to(broadcast_to_shape("choose", chosen, shape), (1, *shape))
    found = read(stacked, along_index(stacked, number, 0), "wrap" if wraps else "clip", None)
    return movement.reshape_to(found, shape)


@boundary
def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    """The elements where a condition is true; as in `compress` its values must be known unless `size` is given.

    Args:
        condition: booleans, of the shape of the array.
        arr: an array.
        size: the number of elements of the result, where it would depend on values.
        fill_value: what takes the place of missing elements.

    Returns:
        A vector.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.extract(jnp.array([True, False]), jnp.array([1, 2]))
        Array([1], dtype=int32)
    """
    return compress(flat_array(condition, "extract"), arr, size=size, fill_value=fill_value)


@boundary
def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Array:
    """The slices along an axis where a condition is true.

    How many there are decides the shape, so the condition's values must be known, unless `size` gives it: then what is
    missing is `fill_value`, and what is too many is left out.

    Args:
        condition: a vector of booleans.
        a: an array.
        axis: the axis; None for the flattened array.
        size: the number of elements of the result, where it would depend on values.
        fill_value: what takes the place of missing elements.
        out: must be None.

    Returns:
        An array.

    Raises:
        OutOfBoundsError: a condition that is longer than the axis.
        ShapeError: a condition that is no vector.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.compress(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
        Array([1, 3], dtype=int32)
    """
    refuse_out("compress", out)
    x, along = along_axis("compress", array_of(a, "compress"), axis)
    chosen, before = listed(condition, "compress"), (slice(None),) * along
    if chosen.ndim != 1:
        raise ShapeError(f"compress: the condition must be a vector, but got {Shape.of(chosen)}.")
    if size is not None:
        return read(x, (*before, *nonzero(chosen, size=size, fill_value=x.shape[along])), "fill", fill_value)
    known = chosen.primal("compress, whose result's shape depends on the condition (or give `size`),").buffer()
    return read(x, (*before, np.flatnonzero(known)), None, None)


# --- by conditions ----------------------------------------------------------------------------------------------------


@overload
def where(
    condition: ArrayLike, x: ArrayLike, y: ArrayLike, /, *, size: int | None = None, fill_value: Any = None
) -> Array: ...
@overload
def where(condition: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]: ...
@replayed
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """x where the condition is true, y elsewhere; with the condition alone, the indices where it is true.

    The gradient of what is not chosen is zero.

    Args:
        condition: booleans.
        x, y: arrays that broadcast.
        size: the number of elements of the result, where it would depend on values.
        fill_value: what takes the place of missing elements.

    Returns:
        An array of the common shape; with the condition alone, a tuple of index arrays as from `nonzero`.

    Raises:
        ShapeError: shapes that do not broadcast.
        ArgumentError: one of the two values without the other.
        ConcretizationError: a traced condition alone, without `size`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.where(jnp.arange(3) > 0, 1.0, 2.0)
        Array([2., 1., 1.], dtype=float32, weak_type=True)
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentError("where: takes a condition alone, or both values to choose from.")
    mask = arith.truth(condition, "where")
    (a, b), (_, weak) = promoted("where", x, y)
    if mask.shape == a.shape == b.shape:
        return ops.select(mask, a, b).with_weak_type(weak)
    if eager(mask, a, b):
        broadcast_shapes("where", mask.shape, a.shape, b.shape)
        chosen = allocated("where", lambda: np.where(value_of(mask), value_of(a), value_of(b)))
        return ConcreteArray(chosen, weak)
    shape = broadcast_shapes("where", mask.shape, a.shape, b.shape)
    mask, a, b = (broadcast_to_shape("where", v, shape) for v in (mask, a, b))
    return ops.select(mask, a, b).with_weak_type(weak)


@replayed
def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """Element by element, the choice of the first condition that is true, else the default.

    Args:
        condlist: arrays of booleans.
        choicelist: as many arrays.
        default: the value where no condition is true.

    Returns:
        An array of the common shape.

    Raises:
        ArgumentError: conditions and choices of different numbers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.select([jnp.array([True, False])], [jnp.array([1, 2])], default=9)
        Array([1, 9], dtype=int32)
    """
    if builtins.any(not hasattr(x, "__len__") or getattr(x, "ndim", 1) == 0 for x in (condlist, choicelist)):
        raise ArgumentError("select: takes a list of conditions and a list of choices; put them in lists.")
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(f"select: {len(condlist)} conditions do not fit {len(choicelist)} choices.")
    choices, (_, weak) = promoted("select", *choicelist, default)
    result = choices[-1]
    for condition, choice in reversed(list(zip(condlist, choices[:-1], strict=True))):
        result = where(condition, choice, result)
    return result.with_weak_type(weak)


@boundary
def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Element by element, the function (or number) of the last condition that is true; one more of them is for none.

    Args:
        x: an array.
        condlist: arrays of booleans of the shape of x.
        funclist: functions of x, or numbers.
        *args, **kw: further arguments of the functions.

    Returns:
        An array of the shape of x.

    Raises:
        ArgumentError: functions that do not fit the conditions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.piecewise(jnp.array([-1.0, 2.0]), [jnp.array([True, False])], [lambda x: -x, lambda x: 10 * x])
        Array([ 1., 20.], dtype=float32)
    """
    x = array_of(x, "piecewise")
    conditions: list[Any] = list(condlist) if isinstance(condlist, Sequence) else [condlist]
    functions = several_of("piecewise", "funclist", funclist)
    if len(functions) == len(conditions):
        functions.append(0)
    if len(functions) != len(conditions) + 1:
        raise ArgumentError(f"piecewise: {len(functions) - 1} functions do not fit {len(conditions)} conditions.")

    def value(f: Any) -> Array:
        found = f(x, *args, **kw) if callable(f) else f
        return broadcast_to_shape("piecewise", cast(operand(found, "piecewise"), x.dtype), x.shape)

    result = value(functions[-1])
    for condition, f in zip(conditions, functions[:-1], strict=True):
        result = where(condition, value(f), result)
    return result


@boundary
def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = False) -> Array:
    """A copy with the main diagonal replaced; `inplace=False` says that it is one.

    Args:
        a: an array.
        val: a number, or an array.
        wrap: whether the diagonal continues below a square, in a tall matrix.
        inplace: must be False: arrays are immutable.

    Returns:
        An array of the shape and type of a.

    Raises:
        ShapeError: a vector, or an array of more than two axes of different sizes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 5, inplace=False)
        Array([[5., 0.],
               [0., 5.]], dtype=float32)
    """
    x = array_of(a, "fill_diagonal")
    if inplace:
        raise ArgumentError("fill_diagonal: arrays are immutable; pass inplace=False and use the result.")
    if wrap or x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(f"fill_diagonal: takes a matrix, or an array with axes of one size, but got shape {x.shape}.")
    places = np.arange(min(x.shape))
    values = listed(val, "fill_diagonal")
    if values.ndim:
        flat = movement.reshape_to(values, (values.size,))
        values = read(flat, places % values.size, None, None)
    return Update(x, (places,) * x.ndim).set(values, unique_indices=True)
