"""Linear algebra: norms, products, systems and determinants, and what `matrix_factorizations` has. Matrices are the
last two axes."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.custom_derivatives import custom_jvp
from tinyxla.errors import ArgumentError, ShapeError, SquareMatrixError
from tinyxla.numpy import contractions
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    cast,
    choice_of,
    count_of,
    default_inexact_array,
    inexact_array,
    integer_of,
    integers_of,
    is_several,
    like,
    number_of,
    of_rank,
    promoted,
    several_of,
    with_flags,
)
from tinyxla.numpy.creation import arange
from tinyxla.numpy.diagonals import diagonal as diagonal_of, eye, trace as trace_of
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import log
from tinyxla.numpy.indexing.take_where import where
from tinyxla.numpy.joining import concatenate
from tinyxla.numpy.manipulation import expand_dims, matrix_transpose as transposed, moveaxis, reshape, squeeze
from tinyxla.numpy.matrix_factorizations import (
    cholesky as cholesky,
    eig as eig,
    eigh as eigh,
    eigvals as eigvals,
    eigvalsh as eigvalsh,
    matrices,
    qr as qr,
    svd as svd,
    svdvals as svdvals,
)
from tinyxla.numpy.operations import factorizations, linear_algebra, ops, systems
from tinyxla.numpy.reductions import any, max, min, prod, root_at_edges, sum
from tinyxla.ops.products.precision import PrecisionLike
from tinyxla.shapes import Shape
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_int
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.tracebacks import boundary


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


# --- norms ------------------------------------------------------------------------------------------------------------


def _squares(x: Any) -> Any:
    if x.dtype.kind != "c":
        return arith.multiply(x, x)
    re, im = arith.real(x), arith.imag(x)
    return arith.add(arith.multiply(re, re), arith.multiply(im, im))


def _euclidean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return root_at_edges(sum(_squares(x), axes, keepdims=keepdims), 2)


@replayed
@with_flags
def norm(x: ArrayLike, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """The norm of vectors or matrices.

    Args:
        x: an array.
        ord: for vectors a number, `inf` or `-inf` (2 if None: the Euclidean norm); for matrices `"fro"` (the default),
            `"nuc"`, 1, -1, 2, -2, `inf` or `-inf`.
        axis: the axis of vectors, or the two of matrices; None takes all (flattened if there is no `ord`).
        keepdims: the axes stay with size 1.

    Returns:
        A real number, or one for each vector or matrix.

    Raises:
        ArgumentError: an order that there is not.
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
        Array(5., dtype=float32)
    """
    x = inexact_array(array_of(x, "norm"), "norm")
    if ord is None:
        return _euclidean(x, canonical_axes("norm", axis, x.ndim), keepdims)
    if axis is None and x.ndim not in (1, 2):
        raise ShapeError(f"norm: an array of shape {x.shape} is no vector and no matrix; name the axes by `axis`.")
    axes: tuple[Any, ...] = tuple(range(x.ndim)) if axis is None else tuple(axis) if is_several(axis) else (axis,)
    if len(axes) == 1:
        return _vector_norm(x, ord, canonical_axes("norm", axes, x.ndim), keepdims)
    if len(axes) != 2:
        raise ShapeError(f"norm: takes one axis or two, but got {axes}.")
    canonical_axes("norm", axes, x.ndim)
    return _matrix_norm(x, ord, (axes[0] % x.ndim, axes[1] % x.ndim), keepdims)


def _largest(x: Any, axes: Any, keepdims: bool) -> Any:
    """The maximum of absolute values and 0. Equal ones share the derivative, as in JAX."""
    return max(x, axes, keepdims=keepdims, initial=0)


def _vector_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    size = arith.absolute(x)
    if not isinstance(ord, (int, float)):
        ord = number_of("norm", "the order of a vector norm", ord)
    if ord == np.inf:
        return _largest(size, axes, keepdims)
    if ord == -np.inf:
        return min(size, axes, keepdims=keepdims)
    if ord == 0:
        return cast(sum(arith.not_equal(x, 0), axes, keepdims=keepdims), size.dtype)
    if ord == 1:
        return sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    return root_at_edges(sum(arith.power(size, ord), axes, keepdims=keepdims), ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    order = ord if isinstance(ord, str) else number_of("norm", "the order of a matrix norm", ord)
    if order == "fro":
        return _euclidean(x, tuple(sorted(axes)), keepdims)
    if order in ("nuc", 2, -2):
        values = svdvals(moveaxis(x, axes, (-2, -1)))
        found = sum(values, -1) if order == "nuc" else _largest(values, -1, False) if order > 0 else min(values, -1)
        return expand_dims(found, sorted(axes)) if keepdims else found
    summed = {1: axes[0], -1: axes[0], np.inf: axes[1], -np.inf: axes[1]}
    if isinstance(order, str) or order not in summed:
        raise ArgumentError(
            f"norm: the order of a matrix norm is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, but got {ord!r}."
        )
    along = summed[order]
    other = axes[1] if along == axes[0] else axes[0]
    sums = sum(arith.absolute(x), along, keepdims=True)
    found = _largest(sums, other, True) if order > 0 else min(sums, other, keepdims=True)
    return found if keepdims else reshape(found, [n for d, n in enumerate(x.shape) if d not in axes])


@replayed
@with_flags
def vector_norm(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm of vectors along axes, or of all elements: a real number.

    Args:
        x: an array.
        axis: an axis, or several; all elements if None.
        keepdims: whether the result keeps the axes, with size 1.
        ord: the order of the norm: a real number, 2 by default.

    Returns:
        Real numbers, of the shape of x without the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ArgumentError: an `ord` that is no real number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.vector_norm(jnp.array([3.0, 4.0]))
        Array(5., dtype=float32)
    """
    x = default_inexact_array(x, "vector_norm")
    return _vector_norm(x, ord, canonical_axes("vector_norm", axis, x.ndim), keepdims)


