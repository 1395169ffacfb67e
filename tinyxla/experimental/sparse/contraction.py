"""Products of BCOO arrays: with dense arrays, with each other, and sampled ones.

Every dimension of the operands has a letter, as in `einsum`. A product of a sparse and a dense array gathers the slices
of the dense one that belong to each element, multiplies, and adds the products up where they belong.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import vmap
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.experimental.sparse.bcoo import (
    BCOO,
    bcoo_sum_duplicates,
    bcoo_update_layout,
    checked,
    columns,
    is_inside,
    masked,
    padding_like,
    total_size,
)
from tinyxla.experimental.sparse.util import Shape, nfold_vmap
from tinyxla.numpy.arguments import array_of
from tinyxla.tracing.array import Array

Letters = str


def _letters(what: str, left: Shape, right: Shape, dimension_numbers: Any) -> tuple[Letters, Letters, Letters]:
    """The letters of two operands and of their product, as `lax.dot_general` orders it."""
    (left_sum, right_sum), (left_batch, right_batch) = (
        tuple(tuple(map(operator.index, part)) for part in pair) for pair in dimension_numbers
    )
    names = iter(string.ascii_letters)
    lhs, rhs = [next(names) for _ in left], [next(names) for _ in right]
    for x, y in zip((*left_sum, *left_batch), (*right_sum, *right_batch), strict=True):
        if not (0 <= x < len(left) and 0 <= y < len(right)) or left[x] != right[y]:
            raise ShapeError(
                f"{what}: dimensions that are contracted or batched must have equal sizes, but dimension_numbers "
                f"{dimension_numbers} pair dimension {x} of {left} with dimension {y} of {right}."
            )
        rhs[y] = lhs[x]
    out = [lhs[k] for k in left_batch]
    out += [c for k, c in enumerate(lhs) if k not in left_sum + left_batch]
    out += [c for k, c in enumerate(rhs) if k not in right_sum + right_batch]
    return "".join(lhs), "".join(rhs), "".join(out)


def _gathered(x: Any, letters: Letters, wanted: Letters, places: dict[str, Any]) -> tuple[Any, Letters]:
    """The slices of an array at the places of each element, `(nse, ...)`, and the letters of what is left."""
    if not wanted:
        return x, letters
    rest = "".join(c for c in letters if c not in wanted)
    ordered = x.transpose([letters.index(c) for c in wanted + rest])
    index = tuple(places[c] for c in wanted)
    return ordered.at[index].get(mode="fill", fill_value=0), "." + rest


def _einsum(operands: Sequence[tuple[Any, Letters]], out: Letters, dtype: Any) -> Any:
    """A sum of products over letters, where "." is the one of the elements."""
    used = {c for _, letters in operands for c in letters if c != "."}
    element = next(c for c in string.ascii_letters if c not in used and c not in out)
    terms = ",".join(letters.replace(".", element) for _, letters in operands)
    arrays = [x for x, _ in operands]
    return tnp.einsum(f"{terms}->{out.replace('.', element)}", *arrays, preferred_element_type=dtype)


def _product(mat: BCOO, letters: Letters, x: Any, dense_letters: Letters, out: Letters, dtype: Any) -> Any:
    """The product of a sparse and a dense array as a dense one."""
    if mat.n_batch:
        return _batched_product(mat, letters, x, dense_letters, out, dtype)
    sparse, dense = letters[: mat.n_sparse], letters[mat.n_sparse :]
    places = dict(zip(sparse, columns(mat.indices), strict=True))
    shared = "".join(c for c in sparse if c in dense_letters)
    slices, slice_letters = _gathered(x, dense_letters, shared, places)
    data = masked(mat.data, is_inside(mat.indices, mat.sparse_shape)) if mat.n_sparse else mat.data
    kept = "".join(c for c in out if c in sparse)
    rest = "".join(c for c in out if c not in sparse)
    products = _einsum([(data, "." + dense), (slices, slice_letters)], ("." if kept else "") + rest, dtype)
    if kept:
        sizes = dict(zip(sparse, mat.sparse_shape, strict=True))
        whole = tnp.zeros((*(sizes[c] for c in kept), *products.shape[1:]), products.dtype)
        products = whole.at[tuple(places[c] for c in kept)].add(products, mode="drop")
    order = kept + rest
    return products.transpose([order.index(c) for c in out])


def _batched_product(mat: BCOO, letters: Letters, x: Any, dense_letters: Letters, out: Letters, dtype: Any) -> Any:
    """The product mapped over the first batch dimension of the sparse array."""
    own, size = letters[0], mat.shape[0]
    data, indices = mat.data, mat.indices
    if data.shape[0] != size and indices.shape[0] != size:
        data = tnp.broadcast_to(data, (size, *data.shape[1:]))
    axes = [None if b.shape[0] != size else 0 for b in (data, indices)]
    buffers = [b[0] if a is None else b for b, a in zip((data, indices), axes, strict=True)]
    axis = dense_letters.index(own) if own in dense_letters else None
    shape, others = mat.shape[1:], dense_letters.replace(own, "")

    def one(data: Any, indices: Any, x: Any) -> Any:
        inner = BCOO((data, indices), shape=shape)
        return _product(inner, letters[1:], x, others, out.replace(own, ""), dtype)

    place = out.index(own) if own in out else 0
    found = vmap(one, in_axes=(*axes, axis), out_axes=place)(buffers[0], buffers[1], x)
    return found if own in out else found.sum(0, dtype=found.dtype)


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`lax.dot_general` of operands of which one is a BCOO array, or both are.

    Args:
        lhs, rhs: BCOO or dense arrays.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`.
        precision: accepted for JAX's sake.
        preferred_element_type: the type of the result.
        out_sharding: must be None.

    Returns:
        A dense array; of two BCOO arrays a BCOO array.

    Raises:
        ShapeError: sizes that do not fit.
        ArgumentError: two BCOO arrays with dense dimensions.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, bcoo_dot_general
        >>> import tinyxla as tx
        >>> m = BCOO.fromdense(tx.numpy.eye(2) * 3)
        >>> bcoo_dot_general(m, tx.numpy.ones(2), dimension_numbers=(((1,), (0,)), ((), ())))
        Array([3., 3.], dtype=float32)
    """
    left_sparse, right_sparse = isinstance(lhs, BCOO), isinstance(rhs, BCOO)
    if left_sparse and right_sparse:
        return _sparse_product(lhs, rhs, dimension_numbers, preferred_element_type)
    lhs = lhs if left_sparse else array_of(lhs, "bcoo_dot_general")
    rhs = rhs if right_sparse else array_of(rhs, "bcoo_dot_general")
    left, right, out = _letters("bcoo_dot_general", lhs.shape, rhs.shape, dimension_numbers)
    if left_sparse:
        return _product(lhs, left, rhs, right, out, preferred_element_type)
    if right_sparse:
        return _product(rhs, right, lhs, left, out, preferred_element_type)
    return _einsum([(lhs, left), (rhs, right)], out, preferred_element_type)


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Array:
    """The elements of a dense product at the indices of a BCOO array, without the others.

    Args:
        A, B: dense arrays.
        indices: `(*batch, nse, n_sparse)`, as of a BCOO array of the shape of the product.
        dimension_numbers: as for `lax.dot_general`.

    Returns:
        The data of the BCOO array, `(*batch, nse, *dense)`.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> from tinyxla.experimental.sparse import bcoo_dot_general_sampled
        >>> import tinyxla as tx
        >>> a = tx.numpy.arange(4.0).reshape(2, 2)
        >>> dims = (((1,), (0,)), ((), ()))
        >>> bcoo_dot_general_sampled(a, a, tx.numpy.array([[0, 0], [1, 1]]), dimension_numbers=dims)
        Array([ 2., 11.], dtype=float32)
    """
    x, y = array_of(A, "bcoo_dot_general_sampled"), array_of(B, "bcoo_dot_general_sampled")
    places = array_of(indices, "bcoo_dot_general_sampled")
    left, right, out = _letters("bcoo_dot_general_sampled", x.shape, y.shape, dimension_numbers)
    if places.ndim < 2 or places.ndim - 2 + places.shape[-1] > len(out):
        raise ShapeError(
            f"bcoo_dot_general_sampled: indices must be (*batch, nse, n_sparse) for a product of {len(out)} dimensions,"
            f" but have the shape {places.shape}."
        )
    return _sampled(x, left, y, right, places, out)


