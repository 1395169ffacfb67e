"""The largest eigenvalues of a symmetric operator, of which only products with vectors are needed.

Sources: Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate
gradient method" (2001); Stathopoulos and Wu, "A block orthogonalization procedure with constant synchronization
requirements" (2002), for orthonormal bases by the Gram matrix; Duersch, Shao, Yang and Gu, "A robust and efficient
implementation of LOBPCG" (2018), for directions that are orthogonal to the iterates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.errors import DTypeError, ShapeError
from tinyxla.numpy.arguments import array_of, integer_of
from tinyxla.tracing.array import Array

Operator = Callable[[Any], Any]


class _State(NamedTuple):
    step: Any
    vectors: Any  # orthonormal, of shape (n, k)
    directions: Any  # orthonormal to one another and to the vectors; columns may be zero
    values: Any
    converged: Any  # how many


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Array, Array, Array]:
    """The largest eigenvalues of a symmetric matrix and their vectors, by LOBPCG.

    Args:
        A: a matrix of shape (n, n), or a function that multiplies it with arrays of shape (n, j).
        X: linearly independent vectors to start with, of shape (n, k) with 5 k < n, one for each eigenvalue.
        m: the most steps.
        tol: a pair has converged when the norm of its residual is below 10 n tol (value + norm of A v); by default the
            resolution of the element type.

    Returns:
        `(theta, U, steps)`: the eigenvalues, the largest first, their vectors as columns, and the number of steps.

    Raises:
        ShapeError: the shapes do not fit, or k is 0 or not below n / 5.
        DTypeError: A and X have different element types, or such as have no eigenvalues here.

    Example:
        >>> import numpy as np
        >>> from tinyxla.experimental.sparse.linalg import lobpcg_standard
        >>> matrix = np.diag(np.arange(1.0, 13.0)).astype(np.float32)
        >>> theta, U, steps = lobpcg_standard(matrix, np.ones((12, 1), np.float32))
        >>> theta.round(3)
        Array([12.], dtype=float32)
    """
    what = "sparse.linalg.lobpcg_standard"
    vectors = array_of(X, what)
    steps = integer_of(what, "m", m)
    if callable(A):
        multiply: Operator = A
    else:
        matrix = array_of(A, what)
        multiply = lambda x: tnp.matmul(matrix, x)  # noqa: E731
    n, k = _checked(what, multiply, A, vectors)
    resolution = float(np.finfo(vectors.dtype).eps) if tol is None else tol
    start = _orthonormal(vectors)
    product = multiply(start)
    values = tnp.sum(start * product, 0)
    zero = np.int32(0)
    state = _State(zero, start, tnp.zeros_like(start), values, zero)

    def unfinished(state: _State) -> Any:
        return tnp.logical_and(state.step < steps, state.converged < k)

    def step(state: _State) -> _State:
        vectors, directions, values = _improved(multiply, state)
        product = multiply(vectors)
        residuals = tnp.linalg.norm(product - values[None] * vectors, axis=0)
        allowed = 10 * n * (tnp.linalg.norm(product, axis=0) + tnp.abs(values))
        converged = tnp.sum(residuals < resolution * allowed, dtype=np.int32)
        return _State(state.step + 1, vectors, directions, values, converged)

    found = lax.while_loop(unfinished, step, state)
    return found.values, found.vectors, found.step


def _checked(what: str, multiply: Operator, A: Any, X: Any) -> tuple[int, int]:
    if X.ndim != 2 or not 0 < 5 * X.shape[1] < X.shape[0]:
        raise ShapeError(f"{what}: X must have a shape (n, k) with 0 < 5 k < n, but has {X.shape}.")
    if X.dtype.kind != "f":
        raise DTypeError(f"{what}: X must be of a real floating type, but is {X.dtype.name}; convert it with astype.")
    n, k = X.shape
    if not callable(A) and np.shape(A) != (n, n):
        raise ShapeError(f"{what}: A must be a matrix of shape {(n, n)}, as X has {n} rows, but has {np.shape(A)}.")
    product = multiply(tnp.zeros((n, 1), X.dtype))
    if product.shape != (n, 1):
        raise ShapeError(f"{what}: A of an array of shape {(n, 1)} must give one of that shape, not {product.shape}.")
    if product.dtype != X.dtype:
        raise DTypeError(f"{what}: A and X must have one element type, but have {product.dtype} and {X.dtype}.")
    return n, k


def _orthonormal(basis: Any) -> Any:
    """Orthonormal columns of the same span; zero columns where it has fewer dimensions."""
    for _ in range(2):  # the second time for what rounding has left
        norms = tnp.linalg.norm(basis, axis=0, keepdims=True)
        scaled = basis / tnp.where(norms > 0, norms, tnp.ones_like(norms))
        values, vectors = tnp.linalg.eigh(tnp.matmul(scaled.T, scaled))
        smallest = tnp.maximum(values[-1], 0) * float(np.finfo(basis.dtype).eps)
        kept = values > smallest
        lengths = tnp.sqrt(tnp.where(kept, values, tnp.ones_like(values)))
        basis = tnp.matmul(scaled, vectors) * (kept.astype(basis.dtype) / lengths)[None]
    return basis


def _beside(basis: Any, vectors: Any) -> Any:
    """Orthonormal columns of what of the vectors is orthogonal to an orthonormal basis."""
    for _ in range(2):
        vectors = _orthonormal(vectors - tnp.matmul(basis, tnp.matmul(basis.T, vectors)))
    for _ in range(2):
        vectors = vectors - tnp.matmul(basis, tnp.matmul(basis.T, vectors))
    # What is left of columns that were noise is not of length 1: these are dropped.
    is_whole = tnp.linalg.norm(vectors, axis=0, keepdims=True) > 0.99
    return tnp.where(is_whole, vectors, tnp.zeros_like(vectors))


def _improved(multiply: Operator, state: _State) -> tuple[Any, Any, Any]:
    """The best vectors in the span of vectors, directions and residuals; the next directions; and the eigenvalues."""
    k = state.values.shape[0]
    known = tnp.concatenate([state.vectors, state.directions], 1)
    residuals = multiply(state.vectors) - state.values[None] * state.vectors
    basis = tnp.concatenate([known, _beside(known, residuals)], 1)
    projected = tnp.matmul(basis.T, multiply(basis))
    projected = (projected + projected.T) / 2
    absent = tnp.sum(basis * basis, 0) < 0.5  # zero columns, whose eigenvalues are to be the smallest
    floor = -2 * tnp.sum(tnp.abs(projected)) - 1
    values, rotation = tnp.linalg.eigh(projected + tnp.diag(tnp.where(absent, floor, tnp.zeros_like(floor))))
    best = rotation[:, : -k - 1 : -1]
    # Steps away from the vectors that were: the parts of the best outside of them, orthogonal to the best.
    steps = best.at[:k].set(0)
    directions = _beside(best, steps)
    vectors = tnp.matmul(basis, best)
    vectors = vectors / tnp.linalg.norm(vectors, axis=0, keepdims=True)
    return vectors, tnp.matmul(basis, directions), values[: -k - 1 : -1]
