"""Lanes: each runs its small computation to its own end, and threads share the lanes.

Where a lane is one loop without loops or branches inside, a strip of lanes runs in lock step, so that the processor's
vectors take several at once, until all of the strip have ended; what they carry stays in the cache. Loops whose length
is known take part for that alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.compiler.analysis.scalarization import ScalarizedRegion, is_allocation
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Literal, LoopCarried, Operand
from tinyxla.loopir.kernels.control_flow import scalarized
from tinyxla.loopir.kernels.control_flow.scalarized import (
    TYPICAL_STEPS,
    Elements,
    Held,
    InMemory,
    insides,
    only,
    places_of,
)
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import UNBOUNDED, LoweredKernel, Users
from tinyxla.ops import calls, movement
from tinyxla.shapes import TupleShape
from tinyxla.transforms.invariants import counting

STRIP = 32  # lanes in lock step
WIDE_STRIP = 128  # where all take as many steps
MOST_HELD = 256  # elements that a lane carries: those of a strip have to stay in the cache


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    nest = scalarized.nest_of(x)
    loop = None if nest is None else _one_loop(nest)
    if nest is None or loop is None:
        return scalarized.lower(x, plan, users)
    return _Strips(x, loop, nest, plan, users).lowered()


def _one_loop(nest: ScalarizedRegion) -> Instruction | None:
    """The loop that is all of a lane, if nothing inside it is a loop or branches and it leaves memory alone."""
    loops = [x for x in nest.order if isinstance(x.shape, TupleShape)]
    others = {movement.parameter, calls.get_tuple_element}
    if len(loops) != 1 or nest.updated or any(x.op not in others for x in nest.order if x not in loops):
        return None
    inside = [y for c in loops[0].computations() for y in c.instructions]
    held = sum(o.array_shape.size for o in loops[0].operands if o not in nest.homes)
    straight = held <= MOST_HELD and not any(
        any(y.computations()) or is_allocation(y) for y in inside if y.op.name != "reduce"
    )
    return loops[0] if straight and all(o in nest.computation.parameters for o in loops[0].operands) else None


class _Strips:
    """A strip of lanes in lock step: what they carry is in `rows`, with an element of each for every lane."""

    def __init__(self, x: Instruction, loop: Instruction, nest: ScalarizedRegion, plan: Plan, users: Users) -> None:
        self.x, self.loop, self.nest = x, loop, nest
        self.results = {r.attributes.index: r for r in results_of(x, users)}
        self.low = Elements(f"small_{x.op.name}", plan, self.results.values(), vectors=False)
        self.lanes = x.operands[x.attributes.mapped.index(True)].array_shape.dimensions[0]
        self.steps: int | None = loop.attributes.known_trip_count
        self.width = STRIP if self.steps is None else WIDE_STRIP
        memory = [o in nest.homes for o in loop.operands]
        self.condition, self.body = insides((loop.attributes.condition, loop.attributes.body), memory)
        inside = self.body.computation
        taken = [y.attributes.index for y in nest.computation.outputs if y.op is calls.get_tuple_element]
        counters = counting(inside).items() if self.steps is not None else ()
        self.counters = {k: step for k, step in counters if k not in taken}
        self.rows: dict[int, list[Buffer]] = {}
        for k, (y, p) in enumerate(zip(inside.outputs, inside.parameters, strict=True)):
            if y is not p and not memory[k] and k not in self.counters:
                kind, size = p.array_shape.element_type.name, p.array_shape.size
                self.rows[k] = [self.low.builder.scratch(kind, self.width) for _ in range(size)]

    def lowered(self) -> list[LoweredKernel]:
        low, width = self.low, self.width
        b = low.builder
        with low.loop(b.kernel.first, b.kernel.last) as (strip, _):
            start, count = b.tile_start_and_size(strip, width, self.lanes)
            if self.steps is None:
                self._step_by_lane(start, count)
            else:
                self._step_together(start, count, self.steps)
            with low.loop(0, count) as (j, _):
                self._store(b.add(start, j), j)
        work = self.nest.work * (TYPICAL_STEPS if self.steps is None else width * self.steps)
        return [make_kernel(low, -(-self.lanes // width), work, list(self.results.values()))]

    def _held(self, lane: Index) -> dict[Instruction, Held]:
        """The operands of a lane."""
        low, held = self.low, dict[Instruction, Held]()
        operands = zip(self.x.operands, self.nest.computation.parameters, self.x.attributes.mapped, strict=True)
        for operand, parameter, several in operands:
            shape = parameter.array_shape
            if parameter in self.nest.homes:
                first = low.builder.mul(lane, shape.size) if several else 0
                held[parameter] = InMemory(low.buffer(operand), first)
            else:
                held[parameter] = [low.value(operand, (lane, *p) if several else p) for p in places_of(shape)]
        return held

    def _first(self, lane: Index) -> list[Held]:
        """What the loop of a lane begins with."""
        held = self._held(lane)
        return [held[o] for o in self.loop.operands]

    def _carried(self, lane: Index, place: Index) -> list[Held]:
        """The same with what the loop carries."""
        values = self._first(lane)
        for k in self.rows:
            values[k] = self._row(k, place)
        return values

    def _row(self, k: int, place: Index) -> Held:
        return [self.low.builder.load(row, place) for row in self.rows[k]]

    def _put(self, place: Index, values: Sequence[Held]) -> None:
        for k, rows in self.rows.items():
            elements = values[k]
            assert not isinstance(elements, InMemory)
            for row, element in zip(rows, elements, strict=True):
                self.low.builder.store(row, place, element)

    def _step_by_lane(self, start: Index, count: Index) -> None:
        """Each lane while its condition holds."""
        low = self.low
        b = low.builder
        running, none = b.scratch("pred", self.width), Literal("s32", 0)

        def go_on(place: Index, values: Sequence[Held], goes_on: Operand, some: LoopCarried) -> None:
            self._put(place, values)
            b.store(running, place, goes_on)
            some.next = b.or_(some.arg, b.convert("s32", goes_on))

        def any_of(some: LoopCarried) -> Operand:
            return b.compare("NE", some.result, none)

        with low.loop(0, count, [none]) as (j, inner):
            values = self._first(b.add(start, j))
            go_on(j, values, only(low.run(self.condition, values)), inner.carried[0])
        with low.loop(0, b.select(any_of(inner.carried[0]), UNBOUNDED), sequential=True) as (_, outer):
            with low.loop(0, count, [none]) as (j, inner):
                values = self._carried(b.add(start, j), j)
                goes_on = b.load(running, j)
                new = low.run(self.body, values)
                for k in self.rows:
                    values[k] = low.chosen(goes_on, new[k], values[k])
                more = b.and_(goes_on, only(low.run(self.condition, values)))
                go_on(j, values, more, inner.carried[0])
            outer.continue_while = any_of(inner.carried[0])

    def _step_together(self, start: Index, count: Index, steps: int) -> None:
        """All lanes, as often as is known."""
        low = self.low
        b = low.builder
        with low.loop(0, count) as (j, _):
            self._put(j, self._first(b.add(start, j)))
        with low.loop(0, steps, sequential=True) as (t, _), low.loop(0, count) as (j, _):
            values = self._carried(b.add(start, j), j)
            for k, step in self.counters.items():
                first = only([values[k]])
                number = b.convert(first.type, t)
                grown = b.compute("multiply", first.type, number, Literal(first.type, step))
                values[k] = [b.compute("add", first.type, first, grown)]
            self._put(j, low.run(self.body, values))

    def _store(self, lane: Index, place: Index) -> None:
        """The results of a lane that has ended."""
        held = self._held(lane)
        for number, result in self.results.items():
            y = self.nest.computation.outputs[number]
            k = y.attributes.index if y.op is calls.get_tuple_element else -1
            found = self._row(k, place) if k in self.rows else held[y if k < 0 else self.loop.operands[k]]
            if not isinstance(found, InMemory):
                for at, element in zip(places_of(y.array_shape), found, strict=True):
                    self.low.store(result, (lane, *at), element)
