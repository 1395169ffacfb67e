"""LAPACK routines that are called on the host, matrix by matrix: reductions by Householder reflectors, and Schur forms.

They have no derivatives of their own; what has one is written in terms of the factorizations of `tinyxla.ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinyxla.api import ShapeDtypeStruct
from tinyxla.api.callbacks import pure_callback
from tinyxla.custom_derivatives import custom_jvp
from tinyxla.numpy.arguments import cast
from tinyxla.ops.linalg.factorizations import lapack_functions
from tinyxla.shapes import element_type

Matrix = np.ndarray[Any, Any]
Routine = Callable[..., tuple[Matrix, ...]]  # of LAPACK's functions for a type, and one matrix


def _real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.real(np.empty(0, dtype)).dtype


def _call(
    names: Sequence[str], routine: Routine, results: Sequence[tuple[tuple[int, ...], str]], x: Matrix
) -> tuple[Matrix, ...]:
    """The results of a routine for each matrix of a batch; NaN where a matrix is not finite."""
    functions = lapack_functions(names[0], tuple(names), x.dtype)
    batch = x.shape[:-2]
    matrices = x.reshape((math.prod(batch), *x.shape[-2:]))
    found = [np.zeros((len(matrices), *shape), _result_type(kind, x.dtype)) for shape, kind in results]
    for k, matrix in enumerate(matrices):
        parts: Sequence[Any] = [np.nan] * len(found)
        if np.isfinite(matrix).all():
            parts = routine(*functions, matrix)
        for result, part in zip(found, parts, strict=True):
            if result.size:
                result[k] = part if result.dtype.kind != "i" or np.ndim(part) else 0
    return tuple(part.reshape((*batch, *part.shape[1:])) for part in found)


def _result_type(kind: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of a result that is like the matrix, real, complex or of integers."""
    if kind == "integer":
        return np.dtype(np.int32)
    if kind == "complex":
        return np.result_type(dtype, np.complex64)
    return _real_type(dtype) if kind == "real" else dtype


def _on_host(
    names: Sequence[str], routine: Routine, results: Sequence[tuple[tuple[int, ...], str]], x: Any
) -> tuple[Any, ...]:
    """The results of a routine, whose shapes and kinds are given, as arrays with the batch dimensions of x."""
    narrow = element_type(x.dtype).bits < 32
    wide = cast(x, np.dtype(np.float32)) if narrow else x
    shapes = [ShapeDtypeStruct((*x.shape[:-2], *s), _result_type(kind, wide.dtype)) for s, kind in results]
    call = partial(_call, tuple(names), routine, tuple(results))
    found = pure_callback(call, tuple(shapes), wide, vmap_method="expand_dims")
    return tuple(cast(y, x.dtype) if narrow and y.dtype == np.float32 else y for y in found)


def hessenberg(x: Any) -> tuple[Any, Any]:
    """gehrd: the Hessenberg form of square matrices with the reflectors below it, and their factors tau."""
    n = x.shape[-1]
    return _on_host(("gehrd",), _gehrd, (((n, n), "like"), ((max(n - 1, 0),), "like")), x)


def _gehrd(gehrd: Any, a: Matrix) -> tuple[Matrix, ...]:
    if len(a) < 2:
        return a, np.zeros(0, a.dtype)
    return gehrd(a)[:2]


def tridiagonal(x: Any, lower: bool) -> tuple[Any, ...]:
    """sytrd, hetrd: the tridiagonal form of Hermitian matrices with the reflectors beside it, its diagonal, what is
    beside that, and the factors tau."""
    n = x.shape[-1]
    name = "hetrd" if x.dtype.kind == "c" else "sytrd"
    beside = (max(n - 1, 0),)
    results = (((n, n), "like"), ((n,), "real"), (beside, "real"), (beside, "like"))
    return _on_host((name,), _lower_trd if lower else _upper_trd, results, x)


def _trd(lower: int, trd: Any, a: Matrix) -> tuple[Matrix, ...]:
    if len(a) < 2:
        return a.real.astype(a.dtype), a.diagonal().real, np.zeros(0), np.zeros(0, a.dtype)
    return trd(a, lower=lower)[:4]


_lower_trd, _upper_trd = partial(_trd, 1), partial(_trd, 0)


def qr_reflectors(x: Any) -> tuple[Any, Any]:
    """geqrf: R with the reflectors of Q below it, and their factors tau."""
    return _on_host(("geqrf",), _geqrf, ((x.shape[-2:], "like"), ((min(x.shape[-2:]),), "like")), x)


def _geqrf(geqrf: Any, a: Matrix) -> tuple[Matrix, ...]:
    return geqrf(a)[:2] if a.size else (a, np.zeros(0, a.dtype))


@custom_jvp
def column_pivots(x: Any) -> Any:
    """geqp3: the order of columns in which the diagonal of R descends, from 0 on."""
    (found,) = _on_host(("geqp3",), _geqp3, ((x.shape[-1:], "integer"),), x)
    return found


@column_pivots.defjvp
def _column_pivots_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, None]:
    return column_pivots(*primals), None


def _geqp3(geqp3: Any, a: Matrix) -> tuple[Matrix, ...]:
    return (geqp3(a)[1] - 1 if a.size else np.arange(a.shape[1]),)


def schur(x: Any) -> tuple[Any, Any]:
    """gees: T and Z of x = Z T Z*, where T is triangular, of real matrices but for blocks of 2 x 2; NaN where the
    iteration does not converge."""
    n = x.shape[-1]
    return _on_host(("gees",), _gees, (((n, n), "like"), ((n, n), "like")), x)


def _gees(gees: Any, a: Matrix) -> tuple[Matrix, ...]:
    if not len(a):
        return a, a
    found = gees(lambda *_: None, a)
    if found[-1]:
        return np.full_like(a, np.nan), np.full_like(a, np.nan)
    return found[0], found[-3]


def eigenvectors(x: Any) -> tuple[Any, Any, Any]:
    """geev: the eigenvalues of square matrices, and the left and right eigenvectors; NaN without convergence."""
    n = x.shape[-1]
    return _on_host(("geev",), _geev, (((n,), "complex"), ((n, n), "complex"), ((n, n), "complex")), x)


def _geev(geev: Any, a: Matrix) -> tuple[Any, ...]:
    if not len(a):
        return a[0:0], a, a
    *values, left, right, info = geev(a)
    if info:
        return np.nan, np.nan, np.nan
    if len(values) == 1:
        return values[0], left, right
    real, imaginary = values
    return real + 1j * imaginary, _of_pairs(left, imaginary), _of_pairs(right, imaginary)


def _of_pairs(vectors: Matrix, imaginary: Matrix) -> Matrix:
    """Complex vectors of real and imaginary parts in neighbouring columns, as geev has conjugate pairs."""
    found = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    for k in np.flatnonzero(imaginary > 0):
        found[:, k] = vectors[:, k] + 1j * vectors[:, k + 1]
        found[:, k + 1] = found[:, k].conj()
    return found
