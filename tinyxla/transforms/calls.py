"""Call: a computation applied as one op. A compiled function inside another function is one.

Source: sections "Call" and "CompositeCall" of the XLA documents. Its rules are made by transforming the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinyxla.errors import ClosedOverTracerError, DifferentiationError, ShapeError
from tinyxla.hlo import Computation, Instruction, is_constant
from tinyxla.ops import Op, Sample, calls, elementwise, movement
from tinyxla.ops.barrier import opt_barrier
from tinyxla.ops.dynamic_slices import dynamic_update_slice
from tinyxla.ops.op import Axes, Factors, Joint
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.axis_types import explicit_axes
from tinyxla.tracing.core import state, trace
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.references import OuterReferenceError
from tinyxla.tracing.shardings import NamedSharding, Sharding, Spec
from tinyxla.transforms.computations import (
    Mask,
    batched,
    chosen,
    effects,
    flowing,
    forward,
    inexact,
    is_special,
    partition,
    results,
    reverse,
    run,
    spread,
    subgraph,
)
from tinyxla.transforms.reverse import PartialPullback, vjp, zeros_like

if TYPE_CHECKING:
    from tinyxla.transforms.custom import Rule


class Composite(NamedTuple):
    """What a composite says of itself: an op made of others, which may always stand in its place."""

    name: str
    attributes: str = ""
    version: int = 0


class Checkpoint(NamedTuple):
    """What the way back through a call keeps of the way there; the rest, but for the operands, is computed again. Of
    what the way back needs of a loop it keeps the values of all steps that the policy says yes to.

    `policy`, of an op, its operands' shapes and its attributes, says of what to keep the result; None: of nothing.
    Without `barrier` the compiler may take a result that is still there for the one computed again. `is_back` marks the
    way back itself, whose own derivatives keep what they need.
    """

    policy: Callable[..., bool] | None
    barrier: bool
    is_back: bool = False

    def keeps(self, x: Instruction) -> bool:
        if x.op is calls.get_tuple_element:
            row = _stacked(x.operands[0], x.attributes.index)
            return (row is not None and self.keeps(row)) or self.keeps(x.operands[0])
        return self.policy is not None and bool(
            self.policy(x.op, *(o.shape for o in x.operands), **x.attributes._asdict())
        )


_KEEPING_ELEMENTS = (movement.reshape, movement.broadcast)


def _stacked(loop: Instruction, index: int) -> Instruction | None:
    """What each step of a loop, or of one that a call is, puts into an array of which it makes a row at a time; None if
    a result is no such."""
    if loop.op.name == "call":
        result = loop.attributes.to_apply.outputs[index]
        return _stacked(result.operands[0], result.attributes.index) if result.op is calls.get_tuple_element else None
    if loop.op.name != "while":
        return None
    body: Computation = loop.attributes.body
    updated = body.outputs[index]
    if updated.op is not dynamic_update_slice or updated.operands[0] is not body.parameters[index]:
        return None
    row = updated.operands[1]
    while row.op in _KEEPING_ELEMENTS and row.array_shape.size == row.operands[0].array_shape.size:
        (row,) = row.operands
    return None if row.op is movement.parameter else row


class CallPlan(NamedTuple):
    """What a device computes of a call: a function of the parts of its operands, and how these and the results are
    split for it."""

    name: str
    function: Callable[..., Sequence[Any]]
    operands: Sequence[Spec]
    results: Sequence[Spec]


class Partitioning(NamedTuple):
    """How a call is partitioned that says it itself, by functions of the mesh and of operands and results.

    Attributes:
        factors: the sharding rule, from the shapes of both.
        infer: the shardings of results, from the shapes and shardings of operands and the shapes of results; None if
            the sharding rule says it.
        plan: what a device computes, from the shapes and shardings of both.
    """

    factors: Callable[[AbstractMesh, Sequence[Shape], Sequence[Shape]], Factors]
    infer: Callable[[AbstractMesh, Sequence[tuple[Shape, Spec]], Sequence[Shape]], Sequence[Spec]] | None
    plan: Callable[[AbstractMesh, Sequence[tuple[Shape, Spec]], Sequence[tuple[Shape, Spec]]], CallPlan]


class Call(NamedTuple):
    """`rule`, if there is one, stands in for the derivatives and batching of what is called (`transforms.custom`), and
    `partitioning` for its partitioning; what transformations make of the call is partitioned like all else."""

    to_apply: Computation
    is_composite: bool = False
    frontend_attributes: Composite | None = None
    rule: Any = None  # a `Rule` or None; the text of attributes looks types up, and this one is of a later module
    checkpoint: Checkpoint | None = None
    partitioning: Any = None  # a `Partitioning` or None


def _shape(*operands: AnyShape, to_apply: Computation, **others: Any) -> AnyShape:
    if list(operands) != to_apply.parameter_shapes:
        raise ShapeError(
            f"call: the operands of {to_apply.name} must be {to_apply.parameter_shapes}, but got {list(operands)}."
        )
    return to_apply.root.shape


# How a call computes on concrete arrays: the compiling layers put their executor here.
execute: Callable[..., Any] = lambda *operands, to_apply: calls.evaluate(to_apply, operands)  # noqa: E731


def set_execute(function: Callable[..., Any]) -> None:
    global execute
    execute = function


def grouped(computation: Computation, values: Any) -> Any:
    """Results as the computation gives them: a tuple, or one."""
    return tuple(values) if isinstance(computation.root.shape, TupleShape) else values[0]


def _forward(
    tangents: tuple[Any, ...],
    *operands: Any,
    to_apply: Computation,
    rule: Rule | None = None,
    checkpoint: Checkpoint | None = None,
    **composite: Any,
) -> tuple[Any, Any]:
    moves_captured = rule is not None and any(t is not None for t in rule.captured(tangents))
    if rule is not None and rule.has_tangents and (rule.has_derivatives or not moves_captured):
        own = _of_its_own(rule, to_apply, operands, [t is not None for t in tangents])
        return own.forward(tangents[: rule.count], *operands[: rule.count])
    made, moving = forward(to_apply, tuple(t is not None for t in tangents))
    outputs = call(*operands, *(t for t in tangents if t is not None), to_apply=made, checkpoint=checkpoint)
    count = len(to_apply.outputs)
    return grouped(to_apply, outputs[:count]), grouped(to_apply, spread(outputs[count:], moving))


def _reverse(
    wanted: Mask,
    *operands: Any,
    to_apply: Computation,
    rule: Rule | None = None,
    checkpoint: Checkpoint | None = None,
    **composite: Any,
) -> tuple[Any, Callable[[Any], list[Any]] | None]:
    """Forward and backward pass are two calls. What the second needs of the first is handed over as residuals.
    There is no backward pass where no result depends on the operands by way of derivatives."""
    if rule is not None and rule.has_derivatives:
        own = _of_its_own(rule, to_apply, operands, wanted)
        outputs, own_pullback = own.reverse(wanted[: rule.count], *operands[: rule.count])

        def pull(g: Any) -> list[Any]:
            return [*own_pullback(g), *(None for _ in operands[rule.count :])]

        return outputs, PartialPullback(pull, own_pullback.flows) if isinstance(own_pullback, PartialPullback) else pull
    if checkpoint is not None and checkpoint.is_back:
        checkpoint = None
    try:
        split = split_reverse(to_apply, wanted, checkpoint, inexact(to_apply), _types(operands, to_apply))
    except OuterReferenceError:
        return _reverse_inline(wanted, operands, to_apply)
    except Exception:
        if not has_rules(to_apply):
            raise
        return _reverse_later(wanted, operands, to_apply, checkpoint)
    outputs, residuals = _there(split, operands, to_apply)
    if not any(split.flows):
        return grouped(to_apply, outputs), None
    seeded = inexact(to_apply)
    pull_later = _pull_later(wanted, operands, to_apply, checkpoint)

    def pullback(g: Any) -> list[Any]:
        present = tuple(c is not None or not m for c, m in chosen(zip(results(g), split.moving, strict=True), seeded))
        if not all(present) and _is_affine(split.back, len(present)):
            return pull_later(g)
        cotangents = [zeros_like(x) if c is None else c for c, x in zip(results(g), outputs, strict=True)]
        found = _back(split, residuals, chosen(cotangents, seeded), checkpoint)
        if not all(present):
            reached = spread(_reached(split.back, present), split.flows)
            found = [x if is_reached else None for x, is_reached in zip(found, reached, strict=True)]
        return spread(found, wanted)

    return grouped(to_apply, outputs), PartialPullback(pullback, split.moving)


def _flows(wanted: Mask, *, to_apply: Computation, rule: Rule | None = None, **others: Any) -> Mask | None:
    return flowing(to_apply, wanted) if rule is None else rule.flows(to_apply, wanted)


def _types(operands: Sequence[Any], to_apply: Computation) -> tuple[Sharding | None, ...]:
    """The shardings of the operands of a function with rules of the user's, if some are types; else an empty tuple."""
    if state.manual is not None or not has_rules(to_apply):
        return ()
    layouts = [getattr(x, "sharding", None) for x in operands]
    types = [x if isinstance(x, NamedSharding) and explicit_axes(x.mesh) else None for x in layouts]
    return tuple(types) if any(x is not None for x in types) else ()


