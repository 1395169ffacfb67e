"""Linear algebra, under the names of `jax.scipy.linalg`.

SciPy's options on how to compute (`overwrite_a`, `check_finite` and the like) are taken by name, and not used: arrays
do not change, and what is not finite gives NaN.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api import ShapeDtypeStruct
from tinyxla.callbacks import pure_callback
from tinyxla.errors import ArgumentError, ShapeError, requiring
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    check_memory,
    choice_of,
    count_of,
    of_rank,
    promoted,
    several_of,
    with_flags,
)
from tinyxla.numpy.linalg import matrices, system, triangular
from tinyxla.numpy.operations import factorizations, linear_algebra, systems
from tinyxla.shapes import Shape
from tinyxla.suggestions import missing as _missing
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_float

_WAYS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_TRANSPOSES = dict(zip("012NTC", 2 * _WAYS, strict=True))


def _with_options(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function with options that it does not use."""
    options = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in names.split()]

    def taking(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for option in options:
                kwargs.pop(option.name, None)
            return function(*args, **kwargs)

        signature = inspect.signature(function)
        taken: Any = call
        taken.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])
        return call

    return taking


@_with_options("overwrite_a check_finite")
@with_flags
def cholesky(a: ArrayLike, lower: bool = False) -> Array:
    """The factor U of positive definite matrices U* U, or L of L L* if `lower`; one triangle is read.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float32)
    """
    x = matrices("scipy.linalg.cholesky", a, square=True)
    return linear_algebra.cholesky(x, lower=bool(lower))


@_with_options("overwrite_a check_finite")
@with_flags
def cho_factor(a: ArrayLike, lower: bool = False) -> tuple[Array, bool]:
    """What `cho_solve` takes: the factor that `cholesky` gives, and `lower`."""
    return cholesky(a, lower), bool(lower)


@_with_options("overwrite_b check_finite")
def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike) -> Array:
    """The x of a x = b, by the factor of a.

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

    >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    what = "scipy.linalg.solve_triangular"
    transpose = _TRANSPOSES[choice_of(what, "trans", str(int(trans) if isinstance(trans, bool) else trans), _TRANSPOSES)]
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

    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    choice_of("scipy.linalg.solve", "assume_a", assume_a, ("gen", "sym", "her", "pos"))
    return cho_solve(cho_factor(a, lower), b) if assume_a == "pos" else tnp.linalg.solve(a, b)


@_with_options("overwrite_a check_finite")
def lu_factor(a: ArrayLike) -> tuple[Array, Array]:
    """What `lu_solve` takes: the factors of a, and the exchanges of rows."""
    factors, pivots, _ = factorizations.lu(matrices("scipy.linalg.lu_factor", a))
    return factors, pivots


@_with_options("overwrite_b check_finite")
def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0) -> Array:
    """The x of a x = b, by the factors of a; or, as `trans` is 1 or 2, of the equation with its transpose or adjoint.

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
def qr(a: ArrayLike, overwrite_a: Any = None, lwork: Any = None, mode: str = "full") -> Any:
    """Q and R of a = Q R; Q is square with the mode `"full"`, else the mode is `"economic"`, or `"r"` for R alone.
    `overwrite_a` and `lwork` have no meaning here."""
    choice_of("scipy.linalg.qr", "mode", mode, ("full", "economic", "r"))
    found = tnp.linalg.qr(a, "reduced" if mode == "economic" else "complete")
    return (found.R,) if mode == "r" else tuple(found)


@_with_options("overwrite_a check_finite lapack_driver")
@with_flags
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """U, the singular values, and V* of matrices, or only the values; as `tinyxla.numpy.linalg.svd`."""
    found = tnp.linalg.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


@_with_options("overwrite_a overwrite_b turbo check_finite")
@with_flags
def eigh(a: ArrayLike, b: None = None, lower: bool = True, eigvals_only: bool = False) -> Any:
    """The eigenvalues of Hermitian matrices, in ascending order, and the eigenvectors; one triangle is read. There is
    no generalized problem: b must be None."""
    if b is not None:
        raise ArgumentError(
            "scipy.linalg.eigh: b must be None, but got a matrix; a generalized problem becomes an ordinary one by the "
            "Cholesky factor of b."
        )
    found = tnp.linalg.eigh(a, "L" if lower else "U", symmetrize_input=False)
    return found.eigenvalues if eigvals_only else tuple(found)


