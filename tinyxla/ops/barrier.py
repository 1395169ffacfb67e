"""OptimizationBarrier: the identity, across which nothing is moved or merged.

Source: section "OptimizationBarrier" of the XLA documents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.ops import movement
from tinyxla.ops.op import Factors, Joint, Op, Sample
from tinyxla.shapes import Shape, TupleShape, element_type


def _held(tangents: Sequence[Any]) -> list[Any]:
    """Tangents or cotangents behind a barrier of their own; None stays."""
    present = [t for t in tangents if t is not None]
    held = iter(opt_barrier(*present) if present else ())
    return [None if t is None else next(held) for t in tangents]


def _forward(tangents: Sequence[Any], *operands: Any) -> tuple[Any, Any]:
    return opt_barrier(*operands), tuple(_held(tangents))


def _reverse(wanted: Sequence[bool], *operands: Any) -> tuple[Any, Callable[[Any], list[Any]]]:
    moved = [w and element_type(x.dtype).is_inexact for w, x in zip(wanted, operands, strict=True)]
    return opt_barrier(*operands), lambda g: _held([c if m else None for c, m in zip(g, moved, strict=True)])


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((), np.int32)))
    yield Sample((movement.sample_values((2, 0), np.complex64),))
    yield Sample((np.array([True, False]), movement.sample_values((2,), np.float64)))


def _factors(*operands: Shape) -> Factors:
    """Each array by itself."""
    ends = itertools.accumulate(x.rank for x in operands)
    own = tuple(tuple(range(end - x.rank, end)) for x, end in zip(operands, ends, strict=True))
    return Factors(own, own)


opt_barrier = Op(
    "opt-barrier",
    shape=lambda *shapes: TupleShape(shapes),
    evaluate=lambda *values: values,
    derivative=Joint(_forward, _reverse, symbolic_zeros=True, flows=lambda wanted: wanted),  # each array by itself
    batch=lambda size, operands, axes: (opt_barrier(*operands), axes),
    samples=_samples,
    sharding=_factors,
)
