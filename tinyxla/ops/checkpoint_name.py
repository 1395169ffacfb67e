"""A value under a name, by which policies of checkpoints speak of it. The compiler drops it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.ops import movement
from tinyxla.ops.op import Axes, Linear, Op, Sample, same_dimensions


class Name(NamedTuple):
    name: str


def _batch(size: int, operands: tuple[Any, ...], axes: Axes, *, name: str) -> Any:
    return checkpoint_name(*operands, name=name), axes[0]


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    for dtype in (np.float32, np.int8, np.complex64):
        yield Sample((movement.sample_values((2, 3), dtype),), {"name": "hidden"})


checkpoint_name = Op(
    "checkpoint-name",
    attributes=Name,
    shape=lambda x, *, name: x,
    evaluate=lambda x, *, name: x,
    derivative=Linear(lambda g, x, *, name: (g,)),
    batch=_batch,
    samples=_samples,
    sharding=same_dimensions,
    expand=lambda x, *, name: x,
)
