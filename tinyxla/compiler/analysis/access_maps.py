"""Access maps: which element of each operand an instruction reads for an element of its result. Fusion decides by them.

An access map has an entry per dimension of the array: a loop dimension's number, `CONSTANT` if there is one index only,
or a frozenset of the loop dimensions of which the index is some other function. An index that is read from memory is a
function of no dimensions; the dimensions of the index array count where that array is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import mul

from tinyxla.compiler.costs import MAX_PIECES
from tinyxla.hlo import Instruction
from tinyxla.ops import dynamic_slices, elementwise, indexing, movement
from tinyxla.shapes.reshape import split_dimensions

AccessIndex = int | frozenset[int]
AccessMap = tuple[AccessIndex, ...]

CONSTANT = -1


def dims_of(coordinates: Sequence[AccessIndex]) -> frozenset[int]:
    """The loop dimensions on which any of the coordinates depends."""
    dims: set[int] = set()
    for c in coordinates:
        dims.update(c if isinstance(c, frozenset) else () if c == CONSTANT else (c,))
    return frozenset(dims)


def renumber_dims(access: Sequence[AccessIndex], new_dims: Sequence[int] | Mapping[int, int]) -> AccessMap:
    """The access map with loop dimensions renumbered."""
    renumbered: list[AccessIndex] = []
    for c in access:
        if isinstance(c, frozenset):
            renumbered.append(frozenset(new_dims[d] for d in c))
        else:
            renumbered.append(CONSTANT if c == CONSTANT else new_dims[c])
    return tuple(renumbered)


def normalize(access: Sequence[AccessIndex], sizes: Sequence[int]) -> AccessMap:
    """The access map with `CONSTANT` for dimensions of size 1."""
    return tuple(CONSTANT if size == 1 else c for c, size in zip(access, sizes, strict=True))


def operand_access_maps(x: Instruction, access: AccessMap) -> Iterator[tuple[Instruction, AccessMap]]:
    """The operands of an inlined instruction with their access maps, given the map of the instruction's own element."""
    op = x.op
    if op is movement.broadcast:
        (operand,) = x.operands
        yield operand, tuple(access[d] for d in x.attributes.dimensions)
    elif op is movement.transpose:
        source: list[AccessIndex] = [CONSTANT] * len(access)
        for d, source_dim in enumerate(x.attributes.permutation):
            source[source_dim] = access[d]
        yield x.operands[0], tuple(source)
    elif op is movement.reshape:
        yield x.operands[0], _reshape_access_map(x, access)
    elif op is movement.slice_:
        starts, _, strides = x.attributes
        sizes = x.operands[0].array_shape.dimensions
        operand_access = [
            c if size == n and start == 0 and stride == 1 else dims_of([c])
            for c, start, stride, size, n in zip(access, starts, strides, sizes, x.array_shape.dimensions, strict=True)
        ]
        yield x.operands[0], normalize(operand_access, sizes)
    elif op is movement.reverse:
        operand_access = [dims_of([c]) if d in x.attributes.dimensions else c for d, c in enumerate(access)]
        yield x.operands[0], tuple(operand_access)
    elif op is movement.pad:
        yield from _pad_access_maps(x, access)
    elif op is movement.concatenate:
        dimension = x.attributes.dimension
        operand_access = [dims_of([c]) if d == dimension else c for d, c in enumerate(access)]
        for operand in x.operands:
            yield operand, normalize(operand_access, operand.array_shape.dimensions)
    elif op is dynamic_slices.dynamic_slice:
        yield from _dynamic_slice_access_maps(x, access)
    elif op is indexing.gather:
        yield from _gather_access_maps(x, access)
    else:
        for operand in x.operands:
            yield operand, access


def _pad_access_maps(x: Instruction, access: AccessMap) -> Iterator[tuple[Instruction, AccessMap]]:
    operand, value = x.operands
    padding = x.attributes.padding_config
    operand_access = [c if amounts == (0, 0, 0) else dims_of([c]) for c, amounts in zip(access, padding, strict=True)]
    yield operand, normalize(operand_access, operand.array_shape.dimensions)
    yield value, ()


def _dynamic_slice_access_maps(x: Instruction, access: AccessMap) -> Iterator[tuple[Instruction, AccessMap]]:
    operand, *starts = x.operands
    sizes, slice_sizes = operand.array_shape.dimensions, x.attributes.dynamic_slice_sizes
    operand_access = [c if size == n else dims_of([c]) for c, size, n in zip(access, slice_sizes, sizes, strict=True)]
    yield operand, normalize(operand_access, sizes)
    for start in starts:
        yield start, ()


def _gather_access_maps(x: Instruction, access: AccessMap) -> Iterator[tuple[Instruction, AccessMap]]:
    operand, indices = x.operands
    a: indexing.Gather = x.attributes
    batch, window_index = a.parted(access)
    sizes = operand.array_shape.dimensions
    operand_access: list[AccessIndex] = [frozenset()] * len(sizes)
    for d, c in zip(a.window(len(sizes)), window_index, strict=True):
        operand_access[d] = c if a.slice_sizes[d] == sizes[d] else dims_of([c])
    for d, c in a.pairs():
        operand_access[d] = batch[c]
    yield operand, normalize(operand_access, sizes)
    vector = a.vector(batch, frozenset[int](), indices.array_shape.rank)
    yield indices, normalize(vector, indices.array_shape.dimensions)


def guarded_dims(x: Instruction, access: AccessMap) -> list[AccessIndex]:
    """The coordinates whose value an instruction uses other than for reading: the dimension an iota counts, and
    those that a pad or a concatenation compares with its edges."""
    if x.op is movement.iota:
        return [access[x.attributes.iota_dimension]]
    if x.op is movement.concatenate:
        return [access[x.attributes.dimension]]
    if x.op is movement.pad:
        return [c for c, padding in zip(access, x.attributes.padding_config, strict=True) if padding != (0, 0, 0)]
    return []


