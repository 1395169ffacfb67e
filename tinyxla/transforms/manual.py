"""Functions of parts, traced: which values vary along the axes of a mesh, and which are the same on all devices.

Operands of one operation vary along the same axes: where an invariant value meets a varying one it becomes varying by
`pvary`, whose transpose is a sum. So a derivative that is taken inside of the function by a value that all devices have
is the sum of what all contribute.

Source: the documentation of `jax.shard_map`, section "Tracking how values vary over manual mesh axes".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import PartialSumError, ShardingTypeError
from tinyxla.hlo import Computation, Instruction, Operation
from tinyxla.ops import Op, calls
from tinyxla.ops.distributed import varying
from tinyxla.ops.host.callback import callback
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.shapes import Shape
from tinyxla.tracing.array import ConcreteArray, wrap
from tinyxla.tracing.core import CarryingTracer, GraphTrace, GraphTracer, Tracer, state, trace, varying_axes, with_axes
from tinyxla.tracing.meshes import AbstractMesh, Mesh
from tinyxla.tracing.shardings import Sharding, Spec
from tinyxla.transforms.annotated import AnnotatedTrace
from tinyxla.transforms.computations import interpret, results, unpacked
from tinyxla.transforms.key_arrays import KeyArray, of_words
from tinyxla.transforms.partial_sums import NOT_LINEAR, is_zero, linear_operands, refusal_of_sums

Axes = frozenset[Hashable]  # names of those along which a value varies, and a `SumAxis` for others
_NONE: Axes = frozenset()


class SumAxis(NamedTuple):
    """An axis along which a value is "unreduced" or "reduced"."""

    kind: str
    name: Hashable


def _sum_axes(names: Axes) -> Axes:
    """All that there may be along these axes."""
    return frozenset(SumAxis(kind, name) for kind in ("unreduced", "reduced") for name in names)


def kind_along(axes: Axes, name: Hashable) -> str:
    """What a value is along an axis: "varying", "unreduced", "reduced" or "invariant"."""
    if name in axes:
        return "varying"
    return next((kind for kind in ("unreduced", "reduced") if SumAxis(kind, name) in axes), "invariant")


def kinds_of_axes(x: Any) -> tuple[Axes, Axes, Axes]:
    """The axes along which a value varies, is unreduced, and is reduced, as far as that is known."""
    axes = varying_axes(x) or _NONE
    unreduced, reduced = (
        frozenset(a.name for a in axes if isinstance(a, SumAxis) and a.kind == kind)
        for kind in ("unreduced", "reduced")
    )
    return frozenset(a for a in axes if not isinstance(a, SumAxis)), unreduced, reduced


def _joined(*several: Axes) -> Axes:
    """What the result of an operation is along axes, of operands that are these."""
    union = _NONE.union(*several)
    sums = [a for a in union if isinstance(a, SumAxis)]
    return union.difference(
        a for a in sums if a.kind == "reduced" and (a.name in union or SumAxis("unreduced", a.name) in union)
    )


class ManualTrace(AnnotatedTrace[Axes]):
    """Records a function of parts, or one inside of it, and along which axes each value varies.

    Args:
        what: names the function in errors.
        own: the axes that the function is about.
        parameters: the axes along which its parameters vary; further ones stand for values of `outer`.
        outer: the trace of the function around.

    Attributes:
        run_parts: gives the parts that devices have of an instruction's result, along a new first dimension, where the
            function is called with values; None if they are not known.
        names: the axes along which values may vary: its own and those of functions around.
        devices: for each device the text that names it.
        is_of_tracers: whether the function is called with tracers.
        type_of_part: gives the sharding type of a part, if there are explicit axes that the function is not about.
    """

    type_of_part: Callable[[ManualTrace, Instruction], Sharding] | None = None
    run_parts: Callable[[ManualTrace, Instruction], ConcreteArray | None] | None = None
    devices: Sequence[str] = ()
    is_of_tracers = False

    @property
    def carries_tracers(self) -> bool:
        return self.is_of_tracers or any(isinstance(x, Tracer) for x in self.captured.values())

    def __init__(
        self,
        what: str,
        own: Axes,
        parameters: Sequence[Axes],
        outer: ManualTrace | None = None,
        staging: bool = True,
    ) -> None:
        super().__init__(what, parameters, staging)
        self.names = own | _sum_axes(own) if outer is None else own | _sum_axes(own) | outer.names
        self._own = own
        self._outer = outer

    def _enter(self) -> None:
        super()._enter()
        state.manual = self

    def inner(self, what: str, staging: bool, values: Sequence[Any]) -> ManualTrace:
        """A trace of a function inside of this one, whose parameters vary as these values do."""
        return ManualTrace(what, self._own, [self.varying(x) or _NONE for x in values], self, staging)

    def _of_value(self, value: Any) -> Axes:
        """What is captured varies as it does outside."""
        return (self._outer.varying(value) if self._outer is not None else None) or _NONE

    def _of_results(self, x: Instruction, operands: list[list[Axes]]) -> list[Axes]:
        return [axes & self.names for axes in results_vary(x, operands)]

    def sharding_of(self, x: Instruction) -> Sharding:
        return super().sharding_of(x) if self.type_of_part is None else self.type_of_part(self, x)

    def value_of(self, x: Instruction) -> ConcreteArray | None:
        """Python may look at what all devices have alike."""
        parts = None if self.known[x][0] else self._parts_of(x)
        return None if parts is None else wrap(parts.buffer()[0])

    def text_of(self, x: Instruction) -> str | None:
        parts = self._parts_of(x)
        if parts is None:
            return None
        return "\n".join(f"{name}:\n{part}\n" for name, part in zip(self.devices, parts.buffer(), strict=True))

    def _parts_of(self, x: Instruction) -> ConcreteArray | None:
        return None if self.run_parts is None else self.run_parts(self, x)

    def varying(self, x: Any) -> Axes | None:
        """The axes along which a value varies; None if that is not known, as inside of loops."""
        if isinstance(x, GraphTracer):
            if x.owner is self:
                return self.known[x.instruction][0]
            return self._outer.varying(x) if self._outer is not None else None
        if isinstance(x, CarryingTracer):
            return self.varying(x.carried)
        if isinstance(x, KeyArray):
            return self.varying(x.words)
        return getattr(x, "vma", _NONE)  # of a description of an array

    def wrong_axes(self, cotangent: Any, x: Any) -> Axes:
        """The axes along which a cotangent is none of x: it varies where x does not, or is not a summand where it must
        be one."""
        axes, own = self.varying(cotangent), self.varying(x)
        if cotangent is None or axes is None or own is None:
            return _NONE
        duals = {"unreduced": "reduced", "reduced": "unreduced"}
        wanted = frozenset(SumAxis(duals[a.kind], a.name) if isinstance(a, SumAxis) else a for a in own)
        summands = (a for a in wanted if isinstance(a, SumAxis) and a.kind == "unreduced" and not is_zero(cotangent))
        beyond = (axes - wanted).union(a for a in summands if a not in axes)
        return frozenset(a.name if isinstance(a, SumAxis) else a for a in beyond)

    def varies_beyond(self, value: Any, x: Any) -> Axes:
        """The axes along which a value varies and x does not; none of a value of which that is not known."""
        axes, own = self.varying(value), self.varying(x)
        return _NONE if own is None else frozenset(a for a in (axes or _NONE) - own if not isinstance(a, SumAxis))

    def like(self, value: Any, x: Any) -> Any:
        """A value that varies as x does."""
        return spread_along(value, _NONE, self.varying(x) or _NONE)

    def varying_like(self, value: Any, x: Any) -> Any:
        """A value that varies along the axes along which x varies."""
        if isinstance(value, KeyArray):
            return of_words(value.dtype, (self.varying_like(value.words, x),))
        axes = frozenset(a for a in self.varying(x) or _NONE if not isinstance(a, SumAxis))
        return spread_along(value, self.varying(value) or _NONE, axes)

    def outputs_vary(self, computation: Computation, operands: Sequence[Any]) -> list[Axes]:
        """The axes along which the results of a computation of these values vary."""
        return outputs_vary(computation, [self.varying(x) or _NONE for x in operands])

    def settled(self, carry: list[Any], step: Computation, operands: Sequence[Any]) -> list[Any]:
        """What a loop carries, varying along the axes along which the results of its step do; the same objects if that
        is how it is."""
        after = self.outputs_vary(step, operands)
        before = [self.varying(x) for x in carry]  # None of a value of another trace, which stays
        pairs = zip(carry, before, after, strict=False)
        return [x if b is None or b >= a else spread_along(x, b, a) for x, b, a in pairs]

    def unified(
        self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Operands that vary along the same axes, or along those that a loop or branch wants. A callback is called for
        the part of each device."""
        is_pure = op is callback and not attributes.get("custom_call_has_side_effect")
        if is_pure and attributes.get("vmap_method") is None:
            attributes = {**attributes, "vmap_method": "sequential"}
        known = [self.varying(x) for x in operands]
        axes = [x for x in known if x is not None]
        if len(axes) < len(known):
            return operands, attributes
        wanted, attributes = _wanted(op, axes, attributes, operands, self.names)
        return tuple(
            spread_along(x, before, after) for x, before, after in zip(operands, axes, wanted, strict=True)
        ), attributes


