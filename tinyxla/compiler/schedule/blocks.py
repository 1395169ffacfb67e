"""Blocks: the steps of a computation, and the storages that they read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinyxla.compiler.costs import COSTLY_OPS
from tinyxla.compiler.fusion import plan as fusion_plan
from tinyxla.compiler.fusion.plan import BlasCall, Collective, HostCall, LoopNest, Plan, buffer_of
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import Builder
from tinyxla.loopir.lower.axes import parallel_grain
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.ops import movement
from tinyxla.shapes import Shape


@dataclass(eq=False)
class Pointer(Temporary):
    """A pointer to one of these storages, chosen while the program runs."""

    targets: list[Storage] = field(default_factory=list)


@dataclass(eq=False)
class RotatingBuffers:
    """Rotating buffers of a loop-carried value: no iteration copies it.

    `currents[k]` points to the value of k + 1 iterations ago, at first to `initials[k]`; there is more than one where
    the loop also carries older values, as in `x, y = f(x), x`. An iteration writes to `ring[0]`; after it, all pointers
    advance by one buffer."""

    initials: list[Storage]
    buffers: list[Temporary]
    currents: list[Pointer]
    ring: list[Pointer]

    @property
    def pointers(self) -> list[Pointer]:
        return [*self.currents, *self.ring]

    def final_buffers(self, trip_count: int | None) -> dict[Pointer, Temporary]:
        """The buffers that `currents` point to after a known number of iterations."""
        if trip_count is None or trip_count < len(self.currents):
            return {}
        return {p: self.buffers[(trip_count - 1 - k) % len(self.buffers)] for k, p in enumerate(self.currents)}


@dataclass(eq=False)
class RowPointer:
    """A pointer to the row of a stacked array that an iteration computes in place: at first `start` bytes into the
    array, `step` bytes further after each iteration."""

    pointer: Pointer
    array: Storage
    start: int
    step: int


@dataclass(eq=False)
class LoopBlocks:
    """A `while` with the blocks of its condition and its body. With a known `trip_count` the block of the condition is
    empty, and `counter` counts down."""

    root: Instruction
    condition: Block
    body: Block
    rotating: list[RotatingBuffers]
    row_pointers: list[RowPointer]
    trip_count: int | None
    counter: Pointer


@dataclass(eq=False)
class SwitchBlocks:
    """A `conditional` with the blocks of its branches: `index` selects the one that runs; then `results` point to its
    results, unless both are one memory."""

    root: Instruction
    index: Storage
    blocks: list[Block]
    results: list[Pointer]


@dataclass(eq=False)
class ConcurrentBlocks:
    """Blocks that are independent of each other: they run at the same time, each on one thread."""

    blocks: list[Block]


Work = LoweredKernel | BlasCall | HostCall | Collective | LoopBlocks | SwitchBlocks | ConcurrentBlocks


@dataclass(eq=False)
class Step:
    """One step of a schedule, with the storages that it reads and writes, and the step of the plan that it belongs to;
    a copy belongs to none, nor do concurrent steps together."""

    work: Work
    reads: list[Storage]
    writes: list[Storage]
    planned: fusion_plan.Step | None = None

    @property
    def is_copy(self) -> bool:
        return self.planned is None and not isinstance(self.work, ConcurrentBlocks)


@dataclass(eq=False)
class Block:
    """The steps of a computation, and the storages of its results."""

    computation: Computation
    plan: Plan
    steps: list[Step] = field(default_factory=list)
    results: list[Storage] = field(default_factory=list)


class AliasMap:
    """Which storages share memory: a union-find structure over the storages of one program."""

    def __init__(self) -> None:
        self.donated: set[Storage] = set()  # parameters whose memory the program may overwrite
        self._canonical: dict[Storage, Storage] = {}
        self._pointers: list[Pointer] = []
        self._built: dict[int, Computation] = {}  # computations of blocks, by identity

    def unshare(self, computation: Computation) -> Computation:
        """A copy of the computation if another block was built of it: loops and branches may share one."""
        if id(computation) in self._built:
            computation, _ = computation.copy()
        self._built[id(computation)] = computation
        return computation

    def __getitem__(self, x: Storage) -> Storage:
        x = buffer_of(x) if isinstance(x, Instruction) else x
        path: list[Storage] = []
        while x in self._canonical:
            path.append(x)
            x = self._canonical[x]
            x = buffer_of(x) if isinstance(x, Instruction) else x
        for y in path:  # path compression
            self._canonical[y] = x
        return x

    def __setitem__(self, x: Storage, memory: Storage) -> None:
        self._canonical[self[x]] = memory

    def memories(self, x: Storage) -> list[Storage]:
        """The memory of a storage and, of a pointer, all that it may point to, by way of other pointers too."""
        memory = self[x]
        if not isinstance(memory, Pointer):
            return [memory]
        return [memory, *(y for target in memory.targets for y in self.memories(target))]

    def aliases_by_memory(self) -> dict[Storage, list[Instruction]]:
        """For each memory the instructions that share it, besides the one that stands for it."""
        result: dict[Storage, list[Instruction]] = {}
        for x in self._canonical:
            if isinstance(x, Instruction) and x.op is not movement.parameter:
                result.setdefault(self[x], []).append(x)
        return result

    def pointer(self, shape: Shape, targets: Sequence[Storage]) -> Pointer:
        self._pointers.append(Pointer(shape, list(targets)))
        return self._pointers[-1]

    def pointers_to(self) -> dict[Storage, set[Pointer]]:
        """For each memory that pointers may point to, these pointers."""
        found: dict[Storage, set[Pointer]] = {}
        for pointer in self._pointers:
            for x in pointer.targets:
                found.setdefault(self[x], set()).add(pointer)
        return found


def shape_of(x: Storage) -> Shape:
    return x.shape if isinstance(x, Temporary) else x.array_shape


def walk_steps(block: Block, depth: int = 0, times: int | None = 1) -> Iterator[tuple[Step, Block, int, int | None]]:
    """The steps of a block and of its nested blocks, in order: each with its block, its depth, and how often it runs
    (None if that is not known)."""
    for step in block.steps:
        yield step, block, depth, times
        inside = None if times is None or (runs := runs_of_blocks(step)) is None else runs * times
        for part in inner_blocks(step):
            yield from walk_steps(part, depth + 1, inside)


def runs_of_blocks(step: Step) -> int | None:
    """How often the nested blocks of a step run in one run of it; None if that is not known."""
    work = step.work
    return work.trip_count if isinstance(work, LoopBlocks) else 1 if isinstance(work, ConcurrentBlocks) else None


def inner_blocks(step: Step) -> list[Block]:
    """The nested blocks of a step."""
    work = step.work
    if isinstance(work, LoopBlocks):
        return [work.condition, work.body]
    return work.blocks if isinstance(work, SwitchBlocks | ConcurrentBlocks) else []


def nest_of(step: Step, block: Block) -> LoopNest | None:
    """The loop nest that a step computes: by itself, or as the epilogue of an operation."""
    if step.planned is None or isinstance(step.planned, LoopNest):
        return step.planned
    return block.plan.epilogues.get(step.planned.root)


def copy_step(source: Storage, target: Storage) -> Step:
    """A kernel that copies one storage to another."""
    b = Builder("copy")
    name, size = shape_of(source).element_type.name, shape_of(source).size
    elements, copies = b.argument(name), b.argument(name, True)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.store(copies, index, b.load(elements, index))
    work = size * COSTLY_OPS
    kernel = LoweredKernel(b.kernel, [source, target], size, parallel_grain(size, COSTLY_OPS), [], work=work)
    return Step(kernel, [source], [target])
