"""Shardings of the arguments and results of a function that was exported for several devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tinyxla.api.programs import PartitionedProgram, Program
from tinyxla.errors import ArgumentError, BytecodeError
from tinyxla.partitioning.array import ShardedArray
from tinyxla.partitioning.placement import placed
from tinyxla.stablehlo.bytecode import Exported, Sharding
from tinyxla.tracing.core import CarryingTracer, GraphTracer, Tracer
from tinyxla.tracing.meshes import AbstractMesh, AxisType, Mesh, context
from tinyxla.tracing.shardings import NamedSharding, Spec, spec_of
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.transforms.sharded import sharding_constraint


class Layouts(NamedTuple):
    """The shardings of the leaves of arguments and results over a mesh.

    Attributes:
        mesh: the axes.
        inputs: for each leaf of the arguments the axes of its dimensions; None if it was not placed.
        outputs: the same of the results, all of which are somewhere.
        chosen: which of the results the function says a sharding of.
    """

    mesh: AbstractMesh
    inputs: tuple[Spec | None, ...]
    outputs: tuple[Spec, ...]
    chosen: tuple[bool, ...]

    def of_derivative(self) -> Layouts:
        """The shardings of the VJP, which takes the arguments and the cotangents of results, and gives cotangents of
        the arguments."""
        given = tuple(x if is_chosen else None for x, is_chosen in zip(self.outputs, self.chosen, strict=True))
        found = tuple(spec or () for spec in self.inputs)
        return Layouts(self.mesh, (*self.inputs, *given), found, tuple(spec is not None for spec in self.inputs))

    def placed_arguments(self, name: str, arrays: Sequence[Any]) -> tuple[AbstractMesh, list[Any]]:
        """The mesh of a call, with the axes of this one, and the arguments there.

        Raises:
            ArgumentError: it has another number of devices.
        """
        mesh = self._mesh_of_call(name, arrays)
        specs = [() if spec is None else spec for spec in self.inputs]
        moves = [
            spec is not None or _mesh_of(x) not in (None, mesh) for x, spec in zip(arrays, self.inputs, strict=True)
        ]
        found = [
            placed(f"call of {name}", x, NamedSharding(mesh, spec_of(spec))) if is_moved else x
            for x, spec, is_moved in zip(arrays, specs, moves, strict=True)
        ]
        return mesh, found

    def placed_results(self, name: str, mesh: AbstractMesh, results: Sequence[Any]) -> list[Any]:
        """The results where the function has them."""
        pairs = zip(results, self.outputs, strict=True)
        return [placed(f"call of {name}", x, NamedSharding(mesh, spec_of(spec))) for x, spec in pairs]

    def _mesh_of_call(self, name: str, arrays: Sequence[Any]) -> AbstractMesh:
        mesh: Mesh | None = next((mesh for mesh in map(_mesh_of, arrays) if mesh is not None), context.programs)
        if mesh is None and any(isinstance(x, Tracer) for x in arrays):
            mesh = next((mesh for mesh in map(_mesh_around, arrays) if mesh is not None), None)
            if mesh is None:
                return self.mesh  # where the program around it will be
        if mesh is None or mesh.size != self.mesh.size:
            raise ArgumentError(
                f"Function {name} was exported for {self.mesh.size} devices, but is called with arrays on "
                f"{1 if mesh is None else mesh.size}; put them on a mesh of as many devices by device_put, or call it "
                "inside of set_mesh."
            )
        if mesh.shape_tuple == self.mesh.shape_tuple:
            return mesh
        return Mesh(mesh.devices.reshape(self.mesh.axis_sizes), self.mesh.axis_names)

    def to_json(self) -> Any:
        """As lists and dicts."""
        axes = list(self.mesh.shape_tuple)
        if not all(isinstance(name, str) for name, _ in axes):
            raise ArgumentError(
                f"serialize: the axes of a mesh must have strings for names, but are {self.mesh.axis_names}."
            )
        return {"axes": axes, "inputs": self.inputs, "outputs": self.outputs, "chosen": self.chosen}

    def shardings(self) -> tuple[tuple[Sharding | None, ...], tuple[Sharding | None, ...]]:
        """The shardings of the arguments and of the results; None where the compiler chose one."""
        outputs = [spec if is_chosen else None for spec, is_chosen in zip(self.outputs, self.chosen, strict=True)]
        given, found = (tuple(self._sharding(spec) for spec in specs) for specs in (self.inputs, outputs))
        return given, found

    def _sharding(self, spec: Spec | None) -> Sharding | None:
        if spec is None:
            return None
        types = tuple(kind.name.lower() for kind in self.mesh.axis_types)
        return Sharding(tuple(map(str, self.mesh.axis_names)), self.mesh.axis_sizes, spec, axis_types=types)

    @staticmethod
    def from_json(given: Any) -> Layouts:
        """The shardings that `to_json` wrote."""
        names = [str(name) for name, _ in given["axes"]]
        mesh = AbstractMesh([int(n) for _, n in given["axes"]], names)

        def read(spec: Any) -> Spec:
            found = tuple(tuple(map(str, axes)) for axes in spec)
            if not {*names}.issuperset(name for axes in found for name in axes):
                raise BytecodeError("an exported function has a sharding along an axis that its mesh does not have", 0)
            return found

        inputs = tuple(None if spec is None else read(spec) for spec in given["inputs"])
        return Layouts(mesh, inputs, tuple(map(read, given["outputs"])), tuple(map(bool, given["chosen"])))


def layouts_of_artifact(given: Exported) -> Layouts | None:
    """The shardings in an artifact; None if it is for one device."""
    if given.nr_devices == 1:
        return None
    named = [s for s in (*given.in_shardings, *given.out_shardings) if s is not None]
    meshes = {(s.axis_sizes, s.axis_names) for s in named}
    if len(meshes) > 1 or any(s.hlo for s in named):
        raise ArgumentError(
            f"deserialize: {given.function_name} was exported for {given.nr_devices} devices with shardings over "
            "several meshes, or in the form of older artifacts; export it again, over one mesh."
        )
    sizes, names = next(iter(meshes), ((given.nr_devices,), ("devices",)))
    if math.prod(sizes) != given.nr_devices or not {*names}.issuperset(
        name for s in named for axes in s.partitions for name in axes
    ):
        raise BytecodeError("an exported function has a sharding that does not fit its mesh", 0)
    types = next((s.axis_types for s in named if s.axis_types), ("auto",) * len(names))
    mesh = AbstractMesh(sizes, names, tuple(AxisType[kind.capitalize()] for kind in types))
    return Layouts(
        mesh,
        tuple(None if s is None else s.partitions for s in given.in_shardings),
        tuple(() if s is None else s.partitions for s in given.out_shardings),
        tuple(s is not None for s in given.out_shardings),
    )


def _mesh_of(x: Any) -> Mesh | None:
    """The mesh that an array is over."""
    array = x.words if isinstance(x, KeyArray) else x
    while isinstance(array, CarryingTracer):
        array = array.carried
    return array.mesh if isinstance(array, ShardedArray) and array.mesh.axis_names else None


def _mesh_around(x: Any) -> Mesh | None:
    """The mesh of the program in which an array is traced, as far as something is placed there already."""
    array = x.words if isinstance(x, KeyArray) else x
    while isinstance(array, CarryingTracer):
        array = array.carried
    instructions = array.owner.instructions if isinstance(array, GraphTracer) else ()
    meshes = (i.attributes.mesh for i in instructions if i.op is sharding_constraint)
    return next((mesh for mesh in meshes if isinstance(mesh, Mesh)), None)


def layouts_of(program: Program) -> Layouts | None:
    """The shardings of a compiled function; None if it is for one device."""
    if not isinstance(program, PartitionedProgram) or program.mesh.size == 1:
        return None
    inputs, outputs = program.specs
    count = program.structure.num_leaves
    given = tuple(spec if x else None for spec, x in zip(inputs[:count], program.are_placed, strict=False))
    chosen = tuple(x.op is sharding_constraint for x in program.computation.outputs)
    mesh = AbstractMesh(program.mesh.axis_sizes, program.mesh.axis_names)
    return Layouts(mesh, given, outputs, chosen)