def spread_along(x: Any, before: Axes, after: Axes) -> Any:
    """A value as one that varies along further axes, or is reduced along them. Zeros may be summands, too.

    Raises:
        ShardingTypeError: a value that would have to be a summand, or a summand that would have to vary.
    """
    for axis in sorted(after - before, key=str):
        name = axis.name if isinstance(axis, SumAxis) else axis
        source, target = kind_along(before, name), kind_along(after, name)
        if source == "unreduced" or (target == "unreduced" and (source == "reduced" or not is_zero(x))):
            raise ShardingTypeError(
                f"An array {Shape.of(x)} is {source} along {name!r}, but must be {target}, beside others that are; use "
                "lax.psum or lax.psum_scatter for the sum, or lax.pcast."
            )
        if source == "invariant":
            x, source = varying.pvary(x, axis_name=name), "varying"
        if source != target:
            x = varying.recast(x, axis_name=name, source=source, target=target)
    return x


def results_vary(x: Instruction, operands: Sequence[Sequence[Axes]]) -> list[Axes]:
    """The axes along which the arrays of an instruction's result vary, if those of its operands vary along these."""
    flat = [axes for several in operands for axes in several]
    name, count = x.op.name, len(leaf_shapes(x.shape))
    if x.op is calls.tuple_ or name == "opt-barrier":
        return flat
    if x.op is calls.get_tuple_element:
        return [operands[0][x.attributes.index]]
    if name == "while":
        return _carried(x.attributes.condition, x.attributes.body, flat)
    if name == "conditional":
        found = [outputs_vary(branch, flat[1:]) for branch in x.attributes.branch_computations]
        return [_joined(flat[0], *several) for several in zip(*found, strict=True)]
    if name == "call":
        return outputs_vary(x.attributes.to_apply, flat)
    if name == "shard-map":
        found = outputs_vary(x.attributes.to_apply, _of_parts(flat, x.attributes.in_specs))
        return [axes.difference(x.attributes.own_axes) for axes in found]
    axis = getattr(x.attributes, "axis_name", None)
    union = _joined(*flat)
    if x.op is varying.recast:
        return [recast_axes(union, **x.attributes._asdict())]
    if name in ("replica-id", "pvary"):
        union |= {axis}
    elif name == "psum-invariant" or (name == "all-reduce" and not x.attributes.replica_groups):
        union -= {axis}
    return [union] * count