def _reverse_inline(
    wanted: Mask, operands: tuple[Any, ...], to_apply: Computation
) -> tuple[Any, Callable[[Any], list[Any]]]:
    """The same where a backward rule reads or writes mutable references from around, which is done where it runs."""
    moved = chosen(operands, wanted)
    outputs, pullback = vjp(lambda *x: run(to_apply, spread(x, wanted, operands), inline=True), moved)
    return grouped(to_apply, outputs), lambda g: spread(pullback(results(g)), wanted)


def _reverse_later(
    wanted: Mask, operands: tuple[Any, ...], to_apply: Computation, checkpoint: Checkpoint | None
) -> tuple[Any, Callable[[Any], list[Any]]]:
    """The same where a rule of the user's refuses cotangents of some results: the way back, with the forward pass once
    more, is found when it is known which results have any."""
    values = results(call(*operands, to_apply=to_apply, checkpoint=checkpoint))
    return grouped(to_apply, values), _pull_later(wanted, operands, to_apply, checkpoint)


def _pull_later(
    wanted: Mask, operands: tuple[Any, ...], to_apply: Computation, checkpoint: Checkpoint | None
) -> Callable[[Any], list[Any]]:
    """The way back from those results alone that have cotangents, with the forward pass once more."""

    def pullback(g: Any) -> list[Any]:
        seeded = tuple(c is not None for c in results(g))
        split = split_reverse(to_apply, wanted, checkpoint, seeded, _types(operands, to_apply))
        _, residuals = _there(split, operands, to_apply)
        return spread(_back(split, residuals, chosen(results(g), seeded), checkpoint), wanted)

    return pullback


