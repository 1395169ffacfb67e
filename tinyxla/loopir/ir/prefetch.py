"""Software prefetch: routines that prefetch the cache lines of an address range for reading or writing, and loops that
prefetch tiles (rows, blocks) ahead of their use.

A core reaches the memory's bandwidth only with many outstanding misses; one miss takes about 200 ns. The hardware
prefetcher keeps few outstanding, and restarts at each page of 4096 bytes. So tiles are prefetched in
`PREFETCHES_PER_TILE` steps, software-pipelined over the preceding tiles: with each tile, the last step of the next
tile, the step before it of the tile after that, and so on. When a tile is computed, all its steps are done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tinyxla.compiler.costs import LINE_BYTES
from tinyxla.loopir.ir.affine import IndexRewriter, is_unit_stride
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Builder, Call, Compute, Index, Load, Loop, Statement, Value
from tinyxla.loopir.ir.operations import is_function
from tinyxla.loopir.ir.routines import declare_kernel

PREFETCH_READ, PREFETCH_WRITE = "prefetch_read", "prefetch_write"  # routines without effect on values
PREFETCHES_PER_TILE = 8  # steps in which a tile is prefetched
_CHEAP_FUNCTIONS = ("convert", "bitcast-convert")  # functions as cheap as an instruction
_EXPENSIVE_OPS = ("divide", "sqrt")  # inline instructions with long latency

PrefetchStream = tuple[tuple[Buffer, Index], ...]  # first and last element


def prefetch_loop(name: str, streams: Callable[[IndexRewriter, Value, Value], Iterable[PrefetchStream]]) -> Loop:
    """A loop over the prefetch steps of the following tiles. `streams(rewriter, ahead, step)` gives the streams to
    prefetch of the tile `ahead` tiles further on, in step `step`."""
    step, rewriter = Value(INDEX, f"{name}_part"), IndexRewriter()
    ahead = rewriter.compute(f"{name}_ahead", "subtract", PREFETCHES_PER_TILE, step)
    calls = [Call(declare_prefetch_read(), stream) for stream in streams(rewriter, ahead, step)]
    return Loop(step, 0, PREFETCHES_PER_TILE, [*rewriter.statements, *calls], [])


def prefetch_stream_of(
    load: Load, rewriter: IndexRewriter, body: Sequence[Statement], bounds: Sequence[Mapping[Value, Index]], name: str
) -> PrefetchStream:
    """The range that a load in the body of a loop reads: `bounds` maps loop variables to their first and to their
    last values."""
    return tuple((load.buffer, rewriter.at(load.index, body, values, f"{name}{k}")) for k, values in enumerate(bounds))


def unit_stride_input_loads(loop: Loop) -> Iterator[Load]:
    """Loads with unit stride from arguments that the kernel does not write."""
    for x in loop.body:
        if isinstance(x, Load) and x.buffer.size is None and not x.buffer.written and is_unit_stride(x.index, loop):
            yield x


def has_expensive_ops(loop: Loop) -> bool:
    """True if a loop calls functions, divides or takes square roots."""
    return any(
        x.op in _EXPENSIVE_OPS or (is_function(x) and x.op not in _CHEAP_FUNCTIONS)
        for x in loop.body
        if isinstance(x, Compute)
    )


@functools.cache
def declare_prefetch_read() -> str:
    """Declare the routine that prefetches a range for reading; returns its name."""
    return _declare(PREFETCH_READ, for_writing=False)


@functools.cache
def declare_prefetch_write() -> str:
    """Declare the routine that prefetches a range for writing (with ownership), so that the first store to a line
    does not wait for the line; returns its name."""
    return _declare(PREFETCH_WRITE, for_writing=True)


def _declare(name: str, for_writing: bool) -> str:
    """Declare `prefetch(first, last)`, of the cache lines from an address to another."""
    b = Builder(name)
    first, last = b.argument("u8"), b.argument("u8")
    start = b.address(first)
    first_line, size = b.sub(0, b.and_(start, LINE_BYTES - 1)), b.sub(b.address(last), start)
    with b.loop(first_line, size, sequential=True, step=LINE_BYTES, nonempty=True) as (k, _):
        b.prefetch(first, k, for_writing, cache_level=1 if for_writing else 2)
    return declare_kernel(name, b.kernel)
