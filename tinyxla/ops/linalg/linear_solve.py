"""Systems of linear equations with square matrices, by their factors L U.

One op rather than its parts: the derivative of a solution is that of another system with the same matrix, and needs no
derivative of the factors. The factors themselves are computed once: a compiled program shares equal operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.ops import elementwise, indexing, movement, reduction
from tinyxla.ops.linalg.factorizations import identity, lu, qr, solved_one_by_one
from tinyxla.ops.linalg.linear_algebra import (
    adjoint,
    batched_system,
    matrix_product,
    rows_and_columns,
    system_operands,
    transposed,
    triangular_solve,
)
from tinyxla.ops.movement import broadcast
from tinyxla.ops.op import Array, Op, Rules, Sample, Value
from tinyxla.shapes import AnyShape, Shape


class Solve(NamedTuple):
    transpose_a: bool  # a is the transpose of what multiplies the unknowns


_LOWER = {"left_side": True, "lower": True, "unit_diagonal": True}
_UPPER = {"left_side": True, "lower": False, "unit_diagonal": False}


def _solve_shape(a: AnyShape, b: AnyShape, *, transpose_a: bool) -> Shape:
    return system_operands("Solve", a, b)


def solved_by_factors(factors: Value, permutation: Value, b: Value, transpose_a: bool = False) -> Value:
    """With P a = L U, the x of a x = b or of a' x = b."""
    if transpose_a:
        upper = triangular_solve(factors, b, transpose_a="TRANSPOSE", **_UPPER)
        lower = triangular_solve(factors, upper, transpose_a="TRANSPOSE", **_LOWER)
        return _rows_at(lower, _inverted(permutation))
    lower = triangular_solve(factors, _rows_at(b, permutation), transpose_a="NO_TRANSPOSE", **_LOWER)
    return triangular_solve(factors, lower, transpose_a="NO_TRANSPOSE", **_UPPER)


def _rows_at(x: Value, numbers: Value) -> Value:
    """The rows of these numbers."""
    batch, rows = tuple(range(x.ndim - 2)), x.ndim - 2
    return (
        x
        if 0 in x.shape
        else indexing.gather(
            x,
            numbers,
            offset_dims=(x.ndim - 1,),
            collapsed_slice_dims=(rows,),
            start_index_map=(rows,),
            index_vector_dim=numbers.ndim,
            slice_sizes=(*(1 for _ in batch), 1, x.shape[-1]),
            operand_batching_dims=batch,
            start_indices_batching_dims=batch,
            indices_are_sorted=False,
        )
    )


def _inverted(permutation: Value) -> Value:
    at = broadcast(permutation, sizes=(*permutation.shape, permutation.shape[-1]), dimensions=range(permutation.ndim))
    row, column = rows_and_columns(at)
    here = elementwise.eq(at, column)
    return reduction.reduce_sum(elementwise.select(here, row, elementwise.zeros_like(row)), (permutation.ndim - 1,))


def _solve_expand(a: Value, b: Value, *, transpose_a: bool) -> Value:
    factors, _, permutation = lu(a)
    return solved_by_factors(factors, permutation, b, transpose_a)


def _solve_evaluate(a: Array, b: Array, *, transpose_a: bool) -> Array:
    """One matrix after the other, or all of them together: what takes fewer steps."""
    if b.size and math.prod(a.shape[:-2]) <= a.shape[-1]:
        return solved_one_by_one(a, b, transpose_a)
    factors, _, order = lu.evaluate(a)
    if transpose_a:
        upper = triangular_solve.evaluate(factors, b, transpose_a="TRANSPOSE", **_UPPER)
        lower = triangular_solve.evaluate(factors, upper, transpose_a="TRANSPOSE", **_LOWER)
        return np.take_along_axis(lower, np.argsort(order, -1)[..., None], -2)
    given = np.take_along_axis(b, order[..., None], -2)
    lower = triangular_solve.evaluate(factors, given, transpose_a="NO_TRANSPOSE", **_LOWER)
    return triangular_solve.evaluate(factors, lower, transpose_a="NO_TRANSPOSE", **_UPPER)


def _solve_jvp(
    tangents: tuple[Value | None, Value | None], ans: Value, a: Value, b: Value, *, transpose_a: bool
) -> Value:
    """Of a x = b: a dx = db - da x."""
    by_a, change = tangents
    if by_a is not None:
        moved = matrix_product(transposed(by_a) if transpose_a else by_a, ans)
        change = elementwise.neg(moved) if change is None else elementwise.sub(change, moved)
    return solve(a, change, transpose_a=transpose_a)


def _solve_vjp(g: Value, ans: Value, a: Value, b: Value, *, transpose_a: bool) -> tuple[Value, Value]:
    to_b = solve(a, g, transpose_a=not transpose_a)
    left, right = (ans, to_b) if transpose_a else (to_b, ans)
    return elementwise.neg(matrix_product(left, transposed(right))), to_b


def _solve_batch(
    size: int, operands: tuple[Value, Value], axes: tuple[int | None, int | None], **attributes: Any
) -> tuple[Value, int]:
    return batched_system(lambda a, b: solve(a, b, **attributes), True, size, operands, axes)


def _solve_samples(generator: np.random.Generator) -> Iterator[Sample]:
    for dtype in (np.float32, np.complex64, np.float16):
        for batch, n, k in (((), 3, 2), ((2,), 2, 1), ((0,), 2, 1), ((), 0, 2), ((2,), 2, 0)):
            for transpose_a in (False, True):
                a = elementwise.sample_array(generator, dtype, (*batch, n, n), -1, 1) + (3 * np.eye(n)).astype(dtype)
                b = elementwise.sample_array(generator, dtype, (*batch, n, k), -1, 1)
                yield Sample((a[..., ::-1, :].copy(), b), {"transpose_a": transpose_a})


solve = Op(
    "Solve",
    attributes=Solve,
    shape=_solve_shape,
    evaluate=_solve_evaluate,
    expand=_solve_expand,
    derivative=Rules(_solve_jvp, _solve_vjp),
    batch=_solve_batch,
    samples=_solve_samples,
)


def complete_qr(a: Value) -> tuple[Value, Value]:
    """QR with a square Q for more rows than columns, by the first columns of Q: of a product of Householder reflectors
    I - Y T Y* whose first columns are [B + I; C], the others are [B W; I + C W] with W = (B*)^-1 C* (as Y and T follow
    from these by an LU factorization: G. Ballard et al., Reconstructing Householder vectors from tall-skinny QR, IPDPS
    2014)."""
    m, n = a.shape[-2:]
    q, r = qr(a, full_matrices=False)
    rows = q.ndim - 2
    first, low = movement.slice_axis(q, rows, 0, n), movement.slice_axis(q, rows, n, m)
    top = elementwise.sub(first, identity(first))
    w = solve(adjoint(top), adjoint(low), transpose_a=False)
    lower = matrix_product(low, w)
    others = movement.concatenate(matrix_product(top, w), elementwise.add(lower, identity(lower)), dimension=rows)
    zeros = movement.full(0, a.dtype, (*a.shape[:-2], m - n, n))
    return movement.concatenate(q, others, dimension=rows + 1), movement.concatenate(r, zeros, dimension=rows)
