"""The random words of a key: the ciphertexts of 0, 1, 2 ... under it, by the Threefry cipher."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.ops import elementwise, movement
from tinyxla.ops.random_bits import threefry
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import checked_size


def words(key: Array, count: int) -> tuple[Array, Array]:
    """The ciphertexts of 0 ... count - 1: two arrays of 32-bit words."""
    checked_size("random bits", Shape(element_type("u32"), (count,)))
    keys = (movement.broadcast(k, sizes=(count,), dimensions=()) for k in halves(key))
    return threefry(*keys, *_counters(count))


def halves(key: Any) -> list[Any]:
    """The two words of a key."""
    return [movement.reshape(movement.slice_axis(key, 0, k, k + 1), sizes=()) for k in (0, 1)]


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
