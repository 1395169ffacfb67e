"""Ops between the lanes of a named axis: `vmap(..., axis_name="i")` makes one lane of each example.

Each has the axis' name and size as attributes. What maps that axis gives the op's meaning: then `axis_name` is `OWN`
when the op is batched, and lanes are a dimension of the operand. Mapped over any other axis they are ops like others.
By themselves they have a value only on an axis of one lane. (XLA's collectives, between replicas of a program, are
other ops.)

Derivatives are those of all lanes together: what one lane hands to others comes back as the sum of their cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, AxisNameError, DTypeError, ShapeError
from tinyxla.hlo import Literal
from tinyxla.ops import elementwise, indexing, movement, reduction
from tinyxla.ops.movement import array_operand, check_dimensions
from tinyxla.ops.op import OWN, Axes, ByAttributes, Decomposition, Derivative, Ints, Linear, Op, Sample, Value, Zero
from tinyxla.shapes import AnyShape, Shape, element_type

Pairs = tuple[tuple[int, int], ...]


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `evaluate` does for the one lane of an axis of size 1."""

    def evaluate(*operands: Any, axis_name: Hashable, axis_size: int, **attributes: Any) -> Any:
        if axis_size != 1:
            raise AxisNameError(
                f"The axis {axis_name!r} has {axis_size} lanes, and a program of one of them cannot be run by itself; "
                f"call it within the function that is mapped over {axis_name!r}."
            )
        return function(*operands, **attributes)

    return evaluate


def _with_dimension(shape: Shape, at: int, size: int) -> Shape:
    sizes = shape.dimensions
    return shape.with_dimensions((*sizes[:at], size, *sizes[at:]))


def _samples_on(*shapes: Ints, **attributes: Any) -> Callable[[np.random.Generator], Iterator[Sample]]:
    def samples(random: np.random.Generator) -> Iterator[Sample]:
        for shape in shapes:
            for dtype in (np.float32, np.int32):
                given = {"axis_name": "i", "axis_size": 1, **attributes}
                yield Sample((movement.sample_values(shape, dtype),), given)

    return samples


# --- sums and extrema -------------------------------------------------------------------------------------------------


class AllReduce(NamedTuple):
    axis_name: Hashable
    axis_size: int
    combiner: str


_REDUCERS = {"add": reduction.reduce_sum, "maximum": reduction.reduce_max, "minimum": reduction.reduce_min}


def _all_reduce_shape(x: AnyShape, *, axis_name: Hashable, axis_size: int, combiner: str) -> Shape:
    shape = array_operand("named-all-reduce", x)
    if combiner not in _REDUCERS:
        raise AttributeValueError(
            f"named-all-reduce: combiner must be one of {', '.join(_REDUCERS)}, but is {combiner!r}."
        )
    kind = shape.element_type.kind
    if kind == "token" or kind == ("pred" if combiner == "add" else "complex"):
        raise DTypeError(f"named-all-reduce: {combiner} does not take {shape}; convert it to a real number type.")
    return shape


def _all_reduce_batch(
    size: int, operands: tuple[Value], axes: Axes, *, axis_name: Hashable, axis_size: int, combiner: str
) -> Any:
    (x,), (axis,) = operands, axes
    if axis_name is not OWN:
        return named_all_reduce(x, axis_name=axis_name, axis_size=axis_size, combiner=combiner), axis
    if axis is not None:
        return _REDUCERS[combiner](x, (axis,)), None
    return (elementwise.mul(x, movement.full(size, x.dtype, x.shape)) if combiner == "add" else x), None


def _all_reduce_derivative(*, axis_name: Hashable, axis_size: int, combiner: str) -> Derivative:
    if combiner == "add":
        return Linear(lambda g, x, **attributes: (named_all_reduce(g, **attributes),))
    reduce = _REDUCERS[combiner]

    def of_all(x: Value, *, combiner: str, **axis: Any) -> Value:
        return reduce(named_all_gather(x, **axis, all_gather_dimension=0), (0,))

    return Decomposition(of_all)


named_all_reduce = Op(
    "named-all-reduce",
    attributes=AllReduce,
    shape=_all_reduce_shape,
    evaluate=_alone(lambda x, combiner: x),
    derivative=ByAttributes(_all_reduce_derivative),
    batch=_all_reduce_batch,
    samples=lambda random: (
        sample for combiner in _REDUCERS for sample in _samples_on((), (2, 3), (0, 2), combiner=combiner)(random)
    ),
)


