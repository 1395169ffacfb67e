"""BCOO arrays moved about: broadcast, concatenated, reshaped, sliced, reversed, summed, convolved."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api import eval_shape, vmap
from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.experimental.sparse.bcoo import (
    BCOO,
    all_indices,
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    checked,
    is_inside,
    masked,
    padding_like,
    per_dimension,
    total_size,
    with_nse,
)
from tinyxla.experimental.sparse.util import Shape, canonical_shape, nfold_vmap
from tinyxla.numpy.arguments import array_of


def _padded_where(inside: Any, indices: Any, sizes: Shape) -> Any:
    """Indices where the mask, of the leading dimensions, is true, and padding elsewhere."""
    return tnp.where(inside[..., None], indices, padding_like(indices, sizes))


def _sliced(x: Any, axis: int, start: int, limit: int, stride: int = 1) -> Any:
    return lax.slice_in_dim(x, start, limit, stride, axis)


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """`lax.broadcast_in_dim` of a BCOO array: new dimensions before its sparse ones are batch dimensions, those among
    its dense ones dense, others sparse.

    Args:
        mat: a BCOO array.
        shape: the sizes of the result.
        broadcast_dimensions: the dimension of the result that each one of the operand becomes.
        sharding: accepted for compatibility.

    Returns:
        A BCOO array.

    Raises:
        ShapeError: dimensions that do not fit.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, bcoo_broadcast_in_dim
        >>> import tinyxla as tx
        >>> m = BCOO.fromdense(tx.numpy.array([0.0, 1.0]))
        >>> bcoo_broadcast_in_dim(m, shape=(2, 2), broadcast_dimensions=(1,)).todense()
        Array([[0., 1.],
               [0., 1.]], dtype=float32)
    """
    mat = checked("bcoo_broadcast_in_dim", mat)
    sizes, places = canonical_shape("bcoo_broadcast_in_dim", shape), tuple(map(operator.index, broadcast_dimensions))
    fits = len(places) == mat.ndim and list(places) == sorted(set(places)) and all(0 <= p < len(sizes) for p in places)
    if not fits or any(n not in (1, sizes[p]) for n, p in zip(mat.shape, places, strict=True)):
        raise ShapeError(
            f"bcoo_broadcast_in_dim: broadcast_dimensions {places} must name, in order, a dimension of {sizes} for "
            f"each of {mat.shape}, of equal size or with size 1 there."
        )
    n, s = mat.n_batch, mat.n_sparse
    n_batch = places[n] if s else max(places[:n], default=-1) + 1
    n_dense = len(sizes) - min(places[n + s :], default=len(sizes))
    batch, targets = sizes[:n_batch], range(n_batch, len(sizes) - n_dense)
    data = _with_batch_and_dense(mat, mat.data, places, sizes, n_batch, n_dense)
    indices = _with_batch(mat, mat.indices, places, n_batch)
    sources = [places.index(t) - n if t in places else None for t in targets]
    pairs = list(zip(sources, (sizes[t] for t in targets), strict=True))
    grows = [k is None or mat.sparse_shape[k] != size for k, size in pairs]
    grown = tuple(size for (_, size), g in zip(pairs, grows, strict=True) if g)
    grid = all_indices(grown, int).T
    count = len(grid.T)
    new = sizes[n_batch : len(sizes) - n_dense]

    def unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        rows = iter(grid.astype(indices.dtype))
        found: list[Any] = []
        for (source, _), g in zip(pairs, grows, strict=True):
            column = tnp.tile(tnp.asarray(next(rows)), mat.nse) if g else tnp.repeat(indices[:, source], count)
            found.append(column)
        inside = tnp.repeat(is_inside(indices, mat.sparse_shape), count)
        whole = tnp.stack(found, 1) if found else tnp.zeros((mat.nse * count, 0), indices.dtype)
        return tnp.repeat(data, count, axis=0), _padded_where(inside, whole, new)

    data, indices = nfold_vmap(unbatched, n_batch)(data, indices)
    assert len(batch) == n_batch
    return BCOO((data, indices), shape=sizes)


def _with_batch(mat: BCOO, x: Any, places: Shape, n_batch: int) -> Any:
    """A buffer with its batch dimensions where they go, and sizes of 1 between them."""
    sizes = [1] * n_batch
    for k in range(mat.n_batch):
        sizes[places[k]] = x.shape[k]
    return x.reshape(*sizes, *x.shape[mat.n_batch :])


def _with_batch_and_dense(mat: BCOO, x: Any, places: Shape, sizes: Shape, n_batch: int, n_dense: int) -> Any:
    x = _with_batch(mat, x, places, n_batch)
    first = len(sizes) - n_dense
    own = [places[mat.n_batch + mat.n_sparse + k] - first for k in range(mat.n_dense)]
    dimensions = (*range(n_batch + 1), *(n_batch + 1 + d for d in own))
    return lax.broadcast_in_dim(x, (*x.shape[: n_batch + 1], *sizes[first:]), dimensions)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """`lax.concatenate` of BCOO arrays with equal layouts, along a batch or sparse dimension.

    Args:
        operands: BCOO arrays.
        dimension: the dimension along which they are concatenated.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: operands that are no BCOO arrays, differ in layout, or are joined along a dense dimension.
        ShapeError: shapes that do not fit.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.eye(2))
    >>> sparse.bcoo_concatenate([m, m], dimension=1).todense()
    Array([[1., 0., 1., 0.],
           [0., 1., 0., 1.]], dtype=float32)
    """
    mats = [checked("bcoo_concatenate", m) for m in operands]
    if not mats:
        raise ArgumentError("bcoo_concatenate takes at least one array.")
    dimension = operator.index(dimension)
    others = {(*m.shape[:dimension], *m.shape[dimension + 1 :]) for m in mats}
    if len(others) > 1 or not 0 <= dimension < mats[0].ndim:
        raise ShapeError(
            f"bcoo_concatenate: shapes {[m.shape for m in mats]} must agree except along dimension {dimension}."
        )
    if len({m.n_batch for m in mats}) > 1 and max(m.n_batch for m in mats) == 1:
        mats = [bcoo_update_layout(m, n_batch=0) for m in mats]
    if len({(m.n_batch, m.n_dense) for m in mats}) > 1:
        raise ArgumentError("bcoo_concatenate requires inputs to have matching nse dimensions: equal n_batch, n_dense.")
    n, s = mats[0].n_batch, mats[0].n_sparse
    if dimension >= n + s:
        raise ArgumentError("bcoo_concatenate: along dense dimensions arrays cannot be joined; use update_layout.")
    sizes = list(mats[0].shape)
    sizes[dimension] = sum(m.shape[dimension] for m in mats)
    mats = [whole_batches(m) for m in mats]
    if dimension < n:
        most = max(m.nse for m in mats)
        padded = [with_nse(m, most) for m in mats]
        buffers = [tnp.concatenate([b[k] for b in map(_buffers, padded)], dimension) for k in (0, 1)]
        return BCOO((buffers[0], buffers[1]), shape=sizes)
    offset, moved = 0, list[Any]()
    for m in mats:
        shift = np.zeros(s, m.indices.dtype)
        shift[dimension - n] = offset
        inside = is_inside(m.indices, m.sparse_shape)
        moved.append(_padded_where(inside, m.indices + per_dimension(shift, m.indices), tuple(sizes[n : n + s])))
        offset += m.shape[dimension]
    data = tnp.concatenate([m.data for m in mats], n)
    return BCOO((data, tnp.concatenate(moved, n)), shape=sizes)


def _buffers(mat: BCOO) -> tuple[Any, Any]:
    return mat.data, mat.indices


def whole_batches(mat: BCOO) -> BCOO:
    """The array without batch sizes that broadcast."""
    data = tnp.broadcast_to(mat.data, (*mat.batch_shape, *mat.data.shape[mat.n_batch :]))
    indices = tnp.broadcast_to(mat.indices, (*mat.batch_shape, *mat.indices.shape[mat.n_batch :]))
    return BCOO((data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def bcoo_reshape(
    mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None
) -> BCOO:
    """`lax.reshape` of a BCOO array, in which batch, sparse and dense dimensions stay apart.

    Args:
        mat: a BCOO array.
        new_sizes: the new shape.
        dimensions: an order of the dimensions before that; as for `bcoo_transpose`.
        sharding: accepted for JAX's sake.

    Returns:
        A BCOO array.

    Raises:
        ShapeError: another number of elements, or dimensions of different kinds would mix.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
    >>> sparse.bcoo_reshape(m, new_sizes=(4,)).indices
    Array([[1],
           [2]], dtype=int32)
    """
    mat = checked("bcoo_reshape", mat)
    sizes = canonical_shape("bcoo_reshape", new_sizes)
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    if total_size(sizes) != mat.size:
        raise ShapeError(
            f"bcoo_reshape: an array of shape {mat.shape} has {mat.size} elements, but {sizes} takes others."
        )
    if sizes == mat.shape:
        return mat
    batch, sparse, dense = (_kinds(mat, sizes)) or (None, None, None)
    if batch is None or sparse is None or dense is None:
        raise ShapeError(
            f"bcoo_reshape: new shape cannot mix batch, sparse and dense dimensions; got shape={mat.shape} "
            f"new_shape={sizes} with n_batch={mat.n_batch}, n_dense={mat.n_dense}. Use update_layout before."
        )
    mat = whole_batches(mat) if batch != mat.batch_shape else mat
    whole = mat.data.shape[: mat.n_batch], mat.indices.shape[: mat.n_batch]
    data_batch, index_batch = (batch, batch) if batch != mat.batch_shape else whole
    inside = is_inside(mat.indices, mat.sparse_shape)
    data = mat.data if sparse else masked(mat.data, inside)
    data = data.reshape(*data_batch, mat.nse, *dense)
    if not sparse:
        indices = tnp.zeros((*index_batch, mat.nse, 0), mat.indices.dtype)
    else:
        flat = tnp.zeros(mat.indices.shape[:-1], mat.indices.dtype)
        for k, n in enumerate(mat.sparse_shape):
            flat = flat * n + mat.indices[..., k]
        found = tnp.unravel_index(tnp.where(inside, flat, 0), sparse) if total_size(sparse) else [flat] * len(sparse)
        indices = tnp.stack([c.astype(mat.indices.dtype) for c in found], -1)
        indices = _padded_where(inside, indices, sparse).reshape(*index_batch, mat.nse, len(sparse))
    flags = {"indices_sorted": mat.indices_sorted, "unique_indices": mat.unique_indices} if sparse else {}
    return BCOO((data, indices), shape=sizes, **flags)


def may_reshape(mat: BCOO, sizes: Shape) -> bool:
    """Whether `bcoo_reshape` can, without another layout."""
    return sizes == mat.shape or _kinds(mat, sizes) is not None


def _kinds(mat: BCOO, sizes: Shape) -> tuple[Shape, Shape, Shape] | None:
    """The new batch, sparse and dense sizes; None if there is no such split. Sizes of 1 between two kinds of dimensions
    belong to the first."""
    batch, sparse = total_size(mat.batch_shape), total_size(mat.sparse_shape)
    firsts = [k for k in range(len(sizes) + 1) if total_size(sizes[:k]) == batch]
    for first in reversed(firsts):
        ends = [k for k in range(first, len(sizes) + 1) if total_size(sizes[first:k]) == sparse]
        ends = [k for k in ends if total_size(sizes[k:]) == total_size(mat.dense_shape)]
        if not mat.n_dense:
            ends = [k for k in ends if k == len(sizes)]
        if ends:
            return sizes[:first], sizes[first : ends[-1]], sizes[ends[-1] :]
    return None


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """`lax.rev` of a BCOO array: the order of elements along some dimensions reversed.

    Args:
        operand: a BCOO array.
        dimensions: dimensions of the array.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.bcoo_rev(sparse.BCOO.fromdense(jnp.array([0.0, 3.0, 5.0])), [0]).todense()
    Array([5., 3., 0.], dtype=float32)
    """
    mat = checked("bcoo_rev", operand)
    axes = tuple(map(operator.index, dimensions))
    if len(set(axes)) < len(axes) or not all(0 <= a < mat.ndim for a in axes):
        raise ArgumentError(f"bcoo_rev: dimensions must be distinct and from 0 to {mat.ndim - 1}, but got {axes}.")
    n, s = mat.n_batch, mat.n_sparse
    data, indices = mat.data, mat.indices
    batch = [a for a in axes if a < n]
    dense = [a - s + 1 for a in axes if a >= n + s]
    data = lax.rev(data, [*(a for a in batch if data.shape[a] != 1), *dense])
    indices = lax.rev(indices, [a for a in batch if indices.shape[a] != 1])
    if any(n <= a < n + s for a in axes):
        sizes = np.asarray(mat.sparse_shape, mat.indices.dtype)
        flip = per_dimension(np.asarray([k + n in axes for k in range(s)]), indices)
        inside = is_inside(indices, mat.sparse_shape)
        turned = tnp.where(flip, per_dimension(sizes - 1, indices) - indices, indices)
        return BCOO(
            (data, _padded_where(inside, turned, mat.sparse_shape)), shape=mat.shape, unique_indices=mat.unique_indices
        )
    return mat.with_buffers(data, indices, unique_indices=mat.unique_indices, indices_sorted=mat.indices_sorted)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """`lax.squeeze` of a BCOO array: without some dimensions of size 1.

    Args:
        arr: a BCOO array.
        dimensions: dimensions of the array.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.BCOO.fromdense(jnp.ones((1, 3))), dimensions=[0])
    BCOO(float32[3], nse=3)
    """
    mat = checked("bcoo_squeeze", arr)
    axes = {operator.index(d) % mat.ndim if mat.ndim else 0 for d in dimensions}
    if any(mat.shape[a] != 1 for a in axes):
        raise ShapeError(f"bcoo_squeeze: dimensions {sorted(axes)} of {mat.shape} must have size 1.")
    n, s = mat.n_batch, mat.n_sparse
    batch = tuple(a for a in axes if a < n)
    dense = tuple(a - s + 1 for a in axes if a >= n + s)
    kept = [k for k in range(s) if k + n not in axes]
    data = mat.data if len(kept) == s else masked(mat.data, is_inside(mat.indices, mat.sparse_shape))
    data = data.squeeze((*batch, *dense))
    indices = mat.indices.squeeze(batch)
    indices = indices[..., np.asarray(kept, int)] if len(kept) < s else indices
    shape = tuple(size for a, size in enumerate(mat.shape) if a not in axes)
    return BCOO((data, indices), shape=shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> BCOO:
    """`lax.slice` of a BCOO array.

    Args:
        mat: a BCOO array.
        start_indices, limit_indices: for each dimension the first index, and the one after the last.
        strides: for each dimension the step; None for 1.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, bcoo_slice
        >>> import tinyxla as tx
        >>> bcoo_slice(BCOO.fromdense(tx.numpy.eye(3)), start_indices=(0, 0), limit_indices=(1, 2)).todense()
        Array([[1., 0.]], dtype=float32)
    """
    mat = checked("bcoo_slice", mat)
    starts, limits = tuple(map(operator.index, start_indices)), tuple(map(operator.index, limit_indices))
    steps = (1,) * mat.ndim if strides is None else tuple(map(operator.index, strides))
    if not len(starts) == len(limits) == len(steps) == mat.ndim:
        raise ShapeError(
            f"bcoo_slice: indices must have size mat.ndim={mat.ndim}, but got {starts}, {limits}, {steps}."
        )
    sizes = eval_shape(lambda x: lax.slice(x, starts, limits, steps), ShapeDtypeStruct(mat.shape, mat.dtype)).shape
    n, s = mat.n_batch, mat.n_sparse
    data, indices = mat.data, mat.indices
    for a in range(n):
        cut = (starts[a], limits[a], steps[a])
        data, indices = (_sliced(x, a, *((0, min(1, sizes[a])) if x.shape[a] == 1 else cut)) for x in (data, indices))
    for a in range(n + s, mat.ndim):
        data = _sliced(data, a - s + 1, starts[a], limits[a], steps[a])
    if sizes[n : n + s] == mat.sparse_shape:
        return BCOO((data, indices), shape=sizes, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)
    first, end, step = (
        per_dimension(np.asarray(x[n : n + s], indices.dtype), indices) for x in (starts, limits, steps)
    )
    inside = ((indices >= first) & (indices < end) & ((indices - first) % step == 0)).all(-1)
    return _kept(mat, data, (indices - first) // step, inside & is_inside(indices, mat.sparse_shape), sizes)


def _kept(mat: BCOO, data: Any, indices: Any, inside: Any, sizes: Shape) -> BCOO:
    """The elements inside a slice of these sizes, stored without more room than these need."""
    sparse = sizes[mat.n_batch : mat.n_batch + mat.n_sparse]
    made = BCOO(
        (masked(_aligned(data, inside, mat.n_batch), inside), _padded_where(inside, indices, sparse)),
        shape=sizes,
        unique_indices=mat.unique_indices,
    )
    most = total_size(sparse)
    return bcoo_sum_duplicates(made, most) if mat.nse > most else made


def _aligned(data: Any, mask: Any, n_batch: int) -> Any:
    """Data with the batch sizes of a mask where its own broadcast."""
    batch = np.broadcast_shapes(data.shape[:n_batch], mask.shape[:n_batch])
    return tnp.broadcast_to(data, (*batch, *data.shape[n_batch:]))


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """`lax.dynamic_slice` of a BCOO array: a slice of fixed sizes from places that may be traced. One that would reach
    outside is moved inside.

    Args:
        mat: a BCOO array.
        start_indices: an integer for each dimension.
        slice_sizes: the sizes of the result.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 3.0, 5.0]))
    >>> sparse.bcoo_dynamic_slice(m, [2], [2]).todense()
    Array([3., 5.], dtype=float32)
    """
    mat = checked("bcoo_dynamic_slice", mat)
    sizes = canonical_shape("bcoo_dynamic_slice", slice_sizes)
    if (
        len(start_indices) != mat.ndim
        or len(sizes) != mat.ndim
        or any(x > y for x, y in zip(sizes, mat.shape, strict=True))
    ):
        raise ShapeError(
            f"bcoo_dynamic_slice: there must be a start and a size for each dimension of {mat.shape}, but got "
            f"{len(start_indices)} starts and sizes {sizes}."
        )
    n, s = mat.n_batch, mat.n_sparse
    starts = [
        tnp.clip(tnp.where(x < 0, x + size, x), 0, size - wanted)
        for x, size, wanted in zip(
            (array_of(x, "bcoo_dynamic_slice") for x in start_indices), mat.shape, sizes, strict=True
        )
    ]
    data, indices = mat.data, mat.indices
    for a in range(n):
        data = lax.dynamic_slice_in_dim(data, starts[a], sizes[a], a) if data.shape[a] != 1 else data
        indices = lax.dynamic_slice_in_dim(indices, starts[a], sizes[a], a) if indices.shape[a] != 1 else indices
    for a in range(n + s, mat.ndim):
        data = lax.dynamic_slice_in_dim(data, starts[a], sizes[a], a - s + 1)
    if sizes[n : n + s] == mat.sparse_shape:
        return BCOO((data, indices), shape=sizes, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)
    first = per_dimension(tnp.stack([x.astype(indices.dtype) for x in starts[n : n + s]]), indices)
    wanted = per_dimension(np.asarray(sizes[n : n + s], indices.dtype), indices)
    inside = ((indices >= first) & (indices < first + wanted)).all(-1) & is_inside(indices, mat.sparse_shape)
    return _kept(mat, data, indices - first, inside, sizes)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sums of a BCOO array over some axes, as a BCOO array.

    Args:
        mat: a BCOO array.
        axes: the dimensions that are summed over.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: what is no BCOO array.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, bcoo_reduce_sum
        >>> import tinyxla as tx
        >>> bcoo_reduce_sum(BCOO.fromdense(tx.numpy.eye(3)), axes=(0,)).todense()
        Array([1., 1., 1.], dtype=float32)
    """
    mat = checked("bcoo_reduce_sum", mat)
    gone = sorted({operator.index(a) for a in axes})
    if any(not 0 <= a < mat.ndim for a in gone):
        raise ArgumentError(f"bcoo_reduce_sum: axes must be from 0 to {mat.ndim - 1}, but got {tuple(axes)}.")
    n, s = mat.n_batch, mat.n_sparse
    data, indices = mat.data, mat.indices
    if s:
        inside = is_inside(indices, mat.sparse_shape)
        data = masked(_aligned(data, inside, n), inside)
    dense = tuple(a - s + 1 for a in gone if a >= n + s)
    data = data.sum(dense, dtype=data.dtype) if dense else data
    kept = [k for k in range(s) if k + n not in gone]
    indices = indices[..., np.asarray(kept, int)] if len(kept) < s else indices
    batch = [a for a in gone if a < n]
    for a in batch:
        size = mat.shape[a]
        data = tnp.broadcast_to(data, (*data.shape[:a], size, *data.shape[a + 1 :]))
        indices = tnp.broadcast_to(indices, (*indices.shape[:a], size, *indices.shape[a + 1 :]))
    rest = [a for a in range(n) if a not in batch]
    nse = mat.nse * total_size([mat.shape[a] for a in batch])
    order = (*rest, *batch)

    def merged(x: Any) -> Any:
        moved = x.transpose((*order, *range(n, x.ndim)))
        return moved.reshape(*(x.shape[a] for a in rest), nse, *x.shape[n + 1 :])

    shape = tuple(size for a, size in enumerate(mat.shape) if a not in gone)
    return BCOO((merged(data), merged(indices)), shape=shape)


