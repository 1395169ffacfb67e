"""Values between the elements of an array, under the names of `jax.scipy.ndimage`."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import array_of, choice_of, inexact_array, integer_of, several_of, shown
from tinyxla.ops.elementwise import round_nearest_afz
from tinyxla.tracing.array import Array


def _mirrored(k: Any, n: int) -> Any:
    turn = max(2 * n - 2, 1)
    return (n - 1) - tnp.abs(k % turn - (n - 1))


_PLACES: dict[str, Any] = {
    "constant": lambda k, n: k,
    "nearest": lambda k, n: tnp.clip(k, 0, n - 1),
    "wrap": lambda k, n: k % n,
    "mirror": _mirrored,
    "reflect": lambda k, n: _mirrored(2 * k + 1, 2 * n + 1) // 2,
}


def elements(x: Any, indices: Sequence[Any]) -> Any:
    """What is at these indices of the first dimensions, as far as there are such: one index into all of them needs no
    memory, as several put together do."""
    shape = x.shape[: len(indices)]
    flat: Any = 0
    for k, n in zip(indices, shape, strict=True):
        flat = flat * n + tnp.clip(k, 0, n - 1)
    whole = x.reshape(-1, *x.shape[len(shape) :])
    return whole.at[flat].get(mode="promise_in_bounds", wrap_negative_indices=False)


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Array:
    """The values of an array at places between its elements.

    Args:
        input: an array of rank d.
        coordinates: d arrays of one shape, of indices that need not be whole.
        order: 0 for the nearest element, 1 for linear interpolation, which is rounded where elements are integers.
            Halves are rounded away from zero in both.
        mode: how the array goes on outside: "constant" (`cval`), "nearest" (its edge), "wrap" (from its start),
            "mirror" (backwards, without the edge), "reflect" (backwards, with the edge).
        cval: what is outside in the mode "constant".

    Returns:
        An array of the shape of a coordinate and of the type of the input.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.ndimage import map_coordinates
    >>> map_coordinates(np.array([0.0, 2.0, 6.0]), [np.array([0.5, 1.5])], order=1)
    Array([1., 4.], dtype=float32)
    """
    what = "scipy.ndimage.map_coordinates"
    x = array_of(input, what)
    given = coordinates if isinstance(coordinates, Array) else several_of(what, "coordinates", coordinates)
    places = [array_of(c, what) for c in given]
    choice_of(what, "mode", mode, _PLACES)
    if integer_of(what, "order", order) not in (0, 1):
        raise ArgumentError(f"{what}: order must be 0 or 1, but got {order!r}.")
    outside = array_of(cval, what)
    if outside.ndim or (outside.dtype.kind == "c" and x.dtype.kind != "c"):
        raise ArgumentError(f"{what}: cval must be a number of the type of input, but got {shown(cval)}.")
    if len(places) != x.ndim:
        raise ShapeError(f"{what}: there must be coordinates for {x.ndim} dimensions, but got {len(places)}.")
    corners: list[list[tuple[Any, Any]]] = []  # by dimension: indices, and what part of the value they make
    for c in places:
        place = inexact_array(c, what)
        if order == 0:
            corners.append([(round_nearest_afz(place).astype(np.int32), 1.0)])
        else:
            low = tnp.floor(place)
            index = low.astype(np.int32)
            corners.append([(index, 1 - (place - low)), (index + 1, place - low)])
    total: Any = 0
    for corner in itertools.product(*corners):
        indices = tuple(_PLACES[mode](k, n) for (k, _), n in zip(corner, x.shape, strict=True))
        value = elements(x, indices)
        if mode == "constant":
            inside = [(k >= 0) & (k < n) for k, n in zip(indices, x.shape, strict=True)]
            value = tnp.where(functools.reduce(operator.and_, inside), value, cval)
        total += functools.reduce(operator.mul, [weight for _, weight in corner]) * value
    return (round_nearest_afz(total) if x.dtype.kind in "iu" else total).astype(x.dtype)


__all__ = ["map_coordinates"]


def __dir__() -> list[str]:
    return __all__
