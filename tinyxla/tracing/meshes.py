"""Meshes: arrays of devices whose axes have names."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ContextDecorator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.tracing.device import Device, all_devices, check_device, default_device, process_index


class AxisType(enum.Enum):
    """Who decides how arrays are split along a mesh axis: the compiler, the types, or the function (`shard_map`).

    >>> from tinyxla.sharding import AbstractMesh, AxisType
    >>> mesh = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    >>> mesh.auto_axes, mesh.explicit_axes
    (('x',), ('y',))
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class AbstractMesh:
    """A mesh without devices: named axes with sizes, for planning programs that run elsewhere.

    Args:
        axis_sizes: the size of each axis.
        axis_names: a different name for each.
        axis_types: an `AxisType`, or one for each axis; by default the compiler decides.

    Raises:
        ArgumentError: names or types that are not as many as the axes, a name that is there twice, or None.

    >>> from tinyxla.sharding import AbstractMesh
    >>> mesh = AbstractMesh((2, 4), ("x", "y"))
    >>> mesh.shape, mesh.size
    ({'x': 2, 'y': 4}, 8)
    """

    def __init__(
        self, axis_sizes: Sequence[int] = (), axis_names: Sequence[Any] = (), axis_types: Any = None, **ignored: Any
    ) -> None:
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if len(axis_sizes) != len(names) or len(set(names)) < len(names):
            raise ArgumentError(
                f"A mesh must have a name for each of its axes {tuple(axis_sizes)}, each another one, but got {names}."
            )
        if None in names:
            raise ArgumentError(f"The name of a mesh axis must not be None, which stands for no axis, but got {names}.")
        self.axis_sizes = tuple(int(n) for n in axis_sizes)
        self.axis_names = names
        given: Any = axis_types or AxisType.Auto
        kinds = tuple(given) if isinstance(given, Sequence) else (given,) * len(names)
        if len(kinds) != len(names) or not all(isinstance(kind, AxisType) for kind in kinds):
            raise ArgumentError(
                f"axis_types must be an AxisType, or one for each of the axes {names}, but is {axis_types!r}."
            )
        self.axis_types: tuple[AxisType, ...] = kinds

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

    @functools.cached_property
    def blocks(self) -> Blocks:
        """How it lies in processes: each has one device, and this one would be the first.

        >>> from tinyxla.sharding import AbstractMesh
        >>> AbstractMesh((2, 4), ("x", "y")).blocks.processes
        (2, 4)
        """
        ranks = np.arange(self.size).reshape(self.axis_sizes)
        return Blocks(self.axis_sizes, (1,) * ranks.ndim, ranks, (0,) * ranks.ndim)

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

    def update(self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None) -> AbstractMesh:
        """The mesh with other fields.

        Args:
            axis_sizes: the number of devices along each axis; None keeps those of the mesh.
            axis_names: the name of each axis; None keeps those of the mesh.
            axis_types: an `AxisType`, or one for each axis; None keeps those of the mesh.

        Returns:
            An `AbstractMesh`.

        Raises:
            ArgumentError: names or types that do not fit the axes, or a name twice.

        >>> from tinyxla.sharding import AbstractMesh
        >>> AbstractMesh((2, 4), ("x", "y")).update(axis_sizes=(8, 8)).shape
        {'x': 8, 'y': 8}
        """
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def update_axis_types(self, name_to_type: Mapping[Any, AxisType]) -> AbstractMesh:
        """The mesh with other kinds for some axes.

        Args:
            name_to_type: the new `AxisType`s, by the names of axes.

        Returns:
            A mesh of the same axes.

        Raises:
            ArgumentError: an axis that the mesh does not have, or what is no `AxisType`.

        >>> from tinyxla.sharding import AbstractMesh, AxisType
        >>> AbstractMesh((2, 4), ("x", "y")).update_axis_types({"y": AxisType.Explicit}).axis_types
        (Auto, Explicit)
        """
        if not isinstance(name_to_type, Mapping) or not set(name_to_type) <= set(self.axis_names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"update_axis_types: takes types by the names of the axes {self.axis_names}, but got {name_to_type!r}."
            )
        kinds = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple(name_to_type.get(name, kind) for name, kind in kinds))

    def _key(self) -> Any:
        return type(self), self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, AbstractMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, "
            f"axis_types={self.axis_types})"
        )

    def __str__(self) -> str:
        axes = "".join(f"{name!r}: {size}, " for name, size in self.shape.items())
        return f"{type(self).__name__}({axes}axis_types={self.axis_types})"


class Blocks(NamedTuple):
    """How a mesh lies in processes. Axis k is `processes[k]` blocks of `lanes[k]` devices each; devices of one process
    differ in lanes alone.

    Attributes:
        processes, lanes: for each axis.
        ranks: an array of shape `processes` with the process of each block.
        own: the block of this process, by its place along each axis; None if it has no device of the mesh.
    """

    processes: tuple[int, ...]
    lanes: tuple[int, ...]
    ranks: np.ndarray[Any, Any]
    own: tuple[int, ...] | None


