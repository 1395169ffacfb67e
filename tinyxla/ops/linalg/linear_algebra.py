"""Cholesky and TriangularSolve: factors of positive definite matrices, and systems with triangular ones.

Sources: sections "Cholesky" and "TriangularSolve" of the XLA documents. Matrices are the last two dimensions, the
others are batch dimensions. Only one triangle of a matrix is read, whatever the other one holds. What has no solution
is no error: a matrix that is not positive definite has NaN for its factor, a singular one gives infinities and NaN.

With complex numbers, tangents and cotangents pair without conjugation, as `tinyxla.ops.elementwise` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, ByAttributes, Decomposition, Derivative, Factors, Op, Rules, Sample, Value, batches
from tinyxla.ops.products import contraction
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import AnyShape, Shape, element_type

# --- products and triangles -------------------------------------------------------------------------------------------


def matrix_product(x: Value, y: Value) -> Value:
    """The matrix products of two batches."""
    batch = tuple(range(x.ndim - 2))
    return contraction.dot(
        x,
        y,
        lhs_contracting_dims=(x.ndim - 1,),
        rhs_contracting_dims=(x.ndim - 2,),
        lhs_batch_dims=batch,
        rhs_batch_dims=batch,
        preferred_element_type=None,
    )


def transposed(x: Value) -> Value:
    """The last two dimensions exchanged."""
    return movement.move_axis(x, x.ndim - 1, x.ndim - 2)


def adjoint(x: Value) -> Value:
    """Conjugated and transposed."""
    return elementwise.conj(transposed(x))


def rows_and_columns(x: Value) -> tuple[Value, Value]:
    """For each element, the numbers of its row and of its column."""
    shape = Shape(element_type(np.int32), x.shape)
    row, column = (movement.iota(shape=shape, iota_dimension=x.ndim - k) for k in (2, 1))
    return row, column


def triangle(x: Value, lower: bool, unit_diagonal: bool = False) -> Value:
    """One triangle of x and zeros; with `unit_diagonal` zeros on the diagonal, too."""
    row, column = rows_and_columns(x)
    inside, outside = (row, column) if lower else (column, row)
    compare = elementwise.gt if unit_diagonal else elementwise.ge
    return elementwise.select(compare(inside, outside), x, elementwise.zeros_like(x))


def halved(x: Value) -> Value:
    """The lower triangle with half the diagonal: what gives a Hermitian matrix when its adjoint is added."""
    row, column = rows_and_columns(x)
    half = elementwise.mul(x, movement.full(0.5, x.dtype, x.shape))
    return elementwise.select(elementwise.eq(row, column), half, triangle(x, lower=True))


def matrix_operand(name: str, what: str, x: AnyShape) -> Shape:
    shape = movement.array_operand(name, x)
    if not shape.element_type.is_inexact or (shape.element_type.kind == "float" and shape.element_type.bits < 16):
        raise DTypeError(
            f"{name}: {what} must have a floating or complex type of at least 16 bits, but got {shape}; convert it."
        )
    if shape.rank < 2:
        raise ShapeError(f"{name}: {what} must be a matrix, or several in the last two dimensions, but got {shape}.")
    return shape


def square_operand(name: str, x: AnyShape) -> Shape:
    shape = matrix_operand(name, "a", x)
    if shape.dimensions[-1] != shape.dimensions[-2]:
        raise ShapeError(f"{name}: the last two dimensions of a must be equal, but got {shape}.")
    return shape


def in_lapack_type(x: Array) -> Array:
    """In a type that LAPACK has."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def where_defined(routine: Callable[[Array], tuple[Array, ...]], batch: Array) -> tuple[Array, ...]:
    """The results for a batch of matrices, NaN for those that have none. NumPy refuses the whole batch if one has none;
    so these are looked for by halves."""
    try:
        return routine(batch)
    except np.linalg.LinAlgError:
        if len(batch) > 1:
            halves = [where_defined(routine, half) for half in np.array_split(batch, 2)]
            return tuple(map(np.concatenate, zip(*halves, strict=True)))
    some = np.eye(*batch.shape[1:], dtype=batch.dtype)[None]
    return tuple(np.full_like(x, np.nan) for x in routine(some))


# --- cholesky ---------------------------------------------------------------------------------------------------------


class Cholesky(NamedTuple):
    lower: bool


