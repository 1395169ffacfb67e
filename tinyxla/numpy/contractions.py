"""Products of arrays: dot, matmul, einsum and their relatives, all made of the one contraction op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    eager,
    integer_of,
    is_several,
    preferred_type,
    promoted,
    python_dtype,
    refuse_out,
    several_of,
    shown,
    summable,
    value_of,
)
from tinyxla.numpy.diagonals import diagonal
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.joining import concatenate
from tinyxla.numpy.manipulation import expand_dims, moveaxis, ravel, squeeze
from tinyxla.numpy.operations import contraction, movement, reduction
from tinyxla.numpy.reductions import sum as total
from tinyxla.ops.products.precision import PrecisionLike, operand_precision
from tinyxla.partitioning.placement import placed_result
from tinyxla.runtime.allocation import allocated
from tinyxla.shapes import element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.transforms.sharding_types import check_contracted
from tinyxla.util.tracebacks import boundary

Ints = tuple[int, ...]


def _dot(
    x: Any,
    y: Any,
    contract: tuple[Ints, Ints],
    batch: tuple[Ints, Ints] = ((), ()),
    preferred: Any = None,
    precision: tuple[str, ...] = (),
) -> Any:
    kind = preferred_type(preferred)
    return contraction.dot(
        *summable(kind, x, y),
        lhs_contracting_dims=contract[0],
        rhs_contracting_dims=contract[1],
        lhs_batch_dims=batch[0],
        rhs_batch_dims=batch[1],
        preferred_element_type=kind,
        operand_precision=precision,
    )


def _pair(what: str, a: ArrayLike, b: ArrayLike) -> tuple[Any, Any, bool]:
    (x, y), (_, weak) = promoted(what, array_of(a, what), array_of(b, what))
    return x, y, weak


def _fit(what: str, x: Any, i: int, y: Any, j: int) -> None:
    if x.shape[i] != y.shape[j]:
        raise ShapeError(
            f"{what}: shapes {x.shape} and {y.shape} do not fit: axis {i} of the first has size {x.shape[i]}, "
            f"axis {j} of the second {y.shape[j]}."
        )


def _check_sums(what: str, out_sharding: Any, a: Any, b: Any) -> None:
    """Refuse a product that is to be left as partial sums along other axes than those it is summed over."""
    x, y = array_of(a, what), array_of(b, what)
    if x.ndim and y.ndim:
        pairs = [(x, (x.ndim - 1,)), (y, (max(y.ndim - 2, 0),))]
        check_contracted(f"{what}: out_sharding", out_sharding, pairs)


@replayed
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sum over the last axis of a and the last but one of b (the only one of a vector).

    With a scalar it is the product.

    Args:
        a, b: arrays.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array without the axes that are summed over.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.dot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
        Array([3, 7], dtype=int32)
    """
    if out_sharding is not None:
        _check_sums("dot", out_sharding, a, b)
        return placed_result(
            "dot: out_sharding",
            lambda: dot(a, b, precision=precision, preferred_element_type=preferred_element_type),
            out_sharding,
        )
    x, y, weak = _pair("dot", a, b)
    words = operand_precision("dot", precision)
    if x.ndim == 0 or y.ndim == 0:
        return arith.multiply(x, y).with_weak_type(weak)
    j = y.ndim - (2 if y.ndim > 1 else 1)
    _fit("dot", x, x.ndim - 1, y, j)
    return _dot(x, y, ((x.ndim - 1,), (j,)), preferred=preferred_element_type, precision=words).with_weak_type(weak)


