"""Outer reductions: the `column` kind of nests, reductions that keep the minor dimension.

Columns are blocked; a block has a row of accumulators, over which the reduced dimensions loop. Several rows are added
per load and store of the accumulators (unroll and jam). If rows are shorter than a vector, consecutive rows are joined
to one wide row, with accumulators of their own until the end. Short reduced dimensions within the minor kept dimension
(runs) are reduced likewise, after all rows were added. If there are few blocks, the rows are split, and partial results
are combined by a second kernel.

Few long rows are added at once in registers, without accumulators in memory: each row is a stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from itertools import pairwise

from tinyxla.compiler.analysis.access_maps import AccessMap, dims_of, guarded_dims
from tinyxla.compiler.costs import (
    ACCUMULATORS,
    CACHED_ELEMENTS,
    CHUNKS,
    COSTLY_OPS,
    INTERLEAVED,
    L2_ELEMENTS,
    MAX_CHUNKS,
    MAX_UNROLLED,
    PARALLEL_CHUNK_ELEMENTS,
    TASKS,
    VECTOR_ELEMENTS,
)
from tinyxla.compiler.fusion.plan import LoopNest, Plan, producer_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import LONG_LOOP_ITERATIONS, Index, Operand
from tinyxla.loopir.lower.axes import Axis, evaluate_access_map, make_kernel, note_fused, tile_of
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.loopir.lower.reductions import LONG_CHUNKS, Reductions, combine, combine_accumulators
from tinyxla.ops import elementwise, movement


def lower_outer_reduction(fusion: LoopNest, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a `column` fusion."""
    return _OuterReduction(fusion, plan, users).kernels()


