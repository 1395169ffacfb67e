"""Infeed, outfeed and host transfers: typed, bounded, in order, never without end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.replicas.test_replicas import BACKENDS, F32, SCALAR, program, receives, sends, sum_in_a_loop
from tinyxla import lax, xla
from tinyxla.errors import ArgumentError, DTypeError, ShapeError, TransferError
from tinyxla.ops import hlo_only, reduction
from tinyxla.ops.distributed import channels, collectives
from tinyxla.runtime.host_queues import Client, client
from tinyxla.shapes import Shape, TupleShape

PAIR = Shape(F32, (2,))
STRUCT = tx.ShapeDtypeStruct((2,), np.float32)


@pytest.fixture(autouse=True)
def empty_queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins with empty queues and does not wait long."""
    monkeypatch.setattr(client, "timeout", 0.2)
    xla.clear_transfers()
    yield
    xla.clear_transfers()


def read(shape: Any = STRUCT) -> Any:
    return lax.infeed(lax.create_token(), shape)[0]


# --- infeed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeeds_of_two_loops_are_read_in_order(backend: str | None) -> None:
    """The documents' example: the second loop begins with the result of the first."""

    def step(x: Any) -> Any:
        return x * 10 + channels.infeed(hlo_only.after_all(), shape=SCALAR)[0]

    def two_loops(x: Any) -> Any:
        for count in (3, 2):
            x = lax.fori_loop(0, count, lambda i, x: step(x), x)
        return x

    computation = program(two_loops, SCALAR)
    for k in range(1, 6):
        xla.transfer_to_infeed(np.float32(k))
    assert float(computation(np.float32(0), backend=backend)) == 12345


def test_infeed_of_a_tuple_and_of_an_empty_one() -> None:
    def function() -> Any:
        x, n = read({"x": STRUCT, "n": tx.ShapeDtypeStruct((), np.int32)}).values()
        return x * n, read(())

    xla.transfer_to_infeed((np.int32(3), np.float32([1, 2])))
    found, nothing = tx.jit(function)()
    np.testing.assert_array_equal(found, [3, 6])
    assert nothing == ()


def test_infeed_eager_and_under_vmap_reads_one_item() -> None:
    xla.transfer_to_infeed(np.float32([1, 2]))
    xla.transfer_to_infeed(np.float32([3, 4]))
    np.testing.assert_array_equal(read(), [1, 2])
    np.testing.assert_array_equal(tx.vmap(lambda x: x + read())(jnp.zeros((2, 2))), [[3, 4], [3, 4]])


def test_infeed_is_read_as_often_as_the_program_says_although_nothing_needs_it() -> None:
    for k in range(3):
        xla.transfer_to_infeed(np.float32([k, k]))

    @tx.jit
    def function() -> Any:
        read()
        read()
        return read()

    np.testing.assert_array_equal(function(), [2, 2])


def test_each_replica_has_its_own_infeed_and_outfeed() -> None:
    def function(x: Any) -> Any:
        data, token = channels.infeed(hlo_only.after_all(), shape=PAIR)
        total = collectives.all_reduce(data * x, to_apply=reduction.scalar_computation("add", np.dtype(np.float32)))
        channels.outfeed(data - total, token)
        return total

    for replica in range(3):
        xla.transfer_to_infeed(np.float32([replica, 1]), replica)
    found = program(function, PAIR).execute_replicated([[np.float32([2, 2])]] * 3)
    np.testing.assert_array_equal(found, [[6, 6]] * 3)
    for replica in range(3):
        np.testing.assert_array_equal(xla.transfer_from_outfeed(replica=replica), [replica - 6, -5])


def test_infeed_of_another_shape_or_type_is_an_error() -> None:
    for value in (np.float32([1, 2, 3]), np.int32([1, 2]), (np.float32([1, 2]), np.float32(1))):
        xla.transfer_to_infeed(value)
        with pytest.raises(ShapeError, match=r"what is read has the shape \(f32\[2\].*\), but what was transferred is"):
            tx.jit(read)()


def test_nested_tuples_are_refused() -> None:
    with pytest.raises(ShapeError, match="nested tuple"):
        xla.transfer_to_infeed((np.float32(1), (np.float32(1),)))
    with pytest.raises(ShapeError, match="nested tuple shapes are not supported"):
        channels.infeed(hlo_only.after_all(), shape=TupleShape((SCALAR, TupleShape((SCALAR,)))))


def test_what_was_transferred_is_a_copy() -> None:
    x = np.float32([1, 2])
    xla.transfer_to_infeed(x)
    x[:] = 0
    np.testing.assert_array_equal(read(), [1, 2])


