"""Concurrent execution of independent steps: long steps of one thread that do not depend on each other, such as the
loops of two recurrences, become one step whose branches run on different threads.

Level scheduling of a block: the level of a step is the number of long steps on the longest path of dependences that
ends before it. Long steps of one level are independent, since a step that depends on another has a higher level. Steps
depend on each other if one writes a memory that the other accesses. Where a level saves enough time, all steps are
ordered by level, and the long steps of each such level come last in it, as the branches of one step.

Kernels that threads share, or could share if it paid, are not long steps: branches have one thread each, and what one
thread makes is read more slowly by another. Steps with effects, calls of the host and messages among processes stay
where they are, in no branch. No result depends on which thread runs a branch.

Source: R. L. Graham, "Bounds on multiprocessing timing anomalies" (1969), for the bound on the time of a level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tinyxla.compiler.costs import CHUNK_OPS, STEP_NANOSECONDS, WAKE_NANOSECONDS
from tinyxla.compiler.fusion.plan import BlasCall, CollectiveDone, CollectiveStart, producer_of
from tinyxla.compiler.schedule.blocks import (
    AliasMap,
    Block,
    ConcurrentBlocks,
    LoopBlocks,
    Step,
    SwitchBlocks,
    inner_blocks,
    shape_of,
)
from tinyxla.compiler.schedule.costs import nanoseconds
from tinyxla.hlo import Instruction, is_constant
from tinyxla.loopir.ir import loop_ir
from tinyxla.loopir.kernels.control_flow.scalarized import ASSUMED_STEPS
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.loopir.target import current_target
from tinyxla.ops.cost import bytes_of, operations_of


def run_concurrently(block: Block, aliases: AliasMap) -> None:
    """Make long independent steps of a block, and of those in its loops and branches, the branches of one step."""
    if current_target().processors > 1:
        _Scheduler(aliases).visit(block)


@dataclass(eq=False)
class _Accesses:
    """The memories that a step reads and writes, also inside loops and branches and by way of pointers."""

    reads: set[Storage]
    writes: set[Storage]


class _Scheduler:
    def __init__(self, aliases: AliasMap) -> None:
        self._aliases = aliases

    def visit(self, block: Block) -> None:
        long_steps = {x for x in block.steps if _cannot_be_cut(x) and _time(x) >= WAKE_NANOSECONDS}
        if len(long_steps) > 1:
            block.steps = [x for part in _parts(block.steps) for x in self._scheduled(part, long_steps, block)]
        for step in block.steps:
            if not isinstance(step.work, ConcurrentBlocks):
                for inner in inner_blocks(step):
                    self.visit(inner)

    def _scheduled(self, steps: Sequence[Step], long_steps: set[Step], block: Block) -> list[Step]:
        if sum(step in long_steps for step in steps) < 2:
            return [*steps]
        levels = self._levels(steps, long_steps)
        branches = defaultdict[int, list[Step]](list)
        for step, level in levels.items():
            if step in long_steps:
                branches[level].append(step)
        together = {level: found for level, found in branches.items() if _saved(found) >= 2 * WAKE_NANOSECONDS}
        if not together:
            return [*steps]
        result: list[Step] = []
        for step in sorted(steps, key=lambda x: (levels[x], x in long_steps)):
            if step not in long_steps or levels[step] not in together:
                result.append(step)
            elif step is together[levels[step]][0]:
                result.append(_concurrent(together[levels[step]], block))
        return result

    def _levels(self, steps: Sequence[Step], long_steps: set[Step]) -> dict[Step, int]:
        """For each step how many long steps are on the longest path of dependences that ends before it."""
        levels: dict[Step, int] = {}
        written = dict[Storage, int]()  # the level from which on a memory has its last value
        accessed = dict[Storage, int]()  # the level from which on nobody before accesses it
        for step in steps:
            own = self._accesses(step)
            level = max((*(written.get(x, 0) for x in own.reads), *(accessed.get(x, 0) for x in own.writes)), default=0)
            levels[step] = level
            after = level + (step in long_steps)
            for x in own.writes:
                written[x] = after
            for x in own.reads | own.writes:
                accessed[x] = max(after, accessed.get(x, 0))
        return levels

    def _accesses(self, step: Step) -> _Accesses:
        work, blocks = step.work, inner_blocks(step)
        # A loop or a branch sets the pointers to its results; it writes to what they point to in its steps.
        written = {self._aliases[x] for x in step.writes} if blocks else self._memories(step.writes)
        found = _Accesses(self._memories(step.reads), written)
        if isinstance(work, LoopBlocks):
            for rotating in work.rotating:
                found.reads |= self._memories(rotating.initials)
                found.writes |= self._memories(rotating.buffers)
            found.writes |= self._memories(row.array for row in work.row_pointers)
        elif isinstance(work, SwitchBlocks):
            found.reads |= self._memories([work.index])
        for inside in blocks:
            found.reads |= self._memories(inside.results)
            for x in inside.steps:
                own = self._accesses(x)
                found.reads |= own.reads
                found.writes |= own.writes
        return found

    def _memories(self, storages: Iterable[Storage]) -> set[Storage]:
        found = (y for x in storages for y in self._aliases.memories(x))
        return {y for y in found if not (isinstance(y, Instruction) and is_constant(y))}


def _parts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps, divided at those whose order is fixed, and at messages under way."""
    part: list[Step] = []
    under_way = 0
    for step in steps:
        under_way += isinstance(step.work, CollectiveStart) - isinstance(step.work, CollectiveDone)
        if under_way or not _may_be_moved(step):
            yield part
            yield [step]
            part = []
        else:
            part.append(step)
    yield part


