"""Filters, under the names of `jax.scipy.signal`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    canonical_axes,
    check_memory,
    choice_of,
    count_of,
    integers_of,
    is_several,
    number_of,
    of_rank,
    promoted,
    shown,
    with_flags,
)
from tinyxla.numpy.calculus import slid
from tinyxla.ops.products.precision import PrecisionLike, operand_precision
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import join_types
from tinyxla.util.did_you_mean import missing as _missing

_MODES = ("full", "same", "valid")


def _pair(what: str, a: ArrayLike, b: ArrayLike, rank: int | None = None) -> tuple[Array, Array]:
    (x, y), _ = promoted(what, a, b, to_inexact=True)
    if x.ndim != y.ndim or (rank is not None and x.ndim != rank) or 0 in (*x.shape, *y.shape):
        wanted = "two arrays of one rank" if rank is None else "two matrices"
        raise ShapeError(f"{what}: takes {wanted}, not empty, but got {Shape.of(x)} and {Shape.of(y)}.")
    return x, y


def _zero_padded(what: str, boundary: str, fillvalue: Any) -> None:
    if str(boundary) != "fill" or number_of(what, "fillvalue", fillvalue) != 0:
        raise ArgumentError(
            f"{what}: boundary must be 'fill' and fillvalue 0, but got {shown(boundary)} and {shown(fillvalue)}; "
            "pad the first array by numpy.pad, and use the mode 'valid'."
        )


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """The convolution of two arrays of any one rank.

    Args:
        in1, in2: arrays of one rank.
        mode: "full" (all sums), "same" (as many as the first array has elements, from the middle), or "valid" (those
            in which the arrays overlap completely).
        method: "direct", "fft", or "auto": by the sum's length.
        precision: as for `lax.conv_general_dilated`; sums always have the precision of the elements' type.

    Returns:
        An array of the rank of the inputs.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import convolve
    >>> convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    x, y = _pair("scipy.signal.convolve", in1, in2)
    choice_of("scipy.signal.convolve", "method", method, ("auto", "direct", "fft"))
    if method == "fft" or (method == "auto" and min(x.size, y.size) >= 1 << 10):
        operand_precision("scipy.signal.convolve", precision)
        return fftconvolve(x, y, mode)
    return _convolved("scipy.signal.convolve", x, y, mode, precision)


