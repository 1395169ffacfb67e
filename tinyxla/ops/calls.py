"""Tuples, calls of computations, and what runs a computation: on arrays, on any values, and mapped over an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation, Instruction, axis_names
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import OWN, Array, Linear, NotDifferentiable, Op, Sample
from tinyxla.shapes import AnyShape, TupleShape


def evaluate(computation: Computation, operands: Sequence[Any]) -> Any:
    """The value of a computation on NumPy arrays, op by op: the interpreter."""
    values: dict[Instruction, Any] = dict(zip(computation.parameters, operands, strict=True))
    with np.errstate(all="ignore"):
        for x in computation.instructions:
            if x not in values:
                values[x] = x.op.evaluate(*(values[o] for o in x.operands), **x.attributes._asdict())
    return values[computation.root]


_mapped: Callable[[Computation, int], Computation] | None = None


def set_mapped(function: Callable[[Computation, int], Computation]) -> None:
    """Say how a computation is mapped over the first axis, of this size, of all its parameters and results: that takes
    tracing, which is a matter of other layers."""
    global _mapped
    _mapped = function


_gradient: Callable[[Computation], Computation] | None = None


def set_gradient(function: Callable[[Computation], Computation]) -> None:
    """Say how a computation of one result is differentiated, which is a matter of other layers, too."""
    global _gradient
    _gradient = function


def gradient(computation: Computation) -> Computation:
    """From the operands of a computation and a cotangent of its one result: the result and the operands' cotangents."""
    assert _gradient is not None, "tinyxla.transforms has not been imported"
    return _gradient(computation)


def evaluate_elements(computation: Computation, operands: Sequence[Array]) -> list[Array]:
    """A computation of scalars on arrays of one shape, element by element: its results, as a list."""
    sizes = operands[0].shape
    if all(map(_is_elementwise, computation.instructions)):
        found = evaluate(computation, operands)
    elif operands[0].size == 0:
        found = tuple(np.zeros((), x.array_shape.dtype) for x in computation.outputs)
    else:
        assert _mapped is not None, "tinyxla.transforms has not been imported"
        flat = [x.reshape(-1) for x in operands]
        found = evaluate(_mapped(computation, flat[0].size), flat)
        found = tuple(np.reshape(x, sizes) for x in found)
    return [np.broadcast_to(x, sizes) for x in (found if isinstance(found, tuple) else (found,))]


def _is_elementwise(x: Instruction) -> bool:
    """Whether what `evaluate` does for scalars it does for the elements of arrays."""
    if x.op is movement.constant:
        return x.array_shape.rank == 0
    return x.op.name in elementwise.NAMES or x.op in (movement.parameter, tuple_, get_tuple_element)


def inline(computation: Computation, operands: Sequence[Any]) -> Any:
    """The ops of a computation, called on values: in a trace this records them there."""
    values: dict[Instruction, Any] = dict(zip(computation.parameters, operands, strict=True))
    for x in computation.instructions:
        if x not in values:
            values[x] = x.op(*(values[o] for o in x.operands), **x.attributes._asdict())
    return values[computation.root]


def inline_batched(
    computation: Computation, size: int, operands: Sequence[Any], axes: Sequence[int | None]
) -> tuple[Any, Any]:
    """A computation mapped over one axis of some operands: its result and the result's mapped axis (tuples of both for
    a tuple result)."""
    values: dict[Instruction, tuple[Any, Any]] = dict(
        zip(computation.parameters, zip(operands, axes, strict=True), strict=True)
    )
    for x in computation.instructions:
        if x in values:
            continue
        inputs = tuple(values[o][0] for o in x.operands)
        mapped = tuple(values[o][1] for o in x.operands)
        values[x] = apply_batched(x.op, size, inputs, mapped, x.attributes._asdict())  # type: ignore[arg-type]
    return values[computation.root]


def apply_batched(op: Op, size: int, operands: tuple[Any, ...], axes: tuple[Any, ...], attributes: Any) -> Any:
    """One op under a map: its batch rule if an operand is mapped or the op names the axis, else the op itself."""
    if op.structural:
        return op.evaluate(*operands, **attributes), op.evaluate(*axes, **attributes)
    if all(axis is None for axis in axes) and OWN not in axis_names(attributes):
        result = op(*operands, **attributes)
        return result, (None,) * len(result) if isinstance(result, tuple) else None
    return op.batch(size, operands, axes, **attributes)


# --- tuples -----------------------------------------------------------------------------------------------------------


class GetTupleElement(NamedTuple):
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - HLO's name; the tuple method is not used


def _get_tuple_element_shape(x: AnyShape, *, index: int) -> AnyShape:
    if not isinstance(x, TupleShape):
        raise ShapeError(f"get-tuple-element: the operand must be a tuple, but got {x}.")
    if not 0 <= index < len(x.elements):
        raise ShapeError(
            f"get-tuple-element: index must be one of the {len(x.elements)} elements of {x}, but got {index}."
        )
    return x.elements[index]


def _structural_batch(size: int, operands: Any, axes: Any, **attributes: Any) -> Any:
    raise AssertionError("ops that only regroup values are not batched")


def _tuple_samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((movement.sample_values((2, 3)), movement.sample_values((4,), np.int32)))


def _get_tuple_element_samples(random: np.random.Generator) -> Iterator[Sample]:
    for index in (0, 1):
        yield Sample(((movement.sample_values((2, 3)), movement.sample_values((4,), np.int32)),), {"index": index})


tuple_ = Op(
    "tuple",
    shape=lambda *shapes: TupleShape(shapes),
    evaluate=lambda *values: values,
    derivative=Linear(lambda g, *operands: g),
    batch=_structural_batch,
    samples=_tuple_samples,
    structural=True,
)
get_tuple_element = Op(
    "get-tuple-element",
    attributes=GetTupleElement,
    shape=_get_tuple_element_shape,
    evaluate=lambda values, *, index: values[index],
    derivative=NotDifferentiable("taken apart before it is differentiated"),
    batch=_structural_batch,
    samples=_get_tuple_element_samples,
    structural=True,
)
