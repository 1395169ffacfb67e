"""Keys, and the random bits that they stand for.

A key is an element of an array of keys, whose type names a generator; or, as `PRNGKey` makes it, an array of 32-bit
words for the generator that the option `default_prng_impl` says. Using a key does not change it: the same key gives the
same numbers, and further ones come from the keys that `split` and `fold_in` derive from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import drawn
from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, NumberRangeError, ShapeError
from tinyxla.numpy.arguments import array_of, constant, python_dtype, shape_of
from tinyxla.ops import elementwise
from tinyxla.ops.random_bits import threefry2x32
from tinyxla.partitioning.array import ShardedArray
from tinyxla.random.generators import GENERATORS
from tinyxla.shapes import KEY_TYPES, KeyType, Shape, element_type
from tinyxla.tracing.array import Array, ConcreteArray, wrap
from tinyxla.tracing.core import on_current_mesh
from tinyxla.tracing.promotion import config, default_int
from tinyxla.transforms.key_arrays import KeyArray as KeyArray

ShapeLike = int | Sequence[int]
_WORD = element_type("u32")
_WORDS: Any = _WORD.dtype


def checked_key(what: str, key: Any) -> KeyArray:
    """A single key."""
    keys, _ = typed_keys(what, key)
    if keys.ndim:
        raise ShapeError(f"{what}: takes a single key, but got {Shape.of(key)}; use vmap over keys.")
    return keys


def typed_keys(what: str, keys: Any) -> tuple[KeyArray, bool]:
    """Keys, and whether they were given as an array of words."""
    if isinstance(keys, KeyArray):
        return keys, False
    dtype = default_key_type()
    if not isinstance(keys, (Array, np.ndarray)):
        raise ArgumentError(f"{what}: the first argument is a key, made by tinyxla.random.key(seed), but got {keys!r}.")
    found = array_of(keys, what)
    if found.dtype != _WORDS or found.shape[-1:] != (dtype.words,):
        raise ArgumentError(
            f"{what}: a key is made by tinyxla.random.key(seed), or a u32[{dtype.words}] array of the words of "
            f"{dtype.name}, but got {Shape.of(found)}."
        )
    _judge_words(what)
    return KeyArray(dtype, found), True


def _judge_words(what: str) -> None:
    """What the option `legacy_prng_key` says of keys that are arrays of words."""
    if config.legacy_prng_key == "allow":
        return
    error = ArgumentError(
        f"{what}: got a key as an array of words, and legacy_prng_key is {config.legacy_prng_key!r}; make keys by "
        "random.key, or of words by random.wrap_key_data."
    )
    if config.legacy_prng_key == "error":
        raise error
    warnings.warn(str(error), stacklevel=3)


def as_given(keys: KeyArray, by_words: bool) -> Any:
    """Keys as those were given that they come from."""
    return keys.words if by_words and not config.enable_custom_prng else keys


def generator_of(keys: KeyArray) -> Any:
    """The generator that keys are for."""
    return GENERATORS[keys.dtype.implementation]


# --- making keys ------------------------------------------------------------------------------------------------------


def default_key_type() -> KeyType:
    """The type of the keys that are made where no generator is named."""
    return KEY_TYPES[config.default_prng_impl]


def _key_type(what: str, impl: Any, dtype: Any = None) -> KeyType:
    """The type of keys that is asked for: by a generator's name, or itself."""
    if impl is not None and dtype is not None:
        raise ArgumentError(f"{what}: impl and dtype mean the same; give one of them.")
    wanted = dtype if impl is None else impl
    if wanted is None:
        return default_key_type()
    if isinstance(wanted, KeyType):
        return wanted
    if not isinstance(wanted, str):
        raise ArgumentError(
            f"{what}: impl must be the name of a generator or a dtype of keys, but is {wanted!r} of type "
            f"{type(wanted).__name__}."
        )
    if wanted not in KEY_TYPES:
        known = ", ".join(map(repr, KEY_TYPES))
        raise AttributeValueError(f"{what}: impl must be one of {known}, but got {wanted!r}.")
    return KEY_TYPES[wanted]


