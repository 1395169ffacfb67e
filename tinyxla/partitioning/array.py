"""Arrays of which each device has a part.

A process holds the parts of its devices as one block, along leading dimensions for the axes of the mesh along which it
has several (`tinyxla.partitioning.lanes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, ConcretizationError, DeletedError, ShapeError
from tinyxla.ops import Op
from tinyxla.partitioning.lanes import block_sizes
from tinyxla.tracing.array import Array, ConcreteArray, signature_of, without_memory, wrap
from tinyxla.tracing.core import Interpreted, Trace
from tinyxla.tracing.device import Device, process_index
from tinyxla.tracing.meshes import AbstractMesh, Mesh
from tinyxla.tracing.shardings import (
    Index,
    NamedSharding,
    Shard,
    Sharding,
    SingleDeviceSharding,
    Spec,
    layout_on,
    splitting,
)


class ShardedTrace(Trace):
    """Where operations on sharded arrays go outside of all transformations: each is a partitioned program."""

    what = "a sharded array"

    def __init__(self) -> None:
        super().__init__()
        self.level = -1  # outside of all others
        self.active = True

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        return _run_one(op, operands, attributes)


_run_one: Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]


def set_run_one(function: Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Say how an operation on sharded arrays is run, which is a matter of `execution`."""
    global _run_one
    _run_one = function


def sharded_signature(dtype: Any, shape: tuple[int, ...], weak_type: bool, sharding: NamedSharding) -> int:
    """The number that stands for these."""
    return signature_of((dtype, sharding), shape, weak_type)


def lanes_of(mesh: AbstractMesh) -> list[tuple[Any, int]]:
    """The axes along which a process has several devices of a mesh, and how many."""
    return [(name, count) for name, count in _devices_along_axes(mesh) if count > 1]


def _devices_along_axes(mesh: AbstractMesh) -> list[tuple[Any, int]]:
    """The axes, and how many devices a process has along each."""
    return list(zip(mesh.axis_names, mesh.blocks.lanes, strict=True))


class ShardedArray(Interpreted):
    """An array whose parts are on the devices of a mesh.

    Attributes:
        block: the parts of this process's devices.
        shape: of the whole array.
        layout: which part is where, over a mesh; one without axes is a single device.
    """

    __slots__ = ("_shape", "_signature", "_whole", "block", "layout", "weak_type")

    owner = ShardedTrace()
    block: np.ndarray[Any, Any]
    layout: NamedSharding

    def __init__(
        self,
        block: np.ndarray[Any, Any],
        shape: Sequence[int],
        layout: NamedSharding,
        weak_type: bool = False,
        signature: int | None = None,
    ) -> None:
        self.block = block
        self._shape = tuple(shape)
        self.layout = layout
        self.weak_type = weak_type
        if signature is None:
            signature = sharded_signature(block.dtype, self._shape, weak_type, layout)
        self._signature = signature
        self._whole: ConcreteArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.block.dtype

    def signature(self) -> int:
        """A number that stands for element type, shape, weakness and sharding."""
        return self._signature

    @property
    def sharding(self) -> Sharding:
        """Which part is on which device."""
        return shown(self.layout)

    @property
    def committed(self) -> bool:
        """Whether it was put where it is, and does not go where other arguments of a program are."""
        return self.mesh.is_committed

    @property
    def device(self) -> Any:
        """The device that has all of the array; the sharding if several have parts."""
        return self.mesh.devices.item() if self.mesh.size == 1 else self.sharding

    @property
    def spec(self) -> Spec:
        """For each dimension the axes that it is split along."""
        return self.layout.dimension_axes(self.shape)

    @property
    def mesh(self) -> Mesh:
        assert isinstance(self.layout.mesh, Mesh)
        return self.layout.mesh

    # --- whole values

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        if self._whole is None:
            if self.is_split_among_processes:
                raise ArgumentError(
                    f"{wanted} needs all of an array of which process {process_index()} has a part only: "
                    f"{self.layout}. Use experimental.multihost_utils.process_allgather, x.addressable_shards, or "
                    "give it a sharding without split dimensions."
                )
            permutation, sizes = splitting(self.shape, self.spec, _devices_along_axes(self.mesh)).inverse
            value = self.block.reshape(sizes).transpose(permutation).reshape(self.shape)
            self._whole = ConcreteArray(np.ascontiguousarray(value).reshape(self.shape), self.weak_type)
        return self._whole

    primal = concrete

    def buffer(self) -> Any:
        """All of the value."""
        return self.concrete("The value").buffer()

    def numpy(self) -> Any:
        return self.concrete("A NumPy array").numpy()

    def with_weak_type(self, weak: bool) -> ShardedArray:
        return self if self.weak_type == weak else ShardedArray(self.block, self.shape, self.layout, weak)

    def copy(self) -> ShardedArray:
        return ShardedArray(self.block, self.shape, self.layout, self.weak_type)

    def __copy__(self) -> ShardedArray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedArray:
        return self.copy()

    def __repr__(self) -> str:
        if self._is_shown:
            return repr(self.concrete("repr"))
        return f"Array(shape={self.shape}, dtype={self.dtype.name}, sharding={self.layout})"

    def __str__(self) -> str:
        return str(self.concrete("str()")) if self._is_shown else repr(self)

    @property
    def _is_shown(self) -> bool:
        """Whether the values are printed: those of summands are not."""
        return not self.layout.spec.unreduced and (self.is_fully_addressable or self.is_fully_replicated)

    def __reduce__(self) -> Any:
        return self.concrete("pickle").__reduce__()

    # --- parts

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has all parts."""
        return self.layout.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of the array."""
        return self.layout.is_fully_replicated

    @property
    def is_split_among_processes(self) -> bool:
        """Whether this process has only some of the elements."""
        return any(self.mesh.count_processes(axes) > 1 for axes in self.spec)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on the devices of this process."""
        return [s for s in self.global_shards if s.device.process_index == process_index()]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts on all devices; those of other processes have no data here."""
        return list(self._shards())

    def _shards(self) -> Iterator[Shard]:
        copies: dict[Any, int] = {}
        for device, index in self.layout.devices_indices_map(self.shape).items():
            key = tuple((s.start, s.stop) for s in index)
            number = copies[key] = copies.get(key, -1) + 1
            yield Shard(device, index, number, lambda device=device: self._part(device))

    def _part(self, device: Device) -> Array:
        if device.process_index != process_index():
            raise ArgumentError(f"The part on {device!r} is on process {device.process_index}, not {process_index()}.")
        part, layout = self.block[self.place_in_block(device)], layout_on(device, self.layout.memory_kind)
        if self.layout.spec.unreduced and not self._has_sum(device):
            part = np.zeros_like(part)
        return ShardedArray(np.asarray(part), part.shape, layout) if is_spread(layout) else wrap(part)

    def _has_sum(self, device: Device) -> bool:
        """Whether a device has a part of the array, of which those along unreduced axes have summands: all of it on the
        first, zeros on the others."""
        place = zip(self.mesh.axis_names, np.argwhere(self.mesh.device_ids == device.id)[0], strict=True)
        return not any(k and name in self.layout.spec.unreduced for name, k in place)

    def place_in_block(self, device: Device) -> tuple[int, ...]:
        """Where in the block the part of a device of this process is."""
        place = np.argwhere(self.mesh.device_ids == device.id)[0]
        names = {name for axes in self.spec for name in axes}
        axes = zip(self.mesh.axis_names, place, self.mesh.blocks.lanes, strict=True)
        return tuple(int(k) % count for name, k, count in axes if count > 1 and name in names)

    # --- memory

    def is_deleted(self) -> bool:
        """Whether the array was deleted or donated."""
        return False

    def delete(self) -> None:
        """Let go of the memory; the array has no value any more."""
        own: Any = self
        own.block, own._whole = without_memory(self.dtype, self.block.shape), None
        own.__class__ = _DeletedArray


