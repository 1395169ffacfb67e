"""Functions of matrices, Schur and polar factors, and matrix equations, under the names of `jax.scipy.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api import ShapeDtypeStruct, jvp
from tinyxla.api.callbacks import pure_callback
from tinyxla.errors import ShapeError
from tinyxla.lax import linalg as factors
from tinyxla.numpy.arguments import (
    ArrayLike,
    broadcast_shapes,
    broadcast_to_shape,
    choice_of,
    count_of,
    number_of,
    promoted,
    with_flags,
)
from tinyxla.numpy.linalg import triangular
from tinyxla.numpy.matrix_factorizations import matrices
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array


def _adjoint(x: Any) -> Any:
    return tnp.conj(tnp.matrix_transpose(x))


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """A complex B of B B = A, whose eigenvalues have no negative real part, from SciPy. It has no derivative.

    Args:
        A: a matrix, of shape [n, n].
        blocksize: must be 1.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import sqrtm
    >>> sqrtm(np.array([[4.0, 0.0], [0.0, 9.0]])).real.round(4)
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    x: Any = matrices("scipy.linalg.sqrtm", A, square=True)
    result = ShapeDtypeStruct(x.shape, np.result_type(x.dtype, np.complex64))

    def compute(m: Any) -> Any:
        with requiring("scipy.linalg", "SciPy", "scipy.linalg.sqrtm"):
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

    Args:
        A: matrices, of shape [..., n, n].
        upper_triangular: whether the matrices are upper triangular.
        max_squarings: the largest s.

    Returns:
        Matrices of the shape of A.

    Raises:
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import expm
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
        needed = tnp.ceil(tnp.log2(tnp.maximum(tnp.linalg.norm(lax.stop_gradient(a), 1) / reach, 1)))
        squarings = tnp.where(needed > 0, needed, 0).astype(np.int32)
        small = a / tnp.exp2(squarings).astype(a.dtype)
        one, square = tnp.eye(a.shape[-1], dtype=a.dtype), small @ small
        even: Any = terms[-2] * one
        odd: Any = terms[-1] * one
        for k in range(order - 3, -1, -2):
            even, odd = even @ square + terms[k] * one, odd @ square + terms[k + 1] * one
        odd = small @ odd
        left, right = even - odd, even + odd
        found: Any = triangular(left, right, False) if upper_triangular else tnp.linalg.solve(left, right)
        found = lax.fori_loop(0, tnp.minimum(squarings, max_squarings), lambda _, e: e @ e, found)
        return tnp.where(squarings > max_squarings, tnp.nan, found)

    return tnp.vectorize(of_one, signature="(n,n)->(n,n)")(x)


