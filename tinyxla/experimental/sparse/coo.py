"""COO: matrices as lists of elements with their rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.experimental.sparse.bcoo import BCOO, bcoo_fromdense, bcoo_todense
from tinyxla.experimental.sparse.contraction import bcoo_dot_general
from tinyxla.experimental.sparse.util import JAXSparse, canonical_shape, check_format
from tinyxla.numpy.arguments import array_of, is_several
from tinyxla.tracing.array import Array
from tinyxla.tree_util import register_pytree_node_class


class COOInfo(NamedTuple):
    """What is static of a COO matrix."""

    shape: tuple[int, ...]
    rows_sorted: bool = False
    cols_sorted: bool = False


@register_pytree_node_class
class COO(JAXSparse):
    """A sparse matrix as its elements, their rows and their columns.

    Args:
        args: `(data, row, col)`, of one length.
        shape: of the matrix.
        rows_sorted, cols_sorted: promises about the order.

    Example:
        >>> from tinyxla.experimental.sparse import COO
        >>> import tinyxla as tx
        >>> m = COO.fromdense(tx.numpy.array([[0.0, 1.0], [2.0, 0.0]]))
        >>> m @ tx.numpy.array([1.0, 2.0])
        Array([2., 2.], dtype=float32)
    """

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        rows_sorted: bool = False,
        cols_sorted: bool = False,
    ) -> None:
        self.data, self.row, self.col = (tnp.asarray(x) for x in args)
        self.shape = canonical_shape("COO", shape)
        self.rows_sorted = rows_sorted
        self.cols_sorted = cols_sorted
        if len(self.shape) != 2 or not self.data.shape == self.row.shape == self.col.shape:
            raise ShapeError(
                f"COO: a matrix has two dimensions and vectors of one length, but the shape is {self.shape}, and data, "
                f"row and col have {self.data.shape}, {self.row.shape} and {self.col.shape}."
            )

    @property
    def nse(self) -> int:
        return self.data.size

    @property
    def info(self) -> COOInfo:
        return COOInfo(self.shape, self.rows_sorted, self.cols_sorted)

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
        """A sparse matrix from a dense one; see `coo_fromdense`.

        Args:
            mat: a matrix.
            nse: the number of elements that are stored, for compiled functions; None for as many as are not zero.
            index_dtype: the integer type of indices.

        Returns:
            A `COO` matrix.

        Raises:
            ArgumentError: an `nse` that is no integer, or what is no matrix.
            ConcretizationError: the matrix is traced, and `nse` is not given.
            DTypeError: what is no array, or an index type that is none of integers.
            ShapeError: a negative `nse`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.COO.fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
        >>> m.data, m.row, m.col
        (Array([3., 4.], dtype=float32), Array([0, 1], dtype=int32), Array([1, 0], dtype=int32))
        """
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _of(cls, mat: BCOO) -> COO:
        """A BCOO matrix with sparse dimensions only."""
        indices = mat.indices
        return cls((mat.data, indices[:, 0], indices[:, 1]), shape=mat.shape, rows_sorted=mat.indices_sorted)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        _check_matrix("COO", shape)
        made = BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype)  # pyright: ignore[reportPrivateUsage]
        return cls._of(made)

    @classmethod
    def _eye(cls, rows: int, columns: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        made = BCOO._eye(rows, columns, k, dtype=dtype, index_dtype=index_dtype)  # pyright: ignore[reportPrivateUsage]
        return cls._of(made)

    def to_bcoo(self) -> BCOO:
        """The same matrix in batched coordinate format.

        Returns:
            A `BCOO` matrix of the same elements.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.COO.fromdense(jnp.eye(2)).to_bcoo()
        BCOO(float32[2, 2], nse=2)
        """
        return BCOO((self.data, tnp.stack([self.row, self.col], -1)), shape=self.shape)

    def todense(self) -> Array:
        """The dense matrix.

        Returns:
            A matrix of the same shape and dtype.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.COO((jnp.array([5.0]), jnp.array([0]), jnp.array([1])), shape=(2, 2)).todense()
        Array([[0., 5.],
               [0., 0.]], dtype=float32)
        """
        return bcoo_todense(self.to_bcoo())

    def transpose(self, axes: Any = None) -> COO:
        """The transposed matrix.

        Args:
            axes: (1, 0) or None.

        Returns:
            A `COO` matrix.

        Raises:
            ArgumentError: other axes.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.COO.fromdense(jnp.ones((2, 3))).transpose()
        COO(float32[3, 2], nse=6)
        """
        if axes is not None and (not is_several(axes) or tuple(axes) != (1, 0)):
            raise ArgumentError(f"COO.transpose: axes can only be (1, 0) or None, but got {axes}.")
        flags = {"rows_sorted": self.cols_sorted, "cols_sorted": self.rows_sorted}
        return COO((self.data, self.col, self.row), shape=self.shape[::-1], **flags)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Its buffers, and what is static of it."""
        return (self.data, self.row, self.col), tuple(self.info)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> COO:
        """A matrix from its buffers."""
        made = object.__new__(cls)
        made.data, made.row, made.col = children
        made.shape, made.rows_sorted, made.cols_sorted = static
        return made

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)


