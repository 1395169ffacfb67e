"""Filters, under the names of `jax.scipy.signal`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import promoted
from tinyxla.numpy.calculus import slid
from tinyxla.shapes import Shape
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array

ArrayLike = Any


def _pair(what: str, a: ArrayLike, b: ArrayLike, rank: int | None = None) -> tuple[Array, Array]:
    (x, y), _ = promoted(what, a, b, to_inexact=True)
    if x.ndim != y.ndim or (rank is not None and x.ndim != rank) or 0 in (*x.shape, *y.shape):
        wanted = "two arrays of one rank" if rank is None else "two matrices"
        raise ShapeError(f"{what}: takes {wanted}, not empty, but got {Shape.of(x)} and {Shape.of(y)}.")
    return x, y


def _zero_padded(what: str, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise ArgumentError(
            f"{what}: boundary must be 'fill' and fillvalue 0, but got {boundary!r} and {fillvalue!r}; pad the first "
            "array by numpy.pad, and use the mode 'valid'."
        )


def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Array:
    """The convolution of two arrays of any one rank.

    Args:
        in1, in2: arrays of one rank.
        mode: "full" (all sums), "same" (as many as the first array has elements, from the middle), or "valid" (those
            in which the arrays overlap completely).
        method: "direct", "fft", or "auto": by the sum's length.

    >>> convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    x, y = _pair("scipy.signal.convolve", in1, in2)
    if method not in ("auto", "direct", "fft"):
        raise ArgumentError(f"scipy.signal.convolve: method must be 'auto', 'direct' or 'fft', but got {method!r}.")
    if method == "fft" or (method == "auto" and min(x.size, y.size) >= 1 << 10):
        return fftconvolve(x, y, mode)
    return _convolved("scipy.signal.convolve", x, y, mode)


def _convolved(what: str, x: Array, y: Array, mode: str) -> Array:
    if mode == "valid" and all(m < k for m, k in zip(x.shape, y.shape, strict=True)):
        x, y = y, x
    return slid(what, x, tnp.flip(y), mode)


def convolve2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: float = 0
) -> Array:
    """The convolution of two matrices; modes as for `convolve`.

    >>> convolve2d(np.ones((2, 2)), np.ones((2, 2)), mode="valid")
    Array([[4.]], dtype=float32)
    """
    what = "scipy.signal.convolve2d"
    _zero_padded(what, boundary, fillvalue)
    return _convolved(what, *_pair(what, in1, in2, 2), mode)


def correlate(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Array:
    """The cross-correlation of two arrays of any one rank, the second conjugated; arguments as for `convolve`.

    >>> correlate(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    x, y = _pair("scipy.signal.correlate", in1, in2)
    return convolve(x, tnp.flip(tnp.conj(y)), mode, method)


def correlate2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: float = 0
) -> Array:
    """The cross-correlation of two matrices, the second conjugated; modes as for `convolve`.

    >>> correlate2d(np.ones((2, 2)), np.ones((2, 2)), mode="valid")
    Array([[4.]], dtype=float32)
    """
    what = "scipy.signal.correlate2d"
    _zero_padded(what, boundary, fillvalue)
    x, y = _pair(what, in1, in2, 2)
    if mode == "same":  # the middle is rounded to the other side than that of a convolution
        return tnp.flip(slid(what, tnp.flip(x), tnp.flip(tnp.conj(y)), mode))
    return _convolved(what, x, tnp.flip(tnp.conj(y)), mode)


def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Any = None) -> Array:
    """The convolution of two arrays as a product of Fourier transforms, faster where both are long.

    Args:
        in1, in2: arrays of one rank.
        mode: as for `convolve`.
        axes: along which to convolve (all, if None); the others broadcast.

    >>> fftconvolve(np.array([1.0, 2.0]), np.array([1.0, 1.0])).round(4)
    Array([1., 3., 2.], dtype=float32)
    """
    what = "scipy.signal.fftconvolve"
    if mode not in ("full", "same", "valid"):
        raise ArgumentError(f"{what}: mode must be 'full', 'same' or 'valid', but got {mode!r}.")
    x, y = _pair(what, in1, in2)
    given = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    along = [canonical_axis(d, x.ndim, what) for d in given]
    if mode == "valid" and all(x.shape[d] < y.shape[d] for d in along):
        x, y = y, x
    sizes = [x.shape[d] + y.shape[d] - 1 for d in along]
    padded = [_fast_size(n) for n in sizes]
    is_complex = x.dtype.kind == "c"
    forward, back = (tnp.fft.fftn, tnp.fft.ifftn) if is_complex else (tnp.fft.rfftn, tnp.fft.irfftn)
    product = back(forward(x, padded, along) * forward(y, padded, along), padded, along)
    spans = [slice(None)] * product.ndim
    for d, n in zip(along, sizes, strict=True):
        kept = {"full": n, "same": x.shape[d], "valid": x.shape[d] - y.shape[d] + 1}[mode]
        spans[d] = slice((n - kept) // 2, (n - kept) // 2 + kept)
    return product[tuple(spans)].astype(x.dtype)


def _fast_size(n: int) -> int:
    """The least size from n on with no prime factor above 5."""
    while True:
        left = n
        for p in (2, 3, 5):
            while left % p == 0:
                left //= p
        if left == 1:
            return n
        n += 1


def detrend(data: ArrayLike, axis: int = -1, type: str = "linear", bp: Any = 0) -> Array:
    """Lines along an axis without their mean ("constant"), or without the straight line of least squares.

    Args:
        data: an array.
        axis: along which the lines run.
        type: "linear" or "constant".
        bp: places at which a new line begins.

    >>> detrend(np.array([1.0, 2.0, 4.0]), type="constant").round(2)
    Array([-1.33, -0.33,  1.67], dtype=float32)
    """
    (x,), _ = promoted("scipy.signal.detrend", data, to_inexact=True)
    if type not in ("linear", "constant"):
        raise ArgumentError(f"scipy.signal.detrend: type must be 'linear' or 'constant', but got {type!r}.")
    if type == "constant":
        return x - tnp.mean(x, axis, keepdims=True)
    lines = tnp.moveaxis(x, axis, -1)
    n = lines.shape[-1]
    places = sorted({0, n, *np.atleast_1d(bp).tolist()})
    if places[0] < 0 or places[-1] > n:
        raise ArgumentError(f"scipy.signal.detrend: bp must be places from 0 to {n}, but got {bp!r}.")
    parts: list[Any] = []
    for low, high in itertools.pairwise(places):
        part = lines[..., low:high]
        steps = np.arange(high - low) - (high - low - 1) / 2
        weights = tnp.asarray(steps / max(np.sum(steps * steps), 1e-30), x.dtype)
        slope = tnp.sum(part * weights, -1, keepdims=True)
        parts.append(part - tnp.mean(part, -1, keepdims=True) - slope * tnp.asarray(steps, x.dtype))
    return tnp.moveaxis(tnp.concatenate(parts, -1), -1, axis)
