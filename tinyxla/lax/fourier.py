"""Discrete Fourier transforms."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from tinyxla.errors import AttributeValueError
from tinyxla.lax.operands import ArrayLike
from tinyxla.numpy.arguments import integers_of, shown
from tinyxla.numpy.fft import as_signal
from tinyxla.numpy.operations import fourier
from tinyxla.tracing.array import Array


class FftType(enum.IntEnum):
    """Which transform: of complex signals, back, of real signals, and back to these.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.fft(np.ones(8, np.float32), lax.FftType.RFFT, [8]).shape
    (5,)
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Transforms along the last dimensions, of which there are up to three.

    Args:
        x: an array. `RFFT` takes real numbers, the others complex ones.
        fft_type: a member of `FftType`, or its name. `IFFT` and `IRFFT` divide by the number of elements.
        fft_lengths: the lengths of the signals, one for each dimension. The coefficients of real signals are the first
            half of the last dimension, n // 2 + 1 of n; the others are their conjugates.

    Returns:
        Complex numbers of the shape of x; for `RFFT` with the last dimension n // 2 + 1, for `IRFFT` real numbers with
        the last of `fft_lengths`.

    Raises:
        ShapeError: the last dimensions do not have these lengths.

    Source: section "Fft" of the XLA documents.

    >>> import numpy as np
    >>> from tinyxla.lax import FftType, fft
    >>> fft(np.array([1.0, 2.0, 3.0, 4.0]), FftType.RFFT, (4,))
    Array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    name = fft_type.upper() if isinstance(fft_type, str) else getattr(fft_type, "name", None)
    if name not in FftType.__members__:
        names = ", ".join(FftType.__members__)
        raise AttributeValueError(f"lax.fft: fft_type must be one of {names}, but got {shown(fft_type)}.")
    value = as_signal("lax.fft", x, real=name == "RFFT")
    lengths = integers_of("lax.fft", "fft_lengths", fft_lengths)
    if not lengths:
        return value
    return fourier.fft(value, fft_type=name, fft_length=lengths)
