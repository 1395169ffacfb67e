"""Blocks: the steps of a computation in order, with those of the loops and branches inside them.

Memory is named by *storages*: instructions, `Partial`s for what no instruction stands for, and `Pointer`s for memory
that is chosen while the program runs. Several may stand for one memory, their *home*: a loop's result is where its
body's parameter was.

A loop copies nothing from one iteration to the next. What its body only hands on stays where it is; what it makes anew
goes to two buffers in turn; and what it updates in place is copied once, before the loop, unless nobody else needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinyxla.backends.numba.axes import CHUNK
from tinyxla.backends.numba.loops import Builder
from tinyxla.backends.numba.lowering import LoweredKernel, Partial, Storage, Users
from tinyxla.backends.numba.nests import lower
from tinyxla.backends.numba.own_nests import own_nest
from tinyxla.backends.numba.products import operand_order
from tinyxla.compiler import Fusion, HostCall, Plan, Product, optimize, plan
from tinyxla.compiler.fusion import buffer_of, results_of
from tinyxla.compiler.rewriting import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import contraction, movement
from tinyxla.shapes import Shape


@dataclass(eq=False)
class Pointer(Partial):
    """Memory chosen while the program runs, among these storages."""

    among: list[Storage] = field(default_factory=list)


@dataclass(eq=False)
class Turn:
    """What a loop makes anew in every iteration, in two buffers: `current` is read, and is the result in the end;
    `following` is written; `spare` is the other buffer."""

    initial: Storage
    buffers: tuple[Partial, Partial]
    current: Pointer
    following: Pointer
    spare: Pointer

    @property
    def pointers(self) -> tuple[Pointer, Pointer, Pointer]:
        return self.current, self.following, self.spare


@dataclass(eq=False)
class Loop:
    """A while: `condition` gives a pred."""

    condition: Block
    body: Block
    turns: list[Turn]


@dataclass(eq=False)
class Branches:
    """A conditional: the block that `index` chooses runs; then `results` point to its results."""

    index: Storage
    blocks: list[Block]
    results: list[Pointer]


Work = LoweredKernel | Product | HostCall | Loop | Branches


@dataclass(eq=False)
class Step:
    """Something to run, and the memory that it reads and writes."""

    work: Work
    reads: list[Storage]
    writes: list[Storage]
    is_copy: bool = False


@dataclass(eq=False)
class Block:
    """Steps, and where the results are when they have run."""

    computation: Computation
    plan: Plan
    steps: list[Step] = field(default_factory=list)
    results: list[Storage] = field(default_factory=list)


class Homes:
    """Which storages stand for the memory of others, in one program."""

    def __init__(self) -> None:
        self._of: dict[Storage, Storage] = {}
        self._pointers: list[Pointer] = []

    def __getitem__(self, x: Storage) -> Storage:
        x = buffer_of(x) if isinstance(x, Instruction) else x
        while x in self._of:
            x = self._of[x]
            x = buffer_of(x) if isinstance(x, Instruction) else x
        return x

    def __setitem__(self, x: Storage, home: Storage) -> None:
        self._of[self[x]] = home

    def pointer(self, shape: Shape, among: Sequence[Storage]) -> Pointer:
        self._pointers.append(Pointer(shape, list(among)))
        return self._pointers[-1]

    def pointed(self) -> set[Storage]:
        """What pointers may point to."""
        return {self[x] for pointer in self._pointers for x in pointer.among}


def shape_of(x: Storage) -> Shape:
    return x.shape if isinstance(x, Partial) else x.array_shape


def build_program(computation: Computation) -> tuple[Block, Homes]:
    """The steps of a whole program."""
    homes = Homes()
    block = _build(computation, homes)
    _share_updates(block, homes, ())
    for k, result in enumerate(block.results):
        if isinstance(homes[result], Pointer):
            _copy_result(block, k)
    return block, homes


def _build(computation: Computation, homes: Homes) -> Block:
    optimized = copy_operands(optimize(computation))
    block = Block(optimized, plan(optimized))
    users = optimized.users()
    for step in block.plan.steps:
        block.steps += _steps(step, block.plan, users, homes)
    block.results = [buffer_of(x) for x in optimized.outputs]
    return block


def copy_operands(computation: Computation) -> Computation:
    """Transpose the operands of products that the BLAS cannot take as they stand."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot:
            return None
        dims: contraction.Dot = x.attributes
        inputs = list(operands)
        for side in (0, 1):
            order = operand_order(x, side)
            if order is not None:
                inputs[side] = rewriter.emit(movement.transpose, operands[side], permutation=order)
                place = {d: k for k, d in enumerate(order)}
                contracting, batch = dims.contracting(side), dims.batch(side)
                dims = dims.with_side(side, tuple(place[d] for d in contracting), tuple(place[d] for d in batch))
        return rewriter.emit(contraction.dot, *inputs, **dims._asdict()) if inputs != list(operands) else None

    return rewrite(computation, visit)


