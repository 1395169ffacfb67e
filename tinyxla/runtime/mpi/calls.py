"""Collective operations as calls of MPI: the routine, and its arguments as machine words.

One table says what each operation calls. Native code that makes such a call is printed from it, and `perform` makes it
from Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import NamedTuple

from tinyxla.runtime.mpi.comparison import Communicator
from tinyxla.runtime.mpi.library import ALL_REDUCE, MAX_COUNT, Library, Routine
from tinyxla.runtime.mpi.world import World
from tinyxla.shapes import Shape

Ints = tuple[int, ...]
Groups = tuple[Ints, ...]
Pairs = tuple[tuple[int, int], ...]


ROUTINES = {
    "all-reduce": ALL_REDUCE,
    "reduce-scatter": Routine("MPI_Reduce_scatter_block", ALL_REDUCE.parameters),
    **{
        kind: Routine(name, tuple(parameters.split()))
        for kind, name, parameters in (
            ("all-gather", "MPI_Allgather", "send count type receive count type communicator"),
            ("all-to-all", "MPI_Alltoall", "send count type receive count type communicator"),
            (
                "collective-permute",
                "MPI_Sendrecv",
                "send count type target tag receive count type source tag communicator status",
            ),
            ("collective-broadcast", "MPI_Bcast", "receive count type root communicator"),
        )
    },
}
# What starts an operation: routines that return at once, each with a request that is waited for.
STARTING_ROUTINES = {
    **{
        kind: (Routine(f"MPI_I{routine.name.removeprefix('MPI_').lower()}", (*routine.parameters, "request")),)
        for kind, routine in ROUTINES.items()
        if kind != "collective-permute"
    },
    "collective-permute": (
        Routine("MPI_Irecv", tuple("receive count type source tag communicator request".split())),
        Routine("MPI_Isend", tuple("send count type target tag communicator request".split())),
    ),
}
WAIT = Routine("MPI_Wait", ("request", "status"))
TEST_ALL = Routine("MPI_Testall", ("count", "request", "flag", "status"))
IN_PLACE = frozenset({"all-reduce", "collective-broadcast"})  # whose result may be where the operand is


class Message(NamedTuple):
    """What a collective operation on one array says, besides where its operand and result are.

    Attributes:
        kind: its name; the operand's first dimension is the one that is gathered, scattered or exchanged.
        groups: of processes that talk to one another.
        pairs: of source and target, for a permutation.
        reduction: the name of the monoid that folds.
    """

    kind: str
    groups: Groups = ()
    pairs: Pairs = ()
    reduction: str = ""

    def __str__(self) -> str:
        """Among whom it goes, and what it folds by."""
        sizes = "/".join(str(size) for size in sorted({len(group) for group in self.groups}))
        among = f"{len(self.groups)} groups of {sizes}" if self.groups else f"{len(self.pairs)} pairs"
        return f"{among}, {self.reduction}" if self.reduction else among

    @property
    def participants(self) -> Ints:
        """The processes that send or receive."""
        return tuple(sorted({process for group in (*self.groups, *self.pairs) for process in group}))

    @property
    def meetings(self) -> Groups:
        """The sets of processes that talk to one another."""
        return (self.participants,) if self.pairs else self.groups

    def members(self, process: int) -> Ints:
        """The processes with which one talks, itself included; none, if it takes no part."""
        return next((group for group in self.meetings if process in group), ())


class Call(NamedTuple):
    """A call of a routine of MPI by this process.

    Attributes:
        kind: whose routine is called.
        communicator: without one nothing is called.
        elements: how many; those of an array that is folded go in chunks of `MAX_COUNT`.
        item_bytes: of such an element.
        words: the parameters that are neither buffers nor the communicator nor counts.
        zero_bytes: so much of the result is filled with zeros before.
        copy_bytes: so much of the operand is copied to the result before.
    """

    kind: str
    communicator: Communicator | None
    elements: int = 0
    item_bytes: int = 0
    words: Mapping[str, int] = {}
    zero_bytes: int = 0
    copy_bytes: int = 0


def call_of(message: Message, operand: Shape, world: World) -> Call:
    """The call that this process makes for a message of an array."""
    library, kind = world.library, message.kind
    nbytes = operand.size * operand.dtype.itemsize
    members = message.members(world.rank)
    if not members:
        return Call(kind, None, zero_bytes=nbytes)
    communicator, rank = world.communicator(members), members.index(world.rank)
    if message.reduction:
        type, operation = library.datatype(operand.element_type), library.operation(message.reduction)
        elements = operand.size // (len(members) if kind == "reduce-scatter" else 1)
        return Call(kind, communicator, elements, operand.dtype.itemsize, {"type": type, "operation": operation})
    elements, type = library.block(nbytes // (len(members) if kind == "all-to-all" else 1))
    if kind == "collective-broadcast":
        copied = nbytes if rank == 0 else 0
        return Call(kind, communicator, elements, words={"type": type, "root": 0}, copy_bytes=copied)
    if kind != "collective-permute":
        return Call(kind, communicator, elements, words={"type": type})
    targets = [members.index(target) for source, target in message.pairs if source == world.rank]
    sources = [members.index(source) for source, target in message.pairs if target == world.rank]
    words = {
        "type": type,
        "target": targets[0] if targets else library.no_process,
        "source": sources[0] if sources else library.no_process,
        "tag": 0,
    }
    return Call(kind, communicator, elements, words=words, zero_bytes=0 if sources else nbytes)


class Requests:
    """Requests of operations that are started, side by side as MPI takes several; at first none is under way.

    Attributes:
        statuses: the address of memory for as many statuses.
    """

    def __init__(self, count: int, library: Library) -> None:
        self._handle_bytes = library.handle_bytes
        handle = ctypes.c_int32 if library.handle_bytes == 4 else ctypes.c_int64
        self._handles = (handle * count)(*[library.handle(library.MPI.REQUEST_NULL)] * count)
        self._statuses = ctypes.create_string_buffer(count * library.status_bytes)
        self.statuses = ctypes.addressof(self._statuses)

    def address(self, number: int) -> int:
        """Where a request is."""
        return ctypes.addressof(self._handles) + number * self._handle_bytes


def perform(call: Call, send: int, receive: int, world: World) -> None:
    """Make a call, for the operand and the result at these addresses."""
    ctypes.memset(receive, 0, call.zero_bytes)
    ctypes.memmove(receive, send, call.copy_bytes)
    if call.communicator is None:
        return
    routine, library = ROUTINES[call.kind], world.library
    shared = {**call.words, "communicator": call.communicator.handle, "status": library.status}
    for first in range(0, call.elements, MAX_COUNT):
        given = {
            **shared,
            "send": library.in_place if send == receive else send + first * call.item_bytes,
            "receive": receive + first * call.item_bytes,
            "count": min(MAX_COUNT, call.elements - first),
        }
        library.function(routine)(*(given[name] for name in routine.parameters))
