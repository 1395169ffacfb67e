"""Batched `while` loops (vmap) in lock step: a group of instances iterates in vectors until all of it have ended.

Applies where an instance is a single loop over small arrays without nested loops or branches. Counters of a known trip
count need no row. Threads share the groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

from tinyxla.compiler.analysis.scalarization import ScalarizedRegion, is_allocation
from tinyxla.compiler.costs import LONG_ROW, SCRATCH_BYTES, VECTOR_ELEMENTS
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Literal, Operand
from tinyxla.loopir.kernels.control_flow.lock_step import LockStepLoop
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
from tinyxla.loopir.lower.emit import LoweredKernel, Users
from tinyxla.ops import calls, movement
from tinyxla.shapes import TupleShape
from tinyxla.transforms.invariants import counting

GROUP_SIZE = VECTOR_ELEMENTS * 2  # instances in lock step; more would wait for the slowest one
KNOWN_COUNT_GROUP_SIZE = LONG_ROW  # the same, if all have the same trip count
MAX_GROUP_BYTES = SCRATCH_BYTES // 2  # that a group carries; a loop with a slow path has two sets of rows
MAX_CARRIED_ELEMENTS = MAX_GROUP_BYTES // (4 * KNOWN_COUNT_GROUP_SIZE)  # of 32 bits, that an instance carries


def lower(x: Instruction, loop: Instruction, region: ScalarizedRegion, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernel of a batch whose instances are a single loop (`single_loop`)."""
    return [_LockStepGroup(x, loop, region, plan, users).kernel()]


def single_loop(region: ScalarizedRegion) -> Instruction | None:
    """The loop that is all of an instance; None if there is more, if it has nested loops or branches, or if it updates
    memory."""
    loops = [x for x in region.order if isinstance(x.shape, TupleShape)]
    others = {movement.parameter, calls.get_tuple_element}
    if [x.op.name for x in loops] != ["while"]:
        return None
    if region.updated or any(x.op not in others for x in region.order if x not in loops):
        return None
    nested = [y for c in loops[0].computations() for y in c.instructions]
    held = sum(o.array_shape.size for o in loops[0].operands if o not in region.homes)
    is_flat = held <= MAX_CARRIED_ELEMENTS and not any(
        any(y.computations()) or is_allocation(y) for y in nested if y.op.name != "reduce"
    )
    return loops[0] if is_flat and all(o in region.computation.parameters for o in loops[0].operands) else None


class _LockStepGroup:
    """The kernel of groups of instances in lock step."""

    def __init__(self, x: Instruction, loop: Instruction, region: ScalarizedRegion, plan: Plan, users: Users) -> None:
        self.x, self.loop, self.region = x, loop, region
        self.results = {r.attributes.index: r for r in results_of(x, users)}
        self.low = ScalarizedLowering(f"small_{x.op.name}", plan, self.results.values(), allows_vectors=False)
        self.instances = x.operands[x.attributes.mapped.index(True)].array_shape.dimensions[0]
        self.steps: int | None = loop.attributes.known_trip_count
        in_memory = [o in region.homes for o in loop.operands]
        self.condition, self.body = regions((loop.attributes.condition, loop.attributes.body), in_memory)
        nested = self.body.computation
        read = [y.attributes.index for y in region.computation.outputs if y.op is calls.get_tuple_element]
        counters = counting(nested).items() if self.steps is not None else ()
        self.counters = {k: step for k, step in counters if k not in read}
        self.carried = {  # positions of the values that are carried in rows, and their number of elements
            k: p.array_shape.size
            for k, (y, p) in enumerate(zip(nested.outputs, nested.parameters, strict=True))
            if y is not p and not in_memory[k] and k not in self.counters
        }
        arrays = [nested.parameters[k].array_shape for k in self.carried]
        types = [x.element_type.name for x in arrays for _ in range(x.size)]
        width = GROUP_SIZE if self.steps is None else KNOWN_COUNT_GROUP_SIZE
        self.width = min(width, MAX_GROUP_BYTES // max(1, sum(x.size * x.dtype.itemsize for x in arrays)))
        self.group = LockStepLoop(self.low, types, self.width)

    def kernel(self) -> LoweredKernel:
        """The kernel over groups of instances."""
        low, width, group = self.low, self.width, self.group
        b = low.builder
        with low.loop(b.kernel.first, b.kernel.last) as (tile, _):
            start, count = b.tile_start_and_size(tile, width, self.instances)

            def initial(j: Index) -> list[Operand]:
                operands = self._operands_of(b.add(start, j))
                return self._scalars([operands[o] for o in self.loop.operands])

            def step(j: Index, carried: Sequence[Operand], t: Index = 0) -> list[Operand]:
                values = self._values(self._operands_of(b.add(start, j)), carried)
                for k, increment in self.counters.items():
                    values[k] = [self._counter(single_scalar([values[k]]), increment, t)]
                return self._scalars(low.run(self.body, values))

            def condition(j: Index, carried: Sequence[Operand]) -> Operand:
                return single_scalar(low.run(self.condition, self._values(self._operands_of(b.add(start, j)), carried)))

            if self.steps is None:
                group.iterate_while(count, initial, step, condition)
            else:
                group.iterate(count, self.steps, initial, lambda t, j: step(j, group.load(j), t))
            with low.loop(0, count) as (j, _):
                self._store_results(b.add(start, j), group.load(j))
        work = self.region.work * (ASSUMED_STEPS if self.steps is None else width * self.steps)
        return make_kernel(low, -(-self.instances // width), work, list(self.results.values()))

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

    def _values(self, operands: dict[Instruction, Promoted], carried: Sequence[Operand]) -> list[Promoted]:
        """Current values of what the loop of an instance carries: those in rows, and operands."""
        values, scalars = [operands[o] for o in self.loop.operands], iter(carried)
        for k, size in self.carried.items():
            values[k] = [*itertools.islice(scalars, size)]
        return values

    def _scalars(self, values: Sequence[Promoted]) -> list[Operand]:
        """The elements of the values that are carried in rows."""
        return [element for k in self.carried for element in cast("list[Operand]", values[k])]

    def _counter(self, first: Operand, increment: int, t: Index) -> Operand:
        """A counter in iteration t, which needs no row."""
        b, type = self.low.builder, first.type
        return b.compute("add", type, first, b.compute("multiply", type, b.convert(type, t), Literal(type, increment)))

    def _store_results(self, instance: Index, carried: Sequence[Operand]) -> None:
        """Store the results of an instance that has ended."""
        operands = self._operands_of(instance)
        values = self._values(operands, carried)
        for position, result in self.results.items():
            y = self.region.computation.outputs[position]
            value = values[y.attributes.index] if y.op is calls.get_tuple_element else operands[y]
            if not isinstance(value, InMemory):
                for at, element in zip(indices_of(y.array_shape), value, strict=True):
                    self.low.store(result, (instance, *at), element)
