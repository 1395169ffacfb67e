"""A function applied to elements as often as an integer array says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.numpy.arguments import array_of, broadcast_to_shape, cast
from tinyxla.numpy.operations import movement, ops, reduction
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import of_one, run
from tinyxla.transforms.control_flow import while_


def applied_repeatedly(function: Callable[[Array], Any], x: Any, counts: Any) -> Any:
    """`function` applied to each element of x as often as `counts`, an int32 array of its shape, says; at least once.

    Where the counts are known, the calls are written out one after another; else they are the steps of a loop.
    """

    def applied(value: Any) -> Any:
        found = cast(array_of(function(value), "at[].apply"), x.dtype, False)
        return broadcast_to_shape("at[].apply", found, x.shape)

    def step(number: Any, value: Any, limit: Any) -> Any:
        wanted = ops.lt(movement.broadcast(number, sizes=limit.shape, dimensions=()), limit)
        return ops.select(wanted, applied(value), value)

    value = applied(x)
    if isinstance(counts, ConcreteArray):
        for k in range(1, int(np.max(np.asarray(counts), initial=1))):
            value = step(movement.full(k, np.int32, ()), value, counts)
        return value
    return _loop(step, value, counts)


def _loop(step: Callable[[Any, Any, Any], Any], value: Any, counts: Any) -> Any:
    carried = [movement.full(1, np.int32, ()), value.with_weak_type(False), counts]
    shapes = [Shape.of(v) for v in carried]
    once, captured, _ = trace(lambda *x: [step(*x)], shapes, "apply")
    shapes += [Shape.of(v) for v in captured]

    def body(number: Any, value: Any, counts: Any, *kept: Any) -> list[Any]:
        (found,) = run(once, (number, value, counts, *kept))
        return [ops.add(number, movement.full(1, np.int32, ())), found, counts, *kept]

    def condition(number: Any, value: Any, counts: Any, *kept: Any) -> Any:
        return ops.lt(number, reduction.reduce_max(counts, tuple(range(counts.ndim))))

    steps, _, _ = trace(body, shapes, "apply")
    test = of_one(condition, shapes, "apply_condition")
    return while_(*carried, *captured, condition=test, body=steps)[1]
