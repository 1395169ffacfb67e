"""Parallel or sequential execution of small kernels by cache locality: a step runs where the caches hold its arrays.

Two threads halve the time of a kernel of a few microseconds if each finds its part of the arrays in its own cache, as
after a parallel step over the same arrays. If a sequential step accesses them before or after, half of the bytes move
between the caches of two cores, at the speed of memory. So parallel steps become sequential if all of them together
gain less than these transfers cost, and a sequential step between parallel ones becomes parallel. For the same reason
a short step has one chunk for each thread: what a thread steals from another one, it finds in the other's cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyxla.compiler.costs import CHUNK_OPS, LOCAL_OPS, OPS_PER_BYTE
from tinyxla.compiler.schedule.blocks import (
    AliasMap,
    Block,
    LoopBlocks,
    Pointer,
    Step,
    inner_blocks,
    shape_of,
    walk_steps,
)
from tinyxla.loopir.ir import loop_ir
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.loopir.target import current_target


def assign_parallelism(block: Block, aliases: AliasMap) -> None:
    """Decide for the steps of each loop, and of the program around the loops, separately."""
    whiles = [step.work for step, *_ in walk_steps(block) if isinstance(step.work, LoopBlocks)]
    current_of = {p: rotating.ring[0] for loop in whiles for rotating in loop.rotating for p in rotating.pointers}
    for loop in reversed(whiles):
        _assign([*loop.condition.steps, *loop.body.steps], aliases, current_of, is_loop=True)
    _assign(block.steps, aliases, current_of, is_loop=False)


def _assign(steps: Sequence[Step], aliases: AliasMap, current_of: Mapping[Pointer, Pointer], is_loop: bool) -> None:
    accessed = [_accessed(step, aliases, current_of) for step in steps]
    parallel = [step for step in steps if _is_parallel(step)]
    work, transferred = [_work(step) for step in parallel], _bytes_between(steps, accessed)
    gain = sum(work) - OPS_PER_BYTE * transferred
    if transferred <= current_target().l2_bytes and all(work) and gain < 0:
        for step in parallel:
            _cut(step, 1)
    uses = defaultdict[Storage, list[int]](list)
    for k, memories in enumerate(accessed):
        for memory in memories:
            uses[memory].append(k)
    can_be_parallel = [_can_be_parallel(step) for step in steps]
    for k in [*range(len(steps)), *reversed(range(len(steps)))]:
        step = steps[k]
        if can_be_parallel[k]:
            counts = {x: _parallel_neighbours(k, uses[x], steps, can_be_parallel, is_loop) for x in accessed[k]}
            local_bytes = sum(size * counts[x] for x, size in accessed[k].items()) // 2
            ops = OPS_PER_BYTE * local_bytes + _work(step)
            if local_bytes > 0 and ops >= 3 * CHUNK_OPS // 2:  # for two threads
                _cut(step, 2)
                can_be_parallel[k] = False
    processors = current_target().processors
    for step in steps:
        _limit_chunks(step, processors)


def _cut(step: Step, chunks: int) -> None:
    assert isinstance(step.work, LoweredKernel)
    step.work = replace(step.work, grain=-(-step.work.extent // chunks))


def _limit_chunks(step: Step, processors: int) -> None:
    """Have a short step run in one chunk for each processor, if it has more."""
    work = step.work
    if isinstance(work, LoweredKernel) and work.extent > processors * work.grain and not work.starts_in_order:
        is_short = 0 < _work(step) <= processors * LOCAL_OPS
        if is_short:
            _cut(step, processors)


def _accessed(step: Step, aliases: AliasMap, current_of: Mapping[Pointer, Pointer]) -> dict[Storage, int]:
    """The memories that a step accesses, and the bytes it accesses of each."""
    sizes, work = dict[Storage, int](), _work(step)
    for x in [*step.reads, *step.writes]:
        memory, shape = aliases[x], shape_of(x)
        memory = current_of.get(memory, memory) if isinstance(memory, Pointer) else memory
        sizes[memory] = max(sizes.get(memory, 0), min(shape.size, work or shape.size) * shape.dtype.itemsize)
    return sizes


def _work(step: Step) -> int:
    """The simple operations of a step; 0 if they are unknown."""
    work = step.work
    return work.work if isinstance(work, LoweredKernel) and not _has_uncounted_loop(work.kernel.body) else 0


def _has_uncounted_loop(statements: Sequence[loop_ir.Statement]) -> bool:
    """Whether there is a loop without a trip count."""
    return any(
        isinstance(x, loop_ir.Loop) and (x.continue_while is not None or _has_uncounted_loop(x.body))
        for x in statements
    )


def _is_parallel(step: Step) -> bool:
    return isinstance(step.work, LoweredKernel) and step.work.extent > step.work.grain


def _is_sequential(step: Step) -> bool:
    blocks = inner_blocks(step)
    if blocks:
        return all(_is_sequential(x) for block in blocks for x in block.steps)
    return isinstance(step.work, LoweredKernel) and not _is_parallel(step)


def _can_be_parallel(step: Step) -> bool:
    """Whether a sequential kernel loops over its outer index, so that it can be cut."""
    work = step.work
    if (
        not isinstance(work, LoweredKernel)
        or _is_parallel(step)
        or work.starts_in_order
        or work.extent < 2
        or not _work(step)
    ):
        return False
    return any(
        work.kernel.first in (x.operands if isinstance(x, loop_ir.Compute) else (x.start,))
        for x in work.kernel.body
        if isinstance(x, loop_ir.Compute | loop_ir.Loop)
    )


def _bytes_between(steps: Sequence[Step], accessed: Sequence[dict[Storage, int]]) -> int:
    """The bytes that one step accesses sequentially and another one in parallel."""
    sequential, parallel = dict[Storage, int](), set[Storage]()
    for step, memories in zip(steps, accessed, strict=True):
        if _is_parallel(step):
            parallel.update(memories)
        elif _is_sequential(step):
            sequential.update({x: max(size, sequential.get(x, 0)) for x, size in memories.items()})
    return sum(size for memory, size in sequential.items() if memory in parallel)


def _parallel_neighbours(
    k: int, uses: Sequence[int], steps: Sequence[Step], can_be_parallel: Sequence[bool], is_loop: bool
) -> int:
    """Of the two steps that use an array just before and after step k, the number of parallel ones less that of those
    which stay sequential."""
    position, count = bisect_left(uses, k), 0
    for neighbour in (position - 1, position + 1):
        if len(uses) > 1 and (is_loop or 0 <= neighbour < len(uses)):
            other = uses[neighbour % len(uses)]
            count += 1 if _is_parallel(steps[other]) else 0 if can_be_parallel[other] else -1
    return count
