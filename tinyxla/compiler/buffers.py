"""Buffer assignment: temporaries that do not live at the same time share memory in one arena."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

ALIGNMENT = 64

Key = TypeVar("Key", bound=Hashable)


def arena_offsets(lives: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int]) -> tuple[dict[Key, int], int]:
    """An offset for each temporary, and the size of the arena.

    `lives` has the first and the last step that touch it, `sizes` its bytes. Largest first, each goes to the lowest
    place that is free while it lives.
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    offsets: dict[Key, int] = {}
    total = 0
    for key in sorted(lives, key=lambda k: -sizes[k]):
        first, last = lives[key]
        size = -(-max(sizes[key], 1) // ALIGNMENT) * ALIGNMENT
        offset = _lowest(sorted(p for p in placed if p[2] <= last and first <= p[3]), size)
        offsets[key] = offset
        placed.append((offset, offset + size, first, last))
        total = max(total, offset + size)
    return offsets, total


def _lowest(taken: Sequence[tuple[int, int, int, int]], size: int) -> int:
    offset = 0
    for begin, end, _, _ in taken:
        if offset + size <= begin:
            break
        offset = max(offset, end)
    return offset
