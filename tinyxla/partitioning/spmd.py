"""SPMD partitioning: from a program of whole arrays, and shardings, the program that each device runs on its parts.

Each instruction is applied to parts: operands are resharded to what its sharding rule asks for, partial results are
combined, and the result is brought to the sharding that propagation found for it. Collective operations in the program
of a device are over the axes of the mesh, by their names.

Source: "GSPMD: General and Scalable Parallelization for ML Computation Graphs" (Xu et al., 2021), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, collectives, elementwise, movement, reduction
from tinyxla.ops.op import Dimensions, Factors, Value, ops
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.partitioning.propagation import Leaf, factors_of, leaves_of, propagate
from tinyxla.partitioning.resharding import reshard, scaled_index
from tinyxla.shapes import Shape
from tinyxla.tracing.core import state, trace, with_axes
from tinyxla.tracing.shardings import Spec
from tinyxla.transforms.computations import run

Sizes = tuple[int, ...]
FactorAxes = dict[int, tuple[Any, ...]]


class Part(NamedTuple):
    """What a device has of an array."""

    value: Any
    spec: Spec


class Partitioned(NamedTuple):
    """The program of a device, from parts to parts, and the shardings of its results."""

    computation: Computation
    outputs: tuple[Spec, ...]


def partition(computation: Computation, mesh: Mapping[Hashable, int], inputs: Sequence[Spec]) -> Partitioned:
    """The program of a device.

    Args:
        computation: of whole arrays, without calls.
        mesh: the sizes of the axes.
        inputs: the shardings of the arguments.
    """
    partitioner = Partitioner(mesh, propagate(computation, mesh, inputs))
    found: list[Spec] = []

    def device(*parameters: Any) -> list[Any]:
        parts = partitioner.run(computation, [Part(x, spec) for x, spec in zip(parameters, inputs, strict=True)])
        found.extend(part.spec for part in parts)
        return [part.value for part in parts]

    shapes = [
        partitioner.part_shape(p.array_shape, spec) for p, spec in zip(computation.parameters, inputs, strict=True)
    ]
    made, _, _ = with_axes(mesh, lambda: trace(device, shapes, computation.name))
    return Partitioned(made, tuple(found))


class Partitioner:
    """Applies instructions to parts."""

    def __init__(self, mesh: Mapping[Hashable, int], specs: Mapping[Leaf, Spec]) -> None:
        self.mesh = mesh
        self.specs = specs

    # --- parts

    def count(self, axes: Sequence[Any]) -> int:
        """How many parts a dimension has that is split along these axes."""
        return math.prod(self.mesh[name] for name in axes)

    def part_sizes(self, sizes: Sequence[int], spec: Spec) -> Sizes:
        return tuple(n // self.count(axes) for n, axes in zip(sizes, spec, strict=True))

    def part_shape(self, shape: Shape, spec: Spec) -> Shape:
        return shape.with_dimensions(self.part_sizes(shape.dimensions, spec))

    def resharded(self, part: Part, spec: Spec) -> Value:
        """The value of an array under another sharding."""
        return part.value if part.spec == spec else reshard(part.value, part.spec, spec, self.mesh)

    def whole(self, part: Part) -> Value:
        """All of an array."""
        return self.resharded(part, ((),) * len(part.spec))

    # --- computations

    def run(self, computation: Computation, operands: Sequence[Part]) -> list[Part]:
        """The parts of the results of a computation."""
        values: dict[Instruction, list[Part]] = {
            p: [part] for p, part in zip(computation.parameters, operands, strict=True)
        }
        outer = state.source
        try:
            for x in computation.instructions:
                if x not in values:
                    state.source = x.source or outer
                    values[x] = self._instruction(x, [values[o] for o in x.operands])
        finally:
            state.source = outer
        return values[computation.root]

    def _instruction(self, x: Instruction, operands: list[list[Part]]) -> list[Part]:
        if x.op is calls.tuple_:
            return [part for parts in operands for part in parts]
        if x.op is calls.get_tuple_element:
            return [operands[0][x.attributes.index]]
        flat = [part for parts in operands for part in parts]
        found = _RULES.get(x.op.name, _by_factors)(self, x, flat)
        specs = [self.specs[leaf] for leaf in leaves_of(x)]
        return [Part(self.resharded(part, spec), spec) for part, spec in zip(found, specs, strict=True)]

    def nested(self, computation: Computation, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Computation:
        """A computation that an instruction refers to, from parts to parts."""

        def device(*parameters: Any) -> list[Any]:
            parts = self.run(computation, [Part(x, spec) for x, spec in zip(parameters, inputs, strict=True)])
            return [self.resharded(part, spec) for part, spec in zip(parts, outputs, strict=True)]

        shapes = [self.part_shape(p.array_shape, spec) for p, spec in zip(computation.parameters, inputs, strict=True)]
        is_tuple = not isinstance(computation.root.shape, Shape)
        made, _, _ = trace(device, shapes, computation.name)
        return made if is_tuple else _of_one(made)

    # --- instructions by their factors

    def factor_axes(self, factors: Factors, operands: Sequence[Part], results: Sequence[Spec]) -> FactorAxes:
        """Along which axes each factor is split: as results have it, else as operands have it, an axis once."""
        found: FactorAxes = {}
        used: set[Any] = set()
        pairs = [*zip(factors.results, results, strict=True)]
        pairs += [
            (d, part.spec) for d, part in sorted(zip(factors.operands, operands, strict=True), key=_size_of_operand)
        ]
        for dimensions, spec in pairs:
            for factor, axes in zip(dimensions, spec, strict=True):
                if factor is not None and axes and factor not in found and used.isdisjoint(axes):
                    found[factor] = axes
                    used.update(axes)
        return {
            factor: axes for factor, axes in found.items() if self._divides(factor, axes, factors, operands, results)
        }

    def _divides(self, factor: int, axes: Any, factors: Factors, operands: Sequence[Part], results: Any) -> bool:
        """Whether all dimensions of a factor have equal parts along axes."""
        for dimensions, part in zip(factors.operands, operands, strict=True):
            for d, own in enumerate(dimensions):
                if own == factor and (part.value.shape[d] * self.count(part.spec[d])) % self.count(axes):
                    return False
        return True


def _size_of_operand(pair: tuple[Dimensions, Part]) -> int:
    return -pair[1].value.size


def _spec(dimensions: Dimensions, axes: FactorAxes) -> Spec:
    return tuple(() if factor is None else axes.get(factor, ()) for factor in dimensions)


def _by_factors(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    factors = factors_of(x)
    axes = p.factor_axes(factors, operands, [p.specs[leaf] for leaf in leaves_of(x)])
    specs = [_spec(dimensions, axes) for dimensions in factors.results]
    values = [p.resharded(part, _spec(d, axes)) for part, d in zip(operands, factors.operands, strict=True)]
    sizes = [p.part_sizes(s.dimensions, spec) for s, spec in zip(leaf_shapes(x.shape), specs, strict=True)]
    attributes = factors.localize(x.attributes._asdict(), [v.shape for v in values], sizes)
    found = _applied(x, values, attributes)
    for factor, op in factors.reductions:
        for axis in axes.get(factor, ()):
            found = [combined(value, op, axis) for value in found]
    return [Part(value, spec) for value, spec in zip(found, specs, strict=True)]


def _applied(x: Instruction, values: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
    result = x.op(*values, **attributes)
    return list(result) if isinstance(result, tuple) else [result]


def combined(value: Value, op: str, axis: Hashable) -> Value:
    """Partial results of all devices along an axis, combined by a binary op."""
    return collectives.all_reduce(value, to_apply=reduction.scalar_computation(op, value.dtype), axis_name=axis)


def _of_one(computation: Computation) -> Computation:
    """The computation with its one result not in a tuple."""
    (root,) = computation.root.operands
    kept = [x for x in computation.instructions if x is not computation.root]
    return Computation(computation.name, computation.parameters, kept, root)


# --- instructions with rules of their own ----------------------------------------------------------------------------


def _reduce(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Where parts are combined, the initial value comes in once, after that."""
    op = reduction.monoid(x.attributes.to_apply)
    factors = factors_of(x)
    axes = p.factor_axes(factors, operands, [p.specs[leaf] for leaf in leaves_of(x)])
    if op is None or not any(axes.get(factor) for factor, _ in factors.reductions):
        return _by_factors(p, x, operands)
    array, initial = operands
    identity = movement.full(reduction.identity_element(op, array.value.dtype), array.value.dtype)
    (part,) = _by_factors(p, x, [array, Part(identity, ())])
    if _is_splat(x.operands[1], reduction.identity_element(op, array.value.dtype)):
        return [part]
    start = movement.broadcast(initial.value, sizes=part.value.shape, dimensions=())
    return [Part(ops[op](part.value, start), part.spec)]