# --- all lanes' values ------------------------------------------------------------------------------------------------


class AllGather(NamedTuple):
    axis_name: Hashable
    axis_size: int
    all_gather_dimension: int  # of the result; it has an element for each lane


def _all_gather_shape(x: AnyShape, *, axis_name: Hashable, axis_size: int, all_gather_dimension: int) -> Shape:
    shape = array_operand("named-all-gather", x)
    check_dimensions("named-all-gather", "all_gather_dimension", (all_gather_dimension,), shape.rank + 1)
    return _with_dimension(shape, all_gather_dimension, axis_size)


def _all_gather_transpose(g: Value, x: Value, *, all_gather_dimension: int, **axis: Any) -> tuple[Value]:
    return (sum_scattered(g, all_gather_dimension, **axis),)


def _all_gather_batch(
    size: int, operands: tuple[Value], axes: Axes, *, axis_name: Hashable, axis_size: int, all_gather_dimension: int
) -> Any:
    (x,), (axis,) = operands, axes
    if axis_name is OWN:
        return movement.align_axis(x, axis, all_gather_dimension, size), None
    assert axis is not None
    before = axis <= all_gather_dimension
    at = all_gather_dimension + before
    gathered = named_all_gather(x, axis_name=axis_name, axis_size=axis_size, all_gather_dimension=at)
    return gathered, axis + (not before)


named_all_gather = Op(
    "named-all-gather",
    attributes=AllGather,
    shape=_all_gather_shape,
    evaluate=_alone(lambda x, all_gather_dimension: np.expand_dims(x, all_gather_dimension)),
    derivative=Linear(_all_gather_transpose),
    batch=_all_gather_batch,
    samples=lambda random: (
        sample for at in (0, 1) for sample in _samples_on((3,), (2, 3), (2, 0), all_gather_dimension=at)(random)
    ),
)


# --- exchange ---------------------------------------------------------------------------------------------------------


class AllToAll(NamedTuple):
    """Lane i gives its element j along `split_dimension`, which goes, to lane j, where it is element i along
    `concat_dimension`, which is new."""

    axis_name: Hashable
    axis_size: int
    split_dimension: int
    concat_dimension: int


def _all_to_all_shape(
    x: AnyShape, *, axis_name: Hashable, axis_size: int, split_dimension: int, concat_dimension: int
) -> Shape:
    shape = array_operand("named-all-to-all", x)
    check_dimensions("named-all-to-all", "split_dimension", (split_dimension,), shape.rank)
    check_dimensions("named-all-to-all", "concat_dimension", (concat_dimension,), shape.rank)
    sizes = list(shape.dimensions)
    if sizes.pop(split_dimension) != axis_size:
        raise ShapeError(
            f"named-all-to-all: dimension {split_dimension} of {shape}, which is split among the {axis_size} lanes of "
            f"{axis_name!r}, must have size {axis_size}."
        )
    return _with_dimension(shape.with_dimensions(tuple(sizes)), concat_dimension, axis_size)


def _all_to_all_transpose(
    g: Value, x: Value, *, split_dimension: int, concat_dimension: int, **axis: Any
) -> tuple[Value]:
    return (named_all_to_all(g, **axis, split_dimension=concat_dimension, concat_dimension=split_dimension),)


def _all_to_all_batch(
    size: int, operands: tuple[Value], axes: Axes, *, split_dimension: int, concat_dimension: int, **axis: Any
) -> Any:
    x = movement.align_axis(operands[0], axes[0], 0, size)
    if axis["axis_name"] is not OWN:
        exchanged = {"split_dimension": split_dimension + 1, "concat_dimension": concat_dimension + 1}
        return named_all_to_all(x, **axis, **exchanged), 0
    order = [d for d in range(1, x.ndim) if d != split_dimension + 1]
    order.insert(concat_dimension, 0)
    return movement.transpose_to(x, (split_dimension + 1, *order)), 0


