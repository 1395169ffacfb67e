"""Indexing: `x[index]`, updated copies `x.at[index].set(y)`, and functions that pick elements by index.

Indices are NumPy's: integers, slices, `None`, `...`, integer arrays and boolean masks, mixed as there. Negative ones
count from the end. An index that is known to be out of range is an error; one that is only known inside a compiled
function reads the nearest element, and an update there is left out (JAX's rules), unless `mode` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, OutOfBoundsError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.numpy import arithmetic as arith
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    constant,
    eager,
    like,
    operand,
    promoted,
    type_of,
    value_of,
)
from tinyxla.numpy.operations import indexing_ops, movement, ops, reduction
from tinyxla.numpy.reductions import cumsum
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import state

Ints = tuple[int, ...]
MODES = (None, "fill", "drop", "clip", "wrap", "promise_in_bounds")

# --- what an index says -----------------------------------------------------------------------------------------------


class _New:
    """An index entry for a new axis."""


class _Picked(NamedTuple):
    """An index entry that picks places along an axis by an array of integers."""

    places: Any  # a NumPy array if its values are known, else a traced array
    known: bool


class _MaskAxis(NamedTuple):
    """The places along one axis of a mask, which has that size."""

    places: Any
    size: int


_Entry = slice | int | _Picked | _New
_NEW = _New()


def _is_scalar_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _entry(value: Any) -> Sequence[_Entry | _MaskAxis | bool]:
    """An index entry; a boolean mask becomes one entry for each of its axes."""
    if value is None:
        return [_NEW]
    if _is_scalar_bool(value):
        return [bool(value)]
    if isinstance(value, slice):
        return [_static_slice(value)]
    if isinstance(value, (int, np.integer)):
        return [int(value)]
    if isinstance(value, (str, bytes)):
        raise DTypeError(f"indexing: {value!r} is no index; indices are integers, slices and arrays.")
    if isinstance(value, (list, tuple)):
        value = np.asarray(value) if not any(isinstance(v, Array) for v in value) else _stacked(value)
        if value.size == 0 and isinstance(value, np.ndarray):
            value = value.astype(np.int32)
    if not isinstance(value, (Array, np.ndarray)):
        value = array_of(value, "indexing") if not isinstance(value, float) else np.asarray(value)
    if value.dtype.kind == "b":
        if value.ndim == 0:
            return [bool(value)]
        mask = value.concrete("A boolean mask as an index").numpy() if isinstance(value, Array) else value
        return [_MaskAxis(places, size) for places, size in zip(np.nonzero(mask), mask.shape, strict=True)]
    if not element_type(value.dtype).is_integer:
        raise DTypeError(
            f"indexing: indices are integers or booleans, but got an array of {value.dtype.name}; convert it with "
            "astype(int)."
        )
    if isinstance(value, np.ndarray):
        return [_Picked(value, True)]
    if type(value) is ConcreteArray:
        return [_Picked(np.asarray(value.numpy()), True)]
    return [_Picked(value, False)]


def _stacked(values: Sequence[Any]) -> Any:
    parts = [array_of(v, "indexing") for v in values]
    arrays, _ = promoted("indexing", *parts)
    rows = [movement.reshape_to(v, (1, *v.shape)) for v in arrays]
    return movement.concatenate(*rows, dimension=0)


def _static_slice(value: slice) -> slice:
    """A slice with Python integers."""

    def part(bound: Any) -> int | None:
        if bound is None or type(bound) is int:
            return bound
        if isinstance(bound, Array):
            bound = bound.concrete("A slice bound (for a slice of fixed size at a traced place use lax.dynamic_slice)")
        try:
            return bound.__index__()
        except (AttributeError, TypeError):
            raise DTypeError(f"indexing: a slice bound is an integer or None, but got {bound!r}.") from None

    if value.step is not None and part(value.step) == 0:
        raise ArgumentError("indexing: a slice has the step 0; it must be positive or negative.")
    return slice(part(value.start), part(value.stop), part(value.step))


def _entries(x: Any, index: Any) -> tuple[Any, list[_Entry]]:
    """The array, with new axes for plain True and False, and one entry for each of its axes (or a new axis)."""
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
    used = sum(not (e is _NEW or isinstance(e, bool)) for e in found)
    if used > x.ndim:
        raise OutOfBoundsError(f"indexing: {used} indices are too many for an array of shape {x.shape}.")
    ellipsis = len(found) if ellipsis is None else ellipsis
    entries = [*found[:ellipsis], *[slice(None)] * (x.ndim - used), *found[ellipsis:]]
    return _with_axes_for_booleans(x, entries)


def _with_axes_for_booleans(x: Any, entries: list[Any]) -> tuple[Any, list[_Entry]]:
    sizes: list[int] = []
    d = 0
    for k, e in enumerate(entries):
        if isinstance(e, bool):
            sizes.append(1)
            entries[k] = _Picked(np.zeros(int(e), np.int32), True)
        elif e is not _NEW:
            size = x.shape[d]
            if isinstance(e, _MaskAxis):
                if e.size != size:
                    raise OutOfBoundsError(
                        f"indexing: a boolean mask has size {e.size} where the array of shape {x.shape} has {size}."
                    )
                entries[k] = _Picked(e.places, True)
            sizes.append(size)
            d += 1
    return movement.reshape_to(x, tuple(sizes)), entries


class _Span(NamedTuple):
    """A slice of an axis of known size: `size` elements from `start`, `step` apart (negative: downwards)."""

    start: int
    size: int
    step: int

    @staticmethod
    def of(entry: slice | int, size: int, axis: int, shape: Ints) -> _Span:
        if isinstance(entry, slice):
            start, stop, step = entry.indices(size)
            return _Span(start, len(range(start, stop, step)), step)
        return _Span(_in_range(entry, size, axis, shape), 1, 1)

    def is_whole(self, size: int) -> bool:
        return self.size == size and (self.step == 1 or size <= 1)

    @property
    def low(self) -> int:
        """The lowest place."""
        return self.start + (self.size - 1) * self.step if self.step < 0 and self.size else self.start


def _in_range(index: int, size: int, axis: int, shape: Ints) -> int:
    if not -size <= index < size:
        raise OutOfBoundsError(
            f"indexing: index {index} is out of range for axis {axis} of size {size}, of an array of shape {shape}."
        )
    return index % size


# --- slices at known places -------------------------------------------------------------------------------------------


def _read_spans(x: Any, spans: Sequence[_Span]) -> Any:
    if all(span.is_whole(n) for span, n in zip(spans, x.shape, strict=True)):
        return x
    starts = tuple(span.low if span.size else 0 for span in spans)
    limits = tuple(
        low + (span.size - 1) * abs(span.step) + 1 if span.size else 0
        for low, span in zip(starts, spans, strict=True)
    )
    part = movement.slice_(
        x, start_indices=starts, limit_indices=limits, strides=tuple(abs(s.step) if s.size else 1 for s in spans)
    )
    turned = tuple(d for d, span in enumerate(spans) if span.step < 0 and span.size > 1)
    return movement.reverse(part, dimensions=turned) if turned else part


def _write_spans(x: Any, spans: Sequence[_Span], part: Any) -> Any:
    """x with that part replaced."""
    if all(span.is_whole(n) for span, n in zip(spans, x.shape, strict=True)):
        return part
    if not all(span.size for span in spans):
        return x
    turned = tuple(d for d, span in enumerate(spans) if span.step < 0 and span.size > 1)
    if turned:
        part = movement.reverse(part, dimensions=turned)
    if all(abs(span.step) == 1 or span.size == 1 for span in spans):
        starts = [constant(span.low, np.int32) for span in spans]
        return indexing_ops.dynamic_update_slice(x, part, *starts)
    config = tuple(
        (s.low, n - s.low - (s.size - 1) * abs(s.step) - 1, abs(s.step) - 1 if s.size > 1 else 0)
        for s, n in zip(spans, x.shape, strict=True)
    )
    spread = movement.pad(part, constant(0, x.dtype), padding_config=config)
    inside = movement.pad(movement.full(True, np.bool_, part.shape), constant(False, np.bool_), padding_config=config)
    return ops.select(inside, spread, x)


# --- places given by arrays -------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """An index with arrays: the slices of the other axes, the arrays, and where their axes stand in the result."""

    spans: list[_Span]  # of all axes; whole where an array picks
    axes: Ints  # those that arrays pick from
    picked: list[_Picked]
    batch: Ints  # the arrays' common shape
    before: int  # how many sliced axes stand before the batch in the result
    shape: Ints  # of the result, with new axes


def _layout(x: Any, entries: list[_Entry]) -> _Layout:
    spans: list[_Span] = []
    axes: list[int] = []
    picked: list[_Picked] = []
    stands: list[int] = []  # where in the index the arrays are
    sizes: list[tuple[int, bool]] = []  # of the other axes of the result, and whether they come of slices
    firsts = 0
    d = 0
    for k, e in enumerate(entries):
        if isinstance(e, _New):
            sizes.append((1, False))
            continue
        size = x.shape[d]
        if isinstance(e, slice):
            span = _Span.of(e, size, d, x.shape)
            spans.append(span)
            sizes.append((span.size, True))
        else:
            if isinstance(e, int):
                e = _Picked(np.asarray(_in_range(e, size, d, x.shape)), True)
            if not stands:
                firsts = len(sizes)
            stands.append(k)
            axes.append(d)
            picked.append(e)
            spans.append(_Span(0, size, 1))
        d += 1
    if stands[-1] - stands[0] != len(stands) - 1:
        firsts = 0  # arrays that do not stand together come first in the result
    batch = broadcast_shapes("indexing", *(p.places.shape for p in picked))
    before = sum(of_slice for _, of_slice in sizes[:firsts])
    whole = [n for n, _ in sizes]
    return _Layout(spans, tuple(axes), picked, batch, before, (*whole[:firsts], *batch, *whole[firsts:]))


def _places(x: Any, layout: _Layout, mode: str | None) -> list[Any]:
    """The picked places as arrays of one integer type; negative ones count from the end."""
    wide = any(
        x.shape[d] > np.iinfo(np.int32).max or (p.places.dtype.itemsize == 8 and not p.known)
        for d, p in zip(layout.axes, layout.picked, strict=True)
    )
    dtype = np.dtype(np.int64 if wide else np.int32)
    found: list[Any] = []
    for d, p in zip(layout.axes, layout.picked, strict=True):
        size = x.shape[d]
        if p.known:
            places = p.places.astype(np.int64)
            if mode is None and places.size and not (-size <= places.min() and places.max() < size):
                worst = places.max() if places.max() >= size else places.min()
                _in_range(int(worst), size, d, x.shape)
            places = places % max(size, 1) if mode == "wrap" else np.where(places < 0, places + size, places)
            limit = np.iinfo(dtype)
            found.append(ConcreteArray(np.clip(places, limit.min, limit.max).astype(dtype)))
        else:
            found.append(_wrapped(cast(p.places, dtype, False), size, mode))
    return found


def _wrapped(places: Any, size: int, mode: str | None) -> Any:
    if mode == "wrap":
        return arith.remainder(places, max(size, 1))
    negative = ops.lt(places, like(0, places))
    return ops.select(negative, ops.add(places, like(size, places)), places)


def _vectors(places: list[Any], batch: Ints) -> tuple[Any, int]:
    """The places as one array of index vectors, and the dimension along which these run."""
    spread = [broadcast_to_shape("indexing", p, batch) for p in places]
    if len(spread) == 1:
        return spread[0], len(batch)
    rows = [movement.reshape_to(p, (*batch, 1)) for p in spread]
    return movement.concatenate(*rows, dimension=len(batch)), len(batch)


def _offsets(rank: int, layout: _Layout) -> Ints:
    """The dimensions of a gather's result that come of slices."""
    sliced = rank - len(layout.axes)
    return tuple(d + (len(layout.batch) if d >= layout.before else 0) for d in range(sliced))


