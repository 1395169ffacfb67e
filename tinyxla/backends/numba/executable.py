"""Compiled modules: the steps of a program as one schedule, its memory, and calls of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from tinyxla.backends.numba.blocks import Block, Branches, Homes, Loop, Pointer, Step, build_program, shape_of
from tinyxla.backends.numba.lowering import LoweredKernel, Storage
from tinyxla.backends.numba.memory import pool
from tinyxla.backends.numba.native import compile_kernel
from tinyxla.backends.numba.products import product_step
from tinyxla.backends.numba.python_printer import print_python
from tinyxla.backends.numba.runtime import Schedule, launch
from tinyxla.compiler import HostCall, Product
from tinyxla.compiler.buffers import arena_offsets
from tinyxla.hlo import Instruction, Module, is_constant
from tinyxla.shapes import Shape

Array = np.ndarray[Any, Any]
_View = Callable[[int], Array]


@dataclass(frozen=True)
class KernelInfo:
    """A fused loop nest, for reading: its name, its source as Python, how often it runs, and the user's lines it
    serves."""

    name: str
    source: str
    extent: int
    arguments: tuple[str, ...]
    lines: tuple[str, ...]


class CompiledModule:
    """A module as native code: call it with dense row-major arrays of the parameters' shapes.

    Every memory has a *slot*, its address: first the inputs', then the outputs', constants', temporaries', and those
    that the program sets. Those of constants and temporaries are the same from call to call as long as the arena is.
    """

    def __init__(self, module: Module) -> None:
        self.name = module.name
        self._block, self._homes = build_program(module.entry)
        self.computation, self.plan = self._block.computation, self._block.plan
        self._assign_slots()
        self._host_calls: list[_HostCall] = []
        self._callback = _callback(self._host_calls)
        schedule = Schedule()
        self._emit(self._block, schedule)
        self._schedule = schedule.finish()
        self._schedule_address = self._schedule.ctypes.data

    # --- memory

    def _assign_slots(self) -> None:
        homes, parameters = self._homes, self.computation.parameters
        self._slots: dict[Storage, int] = {p: k for k, p in enumerate(parameters)}
        self._allocators: list[Callable[[], Array]] = []
        for result in self._block.results:
            home = homes[result]
            if not _is_constant(home) and home not in self._slots:
                self._slots[home] = len(self._slots)
                self._allocators.append(_allocator(shape_of(home)))
        self._fixed = len(self._slots)  # from here on, slots do not depend on arguments and results
        lives = _Lives(homes)
        lives.visit(self._block)
        self._constants = [np.ascontiguousarray(x.attributes.literal.value) for x in lives.constants]
        spans = {x: span for x, span in lives.spans.items() if x not in self._slots}
        offsets, self._arena_bytes = arena_offsets(spans, {x: _bytes(shape_of(x)) for x in spans})
        self._offsets = list(offsets.values())
        for x in [*lives.constants, *offsets, *lives.pointers]:
            self._slots[x] = len(self._slots)
        self._constant_addresses = [x.ctypes.data for x in self._constants]
        self._words = ctypes.c_int64 * max(1, len(self._slots))
        self._template: tuple[int, bytes] = (0, bytes(self._words(*[0] * self._fixed, *self._constant_addresses)))
        pairs = zip(self.computation.outputs, self._block.results, strict=True)
        self._results = [self._result(x, homes[result]) for x, result in pairs]
        count = len(parameters)
        self._plain = self._results == [(count + k, None, None) for k in range(len(self._allocators))]

    def _result(self, x: Instruction, home: Storage) -> tuple[int, Array | None, tuple[int, ...] | None]:
        """Where a result is: the number of its slot, or the constant that it is; and its sizes if they are others
        there."""
        sizes = x.array_shape.dimensions
        if _is_constant(home):
            return -1, np.asarray(home.attributes.literal.value, order="C").reshape(sizes), None
        return self._slots[home], None, None if shape_of(home).dimensions == sizes else sizes

    def _slot(self, x: Storage) -> int:
        return self._slots[self._homes[x]]

    # --- schedule

    def _emit(self, block: Block, schedule: Schedule, repeats: int = 1) -> None:
        """The steps of a block that runs about so often in one call."""
        for step in block.steps:
            work = step.work
            if isinstance(work, HostCall):
                self._host_calls.append(_host_call(work.root, step, self._slot))
                schedule.host(id(self._callback), len(self._host_calls) - 1)
            elif isinstance(work, Product):
                a, b, c = (self._slot(x) for x in (*work.root.operands, work.root))
                product_step(work.root, repeats).append(schedule, a, b, c)
            elif isinstance(work, Loop):
                self._emit_loop(work, schedule, repeats * _ITERATIONS)
            elif isinstance(work, Branches):
                self._emit_branches(work, schedule, repeats)
            elif work.extent:
                slots = [self._slot(x) for x in work.arguments]
                schedule.kernel(compile_kernel(work.kernel), slots, work.extent, work.grain)

    def _emit_loop(self, loop: Loop, schedule: Schedule, repeats: int) -> None:
        again, done = schedule.label(), schedule.label()
        turns = [
            (self._slot(turn.initial), *map(self._slot, turn.buffers), *(self._slots[p] for p in turn.pointers))
            for turn in loop.turns
        ]
        for initial, first, second, current, following, spare in turns:
            schedule.move(current, initial)
            schedule.move(following, first)
            schedule.move(spare, second)
        schedule.place(again)
        self._emit(loop.condition, schedule, repeats)
        schedule.jump_unless(self._slot(loop.condition.results[0]), done)
        self._emit(loop.body, schedule, repeats)
        for *_, current, following, spare in turns:
            schedule.move(current, following)
            schedule.move(following, spare)
            schedule.move(spare, current)
        schedule.check()
        schedule.jump(again)
        schedule.place(done)

    def _emit_branches(self, branches: Branches, schedule: Schedule, repeats: int) -> None:
        labels = [schedule.label() for _ in branches.blocks]
        done = schedule.label()
        index = self._slot(branches.index)
        if shape_of(branches.index).element_type.kind == "pred":
            schedule.jump_unless(index, labels[1])
        else:
            schedule.switch(index, labels)
        for label, block in zip(labels, branches.blocks, strict=True):
            schedule.place(label)
            self._emit(block, schedule, repeats)
            for pointer, result in zip(branches.results, block.results, strict=True):
                schedule.move(self._slots[pointer], self._slot(result))
            schedule.jump(done)
        schedule.place(done)

    # --- calls

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        arrays = [*arguments, *[allocate() for allocate in self._allocators]]
        arena, base = pool.allocate(self._arena_bytes) if self._arena_bytes else (None, 0)
        words = self._filled(base)
        words[: self._fixed] = [_address(id(x) + _DATA).value or 0 for x in arrays]
        launch(self._schedule_address, words)
        del arena  # its memory may be used by another call from here on
        if self._plain:
            return arrays[len(arguments) :]
        results: list[Array] = []
        for slot, constant, sizes in self._results:
            value = arrays[slot] if constant is None else constant
            results.append(value if sizes is None else value.reshape(sizes))
        return results

    def _filled(self, base: int) -> Any:
        """The words of a call, but for inputs and outputs; `base` is the address of the arena."""
        known, template = self._template
        if known != base:
            temporaries = [base + offset for offset in self._offsets]
            template = bytes(self._words(*[0] * self._fixed, *self._constant_addresses, *temporaries))
            self._template = (base, template)
        return self._words.from_buffer_copy(template)

    # --- looking inside

    @property
    def kernels(self) -> list[KernelInfo]:
        """The fused loops, in the order in which they stand in the program."""
        found: list[KernelInfo] = []
        for step, _ in _all_steps(self._block):
            work = step.work
            if isinstance(work, LoweredKernel):
                arguments = tuple(str(shape_of(x)) for x in work.arguments)
                lines = dict.fromkeys(str(r.source) for r in work.roots if r.source)
                source = print_python(work.kernel)
                found.append(KernelInfo(work.kernel.name, source, work.extent, arguments, tuple(lines)))
        return found

    @property
    def temporary_bytes(self) -> int:
        """The memory for what is neither argument nor result."""
        return self._arena_bytes

    def as_text(self) -> str:
        """The plan: steps in order with the shapes they read and write, and the memory for temporaries."""
        steps = list(_all_steps(self._block))
        lines = [f"{self.name}: {len(steps)} steps, {self._arena_bytes} bytes of temporaries"]
        for k, (step, depth) in enumerate(steps):
            touched = ", ".join(f"{shape_of(x)}@{self._slot(x)}" for x in [*step.reads, *step.writes])
            lines.append(f"{k:4} {'  ' * depth}{_describe(step)}: {touched}")
        return "\n".join(lines)


class _Lives:
    """Walks over a program in the order in which it runs: which constants and pointers there are, and for all other
    memory the first and the last step that touch it."""

    def __init__(self, homes: Homes) -> None:
        self.spans: dict[Storage, tuple[int, int]] = {}
        self.constants: dict[Instruction, None] = {}
        self.pointers: dict[Pointer, None] = {}
        self._homes = homes
        self._time = 0

    def visit(self, block: Block) -> None:
        for step in block.steps:
            self._time += 1
            self._touch([*step.reads, *step.writes])
            if isinstance(step.work, Loop):
                self._visit_loop(step.work)
            elif isinstance(step.work, Branches):
                self._touch([step.work.index])
                for inside in step.work.blocks:
                    self.visit(inside)
                    self._touch(inside.results)
                self._touch(step.work.results)
        self._time += 1
        self._touch(block.results)

    def _visit_loop(self, loop: Loop) -> None:
        start = self._time
        for turn in loop.turns:
            self._touch([turn.initial, *turn.buffers, *turn.pointers])
        self.visit(loop.condition)
        self.visit(loop.body)
        self._time += 1
        for turn in loop.turns:
            self._touch([turn.initial, *turn.buffers])
        for x, (first, last) in self.spans.items():
            if first < start <= last:  # it is needed again in the next iteration
                self.spans[x] = (first, self._time)

    def _touch(self, storages: Sequence[Storage]) -> None:
        for x in storages:
            home = self._homes[x]
            if isinstance(home, Pointer):
                self.pointers[home] = None
                self._touch(home.among)
            elif _is_constant(home):
                self.constants[home] = None
            else:
                self.spans[home] = (self.spans[home][0] if home in self.spans else self._time, self._time)


def _is_constant(home: Storage) -> TypeGuard[Instruction]:
    return isinstance(home, Instruction) and is_constant(home)


# --- calls of the host ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HostCall:
    """An op that is evaluated on arrays: the slots of its operands, with what makes arrays of addresses, and of those
    results that are used, with their numbers."""

    evaluate: Callable[..., Any]
    operands: list[tuple[int, _View]]
    results: list[tuple[int, int, _View]]

    def run(self, words: Any) -> None:
        with np.errstate(all="ignore"):
            found = self.evaluate(*[view(words[slot]) for slot, view in self.operands])
        parts = found if isinstance(found, tuple) else (found,)
        for number, slot, view in self.results:
            view(words[slot])[...] = parts[number]


def _host_call(x: Instruction, step: Step, slot: Callable[[Storage], int]) -> _HostCall:
    operands = [(slot(o), _view(o.array_shape)) for o in x.operands]
    results: list[tuple[int, int, _View]] = []
    for target in step.writes:
        assert isinstance(target, Instruction)
        results.append((target.attributes.index if target is not x else 0, slot(target), _view(target.array_shape)))
    return _HostCall(partial(x.op.evaluate, **x.attributes._asdict()), operands, results)


def _callback(host_calls: list[_HostCall]) -> Callable[[int, int], None]:
    """What the schedule calls, with the address of the slots."""

    def run(number: int, slots: int) -> None:
        host_calls[number].run((ctypes.c_int64 * _MOST_SLOTS).from_address(slots))

    return run


_MOST_SLOTS = 1 << 32  # an array type's length, not memory


def _allocator(shape: Shape) -> Callable[[], Array]:
    """What makes memory for a result: NumPy, which is quick with small arrays, or the pool, whose pages are warm."""
    sizes, dtype, nbytes = shape.dimensions, shape.dtype, _bytes(shape)
    if nbytes <= _SMALL:
        return partial(np.empty, sizes, dtype)
    return lambda: np.ndarray(sizes, dtype, pool.allocate(nbytes)[0])


_SMALL = 1 << 14  # bytes
_ITERATIONS = 64  # of a loop, for want of knowledge
_DATA = object.__basicsize__  # NumPy's array object begins with the header of any object, then the address of the data
_address = ctypes.c_void_p.from_address


def _bytes(shape: Shape) -> int:
    return shape.size * shape.dtype.itemsize


def _view(shape: Shape) -> _View:
    """What makes the memory at an address an array."""
    memory: Any = ctypes.c_char * _bytes(shape)
    sizes, dtype, from_address = shape.dimensions, shape.dtype, memory.from_address
    return lambda address: np.ndarray(sizes, dtype, from_address(address))


def _all_steps(block: Block, depth: int = 0) -> Iterator[tuple[Step, int]]:
    """Steps with those of the blocks inside them, and how deep they are."""
    for step in block.steps:
        yield step, depth
        work = step.work
        if isinstance(work, Loop | Branches):
            for inside in [work.condition, work.body] if isinstance(work, Loop) else work.blocks:
                yield from _all_steps(inside, depth + 1)


def _describe(step: Step) -> str:
    work = step.work
    if isinstance(work, LoweredKernel):
        roots = ", ".join(root.op.name for root in work.roots)
        return f"{work.kernel.name} over {work.extent} by {work.grain} ({roots})"
    if isinstance(work, Loop | Branches):
        return "while" if isinstance(work, Loop) else "conditional"
    return f"{'product' if isinstance(work, Product) else 'host call of'} {work.root.op.name}"