named_all_to_all = Op(
    "named-all-to-all",
    attributes=AllToAll,
    shape=_all_to_all_shape,
    evaluate=_alone(
        lambda x, split_dimension, concat_dimension: np.expand_dims(np.squeeze(x, split_dimension), concat_dimension)
    ),
    derivative=Linear(_all_to_all_transpose),
    batch=_all_to_all_batch,
    samples=lambda random: (
        sample
        for split, concat in ((0, 1), (0, 0))
        for sample in _samples_on((1, 3), (1, 2, 2), (1, 0), split_dimension=split, concat_dimension=concat)(random)
    ),
)


def sum_scattered(x: Value, dimension: int, **axis: Any) -> Value:
    """Each lane's own element along a dimension, which has one for each lane, of the sum over lanes."""
    exchanged = named_all_to_all(x, **axis, split_dimension=dimension, concat_dimension=0)
    return reduction.reduce_sum(exchanged, (0,))


# --- permutation ------------------------------------------------------------------------------------------------------


class Permute(NamedTuple):
    axis_name: Hashable
    axis_size: int
    source_target_pairs: Pairs  # a lane that is no target gets zeros


def _permute_shape(x: AnyShape, *, axis_name: Hashable, axis_size: int, source_target_pairs: Pairs) -> Shape:
    shape = array_operand("named-permute", x)
    for what, lanes in zip(("sources", "targets"), zip(*source_target_pairs, strict=True), strict=False):
        if len(set(lanes)) < len(lanes) or not all(0 <= lane < axis_size for lane in lanes):
            raise AttributeValueError(
                f"named-permute: the {what} must be distinct lanes of {axis_name!r}, from 0 to {axis_size - 1}, but "
                f"are {lanes}."
            )
    return shape


def _permute_batch(
    size: int, operands: tuple[Value], axes: Axes, *, axis_name: Hashable, axis_size: int, source_target_pairs: Pairs
) -> Any:
    (x,), (axis,) = operands, axes
    if axis_name is not OWN:
        attributes = {"axis_name": axis_name, "axis_size": axis_size, "source_target_pairs": source_target_pairs}
        return named_permute(x, **attributes), axis
    if axis is None and len(source_target_pairs) == size:
        return x, None
    if not size:
        return movement.align_axis(x, axis, 0, size), 0
    given = {target: source for source, target in source_target_pairs}
    return _rows(movement.align_axis(x, axis, 0, size), [given.get(lane) for lane in range(size)]), 0


def _rows(x: Value, sources: Sequence[int | None]) -> Value:
    """Those rows of x, and zeros for None."""
    count = len(sources)
    if None in sources:
        x = movement.concatenate(x, movement.full(0, x.dtype, (1, *x.shape[1:])), dimension=0)
    places = np.array([count if source is None else source for source in sources], np.int32)
    return indexing.gather(
        x,
        movement.constant(literal=Literal(places)),
        offset_dims=tuple(range(1, x.ndim)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *x.shape[1:]),
    )


def _permute_transpose(g: Value, x: Value, *, source_target_pairs: Pairs, **axis: Any) -> tuple[Value]:
    return (named_permute(g, **axis, source_target_pairs=tuple((t, s) for s, t in source_target_pairs)),)


named_permute = Op(
    "named-permute",
    attributes=Permute,
    shape=_permute_shape,
    evaluate=_alone(lambda x, source_target_pairs: x if source_target_pairs else np.zeros_like(x)),
    derivative=Linear(_permute_transpose),
    batch=_permute_batch,
    samples=lambda random: (
        sample
        for pairs in (((0, 0),), ())
        for sample in _samples_on((), (2, 3), (0,), source_target_pairs=pairs)(random)
    ),
)


# --- the lane's number ------------------------------------------------------------------------------------------------


class Index(NamedTuple):
    axis_name: Hashable
    axis_size: int


_NUMBER = Shape(element_type(np.int32))


def _index_batch(size: int, operands: tuple[Value, ...], axes: Axes, *, axis_name: Hashable, axis_size: int) -> Any:
    if axis_name is OWN:
        return movement.iota(shape=_NUMBER.with_dimensions((size,)), iota_dimension=0), 0
    return named_index(axis_name=axis_name, axis_size=axis_size), None


named_index = Op(
    "named-index",
    attributes=Index,
    shape=lambda *, axis_name, axis_size: _NUMBER,
    evaluate=_alone(lambda: np.zeros((), np.int32)),
    derivative=Zero(),
    batch=_index_batch,
    samples=lambda random: iter([Sample((), {"axis_name": "i", "axis_size": 1})]),
)