det = _with_options("overwrite_a check_finite")(tnp.linalg.det)
inv = _with_options("overwrite_a check_finite")(tnp.linalg.inv)


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """A complex B of B B = A, whose eigenvalues have no negative real part, from SciPy. It has no derivative.

    >>> sqrtm(np.array([[4.0, 0.0], [0.0, 9.0]])).real.round(4)
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    x: Any = matrices("scipy.linalg.sqrtm", A, square=True)
    result = ShapeDtypeStruct(x.shape, np.result_type(x.dtype, np.complex64))

    def compute(m: Any) -> Any:
        with requiring("SciPy", "scipy.linalg.sqrtm"):
            import scipy.linalg  # here, since importing it costs more than importing this package

        return np.vectorize(scipy.linalg.sqrtm, signature="(n,n)->(n,n)")(np.asarray(m, result.dtype))

    return pure_callback(compute, result, x, vmap_method="expand_dims")


# The order of a Padé approximant of exp, and the norm up to which it is exact to rounding, by the bytes of the type
_PADE = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}


@with_flags
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of matrices, of shape [..., n, n]: a Padé approximant of A / 2^s, squared s times.

    It is NaN if more than `max_squarings` would be needed. Source: N. Higham, "The Scaling and Squaring Method for the
    Matrix Exponential Revisited", SIAM Journal on Matrix Analysis 26 (2005).

    >>> expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    x: Any = matrices("scipy.linalg.expm", A, square=True)
    if not x.size:
        return x
    if x.dtype.itemsize < 4:
        wide = expm(x.astype(np.float32), upper_triangular=upper_triangular, max_squarings=max_squarings)
        return wide.astype(x.dtype)
    order, reach = _PADE[np.finfo(x.dtype).bits // 8]
    terms = [1.0]
    for k in range(1, order + 1):
        terms.append(terms[-1] * (order - k + 1) / (k * (2 * order - k + 1)))

    def of_one(a: Any) -> Any:
        needed = tnp.ceil(tnp.log2(tnp.linalg.norm(lax.stop_gradient(a), 1) / reach))
        squarings = tnp.where(needed > 0, needed, 0).astype(np.int32)
        small = a / tnp.exp2(squarings).astype(a.dtype)
        one, square = tnp.eye(a.shape[-1], dtype=a.dtype), small @ small
        even: Any = terms[-2] * one
        odd: Any = terms[-1] * one
        for k in range(order - 3, -1, -2):
            even, odd = even @ square + terms[k] * one, odd @ square + terms[k + 1] * one
        odd = small @ odd
        found = solve_triangular(even - odd, even + odd) if upper_triangular else solve(even - odd, even + odd)
        found = lax.fori_loop(0, tnp.minimum(squarings, max_squarings), lambda _, e: e @ e, found)
        return tnp.where(squarings > max_squarings, tnp.nan, found)

    return tnp.vectorize(of_one, signature="(n,n)->(n,n)")(x)


def block_diag(*arrs: ArrayLike) -> Array:
    """A matrix with the given ones along its diagonal, and zeros.

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


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with the first column c and the first row r (without its first element), equal along the diagonals.

    Without r it is the conjugate of c, so that the matrix is Hermitian. Vectors are those along the last axis.

    >>> toeplitz(np.array([1.0, 2.0]), np.array([0.0, 3.0]))
    Array([[1., 3.],
           [2., 1.]], dtype=float32)
    """
    (column, row), _ = promoted("scipy.linalg.toeplitz", c, tnp.conj(array_of(c, "toeplitz")) if r is None else r)
    column, row = tnp.atleast_1d(column), tnp.atleast_1d(row)
    diagonals = tnp.concatenate([tnp.flip(row[..., 1:], -1), column], -1)
    n, m = column.shape[-1], row.shape[-1]
    return diagonals[..., np.arange(n)[:, None] - np.arange(m) + (m - 1)]


def circulant(c: ArrayLike) -> Array:
    """Matrices whose columns are the vectors along the last axis, turned by one place more from column to column.

    >>> circulant(np.array([1.0, 2.0]))
    Array([[1., 2.],
           [2., 1.]], dtype=float32)
    """
    x = tnp.atleast_1d(array_of(c, "scipy.linalg.circulant"))
    n = x.shape[-1]
    return x[..., (np.arange(n)[:, None] - np.arange(n)) % max(n, 1)]


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with the first column c and the last row r (without its first element; zeros, if None), equal along the
    diagonals from the upper right to the lower left. Vectors are those along the last axis.

    >>> hankel(np.array([1.0, 2.0]), np.array([0.0, 3.0]))
    Array([[1., 2.],
           [2., 3.]], dtype=float32)
    """
    (column, row), _ = promoted("scipy.linalg.hankel", c, tnp.zeros_like(c) if r is None else r)
    if not column.ndim or not row.ndim:
        raise ShapeError(f"scipy.linalg.hankel: takes vectors, but got {Shape.of(column)} and {Shape.of(row)}.")
    diagonals = tnp.concatenate([column, row[..., 1:]], -1)
    return diagonals[..., np.arange(column.shape[-1])[:, None] + np.arange(row.shape[-1])]


