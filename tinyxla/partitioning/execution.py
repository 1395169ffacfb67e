"""Running partitioned programs: all processes run the same one, each on its blocks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.backends import Executable, compile_module
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.hlo.graph import computations_in
from tinyxla.ops import Op, movement
from tinyxla.partitioning.array import (
    ShardedArray,
    from_whole,
    lanes_of,
    layout_of,
    set_run_one,
    sharded_signature,
)
from tinyxla.partitioning.common_meshes import common_mesh, divides_axes, has_same_devices, over_common_mesh, translated
from tinyxla.partitioning.lanes import block_sizes, of_process
from tinyxla.partitioning.memory_kinds import Kind, kinds_of_results
from tinyxla.partitioning.processes import among_processes, axes_of_mesh
from tinyxla.shapes import Shape, TupleShape
from tinyxla.tracing.array import Array
from tinyxla.tracing.axis_types import explicit_axes
from tinyxla.tracing.config import cached_by_options, compiler_options, config
from tinyxla.tracing.core import GraphTrace, Trace, set_on_current_mesh, set_trace_of_meshes, state, trace
from tinyxla.tracing.device import default_device
from tinyxla.tracing.meshes import AbstractMesh, Mesh, UncommittedDevice, context
from tinyxla.tracing.shardings import (
    NO_SUMS,
    UNCONSTRAINED,
    NamedSharding,
    PartitionSpec,
    Spec,
    axes_of,
    layout_on,
    spec_of,
    sums_of,
    with_sums,
)
from tinyxla.tracing.transfers import check_move
from tinyxla.transforms.computations import effects, program_of_op, run as run_computation, subgraph
from tinyxla.transforms.partial_sums import linear_operands
from tinyxla.transforms.sharded import meshes_in, shard_map, sharding_constraint
from tinyxla.transforms.sharding_types import explicit_sizes, output_types, type_of, with_types


class Result(NamedTuple):
    """What is known of a result before it is computed."""

    shape: tuple[int, ...]
    sharding: NamedSharding
    weak_type: bool
    signature: int

    def array(self, block: Any) -> ShardedArray:
        return ShardedArray(block, self.shape, self.sharding, self.weak_type, self.signature)


class DeviceProgram(NamedTuple):
    """The program of a device, of parts.

    Attributes:
        computation: the program.
        mesh: that over which it is partitioned.
        inputs, outputs: the shardings of the arguments and results over it.
        layouts: the meshes of the results, and their shardings over these.
    """

    computation: Computation
    mesh: AbstractMesh
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    layouts: tuple[tuple[AbstractMesh, Spec], ...]


@lru_cache(1024)
def device_program(
    computation: Computation,
    mesh: AbstractMesh,
    inputs: tuple[Spec, ...],
    explicit: tuple[Hashable, ...] = (),
    meshes: tuple[AbstractMesh, ...] = (),
) -> DeviceProgram:
    """A program of whole arrays, partitioned over a mesh.

    Args:
        computation: of whole arrays.
        inputs: the shardings of the arguments.
        explicit: the axes along which results are split as their types say.
        meshes: those of the arguments, if one is over another mesh of the same devices.

    Raises:
        ArgumentError: a sharding in it is over another number of devices, or over axes that are no parts of others.
        ShardingTypeError: an axis has other sizes in other meshes.
    """
    # here, since few programs need them
    from tinyxla.compiler.passes.inline_calls import inline_calls, inline_unpartitioned_calls
    from tinyxla.partitioning.spmd import partition

    sizes = {name: mesh.shape[name] for name in explicit}
    inline = inline_calls if mesh.size == 1 else inline_unpartitioned_calls
    inlined = inline(with_types(computation, mesh, sizes, inputs, meshes))
    live = subgraph(inlined.name, inlined.parameters, inlined.outputs, effects=effects(inlined))
    used = dict.fromkeys((*meshes, *(other for _, other in meshes_in(live))))
    others = [other for other in used if other.shape_tuple != mesh.shape_tuple and not other.empty]
    plain = tuple(map(tuple, inputs))
    sums = [sums_of(getattr(x.attributes, "spec", ())) for x in live.outputs]  # of the constraints to their types
    if not others and not meshes:
        made = partition(live, mesh.shape, plain, mesh)
        typed = tuple((mesh, with_sums(spec, s)) for spec, s in zip(made.outputs, sums, strict=True))
        return DeviceProgram(made.computation, mesh, plain, made.outputs, typed)
    owners = meshes or (mesh,) * len(inputs)
    mapped = dict.fromkeys(other for x, other in meshes_in(live) if x.op is shard_map)
    common = common_mesh(mesh, tuple(others), tuple(mapped)) if others else mesh
    given = tuple(_respelled(spec, owner, common) for spec, owner in zip(plain, owners, strict=True))
    made = partition(over_common_mesh(live, common), common.shape, given, common)
    own = dict(zip(live.parameters, owners, strict=True))
    layouts: list[tuple[AbstractMesh, Spec]] = []
    for x, spec, s in zip(live.outputs, made.outputs, sums, strict=True):
        first = own.get(x, x.attributes.mesh if x.op is sharding_constraint else mesh)
        wanted = (first, mesh, *others, common) if x in own or first in others else (mesh, *others, common)
        pairs = ((_with_devices_of(m, mesh), translated(spec, common, m)) for m in wanted)
        owner, found = next((m, spec) for m, spec in pairs if spec is not None)
        if x.op is sharding_constraint and owner.shape_tuple == first.shape_tuple:  # it may name axes of one device
            said = tuple(map(axes_of, x.attributes.spec))
            found = said if translated(said, first, common) == spec else found
        layouts.append((owner, with_sums(found, s)))
    return DeviceProgram(made.computation, common, given, made.outputs, tuple(layouts))


def _respelled(spec: Spec, mesh: AbstractMesh, common: AbstractMesh) -> Spec:
    """How an array that is split over a mesh is split over a common one, which can say it."""
    found = translated(spec, mesh, common)
    assert found is not None
    return found


def _with_devices_of(mesh: AbstractMesh, other: AbstractMesh) -> AbstractMesh:
    """A mesh over the devices of another one, if that has any."""
    if isinstance(mesh, Mesh) or not isinstance(other, Mesh):
        return mesh
    return Mesh(other.devices.reshape(mesh.axis_sizes), mesh.axis_names, mesh.axis_types)


def process_program(
    program: DeviceProgram, inputs: Sequence[tuple[AbstractMesh, Spec]], is_of_lanes: bool = True
) -> Computation:
    """The program of this process, of blocks, from that of a device.

    Args:
        program: that of a device.
        inputs: the meshes of the arguments, and how they are split over these.
        is_of_lanes: whether the process has several devices; else each of them is a process.
    """

    def lanes(mesh: AbstractMesh) -> Any:
        return lanes_of(mesh if is_of_lanes else mesh.abstract_mesh)

    common = program.mesh
    resolved = among_processes(program.computation, axes_of_mesh(common if is_of_lanes else common.abstract_mesh))
    made = of_process(resolved, lanes(common), program.inputs, program.outputs)
    if all(mesh.shape_tuple == common.shape_tuple for mesh, _ in (*inputs, *program.layouts)):
        return made

    def blocks(arrays: Sequence[Instruction], layouts: Sequence[tuple[AbstractMesh, Spec]]) -> list[tuple[int, ...]]:
        pairs = zip(arrays, layouts, strict=True)
        return [block_sizes(x.array_shape.dimensions, spec, lanes(mesh)) for x, (mesh, spec) in pairs]

    def reshaped(*given: Any) -> list[Any]:
        shapes = [p.array_shape.dimensions for p in made.parameters]
        found = run_computation(made, [movement.reshape_to(x, n) for x, n in zip(given, shapes, strict=True)])
        return [movement.reshape_to(x, n) for x, n in zip(found, results, strict=True)]

    sizes = blocks(resolved.parameters, inputs)
    results = blocks(resolved.outputs, program.layouts)
    shapes = [p.array_shape.with_dimensions(n) for p, n in zip(made.parameters, sizes, strict=True)]
    return trace(reshaped, shapes, made.name)[0]


class Partitioned(NamedTuple):
    """A program for a mesh: the compiled one of this process, and its results."""

    executable: Executable
    results: tuple[Result, ...]


@cached_by_options(1024)
def partitioned(
    computation: Computation,
    mesh: Mesh,
    inputs: tuple[Spec, ...],
    weak: tuple[bool, ...],
    explicit: tuple[Hashable, ...] = (),
    kinds: tuple[Kind, ...] = (),
    meshes: tuple[AbstractMesh, ...] = (),
) -> Partitioned:
    """A program of whole arrays, compiled for a mesh.

    Args:
        computation: of whole arrays.
        inputs: the shardings of the arguments.
        weak: whether the results are weakly typed.
        explicit: the axes along which results are split as their types say.
        kinds: the kinds of memory of the arguments, if one is not the usual one.
        meshes: those of the arguments, if one is over another mesh of the same devices.

    Raises:
        ArgumentError: an operation on arrays in different kinds of memory.
    """
    memory = kinds_of_results(computation, kinds)
    program = device_program(computation, mesh, inputs, explicit, meshes)
    made = process_program(program, list(zip(meshes or (mesh,) * len(inputs), inputs, strict=True)))
    results: list[Result] = []
    for x, is_weak, (owner, spec), kind in zip(computation.outputs, weak, program.layouts, memory, strict=True):
        shape = x.array_shape
        is_typed = bool(explicit if owner == mesh else owner.explicit_axes)
        sharding = NamedSharding(owner, spec_of(spec, shape.rank if is_typed else 0), memory_kind=kind)
        signature = sharded_signature(shape.dtype, shape.dimensions, is_weak, sharding)
        results.append(Result(shape.dimensions, sharding, is_weak, signature))
    return Partitioned(compile_module(Module(computation.name, made)), tuple(results))


def run(computation: Computation, mesh: Mesh, arguments: Sequence[Array], weak: bool = False) -> list[ShardedArray]:
    """The results of a program on arrays, as far as they are sharded over this mesh."""
    given = [on_mesh(x, mesh) for x in arguments]
    specs, weaknesses = tuple(x.spec for x in given), (weak,) * len(computation.outputs)
    program = partitioned(computation, mesh, specs, weaknesses, explicit_axes(mesh), memory_kinds_of(arguments))
    found = program.executable([x.block for x in given])
    return [result.array(block) for result, block in zip(program.results, found, strict=True)]


def memory_kinds_of(arguments: Sequence[Any]) -> tuple[Kind, ...]:
    """The kinds of memory of arguments; none if all are in the usual one."""
    kinds = tuple(layout.memory_kind if (layout := _layout_of(x)) is not None else None for x in arguments)
    return () if {*kinds} <= {None, "device"} else kinds


def mesh_of(
    arguments: Sequence[Any],
    computation: Computation,
    names: Callable[[], Sequence[str]] | None = None,
    captured: Sequence[Any] = (),
) -> AbstractMesh | None:
    """The mesh of several devices that a program is for, by its arguments and by what it says itself; None if there is
    none. It may be an abstract one, over which arguments are described. Arguments that are not committed to their
    device, and arrays on one device that the program captured, decide only where there are no others.

    Args:
        arguments: the arguments.
        computation: the program.
        names: how to speak of the arguments in errors, by default by their numbers.
        captured: the arrays that the program captured.

    Raises:
        ArgumentError: there are several.
    """
    own, held = ([_layout_of(x) for x in several] for several in (arguments, captured))
    inner = dict.fromkeys(_over_devices(computation))
    over_meshes = [None if layout is None or layout.mesh.empty else layout for layout in held]
    if any(own) or any(over_meshes) or inner or context.programs is not None:
        held = over_meshes
    layouts = [*own, *held]
    found = dict.fromkeys(layout.mesh for layout in layouts if layout is not None)
    around: list[Mesh] = [context.programs] if context.is_set and context.programs is not None else []
    if len(found | inner) < 2 and not (around and found):
        return next(iter(found or inner), None)
    committed = [mesh for mesh in (*found, *inner) if not isinstance(mesh, UncommittedDevice)]
    several = list(dict.fromkeys(committed or list(found)[:1]))
    first = several[0]
    wrong = [mesh for mesh in around if isinstance(first, Mesh) and not has_same_devices(first, mesh)]
    wrong = [mesh for mesh in several if not has_same_devices(first, mesh)] or wrong
    if not wrong:
        typed = [mesh for mesh in several if explicit_axes(mesh)]
        return (typed or [*inner] or several)[0]
    owners = {layout.mesh: k for k, layout in reversed(list(enumerate(layouts))) if layout is not None}
    said = None if names is None else names()

    def where(mesh: AbstractMesh) -> str:
        k = owners.get(mesh)
        what = "the mesh of set_mesh" if mesh in around and mesh not in several else "a sharding in it"
        if k is not None and k < len(arguments):
            what = f"the argument {said[k] if said else k} of type {Shape.of(arguments[k])}"
        elif k is not None:
            what = "an array that it captured"
        devices = f"the devices {mesh.device_ids.ravel().tolist()}" if isinstance(mesh, Mesh) else "no devices"
        return f"{what} is on {devices}" + (f", as {mesh}" if mesh.axis_names else "")

    raise ArgumentError(
        f"{computation.name}: the arrays of one program must be sharded over one mesh, but {where(first)} and "
        f"{where(wrong[0])}; use device_put or reshard."
    )


def _over_devices(computation: Computation) -> Iterator[Mesh]:
    """The meshes of several devices that a computation says."""
    for _, mesh in meshes_in(computation):
        if isinstance(mesh, Mesh) and not mesh.is_default_device:
            yield mesh


def _trace_of_meshes(attributes: Mapping[str, Any]) -> Trace | None:
    """The trace that records an operation over a mesh, or one whose computations have such operations."""
    mesh = attributes.get("mesh")
    if attributes.get("memory_kind") is not None:
        is_over_mesh = True
    elif mesh is not None:
        is_over_mesh = isinstance(mesh, Mesh) and not mesh.is_default_device
    else:
        is_over_mesh = any(next(_over_devices(x), None) for x in computations_in(attributes.values()))
    return ShardedArray.owner if is_over_mesh else None


set_trace_of_meshes(_trace_of_meshes)


def _layout_of(x: Any) -> Any:
    """Which part of an argument is where; a description of an array may say it over an abstract mesh."""
    sharding = None if isinstance(x, Array) else getattr(x, "sharding", None)
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    return layout_of(x) if mesh is None or mesh.empty or isinstance(mesh, Mesh) else sharding


def is_placed(x: Any) -> bool:
    """Whether an argument, or its description, says where it is."""
    return _layout_of(x) is not None


def is_over(x: Any, mesh: AbstractMesh) -> bool:
    """Whether an argument is over that mesh, or says nothing of where it is."""
    layout = _layout_of(x)
    return layout is None or layout.mesh == mesh


def layout_over(x: Any, mesh: AbstractMesh, mapped: Sequence[AbstractMesh] = ()) -> tuple[AbstractMesh, Spec]:
    """The mesh of an argument of a program, and how it is split over it: that of the program, or its own one of the
    same devices, if axes are in types or that of the program cannot say it.

    Args:
        x: the argument.
        mesh: that of the program.
        mapped: meshes over which the program maps functions of parts. An argument that is split along parts of their
            axes is whole.
    """
    layout = _layout_of(x)
    whole = mesh, ((),) * len(x.shape)
    if layout is None:
        return whole
    own, spec = layout.mesh, layout.dimension_axes(x.shape)
    if own == mesh:
        return mesh, spec
    if own.empty or not has_same_devices(own, mesh):
        return whole
    found = None if own.explicit_axes or mesh.explicit_axes else translated(spec, own, mesh)
    if found is not None:
        return mesh, found
    return whole if any(divides_axes(own, other) for other in mapped) else (own, spec)


def layouts_over(
    arrays: Sequence[Any], mesh: AbstractMesh, computation: Computation
) -> tuple[tuple[Spec, ...], tuple[AbstractMesh, ...]]:
    """How the arguments of a program are split over meshes, and these, if one is another than that of the program."""
    mapped = list(dict.fromkeys(other for x, other in meshes_in(computation) if x.op is shard_map))
    layouts = [layout_over(x, mesh, mapped) for x in arrays]
    owners = tuple(owner for owner, _ in layouts)
    return tuple(spec for _, spec in layouts), owners if any(owner != mesh for owner in owners) else ()


def on_mesh(x: Array, mesh: Mesh) -> ShardedArray:
    """An array as one over a mesh: each device has all of one that is on one device."""
    spec: Spec = ()
    if isinstance(x, ShardedArray):
        if x.mesh == mesh:
            return x
        if not (x.is_fully_addressable or x.is_fully_replicated):
            raise ArgumentError(
                f"The arrays of one program must be sharded over one mesh, but are over {x.mesh} and {mesh}; use "
                "device_put or reshard."
            )
        owner, spec = layout_over(x, mesh)
        spec = spec if owner == mesh else translated(spec, owner, mesh) or ()
    if config.special and mesh.size > 1:
        check_move("A program", x, NamedSharding(mesh, spec_of(spec)))
    value = np.asarray(x.concrete("A program").dense())
    sharding = NamedSharding(mesh, spec_of(spec))
    if any(spec):
        return from_whole(value, sharding, x.weak_type)
    return ShardedArray(value, value.shape, sharding, x.weak_type)


def _on_current_mesh(found: Any) -> Any:
    """The results of an operation on arrays that were not placed: each device of the current mesh has all of them."""
    if isinstance(found, tuple):
        return tuple(map(_on_current_mesh, found))
    rank = found.ndim if explicit_axes(context.programs) else 0
    whole = NamedSharding(context.programs, PartitionSpec(*[None] * rank))
    return ShardedArray(np.asarray(found.dense()), found.shape, whole, found.weak_type)


set_on_current_mesh(_on_current_mesh)


def resharded(x: Array, sharding: NamedSharding) -> ShardedArray:
    """The array under another sharding; it moves only where that is a different one."""
    mesh: Any = sharding.mesh
    if isinstance(x, ShardedArray) and x.mesh == mesh:
        if x.layout == sharding:
            return x
        if tuple(x.spec) == tuple(sharding.dimension_axes(x.shape, "device_put")):
            return ShardedArray(x.block, x.shape, sharding, x.weak_type)
        made = _constrained(Shape.of(x), sharding)
        (found,) = run(made, mesh, [x])
        return ShardedArray(found.block, x.shape, sharding, x.weak_type)
    whole = on_mesh(x, mesh).concrete("device_put") if isinstance(x, ShardedArray) else x.concrete("device_put")
    return from_whole(np.asarray(whole.buffer()), sharding, x.weak_type)


def constrained(x: Any, sharding: NamedSharding, in_memory: bool = False) -> Any:
    """A traced array that is to have a sharding; with `in_memory` also in its kind of memory."""
    rest = (None,) * (x.ndim - len(sharding.spec))
    kind = sharding.memory_kind if in_memory else None
    spec = with_sums((*sharding.spec, *rest), sums_of(sharding.spec))
    return sharding_constraint(x, mesh=sharding.mesh, spec=spec, memory_kind=kind)


@lru_cache(256)
def _constrained(shape: Shape, sharding: NamedSharding) -> Computation:
    graph = GraphTrace("device_put")
    return graph.run(lambda: graph.finish("device_put", [constrained(graph.parameter(shape), sharding)]))


def in_memory(x: Array, kind: str) -> Array:
    """An array in a kind of memory, on the devices on which it is."""
    layout = x.layout if isinstance(x, ShardedArray) else layout_on(default_device())
    return resharded(x, layout.update(memory_kind=kind))


def _moved(x: Array, mesh: AbstractMesh, spec: tuple[Any, ...], kind: Kind) -> Array:
    """An array under a constraint, whose mesh may be another than its own."""
    if not isinstance(mesh, Mesh):
        return x if kind is None else in_memory(x, kind)
    own = x.spec if isinstance(x, ShardedArray) and x.mesh == mesh else ((),) * x.ndim
    parts = [axes if part is UNCONSTRAINED else axes_of(part) for part, axes in zip(spec, own, strict=True)]
    wanted = with_sums(parts, sums_of(spec))
    found = NamedSharding(mesh, spec_of(wanted, len(spec) if explicit_axes(mesh) else 0), memory_kind=kind)
    return resharded(x, found)


def _run_one(op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """An operation of which an operand is sharded."""
    if op is sharding_constraint and (isinstance(attributes["mesh"], Mesh) or attributes.get("memory_kind")):
        return _moved(operands[0], attributes["mesh"], attributes["spec"], attributes.get("memory_kind"))
    key = None
    if state.kinds is None and not state.axes:  # which decide what the types of results are
        key = op, compiler_options(), *attributes.items(), *[x.signature() for x in operands]
        plan = _plans.get(key)
        if plan is not None:
            return plan.run(operands)
    own, operands = operands, _typed_beside_sums(op, attributes, operands)
    key = key if own is operands else None
    program = program_of_op(op, tuple(map(Shape.of, operands)), tuple(attributes.items()))
    is_tuple = isinstance(program.root.shape, TupleShape)
    mesh = mesh_of(operands, program)
    assert isinstance(mesh, Mesh)
    specs, meshes = layouts_over(operands, mesh, program)
    sizes = explicit_sizes(mesh, *meshes)
    if sizes:
        output_types(program, list(map(type_of, operands)), sizes, checks=True)
    is_weak = not is_tuple and all(x.weak_type for x in operands)
    weak = (is_weak,) * len(program.outputs)
    made = partitioned(program, mesh, specs, weak, explicit_axes(mesh), memory_kinds_of(operands), meshes)
    plan = _Plan(meshes or (mesh,) * len(operands), made, is_tuple)
    if key is not None:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan.run(operands)


def _typed_beside_sums(op: Op, attributes: Mapping[str, Any], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands, with types for those beside partial sums or reduced arrays that have none: zeros that are added to
    partial sums are such, and factors and terms whose elements are all equal are reduced."""
    layouts = [x.layout for x in operands if isinstance(x, ShardedArray)]
    first = next((layout for layout in layouts if sums_of(layout.spec) != NO_SUMS), None)
    if first is None:
        return operands
    unreduced, reduced = (
        next(filter(None, axes), frozenset[Hashable]())
        for axes in zip(*(sums_of(layout.spec) for layout in layouts), strict=True)
    )
    added = linear_operands(op, attributes, len(operands)) if unreduced else ()

    def typed(k: int, x: Any) -> Any:
        value = np.asarray(x.concrete("A type").dense())
        if k in added and not np.any(value):
            sums = PartitionSpec(unreduced=unreduced)
        elif k not in added and np.all(value == value.flat[:1]):
            sums = PartitionSpec(reduced=unreduced or reduced)
        else:
            return x
        return from_whole(value, first.update(spec=sums).with_rank(x.ndim), x.weak_type)

    are_whole = [not isinstance(x, ShardedArray) or x.layout.is_fully_replicated for x in operands]
    are_plain = [not isinstance(x, ShardedArray) or sums_of(x.layout.spec) == NO_SUMS for x in operands]
    is_chosen = [a and b for a, b in zip(are_whole, are_plain, strict=True)]
    return tuple(typed(k, x) if chosen else x for k, (x, chosen) in enumerate(zip(operands, is_chosen, strict=True)))


class _Plan(NamedTuple):
    """An operation on arrays with certain shardings, compiled."""

    meshes: Sequence[Any]
    program: Partitioned
    is_tuple: bool

    def run(self, operands: Sequence[Any]) -> Any:
        """The results."""
        found = self.program.executable([on_mesh(*x).block for x in zip(operands, self.meshes, strict=True)])
        arrays = [result.array(block) for result, block in zip(self.program.results, found, strict=True)]
        return tuple(arrays) if self.is_tuple else arrays[0]


_plans: dict[Any, _Plan] = {}  # by operations, options and the signatures of operands
_MAX_PLANS = 4096


set_run_one(_run_one)
