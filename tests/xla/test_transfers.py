"""Send, Recv, Infeed, Outfeed and what belongs to them, as functions of the builder. What they do is in test_replicas
and test_host_queues; the text in test_collectives_text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import xla_oracle
from tinyxla import xla
from tinyxla.errors import ArgumentError, AttributeValueError, DeadlockError, ShapeError, TinyxlaError
from tinyxla.text import parse_hlo, print_module
from tinyxla.xla import ChannelHandle, ChannelType, ShapeUtil, XlaBuilder, XlaComputation

BACKENDS = ("interpreter", "numba")
TO_HOST = ChannelHandle(7, ChannelType.DEVICE_TO_HOST)
FROM_HOST = ChannelHandle(8, ChannelType.HOST_TO_DEVICE)
ONE = ChannelHandle(1)
PAIR = ShapeUtil.MakeShape(xla.F32, [2])
SCALAR = ShapeUtil.MakeShape(xla.F32, [])
BOTH = xla.TupleShape((PAIR, SCALAR))
NESTED = xla.TupleShape((BOTH,))


@pytest.fixture(autouse=True)
def empty_queues() -> Iterator[None]:
    yield
    xla.clear_transfers()


def f32(*values: Any) -> Any:
    return np.array(values, np.float32)


def program(build: Callable[..., Any]) -> XlaComputation:
    """The computation of a parameter f32[2], whose text reads as the same, here and in XLA."""
    builder = XlaBuilder("program")
    made = builder.Build(build(builder, xla.Parameter(builder, 0, PAIR)))
    text = made.as_hlo_text()
    assert print_module(parse_hlo(text)) == text
    xla_oracle.parse(text)
    return made


def equal(found: Any, *expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found), f32(*expected))


@pytest.mark.parametrize("backend", BACKENDS)
def test_send_and_recv(backend: str) -> None:
    def sends(b: XlaBuilder, x: Any) -> Any:
        assert xla.Send(x, channel_handle=ONE).shape == xla.CreateToken(b).shape  # there is no result
        return xla.Neg(x)

    def receives(b: XlaBuilder, x: Any) -> Any:
        return xla.Add(x, xla.Recv(b, PAIR, channel_handle=ONE))

    programs = [(program(sends), [f32(1, 2)]), (program(receives), [f32(10, 20)])]
    first, second = xla.execute_parallel(programs, backend)
    equal(first, -1, -2)
    equal(second, 11, 22)


@pytest.mark.parametrize("backend", BACKENDS)
def test_send_and_recv_begun_and_waited_for(backend: str) -> None:
    """Recv before Send, Send before RecvDone: the documents' order."""
    swap = [(0, 1), (1, 0)]

    def swaps(b: XlaBuilder, x: Any) -> Any:
        received = xla.Recv(b, PAIR, 3, swap)
        sent = xla.Send(x, channel_id=3, source_target_pairs=swap)
        assert str(sent.shape) == str(received.shape) == "(f32[2], u32[], token[])"
        found = xla.RecvDone(received)
        xla.SendDone(sent)
        return found

    first, second = program(swaps).execute_replicated([[f32(1, 2)], [f32(3, 4)]], backend=backend)
    equal(first, 3, 4)
    equal(second, 1, 2)


