"""Functionalization: a recorded computation with checks as one that also gives an error value.

Each computation inside - of a call, a branch, a loop - starts without an error, and its error is merged with that of
the enclosing one. A loop carries the first error of all its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from tinyxla import numpy as tnp
from tinyxla.experimental.checkify.automatic import Errors, checks
from tinyxla.experimental.checkify.errors import (
    Assertion,
    Description,
    Slot,
    State,
    first_of,
    merged,
    no_error,
    state_of,
)
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import movement
from tinyxla.ops.calls import get_tuple_element, tuple_
from tinyxla.ops.host.callback import callback
from tinyxla.shapes import Shape
from tinyxla.tracing.config import setting
from tinyxla.tracing.core import state as tracing_state, trace, with_axes
from tinyxla.transforms import call, conditional, while_
from tinyxla.transforms.batched_region import lanes
from tinyxla.transforms.computations import of_one, results, run
from tinyxla.transforms.custom import CustomJvp, CustomVjp, Rule, apply
from tinyxla.transforms.sharded import ShardMap, applied, shard_map

Values = Sequence[Any]


class Checked(NamedTuple):
    """A computation that gives the arrays of an error before its own results."""

    computation: Computation
    slots: tuple[Slot, ...]
    table: tuple[tuple[int, Description], ...]

    @property
    def error_size(self) -> int:
        """How many arrays the error has."""
        return 2 + sum(map(len, self.slots))

    def split(self, outputs: Values) -> tuple[State, tuple[Any, ...]]:
        """The error and the results among what the computation gives."""
        error = state_of(outputs[: self.error_size], self.slots, dict(self.table))
        return error, tuple(outputs[self.error_size :])


@lru_cache(1024)
def checked(computation: Computation, errors: Errors) -> Checked | None:
    """The computation with its checks, of these categories, as a value; None if it has none."""
    found: list[State] = []

    def function(*operands: Any) -> list[Any]:
        error, outputs = interpret(computation, operands, errors)
        if error is None:
            return list(outputs)
        found.append(error)
        return [*error.flat(error.slots), *outputs]

    made, _, _ = trace(function, computation.parameter_shapes, f"{computation.name}_checked")
    if not found:
        return None
    return Checked(made, found[0].slots, tuple(found[0].table.items()))


def interpret(computation: Computation, operands: Values, errors: Errors) -> tuple[State | None, tuple[Any, ...]]:
    """Run a computation on values, with the first error of its checks; None if it has no checks."""
    error: State | None = None
    values: dict[Instruction, Any] = dict(zip(computation.parameters, operands, strict=True))
    outer = tracing_state.source
    try:
        for x in computation.instructions:
            if x in values:
                continue
            tracing_state.source = x.source or outer
            found, values[x] = _apply(x, values, errors)
            for state in found:
                error = merged(error, state)
    finally:
        tracing_state.source = outer
    return error, results(values[computation.root])


def _apply(x: Instruction, values: dict[Instruction, Any], errors: Errors) -> tuple[list[State], Any]:
    """The errors and the result of one instruction."""
    operands, given = [values[o] for o in x.operands], x.attributes
    if x.op is callback and isinstance(given.function, Assertion):
        return _discharged(x, operands, errors), ()
    if x.op in (tuple_, get_tuple_element):
        return [], x.op(*operands, **given._asdict())
    rule = _RULES.get(x.op.name)
    found = rule(x, operands, errors) if rule else None
    if found is not None:
        error, outputs = found
        return [error], outputs
    ans = x.op(*operands, **given._asdict())
    with setting("numpy_rank_promotion", "allow"), setting("numpy_dtype_promotion", "standard"):
        return list(checks(x, values, results(ans), errors)), ans


def _discharged(x: Instruction, operands: Values, errors: Errors) -> list[State]:
    """The error of an assertion. Categories that are not asked for are
    left out, as in JAX."""
    function: Assertion = x.attributes.function
    state = function.state(operands)
    if x.attributes.lanes:
        state = first_of(_with_lanes(state, x))
    enabled = {code: d for code, d in state.table.items() if d.kind in errors}
    if len(enabled) == len(state.table):
        return [state]
    if not enabled:
        return []
    known = tnp.asarray(list(enabled), tnp.int32)
    return [state._replace(pred=state.pred & (state.code == known).any(), table=enabled)]


def _with_lanes(state: State, x: Instruction) -> State:
    """The state with all its arrays mapped over the dimensions that the callback is called for."""
    sizes, mapped = x.attributes.lanes, x.attributes.mapped
    arrays: list[Any] = []
    for k, array in enumerate(state.flat(state.slots)):
        dimensions = [d for d, flags in enumerate(mapped) if flags[k]]
        rest = array.shape[len(dimensions) :]
        dimensions += range(len(sizes), len(sizes) + len(rest))
        arrays.append(movement.broadcast(array, sizes=(*sizes, *rest), dimensions=tuple(dimensions)))
    return state_of(arrays, state.slots, state.table)


Found = tuple[State, Any] | None


def _call(x: Instruction, operands: Values, errors: Errors) -> Found:
    inner = checked(x.attributes.to_apply, errors)
    if inner is None:
        return None
    rule, given = x.attributes.rule, x.attributes
    if rule is not None and rule.has_derivatives:
        outputs = _with_rule(rule, given.to_apply, operands, inner)
    else:
        outputs = call(*operands, to_apply=inner.computation, checkpoint=given.checkpoint)
    return _grouped(x, inner, outputs)


def _grouped(x: Instruction, inner: Checked, outputs: Values) -> tuple[State, Any]:
    error, values = inner.split(outputs)
    return error, values if x.op is not call or _is_tuple(x) else values[0]


def _is_tuple(x: Instruction) -> bool:
    return hasattr(x.shape, "elements")


def _with_rule(rule: Any, to_apply: Computation, operands: Values, inner: Checked) -> Values:
    """A call of a function with derivatives of its own, which apply to its results and not to the error."""
    captured = operands[rule.count :]
    own: Rule = rule.of(to_apply, captured)

    def function(*values: Any) -> Values:
        return run(inner.computation, [*values, *captured])

    def error_of(values: Values) -> Values:
        return function(*values)[: inner.error_size]

    key = (rule.key, "checked", inner.table)
    if isinstance(own, CustomJvp):

        def push(values: Values, tangents: Values) -> tuple[Values, Values]:
            outputs, moves = own.push(values, tangents)
            return [*error_of(values), *outputs], [*[None] * inner.error_size, *moves]

        made: Rule = replace(own, key=key, function=function, push=push)
    elif isinstance(own, CustomVjp):

        def there(wanted: Any, values: Values) -> tuple[Values, Values, Any]:
            outputs, residuals, others = own.there(wanted, values)
            return [*error_of(values), *outputs], residuals, others

        def back(others: Any, residuals: Values, cotangents: Values) -> Values:
            return own.back(others, residuals, cotangents[inner.error_size :])

        made = replace(own, key=key, function=function, there=there, back=back)
    else:
        return _implicit(own, key, function, operands, inner)
    return apply(made, *operands[: rule.count])


def _implicit(own: Any, key: Any, function: Any, operands: Values, inner: Checked) -> Values:
    """A function whose derivative follows from its results."""

    def push(values: Values, outputs: Values, tangents: Values) -> Values:
        return [*[None] * inner.error_size, *own.push(values, outputs[inner.error_size :], tangents)]

    def pull(values: Values, outputs: Values, cotangents: Values) -> Values:
        return own.pull(values, outputs[inner.error_size :], cotangents[inner.error_size :])

    made = replace(own, key=key, function=function, push=push, pull=own.pull and pull)
    return apply(made, *operands[: own.count])


def _conditional(x: Instruction, operands: Values, errors: Errors) -> Found:
    branches = [checked(b, errors) for b in x.attributes.branch_computations]
    found = [b for b in branches if b is not None]
    if not found:
        return None
    slots = tuple(dict.fromkeys(slot for b in found for slot in b.slots))
    table = {code: d for b in found for code, d in b.table}

    def padded(branch: Computation, own: Checked | None) -> Computation:
        def function(*values: Any) -> list[Any]:
            if own is None:
                return [*no_error(slots).flat(slots), *run(branch, values)]
            error, outputs = own.split(run(own.computation, values))
            return [*error.flat(slots), *outputs]

        return trace(function, branch.parameter_shapes, branch.name)[0]

    pairs = zip(x.attributes.branch_computations, branches, strict=True)
    outputs = conditional(*operands, branch_computations=tuple(padded(b, own) for b, own in pairs))
    whole = Checked(x.attributes.branch_computations[0], slots, tuple(table.items()))
    return whole.split(outputs)


def _while(x: Instruction, operands: Values, errors: Errors) -> Found:
    given = x.attributes
    test, step = checked(given.condition, errors), checked(given.body, errors)
    found = [c for c in (test, step) if c is not None]
    if not found:
        return None
    slots = tuple(dict.fromkeys(slot for c in found for slot in c.slots))
    table = {code: d for c in found for code, d in c.table}
    whole = Checked(given.body, slots, tuple(table.items()))

    def tested(error: State, values: Values) -> State:
        return error if test is None else merged(error, test.split(run(test.computation, values))[0])

    def body(*carried: Any) -> list[Any]:
        error, values = whole.split(carried)
        if step is None:
            values = run(given.body, values)
        else:
            inner, values = step.split(run(step.computation, values))
            error = merged(error, inner)
        return [*tested(error, values).flat(slots), *values]

    def condition(*carried: Any) -> Any:
        values = carried[whole.error_size :]
        return run(given.condition if test is None else test.computation, values)[-1]

    first = tested(no_error(slots), operands)
    arrays = [*first.flat(slots), *operands]
    shapes = [*map(Shape.of, first.flat(slots)), *given.body.parameter_shapes]
    outputs = while_(
        *arrays,
        condition=of_one(condition, shapes, given.condition.name),
        body=trace(body, shapes, given.body.name)[0],
        known_trip_count=given.known_trip_count,
    )
    return whole.split(outputs)


def _lanes(x: Instruction, operands: Values, errors: Errors) -> Found:
    inner = checked(x.attributes.in_lock_step, errors)
    return None if inner is None else inner.split(call(*operands, to_apply=inner.computation))


def _shard_map(x: Instruction, operands: Values, errors: Errors) -> Found:
    """The error is that of the first device which has one."""
    given: ShardMap = x.attributes
    inner = with_axes(given.mesh.shape, lambda: checked(given.to_apply, errors))
    if inner is None:
        return None

    def function(*values: Any) -> list[Any]:
        outputs = run(inner.computation, values)
        of_devices = [movement.reshape_to(e, (1, *e.shape)) for e in outputs[: inner.error_size]]
        return [*of_devices, *outputs[inner.error_size :]]

    made = with_axes(given.mesh.shape, lambda: trace(function, given.to_apply.parameter_shapes, x.op.name)[0])
    parts = made.outputs[: inner.error_size]
    split = tuple((given.mesh.axis_names, *[()] * (e.array_shape.rank - 1)) for e in parts)
    error, values = inner.split(applied(given._replace(to_apply=made, out_specs=(*split, *given.out_specs)), operands))
    return first_of(error), values


_RULES = {
    call.name: _call,
    conditional.name: _conditional,
    while_.name: _while,
    lanes.name: _lanes,
    shard_map.name: _shard_map,
}
