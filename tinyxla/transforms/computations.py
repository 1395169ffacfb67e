"""Computations transformed into computations, and kept: what calls, branches and loops make their rules of.

A function that is differentiated again and again is transformed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from tinyxla.errors import ClosedOverTracerError, DifferentiationError
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops import Op, calls, dynamic_slices, elementwise, indexing, movement, reduction
from tinyxla.ops.op import OWN, Axes, Joint, Zero
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.tracing.core import GraphTrace, current_scope, state, trace
from tinyxla.tracing.shardings import Sharding
from tinyxla.transforms.batch import batch
from tinyxla.transforms.forward import jvp
from tinyxla.transforms.reverse import TapeTrace, is_inexact, vjp, zeros_like

Mask = tuple[bool, ...]
Meaning = TypeVar("Meaning")  # what an interpretation gives each value
_FEW_STEPS = 8  # that something may take to be made again


def results(ans: Any) -> tuple[Any, ...]:
    return ans if isinstance(ans, tuple) else (ans,)


def interpret(
    computation: Computation, operands: Iterable[Meaning], apply: Callable[[Instruction, list[Meaning]], Meaning]
) -> Meaning:
    """The meaning of a computation, from those of its operands: `apply` gives that of an instruction. What is recorded
    meanwhile comes from the instruction's line, inside of the scopes around."""
    values: dict[Instruction, Meaning] = dict(zip(computation.parameters, operands, strict=True))
    outer = state.scope, state.source
    scope, around = current_scope(), outer[1] and outer[1].moved("")
    try:
        state.scope = scope
        for x in computation.instructions:
            if x not in values:
                state.source = x.source or around
                values[x] = apply(x, [values[o] for o in x.operands])
    finally:
        state.scope, state.source = outer
    return values[computation.root]


def is_special(x: Instruction) -> bool:
    """Whether a call has rules of its own, for derivatives, batching or partitioning, or is a checkpoint."""
    a = x.attributes
    return bool(a.rule or a.checkpoint or a.partitioning)


def run(computation: Computation, operands: Sequence[Any], inline: bool = False) -> tuple[Any, ...]:
    """The results of a computation on values, as a flat tuple. What this records comes from the same lines.

    With `inline`, plain calls in it are run the same way: what they call takes their place.
    """

    def apply(x: Instruction, inputs: list[Any]) -> Any:
        if inline and x.op.name == "call" and not is_special(x):
            found = run(x.attributes.to_apply, inputs, inline)
            return found if isinstance(x.shape, TupleShape) else found[0]
        return x.op(*inputs, **x.attributes._asdict())

    return results(interpret(computation, operands, apply))


def run_batched(
    computation: Computation, size: int, operands: Sequence[Any], axes: Sequence[int | None]
) -> tuple[Any, Any]:
    """A computation mapped over an axis of some values: its result and the result's mapped axis, or tuples of both."""

    def apply(x: Instruction, inputs: list[Any]) -> Any:
        values, places = tuple(v for v, _ in inputs), tuple(a for _, a in inputs)
        return calls.apply_batched(cast(Op, x.op), size, values, places, x.attributes._asdict())

    return interpret(computation, zip(operands, axes, strict=True), apply)


def chosen(values: Iterable[Any], mask: Iterable[bool]) -> list[Any]:
    """The values that are marked."""
    return [x for x, marked in zip(values, mask, strict=True) if marked]


def spread(values: Iterable[Any], mask: Iterable[bool], others: Sequence[Any] | None = None) -> list[Any]:
    """A list with the values where it is marked, and None or those of `others` elsewhere."""
    given = iter(values)
    return [next(given) if marked else others and others[k] for k, marked in enumerate(mask)]


def leading(mapped: Iterable[bool]) -> Axes:
    """The first axis of what is mapped."""
    return tuple(0 if m else None for m in mapped)


def inexact(computation: Computation) -> Mask:
    """Which results can have a derivative."""
    return tuple(is_inexact(x.array_shape) for x in computation.outputs)


