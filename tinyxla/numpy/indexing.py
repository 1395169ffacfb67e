"""Indexing: `x[index]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, OutOfBoundsError
from tinyxla.ops import movement
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import state

_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))


def take_index(x: Array, index: Any) -> Array:
    """`x[index]`."""
    if type(x) is ConcreteArray and state.staging is None:
        if type(index) in _BASIC or type(index) is tuple and _BASIC.issuperset(map(type, index)):
            try:
                return ConcreteArray(x.numpy()[index], x.weak_type)
            except (IndexError, TypeError):
                pass  # the long way says what is wrong
    entries = index if isinstance(index, tuple) else (index,)
    return _basic(x, entries)


def _basic(x: Any, entries: tuple[Any, ...]) -> Any:
    used = sum(e is not None and e is not Ellipsis for e in entries)
    if used > x.ndim:
        raise OutOfBoundsError(f"indexing: {used} indices are too many for an array of shape {x.shape}.")
    if not any(e is Ellipsis for e in entries):
        entries = (*entries, Ellipsis)
    at = next(k for k, e in enumerate(entries) if e is Ellipsis)
    entries = (*entries[:at], *(slice(None),) * (x.ndim - used), *entries[at + 1 :])
    start, limit, stride, turned, sizes = [], [], [], [], []
    d = 0
    for e in entries:
        if e is None:
            sizes.append(1)
            continue
        n = x.shape[d]
        if isinstance(e, slice):
            a, b, s = e.indices(n)
            count = len(range(a, b, s))
            if s < 0:
                turned.append(d)
                a, b, s = a + (count - 1) * s, a + 1, -s
            start.append(a if count else 0)
            limit.append(max(a, b) if count else 0)
            stride.append(s)
            sizes.append(count)
        else:
            k = e.__index__()
            if not -n <= k < n:
                raise OutOfBoundsError(f"indexing: index {k} is out of range for axis {d} of an array of shape {x.shape}.")
            start.append(k % n)
            limit.append(k % n + 1)
            stride.append(1)
        d += 1
    x = movement.slice_(x, start_indices=tuple(start), limit_indices=tuple(limit), strides=tuple(stride))
    if turned:
        x = movement.reverse(x, dimensions=tuple(turned))
    return movement.reshape_to(x, tuple(sizes))


class At:
    def __init__(self, x: Any) -> None:
        raise ArgumentError("later")
