"""Loop-invariant code motion: what a loop computes again and again from values that stay the same, before the loop."""

from __future__ import annotations

from tinyxla.compiler.rewriting import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.transforms.computations import with_parameters
from tinyxla.transforms.invariants import carrying, hoisted, unchanged


def hoist(computation: Computation) -> Computation:
    """Take out of bodies and conditions what does not change, from inner loops to outer ones, and into branches."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name == "conditional":
            branches = tuple(map(hoist, x.attributes.branch_computations))
            return rewriter.emit(x.op, *operands, branch_computations=branches)
        if x.op.name != "while":
            return None
        attributes = x.attributes._replace(condition=hoist(x.attributes.condition), body=hoist(x.attributes.body))
        same, own = unchanged(attributes.body), len(operands)
        for part in ("body", "condition"):
            made = hoisted(getattr(attributes, part), (*same, *[True] * (len(operands) - own)))
            if made is None:
                continue
            before = rewriter.splice(made.before, operands, visit)
            further = before.operands
            operands = (*operands, *further)
            shapes = [o.shape for o in operands]
            if part == "body":
                body, condition = carrying(made.step, len(made.step.parameters) - len(further)), attributes.condition
                attributes = attributes._replace(body=body, condition=with_parameters(condition, shapes))
            else:
                body = carrying(with_parameters(attributes.body, shapes), len(shapes) - len(further))
                attributes = attributes._replace(body=body, condition=made.step)
        if len(operands) == own and attributes == x.attributes:
            return None
        loop = rewriter.emit(x.op, *operands, **attributes._asdict())
        return loop

    return rewrite(computation, visit)
