"""Loop nests of the four kinds from fusions: `loop` and `row` here, `column` and `split` in `reductions`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.backends.numba import reductions
from tinyxla.backends.numba.axes import CHUNK, Axis, cost, finished, merged, piece_of, spread
from tinyxla.backends.numba.loops import Index, Operand
from tinyxla.backends.numba.lowering import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.compiler.access import Place, normal
from tinyxla.compiler.fusion import SERIAL, Fusion, Plan, base, domain, is_costly, results_of, walk
from tinyxla.hlo import Instruction
from tinyxla.ops import reduction

TILE = 32  # rows and columns of a square that is read across
LARGEST_ROW = 1 << 14  # elements of an intermediate that is kept for a row
ROWS_LIMIT = 1 << 17  # bytes of all of them


def lower(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a fusion: one, or two where pieces are reduced first."""
    return _KINDS[fusion.kind](fusion, plan, users)


def _loop(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots, sizes = fusion.roots, fusion.outer
    low = Lowering("loop", plan, roots)
    axes = merged(roots, plan.stored, sizes)
    work = cost(roots, plan.stored)
    first, last = low.builder.kernel.first, low.builder.kernel.last

    def body(coordinates: Coordinates) -> None:
        for root in roots:
            low.define(root, coordinates)

    if len(axes) < 2:
        with low.loop(first, last) as (index, _):
            body(spread(axes, [index][: len(axes)], len(sizes)))
        return [finished(low, axes[0].size if axes else 1, work, roots)]
    *outer, inner = axes
    rows = math.prod(a.size for a in outer)
    crossing = _crossing(roots, plan.stored, axes) if rows * inner.size > SERIAL else None
    if crossing is not None:
        return [_tiled(low, axes, crossing, work, roots)]
    pieces = -(-inner.size // CHUNK) if rows < 16 else 1
    with low.loop(first, last) as (index, _):
        row, start, stop = piece_of(low, index, pieces, inner.size)
        indices = low.split_index(row, [a.size for a in outer])
        with low.loop(start, stop) as (j, _):
            body(spread(axes, [*indices, j], len(sizes)))
    return [finished(low, rows * pieces, work * -(-inner.size // pieces), roots)]


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
    return finished(low, math.prod(counts), work * TILE * TILE, roots)


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
    return [finished(low, rows, cost(roots, plan.stored) * max(1, inner), roots)]


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
    """Costly intermediates of a row that several phases need, as far as they fit into the first cache. One that is read
    in other rows too is computed there."""
    rank = len(fusion.outer)
    local = normal(range(rank), fusion.outer)
    elsewhere = {x for phase in phases for x, place, _ in walk(phase, stored) if place[:rank] != local}
    first: dict[Instruction, int] = {}
    found: set[Instruction] = set()
    room = ROWS_LIMIT
    for k, phase in enumerate(phases):
        for x, place, from_memory in walk(phase, stored):
            whole = all(c in (-1, d) for d, c in enumerate(place))
            if from_memory or not is_costly(x) or not whole or x in found or x in elsewhere:
                continue
            sizes = x.array_shape.dimensions
            if sizes != domain(phase[0]) or sizes[:rank] != fusion.outer or len(place) == rank:
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

    with low.scope():
        results = low.nest([(0, a.size) for a in axes], carried, body)
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
    """Whether a phase computes each element of x just once."""
    if x.array_shape.dimensions != domain(phase[0]):
        return False
    return any(y is x and all(c in (-1, d) for d, c in enumerate(place)) for y, place, _ in walk(phase, stored))


_KINDS: dict[str, Callable[[Fusion, Plan, Users], list[LoweredKernel]]] = {
    "loop": _loop,
    "row": _row,
    "column": reductions.column,
    "split": reductions.split,
}
