"""Meshes, partition specs and shardings over the one device there is."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.tracing.device import CPU, Device, Placement, check_device


class AxisType(enum.Enum):
    """Who decides how arrays are split along a mesh axis: the compiler, the types, or the function (`shard_map`)."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()


class _Unconstrained:
    """Leaves open how a dimension is split."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


class PartitionSpec(Placement, tuple[Any, ...]):
    """For each dimension of an array the mesh axis that it is split along, a tuple of such, or None.

    Example:
        >>> import tinyxla as tx
        >>> tx.sharding.PartitionSpec("x", None)
        PartitionSpec('x', None)
    """

    UNCONSTRAINED = _Unconstrained()

    def __new__(cls, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> PartitionSpec:
        spec = super().__new__(cls, [tuple(p) if isinstance(p, list) else p for p in partitions])
        spec.unreduced = frozenset(unreduced)
        spec.reduced = frozenset(reduced)
        return spec

    unreduced: frozenset[Any]
    reduced: frozenset[Any]

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __reduce__(self) -> Any:
        return (PartitionSpec, tuple(self))

    def update(self, *, unreduced: Any = None, reduced: Any = None, partitions: Any = None) -> PartitionSpec:
        """The same with other fields."""
        return PartitionSpec(
            *(self if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )


class AbstractMesh:
    """Named axes with sizes."""

    def __init__(
        self, axis_sizes: Sequence[int] = (), axis_names: Sequence[Any] = (), axis_types: Any = None, **ignored: Any
    ) -> None:
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if len(axis_sizes) != len(names):
            raise ArgumentError(f"A mesh must have a name for each of its axes {tuple(axis_sizes)}, but got {names}.")
        self.axis_sizes = tuple(int(n) for n in axis_sizes)
        self.axis_names = names
        self.axis_types: tuple[AxisType, ...] = tuple(axis_types or (AxisType.Auto,) * len(names))

    @property
    def shape(self) -> Mapping[Any, int]:
        """The sizes of the axes by name."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        return tuple(self.shape.items())

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axis_sizes)

    @property
    def empty(self) -> bool:
        """Whether there are no axes."""
        return not self.axis_names

    def _axes_of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(name for name, t in zip(self.axis_names, self.axis_types, strict=True) if t == kind)

    def _has_only(self, kind: AxisType) -> bool:
        return set(self.axis_types) == {kind}

    auto_axes = property(lambda self: self._axes_of_type(AxisType.Auto))
    explicit_axes = property(lambda self: self._axes_of_type(AxisType.Explicit))
    manual_axes = property(lambda self: self._axes_of_type(AxisType.Manual))
    are_all_axes_auto = property(lambda self: self._has_only(AxisType.Auto))
    are_all_axes_explicit = property(lambda self: self._has_only(AxisType.Explicit))
    are_all_axes_manual = property(lambda self: self._has_only(AxisType.Manual))

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The axes without devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def _key(self) -> Any:
        return type(self), self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items())
        return f"{type(self).__name__}({axes})"


class Mesh(AbstractMesh):
    """An array of devices with named axes. It is also a context, in which it is the current mesh.

    Args:
        devices: an array of devices. There is one device here, so all sizes are 1.
        axis_names: a name for each axis.

    Example:
        >>> import tinyxla as tx
        >>> tx.sharding.Mesh(tx.devices(), ("x",)).shape
        {'x': 1}
    """

    def __init__(self, devices: Any, axis_names: Any = (), axis_types: Any = None) -> None:
        self.devices: np.ndarray[Any, Any] = np.asarray(devices, dtype=object)
        for device in self.devices.flat:
            check_device("Mesh: devices", device)
        if self.devices.size > 1:
            raise ArgumentError(
                f"Mesh: there is one device, but the mesh has {self.devices.size}; use vmap with axis_name for named "
                "axes of other sizes."
            )
        super().__init__(self.devices.shape, axis_names, axis_types)
        self._outer: list[Any] = []

    @property
    def device_ids(self) -> np.ndarray[Any, Any]:
        return np.zeros(self.devices.shape, np.int64)

    local_devices = property(lambda self: [CPU] * self.devices.size)
    local_mesh = property(lambda self: self)
    is_multi_process = False

    def __enter__(self) -> Mesh:
        global _current
        self._outer.append(_current)
        _current = self
        return self

    def __exit__(self, *ignored: object) -> None:
        global _current
        _current = self._outer.pop()


