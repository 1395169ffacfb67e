"""Costs of the steps of a program: bytes of memory, operations, and what processes send each other.

Counting of bytes. A step reads an element of an argument from memory once per index of the outermost loop, if the
elements that the step touches for that index fit into a cache of `costs.L2_BYTES` bytes; otherwise once per pass.
Elements that the step has just written are cached. Temporaries within a step (rows, accumulators) are no memory
traffic. If an index depends on data (gather, scatter), each access counts, up to the number of elements of the array.

Counting of operations. A scalar operation of any element type counts one per iteration of the loops in which its
operands change; index arithmetic counts nothing; a matrix product counts two per pair of factors. `exp`, `sin` and
their like count separately, as `transcendentals`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tinyxla.ops.distributed.communication import Communication
from tinyxla.util.wording import amount, counted


@dataclass(frozen=True)
class Cost:
    """Bytes read from and written to memory, operations, and those that are transcendental functions.

    >>> from tinyxla.distributed.scaling import Cost
    >>> total = Cost(bytes_read=400, operations=100) + Cost(bytes_written=400)
    >>> total.bytes, total.operations
    (800, 100)
    """

    bytes_read: int = 0
    bytes_written: int = 0
    operations: int = 0
    transcendentals: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.operations + other.operations,
            self.transcendentals + other.transcendentals,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            self.bytes_read * times,
            self.bytes_written * times,
            self.operations * times,
            self.transcendentals * times,
        )

    def __str__(self) -> str:
        fields = [f"reads {amount(self.bytes_read, 'B')}", f"writes {amount(self.bytes_written, 'B')}"]
        fields += [f"{amount(n)} {name}" for n, name in self._counts() if n]
        return ", ".join(fields)

    def _counts(self) -> list[tuple[int, str]]:
        return [(self.operations, "operations"), (self.transcendentals, "transcendentals")]


class CollectiveCost(NamedTuple):
    """The cost of a collective operation of a program to a process.

    Attributes:
        name: the kind of operation.
        among: among whom.
        times: how often it runs in a call; 1 if that is not known before.
        communication: of one run.
    """

    name: str
    among: str
    times: int
    communication: Communication

    def row(self) -> tuple[str, ...]:
        sent, received = (amount(n * self.times, "B") for n in self.communication[:2])
        return self.name, self.among, str(self.times), sent, received, str(self.communication.messages * self.times)


class ProcessCost(NamedTuple):
    """The cost of a call of a program to each of its processes.

    Attributes:
        processes: how many there are.
        kernels: how many kernels and library calls run.
        cost: what these read, write and compute.
        communication: what the process sends and receives.
        collectives: of which operations that is the sum.
    """

    processes: int
    kernels: int
    cost: Cost
    communication: Communication
    collectives: tuple[CollectiveCost, ...]


def communication_text(x: Communication) -> str:
    """The communication of a process in words: sends 4.2 MB in 12 messages, receives 4.2 MB."""
    return f"sends {amount(x.sent, 'B')} in {counted(x.messages, 'message')}, receives {amount(x.received, 'B')}"
