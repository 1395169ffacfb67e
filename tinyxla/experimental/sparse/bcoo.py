"""BCOO: arrays in batched coordinate format.

The dimensions of such an array are `n_batch` batch dimensions, `n_sparse` sparse and `n_dense` dense ones. `data` has
the shape `(*batch, nse, *dense)` and `indices` the shape `(*batch, nse, n_sparse)`, where batch sizes of 1 broadcast.
An element with an index outside of the array is padding. Elements with equal indices are added.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.experimental.sparse.util import (
    Shape,
    SparseArithmetic,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    SparseInfo,
    canonical_shape,
    check_format,
    check_scipy,
    nfold_vmap,
)
from tinyxla.numpy.arguments import array_of, integer_of, integers_of
from tinyxla.tracing.array import Array
from tinyxla.transforms.batch import BatchTracer
from tinyxla.tree_util import register_pytree_node_class


class BCOOProperties(NamedTuple):
    """How many dimensions there are of each kind, and how many elements are specified."""

    n_batch: int
    n_sparse: int
    n_dense: int
    nse: int


def _validated(data: Any, indices: Any, shape: Shape) -> BCOOProperties:
    if indices.ndim < 2:
        raise ShapeError(f"BCOO: indices must have the shape (*batch, nse, n_sparse), but have {indices.shape}.")
    if not tnp.issubdtype(indices.dtype, tnp.integer):
        raise ArgumentError(f"BCOO: indices must be integers, but are {indices.dtype.name}.")
    n_batch, (nse, n_sparse) = indices.ndim - 2, indices.shape[-2:]
    n_dense = len(shape) - n_batch - n_sparse
    if n_dense < 0:
        raise ShapeError(f"BCOO: indices of shape {indices.shape} are for more dimensions than {shape} has.")
    for name, x in (("data", data), ("indices", indices)):
        pairs = zip(x.shape[:n_batch], shape[:n_batch], strict=False)
        if x.ndim < n_batch or any(n not in (1, size) for n, size in pairs):
            raise ShapeError(f"BCOO: {name} batch dimensions not compatible: {name} {x.shape}, shape {shape}.")
    if data.shape[n_batch:] != (nse, *shape[n_batch + n_sparse :]):
        raise ShapeError(
            f"BCOO: Invalid data shape {data.shape} for nse={nse}, n_batch={n_batch}, n_dense={n_dense}, shape {shape}."
        )
    return BCOOProperties(n_batch, n_sparse, n_dense, nse)


@register_pytree_node_class
class BCOO(SparseArithmetic):
    """A sparse array in batched coordinate format: a pytree, which compiled and mapped functions can take and give.

    Args:
        args: `(data, indices)`, of shapes `(*batch, nse, *dense)` and `(*batch, nse, n_sparse)`.
        shape: of the array, `(*batch, *sparse, *dense)`.
        indices_sorted: a promise that indices are in lexicographic order.
        unique_indices: a promise that no two elements have equal indices.

    Raises:
        ShapeError: shapes that do not fit.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO
        >>> import tinyxla as tx
        >>> m = BCOO.fromdense(tx.numpy.array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]))
        >>> m
        BCOO(float32[2, 3], nse=2)
        >>> m @ tx.numpy.array([1.0, 2.0, 3.0])
        Array([2., 2.], dtype=float32)
    """

    _placeholder_n_batch = 0  # where the buffers are placeholders, as in a tree of axes

    def __init__(
        self,
        args: tuple[Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        data, indices = args
        self.data: Any = tnp.asarray(data)
        self.indices: Any = tnp.asarray(indices)
        self.shape = canonical_shape("BCOO", shape)
        self.indices_sorted = indices_sorted
        self.unique_indices = unique_indices
        _validated(self.data, self.indices, self.shape)

    @property
    def info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def nse(self) -> int:
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        return self.indices.ndim - 2

    @property
    def n_sparse(self) -> int:
        return self.indices.shape[-1]

    @property
    def n_dense(self) -> int:
        return self.data.ndim - 1 - self.n_batch

    @property
    def batch_shape(self) -> Shape:
        return self.shape[: self.n_batch]

    @property
    def sparse_shape(self) -> Shape:
        return self.shape[self.n_batch : self.n_batch + self.n_sparse]

    @property
    def dense_shape(self) -> Shape:
        return self.shape[self.n_batch + self.n_sparse :]

    def _extra(self) -> str:
        batch = f", n_batch={self.n_batch}" if self.n_batch else ""
        return batch + (f", n_dense={self.n_dense}" if self.n_dense else "")

    def with_buffers(self, data: Any, indices: Any | None = None, shape: Shape | None = None, **flags: bool) -> BCOO:
        """The same array with other buffers; flags are kept where the indices are.

        Args:
            data: the elements, of shape [*batch, nse, *dense].
            indices: integers, of shape [*batch, nse, n_sparse]; None keeps those of the array.
            shape: the shape of the array; None keeps its own.
            **flags: indices_sorted and unique_indices.

        Returns:
            A `BCOO` array.

        Raises:
            ArgumentError: indices that are no integers.
            DTypeError: data that are no array.
            ShapeError: buffers that do not fit each other or the shape.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 3.0, 5.0]))
        >>> m.with_buffers(2 * m.data).todense()
        Array([ 0.,  6., 10.], dtype=float32)
        """
        if indices is None:
            flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices, **flags}
        kept = self.indices if indices is None else indices
        return BCOO((data, kept), shape=self.shape if shape is None else shape, **flags)

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """A sparse array from a dense one; see `bcoo_fromdense`.

        Args:
            mat: an array.
            nse: the number of elements that are stored, for compiled functions; None for as many as are not zero.
            index_dtype: the integer type of indices.
            n_dense, n_batch: the numbers of dense and of batch dimensions.

        Returns:
            A `BCOO` array.

        Raises:
            ArgumentError: an `nse` that is no integer, or more batch and dense dimensions than there are.
            ConcretizationError: the array is traced, and `nse` is not given.
            DTypeError: what is no array, or an index type that is none of integers.
            ShapeError: a negative `nse`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 3.0], [0.0, 0.0]]))
        >>> m, m.data, m.indices
        (BCOO(float32[2, 2], nse=1), Array([3.], dtype=float32), Array([[0, 1]], dtype=int32))
        """
        return bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """A sparse matrix from one of `scipy.sparse`.

        Args:
            mat: a matrix of `scipy.sparse`.
            index_dtype: the integer type of indices; None for int32.
            n_dense, n_batch: the numbers of dense and of batch dimensions.

        Returns:
            A `BCOO` matrix.

        Raises:
            ArgumentError: what is no matrix of SciPy, or an index type that is none of integers.
            AttributeValueError: more batch and dense dimensions than two.

        >>> import scipy.sparse
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCOO.from_scipy_sparse(scipy.sparse.eye(3, format="csr", dtype="float32"))
        BCOO(float32[3, 3], nse=3)
        """
        check_scipy("BCOO.from_scipy_sparse", mat)
        coo = mat.tocoo()
        indices = np.stack([coo.row, coo.col], axis=1).astype(index_dtype or np.int32)
        found = cls((coo.data, indices), shape=coo.shape)
        if not n_dense and not n_batch:
            return found
        return bcoo_update_layout(found, n_batch=n_batch, n_dense=n_dense, on_inefficient=None)

    @classmethod
    def _empty(
        cls,
        shape: Sequence[int],
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCOO:
        shape = canonical_shape("sparse.empty", shape)
        n_sparse = len(shape) - n_dense - n_batch
        if min(n_sparse, n_dense, n_batch, nse) < 0:
            raise ArgumentError(
                f"sparse.empty: Invalid inputs: shape={shape}, n_dense={n_dense}, n_batch={n_batch}, nse={nse}."
            )
        batch, sparse, dense = shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]
        fill = np.broadcast_to(np.asarray(sparse, index_dtype), (*batch, nse, n_sparse))
        data = tnp.zeros((*batch, nse, *dense), dtype)
        return cls((data, fill), shape=shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(
        cls,
        rows: int,
        columns: int,
        k: int,
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_batch: int = 0,
        n_dense: int = 0,
    ) -> BCOO:
        if min(n_batch, n_dense, 2 - n_batch - n_dense) < 0:
            raise ArgumentError(f"sparse.eye: Invalid inputs: n_dense={n_dense}, n_batch={n_batch}.")
        size = max(min(rows, columns - k) if k > 0 else min(rows + k, columns), 0)
        if n_batch or n_dense:
            if not size:
                layout = {"n_batch": n_batch, "n_dense": n_dense}
                return cls._empty((rows, columns), dtype=dtype, index_dtype=index_dtype, **layout)
            dense = tnp.eye(rows, columns, k, dtype=dtype)
            return bcoo_fromdense(dense, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
        first = np.arange(size, dtype=index_dtype)
        indices = np.stack([first - min(k, 0), first + max(k, 0)], axis=1).astype(index_dtype)
        data = tnp.ones(size, dtype)
        return cls((data, indices), shape=(rows, columns), indices_sorted=True, unique_indices=True)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
    ) -> BCOO:
        """The array with other numbers of batch and dense dimensions; see `bcoo_update_layout`.

        Args:
            n_batch, n_dense: the numbers of batch and of dense dimensions; None keeps those of the array.
            on_inefficient: "error", "warn" or None: what to do where many zeros would be stored.

        Returns:
            A `BCOO` array of the same elements.

        Raises:
            ArgumentError: a number that is no integer.
            AttributeValueError: more dimensions than there are, or another `on_inefficient`.
            SparseEfficiencyError: many zeros would be stored.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO.fromdense(jnp.eye(2))
        >>> m.update_layout(n_batch=1, on_inefficient=None)  # an element in each row
        BCOO(float32[2, 2], nse=2, n_batch=1)
        """
        return bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """The array with sorted indices, each once, and `nse` elements; zeros are left out if `remove_zeros`.

        Args:
            nse: the number of elements that are stored, for compiled functions; None for as many as there are.
            remove_zeros: whether zeros are left out.

        Returns:
            A `BCOO` array of the same shape.

        Raises:
            ArgumentError: an `nse` that is no integer.
            ConcretizationError: the array is traced, and `nse` is not given.
            ShapeError: a negative `nse`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO((jnp.array([1.0, 2.0, 0.0]), jnp.array([[4], [4], [0]])), shape=(5,))
        >>> m.sum_duplicates(), m.sum_duplicates(remove_zeros=False)
        (BCOO(float32[5], nse=1), BCOO(float32[5], nse=2))
        """
        return bcoo_eliminate_zeros(self, nse) if remove_zeros else bcoo_sum_duplicates(self, nse)

    def sort_indices(self) -> BCOO:
        """The array with its indices in lexicographic order.

        Returns:
            A `BCOO` array of the same elements.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[4], [0]])), shape=(5,))
        >>> m.sort_indices().data
        Array([2., 1.], dtype=float32)
        """
        return bcoo_sort_indices(self)

    def todense(self) -> Array:
        """The dense array.

        Returns:
            An array of the same shape and dtype.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[2], [2]])), shape=(3,))
        >>> m.todense()  # elements with equal indices are added
        Array([0., 0., 3.], dtype=float32)
        """
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The array with its axes in another order, in which batch, sparse and dense ones stay apart.

        Args:
            axes: the axes in their new order; None reverses them.

        Returns:
            A `BCOO` array.

        Raises:
            ArgumentError: axes that do not name each dimension once.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCOO.fromdense(jnp.ones((2, 3))).transpose()
        BCOO(float32[3, 2], nse=6)
        """
        order = range(self.ndim)[::-1] if axes is None else axes
        return bcoo_transpose(self, permutation=order)

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        """Its buffers, and what is static of it."""
        n_batch = self.n_batch if hasattr(self.indices, "ndim") else self._placeholder_n_batch
        return (self.data, self.indices), (tuple(self.info), n_batch)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> BCOO:
        """An array from its buffers, which may have other batch dimensions than those taken apart: in mapped
        functions."""
        made = object.__new__(cls)
        made.data, made.indices = children
        (shape, made.indices_sorted, made.unique_indices), n_batch = static
        made._placeholder_n_batch = n_batch
        made.shape = _remapped(shape, n_batch, made.data, made.indices)
        return made


