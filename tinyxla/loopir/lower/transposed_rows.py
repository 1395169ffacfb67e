"""Many short rows, side by side.

A row of ten elements does not fill a vector, and lies across where vectors hold elements of several rows. So strips of
rows are copied such that these lie along memory: one loop over a row's elements, and in it one over the rows of the
strip. What has an element for each of a row's is then copied back; what a row has once is computed once, between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

from tinyxla.compiler.analysis.access_maps import CONSTANT, normalize
from tinyxla.compiler.fusion.plan import Fusion, iteration_space, producer_of, results_of, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Operand
from tinyxla.loopir.ir.operations import max_element_bytes
from tinyxla.loopir.lower import reductions, register_transpose
from tinyxla.loopir.lower.axes import COSTLY_WORK, Axis, expand_indices, make_kernel, ops_per_element
from tinyxla.loopir.lower.emit import LANES, Coordinates, LoweredKernel, Lowering, Users
from tinyxla.ops import elementwise, reduction

Phase = Sequence[Instruction]  # the roots of one loop over a row

AT_ONCE = (5, 4, 3, 4)  # elements of a row for which what is carried is loaded and stored once, if they are little work
NARROW = 4  # bytes: of narrower elements, the vectors that LLVM takes together by itself are more than a strip
SQUARE = 4  # elements of a row that squares can turn


def computed_in(x: Instruction, phase: Phase, stored: set[Instruction]) -> bool:
    """Whether a phase computes each element of x just once."""
    if x.array_shape.dimensions != iteration_space(phase[0]):
        return False
    return any(
        y is x and all(c in (-1, d) for d, c in enumerate(place)) for y, place, _ in walk_producers(phase, stored)
    )


def suits(fusion: Fusion, axes: Sequence[Axis], stored: set[Instruction]) -> bool:
    """Whether what rows read are rows, or lies along the last axis."""
    lanes = range(axes[-1].first, axes[-1].last + 1)
    sizes = {iteration_space(root) for root in fusion.roots if len(iteration_space(root)) > len(fusion.outer)}
    for x, place, from_memory in walk_producers(fusion.roots, stored):
        wide = [c for c in place if c not in (CONSTANT, frozenset())]
        across = any(not isinstance(c, int) or c in lanes for c in wide) and wide[-1] != axes[-1].last
        if from_memory and across and x.array_shape.dimensions not in sizes:
            return False
    return True


class Strips:
    """Emits the kernel of rows of the dimensions `outer`, along the last one of whose axes strips are cut."""

    def __init__(
        self, low: Lowering, outer: tuple[int, ...], axes: Sequence[Axis], kept: set[Instruction], users: Users
    ) -> None:
        self.low, self.b, self.outer, self.axes, self.kept, self.users = low, low.builder, outer, axes, kept, users
        self.count, self.rest = divmod(axes[-1].size, LANES)
        self.others: Sequence[Index] = ()
        self.begin: Index = 0
        self.rows: Index = 0
        self.lane: Index = 0
        self.most = LANES + self.rest  # rows of a strip: the last one has what is left, too

    def lowered(self, phases: Sequence[Phase], longest: int) -> LoweredKernel:
        low, b = self.low, self.b
        counts = [*(a.size for a in self.axes[:-1]), self.count]
        roots = [root for phase in phases for root in phase]
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            *self.others, strip = low.split_index(index, counts)
            self.begin = b.mul(strip, LANES)
            is_last = b.floordiv(strip, self.count - 1) if self.count > 1 else 1
            self.rows = b.add(LANES, b.mul(is_last, self.rest))
            done: list[tuple[Instruction, Buffer]] = []
            for phase in phases:
                done = self._phase(phase, done)
            self._between(done)
        return make_kernel(low, math.prod(counts), ops_per_element(roots, low.materialized) * longest * LANES, roots)

    def _phase(self, phase: Phase, done: Sequence[tuple[Instruction, Buffer]]) -> list[tuple[Instruction, Buffer]]:
        """One loop over all rows of a strip, after one with reductions; gives its own."""
        low, b, sizes = self.low, self.b, iteration_space(phase[0])
        reduced = [producer_of(root) for root in phase if producer_of(root).op is reduction.reduce]
        plain = [root for root in phase if producer_of(root).op is not reduction.reduce]
        whole = normalize(range(len(sizes)), sizes)
        for x, place, _ in walk_producers(phase, low.materialized):
            if low.in_memory(x) and place == whole and self._is_turned(x, sizes) and not low.has_memory(x):
                self._turn(x, self._new_tile(x), back=False)
        made = {
            x: self._new_tile(x) for x in self.kept if not low.has_memory(x) and computed_in(x, phase, low.materialized)
        }
        tiles = {x: self._new_tile(x) for x in plain if self._is_turned(x, sizes)}
        initial = [value for x in reduced for value in low.initial(x)]
        sums = [b.scratch(value.type, self.most) for value in initial]
        self._between(done, zip(sums, initial, strict=True), self._once(phase))

        def body(places: Sequence[Coordinates]) -> None:
            with low.loop(0, self.rows) as (self.lane, loop):
                row = self._row(self.lane)
                values: list[Operand] = [b.load(row, self.lane) for row in sums]
                for indices in places:
                    place = (*row, *indices)
                    for x, tile in made.items():
                        b.store(*self._in_tile(tile, x, place), low.value(x, place))
                    values = reductions.update_each(low.accumulate, reduced, values, place)
                    for x in plain:
                        if x in tiles:
                            value = low.compute(x, place)
                            low.bind_value(x, place, value)
                            b.store(*self._in_tile(tiles[x], x, place), value)
                        else:
                            low.emit_root(x, place)
                for row, value in zip(sums, values, strict=True):
                    b.store(row, self.lane, value)
                loop.has_remainder = max_element_bytes(loop) < NARROW

        together = AT_ONCE if reduced and ops_per_element(phase, low.materialized) <= COSTLY_WORK else [1]
        low.nest_unrolled([(0, size) for size in sizes[len(self.outer) :]], together, body)
        for x, tile in (made | tiles).items():
            self._keep(x, tile)
        for x, tile in tiles.items():
            if x in low.live_out:
                self._turn(x, tile, back=True)
        low.mark_materialized(plain)
        found: list[tuple[Instruction, Buffer]] = []
        for x in reduced:
            mine, sums = sums[: len(x.operands) // 2], sums[len(x.operands) // 2 :]
            found += [(r, mine[r.attributes.index if r is not x else 0]) for r in results_of(x, self.users)]
        return found

    # --- what a row has once

    def _once(self, phase: Phase) -> list[Instruction]:
        """What is computed for a row, and read for each of its elements."""
        rows, computed, spread_out = (
            normalize(range(len(self.outer)), self.outer),
            list[Instruction](),
            set[Instruction](),
        )
        for x, place, from_memory in walk_producers(phase, self.low.materialized):
            if x.op.name not in elementwise.NAMES:
                spread_out.update(x.operands)
            elif place == rows and not from_memory and not self.low.has_memory(x):
                computed.append(x)
        return [x for x in computed if x in spread_out]

    def _between(
        self,
        done: Sequence[tuple[Instruction, Buffer]],
        initial: Iterable[tuple[Buffer, Operand]] = (),
        once: Sequence[Instruction] = (),
    ) -> None:
        """What has been reduced goes where it belongs; what follows begins."""
        low, b = self.low, self.b
        rows = [b.scratch(x.array_shape.element_type.name, self.most) for x in once]
        for x, row in done:
            self._keep_once(x, row)
        stores = [*initial]
        if not (stores or once or any(x in low.live_out for x, _ in done)):
            return
        with low.loop(0, self.rows) as (self.lane, _):
            place = self._row(self.lane)
            for x, row in done:
                low.store(x, place, b.load(row, self.lane))
            for x, row in zip(once, rows, strict=True):
                b.store(row, self.lane, low.value(x, place))
            for row, value in stores:
                b.store(row, self.lane, value)
        for x, row in zip(once, rows, strict=True):
            self._keep_once(x, row)

    def _keep_once(self, x: Instruction, row: Buffer) -> None:
        self.low.bind_memory(x, lambda _: (row, self.lane))

    def _row(self, lane: Index) -> Coordinates:
        return expand_indices(self.axes, [*self.others, self.b.add(self.begin, lane)], len(self.outer))

    # --- what has an element for each of a row's

    def _is_turned(self, x: Instruction, sizes: tuple[int, ...]) -> bool:
        along = sizes[len(self.outer) :]
        return x.array_shape.dimensions == sizes and math.prod(along) >= SQUARE

    def _new_tile(self, x: Instruction) -> Buffer:
        size = math.prod(x.array_shape.dimensions[len(self.outer) :])
        return self.b.scratch(x.array_shape.element_type.name, size * self.most)

    def _keep(self, x: Instruction, tile: Buffer) -> None:
        """Elements of the rows of this strip are in a tile."""
        rank = len(self.outer)
        self.low.bind_memory(
            x, lambda place: self._in_tile(tile, x, place) if place[:rank] == self._row(self.lane) else None
        )

    def _in_tile(self, tile: Buffer, x: Instruction, place: Coordinates) -> tuple[Buffer, Index]:
        rank = len(self.outer)
        return self._turned(tile, self.low.linearize(x.array_shape.dimensions[rank:], place[rank:]), self.lane)

    def _turned(self, tile: Buffer, k: Index, lane: Index) -> tuple[Buffer, Index]:
        return tile, self.b.add(self.b.mul(k, self.most), lane)

    def _turn(self, x: Instruction, tile: Buffer, back: bool) -> None:
        low, zeros = self.low, [0] * (x.array_shape.rank - len(self.outer) - 1)

        def memory(k: Index, lane: Index) -> tuple[Buffer, Index]:
            return low.buffer(x, back), low.linearize(x.array_shape.dimensions, (*self._row(lane), *zeros, k))

        size, turned = math.prod(x.array_shape.dimensions[len(self.outer) :]), partial(self._turned, tile)
        if back:
            source, target = (partial(_flipped, at) for at in (turned, memory))
            register_transpose.turn(low, source, target, (self.rows, size), min(size, LANES), source)
        else:
            register_transpose.turn(low, memory, turned, (size, self.rows), min(size, LANES), memory)
            self._keep(x, tile)


def _flipped(at: register_transpose.Address, j: Index, i: Index) -> tuple[Buffer, Index]:
    return at(i, j)