def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> BCOO:
    """`lax.gather` of a BCOO array; indices are taken to be inside of it.

    Args:
        operand: a BCOO array.
        start_indices, dimension_numbers, slice_sizes: as for `lax.gather`.
        unique_indices, indices_are_sorted, mode, fill_value: as for `lax.gather`.

    Returns:
        A BCOO array.

    Raises:
        AttributeValueError: a mode other than "promise_in_bounds" or "clip".

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> from tinyxla import lax
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
    >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> sparse.bcoo_gather(m, jnp.array([[1], [1], [0]]), rows, (1, 2)).todense()
    Array([[4., 0.],
           [4., 0.],
           [0., 3.]], dtype=float32)
    """
    mat, starts = checked("bcoo_gather", operand), array_of(start_indices, "bcoo_gather")
    known = None if mode is None else lax.GatherScatterMode.from_any(mode).name
    if known not in (None, "PROMISE_IN_BOUNDS", "CLIP"):
        raise AttributeValueError(f"bcoo_gather: mode={mode} is not supported; use 'promise_in_bounds' or 'clip'.")
    numbers = dimension_numbers
    shape = eval_shape(
        lambda x, i: lax.gather(x, i, numbers, tuple(slice_sizes), mode="clip"),
        ShapeDtypeStruct(mat.shape, mat.dtype),
        starts,
    ).shape
    sizes, axes = list(mat.shape), [None] * mat.ndim
    first: list[Any] = [0] * mat.ndim
    for k, d in enumerate(numbers.start_index_map):
        first[d], sizes[d], axes[d] = starts[..., k].reshape(-1), slice_sizes[d], 0  # type: ignore[call-overload]

    def one(*places: Any) -> BCOO:
        part = bcoo_dynamic_slice(mat, places, sizes)
        return bcoo_squeeze(part, dimensions=numbers.collapsed_slice_dims)

    picked = vmap(one, in_axes=tuple(axes))(*first)
    batch = starts.shape[:-1]
    whole = (*batch, *picked.shape[1:])
    picked = BCOO(
        (
            picked.data.reshape(*batch, *picked.data.shape[1:]),
            picked.indices.reshape(*batch, *picked.indices.shape[1:]),
        ),
        shape=whole,
    )
    outer = [d for d in range(len(shape)) if d not in numbers.offset_dims]
    order = [0] * len(whole)
    for position, d in enumerate((*outer, *numbers.offset_dims)):
        order[d] = position
    if order != list(range(len(whole))):
        picked = bcoo_transpose(bcoo_update_layout(picked, n_batch=0, n_dense=0), permutation=order)
    return picked


