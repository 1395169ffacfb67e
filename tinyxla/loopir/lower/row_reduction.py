"""Fused row reductions: the `row` kind of nests, several loops (stages) over one row with the reductions of the row
between them, such as softmax and layer norm.

Short rows are unrolled, or vectorized across rows by transposed tiles (`transposed_rows`). A cross-row reduction in the
same nest has a row of accumulators per chunk of rows; the partial results of the chunks are combined by a second
kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from functools import partial
from itertools import product
from typing import Any

from tinyxla.compiler.analysis.access_maps import normalize, renumber_dims
from tinyxla.compiler.analysis.fusibility import is_costly
from tinyxla.compiler.costs import (
    CHUNKS,
    COSTLY_OPS,
    L1_ELEMENTS,
    L2_ELEMENTS,
    MAX_CHUNKS,
    MAX_UNROLLED,
    MIN_REUSE,
    PARALLEL_CHUNK_ELEMENTS,
    TASKS,
    VECTOR_ELEMENTS,
)
from tinyxla.compiler.fusion.plan import Accesses, LoopNest, Plan, iteration_space, producer_of, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Operand
from tinyxla.loopir.lower import reductions, transposed_rows
from tinyxla.loopir.lower.axes import (
    MAX_UNROLLED_OPS,
    Axis,
    collapse_axes,
    expand_indices,
    make_kernel,
    note_fused,
    ops_per_element,
    split_index_set,
    tile_of,
)
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.loopir.target import current_target
from tinyxla.ops import reduction

_DIVISIONS = frozenset(("divide", "chain-divide"))  # a vector division costs about ten loads


def lower_row_reduction(fusion: LoopNest, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a `row` fusion: one, or two if partial cross-row reductions are combined."""
    roots = fusion.roots
    low, rows = Lowering("row", plan, [r for root in roots for r in results_of(root, users)]), math.prod(fusion.outer)
    stages = _stages(fusion, plan.accesses, users)
    cached = _cached_intermediates(stages, fusion, plan.accesses)
    if fusion.cross_row is None and fusion.kept is None:
        axes = _row_axes(fusion, plan.accesses)
        row_size = max(math.prod(iteration_space(root)[len(fusion.outer) :]) for root in roots)
        is_large = rows * row_size >= L1_ELEMENTS
        has_many_rows = axes and axes[-1].size >= transposed_rows.TILE_ROWS and is_large
        tile_elements = (len(fusion.reads) + len(roots) + len(cached)) * row_size * transposed_rows.TILE_ROWS
        fits_tile = tile_elements <= L2_ELEMENTS // 8  # beside what passes through the cache
        is_long = row_size * ops_per_element(roots, plan.accesses) > MAX_UNROLLED_OPS
        is_short = (1 if is_long else MAX_UNROLLED) < row_size < transposed_rows.TILE_ROWS
        if has_many_rows and is_short and fits_tile and transposed_rows.applies(fusion, axes, plan.accesses):
            return [transposed_rows.TransposedRows(low, fusion.outer, axes, cached, users).lower(stages, row_size)]
        if row_size <= VECTOR_ELEMENTS and not is_long and rows >= VECTOR_ELEMENTS:
            return [_lower_unrolled_rows(low, stages, fusion, users, axes, row_size)]
    if fusion.cross_row is not None:
        return _lower_with_cross_row(low, stages, fusion, fusion.cross_row, cached, plan, users)
    emitter = _RowEmitter(low, fusion, cached, users)
    _note_rows(low, fusion)
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        outer = low.split_index(index, fusion.outer)
        for stage in stages:
            emitter.emit_stage(stage, outer)
    inner = sum(math.prod(iteration_space(p[0])) // max(1, rows) for p in stages)
    return [make_kernel(low, rows, ops_per_element(roots, plan.accesses) * max(1, inner), roots)]


def _lower_with_cross_row(
    low: Lowering,
    stages: list[list[Instruction]],
    fusion: LoopNest,
    cross_row: LoopNest,
    cached: Set[Instruction],
    plan: Plan,
    users: Users,
) -> list[LoweredKernel]:
    """Chunks of rows with a row of accumulators for each cross-row reduction, and a kernel that combines them."""
    b, columns = low.builder, reductions.Reductions(cross_row, plan)
    rows, sizes = math.prod(fusion.outer), iteration_space(columns.roots[0])[len(fusion.outer) :]
    width = math.prod(sizes)
    ops_per_row = ops_per_element(fusion.roots, plan.accesses) * len(stages) * width
    long_chunks = rows * ops_per_row // (PARALLEL_CHUNK_ELEMENTS * COSTLY_OPS * reductions.LONG_CHUNKS)
    long_chunks = min(MAX_CHUNKS, long_chunks, rows // MAX_CHUNKS)
    chunks = max(1, min(CHUNKS, rows // MIN_REUSE), long_chunks)
    accumulators = [b.scratch(x.array_shape.element_type.name, width) for x in columns.arrays]
    emitter = _RowEmitter(low, fusion, cached, users, accumulators)
    _note_rows(low, fusion)
    low.note("split", "rows", -(-rows // chunks))
    with low.loop(b.kernel.first, b.kernel.last) as (chunk, _):
        with low.loop(0, width) as (j, _):
            for row, value in zip(accumulators, columns.initial_values(low, chunks), strict=True):
                b.store(row, j, value)
        _, start, stop = tile_of(low, chunk, chunks, rows)
        with low.loop(start, stop, sequential=True) as (row, _):
            outer = low.split_index(row, fusion.outer)
            for stage in stages:
                emitter.emit_stage(stage, outer)
        with low.loop(0, width) as (j, _):
            values: list[Operand] = [b.load(row, j) for row in accumulators]
            columns.store_results(low, values, low.split_index(j, sizes), chunk, chunks, users)
    ops = ops_per_row * -(-rows // chunks)
    kernel = make_kernel(low, chunks, ops, fusion.roots)
    if chunks == 1:
        return [kernel]
    return [kernel, reductions.combine(columns, plan, users, chunks, MAX_CHUNKS)]


def _note_rows(low: Lowering, fusion: LoopNest) -> None:
    """Note that the dimensions that number the rows are one loop."""
    rows = [Axis(d, d, size) for d, size in zip(fusion.kept or range(len(fusion.outer)), fusion.outer, strict=True)]
    note_fused(low, rows, iteration_space(fusion.reductions[0]), is_one_loop=True)


def _row_axes(fusion: LoopNest, accesses: Accesses) -> list[Axis]:
    """The loops over the rows. Only outer dimensions collapse: in every access map, inner dimensions get numbers
    that are adjacent to no others."""
    rank = len(fusion.outer)
    results = [
        (root, tuple(range(rank if producer_of(root).op is reduction.reduce else len(iteration_space(root)))))
        for root in fusion.roots
    ]
    read = [*((x, access) for x, access, _ in accesses.read_by(fusion.roots)), *results]
    loop_dims = [
        *range(rank),
        *range(-rank - 2, -rank - 2 - max(len(iteration_space(root)) for root in fusion.roots), -1),
    ]
    renumbered = [(x, renumber_dims(access, loop_dims)) for x, access in read]
    return collapse_axes((), accesses, fusion.outer, extra_accesses=renumbered)


def _lower_unrolled_rows(
    low: Lowering,
    stages: Sequence[Sequence[Instruction]],
    fusion: LoopNest,
    users: Users,
    axes: Sequence[Axis],
    row_size: int,
) -> LoweredKernel:
    """A loop over rows, each unrolled; index-set splitting as in pointwise nests."""
    *outer_axes, inner = axes
    b = low.builder
    read = [x for root in fusion.roots if producer_of(root).op is reduction.reduce for x in producer_of(root).operands]
    read = [x for x in [*read, *fusion.roots] if not low.in_memory(x)]
    rows = math.prod(a.size for a in outer_axes)
    tiles = -(-inner.size * row_size // PARALLEL_CHUNK_ELEMENTS) if rows < 2 * TASKS else 1
    note_fused(low, axes, fusion.outer)
    low.note("unroll", "row", row_size)
    if tiles > 1:
        low.note("split", inner, -(-inner.size // tiles))
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        row, start, stop = tile_of(low, index, tiles, inner.size)
        indices = low.split_index(row, [a.size for a in outer_axes])
        ranges = split_index_set(inner, read, low.accesses, row_size * ops_per_element(fusion.roots, low.accesses))
        for range_start, range_end in ranges:
            bounds = (b.max(start, range_start), b.min(stop, range_end)) if len(ranges) > 1 else (start, stop)
            with low.loop(*bounds) as (j, _):
                b.assume_range(j, range_start, range_end - 1)
                outer = expand_indices(axes, [*indices, j], len(fusion.outer))
                for root in (root for stage in stages for root in stage):
                    _emit_unrolled_row(low, root, outer, users)
    ops = ops_per_element(fusion.roots, low.accesses) * row_size * -(-inner.size // tiles)
    return make_kernel(low, rows * tiles, ops, fusion.roots)


def _emit_unrolled_row(low: Lowering, root: Instruction, outer: Coordinates, users: Users) -> None:
    """Emit all elements of a root in one row."""
    x = producer_of(root)
    is_reduction = x.op is reduction.reduce
    values = low.initial(x) if is_reduction else []
    for indices in product(*map(range, iteration_space(root)[len(outer) :])):
        if is_reduction:
            values = low.accumulate(x, values, (*outer, *indices))
        else:
            low.emit_root(root, (*outer, *indices))
    for result in results_of(root, users) if is_reduction else ():
        low.bind_reduction(result, outer, values[result.attributes.index if result is not x else 0])


def _split_dims(root: Instruction, fusion: LoopNest) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root's iteration space; a cross-row reduction reduces the outer ones."""
    rank = len(fusion.outer)
    if fusion.cross_row is not None and root in fusion.cross_row.roots:
        dims = list(range(len(iteration_space(root))))
        return dims[:rank], dims[rank:]
    if fusion.kept is not None and len(iteration_space(root)) != rank:
        return list(fusion.kept), [d for d in range(len(iteration_space(root))) if d not in fusion.kept]
    return _default_split_dims(root, rank)


def _default_split_dims(root: Instruction, rank: int) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root: kept and reduced ones of a reduction, otherwise the first `rank`
    and the others."""
    x = producer_of(root)
    dims = range(len(iteration_space(root)))
    if x.op is reduction.reduce:
        return [d for d in dims if d not in x.attributes.dimensions], list(x.attributes.dimensions)
    return list(dims[:rank]), list(dims[rank:])


def _stages(fusion: LoopNest, accesses: Accesses, users: Any) -> list[list[Instruction]]:
    """The roots of each stage, a loop over the row, in order.

    A root's stage comes after the stages of the reductions that it reads, and of the roots that it reads at other
    positions of the row. An argmin or argmax has a stage of its own, the last of its depth, so that it reads cached
    intermediates.
    """
    root_of = {r: root for root in fusion.roots for r in results_of(root, users)}
    depth_of: dict[Instruction, int] = {}
    groups: dict[tuple[int, int, tuple[int, ...]], list[Instruction]] = {}
    cross_row = fusion.cross_row
    dependent: list[Instruction] = []
    if cross_row is not None:
        independent = [*cross_row.reductions, *cross_row.full_space_roots()]
        dependent = [r for r in cross_row.roots if r not in independent]
    for root in fusion.roots:
        if root in dependent:
            continue
        depth = 0
        identity = tuple(range(len(iteration_space(root))))
        for x, access, _ in accesses.read_by([root]):
            if x in root_of:
                producer = root_of[x]
                is_same_element = (
                    producer_of(producer).op is not reduction.reduce
                    and len(access) == len(identity)
                    and all(c in (-1, d) for d, c in enumerate(access))
                )
                depth = max(depth, depth_of[producer] + (not is_same_element))
        depth_of[root] = depth
        inner = tuple(iteration_space(root)[d] for d in _split_dims(root, fusion)[1])
        own_stage = len(groups) + 1 if reductions.is_argminmax(producer_of(root)) else 0
        groups.setdefault((depth, own_stage, inner), []).append(root)
    return [groups[key] for key in sorted(groups, key=lambda key: key[:2])]


def _cached_intermediates(stages: list[list[Instruction]], fusion: LoopNest, accesses: Accesses) -> Set[Instruction]:
    """Expensive intermediates of a row that several stages read, as far as they fit into the first-level cache.
    Excludes those that are read in other rows, too. In the order of the program, so that equal programs have equal
    kernels in each process, which the cache of object code finds."""
    rank = len(fusion.outer)
    if fusion.kept is not None:
        return set()
    row_access = normalize(range(rank), fusion.outer)
    reads = [read for stage in stages for read in accesses.read_by(stage)]
    read_in_other_rows = {x for x, access, _ in reads if access[:rank] != row_access}
    first_stage: dict[Instruction, int] = {}
    cached = dict[Instruction, None]()
    free_bytes = current_target().rows_bytes
    for k, stage in enumerate(stages):
        for x, access, from_memory in accesses.read_by(stage):
            is_same_element = all(c in (-1, d) for d, c in enumerate(access))
            is_expensive = is_costly(x) or x.op.name in _DIVISIONS
            if from_memory or not is_expensive or not is_same_element or x in cached or x in read_in_other_rows:
                continue
            sizes = x.array_shape.dimensions
            if sizes != iteration_space(stage[0]) or sizes[:rank] != fusion.outer or len(access) == rank:
                continue
            size = math.prod(x.array_shape.dimensions[rank:])
            bytes_needed = size * x.array_shape.dtype.itemsize
            if first_stage.setdefault(x, k) != k and size <= L2_ELEMENTS // 16 and bytes_needed <= free_bytes:
                cached[x] = None
                free_bytes -= bytes_needed
    return cached.keys()


class _RowEmitter:
    """Emits the stages of a row; `accumulators` are the rows of accumulators of cross-row reductions."""

    def __init__(
        self,
        low: Lowering,
        fusion: LoopNest,
        cached: Set[Instruction],
        users: Users,
        accumulators: Sequence[Buffer] = (),
    ) -> None:
        self.low, self.b, self.fusion, self.users = low, low.builder, fusion, users
        self.cached, self.accumulators = cached, accumulators
        self.rank = len(fusion.outer)
        self.cross_row_roots = fusion.cross_row.reductions if fusion.cross_row is not None else []

    def emit_stage(self, roots: Sequence[Instruction], outer: Coordinates) -> None:
        """Emit one loop over a row."""
        low = self.low
        pointwise = [root for root in roots if producer_of(root).op is not reduction.reduce]
        reduced = [producer_of(root) for root in roots if root not in pointwise and root not in self.cross_row_roots]
        axes, coordinates_at = self.row_axes(roots, outer)
        buffers = self.allocate(roots)

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            coordinates = coordinates_at(indices)
            for x, row in buffers.items():
                self.b.store(*self.locate(x, row, coordinates), low.value(x, coordinates))
            next_values = reductions.update_each(low.accumulate, reduced, values, coordinates)
            for root in pointwise:
                low.emit_root(root, coordinates)
            self.accumulate_columns(roots, coordinates)
            return next_values

        bounds: list[tuple[Index, Index]] = [(0, a.size) for a in axes]
        ranges = [bounds[-1:]]
        if axes and not reduced:
            ops = ops_per_element(roots, low.accesses)
            ranges = [[split] for split in split_index_set(axes[-1], roots, low.accesses, ops)]
        results = [value for x in reduced for value in low.initial(x)]
        with low.scope():
            argminmax = None
            if len(roots) == len(reduced) == 1 and not buffers:
                argminmax = reductions.lower_argminmax(low, reduced[0], bounds, results, coordinates_at)
            for split in ranges:
                results = argminmax or reductions.emit_reduction_loops(
                    low, reduced, [*bounds[:-1], *split], results, body
                )
        self.bind_results(reduced, outer, results)
        low.mark_materialized(pointwise)
        for x, row in buffers.items():
            low.bind_memory(x, partial(self.locate, x, row))

    def row_axes(
        self, roots: Sequence[Instruction], outer: Coordinates
    ) -> tuple[list[Axis], Callable[[Coordinates], Coordinates]]:
        """The loops over the inner dimensions, and the coordinates for their indices."""
        sizes, (outer_dims, inner_dims) = iteration_space(roots[0]), _split_dims(roots[0], self.fusion)
        barriers = [d for d in range(1, len(sizes)) if (d in inner_dims) != (d - 1 in inner_dims)]
        axes = collapse_axes(roots, self.low.accesses, sizes, barriers=barriers)
        axes = [a for a in axes if a.first in inner_dims]

        def coordinates_at(indices: Coordinates) -> Coordinates:
            coordinates = list(expand_indices(axes, indices, len(sizes)))
            for d, c in zip(outer_dims, outer, strict=True):
                coordinates[d] = c
            return tuple(coordinates)

        return axes, coordinates_at

    def allocate(self, roots: Sequence[Instruction]) -> dict[Instruction, Buffer]:
        """Scratch rows for the cached intermediates that this stage computes."""
        computed = [
            x
            for x in self.cached
            if not self.low.has_memory(x) and transposed_rows.is_computed_once(x, roots, self.low.accesses)
        ]
        return {
            x: self.b.scratch(x.array_shape.element_type.name, math.prod(x.array_shape.dimensions[self.rank :]))
            for x in computed
        }

    def locate(self, x: Instruction, row: Buffer, coordinates: Coordinates) -> tuple[Buffer, Index]:
        """Buffer and index of an intermediate's element in its scratch row; outer coordinates may be missing."""
        sizes = x.array_shape.dimensions[self.rank :]
        return row, self.low.linearize(sizes, coordinates[len(coordinates) - len(sizes) :])

    def accumulate_columns(self, roots: Sequence[Instruction], coordinates: Coordinates) -> None:
        """Add an element of a row to the accumulators of its column."""
        remaining = list(self.accumulators)
        for root in self.cross_row_roots:
            count = len(producer_of(root).operands) // 2
            own, remaining = remaining[:count], remaining[count:]
            if root in roots:
                j = self.low.linearize(iteration_space(root)[self.rank :], coordinates[self.rank :])
                values = self.low.accumulate(producer_of(root), [self.b.load(row, j) for row in own], coordinates)
                for row, value in zip(own, values, strict=True):
                    self.b.store(row, j, value)

    def bind_results(self, reduced: Sequence[Instruction], outer: Coordinates, results: Sequence[Operand]) -> None:
        """Bind and store the results of the row's reductions."""
        for x in reduced:
            count = len(x.operands) // 2
            own, results = results[:count], results[count:]
            for result in results_of(x, self.users):
                self.low.bind_reduction(result, outer, own[result.attributes.index if result is not x else 0])
