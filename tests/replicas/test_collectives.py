"""Collective operations through the builder: the worked examples of the XLA documents, on both backends, the
preconditions, derivatives and maps.

The derivative of a program of several replicas is that of the function from all arguments to all results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support import xla_oracle
from tinyxla import xla
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    DifferentiationError,
    DTypeError,
    ShapeError,
    TinyxlaError,
)
from tinyxla.shapes import Shape
from tinyxla.text import parse_hlo, print_module
from tinyxla.xla import ChannelHandle, ChannelType, ReplicaGroup, ShapeUtil, XlaBuilder, XlaComputation

BACKENDS = ("interpreter", "numba")
Array = np.ndarray[Any, Any]
Build = Callable[..., Any]  # of a builder and its parameters


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def scalars(combine: Build, kind: Any = xla.F32) -> XlaComputation:
    """A computation of two scalars."""
    builder = XlaBuilder("combine")
    shape = ShapeUtil.MakeShape(kind, [])
    x, y = (xla.Parameter(builder, number, shape) for number in (0, 1))
    return builder.Build(combine(x, y))


ADD, MAX, MUL = scalars(xla.Add), scalars(xla.Max), scalars(xla.Mul)
HALVED_PRODUCT = scalars(lambda x, y: xla.Mul(xla.Mul(x, y), xla.ConstantLiteral(x.builder, np.float32(0.5))))


def built(build: Build, *like: Any) -> XlaComputation:
    """The computation of parameters of the shapes of these arrays (or tuples of arrays)."""
    builder = XlaBuilder("program")

    def shape(x: Any) -> Any:
        if isinstance(x, tuple):
            return xla.TupleShape(tuple(map(shape, x)))
        return Shape.of(x)

    parameters = [xla.Parameter(builder, number, shape(x)) for number, x in enumerate(like)]
    return builder.Build(build(builder, *parameters))


def replicated(build: Build, *arguments: Sequence[Any], backend: str | None = None, **counts: int) -> list[Any]:
    """The results of all replicas; of the program's text, too, which must be one that XLA's parser takes."""
    program = built(build, *arguments[0])
    found = program.execute_replicated([list(given) for given in arguments], backend=backend, **counts)
    if backend == "numba":
        return found
    text = program.as_hlo_text()
    module = parse_hlo(text)
    assert print_module(module) == text
    xla_oracle.parse(text)
    flat = [
        [x for given in several for x in (given if isinstance(given, tuple) else (given,))] for several in arguments
    ]
    again = module.execute_replicated(flat, backend=backend, **counts)
    for x, y in zip(found, again, strict=True):
        equal(x, y)
    return found


def equal(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            equal(x, y)
    else:
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def all_equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        equal(x, y)


# --- the documents' examples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_gather(backend: str) -> None:
    found = replicated(lambda b, x: xla.AllGather(x, 0, 2), [f32(1, 2.5)], [f32(3, 5.25)], backend=backend)
    all_equal(found, [f32(1, 2.5, 3, 5.25)] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_gather_in_groups(backend: str) -> None:
    arguments = [[f32(10 * k, 10 * k + 1)] for k in range(4)]
    found = replicated(lambda b, x: xla.AllGather(x, 0, 2, [[0, 2], [1, 3]]), *arguments, backend=backend)
    even, odd = f32(0, 1, 20, 21), f32(10, 11, 30, 31)
    all_equal(found, [even, odd, even, odd])
    reversed_ = replicated(lambda b, x: xla.AllGather(x, 0, 2, [[2, 0], [1, 3]]), *arguments, backend=backend)
    all_equal(reversed_, [f32(20, 21, 0, 1), odd, f32(20, 21, 0, 1), odd])


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_reduce(backend: str) -> None:
    found = replicated(lambda b, x: xla.AllReduce(x, ADD), [f32(1, 2.5)], [f32(3, 5.25)], backend=backend)
    all_equal(found, [f32(4, 7.75)] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_reduce_in_groups(backend: str) -> None:
    arguments = [[f32(k, -k)] for k in range(4)]
    found = replicated(lambda b, x: xla.AllReduce(x, ADD, [[0, 2], [1, 3]]), *arguments, backend=backend)
    all_equal(found, [f32(2, -2), f32(4, -4)] * 2)
    unequal = [ReplicaGroup([0, 1, 3]), ReplicaGroup([2])]
    found = replicated(lambda b, x: xla.AllReduce(x, MAX, unequal), *arguments, backend=backend)
    all_equal(found, [f32(3, 0), f32(3, 0), f32(2, -2), f32(3, 0)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_reduce_of_a_tuple(backend: str) -> None:
    given = [((f32(1, 2), f32(3)),), ((f32(10, 20), f32(30)),)]
    found = replicated(lambda b, x: xla.AllReduce(x, ADD), *given, backend=backend)
    all_equal(found, [(f32(11, 22), f32(33))] * 2)
    single = replicated(lambda b, x: xla.AllReduce(xla.Tuple(b, [x]), ADD), [f32(1)], [f32(2)], backend=backend)
    all_equal(single, [(f32(3),)] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_reduce_with_a_computation_of_several_operations(backend: str) -> None:
    arguments = [[f32(k + 1)] for k in range(3)]
    found = replicated(lambda b, x: xla.AllReduce(x, HALVED_PRODUCT), *arguments, backend=backend)
    all_equal(found, [f32(1.5)] * 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_cross_replica_sum(backend: str) -> None:
    """The pages of 2018 and 2017 have other numbers, and no groups; of truth values it is `or`."""
    for first, second, total in (((1, 2.5), (3, 5.25), (4, 7.75)), ((1, 2.5), (3, 5.1), (4, 7.6))):
        found = replicated(lambda b, x: xla.CrossReplicaSum(x), [f32(*first)], [f32(*second)], backend=backend)
        all_equal(found, [f32(*total)] * 2)
    arguments = [[f32(k)] for k in range(4)]
    found = replicated(lambda b, x: xla.CrossReplicaSum(x, [[0, 1], [2, 3]]), *arguments, backend=backend)
    all_equal(found, [f32(1), f32(1), f32(5), f32(5)])
    flags = [[np.array([True, False])], [np.array([True, False])]]
    all_equal(replicated(lambda b, x: xla.CrossReplicaSum(x), *flags), [np.array([True, False])] * 2)
    pair = [((f32(1), f32(2)),), ((f32(3), f32(4)),)]
    all_equal(replicated(lambda b, x: xla.CrossReplicaSum(x), *pair, backend=backend), [(f32(4), f32(6))] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_to_all_of_four_replicas(backend: str) -> None:
    arguments = [np.arange(64, dtype=np.float32).reshape(4, 16) + 100 * k for k in range(4)]
    found = replicated(lambda b, x: xla.AllToAll(x, 1, 0, 4), *[[x] for x in arguments], backend=backend)
    expected = [np.concatenate([x[:, 4 * k : 4 * k + 4] for x in arguments]) for k in range(4)]
    assert expected[0].shape == (16, 4)
    all_equal(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_to_all_of_stablehlo(backend: str) -> None:
    x, y = (np.arange(8, dtype=np.float32).reshape(2, 4) + k for k in (1, 9))
    found = replicated(lambda b, x: xla.AllToAll(x, 1, 0, 2, [[0, 1]]), [x], [y], backend=backend)
    all_equal(found, [np.concatenate([x[:, :2], y[:, :2]]), np.concatenate([x[:, 2:], y[:, 2:]])])


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_to_all_in_groups_of_another_order(backend: str) -> None:
    """Groups {1,2,3} and {4,5,0} of the documents: blocks are in the group's order."""
    arguments = [np.arange(3, dtype=np.float32) + 10 * k for k in range(6)]
    groups = [[1, 2, 3], [4, 5, 0]]
    found = replicated(lambda b, x: xla.AllToAll(x, 0, 0, 3, groups), *[[x] for x in arguments], backend=backend)
    expected = {
        replica: np.array([arguments[member][k] for member in group])
        for group in groups
        for k, replica in enumerate(group)
    }
    all_equal(found, [expected[k] for k in range(6)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_to_all_of_tuples(backend: str) -> None:
    arguments = [[f32(k, 0), f32(k, 1)] for k in range(2)]
    for build in (
        lambda b, x, y: xla.AllToAllTuple([x, y]),
        lambda b, x, y: xla.AllToAllTuple(xla.Tuple(b, [x, y]), [[0, 1]]),
    ):
        found = replicated(build, *arguments, backend=backend)
        all_equal(found, [(f32(0, 0), f32(1, 0)), (f32(0, 1), f32(1, 1))])


RAGGED = (
    ((1, 2, 2), (0, 1), (1, 2), (0, 0, 0, 0), (0, 0), (1, 1)),
    ((3, 4, 0), (0, 1), (1, 1), (0, 0, 0, 0), (1, 2), (2, 1)),
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ragged_all_to_all(backend: str) -> None:
    floating = (True, False, False, True, False, False)
    for sizes in ((2,), (2, 1)):
        arguments = [
            [np.array(x, np.float32) if is_float else np.array(x, np.int32).reshape(sizes) for x, is_float in rows]
            for rows in (zip(given, floating, strict=True) for given in RAGGED)
        ]
        found = replicated(lambda b, *x: xla.RaggedAllToAll(*x), *arguments, backend=backend)
        all_equal(found, [f32(1, 3, 0, 0), f32(2, 2, 4, 0)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_collective_broadcast_gives_zeros_outside_of_all_groups(backend: str) -> None:
    arguments = [[f32(k, k + 0.5)] for k in range(4)]
    found = replicated(lambda b, x: xla.CollectiveBroadcast(x, [[2, 1]]), *arguments, backend=backend)
    all_equal(found, [f32(0, 0), f32(2, 2.5), f32(2, 2.5), f32(0, 0)])
    found = replicated(lambda b, x: xla.CollectiveBroadcast(x), *arguments, backend=backend)
    all_equal(found, [f32(0, 0.5)] * 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_collective_permute_cyclic_partial_and_in_place(backend: str) -> None:
    arguments = [[f32(k + 1)] for k in range(3)]
    cycle = [(0, 1), (1, 2), (2, 0)]
    for inplace in (None, False, True):
        found = replicated(
            lambda b, x, inplace=inplace: xla.CollectivePermute(x, cycle, inplace=inplace), *arguments, backend=backend
        )
        all_equal(found, [f32(3), f32(1), f32(2)])
    found = replicated(lambda b, x: xla.CollectivePermute(x, [(0, 2)]), *arguments, backend=backend)
    all_equal(found, [f32(0), f32(0), f32(1)])
    found = replicated(lambda b, x: xla.CollectivePermute(x, [(1, 1), (0, 2)]), *arguments, backend=backend)
    all_equal(found, [f32(0), f32(2), f32(1)])
    found = replicated(lambda b, x: xla.CollectivePermute(x, []), *arguments, backend=backend)
    all_equal(found, [f32(0)] * 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_reduce_scatter(backend: str) -> None:
    found = replicated(lambda b, x: xla.ReduceScatter(x, ADD, 0, 2), [f32(1, 2.25)], [f32(3, 5.25)], backend=backend)
    all_equal(found, [f32(4), f32(7.5)])
    x, y = (np.arange(8, dtype=np.float32).reshape(2, 4) + k for k in (1, 9))
    found = replicated(lambda b, x: xla.ReduceScatter(x, ADD, 1, 2, [[0, 1]]), [x], [y], backend=backend)
    all_equal(found, [(x + y)[:, :2], (x + y)[:, 2:]])
    pair = [((f32(1, 2), f32(3, 4)),), ((f32(5, 6), f32(7, 8)),)]
    found = replicated(lambda b, x: xla.ReduceScatter(x, MAX, 0, 2), *pair, backend=backend)
    all_equal(found, [(f32(5), f32(7)), (f32(6), f32(8))])


@pytest.mark.parametrize("backend", BACKENDS)
def test_reduce_scatter_between_devices(backend: str) -> None:
    """2 replicas in 4 partitions, groups {0,1,4,5} and {2,3,6,7} of devices."""
    groups = [[0, 1, 4, 5], [2, 3, 6, 7]]
    arguments = [np.arange(4, dtype=np.float32) + 10.0 * k for k in range(8)]
    found = replicated(
        lambda b, x: xla.ReduceScatter(x, ADD, 0, 4, groups, ChannelHandle(1), None, True),
        *[[x.astype(np.float32)] for x in arguments],
        backend=backend,
        replica_count=2,
        partition_count=4,
    )
    expected = {
        device: np.sum([arguments[d] for d in group], axis=0)[[k]] for group in groups for k, device in enumerate(group)
    }
    all_equal(found, [expected[device].astype(np.float32) for device in range(8)])


MODES: dict[
    str, tuple[dict[str, Any], list[int]]
] = {  # what the groups of [[0, 1]] are; the sum over 2 replicas in 2 partitions, whose values are 1, 2, 4, 8
    "replicas of each partition": ({}, [5, 10, 5, 10]),
    "replicas with all partitions": ({"channel_id": 1}, [15, 15, 15, 15]),
    "devices": (
        {"channel_id": 1, "use_global_device_ids": True, "replica_groups": [[0, 3], [1, 2]]},
        [9, 6, 6, 9],
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_groups_in_every_mode(mode: str, backend: str) -> None:
    given, expected = MODES[mode]
    given = {"replica_groups": [[0, 1]], **given}
    arguments = [[f32(2**k)] for k in range(4)]
    counts = {"replica_count": 2, "partition_count": 2}
    found = replicated(lambda b, x: xla.AllReduce(x, ADD, **given), *arguments, backend=backend, **counts)
    all_equal(found, [f32(n) for n in expected])
    count = len(given["replica_groups"][0]) * (2 if mode == "replicas with all partitions" else 1)
    gathered = replicated(lambda b, x: xla.AllGather(x, 0, count, **given), *arguments, backend=backend, **counts)
    assert [float(np.sum(np.asarray(x))) for x in gathered] == expected


def test_all_to_all_and_permute_over_a_channel_are_across_partitions() -> None:
    arguments = [[f32(k, 10 * k)] for k in range(4)]
    counts: dict[str, Any] = {"replica_count": 2, "partition_count": 2}
    found = replicated(lambda b, x: xla.AllToAll(x, 0, 0, 2, [[0, 1]], channel_id=3), *arguments, **counts)
    all_equal(found, [f32(0, 1), f32(0, 10), f32(2, 3), f32(20, 30)])
    found = replicated(lambda b, x: xla.CollectivePermute(x, [(0, 1)], ChannelHandle(3)), *arguments, **counts)
    all_equal(found, [f32(0, 0), f32(0, 0), f32(0, 0), f32(2, 20)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_replica_and_partition_ids(backend: str) -> None:
    def build(b: XlaBuilder) -> Any:
        return xla.Tuple(b, [xla.ReplicaId(b), xla.PartitionID(b, ShapeUtil.MakeShape(xla.U32, []))])

    found = replicated(build, [], [], [], [], [], [], backend=backend, replica_count=3, partition_count=2)
    all_equal(found, [(np.uint32(k // 2), np.uint32(k % 2)) for k in range(6)])


def test_a_call_is_of_one_replica() -> None:
    assert int(built(lambda b: xla.ReplicaId(b))()) == 0
    equal(built(lambda b, x: xla.CrossReplicaSum(x), f32(3))(f32(3)), f32(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_layouts_of_results(backend: str) -> None:
    columns = xla.Layout((0, 1))
    shape = ShapeUtil.MakeShapeWithLayout(xla.F32, [2, 4], [0, 1])
    x, y = (np.arange(8, dtype=np.float32).reshape(2, 4) + k for k in (1, 9))
    builds: list[tuple[Build, Any]] = [
        (lambda b, x: xla.AllReduce(x, ADD, shape_with_layout=shape), [x + y] * 2),
        (lambda b, x: xla.AllGather(x, 0, 2, layout=columns), [np.concatenate([x, y])] * 2),
        (lambda b, x: xla.ReduceScatter(x, ADD, 1, 2, layout=columns), [(x + y)[:, :2], (x + y)[:, 2:]]),
        (
            lambda b, x: xla.AllToAll(x, 1, 0, 2, layout=columns),
            [np.concatenate([x[:, :2], y[:, :2]]), np.concatenate([x[:, 2:], y[:, 2:]])],
        ),
        (lambda b, x: xla.AllToAllTuple([x, x], layout=columns), [(x, y), (x, y)]),
    ]
    for build, expected in builds:
        found = replicated(build, [x], [y], backend=backend)
        all_equal(found, expected)
        assert "{0,1}" in built(build, x).as_hlo_text()
        for result in found:
            for part in result if isinstance(result, tuple) else (result,):
                assert np.asarray(part).flags.f_contiguous


@pytest.mark.parametrize("backend", BACKENDS)
def test_layouts_of_results_of_programs_that_run_as_threads(backend: str) -> None:
    columns = ShapeUtil.MakeShapeWithLayout(xla.F32, [2, 4], [0, 1])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    swap = [(0, 1), (1, 0)]

    def exchanged(b: XlaBuilder, x: Any) -> Any:
        begun = xla.Recv(b, columns, 1, swap)
        xla.SendDone(xla.Send(x, 1, swap))
        return xla.Tuple(b, [xla.RecvDone(begun), x])

    builder = XlaBuilder("program")
    root = exchanged(builder, xla.Parameter(builder, 0, Shape.of(x)))
    program = builder.Build(root, result_layout=xla.TupleShape((columns, Shape.of(x))))
    for (received, own), other in zip(program.execute_replicated([[x], [x + 1]], backend=backend), (1, 0), strict=True):
        equal(received, x + other)
        assert np.asarray(received).flags.f_contiguous
        assert np.asarray(own).flags.c_contiguous


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_of_dynamic_sizes(backend: str) -> None:
    """Each replica's own number of elements counts."""
    builder = XlaBuilder("program")
    x = xla.Parameter(builder, 0, ShapeUtil.MakeShape(xla.F32, [8], dynamic_dimensions=[True]))
    own = xla.Reduce(x, xla.ConstantLiteral(builder, np.float32(0)), ADD, [0])
    program = builder.Build(xla.AllReduce(own, ADD))
    for first, second in ((3, 3), (3, 5), (8, 0)):
        arguments = [[np.ones(first, np.float32)], [2 * np.ones(second, np.float32)]]
        all_equal(program.execute_replicated(arguments, backend=backend), [np.float32(first + 2 * second)] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("has_side_effect", [False, True])
def test_functions_of_the_host_are_called_by_each_replica(has_side_effect: bool, backend: str) -> None:
    """Also those without a batch rule, and those whose operands are the same for all replicas."""
    seen: list[float] = []

    def noted(x: Array) -> Array:
        seen.append(float(x[0]))
        return x + 1

    tx.ffi.register_ffi_target("test_collectives.noted", noted)
    shape = ShapeUtil.MakeShape(xla.F32, [2])

    def build(b: XlaBuilder, x: Any) -> Any:
        if has_side_effect:
            xla.CustomCall(b, "test_collectives.noted", [x], shape, has_side_effect=True)
            return xla.CrossReplicaSum(x)
        return xla.CrossReplicaSum(xla.CustomCall(b, "test_collectives.noted", [x], shape))

    same = f32(1, 2)
    found = built(build, same).execute_replicated([[same], [same], [same]], backend=backend)
    all_equal(found, [3 * (same + (not has_side_effect))] * 3)
    assert seen == [1, 1, 1]


def test_error_of_a_function_of_the_host_says_whose_it_is() -> None:
    def failing(x: Array) -> Array:
        if x[0] > 2:
            raise OSError("the disk is gone")
        return x

    tx.ffi.register_ffi_target("test_collectives.failing", failing)
    shape = ShapeUtil.MakeShape(xla.F32, [2])
    program = built(
        lambda b, x: xla.CrossReplicaSum(xla.CustomCall(b, "test_collectives.failing", [x], shape)), f32(1, 2)
    )
    with pytest.raises(OSError, match="the disk is gone") as caught:
        program.execute_replicated([[f32(1, 2)], [f32(3, 4)]])
    assert caught.value.__notes__ == ["execute_replicated: program: raised by replica 1"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_replica_draws_random_numbers_of_its_own(backend: str) -> None:
    def build(b: XlaBuilder) -> Any:
        low, high = (xla.ConstantLiteral(b, np.float32(x)) for x in (2, 3))
        own = xla.RngUniform(low, high, ShapeUtil.MakeShape(xla.F32, [2, 3]))
        return xla.Tuple(b, [own, xla.CrossReplicaSum(own)])

    found = built(build).execute_replicated([[]] * 4, backend=backend)
    numbers = np.stack([np.asarray(own) for own, _ in found])
    assert len(np.unique(numbers)) == numbers.size
    assert np.all((numbers >= 2) & (numbers < 3))
    for _, total in found:
        np.testing.assert_allclose(np.asarray(total), numbers.sum(0), rtol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------------------

X = f32(1, 2, 3, 4)
REFUSED: dict[str, tuple[type[TinyxlaError], str, Build]] = {
    "a replica twice": (AttributeValueError, "at most once", lambda b, x: xla.AllReduce(x, ADD, [[0, 1], [1]])),
    "a negative replica": (AttributeValueError, "-1", lambda b, x: xla.AllReduce(x, ADD, [[0, -1]])),
    "an empty group": (AttributeValueError, "non-empty", lambda b, x: xla.CollectiveBroadcast(x, [[]])),
    "groups that are no lists": (ArgumentError, "replica_groups", lambda b, x: xla.AllReduce(x, ADD, [0, 1])),
    "groups of words": (ArgumentError, "list of lists", lambda b, x: xla.AllReduce(x, ADD, "0,1")),
    "unequal groups": (AttributeValueError, "same size", lambda b, x: xla.AllGather(x, 0, 2, [[0, 1], [2]])),
    "unequal groups to scatter": (
        AttributeValueError,
        "same size",
        lambda b, x: xla.ReduceScatter(x, ADD, 0, 2, [[0, 1], [2]]),
    ),
    "unequal groups to exchange": (
        AttributeValueError,
        "same size",
        lambda b, x: xla.AllToAll(x, 0, 0, 2, [[0, 1], [2]]),
    ),
    "a shard_count that is not the size of groups": (
        AttributeValueError,
        "shard_count must be 2",
        lambda b, x: xla.AllGather(x, 0, 4, [[0, 1], [2, 3]]),
    ),
    "a shard_count that is not a size of groups to scatter": (
        AttributeValueError,
        "shard_count must be 2",
        lambda b, x: xla.ReduceScatter(x, ADD, 0, 4, [[0, 1], [2, 3]]),
    ),
    "no shards": (AttributeValueError, "shard_count", lambda b, x: xla.AllGather(x, 0, 0)),
    "no shards to scatter": (AttributeValueError, "shard_count", lambda b, x: xla.ReduceScatter(x, ADD, 0, 0)),
    "a dimension out of range": (ShapeError, "got 1", lambda b, x: xla.AllGather(x, 1, 2)),
    "a negative dimension": (ShapeError, "got -1", lambda b, x: xla.ReduceScatter(x, ADD, -1, 2)),
    "a size that is no multiple": (
        ShapeError,
        "multiple of shard_count, 3",
        lambda b, x: xla.ReduceScatter(x, ADD, 0, 3),
    ),
    "a split dimension out of range": (ShapeError, "split_dimension", lambda b, x: xla.AllToAll(x, 1, 0, 2)),
    "a concat dimension out of range": (ShapeError, "concat_dimension", lambda b, x: xla.AllToAll(x, 0, 1, 2)),
    "a split that is not even": (ShapeError, "multiple of split_count, 3", lambda b, x: xla.AllToAll(x, 0, 0, 3)),
    "a split_count of other groups": (
        AttributeValueError,
        "split_count must be",
        lambda b, x: xla.AllToAll(x, 0, 0, 4, [[0, 1]]),
    ),
    "a split_count of zero": (AttributeValueError, "split_count", lambda b, x: xla.AllToAll(x, 0, 0, 0)),
    "a tuple to be split": (ShapeError, "must be an array", lambda b, x: xla.AllToAll(xla.Tuple(b, [x]), 0, 0, 2)),
    "arrays of several shapes to exchange": (
        ShapeError,
        "all of one shape",
        lambda b, x: xla.AllToAllTuple([x, xla.Slice(x, [0], [2], [1])]),
    ),
    "another number of arrays than replicas": (
        ShapeError,
        "each of the 3 replicas",
        lambda b, x: xla.AllToAllTuple([x, x], [[0, 1, 2]]),
    ),
    "an empty tuple": (ShapeError, "non-empty tuple", lambda b, x: xla.AllReduce(xla.Tuple(b, []), ADD)),
    "a nested tuple": (
        ShapeError,
        "non-empty tuple of arrays",
        lambda b, x: xla.AllReduce(xla.Tuple(b, [xla.Tuple(b, [x])]), ADD),
    ),
    "mixed element types": (
        DTypeError,
        "one element type",
        lambda b, x: xla.AllReduce(xla.Tuple(b, [x, xla.ConvertElementType(x, xla.S32)]), ADD),
    ),
    "a computation of another type": (
        ShapeError,
        "to_apply must map",
        lambda b, x: xla.AllReduce(x, scalars(xla.Add, xla.S32)),
    ),
    "a computation of another type to scatter": (
        ShapeError,
        "to_apply must map",
        lambda b, x: xla.ReduceScatter(x, scalars(xla.Add, xla.S32), 0, 2),
    ),
    "a computation of one parameter": (
        ShapeError,
        "to_apply must map",
        lambda b, x: xla.AllReduce(x, built(lambda b, y: xla.Neg(y), np.float32(1))),
    ),
    "no computation": (ArgumentError, "XlaComputation", lambda b, x: xla.AllReduce(x, xla.Add)),
    "a token": (DTypeError, "token", lambda b, x: xla.AllReduce(xla.CreateToken(b), ADD)),
    "device ids without a channel": (
        AttributeValueError,
        "channel_id",
        lambda b, x: xla.AllReduce(x, ADD, [[0, 1]], use_global_device_ids=True),
    ),
    "device ids without a channel to gather": (
        AttributeValueError,
        "channel_id",
        lambda b, x: xla.AllGather(x, 0, 2, use_global_device_ids=True),
    ),
    "a negative channel": (AttributeValueError, "channel_id", lambda b, x: xla.AllReduce(x, ADD, [], -1)),
    "a channel of the host": (
        ArgumentError,
        "DEVICE_TO_DEVICE",
        lambda b, x: xla.AllReduce(x, ADD, [], ChannelHandle(1, ChannelType.DEVICE_TO_HOST)),
    ),
    "a channel that is no number": (ArgumentError, "channel_id", lambda b, x: xla.AllReduce(x, ADD, [], "one")),
    "duplicate sources": (AttributeValueError, "sources", lambda b, x: xla.CollectivePermute(x, [(0, 1), (0, 2)])),
    "duplicate targets": (AttributeValueError, "targets", lambda b, x: xla.CollectivePermute(x, [(0, 1), (2, 1)])),
    "a negative target": (AttributeValueError, "-2", lambda b, x: xla.CollectivePermute(x, [(0, -2)])),
    "a pair of three": (ArgumentError, "pair", lambda b, x: xla.CollectivePermute(x, [(0, 1, 2)])),
    "another shape_with_layout": (
        ShapeError,
        "shape_with_layout",
        lambda b, x: xla.AllReduce(x, ADD, shape_with_layout=ShapeUtil.MakeShape(xla.F32, [3])),
    ),
    "a layout of another rank": (ShapeError, "", lambda b, x: xla.AllGather(x, 0, 2, layout=xla.Layout((1, 0)))),
    "a partition id of another shape": (
        ShapeError,
        "u32",
        lambda b, x: xla.PartitionId(b, ShapeUtil.MakeShape(xla.S32, [])),
    ),
    "offsets that are no integers": (
        ShapeError,
        "integers",
        lambda b, x: xla.RaggedAllToAll(x, x, x, x, x, x),
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_mistakes_are_refused_when_they_are_made(mistake: str) -> None:
    kind, says, build = REFUSED[mistake]
    with pytest.raises(kind) as caught:
        built(build, X)
    assert says in str(caught.value), caught.value


UNFIT: dict[str, tuple[str, Build]] = {  # for three replicas
    "groups without a replica": ("each of the 3 replicas", lambda b, x: xla.AllReduce(x, ADD, [[0, 1]])),
    "a replica that there is not": ("from 0 to 2", lambda b, x: xla.CollectiveBroadcast(x, [[0, 7]])),
    "a target that there is not": ("from 0 to 2", lambda b, x: xla.CollectivePermute(x, [(0, 3)])),
    "another number of shards": ("shard_count", lambda b, x: xla.AllGather(x, 0, 2)),
    "another number of shards to scatter": ("shard_count", lambda b, x: xla.ReduceScatter(x, ADD, 0, 2)),
}


@pytest.mark.parametrize("mistake", UNFIT)
def test_groups_that_do_not_fit_the_number_of_replicas_are_refused(mistake: str) -> None:
    says, build = UNFIT[mistake]
    with pytest.raises(AttributeValueError) as caught:
        built(build, X).execute_replicated([[X], [X], [X]])
    assert says in str(caught.value), caught.value


# --- derivatives and maps ---------------------------------------------------------------------------------------------

GROUPS = [[0, 2], [3, 1]]
SMOOTH: dict[str, Build] = {  # of an array [4, 2] on each of 4 replicas
    "AllReduce": lambda b, x: xla.AllReduce(xla.Sin(x), ADD, GROUPS),
    "AllReduce of all": lambda b, x: xla.AllReduce(xla.Sin(x), ADD),
    "AllReduce, maximum": lambda b, x: xla.AllReduce(xla.Sin(x), MAX, GROUPS),
    "AllReduce, product": lambda b, x: xla.AllReduce(x, MUL, GROUPS),
    "AllReduce, a computation": lambda b, x: xla.AllReduce(xla.Sin(x), HALVED_PRODUCT, GROUPS),
    "AllGather": lambda b, x: xla.AllGather(xla.Sin(x), 1, 2, GROUPS),
    "ReduceScatter": lambda b, x: xla.ReduceScatter(xla.Sin(x), ADD, 0, 4),
    "ReduceScatter, product": lambda b, x: xla.ReduceScatter(x, MUL, 0, 2, GROUPS),
    "AllToAll": lambda b, x: xla.AllToAll(xla.Sin(x), 0, 1, 4),
    "CollectivePermute": lambda b, x: xla.CollectivePermute(xla.Sin(x), [(0, 1), (1, 2), (3, 3)]),
    "CollectiveBroadcast": lambda b, x: xla.CollectiveBroadcast(xla.Sin(x), [[1, 0], [3]]),
    "CollectiveBroadcast to all": lambda b, x: xla.CollectiveBroadcast(xla.Sin(x)),
    "ReplicaId": lambda b, x: xla.Mul(x, xla.Broadcast(xla.ConvertElementType(xla.ReplicaId(b), xla.F32), [4, 2])),
}


def of_all(name: str) -> Callable[[Any], Any]:
    """The program as a function from the arguments of all replicas to their results."""
    program = built(SMOOTH[name], np.zeros((4, 2), np.float32))
    return lambda x: tx.numpy.stack(program.execute_replicated([[x[k]] for k in range(4)]))


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_those_of_all_replicas_together(name: str, generator: np.random.Generator) -> None:
    function = of_all(name)
    x, direction = (generator.uniform(0.5, 1.5, (4, 4, 2)).astype(np.float32) for _ in range(2))
    step = np.float32(2**-7)
    difference = (np.asarray(function(x + step * direction)) - np.asarray(function(x - step * direction))) / (2 * step)
    value, tangent = tx.jvp(function, (x,), (direction,))
    np.testing.assert_allclose(np.asarray(value), np.asarray(function(x)), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(tangent), difference, rtol=2e-3, atol=2e-3)
    seed = generator.uniform(0.5, 1.5, np.shape(value)).astype(np.float32)
    (cotangent,) = tx.vjp(function, x)[1](seed)
    np.testing.assert_allclose(np.vdot(cotangent, direction), np.vdot(seed, tangent), rtol=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_vmap_is_a_loop(name: str, generator: np.random.Generator) -> None:
    function = of_all(name)
    x = generator.uniform(0.5, 1.5, (3, 4, 4, 2)).astype(np.float32)
    expected = np.stack([np.asarray(function(each)) for each in x])
    np.testing.assert_allclose(np.asarray(tx.vmap(function)(x)), expected, rtol=1e-6)
    compiled = tx.jit(tx.vmap(function, in_axes=2))(np.moveaxis(x, 0, 2))
    np.testing.assert_allclose(np.asarray(compiled), expected, rtol=1e-6)


def test_ragged_all_to_all_has_no_derivative() -> None:
    offsets = np.array([0], np.int32)
    program = built(lambda b, x, n: xla.RaggedAllToAll(x, n, n, x, n, n), f32(1), offsets)
    with pytest.raises(DifferentiationError, match="ragged-all-to-all"):
        tx.grad(lambda x: program(x, offsets).sum())(f32(1))


@pytest.mark.parametrize("build", [lambda b, x: xla.AllGather(x, 0, 2), lambda b, x: xla.ReduceScatter(x, ADD, 0, 2)])
def test_call_of_a_program_for_several_shards_is_refused(build: Build) -> None:
    program = built(build, X)
    for backend in BACKENDS:
        with pytest.raises(AttributeValueError, match="shard_count must be 1, the number"):
            program(X, backend=backend)


def test_ragged_offsets_far_outside_are_clipped_on_both_backends() -> None:
    far = np.array([2**31 - 1], np.int32)
    one = np.array([1], np.int32)
    program = built(lambda b, x, i, n: xla.RaggedAllToAll(x, i, n, x, n, n), X, far, one)
    for backend in BACKENDS:
        equal(program(X, far, one, backend=backend), f32(1, 4, 3, 4))
