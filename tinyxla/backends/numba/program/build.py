"""Blocks: the steps of a computation in order, with those of the loops and branches inside them.

Memory is named by *storages*: instructions, `Partial`s for what no instruction stands for, and `Pointer`s for memory
that is chosen while the program runs. Several may stand for one memory, their *home*: a loop's result is where its
body's parameter was.

A loop copies nothing from one iteration to the next. What its body only hands on stays where it is; what it makes anew
goes to two buffers in turn; and what it updates in place is copied once, before the loop, unless nobody else needs it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinyxla.backends.numba.program.routines import begin_routines
from tinyxla.compiler import Fusion, HostCall, Plan, Product, optimize, plan
from tinyxla.compiler.fusion.epilogue import fuse_epilogues
from tinyxla.compiler.fusion.plan import buffer_of, results_of
from tinyxla.compiler.passes.batch_loop_dots import LoopValueAnalysis
from tinyxla.compiler.passes.control_flow_dce import freeze_unneeded_carries
from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import Builder
from tinyxla.loopir.kernels.gemm.problem import operand_order
from tinyxla.loopir.kernels.registry import op_lowering
from tinyxla.loopir.lower.axes import COSTLY_WORK, parallel_grain
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.equal_nests import Lowerings
from tinyxla.loopir.passes.alias_in_place import AliasedKernels
from tinyxla.loopir.passes.nontemporal_stores import use_nontemporal_stores
from tinyxla.loopir.passes.pipeline_rows import prefetch_next_rows
from tinyxla.ops import contraction, dynamic_slices, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.transforms.computations import effects

MOST_PASSED = 1024  # steps behind which an update may move


@dataclass(eq=False)
class Pointer(Temporary):
    """Memory chosen while the program runs, among these storages."""

    among: list[Storage] = field(default_factory=list)


@dataclass(eq=False)
class RotatingBuffers:
    """What a loop makes anew in every iteration, in buffers that take turns. `currents` are read, and are the results
    in the end: what was made in the iteration before, and, where the loop hands that on as something else, what was
    made two iterations before, and so on; they begin as `initials`. The first of `ring` is written."""

    initials: list[Storage]
    buffers: list[Temporary]
    currents: list[Pointer]
    ring: list[Pointer]

    @property
    def pointers(self) -> list[Pointer]:
        return [*self.currents, *self.ring]

    def ends(self, count: int | None) -> dict[Pointer, Temporary]:
        """Where the currents are after so many iterations, if that is known."""
        if count is None or count < len(self.currents):
            return {}
        return {p: self.buffers[(count - 1 - k) % len(self.buffers)] for k, p in enumerate(self.currents)}


@dataclass(eq=False)
class RowPointer:
    """The row of an array that an iteration makes there: `pointer` begins `start` bytes into the array, and moves on by
    `step` bytes after each iteration."""

    pointer: Pointer
    array: Storage
    start: int
    step: int


@dataclass(eq=False)
class Loop:
    """A while: `condition` gives a pred. It is empty where it is known how often the loop runs: then the slot of `left`
    counts down from `count`."""

    root: Instruction
    condition: Block
    body: Block
    turns: list[RotatingBuffers]
    rows: list[RowPointer]
    count: int | None
    left: Pointer


@dataclass(eq=False)
class Switch:
    """A conditional: the block that `index` chooses runs; then `results` point to its results."""

    root: Instruction
    index: Storage
    blocks: list[Block]
    results: list[Pointer]


Work = LoweredKernel | Product | HostCall | Loop | Switch
_MOST_SOURCES = 48  # operands over which a result may be written that are tried: as many as a fused nest has at most


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


class AliasMap:
    """Which storages stand for the memory of others, in one program."""

    def __init__(self) -> None:
        self.donated: set[Storage] = set()  # parameters whose memory is the program's to overwrite
        self._of: dict[Storage, Storage] = {}
        self._pointers: list[Pointer] = []
        self._built: dict[int, Computation] = {}  # those of blocks, by identity

    def own(self, computation: Computation) -> Computation:
        """A computation whose instructions no other block has: loops and branches may share one."""
        if id(computation) in self._built:
            computation, _ = computation.copy()
        self._built[id(computation)] = computation
        return computation

    def __getitem__(self, x: Storage) -> Storage:
        x = buffer_of(x) if isinstance(x, Instruction) else x
        path: list[Storage] = []
        while x in self._of:
            path.append(x)
            x = self._of[x]
            x = buffer_of(x) if isinstance(x, Instruction) else x
        for y in path:  # path compression
            self._of[y] = x
        return x

    def __setitem__(self, x: Storage, home: Storage) -> None:
        self._of[self[x]] = home

    def sharing(self) -> dict[Storage, list[Instruction]]:
        """For each memory the instructions that stand for it, besides itself."""
        found: dict[Storage, list[Instruction]] = {}
        for x in self._of:
            if isinstance(x, Instruction) and x.op is not movement.parameter:
                found.setdefault(self[x], []).append(x)
        return found

    def pointer(self, shape: Shape, among: Sequence[Storage]) -> Pointer:
        self._pointers.append(Pointer(shape, list(among)))
        return self._pointers[-1]

    def pointed(self) -> set[Storage]:
        """What pointers may point to."""
        return {self[x] for pointer in self._pointers for x in pointer.among}


def shape_of(x: Storage) -> Shape:
    return x.shape if isinstance(x, Temporary) else x.array_shape


def all_steps(block: Block, depth: int = 0, times: int | None = 1) -> Iterator[tuple[Step, Block, int, int | None]]:
    """The steps of a block with those of the blocks inside them; in which block and how deep each is, and how often it
    runs, if that is known."""
    for step in block.steps:
        yield step, block, depth, times
        count = step.work.count if isinstance(step.work, Loop) else None
        inside = None if count is None or times is None else count * times
        for part in inner_blocks(step):
            yield from all_steps(part, depth + 1, inside)


def inner_blocks(step: Step) -> list[Block]:
    """Those of a loop or of branches."""
    work = step.work
    return [work.condition, work.body] if isinstance(work, Loop) else work.blocks if isinstance(work, Switch) else []


def build_program(computation: Computation, donated: Sequence[int] = ()) -> tuple[Block, AliasMap]:
    """The steps of a whole program, which may overwrite the parameters of the numbers `donated`."""
    homes = AliasMap()
    block = _build(optimize(computation), homes)
    homes.donated.update(block.computation.parameters[k] for k in donated)
    _share_updates(block, homes, ())
    _write_in_place(block, homes)
    loops = [step.work for step in block.steps if isinstance(step.work, Loop)]
    ends = {p: buffer for loop in loops for turn in loop.turns for p, buffer in turn.ends(loop.count).items()}
    for k, result in enumerate(block.results):
        home = homes[result]
        if isinstance(home, Pointer) and home in ends:
            block.results[k] = ends[home]
        elif isinstance(home, Pointer):
            _copy_result(block, k)
    for step, *_ in all_steps(block):
        if isinstance(step.work, LoweredKernel):
            sizes = [x.size * x.dtype.itemsize for x in map(shape_of, step.work.arguments)]
            step.work = use_nontemporal_stores(prefetch_next_rows(step.work, sizes), sizes)
            begin_routines()
    return block, homes


def _build(computation: Computation, homes: AliasMap) -> Block:
    computation = homes.own(copy_operands(computation))
    block = Block(computation, fuse_epilogues(plan(computation)))
    users = computation.users()
    lowerings = Lowerings(block.plan, users)
    for step in block.plan.steps:
        if isinstance(step, Fusion):
            block.steps += map(_kernel_step, lowerings.kernels(step))
        else:
            block.steps += _steps(step, block.plan, users, homes)
    block.results = [buffer_of(x) for x in computation.outputs]
    _free_early(block, homes)
    return block


def _empty_block(computation: Computation) -> Block:
    """For a condition that is known: nothing runs."""
    return Block(computation, Plan(computation, [], set(), set()))


def copy_operands(computation: Computation) -> Computation:
    """Transpose the operands of products that the BLAS cannot take as they stand."""
    if "dot" not in computation.opcodes:
        return computation

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


def _steps(step: Product | HostCall, plan: Plan, users: Users, homes: AliasMap) -> Iterator[Step]:
    x = step.root
    nest = op_lowering(x)
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
    begin_routines()
    pairs = list(zip(kernel.arguments, kernel.kernel.arguments, strict=True))
    return Step(kernel, [x for x, b in pairs if not b.written], [x for x, b in pairs if b.written])


def copy_step(source: Storage, target: Storage) -> Step:
    """All elements of one memory to another."""
    b = Builder("copy")
    name, size = shape_of(source).element_type.name, shape_of(source).size
    elements, copies = b.argument(name), b.argument(name, True)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.store(copies, index, b.load(elements, index))
    work = size * COSTLY_WORK
    kernel = LoweredKernel(b.kernel, [source, target], size, parallel_grain(size, COSTLY_WORK), [], work=work)
    return Step(kernel, [source], [target], is_copy=True)


def _copy_result(block: Block, k: int) -> None:
    copy = Temporary(shape_of(block.results[k]))
    block.steps.append(copy_step(block.results[k], copy))
    block.results[k] = copy


# --- order ------------------------------------------------------------------------------------------------------------


def _free_early(block: Block, homes: AliasMap) -> None:
    """Let kernels that are the last to read more than they make run as soon as they can: updates of parameters, say,
    which programs often do after they have computed all gradients.

    A step that moves comes right after the last step that it must stay behind, its barrier: its key is that of the
    barrier and one number more, and the order of the steps is the lexicographic order of keys."""
    touched = [({homes[x] for x in step.reads}, {homes[x] for x in step.writes}) for step in block.steps]
    last = {home: k for k, (reads, writes) in enumerate(touched) for home in reads | writes}
    results = {homes[x] for x in block.results}
    keys: list[tuple[int, ...]] = []
    latest: tuple[int, ...] = ()
    read: dict[Storage, tuple[int, ...]] = {}  # the key of the last step that reads a memory, and that writes it
    written: dict[Storage, tuple[int, ...]] = {}
    for k, (step, (reads, writes)) in enumerate(zip(block.steps, touched, strict=True)):
        freed = {x for x in reads - writes - results if last[x] == k and _is_own(x, homes)}
        key: tuple[int, ...] = (k,)
        if isinstance(step.work, LoweredKernel) and _bytes(freed) > _bytes(writes - results):
            sizes = {shape_of(x).size for x in writes}
            over = {x for x in reads if shape_of(x).size in sizes and not _is_own(x, homes)}  # if it is donated
            alone = writes | freed | over
            barriers = [written[x] for x in reads | alone if x in written] + [read[x] for x in alone if x in read]
            barrier = max(barriers, default=(-1,))
            key = (*barrier, -k) if barrier < latest else key
        keys.append(key)
        latest = max(latest, key)
        for ends, homes_ in ((read, reads), (written, writes)):
            for x in homes_:
                ends[x] = max(ends.get(x, key), key)
    block.steps = [block.steps[k] for k in sorted(range(len(keys)), key=keys.__getitem__)]


def _bytes(storages: Iterable[Storage]) -> int:
    return sum(shape_of(x).size * shape_of(x).dtype.itemsize for x in storages)


# --- updates in place -------------------------------------------------------------------------------------------------


class _Order:
    """The steps of a block while copies are taken out and updates move; `touching` has those that read or write a
    memory, in order."""

    def __init__(self, block: Block, homes: AliasMap) -> None:
        self.homes = homes
        self.steps: list[Step | None] = [*block.steps]
        self.number = {step: k for k, step in enumerate(block.steps)}
        self.touching: dict[Storage, list[Step]] = {}
        for step in block.steps:
            for home in self.touched([step]):
                self.touching.setdefault(home, []).append(step)

    def touched(self, steps: Iterable[Step]) -> set[Storage]:
        """The memory that steps read or write."""
        return {self.homes[x] for step in steps for x in (*step.reads, *step.writes)}

    def between(self, begin: int, end: int) -> list[Step]:
        """The steps with these numbers."""
        return [step for step in self.steps[begin:end] if step is not None]

    def writing(self, begin: int, home: Storage) -> int:
        """Where the steps end that write to a memory, one after the other."""
        while begin < len(self.steps):
            step = self.steps[begin]
            if step is not None and not any(self.homes[x] is home for x in step.writes):
                break
            begin += 1
        return begin

    def move(self, begin: int, middle: int, end: int) -> None:
        """Let the steps before the middle follow the others."""
        moved, others = self.between(begin, middle), self.between(middle, end)
        padded = [*others, *moved, *[None] * (end - begin - len(others) - len(moved))]
        self.steps[begin:end] = padded
        self.number.update({step: begin + k for k, step in enumerate(padded) if step is not None})
        for home in self.touched(moved):
            steps = self.touching[home]
            first = bisect_left(steps, begin, key=self.number.__getitem__)
            steps[first:] = sorted(steps[first:], key=self.number.__getitem__)

    def merge(self, copy: Step) -> None:
        """Take out a copy: its target is its source's memory."""
        source, target = self.homes[copy.reads[0]], self.homes[copy.writes[0]]
        self.steps[self.number[copy]] = None
        steps, more = self.touching[source], self.touching.pop(target)
        del steps[bisect_left(steps, self.number[copy], key=self.number.__getitem__)]
        steps += (step for step in more if step is not copy)
        self.homes[copy.writes[0]] = copy.reads[0]


