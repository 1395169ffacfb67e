"""Loops backwards: what each step hands to the way back is kept in arrays with a row for each step.

What a step computes from values that stay the same is computed once before the loop (`invariants`), which is
differentiated as any other op. Of the rest, `early` computes a step forwards and its residuals, and `late` its
cotangents from these, from values that stay the same, and from integers that count, which are made again.

Where the number of steps is known while tracing, the loop itself keeps the residuals. Where it is not, the loop keeps
nothing, and the way back is an op of its own, `while-pullback`: it runs the loop again, as many steps at a time as
there is memory for, and goes back over these. Only the compiler writes that out, when it is known how large a row is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, calls, dynamic_slices, elementwise, movement, ops, reduction
from tinyxla.ops.host.custom_call import custom_call
from tinyxla.ops.op import Axes, Joint
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing.config import config
from tinyxla.tracing.core import CarryingTracer, GraphTracer, trace
from tinyxla.transforms.computations import (
    Mask,
    batched,
    chosen,
    effects,
    forward,
    leading,
    of_one,
    partition,
    reverse,
    run,
    silent,
    spread,
    subgraph,
    updating_in_place,
    with_parameters,
)
from tinyxla.transforms.invariants import counting, hoisted, is_cheap, unchanged
from tinyxla.transforms.reverse import vjp, zeros_like

Pullback = Callable[[Any], list[Any]]
Values = Sequence[Any]

_COUNTER = Shape(element_type("s32"))
_FEWEST_ROWS, _MAX_ROWS = 64, 1 << 20
_ROWS_WHEN_REVERSED = 1 << 10  # cotangents of rows are zeros at first: a pass over all of them
_SNAPSHOTS = 64


def integer(value: int) -> Any:
    return movement.full(value, np.int32)


def at(rows: Any, number: Any) -> Any:
    """The row with that number: a slice of one, without the dimension."""
    sizes = rows.shape[1:]
    starts = [number, *[integer(0)] * len(sizes)]
    return movement.reshape_to(dynamic_slices.dynamic_slice(rows, *starts, dynamic_slice_sizes=(1, *sizes)), sizes)


def put(rows: Any, x: Any, number: Any) -> Any:
    """The rows with another one in that place."""
    starts = [number, *[integer(0)] * x.ndim]
    return dynamic_slices.dynamic_update_slice(rows, movement.reshape_to(x, (1, *x.shape)), *starts)


def allocated(shape: Shape) -> Any:
    """Memory for an array, whose elements are arbitrary until they are written: XLA's `AllocateBuffer`."""
    if any(n == 0 for n in shape.dimensions if not is_symbolic(n)):
        return movement.full(0, shape.dtype, shape.dimensions)
    return custom_call(custom_call_target="AllocateBuffer", shape=shape)


def is_allocated(x: Any) -> bool:
    """Whether nothing has been written to an array yet."""
    while isinstance(x, CarryingTracer):
        x = x.carried
    if not isinstance(x, GraphTracer) or x.instruction.op is not custom_call:
        return False
    return x.instruction.attributes.custom_call_target == "AllocateBuffer"


def _rows(count: int, shape: Shape) -> Any:
    return allocated(shape.with_dimensions((count, *shape.dimensions)))


def counted(
    name: str,
    stop: Any,
    step: Callable[..., Values],
    values: Values,
    kept: Values = (),
    most: int | None = None,
    backwards: bool = False,
) -> list[Any]:
    """The values after `values = step(t, *values, *kept)` for each t below `stop` (and below `most`)."""
    count = len(values)
    shapes = [_COUNTER, _COUNTER, *map(Shape.of, (*values, *kept))]

    def ahead(t: Any, end: Any, *rest: Any) -> Any:
        if backwards:
            return elementwise.ge(t, end)
        within = elementwise.lt(t, end)
        return within if most is None else elementwise.and_(within, elementwise.lt(t, integer(most)))

    def one(t: Any, end: Any, *rest: Any) -> list[Any]:
        following = elementwise.add(t, integer(-1 if backwards else 1))
        return [following, end, *step(t, *rest), *rest[count:]]

    ends = (elementwise.sub(stop, integer(1)), integer(0)) if backwards else (integer(0), stop)
    body = trace(one, shapes, name)[0]
    found = ops["while"](*ends, *values, *kept, condition=of_one(ahead, shapes, f"{name}_ahead"), body=body)
    return list(found[2 : 2 + count])


