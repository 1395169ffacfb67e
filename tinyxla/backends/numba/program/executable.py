"""Executables: a compiled program as bytecode of its steps, the layout of its memory, and calls of it."""

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
from tinyxla.backends.numba.runtime.bytecode import Schedule, runtime, template
from tinyxla.compiler.buffers.arena import arena_offsets
from tinyxla.compiler.costs import L1_BYTES
from tinyxla.compiler.fusion.plan import BlasCall, Collective, CollectiveDone, HostCall, producer_of
from tinyxla.compiler.pipeline import compile_program
from tinyxla.compiler.schedule.blocks import (
    Block,
    ConcurrentBlocks,
    LoopBlocks,
    Pointer,
    Step,
    SwitchBlocks,
    shape_of,
    walk_steps,
)
from tinyxla.compiler.schedule.liveness import Liveness
from tinyxla.hlo import Instruction, Module, is_constant
from tinyxla.loopir.ir.loop_ir import Kernel
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.kernels.control_flow.scalarized import ASSUMED_STEPS
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.loopir.passes.specialization import generalize
from tinyxla.ops.cost import bytes_of
from tinyxla.ops.host.custom_call import raise_failure
from tinyxla.runtime.allocation import after_shortage
from tinyxla.runtime.mpi import together
from tinyxla.shapes import Shape
from tinyxla.tracing.core import FOREIGN

if TYPE_CHECKING:
    from tinyxla.compiler.report import Report


MAX_NUMPY_BYTES = L1_BYTES // 2  # of results that NumPy allocates

Array = np.ndarray[Any, Any]
_View = Callable[[int], Array]


@dataclass(frozen=True)
class KernelInfo:
    """A kernel, for inspection: its name, the extent of its outer loop, its arguments, and the user's lines it
    computes."""

    name: str
    extent: int
    arguments: tuple[str, ...]
    lines: tuple[str, ...]
    _kernel: Kernel = field(repr=False)
    _is_builtin: bool = field(default=False, repr=False)
    _shapes: tuple[Shape, ...] = field(default=(), repr=False)
    _parameters: tuple[int, ...] = field(default=(), repr=False)
    _work: int = field(default=0, repr=False)

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
        """The loops as LLVM text, before optimization."""
        return kernel_text(self._kernel, self._is_builtin, self.extent, self._work)

    @property
    def assembly(self) -> str:
        """The machine code for this processor, as assembly text."""
        return assembly(self._kernel, self._is_builtin, self.extent, self._work)


