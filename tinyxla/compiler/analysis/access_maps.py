"""Which elements of its operands an instruction reads for one of its own: fusion is decided by this.

The element of an array is named by a *place*: for each dimension a dimension number of the loops around it, `CONSTANT`
if there is but one index, or a frozenset of loop dimensions if the index is some other function of these. An index that
is read from memory is a function of no dimensions: those that matter to it count where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import mul

from tinyxla.hlo import Instruction
from tinyxla.ops import dynamic_slices, elementwise, indexing, movement

AccessIndex = int | frozenset[int]
AccessMap = tuple[AccessIndex, ...]

CONSTANT = -1
MAX_CONCATENATED_ROWS = 8  # that one dimension holds and that are looked at one by one


def dims_of(coordinates: Sequence[AccessIndex]) -> frozenset[int]:
    """The loop dimensions that any of these depends on."""
    found: set[int] = set()
    for c in coordinates:
        found.update(c if isinstance(c, frozenset) else () if c == CONSTANT else (c,))
    return frozenset(found)


def renumber_dims(place: Sequence[AccessIndex], numbers: Sequence[int] | Mapping[int, int]) -> AccessMap:
    """The same place with other numbers for the loop dimensions."""
    found: list[AccessIndex] = []
    for c in place:
        if isinstance(c, frozenset):
            found.append(frozenset(numbers[d] for d in c))
        else:
            found.append(CONSTANT if c == CONSTANT else numbers[c])
    return tuple(found)


def normalize(place: Sequence[AccessIndex], sizes: Sequence[int]) -> AccessMap:
    """A dimension of size 1 has but one index, wherever it comes from."""
    return tuple(CONSTANT if size == 1 else c for c, size in zip(place, sizes, strict=True))


def operand_access_maps(x: Instruction, place: AccessMap) -> Iterator[tuple[Instruction, AccessMap]]:
    """The operands of an inlined instruction, and where they are read."""
    op = x.op
    if op is movement.broadcast:
        (operand,) = x.operands
        yield operand, tuple(place[d] for d in x.attributes.dimensions)
    elif op is movement.transpose:
        source: list[AccessIndex] = [CONSTANT] * len(place)
        for d, to in enumerate(x.attributes.permutation):
            source[to] = place[d]
        yield x.operands[0], tuple(source)
    elif op is movement.reshape:
        yield x.operands[0], _through_reshape(x, place)
    elif op is movement.slice_:
        starts, _, strides = x.attributes
        sizes = x.operands[0].array_shape.dimensions
        moved = [
            c if size == n and start == 0 and stride == 1 else dims_of([c])
            for c, start, stride, size, n in zip(place, starts, strides, sizes, x.array_shape.dimensions, strict=True)
        ]
        yield x.operands[0], normalize(moved, sizes)
    elif op is movement.reverse:
        moved = [dims_of([c]) if d in x.attributes.dimensions else c for d, c in enumerate(place)]
        yield x.operands[0], tuple(moved)
    elif op is movement.pad:
        config = x.attributes.padding_config
        moved = [c if edges == (0, 0, 0) else dims_of([c]) for c, edges in zip(place, config, strict=True)]
        yield x.operands[0], normalize(moved, x.operands[0].array_shape.dimensions)
        yield x.operands[1], ()
    elif op is movement.concatenate:
        along = x.attributes.dimension
        moved = [dims_of([c]) if d == along else c for d, c in enumerate(place)]
        for operand in x.operands:
            yield operand, normalize(moved, operand.array_shape.dimensions)
    elif op is dynamic_slices.dynamic_slice:
        operand, *starts = x.operands
        sizes = operand.array_shape.dimensions
        parts = x.attributes.dynamic_slice_sizes
        moved = [c if size == n else dims_of([c]) for c, size, n in zip(place, parts, sizes, strict=True)]
        yield operand, normalize(moved, sizes)
        for start in starts:
            yield start, ()
    elif op is indexing.gather:
        yield from _gathered(x, place)
    else:
        for operand in x.operands:
            yield operand, place


def _gathered(x: Instruction, place: AccessMap) -> Iterator[tuple[Instruction, AccessMap]]:
    operand, indices = x.operands
    a: indexing.Gather = x.attributes
    batch, inner = a.parted(place)
    sizes = operand.array_shape.dimensions
    found: list[AccessIndex] = [frozenset()] * len(sizes)
    for d, c in zip(a.window(len(sizes)), inner, strict=True):
        found[d] = c if a.slice_sizes[d] == sizes[d] else dims_of([c])
    for d, c in a.pairs():
        found[d] = batch[c]
    yield operand, normalize(found, sizes)
    vector = a.vector(batch, frozenset[int](), indices.array_shape.rank)
    yield indices, normalize(vector, indices.array_shape.dimensions)


def guarded_dims(x: Instruction, place: AccessMap) -> list[AccessIndex]:
    """The coordinates that matter by themselves, wherever operands are read: those that an iota counts, and those that
    a padding or a concatenation compares with its edges."""
    if x.op is movement.iota:
        return [place[x.attributes.iota_dimension]]
    if x.op is movement.concatenate:
        return [place[x.attributes.dimension]]
    if x.op is movement.pad:
        return [c for c, edges in zip(place, x.attributes.padding_config, strict=True) if edges != (0, 0, 0)]
    return []


Offsets = tuple[int | None, ...]  # for each dimension, how far its coordinate is from a loop's index, if it follows it


def shifted_operands(x: Instruction, offsets: Offsets) -> Iterator[tuple[Instruction, Offsets]]:
    """The operands of an inlined instruction, and the offsets at which they are read; not where there are none."""
    op, a = x.op, x.attributes
    sizes = x.operands[0].array_shape.dimensions if x.operands else ()
    if op is movement.broadcast:
        yield x.operands[0], tuple(offsets[d] for d in a.dimensions)
    elif op is movement.transpose:
        place = dict(zip(a.permutation, offsets, strict=True))
        yield x.operands[0], tuple(place[d] for d in range(len(sizes)))
    elif op is movement.slice_:
        steps = zip(offsets, a.start_indices, a.strides, strict=True)
        yield x.operands[0], tuple(k + first if k is not None and step == 1 else None for k, first, step in steps)
    elif op is movement.pad:
        steps = zip(offsets, a.padding_config, strict=True)
        yield x.operands[0], tuple(k - low if k is not None and not gap else None for k, (low, _, gap) in steps)
    elif op is movement.concatenate:
        first = 0
        for o in x.operands:
            yield o, tuple(k - first if k is not None and d == a.dimension else k for d, k in enumerate(offsets))
            first += o.array_shape.dimensions[a.dimension]
    elif op is movement.reshape:
        found: list[int | None] = [None] * len(sizes)
        for into, out in split_dimensions(sizes, x.array_shape.dimensions):
            if len(into) == len(out) == 1:
                found[into[0]] = offsets[out[0]]
        yield x.operands[0], tuple(found)
    elif op is indexing.gather:
        batch, _ = a.parted(offsets)
        yield x.operands[1], a.vector(batch, None, x.operands[1].array_shape.rank)
    elif op.name in elementwise.NAMES:
        for o in x.operands:
            yield o, offsets


def strided_operands(x: Instruction, offsets: Offsets) -> Iterator[tuple[Instruction, Offsets, int]]:
    """The operand of a reshape that cuts what lies along a loop into equal runs, and how long these are: one for each
    index of the loop."""
    sizes = x.operands[0].array_shape.dimensions if x.op is movement.reshape else ()
    for into, out in split_dimensions(sizes, x.array_shape.dimensions):
        k, run = offsets[out[0]], prod(x.array_shape.dimensions[d] for d in out[1:])
        if k is not None and len(into) == 1 and run > 1:
            yield x.operands[0], tuple(k * run if d == into[0] else None for d in range(len(sizes))), run


def boundaries(x: Instruction, offsets: Offsets) -> Iterator[int]:
    """The indices of a loop at which an instruction begins to read something else, or another row."""
    if x.op is movement.pad:
        for k, size, (low, _, gap) in zip(
            offsets, x.operands[0].array_shape.dimensions, x.attributes.padding_config, strict=True
        ):
            if k is not None and not gap:
                yield from (low - k, low + size - k)
    elif x.op is movement.concatenate and offsets[x.attributes.dimension] is not None:
        place = -(offsets[x.attributes.dimension] or 0)
        for o in x.operands[:-1]:
            place += o.array_shape.dimensions[x.attributes.dimension]
            yield place
    elif x.op is movement.reshape:
        result, source = x.array_shape.dimensions, x.operands[0].array_shape.dimensions
        for into, out in split_dimensions(source, result):
            k = offsets[out[0]] if len(out) == 1 else None
            if k is not None:
                counts = accumulate((source[d] for d in into[:-1]), mul, initial=1)
                size = result[out[0]]
                row = size // max(n for n in counts if n <= MAX_CONCATENATED_ROWS)
                yield from range(row - k, size - k, row)


def slices_of_one_array(pieces: Sequence[Instruction], d: int) -> tuple[Instruction, list[int], tuple[int, ...]] | None:
    """If pieces are slices of one array that differ along one dimension, as those of a roll: the array, where each
    begins there, and where they begin along all."""
    first, starts = pieces[0], [0] * len(pieces)
    if len(pieces) < 2 or any(x.op is not movement.slice_ for x in pieces):
        return None
    for k, x in enumerate(pieces):
        along = list(x.attributes.start_indices)
        starts[k], along[d] = along[d], first.attributes.start_indices[d]
        same = x.operands[0] is first.operands[0] and tuple(along) == first.attributes.start_indices
        if not same or set(x.attributes.strides) != {1}:
            return None
    return first.operands[0], starts, first.attributes.start_indices


def _through_reshape(x: Instruction, place: AccessMap) -> AccessMap:
    result = x.array_shape.dimensions
    source = x.operands[0].array_shape.dimensions
    found: list[AccessIndex] = [CONSTANT] * len(source)
    for into, out in split_dimensions(source, result):
        if len(into) == 1 and len(out) == 1:
            found[into[0]] = place[out[0]]
        else:
            together = dims_of([place[d] for d in out])
            for d in into:
                found[d] = together
    return normalize(found, source)


def split_dimensions(source: Sequence[int], result: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Least groups of dimensions of a reshape's operand and result that hold the same elements; size 1 is left out."""
    left = [d for d, size in enumerate(source) if size != 1]
    right = [d for d, size in enumerate(result) if size != 1]
    i = j = 0
    while i < len(left) and j < len(right):
        into, out = [left[i]], [right[j]]
        a, b = source[left[i]], result[right[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= source[left[i]]
                into.append(left[i])
                i += 1
            else:
                b *= result[right[j]]
                out.append(right[j])
                j += 1
        yield into, out