def _share_updates(block: Block, homes: AliasMap, parameters: Sequence[Instruction]) -> set[int]:
    """Let updates work on their operand's own memory where nothing reads that later, instead of on a copy.

    A loop's parameter may be overwritten if what becomes of it is the loop's result of the same number; gives the
    numbers of these.
    """
    shared: set[int] = set()
    copies = [step for step in block.steps if step.is_copy]
    if not copies:
        return shared
    order = _Order(block, homes)
    pointed = homes.pointed()
    results = Counter(homes[x] for x in block.results)
    for k, parameter in enumerate(parameters):
        chain = _chain_of_copies(order, block.results[k], parameter)
        if not chain:
            continue
        own = homes[block.results[k]]
        kept = [homes[step.reads[0]] for step in chain]
        if all(x not in pointed and results[x] <= (x is own) for x in kept) and all(
            _make_last(order, step) for step in chain
        ):
            shared.add(k)
            for step in chain:
                order.merge(step)
            results[parameter] += results.pop(own)
    for step in copies:
        if order.steps[order.number[step]] is not step:
            continue
        source, target = homes[step.reads[0]], homes[step.writes[0]]
        if _is_own(source, homes) and source not in pointed and not results[source] and _make_last(order, step):
            order.merge(step)
            results[source] += results.pop(target, 0)
    block.steps = order.between(0, len(order.steps))
    return shared


