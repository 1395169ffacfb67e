"""Loop-invariant code motion: instructions of loops that depend on invariant values only are computed before the
loop; constants are rematerialized inside.
"""

from __future__ import annotations

from typing import Any

from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import movement
from tinyxla.transforms.computations import effects, subgraph, with_parameters
from tinyxla.transforms.invariants import carrying, hoisted, unchanged


@for_opcodes("while", "conditional")
@to_fixed_point
def hoist_loop_invariants(computation: Computation) -> Computation:
    """Hoist invariant code out of bodies and conditions, inner loops first; visits branches, too."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name == "conditional":
            branches = tuple(map(hoist_loop_invariants, x.attributes.branch_computations))
            return rewriter.emit(x.op, *operands, branch_computations=branches)
        if x.op.name != "while":
            return None
        attributes = x.attributes._replace(
            condition=hoist_loop_invariants(x.attributes.condition), body=hoist_loop_invariants(x.attributes.body)
        )
        is_invariant, carried_count = unchanged(attributes.body), len(operands)
        for region in ("body", "condition"):
            split = hoisted(getattr(attributes, region), (*is_invariant, *[True] * (len(operands) - carried_count)))
            if split is None:
                continue
            hoisted_tuple = rewriter.splice(split.before, operands, rewriter.visit)
            hoisted_values = hoisted_tuple.operands
            operands = (*operands, *hoisted_values)
            shapes = [o.shape for o in operands]
            if region == "body":
                body, condition = (
                    carrying(split.step, len(split.step.parameters) - len(hoisted_values)),
                    attributes.condition,
                )
                attributes = attributes._replace(body=body, condition=with_parameters(condition, shapes))
            else:
                body = carrying(with_parameters(attributes.body, shapes), len(shapes) - len(hoisted_values))
                attributes = attributes._replace(body=body, condition=split.step)
        if len(operands) == carried_count and attributes == x.attributes:
            return None
        loop = rewriter.emit(x.op, *operands, **attributes._asdict())
        return loop

    return rewrite(computation, visit)


def sink_constants(attributes: Any, operands: tuple[Instruction, ...]) -> Any:
    """The attributes of a loop that rematerializes invariant splat constants instead of carrying them."""
    is_invariant = unchanged(attributes.body)
    splats = {
        k: o for k, (o, invariant) in enumerate(zip(operands, is_invariant, strict=True)) if invariant and _is_splat(o)
    }
    if not splats:
        return attributes
    body, condition = (_with_splats(c, splats) for c in (attributes.body, attributes.condition))
    outputs = [p if k in splats else x for k, (p, x) in enumerate(zip(body.parameters, body.outputs, strict=True))]
    return attributes._replace(
        condition=condition, body=subgraph(body.name, body.parameters, outputs, effects=effects(body))
    )


def _is_splat(x: Instruction) -> bool:
    scalar = x.operands[0] if x.op is movement.broadcast else x
    return scalar.op is movement.constant and not scalar.array_shape.rank


def _with_splats(computation: Computation, splats: dict[int, Instruction]) -> Computation:
    rewriter = Rewriter()
    parameters = [rewriter.copy(p, ()) for p in computation.parameters]
    inputs = [_rematerialize(rewriter, splats[k]) if k in splats else p for k, p in enumerate(parameters)]
    root = rewriter.splice(computation, inputs, lambda rewriter, x, operands: None)
    return Computation(computation.name, parameters, rewriter.instructions, root)


def _rematerialize(rewriter: Rewriter, x: Instruction) -> Instruction:
    return rewriter.copy(x, [_rematerialize(rewriter, o) for o in x.operands])