@boundary
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The matrix product; further axes in front broadcast against each other. A vector is a row, or a column.

    Args:
        a, b: arrays.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array [..., m, n] for a [..., m, k] and b [..., k, n].

    Raises:
        ShapeError: an array without dimensions, or sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.matmul(jnp.eye(2), jnp.array([1.0, 2.0]))
        Array([1., 2.], dtype=float32)
    """
    if out_sharding is not None:
        _check_sums("matmul", out_sharding, a, b)
        return placed_result(
            "matmul: out_sharding",
            lambda: matmul(a, b, precision=precision, preferred_element_type=preferred_element_type),
            out_sharding,
        )
    x, y, weak = _pair("matmul", a, b)
    words = operand_precision("matmul", precision)
    for v in (x, y):
        if v.ndim == 0:
            raise ShapeError("matmul: takes vectors and matrices, but got an array without dimensions; use multiply.")
    j = y.ndim - (2 if y.ndim > 1 else 1)
    _fit("matmul", x, x.ndim - 1, y, j)
    left, right = x.shape[:-2], y.shape[:-2]
    if not (left or right or preferred_element_type) and eager(x, y) and contraction.accumulator(x.dtype) == x.dtype:
        with np.errstate(all="ignore"):
            return ConcreteArray(allocated("matmul", lambda: np.matmul(value_of(x), value_of(y))), weak)
    if not right:
        return _dot(x, y, ((x.ndim - 1,), (j,)), preferred=preferred_element_type, precision=words).with_weak_type(weak)
    if not left:
        found = _dot(
            x, y, ((x.ndim - 1,), (j,)), preferred=preferred_element_type, precision=words
        )  # (row of x), batch, column of y
        return (moveaxis(found, 0, -2) if x.ndim == 2 else found).with_weak_type(weak)
    batch = broadcast_shapes(f"matmul of {x.shape} and {y.shape}, before the last two axes", left, right)
    x = broadcast_to_shape("matmul", x, (*batch, *x.shape[-2:]))
    y = broadcast_to_shape("matmul", y, (*batch, *y.shape[-2:]))
    shared = tuple(range(len(batch)))
    contract = ((x.ndim - 1,), (y.ndim - 2,))
    return _dot(x, y, contract, (shared, shared), preferred_element_type, words).with_weak_type(weak)


@replayed
def vdot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: Any = None) -> Array:
    """The dot product of the flattened arrays, the first conjugated.

    Args:
        a, b: arrays.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        A scalar.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.vdot(jnp.array([1, 2]), jnp.array([3, 4]))
        Array(11, dtype=int32)
    """
    return dot(ravel(arith.conjugate(a)), ravel(b), precision=precision, preferred_element_type=preferred_element_type)


@replayed
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """The dot products along an axis, the first conjugated. Products are summed in the `preferred_element_type`, which
    the result has.

    Args:
        x1, x2: arrays.
        axis: the axis of vectors.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An array without the axis.

    Raises:
        ShapeError: axes of different sizes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
        Array([3, 7], dtype=int32)
    """
    x, y, weak = _pair("vecdot", x1, x2)
    words = operand_precision("vecdot", precision)
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    _fit("vecdot", x, x.ndim - 1, y, y.ndim - 1)
    shape = broadcast_shapes("vecdot", x.shape, y.shape)
    x, y = broadcast_to_shape("vecdot", arith.conjugate(x), shape), broadcast_to_shape("vecdot", y, shape)
    batch = tuple(range(len(shape) - 1))
    last = (len(shape) - 1,)
    return _dot(x, y, (last, last), (batch, batch), preferred_element_type, words).with_weak_type(weak)


@replayed
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Matrices times vectors: the last axes; further axes in front broadcast against each other.

    Args:
        x1: matrices [..., m, n].
        x2: vectors [..., n].

    Returns:
        Vectors [..., m].

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
        Array([3, 7], dtype=int32)
    """
    x, y, weak = _pair("matvec", x1, x2)
    if x.ndim < 2 or y.ndim < 1:
        raise ShapeError(f"matvec: takes matrices and vectors, but got shapes {x.shape} and {y.shape}.")
    return squeeze(matmul(x, expand_dims(y, -1)), -1).with_weak_type(weak)


