"""Lanes: a computation of one lane, on many lanes side by side, each to its own end.

What is mapped over an axis runs all lanes in lock step: a loop until the last lane has ended, and every branch on every
lane. Where the computation of a lane is small, a compiled program runs it lane by lane instead, spread over threads,
with the lane's own loops and branches. Which it is, the compiler decides, so both forms are there; all rules but that
for a further map are those of the lock step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, calls, elementwise, movement
from tinyxla.ops.op import Axes, Decomposition, Factors, Ints
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms.calls import has_batching_rules
from tinyxla.transforms.computations import Mask, batched, effects, leading, run, run_batched

MAX_SPREAD = 64  # elements of what lanes of one map share, to be repeated for each when maps become one


class Lanes(NamedTuple):
    """`mapped` operands have a first dimension of lanes, the others are shared by all lanes; all results have it."""

    to_apply: Computation
    in_lock_step: Computation
    mapped: Mask


def _shape(*operands: AnyShape, to_apply: Computation, in_lock_step: Computation, mapped: Mask) -> AnyShape:
    if len(mapped) != len(operands) or not any(mapped):
        raise AttributeValueError(
            f"lanes: mapped must say of each of the {len(operands)} operands whether it has lanes, and at least one "
            f"must, but mapped is {mapped}."
        )
    arrays = [x for x, m in zip(operands, mapped, strict=True) if m]
    sizes = {x.dimensions[0] if isinstance(x, Shape) and x.rank else None for x in arrays}
    size = sizes.pop()
    if sizes or size is None:
        raise ShapeError(
            f"lanes: mapped operands must be arrays with the same first dimension, but are {TupleShape(tuple(arrays))}."
        )
    taken = _on_lanes(to_apply.parameter_shapes, size, mapped)
    given = _on_lanes([x.shape for x in to_apply.outputs], size)
    if list(operands) != taken or operands != tuple(in_lock_step.parameter_shapes):
        raise ShapeError(
            f"lanes: {to_apply.name} on lanes and {in_lock_step.name} must take {TupleShape(operands)}, but take "
            f"{TupleShape(tuple(taken))} and {TupleShape(tuple(in_lock_step.parameter_shapes))}."
        )
    if in_lock_step.root.shape != TupleShape(tuple(given)):
        raise ShapeError(
            f"lanes: {in_lock_step.name} must give what {to_apply.name} gives on lanes, {TupleShape(tuple(given))}, "
            f"but gives {in_lock_step.root.shape}."
        )
    return TupleShape(tuple(given))


def _on_lanes(shapes: Sequence[AnyShape], size: int, mapped: Sequence[bool] | None = None) -> list[AnyShape]:
    marks = mapped if mapped is not None and len(mapped) == len(shapes) else [True] * len(shapes)
    return [
        s.with_dimensions((size, *s.dimensions)) if m and isinstance(s, Shape) else s
        for s, m in zip(shapes, marks, strict=True)
    ]


def _evaluate(*operands: Any, to_apply: Computation, in_lock_step: Computation, mapped: Mask) -> Any:
    return calls.evaluate(in_lock_step, operands)


def _together(*operands: Any, to_apply: Computation, in_lock_step: Computation, mapped: Mask) -> Any:
    return run(in_lock_step, operands)


def _batch(
    size: int, operands: tuple[Any, ...], axes: Axes, *, to_apply: Computation, in_lock_step: Computation, mapped: Mask
) -> Any:
    """All lanes of all maps."""
    own = operands[mapped.index(True)]
    inner = own.shape[0 if axes[mapped.index(True)] != 0 else 1]
    several = tuple(m or a is not None for m, a in zip(mapped, axes, strict=True))
    one_lane = [s.size if isinstance(s, Shape) else 0 for s in to_apply.parameter_shapes]
    if any(s and not m and n > MAX_SPREAD for s, m, n in zip(several, mapped, one_lane, strict=True)):
        return run_batched(in_lock_step, size, operands, axes)
    values: list[Any] = []
    for x, axis, m, s in zip(operands, axes, mapped, several, strict=True):
        if not s:
            values.append(x)
            continue
        x = movement.align_axis(x, axis, 0, size)
        if not m:
            dimensions = (0, *range(2, x.ndim + 1))
            x = movement.broadcast(x, sizes=(size, inner, *x.shape[1:]), dimensions=dimensions)
        values.append(movement.reshape_to(x, (size * inner, *x.shape[2:])))
    together = _of_all(in_lock_step, size, inner, mapped, several)
    found = lanes(*values, to_apply=to_apply, in_lock_step=together, mapped=several)
    return tuple(movement.reshape_to(x, (size, inner, *x.shape[1:])) for x in found), (0,) * len(found)


@lru_cache(256)
def _of_all(in_lock_step: Computation, size: int, inner: int, mapped: Mask, several: Mask) -> Computation:
    """The lock step, mapped over a further axis; lanes of both are along the first dimension."""
    wanted = (True,) * len(in_lock_step.outputs)
    step, _ = batched(in_lock_step, size, leading(several), wanted)

    def function(*values: Any) -> list[Any]:
        apart: list[Any] = []
        for x, m, s in zip(values, mapped, several, strict=True):
            if s:
                x = movement.reshape_to(x, (size, inner, *x.shape[1:]))
                if not m:
                    limits, ones = (size, 1, *x.shape[2:]), (1,) * x.ndim
                    x = movement.slice_(x, start_indices=(0,) * x.ndim, limit_indices=limits, strides=ones)
                    x = movement.reshape_to(x, (size, *x.shape[2:]))
            apart.append(x)
        return [movement.reshape_to(x, (size * inner, *x.shape[2:])) for x in run(step, apart)]

    count = size * inner
    shapes = [
        s.with_dimensions((count, *s.dimensions[1 if m else 0 :])) if several and isinstance(s, Shape) else s
        for s, m, several in zip(in_lock_step.parameter_shapes, mapped, several, strict=True)
    ]
    return trace(function, shapes, in_lock_step.name)[0]


def may_part(*computations: Computation) -> bool:
    """Whether lanes can run one by one: nothing in them talks to other lanes, must run in order, or has a batching rule
    of the user's."""
    return not any(c.axis_names or effects(c) or has_batching_rules(c) for c in computations)


