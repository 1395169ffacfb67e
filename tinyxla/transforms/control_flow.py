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

from tinyxla.errors import AttributeValueError, BatchingError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, calls, dynamic_slices, elementwise, indexing, movement, reduction
from tinyxla.ops.op import Axes, Joint
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import CarryingTracer, GraphTracer, trace
from tinyxla.tracing.references import OuterReferenceError
from tinyxla.transforms.batch import BatchTracer
from tinyxla.transforms.batched_region import apart, lanes, may_part
from tinyxla.transforms.computations import (
    Mask,
    batched,
    chosen,
    effects,
    flowing,
    forward,
    inexact,
    leading,
    of_one,
    partition,
    reverse,
    run,
    run_batched,
    spread,
    with_parameters,
)
from tinyxla.transforms.invariants import carrying, counting, hoisted, literal_of, step_of, unchanged
from tinyxla.transforms.reverse import vjp, zeros_like
from tinyxla.transforms.while_reverse import (
    allocated,
    counting_steps,
    integer,
    is_allocated,
    until_stable,
    with_residuals,
)

Pullback = Callable[[Any], list[Any]]
_PRED = Shape(element_type("pred"))
_LANES, _LIGHT = 32, 32  # lanes at least, and elements that one carries at most, for loops of known length lane by lane
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


# --- while ------------------------------------------------------------------------------------------------------------


class While(NamedTuple):
    """`known_trip_count`, if given, is how often the body runs. It is trusted, as in XLA: compiled loops then count,
    and do not compute the condition, and a derivative in reverse mode keeps just what it needs."""

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
    given = [_zeros_like(x) if t is None else t for x, t in zip(operands, tangents, strict=True)]
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


def _zeros_like(x: Any) -> Any:
    """Zeros, but for memory that the loop is going to write."""
    return allocated(Shape.of(x)) if is_allocated(x) else zeros_like(x)


@lru_cache(1024)
def _moving(body: Computation, present: Mask) -> Mask:
    """Which of the values carried have a tangent, if these have one at the start."""
    return until_stable(present, lambda mask: forward(body, mask)[1])


def _while_batch(
    size: int,
    operands: tuple[Any, ...],
    axes: Axes,
    *,
    condition: Computation,
    body: Computation,
    known_trip_count: int | None = None,
) -> Any:
    if effects(condition):
        first, place = run_batched(condition, size, operands, axes)
        outputs, places = _while_batch(size, (*operands, first), (*axes, place), **_testing_once(condition, body))
        return outputs[:-1], places[:-1]
    mapped, by_lane = _mapped(condition, body, size, tuple(a is not None for a in axes))
    if by_lane:
        _refuse_effects("a loop whose examples end after different numbers of steps", condition, body)
    places = zip(operands, axes, mapped, strict=True)
    values = [_on_each(x, a, size) if m else x for x, a, m in places]
    known = None if by_lane else known_trip_count
    parts = by_lane or (known is not None and size >= _LANES and _is_light(body, mapped))
    if parts and may_part(condition, body):
        found = iter(lanes(*values, **_loop_of_lanes(condition, body, size, mapped, known)))
        steps = counting(body)
        values = [_counted(x, (known or 0) * steps.get(k, 0)) for k, x in enumerate(values)]
        return tuple(next(found) if m else x for x, m in zip(values, mapped, strict=True)), leading(mapped)
    goes_on, step = _on_lanes(condition, body, size, mapped, by_lane)
    results = while_(*values, condition=goes_on, body=step, known_trip_count=known)
    return results, leading(mapped)


def _refuse_effects(what: str, *computations: Computation) -> None:
    """An error for callbacks whose effect would be that of examples, too, that do not get there. Those for debugging
    look at the values of all of them."""
    for computation in computations:
        for x in effects(computation):
            if x.op.name == "callback" and not x.attributes.is_debug:
                raise BatchingError(
                    f"vmap: {x.attributes.function} is called for its effect in {what}; all examples are computed "
                    "together there, so it would be called for each of them. Loop over the examples with lax.map, or "
                    "call it outside."
                )
            _refuse_effects(what, *x.computations())