@replayed
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Vectors, conjugated, times matrices: the last axes; further axes in front broadcast against each other.

    Args:
        x1: vectors [..., m].
        x2: matrices [..., m, n].

    Returns:
        Vectors [..., n].

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.vecmat(jnp.array([1, 1]), jnp.array([[1, 2], [3, 4]]))
        Array([4, 6], dtype=int32)
    """
    x, y, weak = _pair("vecmat", x1, x2)
    if x.ndim < 1 or y.ndim < 2:
        raise ShapeError(f"vecmat: takes vectors and matrices, but got shapes {x.shape} and {y.shape}.")
    return squeeze(matmul(expand_dims(arith.conjugate(x), -2), y), -2).with_weak_type(weak)


@replayed
def inner(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: Any = None) -> Array:
    """The sum over the last axes of both.

    Args:
        a, b: arrays.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.

    Returns:
        An array of the other axes of a, then those of b.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.inner(jnp.array([1, 2]), jnp.array([3, 4]))
        Array(11, dtype=int32)
    """
    x, y, weak = _pair("inner", a, b)
    words = operand_precision("inner", precision)
    if x.ndim == 0 or y.ndim == 0:
        return arith.multiply(x, y).with_weak_type(weak)
    _fit("inner", x, x.ndim - 1, y, y.ndim - 1)
    return _dot(x, y, ((x.ndim - 1,), (y.ndim - 1,)), preferred=preferred_element_type, precision=words).with_weak_type(
        weak
    )


@replayed
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """All products of an element of a with one of b, both flattened.

    Args:
        a, b: arrays.
        out: must be None.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4]))
        Array([[3, 4],
               [6, 8]], dtype=int32)
    """
    refuse_out("outer", out)
    x, y, weak = _pair("outer", ravel(a), ravel(b))
    return arith.multiply(expand_dims(x, 1), expand_dims(y, 0)).with_weak_type(weak)


@boundary
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: Any = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sum of products over axes of both: the last `axes` of a and the first of b, or a list of axes of each.

    Args:
        a, b: arrays.
        axes: a number of axes, or a list of axes of a and one of axes of b.
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the other axes of a, then those of b.

    Raises:
        ShapeError: sizes that do not fit.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 2)), axes=1)
        Array([[3., 3.],
               [3., 3.]], dtype=float32)
    """
    x, y, weak = _pair("tensordot", a, b)
    words = operand_precision("tensordot", precision)
    if is_several(axes):
        first, second = several_of("tensordot", "axes", axes, 2)
        left, right = (tuple(d) if is_several(d) else (d,) for d in (first, second))
    else:
        count = integer_of("tensordot", "axes", axes)
        if not 0 <= count <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: {count} axes are more than shapes {x.shape} and {y.shape} both have.")
        left, right = tuple(range(x.ndim - count, x.ndim)), tuple(range(count))
    left = tuple(canonical_axis(d, x.ndim, "tensordot") for d in left)
    right = tuple(canonical_axis(d, y.ndim, "tensordot") for d in right)
    if len(left) != len(right) or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError(f"tensordot: axes must pair as many distinct axes of both arrays, but are {axes}.")
    for i, j in zip(left, right, strict=True):
        _fit("tensordot", x, i, y, j)

    def product() -> Any:
        return _dot(x, y, (left, right), preferred=preferred_element_type, precision=words).with_weak_type(weak)

    if out_sharding is None:
        return product()
    check_contracted("tensordot: out_sharding", out_sharding, [(x, left), (y, right)])
    return placed_result("tensordot: out_sharding", product, out_sharding)


@replayed
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """The Kronecker product: each element of a times the whole of b.

    Args:
        a, b: arrays.

    Returns:
        An array whose sizes are products of those of a and b.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2]))
        Array([ 1,  2, 10, 20], dtype=int32)
    """
    x, y, weak = _pair("kron", a, b)
    rank = max(x.ndim, y.ndim)
    left, right = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    x = movement.reshape_to(x, tuple(n for size in left for n in (size, 1)))
    y = movement.reshape_to(y, tuple(n for size in right for n in (1, size)))
    product = arith.multiply(x, y)
    sizes = tuple(m * n for m, n in zip(left, right, strict=True))
    return movement.reshape_to(product, sizes).with_weak_type(weak)