@replayed
@with_flags
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices in the last two axes, a real number each.

    Args:
        x: matrices of shape [..., m, n].
        keepdims: whether the result keeps both axes, with size 1.
        ord: "fro" (Frobenius), "nuc" (the sum of singular values), 2 or -2 (the largest or smallest singular value), 1
            or -1 (the largest or smallest sum of magnitudes of a column), infinity or -infinity (of a row).

    Returns:
        Real numbers, of the shape of x without its last two axes.

    Raises:
        ShapeError: an array of fewer than two dimensions.
        ArgumentError: another `ord`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.matrix_norm(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
        Array(5., dtype=float32)
    """
    x = inexact_array(array_of(x, "matrix_norm"), "matrix_norm")
    if x.ndim < 2:
        raise ShapeError(f"matrix_norm: takes matrices, but got an array of shape {x.shape}.")
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


# --- products ---------------------------------------------------------------------------------------------------------


@replayed
def matrix_power(a: ArrayLike, n: int) -> Array:
    """The n-th power of square matrices, by repeated squaring; a negative one of their inverses.

    Args:
        a: square matrices, of shape [..., n, n].
        n: the exponent, a Python integer.

    Returns:
        Matrices of the shape of a.

    Raises:
        SquareMatrixError: what are no square matrices.
        ArgumentError: an n that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.matrix_power(jnp.array([[1, 1], [1, 0]]), 10)
        Array([[89, 55],
               [55, 34]], dtype=int32)
    """
    x = array_of(a, "matrix_power")
    exponent = integer_of("matrix_power", "n", n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise SquareMatrixError(f"matrix_power: takes square matrices, but got an array of shape {x.shape}.")
    if exponent < 0:
        x, exponent = inv(x), -exponent
    if exponent == 0:
        return arith.multiply(like(1, x), eye(x.shape[-1], dtype=x.dtype))
    return arith.raised(x, exponent, contractions.matmul)


@replayed
def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """The product of several matrices, or batches of them (the first and last may be vectors), in the cheapest order.

    Args:
        arrays: arrays whose sizes fit one after the other.
        precision: as for `lax.dot_general`; products are always computed in full precision.

    Returns:
        An array.

    Raises:
        ArgumentError: fewer than two arrays.
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.multi_dot([jnp.ones((10, 3)), jnp.ones((3, 500)), jnp.ones((500, 2))]).shape
        (10, 2)
    """
    operands = [array_of(x, "multi_dot") for x in several_of("multi_dot", "arrays", arrays)]
    if len(operands) < 2:
        raise ArgumentError(f"multi_dot: takes at least two arrays, but got {len(operands)}.")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    terms: list[str] = []
    at = 0
    for k, x in enumerate(operands):
        inner = 0 < k < len(operands) - 1
        if x.ndim < 1 + inner:
            raise ShapeError(f"multi_dot: operand {k} of shape {x.shape} is no matrix.")
        core = builtins.min(x.ndim, 2)
        terms.append("..." * (x.ndim > 2) + letters[at : at + core])
        at += core - 1
    output = (terms[0][-2] if operands[0].ndim > 1 else "") + (terms[-1][-1] if operands[-1].ndim > 1 else "")
    batch = "..." if builtins.any(x.ndim > 2 for x in operands) else ""
    return contractions.einsum(f"{','.join(terms)}->{batch}{output}", *operands, precision=precision)


@boundary
def matmul(
    x1: ArrayLike, x2: ArrayLike, /, *, precision: PrecisionLike = None, preferred_element_type: Any = None
) -> Array:
    """The matrix product; see `tinyxla.numpy.matmul`.

    Args:
        x1, x2: arrays.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        Matrices [..., m, n] for x1 [..., m, k] and x2 [..., k, n].

    Raises:
        ShapeError: an array without dimensions, or sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.matmul(jnp.eye(2), jnp.array([3.0, 4.0]))
        Array([3., 4.], dtype=float32)
    """
    return contractions.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """The last two axes exchanged.

    Args:
        x: matrices, of shape [..., m, n].

    Returns:
        An array of the same type.

    Raises:
        ShapeError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.matrix_transpose(jnp.array([[1, 2], [3, 4]]))
        Array([[1, 3],
               [2, 4]], dtype=int32)
    """
    return transposed(x)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """All products of an element of one vector with one of the other.

    Args:
        x1, x2: vectors.

    Returns:
        A matrix.

    Raises:
        ShapeError: arrays that are no vectors.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([3, 4, 5]))
        Array([[ 3,  4,  5],
               [ 6,  8, 10]], dtype=int32)
    """
    for x in (x1, x2):
        if np.ndim(x) != 1:
            raise ShapeError(f"linalg.outer: takes vectors, but got {Shape.of(array_of(x, 'linalg.outer'))}.")
    return contractions.outer(x1, x2)


@boundary
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of 3 elements along an axis.

    Args:
        x1, x2: arrays.
        axis: the axis of vectors.

    Returns:
        An array of vectors.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: vectors of another number of elements.
        AxisError: an axis that an array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.cross(jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]))
        Array([0., 0., 1.], dtype=float32)
    """
    for x in (array_of(x1, "linalg.cross"), array_of(x2, "linalg.cross")):
        if x.shape[canonical_axis(axis, x.ndim, "linalg.cross")] != 3:
            raise ShapeError(f"linalg.cross: takes vectors of 3 elements, but got {Shape.of(x)} and axis {axis}.")
    return contractions.cross(x1, x2, axis=axis)


