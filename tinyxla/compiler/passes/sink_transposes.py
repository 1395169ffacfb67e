"""Transposes move towards the results, through what works on elements, and vanish in reductions and broadcasts.

What lies before a transpose is then computed in the order in which arrays are in memory; a mean over the rows of a
transposed matrix is one over the columns of the matrix. Two transposes that meet are one, or none. A loop that takes,
or makes, parts of a transposed array does so with what is transposed, if such a part lies together there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.compiler.analysis.scalarization import is_allocation
from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, movement, reduction
from tinyxla.ops.movement import inverse_permutation

Operands = tuple[Instruction, ...]
Users = dict[Instruction, list[Instruction]]
Ints = tuple[int, ...]


@of_opcodes("transpose")
def sink_transposes(computation: Computation) -> Computation:
    """The pass."""
    users, turned = computation.users(), dict[Instruction, dict[int, Ints]]()

    def visit(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
        if x.op.name == "while":
            orders = _orders_in_loop(x, operands, users)
            loop = _loop_without(rewriter, x, operands, orders) if orders else None
            turned.update({} if loop is None else {loop: orders})
            return loop
        if x.op is calls.get_tuple_element and x.attributes.index in turned.get(operands[0], {}):
            number = x.attributes.index
            part = rewriter.emit(x.op, operands[0], index=number)
            return rewriter.emit(movement.transpose, part, permutation=turned[operands[0]][number])
        return sunk(rewriter, x, operands)

    return rewrite(computation, visit)


def _orders_in_loop(x: Instruction, operands: Operands, users: Users) -> dict[int, Ints]:
    """Which of the values that a loop carries are transposes that it had better not see, and of which order: it does no
    more than to take parts of them, or to write parts of what is transposed back after it."""
    body, condition = x.attributes.body, x.attributes.condition
    inside, asked = body.users(), condition.users()
    found: dict[int, Ints] = {}
    if not users[x] or any(u.op is not calls.get_tuple_element for u in users[x]):
        return found
    for k, (p, made, initial) in enumerate(zip(body.parameters, body.outputs, operands, strict=True)):
        parts = [u for u in inside[p] if u is not body.root]
        if asked[condition.parameters[k]] or any(u.operands.index(p) or u.operands.count(p) > 1 for u in parts):
            continue
        orders: set[Ints] = set()
        if made is p and all(u.op is dynamic_slices.dynamic_slice for u in parts):
            orders = {initial.attributes.permutation} if initial.op is movement.transpose else orders
            shapes = [u.array_shape for u in parts]
        elif parts == [made] and made.op is dynamic_slices.dynamic_update_slice and inside[made] == [body.root]:
            after = [u for part in users[x] if part.attributes.index == k for u in users[part]]
            if (initial.op is movement.broadcast or is_allocation(initial)) and all(
                u.op is movement.transpose for u in after
            ):
                orders = {inverse_permutation(u.attributes.permutation) for u in after}
            shapes = [made.operands[1].array_shape]
        else:
            continue
        if len(orders) == 1:
            (order,) = orders
            back = inverse_permutation(order)
            whole, *turned = ([shape.dimensions[d] for d in back] for shape in (p.array_shape, *shapes))
            if all(_lies_together(part, whole) for part in turned):
                found[k] = order
    return found


def _lies_together(part: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a part of an array is one piece of memory."""
    first = next((d for d, n in enumerate(part) if n != 1), len(part))
    return part[first + 1 :] == whole[first + 1 :]


def _loop_without(rewriter: Rewriter, x: Instruction, operands: Operands, orders: dict[int, Ints]) -> Instruction:
    """The loop that carries, instead of transposes in these orders, what they are transposes of."""
    before = (_before(rewriter, o, orders[k]) if k in orders else o for k, o in enumerate(operands))
    inputs = [o for o in before if o is not None]

    def turned(computation: Computation) -> Computation:
        inner = Rewriter()
        parameters = [inner.emit(movement.parameter, parameter_number=k, shape=o.shape) for k, o in enumerate(inputs)]
        given = list(parameters)
        for k, order in orders.items():
            given[k] = inner.emit(movement.transpose, parameters[k], permutation=order)

        def visit(inner: Rewriter, y: Instruction, operands: Operands) -> Instruction | None:
            if y is computation.root and y.op is calls.tuple_:
                return inner.emit(y.op, *(o.operands[0] if k in orders else o for k, o in enumerate(operands)))
            if (
                y.op not in (dynamic_slices.dynamic_slice, dynamic_slices.dynamic_update_slice)
                or operands[0] not in own
            ):
                return None
            source, order = operands[0].operands[0], operands[0].attributes.permutation
            back = inverse_permutation(order)
            starts = operands[-len(order) :]
            starts = [starts[d] for d in back]
            if y.op is dynamic_slices.dynamic_slice:
                sizes = tuple(y.attributes.dynamic_slice_sizes[d] for d in back)
                made = inner.emit(y.op, source, *starts, dynamic_slice_sizes=sizes)
            else:
                update = inner.emit(movement.transpose, operands[1], permutation=back)
                made = inner.emit(y.op, source, update, *starts)
            return inner.emit(movement.transpose, made, permutation=order)

        own = {given[k] for k in orders}
        root = inner.splice(computation, given, visit)
        return Computation(computation.name, parameters, inner.instructions, root)

    condition, body = turned(x.attributes.condition), turned(x.attributes.body)
    return rewriter.emit(x.op, *inputs, **x.attributes._replace(condition=condition, body=body)._asdict())


def sunk(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
    """A transpose of what x is of operands that are not transposed, if x is of some that are and can be that."""
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
    back = inverse_permutation(permutation)
    if is_allocation(x):
        sizes = tuple(x.array_shape.dimensions[d] for d in back)
        return rewriter.emit(x.op, **x.attributes._replace(shape=x.array_shape.with_dimensions(sizes))._asdict())
    if x.op is not movement.broadcast:
        return None
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
