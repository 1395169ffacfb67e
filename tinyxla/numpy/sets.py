"""Sets of values. How many there are decides shapes, so values must be known (or `size` given)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    array_of,
    broadcast_to_shape,
    canonical_axes,
    cast,
    check_memory,
    count_of,
    listed,
    promoted,
)
from tinyxla.numpy.creation import arange, full, ones, zeros
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.take_where import take, where
from tinyxla.numpy.indexing.tricks import nonzero
from tinyxla.numpy.joining import concatenate
from tinyxla.numpy.manipulation import moveaxis, ravel, reshape
from tinyxla.numpy.operations import movement
from tinyxla.numpy.reductions import any, cumsum, sum
from tinyxla.numpy.sorting import argsort, searchsorted
from tinyxla.shapes import element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.promotion import default_int
from tinyxla.util.tracebacks import boundary


def _known(what: str, x: Array) -> np.ndarray[Any, Any]:
    """The values, narrow floats as float32: NumPy orders no NaN of types that are not its own."""
    if not x.size:  # whose values are known by its shape
        return np.zeros(x.shape, x.dtype)
    values = np.asarray(x.primal(f"{what}, whose result's shape depends on values,").buffer())
    kind = element_type(x.dtype)
    return values.astype(np.float32) if kind.kind == "float" and kind.bits < 32 else values


def _elements(values: np.ndarray[Any, Any], x: Array, known: np.ndarray[Any, Any]) -> Array:
    """The elements of x that have these values, with their derivatives where x is traced."""
    if isinstance(x, ConcreteArray):
        return ConcreteArray(values.astype(x.dtype))
    order = np.argsort(known, axis=None, kind="stable")
    return ravel(x)[order[np.searchsorted(known.ravel(), values, sorter=order)]]


@overload
def unique(
    ar: ArrayLike,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Array: ...
@overload
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any: ...
@boundary
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The distinct values in ascending order, and where they are, as in NumPy.

    With `size` the result has that many: what is too many is left out, and what is missing is `fill_value` (or the
    smallest; of slices along an axis, a slice or a number). Then the values need not be known.

    Args:
        ar: an array.
        return_index, return_inverse, return_counts: whether to return the first position of each value, the value of
            each element, and how often each occurs.
        axis: the axis along which slices are compared; None for elements.
        equal_nan: whether NaNs are one value.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.
        sorted: accepted for compatibility: values are sorted in any case.

    Returns:
        The values, and what else is asked for.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.
        AxisError: an axis that the array does not have.
        ArgumentError: a `size` but no `fill_value` for an array without elements.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unique(jnp.array([3, 1, 3]))
        Array([1, 3], dtype=int32)
    """
    given: Any = array_of(ar, "unique")
    axis = None if axis is None else canonical_axis(axis, given.ndim, "unique")
    if size is not None and given.size and not isinstance(given, ConcreteArray):
        found = _unique_of_size(given, axis, size, fill_value, equal_nan)
        wanted = (True, return_index, return_inverse, return_counts)
        results = tuple(array for array, is_wanted in zip(found, wanted, strict=True) if is_wanted)
        return results[0] if len(results) == 1 else results
    x = _known("unique", given)
    if axis is not None and equal_nan and element_type(x.dtype).is_inexact:
        values, index, inverse, counts = _unique_slices(x, axis)
    else:
        values, index, inverse, counts = np.unique(x, True, True, True, axis, equal_nan=equal_nan)
    along, distinct = 0 if axis is None else axis, index.size
    if size is not None:
        size = count_of("unique", "size", size)
        check_memory("unique", (*values.shape[:along], size, *values.shape[along:][1:]))
        missing = max(size - values.shape[along], 0)
        first = _filling(values, along, missing, fill_value)
        shape = list(values.shape)
        shape[along] = missing
        values = np.concatenate([values, np.broadcast_to(first, shape)], along).take(range(size), along)
        index = np.concatenate([index, np.full(missing, index[0] if index.size else 0)])[:size]
        counts = np.concatenate([counts, np.zeros(missing, counts.dtype)])[:size]
    integer = default_int()
    parts: list[Any] = [_distinct(given, axis, values, index, distinct if fill_value is not None else index.size)]
    for wanted, found in ((return_index, index), (return_inverse, inverse), (return_counts, counts)):
        if wanted:
            parts.append(ConcreteArray(found.astype(integer)))
    return parts[0] if len(parts) == 1 else tuple(parts)


