"""The loop IR: loops, loads, stores and operations on scalars and vectors over flat buffers. Lowerings build it with
`Builder`; a backend prints it as LLVM, `print_python` as Python.

A `Kernel` runs for a range `first <= i < last` of its outermost index, so that threads can share the range. Buffers are
one-dimensional; an index is a Python int or an `s64` value. Scalar operations carry HLO's opcode names (`add`,
`exponential`, `compare`, ...) and attributes, so that a kernel reads as the graph does. Values are in SSA form; values
that change from one iteration to the next are carried by the loop (MLIR's iter_args).

A value of several lanes is a vector. Routines are written in vectors where LLVM would not find them, or would take long
to; the passes over the loop IR are about scalar code. Tiles are registers of a matrix unit, not SSA values: a routine
chooses which matrix stays in which register.

`Builder` numbers values, folds constants in index arithmetic and eliminates common subexpressions within a block and
those around it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tinyxla.compiler.costs import ACCUMULATORS, PARALLEL_CHUNK_ELEMENTS
from tinyxla.loopir.ir.types import storage_type

INDEX = "s64"
VECTOR_ITERATIONS = ACCUMULATORS  # a trip count that is a multiple of this leaves no remainder after unrolled vectors
MIN_SPLIT_ITERATIONS = VECTOR_ITERATIONS * 3  # from here on, a remainder loop is faster than masking all iterations
LONG_LOOP_ITERATIONS = VECTOR_ITERATIONS * 8  # from here on, a constant trip count or masked iterations gain little
MAX_SPLIT_ITERATIONS = PARALLEL_CHUNK_ELEMENTS  # from here on, the time of a remainder does not matter


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A scalar, or a vector of `lanes` elements, that one statement defines. `type` is an element type's name (`f32`,
    `pred`, `bf16`, `c64`, ...)."""

    type: str
    name: str
    lanes: int = 1


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

    `written` tells whether the kernel stores to the buffer. Distinct buffers do not overlap, but for a view and the
    buffer whose elements it has (or buffers, of which it has those of one).
    """

    type: str
    name: str
    size: int | None = None  # elements of scratch; None for an argument
    written: bool = False
    view_of: tuple[Buffer, ...] = ()

    @property
    def memories(self) -> frozenset[Buffer]:
        """The arguments or scratch whose elements these may be."""
        return frozenset[Buffer]().union(*(x.memories for x in self.view_of)) if self.view_of else frozenset((self,))


@dataclass(frozen=True, eq=False, slots=True)
class Tile:
    """A register of a matrix unit for `rows` x `columns` elements (MLIR's amx.tile), as a kernel has scratch. A printer
    numbers a kernel's tiles in order, sets up the unit before its body and releases it afterwards."""

    type: str
    name: str
    rows: int
    columns: int


Operand = Value | Literal
Index = Value | int


@dataclass(slots=True)
class Compute:
    """result = op(operands), on scalars or lane by lane; scalars beside vectors are broadcast. `attributes` holds the
    op's attributes, sorted by name."""

    result: Value
    op: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class Load:
    """result = buffer[index]; of a vector, the elements from the index on. Lanes whose `mask` is false are zero, and
    their elements are not read."""

    result: Value
    buffer: Buffer
    index: Index
    mask: Value | None = None


@dataclass(slots=True)
class Gather:
    """result[k] = buffer[indices[k]], or zero where a `mask` is false (MLIR's vector.gather). Routines have these
    alone."""

    result: Value
    buffer: Buffer
    indices: Value
    mask: Value | None = None


@dataclass(slots=True)
class Store:
    """buffer[index] = value; of a vector, the elements from the index on, but for lanes whose `mask` is false. A vector
    whose address is a multiple of its bytes may be stored past the caches (`is_nontemporal`)."""

    buffer: Buffer
    index: Index
    value: Operand
    mask: Value | None = None
    is_nontemporal: bool = False


@dataclass(slots=True)
class Shuffle:
    """result[k] = operands[order[k]], of the lanes of one or two operands of one type, in order (LLVM's shufflevector).

    A scalar is a vector of one lane: so this is also the broadcast of a scalar, and the extraction of a lane.
    """

    result: Value
    operands: tuple[Operand, ...]
    order: tuple[int, ...]


@dataclass(slots=True)
class View:
    """The elements of a buffer from an index on as a buffer, so that accesses share the address (MLIR's
    memref.subview)."""

    result: Buffer
    buffer: Buffer
    index: Index


@dataclass(slots=True)
class SelectBuffer:
    """One of two buffers of one type, by a condition (MLIR's arith.select of memrefs). Routines have these alone."""

    result: Buffer
    condition: Value
    on_true: Buffer
    on_false: Buffer


@dataclass(slots=True)
class Prefetch:
    """A hint that the cache line of an element is read soon, or written (`for_writing`), and belongs into the cache of
    a level."""

    buffer: Buffer
    index: Index
    for_writing: bool = False
    cache_level: int = 2


@dataclass(slots=True)
class Copy:
    """target[target_index + k] = source[source_index + k] for k < count (memcpy), of elements of one type that do not
    overlap. Routines have these alone, and `Fill`."""

    target: Buffer
    target_index: Index
    source: Buffer
    source_index: Index
    count: Index


@dataclass(slots=True)
class Fill:
    """buffer[index + k] = 0 for k < count (memset)."""

    buffer: Buffer
    index: Index
    count: Index


@dataclass(slots=True)
class Address:
    """The address of an element in bytes, as an index. Routines have these alone."""

    result: Value
    buffer: Buffer
    index: Index


@dataclass(slots=True)
class Fence:
    """Other threads see all non-temporal stores before what is stored later."""


@dataclass(slots=True)
class TileZero:
    """tile = 0. Routines have the operations on tiles alone."""

    tile: Tile


@dataclass(slots=True)
class TileLoad:
    """tile[i, j] = buffer[index + i * pitch + j]"""

    tile: Tile
    buffer: Buffer
    index: Index
    pitch: Index


@dataclass(slots=True)
class TileStore:
    """buffer[index + i * pitch + j] = tile[i, j]"""

    tile: Tile
    buffer: Buffer
    index: Index
    pitch: Index


@dataclass(slots=True)
class TileMultiplyAdd:
    """accumulator += left @ right (MLIR's amx.tile_mulf and tile_muli), where elements of left and right are words of
    several numbers of the type `factors`: the product of two words is the dot product of these.

    Sums of floats are rounded and ordered as by x86: those of the first factors of words, and those of the second ones,
    are added to each other and then to the accumulator; subnormal numbers are zero.
    """

    accumulator: Tile
    left: Tile
    right: Tile
    factors: str


@dataclass(slots=True)
class LoopCarried:
    """A loop-carried value: `init` on entry, `arg` within an iteration, `next` at its end, `result` after the loop."""

    arg: Value
    init: Operand
    result: Value
    next: Operand | None = None

    @property
    def updated(self) -> Operand:
        """The value at the end of an iteration, which is that within it unless the loop sets another."""
        return self.arg if self.next is None else self.next


@dataclass(slots=True)
class Loop:
    """for index in range(start, stop, step): body. Iterations depend on each other only through `carried`, and, if
    `sequential` is set, through stores to and loads from elements of scratch or outputs. If `continue_while` is
    given, a pred that the body computes, the loop ends after the first iteration in which it is false.
    `force_vectorize` vectorizes loops of few iterations, which are unrolled otherwise; `has_remainder` promises that
    the trip count is no multiple of `VECTOR_ITERATIONS`, `nonempty` that there is an iteration. `step` is 1 unless the
    loop is sequential."""

    index: Value
    start: Index
    stop: Index
    body: list[Statement]
    carried: list[LoopCarried]
    sequential: bool = False
    continue_while: Operand | None = None
    force_vectorize: bool = False
    has_remainder: bool = False
    step: int = 1
    nonempty: bool = False

    @property
    def trip_count(self) -> int | None:
        """The number of iterations of a loop whose step is 1, if the code knows it."""
        return self.stop - self.start if isinstance(self.start, int) and isinstance(self.stop, int) else None


@dataclass(slots=True)
class Choice:
    """A value after an `If`: `on_true` of its first body, or `on_false` of the second one."""

    result: Value
    on_true: Operand
    on_false: Operand


@dataclass(slots=True)
class If:
    """if condition: on_true, else: on_false (MLIR's scf.if), and what values become of both. Routines have these alone:
    passes do not look into them."""

    condition: Value
    on_true: list[Statement]
    on_false: list[Statement]
    choices: list[Choice]


def leaves_remainder(loop: Loop, min_iterations: int = MIN_SPLIT_ITERATIONS) -> bool:
    """True if the constant trip count of a vectorizable loop is no multiple of `VECTOR_ITERATIONS`, and too small
    for the scalar remainder not to matter."""
    return (
        may_leave_remainder(loop, min_iterations) and isinstance(loop.stop, int) and bool(loop.stop % VECTOR_ITERATIONS)
    )


def may_leave_remainder(loop: Loop, min_iterations: int) -> bool:
    """True if another constant trip count of the loop could leave such a remainder."""
    if (
        loop.sequential
        or loop.continue_while is not None
        or any(isinstance(x, (Loop, Multiply, Call)) for x in loop.body)
    ):
        return False
    return loop.start == 0 and isinstance(loop.stop, int) and min_iterations <= loop.stop < MAX_SPLIT_ITERATIONS


@dataclass(frozen=True, slots=True)
class Matrix:
    """Part of a buffer as a matrix with leading dimension `pitch`: row-major, or column-major if `transposed`."""

    buffer: Buffer
    start: Index
    pitch: int
    transposed: bool = False


@dataclass(slots=True)
class Multiply:
    """GEMM by the BLAS: result[m, n] = left[m, k] @ right[k, n], added to the old result if `accumulate` is 1 rather
    than 0. The result must be row-major."""

    result: Matrix
    left: Matrix
    right: Matrix
    sizes: tuple[Index, Index, Index]  # m, n, k
    accumulate: Index = 0


@dataclass(slots=True)
class Call:
    """A call of a declared routine (`routines.declare`) with the addresses of buffer elements; all arguments are
    pointers, as in Fortran. The routine may read and write from each address onwards."""

    routine: str
    arguments: tuple[tuple[Buffer, Index], ...]


TileOperation = TileZero | TileLoad | TileStore | TileMultiplyAdd
RoutineStatement = Gather | SelectBuffer | Copy | Fill | Address | Fence | If | TileOperation  # routines have it alone
Statement = Compute | Load | Store | Shuffle | View | Prefetch | Loop | Multiply | Call | RoutineStatement


@dataclass(slots=True)
class Kernel:
    """`arguments` are in the order of the address table; `first` and `last` bound the outermost index. `parameters`
    are scalars that follow the addresses in the table, one 64-bit word each. `tiles` are those of a matrix unit."""

    name: str
    arguments: list[Buffer]
    scratch: list[Buffer]
    first: Value
    last: Value
    body: list[Statement] = field(default_factory=list)
    parameters: list[Value] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)


