"""Grids: the programs of a kernel run one after the other, the last axis first. Their number along each axis is that of
a named axis, so that what is traced for one grid is not taken for another one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from tinyxla import lax
from tinyxla.errors import ArgumentError
from tinyxla.tracing.core import with_axes

_indices: ContextVar[tuple[Any, ...] | None] = ContextVar("indices of the program", default=None)
_sizes: ContextVar[tuple[Any, ...]] = ContextVar("sizes of the grid", default=())


class _GridAxis(NamedTuple):
    """The name of an axis of a grid."""

    position: int


def for_each_program(grid: Sequence[Any], program: Callable[[tuple[Any, ...]], None]) -> None:
    """Call `program(indices)` in loops over a grid."""

    def along(axis: int, indices: tuple[Any, ...]) -> None:
        if axis == len(grid):
            program(indices)
        elif isinstance(grid[axis], int) and grid[axis] == 1:
            along(axis + 1, (*indices, np.int32(0)))
        else:
            lax.fori_loop(np.int32(0), grid[axis], lambda i, _: along(axis + 1, (*indices, i)), None)

    along(0, ())


def as_program(
    grid: Sequence[Any], names: Sequence[Hashable], indices: tuple[Any, ...], body: Callable[[], None]
) -> None:
    """Call a function for which `program_id` and `num_programs` are those of a program of the grid, whose axes have
    these names, or None."""
    before = _indices.set(indices), _sizes.set(tuple(grid))
    try:
        axes = [_GridAxis(k) if name is None else name for k, name in enumerate(names)]
        static = {axis: size for axis, size in zip(axes, grid, strict=True) if isinstance(size, int)}
        with_axes(static, body, dict(zip(axes, indices, strict=True)))
    finally:
        _indices.reset(before[0])
        _sizes.reset(before[1])


def _along(axis: int, values: tuple[Any, ...] | None, name: str) -> Any:
    if values is None:
        raise ArgumentError(f"{name}: there is no grid here; call it in a kernel of pallas_call.")
    if not 0 <= axis < len(values):
        raise ArgumentError(
            f"{name}: the grid {_sizes.get()} has no axis {axis}. Axis {axis} is out of bounds for grid {_sizes.get()}"
        )
    return values[axis]


def program_id(axis: int) -> Any:
    """The index of the program that runs, along an axis of the grid.

    Raises:
        ArgumentError: outside of a kernel, or an axis that the grid does not have.
    """
    index = _along(axis, _indices.get(), "program_id")
    return lax.convert_element_type(index, np.int32)


def num_programs(axis: int) -> Any:
    """The number of programs along an axis of the grid: an integer, if that is static.

    Raises:
        ArgumentError: outside of a kernel, or an axis that the grid does not have.
    """
    return _along(axis, None if _indices.get() is None else _sizes.get(), "num_programs")
