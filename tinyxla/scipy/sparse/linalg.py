"""Iterative solvers, under the names of `jax.scipy.sparse.linalg`. Their derivatives are those of the equation.

A is a matrix or a linear function of pytrees of arrays; so is M, which should be near the inverse of A. Solvers give
the x of A x = b, and None. They stop when the norm of the residual is at most max(tol |b|, atol), or after `maxiter`
steps (10 times the number of unknowns, if None).

Source: R. Barrett et al., "Templates for the Solution of Linear Systems" (1994).

>>> import numpy as np
>>> from tinyxla.scipy.sparse.linalg import cg
>>> cg(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 8.0]))[0].round(4)
Array([1., 2.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyxla import lax, numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.flatten_util import ravel_pytree
from tinyxla.numpy.arguments import array_of, promoted

Map = Callable[[Any], Any]


def _map(what: str, a: Any) -> Map:
    if callable(a):
        return a
    matrix = array_of(a, what)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"{what}: takes a square matrix or a function, but got a shape {matrix.shape}.")
    return lambda x: tnp.matmul(matrix, x)


def _solved(
    name: str, step: Callable[..., Any], A: Any, b: Any, x0: Any, M: Any, tol: Any, atol: Any, maxiter: int | None
) -> tuple[Any, None]:
    """The solution by a solver of vectors, which all leaves make together."""
    what = f"scipy.sparse.linalg.{name}"
    right, unravel = ravel_pytree(b)
    (right,), _ = promoted(what, right, to_inexact=True)
    start = tnp.zeros_like(right) if x0 is None else ravel_pytree(x0)[0].astype(right.dtype)
    if start.shape != right.shape:
        raise ShapeError(f"{what}: x0 must have the shapes of b, but has {start.size} elements, not {right.size}.")
    forward, near = _map(what, A), None if M is None else _map(what, M)
    limit = 10 * right.size if maxiter is None else maxiter

    def flat(function: Map) -> Map:
        return lambda x: ravel_pytree(function(unravel(x)))[0].astype(right.dtype)

    def solve(x: Any) -> Callable[[Map, Any], Any]:
        def found(matvec: Map, y: Any) -> Any:
            end = tnp.maximum(tol * tnp.linalg.norm(y), atol)
            return step(matvec, y, x, flat(near) if near else lambda r: r, end, limit)

        return found

    transposed = None if name == "cg" else solve(tnp.zeros_like(right))
    x = lax.custom_linear_solve(flat(forward), right, solve(lax.stop_gradient(start)), transposed, name == "cg")
    return unravel(x), None


def _conjugate_gradients(matvec: Map, b: Any, x: Any, near: Map, end: Any, limit: int) -> Any:
    def step(state: Any) -> Any:
        x, r, p, size, k = state
        moved = matvec(p)
        alpha = size / tnp.vdot(p, moved).real
        x, r = x + alpha * p, r - alpha * moved
        z = near(r)
        larger = tnp.vdot(r, z).real
        return x, r, z + larger / size * p, larger, k + 1

    r = b - matvec(x)
    z = near(r)
    start = (x, r, z, tnp.vdot(r, z).real, 0)
    return lax.while_loop(lambda s: (tnp.linalg.norm(s[1]) > end) & (s[-1] < limit), step, start)[0]


def _bicgstab(matvec: Map, b: Any, x: Any, near: Map, end: Any, limit: int) -> Any:
    r = first = b - matvec(x)

    def step(state: Any) -> Any:
        x, r, p, v, rho, alpha, omega, k = state
        last, rho = rho, tnp.vdot(first, r)
        p = r + rho / last * alpha / omega * (p - omega * v)
        p_near = near(p)
        v = matvec(p_near)
        alpha = rho / tnp.vdot(first, v)
        s = r - alpha * v
        s_near = near(s)
        t = matvec(s_near)
        done = tnp.linalg.norm(s) <= end  # then t may be 0
        omega = tnp.where(done, 1, tnp.vdot(t, s) / tnp.where(done, 1, tnp.vdot(t, t)))
        x = x + alpha * p_near + tnp.where(done, 0, omega * s_near)
        return x, tnp.where(done, s, s - omega * t), p, v, rho, alpha, omega, k + 1

    def has_not_converged(state: Any) -> Any:
        size = tnp.linalg.norm(state[1])
        return (size > end) & (state[-1] < limit) & tnp.isfinite(size)

    one, none = tnp.ones((), r.dtype), tnp.zeros_like(r)
    return lax.while_loop(has_not_converged, step, (x, r, none, none, one, one, one, 0))[0]


def _gmres(restart: int) -> Callable[..., Any]:
    def solve(matvec: Map, b: Any, x: Any, near: Map, end: Any, limit: int) -> Any:
        count = min(restart, b.size)

        def cycle(state: Any) -> Any:
            x, r, size, k = state

            def grow(j: Any, found: Any) -> Any:
                basis, products = found
                v = near(matvec(basis[:, j]))
                parts = tnp.zeros(count + 1, v.dtype)
                for _ in range(2):  # once more, against the rounding of the first time
                    part = tnp.conj(basis.T) @ v
                    v, parts = v - basis @ part, parts + part
                length = tnp.linalg.norm(v)
                parts = parts.at[j + 1].set(length)
                return basis.at[:, j + 1].set(v / tnp.where(length > 0, length, 1)), products.at[:, j].set(parts)

            basis = tnp.zeros((b.size, count + 1), b.dtype).at[:, 0].set(r / size)
            basis, products = lax.fori_loop(0, count, grow, (basis, tnp.zeros((count + 1, count), b.dtype)))
            right = tnp.zeros(count + 1, b.dtype).at[0].set(size)
            x = x + basis[:, :-1] @ tnp.linalg.lstsq(products, right)[0]
            return (x, *residual(x), k + 1)

        def residual(x: Any) -> Any:
            r = near(b - matvec(x))
            return r, tnp.linalg.norm(r)

        scale = tnp.linalg.norm(near(b)) / tnp.maximum(tnp.linalg.norm(b), tnp.finfo(b.dtype).tiny)
        bound = end * scale  # the residual that is looked at is that of the equation times M
        return lax.while_loop(lambda s: (s[2] > bound) & (s[3] < limit), cycle, (x, *residual(x), 0))[0]

    return solve


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """The solution for a Hermitian positive definite A, by conjugate gradients.

    Args:
        A: a matrix, or a function that multiplies a pytree of vectors by it.
        b: a pytree of vectors.
        x0: where to start; zeros if None.
        tol, atol: the norm of the residual at which to stop: `max(tol * norm(b), atol)`.
        maxiter: the largest number of iterations.
        M: an approximate inverse of A, of the same form, as a preconditioner.

    Returns:
        The solution, of the structure of b, and None.

    Raises:
        ArgumentError: a leaf that is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.sparse.linalg import cg
    >>> cg(lambda x: {"a": 2 * x["a"]}, {"a": np.array([2.0, 4.0])})[0]["a"]
    Array([1., 2.], dtype=float32)
    """
    return _solved("cg", _conjugate_gradients, A, b, x0, M, tol, atol, maxiter)


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """The solution for any invertible A, by stabilized biconjugate gradients.

    Args:
        A: a matrix, or a function that multiplies a pytree of vectors by it.
        b: a pytree of vectors.
        x0: where to start; zeros if None.
        tol, atol: the norm of the residual at which to stop: `max(tol * norm(b), atol)`.
        maxiter: the largest number of iterations.
        M: an approximate inverse of A, of the same form, as a preconditioner.

    Returns:
        The solution, of the structure of b, and None.

    Raises:
        ArgumentError: a leaf that is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.sparse.linalg import bicgstab
    >>> bicgstab(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))[0].round(4)
    Array([1., 2.], dtype=float32)
    """
    return _solved("bicgstab", _bicgstab, A, b, x0, M, tol, atol, maxiter)


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, None]:
    """The solution for any invertible A, by generalized minimal residuals.

    Args:
        restart: after how many products with A to begin again from what was found: a vector is kept for each.
        maxiter: of these cycles.
        solve_method: "batched" or "incremental"; one way serves both.
        A: a matrix, or a function that multiplies a pytree of vectors by it.
        b: a pytree of vectors.
        x0: where to start; zeros if None.
        tol, atol: the norm of the residual at which to stop: `max(tol * norm(b), atol)`.
        M: an approximate inverse of A, of the same form, as a preconditioner.

    Returns:
        The solution, of the structure of b, and None.

    Raises:
        ArgumentError: a leaf that is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.sparse.linalg import gmres
    >>> gmres(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))[0].round(4)
    Array([1., 2.], dtype=float32)
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentError(
            f"scipy.sparse.linalg.gmres: solve_method must be 'batched' or 'incremental', but got {solve_method!r}."
        )
    return _solved("gmres", _gmres(restart), A, b, x0, M, tol, atol, maxiter)


__all__ = ["bicgstab", "cg", "gmres"]


def __dir__() -> list[str]:
    return __all__
