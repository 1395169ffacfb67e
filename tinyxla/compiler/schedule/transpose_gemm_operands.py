"""Transposes of operands of products that no GEMM takes as they stand."""

from __future__ import annotations

from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.kernels.gemm.problem import required_permutation
from tinyxla.ops import movement
from tinyxla.ops.products import contraction


def transpose_gemm_operands(computation: Computation) -> Computation:
    """Transpose the operands of products that the BLAS cannot take as they stand."""
    if "dot" not in computation.opcodes:
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot:
            return None
        dims: contraction.Dot = x.attributes
        inputs = list(operands)
        for side in (0, 1):
            order = required_permutation(x, side)
            if order is not None:
                inputs[side] = rewriter.emit(movement.transpose, operands[side], permutation=order)
                place = {d: k for k, d in enumerate(order)}
                contracting, batch = dims.contracting(side), dims.batch(side)
                dims = dims.with_side(side, tuple(place[d] for d in contracting), tuple(place[d] for d in batch))
        return rewriter.emit(contraction.dot, *inputs, **dims._asdict()) if inputs != list(operands) else None

    return rewrite(computation, visit)
