"""Schedule construction: the plan of a computation becomes steps on storages; loops and branches become nested blocks.

A *storage* is an instruction, a `Temporary`, or a `Pointer` to memory that is chosen while the program runs. Storages
share memory where `AliasMap` says so: the result of a loop has the memory of its body's parameter. A loop copies
nothing from one iteration to the next: values that are only forwarded stay where they are, others rotate through
buffers, and the operand of an update in place (`bufferization`) is copied once before the loop, unless it is dead.
Results of branches are where the branch that runs has them, behind pointers, or, where they need memory that is known
before, in one memory that all branches write to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinyxla.compiler.fusion.plan import (
    Accesses,
    LibraryKernel,
    Loop,
    LoopNest,
    Plan,
    SingleOp,
    Switch,
    buffer_of,
    results_of,
)
from tinyxla.compiler.passes.batch_loop_dots import LoopValueAnalysis
from tinyxla.compiler.passes.control_flow_dce import freeze_unneeded_carries
from tinyxla.compiler.schedule.blocks import (
    AliasMap,
    Block,
    LoopBlocks,
    Pointer,
    RotatingBuffers,
    RowPointer,
    Step,
    SwitchBlocks,
    copy_step,
    shape_of,
)
from tinyxla.compiler.schedule.bufferization import (
    is_writable,
)
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.equal_nests import LoweredNests, Lowerings
from tinyxla.ops import dynamic_slices
from tinyxla.shapes import Shape, element_type
from tinyxla.transforms.computations import effects


@dataclass(frozen=True)
class Construction:
    """How blocks are made. Passes over blocks are None where they are switched off.

    Attributes:
        plan: gives the plan of a computation.
        order: orders the steps of a block.
        elide: removes copies of operands of updates; gives the results that share memory with a parameter.
        begin: is given each kernel as soon as there is one, and whether it is in a loop.
        lowered: the nests of blocks that were made.
        is_in_loop: whether the block runs several times.
    """

    plan: Callable[[Computation], Plan]
    order: Callable[[Block, AliasMap], None] | None
    elide: Callable[[Block, AliasMap, Sequence[Instruction]], set[int]] | None
    begin: Callable[[LoweredKernel, bool], None]
    lowered: LoweredNests = field(default_factory=dict[Any, Any])
    is_in_loop: bool = False


def build(computation: Computation, aliases: AliasMap, how: Construction) -> Block:
    """The steps of a computation, and of those in its loops and branches."""
    computation = aliases.unshare(computation)
    block = Block(computation, how.plan(computation))
    users = computation.users()
    lowerings = Lowerings(block.plan, users, how.lowered)
    for step in block.plan.steps:
        if isinstance(step, LoopNest):
            block.steps += (_kernel_step(kernel, step, how) for kernel in lowerings.kernels(step))
        else:
            block.steps += _steps(step, block.plan, users, aliases, how)
    block.plan.accesses.forget()
    block.results = [buffer_of(x) for x in computation.outputs]
    if how.order:
        how.order(block, aliases)
    return block


def give_results_memory(block: Block, aliases: AliasMap) -> None:
    """Have results of a program stand in memory that is known before it runs: the last buffer of a loop of known
    length, or a copy."""
    loops = [step.work for step in block.steps if isinstance(step.work, LoopBlocks)]
    result_memory = _ResultMemory(aliases, set(map(aliases.__getitem__, block.results)))
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
            result_memory.provide(block, k)


def _empty_block(computation: Computation) -> Block:
    """The block of a condition that is known not to be needed."""
    return Block(computation, Plan(computation, [], Accesses(frozenset()), set()))


def _steps(step: SingleOp, plan: Plan, users: Users, aliases: AliasMap, how: Construction) -> Iterator[Step]:
    x = step.root
    match step:
        case LibraryKernel(_, lowering):
            begins = lowering.aliased_operands(x)
            for result in results_of(x, users):
                position = result.attributes.index if result is not x else 0
                if position in begins:
                    yield copy_step(buffer_of(x.operands[begins[position]]), result)
            yield from (_kernel_step(kernel, step, how) for kernel in lowering.lower(x, plan, users))
        case Loop():
            yield from _while(step, users, aliases, how)
        case Switch():
            yield from _conditional(step, users, aliases, how)
        case _:
            yield Step(step, [buffer_of(o) for o in x.operands], [*results_of(x, users)], step)


def _kernel_step(kernel: LoweredKernel, planned: LibraryKernel | LoopNest, how: Construction) -> Step:
    how.begin(kernel, how.is_in_loop)
    pairs = list(zip(kernel.arguments, kernel.kernel.arguments, strict=True))
    return Step(kernel, [x for x, b in pairs if not b.written], [x for x, b in pairs if b.written], planned)


class _ResultMemory:
    """Memory of results that is known before a program runs, may be overwritten, and holds nothing of `taken`."""

    def __init__(self, aliases: AliasMap, taken: set[Storage]) -> None:
        self._aliases, self._taken = aliases, taken
        self._made: dict[Block, tuple[set[Storage], dict[Storage, tuple[SwitchBlocks, int]]]] = {}

    def provide(self, block: Block, k: int) -> Storage:
        """Have result k of a block stand in such memory: where its steps write it, or all branches of the conditional
        that gives it, each by a copy if need be (destination-passing style); or in a copy."""
        memory = self._aliases[block.results[k]]
        if not self._is_written(block, memory):
            switch, number = self._made_in(block)[1].get(memory, (None, 0))
            if switch and any(self._is_written(x, self._aliases[x.results[number]]) for x in switch.blocks):
                memories = [self.provide(branch, number) for branch in switch.blocks]
                for other in (*memories[1:], memory):
                    self._aliases[other] = memories[0]
            else:
                copy = Temporary(shape_of(block.results[k]))
                block.steps.append(copy_step(block.results[k], copy))
                block.results[k] = copy
        self._taken.add(self._aliases[block.results[k]])
        return block.results[k]

    def _is_written(self, block: Block, memory: Storage) -> bool:
        is_free = memory not in self._taken and is_writable(memory, self._aliases)
        return is_free and memory in self._made_in(block)[0]

    def _made_in(self, block: Block) -> tuple[set[Storage], dict[Storage, tuple[SwitchBlocks, int]]]:
        """The memories that a block's steps write to, and where those of conditionals are in their results."""
        if block not in self._made:
            written = {self._aliases[x] for step in block.steps for x in step.writes}
            switches = [step.work for step in block.steps if isinstance(step.work, SwitchBlocks)]
            given = {self._aliases[p]: (switch, j) for switch in switches for j, p in enumerate(switch.results)}
            self._made[block] = written, given
        return self._made[block]


