"""Buffer assignment: offsets of temporaries in one arena, and in results that are not in use yet, such as
temporaries with disjoint live ranges share memory (best-fit by decreasing size).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from tinyxla.compiler.costs import LINE_BYTES, MAX_CANDIDATES

Key = TypeVar("Key", bound=Hashable)


def arena_offsets(
    live_ranges: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int], hosts: Sequence[Key] = ()
) -> tuple[dict[Key, tuple[Key | None, int]], int]:
    """The host (None for the arena) and the offset of each temporary; and the size of the arena.

    `live_ranges` has the first and the last step that access each buffer, `sizes` its bytes. `hosts` are buffers that
    exist anyway, such as results: until their own live range begins, they can hold temporaries. In order of decreasing
    size, each temporary gets the lowest free offset in the smallest host that has room, otherwise in the arena.
    """
    end = 1 + max((last for _, last in live_ranges.values()), default=0)
    arena = _OccupancyTree(end)
    results = _Hosts(live_ranges, sizes, hosts, end)
    temporaries = set(live_ranges).difference(hosts)
    offsets: dict[Key, tuple[Key | None, int]] = {}
    total = 0
    for key in sorted((k for k in live_ranges if k in temporaries), key=lambda k: -sizes[k]):
        size = -(-max(sizes[key], 1) // LINE_BYTES) * LINE_BYTES
        placement = results.allocate(size, *live_ranges[key])
        if placement is None:
            offset = arena.lowest_free(size, *live_ranges[key])
            arena.occupy(offset, offset + size, *live_ranges[key])
            total = max(total, offset + size)
            placement = None, offset
        offsets[key] = placement
    return offsets, total


class _Hosts(Generic[Key]):
    """The hosts by size, with a segment tree over the first use of each, which finds a host that is unused until
    then in logarithmic time."""

    def __init__(
        self, live_ranges: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int], hosts: Sequence[Key], end: int
    ) -> None:
        self._hosts = sorted(hosts, key=lambda k: sizes[k])
        self._sizes = [sizes[k] for k in self._hosts]
        self._memory = [_OccupancyTree(end) for _ in hosts]
        self._failures = [0] * len(hosts)
        self._leaves = 1 << max(0, len(hosts) - 1).bit_length()
        self._first = [-1] * (2 * self._leaves)  # the maximum of the hosts below; -1 for a host that is given up
        for k, host in enumerate(self._hosts):
            self._memory[k].occupy(0, sizes[host], *live_ranges[host])
            self._set_first(k, live_ranges[host][0])

    def allocate(self, size: int, first_step: int, last_step: int) -> tuple[Key, int] | None:
        """Allocate memory in the smallest host that has room for the live range; returns the host and the offset, or
        None."""
        k = self._next(bisect_left(self._sizes, size), last_step)
        while k is not None:
            offset = self._memory[k].lowest_free(size, first_step, last_step)
            if offset + size <= self._sizes[k]:
                self._memory[k].occupy(offset, offset + size, first_step, last_step)
                self._failures[k] = 0
                return self._hosts[k], offset
            self._failures[k] += 1
            if self._failures[k] == MAX_CANDIDATES:
                self._set_first(k, -1)
            k = self._next(k + 1, last_step)
        return None

    def _set_first(self, k: int, first: int) -> None:
        node = k + self._leaves
        self._first[node] = first
        while node > 1:
            node //= 2
            self._first[node] = max(self._first[2 * node], self._first[2 * node + 1])

    def _next(self, k: int, step: int) -> int | None:
        """The first host from number k on that is first used after a step."""
        if k >= len(self._hosts):
            return None
        node = k + self._leaves
        while self._first[node] <= step:
            while node & 1:  # the last below its parent, whose next neighbour comes next
                node //= 2
            if not node:
                return None
            node += 1
        while node < self._leaves:
            node = 2 * node + (self._first[2 * node] <= step)
        return node - self._leaves


class _OccupancyTree:
    """Occupied byte ranges of a buffer over time: a segment tree over the steps, whose nodes have the union of
    ranges that are occupied during all of their steps, and of those occupied during some."""

    def __init__(self, end: int) -> None:
        self._leaves = 1 << (end - 1).bit_length()
        self._during_all: dict[int, _IntervalSet] = {}
        self._during_some: dict[int, _IntervalSet] = {}

    def occupy(self, start: int, end: int, first: int, last: int) -> None:
        """Occupy a range of bytes from the first step to the last."""
        ancestors: set[int] = set()
        for node in self._cover(first, last):
            self._during_all.setdefault(node, _IntervalSet()).add(start, end)
            while node and node not in ancestors:
                ancestors.add(node)
                node //= 2
        for node in ancestors:
            self._during_some.setdefault(node, _IntervalSet()).add(start, end)

    def lowest_free(self, size: int, first: int, last: int) -> int:
        """The lowest offset at which `size` bytes are free from the first step to the last."""
        ranges: dict[int, _IntervalSet] = {}
        for node in self._cover(first, last):
            if node in self._during_some:
                ranges[-node] = self._during_some[node]
            node //= 2
            while node and node not in ranges:
                if node in self._during_all:
                    ranges[node] = self._during_all[node]
                node //= 2
        offset, previous = 0, -1
        while offset != previous:
            previous = offset
            for intervals in ranges.values():
                offset = intervals.first_gap(offset, size)
        return offset

    def _cover(self, first: int, last: int) -> Iterator[int]:
        """The fewest nodes that cover a range of steps."""
        low, high = first + self._leaves, last + self._leaves + 1
        while low < high:
            if low & 1:
                yield low
                low += 1
            if high & 1:
                high -= 1
                yield high
            low //= 2
            high //= 2


class _IntervalSet:
    """A union of intervals, kept disjoint and in ascending order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:  # overlaps or touches these
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def first_gap(self, offset: int, size: int) -> int:
        """The first offset from `offset` on at which `size` bytes are free."""
        k = bisect_right(self._ends, offset)
        while k < len(self._starts) and self._starts[k] < offset + size:
            offset = self._ends[k]
            k += 1
        return offset
