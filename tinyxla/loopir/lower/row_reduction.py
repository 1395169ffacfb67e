"""Loops over rows, one after the other, with the reductions of each row between them: the `row` kind of nests.

Rows that are short are written out, many at a time, or put side by side in strips (see `strips`). Where the rows are
also reduced over columns, pieces of rows have a row of accumulators each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from tinyxla.compiler.analysis.access_maps import normalize, renumber_dims
from tinyxla.compiler.analysis.fusibility import is_costly
from tinyxla.compiler.fusion.plan import Fusion, Plan, iteration_space, producer_of, results_of, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Operand
from tinyxla.loopir.lower import reductions, transposed_rows
from tinyxla.loopir.lower.axes import (
    MAX_UNROLLED_OPS,
    MAX_UNROLLED_ROW,
    MAX_UNROLLED_ROWS,
    PARALLEL_CHUNK_ELEMENTS,
    Axis,
    collapse_axes,
    expand_indices,
    make_kernel,
    ops_per_element,
    split_index_set,
    tile_of,
)
from tinyxla.loopir.lower.emit import LANES, Coordinates, LoweredKernel, Lowering, Users
from tinyxla.loopir.lower.transposed_tiles import ACROSS
from tinyxla.ops import reduction

LARGEST_ROW = 1 << 14  # elements of an intermediate that is kept for a row
ROWS_LIMIT = 1 << 17  # bytes of all of them
STRIP_LIMIT = 1 << 9  # elements of all arrays of a row, where rows make strips
QUOTIENTS = frozenset(("divide", "chain-divide"))  # for a vector they take as long as some ten loads
INTERLEAVED = 8  # elements of a row that LLVM turns by itself
MOST_PIECES = 32  # of rows that are summed up
ROWS_OF_PIECE = 16  # at least


def row(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots = fusion.roots
    low, rows = Lowering("row", plan, [r for root in roots for r in results_of(root, users)]), math.prod(fusion.outer)
    phases = _phases(fusion, plan.materialized, users)
    kept = _kept_rows(phases, fusion, plan.materialized)
    if fusion.cross_row is None and fusion.kept is None:
        axes = _axes_of_rows(fusion, plan.materialized)
        longest = max(math.prod(iteration_space(root)[len(fusion.outer) :]) for root in roots)
        is_many = axes and axes[-1].size >= LANES and rows * longest >= ACROSS
        is_held = (len(fusion.reads) + len(roots) + len(kept)) * longest <= STRIP_LIMIT
        is_much = longest * ops_per_element(roots, plan.materialized) > MAX_UNROLLED_OPS
        is_turned = (1 if is_much else INTERLEAVED) < longest < LANES
        if is_many and is_turned and is_held and transposed_rows.suits(fusion, axes, plan.materialized):
            return [transposed_rows.Strips(low, fusion.outer, axes, kept, users).lowered(phases, longest)]
        if longest <= MAX_UNROLLED_ROW and not is_much and rows >= MAX_UNROLLED_ROWS:
            return [_short_rows(low, phases, fusion, users, axes, longest)]
    if fusion.cross_row is not None:
        return _row_and_columns(low, phases, fusion, fusion.cross_row, kept, plan, users)
    loops = _Loops(low, fusion, kept, users)
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        outer = low.split_index(index, fusion.outer)
        for phase in phases:
            loops.phase(phase, outer)
    inner = sum(math.prod(iteration_space(p[0])) // max(1, rows) for p in phases)
    return [make_kernel(low, rows, ops_per_element(roots, plan.materialized) * max(1, inner), roots)]


def _row_and_columns(
    low: Lowering,
    phases: list[list[Instruction]],
    fusion: Fusion,
    across: Fusion,
    kept: set[Instruction],
    plan: Plan,
    users: Users,
) -> list[LoweredKernel]:
    """Pieces of some rows each, with a row of accumulators for each reduction over the rows; and these together."""
    b, columns = low.builder, reductions.Reductions(across, plan)
    rows, sizes = math.prod(fusion.outer), iteration_space(columns.roots[0])[len(fusion.outer) :]
    width = math.prod(sizes)
    pieces = max(1, min(MOST_PIECES, rows // ROWS_OF_PIECE))
    sums = [b.scratch(x.array_shape.element_type.name, width) for x in columns.arrays]
    loops = _Loops(low, fusion, kept, users, sums)
    with low.loop(b.kernel.first, b.kernel.last) as (piece, _):
        with low.loop(0, width) as (j, _):
            for row, value in zip(sums, columns.start(low, pieces), strict=True):
                b.store(row, j, value)
        _, start, stop = tile_of(low, piece, pieces, rows)
        with low.loop(start, stop, sequential=True) as (row, _):
            outer = low.split_index(row, fusion.outer)
            for phase in phases:
                loops.phase(phase, outer)
        with low.loop(0, width) as (j, _):
            values: list[Operand] = [b.load(row, j) for row in sums]
            columns.deliver(low, values, low.split_index(j, sizes), piece, pieces, users)
    work = ops_per_element(fusion.roots, plan.materialized) * len(phases) * width * -(-rows // pieces)
    first = make_kernel(low, pieces, work, fusion.roots)
    return [first] if pieces == 1 else [first, reductions.combine(columns, plan, users, pieces)]


def _axes_of_rows(fusion: Fusion, stored: set[Instruction]) -> list[Axis]:
    """The loops over the rows, whose place in all that is read and written has numbers for the outer dimensions only;
    those of inner ones follow no other."""
    rank = len(fusion.outer)
    written = [
        (root, tuple(range(rank if producer_of(root).op is reduction.reduce else len(iteration_space(root)))))
        for root in fusion.roots
    ]
    places = [*((x, place) for x, place, _ in walk_producers(fusion.roots, stored)), *written]
    numbers = [
        *range(rank),
        *range(-rank - 2, -rank - 2 - max(len(iteration_space(root)) for root in fusion.roots), -1),
    ]
    return collapse_axes((), stored, fusion.outer, also=[(x, renumber_dims(place, numbers)) for x, place in places])


def _short_rows(
    low: Lowering,
    phases: Sequence[Sequence[Instruction]],
    fusion: Fusion,
    users: Users,
    axes: Sequence[Axis],
    longest: int,
) -> LoweredKernel:
    """A loop over the rows, each written out; cut as others are where what is read changes."""
    *others, inner = axes
    b = low.builder
    read = [x for root in fusion.roots if producer_of(root).op is reduction.reduce for x in producer_of(root).operands]
    read = [x for x in [*read, *fusion.roots] if not low.in_memory(x)]
    rows = math.prod(a.size for a in others)
    pieces = -(-inner.size * longest // PARALLEL_CHUNK_ELEMENTS) if rows < 16 else 1
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        row, start, stop = tile_of(low, index, pieces, inner.size)
        indices = low.split_index(row, [a.size for a in others])
        parts = split_index_set(
            inner, read, low.materialized, longest * ops_per_element(fusion.roots, low.materialized)
        )
        for begin, end in parts:
            bounds = (b.max(start, begin), b.min(stop, end)) if len(parts) > 1 else (start, stop)
            with low.loop(*bounds) as (j, _):
                b.assume_range(j, begin, end - 1)
                outer = expand_indices(axes, [*indices, j], len(fusion.outer))
                for root in (root for phase in phases for root in phase):
                    _write_out(low, root, outer, users)
    work = ops_per_element(fusion.roots, low.materialized) * longest * -(-inner.size // pieces)
    return make_kernel(low, rows * pieces, work, fusion.roots)


def _write_out(low: Lowering, root: Instruction, outer: Coordinates, users: Users) -> None:
    """All that a root has in a row."""
    x = producer_of(root)
    is_reduction = x.op is reduction.reduce
    values = low.initial(x) if is_reduction else []
    for indices in product(*map(range, iteration_space(root)[len(outer) :])):
        if is_reduction:
            values = low.accumulate(x, values, (*outer, *indices))
        else:
            low.emit_root(root, (*outer, *indices))
    for part in results_of(root, users) if is_reduction else ():
        low.bind_reduction(part, outer, values[part.attributes.index if part is not x else 0])


def _order(root: Instruction, fusion: Fusion) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root of a row: of a reduction across, the outer ones are reduced."""
    rank = len(fusion.outer)
    if fusion.cross_row is not None and root in fusion.cross_row.roots:
        dims = list(range(len(iteration_space(root))))
        return dims[:rank], dims[rank:]
    if fusion.kept is not None and len(iteration_space(root)) != rank:
        return list(fusion.kept), [d for d in range(len(iteration_space(root))) if d not in fusion.kept]
    return _inner_order(root, rank)