def companion(a: ArrayLike) -> Array:
    """The companion matrix of polynomials, their coefficients from the highest degree on along the last axis.

    >>> companion(np.array([2.0, 4.0, 6.0]))
    Array([[-2., -3.],
           [ 1.,  0.]], dtype=float32)
    """
    (x,), _ = promoted("scipy.linalg.companion", a, to_inexact=True)
    n = x.shape[-1] - 1 if x.ndim else 0
    if n < 1:
        raise ShapeError(f"scipy.linalg.companion: takes at least two coefficients, but got {Shape.of(x)}.")
    below = tnp.broadcast_to(tnp.eye(n - 1, n, dtype=x.dtype), (*x.shape[:-1], n - 1, n))
    return tnp.concatenate([(-x[..., 1:] / x[..., :1])[..., None, :], below], -2)


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """The matrix of a population's step: the first row f (fertility), and s (survival) under the diagonal.

    >>> leslie(np.array([1.0, 2.0]), np.array([0.5]))
    Array([[1. , 2. ],
           [0.5, 0. ]], dtype=float32)
    """
    (first, under), _ = promoted("scipy.linalg.leslie", f, s)
    if not first.ndim or not under.ndim or first.shape[-1] != under.shape[-1] + 1:
        raise ShapeError(f"scipy.linalg.leslie: f must be one longer than s, but got {first.shape} and {under.shape}.")
    n = first.shape[-1]
    below = tnp.where(np.eye(n - 1, n, dtype=bool), under[..., None], tnp.zeros((), under.dtype))
    return tnp.concatenate([tnp.broadcast_to(first[..., None, :], (*below.shape[:-2], 1, n)), below], -2)


def _places(what: str, n: Any) -> np.ndarray[Any, Any]:
    """The rows of a square matrix with n of them, if memory can hold it."""
    count = count_of(what, "n", n)
    check_memory(what, (count, count))
    return np.arange(count)


def hilbert(n: int) -> Array:
    """The matrix with 1 / (i + j + 1) in row i and column j.

    >>> hilbert(2).round(4)
    Array([[1.    , 0.5   ],
           [0.5   , 0.3333]], dtype=float32)
    """
    places = _places("scipy.linalg.hilbert", n)
    return tnp.asarray(1 / (places[:, None] + places + 1), default_float())


def hadamard(n: int, dtype: Any = int) -> Array:
    """Sylvester's matrix of 1 and -1 with orthogonal rows; n must be a power of two.

    >>> hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    places = _places("scipy.linalg.hadamard", n)
    if places.size.bit_count() != 1:
        raise ArgumentError(f"scipy.linalg.hadamard: n must be a power of two, but got {n}.")
    odd = np.bitwise_count(places[:, None] & places) % 2
    return tnp.asarray(1 - 2 * odd.astype(np.int8)).astype(dtype)


def dft(n: int, scale: str | None = None, dtype: Any = None) -> Array:
    """The matrix of Fourier's transform of n elements, divided by "sqrtn" or "n" if `scale` says so.

    >>> dft(2).real
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    what = "scipy.linalg.dft"
    places = _places(what, n)
    size = max(places.size, 1)
    found = np.exp(-2j * np.pi * (places[:, None] * places % size / size))
    if scale is not None:
        found /= size if choice_of(what, "scale", scale, ("sqrtn", "n")) == "n" else math.sqrt(size)
    return tnp.asarray(found, np.result_type(default_float(), np.complex64) if dtype is None else dtype)


def pascal(n: int, kind: str = "symmetric") -> Array:
    """The numbers of Pascal's triangle: (i + j over i) ("symmetric"), (i over j) ("lower"), or (j over i) ("upper").

    >>> pascal(3, "lower")
    Array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 2., 1.]], dtype=float32)
    """
    what = "scipy.linalg.pascal"
    choice_of(what, "kind", kind, ("symmetric", "lower", "upper"))
    places = _places(what, n)
    lower = np.zeros((places.size, places.size))
    lower[:, :1] = 1
    for i in places[1:]:
        lower[i, 1:] = lower[i - 1, 1:] + lower[i - 1, :-1]
    kinds = {"symmetric": lower @ lower.T, "lower": lower, "upper": lower.T}
    return tnp.asarray(kinds[kind], default_float())


def polar(a: ArrayLike, side: str = "right") -> tuple[Array, Array]:
    """A matrix U with orthonormal rows or columns and a positive semidefinite P, of a = U P, or a = P U ("left").

    >>> polar(np.array([[0.0, 2.0], [3.0, 0.0]]))[1].round(4)
    Array([[3., 0.],
           [0., 2.]], dtype=float32)
    """
    choice_of("scipy.linalg.polar", "side", side, ("right", "left"))
    left, values, right = tnp.linalg.svd(matrices("scipy.linalg.polar", a), full_matrices=False)
    scale = values[..., None, :].astype(left.dtype)
    adjoint = tnp.conj(tnp.matrix_transpose(right if side == "right" else left))
    scaled = (adjoint * scale) @ right if side == "right" else (left * scale) @ adjoint
    return left @ right, scaled


__getattr__ = _missing(__name__)
