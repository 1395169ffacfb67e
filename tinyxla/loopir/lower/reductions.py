"""Reductions in pieces: what nests of columns and those to few elements, the `split` kind, have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinyxla.compiler.analysis.access_maps import renumber_dims
from tinyxla.compiler.fusion.plan import Fusion, Plan, iteration_space, producer_of, results_of, walk_producers
from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand
from tinyxla.loopir.lower.axes import (
    PARALLEL_CHUNK_ELEMENTS,
    Axis,
    collapse_axes,
    expand_indices,
    make_kernel,
    ops_per_element,
    tile_of,
)
from tinyxla.loopir.lower.emit import (
    FEW_LANES,
    LANES,
    ROWS,
    Coordinates,
    LoweredKernel,
    Lowering,
    Temporary,
    Users,
    clamped,
)
from tinyxla.ops import movement, reduction
from tinyxla.shapes import Shape

Array = np.ndarray[Any, Any]

SAMPLES = 128  # by which a computation shows whether it is commutative
BLOCK = 1 << 10  # elements of which the largest is found before it is found out where that is
SHORT = 16  # fewer elements, and they are compared one after the other
MANY = 80  # elements of several rows: fewer, and their lanes are not worth joining
MOST_PIECES = 32  # that are put together one after the other for a vector of results


class Reductions:
    """What `column` and `split` nests have in common: reductions over one space, and what is made of their results."""

    def __init__(self, fusion: Fusion, plan: Plan) -> None:
        self.roots = fusion.reductions
        self.along = fusion.full_space_roots()
        self.after = [root for root in fusion.roots if root not in [*self.roots, *self.along]]
        self.sizes = iteration_space(self.roots[0])
        self.reduced: tuple[int, ...] = producer_of(self.roots[0]).attributes.dimensions
        self.results = fusion.outer
        self.arrays = [
            x for root in self.roots for x in producer_of(root).operands[: len(producer_of(root).operands) // 2]
        ]
        self.partials: list[Temporary] = []
        breaks = [d for d in range(1, len(self.sizes)) if (d in self.reduced) != (d - 1 in self.reduced)]
        kept = [d for d in range(len(self.sizes)) if d not in self.reduced]
        after = [
            *((x, tuple(range(len(kept)))) for x in self.after),
            *((x, p) for x, p, _ in walk_producers(self.after, plan.materialized)),
        ]
        also = [(x, renumber_dims(place, kept)) for x, place in after]
        self.axes = collapse_axes([*self.roots, *self.along], plan.materialized, self.sizes, apart=breaks, also=also)
        self.work = ops_per_element([*self.roots, *self.along], plan.materialized)
        self.is_plain = all(reduction.monoid(producer_of(root).attributes.to_apply) for root in self.roots)
        self.divisible = all(_is_divisible(producer_of(root)) for root in self.roots)
        self.is_interchangeable = self.is_plain or all(_is_interchangeable(producer_of(root)) for root in self.roots)

    def own(self, users: Users) -> list[Instruction]:
        return [*self.along, *self.after, *(part for root in self.roots for part in results_of(root, users))]

    def place(self, axes: Sequence[Axis], indices: Sequence[Index]) -> Coordinates:
        by_axis = dict(zip(axes, indices, strict=True))
        given = [a for a in self.axes if a in by_axis]
        return expand_indices(given, [by_axis[a] for a in given], len(self.sizes))

    def start(self, low: Lowering, pieces: int) -> list[Operand]:
        """What the accumulators of one of so many pieces hold at first."""
        values = low.initial if pieces == 1 else low.identity
        return [value for root in self.roots for value in values(producer_of(root))]

    def accumulate(self, low: Lowering, values: Sequence[Operand], place: Coordinates) -> list[Operand]:
        for root in self.along:
            low.emit_root(root, place)
        return update_each(low.accumulate, [producer_of(root) for root in self.roots], values, place)

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
                    Temporary(Shape(x.array_shape.element_type, (pieces, *self.results))) for x in self.arrays
                ]
            for partial, value in zip(self.partials, values, strict=True):
                low.store(partial, (piece, *result), value)
            return
        rest = list(values)
        for root in self.roots:
            count = len(producer_of(root).operands) // 2
            mine, rest = rest[:count], rest[count:]
            for part in results_of(root, users):
                low.bind_reduction(part, result, mine[part.attributes.index if part is not producer_of(root) else 0])
        for root in self.after:
            low.emit_root(root, result)


def update_each(
    accumulate: Callable[[Instruction, Sequence[Operand], Any], list[Operand]],
    reduced: Sequence[Instruction],
    values: Sequence[Operand],
    more: Any,
) -> list[Operand]:
    """The values that several reductions carry after one more element: those of each by themselves."""
    updated: list[Operand] = []
    for x in reduced:
        updated += accumulate(x, values[len(updated) : len(updated) + len(x.operands) // 2], more)
    return updated


def combine_accumulators(
    low: Lowering, reduced: Sequence[Instruction], values: Sequence[Operand], others: Sequence[Operand]
) -> list[Operand]:
    """What several reductions carry, and what they carry elsewhere, together."""
    rest = list(others)

    def accumulate(x: Instruction, mine: Sequence[Operand], _: None) -> list[Operand]:
        theirs = [rest.pop(0) for _ in mine]
        return low.apply(x.attributes.to_apply, [*mine, *theirs])

    return update_each(accumulate, reduced, values, None)


def run(
    low: Lowering,
    reduced: Sequence[Instruction],
    bounds: Sequence[tuple[Index, Index]],
    initial: Sequence[Operand],
    body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
) -> list[Operand]:
    """The loops of reductions: with several sets of carried values, where LLVM would not find them by itself, or would
    join those of each of many short rows."""
    start, stop = bounds[-1] if bounds else (0, 0)
    width = stop - start if isinstance(start, int) and isinstance(stop, int) else 2 * LANES
    short = width < 2 * LANES
    known = [reduction.monoid(x.attributes.to_apply) for x in reduced]
    is_complex = any(x.operands[0].array_shape.element_type.kind == "complex" for x in reduced)
    sizes = [end - begin for begin, end in bounds if isinstance(begin, int) and isinstance(end, int)]
    many = len(sizes) < len(bounds) or math.prod(sizes) >= max(MANY, ROWS[-1] * width)
    many_rows = FEW_LANES <= width < 2 * LANES and len(bounds) > 1 and many
    is_vector = None not in known and not (is_complex and set(known) != {"add"})  # by LLVM, that is
    in_lanes = many_rows or not (short or is_vector)
    if not in_lanes or not all(k or _is_interchangeable(x) for k, x in zip(known, reduced, strict=True)):
        return low.nest(bounds, initial, body)
    neutral = [value for x in reduced for value in low.identity(x)]
    return low.nest_with_accumulators(
        bounds, initial, neutral, body, lambda values, others: combine_accumulators(low, reduced, values, others)
    )


def lower_argminmax(
    low: Lowering,
    x: Instruction,
    bounds: Sequence[tuple[Index, Index]],
    initial: Sequence[Operand],
    place: Callable[[Coordinates], Coordinates],
) -> list[Operand] | None:
    """The loops of one reduction that finds the largest or the least element and where it is first, if it is such a
    one: by blocks, of which the extreme element is found, and where that is only if it is better than what was found
    before."""
    direction = _direction_of(x) if len(bounds) == 1 else None
    start, stop = bounds[0] if bounds else (0, 0)
    if direction is None or (isinstance(start, int) and isinstance(stop, int) and stop - start < SHORT):
        return None
    b, (values, places) = low.builder, x.operands[:2]
    kind, index_kind = (o.array_shape.element_type for o in (values, places))
    op = "maximum" if direction == "GT" else "minimum"
    neutral = Literal(kind.name, np.asarray(reduction.identity_element(op, kind.dtype)).astype(kind.dtype).item())
    none = Literal(index_kind.name, int(np.iinfo(index_kind.dtype).max))

    def compared(one: Operand, other: Operand, direction: str) -> Operand:
        compare_type = "FLOAT" if kind.is_inexact else "UNSIGNED" if kind.name[0] in "up" else "SIGNED"
        return b.compute("compare", "pred", one, other, direction=direction, compare_type=compare_type)

    with low.loop(0, b.ceil_div(b.sub(stop, start), BLOCK), initial, sequential=True) as (number, loop):
        first = b.add(start, b.mul(number, BLOCK))
        block = [(first, b.min(b.add(first, BLOCK), stop))]
        known: list[Operand] = [c.arg for c in loop.carried]

        def extreme(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            return [b.compute(op, kind.name, carried[0], low.value(values, place(indices)))]

        def first_place(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            element = low.value(values, place(indices))
            here = b.or_(compared(element, found, "EQ"), compared(element, element, "NE"))
            chosen = b.select(here, low.value(places, place(indices)), none)
            return [b.compute("minimum", none.type, carried[0], chosen)]

        (found,) = low.nest(block, [neutral], extreme)
        worse = b.or_(compared(known[0], found, direction), compared(known[0], known[0], "NE"))
        with low.loop(0, b.select(b.compute("not", "pred", worse), 1), known, sequential=True) as (_, again):
            (at,) = low.nest(block, [none], first_place)
            index = clamped(low, b.convert(INDEX, at), values.array_shape.dimensions[_axis(x)])
            better = [low.value(values, place((index,))), at]
            updated = low.apply(x.attributes.to_apply, [*(c.arg for c in again.carried), *better])
            for slot, value in zip(again.carried, updated, strict=True):
                slot.next = value
        for slot, result in zip(loop.carried, again.carried, strict=True):
            slot.next = result.result
    return [c.result for c in loop.carried]


def _axis(x: Instruction) -> int:
    """The dimension that a reduction goes along: there is one only that is longer than 1."""
    sizes = x.operands[0].array_shape.dimensions
    return max(x.attributes.dimensions, key=lambda d: sizes[d])


def is_argminmax(x: Instruction) -> bool:
    """Whether this is a reduction that finds where the largest or the least element is."""
    return x.op is reduction.reduce and _direction_of(x) is not None


def _direction_of(x: Instruction) -> str | None:
    """Whether a reduction finds the first of the largest ("GT") or the least elements of a row with its index, NaN
    before any number; None if it does something else."""
    places = x.operands[1]
    if len(x.operands) != 4 or places.op is not movement.iota or not places.array_shape.element_type.is_integer:
        return None
    sizes, kind = places.array_shape.dimensions, x.operands[0].array_shape.element_type
    wide = [d for d in x.attributes.dimensions if sizes[d] != 1]
    if wide != [places.attributes.iota_dimension] or kind.kind in ("complex", "pred") or kind.bits < 8:
        return None
    return next((d for d in ("GT", "LT") if _finds_first(x.attributes.to_apply, d)), None)


@lru_cache(256)
def _finds_first(body: Computation, direction: str) -> bool:
    """Whether a computation chooses like this among two elements with their indices, as samples show."""
    (value, place), (other, behind) = samples = _samples(body)
    with np.errstate(all="ignore"):
        is_nan, is_other_nan = value != value, other != other
        same = (value == other) | (is_nan & is_other_nan)
        better = value > other if direction == "GT" else value < other
        chosen = np.where(same, place < behind, (better & ~is_other_nan) | is_nan)
        expected = [np.where(chosen, x, y) for x, y in zip(*samples, strict=True)]
        return _same(reduction.combine_arrays(body, *samples), expected)


def _is_divisible(x: Instruction) -> bool:
    """Whether pieces of a reduction may each start anew: from the neutral element of a known op, or else from initial
    values that change nothing when they are met again."""
    body = x.attributes.to_apply
    starts = [scalar_value(o) for o in x.operands[len(x.operands) // 2 :]]
    if reduction.monoid(body) is not None:
        return True
    if any(start is None for start in starts):
        return False
    arrays = [np.reshape(start, 1) for start in starts]
    return _same(reduction.combine_arrays(body, arrays, arrays), arrays)


def _is_interchangeable(x: Instruction) -> bool:
    """Whether elements may be reduced in any order. XLA's reduction asks for a computation that is associative; whether
    it is commutative, too, shows in samples with ties and special values."""
    return _is_divisible(x) and is_commutative(x.attributes.to_apply)


@lru_cache(256)
def is_commutative(body: Computation) -> bool:
    left, right = _samples(body)
    with np.errstate(all="ignore"):
        return _same(*(reduction.combine_arrays(body, *pair) for pair in ((left, right), (right, left))))


def _samples(body: Computation) -> tuple[list[Array], list[Array]]:
    """Operands of a reduction's computation, on both sides: with ties and special values."""
    random = np.random.default_rng(0)
    left: list[Array] = []
    for x in body.parameters[: len(body.parameters) // 2]:
        kind = x.array_shape.element_type
        numbers = random.integers(0, 2 if kind.kind == "pred" else 7, SAMPLES)
        special = [np.nan, np.inf, -np.inf] if kind.is_inexact else [0, 1, 1]
        left.append(np.where(random.random(SAMPLES) < 0.1, random.choice(special, SAMPLES), numbers).astype(kind.dtype))
    order = random.permutation(SAMPLES)
    return left, [x[order] for x in left]


def _same(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(some, others, strict=True))


def combine(space: Reductions, plan: Plan, users: Users, pieces: int) -> LoweredKernel:
    """Reduce over the pieces, which are the first dimension of the partial results."""
    low = Lowering("combine", plan, space.own(users))
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        result = low.split_index(index, space.results)
        found = space.start(low, 1)
        reduced = [producer_of(root) for root in space.roots]

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            return combine_accumulators(
                low, reduced, values, [low.load(x, (*indices, *result)) for x in space.partials]
            )

        if space.is_plain and pieces <= MOST_PIECES:  # so that vectors go along memory
            for piece in range(pieces):
                found = body((piece,), found)
        else:
            found = low.nest([(0, pieces)], found, body)
        space.deliver(low, found, result, 0, 1, users)
    return make_kernel(low, math.prod(space.results), pieces, space.roots)


def combine_partials(pieces: Temporary, x: Instruction, plan: Plan) -> LoweredKernel:
    """An array, of which each of the rows of `pieces` is a part of the sum."""
    low = Lowering("pieces", plan)
    b = low.builder
    count, size = pieces.shape.dimensions
    with low.loop(b.kernel.first, b.kernel.last) as (k, _):
        total = low.load(pieces, (0, k))
        for piece in range(1, count):
            total = b.compute("add", x.array_shape.element_type.name, total, low.load(pieces, (piece, k)))
        b.store(low.buffer(x, True), k, total)
    return make_kernel(low, size, count, [x])


def split_reduction(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Reductions to few elements: fixed pieces of the first reduced dimension, and then these together."""
    space = Reductions(fusion, plan)
    over = [a for a in space.axes if a.first in space.reduced]
    kept = [a for a in space.axes if a.first not in space.reduced]
    inner = math.prod(a.size for a in over[1:])
    pieces = max(1, min(over[0].size, over[0].size * inner // PARALLEL_CHUNK_ELEMENTS)) if space.divisible else 1
    is_row = len(over) == 1 and over[0].size % pieces == 0  # pieces of one length, whose memory is asked for early
    low = Lowering("split", plan, space.own(users))
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        row, piece = b.delinearize(index, pieces)
        outer = low.split_index(row, [a.size for a in kept])
        initial = space.start(low, pieces)
        bounds: list[tuple[Index, Index]] = [(0, a.size) for a in over]
        start: Index = 0
        if pieces > 1:
            bounds[0] = tile_of(low, piece, pieces, over[0].size)[1:]
            start = bounds[0][0] if is_row else 0

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            first, *others = indices
            return space.accumulate(low, values, space.place([*kept, *over], [*outer, b.add(start, first), *others]))

        found = None
        if len(space.roots) == 1 and not space.along:
            found = lower_argminmax(
                low, producer_of(space.roots[0]), bounds, initial, lambda i: space.place([*kept, *over], [*outer, *i])
            )
        bounds = [(0, over[0].size // pieces)] if is_row else bounds
        found = found or run(low, [producer_of(root) for root in space.roots], bounds, initial, body)
        whole = space.place(kept, outer)
        result = tuple(c for d, c in enumerate(whole) if d not in space.reduced)
        space.deliver(low, found, result, piece, pieces, users)
    rows = math.prod(a.size for a in kept)
    first = make_kernel(low, rows * pieces, space.work * inner * -(-over[0].size // pieces), space.roots)
    return [first] if pieces == 1 else [first, combine(space, plan, users, pieces)]
