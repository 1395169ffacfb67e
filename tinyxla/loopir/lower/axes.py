"""Iteration axes of loop nests: which dimensions collapse into one loop, index-set splitting, and the grain of
parallel loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tinyxla.compiler.analysis.access_maps import (
    AccessMap,
    Offsets,
    boundaries,
    dims_of,
    guarded_dims,
    shifted_operands,
    strided_operands,
)
from tinyxla.compiler.analysis.fusibility import MOVEMENT, is_costly
from tinyxla.compiler.costs import COSTLY_OPS, LINE_BYTES, MAX_PIECES, PARALLEL_CHUNK_ELEMENTS, TASKS
from tinyxla.compiler.fusion.plan import Accesses, buffer_of, producer_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering
from tinyxla.loopir.target import current_target
from tinyxla.ops import movement, reduction

LONG_BODY_OPS = 100  # per element of a short row; LLVM unrolls these and then does not vectorize them
MAX_UNROLLED_OPS = LONG_BODY_OPS * 6  # of a row that is unrolled


@dataclass(frozen=True)
class Axis:
    """One loop: the collapsed dimensions `first` to `last` of the iteration space, `size` indices in total."""

    first: int
    last: int
    size: int

    def __str__(self) -> str:
        return f"d{self.last}" if self.first == self.last else f"d{self.first}-d{self.last}"


def collapse_axes(
    roots: Sequence[Instruction],
    accesses: Accesses,
    sizes: Sequence[int],
    barriers: Sequence[int] = (),
    extra_accesses: Sequence[tuple[Instruction, AccessMap]] = (),
) -> list[Axis]:
    """The loops of an iteration space. Adjacent dimensions collapse if they are contiguous in every array that is
    read or written, `extra_accesses` included, and no dimension in `barriers` separates them. Dimensions of size 1
    collapse with any neighbour."""
    dims = [d for d, size in enumerate(sizes) if size != 1]
    mergeable = dict.fromkeys(pairwise(dims), True)
    identity = tuple(range(len(sizes)))
    read = [(x, access) for x, access, _ in accesses.read_by(roots, views=True)]
    for x, access in [*((root, identity) for root in roots), *read, *extra_accesses]:
        mapped = [c for c in access if c != -1]
        unmergeable = dims_of([c for c in mapped if isinstance(c, frozenset)]) | dims_of(guarded_dims(x, access))
        adjacent = set(pairwise(mapped))
        for pair in mergeable:
            is_mapped = (pair[0] in mapped, pair[1] in mapped)
            if unmergeable & set(pair) or (any(is_mapped) and pair not in adjacent):
                mergeable[pair] = False
    axes: list[Axis] = []
    for k, d in enumerate(dims):
        if k and mergeable[dims[k - 1], d] and not any(dims[k - 1] < a <= d for a in barriers):
            axes[-1] = Axis(axes[-1].first, d, axes[-1].size * sizes[d])
        else:
            axes.append(Axis(d, d, sizes[d]))
    return axes


def note_fused(low: Lowering, axes: Sequence[Axis], sizes: Sequence[int], is_one_loop: bool = False) -> None:
    """Note which dimensions of a space of these sizes are one loop: those of each axis, or those of all axes."""
    groups = [range(a.first, a.last + 1) for a in axes]
    for dims in [[d for group in groups for d in group]] if is_one_loop else groups:
        fused = [f"d{d}" for d in dims if sizes[d] != 1]
        if len(fused) > 1:
            low.note("fuse", *fused)


def expand_indices(axes: Sequence[Axis], indices: Sequence[Index], rank: int) -> Coordinates:
    """The coordinates in the iteration space; the index of a collapsed loop is the coordinate of its last dimension."""
    coordinates: list[Index] = [0] * rank
    for axis, index in zip(axes, indices, strict=True):
        coordinates[axis.last] = index
    return tuple(coordinates)


def index_set_boundaries(roots: Sequence[Instruction], accesses: Accesses, axis: Axis) -> list[int]:
    """Positions within a loop at which the source of an element changes: edges of pads and concatenations, also
    inside reshaped dimensions."""
    positions: set[int] = set()
    seen: set[tuple[Instruction, Offsets, int]] = set()
    pending: list[tuple[Instruction, Offsets, int]] = []  # and the stride of the index
    for root in roots:
        if producer_of(root).op is not reduction.reduce:
            pending.append((root, tuple(0 if d == axis.last else None for d in range(root.array_shape.rank)), 1))
    while pending:
        item = pending.pop()
        x, offsets, stride = item
        if item in seen or (x.op is movement.reshape and accesses.is_in_memory(buffer_of(x))):
            continue
        seen.add(item)
        if stride == 1 or x.op is not movement.reshape:
            edges = boundaries(x, offsets)
            positions.update(position for edge in edges for position in (edge // stride, -(-edge // stride)))
        shifted = shifted_operands(x, offsets)
        operands = [(o, shifts, stride) for o, shifts in shifted if any(k is not None for k in shifts)]
        operands += [(o, shifts, stride * factor) for o, shifts, factor in strided_operands(x, offsets)]
        pending.extend(item for item in operands if not accesses.is_in_memory(item[0]))
    return sorted(position for position in positions if 0 < position < axis.size)


def split_index_set(axis: Axis, roots: Sequence[Instruction], accesses: Accesses, ops: int) -> list[tuple[int, int]]:
    """Ranges of a loop over which the sources are the same; the full range if they would be too many or the body too
    long."""
    positions = index_set_boundaries(roots, accesses, axis) if ops <= 2 * LONG_BODY_OPS else []
    return list(pairwise([0, *(positions if len(positions) < MAX_PIECES else ()), axis.size]))


def ops_per_element(roots: Sequence[Instruction], accesses: Accesses) -> int:
    """Work per element in simple operations; data movement counts nothing."""
    read = accesses.read_by(roots)
    seen = {*roots, *(x for x, _, from_memory in read if from_memory or x.op.name not in MOVEMENT)}
    return sum(COSTLY_OPS if is_costly(x) else 1 for x in seen)


def make_kernel(low: Lowering, extent: int, ops: int, roots: Sequence[Instruction]) -> LoweredKernel:
    """A lowered kernel of `extent` outer iterations with `ops` simple operations each."""
    return LoweredKernel(
        low.builder.kernel,
        low.arguments,
        extent,
        parallel_grain(extent, ops),
        list(roots),
        work=extent * ops,
        directives=tuple(low.directives),
    )


def parallel_grain(extent: int, ops: int) -> int:
    """Iterations of the outermost loop per chunk, given the simple operations of an iteration. The chunks are of
    equal size and even in number, or as many for each processor; they begin at cache lines if rounding changes their
    sizes little."""
    processors = current_target().processors
    min_ops = PARALLEL_CHUNK_ELEMENTS * COSTLY_OPS // (4 if processors > TASKS else 1)  # many wait for the last one
    min_grain = max(1, min_ops // max(1, ops), extent // current_target().max_chunks)
    chunks = round(extent / min_grain)
    if chunks < 2:
        return max(min_grain, extent)
    chunks += chunks % 2
    grain = -(-extent // chunks)
    if chunks > processors > 2:  # two have equally many already
        grain = _balanced_grain(extent, grain, processors)
    return -(-grain // LINE_BYTES) * LINE_BYTES if grain >= 10 * chunks * LINE_BYTES else grain


def _balanced_grain(extent: int, grain: int, processors: int) -> int:
    """Iterations per chunk, at least half as many as `grain`, with which the busiest processor has least to do."""
    grains = {-(-extent // (processors * each)) for each in (1, 2, 3, 4)}  # chunks of a processor
    candidates = [x for x in grains if 2 * x >= grain]
    return min(candidates, key=lambda x: (x * -(-extent // (x * processors)), -x), default=grain)


def tile_of(low: Lowering, index: Index, tiles: int, size: int) -> tuple[Index, Index, Index]:
    """The row, start and end of a tile, given an index over `tiles` tiles per row."""
    b = low.builder
    if tiles == 1:
        return index, 0, size
    length = -(-size // tiles)
    start = b.min(b.mul(b.remainder(index, tiles), length), size)
    return b.floordiv(index, tiles), start, b.min(b.add(start, length), size)


def evaluate_access_map(access_map: AccessMap, coordinates: Coordinates) -> Coordinates:
    """The coordinates of an operand's element under an access map without opaque functions."""
    return tuple(coordinates[c] if isinstance(c, int) and c >= 0 else 0 for c in access_map)