def recast_axes(axes: Axes, *, axis_name: Hashable, source: str, target: str) -> Axes:
    """What a value is along axes after a `recast`."""
    marks = {
        "varying": axis_name,
        "unreduced": SumAxis("unreduced", axis_name),
        "reduced": SumAxis("reduced", axis_name),
    }
    rest = axes.difference(marks.values())
    return rest | {marks[target]} if target in marks else rest


def _of_parts(axes: Sequence[Axes], specs: Sequence[Spec]) -> tuple[Axes, ...]:
    """The axes along which the parts of arrays vary, which vary along these."""
    return tuple(varies.union(*spec) for varies, spec in zip(axes, specs, strict=True))


def outputs_vary(computation: Computation, parameters: Sequence[Axes]) -> list[Axes]:
    """The axes along which the results of a computation vary, if its parameters vary along these."""
    return list(_kept_results(computation, tuple(parameters)))


_MARK: Axes = frozenset({object()})  # an axis that no operation names


def dependent_results(computation: Computation, marked: Sequence[bool]) -> list[bool]:
    """Dependence analysis: which results depend on the parameters that are marked, through loops and branches.

    A result depends on what varies along an axis if it varies along it. What a loop carries is followed one by one: a
    loop that carries x and y does not make x depend on y.
    """
    return [axes >= _MARK for axes in outputs_vary(computation, [_MARK if m else _NONE for m in marked])]


