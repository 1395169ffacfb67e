"""Loops and branches over small arrays: one kernel, instead of steps of the schedule with a few operations each.

The elements of a small array are scalars of the loop IR, computed one by one in the order that `compiler.small` found;
what only moves data names them anew, and an index that is not known chooses among them. An array in memory is loaded
from and stored to, at indices that are in range as XLA moves or skips them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from tinyxla.compiler.analysis.scalarization import (
    MAX_REGISTER_ELEMENTS,
    VECTOR_ELEMENTS,
    ScalarizedRegion,
    indexed_parameters,
    is_allocation,
    is_wide_and_costly,
    scalarize,
    scalarize_lane,
    scalarize_without_memory,
)
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Literal, Operand
from tinyxla.loopir.kernels.scatter import copied, place_inside
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import (
    UNBOUNDED,
    Coordinates,
    LoweredKernel,
    Lowering,
    Storage,
    Temporary,
    Users,
    clamp_index,
    selects_branch,
    start_index,
    zero,
)
from tinyxla.ops import Op, calls, contraction, indexing, movement
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.transforms.batched_region import lanes

TYPICAL_STEPS = 64  # of a loop, to guess how long a lane takes
MOST_UNPOLLED = 1 << 26  # operations of a loop that no signal has to end


def supports(x: Instruction) -> bool:
    return nest_of(x) is not None


def updates(x: Instruction) -> dict[int, int]:
    """For the results that stay in memory, the operands that they begin as."""
    nest = nest_of(x)
    assert nest is not None
    return {k: begin for k, begin in enumerate(nest.result_homes) if begin is not None}


def nest_of(x: Instruction) -> ScalarizedRegion | None:
    """A loop or branches as a small computation of their operands; that of one lane."""
    if x.op is lanes:
        return scalarize_lane(x.attributes.to_apply, x.attributes.mapped)
    if not all(isinstance(o.shape, Shape) for o in x.operands):
        return None
    return _alone(x.op, tuple(o.shape for o in x.operands), x.attributes)  # type: ignore[arg-type]


@lru_cache(256)
def _alone(op: Op, shapes: tuple[AnyShape, ...], attributes: Any) -> ScalarizedRegion | None:
    parameters = [Instruction(movement.parameter, (), movement.Parameter(k, s), s) for k, s in enumerate(shapes)]
    shape = op.shape(*shapes, **attributes._asdict())
    assert isinstance(shape, TupleShape)
    whole = Instruction(op, parameters, attributes, shape)
    found = [
        Instruction(calls.get_tuple_element, (whole,), calls.GetTupleElement(k), s)
        for k, s in enumerate(shape.elements)
    ]
    root = Instruction(calls.tuple_, found, calls.tuple_.attributes(), shape)
    nest = scalarize_without_memory(Computation(op.name, parameters, [*parameters, whole, *found, root], root))
    return nest if nest is not None and nest.saved >= 0 else None


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    nest = nest_of(x)
    assert nest is not None
    results = {r.attributes.index: r for r in results_of(x, users)}
    mapped = x.attributes.mapped if x.op is lanes else (False,) * len(x.operands)
    low = Elements(f"small_{x.op.name}", plan, results.values())
    copies: list[LoweredKernel] = []
    held: list[Held] = []
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (lane, _):
        parameters = zip(x.operands, nest.computation.parameters, mapped, strict=True)
        for k, (operand, parameter, several) in enumerate(parameters):
            shape = parameter.array_shape
            if parameter not in nest.homes:
                first = (lane,) if several else ()
                held.append([low.value(operand, (*first, *place)) for place in places_of(shape)])
                continue
            storage: Storage = operand
            number = nest.result_homes.index(k) if k in nest.result_homes else -1
            if number in results:
                storage = results[number]
            elif k in nest.updated:
                storage = Temporary(operand.array_shape)
                copies.append(copied(operand, storage, plan))
            start = low.builder.mul(lane, shape.size) if several else 0
            held.append(InMemory(low.buffer(storage, storage is not operand), start))
        for number, found in enumerate(low.run(nest, held)):
            if number in results and not isinstance(found, InMemory):
                first = (lane,) if x.op is lanes else ()
                for place, element in zip(places_of(nest.computation.outputs[number].array_shape), found, strict=True):
                    low.store(results[number], (*first, *place), element)
    extent = x.operands[mapped.index(True)].array_shape.dimensions[0] if x.op is lanes else 1
    return [*copies, make_kernel(low, extent, nest.work * TYPICAL_STEPS, list(results.values()))]


class InMemory(NamedTuple):
    """An array in a buffer, from some element on."""

    buffer: Buffer
    start: Index = 0


Held = list[Operand] | InMemory  # an array: its elements, or where it is


def places_of(shape: Shape) -> Iterable[tuple[int, ...]]:
    return np.ndindex(*shape.dimensions)


class Elements(Lowering):
    """Emits small computations."""

    def __init__(self, name: str, plan: Plan, own: Iterable[Instruction], vectors: bool = True) -> None:
        """`vectors`: whether several elements of one array may be computed at once, and not those of several lanes."""
        super().__init__(name, plan, own)
        self._vectors = vectors
        self._held: dict[Instruction, Held] = {}
        self._results: dict[Instruction, list[Held]] = {}  # of what gives several

    def run(self, nest: ScalarizedRegion, operands: Sequence[Held]) -> list[Held]:
        """The results of a computation, of operands that are held as it expects."""
        self._held.update(zip(nest.computation.parameters, operands, strict=True))
        for x in nest.order:
            if isinstance(x.shape, TupleShape):
                self._results[x] = _STRUCTURED[x.op.name](self, x)
            elif x.op is not movement.parameter:
                self._held[x] = self._made(x)
        return [self._held[x] for x in nest.computation.outputs]

    def _made(self, x: Instruction) -> Held:
        if x.op is calls.get_tuple_element:
            return self._results[x.operands[0]][x.attributes.index]
        if x.op is movement.constant:
            if x.array_shape.size > MAX_REGISTER_ELEMENTS:
                return InMemory(self.buffer(x))
            name = x.array_shape.element_type.name
            return [Literal(name, element.item()) for element in x.attributes.literal.value.ravel()]
        if is_allocation(x):
            return InMemory(self.builder.scratch(x.array_shape.element_type.name, x.array_shape.size))
        if x.op.name in _STRUCTURED:
            return _STRUCTURED[x.op.name](self, x)[0]
        if self._vectors and is_wide_and_costly(x):
            return self._in_vectors(x)
        return [self.compute(x, place) for place in places_of(x.array_shape)]

    def _in_vectors(self, x: Instruction) -> Held:
        """The elements of a costly operation, by a loop that LLVM makes one of vectors."""
        b, size = self.builder, x.array_shape.size
        operands = [[self.value(o, place) for place in places_of(o.array_shape)] for o in x.operands]
        rows: list[Buffer | None] = []
        for elements in operands:
            row = None if all(e is elements[0] for e in elements) else b.scratch(elements[0].type, size)
            for k, element in enumerate(elements if row else ()):
                b.store(cast(Buffer, row), k, element)
            rows.append(row)
        found = b.scratch(x.array_shape.element_type.name, size)
        with self.loop(0, size) as (k, _):
            values = [b.load(row, k) if row else elements[0] for row, elements in zip(rows, operands, strict=True)]
            b.store(found, k, self.scalar(x, values))
        return [b.load(found, k) for k in range(size)]

    def held(self, x: Instruction) -> Held:
        return self._held[x]

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        held = self._held.get(x)
        if held is None:
            return super().value(x, coordinates)
        if x.op is movement.constant and not all(isinstance(c, int) for c in coordinates):
            return self.load(x, coordinates)
        return self.element(held, x.array_shape.dimensions, coordinates)

    def element(self, held: Held, sizes: Sequence[int], coordinates: Coordinates) -> Operand:
        """Of an array; coordinates that are not known choose."""
        place = self.linearize(sizes, coordinates)
        if isinstance(held, InMemory):
            return self.builder.load(held.buffer, self.builder.add(held.start, place))
        if isinstance(place, int):
            return held[place]
        (first, _), *others = _possible(sizes, coordinates)
        found = held[first]
        for number, here in others:
            found = self.builder.select(self._is_at(coordinates, here), held[number], found)
        return found

    def _is_at(self, coordinates: Coordinates, place: Sequence[int], condition: Operand | None = None) -> Operand:
        """Whether coordinates, those that are not known, are this place; and the condition holds."""
        b = self.builder
        for c, here in zip(coordinates, place, strict=True):
            if not isinstance(c, int):
                same = b.compare("EQ", c, here)
                condition = same if condition is None else b.and_(condition, same)
        return Literal("pred", True) if condition is None else condition

    def spilled(self, condition: Computation, body: Computation, operands: Sequence[Held]) -> list[Held]:
        """What a loop is given, with those arrays in memory that it reads at computed places and does not change: a
        load is less than a choice among all elements."""
        arrays, places = list(operands), indexed_parameters(body)
        for k, (y, p) in enumerate(zip(body.outputs, body.parameters, strict=True)):
            held = arrays[k]
            if y is not p or isinstance(held, InMemory) or len(held) < VECTOR_ELEMENTS or k not in places:
                continue
            in_memory = [j == k or isinstance(other, InMemory) for j, other in enumerate(arrays)]
            if self._vectors and len(insides((condition, body), in_memory)) == 2:
                row = self.builder.scratch(p.array_shape.element_type.name, len(held))
                for number, element in enumerate(held):
                    self.builder.store(row, number, element)
                arrays[k] = InMemory(row)
        return arrays

    def chosen(self, condition: Operand, x: Held, y: Held) -> Held:
        """The elements of one of two arrays in registers."""
        assert not isinstance(x, InMemory)
        assert not isinstance(y, InMemory)
        return [self.builder.select(condition, a, b) for a, b in zip(x, y, strict=True)]

    def put(
        self, held: Held, sizes: Sequence[int], coordinates: Coordinates, new: Operand, condition: Operand | None = None
    ) -> Held:
        """An array with another element, if the condition holds: at a place in range, in any case."""
        b = self.builder
        if isinstance(held, InMemory):
            place = b.add(held.start, self.linearize(sizes, coordinates))
            if condition is not None:
                new = b.select(condition, new, b.load(held.buffer, place))
            b.store(held.buffer, place, new)
            return held
        changed = list(held)
        for number, place in _possible(sizes, coordinates):
            here = self._is_at(coordinates, place, condition)
            is_certain = isinstance(here, Literal)
            changed[number] = new if is_certain else b.select(here, new, held[number])
        return changed


def _possible(sizes: Sequence[int], coordinates: Coordinates) -> list[tuple[int, tuple[int, ...]]]:
    """The places that coordinates may mean, with their numbers."""
    known = [(d, c) for d, c in enumerate(coordinates) if isinstance(c, int)]
    return [(k, place) for k, place in enumerate(np.ndindex(*sizes)) if all(place[d] == c for d, c in known)]


# --- what is not element by element -----------------------------------------------------------------------------------


def _reduce(low: Elements, x: Instruction) -> list[Held]:
    sizes, reduced = x.operands[0].array_shape.dimensions, x.attributes.dimensions
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows: list[list[Operand]] = []
    for outer in itertools.product(*(range(sizes[d]) for d in kept)):
        carried = low.initial(x)
        for inner in itertools.product(*(range(sizes[d]) for d in reduced)):
            place = dict(zip((*kept, *reduced), (*outer, *inner), strict=True))
            carried = low.accumulate(x, carried, tuple(place[d] for d in range(len(sizes))))
        rows.append(carried)
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(len(x.operands) // 2)]


def _dot(low: Elements, x: Instruction) -> list[Held]:
    dims: contraction.Dot = x.attributes
    kind = x.array_shape.element_type.name
    lhs, rhs = (_rows(o.array_shape, dims.contracting(side), dims.batch(side)) for side, o in enumerate(x.operands))
    found: list[Operand] = []
    for left_rows, right_rows in zip(lhs, rhs, strict=True):
        for left, right in itertools.product(left_rows, right_rows):
            total: Operand | None = None
            for at, to in zip(left, right, strict=True):
                factors = low.value(x.operands[0], at), low.value(x.operands[1], to)
                product = low.builder.compute("multiply", kind, *factors)
                total = product if total is None else low.builder.compute("add", kind, total, product)
            found.append(total or Literal(kind, zero(x.array_shape).value))
    return [found]


def _rows(shape: Shape, contracting: tuple[int, ...], batch: tuple[int, ...]) -> list[list[list[tuple[int, ...]]]]:
    """The places of a factor's elements: of each row, in each matrix."""
    free = contraction.free_dimensions(shape.rank, contracting, batch)

    def places(dimensions: Sequence[int]) -> list[dict[int, int]]:
        indices = itertools.product(*(range(shape.dimensions[d]) for d in dimensions))
        return [dict(zip(dimensions, several, strict=True)) for several in indices]

    def place(known: dict[int, int]) -> tuple[int, ...]:
        return tuple(known[d] for d in range(shape.rank))

    return [[[place(b | f | c) for c in places(contracting)] for f in places(free)] for b in places(batch)]


