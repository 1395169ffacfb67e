"""Layout assignment: transposes that give an operand the minor dimension along which its consumer reads.

Three consumers ask for a layout, and get it where one transpose costs less than strided reads:

- A pairwise broadcast combines every row of A with every row of B and is reduced over the row, as distances between all
  points of two sets are. If rows are short, B is transposed once, so that the inner loop over the rows of B has unit
  stride. Does not apply unless every result is an elementwise function reduced over the row.
- A broadcast whose last dimension is not the last one of its operand, as in batches of outer products of columns (the
  gradients of weights for each example). Does not apply where the result is transposed or reshaped again.
- A matrix product whose left operand is contracted over its rows (a gradient of weights). Packing would copy a block of
  it for each group of columns, from as many pages as the sum has terms. If these are many, the matrix is transposed
  once. Does not apply to small matrices, to batch dimensions that are not leading, and to A' A.

Input and output are computations of the same values; the transposes that are put in are materialized
(`fusion.materialize`). No later pass may sink them into the product again.
"""

from __future__ import annotations

import math

from tinyxla.compiler.costs import L2_BYTES, L2_ELEMENTS, LONG_ROW, MIN_REUSE, PARALLEL_CHUNK_ELEMENTS, VECTOR_ELEMENTS
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.products import contraction

Users = dict[Instruction, list[Instruction]]


@for_opcodes("broadcast")
def assign_broadcast_layouts(computation: Computation) -> Computation:
    """Transpose the operands of pairwise broadcasts of short rows that are reduced, and of strided broadcasts."""
    users = computation.users()

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not movement.broadcast:
            return None
        dimensions = x.attributes.dimensions
        if _is_pairwise(x) and _is_reduced_over_rows(x, users):
            permutation = (*range(len(dimensions) - 2), len(dimensions) - 1, len(dimensions) - 2)
        elif _is_strided(x) and not _is_transposed_again(x, users):
            permutation = tuple(sorted(range(len(dimensions)), key=dimensions.__getitem__))
        else:
            return None
        transposed = rewriter.emit(movement.transpose, operands[0], permutation=permutation)
        dimensions = tuple(dimensions[k] for k in permutation)
        return rewriter.emit(movement.broadcast, transposed, sizes=x.array_shape.dimensions, dimensions=dimensions)

    return rewrite(computation, visit)


def _is_pairwise(x: Instruction) -> bool:
    """Whether a broadcast repeats short rows, which are its last dimension, often enough."""
    sizes, rank = x.array_shape.dimensions, x.array_shape.rank
    keeps_rows = x.attributes.dimensions[-2:] == (rank - 2, rank - 1)
    has_short_rows = keeps_rows and 1 < sizes[-1] < VECTOR_ELEMENTS <= sizes[-2]
    min_size = max(L2_ELEMENTS, MIN_REUSE * x.operands[0].array_shape.size)
    return has_short_rows and x.array_shape.size >= min_size


def _is_strided(x: Instruction) -> bool:
    """Whether a broadcast reads neighbours along its last dimension with a stride, each of them many times."""
    sizes, last = x.operands[0].array_shape.dimensions, x.array_shape.rank - 1
    if last not in x.attributes.dimensions[:-1]:
        return False
    minor = x.attributes.dimensions.index(last)
    has_stride = sizes[minor] > 1 and math.prod(sizes[minor + 1 :]) > 1
    return has_stride and x.array_shape.size >= max(PARALLEL_CHUNK_ELEMENTS, MIN_REUSE * x.operands[0].array_shape.size)


def _is_transposed_again(x: Instruction, users: Users) -> bool:
    """Whether an elementwise consumer of x is transposed or reshaped."""
    seen, pending = {x}, [x]
    while pending:
        for user in users[pending.pop()]:
            if user.op in (movement.transpose, movement.reshape):
                return True
            if user.op.name in elementwise.NAMES and user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def _is_reduced_over_rows(x: Instruction, users: Users) -> bool:
    """Whether all elementwise consumers of x end in reductions over the last dimension."""
    seen, pending = {x}, [x]
    while pending:
        for user in users[pending.pop()]:
            if user.op is reduction.reduce:
                if user.attributes.dimensions != (x.array_shape.rank - 1,):
                    return False
            elif user.op.name not in elementwise.NAMES:
                return False
            elif user not in seen:
                seen.add(user)
                pending.append(user)
    return True


@for_opcodes("dot")
def assign_gemm_layouts(computation: Computation) -> Computation:
    """Transpose large left operands of deep matrix products that are contracted over their rows."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot or not _contracts_rows_of_large_lhs(x):
            return None
        rank = operands[0].array_shape.rank
        permutation = (*range(rank - 2), rank - 1, rank - 2)
        transposed = rewriter.emit(movement.transpose, operands[0], permutation=permutation)
        attributes = x.attributes._replace(lhs_contracting_dims=(rank - 1,))
        return rewriter.emit(contraction.dot, transposed, operands[1], **attributes._asdict())

    return rewrite(computation, visit)


def _contracts_rows_of_large_lhs(x: Instruction) -> bool:
    lhs, dims = x.operands[0].array_shape, x.attributes
    contracts_rows = dims.contracting(0) == (lhs.rank - 2,) and dims.batch(0) == tuple(range(lhs.rank - 2))
    if not contracts_rows or lhs.element_type.name not in ("f32", "f64") or x.operands[0] is x.operands[1]:
        return False
    *_, depth, rows = lhs.dimensions
    columns = x.array_shape.size * depth // max(1, lhs.size)
    is_large = depth * rows * lhs.dtype.itemsize > 3 * L2_BYTES // 4  # the cache holds panels of the rhs, too
    return depth >= 4 * LONG_ROW and columns >= LONG_ROW and is_large
