"""Layout choice for broadcasts: transpose an operand once, where a loop would read it with a stride again and again.

- Pairwise broadcasts of short rows that are reduced, as in distances between all points of two sets: a loop over the
  points of the second set would read an element of each row, once more for each point of the first set.
- Broadcasts whose last dimension is not the last one of the operand, as in batches of outer products of columns (the
  gradients of weights for each example, where the batch is the last dimension of what the weights were applied to).
"""

from __future__ import annotations

import math

from tinyxla.compiler.rewriting import Rewriter, of_opcodes, rewrite
from tinyxla.compiler.short_rows import SHORT
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, movement, reduction

AGAIN = 16  # rows that meet all others are worth turning these
MANY = 1 << 18  # elements in all: the kernel that turns them has to be compiled
MANY_STRIDED = 1 << 14  # the same where each is read with a stride

Users = dict[Instruction, list[Instruction]]


@of_opcodes("broadcast")
def turn_what_meets(computation: Computation) -> Computation:
    """The pass: such a broadcast becomes one of the operand's transpose, which is stored (`storing.py`)."""
    users = computation.users()

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not movement.broadcast:
            return None
        dimensions = x.attributes.dimensions
        if _meets(x) and _is_reduced(x, users):
            order = (*range(len(dimensions) - 2), len(dimensions) - 1, len(dimensions) - 2)
        elif _has_stride(x) and not _is_transposed(x, users):
            order = tuple(sorted(range(len(dimensions)), key=dimensions.__getitem__))
        else:
            return None
        turned = rewriter.emit(movement.transpose, operands[0], permutation=order)
        places = tuple(dimensions[k] for k in order)
        return rewriter.emit(movement.broadcast, turned, sizes=x.array_shape.dimensions, dimensions=places)

    return rewrite(computation, visit)


def _meets(x: Instruction) -> bool:
    sizes, rank = x.array_shape.dimensions, len(x.array_shape.dimensions)
    is_last = x.attributes.dimensions[-2:] == (rank - 2, rank - 1)
    is_short = is_last and 1 < sizes[-1] < SHORT <= sizes[-2]
    return is_short and x.array_shape.size >= max(MANY, AGAIN * x.operands[0].array_shape.size)


def _has_stride(x: Instruction) -> bool:
    """Whether neighbours along the last dimension are apart in the operand, whose elements are read many times."""
    sizes, last = x.operands[0].array_shape.dimensions, x.array_shape.rank - 1
    if last not in x.attributes.dimensions[:-1]:
        return False
    place = x.attributes.dimensions.index(last)
    is_apart = sizes[place] > 1 and math.prod(sizes[place + 1 :]) > 1
    return is_apart and x.array_shape.size >= max(MANY_STRIDED, AGAIN * x.operands[0].array_shape.size)


def _is_transposed(x: Instruction, users: Users) -> bool:
    """Whether what is computed from x element by element is read in another order."""
    seen, waiting = {x}, [x]
    while waiting:
        for user in users[waiting.pop()]:
            if user.op in (movement.transpose, movement.reshape):
                return True
            if user.op.name in elementwise.NAMES and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


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
