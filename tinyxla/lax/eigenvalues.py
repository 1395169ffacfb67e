"""Eigenvalues and left and right eigenvectors of general matrices, with derivatives in LAPACK's normalization."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.custom_derivatives import custom_jvp
from tinyxla.errors import ArgumentError, DifferentiationError
from tinyxla.lax.operands import ArrayLike
from tinyxla.numpy import lapack
from tinyxla.numpy.arguments import with_flags
from tinyxla.numpy.matrix_factorizations import matrices
from tinyxla.numpy.operations import eigenvalues, factorizations
from tinyxla.tracing.array import Array


class EigImplementation(enum.Enum):
    """Who computes eigenvalues of general matrices: here it is LAPACK.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> w, *_ = lax.linalg.eig(np.diag([1.0, 2.0]), implementation=lax.linalg.EigImplementation.LAPACK)
    >>> w
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """The algorithm for eigenvalues of Hermitian matrices: here it is LAPACK's, divide and conquer after QR.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> v, w = lax.linalg.eigh(np.diag([2.0, 1.0]), implementation=lax.linalg.EighImplementation.QR)
    >>> w
    Array([1., 2.], dtype=float32)
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """The algorithm for singular values: here it is LAPACK's, divide and conquer.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.linalg.svd(np.diag([1.0, -2.0]), compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.JACOBI)
    Array([2., 1.], dtype=float32)
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def check_member(what: str, name: str, value: Any, kind: type[enum.Enum]) -> None:
    """An error if an option is not None and no member of the enumeration."""
    if value is not None and not isinstance(value, kind):
        raise ArgumentError(f"{what}: {name} must be a {kind.__name__} or None, but got {value!r}.")


@with_flags
def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: Any = None,
) -> list[Array]:
    """The eigenvalues and eigenvectors of square matrices.

    Args:
        x: matrices, of shape [..., n, n].
        compute_left_eigenvectors: give the vectors u of u* x = w u*, as columns.
        compute_right_eigenvectors: give the vectors v of x v = w v, as columns.
        enable_eigvec_derivs: vectors have derivatives: those of vectors of length 1 whose largest element is real. They
            are defined where eigenvalues differ and each vector has one largest element. Eigenvalues alone always have
            derivatives.
        implementation, use_magma: accepted for compatibility; LAPACK computes.

    Returns:
        The eigenvalues, and those vectors that are wanted, left ones first; all complex, and NaN where the iteration
        does not converge.

    Source: geev of LAPACK; M. B. Giles, "An extended collection of matrix derivative results" (2008), section 3.1.

    Raises:
        SquareMatrixError: what are no square matrices.
        DifferentiationError: a derivative of eigenvectors, unless these are enabled.

    >>> import numpy as np
    >>> from tinyxla.lax.linalg import eig
    >>> values, left, right = eig(np.array([[2.0, 1.0], [0.0, 1.0]]))
    >>> values.real
    Array([2., 1.], dtype=float32)
    """
    what = "lax.linalg.eig"
    check_member(what, "implementation", implementation, EigImplementation)
    a = matrices(what, x, square=True)
    if not compute_left_eigenvectors and not compute_right_eigenvectors:
        return [eigenvalues.eig(a)[1]]
    left, right, enabled = (
        bool(flag) for flag in (compute_left_eigenvectors, compute_right_eigenvectors, enable_eigvec_derivs)
    )
    return list(_eig(a, left, right, enabled))


def _decomposed(a: Any, left: bool, right: bool) -> tuple[Any, ...]:
    if not left:
        vectors, values = eigenvalues.eig(a)
        return values, vectors
    values, *vectors = lapack.eigenvectors(a)
    return (values, *vectors) if right else (values, vectors[0])


_eig = custom_jvp(lambda a, left, right, enabled: _decomposed(a, left, right), nondiff_argnums=(1, 2, 3))


@_eig.defjvp
def _eig_jvp(left: bool, right: bool, enabled: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    if not enabled:
        raise DifferentiationError(
            "lax.linalg.eig: derivatives of eigenvectors depend on their normalization, and exist where eigenvalues "
            "differ; ask for them by enable_eigvec_derivs=True, or for eigenvalues alone."
        )
    (a,), (change,) = primals, tangents
    values, *vectors = _eig(a, left, True, enabled)
    change = factorizations.of_type(change, values)
    moved, right_moved = _perturbed(values, vectors[-1], change)
    tangent: list[Any] = [moved]
    if left:
        tangent.append(_perturbed(tnp.conj(values), vectors[0], tnp.conj(tnp.matrix_transpose(change)))[1])
    if right:
        tangent.append(right_moved)
    return (values, *(vectors if right else vectors[:1])), tuple(tangent)


def _perturbed(values: Any, vectors: Any, change: Any) -> tuple[Any, Any]:
    """The changes of eigenvalues and of eigenvectors that keep their length and the phase of their largest element."""
    inside = tnp.linalg.solve(vectors, tnp.matmul(change, vectors))
    moved = tnp.matmul(vectors, factorizations.inverse_differences(values) * inside)
    index = tnp.argmax(tnp.abs(vectors), -2, keepdims=True)
    largest = tnp.take_along_axis(vectors, index, -2)
    along = tnp.real(tnp.sum(tnp.conj(vectors) * moved, -2, keepdims=True))
    rotation = tnp.imag(tnp.take_along_axis(moved, index, -2)) / tnp.real(largest)
    correction = tnp.asarray(along, values.dtype) + tnp.asarray(rotation, values.dtype) * _imaginary(values.dtype)
    return tnp.diagonal(inside, 0, -2, -1), moved - vectors * correction


def _imaginary(dtype: Any) -> Any:
    return np.asarray(1j, dtype)
