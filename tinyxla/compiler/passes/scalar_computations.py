"""Canonical form of scalar computations: the combiners, comparators and the like of reductions, windows and sorts,
which kernels emit inline.
"""

from __future__ import annotations

from functools import lru_cache

from tinyxla.compiler.analysis.regions import REGIONS
from tinyxla.compiler.passes.canonicalize.dot import as_multiply_reduce, convert_to
from tinyxla.compiler.passes.expand import expand
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops.products import contraction


def prepare_scalar_computations(computation: Computation) -> Computation:
    """The computation with its scalar computations in the form that `Lowering.apply` emits: no calls, no composite
    ops, and dots as sums of products. Computations of loops and branches are not included."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not _has_scalar_computations(x):
            return None
        attributes = map_computations(x.attributes._asdict(), _prepared)
        return rewriter.emit(x.op, *operands, **attributes) if attributes != x.attributes._asdict() else None

    return rewrite(computation, visit) if any(map(_has_scalar_computations, computation.instructions)) else computation


def _has_scalar_computations(x: Instruction) -> bool:
    return x.op.name not in (*REGIONS, "lanes") and any(x.computations())


@lru_cache(1024)
def _prepared(computation: Computation) -> Computation:
    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is contraction.dot:
            lhs, rhs = (convert_to(rewriter, o, x.array_shape.element_type) for o in operands)
            return as_multiply_reduce(rewriter, lhs, rhs, x.attributes, x.array_shape)
        if any(x.computations()):
            return rewriter.emit(x.op, *operands, **map_computations(x.attributes._asdict(), _prepared))
        return None

    return rewrite(inline_calls(expand(computation)), visit)
