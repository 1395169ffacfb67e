"""Matrices that are known by a name or made of vectors, under the names of `jax.scipy.linalg`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    check_memory,
    choice_of,
    count_of,
    inexact_array,
    integer_of,
    promoted,
    python_dtype,
    with_flags,
)
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_float


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with the first column c and the first row r (without its first element), equal along the diagonals.

    Without r it is the conjugate of c, so that the matrix is Hermitian. Vectors are those along the last axis.

    Args:
        c, r: vectors, of shape [..., m] and [..., n].

    Returns:
        Matrices, of shape [..., m, n].

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import toeplitz
    >>> toeplitz(np.array([1.0, 2.0]), np.array([0.0, 3.0]))
    Array([[1., 3.],
           [2., 1.]], dtype=float32)
    """
    (column, row), _ = promoted("scipy.linalg.toeplitz", c, tnp.conj(array_of(c, "toeplitz")) if r is None else r)
    column, row = tnp.atleast_1d(column), tnp.atleast_1d(row)
    column, row = _of_one_batch("scipy.linalg.toeplitz", column, row)
    diagonals = tnp.concatenate([tnp.flip(row[..., 1:], -1), column], -1)
    n, m = column.shape[-1], row.shape[-1]
    return diagonals[..., np.arange(n)[:, None] - np.arange(m) + (m - 1)]


def _of_one_batch(what: str, *vectors: Any) -> list[Any]:
    """Vectors along the last axis, whose other axes are broadcast."""
    batch = broadcast_shapes(what, *(x.shape[:-1] for x in vectors))
    return [broadcast_to_shape(what, x, (*batch, x.shape[-1])) for x in vectors]


def circulant(c: ArrayLike) -> Array:
    """Matrices whose columns are the vectors along the last axis, turned by one place more from column to column.

    Args:
        c: vectors, of shape [..., n].

    Returns:
        Matrices, of shape [..., n, n].

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import circulant
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

    Args:
        c, r: vectors, of shape [..., m] and [..., n].

    Returns:
        Matrices, of shape [..., m, n].

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import hankel
    >>> hankel(np.array([1.0, 2.0]), np.array([0.0, 3.0]))
    Array([[1., 2.],
           [2., 3.]], dtype=float32)
    """
    (column, row), _ = promoted("scipy.linalg.hankel", c, tnp.zeros_like(c) if r is None else r)
    if not column.ndim or not row.ndim:
        raise ShapeError(f"scipy.linalg.hankel: takes vectors, but got {Shape.of(column)} and {Shape.of(row)}.")
    column, row = _of_one_batch("scipy.linalg.hankel", column, row)
    diagonals = tnp.concatenate([column, row[..., 1:]], -1)
    return diagonals[..., np.arange(column.shape[-1])[:, None] + np.arange(row.shape[-1])]


def companion(a: ArrayLike) -> Array:
    """The companion matrix of polynomials, their coefficients from the highest degree on along the last axis.

    Args:
        a: vectors of coefficients, of shape [..., n].

    Returns:
        Matrices, of shape [..., n - 1, n - 1].

    Raises:
        ShapeError: fewer than two coefficients.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import companion
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

    Args:
        f, s: vectors, of shape [..., n] and [..., n - 1].

    Returns:
        Matrices, of shape [..., n, n].

    Raises:
        ShapeError: fecundities that are not one more than the survival rates.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import leslie
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

    Args:
        n: the number of rows.

    Returns:
        A matrix.

    Raises:
        ShapeError: a negative size.

    >>> from tinyxla.scipy.linalg import hilbert
    >>> hilbert(2).round(4)
    Array([[1.    , 0.5   ],
           [0.5   , 0.3333]], dtype=float32)
    """
    places = _places("scipy.linalg.hilbert", n)
    return tnp.asarray(1 / (places[:, None] + places + 1), default_float())


