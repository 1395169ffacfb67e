"""Fft: discrete Fourier transforms along the last dimensions.

Source: section "Fft" of the XLA documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, Ints, Linear, Op, Sample, Value, batches
from tinyxla.runtime.imports import requiring
from tinyxla.runtime.threads import get_num_threads
from tinyxla.shapes import AnyShape, Shape, element_type

_LARGE = 1 << 15  # elements from which on threads share the signals


class Fft(NamedTuple):
    fft_type: str  # FFT, IFFT, RFFT or IRFFT
    fft_length: Ints  # of the signals, for each of the last dimensions


_TYPES = {"FFT": ("c64", "c128"), "IFFT": ("c64", "c128"), "RFFT": ("f32", "f64"), "IRFFT": ("c64", "c128")}
_RESULTS = {("RFFT", "f32"): "c64", ("RFFT", "f64"): "c128", ("IRFFT", "c64"): "f32", ("IRFFT", "c128"): "f64"}


def _fft_shape(x: AnyShape, *, fft_type: str, fft_length: Ints) -> Shape:
    shape = movement.array_operand("fft", x)
    if fft_type not in _TYPES:
        raise AttributeValueError(f"fft: fft_type must be one of {', '.join(_TYPES)}, but got {fft_type!r}.")
    kind = shape.element_type.name
    if kind not in _TYPES[fft_type]:
        wanted = " or ".join(_TYPES[fft_type])
        raise DTypeError(f"fft: the operand of {fft_type} must be {wanted}, but got {shape}; convert it.")
    count = len(fft_length)
    if not 1 <= count <= 3:
        raise ShapeError(
            f"fft: fft_length must have 1, 2 or 3 lengths, but got {fft_length}; do the rest by another fft."
        )
    if count > shape.rank:
        raise ShapeError(f"fft: fft_length {fft_length} must not have more lengths than {shape} has dimensions.")
    if any(n < 0 for n in fft_length):
        raise ShapeError(f"fft: fft_length must not be negative, but got {fft_length}.")
    *outer, last = fft_length
    lengths = (*outer, _half(last)) if fft_type == "IRFFT" else fft_length
    found = shape.dimensions[-count:]
    if lengths != found:
        raise ShapeError(
            f"fft: for {fft_type} of fft_length {fft_length} the last dimensions must be {lengths}, but got {shape}; "
            "pad or slice the operand."
        )
    result = _RESULTS.get((fft_type, kind), kind)
    sizes = (*outer, _half(last)) if fft_type == "RFFT" else fft_length
    return Shape(element_type(result), (*shape.dimensions[:-count], *sizes))


def _half(length: int) -> int:
    """How many coefficients a real signal of that length has: the others are their conjugates."""
    return length // 2 + 1 if length else 0


def _fft_evaluate(x: Array, *, fft_type: str, fft_length: Ints) -> Array:
    with requiring("scipy.fft", "SciPy", "fft"):
        import scipy.fft  # here, since importing it costs more than importing this package

    result = _fft_shape(Shape.of(x), fft_type=fft_type, fft_length=fft_length)
    if result.size == 0:
        return np.zeros(result.dimensions, result.dtype)
    functions: dict[str, Any] = {
        "FFT": scipy.fft.fftn,
        "IFFT": scipy.fft.ifftn,
        "RFFT": scipy.fft.rfftn,
        "IRFFT": scipy.fft.irfftn,
    }
    workers = get_num_threads() if result.size >= _LARGE else 1
    return functions[fft_type](x, s=fft_length, axes=tuple(range(-len(fft_length), 0)), workers=workers)


def _fft_transpose(g: Value, x: Value, *, fft_type: str, fft_length: Ints) -> tuple[Value]:
    """The transforms of complex signals are symmetric. Those of real ones count a coefficient that stands for its
    conjugate, too, twice in one direction and once in the other."""
    if fft_type in ("FFT", "IFFT"):
        return (fft(g, fft_type=fft_type, fft_length=fft_length),)
    size = math.prod(fft_length)
    if fft_type == "RFFT":
        weighted = elementwise.mul(_multiplicity(g, fft_length[-1], size, size / 2), elementwise.conj(g))
        return (fft(weighted, fft_type="IRFFT", fft_length=fft_length),)
    back = elementwise.conj(fft(g, fft_type="RFFT", fft_length=fft_length))
    return (elementwise.mul(_multiplicity(back, fft_length[-1], 1 / size, 2 / size), back),) if size else (back,)


def _multiplicity(x: Value, length: int, once: float, twice: float) -> Value:
    """For each coefficient in the last dimension a weight: those of frequency 0 and of half the length are alone."""
    at = movement.iota(shape=Shape(element_type(np.int32), x.shape), iota_dimension=x.ndim - 1)
    weights = movement.full(twice, x.dtype, x.shape)
    for alone in (0, length // 2) if length % 2 == 0 else (0,):
        here = elementwise.eq(at, movement.full(alone, np.int32, x.shape))
        weights = elementwise.select(here, movement.full(once, x.dtype, x.shape), weights)
    return weights


def _fft_samples(random: np.random.Generator) -> Iterator[Sample]:
    for fft_type, kinds in _TYPES.items():
        for kind in kinds:
            for batch, lengths in (
                ((), (4,)),
                ((2,), (5,)),
                ((), (2, 4)),
                ((2,), (3, 2, 3)),
                ((0,), (3,)),
                ((), (1,)),
                ((2,), (0,)),
            ):
                sizes = (*lengths[:-1], _half(lengths[-1])) if fft_type == "IRFFT" else lengths
                x = elementwise.sample_array(random, element_type(kind).dtype, (*batch, *sizes), -2, 2)
                yield Sample((x,), {"fft_type": fft_type, "fft_length": lengths})


fft = Op(
    "fft",
    attributes=Fft,
    shape=_fft_shape,
    evaluate=_fft_evaluate,
    derivative=Linear(_fft_transpose),
    batch=movement.one_more_in_front(lambda: fft),
    sharding=lambda x, *, fft_length, **attributes: batches((x,), (len(fft_length),), (len(fft_length),)),
    samples=_fft_samples,
)