def _remapped(shape: Shape, n_batch: int, data: Any, indices: Any) -> Shape:
    """The shape after batch dimensions were added to both buffers, or taken away."""
    new = getattr(indices, "ndim", n_batch + 2) - 2
    if new < 0 and isinstance(indices, BatchTracer):
        raise ShapeError(
            f"vmap: a BCOO array with n_batch={n_batch} cannot be mapped over: only batch dimensions can, and leading "
            "ones first. Use update_layout(n_batch=...) before, or in_axes=None."
        )
    if new == n_batch or new < 0 or getattr(data, "ndim", 0) < new:
        return shape
    kept = shape[n_batch - new : n_batch] if new < n_batch else ((1,) * (new - n_batch) + shape[:n_batch])
    sizes = [max(data.shape[k], indices.shape[k]) for k in range(new)]
    return tuple(k if n == 1 else n for n, k in zip(sizes, kept, strict=True)) + shape[n_batch:]


def checked(what: str, mat: Any) -> BCOO:
    check_format(what, BCOO, mat)
    return mat


def per_dimension(values: Any, indices: Any) -> Any:
    """A vector with one entry for each sparse dimension, of the rank of the indices, so that it broadcasts against them
    whatever the option `numpy_rank_promotion` says."""
    return tnp.asarray(values).reshape((1,) * (indices.ndim - 1) + (-1,))