def _cholesky_evaluate(a: Array, *, lower: bool) -> Array:
    batch = in_lapack_type(a).reshape((math.prod(a.shape[:-2]), *a.shape[-2:]))
    (found,) = where_defined(lambda x: (np.linalg.cholesky(x, upper=not lower),), batch)
    return (np.tril if lower else np.triu)(found).reshape(a.shape).astype(a.dtype, copy=False)


def _cholesky_jvp(tangents: tuple[Value], ans: Value, a: Value, *, lower: bool) -> Value:
    """I. Murray, "Differentiation of the Cholesky decomposition" (2016), section 3: of A = L L*, the tangent is
    L halved(L^-1 dA L*^-1)."""
    below = halved(tangents[0])
    change = elementwise.add(below, adjoint(below))
    left = _solve_lower(ans, change)
    moved = matrix_product(ans, halved(_solve_lower(ans, left, left_side=False, transpose_a="ADJOINT")))
    return triangle(moved, lower=True)  # also where there is no factor


def _cholesky_vjp(g: Value, ans: Value, a: Value, *, lower: bool) -> tuple[Value]:
    """The transpose of that: what is on the diagonal and below of T + T*, for T = L^-T halved(L^T g) conj(L)^-1."""
    left = _solve_lower(ans, halved(matrix_product(transposed(ans), g)), transpose_a="TRANSPOSE")
    both = _solve_lower(elementwise.conj(ans), left, left_side=False)
    return (halved(elementwise.add(both, adjoint(both))),)


def _solve_lower(a: Value, b: Value, left_side: bool = True, transpose_a: str = "NO_TRANSPOSE") -> Value:
    return triangular_solve(a, b, left_side=left_side, lower=True, unit_diagonal=False, transpose_a=transpose_a)


def _by_the_lower(a: Value, *, lower: bool) -> Value:
    return adjoint(cholesky(adjoint(a), lower=True))


def _cholesky_derivative(*, lower: bool) -> Derivative:
    return Rules(_cholesky_jvp, _cholesky_vjp) if lower else Decomposition(_by_the_lower)


_TYPES = (np.float32, np.float64, np.complex64, np.complex128, element_type("bf16").dtype, np.float16)


def _cholesky_samples(random: np.random.Generator) -> Iterator[Sample]:
    for dtype in _TYPES:
        for shape in ((1, 1), (3, 3), (2, 2, 2), (0, 0), (0, 2, 2)):
            x = elementwise.sample_array(random, np.complex128 if np.dtype(dtype).kind == "c" else float, shape, -1, 1)
            a = x @ np.swapaxes(x.conj(), -1, -2) + shape[-1] * np.eye(shape[-1])
            unread = elementwise.sample_array(random, np.float64, shape, -9, 9)
            for lower in (True, False):
                given = a + (np.triu(unread, 1) if lower else np.tril(unread, -1))
                yield Sample((given.astype(dtype),), {"lower": lower})
    yield Sample((np.array([[[1, np.nan], [2, -5]], [[4, np.nan], [2, 5]]], np.float32),), {"lower": True})


cholesky = Op(
    "cholesky",
    attributes=Cholesky,
    shape=lambda a, *, lower: square_operand("cholesky", a),
    evaluate=_cholesky_evaluate,
    derivative=ByAttributes(_cholesky_derivative),
    batch=movement.one_more_in_front(lambda: cholesky),
    sharding=lambda a, **attributes: batches((a,), (2,), (2,)),
    samples=_cholesky_samples,
)

# --- triangular-solve -------------------------------------------------------------------------------------------------


class TriangularSolve(NamedTuple):
    left_side: bool
    lower: bool
    unit_diagonal: bool
    transpose_a: str  # NO_TRANSPOSE, TRANSPOSE or ADJOINT

    def system(self, a: Array, b: Array) -> tuple[Array, Array, bool]:
        """The equations as (matrix, right-hand sides, whether the matrix is lower triangular), the unknowns from the
        left."""
        flip = (self.transpose_a == "NO_TRANSPOSE") != self.left_side
        conjugated = a.conj() if self.transpose_a == "ADJOINT" else a
        matrix = np.swapaxes(conjugated, -1, -2) if flip else conjugated
        return matrix, b if self.left_side else np.swapaxes(b, -1, -2), self.lower != flip


_TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _triangular_solve_shape(a: AnyShape, b: AnyShape, **attributes: Any) -> Shape:
    name, options = "triangular-solve", TriangularSolve(**attributes)
    if options.transpose_a not in _TRANSPOSES:
        raise AttributeValueError(
            f"{name}: transpose_a must be one of {', '.join(_TRANSPOSES)}, but got {options.transpose_a!r}."
        )
    return system_operands(name, a, b, options.left_side)


def system_operands(name: str, a: AnyShape, b: AnyShape, left_side: bool = True) -> Shape:
    """The shape of the solutions, if that of the right-hand sides fits the matrices."""
    matrix, sides = square_operand(name, a), matrix_operand(name, "b", b)
    if matrix.element_type is not sides.element_type:
        raise DTypeError(f"{name}: a and b must have one element type, but got {matrix} and {sides}; convert one.")
    if matrix.dimensions[:-2] != sides.dimensions[:-2]:
        raise ShapeError(
            f"{name}: a and b must have equal batch dimensions, but got {matrix} and {sides}; broadcast one."
        )
    shared = -2 if left_side else -1
    if sides.dimensions[shared] != matrix.dimensions[-1]:
        raise ShapeError(
            f"{name}: with left_side={left_side}, dimension {shared} of b must have the size of a, but got "
            f"{matrix} and {sides}."
        )
    return sides


def _triangular_solve_evaluate(a: Array, b: Array, **attributes: Any) -> Array:
    """Large matrices one by one with the BLAS, many small ones row by row of all together: what takes fewer steps."""
    options = TriangularSolve(**attributes)
    if b.size == 0:
        return np.array(b)
    wide_a, wide_b = (in_lapack_type(x).reshape((-1, *x.shape[-2:])) for x in (a, b))
    together = len(wide_a) > a.shape[-1]
    solved = _substituted(wide_a, wide_b, options) if together else _by_blas(wide_a, wide_b, options)
    return solved.reshape(b.shape).astype(b.dtype, copy=False)


@cache
def _trsm(dtype: np.dtype[Any]) -> Any:
    """The BLAS's trsm for an element type, found once."""
    with requiring("scipy.linalg.blas", "SciPy", "triangular-solve"):
        from scipy.linalg.blas import get_blas_funcs  # here, since importing it costs more than importing this package

    return get_blas_funcs("trsm", dtype=dtype)


def _by_blas(a: Array, b: Array, options: TriangularSolve) -> Array:
    """Row-major matrices are their own transposes to the BLAS, which swaps the sides and the triangles."""
    solve = _trsm(b.dtype)
    solved = [
        solve(
            1.0,
            matrix.T,
            sides.T,
            side=options.left_side,
            lower=not options.lower,
            trans_a=_TRANSPOSES.index(options.transpose_a),
            diag=options.unit_diagonal,
        ).T
        for matrix, sides in zip(a, b, strict=True)
    ]
    return np.array(solved)


def _substituted(a: Array, b: Array, options: TriangularSolve) -> Array:
    matrix, sides, lower = options.system(a, b)
    x = np.empty_like(sides)
    size = matrix.shape[-1]
    for row in range(size) if lower else reversed(range(size)):
        known = slice(0, row) if lower else slice(row + 1, size)
        rest = sides[:, row, :] - np.einsum("bk,bkn->bn", matrix[:, row, known], x[:, known, :])
        x[:, row, :] = rest if options.unit_diagonal else rest / matrix[:, row, row, None]
    return x if options.left_side else np.swapaxes(x, -1, -2)


def _transposed_system(a: Value, options: TriangularSolve) -> tuple[Value, TriangularSolve]:
    """The matrix and the options that solve with the transpose of op(a)."""
    if options.transpose_a == "NO_TRANSPOSE":
        return a, options._replace(transpose_a="TRANSPOSE")
    matrix = elementwise.conj(a) if options.transpose_a == "ADJOINT" else a
    return matrix, options._replace(transpose_a="NO_TRANSPOSE")


def _applied(a: Value, options: TriangularSolve) -> Value:
    """op(a)."""
    return {"NO_TRANSPOSE": lambda x: x, "TRANSPOSE": transposed, "ADJOINT": adjoint}[options.transpose_a](a)


def _triangular_solve_jvp(
    tangents: tuple[Value | None, ...], ans: Value, a: Value, b: Value, **attributes: Any
) -> Value:
    """Of op(a) x = b: op(a) dx = db - op(da) x, where da has the one triangle that is read."""
    options, (by_a, by_b) = TriangularSolve(**attributes), tangents
    if by_a is None:
        return triangular_solve(a, by_b, **attributes)
    change = _applied(triangle(by_a, options.lower, options.unit_diagonal), options)
    moved = matrix_product(change, ans) if options.left_side else matrix_product(ans, change)
    return triangular_solve(a, elementwise.neg(moved) if by_b is None else elementwise.sub(by_b, moved), **attributes)


