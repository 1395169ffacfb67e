"""Factorizations that XLA leaves to custom calls: LU, QR, eigenvalues of Hermitian matrices, singular values. LAPACK
computes them; the names are those of XLA's custom calls.

Matrices are the last two dimensions, the others are batch dimensions. Where there is no result, it is NaN.

With complex numbers, tangents and cotangents pair without conjugation, as `tinyxla.ops.elementwise` says. A derivative
of factors that are unique but for signs or phases leaves these as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.linalg.linear_algebra import (
    adjoint,
    halved,
    in_lapack_type,
    matrix_operand,
    matrix_product,
    rows_and_columns,
    square_operand,
    transposed,
    triangle,
    triangular_solve,
    where_defined,
)
from tinyxla.ops.op import (
    Array,
    ByAttributes,
    ByOperands,
    Cotangent,
    Decomposition,
    Derivative,
    NotDifferentiable,
    Op,
    Rules,
    Sample,
    Value,
    Zero,
    batches,
)
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import min_dim

# --- what they share --------------------------------------------------------------------------------------------------


def _real_type(shape: Shape) -> Any:
    return element_type({"c64": np.float32, "c128": np.float64}.get(shape.element_type.name, shape.dtype))


def _like_operand(results: tuple[Array, ...], a: Array) -> tuple[Array, ...]:
    """In the operand's precision, with its batch dimensions."""
    narrow = {np.dtype(np.float32): a.dtype} if a.dtype.itemsize < 4 else {}
    return tuple(
        x.reshape((*a.shape[:-2], *x.shape[1:])).astype(narrow.get(x.dtype, x.dtype), copy=False) for x in results
    )


def by_lapack(routine: Callable[[Array], tuple[Array, ...]], a: Array) -> tuple[Array, ...]:
    batch = in_lapack_type(a).reshape((math.prod(a.shape[:-2]), *a.shape[-2:]))
    return _like_operand(where_defined(routine, batch), a)


def diagonal(x: Value) -> Value:
    """The diagonals of square matrices."""
    return reduction.reduce_sum(elementwise.mul(x, identity(x)), (x.ndim - 1,))


def identity(x: Value) -> Value:
    """Of the type and size of x."""
    row, column = rows_and_columns(x)
    return elementwise.convert(elementwise.eq(row, column), new_element_type=element_type(x.dtype))


def rows_of(x: Value, size: int) -> Value:
    """Vectors, each element spread along a row of `size`."""
    return movement.broadcast(x, sizes=(*x.shape, size), dimensions=tuple(range(x.ndim)))


def columns_of(x: Value, size: int) -> Value:
    """Vectors, each element spread along a column of `size`."""
    return transposed(rows_of(x, size))


def of_type(x: Value, like: Value) -> Value:
    return x if x.dtype == like.dtype else elementwise.convert(x, new_element_type=element_type(like.dtype))


def inverse_differences(x: Value) -> Value:
    """1 / (x_j - x_i), infinite where two are equal, and 0 on the diagonal."""
    size = x.shape[-1]
    return _off_diagonal_reciprocal(elementwise.sub(columns_of(x, size), rows_of(x, size)))


def _inverse_of_squares(x: Value) -> Value:
    """1 / (x_j^2 - x_i^2) in the same way, to full precision where two are nearly equal."""
    size = x.shape[-1]
    columns, rows = columns_of(x, size), rows_of(x, size)
    return _off_diagonal_reciprocal(elementwise.mul(elementwise.sub(columns, rows), elementwise.add(columns, rows)))


def _off_diagonal_reciprocal(x: Value) -> Value:
    """The reciprocals of the elements off the diagonal of matrices that are 0 on it, and 0 on the diagonal."""
    unit = identity(x)
    return elementwise.sub(elementwise.div(elementwise.one_like(x), elementwise.add(x, unit)), unit)


def _is_zero(x: Value) -> Value:
    return elementwise.eq(x, elementwise.zeros_like(x))


def _undetermined(zero: Value, counts: Value) -> Value:
    """NaN where the rotation of singular vectors or eigenvectors whose values are `zero` is not determined, and 0
    elsewhere. The derivative of U S V*, or of V W V*, depends on it, though it is multiplied by these values. `counts`
    is not 0 where it does."""
    lost = elementwise.and_(zero, elementwise.ne(counts, elementwise.zeros_like(counts)))
    nan = movement.full(math.nan, counts.dtype, counts.shape)
    return elementwise.select(lost, nan, elementwise.zeros_like(counts))


