"""Indexing: `x[index]`, and updated copies `x.at[index].set(y)`.

An index that is known to be out of range is an error; one that is only known inside a compiled function reads the
nearest element, and an update there is left out (JAX's rules), unless `mode` says otherwise. Where it is promised that
indices are in range, as by JAX's `x[index]`, others have no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, OutOfBoundsError, ShapeError, UnknownNameError
from tinyxla.hlo import Computation
from tinyxla.numpy.arguments import ArrayLike, broadcast_to_shape, cast, constant, eager, like, operand, promoted
from tinyxla.numpy.creation import array
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.dynamic_slices import Window, has_slices
from tinyxla.numpy.indexing.parsing import Entry, Layout, New, Picked, Span, entries_of, in_range, layout_of, spans_of
from tinyxla.numpy.operations import indexing_ops, movement, ops, reduction, slices
from tinyxla.numpy.repetition import applied_repeatedly
from tinyxla.partitioning.placement import placed_result
from tinyxla.runtime.allocation import allocated
from tinyxla.shapes import element_type
from tinyxla.shapes.symbolic import exceeds_int32, is_symbolic, may_exceed
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.core import state
from tinyxla.tracing.meshes import context
from tinyxla.transforms.key_arrays import KeyArray, check_same_keys, map_over_words, refuse
from tinyxla.util.did_you_mean import did_you_mean

Ints = tuple[int, ...]
MODES = (None, "fill", "drop", "clip", "wrap", "promise_in_bounds")

# --- slices at known places -------------------------------------------------------------------------------------------


def _read_spans(x: Any, spans: Sequence[Span]) -> Any:
    if all(span.is_whole(n) for span, n in zip(spans, x.shape, strict=True)):
        return x
    some = [may_exceed(span.size, 0) for span in spans]
    starts = tuple(span.low if s else 0 for span, s in zip(spans, some, strict=True))
    limits = tuple(
        low + (span.size - 1) * abs(span.step) + 1 if s else 0 for low, span, s in zip(starts, spans, some, strict=True)
    )
    strides = tuple(abs(span.step) if s else 1 for span, s in zip(spans, some, strict=True))
    is_part = any(abs(span.step) > 1 or span.size != n for span, n in zip(spans, x.shape, strict=True))
    part = movement.slice_(x, start_indices=starts, limit_indices=limits, strides=strides) if is_part else x
    backwards = tuple(d for d, span in enumerate(spans) if span.step < 0 and may_exceed(span.size, 1))
    return movement.reverse(part, dimensions=backwards) if backwards else part


def _write_spans(x: Any, spans: Sequence[Span], part: Any) -> Any:
    """x with that part replaced."""
    if all(span.is_whole(n) for span, n in zip(spans, x.shape, strict=True)):
        return part
    if not all(span.size for span in spans):
        return x
    backwards = tuple(d for d, span in enumerate(spans) if span.step < 0 and span.size > 1)
    if backwards:
        part = movement.reverse(part, dimensions=backwards)
    if all(abs(span.step) == 1 or span.size == 1 for span in spans):
        starts = [constant(span.low, np.int32) for span in spans]
        return slices.dynamic_update_slice(x, part, *starts)
    config = tuple(
        (s.low, n - s.low - (s.size - 1) * abs(s.step) - 1, abs(s.step) - 1 if s.size > 1 else 0)
        for s, n in zip(spans, x.shape, strict=True)
    )
    spread = movement.pad(part, constant(0, x.dtype), padding_config=config)
    inside = movement.pad(movement.full(True, np.bool_, part.shape), constant(False, np.bool_), padding_config=config)
    return ops.select(inside, spread, x)


# --- places given by arrays -------------------------------------------------------------------------------------------


def _places(x: Any, layout: Layout, mode: str | None, wraps: bool = True) -> list[Any]:
    """The picked places as arrays of one integer type; negative ones count from the end, if it `wraps` them."""
    wide = any(
        exceeds_int32(x.shape[d]) or (p.places.dtype.itemsize == 8 and not p.known)
        for d, p in zip(layout.axes, layout.picked, strict=True)
    )
    dtype = np.dtype(np.int64 if wide else np.int32)
    found: list[Any] = []
    for d, p in zip(layout.axes, layout.picked, strict=True):
        size = x.shape[d]
        if p.known and not is_symbolic(size):
            far = p.places.dtype == np.uint64  # and may be beyond what is taken next
            places = (np.minimum(p.places, np.uint64(2**63 - 1)) if far else p.places).astype(np.int64)
            if mode is None and places.size and not (-size * wraps <= places.min() and places.max() < size):
                worst = places.max() if places.max() >= size else places.min()
                in_range(int(worst), size, d, x.shape)
            places = places % max(size, 1) if mode == "wrap" else np.where((places < 0) & wraps, places + size, places)
            limit = np.iinfo(dtype)
            found.append(ConcreteArray(np.clip(places, limit.min, limit.max).astype(dtype)))
        else:
            found.append(
                _wrapped(
                    _signed(ConcreteArray(p.places) if p.known else p.places, dtype, size, mode), size, mode, wraps
                )
            )
    return found


def _signed(places: Any, dtype: np.dtype[Any], size: int, mode: str | None) -> Any:
    """Places in a signed type; those that are too large for it stay beyond the end."""
    if places.dtype.kind == "u" and places.dtype.itemsize >= dtype.itemsize:
        last = like(np.iinfo(dtype).max, places)
        places = arith.remainder(places, max(size, 1)) if mode == "wrap" else ops.min_(places, last)
    return cast(places, dtype, False)


def _wrapped(places: Any, size: int, mode: str | None, wraps: bool = True) -> Any:
    if mode == "wrap":
        return arith.remainder(places, max(size, 1))
    if not wraps:
        return places
    negative = ops.lt(places, like(0, places))
    return ops.select(negative, ops.add(places, like(size, places)), places)


def _vectors(places: list[Any], batch: Ints) -> tuple[Any, int]:
    """The places as one array of index vectors, and the dimension along which these run."""
    spread = [broadcast_to_shape("indexing", p, batch) for p in places]
    if len(spread) == 1:
        return spread[0], len(batch)
    rows = [movement.reshape_to(p, (*batch, 1)) for p in spread]
    return movement.concatenate(*rows, dimension=len(batch)), len(batch)


def _offsets(rank: int, layout: Layout) -> Ints:
    """The dimensions of a gather's result that come of slices."""
    sliced = rank - len(layout.axes)
    return tuple(d + (len(layout.batch) if d >= layout.before else 0) for d in range(sliced))


