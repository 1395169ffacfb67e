"""Many processes: one program that runs on several machines, or several times on one, over MPI.

    mpirun -n 4 python train.py

starts four processes, which `initialize` makes those of one program. Collective operations among them are calls of MPI
by native code. `python -m pip install 'tinyxla[mpi]'` brings mpi4py and Open MPI; any other MPI that mpi4py is built
for does as well.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tinyxla.errors import ProcessError, warn
from tinyxla.runtime import mpi
from tinyxla.runtime.threads import share_processors
from tinyxla.tracing.config import config
from tinyxla.tracing.device import process_count, process_index, set_processes

__all__ = ["initialize", "is_initialized", "process_count", "process_index", "shutdown"]

# Variables that the launchers of MPI programs set: mpirun of Open MPI, of MPICH and of Intel MPI, srun.
_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "SLURM_PROCID")


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Make this process one of a program of several, which mpirun or Slurm has started. Without such a launcher the
    program has one process.

    Call it first of all. Processes on one machine share its processors (`set_num_threads`). At its end a process waits
    for the others, as far as they need it.

    Args:
        num_processes: how many there must be.
        process_id: the number that this one must have.
        coordinator_address: nothing but a warning, as for the other arguments of JAX: MPI knows its processes.
        local_device_ids, cluster_detection_method, coordinator_bind_address: accepted, with a warning.
        initialization_timeout, heartbeat_timeout_seconds, shutdown_timeout_seconds: accepted, with a warning.
        slice_index, partition_index: accepted, with a warning.

    Raises:
        MissingPackageError: there is a launcher, but no mpi4py or MPI library.
        ProcessError: it was called before, or too late; or the numbers of processes are others.

    Example:
        >>> from tinyxla import distributed
        >>> distributed.process_index() < distributed.process_count()
        True
    """
    given = {
        "coordinator_address": coordinator_address,
        "local_device_ids": local_device_ids,
        "cluster_detection_method": cluster_detection_method,
        "coordinator_bind_address": coordinator_bind_address,
        "slice_index": slice_index,
        "partition_index": partition_index,
    }
    limits = (initialization_timeout, heartbeat_timeout_seconds, shutdown_timeout_seconds)
    ignored = [name for name, value in given.items() if value is not None]
    ignored += ["timeouts"] if limits != (300, 100, 300) else []
    if ignored:
        warn(
            f"distributed.initialize: {', '.join(ignored)} have no effect: the processes are those that mpirun or "
            "Slurm started; config.collective_timeout_seconds says how long they wait for one another."
        )
    mpi.start(is_launched=any(name in os.environ for name in _LAUNCHERS))
    among = mpi.world()
    set_processes(among.rank, among.size)
    share_processors(among.local_size)
    _set_timeout()
    config.watch(_set_timeout)
    if num_processes not in (None, among.size) or process_id not in (None, among.rank):
        raise ProcessError(
            f"distributed.initialize: process {process_id} of {num_processes} was asked for, but this is process "
            f"{among.rank} of {among.size}; start processes by mpirun -n {num_processes or among.size}."
        )


def _set_timeout() -> None:
    mpi.world().timeout = config.collective_timeout_seconds


def shutdown() -> None:
    """Leave the other processes, when all of them call this; at the end of the program it happens by itself.

    Example:
        >>> from tinyxla import distributed
        >>> distributed.shutdown()
        >>> distributed.is_initialized()
        False
    """
    mpi.stop()
    set_processes(0, 1)


def is_initialized() -> bool:
    """Whether `initialize` was called, and `shutdown` was not.

    Returns:
        True or False.

    Example:
        >>> from tinyxla import distributed
        >>> distributed.is_initialized()
        False
    """
    return mpi.is_started()


def __dir__() -> list[str]:
    return __all__