def _zero_pairs(values: Value) -> Value:
    zero, size = _is_zero(values), values.shape[-1]
    return elementwise.and_(rows_of(zero, size), columns_of(zero, size))


def _off_diagonal(x: Value) -> Value:
    return elementwise.mul(x, elementwise.sub(elementwise.one_like(x), identity(x)))


def _undetermined_tangents(values: Value, inside: Value) -> Value:
    """The rotations that are not determined in forward mode, from a change in the basis of the vectors."""
    size = elementwise.abs_(inside)
    return _undetermined(_zero_pairs(values), _off_diagonal(elementwise.add(size, transposed(size))))


def _undetermined_cotangents(values: Value, by_values: Value, has_phases: bool) -> Value:
    """The rotations that are not determined in reverse mode, from the cotangent of the values; with phases, single
    vectors rotate, too."""
    size, counts = values.shape[-1], elementwise.abs_(by_values)
    both = elementwise.add(rows_of(counts, size), columns_of(counts, size))
    return _undetermined(_zero_pairs(values), both if has_phases else _off_diagonal(both))


def _skew(x: Value) -> Value:
    return elementwise.sub(x, adjoint(x))


def samples_of(shapes: tuple[tuple[int, ...], ...], types: tuple[Any, ...], **attributes: Any) -> Callable[..., Any]:
    """Matrices with well separated eigenvalues and singular values."""

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        for dtype in types:
            for shape in shapes:
                x = elementwise.sample_array(random, dtype, shape, -0.2, 0.2)
                main = np.zeros(shape[-2:])
                np.fill_diagonal(main, np.arange(1, 1 + min(shape[-2:])))
                yield Sample(((x + main).astype(dtype),), attributes)

    return samples


# --- LU ---------------------------------------------------------------------------------------------------------------


def _lu_shape(a: AnyShape) -> TupleShape:
    shape = matrix_operand("LuDecomposition", "a", a)
    *batch, m, n = shape.dimensions
    integers = Shape(element_type(np.int32))
    return TupleShape((shape, integers.with_dimensions((*batch, min_dim(m, n))), integers.with_dimensions((*batch, m))))


def _lu_evaluate(a: Array) -> tuple[Array, ...]:
    """Column by column of all matrices together, or one matrix after the other: what takes fewer steps."""
    batch = np.array(in_lapack_type(a).reshape((math.prod(a.shape[:-2]), *a.shape[-2:])))
    steps = min(a.shape[-2:])
    if a.size and len(batch) <= steps:
        (getrf,) = lapack_functions("lu-decomposition", ("getrf",), batch.dtype)
        found = [getrf(matrix) for matrix in batch]
        batch, pivots = np.array([x for x, *_ in found]), np.array([p for _, p, _ in found], np.int32)
    else:
        pivots = _eliminated(batch, steps)
    return _like_operand((batch, pivots, permutation_of(pivots, a.shape[-2])), a)


def solved_one_by_one(a: Array, b: Array, transpose_a: bool) -> Array:
    """The solutions x of a x = b, one matrix after the other, from factors as LAPACK has them."""
    matrices, sides = (in_lapack_type(x).reshape((-1, *x.shape[-2:])) for x in (a, b))
    getrf, getrs = lapack_functions("A linear solve", ("getrf", "getrs"), matrices.dtype)
    solved = np.empty_like(sides)
    for result, matrix, known in zip(solved, matrices, sides, strict=True):
        factors, pivots, _ = getrf(matrix)
        result[:] = getrs(factors, pivots, known, trans=transpose_a)[0]
    return solved.reshape(b.shape).astype(b.dtype, copy=False)


@cache
def lapack_functions(what: str, names: tuple[str, ...], dtype: np.dtype[Any]) -> Any:
    """Routines of LAPACK for an element type, found once."""
    with requiring("scipy.linalg.lapack", "SciPy", what):
        import scipy.linalg.lapack  # here, since importing it costs more than importing this package

    return scipy.linalg.lapack.get_lapack_funcs(names, dtype=dtype)


