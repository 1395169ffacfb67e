"""Scalarized regions: loops and branches over small arrays as one kernel, instead of steps of the schedule with a few
operations each.

The elements of a small array are scalars of the loop IR (register promotion), computed in the order that
`compiler.analysis.scalarization` found. Data movement renames them, and an unknown index selects among them. A large
array stays in memory and is loaded and stored at indices that are clamped or checked as XLA defines.
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
from tinyxla.compiler.costs import MAX_UNINTERRUPTED_OPS
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Literal, Operand
from tinyxla.loopir.kernels.scatter import checked_index, copy_kernel
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
from tinyxla.ops import Op, calls, indexing, movement
from tinyxla.ops.products import contraction
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.transforms.batched_region import lanes

ASSUMED_STEPS = 64  # assumed iterations of a loop of unknown length


def region_of(x: Instruction) -> ScalarizedRegion | None:
    """A loop or branch as a scalarized region of its operands; for a batched region that of one instance. None if it is
    not small."""
    if x.op is lanes:
        return scalarize_lane(x.attributes.to_apply, x.attributes.mapped)
    if not all(isinstance(o.shape, Shape) for o in x.operands):
        return None
    return _region_of_op(x.op, tuple(o.shape for o in x.operands), x.attributes)  # type: ignore[arg-type]


@lru_cache(256)
def _region_of_op(op: Op, shapes: tuple[AnyShape, ...], attributes: Any) -> ScalarizedRegion | None:
    """The scalarized region of an operation on parameters of these shapes, if it saves time."""
    parameters = [Instruction(movement.parameter, (), movement.Parameter(k, s), s) for k, s in enumerate(shapes)]
    shape = op.shape(*shapes, **attributes._asdict())
    assert isinstance(shape, TupleShape)
    instruction = Instruction(op, parameters, attributes, shape)
    elements = [
        Instruction(calls.get_tuple_element, (instruction,), calls.GetTupleElement(k), s)
        for k, s in enumerate(shape.elements)
    ]
    root = Instruction(calls.tuple_, elements, calls.tuple_.attributes(), shape)
    region = scalarize_without_memory(
        Computation(op.name, parameters, [*parameters, instruction, *elements, root], root)
    )
    return region if region is not None and region.saved >= 0 else None


def lower(x: Instruction, region: ScalarizedRegion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernel of a scalarized region, or of all instances of a batched one."""
    results = {r.attributes.index: r for r in results_of(x, users)}
    mapped = x.attributes.mapped if x.op is lanes else (False,) * len(x.operands)
    low = ScalarizedLowering(f"small_{x.op.name}", plan, results.values())
    copies: list[LoweredKernel] = []
    promoted: list[Promoted] = []
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (instance, _):
        parameters = zip(x.operands, region.computation.parameters, mapped, strict=True)
        for k, (operand, parameter, is_mapped) in enumerate(parameters):
            shape = parameter.array_shape
            if parameter not in region.homes:
                batch_index = (instance,) if is_mapped else ()
                promoted.append([low.value(operand, (*batch_index, *index)) for index in indices_of(shape)])
                continue
            storage: Storage = operand
            position = region.result_homes.index(k) if k in region.result_homes else -1
            if position in results:
                storage = results[position]
            elif k in region.updated:
                storage = Temporary(operand.array_shape)
                copies.append(copy_kernel(operand, storage, plan))
            start = low.builder.mul(instance, shape.size) if is_mapped else 0
            promoted.append(InMemory(low.buffer(storage, storage is not operand), start))
        for position, result in enumerate(low.run(region, promoted)):
            if position in results and not isinstance(result, InMemory):
                batch_index = (instance,) if x.op is lanes else ()
                for index, element in zip(
                    indices_of(region.computation.outputs[position].array_shape), result, strict=True
                ):
                    low.store(results[position], (*batch_index, *index), element)
    extent = x.operands[mapped.index(True)].array_shape.dimensions[0] if x.op is lanes else 1
    steps = x.attributes.known_trip_count if x.op.name == "while" else None
    work = region.work * (ASSUMED_STEPS if steps is None else steps)
    return [*copies, make_kernel(low, extent, work, list(results.values()))]


