"""Tridiagonal systems of equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ShapeError
from tinyxla.lax.implicit_solve import custom_linear_solve
from tinyxla.lax.loops.control_flow import scan
from tinyxla.lax.operands import ArrayLike, of_one_type
from tinyxla.numpy.arguments import inexact_array, with_flags
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array


@with_flags
def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """The x of a x = b for matrices a that are zero outside of three diagonals, by elimination with partial pivoting.

    Args:
        dl: what is below the diagonal, of shape [..., n]; its first element is not read.
        d: the diagonal, of shape [..., n].
        du: what is above it, of shape [..., n]; its last element is not read.
        b: right sides, of shape [..., n, k].
        perturb_singular: take for pivots that are smaller than rounding errors of the largest number among the
            eliminated rows that error, so that results are finite, as for inverse iteration. Without, x is NaN where a
            pivot is zero.

    Returns:
        An array of the shape of b.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the types are not equal.

    Source: gtsv of LAPACK; lagts for perturbed pivots.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import tridiagonal_solve
    >>> tridiagonal_solve(np.zeros(2), np.array([2.0, 4.0]), np.array([1.0, 0.0]), np.array([[4.0], [8.0]])).ravel()
    Array([1., 2.], dtype=float32)
    """
    what = "lax.linalg.tridiagonal_solve"
    low, middle, high, right = (inexact_array(v, what) for v in of_one_type(what, dl, d, du, b))
    if middle.ndim < 1 or not low.shape == middle.shape == high.shape == right.shape[:-1]:
        raise ShapeError(
            f"{what}: dl, d and du must have the shape [..., n] of b's [..., n, k], but are {Shape.of(low)}, "
            f"{Shape.of(middle)}, {Shape.of(high)} and {Shape.of(right)}."
        )
    if not right.size:
        return right
    axis = middle.ndim - 1
    diagonals, sides = [tnp.moveaxis(v, axis, 0) for v in (low, middle, high)], tnp.moveaxis(right, axis, 0)
    none = tnp.zeros_like(diagonals[0][:1])
    below, main, above = (
        tnp.concatenate([none, diagonals[0][1:]]),
        diagonals[1],
        tnp.concatenate([diagonals[2][:-1], none]),
    )
    transposed = tnp.concatenate([none, above[:-1]]), main, tnp.concatenate([below[1:], none])
    found = custom_linear_solve(
        lambda x: _product(below, main, above, x),
        sides,
        lambda _, y: _eliminated(below, main, above, y, bool(perturb_singular)),
        lambda _, y: _eliminated(*transposed, y, bool(perturb_singular)),
    )
    return tnp.moveaxis(found, 0, axis)


def _product(below: Any, main: Any, above: Any, x: Any) -> Any:
    """a x, rows first; what of the diagonals is outside of the matrix is zero."""
    none = tnp.zeros_like(x[:1])
    before, after = tnp.concatenate([none, x[:-1]]), tnp.concatenate([x[1:], none])
    return below[..., None] * before + main[..., None] * x + above[..., None] * after


def _eliminated(below: Any, main: Any, above: Any, right: Any, perturbed: bool) -> Any:
    """The solution, rows first: each step takes as its pivot row the larger of the row that is left over and the next
    one, which fills in a second diagonal above."""

    def eliminate(state: Any, row: Any) -> Any:
        first, second, side = state
        low, diagonal, high, known = row
        exchanged = tnp.abs(first) < tnp.abs(low)
        pivot, other = tnp.where(exchanged, low, first), tnp.where(exchanged, first, low)
        factor = other / tnp.where(pivot == 0, 1, pivot)
        high_pivot, low_pivot = tnp.where(exchanged, diagonal, second), tnp.where(exchanged, second, diagonal)
        fill = tnp.where(exchanged, high, 0)
        side_pivot = tnp.where(exchanged[..., None], known, side)
        side_left = tnp.where(exchanged[..., None], side, known)
        left = low_pivot - factor * high_pivot, tnp.where(exchanged, -factor * high, high)
        return (*left, side_left - factor[..., None] * side_pivot), (pivot, high_pivot, fill, side_pivot)

    start = main[0], above[0], right[0]
    end, rows = scan(eliminate, start, (below[1:], main[1:], above[1:], right[1:]))
    last = (*end[:2], tnp.zeros_like(end[0]), end[2])
    pivots, second, third, sides = (tnp.concatenate([a, b[None]]) for a, b in zip(rows, last, strict=True))
    if perturbed:
        largest = tnp.maximum(tnp.maximum(tnp.abs(pivots), tnp.abs(second)), tnp.abs(third)).max(0)
        least = tnp.maximum(largest * tnp.finfo(main.dtype).eps, tnp.finfo(main.dtype).tiny)[None]
        smaller = tnp.abs(pivots) < least
        sign = tnp.where(tnp.real(pivots) < 0, -1, 1).astype(main.dtype)
        pivots = tnp.where(smaller, sign * least.astype(main.dtype), pivots)
    else:
        pivots = tnp.where((pivots == 0).any(0)[None], np.nan, pivots)

    def substitute(state: Any, row: Any) -> Any:
        after, last = state
        pivot, high, fill, side = row
        x = (side - high[..., None] * after - fill[..., None] * last) / pivot[..., None]
        return (x, after), x

    zero = tnp.zeros_like(right[0])
    _, found = scan(substitute, (zero, zero), (pivots, second, third, sides), reverse=True)
    return found
