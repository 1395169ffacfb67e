"""Compiled modules: the steps of a program as one schedule, its memory, and calls of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from tinyxla.backends.numba.jit.engine import assembly, kernel_text, start_kernel
from tinyxla.backends.numba.program.blas_gemm import MatmulStep, gemm_step_of
from tinyxla.backends.numba.program.collectives import Exchanges, is_exchange
from tinyxla.backends.numba.program.parallelism import assign_parallelism
from tinyxla.backends.numba.program.routines import begin_routines
from tinyxla.backends.numba.runtime.buffer_pool import pool, with_own_memory
from tinyxla.backends.numba.runtime.bytecode import Schedule, call, template
from tinyxla.compiler.buffers.arena import arena_offsets
from tinyxla.compiler.fusion.plan import BlasCall, Collective, CollectiveDone, HostCall, producer_of
from tinyxla.compiler.pipeline import compile_program
from tinyxla.compiler.schedule.blocks import (
    AliasMap,
    Block,
    ConcurrentBlocks,
    LoopBlocks,
    Pointer,
    Step,
    SwitchBlocks,
    shape_of,
    walk_steps,
)
from tinyxla.hlo import Instruction, Module, is_constant
from tinyxla.loopir.ir.loop_ir import Kernel
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.loopir.passes.specialization import generalize
from tinyxla.ops.host.custom_call import raise_failure
from tinyxla.runtime.allocation import after_shortage
from tinyxla.runtime.mpi import together
from tinyxla.shapes import Shape
from tinyxla.tracing.core import FOREIGN

if TYPE_CHECKING:
    from tinyxla.compiler.report import Report

Array = np.ndarray[Any, Any]
_View = Callable[[int], Array]


@dataclass(frozen=True)
class KernelInfo:
    """A fused loop nest, for reading: its name, how often it runs, its arguments, and the user's lines it serves."""

    name: str
    extent: int
    arguments: tuple[str, ...]
    lines: tuple[str, ...]
    _kernel: Kernel = field(repr=False)
    _lasts: bool = field(default=False, repr=False)
    _shapes: tuple[Shape, ...] = field(default=(), repr=False)
    _parameters: tuple[int, ...] = field(default=(), repr=False)

    def numba(self) -> Any:
        """The kernel as a function that Numba's code can call, of its arrays in order: row-major NumPy arrays of the
        shapes and types in `arguments`, those that it writes, too. It runs all its iterations on the calling thread.

        Raises:
            MissingPackageError: without Numba.
            DTypeError: an array of a type that Numba does not have.

        Example:
            >>> import numpy as np, tinyxla as tx
            >>> x = np.arange(3, dtype=np.float32)
            >>> double = tx.jit(lambda x: x + x).lower(x).compile().kernels[0].numba()
            >>> y = np.empty_like(x)
            >>> double(x, y)
            >>> y
            array([0., 2., 4.], dtype=float32)
        """
        from tinyxla.backends.numba.interop import kernel_function  # here, since it needs Numba

        return kernel_function(self._kernel, self._shapes, self.extent, self._parameters)

    @property
    def source(self) -> str:
        """The loops as Python, which runs."""
        return print_python(self._kernel)

    @property
    def llvm(self) -> str:
        """The loops as LLVM's text, as LLVM gets it."""
        return kernel_text(self._kernel, is_builtin=self._lasts)

    @property
    def assembly(self) -> str:
        """What LLVM makes of it for this processor."""
        return assembly(self._kernel, self._lasts)


