"""The loops around a fusion: which dimensions are one loop, and how loops are cut into pieces of work."""

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
from tinyxla.compiler.analysis.fusibility import COSTLY_WORK, MOVEMENT, is_costly
from tinyxla.compiler.fusion.plan import buffer_of, is_in_memory, producer_of, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering
from tinyxla.ops import movement, reduction

PARALLEL_CHUNK_ELEMENTS = 1 << 14  # elements of a long loop that make one piece of work
LINE_ELEMENTS = 64  # elements that are whole lines of memory, whatever their type
MAX_PARALLEL_CHUNKS = (
    32  # pieces of work, at most: threads whose pieces are neighbours in memory take cache lines from each other
)

MAX_UNROLLED_ROW = 16  # elements of a row that is written out
MAX_UNROLLED_ROWS = 16  # fewer of them do not fill a vector
MAX_UNROLLED_OPS = 600  # simple operations of all of them
MAX_INDEX_SET_PARTS = 8  # of a loop that is cut where what is read changes
MAX_OPS_PER_PART = 200  # operations that are written out for each part


@dataclass(frozen=True)
class Axis:
    """One loop: consecutive dimensions of the domain, `first` to `last`, together of `size` indices."""

    first: int
    last: int
    size: int


def collapse_axes(
    roots: Sequence[Instruction],
    stored: set[Instruction],
    sizes: Sequence[int],
    apart: Sequence[int] = (),
    also: Sequence[tuple[Instruction, AccessMap]] = (),
) -> list[Axis]:
    """The loops of a domain. Neighbours become one where all that is read keeps them together, what is in `also` too,
    and no dimension in `apart` begins there. Dimensions of size 1 join any neighbour."""
    wide = [d for d, size in enumerate(sizes) if size != 1]
    joinable = dict.fromkeys(pairwise(wide), True)
    whole = tuple(range(len(sizes)))
    read = [(x, place) for x, place, _ in walk_producers(roots, stored, views=True)]
    for x, place in [*((root, whole) for root in roots), *read, *also]:
        pure = [c for c in place if c != -1]
        broken = dims_of([c for c in pure if isinstance(c, frozenset)]) | dims_of(guarded_dims(x, place))
        follows = set(pairwise(pure))
        for pair in joinable:
            present = (pair[0] in pure, pair[1] in pure)
            if broken & set(pair) or (any(present) and pair not in follows):
                joinable[pair] = False
    axes: list[Axis] = []
    for k, d in enumerate(wide):
        if k and joinable[wide[k - 1], d] and not any(wide[k - 1] < a <= d for a in apart):
            axes[-1] = Axis(axes[-1].first, d, axes[-1].size * sizes[d])
        else:
            axes.append(Axis(d, d, sizes[d]))
    return axes


def expand_indices(axes: Sequence[Axis], indices: Sequence[Index], rank: int) -> Coordinates:
    """The coordinates in the domain: a merged loop's index belongs to its last dimension."""
    found: list[Index] = [0] * rank
    for axis, index in zip(axes, indices, strict=True):
        found[axis.last] = index
    return tuple(found)


def index_set_boundaries(roots: Sequence[Instruction], stored: set[Instruction], axis: Axis) -> list[int]:
    """Where in a loop what is read changes: at the edges of what is padded or put together, or of rows in a row."""
    found: set[int] = set()
    seen: set[tuple[Instruction, Offsets, int]] = set()
    waiting: list[tuple[Instruction, Offsets, int]] = []  # and how far one coordinate goes with each index of the loop
    for root in roots:
        if producer_of(root).op is not reduction.reduce:
            waiting.append((root, tuple(0 if d == axis.last else None for d in range(root.array_shape.rank)), 1))
    while waiting:
        item = waiting.pop()
        x, offsets, step = item
        if item in seen or (x.op is movement.reshape and is_in_memory(buffer_of(x), stored)):
            continue
        seen.add(item)
        if step == 1 or x.op is not movement.reshape:
            found.update(place for edge in boundaries(x, offsets) for place in (edge // step, -(-edge // step)))
        further = [(o, place, step) for o, place in shifted_operands(x, offsets) if any(k is not None for k in place)]
        further += [(o, place, step * run) for o, place, run in strided_operands(x, offsets)]
        waiting.extend(item for item in further if not is_in_memory(item[0], stored))
    return sorted(place for place in found if 0 < place < axis.size)


def split_index_set(
    axis: Axis, roots: Sequence[Instruction], stored: set[Instruction], work: int
) -> list[tuple[int, int]]:
    """The parts of a loop in which the same is read, if they are few; else the whole."""
    ends = index_set_boundaries(roots, stored, axis) if work <= MAX_OPS_PER_PART else []
    return list(pairwise([0, *(ends if len(ends) < MAX_INDEX_SET_PARTS else ()), axis.size]))


def ops_per_element(roots: Sequence[Instruction], stored: set[Instruction]) -> int:
    """Work for one element, in simple operations: what only says where to read is none."""
    seen = {x for x, _, from_memory in walk_producers(roots, stored) if from_memory or x.op.name not in MOVEMENT} | set(
        roots
    )
    return sum(COSTLY_WORK if is_costly(x) else 1 for x in seen)


def make_kernel(low: Lowering, extent: int, work: int, roots: Sequence[Instruction]) -> LoweredKernel:
    """`work` is that of one index of the outermost loop."""
    return LoweredKernel(
        low.builder.kernel, low.arguments, extent, parallel_grain(extent, work), list(roots), work=extent * work
    )


def parallel_grain(extent: int, work: int) -> int:
    """How many indices of the outermost loop, each of so much work, are a piece for a thread: an even number of pieces
    are of equal size, and begin where lines of memory do if that changes their sizes little."""
    least = max(1, PARALLEL_CHUNK_ELEMENTS * COSTLY_WORK // max(1, work), extent // MAX_PARALLEL_CHUNKS)
    pieces = round(extent / least)
    if pieces < 2:
        return max(least, extent)
    pieces += pieces % 2
    equal = -(-extent // pieces)
    return -(-equal // LINE_ELEMENTS) * LINE_ELEMENTS if equal >= 10 * pieces * LINE_ELEMENTS else equal


def tile_of(low: Lowering, index: Index, pieces: int, size: int) -> tuple[Index, Index, Index]:
    """Which row, and from where to where in it, for an index that counts pieces of rows."""
    b = low.builder
    if pieces == 1:
        return index, 0, size
    length = -(-size // pieces)
    start = b.min(b.mul(b.remainder(index, pieces), length), size)
    return b.floordiv(index, pieces), start, b.min(b.add(start, length), size)


def evaluate_access_map(place: AccessMap, coordinates: Coordinates) -> Coordinates:
    """Where something is read whose place has loop dimensions only."""
    return tuple(coordinates[c] if isinstance(c, int) and c >= 0 else 0 for c in place)