def _counted(x: Any, steps: int) -> Any:
    return elementwise.add(x, movement.full(steps, x.dtype)) if steps else x


def _is_light(body: Computation, mapped: Mask) -> bool:
    """Whether lanes of a loop carry so little that a strip of them stays in the cache, and touch no larger arrays; what
    they share stays as it is, or counts."""
    own = chosen([p.array_shape.size for p in body.parameters], mapped)
    nested = any(any(x.computations()) and x.op is not reduction.reduce for x in body.instructions)
    arrays = any(x.op in (dynamic_slices.dynamic_update_slice, indexing.scatter) for x in body.instructions)
    steps = counting(body)
    plain = all(m or stays or k in steps for k, (m, stays) in enumerate(zip(mapped, unchanged(body), strict=True)))
    return sum(own) <= _LIGHT and plain and not nested and not arrays


@lru_cache(1024)
def _loop_of_lanes(
    condition: Computation, body: Computation, size: int, mapped: Mask, known: int | None
) -> dict[str, Any]:
    """The attributes of `lanes` for a loop; results are those that differ between lanes. It ends lane by lane unless
    its length is known."""
    goes_on, step = _on_lanes(condition, body, size, mapped, known is None)

    def one(*x: Any) -> list[Any]:
        return chosen(while_(*x, condition=condition, body=body, known_trip_count=known), mapped)

    def together(*x: Any) -> list[Any]:
        return chosen(while_(*x, condition=goes_on, body=step, known_trip_count=known), mapped)

    return apart(one, together, body.parameter_shapes, size, mapped, body.name)


@lru_cache(1024)
def _testing_once(condition: Computation, body: Computation) -> dict[str, Any]:
    """A loop that carries what the condition gives, which runs after each step, once."""

    def step(*values: Any) -> list[Any]:
        after = run(body, values[:-1])
        return [*after, *run(condition, after)]

    shapes = [*body.parameter_shapes, _PRED]
    return {"condition": of_one(lambda *x: x[-1], shapes, "goes_on"), "body": trace(step, shapes, body.name)[0]}


def _on_each(x: Any, axis: int | None, size: int) -> Any:
    if axis is None and is_allocated(x):
        return allocated(Shape.of(x).with_dimensions((size, *x.shape)))
    return movement.align_axis(x, axis, 0, size)


@lru_cache(1024)
def _mapped(condition: Computation, body: Computation, size: int, mapped: Mask) -> tuple[Mask, bool]:
    """Which of the values carried differ between lanes, if these do at the start; and whether the condition does. Then
    all that changes differs, since the lanes end after different numbers of steps."""

    def ends_by_lane(mask: Mask) -> bool:
        return batched(condition, size, leading(mask))[1] != (None,)

    def grow(mask: Mask) -> list[bool]:
        changes = [ends_by_lane(mask) and not i for i in unchanged(body)]
        return [c or a is not None for c, a in zip(changes, batched(body, size, leading(mask))[1], strict=True)]

    found = until_stable(mapped, grow)
    return found, ends_by_lane(found)


@lru_cache(1024)
def _on_lanes(
    condition: Computation, body: Computation, size: int, mapped: Mask, by_lane: bool
) -> tuple[Computation, Computation]:
    """Condition and body for all lanes at once. Where lanes end one by one, those that have ended keep their values
    until all have."""
    step, _ = batched(body, size, leading(mapped), mapped)
    test, _ = batched(condition, size, leading(mapped), (by_lane,))
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
    if effects(condition):
        (first,) = run(condition, operands)
        outputs, back = _while_reverse((*wanted, False), *operands, first, **_testing_once(condition, body))
        return outputs[:-1], lambda g: back((*g, zeros_like(first)))[:-1]
    count = known_trip_count if known_trip_count is not None else trip_count(operands, condition, body)
    if count == 0:
        return operands, lambda g: spread(chosen(g, wanted), wanted)
    most = most_steps(operands, condition, body)
    own, made = len(operands), hoisted(body, unchanged(body))
    if made is None:
        return _reversed(wanted, operands, condition, body, count, most)
    # what does not change is differentiated outside of the loop
    further, before = vjp(lambda *x: run(made.before, spread(x, wanted, operands)), chosen(operands, wanted))
    step = carrying(made.step, own)
    test = with_parameters(condition, step.parameter_shapes)
    whole = (*wanted, *flowing(made.before, wanted))
    outputs, back = _reversed(whole, (*operands, *further), test, step, count, most)

    def pullback(g: Any) -> list[Any]:
        found = back([*g, *map(zeros_like, further)])
        more = spread(before(found[own:]), wanted)
        return [
            x if y is None else y if x is None else elementwise.add(x, y) for x, y in zip(found, more, strict=False)
        ]

    return outputs[:own], pullback