def _clip(places: Any, limit: int) -> Any:
    """Places moved between 0 and the limit."""
    return ops.clamp(like(0, places), places, like(limit, places))


def _inside(places: list[Any], sizes: Sequence[int], batch: Ints) -> Any:
    """Where all places are inside the array."""
    result: Any = None
    for p, n in zip(places, sizes, strict=True):
        here = ops.and_(ops.ge(p, like(0, p)), ops.lt(p, like(n, p)))
        here = broadcast_to_shape("indexing", here, batch)
        result = here if result is None else ops.and_(result, here)
    return result


def check_mode(what: str, mode: Any) -> str | None:
    """A mode, also given as an enumeration whose names are those of modes."""
    text = None if mode is None else str(getattr(mode, "name", mode)).lower()
    text = {"fill_or_drop": "fill"}.get(text, text) if text else None
    if text not in MODES:
        raise AttributeValueError(f"{what}: mode is one of {', '.join(map(repr, MODES))}, but got {mode!r}.")
    return text


def _as_one(x: Any, layout: Layout, places: list[Any]) -> tuple[Ints, Any, list[Any]]:
    """Neighbouring axes from which computed places pick, as one axis: a place in it is computed where it is read, while
    vectors of several would be put together in memory first."""
    first, end = layout.axes[0], layout.axes[-1] + 1
    sizes = x.shape[first:end]
    apart = len(sizes) != len(places) or exceeds_int32(math.prod(sizes))
    if len(places) == 1 or apart or all(p.known for p in layout.picked):
        return layout.axes, x, places
    flat: Any = None
    for p, n in zip(places, sizes, strict=True):
        p = broadcast_to_shape("indexing", _clip(p, n - 1), layout.batch)
        flat = p if flat is None else arith.add(arith.multiply(flat, like(n, p)), p)
    return (first,), movement.reshape_to(x, (*x.shape[:first], math.prod(sizes), *x.shape[end:])), [flat]


