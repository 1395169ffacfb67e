"""Generators of random bits that programs define: `jax.extend.random.define_prng_impl`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.primitives.random_primitives import recorded
from tinyxla.ops import elementwise
from tinyxla.random.generators import GENERATORS, Generator
from tinyxla.shapes.element_types import add_key_type, element_type
from tinyxla.shapes.key_types import KEY_TYPES, KeyType

_SEED = element_type(np.int32)


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
        key_shape: the shape of these words, of one dimension.
        seed: of an integer: the words of a key.
        split: of words and a shape: the words of keys in that shape.
        random_bits: of words, a number of bits and a shape: an array of unsigned integers.
        fold_in: of words and a number: the words of another key.
        name, tag: how keys print.

    Returns:
        The generator, for `impl` in functions that make keys.

    Raises:
        ArgumentError: words of no or several dimensions.
    """
    if len(key_shape) != 1:
        raise ArgumentError(f"define_prng_impl: key_shape must have one dimension, but is {tuple(key_shape)}.")
    known = name
    while known in GENERATORS:
        known += "'"
    made = KEY_TYPES[known] = KeyType(known, tag, key_shape[0])
    add_key_type(made)
    generator = Generator(
        seed=lambda _, low: seed(elementwise.convert(low, new_element_type=_SEED)),
        split=split,
        fold_in=fold_in,
        bits=lambda words, sizes, dtype: random_bits(words, element_type(dtype).bits, sizes),
    )
    GENERATORS[known] = recorded(known, generator)
    return made


def _generator(kind: KeyType) -> Generator:
    return GENERATORS[kind.implementation]


def set_attributes() -> None:
    """Give types of keys the functions of their generators as attributes, by which generators are made of others."""
    kind: Any = KeyType
    kind.key_shape = property(lambda self: (self.words,))
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