def _filling(values: np.ndarray[Any, Any], along: int, missing: int, fill_value: Any) -> np.ndarray[Any, Any]:
    """What takes the place of missing values: the first one unless it is given."""
    if fill_value is not None:
        first = np.asarray(fill_value, values.dtype)
        return np.expand_dims(first, along) if first.ndim else first
    if missing and not values.shape[along]:
        raise ArgumentError(f"unique: there is no value to fill {missing} places with; give `fill_value`.")
    return values.take(range(min(1, values.shape[along])), along)


def _unique_slices(x: np.ndarray[Any, Any], axis: int) -> tuple[np.ndarray[Any, Any], ...]:
    """`np.unique` along an axis, for which all NaNs are one value: of integers in the order of the floats."""
    parts = np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x[..., None]
    parts = parts.astype(np.promote_types(parts.dtype, np.float32)) + 0.0  # one zero for both
    parts[np.isnan(x)] = np.nan
    bits = parts.view(np.int64 if parts.dtype == np.float64 else np.int32)
    keys = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    along = axis % x.ndim
    _, index, inverse, counts = np.unique(keys, True, True, True, along)
    return np.take(x, index, along), index, inverse, counts


def _distinct(x: Array, axis: int | None, values: np.ndarray[Any, Any], index: Any, distinct: int) -> Array:
    """The distinct values, of which `index` says where they are along an axis, with their derivatives where x is
    traced; those after the first `distinct` are constants."""
    if isinstance(x, ConcreteArray) or not x.size:  # or has no elements to take
        return ConcreteArray(values.astype(x.dtype))
    along = 0 if axis is None else axis % x.ndim
    found = (ravel(x) if axis is None else x)[(slice(None),) * along + (index,)]
    is_found = np.arange(index.size).reshape((-1,) + (1,) * (found.ndim - along - 1)) < distinct
    return found if distinct >= index.size else where(is_found, found, values.astype(x.dtype))


def _unique_of_size(x: Any, axis: int | None, size: int, fill_value: Any, equal_nan: bool) -> tuple[Any, Any, Any, Any]:
    """Values (or slices along an axis), their first places, the number of each one's value, and counts: a value begins
    where, in order, an element differs from the one before."""
    lines = ravel(x) if axis is None else moveaxis(x, axis, 0)
    count = lines.shape[0]
    columns = reshape(lines, (count, -1))
    order = arange(count)
    for k in range(columns.shape[1] - 1, -1, -1):  # the first column counts most, and sorting is stable
        order = order[_ascending(columns[order, k])]
    first = _begins(lines[order], equal_nan)
    (begins,) = nonzero(first, size=size + 1, fill_value=count)
    there = begins[:-1] < count
    places = order[where(there, begins[:-1], 0)]
    values = lines[places]
    if fill_value is not None:
        there = reshape(there, (-1, *[1] * (lines.ndim - 1)))
        fill = array_of(fill_value, "unique").astype(x.dtype)
        values = where(there, values, broadcast_to_shape("unique", fill, values.shape))
    inverse = zeros(count, begins.dtype).at[order].set(cumsum(first, dtype=begins.dtype) - 1)
    inverse = reshape(inverse, x.shape) if axis is None else inverse
    return values if axis is None else moveaxis(values, 0, axis), places, inverse, begins[1:] - begins[:-1]


def _ascending(flat: Any) -> Any:
    """`argsort` in NumPy's order of complex numbers: those with a NaN come last, of which first those whose imaginary
    part is NaN, then those whose real part is, then those of which both are."""
    order = argsort(flat)
    if element_type(flat.dtype).kind != "complex":
        return order
    parts = [arith.isnan(part).astype(np.int8) for part in (arith.real(flat), arith.imag(flat))]
    return order[argsort((2 * parts[0] + parts[1])[order])]


class UniqueAll(NamedTuple):
    """The distinct values, where each occurs first, where each element is among them, and how often each occurs."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The distinct values, and how often each occurs."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The distinct values, and where each element is among them."""

    values: Array
    inverse_indices: Array


@boundary
def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """The distinct values in ascending order, and all about them; NaNs are distinct.

    Args:
        x: an array.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        The values, their first positions, the value of each element, and the counts.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unique_all(jnp.array([3, 1, 3])).counts
        Array([1, 2], dtype=int32)
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


@boundary
def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """The distinct values in ascending order, and how often each occurs; NaNs are distinct.

    Args:
        x: an array.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        The values and the counts.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unique_counts(jnp.array([3, 1, 3])).counts
        Array([1, 2], dtype=int32)
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


