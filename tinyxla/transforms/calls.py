"""Call: a computation applied as one op. A compiled function inside another function is one.

Source: sections "Call" and "CompositeCall" of the XLA documents. Its rules are made by transforming the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, calls, elementwise, movement
from tinyxla.ops.op import Joint
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import (
    Mask,
    batched,
    chosen,
    forward,
    inexact,
    partition,
    results,
    reverse,
    spread,
)


class Composite(NamedTuple):
    """What a composite says of itself: an op made of others, which may always stand in its place."""

    name: str
    attributes: str = ""
    version: int = 0


class Call(NamedTuple):
    to_apply: Computation
    is_composite: bool = False
    frontend_attributes: Composite | None = None


def _shape(*operands: AnyShape, to_apply: Computation, **composite: Any) -> AnyShape:
    if list(operands) != to_apply.parameter_shapes:
        raise ShapeError(
            f"call: the operands of {to_apply.name} must be {to_apply.parameter_shapes}, but got {list(operands)}."
        )
    return to_apply.root.shape


# How a call computes on concrete arrays: the compiling layers put their executor here.
execute: Callable[..., Any] = lambda *operands, to_apply: calls.evaluate(to_apply, operands)  # noqa: E731


def set_execute(function: Callable[..., Any]) -> None:
    global execute
    execute = function


def grouped(computation: Computation, values: Any) -> Any:
    """Results as the computation gives them: a tuple, or one."""
    return tuple(values) if isinstance(computation.root.shape, TupleShape) else values[0]


def _forward(tangents: tuple[Any, ...], *operands: Any, to_apply: Computation, **composite: Any) -> tuple[Any, Any]:
    made, moving = forward(to_apply, tuple(t is not None for t in tangents))
    outputs = call(*operands, *(t for t in tangents if t is not None), to_apply=made)
    count = len(to_apply.outputs)
    return grouped(to_apply, outputs[:count]), grouped(to_apply, spread(outputs[count:], moving))


def _reverse(
    wanted: Mask, *operands: Any, to_apply: Computation, **composite: Any
) -> tuple[Any, Callable[[Any], list[Any]]]:
    """Forward and backward pass are two calls. What the second needs of the first is handed over as residuals."""
    seeded = inexact(to_apply)
    early, late, flows = _split(to_apply, wanted)
    outputs = call(*operands, to_apply=early)
    count = len(to_apply.outputs)

    def pullback(g: Any) -> list[Any]:
        found = call(*outputs[count:], *chosen(results(g), seeded), to_apply=late)
        return spread(spread(found, flows), wanted)

    return grouped(to_apply, outputs[:count]), pullback


@lru_cache(1024)
def _split(computation: Computation, active: Mask) -> tuple[Computation, Computation, Mask]:
    both, flows = reverse(computation, active, inexact(computation), False)
    return *partition(both, len(computation.parameters), len(computation.outputs)), flows


def _batch(
    size: int, operands: tuple[Any, ...], axes: tuple[int | None, ...], *, to_apply: Computation, **composite: Any
) -> Any:
    made, found = batched(to_apply, size, axes)
    outputs = call(*operands, to_apply=made)
    return grouped(to_apply, outputs), grouped(to_apply, found)


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    shape = Shape(element_type(np.float32), (2, 3))
    made, _, _ = trace(lambda x, y: [elementwise.mul(elementwise.sin(x), y), x], [shape, shape], "sample")
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((2, 3)) + 1), {"to_apply": made})
    attributes = {
        "to_apply": made,
        "is_composite": True,
        "frontend_attributes": Composite("sample.sine", "{n = 1 : i32}", 1),
    }
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((2, 3))), attributes)


call = Op(
    "call",
    attributes=Call,
    shape=_shape,
    evaluate=lambda *operands, to_apply, **composite: execute(*operands, to_apply=to_apply),
    derivative=Joint(_forward, _reverse),
    batch=_batch,
    samples=_samples,
)
