"""Divisors of integers, and the bits of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import AttributeValueError, DTypeError
from tinyxla.numpy.arguments import ArrayLike, array_of, broadcasted, like, listed, of_rank, promoted
from tinyxla.numpy.creation import arange
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.indexing.take_where import where
from tinyxla.numpy.manipulation import moveaxis, ravel, reshape
from tinyxla.numpy.padding import pad
from tinyxla.numpy.reductions import any, sum
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import of_one
from tinyxla.transforms.control_flow import while_
from tinyxla.util.tracebacks import boundary


def _integers(what: str, x1: ArrayLike, x2: ArrayLike) -> list[Any]:
    pair, (dtype, _) = promoted(what, x1, x2)
    if not element_type(dtype).is_integer:
        raise DTypeError(f"{what}: not defined for {dtype.name}; the arguments must be integers.")
    return [arith.abs(x) for x in broadcasted(what, pair)]


@replayed
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The greatest common divisors of integers, by Euclid's algorithm.

    Args:
        x1, x2: integers.

    Returns:
        An array of the common shape.

    Raises:
        DTypeError: what are no integers.
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.numpy import gcd
    >>> gcd(12, np.array([8, 9]))
    Array([4, 3], dtype=int32)
    """

    def step(a: Any, b: Any) -> list[Any]:
        going = arith.not_equal(b, 0)
        return [where(going, b, a), where(going, arith.remainder(a, where(going, b, 1)), b)]

    pair = _integers("gcd", x1, x2)
    shapes = [Shape.of(x) for x in pair]
    condition = of_one(lambda a, b: any(arith.not_equal(b, 0)), shapes, "gcd_condition")
    found = while_(*pair, condition=condition, body=trace(step, shapes, "gcd")[0])[0]
    return arith.abs(found)  # the modulus of the lowest integer is negative


@replayed
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The least common multiples of integers; 0 where one of them is.

    Args:
        x1, x2: integers.

    Returns:
        An array of the common shape.

    Raises:
        DTypeError: what are no integers.
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.numpy import lcm
    >>> lcm(4, np.array([6, 0]))
    Array([12,  0], dtype=int32)
    """
    a, b = _integers("lcm", x1, x2)
    divisor = gcd(a, b)
    return where(arith.equal(divisor, 0), 0, arith.multiply(a, arith.floor_divide(b, where(divisor == 0, 1, divisor))))


def _weights(what: str, bitorder: str) -> Any:
    if bitorder not in ("big", "little"):
        raise AttributeValueError(f"{what}: bitorder must be 'big' or 'little', but is {bitorder!r}.")
    return arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]  # which loops compute, not load


@replayed
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight elements each, what is not zero counting as 1, as the bits of a byte; the last byte is filled up by zeros.

    Args:
        a: integers or booleans.
        axis: the axis; None for the flattened array.
        bitorder: "big" or "little": whether the first element is the highest or the lowest bit.

    Returns:
        An array of uint8, with an eighth of the size along the axis.

    Raises:
        DTypeError: what are no integers or booleans.

    >>> import numpy as np
    >>> from tinyxla.numpy import packbits
    >>> packbits(np.array([1, 0, 1]))
    Array([160], dtype=uint8)
    """
    x, shifts = listed(a, "packbits"), _weights("packbits", bitorder)
    if element_type(x.dtype).is_inexact:
        raise DTypeError(f"packbits: the elements must be integers or booleans, but are {x.dtype.name}.")
    x = ravel(x) if axis is None else x
    at = canonical_axis(-1 if axis is None else axis, x.ndim, "packbits")
    rest = -x.shape[at] % 8
    bits: Any = arith.not_equal(x, like(0, x)).astype(np.uint8)
    bits = pad(bits, [(0, rest if d == at else 0) for d in range(x.ndim)])
    grouped = reshape(bits, (*x.shape[:at], (x.shape[at] + rest) // 8, 8, *x.shape[at + 1 :]))
    return sum(
        arith.left_shift(grouped, reshape(shifts, (*[1] * (at + 1), 8, *[1] * (x.ndim - 1 - at)))),
        at + 1,
        dtype=np.uint8,
    )


@boundary
def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """The bits of bytes, each as a byte; `count` of them (without so many of the last, if it is negative).

    Args:
        a: bytes (uint8).
        axis: the axis; None for the flattened array.
        count: the number of bits.
        bitorder: "big" or "little": whether the first element is the highest or the lowest bit.

    Returns:
        An array of uint8, with eight times the size along the axis.

    Raises:
        DTypeError: what is no uint8 array.

    >>> import numpy as np
    >>> from tinyxla.numpy import unpackbits
    >>> unpackbits(np.array([160], np.uint8), count=3)
    Array([1, 0, 1], dtype=uint8)
    """
    x, shifts = array_of(a, "unpackbits"), _weights("unpackbits", bitorder)
    if x.dtype != np.uint8:
        raise DTypeError(f"unpackbits: the elements must be uint8, but are {x.dtype.name}.")
    x = ravel(x) if axis is None else x
    at = canonical_axis(-1 if axis is None else axis, x.ndim, "unpackbits")
    bits: Any = arith.bitwise_and(
        arith.right_shift(moveaxis(x, at, -1)[..., None], of_rank(shifts, x.ndim + 1)), np.uint8(1)
    )
    flat: Any = reshape(bits, (*bits.shape[:-2], bits.shape[-2] * 8))
    if count is not None and count > flat.shape[-1]:
        flat = pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, count - flat.shape[-1])])
    return moveaxis(flat[..., :count], -1, at)


__all__ = ["gcd", "lcm", "packbits", "unpackbits"]
