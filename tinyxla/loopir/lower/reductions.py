"""Lowering of reductions: helpers that `column` and `split` nests share, loops with explicit accumulators, argmin
and argmax, and the `split` kind of nests (split-K reductions to few elements).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinyxla.compiler.analysis.access_maps import renumber_dims
from tinyxla.compiler.costs import (
    BLOCK_ELEMENTS,
    COSTLY_OPS,
    LONG_ROW,
    MAX_UNROLLED,
    MAX_UNROLLED_TERMS,
    PARALLEL_CHUNK_ELEMENTS,
    VECTOR_ELEMENTS,
)
from tinyxla.compiler.fusion.plan import LoopNest, Plan, iteration_space, producer_of, results_of
from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand
from tinyxla.loopir.lower.axes import (
    Axis,
    collapse_axes,
    expand_indices,
    make_kernel,
    note_fused,
    ops_per_element,
    tile_of,
)
from tinyxla.loopir.lower.emit import (
    ROW_UNROLL_COUNTS,
    Coordinates,
    LoweredKernel,
    Lowering,
    Temporary,
    Users,
    clamp_index,
    identity_literal,
)
from tinyxla.ops import movement, reduction
from tinyxla.shapes import Shape

Array = np.ndarray[Any, Any]

LONG_CHUNKS = 12  # chunks of usual work in a chunk of a reduction that takes long


class Reductions:
    """The reductions of a `column` or `split` nest over one iteration space, with the elementwise roots over the
    full space (`full_space_roots`) and those computed from the results (`dependent_roots`)."""

    def __init__(self, fusion: LoopNest, plan: Plan) -> None:
        self.roots = fusion.reductions
        self.full_space_roots = fusion.full_space_roots()
        self.dependent_roots = [root for root in fusion.roots if root not in [*self.roots, *self.full_space_roots]]
        self.sizes = iteration_space(self.roots[0])
        self.reduced: tuple[int, ...] = producer_of(self.roots[0]).attributes.dimensions
        self.results = fusion.outer
        self.arrays = [
            x for root in self.roots for x in producer_of(root).operands[: len(producer_of(root).operands) // 2]
        ]
        self.partials: list[Temporary] = []
        barriers = [d for d in range(1, len(self.sizes)) if (d in self.reduced) != (d - 1 in self.reduced)]
        kept_dims = [d for d in range(len(self.sizes)) if d not in self.reduced]
        dependent = [
            *((x, tuple(range(len(kept_dims)))) for x in self.dependent_roots),
            *((x, access) for x, access, _ in plan.accesses.read_by(self.dependent_roots)),
        ]
        extra_accesses = [(x, renumber_dims(access, kept_dims)) for x, access in dependent]
        self.axes = collapse_axes(
            [*self.roots, *self.full_space_roots],
            plan.accesses,
            self.sizes,
            barriers=barriers,
            extra_accesses=extra_accesses,
        )
        self.ops_per_element = ops_per_element([*self.roots, *self.full_space_roots], plan.accesses)
        self.is_monoid = all(reduction.monoid(producer_of(root).attributes.to_apply) for root in self.roots)
        self.has_identity = all(_has_identity(producer_of(root)) for root in self.roots)
        self.is_reorderable = self.is_monoid or all(_is_reorderable(producer_of(root)) for root in self.roots)

    def own_roots(self, users: Users) -> list[Instruction]:
        """All instructions whose elements the nest computes and stores."""
        return [
            *self.full_space_roots,
            *self.dependent_roots,
            *(result for root in self.roots for result in results_of(root, users)),
        ]

    def computed(self, splits: int) -> list[Instruction]:
        """The roots that a kernel of so many partial reductions computes: `combine` does the others."""
        return [*self.roots, *self.full_space_roots, *(self.dependent_roots if splits == 1 else [])]

    def coordinates(self, axes: Sequence[Axis], indices: Sequence[Index]) -> Coordinates:
        """Coordinates in the iteration space from indices of some axes."""
        by_axis = dict(zip(axes, indices, strict=True))
        selected = [a for a in self.axes if a in by_axis]
        return expand_indices(selected, [by_axis[a] for a in selected], len(self.sizes))

    def initial_values(self, low: Lowering, splits: int) -> list[Operand]:
        """Initial values of the accumulators of one of `splits` partial reductions."""
        values = low.initial if splits == 1 else low.identity
        return [value for root in self.roots for value in values(producer_of(root))]

    def accumulate(self, low: Lowering, values: Sequence[Operand], coordinates: Coordinates) -> list[Operand]:
        """Emit the full-space roots of an element, and return the accumulators with the element added."""
        for root in self.full_space_roots:
            low.emit_root(root, coordinates)
        return update_each(low.accumulate, [producer_of(root) for root in self.roots], values, coordinates)

    def store_results(
        self,
        low: Lowering,
        values: Sequence[Operand],
        result: Coordinates,
        split: Index,
        splits: int,
        users: Users,
    ) -> None:
        """Store the partial results of a split, or, if there is one split only, the results and their dependent
        roots."""
        if splits > 1:
            if not self.partials:
                self.partials = [
                    Temporary(Shape(x.array_shape.element_type, (splits, *self.results))) for x in self.arrays
                ]
            for partial, value in zip(self.partials, values, strict=True):
                low.store(partial, (split, *result), value)
            return
        remaining = list(values)
        for root in self.roots:
            count = len(producer_of(root).operands) // 2
            own, remaining = remaining[:count], remaining[count:]
            for output in results_of(root, users):
                low.bind_reduction(
                    output, result, own[output.attributes.index if output is not producer_of(root) else 0]
                )
        for root in self.dependent_roots:
            low.emit_root(root, result)


def update_each(
    accumulate: Callable[[Instruction, Sequence[Operand], Any], list[Operand]],
    reduced: Sequence[Instruction],
    values: Sequence[Operand],
    argument: Any,
) -> list[Operand]:
    """The carried values of several reductions after one more element, by `accumulate(x, values_of_x, argument)`."""
    next_values: list[Operand] = []
    for x in reduced:
        next_values += accumulate(x, values[len(next_values) : len(next_values) + len(x.operands) // 2], argument)
    return next_values


def combine_accumulators(
    low: Lowering, reduced: Sequence[Instruction], values: Sequence[Operand], others: Sequence[Operand]
) -> list[Operand]:
    """Two sets of accumulators of several reductions, combined."""
    remaining = list(others)

    def accumulate(x: Instruction, own: Sequence[Operand], _: None) -> list[Operand]:
        other = [remaining.pop(0) for _ in own]
        return low.apply(x.attributes.to_apply, [*own, *other])

    return update_each(accumulate, reduced, values, None)


def emit_reduction_loops(
    low: Lowering,
    reduced: Sequence[Instruction],
    bounds: Sequence[tuple[Index, Index]],
    initial: Sequence[Operand],
    body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
) -> list[Operand]:
    """The loops of reductions, with explicit accumulators per vector lane where LLVM would not vectorize the
    reduction, or would reduce each of many short rows to a scalar by itself."""
    start, stop = bounds[-1] if bounds else (0, 0)
    width = stop - start if isinstance(start, int) and isinstance(stop, int) else LONG_ROW
    is_short = width < LONG_ROW
    monoids = [reduction.monoid(x.attributes.to_apply) for x in reduced]
    is_complex = any(x.operands[0].array_shape.element_type.kind == "complex" for x in reduced)
    sizes = [stop - start for start, stop in bounds if isinstance(start, int) and isinstance(stop, int)]
    min_elements = max(5 * VECTOR_ELEMENTS, ROW_UNROLL_COUNTS[-1] * width)  # that pay for combining accumulators
    has_many_elements = len(sizes) < len(bounds) or math.prod(sizes) >= min_elements
    are_rows_accumulated = MAX_UNROLLED <= width < LONG_ROW and len(bounds) > 1 and has_many_elements
    is_vectorized_by_llvm = None not in monoids and not (is_complex and set(monoids) != {"add"})
    needs_accumulators = are_rows_accumulated or not (is_short or is_vectorized_by_llvm)
    if not needs_accumulators or not all(k or _is_reorderable(x) for k, x in zip(monoids, reduced, strict=True)):
        return low.nest(bounds, initial, body)
    identity = [value for x in reduced for value in low.identity(x)]
    return low.nest_with_accumulators(
        bounds, initial, identity, body, lambda values, others: combine_accumulators(low, reduced, values, others)
    )


def lower_argminmax(
    low: Lowering,
    x: Instruction,
    bounds: Sequence[tuple[Index, Index]],
    initial: Sequence[Operand],
    coordinates_at: Callable[[Coordinates], Coordinates],
) -> list[Operand] | None:
    """An argmin or argmax in one loop over blocks: the extremum of a block first, then its first position only if
    the extremum is better than that of earlier blocks. None if the reduction is no argmin or argmax over one
    dimension, or is short."""
    direction = _argminmax_direction(x) if len(bounds) == 1 else None
    start, stop = bounds[0] if bounds else (0, 0)
    is_short = isinstance(start, int) and isinstance(stop, int) and stop - start < VECTOR_ELEMENTS
    if direction is None or is_short:
        return None
    b, (values, positions) = low.builder, x.operands[:2]
    type, index_type = (o.array_shape.element_type for o in (values, positions))
    op = "maximum" if direction == "GT" else "minimum"
    identity = identity_literal(op, type)
    no_position = Literal(index_type.name, int(np.iinfo(index_type.dtype).max))

    def compare(x: Operand, y: Operand, direction: str) -> Operand:
        compare_type = "FLOAT" if type.is_inexact else "UNSIGNED" if type.name[0] in "up" else "SIGNED"
        return b.compute("compare", "pred", x, y, direction=direction, compare_type=compare_type)

    with low.loop(0, b.ceil_div(b.sub(stop, start), BLOCK_ELEMENTS), initial, sequential=True) as (k, loop):
        first = b.add(start, b.mul(k, BLOCK_ELEMENTS))
        block = [(first, b.min(b.add(first, BLOCK_ELEMENTS), stop))]
        best: list[Operand] = [c.arg for c in loop.carried]

        def extremum_of(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            return [b.compute(op, type.name, carried[0], low.value(values, coordinates_at(indices)))]

        def first_position_of(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            element = low.value(values, coordinates_at(indices))
            is_extremum = b.or_(compare(element, extremum, "EQ"), compare(element, element, "NE"))
            candidate = b.select(is_extremum, low.value(positions, coordinates_at(indices)), no_position)
            return [b.compute("minimum", no_position.type, carried[0], candidate)]

        (extremum,) = low.nest(block, [identity], extremum_of)
        is_not_better = b.or_(compare(best[0], extremum, direction), compare(best[0], best[0], "NE"))
        with low.loop(0, b.select(b.compute("not", "pred", is_not_better), 1), best, sequential=True) as (_, branch):
            (position,) = low.nest(block, [no_position], first_position_of)
            index = clamp_index(low, b.convert(INDEX, position), values.array_shape.dimensions[_reduced_dim(x)])
            extremum_and_position = [low.value(values, coordinates_at((index,))), position]
            next_values = low.apply(x.attributes.to_apply, [*(c.arg for c in branch.carried), *extremum_and_position])
            for carry, value in zip(branch.carried, next_values, strict=True):
                carry.next = value
        for carry, result in zip(loop.carried, branch.carried, strict=True):
            carry.next = result.result
    return [c.result for c in loop.carried]


def _reduced_dim(x: Instruction) -> int:
    """The only reduced dimension with more than one index."""
    sizes = x.operands[0].array_shape.dimensions
    return max(x.attributes.dimensions, key=lambda d: sizes[d])


def is_argminmax(x: Instruction) -> bool:
    """True if a reduction computes a minimum or maximum with its index."""
    return x.op is reduction.reduce and _argminmax_direction(x) is not None


def _argminmax_direction(x: Instruction) -> str | None:
    """The comparison of an argmax ("GT") or argmin ("LT") reduction, which selects the first extremum of a row and
    treats NaN as the extremum; None for other reductions."""
    positions = x.operands[1]
    if len(x.operands) != 4 or positions.op is not movement.iota or not positions.array_shape.element_type.is_integer:
        return None
    sizes, type = positions.array_shape.dimensions, x.operands[0].array_shape.element_type
    reduced_dims = [d for d in x.attributes.dimensions if sizes[d] != 1]
    if reduced_dims != [positions.attributes.iota_dimension] or type.kind in ("complex", "pred") or type.bits < 8:
        return None
    return next((d for d in ("GT", "LT") if _is_argminmax_combiner(x.attributes.to_apply, d)), None)


@lru_cache(256)
def _is_argminmax_combiner(body: Computation, direction: str) -> bool:
    """True if a combiner selects the better of two (value, index) pairs, ties by the smaller index, as samples show."""
    (value, position), (other_value, other_position) = samples = _samples(body)
    with np.errstate(all="ignore"):
        is_nan, is_other_nan = value != value, other_value != other_value
        is_tie = (value == other_value) | (is_nan & is_other_nan)
        is_better = value > other_value if direction == "GT" else value < other_value
        selects_first = np.where(is_tie, position < other_position, (is_better & ~is_other_nan) | is_nan)
        expected = [np.where(selects_first, x, y) for x, y in zip(*samples, strict=True)]
        return _are_identical(reduction.combine_arrays(body, *samples), expected)


def _has_identity(x: Instruction) -> bool:
    """True if partial reductions may start independently: the combiner has a known identity, or the initial values
    are idempotent."""
    body = x.attributes.to_apply
    starts = [scalar_value(o) for o in x.operands[len(x.operands) // 2 :]]
    if reduction.monoid(body) is not None:
        return True
    if any(start is None for start in starts):
        return False
    arrays = [np.reshape(start, 1) for start in starts]
    return _are_identical(reduction.combine_arrays(body, arrays, arrays), arrays)


def _is_reorderable(x: Instruction) -> bool:
    """True if elements may be reduced in any order. HLO requires an associative combiner; commutativity is decided
    by samples with ties and special values."""
    return _has_identity(x) and is_commutative(x.attributes.to_apply)


@lru_cache(256)
def is_commutative(body: Computation) -> bool:
    left, right = _samples(body)
    with np.errstate(all="ignore"):
        return _are_identical(*(reduction.combine_arrays(body, *pair) for pair in ((left, right), (right, left))))


def _samples(body: Computation) -> tuple[list[Array], list[Array]]:
    """Random operand pairs of a combiner, with ties and special values."""
    random, count = np.random.default_rng(0), 128
    left: list[Array] = []
    for x in body.parameters[: len(body.parameters) // 2]:
        type = x.array_shape.element_type
        integers = random.integers(0, 2 if type.kind == "pred" else 7, count)
        special = [np.nan, np.inf, -np.inf] if type.is_inexact else [0, 1, 1]
        is_special = random.random(count) < 0.1
        values = np.where(is_special, random.choice(special, count), integers)
        left.append(values.astype(type.dtype))
    order = random.permutation(count)
    return left, [x[order] for x in left]


def _are_identical(xs: Sequence[Array], ys: Sequence[Array]) -> bool:
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(xs, ys, strict=True))


def combine(
    space: Reductions, plan: Plan, users: Users, splits: int, max_unrolled: int = MAX_UNROLLED_TERMS
) -> LoweredKernel:
    """The kernel that reduces the partial results over their first dimension, the splits."""
    low = Lowering("combine", plan, space.own_roots(users))
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        result = low.split_index(index, space.results)
        results = space.initial_values(low, 1)
        reduced = [producer_of(root) for root in space.roots]

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            return combine_accumulators(
                low, reduced, values, [low.load(x, (*indices, *result)) for x in space.partials]
            )

        if space.is_monoid and splits <= max_unrolled:  # vectorized over contiguous results
            for split in range(splits):
                results = body((split,), results)
        else:
            results = low.nest([(0, splits)], results, body)
        space.store_results(low, results, result, 0, 1, users)
    ops = splits * (COSTLY_OPS if splits > MAX_UNROLLED_TERMS else 1)  # many are far away, in others' caches
    return make_kernel(low, math.prod(space.results), ops, [*space.roots, *space.dependent_roots])


def combine_partials(partials: Temporary, x: Instruction, plan: Plan) -> LoweredKernel:
    """The kernel that sums the rows of `partials` to the array x."""
    low = Lowering("pieces", plan)
    b = low.builder
    count, size = partials.shape.dimensions
    with low.loop(b.kernel.first, b.kernel.last) as (k, _):
        total = low.load(partials, (0, k))
        for split in range(1, count):
            total = b.compute("add", x.array_shape.element_type.name, total, low.load(partials, (split, k)))
        b.store(low.buffer(x, True), k, total)
    return make_kernel(low, size, count, [x])


def lower_split_reduction(fusion: LoopNest, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Reductions to few elements: the first reduced dimension is split into fixed ranges, and a second kernel
    combines the partial results."""
    space = Reductions(fusion, plan)
    reduced_axes = [a for a in space.axes if a.first in space.reduced]
    kept_axes = [a for a in space.axes if a.first not in space.reduced]
    inner = math.prod(a.size for a in reduced_axes[1:])
    size, splits = reduced_axes[0].size, 1
    if space.has_identity:
        splits = max(1, min(size, size * inner // PARALLEL_CHUNK_ELEMENTS))
    has_equal_splits = len(reduced_axes) == 1 and size % splits == 0  # allows prefetch across splits
    reduced = [producer_of(root) for root in space.roots]
    low = Lowering("split", plan, space.own_roots(users))
    note_fused(low, space.axes, space.sizes)
    if splits > 1:
        low.note("split", reduced_axes[0], -(-size // splits))
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        row, split = b.delinearize(index, splits)
        outer = low.split_index(row, [a.size for a in kept_axes])
        initial = space.initial_values(low, splits)
        bounds: list[tuple[Index, Index]] = [(0, a.size) for a in reduced_axes]
        start: Index = 0
        if splits > 1:
            bounds[0] = tile_of(low, split, splits, size)[1:]
            start = bounds[0][0] if has_equal_splits else 0

        def coordinates_at(indices: Coordinates) -> Coordinates:
            return space.coordinates([*kept_axes, *reduced_axes], [*outer, *indices])

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            k, *inner_indices = indices
            return space.accumulate(low, values, coordinates_at((b.add(start, k), *inner_indices)))

        results = None
        if len(space.roots) == 1 and not space.full_space_roots:
            results = lower_argminmax(low, reduced[0], bounds, initial, coordinates_at)
        bounds = [(0, size // splits)] if has_equal_splits else bounds
        results = results or emit_reduction_loops(low, reduced, bounds, initial, body)
        coordinates = space.coordinates(kept_axes, outer)
        result = tuple(c for d, c in enumerate(coordinates) if d not in space.reduced)
        space.store_results(low, results, result, split, splits, users)
    rows = math.prod(a.size for a in kept_axes)
    kernel = make_kernel(low, rows * splits, space.ops_per_element * inner * -(-size // splits), space.computed(splits))
    return [kernel] if splits == 1 else [kernel, combine(space, plan, users, splits)]
