"""Loop-invariant code motion: what a loop computes again and again from values that stay the same, before the loop; and
constants into it."""

from __future__ import annotations

from typing import Any

from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import movement
from tinyxla.transforms.computations import effects, subgraph, with_parameters
from tinyxla.transforms.invariants import carrying, hoisted, unchanged


@of_opcodes("while", "conditional")
@to_fixed_point
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


def with_constants(attributes: Any, operands: tuple[Instruction, ...]) -> Any:
    """A loop that makes for itself what is one number everywhere and stays, instead of reading it."""
    same = unchanged(attributes.body)
    filled = {k: o for k, (o, stays) in enumerate(zip(operands, same, strict=True)) if stays and _is_filled(o)}
    if not filled:
        return attributes
    body, condition = (_filled(c, filled) for c in (attributes.body, attributes.condition))
    outputs = [p if k in filled else x for k, (p, x) in enumerate(zip(body.parameters, body.outputs, strict=True))]
    return attributes._replace(
        condition=condition, body=subgraph(body.name, body.parameters, outputs, effects=effects(body))
    )


def _is_filled(x: Instruction) -> bool:
    scalar = x.operands[0] if x.op is movement.broadcast else x
    return scalar.op is movement.constant and not scalar.array_shape.rank


def _filled(computation: Computation, values: dict[int, Instruction]) -> Computation:
    rewriter = Rewriter()
    parameters = [rewriter.copy(p, ()) for p in computation.parameters]
    inputs = [_again(rewriter, values[k]) if k in values else p for k, p in enumerate(parameters)]
    root = rewriter.splice(computation, inputs, lambda rewriter, x, operands: None)
    return Computation(computation.name, parameters, rewriter.instructions, root)


def _again(rewriter: Rewriter, x: Instruction) -> Instruction:
    return rewriter.copy(x, [_again(rewriter, o) for o in x.operands])