def _gather(x: Any, layout: Layout, mode: str | None, fill_value: Any, wraps: bool) -> Any:
    places = _places(x, layout, mode, wraps)
    x = _read_spans(x, layout.spans)
    sizes = [x.shape[d] for d in layout.axes]
    fill = _fill_value(x.dtype) if fill_value is None else fill_value
    if math.prod(layout.shape) and not all(sizes):
        if mode != "fill":
            raise OutOfBoundsError(f"indexing: an axis of the array of shape {x.shape} is empty: no index is inside.")
        return broadcast_to_shape("indexing", cast(operand(fill, "indexing"), x.dtype), layout.shape)
    rank = x.ndim
    if layout.batch == () and mode != "fill":  # one place: a slice
        starts = [constant(0, places[0].dtype)] * rank
        for d, p in zip(layout.axes, places, strict=True):
            starts[d] = p
        wanted = tuple(1 if d in layout.axes else n for d, n in enumerate(x.shape))
        return movement.reshape_to(slices.dynamic_slice(x, *starts, dynamic_slice_sizes=wanted), layout.shape)
    drops = mode == "promise_in_bounds"  # what is not as promised has no gradient
    axes, whole, looked_up = (layout.axes, x, places) if drops else _as_one(x, layout, places)
    vectors, vector_dim = _vectors(looked_up, layout.batch)
    taken = indexing_ops.gather(
        whole,
        vectors,
        offset_dims=_offsets(rank, layout),
        collapsed_slice_dims=axes,
        start_index_map=axes,
        index_vector_dim=vector_dim,
        slice_sizes=tuple(min(1, n) if d in axes else n for d, n in enumerate(whole.shape)),
        drops_gradients=drops,
    )
    if mode == "fill":
        inside = _inside(places, sizes, layout.batch)
        outer = tuple(range(layout.before, layout.before + len(layout.batch)))
        spread = movement.broadcast(inside, sizes=taken.shape, dimensions=outer)
        filled = broadcast_to_shape("indexing", cast(operand(fill, "indexing"), x.dtype), taken.shape)
        taken = ops.select(spread, taken, filled)
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


def _is_known(entry: Any) -> bool:
    """Whether NumPy may look it up: an integer, a slice and the like, or an array of integers or bools."""
    return entry.dtype.kind in "iub" if type(entry) is ConcreteArray else type(entry) in _BASIC


def take_index(x: Array, index: Any) -> Array:
    """`x[index]`."""
    if type(x) is ConcreteArray and state.staging is None is context.programs:
        if type(index) in _BASIC or (type(index) is tuple and _BASIC.issuperset(map(type, index))):
            known = index
        elif type(index) is ConcreteArray and index.dtype.kind in "iub":
            known = index.buffer()
        elif type(index) is tuple and all(map(_is_known, index)):
            known = tuple(e.buffer() if type(e) is ConcreteArray else e for e in index)
        else:
            return read(x, index, None, None)
        try:
            return ConcreteArray(x.buffer()[known], x.weak_type)
        except (IndexError, MemoryError, OverflowError, TypeError, ValueError):
            pass  # the long way says what is wrong
    return read(x, index, None, None)


def read(x: Array, index: Any, mode: str | None, fill_value: Any, wraps: bool = True) -> Array:
    if type(x) is KeyArray:
        return map_over_words(lambda words, fill: read(words, index, mode, fill, wraps), x, fill_value)
    if has_slices(index):
        window = Window(x, index)
        return read(window.part, window.index, mode, fill_value, wraps)
    weak = x.weak_type
    y, entries = entries_of(x, index)
    if mode is not None or not wraps:
        entries = _outside_as_arrays(y, entries, wraps)
    clamps = mode is None and config.out_of_bounds_indices == "clamp"
    if clamps:
        entries = _clamped(y, entries, eager(y), wraps)
    if any(isinstance(e, Picked) for e in entries):
        layout = layout_of(y, entries)
        if eager(y) and mode is None and wraps and all(p.known for p in layout.picked):
            return allocated("An index", lambda: _numpy_read(y, entries, layout, weak))
        mode = "promise_in_bounds" if clamps else mode
        return _gather(y, layout, mode, fill_value, wraps).with_weak_type(weak)
    spans, shape = spans_of(y, entries)
    return movement.reshape_to(_read_spans(y, spans), shape).with_weak_type(weak)


