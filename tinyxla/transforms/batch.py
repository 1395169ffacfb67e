"""Batching: tracers that carry a value with one more dimension than they show.

The mapped axis may have names, over which lanes talk (`tinyxla.ops.distributed`). Rules find `OWN` in the place of such
a name, also in computations: so these, and what is made and kept of them, say by themselves which axis they mean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from tinyxla.errors import LeakedTracerError
from tinyxla.hlo import Computation, axis_names, map_computations
from tinyxla.ops import Op, calls
from tinyxla.ops.op import OWN
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import CarryingTracer, Trace, Tracer, check_leaks, infer_shape, state
from tinyxla.tracing.shardings import Sharding

_Result = TypeVar("_Result")


class _Active(threading.local):
    innermost: BatchTrace | None = None


active = _Active()
_entering_again = threading.RLock()


class BatchTracer(CarryingTracer):
    """`value` has the mapped dimension at `axis`."""

    __slots__ = ("axis",)

    def __init__(self, trace: BatchTrace, value: Array, axis: int) -> None:
        self.owner = trace
        self.carried = value
        self.axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        whole = self.carried.shape
        return whole[: self.axis] + whole[self.axis + 1 :]

    @property
    def sharding(self) -> Sharding:
        return self.carried.sharding.without_dimension(self.axis, self.carried.ndim)

    @property
    def committed(self) -> bool:
        return self.carried.committed

    concrete = primal = Tracer.concrete  # the value is that of all examples
    __str__ = Tracer.__repr__


class BatchTrace(Trace):
    what = "a batched function (vmap)"

    def __init__(self, size: int, names: Sequence[Hashable] = (), mesh_axes: tuple[Hashable, ...] = ()) -> None:
        super().__init__()
        self.size = size
        self.names = names
        self.mesh_axes = mesh_axes  # along which examples are split, where shardings are stated
        self.enclosing: BatchTrace | None = None  # the next one outside, while this one is active
        self.thread: int | None = None  # in which it is active

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Call a function while the trace is active. A trace may be entered again, also after it has ended, for rules
        that close over its tracers."""
        before = active.innermost, self.enclosing, self.level, self.active, self.thread
        try:
            self.enclosing, self.level, self.thread = active.innermost, state.depth, threading.get_ident()
            active.innermost = self
            return super().run(function)
        finally:
            active.innermost, self.enclosing, self.level, self.active, self.thread = before

    def _enter(self) -> None:
        if self.names:
            state.axes = {**state.axes, **dict.fromkeys(self.names, (self, self.size))}

    def split(self, x: Any) -> tuple[Any, int | None]:
        """Value and mapped axis (None: the same for all)."""
        return (x.carried, x.axis) if isinstance(x, BatchTracer) and x.owner is self else (x, None)

    def join(self, value: Any, axis: int | None) -> Any:
        return value if axis is None else BatchTracer(self, value, axis)

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        if attributes.get("rule") is None:  # which may refuse to be mapped, whatever the shapes are
            infer_shape(op, tuple(map(Shape.of, operands)), attributes)  # errors speak of shapes as the user sees them
        pairs = [self.split(x) for x in operands]
        values, axes = tuple(v for v, _ in pairs), tuple(a for _, a in pairs)
        for name in self.names:
            attributes = with_own_axis(attributes, name)
        if self.mesh_axes:
            attributes = _with_example_axes(attributes, self.mesh_axes)
        result, axis = calls.apply_batched(op, self.size, values, axes, attributes)
        if isinstance(result, tuple):
            return tuple(self.join(r, a) for r, a in zip(result, axis, strict=True))
        return self.join(result, axis)


def batch(
    function: Callable[..., Sequence[Any]],
    size: int,
    inputs: Sequence[Any],
    axes: Sequence[int | None],
    *names: Hashable,
    mesh_axes: tuple[Hashable, ...] = (),
    trace: BatchTrace | None = None,
    scope: str = "",
) -> list[tuple[Any, int | None]]:
    """`function(*inputs)`, which returns a flat list, mapped over those axes: results, and their mapped axes. Inside
    the mapped axis has these names. Where the function states a sharding, examples are split along `mesh_axes`. The
    function may close over tracers of a `trace` that is given. Name stacks call it `scope`."""

    def run_in(mapped: BatchTrace) -> list[tuple[Any, int | None]]:
        def apply() -> list[tuple[Any, int | None]]:
            tracers = [mapped.join(x, a) for x, a in zip(inputs, axes, strict=True)]
            return [mapped.split(x) for x in function(*tracers)]

        return mapped.run(apply)

    if trace is not None and trace.active and trace.thread == threading.get_ident():
        return run_in(trace)
    mapped = BatchTrace(size, names, mesh_axes if trace is None else trace.mesh_axes)
    mapped.function = function
    mapped.scope = scope
    try:
        found = run_in(mapped)
    except LeakedTracerError:
        if trace is None:
            raise
        with _entering_again:  # another thread may do the same with what the trace left behind
            return run_in(trace)
    check_leaks(mapped)
    return found


def with_own_axis(attributes: dict[str, Any], name: Hashable) -> dict[str, Any]:
    """Attributes with `OWN` instead of the name of an axis."""
    if name is OWN or name not in axis_names(attributes):
        return attributes
    changed = map_computations(attributes, lambda computation: _in_computation(computation, name))
    if "axis_name" in changed:
        changed["axis_name"] = OWN
    if changed.get("rule") is not None:
        changed["rule"] = changed["rule"].with_own_axis(name)
    return changed


@lru_cache(1024)
def _in_computation(computation: Computation, name: Hashable) -> Computation:
    made, _ = computation.copy()
    for x in made.instructions:
        x.attributes = x.attributes._replace(**with_own_axis(x.attributes._asdict(), name))
    return made


def _with_example_axes(attributes: dict[str, Any], names: tuple[Hashable, ...]) -> dict[str, Any]:
    """Attributes of an operation, and of those in its computations, with the mesh axes along which examples are split;
    operations that state shardings have them."""
    changed = map_computations(attributes, lambda computation: _with_examples_along(computation, names))
    return {**changed, "example_axes": names} if "example_axes" in changed else changed


@lru_cache(1024)
def _with_examples_along(computation: Computation, names: tuple[Hashable, ...]) -> Computation:
    if computation.all_opcodes.isdisjoint(("shard-map", "sharding-constraint")):
        return computation
    made, _ = computation.copy()
    for x in made.instructions:
        x.attributes = x.attributes._replace(**_with_example_axes(x.attributes._asdict(), names))
    return made