def _inner_order(root: Instruction, rank: int) -> tuple[list[int], list[int]]:
    """The outer and the inner dimensions of a root's domain."""
    x = producer_of(root)
    dims = range(len(iteration_space(root)))
    if x.op is reduction.reduce:
        return [d for d in dims if d not in x.attributes.dimensions], list(x.attributes.dimensions)
    return list(dims[:rank]), list(dims[rank:])


def _phases(fusion: Fusion, stored: set[Instruction], users: Any) -> list[list[Instruction]]:
    """Loops over a row, one after the other, with the roots that share each.

    A root comes after the reductions it needs, and after what it reads at other places of the row. What finds where the
    largest element is goes over the row by itself, and last, so that it reads what the others kept.
    """
    members = {r: root for root in fusion.roots for r in results_of(root, users)}
    level: dict[Instruction, int] = {}
    groups: dict[tuple[int, int, tuple[int, ...]], list[Instruction]] = {}
    columns = fusion.cross_row
    after = (
        []
        if columns is None
        else [r for r in columns.roots if r not in [*columns.reductions, *columns.full_space_roots()]]
    )
    for root in fusion.roots:
        if root in after:
            continue
        at = 0
        here = tuple(range(len(iteration_space(root))))
        for x, place, _ in walk_producers([root], stored):
            if x in members:
                needed = members[x]
                same = (
                    producer_of(needed).op is not reduction.reduce
                    and len(place) == len(here)
                    and all(c in (-1, d) for d, c in enumerate(place))
                )
                at = max(at, level[needed] + (not same))
        level[root] = at
        inner = tuple(iteration_space(root)[d] for d in _order(root, fusion)[1])
        alone = len(groups) + 1 if reductions.is_argminmax(producer_of(root)) else 0
        groups.setdefault((at, alone, inner), []).append(root)
    return [groups[key] for key in sorted(groups, key=lambda key: key[:2])]


