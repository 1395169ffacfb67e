"""Programs: traced functions, and how they run for arrays: by themselves, over donated arguments, or in parts on the
devices of a mesh."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyxla.api import compile_log
from tinyxla.api.executables import compiled
from tinyxla.backends import Executable
from tinyxla.errors import ArgumentError, DeletedError, warn
from tinyxla.hlo import Computation
from tinyxla.ops.distributed.communication import Communication
from tinyxla.partitioning.array import ShardedArray, shown
from tinyxla.partitioning.common_meshes import translated
from tinyxla.partitioning.execution import (
    DeviceProgram,
    device_program,
    is_over,
    is_placed,
    layouts_over,
    memory_kinds_of,
    on_mesh,
    partitioned,
    process_program,
    resharded,
)
from tinyxla.partitioning.memory_kinds import kinds_of_results
from tinyxla.partitioning.placement import check_agrees
from tinyxla.runtime.allocation import rarely_collected
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray, delete_all, signature_of, without_memory, wrap_dense
from tinyxla.tracing.axis_types import explicit_axes
from tinyxla.tracing.core import Interpreted
from tinyxla.tracing.meshes import AbstractMesh, Mesh
from tinyxla.tracing.shardings import NamedSharding, Sharding, SingleDeviceSharding, Spec, spec_of
from tinyxla.transforms import call
from tinyxla.transforms.computations import run

if TYPE_CHECKING:
    from tinyxla.compiler.step_costs import ProcessCost


class Program:
    """A traced function: its computation, what it captured, and how arguments and results are put together."""

    def __init__(
        self,
        traced: tuple[Computation, list[Interpreted], list[bool], pytrees.TreeDef],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        structure: pytrees.TreeDef,
    ) -> None:
        """`traced` is what `trace_tree` gives for the arguments."""
        made, captured, weak, tree = traced
        self.structure = structure  # of the arguments
        self.has_kwargs = bool(kwargs)  # else the structure is that of the positional ones alone
        self.weak = weak
        self.weak_arguments = [bool(getattr(x, "weak_type", False)) for x in pytrees.leaves((args, kwargs))]
        self.computation: Computation = made
        self.captured: list[Interpreted] = captured
        self.tree = tree
        self._is_single = tree.is_leaf()
        self.donate_argnums: tuple[int, ...] = ()  # the numbers of arrays among the arguments
        self.runs = False  # by itself, for arrays; else it becomes an op of what surrounds the call
        self._executable: Executable | None = None
        shapes = [x.array_shape for x in made.outputs]
        self._results = [(w, signature_of(x.dtype, x.dimensions, w)) for w, x in zip(weak, shapes, strict=True)]

    @property
    def executable(self) -> Executable:
        if self._executable is None:
            self._executable = compile_log.noting_shared(self.computation, compiled(self.computation))
        return self._executable

    @property
    def lowered(self) -> Computation:
        """The computation that is compiled."""
        return self.computation

    is_over_mesh = False
    moves = False  # arguments that are over another mesh, where it is called by itself

    @property
    def shares_process(self) -> bool:
        """Whether devices of it share a process."""
        return False

    @property
    def communication(self) -> Communication:
        """The messages and bytes of a device, if each is a process."""
        return Communication()

    @functools.cached_property
    def process_cost(self) -> ProcessCost:
        """The cost of a call for a process, if each device is one."""
        return self._process_cost(self.computation, 1)

    def _process_cost(self, computation: Computation, processes: int) -> ProcessCost:
        from tinyxla.partitioning.simulation import process_cost  # here, since few programs need it

        return rarely_collected(lambda: process_cost(computation, processes))

    @property
    def shardings(self) -> tuple[list[Sharding], list[Sharding]]:
        """The shardings of the arguments, and those of the results."""
        return [SingleDeviceSharding()] * self.structure.num_leaves, [SingleDeviceSharding()] * len(self.weak)

    def arguments(self, arrays: Sequence[Array]) -> list[Any]:
        """Arrays as the program takes them."""
        for x in arrays:
            if isinstance(x, ShardedArray) and not x.mesh.is_first_device:
                raise ArgumentError(
                    f"{self.computation.name}: an argument of shape {x.shape} must have the sharding "
                    f"{SingleDeviceSharding()}, but has {x.sharding}; use device_put, or lower it for such an argument."
                )
        concrete = [x.concrete("A compiled program") for x in arrays]
        for x in concrete:
            x.signature()
        return concrete

    def run(self, leaves: Sequence[ConcreteArray]) -> Any:
        """The results for concrete arguments, whose signatures have been asked for: so they are dense."""
        return self._wrapped((self._executable or self.executable)([x._value for x in leaves]))  # pyright: ignore[reportPrivateUsage]

    def _wrapped(self, outputs: Sequence[np.ndarray[Any, Any]]) -> Any:
        arrays = [
            wrap_dense(value, weak, signature)
            for value, (weak, signature) in zip(outputs, self._results)  # noqa: B905 - strict takes time
        ]
        return arrays[0] if self._is_single else self.tree.unflatten(arrays)

    def through(self, executable: Executable) -> Program:
        """The same program, run by another executable."""
        made = copy.copy(self)
        made._executable = executable
        return made

    def apply(self, leaves: Sequence[Array], inline: bool = False) -> Any:
        """The results as one op of the surrounding trace; with `inline` by its own ops."""
        operands = [*leaves, *self.captured]
        outputs = run(self.computation, operands) if inline else call(*operands, to_apply=self.computation)
        return pytrees.unflatten(self.tree, [x.with_weak_type(w) for x, w in zip(outputs, self.weak, strict=True)])


def check_donated_once(computation: Computation, leaves: Sequence[Any], donated: Sequence[int]) -> None:
    """Refuse an array that is donated and is another argument, too.

    Args:
        computation: the program.
        leaves: the arguments.
        donated: the numbers of those that are donated.

    Raises:
        DeletedError: it is.
    """
    if len({*map(id, leaves)}) == len(leaves):
        return
    used = {o for x in computation.instructions for o in x.operands}.union(computation.outputs)
    for k in donated:
        for n, (x, parameter) in enumerate(zip(leaves, computation.parameters, strict=False)):
            if x is leaves[k] and n != k and parameter in used:
                how = "donated twice" if n in donated else "donated and used besides"
                raise DeletedError(
                    f"{computation.name}: an array {Shape.of(x)} is {how}, as argument {min(k, n)} and as argument "
                    f"{max(k, n)}; pass a copy of it, or do not donate it."
                )


class DonatingProgram(Program):
    """A program that may overwrite arguments of the user's: those of the numbers `donated`, each of which has the shape
    and type of a result. A call deletes them."""

    def __init__(self, program: Program, flags: Sequence[bool]) -> None:
        self.__dict__.update(program.__dict__)
        self.donate_argnums = tuple(k for k, is_donated in enumerate(flags) if is_donated)
        results = [x.array_shape for x in self.computation.outputs]
        self.donated: list[int] = []
        kept: list[Shape] = []
        for k, (parameter, is_donated) in enumerate(zip(self.computation.parameters, flags, strict=False)):
            if is_donated and parameter.array_shape in results:
                results.remove(parameter.array_shape)
                self.donated.append(k)
            elif is_donated:
                kept.append(parameter.array_shape)
        if kept:
            warn(
                f"Some donated buffers were not usable: {', '.join(map(str, kept))}. No result of "
                f"{self.computation.name} has such a shape and type to write over it, so these arguments stay; donate "
                "others."
            )
        donated = [self.computation.parameters[k].array_shape for k in self.donated]
        self._remains = [without_memory(x.dtype, x.dimensions) for x in donated]

    @property
    def executable(self) -> Executable:
        if self._executable is None:
            made = compiled(self.computation, tuple(self.donated))
            self._executable = compile_log.noting_shared(self.computation, made)
        return self._executable

    def run(self, leaves: Sequence[ConcreteArray]) -> Any:
        executable = self._executable or self.executable
        check_donated_once(self.computation, leaves, self.donated)
        values = [x._value for x in leaves]  # pyright: ignore[reportPrivateUsage]
        delete_all([leaves[k] for k in self.donated], self._remains)
        return self._wrapped(executable(values))

    def through(self, executable: Executable) -> Program:
        """The same, but not donating: for what runs the program several times."""
        made = Program.__new__(Program)
        made.__dict__.update(self.__dict__, _executable=executable)
        return made


class PartitionedProgram(Program):
    """A program over a mesh of several devices, for arguments with certain shardings: its arrays are sharded. A call
    deletes arguments that are `donated`, if a result has their shape, type and sharding. Over an abstract mesh it can
    be looked at, and does not run."""

    is_over_mesh = True

    def __init__(self, program: Program, mesh: AbstractMesh, leaves: Sequence[Any], donated: Sequence[bool]) -> None:
        self.__dict__.update(program.__dict__)
        self.donate_argnums = tuple(k for k, is_donated in enumerate(donated) if is_donated)
        self.mesh = mesh
        self._specs, self._meshes = layouts_over((*leaves, *self.captured), mesh, self.computation)
        self._owners: Sequence[Any] = self._meshes or (mesh,) * len(self._specs)  # the meshes of the arguments
        self.are_placed = [is_placed(x) for x in leaves]
        self._are_over_mesh = not self._meshes and all(is_over(x, mesh) for x in (*leaves, *self.captured))
        self._explicit = explicit_axes(mesh)
        self._kinds = memory_kinds_of((*leaves, *self.captured))
        self.runs = True

    @functools.cached_property
    def _donated(self) -> list[int]:
        """The numbers of arguments that are donated and have the shape and type of a result."""
        shapes = {x.array_shape for x in self.computation.outputs}
        return [k for k in self.donate_argnums if self.computation.parameters[k].array_shape in shapes]

    @property
    def _device(self) -> DeviceProgram:
        return device_program(self.computation, self.mesh, self._specs, self._explicit, self._meshes)

    @property
    def _inputs(self) -> list[tuple[AbstractMesh, Spec]]:
        """The meshes of the arguments, and how they are split over these."""
        return list(zip(self._owners, self._specs, strict=True))

    @property
    def argument_specs(self) -> tuple[Spec, ...]:
        """How arguments are split over the mesh, as far as its axes can say it."""
        pairs = [(translated(spec, owner, self.mesh), spec) for owner, spec in self._inputs]
        return tuple(found or ((),) * len(spec) for found, spec in pairs)

    @property
    def specs(self) -> tuple[tuple[Spec, ...], tuple[Spec, ...]]:
        """How arguments and results are split over the mesh, as far as its axes can say it."""
        given, results = (
            tuple(translated(spec, owner, self.mesh) or ((),) * len(spec) for owner, spec in side)
            for side in (self._inputs, self._device.layouts)
        )
        return given, results

    @property
    def executable(self) -> Executable:
        if self._executable is None:
            if not isinstance(self.mesh, Mesh):
                raise ArgumentError(
                    f"compile: {self.computation.name} is partitioned over {self.mesh}, which has no devices; lower it "
                    "for arrays over a Mesh to run it."
                )
            program = partitioned(
                self.computation, self.mesh, self._specs, tuple(self.weak), self._explicit, self._kinds, self._meshes
            )
            self._sharded_results = program.results
            self._executable = program.executable
            compile_log.program_made.notify(self.computation)
        return self._executable

    @property
    def lowered(self) -> Computation:
        """The program of each device."""
        return self._device.computation

    @property
    def communication(self) -> Communication:
        return self.process_cost.communication

    @property
    def shares_process(self) -> bool:
        return any(count > 1 for count in self.mesh.blocks.lanes)

    @functools.cached_property
    def process_cost(self) -> ProcessCost:
        program = process_program(self._device, self._inputs, is_of_lanes=False)  # each device is a process
        return self._process_cost(program, self.mesh.size)

    @property
    def shardings(self) -> tuple[list[Sharding], list[Sharding]]:
        count = self.structure.num_leaves
        kinds = (self._kinds or [None] * count)[:count], kinds_of_results(self.computation, self._kinds)
        layouts = (self._inputs[:count], self._device.layouts)
        given, results = (
            [shown(NamedSharding(owner, spec_of(x), memory_kind=k)) for (owner, x), k in zip(*side, strict=True)]
            for side in zip(layouts, kinds, strict=True)
        )
        return given, results

    def arguments(self, arrays: Sequence[Array]) -> list[Any]:
        kinds = self._kinds or (None,) * len(arrays)
        pairs = zip(self._inputs, kinds, arrays, strict=False)
        layouts = [NamedSharding(owner, spec_of(spec), memory_kind=kind) for (owner, spec), kind, _ in pairs]
        if not self.moves and self._are_over_mesh:
            check_agrees(self.computation.name, list(arrays), layouts)
        return [resharded(x, layout) for x, layout in zip(arrays, layouts, strict=True)]

    def run(self, leaves: Sequence[Any]) -> Any:
        executable = self._executable or self.executable
        if self.donate_argnums:
            check_donated_once(self.computation, leaves, self._donated)
        is_ready = self._are_over_mesh
        pairs = zip((*leaves, *self.captured), self._owners, strict=True)
        found = executable(
            [(x if is_ready and type(x) is ShardedArray else on_mesh(x, mesh)).block for x, mesh in pairs]
        )
        arrays = [result.array(block) for result, block in zip(self._sharded_results, found, strict=True)]
        signatures = {x.signature() for x in arrays} if self.donate_argnums else ()
        for k in self.donate_argnums:
            if leaves[k].signature() in signatures:
                leaves[k].delete()
        return arrays[0] if self._is_single else self.tree.unflatten(arrays)