@replayed
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """The cross product of vectors of 3 (or 2) elements along an axis.

    Args:
        a, b: arrays.
        axisa, axisb, axisc: the axis of vectors in a, in b and in the result.
        axis: one axis instead of the three.

    Returns:
        An array of vectors, or of scalars for vectors of 2 elements.

    Raises:
        ShapeError: vectors of other sizes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
        Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y, _ = _pair("cross", a, b)
    canonical_axis(axisa, x.ndim, "cross")
    canonical_axis(axisb, y.ndim, "cross")
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    for v in (x, y):
        if v.shape[-1] not in (2, 3):
            raise ShapeError(f"cross: vectors have 2 or 3 elements, but got shapes {x.shape} and {y.shape}.")

    def part(v: Any, k: int) -> Any:
        piece = movement.slice_axis(v, v.ndim - 1, k, k + 1)
        return movement.reshape_to(piece, v.shape[:-1])

    def determinant(i: int, j: int) -> Array:
        return arith.subtract(arith.multiply(part(x, i), part(y, j)), arith.multiply(part(x, j), part(y, i)))

    if x.shape[-1] == y.shape[-1] == 2:
        return determinant(0, 1)
    x, y = (_with_third(v) for v in (x, y))
    parts = [determinant(1, 2), determinant(2, 0), determinant(0, 1)]
    return moveaxis(concatenate([expand_dims(p, -1) for p in parts], -1), -1, axisc)


def _with_third(v: Any) -> Any:
    """A vector of two elements with a zero as the third."""
    if v.shape[-1] == 3:
        return v
    config = ((0, 0, 0),) * (v.ndim - 1) + ((0, 1, 0),)
    return movement.pad(v, movement.full(0, v.dtype), padding_config=config)


# --- einsum -----------------------------------------------------------------------------------------------------------


@replayed
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    _dot_general: Callable[..., Any] | None = None,
    out_sharding: Any = None,
) -> Array:
    """Sums of products in Einstein's notation: `einsum("ij,jk->ik", a, b)`.

    Letters name axes; those that are not in the result are summed over; `...` stands for axes that broadcast. Several
    operands are multiplied in pairs, in an order that NumPy finds to be cheap: `optimize` is as in `numpy.einsum_path`,
    or "auto" for the best order of up to six operands, and a greedy one of more. They are multiplied by `_dot_general`
    if that is given, which is called as `lax.dot_general` is.

    Args:
        subscripts: the letters of the operands and, after "->", of the result; or operands with lists of axes.
        *operands: arrays.
        out: must be None.
        optimize: the order of products, as in `numpy.einsum_path`, or "auto".
        precision: as for `lax.dot_general`; products are always computed in full precision.
        preferred_element_type: the type to sum in, and of the result.
        _dot_general: a function that multiplies two operands, as `lax.dot_general`.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array with the axes of the result.

    Raises:
        ShapeError: letters that do not fit the dimensions, or that have different sizes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.einsum("ij->j", jnp.ones((2, 3)))
        Array([2., 2., 2.], dtype=float32)
    """
    refuse_out("einsum", out)
    if out_sharding is not None:
        _check_summed_labels(subscripts, operands, out_sharding)
        return placed_result(
            "einsum: out_sharding",
            lambda: einsum(
                subscripts,
                *operands,
                out=out,
                optimize=optimize,
                precision=precision,
                preferred_element_type=preferred_element_type,
                _dot_general=_dot_general,
            ),
            out_sharding,
        )
    if not isinstance(subscripts, str):
        subscripts, operands = _from_sublists((subscripts, *operands))
    arrays, (dtype, weak) = promoted("einsum", *(array_of(x, "einsum") for x in operands))
    inputs, output = _parse(subscripts, [x.ndim for x in arrays])
    sizes: dict[str, int] = {}
    for labels, x in zip(inputs, arrays, strict=True):
        for label, n in zip(labels, x.shape, strict=True):
            if sizes.setdefault(label, n) != n and 1 not in (n, sizes[label]):
                raise ShapeError(f"einsum: in {subscripts!r} the axis {label!r} has sizes {sizes[label]} and {n}.")
            sizes[label] = max(n, sizes[label]) if sizes[label] != 0 and n != 0 else 0
    named: list[tuple[str, Any]] = []
    for labels, x in zip(inputs, arrays, strict=True):
        named.append(_stretched(labels, x, sizes))
    wanted = dtype if preferred_element_type is None else python_dtype(preferred_element_type)
    sums = wanted if _holds(wanted, dtype) else dtype
    words = operand_precision("einsum", precision)
    product = partial(_dot, precision=words) if _dot_general is None else _by(_dot_general, precision, sums)
    result = _contract(named, output, sizes, optimize, sums, product)
    return cast(result, wanted).with_weak_type(weak)


def _check_summed_labels(subscripts: Any, operands: Sequence[Any], out_sharding: Any) -> None:
    """Refuse an einsum that is to be left as partial sums along other axes than those it is summed over."""
    if not isinstance(subscripts, str):
        subscripts, operands = _from_sublists((subscripts, *operands))
    arrays = [array_of(x, "einsum") for x in operands]
    inputs, output = _parse(subscripts, [x.ndim for x in arrays])
    summed = [label for label in dict.fromkeys("".join(inputs)) if label not in output]
    places = [[labels.index(label) for label in summed if label in labels] for labels in inputs]
    check_contracted("einsum: out_sharding", out_sharding, list(zip(arrays, places, strict=True)))


def _holds(wanted: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether products of the one type can be summed in the other, and lose nothing by it."""
    sums, operands = element_type(wanted), element_type(dtype)
    if sums.kind == operands.kind:
        return sums.bits >= operands.bits
    return operands.is_integer and sums.kind == "float"


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) as letters."""
    operands = args[: len(args) // 2 * 2 : 2]
    lists = [*args[1 : len(args) // 2 * 2 : 2]]
    if not all(isinstance(x, (list, tuple)) for x in (*lists, *args[len(operands) * 2 :])):
        raise ArgumentError(
            "einsum: takes a text such as 'ij,jk->ik' before the operands, or a list of integers after each of them, "
            f"but got {', '.join(type(x).__name__ for x in args)}."
        )
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    seen = sorted(
        {k for labels in [*lists, *([args[-1]] if len(args) % 2 else [])] for k in labels if k is not Ellipsis}
    )
    table = {k: letters[n] for n, k in enumerate(seen)}

    def text(labels: Sequence[Any]) -> str:
        return "".join("..." if k is Ellipsis else table[k] for k in labels)

    written = ",".join(map(text, lists))
    return (written + "->" + text(args[-1]) if len(args) % 2 else written), operands


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result; axes under `...` become upper labels of their own."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ArgumentError(f"einsum: {subscripts!r} names {len(terms)} operands, but {len(ranks)} are given.")
    spare = [c for c in map(chr, range(0x3B1, 0x471)) if c not in text]
    inputs: list[str] = []
    widest = ""
    for term, rank in zip(terms, ranks, strict=True):
        names = term.replace("...", "")
        hidden = rank - len(names)
        if not all(c.isalnum() for c in names):
            raise ArgumentError(f"einsum: axes are named by letters and digits, but got {term!r} in {subscripts!r}.")
        if hidden < 0 or (hidden and "..." not in term):
            raise ShapeError(f"einsum: {term!r} in {subscripts!r} does not fit an array of {rank} dimensions.")
        dots = "".join(spare[k] for k in reversed(range(hidden)))
        widest = max(widest, dots, key=len)
        inputs.append(term.replace("...", dots))
    if arrow:
        output = right.replace("...", widest)
        for label in output:
            found = any(label in term for term in inputs)
            if output.count(label) > 1 or not found:
                said = "twice; take it once" if found else "which no operand has"
                raise ArgumentError(f"einsum: the result of {subscripts!r} names the axis {label!r}, {said}.")
        return inputs, output
    everything = "".join(inputs)
    free = sorted(c for c in set(everything) if everything.count(c) == 1 and c not in widest)
    return inputs, widest + "".join(free)


def _stretched(labels: str, x: Any, sizes: dict[str, int]) -> tuple[str, Any]:
    """An operand without repeated labels and without axes of size 1 that broadcast."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            x = diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + label
    for d in reversed(range(len(labels))):
        if x.shape[d] == 1 and sizes[labels[d]] != 1:
            x = movement.reshape_to(x, (*x.shape[:d], *x.shape[d + 1 :]))
            labels = labels[:d] + labels[d + 1 :]
    return labels, x