def _sampled(x: Any, left: Letters, y: Any, right: Letters, indices: Any, out: Letters) -> Any:
    if indices.ndim > 2:
        own, rest = out[0], out[1:]
        axes = [letters.index(own) if own in letters else None for letters in (left, right)]
        mapped = indices.shape[0] != 1
        places = indices if mapped else indices[0]

        def one(x: Any, y: Any, places: Any) -> Any:
            return _sampled(x, left.replace(own, ""), y, right.replace(own, ""), places, rest)

        return vmap(one, in_axes=(*axes, 0 if mapped else None))(x, y, places)
    sparse = out[: indices.shape[-1]]
    places = dict(zip(sparse, columns(indices), strict=True))
    operands = [
        _gathered(array, letters, "".join(c for c in sparse if c in letters), places)
        for array, letters in ((x, left), (y, right))
    ]
    rest = out[len(sparse) :]
    if not sparse:
        whole = _einsum(operands, rest, None)
        return tnp.broadcast_to(whole, (len(indices), *whole.shape))
    return _einsum(operands, "." + rest, None)


def _sparse_product(lhs: BCOO, rhs: BCOO, dimension_numbers: Any, dtype: Any) -> BCOO:
    """The product of two sparse arrays: of each pair of elements whose contracted indices are equal."""
    if lhs.n_dense or rhs.n_dense:
        raise ArgumentError(
            "bcoo_dot_general: the product of two BCOO arrays takes arrays without dense dimensions, but they have "
            f"{lhs.n_dense} and {rhs.n_dense}; use update_layout(n_dense=0)."
        )
    _letters("bcoo_dot_general", lhs.shape, rhs.shape, dimension_numbers)
    (left_sum, right_sum), (left_batch, right_batch) = dimension_numbers
    lhs, left_sum = _batch_in_front(lhs, left_batch, left_sum)
    rhs, right_sum = _batch_in_front(rhs, right_batch, right_sum)
    count = len(left_batch)
    left_free = [d for d in range(lhs.n_sparse) if d not in left_sum]
    right_free = [d for d in range(rhs.n_sparse) if d not in right_sum]
    sizes = (*(lhs.sparse_shape[d] for d in left_free), *(rhs.sparse_shape[d] for d in right_free))
    nse = min(lhs.nse * rhs.nse, total_size(sizes))
    result = tnp.result_type(lhs.dtype, rhs.dtype) if dtype is None else dtype

    def one(x: Any, i: Any, y: Any, j: Any) -> tuple[Any, Any]:
        here = is_inside(i, lhs.sparse_shape)[:, None] & is_inside(j, rhs.sparse_shape)[None, :]
        for a, b in zip(left_sum, right_sum, strict=True):
            here = here & (i[:, None, a] == j[None, :, b])
        data = tnp.where(here, (x[:, None] * y[None, :]).astype(result), tnp.zeros((), result))
        pairs = [tnp.broadcast_to(i[:, None, d], here.shape) for d in left_free]
        pairs += [tnp.broadcast_to(j[None, :, d], here.shape) for d in right_free]
        indices = tnp.stack(pairs, -1).reshape(-1, len(sizes)) if pairs else tnp.zeros((here.size, 0), i.dtype)
        indices = tnp.where(here.reshape(-1, 1), indices, padding_like(indices, sizes))
        made = bcoo_sum_duplicates(BCOO((data.reshape(-1), indices), shape=sizes), max(nse, 1 if not sizes else 0))
        return made.data, made.indices

    data, indices = nfold_vmap(one, count)(lhs.data, lhs.indices, rhs.data, rhs.indices)
    shape = (*lhs.shape[:count], *sizes)
    return BCOO((data, indices), shape=shape, indices_sorted=True, unique_indices=True)