class Builder:
    """Appends statements to the innermost open loop of one kernel."""

    def __init__(self, name: str) -> None:
        self.kernel = Kernel(name, [], [], Value(INDEX, "first"), Value(INDEX, "last"))
        self._blocks: list[list[Statement]] = [self.kernel.body]
        self._available: list[dict[Any, Value]] = [{}]
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

    def tile(self, type: str, rows: int, columns: int) -> Tile:
        """A register of a matrix unit."""
        tile = Tile(type, f"tile{len(self.kernel.tiles)}", rows, columns)
        self.kernel.tiles.append(tile)
        return tile

    def _new(self, type: str, prefix: str = "v", lanes: int = 1) -> Value:
        self._count += 1
        return Value(type, f"{prefix}{self._count}", lanes)

    def _shared(self, key: Any) -> Value | None:
        for values in reversed(self._available):
            if key in values:
                return values[key]
        return None

    def compute(self, op: str, type: str, *operands: Operand, **attributes: Any) -> Value:
        """One operation, on vectors if an operand is one; an equal operation in this block or one around it is
        reused. The attribute `lanes` makes a vector of scalar operands, and is the number of lanes of a vector that
        `bitcast-convert` makes of wider or narrower ones."""
        type = storage_type(type) if op == "select" else type
        sorted_attributes = tuple(sorted(attributes.items()))
        key = (op, type, tuple(_operand_key(x) for x in operands), sorted_attributes)
        result = self._shared(key)
        if result is None:
            lanes = attributes.get("lanes") or max(map(lanes_of, operands), default=1)
            result = self._available[-1][key] = self._new(type, lanes=lanes)
            self._blocks[-1].append(Compute(result, op, operands, sorted_attributes))
        return result

    def load(self, buffer: Buffer, index: Index, lanes: int = 1, *, mask: Value | None = None) -> Value:
        """An element, or a vector of those from an index on, with zeros where a mask is false; loads of a read-only
        argument at one index are shared."""
        key = ("load", buffer.name, _operand_key(index), lanes, mask)
        result = None if buffer.written else self._shared(key)
        if result is None:
            result = self._new(buffer.type, lanes=lanes)
            if not buffer.written:
                self._available[-1][key] = result
            self._blocks[-1].append(Load(result, buffer, index, mask))
        return result

    def gather(self, buffer: Buffer, indices: Value, *, mask: Value | None = None) -> Value:
        """A vector of the elements at indices, with zeros where a mask is false."""
        result = self._new(buffer.type, lanes=indices.lanes)
        self._blocks[-1].append(Gather(result, buffer, indices, mask))
        return result

    def store(
        self,
        buffer: Buffer,
        index: Index,
        value: Operand,
        *,
        mask: Value | None = None,
        is_nontemporal: bool = False,
    ) -> None:
        self._blocks[-1].append(Store(buffer, index, value, mask, is_nontemporal))

    def lane_mask(self, first: Index, stop: Index, lanes: int) -> Value:
        """The lanes of a vector that lie below `stop` if its first one lies at `first`: first + k < stop of lane k."""
        return self.compute("lane-mask", "pred", operand_of(first), operand_of(stop), lanes=lanes)

    def iota(self, first: Operand, lanes: int) -> Value:
        """The vector first, first + 1, ..."""
        return self.compute("iota", first.type, first, lanes=lanes)

    def shuffle(self, order: Sequence[int], *operands: Operand) -> Value:
        """Lanes of one or two vectors, numbered in order."""
        result = self._new(operands[0].type, lanes=len(order))
        self._blocks[-1].append(Shuffle(result, operands, tuple(order)))
        return result

    def broadcast(self, x: Operand, lanes: int) -> Value:
        """A vector of equal lanes."""
        return self.shuffle((0,) * lanes, x)

    def view(self, buffer: Buffer, index: Index) -> Buffer:
        """The elements of a buffer from an index >= 0 on."""
        result = self._new_view(buffer)
        self._blocks[-1].append(View(result, buffer, index))
        return result

    def select_buffer(self, condition: Value, on_true: Buffer, on_false: Buffer) -> Buffer:
        """`on_true` if the condition holds, otherwise `on_false`; both of one type."""
        assert on_true.type == on_false.type, f"one of {on_true} and {on_false} has no type"
        result = self._new_view(on_true, on_false)
        self._blocks[-1].append(SelectBuffer(result, condition, on_true, on_false))
        return result

    def _new_view(self, *buffers: Buffer) -> Buffer:
        self._count += 1
        return Buffer(buffers[0].type, f"view{self._count}", None, any(x.written for x in buffers), buffers)

    def tile_zero(self, tile: Tile) -> None:
        self._blocks[-1].append(TileZero(tile))

    def tile_load(self, tile: Tile, buffer: Buffer, index: Index, pitch: Index) -> None:
        """Load a tile, whose rows are `pitch` elements apart in memory."""
        assert tile.type == buffer.type, f"{tile} and {buffer} have different types"
        self._blocks[-1].append(TileLoad(tile, buffer, index, pitch))

    def tile_store(self, tile: Tile, buffer: Buffer, index: Index, pitch: Index) -> None:
        """Store a tile to rows that are `pitch` elements apart."""
        assert tile.type == buffer.type, f"{tile} and {buffer} have different types"
        self._blocks[-1].append(TileStore(tile, buffer, index, pitch))

    def tile_multiply_add(self, accumulator: Tile, left: Tile, right: Tile, factors: str) -> None:
        """accumulator += left @ right, of words of several factors."""
        sides = (left.rows, left.columns, right.columns)
        assert sides == (accumulator.rows, right.rows, accumulator.columns), f"{left} and {right} make no {accumulator}"
        self._blocks[-1].append(TileMultiplyAdd(accumulator, left, right, factors))

    def prefetch(self, buffer: Buffer, index: Index, for_writing: bool = False, cache_level: int = 2) -> None:
        self._blocks[-1].append(Prefetch(buffer, index, for_writing, cache_level))

    def address(self, buffer: Buffer, index: Index = 0) -> Value:
        """The address of an element in bytes."""
        result = self._new(INDEX)
        self._blocks[-1].append(Address(result, buffer, index))
        return result

    def fence(self) -> None:
        self._blocks[-1].append(Fence())

    def copy_elements(
        self, target: Buffer, target_index: Index, source: Buffer, source_index: Index, count: Index
    ) -> None:
        self._blocks[-1].append(Copy(target, target_index, source, source_index, count))

    def fill_zeros(self, buffer: Buffer, index: Index, count: Index) -> None:
        """Store zeros from an index on."""
        self._blocks[-1].append(Fill(buffer, index, count))

    def multiply(
        self, result: Matrix, left: Matrix, right: Matrix, sizes: tuple[Index, Index, Index], accumulate: Index = 0
    ) -> None:
        self._blocks[-1].append(Multiply(result, left, right, sizes, accumulate))

    def call(self, routine: str, *arguments: tuple[Buffer, Index]) -> None:
        self._blocks[-1].append(Call(routine, arguments))

    def _index(self, op: str, left: Index, right: Index) -> Index:
        """Index arithmetic: `add`, `subtract`, `multiply`, `divide`, `remainder`, `minimum`, `maximum` (operands >=
        0 for `divide` and `remainder`); constants fold, identities vanish. The attribute `index` marks operations
        that cannot overflow: "narrow" if 32 bits suffice, in which divisions are faster, "natural" if both operands
        are known to be >= 0, otherwise "wide"."""
        if isinstance(left, int) and isinstance(right, Value) and op in ("add", "multiply"):
            left, right = right, left
        folded = folded_index(op, left, right)
        if folded is not None:
            return folded
        a, b = self.bounds(left), self.bounds(right)
        if a is not None and b is not None and op in ("minimum", "maximum"):
            (smaller, larger) = (a, b) if op == "minimum" else (b, a)
            if smaller[1] <= larger[0]:
                return left
            if larger[1] <= smaller[0]:
                return right
        if isinstance(right, int) and op in _DIVISIONS and a is not None and 0 <= a[0] // right == a[1] // right:
            quotient = a[0] // right
            return quotient if op == "divide" else self.sub(left, quotient * right)
        result = self.compute(op, INDEX, operand_of(left), operand_of(right), index=_overflow_attribute(op, a, b))
        if a is not None and b is not None and op in _INTERVALS:
            self._bounds[result.name] = _INTERVALS[op](a, b)
        return result

    def add(self, *terms: Index) -> Index:
        return functools.reduce(lambda x, y: self._index("add", x, y), terms)

    def mul(self, *factors: Index) -> Index:
        return functools.reduce(lambda x, y: self._index("multiply", x, y), factors)

    def sub(self, x: Index, y: Index) -> Index:
        return self._index("subtract", x, y)

    def floordiv(self, x: Index, y: Index) -> Index:
        """x // y for operands >= 0."""
        return self._index("divide", x, y)

    def remainder(self, x: Index, y: Index) -> Index:
        return self._index("remainder", x, y)

    def min(self, x: Index, y: Index) -> Index:
        return self._index("minimum", x, y)

    def max(self, x: Index, y: Index) -> Index:
        return self._index("maximum", x, y)

    def ceil_div(self, size: Index, divisor: Index) -> Index:
        """The number of tiles of size `divisor` that cover `size`."""
        return self.floordiv(self.add(size, self.sub(divisor, 1)), divisor)

    def tile_range(self, tile: Index, tile_size: Index, size: Index) -> tuple[Index, Index]:
        """Start and end of a tile of a range of `size` elements."""
        start = self.mul(tile, tile_size)
        return start, self.min(self.add(start, tile_size), size)

    def tile_start_and_size(self, tile: Index, tile_size: Index, size: Index) -> tuple[Index, Index]:
        """Start and size of a tile of a range of `size` elements."""
        start = self.mul(tile, tile_size)
        return start, self.min(self.sub(size, start), tile_size)

    def delinearize(self, index: Index, *sizes: Index) -> list[Index]:
        """The coordinates of a row-major index, given the sizes of all dimensions but the first."""
        coordinates: list[Index] = []
        for size in reversed(sizes):
            coordinates.append(self.remainder(index, size))
            index = self.floordiv(index, size)
        return [index, *reversed(coordinates)]

    def compare(self, direction: str, x: Index | Operand, y: Index | Operand) -> Value:
        """A comparison of two operands of one type."""
        x, y = operand_of(x), operand_of(y)
        compare_type = _COMPARISONS[x.type[0]]
        return self.compute("compare", "pred", x, y, direction=direction, compare_type=compare_type)

    def select(self, condition: Operand, on_true: Index | Operand, on_false: Index | Operand = 0) -> Value:
        """`on_true` if the condition holds, otherwise `on_false`; both of one type, such as indices."""
        on_true, on_false = operand_of(on_true), operand_of(on_false)
        return self.compute("select", on_true.type, condition, on_true, on_false)

    def convert(self, type: str, x: Index | Operand) -> Value:
        return self.compute("convert", type, operand_of(x))

    def and_(self, x: Operand, y: int | Operand) -> Value:
        """Logical or bitwise and."""
        return self._bitwise("and", x, y)

    def or_(self, x: Operand, y: int | Operand) -> Value:
        """Logical or bitwise or."""
        return self._bitwise("or", x, y)

    def shift_left(self, x: Index | Operand, bits: int | Operand) -> Value:
        return self._bitwise("shift-left", x, bits)

    def shift_right(self, x: Index | Operand, bits: int | Operand) -> Value:
        """Logical shift: zeros are shifted in."""
        return self._bitwise("shift-right-logical", x, bits)

    @contextmanager
    def _within(self, block: list[Statement]) -> Generator[None]:
        """Append to a block inside of the innermost one."""
        self._blocks.append(block)
        self._available.append({})
        yield
        self._available.pop()
        self._blocks.pop()

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """A block that runs if a condition holds."""
        statement = If(condition, [], [], [])
        self._blocks[-1].append(statement)
        with self._within(statement.on_true):
            yield

    def branch(
        self, condition: Value, on_true: Callable[[], Sequence[Operand]], on_false: Callable[[], Sequence[Operand]]
    ) -> list[Value]:
        """The values that one of two functions gives, by a condition; each emits its statements into a block."""
        statement = If(condition, [], [], [])
        self._blocks[-1].append(statement)
        values: list[Sequence[Operand]] = []
        for emit, block in ((on_true, statement.on_true), (on_false, statement.on_false)):
            with self._within(block):
                values.append(emit())
        statement.choices = [Choice(self._new(x.type, "r", lanes_of(x)), x, y) for x, y in zip(*values, strict=True)]
        return [choice.result for choice in statement.choices]

    def _bitwise(self, op: str, x: Index | Operand, y: int | Operand) -> Value:
        x = operand_of(x)
        return self.compute(op, x.type, x, Literal(x.type, y) if isinstance(y, int) else y)

    @property
    def is_in_loop(self) -> bool:
        return len(self._blocks) > 1

    def bounds(self, index: Index) -> tuple[int, int] | None:
        """The known range of an index, both ends included; None if unknown."""
        return (index, index) if isinstance(index, int) else self._bounds.get(index.name)

    def assume_range(self, index: Index, minimum: int, maximum: int) -> None:
        """Intersect the known range of an index with [minimum, maximum]."""
        if isinstance(index, Value):
            interval = self._bounds.get(index.name, (minimum, maximum))
            self._bounds[index.name] = (max(minimum, interval[0]), min(maximum, interval[1]))

    @contextmanager
    def loop(
        self,
        start: Index,
        stop: Index,
        carried: Sequence[Operand] = (),
        sequential: bool = False,
        step: int = 1,
        nonempty: bool = False,
    ) -> Generator[tuple[Value, Loop]]:
        """Open a loop; set `loop.carried[k].next` in its body, and `loop.continue_while` for an early exit; read
        `loop.carried[k].result` after the loop."""
        loop = Loop(self._new(INDEX, "i"), start, stop, [], [], sequential, step=step, nonempty=nonempty)
        if isinstance(start, int) and isinstance(stop, int):
            self.assume_range(loop.index, start, stop - 1)
        loop.carried = [
            LoopCarried(self._new(x.type, "c", lanes_of(x)), x, self._new(x.type, "r", lanes_of(x))) for x in carried
        ]
        self._blocks[-1].append(loop)
        with self._within(loop.body):
            yield loop.index, loop
        loop.body = _stores_last(loop)