def _reversed(
    wanted: Mask, operands: Any, condition: Computation, body: Computation, count: int | None, most: int | None
) -> tuple[Any, Pullback]:
    active = _reached(body, wanted)
    if count is None:
        return counting_steps(active, operands, condition, body, most)
    try:
        return with_residuals(active, operands, body, count)
    except OuterReferenceError:
        return _unrolled(wanted, operands, body, count)


def _unrolled(wanted: Mask, operands: Any, body: Computation, count: int) -> tuple[Any, Pullback]:
    """The same where a backward rule reads or writes mutable references from around, which is done where it runs."""

    def steps(*moved: Any) -> Any:
        values = spread(moved, wanted, operands)
        for _ in range(count):
            values = run(body, values, inline=True)
        return values

    outputs, back = vjp(steps, chosen(operands, wanted))
    return tuple(outputs), lambda g: spread(back(g), wanted)


def _while_flows(wanted: Mask, *, body: Computation, **ignored: Any) -> Mask:
    return _reached(body, wanted)


def _reached(body: Computation, wanted: Mask) -> Mask:
    """Which of the values carried a derivative can flow through, if these are wanted."""

    return until_stable(wanted, lambda mask: flowing(body, mask))


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
    if counter not in parameters or unchanged(body)[parameters.index(counter)]:
        counter, bound, direction = bound, counter, _MIRRORED[direction]
    if counter not in parameters:
        return None
    number = parameters.index(counter)
    start, step = known_value(operands[number]), step_of(body, number)
    stop = literal_of(bound)
    if bound in parameters and unchanged(body)[parameters.index(bound)]:
        stop = known_value(operands[parameters.index(bound)])
    if not all(isinstance(x, int) for x in (start, step, stop)):
        return None
    return _steps(direction, start, step, stop)  # type: ignore[arg-type]


def most_steps(operands: Sequence[Any], condition: Computation, body: Computation) -> int | None:
    """How often a loop runs at most, if a part of its condition, joined by and, is seen to count."""
    waiting, found = [condition.root], list[int]()
    while waiting:
        x = waiting.pop()
        if x.op is elementwise.and_ and not x.array_shape.rank:
            waiting.extend(x.operands)
            continue
        part = Computation(condition.name, condition.parameters, condition.instructions, x)
        count = trip_count(operands, part, body)
        if count is not None:
            found.append(count)
    return min(found, default=None)


def known_value(x: Any) -> Any:
    """The number that a scalar is, if that is known while tracing."""
    while isinstance(x, CarryingTracer) and not isinstance(x, BatchTracer):
        x = x.carried
    if isinstance(x, GraphTracer):
        return literal_of(x.instruction)
    return x.buffer().item() if isinstance(x, ConcreteArray) and not x.shape else None


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
    made = [reverse(b, active, seeded, True) for b in branches]
    parts = [partition(x.both, len(operands), count, effects_there=x.effects_there) for x in made]
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


def _conditional_flows(wanted: Mask, *, branch_computations: tuple[Computation, ...]) -> Mask:
    found = [flowing(branch, wanted[1:]) for branch in branch_computations]
    return tuple(map(any, zip(*found, strict=True)))