@boundary
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """The dot products along an axis, the first conjugated; they are summed in `preferred_element_type`, if given.

    Args:
        x1, x2: arrays.
        axis: the axis of vectors.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An array without the axis.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.vecdot(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 1.0]))
        Array([3., 7.], dtype=float32)
    """
    if preferred_element_type is None:
        return contractions.vecdot(x1, x2, axis=axis, precision=precision)
    x, y = (moveaxis(array_of(v, "linalg.vecdot"), axis, -1) for v in (x1, x2))
    left, right = expand_dims(arith.conjugate(x), -2), expand_dims(y, -1)
    found = contractions.matmul(left, right, precision=precision, preferred_element_type=preferred_element_type)
    return squeeze(found, (-2, -1))


@replayed
def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: Any = 2,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sum over axes of both; see `tinyxla.numpy.tensordot`.

    Args:
        x1, x2: arrays.
        axes: a number of axes, or a list of axes of x1 and one of axes of x2.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the other axes of x1, then those of x2.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.tensordot(jnp.ones((2, 3, 4)), jnp.ones((3, 4, 5)), axes=2).shape
        (2, 5)
    """
    kinds: Any = {"precision": precision, "preferred_element_type": preferred_element_type}
    return contractions.tensordot(x1, x2, axes, **kinds, out_sharding=out_sharding)


@boundary
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices in the last two axes.

    Args:
        x: matrices, of shape [..., m, n].
        offset: the diagonal: 0 is the main one, positive ones are above it.

    Returns:
        An array of the shape of `x` with the diagonal as its last axis, in place of two.

    Raises:
        AxisError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.diagonal(jnp.arange(9).reshape(3, 3), offset=1)
        Array([1, 5], dtype=int32)
    """
    return diagonal_of(x, offset, -2, -1)