def _clip(places: Any, limit: int) -> Any:
    return ops.clamp(like(0, places), places, like(limit, places))


def _inside(places: list[Any], sizes: Sequence[int], batch: Ints) -> Any:
    """Where all places are inside the array."""
    result: Any = None
    for p, n in zip(places, sizes, strict=True):
        here = ops.and_(ops.ge(p, like(0, p)), ops.lt(p, like(n, p)))
        here = broadcast_to_shape("indexing", here, batch)
        result = here if result is None else ops.and_(result, here)
    return result


def _check_mode(what: str, mode: Any) -> str | None:
    text = None if mode is None else str(getattr(mode, "name", mode)).lower()
    text = {"fill_or_drop": "fill"}.get(text, text) if text else None
    if text not in MODES:
        raise AttributeValueError(f"{what}: mode is one of {', '.join(map(repr, MODES))}, but got {mode!r}.")
    return text


def _gather(x: Any, layout: _Layout, mode: str | None, fill_value: Any) -> Any:
    places = _places(x, layout, mode)
    x = _read_spans(x, layout.spans)
    sizes = [x.shape[d] for d in layout.axes]
    if math.prod(layout.shape) and not all(sizes) and mode != "fill":
        raise OutOfBoundsError(f"indexing: an axis of the array of shape {x.shape} is empty, so no index is inside.")
    rank = x.ndim
    if layout.batch == () and mode != "fill":  # one place: a slice
        starts = [constant(0, places[0].dtype)] * rank
        for d, p in zip(layout.axes, places, strict=True):
            starts[d] = p
        wanted = tuple(1 if d in layout.axes else n for d, n in enumerate(x.shape))
        return movement.reshape_to(indexing_ops.dynamic_slice(x, *starts, dynamic_slice_sizes=wanted), layout.shape)
    vectors, vector_dim = _vectors(places, layout.batch)
    taken = indexing_ops.gather(
        x,
        vectors,
        **indexing_ops.Gather(
            offset_dims=_offsets(rank, layout),
            collapsed_slice_dims=layout.axes,
            start_index_map=layout.axes,
            index_vector_dim=vector_dim,
            slice_sizes=tuple(min(1, n) if d in layout.axes else n for d, n in enumerate(x.shape)),
        )._asdict(),
    )
    if mode == "fill":
        inside = _inside(places, sizes, layout.batch)
        outer = tuple(range(layout.before, layout.before + len(layout.batch)))
        spread = movement.broadcast(inside, sizes=taken.shape, dimensions=outer)
        value = _fill_value(x.dtype) if fill_value is None else fill_value
        taken = ops.select(spread, taken, like(value_of(cast(operand(value, "indexing"), x.dtype)), taken))
    return movement.reshape_to(taken, layout.shape)


