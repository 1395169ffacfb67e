"""The generators of random bits, on the words of keys.

Sources: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
for the ciphers; section "RngBitGenerator" of the XLA documents for "rbg" and "unsafe_rbg". How keys are derived and
which counters are encrypted follows JAX, so that bits are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.lax.random_bits import rng_bit_generator
from tinyxla.numpy.arguments import array_of, cast
from tinyxla.ops import elementwise, movement
from tinyxla.ops.random_bits import Run, philox2x32, philox4x32, threefry, threefry4x32
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing.config import config
from tinyxla.tracing.core import checked_size

Sizes = tuple[int, ...]
_WORD = element_type("u32")


class Generator(NamedTuple):
    """What is done with the words of one key.

    Attributes:
        seed: of the two 32-bit words of a number: the words of a key.
        split: of the words of a key and a shape: words of keys, in that shape.
        fold_in: of the words of a key and a number u32[]: the words of another key.
        bits: of the words of a key, a shape and a type of unsigned integers: random bits.
        clone: of the words of a key: the same, for a use on purpose of a key that is used already.
    """

    seed: Callable[[Any, Any], Any]
    split: Callable[[Any, Sizes], Any]
    fold_in: Callable[[Any, Any], Any]
    bits: Callable[[Any, Sizes, Any], Any]
    clone: Callable[[Any], Any] = lambda words: words


# --- ciphers of counters ----------------------------------------------------------------------------------------------

Encrypt = Callable[[list[Any], list[Any]], Sequence[Any]]


def _of_cipher(
    encrypt: Encrypt, count: int, key_words: int, seed: Callable[[Any, Any], Any], long: Callable[[Sequence[Any]], Any]
) -> Generator:
    """A generator by a cipher of counters of `count` words. Keys are derived with a counter's last words, bits made
    with its first ones; `long` gives the upper and lower words of 64-bit numbers."""

    def spread(zero: Any) -> list[Any]:
        return [zero] * (count - 2)

    def derived(key: Any, high: Any, low: Any) -> Any:
        zero = elementwise.zeros_like(low)
        found = encrypt(entries(key, low.shape), [*spread(zero), high, low])
        return stacked(found[:key_words])

    def split(key: Any, sizes: Sizes) -> Any:
        return movement.reshape_to(derived(key, *counters(math.prod(sizes))), (*sizes, key_words))

    def fold_in(key: Any, data: Any) -> Any:
        return derived(key, elementwise.zeros_like(data), data)

    def bits(key: Any, sizes: Sizes, dtype: Any) -> Any:
        high, low = counters(math.prod(sizes))
        found = encrypt(entries(key, low.shape), [high, low, *spread(elementwise.zeros_like(low))])
        if element_type(dtype).bits == 64:
            upper, lower = long(found)
            return movement.reshape_to(_long(upper, lower, dtype), sizes)
        mixed = found[0]
        for x in found[1:]:
            mixed = elementwise.xor(mixed, x)
        return movement.reshape_to(cast(mixed, dtype), sizes)

    return Generator(seed, split, fold_in, bits)


def entries(key: Any, sizes: Sizes) -> list[Any]:
    """The words of a key, each in every element of a shape."""
    words = [movement.reshape(movement.slice_axis(key, 0, k, k + 1), sizes=()) for k in range(key.shape[0])]
    return [movement.broadcast(x, sizes=sizes, dimensions=()) for x in words] if sizes else words


def stacked(words: Sequence[Any]) -> Any:
    """Words along a new last dimension."""
    rows = [movement.reshape(x, sizes=(*x.shape, 1)) for x in words]
    return movement.concatenate(*rows, dimension=words[0].ndim) if len(rows) > 1 else rows[0]


def counters(count: int) -> tuple[Any, Any]:
    """0 ... count - 1 as 64-bit numbers in two words."""
    checked_size("random bits", Shape(_WORD, (count,)))
    if is_symbolic(count) or count <= 1 << 32:
        low = movement.iota(shape=Shape(_WORD, (count,)), iota_dimension=0)
        return elementwise.zeros_like(low), low
    whole = movement.iota(shape=Shape(element_type("u64"), (count,)), iota_dimension=0)
    half = movement.full(32, np.uint64, (count,))
    high = elementwise.shift_right_logical(whole, half)
    return elementwise.convert(high, new_element_type=_WORD), elementwise.convert(whole, new_element_type=_WORD)


def _long(high: Any, low: Any, dtype: Any) -> Any:
    """64-bit numbers of two words."""
    upper, lower = (cast(x, dtype) for x in (high, low))
    return elementwise.or_(elementwise.shift_left(upper, movement.full(32, dtype, upper.shape)), lower)


def _calling(op: Any, *operands: Any, **attributes: Any) -> Any:
    return op(*operands, **attributes)


_run: Run = _calling


def _first_two(words: Sequence[Any]) -> Any:
    return words[:2]


# --- threefry2x32 -----------------------------------------------------------------------------------------------------


def _encrypt_pairs(key: list[Any], counter: list[Any]) -> Any:
    return threefry(*key, *counter)


def _pair(high: Any, low: Any) -> Any:
    return stacked([high, low])


_COUNTING = _of_cipher(_encrypt_pairs, 2, 2, _pair, _first_two)


def threefry_2x32(keypair: Any, count: Any) -> Any:
    """The words of an array u32 encrypted under the two words of a key: each of the first half is a pair with one of
    the second; the last one of an odd number is a pair with 0.

    >>> import numpy as np
    >>> from tinyxla.random.generators import threefry_2x32
    >>> threefry_2x32(np.zeros(2, np.uint32), np.arange(2, dtype=np.uint32))
    Array([ 928981903, 3453687069], dtype=uint32)
    """
    numbers, key = (array_of(x, "threefry_2x32") for x in (count, keypair))
    size = numbers.size
    half = -(-size // 2)
    line: Any = movement.reshape_to(numbers, (size,))
    if size % 2:
        line = movement.concatenate(line, movement.full(0, _WORD.dtype, (1,)), dimension=0)
    first, second = (movement.slice_axis(line, 0, k * half, (k + 1) * half) for k in (0, 1))
    found = threefry(*entries(key, (half,)), first, second)
    encrypted = movement.slice_axis(movement.concatenate(*found, dimension=0), 0, 0, size)
    return movement.reshape_to(encrypted, numbers.shape)


def _line(key: Any, count: int) -> Any:
    """The numbers below `count`, encrypted."""
    return threefry_2x32(key, movement.iota(shape=Shape(_WORD, (count,)), iota_dimension=0))


def _split_pairs(key: Any, sizes: Sizes) -> Any:
    if config.threefry_partitionable:
        return _COUNTING.split(key, sizes)
    return movement.reshape_to(_line(key, 2 * math.prod(sizes)), (*sizes, 2))


def _bits_of_pairs(key: Any, sizes: Sizes, dtype: Any) -> Any:
    """With the option `threefry_partitionable`, of which no element depends on how many there are; else as they were
    drawn before there was that option."""
    if config.threefry_partitionable:
        return _COUNTING.bits(key, sizes, dtype)
    size, width = math.prod(sizes), element_type(dtype).bits
    drawn = _line(key, -(-width * size // 32))
    if width == 64:
        upper, lower = (movement.slice_axis(drawn, 0, k * size, (k + 1) * size) for k in (0, 1))
        found = _long(upper, lower, dtype)
    elif width == 32:
        found = drawn
    else:
        each = 32 // width
        shape = (drawn.shape[0], each)
        rows = movement.broadcast(drawn, sizes=shape, dimensions=(0,))
        numbers = movement.iota(shape=Shape(_WORD, shape), iota_dimension=1)
        distances = elementwise.mul(numbers, movement.full(width, np.uint32, shape))
        narrow = cast(elementwise.shift_right_logical(rows, distances), dtype)
        found = movement.slice_axis(movement.reshape_to(narrow, (math.prod(shape),)), 0, 0, size)
    return movement.reshape_to(found, sizes)


_THREEFRY = Generator(_pair, _split_pairs, _COUNTING.fold_in, _bits_of_pairs)

# --- other ciphers ----------------------------------------------------------------------------------------------------


def _zero(like: Any) -> Any:
    return elementwise.zeros_like(like)


def _encrypt_fours(key: list[Any], counter: list[Any]) -> Any:
    return threefry4x32(key, counter)


def _seed_fours(high: Any, low: Any) -> Any:
    zero = _zero(low)
    return stacked(threefry4x32((high, low, zero, zero), (zero,) * 4))


def _crossed(words: Sequence[Any]) -> Any:
    a, b, c, d = words
    return elementwise.xor(a, c), elementwise.xor(b, d)


def _encrypt_philox_pairs(key: list[Any], counter: list[Any]) -> Any:
    return philox2x32(_run, key[0], (counter[0], counter[1]))


def _seed_philox_pairs(high: Any, low: Any) -> Any:
    return stacked(philox2x32(_run, _zero(low), (high, low))[:1])


def _encrypt_philox_fours(key: list[Any], counter: list[Any]) -> Any:
    a, b, c, d = counter
    return philox4x32(_run, (key[0], key[1]), (a, b, c, d))


def _seed_philox_fours(high: Any, low: Any) -> Any:
    zero = _zero(low)
    return stacked(philox4x32(_run, (zero, zero), (high, low, zero, zero))[:2])


# --- RngBitGenerator --------------------------------------------------------------------------------------------------


def _halves(key: Any) -> list[Any]:
    return [movement.slice_axis(key, 0, k, k + 2) for k in (0, 2)]


def _both(halves: Sequence[Any]) -> Any:
    return movement.concatenate(*halves, dimension=halves[0].ndim - 1)


def _seed_rbg(high: Any, low: Any) -> Any:
    half = _pair(high, low)
    return _both([half, half])


def _rbg_bits(key: Any, sizes: Sizes, dtype: Any) -> Any:
    return rng_bit_generator(key, sizes, dtype)[1]


def _split_rbg(key: Any, sizes: Sizes) -> Any:
    return _both([_split_pairs(half, sizes) for half in _halves(key)])


def _fold_in_rbg(key: Any, data: Any) -> Any:
    return _both([_COUNTING.fold_in(half, data) for half in _halves(key)])


_ROUNDS = 10  # drawn for each key, of which one is taken


def _split_unsafe(key: Any, sizes: Sizes) -> Any:
    count = math.prod(sizes)
    drawn: Any = _rbg_bits(key, (_ROUNDS * count, 4), np.uint32)
    taken = movement.slice_(drawn, start_indices=(0, 0), limit_indices=(_ROUNDS * count, 4), strides=(_ROUNDS, 1))
    return movement.reshape_to(taken, (*sizes, 4))


def _fold_in_unsafe(key: Any, data: Any) -> Any:
    drawn: Any = _rbg_bits(_seed_rbg(_zero(data), data), (_ROUNDS, 4), np.uint32)
    last = movement.reshape_to(movement.slice_axis(drawn, 0, _ROUNDS - 1, _ROUNDS), (4,))
    return elementwise.xor(key, last)


GENERATORS: dict[str, Generator] = {
    "threefry2x32": _THREEFRY,
    "threefry4x32": _of_cipher(_encrypt_fours, 4, 4, _seed_fours, _crossed),
    "rbg": Generator(_seed_rbg, _split_rbg, _fold_in_rbg, _rbg_bits),
    "unsafe_rbg": Generator(_seed_rbg, _split_unsafe, _fold_in_unsafe, _rbg_bits),
    "philox2x32": _of_cipher(_encrypt_philox_pairs, 2, 1, _seed_philox_pairs, _first_two),
    "philox4x32": _of_cipher(_encrypt_philox_fours, 4, 2, _seed_philox_fours, _first_two),
}
