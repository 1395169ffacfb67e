"""Associated Legendre functions of all degrees and orders at once: `jax.scipy.special.lpmn_values`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.numpy.arguments import ArrayLike
from tinyxla.tracing.array import Array


def lpmn_values(m: int, n: int, z: ArrayLike, is_normalized: bool) -> Array:
    """The associated Legendre functions with the phase of Condon and Shortley, by the recurrence in the degree of the
    normalized ones.

    Args:
        m, n: the largest order and degree, which are equal.
        z: a vector of arguments from -1 to 1.
        is_normalized: whether spherical harmonics of the functions are orthonormal.

    Returns:
        An array of order, degree and argument.

    Raises:
        ArgumentError: m and n differ.
        DTypeError: z has no 32-bit or 64-bit floats.
        ShapeError: z is not a vector.

    >>> lpmn_values(1, 1, np.array([0.0, 1.0], np.float32), False)[0]
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    what, x = "scipy.special.lpmn_values", tnp.asarray(z)
    if x.dtype.name not in ("float32", "float64"):
        raise DTypeError(f"{what}: z must be float32 or float64, but is {x.dtype.name}.")
    if x.ndim != 1:
        raise ShapeError(f"{what}: z must be a vector, but has the shape {x.shape}.")
    if m != n or m < 0:
        raise ArgumentError(f"{what}: m and n are one integer from 0 on, but got {m} and {n}.")
    values = _normalized(m, x)
    return values if is_normalized else _unnormalized(values)


def _normalized(most: int, x: Any) -> Any:
    """Of one degree after the other the functions of all orders: the one of the order of the degree from the last of
    the degree before, the others from the two degrees before."""
    order, degree = np.arange(most + 1), np.arange(1, most + 1)[:, None]
    is_lower = order < degree
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.sqrt((4.0 * degree**2 - 1) / (degree**2 - order**2))
        second = first * np.sqrt(((degree - 1.0) ** 2 - order**2) / (4.0 * (degree - 1) ** 2 - 1))
    diagonal = -np.sqrt(1 + 0.5 / degree) * (order == degree)
    steps = [np.where(is_lower, first, 0), np.where(is_lower, second, 0), diagonal]
    sine = tnp.sqrt((1 - x) * (1 + x))

    def advance(known_and_before: Any, step: Any) -> Any:
        known, before = known_and_before
        a, b, c = (coefficients[:, None] for coefficients in step)
        last = tnp.pad(known[:-1], ((1, 0), (0, 0)))
        new = a * x * known - b * before + c * sine * last
        return (new, known), new

    start = tnp.zeros((most + 1, x.size), x.dtype).at[0].set(1 / math.sqrt(4 * math.pi))
    _, found = lax.scan(advance, (start, tnp.zeros_like(start)), [tnp.asarray(step, x.dtype) for step in steps])
    return tnp.concatenate([start[None], found]).transpose(1, 0, 2)


def _unnormalized(values: Any) -> Any:
    most = values.shape[0] - 1
    scales = np.ones((most + 1, most + 1))
    for m in range(most + 1):
        for l in range(m, most + 1):  # noqa: E741 (the degree)
            scales[m, l] = math.exp(0.5 * (math.lgamma(l + m + 1) - math.lgamma(l - m + 1)))
    degree = np.arange(most + 1)
    factor = tnp.asarray(scales * np.sqrt(4 * math.pi / (2 * degree + 1)), values.dtype)
    return tnp.where(values == 0, 0, values * factor[..., None])