# --- steps forwards and backwards -------------------------------------------------------------------------------------


class WhilePullback(NamedTuple):
    """The attributes of `while-pullback`. `early` takes the values carried and gives them after the step, and
    residuals. `late` takes the number of the step, those of the loop's operands that are `given`, residuals, and
    cotangents, and gives cotangents. There are at most `most` steps, if that is given."""

    early: Computation
    late: Computation
    given: tuple[int, ...]
    most: int | None = None

    @property
    def residuals(self) -> list[Shape]:
        return [x.array_shape for x in self.early.outputs[len(self.early.parameters) :]]

    def keeping(self, t: Any, *values: Any) -> list[Any]:
        """A step forwards that carries rows of residuals, too, and puts its own there."""
        carried = len(self.early.parameters)
        found = run(self.early, values[:carried])
        return [*found[:carried], *(put(rows, x, t) for rows, x in zip(values[carried:], found[carried:], strict=True))]


class Split(NamedTuple):
    """A loop's steps in both directions; they take what `before` makes of the operands as if it were carried, too."""

    before: Computation | None
    steps: WhilePullback

    def carried(self, operands: Values) -> Values:
        return [*operands, *(run(self.before, operands) if self.before else ())]


@lru_cache(256)
def split(body: Computation, active: Mask) -> Split:
    carried = len(body.parameters)
    both, _, _, there = reverse(body, active, active, True)
    both = updating_in_place(both)
    same, counters = unchanged(body), counting(body)
    made = hoisted(both, (*same, *[False] * (len(both.parameters) - carried)))
    before, extra = None, 0
    if made is not None:
        extra = len(made.before.outputs)
        before = subgraph(made.before.name, made.before.parameters[:carried], made.before.outputs)
        both = _carrying(made.step, carried, extra)
    total = carried + extra
    given = tuple(k for k in range(total) if k >= carried or same[k] or k in counters)
    inputs = [both.parameters[k] for k in given]
    early, part = partition(both, total, total, given=inputs, is_cheap=is_cheap, effects_there=there)

    def late(t: Any, *values: Any) -> Any:
        known = [
            _counted_to(x, counters[k], t) if k in counters else x
            for k, x in zip(given, values[: len(given)], strict=True)
        ]
        return run(part, [*known, *values[len(given) :]])

    made_late = trace(late, [_COUNTER, *part.parameter_shapes], part.name)[0]
    return Split(before, WhilePullback(early, made_late, given))


def _carrying(both: Computation, carried: int, extra: int) -> Computation:
    """With the last parameters after the first ones, and handed on as if they were carried."""
    first, middle = both.parameters[:carried], both.parameters[carried : len(both.parameters) - extra]
    last = both.parameters[len(both.parameters) - extra :]
    outputs = [*both.outputs[:carried], *last, *both.outputs[carried:]]
    return subgraph(both.name, [*first, *last, *middle], outputs, effects=effects(both))


def _counted_to(start: Any, step: int, t: Any) -> Any:
    """A counter before step t."""
    number = t if t.dtype == start.dtype else elementwise.convert(t, new_element_type=element_type(start.dtype))
    return elementwise.add(start, elementwise.mul(number, movement.full(step, start.dtype)))


def with_residuals(active: Mask, operands: tuple[Any, ...], body: Computation, count: int) -> tuple[Any, Pullback]:
    """The number of steps is known: the loop keeps a row of residuals for each."""
    made = split(body, active)
    values = made.carried(operands)
    ahead, back = _residual_loops(made.steps, count)
    found = ops["while"](integer(0), *values, *(_rows(count, s) for s in made.steps.residuals), **ahead)
    after, stacks = found[1 : 1 + len(operands)], found[1 + len(values) :]
    kept = [*(values[k] for k in made.steps.given), *stacks]

    def pullback(g: Any) -> list[Any]:
        seeds = chosen(g, active)
        results = ops["while"](integer(count - 1), *seeds, *kept, **back)
        return spread(results[1 : 1 + len(seeds)], active)

    return tuple(after), pullback


