"""Reachability in a directed acyclic graph that grows and whose nodes are contracted: which nests may be merged.

Nodes are contracted by union-find. Every node has a *level* that is greater than those of its predecessors (a
topological numbering, as in Bender, Fineman, Gilbert and Tarjan, "A new approach to incremental cycle detection and
related problems", 2015): a search never leaves the levels between its ends. `decompose` covers the graph with chains
(Jagadish, "A compression technique to materialize transitive closure", 1990): a node reaches all that come after it in
its chain, so that a search in a deep graph ends at the first two nodes of one chain that it meets from both sides.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_SCANNED = 1 << 12  # edges of one search: what takes longer counts as reachable


class Reachability:
    """A directed acyclic graph. Nodes are numbered in the order in which they are added; after `merge(a, b)` both
    numbers stand for one node, whose number is `find(b) == find(a) == a`."""

    def __init__(self) -> None:
        self.scanned = 0  # edges, by all searches so far
        self._parent: list[int] = []
        self._level: list[int] = []
        self._predecessors: list[set[int]] = []
        self._successors: list[set[int]] = []
        self._chains: dict[int, list[int]] = {}  # by their first nodes
        self._labels: list[list[tuple[int, int]]] = []  # the chains of what a node was made of, and the ranks there

    def __len__(self) -> int:
        return len(self._parent)

    def find(self, node: int) -> int:
        """The number of the node that this number stands for."""
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def add(self, predecessors: Iterable[int]) -> int:
        """A new node."""
        node = len(self._parent)
        self._parent.append(node)
        self._level.append(0)
        self._predecessors.append(set())
        self._successors.append(set())
        self._labels.append([])
        self.add_edges(node, predecessors)
        self._append(node, max(self._predecessors[node], key=self._level.__getitem__, default=node))
        return node

    def _append(self, node: int, before: int) -> None:
        """Let a node follow another one in its chain, if that is the last there."""
        chain, rank = self._labels[before][0] if before != node else (node, -1)
        if before != node and len(self._chains[chain]) > rank + 1:
            chain, rank = node, -1
        self._chains.setdefault(chain, []).append(node)
        self._labels[node] = [(chain, rank + 1)]

    def add_edges(self, node: int, predecessors: Iterable[int]) -> None:
        """Let a node come after others, none of which it reaches."""
        node = self.find(node)
        others = {self.find(x) for x in predecessors} - {node}
        self._predecessors[node] |= others
        for other in others:
            self._successors[other].add(node)
        self._raise(node, max((self._level[x] + 1 for x in others), default=0))

    def merge(self, a: int, b: int) -> None:
        """Contract two nodes between which there is no path of more than one edge: a stands for both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        self._parent[b] = a
        for edges, back in ((self._predecessors, self._successors), (self._successors, self._predecessors)):
            for x in edges[b]:
                back[x].discard(b)
                back[x].add(a)
            edges[a] |= edges[b]
            edges[b] = set()
        for edges in (self._predecessors, self._successors):
            edges[a] -= {a, b}
        self._labels[a] += self._labels[b]
        self._labels[b] = []
        level, self._level[a] = max(self._level[a], self._level[b]), -1
        self._raise(a, level)

    def _raise(self, node: int, level: int) -> None:
        """Raise the level of a node, and those of what it reaches as far as needed."""
        waiting = [(node, level)]
        while waiting:
            node, level = waiting.pop()
            if self._level[node] < level:
                assert level < len(self._parent), "the graph has a cycle"
                self._level[node] = level
                waiting += [(x, level + 1) for x in self._successors[node] if self._level[x] <= level]

    def predecessors(self, node: int) -> set[int]:
        """The nodes with an edge to this one."""
        return self._predecessors[self.find(node)]

    def in_order(self) -> list[int]:
        """All nodes, in a topological order."""
        return sorted((x for x, parent in enumerate(self._parent) if x == parent), key=self._level.__getitem__)

    def decompose(self) -> None:
        """Cover the graph with chains: a longest path, and a longest one from each node that is left, as far as it goes
        through others that are left."""
        order = self.in_order()
        height = [0] * len(self)
        for node in reversed(order):
            height[node] = max((height[x] + 1 for x in self._successors[node]), default=0)
        self._chains.clear()
        left = set(order)
        for first in sorted(order, key=lambda x: -height[x]):
            chain: list[int] = []
            node = first if first in left else None
            while node is not None:
                left.discard(node)
                self._labels[node] = [(first, len(chain))]
                chain.append(node)
                following = self._successors[node] & left
                node = max(following, key=lambda x: (height[x], -x), default=None)
            if chain:
                self._chains[first] = chain

    def reaches(self, a: int, b: int) -> bool:
        """Whether there is a path, which may be empty, from a to b; True too where it takes too long to find out."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        return b in self._successors[a] or self.reaches_through_others(a, b)

    def reaches_through_others(self, a: int, b: int) -> bool:
        """Whether there is a path from a to b through at least one other node; True too where it takes too long to find
        out. It is searched for from both ends, along as many edges from each."""
        a, b = self.find(a), self.find(b)
        if a == b or self._level[a] + 1 >= self._level[b]:
            return False
        if self._are_apart(a, b):
            return True
        seen: tuple[set[int], set[int]] = {a}, {b}
        ends, edges = ([a], [b]), (self._successors, self._predecessors)
        chains: tuple[dict[int, int], dict[int, int]] = {}, {}  # the first rank that a reaches, the last that reaches b
        scanned = [0, 0]
        while ends[0] and ends[1]:
            after = [scanned[side] + len(edges[side][ends[side][-1]]) for side in (0, 1)]
            side = int(after[1] < after[0])
            node, target, own = ends[side].pop(), (b, a)[side], seen[side]
            scanned[side] = after[side]
            self.scanned += len(edges[side][node])
            if sum(scanned) > MOST_SCANNED:
                return True
            for x in edges[side][node]:
                if x == target:
                    if node != (a, b)[side]:
                        return True
                elif x not in own and self._level[a] < self._level[x] < self._level[b]:
                    own.add(x)
                    if self._is_met(x, side, chains):
                        return True
                    ends[side].append(x)
        return False

    def _are_apart(self, a: int, b: int) -> bool:
        """Whether a comes before b in a chain, and another node between them."""
        last = dict(self._labels[b])
        for chain, rank in self._labels[a]:
            if last.get(chain, 0) > rank + 1 and self.find(self._chains[chain][rank + 1]) not in (a, b):
                return True
        return False

    def _is_met(self, node: int, side: int, chains: tuple[dict[int, int], dict[int, int]]) -> bool:
        """Enter the chains of a node that a reaches (side 0) or that reaches b; whether the other side meets one."""
        first, last = chains
        for chain, rank in self._labels[node]:
            if side == 0:
                first[chain] = min(rank, first.get(chain, rank))
            else:
                last[chain] = max(rank, last.get(chain, rank))
            if chain in first and first[chain] <= last.get(chain, -1):
                return True
        return False
