"""DotGeneral: products of arrays summed over contracting dimensions.

Source: sections "Dot" and "DotGeneral" of the XLA documents: the result has the batch dimensions, then the left
    operand's free dimensions, then the right operand's.

`preferred_element_type` is the type in which products are summed, and the result's. `operand_precision` is kept and
printed; products are always computed in the operands' precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, Bilinear, Factors, Ints, Op, Sample, Value
from tinyxla.shapes import AnyShape, ElementType, Shape, element_type

Precision = tuple[str, ...]  # "default", "high" or "highest" for each operand; or none


class Dot(NamedTuple):
    lhs_contracting_dims: Ints
    rhs_contracting_dims: Ints
    lhs_batch_dims: Ints = ()
    rhs_batch_dims: Ints = ()
    preferred_element_type: ElementType | None = None
    operand_precision: Precision = ()

    def contracting(self, side: int) -> Ints:
        """Of the left operand (side 0) or the right (1)."""
        return self.rhs_contracting_dims if side else self.lhs_contracting_dims

    def batch(self, side: int) -> Ints:
        return self.rhs_batch_dims if side else self.lhs_batch_dims

    def with_side(self, side: int, contracting: Ints, batch: Ints) -> Dot:
        """The same with other dimension numbers for one operand."""
        if side:
            return self._replace(rhs_contracting_dims=contracting, rhs_batch_dims=batch)
        return self._replace(lhs_contracting_dims=contracting, lhs_batch_dims=batch)


def free_dimensions(rank: int, contracting: Ints, batch: Ints) -> Ints:
    return tuple(d for d in range(rank) if d not in contracting and d not in batch)


def matrix_sizes(dims: Dot, lhs: Ints, rhs: Ints) -> tuple[int, int, int, int]:
    """How many products of matrices a dot is, their rows and columns, and the terms of a sum."""
    rows = free_dimensions(len(lhs), dims.lhs_contracting_dims, dims.lhs_batch_dims)
    columns = free_dimensions(len(rhs), dims.rhs_contracting_dims, dims.rhs_batch_dims)
    parts = ((lhs, dims.lhs_batch_dims), (lhs, rows), (rhs, columns), (lhs, dims.lhs_contracting_dims))
    batch, m, n, k = (math.prod(sizes[d] for d in which) for sizes, which in parts)
    return batch, m, n, k


def dot_shape(lhs: AnyShape, rhs: AnyShape, *, name: str = "dot", **attributes: Any) -> Shape:
    """Of a product; `name` is that of the op that has these attributes."""
    a = Dot(**attributes)
    x, y = movement.array_operand(name, lhs), movement.array_operand(name, rhs)
    if x.element_type is not y.element_type:
        raise DTypeError(f"{name}: operands must have one element type, but got {x} and {y}; convert one of them.")
    movement.check_dimensions(name, "lhs dimensions", (*a.lhs_batch_dims, *a.lhs_contracting_dims), x.rank)
    movement.check_dimensions(name, "rhs dimensions", (*a.rhs_batch_dims, *a.rhs_contracting_dims), y.rank)
    for what, left, right in (
        ("contracting", a.lhs_contracting_dims, a.rhs_contracting_dims),
        ("batch", a.lhs_batch_dims, a.rhs_batch_dims),
    ):
        if len(left) != len(right):
            raise ShapeError(
                f"{name}: there must be as many {what} dimensions on either side, but got {left} and {right}."
            )
        for i, j in zip(left, right, strict=True):
            if x.dimensions[i] != y.dimensions[j]:
                raise ShapeError(
                    f"{name}: {what} dimensions must have equal sizes, but dimension {i} of {x} has size "
                    f"{x.dimensions[i]}, and dimension {j} of {y} has size {y.dimensions[j]}."
                )
    sizes = [x.dimensions[d] for d in a.lhs_batch_dims]
    sizes += [x.dimensions[d] for d in free_dimensions(x.rank, a.lhs_contracting_dims, a.lhs_batch_dims)]
    sizes += [y.dimensions[d] for d in free_dimensions(y.rank, a.rhs_contracting_dims, a.rhs_batch_dims)]
    return Shape(result_type(name, x.element_type, a.preferred_element_type, a.operand_precision), tuple(sizes))


def result_type(
    name: str, operands: ElementType, preferred: ElementType | None, precision: Precision = ()
) -> ElementType:
    """The type that products of such operands are summed in, if it can be: integers may become wider or floats, floats
    any floats, complex numbers other complex ones."""
    if precision and (len(precision) != 2 or any(p not in ("default", "high", "highest") for p in precision)):
        raise AttributeValueError(
            f"{name}: operand_precision must be default, high or highest for each operand, but got {precision}."
        )
    if preferred is None or preferred is operands:
        return operands
    if operands.kind == preferred.kind:
        fits = not operands.is_integer or preferred.bits >= operands.bits
    else:
        fits = preferred.kind == "float" and operands.is_integer
    if not fits:
        raise DTypeError(
            f"{name}: products of {operands} cannot be summed in preferred_element_type {preferred}; it must be of the "
            "same kind and for integers not narrower, or a float for integers."
        )
    return preferred


def _dot_evaluate(
    x: Array,
    y: Array,
    *,
    lhs_contracting_dims: Ints,
    rhs_contracting_dims: Ints,
    lhs_batch_dims: Ints,
    rhs_batch_dims: Ints,
    preferred_element_type: ElementType | None,
    operand_precision: Precision = (),
) -> Array:
    result = preferred_element_type.dtype if preferred_element_type else x.dtype
    wide = accumulator(result)
    lhs_free = free_dimensions(x.ndim, lhs_contracting_dims, lhs_batch_dims)
    rhs_free = free_dimensions(y.ndim, rhs_contracting_dims, rhs_batch_dims)
    batch = tuple(x.shape[d] for d in lhs_batch_dims)
    k = math.prod(x.shape[d] for d in lhs_contracting_dims)
    rows, columns = tuple(x.shape[d] for d in lhs_free), tuple(y.shape[d] for d in rhs_free)
    left = x.transpose(*lhs_batch_dims, *lhs_free, *lhs_contracting_dims).reshape((*batch, math.prod(rows), k))
    right = y.transpose(*rhs_batch_dims, *rhs_contracting_dims, *rhs_free).reshape((*batch, k, math.prod(columns)))
    product = np.matmul(left.astype(wide, copy=False), right.astype(wide, copy=False))
    return product.reshape((*batch, *rows, *columns)).astype(result, copy=False)


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What products of a narrow type are summed in."""
    kind = element_type(dtype)
    if kind.kind == "float" and kind.bits < 32:
        return np.dtype(np.float32)
    return np.dtype(np.int8) if kind.is_integer and kind.bits < 8 else dtype


