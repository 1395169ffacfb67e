"""Running partitioned programs: all processes run the same one, each on its blocks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.backends import Executable, compile_module
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Module
from tinyxla.hlo.graph import computations_in
from tinyxla.ops import Op
from tinyxla.partitioning.array import (
    ShardedArray,
    from_whole,
    lanes_of,
    layout_of,
    set_run_one,
    sharded_signature,
)
from tinyxla.partitioning.lanes import of_process
from tinyxla.partitioning.memory_kinds import Kind, kinds_of_results
from tinyxla.partitioning.processes import among_processes, axes_of_mesh
from tinyxla.shapes import Shape, TupleShape
from tinyxla.tracing.array import Array
from tinyxla.tracing.axis_types import explicit_axes
from tinyxla.tracing.config import cached_by_options, compiler_options
from tinyxla.tracing.core import GraphTrace, Trace, set_on_current_mesh, set_trace_of_meshes, state
from tinyxla.tracing.device import default_device
from tinyxla.tracing.meshes import AbstractMesh, Mesh, UncommittedDevice, context
from tinyxla.tracing.shardings import UNCONSTRAINED, NamedSharding, PartitionSpec, Spec, axes_of, layout_on, spec_of
from tinyxla.transforms.computations import effects, program_of_op, subgraph
from tinyxla.transforms.sharded import sharding_constraint
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
    """The program of a device, of parts, and the shardings of its results."""

    computation: Computation
    outputs: tuple[Spec, ...]


@lru_cache(1024)
def device_program(
    computation: Computation, mesh: AbstractMesh, inputs: tuple[Spec, ...], explicit: tuple[Hashable, ...] = ()
) -> DeviceProgram:
    """A program of whole arrays, partitioned over a mesh.

    Args:
        computation: of whole arrays.
        inputs: the shardings of the arguments.
        explicit: the axes along which results are split as their types say.
    """
    from tinyxla.compiler.passes.inline_calls import inline_calls  # here, since few programs need them
    from tinyxla.partitioning.spmd import partition

    sizes = {name: mesh.shape[name] for name in explicit}
    inlined = inline_calls(with_types(computation, mesh, sizes, inputs))
    live = subgraph(inlined.name, inlined.parameters, inlined.outputs, effects=effects(inlined))
    made = partition(live, mesh.shape, inputs)
    return DeviceProgram(made.computation, made.outputs)


def process_program(program: DeviceProgram, mesh: AbstractMesh, inputs: tuple[Spec, ...]) -> Computation:
    """The program of this process, of blocks, from that of a device."""
    resolved = among_processes(program.computation, axes_of_mesh(mesh))
    return of_process(resolved, lanes_of(mesh), inputs, program.outputs)


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
) -> Partitioned:
    """A program of whole arrays, compiled for a mesh.

    Args:
        computation: of whole arrays.
        inputs: the shardings of the arguments.
        weak: whether the results are weakly typed.
        explicit: the axes along which results are split as their types say.
        kinds: the kinds of memory of the arguments, if one is not the usual one.

    Raises:
        ArgumentError: an operation on arrays in different kinds of memory.
    """
    memory = kinds_of_results(computation, kinds)
    program = device_program(computation, mesh, inputs, explicit)
    made = process_program(program, mesh, inputs)
    results: list[Result] = []
    for x, is_weak, spec, kind in zip(computation.outputs, weak, program.outputs, memory, strict=True):
        shape = x.array_shape
        sharding = NamedSharding(mesh, spec_of(spec, shape.rank if explicit else 0), memory_kind=kind)
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
    inner = dict.fromkeys(_meshes_in(computation))
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
    wrong = [mesh for mesh in several if not _are_exchangeable(first, mesh)] or wrong or list(inner)[1:]
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


def has_same_devices(mesh: AbstractMesh, other: AbstractMesh) -> bool:
    """Whether two meshes have the same devices in the same order."""
    if mesh == other:
        return True
    if not (isinstance(mesh, Mesh) and isinstance(other, Mesh)):
        return False
    return mesh.device_ids.ravel().tolist() == other.device_ids.ravel().tolist()


def _are_exchangeable(mesh: AbstractMesh, other: AbstractMesh) -> bool:
    """Whether arrays over one mesh may be taken for such over the other: axes that are in types must have its names."""
    are_alike = mesh.shape_tuple == other.shape_tuple or not (mesh.explicit_axes or other.explicit_axes)
    return are_alike and has_same_devices(mesh, other)


def _meshes_in(computation: Computation) -> Iterator[Mesh]:
    if computation.all_opcodes.isdisjoint(_OF_MESHES):
        return
    for x in computation.instructions:
        mesh = getattr(x.attributes, "mesh", None)
        if isinstance(mesh, Mesh) and not mesh.is_default_device:
            yield mesh
        for inner in x.computations():
            yield from _meshes_in(inner)


_OF_MESHES = ("shard-map", "sharding-constraint")


def _trace_of_meshes(attributes: Mapping[str, Any]) -> Trace | None:
    """The trace that records an operation over a mesh, or one whose computations have such operations."""
    mesh = attributes.get("mesh")
    if attributes.get("memory_kind") is not None:
        is_over_mesh = True
    elif mesh is not None:
        is_over_mesh = isinstance(mesh, Mesh) and not mesh.is_default_device
    else:
        is_over_mesh = any(next(_meshes_in(x), None) for x in computations_in(attributes.values()))
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


def spec_over(x: Any, mesh: AbstractMesh) -> Spec:
    """How an argument is split over a mesh."""
    layout = _layout_of(x)
    whole: Spec = ((),) * len(x.shape)
    if layout is None:
        return whole
    spec = layout.dimension_axes(x.shape)
    return spec if layout.mesh == mesh else translated(spec, layout.mesh, mesh) or whole


@lru_cache(256)
def translated(spec: Spec, mesh: AbstractMesh, other: AbstractMesh) -> Spec | None:
    """How an array is split over another mesh of the same devices in the same order; None if it cannot be said by axes
    of that one."""
    if not _are_exchangeable(mesh, other):
        return None
    sizes, strides = other.shape, _strides(other)
    found: list[tuple[Any, ...]] = []
    for axes in spec:
        remaining = [(_strides(mesh)[name], mesh.shape[name]) for name in axes if mesh.shape[name] > 1]
        names: list[Any] = []
        while remaining:
            stride, size = remaining.pop(0)
            end = stride * size
            fitting = [n for n, k in strides.items() if sizes[n] > 1 and k * sizes[n] == end]
            if not fitting or (strides[fitting[0]] > stride and strides[fitting[0]] % stride):
                return None
            (name,) = fitting
            if strides[name] < stride:  # it goes on into the next axis, which must be the adjacent one
                if not remaining or remaining[0][0] * remaining[0][1] != stride:
                    return None
                remaining[0] = remaining[0][0], end // remaining[0][0]
                continue
            names.append(name)
            if strides[name] > stride:
                remaining.insert(0, (stride, strides[name] // stride))
        found.append(tuple(names))
    return tuple(found)


def _strides(mesh: AbstractMesh) -> dict[Any, int]:
    """For each axis how far apart devices are along it, in the order of all."""
    strides: dict[Any, int] = {}
    stride = 1
    for name in reversed(mesh.axis_names):
        strides[name] = stride
        stride *= mesh.shape[name]
    return strides


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
        spec = spec_over(x, mesh)
    value = np.asarray(x.concrete("A program").dense())
    sharding = NamedSharding(mesh, spec_of(spec))
    if any(spec):
        return from_whole(value, sharding, x.weak_type)
    return ShardedArray(value, value.shape, sharding, x.weak_type)


def _on_current_mesh(found: Any) -> Any:
    """The results of an operation on arrays that were not placed: each device of the current mesh has all of them."""
    if isinstance(found, tuple):
        return tuple(map(_on_current_mesh, found))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
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
        if x.spec == sharding.dimension_axes(x.shape, "device_put"):
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
    return sharding_constraint(x, mesh=sharding.mesh, spec=(*sharding.spec, *rest), memory_kind=kind)


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
    found = NamedSharding(mesh, spec_of(tuple(parts), len(spec) if explicit_axes(mesh) else 0), memory_kind=kind)
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
    program = program_of_op(op, tuple(map(Shape.of, operands)), tuple(attributes.items()))
    is_tuple = isinstance(program.root.shape, TupleShape)
    mesh = mesh_of(operands, program)
    assert isinstance(mesh, Mesh)
    sizes = explicit_sizes(mesh)
    if sizes:
        output_types(program, list(map(type_of, operands)), sizes, checks=True)
    is_weak = not is_tuple and all(x.weak_type for x in operands)
    specs = tuple(on_mesh(x, mesh).spec for x in operands)
    weak = (is_weak,) * len(program.outputs)
    made = partitioned(program, mesh, specs, weak, explicit_axes(mesh), memory_kinds_of(operands))
    plan = _Plan(mesh, made, is_tuple)
    if key is not None:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan.run(operands)


class _Plan(NamedTuple):
    """An operation on arrays with certain shardings, compiled."""

    mesh: Mesh
    program: Partitioned
    is_tuple: bool

    def run(self, operands: Sequence[Any]) -> Any:
        """The results."""
        found = self.program.executable([on_mesh(x, self.mesh).block for x in operands])
        arrays = [result.array(block) for result, block in zip(self.program.results, found, strict=True)]
        return tuple(arrays) if self.is_tuple else arrays[0]


_plans: dict[Any, _Plan] = {}  # by operations, options and the signatures of operands
_MAX_PLANS = 4096


set_run_one(_run_one)
