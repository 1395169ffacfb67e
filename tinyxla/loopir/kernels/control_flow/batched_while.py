"""Batched `while` loops (vmap): instances in lock step with masks (SIMT), or each by itself.

If an instance is a single loop without nested loops or branches, a group of instances runs in lock step in vectors
until all of the group have ended; what they carry stays in the cache. Loops of known trip count are batched for that
alone. Other instances are scalarized regions, which run to their own ends. Threads share groups or instances.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.compiler.analysis.scalarization import ScalarizedRegion, is_allocation
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Literal, LoopCarried, Operand
from tinyxla.loopir.kernels.control_flow import scalarized
from tinyxla.loopir.kernels.control_flow.scalarized import (
    ASSUMED_STEPS,
    InMemory,
    Promoted,
    ScalarizedLowering,
    indices_of,
    regions,
    single_scalar,
)
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import UNBOUNDED, LoweredKernel, Users
from tinyxla.ops import calls, movement
from tinyxla.shapes import TupleShape
from tinyxla.transforms.invariants import counting

GROUP_SIZE = 32  # instances in lock step
KNOWN_COUNT_GROUP_SIZE = 128  # the same, if all have the same trip count
MAX_CARRIED_ELEMENTS = 256  # elements that an instance carries, so that a group stays in the cache


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a batched region: instances in lock step if it is a single loop, or else each by itself."""
    region = scalarized.region_of(x)
    loop = None if region is None else _single_loop(region)
    if region is None or loop is None:
        return scalarized.lower(x, plan, users)
    return _LockStepGroup(x, loop, region, plan, users).kernels()


def _single_loop(region: ScalarizedRegion) -> Instruction | None:
    """The loop that is all of an instance; None if there is more, if it has nested loops or branches, or if it updates
    memory."""
    loops = [x for x in region.order if isinstance(x.shape, TupleShape)]
    others = {movement.parameter, calls.get_tuple_element}
    if len(loops) != 1 or region.updated or any(x.op not in others for x in region.order if x not in loops):
        return None
    nested = [y for c in loops[0].computations() for y in c.instructions]
    held = sum(o.array_shape.size for o in loops[0].operands if o not in region.homes)
    is_flat = held <= MAX_CARRIED_ELEMENTS and not any(
        any(y.computations()) or is_allocation(y) for y in nested if y.op.name != "reduce"
    )
    return loops[0] if is_flat and all(o in region.computation.parameters for o in loops[0].operands) else None