class CompiledModule:
    """A module as native code: call it with dense row-major arrays of the parameters' shapes.

    Every memory has a *slot* for its address: first the inputs, then the outputs, constants, temporaries, and pointers
    that the program sets. Addresses of constants and temporaries are the same from call to call while the arena is.
    """

    def __init__(self, module: Module, donated: Sequence[int] = ()) -> None:
        self.name = module.name
        self._source, self._donated = module, donated
        # Kernels that are compiled, by identity.
        self._started: dict[Any, tuple[Kernel, Callable[[], int], list[int]]] = {}
        self.block, self.aliases = compile_program(module.entry, donated, self._begin)
        assign_parallelism(self.block, self.aliases)
        self.computation, self.plan = self.block.computation, self.block.plan
        written = {self.aliases[x] for step in self.block.steps for x in step.writes}
        self._overwritten = [k for k in donated if self.computation.parameters[k] in written]
        self._calls_kernels = any(_calls_kernels(step) for step, *_ in walk_steps(self.block))
        self._assign_slots()
        self._build_schedule()
        self._call = runtime().call

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
        liveness = self.liveness()
        self._constants = [np.ascontiguousarray(x.attributes.literal.value) for x in liveness.constants]
        spans = {x: span for x, span in liveness.spans.items() if x not in parameters}
        sizes = {x: bytes_of(shape_of(x)) for x in spans}
        hosts = [x for x in spans if x in self.slots and sizes[x] > MAX_NUMPY_BYTES]
        spans = {x: span for x, span in spans.items() if x in hosts or x not in self.slots}
        allocations, self._arena_bytes = arena_offsets(spans, sizes, hosts)
        self._offsets = {x: offset for x, (host, offset) in allocations.items() if host is None}
        self._guests = {x: (host, offset) for x, (host, offset) in allocations.items() if host is not None}
        for x in [*liveness.constants, *self._offsets, *self._guests, *liveness.pointers]:
            self.slots[x] = len(self.slots)
        self._constant_addresses = [x.ctypes.data for x in self._constants]
        self._template: tuple[int, Any] = (-1, None)
        pairs = zip(self.computation.outputs, self.block.results, strict=True)
        self._results = [self._result(x, aliases[result]) for x, result in pairs]
        count = len(parameters)
        self._has_plain_results = self._results == [(count + k, None, None) for k in range(len(self._allocators))]

    def _result(self, x: Instruction, memory: Storage) -> tuple[int, Array | None, tuple[int, ...] | None]:
        """A result as the number of its slot or, without one, as a constant; and its sizes if those of the memory
        differ."""
        sizes = x.array_shape.dimensions
        if _is_constant(memory):
            return -1, np.asarray(memory.attributes.literal.value, order="C").reshape(sizes), None
        return self.slots[memory], None, None if shape_of(memory).dimensions == sizes else sizes

    def _slot(self, x: Storage) -> int:
        return self.slots[self.aliases[x]]

    # --- schedule

    def _build_schedule(self) -> None:
        self._host_calls: list[_HostCall] = []
        self.blas_steps: dict[Instruction, MatmulStep] = {}
        self._callback = _callback(self._host_calls)
        self._exchanges = Exchanges(self.name, self.block)
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
        """Append the steps of a block that runs about `repeats` times in a call."""
        for step in block.steps:
            self._emit_step(step, schedule, repeats)

    def _emit_step(self, step: Step, schedule: Schedule, repeats: int) -> None:
        work = step.work
        if is_exchange(work):
            (result,) = step.writes
            self._exchanges.append(work, self._slot(work.root.operands[0]), self._slot(result), schedule)
        elif isinstance(work, CollectiveDone):
            pass  # of a single process, whose start does all
        elif isinstance(work, HostCall | Collective):
            self._host_calls.append(_host_call(work.root, step, self._slot))
            schedule.host(id(self._callback), len(self._host_calls) - 1)
        elif isinstance(work, BlasCall):
            a, b, c = (self._slot(x) for x in (*work.root.operands, work.root))
            gemm = self.blas_steps[work.root] = gemm_step_of(work.root, repeats)
            gemm.append(schedule, a, b, c)
            self._exchanges.progress(schedule)
        elif isinstance(work, LoopBlocks):
            self._emit_loop(work, schedule, repeats * ASSUMED_STEPS)
        elif isinstance(work, SwitchBlocks):
            self._emit_branches(work, schedule, repeats)
        elif isinstance(work, ConcurrentBlocks):
            self._emit_concurrent(work, schedule, repeats)
        elif work.extent:
            slots = [self._slot(x) for x in work.arguments]
            address, words = self._start(work, is_cold=work.extent == 1 and repeats == 1)
            schedule.kernel(address, slots, work.extent, work.grain, words, work.starts_in_order)
            self._exchanges.progress(schedule)

    def _begin(self, work: LoweredKernel, is_in_loop: bool) -> None:
        """Begin the compilation of a kernel on other threads: of the routines that it calls, and in a loop of itself,
        since few kernels there become others."""
        begin_routines(work.kernel)
        if is_in_loop and work.extent:
            self._start(work, is_cold=False)

    def _start(self, work: LoweredKernel, is_cold: bool) -> tuple[Callable[[], int], list[int]]:
        """A function that waits for a kernel and gives its address, and the values of its parameters. Steps may share a
        kernel."""
        key = id(work.kernel), work.parameters, work.is_builtin, work.extent, work.work, is_cold
        if key not in self._started:
            kernel, words = work.kernel, list(work.parameters)
            if not words:
                kernel, words = generalize(kernel, is_cold=is_cold)
            address = start_kernel(kernel, work.is_builtin, work.extent, work.work)
            self._started[key] = work.kernel, address, words  # an identity is that of the kernel while it lives
        return self._started[key][1:]

    def _emit_loop(self, loop: LoopBlocks, schedule: Schedule, repeats: int) -> None:
        again, done = schedule.label(), schedule.label()
        for rotating in loop.rotating:
            pairs = zip(rotating.pointers, [*rotating.initials, *rotating.buffers], strict=True)
            for pointer, storage in pairs:
                schedule.move(self.slots[pointer], self._slot(storage))
        for row in loop.row_pointers:
            schedule.move(self.slots[row.pointer], self._slot(row.array))
            schedule.add(self.slots[row.pointer], row.start)
        remaining = self.slots[loop.counter]
        if loop.trip_count is not None:
            schedule.set(remaining, loop.trip_count)
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
            schedule.count(remaining, again)
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
            for place, result in zip(branches.results, block.results, strict=True):
                if self.aliases[place] is not self.aliases[result]:
                    schedule.move(self._slot(place), self._slot(result))
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
            self._call(self._filled(base), arrays)
        else:
            together(self._part, lambda: self._call(self._filled(base), arrays))
        if self._calls_kernels:
            raise_failure()
        del arena  # another call may use its memory
        if self._has_plain_results:
            return arrays[len(arguments) :]
        results: list[Array] = []
        for slot, constant, sizes in self._results:
            value = arrays[slot] if constant is None else constant
            results.append(value if sizes is None else value.reshape(sizes))
        return results

    def _filled(self, base: int) -> Any:
        """The template of calls whose arena is at `base`."""
        last_base, filled = self._template
        if last_base != base:
            filled = template(self._schedule_address, self._fixed, self._words(base))
            self._template = (base, filled)
        return filled

    def _words(self, base: int) -> list[int]:
        """The words of all slots; 0 for arguments, results and pointers."""
        temporaries = [base + offset for offset in self._offsets.values()]
        words = [*[0] * self._fixed, *self._constant_addresses, *temporaries]
        return words + [0] * (len(self.slots) - len(words))

    # --- inspection

    @property
    def kernels(self) -> list[KernelInfo]:
        """The kernels in the order of the program."""
        found: list[KernelInfo] = []
        for step, *_ in walk_steps(self.block):
            work = step.work
            if isinstance(work, LoweredKernel):
                shapes = tuple(map(shape_of, work.arguments))
                lines = dict.fromkeys(str(r.source) for r in work.roots if r.source)
                described = work.kernel.name, work.extent, tuple(map(str, shapes)), tuple(lines)
                parameters = tuple(work.parameters)
                found.append(KernelInfo(*described, work.kernel, work.is_builtin, shapes, parameters, work.work))
        return found

    @property
    def temporary_bytes(self) -> int:
        """Bytes of the arena, which holds temporaries."""
        return self._arena_bytes

    def liveness(self) -> Liveness:
        """The live ranges of the program's memories."""
        liveness = Liveness(self.aliases)
        liveness.visit(self.block)
        return liveness

    def allocation_of(self, x: Storage) -> tuple[str, int | None]:
        """The allocation that holds a memory, and the offset in it. A temporary is in the arena, or in the memory of a
        result that is not written yet."""
        if x in self._offsets:
            return "arena", self._offsets[x]
        if x in self._guests:
            host, offset = self._guests[x]
            return self.allocation_of(host)[0], offset
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
        """The bound on parallel efficiency by the chunks of kernels, for each number of processors."""
        from tinyxla.backends.numba.program import parallel_efficiency  # here, since few programs need it

        return parallel_efficiency.parallel_efficiency(self._source, self._donated, threads)

    def instrumented(self, events: int) -> CompiledModule:
        """The same program with a timestamp around each step; at most `events` timestamps of a call are kept."""
        from tinyxla.backends.numba.program.instrumented import InstrumentedModule  # here, since few programs need it

        module = InstrumentedModule.__new__(InstrumentedModule)
        module.__dict__.update(self.__dict__)
        module.instrument(events)
        return module


