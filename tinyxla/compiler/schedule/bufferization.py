"""Bufferization: which results share memory with operands, and the order of steps that follows from it.

Copies before in-place updates are elided, kernels write results over dead operands of the same size, and steps that
free memory run early. Input and output are a block and its alias map. Memory that a pointer may point to is left alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tinyxla.compiler.costs import MAX_CANDIDATES, MAX_NEST_BUFFERS
from tinyxla.compiler.fusion.plan import Collective, HostCall
from tinyxla.compiler.schedule.blocks import (
    AliasMap,
    Block,
    Pointer,
    Step,
    SwitchBlocks,
    Work,
    inner_blocks,
    shape_of,
)
from tinyxla.hlo import Instruction
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.loopir.passes.alias_in_place import AliasedKernels
from tinyxla.ops import movement
from tinyxla.ops.distributed.process_collectives import is_message, message_of
from tinyxla.runtime.mpi.calls import IN_PLACE


def schedule_last_uses_early(block: Block, aliases: AliasMap) -> None:
    """Move kernels that free more memory than they write forward, as soon as their operands are there: updates of
    parameters, say, which programs often do after all gradients.

    A step that moves comes right after its barrier, the last step that it must stay behind: its key is that of the
    barrier and one component more, and the order of the steps is the lexicographic order of keys."""
    memory_of = [({aliases[x] for x in step.reads}, {aliases[x] for x in step.writes}) for step in block.steps]
    last = {memory: k for k, (reads, writes) in enumerate(memory_of) for memory in reads | writes}
    results = {aliases[x] for x in block.results}
    keys: list[tuple[int, ...]] = []
    latest: tuple[int, ...] = ()
    read: dict[Storage, tuple[int, ...]] = {}  # the key of the last step that reads a memory, and that writes it
    written: dict[Storage, tuple[int, ...]] = {}
    for k, (step, (reads, writes)) in enumerate(zip(block.steps, memory_of, strict=True)):
        freed = {x for x in reads - writes - results if last[x] == k and is_writable(x, aliases)}
        key: tuple[int, ...] = (k,)
        if isinstance(step.work, LoweredKernel) and _bytes(freed) > _bytes(writes - results):
            sizes = {shape_of(x).size for x in writes}
            over = {x for x in reads if shape_of(x).size in sizes and not is_writable(x, aliases)}  # if it is donated
            alone = writes | freed | over
            barriers = [written[x] for x in reads | alone if x in written] + [read[x] for x in alone if x in read]
            barrier = max(barriers, default=(-1,))
            key = (*barrier, -k) if barrier < latest else key
        keys.append(key)
        latest = max(latest, key)
        for final_buffers, memories in ((read, reads), (written, writes)):
            for x in memories:
                final_buffers[x] = max(final_buffers.get(x, key), key)
    block.steps = [block.steps[k] for k in sorted(range(len(keys)), key=keys.__getitem__)]


def _bytes(storages: Iterable[Storage]) -> int:
    return sum(shape_of(x).size * shape_of(x).dtype.itemsize for x in storages)


@dataclass(eq=False)
class _Update:
    """A step that gives `target` the value of `source`, or an update of it, so that both may be one memory: a copy,
    which later steps update, or a conditional, each of whose branches returns an operand as it is or, by `branches`,
    updates of it, the latest first."""

    step: Step
    source: Storage
    target: Storage
    branches: list[tuple[_StepOrder, list[_Update]]] = field(default_factory=list)

    def pointers(self) -> Iterator[Storage]:
        """The pointers to the results of the conditionals."""
        if self.branches:
            yield self.target
        yield from (pointer for _, chain in self.branches for update in chain for pointer in update.pointers())


class _StepOrder:
    """The steps of a block while copies are elided and updates move; `users_of` has the steps that access a memory, in
    order, `results` counts the results in each, and `pointers` has the pointers to it."""

    def __init__(self, block: Block, aliases: AliasMap, pointers: dict[Storage, set[Pointer]]) -> None:
        self.aliases = aliases
        self._block, self._pointers = block, pointers
        self._branches: dict[Block, _StepOrder] = {}
        self.results = Counter(aliases[x] for x in block.results)
        self.steps: list[Step | None] = [*block.steps]
        self.position = {step: k for k, step in enumerate(block.steps)}
        self.users_of: dict[Storage, list[Step]] = {}
        for step in block.steps:
            for memory in self.memory_of([step]):
                self.users_of.setdefault(memory, []).append(step)

    def memory_of(self, steps: Iterable[Step]) -> set[Storage]:
        """The memories that steps read or write."""
        return {self.aliases[x] for step in steps for x in (*step.reads, *step.writes)}

    def slice_(self, begin: int, end: int) -> list[Step]:
        """The steps at positions `begin` to `end`."""
        return [step for step in self.steps[begin:end] if step is not None]

    def end_of_writers(self, begin: int, memory: Storage) -> int:
        """The end of a run of steps that all write to a memory."""
        while begin < len(self.steps):
            step = self.steps[begin]
            if step is not None and not any(self.aliases[x] is memory for x in step.writes):
                break
            begin += 1
        return begin

    def move(self, begin: int, middle: int, end: int) -> None:
        """Exchange the steps before `middle` with those from `middle` on."""
        moved, others = self.slice_(begin, middle), self.slice_(middle, end)
        padded = [*others, *moved, *[None] * (end - begin - len(others) - len(moved))]
        self.steps[begin:end] = padded
        self.position.update({step: begin + k for k, step in enumerate(padded) if step is not None})
        for memory in self.memory_of(moved):
            steps = self.users_of[memory]
            first = bisect_left(steps, begin, key=self.position.__getitem__)
            steps[first:] = sorted(steps[first:], key=self.position.__getitem__)

    def chain_of_updates(self, result: Storage) -> tuple[list[_Update], Storage]:
        """The updates that lead to a result, the latest first, and the memory of which they are updates."""
        chain: list[_Update] = []
        memory = self.aliases[result]
        while (maker := self._maker(memory)) and (update := self.update_of(maker, memory)):
            chain.append(update)
            memory = update.source
        return chain, memory

    def _maker(self, memory: Storage) -> Step | None:
        """The copy, or the conditional, that begins to write a memory."""
        begins = (x for x in self.users_of.get(memory, ()) if x.is_copy or isinstance(x.work, SwitchBlocks))
        return next((x for x in begins if any(self.aliases[y] is memory for y in x.writes)), None)

    def update_of(self, step: Step, target: Storage) -> _Update | None:
        """A copy or a conditional as the update that `target` is, if it is one."""
        if not isinstance(step.work, SwitchBlocks):
            return _Update(step, self.aliases[step.reads[0]], target)
        number = next((k for k, x in enumerate(step.work.results) if self.aliases[x] is target), None)
        if number is None or not isinstance(target, Pointer):
            return None
        branches: list[tuple[_StepOrder, list[_Update]]] = []
        roots: set[Storage] = set()
        for block in step.work.blocks:
            if block not in self._branches:
                self._branches[block] = _StepOrder(block, self.aliases, self._pointers)
            chain, root = self._branches[block].chain_of_updates(block.results[number])
            branches.append((self._branches[block], chain))
            roots.add(root)
        operands = {self.aliases[x] for x in step.reads} - {target}
        is_update = len(roots) == 1 and roots <= operands and any(chain for _, chain in branches)
        return _Update(step, roots.pop(), target, branches) if is_update else None

    def can_share(self, chain: Sequence[_Update], own: Set[Storage] = frozenset()) -> bool:
        """Whether each update of a chain can be made the last access of its source, to which none but its `own`
        pointers point."""
        own = own or {pointer for update in chain for pointer in update.pointers()}
        if any(self._pointers.get(x.source, set()) - own or self.results[x.source] for x in chain):
            return False
        return all(
            all(order.can_share(inner, own) for order, inner in x.branches)
            and (self.users_of[x.source][-1] is x.step if x.branches else _sink_update(self, x.step))
            for x in chain
        )

    def share(self, chain: Sequence[_Update]) -> None:
        """Give the targets of updates the memory of their sources, without the copies."""
        for update in chain:
            for order, inner in update.branches:
                order.share(inner)
            if not update.branches:
                self.steps[self.position[update.step]] = None
                users = self.users_of[update.source]
                del users[bisect_left(users, self.position[update.step], key=self.position.__getitem__)]
            later = (step for step in self.users_of.pop(update.target) if step is not update.step)
            self.users_of.setdefault(update.source, []).extend(later)
            self.aliases[update.target] = update.source
            self.results[update.source] += self.results.pop(update.target, 0)
            pointers = self._pointers.pop(update.target, set()) | self._pointers.pop(update.source, set())
            self._pointers[update.source] = pointers.difference(update.pointers())
        self._finish_branches()

    def finish(self) -> None:
        """Put the steps into the block, and those of branches into theirs."""
        self._block.steps = self.slice_(0, len(self.steps))
        self._finish_branches()

    def _finish_branches(self) -> None:
        for order in self._branches.values():
            order.finish()
        self._branches.clear()  # what their memories are has changed


def elide_update_copies(block: Block, aliases: AliasMap, parameters: Sequence[Instruction]) -> set[int]:
    """Elide the copies before in-place updates (scatter, `dynamic-update-slice`, LU) whose operand is dead afterwards,
    also those in branches of conditionals that return their operand, updated or as it is.

    A loop's parameter may be overwritten if its update is the loop's result of the same number; returns these numbers.
    """
    shared: set[int] = set()
    begins = [step for step in block.steps if step.is_copy or isinstance(step.work, SwitchBlocks)]
    if not begins:
        return shared
    order = _StepOrder(block, aliases, aliases.pointers_to())
    for k, parameter in enumerate(parameters):
        chain, root = order.chain_of_updates(block.results[k])
        if chain and root is parameter and order.can_share(chain):
            shared.add(k)
            order.share(chain)
    for step in begins:
        if order.steps[order.position[step]] is not step:
            continue
        for target in step.work.results if isinstance(step.work, SwitchBlocks) else step.writes:
            update = order.update_of(step, aliases[target])
            if update and is_writable(update.source, aliases) and order.can_share([update]):
                order.share([update])
    order.finish()
    return shared


def is_writable(memory: Storage, aliases: AliasMap) -> bool:
    """Whether a block may overwrite a memory."""
    if isinstance(memory, Pointer):
        return False
    if memory in aliases.donated or not isinstance(memory, Instruction):
        return True
    return memory.op not in (movement.parameter, movement.constant)


def _sink_update(order: _StepOrder, copy: Step) -> bool:
    """Make the update of a copy the last access of its source: move it behind later readers, if they are few and do not
    read the updated value. Returns whether that was possible."""
    aliases = order.aliases
    source, target = aliases[copy.reads[0]], aliases[copy.writes[0]]
    at = order.position[copy]
    end = order.end_of_writers(at + 1, target)
    moved = order.slice_(at, end)
    if source in order.memory_of(moved[1:]):
        return False
    last = order.position[order.users_of[source][-1]]
    if last < end:
        return True
    slice_ = order.slice_(end, last + 1)
    produced = {aliases[x] for step in moved for x in step.writes}
    if len(slice_) > 16 * MAX_CANDIDATES or not produced.isdisjoint(order.memory_of(slice_)):
        return False
    needed = {aliases[x] for step in moved for x in step.reads}  # which updates in place may have changed by then
    if any(aliases[x] in needed for step in slice_ for x in step.writes):
        return False
    if any(map(_has_effect, moved)) and any(map(_has_effect, slice_)):
        return False
    order.move(at, end, last + 1)
    return True


def _has_effect(step: Step) -> bool:
    """Whether a step has a side effect, whose order must be kept: as processes must keep that of what they exchange."""
    work = step.work
    if isinstance(work, HostCall | Collective):
        return work.root.has_side_effect or isinstance(work, Collective)
    return any(_has_effect(x) for block in inner_blocks(step) for x in block.steps)


def alias_in_place(block: Block, aliases: AliasMap) -> None:
    """Let kernels and exchanges write results over operands of the same size that they read for the last time."""
    kept = {*aliases.pointers_to(), *(aliases[x] for x in block.results)}
    last: dict[Storage, int] = {}
    first: dict[Storage, int] = {}
    for position, step in enumerate(block.steps):
        for x in [*step.reads, *step.writes]:
            first.setdefault(aliases[x], position)
            last[aliases[x]] = position
    in_place = AliasedKernels()
    for position, step in enumerate(block.steps):
        if not isinstance(step.work, LoweredKernel) and not _works_in_place(step.work):
            continue
        targets = [x for x in step.writes if first[aliases[x]] == position and is_writable(aliases[x], aliases)]
        sources = [
            x
            for x in step.reads
            if last[aliases[x]] == position and aliases[x] not in kept and is_writable(aliases[x], aliases)
        ]
        if not targets or not sources:
            continue
        if isinstance(step.work, LoweredKernel):
            pairs = _alias_results(step, targets, sources, aliases, kept, in_place)
        else:
            pairs = [(targets[0], sources[0])]
        for target, source in pairs:
            produced, memory = aliases[target], aliases[source]
            aliases[target] = memory
            last[memory] = last[produced]
            kept.update([memory] if produced in kept else [])


def _works_in_place(work: Work) -> bool:
    """Whether processes can put the one result of an exchange where its one operand is."""
    root = work.root if isinstance(work, Collective) else None
    return root is not None and is_message(root) and message_of(root).kind in IN_PLACE


def _alias_results(
    step: Step,
    targets: Sequence[Storage],
    sources: Sequence[Storage],
    aliases: AliasMap,
    kept: set[Storage],
    in_place: AliasedKernels,
) -> list[tuple[Storage, Storage]]:
    """Choose an operand for each result that can be written over one; rewrites the kernel, and returns the pairs."""
    assert isinstance(step.work, LoweredKernel)
    dependences = in_place.dependences(step.work)
    numbers = {x: k for k, x in enumerate(step.work.arguments)}
    times = Counter(aliases[x] for x in step.work.arguments)
    free: dict[Any, list[Storage]] = {}  # sources by elements, how many, and whether they are donated
    for x in sources:
        if times[aliases[x]] == 1 and dependences.is_source(numbers[x]):
            free.setdefault((*_elements(aliases[x]), aliases[x] in aliases.donated), []).append(x)
    result: list[tuple[Storage, Storage]] = []
    for target in targets if free else ():
        if not dependences.is_target(numbers[target]):
            continue
        of_donated = aliases[target] in kept  # a result is better over a parameter than over a temporary
        for donated in (of_donated, not of_donated):
            alike = free.get((*_elements(aliases[target]), donated), [])
            tried = alike[:MAX_NEST_BUFFERS]
            source = next((x for x in tried if dependences.is_safe(numbers[x], numbers[target])), None)
            if source is not None:
                alike.remove(source)
                result.append((target, source))
                break
    step.work = in_place.merge_buffers(step.work, [(numbers[source], numbers[target]) for target, source in result])
    return result


def _elements(x: Storage) -> tuple[Any, int]:
    """Element type and size of a storage."""
    return shape_of(x).element_type, shape_of(x).size
