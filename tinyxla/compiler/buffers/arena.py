"""Buffer assignment: temporaries that do not live at the same time share memory, of results and of one arena."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

ALIGNMENT = 64
MOST_FAILURES = 16  # temporaries in a row that do not fit into a host, after which none is tried there

Key = TypeVar("Key", bound=Hashable)


def arena_offsets(
    lives: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int], hosts: Sequence[Key] = ()
) -> tuple[dict[Key, tuple[Key | None, int]], int]:
    """Where each temporary is: in which host, None for the arena, and at which offset there; and the arena's size.

    `lives` has the first and the last step that touch it, `sizes` its bytes. `hosts` are memory that is there anyway,
    such as results: while they are not in use yet, temporaries may be there. Largest first, each goes to the lowest
    place that is free while it lives, in the smallest host that has one.
    """
    end = 1 + max((last for _, last in lives.values()), default=0)
    arena = _Memory(end)
    results = _Hosts(lives, sizes, hosts, end)
    guests = set(lives).difference(hosts)
    offsets: dict[Key, tuple[Key | None, int]] = {}
    total = 0
    for key in sorted((k for k in lives if k in guests), key=lambda k: -sizes[k]):
        size = -(-max(sizes[key], 1) // ALIGNMENT) * ALIGNMENT
        found = results.place(size, *lives[key])
        if found is None:
            offset = arena.lowest(size, *lives[key])
            arena.take(offset, offset + size, *lives[key])
            total = max(total, offset + size)
            found = None, offset
        offsets[key] = found
    return offsets, total


class _Hosts(Generic[Key]):
    """The hosts by size, and a segment tree of when the first use of each is, so that one that is free until then is
    found without a look at the others."""

    def __init__(
        self, lives: Mapping[Key, tuple[int, int]], sizes: Mapping[Key, int], hosts: Sequence[Key], end: int
    ) -> None:
        self._hosts = sorted(hosts, key=lambda k: sizes[k])
        self._sizes = [sizes[k] for k in self._hosts]
        self._memory = [_Memory(end) for _ in hosts]
        self._failures = [0] * len(hosts)
        self._leaves = 1 << max(0, len(hosts) - 1).bit_length()
        self._first = [-1] * (2 * self._leaves)  # that of the hosts below; -1 for one that is full
        for k, host in enumerate(self._hosts):
            self._memory[k].take(0, sizes[host], *lives[host])
            self._set_first(k, lives[host][0])

    def place(self, size: int, first: int, last: int) -> tuple[Key, int] | None:
        """The smallest host that has so much memory free from the first step to the last, and the offset there, which
        is taken."""
        k = self._next(bisect_left(self._sizes, size), last)
        while k is not None:
            offset = self._memory[k].lowest(size, first, last)
            if offset + size <= self._sizes[k]:
                self._memory[k].take(offset, offset + size, first, last)
                self._failures[k] = 0
                return self._hosts[k], offset
            self._failures[k] += 1
            if self._failures[k] == MOST_FAILURES:
                self._set_first(k, -1)
            k = self._next(k + 1, last)
        return None

    def _set_first(self, k: int, first: int) -> None:
        node = k + self._leaves
        self._first[node] = first
        while node > 1:
            node //= 2
            self._first[node] = max(self._first[2 * node], self._first[2 * node + 1])

    def _next(self, k: int, last: int) -> int | None:
        """The number of the first host, from number k on, that is used after a step only."""
        if k >= len(self._hosts):
            return None
        node = k + self._leaves
        while self._first[node] <= last:
            while node & 1:  # the last below its parent, whose next neighbour comes next
                node //= 2
            if not node:
                return None
            node += 1
        while node < self._leaves:
            node = 2 * node + (self._first[2 * node] <= last)
        return node - self._leaves


class _Memory:
    """What of a memory is taken at which steps: a segment tree over the steps, whose nodes have the union of the ranges
    of bytes that are taken during all of their steps, and of those that are during some."""

    def __init__(self, end: int) -> None:
        self._leaves = 1 << (end - 1).bit_length()
        self._during_all: dict[int, _Ranges] = {}
        self._during_some: dict[int, _Ranges] = {}

    def take(self, begin: int, end: int, first: int, last: int) -> None:
        """Take a range of bytes from the first step to the last."""
        above: set[int] = set()
        for node in self._cover(first, last):
            self._during_all.setdefault(node, _Ranges()).add(begin, end)
            while node and node not in above:
                above.add(node)
                node //= 2
        for node in above:
            self._during_some.setdefault(node, _Ranges()).add(begin, end)

    def lowest(self, size: int, first: int, last: int) -> int:
        """The least offset at which so many bytes are free from the first step to the last."""
        ranges: dict[int, _Ranges] = {}
        for node in self._cover(first, last):
            if node in self._during_some:
                ranges[-node] = self._during_some[node]
            node //= 2
            while node and node not in ranges:
                if node in self._during_all:
                    ranges[node] = self._during_all[node]
                node //= 2
        offset, before = 0, -1
        while offset != before:
            before = offset
            for taken in ranges.values():
                offset = taken.free(offset, size)
        return offset

    def _cover(self, first: int, last: int) -> Iterator[int]:
        """The fewest nodes whose steps are these."""
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


class _Ranges:
    """A union of ranges, as disjoint ones in ascending order."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        low, high = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if low < high:  # it touches these
            begin, end = min(begin, self._begins[low]), max(end, self._ends[high - 1])
        self._begins[low:high] = [begin]
        self._ends[low:high] = [end]

    def free(self, offset: int, size: int) -> int:
        """The first offset from this one on at which a range of this size meets none."""
        k = bisect_right(self._ends, offset)
        while k < len(self._begins) and self._begins[k] < offset + size:
            offset = self._ends[k]
            k += 1
        return offset