def test_infeed_without_a_transfer_ends_with_an_error() -> None:
    with pytest.raises(TransferError, match=r"the infeed of replica 0 has nothing to be taken.*waited for 0.2 seconds"):
        tx.jit(read)()


def test_infeed_waits_for_a_transfer_of_another_thread() -> None:
    client.queue("infeed", 0).timeout = 20.0
    timer = threading.Timer(0.1, lambda: xla.transfer_to_infeed(np.float32([5, 6])))
    timer.start()
    np.testing.assert_array_equal(tx.jit(read)(), [5, 6])
    timer.join()


def test_items_are_constants_of_derivatives() -> None:
    xla.transfer_to_infeed(np.float32([1, 2]))
    np.testing.assert_array_equal(tx.grad(lambda x: jnp.sum(x * read()))(jnp.ones(2)), [1, 2])


# --- queues -----------------------------------------------------------------------------------------------------------


def test_queue_is_bounded() -> None:
    small = Client(capacity=2, timeout=0.05)
    small.transfer_to_infeed(1)
    small.transfer_to_infeed(2)
    with pytest.raises(TransferError, match="the infeed of replica 0 is full: 2 items have not been taken"):
        small.transfer_to_infeed(3)
    assert len(small.queue("infeed", 0)) == 2


def test_closed_queue_ends_waits() -> None:
    queue = client.queue("infeed", 0)
    queue.timeout = 20.0
    threading.Timer(0.05, xla.clear_transfers).start()
    with pytest.raises(TransferError, match="the infeed of replica 0 is closed"):
        tx.jit(read)()


def test_source_is_read_ahead_by_so_many_items() -> None:
    taken: list[int] = []

    def items() -> Iterator[Any]:
        for k in range(10):
            taken.append(k)
            yield np.float32([k, k])

    source = xla.infeed_source(items(), prefetch=3)
    with source:
        total = tx.jit(lambda n: lax.fori_loop(0, n, lambda i, x: x + read(), jnp.zeros(2)))
        np.testing.assert_array_equal(total(4), [6, 6])
        with pytest.raises(ArgumentError, match="has a source already"):
            xla.infeed_source([])
    assert 4 <= len(taken) <= 4 + 3 + 1


def test_end_of_a_source_is_an_error_with_its_cause() -> None:
    def items() -> Iterator[Any]:
        yield np.float32([1, 1])
        raise OSError("the disk is gone")

    with xla.infeed_source(items()), pytest.raises(TransferError, match="its source has ended after 1 item") as found:
        tx.jit(lambda: read() + read())()
    assert isinstance(found.value.__cause__, OSError)


WRONG_ARGUMENTS: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "no prefetch": (ArgumentError, "prefetch must be an integer and at least 1", lambda: source([], prefetch=0)),
    "half a prefetch": (ArgumentError, "but is 2.5", lambda: source([], prefetch=2.5)),
    "a source that is no iterable": (ArgumentError, "items must be an iterable", lambda: source(5)),
    "a negative replica": (ArgumentError, "replica must be", lambda: xla.transfer_to_infeed(1, -1)),
    "a replica that is no number": (ArgumentError, "but is 'a'", lambda: xla.transfer_from_outfeed(replica="a")),
    "a timeout that is no number": (ArgumentError, "timeout", lambda: xla.transfer_from_outfeed(timeout=float("nan"))),
    "a negative timeout": (ArgumentError, "timeout", lambda: xla.transfer_to_infeed(1, timeout=-1)),
    "words": (DTypeError, "not an element type", lambda: xla.transfer_to_infeed("abc")),
    "an object": (DTypeError, "not an element type", lambda: xla.transfer_to_channel(1, object())),
    "a channel that is no number": (ArgumentError, "channel must be", lambda: xla.transfer_to_channel("x", 1)),
    "a tuple over a channel": (ShapeError, "must be an array", lambda: xla.transfer_to_channel(1, (1, 2))),
    "a shape that is none": (ArgumentError, "must be a Shape", lambda: xla.transfer_from_outfeed("f32[]")),
}


def source(items: Any, **options: Any) -> object:
    return xla.infeed_source(items, **options)


@pytest.mark.parametrize("mistake", WRONG_ARGUMENTS)
def test_wrong_arguments_are_refused(mistake: str) -> None:
    error, says, call = WRONG_ARGUMENTS[mistake]
    with pytest.raises(error, match=says):
        call()
    assert len(client.queue("infeed", 0)) == 0


