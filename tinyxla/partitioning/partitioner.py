"""SPMD partitioning of instructions: what each device does with its parts.

An instruction is applied to parts: operands are resharded to what its sharding rule asks for, partial results are
combined, and the result is brought to the sharding that propagation found for it. Of the ways to split the iteration
space of an instruction the one is taken for which devices send and compute least.

Source: "GSPMD: General and Scalable Parallelization for ML Computation Graphs" (Xu et al., 2021), section 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.ops.distributed import collectives
from tinyxla.ops.op import Dimensions, Factors, Value
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.partitioning import resharding
from tinyxla.partitioning.propagation import Leaf, factors_of, leaves_of
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import Spec
from tinyxla.transforms.computations import interpret, unpacked

Sizes = tuple[int, ...]
FactorAxes = dict[int, tuple[Any, ...]]


class Part(NamedTuple):
    """What a device has of an array of these sizes. The last parts of a dimension that does not divide evenly end with
    elements of any value."""

    value: Any
    spec: Spec
    sizes: Sizes


class Plan(NamedTuple):
    """How the iteration space of an instruction is split.

    Attributes:
        axes: along which axes each factor is split.
        operands, results: the shardings that this gives them.
    """

    factors: Factors
    axes: FactorAxes
    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]

    def split(self, factor: int | None) -> tuple[Any, ...]:
        """The axes of a factor."""
        return () if factor is None else self.axes.get(factor, ())


class Gather(NamedTuple):
    """An array of which an instruction needs all along axes that split it, so that devices gather it.

    Attributes:
        instruction: that of the program of whole arrays; None for what the program gives.
        shape: that of the whole array.
        axes: along which it was split.
    """

    instruction: Instruction | None
    shape: Shape
    axes: tuple[Hashable, ...]

    def __str__(self) -> str:
        what = "a result" if self.instruction is None else self.instruction.op.name
        line = self.instruction and self.instruction.source
        where = f" at {line.file}:{line.line}" if line else ""
        return f"{what}{where} gathers {self.shape} along {', '.join(map(str, self.axes))}"


Rule = Callable[["Partitioner", Instruction, list[Part]], list[Part]]


class Partitioner:
    """Applies instructions to parts.

    Args:
        mesh: the sizes of the axes.
        specs: the shardings of all arrays.
        rules: of ops of which more is known than their factors.
        devices: the mesh itself.
    """

    def __init__(
        self,
        mesh: Mapping[Hashable, int],
        specs: Mapping[Leaf, Spec],
        rules: Mapping[str, Rule] | None = None,
        devices: AbstractMesh | None = None,
    ) -> None:
        self.mesh = mesh
        self.devices = devices
        self.specs = specs
        self.rules = rules or {}
        self.gathers: list[Gather] = []
        self._resharded: dict[tuple[int, Spec, Spec], tuple[Value, Value]] = {}
        self._partitioning: Instruction | None = None

    # --- parts

    def count(self, axes: Sequence[Any]) -> int:
        """How many parts a dimension has that is split along these axes."""
        return resharding.count(axes, self.mesh)

    def part_sizes(self, sizes: Sequence[int], spec: Spec) -> Sizes:
        return tuple(resharding.part_size(n, axes, self.mesh) for n, axes in zip(sizes, spec, strict=True))

    def part_shape(self, shape: Shape, spec: Spec) -> Shape:
        return shape.with_dimensions(self.part_sizes(shape.dimensions, spec))

    def resharded(self, part: Part, spec: Spec) -> Value:
        """The value of an array under another sharding, which is made once."""
        if part.spec == spec:
            return part.value
        key = (id(part.value), part.spec, spec)
        if key not in self._resharded:
            made = resharding.reshard(part.value, part.sizes, part.spec, spec, self.mesh)
            self._resharded[key] = (part.value, made)
            lost = [name for axes in part.spec for name in axes if not any(name in others for others in spec)]
            self._note(part.value.dtype, part.sizes, lost)
        return self._resharded[key][1]

    def gathered(self, value: Value, d: int, axes: Sequence[Any], size: int) -> Value:
        """The parts of all devices along axes of a dimension of this size."""
        self._note(value.dtype, (*value.shape[:d], size, *value.shape[d + 1 :]), axes)
        return resharding.gathered(value, d, axes, self.mesh)

    def _note(self, dtype: np.dtype[Any], sizes: Sizes, axes: Sequence[Hashable]) -> None:
        if axes:
            self.gathers.append(Gather(self._partitioning, Shape(element_type(dtype), sizes), tuple(axes)))

    def whole(self, part: Part) -> Value:
        """All of an array."""
        return self.resharded(part, ((),) * len(part.spec))

    def even(self, part: Part) -> Part:
        """The array with dimensions whole that do not divide evenly."""
        spec = tuple(() if n % self.count(axes) else axes for n, axes in zip(part.sizes, part.spec, strict=True))
        return Part(self.resharded(part, spec), spec, part.sizes)

    def index(self, axes: Sequence[Any]) -> Value:
        """The number of the device along axes, as s32[]."""
        return resharding.index(axes, self.mesh)

    def inside(self, shape: Sequence[int], d: int, axes: Sequence[Any], step: int, start: int, size: int) -> Value:
        """Where the elements of a dimension that are those from `index * step + start` on of an array are inside of
        it, as far as `size`: pred of this shape."""
        sizes = tuple(shape)
        places = movement.iota(shape=Shape(element_type("s32"), sizes), iota_dimension=d)
        first = elementwise.mul(self.index(axes), movement.full(step, np.int32))
        first = elementwise.add(first, movement.full(start, np.int32))
        places = elementwise.add(places, movement.broadcast(first, sizes=sizes, dimensions=()))
        low, high = (movement.full(n, np.int32, sizes) for n in (0, size))
        return elementwise.and_(elementwise.ge(places, low), elementwise.lt(places, high))

    def filled(self, value: Value, d: int, axes: Sequence[Any], size: int, fill: Value) -> Value:
        """A part of a dimension with a scalar in place of what is past its end."""
        own = value.shape[d]
        if own * self.count(axes) == size:
            return value
        other = movement.broadcast(fill, sizes=value.shape, dimensions=())
        return elementwise.select(self.inside(value.shape, d, axes, own, 0, size), value, other)

    # --- computations

    def run(self, computation: Computation, operands: Sequence[Part]) -> list[Part]:
        """The parts of the results of a computation."""
        return interpret(computation, [[part] for part in operands], self._instruction)

    def _instruction(self, x: Instruction, operands: list[list[Part]]) -> list[Part]:
        if x.op is calls.tuple_:
            return [part for parts in operands for part in parts]
        if x.op is calls.get_tuple_element:
            return [operands[0][x.attributes.index]]
        flat = [part for parts in operands for part in parts]
        outer, self._partitioning = self._partitioning, x
        found = self.rules.get(x.op.name, by_factors)(self, x, flat)
        specs = self.wanted(x)
        results = [
            p if spec is None else Part(self.resharded(p, spec), spec, p.sizes)
            for p, spec in zip(found, specs, strict=True)
        ]
        self._partitioning = outer
        return results

    def wanted(self, x: Instruction) -> list[Spec | None]:
        """The shardings that propagation found for the results of an instruction. None is one of which it knows
        nothing: the result stays as it comes."""
        specs = [self.specs[leaf] for leaf in leaves_of(x)]
        return [spec if any(spec) or x.op.name == "sharding-constraint" else None for spec in specs]

    def nested(self, computation: Computation, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Computation:
        """A computation that an instruction refers to, from parts to parts."""
        given = [p.array_shape for p in computation.parameters]

        def device(*parameters: Any) -> list[Any]:
            parts = [Part(x, spec, s.dimensions) for x, spec, s in zip(parameters, inputs, given, strict=True)]
            found = self.run(computation, parts)
            return [self.resharded(part, spec) for part, spec in zip(found, outputs, strict=True)]

        shapes = [self.part_shape(s, spec) for s, spec in zip(given, inputs, strict=True)]
        is_tuple = not isinstance(computation.root.shape, Shape)
        made, _, _ = trace(device, shapes, computation.name)
        return made if is_tuple else unpacked(made)

    # --- plans

    def plan(self, x: Instruction, operands: Sequence[Part], factors: Factors) -> Plan:
        """The split of the iteration space of an instruction that sends and computes least: as results are wanted, or
        as one of the operands is split."""
        wanted, shapes = self.wanted(x), leaf_shapes(x.shape)
        entries = zip(factors.results, wanted, shapes, strict=True)
        results = [(dimensions, spec, s.dimensions) for dimensions, spec, s in entries if spec is not None]
        given = [(d, part.spec, part.sizes) for d, part in zip(factors.operands, operands, strict=True)]
        given.sort(key=lambda entry: -math.prod(self.part_sizes(entry[2], entry[1])))
        best, least = self._plan(factors, [*results, *given], operands, shapes), math.inf
        as_wanted = all(spec in (s, None) for s, spec in zip(best.results, wanted, strict=True))
        if as_wanted and all(part.spec == s for part, s in zip(operands, best.operands, strict=True)):
            return best
        orders = [[*results, *given], [*given, *results], *([one, *results, *given] for one in given)]
        plans = [self._plan(factors, order, operands, shapes) for order in orders]
        plans += [self._spread(plan, operands, shapes) for plan in plans[:1]]
        for plan in plans:
            cost = self._cost(plan, operands, wanted, shapes)
            if cost < least:
                best, least = plan, cost
        return best

    def _plan(self, factors: Factors, order: Sequence[Any], operands: Sequence[Part], shapes: Sequence[Shape]) -> Plan:
        """Factors are split as the first of some arrays that is split along them, each axis once."""
        axes: FactorAxes = {}
        used: set[Any] = set()
        sizes = self._factor_sizes(factors, operands, shapes)
        for dimensions, spec, _ in order:
            for factor, names in zip(dimensions, spec, strict=True):
                if factor is None or not names or factor in axes or not used.isdisjoint(names):
                    continue
                if self._fits(factor, names, factors, sizes):
                    axes[factor] = names
                    used.update(names)
        return self._planned(factors, axes, operands, shapes)

    def _planned(self, factors: Factors, axes: FactorAxes, operands: Sequence[Part], shapes: Sequence[Shape]) -> Plan:
        def spec(dimensions: Dimensions, sizes: Sizes) -> Spec:
            return tuple(
                () if f is None or (f in factors.communicating and n < self.count(axes.get(f, ()))) else axes.get(f, ())
                for f, n in zip(dimensions, sizes, strict=True)
            )

        return Plan(
            factors,
            axes,
            tuple(spec(d, part.sizes) for d, part in zip(factors.operands, operands, strict=True)),
            tuple(spec(d, s.dimensions) for d, s in zip(factors.results, shapes, strict=True)),
        )

    def _factor_sizes(
        self, factors: Factors, operands: Sequence[Part], shapes: Sequence[Shape]
    ) -> dict[int, tuple[set[int], set[int]]]:
        """The sizes that the dimensions of each factor have: in operands, and in results."""
        found: dict[int, tuple[set[int], set[int]]] = {}
        arrays = [(0, d, part.sizes) for d, part in zip(factors.operands, operands, strict=True)]
        arrays += [(1, d, s.dimensions) for d, s in zip(factors.results, shapes, strict=True)]
        for side, dimensions, sizes in arrays:
            for factor, n in zip(dimensions, sizes, strict=True):
                if factor is not None:
                    found.setdefault(factor, (set(), set()))[side].add(n)
        for factor, n in factors.sizes:
            found.setdefault(factor, (set(), set()))[0].add(n)
        return found

    def _fits(self, factor: int, axes: Any, factors: Factors, sizes: dict[int, tuple[set[int], set[int]]]) -> bool:
        """Whether a factor can be split along axes: evenly where it is the major part of dimensions."""
        count = self.count(axes)
        operands, results = sizes[factor]
        if factor in factors.communicating:
            return all(n >= count for n in results or operands)
        if factor in dict(factors.sizes) or len(operands | results) > 1:
            return all(n % count == 0 and n for n in operands | results)
        return all(n >= count for n in operands | results)

    def _spread(self, plan: Plan, operands: Sequence[Part], shapes: Sequence[Shape]) -> Plan:
        """Factors that are whole, split along axes that whole dimensions of the largest operand have: so that devices
        exchange, rather than gather, what they need all of."""
        axes = dict(plan.axes)
        sizes = self._factor_sizes(plan.factors, operands, shapes)
        used = {name for names in axes.values() for name in names}
        k = max(range(len(operands)), key=lambda k: operands[k].value.size, default=None)
        if k is None:
            return plan
        for names in operands[k].spec:
            if not names or not used.isdisjoint(names):
                continue
            for factor in plan.factors.operands[k]:
                evenly = factor is not None and all(n % self.count(names) == 0 for n in itertools.chain(*sizes[factor]))
                if factor is None or factor in axes or factor in plan.factors.communicating or not evenly:
                    continue
                if self._fits(factor, names, plan.factors, sizes):
                    axes[factor] = names
                    used.update(names)
                    break
        return self._planned(plan.factors, axes, operands, shapes)

    def _cost(
        self, plan: Plan, operands: Sequence[Part], wanted: Sequence[Spec | None], shapes: Sequence[Shape]
    ) -> float:
        """Bytes that a device sends and receives, and a byte for each point of the iteration space that it visits."""
        total = 0.0
        points: dict[Any, int] = {}
        for k, (part, spec, dimensions) in enumerate(zip(operands, plan.operands, plan.factors.operands, strict=True)):
            total += self._transfer(part.sizes, part.value.dtype.itemsize, part.spec, spec)
            for d, (factor, n) in enumerate(zip(dimensions, self.part_sizes(part.sizes, spec), strict=True)):
                points[(k, d) if factor is None else factor] = n
        for shape, spec, target, dimensions in zip(shapes, plan.results, wanted, plan.factors.results, strict=True):
            sizes = self.part_sizes(shape.dimensions, spec)
            points.update((f, n) for f, n in zip(dimensions, sizes, strict=True) if f is not None)
            bytes_ = math.prod(sizes) * shape.dtype.itemsize
            for factor, _ in plan.factors.reductions:
                for axis in plan.split(factor):
                    d = self._scatter_dimension(axis, spec, target, shape.dimensions)
                    total += bytes_ if d is not None else 2 * bytes_
                    if d is not None:
                        spec = _with_axis(spec, d, axis)
            if target is not None:
                total += self._transfer(shape.dimensions, shape.dtype.itemsize, spec, target)
        return total + math.prod(points.values())

    def _transfer(self, sizes: Sizes, itemsize: int, before: Spec, after: Spec) -> float:
        """Bytes that a device sends and receives for another sharding of an array."""
        if before == after:
            return 0.0
        own = math.prod(self.part_sizes(sizes, before)) * itemsize
        total = 0.0
        coming = {name for axes in after for name in axes}
        for axes, then in zip(before, after, strict=True):
            for k in reversed(range(len(axes))):
                if axes[: k + 1] == then[: k + 1]:
                    break
                if axes[k] not in coming:
                    own *= self.mesh[axes[k]]
                total += own
        return total

    # --- results

    def combined(self, values: Sequence[Value], x: Instruction, plan: Plan) -> list[Part]:
        """The parts of results from those of partial results: of a dimension that is wanted split along the same axis,
        devices get their part only."""
        parts: list[Part] = []
        results = zip(values, plan.results, leaf_shapes(x.shape), self.wanted(x), strict=True)
        for value, spec, shape, target in results:
            for factor, op in plan.factors.reductions:
                for axis in plan.split(factor):
                    d = self._scatter_dimension(axis, spec, target, shape.dimensions)
                    if d is None:
                        value = all_reduced(value, op, axis)
                    else:
                        value = self._reduce_scattered(value, op, axis, d)
                        spec = _with_axis(spec, d, axis)
            parts.append(Part(value, spec, shape.dimensions))
        return parts

    def _scatter_dimension(self, axis: Hashable, spec: Spec, target: Spec | None, sizes: Sizes) -> int | None:
        """The dimension of a result that is wanted split along an axis, too, evenly."""
        if target is None:
            return None
        for d, (axes, then, n) in enumerate(zip(spec, target, sizes, strict=True)):
            if then[: len(axes) + 1] == (*axes, axis) and n % self.count((*axes, axis)) == 0:
                return d
        return None

    def _reduce_scattered(self, value: Value, op: str, axis: Hashable, d: int) -> Value:
        return collectives.reduce_scatter(
            value,
            to_apply=reduction.scalar_computation(op, value.dtype),
            scatter_dimension=d,
            shard_count=self.mesh[axis],
            axis_name=axis,
        )

    def with_identities(self, value: Value, part: Part, plan: Plan, number: int) -> Value:
        """An operand with the identity of a reduction in place of what is past the end of a dimension that is
        reduced."""
        reductions = dict(plan.factors.reductions)
        for d, factor in enumerate(plan.factors.operands[number]):
            axes = plan.operands[number][d]
            if factor in reductions and axes:
                identity = constant(reduction.identity_element(reductions[factor], value.dtype), value.dtype)
                value = self.filled(value, d, axes, part.sizes[d], identity)
        return value


def _with_axis(spec: Spec, d: int, axis: Hashable) -> Spec:
    return (*spec[:d], (*spec[d], axis), *spec[d + 1 :])


def by_factors(p: Partitioner, x: Instruction, operands: list[Part], factors: Factors | None = None) -> list[Part]:
    """An instruction by its sharding rule alone."""
    factors = factors or factors_of(x)
    plan = p.plan(x, operands, factors.without(factors.communicating))
    values = [p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True)]
    values = [p.with_identities(v, part, plan, k) for k, (v, part) in enumerate(zip(values, operands, strict=True))]
    return applied(p, x, plan, values, x.attributes._asdict())


def applied(
    p: Partitioner, x: Instruction, plan: Plan, values: Sequence[Value], attributes: dict[str, Any]
) -> list[Part]:
    """The parts of the results of an instruction on parts of its operands."""
    sizes = [p.part_sizes(s.dimensions, spec) for s, spec in zip(leaf_shapes(x.shape), plan.results, strict=True)]
    local = plan.factors.localize(attributes, [v.shape for v in values], sizes)
    return p.combined(called(x, values, local), x, plan)


def called(x: Instruction, values: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
    """The arrays that an op gives for those of its operands."""
    flat: Iterator[Any] = iter(values)
    operands = [
        next(flat) if isinstance(o.shape, Shape) else calls.tuple_(*itertools.islice(flat, len(leaf_shapes(o.shape))))
        for o in x.operands
    ]
    result = x.op(*operands, **attributes)
    return list(result) if isinstance(result, tuple) else [result]


def all_reduced(value: Value, op: str, axis: Hashable) -> Value:
    """Partial results of all devices along an axis, combined by a binary op."""
    return collectives.all_reduce(value, to_apply=reduction.scalar_computation(op, value.dtype), axis_name=axis)


def constant(value: Any, dtype: Any) -> Value:
    """A scalar."""
    return movement.constant(literal=Literal(np.asarray(value).astype(dtype)))