def _is_own(home: Storage, homes: AliasMap) -> bool:
    """Whether memory is the block's to overwrite."""
    if isinstance(home, Pointer):
        return False
    if home in homes.donated or not isinstance(home, Instruction):
        return True
    return home.op not in (movement.parameter, movement.constant)


def _chain_of_copies(order: _Order, result: Storage, parameter: Instruction) -> list[Step]:
    """The copies through which a parameter becomes a result, the last one first; nothing if it does not."""
    chain: list[Step] = []
    homes = order.homes
    home = homes[result]
    while home is not parameter:
        made = [x for x in order.touching.get(home, ()) if x.is_copy and homes[x.writes[0]] is home]
        if not made:
            return []
        chain.append(made[0])
        home = homes[made[0].reads[0]]
    return chain


def _make_last(order: _Order, copy: Step) -> bool:
    """Let nothing read what a copy copies after it: move the update behind such readers, if these do not need it and
    are not far away."""
    homes = order.homes
    source, target = homes[copy.reads[0]], homes[copy.writes[0]]
    at = order.number[copy]
    end = order.writing(at + 1, target)
    moved = order.between(at, end)
    if source in order.touched(moved[1:]):
        return False
    last = order.number[order.touching[source][-1]]
    if last < end:
        return True
    between = order.between(end, last + 1)
    made = {homes[x] for step in moved for x in step.writes}
    if len(between) > MOST_PASSED or not made.isdisjoint(order.touched(between)):
        return False
    needed = {homes[x] for step in moved for x in step.reads}  # which updates in place may have changed by then
    if any(homes[x] in needed for step in between for x in step.writes):
        return False
    if any(map(_has_effect, moved)) and any(map(_has_effect, between)):
        return False
    order.move(at, end, last + 1)
    return True


