"""Shardings as XLA describes them: an array of devices, each with the tile of its position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import axes_of


class HloSharding:
    """How the dimensions of an array are tiled, and which device has which tile.

    Args:
        dimensions: the number of tiles along each dimension; with `replicates_last` one more, along which devices have
            the same.
        sizes, order: the devices are `iota(sizes)`, transposed by `order`.
        replicates_last: whether there is such a dimension.

    >>> from tinyxla.sharding import AbstractMesh
    >>> HloSharding.of(AbstractMesh((4, 2), ("x", "y")), [("y",), ()])
    {devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}
    """

    def __init__(
        self, dimensions: Sequence[int], sizes: Sequence[int], order: Sequence[int], replicates_last: bool
    ) -> None:
        self._dimensions = list(dimensions)
        self._sizes, self._order = _merged(list(sizes), list(order))
        self._replicates_last = replicates_last

    @classmethod
    def of(cls, mesh: AbstractMesh, spec: Sequence[Sequence[Any]]) -> HloSharding:
        """That of an array which is split along axes of a mesh."""
        shape = mesh.shape
        tiles = [math.prod(shape[name] for name in axes) for axes in spec]
        if math.prod(tiles) == 1:
            return cls([], [], [], False)
        kept = [name for name in mesh.axis_names if shape[name] > 1]
        used = [name for axes in spec for name in axes if shape[name] > 1]
        others = [name for name in kept if name not in used]
        copies = math.prod(shape[name] for name in others)
        order = [kept.index(name) for name in (*used, *others)]
        dimensions = [*tiles, copies] if copies > 1 else tiles
        return cls(dimensions, [shape[name] for name in kept], order, copies > 1)

    def is_replicated(self) -> bool:
        """Whether each device has all of an array."""
        return not self._dimensions

    def is_tiled(self) -> bool:
        """Whether devices have different tiles."""
        return bool(self._dimensions)

    def replicate_on_last_tile_dim(self) -> bool:
        """Whether devices along a last dimension have the same tile."""
        return self._replicates_last

    def tile_assignment_dimensions(self) -> list[int]:
        """The number of tiles along each dimension."""
        return list(self._dimensions) or [0]

    def tile_assignment_devices(self) -> list[int]:
        """The positions of devices in the order of tiles."""
        iota = np.arange(math.prod(self._sizes)).reshape(self._sizes)
        return iota.transpose(self._order).ravel().tolist()

    def _key(self) -> Any:
        return self._dimensions, self._sizes, self._order, self._replicates_last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HloSharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        if not self._dimensions:
            return "{replicated}"
        order = f"T({','.join(map(str, self._order))})" if len(self._order) > 1 else ""
        last = " last_tile_dim_replicate" if self._replicates_last else ""
        tiles, sizes = (",".join(map(str, x)) for x in (self._dimensions, self._sizes))
        return f"{{devices=[{tiles}]<=[{sizes}]{order}{last}}}"


def _merged(sizes: list[int], order: list[int]) -> tuple[list[int], list[int]]:
    """The same with neighbours joined that stay neighbours."""
    groups: list[list[int]] = []
    for k in order:
        if groups and k == groups[-1][-1] + 1:
            groups[-1].append(k)
        else:
            groups.append([k])
    starts = sorted(group[0] for group in groups)
    by_start = {group[0]: math.prod(sizes[k] for k in group) for group in groups}
    return [by_start[k] for k in starts], [starts.index(group[0]) for group in groups]


def hlo_sharding(sharding: Any, num_dimensions: int) -> HloSharding:
    """A sharding of arrays of so many dimensions as XLA describes it."""
    layout = getattr(sharding, "layout", sharding)
    parts = [axes_of(part) for part in (*layout.spec, *[None] * (num_dimensions - len(layout.spec)))]
    return HloSharding.of(layout.mesh, parts)
