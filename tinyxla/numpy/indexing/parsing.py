"""What an index says: its entries, and which places of each axis they pick.

Indices are NumPy's: integers, slices, `None`, `...`, integer arrays and boolean masks, mixed as there. Negative ones
count from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import (
    ArgumentError,
    IndexTypeError,
    NonConcreteBooleanIndexError,
    NonConcreteSliceError,
    OutOfBoundsError,
)
from tinyxla.numpy.arguments import array_of, broadcast_shapes, promoted
from tinyxla.numpy.operations import movement
from tinyxla.shapes import element_type
from tinyxla.shapes.symbolic import is_symbolic, length, may_exceed, slice_indices
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.promotion import as_array

Ints = tuple[int, ...]

# --- entries ----------------------------------------------------------------------------------------------------------


class New:
    """An index entry for a new axis."""


class Picked(NamedTuple):
    """An index entry that picks places along an axis by an array of integers."""

    places: Any  # a NumPy array if its values are known, else a traced array
    known: bool


class MaskAxis(NamedTuple):
    """The places along one axis of a mask, which has that size."""

    places: Any
    size: int


Entry = slice | int | Picked | New
NEW = New()


def _is_scalar_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _entry(value: Any) -> Sequence[Entry | MaskAxis | bool]:
    """An index entry; a boolean mask becomes one entry for each of its axes."""
    if value is None:
        return [NEW]
    if _is_scalar_bool(value):
        return [bool(value)]
    if isinstance(value, slice):
        return [_static_slice(value)]
    as_traced = config.out_of_bounds_indices == "trace"
    if isinstance(value, (int, np.integer)):
        return [Picked(as_array(value), False)] if as_traced else [int(value)]
    if isinstance(value, (str, bytes)):
        raise IndexTypeError(f"indexing: {value!r} is no index; indices are integers, slices and arrays.")
    if isinstance(value, (list, tuple)):
        value = _stacked(value) if _has_arrays(value) else np.asarray(value)
        if value.size == 0 and isinstance(value, np.ndarray):
            value = value.astype(np.int32)
    if not isinstance(value, (Array, np.ndarray)):
        value = array_of(value, "indexing") if not isinstance(value, float) else np.asarray(value)
    if value.dtype.kind == "b":
        if value.ndim == 0:
            return [bool(value)]
        mask = value
        if isinstance(value, Array):
            mask = value.concrete("A boolean mask as an index", NonConcreteBooleanIndexError).buffer()
        return [MaskAxis(places, size) for places, size in zip(np.nonzero(mask), mask.shape, strict=True)]
    if not element_type(value.dtype).is_integer:
        raise IndexTypeError(
            f"indexing: indices are integers or booleans, but got an array of {value.dtype.name}; convert it with "
            "astype(int)."
        )
    if as_traced:
        return [Picked(as_array(value), False)]
    if isinstance(value, np.ndarray):
        return [Picked(value, True)]
    if type(value) is ConcreteArray:
        return [Picked(np.asarray(value.buffer()), True)]
    return [Picked(value, False)]


def _has_arrays(values: Any) -> bool:
    """Whether nested sequences have an array of the library, which may be traced, in them."""
    return isinstance(values, Array) or (isinstance(values, (list, tuple)) and any(map(_has_arrays, values)))


def _stacked(values: Sequence[Any]) -> Any:
    parts = [_stacked(v) if isinstance(v, (list, tuple)) and v else array_of(v, "indexing") for v in values]
    arrays, _ = promoted("indexing", *parts)
    rows = [movement.reshape_to(v, (1, *v.shape)) for v in arrays]
    return movement.concatenate(*rows, dimension=0)


def _static_slice(value: slice) -> slice:
    """A slice with Python integers."""

    def part(bound: Any) -> int | None:
        if bound is None or type(bound) is int or is_symbolic(bound):
            return bound
        if isinstance(bound, Array):
            what = "A slice bound (for a slice of fixed size at a traced place use lax.dynamic_slice)"
            bound = bound.concrete(what, NonConcreteSliceError)
        try:
            return bound.__index__()
        except (AttributeError, TypeError):
            raise IndexTypeError(f"indexing: a slice bound is an integer or None, but got {bound!r}.") from None

    if value.step is not None and part(value.step) == 0:
        raise ArgumentError("indexing: a slice has the step 0; it must be positive or negative.")
    return slice(part(value.start), part(value.stop), part(value.step))


def _refuse_list(index: list[Any]) -> None:
    apart = (list, tuple, slice, type(None), type(Ellipsis))  # what NumPy once took for the indices of several axes
    several = any(isinstance(e, apart) or (isinstance(e, (np.ndarray, Array)) and e.ndim) for e in index)
    meant = "x[tuple(index)]" if several else "x[array(index)]"
    raise IndexTypeError(
        f"indexing: a list is no index where list_indices is 'refuse', but got {index!r}; write {meant}."
    )


def entries_of(x: Any, index: Any) -> tuple[Any, list[Entry]]:
    """The array, with new axes for plain True and False, and one entry for each of its axes (or a new axis)."""
    if isinstance(index, list) and config.list_indices == "refuse":
        _refuse_list(index)
    given = index if isinstance(index, tuple) else (index,)
    found: list[Any] = []
    ellipsis: int | None = None
    for value in given:
        if value is Ellipsis:
            if ellipsis is not None:
                raise ArgumentError("indexing: an index has at most one ellipsis (...).")
            ellipsis = len(found)
        else:
            found.extend(_entry(value))
    used = sum(not (e is NEW or isinstance(e, bool)) for e in found)
    if used > x.ndim:
        raise OutOfBoundsError(f"indexing: {used} indices are too many for an array of shape {x.shape}.")
    ellipsis = len(found) if ellipsis is None else ellipsis
    entries = [*found[:ellipsis], *[slice(None)] * (x.ndim - used), *found[ellipsis:]]
    return _with_axes_for_booleans(x, entries)


def _with_axes_for_booleans(x: Any, entries: list[Any]) -> tuple[Any, list[Entry]]:
    sizes: list[int] = []
    d = 0
    for k, e in enumerate(entries):
        if isinstance(e, bool):
            sizes.append(1)
            entries[k] = Picked(np.zeros(int(e), np.int32), True)
        elif e is not NEW:
            size = x.shape[d]
            if isinstance(e, MaskAxis):
                if e.size != size:
                    raise OutOfBoundsError(
                        f"indexing: a boolean mask has size {e.size} where the array of shape {x.shape} has {size}."
                    )
                entries[k] = Picked(e.places, True)
            sizes.append(size)
            d += 1
    return movement.reshape_to(x, tuple(sizes)), entries


class Span(NamedTuple):
    """A slice of an axis of known size: `size` elements from `start`, `step` apart (negative: downwards)."""

    start: int
    size: int
    step: int

    @staticmethod
    def of(entry: slice | int, size: int, axis: int, shape: Ints) -> Span:
        if isinstance(entry, slice):
            start, stop, step = slice_indices(entry, size)
            return Span(start, length(start, stop, step), step)
        return Span(in_range(entry, size, axis, shape), 1, 1)

    def is_whole(self, size: int) -> bool:
        return self.size == size and (self.step == 1 or not may_exceed(size, 1))

    @property
    def low(self) -> int:
        """The lowest place."""
        return self.start + (self.size - 1) * self.step if self.step < 0 and may_exceed(self.size, 0) else self.start


def in_range(index: int, size: int, axis: int, shape: Ints) -> int:
    if not -size <= index < size:
        raise OutOfBoundsError(
            f"indexing: index {index} is out of range for axis {axis} of size {size}, of an array of shape {shape}."
        )
    return index % size


# --- what it picks ----------------------------------------------------------------------------------------------------


def spans_of(x: Any, entries: list[Entry]) -> tuple[list[Span], Ints]:
    """An index without arrays: the slices of all axes, and the shape of the result."""
    spans: list[Span] = []
    shape: list[int] = []
    for e in entries:
        if isinstance(e, New):
            shape.append(1)
            continue
        assert isinstance(e, (slice, int))
        span = Span.of(e, x.shape[len(spans)], len(spans), x.shape)
        if isinstance(e, slice):
            shape.append(span.size)
        spans.append(span)
    return spans, tuple(shape)


class Layout(NamedTuple):
    """An index with arrays: the slices of the other axes, the arrays, and where their axes stand in the result."""

    spans: list[Span]  # of all axes; whole where an array picks
    axes: Ints  # those that arrays pick from
    picked: list[Picked]
    batch: Ints  # the arrays' common shape
    before: int  # how many sliced axes stand before the batch in the result
    shape: Ints  # of the result, with new axes


def layout_of(x: Any, entries: list[Entry]) -> Layout:
    spans: list[Span] = []
    axes: list[int] = []
    picked: list[Picked] = []
    stands: list[int] = []  # where in the index the arrays are
    sizes: list[tuple[int, bool]] = []  # of the other axes of the result, and whether they come of slices
    firsts = 0
    d = 0
    for k, e in enumerate(entries):
        if isinstance(e, New):
            sizes.append((1, False))
            continue
        size = x.shape[d]
        if isinstance(e, slice):
            span = Span.of(e, size, d, x.shape)
            spans.append(span)
            sizes.append((span.size, True))
        else:
            if isinstance(e, int):
                e = Picked(np.asarray(in_range(e, size, d, x.shape)), True)
            if not stands:
                firsts = len(sizes)
            stands.append(k)
            axes.append(d)
            picked.append(e)
            spans.append(Span(0, size, 1))
        d += 1
    if stands[-1] - stands[0] != len(stands) - 1:
        firsts = 0  # arrays that do not stand together come first in the result
    batch = broadcast_shapes("indexing", *(p.places.shape for p in picked))
    before = sum(of_slice for _, of_slice in sizes[:firsts])
    whole = [n for n, _ in sizes]
    return Layout(spans, tuple(axes), picked, batch, before, (*whole[:firsts], *batch, *whole[firsts:]))