def _has_effect(step: Step) -> bool:
    """Whether it must stay behind others with side effects that come before it."""
    work = step.work
    if isinstance(work, HostCall):
        return work.root.has_side_effect
    return any(_has_effect(x) for block in inner_blocks(step) for x in block.steps)


def _write_in_place(block: Block, homes: AliasMap) -> None:
    """Let kernels write results over what they read for the last time, where that is of the same size."""
    kept = {*homes.pointed(), *(homes[x] for x in block.results)}
    last: dict[Storage, int] = {}
    first: dict[Storage, int] = {}
    for number, step in enumerate(block.steps):
        for x in [*step.reads, *step.writes]:
            first.setdefault(homes[x], number)
            last[homes[x]] = number
    in_place = AliasedKernels()
    for number, step in enumerate(block.steps):
        if not isinstance(step.work, LoweredKernel):
            continue
        targets = [x for x in step.writes if first[homes[x]] == number and _is_own(homes[x], homes)]
        sources = [
            x for x in step.reads if last[homes[x]] == number and homes[x] not in kept and _is_own(homes[x], homes)
        ]
        if not targets or not sources:
            continue
        for target, source in _merged(step, targets, sources, homes, kept, in_place):
            made, home = homes[target], homes[source]
            homes[target] = home
            last[home] = last[made]
            kept.update([home] if made in kept else [])


