"""CSR and CSC: matrices in compressed row and compressed column format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.experimental.sparse.bcoo import BCOO, bcoo_fromdense, bcoo_todense
from tinyxla.experimental.sparse.bcsr import BCSR
from tinyxla.experimental.sparse.coo import checked_product, matmul
from tinyxla.experimental.sparse.util import JAXSparse, canonical_shape, check_format
from tinyxla.numpy.arguments import array_of, is_several
from tinyxla.tracing.array import Array
from tinyxla.tree_util import register_pytree_node_class

_Compressed = TypeVar("_Compressed", bound="_CompressedMatrix")


class _CompressedMatrix(JAXSparse):
    """Elements in the order of their rows, or of their columns."""

    _axis = 0  # that is compressed

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]) -> None:
        self.data, self.indices, self.indptr = (tnp.asarray(x) for x in args)
        self.shape = canonical_shape(type(self).__name__, shape)
        fits = len(self.shape) == 2 and self.data.ndim == 1 and self.data.shape == self.indices.shape
        if not fits or self.indptr.shape != (self.shape[self._axis] + 1,):
            raise ShapeError(
                f"{type(self).__name__}: data {self.data.shape}, indices {self.indices.shape} and indptr "
                f"{self.indptr.shape} do not fit a matrix of shape {self.shape}."
            )

    @property
    def nse(self) -> int:
        return self.data.size

    @classmethod
    def _of(cls: type[_Compressed], mat: BCOO) -> _Compressed:
        """A BCOO matrix with sparse dimensions only."""
        made = BCSR.from_bcoo(mat.transpose() if cls._axis else mat)
        return cls((made.data, made.indices, made.indptr), shape=mat.shape)

    @classmethod
    def fromdense(
        cls: type[_Compressed], mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32
    ) -> _Compressed:
        """A sparse matrix from a dense one; arguments as of `bcoo_fromdense`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.CSR.fromdense(jnp.array([[0.0, 3.0], [4.0, 5.0]]))
        >>> m.data, m.indices, m.indptr
        (Array([3., 4., 5.], dtype=float32), Array([1, 0, 1], dtype=int32), Array([0, 1, 3], dtype=int32))
        """
        x = array_of(mat, f"{cls.__name__}.fromdense")
        if x.ndim != 2:
            raise ArgumentError(f"{cls.__name__} must have ndim=2, but got shape {x.shape}.")
        return cls._of(bcoo_fromdense(x, nse=nse, index_dtype=index_dtype))

    @classmethod
    def _empty(
        cls: type[_Compressed], shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32"
    ) -> _Compressed:
        if len(tuple(shape)) != 2:
            raise ArgumentError(f"{cls.__name__} must have ndim=2, but got shape {tuple(shape)}.")
        made = BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype)  # pyright: ignore[reportPrivateUsage]
        return cls._of(made)

    @classmethod
    def _eye(
        cls: type[_Compressed], rows: int, columns: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32"
    ) -> _Compressed:
        made = BCOO._eye(rows, columns, k, dtype=dtype, index_dtype=index_dtype)  # pyright: ignore[reportPrivateUsage]
        return cls._of(made)

    def to_bcoo(self) -> BCOO:
        """The same matrix in batched coordinate format.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.CSC.fromdense(jnp.eye(2)).to_bcoo()
        BCOO(float32[2, 2], nse=2)
        """
        shape = self.shape[::-1] if self._axis else self.shape
        mat = BCSR((self.data, self.indices, self.indptr), shape=shape).to_bcoo()
        return mat.transpose() if self._axis else mat

    def todense(self) -> Array:
        """The dense matrix.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.CSC((jnp.array([5.0]), jnp.array([0]), jnp.array([0, 0, 1])), shape=(2, 2)).todense()
        Array([[0., 5.],
               [0., 0.]], dtype=float32)
        """
        return bcoo_todense(self.to_bcoo())

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Its buffers, and what is static of it."""
        return (self.data, self.indices, self.indptr), self.shape

    @classmethod
    def tree_unflatten(cls: type[_Compressed], static: Any, children: Any) -> _Compressed:
        """A matrix from its buffers."""
        made = object.__new__(cls)
        made.data, made.indices, made.indptr = children
        made.shape = static
        return made

    def _check_axes(self, axes: Any) -> None:
        if axes is not None and (not is_several(axes) or tuple(axes) != (1, 0)):
            raise ArgumentError(f"{type(self).__name__}.transpose: axes can only be (1, 0) or None, but got {axes}.")

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)