class Mesh(AbstractMesh, ContextDecorator):
    """An array of devices with named axes. It is also a context, or a decorator, in which it is the current mesh.

    Args:
        devices: an array of different devices.
        axis_names: a name for each axis.
        axis_types: an `AxisType`, or one for each axis; by default the compiler decides.

    Raises:
        ArgumentError: there are not as many names as axes, a device is there twice, or there is no such device.

    Example:
        >>> import tinyxla as tx
        >>> tx.sharding.Mesh(tx.devices(), ("x",)).shape
        {'x': 1}
    """

    def __init__(self, devices: Any, axis_names: Any = (), axis_types: Any = None) -> None:
        self.devices: np.ndarray[Any, Any] = np.asarray(devices, dtype=object)
        for device in self.devices.flat:
            check_device("Mesh: devices", device)
            if not isinstance(device, Device):
                raise ArgumentError(f"Mesh: devices must be an array of devices, but has {device!r}.")
        super().__init__(self.devices.shape, axis_names, axis_types)
        self._ids = tuple(device.id for device in self.devices.flat)
        if len(set(self._ids)) < len(self._ids):
            raise ArgumentError(f"Mesh: devices must be different ones, but are numbers {self._ids}.")
        self._outer: list[Any] = []

    def _key(self) -> Any:
        return *super()._key(), self._ids

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The mesh with other fields.

        Args:
            devices: an array of devices; None keeps those of the mesh.
            axis_names: the name of each axis; None keeps those of the mesh.
            axis_types: an `AxisType`, or one for each axis; None keeps those of the mesh.

        Returns:
            A `Mesh`.

        Raises:
            ArgumentError: what are no devices, names or types that do not fit the axes, or a name twice.

        >>> import tinyxla
        >>> tinyxla.make_mesh((1,), ("x",)).update(axis_names=("data",)).shape
        {'data': 1}
        """
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @property
    def device_ids(self) -> np.ndarray[Any, Any]:
        """The numbers of the devices."""
        return np.array(self._ids, np.int64).reshape(self.devices.shape)

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return [device for device in self.devices.flat if device.process_index == process_index()]

    @property
    def is_multi_process(self) -> bool:
        """Whether its devices are of several processes."""
        return len({device.process_index for device in self.devices.flat}) > 1

    is_committed = True
    """Whether arrays over it stay there: those on the device that `default_device` names go where others are."""

    @property
    def is_first_device(self) -> bool:
        """Whether it is the first device of this process alone, without axes that arrays could be split along."""
        return not self.axis_names and self._ids == (default_device().id,)

    @property
    def is_default_device(self) -> bool:
        """Whether arrays over it are like those that were not placed: there is no device that they could go to."""
        return len(self._ids) == 1 and self.is_first_device and len(all_devices()) == 1

    def count_processes(self, axes: Sequence[Any]) -> int:
        """The number of blocks of processes along axes.

        Args:
            axes: names of axes.

        Returns:
            A positive integer.

        Raises:
            ArgumentError: an axis that the mesh does not have.

        >>> import tinyxla
        >>> tinyxla.make_mesh((1,), ("x",)).count_processes(("x",))
        1
        """
        counts = dict(zip(self.axis_names, self.blocks.processes, strict=True))
        if not isinstance(axes, Iterable) or not set(axes) <= counts.keys():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"count_processes: axes must be some of {self.axis_names}, but got {axes!r}.")
        return math.prod(counts[name] for name in axes)

    @property
    def local_mesh(self) -> Mesh:
        """The part of this process."""
        blocks = self.blocks
        if blocks.own is None:
            raise ArgumentError(f"local_mesh: process {process_index()} has no device of {self}.")
        part = tuple(slice(o * n, (o + 1) * n) for o, n in zip(blocks.own, blocks.lanes, strict=True))
        return Mesh(self.devices[part], self.axis_names, self.axis_types)

    @functools.cached_property
    def blocks(self) -> Blocks:
        """How its devices lie in processes.

        Raises:
            ArgumentError: the devices of a process are no block of the mesh.

        >>> import tinyxla
        >>> tinyxla.make_mesh((1,), ("x",)).blocks.own
        (0,)
        """
        owners = np.array([d.process_index for d in self.devices.flat], np.int64).reshape(self.devices.shape)
        lanes: list[int] = []
        for axis, size in enumerate(self.axis_sizes):
            along = np.moveaxis(owners, axis, -1)
            fitting = [n for n in range(size, 0, -1) if size % n == 0 and _is_constant_in_blocks(along, n)]
            lanes.append(fitting[0] if size else 1)
        ranks = owners[tuple(slice(None, None, n) for n in lanes)]
        if len(set(ranks.flat)) < ranks.size:
            raise ArgumentError(
                f"{self}: the devices of each process must be one block of the mesh, but those of processes "
                f"{sorted(set(ranks.flat))} are {owners.tolist()}; use make_mesh, or order them by process."
            )
        places = np.argwhere(ranks == process_index())
        own = tuple(map(int, places[0])) if len(places) else None
        return Blocks(ranks.shape, tuple(lanes), ranks, own)

    def __enter__(self) -> Mesh:
        self._outer.append((context.mesh, context.is_set))
        context.use(self)
        return self

    def __exit__(self, *ignored: object) -> None:
        context.use(*self._outer.pop())


def _is_constant_in_blocks(owners: np.ndarray[Any, Any], size: int) -> bool:
    """Whether along the last axis each block of that size has one owner."""
    blocks = owners.reshape(*owners.shape[:-1], -1, size)
    return bool((blocks == blocks[..., :1]).all())


class UncommittedDevice(Mesh):
    """The device that `default_device` names: arrays on it go where arrays are that were put somewhere."""

    is_committed = False


class _Context:
    """The mesh of the innermost context, and a number that stands for it, by which compiled functions are kept.

    Attributes:
        mesh: the mesh.
        is_set: whether `set_mesh` did that, and not a `with` block of the mesh itself.
        device: that which `default_device` names, as a mesh without axes; None if that is the first one.
        key: all of it.
        programs: the mesh over which programs are whose arrays do not say it; None if that is the first device.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.device: Mesh | None = None
        self.use(AbstractMesh())

    def use(self, mesh: AbstractMesh, is_set: bool = False) -> None:
        self.mesh = mesh
        self.is_set = is_set
        self._changed()

    def use_device(self, device: Mesh | None) -> None:
        self.device = None if device is None or device.is_first_device else device
        self._changed()

    def _changed(self) -> None:
        has_devices = self.is_set and isinstance(self.mesh, Mesh) and not self.mesh.is_default_device
        self.programs: Any = self.mesh if has_devices else self.device
        self.key = self.mesh, self.is_set, self.device
        self.number = self._numbers.setdefault(self.key, len(self._numbers))


