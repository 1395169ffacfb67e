"""The memory of kernels: spaces and types of it, reads and writes with masks, atomic operations, copies, semaphores.

Programs run one after the other, so that an atomic operation is a read and a write, a copy is done when it starts, and
nothing waits. All spaces are the machine's memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tinyxla import lax, numpy as jnp
from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.refs import Ref, RefView, new_ref
from tinyxla.jax.pallas.interpretation import uninitialized
from tinyxla.numpy.indexing.dynamic_slices import Slice
from tinyxla.tracing import pytrees
from tinyxla.tracing.references import expected, expecting


@dataclass(frozen=True)
class MemoryRef:
    """The type of a reference: a shape and element type in a memory space."""

    shape: tuple[int, ...]
    dtype: Any
    memory_space: Any = None


class _Space(Enum):
    def __call__(self, shape: Any, dtype: Any) -> MemoryRef:
        return MemoryRef(tuple(shape), dtype, self)

    def __str__(self) -> str:
        return self.value

    __repr__ = __str__


class MemorySpace(_Space):
    """Memory spaces of all accelerators."""

    ANY = "any"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"


class TpuMemorySpace(_Space):
    """Memory spaces of a TPU."""

    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HBM = "hbm"
    HOST = "host"


class SemaphoreType(Enum):
    """Kinds of semaphores, which are types of scratch memory: one, or with a shape an array of them."""

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: Any = ()) -> MemoryRef:
        return MemoryRef(tuple(shape), np.int32, self)


def allocate(type: Any) -> Ref:
    """A reference of this type: to undefined values, or to a semaphore that is 0."""
    if isinstance(type, SemaphoreType) or isinstance(getattr(type, "memory_space", None), SemaphoreType):
        return new_ref(jnp.zeros(getattr(type, "shape", ()), np.int32))
    if not (hasattr(type, "shape") and hasattr(type, "dtype")):
        raise ArgumentError(f"{type!r} is no type of memory; give one such as pltpu.VMEM((8, 128), jnp.float32).")
    return new_ref(uninitialized(type.shape, type.dtype))


def allocate_scratch(types: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """References to scratch memory for a kernel: by position, of a sequence of types; by name, of a dictionary."""
    if isinstance(types, dict):
        return (), allocate_all(types)
    return allocate_all(tuple(types)), {}


def allocate_all(types: Any) -> Any:
    """A reference for each type of a pytree."""
    leaves, tree = pytrees.flatten(types, is_leaf=lambda x: isinstance(x, MemoryRef | SemaphoreType))
    return pytrees.unflatten(tree, [allocate(x) for x in leaves])


def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Hashable = (), **kw_types: Any) -> Any:
    """Call a function with references to memory that is there as long as it runs.

    Args:
        f: the function.
        types: the types of its arguments: memory, such as `pltpu.VMEM(shape, dtype)`, or semaphores, in pytrees.
        collective_axes: axes of cores that share the memory, of which there is one here.
        kw_types: those of its keyword arguments.

    Returns:
        What the function gives.

    Raises:
        ArgumentError: what is no type of memory.
    """
    refs, named = [allocate_all(type) for type in types], {name: allocate_all(type) for name, type in kw_types.items()}
    with expecting([*expected(), *pytrees.leaves((refs, named))]):
        return f(*refs, **named)


def with_scoped(*types: Any, collective_axes: Hashable = (), **kw_types: Any) -> Callable[..., Any]:
    """A decorator: the function gets such references after its arguments; see `run_scoped`."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return run_scoped(lambda *refs, **named: f(*args, *refs, **kwargs, **named), *types, **kw_types)

        return call

    return decorate


def run_state(f: Callable[[Any], None]) -> Callable[[Any], Any]:
    """The function of arrays that `f` is of references to them: it gives what they hold when `f` has returned."""

    @functools.wraps(f)
    def call(x: Any) -> Any:
        leaves, tree = pytrees.flatten(x)
        refs = [new_ref(leaf) for leaf in leaves]
        f(pytrees.unflatten(tree, refs))
        return pytrees.unflatten(tree, [ref.freeze() for ref in refs])

    return call


def empty_ref_like(x: Any) -> Ref:
    """A reference to undefined values of the shape and type of x."""
    return allocate(x)


# --- reads and writes -------------------------------------------------------------------------------------------------


