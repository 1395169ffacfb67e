"""Compiled modules: the plan's kernels and products as a schedule, its memory, and calls of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tinyxla.backends.numba.lowering import LoweredKernel, Partial, Storage
from tinyxla.backends.numba.memory import pool
from tinyxla.backends.numba.native import compile_kernel
from tinyxla.backends.numba.nests import lower
from tinyxla.backends.numba.own_nests import lower_own
from tinyxla.backends.numba.products import operand_order, product_step
from tinyxla.backends.numba.python_printer import print_python
from tinyxla.backends.numba.runtime import Schedule, launch
from tinyxla.compiler import Fusion, HostCall, Plan, Product, optimize, plan
from tinyxla.compiler.buffers import arena_offsets
from tinyxla.compiler.fusion import buffer_of, results_of
from tinyxla.compiler.rewriting import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.ops import contraction, movement
from tinyxla.shapes import Shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KernelInfo:
    """A fused loop nest, for reading: its name, its source as Python, how often it runs, and the user's lines it
    serves."""

    name: str
    source: str
    extent: int
    arguments: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Native:
    """A run of steps without the host in between."""

    words: Array  # what the address is of
    address: int


@dataclass(frozen=True, slots=True)
class _Host:
    """An op that is evaluated on arrays: the slots of its operands, and what it writes."""

    instruction: Instruction
    slots: list[int]
    written: list[Instruction]


def copy_operands(computation: Computation) -> Computation:
    """Transpose the operands of products that the BLAS cannot take as they stand."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot:
            return None
        dims: contraction.Dot = x.attributes
        inputs = list(operands)
        for side in (0, 1):
            order = operand_order(x, side)
            if order is not None:
                inputs[side] = rewriter.emit(movement.transpose, operands[side], permutation=order)
                place = {d: k for k, d in enumerate(order)}
                contracting, batch = dims.contracting(side), dims.batch(side)
                dims = dims.with_side(side, tuple(place[d] for d in contracting), tuple(place[d] for d in batch))
        return rewriter.emit(contraction.dot, *inputs, **dims._asdict()) if inputs != list(operands) else None

    return rewrite(computation, visit)


