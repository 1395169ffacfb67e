"""BCSR: arrays in batched compressed row format.

The dimensions are batch, two sparse and dense ones. `data` has the shape `(*batch, nse, *dense)`, `indices` (columns)
`(*batch, nse)` and `indptr` `(*batch, rows + 1)`: row k has the elements from `indptr[k]` to `indptr[k + 1]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.experimental.sparse.bcoo import (
    BCOO,
    bcoo_fromdense,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_update_layout,
    extracted,
)
from tinyxla.experimental.sparse.contraction import bcoo_dot_general
from tinyxla.experimental.sparse.movement import bcoo_broadcast_in_dim, bcoo_concatenate
from tinyxla.experimental.sparse.util import (
    SparseArithmetic,
    SparseInfo,
    canonical_shape,
    check_format,
    check_scipy,
    nfold_vmap,
)
from tinyxla.numpy.arguments import array_of
from tinyxla.tracing.array import Array
from tinyxla.tree_util import register_pytree_node_class


@register_pytree_node_class
class BCSR(SparseArithmetic):
    """A sparse array in batched compressed row format: a pytree, which compiled and mapped functions can take and give.

    Args:
        args: `(data, indices, indptr)`.
        shape: `(*batch, rows, columns, *dense)`.
        indices_sorted: a promise that columns are in order in each row.
        unique_indices: a promise that no element is there twice.

    Example:
        >>> from tinyxla.experimental.sparse import BCSR
        >>> import tinyxla as tx
        >>> m = BCSR.fromdense(tx.numpy.eye(3))
        >>> m
        BCSR(float32[3, 3], nse=3)
        >>> m.indptr
        Array([0, 1, 2, 3], dtype=int32)
    """

    _placeholder_n_batch = 0  # where the buffers are placeholders, as in a tree of axes

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        self.data, self.indices, self.indptr = (tnp.asarray(x) for x in args)
        self.shape = canonical_shape("BCSR", shape)
        self.indices_sorted = indices_sorted
        self.unique_indices = unique_indices
        n, nse = self.indices.ndim - 1, self.indices.shape[-1] if self.indices.ndim else 0
        fits = n >= 0 and len(self.shape) >= n + 2 and self.indptr.ndim == n + 1
        fits = fits and self.indptr.shape[-1] == self.shape[n] + 1
        if not fits or self.data.shape[n:] != (nse, *self.shape[n + 2 :]):
            raise ShapeError(
                f"BCSR: data {self.data.shape}, indices {self.indices.shape} and indptr {self.indptr.shape} must be "
                f"(*batch, nse, *dense), (*batch, nse) and (*batch, rows + 1) for an array of shape {self.shape}."
            )

    @property
    def info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def nse(self) -> int:
        return self.indices.shape[-1]

    @property
    def n_batch(self) -> int:
        return self.indices.ndim - 1

    @property
    def n_sparse(self) -> int:
        return 2

    @property
    def n_dense(self) -> int:
        return self.data.ndim - 1 - self.n_batch

    def _extra(self) -> str:
        batch = f", n_batch={self.n_batch}" if self.n_batch else ""
        return batch + (f", n_dense={self.n_dense}" if self.n_dense else "")

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """A sparse array from a dense one; see `bcsr_fromdense`.

        Args:
            mat: an array.
            nse: the number of elements that are stored, for compiled functions; None for as many as are not zero.
            index_dtype: the integer type of indices.
            n_dense, n_batch: the numbers of dense and of batch dimensions.

        Returns:
            A `BCSR` array.

        Raises:
            ArgumentError: an `nse` that is no integer, or other than two sparse dimensions.
            ConcretizationError: the array is traced, and `nse` is not given.
            DTypeError: what is no array, or an index type that is none of integers.
            ShapeError: a negative `nse`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 3.0], [4.0, 5.0]]))
        >>> m.indices, m.indptr
        (Array([1, 0, 1], dtype=int32), Array([0, 1, 3], dtype=int32))
        """
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same array as a BCOO one, which must have two sparse dimensions.

        Args:
            arr: a `BCOO` array.

        Returns:
            A `BCSR` array of the same elements.

        Raises:
            ArgumentError: what is no `BCOO` array, or has other than two sparse dimensions.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCSR.from_bcoo(sparse.BCOO.fromdense(jnp.eye(3))).indptr
        Array([0, 1, 2, 3], dtype=int32)
        """
        check_format("BCSR.from_bcoo", BCOO, arr)
        if arr.n_sparse != 2:
            raise ArgumentError(
                f"BCSR.from_bcoo requires n_sparse=2; got n_sparse={arr.n_sparse}. Use update_layout before."
            )
        mat = arr if arr.indices_sorted else arr.sort_indices()
        rows = mat.sparse_shape[0]

        def pointers(indices: Any) -> Any:
            limits = tnp.arange(rows + 1, dtype=indices.dtype)
            return tnp.searchsorted(indices[:, 0], limits).astype(indices.dtype)

        indptr = nfold_vmap(pointers, mat.n_batch)(mat.indices)
        flags = {"indices_sorted": True, "unique_indices": mat.unique_indices}
        return cls((mat.data, mat.indices[..., 1], indptr), shape=mat.shape, **flags)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """A sparse matrix from one of `scipy.sparse`.

        Args:
            mat: a matrix of `scipy.sparse`.
            index_dtype: the integer type of indices; None for int32.
            n_dense, n_batch: must be 0.

        Returns:
            A `BCSR` matrix.

        Raises:
            ArgumentError: what is no matrix of SciPy, an index type that is none of integers, or batch or dense
                dimensions.

        >>> import scipy.sparse
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCSR.from_scipy_sparse(scipy.sparse.eye(3, format="csr", dtype="float32"))
        BCSR(float32[3, 3], nse=3)
        """
        if n_dense or n_batch:
            raise ArgumentError("BCSR.from_scipy_sparse: a matrix of SciPy has no batch or dense dimensions.")
        check_scipy("BCSR.from_scipy_sparse", mat)
        csr = mat.tocsr()
        kind = np.dtype(index_dtype or np.int32)
        if kind.kind not in "iu":
            raise ArgumentError(f"BCSR.from_scipy_sparse: indices must be integers, but index_dtype is {kind.name}.")
        return cls((csr.data, csr.indices.astype(kind), csr.indptr.astype(kind)), shape=csr.shape)

    @classmethod
    def _empty(cls, shape: Sequence[int], **options: Any) -> BCSR:
        made = BCOO._empty(shape, **options)  # pyright: ignore[reportPrivateUsage]
        return cls.from_bcoo(made)

    def to_bcoo(self) -> BCOO:
        """The same array in coordinate format.

        Returns:
            A `BCOO` array of the same elements.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCSR.fromdense(jnp.eye(2)).to_bcoo().indices
        Array([[0, 0],
               [1, 1]], dtype=int32)
        """
        rows, columns = self.shape[self.n_batch : self.n_batch + 2]

        def coordinates(indices: Any, indptr: Any) -> Any:
            place = tnp.arange(self.nse, dtype=indptr.dtype)
            row = tnp.searchsorted(indptr, place, side="right").astype(indices.dtype) - 1
            inside = place < indptr[-1]
            both = tnp.stack([tnp.where(inside, row, rows), tnp.where(inside, indices, columns)], -1)
            return both.astype(indices.dtype)

        indices = nfold_vmap(coordinates, self.n_batch)(self.indices, self.indptr)
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCOO((self.data, indices), shape=self.shape, **flags)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """The array with sorted indices, each once, and `nse` elements; zeros are left out if `remove_zeros`.

        Args:
            nse: the number of elements that are stored, for compiled functions; None for as many as there are.
            remove_zeros: whether zeros are left out.

        Returns:
            A `BCSR` array of the same shape.

        Raises:
            ArgumentError: an `nse` that is no integer.
            ConcretizationError: the array is traced, and `nse` is not given.
            ShapeError: a negative `nse`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCSR((jnp.array([1.0, 2.0]), jnp.array([1, 1]), jnp.array([0, 2])), shape=(1, 3))
        >>> m.sum_duplicates().data
        Array([3.], dtype=float32)
        """
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))

    def todense(self) -> Array:
        """The dense array.

        Returns:
            An array of the same shape and dtype.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCSR((jnp.array([5.0]), jnp.array([1]), jnp.array([0, 0, 1])), shape=(2, 2)).todense()
        Array([[0., 0.],
               [0., 5.]], dtype=float32)
        """
        return bcsr_todense(self)

    def transpose(self, axes: Any = None) -> BCSR:
        """The array with its axes in another order, in which batch, sparse and dense ones stay apart.

        Args:
            axes: the axes in their new order; None reverses them.

        Returns:
            A `BCSR` array.

        Raises:
            ArgumentError: axes that do not name each dimension once.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCSR.fromdense(jnp.ones((2, 3))).transpose()
        BCSR(float32[3, 2], nse=6)
        """
        return BCSR.from_bcoo(self.to_bcoo().transpose(axes))

    def tree_flatten(self) -> tuple[tuple[Any, Any, Any], Any]:
        """Its buffers, and what is static of it."""
        n_batch = self.n_batch if hasattr(self.indices, "ndim") else self._placeholder_n_batch
        return (self.data, self.indices, self.indptr), (tuple(self.info), n_batch)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> BCSR:
        """An array from its buffers, which may have other batch dimensions than those taken apart."""
        made = object.__new__(cls)
        made.data, made.indices, made.indptr = children
        (shape, made.indices_sorted, made.unique_indices), n_batch = static
        made._placeholder_n_batch = n_batch
        batch = getattr(made.indices, "shape", None)
        changed = batch is not None and len(batch) - 1 != n_batch and len(batch) > 0
        made.shape = (*batch[:-1], *shape[n_batch:]) if changed and batch is not None else shape
        return made


