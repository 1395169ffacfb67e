"""Arrays of element type float0, the derivatives by integers, in arguments and results of compiled functions.

They have a shape and no bytes, so that a program neither takes nor gives them: they are part of the structure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import float0


class _FloatZeros:
    """A container of nothing in the place of such an array, which it becomes again when a structure is filled."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


pytrees.register(_FloatZeros, lambda x: ((), x.shape), lambda shape, children: np.zeros(shape, float0))


def is_float0(x: Any) -> bool:
    """Whether x is an array of element type float0."""
    return getattr(x, "dtype", None) == float0


def as_numbers(tree: Any) -> Any:
    """The pytree with arrays of small integers in the place of those of element type float0: these can be mapped."""
    return pytrees.map_tree(lambda x: np.zeros(x.shape, np.int8) if is_float0(x) else x, tree)


def as_float0(x: Any) -> Any:
    """The array of element type float0 in the place of which there is one of numbers."""
    return np.zeros(x.shape, float0)


def without_float0(tree: Any) -> Any:
    """The pytree with its arrays of element type float0 as parts of its structure."""
    return pytrees.map_tree(lambda x: _FloatZeros(tuple(x.shape)) if is_float0(x) else x, tree)


def rows_of_float0(tree: Any) -> Any:
    """The pytree with the rows along the first axis in the place of its arrays of element type float0."""
    return pytrees.map_tree(lambda x: np.zeros(x.shape[1:], float0) if is_float0(x) else x, tree)


def holds_float0(treedef: pytrees.TreeDef) -> bool:
    """Whether arrays of element type float0 are parts of a structure."""
    return treedef.type is _FloatZeros or any(map(holds_float0, treedef.children()))


def stacked_float0(tree: Any, count: Any) -> Any:
    """The pytree with its arrays of element type float0 stacked that many times, as arrays of the results of steps."""
    return pytrees.map_tree(lambda x: np.zeros((count, *x.shape), float0) if is_float0(x) else x, tree)