def _there(split: Split, operands: Sequence[Any], to_apply: Computation) -> tuple[Sequence[Any], list[Any]]:
    """The results of the forward pass and the residuals."""
    outputs = results(call(*operands, to_apply=split.there))
    count = len(to_apply.outputs)
    computed = iter(outputs[count:])
    return outputs[:count], [next(computed) if place is None else operands[place] for place in split.residuals]


def _back(
    split: Split, residuals: Sequence[Any], cotangents: Sequence[Any], checkpoint: Checkpoint | None
) -> list[Any]:
    """The cotangents of the operands that are wanted; None where nothing flows."""
    inputs = [*residuals, *cotangents]
    if checkpoint is not None and checkpoint.barrier and inputs:
        inputs = opt_barrier(*inputs)
    back = None if checkpoint is None else checkpoint._replace(is_back=True)
    return spread(call(*inputs, to_apply=split.back, checkpoint=back), split.flows)


@lru_cache(1024)
def _reached(back: Computation, present: Mask) -> Mask:
    """Which results of a backward pass depend on the cotangents that are present, the last parameters: the others are
    zero, whatever these are."""
    known = _dependent(back, present)
    return tuple(x in known for x in back.outputs)


def _dependent(back: Computation, present: Mask) -> set[Instruction]:
    """What depends on the last parameters of a computation, those of them that are present."""
    seeds = back.parameters[len(back.parameters) - len(present) :]
    known = set(chosen(seeds, present))
    for x in back.instructions:
        if any(o in known for o in x.operands):
            known.add(x)
    return known