Offsets = tuple[int | None, ...]  # per dimension: coordinate minus loop index, if the difference is constant


def shifted_operands(x: Instruction, offsets: Offsets) -> Iterator[tuple[Instruction, Offsets]]:
    """The operands of an inlined instruction with their offsets; nothing for ops that preserve none."""
    op, a = x.op, x.attributes
    sizes = x.operands[0].array_shape.dimensions if x.operands else ()
    if op is movement.broadcast:
        yield x.operands[0], tuple(offsets[d] for d in a.dimensions)
    elif op is movement.transpose:
        offset_of = dict(zip(a.permutation, offsets, strict=True))
        yield x.operands[0], tuple(offset_of[d] for d in range(len(sizes)))
    elif op is movement.slice_:
        dims = zip(offsets, a.start_indices, a.strides, strict=True)
        yield x.operands[0], tuple(k + start if k is not None and stride == 1 else None for k, start, stride in dims)
    elif op is movement.pad:
        dims = zip(offsets, a.padding_config, strict=True)
        shifted = tuple(k - low if k is not None and not interior else None for k, (low, _, interior) in dims)
        yield x.operands[0], shifted
    elif op is movement.concatenate:
        start = 0
        for o in x.operands:
            yield o, tuple(k - start if k is not None and d == a.dimension else k for d, k in enumerate(offsets))
            start += o.array_shape.dimensions[a.dimension]
    elif op is movement.reshape:
        source_offsets: list[int | None] = [None] * len(sizes)
        for source_dims, result_dims in split_dimensions(sizes, x.array_shape.dimensions):
            if len(source_dims) == len(result_dims) == 1:
                source_offsets[source_dims[0]] = offsets[result_dims[0]]
        yield x.operands[0], tuple(source_offsets)
    elif op is indexing.gather:
        batch, _ = a.parted(offsets)
        yield x.operands[1], a.vector(batch, None, x.operands[1].array_shape.rank)
    elif op.name in elementwise.NAMES:
        for o in x.operands:
            yield o, offsets


def strided_operands(x: Instruction, offsets: Offsets) -> Iterator[tuple[Instruction, Offsets, int]]:
    """The operand of a reshape that splits the dimension of a loop into equal runs: the operand, its offsets, and
    the length of the runs, one per loop index."""
    sizes = x.operands[0].array_shape.dimensions if x.op is movement.reshape else ()
    for source_dims, result_dims in split_dimensions(sizes, x.array_shape.dimensions):
        k, run_length = offsets[result_dims[0]], prod(x.array_shape.dimensions[d] for d in result_dims[1:])
        if k is not None and len(source_dims) == 1 and run_length > 1:
            strided = tuple(k * run_length if d == source_dims[0] else None for d in range(len(sizes)))
            yield x.operands[0], strided, run_length


def boundaries(x: Instruction, offsets: Offsets) -> Iterator[int]:
    """The loop indices at which the source of an instruction's elements changes: edges of pads and concatenations,
    and rows within a reshaped dimension."""
    if x.op is movement.pad:
        for k, size, (low, _, interior) in zip(
            offsets, x.operands[0].array_shape.dimensions, x.attributes.padding_config, strict=True
        ):
            if k is not None and not interior:
                yield from (low - k, low + size - k)
    elif x.op is movement.concatenate and offsets[x.attributes.dimension] is not None:
        position = -(offsets[x.attributes.dimension] or 0)
        for o in x.operands[:-1]:
            position += o.array_shape.dimensions[x.attributes.dimension]
            yield position
    elif x.op is movement.reshape:
        result, source = x.array_shape.dimensions, x.operands[0].array_shape.dimensions
        for source_dims, result_dims in split_dimensions(source, result):
            k = offsets[result_dims[0]] if len(result_dims) == 1 else None
            if k is not None:
                counts = accumulate((source[d] for d in source_dims[:-1]), mul, initial=1)
                size = result[result_dims[0]]
                row_size = size // max(n for n in counts if n <= MAX_PIECES)
                yield from range(row_size - k, size - k, row_size)


def slices_of_one_array(slices: Sequence[Instruction], d: int) -> tuple[Instruction, list[int], tuple[int, ...]] | None:
    """If all are slices of one array that differ along dimension d only, as in a roll: the array, the start of each
    slice along d, and the common start indices. Otherwise None."""
    first, starts = slices[0], [0] * len(slices)
    if len(slices) < 2 or any(x.op is not movement.slice_ for x in slices):
        return None
    for k, x in enumerate(slices):
        slice_starts = list(x.attributes.start_indices)
        starts[k], slice_starts[d] = slice_starts[d], first.attributes.start_indices[d]
        is_parallel = x.operands[0] is first.operands[0] and tuple(slice_starts) == first.attributes.start_indices
        if not is_parallel or set(x.attributes.strides) != {1}:
            return None
    return first.operands[0], starts, first.attributes.start_indices


def _reshape_access_map(x: Instruction, access: AccessMap) -> AccessMap:
    result = x.array_shape.dimensions
    source = x.operands[0].array_shape.dimensions
    source_access: list[AccessIndex] = [CONSTANT] * len(source)
    for source_dims, result_dims in split_dimensions(source, result):
        if len(source_dims) == 1 and len(result_dims) == 1:
            source_access[source_dims[0]] = access[result_dims[0]]
        else:
            dims = dims_of([access[d] for d in result_dims])
            for d in source_dims:
                source_access[d] = dims
    return normalize(source_access, source)