def is_inside(indices: Any, sparse_shape: Shape) -> Any:
    """Which elements are no padding."""
    return (indices < padding_like(indices, sparse_shape)).all(-1)


def padding_like(indices: Any, sparse_shape: Shape) -> Any:
    """Indices of padding, that broadcast against these."""
    return per_dimension(np.asarray(sparse_shape, indices.dtype), indices)


def columns(indices: Any) -> tuple[Any, ...]:
    return tuple(indices[..., k] for k in range(indices.shape[-1]))


def masked(data: Any, mask: Any) -> Any:
    """Data with zeros where the mask, of its leading dimensions, is false."""
    return tnp.where(mask.reshape(mask.shape + (1,) * (data.ndim - mask.ndim)), data, tnp.zeros((), data.dtype))


# --- dense and back ---------------------------------------------------------------------------------------------------


def bcoo_todense(mat: BCOO) -> Array:
    """The dense array of a BCOO array; elements with equal indices are added.

    Args:
        mat: a BCOO array.

    Returns:
        An array.

    Raises:
        ArgumentError: what is no BCOO array.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, bcoo_todense
        >>> import tinyxla as tx
        >>> bcoo_todense(BCOO((tx.numpy.ones(2), [[0], [2]]), shape=(3,)))
        Array([1., 0., 1.], dtype=float32)
    """
    mat = checked("bcoo_todense", mat)
    sizes = mat.sparse_shape + mat.dense_shape

    def unbatched(data: Any, indices: Any) -> Any:
        if not mat.n_sparse:
            return data.sum(0, dtype=data.dtype)
        update = tnp.zeros(sizes, data.dtype).at[columns(indices)]
        hints = {"indices_are_sorted": mat.indices_sorted, "unique_indices": False}
        if data.dtype == np.bool_:
            return update.max(data, mode="drop", **hints)
        return update.add(data, mode="drop", **hints)

    found = nfold_vmap(unbatched, mat.n_batch)(mat.data, mat.indices)
    return tnp.broadcast_to(found, mat.shape)


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCOO:
    """A BCOO array with the nonzero elements of a dense one.

    Args:
        mat: an array.
        nse: how many elements to store for each batch, by default as many as are needed, which must be known then: in
            compiled functions give it. Surplus is padding; elements that have no room are left out.
        n_batch, n_dense: the number of batch and of dense dimensions.
        index_dtype: the type of the indices.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: more batch and dense dimensions than the array has.
        ConcretizationError: no `nse` for a traced array.

    Example:
        >>> from tinyxla.experimental.sparse import bcoo_fromdense
        >>> import tinyxla as tx
        >>> bcoo_fromdense(tx.numpy.eye(3)).indices
        Array([[0, 0],
               [1, 1],
               [2, 2]], dtype=int32)
    """
    x = array_of(mat, "bcoo_fromdense")
    n_batch, n_dense = integers_of("bcoo_fromdense", "n_batch and n_dense", (n_batch, n_dense))
    n_sparse = x.ndim - n_batch - n_dense
    if min(n_batch, n_dense, n_sparse) < 0:
        raise ArgumentError(
            f"bcoo_fromdense: n_batch={n_batch} and n_dense={n_dense} must be from 0 to {x.ndim} together, the "
            "dimensions of the array."
        )
    mask = x != 0
    mask = mask.any(tuple(range(n_batch + n_sparse, x.ndim))) if n_dense else mask
    if nse is None:
        counts = mask.sum(tuple(range(n_batch, n_batch + n_sparse))) if n_sparse else mask.astype(int)
        known = counts.concrete("bcoo_fromdense without nse").buffer()
        nse = int(known.max()) if known.size else 0
    nse = integer_of("bcoo_fromdense", "nse", nse)
    sparse = x.shape[n_batch : n_batch + n_sparse]

    def unbatched(mask: Any, x: Any) -> tuple[Any, Any]:
        indices = _nonzero(mask, nse, np.dtype(index_dtype))
        data = extracted(indices, x)
        # without sparse dimensions all index vectors are equal, and the first has the element
        return (data if sparse else masked(data, tnp.arange(nse) == 0)), indices

    data, indices = nfold_vmap(unbatched, n_batch)(mask, x)
    assert indices.shape[-1] == len(sparse)
    return BCOO((data, indices), shape=x.shape, indices_sorted=True, unique_indices=True)


