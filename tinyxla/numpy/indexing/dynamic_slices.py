"""Slices of static size at a traced start, as index entries: `x[ds(start, size)]`, as in JAX.

They are one dynamic slice before all other entries of an index are applied; updates are put back by a dynamic update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, IndexTypeError, ShapeError
from tinyxla.numpy.arguments import array_of, cast, count_of, integer_of
from tinyxla.numpy.operations import movement, slices
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary


@dataclass(frozen=True)
class Slice:
    """`size` places from `start` on, `stride` apart, along an axis. The start may be traced; one from which the places
    do not fit into the axis is moved, as in `lax.dynamic_slice`.

    >>> from tinyxla.numpy.indexing.dynamic_slices import Slice
    >>> import tinyxla.numpy as jnp
    >>> jnp.arange(9)[Slice(2, 3, 2)]
    Array([2, 4, 6], dtype=int32)
    """

    start: Any
    size: int
    stride: int = 1


@boundary
def ds(start: Any, size: int | None = None, stride: int | None = None) -> Slice | slice:
    """An index entry: `size` places from `start` on. With one number that many places from 0; with None all of them.

    Args:
        start: the first place, an integer that may be traced; or the size, if that is not given.
        size: the number of places, which is static.
        stride: the distance between places.

    Returns:
        An index entry.

    Raises:
        ArgumentError: a size that is no integer.

    Example:
        >>> import tinyxla as tx
        >>> tx.jit(lambda x, i: x[tx.ds(i, 2)])(tx.numpy.arange(5), 3)
        Array([3, 4], dtype=int32)
    """
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    step = 1 if stride is None else integer_of("ds", "stride", stride)
    if step < 1:
        raise ArgumentError(f"ds: the stride must be positive, but got {step}.")
    begin = start if isinstance(start, Array) else integer_of("ds", "start", start)
    return Slice(begin, count_of("ds", "size", size), step)


def has_slices(index: Any) -> bool:
    """Whether an index has entries of `ds`."""
    return type(index) is Slice or (type(index) is tuple and any(type(e) is Slice for e in index))


class Window:
    """The dynamic slice of an array that the entries of `ds` name, and the index that is left for it."""

    def __init__(self, x: Array, index: Any) -> None:
        entries = list(index) if isinstance(index, tuple) else [index]
        starts: list[Any] = [np.int32(0)] * x.ndim
        sizes = list(x.shape)
        for k, entry in enumerate(entries):
            if type(entry) is Slice:
                axis = _axis_of(entries, k, x.ndim)
                extent = (entry.size - 1) * entry.stride + 1 if entry.size else 0
                if extent > x.shape[axis]:
                    raise ShapeError(f"indexing: {entry} does not fit axis {axis} of size {x.shape[axis]}.")
                starts[axis], sizes[axis] = _start(entry.start, x.shape[axis]), extent
                entries[k] = slice(None, None, entry.stride)
        self.array, self.index = x, tuple(entries)
        self.starts = [cast(array_of(s, "indexing"), np.dtype(np.int32), False) for s in starts]
        self.part = slices.dynamic_slice(x, *self.starts, dynamic_slice_sizes=tuple(sizes))

    def __getattr__(self, name: str) -> Callable[..., Array]:
        """The methods of `x.at[index]`."""
        method = getattr(self.part.at[self.index], name)
        if name == "get":
            return method
        return lambda *args, **options: slices.dynamic_update_slice(self.array, method(*args, **options), *self.starts)


def _start(start: Any, size: int) -> Any:
    """A start that counts from the end if it is negative."""
    found = array_of(start, "indexing")
    if found.ndim or not element_type(found.dtype).is_integer:
        raise IndexTypeError(f"indexing: the start of a slice is one integer, but got {found.dtype.name}{found.shape}.")
    found = cast(found, np.dtype(np.int32), False)
    return found + movement.full(size, np.int32) * (found < 0).astype(np.int32)


def _axis_of(entries: list[Any], position: int, rank: int) -> int:
    """The axis that an entry is of."""

    def axes(entry: Any) -> int:
        if entry is None or entry is Ellipsis:
            return 0
        is_mask = getattr(entry, "dtype", None) == np.bool_
        return entry.ndim if is_mask else 1

    before = entries[:position]
    if any(e is Ellipsis for e in before):
        return rank - sum(map(axes, entries[position:]))
    return sum(map(axes, before))
