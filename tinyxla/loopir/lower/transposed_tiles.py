"""Cache-blocked loop nests over operands with different minor dimensions: transposed tiles.

If an operand is contiguous along an outer axis, the nest is tiled; a tile has as many rows as elements of the
transposed operand fit a cache line, or a pair of lines. The operand's tile is transposed to scratch in the first-level
cache, so that every cache line is read once and the inner loop is unit-stride on both sides.

Neither side is contiguous long enough for the hardware prefetcher, so the next tile's operands are prefetched, and its
result for writing if it exceeds the caches. For a large square matrix that is read both ways, as in x + x.T, blocks of
tiles alternate with their mirror images, so that each block is read from memory once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tinyxla.compiler.analysis.access_maps import AccessMap
from tinyxla.compiler.costs import L1_ELEMENTS, LONG_ROW, VECTOR_ELEMENTS
from tinyxla.compiler.fusion.plan import Accesses, buffer_of, iteration_space
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Builder, Index
from tinyxla.loopir.ir.prefetch import declare_prefetch_read, declare_prefetch_write
from tinyxla.loopir.lower import register_transpose
from tinyxla.loopir.lower.axes import Axis, evaluate_access_map, expand_indices, make_kernel, note_fused
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering
from tinyxla.loopir.target import current_target

Reads = Sequence[tuple[Instruction, AccessMap]]


def transposed_axis(roots: Sequence[Instruction], accesses: Accesses, axes: Sequence[Axis]) -> Axis | None:
    """An outer axis along which an operand is contiguous that the inner loop would read with long strides; None if
    there is none."""
    for axis in axes[:-1]:
        if _contiguous_reads(axis, axes[-1], roots, accesses):
            return axis
    return None


def _contiguous_reads(axis: Axis, inner: Axis, roots: Sequence[Instruction], accesses: Accesses) -> Reads:
    """Operands in memory that are contiguous along `axis` and vary along `inner`, with their access maps."""
    reads: list[tuple[Instruction, AccessMap]] = []
    for x, access, from_memory in accesses.read_by(roots, views=True):
        mapped = [c for c in access if c != -1]
        is_mapped = not any(isinstance(c, frozenset) for c in mapped)
        varies_along_inner = any(d in mapped for d in range(inner.first, inner.last + 1))
        is_contiguous = is_mapped and mapped and mapped[-1] == axis.last and varies_along_inner
        if from_memory and is_contiguous and x.array_shape.size >= L1_ELEMENTS:
            reads.append((x, access))
    return reads


def lower_transposed_tiles(
    low: Lowering, axes: Sequence[Axis], outer: Axis, ops: int, roots: Sequence[Instruction]
) -> LoweredKernel:
    """The tiled kernel; operands contiguous along `outer` are transposed."""
    b, inner = low.builder, axes[-1]
    transposed = _contiguous_reads(outer, inner, roots, low.accesses)
    untransposed = _contiguous_reads(inner, outer, roots, low.accesses)
    untransposed = [item for item in untransposed if buffer_of(item[0]) not in roots]
    sizes = [x.array_shape.dtype.itemsize for x, _ in transposed]
    moved_bytes = _moved_bytes(transposed, untransposed, roots)
    exceeds_private_cache = moved_bytes >= current_target().private_bytes
    tile_rows = min(_tile_rows(sizes, inner.size, moved_bytes), outer.size)
    max_columns = current_target().tile_bytes // (tile_rows * sum(sizes))
    tile_columns = _tile_columns(inner.size, max(sizes), max_columns, max(VECTOR_ELEMENTS, tile_rows))
    # Rounded, so that few distinct kernels result; and no power of two, so that rows do not share cache sets.
    pitch = -(-tile_columns // (4 * VECTOR_ELEMENTS)) * 4 * VECTOR_ELEMENTS + 2 * VECTOR_ELEMENTS
    other_axes = [a for a in axes if a not in (outer, inner)]
    columns, row_tiles = -(-inner.size // tile_columns), -(-outer.size // tile_rows)
    mirrored = _mirrored_tiles(transposed, untransposed, inner.size, outer.size, tile_columns, tile_rows)
    counts = [*(a.size for a in other_axes), *(mirrored.counts if mirrored else (row_tiles, columns))]
    rank, extent = len(iteration_space(roots[0])), math.prod(counts)
    is_split = columns > 1  # otherwise the rows of the result are contiguous
    write_prefetched = [root for root in roots if exceeds_private_cache and is_split and root in low.live_out]
    max_square = min(tile_rows, inner.size)
    copies = [b.scratch(x.array_shape.element_type.name, tile_rows * pitch) for x, _ in transposed]

    def tile_element(copy: Buffer, i: Index, j: Index) -> tuple[Buffer, Index]:
        return copy, b.add(b.mul(i, pitch), VECTOR_ELEMENTS, j)

    def tile_origin(tile: Index) -> tuple[list[Index], Index]:
        """The coordinates at which a tile begins, and how many of its rows overlap the previous tile."""
        coordinates = low.split_index(tile, counts)
        indices, position = coordinates[: len(other_axes)], coordinates[len(other_axes) :]
        row, column = mirrored.tile(b, position, row_tiles) if mirrored else position
        start = b.mul(row, tile_rows)
        top = b.min(start, outer.size - tile_rows)
        return [*indices, top, b.mul(column, tile_columns)], b.sub(start, top)

    def coordinates_at(start: Sequence[Index], i: Index, j: Index) -> Coordinates:
        indices = (*start[:-2], b.add(start[-2], i), b.add(start[-1], j))
        by_axis = dict(zip([*other_axes, outer, inner], indices, strict=True))
        return expand_indices(axes, [by_axis[a] for a in axes], rank)

    def address(x: Instruction, access: AccessMap, start: Sequence[Index], i: Index, j: Index) -> tuple[Buffer, Index]:
        coordinates = evaluate_access_map(access, coordinates_at(start, i, j))
        return low.buffer(buffer_of(x)), low.linearize(x.array_shape.dimensions, coordinates)

    def result(root: Instruction, start: Sequence[Index], i: Index, j: Index) -> tuple[Buffer, Index]:
        return low.buffer(root, True), low.linearize(root.array_shape.dimensions, coordinates_at(start, i, j))

    note_fused(low, axes, iteration_space(roots[0]))
    low.note("split", outer, tile_rows)
    low.note("split", inner, tile_columns)
    low.note("reorder", *other_axes, f"tiles of {outer}, {inner}")
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.assume_range(index, 0, extent - 1)
        origin, first = tile_origin(index)
        next_origin, _ = tile_origin(b.min(b.add(index, 1), extent - 1))
        columns_left = b.max(b.min(b.sub(inner.size, origin[-1]), tile_columns), 0)
        for (x, access), copy in zip(transposed, copies, strict=True):
            source, prefetched = partial(address, x, access, origin), partial(address, x, access, next_origin)
            target, size = partial(tile_element, copy), (tile_rows, columns_left)
            register_transpose.transpose_copy(low, source, target, size, max_square, prefetched, first)
        with low.loop(first, tile_rows) as (i, _):
            for x, access in untransposed:
                b.call(declare_prefetch_read(), *(address(x, access, next_origin, i, j) for j in (0, columns_left)))
            for root in write_prefetched:
                b.call(declare_prefetch_write(), *(result(root, next_origin, i, j) for j in (0, columns_left)))
            with low.loop(0, columns_left) as (j, _):
                coordinates = coordinates_at(origin, i, j)
                for (x, access), copy in zip(transposed, copies, strict=True):
                    low.bind_value(x, evaluate_access_map(access, coordinates), b.load(*tile_element(copy, i, j)))
                for root in roots:
                    low.emit_root(root, coordinates)
    return make_kernel(low, extent, ops * tile_rows * tile_columns, roots)


def _tile_rows(sizes: Sequence[int], columns: int, moved_bytes: int) -> int:
    """Rows of a tile, for transposed operands with elements of `sizes` bytes: one cache line of elements; a pair of
    lines if the arrays exceed the private caches, since processors fetch pairs; more if they come from main memory
    and rows are short, for the hardware prefetcher."""
    line_bytes = current_target().line_bytes
    line_rows, line_pair_rows = line_bytes // min(sizes), 2 * line_bytes // max(sizes)
    if moved_bytes < current_target().private_bytes:
        return line_rows
    streamed_rows = 0
    if moved_bytes >= 2 * current_target().last_level_bytes:
        max_rows = min(LONG_ROW, current_target().tile_bytes // (columns * sum(sizes)))
        streamed_rows = max_rows // line_rows * line_rows
    return max(line_rows, min(2 * VECTOR_ELEMENTS, line_pair_rows), streamed_rows)


def _moved_bytes(transposed: Reads, untransposed: Reads, roots: Sequence[Instruction]) -> int:
    """Bytes that a kernel reads and writes."""
    arrays = {buffer_of(x): x.array_shape for x in (*(x for x, _ in (*transposed, *untransposed)), *roots)}
    return sum(x.size * x.dtype.itemsize for x in arrays.values())


def _tile_columns(size: int, bytes_each: int, max_columns: int, unit: int) -> int:
    """Columns of a tile: equal tiles near the target size, a multiple of `unit`; the target is larger if tiles split
    cache lines."""
    target_columns = (512 if size * bytes_each % current_target().line_bytes == 0 else 1024) // max(2, bytes_each)
    tiles = max(1, round(size / min(target_columns, max_columns)))
    return size if tiles == 1 else -(-size // (tiles * unit)) * unit


@dataclass(frozen=True, slots=True)
class _MirroredTiles:
    """Square blocks of tiles, in pairs that mirror each other at the diagonal: `blocks` blocks on each side of the
    matrix, each of `rows` x `columns` tiles."""

    blocks: int
    columns: int
    rows: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Rows and columns of the triangle of block pairs, folded to a rectangle at its diagonal; the 2 blocks of a
        pair; rows and columns of tiles in a block."""
        width = self.blocks | 1
        return self.blocks * (self.blocks + 1) // 2 // width, width, 2, self.rows, self.columns

    def tile(self, b: Builder, position: Sequence[Index], row_count: int) -> tuple[Index, Index]:
        """Row and column of a tile. The row is `row_count`, past the end, for the mirror image of a block on the
        diagonal."""
        row, column, second, *in_block = position
        shift = 1 - self.blocks % 2
        is_first = b.compare("GE", column, b.add(row, shift))
        i = b.select(is_first, row, b.sub(self.blocks - shift, row))
        j = b.select(is_first, b.sub(column, shift), b.sub(self.blocks - 1, column))
        is_mirror = b.compare("EQ", second, 1)
        block_row, block_column = b.select(is_mirror, j, i), b.select(is_mirror, i, j)
        tile_row = b.add(b.mul(block_row, self.rows), in_block[0])
        is_repeated = b.compare("GT", b.add(i, second), j)
        return b.select(is_repeated, row_count, tile_row), b.add(b.mul(block_column, self.columns), in_block[1])


def _mirrored_tiles(
    transposed: Reads, untransposed: Reads, size: int, outer_size: int, tile_columns: int, tile_rows: int
) -> _MirroredTiles | None:
    """The blocks of a square matrix that is read both ways and exceeds the last-level cache; None otherwise."""
    itemsizes = [x.array_shape.dtype.itemsize for x, _ in transposed if any(x is y for y, _ in untransposed)]
    block_bytes = current_target().l2_bytes // 4  # for two blocks, and what they come from
    block_elements = block_bytes // max(itemsizes, default=1)
    side = max(1, math.isqrt(block_elements) // tile_columns) * tile_columns
    if size != outer_size or size * size * sum(itemsizes) < current_target().last_level_bytes or side % tile_rows:
        return None
    return _MirroredTiles(-(-size // side), side // tile_columns, side // tile_rows)
