"""Replicated execution as lanes of one program and as threads that meet: the same results; deadlocks are errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import xla
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ChannelError,
    DeadlockError,
    DTypeError,
    ShapeError,
    TracerError,
)
from tinyxla.ops import elementwise, hlo_only, movement, reduction
from tinyxla.ops.distributed import channels, collectives, exchanges
from tinyxla.ops.distributed.replica_groups import GroupMode, Mesh, device_groups, group_mode
from tinyxla.replicas import execution
from tinyxla.runtime.rendezvous import Rendezvous
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms import conditional, while_
from tinyxla.transforms.computations import unpacked
from tinyxla.xla import XlaComputation

F32 = element_type("f32")
SCALAR = Shape(F32)
SUM = reduction.scalar_computation("add", np.dtype(np.float32))
BACKENDS = (None, "interpreter")


def program(function: Callable[..., Any], *shapes: Shape) -> XlaComputation:
    """A computation whose root is what a function of the parameters' values gives."""
    builder = xla.XlaBuilder("program")
    parameters = [xla.Parameter(builder, k, shape, f"x{k}") for k, shape in enumerate(shapes)]
    return builder.Build(builder.wrap(builder.trace.run(lambda: function(*(p.value for p in parameters)))))


def rows(count: int, *sizes: int) -> list[list[Any]]:
    """For each replica one argument, all different."""
    values = np.arange(count * int(np.prod(sizes)), dtype=np.float32).reshape(count, *sizes)
    return [[row + np.float32(0.5)] for row in values]


def threads(computation: XlaComputation, arguments: Sequence[Any], mesh: Mesh, backend: str | None = None) -> list[Any]:
    """The results with each replica in a thread."""
    given = [[tx.numpy.asarray(x) for x in args] for args in arguments]
    programs = [execution.Program("p", computation.computation)] * mesh.device_count
    return execution._as_threads("threads", programs, given, mesh, backend)


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rendezvous]]:
    """Those that are made: none if a program runs as lanes."""
    made: list[Rendezvous] = []
    original = Rendezvous.__init__

    def init(self: Rendezvous, *args: Any) -> None:
        made.append(self)
        original(self, *args)

    monkeypatch.setattr(Rendezvous, "__init__", init)
    return made


def every_pair(x: Any) -> Any:
    return collectives.all_gather(x, all_gather_dimension=1, shard_count=2, replica_groups=((2, 0), (1, 3)))


