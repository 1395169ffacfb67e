"""A compiled program as a `Report`: its steps with the instructions they compute and what they cost, and its memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tinyxla.compiler.costs import COSTLY_OPS
from tinyxla.compiler.fusion.plan import BlasCall, Collective, CollectiveDone, CollectiveStart, HostCall, producer_of
from tinyxla.compiler.report import BufferInfo, Report, StepInfo
from tinyxla.compiler.schedule.blocks import (
    Block,
    ConcurrentBlocks,
    LoopBlocks,
    Pointer,
    Step,
    SwitchBlocks,
    Work,
    nest_of,
    shape_of,
    walk_steps,
)
from tinyxla.compiler.schedule.costs import communication_of_step, cost_of_step
from tinyxla.compiler.schedule.describe import accesses_of
from tinyxla.compiler.step_costs import Cost
from tinyxla.hlo import Instruction, Module
from tinyxla.loopir.ir.schedule import loops_of, schedule_of
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.ops.cost import bytes_of, operations_of
from tinyxla.ops.distributed.communication import Communication
from tinyxla.ops.distributed.process_collectives import is_message, message_of
from tinyxla.text.hlo_text import instruction_names

if TYPE_CHECKING:
    from tinyxla.backends.numba.program.executable import CompiledModule

_KINDS = {BlasCall: "product", Collective: "collective", HostCall: "host call"}
_KINDS_OF_BLOCKS: dict[type[Work], str] = {
    LoopBlocks: "while",
    SwitchBlocks: "conditional",
    ConcurrentBlocks: "concurrent",
}
_HALVES: dict[type[Collective], str] = {CollectiveStart: "-start", CollectiveDone: "-done"}
_UNLISTED = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})


def explain(module: CompiledModule, source: Module) -> Report:
    """The report of a program that was compiled from a module."""
    naming = _Names(instruction_names(source))
    buffers = _Buffers(module, naming)
    steps: list[StepInfo] = []
    total, communication = Cost(), Communication()
    for number, (step, block, depth, times) in enumerate(walk_steps(module.block)):
        info = _step(number, step, block, depth, times, naming, buffers)
        total += info.cost * (1 if times is None else times)
        communication = communication.plus(info.communication, 1 if times is None else times)
        steps.append(info)
    described = tuple(buffers.described())
    return Report(module.name, tuple(steps), described, module.temporary_bytes, total, communication)


class _Names:
    """Names of the program's instructions, as its text has them."""

    def __init__(self, names: Mapping[Instruction, str]) -> None:
        self._names = names

    def __getitem__(self, x: Instruction) -> str:
        return self._names.get(x) or self._names.get(x.origin or x) or x.op.name


class _Buffers:
    """The memories of a program under unique names."""

    def __init__(self, module: CompiledModule, naming: _Names) -> None:
        self.module = module
        self._naming = naming
        self._names: dict[Storage, str] = {}
        sharing = module.aliases.aliases_by_memory()
        counts: dict[str, int] = {}
        for x in module.slots:
            inside = [x] if isinstance(x, Instruction) else sharing.get(x, ())
            name = naming[inside[0]] if inside else "pointer" if isinstance(x, Pointer) else "partial"
            counts[name] = counts.get(name, 0) + 1
            self._names[x] = name if counts[name] == 1 else f"{name}'{counts[name]}"

    def name(self, x: Storage) -> str:
        return self._names[self.module.aliases[x]]

    def names(self, storages: Sequence[Storage]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.name, storages)))

    def described(self) -> Iterator[BufferInfo]:
        module = self.module
        liveness, sharing = module.liveness(), module.aliases.aliases_by_memory()
        for x, name in self._names.items():
            shape = shape_of(x)
            life = liveness.spans.get(x)
            allocation, offset = module.allocation_of(x)
            steps = None if life is None or offset is None else _steps_of(life, liveness.starts)
            aliases = tuple(dict.fromkeys(map(self._naming.__getitem__, sharing.get(x, ()))))
            yield BufferInfo(
                name, str(shape), bytes_of(shape), allocation, offset, steps, tuple(a for a in aliases if a != name)
            )


def _steps_of(life: tuple[int, int], starts: Sequence[int]) -> tuple[int, int]:
    first, last = (max(0, bisect_right(starts, time) - 1) for time in life)
    return first, last


def _step(
    number: int, step: Step, block: Block, depth: int, times: int | None, naming: _Names, buffers: _Buffers
) -> StepInfo:
    work = step.work
    over = ""
    roots = [] if isinstance(work, ConcurrentBlocks) else work.roots if isinstance(work, LoweredKernel) else [work.root]
    inside = _computed(step, roots, block) if isinstance(work, LoweredKernel) else roots
    if isinstance(work, LoweredKernel):
        kind, over = work.kernel.name, f"{work.extent} by {work.grain}"
    elif isinstance(work, BlasCall | HostCall | Collective):
        kind = _KINDS.get(type(work), "")
        if is_message(work.root):
            message = message_of(work.root)
            kind, over = (
                message.kind + (_HALVES.get(type(work), "") if isinstance(work, Collective) else ""),
                str(message),
            )
    else:
        kind = _KINDS_OF_BLOCKS[type(work)]
        over = f"{len(work.blocks)} steps" if isinstance(work, ConcurrentBlocks) else ""
    weights: dict[str, float] = {}
    for x in inside:
        if x.source is not None:
            operations, transcendentals = operations_of(x)
            weight = max(1, operations + COSTLY_OPS * transcendentals)  # 1 where data only move
            weights[str(x.source)] = weights.get(str(x.source), 0) + weight
    total = sum(weights.values())
    return StepInfo(
        number,
        kind,
        instructions=tuple(dict.fromkeys(naming[x] for x in inside)),
        roots=tuple(producer_of(x).op.name for x in roots),
        lines=tuple(weights),
        shares=tuple(weight / total for weight in weights.values()),
        reads=buffers.names(step.reads),
        writes=buffers.names(step.writes),
        cost=cost_of_step(step),
        over=over,
        depth=depth,
        times=times,
        type=type(step.planned).__name__ if step.planned else "LoopNest" if step.is_copy else "Concurrent",
        loops=loops_of(work.kernel) if isinstance(work, LoweredKernel) else "",
        schedule=_schedule(step, buffers),
        accesses=tuple(accesses_of(step, block, buffers.name)),
        communication=communication_of_step(step),
    )


def _schedule(step: Step, buffers: _Buffers) -> tuple[str, ...]:
    work = step.work
    if isinstance(work, BlasCall):
        gemm = buffers.module.blas_steps[work.root]
        parallel = (f"parallel({gemm.extent} by {gemm.grain})",) if gemm.extent > gemm.grain else ()
        return (f"call({gemm.name})", *parallel)
    if not isinstance(work, LoweredKernel):
        return ()
    names = [buffers.name(x) for x in work.arguments]
    found = schedule_of(work.kernel, work.extent, work.grain, work.starts_in_order, work.directives, names)
    return tuple(map(str, found))


def _computed(step: Step, roots: Sequence[Instruction], block: Block) -> list[Instruction]:
    """The instructions that a kernel computes, in the order of the program."""
    found = {producer_of(root) for root in roots}
    nest = nest_of(step, block)
    nests = [x for x in roots if nest is not None and x in nest.roots]
    found |= {x for x, _, from_memory in block.plan.accesses.read_by(nests) if not from_memory}
    return [x for x in block.computation.instructions if x in found and x.op.name not in _UNLISTED]
