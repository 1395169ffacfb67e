"""Buffer assignment: temporaries that do not live at the same time share memory, of results and of one arena."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

ALIGNMENT = 64

Key = TypeVar("Key", bound=Hashable)
_Placed = tuple[int, int, int, int]  # offset, end, first and last step


def arena_offsets(
    lives: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int], hosts: Sequence[Key] = ()
) -> tuple[dict[Key, tuple[Key | None, int]], int]:
    """Where each temporary is: in which host, None for the arena, and at which offset there; and the arena's size.

    `lives` has the first and the last step that touch it, `sizes` its bytes. `hosts` are memory that is there anyway,
    such as results: while they are not in use yet, temporaries may be there. Largest first, each goes to the lowest
    place that is free while it lives, in the smallest host that has one.
    """
    placed: dict[Key | None, list[_Placed]] = {}  # by offset
    full: dict[tuple[Key | None, int, int, int], int] = {}  # below which offset nothing of a size and a life is free
    for host in sorted(hosts, key=lambda k: sizes[k]):
        placed[host] = [(0, sizes[host], *lives[host])]
    placed[None] = []
    offsets: dict[Key, tuple[Key | None, int]] = {}
    total = 0
    for key in sorted((k for k in lives if k not in placed), key=lambda k: -sizes[k]):
        first, last = lives[key]
        size = -(-max(sizes[key], 1) // ALIGNMENT) * ALIGNMENT
        for host, others in placed.items():
            if host is not None and sizes[host] < size:
                continue
            offset = _lowest(others, first, last, size, full.get((host, first, last, size), 0))
            full[host, first, last, size] = offset
            if host is None or offset + size <= sizes[host]:
                offsets[key] = host, offset
                insort(others, (offset, offset + size, first, last))
                total = max(total, offset + size) if host is None else total
                break
    return offsets, total


def _lowest(placed: Sequence[_Placed], first: int, last: int, size: int, offset: int) -> int:
    """The lowest offset, from one on, that is free from the first to the last step."""
    start = bisect_left(placed, (offset,)) if offset else 0
    for begin, end, since, until in islice(placed, start, None):
        if since <= last and first <= until:
            if offset + size <= begin:
                break
            offset = max(offset, end)
    return offset
