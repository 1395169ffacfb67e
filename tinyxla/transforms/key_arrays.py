"""Arrays of random keys: an array of 32-bit words and the generator that they are for.

Graphs have words alone. The library's own pytrees take a key array for a container of its words, so transformations
know nothing of keys; those that move axes of arguments count a key's axes without the last one, along which its words
stand. An operation that only moves elements works on keys by one mechanism: it is mapped over the axis of the words.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from tinyxla.errors import ArgumentError, ConcretizationError, DTypeError, PromotionError, ShapeError
from tinyxla.ops import Op, elementwise, movement
from tinyxla.ops.reduction import reduce_and, reduce_or
from tinyxla.shapes import KEY_TYPES, KeyType, Shape
from tinyxla.shapes.key_types import ADVICE
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import Interpreted, Trace, Tracer
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.tracing.shardings import NamedSharding, Shard, Sharding
from tinyxla.transforms.batch import batch

_WORD = np.dtype(np.uint32)

# --- operations -------------------------------------------------------------------------------------------------------

# Operations that only move elements: the operands that are keys. Others are indices and conditions.
_MOVED: dict[str, Callable[[int], tuple[int, ...]]] = {
    **dict.fromkeys(
        ("broadcast", "dynamic-slice", "gather", "reshape", "reverse", "slice", "transpose"), lambda n: (0,)
    ),
    **dict.fromkeys(("dynamic-update-slice", "pad"), lambda n: (0, 1)),
    "concatenate": lambda n: tuple(range(n)),
    "select": lambda n: (1, 2),
}


class _KeyTrace(Trace):
    """Where operations on keys go. It is always active, and inside of all other traces."""

    what = "an operation on random keys"

    def __init__(self) -> None:
        self.level = math.inf
        self.active = True

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        if op is elementwise.compare and attributes["direction"] in ("EQ", "NE"):
            return _compared(attributes["direction"], *operands)
        moved = _MOVED.get(op.name)
        if moved is None:
            refuse(op.name, *operands)
        check_same_keys(op.name, *(operands[k] for k in moved(len(operands))))
        return map_over_words(lambda *words: op(*words, **attributes), *operands)


def _compared(direction: str, x: Any, y: Any) -> Any:
    """Keys are equal if all of their words are."""
    check_same_keys("compare", x, y)
    if x.shape != y.shape:
        raise ShapeError(f"compare: keys must have one shape, but got {Shape.of(x)} and {Shape.of(y)}.")
    compare, fold = (elementwise.eq, reduce_and) if direction == "EQ" else (elementwise.ne, reduce_or)
    return fold(compare(x.words, y.words), (x.ndim,))


def map_over_words(function: Callable[..., Any], *arrays: Any) -> KeyArray:
    """A function that only moves elements, of arrays of which some are keys: it is called with their words, mapped over
    the last axis."""
    dtype: Any = next(x.dtype for x in arrays if isinstance(x, KeyArray))
    values = [x.words if isinstance(x, KeyArray) else x for x in arrays]
    axes = [x.ndim if isinstance(x, KeyArray) else None for x in arrays]
    ((found, axis),) = batch(lambda *words: [function(*words)], dtype.words, values, axes)
    rank = found.ndim - (axis is not None)
    words: Any = movement.align_axis(found, axis, rank, dtype.words)
    return KeyArray(dtype, words)


def refuse(what: str, *arrays: Any) -> NoReturn:
    """The error for what is not defined on keys."""
    types = ", ".join(dict.fromkeys(x.dtype.name for x in arrays if isinstance(x, KeyArray)))
    raise DTypeError(f"{what}: got random keys of {types}, but {ADVICE}.")


def check_same_keys(what: str, *arrays: Any) -> None:
    """An error unless all arrays have keys of one generator."""
    for x in arrays:
        if not isinstance(x, KeyArray):
            other = Shape.of(x) if isinstance(x, Array) else repr(x)
            raise PromotionError(f"{what}: got random keys together with {other}, but {ADVICE}.")
    types = dict.fromkeys(x.dtype.name for x in arrays)
    if len(types) > 1:
        raise PromotionError(f"{what}: got keys of different generators, {' and '.join(types)}; make them of one.")


# --- arrays -----------------------------------------------------------------------------------------------------------


class KeyArray(Interpreted):
    """An array of random keys: concrete, or inside a transformed function.

    It can be indexed, reshaped, compared and the like, but there is no arithmetic on keys.

    Attributes:
        dtype: the element type, of the keys' generator.
        words: the keys as unsigned integers, along one more axis than the array shows.

    >>> from tinyxla import random
    >>> keys = random.split(random.key(0), 3)
    >>> keys.shape, keys[0].dtype, random.key_data(keys).shape
    ((3,), key<fry>, (3, 2))
    """

    __slots__ = ("dtype", "words")

    owner = _KeyTrace()
    weak_type = False
    dtype: Any
    words: Array

    def __init__(self, dtype: KeyType, words: Array) -> None:
        if words.dtype != _WORD or words.shape[-1:] != (dtype.words,):
            raise ShapeError(
                f"A key {dtype.name} is a vector of {dtype.words} words u32[{dtype.words}] along the last axis of an "
                f"array, but got {Shape.of(words)}. Of a key without dimensions no axis can be mapped, scanned or "
                "taken away."
            )
        self.dtype = dtype
        self.words = words

    @property
    def shape(self) -> tuple[int, ...]:
        return self.words.shape[:-1]

    @property
    def sharding(self) -> Sharding:
        """Where the keys are: their words are on one device."""
        layout = self.words.sharding
        is_short = isinstance(layout, NamedSharding) and len(layout.spec) <= self.ndim
        return layout if is_short else layout.without_dimension(self.ndim, self.ndim + 1)

    @property
    def committed(self) -> bool:
        """Whether the keys were placed."""
        return self.words.committed

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are of this process."""
        return self.words.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of the keys."""
        return self.words.is_fully_replicated

    @property
    def addressable_shards(self) -> list[Shard]:
        """The keys on the devices of this process."""
        return list(map(self._part, self.words.addressable_shards))

    @property
    def global_shards(self) -> list[Shard]:
        """The keys on all devices; those of other processes have no data here."""
        return list(map(self._part, self.words.global_shards))

    def _part(self, words: Shard) -> Shard:
        return Shard(words.device, words.index[:-1], words.replica_id, lambda: KeyArray(self.dtype, words.data))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        refuse(wanted, self)

    primal = concrete

    def buffer(self) -> NoReturn:
        """No array of numbers holds keys.

        Raises:
            DTypeError: always; `random.key_data` gives the words of keys.

        >>> from tinyxla import random
        >>> random.key(0).buffer()
        Traceback (most recent call last):
            ...
        tinyxla.errors.DTypeError: The value: got random keys of key<fry>, but keys are no numbers; their words are ...
        """
        refuse("The value", self)

    _value = property(buffer)

    def with_weak_type(self, weak: bool) -> KeyArray:
        return self

    def block_until_ready(self) -> KeyArray:
        return self

    def copy(self) -> KeyArray:
        return KeyArray(self.dtype, self.words.copy())

    def delete(self) -> None:
        """Let go of the memory; the array has no keys any more.

        >>> from tinyxla import random
        >>> key = random.key(0)
        >>> key.delete()
        >>> key.is_deleted()
        True
        """
        self.words.delete()  # type: ignore[attr-defined]

    def is_deleted(self) -> bool:
        """Whether `delete` was called, or the keys were donated.

        Returns:
            True or False.

        >>> from tinyxla import random
        >>> random.key(0).is_deleted()
        False
        """
        return isinstance(self.words, ConcreteArray) and self.words.is_deleted()

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise ArgumentError("A key without dimensions cannot be iterated over; random.split gives several.")
        return (KeyArray(self.dtype, words) for words in self.words)

    def __getitem__(self, index: Any) -> KeyArray:
        if type(index) is int and len(self.words.shape) > 1:
            return KeyArray(self.dtype, self.words[index])
        return super().__getitem__(index)  # type: ignore[return-value]

    def __repr__(self) -> str:
        if isinstance(self.words, Tracer):
            return f"Tracer<{Shape.of(self)} of {self.words.owner.what}>"
        return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{self.words}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __copy__(self) -> KeyArray:
        return KeyArray(self.dtype, self.words)

    def __deepcopy__(self, memo: dict[int, Any]) -> KeyArray:
        return KeyArray(self.dtype, copy.deepcopy(self.words, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self.dtype.implementation, self.words)


KeyArray.__name__ = "Array"  # which Python's own messages show


def _restored(implementation: str, words: Array) -> KeyArray:
    return KeyArray(KEY_TYPES[implementation], words)


def of_key_type(what: str, x: Any, dtype: KeyType) -> Any:
    """An array that must have keys of that type already: nothing can be converted to keys."""
    if x.dtype is not dtype:
        raise DTypeError(
            f"{what}: {Shape.of(x)} cannot be converted to random keys {dtype.name}; random.wrap_key_data makes keys "
            "of their words."
        )
    return x


def filled(dtype: KeyType, word: int, shape: tuple[int, ...] = ()) -> KeyArray:
    """Keys of which all words are one number."""
    return KeyArray(dtype, movement.full(word, _WORD, (*shape, dtype.words)))  # type: ignore[arg-type]


# --- containers of words ----------------------------------------------------------------------------------------------


def of_words(dtype: KeyType, children: Sequence[Any]) -> Any:
    """Keys of an array of words; of what stands for words in a tree of other things, what stands for keys."""
    (words,) = children
    if isinstance(words, np.ndarray):
        if words.dtype == float0:  # the derivative by keys: there is none
            return np.zeros(words.shape[:-1], float0)
        words = as_array(words)
    if isinstance(words, Array) and words.dtype == _WORD:
        return KeyArray(dtype, words)
    return words
