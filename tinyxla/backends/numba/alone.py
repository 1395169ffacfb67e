"""Which small kernels one thread runs alone, though there is work for several.

Threads that share a kernel of a few microseconds gain half of that, if each finds its part of the arrays in its own
cache, as it does where the steps of a loop are cut alike. But where another step goes over the same arrays on one
thread, half of them comes from the other processor's cache and goes back in every iteration. That is as fast as memory
that all share, so it takes longer than little work gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyxla.backends.numba import loops
from tinyxla.backends.numba.blocks import Block, Homes, Loop, Pointer, Step, all_steps, inner_blocks, shape_of
from tinyxla.backends.numba.lowering import LoweredKernel, Storage

_WORTH = 5  # simple operations for each byte that comes and goes: with more work than that, sharing gains
_NEAR = 1 << 20  # bytes that a processor's own cache holds; more of them come from farther away in any case


def leave_alone(block: Block, homes: Homes) -> None:
    """In a program: the steps of each loop, and of what is around them, by themselves."""
    whiles = [step.work for step, *_ in all_steps(block) if isinstance(step.work, Loop)]
    turns = {p: turn.ring[0] for loop in whiles for turn in loop.turns for p in turn.pointers}
    for steps in [*([*loop.condition.steps, *loop.body.steps] for loop in reversed(whiles)), block.steps]:
        shared, moved = [step for step in steps if _is_shared(step)], _bytes_between(steps, homes, turns)
        work = [_work(step) for step in shared]
        if moved <= _NEAR and all(work) and sum(work) < _WORTH * moved:
            for step in shared:
                assert isinstance(step.work, LoweredKernel)
                step.work = replace(step.work, grain=step.work.extent)


def _work(step: Step) -> int:
    """Simple operations; 0 where that is not known."""
    work = step.work
    return work.work if isinstance(work, LoweredKernel) and not _searches(work.kernel.body) else 0


def _searches(statements: Sequence[loops.Statement]) -> bool:
    """Whether there is a loop that ends when its body says so."""
    return any(isinstance(x, loops.Loop) and (x.again is not None or _searches(x.body)) for x in statements)


def _is_shared(step: Step) -> bool:
    return isinstance(step.work, LoweredKernel) and step.work.extent > step.work.grain


def _is_on_one_thread(step: Step) -> bool:
    blocks = inner_blocks(step)
    if blocks:
        return all(_is_on_one_thread(x) for block in blocks for x in block.steps)
    return isinstance(step.work, LoweredKernel) and not _is_shared(step)


def _bytes_between(steps: Sequence[Step], homes: Homes, turns: Mapping[Pointer, Pointer]) -> int:
    """The size of what some step goes over on one thread, and another one on several."""
    by_one, by_several = dict[Storage, int](), set[Storage]()
    for step in steps:
        for x in [*step.reads, *step.writes]:
            home = homes[x]
            memory = turns.get(home, home) if isinstance(home, Pointer) else home
            if _is_shared(step):
                by_several.add(memory)
            elif _is_on_one_thread(step):
                elements = min(shape_of(x).size, _work(step) or shape_of(x).size)
                by_one[memory] = max(by_one.get(memory, 0), elements * shape_of(x).dtype.itemsize)
    return sum(size for memory, size in by_one.items() if memory in by_several)
