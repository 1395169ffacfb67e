"""While a jaxpr is recorded, loops and branches are recorded as calls that keep the primitive's name and parameters.

Outside of `make_jaxpr` nothing is added to a graph: `lax.scan` is this library's loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tinyxla.ops.op import Axes
from tinyxla.tracing.array import Array
from tinyxla.transforms.batch import batch
from tinyxla.transforms.custom import Lanes, Rule, apply

_Result = TypeVar("_Result")


class _State(threading.local):
    depth: int = 0


_state = _State()


def is_recording() -> bool:
    """Whether this thread is inside of `make_jaxpr`."""
    return _state.depth > 0


def record(function: Callable[[], _Result]) -> _Result:
    """Call a function inside of which loops and branches are recorded as such."""
    before = _state.depth
    try:
        _state.depth = before + 1
        return function()
    finally:
        _state.depth = before


def with_axes(axes: Sequence[tuple[Any, int]], function: Callable[[], _Result]) -> _Result:
    """Call a function inside of which there are mapped axes of these names and sizes."""
    for name, size in axes:
        function = _with_axis(name, size, function)
    return function()


def _with_axis(name: Any, size: int, function: Callable[[], _Result]) -> Callable[[], _Result]:
    def mapped() -> _Result:
        found: list[_Result] = []

        def once(*ignored: Any) -> list[Array]:
            found.append(function())
            return []

        batch(once, size, [], [], name)
        return found[0]

    return mapped


@dataclass(frozen=True, eq=False)
class Region(Rule):
    """A part of a function that is one primitive in jaxprs. Its derivatives and batching are those of its ops."""

    primitive: Any
    params: dict[str, Any]

    def batch(
        self, size: int, operands: tuple[Any, ...], axes: Axes, names: tuple[Any, ...] = ()
    ) -> tuple[tuple[Any, ...], Axes]:
        found = Lanes(size, names).map(lambda values: self.function(*values), operands, axes)
        return tuple(found.values), tuple(found.axes)


def region(
    primitive: Any, params: dict[str, Any], function: Callable[..., Sequence[Any]], values: Sequence[Any]
) -> tuple[Any, ...]:
    """The results of a function of a flat list of arrays, recorded as an application of a primitive."""
    rule = Region(primitive.name, (primitive, id(params)), len(values), function, primitive, params)
    return apply(rule, *values)