def _kept_rows(phases: list[list[Instruction]], fusion: Fusion, stored: set[Instruction]) -> set[Instruction]:
    """Costly intermediates of a row that several phases need, as far as they fit into the first cache. One that is read
    in other rows too is computed there."""
    rank = len(fusion.outer)
    if fusion.kept is not None:
        return set()
    local = normalize(range(rank), fusion.outer)
    elsewhere = {x for phase in phases for x, place, _ in walk_producers(phase, stored) if place[:rank] != local}
    first: dict[Instruction, int] = {}
    found: set[Instruction] = set()
    room = ROWS_LIMIT
    for k, phase in enumerate(phases):
        for x, place, from_memory in walk_producers(phase, stored):
            whole = all(c in (-1, d) for d, c in enumerate(place))
            kept = is_costly(x) or x.op.name in QUOTIENTS
            if from_memory or not kept or not whole or x in found or x in elsewhere:
                continue
            sizes = x.array_shape.dimensions
            if sizes != iteration_space(phase[0]) or sizes[:rank] != fusion.outer or len(place) == rank:
                continue
            size = math.prod(x.array_shape.dimensions[rank:])
            bytes_needed = size * x.array_shape.dtype.itemsize
            if first.setdefault(x, k) != k and size <= LARGEST_ROW and bytes_needed <= room:
                found.add(x)
                room -= bytes_needed
    return found


