"""While a jaxpr is recorded, loops and branches are recorded as calls that keep the primitive's name and parameters.

Outside of `make_jaxpr` nothing is added to a graph: `lax.scan` is this library's loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from tinyxla.api.linearize import linearized_around
from tinyxla.hlo import Computation
from tinyxla.ops.op import Axes
from tinyxla.tracing.array import Array, with_scalar_register
from tinyxla.tracing.config import config
from tinyxla.transforms.batch import batch
from tinyxla.transforms.computations import Mask, flowing
from tinyxla.transforms.custom import Lanes, Pullback, Rule, Values, apply

_Result = TypeVar("_Result")


class _State(threading.local):
    depth: int = 0
    linearized: int = 0  # functions that were being linearized when the innermost recording began
    scalars: dict[int, Any] | None = None  # concrete arrays without axes that were made since recording began, by id


_state = _State()
_RECORDING = ("recording", True)  # among the options by which programs are told apart


def is_recording() -> bool:
    """Whether this thread is inside of `make_jaxpr`."""
    return _state.depth > 0


def is_recording_operations() -> bool:
    """Whether what is recorded are equations of a jaxpr, and not parts of the derivative of a function that is
    linearized inside of one."""
    return is_recording() and linearized_around() == _state.linearized


def is_from_around(array: Any) -> bool:
    """Whether a concrete array is a constant of the recorded jaxpr. Arrays without axes that are made of numbers
    meanwhile are literals."""
    return array.ndim > 0 or _state.scalars is None or id(array) not in _state.scalars


def record(function: Callable[[], _Result]) -> _Result:
    """Call a function inside of which loops and branches are recorded as such, and compiled functions are traced anew:
    programs that were traced before have none of that."""
    if _state.scalars is not None:
        return _recorded(function)
    try:
        _state.scalars = {}
        return with_scalar_register(_state.scalars, lambda: _recorded(function))
    finally:
        _state.scalars = None


def _recorded(function: Callable[[], _Result]) -> _Result:
    before, linearized = _current(), _state.linearized
    try:  # an interrupt may come while it is switched
        switch(before.depth + 1)
        _state.linearized = linearized_around()
        return function()
    finally:
        _state.linearized = linearized
        switch_back(before)


class Switched(NamedTuple):
    """What recording was, for `switch_back`."""

    depth: int
    special: Any


_UNSET: Any = object()  # where no block of `setting` around has set it


def depth() -> int:
    """In how many functions whose jaxprs are recorded this thread is."""
    return _state.depth


def _current() -> Switched:
    return Switched(_state.depth, vars(config).get("special", _UNSET))


def switch(depth: int) -> Switched:
    """Let this thread be inside of so many functions whose jaxprs are recorded, until `switch_back`."""
    before, special = _current(), config.special
    if not depth:
        special = tuple(x for x in special if x != _RECORDING)
    elif _RECORDING not in special:
        special = (*special, _RECORDING)
    _state.depth = depth
    vars(config)["special"] = special
    return before


def switch_back(before: Switched) -> None:
    """Let recording be what it was before `switch`."""
    _state.depth = before.depth
    if before.special is _UNSET:
        vars(config).pop("special", None)
    else:
        vars(config)["special"] = before.special


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


Batched = tuple[Sequence[Any], Sequence[int | None]] | None
Batcher = Callable[["Region", Lanes, Sequence[Any], Axes], Batched]


@dataclass(frozen=True, eq=False, repr=False)
class Region(Rule):
    """A part of a function that is one primitive in jaxprs. Its derivatives are those of its ops, and so is its
    batching unless there is a rule: `batcher(region, lanes, operands, axes)` gives the results and their mapped axes,
    or None where the ops count after all."""

    primitive: Any
    params: dict[str, Any]
    batcher: Batcher | None = None

    def batch(self, lanes: Lanes, operands: tuple[Any, ...], axes: Axes) -> tuple[tuple[Any, ...], Axes]:
        if self.batcher is not None and is_recording():
            results = self.batcher(self, lanes, operands, axes)
            if results is not None:
                return tuple(results[0]), tuple(results[1])
        found = lanes.map(lambda values: self.function(*values), operands, axes)
        return tuple(found.values), tuple(found.axes)

    def applied(self, params: dict[str, Any], operands: Sequence[Any]) -> tuple[Any, ...]:
        """The results of the primitive with other parameters and operands."""

        def function(*values: Any) -> Sequence[Any]:
            return self.primitive.bind(*values, **params)

        key, count = (self.primitive, id(params)), len(operands)
        return apply(replace(self, key=key, function=function, params=params, count=count), *operands)

    def applied_to_lanes(
        self, lanes: Lanes, params: dict[str, Any], function: Callable[..., Sequence[Any]], operands: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The results of the primitive with these parameters, outside of the mapped axis."""
        axes = tuple(name for name in self.axes if name not in lanes.names)
        made = replace(
            self, key=(self.primitive, id(params)), function=function, params=params, count=len(operands), axes=axes
        )
        return apply(replace(made, own=()), *operands)


Pushed = tuple[tuple[Any, ...], tuple[Any, ...]]
Pulled = tuple[tuple[Any, ...], Pullback | None] | None


class Derivatives(NamedTuple):
    """Derivative rules of a primitive: `forward(region, tangents, values)` gives results and tangents, and
    `reverse(region, wanted, values)` results and the way back, or None where the ops count."""

    forward: Callable[[Region, Values, Values], Pushed]
    reverse: Callable[[Region, Mask, Values], Pulled]


@dataclass(frozen=True, eq=False, repr=False)
class LoopRegion(Region):
    """A loop or branch, whose derivatives are loops and branches in jaxprs, too."""

    derivatives: Derivatives | None = None
    has_derivatives: bool = field(default=True, init=False)
    gives_cotangents: bool = field(default=True, init=False)

    def flows(self, computation: Computation, wanted: Mask) -> Mask:
        return flowing(computation, wanted)

    def forward(self, tangents: Values, *values: Any) -> Pushed:
        if self.derivatives is None or not is_recording():
            return super().forward(tangents, *values)
        return self.derivatives.forward(self, tangents, values)

    def reverse(self, wanted: Mask, *values: Any) -> Any:
        found = None
        if self.derivatives is not None and is_recording():
            found = self.derivatives.reverse(self, wanted, values)
        return super().reverse(wanted, *values) if found is None else found


def region(
    primitive: Any,
    params: dict[str, Any],
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    batcher: Batcher | None = None,
) -> tuple[Any, ...]:
    """The results of a function of a flat list of arrays, recorded as an application of a primitive."""
    rule = Region(primitive.name, (primitive, id(params)), len(values), function, primitive, params, batcher)
    return apply(rule, *values)


def vectorized(made: Region, lanes: Lanes, operands: Sequence[Any], axes: Axes) -> Batched:
    """The batching rule of a primitive whose parameters stay the same: the mapped axis is the first of the results."""
    outputs = made.applied_to_lanes(lanes, made.params, lanes.mapped(made.function, axes), operands)
    return outputs, (0,) * len(outputs)
