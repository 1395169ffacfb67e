"""Collective operations against the vectors of StableHLO's interpreter (inputs, groups and results of its tests of
all_gather, all_reduce, all_to_all, collective_broadcast, collective_permute and reduce_scatter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tinyxla import xla


class Vector(NamedTuple):
    """An operation on the devices of replicas and partitions: the arguments and results of each, replica by replica."""

    name: str
    operation: Callable[..., Any]  # of the parameters
    arguments: list[list[Any]]
    results: list[Any]
    partitions: int = 1


def add() -> xla.XlaComputation:
    builder = xla.XlaBuilder("add")
    scalar = xla.ShapeUtil.MakeShape(xla.S64, ())
    x, y = (xla.Parameter(builder, k, scalar, "xy"[k]) for k in (0, 1))
    return builder.Build(xla.Add(x, y))


ROWS = [[1, 2, 3, 4], [5, 6, 7, 8]]
SUM = [6, 8, 10, 12]
MATRICES = [[[[1, 2, 3, 4], [5, 6, 7, 8]]], [[[9, 10, 11, 12], [13, 14, 15, 16]]]]
SCATTERED = [[[10, 12], [18, 20]], [[14, 16], [22, 24]]]
EXCHANGED = [[[1, 2], [5, 6], [9, 10], [13, 14]], [[3, 4], [7, 8], [11, 12], [15, 16]]]
PAIRS = [[[[1, 2]]], [[[3, 4]]], [[[5, 6]]], [[[7, 8]]]]
ZERO = [[0, 0]]
SQUARES = [[[[4 * k + 1, 4 * k + 2], [4 * k + 3, 4 * k + 4]]] for k in range(5)]
SHIFTED = [[[0, 0], [0, 0]], *(SQUARES[k][0] for k in (0, 1, 3, 4))]
HALVES = [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]
WHOLE = [[1, 2, 5, 6], [3, 4, 7, 8]]
EVERY_SECOND = [[0, 2], [1, 3], [4, 6], [5, 7]]  # the major half of the axis y of a mesh of x = 2 by y = 4


def reduced(**options: Any) -> Callable[..., Any]:
    return lambda x: xla.AllReduce(x, add(), **options)


def scattered(dimension: int = 1, **options: Any) -> Callable[..., Any]:
    return lambda x: xla.ReduceScatter(x, add(), dimension, 2, **options)


def broadcast(groups: list[list[int]], channel: int | None = None) -> Callable[..., Any]:
    return lambda x: xla.CollectiveBroadcast(x, groups, channel)


def permuted(channel: int | None) -> Callable[..., Any]:
    return lambda x: xla.CollectivePermute(x, [(0, 1), (1, 2), (3, 3), (4, 4)], channel)


VECTORS = [
    Vector("all_reduce", reduced(replica_groups=[[0, 1]]), [[x] for x in ROWS], [SUM] * 2),
    Vector(
        "all_reduce_replicas_and_partitions",
        reduced(replica_groups=[[0, 1]], channel_id=1),
        [[x] for x in ROWS],
        [SUM] * 2,
    ),
    Vector(
        "all_reduce_flattened",
        reduced(replica_groups=[[0, 1]], channel_id=1, use_global_device_ids=True),
        [[x] for x in ROWS],
        [SUM] * 2,
    ),
    Vector(
        "all_reduce_unequal_groups",
        reduced(replica_groups=[[0, 1], [2]]),
        [[x] for x in [*ROWS, SUM]],
        [SUM] * 3,
    ),
    Vector(
        "all_reduce_variadic",
        lambda x, y: xla.AllReduce(xla.Tuple([x, y]), add(), [[0, 1]]),
        [[[1, 2, 3, 4], [5, 6, 7, 8, 9]], [[11, 12, 13, 14], [15, 16, 17, 18, 19]]],
        [([12, 14, 16, 18], [20, 22, 24, 26, 28])] * 2,
    ),
    Vector(
        "all_reduce_of_a_part_of_an_axis",
        reduced(replica_groups=EVERY_SECOND),
        [[[10 * k]] for k in range(1, 9)],
        [[40], [60], [40], [60], [120], [140], [120], [140]],
    ),
    Vector("all_gather", lambda x: xla.AllGather(x, 1, 2, [[0, 1]]), HALVES, [WHOLE] * 2),
    Vector("all_gather_over_a_channel", lambda x: xla.AllGather(x, 1, 2, [[0, 1]], 1), HALVES, [WHOLE] * 2),
    Vector("all_gather_flattened", lambda x: xla.AllGather(x, 1, 2, [[0, 1]], 1, None, True), HALVES, [WHOLE] * 2),
    Vector(
        "all_gather_replicas_and_partitions",
        lambda x: xla.AllGather(x, 1, 4, [[0, 1]], 1),
        [[[[5, 6], [7, 8]]], [[[5, 6], [7, 8]]], [[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]],
        [[[5, 6, 5, 6, 1, 2, 5, 6], [7, 8, 7, 8, 3, 4, 7, 8]]] * 4,
        partitions=2,
    ),
    Vector("reduce_scatter", scattered(replica_groups=[[0, 1]]), MATRICES, SCATTERED),
    Vector(
        "reduce_scatter_replicas_and_partitions",
        scattered(replica_groups=[[0, 1]], channel_id=1),
        MATRICES,
        SCATTERED,
    ),
    Vector(
        "reduce_scatter_flattened",
        scattered(replica_groups=[[0, 1]], channel_id=1, use_global_device_ids=True),
        MATRICES,
        SCATTERED,
    ),
    Vector(
        "reduce_scatter_of_a_part_of_an_axis",
        scattered(0, replica_groups=EVERY_SECOND),
        [[x] for x in ([1, 2], [3, 4], [10, 20], [30, 40], [5, 6], [7, 8], [50, 60], [70, 80])],
        [[11], [33], [22], [44], [55], [77], [66], [88]],
    ),
    Vector("all_to_all", lambda x: xla.AllToAll(x, 1, 0, 2, [[0, 1]]), MATRICES, EXCHANGED),
    Vector(
        "all_to_all_reversed_group",
        lambda x: xla.AllToAll(x, 1, 0, 2, [[1, 0]]),
        MATRICES,
        [[[11, 12], [15, 16], [3, 4], [7, 8]], [[9, 10], [13, 14], [1, 2], [5, 6]]],
    ),
    Vector(
        "all_to_all_partitions",
        lambda x: xla.AllToAll(x, 1, 0, 2, [[0, 1]], channel_id=1),
        MATRICES,
        EXCHANGED,
        partitions=2,
    ),
    Vector(
        "all_to_all_one_dimension",
        lambda x: xla.AllToAll(x, 0, 0, 2, [[0, 1]]),
        MATRICES,
        [[[1, 2, 3, 4], [9, 10, 11, 12]], [[5, 6, 7, 8], [13, 14, 15, 16]]],
    ),
    Vector("broadcast", broadcast([[2, 1]]), PAIRS, [ZERO, [[5, 6]], [[5, 6]], ZERO]),
    Vector("broadcast_to_several", broadcast([[2, 1, 0]]), PAIRS, [*[[[5, 6]]] * 3, ZERO]),
    Vector("broadcast_one_replica", broadcast([[0]]), PAIRS, [x for (x,) in PAIRS], partitions=4),
    Vector("broadcast_each_partition", broadcast([[1, 0]]), PAIRS, [[[5, 6]], [[7, 8]]] * 2, partitions=2),
    Vector("broadcast_partitions", broadcast([[2, 1]], 1), PAIRS, [ZERO, [[5, 6]], [[5, 6]], ZERO], partitions=4),
    Vector("broadcast_to_several_partitions", broadcast([[2, 1, 0]], 1), PAIRS, [*[[[5, 6]]] * 3, ZERO], partitions=4),
    Vector("broadcast_one_partition", broadcast([[0]], 1), PAIRS, [x for (x,) in PAIRS]),
    Vector(
        "broadcast_in_each_replica", broadcast([[1, 0]], 1), PAIRS, [*[[[3, 4]]] * 2, *[[[7, 8]]] * 2], partitions=2
    ),
    Vector("permute_with_self_loops", permuted(None), SQUARES, SHIFTED),
    Vector("permute_partitions_with_self_loops", permuted(1), SQUARES, SHIFTED, partitions=5),
]


@pytest.mark.parametrize("backend", [None, "interpreter"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_vector(vector: Vector, backend: str | None) -> None:
    given = [[np.array(x, np.int64) for x in device] for device in vector.arguments]
    builder = xla.XlaBuilder(vector.name)
    shapes = [xla.ShapeUtil.MakeShape(xla.S64, x.shape) for x in given[0]]
    vector.operation(*(xla.Parameter(builder, k, shape, f"x{k}") for k, shape in enumerate(shapes)))
    found = builder.Build().execute_replicated(given, partition_count=vector.partitions, backend=backend)
    for got, expected in zip(found, vector.results, strict=True):
        several = zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
        for x, y in several:
            assert x.dtype == np.int64
            np.testing.assert_array_equal(x, y)