@boundary
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of matrices in the last two axes.

    Args:
        x: matrices, of shape [..., m, n].
        offset: the diagonal: 0 is the main one, positive ones are above it.
        dtype: the element type of the result.

    Returns:
        An array of the shape of x without its last two axes.

    Raises:
        AxisError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.trace(jnp.arange(9).reshape(3, 3))
        Array(12, dtype=int32)
    """
    return trace_of(x, offset, -2, -1, dtype)


# --- systems ----------------------------------------------------------------------------------------------------------


@boundary
def triangular(a: Any, b: Any, lower: bool, unit_diagonal: bool = False, transpose_a: str = "NO_TRANSPOSE") -> Any:
    """The x of op(a) x = b for a triangular a."""
    return linear_algebra.triangular_solve(
        a, b, left_side=True, lower=lower, unit_diagonal=unit_diagonal, transpose_a=transpose_a
    )


@boundary
def system(what: str, a: ArrayLike, b: ArrayLike) -> tuple[Any, Any, bool]:
    """Matrices and right-hand sides with the same batch axes, and whether b is one vector."""
    (x, y), _ = promoted(what, a, b, to_inexact=True)
    vector = y.ndim == 1
    x, y = matrices(what, x, square=True), expand_dims(y, -1) if vector else matrices(what, y)
    if y.shape[-2] != x.shape[-1]:
        raise ShapeError(f"{what}: the sizes of a and b must be equal, but got {Shape.of(x)} and {Shape.of(y)}.")
    batch = broadcast_shapes(what, x.shape[:-2], y.shape[:-2])
    x, y = (broadcast_to_shape(what, v, (*batch, *v.shape[-2:])) for v in (x, y))
    return x, y, vector


@replayed
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solutions x of a x = b, by factors L U of a.

    Args:
        a: matrices, of shape [..., n, n].
        b: a vector of n elements, or matrices of shape [..., n, k].

    Returns:
        An array of the shape of b.

    Raises:
        SquareMatrixError: what are no square matrices.
        ShapeError: right-hand sides of another number of rows.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.solve(jnp.array([[2.0, 1.0], [0.0, 4.0]]), jnp.array([4.0, 8.0]))
        Array([1., 2.], dtype=float32)
    """
    x, y, vector = system("linalg.solve", a, b)
    found = systems.solve(x, y, transpose_a=False)
    return squeeze(found, -1) if vector else found


