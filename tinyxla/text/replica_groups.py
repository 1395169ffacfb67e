"""Replica groups in HLO text: lists, or the rows of an array of consecutive numbers.

`{{0,2},{1,3}}` is two groups. `[2,4]<=[4,2]T(1,0)` is two groups of four as well: `iota` in the sizes behind `<=`,
transposed by the permutation behind `T`, and reshaped to (groups, replicas of each).

Source: XLA's dumps; its class `IotaReplicaGroupList`.
"""

from __future__ import annotations

import math
import re

import numpy as np

from tinyxla.ops.replica_groups import Groups, Pairs
from tinyxla.shapes import AnyShape, Shape
from tinyxla.text.lexer import inside, parts, read_integer

_IOTA = re.compile(r"\[(\d[\d,]*)\]<=\[(\d[\d,]*)\](?:T\((\d[\d,]*)\))?")
_MOST_REPLICAS = 1 << 20


def write_groups(groups: Groups) -> str:
    """`{{0,2},{1,3}}`."""
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def read_groups(text: str) -> Groups:
    """The groups that a text lists; ValueError for any other text."""
    found = _IOTA.fullmatch(re.sub(r"\s", "", text))
    if found is None:
        return tuple(tuple(map(read_integer, parts(inside(part)))) for part in parts(inside(text)))
    shape, sizes, given = (tuple(map(read_integer, parts(part or ""))) for part in found.groups())
    order = given or tuple(range(len(sizes)))
    if len(shape) != 2 or math.prod(shape) != math.prod(sizes) or math.prod(sizes) > _MOST_REPLICAS:
        raise ValueError(f"groups must be [groups,replicas]<=[sizes] with one product, but found {text[:80]!r}")
    if sorted(order) != list(range(len(sizes))):
        raise ValueError(f"T must have an order of the {len(sizes)} dimensions, but found {text[:80]!r}")
    numbers = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(shape)
    return tuple(map(tuple, numbers.tolist()))


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
