"""Places for the boxes of a drawing of a directed graph, in layers from top to bottom.

The method is that of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): layers by longest paths; an edge that skips layers passes through a bend in each; sweeps that sort every layer
by the mean place of its neighbours, and the order with fewest crossings wins. Then x coordinates: in turn each layer
moves as close to its neighbours as the boxes' widths allow, which is isotonic regression, solved by pooling adjacent
violators.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_SWEEPS = 24
_ROUNDS = 60
_BETWEEN = 18.0  # boxes of a layer
_BELOW = 34.0  # a layer


class Box(NamedTuple):
    """How far a box reaches from its anchor, where edges arrive and leave."""

    left: float
    right: float
    height: float


class Point(NamedTuple):
    x: float
    y: float


class Drawing(NamedTuple):
    """The anchors of the boxes (middle of their tops), the bends of the edges from top to bottom, and the size."""

    anchors: list[Point]
    bends: dict[tuple[int, int], list[tuple[Point, Point]]]  # where an edge enters and leaves each layer it passes
    width: float
    height: float


_BEND = Box(3.0, 3.0, 0.0)


class _Layers(NamedTuple):
    """Boxes and bends by number (bends after all boxes); links join neighbouring layers only."""

    boxes: list[Box]
    rank: list[int]
    above: list[list[int]]
    below: list[list[int]]
    chains: list[list[int]]  # the bends of each box's outgoing edges, which share them


def arrange(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Drawing:
    """A drawing of the boxes; every edge goes from a lower to a higher number."""
    layers = _layered(boxes, edges)
    order = _fewest_crossings(layers)
    x = _abscissas(layers, order)
    heights = [max(layers.boxes[k].height for k in row) for row in order]
    tops = [sum(heights[:r]) + _BELOW * r for r in range(len(order))]
    left = min((x[k] - layers.boxes[k].left for row in order for k in row), default=0.0)
    right = max((x[k] + layers.boxes[k].right for row in order for k in row), default=0.0)
    anchors = [
        Point(x[k] - left, tops[layers.rank[k]] + (heights[layers.rank[k]] - boxes[k].height) / 2)
        for k in range(len(boxes))
    ]
    bends: dict[tuple[int, int], list[tuple[Point, Point]]] = {}
    for a, b in edges:
        passed = layers.chains[a][: layers.rank[b] - layers.rank[a] - 1]
        ranks = (layers.rank[k] for k in passed)
        bends[a, b] = [
            (Point(x[k] - left, tops[r]), Point(x[k] - left, tops[r] + heights[r]))
            for k, r in zip(passed, ranks, strict=True)
        ]
    return Drawing(anchors, bends, right - left, tops[-1] + heights[-1] if order else 0.0)


def _layered(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> _Layers:
    count = len(boxes)
    rank = [0] * count
    users: list[list[int]] = [[] for _ in boxes]
    fed = [False] * count
    for a, b in sorted(set(edges), key=lambda edge: edge[1]):
        rank[b] = max(rank[b], rank[a] + 1)
        users[a].append(b)
        fed[b] = True
    for k in range(count):
        if users[k] and not fed[k]:
            rank[k] = min(rank[user] for user in users[k]) - 1  # a source stands just above its first user
    layers = _Layers(list(boxes), rank, [[] for _ in boxes], [[] for _ in boxes], [[] for _ in boxes])

    def link(upper: int, lower: int) -> None:
        layers.below[upper].append(lower)
        layers.above[lower].append(upper)

    for a in range(count):
        last = max((rank[user] for user in users[a]), default=0)
        for r in range(rank[a] + 1, last):
            layers.boxes.append(_BEND)
            rank.append(r)
            layers.above.append([])
            layers.below.append([])
            bend = len(rank) - 1
            link(layers.chains[a][-1] if layers.chains[a] else a, bend)
            layers.chains[a].append(bend)
        for user in users[a]:
            passed = rank[user] - rank[a] - 1
            link(layers.chains[a][passed - 1] if passed else a, user)
    return layers


# --- order within layers ----------------------------------------------------------------------------------------------


def _fewest_crossings(layers: _Layers) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(layers.rank, default=-1) + 1)]
    for k, r in enumerate(layers.rank):
        rows[r].append(k)
    best = [list(row) for row in rows]
    fewest = _crossings(layers, rows)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        downwards = sweep % 2 == 0
        for r in range(len(rows)) if downwards else reversed(range(len(rows))):
            _sort_by_neighbours(rows, r, layers.above if downwards else layers.below, r + (-1 if downwards else 1))
        found = _crossings(layers, rows)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _sort_by_neighbours(rows: list[list[int]], r: int, neighbours: list[list[int]], other: int) -> None:
    if not 0 <= other < len(rows):
        return
    place = {k: float(p) for p, k in enumerate(rows[other])}
    stretch = len(rows[other]) / len(rows[r])
    key = {
        k: sum(place[n] for n in neighbours[k]) / len(neighbours[k]) if neighbours[k] else p * stretch
        for p, k in enumerate(rows[r])
    }
    rows[r].sort(key=key.__getitem__)


def _crossings(layers: _Layers, rows: list[list[int]]) -> int:
    """Pairs of links in opposite order at their two ends."""
    total = 0
    for row, lower in pairwise(rows):
        place = {k: p for p, k in enumerate(lower)}
        ends = [p for k in row for p in sorted(place[n] for n in layers.below[k])]
        seen: list[int] = []
        for end in ends:
            at = bisect_right(seen, end)
            total += len(seen) - at
            seen.insert(at, end)
    return total


# --- places within layers ---------------------------------------------------------------------------------------------


def _abscissas(layers: _Layers, rows: list[list[int]]) -> list[float]:
    x = [0.0] * len(layers.rank)
    offsets: list[list[float]] = []
    for row in rows:
        offset = [0.0]
        for a, b in pairwise(row):
            offset.append(offset[-1] + layers.boxes[a].right + _BETWEEN + layers.boxes[b].left)
        offsets.append(offset)
        for k, start in zip(row, offset, strict=False):
            x[k] = start - offset[-1] / 2
    bend = len(layers.chains)  # from this number on they are bends, which want to be straight
    for turn in range(_ROUNDS):
        for r in range(len(rows)) if turn % 2 == 0 else reversed(range(len(rows))):
            wanted: list[float] = []
            weights: list[float] = []
            for k in rows[r]:
                near = [(20.0 if n >= bend and k >= bend else 1.0, x[n]) for n in (*layers.above[k], *layers.below[k])]
                weight = sum(w for w, _ in near)
                wanted.append(sum(w * at for w, at in near) / weight if near else x[k])
                weights.append(weight or 0.1)
            for k, at in zip(rows[r], _spaced(wanted, weights, offsets[r]), strict=True):
                x[k] = at
    return x


def _spaced(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The places closest to those wanted (least squares) that are as far apart as the offsets."""
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of members that move together
    for at, weight, offset in zip(wanted, weights, offsets, strict=False):
        mean, total, members = at - offset, weight, 1
        while pools and pools[-1][0] > mean:
            left_mean, left_total, left_members = pools.pop()
            mean = (left_mean * left_total + mean * total) / (left_total + total)
            total, members = left_total + total, left_members + members
        pools.append((mean, total, members))
    means = [mean for mean, _, members in pools for _ in range(members)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