def key_dtype(impl_spec: str | KeyType | None = None) -> KeyType:
    """The element type of keys of a generator: of that named, or of the default one.

    Args:
        impl_spec: the name of a generator, or None.

    Returns:
        An element type.

    Raises:
        AttributeValueError: an unknown generator.

    >>> from tinyxla.random import key_dtype
    >>> key_dtype("rbg")
    key<rbg>
    """
    return _key_type("tinyxla.random.key_dtype", impl_spec)


def PRNGKey(seed: Any, *, impl: str | KeyType | None = None) -> Array:
    """A key from an integer, as an array of words: the key of `key`, which does not say what generator it is for.

    Args:
        seed: an integer, of which 32 bits are taken, or 64 if `enable_x64` is set or it has so many.
        impl: the name of a generator; that of the option `default_prng_impl` unless given. Functions take arrays of
            words for keys of the default one.

    Returns:
        An array of uint32 of as many words as a key of the generator has.

    Raises:
        ArgumentError: a seed that is not one integer.
        AttributeValueError: a generator that there is not.

    >>> from tinyxla.random import PRNGKey
    >>> PRNGKey(42)
    Array([ 0, 42], dtype=uint32)
    """
    return as_given(_seeded("tinyxla.random.PRNGKey", seed, impl, None), True)


def key(seed: Any, *, impl: str | KeyType | None = None, dtype: str | KeyType | None = None) -> KeyArray:
    """A key from an integer: an array without dimensions, whose element type names the generator.

    Args:
        seed: an integer, of which 32 bits are taken, or 64 if `enable_x64` is set or it has so many.
        impl: the name of a generator: "threefry2x32", "threefry4x32", "rbg", "unsafe_rbg", "philox2x32" or
            "philox4x32"; that of the option `default_prng_impl` unless given.
        dtype: the same, by a name or a `key_dtype`.

    Returns:
        A key.

    Raises:
        AttributeValueError: an unknown generator.
        ArgumentError: a seed that is not one integer.
        NumberRangeError: one that does not fit 64 bits.

    >>> from tinyxla.random import key
    >>> key(42).shape, key(42).dtype
    ((), key<fry>)
    """
    return _seeded("tinyxla.random.key", seed, impl, dtype)


def random_seed(seed: Any, *, impl: str | KeyType | None = None) -> KeyArray:
    """Keys from an array of integers, in its shape.

    Args:
        seed: integers.
        impl: the name of a generator; that of the option `default_prng_impl` unless given.

    Returns:
        An array of keys of this shape.

    Raises:
        ArgumentError: seeds that are no integers.

    >>> import numpy as np
    >>> from tinyxla.random import random_seed
    >>> random_seed(np.array([1, 2])).shape
    (2,)
    """
    what = "tinyxla.random.random_seed"
    seeds = seed if isinstance(seed, int) else array_of(seed, what)
    if isinstance(seeds, int) or not seeds.ndim:
        return _seeded(what, seeds, impl, None)
    dtype = _key_type(what, impl)
    return KeyArray(dtype, GENERATORS[dtype.implementation].seed(*_words_of(what, seeds)))


def _seeded(what: str, seed: Any, impl: Any, dtype: Any) -> KeyArray:
    wanted = _key_type(what, impl, dtype)
    if isinstance(seed, KeyArray):
        raise ArgumentError(f"{what}: the seed is one integer, but got {Shape.of(seed)}; split makes keys of keys.")
    make = GENERATORS[wanted.implementation].seed
    if isinstance(seed, (bool, int, np.integer)) and not isinstance(seed, Array):
        value = int(seed)
        if not -(2**63) <= value < 2**63:
            raise NumberRangeError(f"{what}: the seed {value} does not fit 64 bits.")
        pair = ((value >> 32) & 0xFFFFFFFF if config.enable_x64 else 0, value & 0xFFFFFFFF)
        if wanted.implementation == "threefry2x32":
            return KeyArray(wanted, on_current_mesh(wrap(np.array(pair, np.uint32))))
        return KeyArray(wanted, make(*(ConcreteArray(np.uint32(x)) for x in pair)))
    found = array_of(seed, what)
    if found.ndim:
        raise ArgumentError(f"{what}: the seed is one integer, but got {Shape.of(found)}; use vmap over seeds.")
    return KeyArray(wanted, make(*_words_of(what, found)))


