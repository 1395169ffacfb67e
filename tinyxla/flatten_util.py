"""Pytrees of arrays as one vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api.functions import arrays_of
from tinyxla.errors import DTypeError, ShapeError
from tinyxla.numpy.arguments import cast
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.key_arrays import check_same_keys


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """The leaves of a pytree after one another in one vector, and the way back.

    Args:
        pytree: of arrays and numbers. The vector has the type that they have in common.

    Returns:
        `(vector, unravel)`; `unravel` makes of a vector of this length a pytree with the shapes and types of the first.
        If all leaves have one type, a vector of another type gives arrays of that.

    Raises:
        ArgumentError: a leaf that is no array or number.

    Example:
        >>> from tinyxla.flatten_util import ravel_pytree
        >>> vector, unravel = ravel_pytree({"a": 1.0, "b": [2.0, 3.0]})
        >>> vector, unravel(2 * vector)["a"]
        (Array([1., 2., 3.], dtype=float32), Array(2., dtype=float32))
    """
    leaves, treedef = arrays_of(pytree, "ravel_pytree: the leaf")
    if any(pytrees.key_leaves(treedef)):
        return _raveled_keys(pytree)
    shapes, types = [x.shape for x in leaves], [x.dtype for x in leaves]
    common = tnp.result_type(*types) if types else np.dtype(np.float32)
    parts = [cast(x, common, False).ravel() for x in leaves]
    vector = tnp.concatenate(parts) if parts else tnp.zeros(0, common)
    return vector, _Unravel(treedef, tuple(shapes), tuple(types), common)


@dataclass(frozen=True)
class _Unravel:
    """The pytree of a vector. Functions for pytrees of one structure, with arrays of the same types, are equal."""

    treedef: pytrees.TreeDef
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[np.dtype[Any], ...]
    common: np.dtype[Any]

    def __call__(self, flat: Any) -> Any:
        given = as_array(flat, "unravel")
        bounds = list(accumulate(map(math.prod, self.shapes), initial=0))
        if given.shape != (bounds[-1],):
            raise ShapeError(f"unravel takes a vector of shape ({bounds[-1]},), but got the shape {given.shape}.")
        if all(t == self.common for t in self.types):
            types = [given.dtype] * len(self.types)
        elif given.dtype == self.common:
            types = list(self.types)
        else:
            raise DTypeError(
                f"unravel takes a vector of {self.common.name}, but got {given.dtype.name}; the arrays have several "
                "types, so convert it."
            )
        whole = zip(pairwise(bounds), self.shapes, types, strict=True)
        return pytrees.unflatten(self.treedef, [cast(given[a:b].reshape(s), t, False) for (a, b), s, t in whole])


def _raveled_keys(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A vector of all random keys of a pytree, which must have nothing else, and the function back."""
    leaves, treedef = pytrees.flatten_shown(pytree)
    check_same_keys("ravel_pytree", *leaves)
    vector = tnp.concatenate([x.ravel() for x in leaves])
    bounds = list(accumulate((x.size for x in leaves), initial=0))

    def unravel(flat: Any) -> Any:
        if getattr(flat, "shape", None) != vector.shape or flat.dtype != vector.dtype:
            raise DTypeError(f"unravel takes a vector {Shape.of(vector)}, but got {flat!r}.")
        rows = zip(pairwise(bounds), leaves, strict=True)
        return pytrees.unflatten(treedef, [flat[a:b].reshape(x.shape) for (a, b), x in rows])

    return vector, unravel


__all__ = ["ravel_pytree"]


def __dir__() -> list[str]:
    return __all__
