"""Linear algebra, under the names of `jax.scipy.linalg`.

SciPy's options on how to compute (`overwrite_a`, `check_finite` and the like) are taken by name, and not used: arrays
do not change, and what is not finite gives NaN.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    choice_of,
    inexact_array,
    integers_of,
    of_rank,
    promoted,
    several_of,
    with_flags,
)
from tinyxla.numpy.linalg import system, triangular
from tinyxla.numpy.matrix_factorizations import matrices
from tinyxla.numpy.operations import factorizations, linear_algebra, systems
from tinyxla.scipy.matrix_functions import (
    expm as expm,
    expm_frechet as expm_frechet,
    funm as funm,
    hessenberg as hessenberg,
    polar as polar,
    rsf2csf as rsf2csf,
    schur as schur,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
)
from tinyxla.scipy.special_matrices import (
    circulant as circulant,
    companion as companion,
    convolution_matrix as convolution_matrix,
    dft as dft,
    fiedler as fiedler,
    fiedler_companion as fiedler_companion,
    hadamard as hadamard,
    hankel as hankel,
    helmert as helmert,
    hilbert as hilbert,
    invhilbert as invhilbert,
    invpascal as invpascal,
    leslie as leslie,
    pascal as pascal,
    toeplitz as toeplitz,
)
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.util.did_you_mean import missing as _missing

_WAYS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_TRANSPOSES = dict(zip("012NTC", 2 * _WAYS, strict=True))


_OPTIONS = {"check_finite": True, "turbo": True, "lapack_driver": "gesdd"}  # that are not False by default


def _with_options(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function with options that it does not use."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    options = [inspect.Parameter(n, kind, default=_OPTIONS.get(n, False)) for n in names.split()]

    def taking(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        count = len(signature.parameters)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for option in options:
                kwargs.pop(option.name, None)
            return function(*(args if len(args) > count + len(options) else args[:count]), **kwargs)

        taken: Any = call
        taken.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])
        return call

    return taking


@_with_options("overwrite_a check_finite")
@with_flags
def cholesky(a: ArrayLike, lower: bool = False) -> Array:
    """The factor U of positive definite matrices U* U, or L of L L* if `lower`; one triangle is read.

    Args:
        a: matrices, of shape [..., n, n].
        lower: whether the lower triangle is read.
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        Triangular matrices, of the shape of a.

    Raises:
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import cholesky
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float32)
    """
    x = matrices("scipy.linalg.cholesky", a, square=True)
    return linear_algebra.cholesky(x, lower=bool(lower))


@_with_options("overwrite_a check_finite")
@with_flags
def cho_factor(a: ArrayLike, lower: bool = False) -> tuple[Array, bool]:
    """What `cho_solve` takes: the factor that `cholesky` gives, and `lower`.

    Args:
        a: matrices, of shape [..., n, n].
        lower: whether the lower triangle is read.
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        The factor, and `lower`.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.linalg import cho_factor, cho_solve
        >>> factor = cho_factor(jnp.array([[4.0, 0.0], [0.0, 9.0]]))
        >>> cho_solve(factor, jnp.array([4.0, 9.0]))
        Array([1., 1.], dtype=float32)
    """
    return cholesky(a, lower), bool(lower)


@_with_options("overwrite_b check_finite")
def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike) -> Array:
    """The x of a x = b, by the factor of a.

    Args:
        c_and_lower: what `cho_factor` gives.
        b: vectors or matrices, of shape [..., n] or [..., n, k].
        overwrite_b, check_finite: accepted for compatibility.

    Returns:
        An array of the shape of b.

    Raises:
        SquareMatrixError: what are no square matrices.
        ShapeError: right-hand sides of another number of rows.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import cho_factor, cho_solve
    >>> cho_solve(cho_factor(np.array([[4.0, 2.0], [2.0, 5.0]])), np.array([8.0, 12.0]))
    Array([1., 2.], dtype=float32)
    """
    factor, lower = several_of("scipy.linalg.cho_solve", "c_and_lower", c_and_lower, 2)
    x, y, vector = system("scipy.linalg.cho_solve", factor, b)
    first, second = ("NO_TRANSPOSE", "ADJOINT") if lower else ("ADJOINT", "NO_TRANSPOSE")
    found = triangular(x, triangular(x, y, lower, transpose_a=first), lower, transpose_a=second)
    return tnp.squeeze(found, -1) if vector else found


@_with_options("overwrite_b debug check_finite")
@with_flags
def solve_triangular(
    a: ArrayLike, b: ArrayLike, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False
) -> Array:
    """The x of a x = b for a triangular a, of which one triangle is read.

    Args:
        a: matrices, of shape [..., n, n].
        b: a vector of n elements, or matrices of shape [..., n, k].
        trans: 0 or `"N"` for a itself, 1 or `"T"` for its transpose, 2 or `"C"` for the conjugate of that.
        lower: read the lower triangle.
        unit_diagonal: the diagonal is all 1, and not read.
        overwrite_b, debug, check_finite: accepted for compatibility.

    Returns:
        An array of the shape of b.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: what are no square matrices.
        ShapeError: right-hand sides of another number of rows.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import solve_triangular
    >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    what = "scipy.linalg.solve_triangular"
    transpose = _TRANSPOSES[
        choice_of(what, "trans", str(int(trans) if isinstance(trans, bool) else trans), _TRANSPOSES)
    ]
    x, y, vector = system(what, a, b)
    found = triangular(x, y, bool(lower), bool(unit_diagonal), transpose)
    return tnp.squeeze(found, -1) if vector else found


