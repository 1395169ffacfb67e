"""The random words of a key: the ciphertexts of 0, 1, 2 ... under it, by the Threefry cipher."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tinyxla.backends import default_backend
from tinyxla.compilation import Jitted, jit
from tinyxla.ops import elementwise, movement
from tinyxla.ops.random_bits import threefry2x32
from tinyxla.replays import is_recording
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import checked_size, state
from tinyxla.tracing.options import config
from tinyxla.transforms.batch import BatchTracer

_BLOCK = 1 << 14  # words computed together on concrete keys: all intermediate results stay in the cache
_LEAST = 1 << 6  # words of a compiled program
_OFTEN = 32  # times that NumPy computes them before a program is compiled, which gives the same bits much faster
_times = 0


def words(key: Array, count: int) -> tuple[Array, Array]:
    """The ciphertexts of 0 ... count - 1: two arrays of 32-bit words."""
    checked_size("random bits", Shape(element_type("u32"), (count,)))
    if isinstance(key, ConcreteArray) and state.staging is None:
        high, low = _concrete_words(key.numpy(), count)
        return ConcreteArray(high), ConcreteArray(low)
    steps = is_recording() or (isinstance(key, BatchTracer) and state.staging is None and not config.disable_jit)
    if steps and 0 < count <= _BLOCK and default_backend() != "interpreter":
        return tuple(movement.slice_axis(x, 0, 0, count) for x in _program(_size(count))(key))  # type: ignore[return-value]
    return _words(key, count)


def _words(key: Array, count: int) -> tuple[Array, Array]:
    """The same, operation by operation."""
    high_key, low_key = (movement.reshape_to(movement.slice_axis(key, 0, k, k + 1), ()) for k in (0, 1))
    keys = tuple(movement.broadcast(k, sizes=(count,), dimensions=()) for k in (high_key, low_key))
    return threefry2x32(keys, _counters(count))


def _counters(count: int) -> tuple[Any, Any]:
    """0 ... count - 1 as 64-bit numbers in two words."""
    if count <= 1 << 32:
        low = movement.iota(shape=Shape(element_type("u32"), (count,)), iota_dimension=0)
        return elementwise.zeros_like(low), low
    whole = movement.iota(shape=Shape(element_type("u64"), (count,)), iota_dimension=0)
    half = movement.full(32, np.uint64, (count,))
    high = elementwise.shift_right_logical(whole, half)
    word = element_type("u32")
    return elementwise.convert(high, new_element_type=word), elementwise.convert(whole, new_element_type=word)


def _size(count: int) -> int:
    """Of a program that computes as many words: the first ones are the same, however many there are."""
    return max(_LEAST, 1 << (count - 1).bit_length())


@functools.cache
def _program(count: int) -> Jitted:
    return jit(functools.partial(_words, count=count))


def _concrete_words(key: Any, count: int) -> tuple[Any, Any]:
    global _times
    _times += 1
    if 0 < count <= _BLOCK and _times > _OFTEN and not config.disable_jit and default_backend() != "interpreter":
        found = _program(_size(count))(ConcreteArray(key))
        return tuple(x.numpy()[:count] for x in found)  # type: ignore[return-value]
    keys = (key[0], key[1])
    high, low = np.empty(count, np.uint32), np.empty(count, np.uint32)
    with np.errstate(over="ignore"):
        for start in range(0, count, _BLOCK):
            part = slice(start, min(start + _BLOCK, count))
            index = np.arange(part.start, part.stop, dtype=np.uint64)
            counters = ((index >> 32).astype(np.uint32), index.astype(np.uint32))
            high[part], low[part] = threefry2x32(keys, counters)
    return high, low
