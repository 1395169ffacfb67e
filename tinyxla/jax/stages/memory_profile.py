"""Profiles of the memory of arrays in the format of pprof, as `jax.profiler.device_memory_profile` gives them.

Source: proto/profile.proto of github.com/google/pprof.
"""

from __future__ import annotations

import collections
import gzip
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tinyxla.api.sharding.devices import live_arrays


def _varint(n: int) -> bytes:
    """An unsigned integer, seven bits a byte."""
    found = bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    return b"".join(_field(number, value) for number, value in fields)


def _packed(numbers: Iterable[int]) -> bytes:
    return b"".join(map(_varint, numbers))


def device_memory_profile(backend: str | None = None) -> bytes:
    """A profile of the memory that arrays hold, for `pprof`: how many there are of each type and shape, and their
    bytes. Where an array was made is not known.

    Args:
        backend: None or "cpu".

    Returns:
        A compressed protocol buffer.

    Raises:
        PlatformError: another backend.

    >>> device_memory_profile()[:2]
    b'\\x1f\\x8b'
    """
    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    for x in live_arrays(backend):
        counts[f"{x.dtype.name}[{','.join(map(str, x.shape))}]", x.nbytes] += 1
    texts = ["", "allocations", "count", "space", "bytes", "kind", "buffer"]
    body: list[tuple[int, int | bytes]] = [(1, _message((1, 1), (2, 2))), (1, _message((1, 3), (2, 4)))]
    label = _message((1, 5), (2, 6))
    for k, ((name, size), count) in enumerate(counts.most_common(), start=1):
        texts.append(name)
        body.append((2, _message((1, _packed([k])), (2, _packed([count, count * size])), (3, label))))  # a sample
        body.append((4, _message((1, k), (4, _message((1, k))))))  # its location
        body.append((5, _message((1, k), (2, len(texts) - 1))))  # a function of the array's type
    body.extend((6, text.encode()) for text in texts)
    body.append((9, time.time_ns()))
    return gzip.compress(_message(*body))


def save_device_memory_profile(filename: str | os.PathLike[str], backend: str | None = None) -> None:
    """Write what `device_memory_profile` gives into a file.

    Args:
        filename: of the file.
        backend: None or "cpu".

    Raises:
        PlatformError: another backend.
    """
    Path(filename).write_bytes(device_memory_profile(backend))
