"""Generators of random bits that programs define: `jax.extend.random.define_prng_impl`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.jax.jaxprs.primitives.random_primitives import recorded
from tinyxla.ops import elementwise, movement
from tinyxla.random.generators import GENERATORS, Generator
from tinyxla.shapes.element_types import add_key_type, element_type
from tinyxla.shapes.key_types import KEY_TYPES, KeyType

_SEED = element_type(np.int32)


class _DefinedKeyType(KeyType):
    """The element type of keys of a generator that a program defines: the words of a key may have any shape."""

    __slots__ = ("_key_shape",)

    def __init__(self, implementation: str, tag: str, key_shape: tuple[int, ...]) -> None:
        super().__init__(implementation, tag, math.prod(key_shape))
        self._key_shape = key_shape

    @property
    def key_shape(self) -> tuple[int, ...]:
        return self._key_shape

    @property
    def spec(self) -> KeyType:
        return self


def define_prng_impl(
    *,
    key_shape: Sequence[int],
    seed: Callable[[Any], Any],
    split: Callable[[Any, tuple[int, ...]], Any],
    random_bits: Callable[[Any, int, tuple[int, ...]], Any],
    fold_in: Callable[[Any, Any], Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> KeyType:
    """A generator made of functions of the words of a key.

    Args:
        key_shape: the shape of these words.
        seed: of an integer: the words of a key.
        split: of words and a shape: the words of keys in that shape.
        random_bits: of words, a number of bits and a shape: an array of unsigned integers.
        fold_in: of words and a number: the words of another key.
        name, tag: how keys print.

    Returns:
        The generator, for `impl` in functions that make keys.
    """
    known = name
    while known in GENERATORS:
        known += "'"
    shape = tuple(key_shape)
    made = KEY_TYPES[known] = _DefinedKeyType(known, tag, shape)
    add_key_type(made)

    def of_key(words: Any) -> Any:
        return movement.reshape_to(words, shape)

    def flat(words: Any, *sizes: int) -> Any:
        return movement.reshape_to(words, (*sizes, made.words))

    generator = Generator(
        seed=lambda _, low: flat(seed(elementwise.convert(low, new_element_type=_SEED))),
        split=lambda words, sizes: flat(split(of_key(words), sizes), *sizes),
        fold_in=lambda words, data: flat(fold_in(of_key(words), data)),
        bits=lambda words, sizes, dtype: random_bits(of_key(words), element_type(dtype).bits, sizes),
    )
    GENERATORS[known] = recorded(known, generator)
    return made


def _generator(kind: KeyType) -> Generator:
    return GENERATORS[kind.implementation]


def set_attributes() -> None:
    """Give types of keys the functions of their generators as attributes, by which generators are made of others."""
    kind: Any = KeyType
    kind.tag = property(lambda self: self.name.removeprefix("key<").removesuffix(">"))
    kind.split = property(lambda self: _generator(self).split)
    kind.fold_in = property(lambda self: _generator(self).fold_in)
    kind.seed = _seed
    kind.random_bits = _random_bits


def _seed(kind: KeyType, seed: Any) -> Any:
    """The words of a key for an integer."""
    from tinyxla.random import key, key_data  # here, since that is a part of the interface

    return key_data(key(seed, impl=kind))


def _random_bits(kind: KeyType, words: Any, width: int, shape: tuple[int, ...]) -> Any:
    """Unsigned integers of so many bits."""
    return _generator(kind).bits(words, shape, np.dtype(f"uint{width}"))
