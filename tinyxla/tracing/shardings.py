"""Shardings: which part of an array is on which device."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.device import Device, Placement, check_device, default_device, process_index
from tinyxla.tracing.meshes import AbstractMesh, Mesh

Index = tuple[slice, ...]
Spec = tuple[tuple[Any, ...], ...]  # for each dimension the mesh axes that it is split along, major to minor


class _Unconstrained:
    """Leaves open how a dimension is split."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # all are the memory of the machine


class PartitionSpec(Placement, tuple[Any, ...]):
    """For each dimension of an array the mesh axis that it is split along, a tuple of such, or None. Dimensions that it
    does not name are whole.

    Args:
        partitions: the entries.
        unreduced: a set of explicit mesh axes: the array is the sum of what the devices along them have (partial sums).
        reduced: a set of explicit mesh axes along which devices have the same, and whose cotangents are unreduced.

    Raises:
        ArgumentError: an axis in two of these.
        DTypeError: unreduced or reduced that is no set.

    Example:
        >>> import tinyxla as tx
        >>> tx.sharding.PartitionSpec("x", None)
        PartitionSpec('x', None)
    """

    UNCONSTRAINED = UNCONSTRAINED

    def __new__(cls, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> PartitionSpec:
        has_sums = unreduced or reduced
        kind: Any = _OfPartialSums if has_sums else cls
        spec = super().__new__(kind, map(_entry, partitions))
        sums = _axes_of_sums(spec, unreduced, reduced) if has_sums else (frozenset[Any](), frozenset[Any]())
        spec.unreduced, spec.reduced = sums
        return spec

    unreduced: frozenset[Any]
    reduced: frozenset[Any]

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join((*map(repr, self), *self.shown_sums()))})"

    def shown_sums(self) -> list[str]:
        """The sets of axes of partial sums as they are printed, as far as there are any.

        Returns:
            A list of texts.

        >>> from tinyxla import P
        >>> P("x", unreduced={"y"}).shown_sums()
        ["unreduced={'y'}"]
        """
        pairs = ("unreduced", self.unreduced), ("reduced", self.reduced)
        return [f"{what}={{{', '.join(sorted(map(repr, axes)))}}}" for what, axes in pairs if axes]

    def __add__(self, other: tuple[Any, ...]) -> PartitionSpec:
        return self.update(partitions=(*self, *other))

    def __radd__(self, other: tuple[Any, ...]) -> PartitionSpec:
        return self.update(partitions=(*other, *self))

    def __reduce__(self) -> Any:
        return (PartitionSpec, tuple(self))

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries."""
        return tuple(self)

    def update(self, *, unreduced: Any = None, reduced: Any = None, partitions: Any = None) -> PartitionSpec:
        """The same with other fields.

        Args:
            unreduced, reduced: sets of mesh axes; None keeps those of the spec.
            partitions: a sequence of entries; None keeps those of the spec.

        Returns:
            A `PartitionSpec`.

        Raises:
            ArgumentError: partitions that are no sequence.

        >>> from tinyxla import P
        >>> P("x", None).update(partitions=("x", "y"))
        PartitionSpec('x', 'y')
        """
        if partitions is not None and (isinstance(partitions, str) or not isinstance(partitions, Iterable)):
            raise ArgumentError(
                f"PartitionSpec.update: partitions must be a sequence of entries, but got {partitions!r}."
            )
        return PartitionSpec(
            *(self if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def to_ct_spec(self) -> PartitionSpec:
        """That of cotangents: unreduced axes are reduced, and the other way round.

        Returns:
            A `PartitionSpec`.

        >>> from tinyxla import P
        >>> P("x", unreduced={"y"}).to_ct_spec()
        PartitionSpec('x', reduced={'y'})
        """
        return self.update(unreduced=self.reduced, reduced=self.unreduced)


class _OfPartialSums(PartitionSpec):
    """A spec with axes of partial sums, by which it differs from others."""

    def _sums(self) -> Any:
        return self.unreduced, self.reduced

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OfPartialSums) and tuple(self) == tuple(other) and self._sums() == other._sums()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self._sums()))

    def __reduce__(self) -> Any:
        return (functools.partial(PartitionSpec, unreduced=self.unreduced, reduced=self.reduced), tuple(self))


def _axes_of_sums(spec: PartitionSpec, unreduced: Any, reduced: Any) -> tuple[frozenset[Any], frozenset[Any]]:
    """The axes of partial sums of a spec."""
    names = {name for part in spec for name in axes_of(part)}
    for what, axes in (("unreduced", unreduced), ("reduced", reduced)):
        if not isinstance(axes, set | frozenset):
            raise DTypeError(f"PartitionSpec: {what} is a set of mesh axes, but got {axes!r}.")
        if None in axes:
            raise ArgumentError(f"PartitionSpec: {what} is a set of mesh axes, but has None; leave it out.")
        if axes & names:
            raise ArgumentError(
                f"PartitionSpec: the entries {tuple(spec)} and {what} {set(axes)} must not name the same axis."
            )
    if unreduced & reduced:
        raise ArgumentError(f"PartitionSpec: unreduced {unreduced} and reduced {reduced} must not name the same axis.")
    return frozenset(unreduced), frozenset(reduced)


def _entry(part: Any) -> Any:
    """An entry of a `PartitionSpec` in its one form: an axis alone is no tuple."""
    names = tuple(part) if isinstance(part, list) else part
    if not isinstance(names, tuple):
        return names
    return names if len(names) > 1 else names[0] if names else None


def _shape_of(shape: Any, what: str = "Sharding") -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise ArgumentError(f"{what}: a shape is a sequence of integers, but got {shape!r}.")
    return tuple(shape)


def axes_of(part: Any) -> tuple[Any, ...]:
    """The mesh axes that an entry of a `PartitionSpec` names."""
    if part is None or part is UNCONSTRAINED:
        return ()
    return part if isinstance(part, tuple) else (part,)


def spec_of(spec: Spec, rank: int = 0) -> PartitionSpec:
    """A `PartitionSpec` of the axes of each dimension, without whole ones at the end but up to a rank."""
    parts: list[Any] = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in spec]
    while len(parts) > rank and parts[-1] is None:
        parts.pop()
    sums = sums_of(spec)
    return PartitionSpec(*parts, unreduced=sums.unreduced, reduced=sums.reduced)


class Sums(NamedTuple):
    """The axes of partial sums of an array: along unreduced ones it is the sum of what devices have, along reduced ones
    its cotangent is."""

    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    @property
    def dual(self) -> Sums:
        """Those of the cotangent."""
        return Sums(self.reduced, self.unreduced)


NO_SUMS = Sums()


class _SpecOfSums(tuple[tuple[Any, ...], ...]):
    """For each dimension the mesh axes that it is split along, and axes of partial sums, by which it differs from
    others."""

    sums: Sums

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SpecOfSums) and tuple(self) == tuple(other) and self.sums == other.sums

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.sums))


def sums_of(spec: Any) -> Sums:
    """The axes of partial sums of a spec."""
    if isinstance(spec, _SpecOfSums):
        return spec.sums
    return Sums(spec.unreduced, spec.reduced) if isinstance(spec, _OfPartialSums) else NO_SUMS


def with_sums(spec: Iterable[Any], sums: Sums) -> Any:
    """For each dimension the axes that it is split along, and axes of partial sums, if there are any."""
    if sums == NO_SUMS:
        return tuple(spec)
    made = _SpecOfSums(spec)
    made.sums = sums
    return made


def dual_of(spec: Any) -> Any:
    """The spec of cotangents."""
    return with_sums(spec, sums_of(spec).dual)


class Splitting(NamedTuple):
    """How parts of an array become leading dimensions: a reshape to `sizes`, and a transpose by `permutation`. There is
    a dimension for each axis that splits one, in the order of the axes, and then those of a part."""

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]

    @property
    def inverse(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The permutation back, and the sizes before it."""
        return tuple(int(k) for k in np.argsort(self.permutation)), tuple(self.sizes[d] for d in self.permutation)


