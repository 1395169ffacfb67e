"""Programs whose results are asked for in other layouts than the default one, on either backend.

Inside, all arrays are row-major. The transpose of a result is row-major exactly if the result has its dimensions in the
order of the transpose, so it is the transpose that is computed, and what is seen is a view of it.

Source: "Shapes and Layout", section "Minor-to-major dimension ordering".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.backends.wrapped import WrappedExecutable
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.shapes import AnyShape, TupleShape

Compile = Callable[[Computation], Any]
Ints = tuple[int, ...]


def compile_laid_out(computation: Computation, wanted: AnyShape, compile_: Compile) -> Any:
    """The executable of a computation on arrays, whose results have the layouts that the shape `wanted` says."""
    program = laid_out(computation, dimension_orders(wanted))
    made = compile_(program.computation)
    return _LaidOutExecutable(made, program) if program.views else made


class LaidOut(NamedTuple):
    """A computation that gives transposes of the results, and the permutations that undo these; none for a computation
    that stays as it is."""

    computation: Computation
    views: tuple[Ints, ...]

    def view(self, found: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The results."""
        if not self.views:
            return list(found)
        return [np.asarray(x, order="C").transpose(view) for x, view in zip(found, self.views, strict=True)]


def dimension_orders(shape: AnyShape) -> tuple[Ints, ...]:
    """The dimensions of each array, from major to minor. Of a layout with padding or tiles this is what counts: an
    array has no padding."""
    return tuple(x.major_to_minor for x in leaf_shapes(shape))


def laid_out(computation: Computation, orders: Sequence[Ints]) -> LaidOut:
    """A computation on arrays whose results, once viewed, have their dimensions in memory in these orders."""
    if all(map(_is_row_major, orders)):
        return LaidOut(computation, ())
    return LaidOut(_transposed(computation, orders), tuple(map(movement.inverse_permutation, orders)))


class _LaidOutExecutable(WrappedExecutable):
    """An executable that gives the transposes of the results."""

    def __init__(self, inside: Any, program: LaidOut) -> None:
        super().__init__(inside)
        self._program = program

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        return self._program.view(self._inside(arguments))


def _is_row_major(order: Ints) -> bool:
    return order == tuple(range(len(order)))


def _transposed(computation: Computation, orders: Sequence[Ints]) -> Computation:
    """The computation that gives the results with their dimensions in these orders."""
    made: list[Instruction] = []

    def emit(op: Any, *operands: Instruction, **attributes: Any) -> Instruction:
        shape = op.shape(*(x.shape for x in operands), **attributes)
        made.append(Instruction(op, operands, op.attributes(**attributes), shape, computation.root.source))
        return made[-1]

    results = [
        x if _is_row_major(order) else emit(movement.transpose, x, permutation=order)
        for x, order in zip(computation.outputs, orders, strict=True)
    ]
    root = emit(calls.tuple_, *results) if isinstance(computation.root.shape, TupleShape) else results[0]
    return Computation(computation.name, computation.parameters, [*computation.instructions, *made], root)