def _steps(step: Fusion | Product | HostCall, plan: Plan, users: Users, homes: Homes) -> Iterator[Step]:
    if isinstance(step, Fusion):
        yield from map(_kernel_step, lower(step, plan, users))
        return
    x = step.root
    nest = own_nest(x)
    if nest is not None:
        begins = nest.updates(x)
        for result in results_of(x, users):
            number = result.attributes.index if result is not x else 0
            if number in begins:
                yield copy_step(buffer_of(x.operands[begins[number]]), result)
        yield from map(_kernel_step, nest.lower(x, plan, users))
    elif getattr(x.attributes, "custom_call_target", None) == "AllocateBuffer":
        return  # memory as it is
    elif x.op.name in _STRUCTURED:
        yield from _STRUCTURED[x.op.name](x, users, homes)
    else:
        yield Step(step, [buffer_of(o) for o in x.operands], [*results_of(x, users)])


def _kernel_step(kernel: LoweredKernel) -> Step:
    pairs = list(zip(kernel.arguments, kernel.kernel.arguments, strict=True))
    return Step(kernel, [x for x, b in pairs if not b.written], [x for x, b in pairs if b.written])


def copy_step(source: Storage, target: Storage) -> Step:
    """All elements of one memory to another."""
    b = Builder("copy")
    name = shape_of(source).element_type.name
    elements, copies = b.argument(name), b.argument(name, True)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.store(copies, index, b.load(elements, index))
    kernel = LoweredKernel(b.kernel, [source, target], shape_of(source).size, CHUNK, [])
    return Step(kernel, [source], [target], is_copy=True)


def _copy_result(block: Block, k: int) -> None:
    copy = Partial(shape_of(block.results[k]))
    block.steps.append(copy_step(block.results[k], copy))
    block.results[k] = copy


# --- updates in place -------------------------------------------------------------------------------------------------


def _share_updates(block: Block, homes: Homes, parameters: Sequence[Instruction]) -> set[int]:
    """Let updates work on their operand's own memory where nothing reads that later, instead of on a copy.

    A loop's parameter may be overwritten if what becomes of it is the loop's result of the same number; gives the
    numbers of these.
    """
    shared: set[int] = set()
    pointed = homes.pointed()
    for k, parameter in enumerate(parameters):
        chain = _chain_of_copies(block, homes, block.results[k], parameter)
        kept = {*pointed, *(homes[x] for j, x in enumerate(block.results) if j != k)}
        if (
            chain
            and all(homes[step.reads[0]] not in kept for step in chain)
            and all(_make_last(block, homes, step) for step in chain)
        ):
            shared.add(k)
            for step in chain:
                _merge(block, homes, step)
    for step in [step for step in block.steps if step.is_copy]:
        source = homes[step.reads[0]]
        own = _is_own(source) and source not in pointed and source not in map(homes.__getitem__, block.results)
        if own and _make_last(block, homes, step):
            _merge(block, homes, step)
    return shared


def _is_own(home: Storage) -> bool:
    """Whether memory is the block's to overwrite."""
    if isinstance(home, Pointer):
        return False
    return not isinstance(home, Instruction) or home.op not in (movement.parameter, movement.constant)


def _chain_of_copies(block: Block, homes: Homes, result: Storage, parameter: Instruction) -> list[Step]:
    """The copies through which a parameter becomes a result, the last one first; nothing if it does not."""
    chain: list[Step] = []
    home = homes[result]
    while home is not parameter:
        made = [step for step in block.steps if step.is_copy and homes[step.writes[0]] is home]
        if not made:
            return []
        chain.append(made[0])
        home = homes[made[0].reads[0]]
    return chain


def _touches(step: Step, home: Storage, homes: Homes, written: bool) -> bool:
    return any(homes[x] is home for x in step.reads) or (written and any(homes[x] is home for x in step.writes))