def _larger_first(what: str, mode: str, x: Array, y: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    """The arrays in the order in which the second lies inside the first, for the mode "valid"."""
    if mode != "valid" or all(x.shape[d] >= y.shape[d] for d in axes):
        return x, y
    if all(x.shape[d] <= y.shape[d] for d in axes):
        return y, x
    raise ShapeError(
        f"{what}: in the mode 'valid' one array must be as large as the other along all axes, but got {Shape.of(x)} "
        f"and {Shape.of(y)}."
    )


def _convolved(what: str, x: Array, y: Array, mode: str, precision: PrecisionLike) -> Array:
    choice_of(what, "mode", mode, _MODES)
    x, y = _larger_first(what, mode, x, y, range(x.ndim))
    return slid(what, x, tnp.flip(y), mode, precision)


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionLike = None,
) -> Array:
    """The convolution of two matrices; modes and precision as for `convolve`.

    Args:
        in1, in2: matrices.
        mode, precision: as for `convolve`.
        boundary: must be "fill".
        fillvalue: must be 0.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import convolve2d
    >>> convolve2d(np.ones((2, 2)), np.ones((2, 2)), mode="valid")
    Array([[4.]], dtype=float32)
    """
    what = "scipy.signal.convolve2d"
    _zero_padded(what, boundary, fillvalue)
    return _convolved(what, *_pair(what, in1, in2, 2), mode, precision)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """The cross-correlation of two arrays of any one rank, the second conjugated; arguments as for `convolve`.

    Args:
        in1, in2: arrays of one rank.
        mode, method, precision: as for `convolve`.

    Returns:
        An array of the rank of the inputs.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import correlate
    >>> correlate(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    x, y = _pair("scipy.signal.correlate", in1, in2)
    return convolve(x, tnp.flip(tnp.conj(y)), mode, method, precision)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionLike = None,
) -> Array:
    """The cross-correlation of two matrices, the second conjugated; modes and precision as for `convolve`.

    Args:
        in1, in2: matrices.
        mode, precision: as for `convolve`.
        boundary: must be "fill".
        fillvalue: must be 0.

    Returns:
        A matrix.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import correlate2d
    >>> correlate2d(np.ones((2, 2)), np.ones((2, 2)), mode="valid")
    Array([[4.]], dtype=float32)
    """
    what = "scipy.signal.correlate2d"
    _zero_padded(what, boundary, fillvalue)
    x, y = _pair(what, in1, in2, 2)
    choice_of(what, "mode", mode, _MODES)
    if mode == "same":  # the middle is rounded to the other side than that of a convolution
        return tnp.flip(slid(what, tnp.flip(x), tnp.flip(tnp.conj(y)), mode, precision))
    return _convolved(what, x, tnp.flip(tnp.conj(y)), mode, precision)


def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Any = None) -> Array:
    """The convolution of two arrays as a product of Fourier transforms, faster where both are long.

    Args:
        in1, in2: arrays of one rank.
        mode: as for `convolve`.
        axes: along which to convolve (all, if None); the others broadcast.

    Returns:
        An array of the rank of the inputs.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import fftconvolve
    >>> fftconvolve(np.array([1.0, 2.0]), np.array([1.0, 1.0])).round(4)
    Array([1., 3., 2.], dtype=float32)
    """
    what = "scipy.signal.fftconvolve"
    choice_of(what, "mode", mode, _MODES)
    x, y = _pair(what, in1, in2)
    along = canonical_axes(what, axes, x.ndim)
    x, y = _larger_first(what, mode, x, y, along)
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


def detrend(data: ArrayLike, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: Any = None) -> Array:
    """Lines along an axis without their mean ("constant"), or without the straight line of least squares.

    Args:
        data: an array.
        axis: along which the lines run.
        type: "linear" or "constant".
        bp: places at which a new line begins.
        overwrite_data: accepted for compatibility.

    Returns:
        An array of the shape of `data`.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import detrend
    >>> detrend(np.array([1.0, 2.0, 4.0]), type="constant").round(2)
    Array([-1.33, -0.33,  1.67], dtype=float32)
    """
    what = "scipy.signal.detrend"
    (x,), _ = promoted(what, data, to_inexact=True)
    choice_of(what, "type", type, ("linear", "constant"))
    if type == "constant":
        return x - tnp.mean(x, axis, keepdims=True)
    lines = tnp.moveaxis(x, axis, -1)
    n = lines.shape[-1]
    places = sorted({0, n, *integers_of(what, "bp", bp if is_several(bp) else [bp])})
    if places[0] < 0 or places[-1] > n:
        raise ArgumentError(f"{what}: bp must be places from 0 to {n}, but got {bp!r}.")
    parts: list[Any] = []
    for low, high in itertools.pairwise(places):
        part = lines[..., low:high]
        steps = np.arange(high - low) - (high - low - 1) / 2
        steps = steps.reshape(*[1] * (lines.ndim - 1), -1)
        weights = tnp.asarray(steps / max(np.sum(steps * steps), 1e-30), x.dtype)
        slope = tnp.sum(part * weights, -1, keepdims=True)
        parts.append(part - tnp.mean(part, -1, keepdims=True) - slope * tnp.asarray(steps, x.dtype))
    return tnp.moveaxis(tnp.concatenate(parts, -1), -1, axis)


# --- spectra by short segments ----------------------------------------------------------------------------------------


def _triangular(size: int) -> np.ndarray[Any, Any]:
    half = (size + 1) / 2
    return 1 - np.abs(np.arange(size) - (size - 1) / 2) / (half if size % 2 else size / 2)


_WINDOWS = {
    "hann": np.hanning,
    "hanning": np.hanning,
    "hamming": np.hamming,
    "blackman": np.blackman,
    "bartlett": np.bartlett,
    "triang": _triangular,
    "boxcar": np.ones,
}
_BOUNDARIES: dict[str, dict[str, Any]] = {  # arguments of `pad`
    "zeros": {"mode": "constant"},
    "constant": {"mode": "edge"},
    "even": {"mode": "reflect"},
    "odd": {"mode": "reflect", "reflect_type": "odd"},
}


class _Segments(NamedTuple):
    """How a signal is cut into segments that overlap, and what each of them is multiplied by."""

    window: Array
    size: int
    step: int
    transformed: int  # the length of a segment's transform

    @staticmethod
    def of(
        what: str, dtype: np.dtype[Any], window: Any, size: int | None, overlap: int | None, transformed: int | None
    ) -> _Segments:
        """`dtype`: that of the signal, whose precision a window by name has, with 32 bits at least."""
        size, overlap, transformed = (
            None if n is None else count_of(what, name, n)
            for name, n in (("nperseg", size), ("noverlap", overlap), ("nfft", transformed))
        )
        precision = np.float64 if dtype.name in ("float64", "complex128") else np.float32
        words: Any = window if isinstance(window, tuple) and window else [window]
        name, *parameters = words
        if not isinstance(name, str):
            (weights,), _ = promoted(what, window, to_inexact=True)
            size = weights.size if size is None else size
            if weights.shape != (size,):
                raise ShapeError(f"{what}: window must have nperseg = {size} elements, but got {Shape.of(weights)}.")
        elif name == "kaiser" and size is not None and len(parameters) == 1:
            weights = tnp.kaiser(size + 1, *parameters)[:-1].astype(precision)
        elif name in _WINDOWS and size is not None and not parameters:
            check_memory(what, (size,))
            weights = tnp.asarray(_WINDOWS[name](size + 1)[:-1] if size > 1 else np.ones(size), precision)
        else:
            raise ArgumentError(f"{what}: window must be an array, ('kaiser', beta) or one of {list(_WINDOWS)}.")
        overlap = size // 2 if overlap is None else overlap
        transformed = size if transformed is None else transformed
        if not 0 <= overlap < size <= transformed:
            raise ArgumentError(
                f"{what}: 0 <= noverlap < nperseg <= nfft must hold, but got {overlap}, {size} and {transformed}."
            )
        return _Segments(weights, size, size - overlap, transformed)

    def places(self, count: int) -> np.ndarray[Any, Any]:
        """Where the elements of the first segments are, one row for each."""
        return np.arange(count)[:, None] * self.step + np.arange(self.size)

    def weighted(self, parts: Any) -> Any:
        """Segments times the window, in their common type."""
        dtype = join_types((parts.dtype, False), (self.window.dtype, False))[0]
        return parts.astype(dtype) * of_rank(self.window.astype(dtype), parts.ndim)

    def transforms(self, x: Array, trend: Any, one_sided: bool) -> Array:
        """The transforms of the segments of lines, [..., segment, frequency]."""
        parts = x[..., self.places((x.shape[-1] - self.size) // self.step + 1)]
        if trend:
            parts = array_of(trend(parts), "detrend") if callable(trend) else detrend(parts, type=trend)
        found = self.weighted(parts)
        return tnp.fft.rfft(found.real, self.transformed) if one_sided else tnp.fft.fft(found, self.transformed)

    def frequencies(self, fs: Array, one_sided: bool, dtype: np.dtype[Any]) -> Array:
        frequencies = tnp.fft.rfftfreq if one_sided else tnp.fft.fftfreq
        return frequencies(self.transformed, 1 / fs.astype(dtype), dtype=dtype)


def _rate(what: str, fs: Any) -> Array:
    rate = array_of(fs, what)
    if rate.ndim or rate.dtype.kind == "c":
        raise ArgumentError(f"{what}: fs must be a real number, but got {shown(fs)}.")
    return rate


def _scale(what: str, scaling: str, window: Array, fs: Any) -> Array:
    choice_of(what, "scaling", scaling, ("density", "spectrum"))
    return 1 / (fs * tnp.sum(window * window)) if scaling == "density" else 1 / tnp.sum(window) ** 2


@with_flags
def stft(
    x: ArrayLike,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """The frequencies, the times, and the Fourier transforms of segments of a signal that overlap.

    Args:
        x: a signal along `axis`, in whose place the frequencies are; the segments are the last axis of the result.
        fs: elements in a unit of time.
        window: what segments are multiplied by: a name, ("kaiser", beta), or an array.
        nperseg, noverlap, nfft: the elements of a segment, those that it shares with the next one (half of them, if
            None), and the length to which it is filled with zeros.
        detrend: False, or how each segment is freed of its trend, as for `detrend`, or a function.
        return_onesided: leave out the negative frequencies, if x is real.
        boundary: by what half a segment is put in front and behind: "zeros", "constant", "even", "odd", or
            None.
        padded: fill the end with zeros, so that the segments hold all elements.
        axis: the axis of the signals.

    Source: documentation of `scipy.signal.stft`.

    Returns:
        The frequencies, the times and the transforms.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import stft
    >>> stft(np.ones(8), nperseg=4)[2][:, 1].real
    Array([ 1. , -0.5,  0. ], dtype=float32)
    """
    what = "scipy.signal.stft"
    (signal,), _ = promoted(what, x, to_inexact=True)
    signal = tnp.moveaxis(signal, axis, -1)
    rate = _rate(what, fs)
    cut = _Segments.of(
        what, signal.dtype, window, min(count_of(what, "nperseg", nperseg), signal.shape[-1]), noverlap, nfft
    )
    sides = [(0, 0)] * (signal.ndim - 1)
    if boundary is not None:
        choice_of(what, "boundary", boundary, _BOUNDARIES)
        signal = tnp.pad(signal, [*sides, (cut.size // 2, cut.size // 2)], **_BOUNDARIES[boundary])
    if padded:
        signal = tnp.pad(signal, [*sides, (0, -(signal.shape[-1] - cut.size) % cut.step)])
    one_sided = return_onesided and signal.dtype.kind != "c"
    found = cut.transforms(signal, detrend, one_sided)
    found = found * tnp.sqrt(_scale(what, "spectrum", cut.window, rate)).astype(found.dtype)
    dtype = tnp.finfo(found.dtype).dtype
    steps = tnp.arange(found.shape[-2], dtype=dtype) * cut.step
    times = (steps + (cut.size / 2 if boundary is None else 0.0)) / rate.astype(dtype)
    return (
        cut.frequencies(rate, one_sided, dtype),
        times,
        tnp.moveaxis(tnp.moveaxis(found, -2, -1), -2, axis - (axis < 0)),
    )


@with_flags
def istft(
    Zxx: ArrayLike,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The times and the signal whose `stft`, with the same arguments, Zxx is: the segments are added, and divided by
    the sum of their windows' squares.

    Source: documentation of `scipy.signal.istft`.

    Args:
        Zxx: transforms of segments, as `stft` gives them.
        fs, window, nperseg, noverlap, nfft: as for `stft`.
        input_onesided: whether the negative frequencies are left out.
        boundary: whether the signal was extended at its ends.
        time_axis, freq_axis: the axes of segments and of frequencies.

    Returns:
        The times and the signal.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import istft, stft
    >>> istft(stft(np.arange(8.0), nperseg=4)[2])[1].round(4)
    Array([0., 1., 2., 3., 4., 5., 6., 7.], dtype=float32)
    """
    what = "scipy.signal.istft"
    (given,), _ = promoted(what, Zxx, to_inexact=True)
    lines = tnp.moveaxis(given, (time_axis, freq_axis), (-2, -1))
    whole = 2 * (lines.shape[-1] - 1) if input_onesided else lines.shape[-1]
    if nperseg is not None:
        nperseg = count_of(what, "nperseg", nperseg)
    if input_onesided and nperseg == whole + 1:  # which has as many frequencies
        whole += 1
    size, transformed = whole if nperseg is None else nperseg, whole if nfft is None else nfft
    cut = _Segments.of(what, lines.dtype, window, size, noverlap, transformed)
    back = tnp.fft.irfft if input_onesided else tnp.fft.ifft
    parts = cut.weighted(back(lines, cut.transformed)[..., : cut.size])
    parts = parts * tnp.sum(cut.window).astype(parts.dtype)
    places = cut.places(parts.shape[-2])
    size = int(places.max()) + 1
    total = tnp.zeros((*parts.shape[:-2], size), parts.dtype).at[..., places].add(parts)
    weight = tnp.zeros(size, cut.window.dtype).at[places].add(cut.window**2)
    inside = slice(cut.size // 2, size - cut.size // 2) if boundary else slice(None)
    found = (total / of_rank(tnp.where(weight > 1e-10, weight, 1), total.ndim).astype(total.dtype))[..., inside]
    target = min(time_axis % given.ndim, freq_axis % given.ndim)
    dtype = tnp.finfo(found.dtype).dtype
    return tnp.arange(found.shape[-1], dtype=dtype) / _rate(what, fs).astype(dtype), tnp.moveaxis(found, -1, target)


@with_flags
def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The frequencies, and the cross power of two signals at them: of their segments' transforms, one conjugated times
    the other, the mean or median.

    Args:
        x, y: signals along `axis`; the shorter one is filled with zeros. None is x.
        scaling: "density" (power for a unit of frequency) or "spectrum" (power).
        average: "mean" or "median".
        The others: as for `stft`; the whole signal is one segment if `nperseg` is None (SciPy takes 256 elements).
        fs, window, nperseg, noverlap, nfft, detrend, return_onesided: as for `stft`.
        axis: the axis of the signals.

    Source: documentation of `scipy.signal.csd`; B. Allen et al., "FINDCHIRP", appendix B (the median's bias).

    Returns:
        The frequencies, and the cross power with the frequencies in place of the axis.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import csd
    >>> csd(np.arange(8.0), np.ones(8), nperseg=4, detrend=False)[1].real.round(2)
    Array([10.67,  5.33,  0.  ], dtype=float32)
    """
    what = "scipy.signal.csd"
    choice_of(what, "average", average, ("mean", "median"))
    rate = _rate(what, fs)
    (first, second), _ = promoted(what, x, x if y is None else y, to_inexact=True)
    first, second = tnp.moveaxis(first, axis, -1), tnp.moveaxis(second, axis, -1)
    n = max(first.shape[-1], second.shape[-1])
    cut = _Segments.of(what, first.dtype, window, _size(what, window, nperseg, n), noverlap, nfft)
    one_sided = return_onesided and first.dtype.kind != "c"

    def transforms(line: Array) -> Array:
        filled = tnp.pad(line, [*[(0, 0)] * (line.ndim - 1), (0, n - line.shape[-1])])
        return cut.transforms(filled, detrend, one_sided)

    left = transforms(first)
    power = tnp.abs(left) ** 2 if y is None else tnp.conj(left) * transforms(second)
    if average == "mean":
        found = tnp.mean(power, -2)
    else:
        middle = tnp.median(tnp.real(power), -2)
        found = middle if y is None else middle + 1j * tnp.median(tnp.imag(power), -2)
        places = np.arange(2, power.shape[-2], 2)
        found = found / (1 + float(np.sum(1 / (places + 1) - 1 / places)))
    found *= _scale(what, scaling, cut.window, rate).astype(found.dtype)
    if one_sided:  # each frequency stands for its negative too, but zero and the highest, if this is one alone
        twice = np.ones(found.shape[-1], np.float32)
        twice[1 : None if cut.transformed % 2 else -1] = 2
        found = found * of_rank(tnp.asarray(twice, found.dtype), found.ndim)
    return cut.frequencies(rate, one_sided, tnp.finfo(found.dtype).dtype), tnp.moveaxis(found, -1, axis)


def _size(what: str, window: Any, size: int | None, n: int) -> int | None:
    """The elements of a segment, no more than there are, unless the window says how many."""
    named = isinstance(window, (str, tuple))
    return min(n if size is None else count_of(what, "nperseg", size), n) if named else size


@with_flags
def welch(
    x: ArrayLike,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The frequencies, and a signal's power at them, averaged over segments; arguments as for `csd`.

    Args:
        x: signals.
        fs, window, nperseg, noverlap, nfft, detrend, return_onesided: as for `stft`.
        scaling: "density" or "spectrum".
        axis: the axis of the signals.
        average: "mean" or "median".

    Returns:
        The frequencies and the power, with the frequencies in place of the axis.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.signal import welch
    >>> welch(np.ones(8), nperseg=4, detrend=False)[1].round(2)
    Array([2.67, 1.33, 0.  ], dtype=float32)
    """
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


__getattr__ = _missing(__name__)


__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]


def __dir__() -> list[str]:
    return __all__