def _by(dot_general: Callable[..., Any], precision: Any, sums: np.dtype[Any]) -> Callable[..., Any]:
    """`_dot` by another function, which is always told the type of the sums."""

    def product(x: Any, y: Any, contract: Any, batch: Any, preferred: Any) -> Any:
        return dot_general(x, y, (contract, batch), precision=precision, preferred_element_type=sums)

    return product


def _contract(
    named: list[tuple[str, Any]],
    output: str,
    sizes: dict[str, int],
    optimize: Any,
    sums: np.dtype[Any],
    product: Callable[..., Any],
) -> Any:
    """Multiply in pairs; an axis is summed over, in the type of sums, as soon as nothing else has it."""
    for pair in _path(named, output, sizes, optimize):
        chosen = [named[k] for k in sorted(pair)]
        named = [t for k, t in enumerate(named) if k not in pair]
        while len(chosen) > 1:
            rest = {c for labels, _ in [*named, *chosen[2:]] for c in labels} | set(output)
            chosen = [_multiply(chosen[0], chosen[1], rest, sums, product), *chosen[2:]]
        named.append(chosen[0])
    ((labels, x),) = named
    summed = tuple(d for d, c in enumerate(labels) if c not in output)
    simply = not summed or (x.dtype == sums and _is_wide(x))
    x = reduction.reduce_sum(x, summed) if simply else total(x, summed, sums)
    labels = "".join(c for c in labels if c in output)
    missing = [c for c in output if c not in labels]
    x = movement.transpose_to(x, tuple(labels.index(c) for c in output if c in labels))
    if not missing:
        return x
    places = tuple(k for k, c in enumerate(output) if c in labels)
    return movement.broadcast(x, sizes=tuple(sizes[c] for c in output), dimensions=places)


