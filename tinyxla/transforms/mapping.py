"""Map: a computation of scalars applied element by element.

Source: section "Map" of the XLA documents. It is the computation with each of its ops mapped over every dimension, so
it fuses as if these ops had been written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, calls, elementwise, movement
from tinyxla.ops.op import Axes, Decomposition, Ints
from tinyxla.shapes import AnyShape, Shape, element_type
from tinyxla.transforms.batch import batch
from tinyxla.transforms.computations import of_one, run


class Map(NamedTuple):
    dimensions: Ints
    to_apply: Computation


def _shape(*operands: AnyShape, dimensions: Ints, to_apply: Computation) -> Shape:
    arrays = [x for x in operands if isinstance(x, Shape)]
    if not arrays or len(arrays) < len(operands):
        raise ShapeError(f"map: the operands must be arrays, at least one, but are {operands}.")
    sizes = arrays[0].dimensions
    if any(x.dimensions != sizes for x in arrays):
        raise ShapeError(f"map: the operands must have the same dimensions, but are {arrays}; broadcast them first.")
    if dimensions != tuple(range(len(sizes))):
        raise AttributeValueError(
            f"map: dimensions must be those of the operands in order, {tuple(range(len(sizes)))}, but are {dimensions}."
        )
    scalars: list[AnyShape] = [Shape(x.element_type) for x in arrays]
    if to_apply.parameter_shapes != scalars:
        raise ShapeError(
            f"map: the computation {to_apply.name} must take scalars of the operands' types, {scalars}, but takes "
            f"{to_apply.parameter_shapes}."
        )
    result = to_apply.root.shape
    if not isinstance(result, Shape) or result.rank:
        raise ShapeError(f"map: the computation {to_apply.name} must give one scalar, but gives {result}.")
    return result.with_dimensions(sizes)


def _written_out(*operands: Any, dimensions: Ints, to_apply: Computation) -> Any:
    """The computation batched over the dimensions, one after the other."""
    sizes = operands[0].shape

    def over(number: int, *values: Any) -> Any:
        if number == len(sizes):
            return run(to_apply, values)[0]
        size = sizes[number]
        [(value, axis)] = batch(lambda *x: [over(number + 1, *x)], size, values, [0] * len(values))
        return movement.align_axis(value, axis, 0, size)

    return over(0, *operands)


def _batch(size: int, operands: tuple[Any, ...], axes: Axes, *, dimensions: Ints, to_apply: Any) -> Any:
    arrays = movement.in_front(operands, axes, size)
    return map_(*arrays, dimensions=tuple(range(len(dimensions) + 1)), to_apply=to_apply), 0


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    scalar, integer = Shape(element_type("f32")), Shape(element_type("s32"))
    product = of_one(lambda x, y: elementwise.mul(elementwise.sin(x), y), [scalar, scalar], "product")
    where = of_one(lambda n, x: elementwise.select(elementwise.lt(n, n), x, elementwise.neg(x)), [integer, scalar], "f")
    constant = of_one(lambda x: movement.full(2, np.int32), [scalar], "two")
    for shape in ((), (3,), (2, 3), (2, 0)):
        x, y = movement.sample_values(shape), movement.sample_values(shape) + np.float32(0.5)
        attributes = {"dimensions": tuple(range(len(shape))), "to_apply": product}
        yield Sample((np.asarray(x), np.asarray(y)), attributes)
    x, n = movement.sample_values((2, 2)), movement.sample_values((2, 2), np.int32)
    yield Sample((n, x), {"dimensions": (0, 1), "to_apply": where})
    yield Sample((x,), {"dimensions": (0, 1), "to_apply": constant})


map_ = Op(
    "map",
    attributes=Map,
    shape=_shape,
    evaluate=lambda *operands, dimensions, to_apply: calls.evaluate_elements(to_apply, operands)[0],
    derivative=Decomposition(_written_out),
    batch=_batch,
    samples=_samples,
    expand=_written_out,
)
