"""Pointwise loop nests: the lowerings of `loop` fusions and of large concatenations, and the dispatch over all kinds
of fusions (`row_reduction`, `outer_reduction`, `reductions` hold the others).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise, product
from typing import Literal

from tinyxla.compiler.analysis.fusibility import is_costly
from tinyxla.compiler.costs import (
    COSTLY_OPS,
    L1_ELEMENTS,
    LONG_ROW,
    MAX_PIECES,
    MAX_UNROLLED,
    PARALLEL_CHUNK_ELEMENTS,
    TASKS,
    VECTOR_ELEMENTS,
)
from tinyxla.compiler.fusion.plan import Accesses, LoopNest, Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import VECTOR_ITERATIONS, Index
from tinyxla.loopir.lower import pad, permute_blocks, reductions, transposed_tiles
from tinyxla.loopir.lower.axes import (
    LONG_BODY_OPS,
    MAX_UNROLLED_OPS,
    Axis,
    collapse_axes,
    expand_indices,
    index_set_boundaries,
    make_kernel,
    note_fused,
    ops_per_element,
    parallel_grain,
    split_index_set,
    tile_of,
)
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.loopir.lower.outer_reduction import lower_outer_reduction
from tinyxla.loopir.lower.row_reduction import lower_row_reduction

UNVECTORIZED_SHORT_FUNCTIONS = frozenset({"cosine", "power", "sine", "tan"})  # in rows shorter than a vector


InnerSchedule = Literal["rows", "nested", "unrolled", "flattened"]


def lower(fusion: LoopNest, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a fusion: one, or two if partial results are combined."""
    return _LOWERINGS[fusion.kind](fusion, plan, users)


def _lower_loop(fusion: LoopNest, plan: Plan, users: Users) -> list[LoweredKernel]:
    roots, sizes = fusion.roots, fusion.outer
    pad_kernel = pad.lower(roots[0], plan) if len(roots) == 1 else None
    if pad_kernel is not None:
        return [pad_kernel]
    axes = collapse_axes(roots, plan.accesses, sizes)
    permute_kernel = permute_blocks.lower(roots, plan, axes)
    if permute_kernel is not None:
        return [permute_kernel]
    low = Lowering("loop", plan, roots)
    ops = ops_per_element(roots, plan.accesses)

    def emit(coordinates: Coordinates) -> None:
        for root in roots:
            low.emit_root(root, coordinates)

    transposed_axis = None
    if math.prod(sizes) > L1_ELEMENTS:
        transposed_axis = transposed_tiles.transposed_axis(roots, plan.accesses, axes)
    schedule = _choose_inner_schedule(axes, transposed_axis, ops, roots, plan.accesses)
    if transposed_axis is None and schedule == "rows":
        axes, schedule = _unroll_stacked_axis(axes, ops, roots, plan.accesses)
        if schedule == "unrolled":
            low.note("reorder", *axes)
    if transposed_axis is not None and transposed_axis is not axes[-2 if schedule in ("unrolled", "nested") else -1]:
        return [transposed_tiles.lower_transposed_tiles(low, axes, transposed_axis, ops, roots)]
    return [make_kernel(low, *_nest(low, roots, axes, schedule, ops, sizes, plan.accesses, emit), roots)]


