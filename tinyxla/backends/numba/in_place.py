"""Kernels that write a result over an operand: for every element they read the old value before they write the new one,
and never afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    Operand,
    Statement,
    Store,
    Value,
)
from tinyxla.backends.numba.lowering import LoweredKernel

_Place = tuple[tuple[int, ...], tuple[Loop, ...]]  # the positions of a statement and of the loops around it; these
_Form = dict[object, int]  # a sum: terms and how often each is in it; the constant is that of None


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
    """Whether one statement writes `new`, and all reads of `old` come before it, of elements that are written in the
    same iteration of the loops around both, and in no other."""
    reads: list[tuple[_Place, Index]] = []
    writes: list[tuple[_Place, Index]] = []
    for place, x in _statements(lowered.kernel.body):
        if isinstance(x, Multiply) and {old, new} & {x.result.buffer, x.left.buffer, x.right.buffer}:
            return False
        if isinstance(x, Call) and {old, new} & {buffer for buffer, _ in x.places}:
            return False
        if (isinstance(x, Load) and x.buffer is new) or (isinstance(x, Store) and x.buffer is old):
            return False
        if isinstance(x, Load) and x.buffer is old:
            reads.append((place, x.index))
        if isinstance(x, Store) and x.buffer is new:
            writes.append((place, x.index))
    if len(writes) != 1:
        return False
    (at, loops), index = writes[0]
    made = _definitions(lowered.kernel.body)
    repeated = {x.index for x in loops if lowered.extent != 1 or x.start is not lowered.kernel.first}
    if not isinstance(index, Value) or not repeated <= _depends(made, index):
        return False
    # Rare cases of an operation make a loop read its operands a second time.
    repeats = loops and any(isinstance(x, Compute) and has_rare_cases(x) for x in loops[-1].body)
    written = _form(made, index)
    for (before, around), place in reads:
        inside = [x for x in loops if not any(x is y for y in around)]
        span = _taken(written, inside)
        read = _taken(_form(made, place), [x for x in around if not any(x is y for y in loops)])
        if (
            before > at
            or (repeats and not inside)
            or span is None
            or read is None
            or span[0] != read[0]
            or len(inside) > 1
        ):
            return False
        if not span[1].start <= read[1].start <= read[1].stop <= span[1].stop or span[1].step != 1:
            return False
    return True


def _statements(body: list[Statement], place: _Place = ((), ())) -> Iterator[tuple[_Place, Statement]]:
    for position, x in enumerate(body):
        path = (*place[0], position)
        yield (path, place[1]), x
        if isinstance(x, Loop):
            yield from _statements(x.body, (path, (*place[1], x)))


def _definitions(body: list[Statement]) -> dict[Value, Statement]:
    found: dict[Value, Statement] = {}
    for _, x in _statements(body):
        if isinstance(x, Compute | Load):
            found[x.result] = x
        elif isinstance(x, Loop):
            found[x.index] = x
            for carried in x.carried:
                found[carried.inside] = found[carried.result] = x
    return found


def _depends(made: Mapping[Value, Statement], value: Value) -> set[Value]:
    """On which values an index depends. One that depends on data, or on what a loop carries, depends on nothing."""
    found: set[Value] = set()
    pending: list[Operand | int] = [value]
    while pending:
        x = pending.pop()
        if isinstance(x, Value) and x not in found:
            found.add(x)
            by = made.get(x)
            if isinstance(by, Loop) and by.index is x:
                pending.append(by.start)
            elif isinstance(by, Compute):
                pending += by.operands
            elif by is not None:
                return set()
    return found


def _form(made: Mapping[Value, Statement], x: Operand | int) -> _Form:
    """An index as a sum."""
    if not isinstance(x, Value):
        number = x if isinstance(x, int) else x.value
        return {None: number} if number else {}
    by = made.get(x)
    if not isinstance(by, Compute):
        return {x: 1}
    forms = [_form(made, operand) for operand in by.operands]
    if by.op in ("add", "subtract"):
        one, other = forms
        sign = 1 if by.op == "add" else -1
        total = {term: one.get(term, 0) + sign * other.get(term, 0) for term in {**one, **other}}
        return {term: times for term, times in total.items() if times}
    if by.op == "multiply":
        for factor, form in (forms, forms[::-1]):
            if factor.keys() <= {None}:
                return {term: times * factor.get(None, 0) for term, times in form.items() if factor}
    return {(by.op, by.attributes, *(frozenset(form.items()) for form in forms)): 1}


def _taken(form: _Form, loops: Sequence[Loop]) -> tuple[_Form, range] | None:
    """What of a sum is the same in all iterations of these loops, and between what the rest is; None if that is not
    known. The step of the range is the distance between neighbours."""
    first, last, step = 0, 0, 1
    rest = dict(form)
    for loop in loops:
        times = rest.pop(loop.index, 0)
        if not isinstance(loop.start, int) or not isinstance(loop.stop, int):
            return None
        ends = loop.start * times, (loop.stop - 1) * times
        first, last, step = first + min(ends), last + max(ends), max(step, abs(times))
    return rest, range(first, last + 1, step)


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