def _is_constant(memory: Storage) -> TypeGuard[Instruction]:
    return isinstance(memory, Instruction) and is_constant(memory)


# --- calls of the host ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HostCall:
    """An op that NumPy evaluates: the slots of its operands with their views, and the numbers, slots and views of the
    results that are used."""

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
    """The function that the schedule calls with the number of a host call and the address of the slots."""

    def run(number: int, slots: int) -> None:
        words = ctypes.c_int64 * (1 << 32)  # an array type's length, not memory
        host_calls[number].run(words.from_address(slots))

    return run


def _calls_kernels(step: Step) -> bool:
    """Whether a step calls the user's kernels, which may raise exceptions."""
    return isinstance(step.work, LoweredKernel) and any(
        x.op.name == "custom-call" for x in map(producer_of, step.work.roots)
    )


def _allocator(shape: Shape) -> Callable[[], Array]:
    """The allocator of a result: NumPy, which is fast for small arrays, or the pool, whose pages are mapped."""
    sizes, dtype, nbytes = shape.dimensions, shape.dtype, bytes_of(shape)
    if nbytes <= MAX_NUMPY_BYTES:
        return partial(np.empty, sizes, dtype)
    return lambda: np.ndarray(sizes, dtype, pool.allocate(nbytes)[0])


def _view(shape: Shape) -> _View:
    """A function from an address to the array at it."""
    memory: Any = ctypes.c_char * bytes_of(shape)
    sizes, dtype, from_address = shape.dimensions, shape.dtype, memory.from_address
    return lambda address: np.ndarray(sizes, dtype, from_address(address))
