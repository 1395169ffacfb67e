"""Extended element types: those of random keys.

An array of keys has one word axis more in memory than it shows: a key is a vector of 32-bit words. Operations on
arrays of numbers do not take these types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import DTypeError


class extended(np.generic):
    """The kind of element types that are no numbers, for `issubdtype`.

    >>> from tinyxla import dtypes, random
    >>> dtypes.issubdtype(random.key(0).dtype, dtypes.extended), dtypes.issubdtype("float32", dtypes.extended)
    (True, False)
    """


class prng_key(extended):
    """The kind of element types of random keys, for `issubdtype`.

    >>> from tinyxla import dtypes, random
    >>> dtypes.issubdtype(random.key(0).dtype, dtypes.prng_key), dtypes.issubdtype("uint32", dtypes.prng_key)
    (True, False)
    """


class KeyType:
    """The element type of keys of one generator. There is one object for each, so identity is equality.

    Attributes:
        implementation: the generator's name, such as "threefry2x32".
        name: of the type, such as "key<fry>".
        words: how many 32-bit words a key has.
        key_shape: the shape of these words in `key_data`.
        spec: what `key_impl` gives: the generator's name, or the type itself if a program has defined it.

    >>> from tinyxla import random
    >>> kind = random.key(0).dtype
    >>> kind, kind.implementation, kind.words
    (key<fry>, 'threefry2x32', 2)
    """

    __slots__ = ("implementation", "name", "words")

    type = prng_key
    kind = "V"  # as NumPy calls types of its own that are no numbers
    isnative = True

    def __init__(self, implementation: str, tag: str, words: int) -> None:
        self.implementation = implementation
        self.name = f"key<{tag}>"
        self.words = words

    @property
    def itemsize(self) -> int:
        """The size of a key in bytes."""
        return 4 * self.words

    @property
    def key_shape(self) -> tuple[int, ...]:
        return (self.words,)

    @property
    def spec(self) -> str | KeyType:
        return self.implementation

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return key_type_of, (self.implementation,)


ADVICE = "keys are no numbers; their words are random.key_data(keys), and functions of random draw numbers from them"


def numbers_only(dtype: Any) -> None:
    """An error for an element type of keys, where there must be one of numbers."""
    if isinstance(dtype, KeyType):
        raise DTypeError(f"There are no numbers of the element type {dtype.name}: {ADVICE}.")


_GENERATORS = (
    ("threefry2x32", "fry", 2),
    ("threefry4x32", "fry4", 4),
    ("rbg", "rbg", 4),
    ("unsafe_rbg", "urbg", 4),
    ("philox2x32", "phx2", 1),
    ("philox4x32", "phx4", 2),
)
KEY_TYPES = {row[0]: KeyType(*row) for row in _GENERATORS}  # by the generators' names


def key_type_of(implementation: str) -> KeyType:
    """The element type of keys of a generator."""
    return KEY_TYPES[implementation]
