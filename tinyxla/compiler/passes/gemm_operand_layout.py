"""Matrices whose columns are summed over in products, as those of weights' gradients are, are turned first.

A product reads its left operand along the sum. Where memory goes on across it, a block of rows is copied for each group
of columns, from as many pages as the sum has terms. If these are many, to turn the whole matrix once takes less time.
"""

from __future__ import annotations

from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import contraction, movement

LONG = 512  # terms
LARGE = 3 << 18  # bytes of the matrix
WIDE = 128  # columns of the other one


@of_opcodes("dot")
def turn_factors(computation: Computation) -> Computation:
    """The pass; after it, transposes must not be drawn into products."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot or not _is_read_across(x):
            return None
        rank = operands[0].array_shape.rank
        turned = rewriter.emit(movement.transpose, operands[0], permutation=(*range(rank - 2), rank - 1, rank - 2))
        attributes = x.attributes._replace(lhs_contracting_dims=(rank - 1,))
        return rewriter.emit(contraction.dot, turned, operands[1], **attributes._asdict())

    return rewrite(computation, visit)


def _is_read_across(x: Instruction) -> bool:
    """Whether the terms of long sums are rows of a large matrix, which is not multiplied with itself."""
    left, dims = x.operands[0].array_shape, x.attributes
    is_across = dims.contracting(0) == (left.rank - 2,) and dims.batch(0) == tuple(range(left.rank - 2))
    if not is_across or left.element_type.name not in ("f32", "f64") or x.operands[0] is x.operands[1]:
        return False
    *_, terms, rows = left.dimensions
    columns = x.array_shape.size * terms // max(1, left.size)
    return terms >= LONG and columns >= WIDE and terms * rows * left.dtype.itemsize > LARGE
