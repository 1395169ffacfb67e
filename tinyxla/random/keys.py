"""Keys, and the random bits that they stand for.

A key is an array of two 32-bit words. Using one does not change it: the same key gives the same numbers, and further
ones come from the keys that `split` and `fold_in` derive from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, NumberRangeError, ShapeError
from tinyxla.numpy.arguments import array_of, cast, constant, element_count, python_dtype, shape_of
from tinyxla.ops import elementwise, movement
from tinyxla.ops.random_bits import threefry, threefry2x32
from tinyxla.random.threefry import halves, words
from tinyxla.replays import drawn
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array, ConcreteArray, wrap
from tinyxla.tracing.promotion import config, default_int

KeyArray = Array
ShapeLike = int | Sequence[int]
_WORD = element_type("u32")
_IMPLEMENTATION = "threefry2x32"


def checked_key(what: str, key: Any) -> Array:
    """A single key."""
    if not isinstance(key, (Array, np.ndarray)):
        raise ArgumentError(f"{what}: the first argument is a key, made by tinyxla.random.key(seed), but got {key!r}.")
    found = array_of(key, what)
    if found.dtype != _WORD.dtype or found.shape[-1:] != (2,):
        raise ArgumentError(
            f"{what}: a key is a u32[2] array, made by tinyxla.random.key(seed), but got {Shape.of(found)}."
        )
    if found.ndim != 1:
        raise ShapeError(f"{what}: takes a single key u32[2], but got {Shape.of(found)}; use vmap over keys.")
    return found


# --- making keys ------------------------------------------------------------------------------------------------------


def PRNGKey(seed: Any, *, impl: str | None = None) -> KeyArray:
    """A key from an integer: the words of its 64-bit value, of which the upper one is 0 unless `enable_x64` is set.

    >>> PRNGKey(42)
    Array([ 0, 42], dtype=uint32)
    """
    what = "tinyxla.random.key"
    if impl not in (None, _IMPLEMENTATION):
        raise AttributeValueError(f"{what}: the only impl is {_IMPLEMENTATION!r}, but got {impl!r}.")
    if isinstance(seed, (bool, int, np.integer)) and not isinstance(seed, Array):
        value = int(seed)
        if not -(2**63) <= value < 2**63:
            raise NumberRangeError(f"{what}: the seed {value} does not fit 64 bits.")
        high = (value >> 32) & 0xFFFFFFFF if config.enable_x64 else 0
        return wrap(np.array([high, value & 0xFFFFFFFF], np.uint32))
    value = array_of(seed, what)
    kind = element_type(value.dtype)
    if value.ndim or not kind.is_integer:
        raise ArgumentError(f"{what}: the seed is one integer, but got {Shape.of(value)}; use vmap over seeds.")
    low = elementwise.convert(value, new_element_type=_WORD)
    if kind.bits < 64:
        return _stacked(elementwise.zeros_like(low), low)
    upper = elementwise.shift_right_logical(value, constant(32, value.dtype))
    return _stacked(elementwise.convert(upper, new_element_type=_WORD), low)


def key(seed: Any, *, impl: str | None = None) -> KeyArray:
    """A key from an integer; the same array of two words as `PRNGKey` makes.

    >>> key(0)
    Array([0, 0], dtype=uint32)
    """
    return PRNGKey(seed, impl=impl)


def key_data(keys: KeyArray) -> Array:
    """The words of keys, which are the keys themselves."""
    return array_of(keys, "tinyxla.random.key_data")


def key_impl(keys: KeyArray) -> str:
    """The name of the generator that keys are for: there is one."""
    return _IMPLEMENTATION


def wrap_key_data(key_bits_array: Any, *, impl: str | None = None) -> KeyArray:
    """Keys of the given words: a u32[..., 2] array."""
    found = array_of(key_bits_array, "tinyxla.random.wrap_key_data")
    if found.dtype != _WORD.dtype or found.shape[-1:] != (2,):
        raise ArgumentError(f"tinyxla.random.wrap_key_data: keys are u32[..., 2] arrays, but got {Shape.of(found)}.")
    return found


def clone(key: KeyArray) -> KeyArray:
    """The same key, to say that it is used again on purpose."""
    return key


@drawn("num")
def split(key: KeyArray, num: int | tuple[int, ...] = 2) -> KeyArray:
    """New keys from one: an array of them, of shape `num`.

    >>> split(PRNGKey(0), 3).shape
    (3, 2)
    """
    source = checked_key("tinyxla.random.split", key)
    sizes = shape_of("tinyxla.random.split", num)
    return movement.reshape_to(_stacked(*words(source, math.prod(sizes))), (*sizes, 2))  # type: ignore[return-value]


def fold_in(key: KeyArray, data: Any) -> KeyArray:
    """A new key from one and a number from 0 to 2**32 - 1, such as that of a training step.

    >>> fold_in(PRNGKey(0), 1).shape
    (2,)
    """
    what = "tinyxla.random.fold_in"
    source = checked_key(what, key)
    if isinstance(data, (int, np.integer)):
        if not 0 <= int(data) < 2**32:
            raise NumberRangeError(f"{what}: {data} is not a number from 0 to 2**32 - 1.")
        number: Any = ConcreteArray(np.uint32(data))
    else:
        number = array_of(data, what)
        if number.ndim or not element_type(number.dtype).is_integer:
            raise ArgumentError(f"{what}: data is one integer, but got {Shape.of(number)}; use vmap.")
        number = elementwise.convert(number, new_element_type=_WORD)
    if isinstance(source, ConcreteArray) and isinstance(number, ConcreteArray):
        with np.errstate(over="ignore"):
            pair = threefry2x32((source.buffer()[0], source.buffer()[1]), (np.uint32(0), np.uint32(number.buffer())))
        return wrap(np.array(pair, np.uint32))
    return _stacked(*threefry(*halves(source), elementwise.zeros_like(number), number))


def _stacked(high: Any, low: Any) -> Any:
    """Pairs of words along a new last dimension."""
    parts = [movement.reshape(x, sizes=(*x.shape, 1)) for x in (high, low)]
    return movement.concatenate(*parts, dimension=high.ndim)


# --- bits -------------------------------------------------------------------------------------------------------------


@drawn("shape", "dtype")
def bits(key: KeyArray, shape: ShapeLike = (), dtype: Any = None) -> Array:
    """Random bits, as unsigned integers: `uint32`, or `uint64` with `enable_x64`, unless another type is asked for.

    >>> bits(PRNGKey(42), (2,))
    Array([2098992034, 2919706841], dtype=uint32)
    """
    what = "tinyxla.random.bits"
    wanted = np.dtype(f"u{default_int().name}") if dtype is None else python_dtype(dtype)
    if element_type(wanted).kind != "unsigned":
        raise DTypeError(f"{what}: bits are unsigned integers, but the dtype asked for is {wanted}.")
    return random_bits(checked_key(what, key), shape_of(what, shape), wanted)


def random_bits(key: Array, sizes: tuple[int, ...], dtype: Any) -> Any:
    """An array of unsigned integers of the given type. Narrow ones are the low bits of what 32-bit ones are."""
    high, low = words(key, element_count(sizes))
    if element_type(dtype).bits < 64:
        found: Any = cast(elementwise.xor(high, low), dtype)
    else:
        upper, lower = (cast(x, dtype) for x in (high, low))
        found = elementwise.or_(elementwise.shift_left(upper, movement.full(32, dtype, upper.shape)), lower)
    return movement.reshape_to(found, sizes)