def _dynamic_update_slice(low: Elements, x: Instruction) -> list[Held]:
    whole, update, *starts = x.operands
    sizes, parts = whole.array_shape.dimensions, update.array_shape.dimensions
    first = [start_index(low, s, (), size - part) for s, size, part in zip(starts, sizes, parts, strict=True)]
    found = low.held(whole)
    for place in places_of(update.array_shape):
        at = tuple(low.builder.add(f, c) for f, c in zip(first, place, strict=True))
        found = low.put(found, sizes, at, low.value(update, place))
    return [found]


def _scatter(low: Elements, x: Instruction) -> list[Held]:
    """One update after the other: nothing, if a part of its window is outside."""
    whole, indices, updates = x.operands
    a: indexing.Gather = x.attributes.gather()
    sizes = whole.array_shape.dimensions
    _, parts = a.parted(updates.array_shape.dimensions)
    found = low.held(whole)
    for source in places_of(updates.array_shape):
        batch, inner = a.parted(source)
        along = dict(zip(a.window(len(sizes)), zip(inner, parts, strict=True), strict=True))
        place: list[Index] = [along[d][0] if d in along else 0 for d in range(len(sizes))]
        inside: Operand | None = None
        for k, d in enumerate(a.start_index_map):
            offset, extent = along.get(d, (0, 1))
            vector = a.vector(batch, k, indices.array_shape.rank)
            start, fits = place_inside(low, low.value(indices, vector), sizes[d] - extent)
            inside = fits if inside is None else low.builder.and_(inside, fits)
            place[d] = low.builder.add(clamp_index(low, start, sizes[d] - extent + 1), offset)
        for d, c in a.pairs():
            place[d] = batch[c]
        old = low.element(found, sizes, tuple(place))
        (new,) = low.apply(x.attributes.to_apply, [old, low.value(updates, source)])
        found = low.put(found, sizes, tuple(place), new, inside)
    return [found]