# --- the transformations ----------------------------------------------------------------------------------------------


@lru_cache(1024)
def forward(computation: Computation, present: Mask, wanted: Mask | None = None) -> tuple[Computation, Mask]:
    """From operands and those tangents that are `present`: results and the tangents that are there, with zeros for
    those that are `wanted` all the same. Says which there are."""
    shapes = computation.parameter_shapes
    moving: list[bool] = []

    def function(*inputs: Any) -> list[Any]:
        tangents = spread(inputs[len(shapes) :], present)
        values, found = jvp(lambda *x: run(computation, x), inputs[: len(shapes)], tangents)
        needed = wanted or [False] * len(values)
        found = [zeros_like(x) if t is None and w else t for x, t, w in zip(values, found, needed, strict=True)]
        moving.extend(t is not None for t in found)
        return [*values, *(t for t in found if t is not None)]

    made = _transformed(function, [*shapes, *chosen(shapes, present)], f"{computation.name}_jvp")
    return made, tuple(moving)


class _Typed(NamedTuple):
    """An operand's dimensions and sharding, which is its type along explicit axes."""

    shape: tuple[int, ...]
    sharding: Sharding | None

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _transformed(
    function: Callable[..., list[Any]], shapes: Sequence[AnyShape], name: str, shardings: Sequence[Sharding | None] = ()
) -> Computation:
    """The computation of a function of its parameters alone, the first of which have these shardings as types."""
    values: list[_Typed] = []
    if shardings:
        dimensions = [x.dimensions if isinstance(x, Shape) else () for x in shapes]
        padded = [*shardings, *[None] * (len(shapes) - len(shardings))]
        values = [_Typed(d, sharding) for d, sharding in zip(dimensions, padded, strict=True)]
    made, captured, _ = trace(function, shapes, name, values=values)
    if captured:
        raise ClosedOverTracerError(
            f"{name}: a rule of custom_jvp, custom_vjp or custom_vmap closes over a traced array "
            f"{Shape.of(captured[0])} from outside of the compiled function, loop or branch that it is used in; pass "
            "the array as an argument.",
            state.source,
        )
    return made


@lru_cache(1024)
def flowing(computation: Computation, mask: Mask) -> Mask:
    """Which results a derivative can flow to from the parameters that are marked."""
    reached: dict[Instruction, Mask] = dict.fromkeys(chosen(computation.parameters, mask), (True,))  # by elements
    for x in computation.instructions:
        given = [reached.get(o, (False,)) for o in x.operands]
        derivative, flows = cast(Op, x.op).derivative, None
        if not any(map(any, given)) or isinstance(derivative, Zero):
            continue
        if x.op is calls.get_tuple_element:
            reached[x] = (given[0][x.attributes.index],)
            continue
        if isinstance(derivative, Joint) and derivative.flows is not None:
            flows = derivative.flows(tuple(map(any, given)), **x.attributes._asdict())
        shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
        able = [isinstance(s, TupleShape) or is_inexact(s) for s in shapes]
        reached[x] = tuple(able if flows is None else [a and f for a, f in zip(able, flows, strict=True)])
    return tuple(any(reached.get(x, (False,))) for x in computation.outputs)


class Reversed(NamedTuple):
    """`flows` says which of the active operands have a cotangent; `moving`, to which results a derivative flows from
    them; `effects_there`, how many of the side effects belong to the way there: the first ones."""

    both: Computation
    flows: Mask
    moving: Mask
    effects_there: int


