"""Schedule construction: the plan of a computation becomes steps on storages; loops and branches become nested blocks.

A *storage* is an instruction, a `Temporary`, or a `Pointer` to memory that is chosen while the program runs. Storages
share memory where `AliasMap` says so: the result of a loop has the memory of its body's parameter. A loop copies
nothing from one iteration to the next: values that are only forwarded stay where they are, others rotate through
buffers, and the operand of an update in place (`bufferization`) is copied once before the loop, unless it is dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinyxla.backends.numba.program.blocks import (
    AliasMap,
    Block,
    Loop,
    Pointer,
    RotatingBuffers,
    RowPointer,
    Step,
    Switch,
    copy_step,
    shape_of,
    walk_steps,
)
from tinyxla.backends.numba.program.bufferization import (
    alias_in_place,
    elide_update_copies,
    is_writable,
    schedule_last_uses_early,
)
from tinyxla.backends.numba.program.routines import begin_routines
from tinyxla.compiler import Fusion, HostCall, Plan, Product, optimize, plan
from tinyxla.compiler.fusion.epilogue import fuse_epilogues
from tinyxla.compiler.fusion.plan import buffer_of, results_of
from tinyxla.compiler.passes.batch_loop_dots import LoopValueAnalysis
from tinyxla.compiler.passes.control_flow_dce import freeze_unneeded_carries
from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.kernels.gemm.problem import required_permutation
from tinyxla.loopir.kernels.registry import op_lowering
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.equal_nests import Lowerings
from tinyxla.loopir.passes.nontemporal_stores import use_nontemporal_stores
from tinyxla.loopir.passes.pipeline_rows import prefetch_next_rows
from tinyxla.ops import contraction, dynamic_slices, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.transforms.computations import effects


def build_program(computation: Computation, donated: Sequence[int] = ()) -> tuple[Block, AliasMap]:
    """Build the steps of a program; it may overwrite the parameters `donated`."""
    aliases = AliasMap()
    block = _build(optimize(computation), aliases)
    aliases.donated.update(block.computation.parameters[k] for k in donated)
    elide_update_copies(block, aliases, ())
    alias_in_place(block, aliases)
    loops = [step.work for step in block.steps if isinstance(step.work, Loop)]
    final_buffers = {
        p: buffer
        for loop in loops
        for turn in loop.rotating
        for p, buffer in turn.final_buffers(loop.trip_count).items()
    }
    for k, result in enumerate(block.results):
        memory = aliases[result]
        if isinstance(memory, Pointer) and memory in final_buffers:
            block.results[k] = final_buffers[memory]
        elif isinstance(memory, Pointer):
            _copy_result(block, k)
    for step, *_ in walk_steps(block):
        if isinstance(step.work, LoweredKernel):
            sizes = [x.size * x.dtype.itemsize for x in map(shape_of, step.work.arguments)]
            step.work = use_nontemporal_stores(prefetch_next_rows(step.work, sizes), sizes)
            begin_routines(step.work.kernel)
    return block, aliases


def _build(computation: Computation, aliases: AliasMap) -> Block:
    computation = aliases.unshare(transpose_gemm_operands(computation))
    block = Block(computation, fuse_epilogues(plan(computation)))
    users = computation.users()
    lowerings = Lowerings(block.plan, users)
    for step in block.plan.steps:
        if isinstance(step, Fusion):
            block.steps += map(_kernel_step, lowerings.kernels(step))
        else:
            block.steps += _steps(step, block.plan, users, aliases)
    block.results = [buffer_of(x) for x in computation.outputs]
    schedule_last_uses_early(block, aliases)
    return block


def _empty_block(computation: Computation) -> Block:
    """The block of a condition that is known not to be needed."""
    return Block(computation, Plan(computation, [], set(), set()))


def transpose_gemm_operands(computation: Computation) -> Computation:
    """Transpose the operands of products that the BLAS cannot take as they stand."""
    if "dot" not in computation.opcodes:
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot:
            return None
        dims: contraction.Dot = x.attributes
        inputs = list(operands)
        for side in (0, 1):
            order = required_permutation(x, side)
            if order is not None:
                inputs[side] = rewriter.emit(movement.transpose, operands[side], permutation=order)
                place = {d: k for k, d in enumerate(order)}
                contracting, batch = dims.contracting(side), dims.batch(side)
                dims = dims.with_side(side, tuple(place[d] for d in contracting), tuple(place[d] for d in batch))
        return rewriter.emit(contraction.dot, *inputs, **dims._asdict()) if inputs != list(operands) else None

    return rewrite(computation, visit)


def _steps(step: Product | HostCall, plan: Plan, users: Users, aliases: AliasMap) -> Iterator[Step]:
    x = step.root
    nest = op_lowering(x)
    if nest is not None:
        begins = nest.aliased_operands(x)
        for result in results_of(x, users):
            position = result.attributes.index if result is not x else 0
            if position in begins:
                yield copy_step(buffer_of(x.operands[begins[position]]), result)
        yield from map(_kernel_step, nest.lower(x, plan, users))
    elif getattr(x.attributes, "custom_call_target", None) == "AllocateBuffer":
        return  # memory as it is
    elif x.op.name in _STRUCTURED:
        yield from _STRUCTURED[x.op.name](x, users, aliases)
    else:
        yield Step(step, [buffer_of(o) for o in x.operands], [*results_of(x, users)])


def _kernel_step(kernel: LoweredKernel) -> Step:
    begin_routines(kernel.kernel)
    pairs = list(zip(kernel.arguments, kernel.kernel.arguments, strict=True))
    return Step(kernel, [x for x, b in pairs if not b.written], [x for x, b in pairs if b.written])


def _copy_result(block: Block, k: int) -> None:
    copy = Temporary(shape_of(block.results[k]))
    block.steps.append(copy_step(block.results[k], copy))
    block.results[k] = copy


def _while(x: Instruction, users: Users, aliases: AliasMap) -> Iterator[Step]:
    trip_count = None if effects(x.attributes.condition) else x.attributes.known_trip_count
    step = x.attributes.body
    if trip_count is None:
        condition = _build(x.attributes.condition, aliases)
    else:
        condition = _empty_block(aliases.unshare(x.attributes.condition))
        step = freeze_unneeded_carries(step, {result.attributes.index for result in results_of(x, users)})
    body = _build(step, aliases)
    parameters = body.computation.parameters
    shared = elide_update_copies(body, aliases, parameters)
    forwarded_by = _forwarded_carries(body, aliases, parameters)
    forwarded = set(forwarded_by.values())
    seen: set[Storage] = set(parameters)
    for k, result in enumerate(body.results):
        memory = aliases[result]
        if k not in forwarded and memory is not parameters[k] and (not is_writable(memory, aliases) or memory in seen):
            _copy_result(body, k)
        seen.add(aliases[body.results[k]])
    row_pointers = _row_pointers(body, x.operands, trip_count, shared, aliases) if trip_count else []
    rotating: list[RotatingBuffers] = []
    reads: list[Storage] = []
    current: dict[int, Storage] = {}
    for k, operand in enumerate(x.operands):
        if k in shared:
            current[k] = Temporary(operand.array_shape)
            yield copy_step(operand, current[k])
            reads.append(current[k])
            continue
        reads.append(operand)
        if aliases[body.results[k]] is parameters[k]:
            current[k] = operand
        elif k not in forwarded:
            numbers = [k]
            while numbers[-1] in forwarded_by:
                numbers.append(forwarded_by[numbers[-1]])
            rotating.append(_rotating_buffers([x.operands[n] for n in numbers], aliases))
            aliases[body.results[k]] = rotating[-1].ring[0]
            current.update(zip(numbers, rotating[-1].currents, strict=True))
    results = results_of(x, users)
    for k, memory in current.items():
        aliases[condition.computation.parameters[k]] = memory
        aliases[parameters[k]] = memory
    for result in results:
        aliases[result] = current[result.attributes.index]
    yield Step(
        Loop(x, condition, body, rotating, row_pointers, trip_count, Pointer(Shape(element_type("s64")))),
        reads,
        [*results],
    )


def _row_pointers(
    body: Block, operands: Sequence[Instruction], trip_count: int, shared: set[int], aliases: AliasMap
) -> list[RowPointer]:
    """Let a loop compute rows of stacked arrays in place: each `dynamic-update-slice` at an index that is linear in the
    iteration becomes a pointer."""
    kinds = LoopValueAnalysis(body.computation, operands, trip_count)
    result: list[RowPointer] = []
    uses: dict[Storage, list[Step]] = {}
    for step in body.steps if shared else ():
        for memory in {aliases[x] for x in (*step.reads, *step.writes)}:
            uses.setdefault(memory, []).append(step)
    results = {aliases[x] for x in body.results}
    for k in sorted(shared):
        array = aliases[body.computation.parameters[k]]
        users_of = uses.get(array, [])
        root = _update_of(users_of[0]) if len(users_of) == 1 else None
        if root is None:
            continue
        whole, part, *starts = root.operands
        produced, position = aliases[part], kinds.counter(starts[0])
        makers = [step for step in uses.get(produced, ()) if any(aliases[y] is produced for y in step.writes)]
        if not is_writable(produced, aliases) or len(makers) != 1 or produced in results:
            continue
        if position is not None and kinds.lowest_row(whole.array_shape, part.array_shape, starts) is not None:
            size = part.array_shape.size * part.array_shape.dtype.itemsize
            aliases[produced] = pointer = aliases.pointer(shape_of(produced), [array])
            result.append(RowPointer(pointer, array, position.start * size, position.step * size))
            body.steps.remove(users_of[0])
    return result


def _update_of(step: Step) -> Instruction | None:
    """The `dynamic-update-slice` that a step computes, if it is one."""
    roots = step.work.roots if isinstance(step.work, LoweredKernel) else []
    return roots[0] if len(roots) == 1 and roots[0].op is dynamic_slices.dynamic_update_slice else None


def _forwarded_carries(body: Block, aliases: AliasMap, parameters: Sequence[Instruction]) -> dict[int, int]:
    """Forwarded carries, as y in `x, y = f(x), x`: for the number of a carried value, that under which the next
    iteration gets it again."""
    numbers: dict[Storage, int] = {p: k for k, p in enumerate(parameters)}
    memories = [aliases[result] for result in body.results]
    source = {k: numbers[memory] for k, memory in enumerate(memories) if numbers.get(memory, k) != k}
    result: dict[int, int] = {}
    for k, position in source.items():
        first, steps = position, 0
        while first in source and steps < len(source):
            first, steps = source[first], steps + 1
        if position not in result and first not in source and memories[first] is not parameters[first]:
            result[position] = k
    return result


def _rotating_buffers(initials: list[Storage], aliases: AliasMap) -> RotatingBuffers:
    shape = shape_of(initials[0])
    buffers = [Temporary(shape) for _ in range(len(initials) + 1)]
    currents = [aliases.pointer(shape, [x, *buffers]) for x in initials]
    return RotatingBuffers(initials, buffers, currents, [aliases.pointer(shape, buffers) for _ in buffers])


def _conditional(x: Instruction, users: Users, aliases: AliasMap) -> Iterator[Step]:
    index, *operands = x.operands
    results = results_of(x, users)
    blocks: list[Block] = []
    for computation in x.attributes.branch_computations:
        block = _build(computation, aliases)
        elide_update_copies(block, aliases, ())
        block.results = [block.results[result.attributes.index] for result in results]
        for parameter, operand in zip(block.computation.parameters, operands, strict=True):
            aliases[parameter] = operand
        blocks.append(block)
    pointers: list[Pointer] = []
    for k, result in enumerate(results):
        pointer = aliases.pointer(result.array_shape, [block.results[k] for block in blocks])
        aliases[result] = pointer
        pointers.append(pointer)
    yield Step(Switch(x, index, blocks, pointers), [buffer_of(o) for o in x.operands], [*results])


_STRUCTURED = {"while": _while, "conditional": _conditional}