def _batch_in_front(mat: BCOO, batch: Sequence[int], contracted: Sequence[int]) -> tuple[BCOO, list[int]]:
    """The array with those batch dimensions first, as its only ones; and where contracted dimensions are among the
    sparse ones."""
    if any(d >= mat.n_batch for d in batch):
        mat = bcoo_update_layout(mat, n_batch=max(batch) + 1, on_inefficient=None)
    others = [d for d in range(mat.n_batch) if d not in batch]
    order = (*batch, *others, *range(mat.n_batch, mat.ndim))
    data = mat.data.transpose((*order[: mat.n_batch], *range(mat.n_batch, mat.data.ndim)))
    indices = mat.indices.transpose((*order[: mat.n_batch], *range(mat.n_batch, mat.indices.ndim)))
    moved = BCOO((data, indices), shape=tuple(mat.shape[d] for d in order))
    moved = bcoo_update_layout(moved, n_batch=len(batch))
    return moved, [order.index(d) - len(batch) for d in contracted]


# --- element by element -----------------------------------------------------------------------------------------------


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Array:
    """The data of the product, element by element, of a BCOO array with a dense one that broadcasts to its shape.

    Args:
        sp_mat: a BCOO array.
        v: an array that broadcasts to its shape.

    Returns:
        The data of a BCOO array with the same indices.

    Raises:
        ArgumentError: what is no BCOO array.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, bcoo_multiply_dense
        >>> import tinyxla as tx
        >>> bcoo_multiply_dense(BCOO.fromdense(tx.numpy.eye(2)), tx.numpy.array([3.0, 4.0]))
        Array([3., 4.], dtype=float32)
    """
    mat, x = checked("bcoo_multiply_dense", sp_mat), array_of(v, "bcoo_multiply_dense")
    if not x.ndim:
        return mat.data * x
    if x.ndim > mat.ndim or np.broadcast_shapes(x.shape, mat.shape) != mat.shape:
        raise ShapeError(
            "bcoo_multiply_dense: the dense array must broadcast to the shape of the sparse one, but the shapes are "
            f"{mat.shape} and {x.shape}."
        )
    x = x.reshape((1,) * (mat.ndim - x.ndim) + x.shape)

    def unbatched(data: Any, indices: Any, x: Any) -> Any:
        sizes = x.shape[: mat.n_sparse]
        if not sizes:
            return data * x[None]
        places = tuple(tnp.where(c < n, 0, 1) if m == 1 != n else c for c, m, n in _sized(indices, sizes, mat))
        return data * x.at[places].get(mode="fill", fill_value=0)

    return nfold_vmap(unbatched, mat.n_batch)(mat.data, mat.indices, x)