class _Loops:
    """Emits the loops over a row; in `sums` are the accumulators of the reductions across."""

    def __init__(
        self, low: Lowering, fusion: Fusion, kept: set[Instruction], users: Users, sums: Sequence[Buffer] = ()
    ) -> None:
        self.low, self.b, self.fusion, self.kept, self.users, self.sums = low, low.builder, fusion, kept, users, sums
        self.rank = len(fusion.outer)
        self.across = fusion.cross_row.reductions if fusion.cross_row is not None else []

    def phase(self, roots: Sequence[Instruction], outer: Coordinates) -> None:
        """One loop over a row."""
        low = self.low
        plain = [root for root in roots if producer_of(root).op is not reduction.reduce]
        reduced = [producer_of(root) for root in roots if root not in plain and root not in self.across]
        axes, place = self.axes(roots, outer)
        scratch = self.scratch(roots)

        def body(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            coordinates = place(indices)
            for x, row in scratch.items():
                self.b.store(*self.place_in(x, row, coordinates), low.value(x, coordinates))
            updated = reductions.update_each(low.accumulate, reduced, values, coordinates)
            for root in plain:
                low.emit_root(root, coordinates)
            self.add_across(roots, coordinates)
            return updated

        bounds: list[tuple[Index, Index]] = [(0, a.size) for a in axes]
        parts = [bounds[-1:]]
        if axes and not reduced:
            parts = [
                [part]
                for part in split_index_set(axes[-1], roots, low.materialized, ops_per_element(roots, low.materialized))
            ]
        results = [value for x in reduced for value in low.initial(x)]
        with low.scope():
            found = None
            if len(roots) == len(reduced) == 1 and not scratch:
                found = reductions.lower_argminmax(low, reduced[0], bounds, results, place)
            for part in parts:
                results = found or reductions.run(low, reduced, [*bounds[:-1], *part], results, body)
        self.finish(reduced, outer, results)
        low.mark_materialized(plain)
        for x, row in scratch.items():
            low.bind_memory(x, partial(self.place_in, x, row))

    def axes(
        self, roots: Sequence[Instruction], outer: Coordinates
    ) -> tuple[list[Axis], Callable[[Coordinates], Coordinates]]:
        """The loops over the inner dimensions, and where their indices are in the domain."""
        sizes, (outside, inside) = iteration_space(roots[0]), _order(roots[0], self.fusion)
        borders = [d for d in range(1, len(sizes)) if (d in inside) != (d - 1 in inside)]
        axes = [a for a in collapse_axes(roots, self.low.materialized, sizes, apart=borders) if a.first in inside]

        def place(indices: Coordinates) -> Coordinates:
            found = list(expand_indices(axes, indices, len(sizes)))
            for d, c in zip(outside, outer, strict=True):
                found[d] = c
            return tuple(found)

        return axes, place

    def scratch(self, roots: Sequence[Instruction]) -> dict[Instruction, Buffer]:
        """For the intermediates that this loop computes and others read."""
        here = [
            x
            for x in self.kept
            if not self.low.has_memory(x) and transposed_rows.computed_in(x, roots, self.low.materialized)
        ]
        return {
            x: self.b.scratch(x.array_shape.element_type.name, math.prod(x.array_shape.dimensions[self.rank :]))
            for x in here
        }

    def place_in(self, x: Instruction, row: Buffer, coordinates: Coordinates) -> tuple[Buffer, Index]:
        """Where an intermediate's row has an element, whose outer coordinates may be missing."""
        sizes = x.array_shape.dimensions[self.rank :]
        return row, self.low.linearize(sizes, coordinates[len(coordinates) - len(sizes) :])

    def add_across(self, roots: Sequence[Instruction], coordinates: Coordinates) -> None:
        """An element of a row, to the sums of its column."""
        rest = list(self.sums)
        for root in self.across:
            count = len(producer_of(root).operands) // 2
            mine, rest = rest[:count], rest[count:]
            if root in roots:
                j = self.low.linearize(iteration_space(root)[self.rank :], coordinates[self.rank :])
                values = self.low.accumulate(producer_of(root), [self.b.load(row, j) for row in mine], coordinates)
                for row, value in zip(mine, values, strict=True):
                    self.b.store(row, j, value)

    def finish(self, reduced: Sequence[Instruction], outer: Coordinates, results: Sequence[Operand]) -> None:
        """What a row's reductions found goes to where it is read."""
        for x in reduced:
            count = len(x.operands) // 2
            mine, results = results[:count], results[count:]
            for part in results_of(x, self.users):
                self.low.bind_reduction(part, outer, mine[part.attributes.index if part is not x else 0])