def _stores_last(loop: Loop) -> list[Statement]:
    """The statements of a loop with the stores moved to the end, if the loop only loads, computes and stores.

    For a stencil, LLVM replaces loads by values of the previous iteration (load forwarding). A store between the load
    and its successor would then prevent vectorization.
    """
    stores = [x for x in loop.body if isinstance(x, Store)]
    written = frozenset[Buffer]().union(*(x.buffer.memories for x in stores))
    is_plain = all(isinstance(x, (Compute, Load, Store)) for x in loop.body)
    if len(stores) < 2 or not is_plain or any(isinstance(x, Load) and x.buffer.memories & written for x in loop.body):
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
# By the first letter of the type.
_COMPARISONS = {
    "s": "SIGNED",
    "u": "UNSIGNED",
    "f": "FLOAT",
    "b": "FLOAT",
    "c": "FLOAT",
}
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


def folded_index(op: str, left: Index, right: Index) -> Index | None:
    """Constant folding of index arithmetic, also with a neutral or an absorbing operand, which of a sum or a product is
    the right one; None if the code does not know the result."""
    if isinstance(left, int) and isinstance(right, int):
        return _FOLD[op](left, right)
    if (right == 0 and op in ("add", "subtract")) or (right == 1 and op in ("multiply", "divide")):
        return left
    if (right == 0 and op == "multiply") or (right == 1 and op == "remainder"):
        return 0
    return 0 if left == 0 and op in _DIVISIONS else None


def _overflow_attribute(op: str, a: _Interval | None, b: _Interval | None) -> str:
    """The attribute `index` of index arithmetic on operands with these ranges; see `Builder._index`."""
    if a is None or b is None or min(a[0], b[0]) < 0:
        return "wide"
    if op in _DIVISIONS and max(a[1], b[1]) < 1 << 31:
        return "narrow"
    return "natural" if op in ("add", "multiply") else "wide"


def operand_of(index: Index | Operand) -> Operand:
    """An index as an operand."""
    return Literal(INDEX, index) if isinstance(index, int) else index


def lanes_of(operand: Operand) -> int:
    """The number of elements of an operand: 1 of a scalar."""
    return operand.lanes if isinstance(operand, Value) else 1


def _operand_key(operand: Operand | Index) -> Any:
    if isinstance(operand, Value):
        return operand.name
    if isinstance(operand, Literal):  # the text distinguishes 0.0 and -0.0, and a NaN's text is equal to itself
        return (operand.type, repr(operand.value))
    return operand
