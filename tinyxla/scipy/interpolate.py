"""Interpolation, under the names of `jax.scipy.interpolate`."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import inexact_array
from tinyxla.scipy.ndimage import elements
from tinyxla.tracing.array import Array


class RegularGridInterpolator:
    """A function of points in d dimensions, from its values on a grid whose lines need not be evenly spaced.

    Args:
        points: the grid's places along each dimension, d ascending vectors.
        values: an array whose first d dimensions are those of the grid.
        method: "linear" or "nearest".
        bounds_error: must be False: compiled functions raise no errors.
        fill_value: the value outside of the grid; None: go on as at its edge.

    >>> import numpy as np
    >>> from tinyxla.scipy.interpolate import RegularGridInterpolator
    >>> f = RegularGridInterpolator((np.array([0.0, 2.0]), np.array([0.0, 1.0])), np.array([[0.0, 1.0], [2.0, 3.0]]))
    >>> f(np.array([[1.0, 0.5]]))
    Array([1.5], dtype=float32)
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = float("nan"),
    ) -> None:
        what = "scipy.interpolate.RegularGridInterpolator"
        if bounds_error:
            raise ArgumentError(f"{what}: bounds_error must be False; points outside get fill_value.")
        self.grid = tuple(inexact_array(p, what) for p in points)
        self.values = inexact_array(values, what)
        self.method = _method(method)
        self.fill_value = fill_value
        sizes = tuple(p.size for p in self.grid)
        if self.values.shape[: len(sizes)] != sizes:
            raise ShapeError(f"{what}: values of shape {self.values.shape} do not fit a grid of {sizes} places.")

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at points: an array whose last dimension are coordinates, or one array for each of these."""
        d = len(self.grid)
        x = tnp.stack(tnp.broadcast_arrays(*xi), -1) if isinstance(xi, tuple) else inexact_array(xi, "xi")
        if x.ndim == 1 and d in (1, x.size):  # coordinates of points on a line, or of one point
            x = x.reshape(-1, d)
        if x.shape[-1:] != (d,):
            raise ShapeError(f"RegularGridInterpolator: points must have {d} coordinates, but got shape {x.shape}.")
        nearest = _method(method or self.method) == "nearest"
        ends: list[list[tuple[Any, Any]]] = []
        inside: list[Any] = []
        for k, places in enumerate(self.grid):
            c = x[..., k]
            low = tnp.clip(tnp.searchsorted(places, c) - 1, 0, places.size - 2)
            part = (c - places[low]) / (places[low + 1] - places[low])
            ends.append(
                [(tnp.where(part <= 0.5, low, low + 1), 1.0)] if nearest else [(low, 1 - part), (low + 1, part)]
            )
            inside.append((c >= places[0]) & (c <= places[-1]))
        more = (..., *[None] * (self.values.ndim - d))
        total: Any = 0
        for corner in itertools.product(*ends):
            weight = tnp.asarray(functools.reduce(operator.mul, [w for _, w in corner]))
            total += elements(self.values, [k for k, _ in corner]) * (weight[more] if weight.ndim else weight)
        if self.fill_value is None:
            return total
        return tnp.where(functools.reduce(operator.and_, inside)[more], total, self.fill_value)


def _method(method: str) -> str:
    if method not in ("linear", "nearest"):
        raise ArgumentError(f"RegularGridInterpolator: method must be 'linear' or 'nearest', but got {method!r}.")
    return method


__all__ = ["RegularGridInterpolator"]


def __dir__() -> list[str]:
    return __all__
