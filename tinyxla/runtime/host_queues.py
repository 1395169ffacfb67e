"""Host queues: what goes between the host and the replicas of programs that run.

Each replica (device) has an infeed, from which `Infeed` reads, an outfeed, to which `Outfeed` writes, and a queue for
each channel of `SendToHost` and `RecvFromHost`. All are first in, first out, typed - what is read must have the shape
that the reading operation says - and bounded. No wait is without end: what waits for longer than `timeout` seconds
raises a `TransferError`, unless a source is attached that may still give more.

Source: sections "Infeed", "Outfeed", "Send" and "Recv" of the XLA documents.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, ShapeError, TransferError
from tinyxla.shapes import AnyShape, Shape, TupleShape

Arrays = tuple[np.ndarray[Any, Any], ...]


class HostQueue:
    """A bounded queue of items, each a tuple of arrays."""

    def __init__(self, what: str, capacity: int, timeout: float) -> None:
        self.what = what  # in words, for errors: "the infeed of replica 0"
        self.capacity = capacity
        self.timeout = timeout
        self._items: deque[Arrays] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._source: Source | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Arrays, timeout: float | None = None, is_over: Callable[[], bool] = lambda: False) -> None:
        """Add an item; wait while the queue is full, unless `is_over`."""

        def full() -> bool:
            return len(self._items) >= self.capacity and not is_over()

        with self._changed:
            self._wait(full, timeout, f"is full: {self.capacity} items have not been taken; let a program take them")
            if not is_over():
                self._items.append(item)
                self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Arrays:
        """Take the first item; wait while there is none and one may come."""

        def empty() -> bool:
            return not self._items and (self._source is None or self._source.may_give)

        attached = self._source is not None and self._source.may_give
        with self._changed:
            self._wait(
                empty, float("inf") if attached else timeout, "has nothing to be taken; transfer something first"
            )
            if not self._items:
                assert self._source is not None
                count = self._source.count
                raise TransferError(
                    f"{self.what} has nothing to be taken: its source has ended after {count} item{'s' * (count != 1)}."
                ) from self._source.error
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def _wait(self, while_: Callable[[], bool], timeout: float | None, otherwise: str) -> None:
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit
        while while_():
            if self._is_closed:
                raise TransferError(f"{self.what} is closed.")
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise TransferError(f"{self.what} {otherwise} (waited for {limit:g} seconds).")
            self._changed.wait(min(remaining, 1.0))

    def attach(self, source: Source) -> None:
        """Let a source fill the queue."""
        with self._changed:
            if self._source is not None and self._source.may_give:
                raise ArgumentError(f"{self.what} has a source already; close that first.")
            self._source = source

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what is there, and end all waits with an error."""
        with self._changed:
            self._is_closed = True
            self._items.clear()
            self._changed.notify_all()


class Source:
    """An iterable that another thread reads ahead of the program: `prefetch` items at most wait in the queue.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, ShapeUtil, XlaBuilder, infeed_source
    >>> b = XlaBuilder()
    >>> program = b.Build(b.Infeed(ShapeUtil.MakeShape(F32, [])))
    >>> with infeed_source((np.float32(k * k) for k in range(3)), prefetch=2):
    ...     [float(program()) for _ in range(3)]
    [0.0, 1.0, 4.0]
    """

    def __init__(self, queue: HostQueue, items: Iterable[Any], prefetch: int) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._queue = queue
        if not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"infeed_source: items must be an iterable of arrays, but is {items!r}.")
        self._items: Iterator[Any] = iter(items)
        self._prefetch = prefetch
        self._capacity = 0  # that the queue had before
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="tinyxla-infeed", daemon=True)

    @property
    def may_give(self) -> bool:
        return not self._has_ended

    def start(self) -> Source:
        """Begin to read: attach to the queue, which from now on has room for `prefetch` items.

        Returns:
            The source itself.

        >>> from tinyxla.xla import client
        >>> numbers = client.Client()
        >>> source = client.InfeedSource(numbers.queue("infeed", 0), [1.0, 2.0], prefetch=1).start()
        >>> [float(numbers.queue("infeed", 0).get()[0]) for _ in range(2)]
        [1.0, 2.0]
        """
        self._queue.attach(self)
        self._capacity, self._queue.capacity = self._queue.capacity, self._prefetch
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            for item in self._items:
                self._queue.put(as_arrays("the source of an infeed", item), float("inf"), lambda: self._has_ended)
                if self._has_ended:
                    return
                self.count += 1
        except BaseException as error:
            self.error = error
        finally:
            self._has_ended = True
            self._queue.capacity = self._capacity
            self._queue.wake()

    def close(self) -> None:
        """Read no further.

        >>> import itertools
        >>> import numpy as np
        >>> from tinyxla import xla
        >>> b = xla.XlaBuilder()
        >>> program = b.Build(b.Infeed(xla.ShapeUtil.MakeShape(xla.F32, [])))
        >>> source = xla.infeed_source(map(np.float32, itertools.count()))
        >>> program(), program()
        (Array(0., dtype=float32), Array(1., dtype=float32))
        >>> source.close()
        >>> xla.clear_transfers()
        """
        self._has_ended = True
        self._queue.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_arrays(what: str, value: Any) -> Arrays:
    """An array or a tuple of arrays, copied: what the caller does to it later is not seen."""
    parts: Sequence[Any] = value if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(x, (tuple, list, dict)) for x in parts):
        raise ShapeError(f"{what}: a value must be an array or a tuple of arrays; nested tuples are not supported.")
    arrays = tuple(np.array(x) for x in parts)
    for x in arrays:
        Shape.of(x)  # an error for what is not an array of numbers
    return arrays