_current: AbstractMesh = AbstractMesh()


def current_mesh() -> AbstractMesh:
    """The mesh of the innermost context; one without axes if there is none."""
    return _current


class _MeshContext:
    """Sets the current mesh at once, and for the block if it is used as a context."""

    def __init__(self, mesh: AbstractMesh) -> None:
        global _current
        self._before, _current = _current, mesh

    def __enter__(self) -> AbstractMesh:
        return _current

    def __exit__(self, *ignored: object) -> None:
        global _current
        _current = self._before


def set_mesh(mesh: AbstractMesh) -> _MeshContext:
    """Make a mesh the current one, also as a context."""
    return _MeshContext(mesh)


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[Any], axis_types: Any = None, *, devices: Any = None
) -> Mesh:
    """A mesh of those sizes and names over the devices.

    Raises:
        ArgumentError: there are fewer devices.
    """
    if math.prod(axis_shapes) != 1:
        raise ArgumentError(f"make_mesh: axis_shapes must take the one device there is, but are {tuple(axis_shapes)}.")
    return Mesh(np.full(tuple(axis_shapes), CPU, dtype=object), axis_names, axis_types)


class Sharding(Placement):
    """How an array is laid out over devices."""

    memory_kind: str | None = "device"

    @property
    def device_set(self) -> set[Device]:
        """The devices."""
        return {CPU}

    addressable_devices = device_set
    is_fully_addressable = True
    is_fully_replicated = True
    num_devices = 1

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the part on one device: all of it."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        """Which part of an array is on which device."""
        return {CPU: (slice(None),) * len(global_shape)}

    addressable_devices_indices_map = devices_indices_map

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether two shardings put the same parts on the same devices."""
        return isinstance(other, Sharding)

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same in a kind of memory: there is one."""
        return self


class SingleDeviceSharding(Sharding):
    """All of an array on one device."""

    def __init__(self, device: Device = CPU, *, memory_kind: str | None = None) -> None:
        check_device("SingleDeviceSharding", device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding)

    def __hash__(self) -> int:
        return hash(SingleDeviceSharding)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={CPU!r}, memory_kind=device)"


class NamedSharding(Sharding):
    """The dimensions of an array split along axes of a mesh.

    Raises:
        ShapeError: the spec names an axis that the mesh does not have.

    Example:
        >>> import tinyxla as tx
        >>> mesh = tx.sharding.Mesh(tx.devices(), ("x",))
        >>> tx.sharding.NamedSharding(mesh, tx.sharding.PartitionSpec("x")).spec
        PartitionSpec('x')
    """

    def __init__(self, mesh: AbstractMesh, spec: Any, *, memory_kind: str | None = None) -> None:
        self.mesh = mesh
        self.spec: PartitionSpec = PartitionSpec(*spec)
        for name in _names(self.spec):
            if name not in mesh.axis_names:
                raise ShapeError(f"NamedSharding: {self.spec} names {name!r}, but the mesh has the axes {mesh.shape}.")

    def update(self, *, spec: Any = None, **ignored: Any) -> NamedSharding:
        """The same with another spec."""
        return NamedSharding(self.mesh, self.spec if spec is None else spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and (self.mesh, self.spec) == (other.mesh, other.spec)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}, memory_kind=device)"


def _names(spec: PartitionSpec) -> Iterator[Any]:
    for part in spec:
        if part is not None and part is not PartitionSpec.UNCONSTRAINED:
            yield from part if isinstance(part, tuple) else (part,)  # pyright: ignore[reportUnknownVariableType]
