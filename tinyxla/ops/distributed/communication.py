"""Communication cost of collective operations: what a process sends and receives, by the usual algorithms.

The algorithm of an operation depends on the bytes and on the number p of processes, as in MPICH:

- all-reduce: recursive doubling, and above 2 KB a reduce-scatter and an all-gather (Rabenseifner's algorithm);
- all-gather: recursive doubling (Bruck's algorithm if p is no power of two), for long results a ring;
- reduce-scatter: recursive halving, for long operands pairwise exchange;
- all-to-all: Bruck's algorithm, and above 256 bytes for each process pairwise exchange;
- broadcast: a binomial tree, for long operands a scatter and an all-gather;
- permutation: one message.

Source: "Optimization of Collective Communication Operations in MPICH" (Thakur, Rabenseifner, Gropp, 2005), section 3.
"""

from __future__ import annotations

from typing import NamedTuple

from tinyxla.ops.cost import bytes_of
from tinyxla.runtime.mpi.calls import Message
from tinyxla.shapes import Shape

_KB = 1 << 10
SHORT_REDUCTION = 2 * _KB  # of an all-reduce
SHORT_SCATTER = 512 * _KB  # of a reduce-scatter
SHORT_GATHER, SHORT_GATHER_BY_BRUCK = 512 * _KB, 80 * _KB  # of the result
SHORT_EXCHANGE = 256  # of an all-to-all, for each process
SHORT_BROADCAST, FEW_PROCESSES = 12 * _KB, 8


class Communication(NamedTuple):
    """What a process sends and receives at most, in how many messages it sends, and the bytes that it combines with
    those that it receives."""

    sent: int = 0
    received: int = 0
    messages: int = 0
    reduced: int = 0

    def plus(self, other: Communication, times: int = 1) -> Communication:
        """The sum with another one that happens several times."""
        return Communication(*(a + b * times for a, b in zip(self, other, strict=True)))


def communication_of(message: Message, operand: Shape) -> Communication:
    """What a collective operation on an array costs a process of its largest group."""
    return communication_by(message.kind, bytes_of(operand), max(map(len, message.groups), default=2))


def communication_by(kind: str, size: int, count: int) -> Communication:
    """What a collective operation among so many processes costs each, of which each gives an array of `size` bytes."""
    return ALGORITHMS[kind](size, count) if size and count > 1 else Communication()


def _rounds(count: int) -> int:
    """The base-2 logarithm, rounded up."""
    return (count - 1).bit_length()


def _of_others(size: int, count: int) -> int:
    """The bytes of an array that belong to the others of a group."""
    return size * (count - 1) // count


def _all_reduce(size: int, count: int) -> Communication:
    if size <= SHORT_REDUCTION or size < count:
        moved = size * _rounds(count)
        return Communication(moved, moved, _rounds(count), moved)
    others = _of_others(size, count)
    return Communication(2 * others, 2 * others, 2 * _rounds(count), others)


def _all_gather(size: int, count: int) -> Communication:
    limit = SHORT_GATHER if count.bit_count() == 1 else SHORT_GATHER_BY_BRUCK
    moved = size * (count - 1)
    return Communication(moved, moved, _rounds(count) if size * count < limit else count - 1)


def _reduce_scatter(size: int, count: int) -> Communication:
    moved = _of_others(size, count)
    return Communication(moved, moved, _rounds(count) if size < SHORT_SCATTER else count - 1, moved)


def _all_to_all(size: int, count: int) -> Communication:
    if size <= SHORT_EXCHANGE * count:
        moved = size * _rounds(count) // 2
        return Communication(moved, moved, _rounds(count))
    moved = _of_others(size, count)
    return Communication(moved, moved, count - 1)


def _permute(size: int, count: int) -> Communication:
    return Communication(size, size, 1)


def _broadcast(size: int, count: int) -> Communication:
    if size < SHORT_BROADCAST or count < FEW_PROCESSES:
        return Communication(size * _rounds(count), size, _rounds(count))
    moved = 2 * _of_others(size, count)
    return Communication(moved, moved, _rounds(count) + count - 1)


ALGORITHMS = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
    "collective-broadcast": _broadcast,
}
