"""Values that are made of nothing, one for each use.

A constant of equal elements, an iota or a scalar that is broadcast costs nothing to make where it is needed; if many
instructions share one, the sharding of one of them would reach all others.

Source: XLA's pass HloConstantSplitter, which serves the same end.
"""

from __future__ import annotations

from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops import movement


def with_own_sources(computation: Computation) -> Computation:
    """The computation where each use of a value that is made of nothing has its own, in loops and branches too."""
    new: dict[Instruction, Instruction] = {}
    made: list[Instruction] = []

    def copied(x: Instruction, operands: list[Instruction]) -> Instruction:
        attributes = x.attributes
        if x.op.name in ("while", "conditional"):
            attributes = type(attributes)(**map_computations(x.attributes._asdict(), with_own_sources))
        made.append(Instruction(x.op, operands, attributes, x.shape, x.source, x.name, x.annotations, x.origin))
        return made[-1]

    for x in computation.instructions:
        operands = [copied(o, [new[k] for k in o.operands]) if _is_source(o) else new[o] for o in x.operands]
        if not _is_source(x) or x is computation.root:
            new[x] = copied(x, operands)
    return Computation(computation.name, [new[p] for p in computation.parameters], made, new[computation.root])


def _is_source(x: Instruction) -> bool:
    if x.op is movement.broadcast:
        return x.operands[0].array_shape.rank == 0
    return x.op in (movement.constant, movement.iota) and x.array_shape.rank > 0