def test_waiting_before_sending_is_a_deadlock() -> None:
    swap = [(0, 1), (1, 0)]

    def waits(b: XlaBuilder, x: Any) -> Any:
        found = xla.RecvDone(xla.Recv(b, PAIR, 3, swap))
        xla.SendDone(xla.Send(x, 3, swap))
        return found

    with pytest.raises(DeadlockError, match="channel 3"):
        program(waits).execute_replicated([[f32(1, 2)], [f32(3, 4)]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_send_and_recv_with_tokens(backend: str) -> None:
    def sends(b: XlaBuilder, x: Any) -> Any:
        token = xla.SendWithToken(x, xla.CreateToken(b), ONE)
        xla.SendWithTokens(xla.Neg(x), token, 2)
        return x

    def receives(b: XlaBuilder, x: Any) -> Any:
        first = xla.RecvWithToken(xla.AfterAll([xla.CreateToken(b)]), PAIR, ONE)
        second = xla.RecvWithTokens(xla.GetTupleElement(first, 1), PAIR, 2)
        return xla.Sub(xla.GetTupleElement(first, 0), xla.GetTupleElement(second, 0))

    _, found = xla.execute_parallel([(program(sends), [f32(1, 2)]), (program(receives), [f32(0, 0)])], backend)
    equal(found, 2, 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_transfers_to_and_from_the_host(backend: str) -> None:
    def build(b: XlaBuilder, x: Any) -> Any:
        token = xla.SendToHost(x, xla.CreateToken(b), PAIR, TO_HOST)
        return xla.GetTupleElement(xla.RecvFromHost(token, PAIR, FROM_HOST), 0)

    assert xla.RecvToHost is xla.RecvFromHost  # the newest page's name

    xla.transfer_to_channel(FROM_HOST, f32(5, 6))
    equal(program(build)(f32(1, 2), backend=backend), 5, 6)
    equal(xla.transfer_from_channel(TO_HOST), 1, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeed_and_outfeed(backend: str) -> None:
    """In the order in which they are made; an empty tuple reads nothing."""

    def build(b: XlaBuilder, x: Any) -> Any:
        first = xla.Infeed(b, BOTH, "first")
        nothing = xla.Infeed(b, xla.TupleShape(()))
        second = xla.Infeed(b, PAIR)
        assert first.shape == BOTH
        assert nothing.shape == xla.TupleShape(())
        xla.Outfeed(first, BOTH, "all of it")
        xla.Outfeed(x)
        return xla.Sub(xla.GetTupleElement(first, 0), second)

    xla.transfer_to_infeed((f32(10, 20), np.float32(3)))
    xla.transfer_to_infeed(f32(1, 2))
    equal(program(build)(f32(8, 9), backend=backend), 9, 18)
    data, scalar = xla.transfer_from_outfeed(BOTH)
    equal(data, 10, 20)
    assert scalar == 3
    equal(xla.transfer_from_outfeed(PAIR), 8, 9)


def counted_loop(b: XlaBuilder, count: int, init: Any, step: Callable[..., Any]) -> Any:
    """While: `step(builder, x)` so many times, from `init` on."""
    state = xla.TupleShape((ShapeUtil.MakeShape(xla.S32, []), PAIR))

    def of_state(name: str, function: Callable[..., Any]) -> XlaComputation:
        inner = XlaBuilder(name)
        given = xla.Parameter(inner, 0, state)
        return inner.Build(function(inner, xla.GetTupleElement(given, 0), xla.GetTupleElement(given, 1)))

    condition = of_state("condition", lambda c, i, x: xla.Lt(i, xla.ConstantLiteral(c, np.int32(count))))
    body = of_state("body", lambda c, i, x: xla.Tuple(c, [xla.Add(i, xla.ConstantLiteral(c, np.int32(1))), step(c, x)]))
    return xla.GetTupleElement(xla.While(condition, body, xla.Tuple(b, [xla.ConstantLiteral(b, np.int32(0)), init])), 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeeds_of_two_while_loops_are_read_in_order(backend: str) -> None:
    """The documents' example: the second loop begins with the result of the first one."""
    twice = lambda c, x: xla.Add(xla.Add(x, x), xla.Infeed(c, PAIR))  # noqa: E731
    made = program(lambda b, x: counted_loop(b, 2, counted_loop(b, 3, x, twice), twice))
    for k in range(5):
        xla.transfer_to_infeed(f32(k, 1))
    equal(made(f32(1, 0), backend=backend), 32 + 26, 31)
    for replica in range(3):
        for k in range(5):
            xla.transfer_to_infeed(f32(k, replica), replica)
    found = made.execute_replicated([[f32(1, 0)]] * 3, backend=backend)
    for replica, x in enumerate(found):
        equal(x, 32 + 26, 31 * replica)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_reduce_that_one_replica_runs_more_often_is_a_deadlock(backend: str) -> None:
    """The documents' example of a replica that would wait for ever: infeeds say how often the loops run."""
    state = xla.TupleShape((ShapeUtil.MakeShape(xla.PRED, []), PAIR))
    condition, body = XlaBuilder("condition"), XlaBuilder("body")
    goes_on = condition.Build(xla.GetTupleElement(xla.Parameter(condition, 0, state), 0))
    given = xla.Parameter(body, 0, state)
    again = xla.Infeed(body, ShapeUtil.MakeShape(xla.PRED, []))
    step = body.Build(xla.Tuple(body, [again, xla.CrossReplicaSum(xla.GetTupleElement(given, 1))]))

    def build(b: XlaBuilder, x: Any) -> Any:
        init = xla.Tuple(b, [xla.ConstantLiteral(b, np.bool_(True)), x])
        return xla.GetTupleElement(xla.While(goes_on, step, init), 1)

    made = program(build)
    arguments = [[f32(1, 2)], [f32(3, 4)]]
    for often in ((2, 2), (2, 3)):
        for replica, count in enumerate(often):
            for k in range(count):
                xla.transfer_to_infeed(np.bool_(k < count - 1), replica)
        if often[0] == often[1]:
            for x in made.execute_replicated(arguments, backend=backend):
                equal(x, 8, 12)
    with pytest.raises(DeadlockError) as found:
        made.execute_replicated(arguments, backend=backend)
    said = str(found.value)
    assert f"replica 1 waits in all-reduce for replica 0, at {__file__}" in said
    assert "replica 0 has ended" in said


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeed_and_outfeed_with_tokens(backend: str) -> None:
    def build(b: XlaBuilder, x: Any) -> Any:
        first = xla.InfeedWithToken(xla.CreateToken(b), PAIR)
        second = xla.InfeedWithToken(xla.GetTupleElement(first, 1), BOTH, "second")
        token = xla.OutfeedWithToken(xla.GetTupleElement(first, 0), xla.GetTupleElement(second, 1), PAIR)
        xla.OutfeedWithToken(xla.GetTupleElement(second, 0), token)
        return x

    xla.transfer_to_infeed(f32(1, 2))
    xla.transfer_to_infeed((f32(3, 4), np.float32(5)))
    program(build)(f32(0, 0), backend=backend)
    equal(xla.transfer_from_outfeed(), 1, 2)
    equal(xla.transfer_from_outfeed()[0], 3, 4)


def test_layout_of_an_infeed() -> None:
    shape = ShapeUtil.MakeShapeWithLayout(xla.F32, [2, 3], [0, 1])
    builder = XlaBuilder("columns")
    made = builder.Build(xla.Infeed(builder, shape))
    assert "(f32[2,3]{0,1}, token[]) infeed" in made.as_hlo_text()
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    xla.transfer_to_infeed(data)
    np.testing.assert_array_equal(np.asarray(made()), data)


REFUSED: dict[str, tuple[type[TinyxlaError], str, Callable[..., Any]]] = {
    "a nested infeed": (ShapeError, "nested", lambda b, x: xla.Infeed(b, NESTED)),
    "a nested outfeed": (ShapeError, "nested", lambda b, x: xla.Outfeed(xla.Tuple(b, [xla.Tuple(b, [x])]))),
    "an outfeed of another shape": (ShapeError, "shape_with_layout", lambda b, x: xla.Outfeed(x, SCALAR)),
    "an array for a token": (ShapeError, "token", lambda b, x: xla.OutfeedWithToken(x, x)),
    "an array to order an infeed": (ShapeError, "token", lambda b, x: xla.InfeedWithToken(x, PAIR)),
    "an array to order a send": (ShapeError, "token", lambda b, x: xla.SendWithToken(x, x, ONE)),
    "a tuple to be sent": (ShapeError, "must be an array", lambda b, x: xla.Send(xla.Tuple(b, [x]), ONE)),
    "a tuple to be received": (ShapeError, "must be an array", lambda b, x: xla.Recv(b, BOTH, ONE)),
    "a shape that is none": (ArgumentError, "Shape", lambda b, x: xla.Recv(b, [2], ONE)),
    "a negative channel": (AttributeValueError, "-1", lambda b, x: xla.Send(x, ChannelHandle(-1))),
    "a channel that is no number": (ArgumentError, "handle", lambda b, x: xla.Send(x, "one")),
    "a channel of the host between devices": (
        ArgumentError,
        "DEVICE_TO_DEVICE",
        lambda b, x: xla.Recv(b, PAIR, FROM_HOST),
    ),
    "a channel between devices to the host": (
        ArgumentError,
        "DEVICE_TO_HOST",
        lambda b, x: xla.SendToHost(x, xla.CreateToken(b), PAIR, ONE),
    ),
    "a channel to the host from it": (
        ArgumentError,
        "HOST_TO_DEVICE",
        lambda b, x: xla.RecvFromHost(xla.CreateToken(b), PAIR, TO_HOST),
    ),
    "another shape for the host": (
        ShapeError,
        "shape_with_layout",
        lambda b, x: xla.SendToHost(x, xla.CreateToken(b), SCALAR, TO_HOST),
    ),
    "two sources of one replica": (
        AttributeValueError,
        "targets",
        lambda b, x: xla.Send(x, 1, [(0, 1), (2, 1)]),
    ),
    "an array for a context": (ArgumentError, "context must be", lambda b, x: xla.SendDone(x)),
    "the buffer of a receiver that nothing waits for": (
        ArgumentError,
        "must be used once, by recv-done",
        lambda b, x: xla.GetTupleElement(xla.Recv(b, PAIR, 1), 0),
    ),
    "a context that is the result": (ArgumentError, "used by the result", lambda b, x: xla.Recv(b, PAIR, 1)),
    "a context that is waited for twice": (
        ArgumentError,
        "recv-done and recv-done",
        lambda b, x: (lambda context: xla.Add(xla.RecvDone(context), xla.RecvDone(context)))(xla.Recv(b, PAIR, 1)),
    ),
    "what a send begins, to be computed with": (
        ArgumentError,
        "used by negate",
        lambda b, x: xla.Neg(xla.GetTupleElement(xla.Send(x, 1), 0)),
    ),
    "the context of a send to be received": (
        ArgumentError,
        "context must be",
        lambda b, x: xla.RecvDone(xla.Send(x, 1)),
    ),
    "the context of a receiver to be sent": (
        ArgumentError,
        "context must be",
        lambda b, x: xla.SendDone(xla.Recv(b, PAIR, 1)),
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_mistakes_are_refused_when_they_are_made(mistake: str) -> None:
    kind, says, build = REFUSED[mistake]
    with pytest.raises(kind) as caught:
        program(build)
    assert says in str(caught.value), caught.value