def read_along(x: Any, places: Any, axis: int, mode: str, fill_value: Any) -> Array:
    """The elements at places along one axis, line by line: sizes along the other axes are equal."""
    if type(x) is KeyArray:
        return map_over_words(lambda words, fill: read_along(words, places, axis, mode, fill), x, fill_value)
    size = x.shape[axis]
    wide = exceeds_int32(size) or places.dtype.itemsize == 8
    found = _wrapped(_signed(places, np.dtype(np.int64 if wide else np.int32), size, mode), size, mode)
    taken = indexing_ops.take_along(x, found, axis)
    if mode == "fill":
        inside = ops.and_(ops.ge(found, like(0, found)), ops.lt(found, like(size, found)))
        fill = operand(_fill_value(x.dtype) if fill_value is None else fill_value, "indexing")
        taken = ops.select(inside, taken, broadcast_to_shape("indexing", cast(fill, x.dtype), taken.shape))
    return taken.with_weak_type(x.weak_type)


def _outside_as_arrays(x: Any, entries: list[Entry], wraps: bool) -> list[Entry]:
    """With integers outside their axes as arrays, for which the mode says what happens; negative ones are outside,
    unless it `wraps` them."""
    found: list[Entry] = []
    axis = 0
    for e in entries:
        if isinstance(e, New):
            found.append(e)
            continue
        is_outside = isinstance(e, int) and not (-x.shape[axis] if wraps else 0) <= e < x.shape[axis]
        found.append(Picked(np.asarray(e, np.int32), True) if is_outside else e)
        axis += 1
    return found


def check_integers(x: Any, index: Any) -> None:
    """That the known integers of an index of an array with values are inside of their axes.

    Raises:
        OutOfBoundsError: one of them is not.
    """
    if index is Ellipsis or has_slices(index) or not eager(x):
        return
    y, entries = entries_of(x, index)
    for axis, e in enumerate(e for e in entries if not isinstance(e, New)):
        if isinstance(e, int):
            in_range(e, y.shape[axis], axis, y.shape)


def _clamped(x: Any, entries: list[Entry], arrays: bool, wraps: bool) -> list[Entry]:
    """With known integers, and the places of known `arrays`, moved inside their axes, where negative ones are, if it
    `wraps` them."""
    sizes = iter(x.shape)
    found: list[Entry] = []
    for e in entries:
        size = 0 if isinstance(e, New) else next(sizes)
        if isinstance(e, New) or is_symbolic(size) or size <= 0:
            pass
        elif isinstance(e, int):
            e = min(max(e, -size if wraps else 0), size - 1)
        elif arrays and isinstance(e, Picked) and e.known:
            least = np.maximum(e.places, -size if wraps else 0) if e.places.dtype.kind == "i" else e.places
            e = Picked(np.minimum(least, size - 1), True)
        found.append(e)
    return found


def _numpy_read(x: Any, entries: list[Entry], layout: Layout, weak: bool) -> Array:
    _places(x, layout, None)  # they are inside
    index = tuple(e.places if isinstance(e, Picked) else None if isinstance(e, New) else e for e in entries)
    return ConcreteArray(np.asarray(x.buffer())[index], weak)


# --- updated copies ---------------------------------------------------------------------------------------------------