@lru_cache(4096)  # loops ask for those of a body to a fixed point, and loops around them again
def _kept_results(computation: Computation, parameters: tuple[Axes, ...]) -> list[Axes]:
    return interpret(computation, [[axes] for axes in parameters], results_vary)


def _carried(condition: Computation, body: Computation, carry: Sequence[Axes]) -> list[Axes]:
    """What a loop carries, to a fixed point; all of it varies with the number of steps."""
    while True:
        (predicate,) = outputs_vary(condition, carry)
        after = [_joined(a, b, predicate) for a, b in zip(carry, outputs_vary(body, carry), strict=True)]
        if after == list(carry):
            return after
        carry = after


# --- operands of one operation ----------------------------------------------------------------------------------------


def _wanted(
    op: Operation, axes: Sequence[Axes], attributes: dict[str, Any], operands: Sequence[Any], names: Axes = _NONE
) -> tuple[list[Axes], dict[str, Any]]:
    """The axes along which operands have to vary; and the attributes, with the same done in their computations. What
    devices tell each other along an axis, of these `names`, varies along it. Operands of branches vary where the
    choice does: a sum of cotangents is made outside of a branch that not all devices take."""
    if op.name == "while":
        condition, body = attributes["condition"], attributes["body"]
        carry = tuple(_carried(condition, body, axes))
        changed = {"condition": unified(condition, carry, None), "body": unified(body, carry, carry)}
        return list(carry), {**attributes, **changed}
    if op.name == "conditional":
        branches, given = attributes["branch_computations"], tuple(_joined(axes[0], other) for other in axes[1:])
        several = zip(*(outputs_vary(branch, given) for branch in branches), strict=True)
        outputs = tuple(_joined(axes[0], *found) for found in several)
        made = tuple(unified(branch, given, outputs) for branch in branches)
        return [axes[0], *given], {**attributes, "branch_computations": made}
    if op.name == "opt-barrier":
        return list(axes), attributes
    if op.name == "call" and getattr(attributes.get("rule"), "gives_cotangents", True):
        return list(axes), {**attributes, "to_apply": unified(attributes["to_apply"], tuple(axes), None)}
    if op.name == "shard-map" and attributes["check_vma"]:
        to_apply, parts = attributes["to_apply"], _of_parts(axes, attributes["in_specs"])
        sizes = attributes["mesh"].shape
        return list(axes), {**attributes, "to_apply": with_axes(sizes, lambda: unified(to_apply, parts, None))}
    union = _joined(*axes)
    if op is varying.recast:
        return [recast_axes(union, **(attributes | {"target": attributes["source"]}))], attributes
    if op is not varying.pvary and attributes.get("axis_name") in names:
        union = _joined(union, frozenset({attributes["axis_name"]}))
    along = [a.name for a in union if isinstance(a, SumAxis) and a.kind == "unreduced"]
    return (_wanted_of_sums(op, axes, attributes, operands, along) if along else [union] * len(axes)), attributes


def _wanted_of_sums(
    op: Operation, axes: Sequence[Axes], attributes: dict[str, Any], operands: Sequence[Any], along: Sequence[Hashable]
) -> list[Axes]:
    """The axes of operands some of which are summands along some: zeros may be summands, too, and factors are reduced.

    Raises:
        ShardingTypeError: an operation that is not linear in the summands, or an operand that varies.
    """
    assert isinstance(op, Op)
    sums = [SumAxis("unreduced", name) for name in along]
    for name, mark in zip(along, sums, strict=True):
        why = refusal_of_sums(op, attributes, operands, [mark in own for own in axes])
        if any(name in own for own in axes) or attributes.get("axis_name") == name:
            why = "another operand varies among devices, or they exchange summands"
        if why is not None:
            shapes = " and ".join(str(Shape.of(x)) for x in operands)
            error = PartialSumError if why == NOT_LINEAR else ShardingTypeError
            raise error(
                f"{op.name}: {why}, of {shapes}, of which one is unreduced along {name!r}, a summand of each device; "
                "use lax.psum or lax.psum_scatter for the sum."
            )
    rest = _joined(*axes).difference(sums)
    places = linear_operands(op, attributes, len(operands))

    def wanted(k: int, x: Any, own: Axes) -> Axes:
        is_summand = k in places and is_zero(x)
        return rest.union(m if m in own or is_summand else SumAxis("reduced", m.name) for m in sums)

    return [wanted(k, x, own) for k, (x, own) in enumerate(zip(operands, axes, strict=True))]