PRODUCT = reduction.scalar_computation("multiply", np.dtype(np.float32))
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda x: collectives.all_reduce(x, to_apply=SUM),
    "all_reduce_of_groups": lambda x: collectives.all_reduce(x, to_apply=PRODUCT, replica_groups=((3, 0), (2, 1))),
    "all_reduce_of_unequal_groups": lambda x: collectives.all_reduce(x, to_apply=SUM, replica_groups=((1,), (0, 2, 3))),
    "all_reduce_of_two_arrays": lambda x: collectives.all_reduce(x, x * x, to_apply=SUM),
    "all_gather": every_pair,
    "reduce_scatter": lambda x: collectives.reduce_scatter(
        x, to_apply=SUM, scatter_dimension=1, shard_count=2, replica_groups=((1, 0), (2, 3))
    ),
    "all_to_all": lambda x: exchanges.all_to_all(x, dimensions=(1,), replica_groups=((3, 2, 1, 0),)),
    "all_to_all_of_a_tuple": lambda x: exchanges.all_to_all(x, x + x, replica_groups=((0, 3), (2, 1))),
    "collective_permute": lambda x: exchanges.collective_permute(x, source_target_pairs=((0, 2), (2, 3))),
    "collective_broadcast": lambda x: exchanges.collective_broadcast(x, replica_groups=((2, 0),)),
    "replica_id": lambda x: exchanges.replica_id(),
    "partition_id": lambda x: exchanges.partition_id(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_lanes_and_threads_give_the_same(name: str, backend: str | None) -> None:
    computation, arguments = program(OPERATIONS[name], Shape(F32, (2, 4))), rows(4, 2, 4)
    lanes = computation.execute_replicated(arguments, backend=backend)
    other = threads(computation, arguments, Mesh(4, 1), backend)
    for one, two in zip(lanes, other, strict=True):
        for x, y in zip(one if isinstance(one, tuple) else (one,), two, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


def test_group_modes() -> None:
    mesh = Mesh(2, 3)
    assert group_mode("op", None, False) is GroupMode.CROSS_REPLICA
    assert group_mode("op", 1, None) is GroupMode.CROSS_PARTITION
    assert group_mode("op", 1, False) is GroupMode.CROSS_REPLICA_AND_PARTITION
    assert group_mode("op", 1, True) is GroupMode.FLATTENED_ID
    with pytest.raises(AttributeValueError, match="needs a channel_id above 0"):
        group_mode("op", None, True)
    assert device_groups("op", (), GroupMode.CROSS_REPLICA, mesh) == ((0, 3), (1, 4), (2, 5))
    assert device_groups("op", ((0, 2), (1,)), GroupMode.CROSS_PARTITION, mesh) == ((0, 2), (1,), (3, 5), (4,))
    assert device_groups("op", ((1, 0),), GroupMode.CROSS_REPLICA_AND_PARTITION, mesh) == ((3, 4, 5, 0, 1, 2),)
    assert device_groups("op", ((5, 0), (1, 2, 3, 4)), GroupMode.FLATTENED_ID, mesh) == ((5, 0), (1, 2, 3, 4))
    with pytest.raises(AttributeValueError, match="each of the 2 replicas once"):
        device_groups("op", ((0,),), GroupMode.CROSS_REPLICA, mesh)


# --- control flow -----------------------------------------------------------------------------------------------------


def sum_in_a_loop(count: Any, x: Any) -> Any:
    """x, replaced `count` times by its mean over all replicas and its own number."""

    def condition(i: Any, n: Any, x: Any) -> list[Any]:
        return [elementwise.lt(i, n)]

    def body(i: Any, n: Any, x: Any) -> list[Any]:
        total = collectives.all_reduce(x, to_apply=SUM)
        return [i + movement.full(1, np.float32), n, x + total]

    shapes = [SCALAR, SCALAR, Shape(F32, x.shape)]
    return while_(
        movement.full(0, np.float32),
        count,
        x,
        condition=unpacked(trace(condition, shapes, "condition")[0]),
        body=trace(body, shapes, "body")[0],
    )[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_loop_with_a_uniform_predicate_runs_as_lanes(meetings: list[Rendezvous], backend: str | None) -> None:
    count = np.float32(3)
    computation = program(sum_in_a_loop, SCALAR, Shape(F32, (2,)))
    first, second = computation.execute_replicated(
        [[count, np.float32([1, 2])], [count, np.float32([3, 4])]], backend=backend
    )
    np.testing.assert_array_equal(first, [1 + 4 + 12 + 36 - 0, 2 + 6 + 18 + 54])
    np.testing.assert_array_equal(second, [3 + 4 + 12 + 36, 4 + 6 + 18 + 54])
    assert not meetings


@pytest.mark.parametrize("backend", BACKENDS)
def test_loop_whose_predicate_may_differ_runs_as_threads(meetings: list[Rendezvous], backend: str | None) -> None:
    computation = program(sum_in_a_loop, SCALAR, Shape(F32, (2,)))
    arguments = [[np.array(3, np.float32), np.float32(x)] for x in ([1, 2], [3, 4])]
    results = [computation.execute_replicated(arguments, backend=backend) for _ in range(5)]
    for first, second in results:
        np.testing.assert_array_equal(first, [53, 80])
        np.testing.assert_array_equal(second, [55, 82])
    assert len(meetings) == 5


def test_loop_that_runs_more_often_on_one_replica_is_a_deadlock() -> None:
    computation = program(sum_in_a_loop, SCALAR, Shape(F32, (2,)))
    x = np.float32([1, 2])
    with pytest.raises(DeadlockError) as found:
        computation.execute_replicated([[np.float32(2), x], [np.float32(3), x]])
    assert "replica 1 waits in all-reduce for replica 0" in str(found.value)
    assert "replica 0 has ended" in str(found.value)
    assert "collectives.all_reduce(x, to_apply=SUM)" in str(found.value)


def test_branch_on_the_replica_without_collectives_runs_as_lanes(meetings: list[Rendezvous]) -> None:
    shape = Shape(F32, (2,))

    def choose(x: Any) -> Any:
        branches = tuple(trace(f, [shape], "branch")[0] for f in (lambda x: [x + x], lambda x: [-x]))
        index = elementwise.convert(exchanges.replica_id(), new_element_type=element_type("s32"))
        (chosen,) = conditional(index, x, branch_computations=branches)
        return collectives.all_reduce(chosen, to_apply=SUM)

    found = program(choose, shape).execute_replicated([[np.float32([1, 2])], [np.float32([5, 5])]])
    np.testing.assert_array_equal(found, [[-3, -1], [-3, -1]])
    assert not meetings


def test_threads_use_the_pool_of_worker_threads_between_meetings() -> None:
    shape = Shape(F32, (300_000,))
    computation = program(sum_in_a_loop, SCALAR, shape)
    ones = np.ones(shape.dimensions, np.float32)
    found = computation.execute_replicated([[np.float32(4), ones * k] for k in range(4)])
    total = 6.0
    expected = np.arange(4.0)
    for _ in range(4):
        expected, total = expected + total, total * 5
    np.testing.assert_allclose([x[0] for x in found], expected)


def test_results_of_one_execution_are_arguments_of_the_next_without_a_copy() -> None:
    computation = program(lambda x: x + collectives.all_reduce(x, to_apply=SUM), Shape(F32, (2, 4)))
    found = computation.execute_replicated(rows(3, 2, 4))
    lanes = [x.dense() for x in found]
    whole = execution._stacked(lanes)
    assert all(np.shares_memory(row, lane) for row, lane in zip(whole, lanes, strict=True))
    np.testing.assert_array_equal(whole, np.stack(lanes))
    for others in (lanes[::-1], lanes[1:] + lanes[:1], [lanes[0], lanes[0]]):
        copied = execution._stacked(others)
        assert not np.shares_memory(copied, lanes[0])
        np.testing.assert_array_equal(copied, np.stack(others))
    np.testing.assert_array_equal(execution._stacked(lanes[1:]), np.stack(lanes[1:]))


def test_result_that_is_the_same_for_all_replicas_is_uniform_in_the_next_execution(meetings: list[Rendezvous]) -> None:
    count = program(lambda x: collectives.all_reduce(x, to_apply=SUM), SCALAR)
    counts = count.execute_replicated([[np.float32(1)], [np.float32(2)]])
    assert counts[0] is counts[1]
    loop = program(sum_in_a_loop, SCALAR, Shape(F32, (2,)))
    first, _ = loop.execute_replicated([[counts[0], np.float32([1, 2])], [counts[1], np.float32([3, 4])]])
    np.testing.assert_array_equal(first, [1 + 4 + 12 + 36, 2 + 6 + 18 + 54])
    assert not meetings  # a loop that runs as often on all replicas needs no threads


# --- who meets whom ---------------------------------------------------------------------------------------------------


def one_collective(reduce: Any, channel: int | None = None, negations: int = 0, size: int = 2) -> XlaComputation:
    def function(x: Any) -> Any:
        for _ in range(negations):
            x = -x
        return collectives.all_reduce(x, to_apply=reduce, channel_id=channel)

    return program(function, Shape(F32, (size,)))


MAXIMUM = reduction.scalar_computation("maximum", np.dtype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules_meet_over_a_channel(backend: str | None) -> None:
    """The documents: only operations with the same channel_id can communicate with each other."""
    modules = [one_collective(SUM, 1), one_collective(SUM, 1, negations=2)]
    given = list(zip(modules, rows(2, 2), strict=True))
    for _ in range(5):
        np.testing.assert_array_equal(xla.execute_parallel(given, backend), [[3, 5], [3, 5]])


def test_modules_with_different_channels_do_not_meet() -> None:
    modules = [one_collective(SUM, channel) for channel in (1, 2)]
    with pytest.raises(DeadlockError) as found:
        xla.execute_parallel(list(zip(modules, rows(2, 2), strict=True)))
    said = str(found.value)
    for replica, channel in ((0, 1), (1, 2)):
        assert f"replica {replica} waits in all-reduce over channel {channel} for replica {1 - replica}, at" in said
    assert said.count("no other program has the other end") == 2


@pytest.mark.parametrize(
    ("other", "size", "differs"), [(MAXIMUM, 2, "to_apply"), (SUM, 3, r"operands f32\[2\] and f32\[3\]")]
)
def test_what_meets_over_a_channel_must_be_alike(other: Any, size: int, differs: str) -> None:
    modules = [one_collective(SUM, 1), one_collective(other, 1, size=size)]
    arguments = [[np.float32([1, 2])], [np.ones(size, np.float32)]]
    with pytest.raises(ChannelError, match=f"over channel 1 must be the same operation.*differ in {differs}"):
        xla.execute_parallel(list(zip(modules, arguments, strict=True)))


def test_different_collectives_of_two_branches_do_not_meet() -> None:
    """Replicas that part at a branch and come to different operations at the same position of each."""
    shape = Shape(F32, (2,))

    def choose(x: Any) -> Any:
        functions = [lambda x, op=op: [collectives.all_reduce(x, to_apply=op)] for op in (SUM, MAXIMUM)]
        branches = tuple(trace(f, [shape], "branch")[0] for f in functions)
        index = elementwise.convert(exchanges.replica_id(), new_element_type=element_type("s32"))
        return conditional(index, x, branch_computations=branches)[0]

    with pytest.raises(DeadlockError, match=r"replica 0 waits in all-reduce for replica 1.*replica 1 waits in all-red"):
        program(choose, shape).execute_replicated(rows(2, 2))


def test_errors_name_the_lines_of_the_program_not_of_an_equal_one() -> None:
    def first(x: Any) -> Any:
        return collectives.all_reduce(x, to_apply=SUM)

    def second(x: Any) -> Any:
        return collectives.all_reduce(x, to_apply=SUM)

    shape, x = Shape(F32, (2,)), np.float32([1, 2])
    idle = program(lambda x: x, shape)
    for function in (first, second):
        with pytest.raises(DeadlockError) as found:
            xla.execute_parallel([(idle, [x]), (program(function, shape), [x])])
        assert f"replica 1 waits in all-reduce for replica 0, at {__file__}" in str(found.value)
        assert f"({function.__name__})" in str(found.value)


# --- channels ---------------------------------------------------------------------------------------------------------


def sends(x: Any, channel: int, **options: Any) -> Any:
    return channels.send(x, hlo_only.after_all(), channel_id=channel, **options)[2]


def receives(channel: int, shape: Shape = SCALAR, **options: Any) -> Any:
    context = channels.recv(hlo_only.after_all(), shape=shape, channel_id=channel, **options)
    return channels.recv_done(*context, channel_id=channel, **options)[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_ring_of_sends_and_recvs(backend: str | None) -> None:
    pairs = ((0, 1), (1, 2), (2, 0))

    def ring(x: Any) -> Any:
        context = channels.recv(hlo_only.after_all(), shape=Shape(F32, (2,)), channel_id=1, source_target_pairs=pairs)
        sends(x, 1, source_target_pairs=pairs)
        return channels.recv_done(*context, channel_id=1, source_target_pairs=pairs)[0]

    found = program(ring, Shape(F32, (2,))).execute_replicated(rows(3, 2), backend=backend)
    np.testing.assert_array_equal(found, [[4.5, 5.5], [0.5, 1.5], [2.5, 3.5]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_computations_send_to_one_another(backend: str | None) -> None:
    def ask(x: Any) -> Any:
        sends(x, 1)
        return receives(2)

    def answer() -> Any:
        x = receives(1)
        sends(x * x, 2)
        return x

    given = [(program(ask, SCALAR), [np.float32(3)]), (program(answer), [])]
    for _ in range(10):
        assert [float(x) for x in xla.execute_parallel(given, backend=backend)] == [9, 3]


def test_many_items_come_in_order() -> None:
    def source() -> Any:
        for k in range(20):
            sends(movement.full(k, np.float32), 7)
        return movement.full(0, np.float32)

    def sink() -> Any:
        return tuple(receives(7) for _ in range(20))

    _, found = xla.execute_parallel([(program(source), []), (program(sink), [])])
    assert [float(x) for x in found] == list(range(20))


def both_send_first(mine: int, other: int) -> Callable[[Any], Any]:
    def exchange(x: Any) -> Any:
        sends(x, mine)
        return receives(other)

    return exchange


def test_cycle_of_channels_is_a_deadlock_that_names_both_ends() -> None:
    """Each Send waits for a Recv that comes after the other Send."""
    given = [(program(both_send_first(*ends), SCALAR), [np.float32(0)]) for ends in ((1, 2), (2, 1))]
    with pytest.raises(DeadlockError) as found:
        xla.execute_parallel(given)
    said = str(found.value)
    assert "replica 0 waits in send on channel 1 for the other end to post its recv, at" in said
    assert "replica 1 waits in send on channel 2 for the other end to post its recv, at" in said
    assert said.count("test_replicas.py") >= 3


def test_transfer_without_another_end_is_an_error() -> None:
    lonely = program(lambda: receives(4))
    with pytest.raises(DeadlockError, match="recv-done on channel 4"):
        xla.execute_parallel([(lonely, [])])
    with pytest.raises(ChannelError, match="no program at the other end of channel 4"):
        lonely()


def test_error_names_the_other_end_that_never_comes() -> None:
    """Replica 1 has a Send, in a branch that it does not take."""
    branches = tuple(
        trace(f, [SCALAR], "branch")[0] for f in (lambda x: [sends(x, 4)], lambda x: [hlo_only.after_all()])
    )

    def perhaps(index: Any, x: Any) -> Any:
        conditional(index, x, branch_computations=branches)
        return x

    given = [
        (program(lambda: receives(4)), []),
        (program(perhaps, Shape(element_type("s32")), SCALAR), [np.int32(1), np.float32(3)]),
    ]
    with pytest.raises(DeadlockError) as found:
        xla.execute_parallel(given)
    said = str(found.value)
    assert "replica 0 waits in recv-done on channel 4 for the other end to send, at" in said
    assert "(receives)" in said
    assert "the other end is at" in said
    assert "(sends): " in said
    assert "of replica 1; replica 1 has ended" in said


def test_pairs_of_a_channel_are_of_partitions_where_there_are_several() -> None:
    pairs = ((0, 1), (1, 0))

    def swap(x: Any) -> Any:
        context = channels.recv(hlo_only.after_all(), shape=Shape(F32, (2,)), channel_id=1, source_target_pairs=pairs)
        sends(x, 1, source_target_pairs=pairs)
        return channels.recv_done(*context, channel_id=1, source_target_pairs=pairs)[0]

    given = rows(4, 2)
    found = program(swap, Shape(F32, (2,))).execute_replicated(given, partition_count=2)
    np.testing.assert_array_equal(found, [given[k][0] for k in (1, 0, 3, 2)])
    with pytest.raises(AttributeValueError, match="source_target_pairs must name replicas from 0 to 0, but 1 is not"):
        program(swap, Shape(F32, (2,))).execute_replicated(given[:1])


def test_channel_with_two_receivers_is_refused() -> None:
    lonely = program(lambda: receives(4))
    with pytest.raises(ChannelError, match=r"channel 4 has two receivers, replica [01] .*, or source_target_pairs"):
        xla.execute_parallel([(lonely, []), (lonely, [])])


def test_shapes_at_both_ends_must_agree() -> None:
    given = [
        (program(lambda x: sends(x, 1), SCALAR), [np.float32(3)]),
        (program(lambda: receives(1, Shape(F32, (2,)))), []),
    ]
    with pytest.raises(ShapeError, match=r"channel 1 is received as f32\[2\].*, but f32\[\] was sent"):
        xla.execute_parallel(given)


def test_error_of_one_replica_ends_the_others() -> None:
    def failing() -> Any:
        return receives(1, Shape(F32, (2,)))

    def waiting(x: Any) -> Any:
        sends(x, 1)
        return receives(9)

    before = threading.active_count()
    with pytest.raises(ShapeError, match="channel 1"):
        xla.execute_parallel([(program(failing), []), (program(waiting, SCALAR), [np.float32(1)])])
    assert threading.active_count() <= before


# --- arguments --------------------------------------------------------------------------------------------------------


def test_arguments_are_checked() -> None:
    computation = program(OPERATIONS["all_reduce"], Shape(F32, (2,)))
    x = np.float32([1, 2])
    refused: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ArgumentError, "one tuple for each of the 3 x 1 devices, but has 2", lambda: run([[x], [x]], 3)),
        (ArgumentError, "must be at least 1", lambda: run([[x]], 0)),
        (ArgumentError, "replica_count must be an integer, but is 1.0", lambda: run([[x]], 1.0)),
        (ArgumentError, "partition_count must be an integer", lambda: run([[x]], 1, "1")),
        (ArgumentError, "arguments must be a list", lambda: run(None)),
        (ArgumentError, "number 0 must be a pair", lambda: xla.execute_parallel([computation])),
        (ArgumentError, "device 1 takes 1 arguments", lambda: run([[x], []])),
        (ArgumentError, "device 0 takes 1 arguments", lambda: run([x, x])),
        (ShapeError, r"device 1: argument x0 must be f32\[2\]", lambda: run([[x], [x[:1]]])),
        (DTypeError, "device 0: argument x0", lambda: run([[np.int32([1, 2])], [x]])),
    ]
    run: Any = computation.execute_replicated
    for error, said, call in refused:
        with pytest.raises(error, match=said):
            call()


def test_zeros_of_either_sign_are_different_arguments() -> None:
    computation = program(lambda x: -x, SCALAR)
    found = computation.execute_replicated([[np.float32(0.0)], [np.float32(-0.0)]])
    assert [bool(np.signbit(x)) for x in found] == [True, False]


def test_groups_must_fit_the_replicas() -> None:
    computation, arguments = program(every_pair, Shape(F32, (2, 4))), rows(2, 2, 4)
    with pytest.raises(AttributeValueError, match="each of the 2 replicas once, from 0 to 1"):
        computation.execute_replicated(arguments)
    with pytest.raises(AttributeValueError, match="there is only number 0 when a computation is called"):
        computation(arguments[0][0])


def test_computation_that_is_called_is_replica_0_of_one() -> None:
    computation = program(lambda x: (OPERATIONS["all_reduce"](x), exchanges.replica_id()), Shape(F32, (2,)))
    for backend in BACKENDS:
        x, number = computation(np.float32([1, 2]), backend=backend)
        np.testing.assert_array_equal(x, [1, 2])
        assert int(number) == 0


def test_derivative_of_a_replicated_program() -> None:
    computation = program(lambda x: collectives.all_reduce(x * x, to_apply=SUM), SCALAR)

    def total(x: Any) -> Any:
        first, second = computation.execute_replicated([[x], [3 * x]])
        return first + 2 * second

    value, slope = tx.jit(tx.value_and_grad(total))(2.0)
    assert (float(value), float(slope)) == (120.0, 120.0)


def test_threads_take_no_traced_values() -> None:
    computation = program(sum_in_a_loop, SCALAR, Shape(F32, (2,)))
    with pytest.raises(TracerError, match="call it outside of jit, grad and vmap"):
        tx.jit(lambda n, m, x: computation.execute_replicated([[n, x], [m, x]]))(1.0, 1.0, np.float32([1, 2]))