def _words_of(what: str, seeds: Any) -> tuple[Any, Any]:
    """The upper and the lower 32 bits of integers."""
    kind = element_type(seeds.dtype)
    if not kind.is_integer:
        raise ArgumentError(f"{what}: a seed is an integer, but got {Shape.of(seeds)}.")
    low = elementwise.convert(seeds, new_element_type=_WORD)
    if kind.bits < 64:
        return elementwise.zeros_like(low), low
    places: Any = elementwise.zeros_like(seeds)
    upper = elementwise.shift_right_logical(seeds, places + constant(32, seeds.dtype))
    return elementwise.convert(upper, new_element_type=_WORD), low


def key_data(keys: Any) -> Array:
    """The words of keys: an array of uint32 with one more axis than the keys.

    Args:
        keys: an array of random keys.

    Returns:
        An array of uint32.

    Raises:
        ArgumentError: what are no keys.

    >>> from tinyxla.random import key, key_data
    >>> key_data(key(42))
    Array([ 0, 42], dtype=uint32)
    """
    typed, _ = typed_keys("tinyxla.random.key_data", keys)
    words = typed.words
    if typed.dtype.key_shape != (typed.dtype.words,):
        words = words.reshape(typed.shape + typed.dtype.key_shape)
    if isinstance(words, ShardedArray):  # its sharding has an entry for the words of a key, too
        return ShardedArray(words.block, words.shape, words.layout.with_rank(words.ndim), words.weak_type)
    return words


def key_impl(keys: Any) -> str | KeyType:
    """The generator that keys are for, for `impl` of `key`.

    Args:
        keys: an array of random keys.

    Returns:
        Its name; the type of its keys if a program has defined it.

    Raises:
        ArgumentError: what are no keys.

    >>> from tinyxla.random import key, key_impl
    >>> key_impl(key(0))
    'threefry2x32'
    """
    return typed_keys("tinyxla.random.key_impl", keys)[0].dtype.spec


def wrap_key_data(
    key_bits_array: Any, *, impl: str | KeyType | None = None, dtype: str | KeyType | None = None
) -> KeyArray:
    """Keys of the given words.

    Args:
        key_bits_array: the words, u32 of a shape that ends with as many as a key of the generator has.
        impl, dtype: the generator, as in `key`.

    Returns:
        An array of keys, without the last dimension.

    Raises:
        ArgumentError: an array that is not of the words of keys.

    >>> import numpy as np
    >>> from tinyxla.random import wrap_key_data
    >>> wrap_key_data(np.array([[0, 1], [0, 2]], np.uint32)).shape
    (2,)
    """
    what = "tinyxla.random.wrap_key_data"
    wanted, found = _key_type(what, impl, dtype), array_of(key_bits_array, what)
    rank = len(wanted.key_shape)
    if found.dtype != _WORDS or found.ndim < rank or found.shape[found.ndim - rank :] != wanted.key_shape:
        sizes = ", ".join(map(str, wanted.key_shape))
        raise ArgumentError(
            f"{what}: keys {wanted.name} are made of u32[..., {sizes}] arrays, but got {Shape.of(found)}."
        )
    return KeyArray(wanted, found if rank == 1 else found.reshape((*found.shape[: found.ndim - rank], wanted.words)))


def clone(key: Any) -> Array:
    """The same key, to say that it is used again on purpose.

    Args:
        key: a random key.

    Returns:
        The key.

    Raises:
        ArgumentError: what is no key.

    Example:
        >>> import tinyxla as tx
        >>> key = tx.random.key(0)
        >>> tx.random.clone(key) == key
        Array(True, dtype=bool)
    """
    keys, by_words = typed_keys("tinyxla.random.clone", key)
    return as_given(KeyArray(keys.dtype, generator_of(keys).clone(keys.words)), by_words)


