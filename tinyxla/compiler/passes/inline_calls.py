"""Inlining of called computations."""

from __future__ import annotations

from tinyxla.compiler.rewriter import Rewriter, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls
from tinyxla.transforms.computations import with_computations


@to_fixed_point
def inline_calls(computation: Computation) -> Computation:
    """The computation with calls replaced by the instructions of their computations, in loops and branches too;
    elements of tuples are forwarded."""
    if "call" not in computation.all_opcodes and not computation.opcodes.issuperset(("tuple", "get-tuple-element")):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name == "call":
            return rewriter.splice(x.attributes.to_apply, operands, visit, is_program_code=True)
        if x.op is calls.get_tuple_element and operands[0].op is calls.tuple_:
            return operands[0].operands[x.attributes.index]
        if any("call" in inner.all_opcodes for inner in x.computations()):
            return rewriter.emit(x.op, *operands, **with_computations(x, inline_calls))
        return None

    return rewrite(computation, visit)