def _eliminated(a: Array, steps: int) -> Array:
    """Gaussian elimination with partial pivoting, in place; gives the pivots."""
    pivots = np.zeros((len(a), steps), np.int32)
    every = np.arange(len(a))
    for k in range(steps):
        pivots[:, k] = row = k + np.argmax(np.abs(a[:, k:, k]), axis=1)
        a[every, row], a[:, k] = a[:, k].copy(), a[every, row]
        pivot = a[:, k, k, None]
        a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
    return pivots


def permutation_of(pivots: Array, size: int) -> Array:
    """Which row stands where after the exchanges that the pivots say; pivots are clamped to the rows there are."""
    exchanges = pivots.reshape((math.prod(pivots.shape[:-1]), pivots.shape[-1])).clip(0, size - 1)
    if not len(exchanges):
        return np.empty((*pivots.shape[:-1], size), np.int32)
    order = np.empty((len(exchanges), size), np.int32)
    order[:] = np.arange(size)
    if len(exchanges) > pivots.shape[-1]:
        every = np.arange(len(order))
        for k, other in enumerate(exchanges.T):
            order[every, other], order[:, k] = order[:, k].copy(), order[every, other]
    else:
        for row, others in zip(order, exchanges.tolist(), strict=True):
            rows = row.tolist()
            for k, other in enumerate(others):
                rows[k], rows[other] = rows[other], rows[k]
            row[:] = rows
    return order.reshape((*pivots.shape[:-1], size))


