"""Results that no cache can hold go past the caches.

A store to memory first reads the line that it changes, and a line that is written takes the place of another one in
every cache. Stores with a hint that the line is not needed soon do neither, if they write whole lines ("non-temporal";
AMD64 Architecture Programmer's Manual, volume 1, section 5.5.5). LLVM makes vectors of loops with such stores only
where it knows that these are aligned. So a loop that writes such a result is cut into blocks, which go to a buffer in
the first cache, and from there to the result. What is in such a buffer anyway goes straight to the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinyxla.loopir.ir.affine import WIDE, IndexRewriter, is_unit_stride, stride_of
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    Buffer,
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
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.target import has_feature, last_cache, processor_name

BLOCK = 1024  # iterations
_PART = BLOCK // PREFETCHES_PER_TILE
SHORTEST = 64  # of a loop whose result is more than the ends of lines, if what it reads was asked for; else twice
ROUTINE = "stream"
_FENCE = "fence"
_KINDS = ("loop", "part", "row", "scan")  # of nests


def use_nontemporal_stores(lowered: LoweredKernel, sizes: Sequence[int]) -> LoweredKernel:
    """The kernel, whose arguments have so many bytes, with such stores where they gain something.

    What it writes first must have left the caches anyway before it ends; rows of squares are so far apart that it is
    enough if the caches are full. On AMD's Zen it must read, too: what only writes is slower there with such stores,
    while on Intel's processors it takes half the time.
    """
    kernel = lowered.kernel
    written = sum(size for size, x in zip(sizes, kernel.arguments, strict=True) if x.written)
    turns = _turns(kernel.body)
    least = max(last_cache() * (1 if turns else 2), 1.5 * written if processor_name().startswith("znver") else 0)
    if kernel.name not in _KINDS or sum(sizes) < least or not has_feature("sse2"):
        return lowered
    streaming = _Streaming(kernel, SHORTEST if turns else 2 * SHORTEST)
    body = [*streaming.block(kernel.body), Call(_FENCE, ())]
    if not streaming.found:
        return lowered
    return replace(lowered, kernel=replace(kernel, body=body, scratch=[*kernel.scratch, *streaming.scratch]))


_TEXT = """
define void @stream(ptr %from, ptr %to, ptr %end) {
entry:
  %start = ptrtoint ptr %to to i64
  %stop = ptrtoint ptr %end to i64
  %bytes = sub i64 %stop, %start
  %head = call i64 @llvm.smin.i64(i64 (and i64 (sub i64 0, %start), 63), i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %head, i1 false)
  %whole = and i64 (sub i64 %bytes, %head), -64
  %lines = add i64 %head, %whole
  br i1 (icmp ne i64 %whole, 0), label %line, label %tail
line:
  %k = phi i64 [ %head, %entry ], [ %next, %line ]
  %values = load <16 x i32>, ptr %from[i8 %k], align 1
  store <16 x i32> %values, ptr %to[i8 %k], align 64, !nontemporal !0
  %next = add i64 %k, 64
  br i1 (icmp ult i64 %next, %lines), label %line, label %tail
tail:
  %last_target = getelementptr i8, ptr %to, i64 %lines
  %left = sub i64 %bytes, %lines
  call void @llvm.memcpy.p0.p0.i64(ptr %last_target, ptr %from[i8 %lines], i64 %left, i1 false)
  ret void
}