def apart(
    one: Callable[..., Sequence[Any]],
    together: Callable[..., Sequence[Any]],
    shapes: Sequence[AnyShape],
    size: int,
    mapped: Mask,
    name: str,
) -> dict[str, Any]:
    """The attributes of `lanes`: of what gives a lane's results, of operands of these shapes, and of what gives all
    lanes' results."""
    return {
        "to_apply": trace(lambda *x: list(one(*x)), shapes, name)[0],
        "in_lock_step": trace(lambda *x: list(together(*x)), _on_lanes(shapes, size, mapped), f"{name}_lanes")[0],
        "mapped": mapped,
    }


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    scalar, vector = Shape(element_type("f32")), Shape(element_type("f32"), (2,))

    def one(x: Any, y: Any) -> list[Any]:
        return [
            elementwise.mul(x, movement.broadcast(elementwise.sin(y), sizes=(2,), dimensions=())),
            elementwise.exp(y),
        ]

    whole = trace(one, [vector, scalar], "one")[0]
    for mapped in ((True, True), (False, True), (True, False)):
        together = batched(whole, 3, leading(mapped), (True, True))[0]
        operands = [
            random.normal(size=(3, *n) if m else n).astype(np.float32) for n, m in zip([(2,), ()], mapped, strict=True)
        ]
        yield Sample(tuple(operands), {"to_apply": whole, "in_lock_step": together, "mapped": mapped})


def _factors(*operands: Shape, to_apply: Computation, in_lock_step: Computation, mapped: Mask) -> Factors:
    """Lanes are split together, evenly, since a lane of any values may not end; what is in one is whole."""
    of_operands = tuple(
        (0, *[None] * (x.rank - 1)) if m else (None,) * x.rank for x, m in zip(operands, mapped, strict=True)
    )
    results = tuple((0, *[None] * x.array_shape.rank) for x in to_apply.outputs)
    count = next(x.dimensions[0] for x, m in zip(operands, mapped, strict=True) if m)
    return Factors(of_operands, results, localize=_of_some, sizes=((0, count),))


def _of_some(attributes: dict[str, Any], operands: Sequence[Ints], results: Sequence[Ints]) -> dict[str, Any]:
    """The attributes for as many lanes as there are results."""
    to_apply, mapped = attributes["to_apply"], attributes["mapped"]
    together, _ = batched(to_apply, results[0][0], leading(mapped), (True,) * len(results))
    return {**attributes, "in_lock_step": together}


lanes = Op(
    "lanes",
    sharding=_factors,
    attributes=Lanes,
    shape=_shape,
    evaluate=_evaluate,
    derivative=Decomposition(_together),
    batch=_batch,
    samples=_samples,
)