@lru_cache(1024)
def reverse(
    computation: Computation,
    active: Mask,
    seeded: Mask,
    whole: bool,
    tape: type[TapeTrace] = TapeTrace,
    shardings: tuple[Sharding | None, ...] = (),
) -> Reversed:
    """From operands and the cotangents of results that are `seeded`: results and the cotangents of operands that are
    `active`, as far as any flow, or with zeros for the others (`whole`). Rules of the user's see types of arrays where
    the operands have `shardings`."""
    shapes = computation.parameter_shapes
    flows: list[bool] = []
    moving: list[bool] = []
    effects_there = 0

    def function(*inputs: Any) -> list[Any]:
        primals, seeds = inputs[: len(shapes)], inputs[len(shapes) :]
        moved = chosen(primals, active)
        values, pullback = vjp(lambda *x: run(computation, spread(x, active, primals)), moved, tape())
        moving.extend(pullback.flows)
        nonlocal effects_there
        assert state.staging is not None
        effects_there = sum(x.has_side_effect for x in state.staging.instructions)
        found = pullback(spread(seeds, seeded))
        if whole:
            found = [zeros_like(x) if c is None else c for x, c in zip(moved, found, strict=True)]
        flows.extend(c is not None for c in found)
        return [*values, *(c for c in found if c is not None)]

    outputs = [x.shape for x in computation.outputs]
    made = _transformed(function, [*shapes, *chosen(outputs, seeded)], f"{computation.name}_vjp", shardings)
    return Reversed(made, tuple(flows), tuple(moving), effects_there)


@lru_cache(1024)
def batched(computation: Computation, size: int, axes: Axes, wanted: Mask | None = None) -> tuple[Computation, Axes]:
    """Mapped over those axes of the operands, and the mapped axes of its results: the first for those `wanted`."""
    found: list[int | None] = []

    def function(*inputs: Any) -> list[Any]:
        pairs = batch(lambda *x: run(computation, x), size, inputs, axes, *(computation.axis_names & {OWN}))
        needed = wanted or [False] * len(pairs)
        pairs = [
            (movement.align_axis(x, a, 0, size), 0) if w else (x, a) for (x, a), w in zip(pairs, needed, strict=True)
        ]
        found.extend(axis for _, axis in pairs)
        return [value for value, _ in pairs]

    shapes = [_with_axis(s, a, size) for s, a in zip(computation.parameter_shapes, axes, strict=True)]
    made = _transformed(function, shapes, f"{computation.name}_vmap")
    return made, tuple(found)


calls.set_mapped(
    lambda computation, size: batched(
        computation, size, (0,) * len(computation.parameters), (True,) * len(computation.outputs)
    )[0]
)
calls.set_gradient(
    lambda computation: reverse(computation, (True,) * len(computation.parameters), inexact(computation), True)[0]
)


def _with_axis(shape: AnyShape, axis: int | None, size: int) -> AnyShape:
    if axis is None:
        return shape
    assert isinstance(shape, Shape)
    return shape.with_dimensions((*shape.dimensions[:axis], size, *shape.dimensions[axis:]))


# --- parts ------------------------------------------------------------------------------------------------------------


def partition(
    both: Computation,
    primals: int,
    results: int,
    keeps: Callable[[Instruction], bool] | None = None,
    given: Sequence[Instruction] = (),
    is_cheap: Callable[[Instruction], bool] = lambda x: False,
    effects_there: int | None = None,
) -> tuple[Computation, Computation]:
    """Split a computation into what the first `primals` parameters determine, and the rest.

    The first part gives the first `results` results and the residuals; the second takes the residuals and the other
    parameters. Constants and what is simply made of them are made again rather than handed over; and, if `keeps` is
    given, all that it does not say yes to. So is what is cheap and made of parameters that both parts are `given`: the
    second takes these first of all. Side effects run once, in one of the parts: in the first, unless they come after
    the first `effects_there` or need what only the second has. What only looks at values that are computed again runs
    again.
    """
    acting = effects(both)
    late: set[Instruction] = set(both.parameters[primals:])
    if effects_there is not None:
        late.update(acting[effects_there:])
    free = _spread(both, late, given, is_cheap)
    outputs = both.root.operands
    acting_early, acting_late = [x for x in acting if x not in late], [x for x in acting if x in late]
    if keeps is not None:
        repeated = [x for x in acting_early if _is_repeated(x, free, keeps)]
        acting_late = [x for x in acting if x in late or x in repeated]
        late |= _computed_again(both, [*outputs[results:], *acting_late], late, free, keeps, repeated)
    wanted = needed([*outputs[results:], *acting_late])
    residuals: dict[Instruction, None] = {}
    reading = [x.operands for x in both.instructions if x in wanted and x in late and x is not both.root]
    for operands in (*reading, outputs[results:]):
        residuals.update((o, None) for o in operands if o not in late and o not in free)
    kept = _fewer(both, list(residuals), free, is_cheap)
    early = subgraph(
        f"{both.name}_forward", both.parameters[:primals], [*outputs[:results], *kept], effects=acting_early
    )
    inputs = [*given, *kept, *both.parameters[primals:]]
    return early, subgraph(f"{both.name}_backward", inputs, outputs[results:], effects=acting_late)