define void @fence() {
  call void @llvm.x86.sse.sfence()
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.x86.sse.sfence()

!0 = !{i32 1}
"""


def _provide() -> str:
    """Let kernels call the routine that copies bytes, up to an address, past the caches; return its name. And the fence
    that a kernel needs at its end, since other threads see such stores in any order."""
    for name in (ROUTINE, _FENCE):
        declare_llvm(name, _TEXT, name, is_optimized=True)
    return ROUTINE


class _Streaming:
    """Copies statements; cuts loops that store to what the kernel does not read into blocks."""

    def __init__(self, kernel: Kernel, shortest: int) -> None:
        self._shortest = shortest
        self.buffers = {x for x in kernel.arguments if x.written} - set(_read(kernel.body))
        self.scratch: list[Buffer] = []
        self.found = False
        self._number = len(kernel.scratch)

    def block(self, statements: Sequence[Statement], around: Loop | None = None) -> list[Statement]:
        found: list[Statement] = []
        for x in statements:
            if isinstance(x, Loop) and any(isinstance(inner, Loop | Multiply | Call) for inner in x.body):
                found.append(replace(x, body=self.block(x.body, x)))
            elif isinstance(x, Loop):
                found += self._cut(x, around)
            elif not (isinstance(x, Call) and x.routine == PREFETCH_WRITE and x.arguments[0][0] in self.buffers):
                found.append(x)
        return found

    def _cut(self, loop: Loop, outer: Loop | None) -> list[Statement]:
        """A loop over blocks of the loop's iterations: each writes to scratch, and that goes to where it belongs."""
        stores = [
            x for x in loop.body if isinstance(x, Store) and x.buffer in self.buffers and is_unit_stride(x.index, loop)
        ]
        short = isinstance(loop.start, int) and isinstance(loop.stop, int) and loop.stop - loop.start < self._shortest
        if not stores or short or loop.sequential or loop.carried:
            return [loop]
        name, around, body = loop.index.name, IndexRewriter(), IndexRewriter()
        loads = {x.result: x for x in loop.body if isinstance(x, Load)}
        made = [loads.get(x.value) for x in stores if isinstance(x.value, Value)]
        if (
            len(stores) == len(made) == 1
            and made[0] is not None
            and made[0].buffer.size
            and is_unit_stride(made[0].index, loop)
        ):
            source, target = made[0], stores[0]
            ends = [
                body.at(target.index, loop.body, {loop.index: at}, f"{name}{k}")
                for k, at in enumerate((loop.start, loop.stop))
            ]
            begin = body.at(source.index, loop.body, {loop.index: loop.start}, f"{name}2")
            self.found = True
            return [
                *body.statements,
                Call(_provide(), ((source.buffer, begin), *((target.buffer, end) for end in ends))),
            ]
        self.found = True
        first, end = loop.start, loop.stop
        is_one = isinstance(first, int) and isinstance(end, int) and end - first <= BLOCK
        number = Value(INDEX, f"{name}_block")
        if not is_one:
            offset = body.compute(f"{name}_offset", "multiply", number, BLOCK)
            first = body.compute(f"{name}_first", "add", loop.start, offset)
            end = body.compute(f"{name}_end", "add", first, BLOCK)
            end = body.compute(f"{name}_last", "minimum", end, loop.stop)
        here = Compute(Value(INDEX, f"{name}_here"), "subtract", (loop.index, operand_of(first)), WIDE)
        inner, calls = [here, *loop.body], []
        for x in stores:
            row = Buffer(x.buffer.type, f"row{self._number + len(self.scratch)}", BLOCK, True)
            self.scratch.append(row)
            inner[inner.index(x)] = Store(row, here.result, x.value)
            places = [
                body.at(x.index, loop.body, {loop.index: at}, f"{len(self.scratch)}{k}")
                for k, at in enumerate((first, end))
            ]
            calls.append(Call(_provide(), ((row, 0), *((x.buffer, place) for place in places))))
        asking = [] if is_one or has_expensive_ops(loop) else _asking(loop, outer, first)
        cut = [*body.statements, *asking, replace(loop, start=first, stop=end, body=inner), *calls]
        if is_one:  # whose length is known where it runs, so that what vectors leave is masked
            return cut
        count = around.compute(f"{name}_count", "subtract", loop.stop, loop.start)
        count = around.compute(f"{name}_more", "add", around.compute(f"{name}_left", "maximum", count, 0), BLOCK - 1)
        count = around.compute(f"{name}_blocks", "divide", count, BLOCK)
        return [*around.statements, Loop(number, 0, count, cut, [])]


def _asking(loop: Loop, around: Loop | None, first: Index) -> list[Statement]:
    """What asks for what the blocks that follow read, where this one begins with some iteration; nothing if memory does
    not go on with the loop around where the loop ends."""
    name = loop.index.name
    loads = [x for x in unit_stride_input_loads(loop) if around is None or _goes_on(x, loop, around)]

    def lines(inside: IndexRewriter, ahead: Value, part: Value) -> Iterator[PrefetchStream]:
        then = inside.compute(f"{name}_then", "add", first, inside.compute(f"{name}_before", "multiply", ahead, BLOCK))
        begin = inside.compute(f"{name}_from", "add", then, inside.compute(f"{name}_in", "multiply", part, _PART))
        end = inside.compute(f"{name}_to", "add", begin, _PART)
        for k, load in enumerate(loads):
            yield prefetch_stream_of(load, inside, loop.body, [{loop.index: at} for at in (begin, end)], f"{name}_{k}")

    return [prefetch_loop(name, lines)] if loads else []


def _goes_on(load: Load, loop: Loop, around: Loop) -> bool:
    if not (isinstance(load.index, Value) and isinstance(loop.start, int) and isinstance(loop.stop, int)):
        return False
    return stride_of(around.index, load.index, [*around.body, *loop.body]) == loop.stop - loop.start


def _turns(statements: Sequence[Statement]) -> bool:
    """Whether squares are transposed."""
    return any(
        _turns(x.body) if isinstance(x, Loop) else isinstance(x, Call) and x.routine.startswith("transpose")
        for x in statements
    )


def _read(statements: Sequence[Statement]) -> Iterator[Buffer]:
    """The buffers that are not only stored to."""
    for x in statements:
        if isinstance(x, Loop):
            yield from _read(x.body)
        elif isinstance(x, Load):
            yield x.buffer
        elif isinstance(x, Call) and x.routine != PREFETCH_WRITE:
            yield from (buffer for buffer, _ in x.arguments)
        elif isinstance(x, Multiply):
            yield from (x.result.buffer, x.left.buffer, x.right.buffer)