def _is_wide(x: Any) -> bool:
    return element_type(x.dtype).bits >= 32


def _path(named: list[tuple[str, Any]], output: str, sizes: dict[str, int], optimize: Any) -> list[tuple[int, ...]]:
    if len(named) <= 2:
        return [tuple(range(len(named)))]
    letters = {c: chr(ord("a") + k) if k < 26 else chr(ord("A") + k - 26) for k, c in enumerate(sizes)}
    if len(letters) > 52:
        raise ArgumentError(f"einsum: has {len(letters)} different axes; at most 52 can be told apart.")
    terms = ["".join(letters[c] for c in labels) for labels, _ in named]
    present = {c for labels, _ in named for c in labels}
    result = "".join(letters[c] for c in output if c in present)
    shapes = [np.broadcast_to(np.float32(0), x.shape) for _, x in named]
    strategy = _strategy(optimize, len(named))
    if isinstance(strategy, (list, tuple)) and all(isinstance(step, tuple) for step in strategy):
        strategy = ["einsum_path", *strategy]
    path = np.einsum_path(",".join(terms) + "->" + result, *shapes, optimize=strategy)[0]
    return [tuple(pair) for pair in path[1:]]


def _strategy(optimize: Any, count: int) -> Any:
    """NumPy's strategy for so many operands: the best order takes long to find for many."""
    if optimize == "auto" or (optimize == "optimal" and count > 6):
        return "optimal" if count <= 6 else "greedy"
    return "greedy" if optimize is True else optimize


def _multiply(
    left: tuple[str, Any],
    right: tuple[str, Any],
    needed: set[str],
    sums: np.dtype[Any],
    product: Callable[..., Any],
) -> tuple[str, Any]:
    """The product of two operands, summed over the axes that are not needed any more."""
    (a, x), (b, y) = (_summed(side, other[0], needed, sums) for side, other in ((left, right), (right, left)))
    if x.dtype != y.dtype:  # one of them is a sum
        x, y = cast(x, sums), cast(y, sums)
    contract = [c for c in a if c in b and c not in needed]
    batch = [c for c in a if c in b and c in needed]
    found = product(
        x,
        y,
        (tuple(a.index(c) for c in contract), tuple(b.index(c) for c in contract)),
        (tuple(a.index(c) for c in batch), tuple(b.index(c) for c in batch)),
        None if x.dtype == sums else sums,
    )
    free = [c for c in a if c not in b] + [c for c in b if c not in a]
    return "".join(batch + free), found


def _summed(side: tuple[str, Any], other: str, needed: set[str], sums: np.dtype[Any]) -> tuple[str, Any]:
    """An operand, summed over the axes that only it has."""
    labels, x = side
    alone = tuple(d for d, c in enumerate(labels) if c not in other and c not in needed)
    if not alone:
        return side
    return "".join(c for d, c in enumerate(labels) if d not in alone), total(x, alone, sums)


@boundary
def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "greedy") -> Any:
    """The order in which NumPy would multiply the operands, and a report.

    Args:
        subscripts: as for `einsum`.
        *operands: arrays, or anything with a shape.
        optimize: the order of products, as in `numpy.einsum_path`, or "auto".

    Returns:
        A pair of the list of contractions and a text.

    Raises:
        ValueError: operands that do not fit the subscripts.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.einsum_path("ij,jk,kl", jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones((4, 1)))[0]
        ['einsum_path', (1, 2), (0, 1)]
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(
            f"einsum_path: the subscripts must be a text such as 'ij,jk->ik', but got {shown(subscripts)}."
        )
    shapes = [np.broadcast_to(np.float32(0), array_of(x, "einsum_path").shape) for x in operands]
    return np.einsum_path(subscripts, *shapes, optimize=_strategy(optimize, len(shapes)))