def _sized(indices: Any, sizes: Shape, mat: BCOO) -> Any:
    return zip(columns(indices), sizes, mat.sparse_shape, strict=True)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product, element by element, of two BCOO arrays, whose sizes of 1 broadcast. It has the smaller number of
    batch and of dense dimensions.

    Args:
        lhs, rhs: BCOO arrays.

    Returns:
        A BCOO array.

    Raises:
        ShapeError: different numbers of dimensions, or sizes that do not broadcast.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> x, y = (sparse.BCOO.fromdense(jnp.array(v)) for v in ([0.0, 2.0, 3.0], [5.0, 0.0, 7.0]))
    >>> sparse.bcoo_multiply_sparse(x, y).todense()
    Array([ 0.,  0., 21.], dtype=float32)
    """
    left, right = checked("bcoo_multiply_sparse", lhs), checked("bcoo_multiply_sparse", rhs)
    if left.ndim != right.ndim:
        raise ShapeError(
            f"bcoo_multiply_sparse: arrays must have same number of dimensions, got {left.shape}, {right.shape}."
        )
    try:
        shape = np.broadcast_shapes(left.shape, right.shape)
    except ValueError:
        raise ShapeError(f"bcoo_multiply_sparse: shapes {left.shape} and {right.shape} do not broadcast.") from None
    n, n_dense = min(left.n_batch, right.n_batch), min(left.n_dense, right.n_dense)
    left, right = (bcoo_update_layout(m, n_batch=n, n_dense=n_dense) for m in (left, right))
    sizes = shape[n : n + left.n_sparse]
    nse = min(left.nse * right.nse, total_size(sizes)) if sizes else left.nse * right.nse

    def one(x: Any, i: Any, y: Any, j: Any) -> tuple[Any, Any]:
        here = is_inside(i, left.sparse_shape)[:, None] & is_inside(j, right.sparse_shape)[None, :]
        pairs: list[Any] = []
        for d, (a, b) in enumerate(zip(left.sparse_shape, right.sparse_shape, strict=True)):
            if a == b:
                here = here & (i[:, None, d] == j[None, :, d])
            source = j[None, :, d] if a == 1 else i[:, None, d]
            pairs.append(tnp.broadcast_to(source, (len(i), len(j))))
        products = masked(x[:, None] * y[None, :], here).reshape(len(i) * len(j), *_dense(x, y))
        if not sizes:
            return products, tnp.zeros((len(products), 0), i.dtype)
        indices = tnp.where(here[..., None], tnp.stack(pairs, -1), padding_like(i, sizes)).reshape(-1, len(sizes))
        made = BCOO((products, indices), shape=(*sizes, *products.shape[1:]))
        if len(products) > nse:
            made = bcoo_sum_duplicates(made, nse)
        return made.data, made.indices

    data, indices = nfold_vmap(one, n)(left.data, left.indices, right.data, right.indices)
    return BCOO((data, indices), shape=shape)


def _dense(x: Any, y: Any) -> Shape:
    return np.broadcast_shapes(x.shape[1:], y.shape[1:])