@boundary
def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """The distinct values in ascending order, and where each element is among them; NaNs are distinct.

    Args:
        x: an array.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        The values, and the value of each element.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices
        Array([1, 0, 1], dtype=int32)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


@boundary
def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The distinct values in ascending order; NaNs are distinct.

    Args:
        x: an array.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        A vector.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.unique_values(jnp.array([3, 1, 3]))
        Array([1, 3], dtype=int32)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


@boundary
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """For each element, whether it is among others; `method` is not used.

    Args:
        element, test_elements: arrays.
        assume_unique: whether the values of each array are distinct.
        invert: whether to return where it is not.
        method: accepted for compatibility.

    Returns:
        Booleans, of the shape of `element`.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([2, 3]))
        Array([False,  True,  True], dtype=bool)
    """
    (x, others), _ = promoted("isin", array_of(element, "isin"), array_of(test_elements, "isin"))
    flat = movement.reshape_to(others, (1,) * x.ndim + (others.size,))
    found = any(arith.equal(movement.reshape_to(x, (*x.shape, 1)), flat), -1)
    return arith.logical_not(found) if invert else found


def _combined(function: Any, ar1: ArrayLike, ar2: ArrayLike, *options: Any) -> tuple[Array, tuple[Any, ...]]:
    """What a function of NumPy's makes of two sets: their elements, and what else it gives."""
    what = function.__name__
    (x, y), _ = promoted(what, array_of(ar1, what), array_of(ar2, what))
    both = concatenate([ravel(x), ravel(y)])
    known = _known(what, both)
    found = function(known[: x.size], known[x.size :], *options)
    values, *others = found if isinstance(found, tuple) else (found,)
    return _elements(values, both, known), tuple(others)


def _begins(ordered: Any, equal_nan: bool = True) -> Any:
    """Whether an element (or row) of a sorted array differs from the one before; NaN is one value if `equal_nan`."""
    differs = arith.not_equal(ordered[1:], ordered[:-1])
    if equal_nan:
        numbers = arith.equal(ordered, ordered)
        differs = arith.logical_and(differs, arith.logical_or(numbers[1:], numbers[:-1]))
    return concatenate([ones(1, bool), any(differs, tuple(range(1, ordered.ndim)))])[: ordered.shape[0]]


def _ordered(x: Any) -> Any:
    """The elements of an array in NumPy's order."""
    return ravel(x)[_ascending(ravel(x))]


def _chosen(what: str, ordered: Any, kept: Any, size: int, fill_value: Any) -> Array:
    """The elements that are kept, `size` of them; what is missing is `fill_value`, or the first one, or 0 if there is
    none."""
    if not ordered.size:
        return full(size, 0 if fill_value is None else fill_value, ordered.dtype)
    (places,) = nonzero(kept, size=size, fill_value=ordered.size)
    there = arith.less(places, ordered.size)
    values = ordered[where(there, places, 0)]
    values = where(there, values, full((), 0, values.dtype))
    return where(there, values, values[:1] if fill_value is None else array_of(fill_value, what).astype(values.dtype))


@boundary
def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The distinct values of two arrays in ascending order; `size` of them, as in `unique`.

    Args:
        ar1, ar2: arrays, which are flattened.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        A vector.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.union1d(jnp.array([1, 2]), jnp.array([2, 3]))
        Array([1, 2, 3], dtype=int32)
    """
    if size is not None:
        (x, y), _ = promoted("union1d", *(ravel(array_of(a, "union1d")) for a in (ar1, ar2)))
        return unique(concatenate([x, y]), size=size, fill_value=fill_value)
    return _combined(np.union1d, ar1, ar2)[0]


@boundary
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The distinct values that two arrays both have, in ascending order, and where they are in each; or `size` values,
    as in `unique`. Of places that are missing, the index is the size of the array.

    Args:
        ar1, ar2: arrays, which are flattened.
        assume_unique: whether the values of each array are distinct.
        return_indices: whether to return the positions in both arrays, too.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        A vector; with `return_indices` also two vectors of integers.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([2, 3, 4]))
        Array([2, 3], dtype=int32)
    """
    if size is not None:
        (x, y), _ = promoted("intersect1d", *(ravel(array_of(a, "intersect1d")) for a in (ar1, ar2)))
        ordered = _ordered(concatenate([x, y]))
        kept = arith.logical_and(_begins(ordered), arith.logical_and(isin(ordered, x), isin(ordered, y)))
        values = _chosen("intersect1d", ordered, kept, size, fill_value)
        return (values, *_indices_of_common(ar1, ar2, values)) if return_indices else values
    values, places = _combined(np.intersect1d, ar1, ar2, assume_unique, return_indices)
    return (values, *(ConcreteArray(i.astype(default_int())) for i in places)) if return_indices else values