def _fill_value(dtype: np.dtype[Any]) -> Any:
    """NaN; for integers the value that is least likely to be meant."""
    kind = element_type(dtype)
    if kind.is_inexact:
        return np.nan
    if kind.kind == "pred":
        return True
    info = ml_dtypes.iinfo(dtype)
    return int(info.min if kind.kind == "signed" else info.max)


# --- reading ----------------------------------------------------------------------------------------------------------

_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))


def take_index(x: Array, index: Any) -> Array:
    """`x[index]`."""
    if type(x) is ConcreteArray and state.staging is None:
        if type(index) in _BASIC or (type(index) is tuple and _BASIC.issuperset(map(type, index))):
            try:
                return ConcreteArray(x.numpy()[index], x.weak_type)
            except (IndexError, TypeError, ValueError):
                pass  # the long way says what is wrong
    return _read(x, index, None, None)


def _read(x: Array, index: Any, mode: str | None, fill_value: Any) -> Array:
    weak = x.weak_type
    y, entries = _entries(x, index)
    if any(isinstance(e, _Picked) for e in entries):
        layout = _layout(y, entries)
        if eager(y) and mode is None and all(p.known for p in layout.picked):
            return _numpy_read(y, entries, layout, weak)
        return _gather(y, layout, mode, fill_value).with_weak_type(weak)
    spans, shape = _spans(y, entries)
    return movement.reshape_to(_read_spans(y, spans), shape).with_weak_type(weak)


