"""Products of arrays. Precision is accepted and kept in the graph: they are always computed in the operands'
precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.lax.operands import ArrayLike, DTypeLike, described, of_one_type
from tinyxla.numpy.arguments import array_of, cast, integers_of, preferred_type, promoted, several_of, summable
from tinyxla.numpy.operations import movement
from tinyxla.ops.products import contraction, ragged, scaled
from tinyxla.ops.products.precision import (
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    operand_precision as operand_precision,
)
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import ElementType, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.transforms.sharding_types import check_contracted

Pairs = tuple[Sequence[int], Sequence[int]]
DotDimensionNumbers = tuple[Pairs, Pairs]


def _dimensions(what: str, pairs: Any, ranks: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        left, right = pairs
    except (TypeError, ValueError):
        raise ArgumentError(f"{what}: a pair of sequences of dimensions is wanted, but got {pairs!r}.") from None
    return (
        tuple(canonical_axis(d, ranks[0], what) for d in integers_of(what, "dimensions", left)),
        tuple(canonical_axis(d, ranks[1], what) for d in integers_of(what, "dimensions", right)),
    )


def _dot_numbers(what: str, dimension_numbers: Any, ranks: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """As attributes of the op."""
    try:
        contracting, batch = dimension_numbers
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{what}: dimension_numbers is ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), but got "
            f"{dimension_numbers!r}."
        ) from None
    names = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    found = (*_dimensions(what, contracting, ranks), *_dimensions(what, batch, ranks))
    return dict(zip(names, found, strict=True))


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Products summed over contracting dimensions, for each index of batch dimensions.

    Args:
        lhs, rhs: the factors. They may be of two types of at most 8-bit floats.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`.
        precision: kept in the graph.
        preferred_element_type: the type to sum in, and of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        The batch dimensions, then the other ones of lhs, then those of rhs.

    Raises:
        ShapeError: contracting or batch dimensions of different sizes.

    >>> import numpy as np
    >>> from tinyxla.lax import dot_general
    >>> x, y = np.ones((5, 2, 3)), np.ones((5, 3, 4))
    >>> dot_general(x, y, (((2,), (1,)), ((0,), (0,)))).shape
    (5, 2, 4)
    """
    what = "lax.dot_general"
    if out_sharding is not None:
        _check_sums(what, out_sharding, (lhs, rhs), dimension_numbers[0])
        return placed_result(
            f"{what}: out_sharding",
            lambda: dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type),
            out_sharding,
        )
    factors = array_of(lhs, what), array_of(rhs, what)
    preferred = preferred_type(preferred_element_type)
    mixed = _type_of_mixed_floats(*(element_type(x.dtype) for x in factors))
    if mixed is not None:  # exact in float32, as are the products
        factors = tuple(cast(x, np.dtype(np.float32)) for x in factors)
    (x, y), _ = promoted(what, *(factors if mixed else (lhs, rhs)), is_implicit=False)
    product = contraction.dot(
        *summable(preferred, x, y),
        **_dot_numbers(what, dimension_numbers, (x.ndim, y.ndim)),
        preferred_element_type=None if mixed else preferred,
        operand_precision=operand_precision(what, precision),
    )
    return cast(product, (preferred or mixed).dtype) if mixed else product


def _check_sums(what: str, out_sharding: Any, operands: Sequence[Any], contracted: Sequence[Any]) -> None:
    """Refuse a product that is to be left as partial sums along other axes than those it is summed over."""
    arrays = [array_of(x, what) for x in operands]
    check_contracted(f"{what}: out_sharding", out_sharding, list(zip(arrays, contracted, strict=True)))