def _unclamped(ref: Any) -> Any:
    """A part of a reference at a traced start as it is if nothing is moved so that it fits: what is beyond the end is
    undefined when it is read, and dropped when it is written. Only elements near the part are touched."""
    index = _entries(ref)
    lengths = [(e.size - 1) * e.stride + 1 if isinstance(e, Slice) and e.size else 0 for e in index]
    if all(_fits(e, n, size) for e, n, size in zip(index, lengths, _sizes(ref), strict=False)):
        return ref
    sizes = ref.parent.shape
    lengths += [0] * (len(sizes) - len(lengths))
    held = [min(n, size) if n else size for n, size in zip(lengths, sizes, strict=True)]
    starts: list[Any] = [np.int32(0)] * len(sizes)
    inner = list(index)
    for k, entry in enumerate(index):
        if isinstance(entry, Slice) and lengths[k]:
            start = jnp.where(entry.start < 0, entry.start + sizes[k] + lengths[k], entry.start)  # the end is beyond
            starts[k] = jnp.clip(start, 0, sizes[k] - held[k])
            inner[k] = Slice(jnp.clip(start - starts[k], 0, held[k]), entry.size, entry.stride)

    def extended(x: Any) -> Any:
        near = lax.dynamic_slice(x, starts, held)
        return lax.pad(near, uninitialized((), x.dtype), [(0, n, 0) for n in lengths])

    def put(x: Any, part: Any) -> Any:
        near = lax.slice(extended(x).at[tuple(inner)].set(part), [0] * len(held), held)
        return lax.dynamic_update_slice(x, near, starts)

    return RefView.by(ref.parent, lambda x: extended(x)[tuple(inner)], put)


def _entries(ref: Any) -> tuple[Any, ...]:
    """The entries of the index of a part, if there is one for each dimension up to the last entry."""
    if not (isinstance(ref, RefView) and ref.index is not None):
        return ()
    index = ref.index if isinstance(ref.index, tuple) else (ref.index,)
    return () if any(e is Ellipsis or e is None for e in index) else index


def _sizes(ref: Any) -> tuple[int, ...]:
    return ref.parent.shape if isinstance(ref, RefView) else ()


def _fits(entry: Any, length: int, size: int) -> bool:
    """Whether an entry is known to stay inside of a dimension, or to count from its end."""
    if not length:
        return True
    return isinstance(entry.start, int | np.integer) and entry.start + length <= size


def load(ref: Any, *, mask: Any = None, other: Any = None, **_: Any) -> Any:
    """The elements of a reference, or of a part of it (`ref.at[index]`).

    Args:
        ref: the reference.
        mask: where they are read; what is elsewhere need not be in the array.
        other: the values elsewhere; by default they are undefined.

    Returns:
        An array.
    """
    x = _unclamped(ref)[...]
    if mask is None or other is None:
        return x
    return jnp.where(mask, x, jnp.asarray(other, x.dtype))


def store(ref: Any, val: Any, *, mask: Any = None, **_: Any) -> None:
    """Write to a reference or to a part of it; with a mask only where that is true."""
    if mask is None:
        ref[...] = val
        return
    part = _unclamped(ref)
    part[...] = jnp.where(mask, val, part[...])


def _atomic(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def atomic(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
        """Replace elements by their combination with values; gives the elements that were there."""
        part = _unclamped(x_ref_or_view.at[idx])
        before = part[...]
        new = combine(before, val)
        part[...] = new if mask is None else jnp.where(mask, new, before)
        return before

    return atomic


atomic_add = _atomic(lambda x, y: x + y)
atomic_max, atomic_min = _atomic(jnp.maximum), _atomic(jnp.minimum)
atomic_and, atomic_or, atomic_xor = (
    _atomic(lambda x, y: x & y),
    _atomic(lambda x, y: x | y),
    _atomic(lambda x, y: x ^ y),
)
atomic_xchg = _atomic(lambda x, y: jnp.broadcast_to(y, x.shape).astype(x.dtype))


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Replace an element by `val` if it equals `cmp`; gives the element that was there."""
    before = ref[...]
    ref[...] = jnp.where(before == cmp, val, before)
    return before


# --- copies and semaphores --------------------------------------------------------------------------------------------


class AsyncCopyDescriptor:
    """A copy between references, which `start` does."""

    def __init__(self, source: Any, target: Any, add: bool = False) -> None:
        self._source, self._target, self._add = source, target, add

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Copy, or add to what is there."""
        sync_copy(self._source, self._target, add=add or self._add)

    def wait(self) -> None:
        """Wait for the end of the copy, which was done when it started."""

    wait_send = wait_recv = wait


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopyDescriptor:
    """A copy from one reference into another one, which has yet to be started."""
    return AsyncCopyDescriptor(src_ref, dst_ref)


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False) -> AsyncCopyDescriptor:
    """Start a copy from one reference into another one."""
    copy = AsyncCopyDescriptor(src_ref, dst_ref, add)
    copy.start(priority)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy from one reference into another one, or add to it."""
    value = src_ref[...]
    if add:
        dst_ref.addupdate(value)
    else:
        dst_ref[...] = value


def semaphore_signal(sem_or_view: Any, inc: Any = 1, *, device_id: Any = None, **_: Any) -> None:
    """Add to a semaphore.

    Raises:
        ArgumentError: the semaphore of another device.
    """
    if device_id is not None:
        raise ArgumentError(
            "semaphore_signal: a kernel runs on one device here, and reaches no other one's semaphores."
        )
    sem_or_view.addupdate(inc)


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Subtract from a semaphore, without waiting until it is large enough."""
    if decrement:
        sem_or_view.addupdate(-value)


def semaphore_read(sem_or_view: Any) -> Any:
    """The value of a semaphore."""
    return sem_or_view[...]