def _numpy_read(x: Any, entries: list[_Entry], layout: _Layout, weak: bool) -> Array:
    _places(x, layout, None)  # they are inside
    index = tuple(e.places if isinstance(e, _Picked) else None if isinstance(e, _New) else e for e in entries)
    return ConcreteArray(np.asarray(x.numpy())[index], weak)


def _spans(x: Any, entries: list[_Entry]) -> tuple[list[_Span], Ints]:
    """An index without arrays: the slices of all axes, and the shape of the result."""
    spans: list[_Span] = []
    shape: list[int] = []
    for e in entries:
        if isinstance(e, _New):
            shape.append(1)
            continue
        assert isinstance(e, (slice, int))
        span = _Span.of(e, x.shape[len(spans)], len(spans), x.shape)
        if isinstance(e, slice):
            shape.append(span.size)
        spans.append(span)
    return spans, tuple(shape)


# --- updated copies ---------------------------------------------------------------------------------------------------


class At:
    """`x.at`: indexed, it gives what updates copies."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Update:
        return Update(self._array, index)

    def __repr__(self) -> str:
        return f"{self._array!r}.at"


class Update:
    """Elements of an array that are to be read or updated: `x.at[index]`.

    All methods but `get` give a new array. Values broadcast to the elements' shape. Where an index names an element
    several times, `add`, `multiply`, `min` and `max` count every time; of `set`, the last one stays.

    Args of all methods:
        mode: what happens at places outside the array: `"drop"` or `"fill"` (updates are left out; `get` gives
            `fill_value`, NaN if there is none), `"clip"` (the nearest place), `"wrap"` (counted around),
            `"promise_in_bounds"` (there are none). Without it, places that are known now must be inside; others read
            the nearest place, and updates there are left out.
        unique_indices: a promise that no element is named twice, which makes gradients cheaper.
        indices_are_sorted: a promise that places ascend.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.zeros(3).at[1].set(5.0)
        Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Array, index: Any) -> None:
        self._array = array
        self._index = index

    def __repr__(self) -> str:
        return f"{self._array!r}.at[{self._index!r}]"

    def get(
        self,
        *,
        mode: Any = None,
        fill_value: Any = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements."""
        found = _check_mode("at[].get", mode)
        return _read(self._array, self._index, "fill" if found == "drop" else found, fill_value)

    def set(self, values: ArrayLike, **options: Any) -> Array:
        """The elements replaced."""
        return self._update("set", lambda x, y: y, lambda t: indexing_ops.replacement(t), values, options)

    def add(self, values: ArrayLike, **options: Any) -> Array:
        """Values added to the elements."""
        return self._update("add", ops.add, lambda t: reduction.scalar_computation("add", t), values, options)

    def subtract(self, values: ArrayLike, **options: Any) -> Array:
        """Values subtracted from the elements."""
        return self.add(arith.negative(values), **options)

    def multiply(self, values: ArrayLike, **options: Any) -> Array:
        """The elements multiplied by values."""
        return self._update("multiply", ops.mul, lambda t: reduction.scalar_computation("multiply", t), values, options)

    mul = multiply

    def divide(self, values: ArrayLike, **options: Any) -> Array:
        """The elements divided by values; of integers the result is in floating point."""
        x = self._array
        (_, y), (dtype, _) = promoted("at[].divide", x, values)
        ones = ConcreteArray(np.ones(x.shape, dtype)) if state.staging is None else movement.full(1, dtype, x.shape)
        divisor = Update(ones, self._index).multiply(y, **options)
        return arith.true_divide(x, divisor).with_weak_type(x.weak_type)

    def power(self, values: ArrayLike, **options: Any) -> Array:
        """The elements to the power of values."""
        mode = options.get("mode")
        return self.set(arith.power(self.get(mode=mode), values), **options)

    def min(self, values: ArrayLike, **options: Any) -> Array:
        """The smaller of elements and values."""
        return self._update("min", ops.min_, lambda t: reduction.scalar_computation("minimum", t), values, options)

    def max(self, values: ArrayLike, **options: Any) -> Array:
        """The larger of elements and values."""
        return self._update("max", ops.max_, lambda t: reduction.scalar_computation("maximum", t), values, options)

    def apply(self, func: Callable[[Array], Any], **options: Any) -> Array:
        """The elements replaced by a function of them; once, also if the index names an element several times."""
        return self.set(func(self.get(mode=options.get("mode"))), **options)

    def _update(
        self,
        name: str,
        combine: Callable[[Any, Any], Any],
        computation: Callable[[Any], Computation],
        values: ArrayLike,
        options: dict[str, Any],
    ) -> Array:
        what = f"at[].{name}"
        mode = _check_mode(what, options.get("mode"))
        unknown = set(options) - {"mode", "indices_are_sorted", "unique_indices", "wrap_negative_indices", "fill_value"}
        if unknown:
            raise ArgumentError(f"{what}: there is no option {', '.join(sorted(unknown))}.")
        x = self._array
        value = operand(values, what) if not isinstance(values, (list, tuple)) else array_of(np.asarray(values), what)
        dtype = x.dtype if name == "set" else promoted(what, x, value)[1][0]
        y = cast(value, dtype)
        wide, entries = _entries(cast(x, dtype), self._index)
        if any(isinstance(e, _Picked) for e in entries):
            layout = _layout(wide, entries)
            y = _fitting(what, y, layout.shape)
            part = _read_spans(wide, layout.spans)
            moved = _scatter(part, layout, y, computation(dtype), mode, options)
            found = _write_spans(wide, layout.spans, moved)
        else:
            spans, shape = _spans(wide, entries)
            old = _read_spans(wide, spans)
            y = movement.reshape_to(_fitting(what, y, shape), old.shape)
            found = _write_spans(wide, spans, combine(old, y))
        result = cast(movement.reshape_to(found, x.shape), x.dtype)
        return result.with_weak_type(x.weak_type)


def _fitting(what: str, y: Any, shape: Ints) -> Any:
    """Values stretched to the shape of the elements; as in NumPy, further axes of size 1 in front are dropped."""
    while y.ndim > len(shape) and y.shape[0] == 1:
        y = movement.reshape_to(y, y.shape[1:])
    try:
        return broadcast_to_shape(what, y, shape)
    except ShapeError:
        raise ShapeError(
            f"{what}: values of shape {y.shape} do not broadcast to the elements' shape {shape}."
        ) from None


def _scatter(
    x: Any, layout: _Layout, y: Any, computation: Computation, mode: str | None, options: dict[str, Any]
) -> Any:
    places = _places(x, layout, mode)
    if mode == "clip":
        places = [_clip(p, max(x.shape[d] - 1, 0)) for d, p in zip(layout.axes, places, strict=True)]
    vectors, vector_dim = _vectors(places, layout.batch)
    sliced = [n for d, n in enumerate(x.shape) if d not in layout.axes]
    sizes = (*sliced[: layout.before], *layout.batch, *sliced[layout.before :])
    return indexing_ops.scatter(
        x,
        vectors,
        movement.reshape_to(y, sizes),
        **indexing_ops.Scatter(
            update_window_dims=_offsets(x.ndim, layout),
            inserted_window_dims=layout.axes,
            scatter_dims_to_operand_dims=layout.axes,
            index_vector_dim=vector_dim,
            to_apply=computation,
            indices_are_sorted=bool(options.get("indices_are_sorted", False)),
            unique_indices=bool(options.get("unique_indices", False)),
        )._asdict(),
    )


# --- functions --------------------------------------------------------------------------------------------------------


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

    `mode` is `"fill"` (`fill_value`, or NaN, where an index is outside; the default for indices that are not known yet),
    `"clip"` or `"wrap"`.
    """
    x = array_of(a, "take")
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    along = canonical_axis(axis, x.ndim, "take")
    chosen = array_of(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices, "take")
    if not element_type(chosen.dtype).is_integer:
        raise DTypeError(f"take: indices are integers, but got an array of {chosen.dtype.name}; convert them.")
    found = _check_mode("take", mode)
    if found is None and type(chosen) is not ConcreteArray:
        found = "fill"
    if found == "clip":
        chosen = arith.maximum(chosen, 0)  # here, as in NumPy, negative places do not count from the end
    return _read(x, (slice(None),) * along + (chosen,), found, fill_value)


def take_along_axis(
    arr: ArrayLike, indices: ArrayLike, axis: int | None = -1, mode: str | None = None, fill_value: Any = None
) -> Array:
    """The elements whose places along an axis `indices` has, one by one: what `argsort` and `argmax` give."""
    x, chosen = array_of(arr, "take_along_axis"), array_of(indices, "take_along_axis")
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    if chosen.ndim != x.ndim:
        raise ShapeError(f"take_along_axis: the array {x.shape} and the indices {chosen.shape} differ in dimensions.")
    along = canonical_axis(axis, x.ndim, "take_along_axis")
    found = _check_mode("take_along_axis", mode)
    if found is None and type(chosen) is not ConcreteArray:
        found = "fill"
    return _read(x, _along(x, chosen, along), found, fill_value)


def _along(x: Any, chosen: Any, along: int) -> tuple[Any, ...]:
    """An index that goes through all other axes in step."""
    entries: list[Any] = []
    for d, n in enumerate(x.shape):
        size = chosen.shape[d] if n == 1 else n
        places = np.zeros(1, np.int32) if n == 1 else np.arange(size, dtype=np.int32)
        entries.append(chosen if d == along else places.reshape([-1 if k == d else 1 for k in range(x.ndim)]))
    return tuple(entries)


def put_along_axis(
    arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None, inplace: bool = False, *, mode: Any = None
) -> Array:
    """A copy with the elements at places along an axis replaced; `inplace=False` says that it is one."""
    x, chosen = array_of(arr, "put_along_axis"), array_of(indices, "put_along_axis")
    if inplace:
        raise ArgumentError("put_along_axis: arrays are immutable; pass inplace=False and use the result.")
    shape = x.shape
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    index = _along(x, chosen, canonical_axis(axis, x.ndim, "put_along_axis"))
    return movement.reshape_to(Update(x, index).set(values, mode=mode), shape)


def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = False) -> Array:
    """A copy with elements of the flattened array replaced; `inplace=False` says that it is one."""
    x = array_of(a, "put")
    if inplace:
        raise ArgumentError("put: arrays are immutable; pass inplace=False and use the result.")
    flat = movement.reshape_to(x, (x.size,))
    places = array_of(np.asarray(ind) if isinstance(ind, (list, tuple)) else ind, "put")
    values = array_of(np.asarray(v) if isinstance(v, (list, tuple)) else v, "put")
    count = places.size
    values = movement.reshape_to(values, (values.size,))
    if values.size and count:
        repeated = _read(values, np.arange(count) % values.size, None, None)
        flat = Update(flat, movement.reshape_to(places, (count,))).set(repeated, mode=mode)
    return movement.reshape_to(flat, x.shape)