def _cotangent_of_left(g: Value, x: Value, y: Value, *, swap: bool, dims: Dot) -> Value:
    """g contracted with y over y's free dimensions; what remains is put in the order of x."""
    batch = len(dims.lhs_batch_dims)
    y_free = free_dimensions(y.ndim, dims.rhs_contracting_dims, dims.rhs_batch_dims)
    x_free = free_dimensions(x.ndim, dims.lhs_contracting_dims, dims.lhs_batch_dims)
    start = batch if swap else batch + len(x_free)  # in g, the left operand's free dimensions come first
    product = dot(
        elementwise.convert(g, new_element_type=element_type(y.dtype)) if g.dtype != y.dtype else g,
        y,
        lhs_contracting_dims=tuple(range(start, start + len(y_free))),
        rhs_contracting_dims=y_free,
        lhs_batch_dims=tuple(range(batch)),
        rhs_batch_dims=dims.rhs_batch_dims,
        preferred_element_type=None,
        operand_precision=dims.operand_precision,
    )
    by_y = sorted(range(len(dims.rhs_contracting_dims)), key=lambda k: dims.rhs_contracting_dims[k])
    stands = (*dims.lhs_batch_dims, *x_free, *(dims.lhs_contracting_dims[k] for k in by_y))
    return movement.transpose_to(product, movement.inverse_permutation(stands))


def dot_left(g: Value, x: Value, y: Value, **attributes: Any) -> Value:
    return _cotangent_of_left(g, x, y, swap=False, dims=Dot(**attributes))


def dot_right(g: Value, x: Value, y: Value, **attributes: Any) -> Value:
    dims = Dot(**attributes)
    swapped = dims._replace(
        lhs_contracting_dims=dims.rhs_contracting_dims,
        rhs_contracting_dims=dims.lhs_contracting_dims,
        lhs_batch_dims=dims.rhs_batch_dims,
        rhs_batch_dims=dims.lhs_batch_dims,
    )
    return _cotangent_of_left(g, y, x, swap=True, dims=swapped)


def _moved(dimensions: Ints, axis: int | None) -> Ints:
    return dimensions if axis is None else tuple(d + (d >= axis) for d in dimensions)


