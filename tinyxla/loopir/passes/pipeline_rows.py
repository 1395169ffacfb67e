"""Software pipelining and prefetch of the next rows, in kernels that read rows from memory.

A row kernel reads a row from memory, then works on it in the cache. The hardware prefetcher follows only what the
program reads, so memory is idle during expensive stages. If a loop computes expensive functions of a row that an
earlier loop read, memory and computation overlap in two ways:

- An extremum that the first loop computes is computed for the next row by the loop that works on this row.
- Arrays that exceed the last-level cache are prefetched: the expensive loop is blocked, and with each block a step of
  several following rows is prefetched (see `ir.prefetch`).

Cheap kernels over a single array that exceeds the last-level cache prefetch the blocks that follow in memory, across
the end of the row. An argmin or argmax runs over a row in groups already, and prefetches with each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from tinyxla.compiler.costs import BLOCK_ELEMENTS
from tinyxla.loopir.ir.affine import WIDE, IndexRewriter, stride_of
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    Buffer,
    Call,
    Compute,
    Index,
    Literal,
    Load,
    Loop,
    LoopCarried,
    Multiply,
    Operand,
    Statement,
    Store,
    Value,
    operand_of,
)
from tinyxla.loopir.ir.prefetch import (
    PREFETCHES_PER_TILE,
    PrefetchStream,
    has_expensive_ops,
    prefetch_loop,
    prefetch_stream_of,
    unit_stride_input_loads,
)
from tinyxla.loopir.ir.schedule import Directive
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.target import current_target
from tinyxla.shapes import element_type

BLOCK_ITERATIONS = BLOCK_ELEMENTS // 4

_EXTREMUM_OPS = ("maximum", "minimum", "and", "or")  # exact in any order

_Read = tuple[Loop, Load]


def prefetch_next_rows(lowered: LoweredKernel, sizes: Sequence[int]) -> LoweredKernel:
    """The kernel with next rows read early where that pays off; `sizes` are the bytes of its arguments."""
    kernel = lowered.kernel
    read_bytes = sum(size for size, x in zip(sizes, kernel.arguments, strict=True) if not x.written)
    if kernel.name not in ("row", "split") or read_bytes < current_target().prefetched_bytes:
        return lowered
    is_large = read_bytes >= 2 * current_target().last_level_bytes
    body: list[Statement] = []
    for x in kernel.body:
        has_many_rows = lowered.grain >= 4  # the last row of a chunk has no next one
        body += _prefetch_rows(x, is_large, has_many_rows) if isinstance(x, Loop) else [x]
    if len(body) == len(kernel.body) and all(x is y for x, y in zip(body, kernel.body, strict=True)):
        return lowered
    return replace(
        lowered, kernel=replace(kernel, body=body), directives=(*lowered.directives, Directive("pipeline", ("rows",)))
    )


def _prefetch_rows(row_loop: Loop, is_large: bool, has_many_rows: bool) -> list[Statement]:
    """Replace a loop over rows, if one of its inner loops is expensive and an earlier one reads the row, or if a
    cheap inner loop reads rows of a single large array."""
    loops = list(filter(_is_simple_loop, row_loop.body))
    reads: dict[Buffer, _Read] = {}
    for loop in loops:
        for load in unit_stride_input_loads(loop):
            reads.setdefault(load.buffer, (loop, load))
    reading_loops = [loop for loop, _ in reads.values()]
    for k, loop in enumerate(loops):
        if has_expensive_ops(loop) and any(x in reading_loops for x in loops[:k]):
            return _overlap_expensive_loop(loop, row_loop, loops[:k], list(reads.values()), is_large, has_many_rows)
    if is_large and len(reads) == 1:
        ((loop, load),) = reads.values()
        if _is_long(loop) and _varies_with(load.index, row_loop, loop):
            return [_replace_loop(row_loop, loop, _block_with_prefetch(loop, row_loop, [(loop, load)], 1))]
    return _prefetch_in_groups(row_loop) if is_large else [row_loop]


def _prefetch_in_groups(row_loop: Loop) -> list[Statement]:
    """The loop over rows, with prefetch in the loop over groups of a row that reads a single array."""
    loops = [x for x in row_loop.body if isinstance(x, Loop)]
    inner = next((x for x in loops[0].body if isinstance(x, Loop)), None) if len(loops) == 1 else None
    if inner is None or isinstance(inner.start, int) or any(isinstance(x, Loop) for x in inner.body):
        return [row_loop]
    (groups,) = loops
    group_size = stride_of(groups.index, inner.start, groups.body)
    reads = [(inner, load) for load in unit_stride_input_loads(inner) if _varies_with(load.index, row_loop, inner)]
    if len(reads) != 1 or not isinstance(groups.stop, int) or groups.stop < 2 or not group_size >= PREFETCHES_PER_TILE:
        return [row_loop]
    prefetch = _prefetch_step(groups.index, groups.stop, int(group_size) // PREFETCHES_PER_TILE, row_loop, reads, 1)
    return [_replace_loop(row_loop, groups, replace(groups, body=[prefetch, *groups.body]))]


def _replace_loop(row_loop: Loop, loop: Loop, replacement: Loop) -> Loop:
    return replace(row_loop, body=[replacement if x is loop else x for x in row_loop.body])


def _is_simple_loop(x: Statement) -> TypeGuard[Loop]:
    return (
        isinstance(x, Loop)
        and x.start == 0
        and isinstance(x.stop, int)
        and not (x.sequential or x.continue_while)
        and not any(isinstance(inner, (Loop, Call, Multiply)) for inner in x.body)
    )


def _is_long(loop: Loop) -> bool:
    return isinstance(loop.stop, int) and loop.stop >= 2 * BLOCK_ITERATIONS


def _overlap_expensive_loop(
    expensive_loop: Loop,
    row_loop: Loop,
    before: Sequence[Loop],
    reads: Sequence[_Read],
    is_large: bool,
    has_many_rows: bool,
) -> list[Statement]:
    """The loop over rows with memory accesses overlapped with `expensive_loop`, and the statements before it."""
    length = expensive_loop.stop
    assert isinstance(length, int)
    reads = [read for read in reads if read[0].stop == length and _varies_with(read[1].index, row_loop, read[0])]
    row_bytes = sum(length * element_type(load.buffer.type).dtype.itemsize for _, load in reads)
    is_read_before = any(inner in before for inner, _ in reads)
    if not is_read_before or length < 2 * BLOCK_ITERATIONS or 2 * row_bytes > current_target().rows_bytes:
        return [row_loop]
    if has_many_rows and len(before) == 1 and before[0].stop == length and _only_computes_extrema(before[0], row_loop):
        first_row, combined, row_loop = _hoist_next_extremum(before[0], expensive_loop, row_loop)
        if is_large:
            row_loop = _replace_loop(row_loop, combined, _block_with_prefetch(combined, row_loop, reads, 2))
        return [first_row, row_loop]
    if is_large or length % BLOCK_ITERATIONS == 0:
        row_loop = _replace_loop(row_loop, expensive_loop, _block_with_prefetch(expensive_loop, row_loop, reads, 1))
    return [row_loop]


def _only_computes_extrema(loop: Loop, row_loop: Loop) -> bool:
    """True if a loop does nothing but reduce a row of arguments to extrema."""
    definitions = {x.result: x for x in loop.body if isinstance(x, Compute | Load)}
    if any(isinstance(x, Store) or (isinstance(x, Load) and x.buffer.written) for x in loop.body):
        return False
    for c in loop.carried:
        x = definitions.get(c.next) if isinstance(c.next, Value) else None
        if not isinstance(x, Compute) or x.op not in _EXTREMUM_OPS or c.arg not in x.operands:
            return False
    inputs = {loop.index, row_loop.index, *definitions, *(c.arg for c in loop.carried)}
    return all(isinstance(o, Literal | int) or o in inputs for x in loop.body for o in _operands(x))


def _operands(x: Statement) -> Sequence[Operand | Index]:
    return x.operands if isinstance(x, Compute) else [x.index] if isinstance(x, Load) else []


def _hoist_next_extremum(extremum_loop: Loop, expensive_loop: Loop, row_loop: Loop) -> tuple[Loop, Loop, Loop]:
    """Software pipelining of an extremum: the loop for the first row; the expensive loop, which also computes the
    extremum of the next row; and the loop over rows, in which the last row is its own next row."""
    rewriter, name = IndexRewriter(), f"{extremum_loop.index.name}_next"
    last_row = rewriter.compute(f"{name}_last", "subtract", row_loop.stop, 1)
    next_row = rewriter.compute(f"{name}_following", "add", row_loop.index, 1)
    next_row = rewriter.compute(f"{name}_row", "minimum", next_row, last_row)
    first_index = Value(INDEX, f"{extremum_loop.index.name}_first")
    first_row = _clone(extremum_loop, "first", first_index, {row_loop.index: operand_of(row_loop.start)})
    clone = _clone(extremum_loop, "next", expensive_loop.index, {row_loop.index: next_row})
    combined_body, combined_carried = [*expensive_loop.body, *clone.body], [*expensive_loop.carried, *clone.carried]
    combined = replace(expensive_loop, body=combined_body, carried=combined_carried)
    carried = [
        LoopCarried(x.result, first_carry.result, Value(x.result.type, f"{x.result.name}_last"), next_carry.result)
        for x, first_carry, next_carry in zip(extremum_loop.carried, first_row.carried, clone.carried, strict=True)
    ]
    body = [combined if x is expensive_loop else x for x in row_loop.body if x is not extremum_loop]
    row_loop = replace(row_loop, body=[*rewriter.statements, *body], carried=[*row_loop.carried, *carried])
    return first_row, combined, row_loop


def _clone(loop: Loop, suffix: str, index: Value, substitutions: dict[Value, Operand]) -> Loop:
    """A copy of a loop with new names; some values are substituted."""
    new_names: dict[Index | Operand | None, Operand] = {loop.index: index, **substitutions}

    def rename(x: Value) -> Value:
        new_names[x] = new_value = Value(x.type, f"{x.name}_{suffix}")
        return new_value

    carried = [replace(c, arg=rename(c.arg), result=rename(c.result)) for c in loop.carried]
    body: list[Statement] = []
    for x in loop.body:
        if isinstance(x, Compute):
            operands = tuple(new_names.get(o, o) for o in x.operands)
            body.append(replace(x, operands=operands, result=rename(x.result)))
        elif isinstance(x, Load):
            body.append(replace(x, index=new_names.get(x.index, x.index), result=rename(x.result)))
    carried = [replace(c, next=new_names[c.next]) for c in carried]
    return replace(loop, index=new_names[loop.index], body=body, carried=carried)


def _block_with_prefetch(loop: Loop, row_loop: Loop, reads: Sequence[_Read], distance: int) -> Loop:
    """The loop in blocks, each with a prefetch step of the following rows, beginning `distance` rows ahead."""
    length = loop.stop
    assert isinstance(length, int)
    block, blocks = Value(INDEX, f"{loop.index.name}_prefetch_block"), -(-length // BLOCK_ITERATIONS)
    prefetch = _prefetch_step(block, blocks, -(-length // (blocks * PREFETCHES_PER_TILE)), row_loop, reads, distance)
    return _block_loop(loop, block, [prefetch])


def _prefetch_step(block: Value, blocks: int, size: int, row_loop: Loop, reads: Sequence[_Read], distance: int) -> Loop:
    """The loop that prefetches, in block number `block` of a row, `size` elements of each following row."""
    name = f"{block.name}_prefetch"

    def streams(rewriter: IndexRewriter, ahead: Value, step: Value) -> Iterator[PrefetchStream]:
        row = rewriter.compute(f"{name}_before", "add", row_loop.index, ahead)
        row = rewriter.compute(f"{name}_row", "add", row, distance - 1)
        start = rewriter.compute(f"{name}_begin", "multiply", step, blocks)
        start = rewriter.compute(f"{name}_in_step", "add", start, block)
        start = rewriter.compute(f"{name}_from", "multiply", start, size)
        end = rewriter.compute(f"{name}_to", "add", start, size)
        for k, (inner, load) in enumerate(reads):
            bounds = [{inner.index: index, row_loop.index: row} for index in (start, end)]
            yield prefetch_stream_of(load, rewriter, [*row_loop.body, *inner.body], bounds, f"{name}_{k}")

    return prefetch_loop(name, streams)


def _block_loop(loop: Loop, block: Value, prologue: Sequence[Statement]) -> Loop:
    """The loop in blocks of iterations, each after the statements `prologue`."""
    length, name = loop.stop, block.name
    assert isinstance(length, int)
    rewriter = IndexRewriter()
    first = rewriter.compute(f"{name}_first", "multiply", block, BLOCK_ITERATIONS)
    count: Index = BLOCK_ITERATIONS  # constant if possible, for LLVM
    if length % BLOCK_ITERATIONS:
        remaining = rewriter.compute(f"{name}_remaining", "subtract", length, first)
        count = rewriter.compute(f"{name}_count", "minimum", remaining, BLOCK_ITERATIONS)
    carried: list[LoopCarried] = []
    inner_carried: list[LoopCarried] = []
    for x in loop.carried:
        start, end = (Value(x.arg.type, f"{x.arg.name}_{suffix}") for suffix in ("before", "after"))
        carried.append(LoopCarried(start, x.init, x.result, end))
        inner_carried.append(LoopCarried(x.arg, start, end, x.next))
    position = Value(INDEX, f"{name}_position")
    index = Compute(loop.index, "add", (first, position), WIDE)
    inner_loop = replace(loop, index=position, stop=count, body=[index, *loop.body], carried=inner_carried)
    return Loop(block, 0, -(-length // BLOCK_ITERATIONS), [*prologue, *rewriter.statements, inner_loop], carried)


def _varies_with(index: Index, row_loop: Loop, inner: Loop) -> bool:
    """True if an index depends on the index of the loop over rows."""
    definitions = {x.result: x for x in [*row_loop.body, *inner.body] if isinstance(x, Compute)}

    def depends(x: object) -> bool:
        return x is row_loop.index or (
            isinstance(x, Value) and x in definitions and any(map(depends, definitions[x].operands))
        )

    return depends(index)
