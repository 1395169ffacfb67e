"""Where each row of one array meets each of another, and rows are short: distances between all points of two sets, say.

A loop over the points of the second set would read an element of each, with gaps between them, and do so again for each
point of the first. So the second set is turned once, and the loop goes along memory.
"""

from __future__ import annotations

from tinyxla.compiler.passes.collapse_minor_dims import SHORT
from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, movement, reduction

AGAIN = 16  # rows that meet all others are worth turning these
MANY = 1 << 18  # elements in all: the kernel that turns them has to be compiled

Users = dict[Instruction, list[Instruction]]


@of_opcodes("broadcast")
def turn_what_meets(computation: Computation) -> Computation:
    """The pass: a broadcast of rows that are reduced becomes one of their transpose, which is stored (`storing.py`)."""
    users = computation.users()

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not movement.broadcast or not _meets(x) or not _is_reduced(x, users):
            return None
        *outer, one, other = x.attributes.dimensions
        order = (*range(len(outer)), len(outer) + 1, len(outer))
        turned = rewriter.emit(movement.transpose, operands[0], permutation=order)
        return rewriter.emit(
            movement.broadcast, turned, sizes=x.array_shape.dimensions, dimensions=(*outer, other, one)
        )

    return rewrite(computation, visit)


def _meets(x: Instruction) -> bool:
    sizes, rank = x.array_shape.dimensions, len(x.array_shape.dimensions)
    is_last = x.attributes.dimensions[-2:] == (rank - 2, rank - 1)
    is_short = is_last and 1 < sizes[-1] < SHORT <= sizes[-2]
    return is_short and x.array_shape.size >= max(MANY, AGAIN * x.operands[0].array_shape.size)


def _is_reduced(x: Instruction, users: Users) -> bool:
    """Whether nothing but sums over rows, or the like, is made of what is computed from x element by element."""
    seen, waiting = {x}, [x]
    while waiting:
        for user in users[waiting.pop()]:
            if user.op is reduction.reduce:
                if user.attributes.dimensions != (x.array_shape.rank - 1,):
                    return False
            elif user.op.name not in elementwise.NAMES:
                return False
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
    return True