def delete(arr: ArrayLike, obj: Any, axis: int | None = None) -> Array:
    """Without the slices at these places of an axis (a static integer, slice, or array of them)."""
    x = array_of(arr, "delete")
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    along = canonical_axis(axis, x.ndim, "delete")
    if isinstance(obj, Array):
        obj = obj.concrete("delete, whose result's shape depends on the places,").numpy()
    try:
        kept = np.delete(np.arange(x.shape[along]), obj)
    except IndexError as error:
        raise OutOfBoundsError(f"delete: {error}.") from None
    return _read(x, (slice(None),) * along + (kept,), None, None)


def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """With values before these places of an axis (a static integer, or several)."""
    x = array_of(arr, "insert")
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    along = canonical_axis(axis, x.ndim, "insert")
    if isinstance(obj, Array):
        obj = obj.concrete("insert, whose result's shape depends on the places,").numpy()
    length = x.shape[along]
    single = np.ndim(obj) == 0 and not isinstance(obj, slice)
    places = np.arange(length)[obj] if isinstance(obj, slice) else np.atleast_1d(np.asarray(obj))
    places = np.where(places < 0, places + length, places)
    y = cast(
        operand(array_of(np.asarray(values), "insert") if isinstance(values, (list, tuple)) else values, "insert"),
        x.dtype,
    )
    outer = (*x.shape[:along], 1, *x.shape[along + 1 :])
    count = places.size
    if single:
        if y.ndim == x.ndim:
            count = y.shape[along]
        else:  # a single place takes values without that axis
            y = broadcast_to_shape("insert", y, outer[:along] + outer[along + 1 :])
            y = movement.reshape_to(y, outer)
            count = 1
        places = np.repeat(places, count)
    y = broadcast_to_shape("insert", y, (*x.shape[:along], count, *x.shape[along + 1 :]))
    both = movement.concatenate(x, y, dimension=along)
    order = np.argsort(np.concatenate([np.arange(length) + 0.5, places]), kind="stable")
    return _read(both, (slice(None),) * along + (order,), None, None)