class _OuterReduction:
    """Lowers one `column` fusion."""

    def __init__(self, fusion: LoopNest, plan: Plan, users: Users) -> None:
        self.plan, self.users = plan, users
        self.space = space = Reductions(fusion, plan)
        inner_start = max(k for k, a in enumerate(space.axes) if a.first not in space.reduced)
        outer_axes, self.row_axes = space.axes[:inner_start], space.axes[inner_start:]  # around rows, and within rows
        self.column_axis, *run_axes = self.row_axes
        self.run_length = math.prod(a.size for a in run_axes)  # elements of a row per result
        self.size = self.column_axis.size * self.run_length  # of a row
        self.reduced_axes = [a for a in outer_axes if a.first in space.reduced]
        self.kept_axes = [a for a in outer_axes if a.first not in space.reduced]
        self.joined_rows = self._choose_joined_rows()
        self.row_invariants = self._row_invariant_reads() if self.joined_rows * self.run_length > 1 else []
        self.block_size = min(self.size, CACHED_ELEMENTS // self.run_length * self.run_length)
        self.low = Lowering("column", plan, space.own_roots(users))
        self.b = b = self.low.builder
        self.is_in_registers = self._fits_registers()
        accumulated = [] if self.is_in_registers else space.arrays
        self.accumulators = [
            b.scratch(x.array_shape.element_type.name, self.joined_rows * self.block_size) for x in accumulated
        ]
        self.invariant_copies = [
            b.scratch(x.array_shape.element_type.name, self.joined_rows * self.block_size)
            for x, _ in self.row_invariants
        ]
        self.outer: Sequence[Index] = ()
        self.block_start: Index = 0
        self.lanes: Index = 0
        self.split: Index = 0
        self.splits = 1

    def kernels(self) -> list[LoweredKernel]:
        space, b = self.space, self.b
        blocks = -(-self.size // self.block_size)
        independent = math.prod(a.size for a in self.kept_axes) * blocks
        reduced_size = self.reduced_axes[0].size if self.reduced_axes else 1
        ops_per_index = math.prod(a.size for a in self.reduced_axes[1:]) * self.block_size * space.ops_per_element
        if independent < TASKS and space.has_identity and not self.is_in_registers:
            chunks = reduced_size * ops_per_index // (PARALLEL_CHUNK_ELEMENTS * COSTLY_OPS)
            rows = MAX_CHUNKS * len(self.accumulators)
            long_splits = min(-(-MAX_CHUNKS // independent), chunks // LONG_CHUNKS, reduced_size // rows)
            self.splits = long_splits if long_splits >= CHUNKS else max(1, min(2 * TASKS, chunks))
        self._note_schedule(blocks, reduced_size)
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, self.split = b.delinearize(index, self.splits)
            self.block_start = b.mul(b.remainder(row, blocks), self.block_size)
            self.outer = self.low.split_index(b.floordiv(row, blocks), [a.size for a in self.kept_axes])
            remaining = self.size if blocks == 1 else b.sub(self.size, self.block_start)
            width = b.min(remaining, self.block_size)
            self.lanes = width if self.joined_rows == 1 else self.joined_rows * self.block_size
            if self.is_in_registers:
                self._reduce_in_registers(width)
            else:
                self._initialize()
                self._reduce()
                self._store_results(width)
        ops = ops_per_index * max(1, reduced_size // self.splits)
        kernel = make_kernel(self.low, independent * self.splits, ops, space.computed(self.splits))
        if self.splits == 1:
            return [kernel]
        return [kernel, combine(space, self.plan, self.users, self.splits, MAX_CHUNKS)]

    def _note_schedule(self, blocks: int, reduced_size: int) -> None:
        low, space = self.low, self.space
        note_fused(low, space.axes, space.sizes)
        if self.splits > 1:
            low.note("split", self.reduced_axes[0], -(-reduced_size // self.splits))
        if blocks > 1:
            low.note("split", self.column_axis, self.block_size)
        low.note("reorder", *self.kept_axes, *self.reduced_axes, self.column_axis)
        if self.is_in_registers:
            low.note("unroll", self.reduced_axes[0])

    def _fits_registers(self) -> bool:
        """Whether the reduction is over few rows that are long, and its operation is cheap."""
        space, rows = self.space, math.prod(a.size for a in self.reduced_axes)
        is_cheap = space.ops_per_element <= COSTLY_OPS and space.is_monoid and self.joined_rows * self.run_length == 1
        is_wide = self.size >= CACHED_ELEMENTS
        return is_cheap and is_wide and len(self.reduced_axes) == 1 and rows <= 16  # streams

    def _reduce_in_registers(self, width: Index) -> None:
        """Reduce each column of a block from its first row to its last one, and store the result."""
        low, b, space = self.low, self.b, self.space
        initial = space.initial_values(low, 1)
        with low.loop(0, width) as (j, _):
            values = initial
            for row in range(self.reduced_axes[0].size):
                values = space.accumulate(low, values, self._coordinates((row,), j))
            position = [*self.outer, b.add(self.block_start, j)]
            coordinates = space.coordinates([*self.kept_axes, self.column_axis], position)
            result = tuple(c for d, c in enumerate(coordinates) if d not in space.reduced)
            space.store_results(low, values, result, self.split, self.splits, self.users)

    def _initialize(self) -> None:
        """Initialize the accumulators, and copy row-invariant operands to scratch, repeated for joined rows."""
        low, b, space = self.low, self.b, self.space
        initial = space.initial_values(low, max(self.splits, self.joined_rows, self.run_length))
        with low.loop(0, self.lanes) as (j, _):
            for row, value in zip(self.accumulators, initial, strict=True):
                b.store(row, j, value)
            for (x, access), copy in zip(self.row_invariants, self.invariant_copies, strict=True):
                column = b.remainder(j, self.block_size) if self.joined_rows > 1 else b.add(self.block_start, j)
                indices = [*self.outer, *self._split_column(column)]
                coordinates = space.coordinates([*self.kept_axes, *self.row_axes], indices)
                b.store(copy, j, low.value(x, evaluate_access_map(access, coordinates)))

    def _reduce(self) -> None:
        """Loops over groups of joined rows, then the remaining joined rows, then the rows that fill no joined row."""
        if not self.reduced_axes:
            return self._accumulate([()], self.lanes)
        space, b = self.space, self.b
        *outer, size = (a.size for a in self.reduced_axes)
        joined_count, remainder = divmod(size, self.joined_rows)
        is_cached = math.prod(space.sizes) <= 8 * L2_ELEMENTS or self.size < LONG_LOOP_ITERATIONS
        is_cheap = space.ops_per_element <= COSTLY_OPS and space.is_monoid
        is_vectorized = is_cheap or MAX_UNROLLED < self.size <= ACCUMULATORS
        unrolled = INTERLEAVED if is_vectorized and is_cached and joined_count >= INTERLEAVED else 1
        bounds: list[tuple[Index, Index]] = [(0, size) for size in (*outer, joined_count // unrolled)]
        if self.splits > 1:
            first_size = outer[0] if outer else joined_count // unrolled
            bounds[0] = tile_of(self.low, self.split, self.splits, first_size)[1:]

        def accumulate_group(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            *outer_indices, k = indices
            row = b.mul(k, unrolled)
            self._accumulate([(*outer_indices, b.add(row, offset)) for offset in range(unrolled)], self.lanes)
            return carried

        self.low.nest(bounds, (), accumulate_group, sequential=True)
        for first, stop, lanes in (
            (joined_count // unrolled * unrolled, joined_count, self.lanes),
            (joined_count, joined_count + bool(remainder), remainder * self.block_size),
        ):
            if first < stop:
                self._remainder(bounds[:-1], first, stop, lanes)

    def _remainder(self, outer: Sequence[tuple[Index, Index]], first: int, stop: int, lanes: Index) -> None:
        """Accumulate the joined rows from `first` to `stop`, which the main loop leaves."""
        split_stop: Index = stop
        if not outer:  # belongs to the last split
            is_last = self.b.floordiv(self.b.add(self.split, 1), self.splits)
            split_stop = self.b.add(first, self.b.mul(is_last, stop - first))

        def accumulate_row(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            self._accumulate([indices], lanes)
            return carried

        self.low.nest([*outer, (first, split_stop)], (), accumulate_row, sequential=True)

    def _accumulate(self, rows: Sequence[Coordinates], lanes: Index) -> None:
        """Add the elements of several (joined) rows to the accumulators."""
        low, b = self.low, self.b
        with low.loop(0, lanes) as (j, _):
            values: list[Operand] = [b.load(row, j) for row in self.accumulators]
            for indices in rows:
                coordinates = self._coordinates(indices, j)
                for (x, access), copy in zip(self.row_invariants, self.invariant_copies, strict=True):
                    low.bind_value(x, evaluate_access_map(access, coordinates), b.load(copy, j))
                values = self.space.accumulate(low, values, coordinates)
            for row, value in zip(self.accumulators, values, strict=True):
                b.store(row, j, value)

    def _coordinates(self, indices: Coordinates, j: Index) -> Coordinates:
        b, within_row = self.b, self._split_column(self.b.add(self.block_start, j))
        if self.joined_rows > 1:
            *outer_indices, row = indices
            flat = b.add(b.mul(row, self.joined_rows * self.block_size), j)
            row, *within_row = self.low.split_index(flat, [a.size for a in (self.reduced_axes[-1], *self.row_axes)])
            indices = (*outer_indices, row)
        axes = [*self.kept_axes, *self.reduced_axes, *self.row_axes]
        return self.space.coordinates(axes, [*self.outer, *indices, *within_row])

    def _split_column(self, index: Index) -> Coordinates:
        """The indices of the row axes at a position within a row."""
        return self.low.split_index(index, [a.size for a in self.row_axes]) if self.run_length > 1 else (index,)

    def _store_results(self, width: Index) -> None:
        """Combine the accumulators of joined rows and runs, and store the results."""
        low, b, space = self.low, self.b, self.space
        initial, reduced = space.initial_values(low, self.splits), [producer_of(root) for root in space.roots]
        with low.loop(0, b.floordiv(width, self.run_length)) as (j, _):
            column = b.add(b.floordiv(self.block_start, self.run_length), j)
            coordinates = space.coordinates([*self.kept_axes, self.column_axis], [*self.outer, column])
            result = tuple(c for d, c in enumerate(coordinates) if d not in space.reduced)
            values: list[Operand] = [b.load(row, j) for row in self.accumulators]
            if self.joined_rows * self.run_length > 1:
                values = initial
                for k in range(self.joined_rows * self.run_length):
                    offset = k // self.run_length * self.block_size + k % self.run_length
                    lane = b.add(b.mul(j, self.run_length), offset)
                    values = combine_accumulators(low, reduced, values, [b.load(x, lane) for x in self.accumulators])
            space.store_results(low, values, result, self.split, self.splits, self.users)

    def _choose_joined_rows(self) -> int:
        """The number of consecutive rows that one wide row joins; 1 unless operands are contiguous across rows and
        columns are too few to fill vectors."""
        space, reduced_axes, width = self.space, self.reduced_axes, self.size
        joined = VECTOR_ELEMENTS // math.gcd(width, VECTOR_ELEMENTS)
        joined *= max(1, ACCUMULATORS // (joined * width))
        max_width = 4 * ACCUMULATORS if space.is_monoid or width < 2 * VECTOR_ELEMENTS else 0
        if joined == 1 or not space.is_reorderable or joined * width > max_width:
            return 1
        if not reduced_axes:
            return 1
        row_axis = reduced_axes[-1]
        if row_axis is not space.axes[-len(self.row_axes) - 1] or row_axis.size < 4 * joined:
            return 1
        reads = self.plan.accesses.read_by([*space.roots, *space.full_space_roots], views=True)
        return joined if all(self._joins_rows(*read, row_axis) for read in reads) else 1

    def _joins_rows(self, x: Instruction, access: AccessMap, from_memory: bool, row_axis: Axis) -> bool:
        """True if what is read for consecutive rows is contiguous, or the same for all of them."""
        space, mapped = self.space, [c for c in access if c != -1]
        row_dims, column_dims = _dims_of_axes([row_axis]), _dims_of_axes(self.row_axes)
        is_position = x.op is movement.iota and not space.is_monoid  # the index operand of an argmax
        if any(isinstance(c, frozenset) for c in mapped) or (dims_of(guarded_dims(x, access)) and not is_position):
            return False
        read_dims = {c for c in mapped if isinstance(c, int)}
        if from_memory and x.array_shape.size != math.prod(space.sizes[d] for d in read_dims):
            return False
        if not row_dims & read_dims:
            return not (column_dims & read_dims and from_memory and self._varies_by_row(read_dims))
        is_per_row = not column_dims & read_dims
        if is_per_row and not from_memory and x.op.name in elementwise.NAMES:
            return False
        return (row_axis.last, self.column_axis.first) in pairwise(mapped)

    def _row_invariant_reads(self) -> list[tuple[Instruction, AccessMap]]:
        """Operands that vary by column but not by row."""
        reads: dict[tuple[Instruction, AccessMap], None] = {}
        roots = [*self.space.roots, *self.space.full_space_roots]
        for x, access, from_memory in self.plan.accesses.read_by(roots, views=True):
            read_dims, is_mapped = dims_of(access), not any(isinstance(c, frozenset) for c in access)
            varies_by_column = read_dims & _dims_of_axes(self.row_axes)
            if from_memory and is_mapped and varies_by_column and not self._varies_by_row(read_dims):
                reads[x, access] = None
        return list(reads)

    def _varies_by_row(self, read_dims: Set[int]) -> bool:
        """True if an operand with these dimensions varies by row."""
        return bool(read_dims & _dims_of_axes(self.reduced_axes))


def _dims_of_axes(axes: Sequence[Axis]) -> set[int]:
    return {d for axis in axes for d in range(axis.first, axis.last + 1)}
