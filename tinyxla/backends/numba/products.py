"""Products of the graph as steps of the BLAS: which dimensions make the matrices, and whether a copy is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tinyxla.hlo import Instruction
from tinyxla.ops import contraction

if TYPE_CHECKING:
    from tinyxla.backends.numba.blas import MatmulStep


@dataclass(frozen=True)
class _Strided:
    """Dimensions of an array in memory as one index: `size` steps of `stride` elements."""

    size: int
    stride: int


def _together(sizes: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> _Strided | None:
    """These dimensions, in this order, as one index, if memory has them so."""
    wide = [d for d in dims if sizes[d] != 1]
    for d, e in pairwise(wide):
        if strides[d] != strides[e] * sizes[e]:
            return None
    return _Strided(math.prod(sizes[d] for d in wide), strides[wide[-1]] if wide else 1)


@dataclass(frozen=True)
class _Matrix:
    transposed: bool
    leading: int
    step: int


def _matrix(x: Instruction, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> _Matrix | None:
    """The operand as a strided batch of matrices, if it is one without a copy."""
    sizes = x.array_shape.dimensions
    strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    step, row, column = (_together(sizes, strides, dims) for dims in (batch, rows, columns))
    if step is None or row is None or column is None:
        return None
    distance = step.stride if step.size > 1 else 0
    if (column.stride == 1 or column.size == 1) and row.stride >= column.size:
        return _Matrix(False, max(row.stride if row.size > 1 else 1, column.size), distance)
    if (row.stride == 1 or row.size == 1) and column.stride >= row.size:
        return _Matrix(True, max(column.stride if column.size > 1 else 1, row.size), distance)
    return None


def operand_order(x: Instruction, side: int) -> tuple[int, ...] | None:
    """How a product's operand (0 or 1) must be transposed to be a batch of matrices; None if it is one as it stands."""
    dims: contraction.Dot = x.attributes
    operand = x.operands[side]
    batch, contracting = dims.batch(side), dims.contracting(side)
    free = contraction.free_dimensions(operand.array_shape.rank, contracting, batch)
    rows, columns = (free, contracting) if side == 0 else (contracting, free)
    return None if _matrix(operand, batch, rows, columns) else (*batch, *rows, *columns)


def product_step(x: Instruction, repeats: int) -> MatmulStep:
    """The step for a product whose operands are batches of matrices as they stand; it runs about so often."""
    from tinyxla.backends.numba.blas import matmul_step  # here, since SciPy takes long to load and few programs need it

    dims: contraction.Dot = x.attributes
    lhs, rhs = x.operands
    left, right = lhs.array_shape, rhs.array_shape
    lhs_free = contraction.free_dimensions(left.rank, dims.lhs_contracting_dims, dims.lhs_batch_dims)
    rhs_free = contraction.free_dimensions(right.rank, dims.rhs_contracting_dims, dims.rhs_batch_dims)
    a = _matrix(lhs, dims.lhs_batch_dims, lhs_free, dims.lhs_contracting_dims)
    b = _matrix(rhs, dims.rhs_batch_dims, dims.rhs_contracting_dims, rhs_free)
    if a is None or b is None:
        raise AssertionError("operands that are no matrices are transposed before")
    m = math.prod(left.dimensions[d] for d in lhs_free)
    n = math.prod(right.dimensions[d] for d in rhs_free)
    k = math.prod(left.dimensions[d] for d in dims.lhs_contracting_dims)
    batch = math.prod(left.dimensions[d] for d in dims.lhs_batch_dims)
    return matmul_step(
        x.array_shape.element_type.name,  # pyright: ignore[reportArgumentType]
        m,
        n,
        k,
        batch=batch,
        transpose_a=a.transposed,
        transpose_b=b.transposed,
        steps=(a.step, b.step, m * n),
        leading=(a.leading, b.leading, max(n, 1)),
        repeats=repeats,
    )