def _type_of_mixed_floats(x: ElementType, y: ElementType) -> ElementType | None:
    """The result's type where two types of at most 8-bit floats differ, between which there is no promotion: the one
    with the larger numbers. None for other types."""
    if x is y or {x.kind, y.kind} != {"float"} or max(x.bits, y.bits) > 8:
        return None
    largest = [float(ml_dtypes.finfo(kind.dtype).max) for kind in (x, y)]
    return None if largest[0] == largest[1] else x if largest[0] > largest[1] else y


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    out_sharding: Any = None,
) -> Array:
    """The product of vectors or matrices; with `dimension_numbers` the same as `dot_general`.

    Args:
        lhs, rhs: vectors [k] or matrices [m, k] and [k, n].
        dimension_numbers: as for `dot_general`, for arrays of any rank.
        precision, preferred_element_type, out_sharding: as for `dot_general`.

    Returns:
        A scalar, a vector or a matrix, without the dimension k; with `dimension_numbers` as `dot_general`.

    Raises:
        ShapeError: arrays of other ranks without `dimension_numbers`, or contracted sizes that differ.

    >>> import numpy as np
    >>> from tinyxla.lax import dot
    >>> dot(np.array([1, 2]), np.array([3, 4]))
    Array(11, dtype=int32)
    """
    if out_sharding is not None:
        contracted = ((np.ndim(lhs) - 1,), (0,)) if dimension_numbers is None else dimension_numbers[0]
        _check_sums("lax.dot", out_sharding, (lhs, rhs), contracted)
        return placed_result(
            "lax.dot: out_sharding",
            lambda: dot(
                lhs,
                rhs,
                dimension_numbers=dimension_numbers,
                precision=precision,
                preferred_element_type=preferred_element_type,
            ),
            out_sharding,
        )
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

    Args:
        lhs: matrices, of shape [..., m, k].
        rhs: matrices, of shape [..., k, n].
        precision: kept in the graph: products are computed in full precision.

    Returns:
        Matrices, of shape [..., m, n].

    Raises:
        ShapeError: different ranks, or sizes that do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import batch_matmul
    >>> batch_matmul(np.ones((5, 2, 3)), np.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = array_of(lhs, "lax.batch_matmul"), array_of(rhs, "lax.batch_matmul")
    if x.ndim != y.ndim or x.ndim < 2:
        raise ShapeError(f"lax.batch_matmul: the operands have equal ranks of at least 2, but got {described([x, y])}.")
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision)


class RaggedDotDimensionNumbers(NamedTuple):
    """Dimension numbers of a ragged product: those of `dot_general`, the one dimension of lhs that is cut into groups,
    and the dimension of rhs that counts groups, if it has one.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> numbers = lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], rhs_group_dimensions=[0])
    >>> x, weights = np.ones((5, 3)), np.ones((2, 3, 4))  # rows 0 and 1 times weights[0], the others times weights[1]
    >>> lax.ragged_dot_general(x, weights, np.array([2, 3]), numbers).shape
    (5, 4)
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    group_offset: None = None,
    out_sharding: Any = None,
) -> Array:
    """A product in which one dimension of `lhs` is cut into groups.

    Args:
        lhs, rhs: the factors, of one type.
        group_sizes: integers [g], the sizes of consecutive groups; or one such row for each index of batch dimensions
            and of dimensions of the same kind that come before the ragged one.
        ragged_dot_dimension_numbers: which dimensions are which. If the ragged one is free, each group has its own
            part of rhs, and what is in no group is zero; if it is contracting, each group has its own result, and
            groups are the first dimension; if it is a batch dimension, groups do not matter.
        precision: kept in the graph.
        preferred_element_type: the type to sum in, and of the result.
        group_offset: accepted for JAX's sake; must be None.
        out_sharding: how the result is sharded, with explicit mesh axes.

    Returns:
        As `dot_general`, without the dimension of rhs that counts groups.

    Raises:
        ShapeError, DTypeError, AttributeValueError, ArgumentError: for operands and arguments that do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import RaggedDotDimensionNumbers, ragged_dot_general
    >>> numbers = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    >>> ragged_dot_general(np.ones((4, 2)), np.ones((4, 1)), np.array([1, 3]), numbers)
    Array([[[1.],
            [1.]],
    <BLANKLINE>
           [[3.],
            [3.]]], dtype=float32)
    """
    what = "lax.ragged_dot_general"
    if group_offset is not None:
        raise ArgumentError(f"{what}: group_offset must be None, but is {group_offset!r}; slice rhs and group_sizes.")
    if out_sharding is not None:
        return placed_result(
            f"{what}: out_sharding",
            lambda: ragged_dot_general(
                lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision, preferred_element_type, group_offset
            ),
            out_sharding,
        )
    x, y = of_one_type(what, lhs, rhs)
    numbers = RaggedDotDimensionNumbers(
        *several_of(what, "ragged_dot_dimension_numbers", ragged_dot_dimension_numbers, 3)
    )
    return ragged.ragged_dot(
        x,
        y,
        array_of(group_sizes, what),
        **_dot_numbers(what, numbers.dot_dimension_numbers, (x.ndim, y.ndim)),
        lhs_ragged_dims=_dimensions(what, (numbers.lhs_ragged_dimensions, ()), (x.ndim, 0))[0],
        rhs_group_dims=_dimensions(what, (numbers.rhs_group_dimensions, ()), (y.ndim, 0))[0],
        preferred_element_type=preferred_type(preferred_element_type),
        operand_precision=operand_precision(what, precision),
    )


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    group_offset: None = None,
    out_sharding: Any = None,
) -> Array:
    """Rows [m, k] in groups, each times its own matrix of [g, k, n]; rows in no group give zeros.

    Args:
        lhs: rows [m, k].
        rhs: a matrix [k, n] for each of g groups.
        group_sizes: integers [g], how many rows are in each group.
        precision, preferred_element_type: as for `dot_general`.
        group_offset: accepted for compatibility; it must be None.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array [m, n].

    Raises:
        ShapeError: shapes that do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import ragged_dot
    >>> lhs, rhs = np.ones((3, 2)), np.array([[[1.0], [2.0]], [[3.0], [4.0]]])
    >>> ragged_dot(lhs, rhs, np.array([1, 2]))
    Array([[3.],
           [7.],
           [7.]], dtype=float32)
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    rest = precision, preferred_element_type, group_offset, out_sharding
    return ragged_dot_general(lhs, rhs, group_sizes, numbers, *rest)


