"""Window functions: weights that fade out towards both ends of a vector; and what one of them is made of.

Source: F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform" (1978).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.numpy.arguments import ArrayLike, counted, inexact_array, integer_of, number_of
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.promotion import default_float


def _window(what: str, M: Any, weights: Any) -> Array:
    """`weights` of the places from -1 to 1; of one place, the weight is 1."""
    count = integer_of(what, "M", M)
    if count <= 1:
        return ConcreteArray(np.ones(max(count, 0), default_float()))
    place = (2 * counted(what, count) - (count - 1)) / (count - 1)
    with np.errstate(all="ignore"):
        return ConcreteArray(np.asarray(weights(place)).astype(default_float()))


def bartlett(M: int) -> Array:
    """A triangle that is zero at both ends.

    Args:
        M: the number of points.

    Returns:
        A vector of M numbers.

    Raises:
        ArgumentError: a length that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.bartlett(5)
        Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return _window("bartlett", M, lambda t: 1 - np.abs(t))


def hanning(M: int) -> Array:
    """One period of a raised cosine.

    Args:
        M: the number of points.

    Returns:
        A vector of M numbers.

    Raises:
        ArgumentError: a length that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.hanning(5)
        Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return _window("hanning", M, lambda t: 0.5 + 0.5 * np.cos(np.pi * t))


def hamming(M: int) -> Array:
    """A raised cosine on a small pedestal.

    Args:
        M: the number of points.

    Returns:
        A vector of M numbers.

    Raises:
        ArgumentError: a length that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.hamming(3)
        Array([0.08, 1.  , 0.08], dtype=float32)
    """
    return _window("hamming", M, lambda t: 0.54 + 0.46 * np.cos(np.pi * t))


def blackman(M: int) -> Array:
    """A sum of two cosines with little leakage.

    Args:
        M: the number of points.

    Returns:
        A vector of M numbers.

    Raises:
        ArgumentError: a length that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.blackman(3)
        Array([-1.3877788e-17,  1.0000000e+00, -1.3877788e-17], dtype=float32)
    """
    return _window("blackman", M, lambda t: 0.42 + 0.5 * np.cos(np.pi * t) + 0.08 * np.cos(2 * np.pi * t))


def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of order 0.

    Args:
        x: real numbers.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.i0(jnp.array([0.0, 1.0])).round(4)
        Array([1.    , 1.2661], dtype=float32)
    """
    from tinyxla.lax.special import bessel_i0  # here, since that is made of functions of this package

    value = inexact_array(x, "i0")
    return bessel_i0(value).with_weak_type(value.weak_type)


@replayed
def kaiser(M: int, beta: ArrayLike) -> Array:
    """The window that has most of its energy in the main lobe, whose width grows with beta, which may be traced.

    Args:
        M: the number of points.
        beta: the shape parameter.

    Returns:
        A vector of M numbers.

    Raises:
        ArgumentError: `beta` that is not a real number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.kaiser(3, 5.0)
        Array([0.03671089, 1.        , 0.03671089], dtype=float32)
    """
    if isinstance(beta, Array) and not isinstance(beta, ConcreteArray):
        height = _window("kaiser", M, lambda t: np.sqrt(1 - t * t))
        if height.size <= 1:
            return height
        return arith.true_divide(i0(arith.multiply(beta, height)), i0(beta))
    steep = number_of("kaiser", "beta", beta)
    return _window("kaiser", M, lambda t: np.i0(steep * np.sqrt(1 - t * t)) / np.i0(steep) if steep else t * 0 + 1)