class CompiledModule:
    """A module as native code: call it with dense row-major arrays of the parameters' shapes.

    Every memory has a *slot*, its address: first the inputs', then the outputs', constants', temporaries', and those
    that the program sets. Those of constants and temporaries are the same from call to call as long as the arena is.
    """

    def __init__(self, module: Module, donated: Sequence[int] = ()) -> None:
        self.name = module.name
        self._source, self._donated = module, donated
        self.block, self.aliases = compile_program(module.entry, donated, begin_routines)
        assign_parallelism(self.block, self.aliases)
        self.computation, self.plan = self.block.computation, self.block.plan
        written = {self.aliases[x] for step in self.block.steps for x in step.writes}
        self._overwritten = [k for k in donated if self.computation.parameters[k] in written]
        self._calls_kernels = any(_calls_kernels(step) for step, *_ in walk_steps(self.block))
        self._assign_slots()
        self._lay_out()

    # --- memory

    def _assign_slots(self) -> None:
        aliases, parameters = self.aliases, self.computation.parameters
        self.slots: dict[Storage, int] = {p: k for k, p in enumerate(parameters)}
        self._allocators: list[Callable[[], Array]] = []
        for result in self.block.results:
            memory = aliases[result]
            if not _is_constant(memory) and memory not in self.slots:
                self.slots[memory] = len(self.slots)
                self._allocators.append(_allocator(shape_of(memory)))
        self._fixed = len(self.slots)  # from here on, slots do not depend on arguments and results
        lives = self.lives()
        self._constants = [np.ascontiguousarray(x.attributes.literal.value) for x in lives.constants]
        spans = {x: span for x, span in lives.spans.items() if x not in parameters}
        sizes = {x: _bytes(shape_of(x)) for x in spans}
        hosts = [x for x in spans if x in self.slots and sizes[x] > _SMALL]
        spans = {x: span for x, span in spans.items() if x in hosts or x not in self.slots}
        places, self._arena_bytes = arena_offsets(spans, sizes, hosts)
        self._offsets = {x: offset for x, (host, offset) in places.items() if host is None}
        self._guests = {x: (host, offset) for x, (host, offset) in places.items() if host is not None}
        for x in [*lives.constants, *self._offsets, *self._guests, *lives.pointers]:
            self.slots[x] = len(self.slots)
        self._constant_addresses = [x.ctypes.data for x in self._constants]
        self._template: tuple[int, Any] = (-1, None)
        pairs = zip(self.computation.outputs, self.block.results, strict=True)
        self._results = [self._result(x, aliases[result]) for x, result in pairs]
        count = len(parameters)
        self._plain = self._results == [(count + k, None, None) for k in range(len(self._allocators))]

    def _result(self, x: Instruction, memory: Storage) -> tuple[int, Array | None, tuple[int, ...] | None]:
        """Where a result is: the number of its slot, or the constant that it is; and its sizes if they are others
        there."""
        sizes = x.array_shape.dimensions
        if _is_constant(memory):
            return -1, np.asarray(memory.attributes.literal.value, order="C").reshape(sizes), None
        return self.slots[memory], None, None if shape_of(memory).dimensions == sizes else sizes

    def _slot(self, x: Storage) -> int:
        return self.slots[self.aliases[x]]

    # --- schedule

    def _lay_out(self) -> None:
        self._host_calls: list[_HostCall] = []
        self.blas_steps: dict[Instruction, MatmulStep] = {}
        self._callback = _callback(self._host_calls)
        self._exchanges = Exchanges(self.name, self.block)
        self._started: dict[Any, tuple[Callable[[], int], list[int]]] = {}  # kernels that are compiled, by identity
        schedule = Schedule()
        for x, (host, offset) in self._guests.items():
            schedule.move(self.slots[x], self.slots[host])
            schedule.add(self.slots[x], offset)
        self._emit(self.block, schedule)
        self._schedule = schedule.finish()
        self._started.clear()
        self._part = self._exchanges.part() if self._exchanges.count else None
        self._schedule_address = self._schedule.ctypes.data

    def _emit(self, block: Block, schedule: Schedule, repeats: int = 1) -> None:
        """The steps of a block that runs about so often in one call."""
        for step in block.steps:
            self._emit_step(step, schedule, repeats)

    def _emit_step(self, step: Step, schedule: Schedule, repeats: int) -> None:
        work = step.work
        if is_exchange(work):
            (result,) = step.writes
            self._exchanges.append(work, self._slot(work.root.operands[0]), self._slot(result), schedule)
        elif isinstance(work, CollectiveDone):
            pass  # of one process, which does all at the start
        elif isinstance(work, HostCall | Collective):
            self._host_calls.append(_host_call(work.root, step, self._slot))
            schedule.host(id(self._callback), len(self._host_calls) - 1)
        elif isinstance(work, BlasCall):
            a, b, c = (self._slot(x) for x in (*work.root.operands, work.root))
            made = self.blas_steps[work.root] = gemm_step_of(work.root, repeats)
            made.append(schedule, a, b, c)
            self._exchanges.progress(schedule)
        elif isinstance(work, LoopBlocks):
            self._emit_loop(work, schedule, repeats * _ITERATIONS)
        elif isinstance(work, SwitchBlocks):
            self._emit_branches(work, schedule, repeats)
        elif isinstance(work, ConcurrentBlocks):
            self._emit_concurrent(work, schedule, repeats)
        elif work.extent:
            slots = [self._slot(x) for x in work.arguments]
            once = work.extent == repeats == 1
            key = id(work.kernel), work.parameters, work.is_builtin, once
            if key not in self._started:  # steps may have one kernel
                kernel, words = work.kernel, list(work.parameters)
                if not words:
                    kernel, words = generalize(kernel, is_cold=once)
                self._started[key] = start_kernel(kernel, work.is_builtin), words
            address, words = self._started[key]
            schedule.kernel(address, slots, work.extent, work.grain, words, work.starts_in_order)
            self._exchanges.progress(schedule)

    def _emit_loop(self, loop: LoopBlocks, schedule: Schedule, repeats: int) -> None:
        again, done = schedule.label(), schedule.label()
        for rotating in loop.rotating:
            pairs = zip(rotating.pointers, [*rotating.initials, *rotating.buffers], strict=True)
            for pointer, storage in pairs:
                schedule.move(self.slots[pointer], self._slot(storage))
        for row in loop.row_pointers:
            schedule.move(self.slots[row.pointer], self._slot(row.array))
            schedule.add(self.slots[row.pointer], row.start)
        left = self.slots[loop.counter]
        if loop.trip_count is not None:
            schedule.set(left, loop.trip_count)
            if not loop.trip_count:
                schedule.jump(done)
        schedule.place(again)
        if loop.trip_count is None:
            self._emit(loop.condition, schedule, repeats)
            schedule.jump_unless(self._slot(loop.condition.results[0]), done)
        self._emit(loop.body, schedule, repeats)
        for rotating in loop.rotating:
            currents, ring = [self.slots[p] for p in rotating.currents], [self.slots[p] for p in rotating.ring]
            for older, newer in pairwise([*reversed(currents), *ring, currents[0]]):
                schedule.move(older, newer)
        for row in loop.row_pointers:
            schedule.add(self.slots[row.pointer], row.step)
        schedule.check()
        if loop.trip_count is None:
            schedule.jump(again)
        else:
            schedule.count(left, again)
        schedule.place(done)

    def _emit_branches(self, branches: SwitchBlocks, schedule: Schedule, repeats: int) -> None:
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
                schedule.move(self.slots[pointer], self._slot(result))
            schedule.jump(done)
        schedule.place(done)

    def _emit_concurrent(self, concurrent: ConcurrentBlocks, schedule: Schedule, repeats: int) -> None:
        labels = [schedule.label() for _ in concurrent.blocks]
        joined = schedule.label()
        schedule.fork(labels, joined)
        for label, block in zip(labels, concurrent.blocks, strict=True):
            schedule.place(label)
            self._emit(block, schedule, repeats)
            schedule.end()
        schedule.place(joined)

    # --- calls

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        if self._overwritten:
            arguments = with_own_memory(arguments, self._overwritten)
        try:
            arrays = [*arguments, *[allocate() for allocate in self._allocators]]
        except MemoryError:
            arrays = after_shortage(self.name, lambda: [*arguments, *[allocate() for allocate in self._allocators]])
        arena, base = pool.allocate(self._arena_bytes) if self._arena_bytes else (None, 0)
        if self._part is None:
            call(self._filled(base), arrays)
        else:
            together(self._part, lambda: call(self._filled(base), arrays))
        if self._calls_kernels:
            raise_failure()
        del arena  # its memory may be used by another call from here on
        if self._plain:
            return arrays[len(arguments) :]
        results: list[Array] = []
        for slot, constant, sizes in self._results:
            value = arrays[slot] if constant is None else constant
            results.append(value if sizes is None else value.reshape(sizes))
        return results

    def _filled(self, base: int) -> Any:
        """What is the same in all calls whose arena is at `base`."""
        known, filled = self._template
        if known != base:
            filled = template(self._schedule_address, self._fixed, self._words(base))
            self._template = (base, filled)
        return filled

    def _words(self, base: int) -> list[int]:
        """The words of the slots, where they do not depend on arguments and results."""
        temporaries = [base + offset for offset in self._offsets.values()]
        known = [*[0] * self._fixed, *self._constant_addresses, *temporaries]
        return known + [0] * (len(self.slots) - len(known))

    # --- looking inside

    @property
    def kernels(self) -> list[KernelInfo]:
        """The fused loops, in the order in which they stand in the program."""
        found: list[KernelInfo] = []
        for step, *_ in walk_steps(self.block):
            work = step.work
            if isinstance(work, LoweredKernel):
                shapes = tuple(map(shape_of, work.arguments))
                lines = dict.fromkeys(str(r.source) for r in work.roots if r.source)
                described = work.kernel.name, work.extent, tuple(map(str, shapes)), tuple(lines)
                found.append(KernelInfo(*described, work.kernel, work.is_builtin, shapes, tuple(work.parameters)))
        return found

    @property
    def temporary_bytes(self) -> int:
        """The memory for what is neither argument nor result."""
        return self._arena_bytes

    def lives(self) -> Liveness:
        """When each piece of memory is in use."""
        lives = Liveness(self.aliases)
        lives.visit(self.block)
        return lives

    def place(self, x: Storage) -> tuple[str, int | None]:
        """Where a memory is, and its offset there: in the arena, or in a result's memory before that is made."""
        if x in self._offsets:
            return "arena", self._offsets[x]
        if x in self._guests:
            host, offset = self._guests[x]
            return self.place(host)[0], offset
        number = self.slots[x]
        if number >= self._fixed:
            return "pointer" if isinstance(x, Pointer) else "constant", None
        count = len(self.computation.parameters)
        return (f"argument {number}" if number < count else f"result {number - count}"), None

    def report(self) -> Report:
        """The steps, what they cost, and the memory they use."""
        from tinyxla.backends.numba.program.report import explain  # here, since few programs need it

        return explain(self, self._source)

    def parallel_efficiency(self, threads: Sequence[int]) -> dict[int, float]:
        """The bound on parallel efficiency by the cuts that are made for so many processors."""
        from tinyxla.backends.numba.program import parallel_efficiency  # here, since few programs need it

        return parallel_efficiency.parallel_efficiency(self._source, self._donated, threads)

    def observed(self, events: int) -> CompiledModule:
        """The same program, with a clock around each step; of each call at most so many marks are kept one by one."""
        from tinyxla.backends.numba.program.instrumented import ObservedModule  # here, since few programs need it

        made = ObservedModule.__new__(ObservedModule)
        made.__dict__.update(self.__dict__)
        made.observe(events)
        return made


