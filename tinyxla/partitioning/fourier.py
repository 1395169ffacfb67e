"""Partitioning of Fourier transforms of several dimensions: one dimension after the other, each where it is whole.

Source: "A flexible approach to distributed multidimensional FFT" (Dalcin, Mortensen and Keyes, 2019), "slab" and
"pencil" decompositions.
"""

from __future__ import annotations

from typing import Any

from tinyxla.hlo import Instruction
from tinyxla.ops import movement
from tinyxla.ops.fourier import fft
from tinyxla.partitioning.partitioner import Part, Partitioner, by_factors
from tinyxla.tracing.shardings import Spec


def rule(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """A real signal is transformed along its last dimension first, and comes from there last."""
    (part,) = operands
    kind, lengths = x.attributes
    first = len(part.sizes) - len(lengths)
    if len(part.sizes) == 1 or not any(part.spec[first:]):
        return by_factors(p, x, operands)
    steps = [(first + k, n, kind) for k, n in enumerate(lengths)]
    if kind == "RFFT":
        steps = [steps[-1], *((d, n, "FFT") for d, n, _ in steps[:-1])]
    if kind == "IRFFT":
        steps = [*((d, n, "IFFT") for d, n, _ in steps[:-1]), steps[-1]]
    for d, n, own in steps:
        part = _along(p, part, d, own, n, x.array_shape.dimensions[d])
    return [part]


def _along(p: Partitioner, part: Part, d: int, kind: str, length: int, size: int) -> Part:
    """The transform of one dimension, which gets a new size."""
    spec = _elsewhere(p, part, d)
    last = len(part.sizes) - 1
    value = movement.move_axis(p.resharded(part, spec), d, last)
    value = movement.move_axis(fft(value, fft_type=kind, fft_length=(length,)), last, d)
    return Part(value, spec, (*part.sizes[:d], size, *part.sizes[d + 1 :]))


def _elsewhere(p: Partitioner, part: Part, d: int) -> Spec:
    """A sharding where a dimension is whole, and another one is split instead if there is one that divides evenly."""
    spec: list[tuple[Any, ...]] = list(part.spec)
    axes, spec[d] = spec[d], ()
    for k in reversed(range(len(spec))):
        if axes and k != d and not spec[k] and part.sizes[k] % p.count(axes) == 0:
            spec[k], axes = axes, ()
    return tuple(spec)
