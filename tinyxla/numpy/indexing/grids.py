"""Grids and rows by slice notation: `mgrid[0:3, 0:2]`, `r_[0:3, 7]`, `s_[1:, ::2]`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.numpy.arguments import array_of
from tinyxla.numpy.creation import arange, array, linspace
from tinyxla.numpy.joining import concatenate, stack
from tinyxla.numpy.operations import movement
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer
from tinyxla.tracing.promotion import join_types


def _points(what: str, entry: slice) -> Array:
    """The numbers of a slice; an imaginary step is how many there are, ends included. `:` has none."""
    known = {name: _known(f"the slice {name} of {what}", getattr(entry, name)) for name in ("start", "stop", "step")}
    start, stop, step = known.values()
    if stop is None and start is None:
        return arange(0)
    if stop is None:
        raise ArgumentError(f"{what}: a slice has an end, but got {entry}.")
    start = 0 if start is None else start
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, 1 if step is None else step)


def _known(what: str, bound: Any) -> Any:
    return bound.concrete(what) if isinstance(bound, Tracer) else bound


class _Grid:
    """Index arrays of slices, spread over the whole grid (`mgrid`) or each along its own axis (`ogrid`)."""

    def __init__(self, name: str, sparse: bool) -> None:
        self._name = name
        self._sparse = sparse

    def __getitem__(self, index: slice | tuple[slice, ...]) -> Any:
        if isinstance(index, slice):
            return _points(self._name, index)
        axes = [_points(self._name, entry) for entry in index]
        if not axes and not self._sparse:
            return arange(0)
        sizes = tuple(x.shape[0] for x in axes)
        if self._sparse:
            return tuple(
                movement.reshape_to(x, tuple(n if d == k else 1 for d, n in enumerate(sizes)))
                for k, x in enumerate(axes)
            )
        dtype = join_types(*((x.dtype, x.weak_type) for x in axes))[0]
        return stack([movement.broadcast(x.astype(dtype), sizes=sizes, dimensions=(k,)) for k, x in enumerate(axes)])

    def __repr__(self) -> str:
        return f"tinyxla.numpy.{self._name}"


@dataclasses.dataclass(frozen=True)
class _Join:
    """How entries are joined: along which axis, after what axes of size 1 they get.

    Attributes:
        axis: the axis along which they are joined.
        rank: how many axes each has at least.
        place: where, among the new axes, those are that an entry has; behind all new ones if -1.
        matrix: "r" or "c" for a result with two axes, a row or a column of it if there is one.
    """

    axis: int
    rank: int
    place: int
    matrix: str = ""

    def directed(self, what: str, directive: str) -> _Join:
        """As a directive says: `"axis,rank,place"` or the first ones of these, or `"r"` or `"c"`."""
        if directive in ("r", "c"):
            return dataclasses.replace(self, matrix=directive)
        try:
            numbers = [int(number) for number in directive.split(",")]
            return dataclasses.replace(self, **dict(zip(("axis", "rank", "place"), numbers, strict=False)))
        except ValueError:
            raise ArgumentError(
                f"{what}: {directive!r} is no directive; one is up to three integers, such as '0,2,-1', or 'r' or 'c'."
            ) from None

    def shaped(self, what: str, x: Any) -> Any:
        """An entry with the axes that it is to have."""
        added = max(self.rank - x.ndim, 0)
        front = canonical_axis(self.place, added + 1, what) if added else 0
        return movement.reshape_to(x, (1,) * front + x.shape + (1,) * (added - front))

    def joined(self, parts: list[Any]) -> Array:
        found = concatenate(parts, self.axis)
        if not self.matrix or found.ndim > 1:
            return found
        return movement.reshape_to(found, (1, found.size) if self.matrix == "r" else (found.size, 1))


class _Rows:
    """Arrays, numbers and the numbers of slices, joined along the first axis (`r_`), or as columns (`c_`).

    A first entry that is a string says how: `"axis,rank,place"` is the axis, how many axes each entry has at least, and
    where among the new axes its own are; `"r"` and `"c"` give a row or a column with two axes.
    """

    def __init__(self, name: str, join: _Join) -> None:
        self._name = name
        self._join = join

    def __getitem__(self, index: Any) -> Array:
        entries: list[Any] = list(index) if isinstance(index, tuple) else [index]
        join = self._join
        if entries and isinstance(entries[0], str):
            join = join.directed(self._name, entries.pop(0))
        parts: list[Any] = []
        for entry in entries:
            if isinstance(entry, str):
                raise ArgumentError(f"{self._name}: {entry!r} is no array; a directive is the first entry.")
            x = _points(self._name, entry) if isinstance(entry, slice) else array(entry)
            parts.append(join.shaped(self._name, array_of(x, self._name)))
        return join.joined(parts)

    def __repr__(self) -> str:
        return f"tinyxla.numpy.{self._name}"


mgrid = _Grid("mgrid", sparse=False)
ogrid = _Grid("ogrid", sparse=True)
r_ = _Rows("r_", _Join(axis=0, rank=1, place=-1))
c_ = _Rows("c_", _Join(axis=-1, rank=2, place=0))
s_ = np.s_
index_exp = np.index_exp
