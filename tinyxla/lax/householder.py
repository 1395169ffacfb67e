"""Householder reflectors: reductions of matrices that leave them, and products with them; Schur forms.

A product of reflectors is applied in compact form, I - V T V*: three matrix products and one triangular solve.
Source: T. Joffrain et al., "Accumulating Householder transformations, revisited", ACM TOMS 32 (2006).
"""

from __future__ import annotations

from typing import Any

from tinyxla import numpy as tnp
from tinyxla.errors import ShapeError
from tinyxla.lax.operands import ArrayLike, of_one_type
from tinyxla.numpy import lapack
from tinyxla.numpy.arguments import inexact_array, with_flags
from tinyxla.numpy.linalg import triangular
from tinyxla.numpy.matrix_factorizations import matrices
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """The reduction of square matrices to upper Hessenberg form by Householder reflectors. It has no derivative.

    Args:
        a: matrices, of shape [..., n, n].

    Returns:
        The Hessenberg matrix with the reflectors below the first subdiagonal, and their scalar factors, of shape
        [..., n - 1].

    Source: gehrd of LAPACK.

    Raises:
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import hessenberg
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]]))[0]
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    return lapack.hessenberg(matrices("lax.linalg.hessenberg", a, square=True))


@with_flags
def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """The reduction of Hermitian matrices to tridiagonal form by Householder reflectors. It has no derivative.

    Args:
        a: matrices, of shape [..., n, n], of which one triangle is read.
        lower: read the lower triangle.

    Returns:
        The tridiagonal matrix with the reflectors below it (above, if not `lower`), its diagonal, what is beside the
        diagonal, and the scalar factors of the reflectors, of shape [..., n - 1].

    Source: sytrd and hetrd of LAPACK.

    Raises:
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import tridiagonal
    >>> tridiagonal(np.array([[1.0, 2.0], [2.0, 4.0]]))[1]
    Array([1., 4.], dtype=float32)
    """
    found: Any = lapack.tridiagonal(matrices("lax.linalg.tridiagonal", a, square=True), bool(lower))
    return found


@with_flags
def schur(
    x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable: Any = None
) -> list[Array]:
    """The Schur form T and the unitary Z of square matrices x = Z T Z*. It has no derivative.

    Args:
        x: matrices, of shape [..., n, n].
        compute_schur_vectors: give Z, too.
        sort_eig_vals, select_callable: accepted for compatibility.

    Returns:
        T, which is triangular, but for blocks of 2 x 2 with conjugate eigenvalues in the diagonal of real matrices; and
        Z. Both are NaN where the iteration does not converge.

    Source: gees of LAPACK.

    Raises:
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import schur
    >>> schur(np.array([[1.0, 2.0], [0.0, 3.0]]))[0]
    Array([[1., 2.],
           [0., 3.]], dtype=float32)
    """
    form, vectors = lapack.schur(matrices("lax.linalg.schur", x, square=True))
    return [form, vectors] if compute_schur_vectors else [form]


def _compact(what: str, a: Any, taus: Any) -> tuple[Any, Any]:
    """V and T of the product I - V T V* of reflectors, where T^-1 is diag(1 / tau) plus what of V* V is right of the
    diagonal."""
    m, n = a.shape[-2:]
    count = taus.shape[-1] if taus.ndim else 0
    if taus.ndim != a.ndim - 1 or taus.shape[:-1] != a.shape[:-2] or count > min(m, n):
        raise ShapeError(
            f"{what}: taus must have the shape [..., k] of a's [..., m, n] with k up to m and n, but they are "
            f"{Shape.of(taus)} and {Shape.of(a)}."
        )
    unit = tnp.broadcast_to(tnp.eye(m, count, dtype=a.dtype), (*a.shape[:-2], m, count))
    vectors = tnp.tril(a[..., :count], -1) + unit
    scale = taus[..., :, None]
    inner = tnp.matmul(tnp.conj(tnp.matrix_transpose(vectors)), vectors)
    one = tnp.broadcast_to(tnp.eye(count, dtype=a.dtype), inner.shape)
    return vectors, triangular(scale * tnp.triu(inner, 1) + one, scale * one, False, True)


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first columns of a product of Householder reflectors: Q of a QR factorization, say.

    Args:
        a: matrices, of shape [..., m, n], with m from n on, whose lower triangles hold the reflectors.
        taus: their scalar factors, of shape [..., k], k at most n.

    Returns:
        Matrices of the shape of a.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the types are not equal.

    Source: orgqr of LAPACK.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import householder_product
    >>> householder_product(np.array([[5.0], [1.0]]), np.array([1.0]))
    Array([[ 0.],
           [-1.]], dtype=float32)
    """
    what = "lax.linalg.householder_product"
    x, factors = (inexact_array(v, what) for v in of_one_type(what, a, taus))
    x = matrices(what, x)
    m, n = x.shape[-2:]
    if m < n:
        raise ShapeError(f"{what}: a must have at least as many rows as columns, but got {Shape.of(x)}.")
    vectors, middle = _compact(what, x, factors)
    unit = tnp.broadcast_to(tnp.eye(m, n, dtype=x.dtype), x.shape)
    adjoint = tnp.conj(tnp.matrix_transpose(vectors[..., :n, :]))
    return unit - tnp.matmul(vectors, tnp.matmul(middle, adjoint))


@with_flags
def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """The product of matrices with the Q that Householder reflectors make, without Q itself.

    Args:
        a: the reflectors, of shape [..., m, n], as `numpy.linalg.qr(mode="raw")` gives them, transposed.
        taus: their scalar factors, of shape [..., k].
        c: matrices of shape [..., m, p] with `left`, else [..., p, m].
        left: Q c instead of c Q.
        transpose: Q* instead of Q.

    Returns:
        Matrices of the shape of c.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the types are not equal.

    Source: ormqr and unmqr of LAPACK.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import ormqr
    >>> ormqr(np.array([[5.0], [1.0]]), np.array([1.0]), np.eye(2))
    Array([[ 0., -1.],
           [-1.,  0.]], dtype=float32)
    """
    what = "lax.linalg.ormqr"
    x, factors, y = (inexact_array(v, what) for v in of_one_type(what, a, taus, c))
    x, y = matrices(what, x), matrices(what, y)
    size = y.shape[-2] if left else y.shape[-1]
    if y.shape[:-2] != x.shape[:-2] or size != x.shape[-2]:
        raise ShapeError(
            f"{what}: Q has {x.shape[-2]} rows and the batch axes of a, so c cannot be {Shape.of(y)} for {Shape.of(x)}."
        )
    vectors, middle = _compact(what, x, factors)
    adjoint = tnp.conj(tnp.matrix_transpose(vectors))
    if transpose:
        middle = tnp.conj(tnp.matrix_transpose(middle))
    if left:
        return y - tnp.matmul(vectors, tnp.matmul(middle, tnp.matmul(adjoint, y)))
    return y - tnp.matmul(tnp.matmul(tnp.matmul(y, vectors), middle), adjoint)