def splitting(shape: Sequence[int], spec: Spec, axes: Sequence[tuple[Any, int]]) -> Splitting:
    """How an array is split under a spec, along axes of these names and sizes."""
    counts = dict(axes)
    sizes: list[int] = []
    place: dict[Any, int] = {}
    rest: list[int] = []
    for size, names in zip(shape, spec, strict=True):
        for name in names:
            place[name] = len(sizes)
            sizes.append(counts[name])
            size //= counts[name]
        rest.append(len(sizes))
        sizes.append(size)
    leading = [place[name] for name, _ in axes if name in place]
    return Splitting(tuple(sizes), (*leading, *rest))


def _checked_kind(what: str, kind: str | None) -> str:
    if kind is not None and kind not in MEMORY_KINDS:
        raise ArgumentError(f"{what}: memory_kind must be one of {MEMORY_KINDS}, but is {kind!r}.")
    return kind or "device"


class Sharding(Placement):
    """Which part of an array is on which device: the base class.

    >>> import tinyxla
    >>> from tinyxla.sharding import Sharding
    >>> isinstance(tinyxla.numpy.ones(2).sharding, Sharding)
    True
    """

    memory_kind: str = "device"  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def device_set(self) -> set[Device]:
        """The devices."""
        raise NotImplementedError

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        """The part of an array of this shape that each device has.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            For each device a slice for each dimension.

        Raises:
            ArgumentError: what is no shape.
            ShapeError: a mesh without devices, or an array that is not divided evenly.

        >>> import tinyxla
        >>> tinyxla.numpy.ones(4).sharding.devices_indices_map((4,))
        {CpuDevice(id=0): (slice(None, None, None),)}
        """
        raise NotImplementedError

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the part that each device has.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            A tuple of sizes.

        Raises:
            ArgumentError: what is no shape.
            ShapeError: an array that is not divided evenly.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((4,), ("x",)), P(None, "x")).shard_shape((3, 8))
        (3, 2)
        """
        raise NotImplementedError

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        return {device for device in self.device_set if device.process_index == process_index()}

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process has some of the devices."""
        return bool(self.addressable_devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are of this process."""
        return len(self.addressable_devices) == self.num_devices

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of an array."""
        return True

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self.device_set)

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        """The part of an array of this shape that each device of this process has.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            For each device a slice for each dimension.

        Raises:
            ArgumentError: what is no shape.

        >>> import tinyxla
        >>> tinyxla.numpy.ones(4).sharding.addressable_devices_indices_map((4,))
        {CpuDevice(id=0): (slice(None, None, None),)}
        """
        own = self.addressable_devices
        return {device: index for device, index in self.devices_indices_map(global_shape).items() if device in own}

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether two shardings put the same parts of an array of so many dimensions on the same devices.

        Args:
            other: a sharding; anything else is none that is equivalent.
            ndim: the number of dimensions of arrays.

        Returns:
            True or False.

        >>> import tinyxla
        >>> mesh = tinyxla.make_mesh((1,), ("x",))
        >>> split, whole = (tinyxla.NamedSharding(mesh, spec) for spec in (tinyxla.P("x"), tinyxla.P()))
        >>> split == whole, split.is_equivalent_to(whole, ndim=1)  # the axis has one device
        (False, True)
        """
        is_alike = isinstance(other, Sharding) and self.memory_kind == other.memory_kind
        return is_alike and self._unreduced() == other._unreduced() and self._tiles(ndim) == other._tiles(ndim)

    def _unreduced(self) -> frozenset[Any]:
        """The axes along which devices have summands."""
        return frozenset()

    def _tiles(self, ndim: int) -> Any:
        """For each device, along each dimension how many parts there are, and which of them it has."""
        return {device.id: ((1, 0),) * ndim for device in self.device_set}

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same in a kind of memory. On a CPU all kinds are the memory of the machine: arrays say which was asked
        for, and programs compute the same.

        Args:
            kind: "device", "pinned_host" or "unpinned_host".

        Returns:
            A sharding.

        Raises:
            ArgumentError: another kind.

        >>> import tinyxla
        >>> tinyxla.numpy.ones(4).sharding.with_memory_kind("pinned_host").memory_kind
        'pinned_host'
        """
        made = copy.copy(self)
        made.memory_kind = _checked_kind(type(self).__name__, kind)
        return made

    def without_dimension(self, d: int, ndim: int) -> Sharding:
        """The sharding of arrays that lack a dimension of the `ndim` that there are.

        Args:
            d: the dimension.
            ndim: the number of dimensions that there are.

        Returns:
            A sharding of arrays of one dimension less.

        Raises:
            AxisError: a dimension that is not there.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((4,), ("x",)), P(None, "x")).without_dimension(0, 2).spec
        PartitionSpec('x')
        """
        return self