def array_shapes(name: str, shape: AnyShape) -> tuple[Shape, ...]:
    """The arrays of an array or a tuple that is not nested."""
    parts = (shape,) if isinstance(shape, Shape) else shape.elements
    if not all(isinstance(x, Shape) for x in parts):
        raise ShapeError(f"{name}: nested tuple shapes are not supported, but got {shape}; transfer a flat tuple.")
    return tuple(x for x in parts if isinstance(x, Shape))


def check_item(what: str, item: Arrays, shapes: Sequence[Shape]) -> Arrays:
    """The arrays of an item, which must have these shapes."""
    found = [Shape.of(x) for x in item]
    if found != [Shape(s.element_type, s.dimensions) for s in shapes]:
        raise ShapeError(
            f"{what}: what is read has the shape {TupleShape(tuple(shapes))}, but what was transferred is "
            f"{TupleShape(tuple(found))}; transfer arrays of these shapes and types."
        )
    return item


class Key(NamedTuple):
    """Which queue: "infeed", "outfeed", "send to host" or "recv from host", of which device, over which channel."""

    kind: str
    device: int
    channel: Hashable = None

    def __str__(self) -> str:
        over = "" if self.channel is None else f", channel {self.channel},"
        return f"the {self.kind}{over} of replica {self.device}"


