"""Rendezvous: where the threads of a program's replicas meet.

Each replica (device) of a program runs in a thread of its own. Collective operations wait until all members of a group
are there; Send and Recv meet over channels, in the order that the XLA documents give: Recv before Send before RecvDone.
A wait that can never end is found at once: all replicas that have not ended wait, and none of them for something that
has come. Then all get a `DeadlockError` that says who waits where for whom.

Source: sections "Send", "Recv" and "Scheduling of channel instructions" of the XLA documents.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinyxla.errors import ChannelError, DeadlockError, SourceLine

Line = SourceLine | str | None  # where an instruction stands: a line, or its name in a text that tells no lines


class Wait(NamedTuple):
    """What a replica waits for."""

    what: str  # the operation, with its channel
    whom: str
    line: Line
    end: Hashable  # what it waits for, as `ends` of the other devices name it
    others: Sequence[int] | None  # the devices that it waits for; None: any

    def __str__(self) -> str:
        return f"in {self.what} for {self.whom}" + (f", at {self.line}" if self.line else "")


@dataclass
class _Meeting:
    """One execution of a collective operation by a group."""

    operands: dict[int, Any] = field(default_factory=dict[int, Any])
    results: dict[int, Any] | None = None
    error: BaseException | None = None
    left: int = 0  # members that have not taken their result


@dataclass
class _Channel:
    """Between a Send and a Recv: how many times Recv has been posted and not yet answered, and what was sent."""

    posted: int = 0
    sent: deque[Any] = field(default_factory=deque[Any])
    ends: dict[str, tuple[int, Line]] = field(default_factory=dict[str, tuple[int, Line]])


class Rendezvous:
    """Of `count` devices, each of which one thread runs (`running`).

    Args:
        name: of the execution, for errors.
        count: how many devices there are.
        described: a device in words: "replica 1".
        ends: what the program of a device has that others may wait for, and where it stands.
    """

    def __init__(
        self,
        name: str,
        count: int,
        described: Callable[[int], str],
        ends: Callable[[int], Mapping[Hashable, Line]],
    ) -> None:
        self.name = name
        self.count = count
        self.described = described
        self._ends = ends
        self._condition = threading.Condition()
        self._waits: dict[int, tuple[Wait, Callable[[], bool]]] = {}
        self._ended: set[int] = set()
        self._failure: str | None = None
        self._times: dict[tuple[Hashable, int], int] = {}  # how often a device has come to a meeting
        self._meetings: dict[tuple[Hashable, int], _Meeting] = {}
        self._channels: dict[Hashable, _Channel] = {}

    # --- the life of a device

    def end(self, device: int) -> None:
        """A device runs no more."""
        with self._condition:
            self._ended.add(device)
            self._condition.notify_all()

    def abandon(self, reason: str) -> None:
        """All waits end with an error."""
        with self._condition:
            self._failure = self._failure or reason
            self._condition.notify_all()

    def _wait(self, device: int, wait: Wait, ready: Callable[[], bool]) -> None:
        """Wait, holding the lock, until `ready`."""
        self._waits[device] = (wait, ready)
        try:
            while not ready():
                if self._failure is None and self._is_stuck():
                    self._failure = self._report()
                    self._condition.notify_all()
                if self._failure is not None:
                    raise DeadlockError(self._failure)
                self._condition.wait()
        finally:
            del self._waits[device]

    def _is_stuck(self) -> bool:
        if len(self._waits) + len(self._ended - self._waits.keys()) < self.count:
            return False
        return not any(ready() for _, ready in self._waits.values())

    def _report(self) -> str:
        waits: list[str] = []
        for device, (wait, _) in sorted(self._waits.items()):
            waits += [f"{self.described(device)} waits {wait}", *self._other_ends(device, wait)]
        waits += [f"{self.described(d)} has ended" for d in sorted(self._ended)]
        return (
            f"{self.name}: no replica can go on: {'; '.join(waits)}. Let every Send have its Recv, which comes first, "
            "and let all members of a group run the same collective operations in the same order."
        )

    def _other_ends(self, device: int, wait: Wait) -> Iterator[str]:
        """Where what a device waits for stands in the programs of others."""
        others = [d for d in range(self.count) if d != device] if wait.others is None else wait.others
        ends = {other: self._ends(other) for other in others}
        there = [other for other in others if wait.end in ends[other]]
        for other in there:
            line = ends[other][wait.end]
            if line is not None and line != wait.line:
                yield f"the other end is at {line}, of {self.described(other)}"
        if not there:
            yield "no other program has the other end"

    # --- collective operations

    def meet(
        self,
        key: Hashable,
        members: Sequence[int],
        device: int,
        operands: Any,
        combine: Callable[[list[Any]], Sequence[Any]],
        wait: Callable[[Sequence[int], str], Wait],
    ) -> Any:
        """The result of a device for what it brings: `combine` makes the members' results, in order, of what they all
        bring. The n-th time that a device comes with a key it meets the others for the n-th time."""
        with self._condition:
            time = self._times[key, device] = self._times.get((key, device), 0) + 1
            meeting = self._meetings.setdefault((key, time), _Meeting(left=len(members)))
            meeting.operands[device] = operands
            if len(meeting.operands) == len(members):
                try:
                    results = combine([meeting.operands[member] for member in members])
                    meeting.results = dict(zip(members, results, strict=True))
                except BaseException as error:
                    meeting.error, meeting.results = error, {}
                self._condition.notify_all()
            else:
                absent = [member for member in members if member not in meeting.operands]
                said = " and ".join(map(self.described, absent))
                self._wait(device, wait(absent, said), lambda: meeting.results is not None)
            meeting.left -= 1
            if not meeting.left:
                del self._meetings[key, time]
            if meeting.error is not None:
                raise meeting.error
            assert meeting.results is not None
            return meeting.results[device]

    # --- channels

    def post(self, channel: Hashable, device: int, line: Line) -> None:
        """Recv: the device will take what is sent."""
        with self._condition:
            self._channel(channel, "receiver", device, line).posted += 1
            self._condition.notify_all()

    def send(self, channel: Hashable, device: int, value: Any, wait: Wait) -> None:
        """Send: once the other end has posted its Recv, it is given the value."""
        with self._condition:
            found = self._channel(channel, "sender", device, wait.line)
            self._wait(device, wait, lambda: found.posted > 0)
            found.posted -= 1
            found.sent.append(value)
            self._condition.notify_all()

    def receive(self, channel: Hashable, device: int, wait: Wait) -> Any:
        """RecvDone: the value that was sent."""
        with self._condition:
            found = self._channel(channel, "receiver", device, wait.line)
            self._wait(device, wait, lambda: bool(found.sent))
            return found.sent.popleft()

    def _channel(self, channel: Hashable, end: str, device: int, line: Line) -> _Channel:
        """The channel, of which the device is an end; an error if another device is."""
        found = self._channels.setdefault(channel, _Channel())
        there, other_line = found.ends.setdefault(end, (device, line))
        if there != device:
            places = [f" (at {x})" if x else "" for x in (other_line, line)]
            raise ChannelError(
                f"{self.name}: channel {channel} has two {end}s, {self.described(there)}{places[0]} and "
                f"{self.described(device)}{places[1]}; give each pair of replicas a channel of its own, or "
                "source_target_pairs."
            )
        return found


class _Current(threading.local):
    rendezvous: Rendezvous | None = None
    device = 0


_current = _Current()


class running:
    """In this thread a device of a rendezvous runs."""

    def __init__(self, rendezvous: Rendezvous, device: int) -> None:
        self._given = (rendezvous, device)

    def __enter__(self) -> None:
        self._outer = (_current.rendezvous, _current.device)
        _current.rendezvous, _current.device = self._given

    def __exit__(self, *_: object) -> None:
        _current.rendezvous, _current.device = self._outer
        self._given[0].end(self._given[1])


def current() -> tuple[Rendezvous | None, int]:
    """The rendezvous whose device this thread runs, if it runs one, and which device that is."""
    return _current.rendezvous, _current.device