@lru_cache(1024)
def unified(computation: Computation, parameters: tuple[Axes, ...], outputs: tuple[Axes, ...] | None) -> Computation:
    """A computation in which operands of one operation vary along the same axes, and results along these."""
    names = frozenset[Hashable]().union(*parameters, *(outputs or ()), computation.axis_names)
    if not names:
        return computation

    def function(*values: Any) -> list[Any]:
        found = _run_unified(computation, list(zip(values, parameters, strict=True)))
        wanted = outputs or [axes for _, axes in found]
        return [spread_along(x, before, after) for (x, before), after in zip(found, wanted, strict=True)]

    made, _, _ = trace(function, computation.parameter_shapes, computation.name)
    return unpacked(made) if isinstance(computation.root.shape, Shape) else made


Known = tuple[Any, Axes]


def _run_unified(computation: Computation, parameters: Sequence[Known]) -> list[Known]:
    return interpret(computation, [[known] for known in parameters], _unified_instruction)


def _unified_instruction(x: Instruction, operands: list[list[Known]]) -> list[Known]:
    flat = [known for several in operands for known in several]
    if x.op is calls.tuple_:
        return flat
    if x.op is calls.get_tuple_element:
        return [operands[0][x.attributes.index]]
    if x.op is varying.pvary and x.attributes.axis_name in flat[0][1]:
        return flat
    wanted, attributes = _wanted(x.op, [axes for _, axes in flat], x.attributes._asdict(), [v for v, _ in flat])
    inputs = [spread_along(v, axes, after) for (v, axes), after in zip(flat, wanted, strict=True)]
    return list(zip(results(x.op(*inputs, **attributes)), results_vary(x, [wanted]), strict=True))


def _names_of_devices(mesh: AbstractMesh) -> list[str]:
    """Texts that name the devices of a mesh, and say where in it they are."""
    devices = mesh.devices.flat if isinstance(mesh, Mesh) else range(mesh.size)
    axes = "".join(f"{name}, " for name in mesh.axis_names).rstrip()
    places = np.ndindex(mesh.axis_sizes)
    return [
        f"On {device} at mesh coordinates ({axes}) = {place}" for device, place in zip(devices, places, strict=True)
    ]


def trace_parts(
    function: Callable[..., Sequence[Any]],
    parts: Sequence[tuple[Shape, bool, Axes]],
    mesh: AbstractMesh,
    names: Axes,
    checks: bool,
    name: str,
    run_parts: Callable[[ManualTrace, Instruction], ConcreteArray | None] | None = None,
    is_of_tracers: bool = False,
    type_of_part: Callable[[ManualTrace, Instruction], Sharding] | None = None,
) -> tuple[Computation, list[Any], list[tuple[bool, Axes]]]:
    """A function of parts as a computation.

    Args:
        function: of tracers, to a flat list of results.
        parts: for each argument its shape, whether it is weakly typed, and the axes along which it varies.
        mesh: whose axes there are inside of it.
        names: those of its axes that the function is about.
        checks: whether it is known along which axes values vary; then `parts` say so of all axes of functions around.
        run_parts, is_of_tracers, type_of_part: as for `ManualTrace`.

    Returns:
        The computation; what it captured, its last parameters; and for each result whether it is weakly typed, and the
        axes along which it varies.
    """
    what = f"the function {name} of shard_map"
    varying_there = [axes for _, _, axes in parts]
    outer = state.manual if isinstance(state.manual, ManualTrace) else None
    graph: GraphTrace = ManualTrace(what, names, varying_there, outer) if checks else GraphTrace(what)
    if isinstance(graph, ManualTrace):
        graph.is_of_tracers, graph.type_of_part = is_of_tracers, type_of_part
        graph.run_parts, graph.devices = run_parts, [] if run_parts is None else _names_of_devices(mesh)

    def record() -> tuple[Computation, list[tuple[bool, Axes]]]:
        outputs = function(*(graph.parameter(shape, weak) for shape, weak, _ in parts))
        made = graph.finish(name, outputs)
        varies = [(isinstance(graph, ManualTrace) and graph.varying(x)) or _NONE for x in outputs]
        own = names | _sum_axes(names)
        return made, [(x.weak_type, axes & own) for x, axes in zip(outputs, varies, strict=True)]

    sizes = {name: size for name, size in mesh.shape.items() if name in names}
    made, results = graph.run(lambda: with_axes(sizes, record))
    return made, list(graph.captured.values()), results