def _indices_of_common(ar1: ArrayLike, ar2: ArrayLike, values: Array) -> list[Array]:
    """The first indices in two arrays of the values that both have, of which the first ones in `values` are all."""
    (x, y), _ = promoted("intersect1d", *(ravel(array_of(a, "intersect1d")) for a in (ar1, ar2)))
    ordered = _ordered(x)
    count = sum(cast(arith.logical_and(_begins(ordered), isin(ordered, y)), default_int()))
    is_value = arith.less(np.arange(values.shape[0], dtype=np.int32), cast(count, np.dtype(np.int32)))
    found: list[Array] = []
    for a in (x, y):
        order = argsort(a)
        place = searchsorted(take(a, order, mode="clip"), values)
        missing = cast(array_of(a.size, "intersect1d"), default_int(), False)
        found.append(where(is_value, take(order, place, mode="clip"), missing))
    return found


@boundary
def setdiff1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The distinct values of the first array that the second has not, in ascending order; or `size` of them, and
    `fill_value` (0) for what is missing.

    Args:
        ar1, ar2: arrays, which are flattened.
        assume_unique: whether the values of each array are distinct.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        A vector.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.setdiff1d(jnp.array([1, 2, 3]), jnp.array([2]))
        Array([1, 3], dtype=int32)
    """
    x = ravel(array_of(ar1, "setdiff1d"))  # which keeps its type, whatever that of the second array is
    if size is not None:
        values = x if assume_unique else _ordered(x)
        kept = isin(values, ar2, invert=True)
        kept = kept if assume_unique else arith.logical_and(_begins(values), kept)
        return _chosen("setdiff1d", values, kept, size, 0 if fill_value is None else fill_value)
    known = _known("setdiff1d", x)
    kept = known[_known("setdiff1d", isin(x, ar2, invert=True))]
    return _elements(kept if assume_unique else np.unique(kept), x, known)


@boundary
def setxor1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The distinct values that one of two arrays has, in ascending order; `size` of them, as in `unique`.

    Args:
        ar1, ar2: arrays, which are flattened.
        assume_unique: whether the values of each array are distinct.
        size: the number of values of the result, where it would depend on values.
        fill_value: what takes the place of missing values.

    Returns:
        A vector.

    Raises:
        ConcretizationError: a traced array without `size`: the size of the result depends on its values.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3]))
        Array([1, 3], dtype=int32)
    """
    if size is not None:
        (x, y), _ = promoted("setxor1d", *(array_of(a, "setxor1d") for a in (ar1, ar2)))
        if assume_unique:
            ordered = _ordered(concatenate([ravel(x), ravel(y)]))
            begins = _begins(ordered, equal_nan=False)
            ends = concatenate([begins[1:], ones(1, bool)])[: ordered.size]
            return _chosen("setxor1d", ordered, arith.logical_and(begins, ends), size, fill_value)
        x, y = _ordered(x), _ordered(y)
        values = concatenate([x, y])
        kept = [arith.logical_and(_begins(a), isin(a, b, invert=True)) for a, b in ((x, y), (y, x))]
        order = _ascending(values)
        return _chosen("setxor1d", values[order], concatenate(kept)[order], size, fill_value)
    return _combined(np.setxor1d, ar1, ar2, assume_unique)[0]


@boundary
def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Axis = None) -> Array:
    """An array without what is zero at the front (`f`) and the back (`b`) of axes, of all if None.

    Args:
        filt: an array.
        trim: "f", "b" or "fb".
        axis: an axis, or several.

    Returns:
        An array.

    Raises:
        ConcretizationError: a traced array: the size of the result depends on its values.
        ArgumentError: `trim` that is not made of f and b.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.trim_zeros(jnp.array([[0, 0, 0], [0, 3, 0]]))
        Array([[3]], dtype=int32)
    """
    x = listed(filt, "trim_zeros")
    if set(trim) - set("fbFB"):
        raise ArgumentError(f"trim_zeros: trim is made of 'f' and 'b', but got {trim!r}.")
    axes = canonical_axes("trim_zeros", axis, x.ndim)
    places = np.argwhere(_known("trim_zeros", x))
    index = [slice(None)] * x.ndim
    for d in axes:
        start = int(places[:, d].min()) if len(places) and "f" in trim.lower() else 0
        stop = int(places[:, d].max()) + 1 if len(places) and "b" in trim.lower() else x.shape[d]
        index[d] = slice(start, stop) if len(places) else slice(0)
    return x[tuple(index)]
