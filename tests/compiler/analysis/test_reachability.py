"""Reachability under insertions of edges and contractions agrees with a search of the whole graph."""

from __future__ import annotations

import random

import pytest

from tinyxla.compiler.analysis import reachability
from tinyxla.compiler.analysis.reachability import Reachability


class Naive:
    """The same graph as a set of edges, which are all followed for each question."""

    def __init__(self) -> None:
        self.edges: set[tuple[int, int]] = set()
        self.names: list[int] = []

    def add(self, predecessors: set[int]) -> int:
        self.names.append(len(self.names))
        self.edges |= {(self.names[p], len(self.names) - 1) for p in predecessors}
        return len(self.names) - 1

    def add_edges(self, node: int, predecessors: set[int]) -> None:
        self.edges |= {(self.names[p], self.names[node]) for p in predecessors if self.names[p] != self.names[node]}

    def merge(self, a: int, b: int) -> None:
        one, other = self.names[a], self.names[b]
        self.names = [one if x == other else x for x in self.names]
        renamed = {tuple(one if x == other else x for x in edge) for edge in self.edges}
        self.edges = {(x, y) for x, y in renamed if x != y}

    def descendants(self, node: int) -> set[int]:
        found: set[int] = set()
        waiting = [self.names[node]]
        while waiting:
            x = waiting.pop()
            new = {z for y, z in self.edges if y == x} - found
            found |= new
            waiting += new
        return found

    def reaches(self, a: int, b: int) -> bool:
        return self.names[a] == self.names[b] or self.names[b] in self.descendants(a)

    def reaches_indirectly(self, a: int, b: int) -> bool:
        one, other = self.names[a], self.names[b]
        between = {y for x, y in self.edges if x == one} - {other}
        return any(other in self.descendants(y) for y in between)


def grown(seed: int, decompose: bool) -> tuple[Reachability, Naive, int]:
    """A graph after random insertions and contractions; in the middle it is decomposed."""
    choice = random.Random(seed)
    graph, naive = Reachability(), Naive()
    size = choice.randint(2, 30)
    span = choice.choice([2, 5, size])  # how far back edges go: deep graphs, and wide ones
    for k in range(size):
        predecessors = {choice.randrange(max(0, k - span), k) for _ in range(choice.randint(0, 3)) if k}
        assert graph.add(predecessors) == naive.add(predecessors)
        if k > 2 and choice.random() < 0.2:  # an edge to an older node
            a, b = choice.sample(range(k), 2)
            if not naive.reaches(b, a):
                graph.add_edges(b, [a])
                naive.add_edges(b, {a})
    if decompose:
        graph.decompose()
    for _ in range(choice.randint(0, size // 2)):
        a, b = choice.sample(range(size), 2)
        if not naive.reaches(b, a) and not naive.reaches_indirectly(a, b):
            graph.merge(a, b)
            naive.merge(a, b)
    return graph, naive, size


@pytest.mark.parametrize("decompose", [False, True])
def test_reachability_of_random_graphs_agrees_with_a_search_of_all_edges(decompose: bool) -> None:
    answers = {True: 0, False: 0}
    for seed in range(60):
        graph, naive, size = grown(seed, decompose)
        for a in range(size):
            assert graph.find(a) == naive.names[a]
            for b in range(size):
                assert graph.reaches(a, b) == naive.reaches(a, b)
                if graph.find(a) != graph.find(b):
                    found = graph.reaches_indirectly(a, b)
                    assert found == naive.reaches_indirectly(a, b)
                    answers[found] += 1
    assert min(answers.values()) > 400


def test_topological_order_of_random_graphs_has_predecessors_first() -> None:
    for seed in range(30):
        graph, naive, _ = grown(seed, decompose=False)
        order = graph.topological_order()
        assert set(order) == set(naive.names)
        place = {node: k for k, node in enumerate(order)}
        assert all(place[x] < place[y] for x, y in naive.edges)
        assert all(graph.predecessors(y) == {x for x, z in naive.edges if z == y} for y in order)


def test_an_edge_that_closes_a_cycle_is_refused() -> None:
    graph = Reachability()
    a = graph.add(())
    b = graph.add([a])
    with pytest.raises(AssertionError, match="cycle"):
        graph.add_edges(a, [b])


def test_search_along_a_chain_scans_no_edges() -> None:
    """Edges from the first half of a chain to its second: what layers keep is read by their gradients."""
    size, every = 1000, 100
    pairs = {2 * size - 1 - k: k for k in range(0, size, every)}
    graph = Reachability()
    for k in range(2 * size):
        graph.add([k - 1] * (k > 0) + ([pairs[k]] if k in pairs else []))
    assert all(graph.reaches_indirectly(a, b) for b, a in pairs.items())
    assert graph.scanned == 0


def test_decomposition_follows_the_longest_paths() -> None:
    """Each node of the chain has a short branch, which was there first."""
    size = 500
    graph, last = Reachability(), None
    for _ in range(size):
        last = graph.add(() if last is None else [last])
        graph.add([last])
    begin, end = 0, 2 * size - 2
    assert graph.reaches_indirectly(begin, end)
    before = graph.scanned
    graph.decompose()
    assert graph.reaches_indirectly(begin, end)
    assert graph.scanned == before > 0


def test_decomposition_follows_one_longest_path_where_there_are_many() -> None:
    """Between each two nodes of the path there are two more, side by side; others hang on the second of them."""
    size = 200
    graph = Reachability()
    last = begin = graph.add(())
    for _ in range(size):
        one, other = graph.add([last]), graph.add([last])
        graph.add([graph.add([graph.add([other])])])
        last = graph.add([one, other])
    graph.decompose()
    longest = max(graph._chains.values(), key=len)
    assert (len(longest), longest[0]) == (2 * size + 3, begin)
    assert graph.reaches_indirectly(begin, longest[2 * size - 2])
    assert graph.scanned == 0


def test_search_that_scans_too_many_edges_counts_as_reaching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains that never meet: nothing tells that before one has been followed to its end."""
    graph = Reachability()
    ends = [graph.add(()), graph.add(())]
    for _ in range(100):
        ends = [graph.add([end]) for end in ends]
    assert not graph.reaches(0, ends[1])
    monkeypatch.setattr(reachability, "MAX_CANDIDATES", 7)
    assert graph.reaches(0, ends[1])