@lru_cache(256)
def _residual_loops(a: WhilePullback, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    shapes, known = a.early.parameter_shapes, len(a.given)
    stacks = [s.with_dimensions((count, *s.dimensions)) for s in a.residuals]
    seeds = [x.shape for x in a.late.outputs]

    def there(t: Any, *values: Any) -> list[Any]:
        found = a.keeping(t, *values)
        return [elementwise.add(t, integer(1)), *found]

    def back(t: Any, *values: Any) -> list[Any]:
        cotangents, rest = values[: len(seeds)], values[len(seeds) :]
        popped = [at(stack, t) for stack in rest[known:]]
        found = run(a.late, [t, *rest[:known], *popped, *cotangents])
        return [elementwise.sub(t, integer(1)), *found, *rest]

    there_shapes = [_COUNTER, *shapes, *stacks]
    back_shapes = [_COUNTER, *seeds, *(shapes[k] for k in a.given), *stacks]
    ahead = of_one(lambda t, *_: elementwise.lt(t, integer(count)), there_shapes, "ahead")
    remains = of_one(lambda t, *_: elementwise.ge(t, integer(0)), back_shapes, "remains")
    forth = {"condition": ahead, "body": trace(there, there_shapes, a.early.name)[0], "known_trip_count": count}
    return forth, {"condition": remains, "body": trace(back, back_shapes, a.late.name)[0], "known_trip_count": count}


# --- an unknown number of steps ---------------------------------------------------------------------------------------


def counting_steps(
    active: Mask, operands: tuple[Any, ...], condition: Computation, body: Computation, most: int | None
) -> tuple[Any, Pullback]:
    """How many steps there are is known only after the loop: it counts them, and the way back runs them again."""
    made = split(body, active)
    shapes = [_COUNTER, *body.parameter_shapes]
    step = trace(lambda t, *x: [elementwise.add(t, integer(1)), *run(body, x)], shapes, body.name)[0]
    test = with_parameters(condition, shapes, range(1, len(shapes)))
    total, *outputs = ops["while"](integer(0), *operands, condition=test, body=step)

    def pullback(g: Any) -> list[Any]:
        values = made.carried(operands)
        steps = made.steps._replace(early=silent(made.steps.early), most=most)
        return spread(while_pullback(total, *values, *chosen(g, active), **steps._asdict()), active)

    return tuple(outputs), pullback


def _shape(count: AnyShape, *operands: AnyShape, **attributes: Any) -> AnyShape:
    a = WhilePullback(**attributes)
    taken, seeds = a.early.parameter_shapes, [x.shape for x in a.late.outputs]
    if count != _COUNTER:
        raise ShapeError(f"while-pullback: the number of steps must be s32[], but is {count}.")
    if list(operands) != [*taken, *seeds]:
        raise ShapeError(
            f"while-pullback: the operands must be those of {a.early.name} and the cotangents that {a.late.name} "
            f"gives, {TupleShape((*taken, *seeds))}, but are {TupleShape(operands)}."
        )
    results = [x.shape for x in a.early.outputs]
    if results[: len(taken)] != taken or any(not 0 <= k < len(taken) for k in a.given):
        raise ShapeError(
            f"while-pullback: {a.early.name} must give what it takes, {TupleShape(tuple(taken))}, and then residuals, "
            f"and given must be numbers of these; but it gives {TupleShape(tuple(results))}, and given is {a.given}."
        )
    expected = [_COUNTER, *(taken[k] for k in a.given), *results[len(taken) :], *seeds]
    if a.late.parameter_shapes != expected:
        raise ShapeError(
            f"while-pullback: {a.late.name} must take {TupleShape(tuple(expected))}, but takes "
            f"{TupleShape(tuple(a.late.parameter_shapes))}."
        )
    return TupleShape(tuple(seeds))


def _evaluate(count: Any, *operands: Any, **attributes: Any) -> Any:
    a = WhilePullback(**attributes)
    carried = len(a.early.parameters)
    values, seeds = operands[:carried], operands[carried:]
    known, kept = [values[k] for k in a.given], []
    for _ in range(int(count)):
        found = calls.evaluate(a.early, values)
        values = found[:carried]
        kept.append(found[carried:])
    for t in reversed(range(len(kept))):
        seeds = calls.evaluate(a.late, [np.asarray(t, np.int32), *known, *kept[t], *seeds])
    return tuple(seeds)


def _expanded(count: Any, *operands: Any, rows: int = _MAX_ROWS, **attributes: Any) -> tuple[Any, ...]:
    """The steps in chunks of as many as there are rows for, from the last to the first. Each chunk is run forwards,
    which keeps the residuals, and then backwards.

    Where there are several chunks, a pass before that keeps the values at the start of each - or of each second, or
    third, of very many: of these there are but `_SNAPSHOTS`, and the steps up to a chunk are computed again.

    Source: Griewank and Walther, "Algorithm 799: revolve", 2000, for the trade of time for memory.
    """
    a = WhilePullback(**attributes)
    carried = len(a.early.parameters)
    start, seeds = operands[:carried], operands[carried:]
    row = sum(s.size * s.dtype.itemsize for s in a.residuals)
    size = min(rows, max(_FEWEST_ROWS, config.while_residual_bytes // max(row, 1)), max(1, a.most or rows))
    if a.most is not None and a.most <= size:
        return tuple(_back_over(a, size, integer(0), count, start, seeds, [start[k] for k in a.given]))
    span = size * _SNAPSHOTS
    times = elementwise.div(elementwise.add(count, integer(span - 1)), integer(span))
    distance = elementwise.mul(elementwise.max_(times, integer(1)), integer(size))
    varies = tuple(not same for same in unchanged(a.early))
    snapshots = _snapshots(a.early, count, distance, start, varies)

    def chunk(stop: Any, *x: Any) -> list[Any]:
        cotangents, (distance, *rest) = x[: len(seeds)], x[len(seeds) :]
        operands, kept = rest[:carried], rest[carried:]
        first = elementwise.mul(elementwise.div(elementwise.sub(stop, integer(1)), integer(size)), integer(size))
        place = elementwise.div(first, distance)
        values = spread([at(r, place) for r in kept], varies, operands)
        values = _advanced(a.early, values, elementwise.sub(first, elementwise.mul(place, distance)))
        found = _back_over(a, size, first, stop, values, cotangents, [operands[k] for k in a.given])
        return [first, *found, distance, *rest]

    state = [count, *seeds, distance, *start, *snapshots]
    shapes = list(map(Shape.of, state))
    remains = of_one(lambda stop, *_: elementwise.gt(stop, integer(0)), shapes, "remains")
    found = ops["while"](*state, condition=remains, body=trace(chunk, shapes, f"{a.late.name}_chunk")[0])
    return tuple(found[1 : 1 + len(seeds)])


def _advanced(early: Computation, values: Values, steps: Any) -> list[Any]:
    """The values carried after so many steps."""
    return counted(early.name, steps, lambda t, *x: run(early, x)[: len(values)], values)


def _back_over(
    a: WhilePullback, size: int, first: Any, stop: Any, values: Values, seeds: Values, known: Values
) -> list[Any]:
    """The cotangents before the steps from `first` to `stop`, of those after them; there are at most `size` steps."""

    def back(t: Any, *x: Any) -> Any:
        cotangents, first, rest = x[: len(seeds)], x[len(seeds)], x[len(seeds) + 1 :]
        popped = [at(r, t) for r in rest[len(known) :]]
        return run(a.late, [elementwise.add(first, t), *rest[: len(known)], *popped, *cotangents])

    steps = elementwise.sub(stop, first)
    found = counted(a.early.name, steps, a.keeping, [*values, *(_rows(size, s) for s in a.residuals)], most=size)
    return counted(a.late.name, steps, back, seeds, [first, *known, *found[len(values) :]], backwards=True)


def _snapshots(early: Computation, count: Any, distance: Any, start: Values, varies: Mask) -> list[Any]:
    """Of what varies the values at the start and after each `distance` steps, as rows."""
    carried = len(start)
    rows = [put(_rows(_SNAPSHOTS, Shape.of(x)), x, integer(0)) for x in chosen(start, varies)]

    def keep(k: Any, *x: Any) -> list[Any]:
        now = _advanced(early, x[:carried], x[-1])
        place = elementwise.add(k, integer(1))
        return [*now, *(put(r, y, place) for r, y in zip(x[carried:-1], chosen(now, varies), strict=True))]

    further = elementwise.div(elementwise.sub(count, integer(1)), distance)
    found = counted(f"{early.name}_snapshots", further, keep, [*start, *rows], [distance], most=_SNAPSHOTS)
    return found[carried:]


def _reverse(wanted: Mask, *operands: Any, **attributes: Any) -> tuple[Any, Pullback]:
    def function(*moved: Any) -> Any:
        return _expanded(*spread(moved, wanted, operands), **attributes, rows=_ROWS_WHEN_REVERSED)

    values, pullback = vjp(function, chosen(operands, wanted))
    return tuple(values), lambda g: spread(pullback(g), wanted)


def until_stable(mask: Mask, grow: Callable[[Mask], Sequence[bool]]) -> Mask:
    """The least mask that contains this one and all that it grows to."""
    while True:
        larger = tuple(a or bool(b) for a, b in zip(mask, grow(mask), strict=True))
        if larger == mask:
            return mask
        mask = larger


class _Masks(NamedTuple):
    """What tangents or lanes reach: of the values carried, of residuals, and of cotangents."""

    carried: Mask
    residuals: Mask
    seeds: Mask


@lru_cache(256)
def _reached(a: WhilePullback, present: Mask, flows: Callable[..., Sequence[bool]]) -> _Masks:
    """`flows(computation, mask)` says which results it reaches, if it reaches these parameters."""
    count = len(a.early.parameters)
    carried = until_stable(present[:count], lambda mask: flows(a.early, mask)[:count])
    residuals = tuple(flows(a.early, carried)[count:])
    fixed = (False, *(carried[k] for k in a.given), *residuals)
    return _Masks(carried, residuals, until_stable(present[count:], lambda mask: flows(a.late, (*fixed, *mask))))


def _moved(computation: Computation, mask: Mask) -> Sequence[bool]:
    return forward(computation, mask)[1]


def _forward(tangents: tuple[Any, ...], *operands: Any, **attributes: Any) -> tuple[Any, Any]:
    """The tangents of the values carried are carried, too: a loop of the same kind."""
    a = WhilePullback(**attributes)
    count, *values = operands
    masks = _reached(a, tuple(t is not None for t in tangents[1:]), _moved)
    full = [zeros_like(x) if t is None else t for x, t in zip(values, tangents[1:], strict=True)]
    carried, seeds = len(masks.carried), len(masks.seeds)
    given = [*values[:carried], *chosen(full[:carried], masks.carried)]
    given += [*values[carried:], *chosen(full[carried:], masks.seeds)]
    found = while_pullback(count, *given, **_forward_parts(a, masks)._asdict())
    return found[:seeds], tuple(spread(found[seeds:], masks.seeds))


@lru_cache(256)
def _forward_parts(a: WhilePullback, masks: _Masks) -> WhilePullback:
    carried, kept = len(masks.carried), len(masks.residuals)
    made, _ = forward(a.early, masks.carried, (*masks.carried, *masks.residuals))
    moving = sum(masks.carried)
    order = [*range(carried), *range(carried + kept, carried + kept + moving)]
    order += [k for k in range(len(made.outputs)) if k not in order]
    made = subgraph(made.name, made.parameters, [made.outputs[k] for k in order])
    number = {k: carried + place for place, k in enumerate(k for k, m in enumerate(masks.carried) if m)}
    taken = (*a.given, *(number[k] for k in a.given if masks.carried[k]))
    known = tuple(masks.carried[k] for k in a.given)
    back, _ = forward(a.late, (False, *known, *masks.residuals, *masks.seeds), masks.seeds)
    # what it takes: t, given, residuals, cotangents, then tangents of these; each kind is to be together
    lengths = [len(known), kept, len(masks.seeds), sum(known), sum(masks.residuals), sum(masks.seeds)]
    ends = np.cumsum([1, *lengths]).tolist()
    parts = [range(start, end) for start, end in pairwise(ends)]
    places = [0, *(k for kind in range(3) for k in (*parts[kind], *parts[kind + 3]))]
    parameters = [back.parameters[k] for k in places]
    late = subgraph(back.name, parameters, back.outputs, effects=effects(back))
    return WhilePullback(made, late, taken, a.most)


def _batch(size: int, operands: tuple[Any, ...], axes: Axes, **attributes: Any) -> Any:
    """All lanes at once; where they have different numbers of steps, the shorter ones do nothing in the last ones."""
    a = WhilePullback(**attributes)
    count, *values = operands
    places, carried = list(axes[1:]), len(a.early.parameters)
    if axes[0] is not None:
        a = _ending_by_lane(a)
        values[carried:carried], places[carried:carried] = [count, integer(0)], [0, None]
        count = reduction.reduce_max(count, (0,))
    masks = _reached(a, tuple(axis is not None for axis in places), _Lanes(size))
    lanes = zip(values, places, (*masks.carried, *masks.seeds), strict=True)
    values = [movement.align_axis(x, axis, 0, size) if m else x for x, axis, m in lanes]
    known = [masks.carried[k] for k in a.given]
    early = batched(a.early, size, leading(masks.carried), (*masks.carried, *masks.residuals))[0]
    late = batched(a.late, size, leading((False, *known, *masks.residuals, *masks.seeds)), masks.seeds)[0]
    return while_pullback(count, *values, **a._replace(early=early, late=late)._asdict()), leading(masks.seeds)


class _Lanes(NamedTuple):
    size: int

    def __call__(self, computation: Computation, mask: Mask) -> Sequence[bool]:
        return [axis is not None for axis in batched(computation, self.size, leading(mask))[1]]


@lru_cache(256)
def _ending_by_lane(a: WhilePullback) -> WhilePullback:
    """With a number of steps and a counter carried, beyond which nothing changes."""
    carried, known, same = len(a.early.parameters), len(a.given), unchanged(a.early)

    def some(*values: Any) -> list[Any]:
        before, (end, t) = values[:carried], values[carried:]
        found, goes_on = run(a.early, before), elementwise.lt(t, end)
        after = [x if s else choose(goes_on, x, y) for x, y, s in zip(found, before, same, strict=False)]
        return [*after, end, elementwise.add(t, integer(1)), *found[carried:]]

    def back(t: Any, *values: Any) -> list[Any]:
        goes_on = elementwise.lt(t, values[known])
        rest = [*values[:known], *values[known + 1 :]]
        found = run(a.late, [t, *rest])
        return [choose(goes_on, x, y) for x, y in zip(found, rest[len(rest) - len(found) :], strict=True)]

    early = trace(some, [*a.early.parameter_shapes, _COUNTER, _COUNTER], a.early.name)[0]
    shapes = a.late.parameter_shapes  # the number of the step comes before what is given
    late = trace(back, [*shapes[: 1 + known], _COUNTER, *shapes[1 + known :]], a.late.name)[0]
    return a._replace(early=early, late=late, given=(*a.given, carried))


def choose(pred: Any, x: Any, y: Any) -> Any:
    whole = movement.broadcast(pred, sizes=x.shape, dimensions=()) if x.ndim else pred
    return elementwise.select(whole, x, y)


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    scalar, vector = Shape(element_type("f32")), Shape(element_type("f32"), (2,))

    def step(i: Any, x: Any, y: Any) -> list[Any]:
        scaled = elementwise.mul(x, movement.broadcast(elementwise.exp(y), sizes=(2,), dimensions=()))
        return [elementwise.add(i, integer(3)), elementwise.sin(scaled), y]

    body = trace(step, [_COUNTER, vector, scalar], "step")[0]
    made = split(body, (False, True, True))
    x, y = np.array([0.5, -1.25], np.float32), np.float32(0.25)
    assert made.before is not None
    extra = calls.evaluate(made.before, [np.asarray(np.int32(0)), x, np.asarray(y)])
    seeds = (np.array([0.75, 1.5], np.float32), np.float32(-0.5))
    for count, bound in ((3, None), (0, None), (2, 4)):
        operands = (np.int32(count), np.int32(1), x, y, *extra, *seeds)
        yield Sample(tuple(map(np.asarray, operands)), made.steps._replace(most=bound)._asdict())


while_pullback = Op(
    "while-pullback",
    attributes=WhilePullback,
    shape=_shape,
    evaluate=_evaluate,
    derivative=Joint(_forward, _reverse),
    batch=_batch,
    samples=_samples,
    expand=_expanded,
)
