"""Reductions that keep the innermost dimension: the `column` kind of nests.

Columns are taken in blocks, each with a row of accumulators, over which the other dimensions run. Several rows are
added at once, so that accumulators are loaded and stored less often. Where columns are few, vectors take several rows,
which lie one after the other in memory, as one.

Where rows are few, and long, all are added at once in registers, without accumulators in memory: each row is a stream.

Short runs of elements behind the innermost dimension that is kept may be reduced too: they are columns like others,
until all rows have been added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from itertools import pairwise

from tinyxla.compiler.analysis.access_maps import AccessMap, dims_of, guarded_dims
from tinyxla.compiler.fusion.plan import Fusion, Plan, producer_of, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Operand
from tinyxla.loopir.lower.axes import (
    COSTLY_WORK,
    PARALLEL_CHUNK_ELEMENTS,
    Axis,
    evaluate_access_map,
    make_kernel,
    tile_of,
)
from tinyxla.loopir.lower.emit import LANES, Coordinates, LoweredKernel, Lowering, Users
from tinyxla.loopir.lower.reductions import Reductions, combine, combine_accumulators
from tinyxla.ops import elementwise, movement

COLUMNS = 1 << 12  # accumulators
FEW = 8  # columns that are written out
LINE = 16  # columns that are a whole vector
AT_ONCE = 4  # rows for which accumulators are loaded and stored once, where LLVM makes vectors of so much work
NEAR = 1 << 21  # elements that caches hold; more are read fastest row by row
SHORT_ROW = 512  # columns that are not worth loading and storing accumulators for a row at a time
PIECES = 16  # of rows that are reduced by themselves
STREAMS = 16  # rows that are read side by side
FEW_BLOCKS = 8  # of columns: with fewer, the rows are cut into pieces


def column(fusion: Fusion, plan: Plan, users: Users) -> list[LoweredKernel]:
    return _Columns(fusion, plan, users).kernels()


class _Columns:
    """The kernels of one fusion."""

    def __init__(self, fusion: Fusion, plan: Plan, users: Users) -> None:
        self.plan, self.users = plan, users
        self.space = space = Reductions(fusion, plan)
        last = max(k for k, a in enumerate(space.axes) if a.first not in space.reduced)
        others, self.across = space.axes[:last], space.axes[last:]  # the axes around rows, and in them
        self.columns, *runs = self.across
        self.run = math.prod(a.size for a in runs)  # elements of a row that make one result
        self.size = self.columns.size * self.run  # of a row
        self.over = [a for a in others if a.first in space.reduced]
        self.kept = [a for a in others if a.first not in space.reduced]
        self.joined = self._joined_rows()
        self.repeated = self._repeated() if self.joined * self.run > 1 else []
        self.width = min(self.size, COLUMNS // self.run * self.run)
        self.low = Lowering("column", plan, space.own(users))
        self.b = b = self.low.builder
        self.is_direct = self._fits_registers()
        accumulated = [] if self.is_direct else space.arrays
        self.rows = [b.scratch(x.array_shape.element_type.name, self.joined * self.width) for x in accumulated]
        self.copies = [b.scratch(x.array_shape.element_type.name, self.joined * self.width) for x, _ in self.repeated]
        self.outer: Sequence[Index] = ()
        self.begin: Index = 0
        self.lanes: Index = 0
        self.piece: Index = 0
        self.pieces = 1

    def kernels(self) -> list[LoweredKernel]:
        space, b = self.space, self.b
        blocks = -(-self.size // self.width)
        independent = math.prod(a.size for a in self.kept) * blocks
        long = self.over[0].size if self.over else 1
        each = math.prod(a.size for a in self.over[1:]) * self.width * space.work
        if independent < FEW_BLOCKS and space.divisible and not self.is_direct:
            self.pieces = max(1, min(PIECES, long * each // (PARALLEL_CHUNK_ELEMENTS * COSTLY_WORK)))
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, self.piece = b.delinearize(index, self.pieces)
            self.begin = b.mul(b.remainder(row, blocks), self.width)
            self.outer = self.low.split_index(b.floordiv(row, blocks), [a.size for a in self.kept])
            left = self.size if blocks == 1 else b.sub(self.size, self.begin)
            here = b.min(left, self.width)
            self.lanes = here if self.joined == 1 else self.joined * self.width
            if self.is_direct:
                self._reduce_in_registers(here)
            else:
                self._start()
                self._reduce()
                self._deliver(here)
        first = make_kernel(self.low, independent * self.pieces, each * max(1, long // self.pieces), space.roots)
        return [first] if self.pieces == 1 else [first, combine(space, self.plan, self.users, self.pieces)]

    def _fits_registers(self) -> bool:
        space, rows = self.space, math.prod(a.size for a in self.over)
        is_short = space.work <= COSTLY_WORK and space.is_plain and self.joined * self.run == 1
        return is_short and len(self.over) == 1 and rows <= STREAMS and self.size >= COLUMNS

    def _reduce_in_registers(self, here: Index) -> None:
        """Each column from its first row to its last one, and what becomes of it."""
        low, b, space = self.low, self.b, self.space
        initial = space.start(low, 1)
        with low.loop(0, here) as (j, _):
            values = initial
            for row in range(self.over[0].size):
                values = space.accumulate(low, values, self._place((row,), j))
            place = space.place([*self.kept, self.columns], [*self.outer, b.add(self.begin, j)])
            result = tuple(c for d, c in enumerate(place) if d not in space.reduced)
            space.deliver(low, values, result, self.piece, self.pieces, self.users)

    def _start(self) -> None:
        """Accumulators, and what is the same in all rows, so often."""
        low, b, space = self.low, self.b, self.space
        initial = space.start(low, max(self.pieces, self.joined, self.run))
        with low.loop(0, self.lanes) as (j, _):
            for row, value in zip(self.rows, initial, strict=True):
                b.store(row, j, value)
            for (x, at), copy in zip(self.repeated, self.copies, strict=True):
                column = b.remainder(j, self.width) if self.joined > 1 else b.add(self.begin, j)
                place = space.place([*self.kept, *self.across], [*self.outer, *self._across(column)])
                b.store(copy, j, low.value(x, evaluate_access_map(at, place)))

    def _reduce(self) -> None:
        """Groups of rows, those that are left, and the columns of what is less than a joined row."""
        if not self.over:
            return self._accumulate([()], self.lanes)
        space, b = self.space, self.b
        *outer, size = (a.size for a in self.over)
        count, rest = divmod(size, self.joined)
        is_near = math.prod(space.sizes) <= NEAR or self.size < SHORT_ROW
        is_short = (space.work <= COSTLY_WORK and space.is_plain) or FEW < self.size <= LANES
        together = AT_ONCE if is_short and is_near and count >= AT_ONCE else 1
        bounds: list[tuple[Index, Index]] = [(0, size) for size in (*outer, count // together)]
        if self.pieces > 1:
            bounds[0] = tile_of(self.low, self.piece, self.pieces, count // together if not outer else outer[0])[1:]

        def group(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            *first, k = indices
            row = b.mul(k, together)
            self._accumulate([(*first, b.add(row, more)) for more in range(together)], self.lanes)
            return carried

        self.low.nest(bounds, (), group, sequential=True)
        for first, stop, lanes in (
            (count // together * together, count, self.lanes),
            (count, count + bool(rest), rest * self.width),
        ):
            if first < stop:
                self._left_over(bounds[:-1], first, stop, lanes)

    def _left_over(self, outer: Sequence[tuple[Index, Index]], first: int, stop: int, lanes: Index) -> None:
        end: Index = stop
        if not outer:  # of the last piece
            is_last = self.b.floordiv(self.b.add(self.piece, 1), self.pieces)
            end = self.b.add(first, self.b.mul(is_last, stop - first))

        def visit(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            self._accumulate([indices], lanes)
            return carried

        self.low.nest([*outer, (first, end)], (), visit, sequential=True)

    def _accumulate(self, places: Sequence[Coordinates], lanes: Index) -> None:
        """Add elements of some rows, which are joined ones."""
        low, b = self.low, self.b
        with low.loop(0, lanes) as (j, _):
            values: list[Operand] = [b.load(row, j) for row in self.rows]
            for indices in places:
                place = self._place(indices, j)
                for (x, at), copy in zip(self.repeated, self.copies, strict=True):
                    low.bind_value(x, evaluate_access_map(at, place), b.load(copy, j))
                values = self.space.accumulate(low, values, place)
            for row, value in zip(self.rows, values, strict=True):
                b.store(row, j, value)

    def _place(self, indices: Coordinates, j: Index) -> Coordinates:
        b, across = self.b, self._across(self.b.add(self.begin, j))
        if self.joined > 1:
            *first, row = indices
            flat = b.add(b.mul(row, self.joined * self.width), j)
            row, *across = self.low.split_index(flat, [a.size for a in (self.over[-1], *self.across)])
            indices = (*first, row)
        return self.space.place([*self.kept, *self.over, *self.across], [*self.outer, *indices, *across])

    def _across(self, index: Index) -> Coordinates:
        """Where in a row its element of this number is."""
        return self.low.split_index(index, [a.size for a in self.across]) if self.run > 1 else (index,)

    def _deliver(self, here: Index) -> None:
        low, b, space = self.low, self.b, self.space
        initial, reduced = space.start(low, self.pieces), [producer_of(root) for root in space.roots]
        with low.loop(0, b.floordiv(here, self.run)) as (j, _):
            column = b.add(b.floordiv(self.begin, self.run), j)
            place = space.place([*self.kept, self.columns], [*self.outer, column])
            result = tuple(c for d, c in enumerate(place) if d not in space.reduced)
            values: list[Operand] = [b.load(row, j) for row in self.rows]
            if self.joined * self.run > 1:
                values = initial
                for k in range(self.joined * self.run):
                    lane = b.add(b.mul(j, self.run), k // self.run * self.width + k % self.run)
                    values = combine_accumulators(low, reduced, values, [b.load(x, lane) for x in self.rows])
            space.deliver(low, values, result, self.piece, self.pieces, self.users)

    def _joined_rows(self) -> int:
        """How many rows of columns are taken as one."""
        space, over, width = self.space, self.over, self.size
        joined = LINE // math.gcd(width, LINE)
        joined *= max(1, LANES // (joined * width))
        most = 4 * LANES if space.is_plain or width < 2 * LINE else 0
        if joined == 1 or not space.is_interchangeable or joined * width > most:
            return 1
        if not over or over[-1] is not space.axes[-len(self.across) - 1] or over[-1].size < 4 * joined:
            return 1
        along_rows, along_columns = _dimensions(over[-1:]), _dimensions(self.across)
        for x, place, from_memory in walk_producers([*space.roots, *space.along], self.plan.materialized, views=True):
            wide = [c for c in place if c != -1]
            counts = x.op is movement.iota and not space.is_plain  # as what finds the place of the largest must
            if any(isinstance(c, frozenset) for c in wide) or (dims_of(guarded_dims(x, place)) and not counts):
                return 1
            read = {c for c in wide if isinstance(c, int)}
            if from_memory and x.array_shape.size != math.prod(space.sizes[d] for d in read):
                return 1
            is_of_row = along_rows & read and not along_columns & read  # computed once for it, not for each column
            if is_of_row and not from_memory and x.op.name in elementwise.NAMES:
                return 1
            if along_rows & read and (over[-1].last, self.columns.first) not in pairwise(wide):
                return 1
            if not along_rows & read and along_columns & read and from_memory and self._is_of_rows(read):
                return 1
        return joined

    def _repeated(self) -> list[tuple[Instruction, AccessMap]]:
        """What is read for columns, and is the same in all rows."""
        found: dict[tuple[Instruction, AccessMap], None] = {}
        for x, place, from_memory in walk_producers(
            [*self.space.roots, *self.space.along], self.plan.materialized, views=True
        ):
            read, is_whole = dims_of(place), not any(isinstance(c, frozenset) for c in place)
            if from_memory and is_whole and read & _dimensions(self.across) and not self._is_of_rows(read):
                found[x, place] = None
        return list(found)

    def _is_of_rows(self, read: Set[int]) -> bool:
        """Whether what is read with these dimensions is another for each row."""
        return bool(read & _dimensions(self.over))


def _dimensions(axes: Sequence[Axis]) -> set[int]:
    return {d for axis in axes for d in range(axis.first, axis.last + 1)}
