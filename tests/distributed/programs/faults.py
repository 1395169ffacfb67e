"""Processes that go wrong, each in the way that the first argument names."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
import tinyxla.runtime.mpi.world as mpi_world
from tinyxla import distributed, lax
from tinyxla.errors import ProcessError
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.distributed.replica_groups import PROCESSES

distributed.initialize()
RANK, SIZE = distributed.process_index(), distributed.process_count()
EVERYONE = (tuple(range(SIZE)),)


def total(x: Any) -> Any:
    return collectives.all_reduce(
        x, to_apply=collectives.sum_of(np.float32), replica_groups=EVERYONE, axis_name=PROCESSES
    )


@tx.jit
def step(x: Any) -> Any:
    return total(x) + 1


@tx.jit
def other_step(x: Any) -> Any:
    return total(x * 2)


@tx.jit
def repeated(x: Any, times: Any) -> Any:
    return lax.fori_loop(0, times, lambda k, y: total(y), x)


X = jnp.ones(3, np.float32)


def killed() -> None:
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    step(X)


def raised() -> None:
    if RANK == 1:
        raise ValueError("this process is wrong")
    step(X)


def raised_in_thread() -> None:
    if RANK == 1:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    step(X)


def exited() -> None:
    if RANK == 1:
        sys.exit(3)
    step(X)


def ended() -> None:
    if RANK == 1:
        return
    step(X)


def other_program() -> None:
    (step if RANK == 0 else other_step)(X)


def other_shape() -> None:
    step(X if RANK == 0 else jnp.ones(4, np.float32))


def caught() -> None:
    """All processes are told, and go on together."""
    try:
        other_program()
    except ProcessError as error:
        print(f"caught {error}")
    print(step(X))


def known_programs() -> None:
    """Both programs, once: later their comparison waits for nobody."""
    step(X)
    other_step(X)


def caught_by_message() -> None:
    """As on several machines, which share no memory."""
    mpi_world.shared_words = lambda communicator: None
    caught()


def other_order() -> None:
    """The same programs in another order."""
    known_programs()
    for function in (step, other_step)[:: 1 if RANK == 0 else -1]:
        function(X)


def other_program_later() -> None:
    known_programs()
    for _ in range(100):
        step(X)
    (step if RANK == 0 else other_step)(X)


def other_shape_later() -> None:
    """Messages of other sizes, which MPI may refuse."""
    wide = jnp.ones(4000, np.float32)
    for x in (X, wide, X, wide):
        step(x)
    step(X if RANK == 0 else wide)


def new_program_later() -> None:
    """One process knows its program, the other does not."""
    step(X)
    (step if RANK == 0 else other_step)(X)


def caught_later() -> None:
    """After results that may be wrong no process goes on as if nothing had been."""
    known_programs()
    for _ in range(2):
        try:
            (step if RANK == 0 else other_step)(X)
            print("took a wrong result")
        except ProcessError as error:
            print(f"caught {error}", file=sys.stderr)
    raise ValueError("both were told")


@tx.jit
def overlapped(x: Any) -> Any:
    """A message that is under way while products are computed."""
    return total(x * 2), jnp.tanh(x @ x) @ x


WIDE = jnp.ones((256, 256), np.float32)


def killed_under_way() -> None:
    overlapped(WIDE)
    if RANK == 1:
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    while True:
        overlapped(WIDE)


def missing_under_way() -> None:
    tx.config.update("collective_timeout_seconds", 2)
    overlapped(WIDE)
    if RANK == 1:
        time.sleep(60)
    overlapped(WIDE)


def one_way() -> None:
    """What a process sends without a wait for the others, it does not run ahead of them."""
    sent = tx.jit(lambda x: exchanges.collective_permute(x, source_target_pairs=((0, 1),), axis_name=PROCESSES))
    start = time.monotonic()
    for _ in range(3):
        if RANK == 1:
            time.sleep(0.5)
        sent(X)
    print(time.monotonic() - start > 1.0)


def overlapping_sets() -> None:
    """Sets of participants that overlap count their parts by themselves."""
    alone = tx.jit(
        lambda x: collectives.all_reduce(
            x, to_apply=collectives.sum_of(np.float32), replica_groups=((0,), (1,)), axis_name=PROCESSES
        )
    )
    pair = tx.jit(lambda x: exchanges.collective_permute(x, source_target_pairs=((1, 1),), axis_name=PROCESSES))
    for k in range(20):
        alone(X)
        step(X)
        if k % 3 == 0:
            pair(X)
    print(step(X))


def excepted() -> None:
    """All processes end a program by an exception, and go on together."""

    def wrong(x: Any) -> Any:
        raise ValueError("not this time")

    shape = tx.ShapeDtypeStruct((3,), np.float32)
    failing = tx.jit(lambda x: total(tx.pure_callback(wrong, shape, x) + total(x)))
    for _ in range(3):
        step(X)
        try:
            failing(X)
        except ValueError:
            print("excepted")
    print(step(X))


def other_number_of_iterations() -> None:
    repeated(X, 3 + RANK)
    step(X)


def waits_too_long() -> None:
    tx.config.update("collective_timeout_seconds", 2)
    if RANK == 1:
        time.sleep(60)
    step(X)


def waits_for_long() -> None:
    if RANK == 1:
        time.sleep(300)
    step(X)


def slow_but_right() -> None:
    """No wait that ends is taken for a fault."""
    if RANK == 1:
        time.sleep(5)
    print(step(X))


def interrupted() -> None:
    if RANK == 1:
        time.sleep(60)
    threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    step(X)


def forked() -> None:
    step(X)
    child = os.fork()
    if child == 0:
        try:
            step(X)
        except ProcessError as error:
            print(f"caught {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(step(X))


def threads() -> None:
    """Threads of a process take turns."""
    found: list[Any] = []
    several = [threading.Thread(target=lambda: found.append(step(X))) for _ in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    print(len(found))


SCENARIOS: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        killed,
        raised,
        raised_in_thread,
        exited,
        ended,
        other_program,
        other_shape,
        caught,
        caught_by_message,
        other_order,
        other_program_later,
        other_shape_later,
        new_program_later,
        caught_later,
        killed_under_way,
        missing_under_way,
        one_way,
        overlapping_sets,
        excepted,
        other_number_of_iterations,
        waits_too_long,
        waits_for_long,
        slow_but_right,
        interrupted,
        forked,
        threads,
    )
}

SCENARIOS[sys.argv[1]]()