def choose(a: ArrayLike, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """Element by element, the choice of that number."""
    chosen = array_of(a, "choose")
    arrays, _ = promoted("choose", *(array_of(c, "choose") for c in choices))
    shape = broadcast_shapes("choose", chosen.shape, *(c.shape for c in arrays))
    rows = [movement.reshape_to(broadcast_to_shape("choose", c, shape), (1, *shape)) for c in arrays]
    stacked = movement.concatenate(*rows, dimension=0)
    number = movement.reshape_to(broadcast_to_shape("choose", chosen, shape), (1, *shape))
    found = _read(stacked, _along(stacked, number, 0), _check_mode("choose", None if mode == "raise" else mode), None)
    return movement.reshape_to(found, shape)


def extract(condition: ArrayLike, arr: ArrayLike) -> Array:
    """The elements where a condition, whose values are known, is true."""
    return compress(_flat(condition, "extract"), arr)


def _flat(a: ArrayLike, what: str) -> Array:
    x = array_of(np.asarray(a) if isinstance(a, (list, tuple)) else a, what)
    return movement.reshape_to(x, (x.size,))


def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None, out: None = None) -> Array:
    """The slices along an axis where a condition, whose values are known, is true."""
    x = array_of(a, "compress")
    if axis is None:
        x, axis = movement.reshape_to(x, (x.size,)), 0
    along = canonical_axis(axis, x.ndim, "compress")
    known = _flat(condition, "compress").concrete("compress, whose result's shape depends on the condition,").numpy()
    places = np.flatnonzero(known)
    return _read(x, (slice(None),) * along + (places,), None, None)