def _is_splat(x: Instruction, value: Any) -> bool:
    """Whether it is a constant of this one value."""
    return (
        x.op is movement.constant
        and x.attributes.literal.value.tobytes() == np.asarray(value, x.array_shape.dtype).tobytes()
    )


def _while(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    specs = [p.specs[leaf] for leaf in leaves_of(x)]
    values = [p.resharded(part, spec) for part, spec in zip(operands, specs, strict=True)]
    attributes = x.attributes._asdict()
    attributes["condition"] = p.nested(x.attributes.condition, specs, [()])
    attributes["body"] = p.nested(x.attributes.body, specs, specs)
    return [Part(v, s) for v, s in zip(_applied(x, values, attributes), specs, strict=True)]


def _conditional(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    outputs = [p.specs[leaf] for leaf in leaves_of(x)]
    branches = x.attributes.branch_computations
    inputs = [p.specs[parameter, 0] for parameter in branches[0].parameters]
    values = [p.resharded(part, spec) for part, spec in zip(operands[1:], inputs, strict=True)]
    made = tuple(p.nested(branch, inputs, outputs) for branch in branches)
    found = _applied(x, [operands[0].value, *values], {"branch_computations": made})
    return [Part(v, s) for v, s in zip(found, outputs, strict=True)]


def _shard_map(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """The function of a device, as it is."""
    given = x.attributes
    values = [p.resharded(part, spec) for part, spec in zip(operands, given.in_specs, strict=True)]
    return [Part(v, s) for v, s in zip(run(given.to_apply, values), given.out_specs, strict=True)]


def _same(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    return operands


def _constant(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """One of equal elements is made in the size of the part; of another one a part is taken."""
    value = x.attributes.literal.value
    (spec,) = [p.specs[leaf] for leaf in leaves_of(x)]
    if not any(spec) or not value.size or value.tobytes() != value.reshape(-1)[:1].tobytes() * value.size:
        return [Part(movement.constant(literal=x.attributes.literal), ((),) * value.ndim)]
    scalar = movement.constant(literal=Literal(value.reshape(-1)[0]))
    return [Part(movement.broadcast(scalar, sizes=p.part_sizes(value.shape, spec), dimensions=()), spec)]


def _iota(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Counts from where the part begins."""
    shape, dimension = x.attributes
    (spec,) = [p.specs[leaf] for leaf in leaves_of(x)]
    value = movement.iota(shape=p.part_shape(shape, spec), iota_dimension=dimension)
    size = value.shape[dimension]
    for axis in reversed(spec[dimension]):
        start = elementwise.convert(scaled_index(axis, size), new_element_type=shape.element_type)
        value = elementwise.add(value, movement.broadcast(start, sizes=value.shape, dimensions=()))
        size *= p.mesh[axis]
    return [Part(value, spec)]


_RULES: dict[str, Callable[[Partitioner, Instruction, list[Part]], list[Part]]] = {
    "conditional": _conditional,
    "constant": _constant,
    "iota": _iota,
    "reduce": _reduce,
    "shard-map": _shard_map,
    "sharding-constraint": _same,
    "while": _while,
}
