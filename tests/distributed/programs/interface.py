"""The interface of `tinyxla.distributed`: numbers of processes, gathers of bytes, barriers.

The last line printed is the number of cases.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import distributed
from tinyxla.errors import AttributeValueError, NoEffectWarning, ProcessError
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.distributed.replica_groups import PROCESSES
from tinyxla.runtime import mpi

count = 0


def _of_launcher(what: str) -> int:
    """What Open MPI's mpirun, or MPICH's, says in the environment."""
    return int(os.environ.get(f"OMPI_COMM_WORLD_{what}") or os.environ[f"PMI_{what}"])


def test_initialize() -> None:
    assert not distributed.is_initialized()
    with pytest.warns(NoEffectWarning, match="coordinator_address have no effect"):
        distributed.initialize("localhost:1234", _of_launcher("SIZE"))
    assert distributed.is_initialized()
    with pytest.raises(ProcessError, match="it must be called once, before anything asks"):
        distributed.initialize()


def test_processes_know_their_numbers() -> None:
    rank, size = distributed.process_index(), distributed.process_count()
    assert (rank, size) == (_of_launcher("RANK"), _of_launcher("SIZE"))
    on_this_machine = sorted(map(int, mpi.world().all_gather_bytes(str(mpi.world().local_rank).encode())))
    assert on_this_machine == list(range(size))


def test_bytes_are_gathered_in_order() -> None:
    world = mpi.world()
    for length in (0, 1, 100_000):
        given = [bytes([k]) * (length + k) for k in range(world.size)]
        assert world.all_gather_bytes(given[world.rank]) == given
    world.barrier()


def test_groups_must_be_of_processes() -> None:
    x, size = np.ones(4, np.float32), distributed.process_count()
    for groups in ((tuple(range(size + 1)),), ((size - 1 - distributed.process_index(),),)):
        if distributed.process_index() in groups[0] and len(groups[0]) == 1:
            continue
        with pytest.raises(AttributeValueError, match=f"must have numbers below {size}, the number of processes"):
            collectives.all_gather(
                tx.numpy.asarray(x),
                all_gather_dimension=0,
                shard_count=len(groups[0]),
                replica_groups=groups,
                axis_name=PROCESSES,
            )
    with pytest.raises(AttributeValueError, match="among processes replica_groups must be given"):
        exchanges.collective_broadcast(tx.numpy.asarray(x), axis_name=PROCESSES)


def test_numbers_of_processes_in_programs() -> None:
    for op in (exchanges.replica_id, exchanges.partition_id):
        assert int(op(axis_name=PROCESSES)) == distributed.process_index()
        assert int(tx.jit(lambda op=op: op(axis_name=PROCESSES))()) == distributed.process_index()


def test_sums_are_the_same_in_every_run() -> None:
    size = distributed.process_count()
    for elements in (3, 1000, 100_003):
        x = np.random.default_rng(distributed.process_index()).normal(size=elements).astype(np.float32)
        total = tx.jit(
            lambda x: collectives.all_reduce(
                x,
                to_apply=collectives.sum_of(np.float32),
                replica_groups=(tuple(range(size)),),
                axis_name=PROCESSES,
            )
        )
        found = {bytes(np.asarray(total(x))) for _ in range(20)}
        assert len(found) == 1
        assert len(set(mpi.world().all_gather_bytes(found.pop()))) == 1


def test_text_shows_what_is_sent() -> None:
    size = distributed.process_count()
    function = tx.jit(
        lambda x: collectives.all_reduce(
            x * 2, to_apply=collectives.sum_of(np.float32), replica_groups=(tuple(range(size)),), axis_name=PROCESSES
        )
    )
    text = function.lower(np.ones((4, 3), np.float32)).compile().as_text()
    assert f"all-reduce over 1 groups of {size}, add" in text
    assert "f32[4,3] 48 B" in text


def test_shutdown() -> None:
    distributed.shutdown()
    assert not distributed.is_initialized()


if __name__ == "__main__":
    warnings.simplefilter("error")
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            count += 1
    print(f"{count} cases\n", end="")