# --- where things are -------------------------------------------------------------------------------------------------


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
        return ConcreteArray(np.where(value_of(mask), value_of(a), value_of(b)), weak)
    shape = broadcast_shapes("where", mask.shape, a.shape, b.shape)
    mask, a, b = (broadcast_to_shape("where", v, shape) for v in (mask, a, b))
    return ops.select(mask, a, b).with_weak_type(weak)


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """Element by element, the choice of the first condition that is true, else the default."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(f"select: {len(condlist)} conditions do not fit {len(choicelist)} choices.")
    choices, (_, weak) = promoted("select", *choicelist, default)
    result = choices[-1]
    for condition, choice in reversed(list(zip(condlist, choices[:-1], strict=True))):
        result = where(condition, choice, result)
    return result.with_weak_type(weak)


def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Element by element, the function (or number) of the last condition that is true; one more of them is for none."""
    x = array_of(x, "piecewise")
    conditions = [condlist] if not isinstance(condlist, (list, tuple)) else list(condlist)  # pyright: ignore
    functions = list(funclist)
    if len(functions) == len(conditions):
        functions.append(0)
    if len(functions) != len(conditions) + 1:
        raise ArgumentError(f"piecewise: {len(funclist)} functions do not fit {len(conditions)} conditions.")

    def value(f: Any) -> Array:
        found = f(x, *args, **kw) if callable(f) else f
        return broadcast_to_shape("piecewise", cast(operand(found, "piecewise"), x.dtype), x.shape)

    result = value(functions[-1])
    for condition, f in zip(conditions, functions[:-1], strict=True):
        result = where(condition, value(f), result)
    return result


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, one array for each axis.

    How many there are decides the shape, so the values must be known, unless `size` gives it: then surplus indices
    are `fill_value` (0 if not given), and what is too many is left out.
    """
    mask = arith.truth(a, "nonzero")
    if mask.ndim == 0:
        raise ShapeError("nonzero: an array without dimensions has no indices; reshape it to (1,).")
    if size is None:
        known = np.asarray(mask.concrete("nonzero, whose result's shape depends on values (or give `size`),").numpy())
        return tuple(ConcreteArray(found.astype(_index_type())) for found in np.nonzero(known))
    return _nonzero_of_size(mask, size, fill_value)


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
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * mask.ndim  # pyright: ignore
    filled = ops.lt(
        movement.iota(shape=Shape(element_type(dtype), (size,)), iota_dimension=0),
        movement.broadcast(count, sizes=(size,), dimensions=()),
    )
    for d, fill in zip(range(mask.ndim), fills, strict=True):
        places = movement.iota(shape=Shape(element_type(dtype), mask.shape), iota_dimension=d)
        zeros: Any = movement.full(0, dtype, (size,))
        found = Update(zeros, slot).set(movement.reshape_to(places, (mask.size,)), mode="drop")
        results.append(ops.select(filled, found, movement.full(0 if fill is None else int(fill), dtype, (size,))))
    return tuple(results)


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of the elements of the flattened array that are not zero."""
    return nonzero(_flat(a, "flatnonzero"), size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of the elements that are not zero, one row for each."""
    x = array_of(a, "argwhere")
    if x.ndim == 0:
        count = int(bool(x))
        return ConcreteArray(np.zeros((count, 0), _index_type()))
    columns = nonzero(x, size=size, fill_value=fill_value)
    rows = [movement.reshape_to(c, (c.size, 1)) for c in columns]
    return movement.concatenate(*rows, dimension=1)


def unravel_index(indices: ArrayLike, shape: Any) -> tuple[Array, ...]:
    """Row-major places in an array of that shape as one index for each axis; those outside are moved inside."""
    places = array_of(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices, "unravel_index")
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    total = math.prod(sizes)
    places = arith.clip(places, -total, max(total - 1, 0))
    places = where(arith.less(places, 0), arith.add(places, total), places)
    found: list[Array] = []
    for n in reversed(sizes):
        found.append(arith.remainder(places, n))
        places = arith.floor_divide(places, n)
    return tuple(reversed(found))


def ravel_multi_index(
    multi_index: Sequence[ArrayLike], dims: Sequence[int], mode: str = "raise", order: str = "C"
) -> Array:
    """Indices for each axis as row-major places (column-major for `order="F"`)."""
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentError(f"ravel_multi_index: mode is 'raise', 'wrap' or 'clip', but got {mode!r}.")
    arrays = [array_of(np.asarray(i) if isinstance(i, (list, tuple)) else i, "ravel_multi_index") for i in multi_index]
    if len(arrays) != len(dims):
        raise ShapeError(f"ravel_multi_index: {len(arrays)} indices do not fit the shape {tuple(dims)}.")
    pairs = list(zip(arrays, dims, strict=True))
    total: Any = 0
    for d, (i, n) in enumerate(pairs if order == "C" else reversed(pairs)):
        if mode == "raise":
            known = np.asarray(i.concrete("ravel_multi_index with mode='raise'").numpy())
            if ((known < 0) | (known >= n)).any():
                raise OutOfBoundsError(f"ravel_multi_index: indices of axis {d} are not all from 0 to {n - 1}.")
        i = arith.remainder(i, n) if mode == "wrap" else arith.clip(i, 0, n - 1) if mode == "clip" else i
        total = arith.add(arith.multiply(total, n), i)
    return total


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors of indices, each along its own axis, so that they pick the whole grid."""
    found: list[Any] = []
    for k, a in enumerate(args):
        x = array_of(np.asarray(a) if isinstance(a, (list, tuple)) else a, "ix_")
        if x.ndim != 1:
            raise ShapeError(f"ix_: takes arrays of one dimension, but got shape {x.shape}.")
        if x.dtype.kind == "b":
            x = nonzero(x)[0]
        found.append(movement.reshape_to(x, tuple(x.size if d == k else 1 for d in range(len(args)))))
    return tuple(found)


def _known(arrays: Iterable[np.ndarray[Any, Any]]) -> tuple[Array, ...]:
    return tuple(ConcreteArray(a.astype(_index_type())) for a in arrays)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array whose axes have size n."""
    return _known(np.diag_indices(n, ndim))


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array whose axes have one size."""
    x = array_of(arr, "diag_indices_from")
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(f"diag_indices_from: axes have one size, but the shape is {x.shape}.")
    return diag_indices(x.shape[0], x.ndim)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """The indices on and below the k-th diagonal of an n by m matrix."""
    return _known(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """The indices on and above the k-th diagonal of an n by m matrix."""
    return _known(np.triu_indices(n, k, m))


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, ...]:
    """The indices on and below the k-th diagonal of a matrix."""
    x = array_of(arr, "tril_indices_from")
    return tril_indices(x.shape[-2], k, x.shape[-1])


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, ...]:
    """The indices on and above the k-th diagonal of a matrix."""
    x = array_of(arr, "triu_indices_from")
    return triu_indices(x.shape[-2], k, x.shape[-1])


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = False) -> Array:
    """A copy with the main diagonal replaced; `inplace=False` says that it is one."""
    x = array_of(a, "fill_diagonal")
    if inplace:
        raise ArgumentError("fill_diagonal: arrays are immutable; pass inplace=False and use the result.")
    if wrap or x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(f"fill_diagonal: takes a matrix, or an array with axes of one size, but got shape {x.shape}.")
    places = np.arange(min(x.shape))
    values = array_of(np.asarray(val) if isinstance(val, (list, tuple)) else val, "fill_diagonal")
    if values.ndim:
        flat = movement.reshape_to(values, (values.size,))
        values = _read(flat, places % values.size, None, None)
    return Update(x, (places,) * x.ndim).set(values, unique_indices=True)
