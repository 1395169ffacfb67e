"""Sparse arrays of any format: empty ones, identities, and dense ones of sparse ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import AttributeValueError, UnknownOptionError
from tinyxla.experimental.sparse.bcoo import BCOO
from tinyxla.experimental.sparse.bcsr import BCSR
from tinyxla.experimental.sparse.coo import COO
from tinyxla.experimental.sparse.csr import CSC, CSR
from tinyxla.experimental.sparse.util import JAXSparse
from tinyxla.numpy.arguments import array_of, count_of, integer_of
from tinyxla.ops.checkpoint_name import checkpoint_name
from tinyxla.tracing.array import Array

DENSE = "sparse.todense"  # the name of a value that `sparsify` makes dense
_FORMATS: dict[str, Any] = {"bcsr": BCSR, "bcoo": BCOO, "coo": COO, "csr": CSR, "csc": CSC}


def todense(arr: Any) -> Array:
    """The dense array of a sparse one; an array that is dense stays as it is. In functions that are sparsified, too.

    Args:
        arr: a sparse or a dense array.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> from tinyxla.experimental.sparse import eye, todense
        >>> todense(eye(2))
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    if isinstance(arr, JAXSparse):
        return arr.todense()
    return checkpoint_name(array_of(arr, "sparse.todense"), name=DENSE)


def _format(what: str, name: str, formats: Sequence[str]) -> Any:
    if name not in formats:
        raise AttributeValueError(
            f"{what}: sparse_format={name!r} not recognized; must be one of {', '.join(map(repr, formats))}."
        )
    return _FORMATS[name]


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **options: Any
) -> Any:
    """A sparse array of zeros.

    Args:
        shape: its shape.
        dtype: the type of elements.
        index_dtype: the type of indices.
        sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
        options: for BCOO and BCSR `n_batch`, `n_dense` and `nse`.

    Returns:
        A sparse array.

    Raises:
        ShapeError: what is no shape.

    >>> from tinyxla.experimental import sparse
    >>> sparse.empty((2, 3)), sparse.empty((2, 3), nse=4), sparse.empty((2, 3), sparse_format="csr")
    (BCOO(float32[2, 3], nse=0), BCOO(float32[2, 3], nse=4), CSR(float32[2, 3], nse=0))
    """
    kind = _format("sparse.empty", sparse_format, tuple(_FORMATS))
    return kind._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **options)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **options: Any,
) -> Any:
    """A sparse matrix with ones along a diagonal.

    Args:
        N, M: the numbers of rows and columns; M is N unless it is given.
        k: the diagonal; 0 is the main one, positive numbers are above.
        dtype: the type of elements.
        index_dtype: the type of indices.
        sparse_format: "bcoo", "coo", "csr" or "csc".
        options: for BCOO `n_batch` and `n_dense`.

    Returns:
        A sparse matrix.

    Raises:
        ArgumentError: a size or diagonal that is no integer, an index type that is none of integers, or more batch and
            dense dimensions than two.
        AttributeValueError: another format.
        DTypeError: what is no element type.
        ShapeError: a negative size.
        UnknownOptionError: an option that the format does not have.

    Example:
        >>> from tinyxla.experimental.sparse import eye
        >>> eye(2)
        BCOO(float32[2, 2], nse=2)
    """
    kind = _format("sparse.eye", sparse_format, ("bcoo", "coo", "csr", "csc"))
    rows = count_of("sparse.eye", "N", N)
    columns = rows if M is None else count_of("sparse.eye", "M", M)
    allowed = {"n_batch", "n_dense"} if sparse_format == "bcoo" else set[str]()
    if not options.keys() <= allowed:
        raise UnknownOptionError(
            f"sparse.eye: {', '.join(sorted(options.keys() - allowed))} is no option of {sparse_format!r}; its options "
            f"are {', '.join(sorted(allowed)) or 'none'}."
        )
    diagonal = integer_of("sparse.eye", "k", k)
    return kind._eye(rows, columns, diagonal, dtype=dtype, index_dtype=index_dtype, **options)
