"""Non-temporal stores for results that exceed the last-level cache.

An ordinary store reads its cache line first, and the written line evicts another one. Non-temporal stores of full lines
do neither (AMD64 Architecture Programmer's Manual, volume 1, section 5.5.5). LLVM vectorizes loops with such stores
only if they are known to be aligned. So a loop that writes a large result is blocked; a block goes to a buffer in the
first-level cache, and a routine copies the buffer to the result by non-temporal stores. Results that are copied from
scratch anyway are streamed directly. Does not apply to results that the kernel reads, and to loops that are sequential,
carry values, or are short.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinyxla.compiler.costs import BLOCK_ELEMENTS, LINE_BYTES
from tinyxla.loopir.ir.affine import WIDE, IndexRewriter, is_unit_stride, stride_of
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    VECTOR_ITERATIONS,
    Buffer,
    Builder,
    Call,
    Compute,
    Index,
    Kernel,
    Load,
    Loop,
    Multiply,
    Statement,
    Store,
    Value,
    operand_of,
)
from tinyxla.loopir.ir.prefetch import (
    PREFETCH_WRITE,
    PREFETCHES_PER_TILE,
    PrefetchStream,
    has_expensive_ops,
    prefetch_loop,
    prefetch_stream_of,
    unit_stride_input_loads,
)
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.ir.schedule import FENCE, NONTEMPORAL_STORE
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.target import current_target, has_feature, processor_name

_STEP_ITERATIONS = BLOCK_ELEMENTS // PREFETCHES_PER_TILE
STREAM_ROUTINE, _FENCE_ROUTINE = NONTEMPORAL_STORE, FENCE
_KERNEL_NAMES = ("loop", "part", "row", "scan")  # of loop nests


def use_nontemporal_stores(lowered: LoweredKernel, sizes: Sequence[int]) -> LoweredKernel:
    """The kernel with non-temporal stores where they pay off; `sizes` are the bytes of its arguments.

    The arrays must be larger than twice the last-level cache, so that the first elements are evicted before the kernel
    ends; for kernels with transposes, whose rows are far apart, larger than the cache. On AMD's Zen a kernel must read
    as well: kernels that only write are slower with non-temporal stores there, while they take half the time on Intel's
    processors.
    """
    kernel = lowered.kernel
    written_bytes = sum(size for size, x in zip(sizes, kernel.arguments, strict=True) if x.written)
    has_transposes = _has_transposes(kernel.body)
    min_bytes: float = current_target().last_level_bytes * (1 if has_transposes else 2)
    if processor_name().startswith("znver"):
        min_bytes = max(min_bytes, 1.5 * written_bytes)
    if kernel.name not in _KERNEL_NAMES or sum(sizes) < min_bytes or not has_feature("sse2"):
        return lowered
    stores = _StreamedStores(kernel, VECTOR_ITERATIONS if has_transposes else 2 * VECTOR_ITERATIONS)
    body = [*stores.block(kernel.body), Call(_FENCE_ROUTINE, ())]
    if not stores.is_changed:
        return lowered
    return replace(lowered, kernel=replace(kernel, body=body, scratch=[*kernel.scratch, *stores.scratch]))


@functools.cache
def _declare() -> str:
    """Declare `stream(source, target, target_end)`, which copies a range by non-temporal stores, and the fence that
    ends a kernel, since other threads see such stores in any order; returns the name of the former."""
    b = Builder(STREAM_ROUTINE)
    source, target, target_end = b.argument("u8"), b.argument("u8", True), b.argument("u8", True)
    start = b.address(target)
    size = b.sub(b.address(target_end), start)
    past_line = b.and_(start, LINE_BYTES - 1)
    head = b.min(b.remainder(b.sub(LINE_BYTES, past_line), LINE_BYTES), size)
    stop = b.add(head, b.mul(b.floordiv(b.sub(size, head), LINE_BYTES), LINE_BYTES))
    b.copy_elements(target, 0, source, 0, head)
    with b.loop(head, stop, sequential=True, step=LINE_BYTES) as (k, _):
        b.store(target, k, b.load(source, k, LINE_BYTES), is_nontemporal=True)
    b.copy_elements(target, stop, source, stop, b.sub(size, stop))
    fence = Builder(_FENCE_ROUTINE)
    fence.fence()
    declare_kernel(_FENCE_ROUTINE, fence.kernel)
    return declare_kernel(STREAM_ROUTINE, b.kernel)


class _StreamedStores:
    """Rewrites statements: loops that store to results that the kernel does not read are blocked, and stream each
    block."""

    def __init__(self, kernel: Kernel, min_iterations: int) -> None:
        self._min_iterations = min_iterations
        self.buffers = {x for x in kernel.arguments if x.written} - set(_read_buffers(kernel.body))
        self.scratch: list[Buffer] = []
        self.is_changed = False
        self._scratch_count = len(kernel.scratch)

    def block(self, statements: Sequence[Statement], outer: Loop | None = None) -> list[Statement]:
        result: list[Statement] = []
        for x in statements:
            if isinstance(x, Loop) and any(isinstance(inner, Loop | Multiply | Call) for inner in x.body):
                result.append(replace(x, body=self.block(x.body, x)))
            elif isinstance(x, Loop):
                result += self._block_loop(x, outer)
            elif not (isinstance(x, Call) and x.routine == PREFETCH_WRITE and x.arguments[0][0] in self.buffers):
                result.append(x)
        return result

    def _block_loop(self, loop: Loop, outer: Loop | None) -> list[Statement]:
        """A loop over blocks of a loop's iterations; each block writes to scratch, which is streamed to the results."""
        stores = [
            x for x in loop.body if isinstance(x, Store) and x.buffer in self.buffers and is_unit_stride(x.index, loop)
        ]
        is_short = (
            isinstance(loop.start, int) and isinstance(loop.stop, int) and loop.stop - loop.start < self._min_iterations
        )
        if not stores or is_short or loop.sequential or loop.carried:
            return [loop]
        self.is_changed = True
        source = _copied_scratch(loop)
        if source is not None:
            return _stream(loop, source, stores[0])
        name, outer_index, block_index = loop.index.name, IndexRewriter(), IndexRewriter()
        first, end = loop.start, loop.stop
        is_single_block = isinstance(first, int) and isinstance(end, int) and end - first <= BLOCK_ELEMENTS
        block = Value(INDEX, f"{name}_block")
        if not is_single_block:
            offset = block_index.compute(f"{name}_offset", "multiply", block, BLOCK_ELEMENTS)
            first = block_index.compute(f"{name}_first", "add", loop.start, offset)
            end = block_index.compute(f"{name}_end", "add", first, BLOCK_ELEMENTS)
            end = block_index.compute(f"{name}_last", "minimum", end, loop.stop)
        position = Compute(Value(INDEX, f"{name}_position"), "subtract", (loop.index, operand_of(first)), WIDE)
        inner, calls = [position, *loop.body], []
        for x in stores:
            buffer = Buffer(x.buffer.type, f"row{self._scratch_count + len(self.scratch)}", BLOCK_ELEMENTS, True)
            self.scratch.append(buffer)
            inner[inner.index(x)] = Store(buffer, position.result, x.value)
            target_ends = [
                block_index.at(x.index, loop.body, {loop.index: value}, f"{len(self.scratch)}{k}")
                for k, value in enumerate((first, end))
            ]
            calls.append(Call(_declare(), ((buffer, 0), *((x.buffer, end) for end in target_ends))))
        prefetch = [] if is_single_block or has_expensive_ops(loop) else _prefetch(loop, outer, first)
        statements = [*block_index.statements, *prefetch, replace(loop, start=first, stop=end, body=inner), *calls]
        if is_single_block:  # of constant length, so that the remainder is masked
            return statements
        count = outer_index.compute(f"{name}_count", "subtract", loop.stop, loop.start)
        count = outer_index.compute(f"{name}_length", "maximum", count, 0)
        count = outer_index.compute(f"{name}_rounded", "add", count, BLOCK_ELEMENTS - 1)
        count = outer_index.compute(f"{name}_blocks", "divide", count, BLOCK_ELEMENTS)
        return [*outer_index.statements, Loop(block, 0, count, statements, [])]


