"""Discrete Fourier transforms, under the names of `numpy.fft`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import (
    SCALARS,
    ArrayLike,
    Axis,
    array_of,
    canonical_axes,
    cast,
    choice_of,
    inexact_array,
    integer_of,
    integers_of,
    is_several,
    several_of,
    shown,
    with_device,
)
from tinyxla.numpy.creation import arange
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.manipulation import moveaxis, roll
from tinyxla.numpy.operations import fourier, movement
from tinyxla.shapes import Shape
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.tracebacks import boundary

Lengths = Sequence[int] | None
_MAX_AXES = 3  # of one operation
_NORMS = {None: 0.0, "backward": 0.0, "ortho": 0.5, "forward": 1.0}  # the power of 1/n that goes with the way there
_OPPOSITE = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


@boundary
def as_signal(what: str, x: ArrayLike, real: bool) -> Array:
    """An argument with real or complex elements, in a precision that there are transforms for."""
    value = inexact_array(x, what)
    if real and value.dtype.kind == "c":
        raise ArgumentError(
            f"{what}: the signal must be real, but got {Shape.of(value)}; use fft, or take its real part."
        )
    double = value.dtype.name in ("float64", "complex128")
    if real:
        return cast(value, np.dtype(np.float64 if double else np.float32))
    return cast(value, np.dtype(np.complex128 if double else np.complex64))


def _resized(x: Any, axis: int, size: int) -> Any:
    """Cut off, or filled up with zeros, at the end of an axis."""
    have = x.shape[axis]
    if have > size:
        return movement.slice_axis(x, axis, 0, size)
    if have == size:
        return x
    config = tuple((0, size - have if d == axis else 0, 0) for d in range(x.ndim))
    return movement.pad(x, movement.full(0, x.dtype), padding_config=config)


def _check_norm(what: str, norm: Any) -> None:
    if norm is not None:
        choice_of(what, "norm", norm, ("backward", "ortho", "forward"))


def _transform(what: str, name: str, a: ArrayLike, s: Lengths, axes: Sequence[int], norm: Any) -> Array:
    """Along axes in their order; the last one is that of real signals."""
    x: Any = as_signal(what, a, real=name == "RFFT")
    _check_norm(what, norm)
    along = [canonical_axis(d, x.ndim, what) for d in several_of(what, "axes", axes)]
    canonical_axes(what, along, x.ndim)
    if not along:
        return x
    sizes = [x.shape[d] for d in along] if s is None else list(integers_of(what, "s", s))
    if len(sizes) != len(along):
        raise ShapeError(f"{what}: there must be as many lengths as axes, but got {sizes} for {list(axes)}.")
    if s is None and name == "IRFFT":
        sizes[-1] = 2 * (sizes[-1] - 1)
    if s is None and name in ("FFT", "IFFT") and not all(sizes):
        return x  # there is nothing to transform
    if any(n < 1 for n in sizes):
        raise ShapeError(f"{what}: the lengths must be positive, but got {sizes}.")
    for d, n in zip(along, sizes, strict=True):
        x = _resized(x, d, n // 2 + 1 if name == "IRFFT" and d == along[-1] else n)
    last = list(range(x.ndim - len(along), x.ndim))
    moved = _by_groups(moveaxis(x, along, last), name, sizes)
    return moveaxis(_scaled(moved, name, math.prod(sizes), norm), last, along)


def _by_groups(x: Any, name: str, sizes: list[int]) -> Any:
    """One operation for up to three axes; those before are left to others, before a transform to real numbers and after
    one from them."""
    inner, outer = sizes[-_MAX_AXES:], sizes[:-_MAX_AXES]
    if not outer:
        return fourier.fft(x, fft_type=name, fft_length=tuple(inner))

    def rest(y: Any) -> Any:
        first = list(range(y.ndim - len(sizes), y.ndim - len(inner)))
        end = list(range(y.ndim - len(outer), y.ndim))
        return moveaxis(
            _by_groups(moveaxis(y, first, end), "FFT" if name in ("FFT", "RFFT") else "IFFT", outer), end, first
        )

    if name == "IRFFT":
        return fourier.fft(rest(x), fft_type=name, fft_length=tuple(inner))
    return rest(fourier.fft(x, fft_type=name, fft_length=tuple(inner)))


def _scaled(x: Any, name: str, count: int, norm: str | None) -> Any:
    """The way back has been divided by the number of elements."""
    power = _NORMS[norm] if name in ("IFFT", "IRFFT") else -_NORMS[norm]
    return arith.multiply(x, float(count) ** power) if power else x


def _one(what: str, name: str, a: ArrayLike, n: int | None, axis: int, norm: str | None) -> Array:
    return _transform(what, name, a, None if n is None else (integer_of(what, "n", n),), (axis,), norm)


def _several(what: str, name: str, a: ArrayLike, s: Lengths, axes: Sequence[int] | None, norm: str | None) -> Array:
    """All axes, or as many last ones as there are lengths, unless axes are given."""
    x = array_of(a, what)
    lengths = None if s is None else integers_of(what, "s", s)
    chosen = range(-(x.ndim if lengths is None else len(lengths)), 0) if axes is None else axes
    return _transform(what, name, x, lengths, chosen, norm)


# --- along one axis ---------------------------------------------------------------------------------------------------


@replayed
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The Fourier transform along an axis.

    Args:
        a: an array.
        n: the length of the signals, which are cut off or filled up with zeros.
        axis: the axis that the signals lie along.
        norm: where the factor 1/n goes: `"backward"` (the default) to the inverse, `"forward"` to the transform,
            `"ortho"` half to each.

    Returns:
        A complex array of the shape of `a`, with the length n along the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: a normalization that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.fft(jnp.array([1.0, 0.0, 0.0]))
        Array([1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _one("fft.fft", "FFT", a, n, axis, norm)


@replayed
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`; the arguments are the same.

    Args:
        a: an array.
        n: the length of the signals, which are cut off or filled up with zeros; that of the axis if None.
        axis: the axis of the signals.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a`, with the length n along the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.ifft(jnp.fft.fft(jnp.array([1.0, 2.0]))).real
        Array([1., 2.], dtype=float32)
    """
    return _one("fft.ifft", "IFFT", a, n, axis, norm)


