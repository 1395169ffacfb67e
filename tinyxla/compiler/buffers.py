"""Buffer assignment: temporaries that do not live at the same time share memory, of results and of one arena."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

ALIGNMENT = 64

Key = TypeVar("Key", bound=Hashable)


def arena_offsets(
    lives: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int], hosts: Sequence[Key] = ()
) -> tuple[dict[Key, tuple[Key | None, int]], int]:
    """Where each temporary is: in which host, None for the arena, and at which offset there; and the arena's size.

    `lives` has the first and the last step that touch it, `sizes` its bytes. `hosts` are memory that is there anyway,
    such as results: while they are not in use yet, temporaries may be there. Largest first, each goes to the lowest
    place that is free while it lives, in the smallest host that has one.
    """
    placed: dict[Key | None, list[tuple[int, int, int, int]]] = {}  # offset, end, first, last
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
            offset = _lowest(sorted(p for p in others if p[2] <= last and first <= p[3]), size)
            if host is None or offset + size <= sizes[host]:
                offsets[key] = host, offset
                others.append((offset, offset + size, first, last))
                total = max(total, offset + size) if host is None else total
                break
    return offsets, total


def _lowest(taken: Sequence[tuple[int, int, int, int]], size: int) -> int:
    offset = 0
    for begin, end, _, _ in taken:
        if offset + size <= begin:
            break
        offset = max(offset, end)
    return offset