def _copied_scratch(loop: Loop) -> Load | None:
    """The load of a loop that does nothing but copy scratch to one array; None for other loops."""
    stores = [x for x in loop.body if isinstance(x, Store)]
    loads = {x.result: x for x in loop.body if isinstance(x, Load)}
    stored_loads = [loads.get(x.value) for x in stores if isinstance(x.value, Value)]
    source = stored_loads[0] if len(stores) == len(stored_loads) == 1 else None
    is_scratch = source is not None and source.buffer.size and is_unit_stride(source.index, loop)
    return source if is_scratch else None


def _stream(loop: Loop, source: Load, target: Store) -> list[Statement]:
    """The call that streams scratch to a result instead of a loop that copies it."""
    name, index = loop.index.name, IndexRewriter()
    ends = [
        index.at(target.index, loop.body, {loop.index: value}, f"{name}{k}")
        for k, value in enumerate((loop.start, loop.stop))
    ]
    start = index.at(source.index, loop.body, {loop.index: loop.start}, f"{name}2")
    call = Call(_declare(), ((source.buffer, start), *((target.buffer, end) for end in ends)))
    return [*index.statements, call]


def _prefetch(loop: Loop, outer: Loop | None, first: Index) -> list[Statement]:
    """The prefetch loop for the inputs of the blocks after the one starting at `first`; empty unless inputs continue
    contiguously in the next iteration of the outer loop."""
    name = loop.index.name
    loads = [x for x in unit_stride_input_loads(loop) if outer is None or _is_contiguous_across(x, loop, outer)]

    def streams(rewriter: IndexRewriter, ahead: Value, step: Value) -> Iterator[PrefetchStream]:
        block_offset = rewriter.compute(f"{name}_before", "multiply", ahead, BLOCK_ELEMENTS)
        block_start = rewriter.compute(f"{name}_then", "add", first, block_offset)
        step_offset = rewriter.compute(f"{name}_in", "multiply", step, _STEP_ITERATIONS)
        start = rewriter.compute(f"{name}_from", "add", block_start, step_offset)
        end = rewriter.compute(f"{name}_to", "add", start, _STEP_ITERATIONS)
        for k, load in enumerate(loads):
            bounds = [{loop.index: start}, {loop.index: end}]
            yield prefetch_stream_of(load, rewriter, loop.body, bounds, f"{name}_{k}")

    return [prefetch_loop(name, streams)] if loads else []


def _is_contiguous_across(load: Load, loop: Loop, outer: Loop) -> bool:
    """True if a load continues contiguously from the end of the loop into the outer loop's next iteration."""
    if not (isinstance(load.index, Value) and isinstance(loop.start, int) and isinstance(loop.stop, int)):
        return False
    return stride_of(outer.index, load.index, [*outer.body, *loop.body]) == loop.stop - loop.start


def _has_transposes(statements: Sequence[Statement]) -> bool:
    """True if a kernel calls transpose routines."""
    return any(
        _has_transposes(x.body) if isinstance(x, Loop) else isinstance(x, Call) and x.routine.startswith("transpose")
        for x in statements
    )


def _read_buffers(statements: Sequence[Statement]) -> Iterator[Buffer]:
    """The buffers that are not only stored to."""
    for x in statements:
        if isinstance(x, Loop):
            yield from _read_buffers(x.body)
        elif isinstance(x, Load):
            yield x.buffer
        elif isinstance(x, Call) and x.routine != PREFETCH_WRITE:
            yield from (buffer for buffer, _ in x.arguments)
        elif isinstance(x, Multiply):
            yield from (x.result.buffer, x.left.buffer, x.right.buffer)
