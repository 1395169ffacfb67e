"""What is worked on in the first cache for long: meanwhile, the row that follows is asked for.

A kernel of rows reads a row from memory, and goes over it again in the cache. The processor reads ahead by itself, but
only along what a program reads, so while exponentials are computed, the memory rests. Where a loop over a row computes
such functions of what another loop read before, it is cut into blocks, and with each a block of the next row is asked
for. The memory and the processor then work at the same time; asking for a whole row at once would let both wait.

Little work on a single array that no cache holds gains from it, too: Intel's processors read ahead within 4096 bytes
only. There a loop asks for what lies some blocks behind in memory, which at the end of a row is that of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from tinyxla.backends.numba.index_arithmetic import WIDE, Indices, follows
from tinyxla.backends.numba.llvm_printer import is_call
from tinyxla.backends.numba.loops import (
    INDEX,
    Buffer,
    Call,
    Carried,
    Compute,
    Index,
    Load,
    Loop,
    Multiply,
    Statement,
    Value,
)
from tinyxla.backends.numba.lowering import LoweredKernel
from tinyxla.backends.numba.streams import last_cache
from tinyxla.backends.numba.transposes import provide_request
from tinyxla.shapes import element_type

_BLOCK = 256  # iterations
_AHEAD = 512  # iterations from what little work is done on to what is asked for meanwhile
_MOST = 1 << 17  # bytes of a row and the one that follows, which are in the second cache together
_LEAST = 1 << 21  # bytes of what is read, which the second cache does not hold

_SHORT = ("convert", "bitcast-convert")  # functions that take little time

_Read = tuple[Loop, Load]


def asking(lowered: LoweredKernel, sizes: Sequence[int]) -> LoweredKernel:
    """The kernel, whose arguments have so many bytes, with what asks for rows where it gains something."""
    kernel = lowered.kernel
    read = sum(size for size, x in zip(sizes, kernel.arguments, strict=True) if not x.written)
    if kernel.name != "row" or read < _LEAST:
        return lowered
    is_large = read >= 2 * last_cache()
    body = [_rows(x, is_large) if isinstance(x, Loop) else x for x in kernel.body]
    return replace(lowered, kernel=replace(kernel, body=body))


def _rows(around: Loop, is_large: bool) -> Loop:
    """The loop over rows, of which one asks for the next row: the first that computes long of what is there already; or
    else, if a row is one of a single array that is large, the loop that reads it asks for what follows."""
    read: dict[Buffer, _Read] = {}
    cut = asking = None
    for loop in filter(_is_plain, around.body):
        if read and any(is_call(x) and x.op not in _SHORT for x in loop.body):
            asking, cut = loop, _asking_for_rows(loop, around, list(read.values()), is_large)
            break
        for load in _loads(loop):
            read.setdefault(load.buffer, (loop, load))
    if asking is None and is_large and len(read) == 1:
        ((asking, load),) = read.values()
        cut = _asking_ahead(asking, around, load)
    return replace(around, body=[cut if x is asking else x for x in around.body]) if cut else around


def _is_plain(x: Statement) -> TypeGuard[Loop]:
    return (
        isinstance(x, Loop)
        and x.start == 0
        and isinstance(x.stop, int)
        and not (x.sequential or x.again)
        and not any(isinstance(y, (Loop, Call, Multiply)) for y in x.body)
    )


def _loads(loop: Loop) -> Iterator[Load]:
    """Those of arguments, element by element."""
    for x in loop.body:
        if isinstance(x, Load) and x.buffer.size is None and not x.buffer.written and follows(x.index, loop):
            yield x


def _asking_for_rows(loop: Loop, around: Loop, read: Sequence[_Read], is_large: bool) -> Loop | None:
    """The loop in blocks, each of which asks for its part of what the next iteration of the one around reads; None if
    that gains nothing, as where blocks are uneven and what is read is not large."""
    length = loop.stop
    assert isinstance(length, int)
    read = [(over, load) for over, load in read if over.stop == length and _moves(load.index, around, over)]
    row = sum(length * element_type(load.buffer.type).dtype.itemsize for _, load in read)
    if not read or length < 2 * _BLOCK or 2 * row > _MOST or (length % _BLOCK and not is_large):
        return None
    name, inside = f"{loop.index.name}_ask", Indices()
    last_row = inside.compute(f"{name}_last_row", "subtract", around.stop, 1)
    following = inside.compute(f"{name}_following", "add", around.index, 1)
    following = inside.compute(f"{name}_next_row", "minimum", following, last_row)
    return _cut(loop, around, read, inside, following, 0)


def _asking_ahead(loop: Loop, around: Loop, load: Load) -> Loop | None:
    """The loop in blocks, each of which asks for what lies some blocks behind it; None if blocks are uneven, or few."""
    length = loop.stop
    assert isinstance(length, int)
    if length < 2 * _BLOCK or length % _BLOCK or not _moves(load.index, around, loop):
        return None
    return _cut(loop, around, [(loop, load)], Indices(), around.index, _AHEAD)


def _cut(loop: Loop, around: Loop, read: Sequence[_Read], inside: Indices, row: Value, ahead: int) -> Loop:
    """The loop in blocks, each of which asks for so much what is behind its part of a row."""
    length = loop.stop
    assert isinstance(length, int)
    name = f"{loop.index.name}_ask"
    number = Value(INDEX, f"{name}_block")
    first = inside.compute(f"{name}_first", "multiply", number, _BLOCK)
    count: Index = _BLOCK  # known to LLVM where it can be
    if length % _BLOCK:
        left = inside.compute(f"{name}_left", "subtract", length, first)
        count = inside.compute(f"{name}_count", "minimum", left, _BLOCK)
    begin = inside.compute(f"{name}_begin", "add", first, ahead)
    end = inside.compute(f"{name}_end", "add", begin, count)
    calls: list[Statement] = []
    for k, (over, load) in enumerate(read):
        ends = [
            inside.at(load.index, [*around.body, *over.body], {over.index: at, around.index: row}, f"{name}_{k}{e}")
            for e, at in enumerate((begin, end))
        ]
        calls.append(Call(provide_request(), tuple((load.buffer, at) for at in ends)))
    carried: list[Carried] = []
    passed: list[Carried] = []
    for x in loop.carried:
        before, after = (Value(x.inside.type, f"{x.inside.name}_{which}") for which in ("before", "after"))
        carried.append(Carried(before, x.initial, x.result, after))
        passed.append(Carried(x.inside, before, after, x.updated))
    here = Value(INDEX, f"{name}_here")
    index = Compute(loop.index, "add", (first, here), WIDE)
    block = replace(loop, index=here, stop=count, body=[index, *loop.body], carried=passed)
    return Loop(number, 0, -(-length // _BLOCK), [*inside.statements, *calls, block], carried)


def _moves(index: Index, around: Loop, over: Loop) -> bool:
    """Whether an index depends on that of the loop around."""
    made = {x.result: x for x in [*around.body, *over.body] if isinstance(x, Compute)}

    def depends(x: object) -> bool:
        return x is around.index or (isinstance(x, Value) and x in made and any(map(depends, made[x].operands)))

    return depends(index)