class InMemory(NamedTuple):
    """An array in a buffer, from an element on."""

    buffer: Buffer
    start: Index = 0


Promoted = list[Operand] | InMemory  # an array: its elements as scalars, or its memory


def indices_of(shape: Shape) -> Iterable[tuple[int, ...]]:
    """All indices of an array, in row-major order."""
    return np.ndindex(*shape.dimensions)


class ScalarizedLowering(Lowering):
    """Emits scalarized regions."""

    def __init__(self, name: str, plan: Plan, own: Iterable[Instruction], allows_vectors: bool = True) -> None:
        """`allows_vectors`: several elements of one array may be computed by a vector loop, rather than one element of
        several instances."""
        super().__init__(name, plan, own)
        self._allows_vectors = allows_vectors
        self._promoted: dict[Instruction, Promoted] = {}
        self._results: dict[Instruction, list[Promoted]] = {}  # of instructions with several results

    def run(self, region: ScalarizedRegion, operands: Sequence[Promoted]) -> list[Promoted]:
        """The results of a region for promoted operands."""
        self._promoted.update(zip(region.computation.parameters, operands, strict=True))
        for x in region.order:
            if isinstance(x.shape, TupleShape):
                self._results[x] = _STRUCTURED[x.op.name](self, x)
            elif x.op is not movement.parameter:
                self._promoted[x] = self._evaluate(x)
        return [self._promoted[x] for x in region.computation.outputs]

    def _evaluate(self, x: Instruction) -> Promoted:
        """The promoted result of an instruction."""
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
        if self._allows_vectors and is_wide_and_costly(x):
            return self._by_vector_loop(x)
        return [self.compute(x, index) for index in indices_of(x.array_shape)]

    def _by_vector_loop(self, x: Instruction) -> Promoted:
        """The elements of a costly operation by a loop that LLVM vectorizes."""
        b, size = self.builder, x.array_shape.size
        operands = [[self.value(o, index) for index in indices_of(o.array_shape)] for o in x.operands]
        rows: list[Buffer | None] = []
        for elements in operands:
            row = None if all(e is elements[0] for e in elements) else b.scratch(elements[0].type, size)
            for k, element in enumerate(elements if row else ()):
                b.store(cast(Buffer, row), k, element)
            rows.append(row)
        result = b.scratch(x.array_shape.element_type.name, size)
        with self.loop(0, size) as (k, _):
            values = [b.load(row, k) if row else elements[0] for row, elements in zip(rows, operands, strict=True)]
            b.store(result, k, self.scalar(x, values))
        return [b.load(result, k) for k in range(size)]

    def promoted(self, x: Instruction) -> Promoted:
        return self._promoted[x]

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """An element, of a promoted array or of memory."""
        promoted = self._promoted.get(x)
        if promoted is None:
            return super().value(x, coordinates)
        if x.op is movement.constant and not all(isinstance(c, int) for c in coordinates):
            return self.load(x, coordinates)
        return self.element(promoted, x.array_shape.dimensions, coordinates)

    def element(self, promoted: Promoted, sizes: Sequence[int], coordinates: Coordinates) -> Operand:
        """An element of an array; unknown coordinates select among the elements."""
        index = self.linearize(sizes, coordinates)
        if isinstance(promoted, InMemory):
            return self.builder.load(promoted.buffer, self.builder.add(promoted.start, index))
        if isinstance(index, int):
            return promoted[index]
        (first, _), *others = _possible_elements(sizes, coordinates)
        result = promoted[first]
        for position, candidate in others:
            result = self.builder.select(self._index_equals(coordinates, candidate), promoted[position], result)
        return result

    def _index_equals(
        self, coordinates: Coordinates, index: Sequence[int], condition: Operand | None = None
    ) -> Operand:
        """Whether the unknown coordinates equal those of an index, and the condition holds."""
        b = self.builder
        for c, expected in zip(coordinates, index, strict=True):
            if not isinstance(c, int):
                is_equal = b.compare("EQ", c, expected)
                condition = is_equal if condition is None else b.and_(condition, is_equal)
        return Literal("pred", True) if condition is None else condition

    def spill_indexed_arrays(
        self, condition: Computation, body: Computation, operands: Sequence[Promoted]
    ) -> list[Promoted]:
        """A loop's operands, with loop-invariant arrays that are read at computed indices in memory: a load costs less
        than selecting among all elements."""
        arrays, indexed_positions = list(operands), indexed_parameters(body)
        for k, (y, p) in enumerate(zip(body.outputs, body.parameters, strict=True)):
            promoted = arrays[k]
            if (
                y is not p
                or isinstance(promoted, InMemory)
                or len(promoted) < VECTOR_ELEMENTS
                or k not in indexed_positions
            ):
                continue
            in_memory = [j == k or isinstance(other, InMemory) for j, other in enumerate(arrays)]
            if self._allows_vectors and len(regions((condition, body), in_memory)) == 2:
                row = self.builder.scratch(p.array_shape.element_type.name, len(promoted))
                for position, element in enumerate(promoted):
                    self.builder.store(row, position, element)
                arrays[k] = InMemory(row)
        return arrays

    def select_elements(self, condition: Operand, x: Promoted, y: Promoted) -> Promoted:
        """Select all elements of one of two promoted arrays."""
        assert not isinstance(x, InMemory)
        assert not isinstance(y, InMemory)
        return [self.builder.select(condition, a, b) for a, b in zip(x, y, strict=True)]

    def update_element(
        self,
        promoted: Promoted,
        sizes: Sequence[int],
        coordinates: Coordinates,
        new: Operand,
        condition: Operand | None = None,
    ) -> Promoted:
        """The array with a new element, if the condition holds. The index is in range."""
        b = self.builder
        if isinstance(promoted, InMemory):
            index = b.add(promoted.start, self.linearize(sizes, coordinates))
            if condition is not None:
                new = b.select(condition, new, b.load(promoted.buffer, index))
            b.store(promoted.buffer, index, new)
            return promoted
        elements = list(promoted)
        for position, index in _possible_elements(sizes, coordinates):
            is_target = self._index_equals(coordinates, index, condition)
            is_constant = isinstance(is_target, Literal)
            elements[position] = new if is_constant else b.select(is_target, new, promoted[position])
        return elements


