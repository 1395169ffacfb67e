"""Memory pool with size classes (segregated fits) for results and temporaries; reference counts tell which buffers are
free. Fresh pages would cost more than the arithmetic.

An *owner* is a one-dimensional `uint8` array; what users get are NumPy views of it. NumPy makes an owner the `.base` of
every view, and of every view of a view: it looks through arrays for the one that owns memory, but the owner's own base
is a `memoryview`, where it stops. Buffers exported from a view (`memoryview`, DLPack, the array interface) refer to the
view. So whatever can reach the memory holds a reference to the owner, and one whose only references are the pool's is
free; nobody can make a new one meanwhile, since that takes having one. That needs no finalizer: dropping an array costs
nothing, and asking takes one `sys.getrefcount`. Views in a reference cycle hold their owner until it is collected.

Sizes are rounded up by less than a quarter, so that nearly equal requests share a size class; the padding is address
space that is never touched. Owners of one size form a ring. The search starts at the one allocated last (a temporary
that was dropped is still in the cache), probes a few, and only now and then all.

In free-threaded Python, a count that is read while other threads change it may be too small. There no buffer is
reused, and no argument's memory is overwritten.

The pool holds at most TINYXLA_POOL_BYTES, including buffers in use: by default an eighth of the minimum of the
machine's memory, the limits of control groups, and `ulimit -v`. Beyond that it drops its references: such an owner
lives as long as its views, as any array does. If allocation fails, free owners are released. After many fresh
allocations, free owners are dropped until they are no more than those in use (or 64 MiB).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from sys import getrefcount
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyxla.compiler.costs import LINE_BYTES
from tinyxla.errors import AttributeValueError, SizeError
from tinyxla.runtime.allocation import allocated, release_on_shortage
from tinyxla.runtime.threads import CONTROL_GROUPS, MEMBERSHIP, control_groups

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None

Owner = npt.NDArray[np.uint8]

_PROBES = 8  # owners that each request examines
_MAX_OWNERS = 1 << 11  # of one size: enough for a program's arrays of one shape
_MIN_FREE_BYTES = 64 << 20  # that are kept
_COUNTS_ARE_EXACT = getattr(sys, "_is_gil_enabled", lambda: True)()  # of references, by `getrefcount`


def _references_when_free() -> int:
    """What `getrefcount` says of an owner in a ring that `allocate` looks at: differs between versions of Python."""
    ring = [(np.empty(1, np.uint8), 0)]
    owner, _ = ring[0]
    return getrefcount(owner)


_FREE = _references_when_free()


class _SizeClass:
    """The owners of one size with their addresses; `last` is the position of the one given out last."""

    __slots__ = ("entries", "known", "last", "size", "unsearched")

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: list[tuple[Owner, int]] = []
        self.known: set[int] = set()  # of what is in it, by identity
        self.last = 0
        self.unsearched = 0  # requests that gave up after a few looks, since the whole ring was searched


class BufferPool:
    """Gives out aligned memory; see the module's text. All methods may be called from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rings: dict[int, _SizeClass] = {}
        self._bytes = 0  # of all owners in rings
        self._fresh_bytes = 0  # of owners made since the last sweep
        self._forget_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_lock)

    def _forget_lock(self) -> None:
        """A fork may copy the lock while another thread holds it. It is recursive for signal handlers."""
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> tuple[Owner, int]:
        """An owner of at least `nbytes` bytes and its address, a multiple of 64. The content is arbitrary."""
        shift = max(nbytes.bit_length() - 3, 6)
        size = -(-nbytes >> shift) << shift
        with self._lock:
            ring = self._rings.get(size)
            if ring is None:
                return self._allocate_fresh(size)
            owner, address = ring.entries[ring.last]
            if getrefcount(owner) == _FREE:
                return owner, address
            return self._search(ring)

    def _search(self, ring: _SizeClass) -> tuple[Owner, int]:
        entries = ring.entries
        count = len(entries)
        probes = _PROBES
        ring.unsearched += _PROBES
        if ring.unsearched >= count:  # amortized: a full search costs no more than the probes before it
            ring.unsearched = 0
            probes = count
        for step in range(1, min(probes, count)):
            position = (ring.last + step) % count
            owner, address = entries[position]
            if getrefcount(owner) == _FREE:
                ring.last = position
                return owner, address
        return self._allocate_fresh(ring.size)

    def _allocate_fresh(self, size: int) -> tuple[Owner, int]:
        owner, address = self._fresh(size)
        if size > self.limit:
            return owner, address
        self._fresh_bytes += size
        if self._bytes + size > self.limit or self._fresh_bytes > max(self._bytes // 2, _MIN_FREE_BYTES):
            self._sweep(size)
        ring = self._rings.get(size) or _SizeClass(size)
        if len(ring.entries) < _MAX_OWNERS:
            ring.entries.append((owner, address))
            ring.last = len(ring.entries) - 1
            self._bytes += size
        else:
            ring.last = (ring.last + 1) % _MAX_OWNERS
            ring.known.discard(id(ring.entries[ring.last][0]))
            ring.entries[ring.last] = (owner, address)
        ring.known.add(
            id(owner)
        )  # of those in the ring alone, and no ring is empty: also if Ctrl-C, say, comes between
        self._rings.pop(size, None)
        self._rings[size] = ring  # now the last: a sweep comes to it last
        return owner, address

    def _fresh(self, size: int) -> tuple[Owner, int]:
        try:
            memory = allocated("A compiled function", lambda: np.empty(size + LINE_BYTES, np.uint8))
        except ValueError:  # more than NumPy can count
            raise SizeError(f"There is no memory for an array of {size} bytes; give it smaller sizes.") from None
        start = -memory.ctypes.data % LINE_BYTES
        part = memory.data[start : start + size]
        return np.frombuffer(part, np.uint8), memory.ctypes.data + start

    def _sweep(self, wanted: int) -> None:
        """Make room for `wanted` bytes, first among sizes that were not asked for of late: drop free owners of which
        there are too many, and beyond the limit forget used ones too."""
        self._fresh_bytes = 0
        self._bytes = sum(ring.size * len(ring.entries) for ring in self._rings.values())  # if one was interrupted
        free = self.free_bytes()
        allowed = max(_MIN_FREE_BYTES, self._bytes - free)
        room = self._bytes
        if self._bytes + wanted > self.limit:
            room = self.limit - max(wanted, self.limit // 8)  # not just enough, lest the next request sweep again
        for ring in list(self._rings.values()):
            kept: list[tuple[Owner, int]] = []
            for owner, address in ring.entries:
                is_free = getrefcount(owner) == _FREE
                if self._bytes > room or (is_free and free > allowed):
                    self._bytes -= ring.size
                    free -= ring.size if is_free else 0
                else:
                    kept.append((owner, address))
            self._keep(ring, kept)

    def _keep(self, ring: _SizeClass, kept: list[tuple[Owner, int]]) -> None:
        """Forget the other owners. In this order an exception from outside (Ctrl-C, say) finds no ring without owners,
        and `last` within what a ring has."""
        ring.last = 0
        if kept:
            ring.entries, ring.known = kept, {id(owner) for owner, _ in kept}
        else:
            self._rings.pop(ring.size, None)

    def free_bytes(self) -> int:
        """Bytes of free owners."""
        with self._lock:
            total = 0
            for ring in self._rings.values():
                for owner, _ in ring.entries:
                    total += ring.size if getrefcount(owner) == _FREE else 0
            return total

    def has_one_view(self, view: npt.NDArray[Any]) -> bool:
        """Whether an array is a view of an owner in the pool, and the only reference to it."""
        owner = view.base
        with self._lock:
            ring = self._rings.get(owner.nbytes) if isinstance(owner, np.ndarray) else None
            if ring is None or id(owner) not in ring.known:
                return False
            return getrefcount(owner) == _FREE + 1

    def release(self) -> None:
        """Return all free memory to the system."""
        with self._lock:
            for ring in list(self._rings.values()):
                kept: list[tuple[Owner, int]] = []
                for owner, address in ring.entries:
                    if getrefcount(owner) != _FREE:
                        kept.append((owner, address))
                self._bytes -= ring.size * (len(ring.entries) - len(kept))
                self._keep(ring, kept)


def default_limit(environment: Mapping[str, str] = os.environ) -> int:
    """TINYXLA_POOL_BYTES, or an eighth of the memory that this process may use; 0 without the global lock."""
    given = environment.get("TINYXLA_POOL_BYTES")
    if given is not None:
        if not given.strip().isdecimal():
            raise AttributeValueError(
                f"TINYXLA_POOL_BYTES must be a number of bytes, or 0 to keep nothing, but is {given!r}."
            )
        return int(given) if _COUNTS_ARE_EXACT else 0
    if not _COUNTS_ARE_EXACT:
        return 0
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        machine = 8 << 30
    return min(machine, control_group_bytes(), address_space_bytes()) // 8


def control_group_bytes(root: Path = CONTROL_GROUPS, membership: Path = MEMBERSHIP) -> int:
    """How much memory Linux control groups grant (a container's limit); huge without a limit.

    `memory.max` and `memory.high` are the unified hierarchy's files (kernel documentation, cgroup-v2),
    `memory.limit_in_bytes` is the older one's (cgroup-v1/memory).
    """
    limit = sys.maxsize
    for group in control_groups("memory", root, membership):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # "max" is no number
                limit = min(limit, max(int((group / name).read_text()), 0))
    return limit


def address_space_bytes() -> int:
    """The limit of `ulimit -v`, or of data (`ulimit -d`); huge without one."""
    if resource is None:
        return sys.maxsize
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=sys.maxsize)


pool = BufferPool(default_limit())
forget = pool.release
release_on_shortage(pool.release)


def _is_alone(arrays: Sequence[npt.NDArray[Any]], k: int) -> bool:
    """Whether nothing but this list refers to the memory of its array of number `k`."""
    if not _COUNTS_ARE_EXACT or getrefcount(arrays[k]) != _IN_A_LIST:
        return False
    flags = arrays[k].flags
    return flags.writeable and (flags.owndata or pool.has_one_view(arrays[k]) or _is_only_view(arrays[k]))


def _is_only_view(array: npt.NDArray[Any]) -> bool:
    """Whether an array is the only reference to one with memory of its own, of which it is a view."""
    base = array.base
    return isinstance(base, np.ndarray) and base.flags.owndata and getrefcount(base) == _OF_A_VIEW


def _references() -> tuple[int, int]:
    """What `getrefcount` says of an array in a list, and of what that is a view of."""
    arrays = [np.empty(2)[:1]]
    base = arrays[0].base
    return getrefcount(arrays[0]), getrefcount(base)


_IN_A_LIST, _OF_A_VIEW = _references()


def with_own_memory(arrays: Sequence[npt.NDArray[Any]], numbers: Sequence[int]) -> Sequence[npt.NDArray[Any]]:
    """The arrays, with copies of those among `numbers` whose memory others may look at."""
    copies = {k: _copied(arrays[k]) for k in numbers if not _is_alone(arrays, k)}
    return [copies.get(k, x) for k, x in enumerate(arrays)] if copies else arrays


def _copied(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = np.ndarray(array.shape, array.dtype, pool.allocate(array.nbytes)[0])
    copy[...] = array
    return copy