# --- loops and branches -----------------------------------------------------------------------------------------------


def insides(computations: Iterable[Computation], in_memory: Iterable[bool]) -> list[ScalarizedRegion]:
    memory = frozenset(k for k, m in enumerate(in_memory) if m)
    return [nest for c in computations if (nest := scalarize(c, memory)) is not None]


def _in_memory(operands: Sequence[Held]) -> list[bool]:
    return [isinstance(held, InMemory) for held in operands]


def _while(low: Elements, x: Instruction) -> list[Held]:
    given = [low.held(o) for o in x.operands]
    operands = low.spilled(x.attributes.condition, x.attributes.body, given)
    condition, body = insides((x.attributes.condition, x.attributes.body), _in_memory(operands))
    made = [y is not p for y, p in zip(body.computation.outputs, body.computation.parameters, strict=True)]

    def carried(arrays: Sequence[Held]) -> list[Operand]:
        return [e for held, m in zip(arrays, made, strict=True) if m and not isinstance(held, InMemory) for e in held]

    def arrays(elements: Iterable[Operand], others: Sequence[Held]) -> list[Held]:
        rest = iter(elements)
        return [
            [next(rest) for _ in held] if m and not isinstance(held, InMemory) else held
            for held, m in zip(others, made, strict=True)
        ]

    count: int | None = x.attributes.known_trip_count
    is_short = count is not None and count * body.work <= MOST_UNPOLLED
    stop = (
        count if count is not None and is_short else low.builder.select(only(low.run(condition, operands)), UNBOUNDED)
    )
    with low.loop(0, stop, carried(operands), sequential=True) as (_, loop):
        updated = low.run(body, arrays((c.arg for c in loop.carried), operands))
        for slot, value in zip(loop.carried, carried(updated), strict=True):
            slot.next = value
        if not is_short:
            loop.continue_while = only(low.run(condition, updated))
    return arrays((c.result for c in loop.carried), given)


