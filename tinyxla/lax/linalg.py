"""Linear algebra: factors of matrices, and systems with them. Matrices are the last two dimensions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ShapeError
from tinyxla.lax.control_flow import scan
from tinyxla.lax.operands import ArrayLike, of_one_type
from tinyxla.numpy.arguments import array_of, inexact_array, integer_of, operand, with_flags
from tinyxla.numpy.linalg import factors_qr, matrices, symmetrized
from tinyxla.numpy.operations import factorizations, linear_algebra, movement, ops
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array


@with_flags
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L of positive definite Hermitian matrices L L*; NaN where a matrix is not positive definite.

    Args:
        x: matrices, of shape [..., n, n].
        symmetrize_input: take the mean of x and its conjugate transpose, so that derivatives are symmetric, too;
            without, only the lower triangle is read.

    Errors: `ShapeError` if the matrices are not square.

    Source: section "Cholesky" of the XLA documents.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    a = matrices("lax.linalg.cholesky", x, square=True)
    return linear_algebra.cholesky(symmetrized(a) if symmetrize_input else a, lower=True)


@with_flags
def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The x of op(a) x = b, or of x op(a) = b, for triangular matrices.

    Args:
        a: matrices, of shape [..., m, m], of which one triangle is read.
        b: matrices of shape [..., m, k] with `left_side`, else [..., k, m]; or vectors [..., m].
        left_side: op(a) stands left of the unknowns.
        lower: read the lower triangle.
        transpose_a, conjugate_a: what op does.
        unit_diagonal: the diagonal is all 1, and not read.

    Errors: `ShapeError` if the sizes do not fit, `DTypeError` if the types are not equal.

    Source: section "TriangularSolve" of the XLA documents.

    >>> triangular_solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]), left_side=True, lower=True)
    Array([1., 2.], dtype=float32)
    """
    what = "lax.linalg.triangular_solve"
    x, y = (inexact_array(v, what) for v in of_one_type(what, a, b))
    x, sides = matrices(what, x, square=True), y
    vector = y.ndim == x.ndim - 1
    if vector:
        sides = movement.reshape(y, sizes=(*y.shape, 1) if left_side else (*y.shape[:-1], 1, y.shape[-1]))
    if conjugate_a and not transpose_a:
        x = ops.conj(x)
    solved: Any = linear_algebra.triangular_solve(
        x,
        sides,
        left_side=bool(left_side),
        lower=bool(lower),
        unit_diagonal=bool(unit_diagonal),
        transpose_a="NO_TRANSPOSE" if not transpose_a else "ADJOINT" if conjugate_a else "TRANSPOSE",
    )
    return movement.reshape_to(solved, y.shape) if vector else solved


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """The factors of P x = L U, with partial pivoting.

    Args:
        x: matrices, of shape [..., m, n].

    Returns:
        L below the diagonal (its own is all 1) and U above, in one array; which row each row was exchanged with; and
        the permutation that these exchanges make.

    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]]))[0]
    Array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float32)
    """
    return factorizations.lu(matrices("lax.linalg.lu", x))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The permutation that exchanges of rows make: which row comes to stand where.

    >>> lu_pivots_to_permutation(np.array([1, 1], np.int32), 3)
    Array([1, 0, 2], dtype=int32)
    """
    what = "lax.linalg.lu_pivots_to_permutation"
    given: Any = array_of(pivots, what)
    size = integer_of(what, "permutation_size", permutation_size)
    if not element_type(given.dtype).is_integer or given.ndim == 0 or given.shape[-1] > size:
        raise ShapeError(f"{what}: pivots must be integers, at most {size} of them, but got {Shape.of(given)}.")
    numbers = ops.convert(given, new_element_type=element_type(np.int32))
    return factorizations.pivots_to_permutation(numbers, permutation_size=size)


@with_flags
def qr(x: ArrayLike, *, full_matrices: bool = True) -> tuple[Array, Array]:
    """The factors of x = Q R: Q has orthonormal columns, R is upper triangular.

    Args:
        x: matrices, of shape [..., m, n].
        full_matrices: Q is square; else it has min(m, n) columns, and derivatives also for m > n.

    >>> q, r = qr(np.ones((4, 2)), full_matrices=False)
    >>> q.shape, r.shape
    ((4, 2), (2, 2))
    """
    return factors_qr(matrices("lax.linalg.qr", x), bool(full_matrices))


@with_flags
def eigh(x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True) -> tuple[Array, Array]:
    """The eigenvectors, as columns, and the eigenvalues, in ascending order, of Hermitian matrices.

    Args:
        x: matrices, of shape [..., n, n].
        lower: read the lower triangle, if the input is not made symmetric.
        symmetrize_input: take the mean of x and its conjugate transpose.

    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]]))[1]
    Array([1., 2.], dtype=float32)
    """
    a = matrices("lax.linalg.eigh", x, square=True)
    return factorizations.eigh(symmetrized(a) if symmetrize_input else a, lower=bool(lower))


@with_flags
def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """The factors U, s and V* of x = U diag(s) V*, with singular values s in descending order; or only these.

    Args:
        x: matrices, of shape [..., m, n].
        full_matrices: U and V* are square; else they have as many columns and rows as there are singular values. There
            is a derivative for that, where the singular values differ.
        compute_uv: give U and V*, too.

    >>> svd(np.array([[3.0, 0.0], [0.0, -4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    a = matrices("lax.linalg.svd", x)
    full = bool(full_matrices) and a.shape[-1] != a.shape[-2]
    return factorizations.svd(a, full_matrices=full) if compute_uv else factorizations.svd(a, full_matrices=False)[1]


@with_flags
def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """alpha a a^T + beta c for symmetric c.

    Args:
        a_matrix: a, of shape [..., m, n].
        c_matrix: c, of shape [..., m, m].
        alpha, beta: numbers.
        symmetrize_output: what is above the diagonal is taken from below it.

    Errors: `ShapeError` if the shapes do not fit.

    >>> symmetric_product(np.array([[1.0], [2.0]]), np.eye(2), beta=3.0)
    Array([[4., 2.],
           [2., 7.]], dtype=float32)
    """
    what = "lax.linalg.symmetric_product"
    a, c = (matrices(what, v) for v in of_one_type(what, a_matrix, c_matrix))
    if c.shape != (*a.shape[:-1], a.shape[-2]):
        raise ShapeError(
            f"{what}: c_matrix must have the shape [..., m, m] of a_matrix's [..., m, n], but they are {Shape.of(c)} "
            f"and {Shape.of(a)}."
        )
    alpha, beta = operand(alpha, what), operand(beta, what)
    found = alpha * tnp.matmul(a, tnp.matrix_transpose(a)) + beta * c
    if not symmetrize_output:
        return found
    return tnp.tril(found) + tnp.matrix_transpose(tnp.tril(found, -1))


def tridiagonal_solve(dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike) -> Array:
    """The x of a x = b for matrices a that are zero outside of three diagonals, by elimination without pivoting.

    Args:
        dl: what is below the diagonal, of shape [..., n]; its first element is not read.
        d: the diagonal, of shape [..., n].
        du: what is above it, of shape [..., n]; its last element is not read.
        b: right sides, of shape [..., n, k].

    Errors: `ShapeError` if the shapes do not fit.

    Source: L. Thomas, "Elliptic Problems in Linear Differential Equations over a Network" (1949).

    >>> tridiagonal_solve(np.zeros(2), np.array([2.0, 4.0]), np.array([1.0, 0.0]), np.array([[4.0], [8.0]])).ravel()
    Array([1., 2.], dtype=float32)
    """
    what = "lax.linalg.tridiagonal_solve"
    low, middle, high, right = (inexact_array(v, what) for v in of_one_type(what, dl, d, du, b))
    if not low.shape == middle.shape == high.shape == right.shape[:-1]:
        raise ShapeError(
            f"{what}: dl, d and du must have the shape [..., n] of b's [..., n, k], but are {Shape.of(low)}, "
            f"{Shape.of(middle)}, {Shape.of(high)} and {Shape.of(right)}."
        )
    axis = middle.ndim - 1
    rows: list[Any] = [tnp.moveaxis(v, axis, 0) for v in (low, middle, high, right)]

    def eliminate(above: Any, row: Any) -> Any:
        c, y = above
        below, diagonal, upper, side = row
        pivot = 1 / (diagonal - below * c)
        now = (upper * pivot, (side - below[..., None] * y) * pivot[..., None])
        return now, now

    def insert(x: Any, row: Any) -> Any:
        c, y = row
        x = y - c[..., None] * x
        return x, x

    none = (rows[2][0] * 0, rows[3][0] * 0)
    _, reduced = scan(eliminate, none, tuple(rows))
    _, found = scan(insert, none[1], reduced, reverse=True)
    return tnp.moveaxis(found, 0, axis)