def _conditional_batch(
    size: int, operands: tuple[Any, ...], axes: Axes, *, branch_computations: tuple[Computation, ...]
) -> Any:
    index, *values = operands
    if axes[0] is not None:
        _refuse_effects("a branch that not all examples take", *branch_computations)
        if may_part(*branch_computations) and any(map(_has_loop, branch_computations)):
            lined_up = [
                x if a is None else movement.align_axis(x, a, 0, size) for x, a in zip(operands, axes, strict=True)
            ]
            mapped = tuple(a is not None for a in axes)
            found = lanes(*lined_up, **_branches_of_lanes(Shape.of(index), branch_computations, size, mapped))
            return found, (0,) * len(found)
        return _selected(size, index, values, axes[1:], branch_computations)
    made, found = _batched_branches(branch_computations, size, axes[1:])
    return conditional(index, *values, branch_computations=made), found


def _has_loop(computation: Computation) -> bool:
    """Whether lanes may take much longer for it than others: then they had better not do it for nothing."""
    return any(x.op is while_ or any(map(_has_loop, x.computations())) for x in computation.instructions)


@lru_cache(1024)
def _branches_of_lanes(index: Shape, branches: tuple[Computation, ...], size: int, mapped: Mask) -> dict[str, Any]:
    """The attributes of `lanes` for lanes that take different branches; `index` is of all lanes."""

    def one(*x: Any) -> Any:
        return conditional(*x, branch_computations=branches)

    def together(*x: Any) -> Any:
        return _selected(size, x[0], x[1:], leading(mapped[1:]), branches)[0]

    shapes = [index.with_dimensions(()), *branches[0].parameter_shapes]
    return apart(one, together, shapes, size, mapped, branches[0].name)


@lru_cache(1024)
def _batched_branches(branches: tuple[Computation, ...], size: int, axes: Axes) -> tuple[tuple[Computation, ...], Axes]:
    found = [batched(branch, size, axes)[1] for branch in branches]
    mapped = tuple(any(a is not None for a in several) for several in zip(*found, strict=True))
    return tuple(batched(branch, size, axes, mapped)[0] for branch in branches), leading(mapped)


def _selected(
    size: int, index: Any, values: Sequence[Any], axes: Axes, branches: tuple[Computation, ...]
) -> tuple[tuple[Any, ...], Axes]:
    """Lanes take different branches: all are computed, and each lane has its own selected."""
    outputs: list[list[Any]] = []
    for branch in branches:
        found, places = run_batched(branch, size, values, axes)
        outputs.append(movement.in_front(found, places, size))
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
        return of_one(lambda i, x, y: elementwise.lt(i, integer(bound)), shapes, "below")

    def step(i: Any, x: Any, y: Any) -> list[Any]:
        scaled = elementwise.mul(x, movement.broadcast(y, sizes=(2,), dimensions=()))
        return [elementwise.add(i, integer(1)), elementwise.sin(scaled), y]

    body = trace(step, shapes, "step")[0]
    operands = (np.int32(0), np.array([0.5, -1.25], np.float32), np.float32(1.5))
    yield Sample(tuple(map(np.asarray, operands)), {"condition": below(3), "body": body})
    yield Sample(tuple(map(np.asarray, operands)), {"condition": below(2), "body": body, "known_trip_count": 2})
    yield Sample(tuple(map(np.asarray, operands)), {"condition": below(-1), "body": body})

    def small(x: Any, n: Any) -> Any:
        return elementwise.lt(x, movement.full(4, x.dtype))

    def grown(x: Any, n: Any) -> list[Any]:
        return [elementwise.mul(x, elementwise.add(x, movement.full(1, x.dtype))), elementwise.add(n, integer(1))]

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
    derivative=Joint(_while_forward, _while_reverse, flows=_while_flows),
    batch=_while_batch,
    samples=_while_samples,
)
conditional = Op(
    "conditional",
    attributes=Conditional,
    shape=_conditional_shape,
    evaluate=_conditional_evaluate,
    derivative=Joint(_conditional_forward, _conditional_reverse, flows=_conditional_flows),
    batch=_conditional_batch,
    samples=_conditional_samples,
)
