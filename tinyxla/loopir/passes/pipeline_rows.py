"""What is worked on in the first cache for long: meanwhile, the rows that follow are read.

A kernel of rows reads a row from memory, and goes over it again in the cache. The processor reads ahead by itself, but
only along what a program reads, so while exponentials are computed, the memory rests. Where a loop over a row computes
such functions of what another loop read before, memory and processor work at the same time in two ways:

- Where the first loop finds an extremum, it does so for the next row in the loop that works on this one.
- From an array that no cache holds, a processor gets all that the memory can give only if it waits for many lines at
  once. It asks for few of them itself, and reads ahead within a page of 4096 bytes, for each page apart. So the loop is
  cut into blocks, with which parts of several rows are asked for: of the next one its last part, of the one after it
  the part before that, and so on. When its turn comes, all of a row was asked for.

Little work on a single array that no cache holds gains from asking, too: there a loop asks for what lies some blocks
behind in memory, which at the end of a row is that of the next one. What finds a place in a row goes over it in groups
already, and asks with each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

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
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.target import last_cache
from tinyxla.shapes import element_type

_BLOCK = 256  # iterations
_MOST = 1 << 17  # bytes of a row and the one that follows, which are in the second cache together
_LEAST = 1 << 21  # bytes of what is read, which the second cache does not hold
_MANY = 4  # rows of a piece of work, whose last one has no next row

_EXTREMA = ("maximum", "minimum", "and", "or")  # which are the same in whatever order they are found

_Read = tuple[Loop, Load]


def prefetch_next_rows(lowered: LoweredKernel, sizes: Sequence[int]) -> LoweredKernel:
    """The kernel, whose arguments have so many bytes, with what reads rows early where it gains something."""
    kernel = lowered.kernel
    read = sum(size for size, x in zip(sizes, kernel.arguments, strict=True) if not x.written)
    if kernel.name not in ("row", "split") or read < _LEAST:
        return lowered
    is_large = read >= 2 * last_cache()
    body: list[Statement] = []
    for x in kernel.body:
        body += _rows(x, is_large, lowered.grain >= _MANY) if isinstance(x, Loop) else [x]
    return replace(lowered, kernel=replace(kernel, body=body))


def _rows(around: Loop, is_large: bool, are_many: bool) -> list[Statement]:
    """What reads rows early, instead of a loop over rows: where one of its loops computes long of what is there
    already; or where a row is one of a single array that is large, and the loop that reads it takes little time."""
    loops = list(filter(_is_plain, around.body))
    read: dict[Buffer, _Read] = {}
    for loop in loops:
        for load in unit_stride_input_loads(loop):
            read.setdefault(load.buffer, (loop, load))
    reading = [loop for loop, _ in read.values()]
    for k, loop in enumerate(loops):
        if has_expensive_ops(loop) and any(x in reading for x in loops[:k]):
            return _while_working(loop, around, loops[:k], list(read.values()), is_large, are_many)
    if is_large and len(read) == 1:
        ((loop, load),) = read.values()
        if _is_long(loop) and _moves(load.index, around, loop):
            return [_with(around, loop, _asking_for_rows(loop, around, [(loop, load)], 1))]
    return _in_groups(around) if is_large else [around]


def _in_groups(around: Loop) -> list[Statement]:
    """The loop over rows, which asks where rows of a single array are gone over group by group."""
    loops = [x for x in around.body if isinstance(x, Loop)]
    over = next((x for x in loops[0].body if isinstance(x, Loop)), None) if len(loops) == 1 else None
    if over is None or isinstance(over.start, int) or any(isinstance(x, Loop) for x in over.body):
        return [around]
    (groups,) = loops
    size = stride_of(groups.index, over.start, groups.body)
    read = [(over, load) for load in unit_stride_input_loads(over) if _moves(load.index, around, over)]
    if len(read) != 1 or not isinstance(groups.stop, int) or groups.stop < 2 or not size >= PREFETCHES_PER_TILE:
        return [around]
    asking = _asking_with(groups.index, groups.stop, int(size) // PREFETCHES_PER_TILE, around, read, 1)
    return [_with(around, groups, replace(groups, body=[asking, *groups.body]))]


def _with(around: Loop, loop: Loop, other: Loop) -> Loop:
    return replace(around, body=[other if x is loop else x for x in around.body])


def _is_plain(x: Statement) -> TypeGuard[Loop]:
    return (
        isinstance(x, Loop)
        and x.start == 0
        and isinstance(x.stop, int)
        and not (x.sequential or x.continue_while)
        and not any(isinstance(y, (Loop, Call, Multiply)) for y in x.body)
    )


def _is_long(loop: Loop) -> bool:
    return isinstance(loop.stop, int) and loop.stop >= 2 * _BLOCK


def _while_working(
    work: Loop, around: Loop, before: Sequence[Loop], read: Sequence[_Read], is_large: bool, are_many: bool
) -> list[Statement]:
    """The loop over rows, and what comes before it, where `work` takes long."""
    length = work.stop
    assert isinstance(length, int)
    read = [(over, load) for over, load in read if over.stop == length and _moves(load.index, around, over)]
    row = sum(length * element_type(load.buffer.type).dtype.itemsize for _, load in read)
    if not any(over in before for over, _ in read) or length < 2 * _BLOCK or 2 * row > _MOST:
        return [around]
    if are_many and len(before) == 1 and before[0].stop == length and _finds_extrema(before[0], around):
        first, both, around = _found_early(before[0], work, around)
        if is_large:
            around = _with(around, both, _asking_for_rows(both, around, read, 2))
        return [first, around]
    if is_large or length % _BLOCK == 0:
        around = _with(around, work, _asking_for_rows(work, around, read, 1))
    return [around]


def _finds_extrema(loop: Loop, around: Loop) -> bool:
    """Whether a loop does nothing else, with a row of arguments alone."""
    made = {x.result: x for x in loop.body if isinstance(x, Compute | Load)}
    if any(isinstance(x, Store) or (isinstance(x, Load) and x.buffer.written) for x in loop.body):
        return False
    for c in loop.carried:
        x = made.get(c.next) if isinstance(c.next, Value) else None
        if not isinstance(x, Compute) or x.op not in _EXTREMA or c.arg not in x.operands:
            return False
    known = {loop.index, around.index, *made, *(c.arg for c in loop.carried)}
    return all(isinstance(o, Literal | int) or o in known for x in loop.body for o in _operands(x))


def _operands(x: Statement) -> Sequence[Operand | Index]:
    return x.operands if isinstance(x, Compute) else [x.index] if isinstance(x, Load) else []


def _found_early(find: Loop, work: Loop, around: Loop) -> tuple[Loop, Loop, Loop]:
    """The loop that finds something in the first row; that which works on a row and finds it in the next one; and the
    loop over rows, of which the last one is its own next."""
    inside, name = IndexRewriter(), f"{find.index.name}_next"
    last = inside.compute(f"{name}_last", "subtract", around.stop, 1)
    following = inside.compute(f"{name}_following", "add", around.index, 1)
    following = inside.compute(f"{name}_row", "minimum", following, last)
    before = _copied(find, "first", Value(INDEX, f"{find.index.name}_first"), {around.index: operand_of(around.start)})
    next_one = _copied(find, "next", work.index, {around.index: following})
    both = replace(work, body=[*work.body, *next_one.body], carried=[*work.carried, *next_one.carried])
    carried = [
        LoopCarried(x.result, first.result, Value(x.result.type, f"{x.result.name}_last"), following.result)
        for x, first, following in zip(find.carried, before.carried, next_one.carried, strict=True)
    ]
    body = [both if x is work else x for x in around.body if x is not find]
    return before, both, replace(around, body=[*inside.statements, *body], carried=[*around.carried, *carried])


def _copied(loop: Loop, suffix: str, index: Value, known: dict[Value, Operand]) -> Loop:
    """A loop whose index and values have other names, and in which some values are known."""
    names: dict[Index | Operand | None, Operand] = {loop.index: index, **known}

    def renamed(x: Value) -> Value:
        names[x] = found = Value(x.type, f"{x.name}_{suffix}")
        return found

    carried = [replace(c, arg=renamed(c.arg), result=renamed(c.result)) for c in loop.carried]
    body: list[Statement] = []
    for x in loop.body:
        if isinstance(x, Compute):
            operands = tuple(names.get(o, o) for o in x.operands)
            body.append(replace(x, operands=operands, result=renamed(x.result)))
        elif isinstance(x, Load):
            body.append(replace(x, index=names.get(x.index, x.index), result=renamed(x.result)))
    carried = [replace(c, next=names[c.next]) for c in carried]
    return replace(loop, index=names[loop.index], body=body, carried=carried)


def _asking_for_rows(loop: Loop, around: Loop, read: Sequence[_Read], first: int) -> Loop:
    """The loop in blocks, with each of which parts of rows are asked for, the first of which is so far ahead."""
    length = loop.stop
    assert isinstance(length, int)
    block, blocks = Value(INDEX, f"{loop.index.name}_ask_block"), -(-length // _BLOCK)
    asking = _asking_with(block, blocks, -(-length // (blocks * PREFETCHES_PER_TILE)), around, read, first)
    return _in_blocks(loop, block, [asking])


def _asking_with(block: Value, blocks: int, size: int, around: Loop, read: Sequence[_Read], first: int) -> Loop:
    """What each of so many blocks of a row asks for: so many elements of each of the rows that follow."""
    name = f"{block.name}_ask"

    def lines(inside: IndexRewriter, ahead: Value, part: Value) -> Iterator[PrefetchStream]:
        row = inside.compute(f"{name}_before", "add", around.index, ahead)
        row = inside.compute(f"{name}_row", "add", row, first - 1)
        begin = inside.compute(f"{name}_begin", "multiply", part, blocks)
        begin = inside.compute(f"{name}_in_part", "add", begin, block)
        begin = inside.compute(f"{name}_from", "multiply", begin, size)
        end = inside.compute(f"{name}_to", "add", begin, size)
        for k, (over, load) in enumerate(read):
            ends = [{over.index: at, around.index: row} for at in (begin, end)]
            yield prefetch_stream_of(load, inside, [*around.body, *over.body], ends, f"{name}_{k}")

    return prefetch_loop(name, lines)


def _in_blocks(loop: Loop, block: Value, before: Sequence[Statement]) -> Loop:
    """The loop in blocks of iterations, each after some statements."""
    length, name = loop.stop, block.name
    assert isinstance(length, int)
    inside = IndexRewriter()
    first = inside.compute(f"{name}_first", "multiply", block, _BLOCK)
    count: Index = _BLOCK  # known to LLVM where it can be
    if length % _BLOCK:
        left = inside.compute(f"{name}_left", "subtract", length, first)
        count = inside.compute(f"{name}_count", "minimum", left, _BLOCK)
    carried: list[LoopCarried] = []
    passed: list[LoopCarried] = []
    for x in loop.carried:
        start, end = (Value(x.arg.type, f"{x.arg.name}_{which}") for which in ("before", "after"))
        carried.append(LoopCarried(start, x.init, x.result, end))
        passed.append(LoopCarried(x.arg, start, end, x.next))
    here = Value(INDEX, f"{name}_here")
    index = Compute(loop.index, "add", (first, here), WIDE)
    part = replace(loop, index=here, stop=count, body=[index, *loop.body], carried=passed)
    return Loop(block, 0, -(-length // _BLOCK), [*before, *inside.statements, part], carried)


def _moves(index: Index, around: Loop, over: Loop) -> bool:
    """Whether an index depends on that of the loop around."""
    made = {x.result: x for x in [*around.body, *over.body] if isinstance(x, Compute)}

    def depends(x: object) -> bool:
        return x is around.index or (isinstance(x, Value) and x in made and any(map(depends, made[x].operands)))

    return depends(index)
