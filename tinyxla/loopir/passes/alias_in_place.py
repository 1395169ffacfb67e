"""In-place aliasing: kernels that write a result over an operand. Legal if every element of the operand is read no
later than in the iteration that writes the result's element at its offset, by dependence tests on linear index
forms.
"""

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
    Prefetch,
    RoutineStatement,
    Statement,
    Store,
    Value,
    View,
    lanes_of,
)
from tinyxla.loopir.ir.operations import has_slow_path
from tinyxla.loopir.lower.emit import LoweredKernel

_Position = tuple[tuple[int, ...], tuple[Loop, ...]]  # the path of statement numbers, and the loops around
_LinearForm = dict[object, int]  # coefficients of terms; the constant term is None


class AliasedKernels:
    """The aliased kernels of one program. Equal nests share a kernel, which is analysed once."""

    def __init__(self) -> None:
        self._dependences: dict[tuple[int, int], Dependences] = {}  # by kernel and extent; hold the kernel
        self._kernels: dict[tuple[int, tuple[tuple[int, int], ...]], Kernel] = {}

    def dependences(self, lowered: LoweredKernel) -> Dependences:
        key = id(lowered.kernel), lowered.extent
        if key not in self._dependences:
            self._dependences[key] = Dependences(lowered)
        return self._dependences[key]

    def merge_buffers(self, lowered: LoweredKernel, pairs: Sequence[tuple[int, int]]) -> LoweredKernel:
        """The kernel in which each pair of arguments (source, target) is one buffer, the target."""
        if not pairs:
            return lowered
        key = id(lowered.kernel), tuple(pairs)
        if key not in self._kernels:
            self._kernels[key] = _merge_buffers(lowered.kernel, pairs)
        sources = {source for source, _ in pairs}
        arguments = [x for k, x in enumerate(lowered.arguments) if k not in sources]
        return replace(lowered, kernel=self._kernels[key], arguments=arguments)


def _merge_buffers(kernel: Kernel, pairs: Sequence[tuple[int, int]]) -> Kernel:
    targets = {id(kernel.arguments[source]): kernel.arguments[target] for source, target in pairs}
    arguments = [x for x in kernel.arguments if id(x) not in targets]
    return replace(kernel, arguments=arguments, body=_redirect_loads(kernel.body, targets))


class Dependences:
    """Dependence tests on the loops of a kernel: which operands its results may overwrite. One traversal of the
    statements serves all pairs of arguments."""

    def __init__(self, lowered: LoweredKernel) -> None:
        self._lowered = lowered
        self._loads: dict[int, list[tuple[_Position, Index]]] = {}  # by the buffer's identity
        self._stores: dict[int, list[tuple[_Position, Index]]] = {}
        self._opaque: set[int] = set()  # buffers that routines, vectors and views read and write
        self._definitions: dict[Value, Statement] = {}
        self._forms: dict[Value, _LinearForm] = {}
        self._slow_path_loops: dict[int, bool] = {}  # by the loop's identity
        for position, x in _statements(lowered.kernel.body):
            self._add(position, x)

    def _add(self, position: _Position, x: Statement) -> None:
        if isinstance(x, Multiply):
            self._opaque.update(map(id, (x.result.buffer, x.left.buffer, x.right.buffer)))
        elif isinstance(x, Call):
            self._opaque.update(id(buffer) for buffer, _ in x.arguments)
        elif isinstance(x, View):
            self._opaque.update(map(id, x.buffer.memories))
        elif isinstance(x, Store) and lanes_of(x.value) > 1:
            self._opaque.add(id(x.buffer))
        elif isinstance(x, Store):
            self._stores.setdefault(id(x.buffer), []).append((position, x.index))
        elif isinstance(x, Loop):
            self._definitions[x.index] = x
            for carried in x.carried:
                self._definitions[carried.arg] = self._definitions[carried.result] = x
        elif not isinstance(x, Prefetch):
            assert not isinstance(x, RoutineStatement), "routines have it alone"
            self._definitions[x.result] = x
            if isinstance(x, Load) and x.result.lanes > 1:
                self._opaque.add(id(x.buffer))
            elif isinstance(x, Load):
                self._loads.setdefault(id(x.buffer), []).append((position, x.index))

    def is_target(self, argument: int) -> bool:
        """True if an argument is written by one statement, each element in its own iteration, and is never read."""
        target = self._lowered.kernel.arguments[argument]
        stores = self._stores.get(id(target), ())
        if id(target) in self._opaque or id(target) in self._loads or len(stores) != 1:
            return False
        (_, loops), index = stores[0]
        first = self._lowered.kernel.first
        loop_indices = {x.index for x in loops if self._lowered.extent != 1 or x.start is not first}
        return isinstance(index, Value) and loop_indices <= _dependencies(self._definitions, index)

    def is_source(self, argument: int) -> bool:
        """True if an argument is never written."""
        source = self._lowered.kernel.arguments[argument]
        return id(source) not in self._opaque and id(source) not in self._stores

    def is_safe(self, source: int, target: int) -> bool:
        """True if `target` may overwrite `source`: all loads of `source` precede the one store to `target`, and load
        only elements that are stored in the same iteration of the loops around both."""
        source_buffer, target_buffer = self._lowered.kernel.arguments[source], self._lowered.kernel.arguments[target]
        if source_buffer.type != target_buffer.type:
            return False
        ((store_path, store_loops), index) = self._stores[id(target_buffer)][0]
        repeats = bool(store_loops) and self._has_slow_path(store_loops[-1])
        store_index = self._linear_form(index)
        return all(
            load_path <= store_path
            and self._reads_same_elements(load_loops, load_index, store_loops, store_index, repeats)
            for (load_path, load_loops), load_index in self._loads.get(id(source_buffer), ())
        )

    def _has_slow_path(self, loop: Loop) -> bool:
        """True if a loop may run again for the slow path of an operation, and so reads its operands a second time."""
        if id(loop) not in self._slow_path_loops:
            self._slow_path_loops[id(loop)] = any(isinstance(x, Compute) and has_slow_path(x) for x in loop.body)
        return self._slow_path_loops[id(loop)]

    def _reads_same_elements(
        self,
        load_loops: Sequence[Loop],
        load_index: Index,
        store_loops: Sequence[Loop],
        store_form: _LinearForm,
        repeats: bool,
    ) -> bool:
        inner_loops = [x for x in store_loops if not any(x is y for y in load_loops)]
        written = _footprint(store_form, inner_loops)
        read_loops = [x for x in load_loops if not any(x is y for y in store_loops)]
        read = _footprint(self._linear_form(load_index), read_loops)
        if (repeats and not inner_loops) or len(inner_loops) > 1:
            return False
        if written is None or read is None or written[0] != read[0]:
            return False
        return written[1].start <= read[1].start <= read[1].stop <= written[1].stop and written[1].step == 1

    def _linear_form(self, x: Operand | int) -> _LinearForm:
        if not isinstance(x, Value):
            return _linear_form(self._definitions, x)
        if x not in self._forms:
            self._forms[x] = _linear_form(self._definitions, x)
        return self._forms[x]


