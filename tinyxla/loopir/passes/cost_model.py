"""Static cost model of kernels: bytes read and written, operations and transcendentals of one execution, counted on the
loop IR. `tinyxla.compiler.report` states the rules.

For each value the model tracks the loops in which the value changes, and samples of the values of indices. A sample
assigns each loop an index, evenly spread over the loop's range there, so that loops with bounds that depend on outer
indices count with their mean trip count. Equal indices of loops over equal ranges, such as the stages of a row, count
as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.compiler.costs import L2_BYTES
from tinyxla.compiler.step_costs import Cost
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    Buffer as Memory,
    Call,
    Compute,
    Index,
    Literal,
    Load,
    Loop,
    Matrix,
    Multiply,
    Operand,
    Statement,
    Store,
    Value,
)
from tinyxla.loopir.ir.prefetch import PREFETCH_READ, PREFETCH_WRITE
from tinyxla.loopir.lower.emit import UNBOUNDED, LoweredKernel, Storage, Temporary
from tinyxla.loopir.passes.nontemporal_stores import STREAM_ROUTINE
from tinyxla.ops.cost import TRANSCENDENTAL, operations_of

_COPY_KERNELS = ("panels", "pairs", "pad", "shuffle")  # kernels that only copy, such as packing
_WRITE_ONLY_KERNELS = (*_COPY_KERNELS, "product", "convolution")  # their routines do not read what they write
_FREE_ROUTINES = ("transpose", "wait", "announce", STREAM_ROUTINE)  # routines without arithmetic
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class _SampledValue:
    """A value: the loops in which it changes, a key that equal values share, and its samples."""

    loops: frozenset[int]
    key: int
    samples: Any = None  # an array or a number; None if it depends on data


@dataclass(frozen=True, slots=True)
class _Access:
    """Elements of a buffer that one statement accesses in one pass: `count` elements, identified by `key`."""

    buffer: str
    key: Any
    one_pass: Any
    count: float


def kernel_cost(lowered: LoweredKernel) -> Cost:
    """The cost of one execution of a kernel."""
    counter = _CostCounter(lowered)
    kernel = lowered.kernel
    counter.block(kernel.body, ())
    sizes = {b.name: _elements(x) for b, x in zip(kernel.arguments, lowered.arguments, strict=True)}
    widths = {
        b.name: _bytes(x) // max(1, _elements(x)) for b, x in zip(kernel.arguments, lowered.arguments, strict=True)
    }
    loads = counter.loads
    cached_bytes_used = sum(x.count * widths.get(x.buffer, 0) for x in _distinct([*loads, *counter.stores]))
    per_pass = cached_bytes_used > L2_BYTES * max(1, lowered.extent)
    return Cost(
        sum(_footprint(name, size, loads, per_pass) * widths[name] for name, size in sizes.items()),
        sum(_footprint(name, size, counter.stores, False) * widths[name] for name, size in sizes.items()),
        round(counter.operations),
        round(counter.transcendentals),
    )


def _elements(x: Storage) -> int:
    return (x.shape if isinstance(x, Temporary) else x.array_shape).size


def _bytes(x: Storage) -> int:
    shape = x.shape if isinstance(x, Temporary) else x.array_shape
    return shape.size * shape.dtype.itemsize


def _distinct(accesses: Sequence[_Access]) -> list[_Access]:
    return list({(x.buffer, x.key): x for x in accesses}.values())


def _footprint(name: str, size: int, accesses: Sequence[_Access], per_pass: bool) -> int:
    """The number of elements of a buffer that are transferred from or to memory."""
    own = [x for x in accesses if x.buffer == name]
    passes = {x.one_pass for x in own} if per_pass else {None}
    return sum(
        min(size, round(sum(x.count for x in _distinct([x for x in own if not per_pass or x.one_pass == pass_]))))
        for pass_ in passes
    )


class _CostCounter:
    def __init__(self, lowered: LoweredKernel) -> None:
        extent = max(1, lowered.extent)
        samples = extent * max(1, 256 // extent) if extent <= 1024 else 1024
        self._fractions = (np.arange(samples) + 0.5) / samples
        self._keys: dict[Any, int] = {}
        self._trip_counts: dict[int, Any] = {}  # of each loop, sampled
        self._iteration_counts: dict[frozenset[int], float] = {}
        kernel = lowered.kernel
        self._values: dict[str, _SampledValue] = {
            kernel.first.name: _SampledValue(frozenset(), self._key(("literal", 0)), 0),
            kernel.last.name: _SampledValue(frozenset(), self._key(("literal", extent)), extent),
        }
        for value, word in zip(kernel.parameters, lowered.parameters, strict=True):
            self._values[value.name] = _SampledValue(frozenset(), self._key(("literal", repr(word))), word)
        self._name = kernel.name
        self._roots = list(lowered.roots)
        self._sizes = {b.name: _elements(x) for b, x in zip(kernel.arguments, lowered.arguments, strict=True)}
        self.loads: list[_Access] = []
        self.stores: list[_Access] = []
        self.operations = 0.0
        self.transcendentals = 0.0

    def _key(self, key: Any) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def _iterations(self, loops: frozenset[int]) -> float:
        """The number of distinct index combinations of some loops."""
        if loops not in self._iteration_counts:
            self._iteration_counts[loops] = float(np.mean(self._total_iterations(tuple(loops))))
        return self._iteration_counts[loops]

    def _sampled(self, x: Operand | Index) -> _SampledValue:
        if isinstance(x, Value):
            return self._values[x.name]
        value = x.value if isinstance(x, Literal) else x
        return _SampledValue(
            frozenset(), self._key(("literal", repr(value))), value if type(value) in (int, bool) else None
        )

    def block(self, statements: Sequence[Statement], loops: tuple[int, ...]) -> None:
        for statement in statements:
            if isinstance(statement, Compute):
                self._compute(statement)
            elif isinstance(statement, Load):
                self._load(statement, loops)
            elif isinstance(statement, Store):
                self.stores.append(self._access(statement.buffer, self._sampled(statement.index), loops))
            elif isinstance(statement, Loop):
                self._loop(statement, loops)
            elif isinstance(statement, Multiply):
                self._multiply(statement, loops)
            elif isinstance(statement, Call):
                self._call(statement)

    def _access(self, buffer: Memory, index: _SampledValue, outer: tuple[int, ...]) -> _Access:
        innermost = max(index.loops, default=None) if outer else None
        return _Access(buffer.name, index.key, innermost, self._iterations(index.loops))

    def _compute(self, x: Compute) -> None:
        operands = [self._sampled(o) for o in x.operands]
        loops = frozenset[int]().union(*(o.loops for o in operands))
        key = self._key((x.op, x.result.type, x.attributes, *(o.key for o in operands)))
        operand_samples = [o.samples for o in operands]
        is_index = x.op in _FOLD and x.result.type in (INDEX, "pred")
        samples = _evaluate_samples(x.op, dict(x.attributes), operand_samples) if is_index else None
        self._values[x.result.name] = _SampledValue(loops, key, samples)
        if x.op in TRANSCENDENTAL:
            self.transcendentals += self._iterations(loops)
        elif not dict(x.attributes).get("index") and x.op != "convert":
            self.operations += self._iterations(loops)

    def _load(self, x: Load, outer: tuple[int, ...]) -> None:
        index = self._sampled(x.index)
        loops = frozenset(outer) if x.buffer.written else index.loops
        self._values[x.result.name] = _SampledValue(loops, self._key(("load", x.buffer.name, index.key, loops)))
        access = self._access(x.buffer, index, outer)
        if not any(access.buffer == store.buffer and access.key == store.key for store in self.stores):
            self.loads.append(access)  # own stores are still cached

    def _loop(self, x: Loop, outer: tuple[int, ...]) -> None:
        start, stop = self._sampled(x.start), self._sampled(x.stop)
        loop = len(self._trip_counts)
        trips: Any = 1
        index: Any = None
        if start.samples is not None and stop.samples is not None:
            trips = np.maximum(np.asarray(stop.samples) - start.samples, 0)
            trips = np.where(trips >= UNBOUNDED // 2, 1, trips)
            fractions = self._fractions if not outer else (self._fractions + loop * _GOLDEN) * 997 * _GOLDEN % 1
            index = start.samples + np.floor(fractions * trips).astype(np.int64)
        self._trip_counts[loop] = trips
        inner = (*outer, loop)
        key = self._key(("index", len(outer), start.key, stop.key))
        self._values[x.index.name] = _SampledValue(start.loops | {loop}, key, index)
        for c in x.carried:
            self._values[c.arg.name] = _SampledValue(frozenset(inner), self._key(("carried", c.arg.name)))
        self.block(x.body, inner)
        for c in x.carried:
            self._values[c.result.name] = _SampledValue(frozenset(outer), self._key(("result", c.result.name)))

    def _multiply(self, x: Multiply, outer: tuple[int, ...]) -> None:
        m, n, k = (self._size(size) for size in x.sizes)
        self.operations += 2 * float(np.mean(m * n * k * self._total_iterations(outer)))
        for matrix, size, accesses in (
            (x.left, m * k, self.loads),
            (x.right, k * n, self.loads),
            (x.result, m * n, self.stores),
        ):
            accesses.append(self._matrix(matrix, size))

    def _total_iterations(self, loops: tuple[int, ...]) -> Any:
        product: Any = 1.0
        for loop in loops:
            product = product * self._trip_counts[loop]
        return product

    def _size(self, size: Index) -> Any:
        samples = self._sampled(size).samples
        return np.asarray(1.0 if samples is None else samples, np.float64)

    def _matrix(self, x: Matrix, size: Any) -> _Access:
        start = self._sampled(x.start)
        count = float(np.mean(size * self._total_iterations(tuple(start.loops))))
        return _Access(x.buffer.name, ("matrix", start.key, x.pitch, x.transposed), None, count)

    def _call(self, x: Call) -> None:
        """The cost of a routine: it accesses its buffers once, and does the arithmetic of the graph's operation."""
        if x.routine in (PREFETCH_READ, PREFETCH_WRITE):
            return
        is_stream = x.routine.startswith(STREAM_ROUTINE)
        for buffer, _ in x.arguments[: 3 if is_stream else None]:
            size = self._sizes.get(buffer.name, 0)
            if not buffer.written or not (self._name in _WRITE_ONLY_KERNELS or is_stream):
                self.loads.append(_Access(buffer.name, "read", None, size))
            if buffer.written:
                self.stores.append(_Access(buffer.name, "written", None, size))
        while self._roots and self._name not in _COPY_KERNELS and not x.routine.startswith(_FREE_ROUTINES):
            self.operations += operations_of(self._roots.pop())[0]


_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _evaluate_samples(op: str, attributes: dict[str, Any], values: Sequence[Any]) -> Any:
    """The samples of an operation on indices; None if it depends on data. A select by data takes the larger operand."""
    if op == "select" and values[0] is None:
        return None if values[1] is None or values[2] is None else np.maximum(values[1], values[2])
    if any(x is None for x in values):
        return None
    if op in ("divide", "remainder"):
        values = [values[0], np.maximum(values[1], 1)]
    if op == "compare":
        return _COMPARE[attributes["direction"]](*values)
    return _FOLD[op](*values)


_FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.floor_divide,
    "remainder": np.remainder,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.logical_not,
    "select": np.where,
    "compare": np.equal,
    "convert": lambda x: x,
}
