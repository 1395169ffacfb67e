"""Transpose sinking: transposes move towards the results, through elementwise operations, and vanish in reductions and
broadcasts.

Producers are then computed in the memory order of their inputs; a mean over the rows of a transposed matrix becomes one
over the columns of the matrix. Consecutive transposes are composed or cancel. A loop that slices, or updates slices of,
a transposed array carries the array itself, if the slices are contiguous there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.compiler.analysis.scalarization import is_allocation
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, movement, reduction
from tinyxla.ops.movement import inverse_permutation
from tinyxla.shapes import Shape

Operands = tuple[Instruction, ...]
Users = dict[Instruction, list[Instruction]]
Ints = tuple[int, ...]


@for_opcodes("transpose")
def sink_transposes(computation: Computation) -> Computation:
    """The computation with transposes sunk."""
    users, permutations_of = computation.users(), dict[Instruction, dict[int, Ints]]()

    def visit(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
        if x.op.name == "while":
            permutations = _carried_permutations(x, operands, users)
            loop = _loop_with_sources(rewriter, x, operands, permutations) if permutations else None
            permutations_of.update({} if loop is None else {loop: permutations})
            return loop
        if x.op is calls.get_tuple_element and x.attributes.index in permutations_of.get(operands[0], {}):
            index = x.attributes.index
            element = rewriter.emit(x.op, operands[0], index=index)
            return rewriter.emit(movement.transpose, element, permutation=permutations_of[operands[0]][index])
        return sink_through(rewriter, x, operands)

    return rewrite(computation, visit)


def _carried_permutations(x: Instruction, operands: Operands, users: Users) -> dict[int, Ints]:
    """The permutations of carried values that a loop should carry untransposed: values that the loop only slices, or
    updates by slices before they are transposed back after it."""
    body, condition = x.attributes.body, x.attributes.condition
    body_users, condition_users = body.users(), condition.users()
    permutations: dict[int, Ints] = {}
    if not users[x] or any(u.op is not calls.get_tuple_element for u in users[x]):
        return permutations
    for k, (p, result, initial) in enumerate(zip(body.parameters, body.outputs, operands, strict=True)):
        uses = [u for u in body_users[p] if u is not body.root]
        if condition_users[condition.parameters[k]] or any(
            u.operands.index(p) or u.operands.count(p) > 1 for u in uses
        ):
            continue
        if result is p and all(u.op is dynamic_slices.dynamic_slice for u in uses):
            candidates = {initial.attributes.permutation} if initial.op is movement.transpose else set[Ints]()
            shapes = [u.array_shape for u in uses]
        elif _is_update_alone(result, uses) and body_users[result] == [body.root]:
            after = [u for part in users[x] if part.attributes.index == k for u in users[part]]
            candidates = _permutations_undone(initial, after)
            shapes = [result.operands[1].array_shape]
        else:
            continue
        if len(candidates) == 1 and _slices_are_contiguous(p, shapes, *candidates):
            (permutations[k],) = candidates
    return permutations


def _is_update_alone(result: Instruction, uses: list[Instruction]) -> bool:
    return uses == [result] and result.op is dynamic_slices.dynamic_update_slice


def _permutations_undone(initial: Instruction, after: Sequence[Instruction]) -> set[Ints]:
    """The permutations that the transposes after a loop undo, if nothing but transposes read an array that the loop
    fills."""
    if not (initial.op is movement.broadcast or is_allocation(initial)):
        return set()
    if not all(u.op is movement.transpose for u in after):
        return set()
    return {inverse_permutation(u.attributes.permutation) for u in after}


def _slices_are_contiguous(p: Instruction, slices: Sequence[Shape], permutation: Ints) -> bool:
    """True if slices of an array are contiguous in memory before it is transposed."""
    inverse = inverse_permutation(permutation)
    array_sizes, *slice_sizes = ([shape.dimensions[d] for d in inverse] for shape in (p.array_shape, *slices))
    return all(_is_contiguous(sizes, array_sizes) for sizes in slice_sizes)


def _is_contiguous(sizes: Sequence[int], array_sizes: Sequence[int]) -> bool:
    """True if a slice of an array is contiguous in memory."""
    first = next((d for d, n in enumerate(sizes) if n != 1), len(sizes))
    return sizes[first + 1 :] == array_sizes[first + 1 :]


def _loop_with_sources(
    rewriter: Rewriter, x: Instruction, operands: Operands, permutations: dict[int, Ints]
) -> Instruction:
    """The loop that carries the sources of transposes instead of the transposes."""
    sources = (_untransposed(rewriter, o, permutations[k]) if k in permutations else o for k, o in enumerate(operands))
    inputs = [o for o in sources if o is not None]

    def rewrite_region(computation: Computation) -> Computation:
        inner = Rewriter()
        parameters = [inner.emit(movement.parameter, parameter_number=k, shape=o.shape) for k, o in enumerate(inputs)]
        arguments = list(parameters)
        for k, permutation in permutations.items():
            arguments[k] = inner.emit(movement.transpose, parameters[k], permutation=permutation)

        def visit(inner: Rewriter, y: Instruction, operands: Operands) -> Instruction | None:
            if y is computation.root and y.op is calls.tuple_:
                return inner.emit(y.op, *(o.operands[0] if k in permutations else o for k, o in enumerate(operands)))
            if (
                y.op not in (dynamic_slices.dynamic_slice, dynamic_slices.dynamic_update_slice)
                or operands[0] not in transposed
            ):
                return None
            source, permutation = operands[0].operands[0], operands[0].attributes.permutation
            inverse = inverse_permutation(permutation)
            starts = operands[-len(permutation) :]
            starts = [starts[d] for d in inverse]
            if y.op is dynamic_slices.dynamic_slice:
                sizes = tuple(y.attributes.dynamic_slice_sizes[d] for d in inverse)
                result = inner.emit(y.op, source, *starts, dynamic_slice_sizes=sizes)
            else:
                update = inner.emit(movement.transpose, operands[1], permutation=inverse)
                result = inner.emit(y.op, source, update, *starts)
            return inner.emit(movement.transpose, result, permutation=permutation)

        transposed = {arguments[k] for k in permutations}
        root = inner.splice(computation, arguments, visit)
        return Computation(computation.name, parameters, inner.instructions, root)

    condition, body = rewrite_region(x.attributes.condition), rewrite_region(x.attributes.body)
    return rewriter.emit(x.op, *inputs, **x.attributes._replace(condition=condition, body=body)._asdict())


def sink_through(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
    """x of untransposed operands, transposed, if some operands are transposes and all can be untransposed; otherwise
    None."""
    transposed = next((o for o in operands if o.op is movement.transpose), None)
    if transposed is None:
        return None
    if x.op is movement.broadcast:
        return _through_broadcast(rewriter, x, transposed)
    permutation: Ints = transposed.attributes.permutation
    if x.op is reduction.reduce and len(operands) == 2:
        return _through_reduction(rewriter, x, operands, permutation)
    if x.op.name not in elementwise.NAMES:
        return None
    sources = [_untransposed(rewriter, o, permutation) for o in operands]
    if any(o is None for o in sources):
        return None
    result = rewriter.emit(x.op, *(o for o in sources if o is not None), **x.attributes._asdict())
    return rewriter.emit(movement.transpose, result, permutation=permutation)


def _untransposed(rewriter: Rewriter, x: Instruction, permutation: Ints) -> Instruction | None:
    """The array of which x is the transpose by `permutation`, if it takes no other transpose; otherwise None."""
    if x.op is movement.transpose:
        return x.operands[0] if x.attributes.permutation == permutation else None
    inverse = inverse_permutation(permutation)
    if is_allocation(x):
        sizes = tuple(x.array_shape.dimensions[d] for d in inverse)
        return rewriter.emit(x.op, **x.attributes._replace(shape=x.array_shape.with_dimensions(sizes))._asdict())
    if x.op is not movement.broadcast:
        return None
    sizes, dimensions = x.attributes
    sizes, dimensions = tuple(sizes[d] for d in inverse), tuple(permutation[d] for d in dimensions)
    return rewriter.emit(movement.broadcast, x.operands[0], sizes=sizes, dimensions=dimensions)


def _through_broadcast(rewriter: Rewriter, x: Instruction, transposed: Instruction) -> Instruction:
    inverse = inverse_permutation(transposed.attributes.permutation)
    sizes, dimensions = x.attributes
    return rewriter.emit(
        movement.broadcast, transposed.operands[0], sizes=sizes, dimensions=tuple(dimensions[d] for d in inverse)
    )


def _through_reduction(rewriter: Rewriter, x: Instruction, operands: Operands, permutation: Ints) -> Instruction | None:
    if operands[0].op is not movement.transpose:
        return None
    reduced = tuple(permutation[d] for d in x.attributes.dimensions)
    attributes = x.attributes._replace(dimensions=tuple(sorted(reduced)))
    result = rewriter.emit(x.op, operands[0].operands[0], operands[1], **attributes._asdict())
    kept = [d for d in permutation if d not in reduced]
    order = tuple(sorted(kept).index(d) for d in kept)
    return result if list(order) == sorted(order) else rewriter.emit(movement.transpose, result, permutation=order)
