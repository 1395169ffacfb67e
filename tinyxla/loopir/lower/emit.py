"""Loop nests from fusions: the instructions of a nest are emitted where they are read, element by element.

The value of an instruction at an index is asked for, and asks in turn for its operands' values at theirs: data movement
is nothing but arithmetic on the index. A coordinate is an int or an `s64` value. The loops around are made in `nests`.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.compiler.analysis.access_maps import slices_of_one_array, split_dimensions
from tinyxla.compiler.fusion.plan import Plan, is_leaf
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    Buffer,
    Builder,
    Index,
    Kernel,
    Literal,
    Loop,
    Operand,
    Value,
    operand_of,
    storage_type,
)
from tinyxla.loopir.lower import storage_types
from tinyxla.ops import calls, elementwise, indexing, reduction
from tinyxla.ops.accuracy import working_type
from tinyxla.shapes import Shape, element_type

_REASSOCIATED = ("add", "multiply")
LANES = 64  # elements of a row that are reduced side by side
ROWS = (8, 6, 5, 7, 4, 3, 4)  # short ones, of which lanes take an element each at once
FEW_LANES = 8  # that are combined one after the other
_DEEP = 50  # elements that are computed for each other, from which on what they need is computed before


@dataclass(eq=False)
class Temporary:
    """Memory for the results of the pieces of a reduction."""

    shape: Shape


Storage = Instruction | Temporary


@dataclass
class LoweredKernel:
    """A kernel, what its arguments are, and over which range it runs in pieces of `grain`; and the numbers that it
    takes from its table, if it was made to serve all sizes. One that `lasts` is the same for all programs. Pieces that
    wait for others are begun `in_order`. Its `work` is counted in simple operations, where that is known."""

    kernel: Kernel
    arguments: list[Storage]
    extent: int
    grain: int
    roots: list[Instruction]
    parameters: tuple[int, ...] = ()
    is_builtin: bool = False
    starts_in_order: bool = False
    work: int = 0


Coordinates = tuple[Index, ...]
MemoryLookup = Callable[[Coordinates], tuple[Buffer, Index] | None]
Users = dict[Instruction, list[Instruction]]


class Lowering:
    """Emits one kernel."""

    def __init__(self, name: str, plan: Plan, own: Iterable[Instruction] = ()) -> None:
        self.builder = Builder(name)
        self.materialized = plan.materialized
        self.live_out = plan.live_out
        self.arguments: list[Storage] = []
        self._buffers: dict[Storage, Buffer] = {}
        self._kept: dict[Instruction, MemoryLookup] = {}
        self._finished: dict[Instruction, Operand] = {}  # reductions of this row
        self._own = set(own)  # what this kernel makes, as long as it is not in memory
        self.sums: dict[str, tuple[Index, Index]] = {}  # where an index of lanes begins, and the lane
        self._split: dict[Any, Index] = {}  # indices by the steps whose sum they are
        self._known: list[dict[Any, Operand]] = [{}]
        self._parts: list[dict[Any, list[Operand]]] = [{}]
        self._depth = 0  # of elements that are computed for others

    # --- memory

    def buffer(self, x: Storage, written: bool = False, type: str = "") -> Buffer:
        """Where an array is, whose elements a kernel may take for those of another type of as many bits."""
        found = self._buffers.get(x)
        if found is None:
            shape = x.shape if isinstance(x, Temporary) else x.array_shape
            found = self._buffers[x] = self.builder.argument(type or shape.element_type.name, written)
            self.arguments.append(x)
        return found

    def linearize(self, sizes: Sequence[int], coordinates: Sequence[Index]) -> Index:
        """The place of an element in row-major memory."""
        b = self.builder
        place: Index = 0
        stride = 1
        for k in range(len(sizes) - 1):
            whole = self._split.get(_steps(sizes[k:], coordinates[k:]))
            if whole is not None:
                place, stride = whole, math.prod(sizes[k:])
                sizes, coordinates = sizes[:k], coordinates[:k]
                break
        for size, c in zip(reversed(sizes), reversed(coordinates), strict=True):
            if size != 1:
                place = b.add(b.mul(c, stride), place)
            stride *= size
        return place

    def load(self, x: Storage, coordinates: Sequence[Index]) -> Operand:
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.builder.load(self.buffer(x), self.linearize(shape.dimensions, coordinates))

    def store(self, x: Storage, coordinates: Sequence[Index], value: Operand) -> None:
        """Put an element where it is read later, if it is."""
        if isinstance(x, Instruction) and x not in self.live_out:
            return
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        self.builder.store(self.buffer(x, True), self.linearize(shape.dimensions, coordinates), value)

    # --- loops

    @contextmanager
    def loop(
        self, start: Index, stop: Index, carried: Sequence[Operand] = (), sequential: bool = False
    ) -> Generator[tuple[Value, Loop]]:
        with self.scope(), self.builder.loop(start, stop, carried, sequential) as opened:
            yield opened

    @contextmanager
    def scope(self) -> Generator[None]:
        """What becomes known inside is forgotten after."""
        self._known.append({})
        self._parts.append({})
        yield
        self._parts.pop()
        self._known.pop()

    def nest(
        self,
        bounds: Sequence[tuple[Index, Index]],
        carried: Sequence[Operand],
        body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
        sequential: bool = False,
        in_vectors: bool = False,
    ) -> list[Operand]:
        """Loops in one another; `body(indices, carried)` gives the carried values of the next iteration."""
        if not bounds:
            return list(body((), list(carried)))
        (start, stop), *rest = bounds
        with self.loop(start, stop, carried, sequential) as (index, loop):
            loop.force_vectorize = in_vectors
            inside: list[Operand] = [c.arg for c in loop.carried]
            updated = self.nest(rest, inside, lambda more, values: body((index, *more), values), sequential, in_vectors)
            for slot, value in zip(loop.carried, updated, strict=True):
                slot.next = value
        return [c.result for c in loop.carried]

    def nest_unrolled(
        self,
        bounds: Sequence[tuple[Index, Index]],
        counts: Sequence[int],
        body: Callable[[Sequence[Coordinates]], None],
    ) -> None:
        """Loops in one another; `body` gets the indices of several neighbours at once, and of those that are left: so
        many as the first of `counts` that leaves none, or else the last."""
        if not bounds:
            return body([()])
        b = self.builder
        *outer, (start, stop) = bounds
        size = b.sub(stop, start)
        count = next((k for k in counts if isinstance(size, int) and size % k == 0), counts[-1])

        def inner(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            rest = start
            if count > 1:
                whole = b.floordiv(size, count)
                with self.loop(0, whole, sequential=True) as (k, _):
                    first = b.add(start, b.mul(k, count))
                    body([(*indices, b.add(first, more)) for more in range(count)])
                rest = b.add(start, b.mul(whole, count))
            if rest != stop:
                with self.loop(rest, stop, sequential=True) as (k, _):
                    body([(*indices, k)])
            return carried

        self.nest(outer, (), inner, sequential=True)

    def nest_with_accumulators(
        self,
        bounds: Sequence[tuple[Index, Index]],
        initial: Sequence[Operand],
        neutral: Sequence[Operand],
        body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
        combine: Callable[[Sequence[Operand], Sequence[Operand]], Sequence[Operand]],
    ) -> list[Operand]:
        """The same for what is carried by a commutative reduction: `LANES` elements side by side, or all of a short
        row, have carried values of their own, in rows, so that the loop over them becomes one of vectors."""
        b = self.builder
        *outer, (start, stop) = bounds
        size = stop - start if isinstance(start, int) and isinstance(stop, int) else 2 * LANES
        width = size if size < 2 * LANES else LANES
        rows = [b.scratch(x.type, width) for x in initial]

        def update(lane: Index, change: Callable[[list[Operand]], Sequence[Operand]]) -> None:
            for row, value in zip(rows, change([b.load(row, lane) for row in rows]), strict=True):
                b.store(row, lane, value)

        def lanes(places: Sequence[Coordinates], first: Index, count: Index) -> None:
            with self.loop(0, count) as (lane, loop):
                loop.force_vectorize = True
                index = b.add(first, lane)
                if isinstance(index, Value):
                    self.sums[index.name] = (first, lane)

                def joined(values: list[Operand]) -> Sequence[Operand]:
                    for place in places:
                        values = list(body((*place, index), values))
                    return values

                update(lane, joined)

        def blocks(places: Sequence[Coordinates]) -> None:
            count = b.sub(stop, start)
            whole = b.floordiv(count, width)
            with self.loop(0, whole) as (block, _):
                lanes(places, b.add(start, b.mul(block, width)), width)
            rest = b.remainder(count, width)
            if rest != 0:
                lanes(places, b.add(start, b.mul(whole, width)), rest)

        with self.loop(0, width) as (lane, _):
            update(lane, lambda _: neutral)
        # A short row does not fill vectors, and what is masked is not read back as quickly as it was written.
        self.nest_unrolled(outer, [1] if width == LANES else ROWS, blocks)
        halvings = (LANES // FEW_LANES).bit_length() - 1 if width == LANES else 0
        with self.loop(0, halvings, [Literal(INDEX, LANES)], True) as (_, halves):
            half = b.floordiv(halves.carried[0].arg, 2)
            halves.carried[0].next = operand_of(half)
            with self.loop(0, half) as (lane, _):
                other = b.add(lane, half)
                update(lane, lambda values: combine(values, [b.load(row, other) for row in rows]))
        return self.nest(
            [(0, FEW_LANES if halvings else width)],
            initial,
            lambda indices, values: combine(values, [b.load(row, indices[0]) for row in rows]),
            sequential=halvings > 0,
        )

    def split_index(self, index: Index, sizes: Sequence[int]) -> Coordinates:
        """The coordinates of the index-th element of a space."""
        if math.prod(sizes):
            self.builder.assume_range(index, 0, math.prod(sizes) - 1)
        coordinates = tuple(self.builder.delinearize(index, *sizes[1:])) if sizes else ()
        steps = _steps(sizes, coordinates)
        if len(steps) > 1:
            self._split[steps] = index
        return coordinates

    # --- values

    def in_memory(self, x: Instruction) -> bool:
        return (x in self.materialized and x not in self._own) or is_leaf(x)

    def mark_materialized(self, roots: Iterable[Instruction]) -> None:
        """These are in memory now, for the row at hand."""
        self._own.difference_update(roots)

    def bind_memory(self, x: Instruction, where: MemoryLookup) -> None:
        """Elements of x are in a buffer of this kernel: at which place, if that one is."""
        self._kept[x] = where

    def has_memory(self, x: Instruction) -> bool:
        return x in self._kept

    def bind_reduction(self, x: Instruction, coordinates: Coordinates, value: Operand) -> None:
        """The element of a reduction's result is known: in what follows, and in memory."""
        self._finished[x] = value
        self.store(x, coordinates, value)

    def emit_root(self, x: Instruction, coordinates: Coordinates) -> None:
        """Compute the element of a root, for what follows and in memory."""
        value = self.compute(x, coordinates)
        self.bind_value(x, coordinates, value)
        self.store(x, coordinates, value)

    def bind_value(self, x: Instruction, coordinates: Coordinates, value: Operand) -> None:
        """The element of x is this value, in the innermost loop."""
        self._known[-1][x, *map(_name, coordinates)] = value

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """The element of x at these coordinates."""
        found = self._found(x, coordinates)
        if found is None:
            self._depth += 1
            if self._depth > _DEEP and self._is_scalar(x):  # Python has a limit of calls in each other
                for y in self._before(x, coordinates):
                    self.value(y, coordinates)
            found = self._value(x, coordinates)
            self._depth -= 1
            self.bind_value(x, coordinates, found)
        return found

    def _found(self, x: Instruction, coordinates: Coordinates) -> Operand | None:
        if x in self._finished:
            return self._finished[x]
        key = (x, *map(_name, coordinates))
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def _before(self, x: Instruction, coordinates: Coordinates) -> list[Instruction]:
        """What is computed from elements at the same place for this one, in the order of calls."""
        order: list[Instruction] = []
        seen: set[Instruction] = set()
        stack = [(x, iter(x.operands))]
        while stack:
            operands = stack[-1][1]
            for o in operands:
                if o not in seen and self._is_scalar(o) and self._found(o, coordinates) is None:
                    seen.add(o)
                    stack.append((o, iter(o.operands)))
                    break
            else:
                order.append(stack.pop()[0])
        return order[:-1]

    def _is_scalar(self, x: Instruction) -> bool:
        """Whether an element is computed from elements of the operands at the same place."""
        others = x in self._kept or self.in_memory(x) or x.op is calls.get_tuple_element
        return not (others or x.op.name in _MOVEMENT or x.op.name in _STRUCTURED)

    def _value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        kept = self._kept[x](coordinates) if x in self._kept else None
        if kept is not None:
            return self.builder.load(*kept)
        if self.in_memory(x):
            return self.load(x, coordinates)
        return self.compute(x, coordinates)

    def compute(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """The element, computed from elements of the operands."""
        special = _MOVEMENT.get(x.op.name)
        if special is not None:
            return special(self, x, coordinates)
        if x.op is calls.get_tuple_element:
            return self.parts(x.operands[0], coordinates)[x.attributes.index]
        if x.op.name in _STRUCTURED:
            return self.parts(x, coordinates)[0]
        operands = [self.value(o, coordinates) for o in x.operands]
        if x.op is elementwise.convert:
            source, target = x.operands[0].array_shape.element_type, x.array_shape.element_type
            if storage_types.is_narrow(source) or storage_types.is_narrow(target):
                return storage_types.convert(self, operands[0], source, target)
        return self.scalar(x, operands)

    def scalar(self, x: Instruction, operands: Sequence[Operand], **extra: Any) -> Operand:
        """An element-wise op on elements, in a wider type where it has to be more accurate than usual."""
        attributes = dict(x.attributes._asdict())
        kind = x.array_shape.element_type
        wide = working_type(x.op.name, kind, attributes.pop("result_accuracy", None))
        if wide is not kind:
            converted = [self.builder.convert(wide.name, operand) for operand in operands]
            result = self.builder.compute(x.op.name, wide.name, *converted)
            return self.builder.convert(kind.name, result)
        attributes.pop("new_element_type", None)
        if "type" in attributes:  # of a comparison
            attributes["compare_type"] = attributes.pop("type")
        return self.builder.compute(x.op.name, kind.name, *operands, **attributes, **extra)

    def apply(self, computation: Computation, operands: Sequence[Operand]) -> list[Operand]:
        """A computation of scalars, such as that of a reduction."""
        (first, *_) = computation.outputs
        if reduction.monoid(computation) in _REASSOCIATED and first.array_shape.element_type.is_inexact:
            return [self.scalar(first, operands, reassociate=True)]
        with self.scope():
            for parameter, operand in zip(computation.parameters, operands, strict=True):
                self.bind_value(parameter, (), operand)
            for x in computation.instructions:  # scalars once, before loops inside that read them
                if isinstance(x.shape, Shape) and not x.shape.rank:
                    self.value(x, ())
            return [self.value(x, ()) for x in computation.outputs]

    def parts(self, x: Instruction, coordinates: Coordinates) -> list[Operand]:
        """The elements of the results of a reduction, a loop or branches inside a computation of scalars."""
        key = (x, "parts", *map(_name, coordinates))
        for known in reversed(self._parts):
            if key in known:
                return known[key]
        found = self._parts[-1][key] = _STRUCTURED[x.op.name](self, x, coordinates)
        return found

    def initial(self, x: Instruction) -> list[Operand]:
        count = len(x.operands) // 2
        return [self.value(o, ()) for o in x.operands[count:]]

    def identity(self, x: Instruction) -> list[Operand]:
        """Where one of several pieces of a reduction starts: the initial value counts once, where they are joined."""
        op = reduction.monoid(x.attributes.to_apply)
        if op is None:
            return self.initial(x)
        kind = x.operands[0].array_shape.element_type
        value = np.asarray(reduction.identity_element(op, kind.dtype)).astype(kind.dtype)
        return [Literal(kind.name, value.item())]

    def accumulate(self, x: Instruction, carried: Sequence[Operand], coordinates: Coordinates) -> list[Operand]:
        count = len(x.operands) // 2
        elements = [self.value(o, coordinates) for o in x.operands[:count]]
        return self.apply(x.attributes.to_apply, [*carried, *elements])


def zero(shape: Shape) -> Literal:
    """The scalar 0 of a shape's type."""
    kind = element_type(storage_type(shape.element_type.name))
    return Literal(kind.name, np.zeros((), kind.dtype).item())


def _steps(sizes: Sequence[int], coordinates: Sequence[Index]) -> tuple[tuple[int, int | str], ...]:
    """What a place in row-major memory is the sum of: strides, and the coordinates that these are times."""
    found: list[tuple[int, int | str]] = []
    stride = 1
    for size, c in zip(reversed(sizes), reversed(coordinates), strict=True):
        if size != 1 and c != 0:
            found.append((stride, _name(c)))
        stride *= size
    return tuple(found)


def _name(index: Index) -> int | str:
    return index if isinstance(index, int) else index.name


# --- data movement: index arithmetic ----------------------------------------------------------------------------------


def _constant(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    shape = x.array_shape
    return Literal(shape.element_type.name, x.attributes.literal.splat.item())


def _iota(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    index, kind = coordinates[x.attributes.iota_dimension], x.array_shape.element_type
    convert = low.builder.compute
    if kind.is_integer and isinstance(index, Value) and index.name in low.sums:  # so vectors hold no wider integers
        parts = [convert("convert", kind.name, operand_of(part)) for part in low.sums[index.name]]
        return convert("add", kind.name, *parts)
    return convert("convert", kind.name, operand_of(index))


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
        place[d] = low.builder.sub(x.array_shape.dimensions[d] - 1, place[d])
    return low.value(x.operands[0], tuple(place))


def _slice(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    starts, _, strides = x.attributes
    place = [b.add(b.mul(c, stride), start) for c, start, stride in zip(coordinates, starts, strides, strict=True)]
    return low.value(x.operands[0], tuple(place))


def _reshape(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    (operand,) = x.operands
    result, source = x.array_shape.dimensions, operand.array_shape.dimensions
    place: list[Index] = [0] * len(source)
    for into, out in split_dimensions(source, result):
        if len(into) == 1 and len(out) == 1:
            place[into[0]] = coordinates[out[0]]
            continue
        together = low.linearize([result[d] for d in out], [coordinates[d] for d in out])
        if low.in_memory(operand):
            place[into[-1]] = together  # in memory the last dimension may run on into those before it
            continue
        for d, c in zip(into, low.split_index(together, [source[d] for d in into]), strict=True):
            place[d] = c
    return low.value(operand, tuple(place))


def _within(low: Lowering, index: Index, size: int) -> Operand | None:
    """Whether an index is inside [0, size); None if that is certain."""
    least, greatest = low.builder.bounds(index) or (-1, size)
    if greatest < 0 or least >= size:
        return Literal("pred", False)
    found: Operand | None = None
    for is_certain, limit, direction in ((least >= 0, 0, "GE"), (greatest < size, size, "LT")):
        if not is_certain:
            inside = low.builder.compare(direction, index, limit)
            found = inside if found is None else low.builder.and_(found, inside)
    return found


def clamped(low: Lowering, index: Index, size: int) -> Index:
    return low.builder.min(low.builder.max(index, 0), size - 1)


def _pad(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    operand, padding = x.operands
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
        index = b.sub(c, low_edge)
        if interior:
            # made positive first, since the remainder of what is negative has its sign
            step = interior + 1
            shifted = b.add(index, step * (-(-max(low_edge, 0) // step)))
            rest = b.remainder(shifted, step)
            inside.append(low.builder.compare("EQ", rest, 0))
            index = b.sub(b.floordiv(shifted, step), -(-max(low_edge, 0) // step))
        certain = low_edge <= 0 and high_edge <= 0 and not interior
        within = None if certain else _within(low, index, size)
        if within == Literal("pred", False):
            return outside
        if within is not None:
            inside.append(within)
            index = clamped(low, index, size)
        place.append(index)
    found = low.value(operand, tuple(place))
    if not inside:
        return found
    return b.select(functools.reduce(b.and_, inside), found, outside)


def _concatenate(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    d = x.attributes.dimension
    index = coordinates[d]
    operands = [o for o in x.operands if o.array_shape.dimensions[d]] or list(x.operands[:1])
    starts = [0]
    for o in operands:
        starts.append(starts[-1] + o.array_shape.dimensions[d])
    least, greatest = b.bounds(index) or (0, starts[-1])
    pieces = range(bisect_right(starts[:-1], max(least, 0)) - 1, bisect_right(starts[:-1], greatest))
    locals_ = {k: b.sub(index, starts[k]) for k in pieces}
    chosen = slices_of_one_array([operands[k] for k in pieces], d)
    if chosen is not None and not any(
        low.in_memory(operands[k]) for k in pieces
    ):  # such as a roll: another index rather than another element
        source, firsts, others = chosen
        places = [b.add(locals_[k], first) for k, first in zip(pieces, firsts, strict=True)]
        place = _choose(low, index, [starts[k + 1] for k in pieces], [operand_of(p) for p in places])
        assert not isinstance(place, Literal) or isinstance(place.value, int)
        along = place.value if isinstance(place, Literal) else place
        b.assume_range(along, 0, source.array_shape.dimensions[d] - 1)
        rest = [b.add(c, start) for c, start in zip(coordinates, others, strict=True)]
        return low.value(source, (*rest[:d], along, *rest[d + 1 :]))
    elements: list[Operand] = []
    for k in pieces:
        inside = clamped(low, locals_[k], operands[k].array_shape.dimensions[d]) if len(pieces) > 1 else locals_[k]
        elements.append(low.value(operands[k], (*coordinates[:d], inside, *coordinates[d + 1 :])))
    return _choose(low, index, [starts[k + 1] for k in pieces], elements)


def _choose(low: Lowering, index: Index, ends: Sequence[int], values: Sequence[Operand]) -> Operand:
    """The first of the values before whose end the index is."""
    found = values[-1]
    for end, value in zip(reversed(ends[:-1]), reversed(values[:-1]), strict=True):
        found = low.builder.select(low.builder.compare("LT", index, end), value, found)
    return found


def start_index(low: Lowering, indices: Instruction, place: Coordinates, last: int) -> Index:
    """An index from an array, moved between 0 and `last`."""
    if last == 0:
        return 0
    value = low.value(indices, place)
    kind = indices.array_shape.element_type
    if storage_types.is_narrow(kind):
        value = storage_types.convert(low, value, kind, element_type(INDEX))
    if isinstance(value, Literal):
        return min(max(value.value, 0), last)
    if value.type == "u64":  # whose values may be negative as an index
        value = low.builder.compute("minimum", "u64", value, Literal("u64", last))
    if value.type == "s32" and last < 1 << 31:  # half as wide as an index, so that vectors hold twice as many
        value = low.builder.compute("maximum", "s32", value, Literal("s32", 0))
        value = low.builder.compute("minimum", "s32", value, Literal("s32", last))
        inside = low.builder.convert(INDEX, value)
        low.builder.assume_range(inside, 0, last)
        return inside
    return clamped(low, low.builder.convert(INDEX, value), last + 1)


def _dynamic_slice(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    operand, *starts = x.operands
    sizes = zip(operand.array_shape.dimensions, x.attributes.dynamic_slice_sizes, strict=True)
    first = [start_index(low, start, (), size - part) for start, (size, part) in zip(starts, sizes, strict=True)]
    return low.value(operand, tuple(low.builder.add(f, c) for f, c in zip(first, coordinates, strict=True)))


def _gather(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    operand, indices = x.operands
    sizes = operand.array_shape.dimensions
    a: indexing.Gather = x.attributes
    if operand.array_shape.size == 0:
        return zero(operand.array_shape)
    batch, inner = a.parted(coordinates)
    place: list[Index] = [0] * len(sizes)
    for k, d in enumerate(a.start_index_map):
        vector = a.vector(batch, k, indices.array_shape.rank)
        place[d] = start_index(low, indices, vector, sizes[d] - a.slice_sizes[d])
    for d, c in a.pairs():
        place[d] = batch[c]
    for d, c in zip(a.window(len(sizes)), inner, strict=True):
        place[d] = low.builder.add(place[d], c)
    return low.value(operand, tuple(place))


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
    "dynamic-slice": _dynamic_slice,
    "gather": _gather,
}


# --- inside a computation of scalars ----------------------------------------------------------------------------------

UNBOUNDED = 1 << 62  # iterations


def _reduce(low: Lowering, x: Instruction, coordinates: Coordinates) -> list[Operand]:
    sizes, reduced = x.operands[0].array_shape.dimensions, x.attributes.dimensions
    kept = [d for d in range(len(sizes)) if d not in reduced]

    def body(indices: Coordinates, carried: list[Operand]) -> Sequence[Operand]:
        place = dict(zip((*kept, *reduced), (*coordinates, *indices), strict=True))
        return low.accumulate(x, carried, tuple(place[d] for d in range(len(sizes))))

    return low.nest([(0, sizes[d]) for d in reduced], low.initial(x), body)


def _while(low: Lowering, x: Instruction, coordinates: Coordinates) -> list[Operand]:
    initial = [low.value(o, ()) for o in x.operands]
    condition, body = x.attributes.condition, x.attributes.body
    (first,) = low.apply(condition, initial)
    with low.loop(0, low.builder.select(first, UNBOUNDED), initial, sequential=True) as (_, loop):
        updated = low.apply(body, [c.arg for c in loop.carried])
        for slot, value in zip(loop.carried, updated, strict=True):
            slot.next = value
        (loop.continue_while,) = low.apply(condition, updated)
    return [c.result for c in loop.carried]


def _conditional(low: Lowering, x: Instruction, coordinates: Coordinates) -> list[Operand]:
    index, *operands = [low.value(o, ()) for o in x.operands]
    branches = x.attributes.branch_computations
    found: list[Operand] = [zero(o.array_shape) for o in branches[0].outputs]
    for number, branch in enumerate(branches):
        count = low.builder.select(is_chosen(low, index, number, len(branches)), 1)
        with low.loop(0, count, found, sequential=True) as (_, loop):
            for slot, value in zip(loop.carried, low.apply(branch, operands), strict=True):
                slot.next = value
        found = [c.result for c in loop.carried]
    return found


def is_chosen(low: Lowering, index: Operand, number: int, count: int) -> Operand:
    """Whether a conditional takes the branch: of what is out of range the last one."""
    b = low.builder
    if index.type == "pred":
        return index if number == 0 else b.compute("not", "pred", index)
    if number < count - 1:
        return b.compare("EQ", index, Literal(index.type, number))
    below = b.compare("LT", index, Literal(index.type, 0))
    return b.or_(below, b.compare("GE", index, Literal(index.type, number)))


_STRUCTURED: dict[str, Callable[[Lowering, Instruction, Coordinates], list[Operand]]] = {
    "conditional": _conditional,
    "reduce": _reduce,
    "while": _while,
}
