"""GEMM problem of a dot: its operands as strided batches of matrices (m, n, k, batch and the strides), if memory has
them so.

Dimensions of one role (batch, free, contracting) are collapsed to one. An operand whose dimensions of one role have no
common stride, or whose rows and columns are both strided, needs a transposing copy first; `required_permutation` is its
order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tinyxla.compiler.costs import CHUNK_OPS, TASKS
from tinyxla.hlo import Instruction
from tinyxla.ops.products import contraction

CHUNKS = TASKS  # that threads share, if the work suffices
MIN_CHUNK_MULTIPLIES = 8 * CHUNK_OPS  # multiplications that pay for one more thread


@dataclass(frozen=True)
class _StridedDimension:
    """Adjacent dimensions of an array as one: `size` elements that are `stride` elements apart."""

    size: int
    stride: int


def _collapse(sizes: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> _StridedDimension | None:
    """The dimensions, in this order, as one; None if their elements have no common stride."""
    non_unit = [d for d in dims if sizes[d] != 1]
    for d, e in pairwise(non_unit):
        if strides[d] != strides[e] * sizes[e]:
            return None
    return _StridedDimension(math.prod(sizes[d] for d in non_unit), strides[non_unit[-1]] if non_unit else 1)


@dataclass(frozen=True)
class StridedMatrices:
    """A batch of matrices in memory: strides between matrices, rows and columns, in elements. Rows or columns are
    contiguous."""

    batch: int
    row: int
    column: int
    row_major: bool  # else column-major

    @property
    def leading_dimension(self) -> int:
        """Elements between rows if row-major, between columns if column-major (the BLAS's lda)."""
        return self.row if self.row_major else self.column


@dataclass(frozen=True)
class GemmProblem:
    """C[m, n] = A[m, k] B[k, n] for each of `batch` matrices; C is row-major."""

    types: tuple[str, str, str]  # of elements of A, B and C
    batch: int
    m: int
    n: int
    k: int
    left: StridedMatrices
    right: StridedMatrices
    result: StridedMatrices

    @property
    def multiplies(self) -> int:
        """Real multiplications of one matrix of the batch."""
        return self.m * self.n * self.k * (4 if self.types[2].startswith("c") else 1)


class Gemv(NamedTuple):
    """y = M x for each matrix of a batch: the length of y, the positions of (M, x, y) among (A, B, C), whether M is
    row-major, and strides in elements, those between matrices of (M, x) first."""

    length: int
    order: tuple[int, int, int]
    row_major: bool
    batch_strides: tuple[int, int]
    leading_dimension: int
    stride_x: int
    stride_y: int


def as_gemv(p: GemmProblem) -> Gemv:
    """A problem of one column of B or one row of A: M = A and x = B, or M = B' and x = A'."""
    a, b = p.left, p.right
    if p.n == 1:
        return Gemv(p.m, (0, 1, 2), a.row_major, (a.batch, b.batch), a.leading_dimension, b.row, p.result.row)
    return Gemv(p.n, (1, 0, 2), not b.row_major, (b.batch, a.batch), b.leading_dimension, a.column, p.result.column)


def _strided_matrices(
    x: Instruction, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> StridedMatrices | None:
    """The operand as a batch of matrices; None if that takes a copy."""
    sizes = x.array_shape.dimensions
    strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    outer, row, column = (_collapse(sizes, strides, dims) for dims in (batch, rows, columns))
    if outer is None or row is None or column is None:
        return None
    batch_stride = outer.stride if outer.size > 1 else 0
    if (column.stride == 1 or column.size == 1) and row.stride >= column.size:
        return StridedMatrices(batch_stride, max(row.stride if row.size > 1 else 1, column.size), 1, True)
    if (row.stride == 1 or row.size == 1) and column.stride >= row.size:
        return StridedMatrices(batch_stride, 1, max(column.stride if column.size > 1 else 1, row.size), False)
    return None


def _roles(x: Instruction, side: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Dimension numbers of the operand (0 or 1) by role: batch, rows of its matrix, columns of its matrix."""
    dims: contraction.Dot = x.attributes
    batch, contracting = dims.batch(side), dims.contracting(side)
    free = contraction.free_dimensions(x.operands[side].array_shape.rank, contracting, batch)
    return (batch, free, contracting) if side == 0 else (batch, contracting, free)


def required_permutation(x: Instruction, side: int) -> tuple[int, ...] | None:
    """The permutation that makes the dot's operand (0 or 1) a batch of matrices; None if it is one without a copy."""
    batch, rows, columns = _roles(x, side)
    return None if _strided_matrices(x.operands[side], batch, rows, columns) else (*batch, *rows, *columns)


def gemm_problem(x: Instruction) -> GemmProblem | None:
    """The GEMM that a dot computes; None if an operand needs a copy to be a batch of matrices."""
    left, right = (_strided_matrices(x.operands[side], *_roles(x, side)) for side in (0, 1))
    if left is None or right is None:
        return None
    batch, m, n, k = contraction.matrix_sizes(x.attributes, *(o.array_shape.dimensions for o in x.operands))
    a_type, b_type, type = (y.array_shape.element_type.name for y in (*x.operands, x))
    return GemmProblem((a_type, b_type, type), batch, m, n, k, left, right, StridedMatrices(m * n, n, 1, True))
