"""What a kernel costs, counted on its loop IR. `tinyxla.compiler.report` says by which rules.

Each value is followed through the loops: the loops in which it changes, and, where it is an index that does not depend
on data, its value at a sample of points. A point has an index for each loop, evenly spread over the loop's range there,
so that loops whose ends depend on the indices around them count with their mean length. Equal indices of loops over
equal ranges, such as the passes over a row, count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.compiler.report import NEAR, Cost
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
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.loopir.passes.nontemporal_stores import ROUTINE
from tinyxla.ops.cost import TRANSCENDENTAL, operations_of

_POINTS = 1024
_COPIES = ("panels", "pairs", "pad", "shuffle")  # kernels that only copy, in the order in which another one reads
_FILLED = (*_COPIES, "product", "convolution")  # kernels whose routines write without reading what was there
_NO_ARITHMETIC = ("transpose", "wait", "announce", ROUTINE)  # routines
_UNBOUNDED = 1 << 60  # a loop that ends when its body says so
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class _Known:
    """A value: the loops in which it changes, a number that equal ones share, and what it is at the points."""

    loops: frozenset[int]
    key: int
    at: Any = None  # an array over the points, or a number; None if it depends on data


@dataclass(frozen=True, slots=True)
class _Access:
    """Elements of a buffer that one statement touches, in one pass: `count` of them, `key` tells which."""

    buffer: str
    key: Any
    one_pass: Any
    count: float


def kernel_cost(lowered: LoweredKernel) -> Cost:
    """What one execution costs."""
    counting = _Counting(lowered)
    kernel = lowered.kernel
    counting.block(kernel.body, ())
    sizes = {b.name: _elements(x) for b, x in zip(kernel.arguments, lowered.arguments, strict=True)}
    widths = {
        b.name: _bytes(x) // max(1, _elements(x)) for b, x in zip(kernel.arguments, lowered.arguments, strict=True)
    }
    loads = counting.loads
    near = sum(x.count * widths.get(x.buffer, 0) for x in _distinct([*loads, *counting.stores]))
    by_pass = near > NEAR * max(1, lowered.extent)
    return Cost(
        sum(_touched(name, size, loads, by_pass) * widths[name] for name, size in sizes.items()),
        sum(_touched(name, size, counting.stores, False) * widths[name] for name, size in sizes.items()),
        round(counting.operations),
        round(counting.transcendentals),
    )


def _elements(x: Storage) -> int:
    return (x.shape if isinstance(x, Temporary) else x.array_shape).size


def _bytes(x: Storage) -> int:
    shape = x.shape if isinstance(x, Temporary) else x.array_shape
    return shape.size * shape.dtype.itemsize


def _distinct(accesses: Sequence[_Access]) -> list[_Access]:
    return list({(x.buffer, x.key): x for x in accesses}.values())


def _touched(name: str, size: int, accesses: Sequence[_Access], by_pass: bool) -> int:
    """How many elements of a buffer come from memory, or go there."""
    mine = [x for x in accesses if x.buffer == name]
    passes = {x.one_pass for x in mine} if by_pass else {None}
    return sum(
        min(size, round(sum(x.count for x in _distinct([x for x in mine if not by_pass or x.one_pass == p]))))
        for p in passes
    )


class _Counting:
    def __init__(self, lowered: LoweredKernel) -> None:
        extent = max(1, lowered.extent)
        count = extent * max(1, 256 // extent) if extent <= _POINTS else _POINTS
        self._fractions = (np.arange(count) + 0.5) / count
        self._numbers: dict[Any, int] = {}
        self._trips: dict[int, Any] = {}  # of each loop, at the points
        self._counted: dict[frozenset[int], float] = {}
        kernel = lowered.kernel
        self._values: dict[str, _Known] = {
            kernel.first.name: _Known(frozenset(), self._number(("literal", 0)), 0),
            kernel.last.name: _Known(frozenset(), self._number(("literal", extent)), extent),
        }
        for value, word in zip(kernel.parameters, lowered.parameters, strict=True):
            self._values[value.name] = _Known(frozenset(), self._number(("literal", repr(word))), word)
        self._name = kernel.name
        self._roots = list(lowered.roots)
        self._whole = {b.name: _elements(x) for b, x in zip(kernel.arguments, lowered.arguments, strict=True)}
        self.loads: list[_Access] = []
        self.stores: list[_Access] = []
        self.operations = 0.0
        self.transcendentals = 0.0

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _times(self, loops: frozenset[int]) -> float:
        """How often the indices of these loops differ."""
        if loops not in self._counted:
            self._counted[loops] = float(np.mean(self._product(tuple(loops))))
        return self._counted[loops]

    def _known(self, x: Operand | Index) -> _Known:
        if isinstance(x, Value):
            return self._values[x.name]
        value = x.value if isinstance(x, Literal) else x
        return _Known(
            frozenset(), self._number(("literal", repr(value))), value if type(value) in (int, bool) else None
        )

    def block(self, statements: Sequence[Statement], around: tuple[int, ...]) -> None:
        for statement in statements:
            if isinstance(statement, Compute):
                self._compute(statement)
            elif isinstance(statement, Load):
                self._load(statement, around)
            elif isinstance(statement, Store):
                self.stores.append(self._access(statement.buffer, self._known(statement.index), around))
            elif isinstance(statement, Loop):
                self._loop(statement, around)
            elif isinstance(statement, Multiply):
                self._multiply(statement, around)
            else:
                self._call(statement)

    def _access(self, buffer: Memory, index: _Known, around: tuple[int, ...]) -> _Access:
        inner = max(index.loops, default=None) if around else None
        return _Access(buffer.name, index.key, inner, self._times(index.loops))

    def _compute(self, x: Compute) -> None:
        operands = [self._known(o) for o in x.operands]
        loops = frozenset[int]().union(*(o.loops for o in operands))
        key = self._number((x.op, x.result.type, x.attributes, *(o.key for o in operands)))
        values = [o.at for o in operands]
        is_index = x.op in _FOLD and x.result.type in (INDEX, "pred")
        at = _folded(x.op, dict(x.attributes), values) if is_index else None
        self._values[x.result.name] = _Known(loops, key, at)
        if x.op in TRANSCENDENTAL:
            self.transcendentals += self._times(loops)
        elif not dict(x.attributes).get("index") and x.op != "convert":
            self.operations += self._times(loops)

    def _load(self, x: Load, around: tuple[int, ...]) -> None:
        index = self._known(x.index)
        loops = frozenset(around) if x.buffer.written else index.loops
        self._values[x.result.name] = _Known(loops, self._number(("load", x.buffer.name, index.key, loops)))
        access = self._access(x.buffer, index, around)
        if not any(access.buffer == made.buffer and access.key == made.key for made in self.stores):
            self.loads.append(access)  # what it has written itself is still near

    def _loop(self, x: Loop, around: tuple[int, ...]) -> None:
        start, stop = self._known(x.start), self._known(x.stop)
        number = len(self._trips)
        trips: Any = 1
        index: Any = None
        if start.at is not None and stop.at is not None:
            trips = np.maximum(np.asarray(stop.at) - start.at, 0)
            trips = np.where(trips >= _UNBOUNDED, 1, trips)
            fractions = self._fractions if not around else (self._fractions + number * _GOLDEN) * 997 * _GOLDEN % 1
            index = start.at + np.floor(fractions * trips).astype(np.int64)
        self._trips[number] = trips
        inside = (*around, number)
        key = self._number(("index", len(around), start.key, stop.key))
        self._values[x.index.name] = _Known(start.loops | {number}, key, index)
        for c in x.carried:
            self._values[c.arg.name] = _Known(frozenset(inside), self._number(("carried", c.arg.name)))
        self.block(x.body, inside)
        for c in x.carried:
            self._values[c.result.name] = _Known(frozenset(around), self._number(("result", c.result.name)))

    def _multiply(self, x: Multiply, around: tuple[int, ...]) -> None:
        m, n, k = (self._size(size) for size in x.sizes)
        self.operations += 2 * float(np.mean(m * n * k * self._product(around)))
        for matrix, size, accesses in (
            (x.left, m * k, self.loads),
            (x.right, k * n, self.loads),
            (x.result, m * n, self.stores),
        ):
            accesses.append(self._matrix(matrix, size))

    def _product(self, loops: tuple[int, ...]) -> Any:
        product: Any = 1.0
        for loop in loops:
            product = product * self._trips[loop]
        return product

    def _size(self, size: Index) -> Any:
        at = self._known(size).at
        return np.asarray(1.0 if at is None else at, np.float64)

    def _matrix(self, x: Matrix, size: Any) -> _Access:
        start = self._known(x.start)
        count = float(np.mean(size * self._product(tuple(start.loops))))
        return _Access(x.buffer.name, ("matrix", start.key, x.pitch, x.transposed), None, count)

    def _call(self, x: Call) -> None:
        """A native routine: it goes over all that it is given, and does what the graph's operation costs."""
        if x.routine in (PREFETCH_READ, PREFETCH_WRITE):
            return
        streams = x.routine.startswith(ROUTINE)
        for buffer, _ in x.arguments[: 3 if streams else None]:
            size = self._whole.get(buffer.name, 0)
            if not buffer.written or not (self._name in _FILLED or streams):
                self.loads.append(_Access(buffer.name, "read", None, size))
            if buffer.written:
                self.stores.append(_Access(buffer.name, "written", None, size))
        while self._roots and self._name not in _COPIES and not x.routine.startswith(_NO_ARITHMETIC):
            self.operations += operations_of(self._roots.pop())[0]


_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _folded(op: str, attributes: dict[str, Any], values: Sequence[Any]) -> Any:
    """What an operation on indices gives at the points; None if it depends on data. Where data choose, the larger."""
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