class CompiledModule:
    """A module as native code: call it with dense row-major arrays of the parameters' shapes.

    Every stored value has a *slot*, the address of its memory: first the inputs', then the outputs', constants' and
    temporaries'. The last two are the same from call to call as long as the arena is.
    """

    def __init__(self, module: Module) -> None:
        self.name = module.name
        self.computation = copy_operands(optimize(module.entry))
        self.plan: Plan = plan(self.computation)
        users = self.computation.users()
        self._steps: list[_Step] = []
        for step in self.plan.steps:
            if isinstance(step, Fusion):
                lowered = lower(step, self.plan, users)
            else:
                lowered = (lower_own(step.root, self.plan, users) if isinstance(step, HostCall) else None) or [step]
            self._steps += [_Step(work, _touched(work, users)) for work in lowered]
        self._assign_slots()
        self._segments = self._schedule()
        single = self._segments[0] if len(self._segments) == 1 else None
        self._only = single.address if isinstance(single, _Native) else 0

    # --- memory

    def _assign_slots(self) -> None:
        self._slots: dict[Storage, int] = {p: k for k, p in enumerate(self.computation.parameters)}
        self._allocators: list[Callable[[], Array]] = []
        for x in self.computation.outputs:
            source = buffer_of(x)
            if source.op is not movement.constant and source not in self._slots:
                self._slots[source] = len(self._slots)
                self._allocators.append(_allocator(_shape_of(source)))
        self._fixed = len(self._slots)  # from here on, slots do not depend on arguments and results
        constants: dict[Instruction, Array] = {}
        lives: dict[Storage, tuple[int, int]] = {}
        for k, step in enumerate(self._steps):
            for x in step.touched:
                if isinstance(x, Instruction) and x.op is movement.constant:
                    constants.setdefault(x, np.ascontiguousarray(x.attributes.literal.value))
                elif x not in self._slots:
                    lives[x] = (lives[x][0] if x in lives else k, k)
        self._constants = list(constants.values())
        offsets, self._arena_bytes = arena_offsets(lives, {x: _bytes(_shape_of(x)) for x in lives})
        self._offsets = list(offsets.values())
        for x in [*constants, *offsets]:
            self._slots[x] = len(self._slots)
        self._constant_addresses = [x.ctypes.data for x in self._constants]
        self._words = ctypes.c_int64 * max(1, len(self._slots))
        self._template: tuple[int, bytes] = (0, bytes(self._words(*[0] * self._fixed, *self._constant_addresses)))
        self._results = [self._result(x) for x in self.computation.outputs]
        inputs = len(self.computation.parameters)
        self._plain = self._results == [(inputs + k, None, None) for k in range(len(self._allocators))]

    def _result(self, x: Instruction) -> tuple[int, Array | None, tuple[int, ...] | None]:
        """Where a result is: the number of its slot, or the constant that it is; and its sizes if they are others
        there."""
        source = buffer_of(x)
        sizes = None if source is x else x.array_shape.dimensions
        if source.op is movement.constant:
            value = np.asarray(source.attributes.literal.value)
            return -1, value if sizes is None else value.reshape(sizes), None
        return self._slots[source], None, sizes

    # --- schedule

    def _schedule(self) -> list[_Native | _Host]:
        segments: list[_Native | _Host] = []
        schedule: Schedule | None = None

        def close() -> None:
            nonlocal schedule
            if schedule is not None:
                words = schedule.finish()
                segments.append(_Native(words, words.ctypes.data))
                schedule = None

        for step in self._steps:
            work = step.work
            if isinstance(work, HostCall):
                close()
                segments.append(_Host(work.root, [self._slots[buffer_of(o)] for o in work.root.operands], step.written))
                continue
            schedule = schedule or Schedule()
            if isinstance(work, Product):
                a, b, c = (self._slots[x] for x in (*map(buffer_of, work.root.operands), work.root))
                product_step(work.root).append(schedule, a, b, c)
            elif work.extent:
                slots = [self._slots[x] for x in work.arguments]
                schedule.kernel(compile_kernel(work.kernel), slots, work.extent, work.grain)
        close()
        return segments

    # --- calls

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        arrays = [*arguments, *[allocate() for allocate in self._allocators]]
        arena, base = pool.allocate(self._arena_bytes) if self._arena_bytes else (None, 0)
        words = self._filled(base)
        words[: self._fixed] = [_address(id(x) + _DATA).value or 0 for x in arrays]
        if self._only:
            launch(self._only, words)
        else:
            self._run_segments(words)
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

    def _run_segments(self, words: Any) -> None:
        """Native steps with calls of the host in between."""
        for segment in self._segments:
            if isinstance(segment, _Native):
                launch(segment.address, words)
                continue
            x = segment.instruction
            operands = [_view(words[k], o.array_shape) for k, o in zip(segment.slots, x.operands, strict=True)]
            with np.errstate(all="ignore"):
                found = x.op.evaluate(*operands, **x.attributes._asdict())
            parts = found if isinstance(found, tuple) else (found,)
            for target in segment.written:
                number = target.attributes.index if target is not x else 0
                _view(words[self._slots[target]], target.array_shape)[...] = parts[number]

    # --- looking inside

    @property
    def kernels(self) -> list[KernelInfo]:
        """The fused loops, in the order in which they run."""
        found: list[KernelInfo] = []
        for step in self._steps:
            work = step.work
            if isinstance(work, LoweredKernel):
                arguments = tuple(str(_shape_of(x)) for x in work.arguments)
                lines = dict.fromkeys(str(r.source) for r in work.roots if r.source)
                source = print_python(work.kernel)
                found.append(KernelInfo(work.kernel.name, source, work.extent, arguments, tuple(lines)))
        return found

    def as_text(self) -> str:
        """The plan: steps in order with the shapes they read and write, and the memory for temporaries."""
        lines = [f"{self.name}: {len(self._steps)} steps, {self._arena_bytes} bytes of temporaries"]
        for k, step in enumerate(self._steps):
            touched = ", ".join(f"{_shape_of(x)}@{self._slots[x]}" for x in step.touched)
            lines.append(f"{k:4} {_describe(step.work)}: {touched}")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Step:
    work: LoweredKernel | Product | HostCall
    touched: list[Storage]

    @property
    def written(self) -> list[Instruction]:
        """What a call of the host stores."""
        assert isinstance(self.work, HostCall)
        count = len(self.work.root.operands)
        return [x for x in self.touched[count:] if isinstance(x, Instruction)]


def _allocator(shape: Shape) -> Callable[[], Array]:
    """What makes memory for a result: NumPy, which is quick with small arrays, or the pool, whose pages are warm."""
    sizes, dtype, nbytes = shape.dimensions, shape.dtype, _bytes(shape)
    if nbytes <= _SMALL:
        return partial(np.empty, sizes, dtype)
    return lambda: np.ndarray(sizes, dtype, pool.allocate(nbytes)[0])


_SMALL = 1 << 14  # bytes
_DATA = object.__basicsize__  # NumPy's array object begins with the header of any object, then the address of the data
_address = ctypes.c_void_p.from_address


def _shape_of(x: Storage) -> Shape:
    return x.shape if isinstance(x, Partial) else x.array_shape


def _bytes(shape: Shape) -> int:
    return shape.size * shape.dtype.itemsize


def _view(address: int, shape: Shape) -> Array:
    """Memory at an address as an array."""
    memory: Any = (ctypes.c_char * _bytes(shape)).from_address(address)
    return np.ndarray(shape.dimensions, shape.dtype, memory)


def _touched(work: LoweredKernel | Product | HostCall, users: dict[Instruction, list[Instruction]]) -> list[Storage]:
    """What a step reads and writes."""
    if isinstance(work, LoweredKernel):
        return work.arguments
    return [*map(buffer_of, work.root.operands), *results_of(work.root, users)]


def _describe(work: LoweredKernel | Product | HostCall) -> str:
    if isinstance(work, LoweredKernel):
        roots = ", ".join(root.op.name for root in work.roots)
        return f"{work.kernel.name} over {work.extent} by {work.grain} ({roots})"
    return f"{'product' if isinstance(work, Product) else 'host call of'} {work.root.op.name}"
