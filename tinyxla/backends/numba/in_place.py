"""Kernels that write a result over an operand: for every element they read the old value before they write the new one,
and never afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinyxla.backends.numba.llvm_printer import has_rare_cases
from tinyxla.backends.numba.loops import (
    Buffer,
    Call,
    Compute,
    Index,
    Load,
    Loop,
    Multiply,
    Statement,
    Store,
    Value,
)
from tinyxla.backends.numba.lowering import LoweredKernel

_Place = tuple[list[Statement], int, Index]  # a block, a position in it, an index of a buffer


def in_place(lowered: LoweredKernel, source: int, target: int) -> LoweredKernel | None:
    """The kernel for which arguments `source`, which it reads, and `target`, which it writes, are one memory, that of
    `target`; None if it could read what it has overwritten."""
    kernel = lowered.kernel
    old, new = kernel.arguments[source], kernel.arguments[target]
    if old.type != new.type or not _is_safe(lowered, old, new):
        return None
    arguments = [x for x in kernel.arguments if x is not old]
    storages = [x for k, x in enumerate(lowered.arguments) if k != source]
    merged = replace(kernel, arguments=arguments, body=_reading(kernel.body, old, new))
    return replace(lowered, kernel=merged, arguments=storages)


def _is_safe(lowered: LoweredKernel, old: Buffer, new: Buffer) -> bool:
    """Whether all reads of `old`, and the one statement that writes `new`, are of the same element in one iteration,
    and that element belongs to no other iteration: its index depends on those of all loops around it. (The outermost
    may have one iteration only.)"""
    kernel = lowered.kernel
    reads: list[_Place] = []
    writes: list[_Place] = []
    for body, position, x in _statements(kernel.body):
        if isinstance(x, Multiply) and {old, new} & {x.result.buffer, x.left.buffer, x.right.buffer}:
            return False
        if isinstance(x, Call) and {old, new} & {buffer for buffer, _ in x.places}:
            return False
        if (isinstance(x, Load) and x.buffer is new) or (isinstance(x, Store) and x.buffer is old):
            return False
        if isinstance(x, Load) and x.buffer is old:
            reads.append((body, position, x.index))
        if isinstance(x, Store) and x.buffer is new:
            writes.append((body, position, x.index))
    if len(writes) != 1:
        return False
    body, position, index = writes[0]
    if not all(block is body and before < position and _equal(at, index) for block, before, at in reads):
        return False
    around = _loops_around(kernel.body, body) or []
    repeated = {x.index for x in around if lowered.extent != 1 or x.start is not kernel.first}
    if not isinstance(index, Value) or not repeated <= _depends(kernel.body, index):
        return False
    # Rare cases of an operation make a loop read its operands a second time.
    return not any(isinstance(x, Compute) and has_rare_cases(x) for _, _, x in _statements(kernel.body))


def _equal(one: Index, other: Index) -> bool:
    return one is other or (isinstance(one, int) and one == other)


def _statements(body: list[Statement]) -> Iterator[tuple[list[Statement], int, Statement]]:
    for position, x in enumerate(body):
        yield body, position, x
        if isinstance(x, Loop):
            yield from _statements(x.body)


def _loops_around(body: list[Statement], inner: list[Statement]) -> list[Loop] | None:
    """The loops around a block; None if it is not there."""
    if body is inner:
        return []
    for x in body:
        found = _loops_around(x.body, inner) if isinstance(x, Loop) else None
        if isinstance(x, Loop) and found is not None:
            return [x, *found]
    return None


def _depends(body: list[Statement], value: Value) -> set[Value]:
    """On which values an index depends. One that depends on data, or on what a loop carries, depends on nothing."""
    definitions: dict[Value, Sequence[object]] = {}
    for _, _, x in _statements(body):
        if isinstance(x, Compute):
            definitions[x.result] = x.operands
        elif isinstance(x, Loop):
            definitions[x.index] = (x.start,)
            for carried in x.carried:
                definitions[carried.inside] = definitions[carried.result] = (_UNKNOWN,)
        elif isinstance(x, Load):
            definitions[x.result] = (_UNKNOWN,)
    found: set[Value] = set()
    pending: list[object] = [value]
    while pending:
        x = pending.pop()
        if x is _UNKNOWN:
            return set()
        if isinstance(x, Value) and x not in found:
            found.add(x)
            pending += definitions.get(x, ())
    return found


_UNKNOWN = object()


def _reading(body: list[Statement], old: Buffer, new: Buffer) -> list[Statement]:
    """The statements, with `new` read where they read `old`."""
    return [
        replace(x, buffer=new)
        if isinstance(x, Load) and x.buffer is old
        else replace(x, body=_reading(x.body, old, new))
        if isinstance(x, Loop)
        else x
        for x in body
    ]
