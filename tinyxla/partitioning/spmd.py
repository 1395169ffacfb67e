"""SPMD partitioning: from a program of whole arrays, and shardings, the program that each device runs on its parts.

Collective operations in the program of a device are over the axes of the mesh, by their names. Instructions of several
operations without a sharding rule are written out before. What has no rule then is computed whole by each device, of
operands that are gathered; a partitioned program says so in its `gathers`.

Source: "GSPMD: General and Scalable Parallelization for ML Computation Graphs" (Xu et al., 2021), section 4.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.compiler.passes.expand import expand_if
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.distributed import collectives
from tinyxla.ops.op import ops
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.partitioning import fourier, indexing, windows
from tinyxla.partitioning.partitioner import Gather, Part, Partitioner, Rule, by_factors, called, constant
from tinyxla.partitioning.propagation import PartsOfParts, factors_of, joined_specs, leaves_of, propagate
from tinyxla.partitioning.resharding import scaled_index
from tinyxla.partitioning.sources import with_own_sources
from tinyxla.tracing.core import trace, with_axes
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import Spec
from tinyxla.transforms.computations import run


class Partitioned(NamedTuple):
    """The program of a device, from parts to parts, the shardings of its results, and which arrays it gathers."""

    computation: Computation
    outputs: tuple[Spec, ...]
    gathers: tuple[Gather, ...]


def partition(
    computation: Computation,
    mesh: Mapping[Hashable, int],
    inputs: Sequence[Spec],
    devices: AbstractMesh | None = None,
) -> Partitioned:
    """The program of a device.

    Args:
        computation: of whole arrays, without calls but for those with a partitioning of their own.
        mesh: the sizes of the axes.
        inputs: the shardings of the arguments.
        devices: the mesh itself, which calls with a partitioning of their own get; by default one without devices.
    """
    computation = with_own_sources(expand_if(computation, _is_written_out))
    devices = devices or AbstractMesh(tuple(mesh.values()), tuple(mesh))
    partitioner = Partitioner(mesh, propagate(computation, mesh, inputs, devices), RULES, devices)
    shapes = [p.array_shape for p in computation.parameters]
    found: list[Spec] = []

    def device(*parameters: Any) -> list[Any]:
        given = [Part(x, spec, s.dimensions) for x, spec, s in zip(parameters, inputs, shapes, strict=True)]
        parts = [partitioner.even(part) for part in partitioner.run(computation, given)]
        found.extend(part.spec for part in parts)
        return [part.value for part in parts]

    local = [partitioner.part_shape(shape, spec) for shape, spec in zip(shapes, inputs, strict=True)]
    made, _, _ = with_axes(mesh, lambda: trace(device, local, computation.name))
    return Partitioned(made, tuple(found), tuple(partitioner.gathers))


def _is_written_out(x: Instruction) -> bool:
    """Whether an instruction is partitioned as what it is made of. Collective operations of functions of parts stay."""
    return x.op.sharding is None and x.op.name not in RULES and not hasattr(x.attributes, "axis_name")


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduce(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Where parts are combined, the initial value comes in once, after that."""
    to_apply = x.attributes.to_apply
    op = reduction.monoid(to_apply)
    if op is None:
        return _reduce_pairs(p, x, operands) if reduction.is_argument(to_apply) else by_factors(p, x, operands)
    array, initial = operands
    element = reduction.identity_element(op, array.value.dtype)
    identity = Part(constant(element, array.value.dtype), (), ())
    (part,) = by_factors(p, x, [array, identity])
    if _is_splat(x.operands[1], element):
        return [part]
    start = movement.broadcast(p.whole(initial), sizes=part.value.shape, dimensions=())
    return [Part(ops[op](part.value, start), part.spec, part.sizes)]


def _is_splat(x: Instruction, value: Any) -> bool:
    """Whether it is a constant of this one value."""
    return (
        x.op is movement.constant
        and x.attributes.literal.value.tobytes() == np.asarray(value, x.array_shape.dtype).tobytes()
    )


def _reduce_pairs(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """The pairs that devices find are gathered and reduced again; of several equal ones any may come again."""
    count = len(operands) // 2
    factors = factors_of(x)
    rank = len(operands[0].sizes)
    own = tuple(range(rank))
    plan = p.plan(x, operands, factors._replace(operands=(*(own,) * count, *((),) * count)))
    values = [p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True)]
    for d in x.attributes.dimensions:
        for k in range(count):
            values[k] = p.filled(values[k], d, plan.operands[0][d], operands[0].sizes[d], values[count + k])
    found = called(x, values, x.attributes._asdict())
    for d in x.attributes.dimensions:
        for axis in reversed(plan.split(d)):
            rows = [movement.reshape_to(v, (1, *v.shape)) for v in found]
            given = {"all_gather_dimension": 0, "shard_count": p.mesh[axis], "axis_name": axis}
            rows = [collectives.all_gather(v, **given) for v in rows]
            found = called(x, [*rows, *values[count:]], {**x.attributes._asdict(), "dimensions": (0,)})
    sizes = [s for d, s in enumerate(operands[0].sizes) if d not in x.attributes.dimensions]
    return [Part(v, spec, tuple(sizes)) for v, spec in zip(found, plan.results, strict=True)]