def _merged(
    step: Step,
    targets: Sequence[Storage],
    sources: Sequence[Storage],
    homes: AliasMap,
    kept: set[Storage],
    in_place: AliasedKernels,
) -> list[tuple[Storage, Storage]]:
    """Let the kernel of a step write targets over sources, where it can; gives the pairs."""
    assert isinstance(step.work, LoweredKernel)
    dependences = in_place.dependences(step.work)
    numbers = {x: k for k, x in enumerate(step.work.arguments)}
    times = Counter(homes[x] for x in step.work.arguments)
    free: dict[Any, list[Storage]] = {}  # sources by elements, how many, and whether they are donated
    for x in sources:
        if times[homes[x]] == 1 and dependences.is_source(numbers[x]):
            free.setdefault((*_elements(homes[x]), homes[x] in homes.donated), []).append(x)
    found: list[tuple[Storage, Storage]] = []
    for target in targets if free else ():
        if not dependences.is_target(numbers[target]):
            continue
        of_donated = homes[target] in kept  # a result is better over a parameter than over a temporary
        for donated in (of_donated, not of_donated):
            alike = free.get((*_elements(homes[target]), donated), [])
            tried = alike[:_MOST_SOURCES]
            source = next((x for x in tried if dependences.is_safe(numbers[x], numbers[target])), None)
            if source is not None:
                alike.remove(source)
                found.append((target, source))
                break
    step.work = in_place.merge_buffers(step.work, [(numbers[source], numbers[target]) for target, source in found])
    return found


def _elements(x: Storage) -> tuple[Any, int]:
    """Which elements a memory has, and how many."""
    return shape_of(x).element_type, shape_of(x).size


# --- loops and branches -----------------------------------------------------------------------------------------------


