"""Loop nests from fusions: the instructions of a nest are emitted where they are read, element by element.

The value of an instruction at an index is asked for, and asks in turn for its operands' values at theirs: data movement is
nothing but arithmetic on the index. A coordinate is an int or an `s64` value. Dimensions that are everywhere read together,
in order, are one loop (`_merged`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tinyxla.backends.numba.loops import INDEX, Buffer, Builder, Index, Kernel, Literal, Loop, Operand, Value
from tinyxla.compiler.access import Place, dims_of, matching, renumbered
from tinyxla.compiler.fusion import SERIAL, Fusion, Plan, base, domain, is_costly, is_leaf, results_of, walk
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement, reduction
from tinyxla.shapes import Shape

CHUNK = 1 << 14  # elements of a long loop that make one piece of work
COLUMNS = 1 << 9  # accumulators of a column reduction
FEW_COLUMNS = 8  # fewer blocks of columns than this, and the rows are cut into pieces
TILE = 32  # rows and columns of a square that is read across
LARGEST_ROW = 1 << 14  # elements of an intermediate that is kept for a row
ROWS_LIMIT = 1 << 17  # bytes of all of them

_COSTLY_WORK = 8
_REASSOCIATED = ("add", "multiply")


@dataclass(eq=False)
class Partial:
    """Memory for the results of the pieces of a reduction."""

    shape: Shape


Storage = Instruction | Partial


@dataclass
class LoweredKernel:
    """A kernel, what its arguments are, and over which range it runs in pieces of `grain`."""

    kernel: Kernel
    arguments: list[Storage]
    extent: int
    grain: int
    roots: list[Instruction]


Coordinates = tuple[Index, ...]
Users = dict[Instruction, list[Instruction]]


class Lowering:
    """Emits one kernel."""

    def __init__(self, name: str, plan: Plan, own: Iterable[Instruction] = ()) -> None:
        self.builder = Builder(name)
        self.stored = plan.stored
        self._escaping = plan.escaping
        self.arguments: list[Storage] = []
        self._buffers: dict[Storage, Buffer] = {}
        self._rows: dict[Instruction, tuple[Buffer, int]] = {}  # kept for a row: the buffer, and the outer rank
        self._finished: dict[Instruction, Operand] = {}  # reductions of this row
        self._own = set(own)  # what this kernel makes, as long as it is not in memory
        self._known: list[dict[Any, Operand]] = [{}]

    # --- memory

    def buffer(self, x: Storage, written: bool = False) -> Buffer:
        found = self._buffers.get(x)
        if found is None:
            shape = x.shape if isinstance(x, Partial) else x.array_shape
            found = self._buffers[x] = self.builder.argument(shape.element_type.name, written)
            self.arguments.append(x)
        return found

    def linear(self, sizes: Sequence[int], coordinates: Sequence[Index]) -> Index:
        """The place of an element in row-major memory."""
        b = self.builder
        place: Index = 0
        stride = 1
        for size, c in zip(reversed(sizes), reversed(coordinates), strict=True):
            if size != 1:
                place = b.index("add", b.index("multiply", c, stride), place)
            stride *= size
        return place

    def load(self, x: Storage, coordinates: Sequence[Index]) -> Operand:
        shape = x.shape if isinstance(x, Partial) else x.array_shape
        return self.builder.load(self.buffer(x), self.linear(shape.dimensions, coordinates))

    def store(self, x: Storage, coordinates: Sequence[Index], value: Operand) -> None:
        """Put an element where it is read later, if it is."""
        if isinstance(x, Instruction) and x not in self._escaping:
            return
        shape = x.shape if isinstance(x, Partial) else x.array_shape
        self.builder.store(self.buffer(x, True), self.linear(shape.dimensions, coordinates), value)

    # --- loops

    @contextmanager
    def loop(
        self, start: Index, stop: Index, carried: Sequence[Operand] = (), sequential: bool = False
    ) -> Iterator[tuple[Value, Loop]]:
        self._known.append({})
        with self.builder.loop(start, stop, carried, sequential) as opened:
            yield opened
        self._known.pop()

    def nest(
        self,
        bounds: Sequence[tuple[Index, Index]],
        carried: Sequence[Operand],
        body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
        sequential: bool = False,
    ) -> list[Operand]:
        """Loops in one another; `body(indices, carried)` gives the carried values of the next iteration."""
        if not bounds:
            return list(body((), list(carried)))
        (start, stop), *rest = bounds
        with self.loop(start, stop, carried, sequential) as (index, loop):
            inside: list[Operand] = [c.inside for c in loop.carried]
            updated = self.nest(rest, inside, lambda more, values: body((index, *more), values), sequential)
            for slot, value in zip(loop.carried, updated, strict=True):
                slot.updated = value
        return [c.result for c in loop.carried]

    def split_index(self, index: Index, sizes: Sequence[int]) -> Coordinates:
        """The coordinates of the index-th element of a space."""
        found: list[Index] = []
        rest = index
        for size in reversed(sizes[1:]):
            found.append(self.builder.index("remainder", rest, size))
            rest = self.builder.index("divide", rest, size)
        return (rest, *reversed(found)) if sizes else ()

    # --- values

    def in_memory(self, x: Instruction) -> bool:
        return (x in self.stored and x not in self._own) or is_leaf(x)

    def complete(self, roots: Iterable[Instruction]) -> None:
        """These are in memory now, for the row at hand."""
        self._own.difference_update(roots)

    def keep(self, x: Instruction, row: Buffer, rank: int) -> None:
        """The row of x, whose first `rank` dimensions are the nest's outer ones, is in this buffer."""
        self._rows[x] = (row, rank)

    def is_kept(self, x: Instruction) -> bool:
        return x in self._rows

    def finish(self, x: Instruction, coordinates: Coordinates, value: Operand) -> None:
        """The element of a reduction's result is known: in what follows, and in memory."""
        self._finished[x] = value
        self.store(x, coordinates, value)

    def define(self, x: Instruction, coordinates: Coordinates) -> None:
        """Compute the element of a root, for what follows and in memory."""
        value = self.compute(x, coordinates)
        self.know(x, coordinates, value)
        self.store(x, coordinates, value)

    def know(self, x: Instruction, coordinates: Coordinates, value: Operand) -> None:
        """The element of x is this value, in the innermost loop."""
        self._known[-1][x, *map(_name, coordinates)] = value

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """The element of x at these coordinates."""
        if x in self._finished:
            return self._finished[x]
        key = (x, *map(_name, coordinates))
        for known in reversed(self._known):
            if key in known:
                return known[key]
        found = self._value(x, coordinates)
        self._known[-1][key] = found
        return found

    def _value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        if x in self._rows:
            row, rank = self._rows[x]
            return self.builder.load(row, self.linear(x.array_shape.dimensions[rank:], coordinates[rank:]))
        if self.in_memory(x):
            return self.load(x, coordinates)
        return self.compute(x, coordinates)

    def compute(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """The element, computed from elements of the operands."""
        special = _MOVEMENT.get(x.op.name)
        if special is not None:
            return special(self, x, coordinates)
        operands = [self.value(o, coordinates) for o in x.operands]
        return self.scalar(x, operands)

    def scalar(self, x: Instruction, operands: Sequence[Operand], **extra: Any) -> Operand:
        """An element-wise op on elements."""
        attributes = dict(x.attributes._asdict())
        attributes.pop("new_element_type", None)
        if "type" in attributes:  # of a comparison
            attributes["compare_type"] = attributes.pop("type")
        return self.builder.compute(x.op.name, x.array_shape.element_type.name, *operands, **attributes, **extra)

    def apply(self, computation: Computation, operands: Sequence[Operand]) -> list[Operand]:
        """A computation of scalars, such as that of a reduction."""
        op = reduction.monoid(computation)
        inexact = computation.root.shape.element_type.is_inexact if isinstance(computation.root.shape, Shape) else False
        extra = {"reassociate": True} if op in _REASSOCIATED and inexact else {}
        values: dict[Instruction, Operand] = dict(zip(computation.parameters, operands, strict=True))
        for x in computation.instructions:
            if x in values or x.op is calls.tuple_:
                continue
            if x.op.name in _MOVEMENT:
                values[x] = self.compute(x, ()) if not x.operands else values[x.operands[0]]
            else:
                values[x] = self.scalar(x, [values[o] for o in x.operands], **extra)
        return [values[o] for o in computation.outputs]

    def initial(self, x: Instruction) -> list[Operand]:
        count = len(x.operands) // 2
        return [self.value(o, ()) for o in x.operands[count:]]

    def accumulate(self, x: Instruction, carried: Sequence[Operand], coordinates: Coordinates) -> list[Operand]:
        count = len(x.operands) // 2
        elements = [self.value(o, coordinates) for o in x.operands[:count]]
        return self.apply(x.attributes.to_apply, [*carried, *elements])


def _name(index: Index) -> int | str:
    return index if isinstance(index, int) else index.name


# --- data movement: index arithmetic --------------------------------------------------------------------------------------


def _constant(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    shape = x.array_shape
    return Literal(shape.element_type.name, x.attributes.literal.splat.item())


def _iota(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    index = coordinates[x.attributes.iota_dimension]
    if isinstance(index, int):
        return low.builder.compute("convert", x.array_shape.element_type.name, Literal(INDEX, index))
    return low.builder.compute("convert", x.array_shape.element_type.name, index)


def _broadcast(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    (operand,) = x.operands
    sizes = operand.array_shape.dimensions
    place = tuple(0 if sizes[k] == 1 else coordinates[d] for k, d in enumerate(x.attributes.dimensions))
    return low.value(operand, place)


def _transpose(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    place: list[Index] = [0] * len(coordinates)
    for d, to in enumerate(x.attributes.permutation):
        place[to] = coordinates[d]
    return low.value(x.operands[0], tuple(place))


def _reverse(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    place = list(coordinates)
    for d in x.attributes.dimensions:
        place[d] = low.builder.index("subtract", x.array_shape.dimensions[d] - 1, place[d])
    return low.value(x.operands[0], tuple(place))


def _slice(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    starts, _, strides = x.attributes
    place = [
        b.index("add", b.index("multiply", c, stride), start)
        for c, start, stride in zip(coordinates, starts, strides, strict=True)
    ]
    return low.value(x.operands[0], tuple(place))


def _reshape(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    (operand,) = x.operands
    result, source = x.array_shape.dimensions, operand.array_shape.dimensions
    place: list[Index] = [0] * len(source)
    for into, out in matching(source, result):
        if len(into) == 1 and len(out) == 1:
            place[into[0]] = coordinates[out[0]]
            continue
        together = low.linear([result[d] for d in out], [coordinates[d] for d in out])
        if low.in_memory(operand):
            place[into[-1]] = together  # in memory the last dimension may run on into those before it
            continue
        for d, c in zip(into, low.split_index(together, [source[d] for d in into]), strict=True):
            place[d] = c
    return low.value(operand, tuple(place))


def _within(low: Lowering, index: Index, size: int) -> Operand | None:
    """Whether an index is inside [0, size); None if that is certain."""
    if isinstance(index, int):
        return None if 0 <= index < size else Literal("pred", False)
    compare = low.builder.compute
    above = compare("compare", "pred", index, Literal(INDEX, 0), direction="GE", compare_type="SIGNED")
    below = compare("compare", "pred", index, Literal(INDEX, size), direction="LT", compare_type="SIGNED")
    return compare("and", "pred", above, below)


def _clamped(low: Lowering, index: Index, size: int) -> Index:
    return low.builder.index("minimum", low.builder.index("maximum", index, 0), size - 1)


def _pad(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    operand, padding = x.operands
    type_name = x.array_shape.element_type.name
    outside = low.value(padding, ())
    if operand.array_shape.size == 0:
        return outside
    inside: list[Operand] = []
    place: list[Index] = []
    for c, size, config in zip(coordinates, operand.array_shape.dimensions, x.attributes.padding_config, strict=True):
        low_edge, high_edge, interior = config
        if (low_edge, high_edge, interior) == (0, 0, 0):
            place.append(c)
            continue
        index = b.index("subtract", c, low_edge)
        if interior:
            # made positive first, since the remainder of what is negative has its sign
            step = interior + 1
            shifted = b.index("add", index, step * (-(-max(low_edge, 0) // step)))
            rest = b.index("remainder", shifted, step)
            hit = b.compute(
                "compare", "pred", _as_operand(rest), Literal(INDEX, 0), direction="EQ", compare_type="SIGNED"
            )
            inside.append(hit)
            index = b.index("subtract", b.index("divide", shifted, step), -(-max(low_edge, 0) // step))
        certain = low_edge <= 0 and high_edge <= 0 and not interior
        within = None if certain else _within(low, index, size)
        if within is not None:
            inside.append(within)
            index = _clamped(low, index, size)
        place.append(index)
    found = low.value(operand, tuple(place))
    if not inside:
        return found
    condition = inside[0]
    for other in inside[1:]:
        condition = b.compute("and", "pred", condition, other)
    return b.compute("select", type_name, condition, found, outside)


def _as_operand(index: Index) -> Operand:
    return Literal(INDEX, index) if isinstance(index, int) else index


def _concatenate(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    d = x.attributes.dimension
    index = coordinates[d]
    operands = [o for o in x.operands if o.array_shape.dimensions[d]] or list(x.operands[:1])
    starts = [0]
    for o in operands:
        starts.append(starts[-1] + o.array_shape.dimensions[d])
    found: Operand | None = None
    for k in reversed(range(len(operands))):
        size = operands[k].array_shape.dimensions[d]
        local = b.index("subtract", index, starts[k])
        clamped = _clamped(low, local, size) if len(operands) > 1 else local
        element = low.value(operands[k], (*coordinates[:d], clamped, *coordinates[d + 1 :]))
        if found is None:
            found = element
        else:
            before = b.compute(
                "compare",
                "pred",
                _as_operand(index),
                Literal(INDEX, starts[k + 1]),
                direction="LT",
                compare_type="SIGNED",
            )
            found = b.compute("select", x.array_shape.element_type.name, before, element, found)
    assert found is not None
    return found


_MOVEMENT: dict[str, Callable[[Lowering, Instruction, Coordinates], Operand]] = {
    "constant": _constant,
    "iota": _iota,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "reshape": _reshape,
    "pad": _pad,
    "concatenate": _concatenate,
}


# --- loop dimensions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """One loop: consecutive dimensions of the domain, `first` to `last`, together of `size` indices."""

    first: int
    last: int
    size: int


def merged(
    roots: Sequence[Instruction],
    stored: set[Instruction],
    sizes: Sequence[int],
    apart: Sequence[int] = (),
    also: Sequence[tuple[Instruction, Place]] = (),
) -> list[Axis]:
    """The loops of a domain. Neighbours become one where all that is read keeps them together, what is in `also` too, and
    no dimension in `apart` begins there. Dimensions of size 1 join any neighbour."""
    wide = [d for d, size in enumerate(sizes) if size != 1]
    joinable = dict.fromkeys(zip(wide, wide[1:], strict=False), True)
    whole = tuple(range(len(sizes)))
    read = [(x, place) for x, place, _ in walk(roots, stored)]
    for x, place in [*((root, whole) for root in roots), *read, *also]:
        pure = [c for c in place if c != -1]
        # dimensions under an iota are counted, and those in a function of the index are told apart
        broken = dims_of([c for c in pure if isinstance(c, frozenset)])
        if x.op is movement.iota:
            broken |= dims_of([place[x.attributes.iota_dimension]])
        follows = set(zip(pure, pure[1:], strict=False))
        for pair in joinable:
            present = (pair[0] in pure, pair[1] in pure)
            if broken & set(pair) or (any(present) and pair not in follows):
                joinable[pair] = False
    axes: list[Axis] = []
    for k, d in enumerate(wide):
        if k and joinable[wide[k - 1], d] and not any(wide[k - 1] < a <= d for a in apart):
            axes[-1] = Axis(axes[-1].first, d, axes[-1].size * sizes[d])
        else:
            axes.append(Axis(d, d, sizes[d]))
    return axes


def spread(axes: Sequence[Axis], indices: Sequence[Index], rank: int) -> Coordinates:
    """The coordinates in the domain: a merged loop's index belongs to its last dimension."""
    found: list[Index] = [0] * rank
    for axis, index in zip(axes, indices, strict=True):
        found[axis.last] = index
    return tuple(found)


# --- kinds of nests -----------------------------------------------------------------------------------------------------


def lower(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a fusion: one, or two where pieces are reduced first."""
    return _KINDS[fusion.kind](fusion, plan, users)


def _cost(roots: Sequence[Instruction], stored: set[Instruction]) -> int:
    """Work for one element, in simple operations."""
    seen = {x for x, _, _ in walk(roots, stored)} | set(roots)
    return sum(_COSTLY_WORK if is_costly(x) else 1 for x in seen)


def _finish(low: Lowering, extent: int, work: int, roots: Sequence[Instruction]) -> LoweredKernel:
    """`work` is that of one index of the outermost loop."""
    grain = max(1, CHUNK * _COSTLY_WORK // max(1, work))
    return LoweredKernel(low.builder.kernel, low.arguments, extent, grain, list(roots))


def _loop(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots, sizes = fusion.roots, fusion.outer
    low = Lowering("loop", plan, roots)
    axes = merged(roots, plan.stored, sizes)
    work = _cost(roots, plan.stored)
    first, last = low.builder.kernel.first, low.builder.kernel.last

    def body(coordinates: Coordinates) -> None:
        for root in roots:
            low.define(root, coordinates)

    if len(axes) < 2:
        with low.loop(first, last) as (index, _):
            body(spread(axes, [index][: len(axes)], len(sizes)))
        return [_finish(low, axes[0].size if axes else 1, work, roots)]
    *outer, inner = axes
    rows = math.prod(a.size for a in outer)
    crossing = _crossing(roots, plan.stored, axes) if rows * inner.size > SERIAL else None
    if crossing is not None:
        return [_tiled(low, axes, crossing, work, roots)]
    pieces = -(-inner.size // CHUNK) if rows < 16 else 1
    with low.loop(first, last) as (index, _):
        row, start, stop = _piece(low, index, pieces, inner.size)
        indices = low.split_index(row, [a.size for a in outer])
        with low.loop(start, stop) as (j, _):
            body(spread(axes, [*indices, j], len(sizes)))
    return [_finish(low, rows * pieces, work * -(-inner.size // pieces), roots)]


def _crossing(roots: Sequence[Instruction], stored: set[Instruction], axes: Sequence[Axis]) -> Axis | None:
    """An outer loop along which something is contiguous in memory that the inner loop would read with long strides."""
    for axis in axes[:-1]:
        if _read_along(axis, roots, stored):
            return axis
    return None


def _read_along(axis: Axis, roots: Sequence[Instruction], stored: set[Instruction]) -> list[tuple[Instruction, Place]]:
    """What is read from memory such that this loop runs through it without gaps."""
    found: list[tuple[Instruction, Place]] = []
    for x, place, from_memory in walk(roots, stored):
        wide = [c for c in place if c != -1]
        plain = not any(isinstance(c, frozenset) for c in wide)
        if from_memory and plain and x.array_shape.size >= SERIAL and wide and wide[-1] == axis.last:
            found.append((x, place))
    return found


def _tiled(
    low: Lowering, axes: Sequence[Axis], crossing: Axis, work: int, roots: Sequence[Instruction]
) -> LoweredKernel:
    """Squares of two loops at a time. What lies across is first copied, row by row as it is in memory, to a square that
    stays in the cache; so every line of memory is read once."""
    b = low.builder
    inner = axes[-1]
    others = [a for a in axes if a not in (crossing, inner)]
    counts = [*(a.size for a in others), -(-crossing.size // TILE), -(-inner.size // TILE)]
    rank = len(domain(roots[0]))
    across = _read_along(crossing, roots, low.stored)
    pitch = TILE + 1  # so that neither direction meets the same cache set again and again
    squares = [b.scratch(x.array_shape.element_type.name, TILE * pitch) for x, _ in across]
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        *indices, square, column = low.split_index(index, counts)
        top, left = b.index("multiply", square, TILE), b.index("multiply", column, TILE)
        height = b.index("minimum", b.index("subtract", crossing.size, top), TILE)
        width = b.index("minimum", b.index("subtract", inner.size, left), TILE)

        def coordinates_at(i: Index, j: Index) -> Coordinates:
            by_axis = dict(
                zip(
                    [*others, crossing, inner], [*indices, b.index("add", top, i), b.index("add", left, j)], strict=True
                )
            )
            return spread(axes, [by_axis[a] for a in axes], rank)

        def read_at(place: Place, coordinates: Coordinates) -> Coordinates:
            return tuple(coordinates[c] if isinstance(c, int) and c >= 0 else 0 for c in place)

        with low.loop(0, width) as (j, _), low.loop(0, height) as (i, _):
            coordinates = coordinates_at(i, j)
            for (x, place), copy in zip(across, squares, strict=True):
                value = low.load(x, read_at(place, coordinates))
                b.store(copy, b.index("add", b.index("multiply", j, pitch), i), value)
        with low.loop(0, height) as (i, _), low.loop(0, width) as (j, _):
            coordinates = coordinates_at(i, j)
            for (x, place), copy in zip(across, squares, strict=True):
                value = b.load(copy, b.index("add", b.index("multiply", j, pitch), i))
                low.know(x, read_at(place, coordinates), value)
            for root in roots:
                low.define(root, coordinates)
    return _finish(low, math.prod(counts), work * TILE * TILE, roots)


def _piece(low: Lowering, index: Index, pieces: int, size: int) -> tuple[Index, Index, Index]:
    """Which row, and from where to where in it, for an index that counts pieces of rows."""
    b = low.builder
    if pieces == 1:
        return index, 0, size
    length = -(-size // pieces)
    start = b.index("multiply", b.index("remainder", index, pieces), length)
    start = b.index("minimum", start, size)
    return b.index("divide", index, pieces), start, b.index("minimum", b.index("add", start, length), size)


def _row(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots = fusion.roots
    low = Lowering("row", plan, [r for root in roots for r in results_of(root, users)])
    phases = _phases(fusion, plan.stored, users)
    kept = _kept_rows(phases, fusion, plan.stored)
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (row, _):
        outer = low.split_index(row, fusion.outer)
        for phase in phases:
            _phase(low, phase, outer, fusion, kept, users)
    rows = math.prod(fusion.outer)
    inner = sum(math.prod(domain(p[0])) // max(1, rows) for p in phases)
    return [_finish(low, rows, _cost(roots, plan.stored) * max(1, inner), roots)]


def _inner_order(root: Instruction, rank: int) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root's domain."""
    x = base(root)
    dims = range(len(domain(root)))
    if x.op is reduction.reduce:
        return [d for d in dims if d not in x.attributes.dimensions], list(x.attributes.dimensions)
    return list(dims[:rank]), list(dims[rank:])


def _phases(fusion: Fusion, stored: set[Instruction], users: Any) -> list[list[Instruction]]:
    """Loops over a row, one after the other, with the roots that share each.

    A root comes after the reductions it needs, and after what it reads at other places of the row.
    """
    rank = len(fusion.outer)
    members = {r: root for root in fusion.roots for r in results_of(root, users)}
    level: dict[Instruction, int] = {}
    groups: dict[tuple[int, tuple[int, ...]], list[Instruction]] = {}
    for root in fusion.roots:
        at = 0
        here = tuple(range(len(domain(root))))
        for x, place, _ in walk([root], stored):
            if x in members:
                needed = members[x]
                same = (
                    base(needed).op is not reduction.reduce
                    and len(place) == len(here)
                    and all(c in (-1, d) for d, c in enumerate(place))
                )
                at = max(at, level[needed] + (not same))
        level[root] = at
        inner = tuple(domain(root)[d] for d in _inner_order(root, rank)[1])
        groups.setdefault((at, inner), []).append(root)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def _kept_rows(phases: list[list[Instruction]], fusion: Fusion, stored: set[Instruction]) -> set[Instruction]:
    """Costly intermediates of a row that several phases need, as far as they fit into the first cache."""
    rank = len(fusion.outer)
    first: dict[Instruction, int] = {}
    found: set[Instruction] = set()
    room = ROWS_LIMIT
    for k, phase in enumerate(phases):
        for x, place, from_memory in walk(phase, stored):
            whole = all(c in (-1, d) for d, c in enumerate(place))
            if from_memory or not is_costly(x) or not whole or x in found:
                continue
            if x.array_shape.dimensions[:rank] != fusion.outer or len(place) == rank:
                continue
            size = math.prod(x.array_shape.dimensions[rank:])
            bytes_needed = size * x.array_shape.dtype.itemsize
            if first.setdefault(x, k) != k and size <= LARGEST_ROW and bytes_needed <= room:
                found.add(x)
                room -= bytes_needed
    return found


def _phase(
    low: Lowering, phase: list[Instruction], outer: Coordinates, fusion: Fusion, kept: set[Instruction], users: Any
) -> None:
    rank = len(fusion.outer)
    sizes = domain(phase[0])
    outer_dims, inner_dims = _inner_order(phase[0], rank)
    trailing = inner_dims == list(range(len(outer_dims), len(sizes)))
    axes = merged(phase, low.stored, sizes, apart=[*outer_dims, *inner_dims[:1]] if trailing else range(len(sizes)))
    axes = [a for a in axes if a.first in inner_dims]
    reduced = [root for root in phase if base(root).op is reduction.reduce]
    plain = [root for root in phase if root not in reduced]
    carried: list[Operand] = []
    for root in reduced:
        carried += low.initial(base(root))
    here = [x for x in kept if not low.is_kept(x) and _computed_in(x, phase, low.stored)]
    scratch = {
        x: low.builder.scratch(x.array_shape.element_type.name, math.prod(x.array_shape.dimensions[rank:]))
        for x in here
    }

    def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
        place = list(spread(axes, indices, len(sizes)))
        for d, c in zip(outer_dims, outer, strict=True):
            place[d] = c
        coordinates = tuple(place)
        for x, row in scratch.items():
            low.builder.store(
                row, low.linear(x.array_shape.dimensions[rank:], coordinates[rank:]), low.value(x, coordinates)
            )
        updated: list[Operand] = []
        for root in reduced:
            count = len(base(root).operands) // 2
            updated += low.accumulate(base(root), values[len(updated) : len(updated) + count], coordinates)
        for root in plain:
            low.define(root, coordinates)
        return updated

    low._known.append({})
    results = low.nest([(0, a.size) for a in axes], carried, body)
    low._known.pop()
    for root in reduced:
        x = base(root)
        count = len(x.operands) // 2
        mine, results = results[:count], results[count:]
        for part in results_of(x, users):
            low.finish(part, outer, mine[part.attributes.index if part is not x else 0])
    low.complete(plain)
    for x, row in scratch.items():
        low.keep(x, row, rank)


def _computed_in(x: Instruction, phase: list[Instruction], stored: set[Instruction]) -> bool:
    return any(y is x and all(c in (-1, d) for d, c in enumerate(place)) for y, place, _ in walk(phase, stored))


def _column(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Blocks of columns; for each a row of accumulators, over which the other dimensions run."""
    space = _Reductions(fusion, plan)
    sizes, roots, work = space.sizes, space.roots, space.work
    *others, columns = space.axes
    over = [a for a in others if a.first in space.reduced]
    kept = [a for a in others if a.first not in space.reduced]
    width = min(columns.size, COLUMNS)
    blocks = -(-columns.size // COLUMNS)
    independent = math.prod(a.size for a in kept) * blocks
    long = over[0].size if over else 1
    each = math.prod(a.size for a in over[1:]) * width * work
    pieces = max(1, min(64, long * each // (CHUNK * _COSTLY_WORK))) if independent < FEW_COLUMNS else 1
    low = Lowering("column", plan, space.own(users))
    b = low.builder
    rows = [b.scratch(x.array_shape.element_type.name, width) for x in space.arrays]
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        piece = b.index("remainder", index, pieces)
        index = b.index("divide", index, pieces)
        begin = b.index("multiply", b.index("remainder", index, blocks), COLUMNS)
        outer = low.split_index(b.index("divide", index, blocks), [a.size for a in kept])
        left = columns.size if blocks == 1 else b.index("subtract", columns.size, begin)
        here = b.index("minimum", left, COLUMNS)
        initial = [value for root in roots for value in low.initial(base(root))]
        with low.loop(0, here) as (j, _):
            for row, value in zip(rows, initial, strict=True):
                b.store(row, j, value)

        def accumulate(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            with low.loop(0, here) as (j, _):
                place = space.place([*kept, *over, columns], [*outer, *indices, b.index("add", begin, j)])
                updated = space.accumulate(low, [b.load(row, j) for row in rows], place)
                for row, value in zip(rows, updated, strict=True):
                    b.store(row, j, value)
            return values

        bounds: list[tuple[Index, Index]] = [(0, a.size) for a in over]
        if pieces > 1:
            bounds[0] = _piece(low, piece, pieces, long)[1:]
        low.nest(bounds, (), accumulate, sequential=True)
        with low.loop(0, here) as (j, _):
            place = space.place([*kept, columns], [*outer, b.index("add", begin, j)])
            result = tuple(c for d, c in enumerate(place) if d not in space.reduced)
            space.deliver(low, [b.load(row, j) for row in rows], result, piece, pieces, users)
    first = _finish(low, independent * pieces, each * max(1, long // pieces), roots)
    return [first] if pieces == 1 else [first, _combine(space, plan, users, pieces)]


class _Reductions:
    """What `column` and `split` nests have in common: reductions over one space, and what is made of their results."""

    def __init__(self, fusion: Fusion, plan: Plan) -> None:
        self.roots = [root for root in fusion.roots if base(root).op is reduction.reduce]
        self.after = [root for root in fusion.roots if root not in self.roots]
        self.sizes = domain(self.roots[0])
        self.reduced: tuple[int, ...] = base(self.roots[0]).attributes.dimensions
        self.results = fusion.outer
        self.arrays = [x for root in self.roots for x in base(root).operands[: len(base(root).operands) // 2]]
        self.partials: list[Partial] = []
        breaks = [d for d in range(1, len(self.sizes)) if (d in self.reduced) != (d - 1 in self.reduced)]
        kept = [d for d in range(len(self.sizes)) if d not in self.reduced]
        after = [*((x, tuple(range(len(kept)))) for x in self.after), *((x, p) for x, p, _ in walk(self.after, plan.stored))]
        also = [(x, renumbered(place, kept)) for x, place in after]
        self.axes = merged(self.roots, plan.stored, self.sizes, apart=breaks, also=also)
        self.work = _cost(self.roots, plan.stored)

    def own(self, users: Users) -> list[Instruction]:
        return [*self.after, *(part for root in self.roots for part in results_of(root, users))]

    def place(self, axes: Sequence[Axis], indices: Sequence[Index]) -> Coordinates:
        by_axis = dict(zip(axes, indices, strict=True))
        given = [a for a in self.axes if a in by_axis]
        return spread(given, [by_axis[a] for a in given], len(self.sizes))

    def accumulate(self, low: Lowering, values: Sequence[Operand], place: Coordinates) -> list[Operand]:
        updated: list[Operand] = []
        for root in self.roots:
            count = len(base(root).operands) // 2
            updated += low.accumulate(base(root), values[len(updated) : len(updated) + count], place)
        return updated

    def deliver(
        self,
        low: Lowering,
        values: Sequence[Operand],
        result: Coordinates,
        piece: Index,
        pieces: int,
        users: Users,
    ) -> None:
        """Put away what was reduced: as one of several pieces, or as the results and what is made of them."""
        if pieces > 1:
            if not self.partials:
                self.partials = [
                    Partial(Shape(x.array_shape.element_type, (pieces, *self.results))) for x in self.arrays
                ]
            for partial, value in zip(self.partials, values, strict=True):
                low.store(partial, (piece, *result), value)
            return
        rest = list(values)
        for root in self.roots:
            count = len(base(root).operands) // 2
            mine, rest = rest[:count], rest[count:]
            for part in results_of(root, users):
                low.finish(part, result, mine[part.attributes.index if part is not base(root) else 0])
        for root in self.after:
            low.define(root, result)


def _combine(space: _Reductions, plan: Plan, users: Users, pieces: int) -> LoweredKernel:
    """Reduce over the pieces, which are the first dimension of the partial results."""
    low = Lowering("combine", plan, space.own(users))
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        result = low.split_index(index, space.results)
        initial = [value for root in space.roots for value in low.initial(base(root))]

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            elements = [low.load(partial, (*indices, *result)) for partial in space.partials]
            updated: list[Operand] = []
            for root in space.roots:
                span = slice(len(updated), len(updated) + len(base(root).operands) // 2)
                updated += low.apply(base(root).attributes.to_apply, [*values[span], *elements[span]])
            return updated

        found = low.nest([(0, pieces)], initial, body)
        space.deliver(low, found, result, 0, 1, users)
    return _finish(low, math.prod(space.results), pieces, space.roots)


def _split(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Reductions to few elements: fixed pieces of the first reduced dimension, and then these together."""
    space = _Reductions(fusion, plan)
    over = [a for a in space.axes if a.first in space.reduced]
    kept = [a for a in space.axes if a.first not in space.reduced]
    inner = math.prod(a.size for a in over[1:])
    pieces = max(1, min(over[0].size, over[0].size * inner // CHUNK))
    low = Lowering("split", plan, space.own(users))
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        piece = b.index("remainder", index, pieces)
        outer = low.split_index(b.index("divide", index, pieces), [a.size for a in kept])
        initial = [value for root in space.roots for value in low.initial(base(root))]
        bounds: list[tuple[Index, Index]] = [(0, a.size) for a in over]
        if pieces > 1:
            bounds[0] = _piece(low, piece, pieces, over[0].size)[1:]

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            return space.accumulate(low, values, space.place([*kept, *over], [*outer, *indices]))

        found = low.nest(bounds, initial, body)
        whole = space.place(kept, outer)
        result = tuple(c for d, c in enumerate(whole) if d not in space.reduced)
        space.deliver(low, found, result, piece, pieces, users)
    rows = math.prod(a.size for a in kept)
    first = _finish(low, rows * pieces, space.work * inner * -(-over[0].size // pieces), space.roots)
    return [first] if pieces == 1 else [first, _combine(space, plan, users, pieces)]


_KINDS: dict[str, Callable[[Fusion, Plan, Users], list[LoweredKernel]]] = {
    "loop": _loop,
    "row": _row,
    "column": _column,
    "split": _split,
}