class SingleDeviceSharding(Sharding):
    """All of an array on one device, by default the first one of this process.

    >>> import tinyxla
    >>> from tinyxla.sharding import SingleDeviceSharding
    >>> SingleDeviceSharding(tinyxla.devices()[0]).shard_shape((8, 3))
    (8, 3)
    """

    def __init__(self, device: Device | None = None, *, memory_kind: str | None = None) -> None:
        check_device("SingleDeviceSharding", device)
        self._device = device if isinstance(device, Device) else default_device()
        self.memory_kind = _checked_kind("SingleDeviceSharding", memory_kind)

    @property
    def device_set(self) -> set[Device]:
        """The device."""
        return {self._device}

    @property
    def layout(self) -> NamedSharding:
        """The same over a mesh without axes."""
        return layout_on(self._device, self.memory_kind)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array: the device has all of it.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            The same shape, as a tuple.

        Raises:
            ArgumentError: what is no shape.

        >>> from tinyxla.sharding import SingleDeviceSharding
        >>> SingleDeviceSharding().shard_shape((3, 8))
        (3, 8)
        """
        return _shape_of(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        """For the one device the slices of the whole array.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            For the device a slice for each dimension.

        Raises:
            ArgumentError: what is no shape.

        >>> from tinyxla.sharding import SingleDeviceSharding
        >>> SingleDeviceSharding().devices_indices_map((3,))
        {CpuDevice(id=0): (slice(None, None, None),)}
        """
        return {self._device: (slice(None),) * len(_shape_of(global_shape))}

    def __eq__(self, other: object) -> bool:
        is_single = isinstance(other, SingleDeviceSharding)
        return is_single and (self._device, self.memory_kind) == (other._device, other.memory_kind)

    def __hash__(self) -> int:
        return hash(self._device.id)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"


def default_sharding() -> SingleDeviceSharding:
    """That of arrays which were not placed."""
    return _sharding_on(default_device())


@functools.lru_cache(64)
def _sharding_on(device: Device) -> SingleDeviceSharding:
    return SingleDeviceSharding(device)


def layout_on(device: Device, memory_kind: str = "device") -> NamedSharding:
    """All of an array on one device, as a sharding over a mesh without axes."""
    grid = np.empty((), dtype=object)
    grid[()] = device
    return NamedSharding(Mesh(grid), PartitionSpec(), memory_kind=memory_kind)


def _check_axes_of_sums(mesh: AbstractMesh, spec: PartitionSpec) -> None:
    """Refuse axes of partial sums that the mesh does not have, or that are not part of types."""
    for what, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        for name in sorted(axes, key=str):
            if name not in mesh.axis_names:
                raise ShapeError(
                    f"NamedSharding: {what} of {spec} names {name!r}, but the mesh has the axes {mesh.shape}."
                )
            if name in mesh.auto_axes:
                raise ShapeError(
                    f"NamedSharding: {what} of {spec} names {name!r}, but only explicit axes may be there; the mesh is "
                    f"{mesh}."
                )


class NamedSharding(Sharding):
    """The dimensions of an array split along axes of a mesh. Each device has one part; along mesh axes that the spec
    does not name the parts are the same.

    Raises:
        ArgumentError: what is no mesh, or no spec.
        ShapeError: the spec names an axis that the mesh does not have, or one twice.

    Example:
        >>> import tinyxla as tx
        >>> mesh = tx.sharding.Mesh(tx.devices(), ("x",))
        >>> tx.sharding.NamedSharding(mesh, tx.sharding.PartitionSpec("x")).spec
        PartitionSpec('x')
    """

    def __init__(self, mesh: AbstractMesh, spec: Any, *, memory_kind: str | None = None) -> None:
        self.mesh = mesh
        self.memory_kind = _checked_kind("NamedSharding", memory_kind)
        if spec is None or not isinstance(mesh, AbstractMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"NamedSharding: takes a mesh and a PartitionSpec, but got {mesh!r} and {spec!r}.")
        self.spec: PartitionSpec = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        names = [name for part in self.spec for name in axes_of(part)]
        for name in names:
            if name not in mesh.axis_names:
                raise ShapeError(f"NamedSharding: {self.spec} names {name!r}, but the mesh has the axes {mesh.shape}.")
        if isinstance(self.spec, _OfPartialSums):
            _check_axes_of_sums(mesh, self.spec)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ShapeError(
                f"NamedSharding: {self.spec} must not name the axis {twice!r} twice; a part is along one dimension."
            )

    def update(self, *, mesh: Any = None, spec: Any = None, memory_kind: str | None = None) -> NamedSharding:
        """The same with other fields.

        Args:
            mesh: a mesh; None keeps that of the sharding.
            spec: a `PartitionSpec`, or a sequence of entries; None keeps that of the sharding.
            memory_kind: a kind of memory; None keeps that of the sharding.

        Returns:
            A `NamedSharding`.

        Raises:
            ArgumentError: what is no spec, or another kind of memory.
            ShapeError: a spec that names an axis which the mesh does not have, or one twice.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> sharding = NamedSharding(AbstractMesh((2, 4), ("x", "y")), P("x"))
        >>> sharding.update(spec=P(None, "y")).spec
        PartitionSpec(None, 'y')
        """
        if spec is not None and (isinstance(spec, str) or not isinstance(spec, Iterable)):
            raise ArgumentError(f"NamedSharding.update: spec must be a PartitionSpec, but got {spec!r}.")
        mesh = self.mesh if mesh is None else mesh
        return NamedSharding(mesh, self.spec if spec is None else spec, memory_kind=memory_kind or self.memory_kind)

    @property
    def _devices(self) -> np.ndarray[Any, Any]:
        if not isinstance(self.mesh, Mesh):
            raise ShapeError(f"{self}: an AbstractMesh has no devices; use a Mesh.")
        return self.mesh.devices

    @functools.cached_property
    def device_set(self) -> set[Device]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The devices of the mesh.

        >>> import tinyxla
        >>> tinyxla.NamedSharding(tinyxla.make_mesh((1,), ("x",)), tinyxla.P("x")).device_set
        {CpuDevice(id=0)}
        """
        return set(self._devices.flat)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of an array."""
        return math.prod(self._parts(part) for part in (*self.spec, tuple(self.spec.unreduced))) == 1

    def _unreduced(self) -> frozenset[Any]:
        return self.spec.unreduced

    @property
    def named_axes(self) -> frozenset[Any]:
        """The axes that the spec names."""
        return frozenset(name for part in self.spec for name in axes_of(part))

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The axes along which all devices have the same."""
        return frozenset(self.mesh.axis_names).difference(*map(axes_of, self.spec), *sums_of(self.spec))

    def _parts(self, part: Any) -> int:
        return math.prod(self.mesh.shape[name] for name in axes_of(part))

    def dimension_axes(self, shape: Sequence[int], what: str = "NamedSharding") -> Spec:
        """For each dimension of an array the mesh axes that it is split along.

        Args:
            shape: the shape of the whole array.
            what: what needs the axes, for the text of errors.

        Returns:
            For each dimension a tuple of names of axes, empty for one that is not split.

        Raises:
            ShapeError: the array has fewer dimensions, or one whose size the axes do not divide.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((2, 4), ("x", "y")), P(("x", "y"))).dimension_axes((16, 3))
        (('x', 'y'), ())
        """
        shape = _shape_of(shape, what)
        if len(self.spec) > len(shape):
            raise ShapeError(
                f"{what}: {self.spec} speaks of {len(self.spec)} dimensions, but the array has the shape "
                f"{tuple(shape)}; leave out the last ones."
            )
        spec = tuple(axes_of(part) for part in (*self.spec, *[None] * (len(shape) - len(self.spec))))
        for d, (size, axes) in enumerate(zip(shape, spec, strict=True)):
            if size % self._parts(axes):
                raise ShapeError(
                    f"{what}: the size of dimension {d} of {tuple(shape)} must be a multiple of {self._parts(axes)}, "
                    f"the number of parts along {' and '.join(map(repr, axes))}, where all dimensions have "
                    f"{[self._parts(a) for a in spec]} parts; pad it, or leave it whole."
                )
        return with_sums(spec, sums_of(self.spec)) if isinstance(self.spec, _OfPartialSums) else spec

    def with_rank(self, rank: int) -> NamedSharding:
        """The same, with an entry in the spec for each dimension of an array, and without `None`s for further ones.

        Args:
            rank: the number of dimensions.

        Returns:
            A sharding over the same mesh; this one, if its spec has as many entries, or says how others are split.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((2,), ("x",)), P("x")).with_rank(2).spec
        PartitionSpec('x', None)
        """
        missing = rank - len(self.spec)
        if missing < 0 and all(part is None for part in self.spec[rank:]):
            return self.update(spec=self.spec.update(partitions=self.spec[:rank]))
        return self.update(spec=self.spec.update(partitions=(*self.spec, *[None] * missing))) if missing > 0 else self

    def with_even_parts(self, shape: Sequence[int]) -> NamedSharding:
        """The same, but whole along dimensions of an array that have no equal parts.

        Args:
            shape: that of the array.

        Returns:
            A sharding over the same mesh; this one, if all parts are equal.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((2, 4), ("x", "y")), P("x", "y")).with_even_parts((8, 6)).spec
        PartitionSpec('x', None)
        """
        odd = [k for k, (part, n) in enumerate(zip(self.spec, shape, strict=False)) if n % self._parts(part)]
        parts = [None if k in odd else part for k, part in enumerate(self.spec)]
        return self.update(spec=self.spec.update(partitions=parts)) if odd else self

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the part that each device has.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            A tuple of sizes.

        Raises:
            ShapeError: the array has fewer dimensions than the spec, or one whose size the axes do not divide.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((2, 4), ("x", "y")), P("y", None)).shard_shape((8, 3))
        (2, 3)
        """
        spec = self.dimension_axes(global_shape)
        return tuple(n // self._parts(axes) for n, axes in zip(global_shape, spec, strict=True))

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        """The part of an array of this shape that each device has.

        Args:
            global_shape: the shape of the whole array.

        Returns:
            For each device a slice for each dimension.

        Raises:
            ArgumentError: what is no shape.
            ShapeError: a mesh without devices, or an array that is not divided evenly.

        >>> import tinyxla
        >>> sharding = tinyxla.NamedSharding(tinyxla.make_mesh((1,), ("x",)), tinyxla.P("x"))
        >>> sharding.devices_indices_map((4, 2))
        {CpuDevice(id=0): (slice(None, None, None), slice(None, None, None))}
        """
        sizes = self.shard_shape(global_shape)
        tiles = self._tiles(len(global_shape))

        def index(tile: Any) -> Index:
            pairs = zip(tile, sizes, strict=True)
            return tuple(slice(k * n, (k + 1) * n) if count > 1 else slice(None) for (count, k), n in pairs)

        return {device: index(tiles[device.id]) for device in self._devices.flat}

    def without_dimension(self, d: int, ndim: int) -> NamedSharding:
        """The sharding of arrays that lack a dimension of the `ndim` that there are.

        Args:
            d: the dimension.
            ndim: the number of dimensions that there are.

        Returns:
            A sharding of arrays of one dimension less.

        Raises:
            AxisError: a dimension that is not there.

        >>> from tinyxla import NamedSharding, P
        >>> from tinyxla.sharding import AbstractMesh
        >>> NamedSharding(AbstractMesh((2, 4), ("x", "y")), P("x", "y")).without_dimension(0, 2).spec
        PartitionSpec('y')
        """
        d = canonical_axis(d, ndim, "without_dimension")
        spec = (*self.spec, *[None] * (ndim - len(self.spec)))
        return self.update(spec=self.spec.update(partitions=(*spec[:d], *spec[d + 1 :])))

    def _tiles(self, ndim: int) -> Any:
        spec = tuple(axes_of(part) for part in (*self.spec, *[None] * (ndim - len(self.spec))))
        found: dict[int, tuple[tuple[int, int], ...]] = {}
        for place in np.ndindex(self._devices.shape):
            at = dict(zip(self.mesh.axis_names, place, strict=True))
            tile: list[tuple[int, int]] = []
            for axes in spec:
                count, number = 1, 0
                for name in axes:
                    count, number = count * self.mesh.shape[name], number * self.mesh.shape[name] + at[name]
                tile.append((count, number))
            device: Any = self._devices[place]
            found[device.id] = tuple(tile)
        return found

    def __eq__(self, other: object) -> bool:
        is_named = isinstance(other, NamedSharding)
        return is_named and (self.mesh, self.spec, self.memory_kind) == (other.mesh, other.spec, other.memory_kind)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        is_type = not isinstance(self.mesh, Mesh) and self.memory_kind == "device"  # which says nothing of memory
        memory = "" if is_type else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{memory})"


class Shard:
    """The part of an array on a device.

    Attributes:
        device: the device.
        index: the places of the elements in the array, a slice for each dimension.
        replica_id: the number of this copy among those on all devices.
        data: the part, an array.
    """

    def __init__(self, device: Device, index: Index, replica_id: int, data: Callable[[], Any]) -> None:
        self.device = device
        self.index = index
        self.replica_id = replica_id
        self._data = data

    @property
    def data(self) -> Any:
        return self._data()

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"