def _make_last(block: Block, homes: Homes, copy: Step) -> bool:
    """Let nothing read what a copy copies after it: move the update behind such readers, if these do not need it."""
    source, target = homes[copy.reads[0]], homes[copy.writes[0]]
    at = block.steps.index(copy)
    end = at + 1
    while end < len(block.steps) and any(homes[x] is target for x in block.steps[end].writes):
        end += 1
    moved, after = block.steps[at:end], block.steps[end:]
    if any(_touches(step, source, homes, True) for step in moved[1:]):
        return False
    readers = [k for k, step in enumerate(after) if _touches(step, source, homes, True)]
    if not readers:
        return True
    between, rest = after[: readers[-1] + 1], after[readers[-1] + 1 :]
    made = {homes[x] for step in moved for x in step.writes}
    if any(_touches(step, home, homes, True) for step in between for home in made):
        return False
    needed = {homes[x] for step in moved for x in step.reads}  # which updates in place may have changed by then
    if any(homes[x] in needed for step in between for x in step.writes):
        return False
    if any(map(_has_effect, moved)) and any(map(_has_effect, between)):
        return False
    block.steps[at:] = [*between, *moved, *rest]
    return True


def _has_effect(step: Step) -> bool:
    """Whether it must stay behind others with side effects that come before it."""
    work = step.work
    if isinstance(work, HostCall):
        return work.root.has_side_effect
    inside = (
        [work.condition, work.body] if isinstance(work, Loop) else work.blocks if isinstance(work, Branches) else []
    )
    return any(_has_effect(x) for block in inside for x in block.steps)


def _merge(block: Block, homes: Homes, copy: Step) -> None:
    block.steps.remove(copy)
    homes[copy.writes[0]] = homes[copy.reads[0]]


# --- loops and branches -----------------------------------------------------------------------------------------------


def _while(x: Instruction, users: Users, homes: Homes) -> Iterator[Step]:
    condition, body = _build(x.attributes.condition, homes), _build(x.attributes.body, homes)
    parameters = body.computation.parameters
    shared = _share_updates(body, homes, parameters)
    seen: set[Storage] = set(parameters)
    for k, result in enumerate(body.results):
        home = homes[result]
        if home is not parameters[k] and (not _is_own(home) or home in seen):
            _copy_result(body, k)
        seen.add(homes[body.results[k]])
    turns: list[Turn] = []
    reads: list[Storage] = []
    current: list[Storage] = []
    for k, operand in enumerate(x.operands):
        shape = operand.array_shape
        if k in shared:
            copy = Partial(shape)
            yield copy_step(operand, copy)
            reads.append(copy)
            current.append(copy)
        elif homes[body.results[k]] is parameters[k]:
            reads.append(operand)
            current.append(operand)
        else:
            buffers = (Partial(shape), Partial(shape))
            turn = Turn(
                operand,
                buffers,
                homes.pointer(shape, [operand, *buffers]),
                homes.pointer(shape, buffers),
                homes.pointer(shape, buffers),
            )
            homes[body.results[k]] = turn.following
            turns.append(turn)
            reads.append(operand)
            current.append(turn.current)
    results = results_of(x, users)
    for k, home in enumerate(current):
        homes[condition.computation.parameters[k]] = home
        homes[parameters[k]] = home
    for result in results:
        homes[result] = current[result.attributes.index]
    yield Step(Loop(condition, body, turns), reads, [*results])


def _conditional(x: Instruction, users: Users, homes: Homes) -> Iterator[Step]:
    index, *operands = x.operands
    results = results_of(x, users)
    blocks: list[Block] = []
    for computation in x.attributes.branch_computations:
        block = _build(computation, homes)
        _share_updates(block, homes, ())
        block.results = [block.results[result.attributes.index] for result in results]
        for parameter, operand in zip(block.computation.parameters, operands, strict=True):
            homes[parameter] = operand
        blocks.append(block)
    pointers: list[Pointer] = []
    for k, result in enumerate(results):
        pointer = homes.pointer(result.array_shape, [block.results[k] for block in blocks])
        homes[result] = pointer
        pointers.append(pointer)
    yield Step(Branches(index, blocks, pointers), [buffer_of(o) for o in x.operands], [*results])


_STRUCTURED = {"while": _while, "conditional": _conditional}