def only(results: Sequence[Held]) -> Operand:
    """The scalar that is the one result."""
    (held,) = results
    assert not isinstance(held, InMemory)
    return held[0]


def _conditional(low: Elements, x: Instruction) -> list[Held]:
    index, *operands = (low.held(o) for o in x.operands)
    branches = insides(x.attributes.branch_computations, _in_memory(operands))
    outputs = branches[0].computation.outputs
    made = [y for y, begin in zip(outputs, branches[0].result_homes, strict=True) if begin is None]
    values: list[Operand] = [zero(y.array_shape) for y in made for _ in range(y.array_shape.size)]
    for number, branch in enumerate(branches):
        stop = low.builder.select(selects_branch(low, only([index]), number, len(branches)), 1)
        with low.loop(0, stop, values, sequential=True) as (_, loop):
            elements = [e for held in low.run(branch, operands) if not isinstance(held, InMemory) for e in held]
            for slot, value in zip(loop.carried, elements, strict=True):
                slot.next = value
        values = [c.result for c in loop.carried]
    rest = iter(values)
    return [
        [next(rest) for _ in range(y.array_shape.size)] if begin is None else operands[begin]
        for y, begin in zip(outputs, branches[0].result_homes, strict=True)
    ]


_STRUCTURED: dict[str, Callable[[Elements, Instruction], list[Held]]] = {
    "conditional": _conditional,
    "dot": _dot,
    "dynamic-update-slice": _dynamic_update_slice,
    "reduce": _reduce,
    "scatter": _scatter,
    "while": _while,
}
