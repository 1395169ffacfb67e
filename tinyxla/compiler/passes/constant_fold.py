"""Constant folding."""

from __future__ import annotations

import numpy as np

from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, is_unique, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import elementwise, movement
from tinyxla.ops.distributed.process_collectives import is_message
from tinyxla.ops.numerics.arithmetic import evaluator
from tinyxla.shapes import Shape


@for_opcodes("constant")
def fold_constants(computation: Computation) -> Computation:
    """The computation with instructions of small constant operands evaluated."""
    max_elements = 1024

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not operands or not isinstance(x.shape, Shape) or x.op is movement.broadcast:
            return None
        scalars = [scalar_value(o) for o in operands] if x.op.name in elementwise.NAMES and x.shape.rank else [None]
        if all(value is not None for value in scalars):  # a splat
            with np.errstate(all="ignore"):
                value = evaluator(x)(*map(np.asarray, scalars))
            scalar = rewriter.emit(movement.constant, literal=Literal(np.asarray(value).reshape(())))
            return rewriter.emit(movement.broadcast, scalar, sizes=x.shape.dimensions, dimensions=())
        if any(o.op is not movement.constant for o in operands) or is_unique(x) or is_message(x):
            return None
        keeps_size = x.op in (movement.concatenate, movement.reshape)  # never larger than their operands
        if not keeps_size and max(x.shape.size, *(o.array_shape.size for o in operands)) > max_elements:
            return None
        with np.errstate(all="ignore"):
            value = evaluator(x)(*(o.attributes.literal.value for o in operands))
        return rewriter.emit(movement.constant, literal=Literal(np.asarray(value)))

    return rewrite(computation, visit)
