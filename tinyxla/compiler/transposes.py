"""Transposes move towards the results, through what works on elements, and vanish in reductions and broadcasts.

What lies before a transpose is then computed in the order in which arrays are in memory; a mean over the rows of a
transposed matrix is one over the columns of the matrix. Two transposes that meet are one, or none.
"""

from __future__ import annotations

from tinyxla.compiler.rewriting import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.movement import inverse_permutation

Operands = tuple[Instruction, ...]
Ints = tuple[int, ...]


def sink_transposes(computation: Computation) -> Computation:
    """The pass."""
    return rewrite(computation, _visit)


def _visit(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
    moved = next((o for o in operands if o.op is movement.transpose), None)
    if moved is None:
        return None
    if x.op is movement.broadcast:
        return _of_broadcast(rewriter, x, moved)
    permutation: Ints = moved.attributes.permutation
    if x.op is reduction.reduce and len(operands) == 2:
        return _of_reduction(rewriter, x, operands, permutation)
    if x.op.name not in elementwise.NAMES:
        return None
    before = [_before(rewriter, o, permutation) for o in operands]
    if any(o is None for o in before):
        return None
    made = rewriter.emit(x.op, *(o for o in before if o is not None), **x.attributes._asdict())
    return rewriter.emit(movement.transpose, made, permutation=permutation)


def _before(rewriter: Rewriter, x: Instruction, permutation: Ints) -> Instruction | None:
    """What becomes x by a transpose, if that takes no other transpose."""
    if x.op is movement.transpose:
        return x.operands[0] if x.attributes.permutation == permutation else None
    if x.op is not movement.broadcast:
        return None
    back = inverse_permutation(permutation)
    sizes, dimensions = x.attributes
    sizes, dimensions = tuple(sizes[d] for d in back), tuple(permutation[d] for d in dimensions)
    return rewriter.emit(movement.broadcast, x.operands[0], sizes=sizes, dimensions=dimensions)


def _of_broadcast(rewriter: Rewriter, x: Instruction, moved: Instruction) -> Instruction:
    back = inverse_permutation(moved.attributes.permutation)
    sizes, dimensions = x.attributes
    return rewriter.emit(
        movement.broadcast, moved.operands[0], sizes=sizes, dimensions=tuple(dimensions[d] for d in back)
    )


def _of_reduction(rewriter: Rewriter, x: Instruction, operands: Operands, permutation: Ints) -> Instruction | None:
    if operands[0].op is not movement.transpose:
        return None
    reduced = tuple(permutation[d] for d in x.attributes.dimensions)
    attributes = x.attributes._replace(dimensions=tuple(sorted(reduced)))
    made = rewriter.emit(x.op, operands[0].operands[0], operands[1], **attributes._asdict())
    kept = [d for d in permutation if d not in reduced]
    order = tuple(sorted(kept).index(d) for d in kept)
    return made if list(order) == sorted(order) else rewriter.emit(movement.transpose, made, permutation=order)
