"""Batching: tracers that carry a value with one more dimension than they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.ops import Op, calls
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import CarryingTracer, Trace, Tracer, infer_shape


class BatchTracer(CarryingTracer):
    """`value` has the mapped dimension at `axis`."""

    __slots__ = ("axis",)

    def __init__(self, trace: BatchTrace, value: Array, axis: int) -> None:
        self.owner = trace
        self.value = value
        self.axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        whole = self.value.shape
        return whole[: self.axis] + whole[self.axis + 1 :]

    concrete = Tracer.concrete  # the value is that of all examples
    __str__ = Tracer.__repr__


class BatchTrace(Trace):
    what = "a batched function (vmap)"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def split(self, x: Any) -> tuple[Any, int | None]:
        """Value and mapped axis (None: the same for all)."""
        return (x.value, x.axis) if isinstance(x, BatchTracer) and x.owner is self else (x, None)

    def join(self, value: Any, axis: int | None) -> Any:
        return value if axis is None else BatchTracer(self, value, axis)

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        infer_shape(op, tuple(map(Shape.of, operands)), attributes)  # an error speaks of shapes as the user sees them
        pairs = [self.split(x) for x in operands]
        values, axes = tuple(v for v, _ in pairs), tuple(a for _, a in pairs)
        result, axis = calls.apply_batched(op, self.size, values, axes, attributes)
        if isinstance(result, tuple):
            return tuple(self.join(r, a) for r, a in zip(result, axis, strict=True))
        return self.join(result, axis)


def batch(
    function: Callable[..., Sequence[Any]], size: int, inputs: Sequence[Any], axes: Sequence[int | None]
) -> list[tuple[Any, int | None]]:
    """`function(*inputs)`, which returns a flat list, mapped over those axes: results, and their mapped axes."""
    mapped = BatchTrace(size)
    with mapped.run():
        tracers = [mapped.join(x, a) for x, a in zip(inputs, axes, strict=True)]
        return [mapped.split(x) for x in function(*tracers)]
