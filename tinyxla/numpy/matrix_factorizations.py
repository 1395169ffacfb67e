"""Factorizations of matrices: Cholesky's, QR, eigenvalues and singular values."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, SquareMatrixError
from tinyxla.numpy import lapack
from tinyxla.numpy.arguments import (
    ArrayLike,
    broadcast_to_shape,
    cast,
    choice_of,
    inexact_array,
    integers_of,
    with_flags,
)
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.take_where import take_along_axis
from tinyxla.numpy.joining import concatenate
from tinyxla.numpy.manipulation import expand_dims, flip, matrix_transpose as transposed
from tinyxla.numpy.operations import eigenvalues, factorizations, linear_algebra
from tinyxla.numpy.sorting import argsort
from tinyxla.shapes import Shape
from tinyxla.shapes.symbolic import min_dim
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary


class EigResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    Q: Array
    R: Array


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


@boundary
def matrices(what: str, x: ArrayLike, square: bool = False) -> Any:
    """An argument that is a matrix or several, of a floating or complex type."""
    value = inexact_array(x, what)
    if value.ndim < 2 or (square and value.shape[-1] != value.shape[-2]):
        raise SquareMatrixError(f"{what}: takes {'square ' if square else ''}matrices, but got {Shape.of(value)}.")
    return value


def symmetrized(x: Any) -> Any:
    """The mean of square matrices and their conjugate transposes."""
    return arith.multiply(arith.add(x, linear_algebra.adjoint(x)), 0.5)


@replayed
@with_flags
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The triangular factors of positive definite Hermitian matrices: L of L L*, or U of U* U; NaN for others.

    Args:
        a: matrices, of shape [..., n, n].
        upper: give U instead of L.
        symmetrize_input: take the mean of a and its conjugate transpose; else only one triangle is read.

    Returns:
        Triangular matrices, of the shape of a.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
        Array([[2., 0.],
               [1., 2.]], dtype=float32)
    """
    x = matrices("linalg.cholesky", a, square=True)
    return linear_algebra.cholesky(symmetrized(x) if symmetrize_input else x, lower=not upper)


@boundary
def factors_qr(x: Any, full_matrices: bool) -> tuple[Any, Any]:
    """Q and R. What is right of a square part of R is Q* times it."""
    m, n = x.shape[-2:]
    if m >= n:
        return factorizations.qr(x, full_matrices=full_matrices and m > n)
    q, r = factorizations.qr(x[..., :m], full_matrices=False)
    others: Any = linear_algebra.matrix_product(linear_algebra.adjoint(q), x[..., m:])
    return q, concatenate([r, others], -1)