class Liveness:
    """Walks over a program in the order in which it runs: which constants and pointers there are, and for all other
    memory the first and the last step that touch it. `starts` has the time at which each step begins."""

    def __init__(self, aliases: AliasMap) -> None:
        self.starts: list[int] = []
        self.spans: dict[Storage, tuple[int, int]] = {}
        self.constants: dict[Instruction, None] = {}
        self.pointers: dict[Pointer, None] = {}
        self.aliases = aliases
        self._time = 0
        self._touched: list[Storage] = []  # in the order of the steps, more than once
        self._pointed: dict[Pointer, list[Storage]] = {}  # what is where pointers may point, but no pointer

    def visit(self, block: Block) -> None:
        for step in block.steps:
            self._time += 1
            self.starts.append(self._time)
            self._touch([*step.reads, *step.writes])
            if isinstance(step.work, LoopBlocks):
                self._visit_loop(step.work)
            elif isinstance(step.work, SwitchBlocks):
                self._touch([step.work.index])
                for inside in step.work.blocks:
                    self.visit(inside)
                    self._touch(inside.results)
                self._touch(step.work.results)
            elif isinstance(step.work, ConcurrentBlocks):
                self._visit_concurrent(step.work)
        self._time += 1
        self._touch(block.results)

    def _visit_loop(self, loop: LoopBlocks) -> None:
        start, before = self._time, len(self._touched)
        self._touch([loop.counter, *(row.pointer for row in loop.row_pointers)])
        for rotating in loop.rotating:
            self._touch([*rotating.initials, *rotating.buffers, *rotating.pointers])
        self.visit(loop.condition)
        self.visit(loop.body)
        self._time += 1
        for rotating in loop.rotating:
            self._touch([*rotating.initials, *rotating.buffers])
        self._touched[before:] = dict.fromkeys(self._touched[before:])
        for x in self._touched[before:]:
            first, last = self.spans[x]
            if first < start <= last:  # it is needed again in the next iteration
                self.spans[x] = (first, self._time)

    def _visit_concurrent(self, concurrent: ConcurrentBlocks) -> None:
        """What one branch uses is in use as long as all of them run."""
        start, before = self._time, len(self._touched)
        for inside in concurrent.blocks:
            self.visit(inside)
        self._touched[before:] = dict.fromkeys(self._touched[before:])
        for x in self._touched[before:]:
            first, last = self.spans[x]
            self.spans[x] = (min(first, start), max(last, self._time))

    def _touch(self, storages: Sequence[Storage]) -> None:
        for x in storages:
            memory = self.aliases[x]
            if isinstance(memory, Pointer):
                for target in self._memories(memory):
                    self._use(target)
            else:
                self._use(memory)

    def _memories(self, pointer: Pointer) -> list[Storage]:
        """The memories where a pointer may point, by way of other pointers too."""
        if pointer not in self._pointed:
            self.pointers[pointer] = None
            found: dict[Storage, None] = {}
            for memory in map(self.aliases.__getitem__, pointer.targets):
                found.update(dict.fromkeys(self._memories(memory) if isinstance(memory, Pointer) else [memory]))
            self._pointed[pointer] = list(found)
        return self._pointed[pointer]

    def _use(self, memory: Storage) -> None:
        if _is_constant(memory):
            self.constants[memory] = None
        else:
            self.spans[memory] = (self.spans[memory][0] if memory in self.spans else self._time, self._time)
            self._touched.append(memory)