@replayed
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The Fourier transform of real signals: the first n // 2 + 1 coefficients, whose conjugates the others are.

    Args:
        a: an array.
        n: the length of the signals, which are cut off or filled up with zeros; that of the axis if None.
        axis: the axis of the signals.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a`, with n // 2 + 1 coefficients along the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`, or complex signals.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0, 4.0])).shape
        (3,)
    """
    return _one("fft.rfft", "RFFT", a, n, axis, norm)


@replayed
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft`. The length n of the signals is even unless it is given.

    Args:
        a: an array.
        n: the length of the signals, which are cut off or filled up with zeros; that of the axis if None.
        axis: the axis of the signals.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A real array of the shape of `a`, with the length n along the axis: 2 (m - 1) for m coefficients, if None.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.round(jnp.fft.irfft(jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0])), n=3), 3)
        Array([1., 2., 3.], dtype=float32)
    """
    return _one("fft.irfft", "IRFFT", a, n, axis, norm)


@replayed
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The Fourier transform of signals that are Hermitian, given by their first half.

    Args:
        a: an array.
        n: the length of the signals, which are cut off or filled up with zeros; that of the axis if None.
        axis: the axis of the signals.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A real array of the shape of `a`, with the length n along the axis: 2 (m - 1) for m elements, if None.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.hfft(jnp.array([1.0, 0.0, 0.0]))
        Array([1., 1., 1., 1.], dtype=float32)
    """
    conjugates = arith.conjugate(array_of(a, "fft.hfft"))
    return _one("fft.hfft", "IRFFT", conjugates, n, axis, _opposite("fft.hfft", norm))


@replayed
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft`.

    Args:
        a: an array.
        n: the length of the signals, which are cut off or filled up with zeros; that of the axis if None.
        axis: the axis of the signals.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a`, with n // 2 + 1 elements along the axis.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`, or complex signals.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.ihfft(jnp.array([1.0, 0.0, 0.0, 0.0])).real
        Array([0.25, 0.25, 0.25], dtype=float32)
    """
    return arith.conjugate(_one("fft.ihfft", "RFFT", a, n, axis, _opposite("fft.ihfft", norm)))


def _opposite(what: str, norm: Any) -> str | None:
    _check_norm(what, norm)
    return _OPPOSITE[norm]


# --- along several axes -----------------------------------------------------------------------------------------------