@lru_cache(1024)
def _is_affine(back: Computation, count: int) -> bool:
    """Whether a backward pass has terms without a factor of its cotangents, the last parameters: the rule of a
    `custom_vjp` function may return what is no derivative. Which of these terms count depends on which cotangents there
    are. It sees sums and results, and not those inside loops and branches."""
    known = _dependent(back, (True,) * count)
    summed = [x for x in back.instructions if x.op in (elementwise.add, elementwise.sub) and x in known]
    terms = [*back.outputs, *(o for x in summed for o in x.operands)]
    return any(x not in known and not _is_zero(x) for x in terms)


def _is_zero(x: Instruction) -> bool:
    """Whether an array is a constant zero, broadcast or not."""
    while x.op is movement.broadcast:
        (x,) = x.operands
    return is_constant(x) and not np.any(x.attributes.literal.value)


def with_used_results(computation: Computation) -> Computation:
    """Dead code elimination in calls: those without rules compute the results that are used alone."""
    users = computation.users()
    new: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []

    def emit(x: Instruction, attributes: Any, shape: AnyShape) -> None:
        order.append(Instruction(x.op, [new[o] for o in x.operands], attributes, shape, x.source, origin=x.origin))
        new[x] = order[-1]

    places: dict[Instruction, dict[int, int]] = {}  # of the results that are left of a call
    for x in computation.instructions:
        used = _used_results(x, users[x])
        if used is not None:
            called: Computation = x.attributes.to_apply
            outputs = [called.outputs[k] for k in used]
            made = with_used_results(subgraph(called.name, called.parameters, outputs, effects=effects(called)))
            emit(x, x.attributes._replace(to_apply=made), made.root.shape)
            places[x] = {k: n for n, k in enumerate(used)}
        elif x.op is calls.get_tuple_element and x.operands[0] in places:
            emit(x, calls.GetTupleElement(places[x.operands[0]][x.attributes.index]), x.shape)
        else:
            emit(x, x.attributes, x.shape)
    parameters = [new[p] for p in computation.parameters]
    return Computation(computation.name, parameters, order, new[computation.root]) if places else computation


def _used_results(x: Instruction, users: Sequence[Instruction]) -> list[int] | None:
    """Which results of a plain call are used, if some are not."""
    if x.op is not call or not isinstance(x.shape, TupleShape):
        return None
    if is_special(x) or x.attributes.is_composite:
        return None
    if not users or any(u.op is not calls.get_tuple_element for u in users):
        return None
    used = sorted({u.attributes.index for u in users})
    return used if len(used) < len(x.shape.elements) else None


def has_rules(computation: Computation) -> bool:
    """Whether calls in a computation have rules of their own."""
    return any(True for _ in _rules(computation))


@lru_cache(1024)
def has_batching_rules(computation: Computation) -> bool:
    """Whether calls in a computation have batching rules of their own."""
    return any(rule.has_batching for rule in _rules(computation))


def _rules(computation: Computation) -> Iterator[Rule]:
    """The rules of the calls in a computation, and of those that are called."""
    for x in computation.instructions:
        rule = getattr(x.attributes, "rule", None)
        if rule is not None:
            yield rule
        for inner in x.computations():
            yield from _rules(inner)


def _of_its_own(rule: Rule, to_apply: Computation, operands: Sequence[Any], moving: Sequence[bool]) -> Rule:
    """The rule of a recorded call. What the function captured comes after its arguments among the operands."""
    if any(rule.captured(moving)):
        raise closed_over_error(rule.name)
    return rule.of(to_apply, operands[rule.count :])


def closed_over_error(name: str) -> ClosedOverTracerError:
    return ClosedOverTracerError(
        f"{name}: the function uses an outer value that a derivative is wanted for, but its rule gives derivatives by "
        "its arguments alone; pass the value as an argument.",
        state.source,
    )


def unsummed_error(what: str, shape: Shape, axes: Iterable[Hashable]) -> DifferentiationError:
    """A rule gives each device a cotangent of its own for what all devices have."""
    names = " and ".join(map(repr, sorted(axes, key=str)))
    return DifferentiationError(
        f"{what} gives a cotangent {shape} that varies along {names} for an argument that does not; return the sum, "
        f"lax.psum over {names}, or pass check_vma=False to shard_map.",
        state.source,
    )


