"""Primitives of sparse arrays: functions of the arrays that these are made of.

Sparse arrays are containers here, and operations on them are those on their parts, which jaxprs show. The primitives
can be bound, with JAX's operands and parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyxla import numpy as tnp
from tinyxla.experimental import sparse
from tinyxla.jax.jaxprs.primitives.catalogue import LaxPrimitive

_PARTS = {sparse.BCOO: 2, sparse.BCSR: 3, sparse.COO: 3, sparse.CSR: 3}  # arrays that a sparse array is made of


def _parts(x: Any) -> Any:
    """What a sparse array is made of; a dense one as it is."""
    if isinstance(x, (sparse.BCSR, sparse.CSR)):
        return [x.data, x.indices, x.indptr]
    if isinstance(x, sparse.COO):
        return [x.data, x.row, x.col]
    return [x.data, x.indices] if isinstance(x, sparse.BCOO) else x


def _made(kind: Any, parts: Any, shape: Any) -> Any:
    return kind(tuple(parts), shape=tuple(shape))


def _of_sparse(function: Callable[..., Any], kind: Any, count: int = 1) -> Callable[..., Any]:
    """A function of `count` sparse arrays, and then dense ones, as one of their parts."""
    parts = _PARTS[kind]
    names = ("lhs_spinfo", "rhs_spinfo") if count == 2 else ("spinfo", "lhs_spinfo", "shape")

    def call(*operands: Any, **params: Any) -> Any:
        infos = [params.pop(name) for name in names if name in params]
        shapes = [getattr(info, "shape", info) for info in infos]
        arrays = [_made(kind, operands[k * parts : (k + 1) * parts], shape) for k, shape in enumerate(shapes[:count])]
        return _parts(function(*arrays, *operands[count * parts :], **params))

    return call


def _of_dense(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of dense arrays that gives a sparse one, as one that gives its parts."""
    return lambda *operands, **params: _parts(function(*operands, **params))


def _extract(indices: Any, array: Any, *, assume_unique: bool | None = None) -> Any:
    """The elements of an array at the indices of a BCOO matrix."""
    data = tnp.zeros((*indices.shape[:-1],), array.dtype)
    return sparse.bcoo_extract(
        _made(sparse.BCOO, (data, indices), array.shape), array, assume_unique=assume_unique
    ).data


_SEVERAL = """bcoo_fromdense bcoo_transpose bcoo_sort_indices bcoo_sum_duplicates bcoo_spdot_general bcsr_fromdense
    coo_fromdense csr_fromdense""".split()
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bcoo_spdot_general": _of_sparse(sparse.bcoo_dot_general, sparse.BCOO, 2),
    "bcoo_dot_general_sampled": sparse.bcoo_dot_general_sampled,
    "bcoo_extract": _extract,
    "bcsr_extract": sparse.bcsr_extract,
    "todense": sparse.todense,
}
for _kind, _prefix in ((sparse.BCOO, "bcoo"), (sparse.BCSR, "bcsr"), (sparse.COO, "coo"), (sparse.CSR, "csr")):
    for _name in "todense dot_general transpose sort_indices sum_duplicates matvec matmat".split():
        if hasattr(sparse, f"{_prefix}_{_name}"):
            _FUNCTIONS.setdefault(f"{_prefix}_{_name}", _of_sparse(getattr(sparse, f"{_prefix}_{_name}"), _kind))
    _FUNCTIONS[f"{_prefix}_fromdense"] = _of_dense(getattr(sparse, f"{_prefix}_fromdense"))

sparse_primitives = {
    f"{name}_p": LaxPrimitive(name, function, name in _SEVERAL) for name, function in _FUNCTIONS.items()
}