class _LockStepGroup:
    """A group of instances in lock step; `rows` holds what they carry, with one element for each instance."""

    def __init__(self, x: Instruction, loop: Instruction, region: ScalarizedRegion, plan: Plan, users: Users) -> None:
        self.x, self.loop, self.region = x, loop, region
        self.results = {r.attributes.index: r for r in results_of(x, users)}
        self.low = ScalarizedLowering(f"small_{x.op.name}", plan, self.results.values(), allows_vectors=False)
        self.instances = x.operands[x.attributes.mapped.index(True)].array_shape.dimensions[0]
        self.steps: int | None = loop.attributes.known_trip_count
        self.width = GROUP_SIZE if self.steps is None else KNOWN_COUNT_GROUP_SIZE
        in_memory = [o in region.homes for o in loop.operands]
        self.condition, self.body = regions((loop.attributes.condition, loop.attributes.body), in_memory)
        nested = self.body.computation
        read = [y.attributes.index for y in region.computation.outputs if y.op is calls.get_tuple_element]
        counters = counting(nested).items() if self.steps is not None else ()
        self.counters = {k: step for k, step in counters if k not in read}
        self.rows: dict[int, list[Buffer]] = {}
        for k, (y, p) in enumerate(zip(nested.outputs, nested.parameters, strict=True)):
            if y is not p and not in_memory[k] and k not in self.counters:
                type, size = p.array_shape.element_type.name, p.array_shape.size
                self.rows[k] = [self.low.builder.scratch(type, self.width) for _ in range(size)]

    def kernels(self) -> list[LoweredKernel]:
        """The kernel over groups of instances."""
        low, width = self.low, self.width
        b = low.builder
        with low.loop(b.kernel.first, b.kernel.last) as (group, _):
            start, count = b.tile_start_and_size(group, width, self.instances)
            if self.steps is None:
                self._run_masked(start, count)
            else:
                self._run_known_count(start, count, self.steps)
            with low.loop(0, count) as (j, _):
                self._store_results(b.add(start, j), j)
        work = self.region.work * (ASSUMED_STEPS if self.steps is None else width * self.steps)
        return [make_kernel(low, -(-self.instances // width), work, list(self.results.values()))]

    def _operands_of(self, instance: Index) -> dict[Instruction, Promoted]:
        """The operands of an instance."""
        low, held = self.low, dict[Instruction, Promoted]()
        operands = zip(self.x.operands, self.region.computation.parameters, self.x.attributes.mapped, strict=True)
        for operand, parameter, is_mapped in operands:
            shape = parameter.array_shape
            if parameter in self.region.homes:
                first = low.builder.mul(instance, shape.size) if is_mapped else 0
                held[parameter] = InMemory(low.buffer(operand), first)
            else:
                held[parameter] = [low.value(operand, (instance, *p) if is_mapped else p) for p in indices_of(shape)]
        return held

    def _initial_values(self, instance: Index) -> list[Promoted]:
        """Initial values of what the loop of an instance carries."""
        held = self._operands_of(instance)
        return [held[o] for o in self.loop.operands]

    def _carried_values(self, instance: Index, slot: Index) -> list[Promoted]:
        """Current values of what the loop carries."""
        values = self._initial_values(instance)
        for k in self.rows:
            values[k] = self._row(k, slot)
        return values

    def _row(self, k: int, slot: Index) -> Promoted:
        return [self.low.builder.load(row, slot) for row in self.rows[k]]

    def _store_row(self, slot: Index, values: Sequence[Promoted]) -> None:
        """Store the carried values of one instance."""
        for k, rows in self.rows.items():
            elements = values[k]
            assert not isinstance(elements, InMemory)
            for row, element in zip(rows, elements, strict=True):
                self.low.builder.store(row, slot, element)

    def _run_masked(self, start: Index, count: Index) -> None:
        """Iterate while any instance's condition holds; instances that have ended keep their values."""
        low = self.low
        b = low.builder
        running, zero_s32 = b.scratch("pred", self.width), Literal("s32", 0)

        def record(slot: Index, values: Sequence[Promoted], is_running: Operand, any_running: LoopCarried) -> None:
            self._store_row(slot, values)
            b.store(running, slot, is_running)
            any_running.next = b.or_(any_running.arg, b.convert("s32", is_running))

        def any_of(any_running: LoopCarried) -> Operand:
            return b.compare("NE", any_running.result, zero_s32)

        with low.loop(0, count, [zero_s32]) as (j, inner):
            values = self._initial_values(b.add(start, j))
            record(j, values, single_scalar(low.run(self.condition, values)), inner.carried[0])
        with low.loop(0, b.select(any_of(inner.carried[0]), UNBOUNDED), sequential=True) as (_, outer):
            with low.loop(0, count, [zero_s32]) as (j, inner):
                values = self._carried_values(b.add(start, j), j)
                is_running = b.load(running, j)
                new = low.run(self.body, values)
                for k in self.rows:
                    values[k] = low.select_elements(is_running, new[k], values[k])
                is_running_next = b.and_(is_running, single_scalar(low.run(self.condition, values)))
                record(j, values, is_running_next, inner.carried[0])
            outer.continue_while = any_of(inner.carried[0])

    def _run_known_count(self, start: Index, count: Index, steps: int) -> None:
        """Iterate all instances for a known trip count."""
        low = self.low
        b = low.builder
        with low.loop(0, count) as (j, _):
            self._store_row(j, self._initial_values(b.add(start, j)))
        with low.loop(0, steps, sequential=True) as (t, _), low.loop(0, count) as (j, _):
            values = self._carried_values(b.add(start, j), j)
            for k, step in self.counters.items():
                first = single_scalar([values[k]])
                step_number = b.convert(first.type, t)
                increment = b.compute("multiply", first.type, step_number, Literal(first.type, step))
                values[k] = [b.compute("add", first.type, first, increment)]
            self._store_row(j, low.run(self.body, values))

    def _store_results(self, instance: Index, slot: Index) -> None:
        """Store the results of an instance that has ended."""
        held = self._operands_of(instance)
        for step_number, result in self.results.items():
            y = self.region.computation.outputs[step_number]
            k = y.attributes.index if y.op is calls.get_tuple_element else -1
            values = self._row(k, slot) if k in self.rows else held[y if k < 0 else self.loop.operands[k]]
            if not isinstance(values, InMemory):
                for at, element in zip(indices_of(y.array_shape), values, strict=True):
                    self.low.store(result, (instance, *at), element)
