"""Random bits as functions of a state, and numbers drawn from a hidden one. `tinyxla.random` has keys instead."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.lax.operands import ArrayLike, DTypeLike, of_one_type
from tinyxla.numpy.arguments import array_of, python_dtype, shape_of, shown
from tinyxla.ops import bits, movement
from tinyxla.ops.random_bits import rng, rng_bit_generator as bit_generator
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import setting


class RandomAlgorithm(enum.IntEnum):
    """How bits are made; the default is Philox.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> algorithm = lax.RandomAlgorithm.RNG_THREE_FRY
    >>> state, bits = lax.rng_bit_generator(np.zeros(4, np.uint32), (3,), algorithm=algorithm)
    >>> bits.shape, bits.dtype
    ((3,), dtype('uint32'))
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


def rng_bit_generator(
    key: ArrayLike,
    shape: Sequence[int],
    dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Array, Array]:
    """Random bits from a state, and the state for the next ones. The same state gives the same bits.

    Args:
        key: the state: u64[2], or u64[3] for Philox; or the same in 32-bit words, u32[4] or u32[6].
        shape: of the bits.
        dtype: an unsigned integer type, or any other integer or floating one.
        algorithm: a member of `RandomAlgorithm`.
        out_sharding: accepted for JAX's sake; the one device there is.

    Returns:
        The next state and the bits.

    Source: section "RngBitGenerator" of the XLA documents.

    Raises:
        DTypeError: a key that is not of unsigned integers.
        ShapeError: a key of a shape that the algorithm does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import RandomAlgorithm, rng_bit_generator
    >>> key = np.array([3, 0, 4, 0], np.uint32)
    >>> state, bits = rng_bit_generator(key, (2,), algorithm=RandomAlgorithm.RNG_THREE_FRY)
    >>> state
    Array([3, 0, 5, 0], dtype=uint32)
    >>> bits
    Array([ 555017538, 3728210106], dtype=uint32)
    """
    what = "lax.rng_bit_generator"
    if out_sharding is not None:
        return placed_result(
            f"{what}: out_sharding", lambda: rng_bit_generator(key, shape, dtype, algorithm), (None, out_sharding)
        )
    given: Any = array_of(key, what)
    words = given.dtype == np.uint32
    if not words and given.dtype != np.uint64:
        raise DTypeError(f"{what}: the key must be of unsigned integers of 32 or 64 bits, but got {Shape.of(given)}.")
    if given.ndim != 1 or (words and given.size % 2):
        raise ShapeError(f"{what}: the key must be u64[2], u64[3], u32[4] or u32[6], but got {Shape.of(given)}.")
    wanted = Shape(element_type(python_dtype(dtype)), shape_of(what, shape))
    try:
        name = RandomAlgorithm(algorithm).name.lower()
    except (TypeError, ValueError):
        raise AttributeValueError(f"{what}: algorithm must be a RandomAlgorithm, but got {shown(algorithm)}.") from None
    state = given
    if words:
        pairs = movement.reshape_to(given, (given.size // 2, 2))
        state = bits.bitcast_convert(pairs, new_element_type=element_type(np.uint64))
    after: Any
    with setting("numpy_rank_promotion", "allow"):  # what the user says of promotion is not about the formulas here
        after, found = bit_generator(state, algorithm=name, shape=wanted)
    if words:
        pairs = bits.bitcast_convert(after, new_element_type=element_type(np.uint32))
        after = movement.reshape_to(pairs, (given.size,))
    return after, found


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Sequence[int]) -> Array:
    """Numbers drawn uniformly from a hidden state: other ones at every call.

    Args:
        a, b: scalars of one type, the ends of the interval; b does not belong to it.
        shape: of the result.

    Source: section "RngUniform" of the XLA documents.

    Returns:
        An array of this shape and of the type of a.

    Raises:
        ShapeError: limits that are not scalars.

    >>> from tinyxla.lax import rng_uniform
    >>> rng_uniform(3, 4, (2,))
    Array([3, 3], dtype=int32)
    """
    low, high = of_one_type("lax.rng_uniform", a, b)
    wanted = Shape(element_type(low.dtype), shape_of("lax.rng_uniform", shape))
    drawn: Any = rng(low, high, distribution="rng_uniform", shape=wanted)
    return drawn.with_weak_type(False)
