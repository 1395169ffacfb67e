"""Linear algebra: norms and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy import arithmetic as arith
from tinyxla.numpy import contractions
from tinyxla.numpy.arguments import ArrayLike, Axis, array_of, canonical_axes, cast, inexact_array, integer_of, like
from tinyxla.numpy.creation import eye
from tinyxla.numpy.manipulation import diagonal as diagonal_of
from tinyxla.numpy.manipulation import matrix_transpose as transposed
from tinyxla.numpy.manipulation import reshape
from tinyxla.numpy.manipulation import trace as trace_of
from tinyxla.numpy.reductions import max, min, sum
from tinyxla.numpy.selection import where
from tinyxla.numpy.transcendental import sqrt
from tinyxla.tracing.array import Array


def _squares(x: Any) -> Any:
    if x.dtype.kind != "c":
        return arith.multiply(x, x)
    re, im = arith.real(x), arith.imag(x)
    return arith.add(arith.multiply(re, re), arith.multiply(im, im))


def _euclidean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The gradient at zero is zero, one of the subgradients, instead of NaN."""
    total = sum(_squares(x), axes, keepdims=keepdims)
    none = arith.equal(total, 0)
    return where(none, like(0, total), sqrt(where(none, like(1, total), total)))


def norm(x: ArrayLike, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """The norm of vectors or matrices.

    Args:
        x: an array.
        ord: for vectors a number, `inf` or `-inf` (2 if None: the Euclidean norm); for matrices `"fro"` (the default),
            1, -1, `inf` or `-inf`.
        axis: the axis of vectors, or the two of matrices; None takes all (flattened if there is no `ord`).
        keepdims: the axes stay with size 1.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
        Array(5., dtype=float32)
    """
    x = inexact_array(array_of(x, "norm"), "norm")
    if ord is None:
        return _euclidean(x, canonical_axes("norm", axis, x.ndim), keepdims)
    if axis is None and x.ndim not in (1, 2):
        raise ShapeError(f"norm: an array of shape {x.shape} is no vector and no matrix; name the axes by `axis`.")
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) == 1:
        return _vector_norm(x, ord, canonical_axes("norm", axes, x.ndim), keepdims)
    if len(axes) != 2:
        raise ShapeError(f"norm: takes one axis or two, but got {axes}.")
    canonical_axes("norm", axes, x.ndim)
    return _matrix_norm(x, ord, (axes[0] % x.ndim, axes[1] % x.ndim), keepdims)


def _vector_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    size = arith.absolute(x)
    if ord == np.inf:
        return max(size, axes, keepdims=keepdims)
    if ord == -np.inf:
        return min(size, axes, keepdims=keepdims)
    if isinstance(ord, str):
        raise ArgumentError(f"norm: the order of a vector norm is a number, but got {ord!r}.")
    if ord == 0:
        return cast(sum(arith.not_equal(x, 0), axes, keepdims=keepdims), size.dtype)
    if ord == 1:
        return sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    return arith.power(sum(arith.power(size, ord), axes, keepdims=keepdims), 1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    if ord == "fro":
        return _euclidean(x, tuple(sorted(axes)), keepdims)
    summed = {1: axes[0], -1: axes[0], np.inf: axes[1], -np.inf: axes[1]}
    if isinstance(ord, str) or ord not in summed:
        raise ArgumentError(f"norm: the order of a matrix norm is 'fro', 1, -1, inf or -inf, but got {ord!r}.")
    along = summed[ord]
    other = axes[1] if along == axes[0] else axes[0]
    sums = sum(arith.absolute(x), along, keepdims=True)
    found = (max if ord > 0 else min)(sums, other, keepdims=True)
    return found if keepdims else reshape(found, [n for d, n in enumerate(x.shape) if d not in axes])


def vector_norm(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm of vectors along axes, or of all elements."""
    x = inexact_array(array_of(x, "vector_norm"), "vector_norm")
    return _vector_norm(x, ord, canonical_axes("vector_norm", axis, x.ndim), keepdims)


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices in the last two axes."""
    x = inexact_array(array_of(x, "matrix_norm"), "matrix_norm")
    if x.ndim < 2:
        raise ShapeError(f"matrix_norm: takes matrices, but got an array of shape {x.shape}.")
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


def matrix_power(a: ArrayLike, n: int) -> Array:
    """The n-th power of square matrices, by repeated squaring."""
    x = array_of(a, "matrix_power")
    exponent = integer_of("matrix_power", "n", n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, but got an array of shape {x.shape}.")
    if exponent < 0:
        raise ArgumentError(f"matrix_power: n is not negative, but got {exponent}; invert the matrix first.")
    if exponent == 0:
        return arith.multiply(like(1, x), eye(x.shape[-1], dtype=x.dtype))
    result: Any = None
    while exponent:
        if exponent & 1:
            result = x if result is None else contractions.matmul(result, x)
        exponent >>= 1
        if exponent:
            x = contractions.matmul(x, x)
    return result


def multi_dot(arrays: Sequence[ArrayLike], *, precision: Any = None) -> Array:
    """The product of several matrices (the first and last may be vectors), in the cheapest order."""
    operands = [array_of(x, "multi_dot") for x in arrays]
    if len(operands) < 2:
        raise ArgumentError(f"multi_dot: takes at least two arrays, but got {len(operands)}.")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    terms: list[str] = []
    at = 0
    for k, x in enumerate(operands):
        inner = 0 < k < len(operands) - 1
        if x.ndim not in ((2,) if inner else (1, 2)):
            raise ShapeError(f"multi_dot: operand {k} of shape {x.shape} is no matrix.")
        terms.append(letters[at : at + x.ndim])
        at += x.ndim - 1
    output = (terms[0][0] if operands[0].ndim == 2 else "") + (terms[-1][-1] if operands[-1].ndim == 2 else "")
    return contractions.einsum(",".join(terms) + "->" + output, *operands)


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The matrix product; see `tinyxla.numpy.matmul`."""
    return contractions.matmul(x1, x2)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """The last two axes exchanged."""
    return transposed(x)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """All products of an element of one vector with one of the other."""
    return contractions.outer(x1, x2)


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of 3 elements along an axis."""
    return contractions.cross(x1, x2, axis=axis)


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The dot products along an axis, the first conjugated."""
    return contractions.vecdot(x1, x2, axis=axis)


def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2) -> Array:
    """The sum over axes of both; see `tinyxla.numpy.tensordot`."""
    return contractions.tensordot(x1, x2, axes)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices in the last two axes."""
    return diagonal_of(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of matrices in the last two axes."""
    return trace_of(x, offset, -2, -1, dtype)