def batched(dims: Dot, ranks: tuple[int, int], left: int | None, right: int | None) -> tuple[Dot, int]:
    """The dimension numbers for operands of these ranks with mapped axes, and where the result has its axis.

    Two mapped operands get one more batch dimension; a mapped axis of only one is a free dimension of it.
    """
    moved = dims._replace(
        lhs_contracting_dims=_moved(dims.lhs_contracting_dims, left),
        rhs_contracting_dims=_moved(dims.rhs_contracting_dims, right),
        lhs_batch_dims=_moved(dims.lhs_batch_dims, left),
        rhs_batch_dims=_moved(dims.rhs_batch_dims, right),
    )
    if left is not None and right is not None:
        batch = ((left, *moved.lhs_batch_dims), (right, *moved.rhs_batch_dims))
        return moved._replace(lhs_batch_dims=batch[0], rhs_batch_dims=batch[1]), 0
    if left is not None:
        free = free_dimensions(ranks[0], moved.lhs_contracting_dims, moved.lhs_batch_dims)
        return moved, len(dims.lhs_batch_dims) + free.index(left)
    assert right is not None
    free = free_dimensions(ranks[1], moved.rhs_contracting_dims, moved.rhs_batch_dims)
    return moved, ranks[0] - len(dims.lhs_contracting_dims) + free.index(right)


def _dot_batch(
    size: int, operands: tuple[Value, Value], axes: tuple[int | None, int | None], **attributes: Any
) -> tuple[Value, int]:
    x, y = operands
    dims, axis = batched(Dot(**attributes), (x.ndim, y.ndim), *axes)
    return dot(x, y, **dims._asdict()), axis


def _dot_samples(random: np.random.Generator) -> Iterator[Sample]:
    for lhs, rhs, dims in (
        ((3,), (3,), Dot((0,), (0,))),
        ((2, 3), (3,), Dot((1,), (0,))),
        ((2, 3), (3, 4), Dot((1,), (0,))),
        ((3, 2), (4, 3), Dot((0,), (1,))),
        ((2, 3, 4), (2, 4, 5), Dot((2,), (1,), (0,), (0,))),
        ((3, 2, 4), (4, 5, 2), Dot((2,), (0,), (1,), (2,))),
        ((2, 3, 4), (4, 3, 5), Dot((2, 1), (0, 1))),
        ((2, 3), (4, 2), Dot((), (), (0,), (1,))),
        ((2, 0), (0, 3), Dot((1,), (0,))),
        ((), (), Dot((), ())),
    ):
        for dtype in (np.float32, np.complex64, np.int32, element_type("bf16").dtype, np.float64):
            x, y = (elementwise.sample_array(random, dtype, shape, -3, 3) for shape in (lhs, rhs))
            yield Sample((x, y), dims._asdict())
    x, y = (elementwise.sample_array(random, np.int8, shape, -100, 100) for shape in ((2, 3), (3, 4)))
    yield Sample((x, y), Dot((1,), (0,), preferred_element_type=element_type("s32"))._asdict())
    x, y = (elementwise.sample_array(random, np.float32, shape, -3, 3) for shape in ((2, 3), (3,)))
    exact = Dot((1,), (0,), preferred_element_type=element_type("f64"), operand_precision=("highest", "default"))
    yield Sample((x, y), exact._asdict())


def dot_factors(x: Shape, y: Shape, **attributes: Any) -> Factors:
    """Batch dimensions, rows and columns stand in the result; what is contracted is summed over."""
    a = Dot(**attributes)
    lhs: list[int | None] = list(range(x.rank))
    rhs: list[int | None] = list(range(x.rank, x.rank + y.rank))
    for i, j in zip(
        (*a.lhs_batch_dims, *a.lhs_contracting_dims), (*a.rhs_batch_dims, *a.rhs_contracting_dims), strict=True
    ):
        rhs[j] = lhs[i]
    rows = free_dimensions(x.rank, a.lhs_contracting_dims, a.lhs_batch_dims)
    columns = free_dimensions(y.rank, a.rhs_contracting_dims, a.rhs_batch_dims)
    result = (*a.lhs_batch_dims, *rows, *(rhs[d] for d in columns))
    return Factors((tuple(lhs), tuple(rhs)), (result,), tuple((d, "add") for d in a.lhs_contracting_dims))


dot = Op(
    "dot",
    attributes=Dot,
    sharding=dot_factors,
    shape=dot_shape,
    evaluate=_dot_evaluate,
    derivative=Bilinear(dot_left, dot_right),
    batch=_dot_batch,
    samples=_dot_samples,
)
