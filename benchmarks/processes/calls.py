"""Collective operations on arrays of processes, as a call of each library.

An operation by itself is one call; in a loop it is the body of a compiled `fori_loop`, so that what is measured is the
operation and not the call. mpi4py has a loop of Python instead, with the same arithmetic between operations.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.processes.workloads import Argument, ShardedWorkload

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
SIZES = [4 << k for k in range(2, 25, 4)]  # bytes: 16 B to 64 MB; an element for each process is the least
LOOP_SIZES = [64, 4 << 10, 256 << 10, 4 << 20]
ITERATIONS = 100

Call = Callable[[], object]
Array = Any


def _ring(count: int) -> list[tuple[int, int]]:
    return [(k, (k + 1) % count) for k in range(count)]


def collective(tx: Any, operation: str, count: int) -> Callable[[Array], Array]:
    """The operation of `lax`, over the axis "d", on the part of a device."""
    lax = tx.lax
    functions: dict[str, Callable[[Array], Array]] = {
        "all-reduce": lambda x: lax.psum(x, "d"),
        "all-gather": lambda x: lax.all_gather(x, "d", tiled=True),
        "reduce-scatter": lambda x: lax.psum_scatter(x, "d", tiled=True),
        "all-to-all": lambda x: lax.all_to_all(x, "d", 0, 0, tiled=True),
        "collective-permute": lambda x: lax.ppermute(x, "d", _ring(count)),
    }
    return functions[operation]


def _between(tx: Any, operation: str, count: int) -> Callable[[Array, Array], Array]:
    """From the operand and the result of an operation the next operand, which has its shape and a size like it."""
    if operation == "all-reduce":
        return lambda x, y: y / count
    if operation == "all-gather":
        return lambda x, y: y.reshape(count, -1)[(tx.lax.axis_index("d") + 1) % count]
    if operation == "reduce-scatter":
        return lambda x, y: tx.numpy.tile(y / count, count)
    return lambda x, y: y


def single(operation: str, size: int) -> ShardedWorkload:
    """One operation on arrays of so many bytes in each process."""

    def make(tx: Any, mesh: Any) -> Callable[[Array], Array]:
        spec = tx.sharding.PartitionSpec("d")
        out = tx.sharding.PartitionSpec() if operation == "all-reduce" else spec
        one = collective(tx, operation, mesh.size)
        return tx.shard_map(one, mesh=mesh, in_specs=spec, out_specs=out)

    def in_mpi(everyone: Any, x: np.ndarray[Any, Any]) -> Call:
        return partial(_mpi_operation(everyone, operation, x)[0])

    repeats = max(3, min(1000, (1 << 26) // size))
    return ShardedWorkload(f"{operation} {size}", make, _part(size), repeats, in_mpi)


def looped(operation: str, size: int) -> ShardedWorkload:
    """`ITERATIONS` operations in a compiled loop."""

    def make(tx: Any, mesh: Any) -> Callable[[Array], Array]:
        spec = tx.sharding.PartitionSpec("d")
        one, following = collective(tx, operation, mesh.size), _between(tx, operation, mesh.size)

        def loop(x: Array) -> Array:
            return tx.lax.fori_loop(0, ITERATIONS, lambda _, x: following(x, one(x)), x)

        return tx.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def in_mpi(everyone: Any, x: np.ndarray[Any, Any]) -> Call:
        call, y = _mpi_operation(everyone, operation, x)
        following = _mpi_between(everyone, operation, x, y)

        def loop() -> Array:
            for _ in range(ITERATIONS):
                call()
                following()
            return x

        return loop

    repeats = max(1, min(10, (8 << 20) // size))
    return ShardedWorkload(f"{operation} {size} in a loop", make, _part(size), repeats, in_mpi, ITERATIONS)


def _part(size: int) -> Callable[[int], tuple[Argument, ...]]:
    """Of each process so many bytes."""
    return lambda scale: (Argument((size // 4 * scale,), ("d",)),)


def everyone_of_mpi() -> Any:
    """The communicator of all processes; MPI is initialized by it."""
    return importlib.import_module("mpi4py.MPI").COMM_WORLD


def _mpi_operation(everyone: Any, operation: str, x: np.ndarray[Any, Any]) -> tuple[Call, np.ndarray[Any, Any]]:
    """A call, which returns where its result is, and the result."""
    rank, count = everyone.rank, everyone.size
    sizes = {"all-gather": x.size * count, "reduce-scatter": x.size // count}
    y = np.empty(sizes.get(operation, x.size), x.dtype)
    calls: dict[str, Call] = {
        "all-reduce": lambda: everyone.Allreduce(x, y),
        "all-gather": lambda: everyone.Allgather(x, y),
        "reduce-scatter": lambda: everyone.Reduce_scatter_block(x, y),
        "all-to-all": lambda: everyone.Alltoall(x, y),
        "collective-permute": lambda: everyone.Sendrecv(x, (rank + 1) % count, 0, y, (rank - 1) % count),
    }
    call = calls[operation]

    def called() -> Array:
        call()
        return y

    return called, y


def _mpi_between(everyone: Any, operation: str, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Call:
    """A function that turns the result of an operation into the next operand, in place."""
    rank, count = everyone.rank, everyone.size
    if operation == "all-reduce":
        return lambda: np.divide(y, count, out=x)
    if operation == "all-gather":
        return lambda: np.copyto(x, y.reshape(count, -1)[(rank + 1) % count])
    if operation == "reduce-scatter":
        return lambda: np.divide(y, count, out=x.reshape(count, -1))
    return lambda: np.copyto(x, y)
