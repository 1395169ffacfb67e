"""Outer-loop vectorization of many short rows by transposed tiles.

A row of ten elements does not fill a vector. So tiles of `TILE_ROWS` rows are transposed in registers to scratch; then
the outer loop over a row's elements contains a vectorizable loop over the rows of the tile. Full-row results are
transposed back; values per row are computed once per row, between the stages. Does not apply if operands vary along the
last outer axis without being contiguous in it, unless they are rows themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from functools import partial

from tinyxla.compiler.analysis.access_maps import CONSTANT, normalize
from tinyxla.compiler.costs import COSTLY_OPS
from tinyxla.compiler.fusion.plan import Accesses, LoopNest, iteration_space, producer_of, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import VECTOR_ITERATIONS, Buffer, Index, Operand
from tinyxla.loopir.ir.operations import max_element_bytes
from tinyxla.loopir.lower import reductions, register_transpose
from tinyxla.loopir.lower.axes import Axis, expand_indices, make_kernel, note_fused, ops_per_element
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.ops import elementwise, reduction

Stage = Sequence[Instruction]  # the roots of one loop over a row
TILE_ROWS = VECTOR_ITERATIONS
ROW_UNROLL_COUNTS = (5, 4, 3, 4)  # elements of a row per load and store of the accumulators, if the body is cheap


def is_computed_once(x: Instruction, stage: Stage, accesses: Accesses) -> bool:
    """True if a stage computes each element of x exactly once."""
    if x.array_shape.dimensions != iteration_space(stage[0]):
        return False
    reads = [access for producer, access, _ in accesses.read_by(stage) if producer is x]
    return any(all(c in (-1, d) for d, c in enumerate(access)) for access in reads)


def applies(fusion: LoopNest, axes: Sequence[Axis], accesses: Accesses) -> bool:
    """True if every array that a row reads is of the shape of the rows or contiguous along the last outer axis."""
    row_dims = range(axes[-1].first, axes[-1].last + 1)
    row_shapes = {iteration_space(root) for root in fusion.roots if len(iteration_space(root)) > len(fusion.outer)}
    for x, access, from_memory in accesses.read_by(fusion.roots):
        mapped = [c for c in access if c not in (CONSTANT, frozenset())]
        is_strided = any(not isinstance(c, int) or c in row_dims for c in mapped) and mapped[-1] != axes[-1].last
        if from_memory and is_strided and x.array_shape.dimensions not in row_shapes:
            return False
    return True


class TransposedRows:
    """Emits the kernel of a row fusion with outer dimensions `outer`, in tiles of the last of the outer axes."""

    def __init__(
        self, low: Lowering, outer: tuple[int, ...], axes: Sequence[Axis], cached: Set[Instruction], users: Users
    ) -> None:
        self.low, self.b, self.outer, self.axes, self.cached, self.users = low, low.builder, outer, axes, cached, users
        self.tiles, self.remainder = divmod(axes[-1].size, TILE_ROWS)
        self.outer_indices: Sequence[Index] = ()
        self.tile_start: Index = 0
        self.tile_rows: Index = 0
        self.row_in_tile: Index = 0
        self.max_tile_rows = TILE_ROWS + self.remainder  # the last tile of an axis includes the remainder

    def lower(self, stages: Sequence[Stage], row_size: int) -> LoweredKernel:
        """The kernel of all stages."""
        low, b = self.low, self.b
        sizes = [*(a.size for a in self.axes[:-1]), self.tiles]
        roots = [root for stage in stages for root in stage]
        note_fused(low, self.axes, self.outer)
        low.note("split", self.axes[-1], TILE_ROWS)
        low.note("reorder", "row", f"{TILE_ROWS} rows")
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            *self.outer_indices, tile = low.split_index(index, sizes)
            self.tile_start = b.mul(tile, TILE_ROWS)
            is_last = b.floordiv(tile, self.tiles - 1) if self.tiles > 1 else 1
            self.tile_rows = b.add(TILE_ROWS, b.mul(is_last, self.remainder))
            finished: list[tuple[Instruction, Buffer]] = []
            for stage in stages:
                finished = self._emit_stage(stage, finished)
            self._emit_row_values(finished)
        ops = ops_per_element(roots, low.accesses) * row_size * TILE_ROWS
        return make_kernel(low, math.prod(sizes), ops, roots)

    def _emit_stage(
        self, stage: Stage, finished: Sequence[tuple[Instruction, Buffer]]
    ) -> list[tuple[Instruction, Buffer]]:
        """Emit one loop over the elements of the rows of a tile. `finished` are the results of the previous stage's
        reductions with their buffers; returns those of this stage."""
        low, b, sizes = self.low, self.b, iteration_space(stage[0])
        reduced = [producer_of(root) for root in stage if producer_of(root).op is reduction.reduce]
        pointwise = [root for root in stage if producer_of(root).op is not reduction.reduce]
        self._transpose_operands(stage, sizes)
        new_tiles = self._allocate_intermediates(stage)
        root_tiles = {x: self._allocate_tile(x) for x in pointwise if self._is_transposed(x, sizes)}
        initial = [value for x in reduced for value in low.initial(x)]
        accumulators = [b.scratch(value.type, self.max_tile_rows) for value in initial]
        self._emit_row_values(finished, zip(accumulators, initial, strict=True), self._row_invariants(stage))

        def body(positions: Sequence[Coordinates]) -> None:
            with low.loop(0, self.tile_rows) as (self.row_in_tile, loop):
                row = self._outer_coordinates(self.row_in_tile)
                values: list[Operand] = [b.load(row, self.row_in_tile) for row in accumulators]
                for position in positions:
                    coordinates = (*row, *position)
                    for x, tile in new_tiles.items():
                        b.store(*self._locate(tile, x, coordinates), low.value(x, coordinates))
                    values = reductions.update_each(low.accumulate, reduced, values, coordinates)
                    for x in pointwise:
                        if x in root_tiles:
                            value = low.compute(x, coordinates)
                            low.bind_value(x, coordinates, value)
                            b.store(*self._locate(root_tiles[x], x, coordinates), value)
                        else:
                            low.emit_root(x, coordinates)
                for row, value in zip(accumulators, values, strict=True):
                    b.store(row, self.row_in_tile, value)
                loop.has_remainder = max_element_bytes(loop) < 4  # whose unrolled vectors exceed a tile

        is_cheap = ops_per_element(stage, low.accesses) <= COSTLY_OPS
        unroll_counts = ROW_UNROLL_COUNTS if reduced and is_cheap else [1]
        low.nest_unrolled([(0, size) for size in sizes[len(self.outer) :]], unroll_counts, body)
        for x, tile in (new_tiles | root_tiles).items():
            self._bind_tile(x, tile)
        for x, tile in root_tiles.items():
            if x in low.live_out:
                self._transpose(x, tile, to_memory=True)
        low.mark_materialized(pointwise)
        return self._results_in(reduced, accumulators)

    def _transpose_operands(self, stage: Stage, sizes: tuple[int, ...]) -> None:
        """Transpose the rows in memory that a stage reads and that have no tile yet."""
        low, identity = self.low, normalize(range(len(sizes)), sizes)
        for x, access, _ in low.accesses.read_by(stage):
            if low.in_memory(x) and access == identity and self._is_transposed(x, sizes) and not low.has_memory(x):
                self._transpose(x, self._allocate_tile(x), to_memory=False)

    def _allocate_intermediates(self, stage: Stage) -> dict[Instruction, Buffer]:
        """Tiles for the cached intermediates that a stage computes."""
        computed = [x for x in self.cached if not self.low.has_memory(x)]
        return {x: self._allocate_tile(x) for x in computed if is_computed_once(x, stage, self.low.accesses)}

    def _results_in(
        self, reduced: Sequence[Instruction], accumulators: Sequence[Buffer]
    ) -> list[tuple[Instruction, Buffer]]:
        """The results of reductions with the accumulators that hold them."""
        results: list[tuple[Instruction, Buffer]] = []
        for x in reduced:
            own, accumulators = accumulators[: len(x.operands) // 2], accumulators[len(x.operands) // 2 :]
            results += [(r, own[r.attributes.index if r is not x else 0]) for r in results_of(x, self.users)]
        return results

    # --- one value per row

    def _row_invariants(self, stage: Stage) -> list[Instruction]:
        """Values per row that are broadcast along the row."""
        row_access = normalize(range(len(self.outer)), self.outer)
        computed, broadcast = list[Instruction](), set[Instruction]()
        for x, access, from_memory in self.low.accesses.read_by(stage):
            if x.op.name not in elementwise.NAMES:
                broadcast.update(x.operands)
            elif access == row_access and not from_memory and not self.low.has_memory(x):
                computed.append(x)
        return [x for x in computed if x in broadcast]

    def _emit_row_values(
        self,
        finished: Sequence[tuple[Instruction, Buffer]],
        initial: Iterable[tuple[Buffer, Operand]] = (),
        invariants: Sequence[Instruction] = (),
    ) -> None:
        """A loop over the rows of a tile between stages: store finished results, compute row invariants, and
        initialize accumulators."""
        low, b = self.low, self.b
        buffers = [b.scratch(x.array_shape.element_type.name, self.max_tile_rows) for x in invariants]
        for x, buffer in finished:
            self._bind_row_values(x, buffer)
        stores = [*initial]
        if not (stores or invariants or any(x in low.live_out for x, _ in finished)):
            return
        with low.loop(0, self.tile_rows) as (self.row_in_tile, _):
            coordinates = self._outer_coordinates(self.row_in_tile)
            for x, buffer in finished:
                low.store(x, coordinates, b.load(buffer, self.row_in_tile))
            for x, buffer in zip(invariants, buffers, strict=True):
                b.store(buffer, self.row_in_tile, low.value(x, coordinates))
            for buffer, value in stores:
                b.store(buffer, self.row_in_tile, value)
        for x, buffer in zip(invariants, buffers, strict=True):
            self._bind_row_values(x, buffer)

    def _bind_row_values(self, x: Instruction, buffer: Buffer) -> None:
        self.low.bind_memory(x, lambda _: (buffer, self.row_in_tile))

    def _outer_coordinates(self, row: Index) -> Coordinates:
        return expand_indices(self.axes, [*self.outer_indices, self.b.add(self.tile_start, row)], len(self.outer))

    # --- one value per element of a row

    def _is_transposed(self, x: Instruction, sizes: tuple[int, ...]) -> bool:
        row_shape = sizes[len(self.outer) :]
        return x.array_shape.dimensions == sizes and math.prod(row_shape) >= 4  # as wide as the smallest square

    def _allocate_tile(self, x: Instruction) -> Buffer:
        size = math.prod(x.array_shape.dimensions[len(self.outer) :])
        return self.b.scratch(x.array_shape.element_type.name, size * self.max_tile_rows)

    def _bind_tile(self, x: Instruction, tile: Buffer) -> None:
        """Bind x to its tile, for elements in rows of the current tile."""
        rank = len(self.outer)

        def locate(coordinates: Coordinates) -> tuple[Buffer, Index] | None:
            is_current = coordinates[:rank] == self._outer_coordinates(self.row_in_tile)
            return self._locate(tile, x, coordinates) if is_current else None

        self.low.bind_memory(x, locate)

    def _locate(self, tile: Buffer, x: Instruction, coordinates: Coordinates) -> tuple[Buffer, Index]:
        rank = len(self.outer)
        k = self.low.linearize(x.array_shape.dimensions[rank:], coordinates[rank:])
        return self._tile_element(tile, k, self.row_in_tile)

    def _tile_element(self, tile: Buffer, k: Index, row: Index) -> tuple[Buffer, Index]:
        return tile, self.b.add(self.b.mul(k, self.max_tile_rows), row)

    def _transpose(self, x: Instruction, tile: Buffer, to_memory: bool) -> None:
        """Transpose an operand's rows to its tile, or a tile back to memory."""
        low, zeros = self.low, [0] * (x.array_shape.rank - len(self.outer) - 1)

        def memory(k: Index, row: Index) -> tuple[Buffer, Index]:
            buffer, coordinates = low.buffer(x, to_memory), (*self._outer_coordinates(row), *zeros, k)
            return buffer, low.linearize(x.array_shape.dimensions, coordinates)

        row_size = math.prod(x.array_shape.dimensions[len(self.outer) :])
        in_tile, max_size = partial(self._tile_element, tile), min(row_size, TILE_ROWS)
        if to_memory:
            source, target = (partial(_swap_indices, address) for address in (in_tile, memory))
            register_transpose.transpose_copy(low, source, target, (self.tile_rows, row_size), max_size, source)
        else:
            register_transpose.transpose_copy(low, memory, in_tile, (row_size, self.tile_rows), max_size, memory)
            self._bind_tile(x, tile)


def _swap_indices(address: register_transpose.Address, j: Index, i: Index) -> tuple[Buffer, Index]:
    return address(i, j)
