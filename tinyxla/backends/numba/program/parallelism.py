"""Which small kernels threads share: where the arrays are that they go over decides, not their work alone.

Threads that share a kernel of a few microseconds gain half of that, if each finds its part of the arrays in its own
cache, as it does where the steps before and after are shared, too. But where another step goes over the same arrays on
one thread, half of them comes from the other processor's cache, and goes back. That is as fast as memory that all
share, so it takes longer than little work gains; and as much is gained where a kernel of too little work to be shared
stands between shared ones, and is shared with them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

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

_WORTH = 5  # simple operations for each byte that comes and goes: with more work than that, sharing gains
_JOINING = 3 << 14  # bytes that need not come and go, for which it is worth it to begin with a kernel on two threads
_OPERATIONS = 4  # that take as long as such a byte


def assign_parallelism(block: Block, aliases: AliasMap) -> None:
    """In a program: for the steps of each loop, and of what is around them, by themselves."""
    whiles = [step.work for step, *_ in walk_steps(block) if isinstance(step.work, LoopBlocks)]
    turns = {p: rotating.ring[0] for loop in whiles for rotating in loop.rotating for p in rotating.pointers}
    for loop in reversed(whiles):
        _settle([*loop.condition.steps, *loop.body.steps], aliases, turns, again=True)
    _settle(block.steps, aliases, turns, again=False)


def _settle(steps: Sequence[Step], aliases: AliasMap, turns: Mapping[Pointer, Pointer], again: bool) -> None:
    touched = [_touched(step, aliases, turns) for step in steps]
    shared = [step for step in steps if _is_shared(step)]
    work, moved = [_work(step) for step in shared], _bytes_between(steps, touched)
    if moved <= current_target().l2_bytes and all(work) and sum(work) < _WORTH * moved:
        for step in shared:
            _cut(step, 1)
    uses = defaultdict[Storage, list[int]](list)
    for k, memories in enumerate(touched):
        for memory in memories:
            uses[memory].append(k)
    able = [_may_be_shared(step) for step in steps]
    for k in [*range(len(steps)), *reversed(range(len(steps)))]:
        step = steps[k]
        if able[k]:
            near = sum(size * _sides(k, uses[memory], steps, able, again) for memory, size in touched[k].items()) // 2
            if near > 0 and near + _work(step) // _OPERATIONS >= _JOINING:
                _cut(step, 2)
                able[k] = False


def _cut(step: Step, pieces: int) -> None:
    assert isinstance(step.work, LoweredKernel)
    step.work = replace(step.work, grain=-(-step.work.extent // pieces))


def _touched(step: Step, aliases: AliasMap, turns: Mapping[Pointer, Pointer]) -> dict[Storage, int]:
    """What a step goes over, and how many bytes of it."""
    found, work = dict[Storage, int](), _work(step)
    for x in [*step.reads, *step.writes]:
        memory, shape = aliases[x], shape_of(x)
        memory = turns.get(memory, memory) if isinstance(memory, Pointer) else memory
        found[memory] = max(found.get(memory, 0), min(shape.size, work or shape.size) * shape.dtype.itemsize)
    return found


def _work(step: Step) -> int:
    """Simple operations; 0 where that is not known."""
    work = step.work
    return work.work if isinstance(work, LoweredKernel) and not _searches(work.kernel.body) else 0


def _searches(statements: Sequence[loop_ir.Statement]) -> bool:
    """Whether there is a loop that ends when its body says so."""
    return any(isinstance(x, loop_ir.Loop) and (x.continue_while is not None or _searches(x.body)) for x in statements)


def _is_shared(step: Step) -> bool:
    return isinstance(step.work, LoweredKernel) and step.work.extent > step.work.grain


def _is_on_one_thread(step: Step) -> bool:
    blocks = inner_blocks(step)
    if blocks:
        return all(_is_on_one_thread(x) for block in blocks for x in block.steps)
    return isinstance(step.work, LoweredKernel) and not _is_shared(step)


def _may_be_shared(step: Step) -> bool:
    """Whether a kernel on one thread could as well be cut: not one that goes over all it knows at once."""
    work = step.work
    if (
        not isinstance(work, LoweredKernel)
        or _is_shared(step)
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


def _bytes_between(steps: Sequence[Step], touched: Sequence[dict[Storage, int]]) -> int:
    """The size of what some step goes over on one thread, and another one on several."""
    by_one, by_several = dict[Storage, int](), set[Storage]()
    for step, memories in zip(steps, touched, strict=True):
        if _is_shared(step):
            by_several.update(memories)
        elif _is_on_one_thread(step):
            by_one.update({x: max(size, by_one.get(x, 0)) for x, size in memories.items()})
    return sum(size for memory, size in by_one.items() if memory in by_several)


def _sides(k: int, uses: Sequence[int], steps: Sequence[Step], able: Sequence[bool], again: bool) -> int:
    """Of the steps that use an array just before and after step k, how many more are shared than are on one thread and
    not `able` to be shared."""
    place, found = bisect_left(uses, k), 0
    for near in (place - 1, place + 1):
        if len(uses) > 1 and (again or 0 <= near < len(uses)):
            other = uses[near % len(uses)]
            found += 1 if _is_shared(steps[other]) else 0 if able[other] else -1
    return found