def _nonzero(mask: Any, count: int, dtype: np.dtype[Any]) -> Any:
    """The indices where a mask is true, `(count, ndim)`, padded."""
    flat = mask.reshape(-1)
    slots = tnp.where(flat, tnp.cumsum(flat) - 1, count)
    places = tnp.full(count, flat.size, int).at[slots].set(tnp.arange(flat.size), mode="drop")
    if not mask.ndim:
        return tnp.zeros((count, 0), dtype)
    inside = places < flat.size
    found = tnp.unravel_index(tnp.minimum(places, max(flat.size - 1, 0)), mask.shape)
    rows = [tnp.where(inside, x, n).astype(dtype) for x, n in zip(found, mask.shape, strict=True)]
    return tnp.stack(rows, axis=1)


def extracted(indices: Any, x: Any) -> Any:
    """The elements of a dense array at indices `(nse, n_sparse)`, zero for padding."""
    nse, n_sparse = indices.shape
    if n_sparse:
        return x.at[columns(indices)].get(mode="fill", fill_value=0)
    return tnp.broadcast_to(x, (nse, *x.shape))


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array where a sparse one specifies some.

    Args:
        sparr: the BCOO array that has the indices.
        arr: a dense array of the same shape.
        assume_unique: a promise that indices are unique, by default what `sparr` says. Otherwise the elements that
            repeat an index are zero.

    Returns:
        A BCOO array with the indices of `sparr`.

    Raises:
        ShapeError: other shapes.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> pattern = sparse.BCOO.fromdense(jnp.eye(2))
    >>> sparse.bcoo_extract(pattern, jnp.array([[1.0, 2.0], [3.0, 4.0]])).data
    Array([1., 4.], dtype=float32)
    """
    mat, x = checked("bcoo_extract", sparr), array_of(arr, "bcoo_extract")
    if x.shape != mat.shape:
        raise ShapeError(f"bcoo_extract: shape mismatch: the sparse array has {mat.shape}, the dense one {x.shape}.")
    unique = mat.unique_indices if assume_unique is None else assume_unique

    def unbatched(indices: Any, x: Any) -> Any:
        data = extracted(indices, x)
        return data if unique else masked(data, _first_occurrences(indices, mat.sparse_shape))

    data = nfold_vmap(unbatched, mat.n_batch)(mat.indices, x)
    return mat.with_buffers(data)


def _first_occurrences(indices: Any, sparse_shape: Shape) -> Any:
    """Which index vectors no earlier one equals."""
    order, starts, _ = _grouped(indices, sparse_shape)
    return tnp.zeros(len(indices), bool).at[order].set(starts)


def _grouped(indices: Any, sparse_shape: Shape) -> tuple[Any, Any, Any]:
    """The order that sorts index vectors, padding last; where in it other vectors begin; and the vectors in it."""
    nse, n_sparse = indices.shape
    clean = tnp.where(is_inside(indices, sparse_shape)[:, None], indices, padding_like(indices, sparse_shape))
    if not n_sparse:
        return tnp.arange(nse), tnp.arange(nse) == 0, clean
    order = tnp.lexsort(columns(clean)[::-1])
    ordered = clean[order]
    changes = (ordered[1:] != ordered[:-1]).any(-1)
    return order, tnp.concatenate([tnp.ones(min(nse, 1), bool), changes]), ordered


# --- order and duplicates ---------------------------------------------------------------------------------------------


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """A BCOO array with its indices in lexicographic order.

    Args:
        mat: a BCOO array.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[1, 0], [0, 1]])), shape=(2, 2))
    >>> sparse.bcoo_sort_indices(m).indices
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    mat = checked("bcoo_sort_indices", mat)

    if not mat.n_sparse:
        return mat.with_buffers(mat.data, indices_sorted=True)

    def unbatched(indices: Any) -> Any:
        return tnp.lexsort(columns(indices)[::-1])

    def permuted(x: Any, order: Any) -> Any:
        return x[order]

    # the order has the batch sizes of the indices, so that sizes of 1 remain
    order = nfold_vmap(unbatched, mat.n_batch)(mat.indices)
    data, indices = (nfold_vmap(permuted, mat.n_batch)(x, order) for x in (mat.data, mat.indices))
    return mat.with_buffers(data, indices, indices_sorted=True, unique_indices=mat.unique_indices)


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """A BCOO array with sorted indices, in which each is there once.

    Args:
        mat: a BCOO array.
        nse: how many elements to store; by default as many as are needed, which must be known then.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[4], [4]])), shape=(5,))
    >>> sparse.bcoo_sum_duplicates(m).data, sparse.bcoo_sum_duplicates(m, nse=2).data
    (Array([3.], dtype=float32), Array([3., 0.], dtype=float32))
    """
    mat = checked("bcoo_sum_duplicates", mat)
    sparse = mat.sparse_shape

    def counted(indices: Any) -> Any:
        _, starts, ordered = _grouped(indices, sparse)
        return (starts & is_inside(ordered, sparse)).sum()

    if nse is None:
        counts = nfold_vmap(counted, mat.n_batch)(mat.indices)
        known = counts.concrete("bcoo_sum_duplicates without nse").buffer()
        nse = int(known.max()) if known.size else 0
        nse = nse if mat.n_sparse else 1
    count = integer_of("bcoo_sum_duplicates", "nse", nse)

    def unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        order, starts, ordered = _grouped(indices, sparse)
        groups = tnp.where(is_inside(ordered, sparse), tnp.cumsum(starts) - 1, count)
        padding = tnp.broadcast_to(padding_like(indices, sparse), (count, mat.n_sparse))
        found = tnp.zeros((count, *data.shape[1:]), data.dtype).at[groups].add(data[order], mode="drop")
        return found, padding.at[groups].set(ordered, mode="drop")

    data, indices = nfold_vmap(unbatched, mat.n_batch)(mat.data, mat.indices)
    return mat.with_buffers(data, indices, indices_sorted=True, unique_indices=True)


