"""Lanes: each runs its small computation to its own end, and threads share the lanes.

Where a lane is one loop without loops or branches inside, a strip of lanes runs in lock step, so that the processor's
vectors take several at once, until all of the strip have ended; what they carry stays in the cache. Loops whose length
is known take part for that alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.backends.numba import small_arrays
from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import Index, Literal, Operand
from tinyxla.backends.numba.lowering import UNBOUNDED, LoweredKernel, Users, if_
from tinyxla.backends.numba.small_arrays import TYPICAL_STEPS, Elements, Held, InMemory, insides, only, places_of
from tinyxla.compiler.fusion import Plan, results_of
from tinyxla.compiler.passes import small_lane
from tinyxla.compiler.small import Small, is_allocation
from tinyxla.hlo import Instruction
from tinyxla.ops import calls, movement
from tinyxla.shapes import TupleShape
from tinyxla.transforms.invariants import counting

STRIP = 32  # lanes in lock step
WIDE_STRIP = 128  # where all take as many steps
MOST_HELD = 256  # elements that a lane carries: those of a strip have to stay in the cache


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    nest = small_lane(x)
    loop = None if nest is None else _one_loop(nest)
    if nest is None or loop is None:
        return small_arrays.lower(x, plan, users)
    return _in_strips(x, loop, nest, plan, users)


def _one_loop(nest: Small) -> Instruction | None:
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


def _in_strips(x: Instruction, loop: Instruction, nest: Small, plan: Plan, users: Users) -> list[LoweredKernel]:
    results = {r.attributes.index: r for r in results_of(x, users)}
    low = Elements(f"small_{x.op.name}", plan, results.values(), vectors=False)
    b = low.builder
    size = x.operands[x.attributes.mapped.index(True)].array_shape.dimensions[0]
    parameters = nest.computation.parameters
    memory = [o in nest.homes for o in loop.operands]
    condition, body = insides((loop.attributes.condition, loop.attributes.body), memory)
    same = [y is p for y, p in zip(body.computation.outputs, body.computation.parameters, strict=True)]
    carried = [k for k, (s, m) in enumerate(zip(same, memory, strict=True)) if not s and not m]
    steps = loop.attributes.known_trip_count
    places = [y.attributes.index for y in nest.computation.outputs if y.op is calls.get_tuple_element]
    counters = {k: step for k, step in counting(body.computation).items() if steps is not None and k not in places}
    carried = [k for k in carried if k not in counters]
    width = STRIP if steps is None else WIDE_STRIP
    types = {k: loop.operands[k].array_shape for k in carried}
    rows = {k: [b.scratch(shape.element_type.name, width) for _ in range(shape.size)] for k, shape in types.items()}
    running = b.scratch("pred", width) if steps is None else None
    none = Literal("s32", 0)

    def held_by(lane: Index) -> dict[Instruction, Held]:
        held: dict[Instruction, Held] = {}
        for operand, parameter, several in zip(x.operands, parameters, x.attributes.mapped, strict=True):
            shape = parameter.array_shape
            if parameter in nest.homes:
                held[parameter] = InMemory(low.buffer(operand), b.index("multiply", lane, shape.size) if several else 0)
            else:
                held[parameter] = [low.value(operand, (lane, *p) if several else p) for p in places_of(shape)]
        return held

    def operands(lane: Index) -> list[Held]:
        held = held_by(lane)
        return [held[o] for o in loop.operands]

    def put(place: Index, values: Sequence[Held]) -> None:
        for k in carried:
            elements = values[k]
            assert not isinstance(elements, InMemory)
            for row, element in zip(rows[k], elements, strict=True):
                b.store(row, place, element)

    def go_on(place: Index, goes_on: Operand, some: Operand) -> Operand:
        assert running is not None
        b.store(running, place, goes_on)
        return b.compute("or", "s32", some, b.compute("convert", "s32", goes_on))

    def any_of(some: Operand) -> Operand:
        return b.compute("compare", "pred", some, none, direction="NE", compare_type="SIGNED")

    def step_by_lane(start: Index, count: Index) -> None:
        """Each lane while its condition holds."""
        assert running is not None
        with low.loop(0, count, [none]) as (j, inner):
            values = operands(b.index("add", start, j))
            put(j, values)
            (some,) = inner.carried
            some.updated = go_on(j, only(low.run(condition, values)), some.inside)
        with low.loop(0, if_(low, any_of(inner.carried[0].result), UNBOUNDED), sequential=True) as (_, outer):
            with low.loop(0, count, [none]) as (j, inner):
                values = operands(b.index("add", start, j))
                for k in carried:
                    values[k] = [b.load(row, j) for row in rows[k]]
                goes_on = b.load(running, j)
                new = low.run(body, values)
                after = [
                    low.chosen(goes_on, y, v) if k in carried else v
                    for k, (y, v) in enumerate(zip(new, values, strict=True))
                ]
                more = b.compute("and", "pred", goes_on, only(low.run(condition, after)))
                put(j, after)
                (some,) = inner.carried
                some.updated = go_on(j, more, some.inside)
            outer.again = any_of(inner.carried[0].result)

    def step_together(start: Index, count: Index, steps: int) -> None:
        """All lanes, as often as is known."""
        with low.loop(0, count) as (j, _):
            put(j, operands(b.index("add", start, j)))
        with low.loop(0, steps, sequential=True) as (t, _), low.loop(0, count) as (j, _):
            values = operands(b.index("add", start, j))
            for k in carried:
                values[k] = [b.load(row, j) for row in rows[k]]
            for k, step in counters.items():
                first = only([values[k]])
                grown = b.compute(
                    "multiply", first.type, b.compute("convert", first.type, t), Literal(first.type, step)
                )
                values[k] = [b.compute("add", first.type, first, grown)]
            put(j, low.run(body, values))

    with low.loop(b.kernel.first, b.kernel.last) as (strip, _):
        start = b.index("multiply", strip, width)
        count = b.index("minimum", b.index("subtract", size, start), width)
        if steps is None:
            step_by_lane(start, count)
        else:
            step_together(start, count, steps)
        with low.loop(0, count) as (j, _):
            lane = b.index("add", start, j)
            held = held_by(lane)
            for number, result in results.items():
                y = nest.computation.outputs[number]
                k = y.attributes.index if y.op is calls.get_tuple_element else None
                found = (
                    held[y if k is None else loop.operands[k]] if k not in carried else [b.load(r, j) for r in rows[k]]
                )
                if not isinstance(found, InMemory):
                    for place, element in zip(places_of(y.array_shape), found, strict=True):
                        low.store(result, (lane, *place), element)
    work = nest.work * (TYPICAL_STEPS if steps is None else width * steps)
    return [finished(low, -(-size // width), work, list(results.values()))]