def _spread(
    both: Computation, late: set[Instruction], given: Sequence[Instruction], is_cheap: Callable[[Instruction], bool]
) -> set[Instruction]:
    """Add to `late` what is made of it; return what is free: simply made of constants, or cheaply of what is given."""
    free: set[Instruction] = set(given)
    derived: set[Instruction] = set(given)  # what is made of these is not free unless it is cheap
    for x in both.instructions:
        if x.op.name == "parameter":
            continue
        if x in late or any(o in late for o in x.operands):
            late.add(x)
        elif all(o in free for o in x.operands) and not any(x.computations()) and not x.has_side_effect:
            if any(o in derived for o in x.operands):
                if not is_cheap(x):
                    continue
                derived.add(x)
            free.add(x)
    return free


def _fewer(
    both: Computation, residuals: list[Instruction], free: set[Instruction], is_cheap: Callable[[Instruction], bool]
) -> list[Instruction]:
    """What residuals can cheaply be made of again, where that is less: of other residuals, or of one smaller array, or
    of one for several."""
    sources = {x: _sources(x, free, is_cheap) for x in residuals}
    single = [next(iter(found)) for found in sources.values() if found is not None and len(found) == 1]
    kept = dict.fromkeys(residuals)
    for x in reversed(both.instructions):
        found = sources.get(x) if x in kept else None
        if not found:
            continue
        (first, *others) = found
        if not others and (single.count(first) > 1 or first.array_shape.size < x.array_shape.size):
            kept[first] = None
        if all(y in kept for y in found):
            del kept[x]
    return list(kept)


def _sources(
    x: Instruction, free: set[Instruction], is_cheap: Callable[[Instruction], bool]
) -> set[Instruction] | None:
    """The few arrays that something is cheaply made of; None if it is not."""
    found: set[Instruction] = set()
    waiting, steps = [x], 0
    while waiting:
        y = waiting.pop()
        if y in free:
            continue
        if y.op is movement.parameter or not is_cheap(y) or not isinstance(y.shape, Shape):
            found.add(y)
        elif steps == _FEW_STEPS:
            return None
        else:
            steps += 1
            waiting.extend(y.operands)
    return None if x in found else found


def _computed_again(
    both: Computation,
    outputs: Sequence[Instruction],
    late: set[Instruction],
    free: set[Instruction],
    keeps: Callable[[Instruction], bool],
    repeated: Sequence[Instruction],
) -> set[Instruction]:
    """What the late part needs of the early one, and is neither a parameter nor kept; and what is repeated anyhow."""
    again: set[Instruction] = set()
    demanded = {*outputs, *(o for x in needed(outputs) if x in late for o in x.operands)}
    for x in reversed(both.instructions):
        if x not in demanded or x in late or x in free or x.op is movement.parameter:
            continue
        made = x.operands[0] if x.op is calls.get_tuple_element else x
        if made in repeated or not (keeps(x) or made.has_side_effect):
            again.add(x)
            demanded.update(x.operands)
    return again


