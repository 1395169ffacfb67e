"""Scaling models: how long a program would take on many processes, from what it costs and how fast the machines are.

    T = kernels / process + messages / network

A process takes a time for each kernel, byte and operation (`Processor`), a network for each message, byte, and byte
that is combined (`Network`): the Hockney model, extended by the cost of reductions. Both are linear in what a program
costs a process (`lowered.process_cost()`), which is known for any number of processes on an abstract mesh; both are
fitted to measurements. Messages are taken not to overlap with computation, which makes predictions too long where they
do; processes are taken not to share links, which makes them too short.

Sources: "The communication challenge for MPP: Intel Paragon and Meiko CS-2" (Hockney, 1994); for the algorithms whose
messages are counted "Optimization of Collective Communication Operations in MPICH" (Thakur, Rabenseifner, Gropp, 2005).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tinyxla.api.aot import Lowered
from tinyxla.compiler.step_costs import Cost, ProcessCost
from tinyxla.errors import ArgumentError
from tinyxla.ops.distributed.communication import ALGORITHMS, Communication, communication_by
from tinyxla.util.wording import duration

__all__ = ["Cost", "Network", "Prediction", "Processor", "collective", "predict"]


class Network(NamedTuple):
    """The time of messages: seconds for each one, for each byte sent, and for each byte that a reduction combines.

    Example:
        >>> from tinyxla.distributed import scaling
        >>> network = scaling.Network(latency=2e-6, seconds_per_byte=1e-9)
        >>> network.seconds(scaling.collective("collective-permute", 1000, 2))
        3e-06
    """

    latency: float
    seconds_per_byte: float
    seconds_per_reduced_byte: float = 0.0

    def seconds(self, communication: Communication) -> float:
        """How long a process sends, receives and combines.

        Args:
            communication: what a process communicates.

        Returns:
            Seconds.

        Raises:
            ArgumentError: what is no `Communication`.

        >>> from tinyxla.distributed import scaling
        >>> network = scaling.Network(latency=1e-6, seconds_per_byte=1e-9)
        >>> f"{network.seconds(scaling.collective('collective-permute', 2000, 2)):.1e}"
        '3.0e-06'
        """
        if not isinstance(communication, Communication):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"Network.seconds: takes a Communication, but got {communication!r}.")
        moved = max(communication.sent, communication.received)
        own = communication.messages, moved, communication.reduced
        return sum(a * b for a, b in zip(self, own, strict=True))

    @staticmethod
    def fit(measured: Iterable[tuple[Communication, float]]) -> Network:
        """The network that fits measured collective operations best: the least squares of relative errors.

        Args:
            measured: for each measurement what a process communicates (`collective`), and the seconds it took.

        Returns:
            A network.

        Raises:
            ArgumentError: there is no measurement.

        Example:
            >>> from tinyxla.distributed import scaling
            >>> sizes = (8, 8000, 8000000)
            >>> rows = [(scaling.collective("collective-permute", n, 2), 1e-6 + 1e-9 * n) for n in sizes]
            >>> network = scaling.Network.fit(rows)
            >>> round(network.latency * 1e9), round(network.seconds_per_byte * 1e12)
            (1000, 1000)
        """
        rows = [((x.messages, max(x.sent, x.received), x.reduced), seconds) for x, seconds in measured]
        return Network(*_fitted("Network.fit", rows))


class Processor(NamedTuple):
    """The time of computations: seconds for each kernel, for each byte read or written, and for each operation, of
    which a transcendental function counts as `TRANSCENDENTAL`.

    Example:
        >>> from tinyxla.distributed import scaling
        >>> processor = scaling.Processor(1e-6, 1e-9, 2e-9)
        >>> f"{processor.seconds(scaling.Cost(bytes_read=1000, operations=500), kernels=2):.1e}"
        '4.0e-06'
    """

    seconds_per_kernel: float
    seconds_per_byte: float
    seconds_per_operation: float

    def seconds(self, cost: Cost, kernels: int) -> float:
        """How long a process computes.

        Args:
            cost: what the process computes.
            kernels: the number of kernels, each of which takes time to start.

        Returns:
            Seconds.

        Raises:
            ArgumentError: what is no `Cost`, or a number that is no integer.

        >>> from tinyxla.distributed import scaling
        >>> processor = scaling.Processor(1e-6, 1e-9, 1e-9)
        >>> f"{processor.seconds(scaling.Cost(bytes_read=1000, bytes_written=1000), kernels=1):.1e}"
        '3.0e-06'
        """
        if not isinstance(cost, Cost) or not isinstance(kernels, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"Processor.seconds: takes a Cost and an integer, but got {cost!r} and {kernels!r}.")
        return sum(a * b for a, b in zip(self, _computation(cost, kernels), strict=True))

    @staticmethod
    def fit(measured: Iterable[tuple[ProcessCost, float]]) -> Processor:
        """The processor that fits measured runs of programs without messages best: the least squares of relative
        errors. Runs of one program in several sizes give the speeds that this program reaches.

        Args:
            measured: for each measurement what the program costs (`lowered.process_cost()`), and the seconds it took.

        Returns:
            A processor.

        Raises:
            ArgumentError: there is no measurement.

        >>> import tinyxla as tx
        >>> from tinyxla.distributed import scaling
        >>> costs = [tx.jit(lambda x: 2 * x).lower(tx.numpy.ones(n)).process_cost() for n in (10, 1000)]
        >>> processor = scaling.Processor.fit([(cost, 1e-9 * cost.cost.bytes) for cost in costs])
        >>> f"{processor.seconds(costs[1].cost, costs[1].kernels):.1e}"
        '8.0e-06'
        """
        return Processor(*_fitted("Processor.fit", [(_computation(x.cost, x.kernels), t) for x, t in measured]))


TRANSCENDENTAL = 8  # operations of a vector loop that take as long as a transcendental function


def _computation(cost: Cost, kernels: int) -> tuple[float, ...]:
    return kernels, cost.bytes, cost.operations + TRANSCENDENTAL * cost.transcendentals


class Prediction(NamedTuple):
    """How long a call takes.

    Attributes:
        processes: how many there are.
        computation: seconds that a process computes.
        communication: seconds that it communicates.
        cost: of which the times follow.

    >>> import tinyxla as tx
    >>> from tinyxla.distributed import scaling
    >>> mesh = tx.sharding.AbstractMesh((1024,), ("x",))
    >>> x = tx.ShapeDtypeStruct((4096, 256), "float32", sharding=tx.NamedSharding(mesh, tx.P("x")))
    >>> cost = tx.jit(lambda x: tx.numpy.sum(x, 0)).lower(x).process_cost()
    >>> f"{scaling.Prediction(1024, computation=2e-6, communication=3e-6, cost=cost).seconds:.1e}"
    '5.0e-06'
    """

    processes: int
    computation: float
    communication: float
    cost: ProcessCost

    @property
    def seconds(self) -> float:
        """Both."""
        return self.computation + self.communication

    def __str__(self) -> str:
        shares = f"computes {duration(self.computation)}, communicates {duration(self.communication)}"
        return f"{self.processes} processes: {duration(self.seconds)}; {shares}"


def predict(lowered: Lowered, processor: Processor, network: Network) -> Prediction:
    """How long a call of a program takes, if each device of its mesh is a process.

    The mesh may be an abstract one. That takes as long for a thousand processes as for two: the program of one is
    planned, and not compiled.

    Args:
        lowered: `jit(f).lower(...)` of arrays, or of descriptions of arrays, over a mesh.
        processor: of each process.
        network: between any two of them.

    Returns:
        Seconds of a call, of its computation and of its communication.

    Raises:
        ArgumentError: what is no lowered function.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.distributed import scaling
        >>> processor = scaling.Processor(1e-6, 1e-10, 1e-11)
        >>> network = scaling.Network(latency=2e-5, seconds_per_byte=1e-10)
        >>> def mean(processes):
        ...     mesh = tx.sharding.AbstractMesh((processes,), ("x",))
        ...     x = tx.ShapeDtypeStruct((1 << 20,), "float32", sharding=tx.NamedSharding(mesh, tx.P("x")))
        ...     return scaling.predict(tx.jit(tx.numpy.mean).lower(x), processor, network)
        >>> mean(1).seconds > mean(16).seconds < mean(1024).seconds
        True
    """
    if not hasattr(lowered, "process_cost"):
        kind = type(lowered).__name__
        raise ArgumentError(
            f"scaling.predict: takes a lowered function, jit(f).lower(...), but got one of type {kind}."
        )
    cost = lowered.process_cost()
    computation = processor.seconds(cost.cost, cost.kernels)
    return Prediction(cost.processes, computation, network.seconds(cost.communication), cost)


def collective(kind: str, operand_bytes: int, processes: int) -> Communication:
    """What a collective operation costs each process, by the algorithm that MPI libraries take for such sizes.

    Args:
        kind: "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute" or
            "collective-broadcast".
        operand_bytes: of the array that each process gives.
        processes: how many take part.

    Returns:
        The bytes, messages and operations of a process.

    Raises:
        ArgumentError: there is no such operation.

    Example:
        >>> from tinyxla.distributed import scaling
        >>> scaling.collective("all-reduce", 1 << 20, 4)
        Communication(sent=1572864, received=1572864, messages=4, reduced=786432)
    """
    if kind not in ALGORITHMS:
        raise ArgumentError(f"collective: kind must be one of {', '.join(ALGORITHMS)}, but is {kind!r}.")
    return communication_by(kind, operand_bytes, processes)


def _fitted(what: str, rows: Sequence[tuple[Sequence[float], float]]) -> tuple[float, ...]:
    """Non-negative least squares: the times for each of several amounts with which the sums of the rows come nearest,
    relative to their seconds. Of the solutions with some of the times 0 the best without a negative one."""
    if not rows:
        raise ArgumentError(f"{what}: there must be at least one measurement.")
    amounts = np.array([[n / seconds for n in row] for row, seconds in rows])
    scales = amounts.max(0)  # so that no column is negligible beside another
    count = len(scales)
    best, least = np.zeros(count), float(len(rows))
    for chosen in itertools.product((False, True), repeat=count):
        columns = np.array(chosen) & (scales > 0)
        scaled = amounts[:, columns] / scales[columns]
        found = np.linalg.lstsq(scaled, np.ones(len(rows)), rcond=None)[0]
        error = float(np.sum((scaled @ found - 1) ** 2))
        if (found >= 0).all() and error < least - 1e-12:
            best, least = np.zeros(count), error
            best[columns] = found / scales[columns]
    return tuple(map(float, best))