def hadamard(n: int, dtype: Any = int) -> Array:
    """Sylvester's matrix of 1 and -1 with orthogonal rows; n must be a power of two.

    Args:
        n: the number of rows.
        dtype: the element type of the result.

    Returns:
        A matrix.

    Raises:
        ArgumentError: a size that is no power of 2.

    >>> from tinyxla.scipy.linalg import hadamard
    >>> hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    count = integer_of("scipy.linalg.hadamard", "n", n)
    if count < 1 or count.bit_count() != 1:
        raise ArgumentError(f"scipy.linalg.hadamard: n must be a positive power of 2, but got {n}.")
    places = _places("scipy.linalg.hadamard", n)
    odd = np.bitwise_count(places[:, None] & places) % 2
    return tnp.asarray(1 - 2 * odd.astype(np.int8)).astype(dtype)


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The matrix of Fourier's transform of n elements, divided by "sqrtn" or "n" if `scale` says so.

    Args:
        n: the number of rows.
        scale: None, "sqrtn" or "n".
        dtype: the element type of the result.

    Returns:
        A complex matrix.

    Raises:
        ShapeError: a negative size.
        ArgumentError: a scale that there is not.

    >>> from tinyxla.scipy.linalg import dft
    >>> dft(2).real
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    what = "scipy.linalg.dft"
    places = _places(what, n)
    size = max(places.size, 1)
    if dtype is not None and np.dtype(python_dtype(dtype)).kind != "c":
        raise DTypeError(f"{what}: dtype must be a complex type, but got {dtype}.")
    found = np.exp(-2j * np.pi * (places[:, None] * places % size / size))
    if scale is not None:
        found /= size if choice_of(what, "scale", scale, ("sqrtn", "n")) == "n" else math.sqrt(size)
    return tnp.asarray(found, np.result_type(default_float(), np.complex64) if dtype is None else dtype)


def _binomials(n: int) -> np.ndarray[Any, Any]:
    """The lower triangle of Pascal: (i over j) in row i and column j."""
    lower = np.zeros((n, n))
    lower[:, :1] = 1
    for i in range(1, n):
        lower[i, 1:] = lower[i - 1, 1:] + lower[i - 1, :-1]
    return lower


_KINDS = ("symmetric", "lower", "upper")


def pascal(n: int, kind: str | None = None) -> Array:
    """The numbers of Pascal's triangle: (i + j over i) ("symmetric", the default), (i over j) ("lower"), or (j over i)
    ("upper").

    Args:
        n: the number of rows.
        kind: "symmetric", "lower" or "upper".

    Returns:
        A matrix.

    Raises:
        ArgumentError: a size that is no integer.

    >>> from tinyxla.scipy.linalg import pascal
    >>> pascal(3, "lower")
    Array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 2., 1.]], dtype=float32)
    """
    what = "scipy.linalg.pascal"
    chosen: str = choice_of(what, "kind", "symmetric" if kind is None else kind, _KINDS)
    lower = _binomials(_places(what, n).size)
    kinds = {"symmetric": lower @ lower.T, "lower": lower, "upper": lower.T}
    return tnp.asarray(kinds[chosen], default_float())


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of the matrix that `pascal` gives, by its closed form.

    Args:
        n: the number of rows.
        kind: "symmetric", "lower" or "upper".

    Returns:
        A matrix.

    Raises:
        ShapeError: a negative size.

    >>> from tinyxla.scipy.linalg import invpascal
    >>> invpascal(3, "lower")
    Array([[ 1.,  0.,  0.],
           [-1.,  1.,  0.],
           [ 1., -2.,  1.]], dtype=float32)
    """
    what = "scipy.linalg.invpascal"
    chosen: str = choice_of(what, "kind", "symmetric" if kind is None else kind, _KINDS)
    places = _places(what, n)
    lower = _binomials(places.size) * (1 - 2 * ((places[:, None] + places) % 2)) + 0.0  # and no zero is negative
    kinds = {"symmetric": lower.T @ lower, "lower": lower, "upper": lower.T}
    return tnp.asarray(kinds[chosen], default_float())


