"""Linear algebra: factors of matrices, and systems with them. Matrices are the last two dimensions of arrays."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ShapeError
from tinyxla.lax.eigenvalues import (
    EighImplementation as EighImplementation,
    EigImplementation as EigImplementation,
    SvdAlgorithm as SvdAlgorithm,
    check_member,
    eig as eig,
)
from tinyxla.lax.householder import (
    hessenberg as hessenberg,
    householder_product as householder_product,
    ormqr as ormqr,
    schur as schur,
    tridiagonal as tridiagonal,
)
from tinyxla.lax.loops.control_flow import scan, while_loop
from tinyxla.lax.operands import ArrayLike, of_one_type
from tinyxla.lax.tridiagonal import tridiagonal_solve as tridiagonal_solve
from tinyxla.numpy.arguments import (
    array_of,
    count_of,
    inexact_array,
    integer_of,
    number_of,
    operand,
    refuse_complex,
    with_flags,
)
from tinyxla.numpy.matrix_factorizations import factors_qr, index_range, matrices, pivoted_qr, subset_svd, symmetrized
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

    Returns:
        Lower triangular matrices of the shape of x.

    Raises:
        ShapeError: the matrices are not square.

    Source: section "Cholesky" of the XLA documents.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import cholesky
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

    Returns:
        An array of the shape of b.

    Raises:
        ShapeError: the sizes do not fit.
        DTypeError: the types are not equal.

    Source: section "TriangularSolve" of the XLA documents.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import triangular_solve
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

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import lu
    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]]))[0]
    Array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float32)
    """
    return factorizations.lu(matrices("lax.linalg.lu", x))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The permutation that exchanges of rows make: which row comes to stand where.

    Args:
        pivots: int32 row indices, of shape [..., k]: row i is exchanged with row `pivots[i]`, in order.
        permutation_size: the number of rows, at least k.

    Returns:
        Int32 indices, of shape [..., permutation_size].

    Raises:
        ShapeError: pivots that are no integers, or more than the permutation has.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import lu_pivots_to_permutation
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


@overload
def qr(
    x: ArrayLike, *, pivoting: Literal[False] = False, full_matrices: bool = True, use_magma: Any = None
) -> tuple[Array, Array]: ...
@overload
def qr(
    x: ArrayLike, *, pivoting: Literal[True], full_matrices: bool = True, use_magma: Any = None
) -> tuple[Array, Array, Array]: ...
@with_flags
def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: Any = None) -> Any:
    """The factors of x = Q R: Q has orthonormal columns, R is upper triangular.

    Args:
        x: matrices, of shape [..., m, n].
        pivoting: exchange columns so that the diagonal of R descends in size, and give their order p, of shape
            [..., n], too: x[:, p] = Q R.
        full_matrices: Q is square; else it has min(m, n) columns, and derivatives also for m > n.
        use_magma: accepted for compatibility.

    Returns:
        Q and R; with `pivoting` also p.

    Raises:
        ShapeError: x is no matrix.

    Source: geqrf and geqp3 of LAPACK.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import qr
    >>> q, r = qr(np.ones((4, 2)), full_matrices=False)
    >>> q.shape, r.shape
    ((4, 2), (2, 2))
    """
    a = matrices("lax.linalg.qr", x)
    return pivoted_qr(a, bool(full_matrices)) if pivoting else factors_qr(a, bool(full_matrices))


@with_flags
def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """The eigenvectors, as columns, and the eigenvalues, in ascending order, of Hermitian matrices.

    Args:
        x: matrices, of shape [..., n, n].
        lower: read the lower triangle, if the input is not made symmetric.
        symmetrize_input: take the mean of x and its conjugate transpose.
        sort_eigenvalues: accepted for compatibility; eigenvalues ascend in any case.
        subset_by_index: the range (start, end) of those eigenvalues, in ascending order, that are given.
        implementation: accepted for compatibility; LAPACK computes.

    Returns:
        The eigenvectors [..., n, n] and the eigenvalues [..., n], which are real.

    Raises:
        ShapeError: the matrices are not square.
        ArgumentError: a range beyond them.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import eigh
    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]]))[1]
    Array([1., 2.], dtype=float32)
    """
    what = "lax.linalg.eigh"
    check_member(what, "implementation", implementation, EighImplementation)
    a = matrices(what, x, square=True)
    chosen = index_range(what, subset_by_index, a.shape[-1])
    vectors, values = factorizations.eigh(symmetrized(a) if symmetrize_input else a, lower=bool(lower))
    return (vectors, values) if chosen is None else (vectors[..., chosen], values[..., chosen])


