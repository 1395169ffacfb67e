"""The loop IR: loops, loads, stores and scalar operations over flat buffers. What fusion makes and the printers print.

A `Kernel` runs for a range `first <= i < last` of its outermost index, so that its work can be split over threads.
Buffers are one-dimensional; an index is a Python int or an `s64` value. Scalar operations carry HLO's opcode names
(`add`, `exponential`, `compare`, ...), with their HLO attributes, so a kernel reads as the graph does. Values are in
SSA form; what changes from one iteration to the next is carried by the loop.

`Builder` makes kernels: it numbers values, folds index arithmetic on constants and shares equal computations within a
block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

INDEX = "s64"
TOGETHER = 64  # iterations of which vectors leave no rest
PARTED = 3 * TOGETHER  # iterations of which a rest is better left to a loop of its own than all of them masked
LONG = 512  # from this count on, a loop gains little when its end is known, or from masks in all its iterations
MANY = 1 << 14  # iterations that are many more than their rest
SCALARS = frozenset("pred s8 s16 s32 s64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split())


def storage_type(type: str) -> str:
    """The type of the scalars that stand for elements of a type: bytes, for one that loops only store."""
    return type if type in SCALARS else "u8"


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A scalar that one statement defines. `type` is an element type's name (`f32`, `pred`, `bf16`, `c64`, ...)."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant operand. `value` is a Python bool, int, float or complex; floats are exact (bit for bit, NaN
    included)."""

    type: str
    value: Any


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """Flat memory of elements of one type: an argument, or scratch of `size` elements that lives during one kernel
    call.

    `written` says whether the kernel stores to it. Distinct buffers do not overlap.
    """

    type: str
    name: str
    size: int | None = None  # of scratch; None for an argument
    written: bool = False


Operand = Value | Literal
Index = Value | int


@dataclass(slots=True)
class Compute:
    """result = op(operands), on scalars. `attributes` holds the op's attributes, sorted by name."""

    result: Value
    op: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class Load:
    result: Value
    buffer: Buffer
    index: Index


@dataclass(slots=True)
class Store:
    buffer: Buffer
    index: Index
    value: Operand


@dataclass(slots=True)
class LoopCarried:
    """A value that a loop carries: `initial` on entry, `inside` in an iteration, `updated` at its end, `result` after
    it."""

    arg: Value
    init: Operand
    result: Value
    next: Operand | None = None


@dataclass(slots=True)
class Loop:
    """for index in range(start, stop): body. Iterations depend on each other only through `carried` and through stores
    to and loads from scratch or output elements of other iterations when `sequential` is set. With `again`, a pred that
    the body computes, the loop ends after the first iteration in which it is false. `in_vectors` asks for vectors even
    of few iterations, which are written out otherwise; `has_rest` says that many vectors leave a rest."""

    index: Value
    start: Index
    stop: Index
    body: list[Statement]
    carried: list[LoopCarried]
    sequential: bool = False
    continue_while: Operand | None = None
    force_vectorize: bool = False
    has_remainder: bool = False


def leaves_remainder(x: Loop, least: int = PARTED) -> bool:
    """Whether several vectors at once leave iterations of a loop that would take long one by one."""
    return may_leave_remainder(x, least) and isinstance(x.stop, int) and bool(x.stop % TOGETHER)


def may_leave_remainder(x: Loop, least: int) -> bool:
    """Whether they might, if its end were another number."""
    if x.sequential or x.continue_while is not None or any(isinstance(y, (Loop, Multiply, Call)) for y in x.body):
        return False
    return x.start == 0 and isinstance(x.stop, int) and least <= x.stop < MANY


@dataclass(frozen=True, slots=True)
class Matrix:
    """Part of a buffer as a matrix: rows begin `pitch` elements apart, or columns if it is `transposed`."""

    buffer: Buffer
    start: Index
    pitch: int
    transposed: bool = False


