"""Reachability in a directed acyclic graph under node insertion and contraction: which nests may be merged.

Contraction is by union-find. Every node has a *level* that exceeds those of its predecessors (a topological numbering,
as in Bender, Fineman, Gilbert and Tarjan, "A new approach to incremental cycle detection and related problems", 2015):
a search stays within the levels of its ends. `decompose` covers the graph with chains (Jagadish, "A compression
technique to materialize transitive closure", 1990): a node reaches all later nodes of its chain, so that a search in a
deep graph ends at the first two nodes of one chain that it meets from both sides.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyxla.compiler.costs import MAX_CANDIDATES


class Reachability:
    """A directed acyclic graph. Nodes are numbered in order of insertion; after `merge(a, b)` both numbers denote
    one node, and `find(b) == find(a) == a`."""

    def __init__(self) -> None:
        self.scanned = 0  # edges, by all searches so far
        self._parent: list[int] = []
        self._level: list[int] = []
        self._predecessors: list[set[int]] = []
        self._successors: list[set[int]] = []
        self._chains: dict[int, list[int]] = {}  # by their first nodes
        self._labels: list[list[tuple[int, int]]] = []  # (chain, rank) pairs of the nodes contracted into one

    def __len__(self) -> int:
        return len(self._parent)

    def find(self, node: int) -> int:
        """The representative of a node."""
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

    def _append(self, node: int, predecessor: int) -> None:
        """Append a node to the chain of a predecessor, if the latter is the last in its chain; otherwise start a
        chain."""
        chain, rank = self._labels[predecessor][0] if predecessor != node else (node, -1)
        if predecessor != node and len(self._chains[chain]) > rank + 1:
            chain, rank = node, -1
        self._chains.setdefault(chain, []).append(node)
        self._labels[node] = [(chain, rank + 1)]

    def add_edges(self, node: int, predecessors: Iterable[int]) -> None:
        """Insert edges to a node from others, none of which the node reaches."""
        node = self.find(node)
        others = {self.find(x) for x in predecessors} - {node}
        self._predecessors[node] |= others
        for other in others:
            self._successors[other].add(node)
        self._raise(node, max((self._level[x] + 1 for x in others), default=0))

    def merge(self, a: int, b: int) -> None:
        """Contract two nodes between which there is no path of more than one edge; a denotes both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        self._parent[b] = a
        for edges, reverse_edges in ((self._predecessors, self._successors), (self._successors, self._predecessors)):
            for x in edges[b]:
                reverse_edges[x].discard(b)
                reverse_edges[x].add(a)
            edges[a] |= edges[b]
            edges[b] = set()
        for edges in (self._predecessors, self._successors):
            edges[a] -= {a, b}
        self._labels[a] += self._labels[b]
        self._labels[b] = []
        level, self._level[a] = max(self._level[a], self._level[b]), -1
        self._raise(a, level)

    def _raise(self, node: int, level: int) -> None:
        """Raise the level of a node, and those of its successors as far as needed."""
        pending = [(node, level)]
        while pending:
            node, level = pending.pop()
            if self._level[node] < level:
                assert level < len(self._parent), "the graph has a cycle"
                self._level[node] = level
                pending += [(x, level + 1) for x in self._successors[node] if self._level[x] <= level]

    def predecessors(self, node: int) -> set[int]:
        """The nodes with an edge to this one."""
        return self._predecessors[self.find(node)]

    def topological_order(self) -> list[int]:
        """All nodes, in a topological order."""
        return sorted((x for x, parent in enumerate(self._parent) if x == parent), key=self._level.__getitem__)

    def decompose(self) -> None:
        """Cover the graph with chains: a longest path, then from each uncovered node a longest path through uncovered
        nodes."""
        order = self.topological_order()
        height = [0] * len(self)
        for node in reversed(order):
            height[node] = max((height[x] + 1 for x in self._successors[node]), default=0)
        self._chains.clear()
        uncovered = set(order)
        for first in sorted(order, key=lambda x: -height[x]):
            chain: list[int] = []
            node = first if first in uncovered else None
            while node is not None:
                uncovered.discard(node)
                self._labels[node] = [(first, len(chain))]
                chain.append(node)
                successors = self._successors[node] & uncovered
                node = max(successors, key=lambda x: (height[x], -x), default=None)
            if chain:
                self._chains[first] = chain

    def reaches(self, a: int, b: int) -> bool:
        """True if there is a path, possibly empty, from a to b, or if the search is abandoned."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        return b in self._successors[a] or self.reaches_indirectly(a, b)

    def reaches_indirectly(self, a: int, b: int) -> bool:
        """True if there is a path from a to b through at least one other node, or if the search is abandoned.
        Bidirectional search, balanced by scanned edges."""
        a, b = self.find(a), self.find(b)
        if a == b or self._level[a] + 1 >= self._level[b]:
            return False
        if self._are_separated_in_chain(a, b):
            return True
        visited_of: tuple[set[int], set[int]] = {a}, {b}
        frontiers, edges = ([a], [b]), (self._successors, self._predecessors)
        chains: tuple[dict[int, int], dict[int, int]] = (
            {},
            {},
        )  # per chain: the first rank that a reaches, the last that reaches b
        scanned = [0, 0]
        while frontiers[0] and frontiers[1]:
            scanned_after = [scanned[side] + len(edges[side][frontiers[side][-1]]) for side in (0, 1)]
            side = int(scanned_after[1] < scanned_after[0])
            node, target, visited = frontiers[side].pop(), (b, a)[side], visited_of[side]
            scanned[side] = scanned_after[side]
            self.scanned += len(edges[side][node])
            if sum(scanned) > MAX_CANDIDATES**2:
                return True
            for x in edges[side][node]:
                if x == target:
                    if node != (a, b)[side]:
                        return True
                elif x not in visited and self._level[a] < self._level[x] < self._level[b]:
                    visited.add(x)
                    if self._meets_other_side(x, side, chains):
                        return True
                    frontiers[side].append(x)
        return False

    def _are_separated_in_chain(self, a: int, b: int) -> bool:
        """True if a precedes b in a chain with another node in between."""
        last = dict(self._labels[b])
        for chain, rank in self._labels[a]:
            if last.get(chain, 0) > rank + 1 and self.find(self._chains[chain][rank + 1]) not in (a, b):
                return True
        return False

    def _meets_other_side(self, node: int, side: int, chains: tuple[dict[int, int], dict[int, int]]) -> bool:
        """Record the chains of a node that a reaches (side 0) or that reaches b (side 1); true if the other side has
        reached a connected node of such a chain."""
        first, last = chains
        for chain, rank in self._labels[node]:
            if side == 0:
                first[chain] = min(rank, first.get(chain, rank))
            else:
                last[chain] = max(rank, last.get(chain, rank))
            if chain in first and first[chain] <= last.get(chain, -1):
                return True
        return False
