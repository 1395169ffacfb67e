"""Kernels that write a result over an operand: for every element they read the old value before they write the new one,
and never afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tinyxla.loopir.ir.loop_ir import (
    Buffer,
    Call,
    Compute,
    Index,
    Kernel,
    Load,
    Loop,
    Multiply,
    Operand,
    Statement,
    Store,
    Value,
)
from tinyxla.loopir.ir.operations import has_slow_path
from tinyxla.loopir.lower.emit import LoweredKernel

_Place = tuple[tuple[int, ...], tuple[Loop, ...]]  # the positions of a statement and of the loops around it; these
_Form = dict[object, int]  # a sum: terms and how often each is in it; the constant is that of None


class InPlace:
    """Kernels of one program that write results over operands. Equal nests share a kernel, which is analysed once."""

    def __init__(self) -> None:
        self._dependences: dict[tuple[int, int], Dependences] = {}  # by the kernel, which they hold, and the extent
        self._kernels: dict[tuple[int, tuple[tuple[int, int], ...]], Kernel] = {}

    def dependences(self, lowered: LoweredKernel) -> Dependences:
        key = id(lowered.kernel), lowered.extent
        if key not in self._dependences:
            self._dependences[key] = Dependences(lowered)
        return self._dependences[key]

    def merged(self, lowered: LoweredKernel, pairs: Sequence[tuple[int, int]]) -> LoweredKernel:
        """The kernel for which each pair of arguments (source, target) is one memory, that of the target."""
        if not pairs:
            return lowered
        key = id(lowered.kernel), tuple(pairs)
        if key not in self._kernels:
            self._kernels[key] = _merged(lowered.kernel, pairs)
        sources = {source for source, _ in pairs}
        storages = [x for k, x in enumerate(lowered.arguments) if k not in sources]
        return replace(lowered, kernel=self._kernels[key], arguments=storages)


def _merged(kernel: Kernel, pairs: Sequence[tuple[int, int]]) -> Kernel:
    targets = {id(kernel.arguments[source]): kernel.arguments[target] for source, target in pairs}
    arguments = [x for x in kernel.arguments if id(x) not in targets]
    return replace(kernel, arguments=arguments, body=_reading(kernel.body, targets))


class Dependences:
    """Dependence tests on the loops of a kernel: which operands its results may be written over. The statements are
    gone through once, for all pairs of arguments."""

    def __init__(self, lowered: LoweredKernel) -> None:
        self._lowered = lowered
        self._loads: dict[int, list[tuple[_Place, Index]]] = {}  # of each buffer, by identity
        self._stores: dict[int, list[tuple[_Place, Index]]] = {}
        self._opaque: set[int] = set()  # buffers that routines read and write
        self._made: dict[Value, Statement] = {}  # what defines a value
        self._forms: dict[Value, _Form] = {}
        self._repeats: dict[int, bool] = {}  # of a loop, by identity
        for place, x in _statements(lowered.kernel.body):
            self._add(place, x)

    def _add(self, place: _Place, x: Statement) -> None:
        if isinstance(x, Multiply):
            self._opaque.update(map(id, (x.result.buffer, x.left.buffer, x.right.buffer)))
        elif isinstance(x, Call):
            self._opaque.update(id(buffer) for buffer, _ in x.arguments)
        elif isinstance(x, Store):
            self._stores.setdefault(id(x.buffer), []).append((place, x.index))
        elif isinstance(x, Loop):
            self._made[x.index] = x
            for carried in x.carried:
                self._made[carried.arg] = self._made[carried.result] = x
        else:
            self._made[x.result] = x
            if isinstance(x, Load):
                self._loads.setdefault(id(x.buffer), []).append((place, x.index))

    def is_target(self, number: int) -> bool:
        """Whether an argument is written by one statement, each element in an iteration of its own, and never read."""
        new = self._lowered.kernel.arguments[number]
        writes = self._stores.get(id(new), ())
        if id(new) in self._opaque or id(new) in self._loads or len(writes) != 1:
            return False
        (_, loops), index = writes[0]
        first = self._lowered.kernel.first
        repeated = {x.index for x in loops if self._lowered.extent != 1 or x.start is not first}
        return isinstance(index, Value) and repeated <= _depends(self._made, index)

    def is_source(self, number: int) -> bool:
        """Whether an argument is never written."""
        old = self._lowered.kernel.arguments[number]
        return id(old) not in self._opaque and id(old) not in self._stores

    def is_safe(self, source: int, target: int) -> bool:
        """Whether a `target` may be written over a `source`: all reads of that come before the one write, of elements
        that are written in the same iteration of the loops around both, and in no other."""
        old, new = self._lowered.kernel.arguments[source], self._lowered.kernel.arguments[target]
        if old.type != new.type:
            return False
        ((at, loops), index) = self._stores[id(new)][0]
        repeats = bool(loops) and self._has_slow_path(loops[-1])
        written = self._form(index)
        return all(
            before <= at and self._reads_what_is_written(around, place, loops, written, repeats)
            for (before, around), place in self._loads.get(id(old), ())
        )

    def _has_slow_path(self, loop: Loop) -> bool:
        """Whether a loop reads its operands a second time, for rare cases of an operation."""
        if id(loop) not in self._repeats:
            self._repeats[id(loop)] = any(isinstance(x, Compute) and has_slow_path(x) for x in loop.body)
        return self._repeats[id(loop)]

    def _reads_what_is_written(
        self, around: Sequence[Loop], place: Index, loops: Sequence[Loop], written: _Form, repeats: bool
    ) -> bool:
        inside = [x for x in loops if not any(x is y for y in around)]
        span = _taken(written, inside)
        read = _taken(self._form(place), [x for x in around if not any(x is y for y in loops)])
        if (repeats and not inside) or span is None or read is None or span[0] != read[0] or len(inside) > 1:
            return False
        return span[1].start <= read[1].start <= read[1].stop <= span[1].stop and span[1].step == 1

    def _form(self, x: Operand | int) -> _Form:
        if not isinstance(x, Value):
            return _form(self._made, x)
        if x not in self._forms:
            self._forms[x] = _form(self._made, x)
        return self._forms[x]


def _statements(body: list[Statement], place: _Place = ((), ())) -> Iterator[tuple[_Place, Statement]]:
    for position, x in enumerate(body):
        path = (*place[0], position)
        yield (path, place[1]), x
        if isinstance(x, Loop):
            yield from _statements(x.body, (path, (*place[1], x)))


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


def _reading(body: list[Statement], merged: Mapping[int, Buffer]) -> list[Statement]:
    """The statements, with results read where they read what these are written over."""
    return [
        replace(x, buffer=merged[id(x.buffer)])
        if isinstance(x, Load) and id(x.buffer) in merged
        else replace(x, body=_reading(x.body, merged))
        if isinstance(x, Loop)
        else x
        for x in body
    ]