@dataclass(slots=True)
class Multiply:
    """result[m, n] = left[m, k] @ right[k, n], by the BLAS. Where `more` is 1 and not 0, the product is added to what
    the result has. The result is not transposed."""

    result: Matrix
    left: Matrix
    right: Matrix
    sizes: tuple[Index, Index, Index]  # m, n, k
    more: Index = 0


@dataclass(slots=True)
class Call:
    """A native function that `provide_routine` names, with the addresses of elements: of all that it takes, as Fortran
    wants it. It may read and write what is there, and what follows."""

    routine: str
    places: tuple[tuple[Buffer, Index], ...]


Statement = Compute | Load | Store | Loop | Multiply | Call


@dataclass(slots=True)
class Kernel:
    """`arguments` in the order of the address table; `first` and `last` bound the outermost index. `numbers` are
    scalars that follow the addresses in the table, each in a word of its own."""

    name: str
    arguments: list[Buffer]
    scratch: list[Buffer]
    first: Value
    last: Value
    body: list[Statement] = field(default_factory=list)
    parameters: list[Value] = field(default_factory=list)


class Builder:
    """Appends statements to the innermost open loop of one kernel."""

    def __init__(self, name: str) -> None:
        self.kernel = Kernel(name, [], [], Value(INDEX, "first"), Value(INDEX, "last"))
        self._blocks: list[list[Statement]] = [self.kernel.body]
        self._known: list[dict[Any, Value]] = [{}]
        self._bounds: dict[str, tuple[int, int]] = {}
        self._count = 0

    def argument(self, type: str, written: bool = False) -> Buffer:
        kernel = self.kernel
        buffer = Buffer(storage_type(type), f"{'out' if written else 'in'}{len(kernel.arguments)}", None, written)
        kernel.arguments.append(buffer)
        return buffer

    def scratch(self, type: str, size: int) -> Buffer:
        buffer = Buffer(storage_type(type), f"scratch{len(self.kernel.scratch)}", size, True)
        self.kernel.scratch.append(buffer)
        return buffer

    def _new(self, type: str, prefix: str = "v") -> Value:
        self._count += 1
        return Value(type, f"{prefix}{self._count}")

    def _shared(self, key: Any) -> Value | None:
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def compute(self, op: str, type: str, *operands: Operand, **attributes: Any) -> Value:
        """One scalar operation; an equal one made before in an enclosing block is used again."""
        type = storage_type(type) if op == "select" else type
        sorted_attributes = tuple(sorted(attributes.items()))
        key = (op, type, tuple(_identity(x) for x in operands), sorted_attributes)
        found = self._shared(key)
        if found is None:
            found = self._known[-1][key] = self._new(type)
            self._blocks[-1].append(Compute(found, op, operands, sorted_attributes))
        return found

    def load(self, buffer: Buffer, index: Index) -> Value:
        """An element; loads of one read-only argument at one index are shared."""
        key = ("load", buffer.name, _identity(index))
        found = None if buffer.written else self._shared(key)
        if found is None:
            found = self._new(buffer.type)
            if not buffer.written:
                self._known[-1][key] = found
            self._blocks[-1].append(Load(found, buffer, index))
        return found

    def store(self, buffer: Buffer, index: Index, value: Operand) -> None:
        self._blocks[-1].append(Store(buffer, index, value))

    def multiply(
        self, result: Matrix, left: Matrix, right: Matrix, sizes: tuple[Index, Index, Index], more: Index = 0
    ) -> None:
        self._blocks[-1].append(Multiply(result, left, right, sizes, more))

    def call(self, routine: str, *places: tuple[Buffer, Index]) -> None:
        self._blocks[-1].append(Call(routine, places))

    def _index(self, op: str, left: Index, right: Index) -> Index:
        """Index arithmetic: `add`, `subtract`, `multiply`, `divide`, `remainder`, `minimum`, `maximum` (operands >= 0
        for `divide` and `remainder`); constants fold, neutral elements vanish. The attribute `index` marks what
        cannot overflow; it is "narrow" where 32 bits hold all numbers, in which divisions are quicker, and "natural"
        where sums and products are of numbers that are known not to be negative."""
        if isinstance(left, int) and isinstance(right, int):
            return _FOLD[op](left, right)
        if isinstance(left, int) and op in ("add", "multiply"):
            left, right = right, left
        if (right == 0 and op in ("add", "subtract")) or (right == 1 and op in ("multiply", "divide")):
            return left
        if (right == 0 and op == "multiply") or (right == 1 and op == "remainder"):
            return 0
        if left == 0 and op in ("divide", "remainder"):
            return 0
        a, b = self.bounds(left), self.bounds(right)
        if a is not None and b is not None and op in ("minimum", "maximum"):
            (below, above) = (a, b) if op == "minimum" else (b, a)
            if below[1] <= above[0]:
                return left
            if above[1] <= below[0]:
                return right
        if isinstance(right, int) and op in _DIVISIONS and a is not None and 0 <= a[0] // right == a[1] // right:
            rows = a[0] // right
            return rows if op == "divide" else self.sub(left, rows * right)
        kind = "wide"
        if a is not None and b is not None and min(a[0], b[0]) >= 0:
            if op in _DIVISIONS and max(a[1], b[1]) < 1 << 31:
                kind = "narrow"
            elif op in ("add", "multiply"):
                kind = "natural"
        found = self.compute(op, INDEX, operand_of(left), operand_of(right), index=kind)
        if a is not None and b is not None and op in _INTERVALS:
            self._bounds[found.name] = _INTERVALS[op](a, b)
        return found

    def add(self, *terms: Index) -> Index:
        return functools.reduce(lambda x, y: self._index("add", x, y), terms)

    def mul(self, *factors: Index) -> Index:
        return functools.reduce(lambda x, y: self._index("multiply", x, y), factors)

    def sub(self, x: Index, y: Index) -> Index:
        return self._index("subtract", x, y)

    def floordiv(self, x: Index, y: Index) -> Index:
        """Of numbers >= 0, rounded down."""
        return self._index("divide", x, y)

    def remainder(self, x: Index, y: Index) -> Index:
        return self._index("remainder", x, y)

    def min(self, x: Index, y: Index) -> Index:
        return self._index("minimum", x, y)

    def max(self, x: Index, y: Index) -> Index:
        return self._index("maximum", x, y)

    def ceil_div(self, size: Index, length: Index) -> Index:
        """How many pieces of some length there are."""
        return self.floordiv(self.add(size, self.sub(length, 1)), length)

    def tile_range(self, piece: Index, length: Index, whole: Index) -> tuple[Index, Index]:
        """From where to where a piece of some length is in the whole."""
        start = self.mul(piece, length)
        return start, self.min(self.add(start, length), whole)

    def tile_start_and_size(self, block: Index, length: Index, whole: Index) -> tuple[Index, Index]:
        """From where on a block of some length is in the whole, and how much of it."""
        start = self.mul(block, length)
        return start, self.min(self.sub(whole, start), length)

    def delinearize(self, index: Index, *sizes: Index) -> list[Index]:
        """The coordinates of an index in a space whose inner sizes are these."""
        found: list[Index] = []
        for size in reversed(sizes):
            found.append(self.remainder(index, size))
            index = self.floordiv(index, size)
        return [index, *reversed(found)]

    def compare(self, direction: str, x: Index | Operand, y: Index | Operand) -> Value:
        """A comparison of two numbers of a type, such as indices."""
        x, y = operand_of(x), operand_of(y)
        kind = _COMPARISONS[x.type[0]]
        return self.compute("compare", "pred", x, y, direction=direction, compare_type=kind)

    def select(self, condition: Operand, yes: Index | Operand, no: Index | Operand = 0) -> Value:
        """One of two values of a type, such as indices: as many iterations if the condition holds, say, else none."""
        yes, no = operand_of(yes), operand_of(no)
        return self.compute("select", yes.type, condition, yes, no)

    def convert(self, type: str, x: Index | Operand) -> Value:
        return self.compute("convert", type, operand_of(x))

    def and_(self, x: Operand, y: int | Operand) -> Value:
        """Whether two conditions hold, or the bits that two numbers have in common."""
        return self._of_bits("and", x, y)

    def or_(self, x: Operand, y: int | Operand) -> Value:
        """Whether one of two conditions holds, or the bits that one of two numbers has."""
        return self._of_bits("or", x, y)

    def shift_left(self, x: Index | Operand, bits: int | Operand) -> Value:
        return self._of_bits("shift-left", x, bits)

    def shift_right(self, x: Index | Operand, bits: int | Operand) -> Value:
        """What comes in from the left is zero."""
        return self._of_bits("shift-right-logical", x, bits)

    def _of_bits(self, op: str, x: Index | Operand, y: int | Operand) -> Value:
        x = operand_of(x)
        return self.compute(op, x.type, x, Literal(x.type, y) if isinstance(y, int) else y)

    def bounds(self, index: Index) -> tuple[int, int] | None:
        """The least and the greatest that an index can be, as far as is known."""
        return (index, index) if isinstance(index, int) else self._bounds.get(index.name)

    def assume_range(self, index: Index, least: int, greatest: int) -> None:
        """Let it be known what an index can be."""
        if isinstance(index, Value):
            known = self._bounds.get(index.name, (least, greatest))
            self._bounds[index.name] = (max(least, known[0]), min(greatest, known[1]))

    @contextmanager
    def loop(
        self, start: Index, stop: Index, carried: Sequence[Operand] = (), sequential: bool = False
    ) -> Generator[tuple[Value, Loop]]:
        """Open a loop; inside, set `loop.carried[k].updated`, and `loop.again` where there is an early end; after it,
        read `loop.carried[k].result`."""
        loop = Loop(self._new(INDEX, "i"), start, stop, [], [], sequential)
        if isinstance(start, int) and isinstance(stop, int):
            self.assume_range(loop.index, start, stop - 1)
        loop.carried = [LoopCarried(self._new(x.type, "c"), x, self._new(x.type, "r")) for x in carried]
        self._blocks[-1].append(loop)
        self._blocks.append(loop.body)
        self._known.append({})
        yield loop.index, loop
        self._known.pop()
        self._blocks.pop()
        loop.body = _stores_last(loop)