def _triangular_solve_vjp(g: Value, ans: Value, a: Value, b: Value, **attributes: Any) -> tuple[Value, Value]:
    options = TriangularSolve(**attributes)
    matrix, turned = _transposed_system(a, options)
    to_b = triangular_solve(matrix, g, **turned._asdict())
    outer = matrix_product(to_b, transposed(ans)) if options.left_side else matrix_product(transposed(ans), to_b)
    to_a = _applied(elementwise.neg(outer), options)
    return triangle(to_a, options.lower, options.unit_diagonal), to_b


def _triangular_solve_batch(
    size: int, operands: tuple[Value, Value], axes: tuple[int | None, int | None], **attributes: Any
) -> tuple[Value, int]:
    solve = partial(triangular_solve, **attributes)
    return batched_system(solve, attributes["left_side"], size, operands, axes)


def batched_system(
    solve: Callable[[Value, Value], Value],
    left_side: bool,
    size: int,
    operands: tuple[Value, Value],
    axes: tuple[int | None, int | None],
) -> tuple[Value, int]:
    """With one matrix for all, the mapped right-hand sides stand next to each other."""
    (a, b), (left, right) = operands, axes
    if left is not None:
        return solve(*(movement.align_axis(x, axis, 0, size) for x, axis in ((a, left), (b, right)))), 0
    assert right is not None
    along = a.ndim - 1 if left_side else a.ndim - 2  # of the result, where the mapped axis is put
    beside = movement.move_axis(b, right, along)
    merged = (*beside.shape[:along], size * beside.shape[along + 1], *beside.shape[along + 2 :])
    solved = solve(a, movement.reshape_to(beside, merged))
    return movement.reshape_to(solved, beside.shape), along


def _triangular_solve_samples(random: np.random.Generator) -> Iterator[Sample]:
    def sample(dtype: Any, batch: tuple[int, ...], m: int, k: int, options: TriangularSolve) -> Sample:
        a = elementwise.sample_array(random, dtype, (*batch, m, m), -1, 1) + (2 * np.eye(m)).astype(dtype)
        shape = (*batch, m, k) if options.left_side else (*batch, k, m)
        return Sample((a, elementwise.sample_array(random, dtype, shape, -1, 1)), options._asdict())

    for dtype in _TYPES:
        for transpose_a in _TRANSPOSES:
            yield sample(dtype, (), 3, 2, TriangularSolve(True, dtype == np.float32, False, transpose_a))
    for left_side in (True, False):
        for lower in (True, False):
            for unit_diagonal in (True, False):
                for transpose_a in _TRANSPOSES:
                    options = TriangularSolve(left_side, lower, unit_diagonal, transpose_a)
                    yield sample(np.complex64 if lower else np.float32, (3,) if unit_diagonal else (), 2, 1, options)
    for batch, m, k in (((0,), 2, 1), ((2,), 0, 3), ((), 2, 0), ((2, 3), 1, 1)):
        yield sample(np.float32, batch, m, k, TriangularSolve(True, True, False, "NO_TRANSPOSE"))
    singular = np.array([[0, np.nan], [1, 2]], np.float32), np.array([[1], [1]], np.float32)
    yield Sample(singular, TriangularSolve(True, True, False, "NO_TRANSPOSE")._asdict())


def _triangular_solve_factors(a: Shape, b: Shape, *, left_side: bool, **attributes: Any) -> Factors:
    """Systems of a batch, and their right-hand sides, which are columns of b, or rows."""
    sides = (None, b.rank - 1) if left_side else (b.rank - 2, None)
    own = (*range(b.rank - 2), *sides)
    return Factors(((*range(b.rank - 2), None, None), own), (own,))


triangular_solve = Op(
    "triangular-solve",
    sharding=_triangular_solve_factors,
    attributes=TriangularSolve,
    shape=_triangular_solve_shape,
    evaluate=_triangular_solve_evaluate,
    derivative=Rules(_triangular_solve_jvp, _triangular_solve_vjp),
    batch=_triangular_solve_batch,
    samples=_triangular_solve_samples,
)