def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """A product of arrays of few bits with scales for blocks along the contracting dimensions.

    Args:
        lhs, rhs: the factors; types of 8 and fewer bits are what this is for.
        lhs_scale, rhs_scale: factors of their elements; sizes are those of lhs and rhs, in contracting dimensions
            divisors of them. None means 1.
        dimension_numbers: as of `dot_general`; None means products of the last two dimensions as matrices.
        preferred_element_type: the type to sum in, and of the result; None means bfloat16.

    Returns:
        Batch dimensions, then the other ones of lhs, then those of rhs.

    Raises:
        ShapeError, DTypeError, ArgumentError: for operands and arguments that do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax import scaled_dot
    >>> scaled_dot(np.ones((2, 4)), np.ones((4, 1)), lhs_scale=np.float32([[1, 2], [3, 4]]))
    Array([[6],
           [14]], dtype=bfloat16)
    """
    what = "lax.scaled_dot"
    x, y = array_of(lhs, what), array_of(rhs, what)
    if dimension_numbers is None:
        if x.ndim != y.ndim or x.ndim < 2:
            raise ShapeError(
                f"{what}: without dimension_numbers the operands have equal ranks of at least 2, but got "
                f"{described([x, y])}."
            )
        batch = tuple(range(x.ndim - 2))
        dimension_numbers = (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch))
    numbers = _dot_numbers(what, dimension_numbers, (x.ndim, y.ndim))
    scales: list[Array] = []
    for whole, scale, side in ((x, lhs_scale, "lhs"), (y, rhs_scale, "rhs")):
        if scale is None:
            contracting = numbers[f"{side}_contracting_dims"]
            sizes = tuple(min(1, n) if d in contracting else n for d, n in enumerate(whole.shape))
            scales.append(movement.full(1, element_type("bf16").dtype, sizes))
        else:
            scales.append(array_of(scale, what))
    wanted = preferred_type(preferred_element_type) or element_type("bf16")
    return scaled.scaled_dot(x, scales[0], y, scales[1], **numbers, preferred_element_type=wanted, operand_precision=())