def invhilbert(n: int) -> Array:
    """The inverse of the matrix that `hilbert` gives, by its closed form.

    Source: M.-D. Choi, "Tricks or Treats with the Hilbert Matrix", American Mathematical Monthly 90 (1983).

    Args:
        n: the number of rows.

    Returns:
        A matrix.

    Raises:
        ShapeError: a negative size.

    >>> from tinyxla.scipy.linalg import invhilbert
    >>> invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    count = _places("scipy.linalg.invhilbert", n).size
    scale = [
        math.comb(count + i, count - 1) * math.comb(count - 1, i) * (i + 1 - 2 * (i % 2) * (i + 1))
        for i in range(count)
    ]
    found = np.array([[float(a * b) / (i + j + 1) for j, b in enumerate(scale)] for i, a in enumerate(scale)])
    return tnp.asarray(found.reshape(count, count), default_float())


@with_flags
def helmert(n: int, full: bool = False) -> Array:
    """Helmert's matrix of orthonormal contrasts: row k - 1 has k times 1, then -k, divided by its length.

    Args:
        n: the number of columns, positive.
        full: one more row in front, which is constant.

    Returns:
        A matrix.

    Raises:
        ArgumentError: a size that is not a positive integer.

    >>> from tinyxla.scipy.linalg import helmert
    >>> helmert(2, full=True).round(4)
    Array([[ 0.7071,  0.7071],
           [ 0.7071, -0.7071]], dtype=float32)
    """
    what = "scipy.linalg.helmert"
    if integer_of(what, "n", n) < 1:
        raise ArgumentError(f"{what}: n must be a positive integer, but got {n}.")
    places = _places(what, n)
    found = np.tril(np.ones((n, n)), -1) - np.diag(places)
    found[0] = 1
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return tnp.asarray(found if full else found[1:], default_float())


def fiedler(a: ArrayLike) -> Array:
    """The symmetric matrices of the distances |a_i - a_j| of numbers along the last axis.

    Args:
        a: vectors, of shape [..., n].

    Returns:
        Matrices, of shape [..., n, n].

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import fiedler
    >>> fiedler(np.array([1.0, 4.0]))
    Array([[0., 3.],
           [3., 0.]], dtype=float32)
    """
    x: Any = tnp.atleast_1d(array_of(a, "scipy.linalg.fiedler"))
    return tnp.abs(x[..., :, None] - x[..., None, :])


def fiedler_companion(a: ArrayLike) -> Array:
    """A companion matrix of polynomials with five diagonals; their coefficients from the highest degree on along the
    last axis.

    Source: M. Fiedler, "A note on companion matrices", Linear Algebra and its Applications 372 (2003).

    Args:
        a: vectors of coefficients, of shape [..., n].

    Returns:
        Matrices, of shape [..., n - 1, n - 1].

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import fiedler_companion
    >>> fiedler_companion(np.array([1.0, -6.0, 11.0, -6.0]))
    Array([[  6., -11.,   1.],
           [  1.,   0.,   0.],
           [  0.,   6.,   0.]], dtype=float32)
    """
    what = "scipy.linalg.fiedler_companion"
    x: Any = tnp.atleast_1d(inexact_array(a, what))
    if not x.shape[-1]:
        raise ShapeError(f"{what}: the last axis must have nonzero length, but got {Shape.of(x)}.")
    n = x.shape[-1] - 1
    ones, index = np.zeros((n, n), bool), np.zeros((n, n), np.int32)  # where there is 1, or minus which coefficient
    index[:1, :1] = 1
    ones[1:2, :1] = True
    for i in range(0, n, 2):
        index[i, i + 1 : i + 2] = i + 2
        ones[i, i + 2 : i + 3] = True
        if i:
            index[i, i - 1] = i + 1
    for i in range(3, n, 2):
        ones[i, i - 2] = True
    scaled = -x / x[..., :1]
    return tnp.where(ones, 1, tnp.where(index > 0, scaled[..., index], 0))


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The Toeplitz matrices A with A v = convolve(a, v, mode) for v of n elements.

    Args:
        a: vectors of m elements along the last axis.
        n: the number of columns, positive.
        mode: `"full"` for m + n - 1 rows, `"same"` for max(m, n), `"valid"` for those that need no zeros.

    Returns:
        Matrices with n columns.

    Raises:
        ArgumentError: a size that is not a positive integer, or a mode that there is not.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import convolution_matrix
    >>> convolution_matrix(np.array([1.0, 2.0]), 2)
    Array([[1., 0.],
           [2., 1.],
           [0., 2.]], dtype=float32)
    """
    what = "scipy.linalg.convolution_matrix"
    if integer_of(what, "n", n) < 1:
        raise ArgumentError(f"{what}: n must be a positive integer, but got {n}.")
    choice_of(what, "mode", mode, ("full", "valid", "same"))
    x: Any = array_of(a, what)
    if not x.ndim or not x.shape[-1]:
        raise ShapeError(f"{what}: the length of a must be at least 1, but got {Shape.of(x)}.")
    m, shorter = x.shape[-1], min(x.shape[-1], int(n))
    rows = m + int(n) - 1
    before = {"full": 0, "same": (shorter - 1) // 2, "valid": shorter - 1}[mode]
    after = {"full": 0, "same": shorter - 1 - before, "valid": shorter - 1}[mode]
    check_memory(what, (rows, int(n)))
    offset = np.arange(before, rows - after)[:, None] - np.arange(int(n))
    inside = (offset >= 0) & (offset < m)
    return tnp.where(inside, x[..., np.where(inside, offset, 0)], tnp.zeros((), x.dtype))