def _is_constant(memory: Storage) -> TypeGuard[Instruction]:
    return isinstance(memory, Instruction) and is_constant(memory)


# --- calls of the host ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HostCall:
    """An op, by its name, that is evaluated on arrays: the slots of its operands, with what makes arrays of addresses,
    and of those results that are used, with their numbers."""

    name: str
    evaluate: Callable[..., Any]
    operands: list[tuple[int, _View]]
    results: list[tuple[int, int, _View]]

    def run(self, words: Any) -> None:
        with np.errstate(all="ignore"):
            found = self._evaluated([view(words[slot]) for slot, view in self.operands])
        parts = found if isinstance(found, tuple) else (found,)
        for number, slot, view in self.results:
            view(words[slot])[...] = parts[number]

    def _evaluated(self, operands: list[Array]) -> Any:
        try:
            return self.evaluate(*operands)
        except MemoryError:
            if self.name in FOREIGN:
                raise
        return after_shortage(self.name, lambda: self.evaluate(*operands))


def _host_call(x: Instruction, step: Step, slot: Callable[[Storage], int]) -> _HostCall:
    operands = [(slot(o), _view(o.array_shape)) for o in x.operands]
    results: list[tuple[int, int, _View]] = []
    for target in step.writes:
        assert isinstance(target, Instruction)
        results.append((target.attributes.index if target is not x else 0, slot(target), _view(target.array_shape)))
    return _HostCall(x.op.name, partial(x.op.evaluate, **x.attributes._asdict()), operands, results)