def _is_repeated(x: Instruction, free: set[Instruction], keeps: Callable[[Instruction], bool]) -> bool:
    """Whether something with side effects, all of them for debugging, runs again: it is not kept, or all that it looks
    at is computed again."""
    if not _only_looks(x):
        return False
    return not keeps(x) or all(o in free or o.op is movement.parameter or not keeps(o) for o in x.operands)


def _only_looks(x: Instruction) -> bool:
    """Whether the side effects of an instruction are those of `debug.print` and the like."""
    inner = [y for computation in x.computations() for y in effects(computation)]
    return all(map(_only_looks, inner)) if inner else bool(getattr(x.attributes, "is_debug", False))


def needed(outputs: Iterable[Instruction]) -> set[Instruction]:
    """What instructions depend on, and they themselves."""
    found: set[Instruction] = set()
    waiting = list(outputs)
    while waiting:
        x = waiting.pop()
        if x not in found:
            found.add(x)
            waiting.extend(x.operands)
    return found


def subgraph(
    name: str, inputs: Any, outputs: Any, as_tuple: bool = True, effects: Iterable[Instruction] = ()
) -> Computation:
    """The computation of some instructions from others, which become its parameters; with `effects`, which must run
    even if nothing needs them, in their order."""
    new: dict[Instruction, Instruction] = {}
    parameters = [_parameter(number, x.shape) for number, x in enumerate(inputs)]
    new.update(zip(inputs, parameters, strict=True))
    order = list(parameters)
    waiting = [(x, False) for x in reversed([*effects, *outputs])]
    while waiting:
        x, ready = waiting.pop()
        if x in new:
            continue
        if ready:
            new[x] = Instruction(x.op, [new[o] for o in x.operands], x.attributes, x.shape, x.source, origin=x.origin)
            order.append(new[x])
        else:
            waiting.append((x, True))
            waiting.extend((o, False) for o in reversed(x.operands))
    roots = [new[x] for x in outputs]
    if not as_tuple:
        return Computation(name, parameters, order, roots[0])
    root = Instruction(calls.tuple_, roots, calls.tuple_.attributes(), TupleShape(tuple(x.shape for x in roots)))
    return Computation(name, parameters, [*order, root], root)


def updating_in_place(computation: Computation) -> Computation:
    """With `a + update(zeros, part)` as `update(a, a's part + part)`, and sums that are scattered over zeros over a.

    A loop back over the rows of an array adds to the cotangents of one row at a time. So that takes the time of a row,
    not that of all. (Where a has -0.0 it stays, while -0.0 + 0.0 is 0.0.)
    """
    new: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []

    def emit(op: Any, operands: Sequence[Instruction], attributes: Any, x: Instruction, shape: AnyShape) -> Instruction:
        order.append(Instruction(op, operands, attributes, shape, x.source))
        return order[-1]

    def updated(x: Instruction) -> Instruction | None:
        for whole, update in (x.operands, x.operands[::-1]):
            if not update.operands or not _is_zero(update.operands[0]):
                continue
            if update.op is indexing.scatter and reduction.monoid(update.attributes.to_apply) == "add":
                rest = [new[o] for o in update.operands[1:]]
                return emit(update.op, [new[whole], *rest], update.attributes, x, x.shape)
            if update.op is dynamic_slices.dynamic_update_slice:
                _, part, *starts = (new[o] for o in update.operands)
                sizes = dynamic_slices.DynamicSlice(part.array_shape.dimensions)
                old = emit(dynamic_slices.dynamic_slice, [new[whole], *starts], sizes, x, part.shape)
                total = emit(elementwise.add, [old, part], elementwise.add.attributes(), x, part.shape)
                return emit(update.op, [new[whole], total, *starts], update.attributes, x, x.shape)
        return None

    for x in computation.instructions:
        found = updated(x) if x.op is elementwise.add else None
        new[x] = found or emit(x.op, [new[o] for o in x.operands], x.attributes, x, x.shape)
    return Computation(computation.name, [new[p] for p in computation.parameters], order, new[computation.root])


