"""Linear systems with sparse matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api.callbacks import pure_callback
from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ShapeError
from tinyxla.experimental.sparse.contraction import bcoo_dot_general
from tinyxla.experimental.sparse.csr import CSR
from tinyxla.experimental.sparse.eigenvalues import lobpcg_standard as lobpcg_standard
from tinyxla.numpy.arguments import array_of


def _solve_on_host(data: Any, indices: Any, indptr: Any, b: Any, transposed: bool) -> np.ndarray[Any, Any]:
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import spsolve as solve  # here, since few programs need them

    mat = csr_matrix((data, indices, indptr), shape=(b.size, b.size))
    return np.asarray(solve(mat.T.tocsc() if transposed else mat.tocsc(), b), b.dtype)


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Any:
    """The solution of a linear system with a square sparse matrix, by SciPy's direct solver.

    Args:
        data, indices, indptr: the matrix in compressed row format, as of `CSR`.
        b: the right-hand side, a vector.
        tol, reorder: accepted for JAX's sake.

    Returns:
        A vector of the shape and type of b. It has derivatives by `data` and `b`.

    Raises:
        ShapeError: b is no vector, or the matrix is not square.

    Example:
        >>> from tinyxla.experimental.sparse.linalg import CSR, spsolve
        >>> import tinyxla as tx
        >>> m = CSR.fromdense(tx.numpy.array([[2.0, 0.0], [1.0, 4.0]]))
        >>> spsolve(m.data, m.indices, m.indptr, tx.numpy.array([2.0, 9.0]))
        Array([1., 2.], dtype=float32)
    """
    x, right = array_of(data, "spsolve"), array_of(b, "spsolve")
    columns, pointers = array_of(indices, "spsolve"), array_of(indptr, "spsolve")
    if right.ndim != 1 or pointers.shape != (right.size + 1,):
        raise ShapeError(
            f"spsolve: b must be a vector with an entry for each row of the matrix, but has shape {right.shape}, and "
            f"indptr has {pointers.shape}."
        )
    mat = CSR((x, columns, pointers), shape=(right.size, right.size)).to_bcoo()
    fixed = lax.stop_gradient(x)

    def solver(transposed: bool) -> Any:
        def solve(_: Any, g: Any) -> Any:
            shape = ShapeDtypeStruct(g.shape, g.dtype)
            call = functools.partial(_solve_on_host, transposed=transposed)
            return pure_callback(call, shape, fixed, columns, pointers, g, vmap_method="sequential")

        return solve

    def product(v: Any) -> Any:
        return bcoo_dot_general(mat, v, dimension_numbers=(((1,), (0,)), ((), ())))

    right = right.astype(tnp.result_type(x.dtype, right.dtype))
    return lax.custom_linear_solve(product, right, solver(False), solver(True))