def _concurrent(steps: Sequence[Step], block: Block) -> Step:
    branches = [Block(block.computation, block.plan, [step]) for step in steps]
    reads = dict.fromkeys(x for step in steps for x in step.reads)
    writes = dict.fromkeys(x for step in steps for x in step.writes)
    return Step(ConcurrentBlocks(branches), [*reads], [*writes])


def _saved(steps: Sequence[Step]) -> float:
    """Nanoseconds by which the steps are faster on all processors than on one, as far as they balance."""
    times = [_time(step) for step in steps]
    return sum(times) - max(max(times), sum(times) / current_target().processors)


def _may_be_moved(step: Step) -> bool:
    """Whether a step has no effect, and calls nothing of the user's."""
    work = step.work
    if isinstance(work, LoweredKernel):
        return not any(producer_of(x).has_side_effect or producer_of(x).op.name == "custom-call" for x in work.roots)
    if isinstance(work, BlasCall):
        return True
    blocks = inner_blocks(step)
    return bool(blocks) and all(_may_be_moved(x) for block in blocks for x in block.steps)


def _cannot_be_cut(step: Step) -> bool:
    """Whether a step is a loop, a branch, or a kernel of one iteration."""
    return step.work.extent == 1 if isinstance(step.work, LoweredKernel) else bool(inner_blocks(step))


def _time(step: Step) -> float:
    """Nanoseconds of a step on one thread; 0 if several threads share it, or if that is not known."""
    work = step.work
    if isinstance(work, LoweredKernel):
        return _kernel_time(step, work)
    if isinstance(work, BlasCall):
        operations, _ = operations_of(work.root)
        if operations > 8 * CHUNK_OPS:  # the BLAS may use threads
            return 0.0
        return STEP_NANOSECONDS + nanoseconds(operations, 0)
    blocks = inner_blocks(step)
    times = [_time(x) for block in blocks for x in block.steps]
    if not all(times) or not _may_be_moved(step):
        return 0.0
    if isinstance(work, LoopBlocks):
        return sum(times) * (ASSUMED_STEPS if work.trip_count is None else work.trip_count)
    return sum(times) / len(blocks)


def _kernel_time(step: Step, work: LoweredKernel) -> float:
    if work.extent > work.grain or not work.work:
        return 0.0
    if any(isinstance(x, loop_ir.Loop) and x.continue_while is not None for x in work.kernel.body):
        return STEP_NANOSECONDS + work.work  # scalars, one after the other
    moved = sum(bytes_of(shape_of(x)) for x in [*step.reads, *step.writes])
    return STEP_NANOSECONDS + nanoseconds(work.work, min(work.work, moved))
