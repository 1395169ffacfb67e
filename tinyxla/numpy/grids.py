"""Grids and rows by slice notation: `mgrid[0:3, 0:2]`, `r_[0:3, 7]`, `s_[1:, ::2]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.numpy.arguments import array_of
from tinyxla.numpy.creation import arange, array, linspace
from tinyxla.numpy.manipulation import concatenate, stack
from tinyxla.numpy.operations import movement
from tinyxla.tracing.array import Array


def _points(what: str, entry: slice) -> Array:
    """The numbers of a slice; an imaginary step is how many there are, ends included."""
    if entry.stop is None:
        raise ArgumentError(f"{what}: a slice has an end, but got {entry}.")
    start = 0 if entry.start is None else entry.start
    if isinstance(entry.step, complex):
        return linspace(start, entry.stop, int(abs(entry.step)))
    return arange(start, entry.stop, 1 if entry.step is None else entry.step)


class _Grid:
    """Index arrays of slices, spread over the whole grid (`mgrid`) or each along its own axis (`ogrid`)."""

    def __init__(self, name: str, sparse: bool) -> None:
        self._name = name
        self._sparse = sparse

    def __getitem__(self, index: slice | tuple[slice, ...]) -> Any:
        if isinstance(index, slice):
            return _points(self._name, index)
        axes = [_points(self._name, entry) for entry in index]
        sizes = tuple(x.shape[0] for x in axes)
        if self._sparse:
            return tuple(
                movement.reshape_to(x, tuple(n if d == k else 1 for d, n in enumerate(sizes)))
                for k, x in enumerate(axes)
            )
        return stack([movement.broadcast(x, sizes=sizes, dimensions=(k,)) for k, x in enumerate(axes)])

    def __repr__(self) -> str:
        return f"tinyxla.numpy.{self._name}"


class _Rows:
    """Arrays, numbers and the numbers of slices, joined along the first axis (`r_`), or as columns (`c_`)."""

    def __init__(self, name: str, columns: bool) -> None:
        self._name = name
        self._columns = columns

    def __getitem__(self, index: Any) -> Array:
        parts: list[Any] = []
        for entry in index if isinstance(index, tuple) else (index,):  # pyright: ignore[reportUnknownVariableType]
            if isinstance(entry, str):
                raise ArgumentError(f"{self._name}: directives such as {entry!r} are not known; use concatenate.")
            x = _points(self._name, entry) if isinstance(entry, slice) else array(entry)
            parts.append(self._shaped(array_of(x, self._name)))
        return concatenate(parts, -1 if self._columns else 0)

    def _shaped(self, x: Any) -> Any:
        if self._columns:
            return movement.reshape_to(x, (x.size, 1)) if x.ndim < 2 else x
        return movement.reshape_to(x, (1,)) if x.ndim == 0 else x

    def __repr__(self) -> str:
        return f"tinyxla.numpy.{self._name}"


mgrid = _Grid("mgrid", sparse=False)
ogrid = _Grid("ogrid", sparse=True)
r_ = _Rows("r_", columns=False)
c_ = _Rows("c_", columns=True)
s_ = np.s_
index_exp = np.index_exp
