"""Products of the graph as products of matrices: which dimensions make these, and whether a copy is needed; also as
steps of the BLAS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tinyxla.hlo import Instruction
from tinyxla.ops import contraction


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
class Matrices:
    """A batch of matrices in memory: how far apart they, their rows and their columns are, in elements."""

    batch: int
    row: int
    column: int
    by_rows: bool  # whether rows are contiguous; if not, columns are

    @property
    def distance(self) -> int:
        """Between rows, or columns."""
        return self.row if self.by_rows else self.column


@dataclass(frozen=True)
class MatrixProduct:
    """[m, k] by [k, n], so many times; a result is dense."""

    batch: int
    m: int
    n: int
    k: int
    left: Matrices
    right: Matrices


def _matrices(x: Instruction, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Matrices | None:
    """The operand as a batch of matrices, if it is one without a copy."""
    sizes = x.array_shape.dimensions
    strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    step, row, column = (_together(sizes, strides, dims) for dims in (batch, rows, columns))
    if step is None or row is None or column is None:
        return None
    distance = step.stride if step.size > 1 else 0
    if (column.stride == 1 or column.size == 1) and row.stride >= column.size:
        return Matrices(distance, max(row.stride if row.size > 1 else 1, column.size), 1, True)
    if (row.stride == 1 or row.size == 1) and column.stride >= row.size:
        return Matrices(distance, 1, max(column.stride if column.size > 1 else 1, row.size), False)
    return None


def _roles(x: Instruction, side: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """The dimensions of a product's operand (0 or 1) that are batch, rows and columns."""
    dims: contraction.Dot = x.attributes
    batch, contracting = dims.batch(side), dims.contracting(side)
    free = contraction.free_dimensions(x.operands[side].array_shape.rank, contracting, batch)
    return (batch, free, contracting) if side == 0 else (batch, contracting, free)


def operand_order(x: Instruction, side: int) -> tuple[int, ...] | None:
    """How a product's operand (0 or 1) must be transposed to be a batch of matrices; None if it is one as it stands."""
    batch, rows, columns = _roles(x, side)
    return None if _matrices(x.operands[side], batch, rows, columns) else (*batch, *rows, *columns)


def product_of(x: Instruction) -> MatrixProduct | None:
    """What a dot multiplies, if its operands are batches of matrices as they stand."""
    left, right = (_matrices(x.operands[side], *_roles(x, side)) for side in (0, 1))
    if left is None or right is None:
        return None
    sizes = contraction.matrix_sizes(x.attributes, *(o.array_shape.dimensions for o in x.operands))
    return MatrixProduct(*sizes, left, right)