@overload
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> tuple[Array, Array, Array]: ...
@overload
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: Literal[False],
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Array: ...
@with_flags
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """The factors U, s and V* of x = U diag(s) V*, with singular values s in descending order; or only these.

    Args:
        x: matrices, of shape [..., m, n].
        full_matrices: U and V* are square; else they have as many columns and rows as there are singular values. There
            is a derivative for that, where the singular values differ.
        compute_uv: give U and V*, too.
        subset_by_index: the range (start, end) of those singular values, in descending order, that are given; with
            vectors only if not `full_matrices`.
        algorithm: accepted for compatibility; LAPACK computes.

    Returns:
        U, s and V* of shapes [..., m, k], [..., k] and [..., k, n], k the smaller of m and n unless `full_matrices`; s
        alone without `compute_uv`.

    Raises:
        ArgumentError: a range beyond the singular values, or one of full matrices.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import svd
    >>> svd(np.array([[3.0, 0.0], [0.0, -4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    what = "lax.linalg.svd"
    check_member(what, "algorithm", algorithm, SvdAlgorithm)
    return subset_svd(what, matrices(what, x), bool(full_matrices), bool(compute_uv), subset_by_index)


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

    Returns:
        Matrices of the shape of c.

    Raises:
        ShapeError: the shapes do not fit.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import symmetric_product
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


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular factor of R^T R + w w^T, by rotations of R's rows with w.

    Args:
        r_matrix: real upper triangular matrices R, of shape [..., n, n].
        w_vector: vectors w, of shape [..., n].

    Returns:
        Upper triangular matrices of the shape of `r_matrix`.

    Raises:
        ShapeError: the sizes do not fit.
        DTypeError: complex numbers or types that are not equal.

    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", section 6.5.4.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import cholesky_update
    >>> cholesky_update(np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([4.0, 0.0]))
    Array([[5., 0.],
           [0., 1.]], dtype=float32)
    """
    what = "lax.linalg.cholesky_update"
    factor, vector = (inexact_array(v, what) for v in of_one_type(what, r_matrix, w_vector))
    factor = matrices(what, factor, square=True)
    refuse_complex(what, factor, vector)
    if vector.shape != factor.shape[:-1]:
        raise ShapeError(
            f"{what}: w_vector must have the shape [..., n] of r_matrix's [..., n, n], but they are {Shape.of(vector)} "
            f"and {Shape.of(factor)}."
        )
    size, axis = factor.shape[-1], factor.ndim - 2

    def rotate(w: Any, row: Any) -> Any:
        known, is_pivot = row
        pivot, other = (tnp.sum(tnp.where(is_pivot, v, 0), -1, keepdims=True) for v in (known, w))
        length = tnp.hypot(pivot, other)
        safe = tnp.where(length == 0, 1, length)
        cosine, sine = tnp.where(length == 0, 1, pivot / safe), other / safe
        return cosine * w - sine * known, cosine * known + sine * w

    pivots = tnp.eye(size, dtype=bool).reshape((size,) + (1,) * axis + (size,))
    _, rows = scan(rotate, vector, (tnp.moveaxis(factor, axis, 0), pivots))
    return tnp.triu(tnp.moveaxis(rows, 0, axis))


@with_flags
def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[Any, Any] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The polar decomposition x = U H by a dynamically weighted Halley iteration with QR factorizations.

    Args:
        x: a matrix of shape [m, n], m from n on.
        is_hermitian: x is Hermitian; U is made so, too.
        max_iterations: how many steps there are at most, 10 by default.
        eps: the precision to which the iteration goes, that of the type by default.
        dynamic_shape: None, or the shape of x.

    Returns:
        U, with orthonormal columns; H, which is positive semidefinite; the number of steps; and whether the iteration
        ended.

    Source: Y. Nakatsukasa, Z. Bai and F. Gygi, "Optimizing Halley's iteration for computing the matrix polar
    decomposition", SIAM Journal on Matrix Analysis and Applications 31 (2010).

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.
        ShapeError: a matrix with more columns than rows.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import qdwh
    >>> qdwh(np.array([[3.0, 0.0], [4.0, 0.0], [0.0, 2.0]]))[1].diagonal().round(4)
    Array([5., 2.], dtype=float32)
    """
    what = "lax.linalg.qdwh"
    a = matrices(what, x)
    if a.ndim != 2 or a.shape[0] < a.shape[1]:
        raise ShapeError(f"{what}: takes a matrix with at least as many rows as columns, but got {Shape.of(a)}.")
    if dynamic_shape is not None and tuple(dynamic_shape) != a.shape:
        raise ShapeError(f"{what}: dynamic_shape must be None or {a.shape}, but got {dynamic_shape!r}.")
    most = 10 if max_iterations is None else count_of(what, "max_iterations", max_iterations)
    real = tnp.real(a).dtype
    precision = float(tnp.finfo(a.dtype).eps) if eps is None else number_of(what, "eps", eps)
    norm = tnp.linalg.norm(a)
    start = a / tnp.where(norm == 0, 1, norm).astype(a.dtype)
    state = (start, tnp.asarray(precision, real), tnp.asarray(0, np.int32), tnp.asarray(False))
    unitary, _, steps, ended = while_loop(
        lambda s: (s[2] < most) & ~s[3], lambda s: _halley_step(s[0], s[1], s[2], precision), state
    )
    if is_hermitian:
        unitary = symmetrized(unitary)
    return unitary, symmetrized(tnp.matmul(tnp.conj(unitary.T), a)), steps, ended


def _halley_step(u: Any, low: Any, steps: Any, precision: float) -> Any:
    """One step with the best weights for singular values from `low` to 1."""
    square = low * low
    root = tnp.cbrt(4 * (1 - square) / (square * square))
    inner = tnp.sqrt(1 + root)
    a = inner + tnp.sqrt(8 - 4 * root + 8 * (2 - square) / (square * inner)) / 2
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    m, n = u.shape
    q, _ = factors_qr(tnp.concatenate([tnp.sqrt(c).astype(u.dtype) * u, tnp.eye(n, dtype=u.dtype)]), False)
    share = ((a - b / c) / tnp.sqrt(c)).astype(u.dtype)
    following = (b / c).astype(u.dtype) * u + share * tnp.matmul(q[:m], tnp.conj(q[m:].T))
    low = tnp.minimum(low * (a + b * square) / (1 + c * square), 1)
    close = tnp.linalg.norm(following - u) <= (4 * precision) ** (1 / 3) * tnp.linalg.norm(following)
    return following, low, steps + 1, close & (low >= 1 - 10 * precision)


__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "hessenberg",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "ormqr",
    "qdwh",
    "qr",
    "schur",
    "svd",
    "symmetric_product",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
]


def __dir__() -> list[str]:
    return __all__
