"""Programs whose results are asked for in other layouts than the default one, on either backend.

Inside, all arrays are row-major. The transpose of a result is row-major exactly if the result has its dimensions in the
order of the transpose, so it is the transpose that is computed, and what is seen is a view of it.

Source: "Shapes and Layout", section "Minor-to-major dimension ordering".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.backends.wrapped import WrappedExecutable
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.shapes import AnyShape, TupleShape

Compile = Callable[[Computation], Any]
Ints = tuple[int, ...]


def compile_laid_out(computation: Computation, wanted: AnyShape, compile_: Compile) -> Any:
    """The executable of a computation on arrays, whose results have the layouts that the shape `wanted` says.

    Of a layout with padding or tiles, the order of dimensions is what counts: an array has no padding.
    """
    orders = [shape.major_to_minor for shape in leaf_shapes(wanted)]
    if all(map(_is_row_major, orders)):
        return compile_(computation)
    return _LaidOut(compile_(_transposed(computation, orders)), orders)


class _LaidOut(WrappedExecutable):
    """An executable that gives the transposes of the results."""

    def __init__(self, inside: Any, orders: Sequence[Ints]) -> None:
        super().__init__(inside)
        self._views = [movement.inverse_permutation(order) for order in orders]

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        found = self._inside(arguments)
        return [np.asarray(x, order="C").transpose(view) for x, view in zip(found, self._views, strict=True)]


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