def _lu_parts(lu: Value) -> tuple[Value, Value, int]:
    """Both factors, made square by rows and columns of the identity, and the smaller size."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    return _squared(_cut(lu, m, k)), _squared(_cut(lu, k, n)), k


def _cut(x: Value, rows: int, columns: int) -> Value:
    return movement.slice_axis(movement.slice_axis(x, x.ndim - 2, 0, rows), x.ndim - 1, 0, columns)


def _grown(x: Value, rows: int, columns: int) -> Value:
    """With zeros below and to the right."""
    config = ((0, 0, 0),) * (x.ndim - 2) + ((0, rows - x.shape[-2], 0), (0, columns - x.shape[-1], 0))
    return movement.pad(x, movement.full(0, x.dtype), padding_config=config)


def _squared(x: Value) -> Value:
    size = max(x.shape[-2:])
    grown = _grown(x, size, size)
    row, column = rows_and_columns(grown)
    beyond = elementwise.ge(row, movement.full(min(x.shape[-2:]), np.int32, grown.shape))
    one = elementwise.and_(beyond, elementwise.eq(row, column))
    return elementwise.select(one, elementwise.one_like(grown), grown)


def _permutation_matrix(permutation: Value, like: Value) -> Value:
    size = permutation.shape[-1]
    at = rows_of(permutation, size)
    column = movement.iota(shape=Shape(element_type(np.int32), at.shape), iota_dimension=at.ndim - 1)
    return elementwise.convert(elementwise.eq(at, column), new_element_type=element_type(like.dtype))


_UNIT_LOWER = {"lower": True, "unit_diagonal": True}
_UPPER = {"lower": False, "unit_diagonal": False}


def _lu_jvp(tangents: tuple[Value], ans: tuple[Value, ...], a: Value) -> tuple[Value | None, ...]:
    """Of P A = L U: with F = L^-1 P dA U^-1, dL = L tril(F) without the diagonal and dU = triu(F) U."""
    lower, upper, k = _lu_parts(ans[0])
    m, n = a.shape[-2:]
    change = matrix_product(_permutation_matrix(ans[2], a), tangents[0])
    change = triangular_solve(lower, change, left_side=True, transpose_a="NO_TRANSPOSE", **_UNIT_LOWER)
    change = triangular_solve(upper, change, left_side=False, transpose_a="NO_TRANSPOSE", **_UPPER)
    unit = elementwise.add(triangle(lower, lower=True, unit_diagonal=True), identity(lower))
    to_lower = matrix_product(unit, triangle(_cut(change, m, k), lower=True, unit_diagonal=True))
    to_upper = matrix_product(triangle(_cut(change, k, n), lower=False), triangle(upper, lower=False))
    return elementwise.add(_grown(to_lower, m, n), _grown(to_upper, m, n)), None, None


def _lu_vjp(g: tuple[Value, ...], ans: tuple[Value, ...], a: Value) -> tuple[Value]:
    lower, upper, k = _lu_parts(ans[0])
    m, n = a.shape[-2:]
    unit = elementwise.add(triangle(lower, lower=True, unit_diagonal=True), identity(lower))
    by_lower = matrix_product(transposed(unit), triangle(_cut(g[0], m, k), lower=True, unit_diagonal=True))
    by_upper = matrix_product(triangle(_cut(g[0], k, n), lower=False), transposed(triangle(upper, lower=False)))
    change = elementwise.add(
        _grown(triangle(by_lower, lower=True, unit_diagonal=True), m, n), _grown(triangle(by_upper, lower=False), m, n)
    )
    change = triangular_solve(lower, change, left_side=True, transpose_a="TRANSPOSE", **_UNIT_LOWER)
    change = triangular_solve(upper, change, left_side=False, transpose_a="TRANSPOSE", **_UPPER)
    return (matrix_product(transposed(_permutation_matrix(ans[2], a)), change),)


lu = Op(
    "LuDecomposition",
    shape=_lu_shape,
    evaluate=_lu_evaluate,
    derivative=Rules(_lu_jvp, _lu_vjp),
    batch=movement.one_more_in_front(lambda: lu),
    sharding=lambda a, **attributes: batches((a,), (2,), (2, 1, 1)),
    samples=samples_of(((3, 3), (4, 2, 2), (3, 2), (2, 3), (0, 2, 2), (2, 0)), (np.float32, np.complex64, np.float16)),
)


class PivotsToPermutation(NamedTuple):
    permutation_size: int


def _pivots_shape(pivots: AnyShape, *, permutation_size: int) -> Shape:
    shape = movement.array_operand("LuPivotsToPermutation", pivots)
    if shape.element_type.name != "s32":
        raise DTypeError(f"LuPivotsToPermutation: pivots must be s32, but got {shape}; convert them.")
    if not shape.rank or shape.dimensions[-1] > permutation_size:
        raise ShapeError(
            f"LuPivotsToPermutation: permutation_size must not be below the number of pivots, but got "
            f"{permutation_size} for {shape}."
        )
    return shape.with_dimensions((*shape.dimensions[:-1], permutation_size))


def _pivots_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, size in (((3,), 3), ((2, 2), 4), ((0,), 2), ((0, 2), 2)):
        yield Sample((random.integers(0, 2, shape).astype(np.int32),), {"permutation_size": size})


pivots_to_permutation = Op(
    "LuPivotsToPermutation",
    attributes=PivotsToPermutation,
    shape=_pivots_shape,
    evaluate=lambda pivots, *, permutation_size: permutation_of(pivots, permutation_size),
    derivative=Zero(),
    batch=movement.one_more_in_front(lambda: pivots_to_permutation),
    sharding=lambda pivots, **attributes: batches((pivots,), (1,), (1,)),
    samples=_pivots_samples,
)

# --- QR ---------------------------------------------------------------------------------------------------------------


class Qr(NamedTuple):
    full_matrices: bool  # q is square, else it has as many columns as r has rows


def _qr_shape(a: AnyShape, *, full_matrices: bool) -> TupleShape:
    shape = matrix_operand("Qr", "a", a)
    *batch, m, n = shape.dimensions
    inner = m if full_matrices else min(m, n)
    return TupleShape((shape.with_dimensions((*batch, m, inner)), shape.with_dimensions((*batch, inner, n))))


def _qr_derivative(a: Value, *, full_matrices: bool) -> Derivative:
    """Of a square Q for more rows than columns that of the product of reflectors as a function of its first columns."""
    m, n = a.shape[-2:]
    if not (full_matrices and m > n > 0):
        return Rules(_qr_jvp, _qr_vjp)
    from tinyxla.ops.linalg.linear_solve import complete_qr  # here, since it needs this module

    return Decomposition(lambda a, *, full_matrices: complete_qr(a))


def _qr_jvp(tangents: tuple[Value], ans: tuple[Value, Value], a: Value, *, full_matrices: bool) -> tuple[Value, Value]:
    """With D = dA R^-1 and M = Q* D: the change of Q inside its columns is skew, with the lower triangle of M. Of a
    wide matrix R and dA stand for their first columns, of which Q is made; then Q turns, and the other columns of R are
    those of Q* A."""
    q, r = ans
    (change, wide), steps = tangents * 2, r.shape[-2]
    if a.shape[-1] > steps:
        change, r = _cut(change, steps, steps), _cut(r, steps, steps)
    change = triangular_solve(r, change, left_side=False, transpose_a="NO_TRANSPOSE", **_UPPER)
    inside = matrix_product(adjoint(q), change)
    if a.shape[-1] > steps:
        spin = _skew(halved(inside))
        turned = elementwise.sub(matrix_product(adjoint(q), wide), matrix_product(spin, ans[1]))
        return matrix_product(q, spin), turned
    turn = elementwise.sub(_skew(halved(inside)), inside)
    return elementwise.add(change, matrix_product(q, turn)), elementwise.neg(matrix_product(turn, r))


def _qr_vjp(g: tuple[Value, Value], ans: tuple[Value, Value], a: Value, *, full_matrices: bool) -> tuple[Value]:
    q, r = ans
    turn = elementwise.sub(matrix_product(transposed(q), g[0]), matrix_product(g[1], transposed(r)))
    if a.shape[-1] > r.shape[-2]:
        steps, conjugate = r.shape[-2], elementwise.conj(q)
        first = matrix_product(conjugate, halved(_skew(turn)))
        first = triangular_solve(_cut(r, steps, steps), first, left_side=False, transpose_a="TRANSPOSE", **_UPPER)
        return (elementwise.add(_grown(first, *a.shape[-2:]), matrix_product(conjugate, g[1])),)
    inside = elementwise.sub(halved(_skew(turn)), turn)
    change = elementwise.add(g[0], matrix_product(elementwise.conj(q), inside))
    return (triangular_solve(r, change, left_side=False, transpose_a="TRANSPOSE", **_UPPER),)


qr = Op(
    "Qr",
    attributes=Qr,
    shape=_qr_shape,
    evaluate=lambda a, *, full_matrices: by_lapack(
        lambda x: tuple(np.linalg.qr(x, mode="complete" if full_matrices else "reduced")), a
    ),
    derivative=ByOperands(_qr_derivative),
    batch=movement.one_more_in_front(lambda: qr),
    sharding=lambda a, **attributes: batches((a,), (2,), (2, 2)),
    samples=samples_of(
        ((3, 3), (2, 3, 2), (2, 2, 4), (0, 2, 2)), (np.float32, np.complex64, np.float16), full_matrices=False
    ),
)

# --- eigenvalues ------------------------------------------------------------------------------------------------------


class Eigh(NamedTuple):
    lower: bool


def _eigh_shape(a: AnyShape, *, lower: bool) -> TupleShape:
    shape = square_operand("Eigh", a)
    return TupleShape((shape, Shape(_real_type(shape), shape.dimensions[:-1])))


def _eigh_jvp(tangents: tuple[Value], ans: tuple[Value, Value], a: Value, *, lower: bool) -> tuple[Value, Value]:
    """M. B. Giles, "An extended collection of matrix derivative results" (2008), section 3.1: with M = V* dA V, the
    values change by its diagonal, the vectors by V times the other elements over differences of values."""
    vectors, values = ans
    below = halved(tangents[0])
    change = elementwise.add(below, adjoint(below))
    inside = matrix_product(adjoint(vectors), matrix_product(change, vectors))
    turn = elementwise.chain_mul(inside, of_type(inverse_differences(values), vectors))
    turn = elementwise.add(turn, of_type(_undetermined_tangents(values, inside), vectors))
    return matrix_product(vectors, turn), elementwise.real(diagonal(inside))


def _eigh_vjp(g: tuple[Cotangent, Cotangent], ans: tuple[Value, Value], a: Value, *, lower: bool) -> tuple[Value]:
    vectors, values = ans
    by_vectors, by_values = g
    parts: list[Value] = []
    if by_values is not None:
        spread = rows_of(of_type(by_values, vectors), values.shape[-1])
        parts.append(elementwise.mul(spread, identity(vectors)))
    if by_vectors is not None:
        turn = matrix_product(transposed(vectors), by_vectors)
        parts.append(elementwise.chain_mul(turn, of_type(inverse_differences(values), vectors)))
    if by_values is not None and by_vectors is not None:
        parts.append(of_type(_undetermined_cotangents(values, by_values, has_phases=False), vectors))
    inside = reduce(elementwise.add, parts)
    whole = matrix_product(elementwise.conj(vectors), matrix_product(inside, transposed(vectors)))
    return (halved(elementwise.add(whole, adjoint(whole))),)


def _eigh_derivative(*, lower: bool) -> Derivative:
    if not lower:
        return Decomposition(lambda a, *, lower: eigh(adjoint(a), lower=True))
    return Rules(_eigh_jvp, _eigh_vjp, symbolic_zeros=True)


def _eigh_evaluate(a: Array, *, lower: bool) -> tuple[Array, ...]:
    return by_lapack(lambda x: tuple(reversed(np.linalg.eigh(x, "L" if lower else "U"))), a)


def _eigh_samples(random: np.random.Generator) -> Iterator[Sample]:
    """Without phases, which a difference would see."""
    for lower in (True, False):
        yield from samples_of(((3, 3), (2, 2, 2), (0, 2, 2), (0, 0)), (np.float32, np.float16), lower=lower)(random)


eigh = Op(
    "Eigh",
    attributes=Eigh,
    shape=_eigh_shape,
    evaluate=_eigh_evaluate,
    derivative=ByAttributes(_eigh_derivative),
    batch=movement.one_more_in_front(lambda: eigh),
    sharding=lambda a, **attributes: batches((a,), (2,), (2, 1)),
    samples=_eigh_samples,
)

# --- singular values --------------------------------------------------------------------------------------------------


class Svd(NamedTuple):
    full_matrices: bool  # u and vh are square


def _svd_shape(a: AnyShape, *, full_matrices: bool) -> TupleShape:
    shape = matrix_operand("Svd", "a", a)
    *batch, m, n = shape.dimensions
    k = min_dim(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    values = Shape(_real_type(shape), (*batch, k))
    return TupleShape((shape.with_dimensions((*batch, m, left)), values, shape.with_dimensions((*batch, right, n))))


def _svd_evaluate(a: Array, *, full_matrices: bool) -> tuple[Array, ...]:
    with np.errstate(invalid="ignore"):
        without_infinities = a + (a - a)  # with which LAPACK would not end: NaN instead
    return by_lapack(lambda x: tuple(np.linalg.svd(x, full_matrices)), without_infinities)


class _Spectrum(NamedTuple):
    """What both modes need of singular values s and vectors u, v."""

    u: Value
    v: Value
    s: Value  # along rows: s_j at (i, j)
    ratio: Value  # 1 / (s_j^2 - s_i^2)
    inverse: Value  # 1 / s_j, and 0 for 0

    def times(self, x: Value) -> Value:
        """x S."""
        return elementwise.mul(x, self.s)

    def over(self, x: Value) -> Value:
        """x S^-1, for vectors of any length."""
        return elementwise.mul(x, columns_of(self.inverse, x.shape[-2]))

    def outside(self, x: Value, counts: Value) -> Value:
        """x S^-1 of what is outside of the vectors, where that is determined."""
        lost = _undetermined(columns_of(_is_zero(self.inverse), x.shape[-2]), elementwise.abs_(counts))
        return elementwise.add(self.over(x), of_type(lost, x))


def _spectrum(ans: tuple[Value, Value, Value]) -> _Spectrum:
    u, values, vh = ans
    s = of_type(values, u)
    none = elementwise.eq(s, elementwise.zeros_like(s))
    one = elementwise.one_like(s)
    inverse = elementwise.select(
        none, elementwise.zeros_like(s), elementwise.div(one, elementwise.select(none, one, s))
    )
    ratio = of_type(_inverse_of_squares(values), u)
    return _Spectrum(u, adjoint(vh), columns_of(s, s.shape[-1]), ratio, inverse)


def _svd_jvp(tangents: tuple[Value], ans: tuple[Value, Value, Value], a: Value, *, full_matrices: bool) -> Any:
    """J. Townsend, "Differentiating the singular value decomposition" (2016): with C = U* dA V, the values change by
    its diagonal; the vectors turn among themselves, and towards what of the change is outside of them."""
    x, change = _spectrum(ans), tangents[0]
    inside = matrix_product(adjoint(x.u), matrix_product(change, x.v))
    scaled, other = x.times(inside), adjoint(x.times(adjoint(inside)))  # C S and S C
    to_u = elementwise.chain_mul(elementwise.add(scaled, adjoint(scaled)), x.ratio)
    to_v = elementwise.chain_mul(elementwise.add(other, adjoint(other)), x.ratio)
    lost = elementwise.add(
        _undetermined_tangents(ans[1], inside), _undetermined(_zero_pairs(ans[1]), elementwise.abs_(_skew(inside)))
    )
    lost = of_type(lost, inside)
    du = matrix_product(x.u, elementwise.add(elementwise.add(to_u, lost), _phases(x, inside)))
    dv = matrix_product(x.v, elementwise.add(to_v, lost))
    if a.shape[-2] > a.shape[-1]:
        rest = elementwise.sub(matrix_product(change, x.v), matrix_product(x.u, inside))
        du = elementwise.add(du, x.outside(rest, rest))
    if a.shape[-1] > a.shape[-2]:
        rest = elementwise.sub(matrix_product(adjoint(change), x.u), matrix_product(x.v, adjoint(inside)))
        dv = elementwise.add(dv, x.outside(rest, rest))
    return du, elementwise.real(diagonal(inside)), adjoint(dv)


def _phases(x: _Spectrum, inside: Value) -> Value:
    """The imaginary part of the diagonal over the values: the turn of complex vectors that is left to u."""
    half = movement.full(0.5, inside.dtype, inside.shape)
    return elementwise.mul(x.over(elementwise.mul(_skew(inside), half)), identity(inside))


def _svd_vjp(
    g: tuple[Cotangent, Cotangent, Cotangent], ans: tuple[Value, Value, Value], a: Value, *, full_matrices: bool
) -> tuple[Value]:
    x, (by_u, by_s, by_vh) = _spectrum(ans), g
    values = None
    if by_s is not None:
        values = elementwise.mul(rows_of(of_type(by_s, x.u), x.s.shape[-1]), identity(x.s))
        if by_u is None and by_vh is None:
            return (matrix_product(elementwise.conj(x.u), matrix_product(values, transposed(x.v))),)
        lost = _undetermined_cotangents(ans[1], by_s, elementwise.is_complex(x.u))
        values = elementwise.add(values, of_type(lost, x.u))
    by_u = elementwise.zeros_like(x.u) if by_u is None else by_u
    by_v = elementwise.zeros_like(x.v) if by_vh is None else adjoint(by_vh)
    turn_u, turn_v = matrix_product(transposed(x.u), by_u), matrix_product(transposed(x.v), by_v)
    along_u, along_v = (elementwise.chain_mul(t, x.ratio) for t in (turn_u, turn_v))
    inside = elementwise.add(
        x.times(elementwise.add(along_u, adjoint(along_u))),
        adjoint(x.times(elementwise.add(along_v, adjoint(along_v)))),
    )
    inside = elementwise.add(inside, _phases(x, turn_u))
    inside = inside if values is None else elementwise.add(inside, values)
    outside: list[Value] = []
    if a.shape[-2] > a.shape[-1]:
        rest = x.over(by_u) if by_s is None else x.outside(by_u, columns_of(by_s, by_u.shape[-2]))
        inside = elementwise.sub(inside, matrix_product(transposed(x.u), rest))
        outside.append(matrix_product(rest, transposed(x.v)))
    if a.shape[-1] > a.shape[-2]:
        rest = x.over(by_v) if by_s is None else x.outside(by_v, columns_of(by_s, by_v.shape[-2]))
        inside = elementwise.sub(inside, adjoint(matrix_product(transposed(x.v), rest)))
        outside.append(matrix_product(elementwise.conj(x.u), adjoint(rest)))
    whole = matrix_product(elementwise.conj(x.u), matrix_product(inside, transposed(x.v)))
    return (elementwise.add(whole, *outside) if outside else whole,)


def _svd_derivative(*, full_matrices: bool) -> Derivative:
    if full_matrices:
        return NotDifferentiable("the vectors that complete a basis are not unique; use full_matrices=False")
    return Rules(_svd_jvp, _svd_vjp, symbolic_zeros=True)


def _svd_samples(random: np.random.Generator) -> Iterator[Sample]:
    """Without phases, which a difference would see."""
    shapes = ((3, 3), (2, 3, 2), (2, 3), (0, 2, 2))
    yield from samples_of(shapes, (np.float32, np.float16), full_matrices=False)(random)
    yield from samples_of(shapes, (np.float32,), full_matrices=True)(random)


svd = Op(
    "Svd",
    attributes=Svd,
    shape=_svd_shape,
    evaluate=_svd_evaluate,
    derivative=ByAttributes(_svd_derivative),
    batch=movement.one_more_in_front(lambda: svd),
    sharding=lambda a, **attributes: batches((a,), (2,), (2, 1, 2)),
    samples=_svd_samples,
)