@boundary
def pivoted_qr(x: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Q and R of the matrices with columns in an order in which the diagonal of R descends in size, and that order."""
    order = lapack.column_pivots(x)
    columns = broadcast_to_shape("linalg.qr", expand_dims(order, -2), x.shape)
    return (*factors_qr(take_along_axis(x, columns, -1), full_matrices), order)


@replayed
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """The factors of a = Q R: Q has orthonormal columns, R is upper triangular.

    Args:
        a: matrices, of shape [..., m, n].
        mode: `"reduced"` gives Q with min(m, n) columns, `"complete"` with m, `"r"` only R; `"raw"` gives the
            transposed Householder reflectors with R, and their scalar factors, without derivatives.

    Returns:
        Q and R; R alone for "r"; the reflectors and their factors for "raw".

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.
        ArgumentError: a mode that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.qr(jnp.ones((4, 2))).Q.shape
        (4, 2)
    """
    choice_of("linalg.qr", "mode", mode, ("reduced", "complete", "r", "raw"))
    if mode == "raw":
        reflectors, factors = lapack.qr_reflectors(matrices("linalg.qr", a))
        return QRResult(transposed(reflectors), factors)
    found = QRResult(*factors_qr(matrices("linalg.qr", a), mode == "complete"))
    return found.R if mode == "r" else found


@replayed
@with_flags
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """The eigenvalues, in ascending order, and the eigenvectors, as columns, of Hermitian matrices.

    Args:
        a: matrices, of shape [..., n, n].
        UPLO: which triangle is read, `"L"` (the default) or `"U"`, if the input is not made symmetric.
        symmetrize_input: take the mean of a and its conjugate transpose.

    Returns:
        The eigenvalues [..., n], which are real, and the eigenvectors [..., n, n].

    Raises:
        SquareMatrixError: what are no square matrices.
        ArgumentError: `UPLO` that is not "L" or "U".

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        Array([1., 2.], dtype=float32)
    """
    x = matrices("linalg.eigh", a, square=True)
    lower = UPLO is None or choice_of("linalg.eigh", "UPLO", UPLO, ("L", "U")) == "L"
    vectors, values = factorizations.eigh(symmetrized(x) if symmetrize_input else x, lower=lower)
    return EighResult(values, vectors)


@replayed
@with_flags
def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """The eigenvalues of Hermitian matrices, as real numbers of shape [..., n], in ascending order.

    Args:
        a: matrices of shape [..., n, n].
        UPLO: the triangle that is read, "L" or "U", unless `symmetrize_input`.
        symmetrize_input: whether the mean of a matrix and its conjugate transpose is taken.

    Returns:
        Real numbers [..., n].

    Raises:
        SquareMatrixError: what are no square matrices.
        ArgumentError: another `UPLO`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 0.0], [0.0, -1.0]]))
        Array([-1.,  2.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a: ArrayLike) -> EigResult:
    """The eigenvalues and eigenvectors of square matrices.

    Args:
        a: square matrices, of shape [..., n, n].

    Returns:
        `(eigenvalues, eigenvectors)`, complex, of shapes [..., n] and [..., n, n], in which columns are eigenvectors.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.eig(jnp.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
        Array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    vectors, values = eigenvalues.eig(matrices("linalg.eig", a, square=True))
    return EigResult(values, vectors)


def eigvals(a: ArrayLike) -> Array:
    """The eigenvalues of square matrices, as complex numbers of shape [..., n], in no particular order.

    Args:
        a: square matrices, of shape [..., n, n].

    Returns:
        Complex numbers [..., n].

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.eigvals(jnp.array([[1.0, 5.0], [0.0, 2.0]]))
        Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    return eig(a).eigenvalues


@boundary
def index_range(what: str, subset: Any, size: int) -> slice | None:
    """The slice of a range (start, end) of values that are wanted; None for all."""
    if subset is None:
        return None
    start, end = integers_of(what, "subset_by_index", subset, 2)
    if not 0 <= start <= end <= size:
        raise ArgumentError(f"{what}: subset_by_index must be a range within 0 to {size}, but got {subset!r}.")
    return slice(start, end)


@boundary
def subset_svd(what: str, x: Any, full_matrices: bool, compute_uv: bool, subset: Any) -> Any:
    """U, s and V* of matrices, or only s; of singular values that are in a range."""
    count = min_dim(*x.shape[-2:])
    chosen = index_range(what, subset, count)
    full = full_matrices and compute_uv and x.shape[-1] != x.shape[-2]
    if chosen is not None and full_matrices and compute_uv and chosen != slice(0, count):
        raise ArgumentError(f"{what}: a part of the singular values by subset_by_index needs full_matrices=False.")
    u, s, vh = factorizations.svd(x, full_matrices=full)
    if chosen is not None and not full:
        u, s, vh = u[..., chosen], s[..., chosen], vh[..., chosen, :]
    return (u, s, vh) if compute_uv else s


@boundary
def hermitian_svd(what: str, x: Any, compute_uv: bool, subset: Any) -> Any:
    """The singular value decomposition of Hermitian matrices by their eigendecomposition x = U diag(w) U*: S is |w| in
    descending order, equal ones by descending index, and V is U diag(sign(w))."""
    vectors, values = factorizations.eigh(symmetrized(x), lower=True)
    order = flip(argsort(arith.absolute(values)), -1)
    chosen = index_range(what, subset, x.shape[-1])
    if chosen is not None:
        order = order[..., chosen]
    values = take_along_axis(values, order, -1)
    s = arith.absolute(values)
    if not compute_uv:
        return s
    u = take_along_axis(vectors, expand_dims(order, -2), -1)
    return u, s, linear_algebra.adjoint(arith.multiply(u, cast(expand_dims(arith.sign(values), -2), u.dtype)))


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> SVDResult: ...


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Array: ...


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any: ...


@replayed
@with_flags
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """The factors of a = U diag(S) Vh, with singular values S in descending order.

    Args:
        a: matrices, of shape [..., m, n].
        full_matrices: U and Vh are square; else they have min(m, n) columns and rows, and there is a derivative where
            the singular values differ.
        compute_uv: give U and Vh, too.
        hermitian: the matrices are Hermitian; U and Vh are their eigenvectors up to signs.
        subset_by_index: the range (start, end) of those singular values that are given, with vectors only if not
            `full_matrices`.

    Returns:
        U, S and Vh of shapes [..., m, k], [..., k] and [..., k, n], k the smaller of m and n unless `full_matrices`; S
        alone without `compute_uv`.

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, -4.0]])).S
        Array([4., 3.], dtype=float32)
    """
    x = matrices("linalg.svd", a, square=bool(hermitian))
    if hermitian:
        found = hermitian_svd("linalg.svd", x, bool(compute_uv), subset_by_index)
    else:
        found = subset_svd("linalg.svd", x, bool(full_matrices), bool(compute_uv), subset_by_index)
    return SVDResult(*found) if compute_uv else found


@replayed
def svdvals(x: ArrayLike, /) -> Array:
    """The singular values of matrices [..., m, n], as real numbers of shape [..., min(m, n)] in descending order.

    Args:
        x: matrices, of shape [..., m, n].

    Returns:
        Real numbers [..., min(m, n)].

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.svdvals(jnp.diag(jnp.array([1.0, 3.0])))
        Array([3., 1.], dtype=float32)
    """
    return svd(x, compute_uv=False)