def _nest(
    low: Lowering,
    roots: Sequence[Instruction],
    axes: Sequence[Axis],
    schedule: str,
    ops: int,
    sizes: Sequence[int],
    accesses: Accesses,
    emit: Callable[[Coordinates], None],
) -> tuple[int, int]:
    """Emit the loops over `axes` around `emit(coordinates)`. Returns the extent of the outermost loop and the simple
    operations of one of its iterations."""

    rank = len(sizes)

    def emit_loop(axis: Axis, start: Index, stop: Index, outer: Sequence[Index]) -> None:
        """The innermost loop after index-set splitting: no range tests bounds. If the ranges are too many or the
        body is too long, only the interior is split off; one loop with tests covers the two ends."""
        b, ranges = low.builder, split_index_set(axis, roots, accesses, ops)
        if len(ranges) > 1:
            low.note("partition", axis, len(ranges))
            for range_start, range_end in ranges:
                emit_range(b.max(start, range_start), b.min(stop, range_end), range_start, range_end, outer)
            return
        first, last = _interior(axis, roots, accesses)
        if (first, last) == (0, axis.size):
            emit_range(start, stop, first, last, outer)
            return
        low.note("partition", axis, 2)
        emit_range(b.max(start, first), b.min(stop, last), first, last, outer)
        with low.loop(0, 2) as (side, _):
            range_start, range_end = b.mul(side, last), b.add(first, b.mul(side, axis.size - first))
            emit_range(b.max(start, range_start), b.min(stop, range_end), 0, axis.size, outer)

    def emit_range(start: Index, stop: Index, range_start: int, range_end: int, outer: Sequence[Index]) -> None:
        b = low.builder
        with low.loop(start, stop) as (j, loop), ExitStack() as loops:
            b.assume_range(j, range_start, range_end - 1)
            ranges: list[Sequence[Index]] = [range(a.size) for a in inner_axes]
            if schedule == "nested":
                opened = [loops.enter_context(low.loop(0, a.size)) for a in inner_axes]
                ranges = [[i] for i, _ in opened]
                loop = opened[-1][1]
            is_constant = not outer and schedule == "rows" and isinstance(start, int)
            is_vector = schedule != "unrolled" and _prefers_vectors_within_row(roots, accesses, axes[-1])
            loop.force_vectorize = is_constant or is_vector
            for indices in product(*ranges):
                emit(expand_indices(axes, [*outer, j, *indices], rank))

    if not axes:
        with low.loop(low.builder.kernel.first, low.builder.kernel.last):
            emit((0,) * rank)
        return 1, ops
    note_fused(low, axes, sizes)
    inner_count = 1 if schedule in ("unrolled", "nested") else 0
    while schedule == "nested" and len(axes) > inner_count + 2 and axes[-inner_count - 1].size < MAX_UNROLLED:
        inner_count += 1  # an axis too short to be vectorized
    inner_axes = axes[len(axes) - inner_count :]
    if schedule == "unrolled":
        low.note("unroll", *inner_axes)
    *outer, inner = axes[: len(axes) - len(inner_axes)]
    inner_size = math.prod(a.size for a in inner_axes)
    if not outer:
        emit_loop(inner, *_outer_range(low, inner.size, ops * inner_size), ())
        return inner.size, ops * inner_size
    outer_size = math.prod(a.size for a in outer)
    note_fused(low, outer if schedule != "flattened" else axes, sizes, is_one_loop=True)
    if schedule == "flattened":
        with low.loop(*_outer_range(low, outer_size * inner.size, ops)) as (j, loop):
            loop.force_vectorize = isinstance(loop.start, int)
            emit(expand_indices(axes, low.split_index(j, [a.size for a in axes]), rank))
        return outer_size * inner.size, ops
    tiles = -(-inner.size * inner_size // PARALLEL_CHUNK_ELEMENTS) if outer_size < 2 * TASKS else 1
    if tiles > 1:
        low.note("split", inner, -(-inner.size // tiles))
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        low.builder.assume_range(index, 0, outer_size * tiles - 1)
        row, start, stop = tile_of(low, index, tiles, inner.size)
        emit_loop(inner, start, stop, low.split_index(row, [a.size for a in outer]))
    return outer_size * tiles, ops * inner_size * -(-inner.size // tiles)


def _outer_range(low: Lowering, extent: int, ops: int) -> tuple[Index, Index]:
    """The range of the outermost loop: constant if the extent is known to be a single short chunk, so that LLVM
    leaves no scalar remainder of an expensive body; otherwise the kernel's run-time bounds."""
    is_single_chunk = extent <= VECTOR_ITERATIONS and ops >= COSTLY_OPS and parallel_grain(extent, ops) >= extent
    return (0, extent) if is_single_chunk else (low.builder.kernel.first, low.builder.kernel.last)


def _interior(axis: Axis, roots: Sequence[Instruction], accesses: Accesses) -> tuple[int, int]:
    """The longest index set, if it is most of the loop; otherwise the full range."""
    ranges = pairwise([0, *index_set_boundaries(roots, accesses, axis), axis.size])
    start, stop = max(ranges, key=lambda r: r[1] - r[0])
    return (start, stop) if 4 * (stop - start) >= 3 * axis.size else (0, axis.size)


def _lower_concatenate(fusion: LoopNest, plan: Plan, users: Users) -> list[LoweredKernel]:
    """One kernel per operand of a concatenation (equal kernels are compiled once), or one for many short operands."""
    (root,) = fusion.roots
    d, sizes = root.attributes.dimension, root.array_shape.dimensions
    kernels: list[LoweredKernel] = []
    step = 4 * MAX_PIECES
    if all(math.prod(x.array_shape.dimensions[d:]) == 1 for x in root.operands):
        return [
            _lower_operands(Lowering("part", plan, [root]), root, range(k, min(k + step, sizes[d])), plan.accesses)
            for k in range(0, sizes[d], step)
        ]
    count, are_equal = len(root.operands), len({x.array_shape.dimensions for x in root.operands}) == 1
    are_short = math.prod(sizes[d:]) <= count * 2 * LONG_ROW
    if d and are_equal and are_short and count <= step:
        return [_lower_operands(Lowering("part", plan, [root]), root, range(count), plan.accesses)]
    starts = accumulate((x.array_shape.dimensions[d] for x in root.operands), initial=0)
    for k, (x, start) in enumerate(zip(root.operands, starts, strict=False)):
        outer, inner = x.array_shape.dimensions[:d], x.array_shape.dimensions[d:]
        low = Lowering("part", plan, [root])
        b = low.builder
        if not low.in_memory(x):
            kernels.append(_lower_operands(low, root, [k], plan.accesses))
            continue
        row_size, wide_dims = math.prod(inner), [k for k, size in enumerate(inner) if size != 1]
        tiles = -(-row_size // PARALLEL_CHUNK_ELEMENTS)
        loop_dims = outer[-1:] if len(outer) > 1 and row_size < LONG_ROW else ()
        outer_dims = outer[: len(outer) - len(loop_dims)]
        if tiles > 1:
            low.note("split", f"d{d}", -(-row_size // tiles))
        with low.loop(b.kernel.first, b.kernel.last) as (index, _), ExitStack() as loops:
            outer_index, tile_start, tile_end = tile_of(low, index, tiles, row_size)
            prefix = (
                *low.split_index(outer_index, outer_dims),
                *(loops.enter_context(low.loop(0, n))[0] for n in loop_dims),
            )
            offset = low.linearize(sizes, (*prefix, start, *[0] * (len(inner) - 1)))
            with low.loop(tile_start, tile_end) as (j, _):
                # The last index may exceed its size.
                suffix = tuple(j if [k] == wide_dims[-1:] else 0 for k in range(len(inner)))
                b.store(low.buffer(root, True), b.add(offset, j), low.value(x, (*prefix, *suffix)))
        ops = ops_per_element([root], plan.accesses) // len(root.operands) + 3
        ops *= row_size // max(1, tiles) * math.prod(loop_dims)
        kernels.append(make_kernel(low, math.prod(outer_dims) * tiles, ops, [root]))
    return kernels


def _lower_operands(low: Lowering, root: Instruction, positions: Sequence[int], accesses: Accesses) -> LoweredKernel:
    """One nest that writes several operands of one shape to their positions in the concatenation."""
    operands, d, b = [root.operands[k] for k in positions], root.attributes.dimension, low.builder
    sizes = operands[0].array_shape.dimensions
    base = sum(x.array_shape.dimensions[d] for x in root.operands[: positions[0]])

    def emit(coordinates: Coordinates) -> None:
        for k, x in enumerate(operands):
            start = b.add(coordinates[d], base + k * sizes[d])
            index = (*coordinates[:d], start, *coordinates[d + 1 :])
            b.store(
                low.buffer(root, True), low.linearize(root.array_shape.dimensions, index), low.value(x, coordinates)
            )

    axes = collapse_axes(operands, accesses, sizes, (d,))
    ops = ops_per_element(operands, accesses) + len(operands)
    schedule = _choose_inner_schedule(axes, None, ops, operands, accesses)
    return make_kernel(low, *_nest(low, operands, axes, schedule, ops, sizes, accesses, emit), [root])


def _choose_inner_schedule(
    axes: Sequence[Axis],
    transposed_axis: Axis | None,
    ops: int,
    roots: Sequence[Instruction],
    accesses: Accesses,
) -> InnerSchedule:
    """The schedule of the innermost loop.

    - rows: all outer axes are one loop, which computes the offset of each row.
    - nested: a short row stays a loop within the next outer axis, since the offset would cost more than the row.
    - unrolled: vectorize across short rows, because memory is contiguous there, or the sources change along the row.
    - flattened: one loop over all axes, if LLVM would unroll the row to a body too long to vectorize.
    """
    if len(axes) < 2:
        return "rows"
    size, is_split = axes[-1].size, bool(index_set_boundaries(roots, accesses, axes[-1]))
    is_long = ops >= LONG_BODY_OPS
    if (
        size <= VECTOR_ELEMENTS
        and size * ops <= MAX_UNROLLED_OPS
        and (is_split or transposed_axis is axes[-2])
        and not is_long
    ):
        return "unrolled"
    is_short = size < (VECTOR_ELEMENTS if is_long else MAX_UNROLLED)
    if is_short and not is_split and math.prod(a.size for a in axes[:-1]) >= VECTOR_ELEMENTS:
        functions = {x.op.name for x, _, from_memory in accesses.read_by(roots) if not from_memory}
        if is_long or not UNVECTORIZED_SHORT_FUNCTIONS.isdisjoint(functions | {x.op.name for x in roots}):
            return "flattened"
    return "nested" if len(axes) > 2 and size < LONG_ROW and not is_split and transposed_axis is None else "rows"


def _unroll_stacked_axis(
    axes: list[Axis], ops: int, roots: Sequence[Instruction], accesses: Accesses
) -> tuple[list[Axis], InnerSchedule]:
    """If the sources differ per index of a short outer axis (a concatenation of a few rows), interchange that axis
    innermost and unroll it, so that its iterations share common subexpressions."""
    for k, axis in enumerate(axes[:-1]):
        if (
            1 < axis.size <= VECTOR_ELEMENTS
            and axis.size * ops <= MAX_UNROLLED_OPS
            and index_set_boundaries(roots, accesses, axis)
        ):
            return [*axes[:k], *axes[k + 1 :], axis], "unrolled"
    return axes, "rows"


def _prefers_vectors_within_row(roots: Sequence[Instruction], accesses: Accesses, inner: Axis) -> bool:
    """True if a short loop, which LLVM would unroll to vectorize across it, should be vectorized itself: it reads
    memory contiguously, at offsets that depend on the data."""
    reads = accesses.read_by(roots, views=True)
    is_contiguous = any(m and access[-1:] == (inner.last,) and frozenset() in access for _, access, m in reads)
    is_cheap = inner.size >= MAX_UNROLLED or not any(is_costly(x) for x in (*roots, *(x for x, _, m in reads if not m)))
    return is_contiguous and is_cheap and inner.size > 2


_LOWERINGS: dict[str, Callable[[LoopNest, Plan, Users], list[LoweredKernel]]] = {
    "loop": _lower_loop,
    "parts": _lower_concatenate,
    "row": lower_row_reduction,
    "column": lower_outer_reduction,
    "split": reductions.lower_split_reduction,
}