def _bcsr(what: str, mat: Any) -> BCSR:
    if not isinstance(mat, BCSR):
        raise ArgumentError(f"{what} takes a BCSR array, but got {type(mat).__name__}.")
    return mat


def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCSR:
    """A BCSR array with the nonzero elements of a dense one; arguments as of `bcoo_fromdense`, which leave two sparse
    dimensions.

    Args:
        mat: a dense array.
        nse: the number of elements that are stored; by default as many as are needed, which must be known then.
        n_batch, n_dense: the number of batch and of dense dimensions.
        index_dtype: the type of the indices.

    Returns:
        A BCSR array.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.bcsr_fromdense(jnp.array([[0.0, 3.0], [0.0, 0.0]]), nse=2)
    BCSR(float32[2, 2], nse=2)
    """
    x = array_of(mat, "bcsr_fromdense")
    if x.ndim - n_batch - n_dense != 2:
        raise ArgumentError(
            f"bcsr_fromdense: must have 2 sparse dimensions, but n_batch={n_batch} and n_dense={n_dense} leave "
            f"{x.ndim - n_batch - n_dense} of {x.ndim}."
        )
    made = bcoo_fromdense(x, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCSR.from_bcoo(made)


def bcsr_todense(mat: BCSR) -> Array:
    """The dense array of a BCSR array.

    Args:
        mat: a BCSR array.

    Returns:
        An array.

    Raises:
        ArgumentError: what is no BCSR array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCSR((jnp.array([1.0, 2.0]), jnp.array([0, 2]), jnp.array([0, 1, 2])), shape=(2, 3))
    >>> sparse.bcsr_todense(m)
    Array([[1., 0., 0.],
           [0., 0., 2.]], dtype=float32)
    """
    return bcoo_todense(_bcsr("bcsr_todense", mat).to_bcoo())


def bcsr_eliminate_zeros(mat: BCSR, nse: int | None = None) -> BCSR:
    """A BCSR array without elements that are zero.

    Args:
        mat: a BCSR array.
        nse: the number of elements that are stored; by default as many as are needed, which must be known then.

    Returns:
        A BCSR array.

    Raises:
        ArgumentError: what is no BCSR array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCSR((jnp.array([0.0, 2.0]), jnp.array([0, 2]), jnp.array([0, 1, 2])), shape=(2, 3))
    >>> sparse.bcsr_eliminate_zeros(m)
    BCSR(float32[2, 3], nse=1)
    """
    return _bcsr("bcsr_eliminate_zeros", mat).sum_duplicates(nse)


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """A BCSR array with sorted indices, in which each is there once; arguments as of `bcoo_sum_duplicates`.

    Args:
        mat: a BCSR array.
        nse: the number of elements that are stored; by default as many as are needed, which must be known then.

    Returns:
        A BCSR array.

    Raises:
        ArgumentError: what is no BCSR array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCSR((jnp.array([1.0, 2.0]), jnp.array([1, 1]), jnp.array([0, 2])), shape=(1, 3))
    >>> sparse.bcsr_sum_duplicates(m).data
    Array([3.], dtype=float32)
    """
    return BCSR.from_bcoo(bcoo_sum_duplicates(_bcsr("bcsr_sum_duplicates", mat).to_bcoo(), nse))


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Array:
    """The elements of a dense array at the indices of a BCSR array: its data.

    Args:
        indices, indptr: the indices of a BCSR array.
        mat: a dense array.

    Returns:
        A vector, or an array with batch and dense dimensions.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> columns, pointers = jnp.array([1, 0]), jnp.array([0, 1, 2])
    >>> sparse.bcsr_extract(columns, pointers, jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([2., 3.], dtype=float32)
    """
    x, columns, pointers = (array_of(a, "bcsr_extract") for a in (mat, indices, indptr))
    n = columns.ndim - 1
    data = tnp.zeros((*columns.shape, *x.shape[n + 2 :]), x.dtype)
    made = BCSR((data, columns, pointers), shape=x.shape).to_bcoo()
    return nfold_vmap(extracted, n)(made.indices, x)


def bcsr_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, **options: Any) -> Any:
    """`lax.dot_general` of a BCSR array with a dense one; see `bcoo_dot_general`.

    Args:
        lhs, rhs: a BCSR array and a dense one.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`.
        **options: as for `bcoo_dot_general`.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
    >>> sparse.bcsr_dot_general(m, jnp.array([1.0, 10.0]), dimension_numbers=(([1], [0]), ([], [])))
    Array([30.,  4.], dtype=float32)
    """
    left = lhs.to_bcoo() if isinstance(lhs, BCSR) else lhs
    right = rhs.to_bcoo() if isinstance(rhs, BCSR) else rhs
    return bcoo_dot_general(left, right, dimension_numbers=dimension_numbers, **options)


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """`lax.broadcast_in_dim` of a BCSR array, which keeps two sparse dimensions.

    Args:
        mat: a BCSR array.
        shape: the sizes of the result.
        broadcast_dimensions: the dimension of the result that each one of the operand becomes.
        sharding: accepted for compatibility.

    Returns:
        A BCSR array.

    Raises:
        ArgumentError: what is no BCSR array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.eye(2))
    >>> sparse.bcsr_broadcast_in_dim(m, shape=(3, 2, 2), broadcast_dimensions=(1, 2))
    BCSR(float32[3, 2, 2], nse=2, n_batch=1)
    """
    made = bcoo_broadcast_in_dim(
        _bcsr("bcsr_broadcast_in_dim", mat).to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions
    )
    if made.n_sparse != 2:
        made = bcoo_update_layout(made, n_batch=made.ndim - 2 - made.n_dense, on_inefficient=None)
    return BCSR.from_bcoo(made)


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """`lax.concatenate` of BCSR arrays with equal layouts, along a batch or sparse dimension.

    Args:
        operands: BCSR arrays.
        dimension: the dimension along which they are concatenated.

    Returns:
        A BCSR array.

    Raises:
        ArgumentError: what is no BCSR array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.eye(2))
    >>> sparse.bcsr_concatenate([m, m], dimension=1).todense()
    Array([[1., 0., 1., 0.],
           [0., 1., 0., 1.]], dtype=float32)
    """
    mats = [_bcsr("bcsr_concatenate", m).to_bcoo() for m in operands]
    return BCSR.from_bcoo(bcoo_concatenate(mats, dimension=dimension))
