"""Loop nests of the ops that change a part of an array: dynamic-update-slice and scatter.

The result begins as the operand does, in its own memory or in the operand's (`OwnNest.updates`); only what is updated
is written here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_native_type, is_scalar_computation
from tinyxla.compiler.fusion.plan import Plan, buffer_of, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand
from tinyxla.loopir.lower.axes import PARALLEL_CHUNK_ELEMENTS, make_kernel, tile_of
from tinyxla.loopir.lower.emit import (
    Coordinates,
    LoweredKernel,
    Lowering,
    Storage,
    Temporary,
    Users,
    start_index,
)
from tinyxla.ops import indexing, reduction

FEW_RANGES = 2  # of places that updates are divided by
FEW_PIECES = 16  # of work that is independent as it is; with fewer, windows are cut
SHORT_WINDOW = 3  # elements of one that had better not be a vector
LEAST_WINDOW = 64  # elements of a window that are worth reading its indices for
MOST_SUMS = 16  # of pieces of the updates
LINE = 32  # elements
WORTH_A_SUM = 16  # updates of each place

# --- dynamic-update-slice ---------------------------------------------------------------------------------------------


def supports_update(x: Instruction) -> bool:
    return True


def begins_as_operand(x: Instruction) -> dict[int, int]:
    """Every result begins as the operand of its number."""
    return {k: k for k in range(len(x.operands) // 2)} if x.op is indexing.scatter else {0: 0}


def lower_update(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Rows of the update, each a loop; a row is all that lies together in memory, or one of what is computed here."""
    _, update, *starts = x.operands
    whole, parts = x.array_shape.dimensions, update.array_shape.dimensions
    together = len(parts) - 1
    while together > 0 and parts[together] == whole[together]:
        together -= 1
    last = max((d for d, part in enumerate(parts) if part != 1), default=len(parts) - 1)  # elements follow along it
    low = Lowering("update", plan, [x])
    b = low.builder
    if not low.in_memory(buffer_of(update)):
        together = last
    outer, row = parts[: max(together, 0)], math.prod(parts[max(together, 0) :])
    rows = math.prod(outer)
    pieces = max(1, -(-row // PARALLEL_CHUNK_ELEMENTS)) if rows < FEW_PIECES else 1
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        number, begin, end = tile_of(low, index, pieces, row)
        limits = [n - part for n, part in zip(whole, parts, strict=True)]
        first = [start_index(low, start, (), limit) for start, limit in zip(starts, limits, strict=True)]
        indices = low.split_index(number, outer)
        with low.loop(begin, end) as (j, _):
            inner: Coordinates = tuple(j if d == last else 0 for d in range(len(outer), len(parts)))
            place: Coordinates = (*indices, *inner)
            to = [b.add(f, c) for f, c in zip(first, place, strict=True)]
            low.store(x, to, low.value(update, place))
    return [make_kernel(low, rows * pieces if row else 0, -(-row // pieces), [x])]


# --- scatter ----------------------------------------------------------------------------------------------------------


def supports_scatter(x: Instruction) -> bool:
    count = len(x.operands) // 2
    return is_scalar_computation(x.attributes.to_apply) and is_native_type(x.operands[count].array_shape)


def lower_scatter(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """One update after the other, and inside of it loops over its window.

    What cannot meet is independent work: batches that the operand has too, all updates if they are unique, pieces of a
    dimension of the window along which updates do not move, and ranges of places, which sorted updates come to in turn.
    Where many updates go to few places, pieces of the updates are put together apart, and then these sums, in order.
    """
    return _Scatter(x, plan, users).lowered()


class _Scatter:
    def __init__(self, x: Instruction, plan: Plan, users: Users) -> None:
        self.x, self.plan, self.low = x, plan, Lowering("scatter", plan, results_of(x, users))
        self.a: indexing.Gather = x.attributes.gather()
        count = len(x.operands) // 2
        self.indices, self.updates = x.operands[count], x.operands[count + 1 :]
        self.sizes = x.operands[0].array_shape.dimensions
        self.window = self.a.window(len(self.sizes))
        self.batch, self.parts = self.a.parted(self.updates[0].array_shape.dimensions)
        alike = [c for _, c in self.a.pairs()]
        self.apart = [c for c in range(len(self.batch)) if x.attributes.unique_indices or c in alike]
        self.in_order = [c for c in range(len(self.batch)) if c not in self.apart]
        self.independent = math.prod(self.batch[c] for c in self.apart)
        still = [k for k, d in enumerate(self.window) if d not in self.a.start_index_map and self.parts[k] > 1]
        pieces = _pieces(self.parts, still, math.prod(self.batch)) if self.independent < FEW_PIECES else (0, 1)
        self.cut, self.pieces = pieces
        alone, elements = self.independent * self.pieces == 1, math.prod(self.parts) * math.prod(self.batch)
        self.sums = _sums(x, elements) if alone else 1
        self.ranges = _ranges(self.a, self.sizes, self.window, elements) if alone and self.sums == 1 else 1
        self.results, self.copies = _targets(x, plan, users)
        self.targets = self.results
        if self.sums > 1:
            apart = x.operands[0].array_shape.with_dimensions((self.sums, _apart(math.prod(self.sizes))))
            self.targets = [Temporary(apart)]

    def lowered(self) -> list[LoweredKernel]:
        low, batch = self.low, self.batch
        b = low.builder
        if 0 in self.parts or 0 in batch:
            return self.copies
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            bounds: list[tuple[Index, Index]] = [(0, part) for part in self.parts]
            extents: list[tuple[Index, Index]] = [(0, batch[c]) for c in self.in_order]
            own: list[Index] = []
            base: Index = 0
            if self.sums > 1:
                base = self._cleared(index)
                longest = max(range(len(extents)), key=lambda k: batch[self.in_order[k]])
                index, start, stop = tile_of(low, index, self.sums, batch[self.in_order[longest]])
                extents[longest] = start, stop
            if self.ranges > 1:
                index, *own = tile_of(low, index, self.ranges, self.sizes[self.a.start_index_map[0]])
            if self.pieces > 1:
                index, start, stop = tile_of(low, index, self.pieces, self.parts[self.cut])
                bounds[self.cut] = start, stop
            fixed = dict(zip(self.apart, low.split_index(index, [batch[c] for c in self.apart]), strict=True))

            def each(more: Coordinates, values: list[Operand]) -> list[Operand]:
                known = fixed | dict(zip(self.in_order, more, strict=True))
                self._visit([known[c] for c in range(len(batch))], bounds, own, base)
                return []

            low.nest(extents, [], each, sequential=True)
        pieces = self.independent * self.pieces * self.ranges * self.sums
        elements = math.prod(self.parts) * math.prod(batch) // pieces
        found = [*self.copies, make_kernel(low, pieces, 4 * elements, [self.x])]
        if self.sums > 1:
            found.append(_added_up(self.x, self.plan, self.targets[0], self.results[0], self.sums))
        return found

    def _cleared(self, index: Index) -> Index:
        """Where the sums of a piece begin, which are without updates yet."""
        low, whole = self.low, math.prod(self.sizes)
        base = low.builder.mul(index, _apart(whole))
        with low.loop(0, whole) as (i, _):
            place = low.builder.add(base, i)
            low.builder.store(low.buffer(self.targets[0], True), place, _neutral(self.x))
        return base

    def _visit(
        self, coordinates: list[Index], bounds: list[tuple[Index, Index]], own: list[Index], base: Index
    ) -> None:
        """One update: nothing, if a part of its window is outside, or if it is of a range that is not one's own."""
        low, sizes = self.low, self.sizes
        b = low.builder
        place: list[Index] = [0] * len(sizes)
        inside: Operand | None = None
        for k, d in enumerate(self.a.start_index_map):
            extent = self.parts[self.window.index(d)] if d in self.window else 1
            vector = self.a.vector(coordinates, k, self.indices.array_shape.rank)
            place[d], fits = place_inside(low, low.value(self.indices, vector), sizes[d] - extent)
            if not k:
                for direction, end in zip(("GE", "LT"), own, strict=False):
                    fits = b.and_(fits, b.compare(direction, place[d], end))
            inside = fits if inside is None else b.and_(inside, fits)
        for d, c in self.a.pairs():
            place[d] = coordinates[c]

        def update(inner: Coordinates, values: list[Operand]) -> list[Operand]:
            at = list(place)
            for d, c in zip(self.window, inner, strict=True):
                at[d] = b.add(at[d], c)
            others, along = iter(coordinates), dict(zip(self.a.offset_dims, inner, strict=True))
            source = tuple(along[d] if d in along else next(others) for d in range(len(coordinates) + len(inner)))
            where = b.add(low.linearize(sizes, at), base)
            old = [b.load(low.buffer(target, True), where) for target in self.targets]
            new = low.apply(self.x.attributes.to_apply, [*old, *(low.value(u, source) for u in self.updates)])
            for target, value in zip(self.targets, new, strict=True):
                b.store(low.buffer(target, True), where, value)
            return []

        with low.loop(0, 1 if inside is None else b.select(inside, 1), sequential=True):
            low.nest(bounds, [], update, force_vectorize=tuple(self.parts[-1:]) > (SHORT_WINDOW,))


def _sums(x: Instruction, elements: int) -> int:
    """How many pieces of the updates are put together apart: of ops that may take them in any order."""
    kind, a = x.operands[0].array_shape.element_type, x.attributes
    if len(x.operands) != 3 or reduction.monoid(a.to_apply) is None or kind.bits < 32 or kind.kind == "complex":
        return 1
    return (
        min(
            MOST_SUMS,
            elements // PARALLEL_CHUNK_ELEMENTS,
            elements // (WORTH_A_SUM * max(1, x.operands[0].array_shape.size)),
        )
        or 1
    )


def _apart(size: int) -> int:
    """How far arrays are from each other that threads write at a time: no cache line has elements of two."""
    return -(-size // LINE) * LINE


def _neutral(x: Instruction) -> Literal:
    shape, op = x.operands[0].array_shape, reduction.monoid(x.attributes.to_apply)
    assert op is not None, "sums are of monoids"
    value = np.asarray(reduction.identity_element(op, shape.dtype), shape.dtype)
    zero_is_signed = op == "add" and shape.element_type.kind == "float"  # and -0 + -0 is -0
    return Literal(shape.element_type.name, (-value if zero_is_signed else value).item())


def _added_up(x: Instruction, plan: Plan, apart: Storage, result: Storage, sums: int) -> LoweredKernel:
    low = Lowering("sums", plan, [x])
    b, size = low.builder, x.operands[0].array_shape.size
    to, source = low.buffer(result, True), low.buffer(apart)
    with low.loop(b.kernel.first, b.kernel.last) as (i, _):
        value: Operand = b.load(to, i)
        for k in range(sums):
            other = b.load(source, b.add(i, k * _apart(size)))
            (value,) = low.apply(x.attributes.to_apply, [value, other])
        b.store(to, i, value)
    return make_kernel(low, size, sums, [x])


def _pieces(parts: Sequence[int], still: Sequence[int], updates: int) -> tuple[int, int]:
    """Which dimension of a window is cut, and into how many pieces."""
    if not still:
        return 0, 1
    cut = max(still, key=lambda k: parts[k])
    elements = math.prod(parts)
    wanted = min(FEW_PIECES, parts[cut], elements // LEAST_WINDOW, elements * updates // PARALLEL_CHUNK_ELEMENTS)
    return cut, max(1, wanted)


def _ranges(a: indexing.Gather, sizes: Sequence[int], window: Sequence[int], elements: int) -> int:
    """Into how many ranges the places of sorted updates are divided. For each all indices are read; where they are in
    order, it is easy to foresee which are its own."""
    first = a.start_index_map[:1]
    if not first or first[0] in window or not a.indices_are_sorted:
        return 1
    return max(1, min(FEW_RANGES, sizes[first[0]], elements // PARALLEL_CHUNK_ELEMENTS))


def place_inside(low: Lowering, index: Operand, last: int) -> tuple[Index, Operand]:
    """An index as a place, and whether it is one from 0 to `last`."""
    b = low.builder
    place = b.convert(INDEX, index)
    if last < 0:
        return place, Literal("pred", False)
    unsigned = b.convert("u64", place)  # where what is negative is beyond all others
    return place, b.compare("LE", unsigned, Literal("u64", last))


def _targets(x: Instruction, plan: Plan, users: Users) -> tuple[list[Storage], list[LoweredKernel]]:
    """Where the results are made. One that nobody takes needs memory all the same, for the computation to see."""
    taken = {r.attributes.index if r is not x else 0: r for r in results_of(x, users)}
    targets: list[Storage] = []
    copies: list[LoweredKernel] = []
    for k in range(len(x.operands) // 2):
        if k in taken:
            targets.append(taken[k])
        else:
            targets.append(Temporary(x.operands[k].array_shape))
            copies.append(copied(x.operands[k], targets[-1], plan))
    return targets, copies


def copied(source: Instruction, target: Storage, plan: Plan) -> LoweredKernel:
    low = Lowering("copy", plan)
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.store(low.buffer(target, True), index, b.load(low.buffer(source), index))
    return make_kernel(low, source.array_shape.size, 1, [])