def _while(x: Instruction, users: Users, homes: AliasMap) -> Iterator[Step]:
    count = None if effects(x.attributes.condition) else x.attributes.known_trip_count
    step = x.attributes.body
    if count is None:
        condition = _build(x.attributes.condition, homes)
    else:
        condition = _empty_block(homes.own(x.attributes.condition))
        step = freeze_unneeded_carries(step, {result.attributes.index for result in results_of(x, users)})
    body = _build(step, homes)
    parameters = body.computation.parameters
    shared = _share_updates(body, homes, parameters)
    behind = _handed_on(body, homes, parameters)
    older = set(behind.values())
    seen: set[Storage] = set(parameters)
    for k, result in enumerate(body.results):
        home = homes[result]
        if k not in older and home is not parameters[k] and (not _is_own(home, homes) or home in seen):
            _copy_result(body, k)
        seen.add(homes[body.results[k]])
    rows = _rows(body, x.operands, count, shared, homes) if count else []
    turns: list[RotatingBuffers] = []
    reads: list[Storage] = []
    current: dict[int, Storage] = {}
    for k, operand in enumerate(x.operands):
        if k in shared:
            current[k] = Temporary(operand.array_shape)
            yield copy_step(operand, current[k])
            reads.append(current[k])
            continue
        reads.append(operand)
        if homes[body.results[k]] is parameters[k]:
            current[k] = operand
        elif k not in older:
            numbers = [k]
            while numbers[-1] in behind:
                numbers.append(behind[numbers[-1]])
            turns.append(_turn([x.operands[n] for n in numbers], homes))
            homes[body.results[k]] = turns[-1].ring[0]
            current.update(zip(numbers, turns[-1].currents, strict=True))
    results = results_of(x, users)
    for k, home in current.items():
        homes[condition.computation.parameters[k]] = home
        homes[parameters[k]] = home
    for result in results:
        homes[result] = current[result.attributes.index]
    yield Step(Loop(x, condition, body, turns, rows, count, Pointer(Shape(element_type("s64")))), reads, [*results])


def _rows(
    body: Block, operands: Sequence[Instruction], count: int, shared: set[int], homes: AliasMap
) -> list[RowPointer]:
    """Let what becomes a row of an array be made there, instead of being copied."""
    kinds = LoopValueAnalysis(body.computation, operands, count)
    found: list[RowPointer] = []
    uses: dict[Storage, list[Step]] = {}
    for step in body.steps if shared else ():
        for home in {homes[x] for x in (*step.reads, *step.writes)}:
            uses.setdefault(home, []).append(step)
    results = {homes[x] for x in body.results}
    for k in sorted(shared):
        array = homes[body.computation.parameters[k]]
        touching = uses.get(array, [])
        root = _updating(touching[0]) if len(touching) == 1 else None
        if root is None:
            continue
        whole, part, *starts = root.operands
        made, number = homes[part], kinds.counter(starts[0])
        makers = [step for step in uses.get(made, ()) if any(homes[y] is made for y in step.writes)]
        if not _is_own(made, homes) or len(makers) != 1 or made in results:
            continue
        if number is not None and kinds.lowest_row(whole.array_shape, part.array_shape, starts) is not None:
            size = part.array_shape.size * part.array_shape.dtype.itemsize
            homes[made] = pointer = homes.pointer(shape_of(made), [array])
            found.append(RowPointer(pointer, array, number.start * size, number.step * size))
            body.steps.remove(touching[0])
    return found


def _updating(step: Step) -> Instruction | None:
    """The update of a part of an array that a step is."""
    roots = step.work.roots if isinstance(step.work, LoweredKernel) else []
    return roots[0] if len(roots) == 1 and roots[0].op is dynamic_slices.dynamic_update_slice else None


def _handed_on(body: Block, homes: AliasMap, parameters: Sequence[Instruction]) -> dict[int, int]:
    """For values that a loop carries, which of the others are next what they are, as in x, y = f(x), x."""
    numbers: dict[Storage, int] = {p: k for k, p in enumerate(parameters)}
    homes_ = [homes[result] for result in body.results]
    source = {k: numbers[home] for k, home in enumerate(homes_) if numbers.get(home, k) != k}
    found: dict[int, int] = {}
    for k, number in source.items():
        first, steps = number, 0
        while first in source and steps < len(source):
            first, steps = source[first], steps + 1
        if number not in found and first not in source and homes_[first] is not parameters[first]:
            found[number] = k
    return found


def _turn(initials: list[Storage], homes: AliasMap) -> RotatingBuffers:
    shape = shape_of(initials[0])
    buffers = [Temporary(shape) for _ in range(len(initials) + 1)]
    currents = [homes.pointer(shape, [x, *buffers]) for x in initials]
    return RotatingBuffers(initials, buffers, currents, [homes.pointer(shape, buffers) for _ in buffers])


def _conditional(x: Instruction, users: Users, homes: AliasMap) -> Iterator[Step]:
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
    yield Step(Switch(x, index, blocks, pointers), [buffer_of(o) for o in x.operands], [*results])


_STRUCTURED = {"while": _while, "conditional": _conditional}
