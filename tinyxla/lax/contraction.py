"""Products of arrays. Precision is accepted for compatibility: they are always computed in the operands' precision."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.lax.operands import ArrayLike, DTypeLike, described
from tinyxla.numpy.arguments import array_of, integer_of, promoted, python_dtype
from tinyxla.ops import contraction
from tinyxla.shapes import element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array

Pairs = tuple[Sequence[int], Sequence[int]]
DotDimensionNumbers = tuple[Pairs, Pairs]


class Precision(enum.Enum):
    """How exactly products are computed on hardware that has a choice."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


PrecisionLike = Precision | str | None | tuple[Any, Any]


def _dimensions(what: str, pairs: Any, ranks: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        left, right = pairs
    except (TypeError, ValueError):
        raise ArgumentError(f"{what}: a pair of sequences of dimensions is wanted, but got {pairs!r}.") from None
    return (
        tuple(canonical_axis(integer_of(what, "a dimension", d), ranks[0], what) for d in left),
        tuple(canonical_axis(integer_of(what, "a dimension", d), ranks[1], what) for d in right),
    )


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Products summed over contracting dimensions, for each index of batch dimensions.

    Args:
        lhs, rhs: the factors.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`.
        precision: accepted for compatibility.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        The batch dimensions, then the other ones of lhs, then those of rhs.

    >>> x, y = np.ones((5, 2, 3)), np.ones((5, 3, 4))
    >>> dot_general(x, y, (((2,), (1,)), ((0,), (0,)))).shape
    (5, 2, 4)
    """
    what = "lax.dot_general"
    (x, y), _ = promoted(what, lhs, rhs)
    try:
        contracting, batch = dimension_numbers
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{what}: dimension_numbers is ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), but got "
            f"{dimension_numbers!r}."
        ) from None
    lhs_contracting, rhs_contracting = _dimensions(what, contracting, (x.ndim, y.ndim))
    lhs_batch, rhs_batch = _dimensions(what, batch, (x.ndim, y.ndim))
    return contraction.dot(
        x,
        y,
        lhs_contracting_dims=lhs_contracting,
        rhs_contracting_dims=rhs_contracting,
        lhs_batch_dims=lhs_batch,
        rhs_batch_dims=rhs_batch,
        preferred_element_type=None
        if preferred_element_type is None
        else element_type(python_dtype(preferred_element_type)),
    )


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The product of vectors or matrices; with `dimension_numbers` the same as `dot_general`.

    >>> dot(np.array([1, 2]), np.array([3, 4]))
    Array(11, dtype=int32)
    """
    x, y = array_of(lhs, "lax.dot"), array_of(rhs, "lax.dot")
    if dimension_numbers is None:
        if x.ndim not in (1, 2) or y.ndim not in (1, 2):
            raise ShapeError(
                f"lax.dot: without dimension_numbers the operands are vectors or matrices, but got {described([x, y])}."
            )
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Matrix products of the last two dimensions, for each index of the others, which both have.

    >>> batch_matmul(np.ones((5, 2, 3)), np.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = array_of(lhs, "lax.batch_matmul"), array_of(rhs, "lax.batch_matmul")
    if x.ndim != y.ndim or x.ndim < 2:
        raise ShapeError(f"lax.batch_matmul: the operands have equal ranks of at least 2, but got {described([x, y])}.")
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision)