def _is_zero(x: Instruction) -> bool:
    """Whether it is a constant zero, spread."""
    constant = x.operands[0] if x.op is movement.broadcast else x
    return constant.op is movement.constant and constant.attributes.literal.splat == 0


def _parameter(number: int, shape: AnyShape) -> Instruction:
    return Instruction(movement.parameter, (), movement.Parameter(number, shape), shape)


def with_parameters(
    computation: Computation,
    shapes: Sequence[AnyShape],
    places: Sequence[int] | None = None,
    keeps_unused: bool = False,
) -> Computation:
    """The same computation with more parameters, of these shapes; its own are at `places` (first, unless given).
    What is computed in vain is left out, unless `keeps_unused`: checks may be about it."""
    own = computation.parameters
    at = dict(zip(places if places is not None else range(len(own)), own, strict=True))
    inputs = [at.get(k) or _parameter(k, shape) for k, shape in enumerate(shapes)]
    as_tuple = isinstance(computation.root.shape, TupleShape)
    return subgraph(
        computation.name, inputs, computation.outputs, as_tuple, (_unused if keeps_unused else effects)(computation)
    )


def _unused(computation: Computation) -> list[Instruction]:
    """Side effects, and instructions whose results nothing uses, but for arrays that need no operands."""
    used = {computation.root, *(o for x in computation.instructions for o in x.operands)}
    return [x for x in computation.instructions if x.has_side_effect or (x.operands and x not in used)]


def effects(computation: Computation) -> list[Instruction]:
    """What must run even if nothing needs it."""
    return [x for x in computation.instructions if x.has_side_effect] if computation.has_side_effect else []


@lru_cache(256)
def silent(computation: Computation) -> Computation:
    """The same without side effects, for a way back that computes what the way there has computed."""
    kept = {*computation.parameters, *needed([computation.root])}
    new: dict[Instruction, Instruction] = {}
    for x in computation.instructions:
        if x not in kept:
            continue
        attributes = x.attributes
        if x.has_side_effect:
            if not any(x.computations()):
                raise DifferentiationError(
                    "while: the derivative in reverse mode of a loop whose length is not known beforehand runs its "
                    f"steps again, but a step needs what {attributes[0]} gives, which is called for its side effects, "
                    "too. Use scan, or fori_loop with Python numbers, or pure_callback if it has none."
                )
            attributes = attributes._replace(**map_computations(x.attributes._asdict(), silent))
        new[x] = Instruction(x.op, [new[o] for o in x.operands], attributes, x.shape, x.source)
    return Computation(
        computation.name, [new[p] for p in computation.parameters], [*new.values()], new[computation.root]
    )


def unpacked(computation: Computation) -> Computation:
    """A computation of one result without the tuple around it."""
    assert computation.instructions[-1] is computation.root
    (root,) = computation.root.operands
    return Computation(computation.name, computation.parameters, computation.instructions[:-1], root)


def of_one(function: Callable[..., Any], shapes: Sequence[AnyShape], name: str) -> Computation:
    """The computation of a function with one result, which is not put into a tuple."""
    return unpacked(trace(lambda *x: [function(*x)], shapes, name)[0])


@lru_cache(4096)
def program_of_op(op: Op, shapes: tuple[AnyShape, ...], attributes: tuple[tuple[str, Any], ...]) -> Computation:
    """The program that is one operation, of operands of these shapes; with a tuple of results if the op gives one."""
    graph = GraphTrace(op.name)

    def record() -> Computation:
        result = op(*map(graph.parameter, shapes), **dict(attributes))
        return graph.finish(op.name, results(result), isinstance(result, tuple))

    return graph.run(record)


def clear_transformed() -> None:
    """Forget the transformed computations that are kept."""
    for kept in (forward, reverse, batched, program_of_op):
        kept.cache_clear()