class Split(NamedTuple):
    there: Computation  # of the operands: results, and what is computed for the way back
    residuals: list[int | None]  # for each value that the way back needs the operand it is; None: one computed there
    back: Computation  # of these and the cotangents
    flows: Mask  # which of the wanted cotangents there are
    moving: Mask  # to which results a derivative flows


@lru_cache(1024)
def split_reverse(
    computation: Computation,
    active: Mask,
    checkpoint: Checkpoint | None,
    seeded: Mask,
    shardings: tuple[Sharding | None, ...] = (),
) -> Split:
    """Forward and backward pass, by those operands that are `active`, from cotangents of the results that are
    `seeded`; of operands that have `shardings` as types."""
    if checkpoint is not None and checkpoint.policy is not None:
        whole = computation  # a policy is asked of the operations inside calls, too
        computation, _, _ = trace(lambda *x: run(whole, x, inline=True), whole.parameter_shapes, whole.name)
    both, flows, moving, before = reverse(computation, active, seeded, False, shardings=shardings)
    keeps = None if checkpoint is None else checkpoint.keeps
    if checkpoint is not None:
        both = _rematted(both, len(computation.parameters))
    count = len(computation.outputs)
    early, late = partition(both, len(computation.parameters), count, keeps, effects_there=before)
    number = {x: k for k, x in enumerate(early.parameters)}
    residuals = [number.get(x) for x in early.outputs[count:]]
    computed = [x for x in early.outputs[count:] if x not in number]
    if checkpoint is not None and not computed and not effects(both):
        return Split(computation, residuals, late, flows, moving)  # not what forward rules of custom_vjp give
    there = subgraph(early.name, early.parameters, [*early.outputs[:count], *computed], effects=effects(early))
    if checkpoint is not None:
        for x in there.instructions:
            x.source = x.source and x.source.moved(x.source.scope.removeprefix(_REMATTED).lstrip("/"))
    return Split(there, residuals, late, flows, moving)


_REMATTED = "rematted_computation"  # the scope of what is computed again


def _rematted(both: Computation, primals: int) -> Computation:
    """Both passes of a checkpoint, with what depends on the first parameters alone in a scope of its own."""
    made, new = both.copy()
    back = _dependent(both, (True,) * (len(both.parameters) - primals))
    for x in both.instructions:
        if x not in back:
            new[x].source = x.source and x.source.inside(_REMATTED)
    return made


def _batch(
    size: int,
    operands: tuple[Any, ...],
    axes: Axes,
    *,
    to_apply: Computation,
    rule: Rule | None = None,
    checkpoint: Checkpoint | None = None,
    **composite: Any,
) -> Any:
    if rule is not None and all(a is None for a in axes[rule.count :]):
        own = rule.of(to_apply, operands[rule.count :])
        return own.batch(own.lanes(size), operands[: rule.count], axes[: rule.count])
    own = None if rule is None else rule.over(size, axes)
    made, found = batched(to_apply, size, axes, None if own is None else (True,) * len(to_apply.outputs))
    outputs = call(*operands, to_apply=made, checkpoint=checkpoint, rule=own)
    return grouped(to_apply, outputs), grouped(to_apply, found)


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    shape = Shape(element_type(np.float32), (2, 3))
    made, _, _ = trace(lambda x, y: [elementwise.mul(elementwise.sin(x), y), x], [shape, shape], "sample")
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((2, 3)) + 1), {"to_apply": made})
    attributes = {
        "to_apply": made,
        "is_composite": True,
        "frontend_attributes": Composite("sample.sine", "{n = 1 : i32}", 1),
    }
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((2, 3))), attributes)


call = Op(
    "call",
    attributes=Call,
    shape=_shape,
    evaluate=lambda *operands, to_apply, **others: execute(*operands, to_apply=to_apply),
    derivative=Joint(_forward, _reverse, symbolic_zeros=True, flows=_flows),
    batch=_batch,
    samples=_samples,
)