def _check_matrix(name: str, shape: Sequence[int]) -> None:
    if len(tuple(shape)) != 2:
        raise ArgumentError(f"{name} must have ndim=2, but got shape {tuple(shape)}.")


def matmul(mat: Any, other: Any) -> Any:
    """The product of a sparse matrix, which has `to_bcoo`, with a dense vector or matrix."""
    name = type(mat).__name__
    if isinstance(other, JAXSparse):
        raise ArgumentError(f"{name}: matmul between two sparse objects is not supported; use BCOO.")
    x = array_of(other, f"{name} @ x")
    if x.ndim not in (1, 2):
        raise ShapeError(f"{name}: matmul takes a vector or a matrix, but got an array of shape {x.shape}.")
    kind = tnp.result_type(mat.dtype, x.dtype)
    return _product(mat.to_bcoo().astype(kind), x.astype(kind), False)


def _product(mat: BCOO, x: Any, transpose: bool) -> Any:
    return bcoo_dot_general(mat, x, dimension_numbers=(((0 if transpose else 1,), (0,)), ((), ())))


def checked_product(what: str, mat: Any, x: Any, transpose: bool, ndim: int) -> Any:
    """`mat @ x` or `mat.T @ x`, with an operand of that many dimensions."""
    array = array_of(x, what)
    size = mat.shape[0 if transpose else 1]
    if array.ndim != ndim or array.shape[0] != size:
        raise ShapeError(
            f"{what}: the operand must have {ndim} dimensions, the first of size {size}, but has shape {array.shape}."
        )
    return _product(mat.to_bcoo(), array, transpose)


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """A COO matrix with the nonzero elements of a dense one; arguments as of `bcoo_fromdense`.

    Args:
        mat: a matrix.
        nse: the number of elements that are stored.
        index_dtype: the type of the indices.

    Returns:
        A COO matrix.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.coo_fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]])).row
    Array([0, 1], dtype=int32)
    """
    x = array_of(mat, "coo_fromdense")
    _check_matrix("coo_fromdense: the matrix", x.shape)
    return COO._of(bcoo_fromdense(x, nse=nse, index_dtype=index_dtype))  # pyright: ignore[reportPrivateUsage]


def coo_todense(mat: COO) -> Array:
    """The dense matrix of a COO matrix.

    Args:
        mat: a COO matrix.

    Returns:
        A matrix.

    Raises:
        ArgumentError: what is no COO matrix.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.coo_todense(sparse.COO((jnp.array([5.0]), jnp.array([0]), jnp.array([1])), shape=(2, 2)))
    Array([[0., 5.],
           [0., 0.]], dtype=float32)
    """
    check_format("coo_todense", COO, mat)
    return mat.todense()


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Array:
    """The product of a COO matrix, or its transpose, with a vector.

    Args:
        mat: a COO matrix.
        v: a vector.
        transpose: whether to multiply by the transpose.

    Returns:
        A vector.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.coo_fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
    >>> sparse.coo_matvec(m, jnp.array([1.0, 10.0])), sparse.coo_matvec(m, jnp.array([1.0, 10.0]), transpose=True)
    (Array([30.,  4.], dtype=float32), Array([40.,  3.], dtype=float32))
    """
    check_format("coo_matvec", COO, mat)
    return checked_product("coo_matvec", mat, v, transpose, 1)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Array:
    """The product of a COO matrix, or its transpose, with a matrix.

    Args:
        mat: a COO matrix.
        B: a matrix.
        transpose: whether to multiply by the transpose.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.coo_fromdense(jnp.ones((2, 3)))
    >>> sparse.coo_matmat(m, jnp.ones((3, 4))).shape, sparse.coo_matmat(m, jnp.ones((2, 4)), transpose=True).shape
    ((2, 4), (3, 4))
    """
    check_format("coo_matmat", COO, mat)
    return checked_product("coo_matmat", mat, B, transpose, 2)