class At:
    """`x.at`: indexed, it gives what updates copies."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Update:
        if has_slices(index):
            return Window(self._array, index)  # type: ignore[return-value]  # which has the same methods
        return Update(self._array, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError(f"Arrays are immutable: instead of x.at[{index!r}] = y write x = x.at[{index!r}].set(y).")

    def __call__(self, *index: Any) -> Any:
        raise ArgumentError("x.at takes an index between brackets: x.at[index].set(y).")

    def __repr__(self) -> str:
        return f"{self._array!r}.at"


def _no_operator(symbol: str, method: str) -> Callable[[Any, Any], Any]:
    """What an operator does on `x.at[index]`, which is no array: an error that names the method to use."""

    def operator(self: Update, other: Any) -> Any:
        raise ArgumentError(
            f"x.at[index] is no array, so it cannot be an operand of {symbol}. For a copy of x with updated elements "
            f"write x.at[index].{method}(y); for the elements alone x[index]."
        )

    return operator


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
        wrap_negative_indices: whether negative places in arrays count from the end; else they are outside.

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

    __add__ = __radd__ = __iadd__ = _no_operator("+", "add")
    __sub__ = __rsub__ = __isub__ = _no_operator("-", "subtract")
    __mul__ = __rmul__ = __imul__ = _no_operator("*", "multiply")
    __truediv__ = __rtruediv__ = __itruediv__ = _no_operator("/", "divide")
    __pow__ = __rpow__ = __ipow__ = _no_operator("**", "power")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError("Arrays are immutable: instead of x.at[i][j] = y write x = x.at[i, j].set(y).")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        others = {"mul": "multiply", "sub": "subtract", "div": "divide", "plus": "add", "update": "set"}
        meant = f" Did you mean {others[name]!r}?" if name in others else did_you_mean(name, _METHODS)
        raise UnknownNameError(f"x.at[index] has no method {name!r}.{meant} It has {', '.join(_METHODS)}.")

    def get(
        self,
        *,
        mode: Any = None,
        fill_value: Any = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
        out_sharding: Any = None,
    ) -> Array:
        """The elements."""
        if out_sharding is not None:
            options = {"mode": mode, "fill_value": fill_value, "wrap_negative_indices": wrap_negative_indices}
            return placed_result("at[].get: out_sharding", lambda: self.get(**options), out_sharding)
        found = check_mode("at[].get", mode)
        return read(self._array, self._index, "fill" if found == "drop" else found, fill_value, wrap_negative_indices)

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
        exponents = operand(array(values) if isinstance(values, (list, tuple)) else values, "at[].power")
        if self._may_repeat(options):
            product = self._filled(1, promoted("at[].power", exponents)[1][0]).multiply(exponents, **options)
            exponents = Update(product, self._index).get(**_reading(options))
        elements = self.get(**_reading(options))
        if np.ndim(exponents):
            exponents = _fitting("at[].power", exponents, elements.shape)
        return self.set(arith.power(elements, exponents), **options)

    def min(self, values: ArrayLike, **options: Any) -> Array:
        """The smaller of elements and values."""
        return self._update("min", ops.min_, lambda t: reduction.scalar_computation("minimum", t), values, options)

    def max(self, values: ArrayLike, **options: Any) -> Array:
        """The larger of elements and values."""
        return self._update("max", ops.max_, lambda t: reduction.scalar_computation("maximum", t), values, options)

    def apply(self, func: Callable[[Array], Any], **options: Any) -> Array:
        """The elements replaced by a function of them, applied as often as the index names an element; the function is
        called with arrays of elements.

        Example:
            >>> import tinyxla.numpy as jnp
            >>> jnp.ones(2).at[jnp.array([0, 0])].apply(lambda x: 2 * x)
            Array([4., 1.], dtype=float32)
        """
        values = self.get(**_reading(options))
        if self._may_repeat(options):
            counted = Update(self._filled(0, np.dtype(np.int32)).add(1, **options), self._index)
            counts = counted.get(**_reading(options))
            return self.set(applied_repeatedly(func, values, counts), **options)
        return self.set(func(values), **options)

    def _may_repeat(self, options: dict[str, Any]) -> bool:
        """Whether the index may name an element several times: only arrays of integers can."""
        unique = bool(options.get("unique_indices", False))
        return not unique and any(isinstance(e, Picked) for e in entries_of(self._array, self._index)[1])

    def _filled(self, value: Any, dtype: np.dtype[Any]) -> Update:
        """The same places of an array of one value."""
        shape = self._array.shape
        known = state.staging is None
        filled: Any = ConcreteArray(np.full(shape, value, dtype)) if known else movement.full(value, dtype, shape)
        return Update(filled, self._index)

    def _update(
        self,
        name: str,
        combine: Callable[[Any, Any], Any],
        computation: Callable[[Any], Computation],
        values: ArrayLike,
        options: dict[str, Any],
    ) -> Array:
        what = f"at[].{name}"
        where = options.pop("out_sharding", None)
        if where is not None:
            update = partial(self._update, name, combine, computation, values, options)
            return placed_result(f"{what}: out_sharding", update, where)
        mode = check_mode(what, options.get("mode"))
        if mode is None and config.out_of_bounds_indices == "clamp":
            mode = "drop"
        unknown = set(options) - {"mode", "indices_are_sorted", "unique_indices", "wrap_negative_indices", "fill_value"}
        if unknown:
            raise ArgumentError(f"{what}: there is no option {', '.join(sorted(unknown))}.")
        x = self._array
        value = array(values) if isinstance(values, (list, tuple)) else operand(values, what)
        if type(x) is KeyArray or type(value) is KeyArray:
            return _replaced_keys(what, x, self._index, value, options)
        common = promoted(what, x, value)[1][0]  # which there must be, also where values are cast
        dtype = x.dtype if name == "set" else common
        y = cast(value, dtype)
        wide, entries = entries_of(cast(x, dtype), self._index)
        wraps = bool(options.get("wrap_negative_indices", True))
        if mode is not None or not wraps:
            entries = _outside_as_arrays(wide, entries, wraps)
        if any(isinstance(e, Picked) for e in entries):
            layout = layout_of(wide, entries)
            y = _fitting(what, y, layout.shape)
            part = _read_spans(wide, layout.spans)
            moved = _scatter(part, layout, y, computation(dtype), mode, options)
            found = _write_spans(wide, layout.spans, moved)
        else:
            spans, shape = spans_of(wide, entries)
            old = _read_spans(wide, spans)
            y = movement.reshape_to(_fitting(what, y, shape), old.shape)
            found = _write_spans(wide, spans, combine(old, y))
        result = cast(movement.reshape_to(found, x.shape), x.dtype)
        return result.with_weak_type(x.weak_type)


def _replaced_keys(what: str, keys: Any, index: Any, values: Any, options: dict[str, Any]) -> Any:
    """Keys of which some are replaced by others; there is no arithmetic on them."""
    if what != "at[].set":
        refuse(what, keys)
    check_same_keys(what, keys, values)
    return map_over_words(lambda words, others: Update(words, index).set(others, **options), keys, values)


def _reading(options: dict[str, Any]) -> dict[str, Any]:
    """Those options of an update that matter where elements are read."""
    return {name: options[name] for name in ("mode", "wrap_negative_indices") if name in options}


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
    x: Any, layout: Layout, y: Any, computation: Computation, mode: str | None, options: dict[str, Any]
) -> Any:
    places = _places(x, layout, mode, bool(options.get("wrap_negative_indices", True)))
    if mode == "clip":
        places = [_clip(p, max(x.shape[d] - 1, 0)) for d, p in zip(layout.axes, places, strict=True)]
    vectors, vector_dim = _vectors(places, layout.batch)
    sliced = [n for d, n in enumerate(x.shape) if d not in layout.axes]
    sizes = (*sliced[: layout.before], *layout.batch, *sliced[layout.before :])
    return indexing_ops.scatter(
        x,
        vectors,
        movement.reshape_to(y, sizes),
        update_window_dims=_offsets(x.ndim, layout),
        inserted_window_dims=layout.axes,
        scatter_dims_to_operand_dims=layout.axes,
        index_vector_dim=vector_dim,
        to_apply=computation,
        indices_are_sorted=bool(options.get("indices_are_sorted", False)),
        unique_indices=bool(options.get("unique_indices", False)),
        moves_gradients=mode == "promise_in_bounds",
    )


_METHODS = [name for name in vars(Update) if not name.startswith("_")]