@register_pytree_node_class
class CSR(_CompressedMatrix):
    """A sparse matrix in compressed row format.

    Args:
        args: `(data, indices, indptr)`: the elements, row by row, their columns, and where each row begins.
        shape: of the matrix.

    Example:
        >>> from tinyxla.experimental.sparse import CSR
        >>> import tinyxla as tx
        >>> CSR.fromdense(tx.numpy.array([[0.0, 1.0], [2.0, 0.0]])).indptr
        Array([0, 1, 2], dtype=int32)
    """

    def transpose(self, axes: Any = None) -> CSC:
        """The transposed matrix, in compressed column format.

        Args:
            axes: (1, 0) or None.

        Returns:
            A `CSC` matrix with the same buffers.

        Raises:
            ArgumentError: other axes.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.CSR.fromdense(jnp.ones((2, 3))).transpose()
        CSC(float32[3, 2], nse=6)
        """
        self._check_axes(axes)
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])


@register_pytree_node_class
class CSC(_CompressedMatrix):
    """A sparse matrix in compressed column format.

    Args:
        args: `(data, indices, indptr)`: the elements, column by column, their rows, and where each column begins.
        shape: of the matrix.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.CSC((jnp.array([5.0]), jnp.array([0]), jnp.array([0, 0, 1])), shape=(2, 2))
    >>> m.todense()
    Array([[0., 5.],
           [0., 0.]], dtype=float32)
    """

    _axis = 1

    def transpose(self, axes: Any = None) -> CSR:
        """The transposed matrix, in compressed row format.

        Args:
            axes: (1, 0) or None.

        Returns:
            A `CSR` matrix with the same buffers.

        Raises:
            ArgumentError: other axes.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.CSC.fromdense(jnp.ones((2, 3))).transpose()
        CSR(float32[3, 2], nse=6)
        """
        self._check_axes(axes)
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """A CSR matrix with the nonzero elements of a dense one; arguments as of `bcoo_fromdense`.

    Args:
        mat: a matrix.
        nse: the number of elements that are stored.
        index_dtype: the type of the indices.

    Returns:
        A CSR matrix.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.csr_fromdense(jnp.array([[0.0, 3.0], [4.0, 5.0]])).indptr
    Array([0, 1, 3], dtype=int32)
    """
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def csr_todense(mat: CSR) -> Array:
    """The dense matrix of a CSR matrix.

    Args:
        mat: a CSR matrix.

    Returns:
        A matrix.

    Raises:
        ArgumentError: what is no CSR matrix.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.csr_todense(sparse.CSR((jnp.array([5.0]), jnp.array([1]), jnp.array([0, 0, 1])), shape=(2, 2)))
    Array([[0., 0.],
           [0., 5.]], dtype=float32)
    """
    check_format("csr_todense", CSR, mat)
    return mat.todense()


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Array:
    """The product of a CSR matrix, or its transpose, with a vector.

    Args:
        mat: a CSR matrix.
        v: a vector.
        transpose: whether to multiply by the transpose.

    Returns:
        A vector.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.csr_fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
    >>> sparse.csr_matvec(m, jnp.array([1.0, 10.0])), sparse.csr_matvec(m, jnp.array([1.0, 10.0]), transpose=True)
    (Array([30.,  4.], dtype=float32), Array([40.,  3.], dtype=float32))
    """
    check_format("csr_matvec", CSR, mat)
    return checked_product("csr_matvec", mat, v, transpose, 1)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Array:
    """The product of a CSR matrix, or its transpose, with a matrix.

    Args:
        mat: a CSR matrix.
        B: a matrix.
        transpose: whether to multiply by the transpose.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.csr_matmat(sparse.csr_fromdense(jnp.ones((2, 3))), jnp.ones((3, 4))).shape
    (2, 4)
    """
    check_format("csr_matmat", CSR, mat)
    return checked_product("csr_matmat", mat, B, transpose, 2)