# --- control flow -----------------------------------------------------------------------------------------------------


def _while(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    specs = [p.specs[leaf] for leaf in leaves_of(x)]
    values = [p.resharded(part, spec) for part, spec in zip(operands, specs, strict=True)]
    attributes = x.attributes._asdict()
    attributes["condition"] = p.nested(x.attributes.condition, specs, [()])
    attributes["body"] = p.nested(x.attributes.body, specs, specs)
    found = called(x, values, attributes)
    return [Part(v, spec, part.sizes) for v, spec, part in zip(found, specs, operands, strict=True)]


def _conditional(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    outputs = [p.specs[leaf] for leaf in leaves_of(x)]
    branches = x.attributes.branch_computations
    inputs = [p.specs[parameter, 0] for parameter in branches[0].parameters]
    values = [p.resharded(part, spec) for part, spec in zip(operands[1:], inputs, strict=True)]
    made = tuple(p.nested(branch, inputs, outputs) for branch in branches)
    found = called(x, [p.whole(operands[0]), *values], {"branch_computations": made})
    sizes = [o.array_shape.dimensions for o in branches[0].outputs]
    return [Part(*entry) for entry in zip(found, outputs, sizes, strict=True)]


def _shard_map(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """The function of a device, as it is; partitioned in its turn along axes that it is not about."""
    given = x.attributes
    parts = PartsOfParts.of(x, p.mesh, [part.spec for part in operands])
    values = [p.resharded(part, spec) for part, spec in zip(operands, parts.operands, strict=True)]
    sizes = [s.dimensions for s in leaf_shapes(x.shape)]
    function, specs = given.to_apply, given.out_specs
    if parts.mesh:
        inner = partition(inline_calls(function), parts.mesh, parts.parameters, p.devices)
        p.gathers += inner.gathers
        function, specs = inner.computation, joined_specs(specs, inner.outputs)
    return [Part(*entry) for entry in zip(run(function, values), specs, sizes, strict=True)]


def _call(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """A call that says itself what a device computes."""
    assert p.devices is not None
    shapes = [s for o in x.operands for s in leaf_shapes(o.shape)]
    results = leaf_shapes(x.shape)
    given = [(s, part.spec) for s, part in zip(shapes, operands, strict=True)]
    wanted = [(s, p.specs[leaf]) for s, leaf in zip(results, leaves_of(x), strict=True)]
    plan = x.attributes.partitioning.plan(p.devices, given, wanted)
    values = [p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True)]
    parts = [p.part_shape(s, spec) for s, spec in zip(shapes, plan.operands, strict=True)]
    made, captured, _ = trace(plan.function, parts, plan.name)
    own = [p.part_shape(s, spec) for s, spec in zip(results, plan.results, strict=True)]
    if [y.array_shape for y in made.outputs] != own:
        raise ShapeError(
            f"{plan.name}: by its shardings the results of a device have the shapes {', '.join(map(str, own))}, but "
            f"the function of parts gives {', '.join(str(y.shape) for y in made.outputs)}, of parts of the shapes "
            f"{', '.join(map(str, parts))}."
        )
    found = run(inline_calls(made), [*values, *captured])
    return [Part(v, spec, s.dimensions) for v, spec, s in zip(found, plan.results, results, strict=True)]


# --- values that are made ---------------------------------------------------------------------------------------------


def _same(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    return operands


def _constant(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """One of equal elements is made in the size of the part; of another one a part is taken."""
    value = x.attributes.literal.value
    (spec,) = [p.specs[leaf] for leaf in leaves_of(x)]
    if not any(spec) or not value.size or value.tobytes() != value.reshape(-1)[:1].tobytes() * value.size:
        return [Part(movement.constant(literal=x.attributes.literal), ((),) * value.ndim, value.shape)]
    scalar = movement.constant(literal=Literal(value.reshape(-1)[0]))
    made = movement.broadcast(scalar, sizes=p.part_sizes(value.shape, spec), dimensions=())
    return [Part(made, spec, value.shape)]


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
    return [Part(value, spec, shape.dimensions)]


def _hidden_state(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """All devices go on with the numbers of the first."""
    (value,) = called(x, [], x.attributes._asdict())
    for axis in p.mesh:
        is_first = elementwise.eq(scaled_index(axis, 1), movement.full(0, np.int32))
        zeros = movement.full(0, value.dtype, value.shape)
        own = elementwise.select(movement.broadcast(is_first, sizes=value.shape, dimensions=()), value, zeros)
        value = collectives.all_reduce(own, to_apply=reduction.scalar_computation("add", value.dtype), axis_name=axis)
    return [Part(value, ((),) * value.ndim, value.shape)]


RULES: dict[str, Rule] = {
    **indexing.RULES,
    **windows.RULES,
    "call": _call,
    "conditional": _conditional,
    "constant": _constant,
    "fft": fourier.rule,
    "iota": _iota,
    "reduce": _reduce,
    "rng-get-and-update-state": _hidden_state,
    "shard-map": _shard_map,
    "sharding-constraint": _same,
    "while": _while,
}
