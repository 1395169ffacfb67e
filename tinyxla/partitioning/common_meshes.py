"""Programs over several meshes of the same devices: the axes of one common mesh are parts of the axes of all.

Along an axis of a mesh, devices are a fixed stride apart in the order of all devices. The strides of all meshes, where
each divides the next, are those of the common mesh; an axis of another mesh is then one or several of its axes.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.tracing.meshes import AbstractMesh, Mesh
from tinyxla.tracing.shardings import UNCONSTRAINED, Spec, axes_of


def has_same_devices(mesh: AbstractMesh, other: AbstractMesh) -> bool:
    """Whether two meshes have the same devices in the same order."""
    if mesh == other:
        return True
    if not (isinstance(mesh, Mesh) and isinstance(other, Mesh)):
        return False
    return mesh.device_ids.ravel().tolist() == other.device_ids.ravel().tolist()


@lru_cache(256)
def common_mesh(mesh: AbstractMesh, others: tuple[AbstractMesh, ...], mapped: tuple[AbstractMesh, ...]) -> AbstractMesh:
    """A mesh of the same devices, whose axes are parts of those of all.

    Args:
        mesh: the first one; the result has its devices, if it has any.
        others: further ones.
        mapped: those over which functions of parts are mapped, whose axes stay what they are.

    Raises:
        ArgumentError: the meshes have different numbers of devices, or their axes are no parts of each other.
    """
    meshes = list(dict.fromkeys((*mapped, mesh, *others)))
    for other in meshes:
        if other.size != mesh.size:
            raise ArgumentError(
                f"A program is over {mesh.size} devices, as {mesh}, but a sharding in it is over {other.size}, as "
                f"{other}; use meshes of as many devices."
            )
    ends = sorted({1, mesh.size, *(stride for other in meshes for stride in strides_of(other).values())})
    for low, high in itertools.pairwise(ends):
        if high % low:
            raise ArgumentError(
                f"A program is over meshes whose axes are no parts of each other: {' and '.join(map(str, meshes))}; "
                "use meshes whose sizes divide those of the others, or two programs."
            )
    named: dict[Any, tuple[int, int]] = {}  # the axes of the common mesh: where one begins and ends
    spans = list(itertools.pairwise(ends))
    for other in meshes:
        strides = strides_of(other)
        for name, size in other.shape_tuple:
            span = strides[name], strides[name] * size
            is_new = span not in named.values() if size > 1 else other in mapped
            if name not in named and is_new and (size == 1 or span in spans):
                named[name] = span
    unnamed = [span for span in spans if span not in named.values()]
    named.update({f"{low}:{high}": (low, high) for low, high in unnamed})
    for other in mapped:
        for name, size in other.shape_tuple:
            stride = strides_of(other)[name]
            if named.get(name) != (stride, stride * size):
                raise ArgumentError(
                    f"A program has a function of parts over {other}, and arrays over a mesh of the same devices whose "
                    f"axes are parts of the axis {name!r} or have its name: {' and '.join(map(str, meshes))}; use one "
                    "mesh for both."
                )
    ordered = sorted(named.items(), key=lambda entry: -entry[1][1])
    sizes, names = [high // low for _, (low, high) in ordered], [name for name, _ in ordered]
    return Mesh(mesh.devices.reshape(sizes), names) if isinstance(mesh, Mesh) else AbstractMesh(sizes, names)


def divides_axes(mesh: AbstractMesh, other: AbstractMesh) -> bool:
    """Whether an axis of a mesh begins inside of an axis of another one."""
    spans = [(stride, stride * other.shape[name]) for name, stride in strides_of(other).items()]
    return any(low < stride < high for stride in strides_of(mesh).values() for low, high in spans)


def strides_of(mesh: AbstractMesh) -> dict[Any, int]:
    """For each axis how far apart devices are along it, in the order of all."""
    strides: dict[Any, int] = {}
    stride = 1
    for name in reversed(mesh.axis_names):
        strides[name] = stride
        stride *= mesh.shape[name]
    return strides


@lru_cache(1024)
def translated(spec: Spec, mesh: AbstractMesh, other: AbstractMesh) -> Spec | None:
    """How an array that is split over a mesh is split over another one of the same devices in the same order; None if
    it cannot be said by axes of that one."""
    if mesh.shape_tuple == other.shape_tuple:
        return spec
    sizes, strides = other.shape, strides_of(other)
    found: list[tuple[Any, ...]] = []
    for axes in spec:
        remaining = [(strides_of(mesh)[name], mesh.shape[name]) for name in axes if mesh.shape[name] > 1]
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


def over_common_mesh(computation: Computation, common: AbstractMesh) -> Computation:
    """The computation whose constraints and functions of parts are over a common mesh."""
    new: dict[Instruction, Instruction] = {}
    for x in computation.instructions:
        attributes: Any = x.attributes
        if x.op.name in ("while", "conditional"):
            changed = map_computations(attributes._asdict(), lambda inner: over_common_mesh(inner, common))
            attributes = type(attributes)(**changed)
        elif x.op.name == "sharding-constraint" and not attributes.mesh.empty:
            found = translated(tuple(map(axes_of, attributes.spec)), attributes.mesh, common)
            assert found is not None
            pairs = zip(attributes.spec, found, strict=True)
            spec = tuple(part if part is UNCONSTRAINED else axes for part, axes in pairs)
            attributes = attributes._replace(mesh=common, spec=spec)
        elif x.op.name == "shard-map":
            attributes = attributes._replace(mesh=common, manual_axes=tuple(attributes.own_axes))
        operands = [new[o] for o in x.operands]
        new[x] = Instruction(x.op, operands, attributes, x.shape, x.source, x.name, x.annotations, x.origin)
    parameters = [new[p] for p in computation.parameters]
    return Computation(computation.name, parameters, [*new.values()], new[computation.root])