def _stores_last(loop: Loop) -> list[Statement]:
    """The statements of a loop that does nothing but load, compute and store, with the stores at the end.

    Where a loop reads neighbours, LLVM takes what one iteration reads for what the next one reads beside it, and makes
    no vectors of the loop if that value is stored before its successor is read.
    """
    stores = [x for x in loop.body if isinstance(x, Store)]
    written = {x.buffer for x in stores}
    is_plain = all(isinstance(x, (Compute, Load, Store)) for x in loop.body)
    if len(stores) < 2 or not is_plain or any(isinstance(x, Load) and x.buffer in written for x in loop.body):
        return loop.body
    return [*(x for x in loop.body if not isinstance(x, Store)), *stores]


_FOLD = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "minimum": min,
    "maximum": max,
}

_DIVISIONS = ("divide", "remainder")
_COMPARISONS = {"s": "SIGNED", "u": "UNSIGNED", "f": "FLOAT", "b": "FLOAT", "c": "FLOAT"}  # by how types begin
_Interval = tuple[int, int]
_INTERVALS: dict[str, Callable[[_Interval, _Interval], _Interval]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "subtract": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "multiply": lambda x, y: (min(a * b for a in x for b in y), max(a * b for a in x for b in y)),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "divide": lambda x, y: (x[0] // y[1], x[1] // y[0]),
    "remainder": lambda x, y: (0, y[1] - 1),
}


def operand_of(index: Index | Operand) -> Operand:
    """An index as an operand."""
    return Literal(INDEX, index) if isinstance(index, int) else index


def _identity(operand: Operand | Index) -> Any:
    if isinstance(operand, Value):
        return operand.name
    if isinstance(operand, Literal):  # 0.0 and -0.0 are equal, NaN is not: the text tells them apart
        return (operand.type, repr(operand.value))
    return operand