class Client:
    """The host's side of all queues.

    Args:
        capacity: how many items a queue has room for.
        timeout: seconds after which what waits raises a `TransferError`.

    >>> from tinyxla.xla.client import Client
    >>> client = Client(capacity=1, timeout=0.0)
    >>> client.transfer_to_infeed(1.0)
    >>> client.transfer_to_infeed(2.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.TransferError: the infeed of replica 0 is full: 1 items have not been taken; let a ...
    """

    def __init__(self, capacity: int = 1024, timeout: float = 30.0) -> None:
        self.capacity = capacity
        self.timeout = timeout
        self._queues: dict[Key, HostQueue] = {}
        self._lock = threading.Lock()

    def queue(self, kind: str, device: int, channel: Hashable = None) -> HostQueue:
        """That of a device, and of a channel if there is one; made when it is first asked for."""
        key = Key(kind, device, channel)
        with self._lock:
            if key not in self._queues:
                self._queues[key] = HostQueue(str(key), self.capacity, self.timeout)
            return self._queues[key]

    def transfer_to_infeed(self, value: Any, replica: int = 0, timeout: float | None = None) -> None:
        """Put an array, or a tuple of arrays, into the infeed of a replica.

        Args:
            value: an array, or a tuple of arrays.
            replica: the number of the replica.
            timeout: seconds to wait; by default those of the client.

        Raises:
            TransferError: the infeed stayed full for `timeout` seconds (the client's, unless given).
            ShapeError: a nested tuple.

        >>> from tinyxla import xla
        >>> xla.transfer_to_infeed(3)
        >>> xla.clear_transfers()
        """
        what = "transfer_to_infeed"
        item, limit = as_arrays(what, value), _seconds(what, timeout)
        self.queue("infeed", _replica(what, replica)).put(item, limit)

    def transfer_from_outfeed(self, shape: Any = None, replica: int = 0, timeout: float | None = None) -> Any:
        """Take the next value from the outfeed of a replica.

        Args:
            shape: what it must be; a `Shape` or `TupleShape`, or None for whatever it is.
            replica: the number of the replica.
            timeout: how many seconds to wait for one; the client's unless given.

        Returns:
            A NumPy array, or a tuple of them.

        Raises:
            TransferError: nothing came in time.
            ShapeError: it is another shape.

        >>> from tinyxla import xla
        >>> b = xla.XlaBuilder()
        >>> token = b.Outfeed(b.Constant(1.0))
        >>> result = b.Build(b.Constant(True))()
        >>> xla.transfer_from_outfeed(xla.ShapeUtil.MakeShape(xla.F32, []))
        array(1., dtype=float32)
        """
        what = "transfer_from_outfeed"
        if shape is not None and not isinstance(shape, (Shape, TupleShape)):
            raise ArgumentError(f"{what}: shape must be a Shape or a TupleShape, but is {shape!r}.")
        item = self.queue("outfeed", _replica(what, replica)).get(_seconds(what, timeout))
        if shape is not None:
            check_item(what, item, list(array_shapes(what, shape)))
        is_array = isinstance(shape, Shape) or (shape is None and len(item) == 1)
        return item[0] if is_array else item

    def transfer_to_channel(self, channel: Any, value: Any, replica: int = 0, timeout: float | None = None) -> None:
        """Put an array into the queue from which `RecvFromHost` over this channel reads.

        Args:
            channel: the number of a channel.
            value: an array.
            replica: the number of the replica.
            timeout: seconds to wait; by default those of the client.

        Raises:
            ShapeError: a value that is a tuple.
            TransferError: the queue stayed full for `timeout` seconds (the client's, unless given).

        >>> import numpy as np
        >>> from tinyxla import xla
        >>> b, channel = xla.XlaBuilder(), xla.CreateHostToDeviceChannelHandle()
        >>> received = b.RecvFromHost(b.CreateToken(), xla.ShapeUtil.MakeShape(xla.F32, []), channel)
        >>> xla.transfer_to_channel(channel, np.float32(2.5))
        >>> b.Build(b.GetTupleElement(received, 0))()
        Array(2.5, dtype=float32)
        """
        what = "transfer_to_channel"
        if isinstance(value, (tuple, list, dict)):
            raise ShapeError(f"{what}: a value must be an array, but is a {type(value).__name__}.")
        item, limit = as_arrays(what, value), _seconds(what, timeout)
        self.queue("recv from host", _replica(what, replica), _channel(what, channel)).put(item, limit)

    def transfer_from_channel(self, channel: Any, replica: int = 0, timeout: float | None = None) -> Any:
        """Take what `SendToHost` has sent over this channel.

        Args:
            channel: the number of a channel.
            replica: the number of the replica.
            timeout: seconds to wait; by default those of the client.

        Returns:
            An array.

        Raises:
            TransferError: nothing was there for `timeout` seconds (the client's, unless given).

        >>> from tinyxla import xla
        >>> channel = xla.CreateDeviceToHostChannelHandle()
        >>> xla.transfer_from_channel(channel, timeout=0.0)
        Traceback (most recent call last):
            ...
        tinyxla.errors.TransferError: the send to host, channel ..., of replica 0 has nothing to be taken; ...
        """
        what = "transfer_from_channel"
        queue = self.queue("send to host", _replica(what, replica), _channel(what, channel))
        return queue.get(_seconds(what, timeout))[0]

    def infeed_source(self, items: Iterable[Any], replica: int = 0, prefetch: int = 2) -> Source:
        """Let an iterable fill the infeed of a replica: another thread reads it, `prefetch` items ahead.

        Args:
            items: arrays, or tuples of arrays.
            replica: the number of the replica.
            prefetch: how many items wait at most.

        Returns:
            The source; `close()` it, or use it in a `with` statement.

        Raises:
            ArgumentError: the infeed has a source already, items is not an iterable, or prefetch is below 1.

        >>> import numpy as np
        >>> from tinyxla import xla
        >>> b = xla.XlaBuilder()
        >>> program = b.Build(b.Infeed(xla.ShapeUtil.MakeShape(xla.F32, [])))
        >>> with xla.infeed_source(map(np.float32, [1, 2])):
        ...     program(), program()
        (Array(1., dtype=float32), Array(2., dtype=float32))
        """
        what = "infeed_source"
        room = _integer(f"{what}: prefetch", prefetch, 1)
        return Source(self.queue("infeed", _replica(what, replica)), items, room).start()

    def clear_transfers(self) -> None:
        """Drop all that is in the queues, and end all waits for them with an error.

        >>> from tinyxla import xla
        >>> b = xla.XlaBuilder()
        >>> token = b.Outfeed(b.Constant(1.0))
        >>> result = b.Build(b.Constant(True))()
        >>> xla.clear_transfers()
        >>> xla.transfer_from_outfeed(timeout=0.0)
        Traceback (most recent call last):
            ...
        tinyxla.errors.TransferError: the outfeed of replica 0 has nothing to be taken; ...
        """
        with self._lock:
            queues, self._queues = self._queues, {}
        for queue in queues.values():
            queue.close()


def _integer(what: str, given: Any, least: int) -> int:
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool) and given >= least:
        return int(given)
    raise ArgumentError(f"{what} must be an integer and at least {least}, but is {given!r}.")


def _replica(what: str, given: Any) -> int:
    return _integer(f"{what}: replica", given, 0)


def _channel(what: str, given: Any) -> int:
    return _integer(f"{what}: channel", getattr(given, "handle", given), 0)


def _seconds(what: str, given: Any) -> float | None:
    if given is None or (isinstance(given, (int, float, np.number)) and given >= 0):
        return given  # pyright: ignore[reportReturnType]
    raise ArgumentError(f"{what}: timeout must be a number of seconds and not negative, but is {given!r}.")


client = Client()