def _possible_elements(sizes: Sequence[int], coordinates: Coordinates) -> list[tuple[int, tuple[int, ...]]]:
    """The indices that the coordinates may equal, with their ordinals."""
    fixed = [(d, c) for d, c in enumerate(coordinates) if isinstance(c, int)]
    return [(k, index) for k, index in enumerate(np.ndindex(*sizes)) if all(index[d] == c for d, c in fixed)]


# --- reductions, products and updates ---------------------------------------------------------------------------------


def _reduce(low: ScalarizedLowering, x: Instruction) -> list[Promoted]:
    """A reduction, unrolled."""
    sizes, reduced = x.operands[0].array_shape.dimensions, x.attributes.dimensions
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows: list[list[Operand]] = []
    for outer in itertools.product(*(range(sizes[d]) for d in kept)):
        carried = low.initial(x)
        for inner in itertools.product(*(range(sizes[d]) for d in reduced)):
            index = dict(zip((*kept, *reduced), (*outer, *inner), strict=True))
            carried = low.accumulate(x, carried, tuple(index[d] for d in range(len(sizes))))
        rows.append(carried)
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(len(x.operands) // 2)]


def _dot(low: ScalarizedLowering, x: Instruction) -> list[Promoted]:
    """A matrix product, unrolled."""
    dims: contraction.Dot = x.attributes
    type = x.array_shape.element_type.name
    lhs, rhs = (_rows(o.array_shape, dims.contracting(side), dims.batch(side)) for side, o in enumerate(x.operands))
    result: list[Operand] = []
    for left_rows, right_rows in zip(lhs, rhs, strict=True):
        for left, right in itertools.product(left_rows, right_rows):
            total: Operand | None = None
            for at, to in zip(left, right, strict=True):
                factors = low.value(x.operands[0], at), low.value(x.operands[1], to)
                product = low.builder.compute("multiply", type, *factors)
                total = product if total is None else low.builder.compute("add", type, total, product)
            result.append(total or Literal(type, zero(x.array_shape).value))
    return [result]


def _rows(shape: Shape, contracting: tuple[int, ...], batch: tuple[int, ...]) -> list[list[list[tuple[int, ...]]]]:
    """The indices of an operand's elements, for each row of each matrix of the batch."""
    free = contraction.free_dimensions(shape.rank, contracting, batch)

    def partial_indices(dimensions: Sequence[int]) -> list[dict[int, int]]:
        indices = itertools.product(*(range(shape.dimensions[d]) for d in dimensions))
        return [dict(zip(dimensions, index, strict=True)) for index in indices]

    def full_index(fixed: dict[int, int]) -> tuple[int, ...]:
        return tuple(fixed[d] for d in range(shape.rank))

    return [
        [[full_index(b | f | c) for c in partial_indices(contracting)] for f in partial_indices(free)]
        for b in partial_indices(batch)
    ]


def _dynamic_update_slice(low: ScalarizedLowering, x: Instruction) -> list[Promoted]:
    """A dynamic-update-slice: the start is clamped."""
    operand, update, *starts = x.operands
    sizes, update_sizes = operand.array_shape.dimensions, update.array_shape.dimensions
    first = [start_index(low, s, (), size - n) for s, size, n in zip(starts, sizes, update_sizes, strict=True)]
    result = low.promoted(operand)
    for index in indices_of(update.array_shape):
        at = tuple(low.builder.add(f, c) for f, c in zip(first, index, strict=True))
        result = low.update_element(result, sizes, at, low.value(update, index))
    return [result]


def _scatter(low: ScalarizedLowering, x: Instruction) -> list[Promoted]:
    """Updates in order; an update whose window is out of bounds is skipped."""
    operand, indices, updates = x.operands
    a: indexing.Gather = x.attributes.gather()
    sizes = operand.array_shape.dimensions
    _, update_sizes = a.parted(updates.array_shape.dimensions)
    result = low.promoted(operand)
    for source in indices_of(updates.array_shape):
        batch, inner = a.parted(source)
        offsets = dict(zip(a.window(len(sizes)), zip(inner, update_sizes, strict=True), strict=True))
        index: list[Index] = [offsets[d][0] if d in offsets else 0 for d in range(len(sizes))]
        all_in_bounds: Operand | None = None
        for k, d in enumerate(a.start_index_map):
            offset, extent = offsets.get(d, (0, 1))
            vector = a.vector(batch, k, indices.array_shape.rank)
            start, in_bounds = checked_index(low, low.value(indices, vector), sizes[d] - extent)
            all_in_bounds = in_bounds if all_in_bounds is None else low.builder.and_(all_in_bounds, in_bounds)
            index[d] = low.builder.add(clamp_index(low, start, sizes[d] - extent + 1), offset)
        for d, c in a.pairs():
            index[d] = batch[c]
        old = low.element(result, sizes, tuple(index))
        (new,) = low.apply(x.attributes.to_apply, [old, low.value(updates, source)])
        result = low.update_element(result, sizes, tuple(index), new, all_in_bounds)
    return [result]


# --- loops and branches -----------------------------------------------------------------------------------------------


def regions(computations: Iterable[Computation], in_memory: Iterable[bool]) -> list[ScalarizedRegion]:
    """The scalarized regions of computations whose parameters are partly in memory."""
    memory = frozenset(k for k, m in enumerate(in_memory) if m)
    return [region for c in computations if (region := scalarize(c, memory)) is not None]


def _in_memory(operands: Sequence[Promoted]) -> list[bool]:
    """Whether each operand is in memory."""
    return [isinstance(promoted, InMemory) for promoted in operands]


def _while(low: ScalarizedLowering, x: Instruction) -> list[Promoted]:
    """A loop whose promoted arrays are loop-carried scalars."""
    initial = [low.promoted(o) for o in x.operands]
    operands = low.spill_indexed_arrays(x.attributes.condition, x.attributes.body, initial)
    condition, body = regions((x.attributes.condition, x.attributes.body), _in_memory(operands))
    is_carried = [y is not p for y, p in zip(body.computation.outputs, body.computation.parameters, strict=True)]

    def carried(arrays: Sequence[Promoted]) -> list[Operand]:
        return [
            e
            for promoted, is_variant in zip(arrays, is_carried, strict=True)
            if is_variant and not isinstance(promoted, InMemory)
            for e in promoted
        ]

    def arrays(elements: Iterable[Operand], others: Sequence[Promoted]) -> list[Promoted]:
        remaining = iter(elements)
        return [
            [next(remaining) for _ in promoted] if is_variant and not isinstance(promoted, InMemory) else promoted
            for promoted, is_variant in zip(others, is_carried, strict=True)
        ]

    count: int | None = x.attributes.known_trip_count
    is_short = count is not None and count * body.work <= MAX_UNINTERRUPTED_OPS
    if count is not None and is_short:
        stop: Index = count
    else:
        stop = low.builder.select(single_scalar(low.run(condition, operands)), UNBOUNDED)
    with low.loop(0, stop, carried(operands), sequential=True) as (_, loop):
        updated = low.run(body, arrays((c.arg for c in loop.carried), operands))
        for slot, value in zip(loop.carried, carried(updated), strict=True):
            slot.next = value
        if not is_short:
            loop.continue_while = single_scalar(low.run(condition, updated))
    return arrays((c.result for c in loop.carried), initial)


def single_scalar(results: Sequence[Promoted]) -> Operand:
    """The scalar of a result that is one scalar."""
    (promoted,) = results
    assert not isinstance(promoted, InMemory)
    return promoted[0]


def _conditional(low: ScalarizedLowering, x: Instruction) -> list[Promoted]:
    """Branches as loops of zero or one iteration, which keep or replace the values."""
    index, *operands = (low.promoted(o) for o in x.operands)
    branches = regions(x.attributes.branch_computations, _in_memory(operands))
    outputs = branches[0].computation.outputs
    new_arrays = [y for y, begin in zip(outputs, branches[0].result_homes, strict=True) if begin is None]
    values: list[Operand] = [zero(y.array_shape) for y in new_arrays for _ in range(y.array_shape.size)]
    for position, branch in enumerate(branches):
        stop = low.builder.select(selects_branch(low, single_scalar([index]), position, len(branches)), 1)
        with low.loop(0, stop, values, sequential=True) as (_, loop):
            elements = [
                e for promoted in low.run(branch, operands) if not isinstance(promoted, InMemory) for e in promoted
            ]
            for slot, value in zip(loop.carried, elements, strict=True):
                slot.next = value
        values = [c.result for c in loop.carried]
    remaining = iter(values)
    return [
        [next(remaining) for _ in range(y.array_shape.size)] if begin is None else operands[begin]
        for y, begin in zip(outputs, branches[0].result_homes, strict=True)
    ]


_STRUCTURED: dict[str, Callable[[ScalarizedLowering, Instruction], list[Promoted]]] = {
    "conditional": _conditional,
    "dot": _dot,
    "dynamic-update-slice": _dynamic_update_slice,
    "reduce": _reduce,
    "scatter": _scatter,
    "while": _while,
}
