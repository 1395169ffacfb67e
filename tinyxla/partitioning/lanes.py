"""The devices of a process as lanes of one program.

A process that has several devices of a mesh runs them together: along each axis they are a dimension of every value
that differs among them, as the examples of `vmap` are, and what they tell each other is operations along it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.hlo import Computation
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace
from tinyxla.tracing.shardings import Spec
from tinyxla.transforms.sharded import NamedAxes, over_axes, splits


def block_sizes(part: Sequence[int], spec: Spec, lanes: NamedAxes) -> tuple[int, ...]:
    """The sizes of the block that a process has of an array: its devices' parts, along leading dimensions for the axes
    that split it."""
    return (*(count for name, count in lanes if splits(spec, name)), *part)


def of_process(
    computation: Computation, lanes: NamedAxes, inputs: Sequence[Spec], outputs: Sequence[Spec]
) -> Computation:
    """The program of a process, of blocks, from that of a device, of parts.

    Args:
        lanes: the axes along which the process has several devices.
        inputs, outputs: the shardings of the arguments and results.
    """
    if not lanes:
        return computation
    shapes: list[Shape] = []
    for parameter, spec in zip(computation.parameters, inputs, strict=True):
        part = parameter.array_shape
        shapes.append(part.with_dimensions(block_sizes(part.dimensions, spec, lanes)))
    made, _, _ = trace(lambda *x: over_axes(computation, lanes, x, inputs, outputs), shapes, computation.name)
    return made