def _while(planned: Loop, users: Users, aliases: AliasMap, how: Construction) -> Iterator[Step]:
    x, how = planned.root, replace(how, is_in_loop=True)
    trip_count = None if effects(x.attributes.condition) else x.attributes.known_trip_count
    step = x.attributes.body
    if trip_count is None:
        condition = build(x.attributes.condition, aliases, how)
    else:
        condition = _empty_block(aliases.unshare(x.attributes.condition))
        step = freeze_unneeded_carries(step, {result.attributes.index for result in results_of(x, users)})
    body = build(step, aliases, how)
    parameters = body.computation.parameters
    shared = how.elide(body, aliases, parameters) if how.elide else set[int]()
    forwarded_by = _forwarded_carries(body, aliases, parameters)
    forwarded = set(forwarded_by.values())
    result_memory = _ResultMemory(aliases, set(parameters))
    for k, result in enumerate(body.results):
        if k not in forwarded and aliases[result] is not parameters[k]:
            result_memory.provide(body, k)
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
        LoopBlocks(x, condition, body, rotating, row_pointers, trip_count, Pointer(Shape(element_type("s64")))),
        reads,
        [*results],
        planned,
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


def _conditional(planned: Switch, users: Users, aliases: AliasMap, how: Construction) -> Iterator[Step]:
    x = planned.root
    index, *operands = x.operands
    results = results_of(x, users)
    blocks: list[Block] = []
    for computation in x.attributes.branch_computations:
        block = build(computation, aliases, how)
        if how.elide:
            how.elide(block, aliases, ())
        block.results = [block.results[result.attributes.index] for result in results]
        for parameter, operand in zip(block.computation.parameters, operands, strict=True):
            aliases[parameter] = operand
        blocks.append(block)
    pointers: list[Pointer] = []
    for k, result in enumerate(results):
        pointer = aliases.pointer(result.array_shape, [block.results[k] for block in blocks])
        aliases[result] = pointer
        pointers.append(pointer)
    yield Step(SwitchBlocks(x, index, blocks, pointers), [buffer_of(o) for o in x.operands], [*results], planned)