def _callback(host_calls: list[_HostCall]) -> Callable[[int, int], None]:
    """What the schedule calls, with the address of the slots."""

    def run(number: int, slots: int) -> None:
        host_calls[number].run((ctypes.c_int64 * _MOST_SLOTS).from_address(slots))

    return run


_MOST_SLOTS = 1 << 32  # an array type's length, not memory


def _calls_kernels(step: Step) -> bool:
    """Whether a step calls kernels of the user's, which may raise exceptions."""
    return isinstance(step.work, LoweredKernel) and any(
        x.op.name == "custom-call" for x in map(producer_of, step.work.roots)
    )


def _allocator(shape: Shape) -> Callable[[], Array]:
    """What makes memory for a result: NumPy, which is quick with small arrays, or the pool, whose pages are warm."""
    sizes, dtype, nbytes = shape.dimensions, shape.dtype, _bytes(shape)
    if nbytes <= _SMALL:
        return partial(np.empty, sizes, dtype)
    return lambda: np.ndarray(sizes, dtype, pool.allocate(nbytes)[0])


_SMALL = 1 << 14  # bytes
_ITERATIONS = 64  # of a loop, for want of knowledge


def _bytes(shape: Shape) -> int:
    return shape.size * shape.dtype.itemsize


def _view(shape: Shape) -> _View:
    """What makes the memory at an address an array."""
    memory: Any = ctypes.c_char * _bytes(shape)
    sizes, dtype, from_address = shape.dimensions, shape.dtype, memory.from_address
    return lambda address: np.ndarray(sizes, dtype, from_address(address))