@replayed
def fftn(a: ArrayLike, s: Lengths = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The Fourier transform along several axes.

    Args:
        a: an array.
        s: the length along each of the axes; what is there is cut off or filled up with zeros.
        axes: all if None, or as many last ones as `s` has lengths.
        norm: as in `fft`.

    Returns:
        A complex array of the shape of `a`, with the lengths `s` along the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: a normalization that there is not.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.fftn(jnp.ones((2, 2))).real
        Array([[4., 0.],
               [0., 0.]], dtype=float32)
    """
    return _several("fft.fftn", "FFT", a, s, axes, norm)


@replayed
def ifftn(a: ArrayLike, s: Lengths = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The inverse of `fftn`.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: the axes; as in `fftn`.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a`, with the lengths `s` along the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.ifftn(jnp.fft.fftn(jnp.eye(2))).real
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return _several("fft.ifftn", "IFFT", a, s, axes, norm)


@replayed
def rfftn(a: ArrayLike, s: Lengths = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The Fourier transform of real signals along several axes, the last of which has only half the coefficients.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: the axes; as in `fftn`.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a` with the lengths `s`, but n // 2 + 1 coefficients for the last of them, n.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`, or complex signals.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.rfftn(jnp.ones((2, 3, 8))).shape
        (2, 3, 5)
    """
    return _several("fft.rfftn", "RFFT", a, s, axes, norm)


@replayed
def irfftn(a: ArrayLike, s: Lengths = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The inverse of `rfftn`.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: the axes; as in `fftn`.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A real array of the shape of `a`, but with the lengths `s`: the last is by default 2 (m - 1) for m coefficients.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.irfftn(jnp.fft.rfftn(jnp.eye(2)))
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return _several("fft.irfftn", "IRFFT", a, s, axes, norm)


@replayed
def fft2(a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The Fourier transform along two axes.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: two axes.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a`, with the lengths `s` along the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.fft2(jnp.ones((2, 2)))
        Array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _several("fft.fft2", "FFT", a, s, _two("fft.fft2", axes), norm)


@replayed
def ifft2(a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The inverse of `fft2`.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: two axes.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a`, with the lengths `s` along the axes.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.ifft2(jnp.fft.fft2(jnp.eye(2))).real
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return _several("fft.ifft2", "IFFT", a, s, _two("fft.ifft2", axes), norm)


@replayed
def rfft2(a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The Fourier transform of real signals along two axes.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: two axes.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A complex array of the shape of `a` with the lengths `s`, but n // 2 + 1 coefficients for the last of them, n.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`, or complex signals.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.rfft2(jnp.ones((2, 4))).shape
        (2, 3)
    """
    return _several("fft.rfft2", "RFFT", a, s, _two("fft.rfft2", axes), norm)


@replayed
def irfft2(a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The inverse of `rfft2`.

    Args:
        a: an array.
        s: the lengths along the axes, as in `fftn`.
        axes: two axes.
        norm: where the factor 1/n goes, as in `fft`.

    Returns:
        A real array of the shape of `a`, but with the lengths `s`: the last is by default 2 (m - 1) for m coefficients.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: a length that is not positive.
        ArgumentError: another `norm`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.irfft2(jnp.fft.rfft2(jnp.eye(2)))
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return _several("fft.irfft2", "IRFFT", a, s, _two("fft.irfft2", axes), norm)


def _two(what: str, axes: Sequence[int]) -> Sequence[int]:
    along = integers_of(what, "axes", axes)
    if len(along) != 2:
        raise ShapeError(f"{what}: there must be two axes, but got {shown(axes)}; use the function for n axes.")
    return along


# --- frequencies ------------------------------------------------------------------------------------------------------


def _check_spacing(what: str, d: ArrayLike) -> None:
    if is_several(d):
        raise ShapeError(f"{what}: d is a number, but got {shown(d)}.")


def _duration(d: ArrayLike, count: int) -> Any:
    """d * n, of a number as Python's product, not in the type of the result: that of 1 / n and n is then 1, and the
    frequencies are integers."""
    return d * count if isinstance(d, SCALARS) else arith.multiply(d, count)


@with_device
def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: Any = None) -> Array:
    """The frequencies of the coefficients of `fft`, in cycles per unit of the sample spacing d.

    Args:
        n: the length of the signals.
        d: the distance of samples.
        dtype: the element type of the result.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A vector of n numbers: from 0 up, then the negative ones.

    Raises:
        ShapeError: an n that is not positive.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.fftfreq(4)
        Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    count = _positive("fft.fftfreq", n)
    _check_spacing("fft.fftfreq", d)
    numbers = arange(count, dtype=dtype or float)
    return arith.true_divide(roll(arith.subtract(numbers, count // 2), -(count // 2)), _duration(d, count))


@with_device
def rfftfreq(n: int, d: ArrayLike = 1.0, *, dtype: Any = None) -> Array:
    """The frequencies of the coefficients of `rfft`.

    Args:
        n: the length of the signals.
        d: the distance of samples.
        dtype: the element type of the result.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A vector of n // 2 + 1 numbers, from 0 up.

    Raises:
        ShapeError: an n that is not positive.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.rfftfreq(4)
        Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    count = _positive("fft.rfftfreq", n)
    _check_spacing("fft.rfftfreq", d)
    return arith.true_divide(arange(count // 2 + 1, dtype=dtype or float), _duration(d, count))


def _positive(what: str, n: Any) -> int:
    count = integer_of(what, "n", n)
    if count < 1:
        raise ShapeError(f"{what}: n must be positive, but got {count}.")
    return count


@boundary
def fftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """The elements in the order of their frequencies, zero in the middle, along all axes or those given.

    Args:
        x: an array.
        axes: an axis, or several; all by default.

    Returns:
        An array of the shape and type of x.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.fftshift(jnp.fft.fftfreq(4))
        Array([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)
    """
    return _shifted("fft.fftshift", x, axes, lambda n: n // 2)


@boundary
def ifftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """The inverse of `fftshift`.

    Args:
        x: an array.
        axes: an axis, or several; all by default.

    Returns:
        An array of the shape and type of x.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fft.ifftshift(jnp.fft.fftshift(jnp.arange(5)))
        Array([0, 1, 2, 3, 4], dtype=int32)
    """
    return _shifted("fft.ifftshift", x, axes, lambda n: -(n // 2))


def _shifted(what: str, x: ArrayLike, axes: Axis, distance: Callable[[int], int]) -> Array:
    value = array_of(x, what)
    along = canonical_axes(what, axes, value.ndim)
    return roll(value, [distance(value.shape[d]) for d in along], along)


__getattr__ = _missing(__name__)


__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    return __all__