_held_block: Any = ShardedArray.__dict__["block"]


class _DeletedArray(ShardedArray):
    """An array that was deleted."""

    __slots__ = ()

    @property
    def block(self) -> np.ndarray[Any, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        sizes = ",".join(map(str, self.shape))
        raise DeletedError(
            f"Array has been deleted with shape={self.dtype.name}[{sizes}]: it was donated, or deleted by name."
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        return _held_block.__get__(self).dtype

    def is_deleted(self) -> bool:
        return True

    def delete(self) -> None:
        return None

    def block_until_ready(self) -> Array:
        return self.block  # pyright: ignore[reportReturnType] - an error

    def __repr__(self) -> str:
        return f"<deleted Array {self.dtype.name}[{','.join(map(str, self.shape))}]>"

    __str__ = __repr__


for _kind in (ShardedArray, _DeletedArray):
    _kind.__name__ = "Array"  # which Python's own messages show


def from_whole(value: np.ndarray[Any, Any], sharding: NamedSharding, weak_type: bool = False) -> ShardedArray:
    """An array with this value under a sharding; each process takes its parts."""
    return from_callback(value.shape, value.dtype, sharding, lambda index: value[index], weak_type)


def from_callback(
    shape: Sequence[int],
    dtype: Any,
    sharding: NamedSharding,
    part: Callable[[Index], Any],
    weak_type: bool = False,
    what: str = "device_put",
) -> ShardedArray:
    """An array whose parts a function gives for the places of their elements; it is called once for each part that this
    process has."""
    mesh: Any = sharding.mesh
    spec = sharding.dimension_axes(shape, what)
    if mesh.blocks.own is None:
        raise ArgumentError(f"{what}: process {process_index()} has no device of {mesh}; let all processes take part.")
    sizes = sharding.shard_shape(shape)
    block = np.empty(block_sizes(sizes, spec, lanes_of(mesh)), dtype)
    made = ShardedArray(block, shape, sharding, weak_type)
    filled: set[tuple[int, ...]] = set()
    for shard in made.addressable_shards:
        place = made.place_in_block(shard.device)
        if place in filled:
            continue
        filled.add(place)
        given = np.asarray(part(shard.index))
        if given.shape != sizes:
            raise ShapeError(f"{what}: the part at {shard.index} must have the shape {sizes}, but has {given.shape}.")
        block[place] = given
    return made


def is_spread(sharding: Any) -> bool:
    """Whether a sharding is over several devices, on one that is not the default one, or in another memory."""
    if not (isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)):
        return False
    return not sharding.mesh.is_default_device or sharding.memory_kind != "device"


def layout_of(x: Any) -> Any:
    """Which part is where of a sharded array, or of one of which there is only a description; None of others."""
    if isinstance(x, ShardedArray):
        return x.layout
    if isinstance(x, Array):
        return None
    sharding = getattr(x, "sharding", None)
    layout = sharding.layout if isinstance(sharding, SingleDeviceSharding) else sharding
    return layout if is_spread(layout) else None


def shown(layout: NamedSharding) -> Sharding:
    """A sharding as users see it: over a mesh without axes it is that of a single device."""
    if layout.mesh.axis_names or not isinstance(layout.mesh, Mesh):
        return layout
    return SingleDeviceSharding(layout.mesh.devices.item(), memory_kind=layout.memory_kind)