context = _Context()


def current_mesh() -> AbstractMesh:
    """The mesh of the innermost context; one without axes if there is none.

    Returns:
        A mesh.

    >>> import tinyxla
    >>> from tinyxla.sharding import get_mesh
    >>> with tinyxla.make_mesh((1,), ("x",)):
    ...     get_mesh().shape
    {'x': 1}
    >>> get_mesh().empty
    True
    """
    return context.mesh


class _MeshContext:
    """Sets the current mesh at once, and for the block if it is used as a context."""

    def __init__(self, mesh: AbstractMesh) -> None:
        self._before = context.mesh, context.is_set
        context.use(mesh, is_set=True)

    def __enter__(self) -> AbstractMesh:
        return context.mesh

    def __exit__(self, *ignored: object) -> None:
        context.use(*self._before)


def set_mesh(mesh: AbstractMesh) -> _MeshContext:
    """Make a mesh the current one, also as a context: specs without a mesh are for it, and compiled functions of arrays
    that were not placed run over it, so that each device has their results.

    Args:
        mesh: a mesh.

    Returns:
        A context manager, at whose end the mesh is the one before.

    Raises:
        ArgumentError: what is no mesh, or one of manual axes.

    Example:
        >>> import tinyxla as tx
        >>> with tx.set_mesh(tx.make_mesh((1,), ("x",))):
        ...     tx.NamedSharding(tx.sharding.get_mesh(), tx.P("x")).spec
        PartitionSpec('x')
    """
    if not isinstance(mesh, AbstractMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(mesh).__name__
        raise ArgumentError(f"set_mesh: takes a mesh, such as make_mesh gives, but got {mesh!r} of type {kind}.")
    if AxisType.Manual in mesh.axis_types:
        raise ArgumentError(
            f"set_mesh: {mesh} has manual axes, which are those of a function of shard_map; make a mesh whose axes are "
            "Auto or Explicit."
        )
    return _MeshContext(mesh)


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[Any], axis_types: Any = None, *, devices: Any = None
) -> Mesh:
    """A mesh of those sizes and names.

    Args:
        axis_shapes: the number of devices along each axis.
        axis_names: the name of each axis.
        axis_types: an `AxisType`, or one for each axis.
        devices: by default the first ones of all processes.

    Returns:
        A mesh.

    Raises:
        ArgumentError: sizes that are no integers, or there are fewer devices.

    Example:
        >>> import tinyxla as tx
        >>> tx.make_mesh((1,), ("x",))
        Mesh(axis_sizes=(1,), axis_names=('x',), axis_types=(Auto,))
    """
    given = list(all_devices() if devices is None else devices)
    if not all(hasattr(n, "__index__") for n in axis_shapes):
        raise ArgumentError(f"make_mesh: axis_shapes must be a sequence of integers, but is {axis_shapes!r}.")
    count = math.prod(axis_shapes)
    if count > len(given):
        raise ArgumentError(
            f"make_mesh: axis_shapes {tuple(axis_shapes)} take {count} devices, but there are {len(given)}; start "
            "several processes, or set the option num_cpu_devices."
        )
    grid = np.empty(count, dtype=object)
    grid[:] = given[:count]
    return Mesh(grid.reshape(tuple(axis_shapes)), axis_names, axis_types)