def test_nested_shape_of_an_outfeed_is_refused() -> None:
    lax.outfeed(lax.create_token(), np.float32(1))
    with pytest.raises(ShapeError, match="nested tuple shapes"):
        xla.transfer_from_outfeed(TupleShape((TupleShape((SCALAR,)),)))


# --- outfeed and host transfers ---------------------------------------------------------------------------------------


def test_outfeed_gives_items_in_order() -> None:
    def body(i: Any, x: Any) -> Any:
        lax.outfeed(lax.create_token(), (i, x))
        return x * 2

    tx.jit(lambda x: lax.fori_loop(0, 4, body, x))(1.0)
    found = [xla.transfer_from_outfeed() for _ in range(4)]
    assert [(int(i), float(x)) for i, x in found] == [(0, 1), (1, 2), (2, 4), (3, 8)]


def test_outfeed_of_another_shape_than_asked_for_is_an_error() -> None:
    lax.outfeed(lax.create_token(), np.float32([1, 2]))
    with pytest.raises(ShapeError, match="transfer_from_outfeed"):
        xla.transfer_from_outfeed(SCALAR)


def test_outfeed_of_examples_is_refused() -> None:
    with pytest.raises(ArgumentError, match="vmap: outfeed: examples that are computed together have no order"):
        tx.vmap(lambda x: (lax.outfeed(lax.create_token(), x), x)[1])(jnp.ones(2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_transfers_over_channels_of_the_host(backend: str | None) -> None:
    def function(x: Any) -> Any:
        sends(x, 3, is_host_transfer=True)
        return receives(4, PAIR, is_host_transfer=True)

    xla.transfer_to_channel(4, np.float32([7, 8]))
    np.testing.assert_array_equal(program(function, SCALAR)(np.float32(5), backend=backend), [7, 8])
    assert float(xla.transfer_from_channel(3)) == 5
    with pytest.raises(TransferError, match="channel 3, of replica 0 has nothing to be taken"):
        xla.transfer_from_channel(3)


# --- interrupts -------------------------------------------------------------------------------------------------------


class FromOutside(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
@pytest.mark.parametrize("counts", [(2, 2), (2, 3)], ids=["lanes", "threads"])
def test_interrupt_ends_the_wait_for_an_infeed(counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replica 1 waits for its infeed, and in a program of threads replica 0 for replica 1."""

    def function(count: Any, x: Any) -> Any:
        data = channels.infeed(hlo_only.after_all(), shape=PAIR)[0]
        return sum_in_a_loop(count, x + data)

    def interrupt(*_: object) -> None:
        raise FromOutside

    monkeypatch.setattr(client, "timeout", 100.0)
    made = program(function, SCALAR, PAIR)
    count = np.float32(counts[0])
    arguments = [
        [count, np.float32([1, 2])],
        [count if counts[0] == counts[1] else np.float32(counts[1]), np.ones(2, "f")],
    ]
    xla.transfer_to_infeed(np.float32([1, 1]), 0)
    outer = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(FromOutside):
            made.execute_replicated(arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer)
    xla.clear_transfers()
    for replica in range(2):
        xla.transfer_to_infeed(np.float32([replica, 1]), replica)
    first, second = made.execute_replicated([[count, x] for _, x in arguments])
    np.testing.assert_array_equal(first, [1 + 3 + 9, 3 + 5 + 15])
    np.testing.assert_array_equal(second, [2 + 3 + 9, 2 + 5 + 15])


# --- a training loop --------------------------------------------------------------------------------------------------


def test_compiled_loop_trains_on_batches_that_it_reads() -> None:
    """Softmax regression on the digits: one call reads all batches from an iterator and returns once."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    images, labels = np.float32(digits.data / 16), np.int32(digits.target)
    random = np.random.default_rng(0)

    def batches(count: int) -> Iterator[Any]:
        for _ in range(count):
            chosen = random.integers(0, 1500, 64)
            yield images[chosen], labels[chosen]

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(tx.nn.log_softmax(x @ weights), y[:, None], 1))

    shapes = (tx.ShapeDtypeStruct((64, 64), np.float32), tx.ShapeDtypeStruct((64,), np.int32))

    @tx.jit
    def train(weights: Any, steps: Any) -> Any:
        def step(state: Any) -> Any:
            number, weights = state
            return number + 1, weights - 2.0 * tx.grad(loss)(weights, *read(shapes))

        return lax.while_loop(lambda state: state[0] < steps, step, (0, weights))[1]

    with xla.infeed_source(batches(300), prefetch=4):
        weights = train(jnp.zeros((64, 10)), 300)
    accuracy = np.mean(np.argmax(images[1500:] @ np.asarray(weights), 1) == labels[1500:])
    assert accuracy > 0.88
