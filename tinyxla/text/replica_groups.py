"""Replica groups in HLO text: lists, the rows of an array of consecutive numbers, or axes of a mesh of devices.

`{{0,2},{1,3}}` is two groups. `[2,4]<=[4,2]T(1,0)` is two groups of four as well: `iota` in the sizes behind `<=`,
transposed by the permutation behind `T`, and reshaped to (groups, replicas of each).

`mesh['x'=2,'y'=4] {'y'}` is a group for each row of a mesh: the devices along 'y'. With several axes the last one runs
fastest. `'y':(2)2` is a part of an axis: with 'y' reshaped to (2, 2, 1), the second of these dimensions. Devices are
numbered in order unless `device_ids` has their numbers, as a list or as the right side of `<=`.

Source: XLA's dumps; its classes `IotaReplicaGroupList` and `MeshAxesReplicaGroupList`; section "Sharding
representation" of Shardy's documents.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import numpy as np

from tinyxla.ops.distributed.replica_groups import Groups, Pairs
from tinyxla.shapes import AnyShape, Shape
from tinyxla.text.lexer import inside, parts, read_integer

_IOTA = re.compile(r"\[(\d[\d,]*)\]<=\[(\d[\d,]*)\](?:T\((\d[\d,]*)\))?")
_NUMBERS = re.compile(r"\[(\d[\d,]*)\](?:T\((\d[\d,]*)\))?")
_MESH = re.compile(r"mesh\[([^\[\]]+)\](?:,device_ids=\((.*)\))?\{(.+)\}")
_AXIS = re.compile(r"'([^']*)'=(\d{1,9})")
_PART = re.compile(r"'([^']*)'(?::\((\d{1,9})\)(\d{1,9}))?")
_MAX_REPLICAS = 1 << 20


def write_groups(groups: Groups) -> str:
    """`{{0,2},{1,3}}`."""
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def read_groups(text: str) -> Groups:
    """The groups that a text lists; ValueError for any other text."""
    written = re.sub(r"\s", "", text)
    if written.startswith("mesh["):
        return _along_axes(written)
    found = _IOTA.fullmatch(written)
    if found is None:
        return tuple(tuple(map(read_integer, parts(inside(part)))) for part in parts(inside(text)))
    shape, sizes = (_integers(part) for part in found.groups()[:2])
    if len(shape) != 2 or math.prod(shape) != math.prod(sizes) or math.prod(sizes) > _MAX_REPLICAS:
        raise ValueError(f"groups must be [groups,replicas]<=[sizes] with one product, but found {text[:80]!r}")
    return tuple(map(tuple, _counted(sizes, found[3], text).reshape(shape).tolist()))


def _integers(text: str | None) -> tuple[int, ...]:
    return tuple(map(read_integer, parts(text or "")))


def _counted(sizes: tuple[int, ...], permutation: str | None, text: str) -> np.ndarray[Any, Any]:
    """`iota` in these sizes, transposed by a permutation if there is one."""
    order = _integers(permutation) or tuple(range(len(sizes)))
    if sorted(order) != list(range(len(sizes))):
        raise ValueError(f"T must have an order of the {len(sizes)} dimensions, but found {text[:80]!r}")
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order)


def _along_axes(text: str) -> Groups:
    """The groups of devices along axes of a mesh."""
    found = _MESH.fullmatch(text)
    axes = [_AXIS.fullmatch(part) for part in parts(found[1])] if found else [None]
    chosen = [_PART.fullmatch(part) for part in parts(found[3])] if found else [None]
    if found is None or None in axes or None in chosen:
        raise ValueError(f"a mesh must be mesh['name'=size,...] {{'name',...}}, but found {text[:80]!r}")
    sizes = {axis[1]: int(axis[2]) for axis in axes if axis}
    count = math.prod(sizes.values())
    if len(sizes) < len(axes) or not 0 < count <= _MAX_REPLICAS:
        raise ValueError(f"a mesh must have axes of different names and positive sizes, but found {text[:80]!r}")
    spans = [(part[1], int(part[2] or 1), int(part[3] or sizes.get(part[1], 1))) for part in chosen if part]
    factors, grouped = _factors(sizes, spans, text)
    devices = _devices(found[2], count, text).reshape([size for _, _, size in factors])
    others = [k for k in range(len(factors)) if k not in grouped]
    groups = devices.transpose(*others, *grouped).reshape(-1, math.prod(size for _, _, size in spans))
    return tuple(map(tuple, groups.tolist()))


def _devices(numbers: str | None, count: int, text: str) -> np.ndarray[Any, Any]:
    """The devices of a mesh, major axis first."""
    if numbers is None:
        return np.arange(count)
    counted = _NUMBERS.fullmatch(numbers)
    sizes = _integers(counted[1]) if counted else ()
    if counted and math.prod(sizes) == count:
        return _counted(sizes, counted[2], text)
    listed = () if counted else _integers(numbers)
    if sorted(listed) != list(range(count)):
        raise ValueError(f"device_ids must have each of {count} devices once, but found {text[:80]!r}")
    return np.array(listed)


Span = tuple[str, int, int]  # of an axis: how many elements of its major part come before, and the size


def _factors(sizes: dict[str, int], spans: list[Span], text: str) -> tuple[list[Span], list[int]]:
    """The axes cut wherever a span begins or ends, and the numbers of the factors that the spans are made of."""
    factors: list[Span] = []
    for name, size in sizes.items():
        cuts = {1, size} | {cut for axis, before, part in spans if axis == name for cut in (before, before * part)}
        pairs = list(pairwise(sorted(cuts)))
        if min(cuts) < 1 or max(cuts) > size or any(high % low for low, high in pairs):
            raise ValueError(f"parts of an axis must divide it, but found {text[:80]!r}")
        factors += [(name, low, high // low) for low, high in pairs]
    grouped = [
        k
        for axis, before, part in spans
        for k, (name, low, size) in enumerate(factors)
        if name == axis and before <= low and low * size <= before * part and size > 1
    ]
    if len(set(grouped)) < len(grouped) or any(axis not in sizes for axis, _, _ in spans):
        raise ValueError(f"the axes of groups must be those of the mesh, each once, but found {text[:80]!r}")
    return factors, grouped


def read_pairs(text: str) -> Pairs:
    """`{{source,target},...}`; ValueError for any other text."""
    found = [tuple(map(read_integer, parts(inside(part)))) for part in parts(inside(text))]
    if any(len(pair) != 2 for pair in found):
        raise ValueError(f"expected pairs {{source,target}}, but found {text[:80]!r}")
    return tuple((source, target) for source, target in found)


def shard_count(larger: AnyShape, smaller: AnyShape, dimension: int, groups: Groups) -> int:
    """How often the size of one array goes into that of another; for arrays without elements, the size of a group."""
    if not isinstance(larger, Shape) or not isinstance(smaller, Shape):
        raise ValueError("the operands must be arrays, each with its result")
    whole, part = (x.dimensions[dimension] if dimension < x.rank else 0 for x in (larger, smaller))
    if part:
        return whole // part
    return len(groups[0]) if groups else 1