@with_flags
def expm_frechet(A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The exponential of matrices, and its derivative in a direction.

    Args:
        A: matrices, of shape [..., n, n].
        E: the directions, of the same shape.
        method: accepted for compatibility.
        compute_expm: give the exponential, too, in front.

    Returns:
        The derivative, of the shape of A; with `compute_expm` the exponential and the derivative.

    Raises:
        ShapeError: the shapes are not equal or the matrices not square.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import expm_frechet
    >>> expm_frechet(np.zeros((1, 1)), np.ones((1, 1)))[1]
    Array([[1.]], dtype=float32)
    """
    what = "scipy.linalg.expm_frechet"
    (a, direction), _ = promoted(what, A, E, to_inexact=True)
    a, direction = matrices(what, a, square=True), matrices(what, direction, square=True)
    if a.shape != direction.shape:
        raise ShapeError(f"{what}: A and E must have one shape, but are {Shape.of(a)} and {Shape.of(direction)}.")
    value, derivative = jvp(expm, (a,), (direction,))
    return (value, derivative) if compute_expm else derivative


# --- Schur forms ------------------------------------------------------------------------------------------------------


def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """T and Z of square matrices a = Z T Z*, with a unitary Z. It has no derivative.

    Args:
        a: matrices, of shape [..., n, n].
        output: `"real"` leaves real matrices real; T is triangular but for blocks of 2 x 2 in the diagonal, for pairs
            of conjugate eigenvalues. With `"complex"` T is complex and triangular.

    Returns:
        T and Z.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import schur
    >>> schur(np.array([[1.0, 2.0], [0.0, 3.0]]))[0]
    Array([[1., 2.],
           [0., 3.]], dtype=float32)
    """
    what = "scipy.linalg.schur"
    choice_of(what, "output", output, ("real", "complex"))
    x = matrices(what, a, square=True)
    form, vectors = factors.schur(_complex(x) if output == "complex" else x)
    return form, vectors


def _complex(x: Any) -> Any:
    return x.astype(np.result_type(x.dtype if x.dtype.itemsize > 2 else np.float32, np.complex64))


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex, triangular Schur form of matrices, and its vectors, from the real one: a rotation for each block.

    Args:
        T, Z: as `schur` gives them, of shape [..., n, n]; batch axes broadcast.
        check_finite: accepted for compatibility.

    Returns:
        T and Z, which are complex.

    Raises:
        ShapeError: the matrices are not square, or not of one size.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import rsf2csf, schur
    >>> rsf2csf(*schur(np.array([[0.0, 1.0], [-1.0, 0.0]])))[0].round(4).diagonal().imag
    Array([ 1., -1.], dtype=float32)
    """
    what = "scipy.linalg.rsf2csf"
    (form, vectors), _ = promoted(what, T, Z, to_inexact=True)
    form, vectors = matrices(what, form, square=True), matrices(what, vectors, square=True)
    if form.shape[-1] != vectors.shape[-1]:
        raise ShapeError(f"{what}: T and Z must be of one size, but are {Shape.of(form)} and {Shape.of(vectors)}.")
    batch = broadcast_shapes(what, form.shape[:-2], vectors.shape[:-2])
    form, vectors = (_complex(broadcast_to_shape(what, x, (*batch, *x.shape[-2:]))) for x in (form, vectors))
    if not form.size:
        return form, vectors
    found: Any = tnp.vectorize(_triangular_form, signature="(n,n),(n,n)->(n,n),(n,n)")(form, vectors)
    return found


def _triangular_form(form: Any, vectors: Any) -> tuple[Any, Any]:
    """Blocks of 2 x 2 are made triangular from the last one on."""
    size = form.shape[-1]
    precision = float(tnp.finfo(form.dtype).eps)

    def rotate(k: Any, state: Any) -> Any:
        t, z = state
        first = size - 2 - k
        block = lax.dynamic_slice(t, (first, first), (2, 2))
        (a, b), (c, d) = block
        wanted = tnp.abs(c) > precision * (tnp.abs(a) + tnp.abs(d))
        half = (a - d) / 2
        above = half + tnp.sqrt(half * half + b * c)
        length = tnp.hypot(tnp.abs(above), tnp.abs(c))
        safe = tnp.where(wanted, length, 1).astype(t.dtype)
        cosine, sine = tnp.where(wanted, above / safe, 1), tnp.where(wanted, c / safe, 0)
        turn = tnp.stack([tnp.stack([tnp.conj(cosine), sine]), tnp.stack([-sine, cosine])])
        t = lax.dynamic_update_slice(t, turn @ lax.dynamic_slice(t, (first, 0), (2, size)), (first, 0))
        back = tnp.conj(turn.T)
        t, z = (
            lax.dynamic_update_slice(x, lax.dynamic_slice(x, (0, first), (size, 2)) @ back, (0, first)) for x in (t, z)
        )
        return lax.dynamic_update_slice(t, tnp.zeros((1, 1), t.dtype), (first + 1, first)), z

    return lax.fori_loop(0, size - 1, rotate, (form, vectors)) if size > 1 else (form, vectors)


@with_flags
def hessenberg(a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The upper Hessenberg form H of square matrices a = Q H Q*, which is zero below the first subdiagonal. It has no
    derivative.

    Args:
        a: matrices, of shape [..., n, n].
        calc_q: give the unitary Q, too.
        overwrite_a, check_finite: accepted for compatibility.

    Returns:
        H; with `calc_q` H and Q.

    Raises:
        SquareMatrixError: what are no square matrices.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import hessenberg
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    x = matrices("scipy.linalg.hessenberg", a, square=True)
    packed, taus = factors.hessenberg(x)
    form = tnp.triu(packed, -1)
    if not calc_q:
        return form
    if not x.size:
        return form, packed
    inner = factors.householder_product(packed[..., 1:, :-1], taus)
    padding = [(0, 0)] * (x.ndim - 2) + [(1, 0), (1, 0)]
    corner = np.zeros(x.shape[-2:], bool)
    corner[0, 0] = True
    return form, tnp.where(corner, 1, tnp.pad(inner, padding)).astype(x.dtype)


def funm(A: ArrayLike, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """A function of a square matrix, by Parlett's recurrence on its Schur form; complex, and without a derivative.

    Args:
        A: a matrix of shape [n, n], whose eigenvalues should differ.
        func: a function of an array of eigenvalues, element by element.
        disp: without, an estimate of the relative error is given, too.

    Returns:
        A matrix; without `disp` also the estimate.

    Raises:
        ShapeError: A is no square matrix.

    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", algorithm 11.1.1.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import funm
    >>> funm(np.array([[4.0, 0.0], [0.0, 9.0]]), np.sqrt).real
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    what = "scipy.linalg.funm"
    x = matrices(what, A, square=True)
    if x.ndim != 2:
        raise ShapeError(f"{what}: takes a square matrix, but got {Shape.of(x)}.")
    form, vectors = schur(x, "complex")
    values = tnp.diagonal(form)
    size = form.shape[-1]
    difference = values[None, :] - values[:, None]
    distance = np.arange(size)[None, :] - np.arange(size)[:, None]

    def fill(k: Any, known: Any) -> Any:
        """One more diagonal, from the commutator with what is known."""
        commutator = form @ known - known @ form
        quotient = tnp.where(difference == 0, commutator, commutator / tnp.where(difference == 0, 1, difference))
        return tnp.where(distance == k, quotient, known)

    start = tnp.diag(tnp.asarray(func(values), form.dtype))
    found = vectors @ lax.fori_loop(1, size, fill, start) @ _adjoint(vectors)
    if disp:
        return found
    precision = float(tnp.finfo(form.dtype).eps)
    least = tnp.min(tnp.where(distance > 0, tnp.abs(difference), tnp.abs(values).max()), initial=np.inf)
    smallest = tnp.where(least == 0, precision, least)
    above = tnp.linalg.norm(tnp.triu(form, 1), 1)
    error = tnp.clip(precision / smallest * above, precision, 1)
    return found, tnp.where(tnp.any(tnp.isinf(found)), np.inf, error)


# --- equations --------------------------------------------------------------------------------------------------------


def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """The X of Sylvester's equation A X + X B = C.

    Args:
        A: matrices, of shape [..., m, m].
        B: matrices, of shape [..., n, n].
        C: matrices, of shape [..., m, n]; batch axes broadcast.
        method: `"schur"` by the Schur forms of A and B, or `"eigen"` by their eigenvectors.
        tol: X is NaN where the sum of an eigenvalue of A and one of B is smaller.

    Returns:
        Matrices of shape [..., m, n].

    Raises:
        ShapeError: the shapes do not fit.

    Source: R. H. Bartels and G. W. Stewart, "Solution of the matrix equation AX + XB = C", Communications of the ACM 15
    (1972).

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import solve_sylvester
    >>> solve_sylvester(np.eye(2), np.eye(2), np.full((2, 2), 6.0)).round(3)
    Array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    what = "scipy.linalg.solve_sylvester"
    choice_of(what, "method", method, ("schur", "eigen"))
    (a, b, c), _ = promoted(what, A, B, C, to_inexact=True)
    a, b, c = matrices(what, a, square=True), matrices(what, b, square=True), matrices(what, c)
    if c.shape[-2:] != (a.shape[-1], b.shape[-1]):
        raise ShapeError(
            f"{what}: C must have as many rows as A and columns as B, but they are {Shape.of(c)}, {Shape.of(a)} and "
            f"{Shape.of(b)}."
        )
    batch = broadcast_shapes(what, a.shape[:-2], b.shape[:-2], c.shape[:-2])
    a, b, c = (broadcast_to_shape(what, x, (*batch, *x.shape[-2:])) for x in (a, b, c))
    if not c.size:
        return c
    solution = _by_schur_forms if method == "schur" else _by_eigenvectors
    transposes = tnp.matrix_transpose(a), tnp.matrix_transpose(b)
    return lax.custom_linear_solve(
        lambda x: a @ x + x @ b,
        c,
        lambda _, y: solution(a, b, y, tol),
        lambda _, y: solution(*transposes, y, tol),
    )


def _like_right_side(found: Any, sums: Any, c: Any, tol: Any) -> Any:
    """Of the type of c, and NaN where the equation is singular."""
    singular = (tnp.abs(sums) < tol).any((-2, -1), keepdims=True)
    found = (found if c.dtype.kind == "c" else tnp.real(found)).astype(c.dtype)
    return tnp.where(singular, np.nan, found)


def _by_schur_forms(a: Any, b: Any, c: Any, tol: Any) -> Any:
    """Column by column of the triangular equation, each a triangular system."""
    (r, u), (s, v) = schur(a, "complex"), schur(b, "complex")
    right = _adjoint(u) @ c.astype(r.dtype) @ v
    size, shifts = b.shape[-1], tnp.diagonal(s, 0, -2, -1)
    one = tnp.broadcast_to(tnp.eye(a.shape[-1], dtype=r.dtype), r.shape)

    def column(k: Any, known: Any) -> Any:
        here = lax.dynamic_slice_in_dim(s, k, 1, s.ndim - 1)
        side = lax.dynamic_slice_in_dim(right, k, 1, right.ndim - 1) - known @ here
        shift = lax.dynamic_slice_in_dim(shifts, k, 1, shifts.ndim - 1)[..., None]
        return lax.dynamic_update_slice_in_dim(known, triangular(r + shift * one, side, False), k, known.ndim - 1)

    found = u @ lax.fori_loop(0, size, column, tnp.zeros_like(right)) @ _adjoint(v)
    return _like_right_side(found, tnp.diagonal(r, 0, -2, -1)[..., :, None] + shifts[..., None, :], c, tol)


def _by_eigenvectors(a: Any, b: Any, c: Any, tol: Any) -> Any:
    (p, u), (q, v) = tnp.linalg.eig(a), tnp.linalg.eig(b)
    sums = p[..., :, None] + q[..., None, :]
    inner = tnp.linalg.solve(u, c.astype(u.dtype) @ v) / sums
    found = tnp.matrix_transpose(tnp.linalg.solve(tnp.matrix_transpose(v), tnp.matrix_transpose(u @ inner)))
    return _like_right_side(found, sums, c, tol)


# --- polar factors ----------------------------------------------------------------------------------------------------


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """A matrix U with orthonormal rows or columns and a positive semidefinite P, of a = U P, or a = P U ("left").

    Args:
        a: matrices, of shape [..., m, n].
        side: on which side of U there is P.
        method: `"svd"`, or `"qdwh"` for the iteration of `lax.linalg.qdwh`. That is done where its precision or number
            of steps is given, else the singular values give the same.
        eps, max_iterations: of the iteration.

    Returns:
        U and P.

    Raises:
        DTypeError: what is no array or number.
        SquareMatrixError: an array of fewer than two dimensions.

    >>> import numpy as np
    >>> from tinyxla.scipy.linalg import polar
    >>> polar(np.array([[0.0, 2.0], [3.0, 0.0]]))[1].round(4)
    Array([[3., 0.],
           [0., 2.]], dtype=float32)
    """
    what = "scipy.linalg.polar"
    choice_of(what, "side", side, ("right", "left"))
    choice_of(what, "method", method, ("qdwh", "svd"))
    x = matrices(what, a)
    if method == "qdwh" and (eps is not None or max_iterations is not None):
        steps = None if max_iterations is None else count_of(what, "max_iterations", max_iterations)
        return _iterated_polar(x, side, steps, None if eps is None else number_of(what, "eps", eps))
    left, values, right = tnp.linalg.svd(x, full_matrices=False)
    scale = values[..., None, :].astype(left.dtype)
    adjoint = _adjoint(right if side == "right" else left)
    scaled = (adjoint * scale) @ right if side == "right" else (left * scale) @ adjoint
    return left @ right, scaled


def _iterated_polar(x: Any, side: str, steps: int | None, precision: float | None) -> tuple[Any, Any]:
    wide = x.shape[-2] < x.shape[-1]

    def of_one(matrix: Any) -> Any:
        return factors.qdwh(_adjoint(matrix) if wide else matrix, max_iterations=steps, eps=precision)[0]

    unitary: Any = tnp.vectorize(of_one, signature="(m,n)->(p,q)")(x)
    unitary = _adjoint(unitary) if wide else unitary
    inner = _adjoint(unitary) @ x if side == "right" else x @ _adjoint(unitary)
    return unitary, (inner + _adjoint(inner)) / 2