def _statements(body: list[Statement], position: _Position = ((), ())) -> Iterator[tuple[_Position, Statement]]:
    for k, x in enumerate(body):
        path = (*position[0], k)
        yield (path, position[1]), x
        if isinstance(x, Loop):
            yield from _statements(x.body, (path, (*position[1], x)))


def _dependencies(definitions: Mapping[Value, Statement], value: Value) -> set[Value]:
    """The values that an index depends on; empty if it depends on loaded or loop-carried values."""
    dependencies: set[Value] = set()
    pending: list[Operand | int] = [value]
    while pending:
        x = pending.pop()
        if isinstance(x, Value) and x not in dependencies:
            dependencies.add(x)
            definition = definitions.get(x)
            if isinstance(definition, Loop) and definition.index is x:
                pending.append(definition.start)
            elif isinstance(definition, Compute):
                pending += definition.operands
            elif definition is not None:
                return set()
    return dependencies


def _linear_form(definitions: Mapping[Value, Statement], x: Operand | int) -> _LinearForm:
    """An index as a linear form."""
    if not isinstance(x, Value):
        constant = x if isinstance(x, int) else x.value
        return {None: constant} if constant else {}
    definition = definitions.get(x)
    if not isinstance(definition, Compute):
        return {x: 1}
    forms = [_linear_form(definitions, operand) for operand in definition.operands]
    if definition.op in ("add", "subtract"):
        x_form, y_form = forms
        sign = 1 if definition.op == "add" else -1
        total = {term: x_form.get(term, 0) + sign * y_form.get(term, 0) for term in {**x_form, **y_form}}
        return {term: factor for term, factor in total.items() if factor}
    if definition.op == "multiply":
        for scale, form in (forms, forms[::-1]):
            if scale.keys() <= {None}:
                return {term: factor * scale.get(None, 0) for term, factor in form.items() if scale}
    return {(definition.op, definition.attributes, *(frozenset(form.items()) for form in forms)): 1}


def _footprint(form: _LinearForm, loops: Sequence[Loop]) -> tuple[_LinearForm, range] | None:
    """The part of a linear form that is invariant in the loops, and the range of the remainder; None if the range is
    unknown. The step of the range is the distance of neighbours."""
    minimum, maximum, step = 0, 0, 1
    remainder = dict(form)
    for loop in loops:
        factor = remainder.pop(loop.index, 0)
        if not isinstance(loop.start, int) or not isinstance(loop.stop, int):
            return None
        ends = loop.start * factor, (loop.stop - 1) * factor
        minimum, maximum, step = minimum + min(ends), maximum + max(ends), max(step, abs(factor))
    return remainder, range(minimum, maximum + 1, step)


def _redirect_loads(body: list[Statement], targets: Mapping[int, Buffer]) -> list[Statement]:
    """The statements with loads from aliased operands replaced by loads from the targets."""
    return [
        replace(x, buffer=targets[id(x.buffer)])
        if isinstance(x, Load) and id(x.buffer) in targets
        else replace(x, body=_redirect_loads(x.body, targets))
        if isinstance(x, Loop)
        else x
        for x in body
    ]