@drawn("num", inline=True)
def split(key: Any, num: int | tuple[int, ...] = 2) -> Array:
    """New keys from one.

    Args:
        key: one key.
        num: how many, or the shape of the array of keys.
        out_sharding: where the result is to be.

    Returns:
        An array of keys of the shape `num`; of a key that is an array of words, words with one more axis.

    Raises:
        ArgumentError: what is no key.
        ShapeError: several keys (use `vmap`), or a negative number.

    >>> from tinyxla.random import key, split
    >>> split(key(0), 3).shape
    (3,)
    """
    what = "tinyxla.random.split"
    source, by_words = typed_keys(what, key)
    found = split_words(checked_key(what, source), shape_of(what, num))
    return as_given(found, by_words)


def split_words(key: KeyArray, sizes: tuple[int, ...]) -> KeyArray:
    """Keys from one, in a shape."""
    return KeyArray(key.dtype, generator_of(key).split(key.words, sizes))


def fold_in(key: Any, data: Any) -> Array:
    """A new key from one and a number from 0 to 2**32 - 1, such as that of a training step.

    Args:
        key: a random key.
        data: an integer.

    Returns:
        A key.

    Raises:
        NumberRangeError: a number outside this range.
        ArgumentError: what is no key, or data that is not one integer.

    >>> from tinyxla.random import fold_in, key
    >>> fold_in(key(0), 1).shape
    ()
    """
    what = "tinyxla.random.fold_in"
    given, by_words = typed_keys(what, key)
    source = checked_key(what, given)
    if isinstance(data, (int, np.integer)):
        if not 0 <= int(data) < 2**32:
            raise NumberRangeError(f"{what}: {data} is not a number from 0 to 2**32 - 1.")
        number: Any = ConcreteArray(np.uint32(data))
    else:
        number = array_of(data, what)
        if number.ndim or not element_type(number.dtype).is_integer:
            raise ArgumentError(f"{what}: data is one integer, but got {Shape.of(number)}; use vmap.")
        number = elementwise.convert(number, new_element_type=_WORD)
    known = isinstance(source.words, ConcreteArray) and isinstance(number, ConcreteArray)
    fold: Callable[..., Any] = generator_of(source).fold_in
    if known and source.dtype.implementation == "threefry2x32":
        fold = _fold_in_now
    return as_given(KeyArray(source.dtype, fold(source.words, number)), by_words)


def _fold_in_now(words: Any, number: Any) -> Array:
    """The same for known words, in a few calls of NumPy."""
    with np.errstate(over="ignore"):
        pair = threefry2x32((words.buffer()[0], words.buffer()[1]), (np.uint32(0), np.uint32(number.buffer())))
    return wrap(np.array(pair, np.uint32))


# --- bits -------------------------------------------------------------------------------------------------------------


@drawn("shape", "dtype", inline=True)
def bits(key: Any, shape: ShapeLike = (), dtype: Any = None) -> Array:
    """Random bits, as unsigned integers: `uint32`, or `uint64` with `enable_x64`, unless another type is asked for.

    Args:
        key: a random key.
        shape: the shape of the result.
        dtype: an unsigned integer type.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of this shape and type.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` of no unsigned integers.

    >>> from tinyxla.random import PRNGKey, bits
    >>> bits(PRNGKey(42), (2,))
    Array([2098992034, 2919706841], dtype=uint32)
    """
    what = "tinyxla.random.bits"
    wanted = np.dtype(f"u{default_int().name}") if dtype is None else python_dtype(dtype)
    if element_type(wanted).kind != "unsigned":
        raise DTypeError(f"{what}: bits are unsigned integers, but the dtype asked for is {wanted}.")
    return random_bits(checked_key(what, key), shape_of(what, shape), wanted)


def random_bits(key: KeyArray, sizes: tuple[int, ...], dtype: Any) -> Any:
    """An array of unsigned integers of the given type. Narrow ones are the low bits of what 32-bit ones are, with
    generators that are ciphers of counters."""
    return generator_of(key).bits(key.words, sizes, dtype)
