"""Call: a computation applied as one op. A compiled function inside another function is one.

Source: section "Call" of the XLA documents. Its rules are made by transforming the computation, and kept: a function
    that is differentiated again and again is transformed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import Op, Sample, calls, elementwise, movement
from tinyxla.ops.op import Rules
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms.batch import batch
from tinyxla.transforms.forward import jvp
from tinyxla.transforms.reverse import is_inexact, vjp


class Call(NamedTuple):
    to_apply: Computation


def _shape(*operands: AnyShape, to_apply: Computation) -> AnyShape:
    if list(operands) != to_apply.parameter_shapes:
        raise ShapeError(f"call: {to_apply.name} takes {to_apply.parameter_shapes}, but got {list(operands)}.")
    return to_apply.root.shape


# How a call computes on concrete arrays: the compiling layers put their executor here.
execute: Callable[..., Any] = lambda *operands, to_apply: calls.evaluate(to_apply, operands)  # noqa: E731


def set_execute(function: Callable[..., Any]) -> None:
    global execute
    execute = function


def results(ans: Any) -> tuple[Any, ...]:
    return ans if isinstance(ans, tuple) else (ans,)


def _run(computation: Computation) -> Callable[..., tuple[Any, ...]]:
    return lambda *operands: results(calls.inline(computation, operands))


def grouped(computation: Computation, values: Any) -> Any:
    """Results as the computation gives them: a tuple, or one."""
    return tuple(values) if isinstance(computation.root.shape, TupleShape) else values[0]


@lru_cache(1024)
def _forward(computation: Computation, present: tuple[bool, ...]) -> tuple[Computation, tuple[bool, ...]]:
    """The computation of results and tangents, from operands and those tangents that are there."""
    shapes = computation.parameter_shapes
    moving: list[bool] = []

    def function(*inputs: Any) -> list[Any]:
        primals = inputs[: len(shapes)]
        given = iter(inputs[len(shapes) :])
        tangents = [next(given) if p else None for p in present]
        values, found = jvp(_run(computation), primals, tangents)
        moving.extend(t is not None for t in found)
        return [*values, *(t for t in found if t is not None)]

    inputs = [*shapes, *(s for s, p in zip(shapes, present, strict=True) if p)]
    made, _, _ = trace(function, inputs, f"{computation.name}_jvp")
    return made, tuple(moving)


def _jvp(tangents: tuple[Any, ...], ans: Any, *operands: Any, to_apply: Computation) -> Any:
    present = tuple(t is not None for t in tangents)
    made, moving = _forward(to_apply, present)
    found = call(*operands, *(t for t in tangents if t is not None), to_apply=made)[len(results(ans)) :]
    given = iter(found)
    return grouped(to_apply, [next(given) if m else None for m in moving])


class _Split(NamedTuple):
    forward: Computation  # operands -> results, residuals
    backward: Computation  # residuals, cotangents of inexact results -> cotangents that flow
    flows: tuple[bool, ...]  # for each operand, whether one does


@lru_cache(1024)
def _split(computation: Computation) -> _Split:
    """Forward and backward pass as two computations. What the second needs of the first is handed over as residuals."""
    shapes = computation.parameter_shapes
    flows: list[bool] = []

    def joint(*inputs: Any) -> list[Any]:
        values, pullback = vjp(_run(computation), inputs[: len(shapes)])
        given = iter(inputs[len(shapes) :])
        found = pullback([next(given) if is_inexact(v) else None for v in values])
        flows.extend(g is not None for g in found)
        return [*values, *(g for g in found if g is not None)]

    seeds = [x.shape for x in computation.outputs if is_inexact(x.array_shape)]
    both, _, _ = trace(joint, [*shapes, *seeds], f"{computation.name}_vjp")
    count = len(computation.outputs)
    forward, backward = partition(both, len(shapes), count)
    return _Split(forward, backward, tuple(flows))


def partition(both: Computation, primals: int, results: int) -> tuple[Computation, Computation]:
    """Split a computation into what the first `primals` parameters determine, and the rest.

    The first part gives the first `results` results and the residuals; the second takes the residuals and the other
    parameters. Constants and what is made of them alone are made again rather than handed over.
    """
    late: set[Instruction] = set(both.parameters[primals:])
    free: set[Instruction] = set()
    for x in both.instructions:
        if x.op.name != "parameter":
            if any(o in late for o in x.operands):
                late.add(x)
            elif all(o in free for o in x.operands):
                free.add(x)
    outputs = both.root.operands
    wanted = _needed(outputs[results:])
    residuals: dict[Instruction, None] = {}
    for x in both.instructions:
        if x in wanted and x in late and x is not both.root:
            residuals.update((o, None) for o in x.operands if o not in late and o not in free)
    residuals.update((o, None) for o in outputs[results:] if o not in late and o not in free)
    kept = list(residuals)
    forward = subgraph(f"{both.name}_forward", both.parameters[:primals], [*outputs[:results], *kept])
    backward = subgraph(f"{both.name}_backward", [*kept, *both.parameters[primals:]], outputs[results:])
    return forward, backward


def _needed(outputs: Any) -> set[Instruction]:
    found: set[Instruction] = set()
    waiting = list(outputs)
    while waiting:
        x = waiting.pop()
        if x not in found:
            found.add(x)
            waiting.extend(x.operands)
    return found


def subgraph(name: str, inputs: Any, outputs: Any) -> Computation:
    """The computation of some instructions from others, which become its parameters."""
    new: dict[Instruction, Instruction] = {}
    parameters: list[Instruction] = []
    for number, x in enumerate(inputs):
        attributes = movement.Parameter(number, x.shape)
        new[x] = Instruction(movement.parameter, (), attributes, x.shape, x.source)
        parameters.append(new[x])
    order = list(parameters)
    waiting = [(x, False) for x in reversed(list(outputs))]
    while waiting:
        x, ready = waiting.pop()
        if x in new:
            continue
        if ready:
            new[x] = Instruction(x.op, [new[o] for o in x.operands], x.attributes, x.shape, x.source)
            order.append(new[x])
        else:
            waiting.append((x, True))
            waiting.extend((o, False) for o in reversed(x.operands))
    roots = [new[x] for x in outputs]
    root = Instruction(calls.tuple_, roots, calls.tuple_.attributes(), TupleShape(tuple(x.shape for x in roots)))
    return Computation(name, parameters, [*order, root], root)


def _vjp(g: Any, ans: Any, *operands: Any, to_apply: Computation) -> list[Any]:
    return list(_residuals(*operands, to_apply=to_apply)[1](g))


def _residuals(*operands: Any, to_apply: Computation) -> tuple[Any, Callable[[Any], list[Any]]]:
    made = _split(to_apply)
    outputs = call(*operands, to_apply=made.forward)
    count = len(to_apply.outputs)

    def pullback(g: Any) -> list[Any]:
        seeds = [c for c, x in zip(results(g), to_apply.outputs, strict=True) if is_inexact(x.array_shape)]
        found = iter(call(*outputs[count:], *seeds, to_apply=made.backward))
        return [next(found) if flows else None for flows in made.flows]

    return grouped(to_apply, outputs[:count]), pullback


@lru_cache(1024)
def _batched(
    computation: Computation, size: int, axes: tuple[int | None, ...], shapes: tuple[AnyShape, ...]
) -> tuple[Computation, tuple[int | None, ...]]:
    found: list[int | None] = []

    def function(*inputs: Any) -> list[Any]:
        pairs = batch(_run(computation), size, inputs, axes)
        found.extend(axis for _, axis in pairs)
        return [value for value, _ in pairs]

    made, _, _ = trace(function, shapes, f"{computation.name}_vmap")
    return made, tuple(found)


def _batch(size: int, operands: tuple[Any, ...], axes: tuple[int | None, ...], *, to_apply: Computation) -> Any:
    made, found = _batched(to_apply, size, axes, tuple(Shape.of(x) for x in operands))
    outputs = call(*operands, to_apply=made)
    return grouped(to_apply, outputs), grouped(to_apply, found)


def clear_transformed() -> None:
    """Forget the transformed computations that are kept."""
    for kept in (_forward, _split, _batched):
        kept.cache_clear()


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    shape = Shape(element_type(np.float32), (2, 3))
    made, _, _ = trace(lambda x, y: [elementwise.mul(elementwise.sin(x), y), x], [shape, shape], "sample")
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((2, 3)) + 1), {"to_apply": made})


call = Op(
    "call",
    attributes=Call,
    shape=_shape,
    evaluate=lambda *operands, to_apply: execute(*operands, to_apply=to_apply),
    derivative=Rules(_jvp, _vjp, _residuals),
    batch=_batch,
    samples=_samples,
)
