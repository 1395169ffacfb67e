"""While and Conditional: computations that run as often as, or only if, a value says so.

Source: sections "While" and "Conditional" of the XLA documents. In the graph a loop has n arrays as operands,
computations of n parameters and a tuple of n arrays as its result, and all branches of a conditional take the same
operands; in HLO text there is one tuple in place of these (`tinyxla.text.control_flow`).

The rules make further loops and branches. What is carried with derivatives or mapped is found by a fixed point: what
a value that has it flows to has it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import Op, Sample, calls, elementwise, indexing, movement, reduction
from tinyxla.ops.op import Joint
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import CarryingTracer, GraphTracer, trace
from tinyxla.transforms.batch import BatchTracer
from tinyxla.transforms.computations import (
    Mask,
    batched,
    chosen,
    forward,
    inexact,
    of_one,
    partition,
    reverse,
    run,
    spread,
    updating_in_place,
    with_parameters,
)
from tinyxla.transforms.reverse import is_inexact, zeros_like

Axes = tuple[int | None, ...]
Pullback = Callable[[Any], list[Any]]
_PRED = Shape(element_type("pred"))
_COUNTER = Shape(element_type("s32"))


def _check_takes(what: str, computation: Computation, operands: Sequence[AnyShape]) -> None:
    taken = computation.parameter_shapes
    if len(taken) != len(operands):
        raise ShapeError(
            f"{what} must have a parameter for each of the {len(operands)} operands, but {computation.name} has "
            f"{len(taken)}."
        )
    _check_equal(f"{what}: the parameters of {computation.name} must have the operands' shapes", taken, operands)


def _check_equal(what: str, found: Sequence[AnyShape], expected: Sequence[AnyShape]) -> None:
    if len(found) != len(expected):
        raise ShapeError(f"{what}, {TupleShape(tuple(expected))}, but are {TupleShape(tuple(found))}.")
    for number, (x, wanted) in enumerate(zip(found, expected, strict=True)):
        if x != wanted:
            raise ShapeError(f"{what}, but number {number} is {x} where {wanted} is needed.")


def _integer(value: int) -> Any:
    return movement.full(value, np.int32)


# --- while ------------------------------------------------------------------------------------------------------------


class While(NamedTuple):
    """`known_trip_count`, if given, is how often the body runs, as far as whoever made the loop knows: what the
    condition says all the same. A derivative in reverse mode then keeps just what it needs."""

    condition: Computation
    body: Computation
    known_trip_count: int | None = None


def _while_shape(
    *operands: AnyShape, condition: Computation, body: Computation, known_trip_count: int | None = None
) -> AnyShape:
    _check_takes("while: the condition", condition, operands)
    _check_takes("while: the body", body, operands)
    if condition.root.shape != _PRED:
        raise ShapeError(
            f"while: the condition {condition.name} must give pred[], but it gives {condition.root.shape}."
        )
    if not isinstance(body.root.shape, TupleShape):
        raise ShapeError(f"while: the body {body.name} must give a tuple, but it gives {body.root.shape}.")
    results = body.root.shape.elements
    _check_equal(f"while: the results of the body {body.name} must have the operands' shapes", results, operands)
    if known_trip_count is not None and known_trip_count < 0:
        raise AttributeValueError(f"while: known_trip_count must not be negative, but is {known_trip_count}.")
    return TupleShape(operands)


def _while_evaluate(
    *operands: Any, condition: Computation, body: Computation, known_trip_count: int | None = None
) -> Any:
    values = operands
    while calls.evaluate(condition, values):
        values = calls.evaluate(body, values)
    return values


def _while_forward(
    tangents: tuple[Any, ...],
    *operands: Any,
    condition: Computation,
    body: Computation,
    known_trip_count: int | None = None,
) -> tuple[Any, Any]:
    moving = _moving(body, tuple(t is not None for t in tangents))
    given = [zeros_like(x) if t is None else t for x, t in zip(operands, tangents, strict=True)]
    made, _ = forward(body, moving, moving)
    outputs = while_(
        *operands,
        *chosen(given, moving),
        condition=with_parameters(condition, made.parameter_shapes),
        body=made,
        known_trip_count=known_trip_count,
    )
    count = len(operands)
    return outputs[:count], tuple(spread(outputs[count:], moving))


def _until_stable(mask: Mask, grow: Callable[[Mask], Sequence[bool]]) -> Mask:
    """The least mask that contains this one and all that it grows to."""
    while True:
        larger = tuple(a or bool(b) for a, b in zip(mask, grow(mask), strict=True))
        if larger == mask:
            return mask
        mask = larger


@lru_cache(1024)
def _moving(body: Computation, present: Mask) -> Mask:
    """Which of the values carried have a tangent, if these have one at the start."""
    return _until_stable(present, lambda mask: forward(body, mask)[1])


def _while_batch(
    size: int,
    operands: tuple[Any, ...],
    axes: Axes,
    *,
    condition: Computation,
    body: Computation,
    known_trip_count: int | None = None,
) -> Any:
    mapped, by_lane = _mapped(condition, body, size, tuple(a is not None for a in axes))
    lanes = zip(operands, axes, mapped, strict=True)
    values = [movement.align_axis(x, a, 0, size) if m else x for x, a, m in lanes]
    goes_on, step = _on_lanes(condition, body, size, mapped, by_lane)
    known = None if by_lane else known_trip_count
    results = while_(*values, condition=goes_on, body=step, known_trip_count=known)
    return results, _first(mapped)


def _first(mapped: Mask) -> Axes:
    return tuple(0 if m else None for m in mapped)


@lru_cache(1024)
def _mapped(condition: Computation, body: Computation, size: int, mapped: Mask) -> tuple[Mask, bool]:
    """Which of the values carried differ between lanes, if these do at the start; and whether the condition does. Then
    all that changes differs, since the lanes end after different numbers of steps."""

    def ends_by_lane(mask: Mask) -> bool:
        return batched(condition, size, _first(mask))[1] != (None,)

    def grow(mask: Mask) -> list[bool]:
        changes = [ends_by_lane(mask) and not i for i in _invariant(body)]
        return [c or a is not None for c, a in zip(changes, batched(body, size, _first(mask))[1], strict=True)]

    found = _until_stable(mapped, grow)
    return found, ends_by_lane(found)


def _invariant(body: Computation) -> list[bool]:
    """Which of the values carried stay as they are."""
    return [x is p for x, p in zip(body.outputs, body.parameters, strict=True)]


@lru_cache(1024)
def _on_lanes(
    condition: Computation, body: Computation, size: int, mapped: Mask, by_lane: bool
) -> tuple[Computation, Computation]:
    """Condition and body for all lanes at once. Where lanes end one by one, those that have ended keep their values
    until all have."""
    step, _ = batched(body, size, _first(mapped), mapped)
    test, _ = batched(condition, size, _first(mapped), (by_lane,))
    shapes = step.parameter_shapes
    if not by_lane:
        return of_one(lambda *x: run(test, x)[0], shapes, test.name), step

    def goes_on(*values: Any) -> Any:
        return reduction.reduce_or(run(test, values)[0], (0,))

    def some_step(*values: Any) -> list[Any]:
        (running,) = run(test, values)
        after = run(step, values)
        return [_where(running, x, y) if m else x for x, y, m in zip(after, values, mapped, strict=True)]

    return of_one(goes_on, shapes, test.name), trace(some_step, shapes, step.name)[0]


def _where(lanes: Any, x: Any, y: Any) -> Any:
    """x in those lanes, y in the others; lanes are along the first dimension."""
    whole = movement.broadcast(lanes, sizes=x.shape, dimensions=(0,)) if x.ndim > 1 else lanes
    return elementwise.select(whole, x, y)


# --- while, backwards -------------------------------------------------------------------------------------------------


def _while_reverse(
    wanted: Mask, *operands: Any, condition: Computation, body: Computation, known_trip_count: int | None = None
) -> tuple[Any, Pullback]:
    active = _reached(body, wanted)
    count = known_trip_count if known_trip_count is not None else trip_count(operands, condition, body)
    if count == 0:
        return operands, lambda g: spread(chosen(g, wanted), wanted)
    if count is None:
        return _with_snapshots(active, operands, condition, body)
    return _with_residuals(active, operands, body, count)


@lru_cache(1024)
def _reached(body: Computation, wanted: Mask) -> Mask:
    """Which of the values carried a derivative can flow through, if these are wanted."""

    def grow(mask: Mask) -> list[bool]:
        reached = set(chosen(body.parameters, mask))
        for x in body.instructions:
            arrays = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
            if any(o in reached for o in x.operands) and any(
                isinstance(s, TupleShape) or is_inexact(s) for s in arrays
            ):
                reached.add(x)
        return [x in reached for x in body.outputs]

    return _until_stable(wanted, grow)


class _Loops(NamedTuple):
    """A loop that keeps residuals, and the loop back."""

    forward: While  # of a counter, the values carried, and the stacks of residuals
    backward: While  # of a counter, cotangents, the stacks, and the residuals that do not change
    stacks: list[Shape]
    constant: list[int]  # the operands which are these


@lru_cache(256)
def _residual_loops(body: Computation, active: Mask, count: int) -> _Loops:
    both = updating_in_place(reverse(body, active, active, True)[0])
    carried = len(body.parameters)
    early, late = partition(both, carried, carried)
    unchanged = {p: k for k, p in enumerate(early.parameters) if _invariant(body)[k]}
    residuals = early.outputs[carried:]
    kept = [x for x in residuals if x not in unchanged]
    constant = [unchanged[x] for x in residuals if x in unchanged]
    stacks = [x.array_shape.with_dimensions((count, *x.array_shape.dimensions)) for x in kept]

    def there(t: Any, *values: Any) -> list[Any]:
        found = run(early, values[:carried])
        new = [x for x, r in zip(found[carried:], residuals, strict=True) if r not in unchanged]
        pushed = [put(stack, x, t) for stack, x in zip(values[carried:], new, strict=True)]
        return [elementwise.add(t, _integer(1)), *found[:carried], *pushed]

    seeds = chosen(body.parameter_shapes, active)

    def back(t: Any, *values: Any) -> list[Any]:
        cotangents, rest = values[: len(seeds)], values[len(seeds) :]
        popped = [at(stack, t) for stack in rest[: len(stacks)]]
        given = spread(rest[len(stacks) :], [x in unchanged for x in residuals])
        inputs = spread(popped, [x not in unchanged for x in residuals], given)
        found = run(late, [*inputs, *cotangents])
        return [elementwise.sub(t, _integer(1)), *found, *rest]

    there_shapes = [_COUNTER, *body.parameter_shapes, *stacks]
    back_shapes = [_COUNTER, *seeds, *stacks, *(body.parameter_shapes[k] for k in constant)]
    ahead = of_one(lambda t, *_: elementwise.lt(t, _integer(count)), there_shapes, "ahead")
    remains = of_one(lambda t, *_: elementwise.ge(t, _integer(0)), back_shapes, "remains")
    return _Loops(
        While(ahead, trace(there, there_shapes, early.name)[0], count),
        While(remains, trace(back, back_shapes, late.name)[0], count),
        stacks,
        constant,
    )


def _with_residuals(active: Mask, operands: tuple[Any, ...], body: Computation, count: int) -> tuple[Any, Pullback]:
    """The number of steps is known: what the way back needs of each step is kept in an array with a row for each."""
    loops = _residual_loops(body, active, count)
    rows = [movement.full(0, s.dtype, s.dimensions) for s in loops.stacks]
    _, *outputs = while_(_integer(0), *operands, *rows, **loops.forward._asdict())
    kept = [*outputs[len(operands) :], *(operands[k] for k in loops.constant)]

    def pullback(g: Any) -> list[Any]:
        seeds = chosen(g, active)
        _, *found = while_(_integer(count - 1), *seeds, *kept, **loops.backward._asdict())
        return spread(found[: len(seeds)], active)

    return tuple(outputs[: len(operands)]), pullback


_SNAPSHOTS = 64  # of the values carried, that a loop of unknown length is run back with


def _with_snapshots(
    active: Mask, operands: tuple[Any, ...], condition: Computation, body: Computation
) -> tuple[Any, Pullback]:
    """How many steps there are is known only after the loop, while the sizes of arrays must be known before.

    So the values carried are kept at a fixed number of steps at equal distances, and those in between are computed
    again. Without recomputation up to `_SNAPSHOTS` steps; from there on the time grows with the square of the steps.
    Source: Griewank and Walther, "Algorithm 799: revolve", 2000, for the trade of time for memory.
    """
    total, *outputs = _counted(operands, condition, body)

    def pullback(g: Any) -> list[Any]:
        most = _integer(_SNAPSHOTS)
        distance = elementwise.div(elementwise.add(total, _integer(_SNAPSHOTS - 1)), most)
        varies = tuple(not i for i in _invariant(body))
        shapes = [Shape.of(x) for x in chosen(operands, varies)]
        rows = [movement.full(0, s.dtype, (_SNAPSHOTS, *s.dimensions)) for s in shapes]
        seeds = chosen(g, active)
        keep, back = _snapshot_loops(body, active, varies)
        found = while_(_integer(0), total, distance, *operands, *rows, **keep._asdict())
        stacks = found[3 + len(operands) :]
        last = elementwise.sub(total, _integer(1))
        _, *found = while_(last, *seeds, distance, *stacks, *operands, **back._asdict())
        return spread(found[: len(seeds)], active)

    return tuple(outputs), pullback


def _counted(operands: tuple[Any, ...], condition: Computation, body: Computation) -> Any:
    """How many steps there were, and the results."""
    shapes = [_COUNTER, *body.parameter_shapes]
    places = range(1, len(shapes))
    step = trace(lambda t, *x: [elementwise.add(t, _integer(1)), *run(body, x)], shapes, body.name)[0]
    return while_(_integer(0), *operands, condition=with_parameters(condition, shapes, places), body=step)


@lru_cache(256)
def _snapshot_loops(body: Computation, active: Mask, varies: Mask) -> tuple[While, While]:
    both = updating_in_place(reverse(body, active, active, True)[0])
    carried = body.parameter_shapes
    stacks = [Shape(s.element_type, (_SNAPSHOTS, *s.dimensions)) for s in chosen(carried, varies)]
    seeds = chosen(carried, active)

    def keep(t: Any, total: Any, distance: Any, *values: Any) -> list[Any]:
        now, rows = values[: len(carried)], values[len(carried) :]
        place = elementwise.div(t, distance)
        due = elementwise.eq(elementwise.mul(place, distance), t)
        kept = [put(r, _choose(due, x, at(r, place)), place) for r, x in zip(rows, chosen(now, varies), strict=True)]
        return [elementwise.add(t, _integer(1)), total, distance, *run(body, now), *kept]

    def back(t: Any, *values: Any) -> list[Any]:
        cotangents, (distance, *rest) = values[: len(seeds)], values[len(seeds) :]
        place = elementwise.div(t, distance)
        snapshot = spread([at(r, place) for r in rest[: len(stacks)]], varies, rest[len(stacks) :])
        start = elementwise.mul(place, distance)
        _, _, *now = while_(start, t, *snapshot, **until._asdict())
        found = run(both, [*now, *cotangents])[len(carried) :]
        return [elementwise.sub(t, _integer(1)), *found, distance, *rest]

    def again(t: Any, stop: Any, *values: Any) -> list[Any]:
        return [elementwise.add(t, _integer(1)), stop, *run(body, values)]

    def ahead(t: Any, stop: Any, *values: Any) -> Any:
        return elementwise.lt(t, stop)

    again_shapes = [_COUNTER, _COUNTER, *carried]
    keep_shapes = [_COUNTER, _COUNTER, _COUNTER, *carried, *stacks]
    back_shapes = [_COUNTER, *seeds, _COUNTER, *stacks, *carried]
    until = While(of_one(ahead, again_shapes, "until"), trace(again, again_shapes, body.name)[0])
    remains = of_one(lambda t, *_: elementwise.ge(t, _integer(0)), back_shapes, "remains")
    return (
        While(of_one(ahead, keep_shapes, "ahead"), trace(keep, keep_shapes, f"{body.name}_snapshots")[0]),
        While(remains, trace(back, back_shapes, both.name)[0]),
    )


def _choose(pred: Any, x: Any, y: Any) -> Any:
    whole = movement.broadcast(pred, sizes=x.shape, dimensions=()) if x.ndim else pred
    return elementwise.select(whole, x, y)


def at(rows: Any, number: Any) -> Any:
    """The row with that number: a slice of one, without the dimension."""
    sizes = rows.shape[1:]
    starts = [number, *[_integer(0)] * len(sizes)]
    return movement.reshape_to(indexing.dynamic_slice(rows, *starts, dynamic_slice_sizes=(1, *sizes)), sizes)


def put(rows: Any, x: Any, number: Any) -> Any:
    """The rows with another one in that place."""
    starts = [number, *[_integer(0)] * x.ndim]
    return indexing.dynamic_update_slice(rows, movement.reshape_to(x, (1, *x.shape)), *starts)


# --- known trip counts ------------------------------------------------------------------------------------------------

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def trip_count(operands: Sequence[Any], condition: Computation, body: Computation) -> int | None:
    """How often a loop runs, if it is seen to count: the condition compares an integer with a bound that does not
    change, the body adds a constant to it, and both are known at the start."""
    test, parameters = condition.root, condition.parameters
    if test.op is not elementwise.compare or test.attributes.direction not in _MIRRORED:
        return None
    direction = test.attributes.direction
    counter, bound = test.operands
    if counter not in parameters or _invariant(body)[parameters.index(counter)]:
        counter, bound, direction = bound, counter, _MIRRORED[direction]
    if counter not in parameters:
        return None
    number = parameters.index(counter)
    start, step = known_value(operands[number]), _step(body, number)
    stop = _literal(bound)
    if bound in parameters and _invariant(body)[parameters.index(bound)]:
        stop = known_value(operands[parameters.index(bound)])
    if not all(isinstance(x, int) for x in (start, step, stop)):
        return None
    return _steps(direction, start, step, stop)


def _step(body: Computation, number: int) -> Any:
    """What the body adds to one of its parameters, if that is a constant."""
    x, parameter = body.outputs[number], body.parameters[number]
    if x.op not in (elementwise.add, elementwise.sub) or x.operands.count(parameter) != 1:
        return None
    first, second = x.operands
    if x.op is elementwise.sub:
        found = _literal(second) if first is parameter else None
        return None if found is None else -found
    return _literal(second if first is parameter else first)


def _literal(x: Instruction) -> Any:
    return x.attributes.literal.value.item() if x.op is movement.constant and not x.array_shape.rank else None


def known_value(x: Any) -> Any:
    """The number that a scalar is, if that is known while tracing."""
    while isinstance(x, CarryingTracer) and not isinstance(x, BatchTracer):
        x = x.value
    if isinstance(x, GraphTracer):
        return _literal(x.instruction)
    return x.numpy().item() if isinstance(x, ConcreteArray) and not x.shape else None


def _steps(direction: str, start: int, step: int, stop: int) -> int | None:
    """The length of start, start + step, ... as far as it compares with `stop`; None if it is not seen to end."""
    if direction in ("GT", "GE"):
        start, step, stop = -start, -step, -stop
    if direction == "NE":
        far = (stop - start) // step if step and (stop - start) % step == 0 else -1
        return far if far >= 0 else None
    length = stop - start + (direction in ("LE", "GE"))
    if length <= 0:
        return 0
    return -(-length // step) if step > 0 else None


# --- conditional ------------------------------------------------------------------------------------------------------


class Conditional(NamedTuple):
    branch_computations: tuple[Computation, ...]


def _conditional_shape(index: AnyShape, *operands: AnyShape, branch_computations: tuple[Computation, ...]) -> AnyShape:
    if index not in (_PRED, _COUNTER):
        raise ShapeError(f"conditional: what chooses the branch must be pred[] or s32[], but is {index}.")
    count = len(branch_computations)
    if count == 0 or (index == _PRED and count != 2):
        needed = "two branches" if index == _PRED else "at least one branch"
        raise ShapeError(f"conditional: with an index {index} there must be {needed}, but there are {count}.")
    expected = branch_computations[0].root.shape
    if not isinstance(expected, TupleShape):
        raise ShapeError(f"conditional: branches must give tuples, but {branch_computations[0].name} gives {expected}.")
    for branch in branch_computations:
        _check_takes("conditional: a branch", branch, operands)
        if branch.root.shape != expected:
            raise ShapeError(
                f"conditional: all branches must give the same shapes, but {branch_computations[0].name} gives "
                f"{expected} and {branch.name} gives {branch.root.shape}."
            )
    return expected


def _conditional_evaluate(index: Any, *operands: Any, branch_computations: tuple[Computation, ...]) -> Any:
    number = int(not index) if np.asarray(index).dtype == np.bool_ else int(index)
    last = len(branch_computations) - 1
    return calls.evaluate(branch_computations[number if 0 <= number <= last else last], operands)


def _conditional_forward(
    tangents: tuple[Any, ...], index: Any, *operands: Any, branch_computations: tuple[Computation, ...]
) -> tuple[Any, Any]:
    present = tuple(t is not None for t in tangents[1:])
    made, moving = _forward_branches(branch_computations, present)
    outputs = conditional(index, *operands, *chosen(tangents[1:], present), branch_computations=made)
    count = len(moving)
    return outputs[:count], tuple(spread(outputs[count:], moving))


@lru_cache(1024)
def _forward_branches(branches: tuple[Computation, ...], present: Mask) -> tuple[tuple[Computation, ...], Mask]:
    found = [forward(branch, present)[1] for branch in branches]
    moving = tuple(map(any, zip(*found, strict=True)))
    return tuple(forward(branch, present, moving)[0] for branch in branches), moving


class _Branches(NamedTuple):
    """Branches that also give residuals, and the branches back."""

    forward: tuple[Computation, ...]  # of the operands
    backward: tuple[Computation, ...]  # of the operands, the residuals and the cotangents


@lru_cache(256)
def _split_branches(branches: tuple[Computation, ...], active: Mask) -> _Branches:
    """The residuals of all branches share places where they have the same shape; what a branch lacks is zero."""
    operands, count = branches[0].parameter_shapes, len(branches[0].outputs)
    seeded = inexact(branches[0])
    parts = [partition(reverse(b, active, seeded, True)[0], len(operands), count) for b in branches]
    shapes: list[AnyShape] = []
    places: list[list[int]] = []  # for each branch, those of its residuals: operands first
    for early, _ in parts:
        taken: list[int] = []
        for x in early.outputs[count:]:
            if x in early.parameters:
                taken.append(early.parameters.index(x))
                continue
            free = [k for k, s in enumerate(shapes) if s == x.shape and len(operands) + k not in taken]
            if not free:
                shapes.append(x.shape)
            taken.append(len(operands) + (free[0] if free else len(shapes) - 1))
        places.append(taken)

    def there(early: Computation, taken: list[int]) -> Computation:
        def function(*values: Any) -> list[Any]:
            found = run(early, values)
            given = dict(zip(taken, found[count:], strict=True))
            rest = [
                given[k] if k in given else movement.full(0, s.dtype, s.dimensions)  # type: ignore[union-attr]
                for k, s in enumerate(shapes, len(operands))
            ]
            return [*found[:count], *rest]

        return trace(function, operands, early.name)[0]

    seeds = chosen([x.shape for x in branches[0].outputs], seeded)
    whole = [*operands, *shapes, *seeds]
    ends = range(len(whole) - len(seeds), len(whole))
    return _Branches(
        tuple(there(early, taken) for (early, _), taken in zip(parts, places, strict=True)),
        tuple(with_parameters(late, whole, [*taken, *ends]) for (_, late), taken in zip(parts, places, strict=True)),
    )


def _conditional_reverse(
    wanted: Mask, index: Any, *operands: Any, branch_computations: tuple[Computation, ...]
) -> tuple[Any, Pullback]:
    made = _split_branches(branch_computations, wanted[1:])
    count = len(branch_computations[0].outputs)
    outputs = conditional(index, *operands, branch_computations=made.forward)

    def pullback(g: Any) -> list[Any]:
        seeds = chosen(g, inexact(branch_computations[0]))
        found = conditional(index, *operands, *outputs[count:], *seeds, branch_computations=made.backward)
        return spread(found, wanted)

    return outputs[:count], pullback


def _conditional_batch(
    size: int, operands: tuple[Any, ...], axes: Axes, *, branch_computations: tuple[Computation, ...]
) -> Any:
    index, *values = operands
    if axes[0] is not None:
        return _selected(size, index, values, axes[1:], branch_computations)
    made, found = _batched_branches(branch_computations, size, axes[1:])
    return conditional(index, *values, branch_computations=made), found


@lru_cache(1024)
def _batched_branches(branches: tuple[Computation, ...], size: int, axes: Axes) -> tuple[tuple[Computation, ...], Axes]:
    found = [batched(branch, size, axes)[1] for branch in branches]
    mapped = tuple(any(a is not None for a in several) for several in zip(*found, strict=True))
    return tuple(batched(branch, size, axes, mapped)[0] for branch in branches), _first(mapped)


def _selected(
    size: int, index: Any, values: Sequence[Any], axes: Axes, branches: tuple[Computation, ...]
) -> tuple[tuple[Any, ...], Axes]:
    """Lanes take different branches: all are computed, and each lane has its own selected."""
    outputs: list[list[Any]] = []
    for branch in branches:
        found, places = calls.inline_batched(branch, size, values, axes)
        outputs.append([movement.align_axis(x, a, 0, size) for x, a in zip(found, places, strict=True)])
    *others, chosen_last = outputs
    for number, several in reversed(list(enumerate(others))):
        here = index if index.dtype == np.bool_ else elementwise.eq(index, movement.full(number, np.int32, index.shape))
        chosen_last = [_where(here, x, y) for x, y in zip(several, chosen_last, strict=True)]
    return tuple(chosen_last), (0,) * len(chosen_last)


# --- samples ----------------------------------------------------------------------------------------------------------


def _while_samples(random: np.random.Generator) -> Iterator[Sample]:
    scalar, vector = Shape(element_type("f32")), Shape(element_type("f32"), (2,))
    shapes = [_COUNTER, vector, scalar]

    def below(bound: int) -> Computation:
        return of_one(lambda i, x, y: elementwise.lt(i, _integer(bound)), shapes, "below")

    def step(i: Any, x: Any, y: Any) -> list[Any]:
        scaled = elementwise.mul(x, movement.broadcast(y, sizes=(2,), dimensions=()))
        return [elementwise.add(i, _integer(1)), elementwise.sin(scaled), y]

    body = trace(step, shapes, "step")[0]
    operands = (np.int32(0), np.array([0.5, -1.25], np.float32), np.float32(1.5))
    yield Sample(tuple(map(np.asarray, operands)), {"condition": below(3), "body": body})
    yield Sample(tuple(map(np.asarray, operands)), {"condition": below(2), "body": body, "known_trip_count": 2})
    yield Sample(tuple(map(np.asarray, operands)), {"condition": below(-1), "body": body})

    def small(x: Any, n: Any) -> Any:
        return elementwise.lt(x, movement.full(4, x.dtype))

    def grown(x: Any, n: Any) -> list[Any]:
        return [elementwise.mul(x, elementwise.add(x, movement.full(1, x.dtype))), elementwise.add(n, _integer(1))]

    both = [scalar, _COUNTER]
    attributes = {"condition": of_one(small, both, "small"), "body": trace(grown, both, "grown")[0]}
    yield Sample((np.asarray(np.float32(0.9)), np.asarray(np.int32(0))), attributes)


def _conditional_samples(random: np.random.Generator) -> Iterator[Sample]:
    vector = Shape(element_type("f32"), (2,))
    shapes = [vector, vector]
    first = trace(lambda x, y: [elementwise.mul(elementwise.sin(x), y), x], shapes, "first")[0]
    second = trace(lambda x, y: [y, elementwise.exp(elementwise.mul(x, x))], shapes, "second")[0]
    third = trace(lambda x, y: [zeros_like(x), elementwise.sub(x, y)], shapes, "third")[0]
    operands = (np.array([0.5, -1.25], np.float32), np.array([2, 0.75], np.float32))
    for pred in (True, False):
        yield Sample((np.asarray(pred), *operands), {"branch_computations": (first, second)})
    for index in (-1, 1):
        yield Sample((np.asarray(np.int32(index)), *operands), {"branch_computations": (first, second, third)})
    yield Sample((np.asarray(np.int32(0)), *operands), {"branch_computations": (second,)})


while_ = Op(
    "while",
    attributes=While,
    shape=_while_shape,
    evaluate=_while_evaluate,
    derivative=Joint(_while_forward, _while_reverse),
    batch=_while_batch,
    samples=_while_samples,
)
conditional = Op(
    "conditional",
    attributes=Conditional,
    shape=_conditional_shape,
    evaluate=_conditional_evaluate,
    derivative=Joint(_conditional_forward, _conditional_reverse),
    batch=_conditional_batch,
    samples=_conditional_samples,
)