def bcoo_conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> BCOO:
    """`lax.conv_general_dilated` in one dimension, of BCOO or dense arrays of shape (1, 1, size).

    Args:
        lhs, rhs: the input and the kernel.
        window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers: as for `lax.conv_general_dilated`.
        feature_group_count, batch_group_count, precision, preferred_element_type, out_sharding: as for
            `lax.conv_general_dilated`.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: strides, dilations, groups, batches, channels or more dimensions.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> x, kernel = sparse.BCOO.fromdense(jnp.array([[[1.0, 0.0, 0.0, 2.0]]])), jnp.array([[[1.0, 10.0]]])
    >>> sparse.bcoo_conv_general_dilated(x, kernel, window_strides=[1], padding="VALID").todense()
    Array([[[ 1.,  0., 20.]]], dtype=float32)
    """
    what = "bcoo_conv_general_dilated"
    plain = lhs_dilation in (None, (1,), [1]) and rhs_dilation in (None, (1,), [1]) and tuple(window_strides) == (1,)
    single = lhs.shape[:2] == rhs.shape[:2] == (1, 1) and len(lhs.shape) == len(rhs.shape) == 3
    if not plain or not single or feature_group_count != 1 or batch_group_count != 1:
        raise ArgumentError(
            f"{what}: arrays must have the shapes (1, 1, n) and (1, 1, m), and strides, dilations and group counts "
            f"must be 1, but the shapes are {lhs.shape} and {rhs.shape}, window_strides={window_strides}, "
            f"lhs_dilation={lhs_dilation}, rhs_dilation={rhs_dilation}."
        )
    size, window = lhs.shape[2], rhs.shape[2]
    [(low, high)] = lax.padtype_to_pads((size,), (window,), (1,), padding) if isinstance(padding, str) else padding
    (x, i), (y, j) = _one_dimensional(what, lhs), _one_dimensional(what, rhs)
    x, y = x.astype(preferred_element_type or x.dtype), y.astype(preferred_element_type or y.dtype)
    length = max(0, size + low + high - window + 1)
    places = (i[:, None] + (low - j)[None, :]).reshape(-1)
    inside = (places >= 0) & (places < length)
    data = masked((x[:, None] * y[None, :]).reshape(-1), inside)
    indices = _padded_where(inside, places[:, None], (length,))
    return BCOO((data[None, None], indices[None, None]), shape=(1, 1, length))


def _one_dimensional(what: str, operand: Any) -> tuple[Any, Any]:
    """Data and indices of an array of shape (1, 1, n)."""
    if not isinstance(operand, BCOO):
        x = array_of(operand, what)[0, 0]
        return x, tnp.arange(len(x), dtype=tnp.int32)
    mat = bcoo_update_layout(operand, n_batch=2, n_dense=0)
    indices = mat.indices[0, 0]
    return masked(mat.data[0, 0], is_inside(indices, mat.sparse_shape)), indices[:, 0]
