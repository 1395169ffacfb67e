"""Cosine transforms, under the names of `jax.scipy.fft`.

Source: J. Makhoul, "A Fast Cosine Transform in One and Two Dimensions", IEEE Transactions on Acoustics, Speech and
Signal Processing 28 (1980): the transform of n numbers is a Fourier transform of these in another order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import (
    array_of,
    check_memory,
    choice_of,
    count_of,
    inexact_array,
    integer_of,
    integers_of,
    several_of,
)
from tinyxla.shapes import Shape
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.util.did_you_mean import missing as _missing


def _lines(what: str, x: Any, type: int, n: int | None, axis: int, norm: str | None) -> Array:
    """Lines of n elements along the last axis."""
    if integer_of(what, "type", type) != 2:
        raise ArgumentError(f"{what}: type must be 2, but got {type}.")
    if norm is not None:
        choice_of(what, "norm", norm, ("backward", "ortho"))
    value = inexact_array(x, what)
    if value.dtype.itemsize < 4:  # Fourier transforms are of 32 or 64 bits
        value = value.astype(np.float32)
    lines = tnp.moveaxis(value, canonical_axis(axis, value.ndim, what), -1)
    size = lines.shape[-1] if n is None else count_of(what, "n", n)
    if size == 0:
        raise ShapeError(f"{what}: the lengths must be positive, but got 0 for axis {axis} of {Shape.of(value)}.")
    check_memory(what, (*lines.shape[:-1], size))
    missing = max(0, size - lines.shape[-1])
    return tnp.pad(lines[..., :size], [(0, 0)] * (lines.ndim - 1) + [(0, missing)])


def _factors(n: int, norm: str | None, dtype: Any, rank: int) -> tuple[Any, Any]:
    """The twiddle factors and the scale of each element of lines of n, which are the last of `rank` axes."""
    twiddles = np.exp(-0.5j * np.pi * np.arange(n) / n)
    scale = np.full(n, 2.0)
    if norm == "ortho":
        scale = np.where(np.arange(n) == 0, math.sqrt(1 / n), math.sqrt(2 / n))
    line = (*[1] * (rank - 1), n)
    return twiddles.reshape(line).astype(np.result_type(dtype, np.complex64)), scale.reshape(line).astype(dtype)


def _of_parts(transform: Callable[..., Array]) -> Callable[..., Array]:
    """A linear transform of real arrays, which of complex ones is that of both parts."""

    @functools.wraps(transform)
    def apply(x: Any, *args: Any, **kwargs: Any) -> Array:
        value = array_of(x, f"scipy.fft.{transform.__name__}")
        if value.dtype.kind != "c":
            return transform(value, *args, **kwargs)
        return lax.complex(*(transform(part, *args, **kwargs) for part in (value.real, value.imag)))

    return apply


@_of_parts
def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The cosine transform of lines: the sums 2 sum_j x_j cos(pi k (2 j + 1) / (2 n)), scaled by `norm="ortho"` so that
    the transform is orthogonal.

    Args:
        x: an array; of complex numbers both parts are transformed.
        type: must be 2.
        n: the lines' length, to which they are cut or padded with zeros.
        axis: along which the lines run.
        norm: None or "ortho".

    Returns:
        An array of the shape of x, with the length n along the axis.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.fft import dct
    >>> dct(np.array([1.0, 1.0])).round(4)
    Array([4., 0.], dtype=float32)
    """
    lines = _lines("scipy.fft.dct", x, type, n, axis, norm)
    twiddles, scale = _factors(lines.shape[-1], norm, lines.dtype, lines.ndim)
    found = tnp.fft.fft(tnp.concatenate([lines[..., ::2], lines[..., 1::2][..., ::-1]], -1))
    return tnp.moveaxis((found * twiddles).real * scale, -1, axis)


@_of_parts
def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `dct`.

    Args:
        x: an array; of complex numbers both parts are transformed.
        type: must be 2.
        n: the length of the lines, to which they are cut or padded with zeros.
        axis: the axis of the lines.
        norm: None or "ortho".

    Returns:
        An array of the shape of x, with the length n along the axis.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.fft import idct
    >>> idct(np.array([4.0, 0.0])).round(4)
    Array([1., 1.], dtype=float32)
    """
    lines = _lines("scipy.fft.idct", x, type, n, axis, norm)
    size = lines.shape[-1]
    twiddles, scale = _factors(size, norm, lines.dtype, lines.ndim)
    scaled = lines / scale
    behind = tnp.concatenate([tnp.zeros_like(scaled[..., :1]), scaled[..., :0:-1]], -1)
    mixed = tnp.fft.ifft((scaled.astype(twiddles.dtype) - 1j * behind.astype(twiddles.dtype)) / twiddles).real
    order = np.empty(size, int)
    order[::2], order[1::2] = np.arange(size)[: (size + 1) // 2], np.arange(size)[(size + 1) // 2 :][::-1]
    return tnp.moveaxis(mixed[..., order], -1, axis)


def _several(
    one: Callable[..., Array], x: Any, type: int, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Array:
    what = f"scipy.fft.{one.__name__}n"
    value = array_of(x, what)
    lengths = None if s is None else integers_of(what, "s", s)
    last = range(-(value.ndim if lengths is None else len(lengths)), 0)
    given = last if axes is None else several_of(what, "axes", axes)
    along = [canonical_axis(d, value.ndim, what) for d in given]
    if len(set(along)) != len(along):
        raise ShapeError(f"{what}: the axes {tuple(given)} name a dimension twice.")
    if lengths is not None and len(lengths) != len(along):
        raise ShapeError(f"{what}: there must be as many lengths as axes, but got {lengths} for {tuple(given)}.")
    for k, axis in enumerate(along):
        value = one(value, type, None if lengths is None else lengths[k], axis, norm)
    return value


def dctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """`dct` along several axes (all, if None), with lengths s.

    Args:
        x: an array; of complex numbers both parts are transformed.
        type: must be 2.
        s: the lengths along the axes.
        axes: the axes; if None all, or as many of the last ones as there are lengths.
        norm: None or "ortho".

    Returns:
        An array of the shape of x, with the lengths s along the axes.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.fft import dctn
    >>> dctn(np.ones((2, 2))).round(4)[0, 0]
    Array(16., dtype=float32)
    """
    return _several(dct, x, type, s, axes, norm)


def idctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The inverse of `dctn`.

    Args:
        x: an array; of complex numbers both parts are transformed.
        type: must be 2.
        s: the lengths along the axes.
        axes: the axes; if None all, or as many of the last ones as there are lengths.
        norm: None or "ortho".

    Returns:
        An array of the shape of x, with the lengths s along the axes.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.fft import dctn, idctn
    >>> idctn(dctn(np.ones((2, 2)))).round(4)[0]
    Array([1., 1.], dtype=float32)
    """
    return _several(idct, x, type, s, axes, norm)


__getattr__ = _missing(__name__)


__all__ = ["dct", "dctn", "idct", "idctn"]


def __dir__() -> list[str]:
    return __all__
