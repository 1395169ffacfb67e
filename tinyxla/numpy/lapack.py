"""Routines of LAPACK on arrays: reductions by Householder reflectors, and Schur forms.

They have no derivatives of their own; what has one is written in terms of the factorizations of `tinyxla.ops`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.custom_derivatives import custom_jvp
from tinyxla.numpy.arguments import cast
from tinyxla.numpy.operations import lapack, movement, ops
from tinyxla.shapes import Shape, element_type


def _called(routine: str, x: Any, *others: Any, options: tuple[str, ...] = ()) -> tuple[Any, ...]:
    """The results of a routine; those of narrow types are computed in single precision."""
    is_narrow = element_type(x.dtype).bits < 32
    found = lapack.call(routine, cast(x, np.dtype(np.float32)) if is_narrow else x, *others, options=options)
    return tuple(cast(y, x.dtype) if is_narrow and y.dtype == np.float32 else y for y in found)


def hessenberg(x: Any) -> tuple[Any, Any]:
    """gehrd: the Hessenberg form of square matrices with the reflectors below it, and their factors tau."""
    form, taus = _called("gehrd", x)
    return form, taus


def tridiagonal(x: Any, lower: bool) -> tuple[Any, ...]:
    """sytrd, hetrd: the tridiagonal form of Hermitian matrices with the reflectors beside it, its diagonal, what is
    beside that, and the factors tau."""
    return _called("sytrd", x, options=("L" if lower else "U",))


def qr_reflectors(x: Any) -> tuple[Any, Any]:
    """geqrf: R with the reflectors of Q below it, and their factors tau."""
    factors, taus = _called("geqrf", x)
    return factors, taus


@custom_jvp
def column_pivots(x: Any) -> Any:
    """geqp3: the order of columns in which the diagonal of R descends, from 0 on."""
    sizes = (*x.shape[:-2], x.shape[-1])
    if 0 in x.shape[-2:]:
        return movement.iota(shape=Shape(element_type(np.int32), sizes), iota_dimension=len(sizes) - 1)
    free = movement.full(0, np.int32, sizes)
    order = _called("geqp3", x, free)[1]
    return ops.sub(order, ops.one_like(order))


@column_pivots.defjvp
def _column_pivots_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, None]:
    return column_pivots(*primals), None


def schur(x: Any) -> tuple[Any, Any]:
    """gees: T and Z of x = Z T Z*, where T is triangular, of real matrices but for blocks of 2 x 2; NaN where the
    iteration does not converge."""
    form, vectors, *_ = _called("gees", x, options=("V", "N"))
    return form, vectors


def eigenvectors(x: Any) -> tuple[Any, Any, Any]:
    """geev: the eigenvalues of square matrices, and the left and right eigenvectors; NaN without convergence."""
    *values, left, right = _called("geev", x, options=("V", "V"))
    return (values[0] if len(values) == 1 else ops.complex_(*values)), left, right