@replayed
def inv(a: ArrayLike) -> Array:
    """The inverses of square matrices; where there is none the elements are not finite.

    Args:
        a: square matrices, of shape [..., n, n].

    Returns:
        Matrices of the shape of a.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    x = matrices("linalg.inv", a, square=True)
    return solve(x, broadcast_to_shape("linalg.inv", eye(x.shape[-1], dtype=x.dtype), x.shape))


@with_flags
def pinv(
    a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *, rcond: ArrayLike | None = None
) -> Array:
    """The pseudo-inverses of matrices, by their singular values, of which those up to `rtol` times the largest count as
    0. The derivative is that of matrices of the same rank.

    Args:
        a: matrices, of shape [..., m, n].
        rtol: by default 10 times the larger size and the precision of the type; a number, or one for each matrix.
        hermitian: whether the matrices are equal to their adjoints; these are square.
        rcond: another name of `rtol`.

    Returns:
        Matrices [..., n, m].

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> a = jnp.array([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
        >>> bool(jnp.allclose(jnp.linalg.pinv(a) @ a, jnp.eye(2)))
        True
    """
    rtol = _one_of("linalg.pinv", rtol=rtol, rcond=rcond)
    x = matrices("linalg.pinv", a, square=bool(hermitian))
    tolerance = array_of(10 * _precision(x) if rtol is None else rtol, "linalg.pinv")
    return _pseudo_inverse(x, cast(tolerance, ops.real(x).dtype))[0]


@custom_jvp
def _pseudo_inverse(x: Any, tolerance: Any) -> tuple[Any, Any]:
    """The pseudo-inverses, and of each whether the rank is less than the smaller size, as 0 or 1."""
    u, s, vh = factorizations.svd(x, full_matrices=False)
    kept = arith.greater(s, _bound("linalg.pinv", s, tolerance))
    inverse = cast(where(kept, arith.divide(1, where(kept, s, 1)), 0), x.dtype)
    right = arith.multiply(linear_algebra.adjoint(vh), expand_dims(inverse, -2))
    deficient = arith.subtract(1, cast(min(kept, -1, initial=True), x.dtype))
    return contractions.matmul(right, linear_algebra.adjoint(u)), deficient


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    """P' = -P X' P + P P* X'* (I - X P) + (I - P X) X'* P* P, for constant rank. With full rank either of the two
    projections is zero, and rounding errors of it would count.

    Source: G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems
    whose variables separate", SIAM Journal on Numerical Analysis 10 (1973), equation (4.12).
    """
    (x, tolerance), (change, _) = primals, tangents
    found, deficient = _pseudo_inverse(x, tolerance)
    adjoint, product = linear_algebra.adjoint, contractions.matmul
    rows, columns = x.shape[-2:]
    share = deficient[..., None, None]
    back = adjoint(change)
    if rows >= columns:  # no square of the larger size is formed
        inside = arith.subtract(eye(columns, dtype=x.dtype), product(found, x))
        first = product(product(found, adjoint(found)), arith.subtract(back, product(product(back, x), found)))
        second = product(product(inside, product(back, adjoint(found))), found)
        middle = product(product(found, change), found)
    else:
        outside = arith.subtract(eye(rows, dtype=x.dtype), product(x, found))
        first = product(found, product(product(adjoint(found), back), outside))
        second = product(arith.subtract(back, product(found, product(x, back))), product(adjoint(found), found))
        middle = product(found, product(change, found))
    moved = arith.negative(middle)
    moved = arith.add(moved, arith.multiply(share, first) if rows <= columns else first)
    moved = arith.add(moved, arith.multiply(share, second) if columns <= rows else second)
    return (found, deficient), (moved, None)


def _one_of(what: str, **names: Any) -> Any:
    """The value of an argument that has two names."""
    given = {name: value for name, value in names.items() if value is not None}
    if len(given) > 1:
        raise ArgumentError(f"{what}: {' and '.join(given)} are one argument; give it once.")
    return next(iter(given.values()), None)


def _bound(what: str, s: Array, rtol: ArrayLike) -> Array:
    """The largest singular value of each matrix times its tolerance."""
    tolerance = cast(array_of(rtol, what), s.dtype)
    largest = max(s, -1, keepdims=True, initial=0)
    return arith.multiply(largest, expand_dims(tolerance, -1) if tolerance.ndim else tolerance)


def _precision(x: Any) -> float:
    """Relative to the largest singular value, what may be left of a 0 after rounding."""
    return builtins.max(x.shape[-2:]) * float(ml_dtypes.finfo(x.dtype).eps)


@with_flags
def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """The x that makes the sum of squares of b - a x least, and of these the shortest.

    Args:
        a: a matrix of shape [m, n].
        b: m numbers, or a matrix of shape [m, k].
        rcond: singular values up to this times the largest count as 0.
        numpy_resid: as in NumPy there are no sums of squares, but an empty array, unless a has more rows than columns
            and these are independent; the rank must be known then, which it is not under `jit`.

    Returns:
        x, the sums of squares, the rank of a, and its singular values.

    Raises:
        ShapeError: right-hand sides of another number of rows.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.lstsq(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0]))[0]
        Array([2.], dtype=float32)
    """
    found, rest, rank, s = _least_squares(a, b, rcond)
    rows, columns = array_of(a, "linalg.lstsq").shape
    if numpy_resid and (rows <= columns or int(rank) < columns):
        rest = rest[:0]
    return found, rest, rank, s


def _least_squares(a: ArrayLike, b: ArrayLike, rcond: float | None) -> tuple[Array, Array, Array, Array]:
    what = "linalg.lstsq"
    (x, y), _ = promoted(what, a, b, to_inexact=True)
    if x.ndim != 2 or y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
        raise ShapeError(
            f"{what}: takes a matrix and as many numbers or rows, but got {Shape.of(x)} and {Shape.of(y)}."
        )
    sides = expand_dims(y, -1) if y.ndim == 1 else y
    tolerance = cast(array_of(_precision(x) if rcond is None else rcond, what), ops.real(x).dtype)
    found, s = _shortest_solution(x, sides, tolerance)
    kept = arith.greater(s, _bound(what, s, tolerance))
    rest = sum(_squares(arith.subtract(sides, contractions.matmul(x, found))), 0)
    return squeeze(found, -1) if y.ndim == 1 else found, rest, sum(kept), s


@custom_jvp
def _shortest_solution(x: Any, sides: Any, tolerance: Any) -> tuple[Any, Any]:
    """Of the solutions of least squares the shortest, and the singular values."""
    u, s, vh = factorizations.svd(x, full_matrices=False)
    kept = arith.greater(s, _bound("linalg.lstsq", s, tolerance))
    along = contractions.matmul(linear_algebra.adjoint(u), sides)
    scaled = where(expand_dims(kept, -1), arith.divide(along, expand_dims(cast(where(kept, s, 1), along.dtype), -1)), 0)
    return contractions.matmul(linear_algebra.adjoint(vh), scaled), s


@_shortest_solution.defjvp
def _shortest_solution_jvp(primals: tuple[Any, Any, Any], tangents: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """With the pseudo-inverse P of X, of constant rank: y' = P (b' - X' y) + P P* X'* (b - X y) + (I - P X) X'* P* y,
    where with full rank of rows or columns the second or the third is zero; see `_pseudo_inverse_jvp`. No two singular
    values are compared, which may be equal."""
    (x, sides, tolerance), (change, side_change, _) = primals, tangents
    adjoint, product = linear_algebra.adjoint, contractions.matmul
    u, _, vh = factorizations.svd(x, full_matrices=False)
    found, s = _shortest_solution(x, sides, tolerance)
    inverse, deficient = _pseudo_inverse(x, tolerance)
    rows, columns = x.shape
    rest = arith.subtract(sides, product(x, found))
    beyond = arith.subtract(eye(columns, dtype=x.dtype), product(inverse, x))
    if rows <= columns:
        rest = arith.multiply(deficient, rest)
    if columns <= rows:
        beyond = arith.multiply(deficient, beyond)
    moved = product(inverse, arith.subtract(side_change, product(change, found)))
    moved = arith.add(moved, product(inverse, product(adjoint(inverse), product(adjoint(change), rest))))
    moved = arith.add(moved, product(beyond, product(adjoint(change), product(adjoint(inverse), found))))
    s_moved = ops.real(diagonal_of(product(adjoint(u), product(change, adjoint(vh))), 0, -2, -1))
    return (found, s), (moved, s_moved)


# --- determinants, ranks, condition numbers, tensors ------------------------------------------------------------------


@custom_jvp
def _pivots_of(x: Any) -> Any:
    """Of square matrices P x = L U: the diagonals of U, and whether P exchanges rows an odd number of times.

    All that is made of them depends on determinants alone, of which each of n pivots is said to have an equal share: so
    a derivative needs a solution, and none of the factors.
    """
    lu, pivots, _ = factorizations.lu(x)
    unmoved = of_rank(arange(pivots.shape[-1], dtype=pivots.dtype), pivots.ndim)
    exchanged = arith.not_equal(pivots, unmoved)
    return diagonal_of(lu, 0, -2, -1), arith.equal(arith.remainder(sum(exchanged, -1, dtype=np.int32), 2), 1)


@_pivots_of.defjvp
def _pivots_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (x,), (change,) = primals, tangents
    diagonals, odd = _pivots_of(x)
    share = trace_of(systems.solve(x, change, transpose_a=False), 0, -2, -1)[..., None] / builtins.max(x.shape[-1], 1)
    return (diagonals, odd), (diagonals * share, None)


@replayed
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """The signs of determinants (complex numbers of size 1 for complex matrices) and the logarithms of their sizes.

    Args:
        a: matrices, of shape [..., n, n].
        method: None, `"lu"` or `"qr"`; factors L U are taken in any case.

    Returns:
        The signs, and the logarithms, which are real; of the shape of a without its last two axes.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.slogdet(jnp.eye(3)).logabsdet
        Array(0., dtype=float32)
    """
    if method is not None:
        choice_of("linalg.slogdet", "method", method, ("lu", "qr"))
    x = matrices("linalg.slogdet", a, square=True)
    diagonals, odd = _pivots_of(x)
    signs = prod(ops.sign(diagonals), -1)
    sign = where(odd, arith.negative(signs), signs)
    return SlogdetResult(sign, sum(log(arith.absolute(diagonals)), -1))


@replayed
def det(a: ArrayLike) -> Array:
    """The determinants of square matrices, those of more than 3 rows by factors L U.

    Args:
        a: square matrices, of shape [..., n, n].

    Returns:
        An array of the shape of `a` without its last two axes, in floating point or complex.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
        Array(-2., dtype=float32)
    """
    x = matrices("linalg.det", a, square=True)
    size = x.shape[-1]
    if not is_symbolic(size) and size <= 3:
        return _expanded(x)
    return _determinant(x)


@custom_jvp
def _determinant(x: Any) -> Any:
    diagonals, odd = _pivots_of(x)
    product = prod(diagonals, -1)
    return where(odd, arith.negative(product), product)


@_determinant.defjvp
def _determinant_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """Jacobi's formula: the trace of the adjugate times X'. The adjugate is the determinant times the inverse, where
    there is one."""
    from tinyxla.lax.loops.control_flow import (
        cond as branch,  # here, since that package is made of functions of this one
    )

    (x,), (change,) = primals, tangents
    value = _determinant(x)
    singular = arith.equal(value, 0)
    mask, size = singular[..., None, None], x.shape[-1]
    regular = where(mask, eye(size, dtype=x.dtype), x)
    moved = arith.multiply(value, trace_of(systems.solve(regular, change, transpose_a=False), 0, -2, -1))
    distinct = expand_dims(arange(1, size + 1, dtype=x.dtype), -1)  # of whose singular values there are derivatives
    rest = where(mask, x, arith.multiply(eye(size, dtype=x.dtype), distinct))
    special = branch(
        any(singular),
        lambda: trace_of(contractions.matmul(_adjugate(rest), change), 0, -2, -1),
        lambda: arith.multiply(0, moved),
    )
    return value, where(singular, special, moved)


def _adjugate(x: Any) -> Any:
    """That of a product is the product of the adjugates in the other order: here of a unitary matrix, singular values
    and a unitary matrix."""
    u, s, vh = factorizations.svd(x, full_matrices=False)
    others = prod(where(eye(x.shape[-1], dtype=bool), 1, expand_dims(s, -2)), -1)
    right = arith.multiply(linear_algebra.adjoint(vh), expand_dims(cast(others, x.dtype), -2))
    phase = arith.multiply(_determinant(u), _determinant(vh))[..., None, None]
    return arith.multiply(phase, contractions.matmul(right, linear_algebra.adjoint(u)))


def _expanded(x: Any) -> Any:
    """By the minors of the first row."""
    size = x.shape[-1]
    if size < 2:
        return x[..., 0, 0] if size else sum(x, (-2, -1)) + 1
    below = x[..., 1:, :]
    total = x[..., 0, 0] * _expanded(below[..., 1:])
    for k in range(1, size):
        others = below[..., :k] if k == size - 1 else concatenate([below[..., :k], below[..., k + 1 :]], -1)
        term = x[..., 0, k] * _expanded(others)
        total = total - term if k % 2 else total + term
    return total


@replayed
@with_flags
def matrix_rank(
    M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False, tol: ArrayLike | None = None
) -> Array:
    """How many singular values are more than `rtol` times the largest; `tol` is another name of that.

    Args:
        M: matrices, or a vector.
        rtol, tol: the relative tolerance; the larger size times the precision of the type by default.
        hermitian: whether the matrices are equal to their adjoints.

    Returns:
        Integers of the default type, of the shape of `M` without its last two axes.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.matrix_rank(jnp.ones((3, 3)))
        Array(1, dtype=int32)
    """
    rtol = _one_of("linalg.matrix_rank", rtol=rtol, tol=tol)
    given = array_of(M, "linalg.matrix_rank")
    if given.ndim < 2:  # as in NumPy, 1 unless all are zero
        return cast(any(arith.not_equal(given, 0)), default_int())
    x = matrices("linalg.matrix_rank", M)
    s = svdvals(x)
    bound = _bound("linalg.matrix_rank", s, _precision(x) if rtol is None else rtol)
    return sum(arith.greater(s, bound), -1)


@replayed
def cond(x: ArrayLike, p: Any = None) -> Array:
    """The condition numbers of matrices: the norm times that of the inverse.

    Args:
        x: matrices.
        p: the order of the norm, as in `norm`; 2 by default.

    Returns:
        Real numbers, of the shape of x without its last two axes; infinity for singular matrices.

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.
        ArgumentError: an order that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.cond(jnp.diag(jnp.array([1.0, 2.0, 4.0])))
        Array(4., dtype=float32)
    """
    value = matrices("linalg.cond", x)
    if not value.size:
        raise ShapeError(f"linalg.cond: the matrices must have elements, but got {Shape.of(value)}.")
    order = 2 if p is None else p if isinstance(p, str) else number_of("linalg.cond", "p", p)
    if order in (2, -2):
        s = svdvals(value)
        found = arith.divide(*((s[..., -1], s[..., 0]) if order == -2 else (s[..., 0], s[..., -1])))
    else:
        found = arith.multiply(matrix_norm(value, ord=order), matrix_norm(inv(value), ord=order))
    # As in NumPy: a singular matrix has no inverse, and zeros have no quotient of singular values.
    undefined = any(arith.isnan(value), axis=(-2, -1))
    return where(arith.logical_and(arith.isnan(found), arith.logical_not(undefined)), math.inf, found)


@replayed
def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of an array as a map from its last axes to the first `ind`, whose sizes have the same product.

    Args:
        a: an array.
        ind: the number of axes of the result's domain.

    Returns:
        An array with the last axes first.

    Raises:
        ShapeError: sizes before and after axis `ind` whose products differ.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> a = jnp.eye(24).reshape(4, 6, 8, 3)
        >>> jnp.linalg.tensorinv(a).shape
        (8, 3, 4, 6)
    """
    x = inexact_array(a, "linalg.tensorinv")
    split = count_of("linalg.tensorinv", "ind", ind)
    rows, columns = x.shape[:split], x.shape[split:]
    if split < 1 or math.prod(rows) != math.prod(columns):
        raise ShapeError(f"linalg.tensorinv: the sizes before and after axis {split} of {x.shape} must agree.")
    return reshape(inv(reshape(x, (math.prod(rows), math.prod(columns)))), (*columns, *rows))


@replayed
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The x of tensordot(a, x, x.ndim) = b; `axes` of a are put last first.

    Args:
        a, b: arrays.
        axes: axes of a that are moved to the end.

    Returns:
        An array of the shape of the last axes of a.

    Raises:
        ShapeError: shapes that make no square system.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> a, b = 2 * jnp.eye(6).reshape(2, 3, 6), jnp.ones((2, 3))
        >>> jnp.linalg.tensorsolve(a, b)
        Array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], dtype=float32)
    """
    x, y = inexact_array(a, "linalg.tensorsolve"), inexact_array(b, "linalg.tensorsolve")
    if axes is not None:
        last = integers_of("linalg.tensorsolve", "axes", axes)
        x = moveaxis(x, last, list(range(x.ndim - len(last), x.ndim)))
    sizes = x.shape[y.ndim :]
    if x.shape[: y.ndim] != y.shape or math.prod(sizes) != y.size:
        raise ShapeError(f"linalg.tensorsolve: the shapes {x.shape} and {y.shape} do not make a square system.")
    return reshape(solve(reshape(x, (y.size, y.size)), reshape(y, (y.size,))), sizes)


__getattr__ = _missing(__name__)


__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return __all__
