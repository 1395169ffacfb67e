"""Values of a sparsified function besides BCOO arrays: those with a background, and dense ones that are broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import SparseRuleError
from tinyxla.experimental.sparse.bcoo import BCOO
from tinyxla.ops import movement
from tinyxla.tracing.array import ConcreteArray
from tinyxla.transforms.control_flow import known_value

Values = Sequence[Any]


class Wide(NamedTuple):
    """A sparse array whose elements that are not specified are `background`, which is not zero."""

    mat: BCOO
    background: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mat.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.mat.dtype

    @classmethod
    def of(cls, mat: BCOO, background: Any) -> Any:
        """The array itself where the background is zero."""
        return mat if background == 0 else cls(mat, background)


class Spread(NamedTuple):
    """A dense array that is broadcast, but not yet in memory. `splat` is its one number, if that is known."""

    x: Any
    sizes: tuple[int, ...]
    dimensions: tuple[int, ...]
    splat: Any

    @classmethod
    def of(cls, x: Any, *, sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> Spread:
        if isinstance(x, Spread):
            places = tuple(dimensions[d] for d in x.dimensions)
            return cls(x.x, sizes, places, x.splat)
        return cls(x, sizes, dimensions, known_number(x))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.x.dtype

    @property
    def ndim(self) -> int:
        return len(self.sizes)

    @property
    def narrow(self) -> Any:
        """An array that broadcasts to this one, of the size of the one that is spread."""
        sizes = [1] * len(self.sizes)
        for d, n in zip(self.dimensions, self.x.shape, strict=True):
            sizes[d] = n
        return movement.reshape_to(self.x, tuple(sizes))


def known_number(x: Any) -> Any:
    """The one number of an array of one element, if it is known."""
    if isinstance(x, Spread):
        return x.splat
    value = x.buffer() if isinstance(x, ConcreteArray) else known_value(x)
    return None if value is None or np.size(value) != 1 else np.asarray(value, x.dtype).reshape(-1)[0]


def dense(x: Any) -> Any:
    """A dense value in memory."""
    return movement.broadcast(x.x, sizes=x.sizes, dimensions=x.dimensions) if isinstance(x, Spread) else x


def plain(x: Any) -> Any:
    """A value as an array, sparse or dense: an error where most elements are not zero."""
    if isinstance(x, Wide):
        raise refused(f"a function whose value at zero is {x.background}")
    return dense(x)


def refused(what: str) -> SparseRuleError:
    return SparseRuleError(
        f"sparsify: {what}. Use sparse.todense() on the array, inside the function or before, where a dense one is "
        "meant."
    )
