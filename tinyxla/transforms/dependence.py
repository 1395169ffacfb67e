"""Dependence analysis: which results of a computation depend on which of its parameters, through loops and branches.

It is a forward data-flow analysis to a fixed point, for each array that a loop carries by itself: a loop that carries
x and y does not make x depend on y. What is not known to be independent depends.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops.tuples import leaf_shapes

Depends = list[bool]  # for each array of a value


def dependent_results(computation: Computation, marked: Sequence[bool]) -> Depends:
    """Which results depend on the parameters that are marked.

    Args:
        computation: of arrays, with one result or a tuple of them.
        marked: for each parameter.

    Returns:
        For each result whether it depends on one of these.
    """
    values: dict[Instruction, Depends] = {p: [m] for p, m in zip(computation.parameters, marked, strict=True)}
    for x in computation.instructions:
        if x not in values:
            values[x] = _instruction(x, [values[o] for o in x.operands])
    return values[computation.root]


def _instruction(x: Instruction, operands: list[Depends]) -> Depends:
    flat = [d for operand in operands for d in operand]
    if x.op.name == "tuple":
        return flat
    if x.op.name == "get-tuple-element":
        return [operands[0][x.attributes.index]]
    if x.op.name == "while":
        return _while(x.attributes.condition, x.attributes.body, flat)
    if x.op.name == "conditional":
        found = [dependent_results(branch, flat[1:]) for branch in x.attributes.branch_computations]
        return [flat[0] or any(several) for several in zip(*found, strict=True)]
    if x.op.name == "call":
        return dependent_results(x.attributes.to_apply, flat)
    return [any(flat)] * len(leaf_shapes(x.shape))


def _while(condition: Computation, body: Computation, carry: Depends) -> Depends:
    while True:
        (stops,) = dependent_results(condition, carry)
        after = [stops or a or b for a, b in zip(carry, dependent_results(body, carry), strict=True)]
        if after == carry:
            return carry
        carry = after
