"""Callback: a Python function that a program calls with values while it runs.

Calls that are there for what they do, rather than for their results, have a side effect: they run once each, in the
order in which they stand, whether or not anything needs what they give.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, BatchingError, ShapeError
from tinyxla.hlo import Operation
from tinyxla.ops import movement
from tinyxla.ops.op import Array, Axes, ByAttributes, Derivative, NotDifferentiable, Op, Sample, Zero
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


class Exchange:
    """A function of a callback in which devices exchange arrays; `op` is the collective operation."""

    op: Operation


class Callback(NamedTuple):
    """`function(operands, shapes)` gives arrays of these shapes; its text names it.

    `lanes` are the sizes of leading dimensions, the outermost first, over which it is called again and again; `mapped`
    says for each which operands have it. `is_debug`: it only looks at values, so derivatives pass it by.
    """

    function: Callable[[Sequence[Array], tuple[Shape, ...]], tuple[Array, ...]]
    shapes: tuple[Shape, ...]
    custom_call_has_side_effect: bool = False
    ordered: bool = False
    is_debug: bool = False
    vmap_method: str | None = None
    lanes: tuple[int, ...] = ()
    mapped: tuple[tuple[bool, ...], ...] = ()


def _shape(*operands: AnyShape, shapes: tuple[Shape, ...], lanes: tuple[int, ...] = (), **others: Any) -> AnyShape:
    if not all(isinstance(x, Shape) for x in operands):
        raise ShapeError(f"callback: operands must be arrays, but are {operands}; hand in their elements.")
    return TupleShape(tuple(s.with_dimensions((*lanes, *s.dimensions)) for s in shapes))


def _evaluate(*operands: Any, **attributes: Any) -> tuple[Array, ...]:
    given = Callback(**attributes)
    if not given.lanes:
        own = [np.array(x) for x in operands]  # the function may keep them, and the program's memory is used again
        return tuple(map(np.array, given.function(own, given.shapes)))  # it may write to its own results later
    (size, *lanes), (mapped, *others) = given.lanes, given.mapped
    inner = given._replace(lanes=tuple(lanes), mapped=tuple(others))._asdict()
    lane = lambda k: (x[k, ...] if m else x for x, m in zip(operands, mapped, strict=True))  # noqa: E731
    found = [_evaluate(*lane(k), **inner) for k in range(size)]
    return tuple(
        np.stack([several[number] for several in found]) if found else np.zeros((0, *lanes, *s.dimensions), s.dtype)
        for number, s in enumerate(given.shapes)
    )


def _derivative(function: Any, is_debug: bool = False, **others: Any) -> Derivative:
    if is_debug:
        return Zero()
    return NotDifferentiable(
        f"what {function} computes is not known to the library; wrap the call in a function with custom_jvp or "
        "custom_vjp that says what its derivative is, or give it arguments of lax.stop_gradient"
    )


class _Examples(threading.local):
    """What the examples of a map are: `are_devices` where each is what a device computes. These have an order."""

    are_devices = False


examples = _Examples()


def aligned_operands(vmap_method: str | None, size: int, operands: Sequence[Any], axes: Axes) -> list[Any]:
    """Operands with the mapped axis first. One that is not mapped gets a first dimension of size 1 ("expand_dims") or
    of the number of examples ("broadcast_all"); with other methods it stays as it is."""
    leading = {"expand_dims": 1, "broadcast_all": size}.get(vmap_method or "")

    def aligned(x: Any, axis: int | None) -> Any:
        if axis is None:
            return x if leading is None else movement.align_axis(x, None, 0, leading)
        return movement.align_axis(x, axis, 0, size)

    return [aligned(x, a) for x, a in zip(operands, axes, strict=True)]


def _batch(size: int, operands: tuple[Any, ...], axes: Axes, **attributes: Any) -> Any:
    given = Callback(**attributes)
    mapped = tuple(a is not None for a in axes)
    if given.ordered and not given.is_debug and not examples.are_devices:
        raise ArgumentError(
            f"vmap: {given.function} is called with ordered=True, but examples that are computed together have no "
            "order; leave ordered out, or loop over the examples with lax.map or lax.scan."
        )
    is_sequential = given.custom_call_has_side_effect or str(given.vmap_method).startswith("sequential")
    values = aligned_operands(None if is_sequential else given.vmap_method, size, operands, axes)
    if is_sequential:
        given = given._replace(lanes=(size, *given.lanes), mapped=(mapped, *given.mapped))
    elif given.vmap_method is None:
        raise BatchingError(
            f"vmap: the call of {given.function} does not say how it is mapped; pass vmap_method, one of "
            f"{', '.join(map(repr, VMAP_METHODS))}: 'sequential' calls it for each example."
        )
    else:
        given = given._replace(shapes=tuple(s.with_dimensions((size, *s.dimensions)) for s in given.shapes))
    results = callback(*values, **given._asdict())
    return results, (0,) * len(results)


def _sum_and_sine(operands: Sequence[Array], shapes: tuple[Shape, ...]) -> tuple[Array, ...]:
    x, y = operands
    return np.asarray(x + y, x.dtype), np.asarray(np.sin(y), y.dtype)


def _nothing(operands: Sequence[Array], shapes: tuple[Shape, ...]) -> tuple[Array, ...]:
    return ()


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    f32 = element_type(np.float32)
    for sizes in ((), (3,), (2, 0)):
        x, y = movement.sample_values(sizes), movement.sample_values(sizes) + np.float32(0.5)
        shapes = (Shape(f32, sizes), Shape(f32, sizes))
        operands = (np.asarray(x), np.asarray(y))
        attributes = {"function": _sum_and_sine, "shapes": shapes, "vmap_method": "sequential"}
        yield Sample(operands, attributes)
        yield Sample(operands, {**attributes, "vmap_method": "broadcast_all"})
        yield Sample(operands, {**attributes, "custom_call_has_side_effect": True})
    yield Sample(
        (movement.sample_values((2, 3)), movement.sample_values((3,))),
        {
            "function": _sum_and_sine,
            "shapes": (Shape(f32, (3,)),) * 2,
            "vmap_method": "sequential",
            "lanes": (2,),
            "mapped": ((True, False),),
        },
    )
    debug = {"custom_call_has_side_effect": True, "is_debug": True}
    yield Sample((movement.sample_values((2,)),), {"function": _nothing, "shapes": (), **debug})


callback = Op(
    "callback",
    attributes=Callback,
    shape=_shape,
    evaluate=_evaluate,
    derivative=ByAttributes(_derivative),
    batch=_batch,
    samples=_samples,
)