def bcoo_eliminate_zeros(mat: BCOO, nse: int | None = None) -> BCOO:
    """A BCOO array without elements that are zero; indices are sorted and unique. Arguments are those of
    `bcoo_sum_duplicates`.

    Args:
        mat: a BCOO array.
        nse: the number of elements that are stored; by default as many as are needed, which must be known then.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([0.0, 2.0]), jnp.array([[1], [4]])), shape=(5,))
    >>> sparse.bcoo_eliminate_zeros(m)
    BCOO(float32[5], nse=1)
    """
    mat = checked("bcoo_eliminate_zeros", mat)
    first = mat.n_batch + 1
    zero = (mat.data == 0).all(tuple(range(first, mat.data.ndim))) if mat.n_dense else mat.data == 0
    shared = tuple(k for k in range(mat.n_batch) if mat.indices.shape[k] == 1)
    zero = zero.all(shared, keepdims=True) if shared else zero
    indices = tnp.where(zero[..., None], padding_like(mat.indices, mat.sparse_shape), mat.indices)
    if not mat.n_sparse:
        indices = mat.indices
    return bcoo_sum_duplicates(mat.with_buffers(mat.data, indices), nse)


def with_nse(mat: BCOO, nse: int) -> BCOO:
    """The array with padding, to as many elements."""
    extra = nse - mat.nse
    if not extra:
        return mat
    batch, n = mat.indices.shape[: mat.n_batch], mat.n_batch
    zeros = tnp.zeros((*mat.data.shape[:n], extra, *mat.dense_shape), mat.dtype)
    padding = tnp.broadcast_to(padding_like(mat.indices, mat.sparse_shape), (*batch, extra, mat.n_sparse))
    data, indices = tnp.concatenate([mat.data, zeros], n), tnp.concatenate([mat.indices, padding], n)
    return mat.with_buffers(data, indices, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


# --- layouts ----------------------------------------------------------------------------------------------------------


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> BCOO:
    """The same array with other numbers of batch and dense dimensions.

    Args:
        mat: a BCOO array.
        n_batch, n_dense: the numbers, by default as they are.
        on_inefficient: what to do where sparse dimensions of more than one element become batch or dense ones, which
            stores many zeros: "error", "warn" or None.

    Returns:
        A BCOO array.

    Raises:
        SparseEfficiencyError: many zeros would be stored.
        AttributeValueError: numbers that do not fit.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.ones((2, 3)))
    >>> sparse.bcoo_update_layout(m, n_dense=1, on_inefficient=None)
    BCOO(float32[2, 3], nse=6, n_dense=1)
    """
    mat = checked("bcoo_update_layout", mat)
    n_batch = mat.n_batch if n_batch is None else integer_of("bcoo_update_layout", "n_batch", n_batch)
    n_dense = mat.n_dense if n_dense is None else integer_of("bcoo_update_layout", "n_dense", n_dense)
    if on_inefficient not in ("error", "warn", None):
        raise AttributeValueError(
            f"bcoo_update_layout: on_inefficient is 'error', 'warn' or None, but got {on_inefficient!r}."
        )
    for name, number in (("n_batch", n_batch), ("n_dense", n_dense)):
        if number < 0:
            raise AttributeValueError(f"bcoo_update_layout: {name} must be non-negative; got {number}.")
    if n_batch + n_dense > mat.ndim:
        raise AttributeValueError(
            f"bcoo_update_layout: sum of n_batch={n_batch} and n_dense={n_dense} cannot be larger than "
            f"mat.ndim={mat.ndim}."
        )
    _check_efficient(mat, n_batch, n_dense, on_inefficient)
    if n_dense < mat.n_dense:
        mat = _dense_to_sparse(mat, mat.n_dense - n_dense)
    if n_batch < mat.n_batch:
        mat = _batch_to_sparse(mat, mat.n_batch - n_batch)
    if n_dense > mat.n_dense:
        mat = _sparse_to_dense(mat, n_dense - mat.n_dense)
    if n_batch > mat.n_batch:
        mat = _sparse_to_batch(mat, n_batch - mat.n_batch)
    return mat


def _check_efficient(mat: BCOO, n_batch: int, n_dense: int, on_inefficient: str | None) -> None:
    last = mat.ndim - mat.n_dense
    changes = {
        "n_dense": (mat.n_dense, n_dense, mat.shape[mat.ndim - n_dense : last]),
        "n_batch": (mat.n_batch, n_batch, mat.shape[mat.n_batch : n_batch]),
    }
    for name, (old, new, sizes) in changes.items():
        if new <= old or all(n <= 1 for n in sizes) or on_inefficient is None:
            continue
        text = (
            f"For matrix of shape {mat.shape}, increasing {name} from {old} to {new} results in inefficient storage. "
            "Pass on_inefficient=None to bcoo_update_layout to do it all the same."
        )
        if on_inefficient == "error":
            raise SparseEfficiencyError(text)
        warnings.warn(text, SparseEfficiencyWarning, stacklevel=4)


def all_indices(sizes: Shape, dtype: Any) -> np.ndarray[Any, Any]:
    """All index vectors of an array, in order."""
    return np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T.astype(dtype)


def _dense_to_sparse(mat: BCOO, count: int) -> BCOO:
    sizes = mat.dense_shape[:count]
    grid = tnp.asarray(all_indices(sizes, mat.indices.dtype))
    number = len(grid)
    n = mat.n_batch

    def unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        left = tnp.repeat(indices, number, axis=0)
        right = tnp.tile(grid, (mat.nse, 1))
        whole = tnp.concatenate([left, right], axis=1)
        inside = is_inside(left, mat.sparse_shape)[:, None]
        whole = tnp.where(inside, whole, padding_like(whole, mat.sparse_shape + sizes))
        return data.reshape(mat.nse * number, *data.shape[1 + count :]), whole

    data, indices = nfold_vmap(unbatched, n)(mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def _batch_to_sparse(mat: BCOO, count: int) -> BCOO:
    kept = mat.n_batch - count
    sizes = mat.batch_shape[kept:]
    grid = tnp.asarray(all_indices(sizes, mat.indices.dtype))
    number = len(grid)
    data = tnp.broadcast_to(mat.data, (*mat.data.shape[:kept], *sizes, *mat.data.shape[mat.n_batch :]))
    indices = tnp.broadcast_to(mat.indices, (*mat.indices.shape[:kept], *sizes, *mat.indices.shape[mat.n_batch :]))

    def unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        own = indices.reshape(number * mat.nse, mat.n_sparse)
        whole = tnp.concatenate([tnp.repeat(grid, mat.nse, axis=0), own], axis=1)
        inside = is_inside(own, mat.sparse_shape)[:, None]
        whole = tnp.where(inside, whole, padding_like(whole, sizes + mat.sparse_shape))
        return data.reshape(number * mat.nse, *data.shape[count + 1 :]), whole

    data, indices = nfold_vmap(unbatched, kept)(data, indices)
    return BCOO((data, indices), shape=mat.shape, unique_indices=mat.unique_indices)


def _sparse_to_dense(mat: BCOO, count: int) -> BCOO:
    kept = mat.n_sparse - count
    sizes = mat.sparse_shape[kept:]

    def unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        places = (tnp.arange(mat.nse), *columns(indices[:, kept:]))
        whole = tnp.zeros((mat.nse, *sizes, *data.shape[1:]), data.dtype).at[places].add(data, mode="drop")
        inside = is_inside(indices, mat.sparse_shape)[:, None]
        rows = indices[:, :kept]
        return masked(whole, inside[:, 0]), tnp.where(inside, rows, padding_like(rows, mat.sparse_shape[:kept]))

    data, indices = nfold_vmap(unbatched, mat.n_batch)(mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted)


def _sparse_to_batch(mat: BCOO, count: int) -> BCOO:
    sizes, rest = mat.sparse_shape[:count], mat.sparse_shape[count:]

    def unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        places = (*columns(indices[:, :count]), tnp.arange(mat.nse))
        whole = tnp.zeros((*sizes, mat.nse, *data.shape[1:]), data.dtype).at[places].set(data, mode="drop")
        padding = tnp.broadcast_to(tnp.asarray(np.asarray(rest, indices.dtype)), (*sizes, mat.nse, len(rest)))
        return whole, padding.at[places].set(indices[:, count:], mode="drop")

    data, indices = nfold_vmap(unbatched, mat.n_batch)(mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, unique_indices=mat.unique_indices)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """A BCOO array with its axes in another order, in which batch, sparse and dense ones stay apart.

    Args:
        mat: a BCOO array.
        permutation: a permutation of the dimensions.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: no permutation, or one that mixes them; change the layout before with `update_layout`.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.bcoo_transpose(sparse.BCOO.fromdense(jnp.ones((2, 3))), permutation=(1, 0))
    BCOO(float32[3, 2], nse=6)
    """
    mat = checked("bcoo_transpose", mat)
    order = integers_of("bcoo_transpose", "permutation", permutation)
    if sorted(order) != list(range(mat.ndim)):
        raise ArgumentError(f"bcoo_transpose: invalid permutation {order} for {mat.ndim} dimensions.")
    n, s = mat.n_batch, mat.n_sparse
    batch, sparse, dense = order[:n], order[n : n + s], order[n + s :]
    if sorted(batch) != list(range(n)) or sorted(sparse) != list(range(n, n + s)):
        raise ArgumentError(
            f"bcoo_transpose: permutation {order} cannot permute batch, sparse and dense axes with each other; there "
            f"are {n}, {s} and {mat.n_dense}. Change the layout with update_layout before."
        )
    data = mat.data.transpose((*batch, n, *(d - s + 1 for d in dense)))
    indices = mat.indices.transpose((*batch, n, n + 1))
    if s:
        indices = indices[..., np.asarray([d - n for d in sparse])]
    is_sorted = mat.indices_sorted and sparse == tuple(range(n, n + s))
    shape = tuple(mat.shape[d] for d in order)
    return BCOO((data, indices), shape=shape, indices_sorted=is_sorted, unique_indices=mat.unique_indices)


def total_size(sizes: Sequence[int]) -> int:
    return math.prod(sizes)