@with_flags
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: Any = None,
    overwrite_b: Any = None,
    debug: Any = None,
    check_finite: Any = None,
    assume_a: str = "gen",
) -> Array:
    """The x of a x = b, for general matrices or, with `assume_a="pos"`, for positive definite ones. The arguments
    between `lower` and `assume_a` have no meaning here.

    Args:
        a: matrices, of shape [..., n, n].
        b: a vector of n elements, or matrices of shape [..., n, k].
        lower: whether the lower triangle is read.
        overwrite_a, overwrite_b, debug, check_finite: accepted for compatibility.
        assume_a: "gen" or "pos", and the other names of SciPy, which are taken as "gen".

    Returns:
        An array of the shape of b.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: what are no square matrices.
        ShapeError: right-hand sides of another number of rows.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import solve
    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    choice_of("scipy.linalg.solve", "assume_a", assume_a, ("gen", "sym", "her", "pos"))
    return cho_solve(cho_factor(a, lower), b) if assume_a == "pos" else tnp.linalg.solve(a, b)


@_with_options("overwrite_a check_finite")
def lu_factor(a: ArrayLike) -> tuple[Array, Array]:
    """What `lu_solve` takes: the factors of a, and the exchanges of rows.

    Args:
        a: matrices, of shape [..., n, n].
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        The factors in one matrix, and int32 row indices.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.linalg import lu_factor, lu_solve
        >>> factors = lu_factor(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
        >>> lu_solve(factors, jnp.array([2.0, 4.0]))
        Array([1., 1.], dtype=float32)
    """
    factors, pivots, _ = factorizations.lu(matrices("scipy.linalg.lu_factor", a))
    return factors, pivots


@_with_options("overwrite_b check_finite")
def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0) -> Array:
    """The x of a x = b, by the factors of a; or, as `trans` is 1 or 2, of the equation with its transpose or adjoint.

    Args:
        lu_and_piv: what `lu_factor` gives.
        b: vectors or matrices, of shape [..., n] or [..., n, k].
        trans: 0, 1 or 2.
        overwrite_b, check_finite: accepted for compatibility.

    Returns:
        An array of the shape of b.

    Raises:
        ArgumentError: what is no pair of factors and pivots.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import lu_factor, lu_solve
    >>> lu_solve(lu_factor(np.array([[2.0, 0.0], [0.0, 4.0]])), np.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    if trans not in (0, 1, 2):
        raise ArgumentError(f"scipy.linalg.lu_solve: trans must be 0, 1 or 2, but got {trans!r}.")
    packed, exchanges = several_of("scipy.linalg.lu_solve", "lu_and_piv", lu_and_piv, 2)
    factors, y, vector = system("scipy.linalg.lu_solve", packed, tnp.conj(b) if trans == 2 else b)
    pivots: Any = array_of(exchanges, "scipy.linalg.lu_solve")
    permutation = factorizations.pivots_to_permutation(pivots, permutation_size=factors.shape[-1])
    found: Any = systems.solved_by_factors(factors, permutation, y, trans != 0)
    found = tnp.conj(found) if trans == 2 else found
    return tnp.squeeze(found, -1) if vector else found


@_with_options("overwrite_a check_finite")
@with_flags
def lu(a: ArrayLike, permute_l: bool = False) -> tuple[Array, ...]:
    """P, L and U of a = P L U: a permutation matrix, and triangular factors, the lower one with a diagonal of 1; or,
    with `permute_l`, P L and U.

    Args:
        a: matrices, of shape [..., m, n].
        permute_l: whether to multiply L by P.
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        P, L and U of shapes [..., m, m], [..., m, k] and [..., k, n], k the smaller of m and n.

    Raises:
        SquareMatrixError: an array of fewer than two dimensions.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import lu
    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]]))[1]
    Array([[1.  , 0.  ],
           [0.25, 1.  ]], dtype=float32)
    """
    x: Any = matrices("scipy.linalg.lu", a)
    factors, _, permutation = factorizations.lu(x)
    k = min(x.shape[-2:])
    lower = tnp.tril(factors[..., :k], -1) + of_rank(tnp.eye(x.shape[-2], k, dtype=x.dtype), x.ndim)
    rows = of_rank(tnp.expand_dims(tnp.arange(x.shape[-2], dtype=np.int32), -1), x.ndim)
    order: Any = tnp.expand_dims(permutation, -2) == rows
    first, upper = order.astype(x.real.dtype), tnp.triu(factors[..., :k, :])
    return (first.astype(lower.dtype) @ lower, upper) if permute_l else (first, lower, upper)


@_with_options("check_finite")
@with_flags
def qr(a: ArrayLike, overwrite_a: Any = False, lwork: Any = None, mode: str = "full", pivoting: bool = False) -> Any:
    """Q and R of a = Q R.

    Args:
        a: matrices, of shape [..., m, n].
        overwrite_a, lwork: accepted for compatibility.
        mode: `"full"` for a square Q, `"economic"` for one with min(m, n) columns, or `"r"` for R alone.
        pivoting: exchange columns so that the diagonal of R descends in size, and give their order, too.
        check_finite: accepted for compatibility.

    Returns:
        Q and R; R alone for "r"; with `pivoting` also the order of columns.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: an array of fewer than two dimensions.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import qr
    >>> qr(np.array([[1.0, 3.0], [0.0, 4.0]]), mode="r", pivoting=True)[1]
    Array([1, 0], dtype=int32)
    """
    what = "scipy.linalg.qr"
    choice_of(what, "mode", mode, ("full", "economic", "r"))
    found = lax.linalg.qr(matrices(what, a), pivoting=bool(pivoting), full_matrices=mode != "economic")
    return tuple(found[1:] if mode == "r" else found)


@_with_options("overwrite_a overwrite_c")
@with_flags
def qr_multiply(
    a: ArrayLike, c: ArrayLike, mode: str = "right", pivoting: bool = False, conjugate: bool = False
) -> Any:
    """The product of matrices with Q of a = Q R, and R; with pivoting the order of columns, too.

    Args:
        a: matrices, of shape [..., m, n]; Q has k = min(m, n) columns.
        c: for the mode `"left"` of shape [..., k, p], for `"right"` of shape [..., p, m]; or a vector.
        mode: whether Q stands left or right of c.
        pivoting: exchange columns of a so that the diagonal of R descends in size.
        conjugate: take the conjugate of Q.
        overwrite_a, overwrite_c: accepted for compatibility.

    Returns:
        The product and R; with `pivoting` also the order of columns.

    Raises:
        ShapeError: the sizes do not fit.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import qr_multiply
    >>> qr_multiply(np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([3.0, 4.0]))[0].shape
    (2,)
    """
    what = "scipy.linalg.qr_multiply"
    choice_of(what, "mode", mode, ("right", "left"))
    (x, y), _ = promoted(what, a, c, to_inexact=True)
    x, vector, is_left = matrices(what, x), y.ndim == 1, mode == "left"
    if vector:
        y = tnp.expand_dims(y, -1 if is_left else 0)
    y = matrices(what, y)
    m, size = x.shape[-2], min(x.shape[-2:])
    if (y.shape[-2] != size) if is_left else (y.shape[-1] != m):
        raise ShapeError(f"{what}: Q has {m} rows and {size} columns, which do not fit {Shape.of(y)} on the {mode}.")
    batch = broadcast_shapes(what, x.shape[:-2], y.shape[:-2])
    x, y = (broadcast_to_shape(what, v, (*batch, *v.shape[-2:])) for v in (x, y))
    q, *others = lax.linalg.qr(x, pivoting=bool(pivoting), full_matrices=False)
    q = tnp.conj(q) if conjugate else q
    product = tnp.matmul(q, y) if is_left else tnp.matmul(y, q)
    return (tnp.squeeze(product, -1 if is_left else -2) if vector else product, *others)


@_with_options("overwrite_a check_finite lapack_driver")
@with_flags
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """U, the singular values, and V* of matrices, or only the values; as `tinyxla.numpy.linalg.svd`.

    Args:
        a: matrices, of shape [..., m, n].
        full_matrices: whether U and V* are square.
        compute_uv: whether to return U and V*, too.
        overwrite_a, check_finite, lapack_driver: accepted for compatibility.

    Returns:
        U, s and V*; s alone without `compute_uv`.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: an array of fewer than two dimensions.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.linalg import svd
        >>> svd(jnp.diag(jnp.array([1.0, 3.0])), compute_uv=False)
        Array([3., 1.], dtype=float32)
    """
    found = tnp.linalg.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


@_with_options("check_finite")
@with_flags
def eigh(
    a: ArrayLike,
    b: None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: Any = False,
    overwrite_b: Any = False,
    turbo: Any = True,
    eigvals: None = None,
    type: int = 1,
) -> Any:
    """The eigenvalues of Hermitian matrices, in ascending order, and the eigenvectors; one triangle is read. There is
    no generalized problem, and all eigenvalues are given: b and eigvals must be None, and type 1. The other arguments
    have no meaning here.

    Args:
        a: matrices, of shape [..., n, n].
        b, eigvals: must be None.
        lower: whether the lower triangle is read.
        eigvals_only: whether to return the eigenvalues alone.
        overwrite_a, overwrite_b, turbo: accepted for compatibility.
        type: must be 1.
        overwrite_a, overwrite_b, turbo, check_finite: accepted for compatibility.

    Returns:
        The eigenvalues [..., n], which are real, and the eigenvectors [..., n, n].

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.linalg import eigh
        >>> eigh(jnp.array([[2.0, 0.0], [0.0, -1.0]]), eigvals_only=True)
        Array([-1.,  2.], dtype=float32)
    """
    if b is not None:
        raise ArgumentError(
            "scipy.linalg.eigh: b must be None, but got a matrix; a generalized problem becomes an ordinary one by the "
            "Cholesky factor of b."
        )
    if eigvals is not None or type != 1:
        raise ArgumentError(
            f"scipy.linalg.eigh: eigvals must be None and type 1, but got {eigvals!r} and {type!r}; take a part of the "
            "result."
        )
    found = tnp.linalg.eigh(a, "L" if lower else "U", symmetrize_input=False)
    return found.eigenvalues if eigvals_only else tuple(found)


@with_flags
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """The eigenvalues of a Hermitian tridiagonal matrix, in ascending order, and the eigenvectors, as columns.

    Args:
        d: the n elements of the diagonal, of which the real parts count.
        e: the n - 1 elements above it; those below are their conjugates.
        eigvals_only: give the eigenvalues alone.
        select: `"a"` for all eigenvalues, `"i"` for those with numbers from the first to the last of `select_range`.
        select_range: the first and the last number.
        tol, key: accepted for compatibility.

    Returns:
        The eigenvalues, and the eigenvectors unless `eigvals_only`.

    Raises:
        ShapeError: the sizes do not fit.
        DTypeError: the types differ.
        ArgumentError: another choice.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import eigh_tridiagonal
    >>> eigh_tridiagonal(np.array([1.0, 1.0]), np.array([1.0]), eigvals_only=True).round(4)
    Array([0., 2.], dtype=float32)
    """
    what = "scipy.linalg.eigh_tridiagonal"
    main, beside = inexact_array(d, what), inexact_array(e, what)
    if main.dtype != beside.dtype:
        raise DTypeError(f"{what}: d and e must have one type, but are {Shape.of(main)} and {Shape.of(beside)}.")
    if main.ndim != 1 or not main.size or beside.shape != (main.size - 1,):
        raise ShapeError(f"{what}: takes n and n - 1 elements, but got {Shape.of(main)} and {Shape.of(beside)}.")
    choice_of(what, "select", select, ("a", "i"))
    chosen = slice(None)
    if select == "i":
        first, last = integers_of(what, "select_range", select_range, 2)
        if not 0 <= first <= last < main.size:
            raise ArgumentError(f"{what}: select_range must be within 0 and {main.size - 1}, but got {select_range!r}.")
        chosen = slice(first, last + 1)
    matrix = tnp.diag(tnp.real(main).astype(main.dtype)) + tnp.diag(tnp.conj(beside), -1)
    values, vectors = eigh(matrix)
    return values[chosen] if eigvals_only else (values[chosen], vectors[:, chosen])


@_with_options("overwrite_a check_finite")
def det(a: ArrayLike) -> Array:
    """The determinants of square matrices; as `tinyxla.numpy.linalg.det`.

    Args:
        a: matrices, of shape [..., n, n].
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        An array of the shape of `a` without its last two axes, in floating point or complex.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import numpy as np
        >>> from tinyxla.scipy.linalg import det
        >>> det(np.array([[1.0, 2.0], [3.0, 5.0]]))
        Array(-1., dtype=float32)
    """
    return tnp.linalg.det(a)


@_with_options("overwrite_a check_finite")
def inv(a: ArrayLike) -> Array:
    """The inverses of square matrices; as `tinyxla.numpy.linalg.inv`.

    Args:
        a: matrices, of shape [..., n, n].
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        Matrices of the shape of `a`; where there is no inverse the elements are not finite.

    Raises:
        SquareMatrixError: what are no square matrices.

    Example:
        >>> import numpy as np
        >>> from tinyxla.scipy.linalg import inv
        >>> inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    return tnp.linalg.inv(a)


def block_diag(*arrs: ArrayLike) -> Array:
    """A matrix with the given ones along its diagonal, and zeros.

    Args:
        *arrs: matrices.

    Returns:
        A matrix.

    Raises:
        ShapeError: an array of more than two dimensions.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import block_diag
    >>> block_diag(np.ones((1, 2)), 5.0)
    Array([[1., 1., 0.],
           [0., 0., 5.]], dtype=float32)
    """
    arrays, _ = promoted("scipy.linalg.block_diag", *arrs)
    if any(x.ndim > 2 for x in arrays):
        shapes = ", ".join(str(Shape.of(x)) for x in arrays)
        raise ShapeError(f"scipy.linalg.block_diag: takes numbers, vectors and matrices, but got {shapes}.")
    blocks = [tnp.atleast_2d(x) for x in arrays]
    total = sum(x.shape[1] for x in blocks)
    rows: list[Any] = []
    before = 0
    for x in blocks:
        rows.append(tnp.pad(x, ((0, 0), (before, total - before - x.shape[1]))))
        before += x.shape[1]
    return tnp.concatenate(rows, 0)


__getattr__ = _missing(__name__)


__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "companion",
    "convolution_matrix",
    "det",
    "dft",
    "eigh",
    "eigh_tridiagonal",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "funm",
    "hadamard",
    "hankel",
    "helmert",
    "hessenberg",
    "hilbert",
    "inv",
    "invhilbert",
    "invpascal",
    "leslie",
    "lu",
    "lu_factor",
    "lu_solve",
    "pascal",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "toeplitz",
]


def __dir__() -> list[str]:
    return __all__
